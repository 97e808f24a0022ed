//! Revocation: a replica takes over the positions of a silent owner, block by block, so that execution goes on
//! (`specs/domino.md` 4.5). A revoker may die over its work when the owner is back: what was promised to it is closed
//! to the owner's ballot and nobody suspects the owner, so the owner takes it over like a revoker.

use super::super::message::{Item, Record, Revoked, Seal};
use super::Order;
use super::catchup::ALL;
use super::links::Answer;
use crate::order::Ordered;
use isochrone_core::{Ballot, Count, Effects, Instant, ReplicaId, Tally};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A block of somebody's lane that this replica is closing.
#[derive(Clone, Hash, Debug)]
pub(super) struct Revocation<V: Ordered> {
    ballot: Ballot,
    from: u64,
    until: u64,
    promises: BTreeMap<usize, Arc<Revoked<V>>>,
    /// Phase 2, once it has begun.
    seal: Option<(Arc<Seal<V>>, Tally)>,
    sent: Instant,
}

impl<V: Ordered> Order<V> {
    /// Begins and drives revocations of the lanes of suspected owners, where it is this replica's turn, and of its own.
    pub(super) fn watch_owners(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let clock = self.now(effects);
        let resend = self.parameters().resend;
        for seat in 0..self.n() {
            let lane = seat as u8;
            if let Some(revocation) = self.revocations.get_mut(&lane) {
                if now.since(revocation.sent) >= resend {
                    let before = std::mem::replace(&mut revocation.sent, now);
                    let (items, missing) = revocation.pending(lane, self.members.len());
                    for to in missing {
                        self.say_again(to, items.clone(), before);
                    }
                }
                continue;
            }
            if seat == self.me {
                if let Some(until) = self.reclaims(now) {
                    self.revoke(lane, until, now);
                    effects.mark(super::Note::Counted("lanes_reclaimed"));
                }
            } else if now >= self.lanes[seat].rests
                && let Some(until) = self.revokes(seat, clock)
            {
                self.revoke(lane, until, now);
                effects.mark(super::Note::Counted("lanes_revoked"));
            }
        }
    }

    /// Up to where this replica is to revoke another's lane, if it is.
    fn revokes(&self, seat: usize, clock: u64) -> Option<u64> {
        // Less than half of a block is left ahead of the clock.
        let block = self.parameters().revoke.as_nanos();
        let due = self.tracks[seat + 1].frontier() < clock + block / 2;
        (self.suspected(seat) && self.succeeds(seat) && due && self.clock.is_set())
            .then(|| (clock + block).max(self.lanes[seat].sealed))
    }

    /// Whether this replica is the first that lives behind another.
    fn succeeds(&self, seat: usize) -> bool {
        let mut others = (1..self.n()).map(|after| (seat + after) % self.n());
        others.find(|other| *other == self.me || !self.suspected(*other)) == Some(self.me)
    }

    /// Up to where it is to take back its own lane, if it is: for long nothing was decided in what a revoker has closed
    /// to it, although a majority is there.
    fn reclaims(&mut self, now: Instant) -> Option<u64> {
        let frontier = self.tracks[self.me + 1].frontier();
        let closed = self.owner.closed().max(self.lanes[self.me].sealed);
        let alone = self.n() - self.suspects.len() < self.majority();
        let stood = self.owner.stands(frontier, now, alone || frontier >= closed);
        if stood < self.parameters().suspect {
            return None;
        }
        // Outbid, it tries again after as long.
        self.owner.stands(frontier, now, true);
        Some(closed)
    }

    /// Phase 1 for the lane from its frontier to `until`.
    pub(super) fn revoke(&mut self, lane: u8, until: u64, now: Instant) {
        let seat = usize::from(lane);
        let from = self.tracks[seat + 1].frontier();
        let known = &mut self.lanes[seat];
        let ballot = known.ballot.max(known.outbid).next(ReplicaId(self.me as u8));
        // The own promise is durable before anyone hears of the ballot, so no later life uses it again.
        known.promise(ballot, until);
        let sealed = known.sealed;
        self.write(Record::Revoked { lane, ballot, sealed });
        let revocation = Revocation { ballot, from, until, promises: BTreeMap::new(), seal: None, sent: now };
        self.revocations.insert(lane, revocation);
        self.tell_all(&Item::Revoke { lane, ballot, from, until });
    }

    pub(super) fn on_revoke(
        &mut self,
        from: usize,
        lane: u8,
        ballot: Ballot,
        first: u64,
        until: u64,
        now: Instant,
    ) {
        let seat = usize::from(lane);
        if seat >= self.n() || usize::from(ballot.owner.0) != from {
            return;
        }
        if ballot < self.lanes[seat].ballot {
            let ballot = self.lanes[seat].ballot;
            return self.say(from, Item::Outbid { lane, ballot });
        }
        let sealed = self.lanes[seat].sealed;
        let fresh = ballot > self.lanes[seat].ballot || until > sealed;
        if !self.answers(from, Answer::Revoked, fresh, now) {
            return;
        }
        if fresh {
            self.lanes[seat].promise(ballot, until);
            let sealed = self.lanes[seat].sealed;
            self.write(Record::Revoked { lane, ballot, sealed });
        }
        let frontier = self.tracks[seat + 1].frontier();
        let decided = self.decided_between(lane + 1, first, frontier, ALL).map(|(values, _)| values);
        let known = &self.lanes[seat];
        let votes = known.votes.range(first..).map(|(at, (ballot, value))| (*at, *ballot, value.clone()));
        let noops = known.noops.runs(first..u64::MAX).map(|(run, ballot)| (run.start, run.end, *ballot));
        let revoked = Revoked {
            lane,
            ballot,
            sealed,
            votes: votes.collect(),
            noops: noops.collect(),
            frontier,
            decided,
        };
        self.say(from, Item::Revoked(Arc::new(revoked)));
    }

    pub(super) fn on_revoked(&mut self, from: usize, revoked: Arc<Revoked<V>>, effects: &mut Effects<Self>) {
        let (lane, seat, majority) = (revoked.lane, usize::from(revoked.lane), self.majority());
        let Some(revocation) = self.revocations.get_mut(&lane) else { return };
        if revocation.ballot != revoked.ballot || revocation.seal.is_some() {
            return;
        }
        if revoked.decided.is_none() {
            self.revocations.remove(&lane);
            self.behind = Some(self.members[from].process);
            return;
        }
        revocation.promises.insert(from, revoked);
        if revocation.promises.len() < majority {
            return;
        }
        // A block that was sealed further is closed as a whole, in a ballot that was promised for all of it.
        let sealed = revocation.promises.values().map(|promise| promise.sealed).max().unwrap_or(0);
        if sealed > revocation.until {
            if seat != self.me && !self.succeeds(seat) {
                // Somebody else's turn has come, who is at it: they would outbid each other for ever.
                self.revocations.remove(&lane);
                return;
            }
            return self.revoke(lane, sealed, effects.now());
        }
        let promises: Vec<Arc<Revoked<V>>> = revocation.promises.values().cloned().collect();
        let (ballot, first, until) = (revocation.ballot, revocation.from, revocation.until);
        for promise in &promises {
            for (at, value) in promise.decided.iter().flatten() {
                self.tracks[seat + 1].decide(*at, Some(value.clone()));
            }
            self.tracks[seat + 1].decide_noops(first, promise.frontier);
        }
        let from = self.tracks[seat + 1].frontier();
        // For each position the value of the highest ballot; a no-op where that is one, or nothing was voted.
        let mut found: BTreeMap<u64, (Ballot, Option<V>)> = BTreeMap::new();
        for promise in &promises {
            for (at, ballot, value) in promise.votes.iter().filter(|(at, ..)| *at >= from) {
                let known = found.entry(*at).or_insert_with(|| (*ballot, value.clone()));
                if *ballot > known.0 {
                    *known = (*ballot, value.clone());
                }
            }
        }
        for promise in &promises {
            for (start, end, ballot) in &promise.noops {
                for (_, known) in found.range_mut(*start..(*end).max(*start)) {
                    if *ballot > known.0 {
                        *known = (*ballot, None);
                    }
                }
            }
        }
        let until = until.max(from);
        let inside = found.into_iter().filter(|(at, _)| (from..until).contains(at));
        let decided = |at: u64| self.tracks[seat + 1].commands.get(&at).cloned();
        let mut values: BTreeMap<u64, V> = inside.filter_map(|(at, (_, value))| Some((at, value?))).collect();
        // What is decided behind the frontier is proposed as it is.
        let ahead: Vec<u64> = self.tracks[seat + 1].commands.range(from..until).map(|(at, _)| *at).collect();
        for at in ahead {
            if let Some(value) = decided(at) {
                values.insert(at, value);
            }
        }
        let seal = Arc::new(Seal { lane, ballot, from, until, values: values.into_iter().collect() });
        if let Some(revocation) = self.revocations.get_mut(&lane) {
            revocation.seal = Some((seal.clone(), Tally::new(majority)));
            revocation.sent = effects.now();
        }
        self.tell_all(&Item::Seal(seal));
    }

    pub(super) fn on_seal(&mut self, from: usize, seal: Arc<Seal<V>>) {
        let seat = usize::from(seal.lane);
        if seat >= self.n() || usize::from(seal.ballot.owner.0) != from {
            return;
        }
        let (lane, ballot, until) = (seal.lane, seal.ballot, seal.until);
        if ballot < self.lanes[seat].ballot {
            let ballot = self.lanes[seat].ballot;
            return self.say(from, Item::Outbid { lane, ballot });
        }
        self.lanes[seat].seal(ballot, seal.from, until, &seal.values);
        self.write(Record::Sealed(seal));
        self.say(from, Item::SealAccepted { lane, ballot, until });
    }

    pub(super) fn on_seal_accepted(&mut self, from: usize, lane: u8, ballot: Ballot, until: u64) {
        let Some(revocation) = self.revocations.get_mut(&lane) else { return };
        let Some((seal, tally)) = &mut revocation.seal else { return };
        if seal.ballot != ballot || seal.until != until || tally.add(ReplicaId(from as u8)) != Count::Reached
        {
            return;
        }
        let seal = seal.clone();
        self.revocations.remove(&lane);
        self.tell_others(&Item::Sealed(seal.clone()));
        self.on_sealed(&seal);
    }

    /// A block is decided.
    pub(super) fn on_sealed(&mut self, seal: &Seal<V>) {
        let seat = usize::from(seal.lane);
        if seat >= self.n() {
            return;
        }
        for (at, value) in &seal.values {
            self.tracks[seat + 1].decide(*at, Some(value.clone()));
        }
        self.tracks[seat + 1].decide_noops(seal.from, seal.until);
        if seat == self.me {
            self.on_refused(seal.until);
        }
    }

    pub(super) fn on_outbid(&mut self, lane: u8, ballot: Ballot, now: Instant) {
        // Whoever was ahead is given the time for both phases, by each for another while longer.
        let behind = (self.me + self.n() - usize::from(lane).min(self.n())) % self.n();
        let rest = self.parameters().resend * (2 + behind as u64);
        if let Some(known) = self.lanes.get_mut(usize::from(lane)) {
            // The next attempt is to be above it.
            if self.revocations.get(&lane).is_some_and(|revocation| revocation.ballot < ballot) {
                self.revocations.remove(&lane);
                known.outbid = known.outbid.max(ballot);
                known.rests = now + rest;
            }
        }
    }

    /// What a session of a link begins with that this revoker has to say.
    pub(super) fn revoker_resync(&self, items: &mut Vec<Item<V>>) {
        for (lane, revocation) in &self.revocations {
            items.push(revocation.pending(*lane, self.n()).0);
        }
    }
}

impl<V: Ordered> Revocation<V> {
    /// What it waits for an answer to, and from whom.
    fn pending(&self, lane: u8, members: usize) -> (Item<V>, Vec<usize>) {
        match &self.seal {
            Some((seal, tally)) => {
                let missing = (0..members).filter(|seat| !tally.voters().contains(ReplicaId(*seat as u8)));
                (Item::Seal(seal.clone()), missing.collect())
            }
            None => {
                let missing = (0..members).filter(|seat| !self.promises.contains_key(seat)).collect();
                let Revocation { ballot, from, until, .. } = *self;
                (Item::Revoke { lane, ballot, from, until }, missing)
            }
        }
    }
}
