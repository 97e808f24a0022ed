//! Snapshots of processes, so that a restart replays little and the journal can be trimmed.
//!
//! They live in an embedded engine (`fjall`) below the journal. Whatever the engine does wrong may cost a rebuild,
//! never an acknowledged write (`trust.md`, "The journal is ours"), by four rules:
//!
//! 1. **Two generations.** After a snapshot is written, synced and *read back* with its checksums, the journal is
//!    trimmed only up to the sound snapshot *before* it. One snapshot that turns out damaged later is survived on the
//!    spot: the one before it and the records since are still there.
//! 2. **Never ahead.** A snapshot at position `P` holds the effect of every record of its stream before `P`. Its
//!    writing waits until the journal is durable that far. So a snapshot that is ahead of a recovered journal proves
//!    that the journal lost durable records, and the node refuses.
//! 3. **Never emptier.** The journal says, for each stream, which records may be missing. A start that finds no sound
//!    snapshot at that position or later refuses to serve; it does not go on with what is left.
//! 4. **Never trusted.** Every chunk carries our checksum, bound to its stream, number and place; the manifest, the
//!    last thing written, is bound to the directory as the journal's segments are: a snapshot that was made in another
//!    directory is refused. A panic of the engine is caught and counts as damage; what the system denies does not.
//!
//! One snapshot is one database of the engine, in a directory of its own, open only while it is written or read: damage
//! stays where it is, removing is removing a directory, and reading back after writing reads what a start would read.
//! It is filled by the engine's bulk ingestion: tables go to disk and are synced without passing through the engine's own
//! journal, whose errors it has been known to drop.
//!
//! A shard starts with [`Start::open`]:
//!
//! ```no_run
//! # use isochrone_node::{journal::*, snapshots::*};
//! # fn run(directory: DataDirectory, streams: Vec<StreamId>) -> Result<(), SnapshotError> {
//! let mut start = Start::open(directory, JournalOptions::new(7, 1))?;
//! for stream in streams {
//!     // make the process with start.incarnation()
//!     if let Some(snapshot) = start.snapshot(stream)? {
//!         for chunk in snapshot.chunks { let _restore = chunk?; }
//!     }
//! }
//! start.replay(|stream, payload| { /* decode, process.replay */ })?;
//! let (journal, store) = start.finish();
//! # Ok(()) }
//! ```

mod error;
mod start;
mod store;
mod thread;

pub use error::SnapshotError;
pub use start::{Found, Start};
pub use store::{SnapshotInfo, SnapshotStore};
pub use thread::{SnapshotMetrics, SnapshotThread, Written};

#[cfg(test)]
mod tests;
