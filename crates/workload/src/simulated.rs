//! Sessions of a workload as the clients of a simulated cluster: what they ask, how long they wait, and the
//! history of what they saw.

use crate::{Kind, Pace, Recorder, Request, Session, Window, Workload, described, value};
use isochrone_check as check;
use isochrone_core::command::{Command, Operation, Response};
use isochrone_core::{Instant, NodeId, Protocol, Random, Span, Stamp, Ticket};
use isochrone_sim::{Admin, Driver, Next, Session as Seat};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a client process says of a command, in words that all protocols share.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It was executed.
    Replied(Response),
    /// It was not and will not be.
    Refused(String),
    /// Nobody knows.
    Unknown,
}

/// What the clients of one run do.
#[derive(Clone, Debug)]
pub struct Script {
    /// What they ask.
    pub workload: Workload,
    /// When.
    pub pace: Pace,
    /// No request is made later than this.
    pub until: Instant,
    /// No session makes more requests than this.
    pub requests_max: u64,
    /// Sessions in all.
    pub sessions: u32,
    /// The part of the run whose latencies count.
    pub window: Window,
    /// Of what is asked.
    pub seed: u64,
    /// Whether the history is kept.
    pub history: bool,
    /// Where things go wrong: when the reads begin with which, after `until`, the first session of each node ends
    /// ([`Workload::closing`]).
    pub closing: Option<Instant>,
    /// How far a session's wall clock may be off, either way: the stamps of its commands.
    pub skew_max: Span,
    /// The region of each node, for the recorder.
    pub region_of: Vec<usize>,
}

/// Orders the changes of membership that are due.
pub type Operators = Box<dyn Fn(&mut Random) -> Vec<Admin>>;

/// The driver of a run.
pub struct Clients<F: Protocol> {
    script: Script,
    request: fn(Command) -> F::Request,
    answer: fn(F::Outcome) -> Answer,
    admin: Operators,
    sessions: BTreeMap<u32, Client>,
    recorder: Recorder,
    operations: Vec<check::Operation>,
    refused: u64,
    unknown: u64,
    /// The nodes of the sessions that end the run.
    closers: BTreeSet<NodeId>,
    /// What they were not answered in time.
    unserved: Vec<String>,
}

struct Client {
    session: Session,
    random: Random,
    region: usize,
    /// Nanoseconds that its wall clock is ahead, or behind where negative.
    skew: i64,
    due: Instant,
    asked: u64,
    sequence: u64,
    /// The command that was handed out and not yet given a ticket, then those under way.
    next: Option<Pending>,
    pending: BTreeMap<Ticket, Pending>,
    /// The second half of a request, to be asked when the first is answered.
    then: Option<(Kind, Instant, Operation)>,
    /// What it ends with.
    closing: VecDeque<Closing>,
}

/// Something that a session ends with.
struct Closing {
    operation: Operation,
    not_before: Instant,
    /// When it was asked first.
    since: Option<Instant>,
}

struct Pending {
    kind: Kind,
    due: Instant,
    invoked: Instant,
    sequence: u64,
    command: Command,
    then: Option<Operation>,
    /// It is what the session ends with, and was first asked then.
    closing: Option<Instant>,
}

/// What is asked when all faults have ended is answered within this, or a node does not serve: longer than one try of a
/// client, which may have begun with one that is away.
const SERVED_WITHIN: Span = Span::from_secs(30);

/// So long after a failure it is tried again.
const PAUSE: Span = Span::from_millis(200);

/// The wall clock at the start of every run: some time in 2025.
const EPOCH: Stamp = Stamp::from_nanos(1_750_000_000_000_000_000);

impl<F: Protocol> Clients<F> {
    /// The clients of one run, how their protocol is spoken with, and what its operators order when a change
    /// of membership is due.
    pub fn new(
        script: Script,
        request: fn(Command) -> F::Request,
        answer: fn(F::Outcome) -> Answer,
        admin: Operators,
    ) -> Clients<F> {
        let recorder = Recorder::new(script.window);
        Clients {
            script,
            request,
            answer,
            admin,
            sessions: BTreeMap::new(),
            recorder,
            operations: Vec::new(),
            refused: 0,
            unknown: 0,
            closers: BTreeSet::new(),
            unserved: Vec::new(),
        }
    }

    /// What was not answered in time after all faults had ended.
    pub fn unserved(&self) -> &[String] {
        &self.unserved
    }

    /// The latencies of the answered requests.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// How many commands were refused, and how many nobody knows of.
    pub fn unanswered(&self) -> (u64, u64) {
        (self.refused, self.unknown)
    }

    /// The history, with what is still under way as unknown.
    pub fn into_history(mut self) -> check::History {
        let sessions = std::mem::take(&mut self.sessions);
        for (number, client) in sessions {
            for pending in client.pending.into_values() {
                self.note(number, pending, None, check::Outcome::Unknown, None);
            }
        }
        check::History::new(self.operations)
    }

    fn client(&mut self, seat: Seat) -> &mut Client {
        let (script, closers) = (&self.script, &mut self.closers);
        self.sessions.entry(seat.number).or_insert_with(|| {
            let closing = script.closing.filter(|_| closers.insert(seat.client.node));
            let closing = closing.map_or_else(VecDeque::new, |reads_at| {
                let first = script.until + Span::from_millis(1);
                let not_before = std::iter::once(first).chain(std::iter::repeat(reads_at));
                let asked = script.workload.closing().zip(not_before);
                asked.map(|(operation, not_before)| Closing { operation, not_before, since: None }).collect()
            });
            let mut random =
                Random::seeded(script.seed ^ u64::from(seat.number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let skew =
                random.below(2 * script.skew_max.as_nanos() + 1) as i64 - script.skew_max.as_nanos() as i64;
            Client {
                session: script.workload.session(seat.number, script.sessions, random.fork()),
                due: script.pace.first(Instant::ZERO, &mut random),
                random,
                region: script.region_of.get(usize::from(seat.client.node.0)).copied().unwrap_or(0),
                skew,
                asked: 0,
                sequence: 0,
                next: None,
                pending: BTreeMap::new(),
                then: None,
                closing,
            }
        })
    }

    fn end(
        &mut self,
        seat: Seat,
        ticket: Ticket,
        answer: Option<Response>,
        outcome: check::Outcome,
        now: Instant,
    ) {
        let pace = self.script.pace;
        let Some(client) = self.sessions.get_mut(&seat.number) else { return };
        let Some(mut pending) = client.pending.remove(&ticket) else { return };
        let returned = (outcome != check::Outcome::Unknown).then_some(now);
        if let Some(since) = pending.closing {
            if now.since(since) > SERVED_WITHIN {
                let (node, what) = (seat.client.node, described(&pending.command.operation).0);
                let took = now.since(since);
                self.unserved.push(format!(
                    "{node} was asked for {what} at {since} and had not answered {took} later: {outcome:?}"
                ));
                client.closing.clear();
            } else if outcome != check::Outcome::Ok {
                let operation = pending.command.operation.clone();
                let again = Closing { operation, not_before: now + PAUSE, since: Some(since) };
                client.closing.push_front(again);
            }
            return self.note(seat.number, pending, returned, outcome, answer);
        }
        match (outcome, pending.then.take()) {
            (check::Outcome::Ok, Some(then)) => client.then = Some((pending.kind, pending.due, then)),
            (check::Outcome::Ok, None) => self.recorder.record(client.region, pending.kind, pending.due, now),
            _ => {}
        }
        if let (Pace::Closed { .. }, None) = (pace, &client.then) {
            let not_before = Pace::not_before(pending.invoked, now);
            client.due = pace.next(pending.due, now, &mut client.random).max(not_before);
        }
        match outcome {
            check::Outcome::Ok => {}
            check::Outcome::Failed => self.refused += 1,
            check::Outcome::Unknown => self.unknown += 1,
        }
        self.note(seat.number, pending, returned, outcome, answer);
    }

    fn note(
        &mut self,
        session: u32,
        pending: Pending,
        returned: Option<Instant>,
        outcome: check::Outcome,
        answer: Option<Response>,
    ) {
        if !self.script.history {
            return;
        }
        let (op, keys, args) = described(&pending.command.operation);
        self.operations.push(check::Operation {
            client: u64::from(session),
            session: 0,
            sequence: pending.sequence,
            keys: keys.into_iter().map(Into::into).collect(),
            op: op.into(),
            args,
            stamp: Some(pending.command.stamp.as_nanos()),
            invoked: pending.invoked.as_nanos(),
            returned: returned.map(Instant::as_nanos),
            outcome,
            value: answer.as_ref().map(value),
        });
    }
}

impl<F: Protocol> Driver<F> for Clients<F> {
    fn next(&mut self, seat: Seat, now: Instant) -> Next<F::Request> {
        let (pace, until, most) = (self.script.pace, self.script.until, self.script.requests_max);
        let request = self.request;
        let client = self.client(seat);
        let at;
        let pending = match client.then.take() {
            Some((kind, due, operation)) => {
                at = now;
                client.prepare(kind, due, at, operation, None)
            }
            None => {
                let due = client.due;
                if due >= until || client.asked >= most {
                    let Some(closing) = client.closing.pop_front() else { return Next::Done };
                    let at = closing.not_before.max(now);
                    let mut pending = client.prepare(Kind::Read, at, at, closing.operation, None);
                    pending.closing = Some(closing.since.unwrap_or(at));
                    let request = request(pending.command.clone());
                    client.next = Some(pending);
                    return Next::Request { at, request };
                }
                at = due.max(now);
                client.asked += 1;
                let stamp = client.stamp(at);
                let Request { kind, first, then } = client.session.next(Some(stamp));
                if let Pace::Open { .. } = pace {
                    client.due = pace.next(due, at, &mut client.random);
                }
                client.prepare(kind, due, at, first, then)
            }
        };
        let request = request(pending.command.clone());
        client.next = Some(pending);
        match pace {
            Pace::Closed { .. } => Next::Request { at, request },
            Pace::Open { .. } => Next::Arrival { at, request },
        }
    }

    fn invoked(&mut self, seat: Seat, ticket: Ticket, now: Instant) {
        let client = self.client(seat);
        if let Some(mut pending) = client.next.take() {
            pending.invoked = now;
            client.pending.insert(ticket, pending);
        }
    }

    fn completed(&mut self, seat: Seat, ticket: Ticket, outcome: F::Outcome, now: Instant) {
        match (self.answer)(outcome) {
            Answer::Replied(response) => self.end(seat, ticket, Some(response), check::Outcome::Ok, now),
            Answer::Refused(_) => self.end(seat, ticket, None, check::Outcome::Failed, now),
            Answer::Unknown => self.end(seat, ticket, None, check::Outcome::Unknown, now),
        }
    }

    fn admin(&mut self, _now: Instant, random: &mut Random) -> Vec<Admin> {
        (self.admin)(random)
    }

    fn lost(&mut self, seat: Seat, ticket: Ticket, now: Instant) {
        self.end(seat, ticket, None, check::Outcome::Unknown, now);
    }
}

impl Client {
    fn prepare(
        &mut self,
        kind: Kind,
        due: Instant,
        at: Instant,
        operation: Operation,
        then: Option<Operation>,
    ) -> Pending {
        self.sequence += 1;
        let command = Command::new(self.stamp(at), operation);
        Pending { kind, due, invoked: at, sequence: self.sequence, command, then, closing: None }
    }

    fn stamp(&self, at: Instant) -> Stamp {
        Stamp::from_nanos((EPOCH.as_nanos() + at.as_nanos()).wrapping_add_signed(self.skew))
    }
}
