//! Seeds with faults.

use super::tune;
use crate::safety::hold_under_all_faults;
use isochrone_replication::curp::consensus::Family;

#[test]
fn it_holds_under_all_faults() {
    hold_under_all_faults::<Family>(tune, 100, 60);
}
