//! The client of TAPIR: it coordinates its transactions itself.

use super::Parameters;
use super::closing::Closing;
use super::handles::Handles;
use super::message::{Ballot, Message, Note, Nothing};
use super::timestamps::Timestamps;
use super::transaction::{Reading, State, Transaction};
use crate::family::{self, Tuning as _};
use crate::listing::{Listings, Query};
use crate::map::Map;
use crate::request::{MoveRefusal, Outcome, Reason, Refusal, Request, TxnId, Update};
use crate::said::say_ahead;
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Identity, Instant, Malformed, PartitionId, Process, ProcessId,
    Quorums, Snapshot, Ticket,
};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

/// The timers of a client.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// Something is due about the transaction of this sequence.
    Transaction(u64),
    /// Replicas are told what has ended everywhere, if no message was under way that could.
    Clear,
}

/// A client process.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) me: ClientId,
    pub(super) map: Map,
    /// The replicas of each partition, nearest first.
    pub(super) near: Vec<Vec<ProcessId>>,
    pub(super) parameters: Parameters,
    pub(super) timestamps: Timestamps,
    pub(super) next: u64,
    pub(super) open: BTreeMap<u64, Transaction>,
    /// By the ticket's number.
    pub(super) tickets: BTreeMap<u64, u64>,
    /// Those that wait for the end of others, in their order.
    pub(super) waiting: VecDeque<u64>,
    pub(super) closing: BTreeMap<u64, Closing>,
    /// Those of them whose end a majority of each partition knows.
    pub(super) settled: BTreeSet<u64>,
    pub(super) handles: Handles,
    /// What has ended everywhere and the replicas of a partition were not told.
    pub(super) cleared: BTreeMap<PartitionId, Vec<u64>>,
    pub(super) clearing: bool,
    /// The first transaction whose end was left to the replicas.
    pub(super) left: Option<u64>,
    /// The latest view of each partition that was heard of.
    pub(super) views: BTreeMap<PartitionId, u64>,
    /// Replicas of which a transaction has waited for a vote in vain, and nothing was heard since: while there is one, its
    /// partition's fast quorum is not waited for.
    pub(super) silent: BTreeSet<ProcessId>,
    /// Which of the nearest replicas of a partition is read first, and until when: the nearest has missed something.
    pub(super) elsewhere: BTreeMap<PartitionId, (usize, Instant)>,
    /// When the timer of each transaction runs out.
    pub(super) armed: BTreeMap<u64, Instant>,
    listings: Listings,
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.me, &self.timestamps, self.next, &self.open, &self.waiting, &self.closing).hash(hasher);
        (&self.handles, &self.cleared, self.clearing, self.left, &self.views).hash(hasher);
        (&self.silent, &self.elsewhere).hash(hasher);
    }
}

impl Client {
    pub(super) fn id(&self, sequence: u64) -> TxnId {
        TxnId { client: self.me, sequence }
    }

    /// Nothing below this is proposed any more.
    pub(super) fn below(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.next)
    }

    /// All below this has ended everywhere.
    pub(super) fn done(&self) -> u64 {
        let first = self.closing.keys().next().copied().unwrap_or(self.next);
        self.below().min(first).min(self.left.unwrap_or(self.next))
    }

    pub(super) fn replicas(&self, partition: PartitionId) -> &[ProcessId] {
        &self.near[usize::from(partition.0)]
    }

    pub(super) fn view(&self, partition: PartitionId) -> u64 {
        self.views.get(&partition).copied().unwrap_or(0)
    }

    /// Which of the nearest replicas of a partition is read first.
    pub(super) fn first(&self, partition: PartitionId, now: Instant) -> usize {
        let elsewhere = self.elsewhere.get(&partition).filter(|(_, until)| now < *until);
        let (near, first) = (self.replicas(partition), elsewhere.map_or(0, |(turn, _)| *turn));
        // Who is silent would be waited for.
        let mut turns = (0..near.len()).map(|step| (first + step) % near.len());
        turns.find(|turn| !self.silent.contains(&near[*turn])).unwrap_or(first)
    }

    /// Sees to it that what is due next about a transaction is done.
    pub(super) fn rearm(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let open = self.open.get(&sequence).map(Transaction::due);
        let Some(due) = open.or_else(|| self.closing.get(&sequence).map(|closing| closing.due)) else {
            if self.armed.remove(&sequence).is_some() {
                effects.disarm(Timer::Transaction(sequence));
            }
            return;
        };
        if self.armed.insert(sequence, due) != Some(due) {
            effects.arm(Timer::Transaction(sequence), due.since(effects.now()));
        }
    }

    pub(super) fn answer(&mut self, sequence: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        if let Some(ticket) = transaction.ticket.take() {
            self.tickets.remove(&ticket.0);
            effects.complete_ahead(ticket, outcome);
        }
    }

    /// A transaction is no longer open.
    pub(super) fn close(&mut self, sequence: u64) -> Option<Transaction> {
        let transaction = self.open.remove(&sequence)?;
        self.handles.free(transaction.handle, sequence);
        Some(transaction)
    }

    fn begin(&mut self, ticket: Ticket, reads: Vec<Blob>, writes: Vec<Blob>, effects: &mut Effects<Self>) {
        if let Err(refusal) = self.admit(&reads, &writes) {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        let sequence = self.next;
        self.next += 1;
        let now = effects.now();
        let transaction = Transaction {
            ticket: Some(ticket),
            handle: self.handles.take(),
            asked: now,
            limit: now + self.parameters.time_limit,
            reads,
            writes: writes.into_iter().collect(),
            values: BTreeMap::new(),
            state: State::Waiting,
        };
        self.tickets.insert(ticket.0, sequence);
        self.open.insert(sequence, transaction);
        if !self.try_begin(sequence, effects) {
            self.waiting.push_back(sequence);
            self.rearm(sequence, effects);
        }
    }

    /// Whether a transaction of these keys may begin. One that only replicas which are away do not know the end of is none
    /// that is open.
    fn admit(&self, reads: &[Blob], writes: &[Blob]) -> Result<(), Refusal> {
        let open = self.open.len() + self.closing.len() - self.settled.len();
        if open >= self.parameters.open {
            return Err(Refusal::Overloaded(open));
        }
        self.parameters.bounds().check_sets(reads, writes)
    }

    /// Begins to read, unless a partition is still to hear of the end of an earlier transaction.
    pub(super) fn try_begin(&mut self, sequence: u64, effects: &mut Effects<Self>) -> bool {
        let Some(transaction) = self.open.get(&sequence) else { return true };
        if self.parameters.self_blocking
            && let Some(last) = self.closing.get(&self.handles.last(transaction.handle))
            && transaction.touches(&self.map).iter().any(|partition| last.open.contains(partition))
        {
            return false;
        }
        let now = effects.now();
        let due = now + self.parameters.read;
        let asks = transaction.asks(&self.map).into_iter();
        let parts = asks.map(|(partition, keys)| {
            let first = self.first(partition, now);
            (partition, Reading { keys: keys.into(), first, tries: 0, answered: false, due })
        });
        let parts = parts.collect();
        if let Some(transaction) = self.open.get_mut(&sequence) {
            transaction.state = State::Reading(parts);
        }
        self.ask_reads(sequence, None, effects);
        self.have_read(sequence, effects);
        self.rearm(sequence, effects);
        true
    }

    /// Asks for what was not read; all of it, or what is due.
    pub(super) fn ask_reads(&mut self, sequence: u64, due: Option<Instant>, effects: &mut Effects<Self>) {
        let (txn, read) = (self.id(sequence), self.parameters.read);
        let Some(Transaction { state: State::Reading(parts), .. }) = self.open.get_mut(&sequence) else {
            return;
        };
        for (partition, reading) in parts.iter_mut().filter(|(_, reading)| !reading.answered) {
            if let Some(now) = due {
                if reading.due > now {
                    continue;
                }
                reading.tries += 1;
                reading.due = now + read * u64::from(reading.tries.min(4) + 1);
            }
            let near = &self.near[usize::from(partition.0)];
            let replica = near[(reading.first + reading.tries as usize) % near.len()];
            say_ahead(replica, Message::Read { txn, keys: reading.keys.clone() }, effects);
        }
    }

    fn on_values(
        &mut self,
        from: ProcessId,
        sequence: u64,
        values: Vec<(Version, Option<Blob>)>,
        effects: &mut Effects<Self>,
    ) {
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        let State::Reading(parts) = &mut transaction.state else { return };
        let Some(reading) = parts.get_mut(&from.partition) else { return };
        if reading.answered || reading.keys.len() != values.len() {
            return;
        }
        reading.answered = true;
        transaction.values.extend(reading.keys.iter().cloned().zip(values));
        self.have_read(sequence, effects);
        self.rearm(sequence, effects);
    }

    /// Goes on once everything was read.
    fn have_read(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let txn = self.id(sequence);
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        let State::Reading(parts) = &transaction.state else { return };
        if parts.values().any(|reading| !reading.answered) {
            return;
        }
        transaction.state = State::Open;
        if transaction.writes.is_empty() {
            return self.commit(sequence, Vec::new(), effects);
        }
        let reads = transaction.answer();
        self.answer(sequence, Outcome::Begun { txn, reads }, effects);
    }

    /// A host wants to commit.
    fn asked_to_commit(
        &mut self,
        ticket: Ticket,
        txn: TxnId,
        updates: Vec<Update>,
        effects: &mut Effects<Self>,
    ) {
        if let Err(refusal) = self.check_updates(txn, &updates) {
            return effects.complete_ahead(ticket, Outcome::Refused(refusal));
        }
        let now = effects.now();
        if let Some(transaction) = self.open.get_mut(&txn.sequence) {
            (transaction.ticket, transaction.asked) = (Some(ticket), now);
            transaction.limit = now + self.parameters.time_limit;
            self.tickets.insert(ticket.0, txn.sequence);
        }
        self.commit(txn.sequence, updates, effects);
        self.rearm(txn.sequence, effects);
    }

    fn check_updates(&self, txn: TxnId, updates: &[Update]) -> Result<(), Refusal> {
        let open = self.open.get(&txn.sequence).filter(|_| txn.client == self.me);
        match open {
            Some(Transaction { state: State::Open, writes, .. }) => {
                self.parameters.bounds().check_updates(updates, writes)
            }
            _ => Err(Refusal::NotOpen(txn)),
        }
    }

    /// Asks all partitions that take part whether the transaction may commit.
    fn commit(&mut self, sequence: u64, updates: Vec<Update>, effects: &mut Effects<Self>) {
        let Some(transaction) = self.open.get(&sequence) else { return };
        let parts = transaction.parts(&self.map, updates);
        // Above all that was read, so that it comes behind whoever wrote that.
        let at = self.timestamps.next(effects.stamp(), transaction.newest());
        if parts.is_empty() {
            self.answer(sequence, Outcome::Committed { at }, effects);
            self.close(sequence);
            return;
        }
        self.prepare(sequence, 0, at, parts, effects);
    }

    fn abort(&mut self, ticket: Ticket, txn: TxnId, effects: &mut Effects<Self>) {
        let open = self.open.get(&txn.sequence).filter(|_| txn.client == self.me);
        let outcome = match open {
            // Nobody but this client knows of it.
            Some(Transaction { state: State::Open, .. }) => {
                self.close(txn.sequence);
                self.rearm(txn.sequence, effects);
                Outcome::Aborted(Reason::Client)
            }
            _ => Outcome::Refused(Refusal::NotOpen(txn)),
        };
        effects.complete_ahead(ticket, outcome);
    }

    /// Asks all replicas which keys they have. What has committed a majority has at each participant, and what may still be
    /// decided a majority has voted for: so as many are to answer.
    fn list(&mut self, ticket: Ticket, partition: PartitionId, query: Query, effects: &mut Effects<Self>) {
        let group = self.map.group(partition);
        let majority = Quorums::majority(group.members.len());
        let question = Message::List { ask: CommandId { client: self.me, sequence: ticket.0 }, query };
        self.listings.ask(ticket, group, majority, &question, effects);
    }
}

impl Process for Client {
    type Setup = family::Client<Parameters>;
    type Message = Message;
    type Record = Nothing;
    type Request = Request;
    type Outcome = Outcome;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Self::Setup) -> Client {
        let near = setup.map.groups.iter().map(|group| {
            let mut near: Vec<ProcessId> = group.members.iter().map(|member| member.process).collect();
            near.sort_by_key(|replica| (setup.distances.to(*replica), !setup.distances.local(replica.node)));
            near
        });
        Client {
            me: identity.into(),
            near: near.collect(),
            map: setup.map.clone(),
            parameters: setup.parameters,
            timestamps: Timestamps::of(identity.process),
            next: 1,
            open: BTreeMap::new(),
            tickets: BTreeMap::new(),
            waiting: VecDeque::new(),
            closing: BTreeMap::new(),
            settled: BTreeSet::new(),
            handles: Handles::default(),
            cleared: BTreeMap::new(),
            clearing: false,
            left: None,
            views: BTreeMap::new(),
            silent: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            armed: BTreeMap::new(),
            listings: Listings::default(),
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "snapshot of a client", cause: "clients write none".to_owned() })
    }

    fn replay(&mut self, record: Nothing) {
        match record {}
    }

    fn start(&mut self, _: &mut Effects<Self>) {}

    fn receive(&mut self, from: ProcessId, message: Message, effects: &mut Effects<Self>) {
        if usize::from(from.partition.0) >= self.map.groups.len() {
            return;
        }
        self.silent.remove(&from);
        // Answers to a former life of this client are none to it.
        let mine = |txn: TxnId| (txn.client == self.me).then_some(txn.sequence);
        match message {
            Message::Values { txn, values } => {
                if let Some(sequence) = mine(txn) {
                    self.on_values(from, sequence, values, effects);
                }
            }
            Message::Voted { txn, attempt, view, vote, finalized } => {
                if let Some(sequence) = mine(txn) {
                    self.on_voted(from, (sequence, attempt), (view, vote, finalized), effects);
                }
            }
            Message::Confirmed { txn, attempt, ballot: Ballot::CLIENT, view } => {
                if let Some(sequence) = mine(txn) {
                    self.on_confirmed(from, (sequence, attempt), view, effects);
                }
            }
            Message::Noted { txn } => {
                if let Some(sequence) = mine(txn) {
                    self.on_noted(from, sequence, effects);
                }
            }
            Message::Listed { ask, page } if ask.client == self.me => {
                self.listings.heard(from, ask, page, effects);
            }
            Message::Told { txn, verdict } => {
                if let Some(sequence) = mine(txn) {
                    self.on_told(sequence, verdict, effects);
                }
            }
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request, effects: &mut Effects<Self>) {
        match request {
            Request::Begin { reads, writes } => self.begin(ticket, reads, writes, effects),
            Request::Commit { txn, updates } => self.asked_to_commit(ticket, txn, updates, effects),
            Request::Abort { txn } => self.abort(ticket, txn, effects),
            Request::List { partition, query } => self.list(ticket, partition, query, effects),
            Request::Move { .. } | Request::Survey => {
                effects.complete_ahead(ticket, MoveRefusal::Undivided.into());
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        self.listings.cancel(ticket);
        let Some(sequence) = self.tickets.remove(&ticket.0) else { return };
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        transaction.ticket = None;
        // What is prepared is brought to its end.
        if !matches!(transaction.state, State::Preparing(_)) {
            self.close(sequence);
            self.waiting.retain(|waiting| *waiting != sequence);
            self.rearm(sequence, effects);
        }
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Transaction(sequence) => effects.repeating(|effects| self.due(sequence, effects)),
            Timer::Clear => self.clear(effects),
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        assert!(self.tickets.len() <= self.open.len(), "a ticket without a transaction");
        assert!(self.waiting.len() <= self.open.len(), "more wait than there are");
        assert!(self.settled.len() <= self.closing.len(), "more are known than have ended");
        assert!(!self.waiting.is_empty() || !self.open.values().any(|of| matches!(of.state, State::Waiting)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::{Distances, Group, Split};
    use crate::tapir::closing::TELLS;
    use crate::tapir::message::Vote;
    use isochrone_core::{KeyspaceId, NodeId, Outbox, Random, ReplicaId, Role, Span, Stamp};
    use isochrone_replication::order::Member;

    /// One of five replicas is away for good: it never answers, and the client knows that it is silent.
    #[test]
    fn what_only_a_dead_replica_does_not_know_piles_up_nowhere() {
        let process = |node: u16, role: Role| {
            let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
            ProcessId { node: NodeId(node), keyspace, partition, role, instance: 0 }
        };
        let replica = |seat: u8| process(seat.into(), crate::SERVER);
        let member = |seat: u8| Member { replica: ReplicaId(seat), process: replica(seat) };
        let groups = [Group { members: (0..5).map(member).collect(), spares: [].into() }].into();
        let map = Map { keyspace: KeyspaceId(1), split: Split::Hash, groups };
        let distances = Distances { rtt: [].into(), local: [].into() };
        let parameters = Parameters { open: 8, ..Parameters::for_rtt(Span::from_millis(10)) };
        let identity = Identity { process: process(9, crate::CLIENT), incarnation: 1 };
        let mut client = Client::open(identity, &family::Client { map, distances, parameters });
        let mut outbox = Outbox::<Client>::new(identity.process, Random::seeded(1));
        let mut give = |client: &mut Client, now, input: &dyn Fn(&mut Client, &mut Effects<Client>)| {
            input(client, outbox.input(now, Stamp::from_nanos(1)));
            outbox.drain().for_each(drop);
            client.check();
        };
        client.silent.insert(replica(4));
        let first = |client: &Client| client.first(PartitionId(0), Instant::ZERO);
        assert_eq!(first(&client), 0);
        client.silent.insert(replica(0));
        assert_eq!(first(&client), 1, "who is silent would be waited for");
        client.silent.remove(&replica(0));
        let (key, mut now) = (Blob::from("a"), Instant::ZERO);
        for sequence in 1..=3_000 {
            now = now + Span::from_millis(1);
            let txn = TxnId { client: client.me, sequence };
            give(&mut client, now, &|client, effects| {
                let (reads, writes) = (Vec::new(), vec![key.clone()]);
                client.request(Ticket(sequence * 2), Request::Begin { reads, writes }, effects);
            });
            give(&mut client, now, &|client, effects| {
                let updates = vec![Update { key: key.clone(), value: Some(key.clone()) }];
                client.request(Ticket(sequence * 2 + 1), Request::Commit { txn, updates }, effects);
            });
            for seat in 0..4 {
                let (attempt, view, vote, finalized) = (0, 0, Vote::Ok, false);
                let vote = Message::Voted { txn, attempt, view, vote, finalized };
                give(&mut client, now, &|client, effects| {
                    client.receive(replica(seat), vote.clone(), effects)
                });
            }
            for seat in 0..4 {
                let (attempt, ballot, view) = (0, Ballot::CLIENT, 0);
                let confirmed = Message::Confirmed { txn, attempt, ballot, view };
                give(&mut client, now, &|client, effects| {
                    client.receive(replica(seat), confirmed.clone(), effects)
                });
            }
            assert!(client.closing.contains_key(&sequence), "{sequence} was refused");
            for seat in 0..4 {
                let noted = Message::Noted { txn };
                give(&mut client, now, &|client, effects| {
                    client.receive(replica(seat), noted.clone(), effects)
                });
            }
            let sizes = [client.open.len(), client.tickets.len(), client.waiting.len(), client.cleared.len()];
            assert_eq!(sizes, [0; 4], "{sequence}");
            assert!(client.closing.len() <= parameters.open, "{sequence}: {}", client.closing.len());
            assert_eq!([client.settled.len(), client.armed.len()], [client.closing.len(); 2], "{sequence}");
        }
        for _ in 0..TELLS {
            now = now + Span::from_secs(60);
            for sequence in client.closing.keys().copied().collect::<Vec<_>>() {
                give(&mut client, now, &|client, effects| {
                    client.expire(Timer::Transaction(sequence), effects)
                });
            }
        }
        assert_eq!([client.closing.len(), client.settled.len(), client.armed.len()], [0; 3]);
        assert_eq!(
            client.done(),
            1,
            "only the replicas know when what was left to them has ended everywhere"
        );
    }
}
