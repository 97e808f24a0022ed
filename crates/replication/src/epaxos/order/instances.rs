//! The instances of each replica as one replica sees them.

use super::super::message::{Attributes, Content, InstanceId, Phase};
use crate::order::Ordered;
use isochrone_core::{Ballot, IntervalMap, Slot, SlotLog, TouchSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One instance. There are two ballots: the promise and the ballot of the last vote. One for both would let a
/// promise pass for a vote.
#[derive(Clone, Hash, Debug)]
pub(super) struct Instance<V> {
    pub(super) phase: Phase,
    /// It takes part in no ballot below.
    pub(super) promised: Ballot,
    /// The ballot of its last vote; the first ballot is zero.
    pub(super) accepted: Ballot,
    /// What its leader put in, once known; gone again when it is executed and trimmed.
    pub(super) batch: Option<Arc<[V]>>,
    /// Bytes of that; 0 where nobody has counted.
    pub(super) bytes: u32,
    /// What that touches, once known.
    pub(super) touches: Option<Arc<TouchSet>>,
    /// What its leader proposed, where it was told by it or by a validation.
    pub(super) initial: Option<Attributes>,
    /// It was given up in the last vote, or for good.
    pub(super) noop: bool,
    /// What was last said of its attributes.
    pub(super) attributes: Attributes,
    /// The number of order by which it is in the conflict index; 0 where it is not.
    pub(super) indexed: u64,
}

impl<V> Default for Instance<V> {
    fn default() -> Instance<V> {
        Instance {
            phase: Phase::Initial,
            promised: Ballot::ZERO,
            accepted: Ballot::ZERO,
            batch: None,
            bytes: 0,
            touches: None,
            initial: None,
            noop: false,
            attributes: Attributes::default(),
            indexed: 0,
        }
    }
}

impl<V: Ordered> Instance<V> {
    pub(super) fn is_committed(&self) -> bool {
        self.phase == Phase::Committed
    }

    /// Whether neither what it was proposed with is known nor what it was committed with.
    pub(super) fn is_unknown(&self) -> bool {
        self.initial.is_none() && !self.is_committed()
    }

    /// How many keys it touches, as far as is known.
    pub(super) fn keys(&self) -> usize {
        self.touches.as_ref().map_or(0, |touches| touches.keys())
    }

    /// Whether whoever depends on it knows whether the two interfere.
    pub(super) fn is_known(&self) -> bool {
        self.touches.is_some() || self.is_committed() && self.noop
    }

    /// What it holds, as a message says it to someone who may hold nothing.
    pub(super) fn content(&self) -> Option<Content<V>> {
        match (self.noop, &self.batch) {
            (true, _) => Some(Content::NoOp),
            (false, Some(batch)) => Some(Content::Batch(batch.clone())),
            (false, None) => None,
        }
    }
}

/// What is known of an instance beyond the executed prefix.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
enum Mark {
    /// What it holds, or that it was given up.
    Known,
    Executed,
}

/// The instances of one replica.
#[derive(Clone, Hash, Debug)]
pub(super) struct Space<V> {
    log: SlotLog<Box<Instance<V>>>,
    /// All up to this one are executed.
    executed: u64,
    /// Of those beyond. In runs: a replica that lacks one may hold tens of thousands behind it.
    marks: IntervalMap<u64, Mark>,
}

impl<V: Ordered> Space<V> {
    pub(super) fn new() -> Space<V> {
        Space { log: SlotLog::starting_at(Slot(1)), executed: 0, marks: IntervalMap::default() }
    }

    pub(super) fn get(&self, number: u64) -> Option<&Instance<V>> {
        self.log.get(Slot(number)).map(|instance| &**instance)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Instance<V>> {
        self.log.get_mut(Slot(number)).map(|instance| &mut **instance)
    }

    /// The instance, begun where there was none; `None` where it was trimmed.
    pub(super) fn open(&mut self, number: u64) -> Option<&mut Instance<V>> {
        if self.log.get(Slot(number)).is_none() {
            self.log.insert(Slot(number), Box::default());
        }
        self.get_mut(number)
    }

    /// The instances held from this number on.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Instance<V>)> {
        self.log.range(Slot(number)).map(|(slot, instance)| (slot.0, &**instance))
    }

    /// The first number that is not trimmed.
    pub(super) fn base(&self) -> u64 {
        self.log.base().0
    }

    /// Behind the last number held.
    pub(super) fn end(&self) -> u64 {
        self.log.end().0
    }

    /// Forgets everything up to this number.
    pub(super) fn trim(&mut self, upto: u64) {
        self.log.trim(Slot(upto + 1));
    }

    /// Starts with everything up to this number trimmed.
    pub(super) fn reset(&mut self, base: u64) {
        self.log.reset(Slot(base));
    }

    /// All up to this one are executed.
    pub(super) fn executed(&self) -> u64 {
        self.executed
    }

    /// Those executed beyond, in order.
    pub(super) fn beyond(&self) -> impl Iterator<Item = u64> {
        let runs = self.marks.runs(0..u64::MAX).filter(|(_, mark)| **mark == Mark::Executed);
        runs.flat_map(|(run, _)| run)
    }

    pub(super) fn is_executed(&self, number: u64) -> bool {
        number <= self.executed || self.marks.get(number) == Some(&Mark::Executed)
    }

    /// Marks an instance executed; whether it was not before.
    pub(super) fn execute(&mut self, number: u64) -> bool {
        if self.is_executed(number) {
            return false;
        }
        if number == self.executed + 1 {
            self.execute_all(number);
        } else {
            self.marks.set(number..number + 1, Mark::Executed);
        }
        true
    }

    /// Marks everything up to this number executed.
    pub(super) fn execute_all(&mut self, upto: u64) {
        if upto > self.executed {
            self.executed = upto;
            if let Some((run, Mark::Executed)) = self.marks.run(upto + 1) {
                self.executed = run.end - 1;
            }
            self.marks.trim(self.executed + 1);
        }
    }

    /// Marks an instance known, by what it holds or as given up.
    pub(super) fn know(&mut self, number: u64) {
        if number > self.executed && self.marks.get(number).is_none() {
            self.marks.set(number..number + 1, Mark::Known);
        }
    }

    /// The last of these of which nothing is known.
    pub(super) fn last_unknown(&self, numbers: RangeInclusive<u64>) -> Option<u64> {
        let (first, behind) = (*numbers.start().max(&(self.executed + 1)), numbers.end() + 1);
        let mut at = behind;
        for (run, _) in self.marks.runs(first..behind).rev() {
            if run.end < at {
                break;
            }
            at = run.start;
        }
        (at > first).then(|| at - 1)
    }

    /// Those of these that are known and not executed, the last one first.
    pub(super) fn unexecuted(&self, numbers: RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        let runs = self.marks.runs(*numbers.start()..numbers.end() + 1).rev();
        runs.filter(|(_, mark)| **mark == Mark::Known).flat_map(|(run, _)| run.rev())
    }
}

/// How far a replica's state has come: of each seat a prefix, and what is executed beyond it.
pub(super) type Executed = Vec<(u64, Vec<u64>)>;

/// Whether everything in `few` is in `many`.
pub(super) fn includes(many: &Executed, few: &Executed) -> bool {
    let has = |(prefix, beyond): &(u64, Vec<u64>), number: u64| {
        number <= *prefix || beyond.binary_search(&number).is_ok()
    };
    many.len() == few.len()
        && many.iter().zip(few).all(|(many, (prefix, beyond))| {
            (many.0 + 1..=*prefix).all(|number| has(many, number))
                && beyond.iter().all(|number| has(many, *number))
        })
}

/// The set of all instances of a span of one seat, as identities.
pub(super) fn ids(seat: usize, from: u64, upto: u64) -> impl Iterator<Item = InstanceId> {
    (from..=upto).map(move |number| InstanceId::at(seat, number))
}

#[cfg(test)]
mod tests {
    use super::Space;

    #[test]
    fn tells_what_is_lacked_and_what_is_to_be_executed() {
        let mut space = Space::<u8>::new();
        let state = |space: &Space<u8>, upto| {
            (space.last_unknown(1..=upto), space.unexecuted(1..=upto).collect::<Vec<_>>())
        };
        assert_eq!((state(&space, 0), state(&space, 3)), ((None, vec![]), (Some(3), vec![])));
        [1, 2, 3, 5, 6].into_iter().for_each(|number| space.know(number));
        assert_eq!(
            (state(&space, 3), state(&space, 6)),
            ((None, vec![3, 2, 1]), (Some(4), vec![6, 5, 3, 2, 1]))
        );
        // Executed is known.
        assert!(space.execute(2) && space.execute(6) && !space.execute(2));
        space.know(2);
        assert_eq!((state(&space, 3), state(&space, 6)), ((None, vec![3, 1]), (Some(4), vec![5, 3, 1])));
        assert_eq!((space.executed(), space.beyond().collect::<Vec<_>>()), (0, vec![2, 6]));
        assert!(space.execute(1));
        assert_eq!((space.executed(), state(&space, 7)), (2, (Some(7), vec![5, 3])));
        // A peer's state has everything up to the fifth.
        space.execute_all(5);
        assert_eq!((space.executed(), space.beyond().count(), state(&space, 6)), (6, 0, (None, vec![])));
        assert!(space.is_executed(6) && !space.is_executed(7));
    }
}
