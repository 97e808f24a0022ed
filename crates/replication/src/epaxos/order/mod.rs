//! One replica of EPaxos' order: instances, their attributes, and the order of execution that follows.
//! What it does and why that is right stands in [`crate::epaxos`].

mod execution;
mod housekeeping;
mod instances;
mod proposal;
mod recovery;
mod snapshot;
#[cfg(test)]
mod tests;
mod votes;

use super::message::{Committed, InstanceId, Message, Note, Record, SEATS, Timer, Touching};
use super::{Mutation, Parameters};
use crate::order::{Member, Membership, Order as Orders, Ordered, Setup, Step, Takes, first_serial};
use crate::request::{Change, Refusal};
use crate::reserve::Reserve;
use instances::{Executed, Instance, Space, ids, includes};
use isochrone_core::{
    Blob, ConflictIndex, Effects, Graph, Identity, Instant, Malformed, Process, ProcessId, Quorums,
    ReplicaId, ReplicaSet, RoundTrip, Snapshot, Suspicion, Ticket, TouchSet, Urgency, wire,
};
use proposal::{Flight, Queue};
use recovery::Drive;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The seat of a process that is no member.
const NO_SEAT: usize = usize::MAX;
/// Instances beyond the executed ones of a seat that are held at most: what is further away has to wait until
/// this replica has caught up.
const REACH: u64 = 65_536;
/// Keys of trimmed instances that may lie in the conflict index beside twice what is held.
const SWEEP: usize = 256;

/// An instance that is known to exist and not known to be committed.
#[derive(Clone, Hash, Debug)]
struct Pending {
    /// When it is looked at again.
    due: Instant,
    /// How often it was.
    tries: u32,
    /// Whether its turn among the recoverers was waited for.
    staggered: bool,
}

/// A replica's part in the order. See the module of the protocol.
#[derive(Clone, Hash)]
pub struct Order<V: Ordered> {
    me: usize,
    process: ProcessId,
    members: Arc<[Member]>,
    parameters: Parameters,

    spaces: Vec<Space<V>>,
    /// Who touched what; also what was trimmed since it was last swept.
    index: ConflictIndex<Touching>,
    /// Keys in it of instances that are trimmed, at most, and how many are too many.
    stale: usize,
    stale_max: usize,
    graph: Graph<InstanceId>,
    /// Committed instances that wait to know what another one holds, by that one, with their turns.
    unlinked: BTreeMap<InstanceId, Vec<(u64, InstanceId)>>,
    /// Committed instances that wait for another to be linked, by that one.
    parked: BTreeMap<InstanceId, Vec<InstanceId>>,
    /// Committed instances that lead to others by way of this one, as long as it is not given up.
    leaning: BTreeMap<InstanceId, Vec<InstanceId>>,
    ready: VecDeque<Step<V>>,
    /// Batches taken out.
    serial: u64,
    /// The highest serial of an instance whose commands are gone though not all members have executed it.
    trimmed: u64,
    /// Executed instances whose commands are kept, with their bytes and serials.
    kept: VecDeque<(InstanceId, u32, u64)>,
    kept_bytes: usize,
    /// See [`Order::hold`](crate::order::Order::hold).
    serving: bool,

    queue: Queue<V>,
    /// The next own number.
    next: u64,
    /// Own numbers that are reserved.
    numbers: Reserve,
    /// Own numbers, from the first to the last, with which something may have left in a former life that the
    /// journal does not know: until that is settled every command follows them.
    lost: Option<(u64, u64)>,
    /// Own instances of this life, until they are taken out.
    flights: BTreeMap<u64, Flight>,
    /// Ballots of this replica under way.
    drives: BTreeMap<InstanceId, Drive<V>>,
    pending: BTreeMap<InstanceId, Pending>,
    /// Recoveries that wait, as others tell, with the replicas that pre-accepted as proposed.
    waiting: BTreeMap<InstanceId, u8>,
    /// Commits of this turn, with who holds their commands.
    commits: Vec<(Committed<V>, ReplicaSet)>,

    /// The highest number of each seat that was heard of.
    known: [u64; SEATS],
    /// Up to here they are pending or committed.
    watched: [u64; SEATS],
    /// What each member has executed, durably, as it says: of each seat the prefix.
    reported: Vec<[u64; SEATS]>,
    /// What all members have executed.
    settled: [u64; SEATS],
    /// Of each seat: up to where executed instances were counted, and the keys of those of them that are held.
    touched: [(u64, u64); SEATS],
    /// Round trips to each seat, where measured.
    trips: [RoundTrip; SEATS],
    /// When each seat last answered what was sent to it.
    answered: [Instant; SEATS],
    suspicion: Suspicion,
    suspects: ReplicaSet,
    /// A peer that has executed this instance and no longer holds it.
    behind: Option<(ProcessId, InstanceId)>,
    /// Nothing is executed until that is settled: a state that is taken in must have all that was executed
    /// here. The journal says so too, so that a replay has executed no more than this when it takes it in.
    paused: bool,
    /// Committed instances that wait for that, with their turns.
    held: Vec<(u64, InstanceId)>,
    /// How many have had to wait for either.
    turns: u64,
    ticking: bool,
    notes: Vec<&'static str>,
}

/// A seat as the sets of the core name it.
fn replica(seat: usize) -> ReplicaId {
    // Seats are below `SEATS`.
    ReplicaId(seat as u8)
}

/// What a batch touches. Mostly each command touches one key.
fn touches_of<V: Ordered>(batch: &[V]) -> TouchSet {
    TouchSet::of(batch.len(), |visit| batch.iter().for_each(|value| value.visit(visit)))
}

impl<V: Ordered> Order<V> {
    fn count(&self) -> usize {
        self.members.len()
    }

    fn majority(&self) -> usize {
        Quorums::majority(self.count())
    }

    /// The small fast quorum, the command leader among it.
    fn fast(&self) -> usize {
        Quorums::epaxos_fast(self.count())
    }

    /// How many may be missing from a fast quorum: e.
    fn spared(&self) -> usize {
        self.count() - self.fast()
    }

    fn is_member(&self) -> bool {
        self.me != NO_SEAT
    }

    fn seat(&self, process: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| member.process == process)
    }

    fn peers(&self) -> impl Iterator<Item = usize> + use<V> {
        let me = self.me;
        (0..self.count()).filter(move |seat| *seat != me)
    }

    fn process_of(&self, seat: usize) -> ProcessId {
        self.members[seat].process
    }

    fn suspects(&self, seat: usize) -> bool {
        self.suspects.contains(replica(seat))
    }

    fn mutated(&self, mutation: Mutation) -> bool {
        self.parameters.mutated(mutation)
    }

    fn instance(&self, id: InstanceId) -> Option<&Instance<V>> {
        self.spaces.get(id.leader())?.get(id.number)
    }

    fn instance_mut(&mut self, id: InstanceId) -> Option<&mut Instance<V>> {
        self.spaces.get_mut(id.leader())?.get_mut(id.number)
    }

    fn is_executed(&self, id: InstanceId) -> bool {
        self.spaces[id.leader()].is_executed(id.number)
    }

    fn is_committed(&self, id: InstanceId) -> bool {
        self.instance(id).is_some_and(Instance::is_committed)
    }

    /// The instance, begun where nothing was known of it. `None` where it is executed and gone, or too far
    /// ahead of what is executed here.
    fn open_instance(&mut self, id: InstanceId) -> Option<&mut Instance<V>> {
        let space = self.spaces.get_mut(id.leader())?;
        let held = space.get(id.number).is_some();
        if id.number == 0 || !held && (space.is_executed(id.number) || id.number > space.executed() + REACH) {
            return None;
        }
        space.open(id.number)
    }

    /// What an instance holds is known from now on, also to whoever interferes.
    fn learn_batch(&mut self, id: InstanceId, batch: &Arc<[V]>) {
        self.hold_batch(id, batch);
        self.index_instance(id);
    }

    /// The same, but for who interferes.
    fn hold_batch(&mut self, id: InstanceId, batch: &Arc<[V]>) {
        let Some(instance) = self.open_instance(id) else { return };
        if instance.touches.is_none() {
            instance.touches = Some(Arc::new(touches_of(batch)));
        }
        if instance.batch.is_none() {
            instance.batch = Some(batch.clone());
        }
        self.relink(id);
    }

    /// Bytes of what an instance holds, as its leader counted or else as counted here.
    fn bytes_of(&self, id: InstanceId) -> u32 {
        let Some(instance) = self.instance(id) else { return 0 };
        match &instance.batch {
            Some(batch) if instance.bytes == 0 => {
                u32::try_from(wire::encoded_size(batch)).unwrap_or(u32::MAX)
            }
            _ => instance.bytes,
        }
    }

    /// Whether what an instance holds overtakes nothing, and may be long on its way.
    fn is_large(&self, id: InstanceId) -> bool {
        let given_up = self.instance(id).is_some_and(|instance| instance.noop);
        !given_up && self.bytes_of(id) as usize > Urgency::SMALL
    }

    /// Puts an instance into the conflict index, or its number of order, which has risen.
    fn index_instance(&mut self, id: InstanceId) {
        if let Some(instance) = self.spaces.get_mut(id.leader()).and_then(|space| space.get_mut(id.number))
            && let Some(touches) = &instance.touches
        {
            let seq = instance.attributes.seq.max(instance.initial.map_or(0, |initial| initial.seq));
            instance.indexed = seq.max(1);
            self.index.add(Touching { id, seq }, touches);
        }
    }

    /// Someone has spoken of instances of this seat up to this number.
    fn hear_of(&mut self, seat: usize, number: u64) {
        if let Some(known) = self.known.get_mut(seat) {
            *known = number.max(*known);
        }
    }

    /// Something waits for this instance to be committed.
    fn need(&mut self, id: InstanceId, due: Instant) {
        if self.is_committed(id) || self.is_executed(id) {
            return;
        }
        self.hear_of(id.leader(), id.number);
        let pending = self.pending.entry(id).or_insert(Pending { due, tries: 0, staggered: false });
        pending.due = due.min(pending.due);
    }

    /// Looks at this instance no earlier than then, unless it is committed.
    fn postpone(&mut self, id: InstanceId, due: Instant) {
        if !self.is_committed(id) {
            let pending = self.pending.entry(id).or_insert(Pending { due, tries: 0, staggered: false });
            pending.due = due;
        }
    }

    /// At a start: own numbers up to this one are used, perhaps. Those of which the journal knows nothing are
    /// given up soon, if nobody has voted for what they hold.
    fn lose(&mut self, last: u64, now: Instant) {
        let first = self.spaces[self.me].executed() + 1;
        let lost: Vec<InstanceId> = ids(self.me, first, last).filter(|id| self.is_lost(*id)).collect();
        if let Some(first) = lost.first().map(|id| id.number)
            && !self.mutated(Mutation::ForgetLost)
        {
            self.lost = Some((first, last));
        }
        lost.into_iter().for_each(|id| self.need(id, now));
    }

    fn is_lost(&self, id: InstanceId) -> bool {
        !self.is_executed(id) && self.instance(id).is_none_or(Instance::is_unknown)
    }

    /// What was lost may be settled by now.
    fn find_lost(&mut self) {
        while let Some((first, last)) = self.lost {
            let id = InstanceId::at(self.me, first);
            if self.is_lost(id) {
                return;
            }
            self.lost = (first < last).then_some((first + 1, last));
        }
    }

    /// Ends an input: what it left open is looked at later, and what it noted is told.
    fn finish(&mut self, effects: &mut Effects<Self>) {
        self.find_lost();
        self.watch(effects.now());
        if self.paused && self.behind.is_none() {
            effects.record_lazily(Record::Resumed);
            self.resume();
        }
        if !self.ticking && !self.pending.is_empty() && self.is_member() {
            self.ticking = true;
            effects.arm(Timer::Tick, self.parameters.tick);
        }
        for note in self.notes.drain(..) {
            effects.mark(Note::Counted(note));
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

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        let count = setup.members.len();
        assert!(count <= SEATS, "a group of {count}: dependencies are kept for {SEATS} members at most");
        let me = setup.members.iter().position(|member| member.process == identity.process);
        Order {
            me: me.unwrap_or(NO_SEAT),
            process: identity.process,
            members: setup.members.clone(),
            parameters: setup.parameters,
            spaces: (0..count).map(|_| Space::new()).collect(),
            index: ConflictIndex::default(),
            stale: 0,
            stale_max: SWEEP,
            graph: Graph::default(),
            unlinked: BTreeMap::new(),
            parked: BTreeMap::new(),
            leaning: BTreeMap::new(),
            ready: VecDeque::new(),
            serial: first_serial(identity.incarnation),
            trimmed: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            serving: false,
            queue: Queue::default(),
            next: 1,
            numbers: Reserve::default(),
            lost: None,
            flights: BTreeMap::new(),
            drives: BTreeMap::new(),
            pending: BTreeMap::new(),
            waiting: BTreeMap::new(),
            commits: Vec::new(),
            known: [0; SEATS],
            watched: [0; SEATS],
            reported: vec![[0; SEATS]; count],
            settled: [0; SEATS],
            touched: [(0, 0); SEATS],
            trips: [RoundTrip::default(); SEATS],
            answered: [Instant::ZERO; SEATS],
            suspicion: Suspicion::watching([], setup.parameters.patience, Instant::ZERO),
            suspects: ReplicaSet::EMPTY,
            behind: None,
            paused: false,
            held: Vec::new(),
            turns: 0,
            ticking: false,
            notes: Vec::new(),
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_chunk(&chunk)
    }

    fn replay(&mut self, record: Record<V>) {
        self.replay_record(record);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() {
            return;
        }
        let now = effects.now();
        let peers = self.peers().map(replica).collect::<Vec<_>>();
        self.suspicion = Suspicion::watching(peers, self.parameters.patience, now);
        // What was under way in a former life is not: it is looked at soon.
        for seat in 0..self.count() {
            let space = &self.spaces[seat];
            self.known[seat] = self.known[seat].max(space.end() - 1);
            self.watched[seat] = space.executed();
        }
        let last = self.known[self.me];
        self.next = last + 1;
        self.numbers.raise(self.next);
        self.numbers.begin();
        self.lose(last, now);
        self.beat(effects);
        self.finish(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        let Some(seat) = self.seat(from) else { return };
        if !self.is_member() {
            return;
        }
        match message {
            Message::PreAccept { id, batch, bytes, attributes, executed, role } => {
                self.on_pre_accept(seat, id, (batch, bytes), (attributes, executed), role, effects);
            }
            Message::PreAccepted { id, attributes, delegate } => {
                self.on_pre_accepted(seat, id, attributes, delegate, effects);
            }
            Message::Accept { id, ballot, content, attributes } => {
                self.on_accept(seat, id, ballot, content, attributes, effects);
            }
            Message::Accepted { id, ballot } => self.on_accepted(seat, id, ballot, effects),
            Message::Commit { list } => self.on_commit(list, effects),
            Message::Recover { id, ballot } => self.on_recover(seat, id, ballot, effects),
            Message::Recovered { id, ballot, report } => {
                self.on_recovered(seat, id, ballot, *report, effects);
            }
            Message::Validate { id, ballot, batch, attributes } => {
                self.on_validate(seat, id, ballot, batch, attributes, effects);
            }
            Message::Validated { id, ballot, conflicts } => {
                self.on_validated(seat, id, ballot, conflicts, effects);
            }
            Message::Waiting { id, votes } => self.on_waiting(id, votes, effects),
            Message::Rejected { id, promised } => self.on_rejected(id, promised, effects),
            Message::Fetch { ids } => self.on_fetch(seat, ids, effects),
            Message::Trimmed { id } => self.on_trimmed(from, id, effects),
            Message::Heartbeat { last, executed, sent } => {
                self.on_heartbeat(seat, last, executed, sent, effects);
            }
            Message::Heard { sent } => self.on_heard(seat, sent, effects),
            Message::Driven { ids } => self.on_driven(ids, effects.now()),
        }
        self.finish(effects);
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete(ticket, Err(Refusal::Impossible));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Heartbeat => self.beat(effects),
            Timer::Tick => self.tick(effects),
        }
        self.finish(effects);
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        if self.is_member() {
            self.flush(effects);
            self.send_commits(effects);
            self.finish(effects);
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        debug_assert!(self.ready.is_empty(), "the holder takes out what is ready");
        Some(self.own_snapshot())
    }

    fn check(&self) {
        self.check_invariants();
    }
}

impl<V: Ordered> Orders for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Executed;

    const TOTAL: bool = false;
    const MEMBERSHIP: Membership = Membership::StopAndHandOver;
    const MEMBERS_MAX: usize = SEATS;

    fn takes(&self) -> Takes {
        match (self.is_member(), self.members.first()) {
            (true, _) => Takes::Here,
            (false, Some(member)) => Takes::At(member.process),
            (false, None) => Takes::Nobody,
        }
    }

    fn leads(&self) -> bool {
        // One of those who live does for all what one has to do.
        self.is_member() && (0..self.me).all(|seat| self.suspects(seat))
    }

    fn silent(&self, now: Instant) -> ReplicaSet {
        self.suspicion.suspects(now)
    }

    fn propose(&mut self, value: V, bytes: usize, now: Instant) -> Result<(), Refusal> {
        self.queue.push(value, bytes, now, &self.parameters)
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        self.next_step(now)
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn position(&self) -> Executed {
        self.spaces.iter().map(|space| (space.executed(), space.beyond().collect())).collect()
    }

    /// A state that is not the newest may lack what the peer has executed meanwhile.
    fn serves(&self, serial: u64) -> bool {
        serial == self.serial && serial >= self.trimmed
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind.map(|(peer, _)| peer)
    }

    fn install(&mut self, position: &Executed) -> bool {
        self.behind = None;
        let ours = self.position();
        let ahead = *position != ours && includes(position, &ours);
        if ahead {
            self.take_over(position);
        }
        self.resume();
        ahead
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        // The next input ends the pause.
        self.behind = None;
    }

    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        // Nobody leads, so there is nothing to resign, and nobody can be made to lead.
        let answer = match change {
            Change::Resign => Ok(()),
            Change::Lead(_) => Err(Refusal::Leaderless),
            Change::Add(_) | Change::Remove(_) => Err(Refusal::Impossible),
        };
        effects.complete(ticket, answer);
    }
}
