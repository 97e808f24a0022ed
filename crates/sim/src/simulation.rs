//! The simulated cluster, and what happens in it.

use crate::clock::Clock;
use crate::config::{Config, Record};
use crate::driver::{Driver, Session};
use crate::fault::{FaultKind, FaultPlan, Histogram, Shape};
use crate::network::Network;
use crate::oracle::{Oracle, ViolationKind};
use crate::queue::Queue;
use crate::seat::{Actor, Seat};
use crate::session::{SESSION_NUMBERS, SessionState};
use crate::trace::{self, Line, Trace};
use crate::traffic::Traffic;
use crate::world::{Cpu, Event, Input, Node, Outcome, Outgoing, Place, World};
use isochrone_core::{Assemble, Instant, NodeId, Process, ProcessId, Protocol, Random, Span, Ticket, wire};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::VecDeque;

/// A cluster of one protocol's processes in virtual time, on one thread. Equal configurations, placements
/// and drivers give equal runs, to the byte.
///
/// [`Simulation::new`] visits the placement; [`Simulation::run`] runs it to its end. Tests that script
/// their own course use [`Simulation::boot`], [`Simulation::run_for`] and the methods beside them.
pub struct Simulation<F: Protocol> {
    pub(crate) world: World<F>,
    pub(crate) seats: Vec<Box<dyn Actor<F>>>,
    pub(crate) sessions: Vec<SessionState<F>>,
    pub(crate) active: usize,
    pub(crate) tickets: u64,
    pub(crate) plan: FaultPlan,
    pub(crate) healed: bool,
    pub(crate) config: Limits,
    pub(crate) events: u64,
    pub(crate) operations: u64,
    pub(crate) lost: u64,
    booted: bool,
    pub(crate) spare: Vec<Outgoing<F>>,
    /// Calls that are due to the driver, which the event at hand cannot make.
    pub(crate) due: Vec<Due>,
}

/// What the run needs of its [`Config`] later.
pub(crate) struct Limits {
    pub(crate) regions: Vec<String>,
    roles: &'static [&'static str],
    dormant: Vec<ProcessId>,
    pub(crate) drift_max: u64,
    pub(crate) horizon: Span,
    pub(crate) patience: Span,
    pub(crate) aftermath: Span,
    pub(crate) budget: u64,
}

/// A call to the driver.
pub(crate) enum Due {
    Membership,
    Healed,
}

impl Limits {
    /// What tells a process from the others of its node, for people: role, partition, instance.
    fn part(&self, id: ProcessId) -> String {
        let ProcessId { role, partition, instance, .. } = id;
        let role = self.roles.get(usize::from(role.0));
        let mut part = role.map_or_else(|| id.role.to_string(), |name| (*name).to_owned());
        if partition.0 > 0 {
            part += &format!(".{partition}");
        }
        if instance > 0 {
            part += &format!(".{instance}");
        }
        part
    }
}

impl<F: Protocol> Simulation<F> {
    /// The cluster of this placement, not yet running.
    ///
    /// # Panics
    /// Where the placement names a node that the configuration does not have, or a process twice, or the
    /// matrix is not square: the caller's mistake.
    pub fn new(config: Config, placement: &F::Placement) -> Simulation<F> {
        let count = config.nodes.len();
        assert!(
            config.delays.len() == count && config.delays.iter().all(|row| row.len() == count),
            "the matrix of delays must have a row and a column for each of the {count} nodes"
        );
        let mut random = Random::seeded(config.seed);
        let mut network = Network::new(
            &config.delays,
            config.jitter,
            config.bandwidth,
            config.bandwidth_shared,
            random.fork(),
        );
        (network.steady_loss, network.hook) = (config.loss, config.delay_hook);
        let mut cpus = Vec::new();
        let mut nodes = Vec::new();
        for (index, node) in config.nodes.into_iter().enumerate() {
            let first_cpu = cpus.len() as u32;
            let cores = node.cores.max(1) as u32;
            cpus.extend((0..cores).map(|_| Cpu {
                node: index as u32,
                inbox: VecDeque::new(),
                busy_until: 0,
                woken: false,
                touched: Vec::new(),
                unsettled: 0,
            }));
            nodes.push(Node {
                name: node.name,
                region: node.region,
                up: true,
                epoch: 0,
                processes: Vec::new(),
                first_cpu,
                cores,
                clock: Clock::new(0, random.below(1 << 40)),
                tail: 0,
                durable: 0,
                syncing: None,
                appended: 0,
                dirty: false,
                waiting: Vec::new(),
                sync: config.sync.as_nanos(),
                frozen: false,
                stalled: false,
                fail_sync: None,
                paused_until: 0,
                gray: 0,
                cost_percent: node.cost_percent,
                sessions: node.sessions.unwrap_or(config.sessions),
                fuse: u64::MAX,
                fuse_down: Span::ZERO,
                fuse_records: false,
                quantum: 0,
                lost: false,
                snapshot_every: config.snapshot_every.max(1),
                torn: 0,
            });
        }
        let world = World {
            seed: config.seed,
            now: 0,
            at: 0,
            queue: Queue::new(),
            network,
            nodes,
            cpus,
            places: Vec::new(),
            index: FxHashMap::default(),
            kicked: Vec::new(),
            outgoing: Vec::new(),
            random,
            rough: Random::seeded(config.seed ^ 0x0072_6f75_6768),
            healthy_sync: config.sync.as_nanos(),
            calm_snapshots: config.snapshot_every.max(1),
            cost: config.cost,
            check: config.check,
            trace: Trace::new(config.record == Record::Flow),
            oracle: Oracle::default(),
            faults: Histogram::default(),
            messages: 0,
            traffic: (config.record == Record::Traffic).then(Traffic::default),
            broken: None,
            datagrams: false,
        };
        let mut simulation = Simulation {
            world,
            seats: Vec::new(),
            sessions: Vec::new(),
            active: 0,
            tickets: 0,
            plan: config.faults,
            healed: false,
            config: Limits {
                regions: config.regions,
                roles: config.roles,
                dormant: config.dormant,
                drift_max: config.drift_max,
                horizon: config.horizon,
                patience: config.patience,
                aftermath: config.aftermath,
                budget: config.budget,
            },
            events: 0,
            operations: 0,
            lost: 0,
            booted: false,
            spare: Vec::new(),
            due: Vec::new(),
        };
        F::place(placement, &mut simulation);
        simulation
    }

    /// Bytes of one queued event; the larger, the more of a run is cache misses.
    pub const EVENT_SIZE: usize = size_of::<Event<F>>();

    /// The cluster as a fault plan must know it; `tolerated` server nodes may be lost for good.
    pub fn shape(&self, tolerated: usize) -> Shape {
        let world = &self.world;
        let serves = |node: &Node| node.processes.iter().any(|p| !world.places[*p as usize].client);
        Shape {
            regions: world.nodes.iter().map(|node| node.region).collect(),
            servers: (0..world.nodes.len()).filter(|node| serves(&world.nodes[*node])).collect(),
            tolerated,
            horizon: self.config.horizon,
            drift_max: self.config.drift_max,
        }
    }

    /// Replaces the plan of what goes wrong. To be called before the run.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.plan = plan;
    }

    /// What goes wrong in this run.
    pub fn faults(&self) -> &FaultPlan {
        &self.plan
    }

    /// True time since the start of the run.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.world.now)
    }

    /// Starts every process that is not dormant, and the sessions. [`Simulation::run`] does it itself.
    pub fn boot(&mut self) {
        if std::mem::replace(&mut self.booted, true) {
            return;
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            self.world.queue.push(fault.at.as_nanos(), Event::Fault { index: index as u32 });
        }
        if self.plan.kinds.contains(FaultKind::DiskTorn) {
            self.world.nodes.iter_mut().for_each(|node| node.torn |= crate::world::TORN);
        }
        if self.plan.kinds.contains(FaultKind::DiskCorrupt) {
            self.world.nodes.iter_mut().for_each(|node| node.torn |= crate::world::CORRUPT);
        }
        if self.plan.kinds.contains(FaultKind::Tears) {
            // What is durable at once no crash can take back: a disk that syncs takes 0.05 to 3 ms.
            for node in &mut self.world.nodes {
                node.torn |= crate::world::TEARS;
                if node.sync == 0 {
                    let floor = 50_000 << self.world.rough.below(6);
                    node.sync = floor + self.world.rough.below(floor);
                }
            }
        }
        // All are there before the first one acts: what it says at once is heard.
        let mut opened = Vec::new();
        for process in 0..self.world.places.len() as u32 {
            if self.world.places[process as usize].wanted && self.open_process(process) {
                opened.push(process);
            }
        }
        for process in opened {
            self.begin_process(process);
        }
        for session in 0..self.sessions.len() as u32 {
            self.schedule(session, 0);
        }
    }

    /// Runs on for this long. What was answered by then has been handed to the driver.
    pub fn run_for(&mut self, span: Span, driver: &mut dyn Driver<F>) {
        self.boot();
        let until = self.world.now.saturating_add(span.as_nanos());
        while self.world.broken.is_none() && self.world.queue.next_at().is_some_and(|at| at <= until) {
            self.step(driver);
        }
        self.world.now = until.max(self.world.now);
        self.world.at = self.world.now;
        self.deliver(driver);
    }

    /// Runs until nothing is under way but timers.
    pub fn quiesce(&mut self, driver: &mut dyn Driver<F>) {
        self.boot();
        while self.world.broken.is_none()
            && self.world.queue.any(|event| !matches!(event, Event::Timer { .. }))
        {
            self.step(driver);
        }
        self.deliver(driver);
    }

    /// What is broken so far.
    pub fn broken(&self) -> Option<(ViolationKind, &str)> {
        self.world.broken.as_ref().map(|(kind, text)| (*kind, text.as_str()))
    }

    /// The running hash of everything that happened.
    pub fn hash(&self) -> u64 {
        std::hash::Hasher::finish(&self.world.trace.digest)
    }

    /// The message flow as text, where it was recorded.
    pub fn trace(&self) -> String {
        trace::text(&self.world.trace.lines, &self.node_names())
    }

    /// The message flow, where it was recorded.
    pub fn flow(&self) -> &[Line] {
        &self.world.trace.lines
    }

    /// The message flow as a space-time diagram: SVG, regions as vertical lines, time downward, messages as
    /// slanted arrows at true scale.
    pub fn svg(&self) -> String {
        self.svg_of(&self.world.trace.lines)
    }

    /// The same of some lines of [`Simulation::flow`].
    pub fn svg_of(&self, lines: &[Line]) -> String {
        let nodes = self.world.nodes.iter().map(|node| (node.name.as_str(), node.region)).collect::<Vec<_>>();
        crate::svg::draw(lines, &nodes, &self.config.regions)
    }

    fn node_names(&self) -> Vec<String> {
        self.world.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// Handles the next event.
    pub(crate) fn step(&mut self, driver: &mut dyn Driver<F>) {
        let Some((at, event)) = self.world.queue.pop() else { return };
        self.world.now = at;
        self.world.at = at;
        self.events += 1;
        match event {
            Event::Deliver { to, epoch, from, message } => self.arrives(to, epoch, from, message),
            Event::TakeIn { to, epoch, from, message } => {
                let bytes = wire::encoded_size(&message);
                let node = self.world.places[to as usize].node as usize;
                let at = self.world.network.take_in(node, at, bytes);
                self.world.queue.push(at, Event::Deliver { to, epoch, from, message });
            }
            Event::Wake { cpu } => {
                self.world.cpus[cpu as usize].woken = false;
                self.wake(cpu, 0);
            }
            Event::Timer { process, slot, generation } => {
                if let Some(input) = self.seats[process as usize].fire(slot, generation, &mut self.world) {
                    self.world.trace.digest.fold(at ^ u64::from(process) << 32 ^ u64::from(slot));
                    self.give(process, input);
                }
            }
            Event::Synced { node, epoch } => self.synced(node, epoch),
            Event::Snapshot { process, epoch } => {
                let place = &self.world.places[process as usize];
                if place.epoch == epoch {
                    let durable = self.world.nodes[place.node as usize].durable;
                    if !self.seats[process as usize].keep_snapshot(durable) {
                        let event = Event::Snapshot { process, epoch };
                        self.world.queue.push(at + 1_000_000, event);
                    }
                }
            }
            Event::Session { session } => self.session(session, driver),
            Event::Fault { index } => self.fault(index),
            Event::FaultEnd { index } => self.fault_end(index),
            Event::Restart { node, epoch } => {
                if self.world.nodes[node as usize].epoch == epoch {
                    self.start_node(node);
                }
            }
            Event::RestartProcess { process, epoch } => {
                if self.world.places[process as usize].epoch == epoch {
                    self.start_process(process);
                }
            }
        }
        self.deliver(driver);
    }

    pub(crate) fn process_index(&self, id: ProcessId) -> u32 {
        match self.world.index.get(&id) {
            Some(index) => *index,
            None => panic!("process {id} was not placed"),
        }
    }

    fn seat<P: Process<Message = F::Message>>(
        &mut self,
        id: ProcessId,
        setup: P::Setup,
        client: bool,
        ask: fn(F::Request) -> Option<P::Request>,
        tell: fn(P::Outcome) -> Outcome<F>,
    ) {
        let index = self.world.places.len() as u32;
        let node = usize::from(id.node.0);
        assert!(node < self.world.nodes.len(), "process {id} stands on a node that is not configured");
        assert!(self.world.index.insert(id, index).is_none(), "process {id} is placed twice");
        let core = Config::core_of(id.keyspace, id.partition, self.world.nodes[node].cores as usize) as u32;
        self.world.nodes[node].processes.push(index);
        self.world.places.push(Place {
            id,
            node: node as u32,
            cpu: self.world.nodes[node].first_cpu + core,
            up: false,
            epoch: 0,
            name: self.world.nodes[node].name.clone(),
            parked: Vec::new(),
            client,
            wanted: !self.config.dormant.contains(&id),
        });
        let processes = self.world.nodes[node].processes.clone();
        if processes.len() > 1 {
            for process in processes {
                let place = &mut self.world.places[process as usize];
                place.name = format!("{}.{}", self.world.nodes[node].name, self.config.part(place.id));
            }
        }
        self.seats.push(Box::new(Seat::<F, P>::new(index, node as u32, id, setup, ask, tell)));
        if client && !self.booted {
            for _ in 0..self.world.nodes[node].sessions {
                let session = Session { number: self.sessions.len() as u32, client: id };
                assert!(u64::from(session.number) < SESSION_NUMBERS, "more than 2^20 sessions");
                self.sessions.push(SessionState {
                    session,
                    process: index,
                    open: VecDeque::new(),
                    pending: None,
                    waits: None,
                    done: false,
                    ended: false,
                    scheduled: false,
                });
                self.active += 1;
            }
        }
    }

    pub(crate) fn node_index(&self, node: NodeId) -> u32 {
        assert!(usize::from(node.0) < self.world.nodes.len(), "{node} is not configured");
        node.0.into()
    }

    /// Gives a server process a request of its own type; the outcome comes back by
    /// [`Driver::administered`]. A request of another type, or to a process that is down, is dropped without a word.
    pub fn administer(&mut self, id: ProcessId, ticket: Ticket, request: Box<dyn Any + Send>) {
        let process = self.process_index(id);
        if self.world.places[process as usize].up {
            self.give(process, Input::Admin { ticket, request });
        }
    }
}

impl<F: Protocol> Assemble<F> for Simulation<F> {
    fn server<P: Process<Message = F::Message>>(&mut self, id: ProcessId, setup: P::Setup) {
        self.seat::<P>(id, setup, false, |_| None, |outcome| Outcome::Server(Box::new(outcome)));
    }

    fn client<P>(&mut self, id: ProcessId, setup: P::Setup)
    where
        P: Process<Message = F::Message, Request = F::Request, Outcome = F::Outcome>,
    {
        self.seat::<P>(id, setup, true, Some, Outcome::Client);
    }
}
