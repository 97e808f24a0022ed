//! Seeds with faults.

use super::tune;
use crate::safety::hold_under_all_faults;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 100, 40);
    for name in ["indices_recovered", "indices_skipped", "indices_sealed", "coordinators_cut_off"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}
