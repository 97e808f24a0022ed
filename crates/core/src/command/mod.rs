//! The vocabulary of a keyspace: what a client may ask of it, typed once for all protocols and gateways.
//!
//! A [`Command`] is an [`Operation`] with the wall-clock stamp that its gateway gave it. Whatever would
//! make two replicas differ is decided by the gateway and carried: relative expiries are absolute, random
//! choices are seeds (`specs/curp.md` 7.3, determinism). An operation names its keys itself
//! ([`Operation::visit`], [`Operation::sets`]), so that a protocol can tell which commands commute without
//! knowing what they do.
//!
//! On the wire an operation is its variant's number and its fields: new variants go to the end of
//! [`Operation`], so that older members of a group still read what they know.

mod chord;
mod content;
mod operation;
mod response;
mod score;
mod sets;
mod share;
mod sort;
mod stream;

pub use chord::Chord;
pub use content::{Content, Dated, Pending, Restore, StreamHead, StreamPart};
pub use operation::{
    Aggregate, BitCombine, BitNumber, BitOverflow, BitRange, BitStep, Combine, Condition, DeadlineChange,
    End, Expiry, ExpiryCondition, Keys, LexBound, Limit, Operation, PRESENT, Pairs, ScoreBound,
    ScoreCondition, Scored, Selection, Side, Slice, TtlUnit, WeightedInputs, ZAddFlags,
};
pub use response::{Kind, REPLY_MAX, Refusal, Response};
pub use score::{NotANumber, Score, plain};
pub use sets::{Access, Conflict, KeySet, Sets, Touch, conflict};
pub use share::{Share, Shared};
pub use sort::{Got, Sort, SortBy};
pub use stream::{
    Append, Claim, GroupChange, GroupRead, NewId, ReadFrom, StreamId, StreamLook, StreamRead, StreamSlice,
    Trim, Trimming,
};

use crate::Stamp;
use crate::migration::Versions;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

/// One command as it is replicated.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Deserialize)]
#[serde(from = "Encoded")]
pub struct Command {
    /// The wall clock of the gateway when it took the command in. Keys that it touches and whose deadline
    /// lies at or before it are deleted by it; relative times in replies are counted from it.
    pub stamp: Stamp,
    /// What is to be done.
    pub operation: Operation,
    /// Whether it must keep its place behind what its client asked before it: a read that would otherwise
    /// be answered at once, out of the log, while an earlier write of the same connection is under way; or a write
    /// while such a read of the same connection is.
    pub in_order: bool,
    /// In which versions its client knows the places of its keys. Nothing where keys cannot move, and in what was written before
    /// commands said it: that is executed by whoever serves its keys, as it was.
    pub known: Option<Versions>,
}

impl Command {
    /// A command that keeps no place.
    pub fn new(stamp: Stamp, operation: Operation) -> Command {
        Command { stamp, operation, in_order: false, known: None }
    }
}

/// A command as it is written. The last number's lowest bit says whether it keeps its place, and the others what is known: so
/// a command that says nothing of that is written as those were that could not.
#[derive(Deserialize)]
struct Encoded {
    stamp: Stamp,
    operation: Operation,
    said: u64,
}

impl From<Encoded> for Command {
    fn from(Encoded { stamp, operation, said }: Encoded) -> Command {
        Command { stamp, operation, in_order: said & 1 == 1, known: Versions::of_number(said >> 1) }
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let said = u64::from(self.known.map_or(0, Versions::number)) << 1 | u64::from(self.in_order);
        let mut fields = serializer.serialize_struct("Command", 3)?;
        fields.serialize_field("stamp", &self.stamp)?;
        fields.serialize_field("operation", &self.operation)?;
        fields.serialize_field("said", &said)?;
        fields.end()
    }
}

impl crate::Footprint for Command {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        self.operation.visit(visit);
    }
}

#[cfg(test)]
mod tests;
