//! A graph of what must come before what, whose nodes become final one by one, and its strongly connected
//! components, dependencies first.

use crate::Table;
use std::hash::Hash;

/// What closing a node has come to.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Closed<I> {
    /// Everything the node leads to is complete: its components, each behind all that it leads to. They are
    /// no longer in the graph. None where the node was closed before.
    Components(Vec<Vec<I>>),
    /// The node leads to this one, which is not complete: try again when it is.
    Waits(I),
}

/// Nodes and edges from each node to those that must come before it (or with it).
///
/// A node is added, given its edges and *completed*: its edges are final then. [`Graph::close`] takes a
/// complete node out together with all that it leads to, once all of that is complete. An edge to a node
/// that is not in the graph counts for nothing: it was closed before, so whoever adds an edge adds its end
/// too where that is still to come ([`Graph::edge`] does).
///
/// The walk is Tarjan's, on a stack of its own: components of many thousands of nodes are usual under
/// contention. Every node on the way to an incomplete one remembers it, so that trying again costs one step
/// while it stays incomplete, and nothing is ever walked in a loop.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Graph<I: Hash + Eq> {
    nodes: Table<I, Node<I>>,
}

#[derive(Clone, Eq, PartialEq, Hash, Debug)]
struct Node<I> {
    complete: bool,
    edges: Vec<I>,
    /// An incomplete node that this one was found to lead to.
    waits: Option<I>,
}

/// A node under the walk: its number in the order of discovery, the lowest number it leads back to.
#[derive(Copy, Clone)]
struct Mark {
    index: usize,
    lowest: usize,
    stacked: bool,
}

impl<I: Hash + Eq> Default for Graph<I> {
    fn default() -> Graph<I> {
        Graph { nodes: Table::default() }
    }
}

impl<I: Copy + Ord + Hash> Graph<I> {
    /// Puts a node in; one that is there already stays as it is.
    pub fn add(&mut self, i: I) {
        self.nodes.or_insert_with(i, || Node { complete: false, edges: Vec::new(), waits: None });
    }

    /// `to` must come before `from`, or with it. Both are added where they are not there; a complete node
    /// takes no more edges.
    pub fn edge(&mut self, from: I, to: I) {
        self.add(to);
        self.add(from);
        if let Some(node) = self.nodes.get_mut(&from)
            && !node.complete
        {
            node.edges.push(to);
        }
    }

    /// The edges of this node are final.
    pub fn complete(&mut self, i: I) {
        self.add(i);
        if let Some(node) = self.nodes.get_mut(&i) {
            node.complete = true;
        }
    }

    /// The edges of a node turn out not to be final: it has none now, and takes them anew.
    pub fn reopen(&mut self, i: I) {
        if let Some(node) = self.nodes.get_mut(&i) {
            *node = Node { complete: false, edges: Vec::new(), waits: None };
        }
    }

    /// Whether this node is in the graph and complete.
    pub fn is_complete(&self, i: I) -> bool {
        self.nodes.get(&i).is_some_and(|node| node.complete)
    }

    /// Whether this node is in the graph.
    pub fn contains(&self, i: I) -> bool {
        self.nodes.contains(&i)
    }

    /// Takes a node out without regard to what it leads to: it came to be done in another way.
    pub fn remove(&mut self, i: I) {
        self.nodes.remove(&i);
    }

    /// Takes out the nodes that do not pass, in the same way.
    pub fn retain(&mut self, mut keep: impl FnMut(&I) -> bool) {
        self.nodes.retain(|i, _| keep(i));
    }

    /// How many nodes are in the graph.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What an edge to this node waits for, if for anything.
    fn waits(&self, i: I) -> Option<I> {
        let node = self.nodes.get(&i)?;
        if !node.complete {
            return Some(i);
        }
        node.waits.filter(|blocker| self.nodes.get(blocker).is_some_and(|node| !node.complete))
    }

    /// Takes out a node and all that it leads to, component by component, dependencies first, or says which
    /// incomplete node stands in the way. The order of the nodes inside a component is ascending and means
    /// nothing.
    pub fn close(&mut self, i: I) -> Closed<I> {
        if let Some(blocker) = self.waits(i) {
            return Closed::Waits(blocker);
        }
        let mut marks = Table::<I, Mark>::default();
        let mut components = Vec::new();
        // The nodes of components not yet complete, and the way from the root with the next edge to try.
        let (mut stack, mut path) = (Vec::<I>::new(), Vec::<(I, usize)>::new());
        if self.nodes.contains(&i) {
            marks.insert(i, Mark { index: 0, lowest: 0, stacked: true });
            stack.push(i);
            path.push((i, 0));
        }
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            let Some(to) = self.nodes.get(&node).and_then(|held| held.edges.get(*next)).copied() else {
                // All edges are walked.
                path.pop();
                let Some(Mark { index, lowest, .. }) = marks.get(&node).copied() else { continue };
                if let Some((parent, _)) = path.last()
                    && let Some(mark) = marks.get_mut(parent)
                {
                    mark.lowest = mark.lowest.min(lowest);
                }
                if lowest == index {
                    let at = stack.iter().rposition(|held| *held == node).unwrap_or(0);
                    let mut component = stack.split_off(at);
                    for member in &component {
                        if let Some(mark) = marks.get_mut(member) {
                            mark.stacked = false;
                        }
                    }
                    component.sort_unstable();
                    components.push(component);
                }
                continue;
            };
            *next += 1;
            if let Some(known) = marks.get(&to).copied() {
                if known.stacked
                    && let Some(mark) = marks.get_mut(&node)
                {
                    mark.lowest = mark.lowest.min(known.index);
                }
            } else if let Some(blocker) = self.waits(to) {
                // Every node on the stack leads to one on the path, and so to the blocker.
                for member in stack {
                    if let Some(held) = self.nodes.get_mut(&member) {
                        held.waits = Some(blocker);
                    }
                }
                return Closed::Waits(blocker);
            } else if self.nodes.contains(&to) {
                let index = marks.len();
                marks.insert(to, Mark { index, lowest: index, stacked: true });
                stack.push(to);
                path.push((to, 0));
            }
        }
        for member in components.iter().flatten() {
            self.nodes.remove(member);
        }
        Closed::Components(components)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dependencies_come_first_and_cycles_together() {
        let mut graph = Graph::default();
        for (from, to) in [(1, 2), (2, 3), (3, 2), (1, 4), (3, 5)] {
            graph.edge(from, to);
        }
        for node in [1, 2, 3, 5] {
            graph.complete(node);
        }
        assert_eq!(graph.close(1), Closed::Waits(4));
        assert_eq!(graph.close(4), Closed::Waits(4));
        assert_eq!(graph.close(3), Closed::Components(vec![vec![5], vec![2, 3]]));
        graph.complete(4);
        assert_eq!(graph.close(1), Closed::Components(vec![vec![4], vec![1]]));
        assert_eq!(graph.close(1), Closed::Components(vec![]), "closed before");
        assert!(graph.is_empty());
    }

    #[test]
    fn a_long_chain_and_a_long_cycle_need_no_deep_stack() {
        const LENGTH: u32 = 100_000;
        let mut graph = Graph::default();
        for node in 0..LENGTH {
            graph.edge(node, node + 1);
            graph.complete(node);
        }
        assert_eq!(graph.close(0), Closed::Waits(LENGTH));
        assert_eq!(graph.close(7), Closed::Waits(LENGTH));
        graph.complete(LENGTH);
        let Closed::Components(chain) = graph.close(0) else { panic!("it waits") };
        assert_eq!((chain.len(), &chain[0]), (LENGTH as usize + 1, &vec![LENGTH]));

        let mut graph = Graph::default();
        for node in 0..LENGTH {
            graph.edge(node, (node + 1) % LENGTH);
            graph.complete(node);
        }
        let Closed::Components(cycle) = graph.close(LENGTH / 2) else { panic!("it waits") };
        assert_eq!((cycle.len(), cycle[0].len()), (1, LENGTH as usize));
    }

    proptest! {
        /// Against reachability computed the slow way, with nodes completed one by one in any order.
        #[test]
        fn it_agrees_with_reachability(
            edges in proptest::collection::vec((0usize..12, 0usize..12), 0..40),
            order in Just((0usize..12).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut reach = [[false; 12]; 12];
            edges.iter().for_each(|(from, to)| reach[*from][*to] = true);
            for via in 0..12 {
                for from in 0..12 {
                    for to in 0..12 {
                        reach[from][to] |= reach[from][via] && reach[via][to];
                    }
                }
            }
            let mut graph = Graph::default();
            (0..12).for_each(|node| graph.add(node));
            edges.iter().for_each(|(from, to)| graph.edge(*from, *to));
            let (mut complete, mut closed) = ([false; 12], Vec::<usize>::new());
            for node in order {
                complete[node] = true;
                graph.complete(node);
                for root in 0..12 {
                    let open = (0..12).find(|to| (reach[root][*to] || *to == root) && !complete[*to]);
                    match graph.close(root) {
                        Closed::Waits(blocker) => {
                            prop_assert!(open.is_some() && !complete[blocker]);
                            prop_assert!(reach[root][blocker] || root == blocker);
                        }
                        Closed::Components(components) => {
                            prop_assert!(open.is_none());
                            for component in components {
                                for member in &component {
                                    let equals = |to: &usize| reach[*member][*to] && reach[*to][*member];
                                    let mates = (0..12).filter(|to| to == member || equals(to));
                                    prop_assert_eq!(&mates.collect::<Vec<_>>(), &component);
                                    let before = |to: usize| closed.contains(&to) || component.contains(&to);
                                    prop_assert!((0..12).all(|to| !reach[*member][to] || before(to)));
                                }
                                closed.extend(component);
                            }
                            prop_assert!(closed.contains(&root));
                        }
                    }
                }
            }
            closed.sort_unstable();
            prop_assert_eq!(closed, (0..12).collect::<Vec<_>>());
        }
    }
}
