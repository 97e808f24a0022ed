//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::machine::Machine;
use crate::safety::hold;
use isochrone_core::Random;
use isochrone_replication::curp::primary::{Family, Placement};
use isochrone_sim::FaultSet;

fn one(placement: &mut Placement<Machine>, random: &mut Random) {
    tune(placement, random);
    placement.parameters.f = 1;
}

#[test]
fn nothing_breaks_without_faults() {
    hold(&Case::<Family>::new(3, FaultSet::NONE, tune), 0, 20);
    hold(&Case::<Family>::new(1, FaultSet::NONE, tune), 0, 5);
}

#[test]
fn three_replicas_hold_under_all_faults() {
    let (_, counted) = hold(&Case::<Family>::new(3, FaultSet::ALL, tune), 0, 100);
    println!("{counted:?}");
}

#[test]
fn one_copy_holds_under_all_faults() {
    let (_, counted) = hold(&Case::<Family>::new(3, FaultSet::ALL, one), 10_000, 60);
    println!("{counted:?}");
}

#[test]
fn five_replicas_hold_under_all_faults() {
    let (_, counted) = hold(&Case::<Family>::new(5, FaultSet::ALL, tune), 1_000_000, 40);
    println!("{counted:?}");
}

/// The first master is told to hand over, and is cut off when it has, or just before.
#[test]
fn a_master_that_hands_over_may_be_cut_off() {
    let told = Case { usurped: true, hot: true, rounds: 200, ..Case::<Family>::new(3, FaultSet::NONE, tune) };
    let (_, counted) = hold(&told, 2_000_000, 60);
    let begun = counted.get("handovers_begun").copied().unwrap_or(0);
    assert!(begun > 30, "{counted:?}");
}
