//! Without load a command takes the way to the nearest replica and its fast quorum's round trip.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::{NodeId, RegionId, Span};
use isochrone_plan::{Client, Group};
use isochrone_replication::epaxos::Family;
use isochrone_replication::service::Reply;

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
            for count in 1..=(replicas.len() - 1) / 2 {
                let seats: Vec<usize> = (0..count).collect();
                let group = Group::from(&replicas).without(&seats);
                let dead: Vec<NodeId> = replicas[..count].iter().map(|region| NodeId(region.0)).collect();
                Measured::<Family>::without(&matrix, &replicas, &dead)
                    .equals(|client| isochrone_plan::epaxos::fast(&matrix, Client::At(client), group));
            }
        }
    }
}

/// specs/sdpaxos.md 8, L5: the table of 6.3 under conflict.
#[test]
fn interference_costs_a_second_round_at_five_replicas_and_none_at_three() {
    let (_, matrix) = matrices().into_iter().find(|(name, _)| name == "sdpaxos-ec2.csv").unwrap();
    for replicas in groups(&matrix) {
        let mut measured = Measured::<Family>::new(&matrix, &replicas);
        measured.tune = |placement| {
            placement.service.reply = Reply::Commit;
            placement.parameters.reply = Reply::Commit;
        };
        let (mut slow, mut count) = (0, 0);
        for (node, _, wait) in measured.together(5, Span::from_secs(2), true) {
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
