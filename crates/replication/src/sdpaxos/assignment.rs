//! The assignment log: whose turn each slot is.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A member by its position among the members, from 0.
pub type Rank = u8;

/// A slot whose owner is not known here.
pub(crate) const UNKNOWN: Rank = 255;
/// A slot in which nothing is executed ("no command leader").
pub const NOBODY: Rank = 254;

/// Consecutive slots of one owner, and how many.
pub type Run = (Rank, u32);

/// The owners of the slots from `low + 1` on, and how many slots each member has up to `low`. Slots count from 1.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Image {
    /// The slot before the first one told.
    pub low: u64,
    /// For each member, how many of the slots up to `low` are its.
    pub counts: Vec<u64>,
    /// The owners of the slots behind it.
    pub runs: Vec<Run>,
}

impl Image {
    /// The owners, slot by slot.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Rank> + '_ {
        self.runs.iter().flat_map(|(owner, count)| std::iter::repeat_n(*owner, *count as usize))
    }

    /// The last slot told.
    pub(crate) fn end(&self) -> u64 {
        self.low + self.runs.iter().map(|(_, count)| u64::from(*count)).sum::<u64>()
    }
}

/// Puts equal neighbours together.
pub(crate) fn runs(owners: impl IntoIterator<Item = Rank>) -> Vec<Run> {
    let mut runs = Vec::<Run>::new();
    for owner in owners {
        match runs.last_mut() {
            Some((known, count)) if *known == owner => *count += 1,
            _ => runs.push((owner, 1)),
        }
    }
    runs
}

/// The log as one replica knows it. Every accepted slot was accepted in the ballot of the installed view,
/// so no ballots are kept.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Assignment {
    low: u64,
    counts: Vec<u64>,
    owners: VecDeque<Rank>,
    /// Every slot up to here is known.
    contiguous: u64,
    /// For each member, how many of the slots up to `contiguous` are its.
    tally: Vec<u64>,
}

impl Assignment {
    pub(crate) fn new(members: usize) -> Assignment {
        let counts = vec![0; members];
        Assignment { low: 0, counts: counts.clone(), owners: VecDeque::new(), contiguous: 0, tally: counts }
    }

    pub(crate) fn from_image(image: &Image) -> Assignment {
        let mut log = Assignment {
            low: image.low,
            counts: image.counts.clone(),
            owners: image.owners().collect(),
            contiguous: image.low,
            tally: image.counts.clone(),
        };
        while log.advance().is_some() {}
        log
    }

    /// The log from its beginning up to `upto`.
    pub(crate) fn image(&self, upto: u64) -> Image {
        let count = upto.saturating_sub(self.low) as usize;
        let owners = self.owners.iter().copied().take(count);
        Image { low: self.low, counts: self.counts.clone(), runs: runs(owners) }
    }

    /// The slot before the first one that is kept.
    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    /// The last slot of which anything is known.
    pub(crate) fn end(&self) -> u64 {
        self.low + self.owners.len() as u64
    }

    /// Every slot up to here is known.
    pub(crate) fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// How many of the slots up to [`Assignment::contiguous`] are this member's.
    pub(crate) fn count(&self, member: Rank) -> u64 {
        self.tally.get(usize::from(member)).copied().unwrap_or(0)
    }

    /// How many slots up to [`Assignment::low`] are this member's.
    pub(crate) fn count_low(&self, member: Rank) -> u64 {
        self.counts.get(usize::from(member)).copied().unwrap_or(0)
    }

    /// Whose slot this is, if that is known and still kept.
    pub(crate) fn get(&self, slot: u64) -> Option<Rank> {
        let offset = slot.checked_sub(self.low + 1)?;
        self.owners.get(offset as usize).copied().filter(|owner| *owner != UNKNOWN)
    }

    /// Learns whose slot this is; true where that was not known. Follow with [`Assignment::advance`].
    pub(crate) fn set(&mut self, slot: u64, owner: Rank) -> bool {
        let Some(offset) = slot.checked_sub(self.low + 1).map(|offset| offset as usize) else { return false };
        if offset >= self.owners.len() {
            self.owners.resize(offset + 1, UNKNOWN);
        }
        if self.owners[offset] != UNKNOWN {
            return false;
        }
        self.owners[offset] = owner;
        true
    }

    /// The next slot behind those that are known without a gap, if it is known by now: the slot, its owner,
    /// and how many slots the owner then has.
    pub(crate) fn advance(&mut self) -> Option<(u64, Rank, u64)> {
        let slot = self.contiguous + 1;
        let owner = self.get(slot)?;
        self.contiguous = slot;
        let index = match self.tally.get_mut(usize::from(owner)) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => 0,
        };
        Some((slot, owner, index))
    }

    /// The owners from `first` on, at most `most`, up to the first that is not known.
    pub(crate) fn runs(&self, first: u64, most: usize) -> Vec<Run> {
        let skip = first.saturating_sub(self.low + 1) as usize;
        runs(self.owners.iter().copied().skip(skip).take(most).take_while(|owner| *owner != UNKNOWN))
    }

    /// Forgets the owners of the slots up to `upto`, but not how many each has.
    pub(crate) fn trim(&mut self, upto: u64) {
        let upto = upto.min(self.contiguous);
        while self.low < upto {
            // Known without a gap up to `contiguous`, so there is one.
            let Some(owner) = self.owners.pop_front() else { break };
            if let Some(count) = self.counts.get_mut(usize::from(owner)) {
                *count += 1;
            }
            self.low += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_counted_without_gaps_and_survive_trimming() {
        let mut log = Assignment::new(3);
        for (slot, owner) in [(1, 0), (2, 1), (4, 1), (3, NOBODY)] {
            assert!(log.set(slot, owner));
            assert!(!log.set(slot, 2), "the first one told stands");
        }
        let mut seen = Vec::new();
        while let Some(next) = log.advance() {
            seen.push(next);
        }
        assert_eq!(seen, [(1, 0, 1), (2, 1, 1), (3, NOBODY, 0), (4, 1, 2)]);
        log.set(6, 2);
        assert_eq!((log.advance(), log.contiguous(), log.end()), (None, 4, 6));
        log.trim(3);
        assert_eq!((log.low(), log.count_low(1), log.count(1), log.get(3)), (3, 1, 2, None));
        let image = log.image(6);
        assert_eq!(image.runs, [(1, 1), (UNKNOWN, 1), (2, 1)]);
        assert_eq!((Assignment::from_image(&image), image.end()), (log.clone(), 6));
        assert_eq!(log.runs(4, 10), [(1, 1)]);
        log.trim(9);
        assert_eq!(log.low(), 4, "nothing is forgotten behind a gap");
    }
}
