//! One replica: its state, and the way of an input through it.
//!
//! Every input is handled by one of the files beside this one, which write what must be durable into `journal`
//! and what is to be said into `outbox`. The input ends with one record; [`Process::settle`] sends each
//! peer one message of each lane, and a message to itself by which the replica learns that its records are
//! durable.

use super::assignment::{Assignment, Rank};
use super::contact::Contact;
use super::message::{Entry, Head, Message, Note, Part, Record, Timer, Value};
use super::reads::Reads;
use super::space::{Announcement, Proposal, Space};
use super::straggler::Straggler;
use super::view::{Campaign, Poll, Stashed, Task};
use super::{Mutation, Parameters};
use crate::election::{Losses, patience};
use crate::order::{Knobs, Member, Ordered, Setup, Step};
use crate::reserve::Reserve;
use isochrone_core::{
    Ballot, Blob, Effects, Identity, Instant, Lease, Malformed, Process, ProcessId, Quorums, ReplicaId,
    ReplicaSet, Slot, Snapshot, Span, Ticket,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The rank of a process that is no member.
pub(super) const STRANGER: Rank = 253;
/// Own numbers reserved at once: what a restart may waste.
const RESERVE: u64 = 64;

/// What becomes true once the records up to some number are durable.
#[derive(Clone, Hash, Debug)]
pub(super) enum Pending {
    /// Slots up to here are accepted in this view.
    Contiguous(Ballot, u64),
    /// Slots up to here are executed.
    Executed(u64),
    /// Own numbers below are reserved.
    Reserved(u64),
    /// Command instances are accepted here: owner, ballot, first, last.
    Accepted(Rank, Ballot, u64, u64),
    /// A promise of this replica: owner, ballot.
    Promised(Rank, Ballot),
    /// This replica has voted for itself.
    Voted(Ballot),
}

/// Bytes of values beside which nothing urgent travels.
const LARGE: usize = 4 << 10;

/// What leaves for one peer at the end of the turn.
#[derive(Clone, Hash, Debug)]
pub(super) struct Outgoing<V: Ordered> {
    /// Behind the records of this turn.
    pub(super) held: Vec<Part<V>>,
    /// Resting on nothing that is not durable.
    pub(super) ahead: Vec<Part<V>>,
    /// What may have been said before; behind the records of this turn.
    pub(super) again: Vec<Part<V>>,
    /// It is to hear how far this replica has accepted, if there is nothing else to say.
    pub(super) poke: bool,
    /// It needs the slots assigned since it was last told of any.
    pub(super) order: bool,
}

impl<V: Ordered> Default for Outgoing<V> {
    fn default() -> Outgoing<V> {
        Outgoing { held: Vec::new(), ahead: Vec::new(), again: Vec::new(), poke: false, order: false }
    }
}

/// The sequencer's own part of the state, rebuilt in every view.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Sequencer {
    /// What each member was told of, whether it has said so or not.
    pub(super) sent: Vec<u64>,
    /// When that last moved on.
    pub(super) progress: Vec<Instant>,
    /// The last slot of an update on each object, where it is behind `floor`.
    pub(super) history: BTreeMap<u64, u64>,
    /// Any object may have been updated up to here.
    pub(super) floor: u64,
    pub(super) lease: Lease,
    /// It assigns nothing more and holds no lease: another is to follow. Since when.
    pub(super) retired: Option<Instant>,
}

/// A value that waits for a command instance, its bytes, and since when it waits.
pub(super) type Queued<V> = (V, u32, Instant);

/// An executed slot that is kept for others: its owner, content and bytes.
pub(super) type Done<V> = (Rank, Value<V>, u32);

/// SDPaxos at one replica. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Order<V: Ordered> {
    pub(super) me: Rank,
    pub(super) process: ProcessId,
    pub(super) incarnation: u32,
    pub(super) members: Arc<[Member]>,
    pub(super) majority: usize,
    pub(super) knobs: Knobs<Parameters>,
    pub(super) started: Instant,

    /// The highest view voted in or installed.
    pub(super) view: Ballot,
    /// The view voted in before that.
    pub(super) prior: Ballot,
    /// The view whose log is installed.
    pub(super) installed: Ballot,
    /// Whether that view is active: commands may become ready and slots be executed.
    pub(super) active: bool,
    /// The slots with which that view began.
    pub(super) begin: u64,
    /// Nothing is executed in a view below this one: a peer's state was taken in that is of it.
    pub(super) floor_view: Ballot,
    /// The highest view heard of.
    pub(super) seen: Ballot,
    pub(super) poll: Option<Poll>,
    pub(super) campaign: Option<Campaign>,
    pub(super) stashed: Option<Stashed>,
    /// Elections that came to nothing since a view was installed.
    pub(super) failures: u32,
    /// Since when the view has been what it is, or the next election was put off.
    pub(super) since: Instant,
    pub(super) patience: Span,
    pub(super) losses: Losses,
    /// The view whose sequencer or candidate was counted among them last.
    pub(super) lost: Ballot,
    /// Turns of a view that is not installed yet.
    pub(super) early: Vec<(ProcessId, Message<V>)>,
    pub(super) task: Option<Task>,

    pub(super) log: Assignment,
    /// Behind `ordered`, slots known to be committed.
    pub(super) committed: BTreeSet<u64>,
    /// A majority has accepted every slot up to here in the installed view.
    pub(super) ordered: u64,
    /// What each member has accepted, durably and without a gap, in the installed view.
    pub(super) contiguous: Vec<u64>,
    /// Who has installed the view, durably.
    pub(super) joined: ReplicaSet,
    /// Own slots up to here are committed and announced.
    pub(super) own_ordered: u64,
    /// The slots of own instances that are not executed.
    pub(super) own_slots: BTreeMap<u64, u64>,
    pub(super) sequencer: Option<Sequencer>,

    /// The command instances, by owner.
    pub(super) spaces: Vec<Space<V>>,
    /// The next own number.
    pub(super) next: u64,
    /// Own numbers that are reserved.
    pub(super) numbers: Reserve,
    /// Own values by number, until they are executed.
    pub(super) proposals: BTreeMap<u64, Proposal<V>>,
    /// Those of this turn whose instances were decided without them.
    pub(super) left_out: BTreeMap<u64, Proposal<V>>,
    pub(super) queue: VecDeque<Queued<V>>,
    pub(super) queue_bytes: usize,
    pub(super) announce: Vec<Announcement<V>>,
    /// Own slots committed and not announced.
    pub(super) announce_slots: Vec<u64>,
    pub(super) reads: Reads<V>,

    /// Every slot up to here is executed.
    pub(super) executed: u64,
    /// How many instances of each member are.
    pub(super) counts: Vec<u64>,
    /// That, as of the last record.
    pub(super) executed_recorded: u64,
    pub(super) executed_durable: u64,
    /// The slots from `executed + 1` on as a peer has executed them.
    pub(super) learned: VecDeque<(Rank, Value<V>)>,
    /// Executed slots that are kept for others; the last is `executed`.
    pub(super) done: VecDeque<Done<V>>,
    pub(super) done_bytes: usize,
    /// See [`Order::hold`](crate::order::Order::hold).
    pub(super) serving: bool,
    pub(super) steps: VecDeque<Step<V>>,
    pub(super) behind: Option<ProcessId>,
    pub(super) dropped: bool,

    pub(super) contact: Contact,
    /// The lease granted last: to the sequencer of this view in this life, until then.
    pub(super) grant: Option<((Ballot, u32), Instant)>,
    /// When the sequencer was last heard in the installed view.
    pub(super) head_heard: Instant,
    pub(super) straggler: Straggler,
    /// How far was executed at the last beat, and how often nothing moved since although it should.
    pub(super) stuck: (u64, u32),

    pub(super) journal: Vec<Entry<V>>,
    /// Whether something in the journal must be durable before what follows.
    pub(super) strict: bool,
    /// Records made that something waits for.
    pub(super) recorded: u64,
    /// Up to here a message to itself is on its way.
    pub(super) asked: u64,
    pub(super) pending: VecDeque<(u64, Pending)>,
    pub(super) outbox: Vec<Outgoing<V>>,
}

impl<V: Ordered> Order<V> {
    pub(super) fn parameters(&self) -> &Parameters {
        &self.knobs.0
    }

    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        self.knobs.0.mutated(mutation)
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_member(&self) -> bool {
        self.me != STRANGER
    }

    pub(super) fn rank(&self, process: ProcessId) -> Option<Rank> {
        self.members.iter().position(|member| member.process == process).map(|at| at as Rank)
    }

    pub(super) fn process_of(&self, rank: Rank) -> ProcessId {
        self.members.get(usize::from(rank)).map_or(self.process, |member| member.process)
    }

    /// All ranks but this replica's.
    pub(super) fn peers(&self) -> impl Iterator<Item = Rank> + use<V> {
        let me = self.me;
        (0..self.members.len() as Rank).filter(move |rank| *rank != me)
    }

    /// The sequencer of the installed view.
    pub(super) fn head(&self) -> Rank {
        self.installed.owner.0
    }

    /// Whether the five-member rules apply: two replicas commit a slot.
    pub(super) fn inferring(&self) -> bool {
        self.count() == 5
    }

    /// Whether this replica takes part in the installed view (mode Normal).
    pub(super) fn normal(&self) -> bool {
        self.is_member() && self.view == self.installed && self.active
    }

    pub(super) fn sequences(&self) -> bool {
        self.normal() && self.sequencer.is_some()
    }

    pub(super) fn out(&mut self, rank: Rank) -> &mut Outgoing<V> {
        &mut self.outbox[usize::from(rank)]
    }

    /// Writes something ahead that what is told later rests on.
    pub(super) fn write(&mut self, entry: Entry<V>) {
        self.journal.push(entry);
        self.strict = true;
    }

    /// Writes something down that nothing rests on.
    pub(super) fn note(&mut self, entry: Entry<V>) {
        self.journal.push(entry);
    }

    /// What is to happen once what was written in this input is durable.
    pub(super) fn then(&mut self, pending: Pending) {
        self.pending.push_back((self.recorded + 1, pending));
    }

    /// The end of an input: what can be executed is, and one record is made. What was executed is written down
    /// before the holder sees it, so that a replay brings it again.
    pub(super) fn finish(&mut self, effects: &mut Effects<Self>) {
        while let Some(decided) = self.execute_next(false, effects.now()) {
            self.steps.push_back(Step::Decided(decided));
        }
        self.release_reads();
        if self.executed > self.executed_recorded {
            self.executed_recorded = self.executed;
            self.note(Entry::Executed(self.executed));
            if self.strict {
                self.then(Pending::Executed(self.executed));
            }
        }
        if self.journal.is_empty() {
            return;
        }
        let entries = std::mem::take(&mut self.journal);
        if std::mem::take(&mut self.strict) {
            effects.record(Record(entries));
            self.recorded += 1;
        } else {
            effects.record_lazily(Record(entries));
        }
    }

    /// What a message says of its sender. Slots accepted by the records of this turn count where it is held.
    fn head_of(&self, held: bool) -> Head {
        let contiguous = match held {
            true => self.pending_contiguous(),
            false => self.contiguous[usize::from(self.me)],
        };
        Head { view: self.installed, contiguous, ordered: self.ordered }
    }

    /// What is accepted without a gap once all records made so far are durable.
    pub(super) fn pending_contiguous(&self) -> u64 {
        let durable = self.contiguous[usize::from(self.me)];
        let written = self.pending.iter().filter_map(|(_, pending)| match pending {
            Pending::Contiguous(view, upto) if *view == self.installed => Some(*upto),
            _ => None,
        });
        written.max().unwrap_or(0).max(durable)
    }

    /// Sends what has gathered: to each peer one message of each lane, or two where large values would hold up the rest.
    fn send_out(&mut self, effects: &mut Effects<Self>) {
        self.announce_commits();
        let talks = self.normal();
        for rank in self.peers() {
            if self.sequences() {
                self.append_order(rank);
            }
            let process = self.process_of(rank);
            let Outgoing { held, ahead, again, poke, .. } = std::mem::take(self.out(rank));
            if !talks {
                continue;
            }
            for part in again {
                let turn = Message::Turn { head: self.head_of(true), parts: vec![part] };
                effects.repeating(|effects| effects.send(process, turn));
            }
            let (urgent, ordinary) = apart(ahead);
            if !urgent.is_empty() {
                let turn = Message::Turn { head: self.head_of(false), parts: urgent };
                effects.urgently(|effects| effects.send_ahead(process, turn));
            }
            if !ordinary.is_empty() {
                effects.send_ahead(process, Message::Turn { head: self.head_of(false), parts: ordinary });
            }
            let (urgent, ordinary) = apart(held);
            if !urgent.is_empty() || (poke && ordinary.is_empty()) {
                let turn = Message::Turn { head: self.head_of(true), parts: urgent };
                effects.urgently(|effects| effects.send(process, turn));
            }
            if !ordinary.is_empty() {
                effects.send(process, Message::Turn { head: self.head_of(true), parts: ordinary });
            }
        }
        if self.recorded > self.asked {
            self.asked = self.recorded;
            if !self.pending.is_empty() {
                effects.send(self.process, Message::Durable(self.recorded));
            }
        }
    }

    fn on_durable(&mut self, upto: u64, effects: &mut Effects<Self>) {
        while self.pending.front().is_some_and(|(number, _)| *number <= upto) {
            let Some((_, pending)) = self.pending.pop_front() else { break };
            let me = self.me;
            match pending {
                Pending::Contiguous(view, slots) if view == self.installed => {
                    self.joined.insert(ReplicaId(me));
                    self.hear_contiguous(me, slots);
                    self.order_on(effects);
                }
                Pending::Contiguous(..) => {}
                Pending::Executed(slots) => {
                    self.executed_durable = self.executed_durable.max(slots);
                    self.contact.durable[usize::from(me)] = self.executed_durable;
                }
                Pending::Reserved(numbers) => self.numbers.grant(numbers),
                Pending::Accepted(owner, ballot, first, last) => {
                    self.count_accepted(me, owner, ballot, first, last, effects.now());
                }
                Pending::Promised(owner, ballot) => self.own_promise(owner, ballot, effects.now()),
                Pending::Voted(view) => self.own_vote(view, effects),
            }
        }
    }

    /// Reserves numbers before they run out.
    pub(super) fn reserve(&mut self) {
        if let Some(end) = self.numbers.renew(self.next, RESERVE) {
            self.write(Entry::Reserved(end));
            self.then(Pending::Reserved(end));
        }
    }

    fn on_turn(
        &mut self,
        from: ProcessId,
        rank: Rank,
        head: Head,
        parts: Vec<Part<V>>,
        effects: &mut Effects<Self>,
    ) {
        if head.view != self.installed || self.view != self.installed {
            return self.on_other_view(from, head.view, Message::Turn { head, parts }, effects);
        }
        self.activate(effects);
        if rank == self.head() {
            self.head_heard = effects.now();
        }
        self.hear_contiguous(rank, head.contiguous);
        self.ordered = self.ordered.max(head.ordered);
        let now = effects.now();
        for part in parts {
            match part {
                Part::Accept { owner, ballot, first, values } => {
                    self.on_accept(rank, owner, ballot, first, values, now);
                }
                Part::Request { owner, first, index, objects } => {
                    self.assign(owner, first, index, &objects, true, now);
                }
                Part::Accepted { owner, ballot, first, last } => {
                    self.count_accepted(rank, owner, ballot, first, last, now);
                }
                Part::Refused { owner, promised } => self.on_refused(owner, promised, now),
                Part::Commit { owner, ballot, first, last } => {
                    self.on_commit(owner, ballot, first, last, now);
                }
                Part::Decided { owner, ballot, first, values } => {
                    self.on_decided(owner, ballot, first, values, now);
                }
                Part::Prepare { owner, from, ballot } => self.on_prepare(rank, owner, from, ballot),
                Part::Promised { owner, ballot, executed, slots, accepted } => {
                    self.on_promised(rank, owner, ballot, executed, slots, accepted, now);
                }
                Part::Order { first, runs } => self.on_order(rank, first, &runs, now),
                Part::Gap => self.on_gap(rank, head.contiguous, effects),
                Part::Ordered { owner, slots } => self.on_ordered(owner, &slots),
                Part::Read(reads) => self.on_read(rank, &reads, now),
                Part::ReadAt(answers) => self.on_read_at(&answers, now),
            }
        }
        self.order_on(effects);
    }

    pub(super) fn draw_patience(&self, effects: &mut Effects<Self>) -> Span {
        let count = self.count().max(1);
        let head = usize::from(self.installed.owner.0) % count;
        patience(self.silence(), usize::from(self.me), head, count, effects.random())
    }
}

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Result<(), crate::request::Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        let members = setup.members.clone();
        let count = members.len();
        let at = |process| members.iter().position(|member: &Member| member.process == process);
        let me = at(identity.process).map_or(STRANGER, |at| at as Rank);
        let first = setup.preferred.and_then(|seat| members.iter().position(|m| m.replica == seat));
        let view = Ballot { round: 1, owner: ReplicaId(first.unwrap_or(0) as u8) };
        let space = |rank: usize| Space::new(rank as Rank, rank as Rank == me && identity.incarnation == 1);
        let mut order = Order {
            me,
            process: identity.process,
            incarnation: identity.incarnation,
            majority: Quorums::majority(count),
            knobs: Knobs(setup.parameters),
            started: Instant::ZERO,
            view,
            prior: view,
            installed: view,
            active: true,
            begin: 0,
            floor_view: Ballot::ZERO,
            seen: view,
            poll: None,
            campaign: None,
            stashed: None,
            failures: 0,
            since: Instant::ZERO,
            patience: setup.parameters.election,
            losses: Losses::default(),
            lost: Ballot::ZERO,
            early: Vec::new(),
            task: None,
            log: Assignment::new(count),
            committed: BTreeSet::new(),
            ordered: 0,
            contiguous: vec![0; count],
            joined: ReplicaSet::EMPTY,
            own_ordered: 0,
            own_slots: BTreeMap::new(),
            sequencer: None,
            spaces: (0..count).map(space).collect(),
            next: 1,
            numbers: Reserve::default(),
            proposals: BTreeMap::new(),
            left_out: BTreeMap::new(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            announce: Vec::new(),
            announce_slots: Vec::new(),
            reads: Reads::of_life(identity.incarnation),
            executed: 0,
            counts: vec![0; count],
            executed_recorded: 0,
            executed_durable: 0,
            learned: VecDeque::new(),
            done: VecDeque::new(),
            done_bytes: 0,
            serving: false,
            steps: VecDeque::new(),
            behind: None,
            dropped: false,
            contact: Contact::new(count),
            grant: None,
            head_heard: Instant::ZERO,
            straggler: Straggler::default(),
            stuck: (0, 0),
            journal: Vec::new(),
            strict: false,
            recorded: 0,
            asked: 0,
            pending: VecDeque::new(),
            outbox: vec![Outgoing::default(); count],
            members,
        };
        if order.head() == me {
            order.sequencer = Some(order.fresh_sequencer(Instant::ZERO));
        }
        order
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_chunk(&chunk)
    }

    fn replay(&mut self, record: Record<V>) {
        for entry in record.0 {
            self.replay_entry(entry);
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() {
            return;
        }
        self.begin_life(effects);
        self.finish(effects);
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        if from == self.process {
            if let Message::Durable(upto) = message {
                self.on_durable(upto, effects);
                self.finish(effects);
            }
            return;
        }
        let Some(rank) = self.rank(from).filter(|_| self.is_member()) else { return };
        self.contact.heard(rank, effects.now());
        self.hear(from, rank, message, effects);
        self.finish(effects);
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Beat => self.beat(effects),
            Timer::Watch => self.watch(effects),
            Timer::Lease => self.unstash(effects),
        }
        self.finish(effects);
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() {
            return;
        }
        self.ask_reads(effects.now());
        self.launch(effects.now());
        self.finish(effects);
        self.send_out(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.image())
    }

    fn check(&self) {
        if self.parameters().mutation.is_some() || !self.is_member() {
            return;
        }
        assert!(self.installed <= self.view, "I6: a log of a view above the vote");
        assert!(self.sequencer.is_none() || self.head() == self.me, "I6: two sequencers of a view");
        if self.sequences() {
            assert!(self.log.end() == self.log.contiguous(), "I4: the sequencer's log has a hole");
        }
        assert!(self.log.low() <= self.log.contiguous(), "a log before its beginning");
        assert!(
            self.contiguous[usize::from(self.me)] <= self.log.contiguous(),
            "I4: what was accepted is gone: {} of {}",
            self.log.contiguous(),
            self.contiguous[usize::from(self.me)]
        );
        assert!(self.executed >= self.log.low() || self.executed_recorded <= self.executed, "executed twice");
        let mine = usize::from(self.me);
        assert!(self.counts[mine] < self.next, "I8: a number executed that was never used");
        assert!(
            self.sequencer.is_none() || self.log.count(self.me) < self.next.max(self.numbers.end()),
            "I8: more slots than commands"
        );
        assert!(
            !self.inferring() || self.active || self.own_ordered == 0,
            "I7: committed in an inactive view"
        );
        // Whoever leads a later view, its log comes to the one who knows what was ready, and must hold it.
        let ready = self.proposals.iter().rev().find(|(_, proposal)| proposal.ready).map(|(index, _)| *index);
        if let Some(index) = ready.filter(|_| self.normal()) {
            let slots = self.log.count(self.me);
            assert!(slots >= index, "I5: {index} is ready, and a later view has {slots} slots for it");
        }
        for (rank, space) in self.spaces.iter().enumerate() {
            assert!(space.log.base() == Slot(self.counts[rank] + 1), "instances kept that are executed");
        }
    }
}

impl<V: Ordered> Order<V> {
    fn hear(&mut self, from: ProcessId, rank: Rank, message: Message<V>, effects: &mut Effects<Self>) {
        match message {
            Message::Turn { head, parts } => self.on_turn(from, rank, head, parts, effects),
            Message::Beat(beat) => self.on_beat(from, rank, &beat, effects),
            Message::Poll { view } => self.on_poll(from, view, effects),
            Message::Polled { view, granted, seen } => self.on_polled(rank, view, granted, seen, effects),
            Message::ViewRequest { view, released } => {
                self.on_view_request(from, view, released, effects);
            }
            Message::Vote { view, report } => self.on_vote(rank, view, *report, effects),
            Message::NewView { view, active, begin, log } => {
                self.on_new_view(rank, view, active, begin, &log, effects);
            }
            Message::Installed { view, contiguous } => {
                if view == self.installed && view == self.view {
                    self.joined.insert(ReplicaId(rank));
                    self.hear_contiguous(rank, contiguous);
                    self.order_on(effects);
                }
            }
            Message::Stale { view } => self.on_stale(from, view, effects),
            Message::FetchView { installed } => self.on_fetch_view(from, installed, effects),
            Message::Fetch { view, from: first } => self.on_fetch(from, rank, view, first, effects),
            Message::Learned { view, first, slots, executed } => {
                self.on_learned(from, rank, view, first, slots, executed, effects);
            }
            Message::Trimmed { view, executed } => self.on_trimmed(from, view, executed),
            Message::SlowQuery { view } => self.on_slow_query(from, view, effects),
            Message::SlowReply { view, agreed } => self.on_slow_reply(rank, view, agreed, effects),
            Message::Yield { view, heir } => self.on_yield(view, heir, effects),
            Message::Handover { view, life } => self.on_handover((view, life), effects),
            // Only to itself.
            Message::Durable(_) => {}
        }
    }

    /// The early messages of a view that is now installed.
    pub(super) fn hear_early(&mut self, effects: &mut Effects<Self>) {
        for (from, message) in std::mem::take(&mut self.early) {
            if let Some(rank) = self.rank(from) {
                self.hear(from, rank, message, effects);
            }
        }
    }
}

/// What goes first, and what does not; together, where that does not hold up the first.
fn apart<V: Ordered>(parts: Vec<Part<V>>) -> (Vec<Part<V>>, Vec<Part<V>>) {
    if parts.iter().all(Part::is_urgent) {
        return (parts, Vec::new());
    }
    if !parts.iter().any(Part::is_urgent) || parts.iter().map(Part::weight).sum::<usize>() < LARGE {
        return (Vec::new(), parts);
    }
    parts.into_iter().partition(Part::is_urgent)
}
