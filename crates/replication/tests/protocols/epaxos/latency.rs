//! Without load a command takes the way to the nearest replica and its fast quorum's round trip.

use crate::latency::{Measured, groups, matrices};
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::deployment::Deployment;
use isochrone_core::{Instant, Matrix, NodeId, RegionId, Span, Ticket};
use isochrone_plan::{Client, Group};
use isochrone_replication::epaxos::{Epaxos, Family, Placement};
use isochrone_replication::service::Reply as When;
use isochrone_replication::{Outcome, Request};
use isochrone_sim::{Config, Driver, Next, Session, Simulation};
use std::collections::BTreeMap;

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (_, matrix) in matrices() {
        let mut groups = groups(&matrix);
        groups.push(matrix.regions().take(1).collect());
        for replicas in groups {
            let measured = Measured::<Family>::new(&matrix, &replicas);
            measured.equals(|client| isochrone_plan::epaxos::fast(&matrix, Client::At(client), &replicas));
        }
    }
}

#[test]
fn thrifty_messages_cost_no_time() {
    let (_, matrix) = matrices().into_iter().find(|(name, _)| name == "sdpaxos-ec2.csv").unwrap();
    for replicas in groups(&matrix) {
        let mut measured = Measured::<Family>::new(&matrix, &replicas);
        measured.tune = |placement| placement.parameters.thrifty = true;
        measured.equals(|client| isochrone_plan::epaxos::fast(&matrix, Client::At(client), &replicas));
    }
}

#[test]
fn with_failures_it_waits_what_the_degraded_form_says() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for count in 1..=(replicas.len() - 1) / 2 {
                let seats: Vec<usize> = (0..count).collect();
                let group = Group::from(&replicas).without(&seats);
                let mut measured = Measured::<Family>::new(&matrix, &replicas);
                measured.dead = replicas[..count].iter().map(|region| NodeId(region.0)).collect();
                let (waits, _) = measured.waits();
                for (node, wait) in waits {
                    let client = Client::At(RegionId(node.0));
                    let far = |replica: &&RegionId| match replica.0 == node.0 {
                        true => Span::ZERO,
                        false => matrix.rtt(RegionId(node.0), **replica),
                    };
                    let nearest = replicas.iter().min_by_key(far).unwrap();
                    if measured.dead.contains(&NodeId(nearest.0)) {
                        // It looks for another replica, and now and then whether the nearest is back.
                        continue;
                    }
                    let expected = isochrone_plan::epaxos::fast(&matrix, client, group);
                    let at = matrix.name(RegionId(node.0));
                    assert!(
                        wait.as_nanos().abs_diff(expected.as_nanos()) <= 100_000,
                        "{name}, {count} of {} dead: {at} waits {wait}, not {expected}",
                        replicas.len()
                    );
                }
            }
        }
    }
}

/// All clients write one key at the same instants.
#[derive(Default)]
struct Together {
    asked: BTreeMap<u32, u64>,
    invoked: BTreeMap<Ticket, Instant>,
    waits: Vec<(NodeId, Span)>,
}

impl Driver<Epaxos<Machine>> for Together {
    fn next(&mut self, session: Session, _: Instant) -> Next<Request<Command>> {
        let count = self.asked.entry(session.number).or_default();
        *count += 1;
        if *count > 5 {
            return Next::Done;
        }
        let at = Instant::ZERO + Span::from_secs(10 + *count * 2);
        Next::Request { at, request: Request::Command(Command::Set(key(0), "x".to_owned())) }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.invoked.insert(ticket, now);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        assert!(matches!(outcome, Outcome::Replied(_)), "{outcome:?}");
        self.waits.push((session.client.node, now.since(self.invoked[&ticket])));
    }
}

fn contended(matrix: &Matrix, replicas: &[RegionId]) -> Vec<(NodeId, Span)> {
    let deployment = Deployment::of_matrix(matrix.clone(), "epaxos", replicas);
    let mut placement = Placement::<Machine>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
    placement.service.reply = When::Commit;
    placement.parameters.reply = When::Commit;
    placement.clients.retain(|(node, _)| replicas.contains(&RegionId(node.0)));
    let names: Vec<&str> = matrix.names().collect();
    let delay = |from, to| matrix.one_way(RegionId(from), RegionId(to));
    let count = names.len() as u16;
    let delays = (0..count).map(|from| (0..count).map(|to| delay(from, to)).collect()).collect();
    let mut config = Config::new(7, &names, delays);
    config.horizon = Span::from_secs(60);
    let mut driver = Together::default();
    let report = Simulation::<Epaxos<Machine>>::new(config, &placement).run(&mut driver);
    assert_eq!(report.violations, [], "{report:?}");
    driver.waits
}

/// specs/sdpaxos.md 8, L5: the table of 6.3 under conflict.
#[test]
fn interference_costs_a_second_round_at_five_replicas_and_none_at_three() {
    let (_, matrix) = matrices().into_iter().find(|(name, _)| name == "sdpaxos-ec2.csv").unwrap();
    for replicas in groups(&matrix) {
        let (mut slow, mut count) = (0, 0);
        for (node, wait) in contended(&matrix, &replicas) {
            let client = Client::At(RegionId(node.0));
            let fast_form = isochrone_plan::epaxos::fast(&matrix, client, &replicas);
            let slow_form = isochrone_plan::epaxos::slow(&matrix, client, &replicas);
            let is = |form: Span| wait.as_nanos().abs_diff(form.as_nanos()) <= 100_000;
            assert!(is(fast_form) || is(slow_form), "{node}: {wait}, not {fast_form} or {slow_form}");
            slow += usize::from(!is(fast_form));
            count += 1;
        }
        assert_eq!(count, replicas.len() * 5);
        assert!((slow > 0) == (replicas.len() > 3), "{slow} of {count} slow at {}", replicas.len());
    }
}
