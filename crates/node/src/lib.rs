//! The runtime: what turns the processes of a protocol into a node that serves clients.
//!
//! One thread per node owns its processes and its sockets ([`shard`], [`reactor`]); a journal thread syncs
//! beside it ([`journal`]); HTTP has a thread of its own. [`Node::start`](node::Node::start) puts them
//! together from a deployment and a table of [`protocols`].

#![forbid(unsafe_code)]

pub mod audit;
mod background;
mod births;
pub mod books;
pub mod cert;
mod certificates;
pub mod clock;
pub mod events;
pub mod figures;
pub mod gateway;
mod grpc;
pub mod hosted;
mod http;
pub mod hub;
pub mod io;
pub mod journal;
pub mod limits;
mod listing;
pub mod memory;
pub mod metrics;
pub mod network;
pub mod node;
pub mod outgoing;
pub mod poller;
pub mod protocols;
pub mod reactor;
pub mod redis;
mod resolver;
pub mod security;
pub mod shard;
pub mod snapshots;
pub mod transport;
