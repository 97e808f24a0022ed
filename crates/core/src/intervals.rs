//! Runs of equal values over an ordered line, each run one entry.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// A map from half-open ranges of `K` to values, in which neighbours that are equal are one run: a million
/// no-ops in a row cost as much as one. `set` and `clear` take O(log n) and one step for each run they
/// cover, `get` O(log n); memory is that of the runs, whatever their length.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct IntervalMap<K: Ord, V> {
    /// By the beginning of a run: its end, exclusive, and what it holds. Runs do not overlap, and two that
    /// touch differ.
    runs: BTreeMap<K, (K, V)>,
}

impl<K: Ord, V> Default for IntervalMap<K, V> {
    fn default() -> IntervalMap<K, V> {
        IntervalMap { runs: BTreeMap::new() }
    }
}

impl<K: Copy + Ord, V: Clone + PartialEq> IntervalMap<K, V> {
    /// Sets every point of `range` to `v`, whatever was there. An empty range changes nothing.
    pub fn set(&mut self, range: Range<K>, v: V) {
        if range.start >= range.end {
            return;
        }
        self.clear(range.clone());
        let Range { mut start, mut end } = range;
        if let Some((first, (last, known))) = self.runs.range(..start).next_back()
            && *last == start
            && *known == v
        {
            start = *first;
        }
        if let Some((last, known)) = self.runs.get(&end)
            && *known == v
        {
            let last = *last;
            self.runs.remove(&end);
            end = last;
        }
        self.runs.insert(start, (end, v));
    }

    /// Empties every point of `range`.
    pub fn clear(&mut self, range: Range<K>) {
        let Range { start, end } = range;
        if start >= end {
            return;
        }
        if let Some((_, (last, known))) = self.runs.range_mut(..start).next_back()
            && *last > start
        {
            let behind = *last;
            *last = start;
            if behind > end {
                let known = known.clone();
                self.runs.insert(end, (behind, known));
            }
        }
        while let Some((&first, _)) = self.runs.range(start..end).next() {
            if let Some((last, known)) = self.runs.remove(&first)
                && last > end
            {
                self.runs.insert(end, (last, known));
            }
        }
    }

    /// What is at a point.
    pub fn get(&self, k: K) -> Option<&V> {
        let (_, (last, known)) = self.runs.range(..=k).next_back()?;
        (k < *last).then_some(known)
    }

    /// The run that holds a point: where it begins and ends.
    pub fn run(&self, k: K) -> Option<(Range<K>, &V)> {
        let (first, (last, known)) = self.runs.range(..=k).next_back()?;
        (k < *last).then_some((*first..*last, known))
    }

    /// The runs that meet `range`, cut to it, in order.
    pub fn runs(&self, range: Range<K>) -> impl DoubleEndedIterator<Item = (Range<K>, &V)> {
        let Range { start, end } = range;
        let before = self.runs.range(..start).next_back().filter(|(_, (last, _))| *last > start);
        let before = before.filter(|_| start < end);
        // An inverted range is empty here; the tree would not have it.
        let inside = self.runs.range(start..end.max(start));
        before.into_iter().chain(inside).map(move |(first, (last, known))| {
            let first = if *first < start { start } else { *first };
            let last = if *last > end { end } else { *last };
            (first..last, known)
        })
    }

    /// The parts of `range` where nothing is, in order.
    pub fn gaps(&self, range: Range<K>) -> impl Iterator<Item = Range<K>> {
        let Range { start, end } = range;
        let mut at = start;
        let mut runs = self.runs(start..end);
        let mut ended = start >= end;
        std::iter::from_fn(move || {
            while !ended {
                match runs.next() {
                    Some((run, _)) => {
                        let gap = at..run.start;
                        at = run.end;
                        if gap.start < gap.end {
                            return Some(gap);
                        }
                    }
                    None => {
                        ended = true;
                        if at < end {
                            return Some(at..end);
                        }
                    }
                }
            }
            None
        })
    }

    /// Whether every point of `range` is set. So it is where the range is empty.
    pub fn covers(&self, range: Range<K>) -> bool {
        self.gaps(range).next().is_none()
    }

    /// Forgets every point below `k`.
    pub fn trim(&mut self, k: K) {
        while let Some(first) = self.runs.first_entry()
            && *first.key() < k
        {
            let (last, known) = first.remove();
            if last > k {
                self.runs.insert(k, (last, known));
                return;
            }
        }
    }

    /// Forgets every point at or above `k`.
    pub fn truncate(&mut self, k: K) {
        self.runs.split_off(&k);
        if let Some(mut run) = self.runs.last_entry()
            && run.get().0 > k
        {
            run.get_mut().0 = k;
        }
    }

    /// Behind the last point that is set.
    pub fn end(&self) -> Option<K> {
        self.runs.last_key_value().map(|(_, (last, _))| *last)
    }

    /// How many runs are held.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    const POINTS: u64 = 40;

    #[test]
    fn it_agrees_with_an_array() {
        for seed in 0..300 {
            let mut random = Random::seeded(seed);
            let mut map = IntervalMap::default();
            let mut model = [None; POINTS as usize];
            for _ in 0..60 {
                let (a, b) = (random.below(POINTS), random.below(POINTS + 1));
                let (range, v) = (a..b, random.below(3));
                let points = a as usize..(b as usize).max(a as usize);
                match random.below(8) {
                    0 => {
                        map.trim(a);
                        model[..a as usize].fill(None);
                    }
                    1 => {
                        map.truncate(b);
                        model[b as usize..].fill(None);
                    }
                    2 | 3 => {
                        map.clear(range);
                        model[points].fill(None);
                    }
                    _ => {
                        map.set(range, v);
                        model[points].fill(Some(v));
                    }
                }
                let points = (0..POINTS).map(|k| map.get(k).copied());
                assert!(points.eq(model.iter().copied()), "seed {seed}: {map:?} is not {model:?}");
                let (a, b) = (random.below(POINTS), random.below(POINTS + 1));
                let inside = |k: &u64| (a..b).contains(k);
                let runs = map.runs(a..b).flat_map(|(run, v)| run.map(move |k| (k, *v)));
                let expected = model.iter().enumerate().filter_map(|(k, v)| Some((k as u64, (*v)?)));
                assert!(runs.eq(expected.filter(|(k, _)| inside(k))), "seed {seed}: {map:?} in {a}..{b}");
                let empty = (0..POINTS).filter(|k| inside(k) && model[*k as usize].is_none());
                assert!(map.gaps(a..b).flatten().eq(empty), "seed {seed}: gaps of {map:?} in {a}..{b}");
                let borders = model.windows(2).filter(|pair| pair[0] != pair[1] && pair[1].is_some()).count();
                assert_eq!(map.len(), borders + usize::from(model[0].is_some()), "seed {seed}: {map:?}");
                let end = model.iter().rposition(Option::is_some).map(|k| k as u64 + 1);
                assert_eq!(map.end(), end, "seed {seed}: {map:?}");
            }
        }
    }

    #[test]
    fn a_million_equal_points_are_one_run() {
        let mut map = IntervalMap::default();
        for at in 0..1_000u64 {
            map.set(at * 1_000..(at + 1) * 1_000, ());
        }
        assert_eq!(map.len(), 1);
        assert!(map.covers(0..1_000_000));
        assert_eq!(map.run(5), Some((0..1_000_000, &())));
    }
}
