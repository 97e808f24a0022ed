//! What clients, participants and coordinators tell each other, and what the logs hold.

use crate::request::{Read, Reason, TxnId, Update};
use crate::said::Said;
use isochrone_core::{Ballot, Blob, PartitionId, ProcessId, Stamp};
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};

/// How a transaction ends: with a version, or without effect.
pub type Ending = Result<Version, Reason>;

/// What a transaction does at one partition.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Where.
    pub partition: PartitionId,
    /// What it has read there, and which version of each.
    pub reads: Vec<(Blob, Version)>,
    /// What it writes there.
    pub writes: Vec<Update>,
}

/// What is said, in the order in which a transaction says it.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Lock these for reading and tell me their values. Client to the leader of a participant.
    Read {
        /// The transaction.
        txn: TxnId,
        /// When it began, by its client's clock: who began first goes first.
        start: Stamp,
        /// Which keys.
        keys: Vec<Blob>,
    },
    /// They are locked; their values, in that order. Participant to client.
    Values {
        /// The transaction.
        txn: TxnId,
        /// Who says so.
        partition: PartitionId,
        /// The values.
        reads: Vec<Read>,
    },
    /// Its locks went to one that is older. Participant to client.
    Wounded {
        /// The transaction.
        txn: TxnId,
    },
    /// These are open still. Client to the leader of a participant.
    Alive {
        /// The transactions.
        txns: Vec<TxnId>,
    },
    /// It is given up, and no commit was or will be asked for. Client to the leader of a participant.
    Release {
        /// The transaction.
        txn: TxnId,
    },
    /// Commit. Client to the leader of the coordinating group.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// When it began.
        start: Stamp,
        /// Its client has the outcomes of all its transactions below this number.
        below: u64,
        /// What it does where.
        parts: Vec<Part>,
        /// Whether the client has asked the participants to prepare.
        asked: bool,
    },
    /// Lock what is read and written, see that what was read is the latest, and replicate that. Coordinator to the
    /// leader of a participant; the client too, where coordinators are remote.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// When it began.
        start: Stamp,
        /// Its client has the outcomes of all its transactions below this number.
        below: u64,
        /// The coordinating group.
        coordinator: PartitionId,
        /// What it does there.
        part: Part,
    },
    /// It is prepared, and commits at this version or later; or it cannot. Participant to coordinator.
    Vote {
        /// The transaction.
        txn: TxnId,
        /// Who votes.
        partition: PartitionId,
        /// How.
        vote: Ending,
    },
    /// It has ended. Coordinator to client.
    Ended {
        /// The transaction.
        txn: TxnId,
        /// How.
        ending: Ending,
    },
    /// It has ended: let it take effect and release its locks. Coordinator to the leader of a participant.
    Outcome {
        /// The transaction.
        txn: TxnId,
        /// The coordinating group.
        coordinator: PartitionId,
        /// How.
        ending: Ending,
    },
    /// That is done and replicated. Participant to coordinator.
    Acknowledged {
        /// The transaction.
        txn: TxnId,
        /// Who says so.
        partition: PartitionId,
    },
    /// How did it end? One that is unknown has not, and is aborted now. Leader of a participant to the leader of the
    /// coordinating group.
    StatusQuery {
        /// The transaction.
        txn: TxnId,
        /// Who asks.
        partition: PartitionId,
        /// Whether an older one waits for it: if it is undecided, it is aborted.
        wound: bool,
    },
    /// Somebody else leads this partition. Any replica to whoever asked it.
    NotLeader {
        /// The transaction.
        txn: TxnId,
        /// The partition.
        partition: PartitionId,
        /// Who leads it, as far as is known there.
        leader: Option<ProcessId>,
    },
    /// Abort it, unless it is decided: it is waited for no longer. Client to the leader of the coordinating group.
    Withdraw {
        /// The transaction.
        txn: TxnId,
        /// Its client has the outcomes of all its transactions below this number.
        below: u64,
        /// Who may have been asked to prepare.
        participants: Vec<PartitionId>,
    },
}

/// An entry of the log of a group.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A leader begins: everything in front of it was there before it served anybody.
    Barrier {
        /// Its ballot.
        ballot: Ballot,
    },
    /// A transaction is prepared here.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// When it began.
        start: Stamp,
        /// Its client has the outcomes of all its transactions below this number.
        below: u64,
        /// The coordinating group.
        coordinator: PartitionId,
        /// It commits at this version or later.
        at: Version,
        /// What it has read here.
        reads: Vec<Blob>,
        /// What it writes here.
        writes: Vec<Update>,
    },
    /// A transaction that was prepared here has ended.
    Outcome {
        /// The transaction.
        txn: TxnId,
        /// The coordinating group.
        coordinator: PartitionId,
        /// How.
        ending: Ending,
    },
    /// A transaction that is coordinated here has ended; the first such entry holds.
    Decision {
        /// The transaction.
        txn: TxnId,
        /// Its client has the outcomes of all its transactions below this number.
        below: u64,
        /// How.
        ending: Ending,
        /// Who is to be told.
        participants: Vec<PartitionId>,
    },
    /// All participants of these have acknowledged.
    Forget {
        /// The transactions.
        txns: Vec<TxnId>,
    },
}

impl Said for Message {
    fn carries(&self) -> bool {
        matches!(self, Message::Values { .. } | Message::Commit { .. } | Message::Prepare { .. })
    }
}

impl Message {
    /// The transaction of a question that only a leader answers: whoever does not lead says so.
    pub(super) fn asks_leader(&self) -> Option<TxnId> {
        match self {
            Message::Read { txn, .. }
            | Message::Commit { txn, .. }
            | Message::Prepare { txn, .. }
            | Message::Outcome { txn, .. }
            | Message::StatusQuery { txn, .. }
            | Message::Withdraw { txn, .. } => Some(*txn),
            _ => None,
        }
    }

    /// Whether all partitions that it names are among so many.
    pub(super) fn names_partitions_below(&self, count: usize) -> bool {
        let known = |partition: &PartitionId| usize::from(partition.0) < count;
        match self {
            Message::Commit { parts, .. } => parts.iter().all(|part| known(&part.partition)),
            Message::Withdraw { participants, .. } => participants.iter().all(known),
            Message::Prepare { coordinator: partition, .. }
            | Message::Outcome { coordinator: partition, .. }
            | Message::Values { partition, .. }
            | Message::Vote { partition, .. }
            | Message::Acknowledged { partition, .. }
            | Message::StatusQuery { partition, .. }
            | Message::NotLeader { partition, .. } => known(partition),
            Message::Read { .. }
            | Message::Wounded { .. }
            | Message::Alive { .. }
            | Message::Release { .. }
            | Message::Ended { .. } => true,
        }
    }
}
