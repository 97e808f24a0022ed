//! Streams in payloads: nodes of entries, each a listpack under the identifier of its first entry, from which those of
//! the others are counted, and whose fields they need not repeat.
//!
//! ```text
//! count, deleted, number of fields, fields ..., 0, then for each entry:
//! flags, milliseconds, sequence, [number of fields,] fields and values ... or values alone, how many elements that is
//! ```

use super::packed::{Pack, Packed, listpack};
use super::read::Source;
use super::{Fault, Read, kind};
use isochrone_core::command::{Content, Dated, Pending, StreamHead, StreamId, StreamPart};
use std::collections::BTreeMap;

/// Flags of an entry: it was deleted; its fields are those of the node's first.
pub(super) const DELETED: i64 = 1;
pub(super) const SAME_FIELDS: i64 = 2;

/// How many entries a group has read where nobody knows.
pub(super) const UNKNOWN: u64 = u64::MAX;

impl Source<'_> {
    pub(super) fn stream(&mut self, form: u8) -> Read<Content> {
        let mut entries = Vec::new();
        for _ in 0..self.length()? {
            let id = self.string()?;
            let id = <[u8; 16]>::try_from(&id[..]).map_err(|_| Fault::Format)?;
            let node = self.string()?;
            self.node(long_id(id), listpack(&node)?, &mut entries)?;
        }
        let length = self.length()?;
        let last = self.id()?;
        if length != entries.len() as u64 || last == StreamId::MIN && length > 0 {
            return Err(Fault::Format);
        }
        let mut head = StreamHead { last, added: length, deleted: StreamId::MIN };
        if form != kind::STREAM {
            // The first entry, which is known.
            self.id()?;
            head = StreamHead { deleted: self.id()?, added: self.length()?, ..head };
        }
        let mut groups = Vec::new();
        for _ in 0..self.length()? {
            self.group(form, head, &entries, &mut groups)?;
        }
        if groups.is_empty() && head == (StreamHead { last, added: length, deleted: StreamId::MIN }) {
            return Ok(Content::Stream(last, entries));
        }
        let entries = entries.into_iter().map(StreamPart::Entry);
        Ok(Content::Parts(head, entries.chain(groups).collect()))
    }

    fn node(&mut self, first: StreamId, mut pack: Pack<'_>, entries: &mut Vec<Dated>) -> Read<()> {
        let (count, deleted) = (pack.number()?, pack.number()?);
        let (mut living, mut dead) = (0, 0);
        let mut shared: Vec<Packed<'_>> = Vec::new();
        for _ in 0..pack.number()? {
            if shared.len() == self.elements_left() {
                return Err(Fault::Elements);
            }
            shared.push(pack.one()?);
        }
        if pack.number()? != 0 {
            return Err(Fault::Format);
        }
        while let Some(flags) = pack.next()? {
            let flags = flags.number()?;
            let id = StreamId {
                millis: first.millis.wrapping_add_signed(pack.number()?),
                sequence: first.sequence.wrapping_add_signed(pack.number()?),
            };
            let same = flags & SAME_FIELDS != 0;
            let kept = flags & DELETED == 0;
            let number = if same { shared.len() as i64 } else { pack.number()? };
            if number < 1 {
                return Err(Fault::Format);
            }
            let mut fields = Vec::new();
            for at in 0..number {
                // Fewer than there are elements in the pack.
                let field = if same { shared[at as usize] } else { pack.one()? };
                let value = pack.one()?;
                if kept {
                    fields.push((self.admit(field)?, self.admit(value)?));
                }
            }
            // As many were read, so it is far from the end of 64 bits.
            let elements = if same { number + 3 } else { 2 * number + 4 };
            if pack.number()? != elements {
                return Err(Fault::Format);
            }
            if kept {
                self.spend(0)?;
                entries.push((id, fields));
                living += 1;
            } else {
                dead += 1;
            }
        }
        if (living, dead) == (count, deleted) { Ok(()) } else { Err(Fault::Format) }
    }

    /// A group, its consumers, and what is pending.
    fn group(
        &mut self,
        form: u8,
        head: StreamHead,
        entries: &[Dated],
        parts: &mut Vec<StreamPart>,
    ) -> Read<()> {
        let (name, last) = (self.blob()?, self.id()?);
        let read = match form {
            // As Redis reckons it.
            kind::STREAM => {
                let first = entries.first().map_or(StreamId::MIN, |(id, _)| *id);
                head.added_up_to(last, entries.len() as u64, first)
            }
            _ => Some(self.length()?).filter(|read| *read != UNKNOWN),
        };
        parts.push(StreamPart::Group(name, last, read));
        // What was delivered and not acknowledged: its identifier, when and how often.
        let mut pending = BTreeMap::new();
        for _ in 0..self.length()? {
            self.spend(0)?;
            let id = long_id(self.array()?);
            let delivered = u64::from_le_bytes(self.array()?);
            if pending.insert(id, (None, delivered, self.length()?)).is_some() {
                return Err(Fault::Format);
            }
        }
        // Consumers, when they were seen, and the identifiers of what they have of that.
        for consumer in 0..self.length()? {
            let name = self.blob()?;
            parts.push(StreamPart::Consumer(name, u64::from_le_bytes(self.array()?)));
            if form == kind::STREAM_3 {
                // When it was last given something: nobody asks for it here.
                self.array::<8>()?;
            }
            for _ in 0..self.length()? {
                match pending.get_mut(&long_id(self.array()?)) {
                    Some((owner @ None, ..)) => *owner = Some(consumer),
                    _ => return Err(Fault::Format),
                }
            }
        }
        for (id, (consumer, delivered, count)) in pending {
            let consumer = consumer.ok_or(Fault::Format)?;
            parts.push(StreamPart::Pending(id, Pending { consumer, delivered, count }));
        }
        Ok(())
    }

    fn id(&mut self) -> Read<StreamId> {
        Ok(StreamId { millis: self.length()?, sequence: self.length()? })
    }
}

/// An identifier as a key of Redis' trees: that of a node, or of what is pending.
fn long_id(bytes: [u8; 16]) -> StreamId {
    let id = u128::from_be_bytes(bytes);
    StreamId { millis: (id >> 64) as u64, sequence: id as u64 }
}
