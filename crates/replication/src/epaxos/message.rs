//! What the replicas of EPaxos tell each other, write down and wait for.

use crate::order::Ordered;
use isochrone_core::{Ballot, Entry, Fact, Instant, Mark};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Members that a group may have: dependencies are one number for each.
pub const SEATS: usize = 7;

/// Names an instance: whose it is, and its number there, from 1, dense.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
pub struct InstanceId {
    /// The seat of its command leader.
    pub seat: u8,
    /// Its number.
    pub number: u64,
}

impl InstanceId {
    /// As one number, for the oracle of agreement.
    pub fn position(self) -> u64 {
        u64::from(self.seat) << 56 | self.number
    }

    pub(super) fn at(seat: usize, number: u64) -> InstanceId {
        // Seats are below `SEATS`.
        InstanceId { seat: seat as u8, number }
    }

    pub(super) fn leader(self) -> usize {
        usize::from(self.seat)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.seat, self.number)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is agreed upon beside the commands: what must come before them.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Serialize, Deserialize)]
pub struct Attributes {
    /// Orders the members of a component: above that of every interfering instance that was known.
    pub seq: u64,
    /// For each seat, the highest interfering instance that was known. It stands for itself and all before
    /// it; of those, what does not interfere is left out again at execution.
    pub deps: [u64; SEATS],
}

impl Attributes {
    /// Whether this instance is among the dependencies.
    pub fn covers(&self, id: InstanceId) -> bool {
        id.number <= self.deps[id.leader()]
    }

    /// The union.
    pub fn merge(&mut self, other: &Attributes) {
        self.seq = self.seq.max(other.seq);
        for (dep, theirs) in self.deps.iter_mut().zip(other.deps) {
            *dep = theirs.max(*dep);
        }
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} after {:?}", self.seq, self.deps)
    }
}

/// An instance in the conflict index: of each seat the newest is remembered, with the highest number of order
/// of all that it stands for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub(super) struct Touching {
    pub(super) id: InstanceId,
    pub(super) seq: u64,
}

impl Entry for Touching {
    fn covers(&self, older: &Self) -> bool {
        self.id.seat == older.id.seat && self.id.number >= older.id.number
    }

    fn join(self, other: Self) -> Self {
        Touching { seq: self.seq.max(other.seq), ..self }
    }
}

/// What an instance holds, as a message or record says it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Content<V: Ordered> {
    /// Nothing: its recovery gave it up.
    NoOp,
    /// These values, in order.
    Batch(Arc<[V]>),
    /// The values that the receiver, or the journal, was given before.
    Known,
}

/// A committed instance.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Committed<V: Ordered> {
    /// Which.
    pub id: InstanceId,
    /// What it holds.
    pub content: Content<V>,
    /// What comes before it.
    pub attributes: Attributes,
}

/// How far a replica has come with an instance.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// It has voted for nothing.
    Initial,
    /// It has added what it knows to the leader's attributes.
    PreAccepted,
    /// It has voted for attributes in a ballot.
    Accepted,
    /// It knows what was chosen.
    Committed,
}

/// What a replica tells a recoverer of an instance.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Report<V: Ordered> {
    /// How far it has come.
    pub phase: Phase,
    /// The ballot of its last vote, which is not the one it has promised.
    pub accepted: Ballot,
    /// What it holds, if anything.
    pub content: Option<Content<V>>,
    /// What it last said of the attributes.
    pub attributes: Attributes,
    /// What the leader proposed, where it was told.
    pub initial: Option<Attributes>,
}

/// What a receiver of `PreAccept` has to do with it.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Role {
    /// It adds what it knows.
    Acceptor,
    /// It settles the attributes: its answer is its vote in the first ballot.
    Delegate,
    /// Another settles them, and its answer would not be read: it is only to know.
    Listener,
}

/// The messages of EPaxos. In the table of the module each stands with its sender and receiver.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Ordered> {
    /// Add what you know to the attributes.
    PreAccept {
        /// The sender's instance.
        id: InstanceId,
        /// What it holds.
        batch: Arc<[V]>,
        /// Bytes of it.
        bytes: u32,
        /// What the sender knows to come before it.
        attributes: Attributes,
        /// How many instances of each seat the sender had executed in a row when it proposed this.
        executed: [u64; SEATS],
        /// What the receiver has to do with it.
        role: Role,
    },
    /// The attributes with what the sender knows.
    PreAccepted {
        /// Which.
        id: InstanceId,
        /// The union.
        attributes: Attributes,
        /// The sender has voted for them.
        delegate: bool,
    },
    /// Vote for these attributes.
    Accept {
        /// Which.
        id: InstanceId,
        /// The sender's ballot; the first ballot is the leader's.
        ballot: Ballot,
        /// What it holds.
        content: Content<V>,
        /// What comes before it.
        attributes: Attributes,
    },
    /// A vote, durable at its sender.
    Accepted {
        /// Which.
        id: InstanceId,
        /// The ballot voted in.
        ballot: Ballot,
    },
    /// These are committed.
    Commit {
        /// Several at once.
        list: Vec<Committed<V>>,
    },
    /// Take part in no lower ballot of this instance, and tell what you have voted for.
    Recover {
        /// Which.
        id: InstanceId,
        /// The recoverer's ballot.
        ballot: Ballot,
    },
    /// The promise and the report.
    Recovered {
        /// Which.
        id: InstanceId,
        /// The recoverer's ballot.
        ballot: Ballot,
        /// What the sender holds.
        report: Box<Report<V>>,
    },
    /// The leader may have committed this fast: do you know of something that rules it out?
    Validate {
        /// Which.
        id: InstanceId,
        /// The recoverer's ballot.
        ballot: Ballot,
        /// What it holds.
        batch: Arc<[V]>,
        /// What the leader proposed.
        attributes: Attributes,
    },
    /// Interfering instances of which neither comes before the other.
    Validated {
        /// Which.
        id: InstanceId,
        /// The recoverer's ballot.
        ballot: Ballot,
        /// Each with whether it is committed so.
        conflicts: Vec<(InstanceId, bool)>,
    },
    /// The recovery of this instance waits for others; so many replicas, its leader not among them, have
    /// pre-accepted it as it was proposed.
    Waiting {
        /// Which.
        id: InstanceId,
        /// How many.
        votes: u8,
    },
    /// The receiver's ballot is old.
    Rejected {
        /// Which.
        id: InstanceId,
        /// The ballot promised.
        promised: Ballot,
    },
    /// What was chosen for these?
    Fetch {
        /// Which.
        ids: Vec<InstanceId>,
    },
    /// This is executed here and its commands are gone: take in a state.
    Trimmed {
        /// Which.
        id: InstanceId,
    },
    /// The sender lives.
    Heartbeat {
        /// Its last instance.
        last: u64,
        /// For each seat, how many instances from the first on it has executed, durably so.
        executed: [u64; SEATS],
        /// When it was sent, by its steady clock; echoed.
        sent: Instant,
    },
    /// The answer to a heartbeat.
    Heard {
        /// When the heartbeat was sent.
        sent: Instant,
    },
    /// What was asked for is on its way here, or from here: nobody else need see to it.
    Driven {
        /// Which.
        ids: Vec<InstanceId>,
    },
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Ordered> {
    /// It has added what it knows.
    PreAccepted {
        /// Which.
        id: InstanceId,
        /// What it holds.
        batch: Arc<[V]>,
        /// What its leader proposed.
        initial: Attributes,
        /// The union.
        attributes: Attributes,
        /// It was the delegate: this is a vote in the first ballot.
        delegate: bool,
    },
    /// No ballot below this one from now on.
    Promised {
        /// Which.
        id: InstanceId,
        /// The ballot.
        ballot: Ballot,
    },
    /// A recovery has made it known, and nothing ruled it out here.
    Validated {
        /// Which.
        id: InstanceId,
        /// What it holds.
        batch: Arc<[V]>,
        /// What its leader proposed.
        initial: Attributes,
    },
    /// A vote.
    Accepted {
        /// Which.
        id: InstanceId,
        /// The ballot.
        ballot: Ballot,
        /// What it holds.
        content: Content<V>,
        /// What comes before it.
        attributes: Attributes,
    },
    /// It is committed.
    Committed(Committed<V>),
    /// Everything before this is durable: what was executed may be told.
    Reported,
    /// Nothing is executed from here on: somebody's state is needed.
    Paused,
    /// It did not come: execution goes on.
    Resumed,
    /// Own instances up to this number may leave ahead of their records.
    Reserved {
        /// The last of them.
        upto: u64,
    },
}

/// What a replica waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// It says that it lives, and looks who else does.
    Heartbeat,
    /// Something is not committed yet: what is late is asked for, resent or recovered.
    Tick,
}

/// The notes of a replica.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        let Note::Counted(name) = self;
        Some(Fact::Counted(name))
    }
}
