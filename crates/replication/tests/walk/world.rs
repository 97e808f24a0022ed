//! A small world: replicas of one group, whose messages may arrive in any order, whose timers may fire at any time and
//! who may crash. Disks are instant unless a world says otherwise; what remains is the protocol.

use super::network::Network;
use super::node::{Held, Node, Shared};
use super::steps::Step;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, CommandId, Effect, Effects, Identity, Instant, KeyspaceId, Lane, NodeId, Outbox, PartitionId,
    ProcessId, Random, ReplicaId, Role, Span, Stamp,
};
use isochrone_replication::order::{self, Decided, Member, Order, Ordered};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

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
    pub(super) setup: order::Setup<O::Parameters>,
    pub(super) nodes: Vec<Shared<Node<O>>>,
    pub(super) network: Network<O::Message>,
    /// What each place was decided to hold: its digest, and its first letter's number.
    pub(super) decided: BTreeMap<u64, (u64, u8)>,
    /// The letters that some replica has answered its client about.
    pub(super) answered: BTreeSet<u8>,
    /// How much the clock of a replica moves on when a timer of it fires.
    pub(super) hour: Span,
    /// Whether time goes by itself, and timers fire when they are due.
    pub(super) in_time: bool,
    /// Whether it moves on everywhere then.
    pub one_clock: bool,
    pub disks: Disks,
    /// What never arrives, until time goes by itself.
    pub loses: fn(&O::Message) -> bool,
    /// What is kept of messages to clients, and what was: the sender and the message.
    pub keep: fn(&O::Message) -> bool,
    pub told: Vec<(usize, O::Message)>,
    /// What must hold after every input, beside what holds for all.
    pub watch: fn(&World<O>),
    /// Values still to be proposed, by whoever takes them.
    pub values: Vec<Letter>,
    /// Copies of values that clients have sent to each replica, which come in any order.
    pub copies: Vec<Vec<Letter>>,
    /// What everybody is to have been given in the end.
    pub letters: Vec<Letter>,
    /// Who is asked to take them.
    pub proposers: Vec<usize>,
    /// Whether they fire only when all crashes have happened.
    pub patient: bool,
    /// Whether all timers of a replica fire together, which counts as one.
    pub together: bool,
    /// Timers that may still fire, for each replica.
    pub timers: Vec<u8>,
    /// Crashes that may still happen.
    pub crashes: u8,
    /// Whether who has crashed comes back at once, or when all else is over.
    pub back_at_once: bool,
    /// Who may crash.
    pub mortals: Vec<usize>,
    /// Messages that may still be lost.
    pub losses: u8,
}

/// When records are durable.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Disks {
    /// At once.
    Instant,
    /// When the disk was waited for. A crash keeps some of what was not waited for.
    Slow,
    /// So, where a crash may still come; elsewhere at once.
    SlowForMortals,
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
        let mut world = World {
            nodes: (0..replicas).map(|node| Shared::new(Node::<O>::new(node, &setup))).collect(),
            setup,
            network: Network::new(),
            decided: BTreeMap::new(),
            answered: BTreeSet::new(),
            hour,
            in_time: false,
            one_clock: false,
            disks: Disks::Instant,
            loses: |_| false,
            keep: |_| false,
            told: Vec::new(),
            watch: |_| {},
            values: Vec::new(),
            copies: vec![Vec::new(); replicas],
            letters: Vec::new(),
            proposers: (0..replicas).collect(),
            patient: false,
            together: false,
            timers: vec![0; replicas],
            crashes: 0,
            back_at_once: true,
            mortals: (0..replicas).collect(),
            losses: 0,
        };
        for node in 0..replicas {
            world.act(node, |order, effects| order.start(effects));
        }
        world
    }

    /// These are to be proposed by these.
    pub fn asks(&mut self, numbers: &[u8], proposers: &[usize]) {
        self.values = numbers.iter().map(|number| Letter::new(*number, 0)).collect();
        (self.letters, self.proposers) = (self.values.clone(), proposers.to_vec());
    }

    /// How many replicas there are.
    pub fn replicas(&self) -> usize {
        self.nodes.len()
    }

    /// What a replica has in its journal.
    pub fn records(&self, node: usize) -> &[O::Record] {
        &self.nodes[node].records
    }

    pub fn order(&self, node: usize) -> &O {
        &self.nodes[node].order
    }

    /// The replicas.
    pub fn orders(&self) -> impl Iterator<Item = &O> {
        self.nodes.iter().map(|node| &node.order)
    }

    /// Whether a replica was given this letter.
    pub fn was_given(&self, node: usize, number: u8) -> bool {
        self.nodes[node].given.iter().any(|letter| letter.number == number)
    }

    /// The letter at a place, once it is decided and executed somewhere.
    pub fn at(&self, position: u64) -> Option<u8> {
        self.decided.get(&position).map(|(_, number)| *number)
    }

    /// The wall clock of a replica.
    pub fn wall(&self, node: usize) -> u64 {
        self.nodes[node].clock.as_nanos()
    }

    /// Links keep order from now on, as connections do. Nothing may be on its way.
    pub fn keep_order(&mut self) {
        assert!(self.network.is_empty());
        self.network.in_order = true;
    }

    /// Puts a message on its way, from a client or in the name of a replica.
    pub fn send(&mut self, to: usize, from: usize, message: O::Message) {
        self.network.send(to, from, message);
    }

    /// Before the walk: time passes everywhere, and everything arrives.
    pub fn settle(&mut self, hours: u64) {
        for _ in 0..hours {
            for node in 0..self.nodes.len() {
                self.timers[node] += 1;
                if let Some(timer) = self.nodes[node].armed.keys().next().cloned() {
                    self.step(Step::Fire(node, timer));
                }
            }
            self.deliver();
        }
    }

    /// Before the walk: all timers of a replica fire.
    pub fn fire(&mut self, node: usize) {
        for timer in self.nodes[node].armed.clone().into_keys() {
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
            (0..self.nodes.len()).for_each(|node| self.sync(node));
            let Some(key) = self.network.next().next() else { return };
            self.step(Step::Deliver(key));
        }
    }

    /// One input and all that it says to itself.
    pub(super) fn act(&mut self, node: usize, input: impl FnOnce(&mut O, &mut Effects<O>)) {
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
        let slow = self.is_slow(node);
        let at = &mut *self.nodes[node];
        let (now, clock) = (at.now(), at.clock);
        let mut outbox = Outbox::new(process(node), Random::seeded(1));
        let effects = outbox.input(now, Stamp::ZERO + clock);
        input(&mut at.order, effects);
        at.order.settle(effects);
        at.order.check();
        let mut decided = Vec::new();
        while let Some(step) = at.order.step(now) {
            let order::Step::Decided(step) = step else { continue };
            at.given.extend(step.values.iter().cloned());
            decided.push(step);
        }
        for effect in outbox.drain() {
            let at = &mut *self.nodes[node];
            match effect {
                Effect::Record { record, haste } if slow => {
                    at.held.push_back(Held::Record(record, haste.holds()));
                }
                Effect::Record { record, .. } => at.record(record),
                Effect::Send { to, message, lane: Lane::Held, .. } if at.holds() => {
                    at.held.push_back(Held::Send(to, message));
                }
                Effect::Send { to, message, .. } if to == process(node) => own.push_back(message),
                Effect::Send { to, message, .. } => self.leave(node, to, message),
                Effect::Arm { timer, after } => {
                    at.armed.insert(timer, if self.in_time { now + after } else { Instant::ZERO });
                }
                Effect::Disarm { timer } => {
                    at.armed.remove(&timer);
                }
                _ => {}
            }
        }
        let at = &mut *self.nodes[node];
        match !O::AHEAD && at.holds() {
            // Until then nobody is told, and a crash undoes it.
            true => at.held.extend(decided.into_iter().map(Held::Decided)),
            false => decided.iter().for_each(|decided| self.show(decided)),
        }
    }

    /// What is decided shows: it stays so.
    fn show(&mut self, decided: &Decided<Letter>) {
        let number = decided.values.first().map_or(0, |letter| letter.number);
        let known = *self.decided.entry(decided.position).or_insert((decided.digest, number));
        assert_eq!(known.0, decided.digest, "two values for place {}", decided.position);
        if decided.answer {
            self.answered.extend(decided.values.iter().map(|letter| letter.number));
        }
    }

    fn is_slow(&self, node: usize) -> bool {
        match self.disks {
            Disks::Instant => false,
            Disks::Slow => true,
            Disks::SlowForMortals => self.crashes > 0 && self.mortals.contains(&node),
        }
    }

    fn leave(&mut self, node: usize, to: ProcessId, message: O::Message) {
        if (self.loses)(&message) && !self.in_time {
            return;
        }
        let to = usize::from(to.node.0);
        if to < self.nodes.len() {
            if !self.nodes[to].up {
                return;
            }
            self.send(to, node, message);
        } else if (self.keep)(&message) {
            self.told.push((node, message));
        }
    }

    pub(super) fn restart(&mut self, node: usize) {
        self.nodes[node].restart(node, &self.setup);
        self.act(node, |order, effects| order.start(effects));
    }

    pub(super) fn ask(&mut self, node: usize, letter: Letter) {
        // Refused where a queue is full, which none is here.
        let _ = self.nodes[node].order.propose(letter, 1, Instant::ZERO);
        self.act(node, |_, _| {});
    }

    /// The disk has written everything, and what waited for it leaves.
    pub(super) fn sync(&mut self, node: usize) {
        let mut own = VecDeque::new();
        if self.nodes[node].held.is_empty() {
            return;
        }
        for held in std::mem::take(&mut self.nodes[node].held) {
            match held {
                Held::Record(record, _) => self.nodes[node].record(record),
                Held::Decided(decided) => self.show(&decided),
                Held::Send(to, message) if to == process(node) => own.push_back(message),
                Held::Send(to, message) => self.leave(node, to, message),
            }
        }
        self.hear_itself(node, own);
    }

    /// All replicas are given the values of each key in one order, each once at first.
    fn agree(&self) {
        let given = || self.nodes.iter().map(|node| &node.given);
        let mut keys: Vec<&Blob> = given().flatten().map(|letter| &letter.key).collect();
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
            let orders: Vec<Vec<u8>> = given().map(order).collect();
            let longest = orders.iter().max_by_key(|order| order.len()).cloned().unwrap_or_default();
            for order in &orders {
                assert!(longest.starts_with(order), "two orders of one key: {orders:?}");
            }
        }
    }

    /// How many values each replica was given.
    pub fn given(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.given.len()).collect()
    }
}

/// Equal worlds have equal futures: a journal counts where a crash may still come, and what goes by `setup` and by
/// functions is the same in all worlds of a walk.
impl<O: Order<Value = Letter>> Hash for World<O> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.nodes, &self.network, &self.decided, &self.answered, &self.told).hash(state);
        (&self.values, &self.copies, &self.timers, self.crashes, self.losses).hash(state);
        if self.crashes > 0 {
            self.mortals.iter().for_each(|node| self.nodes[*node].journal.hash(state));
        }
    }
}
