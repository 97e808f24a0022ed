//! TAPIR without load: the client asks every replica of every participant, all of which agree.
//!
//! Source: `specs/carousel.md` 6.1; processing and sync at no cost, nothing else under way.

use isochrone_core::{Matrix, RegionId, Span};

use crate::Partitions;
use crate::partitions::{Footprint, way};

/// From the client's call to its answer, of any transaction, those that only read included: reads at the nearest
/// replicas, then answers of all replicas of each participant.
pub fn commit(matrix: &Matrix, client: RegionId, partitions: Partitions<'_>, of: Footprint<'_>) -> Span {
    let read = of.reads.iter().map(|partition| partitions.nearest(matrix, client, *partition));
    let prepared = of.participants.iter().map(|partition| {
        let trip = |replica: &RegionId| way(matrix, client, *replica) + way(matrix, *replica, client);
        // Each has at least one.
        partitions.replicas(*partition).iter().map(trip).max().unwrap_or_default()
    });
    read.max().unwrap_or_default() + prepared.max().unwrap_or_default()
}
