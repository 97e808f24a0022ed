//! Orders in which messages may arrive or be lost, in a small world: three replicas, two values, two
//! campaigns, one crash. Time stands still, disks are instant; what remains is the protocol. The world is
//! walked at random, state by state; `ISOCHRONE_STATES` says how many states, for as long a walk as one likes.

use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    CommandId, Effect, Identity, Instant, KeyspaceId, NodeId, Outbox, PartitionId, Process, ProcessId,
    Random, ReplicaId, Role, Span, Stamp,
};
use isochrone_replication::Tuning as _;
use isochrone_replication::multipaxos::log::{Log, Message, Record, Timer};
use isochrone_replication::multipaxos::{Form, Mutation, Parameters};
use isochrone_replication::order::{self, Member, Order as _, Ordered};
use rustc_hash::{FxHashSet, FxHasher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

fn process(node: usize) -> ProcessId {
    let (keyspace, partition) = (KeyspaceId(1), PartitionId(0));
    ProcessId { node: NodeId(node as u16), keyspace, partition, role: Role(0), instance: 0 }
}

/// What is ordered: all conflict.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Letter(u8);

impl Ordered for Letter {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::All(Access::Update));
    }
    fn id(&self) -> Option<CommandId> {
        None
    }
    fn reads(&self) -> bool {
        false
    }
}

#[derive(Clone)]
struct World {
    setup: order::Setup<Parameters>,
    logs: Vec<Log<Letter>>,
    records: Vec<Vec<Record<Letter>>>,
    lives: Vec<u32>,
    /// On the way: receiver, sender, message, by its hash. A copy of what is on the way already adds nothing.
    network: BTreeMap<u64, (usize, usize, Message<Letter>)>,
    /// What each slot was decided to be.
    decided: BTreeMap<u64, u64>,
    values: u8,
    polls: Vec<u8>,
    crashes: u8,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(u64),
    Propose(usize),
    Poll(usize),
    Crash(usize),
}

impl World {
    fn new(form: Form, mutation: Option<Mutation>) -> World {
        let member = |node: usize| Member { replica: ReplicaId(node as u8), process: process(node) };
        let mut parameters = Parameters::for_rtt(Span::from_millis(1));
        (parameters.form, parameters.mutation, parameters.lease) = (form, mutation, false);
        let preferred = Some(ReplicaId(0));
        let members = (0..3).map(member).collect();
        let setup = order::Setup { members, preferred, parameters };
        let open = |node| Log::open(Identity { process: process(node), incarnation: 1 }, &setup);
        let logs = (0..3).map(open).collect();
        let mut world = World {
            setup,
            logs,
            records: vec![Vec::new(); 3],
            lives: vec![1; 3],
            network: BTreeMap::new(),
            decided: BTreeMap::new(),
            values: 2,
            polls: vec![0, 1, 1],
            crashes: 1,
        };
        for node in 0..3 {
            world.act(node, Instant::ZERO, |log, effects| log.start(effects));
        }
        // The first election has no choices worth exploring.
        while let Some(first) = world.network.keys().next().copied() {
            world.step(Step::Deliver(first));
        }
        assert!(world.logs[0].leads());
        world
    }

    /// Gives a replica an input, then what it sends itself, which always arrives, in order.
    fn act(
        &mut self,
        node: usize,
        now: Instant,
        input: impl FnOnce(&mut Log<Letter>, &mut isochrone_core::Effects<Log<Letter>>),
    ) {
        let mut own = VecDeque::new();
        let mut input = Some(input);
        loop {
            let mut outbox = Outbox::new(process(node), Random::seeded(1));
            let effects = outbox.input(now, Stamp::ZERO);
            let log = &mut self.logs[node];
            match (input.take(), own.pop_front()) {
                (Some(input), _) => input(log, effects),
                (None, Some(message)) => log.receive(process(node), message, effects),
                (None, None) => break,
            }
            log.settle(effects);
            log.check();
            while let Some(step) = log.step(now) {
                if let order::Step::Decided(decided) = step {
                    let known = *self.decided.entry(decided.position).or_insert(decided.digest);
                    assert_eq!(known, decided.digest, "two values for slot {}", decided.position);
                }
            }
            for effect in outbox.drain() {
                match effect {
                    Effect::Record { record, .. } => self.records[node].push(record),
                    Effect::Send { to, message, .. } if to == process(node) => own.push_back(message),
                    // Without leases and timers heartbeats say nothing that `Accept` does not.
                    Effect::Send { message: Message::Heartbeat { .. } | Message::Heard { .. }, .. } => {}
                    Effect::Send { to, message, .. } => {
                        let sent = (usize::from(to.node.0), node, message);
                        let mut hasher = DefaultHasher::new();
                        sent.hash(&mut hasher);
                        self.network.insert(hasher.finish(), sent);
                    }
                    _ => {}
                }
            }
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.network.keys().map(|key| Step::Deliver(*key)).collect();
        for node in 0..3 {
            if self.values > 0 && self.logs[node].leads() {
                steps.push(Step::Propose(node));
            }
            if self.polls[node] > 0 && !self.logs[node].leads() {
                steps.push(Step::Poll(node));
            }
            if self.crashes > 0 {
                steps.push(Step::Crash(node));
            }
        }
        steps
    }

    fn step(&mut self, step: Step) {
        // Long after anyone heard anything, so that whoever is asked grants.
        let late = Instant::ZERO + Span::from_secs(3_600);
        match step {
            Step::Deliver(key) => {
                let Some((to, from, message)) = self.network.remove(&key) else { return };
                let now = if matches!(message, Message::Poll { .. }) { late } else { Instant::ZERO };
                self.act(to, now, |log, effects| log.receive(process(from), message, effects));
            }
            Step::Propose(node) => {
                self.values -= 1;
                let value = Letter(10 * (node as u8 + 1) + self.values);
                let _ = self.logs[node].propose(value, 1, Instant::ZERO);
                self.act(node, Instant::ZERO, |_, _| {});
            }
            Step::Poll(node) => {
                self.polls[node] -= 1;
                self.act(node, late, |log, effects| log.expire(Timer::Watch, effects));
            }
            Step::Crash(node) => {
                self.crashes -= 1;
                self.lives[node] += 1;
                let identity = Identity { process: process(node), incarnation: self.lives[node] };
                let mut log = Log::open(identity, &self.setup);
                for record in &self.records[node] {
                    log.replay(record.clone());
                    while log.step(Instant::ZERO).is_some() {}
                }
                self.logs[node] = log;
                self.act(node, Instant::ZERO, |log, effects| log.start(effects));
            }
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        (&self.logs, self.network.keys().collect::<Vec<_>>(), &self.decided).hash(&mut hasher);
        (self.values, &self.polls, self.crashes).hash(&mut hasher);
        hasher.finish()
    }
}

/// Walks at random from the start until `bound` different states were seen, or many walks in a row have
/// shown nothing new: a small world is then as good as exhausted.
fn explore(world: &World, bound: usize) -> usize {
    let mut random = Random::seeded(1);
    let mut seen = FxHashSet::default();
    let mut idle = 0;
    while seen.len() < bound && idle < 2_000 {
        let (mut at, before) = (world.clone(), seen.len());
        loop {
            let steps = at.steps();
            if steps.is_empty() {
                break;
            }
            at.step(steps[random.below(steps.len() as u64) as usize]);
            seen.insert(at.fingerprint());
        }
        idle = if seen.len() == before { idle + 1 } else { 0 };
    }
    seen.len()
}

fn bound() -> usize {
    let given = std::env::var("ISOCHRONE_STATES").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(200_000)
}

#[test]
fn no_order_of_messages_found_decides_a_slot_twice() {
    for form in [Form::Slots, Form::Prefix] {
        let states = explore(&World::new(form, None), bound());
        println!("{form:?}: {states} states");
        assert!(states > 10_000);
    }
}

#[test]
fn the_exploration_finds_what_is_wrong() {
    for mutation in [Mutation::AdoptAny, Mutation::ForgetPromise] {
        let world = World::new(Form::Slots, Some(mutation));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(&world, 2_000_000)));
        assert!(found.is_err(), "{} was not found", mutation.name());
    }
}
