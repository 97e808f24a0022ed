//! A replica in a world: its order, its journal, its timers and its clock.

use super::world::{Letter, process};
use isochrone_core::{Identity, Instant, ProcessId, Span};
use isochrone_replication::order::{Decided, Order, Setup, Step};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

#[derive(Clone)]
pub struct Node<O: Order<Value = Letter>> {
    pub order: O,
    pub records: Vec<O::Record>,
    /// A hash of them and of how often it has started: all that a restart depends on.
    pub journal: u64,
    lives: u32,
    pub up: bool,
    /// What is armed, and when it is due, which counts only where time goes by itself.
    pub armed: BTreeMap<O::Timer, Instant>,
    pub clock: Span,
    /// What it was given for each key, in order.
    pub given: Vec<Letter>,
    /// What waits for its disk, where disks are slow.
    pub held: VecDeque<Held<O>>,
}

/// An effect that waits for the records before it, or is one.
#[derive(Clone)]
pub enum Held<O: Order<Value = Letter>> {
    /// With whether what is made after it waits for it.
    Record(O::Record, bool),
    Send(ProcessId, O::Message),
    /// What was decided, and is told to clients behind the records that it rests on.
    Decided(Decided<Letter>),
}

impl<O: Order<Value = Letter>> Node<O> {
    pub fn new(node: usize, setup: &Setup<O::Parameters>) -> Node<O> {
        Node {
            order: O::open(Identity { process: process(node), incarnation: 1 }, setup),
            records: Vec::new(),
            journal: 0,
            lives: 1,
            up: true,
            armed: BTreeMap::new(),
            clock: Span::ZERO,
            given: Vec::new(),
            held: VecDeque::new(),
        }
    }

    pub fn now(&self) -> Instant {
        Instant::ZERO + self.clock
    }

    pub fn record(&mut self, record: O::Record) {
        let mut hasher = FxHasher::default();
        (self.journal, &record).hash(&mut hasher);
        self.journal = hasher.finish();
        self.records.push(record);
    }

    /// How many records wait for the disk.
    pub fn waiting(&self) -> usize {
        self.held.iter().filter(|held| matches!(held, Held::Record(..))).count()
    }

    /// Whether what is sent now waits for the disk.
    pub fn holds(&self) -> bool {
        self.held.iter().any(|held| matches!(held, Held::Record(_, true)))
    }

    /// It is gone, and leaves its journal: of what waits for the disk only the first `kept` records.
    pub fn fail(&mut self, kept: usize) {
        let held = std::mem::take(&mut self.held);
        let records = held.into_iter().filter_map(|held| match held {
            Held::Record(record, _) => Some(record),
            Held::Send(..) | Held::Decided(_) => None,
        });
        records.take(kept).for_each(|record| self.record(record));
        self.armed.clear();
        self.given.clear();
        self.up = false;
    }

    /// It comes back from its journal.
    pub fn restart(&mut self, node: usize, setup: &Setup<O::Parameters>) {
        self.up = true;
        self.lives += 1;
        self.journal ^= u64::from(self.lives).rotate_right(8);
        let identity = Identity { process: process(node), incarnation: self.lives };
        self.order = O::open(identity, setup);
        for record in &self.records {
            self.order.replay(record.clone());
            while let Some(step) = self.order.step(Instant::ZERO) {
                if let Step::Decided(decided) = step {
                    self.given.extend(decided.values.iter().cloned());
                }
            }
        }
    }
}

/// All but its journal; of one that is gone nothing else.
impl<O: Order<Value = Letter>> Hash for Node<O> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if !self.up {
            return (self.journal, self.clock).hash(state);
        }
        (&self.order, &self.armed, self.clock, &self.given, self.held.len()).hash(state);
        for held in &self.held {
            match held {
                Held::Record(record, holds) => (holds, record).hash(state),
                Held::Send(to, message) => (2_u8, to, message).hash(state),
                Held::Decided(decided) => (3_u8, decided.position, decided.digest).hash(state),
            }
        }
    }
}

/// Copied only when it is changed, and hashed once: most steps change one replica, and a search keeps many worlds.
#[derive(Clone)]
pub struct Shared<T> {
    inner: Arc<T>,
    hash: OnceLock<u64>,
}

impl<T> Shared<T> {
    pub fn new(inner: T) -> Shared<T> {
        Shared { inner: Arc::new(inner), hash: OnceLock::new() }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.hash.take();
        Arc::make_mut(&mut self.inner)
    }
}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hash = self.hash.get_or_init(|| {
            let mut hasher = FxHasher::default();
            self.inner.hash(&mut hasher);
            hasher.finish()
        });
        state.write_u64(*hash);
    }
}
