//! The client of Fast Paxos: it sends its commands to all replicas, and where the keyspace replies at commit,
//! learns from their votes by itself that a blind write has its place.
//!
//! A command that is answered at its commit stays outstanding, without a ticket, until a replica says that it
//! was executed: else a later command, which may be executed first, would tell the replicas that this one's
//! answer is known, and it would be passed over as an old one.

use super::message::Message as Said;
use super::{Mutation, Parameters};
use crate::changes::{Answered, Changes};
use crate::client::{Nothing, SWEEPS, Setup, phases};
use crate::message::{Ask, Entry, Message, Note, Spans, Told, in_parts};
use crate::order::Member;
use crate::request::{Change, Outcome, Refusal, Request};
use crate::service::{Reply, Service};
use isochrone_core::{
    Ballot, Blob, ClientId, CommandId, Effects, Fact, Identity, Instant, Malformed, Path, Phase, Process,
    ProcessId, Quorums, Series, Slot, Snapshot, Span, StateMachine, Ticket,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

type Spoken<S> = Message<
    <S as StateMachine>::Command,
    <S as StateMachine>::Reply,
    Said<Entry<<S as StateMachine>::Command>>,
>;

/// A client of Fast Paxos over the state machine `S`.
#[derive(Clone, Debug)]
pub struct Client<S: StateMachine> {
    me: ClientId,
    service: Service,
    parameters: Parameters,
    /// How often the members were changed, as far as is known here.
    epoch: u32,
    /// The members, nearest first as far as that is known.
    replicas: Vec<ProcessId>,
    /// The members that it began with, and who may have become one since.
    placed: Arc<[ProcessId]>,
    /// The number of the next command.
    next: u64,
    outstanding: Series<Asked<S::Command>>,
    /// By the ticket's number.
    tickets: Series<u64>,
    /// Numbers to be sent to all in `settle`.
    fresh: Vec<u64>,
    /// Those that were sent to all before, and are not answered.
    repeats: Vec<u64>,
    changes: Changes,
    /// Whom to ask for a change.
    target: usize,
    /// When the members were last asked for.
    greeted: Instant,
    sweeping: bool,
}

/// A command that was asked for and is not known to be executed.
#[derive(Clone, Hash, Debug)]
struct Asked<C> {
    /// None once the host has lost interest, or has its answer.
    ticket: Option<Ticket>,
    /// Whether its host has the answer.
    answered: bool,
    command: C,
    at: Instant,
    /// When it is asked for again.
    due: Instant,
    attempts: u32,
    /// Whether it is a read that must go through the log with its effect.
    touching: bool,
    votes: Vec<Votes>,
}

/// Equal votes for a command.
#[derive(Clone, Hash, Debug)]
struct Votes {
    /// Epoch, reign, index and digest: votes that differ in any of these never add up.
    on: (u32, Ballot, Slot, u64),
    voters: Vec<ProcessId>,
}

/// The one timer of a client: it sweeps over everything outstanding.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer {
    /// What is due is asked for again; what is too old is given up.
    Sweep,
}

/// How often a busy client asks who the members are: a change does not stop it, only slows it down.
const GREET: Span = Span::from_secs(2);
/// Different copies of a command whose votes are counted: one more for each time it was asked for.
const COPIES: usize = 16;

impl<S: StateMachine> Hash for Client<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.me, self.epoch, &self.replicas, self.next, &self.outstanding).hash(state);
        (&self.fresh, &self.repeats, &self.changes, self.target, self.greeted, self.sweeping).hash(state);
    }
}

impl<S: StateMachine> Client<S> {
    /// The first command that is not known to be executed: the replicas may forget those before it.
    fn below(&self) -> u64 {
        self.outstanding.first().map_or(self.next, |(sequence, _)| sequence)
    }

    fn ask(&mut self, ticket: Ticket, command: S::Command, effects: &mut Effects<Self>) {
        if self.outstanding.len() >= self.service.outstanding {
            return effects.complete_ahead(ticket, Outcome::Refused(Refusal::Overloaded));
        }
        let now = effects.now();
        let sequence = self.next;
        self.next += 1;
        let asked = Asked {
            ticket: Some(ticket),
            answered: false,
            command,
            at: now,
            due: now + self.service.retry,
            attempts: 0,
            touching: false,
            votes: Vec::new(),
        };
        self.outstanding.insert(sequence, asked);
        self.tickets.insert(ticket.0, sequence);
        self.fresh.push(sequence);
        self.sweep_soon(effects);
    }

    fn sweep_soon(&mut self, effects: &mut Effects<Self>) {
        if !self.sweeping {
            self.sweeping = true;
            effects.arm(Timer::Sweep, self.service.retry / SWEEPS);
        }
    }

    fn send_fresh(&mut self, effects: &mut Effects<Self>) {
        let (mut repeats, mut fresh) = (std::mem::take(&mut self.repeats), std::mem::take(&mut self.fresh));
        effects.repeating(|effects| self.send_asks(&mut repeats, effects));
        self.send_asks(&mut fresh, effects);
        (self.repeats, self.fresh) = (repeats, fresh);
    }

    /// Asks all replicas for these, and clears them.
    fn send_asks(&self, sequences: &mut Vec<u64>, effects: &mut Effects<Self>) {
        if sequences.is_empty() {
            return;
        }
        let outstanding = &self.outstanding;
        let ask = |sequence: u64| {
            let asked = outstanding.get(sequence)?;
            Some(Ask { sequence, command: asked.command.clone(), touching: asked.touching, synced: false })
        };
        let asks: Vec<_> = sequences.drain(..).filter_map(ask).collect();
        if asks.is_empty() {
            return;
        }
        let (client, below) = (self.me, self.below());
        for replica in &self.replicas {
            // Not sent on: the others have it as well.
            let requests = |asks| {
                let said = crate::stream::Said::Freely;
                Message::Requests { client, below, under: None, asks, forwarded: true, said }
            };
            in_parts(asks.clone(), |asks| effects.send(*replica, requests(asks)));
        }
    }

    /// The host is told; the command may still be outstanding.
    fn answer(
        &mut self,
        sequence: u64,
        outcome: Outcome<S::Reply>,
        path: Option<Path>,
        spans: Option<Spans>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        let Some(asked) = self.outstanding.get_mut(sequence) else { return };
        if std::mem::replace(&mut asked.answered, true) {
            return;
        }
        asked.votes = Vec::new();
        if let Some(ticket) = asked.ticket.take() {
            self.tickets.remove(ticket.0);
            effects.complete(ticket, outcome);
        }
        if let Some(path) = path {
            let total = now.since(asked.at);
            let id = CommandId { client: self.me, sequence };
            let phases = match spans {
                Some(spans) if asked.attempts == 0 => phases(total, Some(spans)),
                _ => [Span::ZERO; Phase::ALL.len()],
            };
            effects.mark(Note::Fact(Fact::Committed { id, path, total, phases }));
        }
    }

    fn on_replies(
        &mut self,
        spans: Option<Spans>,
        answers: Vec<(u64, Told<S::Reply>)>,
        effects: &mut Effects<Self>,
    ) {
        let now = effects.now();
        // Where its time went is told only of what took the long way.
        let path = if spans.is_some() { Path::Slow } else { Path::Fast };
        for (sequence, told) in answers {
            let (outcome, path) = match told {
                // The same read is on its way with its effect, and is answered with that.
                Told::Read(_) | Told::Looked(_)
                    if self.outstanding.get(sequence).is_some_and(|asked| asked.touching) =>
                {
                    continue;
                }
                Told::Done(reply) | Told::Looked(reply) => (Outcome::Replied(reply), Some(path)),
                Told::Read(reply) => (Outcome::Replied(reply), Some(Path::Lease)),
                Told::Forgotten => (Outcome::Unknown, None),
                Told::Touches => {
                    if let Some(asked) = self.outstanding.get_mut(sequence)
                        && !std::mem::replace(&mut asked.touching, true)
                    {
                        asked.due = now + self.service.retry;
                        self.fresh.push(sequence);
                    }
                    continue;
                }
                // One replica's queue is full; the others may have taken it. Nothing is speculative here, only who leads reads, and of
                // places the order tells.
                Told::Overloaded | Told::Speculative(_) | Told::Near(_) | Told::Placed(_) => continue,
            };
            self.answer(sequence, outcome, path, spans, effects);
            self.outstanding.remove(sequence);
        }
    }

    /// Votes for commands of this client. A fast quorum of equal ones cannot be undone.
    fn on_cast(
        &mut self,
        from: ProcessId,
        reign: Ballot,
        members: u8,
        votes: Vec<(u64, Slot, u64)>,
        effects: &mut Effects<Self>,
    ) {
        let fast = Quorums::supermajority(usize::from(members));
        let fast = fast - usize::from(self.parameters.mutated(Mutation::FastQuorumTooSmall));
        let together = self.parameters.mutated(Mutation::CountReignsTogether);
        for (sequence, slot, digest) in votes {
            let epoch = self.epoch;
            let Some(asked) = self.outstanding.get_mut(sequence) else { continue };
            if asked.answered {
                continue;
            }
            let on = (epoch, if together { Ballot::ZERO } else { reign }, slot, digest);
            let at = match asked.votes.iter().position(|votes| votes.on == on) {
                Some(at) => at,
                None if asked.votes.len() >= COPIES * usize::from(members) => continue,
                None => {
                    asked.votes.push(Votes { on, voters: Vec::new() });
                    asked.votes.len() - 1
                }
            };
            let counted = &mut asked.votes[at];
            if !counted.voters.contains(&from) {
                counted.voters.push(from);
            }
            if counted.voters.len() >= fast {
                self.certain(sequence, Path::Fast, effects);
            }
        }
    }

    /// A command has a place that it cannot lose: a blind write is answered.
    fn certain(&mut self, sequence: u64, path: Path, effects: &mut Effects<Self>) {
        if self.service.reply != Reply::Commit {
            return;
        }
        let Some(asked) = self.outstanding.get(sequence) else { return };
        if let Some(reply) = S::blind(&asked.command) {
            self.answer(sequence, Outcome::Replied(reply), Some(path), None, effects);
        }
    }

    fn on_order(
        &mut self,
        from: ProcessId,
        epoch: u32,
        said: Said<Entry<S::Command>>,
        effects: &mut Effects<Self>,
    ) {
        if epoch != self.epoch {
            if epoch > self.epoch {
                self.greet(from, effects);
            }
            return;
        }
        match said {
            Said::Cast { incarnation, reign, members, votes } if incarnation == self.me.incarnation => {
                self.on_cast(from, reign, members, votes, effects);
            }
            Said::Placed { incarnation, sequences } if incarnation == self.me.incarnation => {
                for sequence in sequences {
                    self.certain(sequence, Path::Slow, effects);
                }
            }
            _ => {}
        }
    }

    /// Whoever is in a later epoch answers who its members are.
    fn greet(&self, replica: ProcessId, effects: &mut Effects<Self>) {
        let hello = Message::Order { epoch: self.epoch, message: Said::Hello };
        effects.urgently(|effects| effects.send(replica, hello));
    }

    fn on_ended(&mut self, epoch: u32, members: &Arc<[Member]>) {
        if epoch <= self.epoch || members.is_empty() {
            return;
        }
        self.epoch = epoch;
        // Those known before come first, in the order of their distance.
        let is_member = |replica: &ProcessId| members.iter().any(|member| member.process == *replica);
        self.replicas.retain(is_member);
        for member in members.iter() {
            if !self.replicas.contains(&member.process) {
                self.replicas.push(member.process);
            }
        }
        self.target = 0;
        // Votes of the former epoch decide nothing any more; what it left open is asked for again.
        self.fresh.clear();
        self.repeats.clear();
        for (sequence, asked) in self.outstanding.iter_mut() {
            asked.votes.clear();
            self.fresh.push(sequence);
        }
    }

    /// Asks again for what is due, and gives up what is too old.
    fn sweep(&mut self, effects: &mut Effects<Self>) {
        self.sweeping = false;
        let now = effects.now();
        let limit = self.service.limit;
        let old = |asked: &Asked<S::Command>| !asked.answered && now.since(asked.at) >= limit;
        let over: Vec<u64> =
            self.outstanding.iter().filter(|(_, asked)| old(asked)).map(|(sequence, _)| sequence).collect();
        for sequence in over {
            // Its number is below all that are outstanding from now on, so a late copy is not executed.
            self.answer(sequence, Outcome::Unknown, None, None, effects);
            self.outstanding.remove(sequence);
        }
        for ticket in self.changes.expire(now, &self.service) {
            effects.complete(ticket, Outcome::Unknown);
        }
        let mut again = false;
        for (sequence, asked) in self.outstanding.iter_mut() {
            if asked.due <= now {
                asked.attempts += 1;
                asked.due = now + self.service.retry * u64::from(asked.attempts.min(4));
                self.repeats.push(sequence);
                again = true;
            }
        }
        if self.parameters.mutated(Mutation::RetryUnderNewName) && again {
            self.rename();
        }
        self.change_again(now, effects);
        if again || now.since(self.greeted) >= GREET {
            self.greeted = now;
            // The members that this client began with may all be gone.
            let others = self.placed.iter().filter(|placed| !self.replicas.contains(placed));
            self.replicas.iter().chain(others).for_each(|replica| self.greet(*replica, effects));
        }
        if !self.outstanding.is_empty() || !self.changes.is_empty() {
            self.sweep_soon(effects);
        }
    }

    /// The planted bug: what is asked for again is asked for as if for the first time.
    fn rename(&mut self) {
        for old in std::mem::take(&mut self.repeats) {
            if let Some(asked) = self.outstanding.remove(old) {
                if let Some(ticket) = asked.ticket {
                    self.tickets.insert(ticket.0, self.next);
                }
                self.outstanding.insert(self.next, asked);
                self.fresh.push(self.next);
                self.next += 1;
            }
        }
    }

    fn change_again(&mut self, now: Instant, effects: &mut Effects<Self>) {
        let again = self.changes.due(now, &self.service);
        if !again.is_empty() {
            self.target = (self.target + 1) % self.replicas.len();
        }
        for (number, change) in again {
            effects.send(self.replicas[self.target], Message::Administer { number, change });
        }
    }

    fn administer(&mut self, ticket: Ticket, change: Change, effects: &mut Effects<Self>) {
        // Numbers of changes are drawn from those of commands, which need not be dense at the replicas.
        let number = self.changes.begin(self.next, ticket, change, effects.now(), &self.service);
        self.next += 1;
        effects.send(self.replicas[self.target], Message::Administer { number, change });
        self.sweep_soon(effects);
    }

    fn on_administered(
        &mut self,
        number: u64,
        result: Result<(), Refusal>,
        leader: Option<ProcessId>,
        effects: &mut Effects<Self>,
    ) {
        match self.changes.answered(number, result) {
            Some(Answered::Over(ticket, outcome)) => effects.complete(ticket, outcome),
            Some(Answered::Elsewhere(_)) => {
                self.changes.hasten(number, effects.now(), &self.service);
                if let Some(at) = self.replicas.iter().position(|replica| Some(*replica) == leader) {
                    // The sweep goes on from the one before.
                    self.target = (at + self.replicas.len() - 1) % self.replicas.len();
                }
            }
            None => {}
        }
    }
}

impl<S: StateMachine> Process for Client<S> {
    type Setup = Setup<Parameters>;
    type Message = Spoken<S>;
    type Record = ();
    type Request = Request<S::Command>;
    type Outcome = Outcome<S::Reply>;
    type Timer = Timer;
    type Mark = Note<Nothing>;

    fn open(identity: Identity, setup: &Self::Setup) -> Self {
        assert!(!setup.replicas.is_empty(), "a client needs replicas");
        let is_member = |placed: &&ProcessId| setup.members.iter().any(|member| member.process == **placed);
        Client {
            me: identity.into(),
            service: setup.service,
            parameters: setup.parameters,
            epoch: 0,
            replicas: setup.replicas.iter().filter(is_member).copied().collect(),
            placed: setup.replicas.clone(),
            next: 1,
            outstanding: Series::default(),
            tickets: Series::default(),
            fresh: Vec::new(),
            repeats: Vec::new(),
            changes: Changes::of(identity.incarnation),
            target: 0,
            greeted: Instant::ZERO,
            sweeping: false,
        }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Err(Malformed { what: "client snapshot", cause: "a client keeps nothing".to_owned() })
    }

    fn replay(&mut self, (): ()) {}

    fn start(&mut self, effects: &mut Effects<Self>) {
        self.greeted = effects.now();
    }

    fn receive(&mut self, from: ProcessId, message: Self::Message, effects: &mut Effects<Self>) {
        match message {
            Message::Order { epoch, message } => self.on_order(from, epoch, message, effects),
            Message::Ended { epoch, members } => self.on_ended(epoch, &members),
            Message::Replies { incarnation, spans, answers, .. } if incarnation == self.me.incarnation => {
                self.on_replies(spans, answers, effects);
            }
            // The sender is no member any more: it knows who are.
            Message::Redirect { incarnation, .. } if incarnation == self.me.incarnation => {
                self.greet(from, effects);
            }
            Message::Administered { number, result, leader } => {
                self.on_administered(number, result, leader, effects);
            }
            // Answers to a former life, and what is for replicas.
            _ => {}
        }
    }

    fn request(&mut self, ticket: Ticket, request: Request<S::Command>, effects: &mut Effects<Self>) {
        match request {
            Request::Command(command) => self.ask(ticket, command, effects),
            Request::Change(change) => self.administer(ticket, change, effects),
            Request::Move { .. } | Request::Survey => {
                effects.complete_ahead(ticket, Outcome::Refused(Refusal::Unmovable));
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Effects<Self>) {
        if let Some(sequence) = self.tickets.remove(ticket.0)
            && self.outstanding.get(sequence).is_some_and(|asked| !asked.answered)
        {
            self.outstanding.remove(sequence);
        }
        self.changes.cancel(ticket);
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Sweep => self.sweep(effects),
        }
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        self.send_fresh(effects);
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn check(&self) {
        assert!(self.outstanding.len() <= self.service.outstanding, "more outstanding than allowed");
        assert!(self.tickets.len() <= self.outstanding.len(), "a ticket without a command");
    }
}
