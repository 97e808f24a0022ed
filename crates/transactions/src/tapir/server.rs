//! A replica of TAPIR: it votes by itself, takes part in what coordinators settle, and executes what was decided.

use super::message::{Ballot, Message, Name, Note, Part, Record, Vote};
use super::occ::{self, Rules};
use super::state::State;
use super::takeover::{Promise, Takeover};
use super::view::Change;
use super::{Mutation, Parameters};
use crate::census::{self, Census};
use crate::family;
use crate::map::Map;
use crate::request::TxnId;
use crate::said::{say, say_ahead};
use isochrone_core::{
    Blob, Effects, Fact, Identity, Instant, Malformed, PartitionId, Process, ProcessId, Snapshot, Span,
    Stamp, Ticket,
};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What may be asked of a replica.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Order {
    /// To change to the next view: its leader brings all replicas to one record.
    ChangeView,
    /// Nothing but to answer.
    Inspect,
}

/// What a replica answers: how it stands.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Standing {
    /// The view that it is in, and whether it is normal in it.
    pub view: (u64, bool),
    /// Transactions that have not ended.
    pub open: usize,
    /// Those that have, and that somebody may still ask for.
    pub ended: usize,
    /// A number that equal committed data agree on.
    pub digest: u64,
}

/// The timers of a replica.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// Looks after what has not ended everywhere.
    Sweep,
    /// Looks after a change of view.
    View,
}

/// A replica of a partition.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) me: ProcessId,
    pub(super) seat: usize,
    pub(super) partition: PartitionId,
    pub(super) map: Map,
    pub(super) parameters: Parameters,
    pub(super) state: State,
    pub(super) takeovers: BTreeMap<TxnId, Takeover>,
    pub(super) changing: Change,
    pub(super) sweeping: bool,
    /// When it may ask again how a later view began, and how many were asked.
    pub(super) fetch_due: Instant,
    pub(super) fetches: u64,
    census: Census,
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.me, &self.state, &self.takeovers, &self.changing, self.sweeping).hash(hasher);
        (self.fetch_due, self.fetches).hash(hasher);
    }
}

/// Doublings of a pause, at most.
pub(super) const DOUBLINGS: u32 = 5;

impl Server {
    /// The replicas of this partition, by seat.
    pub(super) fn peers(&self) -> impl Iterator<Item = ProcessId> + use<> {
        let members = self.map.group(self.partition).members.clone();
        (0..members.len()).map(move |seat| members[seat].process)
    }

    /// All replicas of these partitions.
    pub(super) fn replicas(&self, participants: &[PartitionId]) -> Vec<ProcessId> {
        let members = participants.iter().flat_map(|partition| self.map.group(*partition).members.iter());
        members.map(|member| member.process).collect()
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            strict: self.parameters.strict_reads,
            blind: self.parameters.mutated(Mutation::IgnorePrepared),
            stale: self.parameters.mutated(Mutation::IgnoreStaleReads),
        }
    }

    /// Writes down a change and makes it; what is sent later waits until it is durable.
    pub(super) fn log(&mut self, record: Record, effects: &mut Effects<Self>) {
        effects.record(record.clone());
        self.state.apply(record);
    }

    /// The same for what a restart finds out by itself.
    pub(super) fn log_lazily(&mut self, record: Record, effects: &mut Effects<Self>) {
        effects.record_lazily(record.clone());
        self.state.apply(record);
    }

    /// Notes when an entry changed, and sees to it that it is looked after.
    pub(super) fn touch(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let now = effects.now();
        if let Some(entry) = self.state.entries.get_mut(&txn) {
            (entry.since, entry.due, entry.told) = (now, now + self.parameters.terminate_after, 0);
        }
        self.sweep_soon(effects);
    }

    pub(super) fn sweep_soon(&mut self, effects: &mut Effects<Self>) {
        if !self.sweeping {
            self.sweeping = true;
            effects.arm(Timer::Sweep, self.parameters.resend);
        }
    }

    pub(super) fn count(what: &'static str, effects: &mut Effects<Self>) {
        effects.mark(Note(Fact::Counted(what)));
    }

    fn read(&self, from: ProcessId, txn: TxnId, keys: &[Blob], effects: &mut Effects<Self>) {
        let value = |key: &Blob| {
            let (version, value) = self.state.data.latest(key);
            (version, value.cloned())
        };
        let values = keys.iter().map(value).collect();
        // What has committed stays true, whatever this replica loses.
        say_ahead(from, Message::Values { txn, values }, effects);
    }

    /// Votes for a transaction, once for each try.
    fn prepare(
        &mut self,
        from: ProcessId,
        (name, part): (Name, Arc<Part>),
        (below, done): (u64, u64),
        effects: &mut Effects<Self>,
    ) {
        let (txn, attempt) = (name.txn, name.attempt);
        let mut fresh = true;
        if let Some(entry) = self.state.entries.get(&txn) {
            if let Some(verdict) = entry.verdict {
                return say(from, Message::Told { txn, verdict }, effects);
            }
            if entry.name.attempt > attempt {
                return;
            }
            if entry.name.attempt == attempt
                && let Some(vote) = entry.vote
            {
                let finalized = entry.accepted.is_some();
                let view = self.state.normal;
                return say(from, Message::Voted { txn, attempt, view, vote, finalized }, effects);
            }
            if entry.promised > Ballot::CLIENT && !self.parameters.mutated(Mutation::ForgetTakeover) {
                return;
            }
            fresh = false;
        } else if self.state.over(txn) || self.state.may_be_forgotten(txn) {
            return;
        }
        let vote = occ::check(&self.state.data, &self.state.prepared, txn, &part, name.at, self.rules());
        let record = Record::Voted { name, part, vote, below, done };
        if self.parameters.mutated(Mutation::ForgetPrepared) {
            self.state.apply(record);
        } else {
            self.log(record, effects);
        }
        if fresh {
            self.touch(txn, effects);
        }
        let view = self.state.normal;
        say(from, Message::Voted { txn, attempt, view, vote, finalized: false }, effects);
    }

    /// Accepts what a coordinator has settled.
    fn finalize(
        &mut self,
        from: ProcessId,
        (name, ballot, view): (Name, Ballot, u64),
        (vote, part): (Vote, Option<Arc<Part>>),
        effects: &mut Effects<Self>,
    ) {
        let (txn, attempt) = (name.txn, name.attempt);
        let mut known = false;
        let mut fresh = true;
        if let Some(entry) = self.state.entries.get(&txn) {
            if entry.verdict.is_some() {
                return self.tell(from, txn, effects);
            }
            let forgetful = self.parameters.mutated(Mutation::ForgetTakeover);
            if entry.promised > ballot && !(forgetful && ballot == Ballot::CLIENT) {
                if ballot > Ballot::CLIENT {
                    say(from, Message::Outbid { txn, promised: entry.promised }, effects);
                }
                return;
            }
            let same = entry.name.attempt == attempt && entry.accepted == Some(ballot);
            if same && entry.vote == Some(vote) {
                return say(from, Message::Confirmed { txn, attempt, ballot, view }, effects);
            }
            // Its client is behind what was agreed on in a change of view, or repeats itself.
            if same || (ballot == Ballot::CLIENT && entry.name.attempt > attempt) {
                return;
            }
            // It may have been aborted, under a ballot above this one.
            if vote == Vote::Ok && !self.state.is_sure(entry) {
                return;
            }
            known = entry.part.is_some();
            fresh = false;
        } else if self.state.over(txn) || self.state.may_be_forgotten(txn) {
            return;
        }
        if vote == Vote::Ok && !known && part.is_none() {
            return;
        }
        self.log(Record::Accepted { name, part, ballot, vote }, effects);
        if fresh {
            self.touch(txn, effects);
        }
        say(from, Message::Confirmed { txn, attempt, ballot, view }, effects);
    }

    /// Whether a message of this view can be dealt with; one of a later view shows that this replica is behind.
    fn in_view(&mut self, view: u64, effects: &mut Effects<Self>) -> bool {
        if view > self.state.view {
            self.fetch(view, effects);
            return false;
        }
        self.state.is_normal()
    }
}

impl Process for Server {
    type Setup = family::Server<Parameters>;
    type Message = Message;
    type Record = Record;
    type Request = Order;
    type Outcome = Standing;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Server {
        let me = identity.process;
        let members = &setup.map.group(setup.partition).members;
        let seat = members.iter().position(|member| member.process == me).unwrap_or(0);
        Server {
            me,
            seat,
            partition: setup.partition,
            map: setup.map.clone(),
            parameters: setup.parameters,
            state: State::new(&setup.map, setup.parameters.mutation),
            takeovers: BTreeMap::new(),
            changing: Change::default(),
            sweeping: false,
            fetch_due: Instant::ZERO,
            fetches: 0,
            census: Census::default(),
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.state.restore(&chunk)
    }

    fn replay(&mut self, record: Record) {
        self.state.apply(record);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        let txns: Vec<TxnId> = self.state.entries.keys().copied().collect();
        for txn in txns {
            self.touch(txn, effects);
        }
        if !self.state.is_normal() {
            self.resume_change(effects);
        }
    }

    fn receive(&mut self, from: ProcessId, message: Message, effects: &mut Effects<Self>) {
        if !message.names_partitions_below(self.map.groups.len()) {
            return;
        }
        match message {
            Message::Read { txn, keys } => self.read(from, txn, &keys, effects),
            Message::Prepare { name, part, view, below, done, cleared } => {
                self.cleared(name.txn.client, done, &cleared, effects);
                if self.in_view(view, effects) {
                    self.prepare(from, (name, part), (below, done), effects);
                }
            }
            Message::Finalize { name, ballot, view, vote, part } => {
                if self.in_view(view, effects) && view == self.state.normal {
                    self.finalize(from, (name, ballot, view), (vote, part), effects);
                } else {
                    self.tell(from, name.txn, effects);
                }
            }
            Message::Decide { ended } => self.decide(from, ended, effects),
            Message::Settle { txn } => self.settled(txn, effects),
            Message::Cleared { client, done, sequences } => self.cleared(client, done, &sequences, effects),
            Message::Inquire { name, ballot } => self.inquired(from, name, ballot, effects),
            Message::Promised { ballot, view, held, sure } => {
                self.promised(from, ballot, Promise { view, held, sure }, effects);
            }
            Message::Confirmed { txn, attempt, ballot, view } => {
                self.confirmed(from, (txn, attempt), ballot, view, effects);
            }
            Message::Outbid { txn, promised } => self.outbid(txn, promised),
            Message::Spread { ended, noted } => self.spread(from, ended, noted, effects),
            Message::Has { txns } => self.has(from, &txns, effects),
            Message::Ask { txn } => self.asked(from, txn, effects),
            Message::Gone { txn } => self.gone(txn, effects),
            Message::ChangeView { view } => self.asked_to_change(from, view, effects),
            Message::Records { view, normal, held, ended } => {
                self.on_records(from, view, (normal, held, ended), effects);
            }
            Message::StartView { view, held, ended } => self.on_start_view(from, view, held, ended, effects),
            Message::Fetch { view } => self.fetched(from, view, effects),
            Message::List { ask, query } => {
                // Behind its records: a fence that it might forget would hold nobody up.
                if let Some(page) = query.answer(self.state.data.store(), self.state.prepared.written()) {
                    say(from, Message::Listed { ask, page }, effects);
                }
            }
            // These are for clients.
            Message::Listed { .. }
            | Message::Forward(_)
            | Message::Values { .. }
            | Message::Voted { .. }
            | Message::Noted { .. }
            | Message::Told { .. } => {}
        }
    }

    fn request(&mut self, ticket: Ticket, order: Order, effects: &mut Effects<Self>) {
        if order == Order::ChangeView {
            self.change_view(self.state.view + 1, effects);
        }
        effects.complete(ticket, self.standing());
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Sweep => effects.repeating(|effects| self.sweep(effects)),
            Timer::View => self.changing_too_long(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.census.tell(self.state.data.store().count(), Note, effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.state.snapshot())
    }

    fn overdue(&self, stamp: Stamp, most: usize) -> Vec<Blob> {
        census::overdue(self.state.data.store(), &self.map.split, stamp, most)
    }

    fn check(&self) {
        assert!(self.state.normal <= self.state.view, "normal in a view that it has not come to");
        assert!(
            !self.state.entries.is_empty() || self.state.prepared.is_empty(),
            "prepared, and nothing is under way"
        );
    }
}

impl Server {
    /// What a pause of this many doublings lasts, and as much again at random.
    pub(super) fn pause(&self, doublings: u32, effects: &mut Effects<Self>) -> Span {
        let span = self.parameters.resend * (1 << doublings.min(DOUBLINGS));
        span + Span::from_nanos(effects.random().below(span.as_nanos().max(1)))
    }

    fn standing(&self) -> Standing {
        let open = self.state.entries.values().filter(|entry| entry.verdict.is_none()).count();
        Standing {
            view: (self.state.view, self.state.is_normal()),
            open,
            ended: self.state.entries.len() - open,
            digest: self.state.data.digest(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Tuning as _;
    use crate::map::{Group, Split};
    use crate::tapir::message::{Ended, Verdict};
    use isochrone_core::{ClientId, Effect, KeyspaceId, NodeId, Outbox, Random, ReplicaId, Role};
    use isochrone_replication::order::Member;
    use isochrone_store::versions::Version;

    fn process(node: u16, role: Role) -> ProcessId {
        let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
        ProcessId { node: NodeId(node), keyspace, partition, role, instance: 0 }
    }

    /// The first of so many replicas of one partition.
    fn first(replicas: u8) -> (Server, Outbox<Server>) {
        let me = process(0, crate::SERVER);
        let member =
            |seat: u8| Member { replica: ReplicaId(seat), process: process(seat.into(), crate::SERVER) };
        let groups = [Group { members: (0..replicas).map(member).collect(), spares: [].into() }].into();
        let map = Map { keyspace: KeyspaceId(1), split: Split::Hash, groups };
        let parameters = Parameters::for_rtt(Span::from_millis(10));
        let setup = family::Server { map, partition: PartitionId(0), clients: [].into(), parameters };
        let server = Server::open(Identity { process: me, incarnation: 1 }, &setup);
        (server, Outbox::new(me, Random::seeded(1)))
    }

    fn name(sequence: u64, participants: &[u16]) -> Name {
        let client = ClientId { process: process(0, crate::CLIENT), incarnation: 1 };
        let participants = participants.iter().map(|partition| PartitionId(*partition)).collect();
        Name { txn: TxnId { client, sequence }, participants, attempt: 0, at: Version(sequence) }
    }

    fn prepare(name: Name, view: u64) -> Message {
        let (part, below, done, cleared) = (Arc::default(), 0, 0, Vec::new());
        Message::Prepare { name, part, view, below, done, cleared }
    }

    /// What names a partition that there is none of, as a node with another file may, is not written down.
    #[test]
    fn what_names_a_partition_that_is_none_is_passed_over() {
        let (mut server, mut outbox) = first(1);
        let from = process(0, crate::CLIENT);
        let mut written = |partitions: &[u16]| {
            let prepare = prepare(name(1, partitions), 0);
            server.receive(from, prepare, outbox.input(Instant::ZERO, Stamp::from_nanos(1)));
            outbox.drain().filter(|effect| matches!(effect, Effect::Record { .. })).count()
        };
        assert_eq!((written(&[0, 60_000]), written(&[0])), (0, 1));
    }

    /// Clients send to a replica that is behind as they do to the others, and the beginning of a view is long.
    #[test]
    fn a_replica_that_is_behind_asks_one_peer_at_a_time() {
        let (mut server, mut outbox) = first(5);
        let from = process(0, crate::CLIENT);
        let mut asked = |now: Instant| {
            let mut asked = Vec::new();
            for sequence in 1..=100 {
                let prepare = prepare(name(sequence, &[0]), 1);
                server.receive(from, prepare, outbox.input(now, Stamp::from_nanos(1)));
                asked.extend(outbox.drain().filter_map(|effect| match effect {
                    Effect::Send { to, message: Message::Fetch { view: 1 }, .. } => Some(to.node.0),
                    _ => None,
                }));
            }
            asked
        };
        let later = |seconds: u64| Instant::ZERO + Span::from_secs(seconds);
        assert_eq!([0, 1, 2, 3, 4].map(|second| asked(later(second))), [[1], [2], [3], [4], [1]]);
    }

    /// Its client, which has told it, is dead.
    #[test]
    fn a_replica_alone_drops_what_has_ended() {
        let (mut server, mut outbox) = first(1);
        let from = process(0, crate::CLIENT);
        let (name, mut now) = (name(1, &[0]), Instant::ZERO);
        let ended = Ended {
            txn: name.txn,
            participants: name.participants.clone(),
            verdict: Verdict::Commit(name.at),
            part: None,
        };
        for message in [prepare(name, 0), Message::Decide { ended }] {
            server.receive(from, message, outbox.input(now, Stamp::from_nanos(1)));
            outbox.drain().for_each(drop);
        }
        assert_eq!(server.standing().ended, 1);
        for _ in 0..20 {
            now = now + server.parameters.resend;
            server.expire(Timer::Sweep, outbox.input(now, Stamp::from_nanos(1)));
            outbox.drain().for_each(drop);
        }
        assert_eq!(server.standing().ended, 0);
    }
}
