//! What the client is told.

use super::{Content, Score, Shared};
use crate::Blob;
use crate::migration::Told;
use crate::wire;
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// The answer to one operation. It says what was found, not how it is written: a gateway lays it out for
/// RESP2 or RESP3 (each variant says how).
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Response {
    /// Done: the simple string `OK`.
    Ok,
    /// Nothing there: RESP2 the nil bulk string, RESP3 null.
    Nil,
    /// Nothing there, where an array was asked for: RESP2 the nil array, RESP3 null.
    NilArray,
    /// A number. Yes and no are 1 and 0, as in Redis.
    Integer(i64),
    /// Bytes.
    Bulk(Blob),
    /// A double: RESP2 its text as a bulk string, RESP3 a double.
    Double(Score),
    /// What `TYPE` finds: a simple string.
    Kind(Kind),
    /// Several answers, in order.
    Array(Vec<Response>),
    /// Answers two by two: RESP2 one flat array, RESP3 an array of arrays of two.
    Pairs(Vec<(Response, Response)>),
    /// Fields and values: RESP2 one flat array, RESP3 a map.
    Map(Vec<(Response, Response)>),
    /// Distinct answers in no promised order: RESP2 an array, RESP3 a set.
    Set(Vec<Response>),
    /// One page of a scan: an array of the cursor as a bulk string, and a flat array of bulk strings.
    Scan {
        /// Where the next page begins; 0 when this was the last one. Below 2^53, since some clients keep
        /// it in a double.
        cursor: u64,
        /// The page: keys, members, or fields and scores each followed by their value.
        items: Vec<Blob>,
    },
    /// Refused; the state is as it was.
    Error(Refusal),
    /// Of a move of keys between partitions; no client is told so.
    Move(Box<Told>),
    /// A partition's share of what all keys come to; no client is told so.
    Share(Box<Shared>),
    /// What a key holds; a gateway writes it as its clients want it.
    Content(Box<Content>),
}

/// The longest answer of several elements, in bytes: it must fit a frame between nodes, which has 128 MiB at least. One element
/// always fits, since a frame has room for the longest argument.
pub const REPLY_MAX: usize = 120 << 20;

impl Response {
    /// Bytes, copied once.
    pub fn bulk(bytes: &[u8]) -> Response {
        Response::Bulk(Blob::new(bytes))
    }

    /// 1 for yes, 0 for no.
    pub fn yes(yes: bool) -> Response {
        Response::Integer(i64::from(yes))
    }

    /// A count of things.
    pub fn count(count: usize) -> Response {
        // No collection in memory has more than i64::MAX entries.
        Response::Integer(count as i64)
    }

    /// Bytes of an answer of several parts, about; those of any other are bounded by what one argument may have, and not
    /// counted here.
    pub fn bytes(&self) -> usize {
        match self {
            Response::Array(parts) | Response::Set(parts) if parts.len() < 2 => {
                parts.first().map_or(0, Response::bytes)
            }
            Response::Pairs(parts) | Response::Map(parts) if parts.len() < 2 => {
                parts.first().map_or(0, |(name, value)| name.bytes() + value.bytes())
            }
            Response::Content(content) if matches!(**content, Content::String(_)) => 0,
            Response::Array(_)
            | Response::Pairs(_)
            | Response::Map(_)
            | Response::Set(_)
            | Response::Scan { .. }
            | Response::Content(_) => wire::encoded_size(self),
            _ => 0,
        }
    }

    /// Whether this is a refusal.
    pub fn is_error(&self) -> bool {
        matches!(self, Response::Error(_))
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Response {
        Response::Error(refusal)
    }
}

/// The types of values.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// No value at all.
    None,
    /// Bytes or a counter.
    String,
    /// Elements by position.
    List,
    /// Distinct members.
    Set,
    /// Distinct members in the order of their scores.
    SortedSet,
    /// Fields with values.
    Hash,
    /// Entries by identifier.
    Stream,
}

impl Kind {
    /// The name that `TYPE` gives and `SCAN ... TYPE` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why the state machine refused an operation. The texts are Redis' own, with their code word, because
/// programs compare them.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// The key holds another type than the operation is for.
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The value is not a 64-bit decimal integer.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// The sum leaves the 64-bit range.
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    /// The value is not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// The sum of two doubles is not finite.
    #[error("ERR increment would produce NaN or Infinity")]
    NanOrInfinity,
    /// The sum of two scores is not a number.
    #[error("ERR resulting score is not a number (NaN)")]
    ScoreNan,
    /// The field's value is not a 64-bit decimal integer.
    #[error("ERR hash value is not an integer")]
    HashNotInteger,
    /// The field's value is not a number.
    #[error("ERR hash value is not a float")]
    HashNotFloat,
    /// There is nothing to rename, copy from or set an element of.
    #[error("ERR no such key")]
    NoSuchKey,
    /// The list has no such element.
    #[error("ERR index out of range")]
    IndexOutOfRange,
    /// The string would pass 512 MiB.
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// A bound of a score range is no number.
    #[error("ERR min or max is not a float")]
    MinOrMaxNotFloat,
    /// A bound of a lexicographic range is neither `-`, `+`, nor begins with `[` or `(`.
    #[error("ERR min or max not valid string range item")]
    MinOrMaxNotString,
    /// A key was to be copied onto itself.
    #[error("ERR source and destination objects are the same")]
    SameObject,
    /// A transaction holds one that watches keys, or holds others.
    #[error("ERR MULTI calls can not be nested")]
    NestedTransaction,
    /// A new entry's identifier is not behind the last one.
    #[error("ERR The ID specified in XADD is equal or smaller than the target stream top item")]
    StreamIdNotAbove,
    /// The last identifier there can be was given.
    #[error("ERR The stream has exhausted the last possible ID, unable to add more items")]
    StreamFull,
    /// A key that was to be given a value has one.
    #[error("BUSYKEY Target key name already exists.")]
    BusyKey,
    /// A value that a key was to be given is none: it is empty, or has an element twice.
    #[error("ERR Bad data format")]
    BadContent,
    /// The stream at this place among those that were asked has no such group, or is none. A gateway says which.
    #[error("NOGROUP No such key or consumer group")]
    NoGroup(u32),
    /// A group that was to be made is there.
    #[error("BUSYGROUP Consumer Group name already exists")]
    GroupExists,
    /// There is no stream whose groups could be changed.
    #[error(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
         option to create an empty stream automatically."
    )]
    NoStream,
    /// The last identifier was to be before that of an entry.
    #[error("ERR The ID specified in XSETID is smaller than the target stream top item")]
    StreamIdBelowTop,
    /// There were to have been fewer entries than there are.
    #[error("ERR The entries_added specified in XSETID is smaller than the target stream length")]
    StreamAddedBelowLength,
    /// What was to be the middle of a search is no member.
    #[error("ERR could not decode requested zset member")]
    NoCenter,
    /// The string is no HyperLogLog.
    #[error("WRONGTYPE Key is not a valid HyperLogLog string value.")]
    NotHyperLogLog,
    /// The string begins as a HyperLogLog, and what follows is none.
    #[error("INVALIDOBJ Corrupted HLL object detected")]
    BadHyperLogLog,
    /// What was to be sorted as numbers has an element that is none.
    #[error("ERR One or more scores can't be converted into double")]
    NotSortable,
    /// There is more to tell than nodes send one another.
    #[error("ERR the reply would be longer than 120 MiB; ask for fewer elements at once")]
    ReplyTooLong,
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    crate::shape::hold::<Response>("response");
}
