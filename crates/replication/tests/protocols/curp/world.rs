//! Servers, witnesses and clients of one group, and an oracle: counts must be exact. Whoever drives it is the
//! network, the disks, the clocks and the configuration manager.

use super::actor::{Actor, Count, Counts, ELSEWHERE, Shared, Wired, process};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{
    ClientId, CommandId, Effects, Fact, Footprint as _, Instant, KeyspaceId, NodeId, Process, ProcessId,
    ReplicaId, Slot, Span, StateMachine, key_hash,
};
use isochrone_replication::curp::primary::registry::{Command as Decree, Reply as Answer};
use isochrone_replication::curp::primary::{
    MANAGER, Message as Spoken, Mutation, Parameters, Part, Registry, Server, WITNESS, WitnessServer,
};
use isochrone_replication::message::{Ask, Entry, Message, Told};
use isochrone_replication::order::{Member, Reign};
use isochrone_replication::service::Service;
use isochrone_replication::stream::Said;
use isochrone_replication::{CLIENT, Change, REPLICA, Refusal, Tuning as _, replica};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

pub type Keeper = WitnessServer<Count, u64>;

/// What a client has asked and not been answered.
#[derive(Clone, Hash)]
pub struct Asked {
    pub command: Count,
    invoked: u64,
    /// When it is asked for again.
    pub due: Instant,
    /// What it goes by in this attempt.
    view: Option<Known>,
    accepted: Vec<NodeId>,
    told: Option<u64>,
    refused: bool,
    synced: bool,
    /// The copy that was asked to read.
    near: Option<NodeId>,
    /// What its server said before its witness was asked, by a planted bug.
    early: Option<u64>,
    /// Whether it was asked before.
    again: bool,
}

#[derive(Clone, Hash)]
pub struct Client {
    pub id: ClientId,
    pub sequence: u64,
    pub asked: Option<Asked>,
    /// What it went by last.
    pub view: Option<Known>,
    /// What it was answered last, and whether its witnesses made that safe.
    pub last: Option<(u64, bool)>,
}

/// A request, and the hashes of its keys.
pub type Kept<V> = (Vec<u64>, V);

/// A reign, its master and its copies.
pub type Known = (Reign, NodeId, Arc<[NodeId]>);

/// What was answered: of which keys, whether one was added, and the count; and when.
#[derive(Clone, Hash)]
struct Seen {
    parts: Vec<(u8, bool, u64)>,
    invoked: u64,
    returned: u64,
}

impl Seen {
    /// Whether this one took effect before the other, as far as the two show it.
    fn precedes(&self, other: &Seen) -> bool {
        self.returned < other.invoked
            || self.parts.iter().any(|(key, adds, count)| {
                let later = |(seen, also, more): &(u8, bool, u64)| {
                    seen == key && (count < more || count == more && *adds && !also)
                };
                other.parts.iter().any(later)
            })
    }
}

#[derive(Clone)]
pub struct World {
    pub now: Instant,
    /// Counts what happens.
    pub step: u64,
    pub servers: Vec<Shared<Actor<Server<Counts>>>>,
    pub witnesses: Vec<Shared<Actor<Keeper>>>,
    pub registry: Registry,
    pub net: Vec<(ProcessId, ProcessId, Wired)>,
    pub clients: Vec<Client>,
    seen: Vec<Seen>,
    /// Adds that were invoked, by key.
    pub added: BTreeMap<u8, u64>,
    decided: BTreeMap<u64, u64>,
    /// A server that hears nothing of managers and other servers, until then: clients still reach it.
    pub deaf: Option<(NodeId, Instant)>,
    /// Whether it hears other servers all the same, and only managers not.
    pub hears_servers: bool,
    /// Processes that hear nothing at all.
    pub gone: BTreeSet<ProcessId>,
    /// Whether what is on its way from one process to another arrives in its order; it says so to whoever looks.
    pub links_keep_order: bool,
    /// What is lost on the way.
    pub loses: fn(&Wired) -> bool,
    /// Whether servers are the witnesses of their nodes.
    pub unified: bool,
    /// From which place on a server hears nothing of the log.
    pub curbed: BTreeMap<NodeId, Slot>,
    /// Commands of which copies were sent the name.
    pub named: usize,
    /// How much faster than true time the clock of each server runs, in millionths.
    pub drift: Vec<i64>,
    /// Clients of whose every command the first word to the master is lost.
    pub muted: BTreeSet<usize>,
    /// What clients have told witnesses, to be told once more, if it is kept.
    pub told_twice: Option<Vec<(ProcessId, ProcessId, Wired)>>,
    /// Which copy is asked by the next attempt that reads; else the master is.
    pub near_at: Option<usize>,
    /// Clients read at a backup before they ask its witness.
    pub early: bool,
    /// Clients do not tell witnesses of keys that are only read.
    pub forgets: bool,
    /// Reads that copies answered.
    pub near: u64,
    pub fast: u64,
    pub counted: BTreeMap<&'static str, u64>,
    /// What administration was answered.
    pub administered: Vec<Result<(), Refusal>>,
    /// Of which copies a master has said last that they are silent.
    pub silent: Vec<NodeId>,
    pub broken: Option<String>,
}

/// Two worlds from which the same may come; times are left out, but in what processes hold.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.servers, &self.witnesses).hash(state);
        self.hash_beside(state);
    }
}

/// The knobs of a small group: times are short, and nothing is done before it is due.
pub fn parameters(f: usize) -> Parameters {
    let mut parameters = Parameters::for_rtt(Span::from_millis(4));
    parameters.f = f;
    parameters.hot_window = 0;
    parameters.lease_length = Span::from_millis(200);
    parameters.heartbeat = Span::from_millis(20);
    parameters.resend = Span::from_millis(60);
    parameters
}

pub fn service() -> Service {
    Service { resend: Span::from_millis(60), ..Service::for_rtt(Span::from_millis(4)) }
}

fn request_of(client: ClientId, sequence: u64, command: Count, forgets: bool) -> Kept<Entry<Count>> {
    let mut keys = Vec::new();
    command.visit(&mut |touch| match touch {
        Touch::Key(_, Access::Read) if forgets => {}
        Touch::Key(key, _) => keys.push(key_hash(KeyspaceId(1), key)),
        Touch::All(_) => panic!("no witness keeps {command:?}"),
    });
    keys.sort_unstable();
    keys.dedup();
    let id = CommandId { client, sequence };
    (keys, Entry::Command { id, below: sequence, command })
}

/// What a client has asked witnesses to keep last: an addition to this key.
pub fn request(client: &Client, key: u8) -> Kept<Entry<Count>> {
    request_of(client.id, client.sequence, Count::add(key), false)
}

impl World {
    /// As `hash`, where no process restarts and no timer expires: of processes only what they are.
    pub fn hash_lean<H: Hasher>(&self, state: &mut H) {
        self.servers.iter().for_each(|actor| actor.hash_of_process().hash(state));
        self.witnesses.iter().for_each(|actor| actor.hash_of_process().hash(state));
        self.hash_beside(state);
    }

    fn hash_beside<H: Hasher>(&self, state: &mut H) {
        (&self.registry, &self.clients, &self.seen, &self.added, &self.decided).hash(state);
        // The order of what is on its way is nothing, but where links keep it.
        let mut sum = 0_u64;
        for (at, message) in self.net.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            if self.links_keep_order {
                self.before(at).hash(&mut hasher);
            }
            message.hash(&mut hasher);
            sum = sum.wrapping_add(hasher.finish());
        }
        sum.hash(state);
    }

    /// How many messages are on the same way before this one.
    pub fn before(&self, at: usize) -> usize {
        let (from, to, _) = &self.net[at];
        self.net[..at].iter().filter(|(other, way, _)| (other, way) == (from, to)).count()
    }

    pub fn new(nodes: u16, clients: u16, parameters: Parameters, service: Service) -> World {
        let member = |node: u16| Member { replica: ReplicaId(node as u8), process: process(node, REPLICA) };
        let members: Arc<[Member]> = (0..nodes).map(member).collect();
        let server = |node: u16| {
            let (members, machine) = (members.clone(), Counts::default());
            let setup = replica::Setup { members, preferred: None, service, parameters, machine };
            Shared::new(Actor::new(process(node, REPLICA), setup))
        };
        let client = |number: u16| Client {
            id: ClientId { process: process(100 + number, CLIENT), incarnation: 1 },
            sequence: 0,
            asked: None,
            view: None,
            last: None,
        };
        let mut world = World {
            now: Instant::ZERO,
            step: 0,
            servers: (0..nodes).map(server).collect(),
            witnesses: (0..nodes)
                .map(|node| Shared::new(Actor::new(process(node, WITNESS), parameters)))
                .collect(),
            registry: Registry::default(),
            net: Vec::new(),
            clients: (0..clients).map(client).collect(),
            seen: Vec::new(),
            added: BTreeMap::new(),
            decided: BTreeMap::new(),
            deaf: None,
            hears_servers: false,
            gone: BTreeSet::new(),
            links_keep_order: false,
            loses: |_| false,
            unified: parameters.unified,
            curbed: BTreeMap::new(),
            named: 0,
            drift: vec![0; usize::from(nodes)],
            muted: BTreeSet::new(),
            told_twice: None,
            near_at: None,
            early: false,
            forgets: parameters.mutation == Some(Mutation::ForgetReadKeys),
            near: 0,
            fast: 0,
            counted: BTreeMap::new(),
            administered: Vec::new(),
            silent: Vec::new(),
            broken: None,
        };
        for at in 0..world.servers.len() {
            world.serve(at, |process, effects| process.start(effects));
        }
        world
    }

    /// What the clock of a server shows.
    pub fn clock(&self, at: usize) -> Instant {
        let nanos = self.now.as_nanos() as i128;
        Instant::from_nanos((nanos + nanos * i128::from(self.drift[at]) / 1_000_000) as u64)
    }

    /// Who keeps requests on this node.
    pub fn witness(&self, node: NodeId) -> ProcessId {
        process(node.0, if self.unified { REPLICA } else { WITNESS })
    }

    /// How much is kept there for a master's clients.
    pub fn holds(&self, node: usize, master: u64) -> Option<usize> {
        match self.unified {
            true => self.servers[node].process.order().holds(master),
            false => self.witnesses[node].process.holds(master),
        }
    }

    pub fn send(&mut self, from: ProcessId, out: Vec<(ProcessId, Wired)>) {
        for (_, message) in &out {
            let Message::Order { message, .. } = message else { continue };
            if let Spoken::Replicate(run) = message {
                self.named += run.names.len();
            }
            let what = match message {
                Spoken::Collect { .. } => "collections",
                Spoken::Replicate(run)
                    if run
                        .batches
                        .iter()
                        .flat_map(|batch| batch.iter())
                        .any(|entry| matches!(entry, Entry::Expire { .. })) =>
                {
                    "expiries"
                }
                _ => continue,
            };
            *self.counted.entry(what).or_default() += 1;
        }
        let curbed = |to: &ProcessId, message: &Wired| match message {
            Message::Order { message: Spoken::Replicate(run), .. } => {
                self.curbed.get(&to.node).is_some_and(|limit| run.at >= *limit)
            }
            _ => false,
        };
        let out = out.into_iter().filter(|(to, message)| !(self.loses)(message) && !curbed(to, message));
        self.net.extend(out.map(|(to, message)| (from, to, message)));
    }

    pub fn serve(
        &mut self,
        at: usize,
        input: impl FnOnce(&mut Server<Counts>, &mut Effects<Server<Counts>>),
    ) {
        let now = self.clock(at);
        let actor = &mut self.servers[at];
        let mut out = actor.input(now, input);
        // To itself everything arrives, in order.
        let me = actor.id;
        while let Some(first) = out.iter().position(|(to, _)| *to == me) {
            let (_, message) = out.remove(first);
            out.extend(actor.input(now, |process, effects| process.receive(me, message, effects)));
        }
        actor.process.check_tail();
        let facts = std::mem::take(&mut actor.facts);
        for fact in facts {
            match fact {
                Fact::Decided { position, digest }
                    if *self.decided.entry(position).or_insert(digest) != digest =>
                {
                    self.broken = Some(format!("place {position} is decided twice, at {me}"));
                }
                Fact::Counted(name) => *self.counted.entry(name).or_default() += 1,
                Fact::Added(name, more) => *self.counted.entry(name).or_default() += more,
                _ => {}
            }
        }
        self.send(me, out);
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counted.get(name).copied().unwrap_or(0)
    }

    /// The disk of a server, or of a witness, which are counted behind them, has written everything.
    pub fn flush(&mut self, at: usize) {
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

    pub fn restart_server(&mut self, at: usize) {
        let (me, now) = (self.servers[at].id, self.clock(at));
        let out = self.servers[at].restart(now);
        self.send(me, out);
    }

    pub fn deliver(&mut self, from: ProcessId, to: ProcessId, message: Wired) {
        if self.gone.contains(&to) {
            return;
        }
        let at = usize::from(to.node.0);
        match to.role {
            REPLICA => {
                let peer = from.role == MANAGER || from.role == REPLICA && !self.hears_servers;
                if !(peer && self.deaf.is_some_and(|(node, until)| node == to.node && self.now < until)) {
                    self.serve(at, |process, effects| process.receive(from, message, effects));
                }
            }
            WITNESS => {
                let now = self.now;
                let out = self.witnesses[at].input(now, |process, effects| {
                    process.receive(from, message, effects);
                });
                let facts = std::mem::take(&mut self.witnesses[at].facts);
                for fact in facts {
                    match fact {
                        Fact::Counted(name) => *self.counted.entry(name).or_default() += 1,
                        Fact::Added(name, more) => *self.counted.entry(name).or_default() += more,
                        _ => {}
                    }
                }
                self.send(to, out);
            }
            MANAGER => {
                let Message::Order { message, .. } = message else { return };
                if let Spoken::Wish { node, leaves } = message {
                    let version = self.registry.version;
                    let decree = match leaves {
                        true => Decree::Retire { version, node },
                        false => Decree::Admit { version, node },
                    };
                    self.registry.apply(&decree);
                    return;
                }
                let Spoken::Pong { version, report } = message else { return };
                if report.part != Part::Follows {
                    self.silent = report.silent.clone();
                }
                if let Part::Ready(reign) = report.part
                    && self.registry.next.as_ref().is_some_and(|next| next.reign == reign)
                {
                    self.registry.apply(&Decree::Commit { reign });
                }
                if let Some(master) = report.heir
                    && self.registry.next.is_none()
                    && let Some(now_is) = self.registry.committed.clone()
                {
                    // The old master takes the heir's place.
                    let copies =
                        now_is.copies.iter().map(|node| if *node == master { from.node } else { *node });
                    let copies = copies.filter(|node| !self.registry.is_retired(*node)).collect();
                    self.registry.apply(&Decree::HandOver { version, master, copies });
                }
            }
            _ if to.node.0 < 100 => {
                if let Message::Administered { result, .. } = message {
                    self.administered.push(result);
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
                            return self.finish(index, count, false);
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
                        Told::Near(count) => {
                            let Some(node) = asked.near.filter(|node| *node == from.node) else { return };
                            if self.early && asked.early.is_none() {
                                asked.early = Some(count);
                                let command = asked.command.clone();
                                if let Some((reign, ..)) = asked.view.clone() {
                                    self.ask_near(index, self.witness(node), reign, command);
                                }
                                return;
                            }
                            let count = asked.early.unwrap_or(count);
                            self.near += 1;
                            return self.finish(index, count, false);
                        }
                        Told::Touches | Told::Overloaded | Told::Placed(_) => {}
                    }
                }
            }
            Message::Redirect { sequences, .. } if sequences.contains(&sequence) => {
                asked.view = None;
                asked.due = now;
            }
            Message::Order { message: Spoken::Distant(distant), .. }
                if distant.sequences.contains(&sequence) && asked.near.is_some() =>
            {
                (asked.near, asked.early, asked.due) = (None, None, now);
                // The master, or another copy.
                asked.view = asked.view.take().filter(|(reign, ..)| *reign == distant.reign);
            }
            Message::Order { message: Spoken::Verdicts(verdicts), .. } => {
                let current = asked.view.as_ref().is_some_and(|(known, ..)| *known == verdicts.reign);
                for (number, accepted) in verdicts.verdicts {
                    if number == sequence && current && accepted && !asked.accepted.contains(&from.node) {
                        asked.accepted.push(from.node);
                        asked.accepted.sort_unstable();
                    }
                    asked.refused |= number == sequence && current && !accepted;
                }
            }
            _ => {}
        }
        let Some(asked) = &self.clients[index].asked else { return };
        if let (Some(count), Some((_, _, copies))) = (asked.told, &asked.view)
            && copies.iter().all(|node| asked.accepted.contains(node))
        {
            self.fast += 1;
            return self.finish(index, count, true);
        }
        if let Some(asked) = &mut self.clients[index].asked
            && asked.refused
            && asked.told.is_some()
            && !asked.synced
        {
            // Only a safe answer will do now.
            asked.due = now;
        }
    }

    fn finish(&mut self, index: usize, count: u64, fast: bool) {
        let Some(asked) = self.clients[index].asked.take() else { return };
        self.step += 1;
        self.clients[index].last = Some((count, fast));
        let parts = if count == ELSEWHERE { Vec::new() } else { asked.command.says(count) };
        for key in asked.command.adds().filter(|key| !parts.iter().any(|(of, adds, _)| of == key && *adds)) {
            if let Some(added) = self.added.get_mut(&key) {
                *added -= 1;
            }
        }
        if count == ELSEWHERE {
            return;
        }
        let seen = Seen { parts, invoked: asked.invoked, returned: self.step };
        for &(key, adds, count) in &seen.parts {
            for other in &self.seen {
                let Some((_, added, had)) = other.parts.iter().find(|(of, ..)| *of == key) else { continue };
                let twice = *added && adds && *had == count;
                let before = other.returned < seen.invoked;
                if twice || before && (count < *had || adds && count == *had) {
                    self.broken = Some(format!(
                        "k{key} counts {count} at step {} ({}), and had {had} at step {}",
                        self.step,
                        if adds { "add" } else { "read" },
                        other.returned
                    ));
                }
            }
            if count > self.added.get(&key).copied().unwrap_or(0) {
                self.broken = Some(format!("k{key} counts {count}, more than was ever added"));
            }
        }
        self.seen.push(seen);
    }

    /// Whether some order explains all answers: counts only grow, so each pair of answers that share a key has its order.
    pub fn explained(&self) -> Result<(), String> {
        let mut open: Vec<&Seen> = self.seen.iter().collect();
        while !open.is_empty() {
            let first =
                |at: &usize| open.iter().enumerate().all(|(by, one)| by == *at || !one.precedes(open[*at]));
            let Some(at) = (0..open.len()).find(first) else {
                let text = |seen: &&Seen| format!("{:?} at {}..{}", seen.parts, seen.invoked, seen.returned);
                let circle: Vec<String> = open.iter().map(text).collect();
                return Err(format!("no order explains the counts {}", circle.join(", ")));
            };
            open.remove(at);
        }
        Ok(())
    }

    /// How many commands were answered.
    pub fn answered(&self) -> usize {
        self.seen.len()
    }

    /// A client begins a command, under what it knows.
    pub fn begin(&mut self, index: usize, command: Count) {
        self.step += 1;
        for key in command.adds() {
            *self.added.entry(key).or_default() += 1;
        }
        if let Count::Install { count, .. } = command {
            *self.added.entry(command.key()).or_default() += count;
        }
        let (due, invoked) = (self.now, self.step);
        let client = &mut self.clients[index];
        client.sequence += 1;
        let view = client.view.clone();
        let (accepted, told, refused, synced) = (Vec::new(), None, false, command.moves());
        let (near, early, again) = (None, None, false);
        client.asked =
            Some(Asked { command, invoked, due, view, accepted, told, refused, synced, near, early, again });
    }

    /// A client asks, or asks again; it looks up who is the master where it does not know or is told to.
    pub fn attempt(&mut self, index: usize, refresh: bool, patience: Span) {
        let now = self.now;
        let published = self.registry.committed.clone();
        let client = &mut self.clients[index];
        let (id, sequence) = (client.id, client.sequence);
        let Some(asked) = &mut client.asked else { return };
        asked.due = now + patience;
        if asked.view.is_none() || refresh {
            let known = asked.view.take();
            asked.view = published.map(|now| (now.reign, now.master, now.copies));
            if known.map(|(reign, ..)| reign) != asked.view.as_ref().map(|(reign, ..)| *reign) {
                // Another attempt: nothing of the last one counts (D-7).
                (asked.accepted, asked.told) = (Vec::new(), None);
                (asked.refused, asked.synced) = (false, asked.command.moves());
            }
        }
        client.view = asked.view.clone();
        let Some((reign, master, copies)) = asked.view.clone() else { return };
        let command = asked.command.clone();
        asked.early = None;
        let near = self.near_at.take().filter(|_| Counts::reads_only(&command) && !copies.is_empty());
        asked.near = near.map(|at| copies[at % copies.len()]);
        if let Some(node) = asked.near {
            let to = if self.early { process(node.0, REPLICA) } else { self.witness(node) };
            return self.ask_near(index, to, reign, command);
        }
        let ask = Ask { sequence, command: command.clone(), touching: false, synced: asked.synced };
        let records = !Counts::reads_only(&command) && !asked.synced;
        asked.synced = asked.told.is_some() || asked.synced;
        let requests = Message::Requests {
            client: id,
            below: sequence,
            under: Some(reign),
            asks: vec![ask],
            forwarded: true,
            said: Said::Freely,
        };
        let lost = !std::mem::replace(&mut asked.again, true) && self.muted.contains(&index);
        let mut out = if lost { Vec::new() } else { vec![(process(master.0, REPLICA), requests)] };
        if records {
            let requests = vec![request_of(id, sequence, command, self.forgets)];
            for node in copies.iter() {
                let message = Spoken::Records { reign, requests: requests.clone() };
                let (to, message) = (self.witness(*node), Message::Order { epoch: 0, message });
                if let Some(told) = &mut self.told_twice {
                    told.push((id.process, to, message.clone()));
                }
                out.push((to, message));
            }
        }
        self.send(id.process, out);
    }

    /// A copy is asked to read.
    fn ask_near(&mut self, index: usize, to: ProcessId, reign: Reign, command: Count) {
        let Client { id, sequence, .. } = self.clients[index];
        let id = CommandId { client: id, sequence };
        let reads = vec![Entry::Read { id, below: sequence, command }];
        let message = Message::Order { epoch: 0, message: Spoken::Near { reign, reads } };
        self.send(id.client.process, vec![(to, message)]);
    }

    /// The manager tells a server what is so.
    pub fn ping(&mut self, at: usize) {
        let registry = self.registry.clone();
        let now_is = registry.committed.as_ref().filter(|_| registry.next.is_none());
        let retired = |node: NodeId| registry.is_retired(node);
        let master = now_is.filter(|now| retired(now.master) && usize::from(now.master.0) == at);
        let heir = master.and_then(|now| now.copies.iter().copied().find(|node| !retired(*node)));
        let message = Spoken::Ping { registry, heir };
        let to = self.servers[at].id;
        self.net.push((process(0, MANAGER), to, Message::Order { epoch: 0, message }));
    }

    /// Somebody asks a server to hand over.
    pub fn hand_over(&mut self, to: u16, heir: u16) {
        self.change(to, Change::Lead(NodeId(heir)));
    }

    /// Somebody asks a server to have a node retired, or admitted again.
    pub fn change(&mut self, to: u16, change: Change) {
        self.step += 1;
        let number = self.step;
        self.net.push((process(99, CLIENT), process(to, REPLICA), Message::Administer { number, change }));
    }

    /// Has the managers agree; whether they do.
    pub fn agree(&mut self, decree: &Decree) -> bool {
        self.registry.apply(decree) == Answer::Done
    }
}
