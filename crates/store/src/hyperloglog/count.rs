//! Where an element goes, and how many there were: the hash and the estimator of Redis 7.

use super::REGISTERS;

/// How many bits of a hash choose a register.
const CHOOSING: u32 = REGISTERS.trailing_zeros();
/// How many bits are left, of which the zeros are counted.
const COUNTED: u32 = 64 - CHOOSING;

/// The register of an element, and its rank: how many zeros its hash has at the low end, and one. From 1 to 51.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element);
    let rank = (hash >> CHOOSING | 1 << COUNTED).trailing_zeros() + 1;
    (hash as usize % REGISTERS, rank as u8)
}

/// MurmurHash64A, with the seed of Redis.
fn murmur64a(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = 0xadc8_3b19 ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word = (word ^ word >> SHIFT).wrapping_mul(FACTOR);
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

/// About how many elements there were, from how many registers hold each value: the improved raw estimator (Ertl, "New
/// cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6). Registers that hold more than any
/// element gives them are left out; where that leaves nothing the number has no end, and is what Redis makes of that.
pub(super) fn estimate(histogram: &[u32; 64]) -> i64 {
    /// 1 / (2 ln 2).
    #[expect(clippy::excessive_precision, reason = "as it is written in the paper")]
    const ALPHA: f64 = 0.721_347_520_444_481_703_680;
    const ALL: f64 = REGISTERS as f64;
    let held = |value: usize| f64::from(histogram[value]);
    let most = COUNTED as usize + 1;
    let mut sum = ALL * tau((ALL - held(most)) / ALL);
    for value in (1..most).rev() {
        sum = 0.5 * (sum + held(value));
    }
    sum += ALL * sigma(held(0) / ALL);
    let estimate = (ALPHA * ALL * ALL / sum).round();
    if estimate < 9_223_372_036_854_775_808.0 { estimate as i64 } else { i64::MIN }
}

/// `x` and the sum of `x^(2^k) 2^(k-1)` over all `k` from 1 on.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// A third of what is left of `1 - x` without the sum of `(1 - x^(2^-k))^2 2^-k` over all `k` from 1 on.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}
