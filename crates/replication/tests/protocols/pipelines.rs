//! Commands that a client has sent without waiting are run in that order, whatever is lost on the way to who takes them.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply, key};
use crate::talk::{A, B, C, D, Silent};
use isochrone_core::{NodeId, Random, Span, Ticket};
use isochrone_replication::multipaxos::Form;
use isochrone_replication::{
    Change, Family, Outcome, Placement, Request, curp, epaxos, mencius, multipaxos, sdpaxos,
};
use isochrone_sim::{Config, Simulation};

/// A client that is 10 ms from three replicas says numbers in bursts while its way to the first is cut again and again; and that
/// one may crash, and is there again soon, or hand over to the second, which hands it back.
fn keeps_order<F: Family>(seed: u64, crashes: bool, tune: fn(&mut Placement<Machine, F>)) {
    let mut random = Random::seeded(seed);
    let nodes = [A, B, C, D];
    let way = |from: NodeId, to: NodeId| if from == to { Span::ZERO } else { Span::from_millis(10) };
    let delays = nodes.map(|from| nodes.map(|to| way(from, to)).to_vec()).to_vec();
    let mut config = Config::new(seed, &["A", "B", "C", "D"], delays);
    (config.sync, config.sessions) = (Span::from_millis(1), 0);
    let mut placement: Placement<Machine, F> = placement(4, 3, 0, Span::from_millis(20));
    tune(&mut placement);
    let client = placement.client(D);
    let mut cluster: Cluster<F> = Simulation::new(config, &placement);
    let mut answers = Silent::default();
    cluster.boot();
    cluster.run_for(Span::from_secs(1), &mut answers);
    let (mut said, mut connected) = (0, true);
    for _ in 0..60 {
        for _ in 0..1 + random.below(5) {
            said += 1;
            let command = Command::Append(key(1), format!("{said} "));
            cluster.request(client, Ticket(said), Request::Command(command));
            cluster.run_for(Span::from_micros(random.below(400)), &mut answers);
        }
        match random.below(if crashes { 5 } else { 3 }) {
            0 | 1 => {
                connected = !connected;
                cluster.connect(A, D, connected);
            }
            2 => {}
            3 => {
                for (way, (from, to)) in [(A, B), (B, A)].into_iter().enumerate() {
                    let change = Request::Change(Change::Lead(to));
                    cluster.request(placement.client(from), Ticket(said * 2 + way as u64), change);
                    said += 1;
                    let command = Command::Append(key(1), format!("{said} "));
                    cluster.request(client, Ticket(said), Request::Command(command));
                    cluster.run_for(Span::from_millis(35 + random.below(60)), &mut answers);
                }
            }
            _ => {
                cluster.crash(A);
                cluster.run_for(Span::from_millis(random.below(20)), &mut answers);
                cluster.restart(A);
            }
        }
        cluster.run_for(Span::from_millis(random.below(15)), &mut answers);
    }
    if !connected {
        cluster.connect(A, D, true);
    }
    cluster.run_for(Span::from_secs(30), &mut answers);
    cluster.request(client, Ticket(said + 1), Request::Command(Command::Get(key(1))));
    cluster.run_for(Span::from_secs(1), &mut answers);
    assert_eq!(cluster.broken(), None);
    let Some(Outcome::Replied(Reply::Text(Some(text)))) = answers.0.last() else {
        panic!("{:?}", answers.0.last())
    };
    let run: Vec<u64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let expected: Vec<u64> = (1..=said).collect();
    assert_eq!(run, expected, "{}, seed {seed}", F::NAME);
}

#[test]
fn what_is_said_without_waiting_is_run_in_that_order() {
    for seed in 0..10 {
        let prefix = |placement: &mut Placement<Machine, multipaxos::Family>| {
            placement.parameters.form = Form::Prefix;
        };
        keeps_order::<multipaxos::Family>(seed, true, prefix);
        keeps_order::<multipaxos::Family>(seed, false, |_| {});
        keeps_order::<curp::primary::Family>(seed, true, |_| {});
        keeps_order::<curp::consensus::Family>(seed, true, |_| {});
        keeps_order::<mencius::Family>(seed, false, |_| {});
        keeps_order::<epaxos::Family>(seed, false, |_| {});
        keeps_order::<sdpaxos::Family>(seed, false, |_| {});
    }
}
