//! Seeds with faults.

use super::lab::Plan;
use super::tune;
use crate::safety::hold_under_all_faults;
use crate::talk::set;
use isochrone_core::{ProcessId, Span};
use isochrone_replication::domino::{Family, Way};
use std::collections::BTreeMap;

#[test]
fn all_faults_at_three_and_five_replicas_break_nothing() {
    let counted = hold_under_all_faults::<Family>(tune, 40, 12);
    println!("{counted:?}");
}

/// The states that replicas go through while ten commands are asked, this far apart.
fn states(way: Way, every: Span) -> BTreeMap<ProcessId, Vec<u64>> {
    let mut lab = Plan::even(3, 15).open(|placement| placement.parameters.way = way);
    lab.pass(Span::from_millis(1_500));
    let done = lab.series(3, 10, every, &set("x"));
    assert_eq!(done.len(), 10);
    lab.heard.states
}

/// I11: a no-op has no effect, and nothing depends on how many there are: a position is a nanosecond, so ten commands ten
/// seconds apart have ten thousand million more between them than ten that follow each other closely.
#[test]
fn no_state_depends_on_the_number_of_no_ops() {
    for way in [Way::Fast, Way::Led] {
        let close = states(way, Span::from_millis(100));
        assert!(close.len() == 3 && close.values().all(|states| states.len() == 10), "{close:?}");
        assert_eq!(close, states(way, Span::from_secs(10)), "{way:?}");
    }
}
