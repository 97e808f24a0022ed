//! What a key holds, whole: how a value leaves a keyspace, and how it comes into one.

use super::{Score, StreamId};
use crate::{Blob, Stamp};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// A value of any type, in whatever form it is kept.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Content {
    /// Bytes.
    String(Blob),
    /// A string that is a counter.
    Integer(i64),
    /// Fields, each once, with their values.
    Hash(Vec<(Blob, Blob)>),
    /// Members, each once.
    Set(Vec<Blob>),
    /// Elements in order.
    List(Vec<Blob>),
    /// Members, each once, with their scores.
    Sorted(Vec<(Score, Blob)>),
    /// The highest identifier ever given, and entries in order.
    Stream(StreamId, Vec<Dated>),
    /// A stream of which more is to be said than its entries, and its parts in order: entries, then each group with its
    /// consumers and what is pending.
    Parts(StreamHead, Vec<StreamPart>),
}

/// What a stream remembers.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct StreamHead {
    /// The highest identifier ever given.
    pub last: StreamId,
    /// How many entries there ever were.
    pub added: u64,
    /// The highest identifier of an entry that was deleted.
    pub deleted: StreamId,
}

impl StreamHead {
    /// How many entries were added up to this identifier, where that can be told: the stream has so many, of which this is
    /// the first.
    pub fn added_up_to(self, id: StreamId, entries: u64, first: StreamId) -> Option<u64> {
        let StreamHead { last, added, deleted } = self;
        if added == 0 {
            return Some(0);
        }
        if entries == 0 && id <= last || id == last {
            return Some(added);
        }
        if id > last || deleted != StreamId::MIN && deleted >= first {
            return None;
        }
        match id.cmp(&first) {
            Ordering::Less => Some(added.wrapping_sub(entries)),
            Ordering::Equal => Some(added.wrapping_sub(entries).wrapping_add(1)),
            Ordering::Greater => None,
        }
    }
}

/// A part of a stream. Times are milliseconds since 1970.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum StreamPart {
    /// An entry.
    Entry(Dated),
    /// A group: its name, the last entry that it has delivered, and how many it has read, where that is known.
    Group(Blob, StreamId, Option<u64>),
    /// A consumer of the last group, and when it was seen.
    Consumer(Blob, u64),
    /// An entry that the last group has delivered and that is not acknowledged.
    Pending(StreamId, Pending),
}

/// How an entry was delivered that is not acknowledged.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Pending {
    /// To which of the consumers of the group, counted from 0.
    pub consumer: u64,
    /// When, in milliseconds since 1970.
    pub delivered: u64,
    /// How often.
    pub count: u64,
}

/// An entry of a stream.
pub type Dated = (StreamId, Vec<(Blob, Blob)>);

/// A value that a key is given whole.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Restore {
    /// The value.
    pub content: Content,
    /// When the key expires, if ever.
    pub deadline: Option<Stamp>,
    /// Whatever was there.
    pub replace: bool,
}
