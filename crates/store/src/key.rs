//! Names as tries hold them: of keys, of fields and of members.

use isochrone_core::Blob;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Immutable bytes in 24 bytes: as they are where they fit, which most names do, so that looking one up reads nothing
/// but the leaf, and nothing is allocated for it; otherwise shared.
#[derive(Clone)]
pub(crate) struct Key(Held);

#[derive(Clone)]
enum Held {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Blob),
}

/// The most bytes that stand in the key itself.
pub(crate) const SHORT: usize = 22;

impl Key {
    fn short(bytes: &[u8]) -> Option<Key> {
        let mut held = [0; SHORT];
        held.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Key(Held::Short { len: bytes.len() as u8, bytes: held }))
    }

    /// The same bytes, to be handed out.
    pub fn blob(&self) -> Blob {
        match &self.0 {
            Held::Short { .. } => Blob::new(self),
            Held::Long(blob) => blob.clone(),
        }
    }
}

/// What a key can be made of, once it is to be kept.
pub(crate) trait Name: Deref<Target = [u8]> {
    fn to_key(&self) -> Key;
}

impl Name for Blob {
    fn to_key(&self) -> Key {
        Key::short(self).unwrap_or_else(|| Key(Held::Long(self.clone())))
    }
}

impl Name for Key {
    fn to_key(&self) -> Key {
        self.clone()
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Short { len, bytes } => &bytes[..usize::from(*len)],
            Held::Long(blob) => blob,
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Key {
    /// As the bytes' own.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.blob().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_names_are_their_bytes() {
        assert_eq!(size_of::<Key>(), 24);
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 300] {
            let blob = Blob::from((0..length).map(|at| at as u8).collect::<Vec<_>>());
            let key = blob.to_key();
            assert_eq!((&key[..], key.blob()), (&blob[..], blob.clone()));
            assert_eq!(matches!(key.0, Held::Short { .. }), length <= SHORT, "{length} bytes");
            assert_eq!(key, key.to_key());
        }
        let key = |text: &str| Blob::from(text).to_key();
        assert!(key("b") > key("a long name that does not fit into it"), "in the order of their bytes");
    }
}
