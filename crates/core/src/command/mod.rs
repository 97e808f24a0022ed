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
use serde::{Deserialize, Serialize};

/// One command as it is replicated.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
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
}

impl Command {
    /// A command that keeps no place.
    pub fn new(stamp: Stamp, operation: Operation) -> Command {
        Command { stamp, operation, in_order: false }
    }
}

impl crate::Footprint for Command {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        self.operation.visit(visit);
    }
}

#[cfg(test)]
mod tests;
