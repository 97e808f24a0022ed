//! The order of execution: what is committed, with what it depends on, dependencies first.

use super::super::Mutation;
use super::super::message::{Attributes, InstanceId, Phase, Touching};
use super::instances::Executed;
use super::recovery::Drive;
use super::{Instance, Order};
use crate::keep::Keep;
use crate::order::{Decided, Ordered, Step, digest};
use isochrone_core::{Closed, Instant};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

impl<V: Ordered> Order<V> {
    /// Gives a committed instance its edges, or parks it until what one of its dependencies holds is known:
    /// only what interferes is waited for, and whether something does must look the same everywhere.
    ///
    /// Of one seat's instances the later ones lead to the earlier ones that they interfere with, since their
    /// leader knew those when it proposed. So an edge to the last that touches something stands for edges to all
    /// before it that touch the same: what leads to what is as with all of them, and a chain under contention has
    /// few edges. Should one that stands for others be given up, whoever leans on it is linked anew.
    pub(super) fn link(&mut self, id: InstanceId) {
        if self.paused {
            return self.hold_back(id);
        }
        let Some(instance) = self.instance(id) else { return };
        let (Attributes { deps, .. }, touches) = (instance.attributes, instance.touches.clone());
        let (mut edges, mut leans) = (Vec::new(), Vec::new());
        if !instance.noop
            && let Some(touches) = touches
        {
            let seats = 0..self.spaces.len();
            // Its own seat's instances before it and behind it are looked at apart: each has an edge to the last
            // before it, whatever it must follow besides, or two that follow one another would stand for each other.
            let parts = seats.flat_map(|seat| {
                let own = if seat == id.leader() { id.number } else { 0 };
                [(seat, own + 1..=deps[seat]), (seat, 1..=deps[seat].min(own.saturating_sub(1)))]
            });
            // First of all, so that it costs the same however much there is behind what is lacked.
            let unknown = |(seat, numbers): (usize, _)| {
                Some(InstanceId::at(seat, self.spaces[seat].last_unknown(numbers)?))
            };
            if let Some(to) = parts.clone().find_map(unknown) {
                return self.park_unlinked(id, to);
            }
            for (seat, numbers) in parts {
                let space = &self.spaces[seat];
                // What no edge stands for yet.
                let mut open = Cow::Borrowed(&*touches);
                for number in space.unexecuted(numbers) {
                    let Some(held) = space.get(number) else { continue };
                    // Given up, it comes before everything and after nothing.
                    if held.is_committed() && held.noop {
                        continue;
                    }
                    let Some(theirs) = &held.touches else { continue };
                    if theirs.conflict(&open).is_none() {
                        continue;
                    }
                    let to = InstanceId::at(seat, number);
                    edges.push(to);
                    open = Cow::Owned(open.without(theirs));
                    if !held.is_committed() {
                        leans.push(to);
                    }
                    if open.is_empty() {
                        break;
                    }
                }
            }
        }
        for to in edges {
            self.graph.edge(id, to);
        }
        for to in leans {
            self.leaning.entry(to).or_default().push(id);
        }
        self.graph.complete(id);
        self.close(id);
        for root in self.parked.remove(&id).unwrap_or_default() {
            self.close(root);
        }
    }

    fn park_unlinked(&mut self, id: InstanceId, unknown: InstanceId) {
        if self.mutated(Mutation::ExecuteUncommitted) {
            self.graph.complete(id);
            return self.close(id);
        }
        let turn = self.turn();
        self.unlinked.entry(unknown).or_default().push((turn, id));
        self.hear_of(unknown.leader(), unknown.number);
    }

    /// Numbers what has to wait, so that it goes on in the order in which it came: each then mostly finds what it
    /// follows executed.
    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A committed instance waits until this replica is known to lack nothing.
    fn hold_back(&mut self, id: InstanceId) {
        let turn = self.turn();
        self.held.push((turn, id));
    }

    /// More is known of this instance: if that is what it holds, who waited for that goes on.
    pub(super) fn relink(&mut self, id: InstanceId) {
        if !self.instance(id).is_some_and(Instance::is_known) {
            return;
        }
        self.spaces[id.leader()].know(id.number);
        for (_, waiting) in self.unlinked.remove(&id).unwrap_or_default() {
            if !self.is_executed(waiting) {
                self.link(waiting);
            }
        }
    }

    /// This one is committed: if it was given up, it stands for nothing, and those that lean on it are to be
    /// [linked](Order::link) again, which comes back.
    pub(super) fn unlean(&mut self, id: InstanceId, noop: bool) -> Vec<InstanceId> {
        let mut again = self.leaning.remove(&id).unwrap_or_default();
        again.retain(|leaning| noop && !self.is_executed(*leaning));
        again.sort_unstable();
        again.dedup();
        for leaning in &again {
            self.graph.reopen(*leaning);
        }
        again
    }

    /// Executes a linked instance and all that it leads to, or parks it on the first that is not committed.
    fn close(&mut self, id: InstanceId) {
        if self.paused {
            return self.hold_back(id);
        }
        let components = match self.graph.close(id) {
            Closed::Waits(blocker) if self.mutated(Mutation::ExecuteUncommitted) => {
                self.graph.remove(blocker);
                return self.close(id);
            }
            Closed::Waits(blocker) => return self.parked.entry(blocker).or_default().push(id),
            Closed::Components(components) => components,
        };
        for mut component in components {
            match component.len() {
                0 | 1 => {}
                2..16 => self.notes.push("components_of_2_to_15"),
                16..256 => self.notes.push("components_of_16_to_255"),
                _ => self.notes.push("components_of_256_or_more"),
            }
            let seq = |id: &InstanceId| self.instance(*id).map_or(0, |instance| instance.attributes.seq);
            if self.mutated(Mutation::ComponentUnordered) {
                let length = component.len().max(1);
                component.rotate_left((self.serial as usize + self.me) % length);
            } else {
                component.sort_by_key(|id| (seq(id), *id));
            }
            for id in component {
                self.execute(id);
            }
        }
    }

    /// Nothing is lacked any more, or nobody has it: what was held back goes on.
    pub(super) fn resume(&mut self) {
        self.paused = false;
        let mut held = std::mem::take(&mut self.held);
        held.sort_unstable();
        for (_, id) in held {
            if self.is_executed(id) {
                continue;
            }
            if self.graph.is_complete(id) { self.close(id) } else { self.link(id) }
        }
    }

    fn execute(&mut self, id: InstanceId) {
        if !self.spaces[id.leader()].execute(id.number) {
            return;
        }
        let Some(instance) = self.instance(id) else { return };
        let values: Arc<[V]> = match &instance.batch {
            Some(batch) if !instance.noop => batch.clone(),
            _ => Arc::from([]),
        };
        let mut hasher = rustc_hash::FxHasher::default();
        (instance.noop, digest(&values)).hash(&mut hasher);
        if !instance.noop {
            instance.attributes.hash(&mut hasher);
        }
        let digest = hasher.finish();
        let answer = id.leader() == self.me;
        self.ready.push_back(Step::Decided(Decided {
            position: id.position(),
            digest,
            values,
            answer,
            spans: None,
        }));
    }

    pub(super) fn next_step(&mut self, now: Instant) -> Option<Step<V>> {
        let mut step = self.ready.pop_front()?;
        if let Step::Decided(decided) = &mut step {
            self.serial += 1;
            let number = decided.position & ((1 << 56) - 1);
            let id = InstanceId::at((decided.position >> 56) as usize, number);
            if decided.answer
                && let Some(flight) = self.flights.remove(&number)
            {
                let committed = flight.committed.unwrap_or(now);
                decided.spans = Some([
                    flight.proposed.since(flight.queued),
                    Default::default(),
                    committed.since(flight.proposed),
                    now.since(committed),
                ]);
            }
            self.keep(id, self.bytes_of(id));
        }
        Some(step)
    }

    /// Counts an executed instance among those kept for others, and lets commands go beyond the bounds.
    pub(super) fn keep(&mut self, id: InstanceId, bytes: u32) {
        self.kept.push_back((id, bytes, self.serial));
        self.kept_bytes += bytes as usize;
        let keep = Keep::new(self.parameters.keep_instances, self.parameters.keep_bytes, self.serving);
        while keep.exceeded(self.kept.len(), self.kept_bytes) {
            let Some((id, bytes, serial)) = self.kept.pop_front() else { break };
            self.kept_bytes -= bytes as usize;
            if let Some(instance) = self.instance_mut(id)
                && !instance.noop
                && instance.batch.take().is_some()
            {
                self.trimmed = serial;
            }
        }
    }

    /// A peer's state is this replica's from now on: what it has executed is executed here. What waited for any of
    /// that is [held](Order::resume) back.
    pub(super) fn take_over(&mut self, position: &Executed) {
        for (seat, (prefix, beyond)) in position.iter().enumerate() {
            let space = &mut self.spaces[seat];
            space.execute_all(*prefix);
            beyond.iter().for_each(|number| {
                space.execute(*number);
            });
            self.hear_of(seat, *prefix);
            self.hear_of(seat, beyond.last().copied().unwrap_or(0));
        }
        self.serial += 1;
        self.trimmed = self.serial;
        // Whether the peer has given it up is not known: whoever let it stand for others is linked anew, to those.
        let over: Vec<InstanceId> = self.leaning.keys().copied().filter(|id| self.is_executed(*id)).collect();
        let again: Vec<InstanceId> = over.into_iter().flat_map(|id| self.unlean(id, true)).collect();
        let (spaces, me) = (&self.spaces, self.me);
        let executed = |id: &InstanceId| spaces[id.leader()].is_executed(id.number);
        self.pending.retain(|id, _| !executed(id));
        self.drives.retain(|id, _| !executed(id));
        self.graph.retain(|id| !executed(id));
        if let Some(space) = spaces.get(me) {
            self.flights.retain(|number, _| !space.is_executed(*number));
        }
        let free = self.unlinked.extract_if(.., |id, _| executed(id)).flat_map(|(_, waiting)| waiting);
        self.held.extend(free);
        let free: Vec<InstanceId> =
            self.parked.extract_if(.., |id, _| executed(id)).flat_map(|(_, waiting)| waiting).collect();
        free.into_iter().chain(again).for_each(|id| self.hold_back(id));
        if self.is_member() {
            // Before the next instance is held: between those before and that one there may be millions that nobody holds here.
            self.settle_trims();
        }
    }

    /// Whether nothing more can be said of this one: it is committed, or executed and forgotten.
    pub(super) fn is_resolved(&self, id: InstanceId) -> bool {
        self.is_committed(id) || self.is_executed(id) && self.instance(id).is_none()
    }

    pub(super) fn check_invariants(&self) {
        if self.parameters.mutation.is_some() {
            return;
        }
        // In a build for speed the oldest stand for all.
        let most = if cfg!(debug_assertions) { usize::MAX } else { 8 };
        assert!(
            self.next > self.known.get(self.me).copied().unwrap_or(0) || !self.is_member(),
            "a number used twice"
        );
        for (seat, space) in self.spaces.iter().enumerate() {
            assert!(
                self.settled[seat] <= space.executed() || self.settled[seat] == 0,
                "settled beyond what is executed"
            );
            assert!(space.base() <= space.executed() + 1, "an instance trimmed that is not executed");
            for (number, held) in space.from(space.executed() + 1).take(most) {
                let known = space.last_unknown(number..=number).is_none();
                let right = space.is_executed(number) || known == held.is_known();
                assert!(right, "whether {} is known", InstanceId::at(seat, number));
            }
        }
        for (seat, space) in self.spaces.iter().enumerate() {
            // The first of each that is held was in it the longest.
            for (number, held) in space.from(space.base()).take(2) {
                let Some(touches) = held.touches.as_ref().filter(|_| held.indexed > 0) else { continue };
                let mut found = touches.conflict(touches).is_none();
                self.index.visit(touches, |Touching { id, .. }| {
                    found |= id.leader() == seat && id.number >= number;
                });
                assert!(found, "{} is held and not in the conflict index", InstanceId::at(seat, number));
            }
        }
        for (id, Drive { ballot, .. }) in self.drives.iter().take(most) {
            let promised =
                self.instance(*id).map(|instance: &Instance<V>| (instance.promised, instance.phase));
            assert!(
                promised.is_some_and(|(promised, phase)| promised == *ballot && phase != Phase::Committed),
                "{id} is driven in {ballot} against {promised:?}"
            );
        }
    }
}
