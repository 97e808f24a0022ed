//! One transaction at its client, from its beginning to its verdict.

use super::message::Part;
use super::round::Round;
use crate::map::Map;
use crate::request::{Read, Update};
use isochrone_core::{Blob, Instant, PartitionId, Ticket};
use isochrone_store::versions::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A transaction that has no verdict yet.
#[derive(Clone, Hash, Debug)]
pub struct Transaction {
    /// The request that waits; `None` where the host has lost interest or has nothing asked.
    pub ticket: Option<Ticket>,
    /// Which handle of its client process it has.
    pub handle: usize,
    /// When that was asked.
    pub asked: Instant,
    /// When it is given up.
    pub limit: Instant,
    /// What is read, in the order that was asked for.
    pub reads: Vec<Blob>,
    /// What may be written.
    pub writes: BTreeSet<Blob>,
    /// What was read.
    pub values: BTreeMap<Blob, (Version, Option<Blob>)>,
    /// How far it is.
    pub state: State,
}

/// How far a transaction is.
#[derive(Clone, Hash, Debug)]
pub enum State {
    /// A partition of it does not know yet how an earlier one of this client ended.
    Waiting,
    /// Reads are under way.
    Reading(BTreeMap<PartitionId, Reading>),
    /// Its host works on it.
    Open,
    /// Its partitions are asked whether it may commit.
    Preparing(Preparing),
}

/// The reads of one partition.
#[derive(Clone, Hash, Debug)]
pub struct Reading {
    /// What is read there.
    pub keys: Arc<[Blob]>,
    /// Which of the nearest replicas was asked first.
    pub first: usize,
    /// How many replicas were asked before.
    pub tries: u32,
    /// Whether there is an answer.
    pub answered: bool,
    /// When the next replica is asked.
    pub due: Instant,
}

/// One try to commit.
#[derive(Clone, Hash, Debug)]
pub struct Preparing {
    /// Which, from 0.
    pub attempt: u32,
    /// Its timestamp.
    pub at: Version,
    /// The partitions, ascending.
    pub participants: Arc<[PartitionId]>,
    /// What each has said.
    pub rounds: BTreeMap<PartitionId, Round>,
    /// When a majority of votes becomes enough.
    pub fast_until: Option<Instant>,
    /// When those who have not answered are asked again.
    pub resend: Instant,
    /// When all are.
    pub again: Instant,
}

impl Transaction {
    /// The partitions that it touches.
    pub fn touches(&self, map: &Map) -> BTreeSet<PartitionId> {
        self.reads.iter().chain(&self.writes).map(|key| map.partition(key)).collect()
    }

    /// What is read, by partition.
    pub fn asks(&self, map: &Map) -> BTreeMap<PartitionId, Vec<Blob>> {
        let mut asks: BTreeMap<PartitionId, Vec<Blob>> = BTreeMap::new();
        for key in &self.reads {
            asks.entry(map.partition(key)).or_default().push(key.clone());
        }
        asks
    }

    /// What was read and is written, by partition.
    pub fn parts(&self, map: &Map, updates: Vec<Update>) -> BTreeMap<PartitionId, Arc<Part>> {
        let mut parts: BTreeMap<PartitionId, Part> = BTreeMap::new();
        for key in &self.reads {
            let seen = self.values.get(key).map_or(Version::NONE, |(version, _)| *version);
            parts.entry(map.partition(key)).or_default().reads.push((key.clone(), seen));
        }
        for update in updates {
            parts.entry(map.partition(&update.key)).or_default().writes.push(update);
        }
        parts.into_iter().map(|(partition, part)| (partition, Arc::new(part))).collect()
    }

    /// What was read, in the order that was asked for.
    pub fn answer(&self) -> Vec<Read> {
        let read = |key: &Blob| {
            let (version, value) = self.values.get(key).cloned().unwrap_or_default();
            Read { key: key.clone(), value, version }
        };
        self.reads.iter().map(read).collect()
    }

    /// The latest version read.
    pub fn newest(&self) -> Version {
        self.values.values().map(|(version, _)| *version).max().unwrap_or_default()
    }

    /// When something is next to be done about it.
    pub fn due(&self) -> Instant {
        let due = match &self.state {
            State::Waiting | State::Open => Instant::MAX,
            State::Reading(parts) => {
                let open = parts.values().filter(|reading| !reading.answered);
                open.map(|reading| reading.due).min().unwrap_or(Instant::MAX)
            }
            State::Preparing(preparing) => {
                let Preparing { fast_until, resend, again, .. } = preparing;
                fast_until.unwrap_or(Instant::MAX).min(*resend).min(*again)
            }
        };
        due.min(self.limit)
    }
}
