//! The pieces of the world, each alone.

use crate::toy::{Bug, Setup, Toy, Writers, client, config, server, simulation};
use isochrone_core::{NodeId, ProcessId, Span, Ticket};
use isochrone_sim::{Config, Record, Simulation};

/// Latency of the only write of each client, by node.
fn latencies(config: Config) -> Vec<Span> {
    let mut writers = Writers::new(1);
    let report = simulation(config, Bug::None).run(&mut writers);
    assert_eq!(report.violations, []);
    writers.finished.sort_by_key(|(session, _)| session.client.node);
    writers.finished.into_iter().map(|(_, latency)| latency).collect()
}

#[test]
fn a_hook_decides_delays() {
    let mut config = config(1);
    // The first 5 ms everything takes a millisecond, later ten.
    config.delay_hook = Some(Box::new(|_, _, at, _| Span::from_millis(if at < 5_000_000 { 1 } else { 10 })));
    assert_eq!(latencies(config), [2, 4, 4].map(Span::from_millis));
}

#[test]
fn a_sync_adds_itself_and_nothing_else() {
    let mut config = config(1);
    config.sync = Span::from_millis(3);
    // Leader and follower sync side by side; the client at the leader sees the follower's way only.
    let mut one = Writers::new(1);
    let mut simulation = simulation(config, Bug::None);
    simulation.run(&mut one);
    let at_leader = one.finished.iter().find(|(session, _)| session.client.node == NodeId(0));
    assert_eq!(at_leader.map(|(_, latency)| *latency), Some(Span::from_millis(23)));
}

#[test]
fn processing_makes_a_queue() {
    let mut config = config(1);
    config.cost.fixed = Span::from_millis(1);
    let slow = latencies(config);
    assert!(slow[0] >= Span::from_millis(25), "the leader's inputs take a millisecond each: {slow:?}");
}

#[test]
fn one_budget_for_both_directions_is_narrower() {
    let narrow = |shared| {
        let mut config = config(1);
        config.bandwidth = Some(1_000);
        config.bandwidth_shared = shared;
        latencies(config)
    };
    let (apart, shared) = (narrow(false), narrow(true));
    assert!(apart[0] >= Span::from_millis(25), "a few bytes take milliseconds: {apart:?}");
    assert!(shared.iter().zip(&apart).all(|(shared, apart)| shared > apart), "{shared:?}, {apart:?}");
}

#[test]
fn a_dormant_process_starts_when_it_is_told() {
    let mut config = config(1);
    config.dormant = vec![server(0)];
    let mut simulation: Simulation<Toy> =
        Simulation::new(config, &Setup { nodes: 3, clients: 0..3, bug: Bug::None });
    let mut writers = Writers::new(1);
    simulation.run_for(Span::from_secs(1), &mut writers);
    assert_eq!(writers.finished.len(), 0, "without its leader the toy says nothing");
    simulation.start(server(0));
    simulation.run_for(Span::from_secs(1), &mut writers);
    assert_eq!(writers.finished.len(), 3);
}

#[test]
fn a_crash_comes_between_any_two_effects() {
    // The leader's first turn makes an accept for each of three nodes: all, some or none of them leave.
    let sent = |effects: u64| {
        let mut config = config(1);
        config.record = Record::Flow;
        let mut simulation = simulation(config, Bug::None);
        simulation.boot();
        simulation.run_for(Span::ZERO, &mut Writers::new(0));
        let before = simulation.trace().lines().count();
        simulation.crash_after(NodeId(0), effects);
        simulation.request(client(0), Ticket(1), 7);
        assert_eq!(simulation.is_up(NodeId(0)), effects > 9);
        let trace = simulation.trace();
        trace.lines().skip(before).filter(|line| line.contains(" Accept {")).count()
    };
    assert_eq!([0, 1, 2, 3, 4].map(sent), [0, 0, 1, 2, 3]);
}

#[test]
fn a_killed_process_comes_back_with_its_records() {
    let mut simulation = simulation(config(1), Bug::None);
    let mut writers = Writers::new(5);
    simulation.run_for(Span::from_millis(100), &mut writers);
    let leader: ProcessId = server(0);
    simulation.kill(leader);
    simulation.start(leader);
    simulation.run_for(Span::from_secs(5), &mut writers);
    assert_eq!(simulation.broken(), None);
    assert_eq!(writers.finished.len(), 15);
}
