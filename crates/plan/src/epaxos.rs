//! EPaxos without load: the client's nearest replica leads the command.
//!
//! Source: `specs/sdpaxos.md` 5.3, `specs/domino.md` 6.5.

use isochrone_core::deployment::{Keyspace, ParameterReader};
use isochrone_core::{Matrix, Quorums, Span};

use crate::told::reader_of;
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

/// The parameters on which it depends how long clients wait, beside [`Reply`](crate::Reply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Whether at three replicas one other settles the order by itself.
    pub delegate: bool,
}

impl Default for Tuned {
    fn default() -> Self {
        Self { delegate: true }
    }
}

impl Tuned {
    /// Reads them; the caller finishes the reader.
    pub fn read(reader: &mut ParameterReader<'_>) -> Tuned {
        Tuned { delegate: reader.boolean("delegate", Tuned::default().delegate) }
    }

    /// Of a keyspace of `epaxos` what it says, which the protocol refuses where it is wrong; of any other what `epaxos` has
    /// by default.
    pub(crate) fn of(keyspace: &Keyspace) -> Tuned {
        reader_of(keyspace, "epaxos").map_or_else(Tuned::default, |mut reader| Tuned::read(&mut reader))
    }

    /// As [`slow`].
    pub(crate) fn slow(self, matrix: &Matrix, client: Client, group: Group<'_>) -> Span {
        if self.delegate && group.len() == 3 {
            return fast(matrix, client, group);
        }
        let leader = group.nearest(matrix, client);
        let accept = group.phase2(matrix, leader);
        let quorum = group.trips(matrix, leader).get(Quorums::epaxos_fast(group.len()) - 1).copied();
        group.reach(matrix, client, leader) + quorum.unwrap_or(accept) + accept
    }
}

/// Until the commit, with interference that the fast quorum saw differently: a second round trip, to a majority. At three
/// replicas one other, the delegate, settles the order by itself: they stay fast. Where answers follow execution that is the
/// least: what a command depends on is executed before it, and depends on others.
pub fn slow<'a>(matrix: &Matrix, client: impl Into<Client>, replicas: impl Into<Group<'a>>) -> Span {
    Tuned::default().slow(matrix, client.into(), replicas.into())
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
    fn without_a_delegate_three_replicas_go_slow_as_well() {
        let (matrix, at) = sdpaxos();
        for (delegate, three) in [(true, [20, 20, 52]), (false, [40, 40, 104])] {
            let slow = |client| Tuned { delegate }.slow(&matrix, client, Group::from(&at(3)));
            assert_eq!(commits(&at(3), slow), three);
        }
        // Two have none.
        assert_eq!(commits(&at(2), |client| slow(&matrix, client, &at(2))), [40, 40]);
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
