//! About how much memory a key takes: reckoned from lengths and from how things are kept, so that all replicas say the same,
//! whatever their allocators do and however they came by their state. `tests/memory.rs` holds it against what is allocated.

use crate::Store;
use crate::groups::Held;
use crate::key::{Key, SHORT};
use crate::value::{Entry, Value};
use isochrone_core::command::{Response, Score, StreamId};
use isochrone_core::{Blob, Stamp};
use std::mem::size_of;
use std::sync::Arc;

/// What an allocation takes: as much as asked for with a word of the allocator's own, in steps of two words.
fn allocated(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

/// A length, and the bytes behind it.
fn blob(bytes: &[u8]) -> usize {
    allocated(size_of::<usize>() + bytes.len())
}

/// What a name takes beside its place in a leaf.
fn name(bytes: &[u8]) -> usize {
    if bytes.len() <= SHORT { 0 } else { blob(bytes) }
}

/// The counts of an `Arc`.
const COUNTS: usize = 2 * size_of::<usize>();

/// So many entries of a trie with values of this type: one leaf that grows by a quarter; or many, of which each has a little
/// room, and the branches above.
fn trie<V>(len: usize) -> usize {
    let item = size_of::<u64>() + size_of::<Key>() + size_of::<V>();
    if len > 32 {
        return len * item * 11 / 10 + len * 19;
    }
    let mut places = 0;
    while places < len {
        places += 1 + places / 4;
    }
    allocated(COUNTS + size_of::<Vec<V>>()) + allocated(places * item)
}

/// So many elements of this type in a sequence, one block or many; where the many were filled from an end they are full, in
/// any other order some more than half.
fn sequence<T>(len: usize, from_an_end: bool) -> usize {
    let places = match len {
        0..=1 => len,
        2..=128 => len.next_power_of_two().max(4),
        _ if from_an_end => len * 17 / 16,
        _ => len * 8 / 5,
    };
    allocated(places * size_of::<T>()) + len.div_ceil(128) * (allocated(COUNTS + 32) + 16)
}

/// What all elements take, as far as some of them tell.
fn all<T>(len: usize, samples: usize, elements: impl Iterator<Item = T>, one: impl Fn(T) -> usize) -> usize {
    let looked = len.min(samples);
    let sum: u128 = elements.take(looked).map(|element| one(element) as u128).sum();
    // No more than is in memory.
    (sum * len as u128).checked_div(looked as u128).unwrap_or(0) as usize
}

impl Store {
    pub(crate) fn weight(&self, key: &[u8], samples: u64) -> Response {
        let Some(entry) = self.keys.get(key) else { return Response::Nil };
        let samples = if samples == 0 { usize::MAX } else { usize::try_from(samples).unwrap_or(usize::MAX) };
        // As one of many keys.
        let mut sum = trie::<Entry>(64) / 64 + name(key);
        if entry.deadline != Stamp::MAX {
            sum += sequence::<(Stamp, Key)>(1024, false) / 1024;
        }
        Response::count(sum + value(&entry.value, samples))
    }
}

fn value(value: &Value, samples: usize) -> usize {
    match value {
        Value::Integer(_) => 0,
        Value::String(bytes) => allocated(size_of::<usize>() + bytes.len()),
        Value::Hash(hash) => {
            let fields = all(hash.len(), samples, hash.iter(), |entry| name(entry.key) + blob(entry.value));
            trie::<Blob>(hash.len()) + fields
        }
        Value::Set(set) => {
            trie::<()>(set.len()) + all(set.len(), samples, set.iter(), |entry| name(entry.key))
        }
        Value::List(list) => {
            let elements = all(list.len(), samples, list.iter(), |element| blob(element));
            allocated(COUNTS + 40) + sequence::<Blob>(list.len(), true) + elements
        }
        Value::Sorted(set) => {
            // A long name is shared by both orders.
            let members = all(set.len(), samples, set.order().iter(), |(_, member)| name(member));
            let order = sequence::<(Score, Key)>(set.len(), false);
            allocated(COUNTS + 56) + trie::<Score>(set.len()) + order + members
        }
        Value::Stream(stream) => {
            let entries = all(stream.len(), samples, stream.iter_at(0), |(_, fields)| {
                let each = fields.iter().map(|(field, value)| blob(field) + blob(value));
                allocated(COUNTS + fields.len() * size_of::<(Blob, Blob)>()) + each.sum::<usize>()
            });
            let order = sequence::<(StreamId, Arc<[(Blob, Blob)]>)>(stream.len(), true);
            let groups = stream.groups.iter().map(|group| {
                let consumers = group.consumers().map(|(name, pending)| {
                    allocated(COUNTS + 48) + blob(name) + sequence::<StreamId>(pending, true)
                });
                let pending = sequence::<(StreamId, Held)>(group.pending(), true);
                allocated(COUNTS + 136) + blob(group.name()) + pending + consumers.sum::<usize>()
            });
            allocated(COUNTS + 136) + order + entries + groups.sum::<usize>()
        }
    }
}
