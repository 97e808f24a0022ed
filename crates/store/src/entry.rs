//! One key's entry as bytes and back: what a store that keeps values of its own (that of transactions) holds under a
//! key, so that commands mean there what they mean here.

use crate::Store;
use crate::export::{self, Piece, Room};
use isochrone_core::command::{Content, Kind};
use isochrone_core::{Blob, Malformed, Stamp, wire};
use serde::{Deserialize, Serialize};

/// The first byte of every entry.
const FORMAT: u8 = 1;

/// A key's deadline, version and value, whole.
#[derive(Serialize, Deserialize)]
struct Whole {
    deadline: Stamp,
    version: u64,
    part: Content,
}

/// The deadline of a key that holds this ([`Store::entry`]), if it has one. Of other bytes nothing is known, and so they
/// have none.
pub fn deadline(entry: &[u8]) -> Option<Stamp> {
    let [FORMAT, entry @ ..] = entry else { return None };
    let (deadline, _) = wire::decode_prefix::<Stamp>(entry).ok()?;
    (deadline != Stamp::MAX).then_some(deadline)
}

/// The type of what a key holds that holds this. It costs the size of the value.
pub fn kind(entry: &[u8]) -> Option<Kind> {
    let (key, mut store) = (Blob::default(), Store::default());
    store.enter(&key, entry).ok()?;
    Some(store.keys.get(&key)?.value.kind())
}

impl Store {
    /// What a key holds: its value, deadline and version, as bytes that [`Store::enter`] takes in. Nothing where there
    /// is no such key. It costs the size of the value.
    pub fn entry(&self, key: &[u8]) -> Option<Blob> {
        let entry = self.keys.get(key)?;
        let (part, ..) = export::cut(&entry.value, 0, &mut Room::endless());
        let mut bytes = vec![FORMAT];
        wire::encode_into(&Whole { deadline: entry.deadline, version: entry.version, part }, &mut bytes);
        Some(Blob::from(bytes))
    }

    /// Gives a key that holds nothing here what it held elsewhere.
    ///
    /// # Errors
    /// Refuses what no [`Store::entry`] has given, and a key that holds something; the store is as it was.
    pub fn enter(&mut self, key: &Blob, entry: &[u8]) -> Result<(), Malformed> {
        let malformed = |cause: String| Malformed { what: "entry of a key", cause };
        let Whole { deadline, version, part } = match entry {
            [FORMAT, entry @ ..] => wire::decode(entry)
                .map_err(|error: isochrone_core::DecodeError| malformed(error.to_string()))?,
            [format, ..] => {
                return Err(malformed(format!("format {format}, this version knows {FORMAT}")));
            }
            [] => return Err(malformed("it is empty".to_owned())),
        };
        if self.keys.contains(key) {
            return Err(malformed(format!("key {key:?} holds something already")));
        }
        export::join(self, Piece { key: key.clone(), deadline, version, part })
    }

    /// Whether a key holds the same in both: versions and deadlines are looked at, which equal ones have equal.
    pub fn agrees(&self, other: &Store, key: &[u8]) -> bool {
        let state = |store: &Store| store.keys.get(key).map(|entry| (entry.version, entry.deadline));
        state(self) == state(other)
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Whole>("entry");
}
