//! Seeds with faults.

use super::tune;
use crate::safety::hold_under_all_faults;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults(tune, 100, 40);
    for name in ["turns_revoked", "turns_reclaimed", "suggested_again", "answered_early"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}
