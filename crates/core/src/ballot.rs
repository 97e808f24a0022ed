//! Ballots: who may propose, in which round (views, terms and rounds of the sources are all ballots).

use crate::ReplicaId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A round and the replica that owns it: totally ordered, and never shared by two replicas.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
pub struct Ballot {
    /// Compared first. 0 is before every proposal.
    pub round: u32,
    /// The one replica that may propose in this ballot.
    pub owner: ReplicaId,
}

impl Ballot {
    /// Below every ballot that anyone proposes in.
    pub const ZERO: Ballot = Ballot { round: 0, owner: ReplicaId(0) };

    /// The smallest ballot of `me` above this one.
    pub fn next(self, me: ReplicaId) -> Ballot {
        if me > self.owner && self.round > 0 {
            Ballot { round: self.round, owner: me }
        } else {
            Ballot { round: self.round + 1, owner: me }
        }
    }

    /// This ballot as one number that orders alike, for marks and metrics.
    pub fn reign(self) -> u64 {
        u64::from(self.round) << 8 | u64::from(self.owner.0)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}.{}", self.round, self.owner.0)
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a ballot stands to a promise.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Admit {
    /// Above all before it: the promise has risen and must be recorded before anyone relies on it.
    Fresh,
    /// The promised ballot itself.
    Same,
    /// Below the promise: to be refused.
    Stale,
}

/// The highest ballot an acceptor has heard of; it takes part in none below it.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Promise(Ballot);

impl Promise {
    /// The ballot promised.
    pub fn ballot(self) -> Ballot {
        self.0
    }

    /// Raises the promise where `ballot` is above it, and says how the two stood.
    pub fn admit(&mut self, ballot: Ballot) -> Admit {
        match ballot.cmp(&self.0) {
            std::cmp::Ordering::Greater => {
                self.0 = ballot;
                Admit::Fresh
            }
            std::cmp::Ordering::Equal => Admit::Same,
            std::cmp::Ordering::Less => Admit::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_ballot_is_above_and_ones_own() {
        for round in 0..3 {
            for owner in 0..4 {
                for me in 0..4 {
                    let before = Ballot { round, owner: ReplicaId(owner) };
                    let next = before.next(ReplicaId(me));
                    assert!(next > before, "{next} is not above {before}");
                    assert_eq!(next.owner, ReplicaId(me));
                    assert!(next.reign() > before.reign());
                    assert!(next.round > 0);
                }
            }
        }
    }

    #[test]
    fn a_promise_only_rises() {
        let mut promise = Promise::default();
        let low = Ballot { round: 1, owner: ReplicaId(1) };
        let high = Ballot { round: 2, owner: ReplicaId(0) };
        assert_eq!(promise.admit(high), Admit::Fresh);
        assert_eq!(promise.admit(high), Admit::Same);
        assert_eq!(promise.admit(low), Admit::Stale);
        assert_eq!(promise.ballot(), high);
    }
}
