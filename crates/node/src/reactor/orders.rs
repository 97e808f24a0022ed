//! One answer for an order that several partitions take, and for one whose process is stopped.

use super::{Origin, Origins, Responder};
use isochrone_core::{KeyspaceId, PartitionId, ProcessId};
use std::sync::{Arc, Mutex, PoisonError};

/// What the partitions have said so far.
struct Gathered {
    left: usize,
    said: Vec<(PartitionId, Result<String, String>)>,
    respond: Option<Responder>,
}

/// A responder for each partition. When all have been told, `respond` is: of success where all succeeded.
pub(super) fn gather(partitions: &[PartitionId], respond: Responder) -> Vec<Responder> {
    if partitions.len() == 1 {
        return vec![respond];
    }
    let (left, said) = (partitions.len(), Vec::new());
    let gathered = Arc::new(Mutex::new(Gathered { left, said, respond: Some(respond) }));
    let one = |partition: &PartitionId| -> Responder {
        let (gathered, partition) = (Arc::clone(&gathered), *partition);
        Box::new(move |result| {
            let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.left -= 1;
            gathered.said.push((partition, result));
            if gathered.left == 0
                && let Some(respond) = gathered.respond.take()
            {
                respond(sum_up(std::mem::take(&mut gathered.said)));
            }
        })
    };
    partitions.iter().map(one).collect()
}

impl Origins {
    /// How many orders are not answered yet.
    pub(super) fn orders(&self) -> usize {
        self.waiting.values().filter(|origin| matches!(origin, Origin::Order { .. })).count()
    }

    /// Whether this node is giving away what it leads of a keyspace.
    pub(super) fn steps_down(&self, keyspace: KeyspaceId) -> bool {
        let own = |origin: &Origin| matches!(origin, Origin::Order { of, steps_down: true, .. } if of.keyspace == keyspace);
        self.waiting.values().any(own)
    }

    /// Answers whoever has given this process an order: it is stopped and will not.
    pub(super) fn process_stopped(&mut self, process: ProcessId) {
        let given = |origin: &Origin| matches!(origin, Origin::Order { of, .. } if *of == process);
        let mut tickets: Vec<_> =
            self.waiting.iter().filter(|(_, origin)| given(origin)).map(|(ticket, _)| *ticket).collect();
        tickets.sort();
        for ticket in tickets {
            if let Some(Origin::Order { responder, .. }) = self.take(ticket) {
                responder(Err(format!("{process} was stopped; it may still happen")));
            }
        }
    }
}

fn sum_up(mut said: Vec<(PartitionId, Result<String, String>)>) -> Result<String, String> {
    said.sort_by_key(|(partition, _)| *partition);
    let failed = said.iter().any(|(_, result)| result.is_err());
    let text = |(partition, result): &(PartitionId, Result<String, String>)| {
        let (Ok(text) | Err(text)) = result;
        format!("partition {}: {text}", partition.0)
    };
    let texts = said.iter().map(text).collect::<Vec<_>>().join("; ");
    if failed { Err(texts) } else { Ok(texts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_answer_says_what_every_partition_said() {
        let asked = |results: [Result<&str, &str>; 2]| {
            let (told, heard) = channel();
            let respond: Responder = Box::new(move |result| drop(told.send(result)));
            let mut responders = gather(&[PartitionId(0), PartitionId(1)], respond);
            for result in results {
                assert!(heard.try_recv().is_err(), "not before the last");
                // The last partition answers first.
                let responder = responders.pop().unwrap();
                responder(result.map(str::to_owned).map_err(str::to_owned));
            }
            heard.try_recv().unwrap()
        };
        assert_eq!(asked([Ok("done"), Ok("done")]), Ok("partition 0: done; partition 1: done".to_owned()));
        let mixed = "partition 0: does not lead; partition 1: done".to_owned();
        assert_eq!(asked([Ok("done"), Err("does not lead")]), Err(mixed));
    }
}
