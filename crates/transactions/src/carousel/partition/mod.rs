//! A replica of a partition: participant of the transactions that touch its keys, and coordinator of those that chose
//! its group for that.

mod claims;
mod coordinator;
mod participant;
mod precedence;
mod recovery;
mod snapshot;
#[cfg(test)]
mod tests;

use super::message::{Ended, Entry, Part, Timer, Verdict, Vote, Word};
use super::parameters::Parameters;
use crate::census;
use crate::family;
use crate::group::{self, Rules};
use crate::leaders::Leaders;
use crate::listing::{AsOf, Page, Query};
use crate::map::Map;
use crate::request::{TxnId, Update};
use claims::Claims;
use coordinator::Running;
use isochrone_core::{
    Ballot, ClientId, Identity, Instant, Malformed, PartitionId, ProcessId, ReplicaId, Span, Stamp,
};
use isochrone_replication::multipaxos;
use isochrone_replication::order::Member;
use isochrone_store::versions::{Version, Versions};
use precedence::Precedence;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What a replica of a partition does in one input.
pub(super) type Turn<'a> = group::Turn<'a, Partition>;

/// What a participant remembers of a transaction that is no longer pending.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Closed {
    /// What it had decided; nothing where it never heard of it before the end.
    verdict: Option<Verdict>,
    /// How it ended, if that is known.
    ended: Option<Ended>,
    /// Who coordinates it.
    coordinator: ProcessId,
}

/// What a coordinating group knows of a transaction.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Coordinated {
    parts: Arc<[Part]>,
    /// What it writes and what its client had read, once it is to be committed.
    write: Option<(Arc<[Update]>, Seen)>,
    ended: Option<Ended>,
    /// Every participant has the outcome.
    forgotten: bool,
}

/// The versions that a client has used, by partition.
type Seen = Arc<[(PartitionId, Vec<Version>)]>;

/// What the log has made: the same at every replica.
#[derive(Clone, Hash, Debug, Default)]
struct State {
    store: Versions,
    /// Prepared and not ended.
    pending: BTreeMap<TxnId, Vote>,
    closed: BTreeMap<TxnId, Closed>,
    coordinated: BTreeMap<TxnId, Coordinated>,
    /// By client, the count below which everything is over that is not in the tables above.
    floors: BTreeMap<ClientId, u64>,
    /// At or above every version committed here and every moment an earlier leader has served.
    clock: Version,
    ceiling: Version,
    /// The term of the last barrier.
    barrier: Ballot,
}

/// When readers of the directory's entry, which all are, are refused for somebody who is to change it: among readers that
/// never cease there would be no gap.
#[derive(Clone, Hash, Debug)]
struct Yields {
    until: Instant,
    /// No more are before that, whatever stands in the way: one that stays open for long, say.
    rests: Instant,
}

/// Times as long as readers were refused they are not after that.
const YIELDS_ONE_IN: u64 = 8;

impl Yields {
    fn new() -> Yields {
        Yields { until: Instant::ZERO, rests: Instant::ZERO }
    }

    /// Somebody is in the way of a change: what ends soon has within this time.
    fn ask(&mut self, now: Instant, span: Span) {
        if now >= self.rests {
            self.until = now + span;
            self.rests = self.until + span * YIELDS_ONE_IN;
        }
    }

    fn hold(&self, now: Instant) -> bool {
        now < self.until
    }
}

/// Lives of a client process whose floors are kept: what is older is over by then.
const LIVES_MAX: usize = 32;

impl State {
    /// The lives of a client process that have a floor.
    fn lives(&self, process: ProcessId) -> impl Iterator<Item = ClientId> {
        let life = |incarnation| ClientId { process, incarnation };
        self.floors.range(life(0)..=life(u32::MAX)).map(|(client, _)| *client)
    }

    /// Whether a transaction that is in no table is over.
    fn is_past(&self, txn: TxnId) -> bool {
        match self.floors.get(&txn.client) {
            Some(floor) => txn.sequence < *floor,
            None => {
                let first = self.lives(txn.client.process).next();
                first.is_some_and(|first| txn.client < first)
                    && self.lives(txn.client.process).count() >= LIVES_MAX
            }
        }
    }

    /// Everything of a client up to this is over.
    fn pass(&mut self, txn: TxnId) {
        let floor = self.floors.entry(txn.client).or_default();
        *floor = (*floor).max(txn.sequence + 1);
        if self.lives(txn.client.process).count() > LIVES_MAX {
            let first = self.lives(txn.client.process).next();
            first.and_then(|first| self.floors.remove(&first));
        }
    }
}

/// A replica. See the module.
#[derive(Clone)]
pub struct Partition {
    me: ProcessId,
    map: Map,
    knobs: Parameters,
    state: State,
    /// Own votes that no entry has decided.
    votes: BTreeMap<TxnId, Vote>,
    /// Of what is pending, of what this leader has appended, and of own votes.
    claims: Claims,
    /// When an own vote was first looked at.
    aged: BTreeMap<TxnId, Instant>,
    sweeping: bool,
    lead: Option<Lead>,
    /// Who leads the other groups, as far as is known.
    leaders: Leaders,
}

impl Hash for Partition {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.state, &self.votes, &self.lead, &self.leaders).hash(hasher);
    }
}

/// How far a new leader has come (4.5).
#[derive(Clone, Hash, Debug)]
enum Phase {
    /// Its first entry is on its way: everything of earlier terms comes before it.
    Opening,
    /// It gathers the votes of earlier terms.
    Recalling(BTreeMap<ReplicaId, Vec<Vote>>),
    /// What it adopts is on its way.
    Adopting,
    /// It serves.
    Serving,
}

/// What only a leader has, and loses with its term.
#[derive(Clone, Hash, Debug)]
struct Lead {
    term: Ballot,
    phase: Phase,
    /// What came before it was ready.
    waiting: Vec<(ProcessId, Word)>,
    /// Decisions that were appended and are not applied.
    appended: BTreeMap<TxnId, Vote>,
    /// Outcomes that were appended and are not applied.
    ending: BTreeSet<TxnId>,
    running: BTreeMap<TxnId, Running>,
    /// The last moment given or served.
    clock: Version,
    /// The highest ceiling appended.
    ceiling: Version,
    /// By client: everything below is over, and when it was last heard of.
    clients: BTreeMap<ClientId, (u64, Instant)>,
    /// As [`State::floors`] will be when what was appended is applied.
    floors: BTreeMap<ClientId, u64>,
    /// When the end of a pending transaction was last asked for.
    asked: BTreeMap<TxnId, Instant>,
    yields: Yields,
    precedence: Precedence,
    sweeps: u64,
}

/// A stamp as a version.
pub(super) fn version(stamp: Stamp) -> Version {
    Version(stamp.as_nanos())
}

fn plus(version: Version, span: Span) -> Version {
    Version(version.0.saturating_add(span.as_nanos()))
}

impl Partition {
    /// Who is thought to lead a group.
    fn leader_of(&self, partition: PartitionId) -> ProcessId {
        match self.lead {
            Some(_) if partition == self.me.partition => self.me,
            _ => self.leaders.of(partition),
        }
    }

    /// Whether a transaction is over and no longer remembered.
    fn is_past(&self, txn: TxnId) -> bool {
        self.state.is_past(txn)
    }

    /// Whether a transaction is about to be so: what is appended for it now would come too late.
    fn is_leaving(&self, txn: TxnId) -> bool {
        let floor = self.lead.as_ref().and_then(|lead| lead.floors.get(&txn.client));
        floor.is_some_and(|floor| txn.sequence < *floor)
    }

    /// Gives up the claims of a transaction that nothing claims for any more.
    fn release(&mut self, txn: TxnId, part: &Part) {
        let appended = self.lead.as_ref().and_then(|lead| lead.appended.get(&txn));
        let claims = |vote: Option<&Vote>| vote.is_some_and(|vote| vote.verdict.prepared);
        if !self.state.pending.contains_key(&txn) && !claims(appended) && !claims(self.votes.get(&txn)) {
            self.claims.remove(txn, part);
        }
    }

    /// An own vote is void: the log has decided.
    fn drop_vote(&mut self, txn: TxnId) {
        self.aged.remove(&txn);
        if let Some(vote) = self.votes.remove(&txn) {
            self.release(txn, &vote.part);
        }
    }

    /// Looks again soon, if not already about to.
    fn sweep_soon(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.sweeping, true) {
            turn.arm(Timer::Sweep, self.knobs.heartbeat);
        }
    }

    fn sweep(&mut self, turn: &mut Turn<'_>) {
        self.sweeping = false;
        self.ask_for_orphans(turn);
        if self.lead.is_some() {
            self.raise_ceiling(turn);
            self.recall(turn);
            self.ask_for_ends(turn);
            self.look_after_running(turn);
            self.clean_up(turn);
        }
        if self.lead.is_some() || !self.votes.is_empty() {
            self.sweep_soon(turn);
        }
    }
}

impl Rules for Partition {
    type Parameters = Parameters;
    type Entry = Entry;
    type Message = Word;
    type Record = Vote;
    type Timer = Timer;
    type View = snapshot::View;

    fn open(identity: Identity, setup: &family::Server<Parameters>) -> Partition {
        Partition {
            me: identity.process,
            map: setup.map.clone(),
            knobs: setup.parameters,
            state: State { store: census::versions(&setup.map), ..State::default() },
            votes: BTreeMap::new(),
            claims: Claims::default(),
            aged: BTreeMap::new(),
            sweeping: false,
            lead: None,
            leaders: Leaders::new(&setup.map),
        }
    }

    fn log(parameters: &Parameters) -> multipaxos::Parameters {
        parameters.log
    }

    fn replay(&mut self, vote: Vote) {
        let decided = self.state.pending.contains_key(&vote.txn) || self.state.closed.contains_key(&vote.txn);
        if !decided && vote.term >= self.state.barrier && !self.is_past(vote.txn) {
            if vote.verdict.prepared {
                self.claims.add(vote.txn, &vote.part);
            }
            self.votes.insert(vote.txn, vote);
        }
    }

    fn start(&mut self, turn: &mut Turn<'_>) {
        if !self.votes.is_empty() {
            self.sweep_soon(turn);
        }
    }

    fn lead(&mut self, turn: &mut Turn<'_>) {
        self.begin_reign(turn);
    }

    fn follow(&mut self, _: &mut Turn<'_>) {
        self.end_reign();
    }

    fn apply(&mut self, entry: &Entry, mut turn: Option<&mut Turn<'_>>) {
        match entry {
            Entry::Prepare(vote) => self.apply_prepare(vote, turn),
            Entry::Outcome { txn, ended, updates, coordinator } => {
                self.apply_outcome(*txn, *ended, updates, *coordinator, turn);
            }
            Entry::Begin { txn, parts } => self.apply_begin(*txn, parts, None, turn),
            Entry::Write { txn, parts, updates, seen } => {
                self.apply_begin(*txn, parts, Some((updates.clone(), seen.clone())), turn);
            }
            Entry::Decision { txn, parts, ended } => self.apply_decision(*txn, parts, *ended, turn),
            Entry::Forget { txn } => self.apply_forget(*txn),
            Entry::Open { term } => {
                if let Some(turn) = turn.as_deref_mut() {
                    self.opened(*term, turn);
                }
            }
            Entry::Barrier { term } => self.apply_barrier(*term, turn),
            Entry::Ceiling { to } => self.apply_ceiling(*to, turn),
            Entry::Drop { participated, coordinated } => self.apply_drop(participated, coordinated),
        }
    }

    fn settled(&self) -> bool {
        self.lead.as_ref().is_some_and(|lead| matches!(lead.phase, Phase::Serving))
    }

    fn learn(&mut self, group: PartitionId, version: u32, members: &Arc<[Member]>) {
        self.leaders.learn(group, version, members);
    }

    fn receive(&mut self, from: ProcessId, word: Word, turn: &mut Turn<'_>) {
        if !word.names_partitions_below(self.leaders.len()) {
            return;
        }
        match word {
            Word::Prepare { .. } => self.on_prepare(from, word, turn),
            Word::Vote { txn, partition, replica, under, leads, verdict } => {
                self.on_vote(from, txn, partition, (replica, under, leads), verdict, turn);
            }
            Word::Prepared { txn, partition, verdict } => {
                self.on_prepared(from, txn, partition, verdict, turn)
            }
            Word::WrittenBack { txn, partition } => self.on_written_back(from, txn, partition, turn),
            Word::NotLeader { partition, leader } => {
                if let Some(leader) = leader.filter(|leader| leader.partition == partition) {
                    self.leaders.told(leader.partition, leader, turn.now());
                }
            }
            Word::Recall { term } => self.on_recall(from, term, turn),
            Word::Votes { term, votes } => self.on_votes(from, term, votes, turn),
            Word::Closed { txns } => self.on_closed(txns, turn),
            Word::Begin { .. }
            | Word::Commit { .. }
            | Word::Abort { .. }
            | Word::Heartbeat { .. }
            | Word::Writeback { .. }
            | Word::Query { .. }
            | Word::Status { .. }
            | Word::Closable { .. }
            | Word::ReadAt { .. } => self.on_leader_word(from, word, turn),
            // For clients.
            Word::Values { .. } | Word::Ended { .. } | Word::ReadIs { .. } => {}
        }
    }

    fn expire(&mut self, timer: Timer, turn: &mut Turn<'_>) {
        match timer {
            Timer::Sweep => self.sweep(turn),
        }
    }

    fn store(&self) -> &Versions {
        &self.state.store
    }

    fn list(&self, query: &Query) -> Option<Page> {
        if matches!(query.as_of, AsOf::Now { .. }) && !self.settled() {
            return None;
        }
        // Votes may have settled what this leader has only appended.
        let appended = self.lead.iter().flat_map(|lead| lead.appended.values());
        let pending = self.state.pending.values().chain(appended).flat_map(|vote| vote.part.writes.iter());
        query.answer(&self.state.store, pending)
    }

    fn export(&self) -> snapshot::View {
        snapshot::View::of(&self.state)
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        if !self.state.absorb(chunk)? {
            return Ok(());
        }
        self.claims = Claims::default();
        for (txn, vote) in self.state.pending.iter().chain(&self.votes) {
            if vote.verdict.prepared {
                self.claims.add(*txn, &vote.part);
            }
        }
        Ok(())
    }

    fn install(&mut self, staged: Partition, _: Option<&mut Turn<'_>>) {
        self.state = staged.state;
        self.claims = staged.claims;
        let (state, barrier) = (&self.state, self.state.barrier);
        self.votes.retain(|txn, vote| {
            let decided = state.pending.contains_key(txn) || state.closed.contains_key(txn);
            vote.term >= barrier && !decided && !state.is_past(*txn)
        });
        self.aged.retain(|txn, _| self.votes.contains_key(txn));
        for (txn, vote) in &self.votes {
            if vote.verdict.prepared {
                self.claims.add(*txn, &vote.part);
            }
        }
    }

    fn records(&self) -> Vec<Vote> {
        self.votes.values().cloned().collect()
    }

    fn check(&self) {
        if self.knobs.mutation.is_some() {
            return;
        }
        let quiet = self.state.pending.is_empty() && self.votes.is_empty();
        let appended = self.lead.as_ref().is_some_and(|lead| !lead.appended.is_empty());
        assert!(
            !quiet || appended || self.claims.is_empty(),
            "keys are claimed by nobody: {:?}",
            self.claims
        );
    }
}
