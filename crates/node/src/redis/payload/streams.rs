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
use isochrone_core::command::{Content, Dated, StreamId};

/// Flags of an entry: it was deleted; its fields are those of the node's first.
pub(super) const DELETED: i64 = 1;
pub(super) const SAME_FIELDS: i64 = 2;

impl Source<'_> {
    pub(super) fn stream(&mut self, form: u8) -> Read<Content> {
        let mut entries = Vec::new();
        for _ in 0..self.length()? {
            let id = self.string()?;
            let id = <[u8; 16]>::try_from(&id[..]).map_err(|_| Fault::Format)?;
            let node = self.string()?;
            self.node(first_id(id), listpack(&node)?, &mut entries)?;
        }
        let length = self.length()?;
        let last = self.id()?;
        if form != kind::STREAM {
            // The first entry, the last that was deleted, how many there ever were: nobody asks for these here.
            self.id()?;
            self.id()?;
            self.length()?;
        }
        let groups = self.length()?;
        for _ in 0..groups {
            self.group(form)?;
        }
        match () {
            () if length != entries.len() as u64 => Err(Fault::Format),
            () if groups > 0 => Err(Fault::Groups),
            () if last == StreamId::MIN => Err(if length == 0 { Fault::Unfilled } else { Fault::Format }),
            () => Ok(Content::Stream(last, entries)),
        }
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
            let mut fields = Vec::new();
            for at in 0..number {
                // Fewer than there are elements in the pack.
                let field = if same { shared[at as usize] } else { pack.one()? };
                let value = pack.one()?;
                if kept {
                    fields.push((self.admit(field)?, self.admit(value)?));
                }
            }
            let elements = if same { number + 3 } else { 2 * number + 4 };
            if number < 1 || pack.number()? != elements {
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

    /// A group is read to its end, so that what is refused is what it looks like.
    fn group(&mut self, form: u8) -> Read<()> {
        self.string()?;
        self.id()?;
        if form != kind::STREAM {
            self.length()?;
        }
        // What was delivered and not acknowledged: its identifier, when and how often.
        for _ in 0..self.length()? {
            self.array::<24>()?;
            self.length()?;
        }
        // Consumers, when they were seen, and the identifiers of what they have of that.
        for _ in 0..self.length()? {
            self.string()?;
            self.array::<8>()?;
            if form == kind::STREAM_3 {
                self.array::<8>()?;
            }
            for _ in 0..self.length()? {
                self.array::<16>()?;
            }
        }
        Ok(())
    }

    fn id(&mut self) -> Read<StreamId> {
        Ok(StreamId { millis: self.length()?, sequence: self.length()? })
    }
}

/// The identifier under which a node stands.
fn first_id(bytes: [u8; 16]) -> StreamId {
    let id = u128::from_be_bytes(bytes);
    StreamId { millis: (id >> 64) as u64, sequence: id as u64 }
}
