//! Who leads which partition, and who its members are, as far as somebody knows.

use crate::group::Note;
use crate::map::{Group, Map};
use isochrone_core::{Effects, Fact, Instant, PartitionId, Process, ProcessId, Span};
use isochrone_replication::order::Member;
use std::sync::Arc;

/// The leaders and members that somebody last heard of: at first those that lead first, and those of the file.
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
    /// How many members were, since one last spoke as the leader.
    silent: usize,
    /// How often another was asked beside it, since then.
    asked: usize,
    /// How many changes led to these members.
    version: u32,
    members: Arc<[Member]>,
}

impl Known {
    /// Who may know who leads: the members, and then all who may have become such, or were.
    fn candidates(&self, group: &Group) -> Vec<ProcessId> {
        let mut candidates: Vec<_> = self.members.iter().map(|member| member.process).collect();
        let others = group.processes().filter(|process| !candidates.contains(process));
        candidates.extend(others.collect::<Vec<_>>());
        candidates
    }
}

impl Leaders {
    pub fn new(map: &Map) -> Leaders {
        let first = |group: &Group| Known {
            process: group.leader(),
            heard: Instant::ZERO,
            turned: Instant::ZERO,
            silent: 0,
            asked: 0,
            version: 0,
            members: group.members.clone(),
        };
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

    /// The members of a partition.
    pub fn members(&self, partition: PartitionId) -> &Arc<[Member]> {
        &self.known[usize::from(partition.0)].members
    }

    /// A replica of a partition says who its members are, after so many changes. Whoever is none of them does not lead.
    /// Whether that is news.
    pub fn learn(&mut self, partition: PartitionId, version: u32, members: &Arc<[Member]>) -> bool {
        let known = self.known.get_mut(usize::from(partition.0));
        let known = known.filter(|known| known.version < version && !members.is_empty());
        let news = known.is_some();
        if let Some(known) = known {
            (known.version, known.members) = (version, members.clone());
            let members = || known.members.iter().map(|member| member.process);
            if self.own != Some(partition) && !members().any(|process| process == known.process) {
                known.process = members().next().unwrap_or(known.process);
            }
        }
        news
    }

    /// A client hears of the members, perhaps from who leads.
    pub fn heard<C: Process<Mark = Note>>(
        &mut self,
        from: ProcessId,
        version: u32,
        members: &Arc<[Member]>,
        leads: bool,
        effects: &mut Effects<C>,
    ) {
        let partition = from.partition;
        if self.learn(partition, version, members) {
            let nodes = members.iter().map(|member| member.process.node).collect();
            effects.mark(Note::Fact(Fact::Members { partition, version, nodes }));
        }
        if leads {
            self.note(partition, from, effects.now());
        }
    }

    /// Whom to ask, for the first time or again, where an answer may be long in coming: the one that is known, and again
    /// the others by turns too, who tell who leads if they know better.
    pub fn ask(&mut self, partition: PartitionId, again: bool) -> impl Iterator<Item = ProcessId> + use<> {
        let at = usize::from(partition.0);
        let known = &mut self.known[at];
        let leader = known.process;
        let other = (again && self.own != Some(partition)).then(|| {
            known.asked += 1;
            let candidates = known.candidates(&self.groups[at]);
            let place = candidates.iter().position(|process| *process == leader).unwrap_or(0);
            candidates[(place + known.asked) % candidates.len()]
        });
        std::iter::once(leader).chain(other.filter(|other| *other != leader))
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
        let may = group.processes().any(|known| known == process)
            || self.known[at].members.iter().any(|member| member.process == process);
        if may && self.own != Some(partition) {
            let known = &mut self.known[at];
            (known.process, known.heard, known.silent, known.asked) = (process, now, 0, 0);
        }
        may
    }

    /// A question was not answered in time: if nothing at all was heard for so long, another is asked from now on, who
    /// knows better or is silent too: the members in turn, and then whoever else may be one by now.
    pub fn doubt(&mut self, partition: PartitionId, now: Instant, patience: Span) {
        let at = usize::from(partition.0);
        let known = &mut self.known[at];
        // Once for all who doubt at about the same time.
        let doubted = now.since(known.heard) >= patience && now.since(known.turned) >= patience / 2;
        if doubted && self.own != Some(partition) {
            let candidates = known.candidates(&self.groups[at]);
            let (members, all) = (known.members.len(), candidates.len());
            let next = match candidates.iter().position(|process| *process == known.process) {
                Some(place) if place < members => {
                    known.silent += 1;
                    if known.silent < members || members == all { (place + 1) % members } else { members }
                }
                Some(place) if place + 1 < all => place + 1,
                _ => {
                    known.silent = 0;
                    0
                }
            };
            (known.process, known.turned) = (candidates[next], now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Split;
    use isochrone_core::{KeyspaceId, NodeId, ReplicaId};
    use isochrone_replication::order::Member;

    fn process(node: u16) -> ProcessId {
        ProcessId {
            node: NodeId(node),
            keyspace: KeyspaceId(1),
            partition: PartitionId(0),
            role: crate::SERVER,
            instance: 0,
        }
    }

    fn member(node: u16) -> Member {
        Member { replica: ReplicaId(node as u8), process: process(node) }
    }

    #[test]
    fn who_is_silent_is_passed_over_and_who_speaks_is_not() {
        let groups = [Group { members: (0..3).map(member).collect(), spares: [].into() }].into();
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
            |leaders: &mut Leaders, again| leaders.ask(p, again).map(|to| to.node.0).collect::<Vec<_>>();
        leaders.note(p, process(1), at(8));
        let all: Vec<_> = [false, true, true, true].map(|again| asked(&mut leaders, again)).into();
        assert_eq!(all, [vec![1], vec![1, 2], vec![1, 0], vec![1]]);
        leaders.lead(p, Some(process(2)), at(8));
        leaders.note(p, process(1), at(9));
        leaders.doubt(p, at(100), second);
        assert_eq!(asked(&mut leaders, true), [2]);
        leaders.lead(p, None, at(100));
        leaders.note(p, process(1), at(100));
        assert_eq!(leaders.of(p), process(1));
    }

    /// Seed 14,932 of `replicas_come_and_go`: a client stayed with one that was no member any more.
    #[test]
    fn members_are_asked_before_those_who_are_none_and_all_are_in_the_end() {
        let group = Group { members: (0..3).map(member).collect(), spares: [process(7)].into() };
        let groups = [group].into();
        let mut leaders = Leaders::new(&Map { keyspace: KeyspaceId(1), split: Split::Hash, groups });
        let (p, second) = (PartitionId(0), Span::from_secs(1));
        let mut now = Instant::ZERO;
        let asked = |leaders: &mut Leaders, now: &mut Instant, times: usize| -> Vec<u16> {
            let mut nodes = Vec::new();
            for _ in 0..times {
                *now = *now + second;
                leaders.doubt(p, *now, second);
                nodes.push(leaders.of(p).node.0);
            }
            nodes
        };
        assert!(leaders.note(p, process(2), Instant::ZERO) && !leaders.note(p, process(9), Instant::ZERO));
        assert_eq!(asked(&mut leaders, &mut now, 8), [0, 1, 7, 0, 1, 2, 7, 0]);
        leaders.learn(p, 2, &[member(2), member(7)].into());
        leaders.learn(p, 1, &[member(0), member(1)].into());
        assert_eq!(leaders.members(p).len(), 2, "older news");
        assert_eq!(leaders.of(p), process(2), "one that does not lead does not stay the one to ask");
        assert!(leaders.note(p, process(7), now));
        assert_eq!(asked(&mut leaders, &mut now, 5), [2, 0, 1, 2, 7]);
    }
}
