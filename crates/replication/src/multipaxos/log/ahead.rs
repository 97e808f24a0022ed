//! What a holder needs that executes values before they are decided ([`Step::Tentative`](crate::order::Step)).

use super::{Log, Role, Value};
use isochrone_core::{Ballot, Effects, Instant, ProcessId, Slot, Wire};
use std::collections::VecDeque;
use std::sync::Arc;

impl<V: Wire> Log<V> {
    /// From now on the log tells what it proposes as leader: see [`Log::next_announced`].
    pub(crate) fn announce(&mut self) {
        self.announced = Some(VecDeque::new());
    }

    /// The next values that were proposed here, once, in the order of their slots. Those that are untold when this
    /// replica ceases to lead never are.
    pub(crate) fn next_announced(&mut self) -> Option<Arc<[V]>> {
        self.announced.as_mut()?.pop_front()
    }

    /// Whether this replica has led and led no more since this was asked last. What is decided behind that may be
    /// another leader's.
    pub(crate) fn take_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }

    /// What a slot holds here, decided or not.
    pub(crate) fn value(&self, slot: Slot) -> Option<&Value<V>> {
        self.votes.get(slot).map(|vote| &vote.value)
    }

    /// Behind the last slot that is held here.
    pub(crate) fn end(&self) -> Slot {
        self.votes.end()
    }

    /// Whether this leader has decided all that it found proposed by others, and may propose: no change of the
    /// members is open.
    pub(crate) fn decided_what_it_adopted(&self) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        self.decided >= reign.serving && reign.barrier.is_none()
    }

    /// Whether this leader has handed out all that it was given to propose.
    pub(crate) fn is_idle(&self) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        self.queue.values.is_empty() && self.delivered == reign.next
    }

    /// Queues a value however full the queue is: a new leader owes it a place.
    pub(crate) fn enqueue_replayed(&mut self, value: V, bytes: usize, now: Instant) {
        if self.queue.values.is_empty() {
            self.queue.since = now;
        }
        self.queue.bytes += bytes;
        self.queue.values.push_back((value, u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    /// Proposes a slot that holds nothing.
    pub(crate) fn propose_noop(&mut self, effects: &mut Effects<Self>) {
        self.propose_slot(Value::NoOp, 0, effects.now(), effects);
    }

    /// Takes part in a leader's ballot, if that is not too old.
    pub(crate) fn follow(&mut self, from: ProcessId, ballot: Ballot, effects: &mut Effects<Self>) {
        self.admit(from, ballot, effects);
    }
}
