//! The Redis gateway: RESP2 and RESP3 on one side, [`Operation`](isochrone_core::command::Operation)s on
//! the other. Sans-IO: a [`Connection`] is a [`Session`](crate::gateway::Session) that a shard drives.
//!
//! * [`table`] is the one definition of every command: name, number of arguments, flags, keys, chapter,
//!   what it is understood as, and how it differs from Redis. The parser, COMMAND, HELP, the metrics' names
//!   and the table in `docs/redis.md` derive from it. [`commands`] holds its rows.
//! * A request is read in place ([`request`]), found in the table, and becomes either a reply at once or a
//!   [`Request`](crate::gateway::Request) of the shard. All requests of a pipeline go out together;
//!   [`pipeline`] puts their replies back in order.
//! * Where somebody wants to hear of events of keys, [`report`] has commands say what they do.
//! * Whatever would make two replicas differ is decided here: relative expiries become absolute by the
//!   stamp of the command, random choices carry a seed (`specs/curp.md` 7.3).
//!
//! Requests are parsed here, not by the crate `redis-protocol`: that one decodes a request into a tree of
//! frames, from its beginning whenever more bytes have come, without a limit on sizes; here a request is a
//! list of spans in the input, read once however it is cut, refused where it passes a limit before it has
//! arrived, with Redis' own texts, the inline form included.
//!
//! Cost of a GET or SET: one allocation a key and a value, one copy of each, and another while it is under way for
//! [`slowlog`], one look-up of the name; nothing else is allocated in steady state.

mod absent;
pub mod acl;
mod args;
mod audit;
mod blocking;
pub(crate) mod call;
mod catalog;
mod clients;
mod commands;
mod complaint;
mod config;
mod connection;
pub(crate) mod digest;
mod durability;
mod emptying;
mod fuzz;
mod info;
mod latency;
mod login;
mod looking;
mod lookups;
mod monitor;
mod payload;
mod pipeline;
mod places;
mod pubsub;
mod reply;
mod report;
mod request;
mod scripts;
mod shape;
mod slowlog;
mod spec;
mod steps;
mod table;
mod transaction;

pub use catalog::page;
pub use connection::Connection;
pub(crate) use connection::FLOODED;
pub use fuzz::fuzz_resp;
pub use payload::{fuzz_payload, undumped};
pub use scripts::Scripts;
pub use slowlog::Slowlog;

use crate::gateway::{Context, Gateway, Session};

/// Makes the connections of a Redis listener.
#[derive(Clone, Debug, Default)]
pub struct RedisGateway;

impl Gateway for RedisGateway {
    fn accept(&mut self, context: &mut Context<'_>) -> Box<dyn Session> {
        Box::new(Connection::new(context))
    }

    fn refuse(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"-ERR max number of clients reached\r\n");
    }
}

#[cfg(test)]
mod tests;
