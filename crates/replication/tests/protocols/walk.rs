//! Orders in which messages may arrive, timers fire and replicas crash, in a small world that is walked at
//! random, state by state. Disks are instant unless a world says otherwise; what remains is the protocol.
//! `ISOCHRONE_STATES` says how many states, for as long a walk as one likes; `ISOCHRONE_TRACE` tells every step.

use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, CommandId, Effect, Effects, Identity, Instant, KeyspaceId, Lane, NodeId, Outbox, PartitionId,
    ProcessId, Random, ReplicaId, Role, Span, Stamp,
};
use isochrone_replication::order::{self, Member, Order, Ordered, Takes};
use rustc_hash::{FxHashSet, FxHasher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What is ordered: a number that writes one key.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Letter {
    pub number: u8,
    key: Blob,
}

impl Letter {
    pub fn new(number: u8, key: u8) -> Letter {
        Letter { number, key: Blob::from(vec![key]) }
    }
}

impl Ordered for Letter {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(&self.key, Access::Update));
    }
    fn id(&self) -> Option<CommandId> {
        let client = Identity { process: process(9), incarnation: 1 }.into();
        Some(CommandId { client, sequence: u64::from(self.number) })
    }
    fn reads(&self) -> bool {
        false
    }
}

pub fn process(node: usize) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node as u16), keyspace, partition, role: Role(0), instance: 0 }
}

/// Replicas, what is on the way between them, and what may still happen.
#[derive(Clone)]
pub struct World<O: Order<Value = Letter>> {
    setup: order::Setup<O::Parameters>,
    orders: Vec<O>,
    records: Vec<Vec<O::Record>>,
    lives: Vec<u32>,
    armed: Vec<BTreeSet<O::Timer>>,
    /// How often the clock has moved on at each replica.
    hours: Vec<u64>,
    /// Receiver, sender, message, by its hash. A copy of what is on the way already adds nothing.
    network: BTreeMap<u64, (usize, usize, O::Message)>,
    /// What each place was decided to hold: its digest, and its first letter's number.
    decided: BTreeMap<u64, (u64, u8)>,
    /// What each replica was given for each key, in order.
    given: Vec<Vec<Letter>>,
    /// What waits for a disk, where disks are slow.
    held: Vec<VecDeque<Held<O>>>,
    /// How much the clock moves on when a timer fires.
    hour: Span,
    /// Whether records are durable only when a disk was waited for; a crash then keeps some of them.
    pub slow_disks: bool,
    /// What is kept of messages to clients, and what was: the sender and the message.
    pub keep: fn(&O::Message) -> bool,
    pub told: Vec<(usize, O::Message)>,
    /// What must hold after every input, beside what holds for all.
    pub watch: fn(&World<O>),
    /// Values still to be proposed, by whoever takes them.
    pub values: Vec<Letter>,
    /// Timers that may still fire, for each replica.
    pub timers: Vec<u8>,
    /// Crashes that may still happen.
    pub crashes: u8,
    /// Messages that may still be lost.
    pub losses: u8,
}

/// An effect that waits for the records before it, or is one.
#[derive(Clone)]
enum Held<O: Order<Value = Letter>> {
    Record(O::Record),
    Send(ProcessId, O::Message),
}

/// What may happen next.
#[derive(Clone, Debug)]
enum Step<T> {
    Deliver(u64),
    Lose(u64),
    Propose(usize),
    Fire(usize, T),
    /// A disk has written what was given to it.
    Sync(usize),
    /// With so many of the records that were not waited for.
    Crash(usize, usize),
}

impl<O: Order<Value = Letter>> World<O> {
    /// Each firing of a timer lets an hour go by, so that whoever waits has waited long enough.
    pub fn new(replicas: usize, parameters: O::Parameters) -> World<O> {
        World::with_hour(replicas, parameters, Span::from_secs(3_600))
    }

    /// A world in which an hour has this length.
    pub fn with_hour(replicas: usize, parameters: O::Parameters, hour: Span) -> World<O> {
        let member = |node: usize| Member { replica: ReplicaId(node as u8), process: process(node) };
        let (members, preferred) = ((0..replicas).map(member).collect(), Some(ReplicaId(0)));
        let setup = order::Setup { members, preferred, parameters };
        let open = |node| O::open(Identity { process: process(node), incarnation: 1 }, &setup);
        let orders = (0..replicas).map(open).collect();
        let mut world = World {
            setup,
            orders,
            records: vec![Vec::new(); replicas],
            lives: vec![1; replicas],
            armed: vec![BTreeSet::new(); replicas],
            hours: vec![0; replicas],
            network: BTreeMap::new(),
            decided: BTreeMap::new(),
            given: vec![Vec::new(); replicas],
            held: vec![VecDeque::new(); replicas],
            hour,
            slow_disks: false,
            keep: |_| false,
            told: Vec::new(),
            watch: |_| {},
            values: Vec::new(),
            timers: vec![0; replicas],
            crashes: 0,
            losses: 0,
        };
        for node in 0..replicas {
            world.act(node, |order, effects| order.start(effects));
        }
        world
    }

    /// The replicas.
    pub fn orders(&self) -> &[O] {
        &self.orders
    }

    /// Whether a replica was given this letter.
    pub fn was_given(&self, node: usize, number: u8) -> bool {
        self.given[node].iter().any(|letter| letter.number == number)
    }

    /// The letter at a place, once it is decided and executed somewhere.
    pub fn at(&self, position: u64) -> Option<u8> {
        self.decided.get(&position).map(|(_, number)| *number)
    }

    /// The wall clock of a replica.
    pub fn wall(&self, node: usize) -> u64 {
        (self.hour * self.hours[node]).as_nanos()
    }

    /// Puts a message on its way, from a client or in the name of a replica.
    pub fn send(&mut self, to: usize, from: usize, message: O::Message) {
        let sent = (to, from, message);
        let mut hasher = DefaultHasher::new();
        sent.hash(&mut hasher);
        self.network.insert(hasher.finish(), sent);
    }

    /// Before the walk: time passes everywhere, and everything arrives.
    pub fn settle(&mut self, hours: u64) {
        for _ in 0..hours {
            for node in 0..self.orders.len() {
                self.timers[node] += 1;
                let timers: Vec<_> = self.armed[node].iter().cloned().collect();
                if let Some(timer) = timers.into_iter().next() {
                    self.step(Step::Fire(node, timer));
                }
            }
            self.deliver();
        }
    }

    /// Before the walk: all timers of a replica fire.
    pub fn fire(&mut self, node: usize) {
        for timer in self.armed[node].clone() {
            self.timers[node] += 1;
            self.step(Step::Fire(node, timer));
        }
    }

    /// Before the walk: a replica is given the next value.
    pub fn propose(&mut self, node: usize) {
        self.step(Step::Propose(node));
    }

    /// Before the walk: a replica crashes and comes back with all it has recorded.
    pub fn crash(&mut self, node: usize) {
        self.crashes += 1;
        self.step(Step::Crash(node, usize::MAX));
    }

    /// Before the walk: everything that is on the way arrives.
    pub fn deliver(&mut self) {
        loop {
            (0..self.orders.len()).for_each(|node| self.sync(node));
            let Some(key) = self.network.keys().next().copied() else { return };
            self.step(Step::Deliver(key));
        }
    }

    /// One input and all that it says to itself.
    fn act(&mut self, node: usize, input: impl FnOnce(&mut O, &mut Effects<O>)) {
        let mut own = VecDeque::new();
        self.turn(node, input, &mut own);
        self.hear_itself(node, own);
    }

    fn hear_itself(&mut self, node: usize, mut own: VecDeque<O::Message>) {
        while let Some(message) = own.pop_front() {
            let mut more = VecDeque::new();
            self.turn(node, |order, effects| order.receive(process(node), message, effects), &mut more);
            own.append(&mut more);
        }
        self.agree();
        (self.watch)(self);
    }

    fn turn(
        &mut self,
        node: usize,
        input: impl FnOnce(&mut O, &mut Effects<O>),
        own: &mut VecDeque<O::Message>,
    ) {
        let now = Instant::ZERO + self.hour * self.hours[node];
        let mut outbox = Outbox::new(process(node), Random::seeded(1));
        let effects = outbox.input(now, Stamp::ZERO + self.hour * self.hours[node]);
        let order = &mut self.orders[node];
        input(order, effects);
        order.settle(effects);
        order.check();
        while let Some(step) = order.step(now) {
            let order::Step::Decided(decided) = step else { continue };
            let number = decided.values.first().map_or(0, |letter| letter.number);
            let known = *self.decided.entry(decided.position).or_insert((decided.digest, number));
            assert_eq!(known.0, decided.digest, "two values for place {}", decided.position);
            self.given[node].extend(decided.values.iter().cloned());
        }
        for effect in outbox.drain() {
            let waits = self.held[node].iter().any(|held| matches!(held, Held::Record(_)));
            match effect {
                Effect::Record { record, .. } if self.slow_disks => {
                    self.held[node].push_back(Held::Record(record));
                }
                Effect::Record { record, .. } => self.records[node].push(record),
                Effect::Send { to, message, lane: Lane::Held } if waits => {
                    self.held[node].push_back(Held::Send(to, message));
                }
                Effect::Send { to, message, .. } if to == process(node) => own.push_back(message),
                Effect::Send { to, message, .. } => self.leave(node, to, message),
                Effect::Arm { timer, .. } => {
                    self.armed[node].insert(timer);
                }
                Effect::Disarm { timer } => {
                    self.armed[node].remove(&timer);
                }
                _ => {}
            }
        }
    }

    fn leave(&mut self, node: usize, to: ProcessId, message: O::Message) {
        let to = usize::from(to.node.0);
        if to < self.orders.len() {
            self.send(to, node, message);
        } else if (self.keep)(&message) {
            self.told.push((node, message));
        }
    }

    /// The disk has written everything, and what waited for it leaves.
    fn sync(&mut self, node: usize) {
        let mut own = VecDeque::new();
        for held in std::mem::take(&mut self.held[node]) {
            match held {
                Held::Record(record) => self.records[node].push(record),
                Held::Send(to, message) if to == process(node) => own.push_back(message),
                Held::Send(to, message) => self.leave(node, to, message),
            }
        }
        self.hear_itself(node, own);
    }

    /// All replicas are given the values of each key in one order, each once at first.
    fn agree(&self) {
        let mut keys: Vec<&Blob> = self.given.iter().flatten().map(|letter| &letter.key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let order = |given: &Vec<Letter>| {
                let mut first = Vec::new();
                for letter in given.iter().filter(|letter| letter.key == *key) {
                    if !first.contains(&letter.number) {
                        first.push(letter.number);
                    }
                }
                first
            };
            let orders: Vec<Vec<u8>> = self.given.iter().map(order).collect();
            let longest = orders.iter().max_by_key(|order| order.len()).cloned().unwrap_or_default();
            for order in &orders {
                assert!(longest.starts_with(order), "two orders of one key: {orders:?}");
            }
        }
    }

    fn steps(&self) -> Vec<Step<O::Timer>> {
        let mut steps: Vec<_> = self.network.keys().map(|key| Step::Deliver(*key)).collect();
        if self.losses > 0 {
            steps.extend(self.network.keys().map(|key| Step::Lose(*key)));
        }
        for node in 0..self.orders.len() {
            if !self.values.is_empty() && self.orders[node].takes() == Takes::Here {
                steps.push(Step::Propose(node));
            }
            if self.timers[node] > 0 {
                steps.extend(self.armed[node].iter().map(|timer| Step::Fire(node, timer.clone())));
            }
            let records = self.held[node].iter().filter(|held| matches!(held, Held::Record(_))).count();
            if records > 0 {
                steps.push(Step::Sync(node));
            }
            if self.crashes > 0 {
                steps.extend((0..=records).map(|kept| Step::Crash(node, kept)));
            }
        }
        steps
    }

    /// A step in words.
    fn tell(&self, step: &Step<O::Timer>) -> String {
        match step {
            Step::Deliver(key) | Step::Lose(key) => {
                let how = if matches!(step, Step::Lose(_)) { "lost" } else { "to" };
                let (to, from, message) = &self.network[key];
                format!("{from} {how} {to}: {message:?}")
            }
            other => format!("{other:?}"),
        }
    }

    fn step(&mut self, step: Step<O::Timer>) {
        match step {
            Step::Deliver(key) => {
                if let Some((to, from, message)) = self.network.remove(&key) {
                    self.act(to, |order, effects| order.receive(process(from), message, effects));
                }
            }
            Step::Lose(key) => {
                self.losses -= 1;
                self.network.remove(&key);
            }
            Step::Propose(node) => {
                let letter = self.values.remove(0);
                let _ = self.orders[node].propose(letter, 1, Instant::ZERO);
                self.act(node, |_, _| {});
            }
            Step::Fire(node, timer) => {
                self.timers[node] -= 1;
                self.hours[node] += 1;
                self.armed[node].remove(&timer);
                self.act(node, |order, effects| order.expire(timer, effects));
            }
            Step::Sync(node) => self.sync(node),
            Step::Crash(node, kept) => {
                self.crashes -= 1;
                let records =
                    std::mem::take(&mut self.held[node]).into_iter().filter_map(|held| match held {
                        Held::Record(record) => Some(record),
                        Held::Send(..) => None,
                    });
                self.records[node].extend(records.take(kept));
                self.lives[node] += 1;
                let identity = Identity { process: process(node), incarnation: self.lives[node] };
                let mut order = O::open(identity, &self.setup);
                self.armed[node].clear();
                let mut given = Vec::new();
                for record in &self.records[node] {
                    order.replay(record.clone());
                    while let Some(step) = order.step(Instant::ZERO) {
                        if let order::Step::Decided(decided) = step {
                            given.extend(decided.values.iter().cloned());
                        }
                    }
                }
                (self.orders[node], self.given[node]) = (order, given);
                self.act(node, |order, effects| order.start(effects));
            }
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        (&self.orders, self.network.keys().collect::<Vec<_>>(), &self.decided).hash(&mut hasher);
        (&self.values, &self.timers, self.crashes, self.losses).hash(&mut hasher);
        self.held.iter().for_each(|held| held.len().hash(&mut hasher));
        hasher.finish()
    }

    /// How many values each replica was given.
    pub fn given(&self) -> Vec<usize> {
        self.given.iter().map(Vec::len).collect()
    }
}

/// A walk that is longer than this has no end: every message leads to another.
const WALK_MAX: usize = 20_000;

/// Walks at random from the start until `bound` different states were seen, or many walks in a row have
/// shown nothing new: a small world is then as good as exhausted. How many states there were, and how many
/// walks ended with every replica having been given something.
pub fn explore<O: Order<Value = Letter>>(world: &World<O>, bound: usize) -> (usize, usize) {
    let mut complete = 0;
    let states = explore_and_look(world, bound, |world| {
        complete += usize::from(world.given().iter().all(|count| *count > 0));
    });
    (states, complete)
}

/// The same, and a look at the end of each walk. How many states there were.
pub fn explore_and_look<O: Order<Value = Letter>>(
    world: &World<O>,
    bound: usize,
    mut look: impl FnMut(&World<O>),
) -> usize {
    let bound = std::env::var("ISOCHRONE_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(bound);
    let trace = std::env::var_os("ISOCHRONE_TRACE").is_some();
    let mut random = Random::seeded(1);
    let mut seen = FxHashSet::default();
    let mut idle = 0;
    while seen.len() < bound && idle < 2_000 {
        let (mut at, before) = (world.clone(), seen.len());
        let mut length = 0;
        if trace {
            eprintln!("a walk:");
        }
        loop {
            let steps = at.steps();
            if steps.is_empty() {
                break;
            }
            length += 1;
            assert!(length < WALK_MAX, "nobody comes to rest, though no timer fires");
            let step = steps[random.below(steps.len() as u64) as usize].clone();
            if trace {
                eprintln!("{}", at.tell(&step));
            }
            at.step(step);
            seen.insert(at.fingerprint());
        }
        look(&at);
        idle = if seen.len() == before { idle + 1 } else { 0 };
    }
    seen.len()
}
