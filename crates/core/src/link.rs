//! Order and completeness between two processes over a network that gives neither.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Something sent over a link: the how many-th of which session.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// The session of the sender.
    pub session: u64,
    /// Its number there, from 0.
    pub number: u64,
    /// What is sent.
    pub item: T,
}

/// One end of a link between two processes: numbers what it sends and keeps it until it is acknowledged; of
/// what it receives it gives each once, in order, without gaps.
///
/// A *session* is a run of numbers without a gap. Its owner begins a new one by [`OrderedLink::reset`] when it
/// can no longer keep what is not acknowledged, or when its peer has lost its memory; what was not delivered
/// then never is, and what a protocol must say first in a new session is its own affair. Sessions of one
/// sender rise over restarts too: their upper half is its incarnation.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct OrderedLink<T> {
    session: u64,
    next: u64,
    pending: VecDeque<Numbered<T>>,
    theirs: Option<u64>,
    expected: u64,
    early: BTreeMap<u64, T>,
}

/// How much may have arrived too early to be given; the rest is dropped, as the network might have.
const EARLY_MAX: usize = 4_096;

impl<T: Clone> OrderedLink<T> {
    /// The link of a process in this incarnation.
    pub fn new(incarnation: u32) -> OrderedLink<T> {
        OrderedLink {
            session: u64::from(incarnation) << 32,
            next: 0,
            pending: VecDeque::new(),
            theirs: None,
            expected: 0,
            early: BTreeMap::new(),
        }
    }

    /// The session it sends in.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Numbers `t` and keeps a copy.
    pub fn send(&mut self, t: T) -> Numbered<T> {
        let numbered = Numbered { session: self.session, number: self.next, item: t };
        self.next += 1;
        self.pending.push_back(numbered.clone());
        numbered
    }

    /// What has arrived, and what arrived too early before and now has its turn. A newer session of the peer
    /// ends the one before it.
    pub fn receive(&mut self, numbered: Numbered<T>) -> Vec<T> {
        let Numbered { session, number, item } = numbered;
        match self.theirs {
            Some(known) if session < known => return Vec::new(),
            Some(known) if session == known => {}
            _ => {
                self.theirs = Some(session);
                self.expected = 0;
                self.early.clear();
            }
        }
        if number > self.expected {
            if self.early.len() < EARLY_MAX {
                self.early.insert(number, item);
            }
            return Vec::new();
        }
        if number < self.expected {
            return Vec::new();
        }
        let mut given = vec![item];
        self.expected += 1;
        while let Some(next) = self.early.remove(&self.expected) {
            given.push(next);
            self.expected += 1;
        }
        given
    }

    /// What the peer may be told: the session received, and how much of it without a gap.
    pub fn received(&self) -> Option<(u64, u64)> {
        self.theirs.map(|session| (session, self.expected))
    }

    /// The peer has all of `session` below `upto`.
    pub fn acknowledge(&mut self, session: u64, upto: u64) {
        if session == self.session {
            while self.pending.front().is_some_and(|first| first.number < upto) {
                self.pending.pop_front();
            }
        }
    }

    /// What is not acknowledged, in order.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &Numbered<T>> {
        self.pending.iter()
    }

    /// Begins a new session: what is not acknowledged is dropped. What was received stays.
    pub fn reset(&mut self) {
        self.session += 1;
        self.next = 0;
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn each_session_is_given_once_in_order_without_gaps_whatever_the_network_does() {
        for seed in 0..500 {
            let mut random = Random::seeded(seed);
            let (mut a, mut b) = (OrderedLink::new(1), OrderedLink::<(u64, u64)>::new(1));
            let mut network = Vec::new();
            let mut given: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let (mut count, mut lives) = (0, 1);
            for _ in 0..300 {
                match random.below(12) {
                    0..=3 => {
                        let session = a.session();
                        network.push(a.send((session, count)));
                        count += 1;
                    }
                    4 => network.extend(a.pending().cloned()),
                    5 if random.chance(0.1) => {
                        a.reset();
                        count = 0;
                    }
                    6 if random.chance(0.05) => {
                        lives += 1;
                        a = OrderedLink::new(lives);
                        count = 0;
                    }
                    7 => {
                        if let Some((session, upto)) = b.received() {
                            a.acknowledge(session, upto);
                        }
                    }
                    _ if !network.is_empty() => {
                        let at = random.below(network.len() as u64) as usize;
                        // Lost, doubled or merely late.
                        let numbered =
                            if random.chance(0.3) { network[at].clone() } else { network.swap_remove(at) };
                        if random.chance(0.8) {
                            for (session, value) in b.receive(numbered) {
                                given.entry(session).or_default().push(value);
                            }
                        }
                    }
                    _ => {}
                }
            }
            for values in given.values() {
                assert!(values.iter().copied().eq(0..values.len() as u64), "seed {seed}: {values:?}");
            }
            // With the network mended everything of the last session arrives.
            let rest: Vec<_> = a.pending().cloned().collect();
            for numbered in rest {
                b.receive(numbered);
            }
            if count > 0 {
                assert_eq!(b.received(), Some((a.session(), count)), "seed {seed}");
            }
        }
    }
}
