//! Replies in the order of their requests, whatever the order of the outcomes.

use super::blocking::Fills;
use super::connection::{EAGER, FLOODED};
use super::lookups::Lookups;
use super::reply::Version;
use super::report::Report;
use super::shape::Shape;
use super::transaction::Probe;
use isochrone_core::Instant;
use isochrone_core::command::Operation;
use std::collections::VecDeque;

/// The replies that a connection still owes, oldest first. Replies that nothing stands before go straight
/// to the output; the rest wait here, encoded.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// The number of the oldest slot; numbers are never used twice.
    first: u64,
    slots: VecDeque<Slot>,
    waiting: usize,
    ordered: usize,
    copying: usize,
    bytes: usize,
    ready: usize,
    /// What was noted of the requests under way, in their order, and how much was noted before that.
    notes: Vec<u8>,
    notes_before: u64,
}

/// What was noted of a request, as a place among all that ever was.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Noted {
    from: u64,
    length: usize,
}

/// Notes of this many bytes may be of requests that were answered.
const NOTES_SLACK: usize = 4096;

#[derive(Debug)]
enum Slot {
    Waiting(Waiting),
    Ready(Vec<u8>),
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// How its outcome becomes a reply.
    pub(crate) shape: Shape,
    /// The version spoken when it was asked.
    pub(crate) version: Version,
    /// The bytes of the request.
    pub(crate) bytes: usize,
    /// Whether CLIENT REPLY holds its reply back.
    pub(crate) muted: bool,
    /// Whether it is executed in its place among the writes.
    pub(crate) ordered: bool,
    /// What [`copies`] says of it.
    pub(crate) copies: usize,
    /// What it may give to those who wait for a key.
    pub(crate) fills: Fills,
    /// What is asked with it.
    pub(crate) probe: Option<Box<Probe>>,
    /// The same, so that it says what it does.
    pub(crate) report: Option<Box<Report>>,
    /// Whether what it reads is found.
    pub(crate) lookups: Lookups,
    /// The command, and when it was asked of a keyspace.
    pub(crate) name: &'static str,
    pub(crate) asked: Instant,
    /// What was noted of it.
    pub(crate) noted: Noted,
}

/// How much of what may be unsent the answer to this operation is to count as, in parts of [`EAGER`], where it takes memory of its
/// own as soon as it is made, with no bound in what is asked. Values and elements themselves are mostly shared with the keyspace, so
/// that of `GET`, `MGET` or a few elements of a list there is no copy until they are written, which is when the client has read what
/// was written before. Where they are not, because the value was edited or taken out since, or came from another node, what waits
/// counts among what the client has left unread ([`crate::gateway::Session::holds`]). Of whole collections, which are asked for by
/// the hundred where they are small, [`EAGER`] may be under way; of others [`FLOODED`], so that together they are within what a client may
/// leave unread.
pub(crate) fn copies(operation: &Operation) -> usize {
    use Operation::*;
    match operation {
        GetRange { .. }
        | Keys { .. }
        | Scan { .. }
        | Dump { .. }
        | Sort { .. }
        | HScan { .. }
        | HRandField { count: Some(_), .. }
        | LPos { count: Some(_), .. }
        | SScan { .. }
        | SRandMember { count: Some(_), .. }
        | SCombine { .. }
        | ZRange { .. }
        | ZScan { .. }
        | ZCombine { .. }
        | ZRandMember { count: Some(_), .. }
        | GeoSearch { .. }
        | XRange { .. }
        | XRead { .. }
        | XReadGroup { .. }
        | XGroup { .. }
        | XInfo { .. } => EAGER / FLOODED,
        HGetAll { .. } | HKeys { .. } | HVals { .. } | SMembers { .. } => 1,
        LRange { start, stop, .. }
            if (*start < 0) != (*stop < 0) || stop.saturating_sub(*start) >= FEW_ELEMENTS =>
        {
            EAGER / FLOODED
        }
        // All of it is one answer.
        Transaction { operations, .. } => operations.iter().map(copies).max().unwrap_or(0),
        _ => 0,
    }
}

/// So many elements of a list are few.
const FEW_ELEMENTS: i64 = 1024;

impl Pipeline {
    /// Requests under way.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Requests under way that are executed in their place among the writes.
    pub(crate) fn ordered(&self) -> usize {
        self.ordered
    }

    /// Requests under way that are not.
    pub(crate) fn looking(&self) -> usize {
        self.waiting - self.ordered
    }

    /// What [`copies`] says of all requests under way.
    pub(crate) fn copying(&self) -> usize {
        self.copying
    }

    /// A request under way takes another step, which may give this, and with which this is asked.
    pub(crate) fn goes_on(
        &mut self,
        id: u64,
        fills: Fills,
        probe: Option<Box<Probe>>,
        report: Option<Box<Report>>,
    ) {
        if let Some(waiting) = self.awaited_mut(id) {
            (waiting.fills, waiting.probe, waiting.report) = (fills, probe, report);
        }
    }

    /// What was asked with this request, for which an outcome has come.
    pub(crate) fn take_asked(&mut self, id: u64) -> (Option<Box<Probe>>, Option<Box<Report>>) {
        let waiting = self.awaited_mut(id);
        waiting.map(|waiting| (waiting.probe.take(), waiting.report.take())).unwrap_or_default()
    }

    fn awaited_mut(&mut self, id: u64) -> Option<&mut Waiting> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        match self.slots.get_mut(index)? {
            Slot::Waiting(waiting) => Some(waiting),
            Slot::Ready(_) => None,
        }
    }

    /// Whether nothing is owed before the reply to this request.
    pub(crate) fn is_next(&self, id: u64) -> bool {
        id == self.first
    }

    /// The request of this number, if its outcome is awaited.
    pub(crate) fn awaited(&self, id: u64) -> Option<&Waiting> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        match self.slots.get(index)? {
            Slot::Waiting(waiting) => Some(waiting),
            Slot::Ready(_) => None,
        }
    }

    /// Bytes of the requests under way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is owed.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Notes what may have to be told of the request that waits next. All notes lie in one piece: an allocation for each
    /// would be among the larger things that a request costs.
    pub(crate) fn note(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Noted {
        let needed_from = match self.slots.front() {
            Some(Slot::Waiting(oldest)) => oldest.noted.from,
            _ => self.notes_end(),
        };
        // At most as long as all notes.
        let over = (needed_from - self.notes_before) as usize;
        if over == self.notes.len() || over > NOTES_SLACK.max(self.notes.len() / 2) {
            self.notes.drain(..over);
            self.notes.shrink_to(4 * NOTES_SLACK.max(self.notes.len()));
            self.notes_before = needed_from;
        }
        let (from, before) = (self.notes_end(), self.notes.len());
        write(&mut self.notes);
        Noted { from, length: self.notes.len() - before }
    }

    /// What was noted of a request that was just taken.
    pub(crate) fn noted(&self, noted: Noted) -> &[u8] {
        let from = noted.from.checked_sub(self.notes_before).map_or(usize::MAX, |from| from as usize);
        self.notes.get(from..from.saturating_add(noted.length)).unwrap_or_default()
    }

    fn notes_end(&self) -> u64 {
        self.notes_before + self.notes.len() as u64
    }

    /// Takes a place in the order; returns its number.
    pub(crate) fn wait(&mut self, waiting: Waiting) -> u64 {
        self.waiting += 1;
        self.ordered += usize::from(waiting.ordered);
        self.copying += waiting.copies;
        self.bytes += waiting.bytes;
        self.slots.push_back(Slot::Waiting(waiting));
        self.first + self.slots.len() as u64 - 1
    }

    /// Bytes of replies that wait for others before them.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Writes a reply in its place: behind all that is owed.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.slots.is_empty() {
            return write(out);
        }
        if !matches!(self.slots.back(), Some(Slot::Ready(_))) {
            self.slots.push_back(Slot::Ready(Vec::new()));
        }
        if let Some(Slot::Ready(bytes)) = self.slots.back_mut() {
            let before = bytes.len();
            write(bytes);
            self.ready += bytes.len() - before;
        }
    }

    /// The request of this number, if its outcome is awaited, by which it is awaited no longer. It must be
    /// followed by [`Pipeline::fill`].
    pub(crate) fn take(&mut self, id: u64) -> Option<Waiting> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        if matches!(slot, Slot::Ready(_)) {
            return None;
        }
        match std::mem::replace(slot, Slot::Ready(Vec::new())) {
            Slot::Waiting(waiting) => {
                self.waiting -= 1;
                self.ordered -= usize::from(waiting.ordered);
                self.copying -= waiting.copies;
                self.bytes -= waiting.bytes;
                Some(waiting)
            }
            Slot::Ready(_) => None,
        }
    }

    /// Writes the reply of a request that was taken, and all that waited behind it alone.
    pub(crate) fn fill(&mut self, id: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if id == self.first {
            write(out);
        } else if let Some(Slot::Ready(bytes)) =
            id.checked_sub(self.first).and_then(|index| self.slots.get_mut(index as usize))
        {
            write(bytes);
            self.ready += bytes.len();
        }
        while let Some(Slot::Ready(bytes)) = self.slots.front() {
            out.extend_from_slice(bytes);
            self.ready -= bytes.len();
            self.slots.pop_front();
            self.first += 1;
        }
    }
}
