//! The protocol journal: what the processes of one shard must not forget, in one file after another.
//!
//! A shard's processes write records; the journal appends them, many at a time, with one write and one sync, and
//! tells how far they are durable. At the next start it gives every record back, in order, or refuses to start.
//! Source: `design.md`, "The runtime"; the promises are R11 to R13 of `trust.md`.
//!
//! # What is on disk
//!
//! ```text
//! DIR/LOCK                              held while a process has the directory open
//! DIR/KEYSPACES                         which keyspaces its streams belong to (`node::layout`)
//! DIR/IDENTITY                          whose it is, as each segment says too; written after the first of them
//! DIR/journal/segment-…0001.journal     zero-filled ahead, so that a sync changes no length
//! DIR/journal/spare-…0007.journal       given back segments and ones made ahead of time
//! DIR/snapshots/                        the embedded engine; rebuildable
//! ```
//!
//! The bytes are described in [`format`](self::format). A *frame* is what one write and one sync made durable; it
//! carries its own number and the number of the last frame known durable before it was written. A hash chain runs
//! through all frames.
//!
//! # Torn or corrupt
//!
//! A crash may leave the newest frame half written. A flipped bit may damage any frame. Only the first may be dropped.
//! Which one it is, when the frame numbered `n` cannot be read:
//!
//! 1. The writer starts no frame before the sync of the one before has returned. So *any* readable later frame says
//!    "`n` is durable": that is corruption, and the journal refuses. So does a bad frame in any but the newest
//!    segment, a segment missing in the middle, at the front (before what the `Oldest` entries allow) or at the end
//!    (the one before says that a next one was durable), and a journal that ends before a durable snapshot's position.
//! 2. If nothing later is readable, frame `n` is the newest. It was never acknowledged, or it was acknowledged
//!    and damaged afterwards. The bytes cannot tell, and the frame is dropped: that is the limit of one node's evidence.
//!    To keep that limit narrow, the journal writes a *seal* when it has been idle for [`SEAL_AFTER`] and
//!    when it is closed: the number of the newest frame, synced, in the last sector of the segment, far from that frame. What remains is damage to the last frame of a node that crashed within
//!    that time of writing it. A protocol's quorum does not in general cover this: if the dropped frame held a vote
//!    that completed a quorum, the node has forgotten it. A deployment that wants to survive *that* needs the node to
//!    rejoin as a replacement whenever [`Recovered::torn`] names a frame and its disk is suspect.
//! 3. With `fsync = off` several frames may be unsynced at once; each says honestly what was durable before it, so
//!    the same rule drops them all and never calls them corrupt.
//!
//! Any error is final: the journal accepts nothing more, the node stops. After a failed sync the page cache says one
//! thing and the disk another, and a second sync would report success (the mistake known as fsyncgate). Where the file
//! system lets them, writes go past that cache (`O_DIRECT`), which is cheaper as well.

mod activation;
mod batch;
mod directory;
mod disk;
mod error;
pub mod faulty;
pub mod format;
mod metrics;
mod recovery;
mod segments;
mod thread;
mod writer;

pub use batch::{Batch, Fsync, JournalOptions};
pub use directory::{DataDirectory, Expect, TRIAL, make};
pub(crate) use directory::{SNAPSHOTS, put};
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::JournalError;
pub(crate) use error::REPLACE;
pub use format::{Position, StreamId};
pub use metrics::{DurationHistogram, JournalMetrics};
pub(crate) use recovery::Newest;
#[cfg(test)]
pub(crate) use recovery::newest;
pub use recovery::{Recovered, Torn};
pub use segments::Holder;
pub use thread::{DurableMark, JournalThread, SEAL_AFTER};
pub use writer::Journal;

#[cfg(test)]
mod tests;
