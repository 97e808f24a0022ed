//! The group log: a sequence of slots that a majority of replicas decides, held by whatever executes it.
//!
//! A [`Log`] is a process of its own kind that another process holds by [`Effects::lend`]: Multi-Paxos'
//! replica here, the participant of a transaction group or the host of a stream elsewhere. The holder
//! proposes values ([`Order::propose`]), hands every message, record and timer of the log to it, and after
//! each takes out what was decided, in order ([`Order::step`]).
//!
//! Two forms, chosen by [`Form`]: *slots*, where positions may have gaps and a new leader adopts each
//! separately, and *prefix*, where they are accepted in order and one promised log is adopted whole.
//!
//! # Why it agrees
//! - A replica that has promised a ballot takes part in none below it; promises and votes are durable
//!   before anyone hears of them.
//! - A leader proposes only what phase 1 in its ballot allows: for each slot the value accepted in the
//!   highest ballot that a majority reported (slots), or one log whole, that of the highest (ballot of
//!   adoption, length) (prefix). In the prefix form a follower takes a leader's adopted log in one record,
//!   so that no crash leaves a mixture of two logs.
//! - A slot's quorum is a majority of the configuration in force there: the one that the last change before
//!   it decided. A leader proposes nothing behind a change that is not decided. A candidate that finds
//!   changes among what it must adopt needs promises of a majority of each configuration involved.
//!
//! # What goes ahead of the journal, and why that is safe
//! `Accept` and `Adopt` of a leader leave by `send_ahead`. They rest on two things. On the ballot: it is
//! durable, because `Prepare` was held behind the record of the candidate's own promise, so a restarted
//! leader can never use the ballot again. On the commit index they carry: it counts durable votes only,
//! because **the leader's own vote is a message to itself sent behind its record**; counted at once, the
//! index would tell followers of a commit that rests on a vote a crash can still undo. Both mistakes are
//! planted as mutations (`PrepareAhead`, `OwnVoteAtOnce`). Refusals, polls, heartbeats and decided values
//! rest on no record at all.

mod acceptor;
mod ahead;
mod catchup;
mod change;
mod configuration;
mod election;
mod leader;
mod message;
#[cfg(test)]
mod tests;

pub use crate::order::Member;
pub use configuration::Configuration;
use configuration::NO_SEAT;
pub use message::{Answer, Message, Note, Record, Report, Timer, Value};

use super::{Form, Mutation, Parameters};
use crate::chunks::chunked;
use crate::election::Watch;
use crate::keep::Keep;
use crate::order::{Decided, Membership, Order, Ordered, Setup, Step, Takes, digest};
use crate::request::{Change, Refusal};
use election::Campaign;
use isochrone_core::{
    Admit, Ballot, Blob, Effects, Identity, Instant, Malformed, Process, ProcessId, Promise, ReplicaId, Slot,
    SlotLog, Snapshot, Tally, Ticket, Wire, wire,
};
use leader::Reign;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A vote: a value and the ballot it was accepted in.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
struct Vote<V: Wire> {
    ballot: Ballot,
    value: Value<V>,
}

/// What this replica is doing.
#[derive(Clone, Hash, Debug)]
enum Role<V: Wire> {
    /// It votes, or as a learner only listens.
    Follower,
    /// It asks whether a campaign would be welcome.
    Poll { ballot: Ballot, tally: Tally },
    /// It gathers promises.
    Candidate(Campaign<V>),
    /// It proposes.
    Leader(Box<Reign>),
}

/// Values that wait for a slot.
#[derive(Clone, Hash, Debug)]
struct Queue<V> {
    values: VecDeque<(V, u32)>,
    bytes: usize,
    /// Since when the first of them waits.
    since: Instant,
}

/// One replica of a group log. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Log<V: Wire> {
    /// Its seat, the last one where it is no member any more.
    me: ReplicaId,
    process: ProcessId,
    incarnation: u32,
    preferred: Option<ReplicaId>,
    parameters: Parameters,

    /// In force at slot `decided`.
    configuration: Arc<Configuration>,
    /// All who may be spoken to: the members, those of changes not yet decided, a learner.
    peers: Vec<Member>,

    promise: Promise,
    /// The ballot of the leader whose log this is (prefix form).
    tail: Ballot,
    votes: SlotLog<Vote<V>>,
    /// Everything before it is decided, and held unless trimmed.
    decided: Slot,
    /// Everything before it was handed to the holder.
    delivered: Slot,
    /// The sizes of the delivered slots that are kept for others, bytes.
    kept: VecDeque<u32>,
    kept_bytes: usize,
    /// See [`Order::hold`].
    serving: bool,

    role: Role<V>,
    queue: Queue<V>,
    /// The highest ballot heard of, promised or not.
    seen: Ballot,
    /// Who is followed.
    watch: Watch,
    started: Instant,
    /// The lease granted last.
    grant: Option<(ReplicaId, Instant)>,
    /// Until when those may hold that others were granted before it: who was cut off does not know that it leads no more.
    granted_before: Instant,

    /// Someone knows everything before it to be decided.
    known: Slot,
    /// Who said so.
    teller: Option<ProcessId>,
    /// Whether the timer of repair runs.
    repairing: bool,
    /// A peer whose log no longer holds what this one lacks.
    behind: Option<ProcessId>,
    /// It has led, and leads no more: what it had queued or proposed may be lost.
    dropped: bool,
    /// What was proposed here and not told yet, in order; none where the holder does not ask for it.
    announced: Option<VecDeque<Arc<[V]>>>,
}

/// A chunk of a log's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Wire> {
    promise: Promise,
    tail: Ballot,
    decided: Slot,
    configuration: Arc<Configuration>,
    votes: Vec<(Slot, Ballot, Value<V>)>,
}

impl<V: Wire> Log<V> {
    /// Whether this replica leads and takes proposals.
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// The process that leads, as far as is known here.
    pub fn leader(&self) -> Option<ProcessId> {
        if self.leads() {
            return Some(self.process);
        }
        self.process_of(self.watch.leader?.owner)
    }

    fn process_of(&self, replica: ReplicaId) -> Option<ProcessId> {
        self.peers.iter().find(|peer| peer.replica == replica).map(|peer| peer.process)
    }

    /// The highest ballot promised.
    pub fn ballot(&self) -> Ballot {
        self.promise.ballot()
    }

    /// Everything before it is decided.
    pub fn decided(&self) -> Slot {
        self.decided
    }

    /// The first slot that is still held here.
    pub fn base(&self) -> Slot {
        self.votes.base()
    }

    /// The members, as of what is decided.
    pub fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// Counts a delivered slot among those kept for others and trims beyond the bounds.
    fn keep(&mut self, size: u32) {
        self.kept.push_back(size);
        self.kept_bytes += size as usize;
        let mut base = self.votes.base();
        let keep = Keep::new(self.parameters.keep_slots, self.parameters.keep_bytes, self.serving);
        while keep.exceeded(self.kept.len(), self.kept_bytes) {
            let Some(size) = self.kept.pop_front() else { break };
            self.kept_bytes -= size as usize;
            base = base.next();
        }
        self.votes.trim(base);
    }

    /// With the bug planted, a hole before a slot that was voted for is stepped over.
    fn skips_gap(&mut self) -> bool {
        let open = self.decided;
        let gap = self.parameters.mutated(Mutation::ApplyGap)
            && self.delivered == open
            && self.known > open.next()
            && self.votes.get(open).is_none()
            && self.votes.get(open.next()).is_some();
        if gap {
            self.decided = open.plus(2);
            self.delivered = open.next();
        }
        gap
    }

    /// The seat of a process.
    fn seat(&self, process: ProcessId) -> Option<ReplicaId> {
        self.peers.iter().find(|peer| peer.process == process).map(|peer| peer.replica)
    }

    /// Whether this replica may vote and lead.
    fn is_member(&self) -> bool {
        self.configuration.seat(self.process).is_some()
    }

    /// All members of all configurations that may be in force soon, and the learner.
    fn refresh_peers(&mut self) {
        self.me = self.configuration.seat(self.process).unwrap_or(self.me);
        let mut peers = self.configuration.members().to_vec();
        let mut add = |member: &Member| {
            if !peers.iter().any(|known| known.process == member.process) {
                peers.push(*member);
            }
        };
        for (_, vote) in self.votes.range(self.decided) {
            if let Value::Change(next) = &vote.value {
                next.members().iter().for_each(&mut add);
            }
        }
        if let Role::Leader(reign) = &self.role
            && let Some(learner) = &reign.learner
        {
            add(learner);
        }
        self.peers = peers;
    }

    /// One more slot is decided, and what it says of the members is in force; whether it says anything of them.
    fn step_decided(&mut self) -> bool {
        let slot = self.decided;
        self.decided = slot.next();
        self.known = self.known.max(self.decided);
        let Some(Vote { value: Value::Change(next), .. }) = self.votes.get(slot) else { return false };
        self.configuration = next.clone();
        self.refresh_peers();
        true
    }
}

impl<V: Ordered> Log<V> {
    /// The next decided slot, once. What the holder makes of it waits for every record the log has made.
    /// A new leader holds decisions back until leases that others may hold have run out.
    fn next_decided(&mut self, now: Instant) -> Option<Decided<V>> {
        if self.delivered >= self.decided && !self.skips_gap() {
            return None;
        }
        if let Role::Leader(reign) = &self.role
            && reign.waiting.is_some()
        {
            return None;
        }
        let slot = self.delivered;
        let vote = self.votes.get(slot)?;
        let value = vote.value.clone();
        let size = u32::try_from(wire::encoded_size(&value)).unwrap_or(u32::MAX);
        let spans = match &mut self.role {
            Role::Leader(reign) => reign.land(slot, now),
            _ => None,
        };
        self.delivered = slot.next();
        self.keep(size);
        let (values, digest) = match value {
            Value::Batch(values) => {
                let digest = digest(&values);
                (values, digest)
            }
            Value::NoOp | Value::Change(_) => {
                let mut hasher = rustc_hash::FxHasher::default();
                value.hash(&mut hasher);
                (Arc::default(), hasher.finish())
            }
        };
        let (position, answer) = (slot.0, self.leads());
        Some(Decided { position, digest, values, answer, spans })
    }
}

impl<V: Ordered> Order for Log<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = (Slot, Arc<Configuration>);

    const TOTAL: bool = true;
    const AHEAD: bool = true;
    const DEFERS: bool = true;
    const MEMBERSHIP: Membership = Membership::Own;

    fn takes(&self) -> Takes {
        match (self.leads(), self.leader()) {
            (true, _) => Takes::Here,
            (false, Some(leader)) => Takes::At(leader),
            (false, None) => Takes::Nobody,
        }
    }

    fn candidate(&self) -> Option<ProcessId> {
        self.process_of(self.watch.candidate(self.promise.ballot())?.owner)
    }

    fn leads(&self) -> bool {
        Log::leads(self)
    }

    fn may_read(&self, now: Instant) -> bool {
        Log::may_read(self, now)
    }

    fn members(&self) -> &[Member] {
        self.configuration.members()
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        self.enqueue(value, bytes, now)
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        match self.next_decided(now) {
            Some(decided) => Some(Step::Decided(decided)),
            None => std::mem::take(&mut self.dropped).then_some(Step::Dropped),
        }
    }

    fn serial(&self) -> u64 {
        self.delivered.0
    }

    fn position(&self) -> (Slot, Arc<Configuration>) {
        // The members at `decided`: coming by the changes before it again makes them the same.
        (self.delivered, self.configuration.clone())
    }

    fn serves(&self, serial: u64) -> bool {
        serial >= self.base().0
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind.filter(|_| !self.leads())
    }

    /// Votes for later slots stay: they are this replica's word.
    fn install(&mut self, (position, configuration): &(Slot, Arc<Configuration>)) -> bool {
        self.behind = None;
        let position = *position;
        if position <= self.delivered {
            return false;
        }
        self.votes.trim(position);
        self.kept.clear();
        self.kept_bytes = 0;
        self.delivered = position;
        if let Role::Leader(reign) = &mut self.role {
            reign.skip(self.decided, position);
        }
        if position > self.decided {
            self.decided = position;
            self.configuration = configuration.clone();
        }
        self.known = self.known.max(position);
        self.refresh_peers();
        true
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        self.on_change(ticket, change, effects);
    }
}

impl<V: Wire> Process for Log<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Answer;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Log<V> {
        let configuration = Arc::new(Configuration::initial(&setup.members));
        Log {
            me: configuration.seat(identity.process).unwrap_or(NO_SEAT),
            process: identity.process,
            incarnation: identity.incarnation,
            preferred: setup.preferred,
            parameters: setup.parameters,
            peers: configuration.members().to_vec(),
            configuration,
            promise: Promise::default(),
            tail: Ballot::ZERO,
            votes: SlotLog::default(),
            decided: Slot::ZERO,
            delivered: Slot::ZERO,
            kept: VecDeque::new(),
            kept_bytes: 0,
            serving: false,
            role: Role::Follower,
            queue: Queue { values: VecDeque::new(), bytes: 0, since: Instant::ZERO },
            seen: Ballot::ZERO,
            watch: Watch::new(setup.parameters.election),
            started: Instant::ZERO,
            grant: None,
            granted_before: Instant::ZERO,
            known: Slot::ZERO,
            teller: None,
            repairing: false,
            behind: None,
            dropped: false,
            announced: None,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let image: Image<V> = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "log snapshot chunk", cause: error.to_string() })?;
        if self.votes.is_empty() {
            self.votes.reset(image.decided);
        }
        (self.promise, self.tail, self.configuration) = (image.promise, image.tail, image.configuration);
        (self.decided, self.delivered, self.known) = (image.decided, image.decided, image.decided);
        for (slot, ballot, value) in image.votes {
            self.votes.insert(slot, Vote { ballot, value });
        }
        self.refresh_peers();
        Ok(())
    }

    fn replay(&mut self, record: Record<V>) {
        let forget = self.parameters.mutated(Mutation::ForgetPromise);
        match record {
            Record::Promised { .. } if forget => {}
            Record::Promised { ballot } => {
                self.promise.admit(ballot);
            }
            Record::Accepted { ballot, slot, value, decided } => {
                if !forget {
                    self.promise.admit(ballot);
                }
                self.recall(decided);
                self.vote(ballot, slot, value);
            }
            Record::Adopted { ballot, from, values, decided } => {
                if !forget {
                    self.promise.admit(ballot);
                }
                self.recall(decided);
                self.vote_all(ballot, from, &values);
            }
            Record::Learned { from, values } => {
                self.recall(from);
                self.learn(from, &values);
            }
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        (self.started, self.watch.heard) = (effects.now(), effects.now());
        self.seen = self.promise.ballot();
        self.refresh_peers();
        self.draw_patience(effects);
        let first = self.incarnation == 1 || self.parameters.mutated(Mutation::PrepareAhead);
        if first && self.preferred == Some(self.me) && self.is_member() {
            self.campaign(effects);
        } else {
            effects.arm(Timer::Watch, self.watch.patience);
        }
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        match message {
            Message::Poll { ballot, decided } => self.on_poll(from, ballot, decided, effects),
            Message::Polled { ballot, granted, promised, decided } => {
                self.on_polled(from, ballot, granted, promised, decided, effects);
            }
            Message::Prepare { ballot, from: first } => self.on_prepare(from, ballot, first, effects),
            Message::Promised { ballot, report } => self.on_promised(from, ballot, *report, effects),
            Message::Accept { ballot, slot, value, decided } => {
                self.on_accept(from, ballot, slot, value, decided, effects);
            }
            Message::Adopt { ballot, from: first, values, decided } => {
                self.on_adopt(from, ballot, first, values, decided, effects);
            }
            Message::Accepted { ballot, first, last } => self.on_accepted(from, ballot, first, last, effects),
            Message::Rejected { promised, decided } => self.on_rejected(from, promised, decided, effects),
            Message::Heartbeat { ballot, decided, sent } => {
                self.on_heartbeat(from, ballot, decided, sent, effects);
            }
            Message::Heard { ballot, sent, decided, bound } => {
                self.on_heard(from, ballot, sent, decided, bound, effects);
            }
            // What it lacks may be on its way.
            Message::Fetch { from: first } => {
                effects.repeating(|effects| self.on_fetch(from, first, effects));
            }
            Message::Learned { from: first, values, decided } => {
                self.on_learned(from, first, values, decided, effects);
            }
            Message::Trimmed { decided } => self.on_trimmed(from, decided),
            Message::Handover { ballot, decided } => self.on_handover(from, ballot, decided, effects),
            Message::Promising { ballot } => self.on_promising(from, ballot, effects.now()),
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Watch => self.watch(effects),
            Timer::Campaign => self.press(effects),
            Timer::Heartbeat => self.beat(effects),
            Timer::Repair => self.repair(effects),
            Timer::Wait => {
                if let Role::Leader(reign) = &mut self.role {
                    reign.waiting = None;
                }
            }
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.flush(effects);
    }

    /// What was decided and delivered is the holder's to keep; here go the promise, the members and the
    /// votes for what may still be open.
    fn snapshot(&self) -> Option<Snapshot> {
        let from = self.delivered;
        // The members are those at `decided`; coming by the changes before it again makes them the same.
        let head = Image {
            promise: self.promise,
            tail: self.tail,
            decided: from,
            configuration: self.configuration.clone(),
            votes: Vec::new(),
        };
        let votes = self.votes.range(from).map(|(s, v)| (s, v.ballot, v.value.clone())).collect();
        Some(chunked(votes, move |votes| Image { votes, ..head.clone() }))
    }

    fn check(&self) {
        assert!(self.delivered <= self.decided, "{} delivered beyond {}", self.delivered, self.decided);
        if self.parameters.mutation.is_some() {
            return;
        }
        assert!(self.votes.base() <= self.delivered, "an undelivered slot was trimmed");
        assert!(self.votes.contiguous() >= self.decided, "a decided slot is missing");
        assert!(self.seen >= self.promise.ballot(), "a promise unheard of");
        if self.parameters.form == Form::Prefix {
            assert!(self.votes.contiguous() == self.votes.end(), "a gap in a prefix log");
            assert!(self.tail <= self.promise.ballot(), "a log adopted without a promise");
        }
        if let Role::Leader(reign) = &self.role {
            assert!(reign.ballot == self.promise.ballot(), "a leader has promised another ballot");
            assert!(reign.next >= self.decided && self.votes.end() <= reign.next, "slots nobody proposed");
        }
    }
}

impl<V: Wire> Log<V> {
    /// Takes part in a leader's ballot, if that is not too old, and follows it. Records the promise where
    /// it rises.
    fn admit(&mut self, from: ProcessId, ballot: Ballot, effects: &mut Effects<Self>) -> bool {
        self.seen = self.seen.max(ballot);
        self.watch.lives(ballot, effects.now());
        match self.promise.admit(ballot) {
            Admit::Stale => {
                let (promised, decided) = (self.promise.ballot(), self.decided);
                let rejected = Message::Rejected { promised, decided };
                effects.urgently(|effects| effects.send_ahead(from, rejected));
                return false;
            }
            Admit::Fresh => effects.record(Record::Promised { ballot }),
            Admit::Same => {}
        }
        self.watch.heard = effects.now();
        if self.watch.leader != Some(ballot) {
            self.give_way(effects.now());
            self.step_down(effects);
            self.watch.leader = Some(ballot);
            self.watch.failures = 0;
            self.draw_patience(effects);
        }
        true
    }

    /// No longer polls, campaigns or leads.
    fn step_down(&mut self, effects: &mut Effects<Self>) {
        let role = std::mem::replace(&mut self.role, Role::Follower);
        self.watch.leader = None;
        match role {
            Role::Follower => return,
            Role::Poll { .. } | Role::Candidate(_) => effects.disarm(Timer::Campaign),
            Role::Leader(reign) => {
                effects.disarm(Timer::Heartbeat);
                effects.disarm(Timer::Wait);
                effects.mark(Note::Follows);
                if let Some(task) = reign.task {
                    // Whose ballot ends it may have been told by another before it comes itself.
                    effects.complete(task.ticket, task.end(self.promise.ballot().max(self.seen)));
                }
                self.dropped = true;
                self.announced.iter_mut().for_each(VecDeque::clear);
                self.queue.values.clear();
                self.queue.bytes = 0;
                self.refresh_peers();
            }
        }
        effects.arm(Timer::Watch, self.watch.patience);
    }

    fn draw_patience(&mut self, effects: &mut Effects<Self>) {
        let places = self.configuration.members().iter().map(|member| member.replica);
        self.watch.draw(self.me, places, effects.random());
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Image<u8>>("multipaxos");
}
