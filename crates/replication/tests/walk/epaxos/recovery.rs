//! Recovery, state by state: small worlds without clocks, in which every order of messages, recoveries and a
//! crash is tried, as far as there is time; `ISOCHRONE_STATES` says how far.
//!
//! Every replica suspects every other at all times, so that whoever is given a turn begins a recovery of what
//! it knows to be open.

use crate::model::{Explored, exhaust, finds, search};
use crate::world::{Letter, process};
use isochrone_core::{
    Effect, Effects, Identity, Instant, Lane, Outbox, Process, Random, ReplicaId, Span, Stamp,
};
use isochrone_replication::Tuning as _;
use isochrone_replication::epaxos::{
    Attributes, Committed, Content, InstanceId, Message, Mutation, Order, Parameters, Record, SEATS, Timer,
};
use isochrone_replication::order::{Member, Order as _, Setup, Step as Taken};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Replica = Order<Letter>;

#[derive(Clone)]
struct World {
    setup: Setup<Parameters>,
    replicas: Vec<Replica>,
    /// Each with whether what is made after it waits for it.
    records: Vec<Vec<(Record<Letter>, bool)>>,
    /// How many of them have to be durable, since something has left behind them; a crash takes the others.
    durable: Vec<usize>,
    lives: Vec<u32>,
    /// On the way: receiver, sender, message, by its hash.
    network: BTreeMap<u64, (usize, usize, Message<Letter>)>,
    /// What each place was decided to hold.
    decided: BTreeMap<u64, u64>,
    /// What was said to be committed: whether it holds anything, and its attributes.
    committed: BTreeMap<InstanceId, (bool, Attributes)>,
    given: Vec<Vec<u8>>,
    /// Recoveries that each may still begin, or ask for again.
    turns: Vec<u8>,
    crashes: u8,
    hours: u64,
}

#[derive(Clone, Copy, Eq, PartialEq, Debug)]
enum Step {
    Deliver(u64),
    Turn(usize),
    Crash(usize),
}

impl World {
    fn new(count: usize, mutation: Option<Mutation>) -> World {
        World::with(count, mutation, false)
    }

    fn with(count: usize, mutation: Option<Mutation>, delegate: bool) -> World {
        let member = |node: usize| Member { replica: ReplicaId(node as u8), process: process(node) };
        let mut parameters = Parameters::for_rtt(Span::from_millis(1));
        parameters.mutation = mutation;
        (parameters.delegate, parameters.ahead) = (delegate, 1);
        (parameters.patience, parameters.stagger) = (Span::ZERO, Span::ZERO);
        let members = (0..count).map(member).collect();
        let setup = Setup { members, preferred: None, parameters };
        let open = |node| Replica::open(Identity { process: process(node), incarnation: 1 }, &setup);
        let mut world = World {
            replicas: (0..count).map(open).collect(),
            setup,
            records: vec![Vec::new(); count],
            durable: vec![0; count],
            lives: vec![1; count],
            network: BTreeMap::new(),
            decided: BTreeMap::new(),
            committed: BTreeMap::new(),
            given: vec![Vec::new(); count],
            turns: vec![0; count],
            crashes: 0,
            hours: 0,
        };
        for node in 0..count {
            world.act(node, |replica, effects| replica.start(effects));
        }
        world
    }

    fn act(&mut self, node: usize, input: impl FnOnce(&mut Replica, &mut Effects<Replica>)) {
        let mut outbox = Outbox::new(process(node), Random::seeded(1));
        let now = Instant::ZERO + Span::from_secs(3_600 * self.hours);
        let effects = outbox.input(now, Stamp::ZERO);
        let replica = &mut self.replicas[node];
        input(replica, effects);
        replica.settle(effects);
        replica.check();
        while let Some(step) = replica.step(now) {
            let Taken::Decided(decided) = step else { continue };
            let known = *self.decided.entry(decided.position).or_insert(decided.digest);
            assert_eq!(known, decided.digest, "two values for {:x}", decided.position);
            self.given[node].extend(decided.values.iter().map(|letter| letter.number));
        }
        for effect in outbox.drain() {
            if let Effect::Send { lane: Lane::Held, .. } = &effect {
                self.durable[node] =
                    self.records[node].iter().rposition(|(_, holds)| *holds).map_or(0, |last| last + 1);
            }
            match effect {
                Effect::Record { record, haste } => self.records[node].push((record, haste.holds())),
                Effect::Send { message: Message::Heartbeat { .. } | Message::Heard { .. }, .. } => {}
                Effect::Send { to, message, .. } => {
                    if let Message::Commit { list } = &message {
                        for committed in list {
                            let holds = committed.content != Content::NoOp;
                            let what = (holds, committed.attributes);
                            let known = *self.committed.entry(committed.id).or_insert(what);
                            assert_eq!(known, what, "{} is committed twice", committed.id);
                        }
                    }
                    let sent = (usize::from(to.node.0), node, message);
                    let mut hasher = DefaultHasher::new();
                    sent.hash(&mut hasher);
                    self.network.insert(hasher.finish(), sent);
                }
                _ => {}
            }
        }
        self.agree();
    }

    /// All letters write one key: of two committed ones, one comes before the other, and all replicas execute
    /// them in one order.
    fn agree(&self) {
        let holding: Vec<_> = self.committed.iter().filter(|(_, (holds, _))| *holds).collect();
        for (id, (_, attributes)) in &holding {
            for (other, (_, theirs)) in &holding {
                assert!(
                    id == other || attributes.covers(**other) || theirs.covers(**id),
                    "neither {id} nor {other} comes first"
                );
            }
        }
        let longest = self.given.iter().max_by_key(|given| given.len()).cloned().unwrap_or_default();
        for given in &self.given {
            assert!(longest.starts_with(given), "two orders: {:?}", self.given);
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<_> = self.network.keys().map(|key| Step::Deliver(*key)).collect();
        for node in 0..self.replicas.len() {
            if self.turns[node] > 0 {
                steps.push(Step::Turn(node));
            }
            if self.crashes > 0 {
                steps.push(Step::Crash(node));
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Deliver(key) => {
                if let Some((to, from, message)) = self.network.remove(&key) {
                    self.act(to, |replica, effects| replica.receive(process(from), message, effects));
                }
            }
            Step::Turn(node) => {
                self.turns[node] -= 1;
                // Long after everything that is waited for.
                self.hours += 1;
                self.act(node, |replica, effects| {
                    replica.expire(Timer::Heartbeat, effects);
                    replica.expire(Timer::Tick, effects);
                });
            }
            Step::Crash(node) => {
                self.crashes -= 1;
                self.lives[node] += 1;
                let identity = Identity { process: process(node), incarnation: self.lives[node] };
                let mut replica = Replica::open(identity, &self.setup);
                self.given[node].clear();
                self.records[node].truncate(self.durable[node]);
                for (record, _) in &self.records[node] {
                    replica.replay(record.clone());
                    while let Some(step) = replica.step(Instant::ZERO) {
                        if let Taken::Decided(decided) = step {
                            self.given[node].extend(decided.values.iter().map(|letter| letter.number));
                        }
                    }
                }
                self.replicas[node] = replica;
                self.act(node, |replica, effects| replica.start(effects));
            }
        }
    }

    fn propose(&mut self, node: usize, number: u8) {
        self.act(node, |replica, effects| {
            assert_eq!(replica.propose(Letter::new(number, 0), 1, effects.now()), Ok(()));
        });
    }

    /// Delivers what is on the way from one to another.
    fn deliver(&mut self, from: usize, to: usize) {
        let keys: Vec<u64> = self
            .network
            .iter()
            .filter(|(_, sent)| (sent.0, sent.1) == (to, from))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter().for_each(|key| self.take(Step::Deliver(key)));
    }

    /// Loses everything on the way.
    fn lose(&mut self) {
        self.network.clear();
    }
}

fn bound(given: usize) -> usize {
    std::env::var("ISOCHRONE_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(given)
}

/// Random walks from here to the end, so many.
fn walk(world: &World, walks: u64) {
    for seed in 0..walks {
        let (mut random, mut at) = (Random::seeded(seed), world.clone());
        loop {
            let steps = at.steps();
            if steps.is_empty() {
                break;
            }
            at.take(steps[random.below(steps.len() as u64) as usize]);
        }
    }
}

/// One instance at three replicas, its leader and another recover it, one crashes: the world in which one
/// ballot for two is not enough (arXiv 1906.10917).
fn one_instance(mutation: Option<Mutation>, turns: [u8; 3], crashes: u8) -> World {
    let mut world = World::new(3, mutation);
    world.propose(0, 1);
    (world.turns, world.crashes) = (turns.to_vec(), crashes);
    world
}

/// The same, where another has voted for the command in a ballot of its own, of which the leader has heard; what else was
/// on its way is lost. The leader begins a recovery, and the other one more.
fn half_recovered(mutation: Option<Mutation>) -> World {
    let mut world = one_instance(mutation, [0, 0, 1], 0);
    world.deliver(0, 2);
    world.take(Step::Turn(2));
    for (from, to) in [(2, 1), (1, 2), (2, 1), (1, 2)] {
        world.deliver(from, to);
    }
    world.network.retain(|_, (to, _, message)| *to == 0 && matches!(message, Message::Recover { .. }));
    world.deliver(2, 0);
    world.lose();
    world.turns = vec![1, 0, 1];
    world
}

/// Two interfering commands at five replicas: one leader's is committed fast, which only it knows; the other
/// leader's was seen by one more. Neither leader's messages arrive any more.
fn two_instances(mutation: Option<Mutation>) -> World {
    let mut world = World::new(5, mutation);
    world.propose(0, 1);
    world.propose(4, 2);
    for to in [1, 2] {
        world.deliver(0, to);
    }
    world.deliver(4, 3);
    for from in [1, 2] {
        world.deliver(from, 0);
    }
    assert_eq!(world.committed.len(), 1, "the first is committed fast");
    world.lose();
    world.turns = vec![0, 2, 1, 2, 0];
    world
}

/// Three replicas, two interfering commands. The first leader's is recovered by the second leader before the
/// third replica has heard of it; that one crashes when it has promised, and then hears of it.
fn late_pre_accept(mutation: Option<Mutation>) -> World {
    let mut world = World::new(3, mutation);
    world.propose(0, 1);
    world.propose(2, 2);
    world.deliver(0, 2);
    (world.turns, world.crashes) = (vec![0, 0, 1], 1);
    world
}

/// Three replicas with delegates, two interfering commands. The first leader's reaches its delegate, who votes for
/// it, and the leader crashes before its own record is durable. Then it is the delegate of the second.
fn lost_instance(mutation: Option<Mutation>) -> World {
    let mut world = World::with(3, mutation, true);
    world.propose(0, 1);
    world.deliver(0, 1);
    world.crashes = 1;
    world.take(Step::Crash(0));
    world.propose(2, 2);
    world.turns = vec![1, 1, 1];
    world
}

#[test]
fn what_a_crash_has_taken_is_followed_by_what_its_leader_answers_for() {
    let mut world = lost_instance(None);
    world.deliver(2, 0);
    world.deliver(0, 2);
    let (holds, attributes) = world.committed[&InstanceId { seat: 2, number: 1 }];
    assert!(holds && attributes.covers(InstanceId { seat: 0, number: 1 }), "{attributes:?}");
    walk(&lost_instance(None), 2_000);
    // At five replicas, without delegates: both leaders crash, having told some, and all finish what they left.
    let mut world = World::new(5, None);
    world.propose(0, 1);
    world.propose(4, 2);
    world.deliver(0, 1);
    world.deliver(4, 3);
    (world.turns, world.crashes) = (vec![1; 5], 2);
    world.take(Step::Crash(0));
    world.take(Step::Crash(4));
    world.propose(0, 3);
    walk(&world, bound(200) as u64);
}

/// The smallest schedule of seed 19216 (three regions, all faults): two instances of one seat follow one another,
/// both follow an earlier one, and that is committed last.
#[test]
fn a_circle_within_a_seat_waits_for_what_came_before_it() {
    let mut world = World::new(3, None);
    let mut commit = |instances: &[(u64, u64, u64)]| {
        let committed = |(number, seq, last): &(u64, u64, u64)| {
            let mut deps = [0; SEATS];
            deps[1] = *last;
            Committed {
                id: InstanceId { seat: 1, number: *number },
                content: Content::Batch([Letter::new(*number as u8, 0)].into()),
                attributes: Attributes { seq: *seq, deps },
            }
        };
        let list = instances.iter().map(committed).collect();
        world.act(2, |replica, effects| replica.receive(process(1), Message::Commit { list }, effects));
        world.given[2].clone()
    };
    assert_eq!(commit(&[(2, 3, 3), (3, 2, 2)]), [0u8; 0], "the first is not known yet");
    assert_eq!(commit(&[(1, 1, 0)]), [1, 3, 2]);
}

#[test]
fn a_promise_outlives_a_crash() {
    walk(&late_pre_accept(None), 2_000);
}

#[test]
fn one_instance_is_recovered_in_one_way_only_whatever_happens() {
    let committed = |world: &World| !world.committed.is_empty();
    assert!(exhaust("epaxos, one recoverer", one_instance(None, [0, 0, 1], 0), committed) > 10_000);
    // As many as there is time for, where two recover it, and where the leader does and one crashes.
    for (turns, crashes) in [([0, 1, 1], 0), ([1, 0, 1], 1)] {
        let searched = search(one_instance(None, turns, crashes), bound(60_000), |_| true);
        println!("turns {turns:?}, {crashes} crashes: {} states, all: {}", searched.states, searched.all);
        assert!(searched.wrong.is_none(), "{}", searched.wrong.unwrap_or_default());
    }
    walk(&one_instance(None, [2, 2, 2], 1), 1_000);
}

#[test]
fn what_was_committed_fast_is_recovered_beside_an_interfering_command() {
    walk(&two_instances(None), 1_500);
}

/// The leader has no-ops accepted, and the other, which has promised its ballot since, takes its own older vote for one in it.
#[test]
fn one_ballot_for_two_is_found() {
    finds("single-ballot", half_recovered(Some(Mutation::SingleBallot)));
    let searched = search(half_recovered(None), bound(30_000), |_| true);
    println!("half recovered: {} states, all: {}", searched.states, searched.all);
    assert!(searched.wrong.is_none(), "{}", searched.wrong.unwrap_or_default());
}

#[test]
fn the_published_mistakes_are_found() {
    let found = |what: &dyn Fn()| catch_unwind(AssertUnwindSafe(what)).is_err();
    for mutation in [Mutation::PublishedRecovery, Mutation::NoValidation, Mutation::ValidateAnywhere] {
        assert!(found(&|| walk(&two_instances(Some(mutation)), 50_000)), "{}", mutation.name());
    }
    let forget = || walk(&late_pre_accept(Some(Mutation::ForgetPromise)), 50_000);
    assert!(found(&forget), "a forgotten promise");
    for mutation in [Mutation::ForgetLost, Mutation::ForgetReserved] {
        assert!(found(&|| walk(&lost_instance(Some(mutation)), 50_000)), "{}", mutation.name());
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.replicas, self.network.keys().collect::<Vec<_>>(), &self.decided, self.hours).hash(state);
        (&self.turns, self.crashes, &self.given, &self.lives, &self.durable, &self.committed).hash(state);
        if self.crashes > 0 {
            self.records.hash(state);
        }
    }
}

impl Explored for World {
    type Step = Step;
    fn steps(&self) -> Vec<Step> {
        World::steps(self)
    }
    fn step(&mut self, step: Step) {
        self.take(step);
    }
    fn close(self) {}
    fn tell(&self, step: &Step) -> String {
        match step {
            Step::Deliver(key) => {
                let (to, from, message) = &self.network[key];
                format!("{from} to {to}: {message:?}")
            }
            other => format!("{other:?}"),
        }
    }
}
