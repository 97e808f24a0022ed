//! What all keys of a component hold, in blocks that configurations share: a step copies one block of each key that it
//! changes, however many keys operations on several have joined.

use super::data::Entry;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::ops::Index;
use std::rc::Rc;

/// Keys of a block.
const BLOCK: usize = 64;

/// The entry of each key, if it is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots(Rc<Vec<Rc<Block>>>);

#[derive(Clone, Debug, Eq)]
struct Block {
    entries: Vec<Option<Entry>>,
    /// Of the entries: a configuration is looked up for each step.
    hash: u64,
    weight: usize,
}

impl Block {
    fn new(entries: Vec<Option<Entry>>) -> Block {
        let mut hasher = FxHasher::default();
        entries.hash(&mut hasher);
        let weight = entries.iter().map(|entry| entry.as_ref().map_or(16, Entry::weight)).sum();
        Block { entries, hash: hasher.finish(), weight }
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        self.hash == other.hash && self.entries == other.entries
    }
}

impl Hash for Block {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

impl Index<u32> for Slots {
    type Output = Option<Entry>;

    fn index(&self, slot: u32) -> &Option<Entry> {
        let slot = slot as usize;
        &self.0[slot / BLOCK].entries[slot % BLOCK]
    }
}

impl Slots {
    /// So many keys that are absent.
    pub(super) fn absent(keys: usize) -> Slots {
        let sizes = (0..keys).step_by(BLOCK).map(|from| BLOCK.min(keys - from));
        Slots(Rc::new(sizes.map(|size| Rc::new(Block::new(vec![None; size]))).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|block| block.entries.len()).sum()
    }

    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> usize {
        self.0.iter().map(|block| block.weight).sum()
    }

    /// With these keys changed, the last entry of each where it comes twice; nothing where they held that before.
    pub(super) fn with(&self, changes: impl IntoIterator<Item = (u32, Option<Entry>)>) -> Option<Slots> {
        // The entries of blocks that change, by their place.
        let mut changed: Vec<(usize, Vec<Option<Entry>>)> = Vec::new();
        for (slot, entry) in changes {
            let (place, within) = (slot as usize / BLOCK, slot as usize % BLOCK);
            match changed.iter_mut().find(|(block, _)| *block == place) {
                Some((_, entries)) => entries[within] = entry,
                None if self[slot] != entry => {
                    let mut entries = self.0[place].entries.clone();
                    entries[within] = entry;
                    changed.push((place, entries));
                }
                None => {}
            }
        }
        changed.retain(|(place, entries)| self.0[*place].entries != *entries);
        if changed.is_empty() {
            return None;
        }
        let mut blocks = (*self.0).clone();
        for (place, entries) in changed {
            blocks[place] = Rc::new(Block::new(entries));
        }
        Some(Slots(Rc::new(blocks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<Entry> {
        Some(Entry::of_text(&Rc::from(text.as_bytes())))
    }

    #[test]
    fn what_changes_is_one_block_and_what_does_not_is_the_same() {
        let none = Slots::absent(BLOCK * 2 + 1);
        assert_eq!((none.len(), none.weight()), (BLOCK * 2 + 1, 16 * (BLOCK * 2 + 1)));
        let last = (BLOCK * 2) as u32;
        let one = none.with([(3, text("a")), (last, text("b")), (3, text("c"))]).expect("a change");
        assert_eq!((&one[3], &one[last], &one[4]), (&text("c"), &text("b"), &None));
        assert!(Rc::ptr_eq(&one.0[1], &none.0[1]) && !Rc::ptr_eq(&one.0[0], &none.0[0]));
        assert_eq!(one.with([(3, text("c"))]), None);
        assert_eq!(one.with([(3, text("d")), (3, text("c"))]), None, "there and back");
        let back = one.with([(3, None), (last, None)]).expect("a change");
        assert_eq!(back, none);
    }
}
