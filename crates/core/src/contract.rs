//! The contract tests that both hosts pass: one function for each of the twelve points of [`Process`].
//!
//! A host implements [`ContractHost`] and calls [`run_all`], or one `point_` function a test. The tests
//! run [`Probe`]s, processes that do what a script tells them, and [`Holder`]s, which hold a probe.
//! Everything a probe is given goes into the [`Log`] at that moment; the host adds what leaves towards
//! it, answers and marks. The tests read the log.
//!
//! [`Process`]: crate::Process

mod holder;
mod log;
mod points;
mod probe;

pub use holder::{Holder, HolderMark, HolderRecord, HolderTimer};
pub use log::{Log, Seen};
pub use points::*;
pub use probe::{Act, Label, Note, Probe, ProbeSetup};

use crate::{
    Assemble, Guarantee, KeyspaceId, NodeId, PartitionId, Process, ProcessId, Protocol, Role, Span, Ticket,
};

/// The protocol of the contract tests: its processes are started one by one by the tests, so its
/// placement places nothing.
#[derive(Debug)]
pub struct Contract;

impl Protocol for Contract {
    const NAME: &'static str = "contract";
    type Message = Note;
    type Request = Vec<Act>;
    type Outcome = u32;
    type Placement = ();

    fn guarantee(_: &()) -> Guarantee {
        Guarantee::Linearizable
    }

    fn place(_: &(), _: &mut impl Assemble<Contract>) {}
}

/// What a host must be able to do for the contract tests. Each `point_` function starts with
/// [`ContractHost::reset`]; calls take effect in order.
///
/// A host in real time may take longer, never less: the tests only wait by [`ContractHost::quiesce`] and
/// [`ContractHost::run_for`], and their spans are tens of milliseconds.
pub trait ContractHost {
    /// Throws everything away and makes a cluster of this many nodes, all up, with no process and empty
    /// journals. Answers and marks go to this log from now on.
    fn reset(&mut self, nodes: u16, log: &Log);

    /// Starts a process on its node, at run time. Where the node's journal knows it from an earlier life,
    /// it is brought back by `restore` and `replay`, with a higher incarnation.
    fn start<P>(&mut self, id: ProcessId, setup: P::Setup)
    where
        P: Process<Message = Note, Request = Vec<Act>, Outcome = u32>;

    /// Stops one process: it gets no input any more. What it recorded stays in the journal.
    fn stop(&mut self, id: ProcessId);

    /// Asks a running process. Tickets are never used twice in one test.
    fn request(&mut self, id: ProcessId, ticket: Ticket, script: Vec<Act>);

    /// Cancels a ticket.
    fn cancel(&mut self, id: ProcessId, ticket: Ticket);

    /// From now on nothing becomes durable on this node: a sync that is begun does not end.
    fn freeze_disk(&mut self, node: NodeId);

    /// The disk works again, and syncs that were held up end.
    fn thaw_disk(&mut self, node: NodeId);

    /// Crashes a node whole. What was not durable is lost, but for a prefix of it at most.
    fn crash(&mut self, node: NodeId);

    /// Starts a crashed node and every process that ran on it when it crashed.
    fn restart(&mut self, node: NodeId);

    /// Takes a snapshot of this process, makes it durable, and trims the process' records before it.
    fn snapshot(&mut self, id: ProcessId);

    /// Cuts or mends the network between two nodes, both ways.
    fn connect(&mut self, a: NodeId, b: NodeId, connected: bool);

    /// Steps the wall clock of a node by this many nanoseconds, which may be negative.
    fn step_wall_clock(&mut self, node: NodeId, nanos: i64);

    /// Runs until nothing is under way any more: no message, no sync that can end, no input at hand.
    /// Armed timers may be left.
    fn quiesce(&mut self);

    /// Runs for this long by the steady clock of the nodes, then until nothing is under way.
    fn run_for(&mut self, span: Span);
}

/// The name that the tests give a process: its node, and a number on it.
pub fn process(node: u16, instance: u8) -> ProcessId {
    ProcessId {
        node: NodeId(node),
        keyspace: KeyspaceId(1),
        partition: PartitionId(0),
        role: Role(0),
        instance,
    }
}
