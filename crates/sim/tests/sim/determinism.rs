//! Same seed, same run: here, again, and in another process.

use crate::toy::{Bug, Writers, busy, simulation};
use expect_test::expect;
use isochrone_sim::{FaultPlan, FaultSet, Record, Report};
use std::process::Command;

/// Set for a child process: the seed whose trace it prints.
const CHILD: &str = "ISOCHRONE_SIM_TRACE_OF";

fn run(seed: u64) -> (Report, String) {
    let mut config = busy(seed);
    config.record = Record::Flow;
    let mut simulation = simulation(config, Bug::None);
    let plan = FaultPlan::draw(seed, FaultSet::ALL, &simulation.shape(0));
    simulation.set_faults(plan);
    let report = simulation.run(&mut Writers::new(100));
    assert_eq!(report.violations, []);
    (report, simulation.trace())
}

#[test]
fn same_seed_same_bytes_in_two_processes() {
    if let Ok(seed) = std::env::var(CHILD) {
        let (report, trace) = run(seed.parse().expect("the parent sets a number"));
        println!("TRACE {:016x} {}\n{trace}END", report.hash, report.events);
        return;
    }
    for seed in [1, 7] {
        let child = || {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "determinism::same_seed_same_bytes_in_two_processes", "--nocapture"])
                .env(CHILD, seed.to_string())
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let start = text.find("TRACE").expect("the child prints its trace");
            text[start..text.find("END").unwrap()].to_owned()
        };
        let (first, second) = (child(), child());
        assert!(first.lines().count() > 1_000, "the trace is the whole flow");
        assert_eq!(first, second, "seed {seed}: two processes, two traces");
        let (here, trace) = run(seed);
        assert_eq!(first, format!("TRACE {:016x} {}\n{trace}", here.hash, here.events));
    }
}

/// Debug or release, this machine or that: one number. It changes with everything that changes a run, and
/// then is written anew with `UPDATE_EXPECT=1`.
#[test]
fn every_build_and_machine_has_these_hashes() {
    let hashes: Vec<String> = (0..8).map(|seed| format!("{:016x}", run(seed).0.hash)).collect();
    expect!["db3d4d8e1bdf7d94 1ef37f13da4ded96 756bc8b1573396b1 28eb5b5ee5d6d351 f95a8a1dfd2a3001 ae25dbe97baeb064 0a7f126d9b7f85fa 3593c84a0a8a02ca"].assert_eq(&hashes.join(" "));
}

#[test]
fn other_seed_other_run() {
    assert_ne!(run(1).0.hash, run(2).0.hash);
}

#[test]
fn recording_changes_nothing() {
    let mut quiet = simulation(busy(3), Bug::None);
    let mut config = busy(3);
    config.record = Record::Flow;
    let mut recorded = simulation(config, Bug::None);
    let quiet = quiet.run(&mut Writers::new(50));
    assert_eq!(quiet, recorded.run(&mut Writers::new(50)));
    assert_eq!(quiet.operations, 9 * 50);
}
