//! Components: keys that some operation touches together, and everything that touches them.
//!
//! Linearizability is local: a history is linearizable if and only if its restriction to each object is (Herlihy and
//! Wing 1990, theorem 1). Here an object is a component, most often a single key.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::history::{Operation, Outcome};
use crate::planted::{Mutation, planted};

/// One component of a history.
pub(crate) struct Component {
    /// Its keys; an operation's slot is a place in this list.
    pub(crate) keys: Vec<Arc<str>>,
    /// Its operations as indices into the history, failed ones left out, with the slots of their keys.
    pub(crate) operations: Vec<(u32, Box<[u32]>)>,
}

/// Cuts the operations into components, in order of each component's first operation.
pub(crate) fn components(operations: &[Operation]) -> Vec<Component> {
    let counts =
        |operation: &&Operation| operation.outcome != Outcome::Failed || planted(Mutation::FailedMayHappen);
    let mut places: FxHashMap<&str, u32> = FxHashMap::default();
    let mut names: Vec<&Arc<str>> = Vec::new();
    let mut sets = Sets { above: Vec::new() };
    for operation in operations.iter().filter(counts) {
        let mut first = None;
        for key in &operation.keys {
            let place = *places.entry(key).or_insert_with(|| {
                names.push(key);
                sets.add()
            });
            let first = *first.get_or_insert(place);
            if !planted(Mutation::FirstKeyOnly) {
                sets.join(first, place);
            }
        }
    }
    const NONE: u32 = u32::MAX;
    let mut component_of_root = vec![NONE; names.len()];
    let mut slot_of_key = vec![NONE; names.len()];
    let mut components: Vec<Component> = Vec::new();
    for (index, operation) in operations.iter().enumerate().filter(|(_, operation)| counts(operation)) {
        let root = sets.root(places[&*operation.keys[0]]) as usize;
        if component_of_root[root] == NONE {
            component_of_root[root] = components.len() as u32;
            components.push(Component { keys: Vec::new(), operations: Vec::new() });
        }
        let component = &mut components[component_of_root[root] as usize];
        let slot = |key: &Arc<str>| {
            let place = places[&**key] as usize;
            // Under the planted error a key may belong to another component: it gets a slot here as well.
            if slot_of_key[place] == NONE || component.keys.get(slot_of_key[place] as usize) != Some(key) {
                slot_of_key[place] = component.keys.len() as u32;
                component.keys.push(Arc::clone(key));
            }
            slot_of_key[place]
        };
        let slots = operation.keys.iter().map(slot).collect();
        component.operations.push((index as u32, slots));
    }
    components
}

/// Disjoint sets, joined with path halving; the lower number becomes the root.
struct Sets {
    above: Vec<u32>,
}

impl Sets {
    fn add(&mut self) -> u32 {
        self.above.push(self.above.len() as u32);
        self.above.len() as u32 - 1
    }

    fn root(&mut self, mut item: u32) -> u32 {
        while self.above[item as usize] != item {
            let above = self.above[item as usize];
            self.above[item as usize] = self.above[above as usize];
            item = self.above[item as usize];
        }
        item
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.above[a.max(b) as usize] = a.min(b);
    }
}
