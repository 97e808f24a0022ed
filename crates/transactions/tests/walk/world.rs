//! A small world, in which messages may arrive in any order, timers fire and processes fail: two partitions of three
//! replicas, and two clients with a transaction each over both partitions, which read and write the same two keys. One
//! replica may fail, and come back or not; one client may go for good.

use isochrone_core::{
    Blob, Effect, Effects, Identity, Instant, KeyspaceId, NodeId, Outbox, Process, ProcessId, Random, Span,
    Stamp, Ticket,
};
use isochrone_transactions::{Distances, Family, Outcome, Placement, Request, Split, Tuning as _, Update};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

const KEYS: [&str; 2] = ["a", "z"];
const RTT: Span = Span::from_millis(1);

/// A process, what it wrote down, and its timers.
#[derive(Clone)]
struct Actor<P: Process> {
    id: ProcessId,
    setup: P::Setup,
    process: P,
    lives: u32,
    records: Vec<P::Record>,
    armed: BTreeMap<P::Timer, Instant>,
    up: bool,
}

/// What an input has led to: messages to others, and answers.
type Acted<P> = (Vec<(ProcessId, <P as Process>::Message)>, Vec<(Ticket, <P as Process>::Outcome)>);

impl<P: Process> Actor<P> {
    fn new(id: ProcessId, setup: P::Setup) -> Actor<P> {
        let process = P::open(Identity { process: id, incarnation: 1 }, &setup);
        Actor { id, setup, process, lives: 1, records: Vec::new(), armed: BTreeMap::new(), up: true }
    }

    /// One input, and what the process then tells itself, which always arrives, in order. Disks are instant.
    fn act(&mut self, now: Instant, input: impl FnOnce(&mut P, &mut Effects<P>)) -> Acted<P> {
        let (mut sent, mut answered) = (Vec::new(), Vec::new());
        let (mut own, mut input) = (VecDeque::new(), Some(input));
        let mut outbox = Outbox::new(self.id, Random::seeded(now.as_nanos()));
        loop {
            let stamp = Stamp::from_nanos(1_000_000_000 + now.as_nanos());
            let effects = outbox.input(now, stamp);
            match (input.take(), own.pop_front()) {
                (Some(input), _) => input(&mut self.process, effects),
                (None, Some(message)) => self.process.receive(self.id, message, effects),
                (None, None) => break,
            }
            self.process.settle(effects);
            self.process.check();
            for effect in outbox.drain() {
                match effect {
                    Effect::Send { to, message, .. } if to == self.id => own.push_back(message),
                    Effect::Send { to, message, .. } => sent.push((to, message)),
                    Effect::Record { record, .. } => self.records.push(record),
                    Effect::Arm { timer, after } => drop(self.armed.insert(timer, now + after)),
                    Effect::Disarm { timer } => drop(self.armed.remove(&timer)),
                    Effect::Complete { ticket, outcome, .. } => answered.push((ticket, outcome)),
                    Effect::Emit { .. } | Effect::Mark(_) => {}
                }
            }
        }
        (sent, answered)
    }

    fn fail(&mut self) {
        self.up = false;
        self.armed.clear();
    }

    fn restart(&mut self) {
        self.up = true;
        self.lives += 1;
        self.process = P::open(Identity { process: self.id, incarnation: self.lives }, &self.setup);
        self.records.iter().for_each(|record| self.process.replay(record.clone()));
    }
}

/// How far a client's transaction is.
#[derive(Clone, Debug, Default)]
struct Txn {
    /// What it has read, once it has begun.
    begun: Option<(Outcome, [Option<Blob>; 2])>,
    asked: bool,
    end: Option<Outcome>,
    /// Ends that were known when it began.
    before: Vec<usize>,
}

#[derive(Clone)]
pub(super) struct World<F: Family> {
    servers: Vec<Actor<F::Server>>,
    clients: Vec<Actor<F::Client>>,
    txns: Vec<Txn>,
    /// Sender, receiver, message, by its hash. A copy of what is on the way already adds nothing.
    network: BTreeMap<u64, (ProcessId, ProcessId, F::Message)>,
    now: Instant,
    /// Whether the second transaction begins when the first has ended: else one of them hardly ever commits.
    pub(super) apart: bool,
    pub(super) timers: u32,
    pub(super) failures: u32,
    pub(super) losses: u32,
}

/// What may happen next.
#[derive(Clone, Copy, Eq, PartialEq, Debug)]
pub(super) enum Move {
    Deliver(u64),
    Lose(u64),
    /// The first timer of a process fires, whenever it was due.
    Fire(usize),
    Begin(usize),
    Commit(usize),
    Fail(usize),
    Restart(usize),
}

impl<F: Family> World<F> {
    /// With a leader in both partitions.
    pub(super) fn new(bug: Option<&str>) -> World<F> {
        let rtt: std::sync::Arc<[Span]> = [RTT; 8].into();
        let distances = Distances { rtt, local: [false; 8].into() };
        let mut parameters = F::defaults(RTT);
        assert!(bug.is_none_or(|bug| parameters.plant(bug)), "{} has no bug {bug:?}", F::NAME);
        let groups = [[0, 1, 2], [3, 4, 5]].map(|nodes| nodes.map(NodeId).to_vec());
        let clients = [6, 7].map(|node| (NodeId(node), distances.clone())).to_vec();
        let split = Split::Ranges([Blob::from("m")].into());
        let placement = Placement::<F>::new(KeyspaceId(1), split, &groups, clients, parameters);
        let mut world = World {
            servers: Vec::new(),
            clients: Vec::new(),
            txns: vec![Txn::default(); 2],
            network: BTreeMap::new(),
            now: Instant::ZERO,
            apart: false,
            timers: 6,
            failures: 1,
            losses: 2,
        };
        for (at, group) in placement.map.groups.iter().enumerate() {
            for member in group.members.iter() {
                let partition = isochrone_core::PartitionId(at as u16);
                let map = placement.map.clone();
                let setup = isochrone_transactions::Server { map, partition, clients: [].into(), parameters };
                world.servers.push(Actor::new(member.process, setup));
            }
        }
        for (node, distances) in placement.clients.iter().cloned() {
            let map = placement.map.clone();
            let setup = isochrone_transactions::Client { map, distances, parameters };
            world.clients.push(Actor::new(placement.client(node), setup));
        }
        for at in 0..world.actors() {
            world.start(at);
        }
        // The first elections have no choices worth walking.
        for _ in 0..20 {
            world.deliver_all();
            world.fire_next();
        }
        world.deliver_all();
        world
    }

    /// Servers come first, then clients.
    fn actors(&self) -> usize {
        self.servers.len() + self.clients.len()
    }

    fn start(&mut self, at: usize) {
        let now = self.now;
        match at.checked_sub(self.servers.len()) {
            None => {
                let (sent, _) = self.servers[at].act(now, |process, effects| process.start(effects));
                self.send(self.servers[at].id, sent);
            }
            Some(client) => self.client(client, |process, effects| process.start(effects)),
        }
    }

    /// An input of a client, whose answers say how its transaction goes on.
    fn client(&mut self, at: usize, input: impl FnOnce(&mut F::Client, &mut Effects<F::Client>)) {
        let (sent, answered) = self.clients[at].act(self.now, input);
        self.send(self.clients[at].id, sent);
        for (_, outcome) in answered {
            let txn = &mut self.txns[at];
            match outcome {
                Outcome::Begun { ref reads, .. } => {
                    let value = |key: &&str| {
                        reads
                            .iter()
                            .find(|read| &*read.key == key.as_bytes())
                            .and_then(|read| read.value.clone())
                    };
                    let read = [value(&KEYS[0]), value(&KEYS[1])];
                    txn.begun = Some((outcome, read));
                }
                other => txn.end = Some(other),
            }
        }
    }

    fn send(&mut self, from: ProcessId, sent: Vec<(ProcessId, F::Message)>) {
        for (to, message) in sent {
            let sent = (from, to, message);
            let mut hasher = DefaultHasher::new();
            sent.hash(&mut hasher);
            self.network.insert(hasher.finish(), sent);
        }
    }

    fn deliver(&mut self, key: u64) {
        let Some((from, to, message)) = self.network.remove(&key) else { return };
        let now = self.now;
        if let Some(at) = self.servers.iter().position(|server| server.id == to && server.up) {
            let (sent, _) =
                self.servers[at].act(now, |process, effects| process.receive(from, message, effects));
            self.send(to, sent);
        } else if let Some(at) = self.clients.iter().position(|client| client.id == to && client.up) {
            self.client(at, |process, effects| process.receive(from, message, effects));
        }
    }

    fn deliver_all(&mut self) {
        while let Some(key) = self.network.keys().next().copied() {
            self.deliver(key);
        }
    }

    /// The first deadline of a process.
    fn deadline(&self, at: usize) -> Option<Instant> {
        match at.checked_sub(self.servers.len()) {
            None => self.servers[at].armed.values().min().copied(),
            Some(client) => self.clients[client].armed.values().min().copied(),
        }
    }

    fn fire(&mut self, at: usize) {
        let Some(deadline) = self.deadline(at) else { return };
        self.now = self.now.max(deadline);
        let now = self.now;
        match at.checked_sub(self.servers.len()) {
            None => {
                let server = &mut self.servers[at];
                let found = server.armed.iter().find(|(_, due)| **due == deadline);
                let Some(timer) = found.map(|(timer, _)| timer.clone()) else { return };
                server.armed.remove(&timer);
                let (sent, _) = server.act(now, |process, effects| process.expire(timer, effects));
                self.send(self.servers[at].id, sent);
            }
            Some(client) => {
                let armed = &mut self.clients[client].armed;
                let found = armed.iter().find(|(_, due)| **due == deadline);
                let Some(timer) = found.map(|(timer, _)| timer.clone()) else { return };
                armed.remove(&timer);
                self.client(client, |process, effects| process.expire(timer, effects));
            }
        }
    }

    /// Time goes on to the next timer of all.
    fn fire_next(&mut self) {
        let next = (0..self.actors()).filter_map(|at| Some((self.deadline(at)?, at))).min();
        if let Some((_, at)) = next {
            self.fire(at);
        }
    }

    fn ask(&mut self, at: usize, ticket: u64, request: Request) {
        self.client(at, |process, effects| process.request(Ticket(ticket), request, effects));
    }

    fn begin(&mut self, at: usize, ticket: u64) {
        let keys: Vec<Blob> = KEYS.map(Blob::from).to_vec();
        self.txns[at].before = (0..self.txns.len()).filter(|other| self.txns[*other].end.is_some()).collect();
        self.txns[at].asked = true;
        self.ask(at, ticket, Request::Begin { reads: keys.clone(), writes: keys });
    }

    fn commit(&mut self, at: usize, ticket: u64, value: &str) {
        let Some((Outcome::Begun { txn, .. }, _)) = self.txns[at].begun else { return };
        let update = |key: &str| Update { key: Blob::from(key), value: Some(Blob::from(value)) };
        self.ask(at, ticket, Request::Commit { txn, updates: KEYS.map(update).to_vec() });
    }

    pub(super) fn moves(&self) -> Vec<Move> {
        let mut moves: Vec<Move> = self.network.keys().map(|key| Move::Deliver(*key)).collect();
        for (at, txn) in self.txns.iter().enumerate().filter(|(at, _)| self.clients[*at].up) {
            match (&txn.begun, txn.asked) {
                (None, false) => {
                    let first = &self.txns[0];
                    let waits = at == 1 && self.apart && self.clients[0].up && first.end.is_none();
                    moves.extend((!waits).then_some(Move::Begin(at)));
                }
                // Asked once: what follows is the protocol's.
                (Some(_), true) if txn.end.is_none() => moves.push(Move::Commit(at)),
                _ => {}
            }
        }
        // Else most walks are over before anything has happened.
        if self.txns.iter().all(|txn| !txn.asked) {
            return moves;
        }
        if self.timers > 0 {
            moves.extend((0..self.actors()).filter(|at| self.deadline(*at).is_some()).map(Move::Fire));
        }
        if self.losses > 0 {
            moves.extend(self.network.keys().next().map(|key| Move::Lose(*key)));
        }
        // The leaders of the beginning, and a client.
        if self.failures > 0 {
            moves.extend([0, 3, self.servers.len()].map(Move::Fail));
        }
        moves.extend((0..self.servers.len()).filter(|at| !self.servers[*at].up).map(Move::Restart));
        moves
    }

    pub(super) fn step(&mut self, step: Move) {
        match step {
            Move::Deliver(key) => self.deliver(key),
            Move::Lose(key) => {
                self.losses -= 1;
                self.network.remove(&key);
            }
            Move::Fire(at) => {
                self.timers -= 1;
                self.fire(at);
            }
            Move::Begin(at) => self.begin(at, 1),
            Move::Commit(at) => {
                self.commit(at, 2, ["first", "second"][at]);
                self.txns[at].asked = false;
            }
            Move::Fail(at) => {
                self.failures -= 1;
                match at.checked_sub(self.servers.len()) {
                    None => self.servers[at].fail(),
                    Some(client) => self.clients[client].fail(),
                }
            }
            Move::Restart(at) => {
                self.servers[at].restart();
                self.start(at);
            }
        }
    }

    /// What a process has on its way is lost.
    pub(super) fn lose_all_of(&mut self, at: usize) {
        let lost =
            self.servers.get(at).map_or_else(|| self.clients[at - self.servers.len()].id, |server| server.id);
        self.network.retain(|_, (from, ..)| *from != lost);
    }

    /// Everybody is heard and time goes on until `done`.
    fn until(&mut self, what: &str, done: impl Fn(&World<F>) -> bool) {
        for _ in 0..20_000 {
            self.deliver_all();
            if done(self) {
                return;
            }
            self.fire_next();
        }
        panic!("{}: {what} is stuck: {:?}", F::NAME, self.txns);
    }

    /// The rest of a walk, and what must hold at its end; how many of the two have committed.
    pub(super) fn close(&mut self) -> usize {
        for at in 0..2 {
            if self.clients[at].up && !self.txns[at].asked && self.txns[at].begun.is_none() {
                self.begin(at, 1);
            }
            self.until("a read", |world| {
                !world.clients[at].up || world.txns[at].begun.is_some() || world.txns[at].end.is_some()
            });
            if self.clients[at].up && self.txns[at].asked {
                self.step(Move::Commit(at));
            }
            self.until("a commit", |world| !world.clients[at].up || world.txns[at].end.is_some());
        }
        let told = self.txns.clone();
        // The second client is never lost. Its transactions go on until one commits.
        let mut last = None;
        for attempt in 0..200 {
            self.txns[1] = Txn::default();
            self.begin(1, 10 + 2 * attempt);
            let over = |world: &World<F>| world.txns[1].begun.is_some() || world.txns[1].end.is_some();
            self.until("the last read", over);
            self.commit(1, 11 + 2 * attempt, "last");
            self.until("the last commit", |world| world.txns[1].end.is_some());
            if let (Some((_, read)), Some(Outcome::Committed { .. })) =
                (&self.txns[1].begun, &self.txns[1].end)
            {
                last = Some(read.clone());
                break;
            }
            // Whoever is in its way is given time.
            (0..20).for_each(|_| self.fire_next());
        }
        let last = last.unwrap_or_else(|| panic!("{}: something stays in the way: {told:?}", F::NAME));
        judge(F::NAME, &told, &last);
        told.iter().filter(|txn| matches!(txn.end, Some(Outcome::Committed { .. }))).count()
    }

    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = FxHasher::default();
        for server in &self.servers {
            (&server.process, server.up, server.armed.keys().collect::<Vec<_>>()).hash(&mut hasher);
        }
        for client in &self.clients {
            (&client.process, client.up, client.armed.keys().collect::<Vec<_>>()).hash(&mut hasher);
        }
        self.network.keys().for_each(|key| key.hash(&mut hasher));
        format!("{:?}", self.txns).hash(&mut hasher);
        (self.timers, self.failures, self.losses).hash(&mut hasher);
        hasher.finish()
    }
}

/// What two transactions that read and write both keys were told, and what was read after them.
fn judge(name: &str, told: &[Txn], last: &[Option<Blob>; 2]) {
    let values = [Some(Blob::from("first")), Some(Blob::from("second"))];
    let wrong = |why: &str| panic!("{name}: {why}: {told:?}, at last {last:?}");
    let committed = |at: usize| matches!(told[at].end, Some(Outcome::Committed { .. }));
    let aborted = |at: usize| matches!(told[at].end, Some(Outcome::Aborted(_)));
    if last[0] != last[1] {
        wrong("one key of a transaction was written, the other was not");
    }
    for at in 0..2 {
        if committed(at) {
            let read = &told[at].begun.as_ref().expect("it has begun").1;
            if read[0] != read[1] {
                wrong("what committed has read half of another");
            }
            let other = 1 - at;
            if read[0].is_some() && (read[0] != values[other] || aborted(other)) {
                wrong("what committed has read what was never committed");
            }
            // Nothing but these two was written: it is overwritten by the other only.
            if last[0] != values[at] && (last[0] != values[other] || aborted(other)) {
                wrong("what committed is not there");
            }
            if committed(other) && told[at].before.contains(&other) && read[0] != values[other] {
                wrong("what committed before it began was not read");
            }
        }
        if aborted(at) && last[0] == values[at] {
            wrong("what aborted is there");
        }
    }
    if committed(0) && committed(1) {
        let read = |at: usize| told[at].begun.as_ref().expect("it has begun").1[0].clone();
        let one_after_the_other = (read(0).is_none() && read(1) == values[0] && last[0] == values[1])
            || (read(1).is_none() && read(0) == values[1] && last[0] == values[0]);
        if !one_after_the_other {
            wrong("no order explains both");
        }
    }
}
