//! Small protocols for the tests: a register with one writer's log, copied to every node before the client
//! is answered; whole, and broken on purpose.

use isochrone_core::{
    Assemble, Blob, Effects, Fact, Guarantee, Identity, Instant, KeyspaceId, Malformed, Mark, NodeId,
    PartitionId, Process, ProcessId, Protocol, Random, Role, Snapshot, Span, Ticket, wire,
};
use isochrone_sim::{Admin, Config, Driver, Jitter, Next, NodeConfig, Session, Simulation};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;

/// A log kept by node 0 and copied to a majority: node 0 gives each value the next position, holds it until
/// a majority has it on disk, and says so. It survives crashes of any node; it has no election.
pub struct Toy;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    None,
    /// Nothing that rests on a record waits for it.
    AckBeforeDurable,
    /// The leader forgets what it proposed when it restarts.
    ForgetOnRestart,
    /// A part of each record is not in its bytes.
    LossyRecord,
    /// A process panics at this position.
    PanicAt(u64),
    /// The leader stops answering at this position.
    SilentFrom(u64),
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub nodes: u16,
    /// Where the clients stand.
    pub clients: std::ops::Range<u16>,
    pub bug: Bug,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Message {
    Propose { number: u64, value: u64 },
    Accept { position: u64, value: u64 },
    Accepted { position: u64 },
    Chosen { position: u64, value: u64 },
    Done { number: u64 },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Entry {
    position: u64,
    value: u64,
    #[serde(skip)]
    lost: bool,
}

#[derive(Clone, Debug)]
pub struct Chosen(u64, u64);

impl Mark for Chosen {
    fn fact(&self) -> Option<Fact> {
        Some(Fact::Decided { position: self.0, digest: self.1 })
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    Retry,
}

pub fn server(node: u16) -> ProcessId {
    id(node, 0)
}

pub fn client(node: u16) -> ProcessId {
    id(node, 1)
}

fn id(node: u16, role: u8) -> ProcessId {
    ProcessId {
        node: NodeId(node),
        keyspace: KeyspaceId(1),
        partition: PartitionId(0),
        role: Role(role),
        instance: 0,
    }
}

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    type Message = Message;
    type Request = u64;
    type Outcome = ();
    type Placement = Setup;

    fn guarantee(_: &Setup) -> Guarantee {
        Guarantee::Linearizable
    }

    fn place(setup: &Setup, host: &mut impl Assemble<Toy>) {
        for node in 0..setup.nodes {
            host.server::<Replica>(server(node), setup.clone());
        }
        for node in setup.clients.clone() {
            host.client::<Client>(client(node), setup.clone());
        }
    }
}

#[derive(Clone, Hash, Debug)]
pub struct Replica {
    me: ProcessId,
    nodes: u16,
    bug: Bug,
    log: BTreeMap<u64, u64>,
    votes: BTreeMap<u64, (u64, Vec<ProcessId>)>,
    asked: BTreeMap<(ProcessId, u64), u64>,
    chosen: BTreeMap<u64, u64>,
    next: u64,
}

impl Replica {
    fn leads(&self) -> bool {
        self.me == server(0)
    }

    /// Sends what rests on a record.
    fn say(&self, to: ProcessId, message: Message, effects: &mut Effects<Replica>) {
        if self.bug == Bug::AckBeforeDurable {
            effects.send_ahead(to, message);
        } else {
            effects.send(to, message);
        }
    }

    fn propose(&mut self, position: u64, effects: &mut Effects<Replica>) {
        let Some((value, _)) = self.votes.get(&position) else { return };
        for node in 0..self.nodes {
            effects.send(server(node), Message::Accept { position, value: *value });
        }
    }
}

impl Process for Replica {
    type Setup = Setup;
    type Message = Message;
    type Record = Entry;
    type Request = ();
    type Outcome = ();
    type Timer = Timer;
    type Mark = Chosen;

    fn open(identity: Identity, setup: &Setup) -> Replica {
        Replica {
            me: identity.process,
            nodes: setup.nodes,
            bug: setup.bug,
            log: BTreeMap::new(),
            votes: BTreeMap::new(),
            asked: BTreeMap::new(),
            chosen: BTreeMap::new(),
            next: 1,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let entries: Vec<Entry> = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "toy chunk", cause: error.to_string() })?;
        entries.into_iter().for_each(|entry| self.replay(entry));
        Ok(())
    }

    fn replay(&mut self, entry: Entry) {
        self.log.insert(entry.position, entry.value);
        self.next = self.next.max(entry.position + 1);
    }

    fn start(&mut self, effects: &mut Effects<Replica>) {
        if self.leads() {
            if self.bug == Bug::ForgetOnRestart {
                self.log.clear();
                self.next = 1;
            }
            self.votes = self.log.iter().map(|(at, value)| (*at, (*value, Vec::new()))).collect();
            effects.arm(Timer::Retry, Span::from_millis(1));
        }
    }

    fn receive(&mut self, from: ProcessId, message: Message, effects: &mut Effects<Replica>) {
        match message {
            Message::Propose { number, value } if self.leads() => {
                if let Some(position) = self.asked.get(&(from, number)) {
                    if self.chosen.contains_key(position) {
                        effects.send(from, Message::Done { number });
                    }
                    return;
                }
                if matches!(self.bug, Bug::SilentFrom(position) if self.next >= position) {
                    return;
                }
                let position = self.next;
                self.next += 1;
                self.asked.insert((from, number), position);
                self.votes.insert(position, (value, Vec::new()));
                self.propose(position, effects);
            }
            Message::Accept { position, value } => {
                if self.log.get(&position) != Some(&value) {
                    self.log.insert(position, value);
                    effects.record(Entry { position, value, lost: self.bug == Bug::LossyRecord });
                }
                self.say(from, Message::Accepted { position }, effects);
            }
            Message::Accepted { position } => {
                let majority = usize::from(self.nodes / 2 + 1);
                let Some((value, votes)) = self.votes.get_mut(&position) else { return };
                if votes.contains(&from) {
                    return;
                }
                votes.push(from);
                let (value, reached) = (*value, votes.len() == majority);
                if reached {
                    for node in 0..self.nodes {
                        self.say(server(node), Message::Chosen { position, value }, effects);
                    }
                    let asked = self.asked.iter().find(|(_, at)| **at == position);
                    if let Some(((client, number), _)) = asked {
                        self.say(*client, Message::Done { number: *number }, effects);
                    }
                }
            }
            Message::Chosen { position, value } => {
                assert!(self.bug != Bug::PanicAt(position), "toy: position {position} is the wrong one");
                if self.chosen.insert(position, value).is_none() {
                    effects.mark(Chosen(position, value));
                }
            }
            Message::Propose { .. } | Message::Done { .. } => {}
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Replica>) {
        effects.complete(ticket, ());
    }

    fn expire(&mut self, Timer::Retry: Timer, effects: &mut Effects<Replica>) {
        let majority = usize::from(self.nodes / 2 + 1);
        let open = self.votes.iter().filter(|(_, (_, votes))| votes.len() < majority);
        let open: Vec<u64> = open.map(|(position, _)| *position).collect();
        open.into_iter().for_each(|position| self.propose(position, effects));
        effects.arm(Timer::Retry, Span::from_millis(200));
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let entry =
            |(position, value): (&u64, &u64)| Entry { position: *position, value: *value, lost: false };
        let entries: Vec<Entry> = self.log.iter().map(entry).collect();
        let chunks: Vec<Blob> =
            entries.chunks(16).map(|chunk| Blob::from(wire::encode(&chunk.to_vec()))).collect();
        Some(Box::new(chunks.into_iter()))
    }
}

/// Asks the leader, again until it hears.
#[derive(Clone, Hash, Debug)]
pub struct Client {
    identity: Identity,
    number: u64,
    open: BTreeMap<u64, (Ticket, u64)>,
}

impl Process for Client {
    type Setup = Setup;
    type Message = Message;
    type Record = ();
    type Request = u64;
    type Outcome = ();
    type Timer = Timer;
    type Mark = Chosen;

    fn open(identity: Identity, _: &Setup) -> Client {
        // Numbers of one life are never those of another.
        Client { identity, number: u64::from(identity.incarnation) << 32, open: BTreeMap::new() }
    }
    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }
    fn replay(&mut self, (): ()) {}
    fn start(&mut self, effects: &mut Effects<Client>) {
        effects.arm(Timer::Retry, Span::from_millis(300));
    }
    fn receive(&mut self, _: ProcessId, message: Message, effects: &mut Effects<Client>) {
        if let Message::Done { number } = message
            && let Some((ticket, _)) = self.open.remove(&number)
        {
            effects.complete(ticket, ());
        }
    }
    fn request(&mut self, ticket: Ticket, value: u64, effects: &mut Effects<Client>) {
        self.number += 1;
        self.open.insert(self.number, (ticket, value));
        effects.send(server(0), Message::Propose { number: self.number, value });
    }
    fn expire(&mut self, Timer::Retry: Timer, effects: &mut Effects<Client>) {
        for (number, (_, value)) in &self.open {
            effects.send(server(0), Message::Propose { number: *number, value: *value });
        }
        effects.arm(Timer::Retry, Span::from_millis(300));
    }
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }
}

/// Each session writes so many values, one after the other.
pub struct Writers {
    pub each: u64,
    pub asked: BTreeMap<Session, u64>,
    pub finished: Vec<(Session, Span)>,
    pub lost: u64,
    pub healed: bool,
    pub administered: u64,
    began: BTreeMap<Ticket, Instant>,
}

impl Writers {
    pub fn new(each: u64) -> Writers {
        Writers {
            each,
            asked: BTreeMap::new(),
            finished: Vec::new(),
            lost: 0,
            healed: false,
            administered: 0,
            began: BTreeMap::new(),
        }
    }
}

impl Driver<Toy> for Writers {
    fn next(&mut self, session: Session, now: Instant) -> Next<u64> {
        let asked = self.asked.entry(session).or_default();
        *asked += 1;
        if *asked > self.each {
            return Next::Done;
        }
        Next::Request { at: now, request: u64::from(session.number) * 1_000_000 + *asked }
    }
    fn invoked(&mut self, _: Session, ticket: Ticket, now: Instant) {
        self.began.insert(ticket, now);
    }
    fn completed(&mut self, session: Session, ticket: Ticket, (): (), now: Instant) {
        self.finished.push((session, now.since(self.began[&ticket])));
    }
    fn lost(&mut self, _: Session, _: Ticket, _: Instant) {
        self.lost += 1;
    }
    /// One replica is asked, one is stopped and started again.
    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        let process = server(random.below(3) as u16);
        let request = Admin::Request { process: server(0), request: Box::new(()) };
        vec![request, Admin::Stop(process), Admin::Start(process)]
    }
    fn healed(&mut self, _: Instant) {
        self.healed = true;
    }
    fn administered(&mut self, _: ProcessId, _: Ticket, outcome: Box<dyn Any + Send>) {
        assert!(outcome.is::<()>());
        self.administered += 1;
    }
}

/// Three regions, 20, 50 and 60 ms apart.
pub fn config(seed: u64) -> Config {
    let ms = Span::from_millis;
    let delays = vec![vec![ms(0), ms(10), ms(25)], vec![ms(10), ms(0), ms(30)], vec![ms(25), ms(30), ms(0)]];
    let mut config = Config::new(seed, &["va1", "or1", "fr1"], delays);
    config.roles = &["replica", "client"];
    config.horizon = Span::from_secs(5);
    config.patience = Span::from_secs(60);
    config
}

/// A configuration with jitter, syncs and processing cost.
pub fn busy(seed: u64) -> Config {
    let mut config = config(seed);
    config.jitter = Jitter::Exponential(Span::from_micros(500));
    config.sync = Span::from_millis(3);
    config.cost.fixed = Span::from_micros(5);
    config.cost.picos_per_byte = 1_000;
    config.sessions = 3;
    config.aftermath = Span::from_secs(1);
    config
}

pub fn simulation(config: Config, bug: Bug) -> Simulation<Toy> {
    Simulation::new(config, &Setup { nodes: 3, clients: 0..3, bug })
}

/// Nodes 0 to 2 as leader, near and far, and the client on node 3.
pub fn one_client(mut config: Config) -> Simulation<Toy> {
    let region = |name: &str| NodeConfig::new(name, 0);
    config.nodes = ["leader", "near", "far", "client"].map(region).to_vec();
    Simulation::new(config, &Setup { nodes: 3, clients: 3..4, bug: Bug::None })
}
