//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::safety::{hold, hold_under_all_faults};
use isochrone_sim::FaultSet;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 60, 30);
    for name in ["elections", "views_installed", "lease_waits"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

#[test]
fn seven_hold_under_all_faults() {
    hold(&Case::new(7, FaultSet::ALL, tune), 2_000_000, 16);
}
