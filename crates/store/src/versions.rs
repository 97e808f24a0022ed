//! Keys with several versions each: what transactions read and write.
//!
//! The latest version of a key lies in the entry of a `Trie`; those it superseded, which only reads of the past ask
//! for, lie behind a pointer that most keys do without. A key of 16 bytes with one version of 64 bytes takes about
//! 185 bytes all told, of which 80 are the two. A second, ordered structure knows what is superseded and since when,
//! so that it goes in that order, a few at each write and each [`Versions::trim`], and no key has to be searched for
//! what may go. It follows from the keys.
//!
//! **What it guarantees.** Equal calls in equal order give equal states, answers and digests on every replica; a copy
//! made of the chunks of a view goes on exactly as the original does. Calls of [`Versions::trim`] change the state,
//! so replicas make them where all do: when they apply an entry of the log.
//!
//! **Deleted keys.** A deletion is a version without a value; once it lies at or below what was trimmed, it goes too,
//! and its key reads as never written. Whoever compares versions may then find [`Version::NONE`] where it had read the
//! deletion, and the other way round.

use crate::deadlines::Deadlines;
use crate::hash;
use crate::key::Name;
use crate::sequence::Sequence;
use crate::trie::Trie;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, Export, Malformed, Stamp, wire};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Names a version of a key: when the transaction that wrote it committed, by the clock of its protocol.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
pub struct Version(pub u64);

impl Version {
    /// Of a key that was never written.
    pub const NONE: Version = Version(0);
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Keys, and the versions of each.
#[derive(Clone, Default)]
pub struct Versions {
    keys: Trie<Entry>,
    /// The versions behind which something may go: those that are not the first of their key, and deletions; in
    /// order, each with its key.
    due: Arc<Sequence<(Version, Blob)>>,
    /// What lies below and is superseded at or below here may be gone.
    trimmed: Version,
    /// The sum of the hashes of all versions of all keys.
    digest: u64,
    /// How keys are counted; none are where it says nothing.
    census: Option<Census>,
    count: Count,
    /// Of the keys that are counted with one; they follow from the keys.
    deadlines: Deadlines,
}

/// Says of a key that has this value as what it is counted. It depends on nothing else.
pub type Census = fn(&[u8], &[u8]) -> Kind;

/// As what a key is counted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Kind {
    /// Not at all.
    Apart,
    /// A key without a deadline.
    Lasting,
    /// A key with this one.
    Expiring(Stamp),
}

impl Kind {
    fn deadline(self) -> Option<Stamp> {
        if let Kind::Expiring(deadline) = self { Some(deadline) } else { None }
    }
}

/// How many keys there are.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub struct Count {
    /// That have a value, but for those apart.
    pub keys: usize,
    /// Of these, that have a deadline.
    pub expiring: usize,
}

impl Count {
    fn change(&mut self, before: Kind, after: Kind) {
        let one = |kind: Kind| (usize::from(kind != Kind::Apart), usize::from(kind.deadline().is_some()));
        let (less, more) = (one(before), one(after));
        self.keys = self.keys + more.0 - less.0;
        self.expiring = self.expiring + more.1 - less.1;
    }
}

/// The versions of a key.
#[derive(Clone, PartialEq)]
struct Entry {
    /// The latest.
    version: Version,
    value: Option<Blob>,
    /// Those before it, ascending; nothing rather than none.
    older: Option<Arc<Sequence<Held>>>,
}

/// A version and its value; without one the key was deleted.
type Held = (Version, Option<Blob>);

/// How much goes at a write: more than a write makes, so that nothing piles up.
const TRIM_AT_PUT: usize = 2;
/// How much goes at each [`Versions::trim`], versions: some microseconds of work.
const TRIM_AT_ONCE: usize = 64;

/// The state at one moment, in chunks.
#[derive(Clone)]
pub struct View {
    keys: Trie<Entry>,
    trimmed: Version,
    /// Where each chunk that has been asked for begins, and the one behind it.
    starts: RefCell<Vec<Start>>,
}

impl Versions {
    /// Nothing yet, of which keys will be counted.
    pub fn counting(census: Census) -> Versions {
        Versions { census: Some(census), ..Versions::default() }
    }

    /// How many keys have a value in their latest version. It is kept up to date, so asking for it costs nothing.
    pub fn count(&self) -> Count {
        self.count
    }

    /// Keys whose deadline in their latest version lies at or before this stamp, the earliest first.
    pub fn overdue(&self, stamp: Stamp) -> impl Iterator<Item = &[u8]> {
        let due = self.deadlines.from(Stamp::ZERO).take_while(move |(deadline, _)| *deadline <= stamp);
        due.map(|(_, key)| &key[..])
    }

    /// How many keys there are, deleted ones included until that is trimmed.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many versions there are that [`Versions::trim`] may let go, now or when it comes to them.
    pub fn superseded(&self) -> usize {
        self.due.len()
    }

    /// A number that equal states agree on, and others practically never. It is kept up to date, so asking for it
    /// costs nothing.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The latest version of a key: [`Version::NONE`] and nothing where it was never written.
    pub fn latest(&self, key: &[u8]) -> (Version, Option<&Blob>) {
        match self.keys.get(key) {
            Some(entry) => (entry.version, entry.value.as_ref()),
            None => (Version::NONE, None),
        }
    }

    /// The version of the value that a key has; [`Version::NONE`] where it has none, be it deleted, or never written, or
    /// deleted and trimmed since: what replicas compare that do not trim in the same moment.
    pub fn valued(&self, key: &[u8]) -> Version {
        self.keys.get(key).filter(|entry| entry.value.is_some()).map_or(Version::NONE, |entry| entry.version)
    }

    /// The version of a key with the largest number below `bound`. `None` where it may have been trimmed.
    pub fn below(&self, key: &[u8], bound: Version) -> Option<(Version, Option<&Blob>)> {
        const NEVER: (Version, Option<&Blob>) = (Version::NONE, None);
        let gone = bound <= self.trimmed && bound != Version::NONE;
        match self.keys.get(key) {
            Some(entry) if entry.version < bound => Some((entry.version, entry.value.as_ref())),
            _ if gone => None,
            Some(Entry { older: Some(older), .. }) => {
                let behind = older.index(older.seek(|(version, _)| *version < bound));
                let held = behind.checked_sub(1).and_then(|at| older.get(at));
                Some(held.map_or(NEVER, |(version, value)| (*version, value.as_ref())))
            }
            _ => Some(NEVER),
        }
    }

    /// All keys that have a value, each with its latest version, in an order that depends on nothing but the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Version, &Blob)> {
        self.keys
            .iter()
            .filter_map(|entry| Some((&entry.key[..], entry.value.version, entry.value.value.as_ref()?)))
    }

    /// The keys that have a value among `most` entries from a place of that order on, and the place where the next ones
    /// begin; nothing behind the last. A place stays good whatever is written meanwhile.
    pub fn page(&self, from: u64, most: usize) -> (Vec<Blob>, Option<u64>) {
        let (mut keys, mut last) = (Vec::new(), None);
        for (visited, entry) in self.keys.iter_at(self.keys.index_of(from)).enumerate() {
            // Keys of one place are not parted.
            if visited >= most && last != Some(entry.hash) {
                return (keys, Some(entry.hash));
            }
            last = Some(entry.hash);
            if entry.value.value.is_some() {
                keys.push(entry.key.blob());
            }
        }
        (keys, None)
    }

    /// The place of a key in that order.
    pub fn place(key: &[u8]) -> u64 {
        hash::place(key)
    }

    /// Writes a version of a key, above all it has; nothing deletes the key as of there.
    ///
    /// # Panics
    /// If the key has this version or a later one: two transactions would then have been given one place.
    pub fn put(&mut self, key: &Blob, version: Version, value: Option<Blob>) {
        let last = self.add(key, version, value);
        assert!(last.is_none(), "{version:?} of key {key:?} comes behind {last:?}");
        self.sweep(TRIM_AT_PUT);
    }

    /// From now on nobody asks for what lies below `bound` and is not the latest there: it may go. It goes by and by.
    pub fn trim(&mut self, bound: Version) {
        self.trimmed = self.trimmed.max(bound);
        self.sweep(TRIM_AT_ONCE);
    }

    /// Adds a version; where the key has it or a later one, tells that instead.
    fn add(&mut self, key: &Blob, version: Version, value: Option<Blob>) -> Option<Version> {
        let weight = weigh(key, version, value.as_ref());
        let deletes = value.is_none();
        let kind = |value: Option<&Blob>| match (self.census, value) {
            (Some(census), Some(value)) => census(key, value),
            _ => Kind::Apart,
        };
        let (mut before, after) = (Kind::Apart, kind(value.as_ref()));
        let mut late = None;
        let first = self.keys.with(key, |slot| match slot.get_mut() {
            Some(entry) if entry.version >= version => {
                late = Some(entry.version);
                false
            }
            Some(entry) => {
                before = kind(entry.value.as_ref());
                let held = (entry.version, std::mem::replace(&mut entry.value, value));
                entry.version = version;
                Arc::make_mut(entry.older.get_or_insert_default()).push_back(held);
                false
            }
            None if version == Version::NONE => {
                late = Some(version);
                false
            }
            None => {
                slot.insert(key.to_key(), Entry { version, value, older: None });
                true
            }
        });
        if late.is_none() {
            self.digest = self.digest.wrapping_add(weight);
            self.count.change(before, after);
            if before.deadline() != after.deadline() {
                before.deadline().inspect(|deadline| self.deadlines.remove(*deadline, key));
                after.deadline().inspect(|deadline| self.deadlines.insert(*deadline, key));
            }
            if !first || deletes {
                let due = Arc::make_mut(&mut self.due);
                let place = due.seek(|(held, name)| (*held, name) < (version, key));
                due.insert(place, (version, key.clone()));
            }
        }
        late
    }

    /// Lets go of what may go, `most` versions and the deletions behind them.
    fn sweep(&mut self, most: usize) {
        for _ in 0..most {
            match self.due.get(0) {
                Some((version, _)) if *version <= self.trimmed => {}
                _ => return,
            }
            let Some((version, key)) = Arc::make_mut(&mut self.due).pop_front() else { return };
            self.forget(&key, version);
        }
    }

    /// Forgets what a version of a key has superseded, and the version itself where it deletes.
    fn forget(&mut self, key: &Blob, superseded: Version) {
        let mut gone: Vec<Held> = Vec::new();
        // The version that is the first one now, where it was not before and nothing may go behind it.
        let mut first = None;
        self.keys.with(key, |slot| {
            let Some(entry) = slot.get_mut() else { return };
            if let Some(older) = &mut entry.older {
                let older = Arc::make_mut(older);
                while older.get(0).is_some_and(|(version, value)| {
                    *version < superseded || (*version == superseded && value.is_none())
                }) {
                    gone.extend(older.pop_front());
                }
                let deleted = gone.last().is_some_and(|(version, _)| *version == superseded);
                let (version, value) = match older.get(0) {
                    Some((version, value)) => (*version, value),
                    None => (entry.version, &entry.value),
                };
                first = (deleted && value.is_some()).then_some(version);
                if older.len() == 0 {
                    entry.older = None;
                }
            }
            if entry.older.is_none() && entry.version == superseded && entry.value.is_none() {
                gone.push((entry.version, None));
                slot.remove();
            }
        });
        if let Some(first) = first {
            let due = Arc::make_mut(&mut self.due);
            let place = due.seek(|(held, name)| (*held, name) < (first, key));
            if due.at(place).is_some_and(|(held, name)| (*held, name) == (first, key)) {
                due.remove(place);
            }
        }
        for (version, value) in gone {
            self.digest = self.digest.wrapping_sub(weigh(key, version, value.as_ref()));
        }
    }

    /// The state as it stands now, for a snapshot or a peer. It costs a reference count.
    pub fn export(&self) -> View {
        let starts = RefCell::new(vec![Start { key: 0, version: 0 }]);
        View { keys: self.keys.clone(), trimmed: self.trimmed, starts }
    }

    /// Takes in one chunk of a view, in order, starting from nothing.
    ///
    /// # Errors
    /// Refuses a chunk that no version of this type has exported; the state is then unusable.
    pub fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let malformed = |cause: String| Malformed { what: "versions chunk", cause };
        let chunk: Chunk = match chunk {
            [FORMAT, chunk @ ..] => wire::decode(chunk).map_err(|error| malformed(error.to_string()))?,
            [format, ..] => return Err(malformed(format!("format {format}, this version knows {FORMAT}"))),
            [] => return Err(malformed("it is empty".to_owned())),
        };
        self.trimmed = chunk.trimmed;
        for Piece { key, versions } in chunk.pieces {
            if versions.is_empty() {
                return Err(malformed(format!("key {key:?} has no version")));
            }
            for (version, value) in versions {
                if let Some(last) = self.add(&key, version, value) {
                    return Err(malformed(format!("{version:?} of key {key:?} comes behind {last:?}")));
                }
            }
        }
        Ok(())
    }
}

fn weigh(key: &Blob, version: Version, value: Option<&Blob>) -> u64 {
    hash::digest(&(key, version, value))
}

impl PartialEq for Versions {
    fn eq(&self, other: &Versions) -> bool {
        self.trimmed == other.trimmed && self.keys == other.keys
    }
}

impl Hash for Versions {
    /// The digest, which stands for the rest.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.keys.len(), self.due.len(), self.trimmed, self.digest).hash(state);
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { keys, due, trimmed, digest, .. } = self;
        write!(
            f,
            "Versions({} keys, {} due, trimmed {trimmed:?}, digest {digest:016x})",
            keys.len(),
            due.len()
        )
    }
}

const FORMAT: u8 = 1;

/// An upper bound for what encoding adds to a blob or a number, bytes.
const OVERHEAD: usize = 10;

#[derive(Serialize, Deserialize)]
struct Chunk {
    trimmed: Version,
    pieces: Vec<Piece>,
}

/// A key and some of its versions, ascending; those behind them follow.
#[derive(Serialize, Deserialize)]
struct Piece {
    key: Blob,
    versions: Vec<Held>,
}

/// A position: a key by its rank in the order of hashes, and how many of its versions lie before.
#[derive(Copy, Clone)]
struct Start {
    key: usize,
    version: usize,
}

impl Entry {
    fn count(&self) -> usize {
        1 + self.older.as_ref().map_or(0, |older| older.len())
    }

    /// The versions behind the first `from`, ascending.
    fn versions(&self, from: usize) -> impl Iterator<Item = (Version, Option<&Blob>)> {
        let older = self.older.iter().flat_map(move |older| older.range(from..older.len()));
        let latest = (from < self.count()).then_some((self.version, self.value.as_ref()));
        older.map(|(version, value)| (*version, value.as_ref())).chain(latest)
    }
}

impl View {
    /// The pieces from a position on that fill one chunk, and where the next begins.
    fn pieces(&self, start: Start) -> (Vec<Piece>, Start) {
        let (mut pieces, mut at) = (Vec::new(), start);
        let mut left = CHUNK_MAX - 4 * OVERHEAD;
        for listed in self.keys.iter_at(start.key) {
            let head = listed.key.len() + 2 * OVERHEAD;
            let mut versions = Vec::new();
            let mut room = left.saturating_sub(head);
            for (version, value) in listed.value.versions(at.version) {
                let size = value.map_or(0, |value| value.len()) + 2 * OVERHEAD;
                if size > room && !(pieces.is_empty() && versions.is_empty()) {
                    break;
                }
                room = room.saturating_sub(size);
                versions.push((version, value.cloned()));
            }
            if versions.is_empty() {
                break;
            }
            left = room;
            at.version += versions.len();
            pieces.push(Piece { key: listed.key.blob(), versions });
            if at.version < listed.value.count() {
                break;
            }
            at = Start { key: at.key + 1, version: 0 };
        }
        (pieces, at)
    }
}

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        let index = usize::try_from(index).ok()?;
        let mut starts = self.starts.borrow_mut();
        loop {
            // There is always a first one.
            let last = starts.len() - 1;
            let wanted = index.min(last);
            let start = starts[wanted];
            // The first chunk is there even where there is no key: it says what was trimmed.
            if start.key >= self.keys.len() && wanted > 0 {
                return None;
            }
            let (pieces, next) = self.pieces(start);
            if wanted == last {
                starts.push(next);
            }
            if wanted == index {
                let mut chunk = vec![FORMAT];
                wire::encode_into(&Chunk { trimmed: self.trimmed, pieces }, &mut chunk);
                return Some(Blob::from(chunk));
            }
        }
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Chunk>("versions");
}
