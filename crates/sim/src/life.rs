//! How nodes and processes come and go.

use crate::fault::FaultKind;
use crate::oracle::ViolationKind;
use crate::simulation::Simulation;
use crate::trace::FlowEvent;
use crate::world::{Event, Input, Outgoing, TEARS};
use isochrone_core::{Protocol, Span};

impl<F: Protocol> Simulation<F> {
    pub(crate) fn restart_after(&mut self, node: u32, down: Span) {
        let epoch = self.world.nodes[node as usize].epoch;
        // Who is down for good is started by hand, if at all.
        if down < Span::MAX {
            self.world.queue.push(self.world.now + down.as_nanos(), Event::Restart { node, epoch });
        }
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
        node.fuse_records = false;
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
        // What comes after the records are read is done for the first time, and with a journal that was just cut.
        if node.torn & TEARS != 0 && self.plan.kinds.contains(FaultKind::Crash) && world.rough.chance(0.3) {
            node.fuse = 1 + world.rough.below(33);
            node.fuse_down = Span::from_nanos(10_000_000 + world.rough.below(2_000_000_000));
        }
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
        if self.open_process(process) {
            self.begin_process(process);
        }
    }

    /// The first half of a start: from here on the process can be heard.
    pub(crate) fn open_process(&mut self, process: u32) -> bool {
        let world = &mut self.world;
        let place = &mut world.places[process as usize];
        if place.up || !world.nodes[place.node as usize].up {
            return false;
        }
        place.up = true;
        place.epoch += 1;
        world.at = world.now;
        world.oracle.started(place.id);
        if let Err(error) = self.seats[process as usize].open(world) {
            let text = format!("{} cannot read what it has kept: {error}", world.places[process as usize].id);
            world.broken.get_or_insert((ViolationKind::Encoding, text));
            return false;
        }
        true
    }

    /// The second half: it acts.
    pub(crate) fn begin_process(&mut self, process: u32) {
        let world = &mut self.world;
        let parked = std::mem::take(&mut world.places[process as usize].parked);
        let node = world.places[process as usize].node;
        world.flush(node, world.now);
        self.give(process, Input::Start);
        for session in parked {
            self.schedule(session, self.world.now);
        }
    }
}
