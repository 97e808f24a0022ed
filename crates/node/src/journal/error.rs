//! What can go wrong with the journal. Every one of these stops the node: there is no retry, because after a
//! failed write or sync nobody knows what the disk holds.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;

/// What to do where a node's data is lost. Never that it be started with an empty directory: it would promise again,
/// differently, what it has promised.
pub(crate) const REPLACE: &str = "do not start this node again with another directory, which would be without what it has \
    promised: put a node of another name in its place (docs/operations.md, \"A node that has lost its disk, or whose journal \
    is damaged\")";

/// Why the journal, or the data directory it lives in, cannot be used. Each message says the file, what was
/// found, what was expected, and the cure.
///
/// Cloned freely: the first error of a journal is kept and given to everyone who asks afterwards.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The directory belongs to another deployment.
    #[error(
        "{}: this data directory belongs to another cluster: found cluster {found:016x}, expected {expected:016x}. \
         Name this node's own directory; a new one only where it has never run.", path.display()
    )]
    OtherCluster {
        /// The file that says so.
        path: PathBuf,
        /// The cluster id in the file.
        found: u64,
        /// The cluster id of this deployment.
        expected: u64,
    },

    /// The directory belongs to another node of this deployment.
    #[error(
        "{}: this data directory belongs to another node: found node {found}, expected node {expected}. \
         Two nodes must never share a directory: name this node's own with --data.", path.display()
    )]
    OtherNode {
        /// The file that says so.
        path: PathBuf,
        /// The node id in the file.
        found: u16,
        /// The id of this node.
        expected: u16,
    },

    /// The file was written by a later version of this program.
    #[error(
        "{}: written by a newer version of isochrone: found format {found}, this version reads up to {supported}. \
         Nothing was changed. Start the version that wrote it, or a later one.", path.display()
    )]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The format in the file.
        found: u32,
        /// The newest format this version reads.
        supported: u32,
    },

    /// The directory holds something, but nothing of ours.
    #[error(
        "{}: not an isochrone data directory: found `{entry}` but no IDENTITY file. \
         Name this node's own directory; an empty or a new one only where it has never run.", path.display()
    )]
    NotIsochrone {
        /// The directory.
        path: PathBuf,
        /// One thing that lies in it.
        entry: String,
    },

    /// Something that is no directory stands where one belongs.
    #[error("{}: this is no directory, and a node's data needs one. Name a directory, or one that does not exist yet.", path.display())]
    NoDirectory {
        /// What is no directory.
        path: PathBuf,
    },

    /// There is no such place for a directory.
    #[error("{}: cannot make the directory: {cause}. Name a directory that this user can make.", path.display())]
    NoPlace {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        cause: Arc<io::Error>,
    },

    /// The directory was expected to hold a node's data and holds none.
    #[error(
        "{}: no data of this node is here, but this node has run before. Mount the right disk; if the disk is lost, \
         {REPLACE}.", path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },

    /// Another process has the directory open.
    #[error(
        "{}: locked by another process: an isochrone node is already running on this data directory. \
         Stop it first.", path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },

    /// Something that was durable is damaged.
    #[error(
        "{}: corrupt at byte {offset}: {what}. Nothing was changed. Records that this node acknowledged are damaged; \
         {REPLACE}.", path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong, and what proves that it had been durable.
        what: String,
    },

    /// A segment that was durable is gone.
    #[error(
        "{}: segment {sequence} of the journal is missing: {why}. Nothing was changed. Put the file back; if it is \
         lost, {REPLACE}.", path.display()
    )]
    SegmentMissing {
        /// The directory that should hold it.
        path: PathBuf,
        /// The segment's sequence number.
        sequence: u64,
        /// What proves that it existed.
        why: String,
    },

    /// The journal knows less than a file beside it.
    #[error(
        "{}: this journal is an old copy: the last start of this node that it knows of is number {found}, and {} knows of \
         number {known}. Nothing was changed. What this node has acknowledged since is not in it: put the newest journal of \
         this node in its place, and nothing else with it; if that is lost, {REPLACE}.", path.display(), beside.display()
    )]
    Older {
        /// The journal's directory.
        path: PathBuf,
        /// The file that knows more.
        beside: PathBuf,
        /// The last start that the journal knows of.
        found: u32,
        /// The last one that the file knows of.
        known: u32,
    },

    /// Parts of different data directories lie in one.
    #[error(
        "{}: this was made in another data directory than what lies beside it: it holds something else than this node has \
         promised and acknowledged. Put back in its place what was there when this node ended; if that is lost, {REPLACE}.",
        path.display()
    )]
    OtherDirectory {
        /// What was made elsewhere.
        path: PathBuf,
    },

    /// Somebody has removed or exchanged what the node has open.
    #[error(
        "{}: it was removed while the node ran, or something else was put in its place: what is written there is not found \
         once the node has ended. The node stops. Put back what was there (unmount what was mounted over it) as it was when \
         the node ended; without it, {REPLACE}.", path.display()
    )]
    Removed {
        /// The file.
        path: PathBuf,
    },

    /// Somebody has removed or exchanged the lock, and nothing else.
    #[error(
        "{}: it was removed while the node ran, or another was put in its place, so that a second process could open the \
         directory. The node stops; nothing is lost. Start it again.", path.display()
    )]
    Unlocked {
        /// The lock file.
        path: PathBuf,
    },

    /// No room for the next segment.
    #[error(
        "{}: the disk is full: {}. Free space on this disk or move the data directory to a larger one, then start the \
         node again; nothing acknowledged is lost.", path.display(), lacking(*needed)
    )]
    DiskFull {
        /// The file being made.
        path: PathBuf,
        /// How many bytes it needs; zero where that is not known.
        needed: u64,
    },

    /// This user may not.
    #[error("{}: cannot {action}: {cause}. Start the node as the user to whom its data belongs, or name a directory that \
             this user may write.", path.display())]
    Denied {
        /// The file.
        path: PathBuf,
        /// What was tried: "open", "create the directory", ...
        action: &'static str,
        /// What the operating system said.
        cause: Arc<io::Error>,
    },

    /// The file system takes nothing.
    #[error("{}: cannot {action}: the file system is read-only. Mount it so that it can be written (where it is so by itself, \
             the system has found errors on the disk: its log says which), or name a directory elsewhere if this node has never run.", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
    },

    /// The system has no more files, memory or threads to give.
    #[error("{}: cannot {action}: {cause}. The disk and what is on it are not to blame. Give the node's user more files, memory \
             or threads (`ulimit -n` and `-u`; `LimitNOFILE`, `MemoryMax` and `TasksMax` of its service), then start the node \
             again.", path.display())]
    Exhausted {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the operating system said.
        cause: Arc<io::Error>,
    },

    /// The operating system refused.
    #[error("{}: cannot {action}: {cause}. The node stops: after a failed {action} nobody knows what the disk holds; \
             check the disk, then start the node again.", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "write", "sync", ...
        action: &'static str,
        /// What the operating system said.
        cause: Arc<io::Error>,
    },

    /// A record is larger than a journal entry may be.
    #[error(
        "a record of {length} bytes is larger than the journal's limit of {limit} bytes: \
         lower `bulk` under [limits] of the deployment file"
    )]
    TooLarge {
        /// Its size in bytes.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },

    /// The journal failed before; it accepts nothing any more.
    #[error("the journal stopped after an earlier error: {0}")]
    Poisoned(Arc<JournalError>),

    /// The journal thread ended without saying why.
    #[error("the journal thread is gone: the node stops; what was acknowledged is on disk")]
    ThreadGone,
}

/// What a full disk has no room for.
fn lacking(needed: u64) -> String {
    match needed {
        0 => "there is no room".to_owned(),
        bytes => format!("{bytes} more bytes are needed for the journal"),
    }
}

/// Whether the system was out of what all processes share, or this one may have: descriptors of files, memory, or threads.
fn is_exhausted(cause: &io::Error) -> bool {
    // The last is what is said of threads; no file here is opened so that it says this.
    let codes = [Errno::MFILE, Errno::NFILE, Errno::AGAIN].map(Errno::raw_os_error);
    cause.kind() == io::ErrorKind::OutOfMemory
        || cause.raw_os_error().is_some_and(|code| codes.contains(&code))
}

impl JournalError {
    /// Turns what the operating system said into an error; what the disk is not to blame for gets its own message.
    pub(crate) fn io(path: impl Into<PathBuf>, action: &'static str, needed: u64, cause: io::Error) -> Self {
        let path = path.into();
        match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path, needed },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, action },
            io::ErrorKind::PermissionDenied => Self::Denied { path, action, cause: Arc::new(cause) },
            _ if is_exhausted(&cause) => Self::Exhausted { path, action, cause: Arc::new(cause) },
            _ => Self::Io { path, action, cause: Arc::new(cause) },
        }
    }

    /// Whether the node ended since its files were removed or exchanged, more than its lock.
    pub fn is_removed(&self) -> bool {
        match self {
            Self::Poisoned(first) => first.is_removed(),
            error => matches!(error, Self::Removed { .. }),
        }
    }

    /// The same error, as told to someone who comes after it.
    pub(crate) fn poisoned(&self) -> Self {
        match self {
            Self::Poisoned(_) => self.clone(),
            first => Self::Poisoned(Arc::new(first.clone())),
        }
    }
}
