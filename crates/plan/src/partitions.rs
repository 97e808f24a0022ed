//! Partitions that stand each in regions of their own, and what one transaction touches of them.

use isochrone_core::{Matrix, RegionId, Span};

use crate::Group;

/// The partitions of a keyspace: the regions of each one's replicas, its leader's first.
///
/// A client stands at the node of its region, where it has the replicas of that region at no distance.
#[derive(Clone, Copy, Debug)]
pub struct Partitions<'a>(&'a [Vec<RegionId>]);

/// The partitions that a transaction reads in, and all that it touches, by number.
#[derive(Clone, Copy, Debug)]
pub struct Footprint<'a> {
    /// Where it reads.
    pub reads: &'a [usize],
    /// Where it reads or writes.
    pub participants: &'a [usize],
}

/// One way between two regions; nothing within one.
pub(crate) fn way(matrix: &Matrix, from: RegionId, to: RegionId) -> Span {
    if from == to { Span::ZERO } else { matrix.one_way(from, to) }
}

impl<'a> Partitions<'a> {
    /// Partitions with at least one replica each.
    ///
    /// # Panics
    /// If there is no partition, or one has no replica.
    pub fn new(groups: &'a [Vec<RegionId>]) -> Partitions<'a> {
        assert!(
            !groups.is_empty() && groups.iter().all(|group| !group.is_empty()),
            "partitions have replicas"
        );
        Partitions(groups)
    }

    /// How many there are.
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn replicas(self, partition: usize) -> &'a [RegionId] {
        &self.0[partition]
    }

    pub(crate) fn leader(self, partition: usize) -> RegionId {
        self.0[partition][0]
    }

    /// How many votes make a fast quorum.
    pub(crate) fn fast(self, partition: usize) -> usize {
        Group::from(self.replicas(partition)).fast()
    }

    /// How long a partition's leader takes to have something accepted by a majority.
    pub(crate) fn replicated(self, matrix: &Matrix, partition: usize) -> Span {
        Group::from(self.replicas(partition)).phase2(matrix, 0)
    }

    /// From a request of somebody in `from` to the replicated answer of a partition's leader in `to`.
    pub(crate) fn prepared(self, matrix: &Matrix, from: RegionId, partition: usize, to: RegionId) -> Span {
        let leader = self.leader(partition);
        way(matrix, from, leader) + self.replicated(matrix, partition) + way(matrix, leader, to)
    }

    /// The round trip to the nearest replica of a partition.
    pub(crate) fn nearest(self, matrix: &Matrix, client: RegionId, partition: usize) -> Span {
        let trip = |replica: &RegionId| way(matrix, client, *replica) + way(matrix, *replica, client);
        // Each has at least one.
        self.replicas(partition).iter().map(trip).min().unwrap_or_default()
    }

    /// Which partition's leader coordinates (`specs/carousel.md` 2.2): one in the client's region, else the nearest; of
    /// equals a participant's, then the first.
    pub(crate) fn coordinator(self, matrix: &Matrix, client: RegionId, participants: &[usize]) -> usize {
        let here = |partition: &usize| self.leader(*partition) == client;
        let led = participants.iter().copied().filter(here).min();
        let led = led.or_else(|| (0..self.len()).find(here));
        let far = |partition: &usize| matrix.rtt(client, self.leader(*partition));
        let nearest = || {
            let nearest = (0..self.len()).min_by_key(far)?;
            let participant =
                participants.iter().copied().min_by_key(|partition| (far(partition), *partition));
            participant.filter(|partition| far(partition) == far(&nearest)).or(Some(nearest))
        };
        led.or_else(nearest).unwrap_or(0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use isochrone_core::topology::Cells;

    /// The distances of the published evaluation.
    pub(crate) fn ec2() -> Matrix {
        let text = include_str!("../../../reference/rtt/carousel-ec2.csv");
        Matrix::parse(text, "carousel-ec2.csv", Cells::RoundTrip, Span::ZERO).unwrap()
    }

    /// Regions that are all one millisecond of round trip apart.
    pub(crate) fn unit(regions: usize) -> Matrix {
        let names: Vec<String> = (0..regions).map(|region| format!("R{region}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Matrix::from_fn(&names, |_, _| Span::from_micros(500))
    }

    /// The placement PL-A of `specs/carousel.md` 7.3: US West, US East, Euro, Asia, Australia.
    #[expect(non_snake_case, reason = "as the specification names it")]
    pub(crate) fn PL_A() -> Vec<Vec<RegionId>> {
        [[0, 1, 2], [1, 3, 4], [2, 3, 4], [3, 0, 1], [4, 0, 2]]
            .map(|group| group.map(RegionId).to_vec())
            .into()
    }

    #[test]
    fn a_coordinator_is_near_and_takes_part_where_it_can() {
        let (matrix, groups) = (ec2(), PL_A());
        let partitions = Partitions::new(&groups);
        assert_eq!(partitions.coordinator(&matrix, RegionId(3), &[1, 3]), 3);
        assert_eq!(partitions.coordinator(&matrix, RegionId(3), &[1, 2]), 3);
        let led_elsewhere = &groups[..2];
        // From Euro, US East is 88 ms away and US West 166.
        assert_eq!(Partitions::new(led_elsewhere).coordinator(&matrix, RegionId(2), &[0]), 1);
        // Nobody leads in region 4, and all leaders are equally far.
        let partitions = Partitions::new(&groups[..4]);
        assert_eq!(partitions.coordinator(&unit(5), RegionId(4), &[2, 3]), 2);
        assert_eq!(partitions.coordinator(&unit(5), RegionId(4), &[]), 0);
    }
}
