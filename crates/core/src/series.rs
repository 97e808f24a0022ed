//! Values by rising numbers.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// A map from numbers that mostly rise as they come in and mostly leave lowest first, such as sequence
/// numbers under way: a queue with holes instead of a tree. Where the numbers are dense a look-up is one
/// step, elsewhere a binary search; a number out of turn is let in and costs a shift. Memory is bounded by
/// twice the values held, whatever the numbers are.
#[derive(Clone, Debug)]
pub struct Series<T> {
    /// Ascending; `None` where a value has left out of turn, never at either end.
    entries: VecDeque<(u64, Option<T>)>,
    held: usize,
}

/// With fewer entries holes are not worth closing.
const HOLES_MIN: usize = 64;

impl<T> Default for Series<T> {
    fn default() -> Series<T> {
        Series { entries: VecDeque::new(), held: 0 }
    }
}

impl<T> Series<T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// The value of a number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.entries[self.find(number).ok()?].1.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = self.find(number).ok()?;
        self.entries[at].1.as_mut()
    }

    /// Sets the value of a number and gives the former one.
    pub fn insert(&mut self, number: u64, value: T) -> Option<T> {
        let at = self.find(number);
        let former = match at {
            Ok(at) => self.entries[at].1.replace(value),
            Err(at) if at == self.entries.len() => {
                self.entries.push_back((number, Some(value)));
                None
            }
            Err(at) => {
                self.entries.insert(at, (number, Some(value)));
                None
            }
        };
        self.held += usize::from(former.is_none());
        former
    }

    /// Removes a number and gives its value.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let at = self.find(number).ok()?;
        let value = self.entries[at].1.take()?;
        self.held -= 1;
        self.tidy();
        Some(value)
    }

    /// The lowest number and its value.
    pub fn first(&self) -> Option<(u64, &T)> {
        self.iter().next()
    }

    /// The highest number and its value.
    pub fn last(&self) -> Option<(u64, &T)> {
        self.entries.back().and_then(|(number, value)| Some((*number, value.as_ref()?)))
    }

    /// Removes everything below a number.
    pub fn trim(&mut self, below: u64) {
        while self.entries.pop_front_if(|(number, _)| *number < below).is_some_and(|(_, value)| {
            self.held -= usize::from(value.is_some());
            true
        }) {}
        self.tidy();
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.held = 0;
    }

    /// Numbers and values, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().filter_map(|(number, value)| Some((*number, value.as_ref()?)))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.entries.iter_mut().filter_map(|(number, value)| Some((*number, value.as_mut()?)))
    }

    /// Where a number stands, or would.
    fn find(&self, number: u64) -> Result<usize, usize> {
        let (Some((first, _)), Some((last, _))) = (self.entries.front(), self.entries.back()) else {
            return Err(0);
        };
        if number > *last {
            return Err(self.entries.len());
        }
        let Some(guess) = number.checked_sub(*first) else { return Err(0) };
        match usize::try_from(guess).ok().and_then(|at| Some((at, self.entries.get(at)?))) {
            Some((at, (found, _))) if *found == number => Ok(at),
            _ => self.entries.binary_search_by_key(&number, |(number, _)| *number),
        }
    }

    /// Takes the holes away from both ends, and all of them once they are more than the values.
    fn tidy(&mut self) {
        while self.entries.pop_front_if(|(_, value)| value.is_none()).is_some() {}
        while self.entries.pop_back_if(|(_, value)| value.is_none()).is_some() {}
        if self.entries.len() > 2 * self.held + HOLES_MIN {
            self.entries.retain(|(_, value)| value.is_some());
        }
    }
}

impl<T: PartialEq> PartialEq for Series<T> {
    fn eq(&self, other: &Series<T>) -> bool {
        self.held == other.held && self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for Series<T> {}

impl<T: Hash> Hash for Series<T> {
    /// What is in it, wherever there were holes.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.held.hash(state);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec((0u8..4, 0u64..40, any::<bool>()), 1..400)) {
            let (mut series, mut twin, mut top) = (Series::default(), BTreeMap::new(), 0);
            for (step, number, sparse) in steps {
                match step {
                    0 | 1 => {
                        top += if sparse { number + 1 } else { 1 };
                        prop_assert_eq!(series.insert(top, number), twin.insert(top, number));
                    }
                    2 => {
                        let number = top.saturating_sub(number);
                        prop_assert_eq!(series.remove(number), twin.remove(&number));
                        prop_assert_eq!(series.insert(number / 2, 7), twin.insert(number / 2, 7));
                    }
                    _ => {
                        let below = top.saturating_sub(4 * number);
                        series.trim(below);
                        twin = twin.split_off(&below);
                    }
                }
                prop_assert_eq!(series.len(), twin.len());
                prop_assert!(series.iter().eq(twin.iter().map(|(number, value)| (*number, value))));
                prop_assert_eq!(series.first(), twin.first_key_value().map(|(n, v)| (*n, v)));
                prop_assert_eq!(series.last(), twin.last_key_value().map(|(n, v)| (*n, v)));
                prop_assert_eq!(series.get(number), twin.get(&number));
            }
        }
    }

    #[test]
    fn one_that_stays_holds_no_room_for_those_that_went() {
        let mut series = Series::default();
        for number in 0..10_000u64 {
            series.insert(number, ());
            if number > 0 {
                series.remove(number);
            }
        }
        assert_eq!(series.len(), 1);
        assert!(series.entries.len() <= 2 + HOLES_MIN);
    }
}
