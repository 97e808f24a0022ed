//! The way back from one command: what it may change, as it was before.
//!
//! A command changes nothing but the keys that it touches, so their entries are enough, and an entry costs a reference
//! count or two to keep. What touches the whole keyspace keeps all of it, which costs no more.

use crate::Store;
use crate::bytes::{Bytes, PIECE};
use crate::value::{Entry, Value};
use isochrone_core::Blob;
use isochrone_core::command::{Access, Operation, Touch};
use std::fmt;

/// What one command may change, as it was.
#[derive(Clone, Hash)]
pub struct Before {
    kept: Kept,
    /// About how many bytes are kept by it alone once the command has been executed.
    weight: usize,
}

#[derive(Clone, Hash)]
enum Kept {
    /// Of each key, what was there: the first, which most commands have alone, and the others.
    Keys(Option<Held>, Vec<Held>),
    /// Everything.
    All(Store),
}

type Held = (Blob, Option<Entry>);

/// What an edit of something that is shared copy on write copies of it, about: a piece or a leaf, and the way there.
const PATH: usize = 4 * PIECE;
/// What an element of a collection takes, at the least.
const ELEMENT: usize = 64;

/// How much of a value an operation may leave to nobody but who keeps it.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Leaves {
    /// What is copied of a long string or of a collection.
    Path,
    /// All of a string, and what is copied of a collection.
    String,
    /// All of it.
    All,
}

impl Leaves {
    fn of(operation: &Operation) -> Leaves {
        use Operation::*;
        match operation {
            Append { .. } | AppendWithin { .. } | SetRange { .. } | SetBit { .. } | BitField { .. } => {
                Leaves::Path
            }
            Del { .. } | Sweep { .. } | Rename { .. } | Copy { .. } | Restore { .. } => Leaves::All,
            _ => Leaves::String,
        }
    }

    fn weigh(self, value: &Value, access: Access) -> usize {
        match value {
            _ if !access.writes() => 0,
            Value::Integer(_) => 0,
            Value::String(Bytes::Pieces(_)) if self == Leaves::Path => PATH,
            Value::String(bytes) => bytes.len(),
            value if self == Leaves::All || access == Access::Write => value.len().saturating_mul(ELEMENT),
            _ => 0,
        }
    }
}

impl Before {
    pub(crate) fn of(store: &Store, operation: &Operation) -> Before {
        let mut before = Before { kept: Kept::Keys(None, Vec::new()), weight: 0 };
        before.keep(store, operation);
        before
    }

    fn keep(&mut self, store: &Store, operation: &Operation) {
        if let Operation::Transaction { watched, operations } = operation {
            watched.iter().for_each(|(key, _)| self.keep_key(store, key, Leaves::Path, Access::Read));
            return operations.iter().for_each(|operation| self.keep(store, operation));
        }
        let leaves = Leaves::of(operation);
        operation.visit(&mut |touch| match touch {
            // Also what is only read: it may be about to expire.
            Touch::Key(key, access) => self.keep_key(store, key, leaves, access),
            Touch::All(_) => self.kept = Kept::All(store.clone()),
        });
    }

    fn keep_key(&mut self, store: &Store, key: &Blob, leaves: Leaves, access: Access) {
        let Kept::Keys(first, others) = &mut self.kept else { return };
        let entry = store.keys.get(key).cloned();
        let weight = entry.as_ref().map_or(0, |entry| leaves.weigh(&entry.value, access));
        self.weight = self.weight.saturating_add(weight);
        let held = (key.clone(), entry);
        if first.is_none() {
            *first = Some(held);
        } else {
            others.push(held);
        }
    }

    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn revert(self, store: &mut Store) {
        match self.kept {
            Kept::All(before) => *store = before,
            // A key that is named twice was the same both times.
            Kept::Keys(first, others) => {
                first.into_iter().chain(others).for_each(|(key, entry)| store.put_back(&key, entry));
            }
        }
    }
}

impl Store {
    /// Makes a key what it was.
    fn put_back(&mut self, key: &Blob, entry: Option<Entry>) {
        let state = |entry: &Entry| (entry.version, entry.deadline);
        if self.keys.get(key).map(state) == entry.as_ref().map(state) {
            // Equal versions mean equal contents.
            return;
        }
        self.replace(key, entry);
    }
}

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kept {
            Kept::Keys(first, others) => {
                let keys =
                    first.iter().chain(others).map(|(key, entry)| (key, entry.as_ref().map(|e| e.version)));
                f.debug_map().entries(keys).finish()
            }
            Kept::All(store) => fmt::Debug::fmt(store, f),
        }
    }
}
