//! The thread that owns a shard and its sockets.
//!
//! Round after round: wait; take the clocks; read everything that is ready; let the shard have its turn;
//! hand answers to sessions, which may ask for more; then write each peer and each client once. Records that
//! are few and go to a quick disk are written last, here, and what they held leaves at once. All work is
//! bounded per round, so that nobody has the loop alone.

pub(crate) mod calls;
mod clients;
mod expiry;
mod orders;
mod peers;
mod slab;
mod status;
mod verifier;
pub(crate) mod window;

pub use clients::ClientListener;
pub use status::{Board, KeyspaceStatus, PeerStatus, ProcessStatus, Status};

pub use verifier::Verifier;

pub(crate) use calls::Calls;
pub(crate) use clients::Clients;
pub(crate) use peers::Peers;
pub(crate) use status::{Reporter, Served, resident_bytes};
use window::Window;

use crate::certificates::Watch;
use crate::clock::Clock;
use crate::gateway;
use crate::io::{Answer, Reply};
use crate::journal::{JournalError, Position, StreamId};
use crate::poller::{FIRST_FREE, Poller, WAKER};
use crate::protocols::{Administration, Protocols};
use crate::shard::Shard;
use crate::snapshots::SnapshotThread;
pub(crate) use clients::KEEP_ALIVE;
use isochrone_core::command::Keys;
use isochrone_core::{Fact, Instant, KeyspaceId, PartitionId, ProcessId, Span, Ticket};
use mio::Token;
use rustc_hash::FxHashMap;
use rustls::ServerConfig;
use status::COPIES;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};

/// How often sessions are told that time has passed, and facts are published.
const TICK: Span = Span::from_millis(100);

/// How long an orderly stop waits for commands under way.
const DRAIN: Span = Span::from_secs(5);
/// How often meanwhile what is led here is given away.
const GIVES_WAY: Span = Span::from_secs(1);

/// How long the answer to an order is waited for: whoever gives it over HTTP waits no longer.
const ORDER: Span = Span::from_nanos(crate::http::MOVE_TIME.as_nanos() as u64);

/// Bytes read at a time, from whichever socket.
const SCRATCH: usize = 128 << 10;

/// An order to a running node.
pub enum Control {
    /// Stop in order: take no more clients, give leadership away, execute nothing more for others, answer what is under way,
    /// flush.
    Stop,
    /// The same with all other nodes at once: leadership goes to nobody, since nobody will be there to take it.
    StopWithAll,
    /// Stop a process; answers whether it ran.
    StopProcess(ProcessId, Responder),
    /// Ask the replica of a keyspace on this node.
    Administer(KeyspaceId, Option<PartitionId>, Administration, Responder),
}

/// Takes the answer to an order; never blocks.
pub type Responder = Box<dyn FnOnce(Result<String, String>) + Send>;

/// How a node's loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The journal failed; nothing may be acknowledged any more.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A peer knows this node with another data directory, with a newer one, or by another process that lives.
    #[error("{by} does not take this node in: {why}")]
    Disowned {
        /// Its name.
        by: String,
        /// What it says.
        why: String,
    },
    /// The system failed.
    #[error("the event loop failed: {0}")]
    Io(#[from] std::io::Error),
}

/// What the tokens of sockets stand for.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Kind {
    PeerListener,
    ClientListener,
    Link,
    Inbound,
    Client,
}

/// The token of the thing of this kind and number.
pub(crate) fn token(kind: Kind, index: usize) -> Token {
    Token(FIRST_FREE + index * 5 + kind as usize)
}

fn kind(token: Token) -> Option<(Kind, usize)> {
    let number = token.0.checked_sub(FIRST_FREE)?;
    let kind = match number % 5 {
        0 => Kind::PeerListener,
        1 => Kind::ClientListener,
        2 => Kind::Link,
        3 => Kind::Inbound,
        _ => Kind::Client,
    };
    Some((kind, number / 5))
}

/// Who waits for a ticket.
enum Origin {
    /// A session.
    Client(clients::Asked),
    /// A call.
    Call(Box<calls::Pending>),
    /// An order.
    Order { of: ProcessId, protocol: &'static str, responder: Responder, asked: Instant, steps_down: bool },
    /// The deletion of what is overdue in the state of this process; where it is to be told, of which keys, of the keyspace with which
    /// number.
    Sweep { of: ProcessId, by: ProcessId, asked: Instant, told: Option<(KeyspaceId, Keys)> },
}

/// See the module's page. Made by [`crate::node::Node`], run on a thread of its own.
pub struct Reactor {
    pub(crate) clock: Clock,
    pub(crate) poller: Poller,
    pub(crate) shard: Shard,
    pub(crate) peers: Peers,
    pub(crate) clients: Clients,
    pub(crate) reporter: Reporter,
    pub(crate) protocols: Protocols,
    pub(crate) control: Receiver<Control>,
    pub(crate) calls: Calls,
    /// What gRPC shows to its clients, where it listens with TLS.
    pub(crate) grpc_tls: Option<Arc<Mutex<Arc<ServerConfig>>>>,
    pub(crate) killed: Arc<AtomicBool>,
    pub(crate) snapshots: Option<SnapshotThread>,
    pub(crate) certificates: Option<Watch>,
    pub(crate) origins: Origins,
    pub(crate) scratch: Box<[u8]>,
    pub(crate) next_tick: Instant,
    pub(crate) stopping: Option<Instant>,
    /// Where only this node stops, and others may lead: when it is looked at next what it leads.
    pub(crate) gives_way: Option<Instant>,
}

/// The tickets under way.
#[derive(Default)]
pub(crate) struct Origins {
    drawn: u64,
    waiting: FxHashMap<Ticket, Origin>,
    /// When who waits for too long was last looked for.
    looked: Instant,
    /// The processes in whose state something overdue is being deleted, by so many commands.
    sweeping: BTreeMap<ProcessId, usize>,
    /// Of each keyspace.
    windows: Vec<Window>,
}

impl Reactor {
    pub(crate) fn scratch() -> Box<[u8]> {
        vec![0; SCRATCH].into_boxed_slice()
    }

    /// Runs until the node is stopped, killed or fails. A kill leaves everything as it is: nothing is flushed.
    ///
    /// # Errors
    /// The journal or the system failed: the node must end.
    pub fn run(mut self) -> Result<(), Failure> {
        loop {
            if self.killed.load(Ordering::Acquire) {
                return Ok(());
            }
            if self.round()? {
                return self.finish();
            }
        }
    }

    /// One round; true where an orderly stop is complete.
    fn round(&mut self) -> Result<bool, Failure> {
        let deadline = self.deadline();
        self.poller.wait(deadline, self.clock)?;
        let now = self.shard.look_at(self.clock);
        self.dispatch(now);
        self.peers.check()?;
        while let Some(order) = self.next_order() {
            let now = self.shard.look_at(self.clock);
            self.obey(order, now);
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick();
        }
        let hub = &mut self.clients.hub;
        let lost = hub.take_in(std::mem::take(&mut self.peers.news)) + hub.hear(now);
        if lost > 0 {
            *self.clients.counters.limited.entry("news").or_default() += lost;
        }
        self.take_calls(now);
        self.clients.serve(&mut self.shard, &mut self.origins, self.clock, &mut self.scratch);
        // What has just been asked was asked behind the beginning of this round.
        let now = self.shard.io().now;
        self.clients.deliver(&mut self.shard, &mut self.origins, now);
        self.take_turns(now)?;
        self.write(now);
        if self.shard.io().write_kept()? {
            let now = self.shard.look_at(self.clock);
            self.take_turns(now)?;
            self.write(now);
        }
        let Some(until) = self.stopping else { return Ok(false) };
        let idle = self.origins.waiting.is_empty() && self.calls.open() == 0 && !self.clients.hub.owes();
        Ok(idle || until <= now)
    }

    fn take_turns(&mut self, now: Instant) -> Result<(), Failure> {
        // A few times: what sessions ask on hearing an answer is part of this round, but not for ever.
        for _ in 0..4 {
            if let Some(still) = self.shard.io().come_by() {
                tracing::warn!(
                    "this node stood still for {still}: it was stopped, suspended, without a processor, or busy with one command"
                );
            }
            let more = self.shard.turn()?;
            self.note_facts();
            if !self.answer(now) && !more {
                break;
            }
        }
        Ok(())
    }

    fn deadline(&mut self) -> Instant {
        let io = self.shard.io();
        if !io.local.is_empty() || io.keeps() || self.clients.pending(&mut self.shard, &self.origins) {
            return Instant::ZERO;
        }
        let deadline = self.shard.next_deadline().min(self.peers.next_deadline()).min(self.next_tick);
        deadline.min(self.clients.hub.counts_due())
    }

    fn dispatch(&mut self, now: Instant) {
        let registry = self.poller.registry();
        self.peers.resolve(now);
        self.peers.read_on(&mut self.shard, self.clock, registry, &mut self.scratch);
        for ready in self.poller.ready() {
            match kind(ready.token) {
                Some((Kind::PeerListener, _)) => self.peers.accept(now, registry),
                Some((Kind::Link, index)) => {
                    let peer = isochrone_core::NodeId(index as u16);
                    self.peers.wake_link(peer, ready, now, registry, &mut self.scratch);
                }
                Some((Kind::Inbound, index)) => {
                    self.peers.wake(index, ready, &mut self.shard, self.clock, registry, &mut self.scratch);
                }
                Some((Kind::ClientListener, index)) => {
                    self.clients.accept(index, now, self.shard.io().stamp, registry);
                }
                Some((Kind::Client, index)) => self.clients.wake(index, ready),
                None => debug_assert!(ready.token == WAKER || ready.token == crate::poller::DEADLINE),
            }
        }
    }

    fn next_order(&mut self) -> Option<Control> {
        match self.control.try_recv() {
            Ok(order) => Some(order),
            Err(TryRecvError::Empty) => None,
            // The handle is gone: nobody can stop this node any more but by stopping it now.
            Err(TryRecvError::Disconnected) if self.stopping.is_none() => Some(Control::Stop),
            Err(TryRecvError::Disconnected) => None,
        }
    }

    fn obey(&mut self, order: Control, now: Instant) {
        match order {
            Control::Stop => self.begin_stop(true, now),
            Control::StopWithAll => self.begin_stop(false, now),
            Control::StopProcess(id, respond) => {
                let stopped = self.shard.stop(id);
                self.origins.process_stopped(id);
                respond(match stopped {
                    Some(_) => Ok(format!("{id} is stopped")),
                    None => Err(format!("{id} does not run on this node")),
                });
            }
            Control::Administer(keyspace, partition, what, respond) => {
                self.administer(keyspace, partition, &what, respond);
            }
        }
    }

    /// Asks this node's replica; of a keyspace in partitions, that of each, or of the one that is named.
    fn administer(
        &mut self,
        keyspace: KeyspaceId,
        partition: Option<PartitionId>,
        what: &Administration,
        respond: Responder,
    ) {
        if what.of_client() {
            return self.ask_client(keyspace, what, respond);
        }
        let Some((protocol, servers)) = self.reporter.servers(keyspace) else {
            return respond(Err(format!("this node holds no replica of {}", self.clients.called(keyspace))));
        };
        let named = |of: &ProcessId| partition.is_none_or(|partition| of.partition == partition);
        let mut asked = Vec::new();
        for of in servers.into_iter().filter(named) {
            let Some(request) = self.protocols.administer(protocol, what) else {
                return respond(Err(what.unknown_to(protocol)));
            };
            let ticket = self.origins.ticket();
            match self.shard.request(of, ticket, request) {
                Ok(()) => asked.push((ticket, of)),
                Err(error) => tracing::debug!(%error, "not asked"),
            }
        }
        if asked.is_empty() {
            let keyspace = self.clients.called(keyspace);
            let of = partition.map_or_else(String::new, |partition| format!("partition {} of ", partition.0));
            return respond(Err(format!("no replica of {of}{keyspace} on this node takes this")));
        }
        let partitions: Vec<_> = asked.iter().map(|(_, of)| of.partition).collect();
        let now = self.shard.io().now;
        for ((ticket, of), responder) in asked.into_iter().zip(orders::gather(&partitions, respond)) {
            let steps_down = *what == Administration::StepDown;
            let order = Origin::Order { of, protocol, responder, asked: now, steps_down };
            self.origins.waiting.insert(ticket, order);
        }
    }

    /// Asks this node's client process, which knows all partitions.
    fn ask_client(&mut self, keyspace: KeyspaceId, what: &Administration, respond: Responder) {
        let found = self.reporter.protocol(keyspace).zip(self.clients.host(keyspace));
        let Some((protocol, of)) = found else {
            return respond(Err(format!("no process of this node serves {}", self.clients.called(keyspace))));
        };
        let Some(request) = self.protocols.administer(protocol, what) else {
            return respond(Err(what.unknown_to(protocol)));
        };
        let ticket = self.origins.ticket();
        match self.shard.request(of, ticket, request) {
            Ok(()) => {
                let asked = self.shard.io().now;
                let order = Origin::Order { of, protocol, responder: respond, asked, steps_down: false };
                self.origins.waiting.insert(ticket, order);
            }
            Err(error) => respond(Err(error.to_string())),
        }
    }

    fn begin_stop(&mut self, others_stay: bool, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        self.clients.close_listeners();
        if others_stay {
            tracing::info!(
                "stopping: no new clients, leadership goes to others, commands under way are answered"
            );
            self.step_down(now);
            self.retire();
        } else {
            tracing::info!("stopping with all others: no new clients, commands under way are answered");
        }
        self.stopping = Some(now + DRAIN);
    }

    /// Gives away what is led here: also what came to be while others stopped, or was refused because of another order.
    fn step_down(&mut self, now: Instant) {
        self.gives_way = Some(now + GIVES_WAY);
        for keyspace in self.reporter.led() {
            if !self.origins.steps_down(keyspace) {
                let nobody: Responder = Box::new(|_| {});
                self.administer(keyspace, None, &Administration::StepDown, nobody);
            }
        }
    }

    /// Executes nothing more for clients of other nodes. These orders are answered once nothing is under way for them, and this node
    /// waits for its orders.
    fn retire(&mut self) {
        let views = self.clients.keyspaces().iter().filter(|view| view.transactional);
        for keyspace in views.map(|view| view.id).collect::<Vec<_>>() {
            let nobody: Responder = Box::new(|_| {});
            self.administer(keyspace, None, &Administration::Retire, nobody);
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        self.clients.settle(&mut self.shard, &mut self.origins, now);
        self.clients.farewell();
        self.write(now);
        self.peers.close(self.poller.registry());
        self.shard.into_ledger().close()?;
        tracing::info!("stopped");
        Ok(())
    }

    fn note_facts(&mut self) {
        while let Some((process, fact)) = self.shard.io().facts.pop_front() {
            let changed = self.reporter.note(process, &fact);
            if let Fact::Stands { what: COPIES, .. } = fact {
                // At once: an answer that rests on it may follow in this turn.
                self.clients.has_copies(process.keyspace, self.reporter.copies(process.keyspace));
            }
            if changed {
                let leads = self.reporter.claims();
                self.peers.links.values_mut().for_each(|link| link.tell(&leads));
            }
        }
    }

    /// Hands answers to those who asked. Whether there were any.
    fn answer(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(Answer { ticket, reply, last, .. }) = self.shard.io().answers.pop_front() {
            any = true;
            match (self.origins.take(ticket), reply) {
                (Some(Origin::Client(asked)), Reply::Outcome(outcome)) => {
                    let outcome = asked.told(outcome);
                    if matches!(outcome, gateway::Outcome::Done(_)) {
                        self.origins.carried_out(asked.keyspace);
                        self.clients.has_answered(asked.keyspace, now);
                    }
                    self.reporter.answered(asked.keyspace, &outcome, now.since(asked.asked), asked.reads);
                    self.clients.answer(asked.to, outcome, &mut self.shard, &mut self.origins, now);
                    if !last {
                        self.origins.ask(ticket, asked);
                    }
                }
                (Some(Origin::Call(pending)), Reply::Outcome(outcome)) => {
                    if !pending.is_given_up() {
                        let took = now.since(pending.asked);
                        self.reporter.answered(pending.keyspace, &outcome, took, pending.reads);
                    }
                    self.called(*pending, outcome, now);
                }
                (Some(Origin::Order { protocol, responder, .. }), Reply::Raw(outcome)) => {
                    responder(self.administered(protocol, outcome));
                }
                (Some(Origin::Order { responder, .. }), Reply::Outcome(outcome)) => {
                    responder(match outcome {
                        gateway::Outcome::Ordered(text) => Ok(text),
                        gateway::Outcome::Refused(text) => Err(text),
                        gateway::Outcome::Unknown(_) => {
                            Err("no answer in time; what was begun is ended by whoever needs it".into())
                        }
                        gateway::Outcome::Done(_)
                        | gateway::Outcome::Verified { .. }
                        | gateway::Outcome::Transaction(_) => {
                            Err("the process has answered something else".into())
                        }
                    })
                }
                // What is left is seen with the next look.
                (Some(Origin::Sweep { of, told, .. }), reply) => {
                    if let (Some((keyspace, keys)), Reply::Outcome(gateway::Outcome::Done(response))) =
                        (told, reply)
                    {
                        expiry::tell(&mut self.clients.hub, keyspace, &keys, response);
                    }
                    self.origins.swept(of);
                }
                (Some(_), _) | (None, _) => {}
            }
        }
        any
    }

    fn administered(&self, protocol: &str, outcome: Box<dyn Any + Send>) -> Result<String, String> {
        self.protocols.administered(protocol, outcome)
    }

    fn write(&mut self, now: Instant) {
        let hub = &mut self.clients.hub;
        if self.peers.reaches_another() {
            hub.tell_counts_again();
        }
        hub.tell_counts(now);
        for news in hub.take_news() {
            self.shard.io().outgoing.tell(&news, |node| hub.concerns(node, &news));
        }
        let registry = self.poller.registry();
        self.peers.flush(&mut self.shard, now, registry, &mut self.scratch);
        self.clients.flush(&mut self.shard, &mut self.origins, now, registry);
    }

    /// Connections from now on use certificates that were renewed.
    fn renew_certificates(&mut self) {
        let Some(renewed) = self.certificates.as_ref().and_then(Watch::renewed) else { return };
        if let Some(tls) = &renewed.peer {
            self.peers.renew(tls);
        }
        if let Some(tls) = renewed.client {
            if let Some(shown) = &self.grpc_tls {
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&tls);
            }
            self.clients.renew(&tls);
        }
        self.peers.metrics.certificates.set(renewed.expiries);
    }

    fn tick(&mut self) {
        self.renew_certificates();
        let registry = self.poller.registry();
        // Of one reading, which may be later than the beginning of this round: what peers sent has been read since.
        let (now, stamp) = (self.shard.io().now, self.shard.io().stamp);
        self.peers.tick(now, stamp, registry);
        let times = (now, self.clients.request_time());
        let (shard, clients, calls) = (&mut self.shard, &mut self.clients, &mut self.calls);
        self.origins.give_up(shard, clients, calls, &mut self.reporter, times);
        self.clients.tick(&mut self.shard, &mut self.origins, now);
        self.clients.accept_missed(now, stamp, registry);
        if self.gives_way.is_some_and(|at| at <= now) {
            self.step_down(now);
        }
        self.sweep(now);
        if let Some(snapshots) = &mut self.snapshots {
            for done in snapshots.written() {
                let id = ProcessId::from_u64(done.stream.0);
                let (info, trim) = done.outcome.ok().unzip();
                if let Some(info) = &info {
                    tracing::info!(
                        partition = id.partition.0,
                        bytes = info.bytes,
                        seconds = done.took.as_millis() as f64 / 1e3,
                        "a snapshot of {} is written",
                        self.clients.called(id.keyspace)
                    );
                }
                let trim = trim.flatten().map(|position: Position| position.0);
                self.shard.snapshot_done(id, info.map(|info| info.bytes), trim);
            }
            for (process, position, chunks) in self.shard.snapshots_due() {
                snapshots.write(StreamId(process.to_u64()), Position(position), chunks);
            }
        }
        self.origins.windows.iter_mut().for_each(|window| window.look(now));
        self.reporter.in_flight(self.origins.len(), self.origins.windows.iter().map(Window::room).sum());
        self.reporter.orders(self.origins.orders());
        let full = self.reporter.look_at_memory(&mut self.clients);
        self.peers.tell_full(full);
        self.peers.metrics.idle_poll.store(self.poller.idle_polled().as_nanos(), Ordering::Relaxed);
        let view =
            self.reporter.publish(now, &mut self.shard, &self.peers, &self.clients, self.stopping.is_some());
        self.clients.show(view);
    }
}

impl Origins {
    /// Of keyspaces with these windows.
    pub(crate) fn new(windows: Vec<Window>) -> Origins {
        Origins { windows, ..Origins::default() }
    }

    /// A ticket that was not used in this incarnation.
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.drawn += 1;
        Ticket(self.drawn)
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn ask(&mut self, ticket: Ticket, asked: clients::Asked) {
        if let Some(window) = self.windows.get_mut(asked.keyspace) {
            window.begin();
        }
        self.waiting.insert(ticket, Origin::Client(asked));
    }

    /// It is under way no more.
    fn take(&mut self, ticket: Ticket) -> Option<Origin> {
        let origin = self.waiting.remove(&ticket)?;
        if let Origin::Client(asked) = &origin
            && let Some(window) = self.windows.get_mut(asked.keyspace)
        {
            window.end();
        }
        Some(origin)
    }

    /// A command of the keyspace at this place was carried out.
    fn carried_out(&mut self, keyspace: usize) {
        if let Some(window) = self.windows.get_mut(keyspace) {
            window.carried_out();
        }
    }

    pub(crate) fn has_room_everywhere(&self) -> bool {
        self.windows.iter().all(Window::has_room)
    }

    /// Whether more commands may be read that are for the keyspace at this place.
    pub(crate) fn has_room(&self, keyspace: usize) -> bool {
        self.windows.get(keyspace).is_none_or(Window::has_room)
    }

    /// Tells sessions of commands that have waited for longer than `patience`; looks every second.
    fn give_up(
        &mut self,
        shard: &mut Shard,
        clients: &mut Clients,
        calls: &mut Calls,
        reporter: &mut Reporter,
        (now, patience): (Instant, Span),
    ) {
        if now < self.looked + Span::from_secs(1) {
            return;
        }
        self.looked = now;
        let late = |origin: &Origin| match origin {
            Origin::Client(asked) => asked.asked + patience <= now && !asked.walks,
            Origin::Call(pending) => pending.asked + patience <= now && !pending.is_given_up(),
            Origin::Sweep { asked, .. } => *asked + patience <= now,
            Origin::Order { asked, .. } => *asked + ORDER <= now,
        };
        let mut tickets: Vec<_> =
            self.waiting.iter().filter(|(_, origin)| late(origin)).map(|(ticket, _)| *ticket).collect();
        tickets.sort();
        for ticket in tickets {
            let asked = match self.take(ticket) {
                Some(Origin::Client(asked)) => asked,
                Some(Origin::Call(mut pending)) => {
                    let took = now.since(pending.asked);
                    reporter.answered(pending.keyspace, &pending.late(), took, pending.reads);
                    if pending.give_up() {
                        self.waiting.insert(ticket, Origin::Call(pending));
                    } else {
                        shard.cancel(pending.of, ticket);
                        calls.forget(&pending);
                    }
                    continue;
                }
                Some(Origin::Sweep { of, by, .. }) => {
                    shard.cancel(by, ticket);
                    self.swept(of);
                    continue;
                }
                // What was begun goes on, as a move of many keys does for longer.
                Some(Origin::Order { responder, .. }) => {
                    responder(Err("no answer in time; it may still happen".to_owned()));
                    continue;
                }
                None => continue,
            };
            shard.cancel(asked.of, ticket);
            let outcome = asked.told(crate::gateway::Outcome::Unknown("no answer in time".to_owned()));
            reporter.answered(asked.keyspace, &outcome, now.since(asked.asked), asked.reads);
            clients.answer(asked.to, outcome, shard, self, now);
        }
    }
}
