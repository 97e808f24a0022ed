//! The replica: a log, the state machine that executes it, and who was told what.

mod execute;
mod snapshot;
mod transfer;

use super::log::{self, Log, Member};
use super::message::{Ask, Entry, Message, Record, Timer, Told};
use super::{Note, Parameters};
use crate::request::{Change, Refusal};
use isochrone_core::{
    Blob, ClientId, CommandId, Effects, Identity, Instant, Loan, Malformed, Offers, OnceTable, Process,
    ProcessId, ReplicaId, Slot, Snapshot, StateMachine, Ticket, Wrap, wire,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use transfer::{Staged, Taking, View};

/// What a replica needs to start.
#[derive(Clone, Debug)]
pub struct Setup<S> {
    /// The first members; a process that is not among them waits to be added.
    pub members: Arc<[Member]>,
    /// Who leads first.
    pub preferred: Option<ReplicaId>,
    /// The knobs.
    pub parameters: Parameters,
    /// The state machine before its first command.
    pub machine: S,
}

type Logged<S> = Log<Entry<<S as StateMachine>::Command>>;
type Answers<S> = Vec<(u64, Told<<S as StateMachine>::Reply>)>;

/// A replica of `S`. See the module of the protocol.
#[derive(Clone, Hash)]
pub struct Replica<S: StateMachine> {
    me: ProcessId,
    parameters: Parameters,
    log: Logged<S>,
    loan: Loan<Logged<S>>,
    empty: S,
    machine: S,
    once: OnceTable<S::Reply>,
    /// Everything before it is executed.
    applied: Slot,
    /// A hash of all values executed, in order.
    digest: u64,
    /// Answers of this turn, by client process; they leave in `settle`.
    outbox: BTreeMap<ClientId, Outgoing<S>>,
    /// Whether this replica led when it last looked.
    led: bool,
    /// When a client was last heard of, while this replica leads.
    clients: BTreeMap<ProcessId, Instant>,
    /// The administration under way and who waits for it.
    administration: Option<(ProcessId, u64, Ticket)>,
    /// What the host asked and the leader was told, by number.
    relayed: BTreeMap<u64, Ticket>,
    tickets: u64,
    offers: Offers<View<S>>,
    taking: Option<Taking>,
    staged: Option<Box<Staged<S>>>,
}

#[derive(Clone, Hash)]
struct Outgoing<S: StateMachine> {
    spans: Option<super::message::Spans>,
    answers: Answers<S>,
}

/// Set in the tickets that this replica gives its log itself; a host counts its own from below.
const OWN_TICKETS: u64 = 1 << 63;

/// How the log's effects look inside the replica's.
struct Inner;

impl<S: StateMachine> Wrap<Replica<S>, Logged<S>> for Inner {
    fn message(&self, message: log::Message<Entry<S::Command>>) -> Message<S::Command, S::Reply> {
        Message::Log(message)
    }
    fn record(&self, record: log::Record<Entry<S::Command>>) -> Record<S::Command> {
        Record::Log(record)
    }
    fn timer(&self, timer: log::Timer) -> Timer {
        Timer::Log(timer)
    }
    fn mark(&self, mark: log::Note) -> Note {
        Note::Log(mark)
    }
}

impl<S: StateMachine> Replica<S> {
    /// The state machine as it stands.
    pub fn machine(&self) -> &S {
        &self.machine
    }

    /// The log.
    pub fn log(&self) -> &Logged<S> {
        &self.log
    }

    /// Gives the log an input, then executes what it has decided.
    fn with_log(
        &mut self,
        effects: &mut Effects<Self>,
        input: impl FnOnce(&mut Logged<S>, &mut Effects<Logged<S>>),
    ) {
        let log = &mut self.log;
        let answers = effects.lend(&mut self.loan, &Inner, |inner| input(log, inner));
        self.execute_decided(effects);
        for (ticket, result) in answers {
            self.on_changed(ticket, result, effects);
        }
        let leads = self.log.leads();
        if self.led && !leads {
            self.once.abandon();
            self.clients.clear();
            effects.disarm(Timer::Sessions);
        } else if leads && !self.led {
            effects.arm(Timer::Sessions, self.parameters.session_idle / 2);
        }
        self.led = leads;
        self.pull_if_behind(effects);
    }

    /// Commands of a client, from itself or sent on by a replica that does not lead.
    fn on_requests(
        &mut self,
        client: ClientId,
        below: u64,
        asks: Vec<Ask<S::Command>>,
        forwarded: bool,
        effects: &mut Effects<Self>,
    ) {
        if !self.log.leads() {
            let leader = self.log.leader();
            // Ahead: nothing here rests on a record.
            return match leader.filter(|_| self.parameters.forward && !forwarded) {
                Some(leader) => {
                    effects.send_ahead(leader, Message::Requests { client, below, asks, forwarded: true });
                }
                None => {
                    let sequences = asks.iter().map(|ask| ask.sequence).collect();
                    let incarnation = client.incarnation;
                    let redirect = Message::Redirect { incarnation, leader, sequences };
                    effects.send_ahead(client.process, redirect);
                }
            };
        }
        let now = effects.now();
        self.clients.insert(client.process, now);
        let reads = self.log.may_read(now);
        for ask in asks {
            let sequence = ask.sequence;
            if let Some(told) = self.take(CommandId { client, sequence }, below, ask, reads, now) {
                self.answer(client, None, sequence, told);
            }
        }
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
        use isochrone_core::Seen;
        let Ask { command, touching, .. } = ask;
        if S::reads_only(&command) && !touching {
            if reads {
                return Some(self.machine.read(&command).map_or(Told::Touches, Told::Read));
            }
            if self.once.look(id) == Seen::Running {
                return None;
            }
            let bytes = wire::encoded_size(&command) + 24;
            return match self.log.propose(Entry::Read { id, below, command }, bytes, now) {
                Ok(()) => {
                    self.once.begin(id);
                    None
                }
                Err(_) => Some(Told::Overloaded),
            };
        }
        match self.once.look(id) {
            Seen::Fresh => {}
            Seen::Running => return None,
            Seen::Done(reply) => return Some(Told::Done(reply.clone())),
            Seen::Forgotten => return Some(Told::Forgotten),
        }
        let bytes = wire::encoded_size(&command) + 24;
        match self.log.propose(Entry::Command { id, below, command }, bytes, now) {
            Ok(()) => {
                self.once.begin(id);
                None
            }
            Err(_) => Some(Told::Overloaded),
        }
    }

    fn answer(
        &mut self,
        client: ClientId,
        spans: Option<super::message::Spans>,
        sequence: u64,
        told: Told<S::Reply>,
    ) {
        let outgoing = self.outbox.entry(client).or_insert_with(|| Outgoing { spans, answers: Vec::new() });
        outgoing.spans = outgoing.spans.or(spans);
        outgoing.answers.push((sequence, told));
    }

    /// Sends the answers of this turn. Ahead: each tells of something decided, which rests on the durable
    /// votes of a quorum (the own one among them only if it was durable when it was counted), or of state
    /// that was so decided, or of a refusal.
    fn send_answers(&mut self, effects: &mut Effects<Self>) {
        while let Some((client, Outgoing { spans, answers })) = self.outbox.pop_first() {
            let incarnation = client.incarnation;
            effects.send_ahead(client.process, Message::Replies { incarnation, spans, answers });
        }
    }

    fn on_administer(&mut self, from: ProcessId, number: u64, change: Change, effects: &mut Effects<Self>) {
        if !self.log.leads() {
            // One who was told to hand over and has done so says so.
            let leader = self.log.leader();
            let result = Err(Refusal::NotLeader);
            return effects.send_ahead(from, Message::Administered { number, result, leader });
        }
        if let Some((asker, known, _)) = self.administration {
            if (asker, known) != (from, number) {
                let (result, leader) = (Err(Refusal::Busy), Some(self.me));
                effects.send_ahead(from, Message::Administered { number, result, leader });
            }
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(OWN_TICKETS | self.tickets);
        self.administration = Some((from, number, ticket));
        self.with_log(effects, |log, inner| log.request(ticket, log::Ask::Change(change), inner));
    }

    fn on_changed(&mut self, ticket: Ticket, result: log::Answer, effects: &mut Effects<Self>) {
        if ticket.0 & OWN_TICKETS == 0 {
            effects.complete(ticket, result);
        } else if let Some((from, number, _)) = self.administration.take_if(|(_, _, known)| *known == ticket)
        {
            let leader = self.log.leader();
            effects.send(from, Message::Administered { number, result, leader });
        }
    }

    /// Proposes the end of sessions that were silent for long.
    fn sweep_sessions(&mut self, effects: &mut Effects<Self>) {
        let now = effects.now();
        let silent = self.once.retained().map(|(client, _)| client).collect::<Vec<_>>();
        for client in silent {
            let heard = *self.clients.entry(client.process).or_insert(now);
            if now.since(heard) >= self.parameters.session_idle {
                // Refused or lost, it is proposed again by a later sweep.
                let _ = self.log.propose(Entry::Expire { client }, 24, now);
            }
        }
        effects.arm(Timer::Sessions, self.parameters.session_idle / 2);
    }
}

impl<S: StateMachine> Process for Replica<S> {
    type Setup = Setup<S>;
    type Message = Message<S::Command, S::Reply>;
    type Record = Record<S::Command>;
    type Request = Change;
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<S>) -> Replica<S> {
        let inner = log::Setup {
            members: setup.members.clone(),
            preferred: setup.preferred,
            parameters: setup.parameters,
        };
        Replica {
            me: identity.process,
            parameters: setup.parameters,
            log: Log::open(identity, &inner),
            loan: Loan::default(),
            empty: setup.machine.clone(),
            machine: setup.machine.clone(),
            once: OnceTable::default(),
            applied: Slot::ZERO,
            digest: 0,
            outbox: BTreeMap::new(),
            led: false,
            clients: BTreeMap::new(),
            administration: None,
            relayed: BTreeMap::new(),
            tickets: 0,
            offers: Offers::default(),
            taking: None,
            staged: None,
        }
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_piece(&chunk)
    }

    fn replay(&mut self, record: Record<S::Command>) {
        match record {
            Record::Log(record) => {
                self.log.replay(record);
                self.execute_quietly();
            }
            Record::Chunk { index, chunk } => self.stage(index, &chunk),
            Record::Installed { position } => {
                self.install(position);
            }
        }
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.staged = None;
        self.with_log(effects, |log, inner| log.start(inner));
    }

    fn receive(
        &mut self,
        from: ProcessId,
        message: Message<S::Command, S::Reply>,
        effects: &mut Effects<Self>,
    ) {
        match message {
            Message::Log(message) => self.with_log(effects, |log, inner| log.receive(from, message, inner)),
            Message::Requests { client, below, asks, forwarded } => {
                self.on_requests(client, below, asks, forwarded, effects);
            }
            Message::Administer { number, change } => self.on_administer(from, number, change, effects),
            Message::Want { position, index } => self.on_want(from, position, index, effects),
            Message::Chunk { position, index, chunk } => self.on_chunk(from, position, index, chunk, effects),
            Message::Gone { position } => self.on_gone(from, position, effects),
            Message::Administered { number, result, .. } => {
                if let Some(ticket) = self.relayed.remove(&number) {
                    effects.complete(ticket, result);
                }
            }
            // For clients.
            Message::Replies { .. } | Message::Redirect { .. } => {}
        }
    }

    /// Administration by the host itself; clients administer by message. Who does not lead tells the
    /// leader, once: a host that hears nothing asks again.
    fn request(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        if self.log.leads() {
            return self.with_log(effects, |log, inner| log.request(ticket, log::Ask::Change(change), inner));
        }
        match (change, self.log.leader()) {
            (Change::Resign, _) => effects.complete_ahead(ticket, Ok(())),
            (_, None) => effects.complete_ahead(ticket, Err(Refusal::NotLeader)),
            (_, Some(leader)) => {
                self.tickets += 1;
                let number = self.tickets;
                self.relayed.insert(number, ticket);
                effects.send_ahead(leader, Message::Administer { number, change });
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Self>) {
        self.relayed.retain(|_, known| *known != ticket);
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Log(timer) => self.with_log(effects, |log, inner| log.expire(timer, inner)),
            Timer::Pull => self.pull(effects),
            Timer::Offers => self.offers.clear(),
            Timer::Sessions => self.sweep_sessions(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.send_answers(effects);
        if self.log.leads() {
            self.with_log(effects, |log, inner| log.settle(inner));
            // A group of one decides nothing in `settle` either, but a mutation may.
            self.send_answers(effects);
        }
    }

    /// None while a peer's state is coming in: its chunks are in the journal and in no snapshot, and their
    /// records must stay until the last of them.
    fn snapshot(&self) -> Option<Snapshot> {
        self.staged.is_none().then(|| self.own_snapshot())
    }

    fn check(&self) {
        self.log.check();
        assert!(self.applied <= self.log.decided(), "executed beyond what is decided");
    }
}
