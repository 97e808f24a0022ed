//! What the replicas of a log tell each other, write down and wait for.

use super::Configuration;
use crate::request::Refusal;
use isochrone_core::{Ballot, Fact, Instant, Mark, NodeId, ReplicaId, Slot, Span, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a slot decides. Cloning copies a pointer.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Value<V: Wire> {
    /// Nothing: a hole that a new leader filled.
    NoOp,
    /// Values of the holder, in order.
    Batch(Arc<[V]>),
    /// The members from the next slot on.
    Change(Arc<Configuration>),
}

/// The messages of the log. In the table of `multipaxos` each stands with its sender and receiver.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// Would you promise this ballot? Changes nothing.
    Poll {
        /// The ballot that the sender would use.
        ballot: Ballot,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The answer to a poll.
    Polled {
        /// The ballot polled about.
        ballot: Ballot,
        /// Yes: no leader was heard of lately, and the sender of the poll is not behind.
        granted: bool,
        /// The highest ballot the voter has heard of.
        promised: Ballot,
        /// What the voter knows to be decided.
        decided: Slot,
    },
    /// Phase 1 for all slots from one on.
    Prepare {
        /// The candidate's ballot.
        ballot: Ballot,
        /// Everything before it is decided.
        from: Slot,
    },
    /// A promise, with what was accepted before it.
    Promised {
        /// The candidate's ballot.
        ballot: Ballot,
        /// What the voter holds.
        report: Box<Report<V>>,
    },
    /// Phase 2 for one slot.
    Accept {
        /// The leader's ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
        /// Its value.
        value: Value<V>,
        /// Everything before it is decided: the commit notification.
        decided: Slot,
    },
    /// Phase 2 for a run of slots: what a leader adopted, or all that a lagging follower lacks.
    Adopt {
        /// The leader's ballot.
        ballot: Ballot,
        /// The first slot.
        from: Slot,
        /// The values from there on, without gaps; in the prefix form up to the end of what was adopted.
        values: Arc<[Value<V>]>,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// A vote, durable at its sender.
    Accepted {
        /// The ballot voted in.
        ballot: Ballot,
        /// The first slot voted for.
        first: Slot,
        /// The last one.
        last: Slot,
    },
    /// The receiver's ballot is old, or what it wants to begin with is decided already.
    Rejected {
        /// The highest ballot the sender has heard of.
        promised: Ballot,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The leader lives.
    Heartbeat {
        /// Its ballot.
        ballot: Ballot,
        /// Everything before it is decided.
        decided: Slot,
        /// When it was sent, by the leader's steady clock; echoed.
        sent: Instant,
    },
    /// The answer to a heartbeat: a lease, if leases are on.
    Heard {
        /// The ballot of the heartbeat.
        ballot: Ballot,
        /// When the heartbeat was sent.
        sent: Instant,
        /// What the follower knows to be decided.
        decided: Slot,
        /// How long it is bound by its lease; not at all without leases.
        bound: Span,
    },
    /// Tell me the values from this slot on.
    Fetch {
        /// The first slot lacked.
        from: Slot,
    },
    /// Decided values.
    Learned {
        /// The first slot.
        from: Slot,
        /// Its value and those behind it.
        values: Arc<[Value<V>]>,
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The values asked for are gone: take in a snapshot.
    Trimmed {
        /// What the sender knows to be decided.
        decided: Slot,
    },
    /// The receiver is to lead in the sender's place, at once.
    Handover {
        /// The sender's ballot.
        ballot: Ballot,
        /// Everything before it is decided.
        decided: Slot,
    },
    /// To a candidate that asks again: the promise, with all that was accepted, is on its way.
    Promising {
        /// The candidate's ballot.
        ballot: Ballot,
    },
}

/// What a voter tells a candidate with its promise.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Report<V: Wire> {
    /// What the voter knows to be decided.
    pub decided: Slot,
    /// The ballot in which its log was adopted (prefix form).
    pub tail: Ballot,
    /// Behind its last slot.
    pub end: Slot,
    /// What it accepted from the candidate's first slot on.
    pub accepted: Vec<(Slot, Ballot, Value<V>)>,
    /// To whom it has granted a lease, and for how much longer by its clock.
    pub lease: Option<(ReplicaId, Span)>,
    /// For how much longer others may hold: granted before that one to somebody else, or in a former life and forgotten.
    pub lease_forgotten: Span,
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// No ballot below this one from now on.
    Promised {
        /// The ballot.
        ballot: Ballot,
    },
    /// A vote.
    Accepted {
        /// The ballot.
        ballot: Ballot,
        /// The slot.
        slot: Slot,
        /// The value.
        value: Value<V>,
        /// Everything before it was decided, and held here: so a restart knows nearly as much.
        decided: Slot,
    },
    /// Votes for a run of slots, at once.
    Adopted {
        /// The ballot.
        ballot: Ballot,
        /// The first slot.
        from: Slot,
        /// The values.
        values: Arc<[Value<V>]>,
        /// Everything before it was decided, and held here.
        decided: Slot,
    },
    /// Decided values that were learned from a peer.
    Learned {
        /// The first slot.
        from: Slot,
        /// The values.
        values: Arc<[Value<V>]>,
    },
}

/// What the log waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// A follower has heard nothing for as long as it is patient: it polls.
    Watch,
    /// A poll or a campaign has taken too long: it is given up and tried again later.
    Campaign,
    /// The leader speaks, asks again for votes that are late, and looks whether it is still heard.
    Heartbeat,
    /// Something missing has not come by itself: it is asked for.
    Repair,
    /// Leases granted to others have run out: what was decided meanwhile may show.
    Wait,
}

/// What the log answers: done, or why not.
pub type Answer = Result<(), Refusal>;

/// The notes of a log.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// This replica leads from now on.
    Leads(Ballot),
    /// It no longer does.
    Follows,
    /// The vote of this node completed a quorum.
    LastVoter(NodeId),
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(match self {
            Note::Leads(ballot) => Fact::Leads { reign: ballot.reign() },
            Note::Follows => Fact::Follows,
            Note::LastVoter(node) => Fact::LastVoter(*node),
            Note::Counted(name) => Fact::Counted(name),
        })
    }
}
