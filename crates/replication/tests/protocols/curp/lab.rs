//! Servers and witnesses in the hands of an adversary who is also their configuration manager: any message may be
//! lost, doubled or late, any process may lose what is not durable, masters are given up while they live, lists change
//! at any moment. Clients count; counts must be exact (T20, T24, T25, T28 to T31, T35, T36).

use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    Blob, ClientId, CommandId, Effect, Effects, Export, Fact, Footprint, Identity, Instant, KeyspaceId, Lane,
    Malformed, Mark as _, NodeId, Outbox, PartitionId, Process, ProcessId, Random, ReplicaId, Role, Span,
    Stamp, StateMachine, key_hash, wire,
};
use isochrone_replication::curp::primary::registry::{Command as Decree, Reply as Answer};
use isochrone_replication::curp::primary::{
    Family, MANAGER, Message as Spoken, Part, Registry, Server, WITNESS, WitnessServer,
};
use isochrone_replication::message::{Ask, Entry, Message, Told};
use isochrone_replication::order::{Member, Reign};
use isochrone_replication::service::Service;
use isochrone_replication::{CLIENT, MessageOf, REPLICA, Tuning as _, replica};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Adds one to a key, or reads it; both answer with the count.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
enum Count {
    Add(Blob),
    Read(Blob),
}

impl Count {
    fn key(&self) -> u8 {
        match self {
            Count::Add(key) | Count::Read(key) => key[0],
        }
    }
}

impl Footprint for Count {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(Touch<'a>)) {
        match self {
            Count::Add(key) => visit(Touch::Key(key, Access::Update)),
            Count::Read(key) => visit(Touch::Key(key, Access::Read)),
        }
    }
}

#[derive(Clone, Eq, PartialEq, Hash, Debug, Default, Serialize, Deserialize)]
struct Counts(BTreeMap<u8, u64>);

#[derive(Clone)]
struct View(Blob);

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        (index == 0).then(|| self.0.clone())
    }
}

impl StateMachine for Counts {
    type Command = Count;
    type Reply = u64;
    type View = View;
    type Before = Self;

    fn apply(&mut self, command: &Count) -> u64 {
        let count = self.0.entry(command.key()).or_default();
        *count += u64::from(matches!(command, Count::Add(_)));
        *count
    }

    fn before(&self, _: &Self::Command) -> Self {
        self.clone()
    }

    fn revert(&mut self, before: Self) {
        *self = before;
    }

    fn reads_only(command: &Count) -> bool {
        matches!(command, Count::Read(_))
    }

    fn read(&self, command: &Count) -> Option<u64> {
        Self::reads_only(command).then(|| self.0.get(&command.key()).copied().unwrap_or(0))
    }

    fn export(&self) -> View {
        View(Blob::from(wire::encode(self)))
    }

    fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        *self = wire::decode(chunk).unwrap();
        Ok(())
    }
}

type Wired = MessageOf<Family, Count, u64>;
type Keeper = WitnessServer<Count, u64>;

fn process(node: u16, role: Role) -> ProcessId {
    ProcessId { node: NodeId(node), keyspace: KeyspaceId(1), partition: PartitionId(0), role, instance: 0 }
}

/// A process, its journal and what waits for that.
struct Actor<P: Process<Message = Wired>> {
    id: ProcessId,
    incarnation: u32,
    setup: P::Setup,
    process: P,
    outbox: Outbox<P>,
    journal: Vec<P::Record>,
    durable: usize,
    /// What is made from here on waits for so many records.
    barrier: usize,
    held: VecDeque<(usize, ProcessId, Wired)>,
    timers: BTreeMap<P::Timer, Instant>,
    facts: Vec<Fact>,
}

impl<P: Process<Message = Wired>> Actor<P> {
    fn new(id: ProcessId, setup: P::Setup) -> Actor<P> {
        let identity = Identity { process: id, incarnation: 1 };
        Actor {
            id,
            incarnation: 1,
            process: P::open(identity, &setup),
            outbox: Outbox::new(id, Random::seeded(u64::from(id.node.0))),
            setup,
            journal: Vec::new(),
            durable: 0,
            barrier: 0,
            held: VecDeque::new(),
            timers: BTreeMap::new(),
            facts: Vec::new(),
        }
    }

    /// Gives it an input, then lets it settle; what may leave at once.
    fn input(
        &mut self,
        now: Instant,
        input: impl FnOnce(&mut P, &mut Effects<P>),
    ) -> Vec<(ProcessId, Wired)> {
        let mut out = Vec::new();
        input(&mut self.process, self.outbox.input(now, Stamp::ZERO));
        self.drain(now, &mut out);
        self.process.settle(self.outbox.input(now, Stamp::ZERO));
        self.drain(now, &mut out);
        self.process.check();
        out
    }

    fn drain(&mut self, now: Instant, out: &mut Vec<(ProcessId, Wired)>) {
        for effect in self.outbox.drain() {
            match effect {
                Effect::Record { record, haste } => {
                    self.journal.push(record);
                    if haste.holds() {
                        self.barrier = self.journal.len();
                    }
                }
                Effect::Send { to, message, lane } => match lane {
                    Lane::Held if self.barrier > self.durable => {
                        self.held.push_back((self.barrier, to, message));
                    }
                    _ => out.push((to, message)),
                },
                Effect::Arm { timer, after } => drop(self.timers.insert(timer, now + after)),
                Effect::Disarm { timer } => drop(self.timers.remove(&timer)),
                Effect::Mark(mark) => self.facts.extend(mark.fact()),
                Effect::Complete { .. } | Effect::Emit { .. } => {}
            }
        }
    }

    fn flush(&mut self) -> Vec<(ProcessId, Wired)> {
        self.durable = self.journal.len();
        let mut out = Vec::new();
        while let Some((_, to, message)) = self.held.pop_front_if(|(barrier, ..)| *barrier <= self.durable) {
            out.push((to, message));
        }
        out
    }

    /// It loses what is not durable, and comes back.
    fn restart(&mut self, now: Instant) -> Vec<(ProcessId, Wired)> {
        self.incarnation += 1;
        let identity = Identity { process: self.id, incarnation: self.incarnation };
        self.journal.truncate(self.durable);
        self.barrier = self.durable;
        self.held.clear();
        self.timers.clear();
        self.process = P::open(identity, &self.setup);
        for record in &self.journal {
            self.process.replay(record.clone());
        }
        self.input(now, |process, effects| process.start(effects))
    }

    fn due(&mut self, now: Instant) -> Option<P::Timer> {
        let timer = self.timers.iter().find(|(_, at)| **at <= now)?.0.clone();
        self.timers.remove(&timer);
        Some(timer)
    }
}

/// What a client has asked and not been answered.
struct Asked {
    command: Count,
    invoked: u64,
    /// When it is asked for again.
    due: Instant,
    /// What it goes by in this attempt.
    view: Option<Known>,
    accepted: Vec<NodeId>,
    told: Option<u64>,
    synced: bool,
}

struct Client {
    id: ClientId,
    sequence: u64,
    asked: Option<Asked>,
    /// What it went by last.
    view: Option<Known>,
}

/// A reign, its master and its copies.
type Known = (Reign, NodeId, Arc<[NodeId]>);

/// What was answered, on which key, when.
struct Seen {
    key: u8,
    adds: bool,
    count: u64,
    invoked: u64,
    returned: u64,
}

pub struct Lab {
    random: Random,
    now: Instant,
    step: u64,
    servers: Vec<Actor<Server<Counts>>>,
    witnesses: Vec<Actor<Keeper>>,
    registry: Registry,
    net: Vec<(ProcessId, ProcessId, Wired)>,
    clients: Vec<Client>,
    seen: Vec<Seen>,
    /// Adds that were invoked, by key.
    added: BTreeMap<u8, u64>,
    decided: BTreeMap<u64, u64>,
    /// A server that hears nothing of managers and other servers, until then: clients still reach it.
    deaf: Option<(NodeId, Instant)>,
    /// What the adversary no longer does.
    quiet: bool,
    keys: u64,
    pub fast: u64,
    pub recoveries: u64,
    broken: Option<String>,
}

impl Lab {
    pub fn new(seed: u64, bug: Option<&'static str>) -> Lab {
        let mut random = Random::seeded(seed);
        let nodes = 3 + random.below(2) as u16;
        let rtt = Span::from_millis(4);
        let mut parameters = <Family as isochrone_replication::Family>::Parameters::for_rtt(rtt);
        parameters.f = 1 + random.below(2) as usize;
        parameters.sync_delay = Span::from_millis([0, 5, 60][random.below(3) as usize]);
        parameters.hot_window = [0, 100][random.below(2) as usize];
        parameters.keep_slots = [1, 8, 1_000][random.below(3) as usize];
        parameters.lease_length = Span::from_millis(200);
        parameters.heartbeat = Span::from_millis(20);
        parameters.resend = Span::from_millis(60);
        if let Some(bug) = bug {
            assert!(parameters.plant(bug), "no bug {bug}");
        }
        let member = |node: u16| Member { replica: ReplicaId(node as u8), process: process(node, REPLICA) };
        let members: Arc<[Member]> = (0..nodes).map(member).collect();
        let service = Service { resend: Span::from_millis(60), ..Service::for_rtt(rtt) };
        let server = |node: u16| {
            let (members, machine) = (members.clone(), Counts::default());
            let setup = replica::Setup { members, preferred: None, service, parameters, machine };
            Actor::new(process(node, REPLICA), setup)
        };
        let client = |number: u16| Client {
            id: ClientId { process: process(100 + number, CLIENT), incarnation: 1 },
            sequence: 0,
            asked: None,
            view: None,
        };
        let mut lab = Lab {
            random,
            now: Instant::ZERO,
            step: 0,
            servers: (0..nodes).map(server).collect(),
            witnesses: (0..nodes).map(|node| Actor::new(process(node, WITNESS), parameters)).collect(),
            registry: Registry::default(),
            net: Vec::new(),
            clients: (0..3).map(client).collect(),
            seen: Vec::new(),
            added: BTreeMap::new(),
            decided: BTreeMap::new(),
            deaf: None,
            quiet: false,
            // With few much conflicts; with many, reads are not held up.
            keys: [3, 12][(seed % 2) as usize],
            fast: 0,
            recoveries: 0,
            broken: None,
        };
        for at in 0..lab.servers.len() {
            lab.serve(at, |process, effects| process.start(effects));
        }
        lab
    }

    fn send(&mut self, from: ProcessId, out: Vec<(ProcessId, Wired)>) {
        self.net.extend(out.into_iter().map(|(to, message)| (from, to, message)));
    }

    fn serve(&mut self, at: usize, input: impl FnOnce(&mut Server<Counts>, &mut Effects<Server<Counts>>)) {
        let actor = &mut self.servers[at];
        let mut out = actor.input(self.now, input);
        // To itself everything arrives, in order.
        let me = actor.id;
        while let Some(first) = out.iter().position(|(to, _)| *to == me) {
            let (_, message) = out.remove(first);
            out.extend(actor.input(self.now, |process, effects| process.receive(me, message, effects)));
        }
        let facts = std::mem::take(&mut actor.facts);
        for fact in facts {
            match fact {
                Fact::Decided { position, digest }
                    if *self.decided.entry(position).or_insert(digest) != digest =>
                {
                    self.broken = Some(format!("place {position} is decided twice, at {me}"));
                }
                Fact::Counted("masters_begun") => self.recoveries += 1,
                _ => {}
            }
        }
        self.send(me, out);
    }

    fn flush(&mut self, at: usize) {
        let count = self.servers.len();
        if at < count {
            let me = self.servers[at].id;
            let out = self.servers[at].flush();
            let (own, others): (Vec<_>, Vec<_>) = out.into_iter().partition(|(to, _)| *to == me);
            self.send(me, others);
            for (_, message) in own {
                self.serve(at, |process, effects| process.receive(me, message, effects));
            }
        } else {
            let me = self.witnesses[at - count].id;
            let out = self.witnesses[at - count].flush();
            self.send(me, out);
        }
    }

    fn deliver(&mut self, from: ProcessId, to: ProcessId, message: Wired) {
        let at = usize::from(to.node.0);
        match to.role {
            REPLICA => {
                let peer = matches!(from.role, REPLICA | MANAGER);
                if !(peer && self.deaf.is_some_and(|(node, until)| node == to.node && self.now < until)) {
                    self.serve(at, |process, effects| process.receive(from, message, effects));
                }
            }
            WITNESS => {
                let now = self.now;
                let out = self.witnesses[at].input(now, |process, effects| {
                    process.receive(from, message, effects);
                });
                self.send(to, out);
            }
            MANAGER => {
                if let Message::Order { message: Spoken::Pong { report, .. }, .. } = message
                    && let Part::Ready(reign) = report.part
                    && self.registry.next.as_ref().is_some_and(|next| next.reign == reign)
                {
                    self.registry.apply(&Decree::Commit { reign });
                }
            }
            _ => self.answer(to, from, message),
        }
    }

    /// A client hears something.
    fn answer(&mut self, to: ProcessId, from: ProcessId, message: Wired) {
        let index = usize::from(to.node.0 - 100);
        let sequence = self.clients[index].sequence;
        let now = self.now;
        let Some(asked) = &mut self.clients[index].asked else { return };
        match message {
            Message::Replies { reign, answers, .. } => {
                for (number, told) in answers {
                    if number != sequence {
                        continue;
                    }
                    match told {
                        Told::Done(count) | Told::Read(count) | Told::Looked(count) => {
                            return self.finish(index, count);
                        }
                        Told::Speculative(count) => {
                            if asked.view.as_ref().is_some_and(|(known, ..)| *known == reign) {
                                asked.told = Some(count);
                            }
                        }
                        Told::Forgotten => {
                            self.broken = Some(format!("{from} has forgotten what is still asked for"));
                            return;
                        }
                        Told::Touches | Told::Overloaded => {}
                    }
                }
            }
            Message::Redirect { sequences, .. } if sequences.contains(&sequence) => {
                asked.view = None;
                asked.due = now;
            }
            Message::Order { message: Spoken::Verdicts(verdicts), .. } => {
                let current = asked.view.as_ref().is_some_and(|(known, ..)| *known == verdicts.reign);
                for (number, accepted) in verdicts.verdicts {
                    if number == sequence && current && accepted && !asked.accepted.contains(&from.node) {
                        asked.accepted.push(from.node);
                    }
                }
            }
            _ => {}
        }
        let Some(asked) = &self.clients[index].asked else { return };
        if let (Some(count), Some((_, _, copies))) = (asked.told, &asked.view)
            && copies.iter().all(|node| asked.accepted.contains(node))
        {
            self.fast += 1;
            self.finish(index, count);
        }
    }

    fn finish(&mut self, index: usize, count: u64) {
        let Some(asked) = self.clients[index].asked.take() else { return };
        let adds = matches!(asked.command, Count::Add(_));
        let seen =
            Seen { key: asked.command.key(), adds, count, invoked: asked.invoked, returned: self.step };
        for other in self.seen.iter().filter(|other| other.key == seen.key) {
            let twice = other.adds && adds && other.count == count;
            let stale = other.returned < seen.invoked
                && (count < other.count || adds && count == other.count && other.adds);
            let behind = other.returned < seen.invoked && adds && count <= other.count;
            if twice || stale || behind {
                self.broken = Some(format!(
                    "k{} counts {count} at step {} ({}), and had {} at step {}",
                    seen.key,
                    self.step,
                    if adds { "add" } else { "read" },
                    other.count,
                    other.returned
                ));
            }
        }
        if count > self.added.get(&seen.key).copied().unwrap_or(0) {
            self.broken = Some(format!("k{} counts {count}, more than was ever added", seen.key));
        }
        self.seen.push(seen);
    }

    /// A client asks something, or asks again.
    fn ask(&mut self, index: usize) {
        let (now, step) = (self.now, self.step);
        if self.clients[index].asked.is_none() {
            let key = self.random.below(self.keys) as u8;
            let name = Blob::from(vec![key]);
            // The last one only reads, and looks for another master late.
            let adds = index + 1 < self.clients.len() && self.random.chance(0.8);
            let command = if adds { Count::Add(name) } else { Count::Read(name) };
            if matches!(command, Count::Add(_)) {
                *self.added.entry(key).or_default() += 1;
            }
            let client = &mut self.clients[index];
            client.sequence += 1;
            let view = client.view.clone();
            let (accepted, told, synced) = (Vec::new(), None, false);
            client.asked = Some(Asked { command, invoked: step, due: now, view, accepted, told, synced });
        }
        let published = self.registry.committed.clone();
        let patience = Span::from_millis(20 + self.random.below(60));
        let stale = self.random.chance(if index + 1 < self.clients.len() { 0.5 } else { 0.95 });
        let client = &mut self.clients[index];
        let (id, sequence) = (client.id, client.sequence);
        let Some(asked) = &mut client.asked else { return };
        if now < asked.due {
            return;
        }
        asked.due = now + patience;
        if asked.view.is_none() || !stale {
            let known = asked.view.take();
            asked.view = published.map(|now| (now.reign, now.master, now.copies));
            if known.map(|(reign, ..)| reign) != asked.view.as_ref().map(|(reign, ..)| *reign) {
                // Another attempt: nothing of the last one counts (D-7).
                (asked.accepted, asked.told, asked.synced) = (Vec::new(), None, false);
            }
        }
        client.view = asked.view.clone();
        let Some((reign, master, copies)) = asked.view.clone() else { return };
        let command = asked.command.clone();
        let ask = Ask { sequence, command: command.clone(), touching: false, synced: asked.synced };
        let records = !Counts::reads_only(&command) && !asked.synced;
        asked.synced = asked.told.is_some() || asked.synced;
        let requests = Message::Requests {
            client: id,
            below: sequence,
            under: Some(reign),
            asks: vec![ask],
            forwarded: true,
        };
        let mut out = vec![(process(master.0, REPLICA), requests)];
        if records {
            let keys = vec![key_hash(KeyspaceId(1), &[command.key()])];
            let id = CommandId { client: id, sequence };
            let requests = vec![(keys, Entry::Command { id, below: sequence, command })];
            for node in copies.iter() {
                let message = Spoken::Records { reign, requests: requests.clone() };
                out.push((process(node.0, WITNESS), Message::Order { epoch: 0, message }));
            }
        }
        self.send(id.process, out);
    }

    fn ping(&mut self, at: usize) {
        let message = Spoken::Ping { registry: self.registry.clone() };
        let to = self.servers[at].id;
        self.net.push((process(0, MANAGER), to, Message::Order { epoch: 0, message }));
    }

    /// The adversary as the configuration manager.
    fn decree(&mut self) {
        let nodes = self.servers.len() as u64;
        let master = NodeId(self.random.below(nodes) as u16);
        let version = self.registry.version;
        // At the end somebody who can is to lead.
        let recover = self.quiet || self.registry.committed.is_none() || self.random.chance(0.4);
        if self.quiet && !self.registry.may_lead(master) {
            return self.decree();
        }
        let current = self.registry.committed.as_ref().map(|now| now.master);
        let lead = if recover { Some(master) } else { current };
        let mut copies: Vec<NodeId> = (0..nodes as u16).map(NodeId).filter(|n| Some(*n) != lead).collect();
        while copies.len() > 1 + self.random.below(2) as usize {
            copies.remove(self.random.below(copies.len() as u64) as usize);
        }
        let decree = match recover {
            true => Decree::Recover { version, master, copies: copies.into() },
            false => Decree::Replace { version, copies: copies.into() },
        };
        if self.registry.apply(&decree) == Answer::Done && recover && self.random.chance(0.5) {
            // The old master does not hear of it for a while.
            self.deaf = current.map(|node| (node, self.now + Span::from_millis(500)));
        }
    }

    /// One thing happens.
    fn advance(&mut self) {
        self.step += 1;
        self.now = self.now + Span::from_micros(self.random.below(600));
        let (servers, all) = (self.servers.len() as u64, 2 * self.servers.len() as u64);
        match self.random.below(1_000) {
            0..600 if !self.net.is_empty() => {
                let at = match self.quiet {
                    true => 0,
                    false => self.random.below(self.net.len() as u64) as usize,
                };
                let (from, to, message) =
                    if self.quiet { self.net.remove(at) } else { self.net.swap_remove(at) };
                if !self.quiet && self.random.chance(0.03) {
                    self.net.push((from, to, message.clone()));
                }
                if self.quiet || !self.random.chance(0.04) {
                    self.deliver(from, to, message);
                }
            }
            600..760 => {
                let at = self.random.below(all) as usize;
                self.flush(at);
            }
            760..880 => {
                let at = self.random.below(servers) as usize;
                if let Some(timer) = self.servers[at].due(self.now) {
                    self.serve(at, |process, effects| process.expire(timer, effects));
                }
            }
            880..910 => {
                let at = self.random.below(servers) as usize;
                self.ping(at);
            }
            910..990 => {
                let index = self.random.below(self.clients.len() as u64) as usize;
                self.ask(index);
            }
            990..993 if !self.quiet || self.registry.committed.is_none() => self.decree(),
            993..996 if !self.quiet => {
                let at = self.random.below(servers) as usize;
                let me = self.servers[at].id;
                if self.random.chance(0.5) {
                    self.servers[at].flush();
                }
                let out = self.servers[at].restart(self.now);
                self.send(me, out);
            }
            996..998 if !self.quiet => {
                let at = self.random.below(servers) as usize;
                self.witnesses[at].restart(self.now);
            }
            _ => {}
        }
    }

    /// All of it, then a time without faults in which everybody is served. What broke, if anything.
    pub fn run(&mut self, steps: u64) -> Option<String> {
        for _ in 0..steps {
            self.advance();
            if self.broken.is_some() {
                return self.broken.take();
            }
        }
        self.quiet = true;
        self.deaf = None;
        let (served, target) = (self.seen.len(), 40);
        for step in 0..120_000_u64 {
            self.advance();
            if self.broken.is_some() {
                return self.broken.take();
            }
            if self.seen.len() >= served + target {
                return None;
            }
            // Whoever was to lead may have lost what it had begun.
            if step % 20_000 == 19_999 {
                self.decree();
            }
        }
        Some(format!(
            "Stuck: {} answers since the faults ended: {:?}",
            self.seen.len() - served,
            self.registry
        ))
    }

    pub fn answered(&self) -> usize {
        self.seen.len()
    }
}

#[test]
fn counts_are_exact_whatever_the_adversary_does() {
    let number =
        |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, seeds) = match number("ISOCHRONE_SEED", u64::MAX) {
        u64::MAX => (0, number("ISOCHRONE_SEEDS", 150)),
        seed => (seed, 1),
    };
    let (mut broken, mut answered, mut fast, mut recoveries) = (Vec::new(), 0, 0, 0);
    for seed in first..first + seeds {
        let mut lab = Lab::new(seed, None);
        if let Some(text) = lab.run(6_000) {
            broken.push(format!("seed {seed}: {text}"));
        }
        answered += lab.answered();
        (fast, recoveries) = (fast + lab.fast, recoveries + lab.recoveries);
    }
    println!("{answered} answers, {fast} by witnesses, {recoveries} masters");
    assert!(broken.is_empty(), "{} of {seeds}:\n{}", broken.len(), broken[..broken.len().min(10)].join("\n"));
    assert!(fast > answered as u64 / 20 && recoveries > seeds, "{fast} of {answered}, {recoveries} masters");
}
