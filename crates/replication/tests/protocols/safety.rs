//! Seeds with faults: no oracle complains, every history is linearizable, every session ends.

use crate::cluster::Case;
use crate::machine::Machine;
use isochrone_core::Random;
use isochrone_replication::{Family, Placement};
use isochrone_sim::{FaultSet, Histogram};
use std::collections::BTreeMap;

/// Runs these seeds; `ISOCHRONE_SEEDS` gives another number of them, `ISOCHRONE_SEED` a single one.
pub fn hold<F: Family>(case: &Case<F>, first: u64, count: u64) -> (Histogram, BTreeMap<&'static str, u64>) {
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

/// All faults at three and at five replicas: nothing breaks, and every kind of fault has happened.
pub fn hold_under_all_faults<F: Family>(
    tune: fn(&mut Placement<Machine, F>, &mut Random),
    three: u64,
    five: u64,
) -> BTreeMap<&'static str, u64> {
    hold(&Case::new(3, FaultSet::NONE, tune), 0, 20);
    hold(&Case::new(1, FaultSet::NONE, tune), 0, 5);
    let case = Case::new(3, FaultSet::ALL, tune);
    let (faults, counted) = hold(&case, 0, three);
    println!("{faults}\n{counted:?}");
    if std::env::var_os("ISOCHRONE_SEED").is_none() && three >= 100 {
        let missing: Vec<_> =
            faults.iter().filter(|(kind, count)| *count == 0 && FaultSet::ALL.contains(*kind)).collect();
        assert_eq!(missing, [], "faults that never happened");
        for name in ["membership_changes", "snapshots_installed"] {
            assert!(counted.contains_key(name), "{name} never happened: {counted:?}");
        }
    }
    hold(&Case::new(5, FaultSet::ALL, tune), 1_000_000, five);
    for seed in (0..three).step_by(20) {
        assert_eq!(case.run(seed).report.hash, case.run(seed).report.hash, "seed {seed}");
    }
    counted
}
