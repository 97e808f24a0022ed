//! The way back from one command: what it may change, as it was before.
//!
//! A command changes nothing but the keys that it touches, so their entries are enough, and an entry costs a reference
//! count or two to keep. What touches the whole keyspace keeps all of it, which costs no more.

use crate::Store;
use crate::value::Entry;
use isochrone_core::Blob;
use isochrone_core::command::{Operation, Touch};
use std::fmt;

/// What one command may change, as it was.
#[derive(Clone, Hash)]
pub struct Before(Kept);

#[derive(Clone, Hash)]
enum Kept {
    /// Of each key, what was there: the first, which most commands have alone, and the others.
    Keys(Option<Held>, Vec<Held>),
    /// Everything.
    All(Store),
}

type Held = (Blob, Option<Entry>);

impl Before {
    pub(crate) fn of(store: &Store, operation: &Operation) -> Before {
        let (mut first, mut others, mut all) = (None, Vec::new(), false);
        operation.visit(&mut |touch| match touch {
            // Also what is only read: it may be about to expire.
            Touch::Key(key, _) => {
                let held = (key.clone(), store.keys.get(key).cloned());
                if first.is_none() {
                    first = Some(held);
                } else {
                    others.push(held);
                }
            }
            Touch::All(_) => all = true,
        });
        Before(if all { Kept::All(store.clone()) } else { Kept::Keys(first, others) })
    }

    pub(crate) fn revert(self, store: &mut Store) {
        match self.0 {
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
        match &self.0 {
            Kept::Keys(first, others) => {
                let keys =
                    first.iter().chain(others).map(|(key, entry)| (key, entry.as_ref().map(|e| e.version)));
                f.debug_map().entries(keys).finish()
            }
            Kept::All(store) => fmt::Debug::fmt(store, f),
        }
    }
}
