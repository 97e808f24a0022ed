//! All orders of everything in the smallest world: a master, one backup, one witness, two clients, one recovery. Any
//! message may be late as long as it likes, so lost as well; clients may ask again; the recovery may begin at any moment.
//!
//! Where each client has one command and asks once, the model checker stateright sees all orders; where they end,
//! managers speak again, timers fire, and whoever has no answer asks until there is one: an add and a read have 356,270 states, two adds
//! 1,474,726, and 649,410 where links keep their order, as connections do. States are merged by what processes are, without
//! their journals, since none restarts here, and without timers, since none expires; whoever of two that are alike begins
//! is the first one; and nothing is walked behind the last answer, since nobody could tell. Where the reader may ask again
//! there are 3,021,268.

use super::actor::{Count, Wired};
use super::script::nodes;
use super::world::{World, parameters, service};
use crate::model::{Explored, exhaust, finds, search};
use isochrone_core::{Instant, NodeId, Process as _, Random, Span};
use isochrone_replication::curp::primary::registry::Command as Decree;
use isochrone_replication::curp::primary::{Message as Spoken, Part};
use isochrone_replication::curp::witness::Shape;
use isochrone_replication::message::Message;
use isochrone_replication::{CLIENT, Tuning as _};
use rustc_hash::{FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

#[derive(Clone)]
struct Small {
    world: World,
    plans: [Vec<Count>; 2],
    /// How often each client may still ask, and may ask for a command that it begins.
    tries: [u8; 2],
    patience: [u8; 2],
    /// Whether the master may still be given up.
    recovers: bool,
    /// Whether records are durable at once; processes that may still lose what is not.
    quick: bool,
    crashes: u8,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Step {
    Deliver(usize),
    Ask(usize),
    Recover,
    /// A disk has written everything.
    Flush(usize),
    Crash(usize),
}

impl Small {
    fn new(plans: [Vec<Count>; 2], bug: Option<&str>) -> Small {
        let mut parameters = parameters(1);
        parameters.lease = false;
        parameters.sync_delay = Span::ZERO;
        parameters.witness = Shape { slots: 4, ways: 4, ..Shape::default() };
        if let Some(bug) = bug {
            assert!(parameters.plant(bug));
        }
        let mut world = World::new(2, 2, parameters, service());
        world.now = Instant::ZERO + Span::from_secs(5);
        let mut small =
            Small { world, plans, tries: [1; 2], patience: [2; 2], recovers: true, quick: true, crashes: 0 };
        small.lead(0, 1);
        while !small.world.net.is_empty() {
            small.step(Step::Deliver(0));
        }
        assert!(small.world.registry.committed.is_some());
        small
    }

    fn lead(&mut self, master: u16, copy: u16) {
        let (version, master) = (self.world.registry.version, NodeId(master));
        assert!(self.world.agree(&Decree::Recover { version, master, copies: nodes([copy]) }));
        self.tell();
    }

    /// What is agreed is on its way to both.
    fn tell(&mut self) {
        self.world
            .net
            .retain(|(.., message)| !matches!(message, Message::Order { message: Spoken::Ping { .. }, .. }));
        (0..2).for_each(|at| self.world.ping(at));
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, sent) in self.world.net.iter().enumerate() {
            let comes = match self.world.links_keep_order {
                true => self.world.before(at) == 0,
                false => !self.world.net[..at].contains(sent),
            };
            if comes {
                steps.push(Step::Deliver(at));
            }
        }
        // Whoever of two that are alike begins is the first one.
        let begun = self.world.clients[0].sequence > 0 || self.plans[0] != self.plans[1];
        for index in 0..if begun { 2 } else { 1 } {
            let open = self.world.clients[index].asked.is_some();
            if self.tries[index] > 0 && (open || !self.plans[index].is_empty()) {
                steps.push(Step::Ask(index));
            }
        }
        if self.recovers {
            steps.push(Step::Recover);
        }
        for at in 0..4 {
            let writes = match at {
                0 | 1 => self.world.servers[at].writes(),
                _ => self.world.witnesses[at - 2].writes(),
            };
            if writes {
                steps.push(Step::Flush(at));
                if self.crashes > 0 {
                    steps.push(Step::Crash(at));
                }
            }
        }
        steps
    }

    fn step(&mut self, step: Step) {
        let version = self.world.registry.version;
        match step {
            Step::Deliver(at) => {
                let (from, to, message) = self.world.net.remove(at);
                self.world.deliver(from, to, message);
            }
            Step::Ask(index) => {
                if self.world.clients[index].asked.is_none() {
                    let command = self.plans[index].remove(0);
                    self.tries[index] = self.patience[index];
                    self.world.begin(index, command);
                }
                self.tries[index] -= 1;
                self.world.attempt(index, true, Span::ZERO);
            }
            Step::Recover => {
                self.recovers = false;
                self.lead(1, 0);
            }
            Step::Flush(at) => self.world.flush(at),
            Step::Crash(at) => {
                self.crashes -= 1;
                let now = self.world.now;
                match at {
                    0 | 1 => self.world.restart_server(at),
                    _ => drop(self.world.witnesses[at - 2].restart(now)),
                }
            }
        }
        if self.world.registry.version != version {
            self.tell();
        }
        // What managers only note is nothing here, and what is for clients that have their answers.
        let idle = [0, 1].map(|index| self.world.clients[index].asked.is_none());
        self.world.net.retain(|(_, to, message)| match message {
            Message::Order { message: Spoken::Pong { report, .. }, .. } => {
                matches!(report.part, Part::Ready(_))
            }
            _ => to.role != CLIENT || !idle[usize::from(to.node.0) - 100],
        });
        // Nothing depends on when these arrive.
        while let Some(at) = self.world.net.iter().position(|(.., message)| is_quick(message)) {
            let (from, to, message) = self.world.net.remove(at);
            self.world.deliver(from, to, message);
        }
        while let Some(at) = (0..4).find(|at| self.quick && self.writes(*at)) {
            self.world.flush(at);
        }
    }

    fn writes(&self, at: usize) -> bool {
        match at {
            0 | 1 => self.world.servers[at].writes(),
            _ => self.world.witnesses[at - 2].writes(),
        }
    }

    fn deliver_all(&mut self) {
        while !self.world.net.is_empty() {
            Explored::step(self, Step::Deliver(0));
        }
    }

    /// Whether a client has all that it wanted.
    fn is_idle(&self, index: usize) -> bool {
        self.plans[index].is_empty() && self.world.clients[index].asked.is_none()
    }
}

/// Where nobody restarts, processes are what they are without their journals.
impl Hash for Small {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.plans, &self.tries, self.recovers).hash(state);
        if self.quick && self.crashes == 0 {
            self.world.hash_lean(state);
        } else {
            (&self.world, self.patience, self.quick, self.crashes).hash(state);
        }
    }
}

impl Explored for Small {
    type Step = Step;

    /// Nobody sees what comes behind the last answer.
    fn steps(&self) -> Vec<Step> {
        match self.is_idle(0) && self.is_idle(1) {
            true => Vec::new(),
            false => Small::steps(self),
        }
    }

    fn step(&mut self, step: Step) {
        Small::step(self, step);
        if let Some(text) = self.world.broken.take() {
            panic!("{text}");
        }
    }

    /// Managers speak, timers fire, and whoever has no answer asks until there is one.
    fn close(mut self) {
        for _ in 0..20 {
            for index in (0..2).filter(|index| !self.is_idle(*index)).collect::<Vec<_>>() {
                self.tries[index] = 1;
                Explored::step(&mut self, Step::Ask(index));
            }
            self.deliver_all();
            if self.is_idle(0) && self.is_idle(1) {
                return;
            }
            self.world.now = self.world.now + Span::from_millis(100);
            for at in 0..2 {
                let clock = self.world.clock(at);
                while let Some(timer) = self.world.servers[at].due(clock) {
                    self.world.serve(at, |process, effects| process.expire(timer, effects));
                }
            }
            Small::tell(&mut self);
            self.deliver_all();
        }
        panic!("a client is never answered");
    }

    fn tell(&self, step: &Step) -> String {
        match step {
            Step::Deliver(at) => {
                let (from, to, message) = &self.world.net[*at];
                format!("{from} to {to}: {message:?}")
            }
            other => format!("{other:?}"),
        }
    }
}

/// Whether it may as well arrive at once: it only ends what is over, or says so.
fn is_quick(message: &Wired) -> bool {
    matches!(
        message,
        Message::Order {
            message: Spoken::End { .. }
                | Spoken::Collected { .. }
                | Spoken::Heard { .. }
                // Nobody goes by a reign before the master's word that it is ready, which may be late all the same.
                | Spoken::Start { .. }
                | Spoken::Started { .. },
            ..
        }
    )
}

fn states(or: usize) -> usize {
    std::env::var("ISOCHRONE_STATES").ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

/// Walks at random through what is too large to be seen whole.
fn wander(start: &Small, bound: usize) -> Result<usize, String> {
    let mut random = Random::seeded(3);
    let mut seen = FxHashSet::default();
    for _ in 0..bound {
        if seen.len() >= bound {
            break;
        }
        let mut at = start.clone();
        loop {
            let steps = at.steps();
            if steps.is_empty() {
                break;
            }
            at.step(steps[random.below(steps.len() as u64) as usize]);
            if let Some(text) = at.world.broken.take() {
                return Err(text);
            }
            let mut hasher = FxHasher::default();
            at.hash(&mut hasher);
            seen.insert(hasher.finish());
        }
    }
    Ok(seen.len())
}

fn alike() -> [Vec<Count>; 2] {
    [vec![Count::add(1)], vec![Count::add(1)]]
}

fn longer() -> [Vec<Count>; 2] {
    [vec![Count::add(1), Count::add(2)], vec![Count::add(1), Count::read(2)]]
}

fn a_reader() -> [Vec<Count>; 2] {
    [vec![Count::add(1)], vec![Count::read(1)]]
}

fn both_answered(small: &Small) -> bool {
    small.is_idle(0) && small.is_idle(1) && !small.recovers
}

/// All there is: each client asks for each command at most so often.
fn every_order(plans: [Vec<Count>; 2], patience: [u8; 2], in_order: bool) {
    let mut start = Small { patience, ..Small::new(plans, None) };
    start.world.links_keep_order = in_order;
    let states = exhaust("curp", start, both_answered);
    assert!(states > 100_000, "{states} states");
}

#[test]
fn every_order_of_an_add_a_read_and_a_recovery_holds() {
    every_order(a_reader(), [1, 1], false);
}

#[test]
fn every_order_of_two_adds_and_a_recovery_holds_where_links_keep_order() {
    every_order(alike(), [1, 1], true);
}

#[test]
#[ignore = "a minute"]
fn every_order_of_two_adds_and_a_recovery_holds() {
    every_order(alike(), [1, 1], false);
}

#[test]
#[ignore = "some minutes"]
fn every_order_holds_where_one_of_two_asks_again() {
    every_order(a_reader(), [1, 2], false);
    every_order(a_reader(), [2, 1], true);
}

#[test]
fn many_orders_hold_where_both_ask_again() {
    for plans in [alike(), a_reader()] {
        let searched = search(Small::new(plans, None), states(300_000), both_answered);
        println!("{} states, all of them: {}", searched.states, searched.all);
        assert!(searched.wrong.is_none(), "{:?}", searched.wrong);
        assert!(searched.states > 10_000 && (searched.met || !searched.all));
    }
}

/// The walk that sees all there is sees what is wrong.
#[test]
fn a_recovery_without_its_replay_is_found_in_every_order() {
    for in_order in [false, true] {
        let mut start = Small { patience: [1, 1], ..Small::new(a_reader(), Some("skip-replay")) };
        start.world.links_keep_order = in_order;
        let text = finds("skip-replay", start);
        assert!(text.contains("k1 counts 0"), "{text}");
    }
}

#[test]
fn walks_of_longer_ones_hold() {
    let states = wander(&Small::new(longer(), None), states(30_000)).unwrap();
    println!("{states} states");
    let start = Small { quick: false, crashes: 1, ..Small::new(longer(), None) };
    let states = wander(&start, self::states(30_000)).unwrap();
    println!("{states} states with slow disks and a crash");
}

#[test]
fn a_guard_that_is_taken_away_is_missed() {
    let mut missed = Vec::new();
    let bugs = [
        ("skip-replay", longer()),
        ("accept-after-recovery", longer()),
        ("collect-early", longer()),
        ("accept-conflicts", longer()),
        ("speculate-on-conflict", alike()),
        ("speculate-on-duplicate", longer()),
    ];
    for (bug, plans) in bugs {
        let start = Small::new(plans, Some(bug));
        let found = std::panic::catch_unwind(|| wander(&start, 3_000_000));
        match found {
            Ok(Err(text)) => println!("{bug:<28} {text}"),
            Err(_) => println!("{bug:<28} an invariant failed"),
            Ok(Ok(states)) => missed.push((bug, states)),
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
