//! The one hash of keys: fixed for ever, the same on every machine and in every version.

use crate::KeyspaceId;

/// Where a key of a keyspace lies on the ring of 2^64 places; partitions own arcs of it. FNV-1a over
/// keyspace and key, its bits then mixed (MurmurHash3's finalizer), since FNV alone leaves the upper bits of
/// short keys alike. It is no defence against chosen collisions.
pub fn key_hash(keyspace: KeyspaceId, key: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let seeded = keyspace.0.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold);
    let mut hash = key.iter().fold(seeded, fold);
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// The part of a key that decides where it lies: what stands between its first `{` and the next `}`, if
/// anything does, as Redis Cluster has it; else all of it. Keys with one tag lie together.
pub fn key_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let from = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[from..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[from..from + length])
    };
    tag().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_changes() {
        // Data is placed by these: another value is another format.
        let hash = |keyspace, key: &str| key_hash(KeyspaceId(keyspace), key.as_bytes());
        assert_eq!([hash(1, ""), hash(1, "a"), hash(2, "a")], EXPECTED);
    }

    const EXPECTED: [u64; 3] = [0x15bf9278ef24affe, 0x16787974593a8c20, 0x3e0c6f130dd786e9];

    #[test]
    fn a_tag_is_the_first_that_is_not_empty_between_braces() {
        let pairs = [
            ("a", "a"),
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("}{", "}{"),
        ];
        for (key, tag) in pairs {
            assert_eq!(key_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
    }

    #[test]
    fn short_keys_spread_evenly() {
        let mut arcs = [0u32; 16];
        for number in 0..16_000u32 {
            let key = format!("k{number}");
            arcs[(key_hash(KeyspaceId(1), key.as_bytes()) >> 60) as usize] += 1;
        }
        assert!(arcs.iter().all(|count| (850..1_150).contains(count)), "{arcs:?}");
    }
}
