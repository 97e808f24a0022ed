//! Faults happen, and end.

use crate::driver::Admin;
use crate::fault::{Action, FaultKind};
use crate::simulation::{Due, Simulation};
use crate::trace::FlowEvent;
use crate::world::{Event, Input, TEARS};
use isochrone_core::{NodeId, ProcessId, Protocol, Span, Ticket};

impl<F: Protocol> Simulation<F> {
    /// A planned fault begins.
    pub(crate) fn fault(&mut self, index: u32) {
        if self.healed {
            return;
        }
        let fault = self.plan.faults[index as usize].clone();
        let now = self.world.now;
        let until = now + fault.length.as_nanos();
        let mut counted = true;
        match &fault.action {
            Action::Crash { node, effects, down } => {
                // Counted when it happens.
                counted = false;
                let tears = self.world.nodes[*node].torn & TEARS != 0;
                let records = tears && self.world.rough.chance(0.5);
                let node = &mut self.world.nodes[*node];
                if node.up {
                    // A record has several other effects beside it.
                    let fuse = if records { effects / 4 } else { *effects };
                    (node.fuse, node.fuse_down, node.fuse_records) = (fuse + 1, *down, records);
                }
            }
            Action::PowerLoss { down } => {
                for node in 0..self.world.nodes.len() as u32 {
                    self.crash_node(node, "power lost", None);
                    let down = Span::from_nanos(self.world.random.below(down.as_nanos().max(1)));
                    self.restart_after(node, down);
                }
            }
            Action::RegionCrash { region, down } => {
                for node in 0..self.world.nodes.len() {
                    if self.world.nodes[node].region == *region {
                        self.crash_node(node as u32, "region lost", None);
                        self.restart_after(node as u32, *down);
                    }
                }
            }
            Action::ClientCrash { client, down } => counted = self.crash_client(*client, *down),
            Action::Pause { node } => {
                let node = &mut self.world.nodes[*node];
                node.paused_until = node.paused_until.max(until);
            }
            Action::Gray { node, cost } => self.world.nodes[*node].gray += cost.as_nanos(),
            Action::Cut { links, held } => {
                for (from, to) in links {
                    self.world.network.cut(*from, *to, true, if *held { until } else { 0 });
                }
            }
            // These four count the messages they touch.
            Action::Loss(probability) => {
                self.world.network.loss = *probability;
                counted = false;
            }
            Action::Duplicate(probability) => {
                self.world.network.duplicate = *probability;
                counted = false;
            }
            Action::Reorder(most) => {
                self.world.network.disorder = most.as_nanos();
                self.world.datagrams = true;
                counted = false;
            }
            Action::Snapshot { node, records } => {
                self.world.nodes[*node].snapshot_every = *records;
                counted = false;
            }
            Action::Delay { links, extra } => {
                for (from, to) in links {
                    self.world.network.delay(*from, *to, *extra);
                }
            }
            Action::Bandwidth { node, rate } => self.world.network.throttle(*node, Some(*rate)),
            Action::ClockStep { node, nanos } => self.world.nodes[*node].clock.step(*nanos),
            Action::ClockFreeze { node } => self.world.nodes[*node].clock.freeze(now, true),
            Action::Drift { node, parts_per_million } => {
                self.world.nodes[*node].clock.drift(now, *parts_per_million);
                self.rearm(*node);
            }
            Action::DiskSlow { node, sync } => self.world.nodes[*node].sync = sync.as_nanos(),
            Action::FsyncError { node, down } => {
                // Counted when a sync meets it.
                self.world.nodes[*node].fail_sync = Some(*down);
                counted = false;
            }
            Action::BitRot { node } => self.lose(*node, "a synced record is corrupt: refuses to start"),
            Action::DiskLost { node } => self.lose(*node, "disk lost"),
            Action::Rounds { node, quantum } => {
                // Counted by the rounds that have several inputs.
                self.world.nodes[*node].quantum = quantum.as_nanos();
                counted = false;
            }
            Action::Membership => {
                // Counted by the orders it leads to.
                self.due.push(Due::Membership);
                counted = false;
            }
        }
        if counted {
            self.world.faults.add(fault.kind);
        }
        self.world.trace.digest.fold(now ^ u64::from(index) << 36);
        self.world.trace.note(now, None, || FlowEvent::Fault(format!("{:?}", fault.action)));
        if fault.length > Span::ZERO {
            self.world.queue.push(until, Event::FaultEnd { index });
        }
    }

    /// A planned fault ends.
    pub(crate) fn fault_end(&mut self, index: u32) {
        if self.healed {
            return;
        }
        let fault = self.plan.faults[index as usize].clone();
        let world = &mut self.world;
        match &fault.action {
            Action::Gray { node, cost } => {
                let node = &mut world.nodes[*node];
                node.gray = node.gray.saturating_sub(cost.as_nanos());
            }
            Action::Cut { links, .. } => {
                for (from, to) in links {
                    world.network.cut(*from, *to, false, 0);
                }
            }
            Action::Loss(_) => world.network.loss = 0,
            Action::Duplicate(_) => world.network.duplicate = 0,
            Action::Reorder(_) => {
                world.network.disorder = 0;
                world.datagrams = false;
            }
            Action::Delay { links, .. } => {
                for (from, to) in links {
                    world.network.delay(*from, *to, Span::ZERO);
                }
            }
            Action::Bandwidth { node, .. } => world.network.throttle(*node, None),
            Action::ClockStep { node, nanos } => world.nodes[*node].clock.step(-nanos),
            Action::ClockFreeze { node } => world.nodes[*node].clock.freeze(world.now, false),
            Action::Rounds { node, .. } => world.nodes[*node].quantum = 0,
            _ => {}
        }
        world.trace.note(world.now, None, || FlowEvent::Fault(format!("end of {}", fault.kind.name())));
    }

    /// All faults end: the network, clocks and disks work, and every node starts that can.
    pub(crate) fn heal(&mut self) {
        if std::mem::replace(&mut self.healed, true) {
            return;
        }
        self.due.push(Due::Healed);
        if self.plan.faults.is_empty() && self.plan.kinds.is_empty() {
            return;
        }
        let now = self.world.now;
        self.world.network.heal();
        self.world.datagrams = false;
        for index in 0..self.world.nodes.len() {
            let healthy = self.world.healthy_sync;
            let node = &mut self.world.nodes[index];
            node.clock.heal(now);
            (node.gray, node.torn, node.fuse, node.fail_sync) = (0, 0, u64::MAX, None);
            (node.sync, node.paused_until) = (healthy, now.min(node.paused_until));
            (node.quantum, node.fuse_records) = (0, false);
            self.rearm(index);
            // A pause that has ended: what waited for its end is due now.
            let (first, cores) = (self.world.nodes[index].first_cpu, self.world.nodes[index].cores);
            for cpu in first..first + cores {
                self.world.cpus[cpu as usize].woken = false;
                self.kick(cpu);
            }
        }
        self.world.trace.note(now, None, || FlowEvent::Fault("all faults end".to_owned()));
        for index in 0..self.world.nodes.len() {
            self.start_node(index as u32);
            for process in self.world.nodes[index].processes.clone() {
                if self.world.places[process as usize].wanted {
                    self.start_process(process);
                }
            }
        }
    }

    fn rearm(&mut self, node: usize) {
        for process in self.world.nodes[node].processes.clone() {
            self.seats[process as usize].rearm(&mut self.world);
        }
    }

    /// A node crashes for good.
    fn lose(&mut self, index: usize, why: &str) {
        self.crash_node(index as u32, why, None);
        let node = &mut self.world.nodes[index];
        node.lost = true;
        node.epoch += 1;
        for process in node.processes.clone() {
            for session in std::mem::take(&mut self.world.places[process as usize].parked) {
                self.world.queue.push(self.world.now, Event::Session { session });
            }
        }
    }

    /// One of the client processes crashes alone, or its node where only clients stand on it.
    fn crash_client(&mut self, number: u64, down: Span) -> bool {
        let up = |process: &u32| {
            let place = &self.world.places[*process as usize];
            place.client && place.up
        };
        let clients: Vec<u32> = (0..self.world.places.len() as u32).filter(up).collect();
        if clients.is_empty() {
            return false;
        }
        let process = clients[(number % clients.len() as u64) as usize];
        let node = self.world.places[process as usize].node;
        let alone = &self.world.nodes[node as usize].processes;
        if alone.iter().all(|process| self.world.places[*process as usize].client) {
            self.crash_node(node, "client node crashed", None);
            self.restart_after(node, down);
        } else {
            self.crash_process(process);
            let epoch = self.world.places[process as usize].epoch;
            let event = Event::RestartProcess { process, epoch };
            self.world.queue.push(self.world.now + down.as_nanos(), event);
        }
        true
    }

    /// A process dies alone. Its records are with the journal, which lives: they stay, all of them or
    /// only those that are durable.
    fn crash_process(&mut self, process: u32) {
        let place = &self.world.places[process as usize];
        let node = &self.world.nodes[place.node as usize];
        let kept = if self.world.random.chance(0.5) { node.tail } else { node.durable };
        let name = place.name.clone();
        let at = place.node as usize;
        self.world.nodes[at].waiting.retain(|waiting| *waiting != process);
        self.world.trace.note(self.world.now, Some(at), || FlowEvent::Down(format!("{name} crashed")));
        self.end_process(process, kept);
    }

    /// Carries out an order of the driver.
    pub(crate) fn order(&mut self, order: Admin) {
        match order {
            Admin::Request { process, request } => self.administer(process, Ticket(1 << 61), request),
            Admin::Start(process) => self.start(process),
            Admin::Stop(process) => self.stop(process),
        }
    }

    /// Starts a placed process, at run time, where its node is up; otherwise with its node.
    pub fn start(&mut self, id: ProcessId) {
        let process = self.process_index(id);
        self.world.places[process as usize].wanted = true;
        self.start_process(process);
    }

    /// Stops a process: it gets no input any more. What it recorded stays in the journal.
    pub fn stop(&mut self, id: ProcessId) {
        let process = self.process_index(id);
        let place = &mut self.world.places[process as usize];
        place.wanted = false;
        let node = &mut self.world.nodes[place.node as usize];
        node.waiting.retain(|waiting| *waiting != process);
        self.end_process(process, u64::MAX);
    }

    /// Crashes a process alone, for tests.
    pub fn kill(&mut self, id: ProcessId) {
        self.crash_process(self.process_index(id));
    }

    /// Crashes a node whole, now. Of what was not durable, a drawn prefix is left.
    pub fn crash(&mut self, node: NodeId) {
        self.crash_node(self.node_index(node), "crashed", None);
    }

    /// Crashes a node whole after so many more effects of its processes; it stays down.
    pub fn crash_after(&mut self, node: NodeId, effects: u64) {
        let node = self.node_index(node) as usize;
        (self.world.nodes[node].fuse, self.world.nodes[node].fuse_down) = (effects + 1, Span::MAX);
    }

    /// Starts a crashed node and its processes.
    pub fn restart(&mut self, node: NodeId) {
        self.start_node(self.node_index(node));
    }

    /// Whether a node is up.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.world.nodes[self.node_index(node) as usize].up
    }

    /// Stops the disk of a node: nothing becomes durable until [`Simulation::thaw_disk`].
    pub fn freeze_disk(&mut self, node: NodeId) {
        let node = self.node_index(node) as usize;
        self.world.nodes[node].frozen = true;
    }

    /// The disk works again.
    pub fn thaw_disk(&mut self, node: NodeId) {
        let index = self.node_index(node);
        let now = self.world.now;
        let node = &mut self.world.nodes[index as usize];
        node.frozen = false;
        if std::mem::take(&mut node.stalled) {
            let epoch = node.epoch;
            self.world.queue.push(now, Event::Synced { node: index, epoch });
        }
        self.world.sync(index, now);
    }

    /// Cuts or mends the network between two nodes, both ways. Cuts of the fault plan lie beside it.
    pub fn connect(&mut self, a: NodeId, b: NodeId, connected: bool) {
        let (a, b) = (self.node_index(a) as usize, self.node_index(b) as usize);
        self.world.network.cut(a, b, !connected, 0);
        self.world.network.cut(b, a, !connected, 0);
        let (a, b) = (&self.world.nodes[a].name, &self.world.nodes[b].name);
        let what = if connected { "mended" } else { "cut" };
        self.world.trace.note(self.world.now, None, || FlowEvent::Fault(format!("{what} {a} - {b}")));
    }

    /// Steps the wall clock of a node by this many nanoseconds.
    pub fn step_wall_clock(&mut self, node: NodeId, nanos: i64) {
        let node = self.node_index(node) as usize;
        self.world.nodes[node].clock.step(nanos);
    }

    /// Takes a snapshot of a process; it is durable a moment later.
    pub fn snapshot(&mut self, id: ProcessId) {
        let process = self.process_index(id);
        if self.seats[process as usize].take_snapshot(0) {
            let epoch = self.world.places[process as usize].epoch;
            self.world.queue.push(self.world.now, Event::Snapshot { process, epoch });
            self.world.flush(self.world.places[process as usize].node, self.world.now);
        }
    }

    /// Asks a client process; the answer comes back by [`Driver::answered`](crate::Driver::answered).
    /// Tickets are below 2^61 and used once. A process that is down hears nothing.
    pub fn request(&mut self, id: ProcessId, ticket: Ticket, request: F::Request) {
        let process = self.process_index(id);
        if self.world.places[process as usize].up {
            self.asked(process, ticket, request);
        }
    }

    /// Cancels a ticket.
    pub fn cancel(&mut self, id: ProcessId, ticket: Ticket) {
        let process = self.process_index(id);
        if self.world.places[process as usize].up {
            self.give(process, Input::Cancel { ticket });
        }
    }

    /// How many faults of a kind have happened so far.
    pub fn happened(&self, kind: FaultKind) -> u64 {
        self.world.faults.count(kind)
    }
}
