//! Choices that a seed makes.

use isochrone_core::Random;
use isochrone_core::command::Response;
use std::collections::BTreeSet;

/// The answer of a command that chooses among `len` elements: one of them alone, or nil, where it names no
/// count; else a list, as [`several`] chooses.
pub(crate) fn answer<T>(
    seed: u64,
    len: usize,
    count: Option<i64>,
    nth: impl Fn(usize) -> Option<T>,
    alone: impl FnOnce(T) -> Response,
    listed: impl FnOnce(Vec<T>) -> Response,
) -> Response {
    match count {
        Some(count) => listed(several(seed, len, count).into_iter().filter_map(nth).collect()),
        None if len == 0 => Response::Nil,
        None => nth(one(seed, len)).map_or(Response::Nil, alone),
    }
}

/// One of `len` positions; `len` is not 0.
fn one(seed: u64, len: usize) -> usize {
    Random::seeded(seed).below(len as u64) as usize
}

/// Positions as `SRANDMEMBER`, `HRANDFIELD` and `ZRANDMEMBER` want them: `count` different ones, or all;
/// for a negative count that many with repetition.
fn several(seed: u64, len: usize, count: i64) -> Vec<usize> {
    if len == 0 {
        return Vec::new();
    }
    let mut random = Random::seeded(seed);
    if count < 0 {
        return (0..count.unsigned_abs()).map(|_| random.below(len as u64) as usize).collect();
    }
    different(&mut random, len, count as u64)
}

/// `count` different positions of `len`, or all of them, each choice equally likely (Floyd's algorithm).
pub(crate) fn different(random: &mut Random, len: usize, count: u64) -> Vec<usize> {
    if count >= len as u64 {
        return (0..len).collect();
    }
    let mut chosen = BTreeSet::new();
    let mut order = Vec::with_capacity(count as usize);
    for bound in len - count as usize..len {
        let draw = random.below(bound as u64 + 1) as usize;
        let draw = if chosen.insert(draw) { draw } else { bound };
        chosen.insert(draw);
        order.push(draw);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn different_means_different(seed: u64, len in 1usize..200, count in 0u64..250) {
            let chosen = different(&mut Random::seeded(seed), len, count);
            prop_assert_eq!(chosen.len() as u64, count.min(len as u64));
            prop_assert!(chosen.iter().all(|at| *at < len));
            prop_assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), chosen.len());
        }
    }

    #[test]
    fn every_choice_is_possible() {
        let pairs: BTreeSet<_> = (0..1000)
            .map(|seed| {
                let mut p = several(seed, 4, 2);
                p.sort_unstable();
                p
            })
            .collect();
        assert_eq!(pairs.len(), 6);
        assert_eq!(several(1, 3, -50).len(), 50);
    }
}
