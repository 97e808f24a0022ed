//! Taking over command instances: those of a dead member, and the own ones after a restart or after somebody
//! has taken them over (`specs/sdpaxos.md` 4.2).
//!
//! A restarted replica does not know which of its last proposals were accepted by others: it asks, at a
//! ballot above all that it has used, and gives new commands numbers that it can never have used before.

use super::Mutation;
use super::assignment::Rank;
use super::message::{Entry, Part, Value};
use super::order::{Order, Pending};
use super::space::{Announcement, Cell, Lead, Taking};
use crate::order::Ordered;
use isochrone_core::{Ballot, Instant, ReplicaId, ReplicaSet, Slot};
use std::collections::BTreeMap;

impl<V: Ordered> Order<V> {
    /// Takes the own instances back.
    pub(super) fn take_back(&mut self, now: Instant) {
        let me = usize::from(self.me);
        if self.normal() && self.spaces[me].lead.is_none() && self.spaces[me].taking.is_none() {
            self.reserve();
            self.prepare(self.me, now);
        }
    }

    /// C-PREPARE for all that a member has in flight.
    pub(super) fn prepare(&mut self, owner: Rank, now: Instant) {
        let me = self.me;
        let from = self.counts[usize::from(owner)] + 1;
        let space = &mut self.spaces[usize::from(owner)];
        let ballot = Ballot { round: space.promised.round + 1, owner: ReplicaId(me) };
        space.promised = ballot;
        space.depose(ballot);
        space.taking = Some(Taking {
            ballot,
            from,
            promised: ReplicaSet::EMPTY,
            found: BTreeMap::new(),
            executed: from - 1,
            slots: 0,
            at: now,
        });
        space.tried = now;
        self.write(Entry::Promised(owner, ballot));
        self.then(Pending::Promised(owner, ballot));
        for rank in self.peers() {
            self.out(rank).held.push(Part::Prepare { owner, from, ballot });
        }
    }

    pub(super) fn on_prepare(&mut self, from: Rank, owner: Rank, first: u64, ballot: Ballot) {
        let slots = self.log.count(owner);
        let Some(space) = self.spaces.get_mut(usize::from(owner)) else { return };
        if ballot < space.promised {
            let promised = space.promised;
            return self.out(from).held.push(Part::Refused { owner, promised });
        }
        let fresh = ballot > space.promised;
        if fresh {
            space.promised = ballot;
            space.depose(ballot);
            self.write(Entry::Promised(owner, ballot));
        }
        let space = &self.spaces[usize::from(owner)];
        let cell = |(slot, cell): (Slot, &Cell<V>)| (slot.0, cell.ballot, cell.value.clone(), cell.decided);
        let accepted = space.log.range(Slot(first)).map(cell).collect();
        let executed = space.log.base().0 - 1;
        let (promised, out) = (Part::Promised { owner, ballot, executed, slots, accepted }, self.out(from));
        if fresh { &mut out.held } else { &mut out.again }.push(promised);
    }

    /// The own promise is durable.
    pub(super) fn own_promise(&mut self, owner: Rank, ballot: Ballot, now: Instant) {
        let slots = self.log.count(owner);
        let space = &self.spaces[usize::from(owner)];
        let Some(taking) = space.taking.as_ref().filter(|taking| taking.ballot == ballot) else { return };
        let cell = |(slot, cell): (Slot, &Cell<V>)| (slot.0, cell.ballot, cell.value.clone(), cell.decided);
        let accepted = space.log.range(Slot(taking.from)).map(cell).collect();
        let executed = space.log.base().0 - 1;
        self.on_promised(self.me, owner, ballot, executed, slots, accepted, now);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(super) fn on_promised(
        &mut self,
        from: Rank,
        owner: Rank,
        ballot: Ballot,
        executed: u64,
        slots: u64,
        accepted: Vec<(u64, Ballot, Value<V>, bool)>,
        now: Instant,
    ) {
        let (majority, any) = (self.majority, self.mutated(Mutation::AdoptAny));
        let Some(space) = self.spaces.get_mut(usize::from(owner)) else { return };
        let Some(taking) = space.taking.as_mut().filter(|taking| taking.ballot == ballot) else { return };
        taking.promised.insert(ReplicaId(from));
        taking.executed = taking.executed.max(executed);
        taking.slots = taking.slots.max(slots);
        for (index, ballot, value, decided) in accepted {
            let better = taking.found.get(&index).is_none_or(|(known, _, sure)| {
                !sure && (decided || if any { ballot < *known } else { ballot > *known })
            });
            if better {
                taking.found.insert(index, (ballot, value, decided));
            }
        }
        if taking.promised.len() >= majority
            && let Some(taking) = space.taking.take()
        {
            self.lead_space(owner, taking, now);
        }
    }

    /// Proposes what the promises oblige to, and nothing in holes, so that no slot blocks.
    fn lead_space(&mut self, owner: Rank, mut taking: Taking<V>, now: Instant) {
        let ballot = taking.ballot;
        let own = owner == self.me;
        let found = taking.found.last_key_value().map_or(0, |(index, _)| *index);
        // After a restart the next own number is above all that were reserved.
        let used = if own { self.next - 1 } else { 0 };
        let top = match self.mutated(Mutation::ReuseIndex) {
            false => found.max(taking.slots).max(self.log.count(owner)).max(used),
            true => found,
        };
        // What somebody has executed is told by whoever has, slot by slot.
        let from = taking.from.max(taking.executed + 1).max(self.counts[usize::from(owner)] + 1);
        self.spaces[usize::from(owner)].lead = Some(Lead { ballot, flights: BTreeMap::new(), asked: now });
        if own {
            self.next = self.next.max(top + 1).max(from);
        }
        let mut values = Vec::new();
        let mut first = from;
        for index in from..=top {
            match taking.found.remove(&index) {
                Some((known, value, true)) => {
                    self.propose_found(owner, ballot, first, std::mem::take(&mut values), now);
                    first = index + 1;
                    let sent = ReplicaSet::EMPTY;
                    let told = value.clone();
                    self.announce.push(Announcement { owner, index, ballot: known, sent, value: told });
                    self.on_decided(owner, known, index, vec![value], now);
                }
                Some((_, value, false)) => values.push(value),
                None => values.push(Value::NoOp),
            }
        }
        self.propose_found(owner, ballot, first, values, now);
        if self.log.count(owner) < top {
            self.request(owner, top, top, now);
        }
    }

    fn propose_found(
        &mut self,
        owner: Rank,
        ballot: Ballot,
        first: u64,
        values: Vec<Value<V>>,
        now: Instant,
    ) {
        if !values.is_empty() {
            self.propose_run(owner, ballot, first, values, false, now);
        }
    }

    /// A proposer's ballot was refused.
    pub(super) fn on_refused(&mut self, owner: Rank, promised: Ballot, now: Instant) {
        let Some(space) = self.spaces.get_mut(usize::from(owner)) else { return };
        let leads = space.lead.as_ref().is_some_and(|lead| lead.ballot < promised);
        let takes = space.taking.as_ref().is_some_and(|taking| taking.ballot < promised);
        if !leads && !takes {
            return;
        }
        // The next ballot of this replica is above what refused it. Whoever asks in that one is answered as by one who has
        // promised it, so it is promised from here on, after a crash too.
        space.depose(promised);
        if promised > space.promised {
            space.promised = promised;
            self.write(Entry::Promised(owner, promised));
        }
        if owner == self.me && leads {
            self.take_back(now);
        }
    }

    /// Looks after the instances of suspects, and asks again for promises that are late.
    pub(super) fn recover(&mut self, now: Instant) {
        let resend = self.parameters().resend;
        let mut again = Vec::new();
        for (owner, space) in self.spaces.iter_mut().enumerate() {
            if let Some(taking) = &mut space.taking
                && now.since(taking.at) >= resend
            {
                taking.at = now;
                again.push((owner as Rank, taking.from, taking.ballot, taking.promised));
            }
        }
        for (owner, from, ballot, promised) in again {
            for rank in self.peers().filter(|rank| !promised.contains(ReplicaId(*rank))) {
                self.out(rank).held.push(Part::Prepare { owner, from, ballot });
            }
        }
        let me = usize::from(self.me);
        let suspects = self.contact.suspects(self.parameters().election, now);
        if now.since(self.spaces[me].tried) >= resend && self.stands_still(suspects) {
            self.spaces[me].lead = None;
        }
        let wants = !self.queue.is_empty() || self.log.count(self.me) > self.counts[me];
        let open = self.spaces[me].highest() > self.counts[me];
        if self.spaces[me].lead.is_none() && (wants || open || self.incarnation > 1) {
            self.take_back(now);
        }
        for owner in self.peers() {
            let space = &mut self.spaces[usize::from(owner)];
            // What is done is done; what comes up later is asked for again.
            space.lead.take_if(|lead| lead.flights.is_empty());
            let rested = now.since(space.tried) >= resend;
            let suspect = suspects.contains(ReplicaId(owner));
            if suspect && rested && self.recovers(owner, suspects) && self.needs(owner) {
                self.prepare(owner, now);
            }
        }
    }

    /// Whether the next own instance is open and not proposed: somebody had executed it when the own instances were taken
    /// back, and nobody lives who has and could tell it.
    fn stands_still(&self, suspects: ReplicaSet) -> bool {
        let me = usize::from(self.me);
        let (space, next) = (&self.spaces[me], self.counts[me] + 1);
        let decided = space.log.get(Slot(next)).is_some_and(|cell| cell.decided);
        let unproposed = space.lead.as_ref().is_some_and(|lead| !lead.flights.contains_key(&next));
        // What it had executed before it crashed, it need not have now.
        let ahead = |rank: Rank| self.contact.durable[usize::from(rank)] > self.executed;
        let told = self.peers().any(|rank| !suspects.contains(ReplicaId(rank)) && ahead(rank));
        next < self.next && unproposed && !decided && !told
    }

    /// Whether this replica is the first one behind a suspect that is none.
    fn recovers(&self, owner: Rank, suspects: ReplicaSet) -> bool {
        let count = self.count() as Rank;
        let next = (1..count).map(|step| (owner + step) % count);
        let mut live = next.filter(|rank| *rank == self.me || !suspects.contains(ReplicaId(*rank)));
        live.next() == Some(self.me)
    }

    /// Whether something of this member is under way that nobody looks after.
    fn needs(&self, owner: Rank) -> bool {
        let space = &self.spaces[usize::from(owner)];
        if space.lead.is_some() || space.taking.is_some() {
            return false;
        }
        let last = space.highest().max(self.log.count(owner));
        let open = |index| !space.log.get(Slot(index)).is_some_and(|cell| cell.decided);
        last > self.log.count(owner) || (space.log.base().0..=last).any(open)
    }
}
