//! The keys that have a deadline, earliest first.

use crate::key::{Key, Name};
use crate::sequence::{Place, Sequence};
use isochrone_core::Stamp;

/// Deadlines with their keys, each once, in order. A clone costs as little as that of a [`Sequence`]: whoever
/// executes ahead of what is decided clones the store often.
#[derive(Clone, Default)]
pub(crate) struct Deadlines(Sequence<(Stamp, Key)>);

impl Deadlines {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The earliest, and its key.
    pub fn first(&self) -> Option<&(Stamp, Key)> {
        self.0.get(0)
    }

    /// How many lie at or before a stamp.
    pub fn through(&self, stamp: Stamp) -> usize {
        self.0.index(self.0.seek(|(held, _)| *held <= stamp))
    }

    /// Those at or before a stamp, in order.
    pub fn due(&self, stamp: Stamp) -> impl Iterator<Item = &(Stamp, Key)> {
        self.0.range(0..self.through(stamp))
    }

    /// Those from a deadline on, in order.
    pub fn from(&self, deadline: Stamp) -> impl Iterator<Item = &(Stamp, Key)> {
        let place = self.0.seek(|(held, _)| *held < deadline);
        self.0.range(self.0.index(place)..self.0.len())
    }

    /// Notes a deadline of a key, once.
    pub fn insert(&mut self, deadline: Stamp, key: &impl Name) {
        let (place, held) = self.find(deadline, key);
        if !held {
            self.0.insert(place, (deadline, key.to_key()));
        }
    }

    /// Forgets it, where it was noted.
    pub fn remove(&mut self, deadline: Stamp, key: &[u8]) {
        let (place, held) = self.find(deadline, key);
        if held {
            self.0.remove(place);
        }
    }

    /// Where it is, or would be; and whether it is there.
    fn find(&self, deadline: Stamp, key: &[u8]) -> (Place, bool) {
        let place = self.0.seek(|(held, name)| (*held, &name[..]) < (deadline, key));
        (place, self.0.at(place).is_some_and(|(held, name)| (*held, &name[..]) == (deadline, key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Blob;
    use std::collections::BTreeSet;

    #[test]
    fn they_are_those_of_an_ordered_set() {
        let (mut deadlines, mut twin) = (Deadlines::default(), BTreeSet::new());
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (deadline, key) = (Stamp::from_nanos(seed >> 58), Blob::from(vec![(seed >> 50) as u8]));
            if twin.insert((deadline, key.to_key())) {
                deadlines.insert(deadline, &key);
            } else {
                twin.remove(&(deadline, key.to_key()));
                deadlines.remove(deadline, &key);
            }
            assert_eq!(deadlines.first(), twin.first());
        }
        assert!(twin.len() > 1_000 && deadlines.0.iter().eq(twin.iter()));
        for stamp in (0..66).map(Stamp::from_nanos) {
            let through = twin.iter().filter(|(deadline, _)| *deadline <= stamp).count();
            assert_eq!(deadlines.through(stamp), through);
        }
    }
}
