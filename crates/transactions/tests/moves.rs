//! Keys that move between partitions while transactions run, in every protocol.

use crate::cluster::{Case, every_bug_is_caught, hold};
use crate::{carousel, twopc};
use isochrone_core::Random;
use isochrone_sim::FaultSet;
use isochrone_transactions::carousel::{Basic, Fast};
use isochrone_transactions::{Family, tapir, twopc as layered};

fn holds<F: Family>(tune: fn(&mut F::Parameters, &mut Random)) {
    let quiet = Case { moves: 6, ..Case::<F>::new(FaultSet::NONE, tune) };
    let (_, counted, ends) = hold(&quiet, 0, 12);
    println!("{counted:?} {ends:?}");
    for name in ["moves_ended", "transactions_redirected"] {
        assert!(counted.get(name).is_some_and(|times| *times > 10), "{name}: {counted:?}");
    }
    let (faults, counted, ends) = hold(&Case { moves: 6, ..Case::<F>::new(FaultSet::ALL, tune) }, 10_000, 20);
    println!("{faults}\n{counted:?} {ends:?}");
    let five = Case { replicas: 5, records: 4, ..Case { moves: 6, ..Case::<F>::new(FaultSet::ALL, tune) } };
    hold(&five, 20_000, 6);
}

#[test]
fn carousel_basic_holds_while_keys_move() {
    holds::<Basic>(carousel::safety::tune);
}

#[test]
fn carousel_fast_holds_while_keys_move() {
    holds::<Fast>(carousel::safety::tune);
}

#[test]
fn two_phase_commit_holds_while_keys_move() {
    holds::<layered::Family>(twopc::safety::tune);
}

#[test]
fn tapir_holds_while_keys_move() {
    holds::<tapir::Family>(|parameters, random| parameters.strict_reads = random.chance(0.5));
}

#[test]
fn planted_bugs_are_caught() {
    const BUGS: [&str; 4] = ["trust-the-cache", "read-source-only", "keep-source", "carry-nothing"];
    fn often<F: Family>(tune: fn(&mut F::Parameters, &mut Random)) -> Case<F> {
        Case { moves: 14, records: 6, rounds: 60, ..Case::new(FaultSet::NONE, tune) }
    }
    every_bug_is_caught(60, BUGS.map(|bug| (bug, often::<Fast>(carousel::safety::tune))));
    // Without a log, what is listed may not be there yet.
    let faults = Case { moves: 6, first: 100, ..Case::<tapir::Family>::new(FaultSet::ALL, |_, _| {}) };
    every_bug_is_caught(60, [("forget-pending", faults)]);
}
