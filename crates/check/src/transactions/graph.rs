//! Which transaction must come before which, and the shortest circle among them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Isolation;
use super::history::Transactions;
use super::versions::Versions;
use crate::planted::{Mutation, planted};

/// Why one transaction comes before another.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Why {
    /// It wrote the version before this one.
    Overwritten { earlier: u32, later: u32 },
    /// It wrote the version that the other read.
    Read { reading: u32 },
    /// It read what the other overwrote with this version.
    Anti { reading: u32, later: u32, predicate: bool },
    /// It ended before the other began.
    Time,
}

/// Sets of kinds of edges.
pub(super) type Kinds = u8;
pub(super) const OVERWRITES: Kinds = 1;
pub(super) const READS: Kinds = 2;
pub(super) const ANTI: Kinds = 4;
pub(super) const TIME: Kinds = 8;
/// Anti-dependencies of what a predicate did not find.
pub(super) const PREDICATES: Kinds = 16;
pub(super) const ALL: Kinds = OVERWRITES | READS | ANTI | TIME | PREDICATES;

impl Why {
    fn kind(self) -> Kinds {
        match self {
            Why::Overwritten { .. } => OVERWRITES,
            Why::Read { .. } => READS,
            Why::Anti { predicate: false, .. } => ANTI,
            Why::Anti { predicate: true, .. } => PREDICATES,
            Why::Time => TIME,
        }
    }
}

/// One step of a circle: this transaction comes before the next one in it, and the last before the first.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Link {
    pub(super) from: u32,
    pub(super) why: Why,
}

/// Transactions are nodes by their index; behind them stand moments, each before the next, so that real time costs two
/// edges a transaction instead of one for each pair.
pub(super) struct Graph {
    transactions: usize,
    starts: Vec<u32>,
    edges: Vec<(u32, Why)>,
    /// When a node stands in a serial order, where nothing else decides.
    when: Vec<u64>,
}

/// Edges that the search for a short circle may follow: after that, the shortest found so far stands.
const VISITS_MAX: u64 = 50_000_000;

impl Graph {
    pub(super) fn of(history: &Transactions, versions: &Versions, isolation: Isolation) -> Graph {
        let mut pairs: Vec<(u32, u32, Why)> = Vec::new();
        let of = |version: u32| versions.versions[version as usize].of;
        let mut push = |from: u32, to: u32, why: Why| {
            if from != to {
                pairs.push((from, to, why));
            }
        };
        for (earlier, later) in &versions.follows {
            if let Some(earlier) = *earlier {
                push(of(earlier), of(*later), Why::Overwritten { earlier, later: *later });
            }
        }
        for (reading, number) in versions.readings.iter().zip(0..) {
            if let Some(version) = reading.seen {
                push(of(version), reading.of, Why::Read { reading: number });
            }
            for later in versions.behind(reading.key, reading.seen) {
                let why = Why::Anti { reading: number, later: *later, predicate: reading.predicate };
                push(reading.of, of(*later), why);
            }
        }
        let transactions = history.list.len();
        let mut when: Vec<u64> = history.list.iter().map(|one| one.returned.unwrap_or(u64::MAX)).collect();
        if isolation != Isolation::Serializable {
            let timed = |index: &u32| {
                let one = &history.list[*index as usize];
                versions.effective[*index as usize]
                    && (isolation == Isolation::StrictlySerializable || one.updates())
            };
            let all: Vec<u32> = (0..transactions as u32).filter(timed).collect();
            let mut ends: Vec<(u64, u32)> = all
                .iter()
                .filter_map(|index| Some((history.list[*index as usize].returned?, *index)))
                .collect();
            ends.sort_unstable();
            for (moment, (time, index)) in ends.iter().enumerate() {
                let node = (transactions + moment) as u32;
                when.push(*time);
                pairs.push((*index, node, Why::Time));
                if moment + 1 < ends.len() {
                    pairs.push((node, node + 1, Why::Time));
                }
            }
            for index in all {
                let invoked = history.list[index as usize].invoked;
                let over = ends.partition_point(|(end, _)| {
                    if planted(Mutation::MeetingOrdered) { *end <= invoked } else { *end < invoked }
                });
                if over > 0 {
                    pairs.push(((transactions + over - 1) as u32, index, Why::Time));
                }
            }
        }
        let mut starts = vec![0u32; when.len() + 1];
        for (from, _, _) in &pairs {
            starts[*from as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        pairs.sort_by_key(|(from, _, _)| *from);
        let edges = pairs.into_iter().map(|(_, to, why)| (to, why)).collect();
        Graph { transactions, starts, edges, when }
    }

    /// How much a search has to go through.
    pub(super) fn size(&self) -> usize {
        self.edges.len() + self.when.len()
    }

    fn edges(&self, node: u32, kinds: Kinds) -> impl Iterator<Item = (u32, Why)> + '_ {
        let (from, to) = (self.starts[node as usize] as usize, self.starts[node as usize + 1] as usize);
        self.edges[from..to].iter().copied().filter(move |(_, why)| why.kind() & kinds != 0)
    }

    /// A shortest circle of these kinds of edges, if there is one.
    pub(super) fn circle(&self, kinds: Kinds) -> Option<Vec<Link>> {
        let components = self.components(kinds);
        let mut search = Search::new(self, kinds, &components.of);
        for component in &components.circular {
            for node in component.iter().filter(|node| (**node as usize) < self.transactions) {
                search.from(*node);
                if search.visits >= VISITS_MAX {
                    break;
                }
            }
        }
        search.best
    }

    /// An order that respects every edge, near the order of time; shorter than the transactions where there is none.
    pub(super) fn order(&self) -> Vec<u32> {
        let transactions = self.transactions as u32;
        self.sorted().into_iter().filter(|node| *node < transactions).collect()
    }

    /// The same with moments.
    fn sorted(&self) -> Vec<u32> {
        let mut waits = vec![0u32; self.when.len()];
        for (to, _) in &self.edges {
            waits[*to as usize] += 1;
        }
        let mut ready: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let free = (0..self.when.len() as u32).filter(|node| waits[*node as usize] == 0);
        ready.extend(free.map(|node| Reverse((self.when[node as usize], node))));
        let mut order = Vec::with_capacity(self.when.len());
        while let Some(Reverse((_, node))) = ready.pop() {
            order.push(node);
            for (to, _) in self.edges(node, ALL) {
                waits[to as usize] -= 1;
                if waits[to as usize] == 0 {
                    ready.push(Reverse((self.when[to as usize], to)));
                }
            }
        }
        order
    }

    /// The fewest steps from one transaction to another: one from each to the next, the last to the other.
    pub(super) fn path(&self, source: u32, target: u32) -> Option<Vec<Link>> {
        let mut reached: Vec<Option<(u32, Why)>> = vec![None; self.when.len()];
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for (to, why) in self.edges(node, ALL).filter(|(to, _)| *to != source) {
                if reached[to as usize].is_none() {
                    reached[to as usize] = Some((node, why));
                    queue.push_back(to);
                }
            }
        }
        let (mut links, mut node) = (Vec::new(), target);
        while node != source {
            let (from, why) = reached[node as usize]?;
            if (from as usize) < self.transactions {
                links.push(Link { from, why });
            }
            node = from;
        }
        links.reverse();
        Some(links)
    }

    /// Strongly connected components, by Tarjan's algorithm without recursion.
    fn components(&self, kinds: Kinds) -> Components {
        const NEW: u32 = u32::MAX;
        let nodes = self.when.len();
        let (mut found, mut low) = (vec![NEW; nodes], vec![0u32; nodes]);
        let mut of = vec![NEW; nodes];
        let (mut stack, mut path): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        let (mut count, mut next, mut circular) = (0u32, 0u32, Vec::new());
        for root in 0..nodes as u32 {
            if found[root as usize] != NEW {
                continue;
            }
            path.push((root, self.starts[root as usize]));
            while let Some((node, at)) = path.last_mut() {
                let node = *node;
                if found[node as usize] == NEW {
                    (found[node as usize], low[node as usize]) = (next, next);
                    next += 1;
                    stack.push(node);
                }
                let end = self.starts[node as usize + 1];
                let mut deeper = None;
                while *at < end {
                    let (to, why) = self.edges[*at as usize];
                    *at += 1;
                    if why.kind() & kinds == 0 {
                        continue;
                    }
                    if found[to as usize] == NEW {
                        deeper = Some(to);
                        break;
                    }
                    if of[to as usize] == NEW {
                        low[node as usize] = low[node as usize].min(found[to as usize]);
                    }
                }
                if let Some(to) = deeper {
                    path.push((to, self.starts[to as usize]));
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    low[*parent as usize] = low[*parent as usize].min(low[node as usize]);
                }
                if low[node as usize] == found[node as usize] {
                    let from = stack.iter().rposition(|other| *other == node).unwrap_or(0);
                    let members = stack.split_off(from);
                    members.iter().for_each(|member| of[*member as usize] = count);
                    count += 1;
                    if members.len() > 1 {
                        circular.push(members);
                    }
                }
            }
        }
        Components { of, circular }
    }
}

/// Who comes behind whom in a graph without circles, for up to 64 sets of transactions at a time, a bit each.
pub(super) struct Reach<'a> {
    graph: &'a Graph,
    order: Vec<u32>,
    own: Vec<u64>,
}

impl<'a> Reach<'a> {
    pub(super) fn of(graph: &'a Graph) -> Reach<'a> {
        Reach { graph, order: graph.sorted(), own: vec![0; graph.when.len()] }
    }

    /// By node, the sets of which one surely comes before it. One is not before itself.
    pub(super) fn from(&mut self, sets: &[(u32, u64)]) -> Vec<u64> {
        let mut behind = self.begin(sets);
        for node in &self.order {
            let mask = behind[*node as usize] | self.own[*node as usize];
            if mask != 0 {
                self.graph.edges(*node, ALL).for_each(|(to, _)| behind[to as usize] |= mask);
            }
        }
        behind
    }

    /// By node, the sets of which one surely comes behind it.
    pub(super) fn to(&mut self, sets: &[(u32, u64)]) -> Vec<u64> {
        let mut before = self.begin(sets);
        for node in self.order.iter().rev() {
            let masks =
                self.graph.edges(*node, ALL).map(|(to, _)| before[to as usize] | self.own[to as usize]);
            before[*node as usize] = masks.fold(0, |all, mask| all | mask);
        }
        before
    }

    fn begin(&mut self, sets: &[(u32, u64)]) -> Vec<u64> {
        self.own.fill(0);
        sets.iter().for_each(|(node, set)| self.own[*node as usize] |= set);
        vec![0; self.own.len()]
    }
}

struct Components {
    of: Vec<u32>,
    /// Those of more than one node.
    circular: Vec<Vec<u32>>,
}

/// Looks for ever shorter circles. Moments count nothing: what counts is how many transactions a reader must follow.
struct Search<'a> {
    graph: &'a Graph,
    kinds: Kinds,
    of: &'a [u32],
    best: Option<Vec<Link>>,
    length: u32,
    visits: u64,
    /// From where a node was reached in the search that carries this number, and how far it is.
    reached: Vec<(u32, u32, u32, Why)>,
    number: u32,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, kinds: Kinds, of: &'a [u32]) -> Search<'a> {
        let reached = vec![(0, 0, 0, Why::Time); graph.when.len()];
        Search { graph, kinds, of, best: None, length: u32::MAX, visits: 0, reached, number: 0 }
    }

    /// The shortest way from a transaction back to itself, if it is shorter than the best so far.
    fn from(&mut self, start: u32) {
        self.number += 1;
        let mut queue = VecDeque::from([(start, 0u32)]);
        while let Some((node, steps)) = queue.pop_front() {
            // Reached by a shorter way meanwhile.
            if node != start && self.reached[node as usize].2 < steps {
                continue;
            }
            for (to, why) in self.graph.edges(node, self.kinds) {
                self.visits += 1;
                if self.of[to as usize] != self.of[start as usize] {
                    continue;
                }
                let moment = to as usize >= self.graph.transactions;
                let far = steps + u32::from(!moment);
                if far >= self.length {
                    continue;
                }
                if to == start {
                    (self.length, self.best) = (far, Some(self.way(start, node, why)));
                    return;
                }
                let (number, _, known, _) = self.reached[to as usize];
                if number == self.number && known <= far {
                    continue;
                }
                self.reached[to as usize] = (self.number, node, far, why);
                if moment { queue.push_front((to, far)) } else { queue.push_back((to, far)) }
            }
        }
    }

    fn way(&self, start: u32, last: u32, why: Why) -> Vec<Link> {
        let (mut links, mut node, mut why) = (Vec::new(), last, why);
        loop {
            // From a transaction through moments to another is one step.
            if (node as usize) < self.graph.transactions {
                links.push(Link { from: node, why });
            }
            if node == start {
                links.reverse();
                return links;
            }
            (_, node, _, why) = self.reached[node as usize];
        }
    }
}
