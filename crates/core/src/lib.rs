//! The vocabulary of Isochrone: identities, time, topology, quorums, commands, and the contract
//! between a protocol and its host ([`Process`], [`Effects`], [`Wire`]).
//!
//! Everything here is deterministic and does no I/O (but for [`deployment`], which reads its files). A protocol (crate `replication` and the rooms
//! above it) is written against this crate only; the simulator (`sim`) and the runtime (`node`) are
//! the two hosts of what it writes. [`contract`] holds the tests that both hosts pass.

pub mod blob;
pub mod contract;
pub mod deployment;
pub mod effects;
pub mod guarantee;
pub mod id;
pub mod machine;
pub mod mark;
pub mod process;
pub mod protocol;
pub mod random;
pub mod time;
pub mod topology;
pub mod wire;

pub use blob::Blob;
pub use deployment::{ConfigErrors, Deployment, Known};
pub use effects::{Effect, Effects, Lane, Loan, Outbox, Wrap};
pub use guarantee::Guarantee;
pub use id::{
    ClientId, CommandId, Identity, KeyspaceId, NodeId, PartitionId, ProcessId, RegionId, ReplicaId, Role,
    Ticket,
};
pub use machine::{Export, StateMachine};
pub use mark::{Fact, Mark, Path, Phase};
pub use process::{Malformed, Process, Snapshot};
pub use protocol::{Assemble, Protocol};
pub use random::Random;
pub use time::{Instant, Span, Stamp};
pub use topology::Matrix;
pub use wire::{DecodeError, Wire};
