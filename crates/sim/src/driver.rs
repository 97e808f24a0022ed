//! What the simulated clients do: the caller's side of a run.

use isochrone_core::{Fact, Instant, ProcessId, Protocol, Random, Ticket};
use std::any::Any;

/// One closed loop, or one source of an open loop, on a client process.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Session {
    /// Its number, from 0, in the order of the clients' placement.
    pub number: u32,
    /// The client process it runs on.
    pub client: ProcessId,
}

/// What a session does next.
#[derive(Clone, Debug)]
pub enum Next<R> {
    /// It asks this at `at` (at once where that is past) and waits for the answer: a closed loop.
    Request {
        /// When, in true time.
        at: Instant,
        /// What.
        request: R,
    },
    /// It asks this at `at` and is asked for its next step as soon as it has: an open loop.
    Arrival {
        /// When, in true time.
        at: Instant,
        /// What.
        request: R,
    },
    /// It ends once its open tickets are answered.
    Done,
}

/// An order to the simulated cluster's operators, for the fault kind `membership`.
pub enum Admin {
    /// Asks a server process; the request must be of its `Process::Request` type. One of another type is dropped without a
    /// word, as one to a process that is down is: a test should see that what it asks for is answered.
    Request {
        /// Which process.
        process: ProcessId,
        /// What.
        request: Box<dyn Any + Send>,
    },
    /// Starts a process that was placed.
    Start(ProcessId),
    /// Stops a process.
    Stop(ProcessId),
}

/// The workload of a run. Everything is called in the deterministic order of the run; `now` is true time
/// since the start of the run. It never goes back for one session; between sessions it may by the time that
/// a turn of one node takes.
pub trait Driver<F: Protocol> {
    /// What this session does next: asked at the start, after each `completed` or `lost` of a closed loop,
    /// and after each arrival of an open one.
    fn next(&mut self, session: Session, now: Instant) -> Next<F::Request>;

    /// The session's request has been given to its client process.
    fn invoked(&mut self, _session: Session, _ticket: Ticket, _now: Instant) {}

    /// A ticket has been answered with more to come.
    fn emitted(&mut self, _session: Session, _ticket: Ticket, _outcome: F::Outcome, _now: Instant) {}

    /// A ticket has been answered for the last time.
    fn completed(&mut self, session: Session, ticket: Ticket, outcome: F::Outcome, now: Instant);

    /// The client process died with this ticket open: whether it took effect is unknown.
    fn lost(&mut self, _session: Session, _ticket: Ticket, _now: Instant) {}

    /// An answer to a request that was made with [`Simulation::request`](crate::Simulation::request).
    fn answered(&mut self, _process: ProcessId, _ticket: Ticket, _outcome: F::Outcome, _last: bool) {}

    /// A process made a mark that says this.
    fn fact(&mut self, _process: ProcessId, _fact: &Fact, _now: Instant) {}

    /// All faults have ended; sessions are expected to end within the bound.
    fn healed(&mut self, _now: Instant) {}

    /// A change of membership is due; whatever this returns is carried out.
    fn admin(&mut self, _now: Instant, _random: &mut Random) -> Vec<Admin> {
        Vec::new()
    }

    /// A server process answered an [`Admin::Request`], or one made with
    /// [`Simulation::administer`](crate::Simulation::administer); the outcome is of its
    /// `Process::Outcome` type.
    fn administered(&mut self, _process: ProcessId, _ticket: Ticket, _outcome: Box<dyn Any + Send>) {}
}

/// No workload: every session ends at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle;

impl<F: Protocol> Driver<F> for Idle {
    fn next(&mut self, _: Session, _: Instant) -> Next<F::Request> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: F::Outcome, _: Instant) {}
}
