//! Many keys, atomically: protocols for transactions over partitions that are replicated each in some regions.
//!
//! Each protocol is a [`Family`]: a server for each replica of a partition and a client, with its knobs. What is the
//! same for all is written once: what a host may ask and is told ([`request`]), where partitions stand ([`Map`],
//! [`Placement`]).

#![forbid(unsafe_code)]

mod around;
pub mod carousel;
mod census;
pub mod commands;
pub mod directory;
mod family;
pub mod group;
mod leaders;
mod limits;
pub mod listing;
pub mod locks;
mod map;
mod placement;
pub mod request;
pub mod retry;
mod said;
pub mod tapir;
pub mod twopc;

pub use family::{CLIENT, Client, Family, SERVER, Server, Transactional, Tuning};
pub use limits::Bounds;
pub use map::{Distances, Group, Map, Split};
pub use placement::Placement;
pub use request::{Outcome, Read, Reason, Refusal, Request, TxnId, Update};
