//! Immutable shared bytes: keys, values, chunks.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use triomphe::Arc;

/// Immutable bytes behind a reference count: 16 bytes, and 8 beside the bytes; a clone copies a pointer. Smaller than
/// `Vec` and `Bytes`, and it never allocates again once made.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Blob(Arc<[u8]>);

impl Blob {
    /// These bytes, copied once.
    pub fn new(bytes: &[u8]) -> Blob {
        Blob(Arc::from(bytes))
    }

    /// Whether a clone of it is held somewhere else at this moment: if not, these bytes go with this one.
    pub fn is_shared(&self) -> bool {
        !self.0.is_unique()
    }
}

impl Default for Blob {
    fn default() -> Blob {
        Blob::new(&[])
    }
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

// Sound for map look-ups: equality, order and hash of a blob are those of its bytes.
impl Borrow<[u8]> for Blob {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Blob {
        Blob::new(bytes)
    }
}

impl From<&str> for Blob {
    fn from(text: &str) -> Blob {
        Blob::new(text.as_bytes())
    }
}

impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Blob {
        Blob(Arc::from(bytes))
    }
}

impl From<String> for Blob {
    fn from(text: String) -> Blob {
        Blob(Arc::from(text.into_bytes()))
    }
}

impl fmt::Debug for Blob {
    /// Readable in traces: text as text, long values cut with their length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        write!(f, "\"{}\"", self.0[..self.0.len().min(SHOWN)].escape_ascii())?;
        if self.0.len() > SHOWN {
            write!(f, "..{}B", self.0.len())?;
        }
        Ok(())
    }
}

// By hand: the derived form would go byte by byte through a `Vec`.
impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Blob, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Blob;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob::new(bytes))
            }
            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Blob, E> {
                Ok(Blob::from(bytes))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}
