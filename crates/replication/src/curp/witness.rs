//! What a witness holds: requests that commute with one another, for a short time, in no order.
//!
//! A set-associative store (`specs/curp.md` 3.3): a request lies once for each key that it names, in the set of that
//! key's hash, and is taken only where no key of it is held by another request and every set has room. So the
//! contents commute pairwise at every instant, and may be replayed in any order. A hash that two keys share costs a
//! false conflict, never a missed one.
//!
//! It is pure: durability, terms and versions are its holder's. What it holds is bounded by
//! [`Shape::slots`] times [`Shape::slot_bytes`] whatever it is sent: its holders keep requests as they are encoded
//! ([`Packed`]), since decoded, one of many small parts takes some twenty times as much memory.

#[cfg(test)]
mod tests;

use isochrone_core::{Blob, CommandId, Wire, wire};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use thiserror::Error;

/// How large a store is.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Shape {
    /// How many it holds at most: a request counts once for each of its keys.
    pub slots: usize,
    /// Slots of one set: as many keys as may share a set without a false rejection.
    pub ways: usize,
    /// Bytes of a request at most; larger ones go without a witness.
    pub slot_bytes: usize,
}

impl Default for Shape {
    /// As in the paper (5.2, C.2): about 690 random keys before a set overflows, and 8 MB of requests.
    fn default() -> Shape {
        Shape { slots: 4_096, ways: 4, slot_bytes: 2_048 }
    }
}

/// Keys of one request at most (`specs/curp.md` 7.3).
pub const KEYS_MAX: usize = 8;
/// A request that stands in another's way after this many collections is suspected to be garbage
/// (`specs/curp.md` 3.8).
pub const STALE_ROUNDS: u64 = 3;

/// Why a request was not taken.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Error)]
pub enum Reject {
    /// A key of it is held by another request.
    #[error("a key is held by another request")]
    Conflict,
    /// A set has too little room for its keys.
    #[error("a set is full")]
    NoSpace,
    /// It is larger than a slot, names more than [`KEYS_MAX`] keys, or none.
    #[error("the request does not fit a slot")]
    TooLarge,
}

/// One request, in the slot of one of its keys.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Stored<T> {
    /// The hash of the key.
    pub hash: u64,
    /// The name of the request.
    pub id: CommandId,
    /// The request.
    pub request: T,
}

/// A request as it is kept: its encoding, and so the memory that the encoding takes. It travels and is written down as
/// the request itself.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Packed<T>(Blob, PhantomData<fn() -> T>);

impl<T: Wire> Packed<T> {
    /// Packs a request. The room is for its bytes meanwhile: whoever packs several gives the same.
    pub fn new(request: &T, room: &mut Vec<u8>) -> Packed<T> {
        room.clear();
        wire::encode_into(request, room);
        Packed(Blob::new(room), PhantomData)
    }

    /// Bytes of its encoding.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The request.
    #[expect(clippy::expect_used, reason = "what was encoded here is decoded again")]
    pub fn unpack(&self) -> T {
        wire::decode(&self.0).expect("a request that was packed")
    }
}

impl<T: Wire> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.unpack().serialize(serializer)
    }
}

impl<'de, T: Wire> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Packed<T>, D::Error> {
        Ok(Packed::new(&T::deserialize(deserializer)?, &mut Vec::new()))
    }
}

#[derive(Clone, Hash, Debug)]
struct Held<T> {
    id: CommandId,
    /// The round of collections in which it came.
    since: u64,
    /// It is on the list of suspects.
    suspect: bool,
    request: T,
}

/// The store. See the module.
#[derive(Clone, Debug)]
pub struct Witness<T> {
    shape: Shape,
    /// By slot, the hash held there, so that a set is searched without touching its requests; [`FREE`] where none
    /// is. Empty until the first request.
    tags: Vec<u64>,
    held: Vec<Option<Held<T>>>,
    used: usize,
    round: u64,
    /// Slots that were suspected since the last collection; some may have been cleared since.
    suspects: Vec<u32>,
}

/// The tag of a free slot. A key of this hash is taken for one of the hash 1.
const FREE: u64 = 0;

fn tag(hash: u64) -> u64 {
    hash.max(1)
}

impl<T: Clone> Witness<T> {
    /// An empty store. It takes no memory before its first request.
    ///
    /// # Panics
    /// Unless there is at least one set, and every set is whole.
    pub fn new(shape: Shape) -> Witness<T> {
        assert!(shape.ways > 0 && shape.slots >= shape.ways && shape.slots.is_multiple_of(shape.ways));
        assert!(u32::try_from(shape.slots).is_ok(), "slots are numbered with 32 bits");
        Witness { shape, tags: Vec::new(), held: Vec::new(), used: 0, round: 0, suspects: Vec::new() }
    }

    /// Bytes of its slots once it has held anything, without what requests have elsewhere.
    pub fn table_bytes(&self) -> usize {
        (size_of::<u64>() + size_of::<Option<Held<T>>>()) * self.shape.slots
    }

    /// Takes a request of `bytes` in, under the hashes of all keys that it reads or writes (D-11), or leaves
    /// everything as it was. A request that is held already is taken again (D-10).
    ///
    /// # Errors
    /// It does not commute with what is held, or does not fit.
    pub fn record(&mut self, hashes: &[u64], id: CommandId, request: T, bytes: usize) -> Result<(), Reject> {
        let mut keys = [FREE; KEYS_MAX];
        let keys = distinct(hashes, &mut keys).ok_or(Reject::TooLarge)?;
        if bytes > self.shape.slot_bytes {
            return Err(Reject::TooLarge);
        }
        self.allocate();
        let (mut own, mut conflict) = (0, false);
        for key in keys.iter() {
            let Some(slot) = self.find(*key) else { continue };
            if self.held[slot].as_ref().is_some_and(|held| held.id == id) {
                own += 1;
            } else {
                conflict = true;
                self.suspect(slot);
            }
        }
        if own == keys.len() {
            return Ok(());
        }
        // Where it is held under some of its keys only, somebody has collected the rest: it is over.
        if conflict || own > 0 {
            return Err(Reject::Conflict);
        }
        let mut slots = [0; KEYS_MAX];
        for (at, key) in keys.iter().enumerate() {
            let set = self.set(*key);
            let free = set.clone().find(|slot| self.tags[*slot] == FREE && !slots[..at].contains(slot));
            let Some(free) = free else {
                set.for_each(|slot| self.suspect(slot));
                return Err(Reject::NoSpace);
            };
            slots[at] = free;
        }
        for (key, slot) in keys.iter().zip(slots) {
            self.fill(slot, *key, id, request.clone());
        }
        Ok(())
    }

    /// Forgets these, each under one key: what is not held under that key with that name is passed over. Counts as
    /// one collection, and tells which requests have been in the way for long.
    pub fn gc(&mut self, pairs: impl IntoIterator<Item = (u64, CommandId)>) -> Vec<(CommandId, T)> {
        for (hash, id) in pairs {
            self.collect(hash, id);
        }
        self.turn()
    }

    /// Forgets a request under one key; false where it was not held.
    pub fn collect(&mut self, hash: u64, id: CommandId) -> bool {
        let Some(slot) = self.find(tag(hash)) else { return false };
        let found = self.held[slot].as_ref().is_some_and(|held| held.id == id);
        if found {
            self.clear(slot);
        }
        found
    }

    /// Forgets all but what `keep` says, by key and name: what a journal says was held. Nothing else forgets what nobody
    /// has named (D-26).
    pub(super) fn retain(&mut self, keep: impl Fn(u64, CommandId) -> bool) {
        for slot in 0..self.tags.len() {
            if let Some(held) = &self.held[slot]
                && !keep(self.tags[slot], held.id)
            {
                self.clear(slot);
            }
        }
    }

    /// Ends a round of collections: the requests that were found in the way, on a key or in a full set, and
    /// had been held for at least [`STALE_ROUNDS`], each once.
    pub fn turn(&mut self) -> Vec<(CommandId, T)> {
        self.round += 1;
        let mut found = BTreeMap::new();
        for slot in std::mem::take(&mut self.suspects) {
            if let Some(held) = &mut self.held[slot as usize]
                && std::mem::take(&mut held.suspect)
            {
                found.entry(held.id).or_insert_with(|| held.request.clone());
            }
        }
        found.into_iter().collect()
    }

    /// Whether nothing is held under any of these keys: a read of them commutes with all that is held. What stands in its
    /// way is suspected as if a request had found it (`specs/curp.md` 3.8): where a key is only read, nobody else finds it.
    pub fn commutes(&mut self, hashes: &[u64]) -> bool {
        let mut commutes = true;
        for hash in hashes {
            if let Some(slot) = self.find(tag(*hash)) {
                commutes = false;
                self.suspect(slot);
            }
        }
        commutes
    }

    /// Whether this request is held under this key.
    pub fn holds(&self, hash: u64, id: CommandId) -> bool {
        self.get(hash, id).is_some()
    }

    /// This request, if it is held under this key.
    pub fn get(&self, hash: u64, id: CommandId) -> Option<&T> {
        let held = self.held[self.find(tag(hash))?].as_ref().filter(|held| held.id == id)?;
        Some(&held.request)
    }

    /// All requests, each once, in the order of their names.
    pub fn contents(&self) -> BTreeMap<CommandId, &T> {
        self.held.iter().flatten().map(|held| (held.id, &held.request)).collect()
    }

    /// How many slots are taken.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// All that is held, slot by slot, for a snapshot.
    pub fn export(&self) -> impl Iterator<Item = Stored<T>> + '_ {
        self.tags.iter().zip(&self.held).filter_map(|(hash, held)| {
            let Held { id, request, .. } = held.as_ref()?;
            Some(Stored { hash: *hash, id: *id, request: request.clone() })
        })
    }

    /// Takes in what was held when it was exported or written down, under one key. What it finds there had been
    /// collected when this came: it goes. False where the set is full, which nothing that was held together meets.
    pub(super) fn absorb(&mut self, Stored { hash, id, request }: Stored<T>) -> bool {
        self.allocate();
        let key = tag(hash);
        if let Some(slot) = self.find(key) {
            self.clear(slot);
        }
        match self.set(key).find(|slot| self.tags[*slot] == FREE) {
            Some(slot) => {
                self.fill(slot, key, id, request);
                true
            }
            None => false,
        }
    }

    /// The slots of a key's set. Partitions are told apart by the upper bits of a hash
    /// ([`key_hash`](isochrone_core::key_hash)), so the lower ones choose.
    fn set(&self, key: u64) -> std::ops::Range<usize> {
        let sets = (self.shape.slots / self.shape.ways) as u64;
        let first = (((key & 0xffff_ffff) * sets) >> 32) as usize * self.shape.ways;
        first..first + self.shape.ways
    }

    fn find(&self, key: u64) -> Option<usize> {
        if self.tags.is_empty() {
            return None;
        }
        self.set(key).find(|slot| self.tags[*slot] == key)
    }

    fn allocate(&mut self) {
        if self.tags.is_empty() {
            self.tags.resize(self.shape.slots, FREE);
            self.held.resize_with(self.shape.slots, || None);
        }
    }

    /// What this slot holds is in the way.
    fn suspect(&mut self, slot: usize) {
        if let Some(held) = &mut self.held[slot]
            && self.round - held.since >= STALE_ROUNDS
            && !std::mem::replace(&mut held.suspect, true)
        {
            // Slots are numbered with 32 bits.
            self.suspects.push(slot as u32);
        }
    }

    fn fill(&mut self, slot: usize, key: u64, id: CommandId, request: T) {
        debug_assert!(self.tags[slot] == FREE && key != FREE);
        // What is held commutes pairwise (I3).
        assert!(self.find(key).is_none(), "two requests hold one key");
        self.tags[slot] = key;
        self.held[slot] = Some(Held { id, since: self.round, suspect: false, request });
        self.used += 1;
    }

    fn clear(&mut self, slot: usize) {
        self.tags[slot] = FREE;
        self.held[slot] = None;
        self.used -= 1;
    }

    /// Asserts that what is held commutes pairwise (I3) and is counted. A look at every slot: [`Witness::fill`] asserts it
    /// of the one that it fills.
    #[cfg(test)]
    fn check(&self) {
        let mut taken: Vec<u64> = self.tags.iter().copied().filter(|tag| *tag != FREE).collect();
        assert!(taken.len() == self.used, "{} slots are counted, {} are taken", self.used, taken.len());
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0] != pair[1]), "two requests hold one key");
    }
}

/// The tags of these keys, each once; `None` where there are too many, or none.
fn distinct<'a>(hashes: &[u64], into: &'a mut [u64; KEYS_MAX]) -> Option<&'a [u64]> {
    if hashes.len() > KEYS_MAX || hashes.is_empty() {
        return None;
    }
    let mut count = 0;
    for hash in hashes {
        if !into[..count].contains(&tag(*hash)) {
            into[count] = tag(*hash);
            count += 1;
        }
    }
    Some(&into[..count])
}

/// What is held, wherever the slots are that are free.
impl<T: Hash> Hash for Witness<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.used, self.round, &self.suspects).hash(state);
        if self.used > 0 {
            for (slot, held) in self.held.iter().enumerate() {
                if let Some(held) = held {
                    (slot, self.tags[slot], held).hash(state);
                }
            }
        }
    }
}
