//! Multi-Paxos in the simulator: exact latency, conversations, faults, planted bugs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types, clippy::disallowed_methods)]

mod cluster;
mod conversations;
mod directory;
mod driver;
mod failover;
mod latency;
mod machine;
mod mutations;
mod orders;
mod placement;
mod safety;
mod speed;
