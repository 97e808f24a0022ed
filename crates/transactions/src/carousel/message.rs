//! What the roles of Carousel tell each other, write down and wait for (`specs/carousel.md` 2.4, 3.1).

use crate::group;
use crate::request::{Read, Reason, TxnId, Update};
use crate::said::Said;
use isochrone_core::{Ballot, Blob, ClientId, PartitionId, ProcessId, ReplicaId, Span};
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is spoken, that of the group logs included.
pub type Message = group::Message<Entry, Word>;

/// What a transaction touches at one partition. A key that is read and written is in both sets.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The partition.
    pub partition: PartitionId,
    /// The keys read.
    pub reads: Arc<[Blob]>,
    /// The keys that may be written.
    pub writes: Arc<[Blob]>,
}

/// How a transaction ended.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Ended {
    /// It took effect, as this version.
    Committed(Version),
    /// It took none.
    Aborted(Reason),
}

/// A prepare decision: of one replica (a vote), or of a partition.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Prepared; else refused.
    pub prepared: bool,
    /// The versions of the keys read, in their order; none of a key without a value.
    pub versions: Vec<Version>,
    /// Above every version that the transaction accesses here, and every moment served to readers before.
    pub at: Version,
}

impl Verdict {
    /// Whether two votes count together: the time is the leader's affair (5.2, 5.4).
    pub(super) fn matches(&self, other: &Verdict) -> bool {
        self.prepared == other.prepared && self.versions == other.versions
    }
}

/// When a vote was cast. Only votes of one term and of the same members count together: those of a term leave their mark
/// in the lists of the next one's leader, who asks the members of then.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Under {
    /// The term.
    pub term: Ballot,
    /// How many changes led to the members.
    pub version: u32,
    /// How many they are.
    pub members: u8,
}

/// A replica's own prepare decision, which it never changes (I12).
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// The transaction.
    pub txn: TxnId,
    /// What it touches here.
    pub part: Part,
    /// Who coordinates it.
    pub coordinator: ProcessId,
    /// The term it was cast in.
    pub term: Ballot,
    /// What was decided.
    pub verdict: Verdict,
}

/// The messages between clients, participants and coordinators.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Word {
    /// Client to the leader (Basic) or all replicas (Fast) of a participant: read, and prepare.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// The client has the outcomes of all its transactions below this count.
        below: u64,
        /// How long before this was sent the first try of the same began; zero of a first.
        age: Span,
        /// Who coordinates.
        coordinator: ProcessId,
        /// What it touches here.
        part: Part,
        /// Whether the receiver is to read.
        read: bool,
        /// Whether the receiver is to vote (Fast).
        vote: bool,
    },
    /// A replica to the client: what it read.
    Values {
        /// The transaction.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
        /// Whether the sender leads.
        leads: bool,
        /// In the order of the keys.
        reads: Vec<Read>,
    },
    /// Client to coordinator: a transaction begins.
    Begin {
        /// The transaction.
        txn: TxnId,
        /// As in `Prepare`.
        below: u64,
        /// What it touches, by partition.
        parts: Arc<[Part]>,
    },
    /// A replica to the coordinator: its vote (Fast).
    Vote {
        /// The transaction.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
        /// The voter's seat.
        replica: ReplicaId,
        /// The term it voted in, and who the members were.
        under: Under,
        /// Whether it leads in that term.
        leads: bool,
        /// Its decision.
        verdict: Verdict,
    },
    /// A participant's leader to the coordinator: the partition's decision, replicated.
    Prepared {
        /// The transaction.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
        /// The decision.
        verdict: Verdict,
    },
    /// Client to coordinator: commit.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// As in `Prepare`.
        below: u64,
        /// What it touches, by partition.
        parts: Arc<[Part]>,
        /// What it writes.
        updates: Arc<[Update]>,
        /// The versions that it has used, by partition, in the order of the keys.
        seen: Arc<[(PartitionId, Vec<Version>)]>,
    },
    /// Client to coordinator: give up.
    Abort {
        /// The transaction.
        txn: TxnId,
        /// As in `Prepare`.
        below: u64,
        /// What it touches, by partition.
        parts: Arc<[Part]>,
    },
    /// Coordinator to client: how it ended.
    Ended {
        /// The transaction.
        txn: TxnId,
        /// How.
        ended: Ended,
        /// Whether every participant was settled by votes.
        fast: bool,
    },
    /// Client to coordinator: it lives, and has these open.
    Heartbeat {
        /// The client.
        client: ClientId,
        /// As in `Prepare`.
        below: u64,
        /// The counts of its open transactions.
        open: Vec<u64>,
    },
    /// Coordinator to a participant's leader: how it ended.
    Writeback {
        /// The transaction.
        txn: TxnId,
        /// How.
        ended: Ended,
        /// What it writes there.
        updates: Vec<Update>,
    },
    /// A participant's leader to the coordinator: that is replicated.
    WrittenBack {
        /// The transaction.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
    },
    /// Coordinator, or a follower with a vote, to a participant's leader: what was decided?
    Query {
        /// The transaction.
        txn: TxnId,
        /// What it touches there.
        part: Part,
        /// Who coordinates.
        coordinator: ProcessId,
        /// Whether an unknown transaction is to be refused for good (presumed abort).
        last: bool,
    },
    /// A participant's leader to the coordinator: how did it end?
    Status {
        /// The transaction.
        txn: TxnId,
        /// What it touches at the asker.
        part: Part,
    },
    /// A participant's leader to the coordinator: may what I remember of these go?
    Closable {
        /// The transactions.
        txns: Vec<TxnId>,
    },
    /// The answer: of these, yes. Nobody will ask again how they were decided.
    Closed {
        /// The transactions.
        txns: Vec<TxnId>,
    },
    /// Client to a participant's leader: what was there at this moment (read-only transactions)?
    ReadAt {
        /// The transaction.
        txn: TxnId,
        /// As in `Prepare`.
        below: u64,
        /// Everything below this version, and nothing from it on.
        at: Version,
        /// The keys.
        keys: Arc<[Blob]>,
    },
    /// The answer; nothing where that moment cannot be served.
    ReadIs {
        /// The transaction.
        txn: TxnId,
        /// Where.
        partition: PartitionId,
        /// The moment.
        at: Version,
        /// In the order of the keys.
        reads: Option<Vec<Read>>,
    },
    /// A new leader to its replicas: which votes of earlier terms do you hold?
    Recall {
        /// Its term.
        term: Ballot,
    },
    /// The answer of one that has promised this term: it votes in no earlier one any more.
    Votes {
        /// That term.
        term: Ballot,
        /// Its votes of earlier terms that no entry has decided.
        votes: Vec<Vote>,
    },
    /// The sender does not lead that partition.
    NotLeader {
        /// Which.
        partition: PartitionId,
        /// Who does, if it knows.
        leader: Option<ProcessId>,
    },
}

impl Said for Word {
    fn carries(&self) -> bool {
        matches!(
            self,
            Word::Values { .. }
                | Word::Commit { .. }
                | Word::Writeback { .. }
                | Word::ReadIs { .. }
                | Word::Votes { .. }
        )
    }
}

impl Word {
    /// Whether all partitions that it names are among so many.
    pub(super) fn names_partitions_below(&self, count: usize) -> bool {
        let known = |partition: &PartitionId| usize::from(partition.0) < count;
        let all = |parts: &[Part]| parts.iter().all(|part| known(&part.partition));
        match self {
            Word::Prepare { coordinator, part, .. } | Word::Query { coordinator, part, .. } => {
                known(&coordinator.partition) && known(&part.partition)
            }
            Word::Begin { parts, .. } | Word::Abort { parts, .. } => all(parts),
            Word::Commit { parts, seen, .. } => {
                all(parts) && seen.iter().all(|(partition, _)| known(partition))
            }
            Word::Status { part, .. } => known(&part.partition),
            Word::Votes { votes, .. } => {
                votes.iter().all(|vote| known(&vote.coordinator.partition) && known(&vote.part.partition))
            }
            Word::Values { partition, .. }
            | Word::Vote { partition, .. }
            | Word::Prepared { partition, .. }
            | Word::WrittenBack { partition, .. }
            | Word::ReadIs { partition, .. }
            | Word::NotLeader { partition, .. } => known(partition),
            Word::Ended { .. }
            | Word::Heartbeat { .. }
            | Word::Writeback { .. }
            | Word::Closable { .. }
            | Word::Closed { .. }
            | Word::ReadAt { .. }
            | Word::Recall { .. } => true,
        }
    }
}

/// The entries of a group's log: of the group as participant, as coordinator, and of its leaders.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A participant's prepare decision.
    Prepare(Vote),
    /// A transaction has ended, as the participant was told.
    Outcome {
        /// The transaction.
        txn: TxnId,
        /// How.
        ended: Ended,
        /// What it writes here.
        updates: Vec<Update>,
        /// Who coordinates it.
        coordinator: ProcessId,
    },
    /// The coordinator knows of a transaction.
    Begin {
        /// The transaction.
        txn: TxnId,
        /// What it touches, by partition.
        parts: Arc<[Part]>,
    },
    /// The coordinator has what it writes.
    Write {
        /// The transaction.
        txn: TxnId,
        /// What it touches, by partition.
        parts: Arc<[Part]>,
        /// What it writes.
        updates: Arc<[Update]>,
        /// The versions that the client has used.
        seen: Arc<[(PartitionId, Vec<Version>)]>,
    },
    /// The coordinator has decided.
    Decision {
        /// The transaction.
        txn: TxnId,
        /// What it touches, by partition, as far as known.
        parts: Arc<[Part]>,
        /// What.
        ended: Ended,
    },
    /// Every participant has the outcome.
    Forget {
        /// The transaction.
        txn: TxnId,
    },
    /// A leader's first entry: everything of earlier terms lies before it.
    Open {
        /// Its term.
        term: Ballot,
    },
    /// A new leader has adopted what votes of earlier terms may have settled: they are void from here.
    Barrier {
        /// Its term.
        term: Ballot,
    },
    /// No moment above this is served, and no transaction prepared at one.
    Ceiling {
        /// The moment.
        to: Version,
    },
    /// What is remembered of these goes: their clients have the outcomes, and nobody will ask.
    Drop {
        /// As participant.
        participated: Vec<TxnId>,
        /// As coordinator.
        coordinated: Vec<TxnId>,
    },
}

/// What a partition waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// Looks after what is open.
    Sweep,
}
