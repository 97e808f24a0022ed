//! What replicas and clients of Fast Paxos tell each other, write down and wait for.

use isochrone_core::{Ballot, CommandId, Fact, Mark, ReplicaId, Slot, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What an index decides: nothing, a command, or several that collided.
pub type Values<V> = Arc<[V]>;

/// Stands for a command in a vote. Two copies of a command that a client sent at different times may differ
/// in what else they say; then they are different values, and have different digests.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Name {
    /// The command.
    pub id: CommandId,
    /// A hash of all that the copy says.
    pub digest: u64,
}

/// The messages of Fast Paxos. The table is in the module.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// To a client: fast votes for its commands, durable at the sender.
    Cast {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// The reign voted in.
        reign: Ballot,
        /// How many members there are.
        members: u8,
        /// Sequence number, index, digest of the copy voted for.
        votes: Vec<(u64, Slot, u64)>,
    },
    /// To a client: these cannot lose their place any more, by the long way.
    Placed {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// Sequence numbers.
        sequences: Vec<u64>,
    },
    /// From a client that has heard of a later epoch: who are the members?
    Hello,
    /// Fast votes for consecutive indices, durable at the sender.
    Votes {
        /// The reign voted in.
        reign: Ballot,
        /// The first index.
        first: Slot,
        /// What was voted for, from there on.
        names: Arc<[Name]>,
    },
    /// Tell your fast votes in a range, and cast none there from now on.
    Ask {
        /// The coordinator's reign.
        reign: Ballot,
        /// The first index.
        from: Slot,
        /// Behind the last one.
        upto: Slot,
    },
    /// All fast votes of a range: where none is listed, there will be none.
    Report {
        /// The reign voted in.
        reign: Ballot,
        /// The first index that is not known to be decided.
        from: Slot,
        /// Behind the last one.
        upto: Slot,
        /// Index and command.
        votes: Vec<(Slot, V)>,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// Give these a place.
    Submit {
        /// What waits at the sender for its place.
        values: Vec<V>,
    },
    /// Phase 2 of the classic ballot of a reign.
    Accept {
        /// The coordinator's reign.
        reign: Ballot,
        /// Indices and their values.
        entries: Arc<[(Slot, Values<V>)]>,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// Classic votes, durable at the sender.
    Accepted {
        /// The reign voted in.
        reign: Ballot,
        /// The indices.
        slots: Vec<Slot>,
    },
    /// Indices that are decided.
    Commit {
        /// Indices and their values.
        entries: Vec<(Slot, Outcome<V>)>,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// The coordinator lives.
    Heartbeat {
        /// Its reign.
        reign: Ballot,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// The answer to a heartbeat.
    Heard {
        /// The reign of the heartbeat.
        reign: Ballot,
        /// Whether the sender has what the reign began with.
        opened: bool,
        /// The next index that the sender would vote at.
        next: Slot,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// Would you promise this reign? Changes nothing.
    Poll {
        /// The reign that the sender would begin.
        reign: Ballot,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The answer to a poll.
    Polled {
        /// The reign polled about.
        reign: Ballot,
        /// Yes: no coordinator was heard of lately, and the sender of the poll is not behind.
        granted: bool,
        /// The highest reign the voter has heard of.
        promised: Ballot,
        /// What the voter knows to be decided.
        decided: Slot,
    },
    /// Phase 1 for all indices from one on.
    Prepare {
        /// The candidate's reign.
        reign: Ballot,
        /// Everything before it is decided.
        from: Slot,
    },
    /// A promise, with what was voted for before it.
    Promised {
        /// The candidate's reign.
        reign: Ballot,
        /// What the voter holds.
        report: Box<Promised<V>>,
    },
    /// A reign begins.
    Open {
        /// The reign.
        reign: Ballot,
        /// Fast votes are cast from here on.
        floor: Slot,
        /// No fast votes are cast in this reign: the order ends in it.
        closed: bool,
        /// Indices below `floor` that may be undecided, and their values: phase 2 of the classic ballot.
        entries: Arc<[(Slot, Values<V>)]>,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// The receiver's reign is old, or what it wants to begin with is decided already.
    Rejected {
        /// The highest reign the sender has promised.
        promised: Ballot,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// Tell me what is decided from this index on.
    Fetch {
        /// The first index lacked.
        from: Slot,
    },
    /// Decided values.
    Learned {
        /// The first index.
        from: Slot,
        /// Its value and those behind it.
        values: Arc<[Values<V>]>,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The values asked for are gone: take in a peer's state.
    Trimmed {
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The receiver is to coordinate, at once.
    Handover,
    /// To a candidate that asks again: the promise, with all that was voted for, is on its way.
    Promising {
        /// The candidate's reign.
        reign: Ballot,
    },
}

/// What an index has decided.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Outcome<V: Wire> {
    /// What the receiver has voted for; this is its digest.
    Yours(u64),
    /// This.
    Values(Values<V>),
}

/// One vote, as a promise reports it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Vote<V: Wire> {
    /// The reign voted in.
    pub reign: Ballot,
    /// Whether in its classic ballot, which is above its fast one.
    pub classic: bool,
    /// What was voted for.
    pub values: Values<V>,
}

/// What a voter tells a candidate with its promise.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Promised<V: Wire> {
    /// Behind everything it has voted for.
    pub next: Slot,
    /// Its last vote at each index from the candidate's first on.
    pub votes: Vec<(Slot, Vote<V>)>,
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// No reign below this one from now on.
    Promised {
        /// The reign.
        reign: Ballot,
    },
    /// Fast votes for consecutive indices.
    Voted {
        /// The reign.
        reign: Ballot,
        /// The first index.
        first: Slot,
        /// The commands, one for each index.
        values: Vec<V>,
    },
    /// No fast vote below this index that is not cast already.
    Skipped {
        /// The first index where one may be cast.
        next: Slot,
    },
    /// Classic votes.
    Accepted {
        /// The reign.
        reign: Ballot,
        /// Indices and values.
        entries: Vec<(Slot, Values<V>)>,
    },
    /// A reign has begun.
    Opened {
        /// The reign.
        reign: Ballot,
        /// Fast votes are cast from here on.
        floor: Slot,
        /// No fast votes are cast in it.
        closed: bool,
        /// Classic votes.
        entries: Vec<(Slot, Values<V>)>,
    },
    /// Indices that are decided; where no value is given, it is that of the own vote.
    Decided {
        /// Indices and values.
        entries: Vec<(Slot, Option<Values<V>>)>,
    },
}

/// What the order waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// A replica has heard no coordinator for as long as it is patient: it polls.
    Watch,
    /// Who has not promised is asked again. A poll or a campaign that takes too long is given up and tried again later.
    Campaign,
    /// The coordinator speaks, asks for votes that are late, and looks who lives.
    Heartbeat,
    /// Something decided has not come by itself: it is asked for.
    Repair,
    /// Commands that wait here for long are submitted to the coordinator.
    Submit,
    /// A change of the coordinator has taken too long.
    Change,
}

/// The notes of the order.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// This replica coordinates from now on.
    Leads(Ballot),
    /// It no longer does.
    Follows,
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(match self {
            Note::Leads(ballot) => Fact::Leads { reign: ballot.reign() },
            Note::Follows => Fact::Follows,
            Note::Counted(name) => Fact::Counted(name),
        })
    }
}

/// A seat that no member has.
pub(super) const NO_SEAT: ReplicaId = ReplicaId(127);
