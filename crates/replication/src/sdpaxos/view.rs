//! Views: how another replica becomes the sequencer (`specs/sdpaxos.md` 4.3).
//!
//! A poll first asks whether an election would be welcome, so that a replica that alone hears nothing
//! disturbs nobody. A view is a ballot: its owner is its sequencer, so there is one sequencer in a view. Its log
//! is installed as one unit, and nobody accepts a slot of a view whose log it has not installed.

use super::Mutation;
use super::assignment::{Assignment, Image, Rank};
use super::message::{Entry, Message, Note, Objects, Part, Timer};
use super::order::{Order, Pending};
use super::rebuild::{Report, rebuild};
use crate::election;
use crate::order::Ordered;
use crate::request::{Change, Refusal};
use isochrone_core::{Ballot, Effects, Instant, ProcessId, ReplicaId, ReplicaSet, Slot, Span, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages of a view to come that are kept until its log is there.
const EARLY: usize = 64;
/// How long a hand-over may take before it is given up.
const TASK_MAX: Span = Span::from_secs(20);

/// A question whether an election would be welcome.
#[derive(Clone, Hash, Debug)]
pub(super) struct Poll {
    view: Ballot,
    welcome: ReplicaSet,
}

/// An election.
#[derive(Clone, Hash, Debug)]
pub(super) struct Campaign {
    view: Ballot,
    released: Option<(Ballot, u32)>,
    votes: BTreeMap<Rank, Report>,
    asked: Instant,
}

/// A request for a vote that a lease still forbids.
#[derive(Clone, Hash, Debug)]
pub(super) struct Stashed {
    from: ProcessId,
    view: Ballot,
    released: Option<(Ballot, u32)>,
}

/// A hand-over that somebody waits for.
#[derive(Clone, Hash, Debug)]
pub(super) struct Task {
    ticket: Ticket,
    heir: Rank,
    until: Instant,
    asked: Instant,
}

impl<V: Ordered> Order<V> {
    /// The timer of patience.
    pub(super) fn watch(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if !self.is_member() {
            return;
        }
        if self.poll.take().is_some() || self.campaign.take().is_some() {
            // It has come to nothing.
            self.failures += 1;
            self.since = now;
            self.patience = election::recess(self.parameters().election, self.failures, effects.random());
            return effects.arm(Timer::Watch, self.patience);
        }
        let follows = self.view == self.installed;
        if follows && self.sequencer.is_some() {
            return effects.arm(Timer::Watch, self.patience);
        }
        if self.losses.forget(self.parameters().election, now) {
            self.patience = self.draw_patience(effects);
        }
        let silent = self.unheard(now);
        if silent < self.patience {
            return effects.arm(Timer::Watch, self.patience.saturating_sub(silent));
        }
        self.lose(now);
        let view = self.next_view();
        self.poll = Some(Poll { view, welcome: ReplicaSet::from_iter([ReplicaId(self.me)]) });
        let patience = self.parameters().campaign;
        effects.arm(Timer::Watch, patience);
        for rank in self.peers() {
            effects.urgently(|effects| effects.send_ahead(self.process_of(rank), Message::Poll { view }));
        }
        if self.majority == 1 {
            self.elect(None, effects);
        }
    }

    /// For how long the sequencer that is followed, or the candidate voted for, has not been heard.
    fn unheard(&self, now: Instant) -> Span {
        let follows = self.view == self.installed;
        now.since(if follows { self.head_heard.max(self.since) } else { self.since })
    }

    /// For how long it may say nothing.
    pub(super) fn silence(&self) -> Span {
        self.losses.bears(self.parameters().election)
    }

    /// It has been silent for as long as is borne: a loss, of each view one.
    fn lose(&mut self, now: Instant) {
        if self.view > self.lost && self.view.owner.0 != self.me {
            self.lost = self.view;
            let election = self.parameters().election;
            self.losses.lost(election, now);
        }
    }

    fn next_view(&self) -> Ballot {
        self.seen.max(self.view).next(ReplicaId(self.me))
    }

    pub(super) fn on_poll(&mut self, from: ProcessId, view: Ballot, effects: &mut Effects<Self>) {
        let now = effects.now();
        let leads = self.sequencer.is_some() && self.view == self.installed;
        let heard = if self.view == self.installed { self.head_heard } else { self.since };
        let hears = leads || now.since(heard) < self.silence();
        let granted = !hears && view > self.view;
        effects.urgently(|effects| {
            effects.send_ahead(from, Message::Polled { view, granted, seen: self.seen.max(self.view) })
        });
    }

    pub(super) fn on_polled(
        &mut self,
        rank: Rank,
        view: Ballot,
        granted: bool,
        seen: Ballot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(seen);
        let majority = self.majority;
        let Some(poll) = self.poll.as_mut().filter(|poll| poll.view == view && granted) else { return };
        poll.welcome.insert(ReplicaId(rank));
        if poll.welcome.len() >= majority {
            self.elect(None, effects);
        }
    }

    /// Asks for votes, the own one by way of the journal.
    pub(super) fn elect(&mut self, released: Option<(Ballot, u32)>, effects: &mut Effects<Self>) {
        self.poll = None;
        let view = self.next_view();
        let now = effects.now();
        if let Some(until) = self.bound_until(released, now) {
            let from = self.process;
            self.stashed = Some(Stashed { from, view, released });
            return effects.arm(Timer::Lease, until.since(now));
        }
        self.vote(view, effects);
        self.then(Pending::Voted(view));
        self.finish(effects);
        self.campaign = Some(Campaign { view, released, votes: BTreeMap::new(), asked: now });
        for rank in self.peers() {
            effects.urgently(|effects| {
                effects.send(self.process_of(rank), Message::ViewRequest { view, released })
            });
        }
        effects.arm(Timer::Watch, election::campaign(self.parameters().campaign, self.failures));
        effects.mark(Note::Counted("elections"));
    }

    /// Votes in a view: nothing of an older one counts here any more.
    fn vote(&mut self, view: Ballot, effects: &mut Effects<Self>) {
        (self.prior, self.view) = (self.view, view);
        self.seen = self.seen.max(view);
        self.since = effects.now();
        self.write(Entry::Voted(view));
        self.leave(view, effects);
    }

    /// Stops to take part in the view installed, for another one.
    fn leave(&mut self, view: Ballot, effects: &mut Effects<Self>) {
        self.campaign = None;
        if let Some(sequencer) = self.sequencer.take()
            && self.active
        {
            effects.mark(Note::Follows);
            let suspects = self.contact.suspects(self.parameters().election, effects.now());
            let heard = self.count() - suspects.without(ReplicaSet::from_iter([ReplicaId(self.me)])).len();
            if sequencer.retired.is_none() && heard >= self.majority && view.owner.0 != self.me {
                // It was heard, and is replaced all the same: it was slow.
                self.straggler.shunned = Some(self.installed);
            }
        }
        self.outbox.iter_mut().for_each(|out| *out = Default::default());
    }

    pub(super) fn on_view_request(
        &mut self,
        from: ProcessId,
        view: Ballot,
        released: Option<(Ballot, u32)>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        self.seen = self.seen.max(view);
        if self.rank(from) != Some(view.owner.0) {
            return;
        }
        if view < self.view || (view == self.view && self.installed == view) {
            let view = self.view;
            return effects.urgently(|effects| effects.send_ahead(from, Message::Stale { view }));
        }
        if view > self.view {
            if let Some(until) = self.bound_until(released, now) {
                let later = self.stashed.as_ref().is_none_or(|stashed| stashed.view <= view);
                if later {
                    self.stashed = Some(Stashed { from, view, released });
                }
                effects.mark(Note::Counted("lease_waits"));
                return effects.arm(Timer::Lease, until.since(now));
            }
            self.poll = None;
            if self.unheard(now) >= self.silence() {
                self.lose(now);
            }
            self.vote(view, effects);
            self.finish(effects);
            self.patience = self.draw_patience(effects);
            effects.arm(Timer::Watch, self.patience);
        }
        // For this one already: the same vote again, and the candidate lives.
        self.since = now;
        let report = Box::new(self.report());
        effects.urgently(|effects| effects.send(from, Message::Vote { view, report }));
    }

    /// The timer of leases.
    pub(super) fn unstash(&mut self, effects: &mut Effects<Self>) {
        if let Some(Stashed { from, view, released }) = self.stashed.take() {
            if from == self.process {
                if view > self.view && self.campaign.is_none() {
                    self.elect(released, effects);
                }
                return;
            }
            self.on_view_request(from, view, released, effects);
        }
    }

    fn report(&self) -> Report {
        let highest = self.spaces.iter().map(super::space::Space::highest).collect();
        Report {
            installed: self.installed,
            prior: self.prior,
            executed: self.executed,
            log: self.log.image(self.log.end()),
            highest,
        }
    }

    pub(super) fn own_vote(&mut self, view: Ballot, effects: &mut Effects<Self>) {
        let report = self.report();
        self.on_vote(self.me, view, report, effects);
    }

    pub(super) fn on_vote(&mut self, rank: Rank, view: Ballot, report: Report, effects: &mut Effects<Self>) {
        let (majority, count) = (self.majority, self.count());
        let planted = self.parameters().planted();
        let Some(campaign) = self.campaign.as_mut().filter(|campaign| campaign.view == view) else { return };
        campaign.votes.insert(rank, report);
        if campaign.votes.len() < majority || view != self.view || view < self.floor_view {
            return;
        }
        let votes: Vec<(Rank, &Report)> =
            campaign.votes.iter().map(|(rank, report)| (*rank, report)).collect();
        let log = Arc::new(rebuild(count, &votes, planted));
        let begin = log.end();
        self.install(view, begin, &log, effects);
        for rank in self.peers() {
            let (active, log) = (false, log.clone());
            effects.urgently(|effects| {
                effects.send(self.process_of(rank), Message::NewView { view, active, begin, log });
            });
        }
        self.settled(effects);
    }

    /// Begins a view with this log. What follows from it is done by [`Order::settled`].
    fn install(&mut self, view: Ballot, begin: u64, log: &Arc<Image>, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.leave(view, effects);
        let rest = self.parameters().straggler_rest;
        self.straggler.succeeded(self.installed, rest, now);
        self.write(Entry::Installed(view, begin, log.clone()));
        self.adopt(view, begin, log);
        self.then(Pending::Contiguous(view, self.log.contiguous()));
        self.finish(effects);
        self.poll = None;
        self.failures = 0;
        self.since = now;
        self.head_heard = now;
        let head = usize::from(view.owner.0);
        if view.owner.0 == self.me {
            self.sequencer = Some(self.fresh_sequencer(now));
        } else {
            // Who told it had it durable.
            self.contiguous[head] = begin;
            self.patience = self.draw_patience(effects);
            effects.arm(Timer::Watch, self.patience);
        }
        effects.mark(Note::Counted("views_installed"));
    }

    /// The log of a view takes the place of whatever was accepted and not executed.
    pub(super) fn adopt(&mut self, view: Ballot, begin: u64, image: &Image) {
        let same = view == self.installed;
        if view > self.view {
            self.prior = self.view;
        }
        self.view = self.view.max(view);
        self.seen = self.seen.max(view);
        (self.installed, self.begin) = (view, begin);
        let before = std::mem::replace(&mut self.log, Assignment::from_image(image));
        let told = self.log.end();
        // A peer's state may hold slots that were named in this view after its log was told.
        let grown = self.floor_view == view && told < self.executed;
        if self.parameters().mutation.is_none() {
            let differs = |slot: &u64| match (before.get(*slot), self.log.get(*slot)) {
                (Some(known), Some(told)) => known != told,
                (known, _) => known.is_some() && *slot > self.log.low() && !(grown && *slot > told),
            };
            let first = before.low() + 1;
            let changed = (first..=self.executed).find(differs);
            assert!(changed.is_none(), "I2: executed slot {changed:?} has another owner in {view}");
        }
        if grown {
            // What is executed was decided in this view or before it, so whose it is is said in it with good reason.
            self.log = Assignment::from_image(&before.image(self.executed));
        }
        if !same {
            self.active = !self.inferring();
            self.contiguous.fill(0);
            self.ordered = 0;
            self.joined = ReplicaSet::EMPTY;
        }
        self.committed.clear();
        self.own_ordered = 0;
        self.rank_own();
    }

    /// Finds the slots of own instances that are not executed.
    pub(super) fn rank_own(&mut self) {
        let me = self.me;
        if me == super::order::STRANGER {
            return;
        }
        let low = self.log.low().max(self.executed);
        let executed = self.counts[usize::from(me)];
        self.own_slots.clear();
        let mut index = if self.executed >= self.log.low() { executed } else { self.log.count_low(me) };
        for missing in executed + 1..=index {
            self.own_slots.insert(missing, self.log.low());
        }
        for slot in low + 1..=self.log.contiguous() {
            if self.log.get(slot) == Some(me) {
                index += 1;
                self.own_slots.insert(index, slot);
            }
        }
    }

    /// A view was installed: its sequencer is told, and what can go on goes on.
    fn settled(&mut self, effects: &mut Effects<Self>) {
        let (view, head) = (self.installed, self.head());
        if !self.mutated(Mutation::SlotAcrossViews) {
            self.reads.ask_again();
        }
        if head != self.me {
            let contiguous = self.pending_contiguous();
            effects.urgently(|effects| {
                effects.send(self.process_of(head), Message::Installed { view, contiguous })
            });
        }
        if self.mutated(Mutation::ActBeforeActive) {
            self.active = true;
        }
        if self.active {
            self.resume(effects);
        }
        self.end_task(effects);
        self.order_on(effects);
        self.hear_early(effects);
    }

    /// The installed view is active.
    pub(super) fn activate(&mut self, effects: &mut Effects<Self>) {
        if !self.active && self.view == self.installed {
            self.active = true;
            self.note(Entry::Active);
            self.resume(effects);
        }
    }

    /// Takes part in the view: what was under way is brought to its end in it.
    fn resume(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        if self.sequencer.is_some() {
            self.sequencer = Some(self.fresh_sequencer(now));
            effects.mark(Note::Leads(self.installed));
        }
        let me = usize::from(self.me);
        let targets = self.contact.quorum(self.me, self.majority, self.head(), self.parameters(), now);
        let mut accepts = Vec::new();
        for (owner, space) in self.spaces.iter_mut().enumerate() {
            let Some(lead) = &mut space.lead else { continue };
            for (index, flight) in &mut lead.flights {
                if let Some(cell) = space.log.get(Slot(*index)) {
                    (flight.at, flight.sent) = (now, targets);
                    let missing = targets.without(flight.voters);
                    accepts.push((owner as Rank, lead.ballot, *index, cell.value.clone(), missing));
                }
            }
        }
        for (owner, ballot, first, value, missing) in accepts {
            for rank in missing.iter() {
                let values = vec![value.clone()];
                self.out(rank.0).held.push(Part::Accept { owner, ballot, first, values });
            }
        }
        // What was told of the old view's commits may not have arrived.
        let own = &self.spaces[me];
        let decided: Vec<(u64, Ballot)> = own
            .log
            .range(Slot(0))
            .filter(|(_, cell)| cell.decided)
            .map(|(slot, cell)| (slot.0, cell.ballot))
            .collect();
        for rank in self.peers() {
            for (index, ballot) in &decided {
                let (owner, ballot, first, last) = (self.me, *ballot, *index, *index);
                self.out(rank).ahead.push(Part::Commit { owner, ballot, first, last });
            }
        }
        let last = self.next - 1;
        if self.log.count(self.me) < last {
            for (_, proposal) in self.proposals.range_mut(self.log.count(self.me) + 1..) {
                proposal.asked = now;
            }
            let (me, head) = (self.me, self.head());
            if head == me {
                self.assign(me, last, last, &Objects::All, false, now);
            } else {
                let objects = Objects::All;
                self.out(head).held.push(Part::Request { owner: me, first: last, index: last, objects });
            }
        }
    }

    pub(super) fn on_new_view(
        &mut self,
        rank: Rank,
        view: Ballot,
        active: bool,
        begin: u64,
        log: &Arc<Image>,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(view);
        if log.counts.len() != self.count() || view < self.view {
            let (view, to) = (self.installed, self.process_of(rank));
            if self.view == self.installed {
                effects.urgently(|effects| effects.send_ahead(to, Message::Stale { view }));
            }
            return;
        }
        if view < self.floor_view {
            // A majority has gone on from this view: what is executed here may stand in no log of it.
            return;
        }
        if view == self.installed {
            if log.low > self.log.contiguous() {
                // The same view, but what is lacked here was executed by a majority and is no longer told.
                self.write(Entry::Installed(view, begin, log.clone()));
                self.adopt(view, begin, log);
                self.then(Pending::Contiguous(view, self.log.contiguous()));
            }
            let head = self.head();
            if head != self.me {
                self.finish(effects);
                let contiguous = self.pending_contiguous();
                effects.urgently(|effects| {
                    effects.send(self.process_of(head), Message::Installed { view, contiguous })
                });
            }
            return;
        }
        self.install(view, begin, log, effects);
        if active {
            self.activate(effects);
        }
        self.settled(effects);
    }

    /// Tells somebody the log of the installed view as far as it is known here.
    pub(super) fn send_view(&mut self, to: ProcessId, effects: &mut Effects<Self>) {
        let (view, active, begin) = (self.installed, self.active, self.begin);
        let log = self.view_image();
        self.finish(effects);
        if log.end() >= begin {
            // It may be on its way.
            effects.repeating(|effects| effects.send(to, Message::NewView { view, active, begin, log }));
        }
    }

    /// A turn of another view than the one that is installed here.
    pub(super) fn on_other_view(
        &mut self,
        from: ProcessId,
        view: Ballot,
        message: Message<V>,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(view);
        if view < self.view || view == self.installed {
            let view = self.view;
            return effects.urgently(|effects| effects.send_ahead(from, Message::Stale { view }));
        }
        if self.early.len() < EARLY {
            self.early.push((from, message));
        }
        effects
            .urgently(|effects| effects.send_ahead(from, Message::FetchView { installed: self.installed }));
    }

    pub(super) fn on_stale(&mut self, from: ProcessId, view: Ballot, effects: &mut Effects<Self>) {
        self.seen = self.seen.max(view);
        if view > self.installed {
            effects.urgently(|effects| {
                effects.send_ahead(from, Message::FetchView { installed: self.installed })
            });
        }
        if self.campaign.as_ref().is_some_and(|campaign| campaign.view < view) {
            self.campaign = None;
            self.since = effects.now();
            self.patience = election::recess(self.parameters().election, 1, effects.random());
            effects.arm(Timer::Watch, self.patience);
        }
    }

    pub(super) fn on_fetch_view(&mut self, from: ProcessId, installed: Ballot, effects: &mut Effects<Self>) {
        if installed < self.installed && self.view == self.installed {
            self.send_view(from, effects);
        }
    }

    /// What a beat does for views: asks again for votes, and brings back whoever has voted in vain.
    pub(super) fn assert_view(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let resend = self.parameters().resend;
        let members = self.count() as Rank;
        let me = self.me;
        if let Some(campaign) = &mut self.campaign {
            if now.since(campaign.asked) >= resend {
                campaign.asked = now;
                let (view, released) = (campaign.view, campaign.released);
                let missing: Vec<Rank> =
                    (0..members).filter(|rank| *rank != me && !campaign.votes.contains_key(rank)).collect();
                for rank in missing {
                    effects.urgently(|effects| {
                        effects.send(self.process_of(rank), Message::ViewRequest { view, released })
                    });
                }
            }
            return;
        }
        let patience = self.parameters().campaign;
        if let Some(sequencer) = &self.sequencer
            && self.view == self.installed
        {
            let abandoned = sequencer.retired.is_some_and(|since| now.since(since) >= patience);
            let shunned = self.seen > self.view && now.since(self.since) >= patience;
            if abandoned || shunned {
                // Somebody has voted in a view that came to nothing, or the heir did not take over.
                self.since = now;
                self.elect(Some((self.installed, self.incarnation)), effects);
            } else if self.seen == self.view {
                self.since = now;
            }
        }
    }

    /// Lets another replica be the sequencer.
    pub(super) fn begin_change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        let now = effects.now();
        let suspects = self.contact.suspects(self.parameters().election, now);
        let heir = match change {
            Change::Lead(node) => self.members.iter().position(|member| member.process.node == node),
            Change::Resign => {
                let head = self.head();
                let live =
                    |rank: &Rank| *rank != head && (*rank == self.me || !suspects.contains(ReplicaId(*rank)));
                (0..self.count() as Rank).find(live).map(usize::from)
            }
            Change::Add(_) | Change::Remove(_) => None,
        };
        let refusal = match heir {
            None => Some(Refusal::Impossible),
            Some(_) if self.task.is_some() => Some(Refusal::Busy),
            Some(heir) if heir != usize::from(self.me) && suspects.contains(ReplicaId(heir as Rank)) => {
                Some(Refusal::Silent)
            }
            Some(_) => None,
        };
        let Some(heir) = heir.map(|heir| heir as Rank).filter(|_| refusal.is_none()) else {
            return effects.complete_ahead(ticket, Err(refusal.unwrap_or(Refusal::Impossible)));
        };
        if self.normal() && self.head() == heir {
            return effects.complete_ahead(ticket, Ok(()));
        }
        // One that resigns ends: where its heir has just died, the others do as well without being told.
        let most = if change == Change::Resign { self.parameters().campaign * 2 } else { TASK_MAX };
        self.task = Some(Task { ticket, heir, until: now + most, asked: now });
        self.hand_to(heir, effects);
    }

    fn hand_to(&mut self, heir: Rank, effects: &mut Effects<Self>) {
        let view = self.installed;
        if !self.normal() {
            return;
        }
        if self.head() == self.me {
            self.on_yield(view, heir, effects);
        } else {
            effects.urgently(|effects| {
                effects.send_ahead(self.process_of(self.head()), Message::Yield { view, heir })
            });
        }
    }

    /// The sequencer is to hand over: it names no slot any more, and its lease is over.
    pub(super) fn on_yield(&mut self, view: Ballot, heir: Rank, effects: &mut Effects<Self>) {
        let now = effects.now();
        if view != self.installed || !self.normal() || heir == self.me || usize::from(heir) >= self.count() {
            return;
        }
        let Some(sequencer) = &mut self.sequencer else { return };
        sequencer.retired.get_or_insert(now);
        sequencer.lease.release();
        let life = self.incarnation;
        effects.urgently(|effects| effects.send(self.process_of(heir), Message::Handover { view, life }));
    }

    pub(super) fn on_handover(&mut self, released: (Ballot, u32), effects: &mut Effects<Self>) {
        let (view, _) = released;
        if view == self.installed && self.view == view && self.campaign.is_none() {
            self.elect(Some(released), effects);
        }
    }

    pub(super) fn pursue_task(&mut self, effects: &mut Effects<Self>) {
        let (now, resend) = (effects.now(), self.parameters().campaign);
        if let Some(task) = self.task.take_if(|task| task.until <= now) {
            return effects.complete(task.ticket, Err(Refusal::TimedOut));
        }
        if let Some(task) = self.task.as_mut().filter(|task| now.since(task.asked) >= resend) {
            task.asked = now;
            let heir = task.heir;
            self.hand_to(heir, effects);
        }
    }

    fn end_task(&mut self, effects: &mut Effects<Self>) {
        let head = self.head();
        if let Some(task) = self.task.take_if(|task| task.heir == head) {
            effects.complete(task.ticket, Ok(()));
        }
    }
}
