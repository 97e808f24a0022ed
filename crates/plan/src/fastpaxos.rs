//! Fast Paxos without load and without collisions: the client asks all replicas itself.
//!
//! Source: `specs/domino.md` 5 and 6.5. Concurrent clients collide, and what collides takes the way of [`recovered`]
//! or longer.

use isochrone_core::deployment::Keyspace;
use isochrone_core::{Matrix, RegionId, Span};

use crate::told::reader_of;
use crate::{Client, Group, Learners, Reply};

/// Who learns of a fast quorum by itself: what a keyspace of Fast Paxos says, which the protocol refuses where it is wrong, and
/// else what is usual where it answers so.
pub(crate) fn learners(keyspace: &Keyspace, reply: Reply) -> Learners {
    let says = reader_of(keyspace, "fastpaxos");
    says.map_or(Learners::usual(reply), |mut reader| Learners::read(&mut reader, reply))
}

/// The round trip to the fast quorum, a supermajority; while too few replicas live for one, [`recovered`]. Where the
/// triangle inequality does not hold, the coordinator may know of the fast quorum, and tell, sooner than its votes
/// reach the client.
///
/// # Panics
/// If no live replica stands in the coordinator's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    coordinator: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    match group.smallest(group.fast(), |seat| group.reach(matrix, client, seat)) {
        Some(fast) => fast.min(learned(matrix, client, group.seat_in(coordinator), group)),
        None => recovered(matrix, client, coordinator, group),
    }
}

/// The way through replicas that execute: the client is answered by the first of them. With `all`, every replica
/// learns of a fast quorum by itself; else only the coordinator, which answers.
///
/// # Panics
/// If no live replica stands in the coordinator's region, and not all learn or too few replicas live for a fast quorum.
pub fn execute<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    coordinator: RegionId,
    replicas: impl Into<Group<'a>>,
    all: bool,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    if group.live().count() < group.fast() {
        return recovered(matrix, client, coordinator, group);
    }
    if !all {
        return learned(matrix, client, group.seat_in(coordinator), group);
    }
    group.live().map(|seat| learned(matrix, client, seat, group)).min().unwrap_or_default()
}

/// When the client hears from one replica that this has the votes of a fast quorum.
fn learned(matrix: &Matrix, client: Client, learner: usize, group: Group<'_>) -> Span {
    let vote = |seat| group.way_there(matrix, client, seat) + group.way(matrix, seat, learner);
    let known = group.smallest(group.fast(), vote).unwrap_or_default();
    known + group.way_back(matrix, client, learner)
}

/// The way through the coordinator: it learns the votes of all live replicas, has a majority accept what it picks, and
/// tells the client.
///
/// # Panics
/// If no live replica stands in the coordinator's region.
pub fn recovered<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    coordinator: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let (group, client) = (replicas.into(), client.into());
    let coordinator = group.seat_in(coordinator);
    let vote = |seat| group.way_there(matrix, client, seat) + group.way(matrix, seat, coordinator);
    let known = group.live().map(vote).max().unwrap_or_default();
    known + group.phase2(matrix, coordinator) + group.way_back(matrix, client, coordinator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{commits, domino_na, sdpaxos};

    #[test]
    fn the_fast_path_waits_for_the_farthest_of_the_fast_quorum() {
        // Columns DFP of specs/domino.md 6.5: all of three replicas.
        let (matrix, replicas) = domino_na(&["WA", "VA", "QC"]);
        let all: Vec<RegionId> = matrix.regions().collect();
        let wa = matrix.region("WA").unwrap();
        let fast = commits(&all, |client| commit(&matrix, client, wa, &replicas));
        assert_eq!(fast, [67, 51, 67, 36, 68, 46, 43, 68, 57]);
        // Four of five: the farthest of each row of sdpaxos-ec2 is left out.
        let (matrix, at) = sdpaxos();
        let replicas = at(5);
        let fast = commits(&replicas, |client| commit(&matrix, client, replicas[0], &replicas));
        assert_eq!(fast, [139, 125, 84, 139, 197]);
    }

    #[test]
    fn without_a_fast_quorum_the_coordinator_decides() {
        let (matrix, at) = sdpaxos();
        let replicas = at(3);
        // OH is down. CA asks: its own vote and OR's reach CA after 10 + 10; 20 to accept.
        let group = Group::from(&replicas).without(&[2]);
        let slow = commits(&replicas[..2], |client| commit(&matrix, client, replicas[0], group));
        // OR asks: 10 to CA (its own vote as well), 20, 10 back.
        assert_eq!(slow, [40, 40]);
    }
}
