//! Without load the owner waits for the skips of those whose slots before its own are open.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::{Matrix, NodeId, RegionId, Span};
use isochrone_plan::{Client, Group, mencius};
use isochrone_replication::mencius::Family;

/// Who asks one after the other: all in turn, or each some times in a row.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Turns {
    All,
    Each,
}

/// What every command waits, from the slots that are open before its own: the owner is the nearest live
/// replica, and everyone between the last owner and it has a slot open that must be skipped.
fn expected(
    matrix: &Matrix,
    replicas: &[RegionId],
    dead: &[NodeId],
    client: RegionId,
    last: &mut usize,
) -> Span {
    let live: Vec<usize> =
        (0..replicas.len()).filter(|rank| !dead.contains(&NodeId(replicas[*rank].0))).collect();
    let reach = |rank: usize| match replicas[rank] == client {
        true => Span::ZERO,
        false => matrix.rtt(client, replicas[rank]),
    };
    let owner = *live.iter().min_by_key(|rank| reach(**rank)).unwrap();
    let count = replicas.len();
    let between = (1..=count).map(|step| (*last + step) % count).take_while(|rank| *rank != owner);
    let between = between.filter(|rank| live.contains(rank));
    let skips = between.map(|rank| matrix.rtt(replicas[owner], replicas[rank])).max().unwrap_or_default();
    let dead: Vec<usize> = (0..count).filter(|rank| !live.contains(rank)).collect();
    let group = Group::from(replicas).without(&dead);
    let majority = mencius::busy(matrix, Client::At(replicas[owner]), group);
    *last = owner;
    reach(owner) + skips.max(majority)
}

fn measure(matrix: &Matrix, replicas: &[RegionId], dead: &[NodeId], turns: Turns) {
    let measured = Measured::<Family> {
        dead: dead.to_vec(),
        in_a_row: turns == Turns::Each,
        ..Measured::new(matrix, replicas)
    };
    let (waits, _) = measured.waits();
    let mut last = replicas.len() - 1;
    let mut before = None;
    for (node, wait) in waits {
        let client = RegionId(node.0);
        let expected = expected(matrix, replicas, dead, client, &mut last);
        let nearest = replicas.iter().min_by_key(|region| match **region == client {
            true => Span::ZERO,
            false => matrix.rtt(client, **region),
        });
        if nearest.is_some_and(|region| dead.contains(&NodeId(region.0))) {
            // It tries the nearest again, once in a while.
            before = Some(node);
            continue;
        }
        let context = format!("{} of {} replicas, dead {dead:?}", matrix.name(client), replicas.len());
        assert!(
            wait.as_nanos().abs_diff(expected.as_nanos()) <= 100_000,
            "{context}: {wait}, not {expected}"
        );
        if before == Some(node) {
            // Nobody else has asked since.
            let ranks: Vec<usize> =
                (0..replicas.len()).filter(|rank| dead.contains(&NodeId(replicas[*rank].0))).collect();
            let idle = mencius::idle(matrix, Client::At(client), Group::from(replicas).without(&ranks));
            assert!(wait.as_nanos().abs_diff(idle.as_nanos()) <= 100_000, "{context}: {wait}, idle {idle}");
        }
        before = Some(node);
    }
}

#[test]
fn every_region_waits_what_the_closed_form_says_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            measure(&matrix, &replicas, &[], Turns::Each);
            measure(&matrix, &replicas, &[], Turns::All);
        }
    }
}

#[test]
fn the_dead_are_not_waited_for_on_any_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            measure(&matrix, &replicas, &[NodeId(replicas[1].0)], Turns::Each);
            if replicas.len() > 3 {
                measure(&matrix, &replicas, &[NodeId(replicas[0].0), NodeId(replicas[3].0)], Turns::Each);
            }
        }
    }
}
