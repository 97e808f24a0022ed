//! What a transaction may have, the same in every protocol.

use crate::request::{Refusal, Update};
use isochrone_core::Blob;
use std::collections::BTreeSet;

/// The bounds of one transaction.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Bounds {
    /// Keys in its two sets together.
    pub keys: usize,
    /// Bytes of those keys, and of the values that it writes.
    pub bytes: usize,
}

impl Bounds {
    /// Whether a transaction may touch these.
    ///
    /// # Errors
    /// No keys, too many, or one of them twice in a set.
    pub(crate) fn check_sets(self, reads: &[Blob], writes: &[Blob]) -> Result<(), Refusal> {
        let (keys, bytes) =
            (reads.len() + writes.len(), reads.iter().chain(writes).map(|key| key.len()).sum());
        if keys == 0 {
            return Err(Refusal::Empty);
        }
        self.check("keys", keys, self.keys)?;
        self.check("bytes", bytes, self.bytes)?;
        each_once(reads.iter())?;
        each_once(writes.iter())
    }

    /// Whether it may write these.
    ///
    /// # Errors
    /// Too many bytes, a key twice, or one that is not among the writes declared.
    pub(crate) fn check_updates(self, updates: &[Update], writes: &BTreeSet<Blob>) -> Result<(), Refusal> {
        let size = |update: &Update| update.key.len() + update.value.as_ref().map_or(0, |value| value.len());
        self.check("bytes", updates.iter().map(size).sum(), self.bytes)?;
        if let Some(update) = updates.iter().find(|update| !writes.contains(&update.key)) {
            return Err(Refusal::Undeclared(update.key.clone()));
        }
        each_once(updates.iter().map(|update| &update.key))
    }

    fn check(self, what: &'static str, found: usize, most: usize) -> Result<(), Refusal> {
        if found > most { Err(Refusal::TooLarge { what, found, most }) } else { Ok(()) }
    }
}

fn each_once<'a>(keys: impl Iterator<Item = &'a Blob>) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if !seen.insert(key) {
            return Err(Refusal::Twice(key.clone()));
        }
    }
    Ok(())
}
