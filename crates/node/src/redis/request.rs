//! Requests from bytes: arrays of bulk strings, and the inline form.
//!
//! A request is found in place: it is a list of spans in the connection's input buffer, kept between
//! calls, so that parsing allocates nothing in steady state and a request that arrives in many pieces is
//! never read twice.

use crate::limits::Limits;
use std::fmt;
use zeroize::Zeroize;

/// The strings of one request, in the connection's buffer.
#[derive(Copy, Clone)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Place],
}

/// Where a string lies: its first byte after the start of the request, and its length.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    at: u32,
    length: u32,
}

impl<'a> Args<'a> {
    /// How many strings, the command's name included.
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// String `index`; empty where there is none.
    pub fn at(self, index: usize) -> &'a [u8] {
        match self.spans.get(index) {
            Some(place) => &self.bytes[place.at as usize..(place.at + place.length) as usize],
            None => &[],
        }
    }

    /// The strings from `first` on.
    pub fn from(self, first: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(first..).unwrap_or(&[]) }
    }

    /// Bytes of all of them.
    pub fn bytes(self) -> usize {
        self.spans.iter().map(|place| place.length as usize).sum()
    }

    /// All strings in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |index| self.at(index))
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// A breach of the protocol. The connection says so and closes, since what follows cannot be read.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ProtocolError {
    /// A line that holds a count of strings is too long.
    MultibulkLine,
    /// The count of strings is no number.
    MultibulkLength,
    /// More strings than are allowed.
    Elements,
    /// More strings than are allowed before login.
    LoginMultibulkLength,
    /// A line that holds a length is too long.
    BulkLine,
    /// A string begins with this byte instead of `$`.
    Expected(u8),
    /// The length of a string is no number.
    BulkLength,
    /// A longer string than is allowed.
    Bulk,
    /// A longer string than is allowed before login.
    LoginBulkLength,
    /// An inline request without an end.
    InlineLength,
    /// An inline request with a quote that is not closed.
    Quotes,
    /// The request as a whole is above the limit.
    RequestLength,
}

impl fmt::Display for ProtocolError {
    /// The texts of Redis.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            ProtocolError::MultibulkLine => f.write_str("too big mbulk count string"),
            ProtocolError::MultibulkLength | ProtocolError::Elements => {
                f.write_str("invalid multibulk length")
            }
            ProtocolError::LoginMultibulkLength => f.write_str("unauthenticated multibulk length"),
            ProtocolError::BulkLine => f.write_str("too big bulk count string"),
            ProtocolError::Expected(byte) => {
                let shown = if byte.is_ascii_graphic() || *byte == b' ' { *byte as char } else { '?' };
                write!(f, "expected '$', got '{shown}'")
            }
            ProtocolError::BulkLength | ProtocolError::Bulk => f.write_str("invalid bulk length"),
            ProtocolError::LoginBulkLength => f.write_str("unauthenticated bulk length"),
            ProtocolError::InlineLength => f.write_str("too big inline request"),
            ProtocolError::Quotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::RequestLength => f.write_str("too big request"),
        }
    }
}

impl ProtocolError {
    /// The name of the limit that was passed, where it was one.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            ProtocolError::LoginMultibulkLength | ProtocolError::LoginBulkLength => Some("login_input"),
            ProtocolError::MultibulkLine | ProtocolError::BulkLine | ProtocolError::InlineLength => {
                Some("inline")
            }
            ProtocolError::Elements => Some("elements"),
            ProtocolError::Bulk => Some("bulk"),
            ProtocolError::RequestLength => Some("command"),
            ProtocolError::MultibulkLength
            | ProtocolError::BulkLength
            | ProtocolError::Expected(_)
            | ProtocolError::Quotes => None,
        }
    }
}

/// Requests put by for later: those that MULTI queues.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    spans: Vec<Place>,
    /// Where the strings of each request end in `spans`.
    ends: Vec<u32>,
    /// One of them may hold a password: the bytes are overwritten before they are let go.
    secret: bool,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.secret {
            self.bytes.zeroize();
        }
    }
}

impl Kept {
    /// Puts one more by, which may hold a password where it is `secret`.
    pub(crate) fn push(&mut self, args: Args<'_>, secret: bool) {
        self.secret |= secret;
        let more = args.iter().map(<[u8]>::len).sum::<usize>();
        if self.secret && self.bytes.capacity() - self.bytes.len() < more {
            // Growing would leave a copy behind.
            let mut larger = Vec::with_capacity(2 * (self.bytes.len() + more));
            larger.extend_from_slice(&self.bytes);
            std::mem::replace(&mut self.bytes, larger).zeroize();
        }
        self.add(args.iter());
    }

    /// The same from its strings, which fit below 4 GiB together.
    pub(crate) fn add<'s>(&mut self, strings: impl IntoIterator<Item = &'s [u8]>) {
        for arg in strings {
            self.spans.push(Place { at: self.bytes.len() as u32, length: arg.len() as u32 });
            self.bytes.extend_from_slice(arg);
        }
        self.ends.push(self.spans.len() as u32);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes they hold, those of where each string lies among them: many strings are empty.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Place>()
    }

    /// Request `index`.
    pub(crate) fn at(&self, index: usize) -> Args<'_> {
        let from = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Args { bytes: &self.bytes, spans: &self.spans[from..self.ends[index] as usize] }
    }
}

/// Where the parser stands in the request at the front of the buffer.
#[derive(Copy, Clone, Debug)]
enum Stage {
    /// Before its first byte.
    Front,
    /// Within an array: this many strings are missing.
    Array { missing: usize },
    /// Within a string of this length.
    Bulk { missing: usize, length: usize },
    /// Complete, to be taken.
    Complete,
}

/// The input of a connection and the request at its front.
#[derive(Debug)]
pub(crate) struct Requests {
    buffer: Vec<u8>,
    /// Where the request at the front begins.
    start: usize,
    /// How far it has been read, relative to `start`.
    read: usize,
    stage: Stage,
    spans: Vec<Place>,
    /// The strings of an inline request, which need unescaping.
    inline: Vec<u8>,
    is_inline: bool,
}

/// Strings in one request before login, as in Redis: nothing that is answered then needs more.
const LOGIN_ELEMENTS: usize = 10;

/// Above this capacity an empty buffer is given back, so that one large value does not cost its size for
/// as long as the connection lasts.
const KEEP: usize = 256 << 10;

impl Requests {
    pub(crate) fn new() -> Requests {
        Requests {
            buffer: Vec::new(),
            start: 0,
            read: 0,
            stage: Stage::Front,
            spans: Vec::new(),
            inline: Vec::new(),
            is_inline: false,
        }
    }

    /// Takes in more bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes taken in and not yet consumed.
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Bytes of memory held on to.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity() + self.inline.capacity() + self.spans.capacity() * size_of::<Place>()
    }

    /// The strings of the request at the front, after [`Requests::parse`] said that it is complete.
    pub(crate) fn args(&self) -> Args<'_> {
        let bytes = if self.is_inline { &self.inline[..] } else { &self.buffer[self.start..] };
        Args { bytes, spans: &self.spans }
    }

    /// Bytes of the request at the front, as far as it has been read.
    pub(crate) fn length(&self) -> usize {
        self.read
    }

    /// Overwrites the request at the front, which held a password.
    pub(crate) fn forget(&mut self) {
        let end = self.start + self.read;
        self.buffer[self.start..end].zeroize();
        self.inline.zeroize();
    }

    /// Drops the request at the front.
    pub(crate) fn consume(&mut self) {
        self.start += self.read;
        self.read = 0;
        self.stage = Stage::Front;
        if self.spans.capacity() > 4096 {
            self.spans = Vec::new();
        }
        self.spans.clear();
        if self.start == self.buffer.len() {
            self.start = 0;
            if self.buffer.capacity() > KEEP {
                self.buffer = Vec::new();
            }
            self.buffer.clear();
        }
    }

    /// Reads on. True where the request at the front is complete and has at least one string.
    pub(crate) fn parse(&mut self, limits: &Limits, logged_in: bool) -> Result<bool, ProtocolError> {
        loop {
            match self.stage {
                Stage::Complete => return Ok(true),
                Stage::Front => {
                    let Some(first) = self.buffer.get(self.start) else { return Ok(false) };
                    self.is_inline = *first != b'*';
                    if self.is_inline {
                        if !self.parse_inline(limits)? {
                            return Ok(false);
                        }
                        continue;
                    }
                    let Some(line) = self.line(limits.inline_bytes, ProtocolError::MultibulkLine)? else {
                        return Ok(false);
                    };
                    let count = integer(&self.buffer[line]).ok_or(ProtocolError::MultibulkLength)?;
                    // Redis takes a count of zero or below for an empty request.
                    let count = usize::try_from(count).unwrap_or(0);
                    if count > limits.elements {
                        return Err(ProtocolError::Elements);
                    }
                    if !logged_in && count > LOGIN_ELEMENTS {
                        return Err(ProtocolError::LoginMultibulkLength);
                    }
                    if count == 0 {
                        self.consume();
                        continue;
                    }
                    self.stage = Stage::Array { missing: count };
                }
                Stage::Array { missing: 0 } => self.stage = Stage::Complete,
                Stage::Array { missing } => {
                    let Some(first) = self.buffer.get(self.start + self.read) else { return Ok(false) };
                    if *first != b'$' {
                        // The byte is known before its line ends, and enough to refuse.
                        return Err(ProtocolError::Expected(*first));
                    }
                    let Some(line) = self.line(limits.inline_bytes, ProtocolError::BulkLine)? else {
                        return Ok(false);
                    };
                    let length = integer(&self.buffer[line]).ok_or(ProtocolError::BulkLength)?;
                    let length = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
                    if length > limits.bulk_bytes {
                        return Err(ProtocolError::Bulk);
                    }
                    if !logged_in && length > limits.login_input_bytes {
                        return Err(ProtocolError::LoginBulkLength);
                    }
                    // One string of the largest size has room beside it for a name, a key and options.
                    if self.read + length > limits.command_bytes + limits.inline_bytes {
                        return Err(ProtocolError::RequestLength);
                    }
                    self.stage = Stage::Bulk { missing, length };
                }
                Stage::Bulk { missing, length } => {
                    let end = self.read + length + 2;
                    if self.waiting() < end {
                        return Ok(false);
                    }
                    self.spans.push(Place { at: self.read as u32, length: length as u32 });
                    self.read = end;
                    self.stage = Stage::Array { missing: missing - 1 };
                }
            }
        }
    }

    /// The text between the type byte and the end of the line at the front, once it is there whole.
    fn line(
        &mut self,
        longest: usize,
        error: ProtocolError,
    ) -> Result<Option<std::ops::Range<usize>>, ProtocolError> {
        let from = self.start + self.read;
        let rest = &self.buffer[from..];
        let shown = &rest[..rest.len().min(longest)];
        match shown.iter().position(|byte| *byte == b'\r') {
            // As Redis does, the byte behind the carriage return is awaited and not looked at.
            Some(end) if rest.len() > end + 1 => {
                self.read += end + 2;
                Ok(Some(from + 1..from + end))
            }
            Some(_) => Ok(None),
            None if rest.len() >= longest => Err(error),
            None => Ok(None),
        }
    }

    fn parse_inline(&mut self, limits: &Limits) -> Result<bool, ProtocolError> {
        let rest = &self.buffer[self.start..];
        // `read` remembers how much of an unfinished line holds no line feed.
        let Some(end) = rest[self.read..].iter().position(|byte| *byte == b'\n') else {
            if rest.len() > limits.inline_bytes {
                return Err(ProtocolError::InlineLength);
            }
            self.read = rest.len();
            return Ok(false);
        };
        let end = self.read + end;
        if end > limits.inline_bytes {
            return Err(ProtocolError::InlineLength);
        }
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.spans.clear();
        self.inline.clear();
        split_quoted(line, &mut self.inline, &mut self.spans)?;
        self.read = end + 1;
        if self.spans.is_empty() {
            self.consume();
        } else {
            self.stage = Stage::Complete;
        }
        Ok(true)
    }
}

/// A decimal integer as Redis reads one: an optional minus, digits, no leading zero but zero itself, no
/// space, within 64 bits.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // 19 digits fit an u64.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Splits a line typed by a person: words, `"..."` with escapes, `'...'` with `\'`.
fn split_quoted(line: &[u8], out: &mut Vec<u8>, spans: &mut Vec<Place>) -> Result<(), ProtocolError> {
    let space = |byte: u8| byte.is_ascii_whitespace() || byte == 0x0b || byte == 0;
    let mut at = 0;
    loop {
        while at < line.len() && space(line[at]) {
            at += 1;
        }
        if at == line.len() {
            return Ok(());
        }
        let from = out.len();
        let mut quote = 0u8;
        loop {
            let byte = line.get(at).copied();
            match (quote, byte) {
                (0, None) => break,
                (0, Some(byte)) if space(byte) => break,
                (0, Some(byte @ (b'"' | b'\''))) => quote = byte,
                (0, Some(byte)) => out.push(byte),
                (_, None) => return Err(ProtocolError::Quotes),
                (b'"', Some(b'\\')) if hex(line, at + 1).is_some() => {
                    out.extend(hex(line, at + 1));
                    at += 3;
                }
                (b'"', Some(b'\\')) if at + 1 < line.len() => {
                    at += 1;
                    out.push(match line[at] {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 0x08,
                        b'a' => 0x07,
                        other => other,
                    });
                }
                (b'\'', Some(b'\\')) if line.get(at + 1) == Some(&b'\'') => {
                    at += 1;
                    out.push(b'\'');
                }
                (_, Some(byte)) if byte == quote => {
                    // A closing quote ends its word.
                    match line.get(at + 1) {
                        Some(next) if !space(*next) => return Err(ProtocolError::Quotes),
                        _ => {}
                    }
                    at += 1;
                    break;
                }
                (_, Some(byte)) => out.push(byte),
            }
            at += 1;
        }
        spans.push(Place { at: from as u32, length: (out.len() - from) as u32 });
    }
}

/// The byte written `xHH` at this place.
fn hex(line: &[u8], at: usize) -> Option<u8> {
    let digit = |byte: &u8| (*byte as char).to_digit(16).map(|digit| digit as u8);
    match line.get(at..at + 3)? {
        [b'x', high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    }
}
