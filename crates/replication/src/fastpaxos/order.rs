//! One replica's part in Fast Paxos, as a process that a replica holds.
//!
//! # Why it agrees
//! - A replica casts fast votes at rising indices only, one command each, and at every index at most one vote
//!   in a ballot. A ballot is a reign and a step: the fast one, in which every replica votes for what it gets
//!   from clients, and above it the classic one, in which the coordinator proposes. Votes, promises and what
//!   was skipped are durable before anyone hears of them.
//! - What a majority tells about an index in the fast ballot serves as phase 1 of the classic ballot of the
//!   same reign: with `|Q| + q - n` equal votes among `|Q|` told, that value may be chosen, and nothing else
//!   may be proposed ([`super::rule`]).
//! - A new reign begins with the promises of a majority. Behind all indices that any of these has voted for,
//!   nothing was or can be chosen in an earlier reign, so fast votes may be cast there; before that the
//!   coordinator proposes what the highest ballot voted in obliges it to.
//! - Votes of different reigns never add up.
//!
//! # What goes ahead of the journal, and why that is safe
//! `Accept` and `Open` rest on the reign only, whose promise was durable before `Prepare` left; a coordinator
//! never goes on in a reign after a restart, not even in the first one, which needs no promises. Its own vote
//! is a message to itself behind its record. What is decided rests on durable votes.

use super::coordinator::Reign;
use super::election::Campaign;
use super::message::{Message, NO_SEAT, Name, Note, Record, Timer, Values, Vote};
use super::{Learners, Mutation, Parameters};
use crate::chunks::fill;
use crate::order::{Decided, Member, Membership, Order as Orders, Ordered, Setup, Step, Takes};
use crate::request::{Change, Refusal};
use isochrone_core::{
    Ballot, Blob, CommandId, Effects, Identity, Instant, Malformed, Process, ProcessId, Promise, Quorums,
    ReplicaId, Slot, SlotLog, Snapshot, Span, Tally, Ticket, wire,
};
use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What is known of one index.
#[derive(Clone, Hash, Debug)]
pub(super) struct Cell<V: Ordered> {
    /// The own vote.
    pub(super) vote: Option<Vote<V>>,
    /// The reign whose fast votes are counted.
    pub(super) reign: Ballot,
    /// Who has told its fast vote, and what it is; none where it has cast none and will not.
    pub(super) heard: Vec<(ReplicaId, Option<Name>)>,
    /// Since when votes are awaited, or were last asked for.
    pub(super) since: Instant,
    /// What is decided.
    pub(super) outcome: Option<Values<V>>,
    /// Whether this replica found out by itself.
    pub(super) learned: bool,
    /// When votes came first, were recovered, and when that was decided here: of what took the long way.
    pub(super) recovered: Option<[Instant; 3]>,
}

impl<V: Ordered> Cell<V> {
    fn new(now: Instant) -> Cell<V> {
        Cell {
            vote: None,
            reign: Ballot::ZERO,
            heard: Vec::new(),
            since: now,
            outcome: None,
            learned: false,
            recovered: None,
        }
    }
}

/// A command that was proposed here and has no place yet.
#[derive(Clone, Hash, Debug)]
pub(super) struct Pending<V> {
    pub(super) value: V,
    pub(super) digest: u64,
    bytes: u32,
    /// Since when, or when it was last submitted.
    pub(super) since: Instant,
    /// The index at which this replica has voted for it.
    pub(super) slot: Option<Slot>,
}

/// What this replica is doing beside voting.
#[derive(Clone, Hash, Debug)]
pub(super) enum Role<V: Ordered> {
    /// It follows a coordinator.
    Follower,
    /// It asks whether a campaign would be welcome.
    Poll { reign: Ballot, tally: Tally },
    /// It gathers promises.
    Candidate(Campaign<V>),
    /// It coordinates.
    Coordinator(Box<Reign<V>>),
}

/// A change of the coordinator under way.
#[derive(Clone, Hash, Debug)]
pub(super) struct Task {
    pub(super) ticket: Ticket,
    /// Who is to coordinate; none where it is anybody but this one.
    pub(super) heir: ReplicaId,
}

/// One replica of Fast Paxos. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Order<V: Ordered> {
    pub(super) me: ReplicaId,
    pub(super) process: ProcessId,
    pub(super) incarnation: u32,
    pub(super) members: Arc<[Member]>,
    pub(super) parameters: Parameters,

    pub(super) promise: Promise,
    /// The reign whose beginning this replica has; it casts fast votes while that is the one promised.
    pub(super) opened: Ballot,
    /// Whether no fast votes are cast in it.
    pub(super) closed: bool,
    /// The next index to vote at: below it no fast vote is cast any more.
    pub(super) next: Slot,
    pub(super) cells: SlotLog<Cell<V>>,
    /// Everything before it is decided, and held unless trimmed.
    pub(super) decided: Slot,
    /// Everything before it was handed to the holder.
    delivered: Slot,
    /// The sizes of delivered indices that are kept for others, bytes.
    kept: VecDeque<u32>,
    kept_bytes: usize,
    /// Decided in this turn, to be recorded.
    fresh: Vec<(Slot, Option<Values<V>>)>,

    /// What was proposed here and has no place.
    pub(super) pending: BTreeMap<CommandId, Pending<V>>,
    pub(super) pending_bytes: usize,
    /// What of it waits for a vote.
    pub(super) queue: VecDeque<CommandId>,
    /// What cannot be voted for, since it has no name, and is submitted in this turn.
    pub(super) nameless: Vec<V>,
    /// Whether the timer of submissions runs.
    pub(super) submitting: bool,

    pub(super) role: Role<V>,
    /// The highest reign heard of, promised or not.
    pub(super) seen: Ballot,
    /// The reign of the coordinator that is being followed.
    pub(super) coordinator: Option<Ballot>,
    pub(super) heard: Instant,
    /// How long to hear nothing before polling.
    pub(super) patience: Span,
    /// Campaigns that failed since a coordinator was heard.
    pub(super) failures: u32,
    pub(super) task: Option<Task>,

    /// Someone knows everything before it to be decided.
    pub(super) known: Slot,
    /// Who said so.
    pub(super) teller: Option<ProcessId>,
    /// Whether the timer of repair runs.
    pub(super) repairing: bool,
    /// A peer that no longer holds what this one lacks.
    pub(super) behind: Option<ProcessId>,
}

/// A chunk of an order's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Ordered> {
    promise: Promise,
    opened: Ballot,
    closed: bool,
    next: Slot,
    decided: Slot,
    votes: Vec<(Slot, Vote<V>)>,
    outcomes: Vec<(Slot, Values<V>)>,
}

/// A hash of a value: the same everywhere.
pub(super) fn digest<T: Hash + ?Sized>(value: &T) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<V: Ordered> Order<V> {
    /// The highest reign promised.
    pub fn reign(&self) -> Ballot {
        self.promise.ballot()
    }

    /// Everything before it is decided.
    pub fn decided(&self) -> Slot {
        self.decided
    }

    /// The next index to vote at.
    pub fn next(&self) -> Slot {
        self.next
    }

    pub(super) fn majority(&self) -> usize {
        Quorums::majority(self.members.len())
    }

    pub(super) fn fast_quorum(&self) -> usize {
        let size = Quorums::supermajority(self.members.len());
        if self.parameters.mutated(Mutation::FastQuorumTooSmall) { size - 1 } else { size }
    }

    /// The seat of a process.
    pub(super) fn seat(&self, process: ProcessId) -> Option<ReplicaId> {
        self.members.iter().find(|member| member.process == process).map(|member| member.replica)
    }

    /// The process on a seat.
    pub(super) fn process_of(&self, seat: ReplicaId) -> Option<ProcessId> {
        self.members.iter().find(|member| member.replica == seat).map(|member| member.process)
    }

    /// Who coordinates, as far as is known here.
    pub(super) fn coordinator_process(&self) -> Option<ProcessId> {
        match &self.role {
            Role::Coordinator(_) => Some(self.process),
            _ => self.process_of(self.coordinator?.owner),
        }
    }

    /// All members but this one.
    pub(super) fn peers(&self) -> impl Iterator<Item = ProcessId> + use<V> {
        let (members, me) = (self.members.clone(), self.me);
        (0..members.len()).map(move |at| members[at]).filter(move |m| m.replica != me).map(|m| m.process)
    }

    /// Whether this replica casts fast votes now.
    pub(super) fn is_open(&self) -> bool {
        self.opened == self.promise.ballot() && !self.closed
    }

    /// Whether this replica counts fast votes.
    pub(super) fn learns(&self) -> bool {
        self.parameters.learners == Learners::All || matches!(self.role, Role::Coordinator(_))
    }

    /// Bounds what a peer, or a fault, can make this replica hold.
    pub(super) fn is_beyond(&self, slot: Slot) -> bool {
        slot.since(self.decided) > self.parameters.window * 2 + 1_024
    }

    /// What is known of an index that is not trimmed.
    pub(super) fn cell(&mut self, slot: Slot, now: Instant) -> Option<&mut Cell<V>> {
        if slot < self.cells.base() {
            return None;
        }
        if self.cells.get(slot).is_none() {
            self.cells.insert(slot, Cell::new(now));
        }
        self.cells.get_mut(slot)
    }

    /// Whether this index is decided, as far as is known here.
    pub(super) fn is_decided(&self, slot: Slot) -> bool {
        slot < self.decided || self.cells.get(slot).is_some_and(|cell| cell.outcome.is_some())
    }

    /// An index is decided. False where that was known.
    pub(super) fn decide(&mut self, slot: Slot, values: Values<V>, learned: bool, now: Instant) -> bool {
        if self.is_decided(slot) {
            return false;
        }
        for value in values.iter() {
            self.forget_pending(value);
        }
        let Some(cell) = self.cell(slot, now) else { return false };
        let own = cell.vote.as_ref().is_some_and(|vote| vote.values == values);
        cell.outcome = Some(values.clone());
        cell.learned = learned;
        cell.heard = Vec::new();
        if let Role::Coordinator(reign) = &mut self.role {
            reign.land(slot, &values);
        }
        self.fresh.push((slot, (!own).then_some(values)));
        self.advance();
        true
    }

    /// A command has its place.
    fn forget_pending(&mut self, value: &V) {
        if let Some(id) = value.id()
            && let Some(pending) = self.pending.remove(&id)
        {
            self.pending_bytes -= pending.bytes as usize;
        }
    }

    /// Moves over everything decided.
    fn advance(&mut self) {
        while self.cells.get(self.decided).is_some_and(|cell| cell.outcome.is_some()) {
            self.decided = self.decided.next();
        }
        self.known = self.known.max(self.decided);
        self.next = self.next.max(self.decided);
    }

    /// Writes down what was decided in this turn: lazily, since a quorum holds it.
    fn note(&mut self, effects: &mut Effects<Self>) {
        if !self.fresh.is_empty() {
            effects.record_lazily(Record::Decided { entries: std::mem::take(&mut self.fresh) });
        }
    }

    /// Counts a delivered index among those kept for others and trims beyond the bounds.
    fn keep(&mut self, size: u32) {
        self.kept.push_back(size);
        self.kept_bytes += size as usize;
        let mut base = self.cells.base();
        while self.kept.len() > self.parameters.keep_slots || self.kept_bytes > self.parameters.keep_bytes {
            let Some(size) = self.kept.pop_front() else { break };
            self.kept_bytes -= size as usize;
            base = base.next();
        }
        self.cells.trim(base);
    }

    /// Takes a vote of its own into its cell, as from a record.
    pub(super) fn set_vote(
        &mut self,
        slot: Slot,
        reign: Ballot,
        classic: bool,
        values: Values<V>,
        now: Instant,
    ) {
        if !self.is_decided(slot)
            && let Some(cell) = self.cell(slot, now)
        {
            cell.vote = Some(Vote { reign, classic, values });
        }
    }

    fn dispatch(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        match message {
            Message::Votes { reign, first, names } => self.on_votes(from, reign, first, &names, effects),
            Message::Ask { reign, from: first, upto } => self.on_ask(from, reign, first, upto, effects),
            Message::Report { reign, from: first, upto, votes, decided } => {
                self.on_report(from, reign, (first, upto), votes, decided, effects);
            }
            Message::Submit { values } => self.on_submit(values, effects),
            Message::Accept { reign, entries, decided } => {
                self.on_accept(from, reign, &entries, decided, effects);
            }
            Message::Accepted { reign, slots } => self.on_accepted(from, reign, &slots, effects),
            Message::Commit { entries, decided } => self.on_commit(from, entries, decided, effects),
            Message::Heartbeat { reign, decided } => self.on_heartbeat(from, reign, decided, effects),
            Message::Heard { reign, opened, next, decided } => {
                self.on_heard(from, reign, opened, next, decided, effects);
            }
            Message::Poll { reign, decided } => self.on_poll(from, reign, decided, effects),
            Message::Polled { reign, granted, promised, decided } => {
                self.on_polled(from, reign, granted, promised, decided, effects);
            }
            Message::Prepare { reign, from: first } => self.on_prepare(from, reign, first, effects),
            Message::Promised { reign, report } => self.on_promised(from, reign, *report, effects),
            Message::Open { reign, floor, closed, entries, decided } => {
                let entries = (floor, closed, &*entries);
                self.on_open(from, reign, entries, decided, effects);
            }
            Message::Rejected { promised, decided } => self.on_rejected(from, promised, decided, effects),
            Message::Fetch { from: first } => self.on_fetch(from, first, effects),
            Message::Learned { from: first, values, decided } => {
                self.on_learned(from, first, &values, decided, effects);
            }
            Message::Trimmed { decided } => self.on_trimmed(from, decided),
            Message::Handover => self.on_handover(effects),
            // For clients, and what a client asks of an order that has ended.
            Message::Cast { .. } | Message::Placed { .. } | Message::Hello => {}
        }
    }
}

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Order<V> {
        let members = setup.members.clone();
        let me = members.iter().find(|member| member.process == identity.process);
        // The first reign is open to fast votes from the start, at everyone: nothing came before it.
        let owner = setup.preferred.or(members.first().map(|member| member.replica)).unwrap_or(NO_SEAT);
        let first = Ballot { round: 1, owner };
        let mut promise = Promise::default();
        promise.admit(first);
        Order {
            me: me.map_or(NO_SEAT, |member| member.replica),
            process: identity.process,
            incarnation: identity.incarnation,
            members,
            parameters: setup.parameters,
            promise,
            opened: first,
            closed: false,
            next: Slot::ZERO,
            cells: SlotLog::default(),
            decided: Slot::ZERO,
            delivered: Slot::ZERO,
            kept: VecDeque::new(),
            kept_bytes: 0,
            fresh: Vec::new(),
            pending: BTreeMap::new(),
            pending_bytes: 0,
            queue: VecDeque::new(),
            nameless: Vec::new(),
            submitting: false,
            role: Role::Follower,
            seen: first,
            coordinator: Some(first),
            heard: Instant::ZERO,
            patience: setup.parameters.suspect,
            failures: 0,
            task: None,
            known: Slot::ZERO,
            teller: None,
            repairing: false,
            behind: None,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let image: Image<V> = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "order snapshot chunk", cause: error.to_string() })?;
        if self.cells.is_empty() {
            self.cells.reset(image.decided);
        }
        (self.promise, self.opened, self.closed) = (image.promise, image.opened, image.closed);
        (self.decided, self.delivered, self.known) = (image.decided, image.decided, image.decided);
        for (slot, vote) in image.votes {
            self.set_vote(slot, vote.reign, vote.classic, vote.values, Instant::ZERO);
        }
        for (slot, values) in image.outcomes {
            if let Some(cell) = self.cell(slot, Instant::ZERO) {
                cell.outcome = Some(values);
            }
        }
        self.next = image.next;
        Ok(())
    }

    fn replay(&mut self, record: Record<V>) {
        let forget = self.parameters.mutated(Mutation::ForgetPromise);
        let mut promise = |reign: Ballot| {
            if !forget {
                self.promise.admit(reign);
            }
        };
        let zero = Instant::ZERO;
        match record {
            Record::Promised { reign } => promise(reign),
            Record::Voted { reign, first, values } => {
                promise(reign);
                for (offset, value) in values.into_iter().enumerate() {
                    let slot = first.plus(offset as u64);
                    self.set_vote(slot, reign, false, Arc::from([value]), zero);
                    self.next = self.next.max(slot.next());
                }
            }
            Record::Skipped { next } => self.next = self.next.max(next),
            Record::Accepted { reign, entries } => {
                promise(reign);
                for (slot, values) in entries {
                    self.set_vote(slot, reign, true, values, zero);
                    self.next = self.next.max(slot.next());
                }
            }
            Record::Opened { reign, floor, closed, entries } => {
                promise(reign);
                (self.opened, self.closed) = (reign, closed);
                for (slot, values) in entries {
                    self.set_vote(slot, reign, true, values, zero);
                }
                self.next = self.next.max(floor);
            }
            Record::Decided { entries } => {
                for (slot, values) in entries {
                    let own = || Some(self.cells.get(slot)?.vote.as_ref()?.values.clone());
                    if let Some(values) = values.or_else(own) {
                        self.decide(slot, values, false, zero);
                    }
                }
                self.fresh.clear();
            }
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.heard = effects.now();
        self.seen = self.seen.max(self.promise.ballot());
        self.coordinator = Some(self.promise.ballot());
        self.patience = self.draw_patience(effects);
        if self.promise.ballot().owner != self.me {
            effects.arm(Timer::Watch, self.patience);
        } else if self.incarnation == 1 || self.parameters.mutated(Mutation::ReignOn) {
            self.begin(effects);
        } else {
            // What it proposed in this reign before its restart it may not know any more.
            self.campaign(None, effects);
        }
        self.note(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        self.dispatch(from, message, effects);
        self.note(effects);
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Watch => self.watch(effects),
            Timer::Campaign => self.give_up_campaign(effects),
            Timer::Heartbeat => self.beat(effects),
            Timer::Repair => self.repair(effects),
            Timer::Submit => self.submit_late(effects),
            Timer::Change => self.end_task(Err(Refusal::TimedOut), effects),
        }
        self.note(effects);
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.submit_nameless(effects);
        self.cast(effects);
        self.drive(effects);
        self.note(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let head = Image {
            promise: self.promise,
            opened: self.opened,
            closed: self.closed,
            next: self.next,
            decided: self.delivered,
            votes: Vec::new(),
            outcomes: Vec::new(),
        };
        let open = self.cells.range(self.delivered);
        let vote = |(slot, cell): (Slot, &Cell<V>)| Some((slot, cell.vote.clone()?));
        let outcome = |(slot, cell): (Slot, &Cell<V>)| Some((slot, cell.outcome.clone()?));
        let mut votes: VecDeque<(Slot, Vote<V>)> = open.filter_map(vote).collect();
        let mut outcomes: VecDeque<(Slot, Values<V>)> =
            self.cells.range(self.delivered).filter_map(outcome).collect();
        let mut first = true;
        Some(Box::new(std::iter::from_fn(move || {
            if !first && votes.is_empty() && outcomes.is_empty() {
                return None;
            }
            first = false;
            let mut size = 0;
            // Votes before outcomes: an index that is decided takes no vote.
            let votes = fill(&mut votes, &mut size);
            let outcomes = fill(&mut outcomes, &mut size);
            Some(Blob::from(wire::encode(&Image { votes, outcomes, ..head.clone() })))
        })))
    }

    fn check(&self) {
        assert!(self.delivered <= self.decided, "{} delivered beyond {}", self.delivered, self.decided);
        assert!(self.fresh.is_empty(), "decided and not recorded");
        if self.parameters.mutation.is_some() {
            return;
        }
        assert!(self.cells.base() <= self.delivered, "an undelivered index was trimmed");
        assert!(self.next >= self.decided, "about to vote at {} below {}", self.next, self.decided);
        assert!(self.opened <= self.promise.ballot(), "took part in a reign without a promise");
        assert!(self.seen >= self.promise.ballot(), "a promise unheard of");
        if let Role::Coordinator(reign) = &self.role {
            assert!(reign.ballot == self.promise.ballot(), "a coordinator has promised another reign");
            assert!(reign.ballot.owner == self.me, "coordinates in another's reign");
        }
    }
}

impl<V: Ordered> Orders for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Slot;

    const TOTAL: bool = true;
    const AHEAD: bool = true;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;

    fn takes(&self) -> Takes {
        Takes::Here
    }

    fn leads(&self) -> bool {
        matches!(self.role, Role::Coordinator(_))
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        let Some(id) = value.id() else {
            self.nameless.push(value);
            return Ok(());
        };
        if self.pending.contains_key(&id) {
            return Ok(());
        }
        if self.pending.len() >= self.parameters.queue_commands
            || self.pending_bytes + bytes > self.parameters.queue_bytes.max(bytes)
        {
            return Err(Refusal::Overloaded);
        }
        let digest = digest(&value);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.pending_bytes += bytes as usize;
        self.pending.insert(id, Pending { value, digest, bytes, since: now, slot: None });
        self.queue.push_back(id);
        Ok(())
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        if self.delivered >= self.decided {
            return None;
        }
        let slot = self.delivered;
        let cell = self.cells.get_mut(slot)?;
        let values = cell.outcome.clone()?;
        // Nobody needs the vote for a decided index any more.
        cell.vote = None;
        let answer = cell.learned;
        let spans = cell.recovered.map(|[voted, sent, quorum]| {
            [sent.since(voted), Span::ZERO, quorum.since(sent), now.since(quorum)]
        });
        self.delivered = slot.next();
        let size = values.iter().map(wire::encoded_size).sum::<usize>() + 64;
        self.keep(u32::try_from(size).unwrap_or(u32::MAX));
        let digest = digest(&values[..]);
        Some(Step::Decided(Decided { position: slot.0, digest, values, answer, spans }))
    }

    fn serial(&self) -> u64 {
        self.delivered.0
    }

    fn position(&self) -> Slot {
        self.delivered
    }

    fn serves(&self, serial: u64) -> bool {
        Slot(serial) >= self.cells.base()
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind
    }

    fn install(&mut self, position: &Slot) -> bool {
        self.behind = None;
        if *position <= self.delivered {
            return false;
        }
        self.cells.trim(*position);
        self.kept.clear();
        self.kept_bytes = 0;
        self.delivered = *position;
        self.decided = self.decided.max(*position);
        self.advance();
        if let Role::Coordinator(reign) = &mut self.role {
            reign.drop_below(*position);
        }
        true
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        self.hand_over(ticket, change, effects);
    }
}
