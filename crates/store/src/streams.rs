//! Streams. `XADD *` takes its time from the stamp of the command, so that all replicas give one identifier.

use crate::Store;
use crate::groups::{Group, Groups};
use crate::sequence::Sequence;
use crate::turn::{Changed, Mark, Turn};
use isochrone_core::command::{
    Append, NewId, ReadFrom, Refusal, Response, StreamHead, StreamId, StreamPart, StreamRead, StreamSlice,
    Trim, Trimming,
};
use isochrone_core::{Blob, Stamp};
use std::sync::Arc;

/// Fields and values of an entry.
pub(crate) type Fields = Arc<[(Blob, Blob)]>;

/// A stream. Other than the collections it stays when its last entry goes: identifiers never come again.
#[derive(Clone, Default, PartialEq, Hash)]
pub(crate) struct Stream {
    entries: Sequence<(StreamId, Fields)>,
    head: StreamHead,
    pub groups: Groups,
}

impl Stream {
    /// One without entries, as a replica is sent it.
    pub fn begin(head: StreamHead) -> Stream {
        Stream { head, ..Stream::default() }
    }

    /// What it remembers.
    pub fn head(&self) -> StreamHead {
        self.head
    }

    /// The same, to be changed.
    pub fn head_mut(&mut self) -> &mut StreamHead {
        &mut self.head
    }

    /// Whether its entries and the last identifier are all there is to say of it.
    pub fn is_plain(&self) -> bool {
        let StreamHead { added, deleted, .. } = self.head;
        added == self.len() as u64 && deleted == StreamId::MIN && self.groups.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn last(&self) -> StreamId {
        self.head.last
    }

    /// The first entry, and the last.
    pub fn ends(&self) -> [Option<&(StreamId, Fields)>; 2] {
        [self.entries.get(0), self.len().checked_sub(1).and_then(|at| self.entries.get(at))]
    }

    /// The entry of this identifier.
    pub fn find(&self, id: StreamId) -> Option<&(StreamId, Fields)> {
        let place = self.entries.seek(|(held, _)| *held < id);
        self.entries.at(place).filter(|(held, _)| *held == id)
    }

    /// The entries from this position on.
    pub fn iter_at(&self, from: usize) -> impl Iterator<Item = &(StreamId, Fields)> {
        self.entries.range(from..self.len())
    }

    /// Its parts from this one on, as a replica is sent them.
    pub fn parts_at(&self, from: usize) -> impl Iterator<Item = StreamPart> {
        let entries = self.iter_at(from.min(self.len()));
        let entries = entries.map(|(id, fields)| StreamPart::Entry((*id, fields.to_vec())));
        entries.chain(self.groups.parts_at(from.saturating_sub(self.len())))
    }

    /// Adds an entry that a replica was sent; false where it cannot be the next.
    pub fn restore(&mut self, id: StreamId, fields: Fields) -> bool {
        let [_, before] = self.ends();
        let fits = before.map_or(StreamId::MIN, |(id, _)| *id) < id
            && id <= self.head.last
            && self.groups.is_empty();
        self.entries.push_back((id, fields));
        fits
    }

    /// Adds a part that a replica was sent; false where it cannot be the next.
    pub fn restore_part(&mut self, part: StreamPart) -> bool {
        match part {
            StreamPart::Entry((id, fields)) => self.restore(id, fields.into()),
            StreamPart::Group(name, last, read) => self.groups.push(Group::new(name, last, read)),
            StreamPart::Consumer(name, seen) => self.groups.last(|group| group.push_consumer(name, seen)),
            StreamPart::Pending(id, pending) => self.groups.last(|group| group.push_pending(id, pending)),
        }
    }

    /// How many entries lie before this identifier.
    fn before(&self, id: StreamId) -> usize {
        self.entries.index(self.entries.seek(|(held, _)| *held < id))
    }

    /// How many lie before it or are it.
    pub fn up_to(&self, id: StreamId) -> usize {
        self.entries.index(self.entries.seek(|(held, _)| *held <= id))
    }

    /// How many entries a trim removes.
    pub fn excess(&self, trimming: Trimming) -> usize {
        let wanted = match trimming.trim {
            Trim::Length(length) => self.len().saturating_sub(usize::try_from(length).unwrap_or(usize::MAX)),
            Trim::Before(id) => self.before(id),
        };
        let most = if trimming.limit == 0 { u64::MAX } else { trimming.limit };
        wanted.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    fn trim(&mut self, trimming: Trimming) -> usize {
        let removed = self.excess(trimming);
        if removed > 0 {
            self.entries.keep(removed..self.entries.len());
        }
        removed
    }

    /// The identifier of a new entry.
    fn id(&self, new: NewId, stamp: Stamp) -> Result<StreamId, Refusal> {
        match new {
            _ if self.last() == StreamId::MAX => Err(Refusal::StreamFull),
            NewId::Next => {
                let now = StreamId { millis: stamp.as_millis(), sequence: 0 };
                if now > self.last() { Ok(now) } else { self.last().next().ok_or(Refusal::StreamFull) }
            }
            NewId::Within(millis) if millis == self.last().millis => {
                let sequence = self.last().sequence.checked_add(1).ok_or(Refusal::StreamIdNotAbove)?;
                Ok(StreamId { millis, sequence })
            }
            NewId::Within(millis) if millis > self.last().millis => Ok(StreamId { millis, sequence: 0 }),
            NewId::This(id) if id > self.last() => Ok(id),
            NewId::Within(_) | NewId::This(_) => Err(Refusal::StreamIdNotAbove),
        }
    }
}

pub(crate) fn entry((id, fields): &(StreamId, Fields)) -> Response {
    let flat = fields.iter().flat_map(|(field, value)| [field, value]);
    let flat = flat.map(|bytes| Response::Bulk(bytes.clone())).collect();
    Response::Array(vec![Response::bulk(id.to_string().as_bytes()), Response::Array(flat)])
}

/// At most so many.
pub(crate) fn bound(count: u64) -> usize {
    if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) }
}

impl Store {
    pub(crate) fn xlen(&self, key: &[u8]) -> Result<Response, Refusal> {
        Ok(Response::count(self.view::<Stream>(key)?.map_or(0, Stream::len)))
    }

    pub(crate) fn xrange(&self, key: &[u8], slice: &StreamSlice) -> Result<Response, Refusal> {
        let Some(stream) = self.view::<Stream>(key)? else { return Ok(Response::Array(Vec::new())) };
        let count = match slice.count {
            Some(0) => return Ok(Response::NilArray),
            count => bound(count.unwrap_or(0)),
        };
        let start = stream.before(slice.start);
        let range = stream.entries.range(start..stream.up_to(slice.end).max(start));
        Ok(Response::Array(match slice.reverse {
            true => range.rev().take(count).map(entry).collect(),
            false => range.take(count).map(entry).collect(),
        }))
    }

    pub(crate) fn xread(&self, read: &StreamRead) -> Result<Response, Refusal> {
        let mut found = Vec::new();
        let mut last = Vec::with_capacity(read.streams.len());
        for (key, from) in &read.streams {
            let stream = self.view::<Stream>(key)?;
            let end = stream.map_or(StreamId::MIN, Stream::last);
            let after = match from {
                ReadFrom::After(id) => *id,
                ReadFrom::Last => end,
            };
            last.push(after);
            let Some(stream) = stream.filter(|_| after < end) else { continue };
            let entries: Vec<_> =
                stream.iter_at(stream.up_to(after)).take(bound(read.count)).map(entry).collect();
            if !entries.is_empty() {
                found.push((Response::Bulk(key.clone()), Response::Array(entries)));
            }
        }
        Ok(match (found.is_empty(), read.resolve) {
            (false, _) => Response::Pairs(found),
            (true, false) => Response::NilArray,
            (true, true) => {
                let number = |number: u64| Response::bulk(&number.to_be_bytes());
                Response::Array(last.iter().flat_map(|id| [number(id.millis), number(id.sequence)]).collect())
            }
        })
    }
}

impl Turn<'_> {
    pub(crate) fn xadd(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        append: &Append,
    ) -> Result<Response, Refusal> {
        let stamp = self.stamp;
        let id = match self.store().view::<Stream>(key)? {
            None if append.only_if_exists => return Ok(Response::Nil),
            None => Stream::default().id(append.id, stamp)?,
            Some(stream) => stream.id(append.id, stamp)?,
        };
        self.update(mark, key, |stream: &mut Stream| {
            stream.entries.push_back((id, append.fields.iter().cloned().collect()));
            stream.head.last = id;
            // No stream had more than 2^64 entries.
            stream.head.added = stream.head.added.wrapping_add(1);
            append.trimming.map(|trimming| stream.trim(trimming));
            ((), Changed::Yes)
        })?;
        Ok(Response::bulk(id.to_string().as_bytes()))
    }

    pub(crate) fn xdel(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        ids: &[StreamId],
    ) -> Result<Response, Refusal> {
        let deleted = self.update_held(mark, key, |stream: &mut Stream| {
            let mut deleted = 0;
            for id in ids {
                // By its place: its position would take a look at every block in front of it.
                let place = stream.entries.seek(|(held, _)| held < id);
                if stream.entries.at(place).is_some_and(|(held, _)| held == id) {
                    stream.entries.remove(place);
                    stream.head.deleted = stream.head.deleted.max(*id);
                    deleted += 1;
                }
            }
            (deleted, Changed::from(deleted > 0))
        })?;
        Ok(Response::count(deleted.unwrap_or(0)))
    }

    pub(crate) fn xtrim(
        &mut self,
        mark: &mut Mark<'_>,
        key: &Blob,
        trimming: Trimming,
    ) -> Result<Response, Refusal> {
        let removed = self.update_held(mark, key, |stream: &mut Stream| {
            let removed = stream.trim(trimming);
            (removed, Changed::from(removed > 0))
        })?;
        Ok(Response::count(removed.unwrap_or(0)))
    }
}
