//! Typed notes of a process: what metrics, oracles and tests read, and what changes nothing.

use crate::{CommandId, NodeId, PartitionId, Span};
use std::fmt::Debug;
use std::sync::Arc;

/// A note of one protocol. Marks are held like sends: a host shows them only when every record made
/// before them is durable, so that an oracle never sees a decision that a crash can still undo.
pub trait Mark: Clone + Debug + Send + 'static {
    /// What this note says in the words that all protocols share, if it says any.
    fn fact(&self) -> Option<Fact>;
}

impl Fact {
    /// That so much there is of something now.
    pub fn stands(what: &'static str, value: u64) -> Fact {
        Fact::Stands { what, partition: PartitionId(0), value }
    }
}

/// What every protocol can say about itself.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Fact {
    /// Position `position` of the group's log is decided, with a value of this digest. The agreement
    /// oracle holds all processes of a group to one digest a position.
    Decided {
        /// The place in the log.
        position: u64,
        /// A hash of the value.
        digest: u64,
    },
    /// The state machine stands behind `position`, and its state has this digest.
    Applied {
        /// The place in the log.
        position: u64,
        /// A hash of the state, or of the chain of values that led to it; none behind a partial order, where
        /// replicas at one place stand at different states, and only the history can tell whether they agree.
        digest: Option<u64>,
    },
    /// This process leads, in the reign of this number.
    Leads {
        /// The ballot's round, view or term.
        reign: u64,
    },
    /// This process no longer leads.
    Follows,
    /// A command's answer is known where it was asked for: how, and where the time went.
    Committed {
        /// The command.
        id: CommandId,
        /// Which way it took.
        path: Path,
        /// From the host's request to here.
        total: Span,
        /// The parts of `total`, in the order of [`Phase::ALL`]; zeros where not measured.
        phases: [Span; Phase::ALL.len()],
    },
    /// The vote of this node completed a quorum: the others had been there before.
    LastVoter(NodeId),
    /// A count of something that metrics show under this name, e.g. `snapshot_sent`.
    Counted(&'static str),
    /// So many more of something, under such a name.
    Added(&'static str, u64),
    /// So much there is of something now, or such is its number: metrics show the last that was said.
    Stands {
        /// The name.
        what: &'static str,
        /// The partition it is said of, by a process that speaks for several.
        partition: PartitionId,
        /// The number.
        value: u64,
    },
    /// The nodes of the replicas of a group, by what this process knows to be decided: where majorities decide, one of them is
    /// needed and enough.
    Members {
        /// The group's partition.
        partition: PartitionId,
        /// Of two that are told the later is not the lower.
        version: u32,
        /// They.
        nodes: Arc<[NodeId]>,
    },
}

/// The way a command took through its protocol.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Path {
    /// One round trip to a quorum without a leader.
    Fast,
    /// The long way, after conflict, loss or lateness.
    Slow,
    /// Through the leader and its log.
    Leader,
    /// A read answered under a lease, without the log.
    Lease,
}

impl Path {
    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Path::Fast => "fast",
            Path::Slow => "slow",
            Path::Leader => "leader",
            Path::Lease => "lease",
        }
    }
}

/// Where the time of a command goes; the phases sum to the whole.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Phase {
    /// From the request to its proposal, the way to the leader included.
    Queue,
    /// From the proposal to the proposer's own durable vote.
    Journal,
    /// From there to the quorum.
    Quorum,
    /// From the quorum to the command's turn.
    Order,
    /// Its execution.
    Execute,
    /// From there to the one who asked.
    Reply,
}

impl Phase {
    /// All phases, in the order of a command's life.
    pub const ALL: [Phase; 6] =
        [Phase::Queue, Phase::Journal, Phase::Quorum, Phase::Order, Phase::Execute, Phase::Reply];

    /// The label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Queue => "queue",
            Phase::Journal => "journal",
            Phase::Quorum => "quorum",
            Phase::Order => "order",
            Phase::Execute => "execute",
            Phase::Reply => "reply",
        }
    }
}
