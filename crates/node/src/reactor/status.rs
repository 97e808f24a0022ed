//! What a node tells about itself: facts of its processes gathered, and published a few times a second.

use super::clients::Clients;
use super::peers::Peers;
use crate::clock::Clock;
use crate::figures::{Figures, Reading, Readings};
use crate::gateway::{Counters, KeyspaceView, NodeView, Outcome, Step};
use crate::io::HANGS;
use crate::journal::JournalMetrics;
use crate::metrics::{KeyspaceMetrics, NodeMetrics};
use crate::shard::Shard;
use crate::transport::frame::VERSION;
use isochrone_core::{Fact, Guarantee, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Role, Span};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a node stands; what `/status` shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The version of the program.
    pub version: &'static str,
    /// The version of its frames: nodes of different ones do not speak with each other.
    pub frames: u16,
    /// The cluster.
    pub cluster: String,
    /// The node.
    pub node: String,
    /// Its region.
    pub region: String,
    /// How often it has started.
    pub incarnation: u32,
    /// Seconds since this start.
    pub uptime_seconds: u64,
    /// The same in milliseconds.
    pub uptime_ms: u64,
    /// Milliseconds since it has read its journal and serves.
    pub serves_ms: u64,
    /// Orders of administrators that it carries out.
    pub orders: usize,
    /// Whether it is about to end.
    pub stopping: bool,
    /// Whether every keyspace is ready.
    pub ready: bool,
    /// Whether the node itself serves: it does not stop, and its disk does not hang.
    #[serde(skip)]
    pub able: bool,
    /// Whether a crash may lose acknowledged writes.
    pub unsafe_fsync_off: bool,
    /// Client connections.
    pub clients: usize,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// The other nodes.
    pub peers: Vec<PeerStatus>,
    /// The processes of this node.
    pub processes: Vec<ProcessStatus>,
}

/// How a keyspace stands, as this node sees it.
#[derive(Clone, Debug, Serialize)]
pub struct KeyspaceStatus {
    /// What its processes are told by.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its SELECT number.
    pub index: u32,
    /// Its protocol.
    pub protocol: &'static str,
    /// What it promises.
    pub guarantee: Guarantee,
    /// The node that leads its first partition, where one does and this node has heard of it.
    pub leader: Option<String>,
    /// The region of that node.
    pub leader_region: Option<String>,
    /// The nodes that lead its partitions, in their order.
    pub leaders: Vec<Option<String>>,
    /// Whether the protocol chooses its replicas.
    pub chosen: bool,
    /// How many replicas each of its partitions has now, as far as this node knows; of several partitions that differ, the
    /// one that is the worst off.
    pub replicas: usize,
    /// The nodes of those, of each partition, as far as this node knows.
    pub members: Vec<Vec<String>>,
    /// The nodes that serve it beside those: removed, or never brought in.
    pub spares: Vec<String>,
    /// Its replicas that this node can reach, itself included, and all of them; where the protocol chooses them, the
    /// nodes that it chooses from.
    pub reachable: (usize, usize),
    /// Whether those are a majority in each partition, and where nothing is served without a leader, whether each leader that this
    /// node knows was heard of late; where the protocol chooses replicas, whether this node has heard of late that each
    /// partition has a master that serves.
    pub ready: bool,
    /// Where the protocol chooses its replicas and no master serves: the nodes of which one must come first, for nobody else has
    /// all data, as far as this node knows; of several partitions that wait, those of the first.
    pub awaited: Vec<String>,
    /// How much this node has applied, as its metric of this name, where it has applied anything by a log.
    pub applied: Option<u64>,
    /// Moves of its keys that are not over.
    pub moving: Vec<Moving>,
    /// What clients of this node have seen in the last ten seconds or so.
    pub recent: Figures,
    /// The round trip to the nearest majority of the replicas that the file names, where those are measured.
    pub bound_ms: Option<f64>,
}

/// A move of keys that is not over, as far as this node knows.
#[derive(Clone, Eq, PartialEq, Debug, Serialize)]
pub struct Moving {
    /// The partition that they leave.
    pub from: u16,
    /// For how long this node has known of it.
    pub seconds: u64,
    /// Whether this node carries it on.
    pub driven: bool,
}

/// How a peer stands.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// Whether a keyspace has a replica there now, as far as this node knows.
    pub member: bool,
    /// Whether there is a link.
    pub connected: bool,
    /// The shortest round trip of the last ten seconds, what is emulated included.
    pub round_trip_ms: Option<f64>,
    /// By how much its wall clock is ahead of this node's, as if both ways took as long.
    pub clock_ahead_ms: Option<f64>,
    /// Where there is no link, for how many seconds the peer was not heard of, or was tried in vain.
    pub down_seconds: Option<u64>,
    /// Why there is no link; where there is one, in what its deployment file differs, so that nothing of that keyspace is taken
    /// from it.
    pub trouble: String,
    /// Bytes that wait for it.
    pub queued_bytes: usize,
    /// How often a link was made, and how often it failed.
    pub connects: u64,
    /// See `connects`.
    pub failures: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages dropped, by reason.
    pub dropped: [(&'static str, u64); 5],
}

/// How a process stands.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessStatus {
    /// Its name: node, keyspace, partition, role, instance.
    pub process: String,
    /// Its keyspace.
    pub keyspace: u16,
    /// In which reign it leads, if it does.
    pub leads: Option<u64>,
    /// The furthest position it knows to be decided.
    pub decided: Option<u64>,
    /// The position its state stands behind.
    pub applied: Option<u64>,
    /// How often the vote of each node was the last that a quorum waited for, where this process counts votes.
    pub last_voters: BTreeMap<String, u64>,
    /// What its marks counted.
    pub counted: BTreeMap<&'static str, u64>,
    /// How much there is of what its marks tell, and in which partition.
    #[serde(serialize_with = "by_name")]
    pub stands: BTreeMap<(&'static str, u16), u64>,
}

/// As `name` in the only partition, `name/3` in another one.
fn by_name<S: Serializer>(stands: &BTreeMap<(&'static str, u16), u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(stands.iter().map(|((what, partition), value)| match partition {
        0 => ((*what).to_owned(), value),
        _ => (format!("{what}/{partition}"), value),
    }))
}

/// Where a node's loop puts what others may read: HTTP, and the program that started the node.
pub struct Board {
    /// Counters, always up to date.
    pub metrics: NodeMetricsCell,
    /// How many pages of metrics were longer than they may be.
    pub(crate) cut: AtomicU64,
    posted: Mutex<Posted>,
}

/// What was told last, and when.
struct Posted {
    status: Arc<Status>,
    counters: Arc<Counters>,
    at: std::time::Instant,
}

/// A node that has told nothing for so long is not ready, whatever it told: its loop waits for a disk that hangs, or gets no
/// processor.
const STALE: std::time::Duration = std::time::Duration::from_nanos(HANGS.as_nanos());

/// The metrics of a node, shared.
pub type NodeMetricsCell = Arc<NodeMetrics>;

impl Board {
    /// An empty board over these metrics.
    pub fn new(metrics: Arc<NodeMetrics>) -> Board {
        let posted =
            Posted { status: Arc::default(), counters: Arc::default(), at: std::time::Instant::now() };
        Board { metrics, cut: AtomicU64::new(0), posted: Mutex::new(posted) }
    }

    /// How the node stood a moment ago; not ready where that was long ago.
    pub fn status(&self) -> Arc<Status> {
        let posted = self.posted();
        if posted.status.able && posted.at.elapsed() >= STALE {
            return Arc::new(Status { ready: false, able: false, ..Status::clone(&posted.status) });
        }
        Arc::clone(&posted.status)
    }

    /// What its gateways had counted then.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.posted().counters)
    }

    pub(crate) fn post(&self, status: Status, counters: Counters, at: std::time::Instant) {
        *self.posted() = Posted { status: Arc::new(status), counters: Arc::new(counters), at };
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    /// The nodes that held it first.
    pub nodes: Vec<NodeId>,
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
            let replicas = self.members(served, partition).unwrap_or(&served.nodes);
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
            keyspaces,
            peers: told,
            processes: self.processes.values().cloned().collect(),
        };
        self.board.post(status, clients.counters.clone(), std::time::Instant::now());
        (node, views)
    }

    /// Remembers since when moves have been known that are not over.
    fn see_moves(&mut self, now: Instant) {
        let mut moving = BTreeSet::new();
        for (process, status) in &self.processes {
            let stands = status.stands.iter().filter(|((what, _), value)| *what == UNENDED && **value > 0);
            moving.extend(stands.map(|((_, from), _)| (process.keyspace, PartitionId(*from))));
        }
        self.moving.retain(|group, _| moving.contains(group));
        for group in moving {
            self.moving.entry(group).or_insert(now);
        }
    }

    /// The moves of a keyspace that are not over.
    fn moves(&self, keyspace: KeyspaceId, now: Instant) -> Vec<Moving> {
        let ends = (keyspace, PartitionId(0))..=(keyspace, PartitionId(u16::MAX));
        let told = |(&(_, from), since): (&(KeyspaceId, PartitionId), &Instant)| {
            let drives =
                |status: &ProcessStatus| status.stands.get(&(DRIVEN, from.0)).is_some_and(|moves| *moves > 0);
            Moving {
                from: from.0,
                seconds: now.since(*since).as_nanos() / 1_000_000_000,
                driven: self.of(keyspace, 0..=u16::MAX).any(drives),
            }
        };
        self.moving.range(ends).map(told).collect()
    }

    /// How long syncs took on average since this was last asked, microseconds, if there were any.
    fn sync_micros(&mut self) -> Option<u64> {
        let (count, sum) = (self.journal.syncs.count(), self.journal.syncs.sum());
        let (count_before, sum_before) = std::mem::replace(&mut self.synced, (count, sum));
        let syncs = count - count_before;
        (syncs > 0).then(|| ((sum - sum_before) * 1e6 / syncs as f64).round() as u64)
    }

    fn keyspace(
        &self,
        served: &Served,
        view: &mut KeyspaceView,
        peers: &Peers,
        now: Instant,
    ) -> KeyspaceStatus {
        let partitions = || (0..served.partitions).map(PartitionId);
        let leaders: Vec<Option<NodeId>> =
            partitions().map(|partition| self.leader(served, partition, peers)).collect();
        let leader = leaders.first().copied().flatten();
        let name = |node: NodeId| self.names.get(usize::from(node.0)).cloned().unwrap_or_default();
        view.leader = leader.map(|leader| name(leader).1);
        view.leaders = leaders.iter().map(|leader| leader.map(|leader| name(leader).1)).collect();
        view.leads = leaders.contains(&Some(self.me));
        view.keys = self.keys(served.id);
        view.expired = self.stands(served.id, "keys_expired").sum();
        let reaches = |node: &NodeId| self.reaches(*node, served.id, peers);
        let among = |nodes: &[NodeId]| nodes.iter().filter(|node| reaches(node)).count();
        let grown = among(&served.nodes) + among(&served.spares);
        let all = served.nodes.len() + served.spares.len();
        let quorums = partitions().map(|partition| match self.members(served, partition) {
            Some(members) => {
                let (reachable, all) = (among(members), members.len());
                (reachable > all / 2, reachable, all)
            }
            // Where the keyspace has grown, a majority of all may do without those that began.
            None => {
                let (reachable, begun) = (among(&served.nodes), served.nodes.len());
                (reachable > begun / 2 || grown > all / 2, reachable, begun)
            }
        });
        let members: Vec<&[NodeId]> =
            partitions().map(|partition| self.members(served, partition).unwrap_or(&served.nodes)).collect();
        let beside = served.spares.iter().filter(|node| !served.nodes.contains(node));
        let spares = served
            .nodes
            .iter()
            .chain(beside)
            .filter(|node| !members.iter().any(|members| members.contains(node)))
            .map(|node| name(*node).0)
            .collect();
        let applied = self.of(served.id, 0..=u16::MAX).any(|status| status.applied.is_some());
        // There is no keyspace without a partition.
        let (ready, reachable, replicas) = quorums.min().unwrap_or_default();
        view.replicas = replicas as u32;
        let mut status = KeyspaceStatus {
            id: served.id.0,
            name: view.name.clone(),
            index: view.index,
            protocol: view.protocol,
            guarantee: view.guarantee,
            leader: leader.map(|leader| name(leader).0),
            leader_region: view.leader.clone(),
            leaders: leaders.iter().map(|leader| leader.map(|leader| name(leader).0)).collect(),
            chosen: served.masterless.is_some(),
            members: members.iter().map(|nodes| nodes.iter().map(|node| name(*node).0).collect()).collect(),
            spares,
            replicas,
            reachable: (reachable, replicas),
            ready,
            awaited: Vec::new(),
            applied: applied.then(|| served.metrics.applied.load(Relaxed)),
            moving: self.moves(served.id, now),
            recent: Figures::default(),
            bound_ms: self.bound_ms(served, peers),
        };
        if let Some(most) = served.masterless {
            // A deployment has at most 7 replicas.
            status.replicas = self.replicas(served.id).map_or(served.nodes.len(), |now| now as usize);
            view.replicas = status.replicas as u32;
            status.reachable = (grown, all);
            let serves = |partition: &PartitionId| {
                self.last_served(served, *partition, peers).is_some_and(|last| now.since(last) < most)
            };
            status.ready = partitions().all(|partition| serves(&partition));
            // Where most of those are away that agree on it, the list may have changed since this node heard of it.
            if grown > all / 2 {
                let waiting = partitions().filter(|partition| !serves(partition));
                let mut awaited = waiting.map(|partition| self.awaited(served, partition, peers));
                let first = awaited.find(|nodes| !nodes.is_empty()).unwrap_or_default();
                status.awaited = first.iter().map(|node| name(*node).0).collect();
            }
        } else if served.led {
            status.ready &= !partitions().any(|partition| self.misses_leader(served, partition, peers, now));
        }
        status
    }

    /// Whether another node led a partition when this one last heard of a leader or led itself, and that is long ago: it is away,
    /// or at least nothing comes from it. Where none was ever heard of, nothing is missed.
    fn misses_leader(&self, served: &Served, partition: PartitionId, peers: &Peers, now: Instant) -> bool {
        self.leader(served, partition, peers).is_some_and(|node| node != self.me)
            && self.last_served(served, partition, peers).is_some_and(|last| now.since(last) >= LEADERLESS)
    }

    /// The nodes of which one must come before a partition can have a master again, where the protocol chooses its replicas and as
    /// far as this node knows: the copies, since a master that was started again does not go on by itself; or the master, where it
    /// has no copies. None where one of them is reached, or somebody who leads.
    fn awaited(&self, served: &Served, partition: PartitionId, peers: &Peers) -> &[NodeId] {
        let Some(Members { nodes, .. }) = self.members.get(&(served.id, partition)) else { return &[] };
        // The master is told first.
        let able = match &**nodes {
            [_, copies @ ..] if !copies.is_empty() => copies,
            alone => alone,
        };
        let reaches = |node| self.reaches(node, served.id, peers);
        let leads = self.leader(served, partition, peers).is_some_and(reaches);
        let comes = able.iter().any(|node| reaches(*node));
        if leads || comes { &[] } else { able }
    }

    /// The round trip to the nearest majority of the replicas, milliseconds.
    fn bound_ms(&self, served: &Served, peers: &Peers) -> Option<f64> {
        served.metrics.bound(|name| {
            let node = self.names.iter().position(|(node, _)| node == name).map(|at| NodeId(at as u16))?;
            if node == self.me { Some(0.0) } else { peers.round_trip(node).map(Span::as_millis_f64) }
        })
    }

    /// The nodes of the replicas of a partition, where this node's own knows more than the deployment file: it is one of
    /// them, or has learnt of a change.
    fn members(&self, served: &Served, partition: PartitionId) -> Option<&[NodeId]> {
        let Members { version, nodes } = self.members.get(&(served.id, partition))?;
        (*version > 0 || nodes.contains(&self.me) || **nodes != *served.nodes).then_some(nodes)
    }

    /// When this node last heard that a partition has a leader, or a master that serves, or had it itself.
    fn last_served(&self, served: &Served, partition: PartitionId, peers: &Peers) -> Option<Instant> {
        let group = (served.id, partition);
        self.served.get(&group).max(peers.claimed.get(&group)).copied()
    }

    /// The node that leads a partition, as far as this one has heard.
    fn leader(&self, served: &Served, partition: PartitionId, peers: &Peers) -> Option<NodeId> {
        let claims = self.of(served.id, partition.0..=partition.0).filter_map(|status| status.leads);
        match (claims.max(), peers.leaders.get(&(served.id, partition)).copied()) {
            (Some(reign), Some((other, node))) if other > reign => Some(node),
            (Some(_), _) => Some(self.me),
            (None, heard) => heard.map(|(_, node)| node).filter(|node| *node != self.me),
        }
    }

    /// Whether this node reaches that one, or is it, and their files agree on a keyspace.
    fn reaches(&self, node: NodeId, keyspace: KeyspaceId, peers: &Peers) -> bool {
        let linked = || peers.links.get(&node).is_some_and(crate::transport::link::Link::ready);
        node == self.me || linked() && !peers.is_apart(node, keyspace)
    }
}

impl ProcessStatus {
    /// Whether it is a master that serves nobody, because copies that it waits for are silent.
    fn is_silenced(&self) -> bool {
        self.stands.iter().any(|((what, _), value)| *what == SILENT && *value > 0)
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
    let mut status = PeerStatus {
        name: link.name.clone(),
        address: link.address.to_string(),
        member,
        connected: link.ready(),
        round_trip_ms: peers.round_trip(link.node).map(Span::as_millis_f64),
        clock_ahead_ms: peers.ahead(link.node, now, shard.io().stamp).map(|ahead| ahead as f64 / 1e6),
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

/// Processor time of this process, in user and in kernel mode; zero where the system does not tell.
fn processor_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything; there the two are the 12th and 13th. A tick is 10 ms on all platforms that
    // have this file and that we build for.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut seconds = || fields.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    (seconds(), seconds())
}

/// The most memory that this process had resident, bytes; 0 where the system does not tell.
fn peak_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Resident memory of this process, bytes; 0 where the system does not tell.
pub(crate) fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    /// Linux counts in pages; all platforms that have this file and that we build for use these.
    const PAGE: u64 = 4096;
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Durability;
    use crate::limits::Limits;

    const KEYSPACE: KeyspaceId = KeyspaceId(1);
    const PATIENCE: Span = Span::from_secs(5);

    fn process(role: u8) -> ProcessId {
        ProcessId { node: NodeId(0), role: Role(role), keyspace: KEYSPACE, ..ProcessId::from_u64(0) }
    }

    fn peers() -> Peers {
        let data = tempfile::tempdir().unwrap();
        crate::reactor::peers::tests::peers(data.path(), None, Limits::default())
    }

    /// Of a node that stands alone, of five; or of a protocol that counts majorities.
    fn reporter(masterless: Option<Span>) -> Reporter {
        let served = Served {
            id: KEYSPACE,
            protocol: "some",
            led: true,
            metrics: Arc::default(),
            nodes: (0..5).map(NodeId).collect(),
            spares: vec![NodeId(5)],
            partitions: 2,
            servers: vec![process(0)],
            masterless,
        };
        let names = (0..6).map(|node| (format!("n{node}"), "R".to_owned())).collect();
        let board = Arc::new(Board::new(Arc::default()));
        Reporter::new(board, Clock::start(), NodeId(0), 1, Arc::default(), names, vec![served])
    }

    fn view() -> KeyspaceView {
        KeyspaceView {
            id: KEYSPACE,
            name: "main".to_owned(),
            index: 0,
            protocol: "some",
            transactional: false,
            guarantee: Guarantee::Linearizable,
            replicas: 5,
            durability: Durability::AllSoon,
            copies: 0,
            keys: None,
            expired: 0,
            leader: None,
            leaders: Vec::new(),
            leads: false,
        }
    }

    fn stands(reporter: &Reporter, peers: &Peers, now: Instant) -> (bool, usize, (usize, usize)) {
        let mut view = view();
        let status = reporter.keyspace(&reporter.keyspaces[0], &mut view, peers, now);
        assert_eq!(view.replicas as usize, status.replicas);
        (status.ready, status.replicas, status.reachable)
    }

    #[test]
    fn where_the_protocol_chooses_replicas_a_master_of_each_partition_must_have_been_heard_of() {
        let (mut reporter, mut peers) = (reporter(Some(PATIENCE)), peers());
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        assert_eq!(stands(&reporter, &peers, at(1)), (false, 5, (1, 6)), "as many as in the file");
        for partition in [0, 1] {
            assert!(!stands(&reporter, &peers, at(1)).0);
            let group = (KEYSPACE, PartitionId(partition));
            peers.leaders.insert(group, (3, NodeId(2)));
            peers.claimed.insert(group, at(1));
        }
        assert!(stands(&reporter, &peers, at(1)).0);
        reporter.note(process(1), &Fact::stands(COPIES, 2));
        assert_eq!(stands(&reporter, &peers, at(5)), (true, 3, (1, 6)), "by its client");
        reporter.note(process(0), &Fact::stands(REPLICAS, 4));
        assert_eq!(
            stands(&reporter, &peers, at(6)),
            (false, 4, (1, 6)),
            "by its server; and it is too long ago"
        );
        // Of the first partition this node has the master itself.
        peers.claimed.insert((KEYSPACE, PartitionId(1)), at(6));
        reporter.served.insert((KEYSPACE, PartitionId(0)), at(6));
        assert!(stands(&reporter, &peers, at(7)).0);
    }

    #[test]
    fn where_no_copy_of_the_last_list_is_reached_it_is_told_who_must_come() {
        let (mut reporter, peers) = (reporter(Some(PATIENCE)), peers());
        let served = &mut reporter.keyspaces[0];
        // This node is most of those that may have a replica.
        (served.nodes, served.spares, served.partitions) = (vec![NodeId(0)], Vec::new(), 1);
        let awaited = |reporter: &Reporter| {
            let status = reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO);
            assert!(!status.ready);
            status.awaited.join(" ")
        };
        assert_eq!(awaited(&reporter), "", "the list is not known");
        let mut list = |nodes: &[u16]| {
            let nodes = nodes.iter().copied().map(NodeId).collect();
            reporter.note(process(0), &Fact::Members { partition: PartitionId(0), version: 0, nodes });
            awaited(&reporter)
        };
        assert_eq!(list(&[1]), "n1", "a master without copies");
        assert_eq!(list(&[0]), "");
        assert_eq!(list(&[1, 2, 0]), "", "this node is a copy");
        assert_eq!(list(&[0, 1, 2]), "n1 n2");
        reporter.keyspaces[0].nodes = vec![NodeId(0), NodeId(1)];
        assert_eq!(awaited(&reporter), "", "others may have agreed on another list");
        reporter.keyspaces[0].nodes = vec![NodeId(0)];
        reporter.note(process(0), &Fact::Leads { reign: 3 });
        assert_eq!(awaited(&reporter), "", "it goes on with other copies");
    }

    #[test]
    fn a_master_whose_copies_are_silent_is_none_that_serves() {
        let mut reporter = reporter(Some(PATIENCE));
        assert!(reporter.note(process(0), &Fact::Leads { reign: 3 }));
        assert_eq!(reporter.claims(), [(KEYSPACE, PartitionId(0), 3)]);
        assert!(!reporter.note(process(0), &Fact::stands(SILENT, 0)));
        assert!(reporter.note(process(0), &Fact::stands(SILENT, 1)));
        assert!(!reporter.note(process(0), &Fact::stands(SILENT, 2)), "known");
        assert_eq!((reporter.claims(), reporter.led()), (vec![], vec![KEYSPACE]));
        assert!(reporter.note(process(0), &Fact::stands(SILENT, 0)));
        assert!(!reporter.claims().is_empty());
    }

    #[test]
    fn who_leads_and_what_stands_is_told_by_the_processes_of_that_group_alone() {
        let (mut reporter, peers) = (reporter(None), peers());
        let in_group = |keyspace, partition, of_all| ProcessId {
            keyspace: KeyspaceId(keyspace),
            partition: PartitionId(partition),
            role: Role(of_all),
            instance: of_all,
            ..process(0)
        };
        let partitions = [0, 1, u16::MAX];
        let ends = || partitions.into_iter().flat_map(|partition| [(partition, 0), (partition, u8::MAX)]);
        for keyspace in 0..3_u16 {
            for (partition, of_all) in ends() {
                let value = u64::from(partition) + 100_000 * u64::from(keyspace);
                let process = in_group(keyspace, partition, of_all);
                reporter.note(process, &Fact::stands(COPIES, value));
            }
        }
        for keyspace in 0..3_u16 {
            let lowest = 100_000 * u64::from(keyspace);
            let told: Vec<u64> = reporter.stands(KeyspaceId(keyspace), COPIES).collect();
            let all = [0, 0, 1, 1, 65_535, 65_535];
            assert_eq!(told, all.map(|value| lowest + value));
            for (partition, of_all) in ends() {
                let process = in_group(keyspace, partition, of_all);
                reporter.note(process, &Fact::Leads { reign: 1 });
                let served = &reporter.keyspaces[0];
                let led = partitions.map(|at| reporter.leader(served, PartitionId(at), &peers).is_some());
                assert_eq!(led, partitions.map(|at| (keyspace, partition) == (KEYSPACE.0, at)), "{process}");
                reporter.note(process, &Fact::Follows);
            }
        }
    }

    #[test]
    fn elsewhere_a_majority_is_enough_and_needed() {
        let (mut reporter, mut peers) = (reporter(None), peers());
        let group = (KEYSPACE, PartitionId(0));
        peers.leaders.insert(group, (3, NodeId(2)));
        peers.claimed.insert(group, Instant::ZERO);
        let at = Instant::ZERO;
        assert_eq!(stands(&reporter, &peers, at), (false, 5, (1, 5)));
        // Of the members of now, in each partition.
        let members = |partition, nodes: &[u16]| {
            let process = ProcessId { partition: PartitionId(partition), ..process(0) };
            let nodes = nodes.iter().copied().map(NodeId).collect();
            (process, Fact::Members { partition: process.partition, version: 0, nodes })
        };
        let mut note = |(process, fact)| {
            reporter.note(process, &fact);
            stands(&reporter, &peers, at)
        };
        assert_eq!(note(members(0, &[0])), (false, 5, (1, 5)), "the other partition has all of them still");
        assert_eq!(note(members(1, &[0, 5, 4])), (false, 3, (1, 3)));
        assert_eq!(note(members(1, &[0])), (true, 1, (1, 1)));
        assert_eq!(note(members(1, &[5])), (false, 1, (0, 1)), "removed here, it counts the others");
    }

    #[test]
    fn a_leader_that_is_silent_for_longer_than_a_failover_takes_is_missed() {
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        let group = (KEYSPACE, PartitionId(1));
        for led in [true, false] {
            let (mut reporter, mut peers) = (reporter(None), peers());
            let served = &mut reporter.keyspaces[0];
            // This node is a majority alone, whoever else is away.
            (served.nodes, served.spares, served.led) = (vec![NodeId(0)], Vec::new(), led);
            let ready = |reporter: &Reporter, peers: &Peers, now| stands(reporter, peers, at(now)).0;
            assert!(ready(&reporter, &peers, 60), "nobody was heard to lead");
            let mut claims = |reporter: &Reporter, reign, node, second| {
                peers.leaders.insert(group, (reign, NodeId(node)));
                peers.claimed.insert(group, at(second));
                assert!(ready(reporter, &peers, second + 9), "another may be found");
                assert_eq!(ready(reporter, &peers, second + 10), !led);
            };
            claims(&reporter, 3, 1, 100);
            claims(&reporter, 3, 1, 200);
            claims(&reporter, 4, 2, 300);
            // What this node leads itself, it need not hear.
            let own = ProcessId { partition: PartitionId(1), ..process(0) };
            reporter.note(own, &Fact::Leads { reign: 5 });
            assert!(ready(&reporter, &peers, 400));
        }
    }

    #[test]
    fn a_spare_that_was_not_added_knows_what_the_file_says() {
        let (mut reporter, peers) = (reporter(None), peers());
        let served = &mut reporter.keyspaces[0];
        (served.nodes, served.spares, served.partitions) = (vec![NodeId(1)], vec![NodeId(0)], 1);
        let members = |nodes: &[u16]| Fact::Members {
            partition: PartitionId(0),
            version: 0,
            nodes: nodes.iter().copied().map(NodeId).collect(),
        };
        reporter.note(process(0), &members(&[1]));
        let at = Instant::ZERO;
        assert_eq!(stands(&reporter, &peers, at), (false, 1, (0, 1)), "of both a majority is both");
        reporter.note(process(0), &members(&[1, 0]));
        assert_eq!(stands(&reporter, &peers, at), (false, 2, (1, 2)));
        reporter.note(process(0), &members(&[0]));
        assert_eq!(stands(&reporter, &peers, at), (true, 1, (1, 1)));
    }

    /// Where the protocol chooses replicas: a founder has gone, and the spare has come.
    #[test]
    fn who_has_a_replica_now_is_told_and_who_serves_beside_them() {
        let (mut reporter, peers) = (reporter(Some(PATIENCE)), peers());
        let told = |reporter: &Reporter| {
            let status = reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO);
            (status.members.iter().map(|names| names.join(" ")).collect::<Vec<_>>(), status.spares.join(" "))
        };
        assert_eq!(told(&reporter), (vec!["n0 n1 n2 n3 n4".to_owned(); 2], "n5".to_owned()));
        for (partition, nodes) in [(0, vec![2, 5, 3]), (1, vec![5, 3])] {
            let nodes = nodes.into_iter().map(NodeId).collect();
            let fact = Fact::Members { partition: PartitionId(partition), version: 0, nodes };
            reporter.note(process(0), &fact);
        }
        assert_eq!(told(&reporter), (vec!["n2 n5 n3".to_owned(), "n5 n3".to_owned()], "n0 n1 n4".to_owned()));
    }

    #[test]
    fn who_applies_nothing_by_a_log_tells_of_no_place_in_it() {
        let (mut reporter, peers) = (reporter(None), peers());
        let applied = |reporter: &Reporter| {
            reporter.keyspace(&reporter.keyspaces[0], &mut view(), &peers, Instant::ZERO).applied
        };
        reporter.note(process(0), &Fact::stands("keys", 7));
        assert_eq!(applied(&reporter), None);
        for (position, expected) in [(0, 0), (3, 3)] {
            reporter.note(process(0), &Fact::Applied { position, digest: None });
            assert_eq!(applied(&reporter), Some(expected));
        }
    }

    #[test]
    fn of_a_move_that_is_not_over_it_is_told_since_when_and_whether_it_is_carried_on_here() {
        let mut reporter = reporter(None);
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        let mut told = |seconds, what, from, value| {
            let partition = PartitionId(from);
            reporter.note(process(1), &Fact::Stands { what, partition, value });
            reporter.see_moves(at(seconds));
            let told = reporter.moves(KEYSPACE, at(seconds));
            assert!(reporter.moves(KeyspaceId(2), at(seconds)).is_empty());
            told.into_iter().map(|moving| (moving.from, moving.seconds, moving.driven)).collect::<Vec<_>>()
        };
        assert!(told(1, UNENDED, 1, 0).is_empty());
        assert_eq!(told(2, UNENDED, 1, 1), [(1, 0, false)]);
        assert_eq!(told(5, DRIVEN, 1, 1), [(1, 3, true)]);
        assert_eq!(told(6, UNENDED, 0, 2), [(0, 0, false), (1, 4, true)]);
        assert_eq!(told(9, DRIVEN, 1, 0), [(0, 3, false), (1, 7, false)]);
        assert_eq!(told(9, UNENDED, 1, 0), [(0, 3, false)]);
        assert!(told(9, UNENDED, 0, 0).is_empty());
        assert_eq!(told(10, UNENDED, 1, 1), [(1, 0, false)], "another");
    }

    #[test]
    fn the_time_of_syncs_is_that_of_the_last_ones() {
        let mut reporter = reporter(None);
        assert_eq!(reporter.sync_micros(), None);
        for (syncs, mean) in [(vec![100, 300], Some(200)), (vec![5_000], Some(5_000)), (vec![], None)] {
            for micros in syncs {
                reporter.journal.syncs.record(std::time::Duration::from_micros(micros));
            }
            assert_eq!(reporter.sync_micros(), mean);
        }
    }

    #[test]
    fn a_node_that_tells_nothing_is_not_ready() {
        let board = Board::new(Arc::default());
        let now = std::time::Instant::now();
        for (at, ready) in [(now, true), (now.checked_sub(STALE).unwrap(), false), (now, true)] {
            board.post(Status { ready: true, able: true, ..Status::default() }, Counters::default(), at);
            assert_eq!((board.status().ready, board.status().able), (ready, ready));
        }
    }
}
