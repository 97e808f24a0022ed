//! Everything a process can touch through its effects: the queue, the network, clocks and disks.

use crate::clock::Clock;
use crate::config::Cost;
use crate::fault::{FaultKind, Histogram};
use crate::network::Network;
use crate::oracle::{Oracle, ViolationKind};
use crate::queue::Queue;
use crate::trace::{Digest, FlowEvent, Trace, label};
use crate::traffic::Traffic;
use isochrone_core::{Fact, Instant, ProcessId, Protocol, Random, Span, Stamp, Ticket, Urgency, wire};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::VecDeque;

/// Bits of [`Node::torn`]: what a crash may leave of what was not synced.
pub(crate) const TORN: u64 = 1;
pub(crate) const CORRUPT: u64 = 2;
pub(crate) const TEARS: u64 = 4;

/// What happens at a point of virtual time.
pub(crate) enum Event<F: Protocol> {
    /// A message arrives at its node.
    Deliver { to: u32, epoch: u32, from: u32, message: F::Message },
    /// It arrives at a line that serves both directions.
    TakeIn { to: u32, epoch: u32, from: u32, message: F::Message },
    /// A core is free again and has input.
    Wake { cpu: u32 },
    /// A timer may have run out.
    Timer { process: u32, slot: u32, generation: u32 },
    /// A sync of this node's disk ends.
    Synced { node: u32, epoch: u32 },
    /// A snapshot becomes durable.
    Snapshot { process: u32, epoch: u32 },
    /// A session takes its next step.
    Session { session: u32 },
    /// A planned fault begins.
    Fault { index: u32 },
    /// A planned fault ends.
    FaultEnd { index: u32 },
    /// A node that is down starts.
    Restart { node: u32, epoch: u32 },
    /// A process that is down starts.
    RestartProcess { process: u32, epoch: u32 },
}

/// What a process is given.
pub(crate) enum Input<F: Protocol> {
    Start,
    Message { from: u32, message: F::Message },
    Request { ticket: Ticket, request: F::Request },
    Admin { ticket: Ticket, request: Box<dyn Any + Send> },
    Cancel { ticket: Ticket },
    Expire { slot: u32, arming: u32 },
}

/// An outcome, of a client or of a server.
pub(crate) enum Outcome<F: Protocol> {
    Client(F::Outcome),
    Server(Box<dyn Any + Send>),
}

/// What leaves towards the driver.
pub(crate) enum Outgoing<F: Protocol> {
    Answer {
        process: u32,
        at: u64,
        ticket: Ticket,
        outcome: Outcome<F>,
        last: bool,
    },
    Fact {
        process: u32,
        at: u64,
        fact: Fact,
    },
    /// A session's client died with this ticket open, unless its answer left before.
    Lost {
        session: u32,
        ticket: u64,
    },
}

/// Where a process stands.
pub(crate) struct Place {
    pub(crate) id: ProcessId,
    pub(crate) node: u32,
    pub(crate) cpu: u32,
    pub(crate) up: bool,
    /// Counts starts and ends, so that what was under way to a former life is known.
    pub(crate) epoch: u32,
    pub(crate) name: String,
    /// Sessions that wait for the process to come back.
    pub(crate) parked: Vec<u32>,
    pub(crate) client: bool,
    /// Whether the node starts it when it starts.
    pub(crate) wanted: bool,
}

/// A core: takes all of its inbox when it is free.
pub(crate) struct Cpu<F: Protocol> {
    pub(crate) node: u32,
    pub(crate) inbox: VecDeque<(u32, Input<F>)>,
    pub(crate) busy_until: u64,
    /// Whether a `Wake` is queued.
    pub(crate) woken: bool,
    /// Processes that got input since they were last settled, and how many inputs that were.
    pub(crate) touched: Vec<u32>,
    pub(crate) unsettled: u32,
}

/// A machine: its clocks, its journal's positions, its disk.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) region: usize,
    pub(crate) up: bool,
    pub(crate) epoch: u32,
    pub(crate) processes: Vec<u32>,
    pub(crate) first_cpu: u32,
    pub(crate) cores: u32,
    pub(crate) clock: Clock,
    /// Records in the journal, those that are durable, and those that the sync under way will make so.
    pub(crate) tail: u64,
    pub(crate) durable: u64,
    pub(crate) syncing: Option<u64>,
    /// When the newest record was made: a turn may run ahead of the queue, a sync of its records not.
    pub(crate) appended: u64,
    /// Whether there is a record that something waits for.
    pub(crate) dirty: bool,
    /// Processes with held effects.
    pub(crate) waiting: Vec<u32>,
    pub(crate) sync: u64,
    pub(crate) frozen: bool,
    /// A sync ended while the disk was frozen.
    pub(crate) stalled: bool,
    pub(crate) fail_sync: Option<Span>,
    pub(crate) paused_until: u64,
    /// What a gray node takes longer for each input.
    pub(crate) gray: u64,
    /// What handling costs here, percent.
    pub(crate) cost_percent: u64,
    /// Sessions on its client processes.
    pub(crate) sessions: u32,
    /// Effects until the node crashes; `u64::MAX` for no crash.
    pub(crate) fuse: u64,
    pub(crate) fuse_down: Span,
    /// Whether only records burn it.
    pub(crate) fuse_records: bool,
    /// How late it wakes up at most, to take all that has come in one round; 0 for at once.
    pub(crate) quantum: u64,
    /// It will not come back.
    pub(crate) lost: bool,
    pub(crate) snapshot_every: u64,
    /// What a crash may leave of what was not synced.
    pub(crate) torn: u64,
}

pub(crate) struct World<F: Protocol> {
    pub(crate) seed: u64,
    pub(crate) now: u64,
    /// The time of the input that is being handled: `now`, and what was handled before it in this turn.
    pub(crate) at: u64,
    pub(crate) queue: Queue<Event<F>>,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) cpus: Vec<Cpu<F>>,
    pub(crate) places: Vec<Place>,
    pub(crate) index: FxHashMap<ProcessId, u32>,
    /// Cores that got input outside their turn.
    pub(crate) kicked: Vec<u32>,
    pub(crate) outgoing: Vec<Outgoing<F>>,
    pub(crate) random: Random,
    /// Of rounds and tears, which must not move what `random` gives to the others.
    pub(crate) rough: Random,
    pub(crate) healthy_sync: u64,
    /// How often snapshots are taken where no fault asks for more.
    pub(crate) calm_snapshots: u64,
    pub(crate) cost: Cost,
    pub(crate) check: bool,
    pub(crate) trace: Trace,
    pub(crate) oracle: Oracle,
    pub(crate) faults: Histogram,
    pub(crate) messages: u64,
    pub(crate) traffic: Option<Traffic>,
    pub(crate) broken: Option<(ViolationKind, String)>,
    pub(crate) datagrams: bool,
}

impl<F: Protocol> World<F> {
    /// The clocks of a node now.
    pub(crate) fn clocks(&mut self, node: u32) -> (Instant, Stamp) {
        self.nodes[node as usize].clock.read(self.at)
    }

    /// Counts one effect; false where the node crashes before it.
    pub(crate) fn effect(&mut self, node: u32, record: bool) -> bool {
        let node = &mut self.nodes[node as usize];
        if node.fuse == u64::MAX || node.fuse_records && !record {
            return true;
        }
        node.fuse = node.fuse.saturating_sub(1);
        node.fuse > 0
    }

    /// A record enters the journal; gives its position.
    pub(crate) fn record(&mut self, node: u32, awaited: bool) -> u64 {
        let node = &mut self.nodes[node as usize];
        node.appended = self.at;
        node.tail += 1;
        // At once only where nothing older is still on its way to the disk: order is kept.
        let quiet = node.syncing.is_none() && !node.dirty && node.waiting.is_empty();
        if node.sync == 0 && !node.frozen && quiet {
            node.durable = node.tail;
        } else {
            node.dirty |= awaited;
        }
        node.tail
    }

    /// Something waits for all of the journal, lazy records too: a restart that has read them, or a snapshot.
    pub(crate) fn flush(&mut self, index: u32, at: u64) {
        let node = &mut self.nodes[index as usize];
        node.dirty |= node.tail > node.durable;
        self.sync(index, at);
    }

    /// Begins a sync of everything in the journal, where one is wanted and none is under way.
    pub(crate) fn sync(&mut self, index: u32, at: u64) {
        let node = &mut self.nodes[index as usize];
        if !node.dirty || node.syncing.is_some() || !node.up {
            return;
        }
        node.dirty = false;
        node.syncing = Some(node.tail);
        // A disk is never twice as fast or slow as itself, but now and then it takes much longer.
        let mut latency = node.sync;
        if latency != self.healthy_sync {
            latency = latency / 2 + self.random.below(latency.max(1));
            if self.random.below(64) == 0 {
                latency = (latency * 4).min(600_000_000);
            }
        }
        let begins = at.max(node.appended);
        self.queue.push(begins + latency, Event::Synced { node: index, epoch: node.epoch });
    }

    /// A message leaves its process.
    pub(crate) fn send(
        &mut self,
        from: u32,
        to: ProcessId,
        message: F::Message,
        made: u64,
        ahead: bool,
        urgency: Urgency,
    ) {
        self.messages += 1;
        if !self.cost.is_free() {
            self.at += self.sending(from, to, &message);
        }
        let at = self.at;
        let mut digest = Digest::new();
        std::hash::Hash::hash(&message, &mut digest);
        let content = std::hash::Hasher::finish(&digest);
        self.trace.digest.fold(at ^ u64::from(from) << 48);
        self.trace.digest.fold(content ^ to.to_u64());
        // By its number too: a message whose content never changes would be seen always or never.
        if (content ^ self.messages) & 0x1ff == 0 {
            self.round_trip(&message);
        }
        let Some(&target) = self.index.get(&to) else {
            self.note_message(from, None, to, &message, None, made, ahead);
            return;
        };
        let (source, place) = (&self.places[from as usize], &self.places[target as usize]);
        let epoch = place.epoch;
        if source.node == place.node {
            self.note_message(from, Some(target), to, &message, Some(at), made, ahead);
            let place = &self.places[target as usize];
            if self.places[from as usize].cpu == place.cpu {
                let cpu = place.cpu;
                if place.up {
                    self.cpus[cpu as usize].inbox.push_back((target, Input::Message { from, message }));
                    self.kicked.push(cpu);
                }
            } else {
                self.queue.push(at, Event::Deliver { to: target, epoch, from, message });
            }
            return;
        }
        let (source, node) = (source.node as usize, place.node as usize);
        let weighs = self.network.weighs() || self.traffic.is_some();
        let bytes = if weighs { wire::encoded_size(&message) } else { 0 };
        if let Some(traffic) = &mut self.traffic {
            traffic.count(&message, self.nodes[source].region != self.nodes[node].region, bytes);
        }
        let faults = &mut self.faults;
        let route = self.network.route(from, source, node, self.now, at, bytes, urgency, faults);
        if self.trace.recording {
            self.note_message(from, Some(target), to, &message, route.arrival, made, ahead);
        }
        if let Some(double) = route.double {
            self.queue.push(double, Event::Deliver { to: target, epoch, from, message: message.clone() });
        }
        if let Some(arrival) = route.arrival {
            let event = if self.network.shares() {
                Event::TakeIn { to: target, epoch, from, message }
            } else {
                Event::Deliver { to: target, epoch, from, message }
            };
            self.queue.push(arrival, event);
        }
    }

    /// What it costs to send a message: nothing inside a node.
    fn sending(&self, from: u32, to: ProcessId, message: &F::Message) -> u64 {
        let source = self.places[from as usize].node;
        if u32::from(to.node.0) == source {
            return 0;
        }
        let mut cost = self.cost.send.as_nanos();
        if self.cost.picos_per_byte > 0 {
            cost += wire::encoded_size(message) as u64 * self.cost.picos_per_byte / 1_000;
        }
        cost * self.nodes[source as usize].cost_percent / 100
    }

    /// A mark leaves its process.
    pub(crate) fn fact(&mut self, process: u32, fact: Fact) {
        let id = self.places[process as usize].id;
        if let Some(broken) = self.oracle.fact(id, &fact) {
            self.broken.get_or_insert(broken);
        }
        self.outgoing.push(Outgoing::Fact { process, at: self.at, fact });
    }

    /// One message in 512 must survive its encoding.
    fn round_trip(&mut self, message: &F::Message) {
        let again = wire::decode::<F::Message>(&wire::encode(message));
        if again.as_ref() != Ok(message) {
            let text = format!("{} came back from its bytes as {again:?}", label(message));
            self.broken.get_or_insert((ViolationKind::Encoding, text));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a line of the trace has this many columns")]
    fn note_message(
        &mut self,
        from: u32,
        target: Option<u32>,
        to: ProcessId,
        message: &F::Message,
        arrival: Option<u64>,
        made: u64,
        ahead: bool,
    ) {
        if !self.trace.recording {
            return;
        }
        let source = &self.places[from as usize];
        let node = source.node as usize;
        let name = target.map_or_else(|| to.to_string(), |to| self.places[to as usize].name.clone());
        let between = (source.name.clone(), name);
        let event = FlowEvent::Message {
            to: target.map_or(node, |to| self.places[to as usize].node as usize),
            between,
            label: label(message),
            arrival: arrival.map(Instant::from_nanos),
            held: Span::from_nanos(self.at - made),
            ahead,
        };
        self.trace.note(self.at, Some(node), || event);
    }

    /// What is left of the undurable end of a journal after a crash: the last position that is.
    pub(crate) fn kept(&mut self, index: u32) -> u64 {
        let torn = self.nodes[index as usize].torn;
        let node = &self.nodes[index as usize];
        let (durable, unsynced) = (node.durable, node.tail - node.durable);
        if unsynced == 0 {
            return durable;
        }
        if torn & TEARS != 0 {
            self.faults.add(FaultKind::Tears);
            return durable + self.rough.below(unsynced + 1);
        }
        match self.random.below(4) {
            0 => durable,
            1 => node.tail,
            choice => {
                // Whether the last record that got to the disk is half of itself or other than it was, its
                // checksum tells, and it ends the journal.
                let kind = match torn {
                    TORN => FaultKind::DiskTorn,
                    CORRUPT => FaultKind::DiskCorrupt,
                    _ if torn == TORN | CORRUPT && choice == 2 => FaultKind::DiskTorn,
                    _ if torn == TORN | CORRUPT => FaultKind::DiskCorrupt,
                    _ => return durable,
                };
                self.faults.add(kind);
                durable + self.random.below(unsynced)
            }
        }
    }
}
