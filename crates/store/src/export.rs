//! The state in bounded chunks: snapshots, and what a lagging replica is sent.
//!
//! A chunk is a format number and a list of pieces, encoded with `postcard`. A piece is a key with its
//! deadline and version and as much of its value as fits; a collection that spans chunks comes in several
//! pieces, in order. Versions travel, so that a replica that was sent the state goes on with equal digests. Where
//! keys were moved from or to another partition, one chunk before the others says which, and chunks behind them hold
//! what is on its way. What is kept in mind of absent keys has chunks of its own.

use crate::Store;
use crate::ranges::{Head, Ranges, Section};
use crate::sorted::SortedSet;
use crate::streams::Stream;
use crate::trie::Trie;
use crate::value::{Collection, Entry, Hashes, List, Members, Value};
use isochrone_core::command::{Content, Dated, Score, StreamHead, StreamPart};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::migration::{self, Cursor};
use isochrone_core::{Blob, Export, Malformed, Stamp, wire};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::sync::Arc;

/// The state as it was when the view was taken.
#[derive(Clone)]
pub struct View {
    /// What is there to say of moves, if anything is: the first chunk.
    head: Option<Head>,
    /// The keys, and what is on its way.
    sections: Vec<(Section, Trie<Entry>)>,
    /// Where each chunk that has been asked for begins, and the one behind it: found by going through those
    /// before it once.
    starts: RefCell<Vec<Start>>,
}

/// A position in the state: a section, a key by its rank in the order of hashes, and how many elements of its
/// value lie before.
#[derive(Copy, Clone)]
struct Start {
    section: usize,
    key: usize,
    element: usize,
}

const FORMAT: u8 = 1;
/// Of the chunk that says what was moved.
const FORMAT_HEAD: u8 = 2;
/// Of chunks of what is on its way.
const FORMAT_SECTION: u8 = 3;
/// Of chunks of absences.
const FORMAT_ABSENCES: u8 = 4;

#[derive(Serialize, Deserialize)]
pub(crate) struct Piece {
    pub key: Blob,
    pub deadline: Stamp,
    pub version: u64,
    /// As much of the value as fits.
    pub part: Content,
}

/// An upper bound for what encoding adds to the bytes of one blob or number: its length, at most.
const OVERHEAD: usize = 10;

/// Fills parts with elements until the chunk is full.
pub(crate) struct Room {
    left: usize,
    /// Whether anything has been put in: the first element goes in whatever its size.
    used: bool,
}

impl Room {
    /// Room for any value.
    pub fn endless() -> Room {
        Room { left: usize::MAX, used: false }
    }

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
    pub(crate) fn new(store: &Store) -> View {
        let head = store.ranges.as_deref().map(Ranges::head);
        let mut sections = vec![(Section::Served, store.keys.clone())];
        sections.extend(store.absences.iter().map(|absences| (Section::Absences, absences.keys.clone())));
        sections.extend(store.ranges.iter().flat_map(|ranges| ranges.sections()));
        let start = Start { section: 0, key: 0, element: 0 };
        View { head, sections, starts: RefCell::new(vec![start]) }
    }

    /// The first position at which there is something, from this one on.
    fn settle(&self, mut at: Start) -> Option<Start> {
        while let Some((_, keys)) = self.sections.get(at.section) {
            if at.key < keys.len() {
                return Some(at);
            }
            at = Start { section: at.section + 1, key: 0, element: 0 };
        }
        None
    }

    /// Lets go of what lies before the last chunk that was asked for, so that changes there need no copy any more.
    fn shed(&mut self) {
        let Some(at) = self.starts.get_mut().last_mut() else { return };
        for (_, keys) in &mut self.sections[..at.section] {
            *keys = Trie::default();
        }
        if let Some((_, keys)) = self.sections.get_mut(at.section) {
            at.key -= keys.shed(at.key);
        }
    }
}

/// The pieces from a position on that fill one chunk, and where the next one begins.
fn pieces(keys: &Trie<Entry>, start: Cursor) -> (Vec<Piece>, Cursor) {
    let mut room = Room { left: CHUNK_MAX - OVERHEAD, used: false };
    let mut pieces = Vec::new();
    let mut at = start;
    for listed in keys.iter_at(start.entry as usize) {
        let entry = listed.value;
        let head = listed.key.len() + 4 * OVERHEAD;
        if room.used && room.left < head {
            break;
        }
        room.left = room.left.saturating_sub(head);
        let (part, taken, whole) = cut(&entry.value, at.element as usize, &mut room);
        if taken == 0 {
            break;
        }
        let (deadline, version) = (entry.deadline, entry.version);
        pieces.push(Piece { key: listed.key.blob(), deadline, version, part });
        if !whole {
            at.element += taken as u64;
            break;
        }
        at = Cursor { entry: at.entry + 1, element: 0 };
    }
    (pieces, at)
}

/// The chunk of a part of a state that begins here.
pub(crate) fn piece(keys: &Trie<Entry>, from: Cursor) -> migration::Piece {
    let (pieces, next) = pieces(keys, from);
    let mut chunk = vec![FORMAT];
    wire::encode_into(&pieces, &mut chunk);
    let last = next.entry as usize >= keys.len();
    migration::Piece { from, next, last, chunk: Blob::from(chunk) }
}

/// About how many bytes a key takes in a chunk; none where it does not fit into this many.
pub(crate) fn weigh(key: &[u8], entry: &Entry, left: usize) -> Option<usize> {
    let head = key.len() + 4 * OVERHEAD;
    let mut room = Room { left: left.checked_sub(head)?, used: true };
    let before = room.left;
    let (_, taken, whole) = cut(&entry.value, 0, &mut room);
    (taken > 0 && whole).then(|| head + before - room.left)
}

/// As much of a value behind its first `from` elements as there is room for, how many elements that is, and
/// whether they are the last.
pub(crate) fn cut(value: &Value, from: usize, room: &mut Room) -> (Content, usize, bool) {
    let one = |bytes: &[u8]| bytes.len() + OVERHEAD;
    match value {
        Value::String(bytes) => {
            let taken = usize::from(room.admit(bytes.len() + OVERHEAD));
            // What is not taken is not copied.
            let bytes = if taken > 0 { bytes.copy() } else { Blob::default() };
            (Content::String(bytes), taken, true)
        }
        Value::Integer(number) => (Content::Integer(*number), usize::from(room.admit(OVERHEAD)), true),
        Value::Hash(hash) => {
            let (taken, whole) = room.take(
                hash.iter_at(from),
                |entry| one(entry.key) + one(entry.value),
                |entry| (entry.key.blob(), entry.value.clone()),
            );
            let count = taken.len();
            (Content::Hash(taken), count, whole)
        }
        Value::Set(set) => {
            let (taken, whole) =
                room.take(set.iter_at(from), |entry| one(entry.key), |entry| entry.key.blob());
            let count = taken.len();
            (Content::Set(taken), count, whole)
        }
        Value::List(list) => {
            let (taken, whole) =
                room.take(list.range(from..list.len()), |value| one(value), |value| value.clone());
            let count = taken.len();
            (Content::List(taken), count, whole)
        }
        Value::Sorted(set) => {
            let (taken, whole) = room.take(
                set.order().range(from..set.len()),
                |(_, member)| one(member) + OVERHEAD,
                |(score, member)| (*score, member.blob()),
            );
            let count = taken.len();
            (Content::Sorted(taken), count, whole)
        }
        Value::Stream(stream) => {
            // The stream itself counts as its first element: it may have no entry.
            if from == 0 && !room.admit(5 * OVERHEAD) {
                return (Content::Stream(stream.last(), Vec::new()), 0, false);
            }
            let size = |fields: &[(Blob, Blob)]| {
                let each = fields.iter().map(|(field, value)| one(field) + one(value));
                each.sum::<usize>() + 3 * OVERHEAD
            };
            if !stream.is_plain() {
                let size = |part: &StreamPart| match part {
                    StreamPart::Entry((_, fields)) => size(fields) + OVERHEAD,
                    StreamPart::Group(name, ..) => one(name) + 5 * OVERHEAD,
                    StreamPart::Consumer(name, _) => one(name) + 2 * OVERHEAD,
                    StreamPart::Pending(..) => 6 * OVERHEAD,
                };
                let (taken, whole) = room.take(stream.parts_at(from.saturating_sub(1)), size, |part| part);
                let count = taken.len() + usize::from(from == 0);
                return (Content::Parts(stream.head(), taken), count, whole);
            }
            let (taken, whole) = room.take(
                stream.iter_at(from.saturating_sub(1)),
                |(_, fields)| size(fields),
                |(id, fields)| (*id, fields.to_vec()),
            );
            let count = taken.len() + usize::from(from == 0);
            (Content::Stream(stream.last(), taken), count, whole)
        }
    }
}

impl Export for View {
    fn into_chunks(mut self) -> impl Iterator<Item = Blob> + Send + 'static {
        let mut index = 0;
        std::iter::from_fn(move || {
            let chunk = self.chunk(index)?;
            index += 1;
            self.shed();
            Some(chunk)
        })
    }

    fn chunk(&self, index: u64) -> Option<Blob> {
        let mut index = usize::try_from(index).ok()?;
        if let Some(head) = &self.head {
            let Some(behind) = index.checked_sub(1) else {
                let mut chunk = vec![FORMAT_HEAD];
                wire::encode_into(head, &mut chunk);
                return Some(Blob::from(chunk));
            };
            index = behind;
        }
        let mut starts = self.starts.borrow_mut();
        loop {
            // There is always a first one.
            let last = starts.len() - 1;
            let wanted = index.min(last);
            let Start { section, key, element } = self.settle(starts[wanted])?;
            let (of, keys) = &self.sections[section];
            let (pieces, next) = pieces(keys, Cursor { entry: key as u64, element: element as u64 });
            if wanted == last {
                starts.push(Start { section, key: next.entry as usize, element: next.element as usize });
            }
            if wanted == index {
                let mut chunk = Vec::new();
                match of {
                    Section::Served => chunk.push(FORMAT),
                    Section::Absences => chunk.push(FORMAT_ABSENCES),
                    of => {
                        chunk.push(FORMAT_SECTION);
                        wire::encode_into(of, &mut chunk);
                    }
                }
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
    let unreadable = |error: isochrone_core::DecodeError| malformed(error.to_string());
    let pieces: Vec<Piece> = match chunk {
        [FORMAT, pieces @ ..] => wire::decode(pieces).map_err(unreadable)?,
        [FORMAT_HEAD, head @ ..] => {
            let head: Head = wire::decode(head).map_err(unreadable)?;
            store.ranges = Some(Arc::new(Ranges::from(head)));
            return Ok(());
        }
        [FORMAT_SECTION, rest @ ..] => {
            let (of, pieces): (Section, Vec<Piece>) = wire::decode(rest).map_err(unreadable)?;
            let ranges = store.ranges.as_mut().map(Arc::make_mut);
            let Some(part) = ranges.and_then(|ranges| ranges.section_mut(of)) else {
                return Err(malformed(format!("nothing is said of {of:?}")));
            };
            return pieces.into_iter().try_for_each(|piece| join(part, piece));
        }
        [FORMAT_ABSENCES, pieces @ ..] => {
            let pieces: Vec<Piece> = wire::decode(pieces).map_err(unreadable)?;
            let absences = Arc::make_mut(store.absences.get_or_insert_default());
            return pieces.into_iter().try_for_each(|piece| join(absences, piece));
        }
        [format, ..] => return Err(malformed(format!("format {format}, this version knows {FORMAT}"))),
        [] => return Err(malformed("it is empty".to_owned())),
    };
    pieces.into_iter().try_for_each(|piece| join(store, piece))
}

fn malformed(cause: String) -> Malformed {
    Malformed { what: "store chunk", cause }
}

/// Takes in one piece.
///
/// # Errors
/// Refuses what [`View`] cannot have made.
pub(crate) fn join(store: &mut Store, piece: Piece) -> Result<(), Malformed> {
    let Piece { key, deadline, version, part } = piece;
    if version & 1 == 0 || version >> 63 != 0 {
        return Err(malformed(format!("key {key:?} has version {version:#x}")));
    }
    if let Some(entry) = store.keys.get_mut(&key) {
        // Only a collection goes on in another piece.
        let goes_on = (entry.deadline, entry.version) == (deadline, version)
            && match part {
                Content::Hash(part) => extend(&mut entry.value, part, add_fields),
                Content::Set(part) => extend(&mut entry.value, part, add_members),
                Content::List(part) => extend(&mut entry.value, part, add_elements),
                Content::Sorted(part) => extend(&mut entry.value, part, add_scored),
                Content::Stream(_, part) => extend(&mut entry.value, part, add_entries),
                Content::Parts(_, part) => extend(&mut entry.value, part, Stream::restore_part),
                Content::String(_) | Content::Integer(_) => false,
            };
        return if goes_on { Ok(()) } else { Err(malformed(format!("key {key:?} comes twice"))) };
    }
    let Some(value) = value(part) else {
        return Err(malformed(format!("the collection under {key:?} is empty or repeats an element")));
    };
    store.replace(&key, Some(Entry { value, deadline, version }));
    Ok(())
}

/// The value that holds this; `None` where it is an empty collection, or one in which an element comes twice.
pub(crate) fn value(content: Content) -> Option<Value> {
    match content {
        Content::String(bytes) => Some(Value::String(bytes.into())),
        Content::Integer(number) => Some(Value::Integer(number)),
        Content::Hash(part) => begin(part, add_fields),
        Content::Set(part) => begin(part, add_members),
        Content::List(part) => begin(part, add_elements),
        Content::Sorted(part) => begin(part, add_scored),
        Content::Stream(last, part) => {
            let mut stream = Stream::begin(StreamHead { last, ..StreamHead::default() });
            part.into_iter().all(|entry| add_entries(&mut stream, entry)).then(|| stream.wrap())
        }
        Content::Parts(head, part) => {
            let mut stream = Stream::begin(head);
            part.into_iter().all(|part| stream.restore_part(part)).then(|| stream.wrap())
        }
    }
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

/// Of a stream that is no more than its entries.
fn add_entries(stream: &mut Stream, (id, fields): Dated) -> bool {
    stream.head_mut().added += 1;
    stream.restore(id, fields.into())
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    let shapes = isochrone_core::shape::Shapes::default().with::<Vec<Piece>>("served or absent");
    shapes.with::<Head>("head").with::<(Section, Vec<Piece>)>("on its way").hold("store");
}
