//! What a simulated cluster is made of.

use crate::fault::FaultPlan;
use crate::network::{DelayHook, Jitter};
use isochrone_core::{KeyspaceId, PartitionId, ProcessId, Span};

/// A simulated machine. Its `NodeId` is its place in [`Config::nodes`].
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name in traces.
    pub name: String,
    /// Its region: a place in [`Config::regions`].
    pub region: usize,
    /// How many processor cores it has. The processes of one partition share one.
    pub cores: usize,
    /// What handling costs here, percent of [`Config::cost`]: 300 is a machine that has a third of its cores left.
    pub cost_percent: u64,
    /// Sessions on its client processes; `None` for [`Config::sessions`].
    pub sessions: Option<u32>,
}

impl NodeConfig {
    /// A healthy machine of one core.
    pub fn new(name: &str, region: usize) -> NodeConfig {
        NodeConfig { name: name.to_owned(), region, cores: 1, cost_percent: 100, sessions: None }
    }
}

/// The time that a core takes to handle one input and what comes of it. Zero in latency tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// For each input.
    pub fixed: Span,
    /// For each encoded byte of a message that comes in or goes to another node, picoseconds.
    pub picos_per_byte: u64,
    /// For each message to another node.
    pub send: Span,
}

impl Cost {
    /// Whether handling takes no time.
    pub fn is_free(&self) -> bool {
        self.fixed == Span::ZERO && self.picos_per_byte == 0 && self.send == Span::ZERO
    }
}

/// What a run records beside its hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// Nothing.
    #[default]
    Nothing,
    /// What crosses the network, by kind of message: [`Report::traffic`](crate::Report::traffic).
    Traffic,
    /// The message flow: [`Simulation::trace`](crate::Simulation::trace) and the drawings.
    Flow,
}

/// A simulated cluster and the length of its run. [`Config::new`] gives a quiet one; change what matters.
pub struct Config {
    /// Everything random in the run comes from here.
    pub seed: u64,
    /// Names of the regions, in the order of the drawing.
    pub regions: Vec<String>,
    /// The machines.
    pub nodes: Vec<NodeConfig>,
    /// What the roles of the protocol are called in traces, by number.
    pub roles: &'static [&'static str],
    /// One-way delays: `delays[from][to]`, by node. The diagonal is not used: messages between processes
    /// of one node do not touch the network.
    pub delays: Vec<Vec<Span>>,
    /// What is added to each delay.
    pub jitter: Jitter,
    /// How many of a million messages are lost all the time, each for itself: the connection lasts, and keeps its order. No fault, so
    /// it does not end with those.
    pub loss: u64,
    /// Decides delays in the place of the matrix: traces, schedules.
    pub delay_hook: Option<DelayHook>,
    /// Bytes a second that leave each node; `None` for no bound.
    pub bandwidth: Option<u64>,
    /// One bandwidth budget a node for both directions.
    pub bandwidth_shared: bool,
    /// How long a healthy disk takes to sync. Zero: records are durable at once.
    pub sync: Span,
    /// What handling an input costs.
    pub cost: Cost,
    /// Closed loops or sources on each client process.
    pub sessions: u32,
    /// Processes that are placed but not started: for [`Admin::Start`](crate::Admin::Start).
    pub dormant: Vec<ProcessId>,
    /// A process is asked for a snapshot every so many records.
    pub snapshot_every: u64,
    /// Bound of the rate error of steady clocks, parts a million.
    pub drift_max: u64,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// When all faults end, at the latest; without faults, nothing happens then.
    pub horizon: Span,
    /// How long after the horizon the last session may take before the run is `Stuck`.
    pub patience: Span,
    /// How long the cluster runs on after the last session, so that stragglers catch up and are compared.
    pub aftermath: Span,
    /// The run is given up as a violation after this many events.
    pub budget: u64,
    /// What is recorded.
    pub record: Record,
    /// Whether `Process::check` runs after every input.
    pub check: bool,
}

impl Config {
    /// A cluster of one node in each region, with these one-way delays (`delays[from][to]`), without
    /// faults, jitter, processing or sync cost.
    pub fn new(seed: u64, regions: &[&str], delays: Vec<Vec<Span>>) -> Config {
        let nodes = regions.iter().enumerate();
        let nodes = nodes.map(|(region, name)| NodeConfig::new(name, region)).collect();
        Config {
            seed,
            regions: regions.iter().map(|name| (*name).to_owned()).collect(),
            nodes,
            roles: &[],
            delays,
            jitter: Jitter::None,
            loss: 0,
            delay_hook: None,
            bandwidth: None,
            bandwidth_shared: false,
            sync: Span::ZERO,
            cost: Cost::default(),
            sessions: 1,
            dormant: Vec::new(),
            snapshot_every: 20_000,
            drift_max: 10_000,
            faults: FaultPlan::none(),
            horizon: Span::from_secs(10),
            patience: Span::from_secs(120),
            aftermath: Span::ZERO,
            budget: 2_000_000_000,
            record: Record::Nothing,
            check: true,
        }
    }

    /// The core, of `cores`, that the processes of a partition run on.
    pub(crate) fn core_of(keyspace: KeyspaceId, partition: PartitionId, cores: usize) -> usize {
        (usize::from(keyspace.0) * 31 + usize::from(partition.0)) % cores.max(1)
    }
}
