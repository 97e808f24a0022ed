//! A leader as the participant of transactions: locks, reads, prepares, outcomes.
//!
//! Locks of what is not prepared are known to the leader alone. Whoever loses them (to an older transaction, to its
//! client's silence, to a change of leaders) is found out when it prepares: what it read is locked again and compared.

use super::message::{Ending, Entry, Message, Part};
use super::server::{BACKOFF_MAX, Replica, Turn};
use super::{Mutation, state::Prepared};
use crate::locks::{Lock, Mode};
use crate::request::{Read, Reason, TxnId};
use isochrone_core::{Blob, Instant, PartitionId, ProcessId, Stamp};
use isochrone_store::versions::Version;
use std::collections::{BTreeSet, VecDeque};

/// A transaction by its age: the older comes first.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub(super) struct Age {
    pub start: Stamp,
    pub txn: TxnId,
}

/// A transaction that has locks here or waits for some, and is not prepared.
#[derive(Clone, Hash, Debug)]
pub(super) struct Active {
    age: Age,
    /// When something was last heard for it.
    heard: Instant,
    stage: Stage,
    /// The keys whose locks it waits for.
    waiting: BTreeSet<Blob>,
}

#[derive(Clone, Hash, Debug)]
enum Stage {
    /// It is to read these, once it has all locks; or has read them.
    Reading { client: ProcessId, keys: Vec<Blob>, answered: bool },
    /// It is to prepare, once it has all locks.
    Locking(Wanted),
    /// The entry is on its way in the log, which loses none as long as this replica leads.
    Appended { coordinator: PartitionId },
}

/// What is to be prepared.
#[derive(Clone, Hash, Debug)]
pub(super) struct Wanted {
    pub below: u64,
    pub coordinator: PartitionId,
    pub part: Part,
}

/// Grants of locks that have not been followed up yet.
type Granted = Vec<(Age, Blob)>;

/// How many transactions may have locks at one leader; more are told to give way.
const ACTIVE_MAX: usize = 65_536;

impl Replica {
    pub(super) fn on_read(
        &mut self,
        client: ProcessId,
        txn: TxnId,
        start: Stamp,
        keys: Vec<Blob>,
        turn: &mut Turn<'_>,
    ) {
        let state = &self.state;
        if state.is_past(txn) || state.is_done(txn) || state.prepared.contains_key(&txn) {
            return;
        }
        if self.wounded.contains_key(&txn) {
            return turn.send_ahead(client, Message::Wounded { txn });
        }
        if let Some(active) = self.active.get_mut(&txn) {
            active.heard = turn.now();
            if matches!(active.stage, Stage::Reading { answered: true, .. }) {
                self.answer(txn, turn);
            }
            return;
        }
        if self.active.len() >= ACTIVE_MAX {
            return turn.send_ahead(client, Message::Wounded { txn });
        }
        let locks = match self.parameters.mutated(Mutation::ReadWithoutLocks) {
            true => Vec::new(),
            false => keys.iter().map(|key| (key.clone(), Mode::Shared)).collect(),
        };
        let stage = Stage::Reading { client, keys, answered: false };
        let age = Age { start, txn };
        self.active.insert(txn, Active { age, heard: turn.now(), stage, waiting: BTreeSet::new() });
        self.take(txn, locks, turn);
    }

    /// The transactions are open still.
    pub(super) fn on_alive(&mut self, txns: &[TxnId], turn: &mut Turn<'_>) {
        for txn in txns {
            if let Some(active) = self.active.get_mut(txn) {
                active.heard = turn.now();
            }
        }
    }

    /// The client has given a transaction up, and never asked for a commit.
    pub(super) fn on_release(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        if self.active.get(&txn).is_some_and(|active| matches!(active.stage, Stage::Reading { .. })) {
            let granted = self.let_go(txn);
            self.follow_up(granted, turn);
        }
        self.wounded.remove(&txn);
    }

    pub(super) fn on_prepare(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        start: Stamp,
        wanted: Wanted,
        turn: &mut Turn<'_>,
    ) {
        let coordinator = wanted.coordinator;
        self.leaders.note(coordinator, from, turn.now());
        if let Some(prepared) = self.state.prepared.get(&txn) {
            let at = prepared.at;
            return self.vote(txn, coordinator, Ok(at), turn);
        }
        if self.state.is_done(txn) {
            return;
        }
        if self.state.is_past(txn) {
            return self.vote(txn, coordinator, Err(Reason::Presumed), turn);
        }
        if self.wounded.contains_key(&txn) {
            return self.vote(txn, coordinator, Err(Reason::Conflict), turn);
        }
        let now = turn.now();
        let age = match self.active.get_mut(&txn) {
            Some(active) => {
                active.heard = now;
                if !matches!(active.stage, Stage::Reading { .. }) {
                    return;
                }
                active.age
            }
            None => Age { start, txn },
        };
        let mut locks: Vec<(Blob, Mode)> =
            wanted.part.writes.iter().map(|update| (update.key.clone(), Mode::Exclusive)).collect();
        if !self.parameters.mutated(Mutation::ReadWithoutLocks) {
            locks.extend(wanted.part.reads.iter().map(|(key, _)| (key.clone(), Mode::Shared)));
        }
        let stage = Stage::Locking(wanted);
        self.active.insert(txn, Active { age, heard: now, stage, waiting: BTreeSet::new() });
        self.take(txn, locks, turn);
    }

    pub(super) fn on_outcome(
        &mut self,
        from: ProcessId,
        txn: TxnId,
        coordinator: PartitionId,
        ending: Ending,
        turn: &mut Turn<'_>,
    ) {
        self.leaders.note(coordinator, from, turn.now());
        let appended = || {
            let stage = self.active.get(&txn).map(|active| &active.stage);
            matches!(stage, Some(Stage::Appended { .. }))
        };
        if self.state.prepared.contains_key(&txn) || appended() {
            let now = turn.now();
            if self.finishing.get(&txn).is_none_or(|due| *due <= now) {
                self.finishing.insert(txn, now + self.parameters.retry);
                turn.append(Entry::Outcome { txn, coordinator, ending });
            }
            if self.parameters.mutated(Mutation::ReleaseBeforeApply)
                && let Some(prepared) = self.state.prepared.get(&txn)
            {
                let granted = self.locks.release(Age { start: prepared.start, txn });
                self.follow_up(granted, turn);
            }
            return;
        }
        // A commit rests on a prepared entry. Where the log has neither that nor its end, a newer leader has appended
        // it of which this one has not heard: were the commit acknowledged for that one, the coordinator would forget it.
        if ending.is_ok() && !self.state.is_done(txn) && !self.state.is_past(txn) {
            return;
        }
        // It has ended here, or it was never prepared and only its abort is missing here.
        let granted = self.let_go(txn);
        self.follow_up(granted, turn);
        self.wounded.remove(&txn);
        self.acknowledge(txn, coordinator, turn);
    }

    /// A transaction's entry has its place.
    pub(super) fn prepared(&mut self, txn: TxnId, new: bool, turn: &mut Turn<'_>) {
        let appended = match self.active.get(&txn).map(|active| &active.stage) {
            Some(Stage::Appended { coordinator }) => Some(*coordinator),
            _ => None,
        };
        match (self.state.prepared.get(&txn), appended) {
            (Some(prepared), _) => {
                let (coordinator, at) = (prepared.coordinator, prepared.at);
                if new {
                    // Its locks stay; from now on they follow from the state.
                    let age = self.active.remove(&txn).map(|active| active.age);
                    self.unresolved.insert(txn, self.due(turn));
                    if age.is_some_and(|age| self.locks.delays_lesser(age)) {
                        self.hurry(txn, turn);
                    }
                }
                self.vote(txn, coordinator, Ok(at), turn);
            }
            (None, Some(coordinator)) => {
                let granted = self.let_go(txn);
                self.follow_up(granted, turn);
                self.vote(txn, coordinator, Err(Reason::Presumed), turn);
            }
            (None, None) => {}
        }
    }

    /// The outcome of a transaction has its place.
    pub(super) fn finished(
        &mut self,
        txn: TxnId,
        coordinator: PartitionId,
        prepared: Option<Prepared>,
        turn: &mut Turn<'_>,
    ) {
        self.finishing.remove(&txn);
        self.unresolved.remove(&txn);
        if let Some(prepared) = prepared {
            let granted = self.locks.release(Age { start: prepared.start, txn });
            self.follow_up(granted, turn);
        }
        self.acknowledge(txn, coordinator, turn);
    }

    /// A leader that has applied everything before it takes the locks of what is prepared.
    pub(super) fn take_prepared(&mut self, turn: &mut Turn<'_>) {
        if self.parameters.mutated(Mutation::ForgetPreparedLocks) {
            return;
        }
        let due = self.due(turn);
        for (txn, prepared) in &self.state.prepared {
            let age = Age { start: prepared.start, txn: *txn };
            let writes = prepared.writes.iter().map(|update| (&update.key, Mode::Exclusive));
            let reads = prepared.reads.iter().map(|key| (key, Mode::Shared));
            for (key, mode) in writes.chain(reads) {
                let lock = self.locks.acquire(age, key, mode);
                debug_assert!(
                    lock == Lock::Granted || self.parameters.mutation.is_some(),
                    "{key:?} is taken"
                );
            }
            self.unresolved.insert(*txn, due);
        }
    }

    /// What was silent for long goes; what is still undecided is asked for.
    pub(super) fn sweep_participant(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now();
        let silence = self.parameters.silence();
        // A coordinator asks again ever more seldom.
        let patience = silence.max(self.parameters.retry * 2 * BACKOFF_MAX);
        let is_silent = |active: &Active| match active.stage {
            Stage::Appended { .. } => false,
            Stage::Reading { .. } => now.since(active.heard) > silence,
            Stage::Locking(_) => now.since(active.heard) > patience,
        };
        let silent = self.active.iter().filter(|(_, active)| is_silent(active));
        let silent: Vec<TxnId> = silent.map(|(txn, _)| *txn).collect();
        self.wounded.retain(|_, at| now.since(*at) <= silence);
        for txn in silent {
            turn.count("silent_transactions");
            let granted = self.wound(txn, turn);
            self.follow_up(granted, turn);
        }
        let due: Vec<TxnId> =
            self.unresolved.iter().filter(|(_, due)| due.at <= now).map(|(txn, _)| *txn).collect();
        for txn in due {
            let again = self.unresolved.get(&txn).map(|due| self.later(*due, turn));
            if let Some(again) = again {
                self.unresolved.insert(txn, again);
                self.query(txn, again.attempts - 1, turn);
            }
        }
    }

    /// Asks how a prepared transaction has ended. One that keeps an older one waiting is to end now: what it waits for
    /// elsewhere may be what that one holds.
    pub(super) fn query(&mut self, txn: TxnId, attempts: u32, turn: &mut Turn<'_>) {
        let Some(prepared) = self.state.prepared.get(&txn) else { return };
        let wound = self.locks.delays_lesser(Age { start: prepared.start, txn });
        for to in self.leaders.ask(prepared.coordinator, attempts > 0) {
            turn.send_ahead(to, Message::StatusQuery { txn, partition: self.partition, wound });
        }
    }

    /// An older one waits for a prepared transaction: its coordinator is asked sooner.
    fn hurry(&mut self, txn: TxnId, turn: &mut Turn<'_>) {
        let soon = turn.now() + self.parameters.retry / 2;
        if let Some(due) = self.unresolved.get_mut(&txn) {
            (due.at, due.attempts) = (due.at.min(soon), 0);
        }
    }

    fn vote(&mut self, txn: TxnId, coordinator: PartitionId, vote: Ending, turn: &mut Turn<'_>) {
        let to = self.leaders.of(coordinator);
        turn.send_ahead(to, Message::Vote { txn, partition: self.partition, vote });
    }

    fn acknowledge(&mut self, txn: TxnId, coordinator: PartitionId, turn: &mut Turn<'_>) {
        let to = self.leaders.of(coordinator);
        turn.send_ahead(to, Message::Acknowledged { txn, partition: self.partition });
    }

    /// Locks these for a transaction, and goes on with it once it has all.
    fn take(&mut self, txn: TxnId, locks: Vec<(Blob, Mode)>, turn: &mut Turn<'_>) {
        let Some(active) = self.active.get_mut(&txn) else { return };
        let age = active.age;
        let mut younger = BTreeSet::new();
        for (key, mode) in locks {
            match self.locks.acquire(age, &key, mode) {
                Lock::Granted => {}
                Lock::Queued => {
                    younger.extend(self.locks.blockers(age, &key).filter(|holder| *holder > age));
                    active.waiting.insert(key);
                }
                Lock::Refused => {
                    let granted = self.wound(txn, turn);
                    return self.follow_up(granted, turn);
                }
            }
        }
        let ready = active.waiting.is_empty();
        let mut granted = Granted::new();
        for age in younger {
            let active = self.active.get(&age.txn);
            if let Some(active) = active
                && !matches!(active.stage, Stage::Appended { .. })
            {
                turn.count("wounded_transactions");
                if matches!(active.stage, Stage::Reading { .. }) {
                    self.wounded.insert(age.txn, turn.now());
                }
                granted.extend(self.wound(age.txn, turn));
            } else {
                // What is prepared, or may be, is not wounded: the older waits, and if that lasts, asks.
                self.hurry(age.txn, turn);
            }
        }
        if ready {
            granted.extend(self.proceed(txn, turn));
        }
        self.follow_up(granted, turn);
    }

    /// Goes on with those that have got what they waited for.
    fn follow_up(&mut self, granted: Granted, turn: &mut Turn<'_>) {
        let mut granted = VecDeque::from(granted);
        while let Some((age, key)) = granted.pop_front() {
            let Some(active) = self.active.get_mut(&age.txn) else { continue };
            if active.waiting.remove(&key) && active.waiting.is_empty() {
                granted.extend(self.proceed(age.txn, turn));
            }
        }
    }

    /// A transaction has all its locks.
    fn proceed(&mut self, txn: TxnId, turn: &mut Turn<'_>) -> Granted {
        let Some(active) = self.active.get_mut(&txn) else { return Granted::new() };
        match &mut active.stage {
            Stage::Reading { answered, .. } => {
                *answered = true;
                self.answer(txn, turn);
            }
            Stage::Locking(wanted) => {
                let stale = |(key, version): &(Blob, Version)| self.state.versions.latest(key).0 != *version;
                if wanted.part.reads.iter().any(stale)
                    && !self.parameters.mutated(Mutation::PrepareWithoutValidation)
                {
                    let coordinator = wanted.coordinator;
                    self.vote(txn, coordinator, Err(Reason::StaleRead), turn);
                    return self.let_go(txn);
                }
                let (age, wanted) = (active.age, wanted.clone());
                let (at, coordinator) = (self.issue(turn), wanted.coordinator);
                turn.append(entry(age, wanted, at));
                if let Some(active) = self.active.get_mut(&txn) {
                    active.stage = Stage::Appended { coordinator };
                }
                if self.parameters.mutated(Mutation::VoteBeforeReplication) {
                    self.vote(txn, coordinator, Ok(at), turn);
                }
            }
            Stage::Appended { .. } => {}
        }
        Granted::new()
    }

    fn answer(&self, txn: TxnId, turn: &mut Turn<'_>) {
        let Some(Stage::Reading { client, keys, .. }) = self.active.get(&txn).map(|active| &active.stage)
        else {
            return;
        };
        let read = |key: &Blob| {
            let (version, value) = self.state.versions.latest(key);
            Read { key: key.clone(), value: value.cloned(), version }
        };
        let reads = keys.iter().map(read).collect();
        turn.send_ahead(*client, Message::Values { txn, partition: self.partition, reads });
    }

    /// Takes a transaction's locks from it, and tells who asked for them.
    fn wound(&mut self, txn: TxnId, turn: &mut Turn<'_>) -> Granted {
        match self.active.get(&txn).map(|active| &active.stage) {
            Some(Stage::Reading { client, .. }) => turn.send_ahead(*client, Message::Wounded { txn }),
            Some(Stage::Locking(wanted)) => {
                let coordinator = wanted.coordinator;
                self.vote(txn, coordinator, Err(Reason::Conflict), turn);
            }
            Some(Stage::Appended { .. }) | None => return Granted::new(),
        }
        self.let_go(txn)
    }

    /// Ends a transaction that is not prepared.
    fn let_go(&mut self, txn: TxnId) -> Granted {
        match self.active.remove(&txn) {
            Some(active) => self.locks.release(active.age),
            None => Granted::new(),
        }
    }
}

fn entry(age: Age, wanted: Wanted, at: Version) -> Entry {
    Entry::Prepare {
        txn: age.txn,
        start: age.start,
        below: wanted.below,
        coordinator: wanted.coordinator,
        at,
        reads: wanted.part.reads.into_iter().map(|(key, _)| key).collect(),
        writes: wanted.part.writes,
    }
}

impl Replica {
    /// Asserts that a prepared transaction has no conflict with another, and its locks if this replica leads.
    pub(super) fn check_prepared(&self, txn: TxnId, serving: bool) {
        self.state.check(txn);
        let Some(prepared) = self.state.prepared.get(&txn).filter(|_| serving) else { return };
        let age = Age { start: prepared.start, txn };
        let writes = prepared.writes.iter().map(|update| (&update.key, Mode::Exclusive));
        for (key, mode) in writes.chain(prepared.reads.iter().map(|key| (key, Mode::Shared))) {
            assert!(self.locks.holds(age, key, mode), "{txn:?} is prepared and does not hold {key:?}");
        }
    }
}
