//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::machine::Machine;
use crate::safety::hold;
use isochrone_core::Random;
use isochrone_replication::curp::primary::{Family, Placement};
use isochrone_sim::FaultSet;
use std::collections::BTreeMap;

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

/// 7.2: nothing is recorded, and every command waits for the backups.
#[test]
fn a_keyspace_that_is_always_synced_asks_no_witness() {
    fn always(placement: &mut Placement<Machine>, random: &mut Random) {
        tune(placement, random);
        placement.parameters.fast_path.always_synced = true;
    }
    let (_, counted) = hold(&Case::<Family>::new(3, FaultSet::NONE, always), 0, 10);
    let count = |what| counted.get(what).copied().unwrap_or(0);
    assert!(count("curp_sync") > 100, "{counted:?}");
    assert_eq!((count("curp_fast"), count("curp_conflict")), (0, 0), "{counted:?}");
    hold(&Case::<Family>::new(3, FaultSet::ALL, always), 100_000, 20);
}

/// T18, T19: commands that read one key and write another, and such as fail.
#[test]
fn commands_on_two_keys_and_such_as_fail_hold_under_all_faults() {
    for (form, first) in [(tune as fn(&mut _, &mut _), 3_000_000), (unified, 3_100_000)] {
        let case = |replicas| Case::<Family> { mixed: true, ..Case::new(replicas, FaultSet::ALL, form) };
        let (_, counted) = hold(&case(3), first, 60);
        println!("{counted:?}");
        hold(&Case { hot: true, crashes: 4, rounds: 14, ..case(3) }, first + 10_000, 40);
        hold(&case(5), first + 20_000, 20);
    }
}

fn unified(placement: &mut Placement<Machine>, random: &mut Random) {
    tune(placement, random);
    let parameters = &mut placement.parameters;
    parameters.unified = true;
    if parameters.lease && random.chance(0.5) {
        parameters.nearby_reads = true;
        parameters.lease_length = parameters.lease_length * (1 + random.below(3));
    }
}

/// 3.16: servers are the witnesses of their nodes.
#[test]
fn servers_that_are_witnesses_hold_under_all_faults() {
    hold(&Case::<Family>::new(3, FaultSet::NONE, unified), 0, 10);
    let case = |replicas| Case::<Family>::new(replicas, FaultSet::ALL, unified);
    let hot = Case { hot: true, crashes: 4, rounds: 200, ..case(3) };
    for (case, first, seeds) in [(case(3), 50_000, 60), (case(5), 60_000, 30), (hot, 70_000, 30)] {
        let (_, counted) = hold(&case, first, seeds);
        println!("{counted:?}");
    }
}

/// The first master is told to hand over, and is cut off when it has, or just before.
#[test]
fn a_master_that_hands_over_may_be_cut_off() {
    let told = Case { usurped: true, hot: true, rounds: 200, ..Case::<Family>::new(3, FaultSet::NONE, tune) };
    let (_, counted) = hold(&told, 2_000_000, 60);
    let begun = counted.get("handovers_begun").copied().unwrap_or(0);
    assert!(begun > 30, "{counted:?}");
}

fn near(placement: &mut Placement<Machine>, random: &mut Random) {
    tune(placement, random);
    let parameters = &mut placement.parameters;
    (parameters.lease, parameters.nearby_reads) = (true, true);
    // Lists change before leases are over, or after.
    parameters.lease_length = parameters.lease_length * (1 + random.below(3));
}

/// D-13: copies that are cut off from the master, and not from their clients.
#[test]
fn reads_at_copies_hold_while_copies_are_cut_off() {
    let case = || Case::<Family> { hot: true, ..Case::new(3, FaultSet::ALL, near) };
    let mut counts = BTreeMap::<&str, u64>::new();
    for (first, case) in [
        (20_000, Case { isolated: 3, ..case() }),
        (30_000, Case { mute: true, hot: false, ..case() }),
        (40_000, Case { isolated: 2, crashes: 6, replicas: 5, ..case() }),
    ] {
        let (_, counted) = hold(&case, first, 40);
        counted.into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
    }
    println!("{counts:?}");
    for name in ["near_reads", "near_refused_conflict", "near_refused_unsynced", "near_refused_lease"] {
        assert!(counts.contains_key(name), "{name} never happened: {counts:?}");
    }
}
