//! What Multi-Paxos notes for metrics and tests.

use super::log;
use isochrone_core::{Fact, Mark};

/// The notes of replicas and clients.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// The log's own.
    Log(log::Note),
    /// In the words all protocols share.
    Fact(Fact),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        match self {
            Note::Log(note) => note.fact(),
            Note::Fact(fact) => Some(fact.clone()),
        }
    }
}
