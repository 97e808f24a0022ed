//! Seeds with faults: no oracle complains, every history is linearizable, every session ends.

use crate::cluster::Case;
use isochrone_replication::multipaxos::Form;
use isochrone_sim::{FaultSet, Histogram};
use std::collections::BTreeMap;

/// Runs these seeds; `ISOCHRONE_SEEDS` gives another number of them, `ISOCHRONE_SEED` a single one.
fn hold(case: Case, first: u64, count: u64) -> (Histogram, BTreeMap<&'static str, u64>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = match (number("ISOCHRONE_SEED"), number("ISOCHRONE_SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, many) => (first, many.unwrap_or(count)),
    };
    let (mut faults, mut counted) = (Histogram::default(), BTreeMap::new());
    let mut broken = Vec::new();
    for seed in first..first + count {
        let ran = case.run(seed);
        if std::env::var_os("ISOCHRONE_SHOW").is_some() {
            eprintln!("{seed}: {} events, {} answered", ran.report.events, ran.report.operations);
        }
        faults.merge(&ran.report.faults);
        for (name, number) in &ran.loops.counted {
            *counted.entry(*name).or_default() += number;
        }
        if let Some(text) = ran.broken() {
            if broken.is_empty() {
                println!("{}", ran.plan);
            }
            broken.push(text);
        }
    }
    assert!(
        broken.is_empty(),
        "{} of {count} seeds broke:\n{}",
        broken.len(),
        broken[..broken.len().min(8)].join("\n")
    );
    (faults, counted)
}

#[test]
fn quiet_runs_hold() {
    hold(Case::new(3, FaultSet::NONE), 0, 20);
    hold(Case { form: Form::Prefix, ..Case::new(3, FaultSet::NONE) }, 0, 20);
    hold(Case::new(1, FaultSet::NONE), 0, 5);
}

#[test]
fn three_replicas_hold_under_all_faults() {
    let (faults, counted) = hold(Case::new(3, FaultSet::ALL), 0, 200);
    println!("{faults}\n{counted:?}");
    if std::env::var_os("ISOCHRONE_SEED").is_none() {
        let missing: Vec<_> = faults.iter().filter(|(_, count)| *count == 0).collect();
        assert_eq!(missing, [], "faults that never happened");
        for name in ["membership_changes", "snapshots_installed", "lease_waits", "leaders_cut_off"] {
            assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
        }
    }
}

#[test]
fn a_run_is_the_same_every_time() {
    for seed in (0..200).step_by(20) {
        let case = Case::new(3, FaultSet::ALL);
        assert_eq!(case.run(seed).report.hash, case.run(seed).report.hash, "seed {seed}");
    }
}

#[test]
fn five_replicas_hold_under_all_faults() {
    hold(Case::new(5, FaultSet::ALL), 1_000_000, 120);
}

#[test]
fn a_prefix_log_holds_under_all_faults() {
    hold(Case { form: Form::Prefix, ..Case::new(3, FaultSet::ALL) }, 2_000_000, 120);
    hold(Case { form: Form::Prefix, ..Case::new(5, FaultSet::ALL) }, 3_000_000, 60);
}
