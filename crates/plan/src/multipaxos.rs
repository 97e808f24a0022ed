//! Multi-Paxos without load: the client's way to the leader, and the leader's way to a majority.
//!
//! Source: `specs/sdpaxos.md` 5.1; a stable leader, phase 1 done, processing and sync at no cost.

use isochrone_core::{Matrix, RegionId, Span};

use crate::{Client, Group};

/// From the client's call to its answer: round trip client to leader, plus [`phase2`].
///
/// `leader` and the replicas are regions; the leader is the first live replica that stands in its region. A client
/// [`Client::In`] the leader's region is the matrix' diagonal away from it.
///
/// # Panics
/// If no live replica stands in the leader's region.
pub fn commit<'a>(
    matrix: &Matrix,
    client: impl Into<Client>,
    leader: RegionId,
    replicas: impl Into<Group<'a>>,
) -> Span {
    let group = replicas.into();
    let leader = group.seat_in(leader);
    group.reach(matrix, client.into(), leader) + group.phase2(matrix, leader)
}

/// The leader's majority round trip: to the farthest of the nearest replicas that, with the leader, are a majority. It
/// is also the commit latency at the leader itself.
///
/// # Panics
/// If no live replica stands in the leader's region.
pub fn phase2<'a>(matrix: &Matrix, leader: RegionId, replicas: impl Into<Group<'a>>) -> Span {
    let group = replicas.into();
    group.phase2(matrix, group.seat_in(leader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::topology::Cells;

    #[test]
    fn commits_of_carousel_are_those_computed_by_hand() {
        let text = include_str!("../../../reference/rtt/carousel-ec2.csv");
        let matrix = Matrix::parse(text, "carousel-ec2.csv", Cells::RoundTrip, Span::ZERO).unwrap();
        let all: Vec<RegionId> = matrix.regions().collect();
        let commits = |leader: u16, replicas: &[RegionId]| -> Vec<u64> {
            let commit = |client| commit(&matrix, client, RegionId(leader), replicas);
            matrix.regions().map(|client| commit(client).as_nanos() / 1_000_000).collect()
        };
        // Second smallest of each row: US West 73, 102; US East 73, 88; Euro 88, 166; Asia 102, 115; Australia 115, 161.
        assert_eq!(commits(0, &all), [102, 73 + 102, 166 + 102, 102 + 102, 161 + 102]);
        assert_eq!(commits(1, &all), [73 + 88, 88, 88 + 88, 172 + 88, 205 + 88]);
        assert_eq!(commits(2, &all), [166 + 166, 88 + 166, 166, 235 + 166, 290 + 166]);
        assert_eq!(commits(3, &all), [102 + 115, 172 + 115, 235 + 115, 115, 115 + 115]);
        assert_eq!(commits(4, &all), [161 + 161, 205 + 161, 290 + 161, 115 + 161, 161]);
        // Three replicas wait for the nearest other one.
        assert_eq!(commits(1, &all[..3]), [73 + 73, 73, 88 + 73, 172 + 73, 205 + 73]);
        // One replica waits for nobody.
        assert_eq!(commits(4, &all[4..]), [161, 205, 290, 115, 0]);
    }

    #[test]
    fn the_diagonal_is_the_way_to_the_leader_next_door() {
        let text = include_str!("../../../reference/rtt/sdpaxos-ec2.csv");
        let matrix = Matrix::parse(text, "sdpaxos-ec2.csv", Cells::RoundTrip, Span::ZERO).unwrap();
        let all: Vec<RegionId> = matrix.regions().collect();
        let ca = RegionId(0);
        assert_eq!(commit(&matrix, ca, ca, &all), Span::from_micros(52_000 + 1_160));
        assert_eq!(commit(&matrix, Client::At(ca), ca, &all), Span::from_millis(52));
        // A gateway beside another replica: 139 to the leader and back, then 52.
        assert_eq!(commit(&matrix, Client::At(RegionId(3)), ca, &all), Span::from_millis(139 + 52));
    }

    #[test]
    fn published_replicas_of_domino_give_its_figures() {
        // specs/domino.md 6.4 E1: replicas WA, VA, QC, leader WA; a client in IA waits about 100 ms (E2).
        let text = include_str!("../../../reference/rtt/domino-na.csv");
        let matrix = Matrix::parse(text, "domino-na.csv", Cells::RoundTrip, Span::ZERO).unwrap();
        let region = |name| matrix.region(name).unwrap();
        let replicas = [region("WA"), region("VA"), region("QC")];
        assert_eq!(commit(&matrix, region("IA"), region("WA"), &replicas), Span::from_millis(36 + 67));
        assert_eq!(commit(&matrix, region("WA"), region("WA"), &replicas), Span::from_millis(67));
    }
}
