//! How many are enough: every quorum size of every protocol, and the counting of votes.
//!
//! | replicas n | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | source |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | faults survived f | 0 | 0 | 1 | 1 | 2 | 2 | 3 | 3 | 4 | |
//! | majority | 1 | 2 | 2 | 3 | 3 | 4 | 4 | 5 | 5 | Paxos |
//! | supermajority | 1 | 2 | 3 | 3 | 4 | 5 | 6 | 6 | 7 | `ceil(3f/2) + 1` at n = 2f + 1; Fast Paxos |
//! | EPaxos fast | 1 | 2 | 2 | 3 | 3 | 4 | 5 | 5 | 6 | `f + floor((f + 1) / 2)` at n = 2f + 1; n - e |

use crate::ReplicaId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Quorum sizes; each is the smallest that keeps the intersections named with it.
#[derive(Copy, Clone, Debug)]
pub struct Quorums;

impl Quorums {
    /// How many of `n` may fail while a majority lives.
    pub const fn faults(n: usize) -> usize {
        n.saturating_sub(1) / 2
    }

    /// Any two intersect.
    pub const fn majority(n: usize) -> usize {
        n / 2 + 1
    }

    /// The fast quorum of Fast Paxos, Domino, Carousel's fast path and CURP's superquorum: any two
    /// and any majority have a replica in common, so a majority tells what may have been chosen fast.
    pub const fn supermajority(n: usize) -> usize {
        FastQuorums::of(n).fast()
    }

    /// The fast quorum of EPaxos with the command leader among it, in its optimised form, whose recovery must
    /// be that of EPaxos*: n - e for the largest e <= f with n >= 2e + f - 1.
    pub const fn epaxos_fast(n: usize) -> usize {
        let f = Quorums::faults(n);
        let e = (n + 1).saturating_sub(f) / 2;
        n - if e < f { e } else { f }
    }

    /// How many equal votes among `collected` of `n` a value has at least that was chosen by a
    /// supermajority: what a recovery must find to be obliged to it (`ceil(f/2) + 1` when a bare majority
    /// was collected at n = 2f + 1).
    pub const fn recovery(n: usize, collected: usize) -> usize {
        FastQuorums::of(n).recovery(collected)
    }
}

/// The quorums of ballots that are fast, where clients propose, and of the classic ballots that recover them. Any two
/// fast quorums and any classic one have a replica in common, and so have any two classic ones: a classic quorum tells
/// which one value may have been chosen fast.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct FastQuorums {
    replicas: u8,
    fast: u8,
    classic: u8,
}

/// Why a group cannot have quorums of these sizes.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("{key} {wrong}; {right}")]
pub struct SizeError {
    /// The parameter.
    pub key: &'static str,
    /// What is wrong with it.
    pub wrong: String,
    /// What would be right.
    pub right: String,
}

impl FastQuorums {
    /// The parameter of the fast quorum's size.
    pub const FAST: &'static str = "fast_quorum";
    /// The parameter of the classic quorum's size.
    pub const CLASSIC: &'static str = "classic_quorum";

    /// Those with which most replicas may fail: classic ones are majorities, fast ones supermajorities.
    pub const fn of(n: usize) -> FastQuorums {
        let classic = n / 2 + 1;
        FastQuorums { replicas: n as u8, fast: least_fast(n, classic) as u8, classic: classic as u8 }
    }

    /// Those of these sizes in a group of `n`; a size that is not given is the smallest that the other one allows. A
    /// fast quorum that is smaller than a supermajority is nearer, and wants a larger classic one: with fewer replicas
    /// alive than that nothing is recovered, so fewer may fail (`n = 3f + 1` and `2f + 1` for both is the sizes of
    /// Byzantine protocols).
    ///
    /// # Errors
    /// If they would not intersect, or are larger than the group.
    pub fn sized(n: usize, fast: Option<usize>, classic: Option<usize>) -> Result<FastQuorums, SizeError> {
        let majority = n / 2 + 1;
        let fits = |size: usize| (majority..=n).contains(&size);
        for (key, size) in [(FastQuorums::FAST, fast), (FastQuorums::CLASSIC, classic)] {
            if size.is_some_and(|size| !fits(size)) {
                let wrong = format!("is not between a majority and all of {n} replicas");
                return Err(SizeError { key, wrong, right: format!("use {majority} to {n}") });
            }
        }
        let classic_of = |fast: usize| majority.max((2 * n + 1).saturating_sub(2 * fast));
        let (fast, classic) = match (fast, classic) {
            (None, None) => return Ok(FastQuorums::of(n)),
            (Some(fast), None) => (fast, classic_of(fast)),
            (None, Some(classic)) => (least_fast(n, classic), classic),
            (Some(fast), Some(classic)) => (fast, classic),
        };
        if 2 * fast + classic <= 2 * n {
            let wrong = format!(
                "is too small: two fast quorums of {fast} and a classic one of {classic} need not have any of {n} replicas \
                 in common"
            );
            let (larger, other) = (least_fast(n, classic), classic_of(fast));
            let right = format!("use {larger} or more, or classic_quorum = {other} or more");
            return Err(SizeError { key: FastQuorums::FAST, wrong, right });
        }
        // A group has at most 128 seats.
        Ok(FastQuorums { replicas: n as u8, fast: fast as u8, classic: classic as u8 })
    }

    /// Of how many replicas.
    pub const fn replicas(self) -> usize {
        self.replicas as usize
    }

    /// Equal votes that decide in a fast ballot.
    pub const fn fast(self) -> usize {
        self.fast as usize
    }

    /// Votes that decide in a classic ballot, and answers that begin one.
    pub const fn classic(self) -> usize {
        self.classic as usize
    }

    /// How many equal votes among `collected` a value has at least that was chosen by a fast quorum: what a recovery
    /// must find to be obliged to it. No two values of a classic quorum's votes have as many.
    pub const fn recovery(self, collected: usize) -> usize {
        (collected + self.fast()).saturating_sub(self.replicas())
    }
}

/// The smallest size of which any two have a replica in common in any `classic` of `n`: 2 q + classic > 2 n.
const fn least_fast(n: usize, classic: usize) -> usize {
    (2 * n - classic) / 2 + 1
}

/// A set of replicas, up to [`ReplicaSet::SEATS`] seats, in one number.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
pub struct ReplicaSet(u128);

impl ReplicaSet {
    /// Seats are numbered below this, over the whole life of a group (a replacement gets a new one).
    pub const SEATS: u8 = 128;
    /// Nobody.
    pub const EMPTY: ReplicaSet = ReplicaSet(0);

    /// Adds a replica; false where it was in already.
    pub fn insert(&mut self, replica: ReplicaId) -> bool {
        let before = self.0;
        self.0 |= bit(replica);
        self.0 != before
    }

    /// Takes a replica out; false where it was not in.
    pub fn remove(&mut self, replica: ReplicaId) -> bool {
        let before = self.0;
        self.0 &= !bit(replica);
        self.0 != before
    }

    /// Whether it is in.
    pub fn contains(self, replica: ReplicaId) -> bool {
        self.0 & bit(replica) != 0
    }

    /// How many are in.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether nobody is in.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in both.
    pub fn and(self, other: ReplicaSet) -> ReplicaSet {
        ReplicaSet(self.0 & other.0)
    }

    /// Those in this one only.
    pub fn without(self, other: ReplicaSet) -> ReplicaSet {
        ReplicaSet(self.0 & !other.0)
    }

    /// All of them, lowest seat first.
    pub fn iter(self) -> impl Iterator<Item = ReplicaId> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let lowest = rest.trailing_zeros() as u8;
                rest &= rest - 1;
                ReplicaId(lowest)
            })
        })
    }
}

fn bit(replica: ReplicaId) -> u128 {
    debug_assert!(replica.0 < ReplicaSet::SEATS, "{replica} is beyond the last seat");
    1 << (replica.0 & (ReplicaSet::SEATS - 1))
}

impl FromIterator<ReplicaId> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaId>>(replicas: I) -> ReplicaSet {
        let mut set = ReplicaSet::EMPTY;
        replicas.into_iter().for_each(|replica| {
            set.insert(replica);
        });
        set
    }
}

impl fmt::Debug for ReplicaSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What one more vote has done.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Count {
    /// Not enough yet, or a vote seen before while there were not enough.
    Below,
    /// This vote completed the quorum: said exactly once.
    Reached,
    /// There were enough already.
    After,
}

/// Votes for one thing, each replica counted once.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Tally {
    need: u8,
    voters: ReplicaSet,
}

impl Tally {
    /// A count that needs `need` voters.
    pub fn new(need: usize) -> Tally {
        // A quorum is at most the number of seats, which fits.
        Tally { need: need as u8, voters: ReplicaSet::EMPTY }
    }

    /// Counts a vote; the same voter again changes nothing.
    pub fn add(&mut self, replica: ReplicaId) -> Count {
        if self.reached() {
            self.voters.insert(replica);
            return Count::After;
        }
        self.voters.insert(replica);
        if self.reached() { Count::Reached } else { Count::Below }
    }

    /// Whether there are enough.
    pub fn reached(&self) -> bool {
        self.voters.len() >= usize::from(self.need)
    }

    /// Who has voted.
    pub fn voters(&self) -> ReplicaSet {
        self.voters
    }
}

/// Votes for differing values: a quorum of equal ones decides. A replica's first vote stands.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Votes<V> {
    need: usize,
    cast: Vec<(V, ReplicaSet)>,
    voters: ReplicaSet,
}

impl<V: PartialEq> Votes<V> {
    /// A count that needs `need` equal votes.
    pub fn new(need: usize) -> Votes<V> {
        Votes { need, cast: Vec::new(), voters: ReplicaSet::EMPTY }
    }

    /// Counts a replica's vote for `value`.
    pub fn add(&mut self, replica: ReplicaId, value: V) -> Count {
        let before = self.chosen().is_some();
        if self.voters.insert(replica) {
            match self.cast.iter_mut().find(|(known, _)| *known == value) {
                Some((_, voters)) => {
                    voters.insert(replica);
                }
                None => self.cast.push((value, ReplicaSet::from_iter([replica]))),
            }
        }
        match (before, self.chosen().is_some()) {
            (true, _) => Count::After,
            (false, true) => Count::Reached,
            (false, false) => Count::Below,
        }
    }

    /// The value that has a quorum.
    pub fn chosen(&self) -> Option<&V> {
        self.cast.iter().find(|(_, voters)| voters.len() >= self.need).map(|(value, _)| value)
    }

    /// Who has voted for anything.
    pub fn voters(&self) -> ReplicaSet {
        self.voters
    }

    /// Each value with its voters, in the order of their first votes.
    pub fn cast(&self) -> impl Iterator<Item = (&V, ReplicaSet)> {
        self.cast.iter().map(|(value, voters)| (value, *voters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_published_ones() {
        let table = |size: fn(usize) -> usize| (1..=9).map(size).collect::<Vec<_>>();
        assert_eq!(table(Quorums::faults), [0, 0, 1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(table(Quorums::majority), [1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert_eq!(table(Quorums::supermajority), [1, 2, 3, 3, 4, 5, 6, 6, 7]);
        assert_eq!(table(Quorums::epaxos_fast), [1, 2, 2, 3, 3, 4, 5, 5, 6]);
        for n in 1..=9 {
            let (f, fast) = (Quorums::faults(n), Quorums::epaxos_fast(n));
            assert!(n + 1 >= 2 * (n - fast) + f && fast >= Quorums::majority(n), "EPaxos at {n}");
            assert!(
                n.is_multiple_of(2) || fast == usize::max(1, f + f.div_ceil(2)),
                "the published size at {n}"
            );
        }
        for f in 0..=7usize {
            let n = 2 * f + 1;
            assert_eq!(Quorums::supermajority(n), (3 * f).div_ceil(2) + 1);
            assert_eq!(Quorums::supermajority(n), f + f.div_ceil(2) + 1, "as CURP writes it");
            assert_eq!(Quorums::recovery(n, f + 1), f.div_ceil(2) + 1);
            for collected in f + 1..=n {
                assert_eq!(Quorums::recovery(n, collected), collected - f / 2);
            }
        }
    }

    /// Every subset of `n` with `size` members.
    fn subsets(n: usize, size: usize) -> Vec<u32> {
        (0u32..1 << n).filter(|set| set.count_ones() as usize == size).collect()
    }

    #[test]
    fn quorums_intersect_and_no_smaller_ones_would() {
        for n in 1..=7 {
            let majorities = subsets(n, Quorums::majority(n));
            let fast = subsets(n, Quorums::supermajority(n));
            assert!(majorities.iter().all(|a| majorities.iter().all(|b| a & b != 0)));
            assert!(fast.iter().all(|a| fast.iter().all(|b| majorities.iter().all(|m| a & b & m != 0))));
            let smaller = subsets(n, Quorums::supermajority(n) - 1);
            assert!(
                smaller.iter().any(|a| smaller.iter().any(|b| majorities.iter().any(|m| a & b & m == 0))),
                "a fast quorum of {n} could be smaller"
            );
            for collected in Quorums::majority(n)..=n {
                let least = subsets(n, collected)
                    .iter()
                    .flat_map(|seen| fast.iter().map(move |chosen| (seen & chosen).count_ones()))
                    .min();
                assert_eq!(least, Some(Quorums::recovery(n, collected) as u32), "{collected} of {n}");
            }
        }
    }

    /// Every size of both quorums: what is allowed is what intersects, and what is left open is the smallest.
    #[test]
    fn sizes_are_allowed_that_intersect_and_no_others() {
        for n in 1..=7 {
            for (fast, classic) in
                (0..=n + 1).flat_map(|fast| (0..=n + 1).map(move |classic| (fast, classic)))
            {
                let sized = FastQuorums::sized(n, Some(fast), Some(classic));
                let (fasts, classics) = (subsets(n, fast), subsets(n, classic));
                let meet = |a: &u32, b: &u32| classics.iter().all(|c| a & b & c != 0);
                let sound = fast <= n
                    && classic <= n
                    && fasts.iter().all(|a| fasts.iter().all(|b| meet(a, b)))
                    && classics.iter().all(|a| classics.iter().all(|b| a & b != 0));
                assert_eq!(sized.is_ok(), sound, "{fast} and {classic} of {n}: {sized:?}");
                if let Ok(sizes) = sized {
                    assert!(FastQuorums::sized(n, Some(fast), None).unwrap().classic() <= classic);
                    assert!(FastQuorums::sized(n, None, Some(classic)).unwrap().fast() <= fast);
                    for collected in classic..=n {
                        let seen = subsets(n, collected);
                        let common =
                            seen.iter().flat_map(|seen| fasts.iter().map(move |f| (seen & f).count_ones()));
                        assert_eq!(common.min(), Some(sizes.recovery(collected) as u32));
                        assert!(2 * sizes.recovery(collected) > collected, "two values would have as many");
                    }
                }
            }
            let own = FastQuorums::of(n);
            assert_eq!(FastQuorums::sized(n, None, None), Ok(own));
            assert_eq!(FastQuorums::sized(n, Some(own.fast()), Some(own.classic())), Ok(own));
        }
        let seven = FastQuorums::sized(7, Some(5), None).unwrap();
        assert_eq!((seven.fast(), seven.classic()), (5, 5), "f = 2 at n = 3f + 1");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_what_would() {
        let refused = |n, fast, classic| FastQuorums::sized(n, fast, classic).unwrap_err().to_string();
        assert_eq!(
            refused(5, Some(3), Some(4)),
            "fast_quorum is too small: two fast quorums of 3 and a classic one of 4 need not have any of 5 replicas in common; use 4 or \
             more, or classic_quorum = 5 or more"
        );
        assert_eq!(
            refused(5, None, Some(2)),
            "classic_quorum is not between a majority and all of 5 replicas; use 3 to 5"
        );
        assert_eq!(
            refused(3, Some(4), None),
            "fast_quorum is not between a majority and all of 3 replicas; use 2 to 3"
        );
    }

    #[test]
    fn a_tally_is_reached_once_and_by_different_voters() {
        let mut tally = Tally::new(2);
        assert_eq!(tally.add(ReplicaId(3)), Count::Below);
        assert_eq!(tally.add(ReplicaId(3)), Count::Below);
        assert_eq!(tally.add(ReplicaId(0)), Count::Reached);
        assert_eq!(tally.add(ReplicaId(0)), Count::After);
        assert_eq!(tally.add(ReplicaId(1)), Count::After);
        assert_eq!(tally.voters().iter().collect::<Vec<_>>(), [0, 1, 3].map(ReplicaId));
    }

    #[test]
    fn votes_for_different_values_do_not_add_up() {
        let mut votes = Votes::new(2);
        assert_eq!(votes.add(ReplicaId(0), 'a'), Count::Below);
        assert_eq!(votes.add(ReplicaId(1), 'b'), Count::Below);
        assert_eq!(votes.add(ReplicaId(1), 'a'), Count::Below, "a first vote stands");
        assert_eq!(votes.add(ReplicaId(2), 'b'), Count::Reached);
        assert_eq!(votes.chosen(), Some(&'b'));
        assert_eq!(votes.cast().count(), 2);
    }

    #[test]
    fn a_set_holds_all_its_seats() {
        let mut set: ReplicaSet = (0..ReplicaSet::SEATS).map(ReplicaId).collect();
        assert_eq!(set.len(), 128);
        assert!(set.remove(ReplicaId(127)) && !set.remove(ReplicaId(127)));
        assert!(!set.contains(ReplicaId(127)) && set.contains(ReplicaId(126)));
        assert_eq!(set.iter().count(), 127);
    }
}
