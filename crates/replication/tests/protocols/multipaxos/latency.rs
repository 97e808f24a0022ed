//! Without load, a command takes exactly the way to the leader and back and the leader's majority round.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::{Matrix, NodeId, Path, RegionId, Span};
use isochrone_plan::{Client, Group};
use isochrone_replication::multipaxos::Family;

#[test]
fn every_region_waits_what_the_closed_form_says_for_every_leader_on_every_matrix() {
    for (_, matrix) in matrices() {
        let mut groups = groups(&matrix);
        groups.push(matrix.regions().take(1).collect());
        for replicas in groups {
            for leader in &replicas {
                let measured = Measured::<Family> { leader: *leader, ..Measured::new(&matrix, &replicas) };
                measured.equals(|client| {
                    isochrone_plan::multipaxos::commit(&matrix, Client::At(client), *leader, &replicas)
                });
            }
        }
    }
}

#[test]
fn with_dead_replicas_it_is_the_closed_form_of_the_leader_that_lives() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for gone in [vec![replicas.len() - 1], vec![0], vec![0, 1], vec![1, 2]] {
                if gone.len() > replicas.len() / 2 {
                    continue;
                }
                let dead = gone.iter().map(|seat| NodeId(replicas[*seat].0)).collect();
                // With its first command a client finds out who leads.
                let measured = Measured::<Family> { dead, warm: 1, ..Measured::new(&matrix, &replicas) };
                let run = measured.run();
                // Who follows a dead leader is drawn.
                let leader = run.leader.unwrap();
                let led = gone.contains(&0) != (leader == replicas[0]);
                assert!(led, "{name}: without {gone:?} {} leads", matrix.name(leader));
                let group = Group::from(&replicas).without(&gone);
                measured.follow(&run.waits, |client| {
                    isochrone_plan::multipaxos::commit(&matrix, Client::At(client), leader, group)
                });
            }
        }
    }
}

#[test]
fn a_read_under_a_lease_takes_the_way_to_the_leader_and_back() {
    let ms = Span::from_millis;
    let matrix = Matrix::from_fn(&["A", "B", "C"], |from, to| ms(if from == to { 0 } else { 20 }));
    let replicas: Vec<RegionId> = matrix.regions().collect();
    let measured = Measured::<Family> { reads: true, ..Measured::new(&matrix, &replicas) };
    let (waits, paths) = measured.waits();
    for (node, wait) in waits {
        assert_eq!(wait, ms(if node == NodeId(0) { 0 } else { 40 }), "at {node}");
    }
    assert_eq!(paths.into_iter().collect::<Vec<_>>(), [Path::Lease]);
}
