//! The messages of Arrow, looked at as they pass: where one says how long a packed buffer was before, that is checked before the
//! library reserves so much.

use super::super::believed::{Packing, damaged};
use arrow_ipc::{CompressionType, MessageHeader, root_as_footer, root_as_message};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// A source of messages, one behind the other; of a file, at the places that are sought.
pub(super) struct Messages<S> {
    source: S,
    /// Of a file, by their places: the bytes of each message up to its body, and of that.
    blocks: Option<HashMap<u64, (u64, u64)>>,
    /// Those of the message under way.
    block: Option<(u64, u64)>,
    /// Bytes of the message before its body that have passed.
    before: u64,
    part: Part,
}

/// What of a message comes next.
enum Part {
    /// The length of its header, or the mark before it.
    Length(Vec<u8>),
    Header {
        length: usize,
        bytes: Vec<u8>,
    },
    /// Its buffers.
    Body(Body),
    /// Nothing that is a message.
    Rest,
}

/// A body that passes.
struct Body {
    place: u64,
    length: u64,
    packing: Packing,
    /// Where packed buffers begin, and how long they are; the next one last.
    buffers: Vec<(u64, u64)>,
    /// What has passed of the length in front of that one.
    said: Vec<u8>,
}

const NEXT: Part = Part::Length(Vec::new());

/// The mark of a message in front of its length.
const MARK: [u8; 4] = [0xff; 4];

/// Bytes in front of a packed buffer: how long it was before.
const SAID: u64 = 8;

/// Bytes behind the directory of a file; its length is in the first four.
const TAIL: u64 = 10;

impl<S> Messages<S> {
    pub(super) fn stream(source: S) -> Messages<S> {
        Messages { source, blocks: None, block: None, before: 0, part: NEXT }
    }

    pub(super) fn within(&self) -> &S {
        &self.source
    }

    /// Takes what has passed.
    fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match &mut self.part {
                Part::Rest => return Ok(()),
                Part::Length(word) => {
                    if !fill(word, 4, &mut bytes) {
                        continue;
                    }
                    self.before += 4;
                    let word = [word[0], word[1], word[2], word[3]];
                    self.part = match i32::from_le_bytes(word) {
                        _ if word == MARK => NEXT,
                        length if length > 0 => Part::Header { length: length as usize, bytes: Vec::new() },
                        _ if self.block.is_some() => return Err(damaged("a message has no header")),
                        _ => Part::Rest,
                    };
                }
                Part::Header { length, bytes: header } => {
                    if fill(header, *length, &mut bytes) {
                        let before = self.before + *length as u64;
                        let body = Body::behind(header, before, self.block)?;
                        (self.part, self.before) = (Part::Body(body), 0);
                        self.end();
                    }
                }
                Part::Body(body) => {
                    body.pass(&mut bytes)?;
                    self.end();
                }
            }
        }
        Ok(())
    }

    /// Goes on to the next message, if this one is over; of a file that is sought.
    fn end(&mut self) {
        if let Part::Body(body) = &self.part
            && body.place == body.length
        {
            self.part = if self.blocks.is_some() { Part::Rest } else { NEXT };
        }
    }
}

/// Takes bytes until there are so many; whether there are.
fn fill(to: &mut Vec<u8>, length: usize, bytes: &mut &[u8]) -> bool {
    let (taken, rest) = bytes.split_at((length - to.len()).min(bytes.len()));
    to.extend_from_slice(taken);
    *bytes = rest;
    to.len() == length
}

impl Body {
    /// The body behind a header, `before` bytes after the beginning of its message. Of a file the directory says where it begins, and
    /// what it passes over counts as part of it.
    fn behind(header: &[u8], before: u64, block: Option<(u64, u64)>) -> io::Result<Body> {
        let message = root_as_message(header).map_err(|_| damaged("a message's header is none"))?;
        let said = u64::try_from(message.bodyLength()).map_err(|_| damaged("a message is long below 0"))?;
        let (gap, length) = match block {
            Some((at, _)) if at < before => return Err(damaged("a message is not where its directory says")),
            Some((at, length)) => (at - before, length),
            None => (0, said),
        };
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            MessageHeader::DictionaryBatch => {
                message.header_as_dictionary_batch().and_then(|batch| batch.data())
            }
            _ => None,
        };
        let (mut packing, mut buffers) = (Packing::Other, Vec::new());
        if let Some(batch) = batch
            && let Some(compression) = batch.compression()
        {
            packing = match compression.codec() {
                CompressionType::LZ4_FRAME => Packing::Lz4,
                CompressionType::ZSTD => Packing::Zstd,
                _ => Packing::Other,
            };
            for buffer in batch.buffers().iter().flatten() {
                let place = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
                // Where it is not within the body, the library says so; nothing is said of one that is empty.
                let within = |&(at, packed): &(u64, u64)| {
                    packed >= SAID && at.checked_add(packed).is_some_and(|end| end <= length)
                };
                buffers.extend(place.filter(within).map(|(at, packed)| (gap + at, packed)));
            }
        }
        // Of what two columns share, each may be the longer one.
        buffers.sort_unstable_by_key(|&(at, packed)| (std::cmp::Reverse(at), packed));
        buffers.dedup_by_key(|&mut (at, _)| at);
        if buffers.windows(2).any(|pair| pair[0].0 - pair[1].0 < SAID) {
            return Err(damaged("two of its packed columns begin in one another"));
        }
        Ok(Body { place: 0, length: gap + length, packing, buffers, said: Vec::new() })
    }

    fn pass(&mut self, bytes: &mut &[u8]) -> io::Result<()> {
        let next = self.buffers.last().map_or(self.length, |&(at, _)| at);
        if self.place < next {
            let passed = (next - self.place).min(bytes.len() as u64);
            self.place += passed;
            *bytes = &bytes[passed as usize..];
            return Ok(());
        }
        let Some(&(at, packed)) = self.buffers.last() else { return Ok(()) };
        let full = fill(&mut self.said, SAID as usize, bytes);
        if full {
            self.place = at + SAID;
            // Less than 0 is said of what is not packed, or refused.
            let said = self.said[..].try_into().map_or(-1, i64::from_le_bytes);
            if let Ok(said) = u64::try_from(said) {
                self.packing.unpacks(packed - SAID, said)?;
            }
            self.said.clear();
            self.buffers.pop();
        }
        Ok(())
    }
}

impl Messages<File> {
    /// Of a file, whose directory is at its end.
    pub(super) fn file(mut file: File) -> io::Result<Messages<File>> {
        let length = file.metadata()?.len();
        let mut tail = [0; TAIL as usize];
        if length >= TAIL {
            file.seek(SeekFrom::Start(length - TAIL))?;
            file.read_exact(&mut tail)?;
        }
        let long = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if long + TAIL > length {
            return Err(damaged(&format!("its directory has {long} bytes, and all of it {length}")));
        }
        let mut directory = Vec::new();
        file.seek(SeekFrom::Start(length - TAIL - long))?;
        (&file).take(long).read_to_end(&mut directory)?;
        let footer = root_as_footer(&directory).map_err(|_| damaged("its directory is none"))?;
        let mut blocks = HashMap::new();
        for block in footer.recordBatches().iter().flatten().chain(footer.dictionaries().iter().flatten()) {
            let sizes =
                u64::try_from(block.metaDataLength()).ok().zip(u64::try_from(block.bodyLength()).ok());
            let place = u64::try_from(block.offset()).ok().zip(sizes);
            let fits = |&(at, (before, body)): &(u64, (u64, u64))| {
                at.checked_add(before).and_then(|at| at.checked_add(body)).is_some_and(|end| end <= length)
            };
            let Some((at, sizes)) = place.filter(fits) else {
                return Err(damaged("its directory has a message beyond its end"));
            };
            if blocks.insert(at, sizes).is_some_and(|others| others != sizes) {
                return Err(damaged("its directory has two messages at one place"));
            }
        }
        Ok(Messages { source: file, blocks: Some(blocks), block: None, before: 0, part: Part::Rest })
    }
}

impl<S: Read> Read for Messages<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into)?;
        if read == 0
            && !into.is_empty()
            && let Part::Length(word) = &self.part
            && !word.is_empty()
        {
            return Err(damaged("it is cut off within the length of a message"));
        }
        self.pass(&into[..read])?;
        Ok(read)
    }
}

impl<S: Seek> Seek for Messages<S> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.source.seek(to)?;
        self.block = self.blocks.as_ref().and_then(|blocks| blocks.get(&at).copied());
        self.part = if self.block.is_some() { NEXT } else { Part::Rest };
        self.before = 0;
        Ok(at)
    }
}
