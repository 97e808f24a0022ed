//! Which tentative commands a command does not commute with (`specs/curp.md` 3.5, Rule 2).
//!
//! Keys are known by their hashes: two keys with one hash conflict, which is safe. A key that was deleted is
//! touched like any other, and so is one that a command without an effect looked at (D-15).

use isochrone_core::command::Touch;
use isochrone_core::{KeyspaceId, key_hash};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// What tentative commands touch, by position; positions count from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsynced {
    keys: FxHashMap<u64, Touched>,
    /// What is in `keys`, by position, so that it leaves again.
    marks: VecDeque<(u64, u64)>,
    /// The last position that touched all keys.
    barrier: u64,
    /// The last position.
    head: u64,
    /// Everything up to here is safe.
    synced: u64,
}

/// The last positions that wrote a key, and that read or wrote it.
#[derive(Copy, Clone, Debug, Default)]
struct Touched {
    written: u64,
    touched: u64,
}

impl Hash for Unsynced {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The keys follow from the rest, but for who only read.
        (&self.marks, self.barrier, self.head, self.synced).hash(state);
    }
}

/// Whether a touch changes nothing.
fn only_reads(touch: Touch<'_>) -> bool {
    match touch {
        Touch::Key(_, access) | Touch::All(access) => access == isochrone_core::command::Access::Read,
    }
}

impl Unsynced {
    /// The last tentative position that something does not commute with, which touches what `visit` names. What
    /// touches all keys commutes with nothing tentative; what reads commutes with what reads.
    pub(crate) fn conflict(
        &self,
        keyspace: KeyspaceId,
        visit: impl FnOnce(&mut dyn FnMut(Touch<'_>)),
    ) -> Option<u64> {
        if self.head == self.synced {
            return None;
        }
        let mut last = self.barrier;
        visit(&mut |touch| {
            last = last.max(match touch {
                Touch::All(_) => self.head,
                Touch::Key(key, _) => match self.keys.get(&key_hash(keyspace, key)) {
                    Some(known) if only_reads(touch) => known.written,
                    Some(known) => known.touched,
                    None => 0,
                },
            });
        });
        Some(last).filter(|last| *last > self.synced)
    }

    /// The command at this position, which is the next, touches these: whether it commutes with everything
    /// tentative before it, and witnesses can know that.
    pub(crate) fn mark(
        &mut self,
        position: u64,
        keyspace: KeyspaceId,
        visit: impl FnOnce(&mut dyn FnMut(Touch<'_>)),
    ) -> bool {
        debug_assert!(position > self.head, "position {position} behind {}", self.head);
        let (mut last, mut whole) = (self.barrier, false);
        visit(&mut |touch| match touch {
            Touch::All(_) => (whole, self.barrier) = (true, position),
            Touch::Key(key, _) => {
                let hash = key_hash(keyspace, key);
                let known = self.keys.entry(hash).or_default();
                if known.touched != position {
                    last = last.max(if only_reads(touch) { known.written } else { known.touched });
                    self.marks.push_back((position, hash));
                }
                known.touched = position;
                if !only_reads(touch) {
                    // Where it reads the key as well, what only read it before is nothing to it (4.3).
                    known.written = position;
                }
            }
        });
        self.head = position;
        !whole && last <= self.synced
    }

    /// Something has read all of these as they were after this position, which is tentative: it is told when that is safe, and
    /// what changes any of them meanwhile is not safe before either.
    pub(crate) fn read(
        &mut self,
        position: u64,
        keyspace: KeyspaceId,
        visit: impl FnOnce(&mut dyn FnMut(Touch<'_>)),
    ) {
        visit(&mut |touch| match touch {
            Touch::All(_) => self.barrier = self.barrier.max(position),
            Touch::Key(key, _) => {
                let hash = key_hash(keyspace, key);
                let known = self.keys.entry(hash).or_default();
                if known.touched < position {
                    known.touched = position;
                    // Marks ascend.
                    self.marks.push_back((self.head, hash));
                }
            }
        });
    }

    /// Everything up to this position is safe.
    pub(crate) fn sync(&mut self, position: u64) {
        self.synced = self.synced.max(position);
        self.head = self.head.max(position);
        while let Some((at, hash)) = self.marks.front().copied()
            && at <= self.synced
        {
            self.marks.pop_front();
            if self.keys.get(&hash).is_some_and(|known| known.touched <= self.synced) {
                self.keys.remove(&hash);
            }
        }
    }

    /// Keys that are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Blob;
    use isochrone_core::command::Access;

    const SPACE: KeyspaceId = KeyspaceId(1);

    fn key(name: &str, access: Access) -> impl FnOnce(&mut dyn FnMut(Touch<'_>)) {
        move |visit| visit(Touch::Key(&Blob::from(name), access))
    }

    fn all(access: Access) -> impl FnOnce(&mut dyn FnMut(Touch<'_>)) {
        move |visit| visit(Touch::All(access))
    }

    /// T17: what it saw is not safe before position 1 is, nor is what changes any of it behind it.
    #[test]
    fn a_read_of_what_is_tentative_is_in_the_way_until_that_is_safe() {
        let mut unsynced = Unsynced::default();
        unsynced.mark(1, SPACE, key("x", Access::Write));
        unsynced.mark(2, SPACE, key("z", Access::Write));
        for name in ["x", "y", "y"] {
            unsynced.read(1, SPACE, key(name, Access::Read));
        }
        assert_eq!(unsynced.conflict(SPACE, key("y", Access::Read)), None, "two that read");
        assert!(!unsynced.mark(3, SPACE, key("y", Access::Write)));
        unsynced.sync(1);
        assert_eq!(unsynced.conflict(SPACE, key("y", Access::Read)), Some(3));
        unsynced.sync(3);
        assert!(unsynced.mark(4, SPACE, key("y", Access::Write)));
        unsynced.sync(4);
        assert_eq!(unsynced.len(), 0);
        unsynced.mark(5, SPACE, key("x", Access::Write));
        unsynced.read(5, SPACE, all(Access::Read));
        assert!(!unsynced.mark(6, SPACE, key("y", Access::Write)));
    }

    #[test]
    fn two_that_read_commute_and_no_others() {
        let mut unsynced = Unsynced::default();
        unsynced.mark(1, SPACE, key("r", Access::Read));
        assert!(unsynced.mark(2, SPACE, key("w", Access::Write)));
        let conflict = |name, access| unsynced.conflict(SPACE, key(name, access));
        assert_eq!(conflict("r", Access::Read), None);
        assert_eq!(conflict("r", Access::Update), Some(1));
        assert_eq!(conflict("r", Access::Write), Some(1));
        assert_eq!(conflict("w", Access::Read), Some(2));
        assert_eq!(conflict("w", Access::Write), Some(2));
        assert_eq!(conflict("x", Access::Update), None);
        assert_eq!(unsynced.conflict(SPACE, all(Access::Read)), Some(2));
    }

    /// T18: an update that reads `x` and writes `y`.
    #[test]
    fn all_keys_of_a_command_count() {
        let mut unsynced = Unsynced::default();
        unsynced.mark(1, SPACE, key("x", Access::Write));
        let both = |visit: &mut dyn FnMut(Touch<'_>)| {
            visit(Touch::Key(&Blob::from("x"), Access::Read));
            visit(Touch::Key(&Blob::from("y"), Access::Write));
        };
        assert_eq!(unsynced.conflict(SPACE, both), Some(1));
        assert!(!unsynced.mark(2, SPACE, both));
        unsynced.sync(1);
        assert_eq!(unsynced.conflict(SPACE, key("x", Access::Read)), None);
        assert_eq!(unsynced.conflict(SPACE, both), Some(2));
        unsynced.sync(2);
        assert!(unsynced.mark(3, SPACE, both));
    }

    /// T23: behind what touches everything, everything conflicts until it is safe.
    #[test]
    fn a_barrier_conflicts_with_all() {
        let mut unsynced = Unsynced::default();
        assert_eq!(unsynced.conflict(SPACE, all(Access::Update)), None, "nothing is tentative");
        assert!(!unsynced.mark(1, SPACE, all(Access::Update)), "no witness knows");
        assert!(!unsynced.mark(2, SPACE, key("k", Access::Write)));
        assert_eq!(unsynced.conflict(SPACE, key("other", Access::Read)), Some(1));
        unsynced.sync(1);
        assert_eq!(unsynced.conflict(SPACE, key("other", Access::Read)), None);
        assert_eq!(unsynced.conflict(SPACE, key("k", Access::Read)), Some(2));
        assert_eq!(unsynced.conflict(SPACE, all(Access::Update)), Some(2));
    }

    #[test]
    fn what_is_safe_leaves() {
        let mut unsynced = Unsynced::default();
        for position in 1..=1_000 {
            let name = format!("k{}", position % 10);
            assert!(unsynced.mark(position, SPACE, key(&name, Access::Write)));
            unsynced.sync(position.saturating_sub(5));
            assert!(unsynced.len() <= 5 && unsynced.marks.len() <= 5);
        }
        assert_eq!(unsynced.conflict(SPACE, key("k3", Access::Write)), None);
        assert_eq!(unsynced.conflict(SPACE, key("k8", Access::Write)), Some(998));
        unsynced.sync(1_000);
        assert_eq!((unsynced.len(), unsynced.marks.len()), (0, 0));
    }
}
