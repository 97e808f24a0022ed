//! One command, one order: protocols that replicate a state machine.
//!
//! Each protocol is a [`Family`]: an [`order::Order`], which knows ballots and quorums and no state machine,
//! with its knobs. What is the same for all is written once: the [`Replica`] around an order (state machine,
//! exactly-once table, answers, snapshots, state transfer, members), the [`Client`], the [`Placement`].
//! [`request`] is what a host may ask of any client role here, and what it is told.

#![forbid(unsafe_code)]

mod changes;
mod chunks;
pub mod client;
pub mod curp;
pub mod domino;
mod election;
pub mod epaxos;
mod family;
pub mod fastpaxos;
mod keep;
mod knobs;
pub mod mencius;
pub mod message;
pub mod multipaxos;
pub mod order;
pub mod partitions;
mod placement;
pub mod replica;
pub mod request;
mod reserve;
pub mod sdpaxos;
pub mod service;
pub mod stream;
mod target;

pub use client::Client;
pub use family::{AskingClient, CLIENT, Family, MessageOf, OrderOf, REPLICA, Replicated, Tuning};
pub use placement::Placement;
pub use replica::Replica;
pub use request::{Change, Outcome, Refusal, Request};
