//! Voting, and learning what the votes of others have decided.

use super::{Form, Log, Message, Mutation, Record, Role, Timer, Value, Vote};
use isochrone_core::{Ballot, Effects, Instant, Process, ProcessId, Slot, Span, Wire};
use std::sync::Arc;

impl<V: Wire> Log<V> {
    pub(super) fn on_accept(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        slot: Slot,
        value: Value<V>,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, ballot, effects) {
            return;
        }
        if self.is_beyond(slot) {
            return self.lack(decided, from, effects);
        }
        let voted = slot < self.decided || self.votes.get(slot).is_some_and(|vote| vote.ballot == ballot);
        if !voted {
            let in_order = self.tail == ballot && slot == self.votes.end();
            if self.parameters.form == Form::Prefix && !in_order {
                return self.lack(self.known.max(decided), from, effects);
            }
            if matches!(value, Value::Change(_)) {
                self.vote(ballot, slot, value.clone());
                self.refresh_peers();
            } else {
                self.vote(ballot, slot, value.clone());
            }
            if self.parameters.mutated(Mutation::AcknowledgeBeforeDurable) {
                effects.send_ahead(from, Message::Accepted { ballot, first: slot, last: slot });
            }
            effects.record(Record::Accepted { ballot, slot, value, decided: self.decided });
        }
        self.hear_decided(ballot, decided, from, effects);
        // A vote given before is given again: its record lies before this message. For a decided slot the
        // value is the decided one in every later ballot, and nothing can depend on this vote any more.
        self.acknowledge(from, ballot, slot, slot.next(), decided, effects);
    }

    /// Tells the leader of votes from `first` up to `end`, exclusive. One for nothing is asked for behind a change of the
    /// members, so that they know of the change: it is given by who knows all that is decided.
    fn acknowledge(
        &self,
        to: ProcessId,
        ballot: Ballot,
        first: Slot,
        end: Slot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let nothing = |slot: &Slot| self.votes.get(*slot).is_some_and(|vote| vote.value == Value::NoOp);
        let end = match self.decided < decided {
            true => first.until(end).find(nothing).unwrap_or(end),
            false => end,
        };
        if let Some(last) = end.0.checked_sub(1).map(Slot).filter(|last| first <= *last) {
            effects.urgently(|effects| effects.send(to, Message::Accepted { ballot, first, last }));
        }
    }

    pub(super) fn on_adopt(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        first: Slot,
        values: Arc<[Value<V>]>,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, ballot, effects) {
            return;
        }
        let end = first.plus(values.len() as u64);
        if self.parameters.form == Form::Prefix && first > self.decided {
            // What lies between is decided and unknown here; without it the log would have a hole.
            return self.lack(self.known.max(first), from, effects);
        }
        if end > first && self.is_beyond(Slot(end.0 - 1)) {
            return self.lack(decided, from, effects);
        }
        let new_tail = self.parameters.form == Form::Prefix && self.tail != ballot;
        let new = |slot: Slot| self.votes.get(slot).is_none_or(|vote| vote.ballot != ballot);
        if new_tail || first.max(self.decided).until(end).any(new) {
            self.vote_all(ballot, first, &values);
            self.refresh_peers();
            effects.record(Record::Adopted { ballot, from: first, values, decided: self.decided });
        }
        self.hear_decided(ballot, decided, from, effects);
        self.acknowledge(from, ballot, first, end, decided, effects);
    }

    pub(super) fn on_heartbeat(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        decided: Slot,
        sent: Instant,
        effects: &mut Effects<Self>,
    ) {
        if !self.admit(from, ballot, effects) {
            return;
        }
        let terms = self.parameters.lease_terms();
        let bound = if self.parameters.lease { terms.length() } else { Span::ZERO };
        if self.parameters.lease {
            let grant = (ballot.owner, terms.bound_until(effects.now()));
            if let Some((holder, until)) = self.grant.replace(grant)
                && holder != ballot.owner
            {
                self.granted_before = self.granted_before.max(until);
            }
        }
        // Ahead: a lease lives in memory only; whoever restarts waits a whole one out instead.
        let heard = Message::Heard { ballot, sent, decided: self.decided, bound };
        effects.urgently(|effects| effects.send_ahead(from, heard));
        self.hear_decided(ballot, decided, from, effects);
        if self.parameters.form == Form::Prefix && self.tail != ballot {
            self.lack(self.known, from, effects);
        }
    }

    /// Bounds what a leader, or a fault, can make this replica hold.
    fn is_beyond(&self, slot: Slot) -> bool {
        slot.since(self.decided) > self.parameters.window * 2
    }

    /// Accepts a value; below what is decided there is nothing left to accept.
    pub(super) fn vote(&mut self, ballot: Ballot, slot: Slot, value: Value<V>) {
        if slot >= self.decided {
            self.votes.insert(slot, Vote { ballot, value });
        }
    }

    /// Accepts a run of values; in the prefix form it replaces whatever another leader's log had there.
    pub(super) fn vote_all(&mut self, ballot: Ballot, first: Slot, values: &[Value<V>]) {
        let end = first.plus(values.len() as u64);
        if self.parameters.form == Form::Prefix && self.tail != ballot {
            self.votes.truncate(first.max(self.decided));
            self.tail = ballot;
        }
        for (slot, value) in first.until(end).zip(values) {
            self.vote(ballot, slot, value.clone());
        }
    }

    /// Everything before `upto` is decided, says the leader of `ballot`. What was accepted in that ballot
    /// is then known to be what was decided: a ballot has one value for a slot, and a value decided in an
    /// earlier ballot is the only one a later ballot can have. The last of them that changes the members.
    fn advance(&mut self, ballot: Ballot, upto: Slot) -> Option<Slot> {
        self.known = self.known.max(upto);
        let mut changed = None;
        while self.decided < upto && self.votes.get(self.decided).is_some_and(|vote| vote.ballot == ballot) {
            let slot = self.decided;
            if self.step_decided() {
                changed = Some(slot);
            }
        }
        changed
    }

    /// Everything before `upto` was decided, and held here, when a record was made that is replayed now.
    pub(crate) fn recall(&mut self, upto: Slot) {
        while self.decided < upto && self.votes.get(self.decided).is_some() {
            self.step_decided();
        }
    }

    pub(super) fn hear_decided(
        &mut self,
        ballot: Ballot,
        upto: Slot,
        from: ProcessId,
        effects: &mut Effects<Self>,
    ) {
        if let Some(slot) = self.advance(ballot, upto) {
            // Who the members are is not known from memory alone: behind it there may be silence for long.
            let change = Value::Change(self.configuration.clone());
            effects.record(Record::Learned { from: slot, values: [change].into() });
        }
        if self.decided < upto {
            self.lack(upto, from, effects);
        }
    }

    /// Takes over decided values; what was accepted instead in a dead ballot goes.
    pub(super) fn learn(&mut self, from: Slot, values: &[Value<V>]) -> bool {
        let end = from.plus(values.len() as u64);
        if from > self.decided || end <= self.decided {
            return false;
        }
        for (slot, value) in from.until(end).zip(values) {
            if slot < self.decided {
                continue;
            }
            let known = self.votes.get(slot).is_some_and(|vote| vote.value == *value);
            if !known {
                if self.parameters.form == Form::Prefix {
                    // The log accepted here differs from the decided one, so no slot of it from here on was
                    // ever chosen or can be: those votes bind nobody.
                    self.votes.truncate(slot);
                }
                let ballot = self.votes.get(slot).map_or(Ballot::ZERO, |vote| vote.ballot);
                self.votes.insert(slot, Vote { ballot, value: value.clone() });
            }
            self.step_decided();
        }
        true
    }

    /// Something decided is missing here. It may only be late: it is asked for a little later.
    pub(super) fn lack(&mut self, known: Slot, teller: ProcessId, effects: &mut Effects<Self>) {
        self.known = self.known.max(known);
        self.teller = Some(teller);
        if !self.repairing {
            self.repairing = true;
            effects.arm(Timer::Repair, self.parameters.repair);
        }
    }

    /// Whether there is something to ask for: decided slots, or the log of the leader.
    pub(super) fn lacks(&self) -> bool {
        let unadopted = self.parameters.form == Form::Prefix
            && matches!(self.role, Role::Follower)
            && self.watch.leader.is_some_and(|ballot| self.tail != ballot);
        self.decided < self.known || unadopted
    }
}

// `Log` is named through `Effects<Self>` in every handler here.
const _: () = {
    const fn is_process<P: Process>() {}
    is_process::<Log<u8>>();
};
