//! The configuration manager: one process on each node of a group, which together hold the [`Registry`] by
//! Multi-Paxos. The one that leads asks all servers how they are, gives up those that are silent, and has the others
//! agree on who is to be the master and where its copies are (3.12, 3.14).
//!
//! It says to servers only what is agreed, all of it, again and again; servers do what follows from it and say how far
//! they are. So nothing here must arrive, and whoever leads next goes on from the registry alone.

use super::message::{Message, Part, RegistryMessage, Report};
use super::registry::{Command, Configuration, Registry, Reply};
use super::{MANAGER, Parameters};
use crate::REPLICA;
use crate::client::{self, Client};
use crate::message::{self as common, Entry};
use crate::multipaxos::{self, log};
use crate::order::{Knobs, Member};
use crate::replica::{self, Replica};
use crate::request::{Change, Outcome, Refusal, Request};
use crate::service::{self, Service};
use isochrone_core::{
    Blob, Effects, Fact, Footprint, Identity, Instant, Loan, Looks, Malformed, Mark, NodeId, Process,
    ProcessId, RegionId, ReplicaId, Snapshot, Span, Ticket, Wire, Wrap,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// What a manager needs to start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The nodes of the group, each with a server, a witness and a manager.
    pub nodes: Arc<[NodeId]>,
    /// Those whose managers were the first; they add the others.
    pub founders: Arc<[NodeId]>,
    /// Where nodes are, as far as that is known: what stands in one region may be lost together.
    pub regions: Arc<BTreeMap<NodeId, RegionId>>,
    /// The first master, if it lives.
    pub preferred: Option<NodeId>,
    /// The knobs of sessions.
    pub service: Service,
    /// The knobs.
    pub parameters: Parameters,
}

type Log = log::Log<Entry<Command>>;
type Group = Replica<Registry, Log>;
type Asker = Client<Command, Reply, log::Message<Entry<Command>>, multipaxos::Parameters>;

/// What was heard of a server.
#[derive(Clone, Hash, Debug)]
struct Heard {
    /// When last.
    at: Instant,
    /// Since when it has been heard of without a long silence.
    since: Instant,
    /// What it said last, and by which version of the registry.
    said: Option<(u64, Report)>,
}

/// The process. See the module.
#[derive(Clone, Hash)]
pub struct Manager<C, R> {
    me: ProcessId,
    nodes: Arc<[NodeId]>,
    regions: Arc<BTreeMap<NodeId, RegionId>>,
    preferred: Option<NodeId>,
    knobs: Knobs<Parameters>,
    group: Group,
    group_loan: Loan<Group>,
    asker: Asker,
    asker_loan: Loan<Asker>,
    /// While it leads.
    heard: BTreeMap<NodeId, Heard>,
    looks: Looks,
    /// Copies that a master cannot reach, and until when they are passed over.
    shunned: BTreeMap<NodeId, Instant>,
    /// What was asked of the group and not answered.
    asking: Option<Ticket>,
    /// The manager that is being added to the group or taken out of it, and what that is counted as.
    changing: Option<(Ticket, &'static str)>,
    tickets: u64,
    touched: bool,
    spoken: PhantomData<fn() -> (C, R)>,
}

/// What a manager writes down.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Record {
    /// As a replica of the registry.
    Group(common::Record<log::Record<Entry<Command>>>),
    /// As its client, which writes nothing.
    Asker(()),
}

/// What a manager waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// As a replica of the registry.
    Group(common::Timer<log::Timer>),
    /// As its client.
    Asker(client::Timer),
    /// Servers are asked how they are.
    Tick,
}

/// What a manager notes.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Note {
    /// Something about the registry's log, not about that of the servers.
    Inner,
    /// Something worth counting.
    Counted(&'static str),
}

impl Mark for Note {
    fn fact(&self) -> Option<Fact> {
        match *self {
            Note::Inner => None,
            Note::Counted(what) => Some(Fact::Counted(what)),
        }
    }
}

/// The first `most` of these, in their order, of which each is in a region of its own, and not in that of the master, as
/// far as that can be had. A node whose region is not known is taken to be apart from all others.
fn apart(
    master: NodeId,
    of: &[NodeId],
    most: usize,
    region: impl Fn(NodeId) -> Option<RegionId>,
) -> Vec<NodeId> {
    let mut taken: Vec<RegionId> = region(master).into_iter().collect();
    let (mut own, mut shared) = (Vec::new(), Vec::new());
    for node in of {
        match region(*node) {
            Some(region) if taken.contains(&region) => shared.push(*node),
            known => {
                taken.extend(known);
                own.push(*node);
            }
        }
    }
    let chosen: Vec<NodeId> = own.into_iter().chain(shared).take(most).collect();
    // The order says nothing, and what stays as it was must look as it did.
    of.iter().copied().filter(|node| chosen.contains(node)).collect()
}

struct AsGroup;
struct AsAsker;

fn wrapped<C: Wire, R: Wire>(message: RegistryMessage) -> common::Message<C, R, Message<Entry<C>>> {
    common::Message::Order { epoch: 0, message: Message::Registry(Box::new(message)) }
}

impl<C: Wire + Footprint, R: Wire> Wrap<Manager<C, R>, Group> for AsGroup {
    fn message(&self, message: RegistryMessage) -> <Manager<C, R> as Process>::Message {
        wrapped(message)
    }
    fn record(&self, record: <Group as Process>::Record) -> Record {
        Record::Group(record)
    }
    fn timer(&self, timer: <Group as Process>::Timer) -> Timer {
        Timer::Group(timer)
    }
    fn mark(&self, _: <Group as Process>::Mark) -> Note {
        Note::Inner
    }
}

impl<C: Wire + Footprint, R: Wire> Wrap<Manager<C, R>, Asker> for AsAsker {
    fn message(&self, message: RegistryMessage) -> <Manager<C, R> as Process>::Message {
        wrapped(message)
    }
    fn record(&self, (): ()) -> Record {
        Record::Asker(())
    }
    fn timer(&self, timer: client::Timer) -> Timer {
        Timer::Asker(timer)
    }
    fn mark(&self, _: <Asker as Process>::Mark) -> Note {
        Note::Inner
    }
}

impl<C: Wire + Footprint, R: Wire> Manager<C, R> {
    /// What the managers have agreed on, as far as it was heard of here.
    pub fn registry(&self) -> &Registry {
        self.group.machine()
    }

    fn with_group(
        &mut self,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut Group, &mut Effects<Group>),
    ) {
        let group = &mut self.group;
        let answers = effects.lend(&mut self.group_loan, &AsGroup, |inner| input(group, inner));
        self.touched = true;
        for (ticket, result) in answers {
            // What was not done is tried again.
            let done = self.changing.take_if(|(changing, _)| *changing == ticket);
            if let Some((_, counted)) = done.filter(|_| result.is_ok()) {
                effects.mark(Note::Counted(counted));
            }
        }
    }

    fn with_asker(
        &mut self,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut Asker, &mut Effects<Asker>),
    ) {
        let asker = &mut self.asker;
        let answers: Vec<(Ticket, Outcome<Reply>)> =
            effects.lend(&mut self.asker_loan, &AsAsker, |inner| input(asker, inner));
        self.touched = true;
        for (ticket, _) in answers {
            // Done, refused or unknown: the registry tells.
            self.asking.take_if(|asking| *asking == ticket);
        }
    }

    fn tick(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        effects.arm(Timer::Tick, self.knobs.0.heartbeat);
        self.look(now);
        if !self.group.order().leads() {
            self.heard.clear();
            self.shunned.clear();
            self.changing = None;
            if let Some(ticket) = self.asking.take() {
                self.with_asker(effects, |asker, inner| asker.cancel(ticket, inner));
            }
            return;
        }
        if self.heard.is_empty() {
            let heard = || Heard { at: now, since: now, said: None };
            self.heard = self.nodes.iter().map(|node| (*node, heard())).collect();
        }
        self.shunned.retain(|_, until| now < *until);
        self.ask_servers(effects);
        self.act(effects);
        self.choose_managers(effects);
    }

    /// The tick's look at who is silent.
    fn look(&mut self, now: Instant) {
        let Parameters { heartbeat, silence, .. } = self.knobs.0;
        let still = self.looks.look(heartbeat, silence, now);
        for heard in self.heard.values_mut() {
            heard.at = (heard.at + still).min(now);
        }
    }

    /// Brings the group nearer to the managers of the nodes that are not retired, by one that leaves or one that is added.
    fn choose_managers(&mut self, effects: &mut Effects<Self>) {
        // What is asked for and not decided may admit whom this would take out.
        if self.changing.is_some() || self.asking.is_some() {
            return;
        }
        let leaves = self.leaving(effects.now()).map(|node| (Change::Remove(node), "managers_removed"));
        let joins = || self.joining(effects.now()).map(|node| (Change::Add(node), "managers_added"));
        let Some((change, counted)) = leaves.or_else(joins) else { return };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.changing = Some((ticket, counted));
        self.with_group(effects, |group, inner| group.request(ticket, change, inner));
    }

    /// Of the managers in the group one whose node is retired, and neither holds a copy nor is to: first one that is silent, and
    /// none without which less than a majority of the others would answer. A single one stays while the number is odd, as
    /// without it no more could fail than with it.
    fn leaving(&self, now: Instant) -> Option<NodeId> {
        let (registry, members) = (self.group.machine(), self.group.order().configuration().members());
        let named = |node| registry.committed.iter().chain(&registry.next).any(|now| now.names(node));
        let nodes = members.iter().map(|member| member.process.node);
        let mut retired: Vec<_> = nodes.filter(|node| registry.is_retired(*node) && !named(*node)).collect();
        if members.len() % 2 == 1 && retired.len() < 2 {
            return None;
        }
        retired.sort_by_key(|node| self.alive(*node, now));
        let answering = members.iter().filter(|member| self.answers(member.process.node, now)).count();
        let others = members.len() - 1;
        retired.into_iter().find(|node| answering - usize::from(self.answers(*node, now)) > others / 2)
    }

    /// A manager that lives and is not in the group, of a node that is not retired: none that would leave an even number,
    /// which survives no more than one fewer, unless one is to leave in its place.
    fn joining(&self, now: Instant) -> Option<NodeId> {
        let (registry, members) = (self.group.machine(), self.group.order().configuration());
        let lacks = |node: &&NodeId| {
            let out = members.on(**node).is_none() && !registry.is_retired(**node);
            out && self.answers(**node, now)
        };
        let mut lacking = self.nodes.iter().filter(lacks);
        let first = lacking.next().copied();
        let even = members.members().len() % 2 == 0;
        let leaves = || members.members().iter().any(|member| registry.is_retired(member.process.node));
        first.filter(|_| even || lacking.next().is_some() || leaves())
    }

    fn ask_servers(&mut self, effects: &mut Effects<Self>) {
        let registry = self.group.machine().clone();
        let heir = self.heir_of_retired(&registry, effects.now());
        for node in self.nodes.iter() {
            let is_master = registry.committed.as_ref().is_some_and(|now| now.master == *node);
            let message = Message::Ping { registry: registry.clone(), heir: heir.filter(|_| is_master) };
            // Ahead: what is agreed is durable with most managers.
            let server = ProcessId { node: *node, role: REPLICA, ..self.me };
            let ping = common::Message::Order { epoch: 0, message };
            effects.urgently(|effects| effects.send_ahead(server, ping));
        }
    }

    fn on_pong(&mut self, from: ProcessId, version: u64, report: Report, effects: &mut Effects<Self>) {
        let now = effects.now();
        let silence = self.knobs.0.silence;
        let current = self.group.machine().version;
        let was_silent = !self.alive(from.node, now);
        let Some(heard) = self.heard.get_mut(&from.node) else { return };
        if was_silent {
            heard.since = now;
        }
        heard.at = now;
        if version == current {
            for node in &report.silent {
                self.shunned.insert(*node, now + silence * 4);
            }
        }
        let Some(heard) = self.heard.get_mut(&from.node) else { return };
        let ready = matches!(report.part, Part::Ready(_)) || report.heir.is_some();
        heard.said = Some((version, report));
        if ready {
            self.act(effects);
        }
    }

    /// Has the group agree on what is due, one thing at a time.
    fn act(&mut self, effects: &mut Effects<Self>) {
        if self.asking.is_some() || !self.group.order().leads() {
            return;
        }
        if let Some(command) = self.due(effects.now()) {
            self.ask_group(command, effects);
        }
    }

    fn ask_group(&mut self, command: Command, effects: &mut Effects<Self>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.asking = Some(ticket);
        self.with_asker(effects, |asker, inner| {
            asker.request(ticket, Request::Command(command), inner);
        });
    }

    /// An operator wants a node retired, or admitted again; asked until it is so.
    fn on_wish(&mut self, from: ProcessId, node: NodeId, leaves: bool, effects: &mut Effects<Self>) {
        let registry = self.group.machine();
        if !self.group.order().leads() || registry.is_retired(node) == leaves {
            return;
        }
        let version = registry.version;
        let allowed = if leaves { self.may_leave(node, effects.now()) } else { Ok(true) };
        let command = match leaves {
            true => Command::Retire { version, node },
            false => Command::Admit { version, node },
        };
        match allowed {
            Err(refusal) => {
                let message = Message::Denied { node, leaves, refusal };
                // Ahead: nothing comes of it.
                effects.send_ahead(from, common::Message::Order { epoch: 0, message });
            }
            Ok(true) if self.asking.is_none() => self.ask_group(command, effects),
            Ok(_) => {}
        }
    }

    /// Whether a node can be done without: without it there are a master and enough copies for it, which live. False
    /// while that is not known.
    fn may_leave(&self, node: NodeId, now: Instant) -> Result<bool, Refusal> {
        let registry = self.group.machine();
        let stays = |other: &&NodeId| **other != node && !registry.is_retired(**other);
        let left = self.nodes.iter().filter(stays).filter(|other| !self.is_lost(**other, now));
        let said = |other: &NodeId| self.heard.get(other).is_some_and(|heard| heard.said.is_some());
        if self.nodes.iter().filter(stays).any(|other| !self.is_lost(*other, now) && !said(other)) {
            return Ok(false);
        }
        let heirs = left.clone().any(|other| registry.may_lead(*other));
        let leads = registry.committed.as_ref().is_some_and(|now_is| now_is.master != node);
        if left.count() > self.copies().0 && (leads || heirs) { Ok(true) } else { Err(Refusal::TooFew) }
    }

    /// Who can be the master instead of one that is retired, and serves.
    fn heir_of_retired(&self, registry: &Registry, now: Instant) -> Option<NodeId> {
        let now_is = registry.committed.as_ref()?;
        if registry.next.is_some() || !registry.is_retired(now_is.master) {
            return None;
        }
        let able = |node: &&NodeId| !registry.is_retired(**node) && !self.is_lost(**node, now);
        let mut able = now_is.copies.iter().filter(able).copied();
        able.find(|node| self.choose(*node, &now_is.copies, now, false).is_some())
    }

    fn alive(&self, node: NodeId, now: Instant) -> bool {
        let now = self.looks.until(now);
        self.heard.get(&node).is_some_and(|heard| now.since(heard.at) < self.knobs.0.silence)
    }

    /// Whether it has answered this manager, and not long ago. Who begins to lead takes everybody for alive, but nobody
    /// is to take over by that.
    fn answers(&self, node: NodeId, now: Instant) -> bool {
        self.alive(node, now) && self.heard.get(&node).is_some_and(|heard| heard.said.is_some())
    }

    /// What a server said by the registry as it is now.
    fn part(&self, node: NodeId) -> Option<Part> {
        let (version, report) = self.heard.get(&node)?.said.as_ref()?;
        (*version == self.group.machine().version).then_some(report.part)
    }

    fn is_lost(&self, node: NodeId, now: Instant) -> bool {
        !self.alive(node, now) || self.shunned.contains_key(&node)
    }

    /// What is to be agreed on next, if anything.
    fn due(&self, now: Instant) -> Option<Command> {
        let registry = self.group.machine();
        let gone = |node: NodeId, epoch: u64| {
            let other = match self.part(node) {
                None => false,
                Some(Part::Follows) => true,
                Some(Part::Prepares(reign) | Part::Ready(reign)) => reign.0 != epoch,
            };
            !self.alive(node, now) || other
        };
        if let Some(next) = &registry.next {
            if self.alive(next.master, now) && self.part(next.master) == Some(Part::Ready(next.reign)) {
                return Some(Command::Commit { reign: next.reign });
            }
            let lost = next.copies.iter().any(|node| self.is_lost(*node, now));
            return match (gone(next.master, next.reign.0), registry.recovers()) {
                (true, _) => {
                    self.recovery(registry, Some(next.master), now).or_else(|| self.resumption(registry, now))
                }
                (false, true) if lost => {
                    self.recovery(registry, None, now).or_else(|| self.resumption(registry, now))
                }
                (false, false) if lost => self.replacement(registry, next, now),
                _ => None,
            };
        }
        let Some(committed) = &registry.committed else { return self.recovery(registry, None, now) };
        if gone(committed.master, committed.reign.0) {
            return self.recovery(registry, Some(committed.master), now);
        }
        if let Some(heir) = self.heir(committed.master) {
            return Some(self.hand_over(registry, committed, heir, now));
        }
        self.replacement(registry, committed, now)
    }

    /// Whom a master has named that serves nobody any more, by the registry as it is now.
    fn heir(&self, master: NodeId) -> Option<NodeId> {
        let (version, report) = self.heard.get(&master)?.said.as_ref()?;
        report.heir.filter(|_| *version == self.group.machine().version)
    }

    /// The heir takes over, or any other copy; where none can, the master goes on.
    fn hand_over(&self, registry: &Registry, now_is: &Configuration, heir: NodeId, now: Instant) -> Command {
        let version = registry.version;
        let mut able: Vec<NodeId> =
            now_is.copies.iter().copied().filter(|node| !self.is_lost(*node, now)).collect();
        able.sort_by_key(|node| (registry.is_retired(*node), *node != heir));
        let found = able.into_iter().find_map(|master| {
            Some(Command::HandOver {
                version,
                master,
                copies: self.choose(master, &now_is.copies, now, false)?,
            })
        });
        found.unwrap_or(Command::Replace { version, copies: now_is.copies.clone() })
    }

    /// How many copies there are to be, and how few there may be.
    fn copies(&self) -> (usize, usize) {
        let most = self.knobs.0.copies(self.nodes.len());
        (self.knobs.0.copies_min.min(most), most)
    }

    /// Copies for a master: of these those that are not lost, then others; none if there would be too few. A retired one
    /// stays only where there would be too few otherwise, and none is taken. No two of them, nor the master and one of
    /// them, are in one region as long as there are regions enough (D-41).
    ///
    /// Where nobody serves until they have everything, they are those that hold it already, as long as these are enough:
    /// the others join under a master that serves.
    fn choose(&self, master: NodeId, of: &[NodeId], now: Instant, serves: bool) -> Option<Arc<[NodeId]>> {
        let (least, most) = self.copies();
        let silence = self.knobs.0.silence;
        let stable = |node: &NodeId| {
            !serves || self.heard.get(node).is_some_and(|heard| now.since(heard.since) >= silence)
        };
        let registry = self.group.machine();
        let region = |node: NodeId| self.regions.get(&node).copied();
        let retired = |node: &&NodeId| registry.is_retired(**node);
        let usable = |node: &&NodeId| **node != master && !self.is_lost(**node, now);
        let others = self.nodes.iter().filter(|node| !of.contains(node) && stable(node));
        let stay = of.iter().chain(others).filter(|node| !retired(node)).filter(usable);
        let stay: Vec<NodeId> = stay.copied().collect();
        if let Some(now_is) = registry.committed.as_ref().filter(|_| !serves) {
            let here: Vec<NodeId> = stay.iter().copied().filter(|node| now_is.names(*node)).collect();
            let mut chosen = apart(master, &here, most, region);
            let lacking = most.min(stay.len()) - chosen.len();
            // Until one that joins has taken its place, a retired one is as good as any.
            let holders = now_is.copies.iter().chain([&now_is.master]);
            chosen.extend(holders.filter(retired).filter(usable).take(lacking));
            if chosen.len() >= least {
                return Some(chosen.into());
            }
        }
        let mut chosen = apart(master, &stay, most, region);
        let lacking = least.saturating_sub(chosen.len());
        chosen.extend(of.iter().filter(retired).filter(usable).take(lacking));
        (chosen.len() >= least).then(|| chosen.into())
    }

    /// Other copies under the same master, where some are lost or more can be had.
    fn replacement(&self, registry: &Registry, now_is: &Configuration, now: Instant) -> Option<Command> {
        let version = registry.version;
        let said = self.heard.get(&now_is.master).and_then(|heard| heard.said.as_ref());
        let misses = |node: &NodeId| said.is_some_and(|(_, report)| report.silent.contains(node));
        // Where one is lost, who else holds everything counts at once, if that is enough: whoever takes its place would be
        // waited for until it has everything. It joins behind that.
        let lost = now_is.copies.iter().any(|node| self.is_lost(*node, now));
        let holders = lost.then(|| self.choose(now_is.master, &now_is.copies, now, false)).flatten();
        let holders = holders.filter(|copies| copies.iter().all(|node| now_is.names(*node)));
        match holders.or_else(|| self.choose(now_is.master, &now_is.copies, now, true)) {
            Some(copies) if copies != now_is.copies => Some(Command::Replace { version, copies }),
            Some(_) => None,
            // The master cannot reach the copies, though they live: one of them takes over.
            None if now_is.copies.iter().any(|node| self.answers(*node, now) && misses(node)) => {
                self.recovery(registry, Some(now_is.master), now)
            }
            None => None,
        }
    }

    /// The master was given up, and nobody who may take over lives, but it lives itself and has lost nothing: it goes on,
    /// with copies that live. Under the number of the recovery nothing was ever confirmed. What it leads by is its own number, or
    /// one that it has taken on since as a part of that: so long as it has followed nobody it holds everything.
    fn resumption(&self, registry: &Registry, now: Instant) -> Option<Command> {
        let committed = registry.committed.as_ref().filter(|_| registry.recovers())?;
        let begun = registry.next.as_ref().filter(|next| next.master == committed.master);
        let goes_on = self.part(committed.master)? != Part::Follows;
        let copies = self.choose(committed.master, &committed.copies, now, false)?;
        let other = begun.is_none_or(|next| next.copies != copies);
        let version = registry.version;
        (goes_on && other && self.alive(committed.master, now))
            .then_some(Command::Replace { version, copies })
    }

    /// Another master: one that has everything, and is not the one that has just failed if there is any other.
    fn recovery(&self, registry: &Registry, failed: Option<NodeId>, now: Instant) -> Option<Command> {
        let first = registry.committed.is_none();
        let mut able: Vec<NodeId> = self
            .nodes
            .iter()
            .copied()
            .filter(|node| registry.may_lead(*node) && self.alive(*node, now))
            .filter(|node| first || self.answers(*node, now))
            .collect();
        able.sort_by_key(|node| {
            (failed == Some(*node), registry.is_retired(*node), first && self.preferred != Some(*node))
        });
        let old = registry.committed.as_ref().map(|committed| committed.copies.clone()).unwrap_or_default();
        let version = registry.version;
        able.into_iter().find_map(|master| {
            let copies = self.choose(master, &old, now, false)?;
            let begun = |next: &Configuration| next.master == master && next.copies == copies;
            // The same again helps only where the master has lost what it had begun.
            let same = registry.recovers() && registry.next.as_ref().is_some_and(begun);
            (!same || failed == Some(master)).then_some(Command::Recover { version, master, copies })
        })
    }
}

impl<C: Wire + Footprint, R: Wire> Process for Manager<C, R> {
    type Setup = Setup;
    type Message = common::Message<C, R, Message<Entry<C>>>;
    type Record = Record;
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup) -> Self {
        let me = identity.process;
        let manager = |node: &NodeId| ProcessId { node: *node, role: MANAGER, ..me };
        let member = |(seat, node): (usize, &NodeId)| Member {
            // A deployment has at most 7 replicas of a keyspace.
            replica: ReplicaId(seat as u8),
            process: manager(node),
        };
        let members: Arc<[Member]> = setup.founders.iter().enumerate().map(member).collect();
        let service = Service {
            reply: service::Reply::Execute,
            forward: true,
            session_idle: Span::from_secs(600),
            limit: Span::from_secs(20),
            ..setup.service
        };
        let preferred = setup.founders.iter().position(|node| Some(*node) == setup.preferred);
        let replica = replica::Setup {
            members: members.clone(),
            preferred: preferred.map(|seat| ReplicaId(seat as u8)),
            service,
            parameters: setup.parameters.managers,
            machine: Registry::default(),
        };
        let asker = client::Setup {
            replicas: [me].into(),
            members,
            leader: None,
            proxy: None,
            service,
            parameters: setup.parameters.managers,
        };
        Manager {
            me,
            nodes: setup.nodes.clone(),
            regions: setup.regions.clone(),
            preferred: setup.preferred,
            knobs: Knobs(setup.parameters),
            group: Group::open(identity, &replica),
            group_loan: Loan::default(),
            asker: Asker::open(identity, &asker),
            asker_loan: Loan::default(),
            heard: BTreeMap::new(),
            looks: Looks::default(),
            shunned: BTreeMap::new(),
            asking: None,
            changing: None,
            tickets: 0,
            touched: false,
            spoken: PhantomData,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.group.restore(chunk)
    }

    fn replay(&mut self, record: Record) {
        match record {
            Record::Group(record) => self.group.replay(record),
            Record::Asker(()) => {}
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.with_group(effects, Process::start);
        self.with_asker(effects, Process::start);
        effects.arm(Timer::Tick, self.knobs.0.heartbeat);
    }

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        let common::Message::Order { message, .. } = message else { return };
        match message {
            Message::Registry(inner) => match *inner {
                inner if inner.is_for_asker(effects.me()) => {
                    self.with_asker(effects, |asker, effects| asker.receive(from, inner, effects));
                    self.act(effects);
                }
                inner => {
                    let before = self.group.machine().version;
                    self.with_group(effects, |group, effects| group.receive(from, inner, effects));
                    if self.group.machine().version != before && self.group.order().leads() {
                        // What was agreed is told at once.
                        self.ask_servers(effects);
                    }
                }
            },
            Message::Pong { version, report } => self.on_pong(from, version, report, effects),
            Message::Wish { node, leaves } if self.nodes.contains(&node) => {
                self.on_wish(from, node, leaves, effects);
            }
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn cancel(&mut self, _: Ticket, _: &mut Effects<Self>) {}

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Group(timer) => self.with_group(effects, |group, effects| group.expire(timer, effects)),
            Timer::Asker(timer) => self.with_asker(effects, |asker, effects| asker.expire(timer, effects)),
            Timer::Tick => self.tick(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        if std::mem::take(&mut self.touched) {
            self.with_asker(effects, Process::settle);
            self.with_group(effects, Process::settle);
            self.touched = false;
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.group.snapshot()
    }

    fn check(&self) {
        self.group.check();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tuning as _;
    use isochrone_core::{KeyspaceId, PartitionId};

    /// Servers speak when they are asked, and who stands still asks nobody.
    #[test]
    fn who_stood_still_gives_nobody_up_before_it_has_asked() {
        let (keyspace, partition, role) = (KeyspaceId(1), PartitionId(0), MANAGER);
        let process = ProcessId { node: NodeId(0), keyspace, partition, role, instance: 0 };
        let nodes: Arc<[NodeId]> = [0, 1, 2].map(NodeId).into();
        let parameters = Parameters::for_rtt(Span::from_millis(4));
        let (heartbeat, silence) = (parameters.heartbeat, parameters.silence);
        let setup = Setup {
            founders: nodes.clone(),
            nodes,
            regions: Arc::default(),
            preferred: None,
            service: Service::for_rtt(Span::from_millis(4)),
            parameters,
        };
        let mut manager = Manager::<Command, Reply>::open(Identity { process, incarnation: 1 }, &setup);
        let mut now = Instant::ZERO + Span::from_secs(1);
        let heard = Heard { at: now, since: now, said: None };
        manager.heard = BTreeMap::from([(NodeId(1), heard)]);
        manager.look(now);
        now = now + silence * 3;
        assert!(manager.alive(NodeId(1), now), "before the tick, when something else has come");
        manager.look(now);
        assert!(manager.alive(NodeId(1), now), "and at the tick");
        let asked = now;
        while manager.alive(NodeId(1), now) {
            now = now + heartbeat;
            manager.look(now);
        }
        assert!(now.since(asked) + heartbeat >= silence && now.since(asked) <= silence, "it is silent");
    }

    /// D-41.
    #[test]
    fn copies_are_in_regions_of_their_own_as_long_as_there_are_enough() {
        let region = |node: NodeId| [0, 0, 1, 1, 2].get(usize::from(node.0)).copied().map(RegionId);
        let nodes = |numbers: &[u16]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
        let chosen = |master, of: &[u16], most| apart(NodeId(master), &nodes(of), most, region);
        assert_eq!(
            chosen(0, &[1, 2, 3, 4], 2),
            nodes(&[2, 4]),
            "not beside the master, and not two together"
        );
        assert_eq!(chosen(2, &[0, 1, 3, 4], 2), nodes(&[0, 4]));
        assert_eq!(chosen(0, &[1, 2, 3, 4], 1), nodes(&[2]));
        // Fewer regions than copies: what can be had, in the order that was.
        assert_eq!(chosen(0, &[1, 2, 3], 2), nodes(&[1, 2]), "both stay where they are");
        assert_eq!(chosen(0, &[1], 2), nodes(&[1]));
        assert_eq!(chosen(0, &[1, 4, 2], 3), nodes(&[1, 4, 2]));
        // Nobody knows where these are.
        assert_eq!(chosen(7, &[8, 9], 2), nodes(&[8, 9]));
    }
}
