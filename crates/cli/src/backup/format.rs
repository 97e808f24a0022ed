//! The file of a backup. Numbers are little-endian; every checksum is XXH3 of 64 bits.
//!
//! ```text
//! isochrone-backup 2\n | length: 4 bytes | header, JSON                                     | checksum of all before
//! 1 | deadline: 8 | length of the key: 4 | length of the value: 8 | key | value, as by DUMP | checksum of this record
//! ... more records, of different keys
//! 2 | length: 4 | footer, JSON                                                              | checksum of all before
//! ```
//!
//! A record whose value is longer than a node tells at once is several, one behind the other:
//!
//! ```text
//! 3 | deadline: 8 | length of the key: 4 | type, as DUMP begins: 1 | key                    | checksum of this
//! 4 | what: 1 | number of words: 4 | length: 4 and word, each                               | checksum of this
//! ... more parts
//! 5 | elements: 8 | whether all parts are as of one moment: 1                               | checksum of this
//! ```
//!
//! A deadline is in milliseconds since 1970, 0 where there is none. Nothing is larger in memory than a key or a part: values pass by
//! in pieces, to the file and from it. Form 1, which is read as well, has no parts.

use super::parts::{Part, Type, What};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use xxhash_rust::xxh3::Xxh3;

/// What a file begins with, whatever its form.
const NAME: &[u8] = b"isochrone-backup ";
/// The whole first line: the form that is written and read here.
const MAGIC: &[u8; 19] = b"isochrone-backup 2\n";
/// The one of the form that is read besides.
const EARLIER: &[u8; 19] = b"isochrone-backup 1\n";
/// A record follows.
const RECORD: u8 = 1;
/// The footer follows.
const FOOTER: u8 = 2;
/// A record in parts follows, one of its parts, or their end.
const IN_PARTS: u8 = 3;
const PART: u8 = 4;
const PARTS_END: u8 = 5;
/// The longest header or footer, bytes.
const TEXT_MAX: u32 = 1 << 20;
/// The longest key, bytes: the longest argument of a command that the Redis protocol has.
const KEY_MAX: u32 = 512 << 20;
/// Values are read in pieces of so many bytes at most.
const PIECE: usize = 1 << 16;

/// Of what a file is the backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    /// The name of the cluster.
    pub(super) cluster: String,
    /// The name of the keyspace.
    pub(super) keyspace: String,
    /// Its protocol, as its node named it.
    pub(super) protocol: String,
    /// The node that was asked.
    pub(super) node: String,
    /// The version of the program that wrote it.
    pub(super) version: String,
    /// When it was begun, milliseconds since 1970 by that node's clock.
    pub(super) begun_ms: u64,
    /// Whether all of it is as of one moment.
    pub(super) one_moment: bool,
}

/// What stands behind the last record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Footer {
    /// What it holds.
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// When the last key had been read, milliseconds since 1970.
    pub(super) ended_ms: u64,
}

/// What a file holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Keys.
    pub(super) keys: u64,
    /// Of them, those with a deadline.
    pub(super) with_deadline: u64,
    /// Bytes of all keys.
    pub(super) key_bytes: u64,
    /// Bytes of all values, as by DUMP.
    pub(super) value_bytes: u64,
    /// Keys of each type, by the names that TYPE has.
    pub(super) types: BTreeMap<String, u64>,
    /// Of all keys, those whose values are in parts.
    #[serde(default)]
    pub(super) in_parts: u64,
    /// Of those, the ones that were written while they were read, so that the parts are not of one moment.
    #[serde(default)]
    pub(super) changed: u64,
}

impl Counts {
    /// Adds a key; of its value, the first byte.
    fn add(&mut self, key: u64, deadline: Option<u64>, value: u64, first: Option<u8>) {
        self.keys += 1;
        self.with_deadline += u64::from(deadline.is_some());
        self.key_bytes += key;
        self.value_bytes += value;
        *self.types.entry(kind(first).to_owned()).or_default() += 1;
    }

    /// Adds a key whose value is in parts.
    fn add_parts(&mut self, under_way: &UnderWay, whole: bool) {
        let UnderWay { key, deadline, value, kind } = *under_way;
        self.add(key, deadline, value, Some(kind.first));
        self.in_parts += 1;
        self.changed += u64::from(!whole);
    }
}

/// A key whose parts are written or read.
#[derive(Copy, Clone)]
struct UnderWay {
    /// Bytes of the key.
    key: u64,
    deadline: Option<u64>,
    /// Bytes of its parts so far.
    value: u64,
    kind: &'static Type,
}

/// The type of a value by the first byte that DUMP says of it, in whatever form it is (the types of RDB files, up to Redis 7.2).
fn kind(first: Option<u8>) -> &'static str {
    match first {
        Some(0) => "string",
        Some(1 | 10 | 14 | 18) => "list",
        Some(2 | 11 | 20) => "set",
        Some(3 | 5 | 12 | 17) => "zset",
        Some(4 | 13 | 16) => "hash",
        Some(15 | 19 | 21) => "stream",
        _ => "other",
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// It is something else.
    #[error("this is no backup; its first line would be \"isochrone-backup 2\"")]
    Other,
    /// Of a later program.
    #[error("a backup of a later form; this program reads forms 1 and 2")]
    Later,
    /// The system does not give it.
    #[error("cannot be read at byte {offset}: {cause}")]
    Unreadable {
        /// From where on.
        offset: u64,
        /// Why.
        cause: io::Error,
    },
    /// It ends too early.
    #[error(
        "it stops at byte {end}, before the end of what begins at byte {begin}: cut short, or damaged there"
    )]
    Short {
        /// Where the record, the header or the footer begins.
        begin: u64,
        /// Where the file ends.
        end: u64,
    },
    /// It is not what was written.
    #[error("damaged at or behind byte {begin}: {what}")]
    Damaged {
        /// Where the record, the header or the footer begins.
        begin: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Writes a file.
pub(super) struct Writer<W> {
    to: W,
    /// Of all that was written, and of what was since the record began.
    whole: Xxh3,
    part: Xxh3,
    bytes: u64,
    counts: Counts,
    /// The record that is being written.
    key: u64,
    deadline: Option<u64>,
    value: u64,
    first: Option<u8>,
    /// The one whose parts are being written.
    under_way: Option<UnderWay>,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    pub(super) fn begin(to: W, header: &Header) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            to,
            whole: Xxh3::new(),
            part: Xxh3::new(),
            bytes: 0,
            counts: Counts::default(),
            key: 0,
            deadline: None,
            value: 0,
            first: None,
            under_way: None,
        };
        writer.put(MAGIC)?;
        writer.text(&serde_json::to_vec(header)?)?;
        writer.seal()?;
        Ok(writer)
    }

    /// Begins the record of a key, whose value has this many bytes.
    pub(super) fn key(&mut self, key: &[u8], deadline: Option<u64>, value: u64) -> io::Result<()> {
        self.part.reset();
        let length = u32::try_from(key.len()).map_err(io::Error::other)?;
        self.put(&[RECORD])?;
        self.put(&deadline.unwrap_or(0).to_le_bytes())?;
        self.put(&length.to_le_bytes())?;
        self.put(&value.to_le_bytes())?;
        self.put(key)?;
        (self.key, self.deadline, self.value, self.first) = (u64::from(length), deadline, value, None);
        Ok(())
    }

    /// The next piece of its value.
    pub(super) fn value(&mut self, piece: &[u8]) -> io::Result<()> {
        self.first = self.first.or_else(|| piece.first().copied());
        self.put(piece)
    }

    /// Ends the record.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.counts.add(self.key, self.deadline, self.value, self.first);
        self.seal()
    }

    /// Begins the record of a key whose value comes in parts.
    pub(super) fn begin_parts(
        &mut self,
        key: &[u8],
        deadline: Option<u64>,
        kind: &'static Type,
    ) -> io::Result<()> {
        self.part.reset();
        let length = u32::try_from(key.len()).map_err(io::Error::other)?;
        self.put(&[IN_PARTS])?;
        self.put(&deadline.unwrap_or(0).to_le_bytes())?;
        self.put(&length.to_le_bytes())?;
        self.put(&[kind.first])?;
        self.put(key)?;
        self.under_way = Some(UnderWay { key: u64::from(length), deadline, value: 0, kind });
        self.seal()
    }

    /// The next part of it.
    pub(super) fn part(&mut self, part: &Part) -> io::Result<()> {
        self.part.reset();
        let length = |length: usize| u32::try_from(length).map(u32::to_le_bytes).map_err(io::Error::other);
        self.put(&[PART, part.what.tag()])?;
        self.put(&length(part.words.len())?)?;
        for word in &part.words {
            self.put(&length(word.len())?)?;
            self.put(word)?;
        }
        if let Some(under_way) = &mut self.under_way {
            under_way.value += part.bytes();
        }
        self.seal()
    }

    /// Its end: how many elements it has, and whether nobody has written it meanwhile.
    pub(super) fn end_parts(&mut self, elements: u64, whole: bool) -> io::Result<()> {
        self.part.reset();
        self.put(&[PARTS_END])?;
        self.put(&elements.to_le_bytes())?;
        self.put(&[u8::from(whole)])?;
        if let Some(under_way) = self.under_way.take() {
            self.counts.add_parts(&under_way, whole);
        }
        self.seal()
    }

    /// What was written of whole records.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Ends the file: what it was written to, what it holds, and its bytes.
    pub(super) fn finish(mut self, ended_ms: u64) -> io::Result<(W, Counts, u64)> {
        self.put(&[FOOTER])?;
        let footer = Footer { counts: self.counts.clone(), ended_ms };
        self.text(&serde_json::to_vec(&footer)?)?;
        let digest = self.whole.digest();
        self.put(&digest.to_le_bytes())?;
        self.to.flush()?;
        Ok((self.to, self.counts, self.bytes))
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        self.put(&length.to_le_bytes())?;
        self.put(text)
    }

    fn seal(&mut self) -> io::Result<()> {
        let digest = self.part.digest();
        self.put(&digest.to_le_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.whole.update(bytes);
        self.part.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// A record, without its value.
#[derive(Debug)]
pub(super) struct Entry {
    /// Where it begins.
    pub(super) begin: u64,
    /// The key.
    pub(super) key: Vec<u8>,
    /// When it expires, milliseconds since 1970.
    pub(super) deadline: Option<u64>,
    /// Bytes of its value.
    pub(super) value: u64,
}

/// A record in parts, without them.
#[derive(Debug)]
pub(super) struct InParts {
    /// Where it begins.
    pub(super) begin: u64,
    /// The key.
    pub(super) key: Vec<u8>,
    /// When it expires, milliseconds since 1970.
    pub(super) deadline: Option<u64>,
    /// Its type.
    pub(super) kind: &'static Type,
}

/// What comes next of a record in parts.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NextPart {
    /// A part.
    Part(Part),
    /// Their end: how many elements they have, and whether they are as of one moment.
    End(u64, bool),
}

/// What comes next in a file.
#[derive(Debug)]
pub(super) enum Next {
    /// A record; its value must be read before what follows it.
    Entry(Entry),
    /// A record in parts; all of them must be read before what follows it.
    InParts(InParts),
    /// The end; all that is before it is as it was written.
    End(Footer),
}

/// Reads a file from its beginning to its end.
pub(super) struct Reader<R> {
    from: R,
    whole: Xxh3,
    part: Xxh3,
    offset: u64,
    /// Where what is being read begins.
    begin: u64,
    counts: Counts,
    /// Whether the file is of the earlier form.
    earlier: bool,
    /// The key whose parts are being read.
    under_way: Option<UnderWay>,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub(super) fn open(from: R) -> Result<(Reader<R>, Header), Fault> {
        let mut reader = Reader::at(from, 0);
        let line: [u8; MAGIC.len()] = match reader.array() {
            Err(Fault::Short { .. }) => return Err(Fault::Other),
            line => line?,
        };
        reader.earlier = line == *EARLIER;
        if line != *MAGIC && !reader.earlier {
            return Err(if line.starts_with(NAME) { Fault::Later } else { Fault::Other });
        }
        let text = reader.text()?;
        reader.seal()?;
        let header =
            serde_json::from_slice(&text).map_err(|_| reader.damaged("what it should say is missing"))?;
        Ok((reader, header))
    }

    /// Reads one record, from something that is at its beginning already.
    pub(super) fn at(from: R, offset: u64) -> Reader<R> {
        Reader {
            from,
            whole: Xxh3::new(),
            part: Xxh3::new(),
            offset,
            begin: offset,
            counts: Counts::default(),
            earlier: false,
            under_way: None,
        }
    }

    /// How far it is read, bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// What comes next.
    pub(super) fn entry(&mut self) -> Result<Next, Fault> {
        self.begin = self.offset;
        self.part.reset();
        let [tag]: [u8; 1] = self.array()?;
        match tag {
            RECORD => {
                let (deadline, length) = self.head()?;
                let value = u64::from_le_bytes(self.array()?);
                let key = self.bytes(length)?;
                Ok(Next::Entry(Entry { begin: self.begin, key, deadline, value }))
            }
            IN_PARTS if !self.earlier => {
                let (deadline, length) = self.head()?;
                let [first]: [u8; 1] = self.array()?;
                let kind = Type::beginning(first).ok_or_else(|| self.damaged("there is no such type"))?;
                let key = self.bytes(length)?;
                self.seal()?;
                self.under_way = Some(UnderWay { key: u64::from(length), deadline, value: 0, kind });
                Ok(Next::InParts(InParts { begin: self.begin, key, deadline, kind }))
            }
            FOOTER => self.footer().map(Next::End),
            _ => Err(self.damaged("neither a key nor the end follows")),
        }
    }

    /// When a key expires, and its length.
    fn head(&mut self) -> Result<(Option<u64>, u32), Fault> {
        let deadline = u64::from_le_bytes(self.array()?);
        let length = u32::from_le_bytes(self.array()?);
        if length > KEY_MAX {
            return Err(self.damaged("no key is so long"));
        }
        Ok(((deadline > 0).then_some(deadline), length))
    }

    /// What comes next of the record in parts that was begun.
    pub(super) fn part(&mut self) -> Result<NextPart, Fault> {
        self.begin = self.offset;
        self.part.reset();
        let [tag]: [u8; 1] = self.array()?;
        match tag {
            PART => {
                let [what]: [u8; 1] = self.array()?;
                let what = What::tagged(what).ok_or_else(|| self.damaged("there are no such parts"))?;
                let mut words = Vec::new();
                for _ in 0..u32::from_le_bytes(self.array()?) {
                    let length = u32::from_le_bytes(self.array()?);
                    words.push(self.bytes(length)?);
                }
                self.seal()?;
                let part = Part { what, words };
                if let Some(under_way) = &mut self.under_way {
                    under_way.value += part.bytes();
                }
                Ok(NextPart::Part(part))
            }
            PARTS_END => {
                let elements = u64::from_le_bytes(self.array()?);
                let [whole]: [u8; 1] = self.array()?;
                self.seal()?;
                if let Some(under_way) = self.under_way.take() {
                    self.counts.add_parts(&under_way, whole == 1);
                }
                Ok(NextPart::End(elements, whole == 1))
            }
            _ => Err(self.damaged("neither a part nor the end of them follows")),
        }
    }

    /// Passes on the value of a record that was just begun, piece by piece. Whether it is what was written is known
    /// when all of it has been passed on.
    pub(super) fn value(
        &mut self,
        entry: &Entry,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (mut left, mut first) = (entry.value, None);
        let mut space = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
        while left > 0 {
            let size = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = space.get_mut(..size).unwrap_or_default();
            self.take(piece)?;
            first = first.or_else(|| piece.first().copied());
            each(piece)?;
            left -= size as u64;
        }
        self.seal()?;
        self.counts.add(entry.key.len() as u64, entry.deadline, entry.value, first);
        Ok(())
    }

    fn footer(&mut self) -> Result<Footer, Fault> {
        let text = self.text()?;
        let digest = self.whole.digest();
        if u64::from_le_bytes(self.array()?) != digest {
            return Err(self.damaged("the checksum of the whole file is another"));
        }
        let footer: Footer =
            serde_json::from_slice(&text).map_err(|_| self.damaged("what it should say is missing"))?;
        if footer.counts != self.counts {
            return Err(self.damaged("it counts other keys than there are"));
        }
        let mut more = [0];
        match self.read(&mut more)? {
            0 => Ok(footer),
            _ => Err(self.damaged("something follows the end")),
        }
    }

    fn text(&mut self) -> Result<Vec<u8>, Fault> {
        let length = u32::from_le_bytes(self.array()?);
        if length > TEXT_MAX {
            return Err(self.damaged("no header or footer is so long"));
        }
        self.bytes(length)
    }

    /// Checks what was read since [`Reader::begin`].
    fn seal(&mut self) -> Result<(), Fault> {
        let digest = self.part.digest();
        if u64::from_le_bytes(self.array()?) != digest {
            return Err(self.damaged("its checksum is another"));
        }
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> Fault {
        Fault::Damaged { begin: self.begin, what }
    }

    /// A length may be damaged: memory is taken as bytes come.
    fn bytes(&mut self, length: u32) -> Result<Vec<u8>, Fault> {
        let (length, mut bytes) = (length as usize, Vec::new());
        while bytes.len() < length {
            let from = bytes.len();
            bytes.resize(length.min(from + PIECE), 0);
            self.take(bytes.get_mut(from..).unwrap_or_default())?;
        }
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    /// Fills all of this.
    fn take(&mut self, into: &mut [u8]) -> Result<(), Fault> {
        let mut rest = into;
        while !rest.is_empty() {
            let count = self.read(rest)?;
            if count == 0 {
                return Err(Fault::Short { begin: self.begin, end: self.offset });
            }
            let (read, left) = std::mem::take(&mut rest).split_at_mut(count);
            self.whole.update(read);
            self.part.update(read);
            self.offset += count as u64;
            rest = left;
        }
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        loop {
            match self.from.read(into) {
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(Fault::Unreadable { offset: self.offset, cause }),
                Ok(count) => return Ok(count),
            }
        }
    }
}
