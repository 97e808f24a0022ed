//! The state machine of the directory.

use super::entry::{Command, Keyspace, Node, Order, Partition, Refusal, Reply, Route, Version};
use super::export::View;
use isochrone_core::command::{Access, Touch};
use isochrone_core::deployment::Deployment;
use isochrone_core::{Footprint, KeyspaceId, Malformed, NodeId, PartitionId, StateMachine};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Versioned<T> = (Version, Option<T>);

/// The directory. Removed entries keep their version, so that it never falls back.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct Directory {
    pub(super) nodes: BTreeMap<NodeId, Versioned<Node>>,
    pub(super) keyspaces: BTreeMap<KeyspaceId, Keyspace>,
    pub(super) partitions: BTreeMap<(KeyspaceId, PartitionId), Versioned<Partition>>,
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
            let entry = Keyspace { name: keyspace.name.clone(), protocol: keyspace.protocol.clone() };
            directory.keyspaces.insert(keyspace.id, entry);
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

    /// Who holds this place of the ring; `None` where there is no such keyspace.
    pub fn route(&self, keyspace: KeyspaceId, place: u64) -> Option<Route> {
        let (mut home, mut last) = (None::<(PartitionId, Version, &Partition)>, u64::MAX);
        for (id, version, partition) in self.arcs(keyspace) {
            if partition.first > place {
                last = last.min(partition.first - 1);
            } else if home.is_none_or(|(_, _, home)| home.first < partition.first) {
                home = Some((id, version, partition));
            }
        }
        home.map(|(partition, version, entry)| Route {
            keyspace,
            partition,
            version,
            first: entry.first,
            last,
            members: entry.members.clone(),
        })
    }

    /// Who holds this partition; `None` where there is no such partition.
    pub fn members(&self, keyspace: KeyspaceId, partition: PartitionId) -> Option<Route> {
        let (_, entry) = self.partitions.get(&(keyspace, partition))?;
        self.route(keyspace, entry.as_ref()?.first)
    }

    /// All partitions of a keyspace, in the order of their arcs, which cover the ring.
    pub fn ring(&self, keyspace: KeyspaceId) -> Vec<Route> {
        let mut ring: Vec<Route> =
            self.arcs(keyspace).filter_map(|(_, _, entry)| self.route(keyspace, entry.first)).collect();
        ring.sort_unstable_by_key(|route| route.first);
        ring
    }

    /// What the processes of this node should serve, by keyspace and partition.
    pub fn orders(&self, node: NodeId) -> Vec<Order> {
        let held = self.partitions.iter().filter_map(|((keyspace, partition), (_, entry))| {
            entry.as_ref()?.members.contains(&node).then_some((*keyspace, *partition))
        });
        held.filter_map(|(keyspace, partition)| {
            let protocol = self.keyspaces.get(&keyspace)?.protocol.clone();
            Some(Order { protocol, route: self.members(keyspace, partition)? })
        })
        .collect()
    }

    fn arcs(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (PartitionId, Version, &Partition)> {
        let range = (keyspace, PartitionId(0))..=(keyspace, PartitionId(u16::MAX));
        let entries = self.partitions.range(range);
        entries.filter_map(|((_, id), (version, entry))| Some((*id, *version, entry.as_ref()?)))
    }

    /// The answer to a question; `None` to a command that changes something.
    fn ask(&self, command: &Command) -> Option<Reply> {
        let route = |route: Option<Route>| route.map(Reply::Route);
        let found = match command {
            Command::Route { keyspace, place } => route(self.route(*keyspace, *place)),
            Command::Members { keyspace, partition } => route(self.members(*keyspace, *partition)),
            Command::Keyspace(id) => {
                let entry = self.keyspaces.get(id).cloned();
                entry.map(|entry| Reply::Keyspace(*id, entry, self.ring(*id)))
            }
            Command::Nodes => {
                let nodes = self.nodes.iter();
                let nodes = nodes.filter_map(|(id, (version, node))| Some((*id, *version, node.clone()?)));
                Some(Reply::Nodes(nodes.collect()))
            }
            Command::Orders(node) => Some(Reply::Orders(self.orders(*node))),
            Command::Create { .. } | Command::Change { .. } | Command::ChangeNode { .. } => return None,
        };
        Some(found.unwrap_or(Reply::Refused(Refusal::Unknown)))
    }

    fn create(
        &mut self,
        keyspace: KeyspaceId,
        to: &Keyspace,
        partitions: &[Partition],
    ) -> Result<Version, Refusal> {
        let taken = |(id, known): (&KeyspaceId, &Keyspace)| *id == keyspace || known.name == to.name;
        if keyspace == super::KEYSPACE || self.keyspaces.iter().any(taken) {
            return Err(Refusal::Exists);
        }
        if partitions.len() > usize::from(u16::MAX) {
            return Err(Refusal::Homeless("there are more partitions than numbers for them".to_owned()));
        }
        partitions.iter().try_for_each(|partition| self.check_members(partition))?;
        check_ring(partitions.iter().map(|partition| partition.first))?;
        self.keyspaces.insert(keyspace, to.clone());
        for (id, partition) in (0..).map(PartitionId).zip(partitions) {
            self.partitions.insert((keyspace, id), (Version(1), Some(partition.clone())));
        }
        Ok(Version(1))
    }

    fn change(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        at: Version,
        to: Option<&Partition>,
    ) -> Result<Version, Refusal> {
        if !self.keyspaces.contains_key(&keyspace) {
            return Err(Refusal::Unknown);
        }
        let key = (keyspace, partition);
        let version = self.partitions.get(&key).map_or(Version(0), |(version, _)| *version);
        if version != at {
            return Err(Refusal::Outdated(version));
        }
        if let Some(to) = to {
            self.check_members(to)?;
        }
        let others = self.arcs(keyspace).filter(|(id, _, _)| *id != partition);
        check_ring(others.map(|(_, _, other)| other.first).chain(to.map(|to| to.first)))?;
        let before = self.ring(keyspace);
        self.partitions.insert(key, (version.next(), to.cloned()));
        // A neighbour's arc ends elsewhere now: it is changed too.
        let moved = |old: &&Route| {
            old.partition != partition
                && self.members(keyspace, old.partition).is_some_and(|new| new.last != old.last)
        };
        let moved: Vec<PartitionId> = before.iter().filter(moved).map(|old| old.partition).collect();
        for neighbour in moved {
            if let Some((version, _)) = self.partitions.get_mut(&(keyspace, neighbour)) {
                *version = version.next();
            }
        }
        Ok(version.next())
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
        self.nodes.insert(node, (version.next(), to.cloned()));
        Ok(version.next())
    }

    /// Whether a partition has members, each once and known.
    fn check_members(&self, partition: &Partition) -> Result<(), Refusal> {
        if partition.members.is_empty() {
            return Err(Refusal::Homeless("a partition needs members".to_owned()));
        }
        let mut seen = BTreeSet::new();
        for node in &partition.members {
            if !self.nodes.get(node).is_some_and(|(_, entry)| entry.is_some()) {
                return Err(Refusal::Homeless(format!("there is no node {node}")));
            }
            if !seen.insert(*node) {
                return Err(Refusal::Homeless(format!("{node} is named twice")));
            }
        }
        Ok(())
    }
}

/// Whether arcs that begin at these places cover the ring, each place once.
fn check_ring(firsts: impl Iterator<Item = u64>) -> Result<(), Refusal> {
    let mut firsts: Vec<u64> = firsts.collect();
    firsts.sort_unstable();
    if firsts.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Refusal::Homeless("two partitions would begin at one place".to_owned()));
    }
    if firsts.first() != Some(&0) {
        return Err(Refusal::Homeless("the ring's first place would have no partition".to_owned()));
    }
    Ok(())
}

impl Footprint for Command {
    /// A directory is small: all of it is touched.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        let access = if Directory::reads_only(self) { Access::Read } else { Access::Update };
        visit(Touch::All(access));
    }
}

impl StateMachine for Directory {
    type Command = Command;
    type Reply = Reply;
    type View = View;
    type Before = Self;

    fn apply(&mut self, command: &Command) -> Reply {
        let changed = match command {
            Command::Create { keyspace, to, partitions } => self.create(*keyspace, to, partitions),
            Command::Change { keyspace, partition, at, to } => {
                self.change(*keyspace, *partition, *at, to.as_ref())
            }
            Command::ChangeNode { node, at, to } => self.change_node(*node, *at, to.as_ref()),
            question => return self.ask(question).unwrap_or(Reply::Refused(Refusal::Unknown)),
        };
        match changed {
            Ok(version) => Reply::Changed(version),
            Err(refusal) => Reply::Refused(refusal),
        }
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }

    fn reads_only(command: &Command) -> bool {
        !matches!(command, Command::Create { .. } | Command::Change { .. } | Command::ChangeNode { .. })
    }

    fn read(&self, command: &Command) -> Option<Reply> {
        self.ask(command)
    }

    fn export(&self) -> View {
        View::of(self)
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        View::absorb(self, chunk)
    }
}
