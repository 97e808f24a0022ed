//! The simulated cluster, and what happens in it.

use crate::clock::Clock;
use crate::config::{Config, Record};
use crate::driver::{Driver, Next, Session};
use crate::fault::{FaultKind, FaultPlan, Histogram, Shape};
use crate::network::Network;
use crate::oracle::{Oracle, ViolationKind};
use crate::queue::Queue;
use crate::seat::{Actor, Seat};
use crate::trace::{self, FlowEvent, Line, Trace, label};
use crate::world::{Cpu, Event, Input, Node, Outcome, Outgoing, Place, World};
use isochrone_core::{Assemble, Instant, NodeId, Process, ProcessId, Protocol, Random, Span, Ticket, wire};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::VecDeque;

/// Tickets of sessions carry this bit, the session's number below it and a count above.
const SESSION_BIT: u64 = 1 << 62;
const SESSION_NUMBERS: u64 = 1 << 20;

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
    tickets: u64,
    pub(crate) plan: FaultPlan,
    pub(crate) healed: bool,
    pub(crate) config: Limits,
    pub(crate) events: u64,
    pub(crate) operations: u64,
    pub(crate) lost: u64,
    booted: bool,
    spare: Vec<Outgoing<F>>,
    /// Calls that are due to the driver, which the event at hand cannot make.
    pub(crate) due: Vec<Due>,
}

/// What the run needs of its [`Config`] later.
pub(crate) struct Limits {
    pub(crate) regions: Vec<String>,
    sessions: u32,
    dormant: Vec<ProcessId>,
    pub(crate) drift_max: u64,
    pub(crate) horizon: Span,
    pub(crate) patience: Span,
    pub(crate) aftermath: Span,
    pub(crate) budget: u64,
}

pub(crate) struct SessionState<F: Protocol> {
    pub(crate) session: Session,
    pub(crate) process: u32,
    /// Open tickets, with the time they were opened.
    pub(crate) open: VecDeque<(u64, u64)>,
    /// What it asks next: when, what, and whether it waits for the answer.
    pending: Option<(u64, F::Request, bool)>,
    /// The ticket that a closed loop waits for.
    waits: Option<u64>,
    done: bool,
    pub(crate) ended: bool,
    scheduled: bool,
}

/// A call to the driver.
pub(crate) enum Due {
    Membership,
    Healed,
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
        network.hook = config.delay_hook;
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
                dirty: false,
                waiting: Vec::new(),
                sync: config.sync.as_nanos(),
                frozen: false,
                stalled: false,
                fail_sync: None,
                paused_until: 0,
                gray: 0,
                fuse: u64::MAX,
                fuse_down: Span::ZERO,
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
            healthy_sync: config.sync.as_nanos(),
            cost: config.cost,
            check: config.check,
            trace: Trace::new(config.record == Record::Flow),
            oracle: Oracle::default(),
            faults: Histogram::default(),
            messages: 0,
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
                sessions: config.sessions,
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
        for process in 0..self.world.places.len() as u32 {
            if self.world.places[process as usize].wanted {
                self.start_process(process);
            }
        }
        for session in 0..self.sessions.len() as u32 {
            self.schedule(session, 0);
        }
    }

    /// Runs on for this long.
    pub fn run_for(&mut self, span: Span, driver: &mut dyn Driver<F>) {
        self.boot();
        let until = self.world.now.saturating_add(span.as_nanos());
        while self.world.broken.is_none() && self.world.queue.next_at().is_some_and(|at| at <= until) {
            self.step(driver);
        }
        self.world.now = until.max(self.world.now);
        self.world.at = self.world.now;
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
        let nodes = self.world.nodes.iter().map(|node| (node.name.as_str(), node.region)).collect::<Vec<_>>();
        crate::svg::draw(&self.world.trace.lines, &nodes, &self.config.regions)
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
                self.kick(cpu);
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

    fn arrives(&mut self, to: u32, epoch: u32, from: u32, message: F::Message) {
        let place = &self.world.places[to as usize];
        // A connection ends with the process it led to; a datagram may find its successor.
        if !place.up || (place.epoch != epoch && !self.world.datagrams) {
            return;
        }
        let source = self.world.places[from as usize].node as usize;
        let node = place.node as usize;
        if source != node && self.world.network.swallowed(source, node, self.world.now) {
            return;
        }
        self.give(to, Input::Message { from, message });
    }

    /// Puts an input before a process.
    pub(crate) fn give(&mut self, process: u32, input: Input<F>) {
        let cpu = self.world.places[process as usize].cpu;
        self.world.cpus[cpu as usize].inbox.push_back((process, input));
        self.kick(cpu);
    }

    /// A core has input: it takes its turn now, or as soon as it is free.
    pub(crate) fn kick(&mut self, index: u32) {
        let cpu = &mut self.world.cpus[index as usize];
        if cpu.woken || cpu.inbox.is_empty() {
            return;
        }
        let free = cpu.busy_until.max(self.world.nodes[cpu.node as usize].paused_until);
        if free <= self.world.now {
            self.turn(index);
        } else {
            cpu.woken = true;
            self.world.queue.push(free, Event::Wake { cpu: index });
        }
    }

    /// A core takes all of its inbox, handles each input at its own time, and settles what it touched,
    /// until nothing is at hand.
    fn turn(&mut self, index: u32) {
        /// More inputs in one turn than this are a process that talks to itself without end.
        const LONGEST: u32 = 4_000_000;
        /// So far a turn may run ahead of the queue before it goes back into it.
        const SLICE: u64 = 1_000_000;
        /// After so many inputs a turn settles although more are at hand.
        const BATCH: u32 = 4_096;
        let world = &mut self.world;
        let cpu = index as usize;
        let node = world.cpus[cpu].node;
        let mut inputs = 0;
        world.at = world.now;
        loop {
            while world.cpus[cpu].unsettled < BATCH
                && let Some((process, input)) = world.cpus[cpu].inbox.pop_front()
            {
                if !world.cost.is_free() || world.nodes[node as usize].gray > 0 {
                    world.at += cost(world, node, &input);
                }
                if !world.cpus[cpu].touched.contains(&process) {
                    world.cpus[cpu].touched.push(process);
                }
                self.seats[process as usize].input(input, world);
                inputs += 1;
                world.cpus[cpu].unsettled += 1;
                if world.nodes[node as usize].fuse == 0 {
                    return self.blow(node);
                }
                if world.at > world.now + SLICE {
                    break;
                }
            }
            if world.at > world.now + SLICE && !world.cpus[cpu].inbox.is_empty() {
                // The rest of the batch, and its settling, comes when the node has got there.
                world.cpus[cpu].woken = true;
                world.queue.push(world.at, Event::Wake { cpu: index });
                break;
            }
            world.cpus[cpu].unsettled = 0;
            let mut touched = std::mem::take(&mut world.cpus[cpu].touched);
            for process in &touched {
                self.seats[*process as usize].settle(world);
                if world.nodes[node as usize].fuse == 0 {
                    return self.blow(node);
                }
                let every = world.nodes[node as usize].snapshot_every;
                if self.seats[*process as usize].take_snapshot(every) {
                    let latency = world.nodes[node as usize].sync * 2 + world.random.below(20_000_000);
                    let epoch = world.places[*process as usize].epoch;
                    world.queue.push(world.at + latency, Event::Snapshot { process: *process, epoch });
                    if world.nodes[node as usize].torn != 0 || every < 10_000 {
                        world.faults.add(FaultKind::Snapshot);
                    }
                }
            }
            touched.clear();
            world.cpus[cpu].touched = touched;
            if world.cpus[cpu].inbox.is_empty() {
                break;
            }
            if inputs > LONGEST {
                let text = format!("{} never comes to rest", world.nodes[node as usize].name);
                world.broken.get_or_insert((ViolationKind::Budget, text));
                return;
            }
        }
        world.cpus[cpu].busy_until = world.at;
        world.kicked.clear();
        world.sync(node, world.at);
        world.at = world.now;
    }

    fn synced(&mut self, index: u32, epoch: u32) {
        let world = &mut self.world;
        let node = &mut world.nodes[index as usize];
        if node.epoch != epoch {
            return;
        }
        if node.frozen {
            node.stalled = true;
            return;
        }
        if node.paused_until > world.now {
            return world.queue.push(node.paused_until, Event::Synced { node: index, epoch });
        }
        if let Some(down) = node.fail_sync.take() {
            world.faults.add(FaultKind::FsyncError);
            self.crash_node(index, "fsync failed", None);
            self.restart_after(index, down);
            return;
        }
        let Some(durable) = node.syncing.take() else { return };
        node.durable = durable;
        world.trace.digest.fold(world.now ^ u64::from(index) << 40 ^ durable);
        let mut waiting = std::mem::take(&mut node.waiting);
        world.sync(index, world.now);
        let mut blown = false;
        waiting.retain(|process| {
            let more = !blown && self.seats[*process as usize].release(durable, world);
            blown |= world.nodes[index as usize].fuse == 0;
            more
        });
        world.nodes[index as usize].waiting = waiting;
        if blown {
            world.kicked.clear();
            return self.blow(index);
        }
        while let Some(cpu) = self.world.kicked.pop() {
            self.kick(cpu);
        }
    }

    /// The fuse of a node has burnt down.
    fn blow(&mut self, node: u32) {
        self.world.faults.add(FaultKind::Crash);
        let down = self.world.nodes[node as usize].fuse_down;
        self.crash_node(node, "crashed between two effects", None);
        self.restart_after(node, down);
    }

    pub(crate) fn restart_after(&mut self, node: u32, down: Span) {
        let epoch = self.world.nodes[node as usize].epoch;
        self.world.queue.push(self.world.now + down.as_nanos(), Event::Restart { node, epoch });
    }

    /// A node crashes whole; what is kept of the undurable end of its journal is drawn, unless given.
    pub(crate) fn crash_node(&mut self, index: u32, why: &str, kept: Option<u64>) {
        if !self.world.nodes[index as usize].up {
            return;
        }
        let kept = kept.unwrap_or_else(|| self.world.kept(index));
        let world = &mut self.world;
        world.at = world.now;
        world.kicked.clear();
        world.trace.digest.fold(world.now ^ u64::from(index) << 40 ^ kept << 20);
        world.trace.note(world.now, Some(index as usize), || FlowEvent::Down(why.to_owned()));
        let node = &mut world.nodes[index as usize];
        node.up = false;
        node.epoch += 1;
        (node.tail, node.durable) = (kept, kept);
        (node.syncing, node.dirty, node.stalled, node.fuse) = (None, false, false, u64::MAX);
        (node.paused_until, node.fail_sync) = (0, None);
        node.waiting.clear();
        for cpu in node.first_cpu..node.first_cpu + node.cores {
            let cpu = &mut world.cpus[cpu as usize];
            cpu.inbox.clear();
            cpu.touched.clear();
            cpu.unsettled = 0;
            cpu.busy_until = world.now;
        }
        let processes = node.processes.clone();
        world.network.reset(index as usize);
        for process in processes {
            self.end_process(process, kept);
        }
    }

    /// A process ends where it stands; its records behind `kept` are lost.
    pub(crate) fn end_process(&mut self, process: u32, kept: u64) {
        let place = &mut self.world.places[process as usize];
        self.seats[process as usize].crash(kept);
        if !place.up {
            return;
        }
        place.up = false;
        place.epoch += 1;
        let cpu = &mut self.world.cpus[place.cpu as usize];
        cpu.inbox.retain(|(to, _)| *to != process);
        for number in 0..self.sessions.len() {
            let state = &self.sessions[number];
            if state.process == process {
                let open = state.open.iter();
                let lost = open.map(|(ticket, _)| Outgoing::Lost { session: number as u32, ticket: *ticket });
                self.world.outgoing.extend(lost);
            }
        }
    }

    pub(crate) fn start_node(&mut self, index: u32) {
        let base = self.world.random.below(1 << 40);
        let world = &mut self.world;
        let node = &mut world.nodes[index as usize];
        if node.up || node.lost {
            return;
        }
        node.up = true;
        node.epoch += 1;
        node.clock.reboot(world.now, base);
        let processes = node.processes.clone();
        world.trace.digest.fold(world.now ^ u64::from(index) << 44);
        world.trace.note(world.now, Some(index as usize), || FlowEvent::Up("started".to_owned()));
        for process in processes {
            if self.world.places[process as usize].wanted {
                self.start_process(process);
            }
        }
    }

    pub(crate) fn start_process(&mut self, process: u32) {
        let world = &mut self.world;
        let place = &mut world.places[process as usize];
        if place.up || !world.nodes[place.node as usize].up {
            return;
        }
        place.up = true;
        place.epoch += 1;
        world.at = world.now;
        world.oracle.started(place.id);
        let parked = std::mem::take(&mut place.parked);
        if let Err(error) = self.seats[process as usize].open(world) {
            let text = format!("{} cannot read its own snapshot: {error}", world.places[process as usize].id);
            world.broken.get_or_insert((ViolationKind::Encoding, text));
            return;
        }
        self.give(process, Input::Start);
        for session in parked {
            self.schedule(session, self.world.now);
        }
    }

    /// A session takes its next step at this time.
    fn schedule(&mut self, session: u32, at: u64) {
        let state = &mut self.sessions[session as usize];
        if !state.ended && !std::mem::replace(&mut state.scheduled, true) {
            self.world.queue.push(at, Event::Session { session });
        }
    }

    fn session(&mut self, number: u32, driver: &mut dyn Driver<F>) {
        let now = self.world.now;
        let state = &mut self.sessions[number as usize];
        state.scheduled = false;
        if state.ended {
            return;
        }
        let place = &mut self.world.places[state.process as usize];
        if self.world.nodes[place.node as usize].lost {
            (state.done, state.pending) = (true, None);
        } else if !place.up && !state.done {
            place.parked.push(number);
            return;
        }
        if state.done {
            if state.open.is_empty() {
                state.ended = true;
                self.active -= 1;
            }
            return;
        }
        if state.waits.is_some() {
            return;
        }
        if state.pending.is_none() {
            state.pending = match driver.next(state.session, Instant::from_nanos(now)) {
                Next::Request { at, request } => Some((at.as_nanos(), request, true)),
                Next::Arrival { at, request } => Some((at.as_nanos(), request, false)),
                Next::Done => {
                    state.done = true;
                    return self.schedule(number, now);
                }
            };
        }
        match state.pending.take() {
            Some((at, request, waits)) if at <= now => self.ask(number, request, waits, driver),
            later => {
                let at = later.as_ref().map_or(now, |(at, ..)| *at);
                state.pending = later;
                self.schedule(number, at);
            }
        }
    }

    fn ask(&mut self, number: u32, request: F::Request, waits: bool, driver: &mut dyn Driver<F>) {
        self.tickets += 1;
        let ticket = SESSION_BIT | self.tickets * SESSION_NUMBERS | u64::from(number);
        let state = &mut self.sessions[number as usize];
        state.open.push_back((ticket, self.world.now));
        state.waits = waits.then_some(ticket);
        let (session, process) = (state.session, state.process);
        driver.invoked(session, Ticket(ticket), self.now());
        self.asked(process, Ticket(ticket), request);
        if !waits {
            self.schedule(number, self.world.now);
        }
    }

    pub(crate) fn asked(&mut self, process: u32, ticket: Ticket, request: F::Request) {
        let node = self.world.places[process as usize].node as usize;
        self.world.trace.digest.fold(self.world.now ^ u64::from(process) << 32);
        self.world.trace.note(self.world.now, Some(node), || FlowEvent::Request(label(&request)));
        self.give(process, Input::Request { ticket, request });
    }

    /// Hands what left to the driver.
    pub(crate) fn deliver(&mut self, driver: &mut dyn Driver<F>) {
        let now = self.now();
        while !self.world.outgoing.is_empty() || !self.due.is_empty() {
            for due in std::mem::take(&mut self.due) {
                match due {
                    Due::Healed => driver.healed(now),
                    Due::Membership => {
                        for order in driver.admin(now, &mut self.world.random) {
                            self.order(order);
                        }
                    }
                }
            }
            std::mem::swap(&mut self.spare, &mut self.world.outgoing);
            let mut leaving = std::mem::take(&mut self.spare);
            for outgoing in leaving.drain(..) {
                match outgoing {
                    Outgoing::Fact { process, fact } => {
                        driver.fact(self.world.places[process as usize].id, &fact, now);
                    }
                    Outgoing::Answer { process, ticket, outcome, last } => {
                        self.answer(process, ticket, outcome, last, driver);
                    }
                    Outgoing::Lost { session, ticket } => {
                        if self.close(session, ticket) {
                            self.lost += 1;
                            let session = self.sessions[session as usize].session;
                            driver.lost(session, Ticket(ticket), now);
                        }
                    }
                }
            }
            self.spare = leaving;
        }
    }

    fn answer(
        &mut self,
        process: u32,
        ticket: Ticket,
        outcome: Outcome<F>,
        last: bool,
        driver: &mut dyn Driver<F>,
    ) {
        let now = self.now();
        let place = &self.world.places[process as usize];
        let outcome = match outcome {
            Outcome::Client(outcome) => outcome,
            Outcome::Server(outcome) => return driver.administered(place.id, ticket, outcome),
        };
        self.world.trace.digest.fold(now.as_nanos() ^ ticket.0.rotate_left(32));
        let node = place.node as usize;
        self.world.trace.note(now.as_nanos(), Some(node), || FlowEvent::Answer(label(&outcome)));
        if ticket.0 & SESSION_BIT == 0 {
            return driver.answered(place.id, ticket, outcome, last);
        }
        let number = (ticket.0 % SESSION_NUMBERS) as usize;
        let state = &mut self.sessions[number];
        if !state.open.iter().any(|(open, _)| *open == ticket.0) {
            let text = format!("{} answered {ticket}, which is not open: {outcome:?}", place.id);
            self.world.broken.get_or_insert((ViolationKind::Ticket, text));
            return;
        }
        let session = state.session;
        if last {
            self.operations += 1;
            self.close(number as u32, ticket.0);
            driver.completed(session, ticket, outcome, now);
        } else {
            driver.emitted(session, ticket, outcome, now);
        }
    }

    /// Closes a ticket and lets its session go on; false where it is not open.
    fn close(&mut self, number: u32, ticket: u64) -> bool {
        let state = &mut self.sessions[number as usize];
        let Some(position) = state.open.iter().position(|(open, _)| *open == ticket) else { return false };
        state.open.remove(position);
        let waited = state.waits == Some(ticket);
        if waited {
            state.waits = None;
        }
        if waited || (state.done && state.open.is_empty()) {
            self.schedule(number, self.world.now);
        }
        true
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
                let ProcessId { role, instance, .. } = place.id;
                place.name = format!("{}.{role}.{instance}", self.world.nodes[node].name);
            }
        }
        self.seats.push(Box::new(Seat::<F, P>::new(index, node as u32, id, setup, ask, tell)));
        if client && !self.booted {
            for _ in 0..self.config.sessions {
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
    /// [`Driver::administered`].
    pub fn administer(&mut self, id: ProcessId, ticket: Ticket, request: Box<dyn Any + Send>) {
        let process = self.process_index(id);
        if self.world.places[process as usize].up {
            self.give(process, Input::Admin { ticket, request });
        }
    }
}

fn cost<F: Protocol>(world: &World<F>, node: u32, input: &Input<F>) -> u64 {
    let mut cost = world.cost.fixed.as_nanos() + world.nodes[node as usize].gray;
    if let (Input::Message { message, .. }, 1..) = (input, world.cost.picos_per_byte) {
        cost += wire::encoded_size(message) as u64 * world.cost.picos_per_byte / 1_000;
    }
    cost
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
