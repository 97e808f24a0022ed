//! Polls, campaigns, promises: how a replica comes to lead.

use super::{Configuration, Form, Log, Message, Mutation, Record, Report, Role, Timer, Value};
use crate::election::Gathering;
use isochrone_core::{
    Admit, Ballot, Count, Effects, Instant, LeaseTerms, ProcessId, ReplicaId, ReplicaSet, Slot, Span, Tally,
    Urgency, Wire, wire,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Phase 1 in one ballot.
#[derive(Clone, Hash, Debug)]
pub(super) struct Campaign<V: Wire> {
    pub(super) ballot: Ballot,
    /// Everything before it is decided, and known here.
    pub(super) from: Slot,
    pub(super) reports: Vec<(ReplicaId, Report<V>)>,
    /// Who was asked.
    asked: ReplicaSet,
    gathering: Gathering,
}

impl<V: Wire> Campaign<V> {
    fn promised(&self) -> ReplicaSet {
        self.reports.iter().map(|(replica, _)| *replica).collect()
    }

    /// What the reports oblige the candidate to propose from `from` on.
    fn adopted(&self, form: Form, any: bool) -> Vec<Value<V>> {
        match form {
            Form::Slots => {
                let mut highest = BTreeMap::<Slot, (Ballot, &Value<V>)>::new();
                let accepted = self.reports.iter().flat_map(|(_, report)| &report.accepted);
                for (slot, ballot, value) in accepted.filter(|(slot, _, _)| *slot >= self.from) {
                    let better = highest
                        .get(slot)
                        .is_none_or(|(known, _)| if any { ballot < known } else { known < ballot });
                    if better {
                        highest.insert(*slot, (*ballot, value));
                    }
                }
                let end = highest.last_key_value().map_or(self.from, |(slot, _)| slot.next());
                let value = |slot| highest.get(&slot).map_or(Value::NoOp, |(_, value)| (*value).clone());
                self.from.until(end).map(value).collect()
            }
            Form::Prefix => {
                let rank = |report: &Report<V>| (if any { Ballot::ZERO } else { report.tail }, report.end);
                let best = self.reports.iter().max_by_key(|(_, report)| rank(report));
                let accepted = best.map(|(_, report)| report.accepted.as_slice()).unwrap_or_default();
                let ours = accepted.iter().filter(|(slot, _, _)| *slot >= self.from);
                ours.map(|(_, _, value)| value.clone()).collect()
            }
        }
    }

    /// What may still hold of the leases that the voters have granted.
    pub(super) fn leases(&self, now: Instant) -> Leases {
        let mut leases = Leases { told: now, granted: Vec::new(), forgotten: Span::ZERO };
        for (_, report) in &self.reports {
            leases.forgotten = leases.forgotten.max(report.lease_forgotten);
            leases.granted.extend(report.lease);
        }
        self.reports.iter().for_each(|(voter, _)| leases.release(*voter));
        leases
    }
}

/// Leases that others than the leader may hold.
#[derive(Clone, Hash, Debug)]
pub(super) struct Leases {
    /// When their granters were bound for as long as they say, at the latest.
    told: Instant,
    granted: Vec<(ReplicaId, Span)>,
    /// Of holders that the granters do not remember.
    forgotten: Span,
}

impl Leases {
    /// Who has promised the leader's ballot leads no longer, and a former life's lease ended with it.
    fn release(&mut self, promised: ReplicaId) {
        self.granted.retain(|(holder, _)| *holder != promised);
    }

    /// The same of one whose promise comes after the leader has begun to wait, and says how long leases may hold that are
    /// forgotten. The lease that ends was granted after those for which its holder had to wait itself, and whoever granted it,
    /// a newer member perhaps, need not know of them: so they are waited for in its place, and for no longer than it.
    pub(super) fn release_late(&mut self, promised: ReplicaId, forgotten: Span, now: Instant) {
        let ended = self.granted.iter().filter(|(holder, _)| *holder == promised);
        let longest = ended.map(|(_, left)| *left).max();
        if let Some(longest) = longest.filter(|_| forgotten > Span::ZERO) {
            self.forgotten = self.forgotten.max(longest.min(now.since(self.told) + forgotten));
        }
        self.release(promised);
    }

    /// How long they have to be waited for.
    pub(super) fn left(&self, terms: LeaseTerms, now: Instant) -> Span {
        let left = self.granted.iter().map(|(_, left)| *left).fold(self.forgotten, Span::max);
        (self.told + terms.wait_out(left)).since(now)
    }
}

impl<V: Wire> Log<V> {
    /// The timer of patience: whoever has heard nothing for long enough polls.
    pub(super) fn watch(&mut self, effects: &mut Effects<Self>) {
        if !matches!(self.role, Role::Follower) {
            return;
        }
        let now = effects.now();
        if self.watch.forget(now) {
            self.draw_patience(effects);
        }
        let left = self.watch.left(now);
        if left > Span::ZERO {
            return effects.arm(Timer::Watch, left);
        }
        self.watch.give_up(self.promise.ballot());
        if !self.is_member() {
            return effects.arm(Timer::Watch, self.watch.patience);
        }
        let ballot = self.seen.max(self.promise.ballot()).next(self.me);
        let mut tally = Tally::new(self.configuration.majority());
        let alone = tally.add(self.me) == Count::Reached;
        self.role = Role::Poll { ballot, tally };
        effects.arm(Timer::Campaign, self.parameters.campaign);
        for peer in self.configuration.members() {
            if peer.replica != self.me {
                let poll = Message::Poll { ballot, decided: self.decided };
                effects.urgently(|effects| effects.send_ahead(peer.process, poll));
            }
        }
        if alone {
            self.campaign(effects);
        }
    }

    /// The timer of campaigns. Who has not promised is asked often, so that none of them thinks the candidate dead.
    pub(super) fn press(&mut self, effects: &mut Effects<Self>) {
        let Role::Candidate(campaign) = &self.role else { return self.give_up(effects) };
        if campaign.gathering.is_over(effects.now()) {
            return self.give_up(effects);
        }
        let (ballot, from) = (campaign.ballot, campaign.from);
        let missing = campaign.asked.without(campaign.promised());
        for peer in self.peers.iter().filter(|peer| missing.contains(peer.replica)) {
            effects.urgently(|effects| effects.send(peer.process, Message::Prepare { ballot, from }));
        }
        effects.arm(Timer::Campaign, self.parameters.election / 2);
    }

    /// Another comes to lead. Whoever was busy with what it took over is more patient from now on.
    pub(super) fn give_way(&mut self, now: Instant) {
        let busy = match &self.role {
            Role::Leader(reign) => self.decided < reign.serving,
            Role::Candidate(campaign) => campaign.gathering.is_prolonged(self.parameters.election, now),
            Role::Follower | Role::Poll { .. } => false,
        };
        if busy {
            self.watch.deposed(now);
        }
    }

    pub(super) fn on_promising(&mut self, from: ProcessId, ballot: Ballot, now: Instant) {
        let voter = self.seat(from);
        if let Role::Candidate(campaign) = &mut self.role
            && campaign.ballot == ballot
            && voter.is_some_and(|voter| campaign.asked.without(campaign.promised()).contains(voter))
        {
            campaign.gathering.goes_on(now);
        }
    }

    /// A poll or campaign has not come through.
    pub(super) fn give_up(&mut self, effects: &mut Effects<Self>) {
        if matches!(self.role, Role::Poll { .. } | Role::Candidate(_)) {
            self.step_down(effects);
            self.watch.fail(effects.now(), effects.random());
            effects.arm(Timer::Watch, self.watch.patience);
        }
    }

    /// Others hear a leader, or the candidate lacks what is decided: then it need not try.
    pub(super) fn on_poll(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let promised = self.seen.max(self.promise.ballot());
        let hears = self.leads() || self.watch.hears(ballot.owner, self.promise.ballot(), effects.now());
        let known = self.configuration.contains(ballot.owner);
        let granted = !hears && known && ballot > promised && decided >= self.decided;
        let answer = Message::Polled { ballot, granted, promised, decided: self.decided };
        effects.urgently(|effects| effects.send_ahead(from, answer));
        if !hears && decided > self.decided {
            // It may be the one that knows who the members are.
            self.lack(decided, from, effects);
        }
    }

    pub(super) fn on_polled(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        granted: bool,
        promised: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(promised);
        if decided > self.decided {
            self.lack(decided, from, effects);
        }
        let Some(voter) = self.seat(from) else { return };
        let member = self.configuration.contains(voter);
        if let Role::Poll { ballot: mine, tally } = &mut self.role
            && *mine == ballot
            && granted
            && member
            && tally.add(voter) == Count::Reached
        {
            self.campaign(effects);
        }
    }

    /// Phase 1. `Prepare` is held behind the record of the own promise: whatever is sent in this ballot
    /// later, ahead or not, comes from a replica that cannot use the ballot again after a restart. The own
    /// promise is asked for by message like any other.
    pub(super) fn campaign(&mut self, effects: &mut Effects<Self>) {
        let ballot = self.seen.max(self.promise.ballot()).next(self.me);
        self.seen = ballot;
        self.promise.admit(ballot);
        self.watch.leader = None;
        let from = self.decided;
        if self.parameters.mutated(Mutation::PrepareAhead) {
            for peer in self.configuration.members() {
                effects.send_ahead(peer.process, Message::Prepare { ballot, from });
            }
        }
        effects.record(Record::Promised { ballot });
        let mut asked = ReplicaSet::EMPTY;
        for peer in self.configuration.members() {
            asked.insert(peer.replica);
            effects.urgently(|effects| effects.send(peer.process, Message::Prepare { ballot, from }));
        }
        let gathering = Gathering::begin(self.parameters.campaign, self.watch.failures, effects.now());
        self.role = Role::Candidate(Campaign { ballot, from, reports: Vec::new(), asked, gathering });
        effects.arm(Timer::Campaign, self.parameters.election / 2);
    }

    pub(super) fn on_prepare(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        first: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(ballot);
        self.watch.lives(ballot, effects.now());
        let stale = ballot < self.promise.ballot();
        if stale || first < self.decided {
            // A candidate that does not know what is decided would have to be told here, without bound.
            let (promised, decided) = (self.promise.ballot(), self.decided);
            let rejected = Message::Rejected { promised, decided };
            return effects.urgently(|effects| effects.send_ahead(from, rejected));
        }
        let again = match self.promise.admit(ballot) {
            Admit::Fresh => {
                effects.record(Record::Promised { ballot });
                self.give_way(effects.now());
                self.watch.promised(ballot, effects.now());
                self.draw_patience(effects);
                self.step_down(effects);
                false
            }
            // The own promise stands before it is asked for.
            Admit::Same | Admit::Stale => from != self.process,
        };
        self.watch.heard = effects.now();
        if again {
            effects.urgently(|effects| effects.send(from, Message::Promising { ballot }));
        }
        let report = Box::new(self.report(ballot, first, effects));
        // Where candidates come and go, they are told the same values: see `Log::lead`.
        let large = || wire::encoded_size(&report.accepted) > Urgency::SMALL;
        let again = again || self.watch.is_unsteady() && large();
        let promised = Message::Promised { ballot, report };
        effects.repeating_if(again, |effects| effects.send(from, promised));
    }

    fn report(&self, ballot: Ballot, first: Slot, effects: &Effects<Self>) -> Report<V> {
        let now = effects.now();
        let terms = self.parameters.lease_terms();
        let lease = self.grant.map(|(holder, until)| (holder, until.since(now)));
        let restarted = self.incarnation > 1 && self.parameters.lease;
        let former = if restarted { terms.bound_until(self.started).since(now) } else { Span::ZERO };
        Report {
            decided: self.decided,
            tail: self.tail,
            end: self.votes.end(),
            accepted: self.votes.range(first).map(|(s, v)| (s, v.ballot, v.value.clone())).collect(),
            lease: lease.filter(|(holder, left)| *holder != ballot.owner && *left > Span::ZERO),
            lease_forgotten: former.max(self.granted_before.since(now)),
        }
    }

    pub(super) fn on_promised(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        report: Report<V>,
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        if matches!(&self.role, Role::Leader(reign) if reign.ballot == ballot) {
            return self.release(voter, report.lease_forgotten, effects);
        }
        let any = self.parameters.mutated(Mutation::AdoptAny);
        let (form, current) = (self.parameters.form, self.configuration.clone());
        let Role::Candidate(campaign) = &mut self.role else { return };
        if campaign.ballot != ballot || campaign.promised().contains(voter) {
            return;
        }
        campaign.reports.push((voter, report));
        if !current.quorum(campaign.promised()) {
            return;
        }
        // A change among what must be adopted may have been decided, and then what follows it needed the
        // votes of the members after it: they must promise too. What they report may show more changes.
        let adopted = campaign.adopted(form, any);
        let mut complete = true;
        for next in changes(&adopted) {
            complete &= next.quorum(campaign.promised());
            for member in next.members() {
                if campaign.asked.insert(member.replica) {
                    let prepare = Message::Prepare { ballot, from: campaign.from };
                    effects.urgently(|effects| effects.send(member.process, prepare));
                    if !self.peers.contains(member) {
                        self.peers.push(*member);
                    }
                }
            }
        }
        if complete {
            self.lead(adopted, effects);
        }
    }

    pub(super) fn on_rejected(
        &mut self,
        from: ProcessId,
        promised: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(promised);
        if decided > self.decided {
            self.lack(decided, from, effects);
        }
        let mine = match &self.role {
            Role::Candidate(campaign) => campaign.ballot,
            Role::Leader(reign) => reign.ballot,
            Role::Follower | Role::Poll { .. } => return,
        };
        if promised > mine {
            self.give_way(effects.now());
            if self.leads() {
                self.step_down(effects);
            } else {
                self.give_up(effects);
            }
        }
    }

    /// The leader wants this replica to lead: it asks nobody whether that is welcome.
    pub(super) fn on_handover(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        if self.admit(from, ballot, effects) && self.is_member() {
            self.hear_decided(ballot, decided, from, effects);
            if self.decided >= decided {
                self.campaign(effects);
            }
        }
    }
}

/// The configurations among these values, in order.
pub(super) fn changes<V: Wire>(values: &[Value<V>]) -> impl Iterator<Item = &Arc<Configuration>> {
    values.iter().filter_map(|value| match value {
        Value::Change(next) => Some(next),
        Value::NoOp | Value::Batch(_) => None,
    })
}
