//! What the replicas tell each other and their clients, write down and wait for.

use crate::curp::Verdicts;
use crate::multipaxos::log;
use crate::order::Reign;
use isochrone_core::{Ballot, CommandId, Fact, Mark, ProcessId, Slot, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The messages of the consensus variant. In the table of the module each stands with its sender and receiver.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<V: Wire> {
    /// Of the log.
    Log(log::Message<V>),
    /// Keep these until they are decided.
    Records {
        /// The reign in which the leader was asked.
        reign: Reign,
        /// The client's incarnation.
        incarnation: u32,
        /// What is replayed: the commands, as if they said nothing of answers that the client has. Replay knows no
        /// order, and what a later command says would void an earlier one (`specs/curp.md` 3.11, D-48).
        values: Vec<V>,
    },
    /// Which of them are kept; durable at its sender.
    Verdicts(Verdicts),
    /// Take no records of older terms from now on, and tell what you hold.
    Freeze {
        /// The new leader's ballot.
        ballot: Ballot,
    },
    /// What a witness holds, behind the durable promise of the ballot (D-32).
    Frozen {
        /// The new leader's ballot.
        ballot: Ballot,
        /// All that is held, each once.
        contents: Arc<[V]>,
    },
    /// These have been in the way of others for long: if nobody has proposed them, nobody will.
    Suspects {
        /// What was recorded.
        values: Vec<V>,
    },
    /// Who are the witnesses?
    Inquire,
    /// The answer of a leader that serves.
    Members {
        /// The reign.
        reign: Reign,
        /// Who leads.
        leader: ProcessId,
        /// The members: all are witnesses.
        witnesses: Arc<[ProcessId]>,
        /// How many must accept.
        needed: u8,
    },
}

/// What a replica writes ahead.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record<V: Wire> {
    /// Of the log.
    Log(log::Record<V>),
    /// The witness keeps these.
    Kept {
        /// What was recorded.
        values: Vec<V>,
        /// Everything before it was decided, and the witness was cleared of it.
        decided: Slot,
        /// The keys and names of all that was held before, where a peer's state has come since the last such record:
        /// how far the witness had been cleared then, a log that takes it in does not know any more.
        held: Option<Vec<(u64, CommandId)>>,
    },
}

/// What a replica waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// Of the log.
    Log(log::Timer),
    /// Too few witnesses have told the new leader what they hold: they are asked again.
    Freeze,
}

/// The notes of a replica.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// Of the log.
    Log(log::Note),
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        match self {
            Note::Log(note) => note.fact(),
            Note::Counted(name) => Some(Fact::Counted(name)),
        }
    }
}
