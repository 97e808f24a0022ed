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
//! | `Promising` | acceptor | candidate | a promise that takes long |
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
//! candidate how long its grants may still hold, and after a restart, which forgets grants, says a whole
//! lease; a new leader shows nothing until the longest of these has run out, except those whose holder has
//! promised it its ballot. Everything else goes through the log.
//!
//! **Membership** changes by an entry that names the members from the next slot on. Nothing is proposed
//! behind it until it is decided; one replica at a time; a new one first catches up without a vote.

pub mod log;

mod mutation;
mod parameters;

pub use mutation::Mutation;
pub use parameters::{Form, Parameters};

use crate::family::{AskingClient, Replicated};
use crate::order::Ordered;
use isochrone_core::StateMachine;

/// Multi-Paxos.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Multi-Paxos over the state machine `S`.
pub type MultiPaxos<S> = Replicated<S, Family>;
/// Where Multi-Paxos stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "multipaxos";
    const LED: bool = true;
    const COMMITS: bool = false;
    type Parameters = Parameters;
    type Order<V: Ordered> = log::Log<V>;
    type Client<S: StateMachine> = AskingClient<Family, S>;
}
