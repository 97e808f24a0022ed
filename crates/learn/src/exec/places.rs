//! Where parameters lie in memory: what many samples touch lies together, so that lines and pages that the caches hold are full of
//! it. Numbers of features say nothing of that: of the line that a popular one is in, most is never asked for.
//!
//! A plan is of all its samples, so it tells how many of them touch a parameter. From that follows a place for each, and for each
//! entry of the data the place of its feature, beside the features: so nobody looks places up while threads learn. The same goes
//! for weights, which then need not lie in cells. Tasks see samples as they are, and sums run in their order: what is learnt is
//! the same, bit for bit.

use super::cells::share_of;
use super::prefetch::prefetch;
use super::weights_by_degree;
use crate::data::Dataset;
use crate::memory::zeros;
use crate::plan::AHEAD;
use crate::shares::each_share;
use std::cmp::Reverse;

/// See the module. Of data whose parameters are its features.
#[derive(Debug)]
pub(crate) struct Places {
    /// Of each parameter.
    of: Vec<u32>,
    /// Of each entry's parameter.
    entries: Vec<u32>,
    /// Of each entry, [`crate::Step::weights`]; empty where nobody asked.
    shares: Vec<f32>,
}

impl Places {
    /// Of these samples, with shares if they are wanted; made by so many threads.
    pub(crate) fn new(data: &Dataset<'_>, shares: bool, threads: usize) -> Places {
        let degrees = data.degrees_by(threads);
        let of = by_degree(&degrees);
        let entries = looked_up(data.features(), &of, threads);
        let shares = if shares {
            looked_up(data.features(), &weights_by_degree(&degrees), threads)
        } else {
            Vec::new()
        };
        Places { of, entries, shares }
    }

    /// Bytes that they take at most, and meanwhile what they are made of beside counts.
    pub(crate) fn bytes(parameters: u64, entries: u64, shares: bool) -> u64 {
        let shares = if shares { 4 * entries + 4 * parameters } else { 0 };
        4 * (parameters + entries) + shares + (4 << 16)
    }

    /// Of each parameter.
    pub(crate) fn of(&self) -> &[u32] {
        &self.of
    }

    /// Of each entry's parameter.
    pub(crate) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// Of each entry, [`crate::Step::weights`].
    pub(crate) fn shares(&self) -> &[f32] {
        &self.shares
    }

    /// Whether shares were asked for.
    pub(crate) fn has_shares(&self) -> bool {
        self.shares.len() == self.entries.len()
    }
}

/// A place for each parameter: the highest degree first, and among equals the lowest number.
fn by_degree(degrees: &[u32]) -> Vec<u32> {
    // Those above are so few that they are sorted.
    const COUNTED: usize = 1 << 16;
    let mut counts = [0_u32; COUNTED].to_vec();
    let mut above = Vec::new();
    for (parameter, &degree) in (0_u32..).zip(degrees) {
        match counts.get_mut(degree as usize) {
            Some(count) => *count += 1,
            None => above.push((Reverse(degree), parameter)),
        }
    }
    above.sort_unstable();
    // Where those of each degree begin.
    let mut start = above.len() as u32;
    for count in counts.iter_mut().rev() {
        start += std::mem::replace(count, start);
    }
    let mut places = zeros(degrees.len());
    for (place, &degree) in places.iter_mut().zip(degrees) {
        if let Some(next) = counts.get_mut(degree as usize) {
            *place = *next;
            *next += 1;
        }
    }
    for (place, &(_, parameter)) in (0..).zip(&above) {
        places[parameter as usize] = place;
    }
    places
}

/// What a table has for each feature, found by so many threads.
fn looked_up<N: Copy + Default + Send + Sync>(features: &[u32], table: &[N], threads: usize) -> Vec<N> {
    let mut found = zeros(features.len());
    let share = share_of(features.len(), threads);
    let fill = |found: &mut [N], features: &[u32]| {
        for (at, (found, &feature)) in found.iter_mut().zip(features).enumerate() {
            if let Some(&ahead) = features.get(at + AHEAD) {
                prefetch(&table[ahead as usize]);
            }
            *found = table[feature as usize];
        }
    };
    each_share(found.chunks_mut(share).zip(features.chunks(share)), |(found, features)| {
        fill(found, features)
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::tests::samples;
    use isochrone_core::Random;

    #[test]
    fn the_most_popular_come_first_and_equals_by_their_numbers() {
        assert!(by_degree(&[]).is_empty());
        assert_eq!(by_degree(&[0, 3, 1, 3, 0]), [3, 0, 2, 1, 4]);
        let mut random = Random::seeded(1);
        // Also beyond what is counted.
        let most = [1, 40, 70_000, u64::from(u32::MAX)];
        let mut degrees: Vec<u32> = (0..5_000).map(|at| random.below(most[at % 4]) as u32).collect();
        degrees.extend([65_535, 65_536, 65_536, 65_537, u32::MAX, u32::MAX, 0]);
        let mut wanted: Vec<usize> = (0..degrees.len()).collect();
        wanted.sort_by_key(|&parameter| Reverse(degrees[parameter]));
        let places = by_degree(&degrees);
        let found: Vec<u32> = wanted.iter().map(|&parameter| places[parameter]).collect();
        assert_eq!(found, (0..degrees.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn entries_know_place_and_share_of_their_features() {
        let data = samples(5_000, 70_000, 40, 1);
        let one = Places::new(&data, true, 1);
        let several = Places::new(&data, true, 3);
        assert_eq!((&one.of, &one.entries, &one.shares), (&several.of, &several.entries, &several.shares));
        let degrees = data.degrees();
        for (entry, &feature) in data.features().iter().enumerate() {
            assert_eq!(one.entries()[entry], one.of()[feature as usize]);
            assert_eq!(one.shares()[entry], 1.0 / degrees[feature as usize] as f32);
        }
        assert!(one.has_shares() && !Places::new(&data, false, 3).has_shares());
    }
}
