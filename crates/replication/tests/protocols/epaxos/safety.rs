//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::safety::{hold, hold_under_all_faults};
use isochrone_replication::epaxos::Family;
use isochrone_sim::FaultSet;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 100, 60);
    for name in
        ["recoveries", "recovered_noop", "validations", "components_of_2_to_15", "slow_path", "fast_path"]
    {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
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
