//! Commands on all keys where several stores share them: what each is asked, and what their answers come to. No order
//! is kept between the stores, so the whole is no picture of one moment.

use isochrone_core::command::{Operation, Response};
use isochrone_core::{Command, PartitionId};

/// What the store of one of `of` partitions is asked.
pub(crate) fn share(command: &Command, at: PartitionId, of: u16) -> Option<Command> {
    let operation = match &command.operation {
        Operation::Scan { cursor, count, pattern, kind } => {
            let (cursor, place) = place(*cursor, of);
            if place != at {
                return None;
            }
            Operation::Scan { cursor, count: *count, pattern: pattern.clone(), kind: *kind }
        }
        operation @ (Operation::DbSize
        | Operation::Flush
        | Operation::Keys { .. }
        | Operation::RandomKey { .. }) => operation.clone(),
        _ => return None,
    };
    Some(Command { operation, ..command.clone() })
}

/// What the answers come to. The first error is the answer.
pub(crate) fn gather(command: &Command, of: u16, replies: Vec<(PartitionId, Response)>) -> Option<Response> {
    if let Some((_, error)) = replies.iter().find(|(_, reply)| matches!(reply, Response::Error(_))) {
        return Some(error.clone());
    }
    let answers = replies.into_iter();
    Some(match &command.operation {
        Operation::Scan { .. } => match answers.last()? {
            (at, Response::Scan { cursor, items }) => {
                Response::Scan { cursor: behind(cursor, at, of), items }
            }
            _ => return None,
        },
        Operation::DbSize => {
            let sum = answers.map(|(_, reply)| match reply {
                Response::Integer(number) => Some(number),
                _ => None,
            });
            Response::Integer(sum.sum::<Option<i64>>()?)
        }
        Operation::Flush => Response::Ok,
        Operation::Keys { .. } => {
            let mut keys = Vec::new();
            for (_, reply) in answers {
                let Response::Array(found) = reply else { return None };
                keys.extend(found);
            }
            Response::Array(keys)
        }
        // Of each store one: which of them, the seed decides, whatever their sizes.
        Operation::RandomKey { seed } => {
            let mut found: Vec<_> =
                answers.map(|(_, reply)| reply).filter(|reply| *reply != Response::Nil).collect();
            if found.is_empty() {
                return Some(Response::Nil);
            }
            let at = (*seed >> 32) as usize % found.len();
            found.swap_remove(at)
        }
        _ => return None,
    })
}

/// The cursor of a scan in one store, and which.
fn place(cursor: u64, of: u16) -> (u64, PartitionId) {
    let of = u64::from(of).max(1);
    // Below `of`.
    (cursor / of, PartitionId((cursor % of) as u16))
}

/// The cursor behind a page that ended there: in the same store, or at the beginning of the next; 0 behind the last.
fn behind(cursor: u64, at: PartitionId, of: u16) -> u64 {
    match cursor {
        0 if at.0 + 1 < of => u64::from(at.0) + 1,
        0 => 0,
        // A cursor of one store has 52 bits at most.
        cursor => cursor * u64::from(of) + u64::from(at.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use isochrone_core::{Blob, Stamp, StateMachine};
    use std::collections::BTreeSet;

    /// What stores that share the keys answer together.
    fn ask(stores: &mut [Store], operation: Operation) -> Response {
        let (command, of) = (Command::new(Stamp::ZERO, operation), stores.len() as u16);
        let share = |(at, store): (usize, &mut Store)| {
            let at = PartitionId(at as u16);
            Some((at, store.apply(&share(&command, at, of)?)))
        };
        let replies = stores.iter_mut().enumerate().filter_map(share).collect();
        gather(&command, of, replies).unwrap()
    }

    #[test]
    fn several_stores_are_as_one() {
        let mut stores = vec![Store::default(); 3];
        let names: BTreeSet<Blob> = (0..500).map(|number| Blob::from(format!("key:{number}"))).collect();
        for (number, key) in names.iter().enumerate() {
            let (key, by) = (key.clone(), 1);
            // The second store stays empty.
            stores[number % 2 * 2].apply(&Command::new(Stamp::ZERO, Operation::IncrBy { key, by }));
        }
        assert_eq!(ask(&mut stores, Operation::DbSize), Response::Integer(500));
        let Response::Array(keys) = ask(&mut stores, Operation::Keys { pattern: Blob::from("*") }) else {
            panic!()
        };
        assert_eq!(keys.len(), 500);
        let (mut cursor, mut found) = (0, Vec::new());
        loop {
            let scan = Operation::Scan { cursor, count: 7, pattern: None, kind: None };
            let Response::Scan { cursor: next, items } = ask(&mut stores, scan) else { panic!() };
            found.extend(items);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (500, names.clone()));
        for seed in 0..20 {
            let Response::Bulk(key) = ask(&mut stores, Operation::RandomKey { seed: seed << 31 }) else {
                panic!()
            };
            assert!(names.contains(&key));
        }
        assert_eq!(ask(&mut stores, Operation::Flush), Response::Ok);
        assert_eq!(ask(&mut stores, Operation::DbSize), Response::Integer(0));
        assert_eq!(ask(&mut stores, Operation::RandomKey { seed: 1 }), Response::Nil);
        let transaction =
            Operation::Transaction { watched: [].into(), operations: [Operation::Flush].into() };
        assert!(share(&Command::new(Stamp::ZERO, transaction), PartitionId(0), 3).is_none());
    }
}
