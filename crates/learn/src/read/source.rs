//! Lines of a file, whatever it is compressed by.

use super::error::ReadError;
use crate::memory::{self, amount, can_hold};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::cell::RefCell;
use std::error::Error;
use std::io::{self, Read, Write};
use std::path::Path;

/// How a file is compressed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    Plain,
    /// gzip, of one member or several.
    Gzip,
    /// zstd, of one frame or several.
    Zstd,
    /// bzip2, of one stream or several.
    Bzip2,
}

impl Compression {
    /// By the first bytes of the content.
    pub fn of_content(start: &[u8]) -> Compression {
        match start {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            // Of content, or of a frame to be skipped, with which pzstd begins.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
            _ => Compression::Plain,
        }
    }

    /// By the end of a name: what a file to be written is to be.
    pub fn of_name(path: &Path) -> Compression {
        match path.extension().and_then(|end| end.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst" | "zstd") => Compression::Zstd,
            Some("bz2") => Compression::Bzip2,
            _ => Compression::Plain,
        }
    }

    /// Writes into `target` so compressed, whatever `body` writes.
    pub fn write<T: Write + Send>(
        self,
        mut target: T,
        body: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send,
    ) -> io::Result<()> {
        match self {
            Compression::Plain => body(&mut target)?,
            Compression::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(&mut target, flate2::Compression::fast());
                body(&mut gzip)?;
                gzip.finish()?;
            }
            Compression::Bzip2 => {
                let mut bzip2 = bzip2::write::BzEncoder::new(&mut target, bzip2::Compression::fast());
                body(&mut bzip2)?;
                bzip2.finish()?;
            }
            // Its encoder pulls, so that what is written goes through a pipe.
            Compression::Zstd => {
                let (from, mut to) = io::pipe()?;
                std::thread::scope(|scope| {
                    let target = &mut target;
                    let packing = std::thread::Builder::new().spawn_scoped(scope, move || {
                        let failed = RefCell::new(None);
                        let from =
                            io::BufReader::with_capacity(BLOCK, Until { inner: from, failed: &failed });
                        let to = Until { inner: target, failed: &failed };
                        ruzstd::encoding::compress(from, to, ruzstd::encoding::CompressionLevel::Fastest);
                        failed.into_inner().map_or(Ok(()), Err)
                    })?;
                    let done = body(&mut to).and_then(|()| to.flush());
                    drop(to);
                    // Where the target has failed, the pipe into the encoder breaks too.
                    packing.join().map_err(|_| io::Error::other("the zstd encoder failed"))?.and(done)
                })?;
            }
        }
        target.flush()
    }
}

/// One end of an encoder that knows no errors: the first is kept. From then on there is nothing to read, and what is written is
/// dropped.
struct Until<'a, I> {
    inner: I,
    failed: &'a RefCell<Option<io::Error>>,
}

impl<I> Until<'_, I> {
    fn act(&mut self, act: impl FnOnce(&mut I) -> io::Result<usize>, otherwise: usize) -> usize {
        if self.failed.borrow().is_some() {
            return otherwise;
        }
        act(&mut self.inner).unwrap_or_else(|error| {
            self.failed.replace(Some(error));
            otherwise
        })
    }
}

impl<I: Read> Read for Until<'_, I> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(self.act(|inner| inner.read(into), 0))
    }
}

impl<I: Write> Write for Until<'_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.act(|inner| inner.write_all(bytes).map(|()| bytes.len()), bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.act(|inner| inner.flush().map(|()| 0), 0);
        Ok(())
    }
}

/// Says what it means where not the system refused, but what there is cannot be unpacked.
fn packed(error: io::Error) -> io::Error {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match error.kind() {
        kind @ (InvalidData | InvalidInput | Other | UnexpectedEof) => io::Error::new(
            kind,
            format!("{error}\n  the file is damaged, cut off, or has something behind its end"),
        ),
        _ => error,
    }
}

/// What is read at once.
const BLOCK: usize = 1 << 20;

/// Bytes that a line may have, about: from a few packed ones, or from a device, one may come that no memory holds. Where this crate
/// is tested, so few that nobody waits for it.
pub(super) const LINE_MAX: usize = if cfg!(test) { 4 << 20 } else { 1 << 30 };

/// What the buffers of a decoder take, about: none of them asks.
const UNPACKING: u64 = 16 << 20;

/// Lines, each without its end.
pub(super) struct Lines {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What of the buffer has not been handed out.
    from: usize,
    until: usize,
    ended: bool,
    line: u64,
    /// Bytes of the lines handed out, with their ends.
    handed: u64,
    plain: bool,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Lines").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Lines {
    /// `path` stands for the source in errors; `start` was read of it already.
    pub(super) fn new(
        path: &Path,
        start: Vec<u8>,
        source: impl Read + Send + 'static,
    ) -> Result<Lines, ReadError> {
        let form = |what, instead| Err(ReadError::Form { path: path.to_owned(), what, instead });
        match &start[..] {
            [0xfd, b'7', b'z', b'X', b'Z', 0] => {
                return form("compressed by xz", "unpack it first: unxz FILE");
            }
            [b'P', b'A', b'R', b'1', ..] => {
                return form("Parquet", "read it with load_parquet, or write it as svmlight");
            }
            [b'A', b'R', b'R', b'O', b'W', b'1'] | [0xff, 0xff, 0xff, 0xff, ..] => {
                return form("Arrow", "read it with pyarrow and load_arrow, or write it as svmlight");
            }
            [b'F', b'E', b'A', b'1', ..] => {
                return form("Feather of version 1", "write it as version 2, which is Arrow");
            }
            [0x04, 0x22, 0x4d, 0x18, ..] => return form("compressed by lz4", "unpack it first: unlz4 FILE"),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                return form("text in UTF-16", "write it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE");
            }
            [b'P', b'K', 3, 4, ..] => return form("a zip archive", "unpack it first: unzip FILE"),
            [0x93, b'N', b'U', b'M', ..] => {
                return form("a NumPy array", "train from Python, or write it as svmlight");
            }
            _ => {}
        }
        let compression = Compression::of_content(&start);
        let plain = compression == Compression::Plain;
        if !plain && !can_hold(UNPACKING) {
            let cause = no_memory("to unpack it with", UNPACKING);
            return Err(ReadError::Open { path: path.to_owned(), cause });
        }
        let whole = io::Cursor::new(start).chain(source);
        let buffered = |whole| io::BufReader::with_capacity(BLOCK, whole);
        let source: Box<dyn Read + Send> = match compression {
            // It is read in blocks anyway.
            Compression::Plain => Box::new(whole),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(whole))),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(buffered(whole))),
            Compression::Zstd => Box::new(Frames { source: buffered(whole), frame: None, ended: 0 }),
        };
        Ok(Lines { source, buffer: Vec::new(), from: 0, until: 0, ended: false, line: 0, handed: 0, plain })
    }

    /// The next line and its number, counted from 1.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let mut looked = 0;
        loop {
            let rest = &self.buffer[self.from + looked..self.until];
            if let Some(length) = memchr::memchr(b'\n', rest) {
                let start = self.from;
                self.from += looked + length + 1;
                self.handed += (looked + length + 1) as u64;
                self.line += 1;
                return Ok(Some((self.line, &self.buffer[start..start + looked + length])));
            }
            looked += rest.len();
            if self.ended {
                let start = std::mem::replace(&mut self.from, self.until);
                if looked == 0 {
                    return Ok(None);
                }
                self.line += 1;
                return Ok(Some((self.line, &self.buffer[start..self.until])));
            }
            self.fill()?;
        }
    }

    /// How many times as long as what was handed out a file of this length is: 1 where it is compressed.
    pub(super) fn times(&self, length: u64) -> f64 {
        if self.plain && self.handed > 0 { (length as f64 / self.handed as f64).max(1.0) } else { 1.0 }
    }

    /// The last line handed out.
    pub(super) fn number(&self) -> u64 {
        self.line
    }

    /// Reads a block behind what is left of the last one.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.until, 0);
        self.until -= self.from;
        self.from = 0;
        if self.until > LINE_MAX {
            let told = format!(
                "line {} is longer than {LINE_MAX} bytes\n  if it is text, give each sample a line of its own",
                self.line + 1
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, told));
        }
        if self.buffer.len() < self.until + BLOCK {
            let length = self.until + 2 * BLOCK;
            let more = length - self.buffer.len();
            let room = memory::try_reserve(&mut self.buffer, more);
            room.map_err(|cause| no_memory("for the lines that come next", cause.bytes))?;
            self.buffer.resize(length, 0);
        }
        let read = loop {
            match self.source.read(&mut self.buffer[self.until..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !self.plain => return Err(packed(error)),
                read => break read?,
            }
        };
        self.until += read;
        self.ended = read == 0;
        Ok(())
    }
}

fn no_memory(what: &str, bytes: u64) -> io::Error {
    let told = format!("there is no memory {what}: {} were asked for in vain", amount(bytes));
    io::Error::new(io::ErrorKind::OutOfMemory, told)
}

/// Why a frame, counted from 1, was not unpacked; the decoder says it in the words of its code.
fn broken(error: &FrameDecoderError, frame: u64) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(kind @ io::ErrorKind::UnexpectedEof) => {
                return io::Error::new(kind, format!("zstd frame {frame} is cut off"));
            }
            Some(kind) => return io::Error::new(kind, error.to_string()),
            None => cause = error.source(),
        }
    }
    let (kind, what) = match error {
        FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::BadMagicNumber(_)) => {
            (io::ErrorKind::InvalidData, "no zstd frame begins where one should")
        }
        FrameDecoderError::WindowSizeTooBig { .. } => (
            io::ErrorKind::Unsupported,
            "its window is larger than is unpacked\n  pack it anew, with a smaller level and without --long",
        ),
        FrameDecoderError::DictNotProvided { .. } => {
            (io::ErrorKind::Unsupported, "it was packed with a dictionary\n  pack it anew, without one")
        }
        _ => (io::ErrorKind::InvalidData, "what is packed cannot be what was written"),
    };
    io::Error::new(kind, format!("zstd frame {frame}: {what}"))
}

/// The frames of a zstd file, one after the other.
struct Frames<S: io::BufRead> {
    source: S,
    frame: Option<Box<FrameDecoder>>,
    /// Frames of content that were handed out.
    ended: u64,
}

impl<S: io::BufRead> Frames<S> {
    /// Begins the next frame that has content; whether there is one.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            let mut frame = Box::new(FrameDecoder::new());
            match frame.init(&mut self.source) {
                Ok(()) => {
                    self.frame = Some(frame);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            format!("a zstd frame to be skipped, behind frame {}, is cut off", self.ended),
                        ));
                    }
                }
                Err(error) => return Err(broken(&error, self.ended + 1)),
            }
        }
        Ok(false)
    }
}

impl<S: io::BufRead> Read for Frames<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else {
                if self.begin()? {
                    continue;
                }
                return Ok(0);
            };
            // Of a frame under way the last part is kept back, for what follows to refer to.
            while frame.can_collect() < into.len() && !frame.is_finished() {
                let wanted = BlockDecodingStrategy::UptoBytes(into.len() - frame.can_collect());
                frame
                    .decode_blocks(&mut self.source, wanted)
                    .map_err(|error| broken(&error, self.ended + 1))?;
            }
            let read = frame.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            self.ended += 1;
            let (written, found) = (frame.get_checksum_from_data(), frame.get_calculated_checksum());
            if let (Some(written), Some(found)) = (written, found)
                && written != found
            {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "zstd frame {} has the checksum {found:08x}, and {written:08x} was written of it",
                        self.ended
                    ),
                ));
            }
            self.frame = None;
        }
    }
}
