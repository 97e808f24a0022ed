//! What clients and replicas of TAPIR say to each other, and what a replica writes down.

use crate::commands::{Carries, Forward};
use crate::listing::{Page, Query};
use crate::request::{TxnId, Update};
use crate::said::Said;
use isochrone_core::{Blob, ClientId, CommandId, Fact, Mark, PartitionId, ProcessId};
use isochrone_store::versions::Version;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a transaction does at one partition.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// What it read, with the version that it saw.
    pub reads: Vec<(Blob, Version)>,
    /// What it writes.
    pub writes: Vec<Update>,
}

/// What a replica thinks of a transaction at a timestamp (`occ_check` of `specs/carousel.md` 6.1).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Vote {
    /// Nothing stands in its way: PREPARE_OK.
    Ok,
    /// Another one that is prepared stands in its way.
    Abstain,
    /// It has read what is no longer the latest.
    Abort,
    /// It comes too early: a timestamp above this one might do.
    Retry(Version),
}

/// How a transaction ended.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// It took effect, at this timestamp.
    Commit(Version),
    /// It took none.
    Abort,
}

/// Who coordinates a transaction: its client, and after it whoever takes it over, each above the last.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Ballot {
    /// 0 for the client.
    pub round: u32,
    /// Which replica: [`ProcessId::to_u64`].
    pub by: u64,
}

impl Ballot {
    /// The client's.
    pub const CLIENT: Ballot = Ballot { round: 0, by: 0 };

    /// The next one of this process.
    pub fn above(self, process: ProcessId) -> Ballot {
        Ballot { round: self.round.saturating_add(1), by: process.to_u64() }
    }
}

/// A transaction as it is known at one partition.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Name {
    /// Its name.
    pub txn: TxnId,
    /// All partitions that take part, ascending.
    pub participants: Arc<[PartitionId]>,
    /// Which try of its client.
    pub attempt: u32,
    /// The timestamp of that try.
    pub at: Version,
}

/// What a replica holds of a transaction that has not ended.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Which, and which try of it.
    pub name: Name,
    /// What it does here; nothing where its client was never heard.
    pub part: Option<Arc<Part>>,
    /// The replica's own vote, or what it has accepted.
    pub vote: Option<Vote>,
    /// Under whose ballot it has accepted that; `None` where it is its own vote.
    pub accepted: Option<Ballot>,
    /// Whoever coordinates below this ballot is not listened to.
    pub promised: Ballot,
}

/// A transaction that has ended.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// Which.
    pub txn: TxnId,
    /// All partitions that took part.
    pub participants: Arc<[PartitionId]>,
    /// How.
    pub verdict: Verdict,
    /// What it did at the receiver's partition, where the sender knows.
    pub part: Option<Arc<Part>>,
}

impl Ended {
    /// Whether whoever says this to a replica of its own partition has all that it needs itself.
    pub fn whole(&self) -> bool {
        self.part.is_some() || self.verdict == Verdict::Abort
    }
}

/// Everything that is said.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Client to replica: the latest versions of these keys.
    Read {
        /// For whom.
        txn: TxnId,
        /// Which.
        keys: Arc<[Blob]>,
    },
    /// The answer, in the order of the keys.
    Values {
        /// For whom.
        txn: TxnId,
        /// Version and value of each key.
        values: Vec<(Version, Option<Blob>)>,
    },
    /// Client to replica: PROPOSE of the consensus operation Prepare.
    Prepare {
        /// Which, and which try.
        name: Name,
        /// What it does at this partition.
        part: Arc<Part>,
        /// The latest view of the partition that the client knows of.
        view: u64,
        /// The client proposes nothing any more with a lower sequence.
        below: u64,
        /// All transactions of this client with a lower sequence have ended at every replica of theirs.
        done: u64,
        /// These as well.
        cleared: Vec<u64>,
    },
    /// The answer: a vote, or what was agreed on.
    Voted {
        /// Which.
        txn: TxnId,
        /// Which try.
        attempt: u32,
        /// The view of the partition.
        view: u64,
        /// The vote.
        vote: Vote,
        /// Whether it is what a coordinator or a view change has settled, and not the replica's own vote.
        finalized: bool,
    },
    /// A coordinator to replica: FINALIZE of Prepare.
    Finalize {
        /// Which, and which try.
        name: Name,
        /// Who coordinates.
        ballot: Ballot,
        /// The view that this holds in.
        view: u64,
        /// The result.
        vote: Vote,
        /// What it does at this partition, for who was not told.
        part: Option<Arc<Part>>,
    },
    /// The answer: CONFIRM.
    Confirmed {
        /// Which.
        txn: TxnId,
        /// Which try.
        attempt: u32,
        /// Of whom.
        ballot: Ballot,
        /// In which view.
        view: u64,
    },
    /// PROPOSE of the inconsistent operations Commit and Abort.
    Decide {
        /// How it ended.
        ended: Ended,
    },
    /// The answer: it is written down.
    Noted {
        /// Which.
        txn: TxnId,
    },
    /// FINALIZE of Commit or Abort: it is executed now.
    Settle {
        /// Which.
        txn: TxnId,
    },
    /// Client to replica: these transactions have ended at every replica of theirs, so nobody will ask.
    Cleared {
        /// Of whom.
        client: ClientId,
        /// All with a lower sequence.
        done: u64,
        /// These as well.
        sequences: Vec<u64>,
    },
    /// Client to replica: which keys are here?
    List {
        /// The name of the question.
        ask: CommandId,
        /// The question.
        query: Query,
    },
    /// The answer.
    Listed {
        /// The name of the question.
        ask: CommandId,
        /// The answer.
        page: Page,
    },
    /// Replica to client: it has ended like this.
    Told {
        /// Which.
        txn: TxnId,
        /// How.
        verdict: Verdict,
    },
    /// Replica to replica of all participants: let me end this transaction.
    Inquire {
        /// Which, as far as the sender knows it.
        name: Name,
        /// The sender's ballot.
        ballot: Ballot,
    },
    /// The answer: nobody with a lower ballot is listened to any more; this is what was voted so far.
    Promised {
        /// The answer to which.
        ballot: Ballot,
        /// In which view.
        view: u64,
        /// What is held.
        held: Held,
        /// Whether that is all that ever was, and nothing of it may be forgotten.
        sure: bool,
    },
    /// The answer: another one has a higher ballot.
    Outbid {
        /// Which.
        txn: TxnId,
        /// The highest ballot promised.
        promised: Ballot,
    },
    /// Replica to replica: these have ended.
    Spread {
        /// Which, and how.
        ended: Vec<Ended>,
        /// Whether the sender has written them down itself, with all that it needs.
        noted: bool,
    },
    /// The answer: these are written down here.
    Has {
        /// Which.
        txns: Vec<TxnId>,
    },
    /// Replica to replica of its partition: what did this transaction do here?
    Ask {
        /// Which.
        txn: TxnId,
    },
    /// The answer, also to [`Message::Inquire`]: it has ended, everywhere or as a majority knows, and is forgotten.
    Gone {
        /// Which.
        txn: TxnId,
    },
    /// Replica to replica: let us change to this view.
    ChangeView {
        /// Which.
        view: u64,
    },
    /// Replica to the leader of a new view: what it has of all that has not ended everywhere.
    Records {
        /// The new view.
        view: u64,
        /// The last view in which the sender was normal.
        normal: u64,
        /// What has not ended.
        held: Vec<Held>,
        /// What has, and the leader may not know.
        ended: Vec<Ended>,
    },
    /// The new view begins with this.
    StartView {
        /// Which.
        view: u64,
        /// What has not ended, all agreed on.
        held: Vec<Held>,
        /// What has, and the receiver may not know.
        ended: Vec<Ended>,
    },
    /// A replica that has heard of a later view asks one in it for its beginning.
    Fetch {
        /// The sender's view.
        view: u64,
    },
    /// Client to client.
    Forward(Forward),
}

impl Carries for Message {
    fn carry(forward: Forward) -> Message {
        Message::Forward(forward)
    }

    fn carried(self) -> Result<Forward, Message> {
        if let Message::Forward(forward) = self { Ok(forward) } else { Err(self) }
    }
}

impl Said for Message {
    fn carries(&self) -> bool {
        match self {
            Message::Values { .. }
            | Message::Prepare { .. }
            | Message::Listed { .. }
            | Message::Promised { .. }
            | Message::Records { .. }
            | Message::StartView { .. } => true,
            Message::Finalize { part, .. } => part.is_some(),
            Message::Decide { ended } => ended.part.is_some(),
            Message::Spread { ended, .. } => ended.iter().any(|ended| ended.part.is_some()),
            _ => false,
        }
    }
}

impl Message {
    /// Whether all partitions that it names are among so many.
    pub(super) fn names_partitions_below(&self, count: usize) -> bool {
        let known = |all: &[PartitionId]| all.iter().all(|partition| usize::from(partition.0) < count);
        let held = |held: &Held| known(&held.name.participants);
        let ended = |ended: &Ended| known(&ended.participants);
        match self {
            Message::Prepare { name, .. }
            | Message::Finalize { name, .. }
            | Message::Inquire { name, .. } => known(&name.participants),
            Message::Promised { held: of, .. } => held(of),
            Message::Decide { ended: of } => ended(of),
            Message::Spread { ended: all, .. } => all.iter().all(ended),
            Message::Records { held: open, ended: all, .. }
            | Message::StartView { held: open, ended: all, .. } => {
                open.iter().all(held) && all.iter().all(ended)
            }
            Message::Read { .. }
            | Message::Values { .. }
            | Message::Voted { .. }
            | Message::Confirmed { .. }
            | Message::Noted { .. }
            | Message::Settle { .. }
            | Message::Cleared { .. }
            | Message::List { .. }
            | Message::Listed { .. }
            | Message::Forward(_)
            | Message::Told { .. }
            | Message::Outbid { .. }
            | Message::Has { .. }
            | Message::Ask { .. }
            | Message::Gone { .. }
            | Message::ChangeView { .. }
            | Message::Fetch { .. } => true,
        }
    }
}

/// What a replica writes down.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Record {
    /// Its vote.
    Voted {
        /// For what.
        name: Name,
        /// What that does here.
        part: Arc<Part>,
        /// The vote.
        vote: Vote,
        /// Its client proposes nothing any more with a lower sequence.
        below: u64,
        /// What its client has with a lower sequence has ended everywhere.
        done: u64,
    },
    /// What a coordinator told it to accept.
    Accepted {
        /// For what.
        name: Name,
        /// What that does here, where that was not known.
        part: Option<Arc<Part>>,
        /// Who told.
        ballot: Ballot,
        /// What.
        vote: Vote,
    },
    /// It listens to nobody below this ballot.
    Promised {
        /// Of what.
        name: Name,
        /// The ballot.
        ballot: Ballot,
    },
    /// How a transaction ended.
    Noted {
        /// Which.
        ended: Ended,
    },
    /// That was executed.
    Executed {
        /// Which.
        txn: TxnId,
    },
    /// Nobody will ask for it any more.
    Dropped {
        /// Which.
        txn: TxnId,
    },
    /// It is too long ago, and was dropped although somebody may still ask.
    Forgotten {
        /// Which.
        txn: TxnId,
    },
    /// It takes part in no view below this one any more.
    Changing {
        /// Which.
        view: u64,
    },
    /// A view begins.
    Installed {
        /// Which.
        view: u64,
        /// What was agreed on.
        held: Vec<Held>,
        /// What has ended.
        ended: Vec<Ended>,
    },
}

/// A note of TAPIR's processes.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Note(pub Fact);

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        Some(self.0.clone())
    }
}

/// What a client writes down: nothing, since a client that restarts is another one.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Nothing {}
