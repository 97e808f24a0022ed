//! Oracles see what they are there to see.

use crate::toy::{Bug, Writers, busy, client, config, simulation};
use isochrone_core::{NodeId, Span};
use isochrone_sim::{FaultKind, FaultPlan, FaultSet, Report, ViolationKind};

fn run(seed: u64, bug: Bug, faults: FaultSet) -> Report {
    let mut simulation = simulation(busy(seed), bug);
    let plan = FaultPlan::draw(seed, faults, &simulation.shape(0));
    simulation.set_faults(plan);
    simulation.run(&mut Writers::new(40))
}

/// The kinds under which the toy, which has no election, keeps its promises.
fn survivable() -> FaultSet {
    FaultSet::ALL.without(FaultKind::BitRot).without(FaultKind::DiskLost)
}

#[test]
fn latency_without_load_is_the_closed_form() {
    let mut simulation = simulation(config(1), Bug::None);
    let mut writers = Writers::new(5);
    let report = simulation.run(&mut writers);
    assert_eq!(report.violations, []);
    for (session, latency) in writers.finished {
        // To the leader and back, and the leader's round trip to the nearer of its peers.
        let expected = [0, 20, 50][session.client.node.0 as usize] + 20;
        assert_eq!(latency, Span::from_millis(expected), "from {}", session.client);
    }
}

#[test]
fn a_right_protocol_survives_every_fault() {
    for seed in 0..150 {
        let report = run(seed, Bug::None, survivable());
        assert_eq!(report.violations, [], "seed {seed}");
        assert!(report.operations > 0);
    }
}

#[test]
fn acknowledging_before_the_record_is_durable_is_caught() {
    let caught = (0..400).map(|seed| run(seed, Bug::AckBeforeDurable, survivable()));
    let caught = caught.flat_map(|report| report.violations).next();
    let violation = caught.expect("no seed of 400 shows the bug");
    assert_eq!(violation.kind, ViolationKind::Agreement, "{violation}");
    let again = run(violation.seed, Bug::AckBeforeDurable, survivable());
    assert_eq!(again.violations, [violation], "its seed replays it");
}

#[test]
fn forgetting_on_restart_is_caught() {
    let crash = "crash".parse().expect("a group");
    let mut caught = (0..20).flat_map(|seed| run(seed, Bug::ForgetOnRestart, crash).violations);
    let violation = caught.next().expect("no seed of 20 shows the bug");
    assert_eq!(violation.kind, ViolationKind::Agreement);
    assert!(violation.text.contains("decided"), "{violation}");
}

#[test]
fn a_record_that_does_not_survive_its_bytes_is_caught() {
    let crash = "crash".parse().expect("a group");
    let mut caught = (0..20).flat_map(|seed| run(seed, Bug::LossyRecord, crash).violations);
    let violation = caught.next().expect("no seed of 20 shows the bug");
    assert_eq!(violation.kind, ViolationKind::Encoding, "{violation}");
    assert!(
        violation.text.contains("cannot read what it has kept: malformed record: Entry {"),
        "{violation}"
    );
    assert!(violation.text.contains("lost: true } came back from its bytes as Ok(Entry {"), "{violation}");
}

#[test]
fn a_panic_is_a_violation_with_its_text() {
    let report = run(1, Bug::PanicAt(17), FaultSet::NONE);
    let [violation] = &report.violations[..] else { panic!("one violation, not {:?}", report.violations) };
    assert_eq!(violation.kind, ViolationKind::Panic);
    assert!(violation.text.starts_with("toy: position 17 is the wrong one ("), "{violation}");
    assert!(violation.text.contains("toy.rs:"), "{violation}");
}

#[test]
fn silence_after_healing_is_a_violation() {
    let report = run(1, Bug::SilentFrom(30), FaultSet::NONE);
    let [violation] = &report.violations[..] else { panic!("one violation, not {:?}", report.violations) };
    assert_eq!(violation.kind, ViolationKind::Stuck);
    assert!(violation.text.contains("of 9 sessions have not ended"), "{violation}");
    assert_eq!(report.operations, 29);
}

#[test]
fn a_run_without_end_is_given_up() {
    let mut config = busy(1);
    config.budget = 1_000;
    let report = simulation(config, Bug::None).run(&mut Writers::new(1_000_000));
    assert_eq!(report.violations[0].kind, ViolationKind::Budget);
}

#[test]
fn a_loop_whose_clients_died_ends() {
    let mut simulation = simulation(busy(1), Bug::None);
    let mut writers = Writers::new(1_000_000);
    simulation.run_for(Span::from_secs(1), &mut writers);
    for node in 0..3 {
        simulation.stop(client(node));
        simulation.crash(NodeId(node));
    }
    simulation.run_for(Span::from_secs(1), &mut writers);
    let quiet = simulation.now();
    assert_eq!(writers.lost, 9, "every open request is unknown");
    simulation.run_for(Span::from_secs(3_600), &mut writers);
    assert_eq!(simulation.now().since(quiet), Span::from_secs(3_600));
}
