//! Clusters with everything going wrong, from seeds: what clients see is serializable, and when all faults have ended
//! nothing is left under way and the replicas have the same data.

use isochrone_check::Budget;
use isochrone_check::transactions::{Isolation, TransactionVerdict, check_transactions};
use isochrone_core::{Deployment, Fact, Instant, Known, NodeId, ProcessId, Random, Span, Ticket};
use isochrone_sim::{
    Action, Admin, Config, Driver, FaultKind, FaultPlan, FaultSet, Histogram, Jitter, Next, Planned, Record,
    Session, Simulation,
};
use isochrone_transactions::tapir::{Family, Order, Standing};
use isochrone_transactions::{Outcome, Placement, Request, Transactional, Tuning as _};
use isochrone_workload::Window;
use isochrone_workload::transactions::{Script, TransactionClients, Workload};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;

type Tapir = Transactional<Family>;

/// How the runs of some seeds are made.
#[derive(Clone)]
pub struct Case {
    pub partitions: usize,
    pub replication: usize,
    pub workload: &'static str,
    pub faults: FaultSet,
    pub bug: Option<&'static str>,
    /// Changes of view that replicas are told to make.
    pub views: u64,
    /// Client processes that crash, beside what is drawn.
    pub clients_crash: u64,
    /// Replicas that crash for a moment, beside what is drawn.
    pub crashes: u64,
    /// Whether replicas take transactions over that their clients are still at.
    pub hasty: bool,
}

/// What came of a run.
pub struct Ran {
    pub broken: Vec<String>,
    pub plan: FaultPlan,
    pub faults: Histogram,
    pub counted: BTreeMap<&'static str, u64>,
    pub hash: u64,
}

/// The clients, and the orders of an operator.
struct Operated {
    clients: TransactionClients,
    servers: Vec<ProcessId>,
    standings: BTreeMap<ProcessId, Standing>,
    counted: BTreeMap<&'static str, u64>,
}

impl Driver<Tapir> for Operated {
    fn next(&mut self, session: Session, now: Instant) -> Next<Request> {
        Driver::<Tapir>::next(&mut self.clients, session, now)
    }
    fn invoked(&mut self, session: Session, ticket: Ticket, now: Instant) {
        Driver::<Tapir>::invoked(&mut self.clients, session, ticket, now);
    }
    fn completed(&mut self, session: Session, ticket: Ticket, outcome: Outcome, now: Instant) {
        let what = match &outcome {
            Outcome::Committed { .. } => "committed",
            Outcome::Snapshot { .. } => "snapshots",
            Outcome::Aborted(_) => "aborted",
            Outcome::Unknown => "unknown",
            Outcome::Begun { .. } => "begun",
            Outcome::Refused(_) => "refused",
            Outcome::Moved(_) | Outcome::Served(_) | Outcome::Listed { .. } => "others",
        };
        *self.counted.entry(what).or_default() += 1;
        Driver::<Tapir>::completed(&mut self.clients, session, ticket, outcome, now);
    }
    fn lost(&mut self, session: Session, ticket: Ticket, now: Instant) {
        Driver::<Tapir>::lost(&mut self.clients, session, ticket, now);
    }
    fn fact(&mut self, _: ProcessId, fact: &Fact, _: Instant) {
        if let Fact::Counted(what) = fact {
            *self.counted.entry(what).or_default() += 1;
        }
    }
    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        let process = self.servers[random.below(self.servers.len() as u64) as usize];
        vec![Admin::Request { process, request: Box::new(Order::ChangeView) }]
    }
    fn administered(&mut self, process: ProcessId, _: Ticket, outcome: Box<dyn Any + Send>) {
        self.standings.insert(process, *outcome.downcast::<Standing>().unwrap());
    }
}

impl Case {
    pub fn new(replication: usize, workload: &'static str, faults: FaultSet) -> Case {
        let (partitions, bug) = (3, None);
        Case {
            partitions,
            replication,
            workload,
            faults,
            bug,
            views: 0,
            clients_crash: 0,
            crashes: 0,
            hasty: false,
        }
    }

    fn deployment(&self) -> Deployment {
        let names = ["US West", "US East", "Euro", "Asia", "Australia"];
        let node = |name: &&str| {
            let node = name.to_lowercase().replace(' ', "-");
            format!("[[region]]\nname = \"{name}\"\n[[node]]\nname = \"{node}\"\nregion = \"{name}\"\n")
        };
        let nodes: String = names.iter().map(node).collect();
        let text = format!(
            "cluster = \"seeds\"\n{nodes}[network]\nrtt = \"carousel-ec2.csv\"\n[[keyspace]]\nname = \"main\"\n\
             protocol = \"tapir\"\npartitions = {}\nreplication = {}\n",
            self.partitions, self.replication
        );
        let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/rtt");
        Deployment::parse(&text, "seeds.toml", Path::new(base), &Known::names(&["tapir"])).unwrap()
    }

    /// Everything of a run is drawn from its seed.
    pub fn run(&self, seed: u64) -> Ran {
        let deployment = self.deployment();
        let mut random = Random::seeded(seed ^ 0x0074_6170_6972);
        let mut placement = Placement::<Family>::of(&deployment, &deployment.keyspaces()[0]).unwrap();
        let parameters = &mut placement.parameters;
        parameters.strict_reads = random.chance(0.5);
        parameters.self_blocking = random.chance(0.5);
        parameters.terminate_after = Span::from_millis(random.between(700, 3_000));
        parameters.time_limit = Span::from_secs([3, 20][random.below(2) as usize]);
        parameters.tries = 1 + random.below(5) as u32;
        if random.chance(0.2) {
            parameters.fast_path = Span::from_millis(1);
        }
        if self.hasty {
            parameters.terminate_after = Span::from_millis(random.between(5, 300));
            parameters.resend = Span::from_millis(random.between(20, 500));
        }
        if let Some(bug) = self.bug {
            assert!(parameters.plant(bug), "tapir has no bug {bug}");
        }
        // From one machine room to the other side of the world.
        let shrink = [1, 10, 100][random.below(3) as usize];
        let nodes = deployment.nodes();
        let way = |from: NodeId, to: NodeId| deployment.one_way(from, to) / shrink;
        let delays = nodes.iter().map(|from| nodes.iter().map(|to| way(from.id, to.id)).collect()).collect();
        let names: Vec<&str> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
        let mut config = Config::new(seed, &names, delays);
        config.roles = &["server", "client"];
        config.sync = Span::from_micros(random.between(0, 3_000));
        config.jitter = Jitter::Uniform(Span::from_millis(random.below(30)));
        config.sessions = 2;
        config.horizon = Span::from_secs(10);
        config.aftermath = Span::from_secs(300);
        config.budget = 5_000_000;
        config.snapshot_every = [20, 200, 20_000][random.below(3) as usize];
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            config.record = Record::Flow;
        }
        let mut simulation = Simulation::<Tapir>::new(config, &placement);
        let tolerated = (self.replication - 1) / 2;
        let mut plan =
            FaultPlan::draw(seed, self.faults.without(FaultKind::Membership), &simulation.shape(tolerated));
        let mut add = |kind, action| {
            let at = Span::from_millis(random.below(9_500));
            plan.faults.push(Planned { at, length: Span::ZERO, kind, action });
        };
        for _ in 0..self.views {
            add(FaultKind::Membership, Action::Membership);
        }
        let mut draw = Random::seeded(seed);
        for _ in 0..self.clients_crash {
            let down = Span::from_millis(draw.between(5, 500));
            add(FaultKind::ClientCrash, Action::ClientCrash { client: draw.below(1 << 20), down });
        }
        for _ in 0..self.crashes {
            let (node, effects) = (draw.below(5) as usize, draw.below(40));
            let down = Span::from_millis(draw.between(5, 300));
            add(FaultKind::Crash, Action::Crash { node, effects, down });
        }
        plan.faults.sort_by_key(|fault| fault.at);
        simulation.set_faults(plan.clone());
        let workload = Workload::named(self.workload).unwrap();
        let clients = TransactionClients::new(Script {
            workload,
            think: Span::from_millis(random.below(60)),
            every: None,
            until: Instant::ZERO + Span::from_secs(10),
            transactions_max: 100,
            window: Window::ALL,
            seed: random.below(u64::MAX),
            history: true,
            closers: tolerated + 1,
            region_of: (0..nodes.len()).collect(),
        });
        let groups = placement.map.groups.iter();
        let servers: Vec<ProcessId> =
            groups.flat_map(|group| group.members.iter().map(|member| member.process)).collect();
        let mut driver = Operated {
            clients,
            servers: servers.clone(),
            standings: BTreeMap::new(),
            counted: BTreeMap::new(),
        };
        let report = simulation.run(&mut driver);
        let mut broken: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        if broken.is_empty() {
            driver.standings.clear();
            for server in &servers {
                simulation.administer(*server, Ticket(1), Box::new(Order::Inspect));
            }
            simulation.run_for(Span::from_secs(1), &mut driver);
            let wrong = driver.clients.broken().into_iter().chain(driver.clients.unfinished());
            broken.extend(wrong.map(|text| format!("seed {seed}: {text}")));
            broken.extend(unquiet(seed, &driver.standings, driver.standings.len() < servers.len()));
        }
        if std::env::var_os("ISOCHRONE_TRACE").is_some() {
            eprintln!("{}", simulation.trace());
        }
        let counted = driver.counted;
        if broken.is_empty() {
            let history = driver.clients.into_history();
            match check_transactions(&history, Isolation::Serializable, &Budget::default()) {
                Err(error) => broken.push(format!("seed {seed}: {error}")),
                Ok(report) => match report.verdict {
                    TransactionVerdict::Held => {}
                    TransactionVerdict::Violation(violation) => {
                        broken.push(format!("seed {seed}: {}", violation.text))
                    }
                    TransactionVerdict::Undecided { reason } => {
                        broken.push(format!("seed {seed}: undecided: {reason}"))
                    }
                },
            }
        }
        Ran { broken, plan, faults: report.faults, counted, hash: report.hash }
    }

    /// Nothing is broken in any of these runs; `ISOCHRONE_SEEDS` gives another number, `ISOCHRONE_SEED` a single one.
    pub fn hold(&self, first: u64, count: u64) -> (Histogram, BTreeMap<&'static str, u64>) {
        let asked = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let (first, count) = match (asked("ISOCHRONE_SEED"), asked("ISOCHRONE_SEEDS")) {
            (Some(seed), _) => (seed, 1),
            (None, many) => (first, many.unwrap_or(count)),
        };
        let (mut faults, mut counted) = (Histogram::default(), BTreeMap::new());
        let mut broken = Vec::new();
        for seed in first..first + count {
            let ran = self.run(seed);
            faults.merge(&ran.faults);
            for (name, number) in ran.counted {
                *counted.entry(name).or_default() += number;
            }
            if !ran.broken.is_empty() {
                if broken.is_empty() {
                    println!("{}", ran.plan);
                }
                broken.push(ran.broken.join("\n"));
            }
        }
        println!("{} x {}: {faults}; {counted:?}", self.workload, self.replication);
        let shown = broken[..broken.len().min(8)].join("\n");
        assert!(broken.is_empty(), "{} of {count} seeds broke:\n{shown}", broken.len());
        (faults, counted)
    }

    /// The first of some seeds that finds the planted bug.
    pub fn finds(&self, bug: &'static str, seeds: std::ops::Range<u64>) -> Option<u64> {
        let case = Case { bug: Some(bug), ..self.clone() };
        seeds.into_iter().find(|seed| !case.run(*seed).broken.is_empty())
    }
}

/// What is left under way, or differs between replicas, long after all faults have ended.
fn unquiet(seed: u64, standings: &BTreeMap<ProcessId, Standing>, lost: bool) -> Vec<String> {
    let mut broken = Vec::new();
    let mut digests: BTreeMap<_, u64> = BTreeMap::new();
    for (server, standing) in standings {
        let Standing { view: (_, normal), open, ended, digest } = *standing;
        // What a replica that is gone for good does not know is kept for it.
        if !normal || open > 0 || (ended > 0 && !lost) {
            broken.push(format!("seed {seed}: {server} is not quiet: {standing:?}"));
        }
        if *digests.entry(server.partition).or_insert(digest) != digest {
            broken.push(format!("seed {seed}: {server} has other data than its peers"));
        }
    }
    broken
}
