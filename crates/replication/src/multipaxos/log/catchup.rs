//! How a replica that lags gets what it lacks: decided values from anyone, the leader's open slots from
//! the leader, and when the log no longer goes back far enough, somebody's state.

use super::{Log, Message, Record, Role, Timer, Value};
use isochrone_core::{Effects, ProcessId, Slot, Wire, wire};
use std::sync::Arc;

/// Bytes of values in one answer, unless a single slot is larger.
const ANSWER_BYTES: usize = 1 << 20;
/// Slots in one answer.
const ANSWER_SLOTS: u64 = 4_096;

impl<V: Wire> Log<V> {
    /// The timer of repair: what is still missing is asked for, again and again.
    pub(super) fn repair(&mut self, effects: &mut Effects<Self>) {
        self.repairing = false;
        if !self.lacks() || self.leads() {
            return;
        }
        self.ask(effects);
        self.repairing = true;
        effects.arm(Timer::Repair, self.parameters.resend);
    }

    fn ask(&mut self, effects: &mut Effects<Self>) {
        let leader = self.leader().filter(|leader| *leader != self.process);
        if let Some(peer) = leader.or(self.teller) {
            let question = Message::Fetch { from: self.decided };
            effects.urgently(|effects| effects.send_ahead(peer, question));
        }
    }

    pub(super) fn on_fetch(&mut self, from: ProcessId, first: Slot, effects: &mut Effects<Self>) {
        let decided = self.decided;
        if first < self.votes.base() {
            return effects.send_ahead(from, Message::Trimmed { decided });
        }
        let mut values = Vec::new();
        let mut bytes = 0;
        for slot in first.until(decided.min(first.plus(ANSWER_SLOTS))) {
            let Some(vote) = self.votes.get(slot) else { break };
            bytes += wire::encoded_size(&vote.value);
            values.push(vote.value.clone());
            if bytes >= ANSWER_BYTES {
                break;
            }
        }
        let reached = first.plus(values.len() as u64);
        if !values.is_empty() {
            // Ahead: decided is decided, whatever this replica forgets.
            effects.send_ahead(from, Message::Learned { from: first, values: Arc::from(values), decided });
        }
        if reached >= decided && self.leads() {
            self.send_open(from, decided.max(first), effects);
        }
    }

    /// Sends what is proposed and not decided, from `first` on.
    pub(super) fn send_open(&self, to: ProcessId, first: Slot, effects: &mut Effects<Self>) {
        let Role::Leader(reign) = &self.role else { return };
        let value = |slot| self.votes.get(slot).map_or(Value::NoOp, |vote| vote.value.clone());
        let values = first.until(reign.next).map(value).collect();
        let (ballot, decided) = (reign.ballot, self.decided);
        effects.send_ahead(to, Message::Adopt { ballot, from: first, values, decided });
    }

    pub(super) fn on_learned(
        &mut self,
        from: ProcessId,
        first: Slot,
        values: Arc<[Value<V>]>,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if self.leads() {
            // A leader decides its own slots; that others know more shows that it was deposed.
            return;
        }
        let end = first.plus(values.len() as u64);
        self.known = self.known.max(decided);
        if first <= self.decided && end > self.decided {
            effects.record(Record::Learned { from: first, values: values.clone() });
            self.learn(first, &values);
            self.behind = None;
            if self.decided < self.known {
                self.teller = Some(from);
                self.ask(effects);
            }
        }
    }

    pub(super) fn on_trimmed(&mut self, from: ProcessId, decided: Slot) {
        if decided > self.decided && !self.leads() {
            self.known = self.known.max(decided);
            self.behind = Some(from);
        }
    }
}
