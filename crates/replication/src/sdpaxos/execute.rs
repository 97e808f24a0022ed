//! Merging: what is executed in which slot, and how a replica that lacks something gets it
//! (`specs/sdpaxos.md` 3.5, 4.7).

use super::assignment::{Assignment, NOBODY, Rank};
use super::message::{Message, Part, Value};
use super::order::Order;
use crate::keep::Keep;
use crate::order::{Decided, Ordered, Step, digest};
use isochrone_core::{Effects, Instant, ProcessId, ReplicaId, Slot, wire};
use std::sync::Arc;

/// Bytes of values in one answer, unless a single slot is larger.
const ANSWER_BYTES: usize = 1 << 20;
/// Slots in one answer.
const ANSWER_SLOTS: usize = 2_048;
/// Instances told to somebody who lacks their commit.
const HINTS: u64 = 256;

impl<V: Ordered> Order<V> {
    /// The next step, once each.
    pub(super) fn next_step(&mut self) -> Option<Step<V>> {
        self.steps.pop_front().or_else(|| std::mem::take(&mut self.dropped).then_some(Step::Dropped))
    }

    /// Whether anything may be executed here.
    fn executes(&self) -> bool {
        self.normal() && self.installed >= self.floor_view
    }

    /// Executes the next slot if what it holds is certain; while records are replayed, it is.
    pub(super) fn execute_next(&mut self, certain: bool, now: Instant) -> Option<Decided<V>> {
        if !certain && !self.executes() {
            return None;
        }
        let slot = self.executed + 1;
        let (owner, value) = match self.learned.pop_front() {
            Some(learned) => learned,
            None => {
                let owner = self.log.get(slot)?;
                if !certain && !self.is_committed(slot, owner) {
                    return None;
                }
                match self.counts.get(usize::from(owner)) {
                    None => (NOBODY, Value::NoOp),
                    Some(count) => {
                        let cell = self.spaces[usize::from(owner)].log.get(Slot(count + 1))?;
                        if !certain && !cell.decided {
                            return None;
                        }
                        (owner, cell.value.clone())
                    }
                }
            }
        };
        Some(self.execute(certain, slot, owner, value, now))
    }

    fn execute(
        &mut self,
        certain: bool,
        slot: u64,
        owner: Rank,
        value: Value<V>,
        now: Instant,
    ) -> Decided<V> {
        if slot > self.log.low() && self.log.set(slot, owner) {
            if certain {
                self.place_own();
            } else {
                self.fill_gap();
            }
        }
        self.executed = slot;
        self.committed.remove(&slot);
        let mut spans = None;
        if let Some(count) = self.counts.get_mut(usize::from(owner)) {
            *count += 1;
            let index = *count;
            self.spaces[usize::from(owner)].log.trim(Slot(index + 1));
            if owner == self.me {
                // Where a peer told it, it may hold something else than was proposed here.
                self.own_decided(index, &value, now);
                spans = self.proposals.remove(&index).and_then(|proposal| proposal.spans(now));
                self.own_slots.remove(&index);
                self.next = self.next.max(index + 1);
            } else if let Some(lead) = &mut self.spaces[usize::from(owner)].lead {
                lead.flights.remove(&index);
            }
        }
        let size = u32::try_from(wire::encoded_size(&value)).unwrap_or(u32::MAX);
        self.keep(owner, value.clone(), size);
        let (digest, values) = match value {
            Value::Batch(values) => (digest(&values), values),
            Value::NoOp => (0, Arc::default()),
        };
        let answer = owner == self.me;
        Decided { position: slot, digest, values, answer, spans }
    }

    /// Keeps an executed slot for others, within bounds.
    fn keep(&mut self, owner: Rank, value: Value<V>, size: u32) {
        self.done.push_back((owner, value, size));
        self.done_bytes += size as usize;
        let needed = self.contact.least();
        let (slots, bytes) = (self.parameters().keep_slots, self.parameters().keep_bytes);
        let keep = Keep::new(slots, bytes, self.serving);
        while let Some((_, _, size)) = self.done.front() {
            let first = self.executed + 1 - self.done.len() as u64;
            if !keep.exceeded(self.done.len(), self.done_bytes) && first > needed {
                break;
            }
            self.done_bytes -= *size as usize;
            self.done.pop_front();
        }
    }

    /// The slot before the first that is kept for others.
    pub(super) fn kept_from(&self) -> u64 {
        self.executed - self.done.len() as u64
    }

    /// The beat's look at what is missing: asked for where nothing has moved since the last.
    pub(super) fn repair(&mut self, effects: &mut Effects<Self>) {
        let (now, executed) = (effects.now(), self.executed);
        let known = self.contact.furthest().max(self.ordered).max(self.log.end());
        if self.stuck.0 != executed || known <= executed {
            self.stuck = (executed, 0);
            return;
        }
        if self.view != self.installed || !self.active {
            return;
        }
        self.stuck.1 += 1;
        let suspects = self.contact.suspects(self.parameters().election, now);
        // In turn: whoever has executed more, the owner of the slot, the sequencer.
        let ahead = |rank: &Rank| self.contact.executed[usize::from(*rank)] > executed;
        let mut ask: Vec<Rank> = self.peers().filter(ahead).collect();
        ask.extend(self.log.get(executed + 1).filter(|owner| usize::from(*owner) < self.count()));
        ask.push(self.head());
        ask.retain(|rank| *rank != self.me && !suspects.contains(ReplicaId(*rank)));
        if ask.is_empty() {
            return;
        }
        let rank = ask[(self.stuck.1 as usize - 1) % ask.len()];
        self.fetch(self.process_of(rank), effects);
    }

    fn fetch(&self, from: ProcessId, effects: &mut Effects<Self>) {
        effects.urgently(|effects| {
            effects.send_ahead(from, Message::Fetch { view: self.installed, from: self.executed + 1 })
        });
    }

    pub(super) fn on_fetch(
        &mut self,
        from: ProcessId,
        rank: Rank,
        view: isochrone_core::Ballot,
        first: u64,
        effects: &mut Effects<Self>,
    ) {
        if view != self.installed || self.view != self.installed {
            if view < self.installed {
                let view = self.installed;
                effects.urgently(|effects| effects.send_ahead(from, Message::Stale { view }));
            }
            return;
        }
        let executed = self.executed;
        if first <= self.kept_from() {
            return effects.urgently(|effects| effects.send_ahead(from, Message::Trimmed { view, executed }));
        }
        if first <= executed {
            let mut slots = Vec::new();
            let mut bytes = 0;
            let skip = (first - self.kept_from() - 1) as usize;
            for (owner, value, size) in self.done.iter().skip(skip).take(ANSWER_SLOTS) {
                slots.push((*owner, value.clone()));
                bytes += *size as usize;
                if bytes >= ANSWER_BYTES {
                    break;
                }
            }
            // Ahead: executed is executed, whatever this replica forgets.
            return effects.repeating(|effects| {
                effects.send_ahead(from, Message::Learned { view, first, slots, executed })
            });
        }
        self.hint(rank, first);
    }

    /// Tells what is known of slots that are not executed here either.
    fn hint(&mut self, rank: Rank, first: u64) {
        if !self.normal() {
            return;
        }
        let mut counts = self.counts.clone();
        let mut parts = Vec::new();
        let mut ordered = vec![Vec::new(); self.count()];
        for slot in self.executed + 1..(first + HINTS).min(self.log.end() + 1) {
            let Some(owner) = self.log.get(slot) else { break };
            let Some(count) = counts.get_mut(usize::from(owner)) else { continue };
            *count += 1;
            if slot < first {
                continue;
            }
            if let Some(cell) = self.spaces[usize::from(owner)].log.get(Slot(*count))
                && cell.decided
            {
                let (ballot, first, values) = (cell.ballot, *count, vec![cell.value.clone()]);
                parts.push(Part::Decided { owner, ballot, first, values });
            }
            if self.is_committed(slot, owner) {
                ordered[usize::from(owner)].push((slot, 1));
            }
        }
        for (owner, slots) in ordered.into_iter().enumerate().filter(|(_, slots)| !slots.is_empty()) {
            parts.push(Part::Ordered { owner: owner as Rank, slots });
        }
        let out = self.out(rank);
        out.again.extend(parts);
        out.order = true;
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(super) fn on_learned(
        &mut self,
        from: ProcessId,
        rank: Rank,
        view: isochrone_core::Ballot,
        first: u64,
        slots: Vec<(Rank, Value<V>)>,
        executed: u64,
        effects: &mut Effects<Self>,
    ) {
        let known = &mut self.contact.executed[usize::from(rank)];
        *known = executed.max(*known);
        if view != self.installed || !self.executes() {
            // Written down, it would be executed by a replay alone. It is asked for again.
            return;
        }
        let next = self.executed + 1;
        let end = first + slots.len() as u64;
        if first > next || end <= next || self.learned.len() >= slots.len() {
            return;
        }
        self.note(super::message::Entry::Learned(first, slots.clone()));
        self.learn(first, slots);
        self.behind = None;
        if end <= executed {
            effects.urgently(|effects| effects.send_ahead(from, Message::Fetch { view, from: end }));
        }
    }

    /// Takes over what a peer has executed.
    pub(super) fn learn(&mut self, first: u64, slots: Vec<(Rank, Value<V>)>) {
        let skip = (self.executed + 1).saturating_sub(first) as usize;
        if first <= self.executed + 1 && slots.len() > skip {
            self.learned = slots.into_iter().skip(skip).collect();
        }
    }

    pub(super) fn on_trimmed(&mut self, from: ProcessId, view: isochrone_core::Ballot, executed: u64) {
        if view == self.installed && executed > self.executed {
            self.behind = Some(from);
        }
    }

    /// Goes on behind a peer's state.
    pub(super) fn install_position(&mut self, position: &super::Position) -> bool {
        self.behind = None;
        let upto = position.executed;
        if upto <= self.executed || position.log.counts.len() != self.count() {
            return false;
        }
        let mut log = Assignment::from_image(&position.log);
        if log.contiguous() != upto {
            return false;
        }
        for rank in 0..self.count() {
            let count = log.count(rank as Rank);
            self.counts[rank] = count;
            self.spaces[rank].log.trim(Slot(count + 1));
            if let Some(lead) = &mut self.spaces[rank].lead {
                lead.flights = lead.flights.split_off(&(count + 1));
            }
        }
        // A log that begins behind it tells what this replica accepted, and whose the slots before it are comes by
        // what others have executed: one with a hole in between would take back what was accepted.
        if upto >= self.log.low() {
            for slot in upto + 1..=self.log.end() {
                // What was accepted here stays this replica's word.
                if let Some(owner) = self.log.get(slot) {
                    log.set(slot, owner);
                }
            }
            while log.advance().is_some() {}
            self.log = log;
        }
        self.executed = upto;
        self.floor_view = self.floor_view.max(position.view);
        self.seen = self.seen.max(position.view);
        self.learned.clear();
        self.done.clear();
        self.done_bytes = 0;
        self.committed = self.committed.split_off(&(upto + 1));
        if self.is_member() {
            let own = self.counts[usize::from(self.me)];
            let before = self.proposals.len();
            self.proposals = self.proposals.split_off(&(own + 1));
            self.dropped |= before != self.proposals.len();
            self.next = self.next.max(own + 1);
            self.rank_own();
        }
        true
    }
}
