//! Commands on all keys where several stores share them: what each is asked, and what their answers come to. No order
//! is kept between the stores, so the whole is no picture of one moment.
//!
//! What is asked is about places, not about partitions: each answers for what it serves of those that it is asked about, and
//! for the others whoever serves them is asked. So a key that is there all the time is listed, counted or deleted once, also
//! where it moves meanwhile.
//!
//! **Scans** go through the ring in parts that are always the same, the equal stretches that the stores owned at first,
//! and through the keys of a part in the order of the stores. So a cursor does not say who serves the keys that are still
//! to come, and they may move meanwhile: a page asks whoever serves some of its part now, and each answers for what it
//! serves of that when it is asked. Every place of the part is thus answered for, once, by the one that served it then,
//! and a key that is there all the time is in the page to which its hash belongs.

use crate::key::Key;
use crate::keys::cursor_shift;
use crate::turn::Turn;
use crate::{Store, hash};
use isochrone_core::command::{Operation, Refusal, Response, Share, Shared};
use isochrone_core::migration::{Ring, Stretch};
use isochrone_core::{Blob, Command, PartitionId, Stamp};
use std::sync::Arc;

/// What one store is asked, that of the partition [`Ring::at`], which serves these places, ascending.
pub(crate) fn share(command: &Command, ring: Ring, served: &[Stretch]) -> Option<Command> {
    let (part, operation) = match &command.operation {
        Operation::Scan { cursor, count, pattern, kind } => {
            let (cursor, part) = place(*cursor, ring.partitions);
            let (count, pattern, kind) = (*count, pattern.clone(), *kind);
            (ring.stretch(part), Operation::Scan { cursor, count, pattern, kind })
        }
        operation @ (Operation::DbSize
        | Operation::Flush
        | Operation::Keys { .. }
        | Operation::RandomKey { .. }) => (Stretch::ALL, operation.clone()),
        _ => return None,
    };
    let stretches: Vec<_> = served.iter().filter_map(|stretch| stretch.common(part)).collect();
    if stretches.is_empty() {
        return None;
    }
    let share = Share { ring, stretches, operation };
    Some(Command { operation: Operation::Share { share: Arc::new(share) }, ..command.clone() })
}

/// Whether a key lies in one of these stretches, which are ascending.
fn lies_in(key: &Key, ring: Ring, stretches: &[Stretch]) -> bool {
    let place = ring.place(key);
    let at = stretches.partition_point(|stretch| stretch.last < place);
    stretches.get(at).is_some_and(|stretch| stretch.contains(place))
}

impl Store {
    /// Answers a share that changes nothing; `None` for one that does.
    pub(crate) fn answer_share(&self, share: &Share, stamp: Stamp) -> Option<Response> {
        let Share { ring, stretches, operation } = share;
        let all = self.ranges_of(*ring).serves_only(stretches);
        let within = |key: &Key| all || lies_in(key, *ring, stretches);
        let response = match operation {
            Operation::Scan { cursor, count, pattern, kind } => {
                self.scan(ring.partitions, *cursor, *count, pattern.as_ref(), *kind, stamp, within)
            }
            Operation::Keys { pattern } => self.list(pattern, stamp, within),
            Operation::DbSize if all => Response::count(self.alive(stamp)),
            Operation::DbSize => {
                let alive = self.keys.iter().filter(|listed| !listed.value.is_over(stamp));
                Response::count(alive.filter(|listed| within(listed.key)).count())
            }
            // Any will do, whoever was asked about it.
            Operation::RandomKey { seed } => self.random_key(*seed, stamp),
            _ => return None,
        };
        Some(self.shared(response, stretches))
    }

    fn shared(&self, response: Response, stretches: &[Stretch]) -> Response {
        let ranges = self.ranges.as_deref();
        let missing = ranges.map_or_else(Vec::new, |ranges| ranges.missing(stretches));
        Response::Share(Box::new(Shared { response, missing }))
    }
}

impl Turn<'_> {
    /// Deletes what is served here of what the share is about.
    pub(crate) fn run_share(&mut self, share: &Share) -> Response {
        let Share { ring, stretches, operation } = share;
        if !matches!(operation, Operation::Flush) {
            return Refusal::NestedTransaction.into();
        }
        if self.store().ranges_of(*ring).serves_only(stretches) {
            self.clear();
        } else {
            let keys = self.store().keys.iter().map(|listed| listed.key);
            let keys = keys.filter(|key| lies_in(key, *ring, stretches));
            for key in keys.map(Key::blob).collect::<Vec<Blob>>() {
                self.delete(&key);
            }
        }
        self.store().shared(Response::Ok, stretches)
    }
}

/// What the answers come to. The first error is the answer.
pub(crate) fn gather(command: &Command, of: u16, replies: Vec<Response>) -> Option<Response> {
    if let Some(error) = replies.iter().find(|reply| matches!(reply, Response::Error(_))) {
        return Some(error.clone());
    }
    let own = |reply| match reply {
        Response::Share(shared) => Some(shared.response),
        _ => None,
    };
    let answers = replies.into_iter().map(own).collect::<Option<Vec<_>>>()?.into_iter();
    Some(match &command.operation {
        Operation::Scan { cursor, .. } => {
            let (mut next, mut items, several) = (None, Vec::new(), answers.len() > 1);
            for reply in answers {
                let Response::Scan { cursor, items: found } = reply else { return None };
                items.extend(found);
                next = next.into_iter().chain((cursor != 0).then_some(cursor)).min();
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
