//! Failover of the coordinator (`specs/domino.md` 4.4).

use super::super::Mutation;
use super::super::message::{Item, Opening, Promise, Record, Round, Turn};
use super::Order;
use super::catchup::ALL;
use super::links::Answer;
use crate::order::Ordered;
use crate::request::{Change, Refusal};
use isochrone_core::{CommandId, Effects, Instant, NodeId, ReplicaId, ReplicaSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Phase 1 of a new coordinator.
#[derive(Clone, Hash, Debug)]
pub(super) struct Campaign<V: Ordered> {
    epoch: u32,
    from: u64,
    promises: BTreeMap<usize, Arc<Promise<V>>>,
    sent: Instant,
}

/// A vote for a position, as promised.
type Reported<'a, V> = (Turn, Option<&'a V>);

impl<V: Ordered> Order<V> {
    /// Steps in for a coordinator that is silent or gets nowhere, if it is this replica's turn.
    pub(super) fn watch_coordinator(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let frontier = self.tracks[0].frontier();
        if frontier > self.moved.1 {
            self.moved = (now, frontier);
        }
        let heard = self.n() - self.suspects.len() >= self.quorums().classic();
        // Who lacks what others have, or does not hear them, cannot tell whether they get anywhere. What the coordinator itself
        // says that it has, it must also hand over.
        if self.gathers().is_some() || self.lags_behind_others() || !heard {
            self.moved.0 = now;
        }
        let patience = self.parameters().suspect * 3;
        if let Some(campaign) = &self.campaign
            && self.seen > campaign.epoch
            && heard
            && (self.suspected(self.coordinator(self.seen)) || now.since(self.moved.0) >= patience)
        {
            // Others have promised a later epoch to one that does not open it.
            return self.campaign(effects);
        }
        if let Some(campaign) = &mut self.campaign {
            if now.since(campaign.sent) >= self.knobs.0.resend {
                let before = std::mem::replace(&mut campaign.sent, now);
                let (epoch, from) = (campaign.epoch, campaign.from);
                let missing: Vec<usize> =
                    (0..self.members.len()).filter(|seat| !campaign.promises.contains_key(seat)).collect();
                for seat in missing {
                    self.say_again(seat, Item::Prepare { epoch, from }, before);
                }
            }
            return;
        }
        self.reign_again(effects);
        if self.campaign.is_some() || self.n() == 1 || !heard {
            return;
        }
        self.losses.forget(patience, now);
        // A coordinator that lives but gets nowhere is given longer; so is each one after it, and those that follow soon.
        let (stuck, borne) = (now.since(self.moved.0), self.losses.bears(patience));
        let mut lives = false;
        for after in 0..=self.n() as u32 {
            let seat = self.coordinator(self.acceptor.epoch + after);
            let failed = self.suspected(seat) || stuck >= borne * u64::from(after + 1);
            if after > 0 && seat == self.me {
                if lives {
                    self.losses.lost(patience, now);
                }
                return self.campaign(effects);
            }
            if !failed {
                return;
            }
            lives |= !self.suspected(seat);
        }
    }

    /// The epoch of this replica, where it is about to begin: a classic quorum has answered, or has something of it on
    /// its way. Large values may take longer than anything is borne, and whoever began another epoch meanwhile would
    /// have them sent once more, behind those.
    pub(super) fn gathers(&self) -> Option<u32> {
        let (epoch, answered) = match (&self.campaign, &self.reign) {
            (Some(campaign), _) => {
                let seats = campaign.promises.keys().map(|seat| ReplicaId(*seat as u8));
                (campaign.epoch, seats.collect::<ReplicaSet>())
            }
            (None, Some(reign)) => (reign.epoch, reign.opens()?),
            (None, None) => return None,
        };
        let on_its_way = |seat: usize| !self.suspected(seat) && self.links[seat].is_beginning(epoch);
        let count = (0..self.n())
            .filter(|seat| answered.contains(ReplicaId(*seat as u8)) || on_its_way(*seat))
            .count();
        (count >= self.quorums().classic()).then_some(epoch)
    }

    /// Phase 1 in the smallest epoch of its own above every one seen.
    pub(super) fn campaign(&mut self, effects: &mut Effects<Self>) {
        let highest = self.seen.max(self.acceptor.epoch);
        let mut epoch = highest + 1;
        while self.coordinator(epoch) != self.me {
            epoch += 1;
        }
        self.seen = epoch;
        self.moved.0 = effects.now();
        // The own promise is durable before anyone hears of the epoch, so no later life uses it again.
        let clock = self.now(effects);
        self.write(Record::Promised { epoch, clock });
        self.acceptor.promise(epoch, clock);
        self.end_reign(effects);
        let from = self.tracks[0].frontier();
        self.campaign =
            Some(Box::new(Campaign { epoch, from, promises: BTreeMap::new(), sent: effects.now() }));
        effects.mark(super::Note::Counted("campaigns"));
        self.tell_all(&Item::Prepare { epoch, from });
    }

    pub(super) fn on_prepare(&mut self, from: usize, epoch: u32, first: u64, effects: &mut Effects<Self>) {
        self.seen = self.seen.max(epoch);
        if epoch < self.acceptor.epoch || self.coordinator(epoch) != from {
            return;
        }
        if epoch == self.acceptor.epoch && self.acceptor.open {
            // Opened long ago: the question is an old one.
            return;
        }
        let clock = self.now(effects);
        let fresh = epoch > self.acceptor.epoch;
        if !self.answers(from, Answer::Promise, fresh, effects.now()) {
            return;
        }
        let frontier = self.tracks[0].frontier();
        let decided = self.decided_between(0, first, frontier, ALL).map(|(values, _)| values);
        // Promised or not, nothing comes of the epoch of one that cannot be told what is decided.
        if fresh && decided.is_some() {
            self.write(Record::Promised { epoch, clock });
            self.acceptor.promise(epoch, clock);
            self.end_reign(effects);
            self.campaign.take_if(|campaign| campaign.epoch < epoch);
            self.moved.0 = effects.now();
        }
        let beyond = if decided.is_some() { first } else { u64::MAX };
        let votes = self.acceptor.votes.range(beyond..);
        let votes = votes.map(|(at, vote)| (*at, vote.turn, vote.value.clone())).collect();
        let noops = self.acceptor.noops.runs(beyond..u64::MAX);
        let noops = noops.map(|(run, turn)| (run.start, run.end, *turn)).collect();
        let promise = Promise { epoch, votes, noops, clock, frontier, decided };
        self.say(from, Item::Promise(Arc::new(promise)));
    }

    pub(super) fn on_promise(&mut self, from: usize, promise: Arc<Promise<V>>, effects: &mut Effects<Self>) {
        let classic = self.quorums().classic();
        let Some(campaign) = &mut self.campaign else { return };
        if campaign.epoch != promise.epoch {
            return;
        }
        if promise.decided.is_none() {
            // What it knows to be decided and this replica does not is no longer held by messages.
            self.campaign = None;
            self.behind = Some(self.members[from].process);
            return;
        }
        campaign.promises.insert(from, promise);
        if campaign.promises.len() < classic {
            return;
        }
        let Some(campaign) = self.campaign.take() else { return };
        self.open_epoch(*campaign, effects);
    }

    /// Phase 1 is complete: what may be open is proposed in the epoch's classic ballot.
    fn open_epoch(&mut self, campaign: Campaign<V>, effects: &mut Effects<Self>) {
        let promises: Vec<&Promise<V>> = campaign.promises.values().map(Arc::as_ref).collect();
        for promise in &promises {
            for (at, value) in promise.decided.iter().flatten() {
                self.choose(*at, Some(value.clone()));
            }
            // Its commands in there are all among those, since it was told from where on.
            self.tracks[0].decide_noops(campaign.from, promise.frontier);
        }
        let from = self.tracks[0].frontier();
        let clock = self.now(effects);
        let highest = promises.iter().map(|promise| promise.clock).max().unwrap_or(0).max(clock).max(from);
        let high = highest + self.parameters().margin.as_nanos() + 1;
        let mut positions: BTreeMap<u64, Vec<Reported<'_, V>>> = BTreeMap::new();
        for promise in &promises {
            for (at, turn, value) in promise.votes.iter().filter(|(at, ..)| *at >= from) {
                positions.entry(*at).or_default().push((*turn, value.as_ref()));
            }
        }
        // Whoever has voted for no single value there may have voted no-op in a range, and so may who has voted for one in
        // an earlier epoch: the clock of a later one has passed it.
        for (at, reported) in &mut positions {
            for promise in &promises {
                // Both are in order, and there may be as many as a second brings.
                let single = promise.votes.binary_search_by_key(at, |(stamp, ..)| *stamp);
                let single = single.ok().map(|place| promise.votes[place].1);
                let run = promise.noops.get(promise.noops.partition_point(|(_, end, _)| end <= at));
                let run = run.filter(|(start, ..)| start <= at);
                let run =
                    run.map(|(_, _, turn)| *turn).filter(|turn| single.is_none_or(|single| single < *turn));
                reported.extend(run.map(|turn| (turn, None)));
            }
        }
        let threshold = self.quorums().recovery(promises.len());
        let any = self.parameters().mutated(Mutation::AdoptAny);
        let high_threshold = self.parameters().mutated(Mutation::HighThreshold);
        let threshold = if high_threshold { self.n() + 1 } else { threshold };
        // What is decided behind the frontier is proposed as it is.
        let decided = self.tracks[0].commands.range(from..);
        let mut values: BTreeMap<u64, Option<V>> =
            decided.map(|(at, value)| (*at, Some(value.clone()))).collect();
        let mut losers = Vec::new();
        for (at, reported) in &positions {
            if self.tracks[0].is_decided(*at) {
                continue;
            }
            // I8: where two values may both have been chosen, neither would be safe.
            debug_assert!(!self.is_sound() || obliging(reported, threshold) <= 1, "I8: two values at {at}");
            let picked = pick(reported, threshold, any);
            for (_, value) in reported {
                if let Some(value) = value
                    && value.id() != picked.and_then(|picked| picked.id())
                {
                    losers.push((*at, (*value).clone()));
                }
            }
            values.insert(*at, picked.cloned());
        }
        let mut ranges = Vec::new();
        let mut at = from;
        for position in values.keys().filter(|position| **position < high) {
            ranges.push((at, *position));
            at = position + 1;
        }
        ranges.push((at, high));
        ranges.retain(|(from, until)| from < until);
        let epoch = campaign.epoch;
        let values = values.into_iter().collect();
        let round = Round { epoch, number: 0, values, ranges };
        let opening = Arc::new(Opening { from, high, round });
        self.begin_reign(epoch, Some(opening.clone()), effects);
        self.fly_opening(Arc::new(opening.round.clone()), effects.now());
        for seat in 0..self.n() {
            self.say_open(seat, opening.clone());
        }
        self.told_all(Answer::Open, effects.now());
        // Decided or not, a copy does no harm.
        for (at, value) in losers {
            let Some(id) = value.id() else { continue };
            if self.reign.as_mut().is_some_and(|reign| reign.note_loser(id)) {
                self.enqueue(value, at, effects.now());
            }
        }
    }

    pub(super) fn on_open(&mut self, from: usize, opening: Arc<Opening<V>>, effects: &mut Effects<Self>) {
        let epoch = opening.round.epoch;
        self.seen = self.seen.max(epoch);
        if epoch < self.acceptor.epoch || self.coordinator(epoch) != from {
            return;
        }
        let known = epoch == self.acceptor.epoch && self.acceptor.open;
        if !known {
            if epoch > self.acceptor.epoch {
                let clock = self.now(effects);
                self.write(Record::Promised { epoch, clock });
                self.acceptor.promise(epoch, clock);
                self.end_reign(effects);
                self.campaign.take_if(|campaign| campaign.epoch < epoch);
            }
            if from != self.me {
                self.rounds.clear();
            }
            self.write(Record::Opened(opening.clone()));
            self.acceptor.open(&opening);
            self.clock.raise(opening.high);
            self.rounds.insert(0, Arc::new(opening.round.clone()));
            self.moved.0 = effects.now();
            let votes = self.acceptor.fast_votes(opening.high);
            for seat in 0..self.n() {
                if self.learns(seat) {
                    self.say(seat, Item::Cover { epoch, base: opening.high });
                    if !votes.is_empty() {
                        self.say(seat, Item::Vote { votes: votes.clone() });
                    }
                }
            }
        }
        self.say(from, Item::Recovered { epoch, number: 0 });
    }

    /// Whoever coordinated in an earlier life, or whose own epoch came to nothing, opens another once it has heard from enough
    /// others that there is none later, and that it lacks nothing.
    pub(super) fn reign_again(&mut self, effects: &mut Effects<Self>) {
        let latest = self.seen <= self.acceptor.epoch || self.suspected(self.coordinator(self.seen));
        let coordinates = self.coordinator(self.acceptor.epoch) == self.me && latest;
        let stands = self.reported.len() + 1 >= self.quorums().classic() && !self.lags();
        if coordinates && stands && self.reign.is_none() && self.campaign.is_none() {
            self.campaign(effects);
        }
    }

    /// Lets another replica, or any other, coordinate the fast lane.
    pub(super) fn on_change(&mut self, change: Change, effects: &mut Effects<Self>) -> Result<(), Refusal> {
        let seat_at = |node: NodeId| self.members.iter().position(|member| member.process.node == node);
        match change {
            Change::Lead(node) => {
                let seat = seat_at(node).ok_or(Refusal::Impossible)?;
                if seat != self.me && self.suspected(seat) {
                    return Err(Refusal::Silent);
                }
                if self.coordinator(self.acceptor.epoch) != seat || !self.acceptor.open {
                    self.say_or_campaign(seat, effects);
                }
                Ok(())
            }
            Change::Resign => {
                if self.reign.is_some() {
                    let mut others = (1..self.n()).map(|after| (self.me + after) % self.n());
                    let next = others.find(|seat| !self.suspected(*seat));
                    self.say_or_campaign(next.ok_or(Refusal::Impossible)?, effects);
                }
                Ok(())
            }
            Change::Add(_) | Change::Remove(_) => Err(Refusal::Impossible),
        }
    }

    fn say_or_campaign(&mut self, seat: usize, effects: &mut Effects<Self>) {
        if seat == self.me {
            if self.campaign.is_none() {
                self.campaign(effects);
            }
        } else {
            self.say(seat, Item::Campaign);
        }
    }
}

/// How many values have as many votes in the highest ballot as one that was chosen there.
fn obliging<V: Ordered>(reported: &[Reported<'_, V>], threshold: usize) -> usize {
    let Some(highest) = reported.iter().map(|(turn, _)| *turn).max().filter(|turn| !turn.classic) else {
        return 0;
    };
    let at_highest = reported.iter().filter(|(turn, _)| *turn == highest);
    let mut counts: BTreeMap<Option<CommandId>, usize> = BTreeMap::new();
    for (_, value) in at_highest {
        *counts.entry(value.and_then(Ordered::id)).or_default() += 1;
    }
    counts.values().filter(|count| **count >= threshold).count()
}

/// What a new coordinator proposes for a position, given all votes that were reported for it: the value of the
/// highest ballot if that is classic; else the value that may have been chosen in it, or any command.
fn pick<'a, V: Ordered>(reported: &[Reported<'a, V>], threshold: usize, any: bool) -> Option<&'a V> {
    let highest = reported.iter().map(|(turn, _)| *turn).max()?;
    if any {
        return reported.iter().find_map(|(_, value)| *value);
    }
    let mut at_highest = reported.iter().filter(|(turn, _)| *turn == highest).map(|(_, value)| *value);
    if highest.classic {
        return at_highest.next().flatten();
    }
    let mut counts: BTreeMap<Option<CommandId>, (usize, Option<&'a V>)> = BTreeMap::new();
    for value in at_highest {
        let entry = counts.entry(value.and_then(Ordered::id)).or_insert((0, value));
        entry.0 += 1;
    }
    if let Some((_, value)) = counts.values().find(|(count, _)| *count >= threshold) {
        return *value;
    }
    let commands = counts.iter().filter(|(id, _)| id.is_some());
    commands.max_by(|a, b| a.1.0.cmp(&b.1.0).then(b.0.cmp(a.0))).and_then(|(_, (_, value))| *value)
}
