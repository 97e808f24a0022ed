//! Who leads which partition, as far as somebody knows.

use crate::map::{Group, Map};
use isochrone_core::{Instant, PartitionId, ProcessId, Span};
use std::sync::Arc;

/// The leaders that somebody last heard of: at first those that lead first.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Leaders {
    groups: Arc<[Group]>,
    known: Vec<Known>,
    /// The partition that this process leads itself.
    own: Option<PartitionId>,
}

#[derive(Clone, Hash, Debug)]
struct Known {
    process: ProcessId,
    /// When it last spoke as the leader, or was said to be.
    heard: Instant,
    /// When another was last passed over for it.
    turned: Instant,
}

impl Leaders {
    pub fn new(map: &Map) -> Leaders {
        let first =
            |group: &Group| Known { process: group.leader(), heard: Instant::ZERO, turned: Instant::ZERO };
        Leaders { groups: map.groups.clone(), known: map.groups.iter().map(first).collect(), own: None }
    }

    /// How many partitions there are.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whom to ask that leads a partition.
    pub fn of(&self, partition: PartitionId) -> ProcessId {
        self.known[usize::from(partition.0)].process
    }

    /// Whom to ask after so many questions without an answer, where an answer may be long in coming: the one that is
    /// known, and the others by turns, who tell who leads if they know better.
    pub fn ask(&self, partition: PartitionId, attempts: u32) -> impl Iterator<Item = ProcessId> + use<> {
        let (known, members) = (self.of(partition), &self.groups[usize::from(partition.0)].members);
        let place = members.iter().position(|member| member.process == known).unwrap_or(0);
        let other = members[(place + attempts as usize) % members.len()].process;
        let other = (other != known && self.own != Some(partition)).then_some(other);
        std::iter::once(known).chain(other)
    }

    /// This process leads a partition itself, or does not any more.
    pub fn lead(&mut self, partition: PartitionId, me: Option<ProcessId>, now: Instant) {
        self.own = None;
        if let Some(me) = me {
            self.note(partition, me, now);
            self.own = Some(partition);
        }
    }

    /// A process speaks as the leader of a partition, or is said to be. Whether it may be.
    pub fn note(&mut self, partition: PartitionId, process: ProcessId, now: Instant) -> bool {
        let at = usize::from(partition.0);
        let Some(group) = self.groups.get(at) else { return false };
        let is_member = group.members.iter().any(|member| member.process == process);
        if is_member && self.own != Some(partition) {
            (self.known[at].process, self.known[at].heard) = (process, now);
        }
        is_member
    }

    /// A question was not answered in time: if nothing at all was heard for so long, the next member is asked from now
    /// on, who knows better or is silent too.
    pub fn doubt(&mut self, partition: PartitionId, now: Instant, patience: Span) {
        let at = usize::from(partition.0);
        let (known, members) = (&mut self.known[at], &self.groups[at].members);
        // Once for all who doubt at about the same time.
        let doubted = now.since(known.heard) >= patience && now.since(known.turned) >= patience / 2;
        if doubted && self.own != Some(partition) {
            let place = members.iter().position(|member| member.process == known.process).unwrap_or(0);
            (known.process, known.turned) = (members[(place + 1) % members.len()].process, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Split;
    use isochrone_core::{KeyspaceId, NodeId, ReplicaId};
    use isochrone_replication::order::Member;

    #[test]
    fn who_is_silent_is_passed_over_and_who_speaks_is_not() {
        let process = |node| ProcessId {
            node: NodeId(node),
            keyspace: KeyspaceId(1),
            partition: PartitionId(0),
            role: crate::SERVER,
            instance: 0,
        };
        let member = |node: u16| Member { replica: ReplicaId(node as u8), process: process(node) };
        let groups = [Group { members: (0..3).map(member).collect() }].into();
        let mut leaders = Leaders::new(&Map { keyspace: KeyspaceId(1), split: Split::Hash, groups });
        let (at, second) = (|seconds| Instant::ZERO + Span::from_secs(seconds), Span::from_secs(1));
        let p = PartitionId(0);
        assert!(leaders.note(p, process(1), at(5)) && !leaders.note(p, process(7), at(5)));
        leaders.doubt(p, at(5), second);
        assert_eq!(leaders.of(p), process(1));
        leaders.doubt(p, at(6), second);
        leaders.doubt(p, at(6), second);
        assert_eq!(leaders.of(p), process(2));
        leaders.doubt(p, at(7), second);
        assert_eq!(leaders.of(p), process(0));
        let asked =
            |leaders: &Leaders, attempts| leaders.ask(p, attempts).map(|to| to.node.0).collect::<Vec<_>>();
        leaders.note(p, process(1), at(8));
        let all: Vec<_> = (0..4).map(|attempts| asked(&leaders, attempts)).collect();
        assert_eq!(all, [vec![1], vec![1, 2], vec![1, 0], vec![1]]);
        leaders.lead(p, Some(process(2)), at(8));
        leaders.note(p, process(1), at(9));
        leaders.doubt(p, at(100), second);
        assert_eq!(asked(&leaders, 1), [2]);
        leaders.lead(p, None, at(100));
        leaders.note(p, process(1), at(100));
        assert_eq!(leaders.of(p), process(1));
    }
}
