//! Fast Paxos: clients ask all replicas at once, and equal votes of a fast quorum commit in one round trip.
//!
//! **What it is.** One instance for each index of a log. A client sends its command to every replica; each
//! votes for it at its next free index. Where a fast quorum votes alike the command has its place, without a
//! leader. Where commands of several clients arrive in different orders they collide, and a coordinator
//! recovers the index in a classic ballot. Everyone executes the indices in order.
//! Source: Lamport, *Fast Paxos*, as the baseline of `specs/domino.md` 5, with the recovery rule of 3.5 and
//! the failover of 4.4, times replaced by indices.
//!
//! **What it promises.** Linearizable, with each client command executed exactly once. With `reply =
//! "commit"`, blind writes are answered when their place is certain: durable and in one order, which need not
//! be the order in which clients saw them answered.
//!
//! **What it assumes.** Crash faults of a minority, fair-lossy links, no clock.
//!
//! **What it costs.** A client waits for the round trip to the farthest of the nearest fast quorum. A
//! collision, or too few replicas for a fast quorum, costs the way through the coordinator: all votes to it,
//! its round trip to a majority, and the way to the client.
//!
//! **What survives.** Anything but the loss of a majority's journals. A fast commit needs `q` live replicas;
//! with fewer, every command is recovered.
//!
//! **Who stands where.** One replica on each node listed, one client on every node.
//!
//! | message | from | to | in |
//! |---|---|---|---|
//! | `Requests`, `Replies` | client, replica | replica, client | commands |
//! | `Votes`, `Cast` | replica | coordinator (or all replicas), client | fast ballot |
//! | `Ask`, `Report` | coordinator, replica | replica, coordinator | votes that are late, indices kept free |
//! | `Accept`, `Accepted` | coordinator, replica | replica, coordinator | classic ballot |
//! | `Commit`, `Placed` | coordinator | replica, client | decisions |
//! | `Submit` | replica | coordinator | commands that found no place |
//! | `Heartbeat`, `Heard` | coordinator, replica | replica, coordinator | who lives, what is decided |
//! | `Poll`, `Polled` | replica | replica | pre-vote |
//! | `Prepare`, `Promised`, `Open` | candidate, replica, coordinator | replica, candidate, replica | a new reign |
//! | `Promising` | replica | candidate | phase 1, where a promise takes long |
//! | `Rejected` | anyone | one with an old reign | both ballots, phase 1 |
//! | `Fetch`, `Learned`, `Trimmed` | one who lacks, anyone | anyone, one who lacks | repair |
//! | `Hello`, `Ended` | client, replica | replica, client | who the members are |
//! | `Handover` | anyone | heir | change of the coordinator |
//!
//! | replicas n | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|
//! | majority m | 1 | 2 | 2 | 3 | 3 | 4 | 4 |
//! | fast quorum q, `2q + m > 2n` | 1 | 2 | 3 | 3 | 4 | 5 | 6 |
//!
//! ```text
//!  client       coordinator     replica       replica
//!    |  Requests     |             |             |
//!    |-------------->|------------>|------------>|     from the client to each
//!    |  Cast         | own vote    | vote        | vote       each behind its record
//!    |<--------------|             |             |
//!    |<----------------------------|             |
//!    |<------------------------------------------|     q equal votes: committed
//!    |               |   Votes     |             |
//!    |               |<------------|-------------|     q equal votes: decided, executed
//!    |    Replies    |             |             |
//!    |<--------------|   Commit    |             |
//!    |               |------------>|------------>|
//!                       votes differ:
//!    |               |   Accept    |             |     what the votes oblige to, else any
//!    |               |------------>|------------>|
//!    |               |  Accepted   |             |
//!    |    Replies    |<------------|-------------|     m: decided
//!    |<--------------|
//! ```
//!
//! **Recovery.** The coordinator recovers an index as soon as no fast quorum is possible any more or all
//! whose votes it lacks are suspected, or lag so far behind that they cast none there. What the replicas told
//! of the fast ballot is phase 1 of the classic one: `|Q| + q - n` equal votes oblige. Where nothing does, the
//! index takes the commands that collided there, the one with most votes first. A command that loses
//! everywhere, or that reached too few, gets an index that replicas are asked to keep free of fast votes.
//! Copies are told apart at execution.
//!
//! **Reigns.** A coordinator's reign has one ballot number with a fast and, above it, a classic step. The
//! first reign is open to fast votes from the start. A later one begins with promises of a majority; fast
//! votes go on behind everything these have voted for. A restarted coordinator begins a new reign.
//!
//! **Membership** changes by a stop. No fast vote may place a command behind it, so the coordinator begins a
//! reign without fast votes and ends the order there.
//!
//! **Differs from the source.** A recovered index may hold several commands. Votes that are late are asked
//! for, and a replica that is asked casts none there any more; so a command lost on the way to one replica
//! holds up nothing for longer than that. A stop ends fast votes first.

mod acceptor;
mod client;
mod coordinator;
mod election;
mod journal;
mod learner;
mod message;
mod mutation;
mod order;
mod parameters;
mod process;
pub mod rule;
mod waiting;

pub use client::Client;
pub use message::{Message, Name, Note, Outcome, Promised, Record, Timer, Values, Vote};
pub use mutation::Mutation;
pub use order::Order;
pub use parameters::{Learners, Parameters};

use crate::order::Ordered;
use isochrone_core::StateMachine;

/// Fast Paxos.
#[derive(Copy, Clone, Debug)]
pub struct Family;

/// Where Fast Paxos stands.
pub type Placement<S> = crate::Placement<S, Family>;

impl crate::Family for Family {
    const NAME: &'static str = "fastpaxos";
    const LED: bool = false;
    const COMMITS: bool = true;
    const LEADER_FIXED: bool = true;
    type Parameters = Parameters;
    type Order<V: Ordered> = Order<V>;
    type Client<S: StateMachine> = Client<S>;
}
