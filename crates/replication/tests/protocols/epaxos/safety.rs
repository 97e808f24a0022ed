//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::safety::{hold, hold_under_all_faults};
use isochrone_replication::epaxos::Family;
use isochrone_replication::service::Reply;
use isochrone_sim::{FaultKind, FaultSet};

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 60, 40);
    for name in
        ["recoveries", "recovered_noop", "validations", "components_of_2_to_15", "slow_path", "fast_path"]
    {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

#[test]
fn seven_replicas_hold_under_all_faults() {
    hold(&Case::new(7, FaultSet::ALL, tune), 2_000_000, 12);
}

/// Writes that are answered at their commit keep real time for each key: a later command has a higher number
/// of order, also where both are in one component.
#[test]
fn replies_at_commit_keep_each_key_linearizable() {
    let case = |replicas| {
        let faults = FaultSet::ALL.without(FaultKind::Membership);
        Case::<Family>::new(replicas, faults, |placement, random| {
            tune(placement, random);
            placement.service.reply = Reply::Commit;
            placement.parameters.reply = Reply::Commit;
        })
    };
    hold(&case(3), 0, 30);
    hold(&case(5), 0, 20);
    hold(&Case { hot: true, rounds: 100, ..case(5) }, 0, 10);
}

/// `flaws.md`: execution can chain through dependencies. Ten sessions write two keys without pause at five
/// replicas: components appear, and stay small, since what is not executed counts against the window.
#[test]
fn chains_end_under_contention() {
    let case = Case::<Family> { hot: true, rounds: 400, ..Case::new(5, FaultSet::NONE, |_, _| {}) };
    let (_, counted) = hold(&case, 0, 6);
    println!("{counted:?}");
    assert!(counted.contains_key("components_of_2_to_15"), "{counted:?}");
    assert!(!counted.contains_key("components_of_256_or_more"), "{counted:?}");
}
