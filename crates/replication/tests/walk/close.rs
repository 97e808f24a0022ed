//! How a world ends: nothing is lost any more, nobody crashes, time goes by and timers fire when they are due.

use super::steps::Step;
use super::world::{Disks, Letter, World};
use crate::model::Explored;
use isochrone_core::{Instant, Process, Span};
use isochrone_replication::order::{Order, Takes};

impl<O: Order<Value = Letter> + Process<Timer: Sync> + Sync> Explored for World<O> {
    type Step = Step<O::Timer>;
    fn steps(&self) -> Vec<Self::Step> {
        World::steps(self)
    }
    fn step(&mut self, step: Self::Step) {
        World::step(self, step);
    }
    fn close(self) {
        World::close(self);
    }
    fn tell(&self, step: &Self::Step) -> String {
        World::tell(self, step)
    }
}

/// Firings of timers until everything must have come to rest.
const FIRINGS_MAX: usize = 5_000;
/// After so many, clients ask again for what was not executed.
const PATIENCE: usize = 200;

impl<O: Order<Value = Letter>> World<O> {
    /// Everybody lives and is heard. What was answered must come to be executed everywhere; then whatever else was
    /// asked for, again where need be.
    pub fn close(mut self) {
        (self.crashes, self.losses) = (0, 0);
        (self.in_time, self.together) = (true, false);
        (self.hour, self.disks) = (Span::ZERO, Disks::Instant);
        let latest = self.nodes.iter().map(|node| node.clock).max().unwrap_or_default();
        self.nodes.iter_mut().for_each(|node| node.clock = latest);
        for node in 0..self.replicas() {
            if !self.nodes[node].up {
                self.restart(node);
            }
        }
        assert!(!self.letters.is_empty(), "nothing is asked for");
        let answered: Vec<u8> = self.answered.iter().copied().collect();
        self.until("what was answered is lost", &answered, false);
        let all: Vec<u8> = self.letters.iter().map(|letter| letter.number).collect();
        self.until("something is stuck", &all, true);
    }

    fn until(&mut self, otherwise: &str, letters: &[u8], again: bool) {
        for firing in 0..FIRINGS_MAX {
            self.deliver();
            let lacks = |node: usize, letter: &u8| !self.was_given(node, *letter);
            let open: Vec<u8> = letters
                .iter()
                .copied()
                .filter(|letter| (0..self.replicas()).any(|node| lacks(node, letter)))
                .collect();
            if open.is_empty() {
                return;
            }
            if again && firing % PATIENCE == 0 {
                self.values =
                    self.letters.iter().filter(|letter| open.contains(&letter.number)).cloned().collect();
                while !self.values.is_empty() {
                    let Some(node) =
                        (0..self.replicas()).find(|node| self.order(*node).takes() == Takes::Here)
                    else {
                        break;
                    };
                    self.propose(node);
                }
            }
            self.pass();
        }
        panic!("{otherwise}: {letters:?}, given {:?}", self.given());
    }

    /// The next timer fires.
    fn pass(&mut self) {
        let due = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| node.armed.iter().map(move |(timer, due)| (*due, at, timer.clone())));
        let Some((due, at, timer)) = due.min_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1))) else {
            return;
        };
        let clock = self.nodes[at].clock.max(due.since(Instant::ZERO));
        self.nodes.iter_mut().for_each(|node| node.clock = clock);
        self.timers[at] += 1;
        self.step(Step::Fire(at, timer));
    }
}
