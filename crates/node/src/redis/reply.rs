//! Replies to bytes, in either version of the protocol.

use isochrone_core::command::Score;
use std::fmt::{self, Write as _};

/// The version of the protocol that a connection speaks.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Version {
    /// RESP2: what every client speaks before HELLO.
    #[default]
    Two,
    /// RESP3.
    Three,
}

impl Version {
    /// The number in HELLO.
    pub fn number(self) -> i64 {
        match self {
            Version::Two => 2,
            Version::Three => 3,
        }
    }
}

/// Writes replies to the end of a buffer. Types that RESP2 lacks become what Redis makes of them.
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

impl<'a> Reply<'a> {
    /// A writer of this version.
    pub fn new(out: &'a mut Vec<u8>, version: Version) -> Reply<'a> {
        Reply { out, version }
    }

    /// The version written.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes in the buffer.
    pub fn length(&self) -> usize {
        self.out.len()
    }

    /// Goes on in this version.
    pub fn speak(&mut self, version: Version) {
        self.version = version;
    }

    /// `+OK`
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status, one line.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.line(text.as_bytes());
    }

    /// An error; its first word is the code by which clients tell errors apart.
    pub fn error(&mut self, text: impl fmt::Display) {
        self.out.push(b'-');
        let from = self.out.len();
        // Writing to a vector cannot fail.
        let _ = write!(Bytes(self.out), "{text}");
        clean(&mut self.out[from..]);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A count.
    pub fn count(&mut self, value: usize) {
        // Nothing counted in memory is above 2^63.
        self.integer(value as i64);
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A string from what is written to it.
    pub fn text(&mut self, text: impl fmt::Display) {
        self.bulk(text.to_string().as_bytes());
    }

    /// Human-readable text: `txt` in RESP3, a string in RESP2.
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            Version::Three => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// No value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// No list: an aborted EXEC, a pop with a count from nothing.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"*-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// A number with a fraction; a string in RESP2.
    pub fn double(&mut self, value: Score) {
        self.decimal(value);
    }

    /// The same, from what is written to it.
    pub fn decimal(&mut self, value: impl fmt::Display) {
        match self.version {
            Version::Two => self.text(value),
            Version::Three => {
                self.out.push(b',');
                // Writing to a vector cannot fail.
                let _ = write!(Bytes(self.out), "{value}");
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Opens a list of this many replies.
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length as i64);
    }

    /// Opens a map of this many pairs; a list of twice as many in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.array(pairs * 2),
            Version::Three => self.header(b'%', pairs as i64),
        }
    }

    /// Opens a set; a list in RESP2.
    pub fn set(&mut self, length: usize) {
        match self.version {
            Version::Two => self.array(length),
            Version::Three => self.header(b'~', length as i64),
        }
    }

    /// Opens a message that answers nothing, or a subscription; a list in RESP2.
    pub fn push(&mut self, length: usize) {
        match self.version {
            Version::Two => self.array(length),
            Version::Three => self.header(b'>', length as i64),
        }
    }

    /// Replies already encoded in this version.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn header(&mut self, kind: u8, value: i64) {
        let mut digits = [0u8; INTEGER_MAX];
        self.out.push(kind);
        self.out.extend_from_slice(format_integer(value, &mut digits));
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, text: &[u8]) {
        let from = self.out.len();
        self.out.extend_from_slice(text);
        clean(&mut self.out[from..]);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// The longest integer, in characters.
const INTEGER_MAX: usize = 20;

/// Writes an integer without allocating.
fn format_integer(value: i64, digits: &mut [u8; INTEGER_MAX]) -> &[u8] {
    let mut rest = value.unsigned_abs();
    let mut at = INTEGER_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    &digits[at..]
}

/// A buffer that text can be formatted into.
pub(crate) struct Bytes<'a>(pub(crate) &'a mut Vec<u8>);

impl fmt::Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// A line end within a line would end it: such bytes become spaces, as in Redis.
fn clean(text: &mut [u8]) {
    for byte in text {
        if *byte == b'\r' || *byte == b'\n' {
            *byte = b' ';
        }
    }
}
