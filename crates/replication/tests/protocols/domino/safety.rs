//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::safety::{hold, hold_under_all_faults};
use isochrone_replication::domino::Family;
use isochrone_sim::FaultSet;

#[test]
fn all_faults_at_three_and_five_replicas_break_nothing() {
    let counted = hold_under_all_faults::<Family>(tune, 100, 60);
    println!("{counted:?}");
}

#[test]
fn five() {
    hold(&Case::<Family>::new(5, FaultSet::ALL, tune), 1_000_000, 30);
}
