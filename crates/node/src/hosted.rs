//! A process behind one type: [`Hosted`] is what a shard sees, [`Adapter`] makes it of any [`Process`].
//!
//! The adapter keeps what is typed (held effects, timers, requests) and hands bytes and boxes to the
//! shard through [`Io`]. Numbers in comments are the host's duties in `isochrone_core::process`.

use crate::books::Books;
use crate::gateway;
use crate::io::{Answer, Io, Reply};
use isochrone_core::command::Command;
use isochrone_core::wire::{DecodeError, decode};
use isochrone_core::{
    Blob, Effect, Identity, Instant, Lane, Malformed, Mark, Outbox, Process, ProcessId, Random, Snapshot,
    Stamp, Ticket, Urgency,
};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thiserror::Error;

/// A process as its shard sees it. Each call that takes [`Io`] is one input or none: its effects are in
/// `io`, or held, when the call returns.
pub trait Hosted: Send {
    /// Which process, in which of its lives.
    fn identity(&self) -> Identity;

    /// A chunk of its newest snapshot; before any record.
    ///
    /// # Errors
    /// A chunk that no version has written.
    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed>;

    /// A durable record, in order; before `start`.
    ///
    /// # Errors
    /// Bytes that are no record.
    fn replay(&mut self, record: &[u8]) -> Result<(), DecodeError>;

    /// Begins to act.
    fn start(&mut self, io: &mut Io);

    /// A message of another node.
    ///
    /// # Errors
    /// Bytes that are no message: the peer is broken or hostile.
    fn receive(&mut self, from: ProcessId, body: &[u8], io: &mut Io) -> Result<(), DecodeError>;

    /// A message of a process of this node.
    ///
    /// # Errors
    /// A message of another protocol: the placement names a wrong receiver.
    fn receive_local(
        &mut self,
        from: ProcessId,
        message: Box<dyn Any + Send>,
        io: &mut Io,
    ) -> Result<(), Foreign>;

    /// A client's command. Only processes that were placed as clients take one.
    ///
    /// # Errors
    /// The process takes no commands.
    fn execute(&mut self, ticket: Ticket, command: Command, io: &mut Io) -> Result<(), Foreign>;

    /// What a client asks that speaks in transactions. Only client processes of protocols that have them take it.
    ///
    /// # Errors
    /// The process takes no transactions.
    fn transact(
        &mut self,
        ticket: Ticket,
        transaction: gateway::Transaction,
        io: &mut Io,
    ) -> Result<(), Foreign>;

    /// A request in the process' own words (`P::Request` in a box): administration, tests.
    ///
    /// # Errors
    /// The box holds something else.
    fn request(&mut self, ticket: Ticket, request: Box<dyn Any + Send>, io: &mut Io) -> Result<(), Foreign>;

    /// The answer to this ticket is no longer wanted.
    fn cancel(&mut self, ticket: Ticket, io: &mut Io);

    /// Fires every timer whose deadline has come, each once, in order of deadline.
    fn expire(&mut self, io: &mut Io);

    /// No more input is at hand.
    fn settle(&mut self, io: &mut Io);

    /// Lets go what was held for records that are durable now. Whether anything went.
    fn release(&mut self, io: &mut Io) -> bool;

    /// When its next timer is due; [`Instant::MAX`] where none runs.
    fn next_deadline(&self) -> Instant;

    /// Its durable state, see [`Process::snapshot`].
    fn snapshot(&self) -> Option<Snapshot>;

    /// What it has recorded, and its snapshots.
    fn books(&self) -> &Books;

    /// The same, for who has a snapshot written.
    fn books_mut(&mut self) -> &mut Books;

    /// See [`Process::overdue`].
    fn overdue(&self, stamp: Stamp, most: usize) -> Vec<Blob>;

    /// Asserts the process' invariants.
    fn check(&self);
}

/// What was handed to a process does not belong to its protocol.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
#[error("{process} was given a {what} of another protocol; the placement is wrong")]
pub struct Foreign {
    /// The receiver.
    pub process: ProcessId,
    /// What it was given.
    pub what: &'static str,
}

/// How a protocol's client process speaks with the gateways: the translations, as plain functions.
pub struct Bridge<P: Process> {
    /// From a gateway's command.
    pub request: fn(Command) -> P::Request,
    /// From a gateway's transaction, taken up at this time, where the protocol has transactions.
    pub transaction: Option<fn(gateway::Transaction, Stamp) -> P::Request>,
    /// To a gateway's outcome.
    pub outcome: fn(P::Outcome) -> gateway::Outcome,
}

impl<P: Process> Clone for Bridge<P> {
    fn clone(&self) -> Bridge<P> {
        *self
    }
}

impl<P: Process> Copy for Bridge<P> {}

/// Makes any process a [`Hosted`] one.
pub struct Adapter<P: Process> {
    identity: Identity,
    process: P,
    outbox: Outbox<P>,
    bridge: Option<Bridge<P>>,
    /// The journal position of the newest record that holds back; 0 before the first.
    barrier: u64,
    books: Books,
    /// What waits, with the position it waits for; positions never fall from front to back.
    held: VecDeque<(u64, Held<P>)>,
    deadlines: BTreeSet<(Instant, u64, P::Timer)>,
    armed: BTreeMap<P::Timer, (Instant, u64)>,
    arms: u64,
}

enum Held<P: Process> {
    Send(ProcessId, P::Message, Urgency),
    Answer(Ticket, P::Outcome, bool),
    Mark(P::Mark),
}

impl<P: Process> Adapter<P> {
    /// Opens the process. Nothing acts before [`Hosted::start`].
    pub fn open(
        identity: Identity,
        setup: &P::Setup,
        bridge: Option<Bridge<P>>,
        random: Random,
    ) -> Adapter<P> {
        Adapter {
            identity,
            process: P::open(identity, setup),
            outbox: Outbox::new(identity.process, random),
            bridge,
            barrier: 0,
            books: Books::default(),
            held: VecDeque::new(),
            deadlines: BTreeSet::new(),
            armed: BTreeMap::new(),
            arms: 0,
        }
    }

    /// One input, and its effects in order.
    fn input(&mut self, io: &mut Io, input: impl FnOnce(&mut P, &mut isochrone_core::Effects<P>)) {
        input(&mut self.process, self.outbox.input(io.now, io.stamp));
        if !self.outbox.is_empty() {
            self.carry_out(io);
        }
    }

    /// The effects of an input, in order; one copy serves all kinds of input.
    fn carry_out(&mut self, io: &mut Io) {
        let me = self.identity.process;
        for effect in self.outbox.drain() {
            match effect {
                Effect::Record { record, haste } => {
                    let (position, bytes) = io.record(me, &record, haste);
                    self.books.record(bytes as u64);
                    if haste.holds() {
                        self.barrier = position;
                    }
                }
                Effect::Arm { timer, after } => {
                    self.arms += 1;
                    let due = (io.now + after, self.arms);
                    if let Some(old) = self.armed.insert(timer.clone(), due) {
                        self.deadlines.remove(&(old.0, old.1, timer.clone()));
                    }
                    self.deadlines.insert((due.0, due.1, timer));
                }
                Effect::Disarm { timer } => {
                    if let Some(old) = self.armed.remove(&timer) {
                        self.deadlines.remove(&(old.0, old.1, timer));
                    }
                }
                Effect::Send { to, message, lane: Lane::Ahead, urgency } => {
                    // Lost as on a network, where the disk that this process waits for hangs.
                    let mute = io.hangs() && self.barrier > io.durable && to != me;
                    if !mute {
                        io.send(me, to, message, urgency);
                    }
                }
                Effect::Complete { ticket, outcome, lane: Lane::Ahead } => {
                    answer(self.bridge, io, me, ticket, outcome, true);
                }
                Effect::Send { to, message, lane: Lane::Held, urgency } => {
                    if self.held.is_empty() && self.barrier <= io.durable {
                        io.send(me, to, message, urgency);
                    } else {
                        self.held.push_back((self.barrier, Held::Send(to, message, urgency)));
                    }
                }
                Effect::Complete { ticket, outcome, lane: Lane::Held } => {
                    if self.held.is_empty() && self.barrier <= io.durable {
                        answer(self.bridge, io, me, ticket, outcome, true);
                    } else {
                        self.held.push_back((self.barrier, Held::Answer(ticket, outcome, true)));
                    }
                }
                Effect::Emit { ticket, outcome } => {
                    if self.held.is_empty() && self.barrier <= io.durable {
                        answer(self.bridge, io, me, ticket, outcome, false);
                    } else {
                        self.held.push_back((self.barrier, Held::Answer(ticket, outcome, false)));
                    }
                }
                Effect::Mark(mark) => {
                    if self.held.is_empty() && self.barrier <= io.durable {
                        note(io, me, &mark);
                    } else {
                        self.held.push_back((self.barrier, Held::Mark(mark)));
                    }
                }
            }
        }
    }

    fn foreign(&self, what: &'static str) -> Foreign {
        Foreign { process: self.identity.process, what }
    }
}

fn answer<P: Process>(
    bridge: Option<Bridge<P>>,
    io: &mut Io,
    process: ProcessId,
    ticket: Ticket,
    outcome: P::Outcome,
    last: bool,
) {
    let reply = match bridge {
        Some(bridge) => Reply::Outcome((bridge.outcome)(outcome)),
        None => Reply::Raw(Box::new(outcome)),
    };
    io.answers.push_back(Answer { process, ticket, reply, last });
}

fn note<M: Mark>(io: &mut Io, me: ProcessId, mark: &M) {
    if let Some(fact) = mark.fact() {
        io.facts.push_back((me, fact));
    }
}

impl<P: Process> Hosted for Adapter<P> {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.books.restore(chunk.len() as u64);
        self.process.restore(chunk)
    }

    fn replay(&mut self, record: &[u8]) -> Result<(), DecodeError> {
        self.process.replay(decode(record)?);
        self.books.record(record.len() as u64);
        Ok(())
    }

    fn start(&mut self, io: &mut Io) {
        self.input(io, |process, effects| process.start(effects));
    }

    fn receive(&mut self, from: ProcessId, body: &[u8], io: &mut Io) -> Result<(), DecodeError> {
        let message = decode(body)?;
        self.input(io, |process, effects| process.receive(from, message, effects));
        Ok(())
    }

    fn receive_local(
        &mut self,
        from: ProcessId,
        message: Box<dyn Any + Send>,
        io: &mut Io,
    ) -> Result<(), Foreign> {
        let message = message.downcast::<P::Message>().map_err(|_| self.foreign("message"))?;
        self.input(io, |process, effects| process.receive(from, *message, effects));
        Ok(())
    }

    fn execute(&mut self, ticket: Ticket, command: Command, io: &mut Io) -> Result<(), Foreign> {
        let request = (self.bridge.ok_or_else(|| self.foreign("command"))?.request)(command);
        self.input(io, |process, effects| process.request(ticket, request, effects));
        Ok(())
    }

    fn transact(
        &mut self,
        ticket: Ticket,
        transaction: gateway::Transaction,
        io: &mut Io,
    ) -> Result<(), Foreign> {
        let translate = self.bridge.and_then(|bridge| bridge.transaction);
        let request = translate.ok_or_else(|| self.foreign("transaction"))?(transaction, io.stamp);
        self.input(io, |process, effects| process.request(ticket, request, effects));
        Ok(())
    }

    fn request(&mut self, ticket: Ticket, request: Box<dyn Any + Send>, io: &mut Io) -> Result<(), Foreign> {
        let request = request.downcast::<P::Request>().map_err(|_| self.foreign("request"))?;
        self.input(io, |process, effects| process.request(ticket, *request, effects));
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket, io: &mut Io) {
        self.input(io, |process, effects| process.cancel(ticket, effects));
        // What was answered before the host changed its mind may still lie here; it is no longer wanted.
        self.held.retain(|(_, held)| !matches!(held, Held::Answer(of, ..) if *of == ticket));
    }

    fn expire(&mut self, io: &mut Io) {
        // Timers armed by these handlers wait for the next turn even when due at once: a process that
        // re-arms with zero must not keep the loop for itself.
        let arms = self.arms;
        while let Some((due, arm, _)) = self.deadlines.first()
            && *due <= io.now
            && *arm <= arms
            && let Some((_, _, timer)) = self.deadlines.pop_first()
        {
            self.armed.remove(&timer);
            self.input(io, |process, effects| process.expire(timer, effects));
        }
    }

    fn settle(&mut self, io: &mut Io) {
        self.input(io, |process, effects| process.settle(effects));
    }

    fn release(&mut self, io: &mut Io) -> bool {
        let me = self.identity.process;
        let mut any = false;
        while let Some((_, held)) = self.held.pop_front_if(|(position, _)| *position <= io.durable) {
            any = true;
            match held {
                Held::Send(to, message, urgency) => io.send(me, to, message, urgency),
                Held::Answer(ticket, outcome, last) => answer(self.bridge, io, me, ticket, outcome, last),
                Held::Mark(mark) => note(io, me, &mark),
            }
        }
        any
    }

    fn next_deadline(&self) -> Instant {
        self.deadlines.first().map_or(Instant::MAX, |(due, ..)| *due)
    }

    fn snapshot(&self) -> Option<Snapshot> {
        self.process.snapshot()
    }

    fn books(&self) -> &Books {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books {
        &mut self.books
    }

    fn overdue(&self, stamp: Stamp, most: usize) -> Vec<Blob> {
        self.process.overdue(stamp, most)
    }

    fn check(&self) {
        self.process.check();
    }
}
