//! The table of protocols that a program can run, and the node's half of `Assemble`: it keeps the
//! processes of one node. One [`Protocols::register`] a protocol; nothing else here knows any.

use crate::gateway;
use crate::hosted::{Adapter, Bridge, Hosted};
use isochrone_core::command::Command;
use isochrone_core::deployment::{ConfigErrors, Deployment, Keyspace};
use isochrone_core::migration::Stretch;
use isochrone_core::{
    Assemble, Blob, Guarantee, Identity, Lasting, NodeId, PartitionId, Process, ProcessId, Protocol, Random,
    Stamp,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What administration can ask of a protocol's processes. A protocol that has no such thing says so.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Administration {
    /// Let the replica on this node lead.
    MoveLeader(NodeId),
    /// Let anybody else lead: this node is about to stop.
    StepDown,
    /// Take this node in as a replica.
    AddReplica(NodeId),
    /// Let this node go.
    RemoveReplica(NodeId),
    /// Move keys from one partition to another: asked of the node's client process.
    MoveRange {
        /// Which.
        extent: Extent,
        /// From which partition.
        from: PartitionId,
        /// To which.
        to: PartitionId,
    },
    /// Say which partition serves which keys: asked of the node's client process.
    Ranges,
    /// Execute nothing more for clients of other nodes, since this one is about to stop: asked of the node's client process, which
    /// answers once nothing is under way for them.
    Retire,
}

/// Which of the keys that a partition holds.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Extent {
    /// All of them.
    All,
    /// Those of these places of the ring.
    Ring(Stretch),
    /// Where partitions are divided by the order of keys: those from the first on, up to and without the end.
    Keys {
        /// The first.
        first: Blob,
        /// The first behind them; nothing where there is none.
        end: Option<Blob>,
    },
}

impl Administration {
    /// Why a protocol is not asked for it.
    pub(crate) fn unknown_to(&self, protocol: &str) -> String {
        let why = match self {
            Administration::MoveLeader(_) | Administration::StepDown => "none of its replicas leads",
            Administration::AddReplica(_) | Administration::RemoveReplica(_) => {
                "its replicas are those of the deployment file, and none is added or taken out"
            }
            Administration::MoveRange { .. } | Administration::Ranges => {
                "its partitions are divided by places of the ring, and not by the order of keys"
            }
            Administration::Retire => "its clients execute nothing for each other",
        };
        format!("protocol {protocol} cannot do this: {why}")
    }

    /// Whether a client process is asked, which speaks for all partitions; else each replica of this node.
    pub fn of_client(&self) -> bool {
        matches!(self, Administration::MoveRange { .. } | Administration::Ranges | Administration::Retire)
    }
}

/// How a protocol is spoken with by what is the same for all: gateways and administration.
pub struct Registration<F: Protocol> {
    /// Where its processes stand for one keyspace of a deployment.
    pub placement: fn(&Deployment, &Keyspace) -> Result<F::Placement, ConfigErrors>,
    /// From a gateway's command.
    pub request: fn(Command) -> F::Request,
    /// From a gateway's transaction, taken up at this time; nothing where the protocol has no transactions.
    pub transaction: Option<fn(gateway::Transaction, Stamp) -> F::Request>,
    /// Where what clients were told is.
    pub durability: gateway::Durability,
    /// Whether nothing is served without a leader.
    pub led: bool,
    /// To a gateway's outcome.
    pub outcome: fn(F::Outcome) -> gateway::Outcome,
    /// The request (`P::Request` of its replicas, or of its clients where [`Administration::of_client`], boxed) that
    /// does this, if any does.
    pub administer: fn(&Administration) -> Option<Box<dyn Any + Send>>,
    /// What a replica's answer (`P::Outcome`, boxed) to that means: done, or why not.
    pub administered: fn(Box<dyn Any + Send>) -> Result<String, String>,
}

/// The protocols by name.
#[derive(Clone, Default)]
pub struct Protocols {
    rows: BTreeMap<&'static str, Arc<Row>>,
}

type Plan = dyn Fn(&Deployment, &Keyspace, NodeId) -> Result<Placed, ConfigErrors> + Send + Sync;

struct Row {
    plan: Box<Plan>,
    transactional: bool,
    administer: fn(&Administration) -> Option<Box<dyn Any + Send>>,
    administered: fn(Box<dyn Any + Send>) -> Result<String, String>,
}

/// One keyspace as one node serves it.
pub struct Placed {
    /// What it promises.
    pub guarantee: Guarantee,
    /// Where what clients were told is.
    pub durability: gateway::Durability,
    /// Whether nothing is served without a leader.
    pub led: bool,
    /// What outlives them.
    pub lasting: Lasting,
    /// The processes of this node.
    pub seats: Vec<Placement>,
}

/// One process of one node, and how it is opened.
#[derive(Clone)]
pub struct Placement {
    /// Which.
    pub id: ProcessId,
    /// Whether gateways give it commands.
    pub client: bool,
    /// Opens it.
    pub open: Arc<dyn Fn(Identity, Random) -> Box<dyn Hosted> + Send + Sync>,
}

impl Protocols {
    /// Adds a protocol under its name.
    pub fn register<F: Protocol>(&mut self, registration: Registration<F>) {
        let Registration {
            placement,
            request,
            transaction,
            durability,
            led,
            outcome,
            administer,
            administered,
        } = registration;
        let bridge = Bridging { request, transaction, outcome };
        let plan = move |deployment: &Deployment, keyspace: &Keyspace, node| {
            let placement = placement(deployment, keyspace)?;
            let mut seats = Seats::<F> { node, bridge, seats: Vec::new() };
            F::place(&placement, &mut seats);
            let (guarantee, lasting) = (F::guarantee(&placement), F::lasting(&placement));
            Ok(Placed { guarantee, durability, led, lasting, seats: seats.seats })
        };
        let transactional = transaction.is_some();
        let row = Row { plan: Box::new(plan), transactional, administer, administered };
        self.rows.insert(F::NAME, Arc::new(row));
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.keys().copied()
    }

    /// The names of those that have transactions, in order.
    pub fn transactional(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.iter().filter(|(_, row)| row.transactional).map(|(name, _)| *name)
    }

    /// The name of this protocol as long as the program lives, if it is registered.
    pub fn name(&self, name: &str) -> Option<&'static str> {
        self.rows.get_key_value(name).map(|(name, _)| *name)
    }

    /// What `node` runs for a keyspace.
    ///
    /// # Errors
    /// Its parameters are wrong, or its protocol is not in the table.
    pub fn place(
        &self,
        deployment: &Deployment,
        keyspace: &Keyspace,
        node: NodeId,
    ) -> Result<Placed, ConfigErrors> {
        match self.rows.get(keyspace.protocol.as_str()) {
            Some(row) => (row.plan)(deployment, keyspace, node),
            None => {
                let known: Vec<_> = self.names().collect();
                Err(ConfigErrors::one(
                    deployment.file(),
                    keyspace.line,
                    format!(
                        "keyspace {:?}: this program cannot run protocol {:?}",
                        keyspace.name, keyspace.protocol
                    ),
                    format!("use one of {}", known.join(", ")),
                ))
            }
        }
    }

    /// The request that asks a replica of this protocol for this.
    pub fn administer(&self, protocol: &str, what: &Administration) -> Option<Box<dyn Any + Send>> {
        (self.rows.get(protocol)?.administer)(what)
    }

    /// What a replica of this protocol has answered.
    pub fn administered(&self, protocol: &str, outcome: Box<dyn Any + Send>) -> Result<String, String> {
        match self.rows.get(protocol) {
            Some(row) => (row.administered)(outcome),
            None => Err(format!("protocol {protocol} is not known")),
        }
    }
}

/// The translations of a [`Registration`].
struct Bridging<F: Protocol> {
    request: fn(Command) -> F::Request,
    transaction: Option<fn(gateway::Transaction, Stamp) -> F::Request>,
    outcome: fn(F::Outcome) -> gateway::Outcome,
}

impl<F: Protocol> Clone for Bridging<F> {
    fn clone(&self) -> Bridging<F> {
        *self
    }
}

impl<F: Protocol> Copy for Bridging<F> {}

struct Seats<F: Protocol> {
    node: NodeId,
    bridge: Bridging<F>,
    seats: Vec<Placement>,
}

impl<F: Protocol> Assemble<F> for Seats<F> {
    fn server<P: Process<Message = F::Message>>(&mut self, id: ProcessId, setup: P::Setup) {
        if id.node == self.node {
            let open = move |identity, random| -> Box<dyn Hosted> {
                Box::new(Adapter::<P>::open(identity, &setup, None, random))
            };
            self.seats.push(Placement { id, client: false, open: Arc::new(open) });
        }
    }

    fn client<P>(&mut self, id: ProcessId, setup: P::Setup)
    where
        P: Process<Message = F::Message, Request = F::Request, Outcome = F::Outcome>,
    {
        if id.node == self.node {
            let Bridging { request, transaction, outcome } = self.bridge;
            let bridge = Bridge { request, transaction, outcome };
            let open = move |identity, random| -> Box<dyn Hosted> {
                Box::new(Adapter::<P>::open(identity, &setup, Some(bridge), random))
            };
            self.seats.push(Placement { id, client: true, open: Arc::new(open) });
        }
    }
}
