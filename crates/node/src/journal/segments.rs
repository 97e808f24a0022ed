//! The journal's files: names, which streams hold which segment, and spares made ahead of time.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use super::disk::{Disk, DiskFile};
use super::error::JournalError;
use super::format::{Position, SECTOR, SegmentHeader, StreamId};

/// The stream that keeps the oldest segment from being used again.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Holder {
    /// Whose records they are.
    pub stream: StreamId,
    /// It has said that records before this may go; zero where it has said nothing.
    pub mark: Position,
    /// Its last record in that segment: the mark must pass this.
    pub last: Position,
    /// The segment it holds.
    pub segment: u64,
    /// How many bytes of segments lie behind it, this one included.
    pub bytes: u64,
}

/// What the streams have said about their records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// Records before this may go; a snapshot at this position or later exists.
    pub truncated: BTreeMap<StreamId, Position>,
    /// Everything before this belongs to an earlier life of the stream.
    pub ended: BTreeMap<StreamId, Position>,
}

impl Marks {
    /// Answers whether this was news.
    pub fn truncate(&mut self, stream: StreamId, before: Position) -> bool {
        let mark = self.truncated.entry(stream).or_default();
        let news = before > *mark;
        *mark = before.max(*mark);
        news
    }

    /// Answers whether this was news.
    pub fn end(&mut self, stream: StreamId, at: Position) -> bool {
        let mark = self.ended.entry(stream).or_default();
        let news = at > *mark;
        *mark = at.max(*mark);
        if self.truncated.get(&stream).is_some_and(|truncated| *truncated <= at) {
            self.truncated.remove(&stream);
        }
        news
    }

    /// Nobody needs the stream's records before this.
    pub fn floor(&self, stream: StreamId) -> Position {
        let of = |marks: &BTreeMap<StreamId, Position>| marks.get(&stream).copied().unwrap_or_default();
        of(&self.truncated).max(of(&self.ended))
    }
}

/// One segment in use.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub name: String,
    pub header: SegmentHeader,
    /// The last record of each stream in it.
    pub last: BTreeMap<StreamId, Position>,
}

impl Segment {
    /// The stream that still needs it, if any: of several, the one whose mark is furthest behind.
    pub fn holder(&self, marks: &Marks) -> Option<(StreamId, Position, Position)> {
        self.last
            .iter()
            .map(|(stream, last)| (*stream, marks.floor(*stream), *last))
            .filter(|(_, mark, last)| last >= mark)
            .min_by_key(|(_, mark, _)| *mark)
    }
}

/// A zero-filled or given back file, ready to become a segment.
pub(crate) struct Spare<F> {
    pub name: String,
    pub capacity: u64,
    /// Whether it was a segment before, as far as is known: one found at the start may have been.
    pub recycled: bool,
    pub file: F,
}

/// Makes spares: when asked, or ahead of time on a thread of its own so that a batch never waits for zeroes.
pub(crate) struct Spares<D: Disk> {
    disk: D,
    ready: Vec<Spare<D::File>>,
    number: u64,
    /// The last one could not be made ahead of time, or only smaller than usual, and that was said.
    failing: bool,
    /// One was made since the start: from here on the reserve is left alone.
    begun: bool,
    ahead: Option<Receiver<Result<Spare<D::File>, JournalError>>>,
}

/// More spares than this are removed rather than kept: a journal that grew once should shrink again.
const KEPT: usize = 2;

/// Room that is left on the disk, in first segments: a node that has ended for want of room can be started, read and told to
/// delete without room being made. The snapshot that takes the place of the one before it needs some too.
const RESERVE: u64 = 4;

/// Of that a start takes this part of a first segment, once, so that it suffices for several.
const PART: u64 = 4;

impl<D: Disk> Spares<D> {
    /// Takes stock of what is in the directory; half-made files are removed.
    pub fn find(disk: &D, names: &[String]) -> Result<Self, JournalError> {
        let mut spares = Self {
            disk: disk.clone(),
            ready: Vec::new(),
            number: 0,
            failing: false,
            begun: false,
            ahead: None,
        };
        for name in names {
            let failed = |action, e| JournalError::io(disk.path(name), action, 0, e);
            if name.ends_with(".new") {
                disk.remove(name).map_err(|e| failed("remove", e))?;
            } else if let Some(number) = parse(name, "spare-") {
                spares.number = spares.number.max(number);
                let file = disk.open(name).map_err(|e| failed("open", e))?;
                let capacity = file.length().map_err(|e| failed("open", e))?;
                spares.ready.push(Spare { name: name.clone(), capacity, recycled: true, file });
            }
        }
        Ok(spares)
    }

    /// A file of at least `needed` bytes: a spare, or a new one of `usual` bytes or more. Where the disk has no room for that,
    /// of so much as it has room for, but for the reserve; down to `first` bytes, the size of a journal's first segment.
    pub fn take(&mut self, needed: u64, usual: u64, first: u64) -> Result<Spare<D::File>, JournalError> {
        if let Some(ahead) = self.ahead.take() {
            // It was begun when the segment was half full; where it failed, the attempt below says why.
            if let Ok(Ok(spare)) = ahead.recv() {
                self.failing = false;
                self.ready.push(spare);
            }
        }
        if let Some(index) = self.ready.iter().position(|spare| spare.capacity >= needed) {
            return Ok(self.ready.swap_remove(index));
        }
        self.number += 1;
        let (wanted, least) = (needed.max(usual), needed.max(first));
        let mut size = wanted;
        let made = loop {
            let made = has_room(&self.disk, self.number, size, first.saturating_mul(RESERVE))
                .and_then(|()| make(&self.disk, self.number, size));
            match made {
                Err(JournalError::DiskFull { .. }) if size > least => size = (size / 2).max(least),
                Err(JournalError::DiskFull { .. }) if !self.begun => {
                    size = needed.max(first / PART);
                    break make(&self.disk, self.number, size)?;
                }
                made => break made?,
            }
        };
        self.begun = true;
        self.failing = size < wanted;
        if self.failing {
            tracing::warn!(
                bytes = size,
                usual = wanted,
                "the disk is nearly full: this journal segment is smaller than usual; make room, or the node ends"
            );
        }
        Ok(made)
    }

    /// Begins to make one on another thread, unless one is there or under way. Answers false if the last one failed, or there is
    /// no room for one.
    pub fn make_ahead(&mut self, usual: u64, first: u64) -> bool {
        let outcome = self.ahead.as_ref().map(Receiver::try_recv);
        let failed = match outcome {
            Some(Err(TryRecvError::Empty)) => return true,
            Some(Ok(Ok(spare))) => {
                self.failing = false;
                self.ready.push(spare);
                None
            }
            Some(Ok(Err(error))) => Some(error),
            Some(Err(TryRecvError::Disconnected)) | None => None,
        };
        self.ahead = None;
        if failed.is_none() && !self.ready.is_empty() {
            return true;
        }
        let number = self.number + 1;
        let room = || has_room(&self.disk, number, usual, first.saturating_mul(RESERVE)).err();
        if let Some(error) = failed.or_else(room) {
            // Tried again with every batch, it would fill the log too.
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(%error, "the next journal segment could not be made ahead of time");
            }
            return false;
        }
        self.number = number;
        let disk = self.disk.clone();
        let (sender, receiver) = sync_channel(1);
        let work = move || {
            // The journal may have been dropped meanwhile; the file is then found at the next start.
            let _ = sender.send(make(&disk, number, usual));
        };
        if std::thread::Builder::new().name("journal-spare".into()).spawn(work).is_ok() {
            self.ahead = Some(receiver);
        }
        true
    }

    /// Takes back a segment that nobody needs: its name goes durably, the file is kept where it may be useful.
    pub fn give_back(&mut self, segment: &Segment, usual: u64) -> Result<(), JournalError> {
        let failed = |action, e| JournalError::io(self.disk.path(&segment.name), action, 0, e);
        if self.ready.len() < KEPT && segment.header.capacity >= usual {
            self.number += 1;
            let name = spare_name(self.number);
            self.disk.rename(&segment.name, &name).map_err(|e| failed("rename", e))?;
            let file = self.disk.open(&name).map_err(|e| failed("open", e))?;
            self.ready.push(Spare { name, capacity: segment.header.capacity, recycled: true, file });
        } else {
            self.disk.remove(&segment.name).map_err(|e| failed("remove", e))?;
        }
        // One by one: if the names went in another order, the journal would seem to have a hole.
        self.disk.sync_names().map_err(|e| failed("sync", e))
    }
}

impl<D: Disk> Drop for Spares<D> {
    fn drop(&mut self) {
        // Who opens the directory next must not meet a thread that still writes a file of that name.
        if let Some(ahead) = self.ahead.take() {
            let _ = ahead.recv();
        }
    }
}

/// Whether a file of so many bytes leaves this reserve free, as far as the file system tells: without a try that would fill it.
fn has_room<D: Disk>(disk: &D, number: u64, capacity: u64, reserve: u64) -> Result<(), JournalError> {
    let wanted = capacity.saturating_add(reserve);
    match disk.free() {
        Some(free) if free < wanted => {
            Err(JournalError::DiskFull { path: disk.path(&spare_name(number)), needed: wanted - free })
        }
        _ => Ok(()),
    }
}

fn make<D: Disk>(disk: &D, number: u64, capacity: u64) -> Result<Spare<D::File>, JournalError> {
    let capacity = capacity.next_multiple_of(SECTOR as u64);
    let name = spare_name(number);
    let new = format!("{name}.new");
    let file = disk
        .create(&new, capacity)
        .map_err(|e| JournalError::io(disk.path(&name), "make a segment", capacity, e))?;
    disk.rename(&new, &name).map_err(|e| JournalError::io(disk.path(&name), "rename", 0, e))?;
    Ok(Spare { name, capacity, recycled: false, file })
}

pub(crate) fn segment_name(sequence: u64) -> String {
    format!("segment-{sequence:016x}.journal")
}

fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}.journal")
}

/// The sequence numbers and names of the segments among `names`, oldest first.
pub(crate) fn segments_among(names: &[String]) -> Vec<(u64, String)> {
    let mut found: Vec<_> =
        names.iter().filter_map(|name| Some((parse(name, "segment-")?, name.clone()))).collect();
    found.sort();
    found
}

fn parse(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(".journal")?;
    u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)
}
