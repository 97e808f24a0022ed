//! How a node works: input arrives, a core takes its turn, the disk syncs, what waited leaves.

use crate::fault::FaultKind;
use crate::oracle::ViolationKind;
use crate::simulation::Simulation;
use crate::trace::{FlowEvent, label};
use crate::world::{Event, Input, World};
use isochrone_core::{Protocol, wire};
use std::collections::VecDeque;

impl<F: Protocol> Simulation<F> {
    pub(crate) fn arrives(&mut self, to: u32, epoch: u32, from: u32, message: F::Message) {
        let world = &mut self.world;
        let place = &world.places[to as usize];
        let (source, node) = (world.places[from as usize].node as usize, place.node as usize);
        // A connection ends with the process it led to; a datagram may find its successor.
        let heard = place.up
            && (place.epoch == epoch || world.datagrams)
            && (source == node || !world.network.swallowed(source, node, world.now));
        if !heard {
            return world.trace.note(world.now, Some(node), || FlowEvent::Unheard(label(&message)));
        }
        self.give(to, Input::Message { from, message });
    }

    /// Puts an input before a process.
    pub(crate) fn give(&mut self, process: u32, input: Input<F>) {
        let cpu = self.world.places[process as usize].cpu;
        self.world.cpus[cpu as usize].inbox.push_back((process, input));
        self.kick(cpu);
    }

    /// A core has input: it takes its turn now, or as soon as it is free and its node wakes up.
    pub(crate) fn kick(&mut self, index: u32) {
        let cpu = &self.world.cpus[index as usize];
        let late = match self.world.nodes[cpu.node as usize].quantum {
            quantum if quantum > 0 && !cpu.woken => self.world.rough.below(quantum),
            _ => 0,
        };
        self.wake(index, late);
    }

    /// The same, this much later.
    pub(crate) fn wake(&mut self, index: u32, late: u64) {
        let cpu = &mut self.world.cpus[index as usize];
        if cpu.woken || cpu.inbox.is_empty() {
            return;
        }
        let now = self.world.now + late;
        let free = cpu.busy_until.max(self.world.nodes[cpu.node as usize].paused_until).max(now);
        if free <= self.world.now {
            self.turn(index);
        } else {
            cpu.woken = true;
            self.world.queue.push(free, Event::Wake { cpu: index });
        }
    }

    /// A core takes all of its inbox, handles each input at its own time, and settles what it touched,
    /// until nothing is at hand.
    pub(crate) fn turn(&mut self, index: u32) {
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
        if world.nodes[node as usize].quantum > 0 && world.cpus[cpu].inbox.len() > 1 {
            world.mix(index);
            world.faults.add(FaultKind::Rounds);
        }
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
                    world.flush(node, world.at);
                    if every != world.calm_snapshots {
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

    pub(crate) fn synced(&mut self, index: u32, epoch: u32) {
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
        node.durable = node.durable.max(durable);
        let durable = node.durable;
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
        // What left took its time to send.
        let (first, cores) = (world.nodes[index as usize].first_cpu, world.nodes[index as usize].cores);
        for cpu in first..first + cores {
            let busy = &mut world.cpus[cpu as usize].busy_until;
            if world.at > world.now {
                *busy = world.at.max(*busy);
            }
        }
        world.at = world.now;
        if blown {
            world.kicked.clear();
            return self.blow(index);
        }
        while let Some(cpu) = self.world.kicked.pop() {
            self.kick(cpu);
        }
    }

    /// The fuse of a node has burnt down.
    pub(crate) fn blow(&mut self, node: u32) {
        self.world.faults.add(FaultKind::Crash);
        let down = self.world.nodes[node as usize].fuse_down;
        self.crash_node(node, "crashed between two effects", None);
        self.restart_after(node, down);
    }
}

/// Inputs of one sender, in their order, and for whom.
type Lane<F> = VecDeque<(u32, Input<F>)>;

/// Who an input is from, as far as its order among others goes.
#[derive(PartialEq)]
enum Sender {
    Node(u32),
    Client(u32),
}

impl<F: Protocol> World<F> {
    /// Puts what has come into the order of one round: starts come first, what is from one sender keeps its order, and
    /// timers come before or after all messages and requests.
    fn mix(&mut self, index: u32) {
        let (mut starts, mut timers) = (VecDeque::new(), VecDeque::new());
        let mut lanes: Vec<(Sender, Lane<F>)> = Vec::new();
        for (process, input) in std::mem::take(&mut self.cpus[index as usize].inbox) {
            let sender = match &input {
                Input::Start => {
                    starts.push_back((process, input));
                    continue;
                }
                Input::Expire { .. } => {
                    timers.push_back((process, input));
                    continue;
                }
                Input::Message { from, .. } => Sender::Node(self.places[*from as usize].node),
                Input::Request { .. } | Input::Admin { .. } | Input::Cancel { .. } => Sender::Client(process),
            };
            match lanes.iter_mut().find(|(other, _)| *other == sender) {
                Some((_, lane)) => lane.push_back((process, input)),
                None => lanes.push((sender, [(process, input)].into())),
            }
        }
        let mut mixed = VecDeque::new();
        while !lanes.is_empty() {
            let chosen = self.rough.below(lanes.len() as u64) as usize;
            mixed.extend(lanes[chosen].1.pop_front());
            if lanes[chosen].1.is_empty() {
                lanes.swap_remove(chosen);
            }
        }
        let [first, second] = if self.rough.chance(0.5) { [timers, mixed] } else { [mixed, timers] };
        starts.extend(first.into_iter().chain(second));
        self.cpus[index as usize].inbox = starts;
    }
}

fn cost<F: Protocol>(world: &World<F>, node: u32, input: &Input<F>) -> u64 {
    let mut cost = world.cost.fixed.as_nanos();
    if let (Input::Message { message, .. }, 1..) = (input, world.cost.picos_per_byte) {
        cost += wire::encoded_size(message) as u64 * world.cost.picos_per_byte / 1_000;
    }
    let node = &world.nodes[node as usize];
    cost * node.cost_percent / 100 + node.gray
}
