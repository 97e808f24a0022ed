//! Clusters under faults: everything of a run is drawn from its seed, and what its clients saw is checked.

use isochrone_core::{Fact, Instant, KeyspaceId, NodeId, ProcessId, Random, Span, Ticket};
use isochrone_replication::Change;
use isochrone_sim::{
    Action, Admin, Config, Driver, FaultKind, FaultPlan, FaultSet, Histogram, Jitter, Next, Planned, Record,
    Report, Session, Simulation,
};
use isochrone_transactions::retry::Retry;
use isochrone_transactions::{Distances, Family, Outcome, Placement, Request, Split, Transactional};
use isochrone_workload::Window;
use isochrone_workload::transactions::{
    Figures, Script, TransactionClients, Workload, draw_change, draw_move, judge,
};
use std::collections::BTreeMap;

/// How a fuzzed run is made.
#[derive(Clone)]
pub struct Case<F: Family> {
    /// Partitions; their replicas are on the nodes in turn.
    pub partitions: u16,
    /// Replicas of each.
    pub replicas: u16,
    pub faults: FaultSet,
    /// Draws the knobs.
    pub tune: fn(&mut F::Parameters, &mut Random),
    /// The bug that is planted.
    pub bug: Option<&'static str>,
    /// The first seed that is tried for it: near one that shows it, where that takes many.
    pub first: u64,
    /// "bank", "ledger" or "txn-check"; the first and the last by turns where there is none.
    pub workload: Option<&'static str>,
    /// How many keys or accounts there are.
    pub records: u64,
    /// Transactions of a session.
    pub rounds: u64,
    /// The longest pause between them.
    pub think: Span,
    /// Crashes in addition to those drawn, each short.
    pub crashes: u64,
    /// Nodes cut off for a while, in addition to what is drawn.
    pub isolated: u64,
    /// How often a leader is told to hand over, in addition to what is drawn.
    pub handovers: u64,
    /// How often keys are moved to another partition; then clients go by a directory.
    pub moves: u64,
    /// How often who leads a partition or replicates it is changed; then each waits on the nodes where it has no replica.
    pub changes: u64,
    /// How often a commit under way is asked to be aborted.
    pub withdrawals: u64,
}

/// What a run came to.
pub struct Ran {
    pub report: Report,
    pub figures: Figures,
    pub counted: BTreeMap<&'static str, u64>,
    pub plan: FaultPlan,
    /// What is wrong with what the clients saw.
    pub wrong: Option<String>,
}

impl Ran {
    /// What broke, if anything: an oracle, or what the clients saw.
    pub fn broken(&self) -> Option<String> {
        match self.report.violations.first() {
            Some(violation) => Some(violation.to_string()),
            None => self.wrong.as_ref().map(|text| format!("seed {}: {text}", self.report.seed)),
        }
    }
}

impl<F: Family> Case<F> {
    /// Three partitions of three replicas on four nodes and one with only a client, a dozen keys.
    pub fn new(faults: FaultSet, tune: fn(&mut F::Parameters, &mut Random)) -> Case<F> {
        Case {
            partitions: 3,
            replicas: 3,
            faults,
            tune,
            bug: None,
            first: 0,
            workload: None,
            records: 12,
            rounds: 30,
            think: Span::from_millis(200),
            crashes: 0,
            isolated: 0,
            handovers: 0,
            moves: 0,
            changes: 0,
            withdrawals: 0,
        }
    }

    pub fn run(&self, seed: u64) -> Ran {
        let mut random = Random::seeded(seed ^ 0x7478_6e73);
        let nodes = self.nodes();
        // From one machine room to the other side of the world, unevenly.
        let far = [50_000, 500_000, 5_000_000, 40_000_000, 100_000_000][random.below(5) as usize];
        let mut delay = || Span::from_nanos(random.between(far / 2, far));
        let mut delays: Vec<Vec<Span>> = (0..nodes).map(|_| (0..nodes).map(|_| delay()).collect()).collect();
        (0..usize::from(nodes)).for_each(|node| delays[node][node] = Span::ZERO);
        let mut placement = self.placement(&delays, Span::from_nanos(far * 2), &mut random);
        if self.moves > 0 {
            placement = placement.movable();
        }
        if self.changes > 0 {
            (1..nodes).for_each(|node| placement.add_spare(NodeId(node)));
        }
        let regions: Vec<String> = (0..nodes).map(|node| format!("r{node}")).collect();
        let regions: Vec<&str> = regions.iter().map(String::as_str).collect();
        let mut config = Config::new(seed, &regions, delays);
        config.roles = &["server", "client"];
        config.sync = Span::from_micros(random.between(50, 3_000));
        config.jitter = Jitter::Uniform(Span::from_nanos(random.below(far)));
        config.sessions = 1 + random.below(3) as u32;
        config.horizon = Span::from_secs(8);
        config.budget = 5_000_000;
        config.snapshot_every = [20, 200, 20_000][random.below(3) as usize];
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            config.record = Record::Flow;
        }
        let horizon = config.horizon;
        let mut simulation = Simulation::<Transactional<F>>::new(config, &placement);
        let tolerated = usize::from(self.replicas - 1) / 2;
        let mut plan = FaultPlan::draw(seed, self.faults, &simulation.shape(tolerated));
        self.add_faults(&mut plan, nodes, &mut random);
        simulation.set_faults(plan);
        let name = self.workload.unwrap_or(["bank", "txn-check"][random.below(2) as usize]);
        let mut workload = Workload::named(name).unwrap();
        workload.records = self.records;
        workload.retry = [Retry::NEVER, Retry::for_rtt(Span::from_nanos(far * 2))][random.below(2) as usize];
        let clients = TransactionClients::new(Script {
            workload,
            think: Span::from_nanos(random.below(self.think.as_nanos() + 1)),
            every: None,
            until: Instant::ZERO + horizon,
            transactions_max: self.rounds,
            window: Window::ALL,
            seed: random.below(u64::MAX),
            history: true,
            // The first node loses nothing for good.
            closers: 1,
            region_of: (0..usize::from(nodes)).collect(),
        });
        let servers = placement.map.groups.iter().flat_map(|group| group.members.iter());
        let servers = servers.map(|member| member.process).collect();
        let moves: Option<Moves> = (self.moves > 0).then(|| {
            let placement = placement.clone();
            Box::new(move |random: &mut Random| draw_move(&placement, random, |request| request)) as Moves
        });
        let changes: Option<Moves> = (self.changes > 0).then(|| {
            let placement = placement.clone();
            Box::new(move |random: &mut Random| draw_change(&placement, random)) as Moves
        });
        let withdraws = (self.withdrawals > 0).then(|| Random::seeded(seed ^ 0x6261_636b));
        let mut driver = Counting { clients, counted: BTreeMap::new(), servers, moves, changes, withdraws };
        let report = simulation.run(&mut driver);
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            eprintln!("{}", simulation.trace());
        }
        let plan = simulation.faults().clone();
        let Counting { clients, counted, .. } = driver;
        let figures = clients.figures().clone();
        let mut wrong = clients.broken().into_iter().chain(clients.unfinished()).next();
        let history = clients.into_history();
        if std::env::var_os("ISOCHRONE_HISTORY").is_some() {
            for (at, one) in history.list.iter().enumerate() {
                eprintln!("{at}: {one:?}");
            }
        }
        let (violations, undecided) = judge(&history, F::guarantees(&placement.parameters));
        let told = violations.into_iter().next().or(undecided.map(|reason| format!("Undecided: {reason}")));
        wrong = told.or(wrong);
        Ran { report, figures, counted, plan, wrong }
    }

    /// One more than a partition has replicas, and one in front that has only clients: its disk is not lost, and its
    /// first session ends the run.
    fn nodes(&self) -> u16 {
        self.replicas + 2
    }

    fn placement(&self, delays: &[Vec<Span>], rtt: Span, random: &mut Random) -> Placement<F> {
        let nodes = self.nodes();
        let place = |number: u16| NodeId(1 + number % (nodes - 1));
        let group = |partition| (0..self.replicas).map(|seat| place(partition + seat)).collect();
        let groups: Vec<Vec<NodeId>> = (0..self.partitions).map(group).collect();
        let clients = (0..nodes).map(|client| {
            let at = usize::from(client);
            let rtt = (0..usize::from(nodes)).map(|node| delays[at][node] + delays[node][at]).collect();
            let local = (0..nodes).map(|node| node == client).collect();
            (NodeId(client), Distances { rtt, local })
        });
        let mut parameters = F::defaults(rtt);
        (self.tune)(&mut parameters, random);
        let mut placement =
            Placement::<F>::new(KeyspaceId(1), self.split(random), &groups, clients.collect(), parameters);
        if let Some(bug) = self.bug {
            placement.plant(bug).expect("a bug of this name");
        }
        placement
    }

    fn split(&self, random: &mut Random) -> Split {
        if self.moves == 0 || random.chance(0.6) {
            return Split::Hash;
        }
        // Accounts and keys are numbered alike.
        let bound =
            |at: u16| format!("key:{:012}", u64::from(at) * self.records / u64::from(self.partitions));
        Split::Ranges((1..self.partitions).map(|at| bound(at).into()).collect())
    }

    fn add_faults(&self, plan: &mut FaultPlan, nodes: u16, random: &mut Random) {
        for _ in 0..self.crashes {
            let action = Action::Crash {
                node: random.below(u64::from(nodes)) as usize,
                effects: random.below(30),
                down: Span::from_millis(random.between(5, 1_500)),
            };
            let at = Span::from_millis(random.below(7_000));
            plan.faults.push(Planned { at, length: Span::ZERO, kind: FaultKind::Crash, action });
        }
        for _ in 0..self.isolated {
            let node = random.below(u64::from(nodes)) as usize;
            let others = (0..usize::from(nodes)).filter(|other| *other != node);
            // Sometimes its own client stays with it, sometimes it is only not heard.
            let deaf = random.chance(0.3);
            let links = others.flat_map(|other| match deaf {
                true => vec![(other, node)],
                false => vec![(node, other), (other, node)],
            });
            let links = links.collect();
            let at = Span::from_millis(random.below(6_000));
            let length = Span::from_millis(random.between(500, 2_000));
            let action = Action::Cut { links, held: random.chance(0.5) };
            plan.faults.push(Planned { at, length, kind: FaultKind::Partition, action });
        }
        for _ in 0..self.handovers + self.moves + self.changes + self.withdrawals {
            let at = Span::from_millis(random.below(7_500));
            let (kind, action) = (FaultKind::Membership, Action::Membership);
            plan.faults.push(Planned { at, length: Span::ZERO, kind, action });
        }
        plan.faults.sort_by_key(|fault| fault.at);
    }
}

/// The clients, with what is counted beside them; where the members would change, it is who leads.
struct Counting {
    clients: TransactionClients,
    counted: BTreeMap<&'static str, u64>,
    servers: Vec<ProcessId>,
    moves: Option<Moves>,
    changes: Option<Moves>,
    /// Draws when a commit is withdrawn in the place of an order.
    withdraws: Option<Random>,
}

/// Draws what is ordered, and the processes that are told so.
type Moves = Box<dyn FnMut(&mut Random) -> Vec<Admin>>;

impl<F: Family> Driver<Transactional<F>> for Counting {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request> {
        Driver::<Transactional<F>>::next(&mut self.clients, session, now)
    }

    fn invoked(&mut self, session: Session, ticket: Ticket, now: Instant) {
        Driver::<Transactional<F>>::invoked(&mut self.clients, session, ticket, now);
    }

    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome, now: Instant) {
        Driver::<Transactional<F>>::completed(&mut self.clients, session, ticket, outcome, now);
    }

    fn lost(&mut self, session: Session, ticket: Ticket, now: Instant) {
        Driver::<Transactional<F>>::lost(&mut self.clients, session, ticket, now);
    }

    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Counted(name) = fact {
            *self.counted.entry(name).or_default() += 1;
        }
    }

    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        if self.withdraws.as_mut().is_some_and(|withdraws| withdraws.chance(0.8)) {
            return self.clients.withdraw().into_iter().collect();
        }
        if let Some(moves) = self.moves.as_mut().filter(|_| random.chance(0.7)) {
            return moves(random);
        }
        if let Some(changes) = self.changes.as_mut().filter(|_| random.chance(0.8)) {
            return changes(random);
        }
        let mut any = || self.servers[random.below(self.servers.len() as u64) as usize];
        let (partition, process) = (any().partition, any());
        let of = |server: &&ProcessId| server.partition == partition;
        // Whoever does not lead passes it on.
        let servers = self.servers.iter().filter(of);
        let change = |process: &ProcessId| match process.node.0 % 2 {
            0 => Change::Resign,
            _ => Change::Lead(process.node),
        };
        let request =
            |server: &ProcessId| Admin::Request { process: *server, request: Box::new(change(&process)) };
        servers.map(request).collect()
    }
}

/// Runs these seeds; `ISOCHRONE_SEEDS` gives another number of them, `ISOCHRONE_SEED` a single one. Nothing may break.
pub fn hold<F: Family>(
    case: &Case<F>,
    first: u64,
    count: u64,
) -> (Histogram, BTreeMap<&'static str, u64>, BTreeMap<&'static str, u64>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = match (number("ISOCHRONE_SEED"), number("ISOCHRONE_SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, many) => (first, many.unwrap_or(count)),
    };
    let (mut faults, mut counted, mut ends) = (Histogram::default(), BTreeMap::new(), BTreeMap::new());
    let mut broken = Vec::new();
    for seed in first..first + count {
        let ran = case.run(seed);
        if std::env::var_os("ISOCHRONE_SHOW").is_some() {
            eprintln!("{seed}: {} events, {} answered", ran.report.events, ran.report.operations);
        }
        faults.merge(&ran.report.faults);
        for (name, number) in &ran.counted {
            *counted.entry(*name).or_default() += number;
        }
        let tally = ran.figures.tally(None);
        *ends.entry("committed").or_default() += tally.committed;
        *ends.entry("unknown").or_default() += tally.unknown;
        for (reason, number) in &tally.aborted {
            *ends.entry(*reason).or_default() += number;
        }
        if let Some(text) = ran.broken() {
            if broken.is_empty() {
                println!("{}", ran.plan);
            }
            broken.push(text);
        }
    }
    assert!(
        broken.is_empty(),
        "{} of {count} seeds broke:\n{}",
        broken.len(),
        broken[..broken.len().min(8)].join("\n")
    );
    (faults, counted, ends)
}

/// Plants each bug in its case and looks for the first seed that shows it, which must hold without it. Slowness and a
/// history that was not decided are no catch.
pub fn every_bug_is_caught<F: Family>(seeds: u64, cases: impl IntoIterator<Item = (&'static str, Case<F>)>) {
    let caught = |ran: &Ran| {
        ran.broken()
            .filter(|text| !text.contains("Undecided") && !text.contains("Stuck") && !text.contains("budget"))
    };
    let mut missed = Vec::new();
    for (bug, sound) in cases {
        let case = Case { bug: Some(bug), ..sound.clone() };
        let found = (case.first..case.first + seeds)
            .find_map(|seed| caught(&case.run(seed)).map(|text| (seed, text)));
        match found {
            Some((seed, text)) => {
                assert!(caught(&sound.run(seed)).is_none(), "seed {seed} breaks without {bug}");
                println!("{bug:<28} seed {seed:>4}: {text:.160}");
            }
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}
