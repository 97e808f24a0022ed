//! What Domino's clients and replicas tell each other, what a replica writes down and waits for.

use isochrone_core::{Ballot, CommandId, Fact, Instant, Mark, Numbered, SignedSpan, Span, Stamp, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A position: a stamp, and the lane within it. Lane 0 is that of fast requests, lane `1 + seat` that of a
/// replica (`specs/domino.md` 2.4).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Nanoseconds of some wall clock.
    pub at: u64,
    /// The lane.
    pub lane: u8,
}

/// A ballot of the fast lane: each epoch has a fast one, in which replicas vote for what clients propose, and
/// above it a classic one, in which the epoch's coordinator proposes.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// The epoch.
    pub epoch: u32,
    /// Whether it is the classic ballot.
    pub classic: bool,
}

/// Why a replica does not vote for a request.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Reject {
    /// Its clock has passed the stamp: it has voted no-op there.
    Late,
    /// It has voted for another command at that stamp.
    Occupied,
    /// Its epoch is not open for this stamp, the stamp is too far ahead, or too much is waiting.
    Closed,
}

/// How far a replica is from a client: percentiles over the window.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Distance {
    /// The round trip.
    pub round_trip: Span,
    /// The replica's clock at arrival less the client's at sending, nanoseconds.
    pub one_way: SignedSpan,
    /// How long replication through the replica takes, where it offers it.
    pub latency: Option<Span>,
}

/// The messages of Domino's order. The table is in the module.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// Client: how far are you?
    Probe {
        /// The sender's wall clock.
        sent: Stamp,
        /// The sender's steady clock, echoed.
        at: Instant,
    },
    /// The answer to a probe.
    Probed {
        /// The sender's wall clock when it asked.
        sent: Stamp,
        /// The sender's steady clock when it asked.
        at: Instant,
        /// The clock by which this replica judges lateness.
        received: Stamp,
        /// How long replication through this replica takes, as far as it can tell and offers it.
        latency: Option<Span>,
    },
    /// Client: what have you measured? To another client of the same region.
    Measure {
        /// The sender's wall clock.
        sent: Stamp,
        /// The sender's steady clock, echoed.
        at: Instant,
    },
    /// The answer of a client that measures for others.
    Measured {
        /// The sender's wall clock when it asked.
        sent: Stamp,
        /// The sender's steady clock when it asked.
        at: Instant,
        /// The wall clock of the client that measures, to which its one-way delays refer.
        received: Stamp,
        /// By seat; none of a replica that is silent there or not measured enough.
        distances: Vec<Option<Distance>>,
    },
    /// Client: vote for these, each at its stamp.
    Propose {
        /// Stamps and commands.
        values: Vec<(u64, V)>,
    },
    /// Durable fast votes.
    Voted {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// The epoch voted in.
        epoch: u32,
        /// Stamps, and the client's numbers of the commands.
        votes: Vec<(u64, u64)>,
    },
    /// Not voted for.
    Rejected {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// Stamps, the client's numbers of the commands, and why.
        votes: Vec<(u64, u64, Reject)>,
    },
    /// Client: order these in your lane.
    ProposeLed {
        /// Only above this stamp.
        above: u64,
        /// The commands.
        values: Vec<V>,
    },
    /// These cannot lose their places any more.
    Committed {
        /// The client's incarnation that asked.
        incarnation: u32,
        /// The client's numbers and the stamps.
        places: Vec<(u64, u64)>,
    },
    /// Between replicas.
    Flow {
        /// The sender's incarnation.
        life: u32,
        /// What is to arrive in order.
        items: Option<Numbered<Arc<[Item<V>]>>>,
        /// Which session of the receiver was received, and how far.
        received: Option<(u64, u64)>,
        /// The sender's clocks, once a heartbeat.
        beat: Option<Beat>,
    },
    /// To oneself, behind what is being recorded.
    Own {
        /// What was said to all.
        items: Arc<[Item<V>]>,
    },
}

/// What a replica says once a heartbeat, whether in order or not.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Beat {
    /// The sender's steady clock, to be echoed.
    pub sent: Instant,
    /// Its wall clock.
    pub wall: Stamp,
    /// The clock by which it judges lateness.
    pub clock: Stamp,
    /// Of the last beat that came from the receiver: its incarnation then, its `sent`, and how long ago that was.
    pub echo: Option<(u32, Instant, Span)>,
    /// The last epoch of whose beginning something is on its way to the receiver, as far as the sender knows.
    pub begins: Option<u32>,
    /// The sender's epoch, where it is about to begin: for a classic quorum, the answer is there or something is on its way.
    pub gathers: Option<u32>,
}

/// One thing that a replica tells another, in order. A link's session begins with what the sender last said
/// (`Resync`): `Cover`, `Vote`, `Own`, `Accept`, `Lead`, `Chosen`, and only then any `Tick`.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Item<V: Wire> {
    /// From here on, in this session, come all the sender's fast votes of this epoch at or above `base`.
    Cover {
        /// The epoch.
        epoch: u32,
        /// The first stamp.
        base: u64,
    },
    /// Durable fast votes.
    Vote {
        /// Stamps and commands.
        votes: Vec<(u64, CommandId)>,
    },
    /// The sender's clock has come here: it has no other fast votes below, and makes none.
    Tick {
        /// In its open epoch, if one is open and the receiver learns fast votes.
        clock: Option<u64>,
        /// In its own lane.
        skip: u64,
    },
    /// From here on, in this session, comes every proposal in the sender's lane at or above `base`.
    Own {
        /// The first stamp.
        base: u64,
    },
    /// Proposals in the sender's lane, at ballot 0. Nothing where a revoker's proposal lies over it: the
    /// receiver is to wait for the fate of the position.
    Accept {
        /// Stamps and values.
        values: Vec<(u64, Option<V>)>,
    },
    /// Durable votes for these in the receiver's lane, at ballot 0.
    Accepted {
        /// The stamps.
        stamps: Vec<u64>,
    },
    /// No votes for these in the receiver's lane: it is sealed up to here.
    Refused {
        /// Its owner proposes only from here on.
        sealed: u64,
    },
    /// These positions in the sender's lane hold what it proposed.
    Commit {
        /// The stamps.
        stamps: Vec<u64>,
    },
    /// From here on, in this session, comes every decision of the fast lane at or above `base`.
    Lead {
        /// The first stamp.
        base: u64,
    },
    /// Decided in the fast lane.
    Chosen {
        /// Stamps and commands.
        values: Vec<(u64, V)>,
    },
    /// Every position of the fast lane below is decided.
    Settled {
        /// The first that may not be.
        until: u64,
    },
    /// Phase 2 of the coordinator in its classic ballot.
    Recover(Arc<Round<V>>),
    /// A durable vote for all of a round.
    Recovered {
        /// The coordinator's epoch.
        epoch: u32,
        /// The round.
        number: u64,
    },
    /// All of a round is decided.
    Closed {
        /// The coordinator's epoch.
        epoch: u32,
        /// The round.
        number: u64,
    },
    /// Phase 1 of a new coordinator.
    Prepare {
        /// Its epoch.
        epoch: u32,
        /// What it knows to be decided.
        from: u64,
    },
    /// A promise to vote in no earlier epoch.
    Promise(Arc<Promise<V>>),
    /// Phase 2 of a new coordinator for all that may be open, and the beginning of its epoch.
    Open(Arc<Opening<V>>),
    /// Phase 1 of a revoker.
    Revoke {
        /// The lane.
        lane: u8,
        /// The revoker's ballot.
        ballot: Ballot,
        /// What it knows to be decided.
        from: u64,
        /// The end of the block.
        until: u64,
    },
    /// A promise to a revoker.
    Revoked(Arc<Revoked<V>>),
    /// Phase 2 of a revoker, and once a majority has voted so, the news of it.
    Seal(Arc<Seal<V>>),
    /// A durable vote for a block.
    SealAccepted {
        /// The lane.
        lane: u8,
        /// The revoker's ballot.
        ballot: Ballot,
        /// The end of the block.
        until: u64,
    },
    /// A block is decided.
    Sealed(Arc<Seal<V>>),
    /// A revoker's ballot is too low.
    Outbid {
        /// The lane.
        lane: u8,
        /// The ballot promised.
        ballot: Ballot,
    },
    /// Send me these commands.
    Lack {
        /// Stamps and names.
        values: Vec<(u64, CommandId)>,
    },
    /// Commands asked for.
    Body {
        /// Stamps and commands.
        values: Vec<(u64, V)>,
    },
    /// How far the sender is.
    Report {
        /// Its epoch.
        epoch: u32,
        /// Whether that is open here.
        open: bool,
        /// The first undecided stamp of each lane.
        frontiers: Vec<u64>,
    },
    /// Tell me what is decided from here on.
    Fetch {
        /// The first undecided stamp of each lane.
        frontiers: Vec<u64>,
    },
    /// Decided: these, and no-op at every other position of the range.
    Learned {
        /// The lane.
        lane: u8,
        /// The first stamp.
        from: u64,
        /// Behind the last.
        until: u64,
        /// Stamps and commands.
        values: Vec<(u64, V)>,
    },
    /// The sender no longer holds what the receiver lacks.
    Trimmed,
    /// Coordinate the fast lane: an administrator wants it.
    Campaign,
    /// Order these in your lane; the sender's clock is too far ahead.
    Forward {
        /// For each the stamp that it must lie above, and the value.
        values: Vec<(u64, V)>,
    },
}

impl<V: Wire> Item<V> {
    /// The epoch of whose beginning it is part: the question, a promise, the opening, a vote for that.
    pub(super) fn begins(&self) -> Option<u32> {
        match self {
            Item::Prepare { epoch, .. } | Item::Recovered { epoch, number: 0 } => Some(*epoch),
            Item::Promise(promise) => Some(promise.epoch),
            Item::Open(opening) => Some(opening.round.epoch),
            _ => None,
        }
    }
}

/// Proposals of a coordinator in its classic ballot: one round, voted for and decided as a whole.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Round<V: Wire> {
    /// The epoch.
    pub epoch: u32,
    /// Its number there, from 1.
    pub number: u64,
    /// Stamps and what they are to hold; a no-op where nothing.
    pub values: Vec<(u64, Option<V>)>,
    /// Ranges of stamps that are to hold no-ops, except at the stamps among `values`.
    pub ranges: Vec<(u64, u64)>,
}

impl<V: Wire> Round<V> {
    /// Behind all of its positions.
    pub fn end(&self) -> u64 {
        let single = self.values.iter().map(|(at, _)| at + 1);
        single.chain(self.ranges.iter().map(|(_, until)| *until)).max().unwrap_or(0)
    }
}

/// What a new coordinator proposes for all that may be open; round 0 of its epoch.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Opening<V: Wire> {
    /// Everything before it is decided.
    pub from: u64,
    /// The epoch begins here: fast votes are taken from this stamp on.
    pub high: u64,
    /// Positions from `from` to `high` that may hold commands, and all later ones voted for; no-ops between.
    pub round: Round<V>,
}

/// What a replica holds of the fast lane when it promises an epoch.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Promise<V: Wire> {
    /// The epoch promised.
    pub epoch: u32,
    /// Votes for single stamps.
    pub votes: Vec<(u64, Turn, Option<V>)>,
    /// Ranges voted no-op.
    pub noops: Vec<(u64, u64, Turn)>,
    /// No fast vote was given, nor will be, below this.
    pub clock: u64,
    /// Everything before it is decided.
    pub frontier: u64,
    /// The commands decided since what the candidate knows; nothing where some are no longer held.
    pub decided: Option<Vec<(u64, V)>>,
}

/// What a replica holds of a lane when it promises a revoker.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Revoked<V: Wire> {
    /// The lane.
    pub lane: u8,
    /// The ballot promised.
    pub ballot: Ballot,
    /// Up to where it was sealed before.
    pub sealed: u64,
    /// Votes for single stamps.
    pub votes: Vec<(u64, Ballot, Option<V>)>,
    /// Ranges voted no-op.
    pub noops: Vec<(u64, u64, Ballot)>,
    /// Everything before it is decided.
    pub frontier: u64,
    /// The commands decided since what the revoker knows; nothing where some are no longer held.
    pub decided: Option<Vec<(u64, V)>>,
}

/// A block of a lane as a revoker proposes it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Seal<V: Wire> {
    /// The lane.
    pub lane: u8,
    /// The revoker's ballot.
    pub ballot: Ballot,
    /// The first stamp.
    pub from: u64,
    /// Behind the last.
    pub until: u64,
    /// Commands; every other position of the block is a no-op.
    pub values: Vec<(u64, V)>,
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// Whatever was announced lies below these.
    Reserve {
        /// Of the clock, and of the own lane.
        until: u64,
    },
    /// Fast votes in the open epoch.
    Voted {
        /// Stamps and commands.
        values: Vec<(u64, V)>,
    },
    /// Votes in a replica's lane at ballot 0; in the own lane, proposals.
    Accepted {
        /// The lane.
        lane: u8,
        /// Stamps and commands.
        values: Vec<(u64, V)>,
    },
    /// A promise to vote in no earlier epoch.
    Promised {
        /// The epoch.
        epoch: u32,
        /// Every empty position below it was voted no-op in the epoch before.
        clock: u64,
    },
    /// Votes for what a new coordinator proposes.
    Opened(Arc<Opening<V>>),
    /// Votes for a round.
    Recovered(Arc<Round<V>>),
    /// A promise to a revoker.
    Revoked {
        /// The lane.
        lane: u8,
        /// The ballot.
        ballot: Ballot,
        /// The owner's proposals below are refused.
        sealed: u64,
    },
    /// Votes for a revoker's block.
    Sealed(Arc<Seal<V>>),
    /// Executed; the value where it is not the one voted for here.
    Executed {
        /// Places and values, in order.
        values: Vec<(Place, Option<V>)>,
        /// Everything before it is executed.
        until: Place,
    },
}

/// The one timer of a replica's order.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// Clocks are announced, what is missing is asked for, and whoever is silent is stepped in for.
    Beat,
}

/// The notes of the order.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// This replica coordinates the fast lane in this epoch.
    Leads(u32),
    /// It does not any more.
    Follows,
    /// A count for metrics.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        match self {
            Note::Leads(epoch) => Some(Fact::Leads { reign: u64::from(*epoch) }),
            Note::Follows => Some(Fact::Follows),
            Note::Counted(name) => Some(Fact::Counted(name)),
        }
    }
}
