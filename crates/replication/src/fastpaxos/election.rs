//! Polls, campaigns, promises: how a replica comes to coordinate (`specs/domino.md` 4.4, indices in place of
//! times).

use super::Mutation;
use super::coordinator::Reign;
use super::message::{Message, Name, Note, Promised, Record, Timer, Values, Vote};
use super::order::{Order, Role, Task, digest};
use super::rule::{self, Pick};
use crate::election::Gathering;
use crate::message::in_parts;
use crate::order::{Member, Order as _, Ordered};
use crate::request::{Change, Refusal};
use isochrone_core::{
    Admit, Ballot, CommandId, Count, Effects, Instant, ProcessId, ReplicaId, Slot, Span, Tally, Ticket,
    Urgency, wire,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long a change of the coordinator may take before it is given up.
const CHANGE_MAX: Span = Span::from_secs(10);

/// Phase 1 of one reign.
#[derive(Clone, Hash, Debug)]
pub(super) struct Campaign<V: Ordered> {
    reign: Ballot,
    /// Everything before it is decided, and known here.
    from: Slot,
    reports: Vec<(ReplicaId, Promised<V>)>,
    gathering: Gathering,
    /// The value that the order is to end with.
    end: Option<V>,
}

/// What promises oblige a new coordinator to.
pub(super) struct Adopted<V: Ordered> {
    /// Indices from the campaign's first on, without gaps.
    pub(super) entries: Vec<(Slot, Values<V>)>,
    /// Fast votes may be cast from here on.
    pub(super) floor: Slot,
}

impl<V: Ordered> Campaign<V> {
    fn has_promised(&self, voter: ReplicaId) -> bool {
        self.reports.iter().any(|(seat, _)| *seat == voter)
    }

    /// What to propose at each index, given what is decided here anyway and what waits here.
    fn adopt(
        &self,
        n: usize,
        mutation: impl Fn(Mutation) -> bool,
        known: impl Fn(Slot) -> Option<Values<V>>,
        waiting: Vec<V>,
        batch: usize,
    ) -> Adopted<V> {
        let behind = self.reports.iter().map(|(_, report)| report.next).max().unwrap_or(self.from);
        let behind = behind.max(self.from);
        let mut votes = BTreeMap::<Slot, Vec<&Vote<V>>>::new();
        for (slot, vote) in self.reports.iter().flat_map(|(_, report)| &report.votes) {
            votes.entry(*slot).or_default().push(vote);
        }
        let mut used = BTreeSet::<CommandId>::new();
        let mut forced = BTreeMap::<Slot, Values<V>>::new();
        let mut free = BTreeMap::<Slot, Vec<Name>>::new();
        let mut bodies = BTreeMap::<Name, &V>::new();
        for slot in self.from.until(behind) {
            let told = votes.get(&slot).map(Vec::as_slice).unwrap_or_default();
            for value in told.iter().filter_map(|vote| vote.values.first()) {
                bodies.extend(value.id().map(|id| (Name { id, digest: digest(value) }, value)));
            }
            let values = match known(slot) {
                Some(values) => values,
                None => match obliged(n, self.reports.len(), told, &mutation) {
                    Ok(values) => values,
                    Err(names) => {
                        free.insert(slot, names);
                        continue;
                    }
                },
            };
            used.extend(values.iter().filter_map(V::id));
            forced.insert(slot, values);
        }
        for (slot, names) in free {
            // Most votes first; a command that has its place elsewhere needs no other.
            let winner = names.iter().find(|name| !used.contains(&name.id)).and_then(|name| bodies.get(name));
            used.extend(winner.and_then(|value| value.id()));
            forced.insert(slot, winner.map(|value| (*value).clone()).into_iter().collect());
        }
        // Whatever else was voted for, or waits here, has lost, and gets the indices behind.
        let told = votes.values().flatten().flat_map(|vote| vote.values.iter()).cloned();
        let mut losers = Vec::new();
        for value in told.chain(waiting) {
            if value.id().is_some_and(|id| used.insert(id)) {
                losers.push(value);
            }
        }
        let mut floor = behind;
        for batch in losers.chunks(batch) {
            // All of an index go as one message.
            in_parts(batch.to_vec(), |values| {
                forced.insert(floor, Arc::from(values));
                floor = floor.next();
            });
        }
        Adopted { entries: forced.into_iter().collect(), floor }
    }
}

/// What the votes that a majority reported of one index oblige to, or else what may be picked.
fn obliged<V: Ordered>(
    n: usize,
    collected: usize,
    votes: &[&Vote<V>],
    mutation: &impl Fn(Mutation) -> bool,
) -> Result<Values<V>, Vec<Name>> {
    let rank = |vote: &&&Vote<V>| (vote.reign, vote.classic);
    let highest = match mutation(Mutation::AdoptAny) {
        true => votes.iter().min_by_key(rank),
        false => votes.iter().max_by_key(rank),
    };
    let Some(highest) = highest else { return Err(Vec::new()) };
    if highest.classic {
        return Ok(highest.values.clone());
    }
    let named = |vote: &&Vote<V>| {
        let value = vote.values.first().filter(|_| vote.reign == highest.reign && !vote.classic)?;
        Some(Name { id: value.id()?, digest: digest(value) })
    };
    let mut threshold = rule::threshold(n, collected);
    if mutation(Mutation::ThresholdOffByOne) {
        threshold += 1;
    }
    match rule::pick(threshold, votes.iter().map(named)) {
        Pick::Forced(name) => {
            let found = votes.iter().find(|vote| named(vote) == Some(name));
            found.map(|vote| vote.values.clone()).ok_or_else(Vec::new)
        }
        Pick::Free(names) => Err(names),
    }
}

impl<V: Ordered> Order<V> {
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
        let reign = self.seen.max(self.promise.ballot()).next(self.me);
        let mut tally = Tally::new(self.majority());
        let alone = tally.add(self.me) == Count::Reached;
        self.role = Role::Poll { reign, tally };
        effects.arm(Timer::Campaign, self.parameters.campaign);
        for peer in self.peers() {
            let poll = Message::Poll { reign, decided: self.decided };
            effects.urgently(|effects| effects.send_ahead(peer, poll));
        }
        if alone {
            self.campaign(None, effects);
        }
    }

    /// The timer of campaigns. Who has not promised is asked often, so that none of them thinks the candidate dead.
    pub(super) fn press(&mut self, effects: &mut Effects<Self>) {
        let Role::Candidate(campaign) = &mut self.role else { return self.give_up_campaign(effects) };
        if campaign.from < self.decided {
            // Whoever has decided as much refuses it, and fast votes went on deciding when it began.
            let end = campaign.end.take();
            return self.campaign(end, effects);
        }
        if campaign.gathering.is_over(effects.now()) {
            return self.give_up_campaign(effects);
        }
        let (reign, from) = (campaign.reign, campaign.from);
        for member in self.members.iter().filter(|member| !campaign.has_promised(member.replica)) {
            effects.urgently(|effects| effects.send(member.process, Message::Prepare { reign, from }));
        }
        effects.arm(Timer::Campaign, self.parameters.suspect / 2);
    }

    pub(super) fn on_promising(&mut self, from: ProcessId, reign: Ballot, now: Instant) {
        let voter = self.seat(from);
        if let Role::Candidate(campaign) = &mut self.role
            && campaign.reign == reign
            && voter.is_some_and(|voter| !campaign.has_promised(voter))
        {
            campaign.gathering.goes_on(now);
        }
    }

    /// A poll or campaign has not come through.
    pub(super) fn give_up_campaign(&mut self, effects: &mut Effects<Self>) {
        if matches!(self.role, Role::Poll { .. } | Role::Candidate(_)) {
            self.step_down(effects);
            self.watch.fail(effects.now(), effects.random());
            effects.arm(Timer::Watch, self.watch.patience);
        }
    }

    /// Others hear a coordinator, or the candidate lacks what is decided: then it need not try.
    pub(super) fn on_poll(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        let promised = self.seen.max(self.promise.ballot());
        let hears = matches!(self.role, Role::Coordinator(_))
            || self.watch.hears(reign.owner, self.promise.ballot(), effects.now());
        let granted = !hears && reign > promised && decided >= self.decided;
        let polled = Message::Polled { reign, granted, promised, decided: self.decided };
        effects.urgently(|effects| effects.send_ahead(from, polled));
    }

    pub(super) fn on_polled(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        granted: bool,
        promised: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(promised);
        self.hear_decided(decided, from, effects);
        let Some(voter) = self.seat(from) else { return };
        if let Role::Poll { reign: mine, tally } = &mut self.role
            && *mine == reign
            && granted
            && tally.add(voter) == Count::Reached
        {
            self.campaign(None, effects);
        }
    }

    /// Phase 1. `Prepare` is held behind the record of the own promise: whatever is sent in this reign
    /// later, ahead or not, comes from a replica that cannot begin the reign again after a restart. The own
    /// promise is asked for by message like any other. With `end`, the order is to end in this reign.
    pub(super) fn campaign(&mut self, end: Option<V>, effects: &mut Effects<Self>) {
        if matches!(self.role, Role::Coordinator(_)) {
            self.step_down(effects);
        }
        let reign = self.seen.max(self.promise.ballot()).next(self.me);
        self.seen = reign;
        self.promise.admit(reign);
        self.watch.leader = None;
        let from = self.decided;
        effects.record(Record::Promised { reign });
        for member in self.members.iter() {
            effects.urgently(|effects| effects.send(member.process, Message::Prepare { reign, from }));
        }
        let gathering = Gathering::begin(self.parameters.campaign, self.watch.failures, effects.now());
        self.role = Role::Candidate(Campaign { reign, from, reports: Vec::new(), gathering, end });
        effects.arm(Timer::Campaign, self.parameters.suspect / 2);
    }

    pub(super) fn on_prepare(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        first: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(reign);
        self.watch.lives(reign, effects.now());
        if reign < self.promise.ballot() || first < self.decided {
            // A candidate that does not know what is decided would have to be told here, without bound.
            let (promised, decided) = (self.promise.ballot(), self.decided);
            let rejected = Message::Rejected { promised, decided };
            return effects.urgently(|effects| effects.send_ahead(from, rejected));
        }
        let again = match self.promise.admit(reign) {
            Admit::Fresh => {
                effects.record(Record::Promised { reign });
                self.watch.promised(reign, effects.now());
                self.draw_patience(effects);
                self.step_down(effects);
                false
            }
            // The own promise stands before it is asked for.
            Admit::Same | Admit::Stale => from != self.process,
        };
        self.watch.heard = effects.now();
        if again {
            effects.urgently(|effects| effects.send(from, Message::Promising { reign }));
        }
        let votes = self.cells.range(first);
        let votes = votes.filter_map(|(slot, cell)| Some((slot, cell.vote.clone()?))).collect();
        let report = Box::new(Promised { next: self.next, votes });
        // Where candidates come and go, they are told the same values: large ones need not wait behind themselves.
        let large = || wire::encoded_size(&report.votes) > Urgency::SMALL;
        let again = again || self.watch.is_unsteady() && large();
        let promised = Message::Promised { reign, report };
        effects.repeating_if(again, |effects| effects.send(from, promised));
    }

    pub(super) fn on_promised(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        report: Promised<V>,
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        let majority = self.majority();
        let Role::Candidate(campaign) = &mut self.role else { return };
        if campaign.reign != reign || campaign.has_promised(voter) {
            return;
        }
        campaign.reports.push((voter, report));
        if campaign.reports.len() >= majority {
            self.lead(effects);
        }
    }

    /// Phase 1 is complete: what it obliges to is proposed in the classic ballot, behind that fast votes may
    /// be cast.
    fn lead(&mut self, effects: &mut Effects<Self>) {
        let Role::Candidate(campaign) = std::mem::replace(&mut self.role, Role::Follower) else { return };
        effects.disarm(Timer::Campaign);
        let now = effects.now();
        let parameters = self.parameters;
        let waiting = self.pending.values().map(|pending| pending.value.clone()).collect();
        let adopted = campaign.adopt(
            self.members.len(),
            |mutation| parameters.mutated(mutation),
            |slot| self.cells.get(slot)?.outcome.clone(),
            waiting,
            parameters.batch_commands,
        );
        let (mut entries, mut floor) = (adopted.entries, adopted.floor);
        if parameters.mutated(Mutation::OpenTooLow) {
            floor = self.decided;
        }
        if let Some(end) = campaign.end {
            entries.push((floor, Arc::from([end])));
            floor = floor.next();
        }
        // What was decided since the campaign began is known here and need not be proposed again.
        entries.retain(|(slot, _)| !self.is_decided(*slot));
        let closed = entries.iter().any(|(_, values)| values.iter().any(V::ends));
        let ballot = campaign.reign;
        let mut reign = Reign::new(ballot, floor, closed, self.contact(now));
        for (slot, values) in &entries {
            reign.fly(*slot, values.clone(), self.majority(), now);
        }
        self.role = Role::Coordinator(Box::new(reign));
        self.watch.leader = Some(ballot);
        self.watch.failures = 0;
        let again = self.watch.is_unsteady() && wire::encoded_size(&entries) > Urgency::SMALL;
        for peer in self.peers() {
            effects.repeating_if(again, |effects| self.send_open(peer, effects));
        }
        let slots: Vec<Slot> = entries.iter().map(|(slot, _)| *slot).collect();
        self.enter(ballot, floor, closed, &entries, effects);
        if !slots.is_empty() {
            effects.send(self.process, Message::Accepted { reign: ballot, slots });
        }
        effects.mark(Note::Leads(ballot));
        self.task_done(self.me, effects);
        self.beat(effects);
    }

    pub(super) fn on_rejected(
        &mut self,
        from: ProcessId,
        promised: Ballot,
        decided: Slot,
        effects: &mut Effects<Self>,
    ) {
        self.seen = self.seen.max(promised);
        self.hear_decided(decided, from, effects);
        match &self.role {
            Role::Candidate(campaign) if promised > campaign.reign => self.give_up_campaign(effects),
            Role::Coordinator(reign) if promised > reign.ballot => self.step_down(effects),
            _ => {}
        }
    }

    /// No longer polls, campaigns or coordinates.
    pub(super) fn step_down(&mut self, effects: &mut Effects<Self>) {
        let role = std::mem::replace(&mut self.role, Role::Follower);
        self.watch.leader = None;
        match role {
            Role::Follower => return,
            Role::Poll { .. } | Role::Candidate(_) => effects.disarm(Timer::Campaign),
            Role::Coordinator(_) => {
                effects.disarm(Timer::Heartbeat);
                effects.mark(Note::Follows);
                self.watch.heard = effects.now();
            }
        }
        effects.arm(Timer::Watch, self.watch.patience);
    }

    pub(super) fn draw_patience(&mut self, effects: &mut Effects<Self>) {
        self.watch.draw(self.me, self.members.iter().map(|member| member.replica), effects.random());
    }

    /// Lets another replica coordinate.
    pub(super) fn hand_over(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        let now_owner = self.watch.leader.map(|ballot| ballot.owner);
        let silent = self.silent(effects.now());
        let (heir, patience) = match change {
            Change::Lead(node) => {
                (self.members.iter().find(|member| member.process.node == node), CHANGE_MAX)
            }
            // The next in line behind the one that resigns. That one ends: where the heir has just died, the others do as well
            // without being told.
            Change::Resign => {
                let at = self.members.iter().position(|member| Some(member.replica) == now_owner);
                let behind = self.members.iter().cycle().skip(at.map_or(0, |at| at + 1));
                let mut line = behind.take(self.members.len());
                let lives =
                    |member: &&Member| Some(member.replica) != now_owner && !silent.contains(member.replica);
                (line.find(lives), self.parameters.suspect * 2)
            }
            Change::Add(_) | Change::Remove(_) => (None, CHANGE_MAX),
        };
        let Some(heir) = heir.copied() else {
            return effects.complete_ahead(ticket, Err(Refusal::Impossible));
        };
        if now_owner == Some(heir.replica) {
            return effects.complete_ahead(ticket, Ok(()));
        }
        if self.task.is_some() {
            return effects.complete_ahead(ticket, Err(Refusal::Busy));
        }
        if silent.contains(heir.replica) {
            return effects.complete_ahead(ticket, Err(Refusal::Silent));
        }
        self.task = Some(Task { ticket, heir: heir.replica });
        effects.arm(Timer::Change, patience);
        if heir.replica == self.me {
            self.on_handover(effects);
        } else {
            effects.urgently(|effects| effects.send_ahead(heir.process, Message::Handover));
        }
    }

    /// This replica is to coordinate: it asks nobody whether that is welcome.
    pub(super) fn on_handover(&mut self, effects: &mut Effects<Self>) {
        if !matches!(self.role, Role::Coordinator(_) | Role::Candidate(_)) {
            self.campaign(None, effects);
        }
    }

    /// Somebody coordinates now: a change may have come to its end.
    pub(super) fn task_done(&mut self, owner: ReplicaId, effects: &mut Effects<Self>) {
        if self.task.as_ref().is_some_and(|task| task.heir == owner) {
            self.end_task(Ok(()), effects);
        }
    }

    pub(super) fn end_task(&mut self, result: Result<(), Refusal>, effects: &mut Effects<Self>) {
        if let Some(task) = self.task.take() {
            effects.disarm(Timer::Change);
            effects.complete(task.ticket, result);
        }
    }
}
