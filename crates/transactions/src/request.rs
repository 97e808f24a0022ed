//! What a host asks of the client role of a transaction protocol, and what it is told (`specs/carousel.md` 1.3, 1.4).
//!
//! A transaction has one round of reads, then one round of writes; both key sets are known at its start. Values may
//! depend on all that was read. Where a key depends on a value (a secondary index), a first transaction finds the key,
//! and a second reads it again together with what it was found by.

use crate::directory::{Known, Reach};
use crate::listing::Query;
use isochrone_core::{Blob, CommandId, PartitionId};
use isochrone_store::versions::Version;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// The name of a transaction: its client, and the client's count.
pub type TxnId = CommandId;

/// What a host may ask. Each is a ticket of its own, answered once.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Request {
    /// Begins a transaction and reads. Answered by [`Outcome::Begun`]; or, where nothing is to be written, by the
    /// whole transaction's end: [`Outcome::Snapshot`] or [`Outcome::Aborted`].
    Begin {
        /// Each once.
        reads: Vec<Blob>,
        /// What may be written, each once; nothing for a transaction that only reads.
        writes: Vec<Blob>,
    },
    /// Writes and commits. Answered by [`Outcome::Committed`], [`Outcome::Aborted`] or [`Outcome::Unknown`].
    Commit {
        /// The transaction.
        txn: TxnId,
        /// Some of the keys declared, each once.
        updates: Vec<Update>,
    },
    /// Gives up. Answered by [`Outcome::Aborted`], at once. Of a transaction that is to commit already it is refused, and
    /// one that waits for others is ended without effect where that is still possible: its commit's own answer says so.
    Abort {
        /// The transaction.
        txn: TxnId,
    },
    /// Moves the keys of a stretch that one partition holds to another, while they are used. Answered by
    /// [`Outcome::Moved`] or [`Outcome::Refused`]; where it was given up half way, both hold some of the keys, all are
    /// served, and asking again goes on at once, some client by itself after a while.
    Move {
        /// Which places; all where nothing is said.
        reach: Option<Reach>,
        /// From which partition.
        from: PartitionId,
        /// To which.
        to: PartitionId,
    },
    /// Says which partition holds which keys. Answered by [`Outcome::Served`].
    Survey,
    /// Lists keys of a partition, page by page. Answered by [`Outcome::Listed`], or not at all as
    /// long as too few replicas have come so far.
    List {
        /// Which partition.
        partition: PartitionId,
        /// Which page.
        query: Query,
    },
}

/// A key and what it is to hold.
#[derive(Clone, Eq, PartialEq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Update {
    /// The key.
    pub key: Blob,
    /// Its value; nothing deletes it.
    pub value: Option<Blob>,
}

/// A key and what it held.
#[derive(Clone, Eq, PartialEq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct Read {
    /// The key.
    pub key: Blob,
    /// Its value, if it had one.
    pub value: Option<Blob>,
    /// Which version of it; [`Version::NONE`] where it was never written.
    pub version: Version,
}

impl Read {
    /// Those of these keys that were read, in the order of the keys.
    pub(crate) fn in_order<'a>(keys: &[Blob], found: impl Iterator<Item = &'a Read>) -> Vec<Read> {
        let found: BTreeMap<&Blob, &Read> = found.map(|read| (&read.key, read)).collect();
        keys.iter().filter_map(|key| found.get(key).map(|read| (*read).clone())).collect()
    }
}

/// What a host is told.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Outcome {
    /// The transaction has begun; its reads, in the order they were asked for. They need not be of one moment: if they
    /// are not, the transaction aborts.
    Begun {
        /// Its name, for what follows.
        txn: TxnId,
        /// What was read.
        reads: Vec<Read>,
    },
    /// A transaction that only reads, complete: all reads are of one moment.
    Snapshot {
        /// What was read, in the order it was asked for.
        reads: Vec<Read>,
        /// The moment: everything up to this version, and nothing behind it.
        at: Version,
    },
    /// It took effect.
    Committed {
        /// The version of all it wrote.
        at: Version,
    },
    /// It took no effect, and never will.
    Aborted(Reason),
    /// It was not taken up; no effect.
    Refused(Refusal),
    /// Nobody could say in time; it may or may not take effect.
    Unknown,
    /// The keys are where they were to go.
    Moved(Moved),
    /// Which partition holds which keys: stretches in order, without gaps.
    Served(Vec<Known>),
    /// Keys that have a value, and such as may get one from transactions under way.
    Listed {
        /// Each once, in order.
        keys: Vec<Blob>,
        /// The same; whether they have a value must be read.
        open: Vec<Blob>,
        /// Where the next page begins; nothing behind the last.
        next: Option<u64>,
    },
}

impl From<MoveRefusal> for Outcome {
    fn from(refusal: MoveRefusal) -> Outcome {
        Outcome::Refused(Refusal::Directory(refusal))
    }
}

/// What was moved.
#[derive(Copy, Clone, Default, Eq, PartialEq, Hash, Debug)]
pub struct Moved {
    /// Keys.
    pub keys: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// Why a transaction took no effect.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Reason {
    /// Another that touches the same keys was under way.
    Conflict,
    /// What it had read was not the latest.
    StaleRead,
    /// Its client gave it up.
    Client,
    /// Its client was not heard of for too long.
    HeartbeatLost,
    /// A participant does not know it.
    Presumed,
    /// A partition could not be reached in time, or others have held the same keys until then.
    Unavailable,
    /// It asked for a moment that a partition cannot serve: too far ahead, or too long ago.
    OutOfTime,
}

impl Reason {
    /// The word in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Conflict => "conflict",
            Reason::StaleRead => "stale_read",
            Reason::Client => "client_abort",
            Reason::HeartbeatLost => "heartbeat_lost",
            Reason::Presumed => "presumed",
            Reason::Unavailable => "unavailable",
            Reason::OutOfTime => "out_of_time",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why something was not taken up.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum Refusal {
    /// No such transaction is open here.
    #[error("no transaction {0:?} is open on this connection; begin one")]
    NotOpen(TxnId),
    /// A write to a key that was not declared.
    #[error("key {0:?} was not declared for writing when the transaction began")]
    Undeclared(Blob),
    /// A key comes twice among the reads, the writes or the updates.
    #[error("key {0:?} comes twice; name each once")]
    Twice(Blob),
    /// Neither reads nor writes.
    #[error("a transaction of no keys; name some to read or to write")]
    Empty,
    /// More keys or bytes than a transaction may have.
    #[error("the transaction has {found} {what}, and the limit `txn_{what}` is {most}")]
    TooLarge {
        /// "keys" or "bytes".
        what: &'static str,
        /// How many.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// Too many are open.
    #[error("{0} transactions are open here; end some first")]
    Overloaded(usize),
    /// About the directory.
    #[error("{0}")]
    Directory(MoveRefusal),
}

/// Why keys were not moved.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum MoveRefusal {
    /// Nowhere to go.
    #[error("keys cannot be moved: the keyspace has one partition")]
    Undivided,
    /// There is no such partition, or both are the same.
    #[error("there is no such partition, or the two are the same")]
    NoSuchPartition,
    /// Places of the other kind.
    #[error("this keyspace is divided by {0}")]
    Places(&'static str),
    /// Somebody has begun to move some of it elsewhere.
    #[error("some of it is on its way to partition {}; ask for that move again to end it first", .0.0)]
    OnItsWay(PartitionId),
    /// A directory entry may have so many changes.
    #[error("a partition may be cut into {0} stretches at most; move larger ones")]
    TooManyStretches(usize),
    /// Others were in the way.
    #[error(
        "given up after {0} tries in a row: others were in the way; every key is served; ask again to go on"
    )]
    GivenUp(u32),
}
