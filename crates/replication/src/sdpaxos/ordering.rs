//! Order instances: the sequencer says whose turn each slot is, and its owner learns when that is safe
//! (`specs/sdpaxos.md` 3.3 and 3.4).
//!
//! Everyone reports up to where it has accepted slots without a gap. A majority's reports commit everything
//! below them, whoever counts them. At five members a slot that its owner and the sequencer have accepted is
//! committed as well, once the owner has everything before it: `rebuild` says why that is enough.

use super::Mutation;
use super::assignment::{Image, Rank, Run};
use super::message::{Entry, Objects, Part, Value};
use super::order::{Order, Pending, Sequencer};
use crate::order::Ordered;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{Effects, Instant, Lease, ReplicaId, key_hash};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects named in one request at most.
const OBJECTS: usize = 64;
/// Objects whose last update the sequencer remembers at most.
const HISTORY: usize = 1 << 16;
/// Slots told in one message at most.
const SLOTS: usize = 8_192;

impl<V: Ordered> Order<V> {
    pub(super) fn fresh_sequencer(&self, now: Instant) -> Sequencer {
        Sequencer {
            sent: self.contiguous.clone(),
            progress: vec![now; self.count()],
            history: BTreeMap::new(),
            floor: self.log.end(),
            lease: Lease::default(),
            retired: None,
        }
    }

    /// What these instances write, for the history of the sequencer.
    pub(super) fn objects(&self, values: &[Value<V>]) -> Objects {
        if !self.parameters().lease {
            return Objects::All;
        }
        let (mut names, mut all) = (Vec::new(), false);
        for value in values {
            let Value::Batch(batch) = value else { continue };
            for value in batch.iter() {
                value.visit(&mut |touch| match touch {
                    Touch::Key(_, Access::Read) | Touch::All(Access::Read) => {}
                    Touch::Key(key, _) => names.push(key_hash(self.process.keyspace, key).max(1)),
                    Touch::All(_) => all = true,
                });
                if all || names.len() > OBJECTS {
                    return Objects::All;
                }
            }
        }
        Objects::These(names)
    }

    /// Gives a member slots for all its instances up to `index`, if this replica is the sequencer.
    pub(super) fn assign(
        &mut self,
        owner: Rank,
        first: u64,
        index: u64,
        objects: &Objects,
        counts: bool,
        now: Instant,
    ) {
        let have = self.log.count(owner);
        let mut upto = index;
        if counts && self.mutated(Mutation::CountDuplicateRequest) {
            upto = upto.max(have + 1);
        }
        let executed = self.counts.get(usize::from(owner)).copied().unwrap_or(u64::MAX);
        // What a fault asks for beyond this, it has to ask for again.
        upto = upto.min(executed.saturating_add(self.parameters().window * 4));
        if !self.sequences() || upto <= have {
            return;
        }
        let Some(sequencer) = self.sequencer.as_mut().filter(|sequencer| sequencer.retired.is_none()) else {
            return;
        };
        let slot = self.log.end() + 1;
        for number in 0..upto - have {
            self.log.set(slot + number, owner);
        }
        let last = self.log.end();
        match objects {
            Objects::These(names) if first <= have + 1 => {
                for name in names {
                    sequencer.history.insert(*name, last);
                }
                if sequencer.history.len() > HISTORY {
                    sequencer.history.clear();
                    sequencer.floor = last;
                }
            }
            _ => sequencer.floor = last,
        }
        self.write(Entry::Ordered(slot, vec![(owner, (upto - have) as u32)]));
        self.accepted_slots();
        if owner == self.me {
            let targets = self.contact.quorum(self.me, self.majority, self.me, self.parameters(), now);
            for target in targets.iter() {
                self.out(target.0).order = true;
            }
        } else {
            self.out(owner).order = true;
            // The owner and the sequencer are enough up to three members, and at five.
            let more = if self.inferring() { 0 } else { self.majority.saturating_sub(2) };
            let helpers = self.contact.helpers(self.me, owner, more, self.parameters(), now);
            for helper in helpers.iter() {
                self.out(helper.0).order = true;
            }
        }
    }

    /// The log has grown: which own instances have their slots now? Whether any has.
    pub(super) fn place_own(&mut self) -> bool {
        let mut any = false;
        while let Some((slot, owner, index)) = self.log.advance() {
            if owner == self.me && index > self.counts[usize::from(self.me)] {
                self.own_slots.insert(index, slot);
                any = true;
            }
        }
        any
    }

    fn accepted_slots(&mut self) {
        let before = self.log.contiguous();
        self.place_own();
        if self.log.contiguous() > before {
            self.then(Pending::Contiguous(self.installed, self.log.contiguous()));
            self.strict = true;
        }
    }

    /// O-ACCEPT.
    pub(super) fn on_order(&mut self, from: Rank, first: u64, runs: &[Run], now: Instant) {
        if from != self.head() || first == 0 {
            return;
        }
        if first > self.log.contiguous() + 1 {
            self.out(from).held.push(Part::Gap);
        }
        let mut slot = first;
        let mut owners = BTreeSet::new();
        for (owner, count) in runs {
            for _ in 0..*count {
                if slot > self.log.contiguous() + SLOTS as u64 * 4 {
                    break;
                }
                if self.log.set(slot, *owner) {
                    owners.insert(*owner);
                }
                slot += 1;
            }
        }
        if owners.is_empty() {
            // Told again: so is how far everything is accepted.
            self.out(from).poke = true;
            return;
        }
        self.write(Entry::Ordered(first, runs.to_vec()));
        self.accepted_slots();
        if self.mutated(Mutation::SlotAcrossViews) && !self.inferring() {
            self.ready_anywhere(now);
        }
        if self.mutated(Mutation::CommitOnAcceptance) && self.inferring() {
            self.committed.extend(first..slot);
        }
        let (me, head) = (self.me, self.head());
        let helps = !self.inferring() && self.majority > 2;
        for owner in owners {
            // Its learner counts this acceptance; at three and five only the sequencer needs to for its own.
            if owner != me && usize::from(owner) < self.count() && (helps || owner == head) {
                self.out(owner).poke = true;
            }
        }
    }

    /// With the bug planted: as many own commands are ready as there are own slots.
    fn ready_anywhere(&mut self, now: Instant) {
        let executed = self.counts[usize::from(self.me)];
        let own = (self.executed + 1..=self.log.end()).filter(|slot| self.log.get(*slot) == Some(self.me));
        let own = own.count() as u64;
        for index in executed + 1..=executed + own {
            self.own_slots.entry(index).or_insert(0);
            self.ready(index, now);
        }
    }

    /// A member lacks slots before those it was told of.
    pub(super) fn on_gap(&mut self, rank: Rank, contiguous: u64, effects: &mut Effects<Self>) {
        let low = self.log.low();
        let Some(sequencer) = &mut self.sequencer else { return };
        if contiguous < low {
            // It has missed slots that a majority has executed.
            let to = self.process_of(rank);
            return self.send_view(to, effects);
        }
        sequencer.sent[usize::from(rank)] = contiguous;
        self.out(rank).order = true;
    }

    /// Slots that their owner, or somebody who knows, says are committed.
    pub(super) fn on_ordered(&mut self, owner: Rank, slots: &[(u64, u32)]) {
        let bound = self.log.contiguous().max(self.executed) + SLOTS as u64 * 4;
        for (first, count) in slots {
            for slot in (*first..first + u64::from(*count)).filter(|slot| *slot <= bound) {
                if slot <= self.executed {
                    continue;
                }
                if self.log.set(slot, owner) {
                    self.note(Entry::Placed(slot, owner));
                }
                self.committed.insert(slot);
            }
        }
        self.fill_gap();
    }

    /// A slot has come by way of others. Own ones that came before it wait for nothing else any more.
    pub(super) fn fill_gap(&mut self) {
        if self.place_own() {
            self.strict = !self.journal.is_empty();
            self.then(Pending::Contiguous(self.installed, self.log.contiguous()));
        }
    }

    /// A member has accepted everything up to there in the installed view.
    pub(super) fn hear_contiguous(&mut self, rank: Rank, upto: u64) {
        let known = &mut self.contiguous[usize::from(rank)];
        if upto > *known {
            *known = upto;
        }
    }

    /// What has become committed: counts the reports, and looks at the own slots.
    pub(super) fn order_on(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() || self.view != self.installed {
            return;
        }
        let mut reports = self.contiguous.clone();
        reports.sort_unstable_by(|a, b| b.cmp(a));
        self.ordered = self.ordered.max(reports[self.majority - 1]);
        if !self.active && self.sequencer.is_some() && self.joined.len() >= self.majority {
            self.activate(effects);
            for rank in self.peers() {
                self.out(rank).poke = true;
            }
        }
        if !self.active {
            return;
        }
        let now = effects.now();
        let own = match self.inferring() && self.head() != self.me {
            true => self.contiguous[usize::from(self.me)].max(self.ordered),
            false => self.ordered,
        };
        let own = own.min(self.log.contiguous());
        if own > self.own_ordered {
            let before = std::mem::replace(&mut self.own_ordered, own);
            let mut indices = Vec::new();
            // Slots rise with numbers.
            for (index, slot) in self.own_slots.iter().rev().take_while(|(_, slot)| **slot > before) {
                if *slot <= own {
                    indices.push((*index, *slot));
                }
            }
            for (index, slot) in indices.into_iter().rev() {
                self.announce_slots.push(slot);
                self.ready(index, now);
            }
        }
        if self.committed.first().is_some_and(|first| *first <= self.ordered) {
            self.committed = self.committed.split_off(&(self.ordered + 1));
        }
    }

    /// Slots for a member that is being spoken to and lacks some.
    pub(super) fn append_order(&mut self, rank: Rank) {
        let end = self.log.end();
        let low = self.log.low();
        let batch = self.parameters().order_batch;
        let talks = {
            let out = &self.outbox[usize::from(rank)];
            out.order || !out.held.is_empty()
        };
        let Some(sequencer) = &mut self.sequencer else { return };
        let first = sequencer.sent[usize::from(rank)].max(low) + 1;
        if !talks || first > end {
            return;
        }
        let runs = self.log.runs(first, SLOTS);
        let told: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        sequencer.sent[usize::from(rank)] = first + told - 1;
        let mut pieces = Vec::new();
        for (owner, count) in runs {
            let mut left = count;
            while left > 0 {
                let some = left.min(batch);
                pieces.push((owner, some));
                left -= some;
            }
        }
        self.out(rank).held.push(Part::Order { first, runs: pieces });
    }

    /// What is lazy or late: slots for everyone, and again for those who have not said that they have them.
    pub(super) fn resend_order(&mut self, now: Instant) {
        let (end, resend, count) = (self.log.end(), self.parameters().resend, self.count());
        let reports = self.contiguous.clone();
        let suspects = self.contact.suspects(self.parameters().election, now);
        let me = self.me;
        let Some(sequencer) = &mut self.sequencer else { return };
        let mut owing = Vec::new();
        for rank in (0..count).filter(|rank| *rank != usize::from(me)) {
            let sent = &mut sequencer.sent[rank];
            if reports[rank] >= *sent {
                *sent = reports[rank].max(*sent);
                sequencer.progress[rank] = now;
            } else if now.since(sequencer.progress[rank]) >= resend {
                *sent = reports[rank];
                sequencer.progress[rank] = now;
            }
            if *sent < end && !suspects.contains(ReplicaId(rank as Rank)) {
                owing.push(rank as Rank);
            }
        }
        for rank in owing {
            self.out(rank).order = true;
        }
    }

    /// Whether everybody may take this slot for committed.
    pub(super) fn is_committed(&self, slot: u64, owner: Rank) -> bool {
        slot <= self.ordered
            || self.committed.contains(&slot)
            || (owner == self.me && slot <= self.own_ordered)
            || (slot <= self.begin && self.active && self.inferring())
    }

    /// Drops the owners of slots that a majority has executed for good: whoever votes later, one of the
    /// voters has executed them.
    pub(super) fn trim_log(&mut self) {
        let mut durable = self.contact.durable.clone();
        durable.sort_unstable_by(|a, b| b.cmp(a));
        let upto = durable[self.majority - 1].min(self.executed);
        if upto >= self.log.low() + 1_024 {
            self.log.trim(upto);
        }
    }

    /// The view's log as it is known here without a gap.
    pub(super) fn view_image(&self) -> Arc<Image> {
        Arc::new(self.log.image(self.log.contiguous()))
    }
}
