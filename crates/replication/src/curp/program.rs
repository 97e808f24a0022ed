//! The order in which a client has asked: what of it witnesses would lose.
//!
//! Witnesses keep commands without an order. Of two commands of one client on one key the later may be kept where the
//! earlier was refused, because what stood in its way has been collected in between; after a crash the later one would
//! be run first. Who sends commands without waiting for answers (a pipeline) expects them to be run as they were sent.
//! So a command that touches a key of an earlier one of its client which is not answered is not given to witnesses: the
//! leader, which is asked in order, makes it safe.

use rustc_hash::FxHashMap;

/// The keys of commands that are not answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// How many of them touch each key; never iterated.
    keys: FxHashMap<u64, u32>,
    /// How many touch all keys.
    wide: usize,
}

impl Program {
    /// Whether a command with these keys, all keys where there are none, touches nothing of those that were begun.
    pub(crate) fn is_clear(&self, keys: Option<&[u64]>) -> bool {
        self.wide == 0
            && match keys {
                Some(keys) => keys.iter().all(|key| !self.keys.contains_key(key)),
                None => self.keys.is_empty(),
            }
    }

    /// A command with these keys is begun.
    pub(crate) fn begin(&mut self, keys: Option<&[u64]>) {
        match keys {
            Some(keys) => keys.iter().for_each(|key| *self.keys.entry(*key).or_default() += 1),
            None => self.wide += 1,
        }
    }

    /// A command with these keys, which was begun, is over.
    pub(crate) fn end(&mut self, keys: Option<&[u64]>) {
        let Some(keys) = keys else {
            self.wide = self.wide.saturating_sub(1);
            return;
        };
        for key in keys {
            if let Some(count) = self.keys.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.keys.remove(key);
                }
            }
        }
    }

    /// None is begun.
    pub(crate) fn clear(&mut self) {
        *self = Program::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_clear_of_those_that_are_over() {
        let mut program = Program::default();
        assert!(program.is_clear(Some(&[1, 2])) && program.is_clear(None));
        program.begin(Some(&[1, 2]));
        program.begin(Some(&[2]));
        assert!(program.is_clear(Some(&[3])) && !program.is_clear(Some(&[3, 2])) && !program.is_clear(None));
        program.end(Some(&[1, 2]));
        assert!(program.is_clear(Some(&[1])) && !program.is_clear(Some(&[2])));
        program.end(Some(&[2]));
        program.begin(None);
        assert!(!program.is_clear(Some(&[1])));
        program.end(None);
        assert!(program.is_clear(None));
    }
}
