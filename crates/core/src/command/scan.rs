//! A page of all keys, where several partitions have them.

use super::Kind;
use crate::Blob;
use crate::migration::{Ring, Stretch, Told};
use serde::{Deserialize, Serialize};

/// What one partition is asked of a page: those of its keys that lie in some stretches of the ring, so that what all
/// are asked together does not depend on which of them serves a key when it is asked.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct ScanShare {
    /// The partition that is asked.
    pub ring: Ring,
    /// Where the keys lie, ascending.
    pub stretches: Vec<Stretch>,
    /// Where the page begins in the order in which stores list their keys: as many of the first bits of a key's hash as
    /// [`ScanShare::cursor_bits`] says.
    pub cursor: u64,
    /// About how many keys.
    pub count: u64,
    /// Which of them.
    pub pattern: Option<Blob>,
    /// Of which type.
    pub kind: Option<Kind>,
}

/// What it answers.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct ScanShared {
    /// Where the next page begins; 0 when this was the last one.
    pub cursor: u64,
    /// The keys.
    pub items: Vec<Blob>,
    /// Which parts of the stretches are not served there, so that others have to be asked: each as
    /// [`Told::Elsewhere`]. The page is about the rest.
    pub missing: Vec<Told>,
}

impl ScanShare {
    /// How many bits a cursor within one of so many parts of the ring has: what a client keeps says which part as well, and
    /// has 52 at most, so that it fits a double.
    pub fn cursor_bits(partitions: u16) -> u32 {
        52 - u32::from(partitions.max(1)).next_power_of_two().ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_keeps_fits_a_double() {
        for (partitions, bits) in [(1, 52), (2, 51), (3, 50), (4, 50), (1_000, 42), (1_024, 42)] {
            assert_eq!(ScanShare::cursor_bits(partitions), bits);
            assert!(((1 << bits) - 1) * u64::from(partitions) + u64::from(partitions) - 1 < 1 << 52);
        }
    }
}
