//! The bytes on disk. Every decoder here takes arbitrary bytes and answers with a value or an error; none panics,
//! none allocates by a length it read.
//!
//! ```text
//! segment   = header (one sector) frame* zero or stale bytes, seal (one sector)
//! frame     = frame header, entry*, zeroes up to the next sector: what one write and one sync made durable
//! entry     = length u32 | crc32c u32 | stream u64 | kind u8 | 0 0 0 | payload
//! ```
//!
//! Integers are little-endian. Frames begin at sector boundaries, so that a sector holding durable bytes is never
//! written again: a torn write can damage only the frame being written.

use std::fmt;

use isochrone_core::wire::RECORDED;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The unit of alignment, and the unit that a disk writes whole, in bytes.
pub const SECTOR: usize = 512;
/// The newest format of an identity file that this version reads, and the one it writes.
pub const FORMAT: u32 = 1;
/// The same of segments, and of the records in them: from 2 on they say in which directory they were made.
pub const SEGMENT_FORMAT: u32 = RECORDED;
/// Bytes before an entry's payload.
pub const ENTRY_HEADER: usize = 20;
/// Bytes before a frame's first entry.
pub const FRAME_HEADER: usize = 72;
/// The largest payload of one entry, in bytes: the longest argument that `bulk` allows, and a batch of others beside it.
pub const PAYLOAD_MAX: usize = 640 << 20;

const SEGMENT_MAGIC: [u8; 8] = *b"ISOCHJNL";
const IDENTITY_MAGIC: [u8; 8] = *b"ISOCHDIR";
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"FRM1");

/// Whose records an entry holds: a process, as one number (`ProcessId` is eight bytes).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default)]
pub struct StreamId(pub u64);

impl From<isochrone_core::ProcessId> for StreamId {
    fn from(process: isochrone_core::ProcessId) -> Self {
        Self(process.to_u64())
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The place of a record in its journal: 1 for the first, one more for each, over all streams. 0 is before them all.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before every record.
    pub const ZERO: Self = Self(0);

    /// The place before this one; zero stays zero.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The place after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry is.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A process' record; the only kind that has a position.
    Record = 1,
    /// The node started: incarnation `u32`, then a random `u64` that makes the frame unlike every other.
    Incarnation = 2,
    /// The stream no longer needs its records before this position (`u64`).
    Truncate = 3,
    /// Segments before this sequence number (`u64`) may be gone.
    Oldest = 4,
    /// The stream has ended: what is before this position (`u64`), snapshots included, belongs to an earlier life.
    End = 5,
}

/// One entry, borrowed from the bytes it was read from.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Entry<'a> {
    /// Whose it is; zero where the kind belongs to the node.
    pub stream: StreamId,
    /// What it is.
    pub kind: Kind,
    /// Its content.
    pub payload: &'a [u8],
}

/// Why bytes are not what they should be.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("it ends too early")]
    Short,
    /// The bytes do not begin as they should.
    #[error("it does not begin as it should")]
    Magic,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// A field has a value that no version writes.
    #[error("a field holds an impossible value")]
    Field,
    /// The bytes are sound and of a later format, given here.
    #[error("it has format {0}, later than any that this version reads")]
    Newer(u32),
}

/// Appends one entry to `out`.
///
/// The caller has checked that the payload is no longer than [`PAYLOAD_MAX`].
pub fn encode_entry(out: &mut Vec<u8>, stream: StreamId, kind: Kind, payload: &[u8]) {
    let begin = open_entry(out, stream, kind);
    out.extend_from_slice(payload);
    seal_entry(out, begin);
}

/// Begins an entry whose payload the caller appends; [`seal_entry`] ends it.
pub(crate) fn open_entry(out: &mut Vec<u8>, stream: StreamId, kind: Kind) -> usize {
    let begin = out.len();
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&stream.0.to_le_bytes());
    out.extend_from_slice(&[kind as u8, 0, 0, 0]);
    begin
}

/// Writes the length and the checksum of the entry begun at `begin`; answers the length of its payload.
pub(crate) fn seal_entry(out: &mut [u8], begin: usize) -> usize {
    let length = out.len() - begin - ENTRY_HEADER;
    // Cut off only above PAYLOAD_MAX, which the caller refuses.
    let written = (length as u32).to_le_bytes();
    out[begin..begin + 4].copy_from_slice(&written);
    let sum = entry_checksum(written, &out[begin + 8..]);
    out[begin + 4..begin + 8].copy_from_slice(&sum.to_le_bytes());
    length
}

/// Reads the entry at the beginning of `bytes`; answers it and how many bytes it takes.
///
/// # Errors
/// The bytes are too short, damaged, or of no known kind.
pub fn decode_entry(bytes: &[u8]) -> Result<(Entry<'_>, usize), DecodeError> {
    let header = bytes.get(..ENTRY_HEADER).ok_or(DecodeError::Short)?;
    let length = u32_at(header, 0) as usize;
    if length > PAYLOAD_MAX {
        return Err(DecodeError::Field);
    }
    let whole = bytes.get(..ENTRY_HEADER + length).ok_or(DecodeError::Short)?;
    let written = [whole[0], whole[1], whole[2], whole[3]];
    if entry_checksum(written, &whole[8..]) != u32_at(whole, 4) {
        return Err(DecodeError::Checksum);
    }
    let kind = match whole[16] {
        1 => Kind::Record,
        2 => Kind::Incarnation,
        3 => Kind::Truncate,
        4 => Kind::Oldest,
        5 => Kind::End,
        _ => return Err(DecodeError::Field),
    };
    if whole[17..ENTRY_HEADER] != [0; 3] {
        return Err(DecodeError::Field);
    }
    let entry = Entry { stream: StreamId(u64_at(whole, 8)), kind, payload: &whole[ENTRY_HEADER..] };
    Ok((entry, ENTRY_HEADER + length))
}

fn entry_checksum(length: [u8; 4], rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), rest)
}

/// No part of the chain: nothing follows in this segment, the next one was durable before this was written.
pub(crate) const LAST: u32 = 1;
/// No part of the chain: in the last sector of a segment, far from the frames it vouches for.
pub(crate) const SEAL: u32 = 2;

/// The beginning of a frame: where it belongs, what was durable before it, and the chain.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct FrameHeader {
    /// `LAST`, `SEAL`.
    pub flags: u32,
    /// How many entries follow.
    pub entries: u32,
    /// How many bytes of entries follow.
    pub body: u32,
    /// The segment this frame was written to.
    pub segment: u64,
    /// The number of this frame: one more for each, over all segments.
    pub frame: u64,
    /// The position of its first record, or of the next where it holds none.
    pub first: u64,
    /// The number of the last frame that was known durable when this one was written.
    pub durable: u64,
    /// The chain before this frame.
    pub chain_before: u64,
    /// The chain after it: a hash of everything after this field, seeded with `chain_before`.
    pub chain: u64,
}

/// How many bytes a frame with so many bytes of entries takes on disk.
pub(crate) const fn frame_size(body: usize) -> usize {
    (FRAME_HEADER + body).next_multiple_of(SECTOR)
}

/// Fills in the header of `frame` (room for a header, the entries, zeroes up to a sector boundary) and answers the
/// chain after it. `salt` is the segment's.
pub(crate) fn seal_frame(frame: &mut [u8], header: &FrameHeader, salt: u64) -> u64 {
    for (at, value) in [(16, FRAME_MAGIC), (20, header.flags), (24, header.entries), (28, header.body)] {
        frame[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let wide = [
        (32, header.segment),
        (40, header.frame),
        (48, header.first),
        (56, header.durable),
        (64, header.chain_before),
    ];
    for (at, value) in wide {
        frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    let chain = xxh3_64_with_seed(&frame[16..], header.chain_before);
    frame[8..16].copy_from_slice(&chain.to_le_bytes());
    let check = xxh3_64_with_seed(&frame[8..FRAME_HEADER], salt);
    frame[..8].copy_from_slice(&check.to_le_bytes());
    chain
}

/// Reads a frame's header. A header that passes was written to this segment by this code: its check is seeded with
/// the segment's salt, which no client can know, so bytes inside a record cannot pass for one.
///
/// # Errors
/// The bytes are no header of a segment with this salt.
pub fn decode_frame_header(bytes: &[u8], salt: u64) -> Result<FrameHeader, DecodeError> {
    let bytes = bytes.get(..FRAME_HEADER).ok_or(DecodeError::Short)?;
    if u32_at(bytes, 16) != FRAME_MAGIC {
        return Err(DecodeError::Magic);
    }
    if xxh3_64_with_seed(&bytes[8..], salt) != u64_at(bytes, 0) {
        return Err(DecodeError::Checksum);
    }
    Ok(FrameHeader {
        chain: u64_at(bytes, 8),
        flags: u32_at(bytes, 20),
        entries: u32_at(bytes, 24),
        body: u32_at(bytes, 28),
        segment: u64_at(bytes, 32),
        frame: u64_at(bytes, 40),
        first: u64_at(bytes, 48),
        durable: u64_at(bytes, 56),
        chain_before: u64_at(bytes, 64),
    })
}

/// Reads a whole frame at the beginning of `bytes`; answers its header, its entries still encoded, and how many
/// bytes it takes on disk.
///
/// # Errors
/// As [`decode_frame_header`]; or the frame is cut off, or its content does not match the chain.
pub fn decode_frame(bytes: &[u8], salt: u64) -> Result<(FrameHeader, &[u8], usize), DecodeError> {
    let header = decode_frame_header(bytes, salt)?;
    let size = frame_size(header.body as usize);
    let whole = bytes.get(..size).ok_or(DecodeError::Short)?;
    if xxh3_64_with_seed(&whole[16..], header.chain_before) != header.chain {
        return Err(DecodeError::Checksum);
    }
    Ok((header, &whole[FRAME_HEADER..FRAME_HEADER + header.body as usize], size))
}

/// The first sector of a segment.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct SegmentHeader {
    /// The deployment.
    pub cluster: u64,
    /// The node.
    pub node: u16,
    /// Which segment of the journal: 1 for the first.
    pub sequence: u64,
    /// The size of the file in bytes.
    pub capacity: u64,
    /// The number of its first frame.
    pub frame: u64,
    /// The position of its first record.
    pub first: u64,
    /// The chain before its first frame.
    pub chain: u64,
    /// Seeds the checks of its frames; random, so that frames of the file's earlier life, and bytes that a client
    /// made up, are not taken for frames of this one.
    pub salt: u64,
    /// Whether the file had an earlier life, so that what follows the last frame may be old bytes.
    pub recycled: bool,
    /// The directory it was made in, by its birth (`births`); zero where format 1 does not say.
    pub birth: u64,
    /// In which format it was written. Nothing is recorded in one of an earlier format than [`SEGMENT_FORMAT`]: whoever reads no
    /// later one would take it for its own.
    pub format: u32,
}

impl SegmentHeader {
    /// The header as one sector, of this version's format.
    #[must_use]
    pub fn encode(&self) -> [u8; SECTOR] {
        let node = u64::from(self.node);
        let Self { cluster, sequence, capacity, frame, first, chain, salt, birth, .. } = *self;
        let recycled = u64::from(self.recycled);
        let fields = [cluster, node, sequence, capacity, frame, first, chain, salt, recycled, birth];
        seal_sector(SEGMENT_MAGIC, SEGMENT_FORMAT, &fields)
    }

    /// Reads a segment's first sector.
    ///
    /// # Errors
    /// Not a segment, damaged, or of a later format.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let [cluster, node, sequence, capacity, frame, first, chain, salt, recycled, birth] =
            open_sector(SEGMENT_MAGIC, SEGMENT_FORMAT, bytes)?;
        let node = u16::try_from(node).map_err(|_| DecodeError::Field)?;
        let recycled = recycled != 0;
        let format = u32_at(bytes, 8);
        Ok(Self { cluster, node, sequence, capacity, frame, first, chain, salt, recycled, birth, format })
    }
}

/// Whose a data directory is: the content of its IDENTITY file.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct IdentityFile {
    /// The deployment.
    pub cluster: u64,
    /// The node.
    pub node: u16,
}

impl IdentityFile {
    /// The file's content.
    #[must_use]
    pub fn encode(&self) -> [u8; SECTOR] {
        seal_sector(IDENTITY_MAGIC, FORMAT, &[self.cluster, u64::from(self.node)])
    }

    /// Reads the file's content.
    ///
    /// # Errors
    /// Not an identity, damaged, or of a later format.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let [cluster, node] = open_sector(IDENTITY_MAGIC, FORMAT, bytes)?;
        let node = u16::try_from(node).map_err(|_| DecodeError::Field)?;
        Ok(Self { cluster, node })
    }
}

/// A sector that names itself: magic, format, fields, and a check in its last eight bytes. These three places stay
/// the same in every format, so that an old version can tell a new format from damage.
pub(crate) fn seal_sector(magic: [u8; 8], format: u32, fields: &[u64]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..8].copy_from_slice(&magic);
    sector[8..12].copy_from_slice(&format.to_le_bytes());
    for (index, field) in fields.iter().enumerate() {
        let at = 16 + index * 8;
        sector[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let check = xxh3_64_with_seed(&sector[..SECTOR - 8], 0);
    sector[SECTOR - 8..].copy_from_slice(&check.to_le_bytes());
    sector
}

/// The fields of a sector of `newest` format or an earlier one, in which those that it did not have are zero.
pub(crate) fn open_sector<const N: usize>(
    magic: [u8; 8],
    newest: u32,
    bytes: &[u8],
) -> Result<[u64; N], DecodeError> {
    let sector = bytes.get(..SECTOR).ok_or(DecodeError::Short)?;
    if sector[..8] != magic {
        return Err(DecodeError::Magic);
    }
    if xxh3_64_with_seed(&sector[..SECTOR - 8], 0) != u64_at(sector, SECTOR - 8) {
        return Err(DecodeError::Checksum);
    }
    match u32_at(sector, 8) {
        0 => return Err(DecodeError::Field),
        format if format > newest => return Err(DecodeError::Newer(format)),
        _ => {}
    }
    Ok(std::array::from_fn(|index| u64_at(sector, 16 + index * 8)))
}

/// Reads a payload that is one number.
pub(crate) fn payload_u64(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_le_bytes)
}

/// The caller has checked that the bytes are there.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

/// The caller has checked that the bytes are there.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}
