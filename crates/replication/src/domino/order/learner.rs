//! Counting fast votes: what a replica that learns them knows of each position (`specs/domino.md` 3.4).

use super::super::message::{Item, Place};
use super::Order;
use crate::order::Ordered;
use isochrone_core::{CommandId, Effects, ReplicaId, ReplicaSet};
use std::collections::BTreeMap;

/// From where to where a replica's fast votes are known, those for no-op included.
#[derive(Copy, Clone, Hash, Debug, Default)]
struct Cover {
    /// The epoch of the votes; nothing before the first word.
    epoch: Option<u32>,
    base: u64,
    until: u64,
}

/// The fast votes of one epoch.
#[derive(Clone, Hash, Debug)]
pub(super) struct Learner {
    epoch: u32,
    covers: Vec<Cover>,
    /// Positions that are not decided and have a vote for a command.
    tally: BTreeMap<u64, Vec<(CommandId, ReplicaSet)>>,
    /// Below, all that is not open is decided.
    settled: u64,
}

/// Heartbeats from one question for a command that is lacking to the next.
pub(super) const ASK_EVERY: u64 = 8;

/// What is known of a position.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Each value with its voters, commands in the order of their names; a no-op where nothing.
    pub(super) values: Vec<(Option<CommandId>, ReplicaSet)>,
    /// Whose vote is not known.
    pub(super) unknown: ReplicaSet,
    /// How many votes are known.
    pub(super) count: usize,
}

impl Known {
    /// The value that has this many votes.
    pub(super) fn chosen(&self, need: usize) -> Option<Option<CommandId>> {
        self.values.iter().find(|(_, voters)| voters.len() >= need).map(|(value, _)| *value)
    }

    /// Whether no value can come to this many votes any more.
    pub(super) fn is_lost(&self, need: usize) -> bool {
        let most = self.values.iter().map(|(_, voters)| voters.len()).max().unwrap_or(0);
        most + self.unknown.len() < need
    }

    /// Whether a value has so many votes that it may have been chosen.
    pub(super) fn is_forced(&self, threshold: usize) -> bool {
        self.values.iter().any(|(_, voters)| voters.len() >= threshold)
    }

    /// Who voted for a command.
    pub(super) fn voters(&self, id: CommandId) -> ReplicaSet {
        let voters = self.values.iter().find(|(value, _)| *value == Some(id)).map(|(_, voters)| *voters);
        voters.unwrap_or(ReplicaSet::EMPTY)
    }

    /// What a recovery proposes: a value that may have been chosen, else the command with most votes, the
    /// smallest among equals, else a no-op (`specs/domino.md` 3.5). `threshold` votes are the sign of a value
    /// that may have been chosen.
    pub(super) fn pick(&self, threshold: usize) -> Option<CommandId> {
        if let Some((value, _)) = self.values.iter().find(|(_, voters)| voters.len() >= threshold) {
            return *value;
        }
        let commands = self.values.iter().filter_map(|(value, voters)| Some(((*value)?, voters.len())));
        commands.max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0))).map(|(id, _)| id)
    }
}

impl Learner {
    pub(super) fn new(members: usize) -> Learner {
        Learner { epoch: 0, covers: vec![Cover::default(); members], tally: BTreeMap::new(), settled: 0 }
    }

    /// The epoch whose votes it counts.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Up to where a replica has announced its clock, in the epoch whose votes are counted; nothing if it has not.
    pub(super) fn announced(&self, seat: usize) -> Option<u64> {
        let Cover { base, until, .. } = self.covers[seat];
        (self.covers(seat) && until > base).then_some(until)
    }

    /// How many positions are open.
    pub(super) fn len(&self) -> usize {
        self.tally.len()
    }

    /// From here on a replica's votes of an epoch are told.
    fn cover(&mut self, seat: usize, epoch: u32, base: u64) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.tally.clear();
            self.covers.fill(Cover::default());
        }
        if epoch == self.epoch {
            // What was told before in this epoch is told again from `base` on.
            self.covers[seat] = Cover { epoch: Some(epoch), base, until: base };
            // Positions may be open no more.
            self.settled = 0;
        }
    }

    fn covers(&self, seat: usize) -> bool {
        self.covers[seat].epoch == Some(self.epoch)
    }

    /// Takes a vote.
    fn vote(&mut self, at: u64, seat: usize, id: CommandId) {
        let cast = self.tally.entry(at).or_default();
        let voter = ReplicaId(seat as u8);
        if cast.iter().any(|(_, voters)| voters.contains(voter)) {
            return;
        }
        match cast.binary_search_by_key(&id, |(known, _)| *known) {
            Ok(found) => {
                cast[found].1.insert(voter);
            }
            Err(place) => cast.insert(place, (id, ReplicaSet::from_iter([voter]))),
        }
    }

    /// A replica's clock has come this far; from where it came.
    fn pass(&mut self, seat: usize, until: u64) -> u64 {
        let cover = &mut self.covers[seat];
        let before = cover.until;
        cover.until = before.max(until);
        before
    }

    /// The stamp that `k` replicas have passed, without a gap from `frontier` on.
    pub(super) fn passed(&self, k: usize, frontier: u64) -> u64 {
        let reach = |cover: &Cover| {
            let counts = cover.epoch == Some(self.epoch) && cover.base <= frontier;
            if counts { cover.until } else { 0 }
        };
        let mut reached: Vec<u64> = self.covers.iter().map(reach).collect();
        reached.sort_unstable_by(|a, b| b.cmp(a));
        reached.get(k.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// What is known of a position.
    pub(super) fn known(&self, at: u64) -> Known {
        let mut values: Vec<(Option<CommandId>, ReplicaSet)> = Vec::new();
        let mut voters = ReplicaSet::EMPTY;
        for (id, cast) in self.tally.get(&at).into_iter().flatten() {
            values.push((Some(*id), *cast));
            cast.iter().for_each(|voter| {
                voters.insert(voter);
            });
        }
        let (mut noop, mut unknown) = (ReplicaSet::EMPTY, ReplicaSet::EMPTY);
        for (seat, cover) in self.covers.iter().enumerate() {
            let seat = ReplicaId(seat as u8);
            if voters.contains(seat) {
                continue;
            }
            let covered = cover.epoch == Some(self.epoch) && cover.base <= at && at < cover.until;
            if covered {
                noop.insert(seat)
            } else {
                unknown.insert(seat)
            };
        }
        if !noop.is_empty() {
            values.push((None, noop));
        }
        Known { count: voters.len() + noop.len(), values, unknown }
    }

    /// The positions of a range that are open.
    pub(super) fn open(&self, from: u64, until: u64) -> Vec<u64> {
        self.tally.range(from..until.max(from)).map(|(at, _)| *at).collect()
    }

    /// Forgets positions below.
    pub(super) fn trim(&mut self, below: u64) {
        while self.tally.first_key_value().is_some_and(|(at, _)| *at < below) {
            self.tally.pop_first();
        }
    }

    /// A position is decided: the commands voted for there, and by whom.
    fn close(&mut self, at: u64) -> Vec<(CommandId, ReplicaSet)> {
        self.tally.remove(&at).unwrap_or_default()
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn on_cover(&mut self, from: usize, epoch: u32, base: u64) {
        self.seen = self.seen.max(epoch);
        self.learner.cover(from, epoch, base);
        self.settle_noops();
    }

    pub(super) fn on_vote(&mut self, from: usize, votes: Vec<(u64, CommandId)>, effects: &mut Effects<Self>) {
        if !self.learner.covers(from) {
            return;
        }
        for (at, id) in votes {
            if self.tracks[0].is_decided(at) {
                self.lose(at, id, effects);
                continue;
            }
            self.learner.vote(at, from, id);
            self.evaluate(at, effects);
        }
    }

    pub(super) fn on_tick(
        &mut self,
        from: usize,
        clock: Option<u64>,
        skip: u64,
        effects: &mut Effects<Self>,
    ) {
        self.skip_lane(from, skip);
        let Some(clock) = clock.filter(|_| self.learner.covers(from)) else { return };
        let before = self.learner.pass(from, clock);
        for at in self.learner.open(before, clock) {
            self.evaluate(at, effects);
        }
        self.settle_noops();
    }

    /// Positions that a fast quorum has passed, and for which no vote was told, hold no-ops.
    pub(super) fn settle_noops(&mut self) {
        let frontier = self.tracks[0].frontier();
        let passed = self.learner.passed(self.quorums().fast(), frontier);
        let mut at = frontier.max(self.learner.settled);
        // An open position stays open; what lies behind it may be settled all the same.
        for open in self.learner.open(at, passed) {
            self.tracks[0].decide_noops(at, open);
            at = open + 1;
        }
        if at < passed {
            self.tracks[0].decide_noops(at, passed);
        }
        self.learner.settled = self.learner.settled.max(passed);
    }

    /// Decides a position whose fast votes suffice; a coordinator also one whose fast votes never will.
    pub(super) fn evaluate(&mut self, at: u64, effects: &mut Effects<Self>) {
        if self.tracks[0].is_decided(at) {
            return;
        }
        let known = self.learner.known(at);
        if let Some(value) = known.chosen(self.quorums().fast()) {
            let Some(id) = value else { return self.decide_fast(at, None, effects) };
            return match self.body(at, id) {
                Some(value) => self.decide_fast(at, Some(value), effects),
                None => self.lack(at, id, &known),
            };
        }
        let hopeless = known.is_lost(self.quorums().fast())
            || known.unknown.iter().all(|seat| self.suspects.contains(seat));
        if hopeless && known.count >= self.quorums().classic() {
            self.recover(at, &known, effects);
        }
    }

    /// Once more, every open position: more replicas are silent than before, and whose vote is not known is not waited for.
    pub(super) fn evaluate_all(&mut self, effects: &mut Effects<Self>) {
        if self.reign.is_some() {
            for at in self.learner.open(self.tracks[0].frontier(), u64::MAX) {
                self.evaluate(at, effects);
            }
        }
    }

    fn decide_fast(&mut self, at: u64, value: Option<V>, effects: &mut Effects<Self>) {
        self.choose(at, value.clone());
        if self.reign.is_some()
            && self.parameters().learners == super::Learners::Sole
            && let Some(value) = value
        {
            self.announce(at, &value);
        }
        self.close_position(at, effects);
    }

    /// A position of the fast lane is decided here.
    pub(super) fn choose(&mut self, at: u64, value: Option<V>) {
        self.lacks.remove(&at);
        if self.is_sound() && self.tracks[0].is_decided(at) && (Place { at, lane: 0 }) >= self.done {
            // What is decided and not executed is still known; a no-op where nothing is.
            let known = self.tracks[0].commands.get(&at).and_then(Ordered::id);
            let told = value.as_ref().and_then(Ordered::id);
            assert!(known == told, "I1: {known:?} and {told:?} at {at}");
        }
        self.tracks[0].decide(at, value);
    }

    /// The votes for a decided position have done their work; those for other commands are lost.
    pub(super) fn close_position(&mut self, at: u64, effects: &mut Effects<Self>) {
        for (id, _) in self.learner.close(at) {
            self.lose(at, id, effects);
        }
    }

    /// A command that was voted for at a decided position. Where that holds something else, the coordinator
    /// proposes it in its own lane (`specs/domino.md` 3.5). Copies do no harm.
    fn lose(&mut self, at: u64, id: CommandId, effects: &mut Effects<Self>) {
        if self.reign.is_none() || self.decided_id(at) == Some(id) {
            return;
        }
        let Some(value) = self.body(at, id) else { return };
        let Some(reign) = &mut self.reign else { return };
        if reign.note_loser(id) {
            effects.mark(super::Note::Counted("fast_lost"));
            self.enqueue(value, at, effects.now());
        }
    }

    /// The command that a decided position of the fast lane is known to hold.
    fn decided_id(&self, at: u64) -> Option<CommandId> {
        let waiting = self.tracks[0].commands.get(&at);
        waiting.or_else(|| self.kept.at(super::Place { at, lane: 0 }))?.id()
    }

    /// A command that was proposed for a position, if it is known here.
    pub(super) fn body(&self, at: u64, id: CommandId) -> Option<V> {
        let named = |value: &&V| value.id() == Some(id);
        let vote = self.acceptor.votes.get(&at);
        let voted = vote.into_iter().flat_map(|vote| vote.fast.iter().chain(vote.value.iter()));
        let round = self.rounds.values().flat_map(|round| round.values.iter());
        let round = round.filter(|(stamp, _)| *stamp == at).filter_map(|(_, value)| value.as_ref());
        voted.chain(self.bodies.get(&at).into_iter().flatten()).chain(round).find(named).cloned()
    }

    /// A command is needed to go on.
    pub(super) fn lack(&mut self, at: u64, id: CommandId, known: &Known) {
        let voters = known.voters(id);
        if self.lacks.insert(at, (id, voters)).is_none() {
            self.ask_for(at, id, voters, 0);
        }
    }

    /// Asks one of those who voted for it, and who are heard: by turns.
    fn ask_for(&mut self, at: u64, id: CommandId, voters: ReplicaSet, turn: u64) {
        let seats = voters.iter().map(|seat| usize::from(seat.0));
        let givers: Vec<_> = seats.filter(|seat| *seat != self.me && !self.suspected(*seat)).collect();
        let turn = turn.checked_rem(givers.len() as u64);
        if let Some(giver) = turn.and_then(|turn| givers.get(turn as usize)) {
            self.say(*giver, Item::Lack { values: vec![(at, id)] });
        }
    }

    /// Asks again for what is lacking.
    pub(super) fn ask_again(&mut self) {
        let decided = |at: &u64| self.tracks[0].is_decided(*at);
        let over: Vec<u64> = self.lacks.keys().copied().filter(decided).collect();
        over.iter().for_each(|at| {
            self.lacks.remove(at);
        });
        let turn = self.beats / ASK_EVERY;
        for (at, (id, voters)) in self.lacks.clone() {
            self.ask_for(at, id, voters, turn);
        }
    }

    pub(super) fn on_lack(&mut self, from: usize, values: &[(u64, CommandId)]) {
        let known = values.iter().filter_map(|(at, id)| Some((*at, self.body(*at, *id)?)));
        let values: Vec<_> = known.collect();
        if !values.is_empty() {
            self.say(from, Item::Body { values });
        }
    }

    pub(super) fn on_body(&mut self, values: Vec<(u64, V)>, effects: &mut Effects<Self>) {
        for (at, value) in values {
            if self.lacks.get(&at).is_some_and(|(id, _)| value.id() == Some(*id)) {
                self.bodies.entry(at).or_default().push(value);
                self.on_body_known(at, effects);
            }
        }
    }

    /// A command has come to be known that a position may have waited for.
    pub(super) fn on_body_known(&mut self, at: u64, effects: &mut Effects<Self>) {
        if let Some((id, _)) = self.lacks.get(&at)
            && self.body(at, *id).is_some()
        {
            self.lacks.remove(&at);
            self.evaluate(at, effects);
        }
    }
}
