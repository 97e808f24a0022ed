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

/// What happens to a stream's consumer groups, and to what a stream remembers of itself. Times are milliseconds since 1970.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Field names are Redis' own argument names.
pub enum GroupChange {
    /// Makes a group, with `make` the stream too. `Ok`.
    Create { group: Blob, from: ReadFrom, read: Option<u64>, make: bool },
    /// Says behind which entry a group goes on. `Ok`.
    SetId { group: Blob, from: ReadFrom, read: Option<u64> },
    /// Removes a group. 1 or 0.
    Destroy { group: Blob },
    /// Makes a consumer. 1, or 0 where it is there.
    CreateConsumer { group: Blob, consumer: Blob },
    /// Removes a consumer with what is pending for it. How much that was.
    DeleteConsumer { group: Blob, consumer: Blob },
    /// Entries are no longer pending. How many were.
    Acknowledge { group: Blob, ids: Vec<StreamId> },
    /// Gives pending entries to a consumer. The entries, or their identifiers.
    Claim { group: Blob, consumer: Blob, ids: Vec<StreamId>, claim: Claim },
    /// Gives a consumer so many pending entries from this one on. Where to go on, the entries or their identifiers, and the
    /// identifiers of those that were deleted from the stream.
    ClaimFrom { group: Blob, consumer: Blob, start: StreamId, count: u64, idle: u64, just_id: bool },
    /// Says what the last identifier was, how many entries there ever were, and the highest that was deleted. `Ok`.
    Remember { last: StreamId, added: Option<u64>, deleted: Option<StreamId> },
}

/// How pending entries are given to a consumer.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Claim {
    /// Only those that were delivered so many milliseconds ago.
    pub idle: u64,
    /// When they are said to have been delivered; by the command's stamp where this is not given, or lies behind it.
    pub delivered: Option<u64>,
    /// How often they are said to have been delivered; else once more.
    pub count: Option<u64>,
    /// Also entries that are not pending.
    pub force: bool,
    /// The answer is of identifiers, and the entries do not count as delivered once more.
    pub just_id: bool,
    /// The group has delivered at least what lies before and at this identifier.
    pub last: Option<StreamId>,
}

/// What a consumer of a group reads of several streams.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct GroupRead {
    /// The streams: behind which of its pending entries the consumer reads them again, or, where none is given, what the
    /// group has not delivered.
    pub streams: Vec<(Blob, Option<StreamId>)>,
    /// The group, of each stream.
    pub group: Blob,
    /// Who reads.
    pub consumer: Blob,
    /// So many entries of each stream at most; 0 for all.
    pub count: u64,
    /// What is delivered is not pending (`NOACK`).
    pub forget: bool,
    /// Changes nothing: 1 where there is something to read, or no group any more, else 0.
    pub peek: bool,
}

/// What is asked about a stream.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // Field names are Redis' own argument names.
pub enum StreamLook {
    /// How much is pending in a group, from where to where, and for whom.
    Pending { group: Blob },
    /// So many pending entries of a range, delivered so many milliseconds ago, perhaps of one consumer.
    PendingRange {
        group: Blob,
        start: StreamId,
        end: StreamId,
        count: u64,
        idle: u64,
        consumer: Option<Blob>,
    },
    /// The stream itself.
    Stream,
    /// The stream with so many entries, and so many that are pending of each group and consumer; 0 for all.
    Full { count: u64 },
    /// Its groups.
    Groups,
    /// The consumers of a group.
    Consumers { group: Blob },
}
