//! Revocation: another replica finds out what a silent owner has left in a window of its turns, and fills
//! the rest with no-ops. An owner does the same with its own turns after a restart, or to take them back.

use super::Mutation;
use super::lane::State;
use super::message::{Held, Message, Note, Rank, Record, Run, Turn, Value};
use super::order::Order;
use crate::election;
use crate::order::Ordered;
use isochrone_core::{Ballot, Count, Effects, Instant, IntervalMap, Quorums, ReplicaSet, Span, Tally};
use std::ops::Range;
use std::sync::Arc;

/// The two phases of one revocation.
#[derive(Clone, Hash, Debug)]
enum Stage<V: Ordered> {
    /// Promises are gathered.
    Prepare { from: ReplicaSet, held: Vec<Held<V>>, refused: bool },
    /// What they oblige to is proposed.
    Accept { runs: Arc<[Run<V>]>, tally: Tally },
}

/// One replica's attempt at a window of one owner's turns. What is said in it may be large and take long; another attempt would have
/// it said again. So it is gone on with in its ballot until it comes through, unless it is outbid or wanted no more.
#[derive(Clone, Hash, Debug)]
pub(super) struct Revocation<V: Ordered> {
    ballot: Ballot,
    turns: Range<Turn>,
    stage: Stage<V>,
    /// Since when it is at this stage.
    since: Instant,
    /// When it was last asked for.
    asked: Instant,
    /// Somebody has promised a higher ballot: when another attempt may follow.
    outbid: Option<Instant>,
}

impl<V: Ordered> Revocation<V> {
    /// Whether it is given up, where `frontier` is the first open turn and `wanted` says that the owner is silent still. What a
    /// majority has promised is proposed whether or not it is.
    fn is_over(&self, frontier: Turn, wanted: bool, round: Span, now: Instant) -> bool {
        let useless =
            !wanted && matches!(self.stage, Stage::Prepare { .. }) && now.since(self.since) >= round;
        frontier >= self.turns.end || self.outbid.map_or(useless, |until| now >= until)
    }
}

impl<V: Ordered> Order<V> {
    /// Looks whose turns must be revoked, and whether revocations under way get on.
    pub(super) fn tend_revocations(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        for lane in 0..self.lanes.len() {
            let (end, frontier, round) =
                (self.revokes_until(lane, now), self.lanes[lane].frontier(), self.round());
            self.revocations[lane].take_if(|known| known.is_over(frontier, end.is_some(), round, now));
            match (&self.revocations[lane], end) {
                (Some(_), _) => self.press(lane, effects),
                (None, Some(end)) => self.revoke(lane, end, effects),
                (None, None) => {}
            }
        }
    }

    /// Up to which turn this replica is to revoke, if it is.
    fn revokes_until(&self, lane: usize, now: Instant) -> Option<Turn> {
        let frontier = self.lanes[lane].frontier();
        if lane == self.me {
            return (frontier < self.reclaim && now >= self.reclaim_at).then_some(self.reclaim);
        }
        if !self.is_silent(lane, now) {
            return None;
        }
        // The next one who lives.
        let count = self.members.len();
        let heir = (1..count).map(|step| (lane + step) % count).find(|rank| !self.is_silent(*rank, now))?;
        let (reached, window) = (self.deal.turn(lane, self.seen), self.parameters.revoke_turns);
        (heir == self.me && frontier < reached + window / 2).then_some(reached.max(frontier) + window)
    }

    /// Phase 1. The own promise is recorded before anyone hears of the ballot: it is never used twice.
    fn revoke(&mut self, lane: usize, end: Turn, effects: &mut Effects<Self>) {
        let now = effects.now();
        let turns = self.lanes[lane].frontier()..end;
        let ballot = self.lanes[lane].heard.max(self.lanes[lane].promised).next(self.seat());
        self.lanes[lane].admit(ballot, end);
        effects.record(Record::Promised { lane: lane as Rank, ballot, barred: end });
        effects.mark(Note::Counted(if lane == self.me { "turns_reclaimed" } else { "turns_revoked" }));
        for member in self.members.iter() {
            let prepare = Message::Prepare { lane: lane as Rank, ballot, turns: turns.clone() };
            effects.urgently(|effects| effects.send(member.process, prepare));
        }
        let stage = Stage::Prepare { from: ReplicaSet::EMPTY, held: Vec::new(), refused: false };
        self.revocations[lane] =
            Some(Revocation { ballot, turns, stage, since: now, asked: now, outbid: None });
    }

    /// Asks again whoever has not answered for long, or has not come to see that the owner is silent.
    fn press(&mut self, lane: usize, effects: &mut Effects<Self>) {
        let (now, round, frontier) = (effects.now(), self.round(), self.lanes[lane].frontier());
        let Some(revocation) = self.revocations[lane].as_mut().filter(|known| known.outbid.is_none()) else {
            return;
        };
        let late = now.since(revocation.asked) >= round;
        let (lane, ballot) = (lane as Rank, revocation.ballot);
        match &mut revocation.stage {
            Stage::Prepare { from, refused, .. } if *refused || late => {
                (*refused, revocation.asked) = (false, now);
                // Who has trimmed what is decided cannot tell of it.
                revocation.turns.start = revocation.turns.start.max(frontier);
                for member in self.members.iter().filter(|member| !from.contains(member.replica)) {
                    let prepare = Message::Prepare { lane, ballot, turns: revocation.turns.clone() };
                    effects.urgently(|effects| effects.send(member.process, prepare));
                }
            }
            Stage::Accept { runs, tally } if late => {
                revocation.asked = now;
                for member in self.members.iter().filter(|member| !tally.voters().contains(member.replica)) {
                    let (turns, runs) = (revocation.turns.clone(), runs.clone());
                    let accept = Message::Accept { lane, ballot, turns, runs };
                    effects.repeating(|effects| effects.send_ahead(member.process, accept));
                }
            }
            Stage::Prepare { .. } | Stage::Accept { .. } => {}
        }
    }

    pub(super) fn on_prepare(
        &mut self,
        sender: usize,
        lane: usize,
        ballot: Ballot,
        turns: Range<Turn>,
        effects: &mut Effects<Self>,
    ) {
        let Some(held) = self.lanes.get_mut(lane) else { return };
        held.heard = held.heard.max(ballot);
        let known = ballot == held.promised && turns.end <= held.barred;
        let trimmed = turns.start < held.base();
        // Whoever hears the owner does not help to revoke it: one cut off from it may be the only one.
        let welcome = known || sender == lane || self.is_silent(lane, effects.now());
        if ballot < self.lanes[lane].promised || trimmed || !welcome {
            return self.reject(sender, lane, effects);
        }
        if self.lanes[lane].admit(ballot, turns.end) {
            let barred = self.lanes[lane].barred;
            effects.record(Record::Promised { lane: lane as Rank, ballot, barred });
            if lane == self.me {
                self.give_up(barred);
            }
        }
        let promised = Message::Promised { lane: lane as Rank, ballot, held: self.lanes[lane].report(turns) };
        // The own promise stands before it is asked for.
        let again = known && sender != self.me;
        effects.repeating_if(again, |effects| effects.send(self.members[sender].process, promised));
    }

    pub(super) fn reject(&mut self, to: usize, lane: usize, effects: &mut Effects<Self>) {
        let of = &self.lanes[lane];
        let (promised, barred, decided) = (of.promised, of.barred, of.frontier());
        let message = Message::Rejected { lane: lane as Rank, promised, barred, decided };
        effects.urgently(|effects| effects.send(self.members[to].process, message));
    }

    pub(super) fn on_rejected(
        &mut self,
        sender: usize,
        lane: usize,
        promised: Ballot,
        barred: Turn,
        decided: Turn,
        effects: &mut Effects<Self>,
    ) {
        let round = self.round();
        let Some(held) = self.lanes.get_mut(lane) else { return };
        held.heard = held.heard.max(promised);
        if let Some(revocation) = &mut self.revocations[lane] {
            if promised > revocation.ballot {
                // Somebody else is at it: this one comes again later, if still needed.
                if revocation.outbid.is_none() {
                    self.outbid[lane] += 1;
                    let wait = election::recess(round, self.outbid[lane], effects.random());
                    revocation.outbid = Some(effects.now() + wait);
                }
            } else if let Stage::Prepare { refused, .. } = &mut revocation.stage {
                *refused = true;
            }
        }
        if decided > self.lanes[lane].frontier() {
            let from = self.decided();
            let fetch = Message::Fetch { from };
            effects.urgently(|effects| effects.send_ahead(self.members[sender].process, fetch));
        }
        if lane == self.me {
            self.advance(barred, effects);
            self.contest(barred, effects.now());
        }
    }

    /// Own turns below `barred` were revoked. If the revoker does not settle those that were suggested,
    /// the owner does.
    pub(super) fn contest(&mut self, barred: Turn, now: Instant) {
        let mut open = self.flights.iter().filter(|flight| flight.quorum.is_none());
        if barred > self.reclaim && open.next().is_some_and(|flight| flight.turn < barred) {
            (self.reclaim, self.reclaim_at) = (barred, now + self.round());
        }
    }

    pub(super) fn on_promised(
        &mut self,
        voter: usize,
        lane: usize,
        ballot: Ballot,
        report: Vec<Held<V>>,
        effects: &mut Effects<Self>,
    ) {
        let Some(Some(revocation)) = self.revocations.get_mut(lane) else { return };
        if revocation.ballot != ballot {
            return;
        }
        let Stage::Prepare { from, held, .. } = &mut revocation.stage else { return };
        if !from.insert(self.members[voter].replica) {
            return;
        }
        held.extend(report);
        if from.len() < Quorums::majority(self.members.len()) {
            return;
        }
        if self.parameters.mutated(Mutation::RevokeBlindly) {
            held.clear();
        }
        let turns = revocation.turns.clone();
        let runs = adopted(lane as Rank, turns.clone(), held);
        let tally = Tally::new(Quorums::majority(self.members.len()));
        revocation.stage = Stage::Accept { runs: runs.clone(), tally };
        (revocation.since, revocation.asked) = (effects.now(), effects.now());
        if self.parameters.mutated(Mutation::RevokeWithoutAccept) {
            return self.end_revocation(lane, runs, effects);
        }
        // Ahead: the ballot is durable here, and nothing else is needed.
        for member in self.members.iter() {
            let (turns, runs) = (turns.clone(), runs.clone());
            effects.send_ahead(member.process, Message::Accept { lane: lane as Rank, ballot, turns, runs });
        }
    }

    pub(super) fn on_accept(
        &mut self,
        sender: usize,
        lane: usize,
        ballot: Ballot,
        turns: Range<Turn>,
        runs: Arc<[Run<V>]>,
        effects: &mut Effects<Self>,
    ) {
        let Some(held) = self.lanes.get_mut(lane) else { return };
        if ballot < held.promised {
            return self.reject(sender, lane, effects);
        }
        let voted = |turns: &Range<Turn>| {
            let mut states = held.range(turns.clone());
            states.all(|(_, state)| matches!(state, State::Voted(of, _) if *of == ballot))
        };
        let again =
            held.open(turns.clone()).iter().all(|open| held.gap(open.clone()).is_none() && voted(open));
        held.admit(ballot, turns.end);
        if !again {
            for run in runs.iter() {
                held.vote(run.turns.clone(), ballot, &run.value);
            }
            effects.record(Record::Adopted { lane: lane as Rank, ballot, runs });
            if lane == self.me {
                self.give_up(turns.end);
            }
        }
        let skipped = self.skip_from..self.next;
        let vote = Message::Accepted { lane: lane as Rank, ballot, turns, skipped };
        effects.urgently(|effects| effects.send(self.members[sender].process, vote));
    }

    /// A vote for what this replica proposed in another's turns.
    pub(super) fn count_revocation(
        &mut self,
        voter: usize,
        lane: usize,
        ballot: Ballot,
        effects: &mut Effects<Self>,
    ) {
        let Some(Some(revocation)) = self.revocations.get_mut(lane) else { return };
        if let Stage::Accept { runs, tally } = &mut revocation.stage
            && revocation.ballot == ballot
            && tally.add(self.members[voter].replica) == Count::Reached
        {
            let runs = runs.clone();
            self.end_revocation(lane, runs, effects);
        }
    }

    fn end_revocation(&mut self, lane: usize, runs: Arc<[Run<V>]>, effects: &mut Effects<Self>) {
        self.revocations[lane] = None;
        self.outbid[lane] = 0;
        self.learn(&runs, effects);
        let executed = self.decided();
        for (_, peer) in self.peers() {
            effects.send_ahead(peer, Message::Learned { runs: runs.clone(), executed });
        }
        // The own turns may have been waited for in `settle` only by those told so.
        self.tend_revocations(effects);
    }
}

/// What promises oblige a revoker to propose: for each turn what is decided, or was accepted in the highest
/// ballot; and nothing where nothing was.
fn adopted<V: Ordered>(lane: Rank, turns: Range<Turn>, held: &[Held<V>]) -> Arc<[Run<V>]> {
    let rank = |held: &Held<V>| held.ballot.map_or((1, Ballot::ZERO), |ballot| (0, ballot));
    let mut best: IntervalMap<Turn, usize> = IntervalMap::default();
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_by_key(|index| rank(&held[*index]));
    for index in order {
        let (start, end) = (held[index].turns.start.max(turns.start), held[index].turns.end.min(turns.end));
        best.set(start..end, index);
    }
    let found = best.runs(turns.clone()).map(|(turns, index)| (turns, held[*index].value.clone()));
    let empty = best.gaps(turns).map(|turns| (turns, Value::NoOp));
    let mut runs: Vec<Run<V>> = found.chain(empty).map(|(turns, value)| Run { lane, turns, value }).collect();
    runs.sort_by_key(|run| run.turns.start);
    Arc::from(runs)
}
