//! A world without chance: what is first on its way arrives first, disks are quick, and time passes as it should.
//! What goes wrong is written down in a test, at whatever boundary between two messages it likes.

use super::actor::{Count, Wired, process};
use super::world::{World, parameters, service};
use isochrone_core::{Instant, NodeId, Process as _, ProcessId, Span};
use isochrone_replication::curp::primary::registry::Command as Decree;
use isochrone_replication::curp::primary::{Parameters, WITNESS};
use isochrone_replication::service::Service;
use isochrone_replication::{REPLICA, Tuning as _};
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Between two messages; where none is on its way, until it is looked again.
const PACE: Span = Span::from_micros(250);
const IDLE: Span = Span::from_millis(2);
const PING_EVERY: Span = Span::from_millis(40);
/// After so long a client that is not answered looks for another master.
const PATIENCE: Span = Span::from_millis(40);

/// How long a message takes from one node to another.
type Ways = Arc<dyn Fn(NodeId, NodeId) -> Span>;

/// A world, what its clients are to ask, one command after the other, and who of them no longer does anything.
#[derive(Clone)]
pub struct Play {
    world: World,
    pub plans: Vec<VecDeque<Count>>,
    pub idle: BTreeSet<usize>,
    /// Clients that go on with the master they know.
    pub stubborn: BTreeSet<usize>,
    /// Servers whose disks write nothing.
    pub slow: BTreeSet<usize>,
    pinged: Instant,
    /// How long a message takes from node to node, where it takes any time; what is on its way then.
    far: Option<Ways>,
    flying: Vec<(Instant, (ProcessId, ProcessId, Wired))>,
}

impl Deref for Play {
    type Target = World;
    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Play {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

pub fn nodes(numbers: impl IntoIterator<Item = u16>) -> Arc<[NodeId]> {
    numbers.into_iter().map(NodeId).collect()
}

impl Play {
    /// Node 0 is the master, with the next `f` as copies; the rest are spares.
    pub fn new(
        count: u16,
        f: u16,
        plans: Vec<Vec<Count>>,
        bug: Option<&str>,
        tune: impl FnOnce(&mut Parameters, &mut Service),
    ) -> Play {
        Play::drifting(count, f, plans, bug, vec![0; usize::from(count)], tune)
    }

    /// The same, with clocks that run faster than they should by so many millionths.
    pub fn drifting(
        count: u16,
        f: u16,
        plans: Vec<Vec<Count>>,
        bug: Option<&str>,
        drift: Vec<i64>,
        tune: impl FnOnce(&mut Parameters, &mut Service),
    ) -> Play {
        let (mut parameters, mut service) = (parameters(usize::from(f)), service());
        tune(&mut parameters, &mut service);
        if let Some(bug) = bug {
            assert!(parameters.plant(bug), "no bug {bug}");
        }
        let mut play = Play {
            world: World::new(count, plans.len() as u16, parameters, service),
            plans: plans.into_iter().map(VecDeque::from).collect(),
            idle: BTreeSet::new(),
            stubborn: BTreeSet::new(),
            slow: BTreeSet::new(),
            pinged: Instant::ZERO,
            far: None,
            flying: Vec::new(),
        };
        play.drift = drift;
        // What a former life may have granted is over.
        play.now = Instant::ZERO + Span::from_secs(5);
        play.lead(0, 1..=f);
        let plans = std::mem::take(&mut play.plans);
        play.until("the first master", |play| play.registry.committed.is_some());
        play.pass(Span::from_millis(60));
        play.plans = plans;
        play
    }

    /// From here on a message takes so long from node to node, and nothing else takes any time.
    pub fn far_apart(&mut self, ways: impl Fn(NodeId, NodeId) -> Span + 'static) {
        self.far = Some(Arc::new(ways));
    }

    /// The managers have another master recover.
    pub fn lead(&mut self, master: u16, copies: impl IntoIterator<Item = u16>) {
        let (version, master, copies) = (self.registry.version, NodeId(master), nodes(copies));
        assert!(self.agree(&Decree::Recover { version, master, copies }), "{:?}", self.registry);
        self.pinged = Instant::ZERO;
    }

    /// The master is to have other copies.
    pub fn replace(&mut self, copies: impl IntoIterator<Item = u16>) {
        let (version, copies) = (self.registry.version, nodes(copies));
        assert!(self.agree(&Decree::Replace { version, copies }), "{:?}", self.registry);
        self.pinged = Instant::ZERO;
    }

    /// Nobody hears or speaks any more of these: servers, and witnesses.
    pub fn lose(&mut self, servers: impl IntoIterator<Item = u16>, witnesses: impl IntoIterator<Item = u16>) {
        let servers = servers.into_iter().map(|node| process(node, REPLICA));
        let witnesses = witnesses.into_iter().map(|node| process(node, WITNESS));
        self.world.gone.extend(servers.chain(witnesses));
    }

    /// What is on its way from those who are lost does not arrive.
    pub fn forget_sent(&mut self) {
        let world = &mut self.world;
        world.net.retain(|(from, ..)| !world.gone.contains(from));
    }

    pub fn is_lost(&self, node: u16) -> bool {
        self.gone.contains(&process(node, REPLICA))
    }

    /// Somebody who lives and may lead recovers, with as many copies as live and are wanted.
    pub fn recover(&mut self, f: usize) {
        let lives = |node: &u16| !self.gone.contains(&process(*node, REPLICA));
        let witnesses = |node: &u16| !self.gone.contains(&process(*node, WITNESS));
        let all = 0..self.servers.len() as u16;
        let heir = all.clone().filter(lives).find(|node| self.registry.may_lead(NodeId(*node))).unwrap();
        let copies: Vec<u16> = all
            .filter(lives)
            .filter(witnesses)
            .filter(|node| *node != heir)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .take(f)
            .collect();
        self.lead(heir, copies);
    }

    /// One thing happens.
    pub fn turn(&mut self) {
        let servers = self.servers.len();
        for at in 0..2 * servers {
            let lost = match at < servers {
                true => self.gone.contains(&self.servers[at].id),
                false => self.gone.contains(&self.witnesses[at - servers].id),
            };
            if !lost && !self.slow.contains(&at) {
                self.flush(at);
            }
        }
        let now = self.now;
        for at in 0..servers {
            if self.is_lost(at as u16) {
                continue;
            }
            let clock = self.clock(at);
            while let Some(timer) = self.world.servers[at].due(clock) {
                self.serve(at, |process, effects| process.expire(timer, effects));
            }
        }
        if now.since(self.pinged) >= PING_EVERY {
            self.pinged = now;
            (0..servers).for_each(|at| self.ping(at));
        }
        for index in 0..self.clients.len() {
            if self.idle.contains(&index) {
                continue;
            }
            if self.clients[index].asked.is_none()
                && let Some(command) = self.plans.get_mut(index).and_then(VecDeque::pop_front)
            {
                self.begin(index, command);
            }
            let due = self.clients[index].asked.as_ref().is_some_and(|asked| asked.due <= now);
            if due {
                let refresh = !self.stubborn.contains(&index);
                self.attempt(index, refresh, PATIENCE);
            }
        }
        match self.far.clone() {
            None if self.net.is_empty() => self.now = now + IDLE,
            None => {
                self.now = now + PACE;
                let (from, to, message) = self.net.remove(0);
                self.deliver(from, to, message);
            }
            Some(ways) => {
                for (from, to, message) in std::mem::take(&mut self.net) {
                    let way = if from.node == to.node { Span::ZERO } else { ways(from.node, to.node) };
                    self.flying.push((now + way, (from, to, message)));
                }
                match self.flying.iter().position(|(at, _)| *at <= now) {
                    Some(at) => {
                        let (_, (from, to, message)) = self.flying.remove(at);
                        self.deliver(from, to, message);
                    }
                    None => self.now = now + PACE,
                }
            }
        }
    }

    /// Goes on until something is so; how many turns that took.
    #[track_caller]
    pub fn until(&mut self, what: &str, is: impl Fn(&Play) -> bool) -> usize {
        match self.comes(&is) {
            Ok(turns) => turns,
            Err(text) => panic!("{what}: {text}"),
        }
    }

    /// The same; what broke, or that it does not come.
    pub fn comes(&mut self, is: impl Fn(&Play) -> bool) -> Result<usize, String> {
        for turn in 0..40_000 {
            if is(self) {
                return Ok(turn);
            }
            self.turn();
            if let Some(text) = self.world.broken.take() {
                return Err(text);
            }
        }
        Err(format!("Stuck: {} answers, {:?}", self.answered(), self.registry))
    }

    pub fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.turn();
        }
    }

    /// Whether everything was asked and answered.
    pub fn is_done(&self) -> bool {
        let idle = |index: usize| self.idle.contains(&index);
        let open = |(index, plan): (usize, &VecDeque<Count>)| {
            !(idle(index) || plan.is_empty() && self.clients[index].asked.is_none())
        };
        !self.plans.iter().enumerate().any(open)
    }

    /// Goes on until all are answered, and looks whether every copy counts what was asked for: each command was
    /// executed, once; and whether some order explains what was answered.
    pub fn ends_well(&mut self) -> Result<(), String> {
        self.comes(Play::is_done)?;
        self.pass(Span::from_millis(400));
        if let Some(text) = self.world.broken.take() {
            return Err(text);
        }
        self.explained()?;
        let now = self.registry.committed.clone().unwrap();
        for node in now.copies.iter().chain([&now.master]).filter(|node| !self.is_lost(node.0)) {
            let counts = &self.servers[usize::from(node.0)].process.machine().0;
            for (key, added) in &self.added {
                let count = counts.get(key).copied().unwrap_or(0);
                if count != *added {
                    return Err(format!("{node} counts {count} of k{key}, and {added} were added"));
                }
            }
        }
        Ok(())
    }
}
