//! Layered two-phase commit without load: one thing after the other.
//!
//! Source: `specs/carousel.md` 6.2; processing and sync at no cost, nothing else under way.

use isochrone_core::{Matrix, RegionId, Span};

use crate::Partitions;
use crate::partitions::{Footprint, way};

/// From the client's call to its answer, of any transaction: reads at the leaders; the coordinator asks all participants,
/// each of which replicates before it answers; then the decision is replicated.
pub fn commit(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    let coordinating = partitions.coordinator(matrix, client, of.participants);
    let coordinator = partitions.leader(coordinating);
    let read = of.reads.iter().map(|partition| {
        let leader = partitions.leader(*partition);
        way(matrix, client, leader) + way(matrix, leader, client)
    });
    let prepared = of
        .participants
        .iter()
        .map(|partition| partitions.prepared(matrix, coordinator, *partition, coordinator));
    read.max().unwrap_or_default()
        + way(matrix, client, coordinator)
        + prepared.max().unwrap_or_default()
        + partitions.replicated(matrix, coordinating)
        + way(matrix, coordinator, client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::{PL_A, ec2};

    #[test]
    fn its_four_steps_add_up() {
        // To read in Euro; to prepare there, which its followers accept 235 ms later; the decision at home.
        let (matrix, groups, all) = (ec2(), PL_A(), [0, 1, 2, 3, 4]);
        let of = Footprint { reads: &all, participants: &all };
        let found = commit(&matrix, RegionId(0), Partitions::new(&groups), of);
        assert_eq!(found, Span::from_millis(166 + (166 + 235) + 73));
    }
}
