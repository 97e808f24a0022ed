//! Multi-Paxos: one leader orders all commands, a majority keeps them.
//!
//! **What it is.** A leader, elected by ballot, runs phase 1 once for all slots to come; after that a
//! command costs one round trip from the leader to a majority. Everyone executes the slots in order.
//! Source: Lamport, *The Part-Time Parliament* and *Paxos Made Simple*, as restated in `specs/sdpaxos.md`
//! 5.1; the prefix form is that of `specs/carousel.md` 2.1.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once.
//!
//! **What it assumes.** Crash faults of a minority, fair-lossy links. With leases on, a bound on the rate of
//! the steady clock (`drift_max_ppm`); with leases off, no clock at all.
//!
//! **What it costs.** A client at region r waits `rtt(r, leader) + m(leader)` for a write, where m is the
//! round trip from the leader to its majority, and `rtt(r, leader)` for a read under a lease.
//!
//! **What survives.** Anything but the loss of a majority's journals. A leader's failure costs an election
//! timeout and three round trips.
//!
//! **Who stands where.** One replica on each node listed, one client on every node.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Requests`, `Replies`, `Redirect` | client, replica | replica, client | commands |
//! | `Accept`, `Adopt`, `Accepted` | leader, follower | follower, leader | phase 2 |
//! | `Poll`, `Polled` | follower | follower | pre-vote |
//! | `Prepare`, `Promised` | candidate, follower | follower, candidate | phase 1 |
//! | `Rejected` | anyone | one with an old ballot | phases 1 and 2 |
//! | `Heartbeat`, `Heard` | leader, follower | follower, leader | leadership, leases, commit index |
//! | `Fetch`, `Learned`, `Trimmed` | one who lacks, anyone | anyone, one who lacks | repair |
//! | `Want`, `Chunk`, `Gone` | one far behind, anyone | anyone, one far behind | state transfer |
//! | `Administer`, `Administered`, `Handover` | client, leader | leader, client, heir | membership |
//!
//! | replicas | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|
//! | both phases need | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//!
//! ```text
//!  client          leader        follower      follower
//!    |  Requests     |               |             |
//!    |-------------->|  Accept       |             |     ahead of the leader's own record
//!    |               |-------------->|             |
//!    |               |---------------------------->|
//!    |               | own vote      |             |     to itself, behind its record
//!    |               |  Accepted     |             |     behind the follower's record
//!    |    Replies    |<--------------|             |
//!    |<--------------|               |             |     majority: decided, executed, answered
//!    |               |  Accept, Heartbeat: commit index rides along
//! ```
//!
//! **Exactly once.** A command carries its client, its number and the number below which the client has all
//! its answers; every replica keeps the answers above it and never executes a number twice.
//!
//! **Reads.** A leader whose lease holds answers a reading command from its own state, once all that it
//! adopted is decided and executed. A lease ends `2 drift` early at its holder; a follower tells every later
//! candidate how long its grant may still hold, and after a restart, which forgets grants, says a whole
//! lease; a new leader shows nothing until the longest of these has run out, except those whose holder has
//! promised it its ballot. Everything else goes through the log.
//!
//! **Membership** changes by an entry that names the members from the next slot on. Nothing is proposed
//! behind it until it is decided; one replica at a time; a new one first catches up without a vote.

pub mod log;

mod client;
mod mark;
mod message;
mod mutation;
mod parameters;
mod replica;

pub use client::{Client, Setup as ClientSetup};
pub use log::Member;
pub use mark::Note;
pub use message::{Ask, Entry, Message, Record, Spans, Timer, Told};
pub use mutation::Mutation;
pub use parameters::{Form, Parameters};
pub use replica::{Replica, Setup as ReplicaSetup};

use crate::request::{Outcome, Request};
use isochrone_core::deployment::{ConfigErrors, Keyspace};
use isochrone_core::{
    Assemble, Deployment, Guarantee, KeyspaceId, NodeId, PartitionId, ProcessId, Protocol, ReplicaId, Role,
    Span, StateMachine,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// The role of replicas.
pub const REPLICA: Role = Role(0);
/// The role of clients.
pub const CLIENT: Role = Role(1);

/// Where Multi-Paxos stands.
#[derive(Clone, Debug)]
pub struct Placement<S> {
    /// The keyspace served.
    pub keyspace: KeyspaceId,
    /// The nodes of the first members; the seat is the position.
    pub replicas: Vec<NodeId>,
    /// Nodes with a replica that waits to be added.
    pub spares: Vec<NodeId>,
    /// The nodes with a client, and for each the replicas' nodes, nearest first.
    pub clients: Vec<(NodeId, Vec<NodeId>)>,
    /// Who leads first.
    pub leader: NodeId,
    /// The knobs.
    pub parameters: Parameters,
    /// The state machine before its first command.
    pub machine: S,
}

/// Multi-Paxos over the state machine `S`.
#[derive(Debug)]
pub struct MultiPaxos<S>(PhantomData<S>);

impl<S: StateMachine> Placement<S> {
    /// The process of a replica.
    pub fn replica(&self, node: NodeId) -> ProcessId {
        self.process(node, REPLICA)
    }

    /// The process of a client.
    pub fn client(&self, node: NodeId) -> ProcessId {
        self.process(node, CLIENT)
    }

    /// The seat of a node among the first members.
    pub fn seat(&self, node: NodeId) -> Option<ReplicaId> {
        let at = self.replicas.iter().position(|known| *known == node)?;
        u8::try_from(at).ok().map(ReplicaId)
    }

    /// The first members.
    pub fn members(&self) -> Arc<[Member]> {
        let seat = |(at, node): (usize, &NodeId)| Member {
            // A deployment has at most 7 replicas of a keyspace.
            replica: ReplicaId(at as u8),
            process: self.replica(*node),
        };
        self.replicas.iter().enumerate().map(seat).collect()
    }

    fn process(&self, node: NodeId, role: Role) -> ProcessId {
        ProcessId { node, keyspace: self.keyspace, partition: PartitionId(0), role, instance: 0 }
    }
}

impl<S: StateMachine + Default> Placement<S> {
    /// Reads where a keyspace stands and how it is tuned. Without a leader in the file the replica leads that
    /// gives the clients of all regions the least mean latency.
    ///
    /// # Errors
    /// Unknown or impossible parameters, more than one partition, an unknown spare node.
    pub fn of(deployment: &Deployment, keyspace: &Keyspace) -> Result<Placement<S>, ConfigErrors> {
        let replicas = keyspace.replicas.clone();
        let nodes = || deployment.nodes().iter().map(|node| node.id);
        let far = |from: NodeId, to: NodeId| deployment.one_way(from, to) + deployment.one_way(to, from);
        let rtt_max = nodes().flat_map(|a| nodes().map(move |b| (a, b))).map(|(a, b)| far(a, b)).max();
        let mut parameters = Parameters::for_rtt(rtt_max.unwrap_or_default());
        let mut reader = keyspace.parameters.read();
        parameters.read_from(&mut reader);
        let names = reader.text("spares", "");
        let mut spares = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match deployment.node_named(name) {
                Some(node) if !replicas.contains(&node.id) && !spares.contains(&node.id) => {
                    spares.push(node.id)
                }
                Some(_) => reader.reject("spares", "names a node twice or a replica", "name other nodes"),
                None => reader.reject("spares", "names an unknown node", "name nodes of this file, \"a, b\""),
            }
        }
        reader.finish()?;
        if keyspace.partitions != 1 {
            let wrong = format!("keyspace {:?}: {} has no partitions", keyspace.name, MultiPaxos::<S>::NAME);
            let right = "remove partitions, or make several keyspaces";
            return Err(ConfigErrors::one(deployment.file(), keyspace.line, wrong, right));
        }
        let majority = |leader: NodeId| {
            let mut trips: Vec<Span> = replicas.iter().map(|replica| far(leader, *replica)).collect();
            trips.sort_unstable();
            trips[isochrone_core::Quorums::majority(trips.len()) - 1]
        };
        let mean = |leader: NodeId| {
            nodes().map(|client| far(client, leader).as_nanos()).sum::<u64>() / nodes().count() as u64
                + majority(leader).as_nanos()
        };
        // A keyspace has at least one replica.
        let best = replicas.iter().copied().min_by_key(|leader| mean(*leader)).unwrap_or(replicas[0]);
        let clients = nodes().map(|client| {
            let mut nearest = replicas.clone();
            nearest.sort_by_key(|replica| far(client, *replica));
            (client, nearest)
        });
        Ok(Placement {
            keyspace: keyspace.id,
            clients: clients.collect(),
            replicas,
            spares,
            leader: keyspace.leader.unwrap_or(best),
            parameters,
            machine: S::default(),
        })
    }
}

impl<S: StateMachine> Protocol for MultiPaxos<S> {
    const NAME: &'static str = "multipaxos";
    type Message = Message<S::Command, S::Reply>;
    type Request = Request<S::Command>;
    type Outcome = Outcome<S::Reply>;
    type Placement = Placement<S>;

    fn guarantee(_: &Placement<S>) -> Guarantee {
        Guarantee::Linearizable
    }

    fn place(placement: &Placement<S>, host: &mut impl Assemble<Self>) {
        let members = placement.members();
        let preferred = placement.seat(placement.leader);
        for node in placement.replicas.iter().chain(&placement.spares) {
            let setup = ReplicaSetup {
                members: members.clone(),
                preferred,
                parameters: placement.parameters,
                machine: placement.machine.clone(),
            };
            host.server::<Replica<S>>(placement.replica(*node), setup);
        }
        for (node, nearest) in &placement.clients {
            let setup = ClientSetup {
                replicas: nearest.iter().map(|node| placement.replica(*node)).collect(),
                leader: Some(placement.replica(placement.leader)),
                parameters: placement.parameters,
            };
            host.client::<Client<S::Command, S::Reply>>(placement.client(*node), setup);
        }
    }
}
