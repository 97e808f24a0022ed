//! What a node tells about itself: facts of its processes gathered, and published a few times a second.

mod board;
mod standing;
#[cfg(test)]
mod tests;
mod told;
mod usage;

pub use board::Board;
pub use told::{KeyspaceStatus, MemoryStatus, Moving, PeerStatus, ProcessStatus, Status};
pub(crate) use usage::resident_bytes;

use super::clients::Clients;
use super::peers::Peers;
use crate::clock::Clock;
use crate::figures::{Figures, Reading, Readings};
use crate::gateway::{KeyspaceView, NodeView, Outcome, Step};
use crate::journal::JournalMetrics;
use crate::memory::{Warned, shown, used_bytes};
use crate::metrics::KeyspaceMetrics;
use crate::shard::Shard;
use crate::transport::frame::VERSION;
use isochrone_core::{Fact, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Role, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use usage::{peak_bytes, processor_seconds};

/// The name under which clients tell how many copies have what is safe.
pub(crate) const COPIES: &str = "copies";

/// The name under which servers tell how many replicas there are now, of those that the protocol may choose.
const REPLICAS: &str = "replicas";

/// The name under which a master tells how many of its copies are silent: it serves nobody then.
const SILENT: &str = "copies_silent";

/// The name under which clients of transactions tell how many moves of keys from a partition nobody has ended, as far as they
/// know.
const UNENDED: &str = "moves_unended";

/// The name under which they tell how many moves from it they carry on themselves.
const DRIVEN: &str = "moves_driven";

/// Where nobody was heard to lead for so long, clients wait in vain: longer than a link takes to be found dead, and than another
/// leader takes to be found where the parameters are those by default.
const LEADERLESS: Span = Span::from_secs(10);

/// The nodes of the replicas of a partition, and of which of several such sets.
#[derive(Default)]
struct Members {
    version: u32,
    nodes: Arc<[NodeId]>,
}

/// Gathers facts for the board.
pub(crate) struct Reporter {
    board: Arc<Board>,
    clock: Clock,
    /// Since when the node serves.
    began: Instant,
    me: NodeId,
    incarnation: u32,
    journal: Arc<JournalMetrics>,
    /// Names of all nodes and of their regions.
    names: Vec<(String, String)>,
    keyspaces: Vec<Served>,
    processes: BTreeMap<ProcessId, ProcessStatus>,
    /// The nodes of the replicas of a partition, as this node's own knows them.
    members: BTreeMap<(KeyspaceId, PartitionId), Members>,
    /// When a process of this node was last the serving master of a partition.
    served: BTreeMap<(KeyspaceId, PartitionId), Instant>,
    /// Since when this node has known of moves of keys from a partition that are not over.
    moving: BTreeMap<(KeyspaceId, PartitionId), Instant>,
    /// Orders that are not answered yet.
    orders: usize,
    /// When commands were last counted, and how many there were.
    counted: (Instant, u64),
    /// How many syncs there were then, and how long they took together, in seconds.
    synced: (u64, f64),
    /// Whether the log was told that this node is full.
    warned: Warned,
    /// From which leaders of which keyspaces the log was told that this node is cut off.
    told_cut_off: BTreeSet<(u16, String)>,
    /// What was counted of each keyspace in the last while, and what that comes to.
    readings: Vec<(Readings, Figures)>,
}

/// Of how long the figures of [`KeyspaceStatus::recent`] are.
const RECENT: std::time::Duration = std::time::Duration::from_secs(10);

/// A keyspace as its node serves it.
pub(crate) struct Served {
    pub id: KeyspaceId,
    pub protocol: &'static str,
    /// Whether nothing is served without a leader.
    pub led: bool,
    pub metrics: Arc<KeyspaceMetrics>,
    /// The nodes that held any of it first.
    pub nodes: Vec<NodeId>,
    /// Those of each partition; empty where each held all partitions.
    pub placement: Vec<Vec<NodeId>>,
    /// Those that may hold it by now.
    pub spares: Vec<NodeId>,
    /// How many partitions it has.
    pub partitions: u16,
    /// The server processes of this node.
    pub servers: Vec<ProcessId>,
    /// Where the protocol chooses its replicas, and a majority says nothing: how long a serving master may not be heard of
    /// before the keyspace counts as one without.
    pub masterless: Option<Span>,
}

impl Served {
    /// The nodes that held a partition first.
    fn begun(&self, partition: PartitionId) -> &[NodeId] {
        self.placement.get(usize::from(partition.0)).unwrap_or(&self.nodes)
    }
}

impl Reporter {
    pub fn new(
        board: Arc<Board>,
        clock: Clock,
        me: NodeId,
        incarnation: u32,
        journal: Arc<JournalMetrics>,
        names: Vec<(String, String)>,
        keyspaces: Vec<Served>,
    ) -> Reporter {
        let readings = keyspaces.iter().map(|_| (Readings::over(RECENT), Figures::default())).collect();
        Reporter {
            board,
            clock,
            began: clock.now(),
            me,
            incarnation,
            journal,
            names,
            keyspaces,
            processes: BTreeMap::new(),
            members: BTreeMap::new(),
            served: BTreeMap::new(),
            moving: BTreeMap::new(),
            orders: 0,
            counted: (Instant::ZERO, 0),
            synced: (0, 0.0),
            warned: Warned::default(),
            told_cut_off: BTreeSet::new(),
            readings,
        }
    }

    /// The protocol of a keyspace, and its server processes on this node.
    pub fn servers(&self, keyspace: KeyspaceId) -> Option<(&'static str, Vec<ProcessId>)> {
        let served = self.keyspaces.iter().find(|served| served.id == keyspace)?;
        (!served.servers.is_empty()).then(|| (served.protocol, served.servers.clone()))
    }

    /// The protocol of a keyspace.
    pub fn protocol(&self, keyspace: KeyspaceId) -> Option<&'static str> {
        self.keyspaces.iter().find(|served| served.id == keyspace).map(|served| served.protocol)
    }

    /// The server processes of this node whose overdue keys are this node's to delete, with their keyspaces.
    pub fn to_sweep(&self, peers: &Peers) -> Vec<(ProcessId, KeyspaceId)> {
        let first = |served: &Served, partition| {
            let replicas = self.members(served, partition).unwrap_or(served.begun(partition));
            replicas.iter().find(|node| self.reaches(**node, served.id, peers)).copied()
        };
        let sweeper =
            |served, partition| self.leader(served, partition, peers).or_else(|| first(served, partition));
        let all = self.keyspaces.iter().flat_map(|served| {
            let own = served
                .servers
                .iter()
                .filter(move |process| sweeper(served, process.partition) == Some(self.me));
            own.map(|process| (*process, served.id))
        });
        all.collect()
    }

    /// The keyspaces that a process of this node leads.
    pub fn led(&self) -> Vec<KeyspaceId> {
        let mut led: Vec<_> = self
            .processes
            .iter()
            .filter(|(_, status)| status.leads.is_some())
            .map(|(id, _)| id.keyspace)
            .collect();
        led.dedup();
        led
    }

    /// What pings tell of leadership. A master whose copies are silent serves nobody.
    pub fn claims(&self) -> Vec<(KeyspaceId, PartitionId, u64)> {
        self.processes
            .iter()
            .filter(|(_, status)| !status.is_silenced())
            .filter_map(|(id, status)| Some((id.keyspace, id.partition, status.leads?)))
            .collect()
    }

    /// How the processes here of these partitions of a keyspace stand.
    fn of(
        &self,
        keyspace: KeyspaceId,
        partitions: RangeInclusive<u16>,
    ) -> impl Iterator<Item = &ProcessStatus> {
        let end = |partition, of_all| ProcessId {
            node: self.me,
            keyspace,
            partition: PartitionId(partition),
            role: Role(of_all),
            instance: of_all,
        };
        let (first, last) = (end(*partitions.start(), 0), end(*partitions.end(), u8::MAX));
        self.processes.range(first..=last).map(|(_, status)| status)
    }

    /// What the processes of a keyspace here tell under this name, each of each partition.
    fn stands(&self, keyspace: KeyspaceId, name: &str) -> impl Iterator<Item = u64> {
        let stands = self.of(keyspace, 0..=u16::MAX).flat_map(|status| &status.stands);
        stands.filter(move |((what, _), _)| *what == name).map(|(_, value)| *value)
    }

    /// How many copies have what a keyspace says is safe, as its client here knows: in the partition that has fewest.
    pub fn copies(&self, keyspace: KeyspaceId) -> Option<u64> {
        self.stands(keyspace, COPIES).min()
    }

    /// How many keys the replicas of this keyspace here have, and how many have a deadline.
    fn keys(&self, keyspace: KeyspaceId) -> Option<(u64, u64)> {
        let sum = |name| self.stands(keyspace, name).reduce(|sum, value| sum + value);
        Some((sum("keys")?, sum("keys_with_deadline")?))
    }

    /// How many replicas a keyspace has now, as its servers here know, or else its client; where there is neither, none.
    fn replicas(&self, keyspace: KeyspaceId) -> Option<u64> {
        let told = self.stands(keyspace, REPLICAS).min();
        // The client says none also while it does not know.
        told.or_else(|| self.copies(keyspace).filter(|copies| *copies > 0).map(|copies| copies + 1))
    }

    /// A fact that a process has marked. Whether pings have something else to tell from now on.
    pub fn note(&mut self, process: ProcessId, fact: &Fact) -> bool {
        let status = self.processes.entry(process).or_insert_with(|| ProcessStatus {
            process: process.to_string(),
            keyspace: process.keyspace.0,
            partition: process.partition.0,
            ..ProcessStatus::default()
        });
        let served = self.keyspaces.iter().find(|served| served.id == process.keyspace);
        let metrics = served.map(|served| &served.metrics);
        let (keyspace, partition) =
            (metrics.map_or("", |metrics| metrics.name.as_str()), process.partition.0);
        match fact {
            Fact::Decided { position, .. } => {
                status.decided = status.decided.max(Some(*position));
                if let Some(metrics) = metrics {
                    metrics.decided.fetch_max(*position, Relaxed);
                }
            }
            Fact::Applied { position, .. } => {
                status.applied = Some(*position);
                if let Some(metrics) = metrics {
                    metrics.applied.fetch_max(*position, Relaxed);
                }
            }
            Fact::Leads { reign } => {
                status.leads = Some(*reign);
                tracing::info!(keyspace, partition, reign, "leads");
                if let Some(metrics) = metrics {
                    metrics.leader_changes.fetch_add(1, Relaxed);
                    metrics.leads.store(true, Relaxed);
                }
            }
            Fact::Follows => {
                if status.leads.take().is_some() {
                    tracing::info!(keyspace, partition, "no longer leads");
                }
                // Of several partitions it may lead another one still.
                let of = process.keyspace;
                let leads =
                    self.processes.iter().any(|(id, status)| id.keyspace == of && status.leads.is_some());
                if let Some(metrics) = metrics {
                    metrics.leads.store(leads, Relaxed);
                }
            }
            Fact::Committed { path, total, phases, .. } => {
                if let Some(metrics) = metrics {
                    metrics.committed(*path, *total, phases);
                }
            }
            Fact::LastVoter(node) => {
                let (name, _) = self.names.get(usize::from(node.0)).cloned().unwrap_or_default();
                *status.last_voters.entry(name).or_default() += 1;
            }
            Fact::Counted(what) => *status.counted.entry(what).or_default() += 1,
            Fact::Added(what, more) => *status.counted.entry(what).or_default() += more,
            Fact::Stands { what, partition, value } => {
                let silenced = status.is_silenced();
                status.stands.insert((*what, partition.0.max(process.partition.0)), *value);
                return status.is_silenced() != silenced;
            }
            Fact::Members { partition, version, nodes } => {
                let known = self.members.entry((process.keyspace, *partition)).or_default();
                if *version >= known.version {
                    *known = Members { version: *version, nodes: nodes.clone() };
                }
            }
        }
        matches!(fact, Fact::Leads { .. } | Fact::Follows)
    }

    /// A client's command, one that changes nothing or another, was answered.
    pub fn answered(&mut self, keyspace: usize, outcome: &Outcome, took: Span, reads: bool) {
        let Some(served) = self.keyspaces.get(keyspace) else { return };
        match outcome {
            Outcome::Done(_) => {
                served.metrics.commands.record(took);
                if !reads {
                    served.metrics.writes.record(took);
                }
            }
            Outcome::Refused(_) => drop(served.metrics.refused.fetch_add(1, Relaxed)),
            Outcome::Unknown(_) => drop(served.metrics.unknown.fetch_add(1, Relaxed)),
            Outcome::Transaction(step) => match **step {
                Step::Begun { .. } | Step::Snapshot { .. } => served.metrics.commands.record(took),
                Step::Committed(_) => {
                    served.metrics.commands.record(took);
                    served.metrics.writes.record(took);
                }
                Step::Aborted(_) | Step::Refused(..) => drop(served.metrics.refused.fetch_add(1, Relaxed)),
                Step::Unknown => drop(served.metrics.unknown.fetch_add(1, Relaxed)),
            },
            Outcome::Verified { .. } | Outcome::Ordered(_) => {}
        }
    }

    /// So many transactions are open between two calls.
    pub fn open_transactions(&self, open: usize) {
        self.board.metrics.grpc.open.store(open as u64, Relaxed);
    }

    /// So many commands are under way, and so many of Redis clients may be.
    pub fn in_flight(&self, commands: usize, room: usize) {
        self.board.metrics.in_flight.store(commands as u64, Relaxed);
        self.board.metrics.room.store(room as u64, Relaxed);
    }

    /// So many orders of administrators are not answered yet.
    pub fn orders(&mut self, orders: usize) {
        self.orders = orders;
    }

    /// Looks at how much memory is used. How much may be, where that is less than what is used beside what clients make it hold.
    pub fn look_at_memory(&mut self, clients: &mut Clients) -> Option<u64> {
        let memory = &self.board.metrics.memory;
        memory.note(used_bytes());
        // All connections are looked at for it, so only where it matters.
        let of_grpc = &self.board.metrics.grpc.held;
        let held = memory.exceeded().map_or(0, |_| clients.held() + of_grpc.load(Relaxed));
        match self.warned.take_news(memory) {
            Some(true) => tracing::warn!(
                "this node uses {} of memory, of which clients make it hold {} (CLIENT LIST), and may use {} (`memory` of [limits]): \
                 commands that may make data grow are refused in its keyspaces, at every node where its data alone are more. Delete, or \
                 have keys expire; or raise the limit, with CONFIG SET maxmemory until the node ends",
                shown(memory.used()),
                shown(held),
                shown(memory.limit())
            ),
            Some(false) => {
                tracing::info!(
                    "this node uses {} of memory, and refuses nothing for it any more",
                    shown(memory.used())
                );
            }
            None => {}
        }
        memory.exceeded_beside(held)
    }

    /// Publishes how the node stands; what clients are to be shown of it.
    pub fn publish(
        &mut self,
        now: Instant,
        shard: &mut Shard,
        peers: &Peers,
        clients: &Clients,
        stopping: bool,
    ) -> (NodeView, Vec<KeyspaceView>) {
        debug_assert!(now <= self.clock.now());
        let mut node = clients.node().clone();
        let mut views = clients.keyspaces().to_vec();
        if node.uptime_seconds != now.as_nanos() / 1_000_000_000 || node.memory_bytes == 0 {
            node.memory_bytes = resident_bytes();
            node.memory_peak_bytes = peak_bytes().max(node.memory_bytes);
            node.processor_seconds = processor_seconds();
            let total = clients.counters.commands.values().sum();
            let (since, before) = std::mem::replace(&mut self.counted, (now, total));
            let seconds = now.since(since).as_nanos().max(1) as f64 / 1e9;
            node.commands_per_second = ((total - before) as f64 / seconds).round() as u64;
            node.sync_micros = self.sync_micros().unwrap_or(node.sync_micros);
            for (served, (readings, recent)) in self.keyspaces.iter().zip(&mut self.readings) {
                let mut reading = Reading::default();
                reading.add(&served.metrics);
                readings.add(std::time::Instant::now(), reading);
                *recent = readings.recent();
            }
        }
        node.uptime_seconds = now.as_nanos() / 1_000_000_000;
        node.journal_bytes = self.journal.segment_bytes.load(Relaxed);
        let connected = peers.links.values().filter(|link| link.ready()).count();
        node.peers_connected = (connected as u32, peers.links.len() as u32);
        for (keyspace, partition, _) in self.claims() {
            self.served.insert((keyspace, partition), now);
        }
        self.see_moves(now);
        let keyspaces = self.keyspaces.iter().zip(&self.readings).zip(&mut views);
        let keyspaces: Vec<_> = keyspaces
            .map(|((served, (_, recent)), view)| KeyspaceStatus {
                recent: *recent,
                ..self.keyspace(served, view, peers, now)
            })
            .collect();
        self.tell_cut_off(&keyspaces);
        let members: BTreeSet<&String> =
            keyspaces.iter().flat_map(|keyspace| &keyspace.members).flatten().collect();
        let links = peers.links.values();
        let told = links.map(|link| peer(link, members.contains(&link.name), peers, now, shard)).collect();
        let metrics = &self.board.metrics;
        metrics.misaddressed.store(shard.misaddressed, Relaxed);
        metrics.clients.store(clients.len() as u64, Relaxed);
        let able = !stopping && !shard.io().hangs();
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            frames: VERSION,
            cluster: node.cluster.clone(),
            node: node.node.clone(),
            region: node.region.clone(),
            incarnation: self.incarnation,
            uptime_seconds: node.uptime_seconds,
            uptime_ms: now.as_nanos() / 1_000_000,
            serves_ms: now.since(self.began).as_nanos() / 1_000_000,
            orders: self.orders,
            stopping,
            ready: able && keyspaces.iter().all(|keyspace| keyspace.ready),
            able,
            unsafe_fsync_off: node.unsafe_fsync_off,
            clients: clients.len(),
            memory: MemoryStatus {
                used_bytes: metrics.memory.used(),
                limit_bytes: metrics.memory.limit(),
                full: metrics.memory.exceeded().is_some(),
            },
            keyspaces,
            peers: told,
            processes: self.processes.values().cloned().collect(),
        };
        self.board.post(status, clients.counters.clone(), std::time::Instant::now());
        (node, views)
    }

    /// Tells the log from which leaders this node is cut off, of each once until that is over.
    fn tell_cut_off(&mut self, keyspaces: &[KeyspaceStatus]) {
        let of = |keyspace: &KeyspaceStatus| {
            let id = keyspace.id;
            keyspace.cut_off.clone().into_iter().map(move |leader| (id, leader))
        };
        let cut_off: BTreeSet<(u16, String)> = keyspaces.iter().flat_map(of).collect();
        for (id, leader) in cut_off.difference(&self.told_cut_off) {
            let of = keyspaces.iter().find(|keyspace| keyspace.id == *id);
            let name = of.map_or("", |keyspace| &keyspace.name);
            tracing::warn!(
                keyspace = name,
                %leader,
                "this node has had no link to {leader}, which leads, for {LEADERLESS} or longer, and reaches other replicas: what is asked here \
                 takes longer, or waits in vain, until the link is back. Where a replica reaches all, have it lead, on its own machine: \
                 isochrone move-leader FILE --keyspace {name} --to NODE; `isochrone status FILE` names one"
            );
        }
        self.told_cut_off = cut_off;
    }

    /// How long syncs took on average since this was last asked, microseconds, if there were any.
    fn sync_micros(&mut self) -> Option<u64> {
        let (count, sum) = (self.journal.syncs.count(), self.journal.syncs.sum());
        let (count_before, sum_before) = std::mem::replace(&mut self.synced, (count, sum));
        let syncs = count - count_before;
        (syncs > 0).then(|| ((sum - sum_before) * 1e6 / syncs as f64).round() as u64)
    }
}

fn peer(
    link: &crate::transport::link::Link,
    member: bool,
    peers: &Peers,
    now: Instant,
    shard: &mut Shard,
) -> PeerStatus {
    let differs = peers.apart.get(&link.node).map(|apart| apart.why.as_str());
    let trouble = if link.trouble().is_empty() { differs.unwrap_or_default() } else { link.trouble() };
    let ahead = peers.ahead(link.node, shard.io().now, shard.io().stamp);
    let mut status = PeerStatus {
        name: link.name.clone(),
        address: link.address.to_string(),
        member,
        connected: link.ready(),
        round_trip_ms: peers.round_trip(link.node).map(Span::as_millis_f64),
        clock_ahead_ms: ahead.map(|ahead| ahead as f64 / 1e6),
        down_seconds: link.down.map(|since| now.since(since).as_nanos() / 1_000_000_000),
        trouble: trouble.to_owned(),
        queued_bytes: link.backlog(),
        connects: link.connects,
        failures: link.failures,
        sent: 0,
        dropped: [("full", 0), ("disconnected", 0), ("emulated", 0), ("too_large", 0), ("repeated", 0)],
    };
    if let Some(queue) = shard.io().outgoing.peer(link.node) {
        status.sent = queue.sent;
        let dropped = [
            queue.dropped_full,
            queue.dropped_closed,
            queue.dropped_emulated,
            queue.dropped_large,
            queue.dropped_repeats,
        ];
        for (entry, count) in status.dropped.iter_mut().zip(dropped) {
            entry.1 = count;
        }
    }
    status
}
