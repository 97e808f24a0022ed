//! Which partition holds which keys: a table of stretches, each with a version.

use crate::map::{Map, Split};
use isochrone_core::migration::{Ring, Stretch};
use isochrone_core::{Blob, PartitionId, wire};
use serde::{Deserialize, Serialize};

/// Where a key lies, by which it belongs to a partition. All places of a keyspace are of one kind.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Place {
    /// On the ring of the hashes.
    Ring(u64),
    /// In the order of the keys: the key itself.
    Key(Blob),
}

/// Places from the first on, up to and without the end; up to the last, where there is none.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Reach {
    /// The first.
    pub first: Place,
    /// The first behind it.
    pub end: Option<Place>,
}

impl Reach {
    /// Keys in their order.
    pub fn keys(first: Blob, end: Option<Blob>) -> Reach {
        Reach { first: Place::Key(first), end: end.map(Place::Key) }
    }

    /// A stretch of the ring.
    pub fn ring(stretch: Stretch) -> Reach {
        Reach { first: Place::Ring(stretch.first), end: stretch.last.checked_add(1).map(Place::Ring) }
    }

    /// Whether a place is in it.
    pub fn contains(&self, place: &Place) -> bool {
        self.first <= *place && self.end.as_ref().is_none_or(|end| place < end)
    }

    /// Whether it holds a place.
    fn is_some(&self) -> bool {
        self.end.as_ref().is_none_or(|end| self.first < *end)
    }
}

/// Who holds the keys of a stretch.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Route {
    /// This partition.
    At(PartitionId),
    /// Two of them, each key one: they are on their way.
    Moving {
        /// Those that have not moved.
        from: PartitionId,
        /// Those that have, and those that are new.
        to: PartitionId,
    },
}

impl Route {
    /// The partitions that may hold them; where it is on its way, first the one that it leaves.
    pub fn partitions(self) -> impl Iterator<Item = PartitionId> {
        let (first, second) = match self {
            Route::At(at) => (at, None),
            Route::Moving { from, to } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }
}

/// What is known of a stretch.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Known {
    /// Which.
    pub reach: Reach,
    /// Of which change; as long as nothing was changed, 0.
    pub version: u64,
    /// Who holds it.
    pub route: Route,
}

/// How places are counted, and who holds what as long as nothing was moved.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Plan {
    ring: Option<Ring>,
    initial: Routes,
}

impl Plan {
    /// That of a keyspace.
    pub fn of(map: &Map, split: &Split) -> Plan {
        // There are at most 1,024.
        let partitions = map.groups.len() as u16;
        let ring = Ring { keyspace: map.keyspace, partitions, at: PartitionId(0) };
        let (ring, firsts): (_, Vec<Place>) = match split {
            Split::Ranges(bounds) => {
                let bounds = bounds.iter().cloned().map(Place::Key);
                (None, std::iter::once(Place::Key(Blob::default())).chain(bounds).collect())
            }
            Split::Hash | Split::Named => {
                let first = |at| Place::Ring(ring.stretch(PartitionId(at)).first);
                (Some(ring), (0..partitions).map(first).collect())
            }
        };
        let known = |(at, first): (usize, &Place)| Known {
            reach: Reach { first: first.clone(), end: firsts.get(at + 1).cloned() },
            version: 0,
            route: Route::At(PartitionId(at as u16)),
        };
        let initial = Routes(firsts.iter().enumerate().map(known).collect());
        Plan { ring, initial }
    }

    /// Where a key lies.
    pub fn place(&self, key: &[u8]) -> Place {
        match self.ring {
            Some(ring) => Place::Ring(ring.place(key)),
            None => Place::Key(Blob::from(key)),
        }
    }

    /// Whether places are those of the ring.
    pub fn hashed(&self) -> bool {
        self.ring.is_some()
    }

    /// All places.
    pub fn whole(&self) -> Reach {
        let first = if self.hashed() { Place::Ring(0) } else { Place::Key(Blob::default()) };
        Reach { first, end: None }
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        // One stretch each; there are at most 1,024.
        self.initial.0.len() as u16
    }

    /// Who holds what as long as nothing was moved.
    pub fn initial(&self) -> &Routes {
        &self.initial
    }

    /// What an entry of the directory says, on top of what holds from the beginning. Bytes that no version has written
    /// say nothing.
    pub fn read(&self, entry: Option<&Blob>) -> Routes {
        let mut routes = self.initial.clone();
        let changes = entry.and_then(|entry| wire::decode::<Vec<Known>>(entry).ok()).unwrap_or_default();
        let fits = |place: &Place| matches!(place, Place::Ring(_)) == self.hashed();
        for known in changes {
            if fits(&known.reach.first) && known.reach.end.as_ref().is_none_or(fits) {
                routes.learn(&known);
            }
        }
        routes
    }
}

/// Who holds what: stretches in order, without gaps. Of none is nothing known.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Routes(Vec<Known>);

impl Routes {
    /// These stretches.
    #[cfg(test)]
    pub(super) fn of(known: Vec<Known>) -> Routes {
        Routes(known)
    }

    /// What is known of a place.
    pub fn find(&self, place: &Place) -> &Known {
        let behind = self.0.partition_point(|known| known.reach.first <= *place);
        // The first stretch begins with the first place there is.
        &self.0[behind.saturating_sub(1)]
    }

    /// All of it, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Known> {
        self.0.iter()
    }

    /// The parts of a stretch, in order.
    pub fn parts(&self, reach: &Reach) -> Vec<Known> {
        let part = |known: &Known| {
            let first = reach.first.clone().max(known.reach.first.clone());
            let end = match (&reach.end, &known.reach.end) {
                (Some(one), Some(other)) => Some(one.min(other).clone()),
                (one, other) => one.clone().or_else(|| other.clone()),
            };
            let reach = Reach { first, end };
            reach.is_some().then(|| Known { reach, ..*known })
        };
        self.0.iter().filter_map(part).collect()
    }

    /// Takes in what is newer than what is known here.
    pub fn learn(&mut self, news: &Known) {
        let mut firsts: Vec<Place> = self.0.iter().map(|known| known.reach.first.clone()).collect();
        firsts.push(news.reach.first.clone());
        firsts.extend(news.reach.end.clone());
        firsts.sort();
        firsts.dedup();
        let piece = |(at, first): (usize, &Place)| {
            let old = self.find(first);
            let newer = news.reach.contains(first) && old.version < news.version;
            let Known { version, route, .. } = if newer { news } else { old };
            let reach = Reach { first: first.clone(), end: firsts.get(at + 1).cloned() };
            Known { reach, version: *version, route: *route }
        };
        self.0 = joined(firsts.iter().enumerate().map(piece));
    }

    /// The entry of the directory that says all that has changed.
    pub fn entry(&self) -> Blob {
        let changed: Vec<&Known> = self.0.iter().filter(|known| known.version > 0).collect();
        wire::encode(&changed).into()
    }

    /// How many stretches have changed.
    pub fn changes(&self) -> usize {
        self.0.iter().filter(|known| known.version > 0).count()
    }
}

/// Neighbours of which the same is known are one.
fn joined(all: impl Iterator<Item = Known>) -> Vec<Known> {
    let mut joined: Vec<Known> = Vec::new();
    for known in all {
        match joined.last_mut() {
            Some(last) if (last.version, last.route) == (known.version, known.route) => {
                last.reach.end = known.reach.end;
            }
            _ => joined.push(known),
        }
    }
    joined
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Vec<Known>>("directory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Group;
    use isochrone_core::KeyspaceId;
    use isochrone_core::Random;

    fn map(partitions: usize) -> Map {
        let group = Group { members: [].into(), spares: [].into() };
        let groups = vec![group; partitions].into();
        Map { keyspace: KeyspaceId(1), split: Split::Named, groups }
    }

    fn ordered() -> Plan {
        Plan::of(&map(3), &Split::Ranges(["g".into(), "p".into()].into()))
    }

    fn news(first: &str, end: Option<&str>, version: u64, route: Route) -> Known {
        Known { reach: Reach::keys(first.into(), end.map(Blob::from)), version, route }
    }

    fn shown(routes: &Routes) -> String {
        let one = |known: &Known| {
            let Place::Key(first) = &known.reach.first else { panic!("a key") };
            let first = String::from_utf8_lossy(first).into_owned();
            match known.route {
                Route::At(at) => format!("{first}:{}v{}", at.0, known.version),
                Route::Moving { from, to } => format!("{first}:{}>{}v{}", from.0, to.0, known.version),
            }
        };
        routes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_newer_is_learned_and_nothing_else() {
        let [zero, one, two] = [0, 1, 2].map(PartitionId);
        let mut routes = ordered().initial().clone();
        assert_eq!(shown(&routes), ":0v0 g:1v0 p:2v0");
        routes.learn(&news("c", Some("h"), 1, Route::Moving { from: zero, to: two }));
        assert_eq!(shown(&routes), ":0v0 c:0>2v1 h:1v0 p:2v0");
        routes.learn(&news("", Some("d"), 0, Route::At(one)));
        assert_eq!(shown(&routes), ":0v0 c:0>2v1 h:1v0 p:2v0", "older, or as old");
        routes.learn(&news("c", Some("h"), 2, Route::At(two)));
        routes.learn(&news("h", None, 2, Route::At(two)));
        assert_eq!(shown(&routes), ":0v0 c:2v2", "equal neighbours are one");
        assert_eq!(routes.find(&Place::Key("b".into())).route, Route::At(zero));
        assert_eq!(routes.find(&Place::Key("zz".into())).route, Route::At(two));
    }

    #[test]
    fn an_entry_says_all_that_has_changed() {
        let plan = ordered();
        let mut routes = plan.initial().clone();
        routes.learn(&news("c", Some("h"), 3, Route::At(PartitionId(2))));
        assert_eq!(plan.read(Some(&routes.entry())), routes);
        assert_eq!(plan.read(None), *plan.initial());
        assert_eq!(plan.read(Some(&"no entry".into())), *plan.initial());
        let ring = Plan::of(&map(3), &Split::Hash);
        assert_eq!(ring.read(Some(&routes.entry())), *ring.initial(), "places of the other kind");
    }

    #[test]
    fn stretches_stay_in_order_without_gaps_whatever_is_learned() {
        let ring = Plan::of(&map(4), &Split::Hash);
        let mut random = Random::seeded(1);
        for _ in 0..200 {
            let mut routes = ring.initial().clone();
            let mut told = Vec::new();
            for _ in 0..12 {
                let [one, other] = [random.below(64) << 58, random.below(64) << 58];
                let stretch = Stretch { first: one.min(other), last: one.max(other) | ((1 << 58) - 1) };
                let (version, at) = (random.below(6), PartitionId(random.below(4) as u16));
                let known = Known { reach: Reach::ring(stretch), version, route: Route::At(at) };
                routes.learn(&known);
                told.push(known);
            }
            let firsts: Vec<&Place> = routes.iter().map(|known| &known.reach.first).collect();
            let ends: Vec<Option<&Place>> = routes.iter().map(|known| known.reach.end.as_ref()).collect();
            assert_eq!(firsts[0], &Place::Ring(0));
            assert!(firsts[1..].iter().zip(&ends).all(|(first, end)| Some(*first) == *end));
            assert_eq!(ends.last(), Some(&None));
            for place in (0..64).map(|place| Place::Ring(place << 58)) {
                let newest = told.iter().filter(|known| known.reach.contains(&place));
                let newest = newest.map(|known| known.version).max().unwrap_or(0);
                assert_eq!(routes.find(&place).version, newest, "{place:?}");
            }
        }
    }
}
