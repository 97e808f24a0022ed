//! The protocols in the simulator: exact latency, conversations, faults, planted bugs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types, clippy::disallowed_methods)]

mod behind;
mod cluster;
mod curp;
mod curp_consensus;
mod domino;
mod driver;
mod epaxos;
mod fastpaxos;
mod givers;
mod grown;
mod latency;
mod machine;
mod mencius;
#[path = "../walk/model.rs"]
mod model;
mod multipaxos;
mod mutations;
mod partitions;
mod pipelines;
mod safety;
mod sdpaxos;
mod slow_lines;
mod straggler;
mod talk;
