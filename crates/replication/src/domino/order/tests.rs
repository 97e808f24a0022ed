//! Small worlds of orders: messages arrive at once and in order, unless a test says otherwise, and time is what
//! it says. Whoever sends something has every replica held to what it said before.

mod contenders;
mod epochs;
mod positions;
mod restarts;
mod said;

use super::super::Mutation;
use super::super::message::{Beat, Message, Round, Turn};
use super::learner::Known;
use super::*;
use crate::family::Tuning;
use crate::order::Order as _;
use crate::service::Reply;
use isochrone_core::command::{Access, Touch};
use isochrone_core::{Effect, NodeId, Outbox, Random, Stamp};
use said::Said;
use serde::{Deserialize, Serialize};

#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Word(u64);

impl Ordered for Word {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::All(Access::Update));
    }
    fn id(&self) -> Option<CommandId> {
        let client = ClientId { process: process(9), incarnation: 1 };
        Some(CommandId { client, sequence: self.0 })
    }
    fn reads(&self) -> bool {
        false
    }
}

fn process(node: u16) -> ProcessId {
    ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
}

struct World {
    setup: Setup<Parameters>,
    orders: Vec<Order<Word>>,
    records: Vec<Vec<Record<Word>>>,
    lives: Vec<u32>,
    network: VecDeque<(usize, ProcessId, Message<Word>)>,
    /// Milliseconds.
    time: u64,
    /// By how much wall clocks are wrong, milliseconds.
    wrong: i64,
    executed: Vec<Vec<u64>>,
    /// A replica whose messages are lost, both ways.
    cut: Option<usize>,
    /// Links on which everything is lost, from and to.
    lost: Vec<(usize, usize)>,
    /// What is on the way is taken in any order where this is there.
    shuffle: Option<Random>,
    /// A replica that stops after so many more effects.
    fuse: Option<(usize, usize)>,
    /// It has stopped.
    down: Option<usize>,
    /// What clients were told.
    voted: Vec<(usize, u64)>,
    placed: Vec<(u64, u64)>,
    /// What each place was decided to hold.
    places: BTreeMap<u64, u64>,
    said: Vec<Said>,
}

const WALL: u64 = 1_000_000_000_000_000;
const MS: u64 = 1_000_000;

impl World {
    fn new(replicas: usize, tune: impl FnOnce(&mut Parameters)) -> World {
        let mut parameters = Parameters::for_rtt(Span::from_millis(1));
        tune(&mut parameters);
        let member = |node: usize| Member { replica: ReplicaId(node as u8), process: process(node as u16) };
        let members: Arc<[Member]> = (0..replicas).map(member).collect();
        let setup = Setup { members, preferred: None, parameters };
        let identity = |node: usize| Identity { process: process(node as u16), incarnation: 1 };
        let orders: Vec<_> = (0..replicas).map(|node| Order::open(identity(node), &setup)).collect();
        let mut world = World {
            setup,
            orders,
            records: vec![Vec::new(); replicas],
            lives: vec![1; replicas],
            network: VecDeque::new(),
            time: 0,
            wrong: 0,
            executed: vec![Vec::new(); replicas],
            cut: None,
            lost: Vec::new(),
            shuffle: None,
            fuse: None,
            down: None,
            voted: Vec::new(),
            placed: Vec::new(),
            places: BTreeMap::new(),
            said: vec![Said::default(); replicas],
        };
        (0..replicas).for_each(|node| world.act(node, |order, effects| order.start(effects)));
        world.deliver();
        world
    }

    fn wall(&self) -> u64 {
        (WALL + self.time * MS).saturating_add_signed(self.wrong * MS as i64)
    }

    fn act(&mut self, node: usize, input: impl FnOnce(&mut Order<Word>, &mut Effects<Order<Word>>)) {
        if self.down == Some(node) {
            return;
        }
        let sound = self.setup.parameters.mutation.is_none();
        let mut outbox = Outbox::new(process(node as u16), Random::seeded(1));
        let effects = outbox.input(Instant::from_nanos(self.time * MS), Stamp::from_nanos(self.wall()));
        let order = &mut self.orders[node];
        input(order, effects);
        order.settle(effects);
        order.check();
        while let Some(step) = order.step(Instant::ZERO) {
            if let Step::Decided(decided) = step {
                self.executed[node].extend(decided.values.iter().map(|word| word.0));
                let word = decided.values.first().map_or(0, |word| word.0);
                let known = *self.places.entry(decided.position).or_insert(word);
                assert!(known == word || !sound, "{known} and {word} at {}", decided.position);
            }
        }
        for effect in outbox.drain() {
            if let Some((_, left)) = self.fuse.as_mut().filter(|(fused, _)| *fused == node) {
                if *left == 0 {
                    (self.fuse, self.down) = (None, Some(node));
                    return;
                }
                *left -= 1;
            }
            match &effect {
                Effect::Record { record, .. } => self.said[node].wrote(record),
                Effect::Send { to, message, .. } if sound => self.said[node].hear(*to, message),
                _ => {}
            }
            match effect {
                Effect::Record { record, .. } => self.records[node].push(record),
                Effect::Send { to, message: Message::Voted { votes, .. }, .. } if to == process(9) => {
                    self.voted.extend(votes.iter().map(|(_, sequence)| (node, *sequence)));
                }
                Effect::Send { to, message: Message::Committed { places, .. }, .. } if to == process(9) => {
                    self.placed.extend(places);
                }
                Effect::Send { to, .. } if to == process(9) => {}
                Effect::Send { to, message, .. } => {
                    self.network.push_back((usize::from(to.node.0), process(node as u16), message));
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self) {
        while self.deliver_one() {}
    }

    /// Delivers or loses one message; false where none is on the way.
    fn deliver_one(&mut self) -> bool {
        let count = self.network.len() as u64;
        let next =
            self.shuffle.as_mut().filter(|_| count > 0).map_or(0, |random| random.below(count) as usize);
        let Some((to, from, message)) = self.network.remove(next) else { return false };
        let apart = |node: usize| self.cut == Some(node) && process(to as u16) != from;
        let lost = self.lost.contains(&(usize::from(from.node.0), to));
        if !lost && !apart(to) && !apart(usize::from(from.node.0)) {
            self.act(to, |order, effects| order.receive(from, message, effects));
        }
        true
    }

    /// Delivers what goes along these ways, from and to; the rest stays on its way.
    fn carry(&mut self, ways: &[(usize, usize)]) {
        let along = |to: usize, from: &ProcessId| ways.contains(&(usize::from(from.node.0), to));
        while let Some(next) = self.network.iter().position(|(to, from, _)| along(*to, from)) {
            let Some((to, from, message)) = self.network.remove(next) else { return };
            self.act(to, |order, effects| order.receive(from, message, effects));
        }
    }

    /// One takes in a request, if there is one, and all that is on its way from these, one after another, in one turn.
    fn at_once(&mut self, to: usize, request: Option<(u64, u64)>, senders: &[usize]) {
        let mut inputs: Vec<(ProcessId, Message<Word>)> = Vec::new();
        inputs.extend(
            request.map(|(at, word)| (process(9), Message::Propose { values: vec![(at, Word(word))] })),
        );
        for sender in senders {
            let (comes, stays) = std::mem::take(&mut self.network)
                .into_iter()
                .partition(|(node, from, _)| *node == to && *from == process(*sender as u16));
            self.network = stays;
            let comes: VecDeque<(usize, ProcessId, Message<Word>)> = comes;
            inputs.extend(comes.into_iter().map(|(_, from, message)| (from, message)));
        }
        self.act(to, |order, effects| {
            inputs.into_iter().for_each(|(from, message)| order.receive(from, message, effects));
        });
    }

    /// Nothing goes from these to those, and the other way round.
    fn sever(
        &mut self,
        these: impl IntoIterator<Item = usize>,
        those: impl IntoIterator<Item = usize> + Clone,
    ) {
        for one in these {
            let others = those.clone().into_iter().filter(|other| *other != one);
            self.lost.extend(others.flat_map(|other| [(one, other), (other, one)]));
        }
    }

    /// Without these, one coordinates this epoch; then all hear each other again, for long.
    fn coordinates_without(&mut self, lost: impl IntoIterator<Item = usize>, node: usize, epoch: u32) {
        self.sever(lost, 0..self.orders.len());
        self.act(node, |order, effects| order.campaign(effects));
        while self.orders[node].epoch() != (epoch, true) {
            assert!(self.time < 10_000, "it coordinates");
            self.pass(10);
        }
        self.lost.clear();
        self.pass(5_000);
    }

    /// Heartbeats of all, so long.
    fn pass(&mut self, ms: u64) {
        let heartbeat = self.setup.parameters.heartbeat.as_nanos() / MS;
        for _ in 0..ms / heartbeat {
            self.time += heartbeat;
            for node in 0..self.orders.len() {
                self.act(node, |order, effects| order.expire(Timer::Beat, effects));
            }
            self.deliver();
        }
    }

    fn propose(&mut self, at: u64, word: u64) {
        for node in 0..self.orders.len() {
            let values = vec![(at, Word(word))];
            self.act(node, |order, effects| order.receive(process(9), Message::Propose { values }, effects));
        }
        self.deliver();
    }

    /// A request that some replicas get, in this order.
    fn propose_to(&mut self, nodes: impl IntoIterator<Item = usize>, at: u64, word: u64) {
        for node in nodes {
            let values = vec![(at, Word(word))];
            self.act(node, |order, effects| order.receive(process(9), Message::Propose { values }, effects));
        }
    }

    fn lead(&mut self, node: usize, word: u64) {
        self.act(node, |order, _| order.propose(Word(word), 8, Instant::ZERO).expect("room"));
    }

    /// The position of a place, as the oracle knows it.
    fn position(&self, at: u64, lane: u64) -> u64 {
        at * (self.orders.len() as u64 + 1) + lane
    }

    /// All crash and come back.
    fn restart(&mut self) {
        self.network.clear();
        for node in 0..self.orders.len() {
            self.reopen(node);
        }
        for node in 0..self.orders.len() {
            self.act(node, |order, effects| order.start(effects));
        }
        self.deliver();
    }

    /// One crashes, if it has not, and comes back; what it had sent is on the way.
    fn restart_one(&mut self, node: usize) {
        (self.fuse, self.down) = (None, None);
        self.reopen(node);
        self.act(node, |order, effects| order.start(effects));
        self.deliver();
    }

    fn reopen(&mut self, node: usize) {
        self.lives[node] += 1;
        // What it says to itself is lost with it.
        self.network.retain(|(to, from, _)| *to != node || *from != process(node as u16));
        let identity = Identity { process: process(node as u16), incarnation: self.lives[node] };
        let mut order = Order::open(identity, &self.setup);
        self.executed[node].clear();
        for record in self.records[node].clone() {
            order.replay(record);
            while let Some(step) = order.step(Instant::ZERO) {
                if let Step::Decided(decided) = step {
                    self.executed[node].extend(decided.values.iter().map(|word| word.0));
                }
            }
        }
        self.orders[node] = order;
    }

    /// All have executed the same, these words among it, each as often as it was given a place; nobody is
    /// stuck, and no coordinator has proposed two values for one position in one ballot.
    fn agrees(&self, words: &[u64]) {
        for (node, executed) in self.executed.iter().enumerate() {
            assert_eq!(executed, &self.executed[0], "replica {node}");
            for word in words {
                assert!(executed.contains(word), "{word} is lost: {executed:?}");
            }
        }
        let frontiers = self.orders.iter().flat_map(Order::frontiers);
        let behind = frontiers.map(|at| self.wall().saturating_sub(at)).max().unwrap_or(0);
        assert!(behind < 1_000 * MS, "a lane stands still");
        let mut rounds: BTreeMap<(u32, u64), &Round<Word>> = BTreeMap::new();
        for record in self.records.iter().flatten() {
            let round = match record {
                Record::Recovered(round) => round.as_ref(),
                Record::Opened(opening) => &opening.round,
                _ => continue,
            };
            let known = *rounds.entry((round.epoch, round.number)).or_insert(round);
            assert_eq!(known, round, "one number for two rounds");
        }
        for ((epoch, number), round) in &rounds {
            let later = rounds.range((*epoch, number + 1)..(epoch + 1, 0));
            for (_, later) in later {
                let both = round.values.iter().find(|(at, _)| proposes(later, *at));
                let both = both.or_else(|| later.values.iter().find(|(at, _)| proposes(round, *at)));
                assert_eq!(both, None, "proposed twice in epoch {epoch}");
            }
        }
        let need = Quorums::supermajority(self.orders.len());
        said::nothing_chosen_is_proposed_as_something_else(&self.said, need, rounds.values().copied());
    }
}

fn proposes(round: &Round<Word>, at: u64) -> bool {
    round.values.iter().any(|(stamp, _)| *stamp == at)
        || round.ranges.iter().any(|(from, until)| (*from..*until).contains(&at))
}

#[test]
fn an_idle_hour_holds_constant_memory() {
    let mut world = World::new(3, |parameters| parameters.heartbeat = Span::from_millis(100));
    world.pass(5_000);
    let held: Vec<Held> = world.orders.iter().map(Order::held).collect();
    let frontier = world.orders[0].frontiers();
    world.pass(3_600_000);
    assert_eq!(world.orders.iter().map(Order::held).collect::<Vec<_>>(), held);
    assert!(held.iter().all(|held| held.votes + held.runs + held.waiting + held.kept == 0), "{held:?}");
    let passed = world.orders[0].frontiers().iter().zip(&frontier).map(|(now, then)| now - then).min();
    assert_eq!(passed, Some(3_600_000 * MS), "no-ops follow the clock");
    let last = world.orders.iter().flat_map(Order::frontiers).min().unwrap_or(0);
    assert!(last + 200 * MS >= world.wall(), "by a heartbeat or two, here without delays (F4)");
}

#[test]
fn many_requests_hold_what_is_open_and_what_is_kept() {
    let mut world = World::new(3, |parameters| parameters.keep_commands = 64);
    world.pass(1_000);
    let mut most = 0;
    for word in 1..=20_000 {
        if word % 2 == 0 {
            let at = world.wall() + 2 * MS + word;
            world.propose(at, word);
        } else {
            let node = (word % 3) as usize;
            world.act(node, |order, _| order.propose(Word(word), 8, Instant::ZERO).expect("room"));
            world.deliver();
        }
        if word % 10 == 0 {
            world.pass(10);
            let held = world.orders.iter().map(Order::held);
            let total = held.map(|held| held.votes + held.runs + held.waiting + held.kept + held.other);
            most = total.max().unwrap_or(0).max(most);
        }
    }
    world.pass(1_000);
    for executed in &world.executed {
        assert_eq!(executed.len(), 20_000);
        assert_eq!(executed, &world.executed[0], "one order");
    }
    assert!(most < 400, "{most} held at once");
}

/// The published trace (`flaws.md`): replicas' clocks step back, they vote for a request at a stamp that they
/// have closed, and its client counts a commit where everyone else has a no-op.
fn votes_behind_the_clock(mutation: Option<Mutation>, restart: bool) -> usize {
    let mut world = World::new(3, |parameters| parameters.mutation = mutation);
    world.pass(2_000);
    let at = world.wall() - 100 * MS;
    assert!(world.orders.iter().all(|order| order.frontiers()[0] > at), "it is closed");
    world.wrong = -500;
    if restart {
        world.restart();
        world.pass(100);
    }
    world.propose(at, 7);
    world.voted.iter().filter(|(_, word)| *word == 7).count()
}

#[test]
fn a_clock_that_steps_back_votes_for_nothing_that_is_closed() {
    assert_eq!(votes_behind_the_clock(None, false), 0);
    assert_eq!(votes_behind_the_clock(Some(Mutation::ClockNotMonotone), false), 3, "the bug shows");
}

#[test]
fn a_restart_votes_for_nothing_that_its_former_life_closed() {
    assert_eq!(votes_behind_the_clock(None, true), 0);
}

#[test]
fn a_restart_begins_behind_what_was_announced() {
    for (mutation, holds) in [(None, true), (Some(Mutation::ReserveNotJournalled), false)] {
        let mut world = World::new(3, |parameters| parameters.mutation = mutation);
        world.pass(2_000);
        let announced: Vec<u64> = world.orders.iter().map(|order| order.clock.last()).collect();
        world.wrong = -500;
        world.restart();
        let after = world.orders.iter().map(|order| order.clock.last());
        let behind = after.zip(announced).all(|(after, announced)| after >= announced);
        assert_eq!(behind, holds, "{mutation:?}");
    }
}

#[test]
fn a_command_survives_a_power_loss_and_keeps_its_place() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    let at = world.wall() + 5 * MS;
    world.propose(at, 1);
    world.act(2, |order, _| order.propose(Word(2), 8, Instant::ZERO).expect("room"));
    world.deliver();
    world.restart();
    world.pass(5_000);
    for executed in &world.executed {
        let mut words = executed.clone();
        words.dedup();
        assert!(words.contains(&1) && words.contains(&2), "{words:?}");
        assert_eq!(executed, &world.executed[0]);
    }
    assert!(world.orders[0].epoch().0 > 0, "the restarted coordinator opened another epoch");
}

/// In how many patterns of fast votes, seen by every set of replicas that is as large as a classic quorum, recovery
/// contradicts a value that a fast quorum has chosen (`specs/domino.md` 8, S7); `threshold` is how many equal votes
/// oblige it, of how many that it sees.
fn contradictions(n: usize, fast: usize, classic: usize, threshold: impl Fn(usize) -> usize) -> usize {
    let name = |sequence| CommandId { client: ClientId { process: process(9), incarnation: 1 }, sequence };
    let values = [None, Some(name(1)), Some(name(2))];
    let mut wrong = 0;
    for pattern in 0..3usize.pow(n as u32) {
        let votes: Vec<Option<CommandId>> =
            (0..n).map(|seat| values[pattern / 3usize.pow(seat as u32) % 3]).collect();
        let count = |value: Option<CommandId>| votes.iter().filter(|vote| **vote == value).count();
        let Some(chosen) = values.into_iter().find(|value| count(*value) >= fast) else { continue };
        for seen in (0u32..1 << n).filter(|seen| seen.count_ones() as usize >= classic) {
            let voters = |value: Option<CommandId>| -> ReplicaSet {
                let seats = (0..n).filter(|seat| seen & 1 << seat != 0 && votes[*seat] == value);
                seats.map(|seat| ReplicaId(seat as u8)).collect()
            };
            let cast = values.into_iter().map(|value| (value, voters(value)));
            let count = seen.count_ones() as usize;
            let known = Known {
                values: cast.filter(|(_, voters)| !voters.is_empty()).collect(),
                unknown: ReplicaSet::EMPTY,
                count,
            };
            wrong += usize::from(known.pick(threshold(count)) != chosen);
        }
    }
    wrong
}

/// Of all sizes of quorums, those hold that a keyspace may be given, and no others.
#[test]
fn recovery_never_contradicts_a_chosen_value_with_any_quorums_that_are_allowed() {
    for n in [3, 5, 7] {
        for (fast, classic) in
            (n / 2 + 1..=n).flat_map(|fast| (n / 2 + 1..=n).map(move |classic| (fast, classic)))
        {
            let allowed = FastQuorums::sized(n, Some(fast), Some(classic)).ok();
            let threshold = |seen: usize| (seen + fast).saturating_sub(n);
            let wrong = contradictions(n, fast, classic, |seen| {
                allowed.map_or(threshold(seen), |quorums| quorums.recovery(seen))
            });
            assert_eq!(wrong == 0, allowed.is_some(), "{fast} and {classic} of {n}: {wrong}");
        }
    }
    assert!(
        contradictions(5, 4, 3, |seen| Quorums::recovery(5, seen) + 5) > 0,
        "a threshold out of reach shows"
    );
    let turns = [Turn { epoch: 0, classic: false }, Turn { epoch: 0, classic: true }];
    assert!(turns[0] < turns[1] && turns[1] < Turn { epoch: 1, classic: false });
}

/// The owner of a lane is cut off, its lane is closed by another, and it comes back with a proposal from before.
fn owner_comes_back(mutation: Option<Mutation>) -> World {
    let mut world = World::new(3, |parameters| parameters.mutation = mutation);
    world.pass(1_000);
    world.cut = Some(2);
    world.pass(200);
    world.act(2, |order, _| order.propose(Word(1), 8, Instant::ZERO).expect("room"));
    world.deliver();
    world.pass(3_000);
    assert!(world.orders[0].frontiers()[3] > world.wall(), "its lane is closed ahead of the clock");
    world.cut = None;
    world.pass(8_000);
    world
}

#[test]
fn an_owner_proposes_behind_what_was_sealed_while_it_was_away() {
    let world = owner_comes_back(None);
    for executed in &world.executed {
        assert_eq!(executed, &[1]);
    }
    let wrong = owner_comes_back(Some(Mutation::ProposeInSealed));
    assert!(wrong.executed[2] != wrong.executed[0], "the bug shows: {:?}", wrong.executed);
}

/// Seed 1000632 (five regions, all faults): a coordinator had caught up from a peer on a command, and told those that
/// learn from it alone that all is settled there, but not what.
#[test]
fn what_a_coordinator_learned_from_a_peer_is_told_to_those_that_learn_from_it() {
    let mut world = World::new(3, |parameters| parameters.learners = Learners::Sole);
    world.pass(1_000);
    let (from, at) = (world.orders[0].frontiers()[0], world.wall() + 5 * MS);
    let learned = Item::Learned { lane: 0, from, until: at + 1, values: vec![(at, Word(7))] };
    world.act(0, |order, effects| order.handle(1, learned, effects));
    world.deliver();
    world.pass(500);
    assert!(world.executed.iter().all(|executed| executed == &[7]), "{:?}", world.executed);
}

/// One that was deposed and has not heard of it decides, and tells all. That comes to the coordinator and may be lost on its
/// way to a third, who learns from the coordinator alone and would take the position for empty.
#[test]
fn what_a_coordinator_is_told_late_by_one_before_it_is_told_to_those_that_learn_from_it() {
    let mut world = World::new(3, |parameters| parameters.learners = Learners::Sole);
    world.pass(1_000);
    let at = world.orders[0].frontiers()[0];
    let late = Item::Chosen { values: vec![(at, Word(7))] };
    world.act(0, |order, effects| order.handle(1, late, effects));
    world.deliver();
    world.pass(500);
    assert!(world.executed.iter().all(|executed| executed == &[7]), "{:?}", world.executed);
}

/// A coordinator that took in a peer's state went on as if what that state holds had been told to those that learn from it alone,
/// who took it for nothing.
#[test]
fn what_a_coordinator_jumped_over_is_fetched_by_those_that_learn_from_it() {
    let mut world = World::new(3, |parameters| parameters.learners = Learners::Sole);
    world.pass(1_000);
    let (from, at) = (world.orders[1].frontiers()[0], world.wall() + 5 * MS);
    let learned = Item::Learned { lane: 0, from, until: at + 1, values: vec![(at, Word(7))] };
    world.act(1, |order, effects| order.handle(0, learned, effects));
    // Its state comes to the coordinator at once, and not the command.
    world.act(0, |order, effects| {
        assert!(crate::order::Order::install(order, &Place { at: at + 1, lane: 0 }), "it is behind");
        order.advance(effects);
    });
    world.deliver();
    world.pass(500);
    // It asks for the state, as it has asked the coordinator, or has the command from the other.
    let third = &world.orders[2];
    assert!(third.behind().is_some() || world.executed[2] == [7], "it goes on at {:?}", third.frontiers());
    assert_eq!(world.executed[1], [7]);
}

/// Seed 101000241 (five regions, all faults): two revoked the lane of one that was lost, one of them from when the other had been
/// silent, and outbid each other for ever.
#[test]
fn who_is_not_next_leaves_a_lane_to_who_is() {
    let mut world = World::new(5, |_| {});
    world.pass(1_000);
    world.cut = Some(2);
    world.pass(3_000);
    let (before, sealed) = (world.orders[0].lanes[2].ballot, world.orders[0].lanes[2].sealed);
    assert_eq!(before.owner, ReplicaId(3), "the next one behind it");
    let now = Instant::from_nanos(world.time * MS);
    world.act(4, |order, _| order.revoke(2, sealed - 1, now));
    world.deliver();
    assert!(world.orders[4].revocations.is_empty());
    assert_eq!(world.orders[0].lanes[2].ballot, before.next(ReplicaId(4)), "it does not begin again");
    world.lead(0, 7);
    world.pass(5_000);
    let executed: Vec<_> = [0, 1, 3, 4].map(|node| world.executed[node].clone()).into();
    assert!(executed.iter().all(|executed| executed == &[7]), "{executed:?}");
}

/// Seed 11 (three regions, all faults): an answer to a beat from before a restart was taken for a round trip of 200 s,
/// and the lane gave stamps that far ahead.
#[test]
fn an_answer_to_a_beat_of_a_former_life_measures_nothing() {
    let mut world = World::new(3, |_| {});
    world.pass(1_000);
    world.restart();
    world.pass(100);
    let own = world.orders[2].incarnation;
    for (life, more) in [(own - 1, 0), (own, 1)] {
        let before = world.orders[2].estimates[0].len();
        let (sent, wall) = (Instant::ZERO, Stamp::from_nanos(world.wall()));
        let beat = Beat {
            sent,
            wall,
            clock: wall,
            echo: Some((life, Instant::ZERO, Span::ZERO)),
            begins: None,
            gathers: None,
        };
        let other = world.orders[0].incarnation;
        let flow = Message::Flow { life: other, items: None, received: None, beat: Some(beat) };
        world.act(2, |order, effects| order.receive(process(0), flow, effects));
        assert_eq!(world.orders[2].estimates[0].len(), before + more, "life {life} of {own}");
    }
}

/// Answered at its commit, it is where its client did not ask for it; what the client asks next must lie behind it.
#[test]
fn who_answers_at_the_commit_tells_the_place_whoever_has_proposed_the_command() {
    let mut world = World::new(3, |parameters| parameters.reply = Reply::Commit);
    world.pass(1_000);
    // One that loses its place of the fast lane to another, and one of an owner's former life.
    let at = world.wall() + 30 * MS;
    world.propose_to([0, 1], at, 1);
    world.propose_to([2, 1, 0], at, 3);
    world.deliver();
    world.lost = vec![(2, 0), (2, 1)];
    world.lead(2, 2);
    world.deliver();
    world.lost.clear();
    world.reopen(2);
    world.act(2, |order, effects| order.start(effects));
    world.pass(2_000);
    let led = world.places.iter().filter(|(position, word)| *position % 4 > 0 && **word > 0);
    let led: BTreeSet<(u64, u64)> = led.map(|(position, word)| (*word, position / 4)).collect();
    assert_eq!(led.len(), 2, "{:?}", world.places);
    assert!(led.iter().all(|place| world.placed.contains(place)), "{:?} of {led:?}", world.placed);
}

/// Seed 11: a lane had given a stamp ninety seconds ahead, and clients went on using it. It gives none where no replica
/// would vote for one.
#[test]
fn a_lane_that_has_given_a_stamp_far_ahead_passes_on_what_others_ask() {
    let mut world = World::new(3, |_| {});
    world.pass(1_000);
    for (ahead, word) in [(60_000, 3), (9_000, 1)] {
        let above = world.wall() + ahead * MS;
        let far = Message::ProposeLed { above, values: vec![Word(word)] };
        world.act(2, |order, effects| order.receive(process(9), far, effects));
        world.deliver();
    }
    world.act(2, |order, _| order.propose(Word(2), 8, Instant::ZERO).expect("room"));
    world.pass(2_000);
    assert!(world.executed.iter().all(|executed| executed == &[2]), "{:?}", world.executed);
    world.pass(60_000);
    assert!(world.executed.iter().all(|executed| executed == &[2, 1]), "{:?}", world.executed);
}

/// The smallest schedule of seed 593 (three regions, all faults): a journal that is torn between a proposal and
/// the reserve that covers it.
#[test]
fn an_owner_gives_no_position_twice_though_the_reserve_behind_it_is_torn_off() {
    let mut world = World::new(3, |_| {});
    world.pass(1_000);
    // Beyond what the clock gives.
    let above = world.orders[1].clock.reserved() + 1_000 * MS;
    let lead = |world: &mut World, word: u64| {
        let led = Message::ProposeLed { above, values: vec![Word(word)] };
        world.act(1, |order, effects| order.receive(process(9), led, effects));
    };
    lead(&mut world, 1);
    let accepted = world.records[1].iter().rposition(|record| matches!(record, Record::Accepted { .. }));
    let accepted = accepted.expect("it was proposed");
    assert!(
        matches!(world.records[1][accepted + 1..], [Record::Reserve { .. }]),
        "the reserve lies behind it"
    );
    world.records[1].truncate(accepted + 1);
    // What it proposes again is lost at first; beats give it a clock.
    world.cut = Some(1);
    world.restart();
    world.cut = None;
    world.pass(world.setup.parameters.heartbeat.as_nanos() / MS);
    lead(&mut world, 2);
    world.deliver();
    world.pass(5_000);
    for executed in &world.executed {
        let mut words = executed.clone();
        words.sort_unstable();
        assert_eq!(words, [1, 2], "both have a place of their own");
        assert_eq!(executed, &world.executed[0]);
    }
}
