//! The acceptor of the fast lane (`specs/domino.md` 3.3).

use super::super::Mutation;
use super::super::message::{Item, Message, Opening, Record, Reject, Round, Turn};
use super::Order;
use crate::order::Ordered;
use isochrone_core::{CommandId, Effects, Instant, IntervalMap, ProcessId, Span, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A vote for one position.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Vote<V> {
    /// The highest ballot voted in.
    pub(super) turn: Turn,
    /// What was voted for there; a no-op where nothing.
    pub(super) value: Option<V>,
    /// What was voted for in that epoch's fast ballot, where it was a command: whoever learns fast votes is
    /// told of it even when a classic vote lies over it.
    pub(super) fast: Option<V>,
}

/// What this replica has promised and voted for in the fast lane.
#[derive(Clone, Hash, Debug)]
pub(super) struct Acceptor<V> {
    /// It votes in no earlier epoch.
    pub(super) epoch: u32,
    /// Whether it votes in this one.
    pub(super) open: bool,
    /// Fast votes of this epoch lie at or above this stamp.
    pub(super) from: u64,
    pub(super) votes: BTreeMap<u64, Vote<V>>,
    /// No-ops voted for as ranges. In the open epoch every empty position from `from` to the clock is one too.
    pub(super) noops: IntervalMap<u64, Turn>,
}

impl<V> Default for Acceptor<V> {
    fn default() -> Acceptor<V> {
        // Epoch 0 is open from the start.
        Acceptor { epoch: 0, open: true, from: 0, votes: BTreeMap::new(), noops: IntervalMap::default() }
    }
}

impl<V: Ordered> Acceptor<V> {
    /// The fast ballot of its epoch.
    pub(super) fn fast(&self) -> Turn {
        Turn { epoch: self.epoch, classic: false }
    }

    /// A fast vote, which the caller has checked may be given.
    pub(super) fn vote(&mut self, at: u64, value: V) {
        let turn = self.fast();
        self.votes.insert(at, Vote { turn, value: Some(value.clone()), fast: Some(value) });
    }

    /// The fast vote of the current epoch for a command, if there is one.
    pub(super) fn fast_vote(&self, at: u64) -> Option<&V> {
        self.votes.get(&at).filter(|vote| vote.turn.epoch == self.epoch)?.fast.as_ref()
    }

    /// It votes in no epoch before this one; what is empty below `clock` was voted no-op in the one before.
    pub(super) fn promise(&mut self, epoch: u32, clock: u64) {
        if self.open {
            self.fill(self.from, clock, self.fast());
        }
        (self.epoch, self.open) = (epoch, false);
    }

    /// The classic votes of a new coordinator, and the beginning of its epoch. A command that it proposes at or
    /// above the beginning is told to learners like a fast vote: or they would take the clock that passes it
    /// for a vote for no-op.
    pub(super) fn open(&mut self, opening: &Opening<V>) {
        (self.epoch, self.open, self.from) = (opening.round.epoch, true, opening.high);
        self.vote_round(&opening.round);
        for (at, value) in opening.round.values.iter().filter(|(at, _)| *at >= opening.high) {
            if let Some(vote) = self.votes.get_mut(at) {
                vote.fast.clone_from(value);
            }
        }
    }

    /// The fast votes of the open epoch from a stamp on, by name.
    pub(super) fn fast_votes(&self, from: u64) -> Vec<(u64, CommandId)> {
        let votes = self.votes.range(from..).map(|(at, _)| *at);
        votes.filter_map(|at| Some((at, self.fast_vote(at)?.id()?))).collect()
    }

    /// Classic votes for a round of this epoch.
    pub(super) fn vote_round(&mut self, round: &Round<V>) {
        let turn = Turn { epoch: round.epoch, classic: true };
        for (at, value) in &round.values {
            let fast = self.fast_vote(*at).cloned();
            self.votes.insert(*at, Vote { turn, value: value.clone(), fast });
        }
        for (from, until) in &round.ranges {
            let epoch = self.epoch;
            for (at, vote) in self.votes.range_mut(*from..(*until).max(*from)) {
                if round.values.binary_search_by_key(at, |(at, _)| *at).is_err() {
                    let fast = vote.fast.take().filter(|_| vote.turn.epoch == epoch);
                    *vote = Vote { turn, value: None, fast };
                }
            }
            self.fill(*from, *until, turn);
        }
    }

    /// Whether a round proposes another value for a position than was voted for there in its ballot.
    pub(super) fn contradicts(&self, round: &Round<V>) -> bool {
        let turn = Turn { epoch: round.epoch, classic: true };
        let voted = |at: &u64| self.votes.get(at).filter(|vote| vote.turn == turn);
        let single = |(at, value): &(u64, Option<V>)| voted(at).is_some_and(|vote| vote.value != *value);
        let within = |(from, until): &(u64, u64)| {
            let votes = self.votes.range(*from..(*until).max(*from));
            votes.clone().any(|(_, vote)| vote.turn == turn && vote.value.is_some())
        };
        round.values.iter().any(single) || round.ranges.iter().any(within)
    }

    /// Raises a range to a ballot in which it was voted no-op. Votes for single positions stay.
    fn fill(&mut self, from: u64, until: u64, turn: Turn) {
        if from >= until {
            return;
        }
        let lower: Vec<_> =
            self.noops.runs(from..until).filter(|(_, known)| **known < turn).map(|(run, _)| run).collect();
        let empty: Vec<_> = self.noops.gaps(from..until).collect();
        for run in lower.into_iter().chain(empty) {
            self.noops.set(run, turn);
        }
    }

    /// What its clock has passed, by its votes for no-op: those of the epoch that it has open begin behind others, and ranges
    /// end where it was then.
    pub(super) fn passed(&self) -> u64 {
        self.from.max(self.noops.end().unwrap_or(0))
    }

    /// Forgets what lies below.
    pub(super) fn trim(&mut self, below: u64) {
        while self.votes.first_key_value().is_some_and(|(at, _)| *at < below) {
            self.votes.pop_first();
        }
        self.noops.trim(below);
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn on_probe(
        &mut self,
        from: ProcessId,
        sent: Stamp,
        at: Instant,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let clock = self.now(effects);
        // Who waits for execution had better go elsewhere while this lane takes positions only behind what is
        // sealed, or behind a stamp far ahead that it has given, or this clock is far ahead. A little skew is no reason.
        let taken = self.lanes.get(self.me).map_or(0, |lane| lane.sealed).max(self.owner.last());
        let wait = Span::from_nanos(taken.saturating_sub(clock));
        let extra = self.clock.ahead(now).max(wait);
        let extra = if extra > self.parameters().lag_max { extra } else { Span::ZERO };
        let latency = self.replication(now).filter(|_| self.clock.is_set()).map(|latency| latency + extra);
        let received = Stamp::from_nanos(clock);
        // Ahead: a measurement rests on nothing.
        let probed = Message::Probed { sent, at, received, latency };
        effects.urgently(|effects| effects.send_ahead(from, probed));
    }

    /// Requests of a client, each at its stamp.
    pub(super) fn on_propose(&mut self, values: Vec<(u64, V)>, effects: &mut Effects<Self>) {
        let clock = self.now(effects);
        let horizon = self.horizon(clock, effects.now());
        for (at, value) in values {
            let Some(id) = value.id() else { continue };
            let result = self.judge_request(at, &value, clock, horizon);
            let told = self.told.entry(id.client).or_default();
            match result {
                Ok(fresh) => {
                    told.voted.entry(self.acceptor.epoch).or_default().push((at, id.sequence));
                    if fresh {
                        self.assert_may_vote(at);
                        self.acceptor.vote(at, value.clone());
                        self.votes.push((at, value));
                    }
                }
                Err(reject) => {
                    told.rejected.push((at, id.sequence, reject));
                    // Others may have voted for it, so it may have to be decided or proposed again; but nobody has for what
                    // is too far ahead.
                    let near = at <= horizon || !self.clock.is_set();
                    let room = self.bodies.len() < self.parameters().queue_commands;
                    if near && room && at >= self.tracks[0].frontier() {
                        let bodies = self.bodies.entry(at).or_default();
                        if !bodies.iter().any(|known| known.id() == Some(id)) {
                            bodies.push(value);
                        }
                        self.on_body_known(at, effects);
                    }
                }
            }
        }
    }

    /// What a fast vote rests on (`specs/domino.md` 4.7): the epoch is the one promised, nothing was voted for there (I2),
    /// and the clock, which no announcement was ahead of in any life, has not passed the stamp (I3).
    fn assert_may_vote(&self, at: u64) {
        let acceptor = &self.acceptor;
        assert!(
            acceptor.open && at >= acceptor.from,
            "I2: a vote at {at} in an epoch that is not open there"
        );
        assert!(!acceptor.votes.contains_key(&at), "I2: a second vote at {at}");
        if self.is_sound() {
            assert!(at >= self.clock.last(), "I3: a vote at {at}, behind {}", self.clock.last());
        }
    }

    /// Nothing gets a place here that lies beyond: what most clocks have reached and `future_max` more.
    pub(super) fn horizon(&self, clock: u64, now: Instant) -> u64 {
        let reached = clock.saturating_sub(self.clock.ahead(now).as_nanos());
        reached.saturating_add(self.parameters().future_max.as_nanos())
    }

    /// Whether a request is voted for, and if so whether it was not before.
    pub(super) fn judge_request(&self, at: u64, value: &V, clock: u64, horizon: u64) -> Result<bool, Reject> {
        let acceptor = &self.acceptor;
        if !acceptor.open || !self.clock.is_set() || at < acceptor.from {
            return Err(Reject::Closed);
        }
        if let Some(fast) = acceptor.fast_vote(at) {
            // A repeat: the same vote, which may still be on its way to the disk, like this answer to it.
            return if fast.id() == value.id() { Ok(false) } else { Err(Reject::Occupied) };
        }
        if acceptor.votes.contains_key(&at) {
            return Err(Reject::Occupied);
        }
        // Strictly below the clock lie its no-ops; a request exactly on time is accepted.
        let not_monotone = self.parameters().mutated(Mutation::ClockNotMonotone)
            || self.parameters().mutated(Mutation::ReserveNotJournalled);
        if at < clock || (acceptor.noops.get(at).is_some() && !not_monotone) {
            return Err(Reject::Late);
        }
        if at > horizon || acceptor.votes.len() >= self.parameters().queue_commands {
            return Err(Reject::Closed);
        }
        Ok(true)
    }

    /// A coordinator proposes in its classic ballot.
    pub(super) fn on_recover(&mut self, from: usize, round: Arc<Round<V>>) {
        let acceptor = &mut self.acceptor;
        if round.epoch != acceptor.epoch || !acceptor.open || from != self.coordinator(round.epoch) {
            return;
        }
        let (epoch, number) = (round.epoch, round.number);
        let known = self.rounds.contains_key(&number);
        if !known {
            debug_assert!(
                !self.is_sound() || !self.acceptor.contradicts(&round),
                "I2: two votes in {:?}",
                round.epoch
            );
            self.acceptor.vote_round(&round);
            // Its empty positions in there are no-ops now, so its clock has passed them.
            if let Some(end) = round.ranges.iter().map(|(_, until)| *until).max() {
                self.clock.raise(end);
            }
            self.write(Record::Recovered(round.clone()));
            self.rounds.insert(number, round);
        }
        self.say(from, Item::Recovered { epoch, number });
    }
}
