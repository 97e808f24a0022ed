//! Where a client stands.

use isochrone_core::{Matrix, RegionId, Span};

/// Where a client process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// On a machine of its own in a region: a replica there is the matrix' diagonal away.
    In(RegionId),
    /// On the node of a replica in this region, as the client of a gateway is: that replica is no distance away. Where
    /// several are in the region, it is the first.
    At(RegionId),
}

impl From<RegionId> for Client {
    fn from(region: RegionId) -> Self {
        Self::In(region)
    }
}

impl Client {
    /// The client of a region's first node: at the replica there, where there is one.
    pub fn of(region: RegionId, replicas: &[RegionId]) -> Self {
        if replicas.contains(&region) { Self::At(region) } else { Self::In(region) }
    }

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
