//! The vocabulary of Isochrone: identities, time, topology, quorums, commands, and the contract
//! between a protocol and its host ([`Process`], [`Effects`], [`Wire`]).
//!
//! Everything here is deterministic and does no I/O (but for [`deployment`], which reads its files, and `shape`, which is for tests). A protocol (crate `replication` and the rooms
//! above it) is written against this crate only; the simulator (`sim`) and the runtime (`node`) are
//! the two hosts of what it writes. [`contract`] holds the tests that both hosts pass.

#![forbid(unsafe_code)]

pub mod ballot;
pub mod blob;
pub mod clock_floor;
pub mod command;
pub mod conflict;
pub mod contract;
pub mod delay;
pub mod deployment;
pub mod effects;
pub mod few;
pub mod frontier;
pub mod geo;
pub mod glob;
pub mod graph;
pub mod guarantee;
pub mod hash;
pub mod id;
pub mod intervals;
pub mod lease;
pub mod link;
pub mod machine;
pub mod mark;
pub mod migration;
mod mutations;
pub mod notify;
pub mod once;
pub mod process;
pub mod protocol;
pub mod quorum;
pub mod random;
pub mod repeats;
pub mod series;
#[doc(hidden)]
pub mod shape;
pub mod slots;
pub mod suspicion;
pub mod table;
pub mod time;
pub mod topology;
pub mod transfer;
pub mod waiters;
pub mod wire;

pub use ballot::{Admit, Ballot, Promise};
pub use blob::Blob;
pub use clock_floor::ClockFloor;
pub use command::{Command, Conflict, Operation, Response};
pub use conflict::{ConflictIndex, Entry, TouchSet};
pub use delay::{DelayEstimate, RoundTrip, SignedSpan};
pub use deployment::{ConfigErrors, Deployment, Known};
pub use effects::{Effect, Effects, Haste, Lane, Loan, Outbox, Urgency, Wrap};
pub use few::Few;
pub use frontier::Frontier;
pub use graph::{Closed, Graph};
pub use guarantee::Guarantee;
pub use hash::{key_hash, key_tag};
pub use id::{
    ClientId, CommandId, Identity, KeyspaceId, NodeId, PartitionId, ProcessId, RegionId, ReplicaId, Role,
    Ticket,
};
pub use intervals::IntervalMap;
pub use lease::{Lease, LeaseTerms};
pub use link::{Numbered, OrderedLink};
pub use machine::{Export, Footprint, StateMachine};
pub use mark::{Fact, Mark, Path, Phase};
pub use once::{OnceTable, Seen};
pub use process::{Malformed, Process, Snapshot};
pub use protocol::{Assemble, Lasting, Protocol};
pub use quorum::{Count, FastQuorums, Quorums, ReplicaSet, SizeError, Tally, Votes};
pub use random::Random;
pub use repeats::Repeats;
pub use series::Series;
pub use slots::{Slot, SlotLog};
pub use suspicion::{Looks, Suspicion};
pub use table::Table;
pub use time::{Instant, Span, Stamp};
pub use topology::Matrix;
pub use transfer::{Offers, Pull, Pulled};
pub use waiters::Waiters;
pub use wire::{DecodeError, Wire};
