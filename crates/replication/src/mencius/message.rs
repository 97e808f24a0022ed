//! What the replicas of Mencius tell each other, write down and wait for.

use isochrone_core::{Ballot, Fact, Mark, Slot, Wire};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// A member by its place in the order of ownership: slot s belongs to the member at `s mod N`.
pub type Rank = u8;
/// The how-manieth slot of its owner: turn t of rank r is slot `t N + r`.
pub type Turn = u64;

/// What a slot holds. Cloning copies a pointer.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Value<V: Wire> {
    /// Nothing: skipped, or revoked and found empty.
    NoOp,
    /// Values of the holder, in order.
    Batch(Arc<[V]>),
}

/// The same value in some turns of one owner.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Run<V: Wire> {
    /// Whose turns.
    pub lane: Rank,
    /// Which.
    pub turns: Range<Turn>,
    /// What is in them.
    pub value: Value<V>,
}

/// What an acceptor holds in some turns.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Held<V: Wire> {
    /// Which turns.
    pub turns: Range<Turn>,
    /// The ballot it was accepted in; `None` where it is known to be decided.
    pub ballot: Option<Ballot>,
    /// What it is.
    pub value: Value<V>,
}

/// The messages. In the table of the module each stands with its sender and receiver.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// Phase 2 of the owner for turns of its own, at ballot zero: all that it suggests at once.
    Suggest {
        /// The first turn.
        turn: Turn,
        /// Its value, and those of the turns behind it.
        values: Arc<[Value<V>]>,
        /// The owner's turns from here to `turn` are skipped.
        skipped: Turn,
        /// The owner's turns in this range are decided, as it suggested or skipped them.
        decided: Range<Turn>,
    },
    /// Votes, durable at their sender.
    Accepted {
        /// Whose turns.
        lane: Rank,
        /// The ballot voted in.
        ballot: Ballot,
        /// The turns: at ballot zero, every suggestion in them that the sender has been told of.
        turns: Range<Turn>,
        /// Turns of the sender itself that it skips.
        skipped: Range<Turn>,
    },
    /// Turns of the sender are decided, as it suggested or skipped them.
    Commit {
        /// Which.
        decided: Range<Turn>,
    },
    /// Turns of the sender are skipped. To itself it tells that they are durably so.
    Skip {
        /// Which.
        skipped: Range<Turn>,
    },
    /// The sender lives.
    Beat {
        /// Turns of the sender that it skips.
        skipped: Range<Turn>,
        /// Turns of the sender that are decided, as it suggested or skipped them.
        decided: Range<Turn>,
        /// Behind the last slot that the sender knows a suggestion for.
        seen: Slot,
        /// Everything before it is decided, and known to the sender.
        executed: Slot,
        /// The sender has promised not to take suggestions of the receiver below this turn.
        barred: Turn,
    },
    /// Phase 1 of a revoker for some turns of one owner.
    Prepare {
        /// Whose.
        lane: Rank,
        /// The revoker's ballot.
        ballot: Ballot,
        /// The turns.
        turns: Range<Turn>,
    },
    /// A promise, with what was accepted before it.
    Promised {
        /// Whose turns.
        lane: Rank,
        /// The revoker's ballot.
        ballot: Ballot,
        /// What the voter holds in them.
        held: Vec<Held<V>>,
    },
    /// Phase 2 of a revoker.
    Accept {
        /// Whose turns.
        lane: Rank,
        /// The revoker's ballot.
        ballot: Ballot,
        /// The turns.
        turns: Range<Turn>,
        /// What is proposed in them, without gaps.
        runs: Arc<[Run<V>]>,
    },
    /// The receiver's ballot is old, or it lacks what is decided in these turns.
    Rejected {
        /// Whose turns.
        lane: Rank,
        /// The highest ballot the sender has promised there.
        promised: Ballot,
        /// The promise holds below this turn.
        barred: Turn,
        /// The sender knows what is decided in all turns below this one.
        decided: Turn,
    },
    /// Tell me what is decided from this slot on.
    Fetch {
        /// The first slot lacked.
        from: Slot,
    },
    /// Decided values.
    Learned {
        /// Which.
        runs: Arc<[Run<V>]>,
        /// Everything before it is decided, and known to the sender.
        executed: Slot,
    },
    /// The values asked for are gone: take in a snapshot.
    Trimmed {
        /// Everything before it is decided, and known to the sender.
        executed: Slot,
    },
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// Votes for what the owner suggested. The own turns before them are given up with them.
    Voted {
        /// Whose turns.
        lane: Rank,
        /// The first.
        turn: Turn,
        /// Its value, and those of the turns behind it.
        values: Arc<[Value<V>]>,
    },
    /// The own turns before it are suggested or given up.
    Advanced {
        /// The next own turn.
        next: Turn,
    },
    /// The own turns before it may have been used in a former life, or were given up.
    Restarted {
        /// The next own turn.
        next: Turn,
    },
    /// No ballot below this one in these turns.
    Promised {
        /// Whose turns.
        lane: Rank,
        /// The ballot.
        ballot: Ballot,
        /// All below it.
        barred: Turn,
    },
    /// Votes for what a revoker proposed.
    Adopted {
        /// Whose turns.
        lane: Rank,
        /// The revoker's ballot.
        ballot: Ballot,
        /// The values.
        runs: Arc<[Run<V>]>,
    },
    /// Decided values that were learned otherwise than by a vote.
    Learned {
        /// Which.
        runs: Arc<[Run<V>]>,
    },
    /// Everything before it is decided: as voted here, or nothing.
    Decided {
        /// The first slot that may be open.
        slot: Slot,
    },
}

/// What is waited for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// To speak, to ask again for what is late, to look who is silent.
    Beat,
    /// Skips have found no message to ride on.
    Skip,
    /// Something missing has not come by itself.
    Repair,
}

/// What Mencius notes for metrics.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        match self {
            Note::Counted(name) => Some(Fact::Counted(name)),
        }
    }
}
