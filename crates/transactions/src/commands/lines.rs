//! Who waits for whom: commands that share a key go in the order in which they came.

use super::keys::Keys;
use isochrone_core::Blob;
use std::collections::{BTreeMap, BTreeSet};

/// A line a key. A command joins the lines of all its keys at once, so nobody waits in a circle.
#[derive(Clone, Default, Hash, Debug)]
pub(super) struct Lines(BTreeMap<Blob, Line>);

/// Who uses a key and who waits for it; gone when nobody does.
#[derive(Clone, Default, Hash, Debug)]
struct Line {
    /// Commands that use it now.
    users: usize,
    /// One of them, and then the only one, may change it.
    alone: bool,
    /// By number, which is the order of their arrival, and whether they may change it.
    waiting: BTreeMap<u64, bool>,
}

impl Lines {
    /// Lines a command up: the number of keys that it has to wait for.
    pub fn join(&mut self, number: u64, keys: &Keys) -> usize {
        let mut missing = 0;
        for (key, used) in keys {
            let line = self.0.entry(key.clone()).or_default();
            if line.waiting.is_empty() && line.admits(used.writes) {
                line.admit(used.writes);
            } else {
                line.waiting.insert(number, used.writes);
                missing += 1;
            }
        }
        missing
    }

    /// A command that has all its keys lets them go. `got` is called with the numbers of those that have got a key by
    /// that, once for each.
    pub fn leave(&mut self, keys: &Keys, mut got: impl FnMut(u64)) {
        for key in keys.keys() {
            if let Some(line) = self.0.get_mut(key) {
                line.users = line.users.saturating_sub(1);
                line.alone = false;
                self.admit_next(key, &mut got);
            }
        }
    }

    /// A command that waits goes away, and lets go what it has got.
    pub fn give_up(&mut self, number: u64, keys: &Keys, mut got: impl FnMut(u64)) {
        for key in keys.keys() {
            let Some(line) = self.0.get_mut(key) else { continue };
            if line.waiting.remove(&number).is_none() {
                line.users = line.users.saturating_sub(1);
                line.alone = false;
            }
            self.admit_next(key, &mut got);
        }
    }

    fn admit_next(&mut self, key: &Blob, got: &mut impl FnMut(u64)) {
        let Some(line) = self.0.get_mut(key) else { return };
        while let Some((&number, &writes)) = line.waiting.first_key_value()
            && line.admits(writes)
        {
            line.waiting.pop_first();
            line.admit(writes);
            got(number);
        }
        if line.users == 0 {
            self.0.remove(key);
        }
    }

    /// Those that may go with a command that has all its keys: first in line wherever they stand, at keys that it may
    /// change and so has for itself.
    pub fn next<'a>(&'a self, keys: &'a Keys) -> BTreeSet<u64> {
        let own = keys.iter().filter(|(_, used)| used.writes);
        let lines = own.filter_map(|(key, _)| self.0.get(key));
        lines.filter_map(|line| line.waiting.first_key_value()).map(|(number, _)| *number).collect()
    }

    /// Whether it is first in line at all its keys, and the other has all of these for itself.
    pub fn may_go_with(&self, number: u64, keys: &Keys, other: &Keys) -> bool {
        keys.keys().all(|key| {
            let first = self.0.get(key).and_then(|line| line.waiting.first_key_value());
            first.is_some_and(|(first, _)| *first == number) && other.get(key).is_some_and(|used| used.writes)
        })
    }

    /// Takes one that goes with another out of its lines.
    pub fn go_with(&mut self, number: u64, keys: &Keys) {
        for key in keys.keys() {
            if let Some(line) = self.0.get_mut(key) {
                line.waiting.remove(&number);
            }
        }
    }

    /// Whether nobody uses any key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Line {
    fn admits(&self, writes: bool) -> bool {
        self.users == 0 || !self.alone && !writes
    }

    fn admit(&mut self, writes: bool) {
        self.users += 1;
        self.alone = writes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Use;
    use super::*;

    fn keys(text: &str) -> Keys {
        let used = |word: &str| {
            let writes = word.ends_with('!');
            (Blob::from(word.trim_end_matches('!')), Use { reads: true, writes })
        };
        text.split(' ').map(used).collect()
    }

    #[test]
    fn readers_share_and_writers_wait_their_turn() {
        let mut lines = Lines::default();
        assert_eq!(lines.join(1, &keys("a b")), 0);
        assert_eq!(lines.join(2, &keys("a")), 0);
        assert_eq!(lines.join(3, &keys("a! c!")), 1);
        // A reader does not overtake a writer that waits.
        assert_eq!(lines.join(4, &keys("a c")), 2);
        assert_eq!(lines.join(5, &keys("b")), 0);
        let mut got = Vec::new();
        lines.leave(&keys("a b"), |number| got.push(number));
        lines.leave(&keys("a"), |number| got.push(number));
        lines.leave(&keys("b"), |number| got.push(number));
        assert_eq!(got, [3]);
        lines.leave(&keys("a! c!"), |number| got.push(number));
        assert_eq!(got, [3, 4, 4]);
        lines.leave(&keys("a c"), |_| panic!());
        assert!(lines.is_empty());
    }

    #[test]
    fn who_needs_no_other_key_goes_along() {
        let mut lines = Lines::default();
        lines.join(1, &keys("a! b!"));
        lines.join(2, &keys("a"));
        lines.join(3, &keys("a! c!"));
        lines.join(4, &keys("b!"));
        let first = keys("a! b!");
        assert_eq!(lines.next(&first).into_iter().collect::<Vec<_>>(), [2, 4]);
        assert!(lines.may_go_with(2, &keys("a"), &first) && lines.may_go_with(4, &keys("b!"), &first));
        assert!(!lines.may_go_with(3, &keys("a! c!"), &first));
        lines.go_with(2, &keys("a"));
        assert_eq!(lines.next(&first).into_iter().collect::<Vec<_>>(), [3, 4]);
        assert!(!lines.may_go_with(3, &keys("a! c!"), &first), "it needs another key");
        lines.give_up(3, &keys("a! c!"), |_| panic!("nobody waits for these"));
        lines.go_with(4, &keys("b!"));
        lines.leave(&first, |_| panic!());
        assert!(lines.is_empty());
    }
}
