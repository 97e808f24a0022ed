//! Who leads which partition, and who its members are, as far as somebody knows.

use crate::group::{Message, Note};
use crate::listing::{AsOf, END, Query};
use crate::map::{Group, Map};
use crate::said::{Said, say_ahead};
use isochrone_core::{
    ClientId, CommandId, Effects, Fact, Instant, PartitionId, Process, ProcessId, Span, Stamp, Wire,
};
use isochrone_replication::order::Member;
use std::sync::Arc;

/// Under what number a client asks whether anybody leads ([`Leaders::probe`]): no ticket that a host draws.
pub(crate) const PROBE: u64 = u64::MAX;
/// How often at most it asks that: who leads confirms each answer with its group.
const PROBE_EVERY: Span = Span::from_millis(500);

/// The leaders and members that somebody last heard of: at first those that lead first, and those of the file.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Leaders {
    groups: Arc<[Group]>,
    known: Vec<Known>,
    /// The partition that this process leads itself.
    own: Option<PartitionId>,
    /// When it was last asked whether anybody leads those where that is in doubt.
    probed: Instant,
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
    /// Whether it is in doubt since then if anybody leads.
    doubted: bool,
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
            doubted: false,
            version: 0,
            members: group.members.clone(),
        };
        let known = map.groups.iter().map(first).collect();
        Leaders { groups: map.groups.clone(), known, own: None, probed: Instant::ZERO }
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

    /// A process speaks as the leader of a partition. Whether it may be that.
    pub fn note(&mut self, partition: PartitionId, process: ProcessId, now: Instant) -> bool {
        let may = self.told(partition, process, now);
        if may {
            self.known[usize::from(partition.0)].doubted = false;
        }
        may
    }

    /// Another says that a process leads a partition. Whether it may. What is in doubt stays so until it has spoken itself: it
    /// may lead, and not be heard here.
    pub fn told(&mut self, partition: PartitionId, process: ProcessId, now: Instant) -> bool {
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

    /// Whether it is in doubt if anybody leads a partition: what need not wait for that one had better not.
    pub fn doubted(&self, partition: PartitionId) -> bool {
        self.known[usize::from(partition.0)].doubted
    }

    /// A question was not answered in time: if nothing at all was heard for so long, it is in doubt if anybody leads, until
    /// one speaks as the leader. Whether nothing was.
    pub fn suspect(&mut self, partition: PartitionId, now: Instant, patience: Span) -> bool {
        let known = &mut self.known[usize::from(partition.0)];
        let silent = now.since(known.heard) >= patience && self.own != Some(partition);
        known.doubted |= silent;
        silent
    }

    /// Asks all who may lead a partition where it is in doubt if anybody does: there may be no other reason to ask, and it
    /// would be doubted for ever. Who leads answers once a majority has confirmed that. Called at every beat of a client, however
    /// fast that is.
    pub fn probe<E, M, C>(&mut self, me: ClientId, effects: &mut Effects<C>)
    where
        E: Wire,
        M: Wire + Said,
        C: Process<Message = Message<E, M>>,
    {
        let now = effects.now();
        if now.since(self.probed) < PROBE_EVERY {
            return;
        }
        let ask = CommandId { client: me, sequence: PROBE };
        let as_of = AsOf::Now { kind: None, stamp: Stamp::ZERO, located: false };
        let query = Query { from: END, most: 1, as_of };
        for (known, group) in self.known.iter().zip(self.groups.iter()).filter(|(known, _)| known.doubted) {
            self.probed = now;
            for process in known.candidates(group) {
                say_ahead(process, Message::List { ask, query: query.clone() }, effects);
            }
        }
    }

    /// A question was not answered in time: if nothing at all was heard for so long, another is asked from now on, who
    /// knows better or is silent too: the members in turn, and then whoever else may be one by now.
    pub fn doubt(&mut self, partition: PartitionId, now: Instant, patience: Span) {
        let silent = self.suspect(partition, now, patience);
        let at = usize::from(partition.0);
        let known = &mut self.known[at];
        // Once for all who doubt at about the same time.
        if silent && now.since(known.turned) >= patience / 2 {
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
    use crate::twopc;
    use isochrone_core::{KeyspaceId, NodeId, Outbox, Random, ReplicaId};
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

    #[test]
    fn whether_anybody_leads_is_in_doubt_until_somebody_is_heard_to() {
        let groups = [Group { members: (0..3).map(member).collect(), spares: [].into() }].into();
        let mut leaders = Leaders::new(&Map { keyspace: KeyspaceId(1), split: Split::Hash, groups });
        let (at, second) = (|seconds| Instant::ZERO + Span::from_secs(seconds), Span::from_secs(1));
        let p = PartitionId(0);
        leaders.note(p, process(1), at(5));
        leaders.doubt(p, at(5), second);
        assert!(!leaders.doubted(p), "it was heard of just then");
        leaders.doubt(p, at(6), second);
        assert!(leaders.doubted(p));
        leaders.note(p, process(2), at(6));
        assert!(!leaders.doubted(p));
        assert!(!leaders.suspect(p, at(6), second) && leaders.suspect(p, at(7), second));
        assert!(leaders.doubted(p) && leaders.of(p) == process(2), "the same one is asked");
        leaders.lead(p, Some(process(0)), at(8));
        assert!(!leaders.suspect(p, at(100), second) && !leaders.doubted(p), "it leads itself");
    }

    /// A client that only lacks the line to who leads is told by the others that it does.
    #[test]
    fn that_others_say_who_leads_ends_no_doubt() {
        let groups = [Group { members: (0..3).map(member).collect(), spares: [].into() }].into();
        let mut leaders = Leaders::new(&Map { keyspace: KeyspaceId(1), split: Split::Hash, groups });
        let (at, second) = (|seconds| Instant::ZERO + Span::from_secs(seconds), Span::from_secs(1));
        let p = PartitionId(0);
        leaders.doubt(p, at(5), second);
        assert_eq!(leaders.of(p), process(1));
        assert!(leaders.told(p, process(0), at(5)) && !leaders.told(p, process(7), at(5)));
        assert!(leaders.doubted(p) && leaders.of(p) == process(0));
        leaders.note(p, process(0), at(5));
        assert!(!leaders.doubted(p));
        leaders.told(p, process(2), at(6));
        assert!(!leaders.doubted(p) && leaders.of(p) == process(2), "it is no reason to doubt either");
    }

    #[test]
    fn whether_anybody_leads_is_asked_twice_a_second_at_most() {
        let groups = [Group { members: (0..3).map(member).collect(), spares: [].into() }].into();
        let mut leaders = Leaders::new(&Map { keyspace: KeyspaceId(1), split: Split::Hash, groups });
        let me = ClientId { process: ProcessId { role: crate::CLIENT, ..process(0) }, incarnation: 1 };
        let mut outbox = Outbox::<twopc::Client>::new(me.process, Random::seeded(1));
        let mut asked = |leaders: &mut Leaders, millis| {
            leaders.probe(me, outbox.input(Instant::ZERO + Span::from_millis(millis), Stamp::ZERO));
            outbox.drain().count()
        };
        assert_eq!(asked(&mut leaders, 900), 0, "nobody is doubted");
        leaders.suspect(PartitionId(0), Instant::ZERO + Span::from_secs(1), Span::ZERO);
        let times = [1_000, 1_001, 1_499, 1_500, 1_999, 2_600];
        assert_eq!(times.map(|millis| asked(&mut leaders, millis)), [3, 0, 0, 3, 0, 3]);
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
