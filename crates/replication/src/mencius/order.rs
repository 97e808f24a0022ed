//! The order: what a replica holds, and what its holder takes out.

use super::Parameters;
use super::contact::Contact;
use super::lane::{Deal, Lane};
use super::message::{Note, Record, Turn, Value};
use super::propose::{Flight, Queue};
use super::revoke::Revocation;
use crate::keep::Keep;
use crate::order::{Decided, Member, Membership, Ordered, Setup, Step, Takes, digest, first_serial};
use crate::request::{Change, Refusal};
use isochrone_core::{
    Effects, Frontier, Identity, Instant, ProcessId, ReplicaId, ReplicaSet, Slot, Span, Ticket, wire,
};
use std::collections::VecDeque;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

/// A suggestion in a turn below the last durable `next` and this many more may leave before its own record
/// is durable: whoever restarts takes so many turns for used and asks the others what is in them. Large
/// enough that a busy owner is not held up by its disk, and small beside what a revocation steps over.
/// It may be raised between versions, not lowered.
pub(super) const RESERVE: u64 = 256;

/// One replica of a group that Mencius orders. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Order<V: Ordered> {
    pub(super) process: ProcessId,
    pub(super) incarnation: u32,
    pub(super) parameters: Parameters,
    pub(super) members: Arc<[Member]>,
    /// The own place among the members; their number, if this replica is none of them.
    pub(super) me: usize,
    pub(super) deal: Deal,
    pub(super) lanes: Vec<Lane<V>>,

    /// The next own turn: each before it is suggested, skipped, or left over from a former life.
    pub(super) next: Turn,
    /// Behind the last own turn that is not skipped: from here to `next` all are.
    pub(super) skip_from: Turn,
    /// What `next` would be after a restart now, at least.
    pub(super) durable: Turn,
    /// Own turns that are skipped and not counted as decided, since a restart may forget that.
    pub(super) unmarked: VecDeque<Range<Turn>>,
    /// All others were told that the own turns before it are skipped or suggested.
    pub(super) told: Turn,
    /// Whether the timer of skips runs.
    pub(super) skipping: bool,
    /// From here on the own turns are decided as this life suggested or skipped them, or open.
    pub(super) claim_from: Turn,
    /// A batch of the own turns was decided and the others were not told.
    pub(super) commit_due: bool,
    /// The own turns below it are to be taken back, by a revocation of the own turns, ...
    pub(super) reclaim: Turn,
    /// ... but not before this.
    pub(super) reclaim_at: Instant,

    pub(super) queue: Queue<V>,
    pub(super) flights: VecDeque<Flight<V>>,
    /// How many of them are not decided, and their bytes.
    pub(super) flying: u64,
    pub(super) flying_bytes: usize,
    /// Votes of this turn, by owner; they leave in `settle`.
    pub(super) votes: Vec<Option<Range<Turn>>>,

    /// Behind the last slot that a suggestion is known for.
    pub(super) seen: Slot,
    /// Everything before it was taken out.
    pub(super) delivered: Slot,
    /// Everything before it was trimmed.
    pub(super) base: Slot,
    serial: u64,
    /// The slots with commands that are kept for others, and their sizes.
    kept: VecDeque<(Slot, u32)>,
    kept_bytes: usize,
    /// See [`Order::hold`](crate::order::Order::hold).
    serving: bool,
    /// Steps beside those of the order.
    pub(super) steps: VecDeque<Step<V>>,
    /// Everything before it is recorded to be decided.
    pub(super) recorded: Slot,
    /// Notes of this input.
    pub(super) counted: Vec<&'static str>,

    pub(super) contact: Contact,
    /// How far the others have come.
    pub(super) reports: Frontier<Slot>,
    /// By owner: behind the last turn that it has said to be decided.
    pub(super) claimed: Vec<Turn>,
    pub(super) revocations: Vec<Option<Revocation<V>>>,
    /// By owner: how often a revocation of this replica was outbid since one came through.
    pub(super) outbid: Vec<u32>,
    /// Whether the timer of repair runs, since when nothing has moved, and how often that was so.
    pub(super) repairing: bool,
    pub(super) stuck_at: Slot,
    pub(super) attempts: u32,
    pub(super) behind: Option<ProcessId>,
    /// Whether no member of a lower seat was heard of lately.
    lowest: bool,
}

impl<V: Ordered> Order<V> {
    /// The order before its first record.
    pub(super) fn new(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        let members = setup.members.clone();
        let count = members.len();
        let me = members.iter().position(|member| member.process == identity.process).unwrap_or(count);
        let seats: Vec<ReplicaId> = members.iter().map(|member| member.replica).collect();
        Order {
            process: identity.process,
            incarnation: identity.incarnation,
            parameters: setup.parameters,
            me,
            deal: Deal { members: count.max(1) as u64 },
            lanes: vec![Lane::default(); count],
            next: 0,
            skip_from: 0,
            durable: 0,
            unmarked: VecDeque::new(),
            told: 0,
            skipping: false,
            claim_from: 0,
            commit_due: false,
            reclaim: 0,
            reclaim_at: Instant::ZERO,
            queue: Queue::default(),
            flights: VecDeque::new(),
            flying: 0,
            flying_bytes: 0,
            votes: vec![None; count],
            seen: Slot::ZERO,
            delivered: Slot::ZERO,
            base: Slot::ZERO,
            serial: first_serial(identity.incarnation),
            kept: VecDeque::new(),
            kept_bytes: 0,
            serving: false,
            steps: VecDeque::new(),
            recorded: Slot::ZERO,
            counted: Vec::new(),
            contact: Contact::new(count, setup.parameters.patience, Instant::ZERO),
            reports: Frontier::over(seats),
            claimed: vec![0; count],
            revocations: vec![None; count],
            outbid: vec![0; count],
            repairing: false,
            stuck_at: Slot::ZERO,
            attempts: 0,
            behind: None,
            lowest: me == 0,
            members,
        }
    }

    /// Everything before it is decided, and known here.
    pub fn decided(&self) -> Slot {
        let open = self.lanes.iter().enumerate().map(|(lane, held)| self.deal.slot(lane, held.frontier()));
        open.min().unwrap_or_default()
    }

    /// How many runs of turns are held: what the memory of empty time is measured by.
    pub fn runs(&self) -> usize {
        self.lanes.iter().map(Lane::runs).sum()
    }

    /// Whether this replica votes.
    pub(super) fn is_member(&self) -> bool {
        self.me < self.members.len()
    }

    /// The own seat.
    pub(super) fn seat(&self) -> ReplicaId {
        // Only members vote and revoke.
        self.members.get(self.me).map_or(ReplicaId(0), |member| member.replica)
    }

    /// The rank of a process among the members.
    pub(super) fn rank(&self, process: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }

    /// The members but this one.
    pub(super) fn peers(&self) -> impl Iterator<Item = (usize, ProcessId)> + use<V> {
        let (members, me) = (self.members.clone(), self.me);
        (0..members.len()).filter(move |rank| *rank != me).map(move |rank| (rank, members[rank].process))
    }

    /// Whether a member is silent.
    pub(super) fn is_silent(&self, rank: usize, now: Instant) -> bool {
        rank != self.me && self.contact.is_silent(rank, now)
    }

    /// Takes a value for decided in these turns, and looks what that says of own suggestions.
    pub(super) fn decide(&mut self, lane: usize, turns: Range<Turn>, value: &Value<V>, now: Instant) -> bool {
        let new = self.lanes[lane].decide(turns.clone(), value);
        if new && lane == self.me {
            self.land_flights(turns, now);
        }
        new
    }

    /// Gives up the own turns before `next`.
    pub(super) fn give_up(&mut self, next: Turn) {
        if next <= self.next {
            return;
        }
        match self.unmarked.back_mut() {
            Some(last) if last.end == self.next => last.end = next,
            _ => self.unmarked.push_back(self.next..next),
        }
        self.next = next;
        self.mark_skips();
    }

    /// Counts own skips as decided, as far as no restart can bring other values there: within the reserve
    /// it would ask the others first, who have none.
    fn mark_skips(&mut self) {
        let free = self.durable + RESERVE;
        while let Some(first) = self.unmarked.front_mut()
            && first.start < free
        {
            let part = first.start..first.end.min(free);
            first.start = part.end;
            if first.start >= first.end {
                self.unmarked.pop_front();
            }
            self.lanes[self.me].decide(part, &Value::NoOp);
        }
    }

    /// A restart would find the own turns before `next` used or given up.
    pub(super) fn now_durable(&mut self, next: Turn) {
        if next > self.durable {
            self.durable = next;
            self.mark_skips();
        }
    }

    /// What is learnt as decided keeps its place in the journal before it shows.
    pub(super) fn record_decided(&mut self, effects: &mut Effects<Self>) {
        let slot = self.decided();
        if slot > self.recorded && self.next_batch(slot).is_some() {
            self.recorded = slot;
            effects.record_lazily(Record::Decided { slot });
        }
    }

    /// The end of an input.
    pub(super) fn finish(&mut self, effects: &mut Effects<Self>) {
        self.record_decided(effects);
        if self.parameters.early {
            self.answer_early(effects.now());
        }
        for name in self.counted.drain(..) {
            effects.mark(Note::Counted(name));
        }
    }

    /// The next slot with a batch that may be taken out.
    fn next_batch(&self, end: Slot) -> Option<(Slot, usize, Arc<[V]>)> {
        let mut first: Option<(Slot, usize, &Arc<[V]>)> = None;
        for (lane, held) in self.lanes.iter().enumerate() {
            let from = self.deal.turn(lane, self.delivered);
            if let Some((turn, Value::Batch(values))) = held.next_batch(from) {
                let slot = self.deal.slot(lane, turn);
                if slot < end && first.is_none_or(|(known, _, _)| slot < known) {
                    first = Some((slot, lane, values));
                }
            }
        }
        first.map(|(slot, lane, values)| (slot, lane, values.clone()))
    }

    /// Counts a slot that was taken out among those kept for others and trims beyond the bounds.
    fn keep(&mut self, slot: Slot, size: u32) {
        self.kept.push_back((slot, size));
        self.kept_bytes += size as usize;
        let mut base = self.base;
        let keep = Keep::new(self.parameters.keep_slots, self.parameters.keep_bytes, self.serving);
        while keep.exceeded(self.kept.len(), self.kept_bytes) {
            let Some((slot, size)) = self.kept.pop_front() else { break };
            self.kept_bytes -= size as usize;
            base = slot.next();
        }
        if base > self.base {
            self.trim(base);
        }
    }

    pub(super) fn trim(&mut self, base: Slot) {
        self.base = base;
        for (lane, held) in self.lanes.iter_mut().enumerate() {
            held.trim(self.deal.turn(lane, base));
        }
    }
}

impl<V: Ordered> crate::order::Order for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Slot;

    const TOTAL: bool = true;
    const AHEAD: bool = true;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;

    fn takes(&self) -> Takes {
        if self.is_member() {
            return Takes::Here;
        }
        self.members.first().map_or(Takes::Nobody, |member| Takes::At(member.process))
    }

    fn leads(&self) -> bool {
        self.is_member() && self.lowest
    }

    fn silent(&self, now: Instant) -> ReplicaSet {
        let members = self.members.iter().enumerate().filter(|_| self.is_member());
        members.filter(|(rank, _)| self.is_silent(*rank, now)).map(|(_, member)| member.replica).collect()
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        if !self.is_member() {
            return Err(Refusal::NotLeader);
        }
        let full = self.queue.values.len() >= self.parameters.queue_commands
            || self.queue.bytes + bytes > self.parameters.queue_bytes.max(bytes);
        if full {
            return Err(Refusal::Overloaded);
        }
        self.queue.push(value, bytes, now);
        Ok(())
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        let end = self.decided();
        let Some((slot, lane, values)) = self.next_batch(end) else {
            self.delivered = self.delivered.max(end);
            return None;
        };
        if slot >= self.recorded {
            // Behind a peer's state that was just taken in: it is written down first, or a restart would bring back neither
            // it nor, where it ends this order, what was promised in the next.
            return None;
        }
        let digest = digest(&values);
        let size = u32::try_from(wire::encoded_size(&values)).unwrap_or(u32::MAX);
        let answer = lane == self.me;
        let spans = if answer { self.take_flight(self.deal.turn(lane, slot), now) } else { None };
        self.delivered = slot.next();
        self.serial += 1;
        self.keep(slot, size);
        Some(Step::Decided(Decided { position: slot.0, digest, values, answer, spans }))
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn position(&self) -> Slot {
        self.delivered
    }

    fn serves(&self, serial: u64) -> bool {
        serial + self.kept.len() as u64 >= self.serial
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind
    }

    fn install(&mut self, position: &Slot) -> bool {
        self.behind = None;
        if *position <= self.delivered {
            return false;
        }
        self.kept.clear();
        self.kept_bytes = 0;
        self.serial += 1;
        self.delivered = *position;
        self.trim(*position);
        self.recorded = self.recorded.max(*position);
        self.drop_flights(*position);
        if self.is_member() {
            // Decided by others: never used again, whatever was in them.
            let own = self.deal.turn(self.me, *position);
            self.give_up(own);
            self.claim_from = self.claim_from.max(own);
        }
        true
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    /// Nobody leads: to resign is done at once, and nobody can be made to lead.
    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        let answer = match change {
            Change::Resign => Ok(()),
            Change::Lead(_) => Err(Refusal::Leaderless),
            Change::Add(_) | Change::Remove(_) => Err(Refusal::Impossible),
        };
        effects.complete_ahead(ticket, answer);
    }
}

impl<V: Ordered> Order<V> {
    /// Looks who is silent: the lowest seat that is not does the housekeeping.
    pub(super) fn look_who_is_lowest(&mut self, now: Instant) {
        self.contact.look(self.parameters.heartbeat, now);
        self.lowest = (0..self.me).all(|rank| self.is_silent(rank, now));
    }

    /// The longest that a message and its answer are waited for.
    pub(super) fn round(&self) -> Span {
        self.parameters.resend
    }
}
