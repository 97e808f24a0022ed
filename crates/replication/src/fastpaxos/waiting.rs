//! Commands of a reign that wait for a place, and those that have one.

use crate::order::Ordered;
use isochrone_core::CommandId;
use std::collections::{BTreeSet, VecDeque};

/// Decided commands that a reign remembers, so that who has not heard of it gives them no second place.
const DECIDED_MAX: usize = 1 << 16;

/// What lost its index, or got none, and is to have one; each command once.
#[derive(Clone, Hash, Debug)]
pub(super) struct Waiting<V> {
    values: VecDeque<V>,
    ids: BTreeSet<CommandId>,
    decided: BTreeSet<CommandId>,
    /// The same, the oldest first.
    ages: VecDeque<CommandId>,
}

impl<V: Ordered> Waiting<V> {
    pub(super) fn new() -> Waiting<V> {
        Waiting {
            values: VecDeque::new(),
            ids: BTreeSet::new(),
            decided: BTreeSet::new(),
            ages: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether a command needs no place any more: it waits, or is known to be decided.
    pub(super) fn has(&self, id: CommandId) -> bool {
        self.ids.contains(&id) || self.decided.contains(&id)
    }

    pub(super) fn push(&mut self, value: V) {
        if value.id().is_none_or(|id| self.ids.insert(id)) {
            self.values.push_back(value);
        }
    }

    pub(super) fn pop(&mut self) -> Option<V> {
        let value = self.values.pop_front()?;
        if let Some(id) = value.id() {
            self.ids.remove(&id);
        }
        Some(value)
    }

    /// A command has its place elsewhere.
    pub(super) fn remove(&mut self, id: CommandId) {
        if self.ids.remove(&id) {
            self.values.retain(|value| value.id() != Some(id));
        }
    }

    /// A command is decided.
    pub(super) fn decide(&mut self, id: CommandId) {
        self.remove(id);
        if self.decided.insert(id) {
            self.ages.push_back(id);
        }
        if self.ages.len() > DECIDED_MAX
            && let Some(oldest) = self.ages.pop_front()
        {
            self.decided.remove(&oldest);
        }
    }
}
