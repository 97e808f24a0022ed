//! Locks on keys, shared and exclusive, with queues; who must give way to whom is up to the caller.
//!
//! A transaction is named by what orders it: of those that wait for a key the lesser comes first, and nobody is given
//! a lock past a lesser one that waits for it and conflicts. So a queue makes nobody wait for a greater one; only
//! holders do ([`LockTable::blockers`]), and a policy that takes care of those (wound-wait) has no deadlock.

use isochrone_core::Blob;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

/// How a key is locked.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mode {
    /// Together with others of this mode.
    Shared,
    /// Alone.
    Exclusive,
}

/// What comes of asking for a lock.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Lock {
    /// The transaction holds it.
    Granted,
    /// It waits; [`LockTable::release`] tells when it has it.
    Queued,
    /// Too many wait.
    Refused,
}

/// Who holds and who waits for which key. See the module.
#[derive(Clone, Hash, Debug)]
pub struct LockTable<T> {
    keys: BTreeMap<Blob, Queue<T>>,
    /// The keys that each holds or waits for.
    of: BTreeMap<T, BTreeSet<Blob>>,
    queue_max: usize,
}

#[derive(Clone, Hash, Debug)]
struct Queue<T> {
    holders: BTreeMap<T, Mode>,
    waiting: BTreeMap<T, Mode>,
}

impl<T: Copy + Ord> Queue<T> {
    fn admits(&self, txn: T, mode: Mode) -> bool {
        self.holders.iter().all(|(holder, held)| *holder == txn || !conflict(*held, mode))
    }
}

fn conflict(one: Mode, other: Mode) -> bool {
    one.max(other) == Mode::Exclusive
}

impl<T: Copy + Ord + Hash> LockTable<T> {
    /// No locks; at most `queue_max` wait for each key.
    pub fn new(queue_max: usize) -> LockTable<T> {
        LockTable { keys: BTreeMap::new(), of: BTreeMap::new(), queue_max }
    }

    /// Whether nobody holds or waits for anything.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Asks for a lock, or for a stronger one than is held. Asking again changes nothing.
    pub fn acquire(&mut self, txn: T, key: &Blob, mode: Mode) -> Lock {
        let empty = || Queue { holders: BTreeMap::new(), waiting: BTreeMap::new() };
        let queue = self.keys.entry(key.clone()).or_insert_with(empty);
        if queue.holders.get(&txn).is_some_and(|held| *held >= mode) {
            return Lock::Granted;
        }
        let mode = queue.waiting.get(&txn).map_or(mode, |waits| mode.max(*waits));
        let behind = queue.waiting.range(..txn).any(|(_, waits)| conflict(*waits, mode));
        let lock = if !behind && queue.admits(txn, mode) {
            queue.waiting.remove(&txn);
            queue.holders.insert(txn, mode);
            Lock::Granted
        } else if queue.waiting.len() >= self.queue_max && !queue.waiting.contains_key(&txn) {
            return Lock::Refused;
        } else {
            queue.waiting.insert(txn, mode);
            Lock::Queued
        };
        self.of.entry(txn).or_default().insert(key.clone());
        lock
    }

    /// Gives up all that a transaction holds or waits for, and tells who holds what now that waited for it.
    pub fn release(&mut self, txn: T) -> Vec<(T, Blob)> {
        let mut granted = Vec::new();
        for key in self.of.remove(&txn).unwrap_or_default() {
            let Some(queue) = self.keys.get_mut(&key) else { continue };
            queue.holders.remove(&txn);
            queue.waiting.remove(&txn);
            while let Some((next, mode)) = queue.waiting.first_key_value().map(|(next, mode)| (*next, *mode))
                && queue.admits(next, mode)
            {
                queue.waiting.remove(&next);
                queue.holders.insert(next, mode);
                granted.push((next, key.clone()));
            }
            if queue.holders.is_empty() {
                self.keys.remove(&key);
            }
        }
        granted
    }

    /// Who holds a key, and how.
    pub fn holders(&self, key: &[u8]) -> impl Iterator<Item = (T, Mode)> {
        self.keys.get(key).into_iter().flat_map(|queue| queue.holders.iter().map(|(txn, mode)| (*txn, *mode)))
    }

    /// Whether a transaction holds a key at least so.
    pub fn holds(&self, txn: T, key: &[u8], mode: Mode) -> bool {
        self.keys.get(key).and_then(|queue| queue.holders.get(&txn)).is_some_and(|held| *held >= mode)
    }

    /// Those whose locks keep a transaction that waits for a key from it.
    pub fn blockers(&self, txn: T, key: &[u8]) -> impl Iterator<Item = T> {
        let wanted = self.keys.get(key).and_then(|queue| queue.waiting.get(&txn)).copied();
        let blocks =
            move |(holder, held): (T, Mode)| holder != txn && wanted.is_some_and(|mode| conflict(held, mode));
        self.holders(key).filter(move |held| blocks(*held)).map(|(holder, _)| holder)
    }

    /// Whether a lesser one waits for what a transaction holds.
    pub fn delays_lesser(&self, txn: T) -> bool {
        let keys = self.of.get(&txn).into_iter().flatten();
        keys.filter_map(|key| self.keys.get(key)).any(|queue| {
            let held = queue.holders.get(&txn);
            held.is_some_and(|held| queue.waiting.range(..txn).any(|(_, waits)| conflict(*held, *waits)))
        })
    }

    /// Asserts that no lock is held against another, and that nobody waits for nothing.
    pub fn check(&self) {
        for (key, queue) in &self.keys {
            let alone = queue.holders.values().all(|mode| *mode == Mode::Shared) || queue.holders.len() == 1;
            assert!(alone, "conflicting locks on {key:?}");
            assert!(!queue.holders.is_empty(), "{key:?} is waited for and not held");
            if let Some((first, mode)) = queue.waiting.first_key_value() {
                assert!(!queue.admits(*first, *mode), "a free lock on {key:?} was not granted");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Random;

    fn b(text: &str) -> Blob {
        Blob::from(text)
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_all() {
        let (mut locks, x) = (LockTable::new(10), b("x"));
        assert_eq!(locks.acquire(1, &x, Mode::Shared), Lock::Granted);
        assert_eq!(locks.acquire(2, &x, Mode::Shared), Lock::Granted);
        assert_eq!(locks.acquire(3, &x, Mode::Exclusive), Lock::Queued);
        assert_eq!(locks.blockers(3, b"x").collect::<Vec<_>>(), [1, 2]);
        assert_eq!(locks.acquire(4, &x, Mode::Shared), Lock::Queued, "not past 3");
        assert_eq!(locks.acquire(0, &x, Mode::Shared), Lock::Granted, "past 3, which is greater");
        assert_eq!((locks.release(1), locks.release(0)), (vec![], vec![]));
        assert_eq!(locks.release(2), [(3, x.clone())]);
        assert_eq!(locks.release(3), [(4, x.clone())]);
        assert_eq!(locks.release(4), []);
        assert!(locks.is_empty() && locks.keys.is_empty());
    }

    #[test]
    fn who_reads_may_become_a_writer_once_alone() {
        let (mut locks, x) = (LockTable::new(10), b("x"));
        locks.acquire(1, &x, Mode::Shared);
        locks.acquire(2, &x, Mode::Shared);
        assert_eq!(locks.acquire(1, &x, Mode::Exclusive), Lock::Queued);
        assert_eq!(locks.acquire(2, &x, Mode::Exclusive), Lock::Queued);
        assert!(locks.delays_lesser(2) && !locks.delays_lesser(1));
        assert_eq!(locks.release(2), [(1, x.clone())]);
        assert!(locks.holds(1, b"x", Mode::Exclusive));
        assert_eq!(locks.acquire(1, &x, Mode::Shared), Lock::Granted);
    }

    #[test]
    fn queues_are_bounded() {
        let (mut locks, x) = (LockTable::new(1), b("x"));
        locks.acquire(1, &x, Mode::Exclusive);
        assert_eq!(locks.acquire(2, &x, Mode::Shared), Lock::Queued);
        assert_eq!(locks.acquire(3, &x, Mode::Shared), Lock::Refused);
        assert_eq!(locks.acquire(2, &x, Mode::Exclusive), Lock::Queued, "it waits already");
        locks.release(3);
        assert_eq!(locks.release(1), [(2, x)]);
    }

    /// Random requests under wound-wait: locks never conflict, and whoever waits gets its locks once all that are in
    /// front of it are gone.
    #[test]
    fn under_wound_wait_nobody_waits_for_ever() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let mut locks = LockTable::new(100);
            let mut waits: BTreeMap<u64, BTreeSet<Blob>> = BTreeMap::new();
            let mut alive = BTreeSet::new();
            for _ in 0..60 {
                let txn = random.below(12);
                if waits.get(&txn).is_some_and(|keys| !keys.is_empty()) {
                    continue;
                }
                alive.insert(txn);
                let key = b(&random.below(4).to_string());
                let mode = if random.chance(0.5) { Mode::Shared } else { Mode::Exclusive };
                let mut gone = Vec::new();
                if locks.acquire(txn, &key, mode) == Lock::Queued {
                    waits.entry(txn).or_default().insert(key.clone());
                    gone.extend(locks.blockers(txn, &key).filter(|holder| *holder > txn));
                }
                if random.chance(0.1) {
                    gone.push(random.below(12));
                }
                for txn in gone {
                    alive.remove(&txn);
                    waits.remove(&txn);
                    for (txn, key) in locks.release(txn) {
                        assert!(waits.get_mut(&txn).is_some_and(|keys| keys.remove(&key)), "seed {seed}");
                    }
                }
                locks.check();
            }
            while !alive.is_empty() {
                let free = alive.iter().copied().find(|txn| waits.get(txn).is_none_or(BTreeSet::is_empty));
                let free = free.unwrap_or_else(|| panic!("seed {seed}: {waits:?} wait in a ring"));
                alive.remove(&free);
                for (txn, key) in locks.release(free) {
                    waits.get_mut(&txn).unwrap().remove(&key);
                }
                locks.check();
            }
            assert!(locks.is_empty());
        }
    }
}
