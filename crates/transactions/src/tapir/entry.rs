//! What a replica knows of one transaction.

use super::message::{Ballot, Ended, Held, Name, Part, Verdict, Vote};
use isochrone_core::{Instant, ProcessId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One transaction at one replica.
#[derive(Clone, Hash, Debug)]
pub struct Entry {
    /// Which, and the latest try of it that is known here.
    pub name: Name,
    /// What it does here.
    pub part: Option<Arc<Part>>,
    /// The vote, or what was accepted.
    pub vote: Option<Vote>,
    /// Whether this replica has checked a try itself and found nothing in its way. It then holds the transaction until its
    /// end is known, whatever else it accepts or votes meanwhile: others may still settle on what this vote has helped to.
    pub checked: bool,
    /// Under whose ballot that was accepted.
    pub accepted: Option<Ballot>,
    /// Whoever coordinates below this is not listened to.
    pub promised: Ballot,
    /// How it ended.
    pub verdict: Option<Verdict>,
    /// Whether what it wrote is in the store, or an abort has released what it held.
    pub executed: bool,
    /// Whether it was agreed on in the change to the present view.
    pub merged: bool,
    /// Since when it is as it is, by the clock of this life.
    pub since: Instant,
    /// Replicas that are known to have written down how it ended.
    pub noted: BTreeSet<ProcessId>,
    /// When something is next done about it, and how often it was.
    pub due: Instant,
    /// How often it was told to others.
    pub told: u32,
}

impl Entry {
    /// One that nothing but the name is known of.
    pub fn new(name: Name) -> Entry {
        Entry {
            name,
            part: None,
            vote: None,
            checked: false,
            accepted: None,
            promised: Ballot::CLIENT,
            verdict: None,
            executed: false,
            merged: false,
            since: Instant::ZERO,
            noted: BTreeSet::new(),
            due: Instant::ZERO,
            told: 0,
        }
    }

    /// Whether it has ended and this replica has all it needs to execute that.
    pub fn complete(&self) -> bool {
        match self.verdict {
            Some(Verdict::Commit(_)) => self.part.is_some(),
            Some(Verdict::Abort) => true,
            None => false,
        }
    }

    /// What others are told of it while it has not ended.
    pub fn held(&self) -> Held {
        Held {
            name: self.name.clone(),
            part: self.part.clone(),
            vote: self.vote,
            accepted: self.accepted,
            promised: self.promised,
        }
    }

    /// What others are told of its end; what it did here only to a replica of this partition.
    pub fn ended(&self, here: bool) -> Option<Ended> {
        let part = self.part.clone().filter(|_| here);
        let Name { txn, participants, .. } = &self.name;
        Some(Ended { txn: *txn, participants: participants.clone(), verdict: self.verdict?, part })
    }

    /// Whether it stands in the way of others; what was committed does until it is executed, whoever has voted for it.
    pub fn stands(&self) -> bool {
        let commits = matches!(self.verdict, Some(Verdict::Commit(_)));
        let holds = self.checked || self.vote == Some(Vote::Ok) || commits;
        holds && !self.executed
    }
}
