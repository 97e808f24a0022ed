//! What the directory holds, is asked and answers.

use isochrone_core::{KeyspaceId, NodeId, PartitionId, RegionId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How often an entry was changed; 0 where there is none.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Version(pub u64);

impl Version {
    /// The version that one more change makes.
    #[must_use]
    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

/// A machine of the deployment.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub region: RegionId,
    /// Where peers reach it, `host:port`; empty where all run in one process.
    pub address: String,
}

/// Data under one protocol. It never changes and is never removed; its partitions may change.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Keyspace {
    /// Its name; no other keyspace has it.
    pub name: String,
    /// The name of the protocol that replicates each of its partitions.
    pub protocol: String,
}

/// A part of a keyspace.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// The first place of its arc; it ends before the next partition's first, the last one at the end of
    /// the ring.
    pub first: u64,
    /// The nodes that hold it, each once.
    pub members: Vec<NodeId>,
}

/// A partition as it stands: what a client keeps. Its version determines all the rest, so of two routes to
/// one partition the one with the greater version is the newer.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The partition.
    pub partition: PartitionId,
    /// How often it was changed.
    pub version: Version,
    /// The first place of its arc.
    pub first: u64,
    /// The last place of its arc.
    pub last: u64,
    /// The nodes that hold it.
    pub members: Vec<NodeId>,
}

/// A partition that a node is to serve: its steward starts the protocol's processes for it, and stops
/// those of partitions that it has no order for (contract point 11).
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The name of the protocol.
    pub protocol: String,
    /// The partition, the arc of it, and all who serve it.
    pub route: Route,
}

/// What the directory is asked.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Who holds this place of the ring?
    Route {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The hash of the key.
        place: u64,
    },
    /// Who holds this partition?
    Members {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The partition.
        partition: PartitionId,
    },
    /// What is this keyspace, and which partitions has it?
    Keyspace(KeyspaceId),
    /// Which nodes are there?
    Nodes,
    /// What is this node to serve?
    Orders(NodeId),
    /// Makes a keyspace.
    Create {
        /// Its number, not in use yet; 0 is the directory itself.
        keyspace: KeyspaceId,
        /// What it is.
        to: Keyspace,
        /// Its partitions, numbered from 0.
        partitions: Vec<Partition>,
    },
    /// Sets or removes a partition.
    Change {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// The partition.
        partition: PartitionId,
        /// The version that this was made from.
        at: Version,
        /// What it is to be; `None` removes it, and its arc falls to the partition before.
        to: Option<Partition>,
    },
    /// Sets or removes a node.
    ChangeNode {
        /// The node.
        node: NodeId,
        /// The version that this was made from.
        at: Version,
        /// What it is to be.
        to: Option<Node>,
    },
}

/// What it answers.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The partition as it stands.
    Route(Route),
    /// The keyspace, and its partitions in the order of their arcs.
    Keyspace(KeyspaceId, Keyspace, Vec<Route>),
    /// All nodes.
    Nodes(Vec<(NodeId, Version, Node)>),
    /// What the node is to serve.
    Orders(Vec<Order>),
    /// The change is made; this is the entry's version now.
    Changed(Version),
    /// Nothing was changed, and why.
    Refused(Refusal),
}

/// Why a question or a change was refused.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// No such keyspace or partition.
    #[error("there is no such keyspace or partition")]
    Unknown,
    /// The number or the name of the keyspace is in use.
    #[error("there is a keyspace of this number or name already: choose another")]
    Exists,
    /// Somebody else has changed the entry since.
    #[error("the entry is at version {} by now: read it again", .0.0)]
    Outdated(Version),
    /// The change would leave places of the ring without a partition, two partitions with one first place,
    /// a partition without members or with unknown ones, or a node away that holds partitions.
    #[error("the change would leave keys without a home: {0}")]
    Homeless(String),
}
