//! Which transaction must come before which, and the shortest circle among them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::Isolation;
use super::history::Transactions;
use super::versions::{Key, Versions};
use crate::planted::{Mutation, planted};

/// Why one transaction comes before another.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Why {
    /// It wrote the version before this one. By time where this reading, which was invoked when it had returned, saw the other.
    Overwritten { earlier: u32, later: u32, seen: Option<u32> },
    /// It wrote the version that the other read.
    Read { reading: u32 },
    /// It read what the other overwrote with this version. By `time`: that was invoked when what
    /// was read had been written.
    Anti { reading: u32, later: u32, predicate: bool, time: bool },
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
    /// Whether it follows from real time alone.
    pub(super) fn is_by_time(self) -> bool {
        self.kind() == TIME
    }

    /// The transaction beside the two by which it follows.
    pub(super) fn third(self, versions: &Versions) -> Option<usize> {
        match self {
            Why::Overwritten { seen: Some(reading), .. } => {
                Some(versions.readings[reading as usize].of as usize)
            }
            Why::Anti { reading, time: true, .. } => {
                let seen = versions.readings[reading as usize].seen?;
                Some(versions.versions[seen as usize].of as usize)
            }
            _ => None,
        }
    }

    fn kind(self) -> Kinds {
        match self {
            Why::Overwritten { seen: None, .. } => OVERWRITES,
            Why::Read { .. } => READS,
            Why::Anti { time: false, predicate: false, .. } => ANTI,
            Why::Anti { time: false, predicate: true, .. } => PREDICATES,
            Why::Time | Why::Overwritten { seen: Some(_), .. } | Why::Anti { time: true, .. } => TIME,
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

/// How often a transaction is put off, on average, while it would overwrite what another has yet to read.
const PATIENCE: usize = 64;

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
                push(of(earlier), of(*later), Why::Overwritten { earlier, later: *later, seen: None });
            }
        }
        for (reading, number) in versions.readings.iter().zip(0..) {
            if let Some(version) = reading.seen {
                push(of(version), reading.of, Why::Read { reading: number });
            }
            for later in versions.behind(reading.key, reading.seen) {
                let predicate = reading.predicate;
                let why = Why::Anti { reading: number, later: *later, predicate, time: false };
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
            if !planted(Mutation::TimeOrdersNoVersions) {
                pairs.extend(by_time(history, versions, timed));
            }
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

    /// An order that respects every edge, near the order of time; shorter than the transactions where there is none. Where no edge
    /// says so, too, nothing is overwritten that somebody has yet to read, as far as that can be.
    pub(super) fn order(&self, versions: &Versions) -> Vec<u32> {
        let order = self.sorted(Some(Pending::of(versions, self.transactions)));
        order.into_iter().filter(|node| (*node as usize) < self.transactions).collect()
    }

    /// The same with moments.
    fn sorted(&self, mut pending: Option<Pending<'_>>) -> Vec<u32> {
        let mut waits = vec![0u32; self.when.len()];
        for (to, _) in &self.edges {
            waits[*to as usize] += 1;
        }
        let at = |node: u32| (self.when[node as usize], node);
        let free = (0..self.when.len() as u32).filter(|node| waits[*node as usize] == 0);
        let mut ready: BinaryHeap<Reverse<(u64, u32)>> = free.map(|node| Reverse(at(node))).collect();
        let mut held: BTreeSet<(u64, u32)> = BTreeSet::new();
        let mut order = Vec::with_capacity(self.when.len());
        // A bound: where one waits for another in turn, each by each.
        let mut patience = PATIENCE * self.when.len();
        loop {
            let next = ready.pop().map(|Reverse((_, node))| (node, true));
            let Some((node, may_wait)) = next.or_else(|| held.pop_first().map(|(_, node)| (node, false)))
            else {
                break;
            };
            if let Some(pending) = pending.as_mut().filter(|_| (node as usize) < self.transactions) {
                if may_wait && patience > 0 && pending.holds(node) {
                    patience -= 1;
                    held.insert(at(node));
                    continue;
                }
                let free = pending.take(node).into_iter().map(at).filter(|next| held.remove(next));
                ready.extend(free.map(Reverse).collect::<Vec<_>>());
            }
            order.push(node);
            for (to, _) in self.edges(node, ALL) {
                waits[to as usize] -= 1;
                if waits[to as usize] == 0 {
                    ready.push(Reverse(at(to)));
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

/// What follows from real time for the order of versions where every transaction respects it that `timed` names, all that write
/// among them. Of two versions of which one was written before the other was begun, whoever read the earlier comes before the
/// later; and of two of which a reader found the one when the other had long been written, the other is the earlier. Where time
/// orders several that this says of, one next to the reader stands for them.
fn by_time(
    history: &Transactions,
    versions: &Versions,
    timed: impl Fn(&u32) -> bool,
) -> Vec<(u32, u32, Why)> {
    let of = |version: u32| versions.versions[version as usize].of;
    let invoked = |version: u32| history.list[of(version) as usize].invoked;
    let returned = |version: u32| history.list[of(version) as usize].returned.unwrap_or(u64::MAX);
    let mut began: Vec<Vec<u32>> = versions.keys.iter().map(|key| key.written.clone()).collect();
    let mut ended = began.clone();
    began.iter_mut().for_each(|written| written.sort_by_key(|version| invoked(*version)));
    ended.iter_mut().for_each(|written| written.sort_by_key(|version| Reverse(returned(*version))));
    let mut pairs = Vec::new();
    // Where all are in order already, nothing follows that does not without.
    let open = |key: &Key| {
        !key.list && key.written.iter().any(|version| versions.number(history, *version).is_none())
    };
    let open: Vec<bool> = versions.keys.iter().map(open).collect();
    // By version, when the last was invoked that read it, and its reading.
    let mut read: Vec<(u64, u32)> = vec![(0, 0); versions.versions.len()];
    for (reading, number) in versions.readings.iter().zip(0..) {
        let Some(seen) = reading.seen.filter(|_| open[reading.key as usize]) else { continue };
        if timed(&reading.of) && reading.of != of(seen) && reading.absence.is_none() {
            let until = &mut read[seen as usize];
            *until = (*until).max((history.list[reading.of as usize].invoked, number));
        }
        let written = &began[reading.key as usize];
        let first = written.partition_point(|later| invoked(*later) <= returned(seen));
        let mut before = u64::MAX;
        for later in &written[first..] {
            if invoked(*later) > before {
                break;
            }
            before = before.min(returned(*later));
            if of(*later) != reading.of {
                let (later, predicate) = (*later, reading.predicate);
                let why = Why::Anti { reading: number, later, predicate, time: true };
                pairs.push((reading.of, of(later), why));
            }
        }
    }
    for (key, written) in versions.keys.iter().zip(&ended) {
        for later in &key.written {
            let (until, reading) = read[*later as usize];
            let first = written.partition_point(|earlier| returned(*earlier) >= until);
            let mut behind = 0;
            for earlier in &written[first..] {
                // What was begun when the later one had been written makes a circle of its own.
                if returned(*earlier) < behind || invoked(*earlier) > returned(*later) {
                    break;
                }
                behind = behind.max(invoked(*earlier));
                if earlier != later {
                    let (earlier, later, seen) = (*earlier, *later, Some(reading));
                    let why = Why::Overwritten { earlier, later, seen };
                    pairs.push((of(earlier), of(later), why));
                }
            }
        }
    }
    pairs.retain(|(from, to, _)| from != to);
    pairs
}

/// What is yet to be read, while transactions are put in order.
struct Pending<'a> {
    versions: &'a Versions,
    /// By transaction, what it wrote and others can see, and what it read.
    wrote: Vec<Vec<u32>>,
    read: Vec<Vec<(u32, Option<u32>)>>,
    /// How many have yet to read a version, or a key before it was written.
    readers: Vec<u32>,
    first: Vec<u32>,
    /// By key, the version that stands, and who waits to overwrite it.
    stands: Vec<Option<u32>>,
    waiting: Vec<Vec<u32>>,
}

impl<'a> Pending<'a> {
    fn of(versions: &'a Versions, transactions: usize) -> Pending<'a> {
        let keys = versions.keys.len();
        let mut pending = Pending {
            versions,
            wrote: vec![Vec::new(); transactions],
            read: vec![Vec::new(); transactions],
            readers: vec![0; versions.versions.len()],
            first: vec![0; keys],
            stands: vec![None; keys],
            waiting: vec![Vec::new(); keys],
        };
        for (version, number) in versions.versions.iter().zip(0..) {
            if version.last && versions.effective[version.of as usize] {
                pending.wrote[version.of as usize].push(number);
            }
        }
        // One may have read by a predicate, too, what it read by its name.
        let mut readings: Vec<_> = versions.readings.iter().map(|one| (one.of, one.key, one.seen)).collect();
        readings.sort_unstable();
        readings.dedup();
        for (of, key, seen) in readings {
            pending.read[of as usize].push((key, seen));
            *pending.readers(key, seen) += 1;
        }
        pending
    }

    fn readers(&mut self, key: u32, version: Option<u32>) -> &mut u32 {
        match version {
            Some(version) => &mut self.readers[version as usize],
            None => &mut self.first[key as usize],
        }
    }

    /// Whether it would overwrite what another has yet to read; it is told by [`Pending::take`] when to ask again.
    fn holds(&mut self, transaction: u32) -> bool {
        for at in 0..self.wrote[transaction as usize].len() {
            let key = self.versions.versions[self.wrote[transaction as usize][at] as usize].key;
            let stands = self.stands[key as usize];
            let own = self.read[transaction as usize].iter().filter(|read| **read == (key, stands)).count();
            if *self.readers(key, stands) > own as u32 {
                self.waiting[key as usize].push(transaction);
                return true;
            }
        }
        false
    }

    /// It is next; who may go on now.
    fn take(&mut self, transaction: u32) -> Vec<u32> {
        let mut free = Vec::new();
        for (key, seen) in std::mem::take(&mut self.read[transaction as usize]) {
            let readers = self.readers(key, seen);
            *readers -= 1;
            if *readers <= 1 {
                free.append(&mut self.waiting[key as usize]);
            }
        }
        for version in std::mem::take(&mut self.wrote[transaction as usize]) {
            let key = self.versions.versions[version as usize].key as usize;
            self.stands[key] = Some(version);
            free.append(&mut self.waiting[key]);
        }
        free
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
        Reach { graph, order: graph.sorted(None), own: vec![0; graph.when.len()] }
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
