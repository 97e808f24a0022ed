//! Which keys are served here and which have gone to another partition: the store's part of a move
//! ([`isochrone_core::migration`] says how one goes).
//!
//! Data of a stretch that is released leaves the keyspace at once, deadlines included, and waits aside, where nothing
//! changes it: chunks of it are the same whoever asks for them and whenever. So does data that arrives, until it is
//! whole. What is served is therefore always in one place, whole, or nowhere. Versions travel with the keys: a
//! transaction that watches a key finds it changed or not, wherever it is executed.

use crate::Store;
use crate::absences;
use crate::deadlines::Deadlines;
use crate::export::{piece, weigh};
use crate::key::{Key, Name};
use crate::trie::Trie;
use crate::turn::Turn;
use crate::value::{Entry, Value};
use isochrone_core::command::{Operation, Response, Touch};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::migration::{Cursor, Move, Piece, Ring, Step, Stretch, Told, Versions};
use isochrone_core::{Blob, Command, IntervalMap, PartitionId, Stamp, StateMachine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was moved from or to this partition.
#[derive(Clone, Hash, PartialEq)]
pub(crate) struct Ranges {
    /// The keyspace, and which partition this is.
    ring: Ring,
    /// What is no longer, or not only, as the ring has it.
    places: IntervalMap<u128, Place>,
    /// How many moves were begun here.
    begun: u64,
    leaving: Option<Leaving>,
    /// By the source: moves from one partition come one after the other.
    arrived: BTreeMap<PartitionId, Arrival>,
}

/// Where a place of the ring is.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Serialize, Deserialize)]
enum Place {
    Here { version: u64 },
    Gone { to: PartitionId, version: u64 },
}

/// A move from here that is not over.
#[derive(Clone, Hash, PartialEq)]
struct Leaving {
    of: Move,
    bytes: u64,
    data: Store,
}

/// Moves from one other partition.
#[derive(Clone, Hash, PartialEq)]
struct Arrival {
    /// The latest.
    serial: u64,
    /// Where its next chunk begins.
    at: Cursor,
    /// What has come of it; nothing once it is complete.
    staged: Option<Store>,
}

/// All but the data, for the first chunk of a state.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Head {
    ring: Ring,
    places: IntervalMap<u128, Place>,
    begun: u64,
    leaving: Option<(Move, u64)>,
    arrived: Vec<(PartitionId, u64, Cursor, bool)>,
}

/// A part of a state with keys in it.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Section {
    /// What is served.
    Served,
    /// What is on its way from here.
    Leaving,
    /// What is on its way from there.
    Arriving(PartitionId),
    /// What is kept in mind of keys that are absent.
    Absences,
}

/// At most so many keys move together: none of them is served meanwhile.
const KEYS_MAX: u64 = 2_048;
/// At most about so many bytes, unless one place of the ring holds more: what one chunk takes.
const BYTES_MAX: usize = CHUNK_MAX - 64;

impl Ranges {
    fn new(ring: Ring) -> Ranges {
        let (places, arrived) = (IntervalMap::default(), BTreeMap::new());
        Ranges { ring, places, begun: 0, leaving: None, arrived }
    }

    pub fn head(&self) -> Head {
        let leaving = self.leaving.as_ref().map(|leaving| (leaving.of, leaving.bytes));
        let arrived = self.arrived.iter().map(|(from, arrival)| {
            let Arrival { serial, at, staged } = arrival;
            (*from, *serial, *at, staged.is_some())
        });
        let arrived = arrived.collect();
        Head { ring: self.ring, places: self.places.clone(), begun: self.begun, leaving, arrived }
    }

    /// What is on its way.
    pub fn sections(&self) -> Vec<(Section, Trie<Entry>)> {
        let leaving = self.leaving.iter().map(|leaving| (Section::Leaving, leaving.data.keys.clone()));
        let staged = self.arrived.iter().filter_map(|(from, arrival)| {
            Some((Section::Arriving(*from), arrival.staged.as_ref()?.keys.clone()))
        });
        leaving.chain(staged).collect()
    }

    /// The same, to be filled.
    pub fn section_mut(&mut self, section: Section) -> Option<&mut Store> {
        match section {
            Section::Served | Section::Absences => None,
            Section::Leaving => Some(&mut self.leaving.as_mut()?.data),
            Section::Arriving(from) => self.arrived.get_mut(&from)?.staged.as_mut(),
        }
    }

    /// Whether a place is served here, its version, and how far from it on the same holds.
    fn at(&self, place: u128) -> (bool, u64, u128) {
        if let Some((run, known)) = self.places.run(place) {
            return match known {
                Place::Here { version } => (true, *version, run.end),
                Place::Gone { version, .. } => (false, *version, run.end),
            };
        }
        let owner = self.ring.owner(place as u64);
        let until = self.ring.stretch(owner).range().end;
        let next = self.places.runs(place..until).next().map_or(until, |(run, _)| run.start);
        (owner == self.ring.at, 0, next)
    }

    /// What is served of a stretch, ascending, with its versions.
    fn served(&self, stretch: Stretch) -> impl Iterator<Item = (std::ops::Range<u128>, u64)> {
        let std::ops::Range { start: mut at, end } = stretch.range();
        std::iter::from_fn(move || {
            while at < end {
                let (served, version, until) = self.at(at);
                let run = at..until.min(end);
                at = until;
                if served {
                    return Some((run, version));
                }
            }
            None
        })
    }

    /// Whether nothing is served here but what lies in these stretches, which are ascending.
    pub fn serves_only(&self, stretches: &[Stretch]) -> bool {
        let mut rest = stretches.iter().map(Stretch::range).peekable();
        self.served(Stretch::ALL).all(|(mut run, _)| {
            while run.start < run.end {
                match rest.peek() {
                    Some(stretch) if stretch.end <= run.start => drop(rest.next()),
                    Some(stretch) if stretch.start <= run.start => run.start = stretch.end,
                    _ => return false,
                }
            }
            true
        })
    }

    /// Which parts of these stretches are not served here.
    pub fn missing(&self, stretches: &[Stretch]) -> Vec<Told> {
        let mut missing = Vec::new();
        for stretch in stretches {
            let std::ops::Range { start: mut at, end } = stretch.range();
            while at < end {
                let (served, _, until) = self.at(at);
                let run = at..until.min(end);
                at = run.end;
                if served {
                    continue;
                }
                let place = run.start as u64;
                // What never was here is not asked for by any who was told where it is.
                let never = || (Stretch::of(&run), self.ring.owner(place), 0, false);
                let (known, to, version, there) = match self.version(place) {
                    Err(Told::Elsewhere { stretch, to, version, there }) => (stretch, to, version, there),
                    _ => never(),
                };
                if let Some(stretch) = known.common(Stretch::of(&run)) {
                    // It may end where something begins that is still leaving.
                    at = stretch.range().end;
                    missing.push(Told::Elsewhere { stretch, to, version, there });
                }
            }
        }
        missing
    }

    /// In which version this place is served here, or why it is not.
    fn version(&self, place: u64) -> Result<u64, Told> {
        let (run, to, version) = match self.places.run(u128::from(place)) {
            None => return Ok(0),
            Some((_, Place::Here { version })) => return Ok(*version),
            Some((run, Place::Gone { to, version })) => (run, to, version),
        };
        let (mut stretch, mut there) = (Stretch::of(&run), true);
        if let Some(Leaving { of: Move { stretch: leaving, .. }, .. }) = &self.leaving {
            if leaving.contains(place) {
                (stretch, there) = (*leaving, false);
            } else if leaving.first > place {
                stretch.last = stretch.last.min(leaving.first - 1);
            } else {
                // It is wholly before `place`.
                stretch.first = stretch.first.max(leaving.last + 1);
            }
        }
        Err(Told::Elsewhere { stretch, to: *to, version: *version, there })
    }

    /// Whether an operation may be executed here for one who knows the places of its keys in these versions; else why not.
    fn serve(&self, operation: &Operation, known: Option<Versions>) -> Result<(), Told> {
        let mut found = Ok(Versions::FIRST);
        operation.visit(&mut |touch| {
            if let (&Ok(versions), Touch::Key(key, _)) = (&found, touch) {
                found = self.version(self.ring.place(key)).map(|version| versions.and(version));
            }
        });
        let versions = found?;
        if known.is_none_or(|known| known >= versions) {
            return Ok(());
        }
        let mut runs = BTreeMap::new();
        operation.visit(&mut |touch| {
            if let Touch::Key(key, _) = touch
                && let Some((run, Place::Here { version })) =
                    self.places.run(u128::from(self.ring.place(key)))
            {
                runs.insert(Stretch::of(&run), *version);
            }
        });
        Err(Told::Served(runs.into_iter().collect()))
    }
}

impl From<Head> for Ranges {
    fn from(head: Head) -> Ranges {
        let Head { ring, places, begun, leaving, arrived } = head;
        let leaving = leaving.map(|(of, bytes)| Leaving { of, bytes, data: Store::default() });
        let arrived = arrived.into_iter().map(|(from, serial, at, staged)| {
            (from, Arrival { serial, at, staged: staged.then(Store::default) })
        });
        Ranges { ring, places, begun, leaving, arrived: arrived.collect() }
    }
}

impl Leaving {
    fn told(&self) -> Told {
        let (of, keys, bytes) = (self.of, self.data.len() as u64, self.bytes);
        Told::Leaving { of, keys, bytes, piece: piece(&self.data.keys, Cursor::default()) }
    }
}

/// The keys of a stretch by their places, kept up to date while the stretch is being moved.
#[derive(Clone)]
pub(crate) struct Index {
    ring: Ring,
    stretch: Stretch,
    /// Places as stamps: the order is the same.
    keys: Deadlines,
}

impl Index {
    fn new(ring: Ring, stretch: Stretch, store: &Store) -> Index {
        let mut index = Index { ring, stretch, keys: Deadlines::default() };
        store.keys.iter().for_each(|listed| index.insert(listed.key));
        index
    }

    /// The same without a key.
    pub fn emptied(self) -> Index {
        Index { keys: Deadlines::default(), ..self }
    }

    pub fn insert(&mut self, key: &impl Name) {
        let place = self.ring.place(key);
        if self.stretch.contains(place) {
            self.keys.insert(Stamp::from_nanos(place), key);
        }
    }

    pub fn remove(&mut self, key: &[u8]) {
        let place = self.ring.place(key);
        if self.stretch.contains(place) {
            self.keys.remove(Stamp::from_nanos(place), key);
        }
    }

    /// Keys from a place on, with their places, ascending.
    fn from(&self, place: u64) -> impl Iterator<Item = (u64, &Key)> {
        self.keys.from(Stamp::from_nanos(place)).map(|(place, key)| (place.as_nanos(), key))
    }
}

impl Store {
    /// The refusal of a command that touches keys which are not served here, or are in a later version than it says.
    pub(crate) fn elsewhere(&self, command: &Command) -> Option<Response> {
        let told = self.ranges.as_deref()?.serve(&command.operation, command.known).err()?;
        Some(Response::Move(Box::new(told)))
    }

    /// What moves have done; where there were none, nothing.
    pub(crate) fn ranges_of(&self, ring: Ring) -> Arc<Ranges> {
        self.ranges.clone().unwrap_or_else(|| Arc::new(Ranges::new(ring)))
    }

    /// Answers a step that changes nothing; `None` for all others.
    pub(crate) fn look(&self, step: &Step) -> Option<Told> {
        match step {
            Step::Fetch { serial, from } => {
                let leaving = self.ranges.as_deref().and_then(|ranges| ranges.leaving.as_ref());
                Some(match leaving.filter(|leaving| leaving.of.serial == *serial) {
                    Some(leaving) => Told::Piece(piece(&leaving.data.keys, *from)),
                    None => Told::Nothing,
                })
            }
            Step::Survey { ring } => {
                let ranges = self.ranges_of(*ring);
                let served = ranges.served(Stretch::ALL).map(|(run, version)| (Stretch::of(&run), version));
                Some(Told::Served(served.collect()))
            }
            Step::Release { .. } | Step::Install { .. } => None,
        }
    }

    /// What moves have done, to be changed; nothing where this is another partition than they were for.
    fn ranges_mut(&mut self, ring: Ring) -> Option<&mut Ranges> {
        let ranges = self.ranges.get_or_insert_with(|| Arc::new(Ranges::new(ring)));
        (ranges.ring == ring).then(|| Arc::make_mut(ranges))
    }
}

impl Turn<'_> {
    /// Takes a step of a move.
    pub(crate) fn step(&mut self, step: &Step) -> Told {
        match step {
            Step::Release { ring, wish, done } => {
                let Some(ranges) = self.store_mut().ranges_mut(*ring) else { return Told::Wrong };
                ranges.leaving.take_if(|leaving| leaving.of.serial == *done);
                if let Some(leaving) = &ranges.leaving {
                    return leaving.told();
                }
                match wish {
                    Some((_, to)) if *to == ring.at || to.0 >= ring.partitions => Told::Wrong,
                    Some((stretch, to)) => self.release(*ring, *stretch, *to),
                    None => Told::Nothing,
                }
            }
            Step::Install { ring, of, piece } => self.install(*ring, of, piece),
            Step::Fetch { .. } | Step::Survey { .. } => self.store().look(step).unwrap_or(Told::Nothing),
        }
    }

    /// Begins to move the first part of a stretch that is served here. No move is under way.
    fn release(&mut self, ring: Ring, wished: Stretch, to: PartitionId) -> Told {
        let served = self.store().ranges.as_deref().and_then(|ranges| {
            let mut served = ranges.served(wished);
            let (mut run, mut version) = served.next()?;
            for (next, newer) in served {
                if next.start != run.end {
                    break;
                }
                (run.end, version) = (next.end, version.max(newer));
            }
            Some((Stretch::of(&run), version))
        });
        let Some((mut stretch, version)) = served else {
            self.store_mut().index = None;
            return Told::Nothing;
        };
        let store = self.store_mut();
        if !store.index.as_ref().is_some_and(|index| index.stretch.covers(stretch)) {
            store.index = Some(Index::new(ring, wished, store));
        }
        let (mut keys, mut left, mut bytes, mut within) = (Vec::new(), BYTES_MAX, 0, stretch.first);
        for (place, key) in store.index.iter().flat_map(|index| index.from(stretch.first)) {
            if place > stretch.last {
                break;
            }
            // What is indexed is there.
            let Some(entry) = store.keys.get(key) else { continue };
            let weight = weigh(key, entry, left);
            if (weight.is_none() || keys.len() as u64 >= KEYS_MAX) && place != within && !keys.is_empty() {
                stretch.last = place - 1;
                break;
            }
            // What is larger than a part goes as one all the same; of many elements no more are looked at than that.
            let most = if matches!(entry.value, Value::String(_)) { usize::MAX } else { 16 * BYTES_MAX };
            let whole = weight.or_else(|| weigh(key, entry, most)).unwrap_or(most);
            (left, bytes, within) = (left.saturating_sub(whole), bytes + whole as u64, place);
            keys.push(key.blob());
        }
        let mut data = Store::default();
        for key in &keys {
            if let Some(entry) = self.delete(key) {
                data.replace(key, Some(entry));
            }
        }
        let store = self.store_mut();
        // Elsewhere these keys may come and go before they are here again.
        let kept = store.absences.iter().flat_map(|absences| absences.keys.iter());
        let leave = kept.filter(|absence| {
            let place = ring.place(absence.key);
            stretch.first <= place && place <= stretch.last
        });
        let leave: Vec<Blob> = leave.map(|absence| absence.key.blob()).collect();
        leave.iter().for_each(|key| absences::set(&mut store.absences, key, None));
        if stretch.last == wished.last {
            store.index = None;
        }
        let Some(ranges) = store.ranges_mut(ring) else { return Told::Wrong };
        ranges.begun += 1;
        let of = Move { from: ring.at, to, serial: ranges.begun, stretch, version: version + 1 };
        ranges.places.set(stretch.range(), Place::Gone { to, version: of.version });
        ranges.leaving.insert(Leaving { of, bytes, data }).told()
    }

    fn install(&mut self, ring: Ring, of: &Move, piece: &Piece) -> Told {
        let store = self.store_mut();
        let Some(ranges) = store.ranges_mut(ring) else { return Told::Wrong };
        if of.to != ring.at || of.from == ring.at || of.from.0 >= ring.partitions {
            return Told::Wrong;
        }
        let known = ranges.arrived.get(&of.from);
        let complete = known.is_none_or(|arrival| arrival.staged.is_none());
        match known.map_or(0, |arrival| arrival.serial) {
            serial if of.serial < serial || (of.serial == serial && complete) => return Told::Installed,
            serial if of.serial > serial => {
                // The source begins one when the former is over.
                if !complete {
                    return Told::Wrong;
                }
                let leaving = ranges.leaving.as_ref().map(|leaving| leaving.of.stretch);
                if leaving.is_some_and(|leaving| leaving.common(of.stretch).is_some()) {
                    return Told::Busy;
                }
                let (serial, staged) = (of.serial, Some(Store::default()));
                ranges.arrived.insert(of.from, Arrival { serial, at: Cursor::default(), staged });
            }
            _ => {}
        }
        // It was found, or has just been put in.
        let Some(arrival) = ranges.arrived.get_mut(&of.from) else { return Told::Wrong };
        if piece.from != arrival.at {
            return Told::Expects(arrival.at);
        }
        let Some(staged) = &mut arrival.staged else { return Told::Wrong };
        if staged.absorb(&piece.chunk).is_err() || staged.ranges.is_some() {
            (arrival.at, arrival.staged) = (Cursor::default(), Some(Store::default()));
            return Told::Wrong;
        }
        arrival.at = piece.next;
        if !piece.last {
            return Told::Expects(arrival.at);
        }
        let staged = arrival.staged.take().unwrap_or_default();
        ranges.places.set(of.stretch.range(), Place::Here { version: of.version });
        for listed in staged.keys.iter() {
            store.replace(&listed.key.blob(), Some(listed.value.clone()));
        }
        Told::Installed
    }
}
