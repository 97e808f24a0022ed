//! What may happen next in a world, one thing at a time.

use super::network::Sent;
use super::world::{Letter, World, process};
use isochrone_replication::order::{Order, Takes};

/// What may happen next.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Step<T> {
    Deliver(u64),
    Lose(u64),
    Propose(usize),
    /// A client's copy arrives, which is the so-manieth.
    Copy(usize, usize),
    Fire(usize, T),
    /// A disk has written what was given to it.
    Sync(usize),
    /// With so many of the records that were not waited for.
    Crash(usize, usize),
}

impl<O: Order<Value = Letter>> World<O> {
    /// What may happen next.
    pub fn steps(&self) -> Vec<Step<O::Timer>> {
        let mut steps: Vec<_> = self.network.next().map(Step::Deliver).collect();
        if self.losses > 0 {
            steps.extend(self.network.next().map(Step::Lose));
        }
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.up) {
            let proposes = !self.values.is_empty() && self.proposers.contains(&at);
            if proposes && node.order.takes() == Takes::Here {
                steps.push(Step::Propose(at));
            }
            steps.extend((0..self.copies[at].len()).map(|copy| Step::Copy(at, copy)));
            if self.timers[at] > 0 && !(self.patient && self.crashes > 0) {
                let fires = if self.together { 1 } else { usize::MAX };
                steps.extend(node.armed.keys().take(fires).map(|timer| Step::Fire(at, timer.clone())));
            }
            let records = node.waiting();
            if records > 0 {
                steps.push(Step::Sync(at));
            }
            if self.crashes > 0 && self.mortals.contains(&at) {
                steps.extend((0..=records).map(|kept| Step::Crash(at, kept)));
            }
        }
        steps
    }

    /// A step in words.
    pub fn tell(&self, step: &Step<O::Timer>) -> String {
        match step {
            Step::Deliver(key) | Step::Lose(key) => {
                let how = if matches!(step, Step::Lose(_)) { "lost" } else { "to" };
                let Sent { to, from, message } = self.network.get(*key);
                format!("{from} {how} {to}: {message:?}")
            }
            other => format!("{other:?}"),
        }
    }

    pub fn step(&mut self, step: Step<O::Timer>) {
        match step {
            Step::Deliver(key) => {
                if let Some(sent) = self.network.take(key) {
                    let (from, message) = (process(sent.from), sent.message.clone());
                    self.act(sent.to, |order, effects| order.receive(from, message, effects));
                }
            }
            Step::Lose(key) => {
                self.losses -= 1;
                self.network.take(key);
            }
            Step::Propose(node) => {
                let letter = self.values.remove(0);
                self.ask(node, letter);
            }
            Step::Copy(node, copy) => {
                let letter = self.copies[node].remove(copy);
                self.ask(node, letter);
            }
            Step::Fire(node, timer) => {
                self.timers[node] -= 1;
                for at in 0..self.nodes.len() {
                    if at == node || self.one_clock {
                        self.nodes[at].clock += self.hour;
                    }
                }
                let timers = match self.together {
                    true => std::mem::take(&mut self.nodes[node].armed).into_keys().collect(),
                    false => vec![timer],
                };
                for timer in timers {
                    self.nodes[node].armed.remove(&timer);
                    self.act(node, |order, effects| order.expire(timer, effects));
                }
            }
            Step::Sync(node) => self.sync(node),
            Step::Crash(node, kept) => {
                self.crashes -= 1;
                self.nodes[node].fail(kept);
                if self.back_at_once {
                    self.restart(node);
                } else {
                    self.network.forget(node);
                }
            }
        }
    }
}
