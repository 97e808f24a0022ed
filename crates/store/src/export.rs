//! The state in bounded chunks: snapshots, and what a lagging replica is sent.
//!
//! A chunk is a format number and a list of pieces, encoded with `postcard`. A piece is a key with its
//! deadline and version and as much of its value as fits; a collection that spans chunks comes in several
//! pieces, in order. Versions travel, so that a replica that was sent the state goes on with equal digests.

use crate::Store;
use crate::sorted::SortedSet;
use crate::streams::{Fields, Stream};
use crate::trie::Trie;
use crate::value::{Collection, Entry, Hashes, List, Members, Value};
use isochrone_core::command::{Score, StreamId};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, Export, Malformed, Stamp, wire};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;

/// The state as it was when the view was taken.
#[derive(Clone)]
pub struct View {
    keys: Trie<Entry>,
    /// Where each chunk that has been asked for begins, and the one behind it: found by going through those
    /// before it once.
    starts: RefCell<Vec<Start>>,
}

/// A position in the state: a key by its rank in the order of hashes, and how many elements of its value lie
/// before.
#[derive(Copy, Clone)]
struct Start {
    key: usize,
    element: usize,
}

const FORMAT: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Piece {
    key: Blob,
    deadline: Stamp,
    version: u64,
    part: Part,
}

#[derive(Serialize, Deserialize)]
enum Part {
    String(Blob),
    Integer(i64),
    Hash(Vec<(Blob, Blob)>),
    Set(Vec<Blob>),
    List(Vec<Blob>),
    Sorted(Vec<(Score, Blob)>),
    /// The highest identifier ever given, and entries.
    Stream(StreamId, Vec<Dated>),
}

/// An entry of a stream.
type Dated = (StreamId, Vec<(Blob, Blob)>);

/// An upper bound for what encoding adds to the bytes of one blob or number: its length, at most.
const OVERHEAD: usize = 10;

/// Fills parts with elements until the chunk is full.
struct Room {
    left: usize,
    /// Whether anything has been put in: the first element goes in whatever its size.
    used: bool,
}

impl Room {
    /// Takes elements from the front while they fit. How many, and whether all.
    fn take<T, U>(
        &mut self,
        elements: impl Iterator<Item = T>,
        size: impl Fn(&T) -> usize,
        copy: impl Fn(T) -> U,
    ) -> (Vec<U>, bool) {
        let mut taken = Vec::new();
        for element in elements {
            if !self.admit(size(&element)) {
                return (taken, false);
            }
            taken.push(copy(element));
        }
        (taken, true)
    }

    fn admit(&mut self, size: usize) -> bool {
        let fits = size <= self.left;
        if !fits && self.used {
            return false;
        }
        self.left = self.left.saturating_sub(size);
        self.used = true;
        true
    }
}

impl View {
    pub(crate) fn new(keys: Trie<Entry>) -> View {
        View { keys, starts: RefCell::new(vec![Start { key: 0, element: 0 }]) }
    }

    /// The pieces from a position on that fill one chunk, and where the next one begins.
    fn pieces(&self, start: Start) -> (Vec<Piece>, Start) {
        let mut room = Room { left: CHUNK_MAX - OVERHEAD, used: false };
        let mut pieces = Vec::new();
        let mut at = start;
        for listed in self.keys.iter_at(start.key) {
            let entry = listed.value;
            let head = listed.key.len() + 4 * OVERHEAD;
            if room.used && room.left < head {
                break;
            }
            room.left = room.left.saturating_sub(head);
            let (part, taken, whole) = cut(&entry.value, at.element, &mut room);
            if taken == 0 {
                break;
            }
            let (deadline, version) = (entry.deadline, entry.version);
            pieces.push(Piece { key: listed.key.clone(), deadline, version, part });
            if !whole {
                at.element += taken;
                break;
            }
            at = Start { key: at.key + 1, element: 0 };
        }
        (pieces, at)
    }
}

/// As much of a value behind its first `from` elements as there is room for, how many elements that is, and
/// whether they are the last.
fn cut(value: &Value, from: usize, room: &mut Room) -> (Part, usize, bool) {
    let one = |bytes: &Blob| bytes.len() + OVERHEAD;
    match value {
        Value::String(bytes) => {
            let taken = usize::from(room.admit(one(bytes)));
            (Part::String(bytes.clone()), taken, true)
        }
        Value::Integer(number) => (Part::Integer(*number), usize::from(room.admit(OVERHEAD)), true),
        Value::Hash(hash) => {
            let (taken, whole) = room.take(
                hash.iter_at(from),
                |entry| one(entry.key) + one(entry.value),
                |entry| (entry.key.clone(), entry.value.clone()),
            );
            let count = taken.len();
            (Part::Hash(taken), count, whole)
        }
        Value::Set(set) => {
            let (taken, whole) =
                room.take(set.iter_at(from), |entry| one(entry.key), |entry| entry.key.clone());
            let count = taken.len();
            (Part::Set(taken), count, whole)
        }
        Value::List(list) => {
            let (taken, whole) =
                room.take(list.range(from..list.len()), |value| one(value), |value| value.clone());
            let count = taken.len();
            (Part::List(taken), count, whole)
        }
        Value::Sorted(set) => {
            let (taken, whole) = room.take(
                set.order().range(from..set.len()),
                |(_, member)| one(member) + OVERHEAD,
                |pair| pair.clone(),
            );
            let count = taken.len();
            (Part::Sorted(taken), count, whole)
        }
        Value::Stream(stream) => {
            // The stream itself counts as its first element: it may have no entry.
            if from == 0 && !room.admit(2 * OVERHEAD) {
                return (Part::Stream(stream.last(), Vec::new()), 0, false);
            }
            let size = |fields: &Fields| {
                let each = fields.iter().map(|(field, value)| one(field) + one(value));
                each.sum::<usize>() + 3 * OVERHEAD
            };
            let (taken, whole) = room.take(
                stream.iter_at(from.saturating_sub(1)),
                |(_, fields)| size(fields),
                |(id, fields)| (*id, fields.to_vec()),
            );
            let count = taken.len() + usize::from(from == 0);
            (Part::Stream(stream.last(), taken), count, whole)
        }
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
            if start.key >= self.keys.len() {
                return None;
            }
            let (pieces, next) = self.pieces(start);
            if wanted == last {
                starts.push(next);
            }
            if wanted == index {
                let mut chunk = vec![FORMAT];
                wire::encode_into(&pieces, &mut chunk);
                return Some(Blob::from(chunk));
            }
        }
    }
}

/// Takes in one chunk.
///
/// # Errors
/// Refuses what [`View`] cannot have made; the store is then unusable.
pub(crate) fn absorb(store: &mut Store, chunk: &[u8]) -> Result<(), Malformed> {
    let pieces: Vec<Piece> = match chunk {
        [FORMAT, pieces @ ..] => wire::decode(pieces).map_err(|error| malformed(error.to_string()))?,
        [format, ..] => return Err(malformed(format!("format {format}, this version knows {FORMAT}"))),
        [] => return Err(malformed("it is empty".to_owned())),
    };
    pieces.into_iter().try_for_each(|piece| join(store, piece))
}

fn malformed(cause: String) -> Malformed {
    Malformed { what: "store chunk", cause }
}

fn join(store: &mut Store, piece: Piece) -> Result<(), Malformed> {
    let Piece { key, deadline, version, part } = piece;
    if version & 1 == 0 || version >> 63 != 0 {
        return Err(malformed(format!("key {key:?} has version {version:#x}")));
    }
    if let Some(entry) = store.keys.get_mut(&key) {
        // Only a collection goes on in another piece.
        let goes_on = (entry.deadline, entry.version) == (deadline, version)
            && match part {
                Part::Hash(part) => extend(&mut entry.value, part, add_fields),
                Part::Set(part) => extend(&mut entry.value, part, add_members),
                Part::List(part) => extend(&mut entry.value, part, add_elements),
                Part::Sorted(part) => extend(&mut entry.value, part, add_scored),
                Part::Stream(_, part) => extend(&mut entry.value, part, add_entries),
                Part::String(_) | Part::Integer(_) => false,
            };
        return if goes_on { Ok(()) } else { Err(malformed(format!("key {key:?} comes twice"))) };
    }
    let value = match part {
        Part::String(bytes) => Some(Value::String(bytes)),
        Part::Integer(number) => Some(Value::Integer(number)),
        Part::Hash(part) => begin(part, add_fields),
        Part::Set(part) => begin(part, add_members),
        Part::List(part) => begin(part, add_elements),
        Part::Sorted(part) => begin(part, add_scored),
        Part::Stream(last, part) => {
            let mut stream = Stream::behind(last);
            let good = part.into_iter().all(|entry| add_entries(&mut stream, entry));
            (good && !stream.is_empty()).then(|| stream.wrap())
        }
    };
    let Some(value) = value else {
        return Err(malformed(format!("the collection under {key:?} is empty or repeats an element")));
    };
    if deadline != Stamp::MAX {
        store.deadlines.insert(deadline, &key);
    }
    store.digest = store.digest.wrapping_add(version);
    store.keys.insert(&key, Entry { value, deadline, version });
    Ok(())
}

/// A collection of these elements; `None` where there are none or one comes twice.
fn begin<C: Collection, T>(part: Vec<T>, add: fn(&mut C, T) -> bool) -> Option<Value> {
    let mut collection = C::default();
    let distinct = part.into_iter().all(|element| add(&mut collection, element));
    (distinct && !collection.is_empty()).then(|| collection.wrap())
}

/// Adds elements to the collection in a value; false where it is another one or has one of them.
fn extend<C: Collection, T>(value: &mut Value, part: Vec<T>, add: fn(&mut C, T) -> bool) -> bool {
    match C::open(value) {
        Some(collection) => !part.is_empty() && part.into_iter().all(|element| add(collection, element)),
        None => false,
    }
}

fn add_fields(hash: &mut Hashes, (field, value): (Blob, Blob)) -> bool {
    hash.insert(&field, value).is_none()
}

fn add_members(set: &mut Members, member: Blob) -> bool {
    set.insert(&member, ()).is_none()
}

fn add_elements(list: &mut List, value: Blob) -> bool {
    list.push_back(value);
    true
}

fn add_scored(set: &mut SortedSet, (score, member): (Score, Blob)) -> bool {
    set.set(&member, score).is_none()
}

fn add_entries(stream: &mut Stream, (id, fields): Dated) -> bool {
    stream.restore(id, fields.into())
}
