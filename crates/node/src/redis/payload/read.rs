//! A value from its payload.

use super::packed::{self, Pack, Packed, intset, listpack, ziplist};
use super::{Allowance, Fault, Read, kind, lzf};
use isochrone_core::Blob;
use isochrone_core::command::{Content, Score};
use std::borrow::Cow;

/// The bytes that are still to be read, and what they may still come to.
pub(super) struct Source<'a> {
    rest: &'a [u8],
    left: Allowance,
    /// Bytes that may still come out of compressed strings, whatever becomes of them.
    inflated: usize,
}

/// A length, or the way in which a string is written instead.
enum Length {
    Plain(u64),
    Other(u8),
}

impl<'a> Source<'a> {
    pub(super) fn new(rest: &'a [u8], left: Allowance) -> Source<'a> {
        Source { rest, left, inflated: left.bytes }
    }

    /// Nothing is left.
    pub(super) fn end(&self) -> Read<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Fault::Format) }
    }

    pub(super) fn value(&mut self) -> Read<Content> {
        Ok(match self.byte()? {
            kind::STRING => Content::String(self.blob()?),
            kind::LIST => Content::List(self.counted(Source::blob)?),
            kind::SET => Content::Set(self.counted(Source::blob)?),
            kind::HASH => Content::Hash(self.counted(|source| Ok((source.blob()?, source.blob()?)))?),
            kind::SORTED => Content::Sorted(self.counted(|source| {
                let member = source.blob()?;
                let score = f64::from_le_bytes(source.array()?);
                Ok((source.score(Score::new(score))?, member))
            })?),
            kind::SORTED_TEXT => Content::Sorted(self.counted(|source| {
                let member = source.blob()?;
                let score = source.double()?;
                Ok((source.score(score)?, member))
            })?),
            kind::LIST_ZIPLIST => Content::List(self.packed(ziplist)?),
            kind::SET_LISTPACK => Content::Set(self.packed(listpack)?),
            kind::SET_INTSET => {
                let bytes = self.string()?;
                let mut members = Vec::new();
                for number in intset(&bytes)? {
                    members.push(self.admit(Packed::Number(number))?);
                }
                Content::Set(members)
            }
            kind::HASH_ZIPLIST => Content::Hash(self.fields(ziplist)?),
            kind::HASH_LISTPACK => Content::Hash(self.fields(listpack)?),
            kind::SORTED_ZIPLIST => Content::Sorted(self.scored(ziplist)?),
            kind::SORTED_LISTPACK => Content::Sorted(self.scored(listpack)?),
            kind::LIST_ZIPLISTS => Content::List(self.counted(|source| source.packed(ziplist))?.concat()),
            kind::LIST_LISTPACKS => {
                let nodes = self.counted(|source| match source.length()? {
                    // A long element for itself.
                    1 => Ok(vec![source.blob()?]),
                    2 => source.packed(listpack),
                    _ => Err(Fault::Format),
                })?;
                Content::List(nodes.concat())
            }
            form @ (kind::STREAM | kind::STREAM_2 | kind::STREAM_3) => self.stream(form)?,
            _ => return Err(Fault::Format),
        })
    }

    /// How many elements may still come.
    pub(super) fn elements_left(&self) -> usize {
        self.left.elements
    }

    /// As many as a length says.
    pub(super) fn counted<T>(&mut self, mut one: impl FnMut(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let count = self.length()?;
        // The claim is believed as far as there are bytes.
        let mut found =
            Vec::with_capacity(usize::try_from(count).unwrap_or(usize::MAX).min(self.rest.len() / 8));
        for _ in 0..count {
            found.push(one(self)?);
        }
        Ok(found)
    }

    /// All elements of a pack.
    fn packed(&mut self, open: impl Fn(&[u8]) -> Read<Pack<'_>>) -> Read<Vec<Blob>> {
        let bytes = self.string()?;
        let (mut pack, mut found) = (open(&bytes)?, Vec::new());
        while let Some(element) = pack.next()? {
            found.push(self.admit(element)?);
        }
        Ok(found)
    }

    /// Fields and values of a pack.
    fn fields(&mut self, open: impl Fn(&[u8]) -> Read<Pack<'_>>) -> Read<Vec<(Blob, Blob)>> {
        let bytes = self.string()?;
        let (mut pack, mut found) = (open(&bytes)?, Vec::new());
        while let Some(field) = pack.next()? {
            found.push((self.admit(field)?, self.admit(pack.one()?)?));
        }
        Ok(found)
    }

    /// Members and scores of a pack.
    fn scored(&mut self, open: impl Fn(&[u8]) -> Read<Pack<'_>>) -> Read<Vec<(Score, Blob)>> {
        let bytes = self.string()?;
        let (mut pack, mut found) = (open(&bytes)?, Vec::new());
        while let Some(member) = pack.next()? {
            let member = self.admit(member)?;
            let score = match pack.one()? {
                Packed::Bytes(text) => Score::parse(text),
                Packed::Number(number) => Score::new(number as f64),
            };
            found.push((self.score(score)?, member));
        }
        Ok(found)
    }

    /// A string that becomes a part of the value.
    pub(super) fn blob(&mut self) -> Read<Blob> {
        let bytes = self.string()?;
        self.admit(Packed::Bytes(&bytes))
    }

    /// An element of a pack that becomes a part of the value.
    pub(super) fn admit(&mut self, element: Packed<'_>) -> Read<Blob> {
        self.spend(element.len())?;
        Ok(element.blob())
    }

    fn score(&mut self, score: Option<Score>) -> Read<Score> {
        self.spend(0)?;
        score.ok_or(Fault::Format)
    }

    /// One element more, of so many bytes.
    pub(super) fn spend(&mut self, bytes: usize) -> Read<()> {
        self.left.elements = self.left.elements.checked_sub(1).ok_or(Fault::Elements)?;
        self.left.bytes = self.left.bytes.checked_sub(bytes).ok_or(Fault::Bytes)?;
        Ok(())
    }

    /// A string, however it is written.
    pub(super) fn string(&mut self) -> Read<Cow<'a, [u8]>> {
        let number = |number: i64| Ok(Cow::Owned(number.to_string().into_bytes()));
        match self.any_length()? {
            Length::Plain(length) => {
                Ok(Cow::Borrowed(self.take(usize::try_from(length).map_err(|_| Fault::Format)?)?))
            }
            Length::Other(0) => number(i64::from(self.byte()? as i8)),
            Length::Other(1) => number(i64::from(i16::from_le_bytes(self.array()?))),
            Length::Other(2) => number(i64::from(i32::from_le_bytes(self.array()?))),
            Length::Other(3) => {
                let (compressed, length) = (self.length()?, self.length()?);
                let fits = |length: u64| usize::try_from(length).map_err(|_| Fault::Format);
                let (compressed, length) = (self.take(fits(compressed)?)?, fits(length)?);
                self.inflated = self.inflated.checked_sub(length).ok_or(Fault::Bytes)?;
                Ok(Cow::Owned(lzf::inflate(compressed, length).ok_or(Fault::Format)?))
            }
            Length::Other(_) => Err(Fault::Format),
        }
    }

    /// A score as text.
    fn double(&mut self) -> Read<Option<Score>> {
        Ok(match self.byte()? {
            255 => Some(Score::MIN),
            254 => Some(Score::MAX),
            253 => None,
            length => Score::parse(self.take(usize::from(length))?),
        })
    }

    /// A length, or another number.
    pub(super) fn length(&mut self) -> Read<u64> {
        match self.any_length()? {
            Length::Plain(length) => Ok(length),
            Length::Other(_) => Err(Fault::Format),
        }
    }

    fn any_length(&mut self) -> Read<Length> {
        let head = self.byte()?;
        let low = u64::from(head & 0x3f);
        Ok(Length::Plain(match head {
            0x00..=0x3f => low,
            0x40..=0x7f => low << 8 | u64::from(self.byte()?),
            0x80 => u64::from(u32::from_be_bytes(self.array()?)),
            0x81 => u64::from_be_bytes(self.array()?),
            0x82..=0xbf => return Err(Fault::Format),
            0xc0..=0xff => return Ok(Length::Other(head & 0x3f)),
        }))
    }

    fn byte(&mut self) -> Read<u8> {
        self.array().map(|[byte]| byte)
    }

    /// So many bytes as they are.
    pub(super) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        packed::array(&mut self.rest)
    }

    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        packed::take(&mut self.rest, count)
    }
}
