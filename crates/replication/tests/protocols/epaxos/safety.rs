//! Seeds with faults.

use super::tune;
use crate::safety::hold_under_all_faults;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 100, 60);
    for name in
        ["recoveries", "recovered_noop", "validations", "components_of_2_to_15", "slow_path", "fast_path"]
    {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}
