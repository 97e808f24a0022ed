//! Layered two-phase commit without load: one thing after the other.
//!
//! Source: `specs/carousel.md` 6.2; processing and sync at no cost, nothing else under way.

use isochrone_core::deployment::ParameterReader;
use isochrone_core::{Matrix, RegionId, Span};

use crate::Partitions;
use crate::partitions::{Footprint, way};

/// Who coordinates a transaction.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum Coordinator {
    /// A group that is led in the client's region if there is one, or else the nearest; it asks the participants.
    #[default]
    Local,
    /// The first participant, wherever it is; the client asks the participants, and they answer the coordinator.
    Remote,
}

impl Coordinator {
    /// `coordinator = "remote"`.
    pub fn read(reader: &mut ParameterReader<'_>) -> Coordinator {
        let choices = [("local", Coordinator::Local), ("remote", Coordinator::Remote)];
        reader.choice("coordinator", Coordinator::default(), &choices)
    }
}

/// From the client's call to its answer, of any transaction: reads at the leaders; the coordinator asks all participants,
/// each of which replicates before it answers; then the decision is replicated.
pub fn commit(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    // Of leaders elsewhere that are equally near it is the first, whether it takes part or not.
    let here = |partition: &usize| partitions.leader(*partition) == client;
    let near = if of.participants.iter().any(here) { of.participants } else { &[] };
    let coordinating = partitions.coordinator(matrix, client, near);
    let coordinator = partitions.leader(coordinating);
    let asked = way(matrix, client, coordinator);
    read(matrix, client, partitions, of)
        + asked
        + decided(matrix, coordinator, partitions, of, coordinating)
        + way(matrix, coordinator, client)
}

/// The same with a remote coordinator, the first participant: the client asks all participants itself, and they answer the
/// coordinator.
pub(crate) fn remote(
    matrix: &Matrix,
    client: RegionId,
    partitions: Partitions<'_>,
    of: Footprint<'_>,
) -> Span {
    let coordinating = of.participants.iter().copied().min().unwrap_or(0);
    read(matrix, client, partitions, of)
        + decided(matrix, client, partitions, of, coordinating)
        + way(matrix, partitions.leader(coordinating), client)
}

/// Reads at the leaders.
fn read(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    let read = of.reads.iter().map(|partition| {
        let leader = partitions.leader(*partition);
        way(matrix, client, leader) + way(matrix, leader, client)
    });
    read.max().unwrap_or_default()
}

/// From when somebody in `from` asks all participants to prepare, until the decision is replicated by who coordinates.
fn decided(
    matrix: &Matrix,
    from: RegionId,
    partitions: Partitions<'_>,
    of: Footprint<'_>,
    coordinating: usize,
) -> Span {
    let coordinator = partitions.leader(coordinating);
    let prepared =
        of.participants.iter().map(|partition| partitions.prepared(matrix, from, *partition, coordinator));
    prepared.max().unwrap_or_default() + partitions.replicated(matrix, coordinating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partitions::tests::{PL_A, ec2, unit};

    #[test]
    fn its_four_steps_add_up() {
        // To read in Euro; to prepare there, which its followers accept 235 ms later; the decision at home.
        let (matrix, groups, all) = (ec2(), PL_A(), [0, 1, 2, 3, 4]);
        let of = Footprint { reads: &all, participants: &all };
        let found = commit(&matrix, RegionId(0), Partitions::new(&groups), of);
        assert_eq!(found, Span::from_millis(166 + (166 + 235) + 73));
    }

    /// specs/carousel.md 9.1, L9.
    #[test]
    fn a_remote_coordinator_costs_half_a_round_trip() {
        let groups = PL_A();
        let take = |form: fn(&Matrix, RegionId, Partitions<'_>, Footprint<'_>) -> Span, parts: &[usize]| {
            let of = Footprint { reads: parts, participants: parts };
            form(&unit(5), RegionId(0), Partitions::new(&groups), of).as_nanos() as f64 / 1e6
        };
        assert_eq!((take(commit, &[3, 4]), take(remote, &[3, 4])), (4.0, 4.5));
        assert_eq!((take(commit, &[0, 3]), take(remote, &[0, 3])), (4.0, 4.0), "it is beside the client");
    }

    #[test]
    fn of_equally_near_leaders_elsewhere_the_first_coordinates() {
        let groups = [[0, 1, 2], [1, 2, 3]].map(|group| group.map(RegionId).to_vec());
        let of = Footprint { reads: &[1], participants: &[1] };
        let found = commit(&unit(5), RegionId(4), Partitions::new(&groups), of);
        // To read; to the coordinator; to prepare, which a follower accepts; the decision; back.
        assert_eq!(found.as_nanos() as f64 / 1e6, 1.0 + 0.5 + (1.0 + 1.0) + 1.0 + 0.5);
    }
}
