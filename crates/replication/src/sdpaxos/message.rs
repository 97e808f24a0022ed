//! What replicas tell each other, write down and wait for.

use super::assignment::{Image, Rank, Run};
use super::rebuild::Report;
use isochrone_core::{Ballot, Fact, Instant, Mark, Span, Wire, wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a command instance decides. Cloning copies a pointer.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Value<V: Wire> {
    /// Nothing: its command was lost, and its slot must not block.
    NoOp,
    /// Commands, in order.
    Batch(Arc<[V]>),
}

/// What a sender of [`Message::Turn`] has accepted; all of it durable.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The view, installed and active at the sender.
    pub view: Ballot,
    /// The sender has accepted every slot up to here in this view: the O-ACK.
    pub contiguous: u64,
    /// A majority has accepted every slot up to here in this view.
    pub ordered: u64,
}

/// The objects that command instances write.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Objects {
    /// Unknown, or too many to name.
    All,
    /// Hashes of their names.
    These(Vec<u64>),
}

/// One thing told within a [`Message::Turn`].
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Part<V: Wire> {
    /// C-ACCEPT: command instances of `owner`, consecutive; to the sequencer also a request for their slots.
    Accept {
        /// Whose instances.
        owner: Rank,
        /// The proposer's ballot.
        ballot: Ballot,
        /// The number of the first.
        first: u64,
        /// What they are to decide.
        values: Vec<Value<V>>,
    },
    /// C-REQUEST: slots for all instances of `owner` up to `index`.
    Request {
        /// Whose instances.
        owner: Rank,
        /// The first that `objects` speaks of.
        first: u64,
        /// The last.
        index: u64,
        /// What those write.
        objects: Objects,
    },
    /// C-ACK, durable.
    Accepted {
        /// Whose instances.
        owner: Rank,
        /// The proposer's ballot.
        ballot: Ballot,
        /// The first accepted.
        first: u64,
        /// The last.
        last: u64,
    },
    /// The proposer's ballot is old.
    Refused {
        /// Whose instances.
        owner: Rank,
        /// The ballot promised instead.
        promised: Ballot,
    },
    /// C-COMMIT for one who has accepted.
    Commit {
        /// Whose instances.
        owner: Rank,
        /// The ballot in which they were decided.
        ballot: Ballot,
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// C-COMMIT for one who may not have accepted.
    Decided {
        /// Whose instances.
        owner: Rank,
        /// A ballot in which all of them may be taken for accepted.
        ballot: Ballot,
        /// The first.
        first: u64,
        /// What they decide.
        values: Vec<Value<V>>,
    },
    /// C-PREPARE for all instances of `owner` from `from` on.
    Prepare {
        /// Whose instances.
        owner: Rank,
        /// The first.
        from: u64,
        /// The ballot.
        ballot: Ballot,
    },
    /// C-PROMISE, durable.
    Promised {
        /// Whose instances.
        owner: Rank,
        /// The ballot.
        ballot: Ballot,
        /// How many instances of the owner were executed here; what they are is told by [`Message::Learned`].
        executed: u64,
        /// The slots that the owner has, as far as is known here.
        slots: u64,
        /// What was accepted: number, ballot, value, and whether it is known to be decided.
        accepted: Vec<(u64, Ballot, Value<V>, bool)>,
    },
    /// O-ACCEPT: the owners of consecutive slots.
    Order {
        /// The first slot.
        first: u64,
        /// Its owner and the following ones.
        runs: Vec<Run>,
    },
    /// The receiver of `Order` lacks slots before it.
    Gap,
    /// O-COMMIT: slots of `owner` that are committed: first and how many.
    Ordered {
        /// Whose slots.
        owner: Rank,
        /// Which.
        slots: Vec<(u64, u32)>,
    },
    /// R-REQUEST: behind which slots may these reads be answered? Number and object (0: several, or all).
    Read(Vec<(u64, u64)>),
    /// R-REPLY: number and slot. No slot where the sequencer holds no lease.
    ReadAt(Vec<(u64, Option<u64>)>),
}

impl<V: Wire> Part<V> {
    /// What may overtake values that were sent before. A commit may not: it speaks of them.
    pub(super) fn is_urgent(&self) -> bool {
        match self {
            Part::Accept { .. } | Part::Commit { .. } | Part::Decided { .. } | Part::Promised { .. } => false,
            Part::Request { .. }
            | Part::Accepted { .. }
            | Part::Refused { .. }
            | Part::Prepare { .. }
            | Part::Order { .. }
            | Part::Gap
            | Part::Ordered { .. }
            | Part::Read(_)
            | Part::ReadAt(_) => true,
        }
    }

    /// Bytes of it where it does not overtake.
    pub(super) fn weight(&self) -> usize {
        if self.is_urgent() { 0 } else { wire::encoded_size(self) }
    }
}

/// A sign of life.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Beat {
    /// The highest view the sender has voted in or installed.
    pub view: Ballot,
    /// The view whose log it has installed.
    pub installed: Ballot,
    /// Whether that view is active.
    pub active: bool,
    /// It has accepted, durably, every slot up to here in the installed view.
    pub contiguous: u64,
    /// A majority has, as far as it knows.
    pub ordered: u64,
    /// It has executed every slot up to here.
    pub executed: u64,
    /// It would still have after a crash.
    pub durable: u64,
    /// Its life and clock.
    pub sent: (u32, Instant),
    /// What the receiver's last sign of life said of its life and clock, and how long ago that arrived.
    pub echo: Option<(u32, Instant, Span)>,
    /// For how long it has, from that on, granted the receiver a lease in the installed view; nothing where it has not.
    pub granted: Span,
    /// Round trips to the members by rank, microseconds; 0 where unknown.
    pub trips: Vec<u32>,
}

/// The messages of SDPaxos. The table is in the module.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// All that the sender had to say to the receiver at the end of a turn.
    Turn {
        /// Where the sender stands.
        head: Head,
        /// What it says.
        parts: Vec<Part<V>>,
    },
    /// A sign of life.
    Beat(Box<Beat>),
    /// Would you vote in this view? Changes nothing.
    Poll {
        /// The view that the sender would be sequencer of.
        view: Ballot,
    },
    /// The answer.
    Polled {
        /// The view polled about.
        view: Ballot,
        /// Yes: no sequencer was heard of lately.
        granted: bool,
        /// The highest view the voter has heard of.
        seen: Ballot,
    },
    /// V-REQUEST.
    ViewRequest {
        /// The view that the sender would be sequencer of.
        view: Ballot,
        /// The view whose sequencer has given back its leases in the sender's favour, and in which life.
        released: Option<(Ballot, u32)>,
    },
    /// VOTE, durable.
    Vote {
        /// The view.
        view: Ballot,
        /// What the voter knows.
        report: Box<Report>,
    },
    /// NEW-VIEW: the assignment log to begin the view with, or as far as it is known at the sender.
    NewView {
        /// The view.
        view: Ballot,
        /// Whether it is active.
        active: bool,
        /// The slots with which the view began: committed once the view is active.
        begin: u64,
        /// The log.
        log: Arc<Image>,
    },
    /// NEW-VIEW-ACK, durable.
    Installed {
        /// The view.
        view: Ballot,
        /// The sender has accepted every slot up to here in it.
        contiguous: u64,
    },
    /// The receiver has spoken in an old view: this one is installed here.
    Stale {
        /// The view.
        view: Ballot,
    },
    /// Tell me the log of your view.
    FetchView {
        /// The view installed at the sender.
        installed: Ballot,
    },
    /// Tell me what is in these slots.
    Fetch {
        /// The view installed at the sender.
        view: Ballot,
        /// The first slot that it has not executed.
        from: u64,
    },
    /// Executed slots.
    Learned {
        /// The view installed at the sender.
        view: Ballot,
        /// The first slot.
        first: u64,
        /// Its owner and content, and the following ones.
        slots: Vec<(Rank, Value<V>)>,
        /// How far the sender has executed.
        executed: u64,
    },
    /// The slots asked for are gone: take in a snapshot.
    Trimmed {
        /// The view installed at the sender.
        view: Ballot,
        /// How far it has executed.
        executed: u64,
    },
    /// Is the sequencer of this view slow?
    SlowQuery {
        /// The view.
        view: Ballot,
    },
    /// The answer.
    SlowReply {
        /// The view.
        view: Ballot,
        /// It is, or nothing is known to the contrary; no lease is granted to it any more.
        agreed: bool,
    },
    /// Hand the role of sequencer to this member.
    Yield {
        /// The view installed at the sender.
        view: Ballot,
        /// Who is to have it.
        heir: Rank,
    },
    /// The sequencer of this view has given back its leases and assigns nothing more: the receiver is to follow.
    Handover {
        /// The view.
        view: Ballot,
        /// The life in which the sequencer says so: in another it may hold leases again.
        life: u32,
    },
    /// To itself, behind a record: everything recorded up to this number is durable.
    Durable(u64),
}

/// One thing that a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Entry<V: Wire> {
    /// Every slot up to here was executed.
    Executed(u64),
    /// Own numbers below this one may have been used.
    Reserved(u64),
    /// A promise for all instances of a member.
    Promised(Rank, Ballot),
    /// Accepted command instances: owner, ballot, the first number, values.
    Accepted(Rank, Ballot, u64, Vec<Value<V>>),
    /// Decided command instances that were learned: owner, ballot, the first number, values.
    Decided(Rank, Ballot, u64, Vec<Value<V>>),
    /// Accepted order instances: the first slot, owners.
    Ordered(u64, Vec<Run>),
    /// A slot learned to be committed, and its owner.
    Placed(u64, Rank),
    /// Executed slots learned from a peer: the first, owners and contents.
    Learned(u64, Vec<(Rank, Value<V>)>),
    /// A vote.
    Voted(Ballot),
    /// The log of a view: the view, the slots it began with, the log.
    Installed(Ballot, u64, Arc<Image>),
    /// The installed view is active.
    Active,
}

/// What a replica writes ahead, in order.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Record<V: Wire>(pub Vec<Entry<V>>);

/// What a replica waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// It gives a sign of life, and looks after what is late.
    Beat,
    /// The sequencer may have been silent for too long, or an election has led to nothing.
    Watch,
    /// A lease has run out that forbade a vote.
    Lease,
}

/// The notes of a replica.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// This replica is the active sequencer from now on.
    Leads(Ballot),
    /// It no longer is.
    Follows,
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(match self {
            Note::Leads(view) => Fact::Leads { reign: view.reign() },
            Note::Follows => Fact::Follows,
            Note::Counted(name) => Fact::Counted(name),
        })
    }
}
