//! The instances of each replica as one replica sees them.

use super::super::message::{Attributes, Content, InstanceId, Phase};
use crate::order::Ordered;
use isochrone_core::{Ballot, Slot, SlotLog, TouchSet};
use std::collections::BTreeSet;
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

    /// What it holds, as a message says it to someone who may hold nothing.
    pub(super) fn content(&self) -> Option<Content<V>> {
        match (self.noop, &self.batch) {
            (true, _) => Some(Content::NoOp),
            (false, Some(batch)) => Some(Content::Batch(batch.clone())),
            (false, None) => None,
        }
    }
}

/// The instances of one replica.
#[derive(Clone, Hash, Debug)]
pub(super) struct Space<V> {
    log: SlotLog<Box<Instance<V>>>,
    /// All up to this one are executed.
    executed: u64,
    /// Executed beyond.
    beyond: BTreeSet<u64>,
}

impl<V: Ordered> Space<V> {
    pub(super) fn new() -> Space<V> {
        Space { log: SlotLog::starting_at(Slot(1)), executed: 0, beyond: BTreeSet::new() }
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

    /// Those executed beyond.
    pub(super) fn beyond(&self) -> &BTreeSet<u64> {
        &self.beyond
    }

    pub(super) fn is_executed(&self, number: u64) -> bool {
        number <= self.executed || self.beyond.contains(&number)
    }

    /// Marks an instance executed; whether it was not before.
    pub(super) fn execute(&mut self, number: u64) -> bool {
        if self.is_executed(number) {
            return false;
        }
        self.beyond.insert(number);
        self.advance();
        true
    }

    /// Marks everything up to this number executed.
    pub(super) fn execute_all(&mut self, upto: u64) {
        if upto > self.executed {
            self.executed = upto;
            self.beyond = self.beyond.split_off(&(upto + 1));
            self.advance();
        }
    }

    fn advance(&mut self) {
        while self.beyond.remove(&(self.executed + 1)) {
            self.executed += 1;
        }
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
