//! What is asked of all keys, where several partitions have them.

use super::{Operation, Response};
use crate::migration::{Ring, Stretch, Told};
use serde::{Deserialize, Serialize};

/// What one partition is asked: about those of its keys that lie in some stretches of the ring, so that what all are
/// asked together does not depend on which of them serves a key when it is asked.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The partition that is asked.
    pub ring: Ring,
    /// Where the keys lie, ascending.
    pub stretches: Vec<Stretch>,
    /// What: `Scan`, `Keys`, `DbSize`, `RandomKey` or `Flush`. The cursor of a scan is of one part of the ring: as many of
    /// the first bits of a key's hash as [`Share::cursor_bits`] says.
    pub operation: Operation,
}

/// What it answers.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Shared {
    /// As to the operation, about what is served there of the stretches.
    pub response: Response,
    /// Which parts of the stretches are not served there, so that others have to be asked: each as
    /// [`Told::Elsewhere`].
    pub missing: Vec<Told>,
}

impl Share {
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
            assert_eq!(Share::cursor_bits(partitions), bits);
            assert!(((1 << bits) - 1) * u64::from(partitions) + u64::from(partitions) - 1 < 1 << 52);
        }
    }
}
