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
use super::message::{Name, Record, Values, Vote};
use super::{Learners, Mutation, Parameters};
use crate::election::Watch;
use crate::keep::Keep;
use crate::order::{Member, Ordered};
use isochrone_core::{
    Ballot, CommandId, Effects, Instant, ProcessId, Promise, Quorums, ReplicaId, Slot, SlotLog, Tally, Ticket,
};
use rustc_hash::FxHasher;
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
    pub(super) bytes: u32,
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
    pub(super) delivered: Slot,
    /// The sizes of delivered indices that are kept for others, bytes.
    pub(super) kept: VecDeque<u32>,
    pub(super) kept_bytes: usize,
    /// See [`Order::hold`](crate::order::Order::hold).
    pub(super) serving: bool,
    /// Decided in this turn, to be recorded.
    pub(super) fresh: Vec<(Slot, Option<Values<V>>)>,

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
    /// Which coordinator is followed.
    pub(super) watch: Watch,
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
            _ => self.process_of(self.watch.leader?.owner),
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
    pub(super) fn advance(&mut self) {
        while self.cells.get(self.decided).is_some_and(|cell| cell.outcome.is_some()) {
            self.decided = self.decided.next();
        }
        self.known = self.known.max(self.decided);
        self.next = self.next.max(self.decided);
    }

    /// Writes down what was decided in this turn: lazily, since a quorum holds it.
    pub(super) fn note(&mut self, effects: &mut Effects<Self>) {
        if !self.fresh.is_empty() {
            effects.record_lazily(Record::Decided { entries: std::mem::take(&mut self.fresh) });
        }
    }

    /// Counts a delivered index among those kept for others and trims beyond the bounds.
    pub(super) fn keep(&mut self, size: u32) {
        self.kept.push_back(size);
        self.kept_bytes += size as usize;
        let mut base = self.cells.base();
        let keep = Keep::new(self.parameters.keep_slots, self.parameters.keep_bytes, self.serving);
        while keep.exceeded(self.kept.len(), self.kept_bytes) {
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
}

/// For tests: one of three replicas.
#[cfg(test)]
pub(super) mod opened {
    use super::*;
    use crate::Tuning as _;
    use crate::order::Setup;
    use isochrone_core::{Identity, KeyspaceId, NodeId, Outbox, PartitionId, Process, Random, Span};

    /// The process of that at this node.
    pub(in crate::fastpaxos) fn process(node: u16) -> ProcessId {
        let (keyspace, partition, role) = (KeyspaceId(1), PartitionId(0), isochrone_core::Role(0));
        ProcessId { node: NodeId(node), keyspace, partition, role, instance: 0 }
    }

    /// It, opened, and where its effects go.
    pub(in crate::fastpaxos) fn opened(node: u16) -> (Order<u8>, Outbox<Order<u8>>) {
        let member = |node: u16| Member { replica: ReplicaId(node as u8), process: process(node) };
        let parameters = Parameters::for_rtt(Span::from_millis(1));
        let setup = Setup { members: Arc::from([0, 1, 2].map(member)), preferred: None, parameters };
        let order = Order::open(Identity { process: process(node), incarnation: 1 }, &setup);
        (order, Outbox::new(process(node), Random::seeded(1)))
    }
}
