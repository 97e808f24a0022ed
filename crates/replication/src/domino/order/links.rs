//! Links between replicas, and what leaves at the end of a turn.

use super::super::Mutation;
use super::super::message::{Beat, Item, Message, Record};
use super::{Order, Told};
use crate::order::Ordered;
use isochrone_core::{
    Ballot, ClientId, Effects, Instant, Numbered, OrderedLink, ReplicaId, Stamp, Urgency, wire,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// This replica's end of a link.
#[derive(Clone, Hash, Debug)]
pub(super) struct Link<V: Ordered> {
    ordered: OrderedLink<Arc<[Item<V>]>>,
    /// The peer's incarnation, as far as it was heard.
    life: Option<u32>,
    /// Whether the peer is being spoken to; one that is silent for long is not, and forgets nothing by it.
    up: bool,
    /// Whether a session begins.
    fresh: bool,
    /// When anything was last acknowledged, or sent again.
    progress: Instant,
    /// When what is not acknowledged was sent first, by its number.
    sent: VecDeque<(u64, Instant)>,
    /// When each large answer was said last.
    answered: [Instant; 4],
    /// The last epoch of whose beginning something was said, and the number of the message, until that is acknowledged.
    begins: Option<(u32, u64)>,
    /// The same of the peer, by its last beat.
    theirs: Option<u32>,
    /// The peer's incarnation and clock in its last beat, and when that came.
    echo: Option<(u32, Instant, Instant)>,
}

/// Answers that may be large.
#[derive(Copy, Clone, Debug)]
pub(super) enum Answer {
    Promise,
    Revoked,
    Learned,
    Open,
}

/// Messages sent again in one heartbeat at most.
const RESEND_MAX: usize = 64;
/// Beats carry clocks every so many heartbeats, if these are short.
const BEAT_EVERY: u64 = 4;

impl<V: Ordered> Link<V> {
    pub(super) fn new(incarnation: u32) -> Link<V> {
        Link {
            ordered: OrderedLink::new(incarnation),
            life: None,
            up: false,
            fresh: false,
            progress: Instant::ZERO,
            sent: VecDeque::new(),
            answered: [Instant::ZERO; 4],
            begins: None,
            theirs: None,
            echo: None,
        }
    }

    /// Starts to speak.
    pub(super) fn begin(&mut self) {
        (self.up, self.fresh) = (true, true);
    }

    /// How many messages are not acknowledged.
    pub(super) fn pending(&self) -> usize {
        self.ordered.pending().len()
    }

    /// A new session: what was not acknowledged is lost.
    fn restart(&mut self) {
        self.reset();
        self.begin();
    }

    fn reset(&mut self) {
        self.ordered.reset();
        self.sent.clear();
        (self.begins, self.theirs) = (None, None);
    }

    fn send(&mut self, items: Arc<[Item<V>]>, now: Instant) -> Numbered<Arc<[Item<V>]>> {
        let begins = items.iter().rev().find_map(Item::begins);
        let numbered = self.ordered.send(items);
        self.begins = begins.map(|epoch| (epoch, numbered.number)).or(self.begins);
        self.sent.push_back((numbered.number, now));
        numbered
    }

    fn acknowledge(&mut self, session: u64, upto: u64) {
        self.ordered.acknowledge(session, upto);
        let first = self.ordered.pending().next().map(|first| first.number);
        while self.sent.front().is_some_and(|(number, _)| first.is_none_or(|first| *number < first)) {
            self.sent.pop_front();
        }
        self.begins.take_if(|(_, number)| first.is_none_or(|first| *number < first));
    }

    /// Whether something of the beginning of an epoch is on its way, there or back.
    pub(super) fn is_beginning(&self, epoch: u32) -> bool {
        self.begins.is_some_and(|(begins, _)| begins == epoch) || self.theirs == Some(epoch)
    }

    /// Whether all that was said until then has arrived: else it is on its way, and need not be said again.
    fn has_delivered(&self, until: Instant) -> bool {
        self.sent.front().is_none_or(|(_, sent)| *sent > until)
    }
}

impl<V: Ordered> Order<V> {
    /// Says again what was said at `before`, unless that is on its way still.
    pub(super) fn say_again(&mut self, seat: usize, item: Item<V>, before: Instant) {
        if self.is_to_say_again(seat, before) {
            self.say(seat, item);
        }
    }

    /// Whether what was said at `before` has arrived, or was lost.
    pub(super) fn is_to_say_again(&self, seat: usize, before: Instant) -> bool {
        seat == self.me || self.links[seat].has_delivered(before)
    }

    /// Whether a question of this member is to be answered: not where the last answer of that kind is on its way still, unless
    /// this one is known to be another. The link delivers it, and whoever lacks it then asks again.
    pub(super) fn answers(&mut self, seat: usize, answer: Answer, fresh: bool, now: Instant) -> bool {
        let link = &mut self.links[seat];
        let answers = seat == self.me || fresh || link.has_delivered(link.answered[answer as usize]);
        if answers {
            link.answered[answer as usize] = now;
        }
        answers
    }

    /// All were told what whoever lacks it asks for.
    pub(super) fn told_all(&mut self, answer: Answer, now: Instant) {
        self.links.iter_mut().for_each(|link| link.answered[answer as usize] = now);
    }

    pub(super) fn on_flow(
        &mut self,
        seat: usize,
        life: u32,
        items: Option<Numbered<Arc<[Item<V>]>>>,
        received: Option<(u64, u64)>,
        beat: Option<Beat>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let link = &mut self.links[seat];
        match link.life {
            Some(known) if life < known => return,
            // A new life has none of what was acknowledged before.
            Some(known) if life > known => link.restart(),
            _ => {}
        }
        link.life = Some(life);
        if !link.up {
            link.begin();
        }
        if let Some((session, upto)) = received {
            let before = link.pending();
            link.acknowledge(session, upto);
            if link.pending() < before {
                link.progress = now;
            }
        }
        self.contact.heard(ReplicaId(seat as u8), now);
        self.suspects.remove(ReplicaId(seat as u8));
        if let Some(Beat { sent, wall, clock, echo, begins, gathers }) = beat {
            self.clock.heard(seat, wall, clock, now);
            // A former life's clock is another one, or has gone on while this was down.
            if let Some((_, asked, held)) = echo.filter(|(of, ..)| *of == self.incarnation) {
                let trip = now.since(asked).saturating_sub(held);
                self.estimates[seat].sample(now, effects.stamp(), wall, trip);
            }
            self.links[seat].echo = Some((life, sent, now));
            self.links[seat].theirs = begins;
            if gathers.is_some_and(|epoch| epoch >= self.acceptor.epoch && self.coordinator(epoch) == seat) {
                // Another epoch would come later than this one.
                self.moved.0 = now;
            }
        }
        let batches = items.map(|numbered| self.links[seat].ordered.receive(numbered)).unwrap_or_default();
        for batch in batches {
            for item in batch.iter() {
                self.handle(seat, item.clone(), effects);
            }
        }
    }

    /// By the clock: who is silent is no longer spoken to, and what was not acknowledged is sent again.
    pub(super) fn tend_links(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let (most, resend) = (self.parameters().link_messages, self.parameters().resend);
        for seat in 0..self.n() {
            if seat == self.me {
                continue;
            }
            let suspected = self.suspected(seat);
            let link = &mut self.links[seat];
            if suspected && link.up {
                link.reset();
                link.up = false;
            }
            if !link.up {
                continue;
            }
            // Where much is under way to a member that is far, all of it is young.
            let old = link.sent.front().is_some_and(|(_, sent)| now.since(*sent) >= resend * 2);
            if link.pending() > most && old {
                link.progress = now;
                link.restart();
            } else if link.pending() > 0 && now.since(link.progress) >= resend {
                link.progress = now;
                let received = link.ordered.received();
                let again: Vec<_> = link.ordered.pending().take(RESEND_MAX).cloned().collect();
                let (to, life) = (self.members[seat].process, self.incarnation);
                for numbered in again {
                    let flow = Message::Flow { life, items: Some(numbered), received, beat: None };
                    effects.repeating(|effects| effects.send(to, flow));
                }
            }
        }
        let every = if self.parameters().heartbeat.as_nanos() > 20_000_000 { 1 } else { BEAT_EVERY };
        if self.beats % every == 1 % every {
            self.send_beats(effects);
        }
    }

    /// Says that this replica lives, and what its clocks show. Ahead: that rests on nothing.
    fn send_beats(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let clock = Stamp::from_nanos(self.now(effects));
        let gathers = self.gathers();
        for seat in 0..self.n() {
            if seat != self.me {
                let link = &self.links[seat];
                let echo = link.echo.map(|(life, sent, at)| (life, sent, now.since(at)));
                let begins = link.begins.map(|(epoch, _)| epoch);
                let beat = Some(Beat { sent: now, wall: effects.stamp(), clock, echo, begins, gathers });
                let (life, received) = (self.incarnation, link.ordered.received());
                let flow = Message::Flow { life, items: None, received, beat };
                effects.urgently(|effects| effects.send_ahead(self.members[seat].process, flow));
            }
        }
    }

    /// What a session with a member begins with: all that was said and may still matter to it.
    pub(super) fn resync(&self, seat: usize) -> Vec<Item<V>> {
        let mut items = Vec::new();
        let acceptor = &self.acceptor;
        if acceptor.open && self.learns(seat) {
            let base = acceptor.from.max(self.tracks[0].frontier());
            items.push(Item::Cover { epoch: acceptor.epoch, base });
            let votes = acceptor.fast_votes(base);
            if !votes.is_empty() {
                items.push(Item::Vote { votes });
            }
        }
        let (lane, track) = (&self.lanes[self.me], &self.tracks[self.me + 1]);
        let base = track.frontier();
        items.push(Item::Own { base });
        let own = lane.votes.range(base..);
        let values: Vec<_> = own
            .map(|(at, (ballot, value))| (*at, value.clone().filter(|_| *ballot == Ballot::ZERO)))
            .collect();
        if !values.is_empty() {
            items.push(Item::Accept { values });
        }
        let stamps: Vec<_> = track
            .commands
            .range(base..)
            .filter(|(at, value)| {
                lane.votes
                    .get(at)
                    .is_some_and(|(ballot, known)| *ballot == Ballot::ZERO && known.as_ref() == Some(value))
            })
            .map(|(at, _)| *at)
            .collect();
        if !stamps.is_empty() {
            items.push(Item::Commit { stamps });
        }
        if seat != self.me {
            let (lane, track) = (&self.lanes[seat], &self.tracks[seat + 1]);
            let voted = lane.votes.range(track.frontier()..);
            let voted = voted.filter(|(_, (ballot, value))| *ballot == Ballot::ZERO && value.is_some());
            let stamps: Vec<_> = voted.map(|(at, _)| *at).collect();
            if !stamps.is_empty() {
                items.push(Item::Accepted { stamps });
            }
        }
        self.reign_resync(seat, &mut items);
        self.revoker_resync(&mut items);
        items.push(self.report());
        items
    }

    /// The end of a turn: records, and behind them all that rests on them.
    pub(super) fn flush(&mut self, effects: &mut Effects<Self>) {
        self.assign(effects);
        self.flush_reign(effects);
        self.flush_commits();
        // Votes lie before the clock that covers them.
        self.flush_records(effects);
        if std::mem::take(&mut self.ticking) {
            self.flush_tick(effects);
        }
        let until = self.clock.last().max(self.owner.last() + 1).max(self.owner.skip());
        let step = self.parameters().reserve;
        if self.clock.is_set()
            && let Some(until) = self.clock.reserve(until, step)
        {
            effects.record(Record::Reserve { until });
        }
        self.flush_records(effects);
        let early = self.parameters().mutated(Mutation::VoteBeforeDurable);
        let life = self.incarnation;
        for seat in 0..self.n() {
            let mut items = std::mem::take(&mut self.out[seat]);
            if seat == self.me {
                if !items.is_empty() {
                    effects.send(self.process, Message::Own { items: items.into() });
                }
                continue;
            }
            if !self.links[seat].up {
                continue;
            }
            let begins = std::mem::take(&mut self.links[seat].fresh);
            if begins {
                let mut first = self.resync(seat);
                debug_assert!(
                    !first.iter().any(|item| matches!(item, Item::Tick { .. })),
                    "I5: a clock first"
                );
                // Votes of this turn are among those, or of an epoch before the one that they would be counted in.
                items.retain(|item| !matches!(item, Item::Cover { .. } | Item::Vote { .. }));
                first.append(&mut items);
                items = first;
            }
            if items.is_empty() {
                continue;
            }
            let link = &mut self.links[seat];
            if link.pending() == 0 {
                link.progress = effects.now();
            }
            let numbered = link.send(items.into(), effects.now());
            let received = link.ordered.received();
            let flow = Message::Flow { life, items: Some(numbered), received, beat: None };
            let to = self.members[seat].process;
            // Who was only late is told all again: large values need not wait behind themselves, and are sent again.
            let again = begins && wire::encoded_size(&flow) > Urgency::SMALL;
            effects.repeating_if(again, |effects| match early {
                true => effects.send_ahead(to, flow),
                false => effects.send(to, flow),
            });
        }
        for (client, told) in std::mem::take(&mut self.told) {
            let Told { voted, rejected, committed } = told;
            let ClientId { process: client, incarnation } = client;
            for (epoch, votes) in voted {
                let voted = Message::Voted { incarnation, epoch, votes };
                effects.urgently(|effects| match early {
                    true => effects.send_ahead(client, voted),
                    false => effects.send(client, voted),
                });
            }
            if !rejected.is_empty() {
                let rejected = Message::Rejected { incarnation, votes: rejected };
                effects.urgently(|effects| effects.send_ahead(client, rejected));
            }
            if !committed.is_empty() {
                // Ahead: a commit rests on votes that are durable.
                let committed = Message::Committed { incarnation, places: committed };
                effects.urgently(|effects| effects.send_ahead(client, committed));
            }
        }
    }

    /// Writes a record, behind the votes of this turn so far: a restart does everything again in the order of the records,
    /// and a vote belongs to the epoch, and lies under the rounds and blocks, that came after it. Whatever changes the epoch
    /// is written before it is done, so that those votes are told to the learners of theirs.
    pub(super) fn write(&mut self, record: Record<V>) {
        self.flush_votes();
        self.journal.push(record);
    }

    /// What was gathered goes to the journal.
    pub(super) fn flush_records(&mut self, effects: &mut Effects<Self>) {
        self.flush_votes();
        for record in self.journal.drain(..) {
            effects.record(record);
        }
    }

    /// The votes of this turn, as records and as news.
    fn flush_votes(&mut self) {
        let votes = std::mem::take(&mut self.votes);
        if !votes.is_empty() {
            let named: Vec<_> = votes.iter().filter_map(|(at, value)| Some((*at, value.id()?))).collect();
            if self.parameters().mutated(Mutation::ClockBeforeVote) {
                self.late_votes.extend(named);
            } else {
                self.tell_learners(&Item::Vote { votes: named });
            }
            self.journal.push(Record::Voted { values: votes });
        }
        for (lane, values) in std::mem::take(&mut self.accepted) {
            self.journal.push(Record::Accepted { lane, values });
        }
    }

    fn tell_learners(&mut self, item: &Item<V>) {
        for seat in 0..self.n() {
            if self.learns(seat) {
                self.say(seat, item.clone());
            }
        }
    }

    /// The clock, behind everything that it covers.
    fn flush_tick(&mut self, effects: &mut Effects<Self>) {
        if !self.clock.is_set() {
            return;
        }
        // I5: every vote and proposal below it has been said before.
        assert!(self.votes.is_empty() && self.accepted.is_empty(), "I5: a clock ahead of votes");
        let clock = self.now(effects);
        self.owner.pass(clock);
        let skip = self.owner.skip();
        for seat in 0..self.n() {
            let clock = (self.acceptor.open && self.learns(seat)).then_some(clock.max(self.acceptor.from));
            self.say(seat, Item::Tick { clock, skip });
        }
        let late = std::mem::take(&mut self.late_votes);
        if !late.is_empty() {
            self.tell_learners(&Item::Vote { votes: late });
        }
        if self.beats.is_multiple_of(super::catchup::REPORT_EVERY) {
            let report = self.report();
            self.tell_others(&report);
        }
    }
}
