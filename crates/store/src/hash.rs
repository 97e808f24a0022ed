//! The two hashes of the store. Both are the same on every machine and in every version, because one
//! orders what scans list and the other is part of what replicas agree on.

use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};

/// The place of a key among all keys, or of a member in its collection. SipHash with a fixed key: with it
/// public anybody may aim keys at one region of the order, which costs a deeper [`crate::trie`], but
/// nobody can make many keys agree in all 64 bits.
pub(crate) fn place(key: &[u8]) -> u64 {
    SipHasher13::new_with_keys(0x6973_6f63_6872_6f6e, 0x652d_6b65_7973_2d31).hash(key)
}

/// Two numbers joined into one that depends on every bit of both.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    // Both halves and both factors: a factor of zero must not swallow the other.
    (product as u64) ^ ((product >> 64) as u64) ^ a.rotate_left(23) ^ b.rotate_left(47)
}

/// A fast hash of a whole value, for versions and digests. It withstands accidents, not attacks: nothing
/// is looked up by it.
pub(crate) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = Fold(0x243f_6a88_85a3_08d3);
    value.hash(&mut hasher);
    hasher.finish()
}

struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        mix(self.0, 0x1319_8a2e_0370_7344)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (pairs, tail) = bytes.as_chunks::<16>();
        for pair in pairs {
            let both = u128::from_le_bytes(*pair);
            self.0 = mix(self.0 ^ both as u64, (both >> 64) as u64);
        }
        if !tail.is_empty() {
            let mut pair = [0; 16];
            pair[..tail.len()].copy_from_slice(tail);
            let both = u128::from_le_bytes(pair);
            self.0 = mix(self.0 ^ both as u64, (both >> 64) as u64 ^ (tail.len() as u64) << 56);
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }
    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0, number);
    }
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas of different versions compare these: they may never change.
    #[test]
    fn hashes_are_fixed_for_ever() {
        assert_eq!(
            [place(b""), place(b"a"), place(b"key:000042")],
            [4906152228185206416, 7552290865129730184, 16364992071061312408],
        );
        assert_eq!(digest(&(7u64, "text", [1u8, 2, 3], true)), 1181217301243753464);
    }

    #[test]
    fn a_zero_factor_swallows_nothing() {
        assert_ne!(mix(0x9e37_79b9_7f4a_7c15, 1), mix(0x9e37_79b9_7f4a_7c15, 2));
        assert_ne!(mix(1, 0xd1b5_4a32_d192_ed03), mix(2, 0xd1b5_4a32_d192_ed03));
    }
}
