//! Commit latency without load: what each region waits, beside the closed form.

use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::deployment::Deployment;
use isochrone_core::topology::Cells;
use isochrone_core::{Fact, Instant, Matrix, NodeId, Path, ProcessId, RegionId, Span, Ticket};
use isochrone_replication::{Family, Outcome, Placement, Replicated, Request};
use isochrone_sim::{
    Action, Config, Driver, FaultKind, FaultPlan, FaultSet, Next, Planned, Session, Simulation,
};
use std::collections::{BTreeMap, BTreeSet};

/// Each session asks a few times, far apart, once there is a leader.
#[derive(Default)]
struct Alone {
    reads: bool,
    /// When each client asks: what it asks first, and how far it is from there to the next.
    turns: BTreeMap<NodeId, (Instant, Span)>,
    /// How many commands a client asks, those that are not measured among them.
    rounds: BTreeMap<NodeId, u64>,
    warm: u64,
    asked: BTreeMap<u32, u64>,
    invoked: BTreeMap<Ticket, Instant>,
    waits: Vec<(NodeId, Span)>,
    paths: BTreeSet<Path>,
    /// Who was the last to begin to lead, so far and when the last command was answered: later the dead come back.
    leads: Option<NodeId>,
    led: Option<NodeId>,
}

const ROUNDS: u64 = 3;

/// The dead come back behind it, and what is slow is as it was.
const HORIZON: Span = Span::from_secs(1_000);

/// How many more a client asks whose nearest replica is dead: it tries that one again, at distances that double, and
/// most of what it asks should lie between.
const TRIES: u64 = 12;

impl<F: Family> Driver<Replicated<Machine, F>> for Alone {
    fn next(&mut self, session: Session, _: Instant) -> Next<Request<Command>> {
        let node = session.client.node;
        let count = self.asked.entry(session.number).or_default();
        if *count == self.rounds[&node] {
            return Next::Done;
        }
        let (first, gap) = self.turns[&node];
        let at = first + gap * *count;
        *count += 1;
        let command = if self.reads { Command::Get(key(0)) } else { Command::Set(key(0), "x".to_owned()) };
        Next::Request { at, request: Request::Command(command) }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.invoked.insert(ticket, now);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        assert!(matches!(outcome, Outcome::Replied(_)), "{outcome:?}");
        if self.asked[&session.number] <= self.warm {
            return;
        }
        self.waits.push((session.client.node, now.since(self.invoked[&ticket])));
        self.led = self.leads;
    }

    fn fact(&mut self, process: ProcessId, fact: &Fact, _: Instant) {
        match fact {
            Fact::Committed { path, total, phases, .. } => {
                self.paths.insert(*path);
                if phases.iter().any(|phase| *phase != Span::ZERO) {
                    let sum = phases.iter().fold(Span::ZERO, |sum, phase| sum + *phase);
                    assert_eq!(sum, *total, "the phases are the whole");
                }
            }
            Fact::Leads { .. } => self.leads = Some(process.node),
            _ => {}
        }
    }
}

/// How a cluster is measured.
pub struct Measured<F: Family> {
    pub matrix: Matrix,
    pub replicas: Vec<RegionId>,
    /// Who leads first, where anybody does.
    pub leader: RegionId,
    /// Whether commands read.
    pub reads: bool,
    /// Nodes that crash for good.
    pub dead: Vec<NodeId>,
    /// When they do: five seconds before the first command that is asked alone.
    pub crash: Span,
    /// What is slow from then on.
    pub slow: Option<Slow>,
    /// Whether clients ask the nearest replica, and so try it again once in a while when it is dead.
    pub nearest: bool,
    /// Whether each client asks all it asks before the next one does; else they take turns.
    pub in_a_row: bool,
    /// How many commands each client asks before those that are measured: until it knows its ways.
    pub warm: u64,
    pub tune: fn(&mut Placement<Machine, F>),
}

/// What is slow.
#[derive(Copy, Clone)]
pub enum Slow {
    /// The disk of a node: it syncs in this time.
    Disk(NodeId, Span),
    /// The ways to and from a node, by this much.
    Ways(NodeId, Span),
}

/// What was measured.
pub struct Waits {
    /// In the order in which they were asked.
    pub waits: Vec<(NodeId, Span)>,
    /// The ways that commands took.
    pub paths: BTreeSet<Path>,
    /// Who led at the end, where anybody does.
    pub leader: Option<RegionId>,
}

impl<F: Family> Measured<F> {
    pub fn new(matrix: &Matrix, replicas: &[RegionId]) -> Measured<F> {
        let (matrix, replicas) = (matrix.clone(), replicas.to_vec());
        let leader = replicas[0];
        let (reads, nearest, in_a_row, warm) = (false, false, false, 0);
        let (dead, crash, slow, tune) = (Vec::new(), Span::from_secs(5), None, |_: &mut _| {});
        Measured { matrix, replicas, leader, reads, dead, crash, slow, nearest, in_a_row, warm, tune }
    }

    /// The same with these dead, and with clients that ask the nearest replica: each in a row, so that what it asks
    /// comes close together, between two tries of a dead one.
    pub fn without(matrix: &Matrix, replicas: &[RegionId], dead: &[NodeId]) -> Measured<F> {
        Measured { dead: dead.to_vec(), nearest: true, in_a_row: true, ..Measured::new(matrix, replicas) }
    }

    /// What each client waits for each of its commands, one at a time in the whole cluster, and by which paths.
    pub fn waits(&self) -> (Vec<(NodeId, Span)>, BTreeSet<Path>) {
        let measured = self.run();
        (measured.waits, measured.paths)
    }

    /// As [`Self::waits`], with who led.
    pub fn run(&self) -> Waits {
        let (mut simulation, placement) = self.simulation();
        let mut driver = Alone { reads: self.reads, warm: self.warm, ..Alone::default() };
        // One at a time in the whole cluster, so that nothing waits for anything; a try of a dead replica takes long.
        let gap = Span::from_secs(if self.dead.is_empty() { 2 } else { 4 });
        let clients = self.matrix.len() as u64;
        let mut turn = Instant::ZERO + Span::from_secs(10);
        for (node, _) in &placement.clients {
            let mut rounds = self.warm + ROUNDS;
            rounds += if self.dead_nearest(*node) > 0 { TRIES } else { 0 };
            rounds = if self.dead.contains(node) { 0 } else { rounds };
            driver.rounds.insert(*node, rounds);
            driver.turns.insert(*node, (turn, if self.in_a_row { gap } else { gap * clients }));
            turn = turn + if self.in_a_row { gap * rounds } else { gap };
        }
        let report = simulation.run(&mut driver);
        assert_eq!(report.violations, [], "{report:?}");
        let leader = driver.led.map(|node| RegionId(node.0));
        Waits { waits: driver.waits, paths: driver.paths, leader }
    }

    /// When each client beside a replica that lives asked, and what it waited, for each of `count` commands, which all of them ask at the same
    /// instants from ten seconds on, this far apart, whether answered or not: all write one key, or each its own.
    pub fn together(&self, count: u64, every: Span, one_key: bool) -> Vec<(NodeId, Instant, Span)> {
        let (mut simulation, _) = self.simulation();
        let asking = self.replicas.iter().map(|region| NodeId(region.0)).collect();
        let mut driver = Together { count, every, one_key, asking, ..Together::default() };
        let report = simulation.run(&mut driver);
        assert_eq!(report.violations, [], "{report:?}");
        let mut waits = driver.waits;
        waits.retain(|(node, ..)| !self.dead.contains(node));
        assert_eq!(waits.len(), count as usize * (self.replicas.len() - self.dead.len()));
        waits
    }

    /// Where everything stands, and with which knobs.
    pub fn placement(&self) -> Placement<Machine, F> {
        let deployment = Deployment::of_matrix(self.matrix.clone(), F::NAME, &self.replicas);
        let mut placement = Placement::<Machine, F>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
        placement.leader = NodeId(self.leader.0);
        (self.tune)(&mut placement);
        placement
    }

    fn simulation(&self) -> (Simulation<Replicated<Machine, F>>, Placement<Machine, F>) {
        let (matrix, placement) = (&self.matrix, self.placement());
        let names: Vec<&str> = matrix.names().collect();
        let delay = |from, to| matrix.one_way(RegionId(from), RegionId(to));
        let count = names.len() as u16;
        let delays = (0..count).map(|from| (0..count).map(|to| delay(from, to)).collect()).collect();
        let mut config = Config::new(7, &names, delays);
        config.horizon = HORIZON;
        let planned = |kind, action| Planned { at: self.crash, length: Span::ZERO, kind, action };
        let crash = |node: &NodeId| {
            let (node, down) = (usize::from(node.0), Span::from_secs(100_000));
            planned(FaultKind::Crash, Action::Crash { node, effects: 0, down })
        };
        let slow = |slow: Slow| match slow {
            Slow::Disk(node, sync) => {
                planned(FaultKind::DiskSlow, Action::DiskSlow { node: usize::from(node.0), sync })
            }
            Slow::Ways(node, extra) => {
                let node = usize::from(node.0);
                let others = (0..names.len()).filter(|other| *other != node);
                let links = others.flat_map(|other| [(node, other), (other, node)]).collect();
                Planned { length: HORIZON, ..planned(FaultKind::Delay, Action::Delay { links, extra }) }
            }
        };
        let faults: Vec<Planned> = self.dead.iter().map(crash).chain(self.slow.map(slow)).collect();
        let mut simulation = Simulation::<Replicated<Machine, F>>::new(config, &placement);
        if !faults.is_empty() {
            let mut plan = FaultPlan::draw(7, FaultSet::NONE, &simulation.shape(1));
            plan.faults = faults;
            simulation.set_faults(plan);
        }
        (simulation, placement)
    }

    /// How many dead replicas a client tries before one that lives.
    fn dead_nearest(&self, client: NodeId) -> u64 {
        if !self.nearest {
            return 0;
        }
        let client = RegionId(client.0);
        let reach = |replica: RegionId| match replica == client {
            true => Span::ZERO,
            false => self.matrix.rtt(client, replica),
        };
        let mut nearest = self.replicas.clone();
        nearest.sort_by_key(|replica| reach(*replica));
        nearest.iter().take_while(|replica| self.dead.contains(&NodeId(replica.0))).count() as u64
    }

    /// Every wait is what the closed form says, within 0.1 ms.
    pub fn equals(&self, form: impl Fn(RegionId) -> Span) {
        self.follow(&self.waits().0, form);
    }

    /// Every one of these waits, which is all there are, is what the closed form says, within 0.1 ms. A client whose
    /// nearest replica is dead gets it from the next that lives; now and then it tries the nearest again, and then
    /// it waits so much longer as it gives a replica that is silent.
    pub fn follow(&self, waits: &[(NodeId, Span)], mut form: impl FnMut(RegionId) -> Span) {
        let retry = self.placement().service.retry;
        let mut settled: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (node, wait) in waits {
            let at = RegionId(node.0);
            let expected = form(at);
            let is = |form: Span| wait.as_nanos().abs_diff(form.as_nanos()) <= 100_000;
            let silent = self.dead_nearest(*node);
            // It looks whether an answer is due sixteen times as often.
            let (least, most) = (retry * silent, (retry + retry / 8) * silent);
            let tried = silent > 0 && *wait >= expected + least && *wait <= expected + most;
            *settled.entry(*node).or_default() += u64::from(is(expected));
            let names = |regions: &[RegionId]| {
                regions.iter().map(|region| self.matrix.name(*region)).collect::<Vec<_>>().join(",")
            };
            assert!(
                is(expected) || tried,
                "{}: replicas {}, leader {}, dead {:?}: {} waits {wait}, not {expected}",
                F::NAME,
                names(&self.replicas),
                self.matrix.name(self.leader),
                self.dead,
                self.matrix.name(at),
            );
        }
        for node in self.matrix.regions().map(|region| NodeId(region.0)) {
            let least = match self.dead_nearest(node) {
                0 => ROUNDS,
                _ => ROUNDS + TRIES / 3,
            };
            let settled = settled.get(&node).copied().unwrap_or_default();
            let dead = self.dead.contains(&node);
            assert!(if dead { settled == 0 } else { settled >= least }, "{node}: {settled} of {waits:?}");
        }
    }
}

/// All clients beside a replica ask at the same instants.
#[derive(Default)]
struct Together {
    count: u64,
    every: Span,
    one_key: bool,
    asking: BTreeSet<NodeId>,
    asked: BTreeMap<u32, u64>,
    invoked: BTreeMap<Ticket, Instant>,
    waits: Vec<(NodeId, Instant, Span)>,
}

impl<F: Family> Driver<Replicated<Machine, F>> for Together {
    fn next(&mut self, session: Session, _: Instant) -> Next<Request<Command>> {
        let count = self.asked.entry(session.number).or_default();
        if *count == self.count || !self.asking.contains(&session.client.node) {
            return Next::Done;
        }
        let at = Instant::ZERO + Span::from_secs(10) + self.every * *count;
        *count += 1;
        let key = if self.one_key { key(0) } else { key(session.number as u8) };
        Next::Arrival { at, request: Request::Command(Command::Set(key, "x".to_owned())) }
    }

    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.invoked.insert(ticket, now);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome<Reply>, now: Instant) {
        assert!(matches!(outcome, Outcome::Replied(_)), "{outcome:?}");
        let asked = self.invoked[&ticket];
        self.waits.push((session.client.node, asked, now.since(asked)));
    }
}

/// All round-trip matrices of the reference.
pub fn matrices() -> Vec<(String, Matrix)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/rtt");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let named =
        files.into_iter().map(|file| (file.file_name().unwrap().to_string_lossy().into_owned(), file));
    let matrices: Vec<_> = named
        .filter(|(name, _)| !name.contains("stdev"))
        .map(|(name, file)| {
            let text = std::fs::read_to_string(&file).unwrap();
            let lan = Span::from_micros(500);
            let matrix = Matrix::parse(&text, &name, Cells::RoundTrip, lan)
                .or_else(|_| Matrix::parse(&text, &name, Cells::AsymmetricRoundTrip, lan))
                .unwrap();
            (name, matrix)
        })
        .collect();
    assert!(matrices.len() >= 15, "only {} matrices were found", matrices.len());
    matrices
}

/// The first 3, 5 and 7 regions of a matrix, as far as it has so many.
pub fn groups(matrix: &Matrix) -> Vec<Vec<RegionId>> {
    let sizes = [3, 5, 7].into_iter().filter(|size| *size <= matrix.len());
    sizes.map(|size| matrix.regions().take(size).collect()).collect()
}
