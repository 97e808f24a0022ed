//! Seeds with faults (`specs/carousel.md` 9.2, 9.3).

use super::cluster::Case;
use isochrone_sim::FaultSet;
use isochrone_transactions::tapir::Mutation;

#[test]
fn nothing_breaks_without_faults() {
    let (_, counted) = Case::new(3, "bank", FaultSet::NONE).hold(0, 10);
    assert!(counted["committed"] > 100, "{counted:?}");
    Case::new(1, "bank", FaultSet::NONE).hold(0, 5);
}

#[test]
fn nothing_breaks_under_faults_at_three_replicas() {
    Case::new(3, "bank", FaultSet::ALL).hold(0, 60);
}

#[test]
fn nothing_breaks_under_faults_at_five_replicas() {
    Case::new(5, "bank", FaultSet::ALL).hold(1_000, 30);
}

#[test]
fn what_dead_clients_leave_is_ended() {
    let case = Case { clients_crash: 12, ..Case::new(3, "bank", FaultSet::NONE) };
    let (_, counted) = case.hold(2_000, 30);
    assert!(counted["takeovers"] > 20, "{counted:?}");
}

#[test]
fn replicas_end_what_clients_are_still_at() {
    let case = Case { hasty: true, clients_crash: 6, ..Case::new(3, "bank", FaultSet::ALL) };
    let (_, counted) = case.hold(5_000, 20);
    assert!(counted["takeovers"] > 10, "{counted:?}");
    let case =
        Case { hasty: true, clients_crash: 6, crashes: 6, views: 4, ..Case::new(5, "bank", FaultSet::NONE) };
    case.hold(6_000, 15);
    // A replica lets go of what it has checked, since it accepts a refusal that a later ballot does not hear of.
    Case { hasty: true, clients_crash: 6, ..Case::new(3, "bank", FaultSet::ALL) }.hold(6_257, 1);
}

#[test]
fn mixed_transactions_under_faults() {
    Case::new(3, "txn-check", FaultSet::ALL).hold(7_000, 20);
    let case = Case {
        hasty: true,
        clients_crash: 6,
        crashes: 6,
        views: 6,
        ..Case::new(5, "txn-check", FaultSet::NONE)
    };
    case.hold(8_000, 10);
}

#[test]
fn accounts_open_and_close_under_all_faults() {
    Case::new(3, "ledger", FaultSet::ALL).hold(9_000, 15);
}

/// What a client with such a clock has committed lies in the future of all others for minutes.
#[test]
fn a_clock_that_was_far_ahead_for_a_moment_holds_nobody_up() {
    Case::new(3, "ledger", FaultSet::ALL).hold(9_047, 1);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let case = Case { views: 4, clients_crash: 4, ..Case::new(3, "bank", FaultSet::ALL) };
    for seed in 0..4 {
        assert_eq!(case.run(seed).hash, case.run(seed).hash, "seed {seed}");
    }
}

/// Every planted bug is found by one of these kinds of runs.
#[test]
fn planted_bugs_are_found() {
    let quiet = Case::new(3, "bank", FaultSet::NONE);
    let hasty = Case { hasty: true, clients_crash: 10, crashes: 6, ..quiet.clone() };
    let wide = Case { views: 20, ..Case { replication: 5, ..hasty.clone() } };
    let bugs = [
        ("ignore-prepared", &quiet),
        ("ignore-stale-reads", &quiet),
        ("release-early", &quiet),
        ("forget-prepared", &Case { crashes: 30, ..hasty.clone() }),
        ("presume-abort", &hasty),
        ("forget-takeover", &hasty),
        ("forget-view", &wide),
    ];
    // That of a smaller fast quorum takes a course of its own.
    assert_eq!(bugs.len() + 1, Mutation::ALL.len());
    for (bug, case) in bugs {
        let found = case.finds(bug, 0..60);
        println!("{bug}: {found:?}");
        assert!(found.is_some(), "{bug} was not found");
    }
}

#[test]
fn views_change_at_any_moment_at_three_replicas() {
    let case = Case { views: 12, clients_crash: 6, ..Case::new(3, "bank", FaultSet::ALL) };
    let (_, counted) = case.hold(3_000, 30);
    assert!(counted["view_changes"] > 10, "{counted:?}");
}

#[test]
fn views_change_at_any_moment_at_five_replicas() {
    let case = Case { views: 12, clients_crash: 6, crashes: 6, ..Case::new(5, "bank", FaultSet::NONE) };
    let (_, counted) = case.hold(4_000, 30);
    assert!(counted["view_changes"] > 10, "{counted:?}");
}
