//! One process in the hands of a test: its journal, what waits for that, its timers; and a machine that counts.

use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, Effect, Effects, Export, Fact, Footprint, Identity, Instant, KeyspaceId, Lane, Malformed,
    Mark as _, NodeId, Outbox, PartitionId, Process, ProcessId, Random, Role, Stamp, StateMachine, Ticket,
    wire,
};
use isochrone_replication::MessageOf;
use isochrone_replication::curp::primary::Family;
use serde::{Deserialize, Serialize};

use rustc_hash::FxHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// Adds one to a key, or reads it; both answer with the count. Or the same of two keys, which answers with both counts. Or
/// a step of a move of the key.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Count {
    Add(Blob),
    Read(Blob),
    /// Adds one to each.
    AddBoth(Blob, Blob),
    /// Reads one key, and adds one to another where the first is even: elsewise it fails, and changes nothing.
    AddIf {
        read: Blob,
        add: Blob,
    },
    /// The key goes, and its count is the answer. By a planted bug it is served as before all the same.
    Release {
        key: Blob,
        serves: bool,
    },
    /// The key comes, with its count.
    Install {
        key: Blob,
        count: u64,
    },
}

/// The answer where the key is not.
pub const ELSEWHERE: u64 = u64::MAX;

impl Count {
    pub fn add(key: u8) -> Count {
        Count::Add(Blob::from(vec![key]))
    }

    pub fn read(key: u8) -> Count {
        Count::Read(Blob::from(vec![key]))
    }

    pub fn add_both(first: u8, second: u8) -> Count {
        Count::AddBoth(Blob::from(vec![first]), Blob::from(vec![second]))
    }

    pub fn add_if(read: u8, add: u8) -> Count {
        Count::AddIf { read: Blob::from(vec![read]), add: Blob::from(vec![add]) }
    }

    /// The first of its keys, or the only one.
    pub fn key(&self) -> u8 {
        match self {
            Count::Add(key) | Count::Read(key) | Count::AddBoth(key, _) => key[0],
            Count::AddIf { read: key, .. } | Count::Release { key, .. } | Count::Install { key, .. } => {
                key[0]
            }
        }
    }

    /// The other, if there is one.
    fn other(&self) -> Option<u8> {
        match self {
            Count::AddBoth(_, key) | Count::AddIf { add: key, .. } => Some(key[0]),
            _ => None,
        }
    }

    /// The keys that it may add one to.
    pub fn adds(&self) -> impl Iterator<Item = u8> {
        let (first, second) = match self {
            Count::Add(_) => (Some(self.key()), None),
            Count::AddBoth(..) => (Some(self.key()), self.other()),
            Count::AddIf { .. } => (None, self.other()),
            Count::Read(_) | Count::Release { .. } | Count::Install { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// What an answer says: of each key whether one was added, and the count then.
    pub fn says(&self, reply: u64) -> Vec<(u8, bool, u64)> {
        let (first, second) = (reply >> 32, reply & u64::from(u32::MAX));
        match (self, self.other()) {
            (Count::AddBoth(..), Some(other)) => vec![(self.key(), true, first), (other, true, second)],
            (Count::AddIf { .. }, Some(other)) => {
                vec![(self.key(), false, first), (other, first % 2 == 0, second)]
            }
            _ => vec![(self.key(), matches!(self, Count::Add(_)), reply)],
        }
    }

    /// Whether it is a step of a move: no witness is asked, and only a safe answer will do.
    pub fn moves(&self) -> bool {
        matches!(self, Count::Release { .. } | Count::Install { .. })
    }
}

impl Footprint for Count {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        match self {
            Count::Add(key) => visit(Touch::Key(key, Access::Update)),
            Count::Read(key) => visit(Touch::Key(key, Access::Read)),
            Count::AddBoth(first, second) => {
                visit(Touch::Key(first, Access::Update));
                visit(Touch::Key(second, Access::Update));
            }
            Count::AddIf { read, add } => {
                visit(Touch::Key(read, Access::Read));
                visit(Touch::Key(add, Access::Update));
            }
            Count::Release { .. } | Count::Install { .. } => visit(Touch::All(Access::Update)),
        }
    }
}

/// Counts, and the keys that have gone elsewhere.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Counts(pub BTreeMap<u8, u64>, BTreeSet<u8>);

#[derive(Clone)]
pub struct View(Blob);

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        (index == 0).then(|| self.0.clone())
    }
}

impl StateMachine for Counts {
    type Command = Count;
    type Reply = u64;
    type View = View;
    type Before = Self;

    fn apply(&mut self, command: &Count) -> u64 {
        let key = command.key();
        let mut add = |key: u8, by: u64| {
            let count = self.0.get(&key).copied().unwrap_or(0) + by;
            if by > 0 {
                self.0.insert(key, count);
            }
            count
        };
        match command {
            Count::AddBoth(..) => {
                let first = add(key, 1);
                first << 32 | command.other().map_or(0, |key| add(key, 1))
            }
            Count::AddIf { .. } => {
                let read = add(key, 0);
                read << 32 | command.other().map_or(0, |key| add(key, u64::from(read % 2 == 0)))
            }
            Count::Release { serves, .. } => {
                if !serves {
                    self.1.insert(key);
                }
                self.0.remove(&key).unwrap_or(0)
            }
            Count::Install { count, .. } => {
                self.1.remove(&key);
                self.0.insert(key, *count);
                *count
            }
            Count::Add(_) | Count::Read(_) if self.1.contains(&key) => ELSEWHERE,
            Count::Add(_) | Count::Read(_) => {
                let count = self.0.entry(key).or_default();
                *count += u64::from(matches!(command, Count::Add(_)));
                *count
            }
        }
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }

    fn reads_only(command: &Count) -> bool {
        matches!(command, Count::Read(_))
    }

    fn read(&self, command: &Count) -> Option<u64> {
        let gone = self.1.contains(&command.key());
        let count = || if gone { ELSEWHERE } else { self.0.get(&command.key()).copied().unwrap_or(0) };
        Self::reads_only(command).then(count)
    }

    fn export(&self) -> View {
        View(Blob::from(wire::encode(self)))
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        *self = wire::decode(chunk).unwrap();
        Ok(())
    }
}

pub type Wired = MessageOf<Family, Count, u64>;

pub fn process(node: u16, role: Role) -> ProcessId {
    ProcessId { node: NodeId(node), keyspace: KeyspaceId(1), partition: PartitionId(0), role, instance: 0 }
}

/// Copied only when it is changed, since a walk over all orders keeps many that are the same.
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

impl<P: Process<Message = Wired> + Hash> Shared<Actor<P>> {
    /// Of the process alone, without its journal and timers.
    pub fn hash_of_process(&self) -> u64 {
        *self.hash.get_or_init(|| {
            let mut hasher = FxHasher::default();
            self.process.hash(&mut hasher);
            hasher.finish()
        })
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
        self.inner.hash(state);
    }
}

/// A process, its journal and what waits for that.
pub struct Actor<P: Process<Message = Wired>> {
    pub id: ProcessId,
    incarnation: u32,
    pub setup: P::Setup,
    pub process: P,
    journal: Vec<P::Record>,
    durable: usize,
    /// What is made from here on waits for so many records.
    barrier: usize,
    held: VecDeque<(usize, ProcessId, Wired)>,
    timers: BTreeMap<P::Timer, Instant>,
    pub facts: Vec<Fact>,
    /// What administration came to.
    pub answers: Vec<(Ticket, P::Outcome)>,
}

impl<P: Process<Message = Wired> + Clone> Clone for Actor<P> {
    fn clone(&self) -> Actor<P> {
        Actor {
            id: self.id,
            incarnation: self.incarnation,
            setup: self.setup.clone(),
            process: self.process.clone(),
            journal: self.journal.clone(),
            durable: self.durable,
            barrier: self.barrier,
            held: self.held.clone(),
            timers: self.timers.clone(),
            facts: self.facts.clone(),
            answers: Vec::new(),
        }
    }
}

/// What it is and has on its way; of its journal how long it is.
impl<P: Process<Message = Wired> + Hash> Hash for Actor<P> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.process, self.journal.len(), self.durable, self.barrier, &self.held).hash(state);
        self.timers.keys().for_each(|timer| timer.hash(state));
    }
}

impl<P: Process<Message = Wired>> Actor<P> {
    pub fn new(id: ProcessId, setup: P::Setup) -> Actor<P> {
        let identity = Identity { process: id, incarnation: 1 };
        Actor {
            id,
            incarnation: 1,
            process: P::open(identity, &setup),
            setup,
            journal: Vec::new(),
            durable: 0,
            barrier: 0,
            held: VecDeque::new(),
            timers: BTreeMap::new(),
            facts: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Gives it an input, then lets it settle; what may leave at once.
    pub fn input(
        &mut self,
        now: Instant,
        input: impl FnOnce(&mut P, &mut Effects<P>),
    ) -> Vec<(ProcessId, Wired)> {
        let mut outbox = Outbox::new(self.id, Random::seeded(u64::from(self.id.node.0)));
        let mut out = Vec::new();
        input(&mut self.process, outbox.input(now, Stamp::ZERO));
        self.drain(&mut outbox, now, &mut out);
        self.process.settle(outbox.input(now, Stamp::ZERO));
        self.drain(&mut outbox, now, &mut out);
        self.process.check();
        out
    }

    fn drain(&mut self, outbox: &mut Outbox<P>, now: Instant, out: &mut Vec<(ProcessId, Wired)>) {
        for effect in outbox.drain() {
            match effect {
                Effect::Record { record, haste } => {
                    self.journal.push(record);
                    if haste.holds() {
                        self.barrier = self.journal.len();
                    }
                }
                Effect::Send { to, message, lane, .. } => match lane {
                    Lane::Held if self.barrier > self.durable => {
                        self.held.push_back((self.barrier, to, message));
                    }
                    _ => out.push((to, message)),
                },
                Effect::Arm { timer, after } => drop(self.timers.insert(timer, now + after)),
                Effect::Disarm { timer } => drop(self.timers.remove(&timer)),
                Effect::Mark(mark) => self.facts.extend(mark.fact()),
                Effect::Complete { ticket, outcome, .. } => self.answers.push((ticket, outcome)),
                Effect::Emit { .. } => {}
            }
        }
    }

    pub fn flush(&mut self) -> Vec<(ProcessId, Wired)> {
        self.durable = self.journal.len();
        let mut out = Vec::new();
        while let Some((_, to, message)) = self.held.pop_front_if(|(barrier, ..)| *barrier <= self.durable) {
            out.push((to, message));
        }
        out
    }

    /// Whether anything waits for its disk.
    pub fn writes(&self) -> bool {
        !self.held.is_empty()
    }

    /// It loses what is not durable, and comes back.
    pub fn restart(&mut self, now: Instant) -> Vec<(ProcessId, Wired)> {
        self.incarnation += 1;
        let identity = Identity { process: self.id, incarnation: self.incarnation };
        self.journal.truncate(self.durable);
        self.barrier = self.durable;
        self.held.clear();
        self.timers.clear();
        self.process = P::open(identity, &self.setup);
        for record in &self.journal {
            self.process.replay(record.clone());
        }
        self.input(now, |process, effects| process.start(effects))
    }

    pub fn due(&mut self, now: Instant) -> Option<P::Timer> {
        let timer = self.timers.iter().find(|(_, at)| **at <= now)?.0.clone();
        self.timers.remove(&timer);
        Some(timer)
    }
}
