//! Without load a command waits what the closed form says, at every member.

use crate::latency::{Measured, groups, matrices};
use crate::machine::Machine;
use isochrone_core::{Matrix, NodeId, RegionId, Span};
use isochrone_plan::{Client, Group, sdpaxos};
use isochrone_replication::sdpaxos::Family;
use isochrone_replication::service::Reply;

fn at_commit(placement: &mut isochrone_replication::Placement<Machine, Family>) {
    placement.service.reply = Reply::Commit;
    placement.parameters.reply = Reply::Commit;
}

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for leader in [replicas[0], replicas[replicas.len() - 1]] {
                for thrifty in [true, false] {
                    let tune: fn(&mut isochrone_replication::Placement<_, Family>) = match thrifty {
                        true => at_commit,
                        false => |placement| {
                            at_commit(placement);
                            placement.parameters.thrifty = false;
                        },
                    };
                    let measured = Measured::<Family> { leader, tune, ..Measured::new(&matrix, &replicas) };
                    measured.equals(|client| sdpaxos::commit(&matrix, Client::At(client), leader, &replicas));
                }
            }
        }
    }
}

#[test]
fn a_read_waits_for_the_sequencer_only() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let leader: RegionId = replicas[0];
            let measured = Measured::<Family> { reads: true, ..Measured::new(&matrix, &replicas) };
            measured.equals(|client| sdpaxos::read(&matrix, Client::At(client), leader, &replicas));
        }
    }
}

/// What everyone beside a live replica waits for commands when these are dead.
fn degraded(matrix: &Matrix, replicas: &[RegionId], dead: &[NodeId]) -> Vec<(RegionId, Span)> {
    let measured =
        Measured::<Family> { dead: dead.to_vec(), tune: at_commit, ..Measured::new(matrix, replicas) };
    let (waits, _) = measured.waits();
    let waits = waits.into_iter().map(|(node, wait)| (RegionId(node.0), wait));
    waits.filter(|(client, _)| replicas.contains(client)).collect()
}

#[test]
fn with_dead_replicas_it_is_the_closed_form_of_those_who_live() {
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix).into_iter().filter(|replicas| replicas.len() < 7) {
            let faults = replicas.len() / 2;
            for gone in [vec![replicas.len() - 1], vec![0], vec![0, 1], vec![1, 2]] {
                if gone.len() > faults {
                    continue;
                }
                let dead: Vec<NodeId> = gone.iter().map(|rank| NodeId(replicas[*rank].0)).collect();
                let waits = degraded(&matrix, &replicas, &dead);
                let group = Group::from(&replicas).without(&gone);
                // Who follows a dead sequencer is drawn.
                let live = (0..replicas.len()).filter(|rank| !gone.contains(rank));
                let heirs = live.filter(|rank| gone.contains(&0) || *rank == 0);
                let fits = |heir: usize| {
                    waits.iter().all(|(client, wait)| {
                        let form = sdpaxos::commit(&matrix, Client::At(*client), replicas[heir], group);
                        wait.as_nanos().abs_diff(form.as_nanos()) <= 100_000
                    })
                };
                assert!(
                    heirs.clone().any(fits),
                    "{name}, {} replicas, dead {gone:?}: {waits:?}",
                    replicas.len()
                );
            }
        }
    }
}

#[test]
fn executed_it_is_as_soon_where_nobody_else_asks() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let leader = replicas[0];
            Measured::<Family>::new(&matrix, &replicas)
                .equals(|client| sdpaxos::commit(&matrix, Client::At(client), leader, &replicas));
        }
    }
}
