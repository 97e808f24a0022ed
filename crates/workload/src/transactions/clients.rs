//! Sessions of transactions as the clients of a simulated cluster: what they ask, and the history of what they saw.

use super::figures::{End, Figures};
use super::history::{History, Tried};
use super::plan::{Kind, Plan};
use super::workload::{Session, Workload};
use crate::{Pace, Window};
use isochrone_check as check;
use isochrone_check::transactions::Transactions;
use isochrone_core::{Instant, NodeId, Protocol, Random, Span, Ticket};
use isochrone_sim::{Admin, Driver, Next, Session as Seat};
use isochrone_transactions::retry::Retry;
use isochrone_transactions::{Outcome, Read, Reason, Request, TxnId, Update};
use std::collections::BTreeMap;

/// What the clients of one run do.
#[derive(Clone, Debug)]
pub struct Script {
    /// What they ask.
    pub workload: Workload,
    /// The pause of a session between the end of a transaction and the next.
    pub think: Span,
    /// The published pace in the place of the pause (`specs/carousel.md` 8.16): a session begins a transaction each
    /// time this much has passed, or, while it is busy then, as soon as it is not; nothing piles up.
    pub every: Option<Span>,
    /// No transaction is begun later than this.
    pub until: Instant,
    /// No session begins more transactions than this.
    pub transactions_max: u64,
    /// The part of the run that is measured.
    pub window: Window,
    /// Of what is asked.
    pub seed: u64,
    /// Whether the history is kept.
    pub history: bool,
    /// On so many nodes the first session ends, after `until`, with what meets everything that is stuck
    /// ([`Workload::closing`]): more than may be lost for good.
    pub closers: usize,
    /// The region of each node.
    pub region_of: Vec<usize>,
}

/// The driver of a run.
pub struct TransactionClients {
    script: Script,
    /// What all sessions are made of: to sum up Zipf's constant takes a while.
    session: Session,
    sessions: BTreeMap<u32, Client>,
    figures: Figures,
    history: History,
    broken: Vec<String>,
    /// The nodes of the sessions that end the run, and what they have not done yet.
    closers: BTreeMap<NodeId, usize>,
    /// What is ordered when the plan says so.
    orders: Option<Orders>,
    /// Draws which commits are to be aborted, apart from all else, which is drawn as without that.
    withdrawals: Random,
}

/// Draws what processes are told.
type Orders = Box<dyn FnMut(&mut Random) -> Vec<Admin>>;

struct Client {
    session: Session,
    random: Random,
    region: usize,
    due: Instant,
    begun: u64,
    tries: u64,
    closing: std::vec::IntoIter<Plan>,
    closing_at: Instant,
    turn: Turn,
}

/// Where a session is.
enum Turn {
    /// Between two transactions.
    Idle,
    /// It is to begin this at this time.
    Begin(Attempt, Instant),
    /// It is to end this.
    End(Attempt, TxnId),
    /// It waits for an answer.
    Waiting(Attempt),
}

/// One try of a transaction.
struct Attempt {
    plan: Plan,
    /// Which one it is, from 1.
    tried: u32,
    /// The number of the try within its session.
    sequence: u64,
    ticket: Option<Ticket>,
    /// When the first try began.
    first: Option<Instant>,
    /// When this one did.
    invoked: Instant,
    reads: Option<Vec<Read>>,
    updates: Vec<Update>,
    /// Its name, once it was asked to commit.
    commits: Option<TxnId>,
}

/// What lies between the ends of two sessions that end a run.
const APART: Span = Span::from_secs(3);

impl TransactionClients {
    /// The clients of one run.
    pub fn new(script: Script) -> TransactionClients {
        let figures = Figures::new(script.window);
        let session = script.workload.session(0, Random::seeded(script.seed));
        // Where things go wrong, clients end the run.
        let history = History::new(script.closers > 0);
        let withdrawals = Random::seeded(script.seed ^ 0x7769_7468_6472_6177);
        TransactionClients {
            script,
            session,
            sessions: BTreeMap::new(),
            figures,
            history,
            broken: Vec::new(),
            closers: BTreeMap::new(),
            orders: None,
            withdrawals,
        }
    }

    /// Lets the plan order changes.
    pub fn order(&mut self, orders: Orders) {
        self.orders = Some(orders);
    }

    /// Asks that a commit under way be aborted, if there is any. Its own answer says what has become of it; the one to this is
    /// nobody's.
    pub fn withdraw(&mut self) -> Option<Admin> {
        let commits = self.sessions.values().filter_map(|client| match &client.turn {
            Turn::Waiting(attempt) => attempt.commits,
            _ => None,
        });
        let commits: Vec<TxnId> = commits.collect();
        let txn = *commits.get(self.withdrawals.below(commits.len() as u64) as usize)?;
        Some(Admin::Request { process: txn.client.process, request: Box::new(Request::Abort { txn }) })
    }

    /// What was measured.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// What transactions have read that cannot be: totals that are not conserved.
    pub fn broken(&self) -> Vec<String> {
        self.broken.clone()
    }

    /// An end that was not reached.
    pub fn unfinished(&self) -> Option<String> {
        let least = self.closers.values().min().filter(|least| **least > 0)?;
        Some(format!("no session has ended the run: {least} transactions over all keys did not commit"))
    }

    /// The history, with what is still under way as unknown.
    pub fn into_history(mut self) -> Transactions {
        for (number, client) in std::mem::take(&mut self.sessions) {
            if let Turn::Waiting(attempt) = client.turn {
                let outcome = ended(&attempt, End::Unknown);
                self.note(number, &attempt, outcome, None, None);
            }
        }
        self.history.finish()
    }

    fn client(&mut self, seat: Seat) -> &mut Client {
        let (script, session) = (&self.script, &self.session);
        let (node, closers) = (seat.client.node, &mut self.closers);
        self.sessions.entry(seat.number).or_insert_with(|| {
            let seed = script.seed ^ u64::from(seat.number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = Random::seeded(seed);
            let closes = closers.len() < script.closers && !closers.contains_key(&node);
            let closing = if closes { script.workload.closing() } else { Vec::new() };
            // One after the other: they would be in each other's way.
            let after = APART * closers.len() as u64;
            if closes {
                closers.insert(node, closing.len());
            }
            let phase = script.every.map_or(0, |every| random.below(every.as_nanos().max(1)));
            Client {
                session: session.beside(seat.number, random.fork()),
                random,
                region: script.region_of.get(usize::from(seat.client.node.0)).copied().unwrap_or(0),
                due: Instant::from_nanos(phase),
                begun: 0,
                tries: 0,
                closing: closing.into_iter(),
                closing_at: script.until + after,
                turn: Turn::Idle,
            }
        })
    }

    /// A try has ended.
    fn end(&mut self, seat: Seat, attempt: Attempt, end: End, version: Option<u64>, now: Instant) {
        let script = &self.script;
        let closing = attempt.plan.kind == Kind::Closing;
        // The end of a run is tried until it is reached; a run that never does is stuck.
        let retry = match closing {
            true => Retry { tries: u32::MAX, pause: Span::from_millis(200), pause_max: Span::from_secs(2) },
            false => script.workload.retry,
        };
        let Some(client) = self.sessions.get_mut(&seat.number) else { return };
        let again = match end {
            End::Aborted(reason) => retry.pause(attempt.tried, reason, &mut client.random),
            End::Refused | End::Unknown if closing => {
                retry.pause(attempt.tried, Reason::Conflict, &mut client.random)
            }
            _ => None,
        };
        let first = attempt.first.unwrap_or(attempt.invoked);
        let not_before = Pace::not_before(attempt.invoked, now);
        client.turn = match again {
            Some(pause) => {
                let next = client.attempt(attempt.plan.clone(), attempt.tried + 1, Some(first));
                Turn::Begin(next, not_before.max(now + pause))
            }
            None => {
                client.due = match script.every {
                    Some(every) => not_before.max(client.due + every),
                    None => not_before.max(now + script.think),
                };
                Turn::Idle
            }
        };
        let region = client.region;
        if !closing {
            self.figures.record(region, attempt.plan.kind, first, now, end);
        } else if let (End::Committed, Some(left)) = (end, self.closers.get_mut(&seat.client.node)) {
            *left -= 1;
        }
        if let (End::Committed, Some(reads)) = (end, &attempt.reads)
            && let Some(wrong) = attempt.plan.verify(reads)
        {
            let (number, kind) = (seat.number, attempt.plan.kind);
            self.broken.push(format!("{kind} of session {number} committed at {} ms: {wrong}", millis(now)));
        }
        let outcome = ended(&attempt, end);
        let returned = (outcome != check::Outcome::Unknown).then_some(now);
        self.note(seat.number, &attempt, outcome, version, returned);
    }

    fn note(
        &mut self,
        session: u32,
        attempt: &Attempt,
        outcome: check::Outcome,
        version: Option<u64>,
        returned: Option<Instant>,
    ) {
        if self.script.history {
            self.history.note(Tried {
                session,
                sequence: attempt.sequence,
                plan: &attempt.plan,
                reads: attempt.reads.as_deref(),
                updates: &attempt.updates,
                version,
                invoked: attempt.invoked,
                returned,
                outcome,
            });
        }
    }
}

/// What a history says of a try. One that was not asked to commit wrote nothing, whatever became of it.
fn ended(attempt: &Attempt, end: End) -> check::Outcome {
    match end {
        End::Committed => check::Outcome::Ok,
        End::Unknown if attempt.commits.is_some() => check::Outcome::Unknown,
        End::Unknown | End::Aborted(_) | End::Refused => check::Outcome::Failed,
    }
}

fn millis(at: Instant) -> f64 {
    at.since(Instant::ZERO).as_millis_f64()
}

impl<F: Protocol<Request = Request, Outcome = Outcome>> Driver<F> for TransactionClients {
    fn next(&mut self, seat: Seat, now: Instant) -> Next<Request> {
        let (until, most) = (self.script.until, self.script.transactions_max);
        let client = self.client(seat);
        let (attempt, at, request) = match std::mem::replace(&mut client.turn, Turn::Idle) {
            Turn::Begin(attempt, at) => {
                let request = attempt.begin();
                (attempt, at.max(now), request)
            }
            Turn::End(mut attempt, txn) => {
                let writer = format!("s{}.{}", client.session.number(), attempt.sequence);
                let reads = attempt.reads.as_deref().unwrap_or_default();
                let request = match attempt.plan.updates(reads, &writer) {
                    Some(updates) => {
                        (attempt.updates, attempt.commits) = (updates.clone(), Some(txn));
                        Request::Commit { txn, updates }
                    }
                    None => Request::Abort { txn },
                };
                (attempt, now, request)
            }
            Turn::Idle => {
                let due = client.due;
                let (plan, at) = if due < until && client.begun < most {
                    (client.session.draw(), due)
                } else if let Some(plan) = client.closing.next() {
                    (plan, due.max(client.closing_at))
                } else {
                    return Next::Done;
                };
                client.begun += 1;
                let attempt = client.attempt(plan, 1, None);
                let request = attempt.begin();
                (attempt, at.max(now), request)
            }
            // A session is asked for its next step when it waits for nothing.
            Turn::Waiting(attempt) => {
                client.turn = Turn::Waiting(attempt);
                return Next::Done;
            }
        };
        client.turn = Turn::Waiting(attempt);
        Next::Request { at, request }
    }

    fn invoked(&mut self, seat: Seat, ticket: Ticket, now: Instant) {
        if let Turn::Waiting(attempt) = &mut self.client(seat).turn {
            if attempt.reads.is_none() {
                attempt.invoked = now;
                attempt.first.get_or_insert(now);
            }
            attempt.ticket = Some(ticket);
        }
    }

    fn completed(&mut self, seat: Seat, ticket: Ticket, outcome: Outcome, now: Instant) {
        let Some(mut attempt) = self.client(seat).answered(ticket) else { return };
        let (end, version) = match outcome {
            Outcome::Begun { txn, reads } => {
                attempt.reads = Some(reads);
                self.client(seat).turn = Turn::End(attempt, txn);
                return;
            }
            Outcome::Snapshot { reads, .. } => {
                attempt.reads = Some(reads);
                (End::Committed, None)
            }
            Outcome::Committed { at } => (End::Committed, Some(at.0)),
            Outcome::Aborted(reason) => (End::Aborted(reason), None),
            Outcome::Refused(_) => (End::Refused, None),
            Outcome::Unknown => (End::Unknown, None),
            // No session asks for these.
            Outcome::Moved(_) | Outcome::Served(_) | Outcome::Listed { .. } => return,
        };
        self.end(seat, attempt, end, version, now);
    }

    fn admin(&mut self, _: Instant, random: &mut Random) -> Vec<Admin> {
        let Some(orders) = &mut self.orders else { return Vec::new() };
        let mut ordered = orders(random);
        ordered.extend(self.withdraw());
        ordered
    }

    fn lost(&mut self, seat: Seat, ticket: Ticket, now: Instant) {
        if let Some(attempt) = self.client(seat).answered(ticket) {
            self.end(seat, attempt, End::Unknown, None, now);
        }
    }
}

impl Client {
    fn attempt(&mut self, plan: Plan, tried: u32, first: Option<Instant>) -> Attempt {
        self.tries += 1;
        Attempt {
            plan,
            tried,
            sequence: self.tries,
            ticket: None,
            first,
            invoked: Instant::ZERO,
            reads: None,
            updates: Vec::new(),
            commits: None,
        }
    }

    /// The try that waits for this ticket.
    fn answered(&mut self, ticket: Ticket) -> Option<Attempt> {
        match std::mem::replace(&mut self.turn, Turn::Idle) {
            Turn::Waiting(attempt) if attempt.ticket == Some(ticket) => Some(attempt),
            other => {
                self.turn = other;
                None
            }
        }
    }
}

impl Attempt {
    fn begin(&self) -> Request {
        Request::Begin { reads: self.plan.reads.clone(), writes: self.plan.writes.clone() }
    }
}
