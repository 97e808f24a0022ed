//! Seeds with faults.

use super::tune;
use crate::cluster::Case;
use crate::safety::{hold, hold_under_all_faults};
use isochrone_replication::curp::consensus::Family;
use isochrone_sim::FaultSet;

#[test]
fn it_holds_under_all_faults() {
    let counted = hold_under_all_faults::<Family>(tune, 100, 60);
    for name in ["curp_fast", "curp_conflict", "curp_rejected", "recoveries_with_replay"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

/// Two keys, no thought: most commands conflict, and those that do not are decided long after they are answered.
#[test]
fn it_holds_where_all_want_the_same_keys() {
    let hot = |replicas, faults| {
        let case = Case::<Family>::new(replicas, faults, tune);
        Case { hot: true, rounds: 400, crashes: 4, isolated: 2, ..case }
    };
    let (_, counted) = hold(&hot(3, FaultSet::ALL), 4_000_000, 40);
    println!("{counted:?}");
    hold(&hot(5, FaultSet::ALL), 5_000_000, 20);
    for name in ["curp_fast", "speculation_conflicts", "speculation_undone"] {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

/// T18, T19: commands that read one key and write another, and such as fail.
#[test]
fn it_holds_with_commands_on_two_keys_and_such_as_fail() {
    let case = |replicas| Case::<Family> { mixed: true, ..Case::new(replicas, FaultSet::ALL, tune) };
    let (_, counted) = hold(&case(3), 6_000_000, 60);
    println!("{counted:?}");
    hold(&Case { hot: true, crashes: 4, rounds: 14, ..case(3) }, 6_100_000, 40);
    hold(&case(5), 6_200_000, 20);
    // T45: seven replicas, of which three may fail.
    hold(&case(7), 6_300_000, 16);
    hold(&Case { hot: true, crashes: 8, isolated: 3, rounds: 14, ..case(7) }, 6_400_000, 16);
}
