//! Seeds: no oracle complains, every history is strictly serializable, money is conserved, and at the end one
//! transaction over all keys commits, which nothing that is stuck would let through.

use crate::carousel::safety::curable;
use crate::cluster::{Case, hold};
use isochrone_core::{Random, Span};
use isochrone_sim::FaultSet;
use isochrone_transactions::twopc::{Coordinator, Family, Parameters};

pub fn tune(parameters: &mut Parameters, random: &mut Random) {
    parameters.coordinator = [Coordinator::Local, Coordinator::Remote][random.below(2) as usize];
    parameters.time_limit = Span::from_secs([4, 30, 30][random.below(3) as usize]);
    parameters.keep = Span::from_millis([50, 1_000, 60_000][random.below(3) as usize]);
    parameters.log.keep_slots = [8, 200, 8_192][random.below(3) as usize];
}

#[test]
fn nothing_breaks_without_faults() {
    let (_, counted, ends) = hold(&Case::<Family>::new(FaultSet::NONE, tune), 0, 30);
    println!("{counted:?} {ends:?}");
    assert!(counted.contains_key("wounded_transactions"), "{counted:?}");
}

#[test]
fn nothing_breaks_under_all_faults() {
    let (faults, counted, ends) = hold(&Case::<Family>::new(FaultSet::ALL, tune), 0, 60);
    println!("{faults}\n{counted:?} {ends:?}");
}

#[test]
fn accounts_open_and_close_under_all_faults() {
    hold(&Case { workload: Some("ledger"), ..Case::<Family>::new(FaultSet::ALL, tune) }, 6_000, 15);
}

#[test]
fn crashes_cuts_and_handovers_break_nothing() {
    let case = Case { crashes: 4, isolated: 3, handovers: 4, ..Case::<Family>::new(FaultSet::NONE, tune) };
    let (_, counted, ends) = hold(&case, 0, 40);
    println!("{counted:?} {ends:?}");
    for name in ["presumed_aborts", "silent_transactions", "wounded_transactions"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

#[test]
fn commits_that_are_withdrawn_break_nothing() {
    let calm = Case { withdrawals: 40, ..Case::<Family>::new(FaultSet::NONE, tune) };
    let (_, counted, ends) = hold(&calm, 14_000, 20);
    println!("{counted:?} {ends:?}");
    assert!(ends.contains_key("unavailable"), "none was aborted: {ends:?}");
    hold(&Case { crashes: 4, isolated: 3, handovers: 4, records: 4, ..calm }, 15_000, 40);
    hold(&Case { withdrawals: 40, moves: 8, ..Case::<Family>::new(FaultSet::ALL, tune) }, 16_000, 20);
}

#[test]
fn replicas_come_and_go() {
    let rough = Case { crashes: 4, isolated: 3, changes: 12, ..Case::<Family>::new(FaultSet::NONE, tune) };
    let (_, counted, ends) = hold(&rough, 12_000, 30);
    println!("{counted:?} {ends:?}");
    assert!(counted.contains_key("membership_changes"), "{counted:?}");
    hold(&Case { changes: 8, ..Case::<Family>::new(curable(), tune) }, 13_000, 20);
}

#[test]
fn hot_keys_and_partitions_of_five_break_nothing() {
    let small = Case {
        partitions: 4,
        records: 3,
        think: Span::from_millis(20),
        ..Case::<Family>::new(FaultSet::ALL, tune)
    };
    hold(&small, 100, 20);
    hold(&Case { replicas: 5, ..small }, 200, 10);
}

#[test]
fn a_partition_without_replicas_and_a_single_partition_break_nothing() {
    let alone = Case { partitions: 5, replicas: 1, ..Case::<Family>::new(FaultSet::ALL, tune) };
    hold(&alone, 300, 20);
    hold(&Case { partitions: 1, replicas: 3, ..alone }, 400, 20);
}
