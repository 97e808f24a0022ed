//! Without load the owner waits for the skips of those whose slots before its own are open.

use crate::latency::{Measured, groups, matrices};
use isochrone_core::{Matrix, NodeId, RegionId, Span};
use isochrone_plan::{Client, Group, mencius};
use isochrone_replication::mencius::Family;
use isochrone_replication::service::Reply;

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
    let measured =
        Measured::<Family> { in_a_row: turns == Turns::Each, ..Measured::without(matrix, replicas, dead) };
    let gone: Vec<usize> =
        (0..replicas.len()).filter(|rank| dead.contains(&NodeId(replicas[*rank].0))).collect();
    let (mut last, mut before) = (replicas.len() - 1, None);
    measured.follow(&measured.waits().0, |client| {
        let expected = expected(matrix, replicas, dead, client, &mut last);
        if before.replace(client) == Some(client) {
            // Nobody else has asked since.
            let group = Group::from(replicas).without(&gone);
            assert_eq!(expected, mencius::idle(matrix, Client::At(client), group));
        }
        expected
    });
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

/// What a client beside a replica waits while all of them ask `every` so often, and what they ask commutes: the majority,
/// and the suggestions in the slots before its own, which were made when its own was, or one turn earlier by those of a
/// higher rank. So it is the busy form where no suggestion is longer under way than a majority takes.
fn busy(matrix: &Matrix, replicas: &[RegionId], rank: usize, every: Span) -> Span {
    let form = mencius::busy(matrix, Client::At(replicas[rank]), replicas);
    let known = (0..replicas.len()).filter(|other| *other != rank).map(|other| {
        let way = matrix.one_way(replicas[other], replicas[rank]);
        if other < rank { way } else { way.saturating_sub(every) }
    });
    known.fold(form, Span::max)
}

#[test]
fn where_all_are_busy_a_majority_and_the_ways_of_other_suggestions_are_waited_for() {
    let every = Span::from_millis(5);
    let (mut as_the_form, mut longer) = (0, 0);
    for (name, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let mut measured = Measured::<Family>::new(&matrix, &replicas);
            measured.tune = |placement| {
                placement.service.reply = Reply::Commit;
                placement.parameters.early = true;
            };
            let waits = measured.together(100, every, false);
            let first = waits.iter().map(|(_, asked, _)| *asked).min().unwrap();
            // The first of each has no turn of the others before it.
            for (node, _, wait) in waits.into_iter().filter(|(_, asked, _)| *asked > first) {
                let rank = replicas.iter().position(|region| region.0 == node.0).unwrap();
                let expected = busy(&matrix, &replicas, rank, every);
                assert!(
                    wait.as_nanos().abs_diff(expected.as_nanos()) <= 100_000,
                    "{name}, {} replicas: {node} waits {wait}, not {expected}",
                    replicas.len()
                );
                let form = mencius::busy(&matrix, Client::At(replicas[rank]), &replicas);
                *if form == expected { &mut as_the_form } else { &mut longer } += 1;
            }
        }
    }
    // Where no other suggestion is longer under way, which is mostly so, what `plan` shows is what is waited.
    assert!(as_the_form > longer && longer > 0, "{as_the_form} as the form, {longer} longer");
}
