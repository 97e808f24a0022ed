//! The leader's region dies: how long until all others are served again.

use crate::driver::Loops;
use crate::machine::Machine;
use isochrone_core::{Deployment, NodeId, Span};
use isochrone_replication::multipaxos::{MultiPaxos, Placement};
use isochrone_sim::{Config, FaultSet, Simulation};

/// From the crash of the leader to the last other region's first answer.
fn outage(seed: u64) -> Span {
    let deployment = Deployment::five_regions();
    let mut placement = Placement::<Machine>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
    placement.leader = NodeId((seed % 5) as u16);
    let nodes = || deployment.nodes().iter().map(|node| node.id);
    let delays = nodes().map(|from| nodes().map(|to| deployment.one_way(from, to)).collect()).collect();
    let names: Vec<&str> = deployment.nodes().iter().map(|node| node.name.as_str()).collect();
    let mut config = Config::new(seed, &names, delays);
    (config.sync, config.sessions) = (Span::from_millis(3), 4);
    config.faults.kinds = FaultSet::NONE;
    let mut simulation = Simulation::<MultiPaxos<Machine>>::new(config, &placement);
    let mut loops = Loops::new(seed, u64::MAX);
    (loops.reads, loops.think) = (0, Span::from_millis(20));
    simulation.boot();
    simulation.run_for(Span::from_millis(5_000 + seed * 37 % 500), &mut loops);
    let crashed = simulation.now();
    simulation.crash(placement.leader);
    let before = loops.history.len();
    simulation.run_for(Span::from_secs(6), &mut loops);
    assert_eq!(simulation.broken(), None);
    let first = |node: NodeId| {
        let client = placement.client(node).to_u64();
        // What was asked before may have been answered in time; what is asked after shows the service.
        let asked = loops.history[before..].iter().filter(|operation| operation.client == client);
        let inflight = loops.history[..before].iter().filter(|operation| operation.client == client);
        let answered = asked.chain(inflight).filter_map(|operation| operation.returned);
        answered.filter(|at| *at > crashed.as_nanos() + 400_000_000).min()
    };
    let others = nodes().filter(|node| *node != placement.leader);
    let last = others.map(|node| first(node).expect("served again")).max();
    Span::from_nanos(last.unwrap_or_default() - crashed.as_nanos())
}

#[test]
fn the_others_are_served_again_in_seconds() {
    let mut outages: Vec<Span> = (0..100).map(outage).collect();
    outages.sort_unstable();
    println!("p50 {}, p99 {}", outages[50], outages[99]);
    assert!(outages[50] <= Span::from_millis(1_500), "p50 {}", outages[50]);
    assert!(outages[99] <= Span::from_secs(3), "p99 {}", outages[99]);
}
