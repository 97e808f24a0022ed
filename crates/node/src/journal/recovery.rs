//! One pass over the segments: every record in order, or a refusal. See "Torn or corrupt" in the module above.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use super::batch::JournalOptions;
use super::disk::{Disk, DiskFile};
use super::error::JournalError;
use super::format::{
    self, DecodeError, FRAME_HEADER, FrameHeader, Kind, LAST, Position, SECTOR, SEGMENT_FORMAT,
    SegmentHeader, StreamId,
};
use super::segments::{Marks, Segment, segments_among};

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// How many records were found; those of segments that nobody needs are not replayed.
    pub records: u64,
    /// The position of the last record; zero where there never was one.
    pub last: Position,
    /// For each stream that has said so: its records before this position may be missing, a snapshot at this
    /// position or later must exist.
    pub marks: BTreeMap<StreamId, Position>,
    /// For each stream that has ended: its records and snapshots before this position belong to an earlier life.
    pub ended: BTreeMap<StreamId, Position>,
    /// The incomplete last frame that was dropped, if there was one.
    pub torn: Option<Torn>,
}

/// A frame that a crash cut short. Nothing in it was acknowledged; for the limit of that see the module above.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Torn {
    /// The segment's file.
    pub path: PathBuf,
    /// Where the frame begins, in bytes.
    pub offset: u64,
    /// How many entries it would have held; `None` where not even its header can be read.
    pub entries: Option<u32>,
    /// How many bytes it would have taken; `None` likewise.
    pub bytes: Option<u64>,
}

/// Where the pass ended: what the writer goes on from.
pub(crate) struct Pass {
    pub recovered: Recovered,
    pub marks: Marks,
    pub segments: Vec<Segment>,
    /// Where the next frame goes in the newest segment.
    pub offset: u64,
    /// Where the first frame of the newest segment begins that no later frame says is durable.
    pub unproven: u64,
    pub frame_next: u64,
    pub position_next: u64,
    pub chain: u64,
    pub incarnation: u32,
    pub oldest: u64,
}

impl Pass {
    /// Before the first frame of the segment with this header.
    fn before(header: SegmentHeader) -> Pass {
        Pass {
            recovered: Recovered::default(),
            marks: Marks::default(),
            segments: Vec::new(),
            offset: SECTOR as u64,
            unproven: SECTOR as u64,
            frame_next: header.frame,
            position_next: header.first,
            chain: header.chain,
            incarnation: 0,
            oldest: 0,
        }
    }
}

/// What the newest segment of a journal says of all of it.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    /// Where the journal is.
    pub path: PathBuf,
    /// How often the node had started.
    pub incarnation: u32,
    /// The position of the last record; zero where there never was one.
    pub last: Position,
}

/// Reads the newest segment of the journal in `disk`, if there is one. Nothing is changed.
///
/// Each segment begins with what must outlive those before it, so this one alone knows the incarnation.
pub(crate) fn newest<D: Disk>(disk: &D, options: &JournalOptions) -> Result<Option<Newest>, JournalError> {
    let names = match disk.list() {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(JournalError::io(disk.path(""), "list", 0, error)),
    };
    let mut segments = read_headers(disk, &segments_among(&names), options)?;
    let Some(mut newest) = segments.pop() else { return Ok(None) };
    let mut pass = Pass::before(newest.header);
    read_segment(disk, &mut newest, None, &mut pass, &mut |_, _, _| {})?;
    let last = Position(pass.position_next - 1);
    Ok(Some(Newest { path: disk.path(""), incarnation: pass.incarnation, last }))
}

/// Reads the journal in `disk` from its beginning and gives each record to `replay`.
pub(crate) fn recover<D: Disk>(
    disk: &D,
    names: &[String],
    options: &JournalOptions,
    replay: &mut dyn FnMut(StreamId, Position, &[u8]),
) -> Result<Pass, JournalError> {
    let found = segments_among(names);
    let mut segments = read_headers(disk, &found, options)?;
    let first = segments[0].header;
    let mut pass = Pass::before(first);
    for index in 0..segments.len() {
        let next = segments.get(index + 1).map(|segment| segment.header);
        read_segment(disk, &mut segments[index], next, &mut pass, replay)?;
    }
    if first.sequence > pass.oldest {
        return Err(JournalError::SegmentMissing {
            path: disk.path(""),
            sequence: pass.oldest,
            why: format!(
                "the journal says that it begins there, but the first one found is {}",
                first.sequence
            ),
        });
    }
    pass.recovered.marks.clone_from(&pass.marks.truncated);
    pass.recovered.ended.clone_from(&pass.marks.ended);
    pass.recovered.last = Position(pass.position_next - 1);
    pass.segments = segments;
    Ok(pass)
}

/// Reads all headers and checks that they are ours and that none is missing in between.
fn read_headers<D: Disk>(
    disk: &D,
    found: &[(u64, String)],
    options: &JournalOptions,
) -> Result<Vec<Segment>, JournalError> {
    let mut segments: Vec<Segment> = Vec::with_capacity(found.len());
    for (sequence, name) in found {
        let path = disk.path(name);
        let corrupt = |what: String| JournalError::Corrupt { path: path.clone(), offset: 0, what };
        let file = disk.open(name).map_err(|e| JournalError::io(&path, "open", 0, e))?;
        let length = file.length().map_err(|e| JournalError::io(&path, "read", 0, e))?;
        if length < 3 * SECTOR as u64 {
            return Err(corrupt(format!("the file has {length} bytes, too few for a segment")));
        }
        let mut sector = [0; SECTOR];
        file.read_at(0, &mut sector).map_err(|e| JournalError::io(&path, "read", 0, e))?;
        let header = match SegmentHeader::decode(&sector) {
            Ok(header) => header,
            Err(DecodeError::Newer(found)) => {
                return Err(JournalError::NewerFormat { path, found, supported: SEGMENT_FORMAT });
            }
            Err(error) => return Err(corrupt(format!("the segment's header cannot be read: {error}"))),
        };
        if header.cluster != options.cluster {
            return Err(JournalError::OtherCluster {
                path,
                found: header.cluster,
                expected: options.cluster,
            });
        }
        if header.node != options.node {
            return Err(JournalError::OtherNode { path, found: header.node, expected: options.node });
        }
        if header.birth != 0 && options.birth != 0 && header.birth != options.birth {
            return Err(JournalError::OtherDirectory { path });
        }
        if header.sequence != *sequence {
            return Err(corrupt(format!("it holds segment {}, its name says {sequence}", header.sequence)));
        }
        if header.capacity != length {
            return Err(corrupt(format!("the file has {length} bytes, its header says {}", header.capacity)));
        }
        if let Some(before) = segments.last()
            && before.header.sequence + 1 != *sequence
        {
            return Err(JournalError::SegmentMissing {
                path: disk.path(""),
                sequence: before.header.sequence + 1,
                why: format!("{name} follows it"),
            });
        }
        segments.push(Segment { name: name.clone(), header, last: BTreeMap::new() });
    }
    Ok(segments)
}

/// Reads one segment's frames up to its end; `next` is the header of the segment after it, if there is one.
fn read_segment<D: Disk>(
    disk: &D,
    segment: &mut Segment,
    next: Option<SegmentHeader>,
    pass: &mut Pass,
    replay: &mut dyn FnMut(StreamId, Position, &[u8]),
) -> Result<(), JournalError> {
    let path = disk.path(&segment.name);
    let header = segment.header;
    let mut bytes = vec![0; header.capacity as usize];
    let file = disk.open(&segment.name).map_err(|e| JournalError::io(&path, "open", 0, e))?;
    file.read_at(0, &mut bytes).map_err(|e| JournalError::io(&path, "read", 0, e))?;
    let corrupt = |offset: usize, what: String| JournalError::Corrupt {
        path: path.clone(),
        offset: offset as u64,
        what,
    };

    let mut offset = SECTOR;
    let mut unproven = VecDeque::new();
    loop {
        // The seal's sector is never a frame of the chain.
        let frame = bytes
            .get(offset..bytes.len() - SECTOR)
            .ok_or(DecodeError::Short)
            .and_then(|rest| format::decode_frame(rest, header.salt));
        let (frame, body, size) = match frame {
            Ok(whole) if follows(&whole.0, &header, pass) => whole,
            _ if offset == SECTOR => {
                let what = "the segment's first frame cannot be read, and it was durable before the segment was used";
                return Err(corrupt(offset, what.into()));
            }
            unreadable => {
                let why = unreadable
                    .err()
                    .map_or_else(|| "it does not continue the chain".into(), |e| e.to_string());
                return end_of_segment(&path, &bytes, offset, &why, &header, next, pass);
            }
        };
        if frame.flags & LAST != 0 {
            if next.is_none() {
                return Err(JournalError::SegmentMissing {
                    path: disk.path(""),
                    sequence: header.sequence + 1,
                    why: format!("{} says that it was durable", segment.name),
                });
            }
            return Ok(());
        }
        read_entries(&frame, body, segment, pass, replay).map_err(|what| corrupt(offset, what))?;
        pass.chain = frame.chain;
        pass.frame_next += 1;
        unproven.push_back((frame.frame, offset as u64));
        while unproven.front().is_some_and(|(number, _)| *number <= frame.durable) {
            unproven.pop_front();
        }
        offset += size;
        pass.offset = offset as u64;
        pass.unproven = unproven.front().map_or(pass.offset, |(_, offset)| *offset);
    }
}

fn follows(frame: &FrameHeader, header: &SegmentHeader, pass: &Pass) -> bool {
    frame.segment == header.sequence
        && frame.frame == pass.frame_next
        && frame.first == pass.position_next
        && frame.chain_before == pass.chain
}

fn read_entries(
    frame: &FrameHeader,
    mut body: &[u8],
    segment: &mut Segment,
    pass: &mut Pass,
    replay: &mut dyn FnMut(StreamId, Position, &[u8]),
) -> Result<(), String> {
    let unsound = |what: &str| format!("frame {} is whole but {what}", frame.frame);
    let mut entries = 0;
    while !body.is_empty() {
        let (entry, length) = format::decode_entry(body)
            .map_err(|error| unsound(&format!("an entry in it is not: {error}")))?;
        body = &body[length..];
        entries += 1;
        match entry.kind {
            Kind::Record => {
                let position = Position(pass.position_next);
                pass.position_next += 1;
                pass.recovered.records += 1;
                segment.last.insert(entry.stream, position);
                replay(entry.stream, position, entry.payload);
            }
            Kind::Incarnation => {
                let number = entry.payload.first_chunk().ok_or_else(|| unsound("its incarnation is not"))?;
                pass.incarnation = pass.incarnation.max(u32::from_le_bytes(*number));
            }
            Kind::Truncate => {
                let mark =
                    format::payload_u64(entry.payload).ok_or_else(|| unsound("a mark in it is not"))?;
                pass.marks.truncate(entry.stream, Position(mark));
            }
            Kind::End => {
                let mark =
                    format::payload_u64(entry.payload).ok_or_else(|| unsound("a mark in it is not"))?;
                pass.marks.end(entry.stream, Position(mark));
            }
            Kind::Oldest => {
                let oldest =
                    format::payload_u64(entry.payload).ok_or_else(|| unsound("a mark in it is not"))?;
                pass.oldest = pass.oldest.max(oldest);
            }
        }
    }
    if entries == frame.entries { Ok(()) } else { Err(unsound("it holds another number of entries")) }
}

/// At `offset` no frame continues the journal. Decides whether it ends there.
fn end_of_segment(
    path: &std::path::Path,
    bytes: &[u8],
    offset: usize,
    why: &str,
    header: &SegmentHeader,
    next: Option<SegmentHeader>,
    pass: &mut Pass,
) -> Result<(), JournalError> {
    let expected = pass.frame_next;
    let corrupt = |proof: String| JournalError::Corrupt {
        path: path.into(),
        offset: offset as u64,
        what: format!("frame {expected} cannot be read ({why}), but {proof}"),
    };
    if let Some(next) = next {
        // A crash between the next segment's activation and this one's closing frame leaves this: nothing is missing.
        if next.frame == expected && next.chain == pass.chain && next.first == pass.position_next {
            tracing::warn!(file = %path.display(), offset, "this segment has no closing frame; the chain goes on in the next");
            return Ok(());
        }
        return Err(corrupt(format!(
            "segment {} follows and begins with frame {}",
            next.sequence, next.frame
        )));
    }
    let header_at = |at: usize| {
        let found =
            bytes.get(at..at + FRAME_HEADER).and_then(|b| format::decode_frame_header(b, header.salt).ok());
        found.filter(|frame| frame.segment == header.sequence)
    };
    for at in (offset..bytes.len()).step_by(SECTOR) {
        if let Some(frame) = header_at(at)
            && frame.durable >= expected
        {
            return Err(corrupt(format!("frame {} at byte {at} says that it was durable", frame.frame)));
        }
    }
    if let Some(frame) = header_at(offset) {
        let torn = Torn {
            path: path.into(),
            offset: offset as u64,
            entries: Some(frame.entries),
            bytes: Some(format::frame_size(frame.body as usize) as u64),
        };
        pass.recovered.torn = Some(torn);
    } else if !header.recycled && bytes[offset..].iter().take(SECTOR).any(|byte| *byte != 0) {
        // In a file that was used before, this would be what is left of its earlier life.
        let torn = Torn { path: path.into(), offset: offset as u64, entries: None, bytes: None };
        pass.recovered.torn = Some(torn);
    }
    Ok(())
}
