//! What is decided in one lane.

use isochrone_core::IntervalMap;
use std::collections::BTreeMap;

/// The decided positions of a lane from its frontier on, no-ops as runs, and the commands that are not
/// executed yet.
#[derive(Clone, Hash, Debug)]
pub(super) struct Track<V> {
    /// Everything before it is decided, and its commands are known.
    frontier: u64,
    /// What is decided behind that.
    known: IntervalMap<u64, ()>,
    /// Commands that are decided and not executed.
    pub(super) commands: BTreeMap<u64, V>,
}

impl<V> Default for Track<V> {
    fn default() -> Track<V> {
        Track { frontier: 0, known: IntervalMap::default(), commands: BTreeMap::new() }
    }
}

impl<V> Track<V> {
    /// The first stamp that is not decided.
    pub(super) fn frontier(&self) -> u64 {
        self.frontier
    }

    /// Whether a position is decided.
    pub(super) fn is_decided(&self, at: u64) -> bool {
        at < self.frontier || self.known.get(at).is_some()
    }

    /// A position holds this. False where that was known.
    pub(super) fn decide(&mut self, at: u64, value: Option<V>) -> bool {
        if self.is_decided(at) {
            return false;
        }
        if let Some(value) = value {
            self.commands.insert(at, value);
        }
        self.known.set(at..at + 1, ());
        self.advance();
        true
    }

    /// Every position of the range that is not decided holds a no-op.
    pub(super) fn decide_noops(&mut self, from: u64, until: u64) {
        let from = from.max(self.frontier);
        if from < until {
            self.known.set(from..until, ());
            self.advance();
        }
    }

    /// The parts of a range that are not decided.
    pub(super) fn gaps(&self, from: u64, until: u64) -> Vec<std::ops::Range<u64>> {
        self.known.gaps(from.max(self.frontier)..until).collect()
    }

    /// The state before this was taken from a peer.
    pub(super) fn jump(&mut self, frontier: u64) {
        self.commands = self.commands.split_off(&frontier);
        if frontier > self.frontier {
            self.frontier = frontier;
            self.known.trim(frontier);
            self.advance();
        }
    }

    /// Whether the frontier has passed all that it can, and the last command is at a decided position.
    pub(super) fn is_whole(&self) -> bool {
        let last = self.commands.last_key_value();
        self.known.get(self.frontier).is_none() && last.is_none_or(|(at, _)| self.is_decided(*at))
    }

    /// The decided ranges behind the frontier.
    pub(super) fn ahead(&self) -> usize {
        self.known.len()
    }

    fn advance(&mut self) {
        if let Some((run, ())) = self.known.run(self.frontier) {
            self.frontier = run.end;
            self.known.trim(run.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_passes_what_is_decided_and_nothing_else() {
        let mut track = Track::default();
        assert!(track.decide(5, Some('a')));
        assert!(!track.decide(5, Some('b')), "a position is decided once");
        track.decide_noops(0, 3);
        assert_eq!((track.frontier(), track.is_decided(5), track.is_decided(4)), (3, true, false));
        track.decide_noops(2, 5);
        assert_eq!(track.frontier(), 6);
        track.decide_noops(6, 1_000_000);
        assert_eq!((track.frontier(), track.ahead(), track.commands.len()), (1_000_000, 0, 1));
        track.jump(10);
        assert_eq!((track.frontier(), track.commands.len()), (1_000_000, 0));
    }
}
