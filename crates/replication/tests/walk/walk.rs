//! Random walks through a world, to see of one that is too large to be seen whole what there is time for.
//! `ISOCHRONE_STATES` says how many states, for as long a walk as one likes; `ISOCHRONE_TRACE` tells every step.

use super::world::{Letter, World};
use isochrone_core::Random;
use isochrone_replication::order::Order;
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

/// A walk that is longer than this has no end: every message leads to another.
const WALK_MAX: usize = 20_000;

/// Walks at random from the start until `bound` different states were seen, or many walks in a row have
/// shown nothing new: a small world is then as good as exhausted. How many states there were, and how many
/// walks ended with every replica having been given something.
pub fn explore<O: Order<Value = Letter>>(world: &World<O>, bound: usize) -> (usize, usize) {
    let mut complete = 0;
    let states = explore_and_look(world, bound, |world| {
        complete += usize::from(world.given().iter().all(|count| *count > 0));
    });
    (states, complete)
}

/// The same, and a look at the end of each walk. How many states there were.
pub fn explore_and_look<O: Order<Value = Letter>>(
    world: &World<O>,
    bound: usize,
    mut look: impl FnMut(&World<O>),
) -> usize {
    let bound = std::env::var("ISOCHRONE_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(bound);
    let trace = std::env::var_os("ISOCHRONE_TRACE").is_some();
    let mut random = Random::seeded(1);
    let mut seen = FxHashSet::default();
    let mut idle = 0;
    while seen.len() < bound && idle < 2_000 {
        let (mut at, before) = (world.clone(), seen.len());
        let mut length = 0;
        if trace {
            eprintln!("a walk:");
        }
        loop {
            let steps = at.steps();
            if steps.is_empty() {
                break;
            }
            length += 1;
            assert!(length < WALK_MAX, "nobody comes to rest, though no timer fires");
            let step = steps[random.below(steps.len() as u64) as usize].clone();
            if trace {
                eprintln!("{}", at.tell(&step));
            }
            at.step(step);
            seen.insert(fingerprint(&at));
        }
        look(&at);
        idle = if seen.len() == before { idle + 1 } else { 0 };
    }
    seen.len()
}

fn fingerprint<O: Order<Value = Letter>>(world: &World<O>) -> u64 {
    let mut hasher = FxHasher::default();
    world.hash(&mut hasher);
    hasher.finish()
}
