//! A replica of a partition under layered two-phase commit: what it replicates, and what its leader knows beside that.

use super::Parameters;
use super::coordinator::{Ahead, Driving, Telling};
use super::message::{Entry, Message};
use super::participant::{Active, Age, Wanted};
use super::state::{Prepared, State, View};
use crate::census;
use crate::family;
use crate::group::{self, Rules};
use crate::leaders::Leaders;
use crate::listing::{AsOf, Page, Query};
use crate::locks::LockTable;
use crate::request::TxnId;
use isochrone_core::{Identity, Instant, Malformed, PartitionId, ProcessId};
use isochrone_replication::multipaxos;
use isochrone_replication::order::Member;
use isochrone_store::versions::{Version, Versions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a replica of a partition makes of its group's log. See the module.
#[derive(Clone, Hash, Debug)]
pub struct Replica {
    pub(super) parameters: Parameters,
    pub(super) partition: PartitionId,
    /// Who leads the partitions, this one aside.
    pub(super) leaders: Leaders,
    /// What all replicas have.
    pub(super) state: State,

    /// It leads, and has applied everything that earlier leaders appended. All that follows is known to the leader
    /// alone, and empty elsewhere.
    serving: bool,
    /// What came before that.
    early: Vec<(ProcessId, Message)>,
    barrier_due: Instant,
    /// The highest version given.
    pub(super) issued: u64,

    pub(super) locks: LockTable<Age>,
    pub(super) active: BTreeMap<TxnId, Active>,
    /// Whose read locks went to older ones, and when.
    pub(super) wounded: BTreeMap<TxnId, Instant>,
    /// When to ask again how what is prepared has ended.
    pub(super) unresolved: BTreeMap<TxnId, Due>,
    /// When to append again an outcome that was appended.
    pub(super) finishing: BTreeMap<TxnId, Instant>,

    pub(super) driving: BTreeMap<TxnId, Driving>,
    pub(super) ahead: BTreeMap<TxnId, Ahead>,
    pub(super) telling: BTreeMap<TxnId, Telling>,
    /// All participants have acknowledged these; the log does not say so yet.
    pub(super) acknowledged: BTreeSet<TxnId>,
    pub(super) forget_due: Instant,
    sweeping: bool,
}

/// What a replica may do in one input.
pub(super) type Turn<'a> = group::Turn<'a, Replica>;

/// The one timer: it sweeps over everything that is open.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// What is due is done again.
    Sweep,
}

/// When something is done again, and how often it was.
#[derive(Copy, Clone, Hash, Debug)]
pub(super) struct Due {
    pub at: Instant,
    pub attempts: u32,
    /// Times it was sent elsewhere since it was last due.
    pub redirects: u32,
}

/// How many times as long as at first somebody waits at most before asking again.
pub(super) const BACKOFF_MAX: u64 = 8;
/// Sweeps in the time after which something is asked again.
pub(super) const SWEEPS: u64 = 8;
/// Messages that may wait for a new leader to be ready; more are dropped, and come again.
const EARLY_MAX: usize = 4_096;
/// Transactions that may wait for the lock of one key.
const QUEUE_MAX: usize = 1_024;

impl Replica {
    fn is_busy(&self) -> bool {
        !(self.active.is_empty()
            && self.wounded.is_empty()
            && self.unresolved.is_empty()
            && self.finishing.is_empty()
            && self.driving.is_empty()
            && self.ahead.is_empty()
            && self.telling.is_empty()
            && self.acknowledged.is_empty())
    }

    /// When to do something again that is done now for the first time.
    pub(super) fn due(&self, turn: &Turn<'_>) -> Due {
        Due { at: turn.now() + self.parameters.retry, attempts: 0, redirects: 0 }
    }

    /// When to do something again that is done now once more.
    pub(super) fn later(&self, due: Due, turn: &Turn<'_>) -> Due {
        let times = 1_u64.checked_shl(due.attempts + 1).unwrap_or(BACKOFF_MAX).clamp(1, BACKOFF_MAX);
        Due { at: turn.now() + self.parameters.retry * times, attempts: due.attempts + 1, redirects: 0 }
    }

    /// A version above all that were given or seen here.
    pub(super) fn issue(&mut self, turn: &Turn<'_>) -> Version {
        self.issued = turn.stamp().as_nanos().max(self.state.clock.max(self.issued) + 1);
        Version(self.issued)
    }

    fn sweep_soon(&mut self, turn: &mut Turn<'_>) {
        if !self.sweeping && (self.is_busy() || (turn.leads() && !self.serving)) {
            self.sweeping = true;
            turn.arm(Timer::Sweep, self.parameters.retry / SWEEPS);
        }
    }

    fn append_barrier(&mut self, turn: &mut Turn<'_>) {
        self.barrier_due = turn.now() + self.parameters.retry;
        turn.append(Entry::Barrier { ballot: turn.term() });
    }

    /// Everything that earlier leaders appended is applied.
    fn serve(&mut self, turn: &mut Turn<'_>) {
        self.serving = true;
        self.leaders.lead(self.partition, Some(turn.me()), turn.now());
        self.take_prepared(turn);
        let decided: Vec<TxnId> = self.state.decided.keys().copied().collect();
        decided.into_iter().for_each(|txn| self.tell(txn, turn));
        for (from, message) in std::mem::take(&mut self.early) {
            self.handle(from, message, turn);
        }
    }

    /// Forgets what is known to a leader alone.
    fn retire(&mut self) {
        self.serving = false;
        self.leaders.lead(self.partition, None, Instant::ZERO);
        self.early.clear();
        self.locks = LockTable::new(QUEUE_MAX);
        self.active.clear();
        self.wounded.clear();
        self.unresolved.clear();
        self.finishing.clear();
        self.driving.clear();
        self.ahead.clear();
        self.telling.clear();
        self.acknowledged.clear();
    }

    fn handle(&mut self, from: ProcessId, message: Message, turn: &mut Turn<'_>) {
        match message {
            Message::Read { txn, start, keys } => self.on_read(from, txn, start, keys, turn),
            Message::Alive { txns } => self.on_alive(&txns, turn),
            Message::Release { txn } => self.on_release(txn, turn),
            Message::Commit { txn, start, below, parts, asked } => {
                self.on_commit(txn, start, below, parts, asked, turn);
            }
            Message::Prepare { txn, start, below, coordinator, part } => {
                self.on_prepare(from, txn, start, Wanted { below, coordinator, part }, turn);
            }
            Message::Vote { txn, partition, vote } => self.on_vote(from, txn, partition, vote, turn),
            Message::Outcome { txn, coordinator, ending } => {
                self.on_outcome(from, txn, coordinator, ending, turn);
            }
            Message::Acknowledged { txn, partition } => self.on_acknowledged(from, txn, partition, turn),
            Message::StatusQuery { txn, partition, wound } => {
                self.on_status(from, txn, partition, wound, turn);
            }
            Message::NotLeader { txn, partition, leader } => self.on_not_leader(txn, partition, leader, turn),
            Message::Withdraw { txn, below, participants } => {
                self.on_withdraw(txn, below, participants, turn);
            }
            // For clients.
            Message::Values { .. } | Message::Wounded { .. } | Message::Ended { .. } => {}
        }
    }
}

impl Rules for Replica {
    type Parameters = Parameters;
    type Entry = Entry;
    type Message = Message;
    type Record = ();
    type Timer = Timer;
    type View = View;

    fn open(_: Identity, setup: &family::Server<Parameters>) -> Replica {
        Replica {
            parameters: setup.parameters,
            partition: setup.partition,
            leaders: Leaders::new(&setup.map),
            state: State::new(census::versions(&setup.map)),
            serving: false,
            early: Vec::new(),
            barrier_due: Instant::ZERO,
            issued: 0,
            locks: LockTable::new(QUEUE_MAX),
            active: BTreeMap::new(),
            wounded: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            finishing: BTreeMap::new(),
            driving: BTreeMap::new(),
            ahead: BTreeMap::new(),
            telling: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            forget_due: Instant::ZERO,
            sweeping: false,
        }
    }

    fn log(parameters: &Parameters) -> multipaxos::Parameters {
        parameters.log
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, _: &mut Turn<'_>) {}

    fn lead(&mut self, turn: &mut Turn<'_>) {
        self.append_barrier(turn);
        self.sweep_soon(turn);
    }

    fn follow(&mut self, _: &mut Turn<'_>) {
        self.retire();
    }

    fn apply(&mut self, entry: &Entry, turn: Option<&mut Turn<'_>>) {
        let turn = turn.filter(|turn| turn.leads());
        match entry {
            Entry::Barrier { ballot } => {
                if let Some(turn) = turn
                    && turn.term() == *ballot
                    && !self.serving
                {
                    self.serve(turn);
                    self.sweep_soon(turn);
                }
            }
            Entry::Prepare { txn, start, below, coordinator, at, reads, writes } => {
                let (reads, writes) = (reads.as_slice().into(), writes.as_slice().into());
                let prepared = Prepared { start: *start, coordinator: *coordinator, at: *at, reads, writes };
                let new = self.state.prepare(*txn, *below, prepared);
                if cfg!(debug_assertions) && new && self.parameters.mutation.is_none() {
                    self.check_prepared(*txn, self.serving);
                }
                if let Some(turn) = turn.filter(|_| self.serving) {
                    self.prepared(*txn, new, turn);
                    self.sweep_soon(turn);
                }
            }
            Entry::Outcome { txn, coordinator, ending } => {
                let prepared = self.state.finish(*txn, *ending, self.parameters.keep);
                if let Some(turn) = turn.filter(|_| self.serving) {
                    self.finished(*txn, *coordinator, prepared, turn);
                    self.sweep_soon(turn);
                }
            }
            Entry::Decision { txn, below, ending, participants } => {
                self.state.decide(*txn, *below, *ending, participants);
                if let Some(turn) = turn.filter(|_| self.serving) {
                    self.decided(*txn, turn);
                    self.sweep_soon(turn);
                }
            }
            Entry::Forget { txns } => {
                for txn in txns {
                    self.state.forget(*txn);
                    self.acknowledged.remove(txn);
                }
            }
        }
    }

    fn learn(&mut self, group: PartitionId, version: u32, members: &Arc<[Member]>) {
        self.leaders.learn(group, version, members);
    }

    fn receive(&mut self, from: ProcessId, message: Message, turn: &mut Turn<'_>) {
        if !message.names_partitions_below(self.leaders.len()) {
            return;
        }
        if !turn.leads() {
            if let Some(txn) = message.asks_leader() {
                let (partition, leader) = (self.partition, turn.leader());
                turn.send_ahead(from, Message::NotLeader { txn, partition, leader });
            }
            return;
        }
        if !self.serving {
            if self.early.len() < EARLY_MAX {
                self.early.push((from, message));
            }
            return;
        }
        self.handle(from, message, turn);
        self.sweep_soon(turn);
    }

    fn expire(&mut self, timer: Timer, turn: &mut Turn<'_>) {
        match timer {
            Timer::Sweep => {
                self.sweeping = false;
                if self.serving {
                    self.sweep_participant(turn);
                    self.sweep_coordinator(turn);
                } else if turn.leads() && self.barrier_due <= turn.now() {
                    self.append_barrier(turn);
                }
                self.sweep_soon(turn);
            }
        }
    }

    fn store(&self) -> &Versions {
        &self.state.versions
    }

    fn list(&self, query: &Query) -> Option<Page> {
        if matches!(query.as_of, AsOf::Now { .. }) && !self.serving {
            return None;
        }
        let prepared = self.state.prepared.values();
        let pending = prepared.flat_map(|prepared| prepared.writes.iter().map(|update| &update.key));
        query.answer(&self.state.versions, pending)
    }

    fn export(&self) -> View {
        self.state.export()
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        self.state.absorb(chunk)
    }

    fn install(&mut self, staged: Replica, turn: Option<&mut Turn<'_>>) {
        self.state = staged.state;
        if self.serving {
            // What it knows beside the state is of another one. If it leads, it begins anew behind a barrier.
            self.retire();
            if let Some(turn) = turn
                && !std::mem::replace(&mut self.sweeping, true)
            {
                turn.arm(Timer::Sweep, self.parameters.retry / SWEEPS);
            }
        }
    }

    fn records(&self) -> Vec<()> {
        Vec::new()
    }

    fn check(&self) {
        if self.serving && self.parameters.mutation.is_none() {
            // Who is prepared holds locks, and somebody asks how it ends: what the two must be is seen when they change.
            assert_eq!(
                self.unresolved.len(),
                self.state.prepared.len(),
                "something prepared is not looked after"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Tuning as _;
    use crate::map::{Group, Map, Split};
    use crate::request::Update;
    use isochrone_core::{Blob, ClientId, KeyspaceId, NodeId, ReplicaId, Role, Span, Stamp};

    /// One that has a successor of which it does not hear may get a state that it had asked for before it led.
    #[test]
    fn what_a_leader_knew_beside_its_state_goes_with_that() {
        let process = |role: Role| {
            let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
            ProcessId { node: NodeId(0), keyspace, partition, role, instance: 0 }
        };
        let member = Member { replica: ReplicaId(0), process: process(crate::SERVER) };
        let groups = [Group { members: [member].into(), spares: [].into() }].into();
        let map = Map { keyspace: KeyspaceId(1), split: Split::Hash, groups };
        let parameters = Parameters::for_rtt(Span::from_millis(10));
        let setup = family::Server { map, partition: PartitionId(0), clients: [].into(), parameters };
        let identity = Identity { process: process(crate::SERVER), incarnation: 1 };
        let open = || -> Replica { Rules::open(identity, &setup) };
        let (mut leader, mut staged) = (open(), open());
        leader.serving = true;
        let client = ClientId { process: process(crate::CLIENT), incarnation: 1 };
        let txn = TxnId { client, sequence: 1 };
        let writes = [Update { key: Blob::from("x"), value: None }].into();
        let (start, coordinator, at) = (Stamp::ZERO, PartitionId(0), Version(1));
        let prepared = Prepared { start, coordinator, at, reads: [].into(), writes };
        assert!(staged.state.prepare(txn, 0, prepared));
        leader.install(staged, None);
        leader.check();
        assert!(!leader.serving && leader.state.prepared.contains_key(&txn));
    }
}
