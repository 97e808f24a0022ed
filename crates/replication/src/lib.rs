//! One command, one order: protocols that replicate a state machine, and the directory over them.
//!
//! Each protocol is a module with the same rooms (`mod.rs`, `message.rs`, `replica.rs`, `client.rs`,
//! `tests.rs`); what they share lives in `isochrone-core`. [`request`] is what a host may ask of any client
//! role here, and what it is told.

pub mod directory;
pub mod multipaxos;
pub mod order;
pub mod request;

pub use request::{Change, Outcome, Refusal, Request};
