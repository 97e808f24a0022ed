//! Commands on all keys where several stores share them: what each is asked, and what their answers come to. No order
//! is kept between the stores, so the whole is no picture of one moment.
//!
//! **Scans** go through the ring in parts that are always the same, the equal stretches that the stores owned at first,
//! and through the keys of a part in the order of the stores. So a cursor does not say who serves the keys that are still
//! to come, and they may move meanwhile: a page asks whoever serves some of its part now, and each answers for what it
//! serves of that when it is asked. Every place of the part is thus answered for, once, by the one that served it then,
//! and a key that is there all the time is in the page to which its hash belongs.

use crate::hash;
use crate::keys::cursor_shift;
use isochrone_core::command::{Operation, Response, ScanShare};
use isochrone_core::migration::{Ring, Stretch};
use isochrone_core::{Command, PartitionId};
use std::sync::Arc;

/// What one store is asked, that of the partition [`Ring::at`], which serves these places, ascending.
pub(crate) fn share(command: &Command, ring: Ring, served: &[Stretch]) -> Option<Command> {
    let operation = match &command.operation {
        Operation::Scan { cursor, count, pattern, kind } => {
            let (cursor, part) = place(*cursor, ring.partitions);
            let part = ring.stretch(part);
            let stretches: Vec<_> = served.iter().filter_map(|stretch| stretch.common(part)).collect();
            if stretches.is_empty() {
                return None;
            }
            let (count, pattern, kind) = (*count, pattern.clone(), *kind);
            let share = ScanShare { ring, stretches, cursor, count, pattern, kind };
            Operation::ScanShare { share: Arc::new(share) }
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
pub(crate) fn gather(command: &Command, of: u16, replies: Vec<Response>) -> Option<Response> {
    if let Some(error) = replies.iter().find(|reply| matches!(reply, Response::Error(_))) {
        return Some(error.clone());
    }
    let answers = replies.into_iter();
    Some(match &command.operation {
        Operation::Scan { cursor, .. } => {
            let (mut next, mut items, several) = (None, Vec::new(), answers.len() > 1);
            for reply in answers {
                let Response::ScanShare(shared) = reply else { return None };
                items.extend(shared.items);
                next = next.into_iter().chain((shared.cursor != 0).then_some(shared.cursor)).min();
            }
            let (_, part) = place(*cursor, of);
            if let Some(next) = next.filter(|_| several) {
                // The page ends with the first of them to end; the rest belongs to the next one.
                items.retain(|key| hash::place(key) >> cursor_shift(of) < next);
            }
            Response::Scan { cursor: behind(next, part, of), items }
        }
        Operation::DbSize => {
            let sum = answers.map(|reply| match reply {
                Response::Integer(number) => Some(number),
                _ => None,
            });
            Response::Integer(sum.sum::<Option<i64>>()?)
        }
        Operation::Flush => Response::Ok,
        Operation::Keys { .. } => {
            let mut keys = Vec::new();
            for reply in answers {
                let Response::Array(found) = reply else { return None };
                keys.extend(found);
            }
            Response::Array(keys)
        }
        // Of each store one: which of them, the seed decides, whatever their sizes.
        Operation::RandomKey { seed } => {
            let mut found: Vec<_> = answers.filter(|reply| *reply != Response::Nil).collect();
            if found.is_empty() {
                return Some(Response::Nil);
            }
            let at = (*seed >> 32) as usize % found.len();
            found.swap_remove(at)
        }
        _ => return None,
    })
}

/// The cursor of a scan in one part of the ring, and whose that was at first.
fn place(cursor: u64, of: u16) -> (u64, PartitionId) {
    let of = u64::from(of).max(1);
    // Below `of`.
    (cursor / of, PartitionId((cursor % of) as u16))
}

/// The cursor behind a page that ended there, or with its part: at the beginning of the next one, 0 behind the last.
fn behind(next: Option<u64>, part: PartitionId, of: u16) -> u64 {
    match next {
        None if part.0 + 1 < of => u64::from(part.0) + 1,
        None => 0,
        Some(next) => next * u64::from(of) + u64::from(part.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use isochrone_core::{Blob, KeyspaceId, Stamp, StateMachine};
    use std::collections::BTreeSet;

    const OF: u16 = 3;

    fn ring(at: u16) -> Ring {
        Ring { keyspace: KeyspaceId(7), partitions: OF, at: PartitionId(at) }
    }

    /// What stores that share the keys answer together. Nothing was moved.
    fn ask(stores: &mut [Store], operation: Operation) -> Response {
        let command = Command::new(Stamp::ZERO, operation);
        let share = |(at, store): (u16, &mut Store)| {
            let ring = ring(at);
            Some(store.apply(&share(&command, ring, &[ring.stretch(ring.at)])?))
        };
        let replies = (0..).zip(stores).filter_map(share).collect();
        gather(&command, OF, replies).unwrap()
    }

    #[test]
    fn several_stores_are_as_one() {
        let mut stores = vec![Store::default(); usize::from(OF)];
        let owner = |key: &Blob| ring(0).owner(ring(0).place(key)).0;
        let names = (0..).map(|number| Blob::from(format!("key:{number}")));
        // The second store stays empty.
        let names: BTreeSet<Blob> = names.filter(|key| owner(key) != 1).take(500).collect();
        for key in &names {
            let (key, by) = (key.clone(), 1);
            stores[usize::from(owner(&key))].apply(&Command::new(Stamp::ZERO, Operation::IncrBy { key, by }));
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
        assert!(share(&Command::new(Stamp::ZERO, transaction), ring(0), &[Stretch::ALL]).is_none());
    }
}
