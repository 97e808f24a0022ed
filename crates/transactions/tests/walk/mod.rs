//! Orders in which messages may arrive, timers fire and processes fail, in the small world of [`world`], which is walked at
//! random, state by state, and explored step by step by [`model`]. Each walk ends with everybody being heard: nothing may be
//! stuck then, and what a last transaction reads must be what the others were told. `ISOCHRONE_WALKS` says how many walks,
//! for as long as one likes.

mod model;
mod world;

use isochrone_core::Random;
use isochrone_transactions::{Family, carousel, tapir, twopc};
use rustc_hash::FxHashSet;
use world::World;

/// Walks at random, each to its end; how many different states were seen, and in how many walks both committed.
fn explore<F: Family>(bug: Option<&str>, walks: u64) -> (usize, u64) {
    let begin = World::<F>::new(bug);
    let (mut seen, mut both) = (FxHashSet::default(), 0);
    for walk in 0..walks {
        let (mut world, mut random) = (begin.clone(), Random::seeded(walk));
        world.apart = random.chance(0.4);
        loop {
            let moves = world.moves();
            if moves.is_empty() {
                break;
            }
            world.step(moves[random.below(moves.len() as u64) as usize]);
            seen.insert(world.fingerprint());
        }
        both += u64::from(world.close() == 2);
    }
    (seen.len(), both)
}

fn walks(usual: u64) -> u64 {
    std::env::var("ISOCHRONE_WALKS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn nothing_is_wrong<F: Family>() {
    let (states, both) = explore::<F>(None, walks(400));
    println!("{}: {states} states, both committed in {both} walks", F::NAME);
    assert!(states > 10_000 && both > 5);
}

#[test]
fn no_order_found_breaks_carousel_fast() {
    nothing_is_wrong::<carousel::Fast>();
}

#[test]
fn no_order_found_breaks_carousel_basic() {
    nothing_is_wrong::<carousel::Basic>();
}

#[test]
fn no_order_found_breaks_two_phase_commit() {
    nothing_is_wrong::<twopc::Family>();
}

#[test]
fn no_order_found_breaks_tapir() {
    nothing_is_wrong::<tapir::Family>();
}

/// Each of these is found by some walk; the others want more transactions, or one failure more.
#[test]
fn the_walks_find_what_is_wrong() {
    fn found<F: Family>(bugs: &[&str]) {
        for bug in bugs {
            let walked = std::panic::catch_unwind(|| explore::<F>(Some(bug), 20_000));
            assert!(walked.is_err(), "{}: {bug} was not found", F::NAME);
        }
    }
    let both = ["versions-ignored", "release-early", "abort-unreplicated", "commit-unwritten"];
    found::<carousel::Basic>(&both);
    found::<carousel::Fast>(&both);
    found::<carousel::Fast>(&["votes-lost", "adopt-none"]);
    found::<twopc::Family>(&["prepare-without-validation", "vote-before-replication", "presume-commit"]);
    found::<twopc::Family>(&["decision-before-replication", "release-before-apply"]);
    found::<tapir::Family>(&["fast-quorum-too-small", "ignore-prepared", "ignore-stale-reads"]);
    found::<tapir::Family>(&["release-early", "forget-takeover"]);
}
