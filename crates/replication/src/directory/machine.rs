//! The state machine of the directory.

use isochrone_core::deployment::Deployment;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{
    Blob, Export, KeyspaceId, Malformed, NodeId, PartitionId, RegionId, StateMachine, wire,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// How often an entry was changed; 0 where there is none.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Version(pub u64);

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

/// A part of a keyspace.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// The first place of its arc; it ends before the next partition's first, the last one at the end of
    /// the ring.
    pub first: u64,
    /// The nodes that hold it.
    pub members: Vec<NodeId>,
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
    /// Which nodes are there?
    Nodes,
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
    /// The partition, its version, and what it is.
    Partition(PartitionId, Version, Partition),
    /// All nodes.
    Nodes(Vec<(NodeId, Version, Node)>),
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
    /// Somebody else has changed the entry since.
    #[error("the entry is at version {0:?} by now: read it again")]
    Outdated(Version),
    /// The change would leave places of the ring without a partition, two partitions with one first place,
    /// a partition without members or with unknown ones, or a node away that holds partitions.
    #[error("the change would leave keys without a home: {0}")]
    Homeless(String),
}

type Versioned<T> = (Version, Option<T>);

/// The directory. Removed entries keep their version, so that it never falls back.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Directory {
    nodes: BTreeMap<NodeId, Versioned<Node>>,
    partitions: BTreeMap<(KeyspaceId, PartitionId), Versioned<Partition>>,
}

impl Directory {
    /// What a deployment says, each entry at version 1.
    pub fn of(deployment: &Deployment) -> Directory {
        let mut directory = Directory::default();
        for node in deployment.nodes() {
            let address = node.peer.as_ref().map(ToString::to_string).unwrap_or_default();
            let entry = Node { name: node.name.clone(), region: node.region, address };
            directory.nodes.insert(node.id, (Version(1), Some(entry)));
        }
        for keyspace in deployment.keyspaces() {
            let count = u64::from(keyspace.partitions);
            for partition in keyspace.partition_ids() {
                // Equal arcs; the last is longer by what does not divide.
                let first = u64::MAX / count * u64::from(partition.0);
                let entry = Partition { first, members: keyspace.replicas.clone() };
                directory.partitions.insert((keyspace.id, partition), (Version(1), Some(entry)));
            }
        }
        directory
    }

    /// Who holds this place.
    pub fn route(&self, keyspace: KeyspaceId, place: u64) -> Option<(PartitionId, Version, &Partition)> {
        let arcs = self.arcs(keyspace).filter(|(_, _, partition)| partition.first <= place);
        arcs.max_by_key(|(_, _, partition)| partition.first)
    }

    /// Who holds this partition.
    pub fn members(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<(Version, &Partition)> {
        let (version, entry) = self.partitions.get(&(keyspace, partition))?;
        Some((*version, entry.as_ref()?))
    }

    fn arcs(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (PartitionId, Version, &Partition)> {
        let range = (keyspace, PartitionId(0))..=(keyspace, PartitionId(u16::MAX));
        let entries = self.partitions.range(range);
        entries.filter_map(|((_, id), (version, entry))| Some((*id, *version, entry.as_ref()?)))
    }

    fn ask(&self, command: &Command) -> Reply {
        let found = match command {
            Command::Route { keyspace, place } => self.route(*keyspace, *place),
            Command::Members { keyspace, partition } => {
                self.members(*keyspace, *partition).map(|(version, entry)| (*partition, version, entry))
            }
            Command::Nodes | Command::Change { .. } | Command::ChangeNode { .. } => {
                let nodes = self.nodes.iter();
                let nodes = nodes.filter_map(|(id, (version, node))| Some((*id, *version, node.clone()?)));
                return Reply::Nodes(nodes.collect());
            }
        };
        match found {
            Some((id, version, partition)) => Reply::Partition(id, version, partition.clone()),
            None => Reply::Refused(Refusal::Unknown),
        }
    }

    fn change(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        at: Version,
        to: Option<&Partition>,
    ) -> Result<Version, Refusal> {
        let key = (keyspace, partition);
        let version = self.partitions.get(&key).map_or(Version(0), |(version, _)| *version);
        if version != at {
            return Err(Refusal::Outdated(version));
        }
        if let Some(to) = to {
            if to.members.is_empty() {
                return Err(Refusal::Homeless("a partition needs members".to_owned()));
            }
            let unknown = |node: &&NodeId| !self.nodes.get(node).is_some_and(|(_, node)| node.is_some());
            if let Some(node) = to.members.iter().find(unknown) {
                return Err(Refusal::Homeless(format!("there is no node {node}")));
            }
        }
        let others = self.arcs(keyspace).filter(|(id, _, _)| *id != partition);
        let mut firsts: Vec<u64> =
            others.map(|(_, _, other)| other.first).chain(to.map(|to| to.first)).collect();
        firsts.sort_unstable();
        if firsts.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Refusal::Homeless("two partitions would begin at one place".to_owned()));
        }
        if firsts.first().is_some_and(|first| *first != 0) {
            return Err(Refusal::Homeless("the ring's first place would have no partition".to_owned()));
        }
        let next = Version(version.0 + 1);
        self.partitions.insert(key, (next, to.cloned()));
        Ok(next)
    }

    fn change_node(&mut self, node: NodeId, at: Version, to: Option<&Node>) -> Result<Version, Refusal> {
        let version = self.nodes.get(&node).map_or(Version(0), |(version, _)| *version);
        if version != at {
            return Err(Refusal::Outdated(version));
        }
        let holds =
            |entry: &Versioned<Partition>| entry.1.as_ref().is_some_and(|p| p.members.contains(&node));
        if to.is_none() && self.partitions.values().any(holds) {
            return Err(Refusal::Homeless(format!("{node} holds partitions still")));
        }
        let next = Version(version.0 + 1);
        self.nodes.insert(node, (next, to.cloned()));
        Ok(next)
    }
}

impl StateMachine for Directory {
    type Command = Command;
    type Reply = Reply;
    type View = View;

    fn apply(&mut self, command: &Command) -> Reply {
        let changed = match command {
            Command::Change { keyspace, partition, at, to } => {
                self.change(*keyspace, *partition, *at, to.as_ref())
            }
            Command::ChangeNode { node, at, to } => self.change_node(*node, *at, to.as_ref()),
            Command::Route { .. } | Command::Members { .. } | Command::Nodes => return self.ask(command),
        };
        match changed {
            Ok(version) => Reply::Changed(version),
            Err(refusal) => Reply::Refused(refusal),
        }
    }

    fn reads_only(command: &Command) -> bool {
        matches!(command, Command::Route { .. } | Command::Members { .. } | Command::Nodes)
    }

    fn read(&self, command: &Command) -> Option<Reply> {
        Directory::reads_only(command).then(|| self.ask(command))
    }

    fn export(&self) -> View {
        // It is small: the chunks are made at once.
        let nodes = self.nodes.iter().map(|(id, entry)| Piece::Node(*id, entry.clone()));
        let partitions = self.partitions.iter().map(|(key, entry)| Piece::Partition(*key, entry.clone()));
        let (mut chunks, mut open) = (Vec::new(), Vec::new());
        for piece in nodes.chain(partitions) {
            wire::encode_into(&piece, &mut open);
            if open.len() >= CHUNK_MAX {
                chunks.push(Blob::from(std::mem::take(&mut open)));
            }
        }
        if !open.is_empty() {
            chunks.push(Blob::from(open));
        }
        View(chunks.into())
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut rest = chunk;
        while !rest.is_empty() {
            let (piece, behind) = wire::decode_prefix(rest)
                .map_err(|error| Malformed { what: "directory chunk", cause: error.to_string() })?;
            match piece {
                Piece::Node(id, entry) => {
                    self.nodes.insert(id, entry);
                }
                Piece::Partition(key, entry) => {
                    self.partitions.insert(key, entry);
                }
            }
            rest = behind;
        }
        Ok(())
    }
}

/// The directory at one position.
#[derive(Clone, Debug)]
pub struct View(Arc<[Blob]>);

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        self.0.get(usize::try_from(index).ok()?).cloned()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Piece {
    Node(NodeId, Versioned<Node>),
    Partition((KeyspaceId, PartitionId), Versioned<Partition>),
}
