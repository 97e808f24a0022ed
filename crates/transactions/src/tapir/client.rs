//! The client of TAPIR: it coordinates its transactions itself.

use super::closing::{Closing, TELLS};
use super::message::{Ballot, Message, Name, Note, Nothing, Part, Verdict, Vote};
use super::round::{Next, Round, Stage};
use super::timestamps::Timestamps;
use super::transaction::{Preparing, Reading, State, Transaction};
use super::{Mutation, Parameters};
use crate::family;
use crate::limits::Bounds;
use crate::map::Map;
use crate::request::{Outcome, Reason, Refusal, Request, TxnId, Update};
use isochrone_core::{
    Blob, ClientId, Effects, Fact, Identity, Instant, Malformed, PartitionId, Path, Phase, Process,
    ProcessId, Snapshot, Span, Ticket,
};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Ended transactions in one message.
const CLEARED_AT_ONCE: usize = 256;

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
    me: ClientId,
    map: Map,
    /// The replicas of each partition, nearest first.
    near: Vec<Vec<ProcessId>>,
    parameters: Parameters,
    timestamps: Timestamps,
    next: u64,
    open: BTreeMap<u64, Transaction>,
    /// By the ticket's number.
    tickets: BTreeMap<u64, u64>,
    /// Those that wait for the end of others, in their order.
    waiting: VecDeque<u64>,
    closing: BTreeMap<u64, Closing>,
    /// How many transactions of this client a partition is not known to have ended.
    blocked: BTreeMap<PartitionId, u32>,
    /// What has ended everywhere and the replicas of a partition were not told.
    cleared: BTreeMap<PartitionId, Vec<u64>>,
    clearing: bool,
    /// The first transaction whose end was left to the replicas.
    left: Option<u64>,
    /// The latest view of each partition that was heard of.
    views: BTreeMap<PartitionId, u64>,
    /// When the timer of each transaction runs out.
    armed: BTreeMap<u64, Instant>,
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.me, &self.timestamps, self.next, &self.open, &self.waiting, &self.closing).hash(hasher);
        (&self.blocked, &self.cleared, self.clearing, self.left, &self.views).hash(hasher);
    }
}

impl Client {
    fn id(&self, sequence: u64) -> TxnId {
        TxnId { client: self.me, sequence }
    }

    /// Nothing below this is proposed any more.
    fn below(&self) -> u64 {
        self.open.keys().next().copied().unwrap_or(self.next)
    }

    /// All below this has ended everywhere.
    fn done(&self) -> u64 {
        let first = self.closing.keys().next().copied().unwrap_or(self.next);
        self.below().min(first).min(self.left.unwrap_or(self.next))
    }

    fn replicas(&self, partition: PartitionId) -> &[ProcessId] {
        &self.near[usize::from(partition.0)]
    }

    fn view(&self, partition: PartitionId) -> u64 {
        self.views.get(&partition).copied().unwrap_or(0)
    }

    /// Sees to it that what is due next about a transaction is done.
    fn rearm(&mut self, sequence: u64, effects: &mut Effects<Self>) {
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

    fn answer(&mut self, sequence: u64, outcome: Outcome, effects: &mut Effects<Self>) {
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        if let Some(ticket) = transaction.ticket.take() {
            self.tickets.remove(&ticket.0);
            effects.complete_ahead(ticket, outcome);
        }
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

    /// What one transaction may have.
    fn bounds(&self) -> Bounds {
        Bounds { keys: self.parameters.txn_keys, bytes: self.parameters.txn_bytes }
    }

    /// Whether a transaction of these keys may begin.
    fn admit(&self, reads: &[Blob], writes: &[Blob]) -> Result<(), Refusal> {
        let open = self.open.len() + self.closing.len();
        if open >= self.parameters.open {
            return Err(Refusal::Overloaded(open));
        }
        self.bounds().check_sets(reads, writes)
    }

    /// Begins to read, unless a partition is still to hear of the end of an earlier transaction.
    fn try_begin(&mut self, sequence: u64, effects: &mut Effects<Self>) -> bool {
        let Some(transaction) = self.open.get_mut(&sequence) else { return true };
        if self.parameters.self_blocking
            && transaction.touches(&self.map).iter().any(|partition| self.blocked.contains_key(partition))
        {
            return false;
        }
        let due = effects.now() + self.parameters.read;
        let asks = transaction.asks(&self.map).into_iter();
        let reading = |keys: Vec<Blob>| Reading { keys: keys.into(), tries: 0, answered: false, due };
        transaction.state =
            State::Reading(asks.map(|(partition, keys)| (partition, reading(keys))).collect());
        self.ask_reads(sequence, None, effects);
        self.have_read(sequence, effects);
        self.rearm(sequence, effects);
        true
    }

    /// Asks for what was not read; all of it, or what is due.
    fn ask_reads(&mut self, sequence: u64, due: Option<Instant>, effects: &mut Effects<Self>) {
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
            let replica = near[reading.tries as usize % near.len()];
            effects.send_ahead(replica, Message::Read { txn, keys: reading.keys.clone() });
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
                self.bounds().check_updates(updates, writes)
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
            self.open.remove(&sequence);
            return;
        }
        self.prepare(sequence, 0, at, parts, effects);
    }

    fn prepare(
        &mut self,
        sequence: u64,
        attempt: u32,
        at: Version,
        parts: BTreeMap<PartitionId, Arc<Part>>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let fewer = usize::from(self.parameters.mutated(Mutation::FastQuorumTooSmall));
        let round = |(partition, part): (&PartitionId, &Arc<Part>)| {
            (
                *partition,
                Round::new(part.clone(), self.replicas(*partition).len(), self.view(*partition), fewer),
            )
        };
        let preparing = Preparing {
            attempt,
            at,
            participants: parts.keys().copied().collect(),
            rounds: parts.iter().map(round).collect(),
            fast_until: Some(now + self.parameters.fast_path),
            resend: now + self.parameters.resend,
            again: now + self.parameters.prepare,
        };
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        transaction.state = State::Preparing(preparing);
        for partition in parts.into_keys() {
            self.propose(sequence, partition, |_| true, effects);
        }
    }

    /// Sends PROPOSE to some replicas of a partition.
    fn propose(
        &mut self,
        sequence: u64,
        partition: PartitionId,
        whom: impl Fn(ProcessId) -> bool,
        effects: &mut Effects<Self>,
    ) {
        let (txn, below, done, view) = (self.id(sequence), self.below(), self.done(), self.view(partition));
        let mut cleared = self.cleared.remove(&partition).unwrap_or_default();
        if cleared.len() > CLEARED_AT_ONCE {
            self.cleared.insert(partition, cleared.split_off(CLEARED_AT_ONCE));
        }
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let Some(round) = preparing.rounds.get(&partition) else { return };
        let Preparing { attempt, at, ref participants, .. } = *preparing;
        for replica in self.replicas(partition).iter().copied().filter(|replica| whom(*replica)) {
            let name = Name { txn, participants: participants.clone(), attempt, at };
            let (part, cleared) = (round.part.clone(), cleared.clone());
            effects.send_ahead(replica, Message::Prepare { name, part, view, below, done, cleared });
        }
    }

    /// Sends FINALIZE to some replicas of a partition.
    fn finalize(
        &self,
        sequence: u64,
        partition: PartitionId,
        vote: Vote,
        whom: Option<&BTreeSet<ProcessId>>,
        effects: &mut Effects<Self>,
    ) {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let Some(round) = preparing.rounds.get(&partition) else { return };
        let Preparing { attempt, at, ref participants, .. } = *preparing;
        for replica in self.replicas(partition) {
            if whom.is_some_and(|whom| !whom.contains(replica)) {
                continue;
            }
            let name = Name { txn: self.id(sequence), participants: participants.clone(), attempt, at };
            // What it does there only to those who may not have heard.
            let part = whom.map(|_| round.part.clone());
            let (ballot, view) = (Ballot::CLIENT, round.view());
            effects.send_ahead(*replica, Message::Finalize { name, ballot, view, vote, part });
        }
    }

    /// Does what the count of a round asks for.
    fn follow(&mut self, sequence: u64, partition: PartitionId, next: Next, effects: &mut Effects<Self>) {
        match next {
            Next::Nothing => {}
            Next::Ask => self.propose(sequence, partition, |_| true, effects),
            Next::Finalize(vote) => {
                effects.mark(Note(Fact::Counted("slow_paths")));
                self.finalize(sequence, partition, vote, None, effects);
            }
            Next::Done(vote, fast) => {
                if fast {
                    self.finalize(sequence, partition, vote, None, effects);
                }
                self.weigh(sequence, effects);
            }
        }
    }

    fn on_voted(
        &mut self,
        from: ProcessId,
        (sequence, attempt): (u64, u32),
        (view, vote, finalized): (u64, Vote, bool),
        effects: &mut Effects<Self>,
    ) {
        let known = self.views.entry(from.partition).or_default();
        *known = (*known).max(view);
        let Some(round) = self.round(sequence, attempt, from.partition) else { return };
        let next = round.voted(from, view, vote, finalized);
        self.follow(sequence, from.partition, next, effects);
        self.rearm(sequence, effects);
    }

    fn on_confirmed(
        &mut self,
        from: ProcessId,
        (sequence, attempt): (u64, u32),
        view: u64,
        effects: &mut Effects<Self>,
    ) {
        let Some(round) = self.round(sequence, attempt, from.partition) else { return };
        let next = round.confirmed(from, view);
        self.follow(sequence, from.partition, next, effects);
        self.rearm(sequence, effects);
    }

    fn round(&mut self, sequence: u64, attempt: u32, partition: PartitionId) -> Option<&mut Round> {
        match &mut self.open.get_mut(&sequence)?.state {
            State::Preparing(preparing) if preparing.attempt == attempt => {
                preparing.rounds.get_mut(&partition)
            }
            _ => None,
        }
    }

    /// Ends the transaction, or tries another timestamp, as the partitions' results have it. What decides has been
    /// settled at its partition, so whoever takes the transaction over comes to the same end.
    fn weigh(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return;
        };
        let results: Vec<Option<Vote>> = preparing.rounds.values().map(Round::result).collect();
        let (attempt, at) = (preparing.attempt, preparing.at);
        let reason = match () {
            () if results.contains(&Some(Vote::Abort)) => Some(Reason::StaleRead),
            () if results.contains(&Some(Vote::Abstain)) => Some(Reason::Conflict),
            () => None,
        };
        if let Some(reason) = reason {
            return self.end(sequence, Verdict::Abort, reason, effects);
        }
        let Some(results) = results.into_iter().collect::<Option<Vec<Vote>>>() else { return };
        let proposed = results.iter().filter_map(|vote| match vote {
            Vote::Retry(at) => Some(*at),
            _ => None,
        });
        let Some(above) = proposed.max() else {
            return self.end(sequence, Verdict::Commit(at), Reason::Conflict, effects);
        };
        if attempt + 1 >= self.parameters.tries {
            return self.end(sequence, Verdict::Abort, Reason::Conflict, effects);
        }
        effects.mark(Note(Fact::Counted("retries")));
        let parts = preparing.rounds.iter().map(|(at, round)| (*at, round.part.clone())).collect();
        let at = self.timestamps.next(effects.stamp(), above.max(at));
        self.prepare(sequence, attempt + 1, at, parts, effects);
    }

    /// The transaction has a verdict: the host is told, and then the replicas are.
    fn end(&mut self, sequence: u64, verdict: Verdict, reason: Reason, effects: &mut Effects<Self>) {
        let now = effects.now();
        let Some(transaction) = self.open.get(&sequence) else { return };
        let State::Preparing(preparing) = &transaction.state else { return };
        let outcome = match verdict {
            Verdict::Commit(at) if transaction.writes.is_empty() => {
                Outcome::Snapshot { reads: transaction.answer(), at }
            }
            Verdict::Commit(at) => Outcome::Committed { at },
            Verdict::Abort => Outcome::Aborted(reason),
        };
        if let Verdict::Commit(_) = verdict {
            let mut rounds = preparing.rounds.values();
            let fast = rounds.all(|round| matches!(round.stage(), Stage::Done { fast: true, .. }));
            let path = if fast && preparing.attempt == 0 { Path::Fast } else { Path::Slow };
            let (total, phases) = (now.since(transaction.asked), [Span::ZERO; Phase::ALL.len()]);
            effects.mark(Note(Fact::Committed { id: self.id(sequence), path, total, phases }));
        }
        let participants = preparing.participants.clone();
        let closing = Closing {
            verdict,
            open: participants.iter().copied().collect(),
            parts: preparing.rounds.iter().map(|(at, round)| (*at, round.part.clone())).collect(),
            participants,
            noted: BTreeSet::new(),
            due: now + self.parameters.resend,
            tries: 0,
        };
        self.answer(sequence, outcome, effects);
        self.open.remove(&sequence);
        for partition in closing.participants.iter() {
            *self.blocked.entry(*partition).or_default() += 1;
        }
        self.closing.insert(sequence, closing);
        self.tell_end(sequence, effects);
        self.rearm(sequence, effects);
    }

    /// Tells the replicas that do not know how a transaction ended.
    fn tell_end(&self, sequence: u64, effects: &mut Effects<Self>) {
        let Some(closing) = self.closing.get(&sequence) else { return };
        for replica in closing.lacking(&self.map) {
            let ended = closing.ended(self.id(sequence), replica.partition);
            effects.send_ahead(replica, Message::Decide { ended });
        }
    }

    fn on_noted(&mut self, from: ProcessId, sequence: u64, effects: &mut Effects<Self>) {
        let txn = self.id(sequence);
        let Some(closing) = self.closing.get_mut(&sequence) else { return };
        let known_before = !closing.open.contains(&from.partition);
        if closing.note(&self.map, from) {
            for replica in self.replicas(from.partition) {
                effects.send_ahead(*replica, Message::Settle { txn });
            }
            self.unblock(from.partition);
        } else if known_before {
            effects.send_ahead(from, Message::Settle { txn });
        }
        let closed = self.closing.get(&sequence).is_some_and(|closing| closing.lacking(&self.map).is_empty());
        if closed && let Some(closing) = self.closing.remove(&sequence) {
            for partition in closing.participants.iter() {
                self.cleared.entry(*partition).or_default().push(sequence);
            }
            if !std::mem::replace(&mut self.clearing, true) {
                effects.arm(Timer::Clear, self.parameters.resend);
            }
            self.rearm(sequence, effects);
        }
        self.wake(effects);
    }

    fn unblock(&mut self, partition: PartitionId) {
        if let Some(count) = self.blocked.get_mut(&partition) {
            *count -= 1;
            if *count == 0 {
                self.blocked.remove(&partition);
            }
        }
    }

    /// Begins what waited and need not any more.
    fn wake(&mut self, effects: &mut Effects<Self>) {
        for sequence in std::mem::take(&mut self.waiting) {
            if !self.try_begin(sequence, effects) {
                self.waiting.push_back(sequence);
            }
        }
    }

    /// Somebody else has ended the transaction.
    fn on_told(&mut self, sequence: u64, verdict: Verdict, effects: &mut Effects<Self>) {
        if let Some(Transaction { state: State::Preparing(_), .. }) = self.open.get(&sequence) {
            self.end(sequence, verdict, Reason::Presumed, effects);
        }
    }

    /// Something is due about a transaction.
    fn due(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        let now = effects.now();
        self.armed.remove(&sequence);
        if self.closing.contains_key(&sequence) {
            self.close_again(sequence, now, effects);
        } else if self.open.get(&sequence).is_some_and(|transaction| transaction.limit <= now) {
            self.give_up(sequence, effects);
        } else if let Some(transaction) = self.open.get(&sequence) {
            match transaction.state {
                State::Waiting | State::Open => {}
                State::Reading(_) => self.ask_reads(sequence, Some(now), effects),
                State::Preparing(_) => self.prepare_again(sequence, now, effects),
            }
        }
        self.rearm(sequence, effects);
    }

    fn give_up(&mut self, sequence: u64, effects: &mut Effects<Self>) {
        self.answer(sequence, Outcome::Unknown, effects);
        let given_up = self.open.remove(&sequence);
        if given_up.is_some_and(|transaction| matches!(transaction.state, State::Preparing(_))) {
            // The replicas end it.
            self.left = Some(self.left.map_or(sequence, |first| first.min(sequence)));
        }
        self.waiting.retain(|waiting| *waiting != sequence);
    }

    fn close_again(&mut self, sequence: u64, now: Instant, effects: &mut Effects<Self>) {
        let resend = self.parameters.resend;
        let Some(closing) = self.closing.get_mut(&sequence) else { return };
        if closing.due > now {
            return;
        }
        closing.tries += 1;
        closing.due = now + resend * (1 << closing.tries.min(TELLS));
        if closing.tries < TELLS {
            return self.tell_end(sequence, effects);
        }
        if let Some(closing) = self.closing.remove(&sequence) {
            self.left = Some(self.left.map_or(sequence, |first| first.min(sequence)));
            closing.open.into_iter().for_each(|partition| self.unblock(partition));
            self.wake(effects);
        }
    }

    fn prepare_again(&mut self, sequence: u64, now: Instant, effects: &mut Effects<Self>) {
        let Parameters { resend, prepare, .. } = self.parameters;
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get_mut(&sequence)
        else {
            return;
        };
        let mut late = Vec::new();
        if preparing.fast_until.is_some_and(|until| until <= now) {
            preparing.fast_until = None;
            late = preparing.rounds.iter_mut().map(|(partition, round)| (*partition, round.late())).collect();
        }
        let (all, some) = (preparing.again <= now, preparing.resend <= now);
        if all {
            preparing.again = now + prepare;
        }
        if some {
            preparing.resend = now + resend;
        }
        let attempt = preparing.attempt;
        let rounds: Vec<(PartitionId, Stage)> =
            preparing.rounds.iter().map(|(partition, round)| (*partition, round.stage().clone())).collect();
        for (partition, stage) in rounds {
            let lacking = self.lacking(sequence, partition);
            match stage {
                // Also those who are done with it: somebody may have taken the transaction over, and they know.
                _ if all => self.propose(sequence, partition, |_| true, effects),
                Stage::Voting if some => {
                    self.propose(sequence, partition, |replica| lacking.contains(&replica), effects);
                }
                _ => {}
            }
            if let Stage::Slow { vote, .. } = stage
                && (some || all)
            {
                self.finalize(sequence, partition, vote, Some(&lacking), effects);
            }
        }
        for (partition, next) in late {
            // One of them may have ended the try.
            if self.round(sequence, attempt, partition).is_some() {
                self.follow(sequence, partition, next, effects);
            }
        }
    }

    /// The replicas of a partition that have not answered what was asked last.
    fn lacking(&self, sequence: u64, partition: PartitionId) -> BTreeSet<ProcessId> {
        let Some(Transaction { state: State::Preparing(preparing), .. }) = self.open.get(&sequence) else {
            return BTreeSet::new();
        };
        let Some(round) = preparing.rounds.get(&partition) else { return BTreeSet::new() };
        self.replicas(partition).iter().copied().filter(|replica| round.lacks(*replica)).collect()
    }

    /// Tells replicas what has ended everywhere and no other message has told them.
    fn clear(&mut self, effects: &mut Effects<Self>) {
        let done = self.done();
        let mut more = false;
        for (partition, sequences) in &mut self.cleared {
            let rest = sequences.split_off(sequences.len().min(CLEARED_AT_ONCE));
            let told = std::mem::replace(sequences, rest);
            for replica in &self.near[usize::from(partition.0)] {
                let message = Message::Cleared { client: self.me, done, sequences: told.clone() };
                effects.send_ahead(*replica, message);
            }
            more |= !sequences.is_empty();
        }
        self.cleared.retain(|_, sequences| !sequences.is_empty());
        self.clearing = more;
        if more {
            effects.arm(Timer::Clear, self.parameters.resend);
        }
    }

    fn abort(&mut self, ticket: Ticket, txn: TxnId, effects: &mut Effects<Self>) {
        let open = self.open.get(&txn.sequence).filter(|_| txn.client == self.me);
        let outcome = match open {
            // Nobody but this client knows of it.
            Some(Transaction { state: State::Open, .. }) => {
                self.open.remove(&txn.sequence);
                self.rearm(txn.sequence, effects);
                Outcome::Aborted(Reason::Client)
            }
            _ => Outcome::Refused(Refusal::NotOpen(txn)),
        };
        effects.complete_ahead(ticket, outcome);
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
            blocked: BTreeMap::new(),
            cleared: BTreeMap::new(),
            clearing: false,
            left: None,
            views: BTreeMap::new(),
            armed: BTreeMap::new(),
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
        }
    }

    fn cancel(&mut self, ticket: Ticket, effects: &mut Effects<Self>) {
        let Some(sequence) = self.tickets.remove(&ticket.0) else { return };
        let Some(transaction) = self.open.get_mut(&sequence) else { return };
        transaction.ticket = None;
        // What is prepared is brought to its end.
        if !matches!(transaction.state, State::Preparing(_)) {
            self.open.remove(&sequence);
            self.waiting.retain(|waiting| *waiting != sequence);
            self.rearm(sequence, effects);
        }
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Transaction(sequence) => self.due(sequence, effects),
            Timer::Clear => self.clear(effects),
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        assert!(self.tickets.len() <= self.open.len(), "a ticket without a transaction");
        assert!(self.waiting.len() <= self.open.len(), "more wait than there are");
        assert!(!self.waiting.is_empty() || !self.open.values().any(|of| matches!(of.state, State::Waiting)));
    }
}
