//! The replica: an order, the state machine that executes it, and who was told what.
//!
//! **Members** change in one of two ways ([`Membership`]). An order may do it itself. Otherwise by *stop and
//! hand-over*: the change is a value like any other, and where it has its place the order ends; behind it
//! every replica begins another order, of the next *epoch*, among the new members, with no votes and with the
//! state as it stood at the stop. What the old order decides behind its stop is nowhere executed; clients ask
//! for it again. Whoever was left behind in an epoch that has ended is told so and takes in a peer's state.

mod epoch;
mod execute;
mod snapshot;
mod speculation;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;

use crate::changes::numbers_of;
use crate::message::{Ask, Entry, Message, Note, Record, Requests, Spans, Timer, Told, in_parts};
use crate::order::{self, Member, Membership, Order, Reign, Takes};
use crate::request::{Change, Refusal};
use crate::service::{Reply, Service};
use crate::stream::{Hearing, Heed};
use epoch::{Call, Inner, Stopping};
use isochrone_core::machine::Keys;
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Identity, Instant, Loan, Malformed, NodeId, Offers, OnceTable,
    Process, ProcessId, Pull, ReplicaId, Seen, Snapshot, Span, Stamp, StateMachine, Ticket, wire,
};
use speculation::Speculation;
use std::collections::BTreeMap;
use std::sync::Arc;
use transfer::{Staged, View};

/// What a replica needs to start.
#[derive(Clone, Debug)]
pub struct Setup<S, P> {
    /// The first members; a process that is not among them waits to be added.
    pub members: Arc<[Member]>,
    /// Who leads first.
    pub preferred: Option<ReplicaId>,
    /// The knobs of sessions.
    pub service: Service,
    /// The knobs of the order.
    pub parameters: P,
    /// The state machine before its first command.
    pub machine: S,
}

type Answers<S> = Vec<(u64, Told<<S as StateMachine>::Reply>)>;

/// A replica of `S`, ordered by `O`. See the module.
#[derive(Clone, Hash)]
pub struct Replica<S: StateMachine, O: Order> {
    identity: Identity,
    preferred: Option<ReplicaId>,
    service: Service,
    knobs: order::Knobs<O::Parameters>,
    /// How often the members were changed by stop and hand-over.
    epoch: u32,
    /// The members of this epoch, where changes are made by stop and hand-over.
    members: Arc<[Member]>,
    /// Whether the first of them has led first, where any does; else who has the seat that the file gives.
    first_leads: bool,
    order: O,
    loan: Loan<O>,
    started: bool,
    empty: S,
    machine: S,
    once: OnceTable<S::Reply>,
    speculation: Speculation<S>,
    /// When a barrier for the table may be proposed again.
    barrier_due: Instant,
    /// How many values were executed.
    applied: u64,
    /// A hash of all values executed, in order.
    digest: u64,
    /// Answers of this turn, by client and the reign they were made in; they leave in `settle`.
    outbox: BTreeMap<(ClientId, Reign), Outgoing<S>>,
    /// When a client was last heard of, and the number of its last command executed then.
    clients: BTreeMap<ClientId, (Instant, u64)>,
    /// By way of whom clients are told what they asked for last that do not hear this replica. Each is in `clients` as well.
    ways: BTreeMap<ClientId, ProcessId>,
    /// Whether commands were taken here, and those who asked were not told yet that they are no more.
    took: bool,
    /// How far each client was heard, where this replica takes its commands.
    hearing: Hearing,
    /// The administration under way and who waits for it.
    administration: Option<Administration>,
    /// The change of members that was asked for here and who waits for it.
    stopping: Option<Stopping>,
    /// Whoever is to become a member and was not heard of yet.
    call: Option<Call>,
    /// What the host asked and another replica was told, by number.
    relayed: BTreeMap<u64, Ticket>,
    /// The last ticket or number that was given, none of which is of a former life.
    tickets: u64,
    /// A replica of a later epoch: what it has is to be taken in.
    later: Option<ProcessId>,
    offers: Offers<View<S>>,
    taking: Option<Pull>,
    staged: Option<Box<Staged<S, O::Position>>>,
    /// The keys that the host was last told of.
    told: Option<Keys>,
    /// The nodes of the members that the host was last told of.
    told_members: Arc<[NodeId]>,
    /// What is taken off how many the machine says have expired, so that those of this life count, whichever machine it was.
    expired_before: u64,
}

/// A change that the order makes: who has asked for it, under which number, and whom the order answers.
#[derive(Copy, Clone, Hash)]
struct Administration {
    asker: (ProcessId, u64),
    change: Change,
    ticket: Ticket,
}

#[derive(Clone, Hash)]
struct Outgoing<S: StateMachine> {
    spans: Option<Spans>,
    answers: Answers<S>,
}

/// Set in the tickets that this replica gives its order itself; a host counts its own from below.
const OWN_TICKETS: u64 = 1 << 63;

/// Runs of executed numbers, behind a partial order, from which on a barrier is proposed to trim them.
const RUNS_MAX: usize = 16_384;
/// Bytes of what is handed on as a question is; answers are larger, but for the smallest.
const SMALL: usize = 256;
/// Time between two such barriers at least: they conflict with everything.
const BARRIER_EVERY: Span = Span::from_secs(1);

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Replica<S, O> {
    /// The state machine as it stands, what is tentative included.
    pub fn machine(&self) -> &S {
        &self.machine
    }

    /// The order.
    pub fn order(&self) -> &O {
        &self.order
    }

    /// How often the members were changed by stop and hand-over.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The members, where they change by stop and hand-over.
    pub fn members(&self) -> &Arc<[Member]> {
        &self.members
    }

    /// As [`Process::check`], of all that is tentative: a look at every pair of commands.
    ///
    /// # Panics
    /// A command whose client has a speculative answer meets something that is tentative before it (I2).
    pub fn check_tail(&self) {
        self.assert_told_apart(usize::MAX, usize::MAX);
    }

    /// How many keys the machine says have expired.
    fn expired(&self) -> u64 {
        self.machine.keys().unwrap_or_default().expired
    }

    /// Gives the order an input, then executes what it has decided, unless that can wait.
    fn with_order(&mut self, effects: &mut Effects<Self>, input: impl FnOnce(&mut O, &mut Effects<O>)) {
        let order = &mut self.order;
        let answers = effects.lend(&mut self.loan, &Inner { epoch: self.epoch }, |inner| input(order, inner));
        if !O::DEFERS || self.order.leads() {
            self.take_steps(effects);
        }
        for (ticket, result) in answers {
            self.on_changed(ticket, result, effects);
        }
        self.pull_if_behind(effects);
    }

    /// Commands of a client, from itself or sent on by a replica that takes none.
    fn on_requests(&mut self, from: ProcessId, requests: Requests<S::Command>, effects: &mut Effects<Self>) {
        let reign = self.order.reign();
        let Requests { client, under, forwarded, .. } = requests;
        // What this replica says itself is lost on its way there; whoever has sent this on is heard.
        let unheard = forwarded && requests.unheard.contains(&self.identity.process);
        let by_way = unheard.then_some(from);
        let elsewhere = match self.takes() {
            // Not forwarded: the client is to begin again under this reign.
            Takes::Here if under.is_some_and(|under| under != reign) => {
                let leader = Some(self.identity.process);
                return self.redirect(client, by_way, leader, &requests.asks, effects);
            }
            Takes::Here => None,
            Takes::At(process) => Some(Some(process)),
            Takes::Nobody => Some(None),
        };
        if let Some(leader) = elsewhere {
            // Ahead: nothing here rests on a record.
            return match leader.filter(|_| self.service.forward && !forwarded) {
                Some(leader) => {
                    let small = requests.asks.is_empty();
                    let requests = Requests { forwarded: true, ..requests };
                    effects.urgently_if(small, |effects| effects.send_ahead(leader, requests.into()))
                }
                None => self.redirect(client, by_way, leader, &requests.asks, effects),
            };
        }
        let Requests { below, asks, said, .. } = requests;
        if asks.is_empty() {
            // Only who takes commands was asked. Where nobody leads, one that is cut off gets on with none.
            let led = matches!(O::MEMBERSHIP, Membership::Own);
            if !led && !self.majority_lives(&self.members, effects.now()) {
                return;
            }
            let (incarnation, answers) = (client.incarnation, Vec::new());
            let replies = Message::Replies { incarnation, reign, spans: None, answers };
            return Self::tell_client(client, by_way, replies, effects);
        }
        match self.hearing.hear(client, said, (self.epoch, reign)) {
            Heed::Take => {}
            Heed::Drop => return,
            Heed::Miss(turn) => {
                let missed = Message::Missed { incarnation: client.incarnation, turn };
                return Self::tell_client(client, by_way, missed, effects);
            }
        }
        let now = effects.now();
        self.clients.entry(client).or_insert((now, 0)).0 = now;
        match by_way {
            Some(replica) => self.ways.insert(client, replica),
            None => self.ways.remove(&client),
        };
        let reads = self.order.may_read(now);
        for ask in asks {
            let sequence = ask.sequence;
            if let Some(told) = self.take(CommandId { client, sequence }, below, ask, reads, now) {
                self.answer(client, None, sequence, told);
            }
        }
    }

    /// Tells a client something small that rests on no record.
    fn tell_client(
        client: ClientId,
        by_way: Option<ProcessId>,
        message: Message<S::Command, S::Reply, O::Message>,
        effects: &mut Effects<Self>,
    ) {
        let (to, message) = message.for_client(client.process, by_way);
        effects.urgently(|effects| effects.send_ahead(to, message));
    }

    /// Hands on what another replica tells a client that does not hear it. Only what a replica of this group tells, and whom it is
    /// for hands it on to nobody.
    fn pass_on(&self, from: ProcessId, to: ProcessId, message: Blob, effects: &mut Effects<Self>) {
        let me = self.identity.process;
        let ours = self.members.iter().chain(self.order.members()).any(|member| member.process == from);
        if ours && to != me && to.keyspace == me.keyspace {
            // Ahead: nothing here rests on a record. What is larger is no question, and waits behind what else is said there.
            let small = message.len() <= SMALL;
            effects.urgently_if(small, |effects| effects.send_ahead(to, Message::Pass { to, message }));
        }
    }

    /// Tells a client what became of its commands: the answers of those that are executed, and of the others whether
    /// they are under way here.
    fn on_status(&mut self, client: ClientId, sequences: &[u64], effects: &mut Effects<Self>) {
        let held = self.order.holds(client);
        let (mut waiting, mut unknown) = (Vec::new(), Vec::new());
        for sequence in sequences {
            let told = match self.once.look(CommandId { client, sequence: *sequence }) {
                Seen::Done(reply) => Told::Done(reply.clone()),
                Seen::Forgotten => Told::Forgotten,
                Seen::Fresh | Seen::Running => {
                    if held.contains(sequence) { &mut waiting } else { &mut unknown }.push(*sequence);
                    continue;
                }
            };
            self.answer(client, None, *sequence, told);
        }
        if !waiting.is_empty() || !unknown.is_empty() {
            let standing = Message::Standing { incarnation: client.incarnation, waiting, unknown };
            // Ahead: it is news of this replica, and promises nothing.
            effects.urgently(|effects| effects.send_ahead(client.process, standing));
        }
    }

    /// Tells a client who takes its commands, or under which reign.
    fn redirect(
        &self,
        client: ClientId,
        by_way: Option<ProcessId>,
        leader: Option<ProcessId>,
        asks: &[Ask<S::Command>],
        effects: &mut Effects<Self>,
    ) {
        let sequences = asks.iter().map(|ask| ask.sequence).collect();
        let (incarnation, reign) = (client.incarnation, self.order.reign());
        let redirect = Message::Redirect { incarnation, reign, leader, sequences };
        Self::tell_client(client, by_way, redirect, effects);
    }

    /// Reads, refuses or proposes one command; what can be told at once comes back.
    fn take(
        &mut self,
        id: CommandId,
        below: u64,
        ask: Ask<S::Command>,
        reads: bool,
        now: Instant,
    ) -> Option<Told<S::Reply>> {
        let Ask { command, touching, synced, .. } = ask;
        if S::reads_only(&command) && !touching {
            // What has its place and is not executed yet may have been answered under another reign.
            if reads && !self.speculation.holds_back() {
                return self.read_now(id, &command, now);
            }
            if self.once.look(id) == Seen::Running {
                return None;
            }
            return self.propose(id, Entry::Read { id, below, command }, now);
        }
        match self.once.look(id) {
            Seen::Fresh => {
                if reads && let Some(reply) = self.forgotten_failure(&command) {
                    return Some(Told::Done(reply));
                }
                let refused = self.propose(id, Entry::Command { id, below, command }, now);
                if synced && refused.is_none() {
                    return self.await_decision(id, now);
                }
                refused
            }
            Seen::Running => self.await_decision(id, now),
            Seen::Done(reply) => Some(Told::Done(reply.clone())),
            Seen::Forgotten => Some(Told::Forgotten),
        }
    }

    fn propose(&mut self, id: CommandId, entry: Entry<S::Command>, now: Instant) -> Option<Told<S::Reply>> {
        let bytes = match &entry {
            Entry::Command { command, .. } | Entry::Read { command, .. } => wire::encoded_size(command) + 24,
            Entry::Expire { .. } | Entry::Stop { .. } | Entry::HandOver { .. } => 64,
        };
        match self.order.propose(entry, bytes, now) {
            Ok(()) => {
                self.once.begin(id);
                None
            }
            Err(_) => Some(Told::Overloaded),
        }
    }

    fn answer(&mut self, client: ClientId, spans: Option<Spans>, sequence: u64, told: Told<S::Reply>) {
        let at = (client, self.order.reign());
        let outgoing = self.outbox.entry(at).or_insert_with(|| Outgoing { spans, answers: Vec::new() });
        outgoing.spans = outgoing.spans.or(spans);
        outgoing.answers.push((sequence, told));
    }

    /// Sends the answers of this turn: ahead where the steps of the order rest on durable votes only, or on
    /// state that was so decided, or they are refusals.
    fn send_answers(&mut self, effects: &mut Effects<Self>) {
        while let Some(((client, reign), Outgoing { spans, answers })) = self.outbox.pop_first() {
            let incarnation = client.incarnation;
            let by_way = self.ways.get(&client).copied();
            let replies = |answers| {
                Message::Replies { incarnation, reign, spans, answers }.for_client(client.process, by_way)
            };
            if O::AHEAD {
                in_parts(answers, |answers| {
                    let (to, replies) = replies(answers);
                    effects.send_ahead(to, replies);
                });
                continue;
            }
            // What is speculative rests on no record, and must not wait for any.
            let speculative = |(_, told): &(u64, Told<S::Reply>)| matches!(told, Told::Speculative(_));
            let (ahead, held) = match answers.iter().any(speculative) {
                true => answers.into_iter().partition(speculative),
                false => (Vec::new(), answers),
            };
            if !ahead.is_empty() {
                in_parts(ahead, |answers| {
                    let (to, replies) = replies(answers);
                    effects.send_ahead(to, replies);
                });
            }
            if !held.is_empty() {
                in_parts(held, |answers| {
                    let (to, replies) = replies(answers);
                    effects.send(to, replies);
                });
            }
        }
    }

    fn on_administer(&mut self, from: ProcessId, number: u64, change: Change, effects: &mut Effects<Self>) {
        if self.stops(change) {
            let asker = epoch::Asker::Peer(from, number);
            return self.stop(asker, change, effects);
        }
        // Who hands over in an order without stops must lead; where there are stops, any member may be asked.
        let here = match O::MEMBERSHIP {
            Membership::Own => self.order.leads(),
            Membership::StopAndHandOver => self.is_active(),
        };
        if !here {
            // One who was told to hand over and has done so says so.
            let leader = self.elsewhere();
            let result = Err(Refusal::NotLeader);
            return effects.send_ahead(from, Message::Administered { number, result, leader });
        }
        if let Some(Administration { asker, change: known, .. }) = self.administration {
            if (asker, known) != ((from, number), change) {
                let (result, leader) = (Err(Refusal::Busy), Some(self.identity.process));
                effects.send_ahead(from, Message::Administered { number, result, leader });
            }
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(OWN_TICKETS | self.tickets);
        self.administration = Some(Administration { asker: (from, number), change, ticket });
        self.with_order(effects, |order, inner| order.change(ticket, change, inner));
    }

    fn on_changed(&mut self, ticket: Ticket, result: Result<(), Refusal>, effects: &mut Effects<Self>) {
        if ticket.0 & OWN_TICKETS == 0 {
            effects.complete(ticket, result);
        } else if let Some(done) = self.administration.take_if(|under_way| under_way.ticket == ticket) {
            let (from, number) = done.asker;
            let leader = self.elsewhere();
            effects.send(from, Message::Administered { number, result, leader });
        }
    }

    /// A client that is told of a commit may ask for more, or begin its next life, before that command is
    /// executed; what it asks then may be executed first, as behind a partial order.
    fn empty_once(service: &Service) -> OnceTable<S::Reply> {
        match (O::TOTAL, service.reply) {
            (true, Reply::Execute) => OnceTable::default(),
            _ => OnceTable::commuting(),
        }
    }

    /// Proposes a barrier where the exactly-once table of a partial order has become large: an expiry that
    /// finds a client that was not silent, and lets every replica trim what all have executed.
    fn trim_runs(&mut self, now: Instant) {
        if self.once.runs() > RUNS_MAX
            && now >= self.barrier_due
            && self.is_active()
            && self.order.leads()
            && let Some((client, _)) = self.once.retained().next()
        {
            self.barrier_due = now + BARRIER_EVERY;
            // Refused or lost, it is proposed again.
            let _ = self.order.propose(Entry::Expire { client, through: 0 }, 64, now);
        }
    }

    /// Where commands are taken.
    fn takes(&self) -> Takes {
        match self.is_active() {
            true => self.order.takes(),
            false => self.members.first().map_or(Takes::Nobody, |member| Takes::At(member.process)),
        }
    }

    /// Whom to tell of that, if anybody.
    fn elsewhere(&self) -> Option<ProcessId> {
        match self.takes() {
            Takes::Here => Some(self.identity.process),
            Takes::At(process) => Some(process),
            Takes::Nobody => None,
        }
    }

    /// Lets another one do what the host has asked for.
    fn relay(&mut self, to: ProcessId, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        self.tickets += 1;
        let number = self.tickets;
        self.relayed.insert(number, ticket);
        effects.send_ahead(to, Message::Administer { number, change });
    }

    /// Clients that have asked here lately are told who takes commands now, or is about to, once commands are taken here no more:
    /// what they wait for may have been dropped, and they would ask again only after a while.
    fn tell_asked(&mut self, effects: &mut Effects<Self>) {
        let leader = match self.takes() {
            Takes::Here => {
                self.took = true;
                return;
            }
            _ if !self.took => return,
            Takes::At(leader) => Some(leader),
            Takes::Nobody => self.order.candidate(),
        };
        if leader.is_some() {
            self.took = false;
            let now = effects.now();
            let lately = self.clients.iter().filter(|(_, (heard, _))| now.since(*heard) < self.service.retry);
            for (client, _) in lately {
                self.redirect(*client, self.ways.get(client).copied(), leader, &[], effects);
            }
        }
    }

    /// Proposes the end of sessions that were silent for long: of former lives in the name of the newest, by which they
    /// are over altogether. Only then, since by the clocks of Domino a place may lie some way ahead of now.
    fn sweep_sessions(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        effects.arm(Timer::Sessions, self.service.session_idle / 2);
        if !self.is_active() || !self.order.leads() || self.order.takes() != Takes::Here {
            self.ways.clear();
            return self.clients.clear();
        }
        let retained: Vec<_> = self.once.retained().map(|(client, _)| client).collect();
        self.clients.retain(|client, _| retained.binary_search(client).is_ok());
        self.ways.retain(|client, _| retained.binary_search(client).is_ok());
        for (at, client) in retained.iter().enumerate() {
            let last = self.once.last(*client).unwrap_or(0);
            let (heard, known) = self.clients.entry(*client).or_insert((now, last));
            if *known != last {
                (*heard, *known) = (now, last);
            }
            if now.since(*heard) >= self.service.session_idle {
                let newer =
                    retained[at + 1..].iter().take_while(|newer| newer.process == client.process).last();
                let (client, through) = newer.map_or((*client, last), |newest| (*newest, 0));
                // Refused or lost, it is proposed again by a later sweep.
                let _ = self.order.propose(Entry::Expire { client, through }, 64, now);
            }
        }
    }
}

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Process for Replica<S, O> {
    type Setup = Setup<S, O::Parameters>;
    type Message = Message<S::Command, S::Reply, O::Message>;
    type Record = Record<O::Record>;
    type Request = Change;
    type Outcome = Result<(), Refusal>;
    type Timer = Timer<O::Timer>;
    type Mark = Note<O::Mark>;

    fn open(identity: Identity, setup: &Self::Setup) -> Replica<S, O> {
        const { assert!(O::TOTAL || !O::SPECULATES, "only one sequence can be undone") };
        let members = setup.members.clone();
        let (preferred, parameters) = (setup.preferred, setup.parameters);
        let inner = order::Setup { members: members.clone(), preferred, parameters };
        Replica {
            identity,
            preferred,
            service: setup.service,
            knobs: order::Knobs(parameters),
            epoch: 0,
            members,
            first_leads: false,
            order: O::open(identity, &inner),
            loan: Loan::default(),
            started: false,
            empty: setup.machine.clone(),
            machine: setup.machine.clone(),
            once: Self::empty_once(&setup.service),
            speculation: Speculation::default(),
            barrier_due: Instant::ZERO,
            applied: 0,
            digest: 0,
            outbox: BTreeMap::new(),
            clients: BTreeMap::new(),
            ways: BTreeMap::new(),
            took: false,
            hearing: Hearing::default(),
            administration: None,
            stopping: None,
            call: None,
            relayed: BTreeMap::new(),
            tickets: numbers_of(identity.incarnation),
            later: None,
            offers: Offers::default(),
            taking: None,
            staged: None,
            told: None,
            told_members: Arc::default(),
            expired_before: 0,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_piece(&chunk)
    }

    fn replay(&mut self, record: Self::Record) {
        match record {
            Record::Order { epoch, record } if epoch == self.epoch => {
                self.order.replay(record);
                self.execute_quietly();
            }
            // Of an order that had ended for this replica before it was written down. What was promised in a later one
            // must not be passed over: nobody may go on without.
            Record::Order { epoch, .. } | Record::Joined { epoch } => {
                assert!(epoch <= self.epoch, "the journal does not bring epoch {epoch} back");
            }
            Record::Chunk { index, chunk } => self.stage(index, &chunk),
            Record::Installed { position } => {
                self.install(position);
                // What was held back until then goes on.
                self.execute_quietly();
            }
        }
    }

    fn overdue(&self, stamp: Stamp, most: usize) -> Vec<Blob> {
        self.machine.overdue(stamp, most)
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.staged = None;
        self.expired_before = self.expired();
        self.started = true;
        if self.applied > 0 {
            // Nobody was told of what the snapshot and the records have brought, and nothing may follow it.
            self.mark_applied(effects);
        }
        effects.arm(Timer::Sessions, self.service.session_idle / 2);
        if self.is_active() {
            self.with_order(effects, |order, inner| order.start(inner));
        }
    }

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        match message {
            Message::Order { epoch, message } => self.on_order(from, epoch, message, effects),
            Message::Ended { epoch, .. } => self.on_ended(from, epoch, effects),
            Message::Join { epoch } => self.on_join(from, epoch, effects),
            Message::Joined { epoch } => self.on_joined(from, epoch, effects),
            Message::Requests { client, below, under, asks, forwarded, said } => {
                let unheard = Vec::new();
                let requests = Requests { client, below, under, asks, forwarded, said, unheard };
                self.on_requests(from, requests, effects);
                self.take_steps(effects);
            }
            Message::Around(requests) => {
                self.on_requests(from, *requests, effects);
                self.take_steps(effects);
            }
            Message::Pass { to, message } => self.pass_on(from, to, message, effects),
            Message::Status { client, sequences } => self.on_status(client, &sequences, effects),
            Message::Administer { number, change } => self.on_administer(from, number, change, effects),
            Message::Want { position, index, again } => self.on_want(from, position, index, again, effects),
            Message::Chunk { position, index, chunk } => self.on_chunk(from, position, index, chunk, effects),
            Message::Gone { position } => self.on_gone(from, position, effects),
            Message::Administered { number, result, .. } => {
                if let Some(ticket) = self.relayed.remove(&number) {
                    effects.complete(ticket, result);
                }
            }
            // For clients.
            Message::Replies { .. }
            | Message::Redirect { .. }
            | Message::Missed { .. }
            | Message::Standing { .. } => {}
        }
    }

    /// Administration by the host itself; clients administer by message. Who cannot do it tells the one who
    /// can, once: a host that hears nothing asks again.
    fn request(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        if self.stops(change) && self.is_active() {
            return match self.order.monitor() {
                Takes::At(monitor) => self.relay(monitor, ticket, change, effects),
                Takes::Here | Takes::Nobody => self.stop(epoch::Asker::Host(ticket), change, effects),
            };
        }
        let here = match O::MEMBERSHIP {
            Membership::Own => self.order.leads(),
            // Who does not lead has nothing to give up, and may be the very one that would follow.
            Membership::StopAndHandOver => {
                self.is_active() && (change != Change::Resign || self.order.leads())
            }
        };
        if here {
            return self.with_order(effects, |order, inner| order.change(ticket, change, inner));
        }
        match (change, self.elsewhere()) {
            (Change::Resign, _) => effects.complete_ahead(ticket, Ok(())),
            (_, None) => effects.complete_ahead(ticket, Err(Refusal::NotLeader)),
            (_, Some(leader)) => self.relay(leader, ticket, change, effects),
        }
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Self>) {
        self.relayed.retain(|_, known| *known != ticket);
        self.stopping.take_if(|stopping| stopping.asker == epoch::Asker::Host(ticket));
        self.call.take_if(|call| call.asker == epoch::Asker::Host(ticket));
    }

    fn expire(&mut self, timer: Self::Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Order(epoch, timer) => {
                if epoch == self.epoch && self.is_active() {
                    self.with_order(effects, |order, inner| order.expire(timer, inner));
                }
            }
            Timer::Pull => self.pull(effects),
            Timer::Offers => {
                self.offers.clear();
                self.order.hold(false);
            }
            Timer::Sessions => self.sweep_sessions(effects),
            Timer::Join => self.ask_members(effects),
            Timer::Call => self.call_again(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.mark_members(effects);
        self.send_answers(effects);
        if self.is_active() {
            self.trim_runs(effects.now());
            self.speculation.hurried = false;
            self.with_order(effects, |order, inner| order.settle(inner));
            self.take_steps(effects);
            if std::mem::take(&mut self.speculation.hurried) {
                // What has just got its place is waited for.
                self.with_order(effects, |order, inner| order.settle(inner));
                self.take_steps(effects);
            }
            // A group of one may decide in `settle`.
            self.send_answers(effects);
        }
        self.tell_asked(effects);
    }

    /// None while a peer's state is coming in: its chunks are in the journal and in no snapshot, and their
    /// records must stay until the last of them.
    fn snapshot(&self) -> Option<Snapshot> {
        self.staged.is_none().then(|| self.own_snapshot())
    }

    fn check(&self) {
        self.order.check();
        if O::SPECULATES {
            const LAST: usize = 4;
            const BEFORE: usize = 64;
            self.assert_told_apart(LAST, BEFORE);
        }
    }
}
