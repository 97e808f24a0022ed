//! What is told of a node, as `/status` shows it.

use super::SILENT;
use crate::figures::Figures;
use isochrone_core::Guarantee;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

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
    /// Its memory.
    pub memory: MemoryStatus,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// The other nodes.
    pub peers: Vec<PeerStatus>,
    /// The processes of this node.
    pub processes: Vec<ProcessStatus>,
}

/// What a node uses of the memory that it may.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MemoryStatus {
    /// Bytes that its process has asked for and not given back; 0 where that is not known.
    pub used_bytes: u64,
    /// Bytes that it may use; 0 for any number.
    pub limit_bytes: u64,
    /// Whether it uses more.
    pub full: bool,
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
    /// The nodes that lead it, as far as this node has heard, to which this node has had no link for longer than another leader takes
    /// to be found, although it reaches other replicas: what is asked here takes longer, or waits in vain.
    pub cut_off: Vec<String>,
    /// The nodes that use more memory than they may, for which commands that may make data grow are refused here.
    pub full: Vec<String>,
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
    /// By how much its wall clock is ahead of this node's, as if both ways took as long; where that may be wrong by more than half
    /// a second, as far as it is certain.
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
    /// Its partition of that.
    pub partition: u16,
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

impl ProcessStatus {
    /// Whether it is a master that serves nobody, because copies that it waits for are silent.
    pub(super) fn is_silenced(&self) -> bool {
        self.stands.iter().any(|((what, _), value)| *what == SILENT && *value > 0)
    }
}
