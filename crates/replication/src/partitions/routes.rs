//! Which partition a key is in, as far as a client knows.

use isochrone_core::migration::{Ring, Stretch};
use isochrone_core::{IntervalMap, PartitionId};

/// The equal stretches of the deployment, and what was learnt of moves since. It may be out of date: whoever serves
/// keys no longer says where they went, and its word is newer than what had led there.
#[derive(Clone, Hash, Debug)]
pub(super) struct Routes {
    ring: Ring,
    moved: IntervalMap<u128, Known>,
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
struct Known {
    at: PartitionId,
    version: u64,
}

impl Routes {
    pub fn new(ring: Ring) -> Routes {
        Routes { ring, moved: IntervalMap::default() }
    }

    /// The ring, of which this partition is spoken.
    pub fn ring(&self, at: PartitionId) -> Ring {
        Ring { at, ..self.ring }
    }

    /// Where a key lies.
    pub fn place(&self, key: &[u8]) -> u64 {
        self.ring.place(key)
    }

    /// Who serves a place.
    pub fn owner(&self, place: u64) -> PartitionId {
        match self.moved.get(u128::from(place)) {
            Some(known) => known.at,
            None => self.ring.owner(place),
        }
    }

    /// These places are there, in this version. Whether anything of it is new.
    pub fn learn(&mut self, stretch: Stretch, at: PartitionId, version: u64) -> bool {
        let older: Vec<_> = self
            .moved
            .runs(stretch.range())
            .filter(|(_, known)| known.version < version)
            .map(|(run, _)| run)
            .chain(self.moved.gaps(stretch.range()))
            .collect();
        for run in &older {
            self.moved.set(run.clone(), Known { at, version });
        }
        !older.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::KeyspaceId;

    #[test]
    fn the_latest_version_of_each_place_wins() {
        let ring = Ring { keyspace: KeyspaceId(1), partitions: 4, at: PartitionId(0) };
        let mut routes = Routes::new(ring);
        let stretch = |first, last| Stretch { first, last };
        assert_eq!(routes.owner(7), PartitionId(0));
        assert!(routes.learn(stretch(0, 99), PartitionId(2), 1));
        assert!(routes.learn(stretch(50, 59), PartitionId(3), 2));
        assert!(!routes.learn(stretch(40, 80), PartitionId(2), 1), "nothing of it is new");
        let owners: Vec<u16> = [0, 49, 50, 59, 60, 99, 100].map(|place| routes.owner(place).0).into();
        assert_eq!(owners, [2, 2, 3, 3, 2, 2, 0]);
        assert!(routes.learn(stretch(0, u64::MAX), PartitionId(1), 2));
        let owners: Vec<u16> = [0, 50, 59, 60, u64::MAX].map(|place| routes.owner(place).0).into();
        assert_eq!(owners, [1, 3, 3, 1, 1]);
    }
}
