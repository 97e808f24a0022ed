//! Without load a command takes the way to the nearest replica and its fast quorum's round trip.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::NodeId;
use isochrone_plan::{Client, Group};
use isochrone_replication::epaxos::Family;

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
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for dead in 1..=(replicas.len() - 1) / 2 {
                let seats: Vec<usize> = (0..dead).collect();
                let group = Group::from(&replicas).without(&seats);
                let mut measured = Measured::<Family>::new(&matrix, &replicas);
                measured.dead = replicas[..dead].iter().map(|region| NodeId(region.0)).collect();
                measured.equals(|client| isochrone_plan::epaxos::fast(&matrix, Client::At(client), group));
            }
        }
    }
}
