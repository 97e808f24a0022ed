//! Which partition a key is in, as far as a client knows.

use isochrone_core::migration::{Ring, Stretch};
use isochrone_core::{IntervalMap, PartitionId};
use std::collections::BTreeMap;
use std::ops::Range;

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

    /// Who serves a place, and in which version.
    pub fn known(&self, place: u64) -> (PartitionId, u64) {
        match self.moved.get(u128::from(place)) {
            Some(known) => (known.at, known.version),
            None => (self.ring.owner(place), 0),
        }
    }

    /// Who serves these places: of each its own, in order.
    pub fn served(&self, places: &[Stretch]) -> BTreeMap<PartitionId, Vec<Stretch>> {
        let mut served: BTreeMap<_, Vec<Stretch>> = BTreeMap::new();
        for stretch in places {
            let Range { start: mut at, end } = stretch.range();
            while at < end {
                let (owner, until) = self.run(at);
                let part = Stretch::of(&(at..until.min(end)));
                let parts = served.entry(owner).or_default();
                match parts.last_mut() {
                    Some(before) if before.last.checked_add(1) == Some(part.first) => before.last = part.last,
                    _ => parts.push(part),
                }
                at = until;
            }
        }
        served
    }

    /// Who serves a place, and how far from it on that holds.
    fn run(&self, place: u128) -> (PartitionId, u128) {
        if let Some((run, known)) = self.moved.run(place) {
            return (known.at, run.end);
        }
        let owner = self.ring.owner(place as u64);
        let until = self.ring.stretch(owner).range().end;
        (owner, self.moved.runs(place..until).next().map_or(until, |(run, _)| run.start))
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
        assert_eq!(routes.known(7), (PartitionId(0), 0));
        assert!(routes.learn(stretch(0, 99), PartitionId(2), 1));
        assert!(routes.learn(stretch(50, 59), PartitionId(3), 2));
        assert!(!routes.learn(stretch(40, 80), PartitionId(2), 1), "nothing of it is new");
        let known = |routes: &Routes, place| {
            let (PartitionId(at), version) = routes.known(place);
            (at, version)
        };
        let all = [0, 49, 50, 59, 60, 99, 100].map(|place| known(&routes, place));
        assert_eq!(all, [(2, 1), (2, 1), (3, 2), (3, 2), (2, 1), (2, 1), (0, 0)]);
        assert!(routes.learn(stretch(0, u64::MAX), PartitionId(1), 2));
        let all = [0, 50, 59, 60, u64::MAX].map(|place| known(&routes, place));
        assert_eq!(all, [(1, 2), (3, 2), (3, 2), (1, 2), (1, 2)]);
    }

    #[test]
    fn every_place_is_served_by_one() {
        let ring = Ring { keyspace: KeyspaceId(1), partitions: 4, at: PartitionId(0) };
        let mut routes = Routes::new(ring);
        let stretch = |first, last| Stretch { first, last };
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|at| ring.stretch(PartitionId(at)));
        let all = routes.served(&[Stretch::ALL]);
        let of = |at: u16, served: &[Stretch]| (PartitionId(at), served.to_vec());
        let expected = [of(0, &[first]), of(1, &[second]), of(2, &[third]), of(3, &[fourth])];
        assert!(all.into_iter().eq(expected));
        assert!(routes.learn(stretch(100, 199), PartitionId(2), 1));
        assert!(routes.learn(stretch(200, 299), PartitionId(2), 3));
        assert!(routes.learn(stretch(first.last - 9, second.last), PartitionId(0), 1));
        let all = routes.served(&[Stretch::ALL]);
        let expected = [
            of(0, &[stretch(0, 99), stretch(300, second.last)]),
            of(2, &[stretch(100, 299), third]),
            of(3, &[fourth]),
        ];
        assert!(all.into_iter().eq(expected));
        let some = routes.served(&[stretch(50, 150), stretch(250, 250), stretch(u64::MAX, u64::MAX)]);
        let expected = [
            of(0, &[stretch(50, 99)]),
            of(2, &[stretch(100, 150), stretch(250, 250)]),
            of(3, &[stretch(u64::MAX, u64::MAX)]),
        ];
        assert!(some.into_iter().eq(expected));
    }
}
