//! The coordinator of the fast lane: rounds of coordinated recovery, degraded mode, and what it tells the
//! others of decisions (`specs/domino.md` 3.4, 3.5, 4.3).

use super::super::Mutation;
use super::super::message::{Item, Note, Opening, Round};
use super::learner::{ASK_EVERY, Known};
use super::links::Answer;
use super::{Learners, Order};
use crate::order::Ordered;
use isochrone_core::{CommandId, Count, Effects, Instant, ReplicaId, ReplicaSet, Tally};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a coordinator keeps while it is one.
#[derive(Clone, Hash, Debug)]
pub(super) struct Reign<V: Ordered> {
    pub(super) epoch: u32,
    /// How its epoch began; nothing for the first epoch. Whoever missed it is told again.
    opening: Option<Arc<Opening<V>>>,
    flights: BTreeMap<u64, Flight<V>>,
    next: u64,
    /// Positions of this turn that go into the next round, and those of rounds in flight.
    values: BTreeMap<u64, Option<V>>,
    ranges: Vec<(u64, u64)>,
    recovering: BTreeSet<u64>,
    /// Up to where no-ops were proposed in bulk.
    bulk: u64,
    /// What was announced as decided.
    settled: u64,
    /// Decided commands to be announced.
    chosen: Vec<(u64, V)>,
    /// Lost commands that were proposed again; forgotten when there are many.
    losers: BTreeSet<CommandId>,
}

#[derive(Clone, Hash, Debug)]
struct Flight<V: Ordered> {
    round: Arc<Round<V>>,
    tally: Tally,
    sent: Instant,
}

/// Losers remembered at most; one more forgotten costs a copy in the log.
const LOSERS_MAX: usize = 4_096;

impl<V: Ordered> Reign<V> {
    /// News of a decision for whoever does not learn it for itself.
    pub(super) fn announce(&mut self, at: u64, value: &V) {
        self.chosen.push((at, value.clone()));
    }

    /// Notes a loser; false where it was noted before.
    pub(super) fn note_loser(&mut self, id: CommandId) -> bool {
        if self.losers.len() >= LOSERS_MAX {
            self.losers.clear();
        }
        self.losers.insert(id)
    }

    /// Who has voted for the opening of its epoch, while that is not decided.
    pub(super) fn opens(&self) -> Option<ReplicaSet> {
        self.flights.get(&0).map(|flight| flight.tally.voters())
    }

    /// Whether it has proposed something for a position that may not be decided yet: its ballot must not see
    /// another value there.
    fn has_proposed(&self, at: u64) -> bool {
        let within = |ranges: &[(u64, u64)]| ranges.iter().any(|(from, until)| (*from..*until).contains(&at));
        let opened = self.opening.as_ref().is_some_and(|opening| {
            at < opening.high || opening.round.values.binary_search_by_key(&at, |(at, _)| *at).is_ok()
        });
        opened
            || self.recovering.contains(&at)
            || within(&self.ranges)
            || self.flights.values().any(|flight| within(&flight.round.ranges))
    }
}

impl<V: Ordered> Order<V> {
    /// Coordinates the first epoch, which is open from the start.
    pub(super) fn reign(&mut self, effects: &mut Effects<Self>) {
        self.begin_reign(self.acceptor.epoch, None, effects);
    }

    pub(super) fn begin_reign(
        &mut self,
        epoch: u32,
        opening: Option<Arc<Opening<V>>>,
        effects: &mut Effects<Self>,
    ) {
        let bulk = opening.as_ref().map_or(0, |opening| opening.high);
        self.rounds.clear();
        self.reign = Some(Box::new(Reign {
            epoch,
            opening,
            flights: BTreeMap::new(),
            next: 1,
            values: BTreeMap::new(),
            ranges: Vec::new(),
            recovering: BTreeSet::new(),
            bulk,
            settled: 0,
            chosen: Vec::new(),
            losers: BTreeSet::new(),
        }));
        effects.mark(Note::Leads(epoch));
    }

    /// From here on a member that does not learn for itself is told of all that is decided: where it begins, and what is
    /// decided beyond already.
    pub(super) fn leads(&self, seat: usize) -> Vec<Item<V>> {
        if self.reign.is_none() || self.parameters().learners != Learners::Sole || seat == self.me {
            return Vec::new();
        }
        let base = self.tracks[0].frontier();
        let values = self.tracks[0].commands.range(base..);
        let values: Vec<_> = values.map(|(at, value)| (*at, value.clone())).collect();
        let chosen = (!values.is_empty()).then_some(Item::Chosen { values });
        [Item::Lead { base }].into_iter().chain(chosen).collect()
    }

    /// The same, at the end of this turn's words to it so far.
    pub(super) fn lead(&mut self, seat: usize) {
        for item in self.leads(seat) {
            self.say(seat, item);
        }
    }

    /// Tells a member how this epoch began: what is told of decisions counts behind that.
    pub(super) fn say_open(&mut self, seat: usize, opening: Arc<Opening<V>>) {
        self.say(seat, Item::Open(opening));
        self.lead(seat);
    }

    /// Another epoch is known: this replica coordinates no more.
    pub(super) fn end_reign(&mut self, effects: &mut Effects<Self>) {
        if self.reign.take().is_some() {
            effects.mark(Note::Follows);
        }
        self.rounds.clear();
        self.led = None;
    }

    /// What a session of a link begins with that this coordinator has to say.
    pub(super) fn reign_resync(&self, seat: usize, items: &mut Vec<Item<V>>) {
        let Some(reign) = &self.reign else { return };
        items.extend(self.leads(seat));
        for flight in reign.flights.values() {
            items.push(Item::Recover(flight.round.clone()));
        }
    }

    /// A replica that has not opened this epoch is told how it began.
    pub(super) fn on_stale_epoch(&mut self, seat: usize, epoch: u32, open: bool, now: Instant) {
        if let Some(reign) = &self.reign
            && (epoch < reign.epoch || (epoch == reign.epoch && !open))
            && let Some(opening) = reign.opening.clone()
            && self.answers(seat, Answer::Open, false, now)
        {
            self.say_open(seat, opening);
        }
    }

    /// Gathers a position whose fast votes do not suffice for the next round.
    pub(super) fn recover(&mut self, at: u64, known: &Known, effects: &mut Effects<Self>) {
        let (n, wrong) = (self.n(), self.parameters().mutated(Mutation::HighThreshold));
        let Some(reign) = &self.reign else { return };
        // It proposes one value for a position, and none in an epoch that is not its own any more, or by votes
        // of another one.
        let own = reign.epoch == self.acceptor.epoch && reign.epoch == self.learner.epoch();
        let twice = self.parameters().mutated(Mutation::ProposeTwice)
            && reign.epoch == self.acceptor.epoch
            && !reign.recovering.contains(&at);
        if !twice && (!own || reign.has_proposed(at)) {
            return;
        }
        let threshold = self.quorums().recovery(known.count) + usize::from(wrong) * n;
        let value = match known.pick(threshold) {
            None => None,
            Some(id) => match self.body(at, id) {
                Some(value) => Some(value),
                // Whoever has it may never come back, and no other may have been chosen.
                None if !known.is_forced(threshold)
                    && known.voters(id).iter().all(|seat| self.suspects.contains(seat)) =>
                {
                    None
                }
                None => return self.lack(at, id, known),
            },
        };
        if let Some(reign) = &mut self.reign {
            reign.recovering.insert(at);
            reign.values.insert(at, value);
            effects.mark(Note::Counted("fast_recovered"));
        }
    }

    /// By the clock: positions that too few can vote for, rounds without answers, and the decided frontier.
    pub(super) fn coordinate(&mut self, effects: &mut Effects<Self>) {
        if self.beats.is_multiple_of(ASK_EVERY) {
            self.ask_again();
        }
        let now = effects.now();
        if self.reign.is_none() {
            return;
        }
        self.pass_in_bulk(effects);
        let (resend, mut again) = (self.parameters().resend, Vec::new());
        if let Some(reign) = &mut self.reign {
            for flight in reign.flights.values_mut() {
                if now.since(flight.sent) >= resend {
                    let before = std::mem::replace(&mut flight.sent, now);
                    again.push((flight.round.clone(), flight.tally.voters(), before));
                }
            }
        }
        for (round, voters, before) in again {
            let opening = self.reign.as_ref().and_then(|reign| reign.opening.clone());
            for seat in 0..self.n() {
                if voters.contains(ReplicaId(seat as u8)) || !self.is_to_say_again(seat, before) {
                    continue;
                }
                match (&opening, round.number) {
                    (Some(opening), 0) => self.say_open(seat, opening.clone()),
                    _ => self.say(seat, Item::Recover(round.clone())),
                }
            }
        }
    }

    /// Where fewer than a fast quorum answer, or one of it lags far behind, the no-ops that a classic one has
    /// voted for are decided by rounds (`specs/domino.md` 4.3).
    fn pass_in_bulk(&mut self, effects: &mut Effects<Self>) {
        let frontier = self.tracks[0].frontier();
        let fast = self.learner.passed(self.quorums().fast(), frontier);
        let most = self.learner.passed(self.quorums().classic(), frontier);
        let lag = self.parameters().lag_max.as_nanos();
        let few = self.n() - self.suspects.len() < self.quorums().fast();
        let stale = self.learner.epoch() != self.acceptor.epoch;
        if stale || most <= frontier || !(few || most.saturating_sub(fast) > lag) {
            return;
        }
        // Whoever is unknown here is not waited for.
        for at in self.learner.open(frontier, most) {
            if self.tracks[0].is_decided(at) {
                continue;
            }
            let known = self.learner.known(at);
            if known.count >= self.quorums().classic() {
                match known.chosen(self.quorums().fast()) {
                    Some(_) => self.evaluate(at, effects),
                    None => self.recover(at, &known, effects),
                }
            }
        }
        let Some(reign) = &mut self.reign else { return };
        let from = reign.bulk.max(frontier);
        if from >= most || reign.epoch != self.acceptor.epoch {
            return;
        }
        reign.bulk = most;
        // What is decided already, or has votes for a command, is no no-op.
        for gap in self.tracks[0].gaps(from, most) {
            let mut at = gap.start;
            for open in self.learner.open(gap.start, gap.end) {
                reign.ranges.push((at, open));
                at = open + 1;
            }
            reign.ranges.push((at, gap.end));
        }
        reign.ranges.retain(|(from, until)| from < until);
    }

    /// What was gathered goes out: as a round, and as news of decisions.
    pub(super) fn flush_reign(&mut self, effects: &Effects<Self>) {
        let classic = self.quorums().classic();
        let frontier = self.tracks[0].frontier();
        let (sole, ticking) = (self.parameters().learners == Learners::Sole, self.ticking);
        let Some(reign) = &mut self.reign else { return };
        let mut items = Vec::new();
        if !reign.values.is_empty() || !reign.ranges.is_empty() {
            let values = std::mem::take(&mut reign.values).into_iter().collect();
            let ranges = std::mem::take(&mut reign.ranges);
            let round = Arc::new(Round { epoch: reign.epoch, number: reign.next, values, ranges });
            reign.next += 1;
            let (tally, sent) = (Tally::new(classic), effects.now());
            reign.flights.insert(round.number, Flight { round: round.clone(), tally, sent });
            items.push((true, Item::Recover(round)));
        }
        if sole {
            let chosen = std::mem::take(&mut reign.chosen);
            if !chosen.is_empty() {
                items.push((false, Item::Chosen { values: chosen }));
            }
            if ticking && frontier > reign.settled {
                reign.settled = frontier;
                items.push((false, Item::Settled { until: frontier }));
            }
        }
        for (all, item) in items {
            if all { self.tell_all(&item) } else { self.tell_others(&item) }
        }
    }

    /// News of a decision for whoever does not learn it for itself.
    pub(super) fn announce(&mut self, at: u64, value: &V) {
        if let Some(reign) = &mut self.reign {
            reign.announce(at, value);
        }
    }

    /// The opening of an epoch is its round 0.
    pub(super) fn fly_opening(&mut self, round: Arc<Round<V>>, now: Instant) {
        let tally = Tally::new(self.quorums().classic());
        if let Some(reign) = &mut self.reign {
            reign.flights.insert(0, Flight { round, tally, sent: now });
        }
    }

    pub(super) fn on_recovered(&mut self, from: usize, epoch: u32, number: u64, effects: &mut Effects<Self>) {
        let Some(reign) = &mut self.reign else { return };
        if reign.epoch != epoch {
            return;
        }
        let Some(flight) = reign.flights.get_mut(&number) else { return };
        if flight.tally.add(ReplicaId(from as u8)) != Count::Reached {
            return;
        }
        let round = flight.round.clone();
        reign.flights.remove(&number);
        for (at, _) in &round.values {
            reign.recovering.remove(at);
        }
        self.tell_others(&Item::Closed { epoch, number });
        // Its clients may wait for the commit.
        for (at, value) in &round.values {
            if let Some(id) = value.as_ref().and_then(Ordered::id) {
                self.told.entry(id.client).or_default().committed.push((id.sequence, *at));
            }
        }
        self.close_round(&round, effects);
    }

    /// All of a round is decided.
    fn close_round(&mut self, round: &Arc<Round<V>>, effects: &mut Effects<Self>) {
        for (at, value) in &round.values {
            self.choose(*at, value.clone());
        }
        for (from, until) in &round.ranges {
            self.tracks[0].decide_noops(*from, *until);
        }
        self.close_decided(effects);
        self.rounds.remove(&round.number);
    }

    /// Closes every open position that has come to be decided.
    pub(super) fn close_decided(&mut self, effects: &mut Effects<Self>) {
        let open = self.learner.open(0, u64::MAX);
        for at in open {
            if self.tracks[0].is_decided(at) {
                self.close_position(at, effects);
            }
        }
    }

    pub(super) fn on_closed(&mut self, from: usize, epoch: u32, number: u64) {
        let round = if self.acceptor.epoch == epoch { self.rounds.remove(&number) } else { None };
        let Some(round) = round else {
            // What was decided there is not known here: this coordinator's stream has a hole from here on.
            self.led.take_if(|(seat, _)| *seat == from);
            return;
        };
        for (at, value) in &round.values {
            self.choose(*at, value.clone());
        }
        for (from, until) in &round.ranges {
            self.tracks[0].decide_noops(*from, *until);
        }
    }

    /// One that others have deposed says so to whoever has not heard of that, too.
    pub(super) fn on_lead(&mut self, from: usize, base: u64) {
        if self.coordinator(self.acceptor.epoch) == from {
            self.led = Some((from, base));
        }
    }

    pub(super) fn on_chosen(&mut self, values: Vec<(u64, V)>) {
        // One that coordinates hears of this from one that was deposed. Who learns from it alone is told of all commands
        // below what it says is settled.
        let tells = self.parameters().learners == Learners::Sole;
        for (at, value) in values {
            if tells && !self.tracks[0].is_decided(at) {
                self.announce(at, &value);
            }
            self.choose(at, Some(value));
        }
    }

    /// Everything below is decided, and all commands among it were told in this session.
    pub(super) fn on_settled(&mut self, from: usize, until: u64) {
        if let Some((seat, base)) = self.led.filter(|(seat, _)| *seat == from) {
            self.tracks[0].decide_noops(base, until);
            self.led = Some((seat, base.max(until)));
        }
    }
}
