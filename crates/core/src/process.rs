//! The contract between a protocol and its host.

use crate::{Blob, Effects, Identity, Mark, ProcessId, Stamp, Ticket, Wire};
use std::fmt::Debug;
use std::hash::Hash;
use thiserror::Error;

/// A protocol role: a deterministic state machine that does no I/O.
///
/// It has no clock, thread, socket, file or randomness of its own, and iterates over nothing whose
/// order is not defined. It takes one input at a time and answers with [`Effects`].
///
/// **The host's contract in one sentence**: give one input, then drain every effect in order, then
/// give the next input; nothing made after a record leaves before that record is durable.
///
/// The host's duties:
///
/// 1. *Lanes.* A `send`, `complete`, `emit` or mark waits until every earlier `record` of the same
///    process is durable; `send_ahead` and `complete_ahead` wait for nothing and may overtake;
///    `record_soon` may wait some milliseconds for company; `record_lazily` keeps its place in the journal and
///    holds nothing back.
/// 2. *Two clocks.* [`Effects::stamp`] may be wrong, jump or stand still. [`Effects::now`] never goes
///    back, runs within `drift_max` of true time, and means nothing after a restart or elsewhere.
/// 3. *Snapshots.* [`Process::snapshot`] serves this process' own restart. Once the host has it durable,
///    records made before it may go from the journal. What a peer may have travels as messages.
/// 4. *Composition.* A process may hold another, see [`Effects::lend`]; the host sees one process.
/// 5. *Tickets.* A request is answered by any number of `emit` and one `complete`; the host may
///    [`cancel`](Process::cancel) it, after which the process stays silent about it. Only the host knows the last
///    answer from the others, a holder does not ([`Effects::lend`]); and of a node only sessions are given more than
///    the first, while calls of gRPC and orders over HTTP end with it.
/// 6. *Identity.* [`Process::open`] is given an incarnation that rises at every start and is durable
///    before the first effect leaves.
/// 7. *Back-pressure.* A send never blocks and never fails: a full peer queue drops, as a network may.
/// 8. *Timers* are keyed by value: arming again replaces, and a timer fires at most once per arming.
/// 9. *Model checking.* Equal states give equal hashes.
/// 10. *Crashes.* A node crashes whole. Messages between processes of one node wait for durability
///     like any other; each process' records may be trimmed by its own snapshot only.
/// 11. *Elasticity.* Processes are started and stopped at run time.
/// 12. *Urgency.* Where messages wait on their way to a node, what was sent by [`Effects::urgently`] goes first, and what was
///     sent by [`Effects::repeating`] not until what the same sender sent before has left.
///
/// A start is `open`, then `restore` for each chunk of the newest snapshot, `replay` for each durable
/// record since, in order, then `start`. What was not durable when the node crashed is not replayed.
pub trait Process: Sized + Clone + Hash + Send + 'static {
    /// What a start needs: parameters, membership, an empty state machine.
    type Setup: Clone + Send + Sync + 'static;
    /// One enum for all roles of the protocol.
    type Message: Wire;
    /// What it writes ahead to its journal.
    type Record: Wire;
    /// What its host asks of it: of a client role a command, of a replica administration.
    type Request: Clone + Debug + Send + 'static;
    /// What it answers.
    type Outcome: Clone + Debug + Send + 'static;
    /// A few variants, keyed by instance where it must be.
    type Timer: Clone + Ord + Hash + Debug + Send + 'static;
    /// Its notes.
    type Mark: Mark;

    /// The process as it was before its first record.
    fn open(identity: Identity, setup: &Self::Setup) -> Self;

    /// Takes in one chunk of its own newest snapshot, in order, before any record.
    ///
    /// # Errors
    /// Refuses a chunk that no version of this process has written.
    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed>;

    /// Takes in one durable record, in order, before [`Process::start`].
    fn replay(&mut self, record: Self::Record);

    /// Begins to act. Nothing was sent or armed before.
    fn start(&mut self, effects: &mut Effects<Self>);

    /// A message of a peer (or of itself) has arrived. It may be lost, late, doubled or out of order.
    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>);

    /// The host asks for something; the answer names the ticket.
    fn request(&mut self, ticket: Ticket, request: Self::Request, effects: &mut Effects<Self>);

    /// The host no longer wants the answer to this ticket. What was begun may still take effect.
    fn cancel(&mut self, _ticket: Ticket, _effects: &mut Effects<Self>) {}

    /// A timer has run out. A late firing is harmless: the handler looks at the state.
    fn expire(&mut self, timer: Self::Timer, effects: &mut Effects<Self>);

    /// No more input is at hand: what was gathered goes now. This is what makes batches.
    fn settle(&mut self, _effects: &mut Effects<Self>) {}

    /// The durable state so far, in bounded chunks, votes and promises included, for its own restart
    /// only. The iterator reads an immutable view, so it can be drained on another thread while the
    /// process goes on. `None` from a process that keeps nothing worth one.
    fn snapshot(&self) -> Option<Snapshot>;

    /// Keys that are past their deadline at this stamp in the state that it holds ([`crate::StateMachine::overdue`]): the host has
    /// clients ask for their deletion.
    fn overdue(&self, _stamp: Stamp, _most: usize) -> Vec<Blob> {
        Vec::new()
    }

    /// Asserts the named invariants of this role; the simulator calls it after every input.
    fn check(&self) {}
}

/// The chunks of a snapshot, in order, each of bounded size.
pub type Snapshot = Box<dyn Iterator<Item = Blob> + Send>;

/// Bytes of a snapshot or of a transfer that no version of this program has written.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
#[error("malformed {what}: {cause}")]
pub struct Malformed {
    /// What was read, e.g. "store chunk".
    pub what: &'static str,
    /// Where it stopped making sense.
    pub cause: String,
}
