//! One server: master, backup or spare, as the managers say.

use super::WITNESS;
use super::book::Book;
use super::lead::{Lead, Phase};
use super::members::Wish;
use super::message::{Batch, Message, Note, Part, Record, Report, Timer};
use super::near::Near;
use super::registry::{Configuration, Registry};
use super::stores::{self, Stores};
use super::unified::Own;
use super::{Mutation, Parameters};
use crate::chunks::chunked;
use crate::curp::View;
use crate::keep::Keep;
use crate::order::{Decided, Knobs, Membership, Ordered, Reign, Setup, Step, Takes, Tentative, digest};
use crate::request::{Change, Refusal};
use crate::{REPLICA, order};
use isochrone_core::{
    Blob, Effects, Identity, Instant, Malformed, NodeId, Process, ProcessId, Slot, Snapshot, Ticket, Wire,
    wire,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// One server. See [`super`].
#[derive(Clone, Hash, Debug)]
pub struct Order<V: Wire> {
    pub(super) process: ProcessId,
    /// All servers of the group.
    pub(super) servers: Arc<[NodeId]>,
    pub(super) knobs: Knobs<Parameters>,

    /// No master before this one is followed.
    pub(super) promised: u64,
    /// The master whose log this is.
    pub(super) adopted: u64,
    pub(super) book: Book<V>,

    /// What the managers have agreed on, as far as it was heard of.
    pub(super) registry: Registry,
    /// The manager that was heard of last.
    pub(super) manager: Option<ProcessId>,
    /// Until when a lease may hold that was granted here.
    pub(super) granted: Instant,
    /// Who has what is lacked here and gone there.
    pub(super) behind: Option<ProcessId>,
    /// See [`Order::hold`](order::Order::hold).
    pub(super) serving: bool,
    /// What it does as a master, or on its way there.
    pub(super) lead: Option<Box<Lead<V>>>,
    /// Taken in and not in the log yet.
    pub(super) queue: VecDeque<V>,
    pub(super) queue_bytes: usize,
    /// What was tentative is void.
    pub(super) dropped: bool,
    /// What it does as a copy that clients read at.
    pub(super) near: Near<V>,
    /// What it has as the witness of its node, in the unified form.
    pub(super) own: Own<V>,
    /// Clients that asked who the master is before there was one.
    seekers: Vec<ProcessId>,
    /// What it was asked to hand over, when it was the master of that number.
    pub(super) handing: Option<Handing>,
    /// Which node it was asked to have as a copy, or not to.
    pub(super) wish: Option<Wish>,
}

/// A change of the master by hand, or because it is retired.
#[derive(Clone, Hash, Debug)]
pub(super) struct Handing {
    pub(super) ticket: Option<Ticket>,
    /// Who is to be the master.
    pub(super) heir: NodeId,
    /// Who was when it was asked for.
    pub(super) epoch: u64,
    /// When it is given up, unless the word is given.
    pub(super) until: Instant,
    /// The word is given: this master serves nobody any more.
    pub(super) yielded: bool,
}

/// Clients that wait to be told who the first master is, at most; the others ask again.
const SEEKERS_MAX: usize = 256;

impl<V: Wire> Order<V> {
    pub(super) fn me(&self) -> NodeId {
        self.process.node
    }

    pub(super) fn server(&self, node: NodeId) -> ProcessId {
        ProcessId { node, role: REPLICA, ..self.process }
    }

    pub(super) fn witness(&self, node: NodeId) -> ProcessId {
        let role = if self.parameters().unified { REPLICA } else { WITNESS };
        ProcessId { node, role, ..self.process }
    }

    /// Whether this process is a server of the group.
    pub(super) fn is_server(&self, process: ProcessId) -> bool {
        process.role == REPLICA && self.servers.contains(&process.node)
    }

    pub(super) fn parameters(&self) -> &Parameters {
        &self.knobs.0
    }

    /// What clients are told of.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.registry.committed.as_ref()
    }

    /// Everything before it is on all backups, as far as is known here, and the end of the log.
    pub fn extent(&self) -> (Slot, Slot) {
        (self.book.full(), self.book.end())
    }

    /// What a client has to know of a configuration.
    fn view(&self, configuration: &Configuration) -> View {
        let witnesses: Arc<[ProcessId]> =
            configuration.copies.iter().map(|node| self.witness(*node)).collect();
        View {
            reign: configuration.reign,
            leader: self.server(configuration.master),
            needed: witnesses.len(),
            witnesses,
        }
    }

    fn serving(&self) -> Option<&Lead<V>> {
        self.lead.as_deref().filter(|lead| lead.phase == Phase::Serving)
    }

    /// What it is asked to hand over, while it is the master and takes nothing for that.
    pub(super) fn hands_over(&self) -> Option<&Handing> {
        let epoch = self.lead.as_ref()?.epoch;
        self.handing.as_ref().filter(|handing| handing.epoch == epoch)
    }

    /// Whether commands and reads are taken here.
    fn takes_in(&self) -> Option<&Lead<V>> {
        let goes_on = self.hands_over().is_none() || self.parameters().mutated(Mutation::ServeAfterYield);
        self.serving().filter(|_| goes_on)
    }
}

impl<V: Ordered> Order<V> {
    /// How many replicas there are to be: the master and its copies, as far as there are nodes that may hold one.
    fn wanted(&self, registry: &Registry) -> usize {
        let able = self.servers.iter().filter(|node| !registry.is_retired(**node));
        1 + self.parameters().copies(able.count())
    }

    /// The manager tells what is so.
    fn on_ping(
        &mut self,
        from: ProcessId,
        registry: Registry,
        heir: Option<NodeId>,
        effects: &mut Effects<Self>,
    ) {
        self.manager = Some(from);
        if registry.version >= self.registry.version {
            let former = self.registry.committed.as_ref();
            if let Some(now) = &registry.committed
                && former.is_none_or(|former| !former.members().eq(now.members()))
            {
                let nodes: Arc<[NodeId]> = now.members().collect();
                effects.mark(Note::Stands("replicas", nodes.len() as u64));
                effects.mark(Note::Members(self.process.partition, nodes));
            }
            let wanted = self.wanted(&registry);
            if registry.committed.is_some() && (former.is_none() || wanted != self.wanted(&self.registry)) {
                effects.mark(Note::Stands("replicas_wanted", wanted as u64));
            }
            self.registry = registry;
        }
        self.follow_registry(effects);
        if let Some(heir) = heir {
            self.retire(heir, effects);
        }
        self.pursue_wish(effects);
        self.report(effects);
    }

    /// Does what the managers have agreed on.
    fn follow_registry(&mut self, effects: &mut Effects<Self>) {
        let me = self.me();
        if let Some(committed) = self.registry.committed.clone() {
            for seeker in std::mem::take(&mut self.seekers) {
                effects.send_ahead(seeker, Message::Located(Some(self.view(&committed))));
            }
            match self.lead.as_ref().map(|lead| lead.epoch.cmp(&committed.reign.0)) {
                Some(std::cmp::Ordering::Less) => self.step_down(effects),
                Some(std::cmp::Ordering::Equal) => self.on_committed(&committed, effects),
                _ => {}
            }
            self.end_handing(&committed, effects);
            if self.parameters().unified {
                self.end_witnesses(committed.reign.0, effects);
            }
        }
        let Some(next) = self.registry.next.clone().filter(|next| next.master == me) else {
            return self.keep_list();
        };
        if self.registry.recovers() {
            if next.reign.0 > self.promised {
                self.recover(next, effects);
            }
        } else {
            self.change_list(next, effects);
        }
    }

    /// Tells the manager how this server is.
    pub(super) fn report(&mut self, effects: &mut Effects<Self>) {
        let Some(manager) = self.manager else { return };
        let now = effects.now();
        let part = match &self.lead {
            None => Part::Follows,
            Some(lead) if lead.ready => Part::Ready(lead.reign()),
            Some(lead) => Part::Prepares(lead.reign()),
        };
        let silence = self.parameters().silence;
        let silent = self.lead.iter().flat_map(|lead| lead.silent(now, silence)).collect();
        let heir = self.hands_over().filter(|handing| handing.yielded).map(|handing| handing.heir);
        // Ahead: what it says of readiness rests on the durable records of others, and on an own promise that was
        // durable when they were asked; one server alone is ready behind its own records.
        let (version, report) = (self.registry.version, Report { part, silent, heir });
        effects.urgently(|effects| effects.send_ahead(manager, Message::Pong { version, report }));
    }
}

impl<V: Ordered> order::Order for Order<V> {
    type Value = V;
    type Parameters = Parameters;
    type Position = Slot;

    const TOTAL: bool = true;
    // What is decided is on all backups; what is tentative rests on no record of this server.
    const AHEAD: bool = true;
    const SPECULATES: bool = true;
    const MEMBERSHIP: Membership = Membership::Own;

    fn reads_elsewhere(&self) -> bool {
        self.parameters().reads_nearby()
    }

    fn takes(&self) -> Takes {
        match (self.takes_in(), &self.registry.committed) {
            (Some(_), _) => Takes::Here,
            (None, Some(committed)) if committed.master != self.me() => {
                Takes::At(self.server(committed.master))
            }
            (None, _) => Takes::Nobody,
        }
    }

    fn leads(&self) -> bool {
        self.serving().is_some()
    }

    fn may_read(&self, now: Instant) -> bool {
        self.takes_in().is_some_and(|lead| lead.may_read(now, self.parameters()))
    }

    fn reign(&self) -> Reign {
        let late = self.parameters().mutated(Mutation::IgnoreVersions);
        match (&self.lead, &self.registry.committed) {
            (Some(lead), Some(committed)) if late && lead.epoch == committed.reign.0 => committed.reign,
            (Some(lead), _) => lead.reign(),
            (None, Some(committed)) => committed.reign,
            (None, None) => Reign::default(),
        }
    }

    fn hurry(&mut self, _: Instant) {
        if let Some(lead) = &mut self.lead {
            lead.hurried = true;
        }
    }

    fn propose(&mut self, value: V, bytes: usize, _: Instant) -> Result<(), Refusal> {
        if self.takes_in().is_none() {
            return Err(Refusal::NotLeader);
        }
        let parameters = self.parameters();
        if self.book.open() + self.queue.len() >= parameters.window
            || self.book.open_bytes() + self.queue_bytes >= parameters.window_bytes
        {
            return Err(Refusal::Overloaded);
        }
        self.queue_bytes += bytes;
        self.queue.push_back(value);
        Ok(())
    }

    fn step(&mut self, now: Instant) -> Option<Step<V>> {
        if std::mem::take(&mut self.dropped) {
            return Some(Step::Dropped);
        }
        self.append_queued(now);
        let answer = self.leads();
        let (delivered, alone) = (self.book.delivered(), self.is_alone());
        let lead = self.lead.as_deref_mut().filter(|_| !alone);
        let tentative = lead.and_then(|lead| lead.next_tentative(delivered, &self.book));
        if let Some(values) = tentative {
            return Some(Step::Tentative(Tentative { values, answer }));
        }
        let Some((slot, values)) = self.book.deliver() else {
            return self.near.next().map(Step::Near);
        };
        let (slots, bytes) = (self.parameters().keep_slots, self.parameters().keep_bytes);
        self.book.trim(Keep::new(slots, bytes, self.serving));
        let digest = digest(&values);
        Some(Step::Decided(Decided { position: slot.0, digest, values, answer, spans: None }))
    }

    fn serial(&self) -> u64 {
        self.book.delivered().0
    }

    fn position(&self) -> Slot {
        self.book.delivered()
    }

    fn serves(&self, serial: u64) -> bool {
        serial >= self.book.base().0
    }

    fn behind(&self) -> Option<ProcessId> {
        self.behind.filter(|_| self.lead.is_none())
    }

    /// What is behind the state in this log stays: it may be the only copy of something.
    fn install(&mut self, position: &Slot) -> bool {
        self.behind = None;
        if *position <= self.book.delivered() || self.lead.is_some() {
            return false;
        }
        self.book.install(*position);
        true
    }

    fn hold(&mut self, held: bool) {
        self.serving = held;
    }

    fn give_up(&mut self) {
        self.behind = None;
    }

    /// Where copies are is the managers' business, and who is the master, but for what an operator says of either.
    fn change(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        match change {
            Change::Add(node) => self.begin_wish(ticket, node, false, effects),
            Change::Remove(node) => self.begin_wish(ticket, node, true, effects),
            Change::Lead(_) | Change::Resign => self.begin_handing(ticket, change, effects),
        }
    }
}

/// One chunk of a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
enum Chunk<V: Wire> {
    Log(Image<V>),
    Witness(stores::Image<V>),
}

/// One of the log.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Wire> {
    promised: u64,
    adopted: u64,
    delivered: Slot,
    full: Slot,
    batches: Vec<Batch<V>>,
}

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        Order {
            process: identity.process,
            servers: setup.members.iter().map(|member| member.process.node).collect(),
            knobs: Knobs(setup.parameters),
            promised: 0,
            adopted: 0,
            book: Book::default(),
            registry: Registry::default(),
            manager: None,
            granted: Instant::ZERO,
            behind: None,
            serving: false,
            lead: None,
            queue: VecDeque::new(),
            queue_bytes: 0,
            dropped: false,
            near: Near::new(identity.incarnation),
            own: Own::new(Stores::new(setup.parameters)),
            seekers: Vec::new(),
            handing: None,
            wish: None,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        let chunk: Chunk<V> = wire::decode(&chunk)
            .map_err(|error| Malformed { what: "server snapshot chunk", cause: error.to_string() })?;
        let image = match chunk {
            Chunk::Log(image) => image,
            Chunk::Witness(image) => {
                self.own.stores.restore(image);
                return Ok(());
            }
        };
        (self.promised, self.adopted) = (image.promised, image.adopted);
        if image.delivered > self.book.delivered() {
            self.book.install(image.delivered);
        }
        image.batches.into_iter().for_each(|batch| self.book.append(batch));
        drop(self.book.advance(image.full));
        Ok(())
    }

    fn replay(&mut self, record: Record<V>) {
        match record {
            Record::Promised { epoch } => {
                self.promised = self.promised.max(epoch);
                self.own.promise(self.promised);
            }
            Record::Appended { at, batches, full } => {
                self.take_in(at, batches);
                drop(self.book.advance(full));
            }
            Record::Adopted { epoch, at, batches } => {
                self.adopt(epoch, at, batches);
            }
            Record::Full { full } => drop(self.book.advance(full)),
            Record::Witness(record) => self.own.stores.replay(record),
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        // What was granted in a former life is forgotten, and may hold.
        self.granted = self.parameters().lease_terms().bound_until(effects.now());
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        let unified = self.parameters().unified;
        match message {
            Message::Ping { registry, heir } => self.on_ping(from, registry, heir, effects),
            Message::Denied { node, leaves, refusal } => self.on_denied(node, leaves, refusal, effects),
            Message::Locate => {
                let view = self.registry.committed.as_ref().map(|committed| self.view(committed));
                if view.is_none() && self.seekers.len() < SEEKERS_MAX && !self.seekers.contains(&from) {
                    self.seekers.push(from);
                }
                effects.send_ahead(from, Message::Located(view));
            }
            Message::Beat(beat) if self.is_server(from) => self.on_beat(from, beat, effects),
            Message::Replicate(run) if self.is_server(from) => {
                self.on_replicate(from, run, effects);
            }
            Message::Trimmed { epoch } if self.promised == epoch && self.is_server(from) => {
                self.behind = Some(from);
            }
            Message::Heard { epoch, sent, bound, list, life, at } => {
                self.on_heard(from, epoch, (sent, bound), list, (life, at), effects);
            }
            Message::Near { reign, reads } if unified => self.on_reads(reign, reads, effects),
            Message::Near { reign, reads } if self.reads_for(from) => self.on_near(reign, reads, effects),
            Message::Records { reign, requests } if unified => {
                self.on_records(from, reign, requests, effects);
            }
            Message::Start { reign } if unified && self.is_server(from) => {
                self.on_start(from, reign, effects);
            }
            Message::Missing { epoch, lacking } => self.on_missing(from, epoch, lacking, effects),
            Message::Supplied { epoch, values } if self.is_server(from) => {
                self.on_supplied(epoch, values, effects);
            }
            Message::Freeze { master, epoch } if self.parameters().mutated(Mutation::MixNodes) => {
                let values = self.own.stores.contents(master);
                effects.send(from, Message::Contents { master, epoch, values });
            }
            Message::Acked { epoch, upto } => self.on_acked(from, epoch, upto, effects),
            Message::Want { epoch, from: place, ends } => {
                self.on_want(from, epoch, place, ends, effects);
            }
            Message::Fenced { epoch } => self.on_fenced(epoch, effects),
            Message::Own { epoch, upto } => self.on_own(epoch, upto, effects),
            Message::Started { reign } => self.on_started(from, reign, effects),
            Message::Collected { master, round, suspects } => {
                self.on_collected(from, master, round, suspects);
            }
            Message::Contents { master, epoch, values } => self.on_contents(master, epoch, values, effects),
            // For witnesses, managers and clients; or from one who is no server.
            Message::Records { .. }
            | Message::Verdicts(_)
            | Message::Located(_)
            | Message::Pong { .. }
            | Message::Registry(_)
            | Message::Start { .. }
            | Message::Collect { .. }
            | Message::Freeze { .. }
            | Message::End { .. }
            | Message::Near { .. }
            | Message::Distant(_)
            | Message::Supplied { .. }
            | Message::Beat { .. }
            | Message::Replicate { .. }
            | Message::Trimmed { .. }
            | Message::Wish { .. } => {}
        }
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn cancel(&mut self, _: Ticket, _: &mut Effects<Self>) {}

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Beat => self.beat(effects),
            Timer::Sync => self.sync_due(),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.append_queued(effects.now());
        self.send_out(effects);
        self.pursue_handing(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        let (promised, adopted) = (self.promised, self.adopted);
        let (delivered, full) = (self.book.delivered(), self.book.full());
        let image = move |batches| Chunk::Log(Image { promised, adopted, delivered, full, batches });
        let log = chunked(self.book.undelivered().into(), image);
        if !self.parameters().unified {
            return Some(log);
        }
        let kept = self.own.stores.images().map(|image| Blob::from(wire::encode(&Chunk::Witness(image))));
        Some(Box::new(log.chain(kept)))
    }

    fn check(&self) {
        self.book.check();
        assert!(self.adopted <= self.promised, "a log is adopted from a master that was promised");
        if let Some(lead) = &self.lead {
            lead.check(&self.book);
        }
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Chunk<u8>>("curp");
}
