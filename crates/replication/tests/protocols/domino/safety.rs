//! Seeds with faults.

use super::tune;
use crate::safety::hold_under_all_faults;
use isochrone_replication::domino::Family;

#[test]
fn all_faults_at_three_and_five_replicas_break_nothing() {
    let counted = hold_under_all_faults::<Family>(tune, 100, 30);
    println!("{counted:?}");
}
