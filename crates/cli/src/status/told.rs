//! What a node tells of itself at `/status`, as far as it is shown.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A node. Another version may tell less.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    pub(crate) version: String,
    /// The version of its frames.
    pub(crate) frames: Option<u16>,
    pub(crate) cluster: String,
    pub(crate) node: String,
    pub(crate) region: String,
    pub(crate) uptime_seconds: u64,
    pub(crate) uptime_ms: Option<u64>,
    /// For how long it has served: it was up before, and read its journal.
    pub(crate) serves_ms: Option<u64>,
    /// Orders of administrators that it carries out.
    pub(crate) orders: u64,
    pub(crate) stopping: bool,
    pub(crate) ready: bool,
    pub(crate) unsafe_fsync_off: bool,
    pub(crate) clients: u64,
    pub(crate) memory: Memory,
    pub(crate) keyspaces: Vec<Keyspace>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) processes: Vec<Process>,
}

impl Told {
    /// How it stands.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Told { stopping: true, .. } => "stopping",
            Told { ready: true, .. } => "ready",
            _ => "not ready",
        }
    }
}

/// What a node uses of the memory that it may.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    pub(crate) used_bytes: u64,
    pub(crate) limit_bytes: u64,
    /// Whether it uses more.
    pub(crate) full: bool,
}

/// A keyspace, as the node sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Keyspace {
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) protocol: String,
    pub(crate) guarantee: String,
    /// Of each partition, where somebody leads and the node has heard of it.
    pub(crate) leaders: Vec<Option<String>>,
    /// Whether the protocol chooses who has a replica.
    pub(crate) chosen: bool,
    /// Of each partition.
    pub(crate) members: Vec<Vec<String>>,
    /// Nodes that serve it beside those.
    pub(crate) spares: Vec<String>,
    pub(crate) reachable: (usize, usize),
    /// Nodes of which one must come before it is served.
    pub(crate) awaited: Vec<String>,
    pub(crate) ready: bool,
    pub(crate) applied: Option<u64>,
    pub(crate) moving: Vec<Moving>,
    pub(crate) recent: Recent,
    pub(crate) bound_ms: Option<f64>,
}

/// A move of keys that is not over, as far as the node knows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Moving {
    pub(crate) from: u16,
    /// For how long the node has known of it.
    pub(crate) seconds: u64,
    /// Whether the node carries it on.
    pub(crate) driven: bool,
}

/// What the node's clients have seen in the last seconds.
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Recent {
    pub(crate) operations_per_second: f64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) write_p50_ms: Option<f64>,
}

/// Another node, as the node sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Peer {
    pub(crate) name: String,
    pub(crate) connected: bool,
    pub(crate) round_trip_ms: Option<f64>,
    pub(crate) clock_ahead_ms: Option<f64>,
    /// For how long it is not reached.
    pub(crate) down_seconds: Option<u64>,
    pub(crate) trouble: String,
    pub(crate) queued_bytes: u64,
}

/// A process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Process {
    /// Its name, with its partition in it.
    pub(crate) process: String,
    pub(crate) keyspace: u16,
    pub(crate) leads: Option<u64>,
    pub(crate) applied: Option<u64>,
    /// How much there is of what it tells.
    pub(crate) stands: BTreeMap<String, u64>,
    pub(crate) last_voters: BTreeMap<String, u64>,
}
