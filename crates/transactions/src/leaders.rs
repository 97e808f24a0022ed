//! Who leads which partition, as far as somebody knows.

use crate::map::{Group, Map};
use isochrone_core::{PartitionId, ProcessId};
use std::sync::Arc;

/// The leaders that somebody last heard of: at first those that lead first.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Leaders {
    groups: Arc<[Group]>,
    known: Vec<ProcessId>,
}

impl Leaders {
    pub fn new(map: &Map) -> Leaders {
        Leaders { groups: map.groups.clone(), known: map.groups.iter().map(Group::leader).collect() }
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// A process speaks as the leader of a partition, or is said to be. Whether it may be.
    pub fn note(&mut self, partition: PartitionId, process: ProcessId) -> bool {
        let at = usize::from(partition.0);
        let Some(group) = self.groups.get(at) else { return false };
        let is_member = group.members.iter().any(|member| member.process == process);
        if is_member {
            self.known[at] = process;
        }
        is_member
    }

    /// Whom to ask that leads a partition, after so many questions without an answer: the one that is known, then
    /// one after the other.
    pub fn target(&self, partition: PartitionId, attempts: u32) -> ProcessId {
        let (at, attempts) = (usize::from(partition.0), attempts as usize);
        let (known, members) = (self.known[at], &self.groups[at].members);
        let place = members.iter().position(|member| member.process == known).unwrap_or(0);
        members[(place + attempts.saturating_sub(1)) % members.len()].process
    }
}
