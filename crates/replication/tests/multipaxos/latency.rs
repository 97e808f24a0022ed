//! Without load, a command takes exactly the way to the leader and back and the leader's majority round.

use crate::machine::{Command, Machine, Reply};
use isochrone_core::deployment::Deployment;
use isochrone_core::topology::Cells;
use isochrone_core::{Fact, Instant, Matrix, NodeId, Path, ProcessId, RegionId, Span, Ticket};
use isochrone_plan::Client;
use isochrone_replication::multipaxos::{MultiPaxos, Placement};
use isochrone_replication::{Outcome, Request};
use isochrone_sim::{Config, Driver, Next, Session, Simulation};
use std::collections::BTreeMap;

/// Each session asks a few times, far apart, once there is a leader.
struct Alone {
    reads: bool,
    asked: BTreeMap<u32, u64>,
    invoked: BTreeMap<Ticket, Instant>,
    waits: Vec<(NodeId, Span)>,
    phases: u64,
}

const ROUNDS: u64 = 3;

impl Driver<MultiPaxos<Machine>> for Alone {
    fn next(&mut self, session: Session, _: Instant) -> Next<Request<Command>> {
        let count = self.asked.entry(session.number).or_default();
        if *count == ROUNDS {
            return Next::Done;
        }
        *count += 1;
        // One at a time in the whole cluster, so that nothing waits for anything.
        let at = Instant::ZERO + Span::from_secs(10 + *count * 40 + u64::from(session.number) * 2);
        let command = if self.reads { Command::Get(0) } else { Command::Set(0, "x".to_owned()) };
        Next::Request { at, request: Request::Command(command) }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.invoked.insert(ticket, now);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        assert!(matches!(outcome, Outcome::Replied(_)), "{outcome:?}");
        self.waits.push((session.client.node, now.since(self.invoked[&ticket])));
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Committed { path, total, phases, .. } = fact {
            assert_eq!(*path, if self.reads { Path::Lease } else { Path::Leader });
            if !self.reads {
                let sum = phases.iter().fold(Span::ZERO, |sum, phase| sum + *phase);
                assert_eq!(sum, *total, "the phases are the whole");
                self.phases += 1;
            }
        }
    }
}

fn waits(matrix: &Matrix, replicas: &[RegionId], leader: RegionId, reads: bool) -> Vec<(NodeId, Span)> {
    let deployment = Deployment::of_matrix(matrix.clone(), "multipaxos", replicas);
    let mut placement = Placement::<Machine>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
    placement.leader = NodeId(leader.0);
    let names: Vec<&str> = matrix.names().collect();
    let delay = |from, to| matrix.one_way(RegionId(from), RegionId(to));
    let count = names.len() as u16;
    let delays = (0..count).map(|from| (0..count).map(|to| delay(from, to)).collect()).collect();
    let mut config = Config::new(7, &names, delays);
    config.horizon = Span::from_secs(600);
    let mut driver =
        Alone { reads, asked: BTreeMap::new(), invoked: BTreeMap::new(), waits: Vec::new(), phases: 0 };
    let report = Simulation::new(config, &placement).run(&mut driver);
    assert_eq!(report.violations, [], "{report:?}");
    assert_eq!(driver.waits.len() as u64, ROUNDS * u64::from(count));
    assert!(reads || driver.phases > 0, "no phases were measured");
    driver.waits
}

#[test]
fn every_region_waits_what_the_closed_form_says_for_every_leader_on_every_matrix() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/rtt");
    let mut matrices = 0;
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains("stdev") {
            continue;
        }
        matrices += 1;
        let text = std::fs::read_to_string(&file).unwrap();
        let lan = Span::from_micros(500);
        let matrix = Matrix::parse(&text, &name, Cells::RoundTrip, lan)
            .or_else(|_| Matrix::parse(&text, &name, Cells::AsymmetricRoundTrip, lan))
            .unwrap();
        let size = [7, 5, 3, 1].into_iter().find(|size| *size <= matrix.len()).unwrap();
        let replicas: Vec<RegionId> = matrix.regions().take(size).collect();
        for leader in &replicas {
            for (node, wait) in waits(&matrix, &replicas, *leader, false) {
                let client = Client::At(RegionId(node.0));
                let expected = isochrone_plan::multipaxos::commit(&matrix, client, *leader, &replicas);
                let error = wait.as_nanos().abs_diff(expected.as_nanos());
                let of = matrix.name(RegionId(node.0));
                assert!(
                    error <= 100_000,
                    "{name}, leader {}: {of} {wait}, not {expected}",
                    matrix.name(*leader)
                );
            }
        }
    }
    assert!(matrices >= 15, "only {matrices} matrices were found");
}

#[test]
fn a_read_under_a_lease_takes_the_way_to_the_leader_and_back() {
    let ms = Span::from_millis;
    let matrix = Matrix::from_fn(&["A", "B", "C"], |from, to| ms(if from == to { 0 } else { 20 }));
    let replicas: Vec<RegionId> = matrix.regions().collect();
    for (node, wait) in waits(&matrix, &replicas, RegionId(0), true) {
        assert_eq!(wait, ms(if node == NodeId(0) { 0 } else { 40 }), "at {node}");
    }
}
