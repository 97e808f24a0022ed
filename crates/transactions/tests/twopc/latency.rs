//! Latency without load: four round trips (`specs/carousel.md` 9.1 L9), and the closed form elsewhere.

use crate::latency::{Alone, Does, PLACEMENT_A, apart, ec2, unit};
use isochrone_core::{Matrix, RegionId, Span};
use isochrone_transactions::twopc::{Coordinator, Family};

const UNIT: Span = Span::from_millis(100);

fn rtt(matrix: &Matrix, from: u16, to: u16) -> Span {
    let (from, to) = (RegionId(from), RegionId(to));
    matrix.one_way(from, to) + matrix.one_way(to, from)
}

/// From a group's leader to its nearest follower: a majority of three.
fn replication(matrix: &Matrix, group: &[u16; 3]) -> Span {
    rtt(matrix, group[0], group[1]).min(rtt(matrix, group[0], group[2]))
}

/// One after the other: the farthest read; to the coordinator; the farthest prepare and its replication; the decision's
/// replication; back. PL-A has a leader in every region, so the coordinator is beside the client.
fn form(matrix: &Matrix, does: &Does) -> Span {
    let group = |partition: &u16| &PLACEMENT_A[usize::from(*partition)];
    let reads = does.partitions.iter().map(|at| rtt(matrix, does.client, group(at)[0])).max().unwrap();
    let led = |group: &[u16; 3]| group[0] == does.client;
    let coordinator = PLACEMENT_A.iter().find(|group| led(group)).unwrap();
    let prepare = |at: &u16| rtt(matrix, coordinator[0], group(at)[0]) + replication(matrix, group(at));
    let prepare = does.partitions.iter().map(prepare).max().unwrap();
    reads + prepare + replication(matrix, coordinator)
}

fn is_about(wait: Span, expected: Span, what: &str) {
    let off = wait.as_nanos().abs_diff(expected.as_nanos());
    assert!(off <= 100_000, "{what}: {wait}, not {expected}");
}

#[test]
fn a_transaction_takes_four_round_trips_with_a_local_coordinator() {
    let alone = Alone::<Family>::new(unit(5, UNIT), &PLACEMENT_A);
    is_about(alone.wait(Does::update(0, &[3, 4])), UNIT * 4, "L9");
    is_about(alone.wait(Does::update(0, &[0, 3])), UNIT * 4, "L9, one leader local");
    is_about(alone.wait(Does::update(0, &[0])), UNIT * 2, "all local: two replications");
    is_about(alone.wait(Does::read(0, &[3, 4])), UNIT * 4, "what only reads takes the same path");
}

#[test]
fn without_a_local_leader_the_way_to_the_coordinator_comes_in_addition() {
    // The client is in a region without a leader: the first group coordinates, and is asked from afar.
    let alone = Alone::<Family>::new(unit(5, UNIT), &[[0, 1, 2], [1, 2, 3]]);
    is_about(alone.wait(Does::update(4, &[0, 1])), UNIT * 5, "remote coordinator");
}

#[test]
fn a_remote_coordinator_costs_half_a_round_trip() {
    let mut alone = Alone::<Family>::new(unit(5, UNIT), &PLACEMENT_A);
    alone.tune = |parameters| parameters.coordinator = Coordinator::Remote;
    is_about(alone.wait(Does::update(0, &[3, 4])), UNIT * 4 + UNIT / 2, "L9");
    is_about(alone.wait(Does::update(0, &[0, 3])), UNIT * 4, "the first participant is local");
}

#[test]
fn a_participant_on_the_way_to_a_remote_coordinator_may_vote_before_the_client_is_heard() {
    // From the client to the coordinator it is farther than by way of the other participant, then not quite.
    for far in [100, 90, 80] {
        let far = Span::from_millis(far);
        let map = apart(3, |from, to| match from + to {
            1 => far,
            2 => Span::from_millis(40),
            _ => Span::from_millis(50),
        });
        let mut alone = Alone::<Family>::new(map, &[]);
        alone.groups = vec![vec![1], vec![2]];
        alone.tune = |parameters| parameters.coordinator = Coordinator::Remote;
        // Read, both at once; the commit or the vote, whichever is later; nothing is replicated; and back.
        let heard = (far / 2).max(Span::from_millis(45));
        is_about(alone.wait(Does::update(0, &[0, 1])), far + heard + far / 2, &format!("{far} away"));
    }
}

#[test]
fn published_distances_give_the_closed_form() {
    let matrix = ec2();
    let alone = Alone::<Family>::new(matrix.clone(), &PLACEMENT_A);
    let mut does = Vec::new();
    for client in 0..5 {
        for partitions in [&[0_u16][..], &[0, 1], &[1, 3], &[2, 4], &[0, 1, 2, 3, 4]] {
            does.push(Does::update(client, partitions));
        }
        does.push(Does::read(client, &[1, 2]));
    }
    for does in does {
        is_about(alone.wait(does.clone()), form(&matrix, &does), &format!("{does:?}"));
    }
}

#[test]
fn a_group_without_a_follower_is_as_far_as_its_other_one() {
    let mut alone = Alone::<Family>::new(unit(5, UNIT), &PLACEMENT_A);
    alone.dead = vec![1];
    is_about(alone.wait(Does::update(0, &[0])), UNIT * 2, "one follower is enough");
}
