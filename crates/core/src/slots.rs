//! A log by position with gaps, its head trimmed as it goes.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// A place in a log, from 0. As a bound it is exclusive: "decided below slot 7" leaves 7 open.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
pub struct Slot(pub u64);

impl Slot {
    /// The first of all.
    pub const ZERO: Slot = Slot(0);

    /// The one behind this.
    pub fn next(self) -> Slot {
        Slot(self.0 + 1)
    }

    /// This many behind this one.
    pub fn plus(self, count: u64) -> Slot {
        Slot(self.0 + count)
    }

    /// How far this lies behind `other`; 0 where it does not.
    pub fn since(self, other: Slot) -> u64 {
        self.0.saturating_sub(other.0)
    }

    /// The slots from this one to before `end`.
    pub fn until(self, end: Slot) -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator + Clone {
        // `ExactSizeIterator` is not there for ranges of u64; a log in memory fits a usize.
        (0..end.since(self) as usize).map(move |offset| self.plus(offset as u64))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Slots for which room is kept, however few are held.
const ROOM: usize = 1_024;

/// A ring buffer over slots `base..end`, any of which may be empty. Insert, get and the steps of
/// `contiguous` are O(1); space is that of the range. It replaced an ordered map, whose nodes a log that
/// grows at one end and is cut at the other allocates and frees for nothing.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct SlotLog<T> {
    base: Slot,
    /// The first empty slot at or behind `base`.
    contiguous: Slot,
    ring: VecDeque<Option<T>>,
}

impl<T> Default for SlotLog<T> {
    fn default() -> SlotLog<T> {
        SlotLog::starting_at(Slot::ZERO)
    }
}

impl<T> SlotLog<T> {
    /// An empty log whose slots below `base` are gone.
    pub fn starting_at(base: Slot) -> SlotLog<T> {
        SlotLog { base, contiguous: base, ring: VecDeque::new() }
    }

    /// The first slot that is not trimmed.
    pub fn base(&self) -> Slot {
        self.base
    }

    /// Behind the last slot that was filled.
    pub fn end(&self) -> Slot {
        self.base.plus(self.ring.len() as u64)
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Fills a slot and gives what was there. A trimmed slot takes nothing: `t` is dropped.
    pub fn insert(&mut self, slot: Slot, t: T) -> Option<T> {
        if slot < self.base {
            return None;
        }
        let offset = slot.since(self.base) as usize;
        if offset >= self.ring.len() {
            self.ring.resize_with(offset + 1, || None);
        }
        let before = self.ring[offset].replace(t);
        while self.contiguous < self.end() && self.get(self.contiguous).is_some() {
            self.contiguous = self.contiguous.next();
        }
        before
    }

    /// What is in a slot.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        if slot < self.base {
            return None;
        }
        self.ring.get(slot.since(self.base) as usize)?.as_ref()
    }

    /// What is in a slot, to be changed.
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        if slot < self.base {
            return None;
        }
        self.ring.get_mut(slot.since(self.base) as usize)?.as_mut()
    }

    /// The first empty slot: all from `base` to before it are filled.
    pub fn contiguous(&self) -> Slot {
        self.contiguous
    }

    /// The empty slots from `base` to before `upto`.
    pub fn gaps(&self, upto: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.contiguous.until(upto).filter(|slot| self.get(*slot).is_none())
    }

    /// The filled slots from `from` on, in order.
    pub fn range(&self, from: Slot) -> impl Iterator<Item = (Slot, &T)> {
        let from = from.max(self.base);
        from.until(self.end()).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Forgets every slot below `upto`, which becomes the base even where nothing was held.
    pub fn trim(&mut self, upto: Slot) {
        if upto <= self.base {
            return;
        }
        let gone = (upto.since(self.base) as usize).min(self.ring.len());
        self.ring.drain(..gone);
        self.base = upto;
        self.contiguous = self.contiguous.max(upto);
        while self.contiguous < self.end() && self.get(self.contiguous).is_some() {
            self.contiguous = self.contiguous.next();
        }
        // What a gap or a burst took is given back, seldom enough that moving what is held costs next to nothing.
        let room = (self.ring.len() * 2).max(ROOM);
        if self.ring.capacity() > room * 4 {
            self.ring.shrink_to(room);
        }
    }

    /// Forgets every slot from `from` on.
    pub fn truncate(&mut self, from: Slot) {
        let kept = from.since(self.base) as usize;
        self.ring.truncate(kept);
        self.contiguous = self.contiguous.min(from).max(self.base);
    }

    /// Forgets everything and starts at `base`.
    pub fn reset(&mut self, base: Slot) {
        *self = SlotLog::starting_at(base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeMap;

    #[test]
    fn the_room_that_a_gap_took_is_given_back() {
        let mut log = SlotLog::default();
        log.insert(Slot(100_000), 'x');
        log.trim(Slot(99_999));
        assert_eq!((log.get(Slot(100_000)), log.end()), (Some(&'x'), Slot(100_001)));
        assert!(log.ring.capacity() <= 2 * ROOM, "room for {}", log.ring.capacity());
    }

    #[test]
    fn it_agrees_with_an_ordered_map() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let (mut log, mut model, mut base) = (SlotLog::default(), BTreeMap::new(), Slot(0));
            for step in 0..60u64 {
                match random.below(10) {
                    0 => {
                        base = base.max(Slot(random.below(40)));
                        log.trim(base);
                        model.retain(|slot, _| *slot >= base);
                    }
                    1 => {
                        let from = Slot(random.below(60));
                        log.truncate(from);
                        model.retain(|slot, _| *slot < from);
                    }
                    _ => {
                        let slot = Slot(random.below(50));
                        let known = model.get(&slot).copied();
                        if slot >= base {
                            model.insert(slot, step);
                        }
                        assert_eq!(log.insert(slot, step), known);
                    }
                }
                assert_eq!(log.base(), base);
                assert!(log.range(Slot(0)).map(|(s, t)| (s, *t)).eq(model.iter().map(|(s, t)| (*s, *t))));
                let empty = |slot: &Slot| !model.contains_key(slot);
                assert_eq!(Some(log.contiguous()), base.until(Slot(99)).find(empty));
                assert!(log.gaps(Slot(55)).eq(base.until(Slot(55)).filter(empty)));
            }
        }
    }
}
