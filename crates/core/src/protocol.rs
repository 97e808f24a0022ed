//! A protocol as a whole: its name, its guarantee, and where its processes stand.

use crate::{Guarantee, NodeId, Process, ProcessId, Span, Wire};
use std::fmt::Debug;

/// A family of processes that serve one keyspace together.
///
/// It names its processes once, in [`Protocol::place`]; a host is a visitor of that placement, so the
/// simulator and the runtime are built from the same lines.
pub trait Protocol: Sized + 'static {
    /// The name on the command line and in deployment files.
    const NAME: &'static str;
    /// One enum for all roles.
    type Message: Wire;
    /// What a client role is asked.
    type Request: Clone + Debug + Send + 'static;
    /// What it answers.
    type Outcome: Clone + Debug + Send + 'static;
    /// Where the processes stand and how they are tuned; parsed from the deployment, so it cannot be wrong.
    type Placement: Clone + Send + Sync + 'static;

    /// What the keyspace promises, given its parameters.
    fn guarantee(placement: &Self::Placement) -> Guarantee;

    /// What must outlive the processes of a node, and is in no log.
    fn lasting(_: &Self::Placement) -> Lasting {
        Lasting::default()
    }

    /// Names every process of the keyspace. A node keeps its own, the simulator all.
    fn place(placement: &Self::Placement, host: &mut impl Assemble<Self>);
}

/// What a keyspace's data and promises rest on although no log says it: who runs its processes remembers it, since the
/// next deployment file may say otherwise.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Lasting {
    /// What must not change while the data lives, by the names and values of deployment files: under another value what is
    /// in the logs would mean something else.
    pub fixed: Vec<(&'static str, String)>,
    /// Who leads first, where nobody votes for that one: with two of them, two would lead.
    pub leader: Option<NodeId>,
    /// Nodes beside the replicas of the file that may come to hold what the others rest on: more may be named, none may go.
    pub spares: Vec<NodeId>,
    /// How long what one of the processes granted may bind it after a restart that forgot it.
    pub leases: Span,
}

/// What a host does with a placement; implemented once by the simulator and once by the node.
pub trait Assemble<F: Protocol> {
    /// A process that serves: a replica, witness, coordinator.
    fn server<P: Process<Message = F::Message>>(&mut self, id: ProcessId, setup: P::Setup);

    /// A process that asks on behalf of clients: the half of the protocol that a gateway hosts.
    fn client<P>(&mut self, id: ProcessId, setup: P::Setup)
    where
        P: Process<Message = F::Message, Request = F::Request, Outcome = F::Outcome>;
}
