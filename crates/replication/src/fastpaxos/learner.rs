//! Counting fast votes, and learning what others have decided.

use super::Mutation;
use super::message::{Message, Name, Outcome, Timer, Values};
use super::order::{Order, Role, digest};
use super::rule::{self, Standing};
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects, ProcessId, ReplicaId, Slot, wire};
use std::sync::Arc;

/// Bytes of values in one answer, unless a single index holds more.
const ANSWER_BYTES: usize = 1 << 20;
/// Indices in one answer.
const ANSWER_SLOTS: u64 = 4_096;

impl<V: Ordered> Order<V> {
    pub(super) fn on_votes(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        first: Slot,
        names: &[Name],
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        self.contacted(voter, effects.now());
        for (slot, name) in first.until(first.plus(names.len() as u64)).zip(names) {
            self.hear(slot, voter, Some(*name), reign, effects);
        }
    }

    pub(super) fn on_report(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        (first, upto): (Slot, Slot),
        votes: Vec<(Slot, V)>,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        self.contacted(voter, effects.now());
        if self.is_beyond(upto) {
            return self.hear_decided(decided, from, effects);
        }
        let mut votes = votes.into_iter().peekable();
        for slot in first.until(upto) {
            let name = votes.next_if(|(at, _)| *at == slot).and_then(|(_, value)| {
                let name = Name { id: value.id()?, digest: digest(&value) };
                // At an index that is decided it is of use only where it is to have another.
                let placed = matches!(&self.role, Role::Coordinator(reign) if reign.waits(name.id));
                if !(placed && self.is_decided(slot)) {
                    self.find(name, value);
                }
                Some(name)
            });
            self.hear(slot, voter, name, reign, effects);
        }
        self.hear_decided(decided, from, effects);
    }

    /// One replica's fast vote at one index, or that it has none and will have none.
    fn hear(
        &mut self,
        slot: Slot,
        voter: ReplicaId,
        name: Option<Name>,
        reign: Ballot,
        effects: &mut Effects<Self>,
    ) {
        if let Role::Coordinator(mine) = &mut self.role
            && mine.ballot == reign
        {
            mine.top = mine.top.max(slot.next());
        }
        if self.is_decided(slot) {
            if let Some(name) = name {
                self.lost(name, slot);
            }
            return;
        }
        if !self.learns() || self.is_beyond(slot) {
            return;
        }
        let together = self.parameters.mutated(Mutation::CountReignsTogether);
        let (n, fast) = (self.members.len(), self.fast_quorum());
        let Some(cell) = self.cell(slot, effects.now()) else { return };
        if reign < cell.reign && !together {
            return;
        }
        if reign > cell.reign {
            cell.reign = reign;
            if !together {
                cell.heard.clear();
            }
        }
        match cell.heard.iter_mut().find(|(seat, _)| *seat == voter) {
            // A vote stands; that there is none was said before a body was asked for, or twice.
            Some(_) => {}
            None => cell.heard.push((voter, name)),
        }
        if let Role::Coordinator(_) = &self.role {
            return self.evaluate(slot, effects);
        }
        let Some(cell) = self.cells.get(slot) else { return };
        if cell.heard.len() < fast {
            return;
        }
        let told = cell.heard.iter().map(|(_, name)| *name);
        if let Standing::Chosen(name) = rule::standing(n, fast, told)
            && let Some(value) = self.body(slot, name)
        {
            self.decide(slot, Arc::from([value]), true, effects.now());
            self.skip_to(slot.next(), false, effects);
        }
    }

    /// The command that a vote at an index names, if it is known here.
    pub(super) fn body(&self, slot: Slot, name: Name) -> Option<V> {
        if let Some(pending) = self.pending.get(&name.id)
            && pending.digest == name.digest
        {
            return Some(pending.value.clone());
        }
        if let Role::Coordinator(reign) = &self.role
            && let Some(value) = reign.found.get(&name)
        {
            return Some(value.clone());
        }
        let vote = self.cells.get(slot)?.vote.as_ref()?;
        let [value] = &vote.values[..] else { return None };
        (value.id() == Some(name.id) && digest(value) == name.digest).then(|| value.clone())
    }

    pub(super) fn on_commit(
        &mut self,
        from: ProcessId,
        entries: Vec<(Slot, Outcome<V>)>,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let mut known = decided;
        for (slot, outcome) in entries {
            known = known.max(slot.next());
            if self.is_beyond(slot) {
                continue;
            }
            let values = match outcome {
                Outcome::Values(values) => Some(values),
                Outcome::Yours(hash) => {
                    let vote = self.cells.get(slot).and_then(|cell| cell.vote.as_ref());
                    vote.map(|vote| vote.values.clone()).filter(|values| digest(&values[..]) == hash)
                }
            };
            if let Some(values) = values {
                self.decide(slot, values, false, now);
                self.skip_to(slot.next(), false, effects);
            }
        }
        self.hear_decided(decided, from, effects);
    }

    pub(super) fn hear_decided(&mut self, upto: Slot, from: ProcessId, effects: &mut Effects<Self>) {
        if self.decided < upto {
            self.lack(upto, from, effects);
        }
    }

    /// Something decided is missing here. It may only be late: it is asked for a little later.
    pub(super) fn lack(&mut self, known: Slot, teller: ProcessId, effects: &mut Effects<Self>) {
        if teller == self.process {
            return;
        }
        self.known = self.known.max(known);
        self.teller = Some(teller);
        if !self.repairing {
            self.repairing = true;
            effects.arm(Timer::Repair, self.parameters.repair);
        }
    }

    /// The timer of repair: what is still missing is asked for, again and again.
    pub(super) fn repair(&mut self, effects: &mut Effects<Self>) {
        self.repairing = false;
        if self.decided >= self.known {
            return;
        }
        self.fetch(effects);
        self.repairing = true;
        effects.arm(Timer::Repair, self.parameters.resend);
    }

    fn fetch(&mut self, effects: &mut Effects<Self>) {
        let coordinator = self.coordinator_process().filter(|process| *process != self.process);
        if let Some(peer) = coordinator.or(self.teller) {
            let fetch = Message::Fetch { from: self.decided };
            effects.urgently(|effects| effects.send_ahead(peer, fetch));
        }
    }

    pub(super) fn on_fetch(&mut self, from: ProcessId, first: Slot, effects: &mut Effects<Self>) {
        let decided = self.decided;
        if first < self.cells.base() {
            return effects.urgently(|effects| effects.send_ahead(from, Message::Trimmed { decided }));
        }
        let mut values = Vec::<Values<V>>::new();
        let mut bytes = 0;
        for slot in first.until(decided.min(first.plus(ANSWER_SLOTS))) {
            let Some(outcome) = self.cells.get(slot).and_then(|cell| cell.outcome.clone()) else { break };
            bytes += wire::encoded_size(&outcome);
            values.push(outcome);
            if bytes >= ANSWER_BYTES {
                break;
            }
        }
        if !values.is_empty() {
            // Ahead: decided is decided, whatever this replica forgets.
            effects.send_ahead(from, Message::Learned { from: first, values: Arc::from(values), decided });
        }
    }

    pub(super) fn on_learned(
        &mut self,
        from: ProcessId,
        first: Slot,
        values: &[Values<V>],
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let end = first.plus(values.len() as u64);
        self.known = self.known.max(decided);
        if first > self.decided || end <= self.decided {
            return;
        }
        for (slot, values) in first.until(end).zip(values) {
            self.decide(slot, values.clone(), false, effects.now());
        }
        self.behind = None;
        if self.decided < self.known {
            self.teller = Some(from);
            self.fetch(effects);
        }
    }

    pub(super) fn on_trimmed(&mut self, from: ProcessId, decided: Slot) {
        if decided > self.decided {
            self.known = self.known.max(decided);
            self.behind = Some(from);
        }
    }
}
