//! Sessions: what they ask, and what comes back to the driver.

use crate::driver::{Driver, Next, Session};
use crate::fault::FaultKind;
use crate::oracle::ViolationKind;
use crate::simulation::{Due, Simulation};
use crate::trace::{FlowEvent, label};
use crate::world::{Event, Input, Outcome, Outgoing};
use isochrone_core::{Instant, Protocol, Ticket};
use std::collections::VecDeque;

/// Tickets of sessions carry this bit, the session's number below it and a count above.
const SESSION_BIT: u64 = 1 << 62;
/// Sessions of one simulation: their numbers lie below this.
pub const SESSION_NUMBERS: u64 = 1 << 20;

pub(crate) struct SessionState<F: Protocol> {
    pub(crate) session: Session,
    pub(crate) process: u32,
    /// Open tickets, with the time they were opened.
    pub(crate) open: VecDeque<(u64, u64)>,
    /// What it asks next: when, what, and whether it waits for the answer.
    pub(crate) pending: Option<(u64, F::Request, bool)>,
    /// The ticket that a closed loop waits for.
    pub(crate) waits: Option<u64>,
    pub(crate) done: bool,
    pub(crate) ended: bool,
    pub(crate) scheduled: bool,
}

impl<F: Protocol> Simulation<F> {
    /// A session takes its next step at this time.
    pub(crate) fn schedule(&mut self, session: u32, at: u64) {
        let state = &mut self.sessions[session as usize];
        if !state.ended && !std::mem::replace(&mut state.scheduled, true) {
            self.world.queue.push(at, Event::Session { session });
        }
    }

    pub(crate) fn session(&mut self, number: u32, driver: &mut dyn Driver<F>) {
        let now = self.world.now;
        let state = &mut self.sessions[number as usize];
        state.scheduled = false;
        if state.ended {
            return;
        }
        let place = &mut self.world.places[state.process as usize];
        if self.world.nodes[place.node as usize].lost {
            (state.done, state.pending) = (true, None);
        } else if !place.up && !state.done {
            place.parked.push(number);
            return;
        }
        if state.done {
            if state.open.is_empty() {
                state.ended = true;
                self.active -= 1;
            }
            return;
        }
        if state.waits.is_some() {
            return;
        }
        if state.pending.is_none() {
            state.pending = match driver.next(state.session, Instant::from_nanos(now)) {
                Next::Request { at, request } => Some((at.as_nanos(), request, true)),
                Next::Arrival { at, request } => Some((at.as_nanos(), request, false)),
                Next::Done => {
                    state.done = true;
                    return self.schedule(number, now);
                }
            };
        }
        match state.pending.take() {
            Some((at, request, waits)) if at <= now => self.ask(number, request, waits, driver),
            later => {
                let at = later.as_ref().map_or(now, |(at, ..)| *at);
                state.pending = later;
                self.schedule(number, at);
            }
        }
    }

    pub(crate) fn ask(&mut self, number: u32, request: F::Request, waits: bool, driver: &mut dyn Driver<F>) {
        self.tickets += 1;
        let ticket = SESSION_BIT | (self.tickets * SESSION_NUMBERS) | u64::from(number);
        let state = &mut self.sessions[number as usize];
        state.open.push_back((ticket, self.world.now));
        state.waits = waits.then_some(ticket);
        let (session, process) = (state.session, state.process);
        driver.invoked(session, Ticket(ticket), self.now());
        self.asked(process, Ticket(ticket), request);
        if !waits {
            self.schedule(number, self.world.now);
        }
    }

    pub(crate) fn asked(&mut self, process: u32, ticket: Ticket, request: F::Request) {
        let node = self.world.places[process as usize].node as usize;
        self.world.trace.digest.fold(self.world.now ^ u64::from(process) << 32);
        self.world.trace.note(self.world.now, Some(node), || FlowEvent::Request(label(&request)));
        self.give(process, Input::Request { ticket, request });
    }

    /// Hands what left to the driver.
    pub(crate) fn deliver(&mut self, driver: &mut dyn Driver<F>) {
        let now = self.now();
        while !self.world.outgoing.is_empty() || !self.due.is_empty() {
            for due in std::mem::take(&mut self.due) {
                match due {
                    Due::Healed => driver.healed(now),
                    Due::Membership => {
                        let orders = driver.admin(now, &mut self.world.random);
                        for order in orders {
                            self.world.faults.add(FaultKind::Membership);
                            self.order(order);
                        }
                    }
                }
            }
            std::mem::swap(&mut self.spare, &mut self.world.outgoing);
            let mut leaving = std::mem::take(&mut self.spare);
            for outgoing in leaving.drain(..) {
                match outgoing {
                    Outgoing::Fact { process, at, fact } => {
                        driver.fact(self.world.places[process as usize].id, &fact, Instant::from_nanos(at));
                    }
                    Outgoing::Answer { process, at, ticket, outcome, last } => {
                        self.answer((process, at), ticket, outcome, last, driver);
                    }
                    Outgoing::Lost { session, ticket } => {
                        if self.close(session, ticket, now.as_nanos()) {
                            self.lost += 1;
                            let session = self.sessions[session as usize].session;
                            driver.lost(session, Ticket(ticket), now);
                        }
                    }
                }
            }
            self.spare = leaving;
        }
    }

    pub(crate) fn answer(
        &mut self,
        (process, at): (u32, u64),
        ticket: Ticket,
        outcome: Outcome<F>,
        last: bool,
        driver: &mut dyn Driver<F>,
    ) {
        let now = Instant::from_nanos(at);
        let place = &self.world.places[process as usize];
        let outcome = match outcome {
            Outcome::Client(outcome) => outcome,
            Outcome::Server(outcome) => return driver.administered(place.id, ticket, outcome),
        };
        self.world.trace.digest.fold(now.as_nanos() ^ ticket.0.rotate_left(32));
        let node = place.node as usize;
        self.world.trace.note(now.as_nanos(), Some(node), || FlowEvent::Answer(label(&outcome)));
        if ticket.0 & SESSION_BIT == 0 {
            return driver.answered(place.id, ticket, outcome, last);
        }
        let number = (ticket.0 % SESSION_NUMBERS) as usize;
        let state = &mut self.sessions[number];
        if !state.open.iter().any(|(open, _)| *open == ticket.0) {
            let text = format!("{} answered {ticket}, which is not open: {outcome:?}", place.id);
            self.world.broken.get_or_insert((ViolationKind::Ticket, text));
            return;
        }
        let session = state.session;
        if last {
            self.operations += 1;
            self.close(number as u32, ticket.0, at);
            driver.completed(session, ticket, outcome, now);
        } else {
            driver.emitted(session, ticket, outcome, now);
        }
    }

    /// Closes a ticket and lets its session go on at `at`; false where it is not open.
    pub(crate) fn close(&mut self, number: u32, ticket: u64, at: u64) -> bool {
        let state = &mut self.sessions[number as usize];
        let Some(position) = state.open.iter().position(|(open, _)| *open == ticket) else { return false };
        state.open.remove(position);
        let waited = state.waits == Some(ticket);
        if waited {
            state.waits = None;
        }
        if waited || (state.done && state.open.is_empty()) {
            self.schedule(number, at);
        }
        true
    }
}
