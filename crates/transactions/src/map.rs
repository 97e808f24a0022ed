//! Which partition holds a key, and who serves a partition.

use crate::directory::located;
use isochrone_core::migration::Ring;
use isochrone_core::{Blob, KeyspaceId, NodeId, PartitionId, ProcessId, Span};
use isochrone_replication::order::Member;
use std::sync::Arc;

/// How keys are divided among partitions.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum Split {
    /// By hash: each partition holds an equal stretch of the ring of hashes. Keys with one `{tag}` are together.
    Hash,
    /// By order: partition `i` holds the keys below bound `i` and not below the one before; the last all others.
    /// Ascending, one fewer than there are partitions.
    Ranges(Arc<[Blob]>),
    /// By name: a key's first two bytes are the number of its partition. So are the keys that a
    /// [`directory`](crate::directory) gives, whatever the keyspace's own division is.
    Named,
}

/// A partition's replicas.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Group {
    /// The first replicas by seat, which is the position.
    pub members: Arc<[Member]>,
    /// Those that wait to be added.
    pub spares: Arc<[ProcessId]>,
}

impl Group {
    /// The replica that leads first, where one does.
    pub fn leader(&self) -> ProcessId {
        // A placement names at least one replica a partition.
        self.members[0].process
    }

    /// All who are replicas of it, or may ever be.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.members.iter().map(|member| member.process).chain(self.spares.iter().copied())
    }
}

/// Where the data of a keyspace is: what clients and servers know of each other.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Map {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// How keys are divided.
    pub split: Split,
    /// The partitions, by number.
    pub groups: Arc<[Group]>,
}

impl Map {
    /// The partition that holds a key.
    pub fn partition(&self, key: &[u8]) -> PartitionId {
        match &self.split {
            Split::Hash => {
                // There are at most 1,024.
                let partitions = self.groups.len() as u16;
                let ring = Ring { keyspace: self.keyspace, partitions, at: PartitionId(0) };
                ring.owner(ring.place(key))
            }
            Split::Ranges(bounds) => PartitionId(bounds.partition_point(|bound| &bound[..] <= key) as u16),
            Split::Named => {
                let last = self.groups.len().saturating_sub(1) as u16;
                located::partition(key).min(PartitionId(last))
            }
        }
    }

    /// The replicas of a partition.
    pub fn group(&self, partition: PartitionId) -> &Group {
        &self.groups[usize::from(partition.0)]
    }
}

/// How far every node is from one: round trips, by node number.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Distances {
    /// Round trips by node.
    pub rtt: Arc<[Span]>,
    /// Whether a node is in the same region.
    pub local: Arc<[bool]>,
}

impl Distances {
    /// The round trip to a process.
    pub fn to(&self, process: ProcessId) -> Span {
        self.rtt.get(usize::from(process.node.0)).copied().unwrap_or(Span::MAX)
    }

    /// Whether a node is in the same region.
    pub fn local(&self, node: NodeId) -> bool {
        self.local.get(usize::from(node.0)).copied().unwrap_or(false)
    }
}
