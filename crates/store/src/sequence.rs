//! A sequence cut into blocks that are shared copy on write: lists, and the order of sorted sets.
//!
//! Both ends cost a constant. Finding a position costs a walk over the lengths of the blocks (16 bytes for
//! each 64 to 128 elements), an insertion there a move within one block. A clone costs a reference count for
//! each block; a change behind it copies one block.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// The sequence. See the module.
#[derive(Clone)]
pub(crate) struct Sequence<T> {
    blocks: VecDeque<Block<T>>,
    len: usize,
}

#[derive(Clone)]
struct Block<T> {
    /// The length of `items`, kept here so that a walk over lengths touches no block. Never 0.
    len: u32,
    items: Arc<VecDeque<T>>,
}

/// A block of this size is cut in two before it takes another element.
const BLOCK_MAX: usize = 128;

/// Where an element is, or would be: its block and its place there. Good until the next change.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Place {
    block: usize,
    offset: usize,
}

impl<T> Default for Sequence<T> {
    fn default() -> Sequence<T> {
        Sequence { blocks: VecDeque::new(), len: 0 }
    }
}

impl<T> Sequence<T> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The element at a position.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.at(self.place(index))
    }

    /// The element at a place.
    pub fn at(&self, place: Place) -> Option<&T> {
        self.blocks.get(place.block)?.items.get(place.offset)
    }

    /// The elements at these positions; those beyond the end are left out.
    pub fn range(&self, range: Range<usize>) -> impl DoubleEndedIterator<Item = &T> {
        let range = range.start.min(self.len)..range.end.clamp(range.start.min(self.len), self.len);
        let (first, last) = (self.place(range.start), self.place(range.end));
        let blocks = first.block..(last.block + 1).min(self.blocks.len());
        blocks.flat_map(move |block| {
            let items = &self.blocks[block].items;
            let start = if block == first.block { first.offset } else { 0 };
            let end = if block == last.block { last.offset } else { items.len() };
            items.range(start..end)
        })
    }

    /// All elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.range(0..self.len)
    }

    /// The place of the first element for which `before` is false, where all for which it is true stand
    /// in front of all others.
    pub fn seek(&self, before: impl Fn(&T) -> bool) -> Place {
        // Blocks are never empty.
        let next = self.blocks.partition_point(|block| before(&block.items[0]));
        let Some(block) = next.checked_sub(1) else { return Place { block: 0, offset: 0 } };
        let items = &self.blocks[block].items;
        let offset = items.partition_point(before);
        if offset == items.len() && next < self.blocks.len() {
            return Place { block: next, offset: 0 };
        }
        Place { block, offset }
    }

    /// The position of a place.
    pub fn index(&self, place: Place) -> usize {
        self.blocks.range(..place.block).map(|block| block.len as usize).sum::<usize>() + place.offset
    }

    /// The place of a position.
    pub fn place(&self, index: usize) -> Place {
        if index >= self.len {
            return match self.blocks.back() {
                Some(last) => Place { block: self.blocks.len() - 1, offset: last.len as usize },
                None => Place { block: 0, offset: 0 },
            };
        }
        if index <= self.len / 2 {
            let (mut block, mut offset) = (0, index);
            while offset >= self.blocks[block].len as usize {
                offset -= self.blocks[block].len as usize;
                block += 1;
            }
            return Place { block, offset };
        }
        let (mut block, mut start) = (self.blocks.len(), self.len);
        while start > index {
            block -= 1;
            start -= self.blocks[block].len as usize;
        }
        Place { block, offset: index - start }
    }
}

impl<T: Clone> Sequence<T> {
    /// Puts an element in front of all.
    pub fn push_front(&mut self, value: T) {
        match self.blocks.front_mut() {
            Some(block) if (block.len as usize) < BLOCK_MAX => block.edit(|items| items.push_front(value)),
            _ => self.blocks.push_front(Block::new(VecDeque::from([value]))),
        }
        self.len += 1;
    }

    /// Puts an element behind all.
    pub fn push_back(&mut self, value: T) {
        match self.blocks.back_mut() {
            Some(block) if (block.len as usize) < BLOCK_MAX => block.edit(|items| items.push_back(value)),
            _ => self.blocks.push_back(Block::new(VecDeque::from([value]))),
        }
        self.len += 1;
    }

    /// Takes the first element.
    pub fn pop_front(&mut self) -> Option<T> {
        (self.len > 0).then(|| self.remove(Place { block: 0, offset: 0 }))
    }

    /// Takes the last element.
    pub fn pop_back(&mut self) -> Option<T> {
        (self.len > 0).then(|| self.remove(self.place(self.len - 1)))
    }

    /// Replaces the element at a position, which must be one.
    pub fn set(&mut self, index: usize, value: T) {
        assert!(index < self.len, "position {index} of {}", self.len);
        let place = self.place(index);
        self.blocks[place.block].edit(|items| items[place.offset] = value);
    }

    /// Changes the element at a place, which must be one.
    pub fn edit<R>(&mut self, place: Place, edit: impl FnOnce(&mut T) -> R) -> R {
        self.blocks[place.block].edit(|items| edit(&mut items[place.offset]))
    }

    /// Puts an element in front of the one at a place.
    pub fn insert(&mut self, mut place: Place, value: T) {
        if self.blocks.is_empty() {
            return self.push_back(value);
        }
        if self.blocks[place.block].len as usize >= BLOCK_MAX {
            let behind = self.blocks[place.block].edit(|items| items.split_off(BLOCK_MAX / 2));
            self.blocks.insert(place.block + 1, Block::new(behind));
            if place.offset > BLOCK_MAX / 2 {
                place = Place { block: place.block + 1, offset: place.offset - BLOCK_MAX / 2 };
            }
        }
        self.blocks[place.block].edit(|items| items.insert(place.offset, value));
        self.len += 1;
    }

    /// Puts an element at a position, in front of the one there.
    pub fn insert_at(&mut self, index: usize, value: T) {
        self.insert(self.place(index), value);
    }

    /// Takes the element at a place, which must be one.
    pub fn remove(&mut self, place: Place) -> T {
        let value = self.blocks[place.block].edit(|items| items.remove(place.offset));
        self.len -= 1;
        if self.blocks[place.block].len == 0 {
            self.blocks.remove(place.block);
        } else {
            self.join(place.block);
        }
        value.unwrap_or_else(|| panic!("no element at {place:?}"))
    }

    /// Makes one of this block and the next where they are less than half full together: what removals leave
    /// behind stays dense.
    fn join(&mut self, block: usize) {
        if let (Some(this), Some(next)) = (self.blocks.get(block), self.blocks.get(block + 1))
            && ((this.len + next.len) as usize) < BLOCK_MAX / 2
            && let Some(next) = self.blocks.remove(block + 1)
        {
            self.blocks[block].edit(|items| items.extend(next.items.iter().cloned()));
        }
    }

    /// Takes the element at a position, which must be one.
    pub fn remove_at(&mut self, index: usize) -> T {
        self.remove(self.place(index))
    }

    /// Keeps the elements at these positions only.
    pub fn keep(&mut self, range: Range<usize>) {
        let front = range.start.min(self.len);
        let back = self.len - range.end.clamp(front, self.len);
        self.shorten(front, true);
        self.shorten(back, false);
    }

    /// Drops the elements at these positions, which must be some, whole blocks at a time.
    pub fn cut(&mut self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.len, "positions {range:?} of {}", self.len);
        if range.is_empty() {
            return;
        }
        let (first, last) = (self.place(range.start), self.place(range.end));
        self.len -= range.len();
        if first.block == last.block {
            self.blocks[first.block].edit(|items| drop(items.drain(first.offset..last.offset)));
        } else {
            self.blocks[first.block].edit(|items| items.truncate(first.offset));
            if last.offset > 0 {
                self.blocks[last.block].edit(|items| drop(items.drain(..last.offset)));
            }
            self.blocks.drain(first.block + 1..last.block);
        }
        // What is left of either may be nothing.
        for block in [first.block + 1, first.block] {
            if self.blocks.get(block).is_some_and(|block| block.len == 0) {
                self.blocks.remove(block);
            }
        }
        self.join(first.block);
        self.join(first.block.saturating_sub(1));
    }

    /// Drops `count` elements from one end, whole blocks at a time.
    fn shorten(&mut self, mut count: usize, front: bool) {
        self.len -= count;
        while count > 0 {
            let block = if front { self.blocks.front_mut() } else { self.blocks.back_mut() };
            let Some(block) = block else { return };
            let len = block.len as usize;
            if len > count {
                let dropped = if front { 0..count } else { len - count..len };
                block.edit(|items| drop(items.drain(dropped)));
                return;
            }
            count -= len;
            if front {
                self.blocks.pop_front();
            } else {
                self.blocks.pop_back();
            }
        }
    }
}

impl<T> Block<T> {
    fn new(items: VecDeque<T>) -> Block<T> {
        Block { len: items.len() as u32, items: Arc::new(items) }
    }
}

impl<T: Clone> Block<T> {
    fn edit<R>(&mut self, edit: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        let items = Arc::make_mut(&mut self.items);
        let result = edit(items);
        self.len = items.len() as u32;
        result
    }
}

impl<T: Clone> FromIterator<T> for Sequence<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Sequence<T> {
        let mut sequence = Sequence::default();
        values.into_iter().for_each(|value| sequence.push_back(value));
        sequence
    }
}

impl<T: PartialEq> PartialEq for Sequence<T> {
    fn eq(&self, other: &Sequence<T>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: Hash> Hash for Sequence<T> {
    /// What is in it, however it is cut.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        self.iter().for_each(|value| value.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Front(u16),
        Back(u16),
        Insert(usize, u16),
        Remove(usize, u16),
        PopFront(u16),
        PopBack(u16),
        Set(usize),
        Keep(usize, usize),
        Cut(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u16..300).prop_map(Step::Front),
            (1u16..300).prop_map(Step::Back),
            (any::<usize>(), 1u16..300).prop_map(|(at, times)| Step::Insert(at, times)),
            (any::<usize>(), 1u16..300).prop_map(|(at, times)| Step::Remove(at, times)),
            (1u16..100).prop_map(Step::PopFront),
            (1u16..100).prop_map(Step::PopBack),
            any::<usize>().prop_map(Step::Set),
            (0usize..50, 0usize..50).prop_map(|(front, back)| Step::Keep(front, back)),
            (any::<usize>(), 0usize..400).prop_map(|(at, count)| Step::Cut(at, count)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_a_vector(steps in prop::collection::vec(step(), 1..20)) {
            let (mut sequence, mut twin) = (Sequence::default(), Vec::new());
            let mut kept = Vec::new();
            let mut fresh = 0u32;
            for step in steps {
                let mut value = || { fresh += 1; fresh };
                match step {
                    Step::Front(times) => (0..times).for_each(|_| { let v = value(); sequence.push_front(v); twin.insert(0, v) }),
                    Step::Back(times) => (0..times).for_each(|_| { let v = value(); sequence.push_back(v); twin.push(v) }),
                    Step::Insert(at, times) => (0..times).for_each(|_| {
                        let (v, at) = (value(), at % (twin.len() + 1));
                        sequence.insert_at(at, v);
                        twin.insert(at, v);
                    }),
                    Step::Remove(at, times) => for _ in 0..times {
                        if twin.is_empty() { break }
                        let at = at.wrapping_mul(31) % twin.len();
                        prop_assert_eq!(sequence.remove_at(at), twin.remove(at));
                    },
                    Step::PopFront(times) => for _ in 0..times {
                        prop_assert_eq!(sequence.pop_front(), (!twin.is_empty()).then(|| twin.remove(0)));
                    },
                    Step::PopBack(times) => for _ in 0..times {
                        prop_assert_eq!(sequence.pop_back(), twin.pop());
                    },
                    Step::Set(at) => if !twin.is_empty() {
                        let (v, at) = (value(), at % twin.len());
                        sequence.set(at, v);
                        twin[at] = v;
                    },
                    Step::Keep(front, back) => {
                        let range = front.min(twin.len())..twin.len().saturating_sub(back).max(front.min(twin.len()));
                        sequence.keep(range.clone());
                        twin = twin[range].to_vec();
                    }
                    Step::Cut(at, count) => {
                        let at = at % (twin.len() + 1);
                        let range = at..(at + count).min(twin.len());
                        sequence.cut(range.clone());
                        twin.drain(range);
                    }
                }
                prop_assert_eq!(sequence.len(), twin.len());
                prop_assert!(sequence.iter().eq(twin.iter()));
                prop_assert!(sequence.iter().rev().eq(twin.iter().rev()));
                let middle = twin.len() / 3..twin.len() * 2 / 3;
                prop_assert!(sequence.range(middle.clone()).eq(twin[middle].iter()));
                for at in (0..twin.len()).step_by(37) {
                    prop_assert_eq!(sequence.get(at), twin.get(at));
                }
                kept.push((sequence.clone(), twin.clone()));
            }
            for (sequence, twin) in kept {
                prop_assert!(sequence.iter().eq(twin.iter()));
            }
        }

        #[test]
        fn seeks_like_a_sorted_vector(values in prop::collection::vec(0u32..1000, 0..800), probe in 0u32..1001) {
            let mut sequence = Sequence::default();
            for value in &values {
                let place = sequence.seek(|held| held < value);
                sequence.insert(place, *value);
            }
            let mut sorted = values;
            sorted.sort_unstable();
            prop_assert!(sequence.iter().eq(sorted.iter()));
            let place = sequence.seek(|held| *held < probe);
            let index = sorted.partition_point(|held| *held < probe);
            prop_assert_eq!(sequence.index(place), index);
            prop_assert_eq!(sequence.at(place), sorted.get(index));
        }
    }
}
