//! Messages stay small, and the simulator fast: run with `--release -- --ignored --nocapture`.

use crate::cluster::placement;
use crate::driver::Loops;
use crate::machine::{Command, Machine, Reply};
use isochrone_core::Span;
use isochrone_replication::multipaxos::{self, MultiPaxos, Parameters, log};
use isochrone_sim::{Config, Simulation};
use std::mem::size_of;

/// What is queued and moved for every message; a change here is a change of the simulator's speed.
#[test]
fn messages_keep_their_size() {
    assert_eq!(size_of::<log::Message<multipaxos::Entry<Command>>>(), 48);
    assert_eq!(size_of::<multipaxos::Message<Command, Reply>>(), 56);
    assert_eq!(size_of::<multipaxos::Record<Command>>(), 48);
}

#[test]
#[ignore = "a measurement, for a release build"]
fn events_a_second_under_load() {
    for sessions in [20, 200, 2_000] {
        let parameters = Parameters::for_rtt(Span::from_millis(40));
        let delay =
            |from: u16, to: u16| Span::from_millis(if from == to { 0 } else { 10 + u64::from(from + to) });
        let delays = (0..5).map(|from| (0..5).map(|to| delay(from, to)).collect()).collect();
        let mut config = Config::new(1, &["a", "b", "c", "d", "e"], delays);
        (config.sync, config.sessions) = (Span::from_millis(3), sessions);
        config.patience = Span::from_secs(3_600);
        let mut simulation = Simulation::<MultiPaxos<Machine>>::new(config, &placement(5, 5, 0, parameters));
        let mut loops = Loops::new(1, u64::from(200_000 / sessions));
        (loops.think, loops.keys, loops.sets, loops.quiet) = (Span::ZERO, 200, true, true);
        let started = std::time::Instant::now();
        let report = simulation.run(&mut loops);
        let seconds = started.elapsed().as_secs_f64();
        assert_eq!(report.violations, []);
        println!(
            "{:>6} in flight: {:.2} M events/s, {:.2} M operations/s",
            sessions * 5,
            report.events as f64 / seconds / 1e6,
            report.operations as f64 / seconds / 1e6
        );
    }
}
