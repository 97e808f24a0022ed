//! A node's data directory: whose it is, and that nobody else has it open.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::JournalOptions;
use super::disk::{Disk as _, DiskFile as _, FileId, RealDisk};
use super::error::JournalError;
use super::format::{DecodeError, FORMAT, IdentityFile, SECTOR, SEGMENT_FORMAT, SegmentHeader};
use super::recovery::{Newest, newest};
use super::segments::segments_among;

const LOCK: &str = "LOCK";
const IDENTITY: &str = "IDENTITY";
const IDENTITY_NEW: &str = "IDENTITY.new";
const JOURNAL: &str = "journal";
/// Where in a data directory the snapshot engine keeps its files.
pub(crate) const SNAPSHOTS: &str = "snapshots";

/// How names begin in a data directory of what is only tried there, as how long a sync takes: they make it nobody's.
pub const TRIAL: &str = ".isochrone-trial-";

/// What the caller knows about a directory before it looks.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Expect {
    /// New or used before: a first start.
    Anything,
    /// This node has run before, so its data must be there (R13): an empty directory is refused.
    Existing,
}

/// An open data directory. It stays locked until this is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: IdentityFile,
    fresh: bool,
    /// Whether IDENTITY says whose it is.
    claimed: bool,
    /// Held for its lock, which ends with it.
    lock: File,
}

/// Whose a directory is.
struct Owner {
    identity: IdentityFile,
    /// What says so: IDENTITY, or the journal where that is lost.
    says: PathBuf,
}

impl DataDirectory {
    /// Opens the directory at `path` for one node of one cluster, making it where it does not exist, and locks it.
    ///
    /// # Errors
    /// It belongs to another cluster, node or format, is somebody else's, is locked, or is empty where it must not be.
    pub fn open(path: &Path, cluster: u64, node: u16, expect: Expect) -> Result<Self, JournalError> {
        let identity = IdentityFile { cluster, node };
        // One that is expected is not made.
        if expect == Expect::Existing && !path.try_exists().unwrap_or(true) {
            return Err(JournalError::Missing { path: path.into() });
        }
        make(path).map_err(|error| match error.kind() {
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                let stands = path.ancestors().find(|above| above.exists()).unwrap_or(path);
                JournalError::NoDirectory { path: stands.into() }
            }
            // The disk is not to blame, and has nothing of ours.
            ErrorKind::NotFound | ErrorKind::InvalidFilename | ErrorKind::InvalidInput => {
                JournalError::NoPlace { path: path.into(), cause: Arc::new(error) }
            }
            _ => JournalError::io(path, "create the directory", SECTOR as u64, error),
        })?;
        let claimed = Self::claimed(path, cluster, node)?;
        let fresh = claimed.is_none();
        if fresh {
            // Whoever made it may not have done this. A directory that this user may not read, or that knows of no
            // sync, is an administrator's.
            sync_names(path, 1)
                .or_else(|error| match error.kind() {
                    ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported => Ok(()),
                    _ => Err(error),
                })
                .map_err(|e| JournalError::io(path, "sync the name of", SECTOR as u64, e))?;
        }
        if fresh && expect == Expect::Existing {
            return Err(JournalError::Missing { path: path.into() });
        }
        let lock = lock(&path.join(LOCK))?;
        for folder in [JOURNAL, SNAPSHOTS] {
            let folder = path.join(folder);
            private(&folder)
                .map_err(|e| JournalError::io(folder, "create the directory", SECTOR as u64, e))?;
        }
        Ok(Self { path: path.into(), identity, fresh, claimed: claimed == Some(true), lock })
    }

    /// Whether this node has run in the directory at `path`, which exists, or nobody has. Nothing is opened or changed.
    ///
    /// # Errors
    /// It belongs to another cluster, node or format, or is somebody else's.
    pub fn is_used(path: &Path, cluster: u64, node: u16) -> Result<bool, JournalError> {
        Ok(Self::claimed(path, cluster, node)?.is_some())
    }

    /// Whether IDENTITY says that this node has run in the directory at `path`, and not its journal alone; nothing where
    /// nobody has.
    fn claimed(path: &Path, cluster: u64, node: u16) -> Result<Option<bool>, JournalError> {
        let Some(Owner { identity: found, says }) = owner(path)? else {
            return refuse_strangers(path).map(|()| None);
        };
        if found.cluster != cluster {
            return Err(JournalError::OtherCluster { path: says, found: found.cluster, expected: cluster });
        }
        if found.node != node {
            return Err(JournalError::OtherNode { path: says, found: found.node, expected: node });
        }
        Ok(Some(says.ends_with(IDENTITY)))
    }

    /// Whether somebody has the directory at `path` open; no where there is none. A node that opens it in this very moment
    /// may be told so of whoever asks.
    ///
    /// # Errors
    /// This user may not look.
    pub fn is_locked(path: &Path) -> Result<bool, JournalError> {
        let path = path.join(LOCK);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(JournalError::io(path, "open", 0, error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(JournalError::io(path, "lock", 0, error)),
        }
    }

    /// What the newest segment says of the journal in the directory at `path`, which belongs to this node and was born as
    /// `birth` ([`JournalOptions::birth`]). Nothing is changed. Where a node has the directory open it may seem damaged.
    ///
    /// # Errors
    /// There is no segment, or it is damaged, or was made in another directory.
    pub(crate) fn newest(path: &Path, cluster: u64, node: u16, birth: u64) -> Result<Newest, JournalError> {
        let disk = RealDisk::new(&path.join(JOURNAL));
        let found = newest(&disk, &JournalOptions { birth, ..JournalOptions::new(cluster, node) })?;
        found.ok_or_else(|| JournalError::Missing { path: disk.path("") })
    }

    /// The lock, where somebody has removed it or put another in its place: a second process could open the directory then.
    pub(crate) fn lost(&self) -> Option<PathBuf> {
        let path = self.path.join(LOCK);
        let found = self.lock.metadata().and_then(|held| FileId::of(&held).is_at(&path));
        // Where that cannot be looked at, nobody knows.
        matches!(found, Ok(false)).then_some(path)
    }

    /// Which cluster the directory at `path` belongs to, without opening it; `None` where no node has run in it.
    ///
    /// # Errors
    /// What says so cannot be read.
    pub fn cluster_of(path: &Path) -> Result<Option<u64>, JournalError> {
        Ok(owner(path)?.map(|owner| owner.identity.cluster))
    }

    /// Whether no node has ever started here.
    #[must_use]
    pub fn fresh(&self) -> bool {
        self.fresh
    }

    /// Whose it is: cluster and node.
    #[must_use]
    pub fn identity(&self) -> IdentityFile {
        self.identity
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the snapshot engine keeps its files.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.path.join(SNAPSHOTS)
    }

    /// Where the journal keeps its segments.
    #[must_use]
    pub fn journal(&self) -> RealDisk {
        RealDisk::new(&self.path.join(JOURNAL))
    }

    /// How large the journal's segments are together; what cannot be looked at is complained of by whoever reads it.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        let disk = self.journal();
        let segments = segments_among(&disk.list().unwrap_or_default());
        let length = |name: &str| disk.open(name).and_then(|file| file.length()).unwrap_or(0);
        segments.iter().map(|(_, name)| length(name)).sum()
    }

    /// Writes the identity file, durably, once the journal has its first segment.
    pub(crate) fn claim(&mut self) -> Result<(), JournalError> {
        if self.claimed {
            return Ok(());
        }
        if !self.fresh {
            let path = self.path.join(IDENTITY);
            tracing::warn!(
                path = %path.display(),
                "lost or damaged, or not written yet as a first start was cut short: written anew, as the journal says whose it is"
            );
        }
        put(&self.path, IDENTITY, &self.identity.encode())
            .map_err(|e| JournalError::io(self.path.join(IDENTITY), "write", SECTOR as u64, e))?;
        (self.fresh, self.claimed) = (false, true);
        Ok(())
    }
}

/// Makes a directory and those above it where they do not exist, durably: all that is promised from it would be lost with
/// its name. No other user may look into it: clients' values are in it.
///
/// # Errors
/// Of the file system.
pub fn make(path: &Path) -> std::io::Result<()> {
    let missing = path.ancestors().take_while(|above| above.try_exists().is_ok_and(|there| !there)).count();
    if missing > 0 {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    }
    private(path)?;
    sync_names(path, missing)
}

/// Makes a directory that nobody else may look into, where there is none.
fn private(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes the names of a directory and of those above it, so many in all, durable in the directories that hold them.
fn sync_names(path: &Path, count: usize) -> std::io::Result<()> {
    // What is above a relative path ends with one of no name: where this process runs.
    let above = path.ancestors().skip(1).take(count);
    above
        .map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above })
        .try_for_each(|above| File::open(above)?.sync_all())
}

/// Gives a small file of a data directory this content, durably, as a whole or not at all.
pub(crate) fn put(directory: &Path, name: &str, content: &[u8]) -> std::io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// Whose the directory at `data` is; nothing where no node has run in it. Each segment says it as IDENTITY does, so that nothing
/// is lost with that.
fn owner(data: &Path) -> Result<Option<Owner>, JournalError> {
    let path = data.join(IDENTITY);
    let mut bytes = Vec::new();
    let damage = match File::open(&path) {
        Ok(file) => {
            let read = file.take(SECTOR as u64).read_to_end(&mut bytes);
            read.map_err(|e| JournalError::io(&path, "read", 0, e))?;
            match IdentityFile::decode(&bytes) {
                Ok(identity) => return Ok(Some(Owner { identity, says: path })),
                Err(DecodeError::Newer(found)) => {
                    return Err(JournalError::NewerFormat { path, found, supported: FORMAT });
                }
                Err(error) => Some(error),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(JournalError::io(path, "open", 0, error)),
    };
    match (newest_head(data)?, damage) {
        (Some(SegmentHeader { cluster, node, .. }), _) => {
            Ok(Some(Owner { identity: IdentityFile { cluster, node }, says: data.join(JOURNAL) }))
        }
        (None, None) => Ok(None),
        (None, Some(error)) => {
            let what = format!(
                "this is no readable identity ({error}), and no segment of a journal beside it says whose it is"
            );
            Err(JournalError::Corrupt { path, offset: 0, what })
        }
    }
}

/// The head of the newest segment in the directory at `data`; nothing where there is none that can be read, or they name different
/// nodes.
///
/// # Errors
/// A segment cannot be read, or is of a later format.
fn newest_head(data: &Path) -> Result<Option<SegmentHeader>, JournalError> {
    let disk = RealDisk::new(&data.join(JOURNAL));
    let names = match disk.list() {
        Ok(names) => names,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(JournalError::io(disk.path(""), "list", 0, error)),
    };
    let mut newest: Option<SegmentHeader> = None;
    for (_, name) in segments_among(&names) {
        let (path, mut sector) = (disk.path(&name), [0; SECTOR]);
        match File::open(&path).and_then(|mut file| file.read_exact(&mut sector)) {
            // What is damaged is told of by whoever reads all of it; a node that runs gives back what it no longer needs.
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::NotFound) => continue,
            Err(error) => return Err(JournalError::io(path, "read", 0, error)),
            Ok(()) => {}
        }
        let head = match SegmentHeader::decode(&sector) {
            Ok(head) => head,
            Err(DecodeError::Newer(found)) => {
                return Err(JournalError::NewerFormat { path, found, supported: SEGMENT_FORMAT });
            }
            Err(_) => continue,
        };
        if newest.is_some_and(|other| (other.cluster, other.node) != (head.cluster, head.node)) {
            return Ok(None);
        }
        newest = Some(head);
    }
    Ok(newest)
}

/// A directory without identity may hold only what a start that was cut short leaves behind.
fn refuse_strangers(path: &Path) -> Result<(), JournalError> {
    let entries = std::fs::read_dir(path).map_err(|e| JournalError::io(path, "list", 0, e))?;
    let mut strangers: Vec<String> = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()
        .map_err(|e| JournalError::io(path, "list", 0, e))?;
    // Neither what a file system puts at its own root nor a deployment file makes the directory somebody's.
    let ours = [LOCK, IDENTITY_NEW, JOURNAL, SNAPSHOTS, "lost+found", "deployment.toml"];
    strangers.retain(|name| !ours.contains(&name.as_str()) && !name.starts_with(TRIAL));
    strangers.sort();
    match strangers.into_iter().next() {
        Some(entry) => Err(JournalError::NotIsochrone { path: path.into(), entry }),
        None => Ok(()),
    }
}

fn lock(path: &Path) -> Result<File, JournalError> {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(|e| JournalError::io(path, "open", 0, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked { path: path.into() }),
        Err(TryLockError::Error(error)) => Err(JournalError::io(path, "lock", 0, error)),
    }
}
