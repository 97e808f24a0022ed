//! CURP's consensus variant without load and without conflicts: the client asks the leader, and all witnesses.
//!
//! Source: `specs/curp.md` 3.17. A command that conflicts with one that is not decided takes the way of
//! [`multipaxos::commit`].

use isochrone_core::deployment::Keyspace;
use isochrone_core::{Matrix, RegionId, Span};

use crate::told::reader_of;
use crate::{Client, Group, curp, multipaxos};

/// What the parameters of a keyspace say of how long its clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuned {
    /// Whether every command takes the way of Multi-Paxos.
    always_synced: bool,
}

impl Tuned {
    /// Of a keyspace of `curp-consensus` what it says, which the protocol refuses where it is wrong; of any other what
    /// `curp-consensus` has by default.
    pub(crate) fn of(keyspace: &Keyspace) -> Tuned {
        let always_synced = reader_of(keyspace, "curp-consensus")
            .map_or(curp::ALWAYS_SYNCED, |mut reader| curp::always_synced(&mut reader));
        Tuned { always_synced }
    }

    /// As [`commit`].
    pub(crate) fn commit(self, matrix: &Matrix, client: Client, leader: RegionId, group: Group<'_>) -> Span {
        match self.always_synced {
            true => multipaxos::commit(matrix, client, leader, group),
            false => commit(matrix, client, leader, group),
        }
    }
}

/// The longer of the round trips to the leader and to the farthest of a superquorum of witnesses; or the way through
/// the leader and its majority, where that is shorter (next to the leader it is) or too few replicas live for a
/// superquorum.
///
/// # Panics
/// If no live replica stands in the leader's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    leader: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let decided = multipaxos::commit(matrix, client, leader, group);
    match fast(matrix, client, leader, group) {
        Some(fast) => fast.min(decided),
        None => decided,
    }
}

/// The fast path alone; none where too few replicas live for it.
///
/// # Panics
/// If no live replica stands in the leader's region.
pub fn fast<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    leader: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Option<Span> {
    let (group, client) = (replicas.into(), client.into());
    let accepted = group.smallest(group.fast(), |seat| group.reach(matrix, client, seat))?;
    Some(accepted.max(group.reach(matrix, client, group.seat_in(leader))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{commits, sdpaxos};

    #[test]
    fn the_slower_of_leader_and_superquorum_counts() {
        let (matrix, at) = sdpaxos();
        // Round trips of five: CA OR OH IR SE, four of five must accept.
        let replicas = at(5);
        let waits = commits(&replicas, |client| commit(&matrix, client, replicas[0], &replicas));
        let straight: Vec<u64> =
            commits(&replicas, |client| fast(&matrix, client, replicas[0], &replicas).unwrap());
        let decided =
            commits(&replicas, |client| multipaxos::commit(&matrix, client, replicas[0], &replicas));
        // Beside the leader its majority is nearer than four of five; elsewhere the fast path wins.
        assert_eq!(straight, [139, 125, 84, 139, 197]);
        for at in 0..5 {
            assert_eq!(waits[at], straight[at].min(decided[at]));
        }
        assert!(waits[0] == decided[0] && waits[0] < straight[0]);
        assert!(waits[3] == straight[3] && waits[3] < decided[3]);
    }

    #[test]
    fn without_a_superquorum_the_leader_decides() {
        let (matrix, at) = sdpaxos();
        let replicas = at(3);
        let group = Group::from(&replicas).without(&[2]);
        for client in matrix.regions() {
            assert_eq!(fast(&matrix, client, replicas[0], group), None);
            let decided = multipaxos::commit(&matrix, client, replicas[0], group);
            assert_eq!(commit(&matrix, client, replicas[0], group), decided);
        }
    }
}
