//! Moving keys between the partitions of a keyspace: the steps, which are commands of the state machines of both
//! partitions, and what they answer (`specs/curp.md` 3.15).
//!
//! Keys move by *stretches* of the ring of key hashes. What a stretch is answered for is part of the replicated
//! state of a partition, so that a move needs nothing of any protocol but that it executes commands. Each point of
//! the ring has a *version*, which rises with every move of it. A partition is the source of one move at a time; its
//! moves are numbered, and each step may be repeated by anybody.
//!
//! 1. [`Step::Release`] at the source takes the data of a small stretch out of what is served, and gives the first
//!    chunk of it. From there on the source refuses keys of the stretch ([`Told::Elsewhere`]).
//! 2. [`Step::Install`] at the target takes in a chunk; [`Step::Fetch`] at the source gives the next. With the last
//!    one the target serves the stretch.
//! 3. The next [`Step::Release`] at the source says that this is done: the data goes, and from there on the source
//!    sends those who ask to the target.
//!
//! A command says in which [`Versions`] its client knows the places that it touches. Who serves one of them in a later
//! version refuses it ([`Told::Served`]): the place has been elsewhere since, and what its client asked before may have
//! been refused meanwhile.

use crate::{Blob, KeyspaceId, PartitionId, key_hash, key_tag};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// Places on the ring, both ends included.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// The first place.
    pub first: u64,
    /// The last place, not before the first.
    pub last: u64,
}

impl Stretch {
    /// The whole ring.
    pub const ALL: Stretch = Stretch { first: 0, last: u64::MAX };

    /// Whether a place is in it.
    pub fn contains(&self, place: u64) -> bool {
        (self.first..=self.last).contains(&place)
    }

    /// Whether all of another stretch is in it.
    pub fn covers(&self, other: Stretch) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// What two have in common.
    pub fn common(&self, other: Stretch) -> Option<Stretch> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Stretch { first, last })
    }

    /// The same as a half-open range, which the whole ring has no end for in 64 bits.
    pub fn range(&self) -> std::ops::Range<u128> {
        u128::from(self.first)..u128::from(self.last) + 1
    }

    /// From a half-open range that is not empty and lies within the ring.
    pub fn of(range: &std::ops::Range<u128>) -> Stretch {
        Stretch { first: range.start as u64, last: (range.end - 1) as u64 }
    }
}

/// How a keyspace is divided as long as nothing was moved, and which of its partitions is spoken of: each owns an
/// equal stretch.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Ring {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// How many partitions it has; never 0.
    pub partitions: u16,
    /// The one that is spoken of.
    pub at: PartitionId,
}

impl Ring {
    /// Where a key lies. Keys with one tag lie at one place, which is never divided (D-28).
    pub fn place(&self, key: &[u8]) -> u64 {
        key_hash(self.keyspace, key_tag(key))
    }

    /// Who owns a place as long as nothing was moved.
    pub fn owner(&self, place: u64) -> PartitionId {
        // The product's upper half is below `partitions`.
        PartitionId(((u128::from(place) * u128::from(self.partitions)) >> 64) as u16)
    }

    /// What a partition owns as long as nothing was moved.
    pub fn stretch(&self, partition: PartitionId) -> Stretch {
        let begins = |number: u128| (number << 64).div_ceil(u128::from(self.partitions).max(1));
        Stretch::of(&(begins(u128::from(partition.0))..begins(u128::from(partition.0) + 1)))
    }
}

/// The sum of the versions of the places that a command touches, each as often as the command names a key there. Nobody
/// serves a place in an earlier version than one that anybody knows, so against what is known there, an equal sum says
/// that all of them are equal, and a higher one that some place has been elsewhere since.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Versions(NonZeroU32);

impl Versions {
    /// Of places that were never moved.
    pub const FIRST: Versions = Versions(NonZeroU32::MIN);

    /// With the version of one place more.
    #[must_use]
    pub fn and(self, version: u64) -> Versions {
        Versions(self.0.saturating_add(u32::try_from(version).unwrap_or(u32::MAX)))
    }

    /// As a number above 0.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// From such a number; nothing from 0, and from one that none gives.
    pub(crate) fn of_number(number: u64) -> Option<Versions> {
        u32::try_from(number).ok().and_then(NonZeroU32::new).map(Versions)
    }
}

/// How much of the data of a stretch lies before: entries, and elements of the value behind those.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Whole entries.
    pub entry: u64,
    /// Elements of the next one.
    pub element: u64,
}

/// A chunk of the data of a stretch.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Piece {
    /// Where it begins.
    pub from: Cursor,
    /// Where the next one does.
    pub next: Cursor,
    /// Whether there is no next one.
    pub last: bool,
    /// Its bytes, which only the state machine understands.
    pub chunk: Blob,
}

/// A move of a stretch.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Move {
    /// From which partition.
    pub from: PartitionId,
    /// To which.
    pub to: PartitionId,
    /// Its number among the moves from there, counted from 1.
    pub serial: u64,
    /// What.
    pub stretch: Stretch,
    /// The version of all places in it from here on.
    pub version: u64,
}

/// A step of a move.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Step {
    /// At the source. The move of number `done` is over: the target serves it. Then, where none is under way and one
    /// is wished for, begins the move of the first part of a stretch that is served here, as much as is soon copied.
    /// [`Told::Leaving`], or [`Told::Nothing`].
    Release {
        /// The partition that is asked.
        ring: Ring,
        /// What is to go where.
        wish: Option<(Stretch, PartitionId)>,
        /// The number of a move whose last chunk is installed; 0 for none.
        done: u64,
    },
    /// At the source: a chunk of what is leaving. [`Told::Piece`], or [`Told::Nothing`] where that move is over.
    Fetch {
        /// The number of the move.
        serial: u64,
        /// Where the chunk begins.
        from: Cursor,
    },
    /// At the target: takes in a chunk. [`Told::Installed`] with the last one, else [`Told::Expects`].
    Install {
        /// The partition that is asked.
        ring: Ring,
        /// The move.
        of: Move,
        /// The chunk.
        piece: Piece,
    },
    /// What is served here. [`Told::Served`].
    Survey {
        /// The partition that is asked.
        ring: Ring,
    },
}

/// What a step answers, or a command whose keys are not served.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Told {
    /// A command touches keys that are not served here, and was not executed.
    Elsewhere {
        /// Some of the places that are not.
        stretch: Stretch,
        /// Where they have gone.
        to: PartitionId,
        /// Their version.
        version: u64,
        /// Whether they are served there already.
        there: bool,
    },
    /// This is on its way from here.
    Leaving {
        /// The move.
        of: Move,
        /// Keys.
        keys: u64,
        /// About how many bytes.
        bytes: u64,
        /// Its first chunk.
        piece: Piece,
    },
    /// There is nothing of it here.
    Nothing,
    /// A chunk.
    Piece(Piece),
    /// The move is complete.
    Installed,
    /// The next chunk is to begin here.
    Expects(Cursor),
    /// Some of it is on its way from here, and that move is not over; it is to be ended first.
    Busy,
    /// No such partition, or bytes that no version has written.
    Wrong,
    /// What is served, ascending, with its versions. In answer to a command, which was not executed: the stretches that it
    /// touches and that were moved, of which some are served in a later version than it said.
    Served(Vec<(Stretch, u64)>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_equal_stretches_are_the_ring() {
        for partitions in [1, 2, 3, 7, 1_024] {
            let ring = Ring { keyspace: KeyspaceId(1), partitions, at: PartitionId(0) };
            let mut next = 0;
            for partition in (0..partitions).map(PartitionId) {
                let stretch = ring.stretch(partition);
                assert_eq!(u128::from(stretch.first), next);
                assert_eq!(ring.owner(stretch.first), partition);
                assert_eq!(ring.owner(stretch.last), partition);
                next = u128::from(stretch.last) + 1;
            }
            assert_eq!(next, 1 << 64, "{partitions}");
        }
    }

    #[test]
    fn ranges_and_stretches_are_the_same() {
        for stretch in [Stretch::ALL, Stretch { first: 7, last: 7 }, Stretch { first: 5, last: u64::MAX }] {
            assert_eq!(Stretch::of(&stretch.range()), stretch);
        }
        let [a, b] = [(3, 9), (7, 12)].map(|(first, last)| Stretch { first, last });
        assert_eq!(a.common(b), Some(Stretch { first: 7, last: 9 }));
        assert_eq!(a.common(Stretch { first: 10, last: 12 }), None);
        assert!(a.covers(Stretch { first: 3, last: 9 }) && !a.covers(b) && b.contains(12) && !b.contains(6));
    }
}
