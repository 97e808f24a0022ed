//! How a spare file becomes the segment that is written next.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use super::batch::JournalOptions;
use super::disk::{Disk, DiskFile};
use super::error::JournalError;
use super::format::{self, FRAME_HEADER, FrameHeader, Kind, SECTOR, SegmentHeader, StreamId};
use super::segments::{Marks, Segment, Spares, segment_name};

/// What `activate` wrote.
pub(super) struct Written {
    pub offset: u64,
    pub chain: u64,
}

/// The first frame of every segment: what must outlive the segments before it. Answers the number of its entries.
pub(super) fn preamble(
    buffer: &mut Vec<u8>,
    incarnation: u32,
    oldest: u64,
    marks: &Marks,
    nonce: u64,
) -> u32 {
    buffer.clear();
    buffer.resize(FRAME_HEADER, 0);
    encode_incarnation(buffer, incarnation, nonce);
    format::encode_entry(buffer, StreamId(0), Kind::Oldest, &oldest.to_le_bytes());
    // In this order: the end of an earlier life must not take away the mark of this one.
    for (kind, marks) in [(Kind::End, &marks.ended), (Kind::Truncate, &marks.truncated)] {
        for (stream, mark) in marks {
            format::encode_entry(buffer, *stream, kind, &mark.0.to_le_bytes());
        }
    }
    (2 + marks.ended.len() + marks.truncated.len()) as u32
}

pub(super) fn encode_incarnation(buffer: &mut Vec<u8>, incarnation: u32, nonce: u64) {
    let mut payload = [0; 12];
    payload[..4].copy_from_slice(&incarnation.to_le_bytes());
    payload[4..].copy_from_slice(&nonce.to_le_bytes());
    format::encode_entry(buffer, StreamId(0), Kind::Incarnation, &payload);
}

/// Makes a spare into the segment that `header` describes, with the preamble in `buffer` as its first frame, room for
/// one of `size` bytes behind it, durable under its own name.
#[allow(clippy::too_many_arguments, reason = "called at creation, before there is a journal, and by roll")]
pub(super) fn activate<D: Disk>(
    disk: &D,
    spares: &mut Spares<D>,
    mut header: SegmentHeader,
    buffer: &mut Vec<u8>,
    entries: u32,
    size: u64,
    options: &JournalOptions,
    durable: u64,
) -> Result<(Segment, D::File, Written), JournalError> {
    let body = buffer.len() - FRAME_HEADER;
    let first = format::frame_size(body);
    let needed = (3 * SECTOR + first) as u64 + size;
    let usual = if header.capacity == 0 { options.segment_first } else { header.capacity * 2 };
    let usual = usual.clamp(options.segment_first, options.segment_max);
    let mut spare = spares.take(needed, usual, options.segment_first)?;
    header.capacity = spare.capacity;
    header.recycled = spare.recycled;
    buffer.resize(first, 0);
    let frame = FrameHeader {
        flags: 0,
        entries,
        body: body as u32,
        segment: header.sequence,
        frame: header.frame,
        first: header.first,
        durable,
        chain_before: header.chain,
        chain: 0,
    };
    let chain = format::seal_frame(buffer, &frame, header.salt);
    let name = segment_name(header.sequence);
    let failed = |action, e| JournalError::io(disk.path(&name), action, needed, e);
    spare.file.write_at(0, &header.encode()).map_err(|e| failed("write", e))?;
    spare.file.write_at(SECTOR as u64, buffer).map_err(|e| failed("write", e))?;
    spare.file.sync().map_err(|e| failed("sync", e))?;
    disk.rename(&spare.name, &name).map_err(|e| failed("rename", e))?;
    disk.sync_names().map_err(|e| failed("sync", e))?;
    let segment = Segment { name, header, last: BTreeMap::new() };
    Ok((segment, spare.file, Written { offset: (SECTOR + first) as u64, chain }))
}

/// The birth that the directory has, or is given: the journal is the first that is made in it.
pub(super) fn born(options: &JournalOptions) -> u64 {
    match options.birth {
        0 => salt(options, 0, 0).max(1),
        birth => birth,
    }
}

/// A number that nobody outside can guess, unless a test asked for one that it can.
pub(super) fn salt(options: &JournalOptions, first: u64, second: u64) -> u64 {
    match options.seed {
        Some(seed) => {
            xxhash_rust::xxh3::xxh3_64_with_seed(&[first.to_le_bytes(), second.to_le_bytes()].concat(), seed)
        }
        // The standard hasher's keys are the system's randomness.
        None => std::hash::RandomState::new().hash_one((first, second)),
    }
}
