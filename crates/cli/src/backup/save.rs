//! `isochrone backup save`: SCAN pages, and of each key's value and deadline one moment, straight into the file.

use super::arguments::Save;
use super::format::{Counts, Header, Writer};
use super::place::{self, Place, refused};
use super::reading::{self, Read};
use super::wire::{Connection, Head, Reply};
use super::{Patience, Report, passes_by, shown};
use crate::arguments::Format;
use crate::output::{bar, print_text, say, unwritable, writable};
use crate::{Status, Usage};
use anyhow::bail;
use isochrone_learn::write::Target;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What a user needs.
const RIGHTS: &str = "+info +client|info +select +scan +multi +exec +dump +pexpiretime and all keys (~*)";
/// Keys that a page of SCAN is to have.
const PAGE: &[u8] = b"1000";
/// Keys that are asked for at once, by one EXEC, at most.
const GROUP: usize = 100;
/// Their values are to have about so many bytes together: a node holds an answer in memory.
const GROUP_BYTES: u64 = 1 << 20;
/// Groups under way. A node answers one with 120 MiB at most, and closes a connection on which 1 GiB waits to be sent.
const GROUPS: usize = 4;
/// Of single keys, where several cannot be asked for at once: as many as a node takes up of one connection.
const SINGLES: usize = 16;
/// Expected bytes of answers under way.
const EXPECTED: u64 = 16 << 20;
/// Bytes of requests under way: what systems hold between two processes, so that nobody waits to be read.
const ASKED: usize = 1 << 16;
/// The file is written in pieces of so many bytes.
const PIECE: usize = 1 << 20;

/// Runs the verb.
pub(super) fn run(arguments: Save) -> anyhow::Result<Status> {
    let Save { file: path, node, keyspace, force, format } = arguments;
    let piped = path == Path::new("-");
    let path = if piped { PathBuf::from("/dev/stdout") } else { path };
    if !force && !piped && path.symlink_metadata().is_ok() {
        bail!(Usage(format!(
            "{}: there is a file of this name\n  name another, or write over it with --force",
            path.display()
        )));
    }
    if !piped {
        writable(&path)?;
    }
    let aside = piped || is_stdout(&path);
    let (connection, place) = place::open(&node, keyspace.as_deref(), RIGHTS)?;
    let target = (!piped).then(|| Target::create(&path)).transpose();
    let mut target = target.map_err(|cause| unwritable(&path, &cause))?;
    let header = Header {
        cluster: place.cluster.clone(),
        keyspace: place.keyspace.clone(),
        protocol: place.protocol.clone(),
        node: place.node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        begun_ms: place.now_ms(),
        one_moment: false,
    };
    let mut stdout;
    let to: &mut dyn Write = match &mut target {
        Some(target) => target,
        None => {
            stdout = stdout_file().map_err(|cause| unwritable(&path, &cause))?;
            &mut stdout
        }
    };
    let to = BufWriter::with_capacity(PIECE, to);
    let Saved { to, counts, bytes, gone, ended_ms } = save(connection, &place, &header, to, &path)?;
    drop(to);
    if let Some(target) = target {
        target.finish().map_err(|cause| unwritable(&path, &cause))?;
    }
    let text = match format {
        Format::Json => {
            let file = path.display().to_string();
            serde_json::to_string(&Report {
                file,
                bytes,
                header: &header,
                ended_ms,
                counts: &counts,
                gone: Some(gone),
            })? + "\n"
        }
        Format::Text => format!(
            "{}: {} keys of keyspace {} of cluster {}, {bytes} bytes\n  no picture of one moment: each key as it was at some moment of the \
             {:.1} s that it took\n{}",
            path.display(),
            counts.keys,
            header.keyspace,
            header.cluster,
            ended_ms.saturating_sub(header.begun_ms) as f64 / 1e3,
            match counts.in_parts {
                0 => String::new(),
                count => format!("  {}\n", super::in_parts(count, counts.changed)),
            }
        ),
    };
    // Behind the backup it would be part of it.
    if aside {
        say(text.trim_end());
    } else {
        print_text(&text)?;
    }
    Ok(Status::Held)
}

/// What standard output goes to, as it was handed down: by its name a socket, or a file of another user, cannot be opened.
fn stdout_file() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Whether this is what standard output goes to, by whatever name.
fn is_stdout(path: &Path) -> bool {
    match (path.metadata(), stdout_file().and_then(|stdout| stdout.metadata())) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// A file that was written.
pub(super) struct Saved<W> {
    /// What it was written to.
    pub(super) to: W,
    /// What it holds.
    pub(super) counts: Counts,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Keys that had gone when they were read.
    pub(super) gone: u64,
    /// When the last one was read, milliseconds since 1970.
    pub(super) ended_ms: u64,
}

/// Writes all keys that this place has; `path` is what is written to, for errors.
pub(super) fn save<W: Write>(
    connection: Connection,
    place: &Place,
    header: &Header,
    to: W,
    path: &Path,
) -> anyhow::Result<Saved<W>> {
    let writer = Writer::begin(to, header).map_err(|cause| unwritable(path, &cause))?;
    let average = GROUP_BYTES / GROUP as u64;
    let mut saving = Saving { connection, writer, place, path, most: GROUP, average, gone: 0 };
    let progress = bar("saving", place.keys);
    // Where keys move meanwhile, SCAN may name some twice. Their hashes are drawn anew each time, and of 128 bits: two keys
    // with the same one are not met.
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut seen = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let (next, mut keys) = saving.page(&cursor)?;
        keys.retain(|key| seen.insert(xxh3_128_with_seed(key, seed)));
        saving.keys(keys)?;
        let done = saving.writer.counts().keys;
        progress.set_length(place.keys.max(done));
        progress.set_position(done);
        if next == b"0" {
            break;
        }
        cursor = next;
    }
    progress.finish_and_clear();
    let (gone, ended_ms) = (saving.gone, place.now_ms());
    let (to, counts, bytes) = saving.writer.finish(ended_ms).map_err(|cause| unwritable(path, &cause))?;
    Ok(Saved { to, counts, bytes, gone, ended_ms })
}

/// A key that is to be asked for.
struct Ahead {
    key: Vec<u8>,
    /// With others it was refused.
    alone: bool,
}

/// Keys that are asked for at once.
type Group = Vec<Vec<u8>>;

struct Saving<'a, W> {
    connection: Connection,
    writer: Writer<W>,
    place: &'a Place,
    path: &'a Path,
    /// Keys that may be asked for at once: of a keyspace in partitions, one.
    most: usize,
    /// Bytes that a value had of late.
    average: u64,
    gone: u64,
}

impl<W: Write> Saving<'_, W> {
    /// A page of keys, and the cursor of the next one.
    fn page(&mut self, cursor: &[u8]) -> anyhow::Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let mut patience = Patience::new();
        let told = loop {
            match self.connection.ask(&[b"SCAN", cursor, b"COUNT", PAGE])? {
                Reply::Error(text) if passes_by(&text) && patience.wait(self.connection.at(), &text) => {}
                Reply::Error(text) => return Err(refused(self.connection.at(), "SCAN", &text, RIGHTS)),
                Reply::List(told) => break told,
                _ => return Err(self.connection.strange()),
            }
        };
        let mut told = told.into_iter();
        let (Some(Reply::Bulk(next)), Some(Reply::List(keys))) = (told.next(), told.next()) else {
            return Err(self.connection.strange());
        };
        let keys = keys.into_iter().map(|key| if let Reply::Bulk(key) = key { Some(key) } else { None });
        let keys: Option<Vec<_>> = keys.collect();
        Ok((next, keys.ok_or_else(|| self.connection.strange())?))
    }

    /// Writes these keys, but for those that have gone.
    fn keys(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<()> {
        let mut ahead: VecDeque<_> = keys.into_iter().map(|key| Ahead { key, alone: false }).collect();
        let mut under_way: VecDeque<Group> = VecDeque::new();
        let mut patience = Patience::new();
        let mut long = Vec::new();
        loop {
            while self.has_room(&under_way) {
                let group = self.group(&mut ahead);
                if group.is_empty() {
                    break;
                }
                self.ask(&group);
                under_way.push_back(group);
            }
            let Some(group) = under_way.pop_front() else { break };
            self.connection.flush()?;
            let count = group.len();
            let refusals = self.hear(group)?;
            if refusals.len() < count {
                patience.renew();
            }
            for (key, text) in refusals {
                if count == 1 && reading::is_too_long(&text) {
                    long.push(key);
                    continue;
                }
                // With others: what is wrong may be of another key, or that there are others.
                if count == 1 && !(passes_by(&text) && patience.wait(self.connection.at(), &text)) {
                    let what = format!("DUMP {}", shown(&key));
                    return Err(refused(self.connection.at(), &what, &text, RIGHTS));
                }
                ahead.push_front(Ahead { key, alone: true });
            }
        }
        // With nothing else under way.
        for key in long {
            let Saving { connection, writer, place, path, .. } = self;
            match reading::read(connection, writer, place, path, &key)? {
                Read::Whole => {}
                Read::Changed => say(format_args!(
                    "{}: it was written while it was read, in parts, as it is longer than a node tells at once",
                    shown(&key)
                )),
                Read::Gone => self.gone += 1,
            }
        }
        Ok(())
    }

    /// Whether another group may be asked for.
    fn has_room(&self, under_way: &VecDeque<Group>) -> bool {
        let most = if self.most > 1 { GROUPS } else { SINGLES };
        let keys: u64 = under_way.iter().map(|group| group.len() as u64).sum();
        let bytes: usize = under_way.iter().flatten().map(|key| asked(key)).sum();
        let fits = bytes < ASKED && keys.saturating_mul(self.average) < EXPECTED;
        under_way.is_empty() || (under_way.len() < most && fits)
    }

    /// The keys that are asked for next; none where none are left.
    fn group(&self, ahead: &mut VecDeque<Ahead>) -> Group {
        let most = usize::try_from(GROUP_BYTES / self.average.max(1)).unwrap_or(GROUP);
        let most = most.clamp(1, self.most);
        let (mut group, mut bytes) = (Group::new(), 0);
        while let Some(next) = ahead.pop_front() {
            bytes += asked(&next.key);
            let fits = !next.alone && group.len() < most && bytes <= ASKED / GROUPS;
            if !fits && !group.is_empty() {
                ahead.push_front(next);
                break;
            }
            let Ahead { key, alone } = next;
            group.push(key);
            if alone {
                break;
            }
        }
        group
    }

    fn ask(&mut self, group: &[Vec<u8>]) {
        self.connection.push(&[b"MULTI"]);
        for key in group {
            self.connection.push(&[b"PEXPIRETIME", key.as_slice()]);
            self.connection.push(&[b"DUMP", key.as_slice()]);
        }
        self.connection.push(&[b"EXEC"]);
    }

    /// Writes what is answered to a group; the keys that were refused, each with the error.
    fn hear(&mut self, group: Group) -> anyhow::Result<Vec<(Vec<u8>, String)>> {
        let path = self.path;
        let Saving { connection, writer, most, average, gone, .. } = self;
        match connection.head()? {
            Head::Text(_) => {}
            Head::Error(text) => return Err(refused(connection.at(), "MULTI", &text, RIGHTS)),
            _ => return Err(connection.strange()),
        }
        let mut wrong = None;
        for _ in 0..2 * group.len() {
            match connection.head()? {
                Head::Text(_) => {}
                Head::Error(text) => wrong = wrong.or(Some(text)),
                _ => return Err(connection.strange()),
            }
        }
        let count = group.len() as u64;
        match connection.head()? {
            Head::List(Some(answers)) if answers == 2 * count => {}
            Head::Error(text) => {
                let text = wrong.unwrap_or(text);
                if text.starts_with("CROSSSLOT") {
                    *most = 1;
                } else if !passes_by(&text) {
                    // So many may be more than a transaction of this protocol takes.
                    *most = (group.len() / 2).max(1);
                }
                return Ok(group.into_iter().map(|key| (key, text.clone())).collect());
            }
            _ => return Err(connection.strange()),
        }
        let (mut refusals, mut bytes) = (Vec::new(), 0);
        for key in group {
            let deadline = match connection.head()? {
                Head::Number(deadline) => Ok(deadline),
                Head::Error(text) => Err(text),
                _ => return Err(connection.strange()),
            };
            let value = match connection.head()? {
                Head::Bulk(length) => Ok(length),
                Head::Error(text) => Err(text),
                _ => return Err(connection.strange()),
            };
            match (deadline, value) {
                (Ok(deadline), Ok(Some(length))) => {
                    let deadline = match deadline {
                        -1 => None,
                        at => Some(u64::try_from(at).map_err(|_| connection.strange())?),
                    };
                    let unwritable = |cause: io::Error| unwritable(path, &cause);
                    writer.key(&key, deadline, length).map_err(unwritable)?;
                    connection.bytes(length, |piece| {
                        writer.value(piece).map_err(unwritable)?;
                        Ok(())
                    })?;
                    writer.end().map_err(unwritable)?;
                    bytes += length;
                }
                (Ok(_), Ok(None)) => *gone += 1,
                (Err(text), Ok(Some(length))) => {
                    connection.bytes(length, |_| Ok(()))?;
                    refusals.push((key, text));
                }
                (Err(text), _) | (_, Err(text)) => refusals.push((key, text)),
            }
        }
        let now = bytes / count.max(1);
        *average = now.max((*average * 3 + now) / 4);
        Ok(refusals)
    }
}

/// Bytes that it takes to ask for a key, about.
fn asked(key: &[u8]) -> usize {
    2 * key.len() + 64
}
