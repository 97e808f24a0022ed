//! Where snapshots are kept: one small database of the engine for each, open only while it is written or read, checked
//! on the way in and on the way out.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use isochrone_core::Blob;
use isochrone_core::wire::RECORDED;
use xxhash_rust::xxh3::Xxh3;

use super::error::SnapshotError;
use crate::journal::format::{DecodeError, SECTOR, open_sector, seal_sector};
use crate::journal::{JournalError, Position, StreamId};

const MAGIC: [u8; 8] = *b"ISOCHSNP";
/// The newest format this version reads and the one it writes, of snapshots and of the states in them: from 2 on it says in which
/// directory a snapshot was made.
const FORMAT: u32 = RECORDED;
/// Comes after the key of every chunk.
const MANIFEST: [u8; 4] = u32::MAX.to_be_bytes();
/// Bytes of checksum before each chunk.
const CHECK: usize = 8;
/// The name of the one keyspace in each.
const KEYSPACE: &str = "snapshot";
/// What a directory is called until it is finished.
const NEW: &str = ".new";
/// The engine's block cache in bytes: snapshots are read once, in order.
const CACHE: u64 = 1 << 20;

/// One snapshot that was finished.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct SnapshotInfo {
    /// Whose it is.
    pub stream: StreamId,
    /// One more for each of the stream's snapshots.
    pub number: u64,
    /// It holds the effect of every record of the stream before this position.
    pub position: Position,
    /// How many chunks it has.
    pub chunks: u32,
    /// The size of them all in bytes.
    pub bytes: u64,
}

/// All snapshots of a node. One thread owns it.
#[derive(Debug)]
pub struct SnapshotStore {
    path: PathBuf,
    /// Of the directory that they belong to (`births`); zero where that is not known.
    birth: u64,
    /// Finished ones that nothing speaks against, oldest first.
    sound: BTreeMap<StreamId, Vec<Name>>,
    /// What was found damaged, and how.
    damaged: BTreeMap<StreamId, Vec<(Name, String)>>,
}

/// What the name of a snapshot's directory says; to be believed once its manifest has said the same.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Debug)]
struct Name {
    stream: StreamId,
    number: u64,
    position: Position,
}

impl SnapshotStore {
    /// Takes stock of the snapshots in the directory at `path`; reads none of them. Half-written ones are removed.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let mut store =
            Self { path: path.into(), birth: 0, sound: BTreeMap::new(), damaged: BTreeMap::new() };
        std::fs::create_dir_all(path).map_err(|e| store.failed("create its directory", &e))?;
        let list = |e: std::io::Error| SnapshotError::Engine {
            path: path.into(),
            action: "list its directory",
            cause: e.to_string(),
        };
        for entry in std::fs::read_dir(path).map_err(list)? {
            let name = entry.map_err(list)?.file_name().to_string_lossy().into_owned();
            if name.ends_with(NEW) {
                store.remove(&name);
            } else if let Some(name) = Name::parse(&name) {
                store.sound.entry(name.stream).or_default().push(name);
            }
        }
        for all in store.sound.values_mut() {
            all.sort();
        }
        Ok(store)
    }

    /// Whether this user may open all finished snapshots in the directory at `path`. They are opened by an engine, which does not
    /// tell well what it was denied. Nothing is changed.
    ///
    /// # Errors
    /// The first file that cannot be opened.
    pub(crate) fn openable(path: &Path) -> Result<(), JournalError> {
        // What a file system puts at its own root is not ours to open.
        open_below(path, |name| Name::parse(name).is_some())
    }

    /// Bytes on the disk of the newest finished snapshot of each stream in the directory at `path`; what cannot be looked at counts
    /// as none. Nothing is changed.
    #[must_use]
    pub fn newest_bytes(path: &Path) -> u64 {
        let mut newest: BTreeMap<StreamId, Name> = BTreeMap::new();
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            if let Some(name) = Name::parse(&entry.file_name().to_string_lossy()) {
                let held = newest.entry(name.stream).or_insert(name);
                *held = name.max(*held);
            }
        }
        newest.values().map(|name| bytes_below(&path.join(name.to_string()))).sum()
    }

    /// From here on snapshots are those of the directory of this birth: others are refused.
    pub(super) fn bind(&mut self, birth: u64) {
        self.birth = birth;
    }

    /// Writes a snapshot of `stream` at `position`, reads it back, and removes what is then no longer needed.
    /// Answers it, and the position up to which the journal may be trimmed, if there is an earlier sound one.
    ///
    /// `chunks` may give up by answering an error.
    ///
    /// # Errors
    /// The engine failed, or what was read back is not what was written. Earlier snapshots stay.
    pub fn write<C: AsRef<[u8]>>(
        &mut self,
        stream: StreamId,
        position: Position,
        chunks: impl Iterator<Item = Result<C, SnapshotError>>,
    ) -> Result<(SnapshotInfo, Option<Position>), SnapshotError> {
        let sound = self.sound.get(&stream).into_iter().flatten();
        let damaged = self.damaged.get(&stream).into_iter().flatten().map(|(name, _)| name);
        let number = 1 + sound.chain(damaged).map(|name| name.number).max().unwrap_or(0);
        let name = Name { stream, number, position };
        let (new, place) = (self.path.join(format!("{name}{NEW}")), self.path.join(name.to_string()));
        let written = guarded(&self.path, "write a snapshot", || fill(&new, name, self.birth, chunks))
            .and_then(|()| {
                std::fs::rename(&new, &place).map_err(|e| self.failed("name a snapshot", &e))?;
                // The engine has closed its files; what is read now is what a start would read.
                self.examine(&name)?;
                let directory = std::fs::File::open(&self.path);
                directory.and_then(|file| file.sync_all()).map_err(|e| self.failed("sync its directory", &e))
            });
        if let Err(error) = written {
            self.remove(&format!("{name}{NEW}"));
            self.remove(&name.to_string());
            return Err(error);
        }
        let info = self.manifest(&name)?.1;

        let all = self.sound.entry(stream).or_default();
        all.push(name);
        let before = all.len().checked_sub(2).map(|index| all[index].position);
        if before.is_some() {
            let kept = all.len() - 2;
            let old = all
                .drain(..kept)
                .chain(self.damaged.remove(&stream).into_iter().flatten().map(|(name, _)| name));
            for name in old.collect::<Vec<_>>() {
                self.remove(&name.to_string());
            }
        }
        Ok((info, before))
    }

    /// The positions of the snapshots of `stream` that nothing speaks against, newest first.
    pub fn positions(&self, stream: StreamId) -> impl Iterator<Item = Position> + '_ {
        self.sound.get(&stream).into_iter().flatten().rev().map(|name| name.position)
    }

    /// Every stream that has a snapshot.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.sound.keys().copied()
    }

    /// The newest sound snapshot of `stream` at `least` or later; each is read and checked before it is answered.
    /// Damaged ones are passed over, and not offered any more.
    ///
    /// # Errors
    /// One was written by a later version of this program or in another directory, or the system does not let it be read.
    pub fn newest(
        &mut self,
        stream: StreamId,
        least: Position,
    ) -> Result<Option<SnapshotInfo>, SnapshotError> {
        while let Some(name) = self.sound.get(&stream).and_then(|all| all.last()).copied() {
            let found = match name.position < least {
                // One that comes too early may be another directory's, which says more than that there is none.
                true => self.manifest(&name).map(|_| None),
                false => self.examine(&name).map(Some),
            };
            match found {
                Ok(found) => return Ok(found),
                Err(error @ (SnapshotError::Damaged { .. } | SnapshotError::Engine { .. })) => {
                    tracing::error!(%error, "a snapshot cannot be used");
                    self.damaged.entry(stream).or_default().push((name, error.to_string()));
                    self.sound.entry(stream).or_default().pop();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The chunks of a snapshot, in order. After the last one their number and size have been checked too.
    ///
    /// # Errors
    /// The snapshot cannot be opened; each chunk may be an error of its own.
    pub fn read(
        &self,
        info: &SnapshotInfo,
    ) -> Result<impl Iterator<Item = Result<Blob, SnapshotError>> + use<>, SnapshotError> {
        let info = *info;
        let name = Name { stream: info.stream, number: info.number, position: info.position };
        let opened = self.manifest(&name)?.0;
        let path = self.path.join(name.to_string());
        let mut entries = guarded(&path, "read a snapshot", || Ok(opened.keyspace.iter()))?;
        let (mut index, mut bytes, mut over) = (0, 0, false);
        Ok(std::iter::from_fn(move || {
            // Open as long as its entries are read.
            let _ = &opened;
            if over {
                return None;
            }
            let damaged = |what: String| name.damaged(&path, what);
            let next = guarded(&path, "read a snapshot", || {
                let next = entries.next().map(fjall::Guard::into_inner).transpose();
                next.map_err(|error| denied(&path, &error).unwrap_or_else(|| damaged(error.to_string())))
            });
            let chunk = match next {
                Err(error) => Err(error),
                Ok(None) => Err(damaged(format!("it ends after chunk {index} of {}", info.chunks))),
                Ok(Some((key, _))) if *key == MANIFEST => {
                    over = true;
                    if (index, bytes) == (info.chunks, info.bytes) {
                        return None;
                    }
                    Err(damaged(format!(
                        "it has {index} chunks of {bytes} bytes, its manifest says otherwise"
                    )))
                }
                Ok(Some((key, value))) => open_chunk(&name, index, &key, &value).ok_or_else(|| {
                    damaged(format!("chunk {index} of {} does not match its checksum", info.chunks))
                }),
            };
            index += 1;
            match &chunk {
                Ok(chunk) => bytes += chunk.len() as u64,
                Err(_) => over = true,
            }
            Some(chunk)
        }))
    }

    /// Removes the snapshots that belong to a life of the stream that ended at `end`.
    pub fn forget(&mut self, stream: StreamId, end: Position) {
        let mut sound = self.sound.remove(&stream).unwrap_or_default();
        let mut damaged = self.damaged.remove(&stream).unwrap_or_default();
        for name in sound.extract_if(.., |name| name.position <= end) {
            self.remove(&name.to_string());
        }
        for (name, _) in damaged.extract_if(.., |(name, _)| name.position <= end) {
            self.remove(&name.to_string());
        }
        if !sound.is_empty() {
            self.sound.insert(stream, sound);
        }
        if !damaged.is_empty() {
            self.damaged.insert(stream, damaged);
        }
    }

    /// Why a stream has no better snapshot than it has, for messages.
    pub(super) fn complaints(&self, stream: StreamId) -> String {
        let damaged = self.damaged.get(&stream).into_iter().flatten().map(|(_, what)| what.clone());
        let older = self.positions(stream).map(|position| format!("there is one at position {position}"));
        let all: Vec<_> = damaged.chain(older).collect();
        if all.is_empty() { "there is none".into() } else { all.join("; ") }
    }

    /// How many snapshots were found damaged.
    pub(super) fn unusable(&self) -> u64 {
        self.damaged.values().map(Vec::len).sum::<usize>() as u64
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all of a snapshot and checks it.
    fn examine(&self, name: &Name) -> Result<SnapshotInfo, SnapshotError> {
        let info = self.manifest(name)?.1;
        self.read(&info)?.try_for_each(|chunk| chunk.map(drop))?;
        Ok(info)
    }

    /// Opens a snapshot's database and reads its manifest.
    fn manifest(&self, name: &Name) -> Result<(Opened, SnapshotInfo), SnapshotError> {
        let path = self.path.join(name.to_string());
        let damaged = |what: String| name.damaged(&path, what);
        let unread = |error: fjall::Error| {
            denied(&path, &error)
                .unwrap_or_else(|| damaged(format!("it, or its manifest, cannot be read: {error}")))
        };
        let opened = guarded(&path, "open a snapshot", || Opened::open(&path).map_err(unread))?;
        let value = guarded(&path, "read a manifest", || opened.keyspace.get(MANIFEST).map_err(unread))?;
        let value = value.ok_or_else(|| damaged("it has no manifest".into()))?;
        let fields = open_sector(MAGIC, FORMAT, &value).map_err(|error| match error {
            DecodeError::Newer(found) => {
                SnapshotError::NewerFormat { path: path.clone(), found, supported: FORMAT }
            }
            error => damaged(format!("its manifest is wrong: {error}")),
        })?;
        let [stream, number, position, chunks, bytes, birth] = fields;
        if birth != 0 && self.birth != 0 && birth != self.birth {
            return Err(JournalError::OtherDirectory { path }.into());
        }
        if (Name { stream: StreamId(stream), number, position: Position(position) }) != *name {
            return Err(damaged("its manifest is another's".into()));
        }
        let chunks = u32::try_from(chunks).map_err(|_| damaged("its manifest is impossible".into()))?;
        let info = SnapshotInfo { stream: name.stream, number, position: name.position, chunks, bytes };
        Ok((opened, info))
    }

    /// Removes one directory. If that fails, the space is lost until the next start; nothing depends on it.
    fn remove(&self, name: &str) {
        let path = self.path.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "an old snapshot could not be removed");
            }
            _ => {}
        }
    }

    fn failed(&self, action: &'static str, error: &std::io::Error) -> SnapshotError {
        SnapshotError::Engine { path: self.path.clone(), action, cause: error.to_string() }
    }
}

/// Opens all files below a directory as the engine may, in it only those of which `wanted` says so. What is not there when it
/// is opened is none.
fn open_below(path: &Path, wanted: fn(&str) -> bool) -> Result<(), JournalError> {
    let failed = |path: &Path, error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(JournalError::io(path, "open", 0, error)),
    };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return failed(path, error),
    };
    for entry in entries {
        let entry = entry.map_err(|error| JournalError::io(path, "list", 0, error))?;
        if !wanted(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let below = entry.path();
        if below.is_dir() {
            open_below(&below, |_| true)?;
        } else if let Err(error) = OpenOptions::new().read(true).write(true).open(&below) {
            failed(&below, error)?;
        }
    }
    Ok(())
}

/// Bytes on the disk of all files below this directory.
fn bytes_below(path: &Path) -> u64 {
    /// What the system counts blocks in.
    const BLOCK: u64 = 512;
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => bytes_below(&entry.path()),
            Ok(about) => about.blocks().saturating_mul(BLOCK),
            Err(_) => 0,
        })
        .sum()
}

impl Name {
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split('-').map(|digits| u64::from_str_radix(digits, 16));
        let (stream, number, position) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        numbers.next().is_none().then_some(Self {
            stream: StreamId(stream),
            number,
            position: Position(position),
        })
    }

    fn damaged(&self, path: &Path, what: String) -> SnapshotError {
        SnapshotError::Damaged { path: path.into(), stream: self.stream, number: self.number, what }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:016x}-{:016x}", self.stream, self.number, self.position.0)
    }
}

/// One snapshot's database.
struct Opened {
    keyspace: fjall::Keyspace,
    /// After the keyspace, which refers to it.
    _database: fjall::Database,
}

impl Opened {
    fn open(path: &Path) -> Result<Self, fjall::Error> {
        let database = fjall::Database::builder(path).cache_size(CACHE).worker_threads(1).open()?;
        let keyspace = database.keyspace(KEYSPACE, fjall::KeyspaceCreateOptions::default)?;
        Ok(Self { keyspace, _database: database })
    }
}

/// What the system denied the engine, if that is why it failed: a snapshot is not damaged then.
pub(super) fn denied(path: &Path, error: &fjall::Error) -> Option<SnapshotError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(found) = cause {
        let io = found.downcast_ref::<std::io::Error>();
        if let Some(code) = io.and_then(std::io::Error::raw_os_error) {
            let error = JournalError::io(path, "open", 0, std::io::Error::from_raw_os_error(code));
            // A disk that cannot read it, and a file that is missing, are damage.
            return (!matches!(error, JournalError::Io { .. })).then(|| error.into());
        }
        cause = found.source();
    }
    None
}

/// Makes a database of the chunks and, last, the manifest; all of it becomes visible and durable at once.
fn fill<C: AsRef<[u8]>>(
    path: &Path,
    name: Name,
    birth: u64,
    chunks: impl Iterator<Item = Result<C, SnapshotError>>,
) -> Result<(), SnapshotError> {
    let failed = |error: fjall::Error| SnapshotError::Engine {
        path: path.into(),
        action: "write a snapshot",
        cause: error.to_string(),
    };
    let opened = Opened::open(path).map_err(failed)?;
    let mut ingestion = opened.keyspace.start_ingestion().map_err(failed)?;
    let mut value = Vec::new();
    let (mut count, mut bytes) = (0_u32, 0);
    for chunk in chunks {
        let chunk = chunk?;
        let chunk = chunk.as_ref();
        value.clear();
        value.extend_from_slice(&chunk_check(&name, count, chunk).to_le_bytes());
        value.extend_from_slice(chunk);
        ingestion.write(count.to_be_bytes(), value.as_slice()).map_err(failed)?;
        count += 1;
        bytes += chunk.len() as u64;
    }
    let fields = [name.stream.0, name.number, name.position.0, u64::from(count), bytes, birth];
    let manifest: [u8; SECTOR] = seal_sector(MAGIC, FORMAT, &fields);
    ingestion.write(MANIFEST, manifest.as_slice()).map_err(failed)?;
    ingestion.finish().map_err(failed)
}

/// A chunk's checksum: of its bytes, and of where they belong, so that one chunk cannot stand for another.
fn chunk_check(name: &Name, index: u32, chunk: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(name.stream.0);
    hash.update(&name.number.to_le_bytes());
    hash.update(&name.position.0.to_le_bytes());
    hash.update(&index.to_le_bytes());
    hash.update(chunk);
    hash.digest()
}

fn open_chunk(name: &Name, index: u32, key: &[u8], value: &[u8]) -> Option<Blob> {
    let (check, chunk) = value.split_first_chunk::<CHECK>()?;
    let sound = *key == index.to_be_bytes() && u64::from_le_bytes(*check) == chunk_check(name, index, chunk);
    sound.then(|| Blob::new(chunk))
}

/// Calls into the engine. Damaged files have made storage engines panic; here that is an error like any other.
fn guarded<T>(
    path: &Path,
    action: &'static str,
    call: impl FnOnce() -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    // What the engine may have left half-done is never used again: its handle is dropped, its files are checked.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(SnapshotError::Engine { path: path.into(), action, cause: "the engine panicked".into() })
    })
}
