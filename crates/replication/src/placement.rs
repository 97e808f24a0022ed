//! Where a protocol of this crate stands, read from a deployment.

use crate::family::{CLIENT, Family, OrderOf, REPLICA, Tuning};
use crate::order::{Member, Order as _};
use crate::partitions;
use crate::service::Service;
use isochrone_core::deployment::{ConfigErrors, Keyspace, leader_in_turn};
use isochrone_core::{
    Deployment, KeyspaceId, NodeId, PartitionId, ProcessId, RegionId, ReplicaId, StateMachine,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the replicas and clients of one keyspace stand.
#[derive(Clone, Debug)]
pub struct Placement<S, F: Family> {
    /// The keyspace served.
    pub keyspace: KeyspaceId,
    /// The nodes of the first members; the seat is the position.
    pub replicas: Vec<NodeId>,
    /// Nodes with a replica that waits to be added, or serves at once ([`Family::SPARES_SERVE`]).
    pub spares: Vec<NodeId>,
    /// The nodes with a client, and for each whom it may ask: the replicas' nodes, nearest first, and then those of the
    /// spares, which may be all that is left of the members one day.
    pub clients: Vec<(NodeId, Vec<NodeId>)>,
    /// Where nodes are: what stands in one region may be lost together.
    pub regions: BTreeMap<NodeId, RegionId>,
    /// How many partitions the keyspace has, each a group over the same nodes; at least 1.
    pub partitions: u16,
    /// Who leads the first partition first, where anybody does.
    pub leader: NodeId,
    /// The knobs of sessions.
    pub service: Service,
    /// The knobs of the order.
    pub parameters: F::Parameters,
    /// The state machine before its first command.
    pub machine: S,
    /// The bug that is planted in what moves keys between partitions.
    pub bug: Option<partitions::Bug>,
}

impl<S, F: Family> Placement<S, F> {
    /// The partitions.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<S, F> {
        (0..self.partitions).map(PartitionId)
    }

    /// The process of a partition's replica.
    pub fn replica(&self, partition: PartitionId, node: NodeId) -> ProcessId {
        ProcessId { node, keyspace: self.keyspace, partition, role: REPLICA, instance: 0 }
    }

    /// The process of a client, which is one for all partitions.
    pub fn client(&self, node: NodeId) -> ProcessId {
        let partition = PartitionId(0);
        ProcessId { node, keyspace: self.keyspace, partition, role: CLIENT, instance: 0 }
    }

    /// The client that measures for the one on this node. Where the keyspace has several partitions each client
    /// measures for itself, since it is asked by none of them in particular.
    pub fn proxy(&self, node: NodeId) -> Option<ProcessId> {
        let region = self.regions.get(&node).filter(|_| self.partitions == 1)?;
        let mut clients = self.clients.iter().map(|(client, _)| *client);
        let first = clients.find(|client| self.regions.get(client) == Some(region))?;
        (first != node).then(|| self.client(first))
    }

    /// One more node has a replica that waits to be added; clients may ask it last of all.
    pub fn add_spare(&mut self, node: NodeId) {
        self.spares.push(node);
        for (_, nearest) in &mut self.clients {
            nearest.push(node);
        }
    }

    /// Who leads a partition first: its turn goes around the replicas, beginning with [`Placement::leader`].
    pub fn leader(&self, partition: PartitionId) -> NodeId {
        leader_in_turn(&self.replicas, self.leader, partition)
    }

    /// The seat of a node among the first members.
    pub fn seat(&self, node: NodeId) -> Option<ReplicaId> {
        let at = self.replicas.iter().position(|known| *known == node)?;
        u8::try_from(at).ok().map(ReplicaId)
    }

    /// The nodes that serve from the start.
    pub fn servers(&self) -> impl Iterator<Item = NodeId> {
        let spares = if F::SPARES_SERVE { self.spares.as_slice() } else { &[] };
        self.replicas.iter().chain(spares).copied()
    }

    /// The first members of a partition.
    pub fn members(&self, partition: PartitionId) -> Arc<[Member]> {
        let seat = |(at, node): (usize, NodeId)| Member {
            // There are at most `MEMBERS_MAX`.
            replica: ReplicaId(at as u8),
            process: self.replica(partition, node),
        };
        self.servers().enumerate().map(seat).collect()
    }
}

impl<S: StateMachine + Default, F: Family> Placement<S, F> {
    /// Reads where a keyspace of the family `F` stands and how it is tuned. Without a leader in the file the
    /// replica leads that gives the clients the least mean latency.
    ///
    /// # Errors
    /// Unknown or impossible parameters, an unknown spare node.
    pub fn of(deployment: &Deployment, keyspace: &Keyspace) -> Result<Placement<S, F>, ConfigErrors> {
        let replicas = keyspace.replicas.clone();
        let nodes = || deployment.nodes().iter().map(|node| node.id);
        let far = |from: NodeId, to: NodeId| deployment.one_way(from, to) + deployment.one_way(to, from);
        let rtt_max = nodes().flat_map(|a| nodes().map(move |b| (a, b))).map(|(a, b)| far(a, b)).max();
        let rtt_max = rtt_max.unwrap_or_default();
        let (mut service, mut parameters) = (Service::for_rtt(rtt_max), F::Parameters::for_rtt(rtt_max));
        let mut reader = keyspace.parameters.read();
        service.read_from(&mut reader, F::COMMITS);
        parameters.read_from(&mut reader, service.reply);
        let spares = reader
            .nodes("spares", deployment, |node| replicas.contains(&node).then_some("which is a replica"));
        parameters.read_sizes(&mut reader, replicas.len(), spares.len());
        reader.finish()?;
        let refuse = |wrong: String, right: String| {
            let wrong = format!("keyspace {:?}: {wrong}", keyspace.name);
            ConfigErrors::one(deployment.file(), keyspace.line, wrong, right)
        };
        let most = OrderOf::<F, S>::MEMBERS_MAX;
        let serving = if F::SPARES_SERVE { spares.as_slice() } else { &[] };
        let servers: Vec<NodeId> = replicas.iter().chain(serving).copied().collect();
        if servers.len() > most {
            let wrong = format!("{} replicas, but {} takes {most} at most", servers.len(), F::NAME);
            return Err(refuse(wrong, format!("list at most {most} nodes, an odd number")));
        }
        let clients = nodes().map(|client| {
            let mut nearest = servers.clone();
            nearest.sort_by_key(|replica| far(client, *replica));
            nearest.extend(spares.iter().filter(|node| !servers.contains(node)));
            (client, nearest)
        });
        Ok(Placement {
            keyspace: keyspace.id,
            clients: clients.collect(),
            replicas,
            spares,
            regions: deployment.nodes().iter().map(|node| (node.id, node.region)).collect(),
            partitions: keyspace.partitions,
            leader: keyspace.leader.unwrap_or_else(|| isochrone_plan::leader(deployment, keyspace)),
            service,
            parameters,
            machine: S::default(),
            bug: None,
        })
    }
}
