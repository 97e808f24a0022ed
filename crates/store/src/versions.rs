//! Keys with several versions each: what transactions read and write.

use isochrone_core::{Blob, Export, Malformed};
use serde::{Deserialize, Serialize};
use std::fmt;

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
#[derive(Clone, Debug, Default, Hash)]
pub struct Versions {
    keys: std::collections::BTreeMap<Blob, Vec<(Version, Option<Blob>)>>,
}

/// The state at one moment, in chunks.
#[derive(Clone)]
pub struct View(Versions);

impl Versions {
    /// The latest version of a key: [`Version::NONE`] and nothing where it was never written.
    pub fn latest(&self, key: &[u8]) -> (Version, Option<&Blob>) {
        match self.keys.get(key).and_then(|versions| versions.last()) {
            Some((version, value)) => (*version, value.as_ref()),
            None => (Version::NONE, None),
        }
    }

    /// The version of a key with the largest number below `bound`. `None` where it may have been trimmed.
    pub fn below(&self, key: &[u8], bound: Version) -> Option<(Version, Option<&Blob>)> {
        let Some(versions) = self.keys.get(key) else { return Some((Version::NONE, None)) };
        let at = versions.partition_point(|(version, _)| *version < bound);
        match at {
            0 => Some((Version::NONE, None)),
            _ => versions.get(at - 1).map(|(version, value)| (*version, value.as_ref())),
        }
    }

    /// Writes a version of a key, above all it has; nothing deletes the key as of there.
    pub fn put(&mut self, key: &Blob, version: Version, value: Option<Blob>) {
        let versions = self.keys.entry(key.clone()).or_default();
        debug_assert!(versions.last().is_none_or(|(last, _)| *last < version), "versions rise");
        versions.push((version, value));
    }

    /// From now on nobody asks for what lies below `bound` and is not the latest: it may go.
    pub fn trim(&mut self, _bound: Version) {}

    /// The state as it stands now, for a snapshot or a peer.
    pub fn export(&self) -> View {
        View(self.clone())
    }

    /// Takes in one chunk of a view, in order, starting from nothing.
    ///
    /// # Errors
    /// Refuses a chunk that no version of this type has exported.
    pub fn absorb(&mut self, _chunk: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

impl Export for View {
    fn chunk(&self, _index: u64) -> Option<Blob> {
        None
    }
}
