//! A keyspace in partitions. Each is a group of its own over the same nodes, the first to lead another one in
//! each, so that the work of leading is spread; for SDPaxos this is the division of the sequencer
//! (`specs/sdpaxos.md` 4.7). A key belongs to one partition, and what touches keys of one partition only is
//! served there; no order is kept across partitions.

use crate::request::{Outcome, Refusal, Request};
use isochrone_core::command::Touch;
use isochrone_core::{
    Blob, Effects, Footprint, Identity, KeyspaceId, Loan, Malformed, PartitionId, Process, ProcessId,
    Snapshot, Ticket, Wire, Wrap, key_hash, key_tag,
};

/// The partition that a key is in: each owns an equal arc of the ring.
pub(crate) fn partition_of(keyspace: KeyspaceId, partitions: u16, key: &[u8]) -> PartitionId {
    let place = key_hash(keyspace, key_tag(key));
    // The product's upper half is below `partitions`.
    PartitionId(((u128::from(place) * u128::from(partitions)) >> 64) as u16)
}

/// The client role of a keyspace in partitions: one client for each, and the knowledge which of them a command
/// is for.
#[derive(Clone, Hash)]
pub(crate) struct Divided<C: Process> {
    keyspace: KeyspaceId,
    parts: Vec<Part<C>>,
    /// Partitions that had an input since the last [`Process::settle`].
    touched: Vec<PartitionId>,
}

#[derive(Clone, Hash)]
struct Part<C: Process> {
    client: C,
    loan: Loan<C>,
    touched: bool,
}

/// How the clients of the partitions are told apart.
struct Inner(PartitionId);

impl<C, X, R> Wrap<Divided<C>, C> for Inner
where
    C: Process<Request = Request<X>, Outcome = Outcome<R>>,
    X: Footprint + Wire,
    R: Wire,
{
    fn message(&self, message: C::Message) -> C::Message {
        message
    }

    fn record(&self, record: C::Record) -> (PartitionId, C::Record) {
        (self.0, record)
    }

    fn timer(&self, timer: C::Timer) -> (PartitionId, C::Timer) {
        (self.0, timer)
    }

    fn mark(&self, mark: C::Mark) -> C::Mark {
        mark
    }
}

impl<C, X, R> Divided<C>
where
    C: Process<Request = Request<X>, Outcome = Outcome<R>>,
    X: Footprint + Wire,
    R: Wire,
{
    /// Which partition serves a command.
    fn route(&self, command: &X) -> Result<PartitionId, Refusal> {
        let mut found: Result<Option<PartitionId>, Refusal> = Ok(None);
        // A deployment has at most 1,024 partitions.
        let partitions = self.parts.len() as u16;
        command.visit(&mut |touch| {
            found = match (touch, found) {
                (_, Err(refusal)) => Err(refusal),
                (Touch::All(_), _) => Err(Refusal::Whole),
                (Touch::Key(key, _), Ok(known)) => {
                    let partition = partition_of(self.keyspace, partitions, key);
                    if known.is_none_or(|known| known == partition) {
                        Ok(Some(partition))
                    } else {
                        Err(Refusal::Apart)
                    }
                }
            };
        });
        found.map(|partition| partition.unwrap_or(PartitionId(0)))
    }

    /// Gives the client of a partition an input.
    fn with(
        &mut self,
        partition: PartitionId,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut C, &mut Effects<C>),
    ) {
        let Some(part) = self.parts.get_mut(usize::from(partition.0)) else { return };
        let client = &mut part.client;
        let answers = effects.lend(&mut part.loan, &Inner(partition), |inner| input(client, inner));
        if !std::mem::replace(&mut part.touched, true) {
            self.touched.push(partition);
        }
        for (ticket, outcome) in answers {
            effects.complete(ticket, outcome);
        }
    }
}

impl<C, X, R> Process for Divided<C>
where
    C: Process<Request = Request<X>, Outcome = Outcome<R>>,
    X: Footprint + Wire,
    R: Wire,
{
    /// Of the client of each partition.
    type Setup = Vec<C::Setup>;
    type Message = C::Message;
    type Record = (PartitionId, C::Record);
    type Request = Request<X>;
    type Outcome = Outcome<R>;
    type Timer = (PartitionId, C::Timer);
    type Mark = C::Mark;

    fn open(identity: Identity, setup: &Self::Setup) -> Self {
        let part = |setup| Part { client: C::open(identity, setup), loan: Loan::default(), touched: false };
        let keyspace = identity.process.keyspace;
        Divided { keyspace, parts: setup.iter().map(part).collect(), touched: Vec::new() }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "client snapshot", cause: "a client keeps nothing".to_owned() })
    }

    fn replay(&mut self, (partition, record): Self::Record) {
        if let Some(part) = self.parts.get_mut(usize::from(partition.0)) {
            part.client.replay(record);
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        for partition in (0..self.parts.len() as u16).map(PartitionId) {
            self.with(partition, effects, C::start);
        }
    }

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        self.with(from.partition, effects, |client, effects| client.receive(from, message, effects));
    }

    fn request(&mut self, ticket: Ticket, request: Request<X>, effects: &mut Effects<Self>) {
        let partition = match &request {
            Request::Command(command) => self.route(command),
            // Each partition has its own members: its replicas are asked, not a client of all.
            Request::Change(_) => Err(Refusal::Apart),
        };
        match partition {
            Ok(partition) => {
                self.with(partition, effects, |client, effects| client.request(ticket, request, effects));
            }
            Err(refusal) => effects.complete_ahead(ticket, Outcome::Refused(refusal)),
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        // Who has the ticket is not remembered: the others do not know it, and tickets are not used twice.
        for partition in (0..self.parts.len() as u16).map(PartitionId) {
            self.with(partition, effects, |client, effects| client.cancel(ticket, effects));
        }
    }

    fn expire(&mut self, (partition, timer): Self::Timer, effects: &mut Effects<Self>) {
        self.with(partition, effects, |client, effects| client.expire(timer, effects));
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        let mut touched = std::mem::take(&mut self.touched);
        for partition in touched.drain(..) {
            self.with(partition, effects, C::settle);
            self.parts[usize::from(partition.0)].touched = false;
        }
        self.touched = touched;
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        self.parts.iter().for_each(|part| part.client.check());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_owns_an_equal_arc_and_a_tag_decides() {
        let partition = |partitions, key: &str| partition_of(KeyspaceId(1), partitions, key.as_bytes()).0;
        for partitions in [1, 3, 7, 1_024] {
            let mut keys = vec![0u32; usize::from(partitions)];
            for number in 0..u32::from(partitions) * 500 {
                keys[usize::from(partition(partitions, &format!("k{number}")))] += 1;
            }
            assert!(keys.iter().all(|count| (350..650).contains(count)), "{partitions}: {keys:?}");
        }
        for number in 0..100 {
            assert_eq!(partition(16, &format!("{{user7}}:{number}")), partition(16, "user7"));
        }
    }
}
