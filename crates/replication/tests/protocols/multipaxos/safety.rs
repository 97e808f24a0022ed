//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::safety::{hold, hold_under_all_faults};
use isochrone_replication::multipaxos::Form;
use isochrone_sim::FaultSet;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 200, 120);
    for name in ["lease_waits", "leaders_cut_off"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

#[test]
fn a_prefix_log_holds_under_all_faults() {
    let prefix = |replicas, faults| {
        Case::new(replicas, faults, |placement, random| {
            tune(placement, random);
            placement.parameters.form = Form::Prefix;
        })
    };
    hold(&prefix(3, FaultSet::NONE), 0, 20);
    hold(&prefix(3, FaultSet::ALL), 2_000_000, 120);
    hold(&prefix(5, FaultSet::ALL), 3_000_000, 60);
}
