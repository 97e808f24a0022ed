//! Leading: slots, votes, heartbeats, leases, and changes of the members or the leader.

use super::change::{LEARNER_SLACK, Task};
use super::election::{Leases, changes};
use super::{
    Answer, Configuration, Form, Log, Member, Message, Mutation, Note, Queue, Record, Role, Timer, Value,
};
use crate::request::Refusal;
use isochrone_core::{
    Ballot, Effects, Instant, Lease, ProcessId, ReplicaId, ReplicaSet, Slot, SlotLog, Span, Suspicion,
    Urgency, Wire,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One leader's time in one ballot.
#[derive(Clone, Hash, Debug)]
pub(super) struct Reign {
    pub(super) ballot: Ballot,
    /// The next free slot.
    pub(super) next: Slot,
    /// When everything before it is decided, so is all that was adopted: reads may be served.
    pub(super) serving: Slot,
    /// Everything proposed before it is durable here.
    durable: Slot,
    flights: SlotLog<Flight>,
    flying_bytes: usize,
    /// A change that is proposed and not decided: nothing is proposed behind it.
    pub(super) barrier: Option<Slot>,
    lease: Lease,
    /// Leases of others that may still hold: nothing decided may show yet.
    pub(super) waiting: Option<Leases>,
    pub(super) contact: Suspicion,
    /// When the last heartbeat left, and which each has answered last.
    said: Instant,
    answered: BTreeMap<ReplicaId, Instant>,
    /// Who is being brought up to date before it becomes a member.
    pub(super) learner: Option<Member>,
    /// What administration waits for.
    pub(super) task: Option<Task>,
}

/// A slot between its proposal and its delivery.
#[derive(Clone, Hash, Debug)]
struct Flight {
    voters: ReplicaSet,
    /// Votes counted, repetitions and all: for the planted bug that believes in them.
    cast: u32,
    /// The members whose majority decides it.
    configuration: Arc<Configuration>,
    decided: bool,
    bytes: usize,
    sent: Instant,
    queued: Instant,
    proposed: Instant,
    own: Option<Instant>,
    quorum: Instant,
}

/// Slots whose votes are asked for again in one heartbeat.
const RESEND_SLOTS: usize = 64;

/// What waits for the disk here to be less busy waits no longer than this: some syncs of a good one.
const GATHER_MAX: Span = Span::from_millis(20);

impl Reign {
    /// Whether those of these members that were heard of lately, with `me` among them if it is one, are a quorum.
    pub(super) fn hears_quorum(&self, of: &Configuration, me: ReplicaId, now: Instant) -> bool {
        let silent = self.contact.suspects(now);
        let members = of.members().iter().map(|member| member.replica);
        of.quorum(members.filter(|member| *member == me || !silent.contains(*member)).collect())
    }

    /// A member that is heard of and none of these.
    pub(super) fn heir(&self, of: &Configuration, but: ReplicaSet, now: Instant) -> Option<Member> {
        let silent = self.contact.suspects(now);
        let lives = |member: &&Member| !but.contains(member.replica) && !silent.contains(member.replica);
        of.members().iter().find(lives).copied()
    }

    /// Takes a delivered slot out of the air: where its time went.
    pub(super) fn land(&mut self, slot: Slot, now: Instant) -> Option<[Span; 4]> {
        let flight = self.flights.get(slot)?;
        let own = flight.own.unwrap_or(flight.quorum).min(flight.quorum);
        let spans = [
            flight.proposed.since(flight.queued),
            own.since(flight.proposed),
            flight.quorum.since(own),
            now.since(flight.quorum),
        ];
        self.flights.trim(slot.next());
        Some(spans)
    }

    /// A peer's state was taken in: what lies before `position` and is not decided here was decided by way of others.
    pub(super) fn skip(&mut self, decided: Slot, position: Slot) {
        let passed = self.flights.range(decided).take_while(|(slot, _)| *slot < position);
        self.flying_bytes -= passed.map(|(_, flight)| flight.bytes).sum::<usize>();
        self.flights.trim(position);
    }
}

impl<V: Wire> Log<V> {
    /// Puts a value of about `bytes` into the log; it gets its slot in the next [`settle`].
    ///
    /// # Errors
    /// Refused by who does not lead, and when too much is waiting.
    ///
    /// [`settle`]: isochrone_core::Process::settle
    pub(super) fn enqueue(&mut self, value: V, bytes: usize, now: Instant) -> Answer {
        if !self.leads() {
            return Err(Refusal::NotLeader);
        }
        let queue = &mut self.queue;
        if queue.values.len() >= self.parameters.queue_commands
            || queue.bytes + bytes > self.parameters.queue_bytes.max(bytes)
        {
            return Err(Refusal::Overloaded);
        }
        if queue.values.is_empty() {
            queue.since = now;
        }
        queue.bytes += bytes;
        queue.values.push_back((value, u32::try_from(bytes).unwrap_or(u32::MAX)));
        Ok(())
    }

    /// Whether this leader may answer from its own state: what it adopted is decided and delivered, and a
    /// quorum has granted it a lease that still holds.
    pub fn may_read(&self, now: Instant) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        let caught_up = self.parameters.mutated(Mutation::ReadBeforeOwnCommit) || self.caught_up();
        self.parameters.lease && caught_up && self.holds_lease(reign, now)
    }

    /// Whether this leader has handed out all that it adopted.
    pub(crate) fn caught_up(&self) -> bool {
        matches!(&self.role, Role::Leader(reign) if self.delivered >= reign.serving && reign.waiting.is_none())
    }

    /// Asks all at once whether this replica leads; which heartbeat was the last before that.
    pub fn confirm(&mut self, effects: &mut Effects<Self>) -> Instant {
        let Role::Leader(reign) = &self.role else { return Instant::MAX };
        let before = reign.said;
        // Later than that one, whatever the clock says.
        self.beat_as(effects.now().max(before + Span::from_nanos(1)), effects);
        before
    }

    /// Whether a majority has answered a heartbeat behind this one: it had promised no later ballot then, so nobody else had led by
    /// the time that this was the last, and whatever was decided by then is known here.
    pub fn confirmed(&self, before: Instant) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        let answered = |replica: ReplicaId| reign.answered.get(&replica).is_some_and(|sent| *sent > before);
        let members = self.configuration.members().iter().map(|member| member.replica);
        let for_it = members.filter(|replica| *replica == self.me || answered(*replica)).count();
        for_it >= self.configuration.majority()
    }

    fn holds_lease(&self, reign: &Reign, now: Instant) -> bool {
        if self.parameters.mutated(Mutation::ReadAfterLease) {
            return true;
        }
        // The own grant needs no clock: it ends when this replica promises another ballot.
        let own = usize::from(self.is_member());
        let others = self.configuration.majority() - own;
        reign.lease.held(now, others, |replica| replica != self.me && self.configuration.contains(replica))
    }

    /// Phase 1 is complete: everything it obliges to is proposed again in this ballot.
    pub(super) fn lead(&mut self, adopted: Vec<Value<V>>, effects: &mut Effects<Self>) {
        let Role::Candidate(campaign) = std::mem::replace(&mut self.role, Role::Follower) else { return };
        effects.disarm(Timer::Campaign);
        let now = effects.now();
        // What was decided since the campaign began is known here and need not be proposed again.
        let (ballot, from) = (campaign.ballot, self.decided);
        let values: Arc<[Value<V>]> = adopted.into_iter().skip(from.since(campaign.from) as usize).collect();
        let next = from.plus(values.len() as u64);
        self.votes.truncate(from);
        self.vote_all(ballot, from, &values);
        self.tail = ballot;

        let mut flights = SlotLog::starting_at(from);
        let mut configuration = self.configuration.clone();
        let (mut barrier, mut flying_bytes) = (None, 0);
        for (slot, value) in from.until(next).zip(values.iter()) {
            let bytes = isochrone_core::wire::encoded_size(value);
            flying_bytes += bytes;
            flights.insert(slot, Flight::new(configuration.clone(), bytes, now, now));
            if let Some(change) = changes(std::slice::from_ref(value)).next() {
                configuration = change.clone();
                barrier = Some(slot);
            }
        }
        let leases = campaign.leases(now);
        let wait = leases.left(self.parameters.lease_terms(), now);
        let waits = wait > Span::ZERO && !self.parameters.mutated(Mutation::IgnoreLeases);
        if waits {
            // Whoever leads after this one soon, by other members perhaps, hears of them from here.
            self.granted_before = self.granted_before.max(now + wait);
        }
        self.role = Role::Leader(Box::new(Reign {
            ballot,
            next,
            serving: next,
            durable: next,
            flights,
            flying_bytes,
            barrier,
            lease: Lease::default(),
            waiting: waits.then_some(leases),
            contact: Suspicion::watching([], self.watch.silence() * 2, now),
            said: now,
            answered: BTreeMap::new(),
            learner: None,
            task: None,
        }));
        self.watch.leader = Some(ballot);
        self.watch.failures = 0;
        self.queue = Queue { values: VecDeque::new(), bytes: 0, since: now };
        self.refresh_peers();
        for peer in self.peers.clone() {
            if let Role::Leader(reign) = &mut self.role {
                reign.contact.heard(peer.replica, now);
            }
            if peer.replica == self.me {
                continue;
            }
            // A voter is sent what it lacks as well, so that it can follow without asking.
            let report = campaign.reports.iter().find(|(replica, _)| *replica == peer.replica);
            let reached = report.map_or(from, |(_, report)| report.decided.min(from));
            let first = if reached < self.votes.base() { from } else { reached };
            // Where leaders come and go, they send the same values: large ones need not wait behind themselves. They are sent again.
            let again = self.watch.is_unsteady() && flying_bytes > Urgency::SMALL;
            effects.repeating_if(again, |effects| self.send_open(peer.process, first, effects));
        }
        effects.record(Record::Adopted { ballot, from, values, decided: self.decided });
        if next > from {
            effects.send(self.process, Message::Accepted { ballot, first: from, last: Slot(next.0 - 1) });
        }
        effects.mark(Note::Leads(ballot));
        if waits {
            effects.mark(Note::Counted("lease_waits"));
            effects.arm(Timer::Wait, wait);
        }
        self.beat(effects);
    }

    /// Somebody promises that was not needed to lead, and says how long leases may hold that are forgotten: one that it holds
    /// itself is not waited for. That it follows is not enough: until it has promised by word, what it knows is not known here.
    pub(super) fn release(&mut self, promised: ReplicaId, forgotten: Span, effects: &mut Effects<Self>) {
        let (terms, now) = (self.parameters.lease_terms(), effects.now());
        let Role::Leader(reign) = &mut self.role else { return };
        let Some(leases) = &mut reign.waiting else { return };
        leases.release_late(promised, forgotten, now);
        match leases.left(terms, now) {
            Span::ZERO => {
                reign.waiting = None;
                effects.disarm(Timer::Wait);
            }
            left => effects.arm(Timer::Wait, left),
        }
    }

    /// Gives waiting values their slots, one for each batch, as far as the window allows.
    pub(super) fn flush(&mut self, effects: &mut Effects<Self>) {
        if let Role::Leader(reign) = &self.role {
            if reign.next < self.decided {
                // A state that was taken in lies behind all that was proposed here: another leads.
                return self.step_down(effects);
            }
            if reign.barrier.is_some_and(|barrier| barrier < self.decided) {
                self.collect(effects);
            }
        }
        if self.gathers(effects.now()) {
            return;
        }
        while !self.queue.values.is_empty() && self.has_room() {
            let mut bytes = 0usize;
            let fits = |(count, (_, size)): &(usize, &(V, u32))| {
                bytes += *size as usize;
                *count == 0
                    || (*count < self.parameters.batch_commands && bytes <= self.parameters.batch_bytes)
            };
            let count = self.queue.values.iter().enumerate().take_while(fits).count();
            let bytes: usize = self.queue.values.iter().take(count).map(|(_, size)| *size as usize).sum();
            let batch: Arc<[V]> = self.queue.values.drain(..count).map(|(value, _)| value).collect();
            self.queue.bytes -= bytes;
            let queued = self.queue.since;
            self.queue.since = effects.now();
            self.propose_slot(Value::Batch(batch), bytes, queued, effects);
            if let Role::Leader(reign) = &mut self.role
                && let Some(task) = &mut reign.task
                && task.passed(count)
            {
                self.propose_change(effects);
            }
        }
    }

    /// Whether what waits goes on waiting while the disk here is busy with what was proposed before: where
    /// replicas are near, syncs are what bounds the rate, and fewer, larger ones serve more. Not for long: the others' disks
    /// are a majority without this one.
    fn gathers(&self, now: Instant) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        self.parameters.gather
            && now.since(self.queue.since) < GATHER_MAX
            && reign.next > self.decided.min(reign.durable)
            && self.queue.values.len() < self.parameters.batch_commands
            && self.queue.bytes < self.parameters.batch_bytes
    }

    fn has_room(&self) -> bool {
        let Role::Leader(reign) = &self.role else { return false };
        let hands_over = matches!(reign.task, Some(Task { heir: Some(_), .. }));
        !hands_over
            && self.is_member()
            && !reign.task.as_ref().is_some_and(Task::is_due)
            && reign.barrier.is_none()
            && reign.next.since(self.decided) < self.parameters.window
            && reign.flying_bytes < self.parameters.window_bytes
    }

    /// Phase 2 for the next free slot. `Accept` goes ahead of the own record and the own vote goes behind
    /// it; the module says why both must be so.
    pub(super) fn propose_slot(
        &mut self,
        value: Value<V>,
        bytes: usize,
        queued: Instant,
        effects: &mut Effects<Self>,
    ) {
        let configuration = self.configuration.clone();
        let Role::Leader(reign) = &mut self.role else { return };
        let (ballot, slot, now, decided) = (reign.ballot, reign.next, effects.now(), self.decided);
        reign.next = slot.next();
        reign.flying_bytes += bytes;
        reign.flights.insert(slot, Flight::new(configuration, bytes, queued, now));
        if matches!(value, Value::Change(_)) {
            reign.barrier = Some(slot);
        }
        self.vote(ballot, slot, value.clone());
        if matches!(value, Value::Change(_)) {
            self.refresh_peers();
        }
        if let (Some(announced), Value::Batch(values)) = (&mut self.announced, &value) {
            announced.push_back(values.clone());
        }
        for peer in &self.peers {
            if peer.replica != self.me {
                let value = value.clone();
                effects.send_ahead(peer.process, Message::Accept { ballot, slot, value, decided });
            }
        }
        let own = Message::Accepted { ballot, first: slot, last: slot };
        if self.parameters.mutated(Mutation::OwnVoteAtOnce) {
            effects.record(Record::Accepted { ballot, slot, value, decided });
            return self.on_accepted(self.process, ballot, slot, slot, effects);
        }
        effects.record(Record::Accepted { ballot, slot, value, decided });
        effects.send(self.process, own);
    }

    pub(super) fn on_accepted(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        first: Slot,
        last: Slot,
        effects: &mut Effects<Self>,
    ) {
        let Some(voter) = self.seat(from) else { return };
        let now = effects.now();
        let double = self.parameters.mutated(Mutation::CountDuplicateVote);
        let me = self.me;
        let Role::Leader(reign) = &mut self.role else { return };
        if reign.ballot != ballot {
            return;
        }
        reign.contact.heard(voter, now);
        if voter == me {
            reign.durable = reign.durable.max(last.next());
        }
        for slot in first.max(reign.flights.base()).until(last.next().min(reign.next)) {
            let Some(flight) = reign.flights.get_mut(slot) else { continue };
            flight.voters.insert(voter);
            flight.cast += 1;
            if voter == me {
                flight.own = Some(now);
            }
            let majority = flight.configuration.majority();
            let enough =
                flight.configuration.quorum(flight.voters) || (double && flight.cast as usize >= majority);
            if !flight.decided && enough {
                flight.decided = true;
                flight.quorum = now;
                effects.mark(Note::LastVoter(from.node));
            }
        }
        self.collect(effects);
    }

    /// Moves the commit index over everything that has its quorum.
    fn collect(&mut self, effects: &mut Effects<Self>) {
        while let Role::Leader(reign) = &mut self.role {
            let slot = self.decided;
            let Some(flight) = reign.flights.get(slot) else { break };
            if !flight.decided {
                break;
            }
            reign.flying_bytes -= flight.bytes;
            self.step_decided();
        }
        if let Role::Leader(reign) = &mut self.role
            && reign.barrier.take_if(|barrier| *barrier < self.decided).is_some()
        {
            self.after_change(effects);
        }
        self.end_change(effects);
        if matches!(&self.role, Role::Leader(reign) if reign.task.as_ref().is_some_and(Task::is_due)) {
            self.propose_change(effects);
        }
    }

    /// The timer of heartbeats.
    pub(super) fn beat(&mut self, effects: &mut Effects<Self>) {
        self.beat_as(effects.now(), effects);
    }

    fn beat_as(&mut self, sent: Instant, effects: &mut Effects<Self>) {
        let now = effects.now();
        if self.watch.forget(now) {
            self.draw_patience(effects);
        }
        if let Role::Leader(reign) = &mut self.role {
            // Who follows bears as much one way. No lease rests on it: those end by what was answered, and when.
            reign.contact.bear(self.watch.silence() * 2);
            // Who stood still, busy with a large value perhaps, has asked nobody meanwhile, and has read no answer.
            let late = now.since(reign.said).saturating_sub(self.parameters.heartbeat);
            if late >= self.parameters.election {
                reign.contact.excuse(late, now);
            }
        }
        self.pursue(effects);
        let (decided, me) = (self.decided, self.me);
        let Role::Leader(reign) = &mut self.role else { return };
        let ballot = reign.ballot;
        let hears = reign.hears_quorum(&self.configuration, me, now);
        if !hears {
            // Deaf or cut off: others will elect another, and clients had better look for it.
            effects.mark(Note::Counted("leaders_cut_off"));
            self.step_down(effects);
            return self.watch.cut_off(ballot);
        }
        let Role::Leader(reign) = &mut self.role else { return };
        reign.said = reign.said.max(sent);
        for peer in &self.peers {
            if peer.replica != me {
                let beat = Message::Heartbeat { ballot, decided, sent };
                effects.urgently(|effects| effects.send_ahead(peer.process, beat));
            }
        }
        effects.repeating(|effects| self.resend(effects));
        effects.arm(Timer::Heartbeat, self.parameters.heartbeat);
    }

    /// Asks again for votes that should have come.
    fn resend(&mut self, effects: &mut Effects<Self>) {
        let (now, decided, patience) = (effects.now(), self.decided, self.parameters.resend);
        let prefix = self.parameters.form == Form::Prefix;
        let Role::Leader(reign) = &mut self.role else { return };
        let ballot = reign.ballot;
        let mut late = false;
        for slot in decided.until(reign.next).take(RESEND_SLOTS) {
            let (Some(flight), Some(vote)) = (reign.flights.get_mut(slot), self.votes.get(slot)) else {
                continue;
            };
            // A follower that lacks one slot of a prefix log has taken none behind it.
            if flight.decided || now.since(flight.sent) < patience && !(prefix && late) {
                continue;
            }
            late = true;
            flight.sent = now;
            for peer in &self.peers {
                if peer.replica != self.me && !flight.voters.contains(peer.replica) {
                    let value = vote.value.clone();
                    effects.send_ahead(peer.process, Message::Accept { ballot, slot, value, decided });
                }
            }
        }
    }

    pub(super) fn on_heard(
        &mut self,
        from: ProcessId,
        ballot: Ballot,
        sent: Instant,
        decided: Slot,
        bound: Span,
        effects: &mut Effects<Self>,
    ) {
        let Some(follower) = self.seat(from) else { return };
        self.watch.answered(ballot, effects.now());
        let terms = self.parameters.lease_terms().at_most(bound);
        let ours = self.decided;
        let Role::Leader(reign) = &mut self.role else { return };
        if reign.ballot != ballot {
            return;
        }
        reign.contact.heard(follower, effects.now());
        let answered = reign.answered.entry(follower).or_insert(sent);
        *answered = (*answered).max(sent);
        reign.lease.granted(follower, terms.held_until(sent));
        let caught_up = ours.since(decided) <= LEARNER_SLACK;
        let learner = reign.learner.is_some_and(|learner| learner.replica == follower);
        if learner && let Some(task) = &mut reign.task {
            task.heard = effects.now();
        }
        if learner && caught_up {
            self.propose_change(effects);
        } else if matches!(&reign.task, Some(Task { heir: Some(heir), .. }) if heir.replica == follower) {
            self.pursue(effects);
        }
    }
}

impl Flight {
    fn new(configuration: Arc<Configuration>, bytes: usize, queued: Instant, now: Instant) -> Flight {
        Flight {
            voters: ReplicaSet::EMPTY,
            cast: 0,
            configuration,
            decided: false,
            bytes,
            sent: now,
            queued,
            proposed: now,
            own: None,
            quorum: now,
        }
    }
}
