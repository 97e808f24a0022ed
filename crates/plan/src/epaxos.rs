//! EPaxos without load: the client's nearest replica leads the command.
//!
//! Source: `specs/sdpaxos.md` 5.3, `specs/domino.md` 6.5.

use isochrone_core::{Matrix, Quorums, Span};

use crate::{Client, Group};

/// Without interference: one round trip of the command leader to its fast quorum; while too few replicas live for one,
/// as [`slow`].
pub fn fast<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let leader = group.nearest(matrix, client);
    let there = group.reach(matrix, client, leader);
    match group.trips(matrix, leader).get(Quorums::epaxos_fast(group.len()) - 1) {
        Some(quorum) => there + *quorum,
        None => there + group.phase2(matrix, leader) * 2,
    }
}

/// With interference that the fast quorum saw differently: a second round trip, to a majority. At three replicas one
/// other acceptor answers and there is nothing to differ: they stay fast.
pub fn slow<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let leader = group.nearest(matrix, client);
    let there = group.reach(matrix, client, leader);
    let accept = group.phase2(matrix, leader);
    match group.trips(matrix, leader).get(Quorums::epaxos_fast(group.len()) - 1) {
        Some(quorum) if group.len() <= 3 => there + *quorum,
        Some(quorum) => there + *quorum + accept,
        None => there + accept * 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{commits, domino_na, sdpaxos};

    #[test]
    fn both_paths_are_the_table_of_the_specification() {
        // specs/sdpaxos.md 6.3.
        let (matrix, at) = sdpaxos();
        assert_eq!(commits(&at(3), |client| fast(&matrix, client, &at(3))), [20, 20, 52]);
        assert_eq!(commits(&at(3), |client| slow(&matrix, client, &at(3))), [20, 20, 52]);
        assert_eq!(commits(&at(5), |client| fast(&matrix, client, &at(5))), [52, 68, 68, 125, 146]);
        assert_eq!(commits(&at(5), |client| slow(&matrix, client, &at(5))), [104, 136, 136, 250, 292]);
    }

    #[test]
    fn clients_elsewhere_are_those_of_domino() {
        // specs/domino.md 6.5, column EPaxos.
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC"]);
        let all: Vec<_> = matrix.regions().collect();
        let table = commits(&all, |client| fast(&matrix, client, &replicas));
        // VA TX CA IA WA WY IL QC TRT
        assert_eq!(table, [38, 65, 90, 69, 67, 88, 61, 38, 49]);
    }

    #[test]
    fn two_crashes_of_five_leave_the_fast_quorum() {
        let (matrix, at) = sdpaxos();
        let replicas = at(5);
        let group = Group::from(&replicas).without(&[0, 2]);
        let table = commits(&[replicas[1], replicas[3], replicas[4]], |client| fast(&matrix, client, group));
        assert_eq!(table, [133, 229, 229]);
    }
}
