//! Keys and values as a directory stores them: keys that name their partition, values that know their version.

use crate::request::Read;
use isochrone_core::{Blob, PartitionId};
use isochrone_store::versions::Version;

/// The third byte of a key: an entry of the directory, or a key of a client, which follows.
const ENTRY: u8 = 0;
const KEY: u8 = 1;
const HEAD: usize = 3;
/// Bytes that a key and its value have more, at most.
pub(super) const OVERHEAD: usize = HEAD + VERSION;

/// The first byte of a value: it is of the version that the store says, or of one that follows in eight bytes.
const OWN: u8 = 0;
const OLDER: u8 = 1;
const VERSION: usize = 9;

fn with_head(partition: PartitionId, kind: u8, key: &[u8]) -> Blob {
    let [high, low] = partition.0.to_be_bytes();
    let mut bytes = Vec::with_capacity(HEAD + key.len());
    bytes.extend_from_slice(&[high, low, kind]);
    bytes.extend_from_slice(key);
    bytes.into()
}

/// The partition that a key names; the first, where it names none.
pub(crate) fn partition(key: &[u8]) -> PartitionId {
    match key {
        [high, low, ..] => PartitionId(u16::from_be_bytes([*high, *low])),
        _ => PartitionId(0),
    }
}

/// The key of a partition's entry.
pub(crate) fn entry(partition: PartitionId) -> Blob {
    with_head(partition, ENTRY, &[])
}

/// Whether this is the key of an entry.
pub(crate) fn is_entry(key: &[u8]) -> bool {
    matches!(key, [_, _, ENTRY])
}

/// The key under which a partition holds a client's.
pub(crate) fn key(partition: PartitionId, key: &[u8]) -> Blob {
    with_head(partition, KEY, key)
}

/// The client's key; nothing where it is none.
pub(crate) fn plain(key: &[u8]) -> Option<Blob> {
    match key {
        [_, _, KEY, plain @ ..] => Some(Blob::from(plain)),
        _ => None,
    }
}

/// A client's value, as it is stored.
pub(crate) fn value(value: &[u8]) -> Blob {
    let mut bytes = Vec::with_capacity(1 + value.len());
    bytes.push(OWN);
    bytes.extend_from_slice(value);
    bytes.into()
}

/// What is stored where a value has moved: it keeps its version.
pub(crate) fn moved(stored: &Blob, version: Version) -> Blob {
    match stored.split_first() {
        Some((&OWN, value)) => {
            let mut bytes = Vec::with_capacity(VERSION + value.len());
            bytes.push(OLDER);
            bytes.extend_from_slice(&version.0.to_le_bytes());
            bytes.extend_from_slice(value);
            bytes.into()
        }
        _ => stored.clone(),
    }
}

/// What a client is told of what is stored.
pub(super) fn told(key: Blob, stored: &Read) -> Read {
    let Some(bytes) = &stored.value else { return Read { key, value: None, version: stored.version } };
    let (version, value) = parted(bytes);
    Read { key, value: Some(Blob::from(value)), version: version.unwrap_or(stored.version) }
}

/// A client's value in what is stored.
pub(crate) fn bare(stored: &[u8]) -> &[u8] {
    parted(stored).1
}

/// The version that a stored value names, and the client's value.
fn parted(stored: &[u8]) -> (Option<Version>, &[u8]) {
    if let Some((&OLDER, rest)) = stored.split_first()
        && let Some((version, value)) = rest.split_first_chunk::<8>()
    {
        return (Some(Version(u64::from_le_bytes(*version))), value);
    }
    (None, stored.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_come_back_as_they_went() {
        let stored = key(PartitionId(258), b"a");
        assert_eq!((partition(&stored), plain(&stored)), (PartitionId(258), Some("a".into())));
        assert!(
            is_entry(&entry(PartitionId(7))) && !is_entry(&stored) && !is_entry(&key(PartitionId(0), b""))
        );
        assert_eq!((plain(&entry(PartitionId(7))), partition(b"x")), (None, PartitionId(0)));
        let read = |value: Blob, version| Read {
            key: stored.clone(),
            value: Some(value),
            version: Version(version),
        };
        let once = value(b"v");
        assert_eq!(told("a".into(), &read(once.clone(), 5)).version, Version(5));
        let twice = moved(&moved(&once, Version(5)), Version(9));
        let back = told("a".into(), &read(twice, 11));
        assert_eq!((back.value, back.version), (Some("v".into()), Version(5)), "of the first version");
    }
}
