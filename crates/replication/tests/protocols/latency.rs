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
    dead: Vec<NodeId>,
    in_a_row: bool,
    warm: u64,
    /// How many clients there are.
    clients: u64,
    asked: BTreeMap<u32, u64>,
    invoked: BTreeMap<Ticket, Instant>,
    waits: Vec<(NodeId, Span)>,
    paths: BTreeSet<Path>,
}

const ROUNDS: u64 = 3;

impl<F: Family> Driver<Replicated<Machine, F>> for Alone {
    fn next(&mut self, session: Session, _: Instant) -> Next<Request<Command>> {
        let count = self.asked.entry(session.number).or_default();
        let rounds = ROUNDS + self.warm;
        if *count == rounds || self.dead.contains(&session.client.node) {
            return Next::Done;
        }
        *count += 1;
        // One at a time in the whole cluster, so that nothing waits for anything.
        let (count, number) = (*count, u64::from(session.number));
        let turn = if self.in_a_row { number * rounds + count } else { count * self.clients + number };
        let at = Instant::ZERO + Span::from_secs(10 + turn * 2);
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
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Committed { path, total, phases, .. } = fact {
            self.paths.insert(*path);
            if phases.iter().any(|phase| *phase != Span::ZERO) {
                let sum = phases.iter().fold(Span::ZERO, |sum, phase| sum + *phase);
                assert_eq!(sum, *total, "the phases are the whole");
            }
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
    /// Nodes that crash for good five seconds before the first command.
    pub dead: Vec<NodeId>,
    /// Whether each client asks all it asks before the next one does; else they take turns.
    pub in_a_row: bool,
    /// How many commands each client asks before those that are measured: until it knows its ways.
    pub warm: u64,
    pub tune: fn(&mut Placement<Machine, F>),
}

impl<F: Family> Measured<F> {
    pub fn new(matrix: &Matrix, replicas: &[RegionId]) -> Measured<F> {
        let (matrix, replicas) = (matrix.clone(), replicas.to_vec());
        let leader = replicas[0];
        let (reads, dead, in_a_row, warm) = (false, Vec::new(), false, 0);
        Measured { matrix, replicas, leader, reads, dead, in_a_row, warm, tune: |_| {} }
    }

    /// What each client waits for each of its commands, one at a time in the whole cluster, and by which paths.
    pub fn waits(&self) -> (Vec<(NodeId, Span)>, BTreeSet<Path>) {
        let matrix = &self.matrix;
        let deployment = Deployment::of_matrix(matrix.clone(), F::NAME, &self.replicas);
        let mut placement = Placement::<Machine, F>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
        placement.leader = NodeId(self.leader.0);
        (self.tune)(&mut placement);
        let names: Vec<&str> = matrix.names().collect();
        let delay = |from, to| matrix.one_way(RegionId(from), RegionId(to));
        let count = names.len() as u16;
        let delays = (0..count).map(|from| (0..count).map(|to| delay(from, to)).collect()).collect();
        let mut config = Config::new(7, &names, delays);
        config.horizon = Span::from_secs(600);
        let mut driver = Alone {
            reads: self.reads,
            dead: self.dead.clone(),
            in_a_row: self.in_a_row,
            warm: self.warm,
            clients: u64::from(count),
            ..Alone::default()
        };
        let mut simulation = Simulation::<Replicated<Machine, F>>::new(config, &placement);
        if !self.dead.is_empty() {
            let action = |node: &NodeId| Planned {
                at: Span::from_secs(5),
                length: Span::ZERO,
                kind: FaultKind::Crash,
                action: Action::Crash {
                    node: usize::from(node.0),
                    effects: 0,
                    down: Span::from_secs(100_000),
                },
            };
            let mut plan = FaultPlan::draw(7, FaultSet::NONE, &simulation.shape(1));
            plan.faults = self.dead.iter().map(action).collect();
            simulation.set_faults(plan);
        }
        let report = simulation.run(&mut driver);
        assert_eq!(report.violations, [], "{report:?}");
        (driver.waits, driver.paths)
    }

    /// Every wait is what the closed form says, within 0.1 ms.
    pub fn equals(&self, form: impl Fn(RegionId) -> Span) {
        let (waits, _) = self.waits();
        let clients = self.matrix.len() - self.dead.len();
        assert_eq!(waits.len(), ROUNDS as usize * clients);
        for (node, wait) in waits {
            let at = RegionId(node.0);
            let expected = form(at);
            let names = |regions: &[RegionId]| {
                regions.iter().map(|region| self.matrix.name(*region)).collect::<Vec<_>>().join(",")
            };
            assert!(
                wait.as_nanos().abs_diff(expected.as_nanos()) <= 100_000,
                "{}: replicas {}, leader {}, dead {:?}: {} waits {wait}, not {expected}",
                F::NAME,
                names(&self.replicas),
                self.matrix.name(self.leader),
                self.dead,
                self.matrix.name(at),
            );
        }
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
