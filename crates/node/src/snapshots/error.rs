//! What can go wrong with snapshots.

use std::path::PathBuf;

use crate::journal::{JournalError, Position, REPLACE, StreamId};

/// Why a snapshot cannot be written or read, or a node cannot start from what it has.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The engine failed.
    #[error("{}: the snapshot engine cannot {action}: {cause}", path.display())]
    Engine {
        /// The engine's directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What it said.
        cause: String,
    },

    /// One snapshot is damaged.
    #[error("{}: snapshot {number} of process {stream} is damaged: {what}", path.display())]
    Damaged {
        /// The engine's directory.
        path: PathBuf,
        /// Whose it is.
        stream: StreamId,
        /// Which of its snapshots.
        number: u64,
        /// What is wrong.
        what: String,
    },

    /// Written by a later version of this program.
    #[error(
        "{}: snapshots written by a newer version of isochrone: found format {found}, this version reads up to \
         {supported}. Start the version that wrote them, or a later one.", path.display()
    )]
    NewerFormat {
        /// The engine's directory.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this version reads.
        supported: u32,
    },

    /// The journal was trimmed behind a snapshot that is no longer there.
    #[error(
        "{}: process {stream} needs a snapshot at position {mark} or later, because the journal no longer holds its \
         earlier records, and none is readable ({found}). Nothing was changed. Starting would forget acknowledged \
         writes; {REPLACE}.", path.display()
    )]
    Lost {
        /// The engine's directory.
        path: PathBuf,
        /// Whose it is.
        stream: StreamId,
        /// The journal holds this process' records only from here on.
        mark: Position,
        /// What there is instead.
        found: String,
    },

    /// The journal ends before a snapshot that was durable.
    #[error(
        "{}: the journal ends at position {last}, but a snapshot of process {stream} proves that it was durable up to \
         position {position}. Nothing was changed. Acknowledged records are missing; \
         {REPLACE}.", path.display()
    )]
    JournalBehind {
        /// The data directory.
        path: PathBuf,
        /// Whose snapshot it is.
        stream: StreamId,
        /// The last record of the journal.
        last: Position,
        /// The last record that the snapshot holds.
        position: Position,
    },

    /// The journal failed, or stopped before the snapshot could be finished.
    #[error(transparent)]
    Journal(#[from] JournalError),

    /// The node is stopping; the snapshot was given up.
    #[error("the snapshot was given up because the node is stopping")]
    Stopping,
}
