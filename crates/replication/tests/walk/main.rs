//! Orders in which messages may arrive, timers fire and replicas crash, in small worlds: each is seen whole where that is
//! possible, and walked at random where it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types, clippy::disallowed_methods)]

mod close;
mod curp_consensus;
mod domino;
mod epaxos;
mod failover;
mod fastpaxos;
mod mencius;
mod model;
mod multipaxos;
mod network;
mod node;
mod sdpaxos;
mod steps;
mod walk;
#[allow(dead_code)]
mod world;
