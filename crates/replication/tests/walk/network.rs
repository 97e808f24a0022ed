//! What is on its way between replicas: any of it may arrive next, or only the first of each link.

use rustc_hash::FxHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A message, with its receiver and its sender.
#[derive(Eq, PartialEq, Hash, Debug)]
pub struct Sent<M> {
    pub to: usize,
    pub from: usize,
    pub message: M,
}

#[derive(Clone, Debug)]
pub struct Network<M> {
    /// Whether what one sends another arrives in its order, as over a connection.
    pub in_order: bool,
    /// Each with its hash, by the same hash; or where links keep order, by the link and the place on it.
    sent: BTreeMap<u64, (u64, Arc<Sent<M>>)>,
}

/// What is on the link's way, from its first message on.
const PLACES: u64 = 1 << 32;

impl<M: Clone + Eq + Hash> Network<M> {
    pub fn new() -> Network<M> {
        Network { in_order: false, sent: BTreeMap::new() }
    }

    /// Puts a message on its way. A copy of what is on the way already adds nothing; where links keep order, a copy
    /// right behind the same.
    pub fn send(&mut self, to: usize, from: usize, message: M) {
        let sent = Arc::new(Sent { to, from, message });
        let mut hasher = FxHasher::default();
        sent.hash(&mut hasher);
        let hash = hasher.finish();
        if !self.in_order {
            self.sent.insert(hash, (hash, sent));
            return;
        }
        let first = Network::<M>::link(to, from);
        let last = self.sent.range(first..first + PLACES).next_back();
        if last.is_none_or(|(_, last)| last.1 != sent) {
            let place = last.map_or(first, |(place, _)| place + 1);
            self.sent.insert(place, (hash, sent));
        }
    }

    fn link(to: usize, from: usize) -> u64 {
        ((to as u64) << 8 | from as u64) * PLACES
    }

    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub fn get(&self, key: u64) -> &Sent<M> {
        &self.sent[&key].1
    }

    /// What may arrive next.
    pub fn next(&self) -> impl Iterator<Item = u64> {
        self.sent.keys().copied().filter(|key| !self.in_order || key % PLACES == 0)
    }

    /// Takes a message off the network.
    pub fn take(&mut self, key: u64) -> Option<Arc<Sent<M>>> {
        let (_, taken) = self.sent.remove(&key)?;
        if self.in_order {
            // Where it stood the next one does.
            let end = key - key % PLACES + PLACES;
            let behind: Vec<u64> = self.sent.range(key + 1..end).map(|(place, _)| *place).collect();
            for place in behind {
                let moved = self.sent.remove(&place).map(|sent| self.sent.insert(place - 1, sent));
                debug_assert!(moved.is_some());
            }
        }
        Some(taken)
    }

    /// What is on its way to one arrives nowhere.
    pub fn forget(&mut self, to: usize) {
        self.sent.retain(|_, (_, sent)| sent.to != to);
    }
}

impl<M> Hash for Network<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.sent.len());
        for (key, (hash, _)) in &self.sent {
            state.write_u64(*key);
            state.write_u64(*hash);
        }
    }
}
