//! Many seeds over threads.

use crate::toy::{Bug, Writers, busy, simulation};
use isochrone_sim::{FaultPlan, FaultSet, Report, Seeds, Summary, ViolationKind, run_seeds};
use std::sync::atomic::{AtomicU64, Ordering};

fn run(seed: u64, bug: Bug) -> Report {
    let mut simulation = simulation(busy(seed), bug);
    let plan = FaultPlan::draw(seed, FaultSet::ALL, &simulation.shape(0));
    simulation.set_faults(plan);
    simulation.run(&mut Writers::new(10))
}

fn over(threads: usize, bug: Bug) -> Summary {
    let seeds = Seeds { threads, twice_every: 10, ..Seeds::new(100, 40) };
    run_seeds(&seeds, |seed| run(seed, bug), |_| {})
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let (one, three) = (over(1, Bug::None), over(3, Bug::None));
    assert_eq!((one.seeds, one.twice, &one.violations), (40, 4, &Vec::new()));
    assert_eq!(one.hash(), three.hash());
    assert_eq!((one.operations, one.events, &one.faults), (three.operations, three.events, &three.faults));
}

#[test]
fn violations_come_back_with_their_seeds() {
    let summary = over(2, Bug::PanicAt(20));
    assert_eq!(summary.violations.len() as u64, summary.seeds, "every run reaches position 20");
    assert!(summary.violations.is_sorted_by_key(|violation| violation.seed));
    assert!(summary.violations.iter().all(|violation| violation.kind == ViolationKind::Panic));
}

#[test]
fn a_run_that_depends_on_more_than_its_seed_is_caught() {
    let calls = AtomicU64::new(0);
    let seeds = Seeds { twice_every: 1, ..Seeds::new(0, 3) };
    let other = |_| run(calls.fetch_add(1, Ordering::Relaxed), Bug::None);
    let summary = run_seeds(&seeds, other, |_| {});
    assert_eq!(summary.violations.len(), 3);
    assert!(summary.violations.iter().all(|violation| violation.kind == ViolationKind::Determinism));
}

#[test]
fn a_panic_outside_the_run_is_a_violation_of_its_seed() {
    let summary = run_seeds(&Seeds::one(9), |seed| panic!("no run of {seed}"), |_| {});
    let [violation] = &summary.violations[..] else { panic!("one violation") };
    assert_eq!((violation.seed, violation.kind), (9, ViolationKind::Panic));
    assert!(violation.text.starts_with("no run of 9 ("), "{violation}");
}
