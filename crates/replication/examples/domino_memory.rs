//! What Domino holds in memory over a long run: replicas, clients and a state machine, without a simulator whose
//! own books grow.
//!
//! ```sh
//! cargo run --release -p isochrone-replication --example domino_memory [COMMANDS [A_SECOND]]
//! ```
//!
//! Three replicas, 5 ms apart, and two clients: one goes the fast way with stamps, the other through a leader's
//! lane. Time is virtual; disks are instant and keep nothing, so what is left in memory is the protocol's. At
//! each tenth of the run a line tells what the fullest replica held since the line before, by kind and together,
//! and the process' resident memory. Ten million commands hold what two hundred thousand hold; the program fails
//! where they do not.

// It says how long it took itself, of which no protocol hears.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, Effect, Effects, Export, Footprint, Identity, Instant, KeyspaceId, Malformed, NodeId, Outbox,
    PartitionId, Process, ProcessId, Random, ReplicaId, Role, Span, Stamp, StateMachine, Ticket, wire,
};
use isochrone_replication::domino::{Client, Family, Held, Parameters, Way};
use isochrone_replication::order::Member;
use isochrone_replication::service::Service;
use isochrone_replication::{
    CLIENT, MessageOf, OrderOf, Outcome, REPLICA, Replica, Request, Tuning, client, replica,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::Arc;

/// Sets a key.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
struct Put {
    key: Blob,
    value: u64,
}

impl Footprint for Put {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        visit(Touch::Key(&self.key, Access::Write));
    }
}

#[derive(Clone, Hash, Debug, Default)]
struct Map(BTreeMap<Blob, u64>);

impl Export for Map {
    fn chunk(&self, index: u64) -> Option<Blob> {
        (index == 0).then(|| Blob::from(wire::encode(&self.0)))
    }
}

impl StateMachine for Map {
    type Command = Put;
    type Reply = bool;
    type View = Map;
    type Before = Self;

    fn apply(&mut self, put: &Put) -> bool {
        self.0.insert(put.key.clone(), put.value).is_some()
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }
    fn reads_only(_: &Put) -> bool {
        false
    }
    fn read(&self, _: &Put) -> Option<bool> {
        None
    }
    fn export(&self) -> Map {
        self.clone()
    }
    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let decoded = wire::decode(chunk);
        self.0 = decoded.map_err(|error| Malformed { what: "map", cause: error.to_string() })?;
        Ok(())
    }
}

type Spoken = MessageOf<Family, Put, bool>;
type Server = Replica<Map, OrderOf<Family, Map>>;

const REPLICAS: u16 = 3;
const KEYS: u64 = 1_024;
const WAY: Span = Span::from_millis(5);
const STEP: Span = Span::from_millis(1);
/// Before that clients measure.
const WARM: Span = Span::from_millis(500);
const TENTHS: u64 = 10;

fn process(node: u16, role: Role) -> ProcessId {
    ProcessId { node: NodeId(node), keyspace: KeyspaceId(1), partition: PartitionId(0), role, instance: 0 }
}

/// What is on the way: when it arrives, to whom, from whom. All ways are equally long, so it is in order.
type Network = VecDeque<(Instant, ProcessId, ProcessId, Spoken)>;

/// A process with what its host keeps for it.
struct Seat<P: Process> {
    id: ProcessId,
    process: P,
    outbox: Outbox<P>,
    timers: BTreeMap<P::Timer, Instant>,
}

impl<P: Process<Message = Spoken>> Seat<P> {
    fn new(id: ProcessId, setup: &P::Setup, network: &mut Network) -> Seat<P> {
        let process = P::open(Identity { process: id, incarnation: 1 }, setup);
        let outbox = Outbox::new(id, Random::seeded(u64::from(id.node.0)));
        let mut seat = Seat { id, process, outbox, timers: BTreeMap::new() };
        seat.act(Instant::ZERO, network, |process, effects| process.start(effects));
        seat.settle(Instant::ZERO, network);
        seat
    }

    /// One input, and what the process then says to itself. How many tickets were answered.
    fn act(
        &mut self,
        now: Instant,
        network: &mut Network,
        input: impl FnOnce(&mut P, &mut Effects<P>),
    ) -> Vec<P::Outcome> {
        let wall = Stamp::ZERO + Span::from_secs(1_000_000) + now.since(Instant::ZERO);
        let (mut own, mut answers) = (VecDeque::new(), Vec::new());
        input(&mut self.process, self.outbox.input(now, wall));
        loop {
            for effect in self.outbox.drain() {
                match effect {
                    Effect::Send { to, message, .. } if to == self.id => own.push_back(message),
                    Effect::Send { to, message, .. } => network.push_back((now + WAY, to, self.id, message)),
                    Effect::Arm { timer, after } => {
                        self.timers.insert(timer, now + after);
                    }
                    Effect::Disarm { timer } => {
                        self.timers.remove(&timer);
                    }
                    Effect::Complete { outcome, .. } => answers.push(outcome),
                    Effect::Record { .. } | Effect::Emit { .. } | Effect::Mark(_) => {}
                }
            }
            let Some(message) = own.pop_front() else { return answers };
            self.process.receive(self.id, message, self.outbox.input(now, wall));
        }
    }

    /// No more input is at hand.
    fn settle(&mut self, now: Instant, network: &mut Network) -> Vec<P::Outcome> {
        let mut answers = self.act(now, network, P::settle);
        // What it said to itself may have given it more to say.
        answers.extend(self.act(now, network, P::settle));
        answers
    }

    /// Timers that have run out.
    fn expire(&mut self, now: Instant, network: &mut Network) -> Vec<P::Outcome> {
        let due: Vec<_> =
            self.timers.iter().filter(|(_, at)| **at <= now).map(|(timer, _)| timer.clone()).collect();
        let mut answers = Vec::new();
        for timer in due {
            self.timers.remove(&timer);
            answers.extend(self.act(now, network, |process, effects| process.expire(timer, effects)));
        }
        answers
    }
}

/// The most of two, kind by kind.
fn most(a: Held, b: Held) -> Held {
    Held {
        votes: a.votes.max(b.votes),
        runs: a.runs.max(b.runs),
        waiting: a.waiting.max(b.waiting),
        kept: a.kept.max(b.kept),
        other: a.other.max(b.other),
    }
}

fn total(held: Held) -> usize {
    held.votes + held.runs + held.waiting + held.kept + held.other
}

/// The resident memory of this process, as the system says it; empty where it does not.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map(str::trim).unwrap_or_default().to_owned()
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = std::env::args().skip(1).map(|text| text.parse::<u64>()).collect::<Result<Vec<_>, _>>()?;
    let number = |place: usize, otherwise: u64| numbers.get(place).copied().unwrap_or(otherwise);
    let (commands, rate) = (number(0, 10_000_000), number(1, 100_000));
    let each = (rate / 2_000).max(1);

    let members: Arc<[Member]> = (0..REPLICAS)
        .map(|node| Member { replica: ReplicaId(node as u8), process: process(node, REPLICA) })
        .collect();
    let (service, parameters) = (Service::for_rtt(WAY * 2), Parameters::for_rtt(WAY * 2));
    let mut network = Network::new();
    let setup = replica::Setup {
        members: members.clone(),
        preferred: None,
        service,
        parameters,
        machine: Map::default(),
    };
    let mut servers: Vec<Seat<Server>> =
        (0..REPLICAS).map(|node| Seat::new(process(node, REPLICA), &setup, &mut network)).collect();
    let mut clients: Vec<Seat<Client<Map>>> = Vec::new();
    for (node, way) in [(REPLICAS, Way::Fast), (REPLICAS + 1, Way::Led)] {
        let replicas = members.iter().map(|member| member.process).collect();
        let parameters = Parameters { way, ..parameters };
        let (members, leader, proxy) = (members.clone(), None, None);
        let setup = client::Setup { replicas, members, leader, proxy, service, parameters };
        clients.push(Seat::new(process(node, CLIENT), &setup, &mut network));
    }

    let started = std::time::Instant::now();
    let (mut now, mut random) = (Instant::ZERO, Random::seeded(7));
    let (mut asked, mut done, mut refused) = (0, 0, 0);
    let mut since = Held::default();
    let mut tenths: Vec<Held> = Vec::new();
    println!("{commands} commands, {rate} a second, half of them fast");
    while done + refused < commands {
        now = now + STEP;
        let mut answers = Vec::new();
        for client in &mut clients {
            answers.extend(client.expire(now, &mut network));
            for _ in 0..each {
                if asked == commands || now.since(Instant::ZERO) < WARM {
                    break;
                }
                asked += 1;
                let key = Blob::from((random.below(KEYS) as u32).to_be_bytes().to_vec());
                let request = Request::Command(Put { key, value: asked });
                let ask = |process: &mut Client<Map>, effects: &mut Effects<_>| {
                    process.request(Ticket(asked), request, effects);
                };
                answers.extend(client.act(now, &mut network, ask));
            }
        }
        for server in &mut servers {
            server.expire(now, &mut network);
        }
        while network.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, to, from, message)) = network.pop_front() else { break };
            let node = usize::from(to.node.0);
            if let Some(server) = servers.get_mut(node) {
                server.act(now, &mut network, |process, effects| process.receive(from, message, effects));
            } else if let Some(client) = clients.get_mut(node - servers.len()) {
                let hear = |process: &mut Client<Map>, effects: &mut Effects<_>| {
                    process.receive(from, message, effects);
                };
                answers.extend(client.act(now, &mut network, hear));
            }
        }
        for client in &mut clients {
            answers.extend(client.settle(now, &mut network));
        }
        for server in &mut servers {
            server.settle(now, &mut network);
            since = most(since, server.process.order().held());
        }
        for answer in answers {
            match answer {
                Outcome::Replied(_) => done += 1,
                _ => refused += 1,
            }
        }
        while (done + refused) * TENTHS >= commands * (tenths.len() as u64 + 1) {
            let Held { votes, runs, waiting, kept, other } = since;
            println!(
                "{:>9} done: {:>6} votes, {:>3} runs, {:>6} waiting, {:>6} kept for others, {:>6} other; {:>7} \
                 held at most, {} resident, {:.0} s",
                done,
                votes,
                runs,
                waiting,
                kept,
                other,
                total(since),
                resident(),
                started.elapsed().as_secs_f64(),
            );
            tenths.push(std::mem::take(&mut since));
        }
    }
    if refused > 0 {
        return Err(format!("{refused} commands were not answered with a reply").into());
    }
    // Executed commands that are kept for others are bounded by `keep_commands`, not by what is open.
    let open = |held: &Held| total(*held) - held.kept;
    let (first, last) = (tenths.first().map_or(0, open), tenths.last().map_or(0, open));
    let kept = tenths.iter().map(|held| held.kept).max().unwrap_or(0);
    if last > first * 3 / 2 || kept > parameters.keep_commands {
        return Err(format!("{last} held at the end, {first} at the beginning, {kept} kept").into());
    }
    Ok(())
}
