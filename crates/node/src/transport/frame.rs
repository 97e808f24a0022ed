//! Frames between nodes: `length u32 | kind u8 | content`, integers little-endian, the length counting
//! what follows it. A connection carries messages one way, from the node that dialled:
//!
//! ```text
//! dialler                               acceptor
//!   Hello {magic, version, cluster,
//!          from, to, life,
//!          keyspaces}               ->
//!                                   <-  Welcome {version, life}, or  Refuse or Disown "why", and the end
//!   Message, News, Ping, Part ...   ->
//!                                   <-  Pong ...
//! ```
//!
//! A large frame travels as parts, in order, so that others may go between them: a heartbeat does not wait until a value of 50 MB
//! has crossed an ocean.

pub use crate::births::{Life, Start};
use crate::hub::News;
pub use crate::node::Agreed;
use isochrone_core::wire::{decode, decode_prefix, encode_into};
use isochrone_core::{Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Stamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thiserror::Error;

/// The newest version of the frames and of what is inside, the one written.
pub const VERSION: u16 = 17;

/// What a hello begins with, so that a stranger on the port is told from a node.
pub const MAGIC: [u8; 8] = *b"ISOCHRON";

/// What an acceptor sends is smaller than this, whatever comes of the greeting; a larger frame is a stranger's.
pub const HANDSHAKE_MAX: usize = 4 << 10;

/// A greeting is smaller than this, with as many keyspaces as a deployment file may have; a larger frame before the handshake is
/// done is a stranger's.
pub const HELLO_MAX: usize = 128 << 10;

/// A frame longer than this travels in parts of so many bytes. At 1 Mbit/s one takes 66 ms.
const PART: usize = 8 << 10;

const HEADER: usize = 5;
const ADDRESSES: usize = 16;

/// How a node introduces itself.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the dialler.
    pub version: u16,
    /// The cluster's identity, see `Deployment::cluster_id`.
    pub cluster_id: u64,
    /// Its name, for messages.
    pub cluster: String,
    /// The dialler.
    pub from: NodeId,
    /// Who it believes it has reached.
    pub to: NodeId,
    /// The dialler's data directory and its starts.
    pub life: Life,
    /// The keyspaces of its deployment file.
    pub keyspaces: Arc<[Agreed]>,
}

/// Sent once a second on every link.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// Comes back in the pong.
    pub number: u64,
    /// The keyspaces and partitions that processes of the asker lead, and in which reign: for INFO and
    /// status only, nothing rests on it.
    pub leads: Vec<(KeyspaceId, PartitionId, u64)>,
    /// Bytes of memory that the asker may use, where it uses more.
    pub full: Option<u64>,
    /// The other end's steady clock in the last pong that has come, nanoseconds; zero where none has.
    pub heard: u64,
}

/// One frame, borrowed from the bytes it came in.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Frame<'a> {
    /// The first frame of a connection.
    Hello(Hello),
    /// The answer to a hello that is accepted.
    Welcome {
        /// The acceptor's version.
        version: u16,
        /// The acceptor's data directory and its starts; nothing where its version is another.
        life: Option<Life>,
    },
    /// The answer to one that is not: why.
    Refuse(String),
    /// The answer to one whose sender has lost its data directory, or has a copy of it: why it must end.
    Disown(String),
    /// A message between processes.
    Message {
        /// The sender.
        from: ProcessId,
        /// The receiver.
        to: ProcessId,
        /// The message, encoded.
        body: &'a [u8],
    },
    /// Are you there, what the asker leads, and whether it is full.
    Ping(Ping),
    /// The answer to a ping: its number, and the wall clock and the steady one of who answers.
    Pong(u64, Stamp, Instant),
    /// What the connections of one node tell those of another.
    News(News),
    /// A piece of a frame, without its length; `last` ends it.
    Part {
        /// Whether no other follows.
        last: bool,
        /// The piece.
        bytes: &'a [u8],
    },
}

/// Bytes that are no frame. The connection they came on is closed.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum FrameError {
    /// A length above the limit.
    #[error("a frame of {length} bytes, more than the {limit} that are allowed")]
    TooLong {
        /// What it claims.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The beginning of TLS, where none is spoken.
    #[error(
        "the beginning of TLS, and this node speaks plain text with its peers: give each node of the cluster the `peer_*` files \
         of [security], or none"
    )]
    Tls,
    /// A kind that this version does not know.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A content that does not fit its kind.
    #[error("a malformed {0} frame")]
    Content(&'static str),
}

/// Appends a message; `encode` appends its body.
pub fn message(out: &mut Vec<u8>, from: ProcessId, to: ProcessId, encode: impl FnOnce(&mut Vec<u8>)) {
    frame(out, 4, |out| {
        out.extend_from_slice(&to.to_u64().to_le_bytes());
        out.extend_from_slice(&from.to_u64().to_le_bytes());
        encode(out);
    });
}

/// Appends a hello.
pub fn hello(out: &mut Vec<u8>, hello: &Hello) {
    frame(out, 1, |out| encode_into(hello, out));
}

/// Appends a welcome.
pub fn welcome(out: &mut Vec<u8>, life: &Life) {
    frame(out, 2, |out| {
        out.extend_from_slice(&VERSION.to_le_bytes());
        encode_into(life, out);
    });
}

/// Appends a refusal, cut to what a handshake may carry.
pub fn refuse(out: &mut Vec<u8>, why: &str) {
    say_no(out, 3, why);
}

/// Appends a refusal that is to end whoever gets it, cut likewise.
pub fn disown(out: &mut Vec<u8>, why: &str) {
    say_no(out, 8, why);
}

/// Cuts the frame that begins at `begin` and ends `out` into parts, where it is long.
pub fn part(out: &mut Vec<u8>, begin: usize) {
    if out.len() - begin <= 4 + PART {
        return;
    }
    let whole = out.split_off(begin);
    let mut pieces = whole[4..].chunks(PART).peekable();
    out.reserve(whole.len() + (HEADER + 1) * (whole.len() / PART + 1));
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        frame(out, 9, |out| {
            out.push(u8::from(last));
            out.extend_from_slice(piece);
        });
    }
}

/// The most whole frames at the front of `bytes` that come to no more than `most` bytes, at least one: their size. `bytes` begins
/// with one.
pub fn whole(bytes: &[u8], most: usize) -> usize {
    let mut end = 0;
    while let Some(length) = bytes.get(end..).and_then(|rest| rest.first_chunk()) {
        let next = end + 4 + u32::from_le_bytes(*length) as usize;
        if end > 0 && next > most {
            break;
        }
        end = next;
    }
    end.min(bytes.len())
}

fn say_no(out: &mut Vec<u8>, kind: u8, why: &str) {
    let mut end = why.len().min(HANDSHAKE_MAX - HEADER);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    frame(out, kind, |out| out.extend_from_slice(&why.as_bytes()[..end]));
}

/// Appends a ping.
pub fn ping(out: &mut Vec<u8>, ping: &Ping) {
    frame(out, 5, |out| encode_into(ping, out));
}

/// Appends a pong.
pub fn pong(out: &mut Vec<u8>, number: u64, stamp: Stamp, now: Instant) {
    frame(out, 6, |out| {
        for part in [number, stamp.as_nanos(), now.as_nanos()] {
            out.extend_from_slice(&part.to_le_bytes());
        }
    });
}

/// Appends news.
pub fn news(out: &mut Vec<u8>, news: &News) {
    frame(out, 7, |out| encode_into(news, out));
}

/// Reads the frame at the front of `bytes`: it and its size, or `None` where it is not all there.
///
/// # Errors
/// The bytes are no frame, or one above `limit`.
pub fn parse(bytes: &[u8], limit: usize) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let begins_tls = matches!(length, [22, 3, 0..=4, _]);
    // A short record begins like a greeting of 64 KiB, but goes on with a number where that has its magic.
    let short_tls = limit <= HELLO_MAX && matches!(bytes, [22, 3, 1..=4, 0, _, 1, ..]);
    let length = u32::from_le_bytes(*length) as usize;
    if length > limit || short_tls {
        return Err(if begins_tls { FrameError::Tls } else { FrameError::TooLong { length, limit } });
    }
    let Some(content) = rest.get(..length) else { return Ok(None) };
    Ok(Some((read(content)?, 4 + length)))
}

/// Reads a frame without its length.
fn read(frame: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (kind, content) = frame.split_first().ok_or(FrameError::Content("empty"))?;
    Ok(match kind {
        // Of another version's no more is read, whatever this one would make of it.
        1 => Frame::Hello(match foreign(content) {
            Some(hello) => hello,
            None => decode(content).map_err(|_| FrameError::Content("hello"))?,
        }),
        2 => {
            let (version, life) = content.split_first_chunk().ok_or(FrameError::Content("welcome"))?;
            let version = u16::from_le_bytes(*version);
            let life = (version == VERSION).then(|| decode(life)).transpose();
            Frame::Welcome { version, life: life.map_err(|_| FrameError::Content("welcome"))? }
        }
        3 => Frame::Refuse(String::from_utf8_lossy(content).into_owned()),
        4 => {
            let Some((to, rest)) = content.split_first_chunk() else {
                return Err(FrameError::Content("message"));
            };
            let Some((from, body)) = rest.split_first_chunk() else {
                return Err(FrameError::Content("message"));
            };
            Frame::Message {
                from: ProcessId::from_u64(u64::from_le_bytes(*from)),
                to: ProcessId::from_u64(u64::from_le_bytes(*to)),
                body,
            }
        }
        5 => Frame::Ping(decode(content).map_err(|_| FrameError::Content("ping"))?),
        6 => match content.as_chunks() {
            ([number, stamp, now], []) => {
                let [number, stamp, now] = [number, stamp, now].map(|part| u64::from_le_bytes(*part));
                Frame::Pong(number, Stamp::from_nanos(stamp), Instant::from_nanos(now))
            }
            _ => return Err(FrameError::Content("pong")),
        },
        7 => Frame::News(decode(content).map_err(|_| FrameError::Content("news"))?),
        8 => Frame::Disown(String::from_utf8_lossy(content).into_owned()),
        9 => match content {
            [last @ (0 | 1), bytes @ ..] => Frame::Part { last: *last == 1, bytes },
            _ => return Err(FrameError::Content("part")),
        },
        other => return Err(FrameError::Kind(*other)),
    })
}

/// The greeting of another version, of which no more is known than that, so that its sender can be told.
fn foreign(hello: &[u8]) -> Option<Hello> {
    let ((magic, version), _): (([u8; 8], u16), _) = decode_prefix(hello).ok()?;
    let life = Life { birth: 0, start: Start { number: 0, salt: 0 }, past: Vec::new() };
    let (nobody, cluster) = (NodeId(u16::MAX), String::new());
    let keyspaces = Arc::default();
    let hello = Hello { magic, version, cluster_id: 0, cluster, from: nobody, to: nobody, life, keyspaces };
    (magic == MAGIC && version != VERSION).then_some(hello)
}

/// Turns a stream of bytes into frames, with parts put together. Keeps only what is incomplete, so an idle connection costs
/// nothing.
#[derive(Default)]
pub struct FrameBuffer {
    pending: Vec<u8>,
    parts: Vec<u8>,
}

impl FrameBuffer {
    /// Takes bytes in and gives every frame that is complete, in order.
    ///
    /// # Errors
    /// What [`parse`] refuses, or the first error of `each`; nothing is to be fed afterwards.
    pub fn feed<E: From<FrameError>>(
        &mut self,
        bytes: &[u8],
        limit: usize,
        mut each: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut rest: &[u8] = if pending.is_empty() {
            bytes
        } else {
            pending.extend_from_slice(bytes);
            &pending
        };
        while let Some((frame, size)) = parse(rest, limit)? {
            rest = &rest[size..];
            let Frame::Part { last, bytes } = frame else {
                each(frame)?;
                continue;
            };
            let length = self.parts.len() + bytes.len();
            if length > limit {
                return Err(FrameError::TooLong { length, limit }.into());
            }
            self.parts.extend_from_slice(bytes);
            if last {
                match read(&std::mem::take(&mut self.parts))? {
                    Frame::Part { .. } => return Err(FrameError::Content("part").into()),
                    frame => each(frame)?,
                }
            }
        }
        self.pending =
            if rest.len() == pending.len() && !pending.is_empty() { pending } else { rest.to_vec() };
        Ok(())
    }

    /// Bytes kept.
    pub fn pending(&self) -> usize {
        self.pending.len() + self.parts.len()
    }
}

/// For fuzzing: any bytes, cut anywhere, give frames or an error, and never more frames for being cut.
///
/// # Panics
/// Where that does not hold.
pub fn fuzz_frames(bytes: &[u8]) {
    const LIMIT: usize = 1 << 16;
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let collect = |pieces: &[&[u8]]| {
        let (mut buffer, mut frames) = (FrameBuffer::default(), 0u32);
        let outcome = pieces.iter().try_for_each(|piece| {
            buffer.feed(piece, LIMIT, |_| {
                frames += 1;
                Ok::<(), FrameError>(())
            })
        });
        assert!(buffer.pending() <= bytes.len(), "bytes were invented");
        (frames, outcome)
    };
    let (head, tail) = bytes.split_at(usize::from(*cut) % (bytes.len() + 1));
    let whole = collect(&[bytes]);
    assert_eq!(whole, collect(&[head, tail]), "a cut changes what is read");
}

fn frame(out: &mut Vec<u8>, kind: u8, content: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    content(out);
    // A frame above u32 is far above every limit; its sender drops it by its size.
    let length = (out.len() - begin - 4) as u32;
    out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}

/// Bytes that a message takes beside its body.
pub const MESSAGE_OVERHEAD: usize = HEADER + ADDRESSES;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::births::PAST;
    use proptest::prelude::*;

    fn process(node: u16) -> ProcessId {
        ProcessId::from_u64(u64::from(node) << 48 | 7)
    }

    #[test]
    fn a_frame_comes_back_however_it_is_cut() {
        let mut bytes = Vec::new();
        // As much as a greeting may hold.
        let start = |number| Start { number: u32::MAX - number, salt: u64::MAX };
        let life = Life { birth: u64::MAX, start: start(0), past: (0..PAST as u32).map(start).collect() };
        let values = [("partitions".to_owned(), "3".to_owned())].into();
        let keyspaces = [Agreed { number: 1, name: "main".into(), values }].into();
        let greeting = Hello {
            magic: MAGIC,
            version: VERSION,
            cluster_id: 9,
            cluster: "test".into(),
            from: NodeId(1),
            to: NodeId(2),
            life: life.clone(),
            keyspaces,
        };
        hello(&mut bytes, &greeting);
        welcome(&mut bytes, &life);
        refuse(&mut bytes, "why");
        disown(&mut bytes, "why");
        message(&mut bytes, process(1), process(2), |out| out.extend_from_slice(b"body"));
        let leads = vec![(KeyspaceId(1), PartitionId(0), 4)];
        let asked = Ping { number: 5, leads, full: Some(1 << 30), heard: 9 };
        ping(&mut bytes, &asked);
        pong(&mut bytes, 6, Stamp::from_nanos(7), Instant::from_nanos(8));
        let told = News::Published { channel: "channel".into(), payload: "payload".into() };
        news(&mut bytes, &told);
        let expected = [
            Frame::Hello(greeting),
            Frame::Welcome { version: VERSION, life: Some(life) },
            Frame::Refuse("why".into()),
            Frame::Disown("why".into()),
            Frame::Message { from: process(1), to: process(2), body: b"body" },
            Frame::Ping(asked),
            Frame::Pong(6, Stamp::from_nanos(7), Instant::from_nanos(8)),
            Frame::News(told),
        ];
        for size in 1..bytes.len() {
            let (mut buffer, mut seen) = (FrameBuffer::default(), 0);
            for piece in bytes.chunks(size) {
                buffer
                    .feed(piece, HANDSHAKE_MAX, |frame| {
                        assert_eq!(frame, expected[seen]);
                        seen += 1;
                        Ok::<(), FrameError>(())
                    })
                    .unwrap();
            }
            assert_eq!((seen, buffer.pending()), (expected.len(), 0));
        }
    }

    #[test]
    fn a_long_frame_travels_in_parts_and_others_between_them() {
        let body: Vec<u8> = (0..3 * PART + 5).map(|at| at as u8).collect();
        let mut bytes = Vec::new();
        pong(&mut bytes, 1, Stamp::ZERO, Instant::ZERO);
        let begin = bytes.len();
        message(&mut bytes, process(1), process(2), |out| out.extend_from_slice(&body));
        part(&mut bytes, begin);
        // Another after the first part.
        let at = whole(&bytes, begin + PART + 100);
        assert!(at > begin && at < begin + PART + 20, "{at}");
        assert_eq!(whole(&bytes[at..], 1), PART + HEADER + 1, "at least one");
        assert_eq!(whole(&bytes, usize::MAX), bytes.len());
        let mut between = Vec::new();
        pong(&mut between, 2, Stamp::ZERO, Instant::ZERO);
        bytes.splice(at..at, between);
        for size in [7, PART, bytes.len()] {
            let (mut buffer, mut seen) = (FrameBuffer::default(), Vec::new());
            for piece in bytes.chunks(size) {
                let limit = body.len() + MESSAGE_OVERHEAD;
                let each = |frame: Frame<'_>| {
                    seen.push(match frame {
                        Frame::Pong(number, ..) => number,
                        Frame::Message { body: got, .. } => u64::from(got == &body[..]) + 10,
                        _ => 0,
                    });
                    Ok::<(), FrameError>(())
                };
                buffer.feed(piece, limit, each).unwrap();
            }
            assert_eq!((seen, buffer.pending()), (vec![1, 2, 11], 0));
        }
        // Together they are no longer than one may be.
        let too_long = FrameBuffer::default().feed(&bytes, body.len(), |_| Ok(()));
        assert!(matches!(too_long, Err(FrameError::TooLong { .. })), "{too_long:?}");
    }

    #[test]
    fn a_short_frame_is_left_whole() {
        let mut bytes = Vec::new();
        message(&mut bytes, process(1), process(2), |out| out.resize(out.len() + PART - ADDRESSES - 1, 7));
        let before = bytes.clone();
        part(&mut bytes, 0);
        assert_eq!((bytes.len(), bytes == before), (PART + 4, true));
    }

    #[test]
    fn the_beginning_of_tls_is_told_as_that() {
        // What a client of TLS sends first: a record of a handshake, of version 1.0 or later.
        let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
        assert_eq!(parse(&hello, HANDSHAKE_MAX), Err(FrameError::Tls));
        assert_eq!(parse(&hello, HELLO_MAX), Err(FrameError::Tls));
        // One of fewer than 256 bytes, and a greeting of as many as that would claim.
        assert_eq!(parse(&[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3], HELLO_MAX), Err(FrameError::Tls));
        assert_eq!(parse(&[22, 3, 1, 0, 1, b'I', b'S'], HELLO_MAX), Ok(None));
        let [a, b, c, d] = 0x0400_0316_u32.to_le_bytes();
        assert_eq!((a, b, c, d), (22, 3, 0, 4), "a frame of 64 MiB would begin so, where that is allowed");
        assert_eq!(parse(&[a, b, c, d], 128 << 20), Ok(None));
    }

    #[test]
    fn greetings_of_other_versions_are_understood_as_that() {
        let other = |magic: [u8; 8], version: u16| {
            let mut bytes = Vec::new();
            frame(&mut bytes, 1, |out| encode_into(&(magic, version, "another content"), out));
            bytes
        };
        let read = |bytes: &[u8]| {
            parse(bytes, HANDSHAKE_MAX).map(|found| match found {
                Some((Frame::Hello(hello), _)) => hello.version,
                Some((Frame::Welcome { version, life: None }, _)) => version,
                _ => 0,
            })
        };
        assert_eq!(read(&other(MAGIC, 5)), Ok(5));
        assert_eq!(read(&other(MAGIC, VERSION)), Err(FrameError::Content("hello")));
        assert_eq!(read(&other(*b"GARBAGE!", 5)), Err(FrameError::Content("hello")));
        // Nothing behind the version is looked at, though it may look like a greeting of this one.
        let mut alike = Vec::new();
        let life = Life { birth: 3, start: Start { number: 4, salt: 5 }, past: Vec::new() };
        let (from, to, cluster) = (NodeId(1), NodeId(2), "test".to_owned());
        let keyspaces = [Agreed { number: 1, name: "main".into(), values: Default::default() }].into();
        let version = VERSION + 1;
        let later = Hello { magic: MAGIC, version, cluster_id: 9, cluster, from, to, life, keyspaces };
        hello(&mut alike, &later);
        let Ok(Some((Frame::Hello(heard), _))) = parse(&alike, HANDSHAKE_MAX) else { panic!("no greeting") };
        assert_eq!((heard.version, heard.cluster_id, heard.keyspaces.len()), (version, 0, 0));
        let mut welcomed = Vec::new();
        frame(&mut welcomed, 2, |out| out.extend_from_slice(&[5, 0, 1, 2, 3]));
        assert_eq!(read(&welcomed), Ok(5));
    }

    #[test]
    fn a_claimed_length_is_refused_before_its_bytes_come() {
        let error = parse(&[0, 0, 1, 0], 1 << 10).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 65536 bytes, more than the 1024 that are allowed");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz_frames(&bytes);
        }

        #[test]
        fn damaged_frames_are_survived(flip in 0usize..60, to in any::<u8>(), cut in any::<u8>()) {
            let mut bytes = vec![cut];
            message(&mut bytes, process(1), process(2), |out| out.extend_from_slice(b"some body"));
            let leads = vec![(KeyspaceId(1), PartitionId(2), 3)];
            ping(&mut bytes, &Ping { number: 1, leads, full: None, heard: 0 });
            let at = flip % bytes.len();
            bytes[at] = to;
            fuzz_frames(&bytes);
        }
    }
}
