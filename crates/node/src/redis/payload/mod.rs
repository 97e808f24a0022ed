//! The payloads of DUMP and RESTORE: one value in the format of Redis' snapshot files (RDB), so that values move
//! between a Redis and this.
//!
//! ```text
//! type: 1 byte | the value, as its type says | version: 2 bytes | CRC-64 of all before: 8 bytes
//! ```
//!
//! **What is read**: every form that Redis 7.2 writes, and those of 2.6 and later that it still reads. A payload of a
//! later version is taken where its value is in one of these forms, since a type's number never changes its meaning.
//! Not read are values of modules, and hashes as Redis wrote them before 2.6 (zipmaps).
//!
//! **What is written** is the plainest form of each type, which Redis reads since 5.0; but for a stream that has groups,
//! or from which something was removed, that of 7.0, which alone says all that is known of it.
//!
//! A payload is anybody's bytes. What it claims is believed as far as its bytes reach, and what it holds counts against
//! the limits of a command as if it had come as one of its own ([`Allowance`]). What becomes of it is decided here, once:
//! replicas are given the value.

mod crc64;
mod lzf;
mod packed;
mod read;
mod streams;
mod write;

use isochrone_core::command::Content;
use read::Source;
use std::fmt;

/// What a value may take.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Allowance {
    /// Bytes of all its strings together; as many may come out of compressed ones.
    pub(crate) bytes: usize,
    /// Strings, scores and identifiers.
    pub(crate) elements: usize,
}

/// Why a payload is not taken.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Fault {
    /// It is not what was written.
    Checksum,
    /// It is no value, or none of a form that is read.
    Format,
    /// It holds more bytes than a command may.
    Bytes,
    /// It holds more elements than a command may.
    Elements,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Checksum => "ERR DUMP payload version or checksum are wrong",
            Fault::Format => "ERR Bad data format",
            Fault::Bytes => "ERR the value takes more bytes than a command may; write it in parts, or raise `bulk` in [limits]",
            Fault::Elements => {
                "ERR the value has more elements than a command may; write it in parts, or raise `elements` in [limits]"
            }
        })
    }
}

type Read<T> = Result<T, Fault>;

/// The numbers of types. Those that are left out are of modules, of zipmaps, and later than 7.2.
mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_TEXT: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED: u8 = 5;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const SORTED_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_ZIPLISTS: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_LISTPACK: u8 = 17;
    pub(super) const LIST_LISTPACKS: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
}

/// The version of RDB files that is written: that of Redis 5.0 to 6.2, which later ones read.
const VERSION: u16 = 9;

/// Version and checksum.
const FOOTER: usize = 10;

/// The payload of this value.
pub(crate) fn dump(content: &Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    write::value(content, &mut bytes);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// The value in this payload. Nobody has looked yet whether its elements are distinct and its entries in order.
///
/// # Errors
/// Why it is not taken.
pub(crate) fn restore(payload: &[u8], allowance: Allowance) -> Read<Content> {
    let value = payload.len().checked_sub(FOOTER).ok_or(Fault::Checksum)?;
    let (before, checksum) = payload.split_at(payload.len() - size_of::<u64>());
    if crc64::of(before).to_le_bytes() != checksum {
        return Err(Fault::Checksum);
    }
    let mut source = Source::new(&payload[..value], allowance);
    let content = source.value()?;
    source.end()?;
    Ok(content)
}

/// The value that `DUMP` has told so, whatever its size; nothing where this is no such payload. For who takes it apart, as no
/// command takes it whole.
#[must_use]
pub fn undumped(payload: &[u8]) -> Option<Content> {
    restore(payload, Allowance { bytes: usize::MAX, elements: usize::MAX }).ok()
}

/// Adds the checksum.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    let checksum = crc64::of(bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

/// Reads arbitrary bytes as a payload, as they are and with the right checksum. Nothing may panic, and what is read is
/// written so that it is read as the same.
///
/// # Panics
/// Where that is not so.
pub fn fuzz_payload(bytes: &[u8]) {
    let allowance = Allowance { bytes: 1 << 20, elements: 1 << 14 };
    let _ = restore(bytes, allowance);
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    if let Ok(content) = restore(&sealed, allowance) {
        assert_eq!(restore(&dump(&content), allowance).as_ref(), Ok(&content));
    }
}
