//! Where a client stands.

use isochrone_core::{Matrix, RegionId, Span};

/// Where a client process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// On a machine of its own in a region: a replica there is the matrix' diagonal away.
    In(RegionId),
    /// On the node of a replica in this region, as the client of a gateway is: that replica is no distance away. Where
    /// the leader is in the region, it is taken to be that replica.
    At(RegionId),
}

impl From<RegionId> for Client {
    fn from(region: RegionId) -> Self {
        Self::In(region)
    }
}

impl Client {
    /// The region it stands in.
    pub fn region(self) -> RegionId {
        match self {
            Self::In(region) | Self::At(region) => region,
        }
    }

    /// Round trips to each of the replicas, shortest first. At a replica, the first that stands in its region is itself.
    pub(crate) fn round_trips(self, matrix: &Matrix, replicas: &[RegionId]) -> Vec<Span> {
        let mut trips: Vec<Span> =
            replicas.iter().map(|replica| matrix.rtt(self.region(), *replica)).collect();
        if let Self::At(home) = self {
            match replicas.iter().position(|replica| *replica == home) {
                Some(own) => trips[own] = Span::ZERO,
                None => panic!("no replica stands in {home}, so no client can be at it"),
            }
        }
        trips.sort_unstable();
        trips
    }
}

/// Replicas that make a majority of `count`.
pub(crate) fn majority(count: usize) -> usize {
    count / 2 + 1
}
