//! Transactions with a verdict that not all replicas know yet, at their client.

use super::message::{Ended, Part, Verdict};
use crate::map::Map;
use crate::request::TxnId;
use isochrone_core::{Instant, PartitionId, ProcessId, Quorums};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Times that replicas are told before that is left to the other replicas.
pub const TELLS: u32 = 6;

/// A transaction that has ended.
#[derive(Clone, Hash, Debug)]
pub struct Closing {
    /// How.
    pub verdict: Verdict,
    /// Where, ascending.
    pub participants: Arc<[PartitionId]>,
    /// What it did there.
    pub parts: BTreeMap<PartitionId, Arc<Part>>,
    /// Who knows.
    pub noted: BTreeSet<ProcessId>,
    /// The partitions where no majority knows.
    pub open: BTreeSet<PartitionId>,
    /// When the others are told again.
    pub due: Instant,
    /// How often they were.
    pub tries: u32,
}

impl Closing {
    /// What a replica of a partition is told; what was done there only if it may not have heard.
    pub fn ended(&self, txn: TxnId, partition: PartitionId) -> Ended {
        let part = self.parts.get(&partition).filter(|_| self.tries > 0).cloned();
        Ended { txn, participants: self.participants.clone(), verdict: self.verdict, part }
    }

    /// A replica knows. Whether a majority of its partition does by that.
    pub fn note(&mut self, map: &Map, from: ProcessId) -> bool {
        self.noted.insert(from);
        let members = &map.group(from.partition).members;
        let known = members.iter().filter(|member| self.noted.contains(&member.process)).count();
        known >= Quorums::majority(members.len()) && self.open.remove(&from.partition)
    }

    /// The replicas that are not known to know.
    pub fn lacking(&self, map: &Map) -> Vec<ProcessId> {
        let members = self.participants.iter().flat_map(|at| map.group(*at).members.iter());
        members.map(|member| member.process).filter(|replica| !self.noted.contains(replica)).collect()
    }
}
