//! Seeds (`specs/carousel.md` S1, F17): no oracle complains, what writes is strictly serializable and everything
//! serializable, money is conserved, and at the end one transaction over all keys commits, which nothing that is stuck
//! would let through.

use crate::cluster::{Case, hold};
use isochrone_core::{Random, Span};
use isochrone_sim::{FaultKind, FaultSet};
use isochrone_transactions::Family;
use isochrone_transactions::carousel::{Basic, Fast, Parameters, Reads};

pub fn tune(parameters: &mut Parameters, random: &mut Random) {
    parameters.early_abort = random.chance(0.3);
    parameters.limit = Span::from_secs([4, 30, 30][random.below(3) as usize]);
    parameters.keep = Span::from_millis([50, 1_000, 60_000][random.below(3) as usize]);
    parameters.log.keep_slots = [8, 200, 8_192][random.below(3) as usize];
    if parameters.cpc {
        parameters.reads = [Reads::Leader, Reads::Local, Reads::Nearest][random.below(3) as usize];
    }
}

fn holds<F: Family<Parameters = Parameters>>() {
    let (faults, counted, ends) = hold(&Case::<F>::new(FaultSet::ALL, tune), 0, 50);
    println!("{faults}\n{counted:?} {ends:?}");
    let five =
        Case { replicas: 5, records: 4, think: Span::from_millis(20), ..Case::new(FaultSet::ALL, tune) };
    hold::<F>(&five, 1_000, 15);
}

fn survives_leaders<F: Family<Parameters = Parameters>>(expected: &[&str]) {
    let case = Case { crashes: 5, isolated: 4, handovers: 5, ..Case::<F>::new(FaultSet::NONE, tune) };
    let (_, counted, ends) = hold(&case, 2_000, 40);
    println!("{counted:?} {ends:?}");
    for name in expected {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
}

#[test]
fn basic_holds_under_all_faults() {
    holds::<Basic>();
}

#[test]
fn fast_holds_under_all_faults() {
    holds::<Fast>();
}

#[test]
fn accounts_open_and_close_under_all_faults() {
    fn holds<F: Family<Parameters = Parameters>>() {
        hold(&Case { workload: Some("ledger"), ..Case::<F>::new(FaultSet::ALL, tune) }, 6_000, 15);
    }
    holds::<Basic>();
    holds::<Fast>();
}

/// Everything but the loss of a replica for good, which may be one of a majority that the members were changed to.
pub fn curable() -> FaultSet {
    FaultSet::ALL.without(FaultKind::BitRot).without(FaultKind::DiskLost)
}

/// Replicas are added and removed while leaders fail, with every other fault too.
fn survives_changes<F: Family<Parameters = Parameters>>(expected: &[&str]) {
    let rough = Case { crashes: 4, isolated: 3, changes: 12, ..Case::<F>::new(FaultSet::NONE, tune) };
    let (_, counted, ends) = hold(&rough, 12_000, 30);
    println!("{counted:?} {ends:?}");
    for name in expected {
        assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
    }
    hold(&Case { changes: 8, ..Case::<F>::new(curable(), tune) }, 13_000, 20);
}

#[test]
fn replicas_come_and_go() {
    survives_changes::<Basic>(&["membership_changes"]);
    survives_changes::<Fast>(&["membership_changes", "settled_by_votes", "votes_adopted"]);
}

#[test]
fn leaders_come_and_go() {
    survives_leaders::<Basic>(&["settled_by_log", "conflicts"]);
    survives_leaders::<Fast>(&["settled_by_log", "settled_by_votes", "votes_adopted", "conflicts"]);
}
