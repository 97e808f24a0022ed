//! A replica of TAPIR: it votes by itself, takes part in what coordinators settle, and executes what was decided.

use super::message::{Ballot, Ended, Message, Name, Note, Part, Record, Vote};
use super::occ::{self, Rules};
use super::state::State;
use super::takeover::Takeover;
use super::view::Change;
use super::{Mutation, Parameters};
use crate::family;
use crate::map::Map;
use crate::request::TxnId;
use isochrone_core::{
    Blob, Effects, Fact, Identity, Instant, Malformed, PartitionId, Process, ProcessId, Quorums, Snapshot,
    Span, Ticket,
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
    sweeping: bool,
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.me, &self.state, &self.takeovers, &self.changing, self.sweeping).hash(hasher);
    }
}

/// Transactions in one message between replicas.
const TOLD_AT_ONCE: usize = 256;
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
    fn log_lazily(&mut self, record: Record, effects: &mut Effects<Self>) {
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
        effects.send_ahead(from, Message::Values { txn, values });
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
                return effects.send(from, Message::Told { txn, verdict });
            }
            if entry.name.attempt > attempt {
                return;
            }
            if entry.name.attempt == attempt
                && let Some(vote) = entry.vote
            {
                let finalized = entry.accepted.is_some();
                let view = self.state.normal;
                return effects.send(from, Message::Voted { txn, attempt, view, vote, finalized });
            }
            if entry.promised > Ballot::CLIENT && !self.parameters.mutated(Mutation::ForgetTakeover) {
                return;
            }
            fresh = false;
        } else if self.state.over(txn) {
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
        effects.send(from, Message::Voted { txn, attempt, view, vote, finalized: false });
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
                    effects.send(from, Message::Outbid { txn, promised: entry.promised });
                }
                return;
            }
            let same = entry.name.attempt == attempt && entry.accepted == Some(ballot);
            if same && entry.vote == Some(vote) {
                return effects.send(from, Message::Confirmed { txn, attempt, ballot, view });
            }
            // Its client is behind what was agreed on in a change of view, or repeats itself.
            if same || (ballot == Ballot::CLIENT && entry.name.attempt > attempt) {
                return;
            }
            known = entry.part.is_some();
            fresh = false;
        } else if self.state.over(txn) {
            return;
        }
        if vote == Vote::Ok && !known && part.is_none() {
            return;
        }
        self.log(Record::Accepted { name, part, ballot, vote }, effects);
        if fresh {
            self.touch(txn, effects);
        }
        effects.send(from, Message::Confirmed { txn, attempt, ballot, view });
    }

    /// Tells how a transaction ended.
    pub(super) fn tell(&self, to: ProcessId, txn: TxnId, effects: &mut Effects<Self>) {
        let Some(entry) = self.state.entries.get(&txn) else { return };
        let Some(verdict) = entry.verdict else { return };
        if to.role == family::CLIENT {
            return effects.send(to, Message::Told { txn, verdict });
        }
        if let Some(ended) = entry.ended(to.partition == self.partition) {
            effects.send(to, Message::Spread { ended: vec![ended], noted: entry.complete() });
        }
    }

    /// Notes how a transaction ended; whether all that is needed of it is here.
    pub(super) fn note(&mut self, ended: Ended, effects: &mut Effects<Self>) -> bool {
        let txn = ended.txn;
        if self.state.dropped(txn) && !self.state.entries.contains_key(&txn) {
            return true;
        }
        let known = self.state.entries.get(&txn);
        let news = known
            .is_none_or(|entry| entry.verdict.is_none() || (entry.part.is_none() && ended.part.is_some()));
        if news {
            self.log(Record::Noted { ended }, effects);
            self.takeovers.remove(&txn);
            self.touch(txn, effects);
        }
        self.state.entries.get(&txn).is_some_and(|entry| entry.complete())
    }

    fn decide(&mut self, from: ProcessId, ended: Ended, effects: &mut Effects<Self>) {
        let txn = ended.txn;
        if self.note(ended, effects) {
            effects.send(from, Message::Noted { txn });
        }
    }

    /// Executes what was decided and not executed.
    pub(super) fn settle_one(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let due = self.state.entries.get(&txn).is_some_and(|entry| entry.complete() && !entry.executed);
        if due {
            self.log_lazily(Record::Executed { txn }, effects);
        }
    }

    fn cleared(
        &mut self,
        client: isochrone_core::ClientId,
        done: u64,
        sequences: &[u64],
        effects: &mut Effects<Self>,
    ) {
        for sequence in sequences {
            let txn = TxnId { client, sequence: *sequence };
            if self.state.entries.get(&txn).is_some_and(|entry| entry.complete()) {
                self.log_lazily(Record::Dropped { txn }, effects);
            }
        }
        let range = TxnId { client, sequence: 0 }..TxnId { client, sequence: done };
        let ended = self.state.entries.range(range).filter(|(_, entry)| entry.complete());
        let ended: Vec<TxnId> = ended.map(|(txn, _)| *txn).collect();
        for txn in ended {
            self.log_lazily(Record::Dropped { txn }, effects);
        }
        self.state.done(client, done);
    }

    /// Others have written down how these ended.
    fn has(&mut self, from: ProcessId, txns: &[TxnId], effects: &mut Effects<Self>) {
        for txn in txns {
            let Some(entry) = self.state.entries.get_mut(txn) else { continue };
            entry.noted.insert(from);
            self.drop_if_done(*txn, effects);
        }
    }

    /// Drops a transaction once every replica of it knows how it ended.
    fn drop_if_done(&mut self, txn: TxnId, effects: &mut Effects<Self>) {
        let Some(entry) = self.state.entries.get(&txn) else { return };
        let lacks = |replica: &ProcessId| *replica != self.me && !entry.noted.contains(replica);
        if entry.complete() && !self.replicas(&entry.name.participants).iter().any(lacks) {
            self.log_lazily(Record::Dropped { txn }, effects);
        }
    }

    fn spread(&mut self, from: ProcessId, ended: Vec<Ended>, noted: bool, effects: &mut Effects<Self>) {
        let mut txns = Vec::new();
        for ended in ended {
            let txn = ended.txn;
            if self.note(ended, effects) {
                txns.push(txn);
            }
            if let Some(entry) = self.state.entries.get_mut(&txn).filter(|_| noted) {
                entry.noted.insert(from);
            }
            self.settle_one(txn, effects);
        }
        effects.send(from, Message::Has { txns: txns.clone() });
        for txn in txns {
            self.drop_if_done(txn, effects);
        }
    }

    /// Looks after everything that has not ended everywhere.
    fn sweep(&mut self, effects: &mut Effects<Self>) {
        self.sweeping = false;
        let now = effects.now();
        let Parameters { resend, terminate_after, .. } = self.parameters;
        let mut tell: BTreeMap<ProcessId, Vec<Ended>> = BTreeMap::new();
        let (mut execute, mut orphans) = (Vec::new(), Vec::new());
        let mut finished = 0;
        let (me, map, partition) = (self.me, &self.map, self.partition);
        for (txn, entry) in &mut self.state.entries {
            finished += usize::from(entry.complete());
            if entry.complete() && !entry.executed && now.since(entry.since) >= resend {
                execute.push(*txn);
            }
            if entry.due > now {
                continue;
            }
            if entry.verdict.is_none() {
                // Those of the first participant begin, one after the other.
                let rank = entry.name.participants.iter().position(|at| *at == partition).unwrap_or(0);
                let turn = (rank.min(8) * 4 + self.seat.min(8)) as u64;
                if now.since(entry.since) >= terminate_after + resend * turn {
                    orphans.push(*txn);
                }
                continue;
            }
            // Its peers, who know more, tell those who lack what is done here.
            if !entry.complete() {
                continue;
            }
            entry.due = now + terminate_after * (1 << entry.told.min(DOUBLINGS));
            entry.told += 1;
            for participant in entry.name.participants.iter() {
                for member in map.group(*participant).members.iter() {
                    let to = member.process;
                    let list = tell.entry(to).or_default();
                    if to != me
                        && !entry.noted.contains(&to)
                        && list.len() < TOLD_AT_ONCE
                        && let Some(ended) = entry.ended(*participant == partition)
                    {
                        list.push(ended);
                    }
                }
            }
        }
        for txn in execute {
            self.settle_one(txn, effects);
        }
        for (to, ended) in tell {
            if !ended.is_empty() {
                effects.send(to, Message::Spread { ended, noted: true });
            }
        }
        if finished > self.parameters.keep_records {
            self.forget(finished - self.parameters.keep_records, effects);
        }
        if self.state.is_normal() {
            for txn in orphans {
                self.take_over(txn, effects);
            }
        }
        self.sweep_takeovers(effects);
        if !self.state.entries.is_empty() {
            self.sweep_soon(effects);
        }
    }

    /// Drops the oldest of what a majority of all its replicas knows to have ended.
    fn forget(&mut self, count: usize, effects: &mut Effects<Self>) {
        let known = |participants: &[PartitionId], noted: &std::collections::BTreeSet<ProcessId>| {
            participants.iter().all(|partition| {
                let members = &self.map.group(*partition).members;
                let has = |process: ProcessId| process == self.me || noted.contains(&process);
                let count = members.iter().filter(|member| has(member.process)).count();
                count >= Quorums::majority(members.len())
            })
        };
        let entries = self.state.entries.iter();
        let mut old: Vec<(Instant, TxnId)> = entries
            .filter(|(_, entry)| entry.complete() && known(&entry.name.participants, &entry.noted))
            .map(|(txn, entry)| (entry.since, *txn))
            .collect();
        old.sort_unstable();
        for (_, txn) in old.into_iter().take(count) {
            self.log_lazily(Record::Forgotten { txn }, effects);
            Self::count("records_forgotten", effects);
        }
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
            state: State::new(setup.parameters.mutation),
            takeovers: BTreeMap::new(),
            changing: Change::default(),
            sweeping: false,
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
            Message::Settle { txn } => self.settle_one(txn, effects),
            Message::Cleared { client, done, sequences } => self.cleared(client, done, &sequences, effects),
            Message::Inquire { name, ballot } => self.inquired(from, name, ballot, effects),
            Message::Promised { ballot, view, held } => self.promised(from, ballot, view, held, effects),
            Message::Confirmed { txn, attempt, ballot, view } => {
                self.confirmed(from, (txn, attempt), ballot, view, effects);
            }
            Message::Outbid { txn, promised } => self.outbid(txn, promised),
            Message::Forgotten { txn } => self.unknowable(txn, effects),
            Message::Spread { ended, noted } => self.spread(from, ended, noted, effects),
            Message::Has { txns } => self.has(from, &txns, effects),
            Message::ChangeView { view } => self.asked_to_change(from, view, effects),
            Message::Records { view, normal, held, ended } => {
                self.on_records(from, view, (normal, held, ended), effects);
            }
            Message::StartView { view, held, ended } => self.on_start_view(from, view, held, ended, effects),
            Message::Fetch { view } => self.fetched(from, view, effects),
            // These are for clients.
            Message::Values { .. } | Message::Voted { .. } | Message::Noted { .. } | Message::Told { .. } => {
            }
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
            Timer::Sweep => self.sweep(effects),
            Timer::View => self.changing_too_long(effects),
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.state.snapshot())
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
