//! Where a protocol of this crate stands, read from a deployment.

use crate::commands;
use crate::directory::{self, Directory, Mutation, Plan};
use crate::family::{CLIENT, Client, Family, SERVER, Server, Tuning as _};
use crate::map::{Distances, Group, Map, Split};
use isochrone_core::deployment::{ConfigErrors, Keyspace};
use isochrone_core::{
    Blob, Deployment, KeyspaceId, Lasting, NodeId, PartitionId, ProcessId, ReplicaId, Span,
};
use isochrone_replication::order::Member;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the partitions and clients of one keyspace stand.
#[derive(Clone, Debug)]
pub struct Placement<F: Family> {
    /// The partitions.
    pub map: Map,
    /// The nodes with a client, and how far each is from all others.
    pub clients: Vec<(NodeId, Distances)>,
    /// The knobs.
    pub parameters: F::Parameters,
    /// How commands are tuned, where clients take them.
    pub commands: commands::Parameters,
    /// What must not change while the data lives: which partition has which keys, and who is which replica of it.
    pub(crate) fixed: Vec<(&'static str, String)>,
    /// Whether keys can move between partitions: then clients go by a [`directory`].
    pub movable: bool,
    /// A bug planted in that directory.
    mutation: Option<Mutation>,
}

impl<F: Family> Placement<F> {
    /// Partitions on these nodes, each with its first leader first; a client on each of the nodes whose distances are
    /// given.
    pub fn new(
        keyspace: KeyspaceId,
        split: Split,
        groups: &[Vec<NodeId>],
        clients: Vec<(NodeId, Distances)>,
        parameters: F::Parameters,
    ) -> Placement<F> {
        let group = |(at, nodes): (usize, &Vec<NodeId>)| {
            let member = |(seat, node): (usize, &NodeId)| {
                // There are at most 7 replicas and 1,024 partitions.
                let (replica, partition) = (ReplicaId(seat as u8), PartitionId(at as u16));
                Member {
                    replica,
                    process: ProcessId { node: *node, keyspace, partition, role: SERVER, instance: 0 },
                }
            };
            Group { members: nodes.iter().enumerate().map(member).collect(), spares: [].into() }
        };
        let groups = groups.iter().enumerate().map(group).collect();
        let rtt = clients.iter().flat_map(|(_, distances)| distances.rtt.iter().copied()).max();
        let commands = commands::Parameters::for_rtt(rtt.unwrap_or_default());
        Placement {
            map: Map { keyspace, split, groups },
            clients,
            parameters,
            commands,
            fixed: Vec::new(),
            movable: false,
            mutation: None,
        }
    }

    /// One more node has a replica, of each partition that it has none of, which waits to be added.
    pub fn add_spare(&mut self, node: NodeId) {
        let keyspace = self.map.keyspace;
        let group = |(at, group): (usize, &Group)| {
            // There are at most 1,024.
            let partition = PartitionId(at as u16);
            let process = ProcessId { node, keyspace, partition, role: SERVER, instance: 0 };
            let known = group.processes().any(|known| known == process);
            let spares = group.spares.iter().copied().chain((!known).then_some(process)).collect();
            Group { members: group.members.clone(), spares }
        };
        self.map.groups = self.map.groups.iter().enumerate().map(group).collect();
    }

    /// The same where keys can move, if there is anywhere to go.
    #[must_use]
    pub fn movable(mut self) -> Placement<F> {
        self.movable = self.map.groups.len() > 1;
        self
    }

    /// Plants the bug of this name in the protocol, or in the directory.
    ///
    /// # Errors
    /// The names there are, where there is none of it.
    pub fn plant(&mut self, bug: &str) -> Result<(), Vec<&'static str>> {
        self.mutation = Mutation::named(bug);
        if self.mutation.is_some() || self.parameters.plant(bug) {
            return Ok(());
        }
        Err(F::Parameters::bugs().into_iter().chain(Mutation::names()).collect())
    }

    /// What outlives the processes.
    pub(crate) fn lasting(&self) -> Lasting {
        let spares = self.map.groups.iter().flat_map(|group| group.spares.iter().map(|process| process.node));
        let spares: BTreeSet<NodeId> = spares.collect();
        Lasting { fixed: self.fixed.clone(), spares: spares.into_iter().collect(), ..Lasting::default() }
    }

    /// The process of a client.
    pub fn client(&self, node: NodeId) -> ProcessId {
        let (keyspace, partition) = (self.map.keyspace, PartitionId(0));
        ProcessId { node, keyspace, partition, role: CLIENT, instance: 0 }
    }

    /// Opens the replicas of all partitions.
    pub(crate) fn servers(
        &self,
        parameters: F::Parameters,
        mut open: impl FnMut(ProcessId, Server<F::Parameters>),
    ) {
        let (map, parameters) = self.inside(parameters);
        let clients: Arc<[ProcessId]> = self.clients.iter().map(|(node, _)| self.client(*node)).collect();
        for (at, group) in map.groups.iter().enumerate() {
            for process in group.processes() {
                // There are at most 1,024.
                let partition = PartitionId(at as u16);
                open(process, Server { map: map.clone(), partition, clients: clients.clone(), parameters });
            }
        }
    }

    /// Opens the clients.
    pub(crate) fn clients(
        &self,
        parameters: F::Parameters,
        mut open: impl FnMut(ProcessId, directory::Setup<Client<F::Parameters>>),
    ) {
        let bounds = parameters.bounds();
        let (map, parameters) = self.inside(parameters);
        let directory = self.movable.then(|| {
            let plan = Plan::of(&self.map, &self.map.split);
            // Who leads, leads a log.
            let (settled, retry) = (F::LED, self.commands.retry);
            Arc::new(Directory { plan, bounds, settled, retry, mutation: self.mutation })
        });
        for (node, distances) in &self.clients {
            let client = Client { map: map.clone(), distances: distances.clone(), parameters };
            open(self.client(*node), directory::Setup { client, directory: directory.clone() });
        }
    }

    /// What the protocol goes by: behind a directory keys name their partitions, and transactions have more of them.
    fn inside(&self, mut parameters: F::Parameters) -> (Map, F::Parameters) {
        if !self.movable {
            return (self.map.clone(), parameters);
        }
        parameters.bound(directory::bounds(parameters.bounds(), self.map.groups.len()));
        (Map { split: Split::Named, ..self.map.clone() }, parameters)
    }

    /// Reads where a keyspace of the family `F` stands and how it is tuned.
    ///
    /// # Errors
    /// Unknown or impossible parameters.
    pub fn of(deployment: &Deployment, keyspace: &Keyspace) -> Result<Placement<F>, ConfigErrors> {
        let nodes = || deployment.nodes().iter();
        let far = |from: NodeId, to: NodeId| deployment.one_way(from, to) + deployment.one_way(to, from);
        let rtt_max = nodes().flat_map(|a| nodes().map(move |b| far(a.id, b.id))).max().unwrap_or(Span::ZERO);
        let mut parameters = F::defaults(rtt_max);
        let mut reader = keyspace.parameters.read();
        parameters.read_from(&mut reader);
        let mut commands = commands::Parameters::for_rtt(rtt_max);
        commands.read_from(&mut reader);
        let divided = reader.text("bounds", "");
        let bounds: Vec<Blob> =
            divided.split(',').map(str::trim).filter(|bound| !bound.is_empty()).map(Blob::from).collect();
        let split = match bounds.len() {
            0 => Split::Hash,
            _ => Split::Ranges(bounds.as_slice().into()),
        };
        if !bounds.is_empty() && bounds.len() + 1 != usize::from(keyspace.partitions) {
            let right = format!("name {} keys, \"a, b\"", keyspace.partitions - 1);
            reader.reject("bounds", "are not one fewer than the partitions", &right);
        }
        if !bounds.is_sorted_by(|a, b| a < b) {
            reader.reject("bounds", "do not ascend", "name each key once, in order");
        }
        let groups = keyspace.groups();
        let everywhere = |node| groups.iter().all(|group| group.contains(&node));
        // Only a log says from which place on the members are others.
        let spares = if F::LED {
            reader.nodes("spares", deployment, |node| {
                everywhere(node).then_some("which is a replica of every partition")
            })
        } else {
            Vec::new()
        };
        reader.finish()?;
        let clients = nodes().map(|client| {
            let rtt = nodes().map(|node| far(client.id, node.id)).collect();
            let local = nodes().map(|node| node.region == client.region).collect();
            (client.id, Distances { rtt, local })
        });
        let name = |node: &NodeId| deployment.node(*node).name.as_str();
        let named: Vec<_> =
            groups.iter().map(|group| group.iter().map(name).collect::<Vec<_>>().join(",")).collect();
        let mut fixed = vec![("placement", named.join("|")), ("bounds", divided)];
        parameters.fixed(&mut fixed);
        let placement = Placement::new(keyspace.id, split, &groups, clients.collect(), parameters);
        let mut placement = Placement { commands, fixed, ..placement };
        spares.into_iter().for_each(|node| placement.add_spare(node));
        Ok(placement)
    }
}
