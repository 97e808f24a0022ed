//! Multi-Paxos in the simulator: exact latency, conversations, faults, planted bugs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod conversations;
mod directory;
mod driver;
mod latency;
mod machine;
mod mutations;
mod safety;
mod speed;
