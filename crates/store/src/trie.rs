//! A map ordered by hash, shared copy on write: the keyspace, hashes, sets and the scores of sorted sets.
//!
//! A radix trie over [`crate::hash::place`], sixteen ways a level, whose leaves are sorted runs of up to
//! 32 entries. One structure gives what else would take two: a lookup costs one hash and four or five
//! steps at a million entries, as a hash table's would, and the order of the hashes is a fixed order in
//! which to list, so that the cursor of a scan is a number and stays good whatever is added or removed.
//! A small map is one sorted run. Aimed collisions make the trie deeper, sixteen levels at most.
//!
//! A clone costs one reference count. The first change behind a clone copies one path (16 pointers a level
//! and one leaf), whatever the size. Branches count what is below them, so that the n-th entry is found
//! as fast as any.

use crate::hash;
use crate::key::{Key, Name};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::hint::black_box;
use std::sync::Arc;

/// The map. See the module.
#[derive(Clone)]
pub(crate) struct Trie<V>(Node<V>);

#[derive(Clone)]
enum Node<V> {
    /// Ascending by hash, then key.
    Leaf(Arc<Vec<Item<V>>>),
    Branch(Arc<Branch<V>>),
}

#[derive(Clone)]
struct Branch<V> {
    /// How many entries are below.
    len: usize,
    children: [Node<V>; WAYS],
}

#[derive(Clone)]
struct Item<V> {
    hash: u64,
    key: Key,
    value: V,
}

const WAYS: usize = 16;
/// A leaf of this size is split before it takes another entry.
const LEAF_MAX: usize = 32;
/// A branch with this few entries becomes a leaf again: far below `LEAF_MAX`, so that a map that swings
/// around a size is not rebuilt each time.
const BRANCH_MIN: usize = 8;
/// Levels until the hash has no more bits; leaves there grow without limit.
const DEPTH_MAX: u32 = 16;
/// How many keys [`Trie::prepare`] takes together: many more loads than a core can have under way, and few
/// enough that the first are still near when their turn comes.
const PREPARED: usize = 64;

fn way(hash: u64, depth: u32) -> usize {
    (hash >> (60 - 4 * depth)) as usize % WAYS
}

impl<V> Default for Trie<V> {
    fn default() -> Trie<V> {
        Trie(Node::default())
    }
}

impl<V> Default for Node<V> {
    fn default() -> Node<V> {
        Node::Leaf(Arc::new(Vec::new()))
    }
}

impl<V> Node<V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(items) => items.len(),
            Node::Branch(branch) => branch.len,
        }
    }
}

impl<V: Clone> Node<V> {
    fn shed(&mut self, before: usize) -> usize {
        let len = self.len();
        if len <= before {
            *self = Node::default();
            return len;
        }
        let Node::Branch(branch) = self else { return 0 };
        if before == 0 {
            return 0;
        }
        let branch = Arc::make_mut(branch);
        let mut gone = 0;
        for child in branch.children.iter_mut().filter(|child| child.len() > 0) {
            gone += child.shed(before - gone);
            if child.len() > 0 {
                break;
            }
        }
        branch.len -= gone;
        gone
    }
}

impl<V> Item<V> {
    fn order(&self, hash: u64, key: &[u8]) -> Ordering {
        self.hash.cmp(&hash).then_with(|| self.key[..].cmp(key))
    }
}

impl<V> Trie<V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        let hash = hash::place(key);
        let (mut node, mut depth) = (&self.0, 0);
        loop {
            match node {
                Node::Branch(branch) => node = &branch.children[way(hash, depth)],
                Node::Leaf(items) => {
                    let at = find(items, depth, hash, key).ok()?;
                    return Some(&items[at].value);
                }
            }
            depth += 1;
        }
    }

    /// Whether there is such a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Brings the entries of many keys nearer, a group of keys at a time and for each group step by step: the
    /// leaves of all, then the places of all in them, then what `touch` reads of the entries of all. The
    /// steps of one key wait for each other in any case; those of different keys then wait together.
    pub fn prepare<'a>(&self, keys: impl Iterator<Item = &'a [u8]>, touch: impl Fn(&V) -> usize) {
        let mut leaves = Vec::with_capacity(PREPARED);
        let mut items = Vec::with_capacity(PREPARED);
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            for key in keys.by_ref().take(PREPARED) {
                let hash = hash::place(key);
                let (mut node, mut depth) = (&self.0, 0);
                while let Node::Branch(branch) = node {
                    node = &branch.children[way(hash, depth)];
                    depth += 1;
                }
                if let Node::Leaf(leaf) = node {
                    leaves.push((leaf, depth, hash));
                }
            }
            // What is read adds up to a number that nobody may leave out.
            black_box(leaves.iter().fold(0, |sum: usize, (leaf, ..)| sum.wrapping_add(leaf.len())));
            black_box(leaves.iter().fold(0, |sum: u64, (leaf, depth, hash)| {
                sum.wrapping_add(leaf.get(guess(leaf.len(), *depth, *hash)).map_or(0, |item| item.hash))
            }));
            items.extend(leaves.drain(..).filter_map(|(leaf, depth, hash)| {
                // By the hash alone; a key that shares it with another is merely not brought nearer.
                leaf.get(find_hash(leaf, depth, hash)).filter(|item| item.hash == hash)
            }));
            black_box(items.drain(..).fold(0, |sum: usize, item| {
                let key = item.key.first().copied().unwrap_or(0);
                sum.wrapping_add(usize::from(key)).wrapping_add(touch(&item.value))
            }));
        }
    }

    /// How many entries have a hash below this one.
    pub fn index_of(&self, hash: u64) -> usize {
        let (mut node, mut depth, mut before) = (&self.0, 0, 0);
        loop {
            match node {
                Node::Branch(branch) => {
                    let way = way(hash, depth);
                    before += branch.children[..way].iter().map(Node::len).sum::<usize>();
                    node = &branch.children[way];
                }
                Node::Leaf(items) => return before + items.partition_point(|item| item.hash < hash),
            }
            depth += 1;
        }
    }

    /// The entry with `index` others before it.
    pub fn nth(&self, index: usize) -> Option<(&Key, &V)> {
        self.iter_at(index).next().map(|entry| (entry.key, entry.value))
    }

    /// All entries in the order of the hashes.
    pub fn iter(&self) -> Iter<'_, V> {
        self.iter_at(0)
    }

    /// The entries behind the first `index` ones, in the order of the hashes.
    pub fn iter_at(&self, mut index: usize) -> Iter<'_, V> {
        let mut iter = Iter { branches: Vec::new(), leaf: [].iter() };
        let mut node = &self.0;
        loop {
            match node {
                Node::Leaf(items) => {
                    iter.leaf = items.get(index..).unwrap_or_default().iter();
                    return iter;
                }
                Node::Branch(branch) => {
                    let mut children = branch.children.iter();
                    node = loop {
                        let Some(child) = children.next() else { return iter };
                        match index.checked_sub(child.len()) {
                            Some(rest) => index = rest,
                            None => break child,
                        }
                    };
                    iter.branches.push(children);
                }
            }
        }
    }
}

impl<V: Clone> Trie<V> {
    /// Lets go of the leaves in which only the first `before` entries lie; how many entries went with them.
    pub fn shed(&mut self, before: usize) -> usize {
        self.0.shed(before)
    }

    /// Looks a key up and lets `edit` change what is there, in one descent if the number of entries stays.
    pub fn with<R>(&mut self, key: &[u8], edit: impl FnOnce(&mut Slot<'_, V>) -> R) -> R {
        let hash = hash::place(key);
        let (items, depth) = self.leaf(hash);
        let before = items.len();
        let at = find(items, depth, hash, key);
        let mut slot = Slot { items, at, hash };
        let result = edit(&mut slot);
        let after = slot.items.len();
        if after != before {
            self.count(hash, after > before);
        }
        result
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        let hash = hash::place(key);
        let (items, depth) = self.leaf(hash);
        let at = find(items, depth, hash, key).ok()?;
        Some(&mut items[at].value)
    }

    /// Sets the value of a key and gives the former one.
    pub fn insert(&mut self, key: &impl Name, value: V) -> Option<V> {
        self.with(key, |slot| match slot.get_mut() {
            Some(held) => Some(std::mem::replace(held, value)),
            None => {
                slot.insert(key.to_key(), value);
                None
            }
        })
    }

    /// Removes a key and gives its value.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        if !self.contains(key) {
            // Nothing shared needs to be copied to find nothing.
            return None;
        }
        self.with(key, |slot| slot.remove().map(|(_, value)| value))
    }

    /// The leaf for a hash and its depth: unshared, with room for one more entry.
    fn leaf(&mut self, hash: u64) -> (&mut Vec<Item<V>>, u32) {
        let (mut node, mut depth) = (&mut self.0, 0);
        loop {
            if let Node::Leaf(items) = node
                && items.len() >= LEAF_MAX
                && depth < DEPTH_MAX
            {
                let items = std::mem::take(Arc::make_mut(items));
                *node = Node::Branch(Arc::new(split(items, depth)));
            }
            match node {
                Node::Leaf(items) => return (Arc::make_mut(items), depth),
                Node::Branch(branch) => node = &mut Arc::make_mut(branch).children[way(hash, depth)],
            }
            depth += 1;
        }
    }

    /// Takes in that a leaf has one entry more or less; folds a branch that has become small.
    fn count(&mut self, hash: u64, more: bool) {
        let (mut node, mut depth) = (&mut self.0, 0);
        loop {
            if let Node::Branch(branch) = node
                && !more
                && branch.len <= BRANCH_MIN + 1
            {
                let mut items = Vec::with_capacity(BRANCH_MIN);
                gather(node, &mut items);
                *node = Node::Leaf(Arc::new(items));
                return;
            }
            let Node::Branch(branch) = node else { return };
            let branch = Arc::make_mut(branch);
            branch.len = if more { branch.len + 1 } else { branch.len - 1 };
            node = &mut branch.children[way(hash, depth)];
            depth += 1;
        }
    }
}

/// Finds a key in a leaf, or where it belongs. Hashes are spread evenly, so the next bits of the hash tell
/// about where to look, and the search is a short walk from there, mostly within a few neighbouring cache
/// lines; halving would touch one far away at each step.
fn find<V>(items: &[Item<V>], depth: u32, hash: u64, key: &[u8]) -> Result<usize, usize> {
    if items.len() > LEAF_MAX {
        // Only where all bits of the hashes are used up.
        return items.binary_search_by(|item| item.order(hash, key));
    }
    let mut at = find_hash(items, depth, hash);
    while let Some(item) = items.get(at) {
        match item.order(hash, key) {
            Ordering::Less => at += 1,
            Ordering::Equal => return Ok(at),
            Ordering::Greater => break,
        }
    }
    Err(at)
}

/// The first entry of a leaf whose hash is not below this one.
fn find_hash<V>(items: &[Item<V>], depth: u32, hash: u64) -> usize {
    let mut at = guess(items.len(), depth, hash);
    while at > 0 && items[at - 1].hash >= hash {
        at -= 1;
    }
    while items.get(at).is_some_and(|item| item.hash < hash) {
        at += 1;
    }
    at
}

/// About where a hash stands in a leaf of this size at this depth.
fn guess(len: usize, depth: u32, hash: u64) -> usize {
    let rest = hash.checked_shl(4 * depth).unwrap_or(0) >> 32;
    ((rest * len as u64) >> 32) as usize
}

fn split<V>(items: Vec<Item<V>>, depth: u32) -> Branch<V> {
    let len = items.len();
    let mut lens = [0; WAYS];
    items.iter().for_each(|item| lens[way(item.hash, depth)] += 1);
    // Exactly as large as needed: most of these leaves stay small for long.
    let mut runs = lens.map(Vec::with_capacity);
    for item in items {
        runs[way(item.hash, depth)].push(item);
    }
    Branch { len, children: runs.map(|run| Node::Leaf(Arc::new(run))) }
}

fn gather<V: Clone>(node: &Node<V>, items: &mut Vec<Item<V>>) {
    match node {
        Node::Leaf(run) => items.extend_from_slice(run),
        Node::Branch(branch) => branch.children.iter().for_each(|child| gather(child, items)),
    }
}

/// The place of one key, filled or not.
pub(crate) struct Slot<'a, V> {
    items: &'a mut Vec<Item<V>>,
    at: Result<usize, usize>,
    hash: u64,
}

impl<V> Slot<'_, V> {
    /// The value, if there is one.
    pub fn get_mut(&mut self) -> Option<&mut V> {
        self.at.ok().map(|at| &mut self.items[at].value)
    }

    /// The hash of the key.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Fills an empty place. `key` is the key that was looked up.
    pub fn insert(&mut self, key: Key, value: V) {
        let Err(at) = self.at else { panic!("the place of {key:?} is taken") };
        if self.items.len() == self.items.capacity() {
            // By a quarter: doubling would leave a quarter of all memory unused.
            self.items.reserve_exact(1 + self.items.len() / 4);
        }
        self.items.insert(at, Item { hash: self.hash, key, value });
        self.at = Ok(at);
    }

    /// Empties the place.
    pub fn remove(&mut self) -> Option<(Key, V)> {
        let at = self.at.ok()?;
        self.at = Err(at);
        let item = self.items.remove(at);
        Some((item.key, item.value))
    }
}

/// One entry as an iterator gives it.
pub(crate) struct Entry<'a, V> {
    pub hash: u64,
    pub key: &'a Key,
    pub value: &'a V,
}

/// Entries in the order of their hashes, then keys.
pub(crate) struct Iter<'a, V> {
    /// What is left of each branch on the way down.
    branches: Vec<std::slice::Iter<'a, Node<V>>>,
    leaf: std::slice::Iter<'a, Item<V>>,
}

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = Entry<'a, V>;

    fn next(&mut self) -> Option<Entry<'a, V>> {
        loop {
            if let Some(item) = self.leaf.next() {
                return Some(Entry { hash: item.hash, key: &item.key, value: &item.value });
            }
            match self.branches.last_mut()?.next() {
                None => drop(self.branches.pop()),
                Some(Node::Leaf(items)) => self.leaf = items.iter(),
                Some(Node::Branch(branch)) => self.branches.push(branch.children.iter()),
            }
        }
    }
}

impl<V: PartialEq> PartialEq for Trie<V> {
    fn eq(&self, other: &Trie<V>) -> bool {
        self.len() == other.len()
            && self.iter().zip(other.iter()).all(|(a, b)| a.key == b.key && a.value == b.value)
    }
}

impl<V: Hash> Hash for Trie<V> {
    /// What is in it, whatever way it came to be.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        for entry in self.iter() {
            (entry.key, entry.value).hash(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Blob;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn check(trie: &Trie<u32>, twin: &BTreeMap<(u64, Blob), u32>) {
        assert_eq!(trie.len(), twin.len());
        let listed: Vec<_> = trie.iter().map(|e| ((e.hash, e.key.blob()), *e.value)).collect();
        let expected: Vec<_> = twin.iter().map(|(key, value)| (key.clone(), *value)).collect();
        assert_eq!(listed, expected);
        for (index, ((hash, key), value)) in expected.iter().enumerate().step_by(1 + expected.len() / 16) {
            assert_eq!(trie.nth(index), Some((&key.to_key(), value)));
            assert_eq!(trie.get(key), Some(value));
            assert_eq!(trie.index_of(*hash), index);
        }
        assert!(trie.nth(expected.len()).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Entries come and go in long runs, so that branches appear and fold; earlier clones stay as
        /// they were.
        #[test]
        fn agrees_with_a_dumb_twin(runs in prop::collection::vec((any::<bool>(), 0u32..2000, 1u32..400), 1..12)) {
            let (mut trie, mut twin) = (Trie::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (add, from, length) in runs {
                for number in from..from + length {
                    // Of both forms.
                    let width = if number % 3 == 0 { 40 } else { 0 };
                    let key = Blob::from(format!("{number:width$}"));
                    let place = (hash::place(&key), key.clone());
                    if add {
                        prop_assert_eq!(trie.insert(&key, number), twin.insert(place, number));
                    } else {
                        prop_assert_eq!(trie.remove(&key), twin.remove(&place));
                    }
                }
                check(&trie, &twin);
                kept.push((trie.clone(), twin.clone()));
            }
            for (trie, twin) in kept {
                check(&trie, &twin);
            }
        }
    }

    #[test]
    fn what_is_shed_is_no_longer_shared_and_the_rest_stays() {
        fn unshared(node: &Node<u32>) -> usize {
            match node {
                Node::Leaf(items) if Arc::strong_count(items) == 1 => items.len(),
                Node::Branch(branch) if Arc::strong_count(branch) > 1 => 0,
                Node::Leaf(_) => 0,
                Node::Branch(branch) => branch.children.iter().map(unshared).sum(),
            }
        }
        let mut trie = Trie::default();
        for number in 0..5_000 {
            trie.insert(&Blob::from(number.to_string()), number);
        }
        let all: Vec<u32> = trie.iter().map(|entry| *entry.value).collect();
        let mut view = trie.clone();
        let mut gone = 0;
        for before in [0, 1, 100, 0, 1_000, 2_500, 5_000] {
            let (len, went) = (view.len(), view.shed(before));
            assert!(went <= before && before.min(len) - went < LEAF_MAX, "{went} of {before}");
            gone += went;
            assert_eq!(view.len(), all.len() - gone);
            assert!(view.iter().map(|entry| *entry.value).eq(all[gone..].iter().copied()));
            assert_eq!(unshared(&trie.0), gone);
            assert!(trie.iter().map(|entry| *entry.value).eq(all.iter().copied()));
        }
        assert!(view.is_empty());
    }

    #[test]
    fn aimed_collisions_cost_levels_not_speed() {
        // Places that agree in their first 60 bits: built by hand, since no keys with such hashes are known.
        let mut trie: Trie<()> = Trie::default();
        for number in 0..200u64 {
            let (items, _) = trie.leaf(number % 16);
            let key = Blob::from(number.to_string()).to_key();
            let at = items.partition_point(|item| item.order(number % 16, &key) == Ordering::Less);
            items.insert(at, Item { hash: number % 16, key, value: () });
            trie.count(number % 16, true);
        }
        assert_eq!(trie.len(), 200);
        assert_eq!(trie.iter().count(), 200);
        assert_eq!(trie.index_of(8), 104);
    }
}
