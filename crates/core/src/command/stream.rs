//! Streams: entries by identifier, in the order in which they were added.

use crate::Blob;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The identifier of an entry: its time in milliseconds since 1970, and a number that tells entries of one
/// millisecond apart.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub millis: u64,
    /// Its number within the millisecond.
    pub sequence: u64,
}

impl StreamId {
    /// Before every entry: no entry has it.
    pub const MIN: StreamId = StreamId { millis: 0, sequence: 0 };
    /// The last there can be.
    pub const MAX: StreamId = StreamId { millis: u64::MAX, sequence: u64::MAX };

    /// The one behind it, if there is one.
    #[must_use]
    pub fn next(self) -> Option<StreamId> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => self.millis.checked_add(1).map(|millis| StreamId { millis, sequence: 0 }),
        }
    }

    /// The one before it, if there is one.
    #[must_use]
    pub fn previous(self) -> Option<StreamId> {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => self.millis.checked_sub(1).map(|millis| StreamId { millis, sequence: u64::MAX }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.millis, self.sequence)
    }
}

/// How a new entry gets its identifier.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum NewId {
    /// From the command's stamp, but behind the last entry whatever the stamp is (`*`).
    Next,
    /// The next within this millisecond (`ms-*`).
    Within(u64),
    /// This one.
    This(StreamId),
}

/// Which entries go, the oldest first.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Trim {
    /// Until there are only so many (`MAXLEN`).
    Length(u64),
    /// All before this identifier (`MINID`).
    Before(StreamId),
}

/// A trim that removes no more than so many entries; 0 for as many as it takes.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Trimming {
    /// Which entries go.
    pub trim: Trim,
    /// How many at most.
    pub limit: u64,
}

/// A new entry.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Append {
    /// Its identifier.
    pub id: NewId,
    /// Its fields and values, in this order.
    pub fields: Vec<(Blob, Blob)>,
    /// Only to a stream that is there (`NOMKSTREAM`).
    pub only_if_exists: bool,
    /// What goes then.
    pub trimming: Option<Trimming>,
}

/// A range of a stream, both ends included.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct StreamSlice {
    /// The first identifier.
    pub start: StreamId,
    /// The last.
    pub end: StreamId,
    /// From the last to the first.
    pub reverse: bool,
    /// So many at most.
    pub count: Option<u64>,
}

/// Where reading begins.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum ReadFrom {
    /// Behind this entry.
    After(StreamId),
    /// Behind the last entry there is (`$`).
    Last,
}

/// What is read of several streams.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct StreamRead {
    /// The streams, and where reading begins in each.
    pub streams: Vec<(Blob, ReadFrom)>,
    /// So many entries of each at most; 0 for all.
    pub count: u64,
    /// Where nothing is found, answer with the last identifier of each stream, so that whoever waits knows what
    /// `Last` meant.
    pub resolve: bool,
}
