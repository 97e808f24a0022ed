//! Client listeners, connections and sessions, and the thread that checks passwords.

use super::slab::Slab;
use super::verifier::{Asker, Party, Verdict, Verifier};
use super::{Kind, Origins, token};
use crate::clock::Clock;
use crate::gateway::{
    Ask, ClientView, Context, Counters, Gateway, KeyspaceView, NodeView, Outcome, Request, Secret, Session,
};
use crate::hub::{Hub, Notice};
use crate::limits::Limits;
use crate::poller::Ready;
use crate::redis::FLOODED;
use crate::redis::acl::Users;
use crate::redis::call::{self, Call, Given, Objection};
use crate::security::Print;
use crate::shard::Shard;
use crate::transport::stream::{Acceptor, Got, Stream};
use isochrone_core::{Footprint as _, Instant, KeyspaceId, ProcessId, Random, Span, Stamp};
use mio::Registry;
use mio::net::TcpListener;
use rustls::ServerConfig;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Of silence after which the system asks whether a client is still there; what CONFIG GET tells.
pub(crate) const KEEP_ALIVE: Span = Span::from_secs(300);
/// Scratch buffers full that are read from one connection before the others get their turn.
const READS_PER_TURN: usize = 2;
/// Bytes that are read at once from who has closed its end while others wait for room: somebody whose answers come back undelivered
/// costs no more than these.
const SIP: usize = 512;
/// Wrong passwords from one network after which each further answer is delayed.
const FAILURES_FREE: u32 = 5;
/// By how much.
const FAILURE_DELAY: Span = Span::from_secs(1);
/// Networks whose failures are remembered.
const FAILURE_TABLE: usize = 1024;

/// A socket that clients connect to, and the keyspace that they begin in.
pub struct ClientListener {
    /// The socket.
    pub socket: TcpListener,
    /// Where it is bound.
    pub address: SocketAddr,
    /// With or without TLS.
    pub acceptor: Acceptor,
    /// The keyspace that its clients begin in, by index.
    pub index: u32,
}

/// All clients of a node.
pub(crate) struct Clients {
    listeners: Vec<ClientListener>,
    /// Those at which somebody may wait who could not be taken.
    missed: BTreeSet<usize>,
    gateway: Box<dyn Gateway>,
    connections: Slab<Connection>,
    views: BTreeMap<u64, ClientView>,
    pub(crate) counters: Counters,
    /// What connections tell each other.
    pub(crate) hub: Hub,
    /// Where each connection stands, by its number.
    places: BTreeMap<u64, usize>,
    limits: Limits,
    keyspaces: Vec<KeyspaceView>,
    /// For each keyspace, the process here that takes its commands.
    hosts: Vec<Option<ProcessId>>,
    node: NodeView,
    random: Random,
    next_connection: u64,
    /// Connections with input that waits: for their turn, or for their session.
    readable: VecDeque<usize>,
    /// Those that wait for room in the keyspace that they use, by its place; in order, so that all come to it.
    parked: Vec<VecDeque<usize>>,
    /// Connections with something to send or to end.
    dirty: Vec<usize>,
    requests: Vec<Request>,
    /// What was not taken up, to be answered; and whether that is being done.
    refused: VecDeque<(Recipient, Outcome)>,
    refusing: bool,
    verifier: Verifier,
    /// Verdicts held back after repeated failures, in order.
    late: VecDeque<(Instant, Asker, bool)>,
    /// Verdicts for calls, to be told by the loop.
    pub(crate) verdicts_of_calls: Vec<(Party, bool)>,
    failures: BTreeMap<IpAddr, u32>,
}

struct Connection {
    stream: Stream,
    session: Box<dyn Session>,
    number: u64,
    /// In `readable`.
    queued: bool,
    /// Has had to wait for room, and has not been read to the end since.
    held_up: bool,
    /// The socket may have input.
    input: bool,
    dirty: bool,
    /// Nothing more is to be read.
    ended: bool,
    in_flight: u32,
}

/// Who an answer goes to.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Recipient {
    pub index: usize,
    pub connection: u64,
    pub request: u64,
}

/// A command under way.
#[derive(Copy, Clone)]
pub(crate) struct Asked {
    pub to: Recipient,
    pub keyspace: usize,
    pub asked: Instant,
    pub of: ProcessId,
    /// Whether it changes nothing.
    pub reads: bool,
    /// Whether it takes what time it takes, and is ended by who executes it where it does not go on.
    pub walks: bool,
}

impl Asked {
    /// What its client is told: of a command that changes nothing there is no effect that could be unknown.
    pub fn told(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Unknown(why) if self.reads => Outcome::Refused(why),
            outcome => outcome,
        }
    }
}

impl Clients {
    #[expect(clippy::too_many_arguments, reason = "called once, by the node's builder")]
    pub fn new(
        listeners: Vec<ClientListener>,
        gateway: Box<dyn Gateway>,
        limits: Limits,
        keyspaces: Vec<KeyspaceView>,
        hosts: Vec<Option<ProcessId>>,
        node: NodeView,
        verifier: Verifier,
        users: Users,
        random: Random,
    ) -> Clients {
        let mut hub = Hub::default();
        hub.users = users;
        let parked = keyspaces.iter().map(|_| VecDeque::new()).collect();
        Clients {
            listeners,
            missed: BTreeSet::new(),
            gateway,
            connections: Slab::default(),
            views: BTreeMap::new(),
            counters: Counters::default(),
            hub,
            places: BTreeMap::new(),
            limits,
            keyspaces,
            hosts,
            node,
            random,
            next_connection: 1,
            readable: VecDeque::new(),
            parked,
            dirty: Vec::new(),
            requests: Vec::new(),
            refused: VecDeque::new(),
            refusing: false,
            verifier,
            late: VecDeque::new(),
            verdicts_of_calls: Vec::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Connections from now on are shown this.
    pub fn renew(&mut self, tls: &Arc<ServerConfig>) {
        for listener in &mut self.listeners {
            listener.acceptor = Acceptor::Tls(Arc::clone(tls));
        }
    }

    /// Registers the listeners.
    pub fn listen(&mut self, registry: &Registry) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            registry.register(
                &mut listener.socket,
                token(Kind::ClientListener, index),
                mio::Interest::READABLE,
            )?;
        }
        Ok(())
    }

    pub fn close_listeners(&mut self) {
        self.listeners.clear();
    }

    /// Hands over at an orderly end what connections have taken for each other, whatever else is under way.
    pub fn settle(&mut self, shard: &mut Shard, origins: &mut Origins, now: Instant) {
        self.hub.settle_all();
        loop {
            let given = self.hub.given();
            if given.is_empty() {
                return;
            }
            for number in given {
                if let Some(index) = self.places.get(&number).copied() {
                    self.call(index, shard, origins, now, |session, context, out, requests| {
                        session.notify(Notice::Settled, context, out, requests);
                    });
                }
                // Whatever its session made of it: nothing more is for this one.
                self.hub.unwait(number);
            }
        }
    }

    /// Tells clients at an orderly end: what is answered is flushed, then all connections close.
    pub fn farewell(&mut self) {
        for (index, connection) in self.connections.iter_mut() {
            connection.ended = true;
            if !connection.dirty {
                connection.dirty = true;
                self.dirty.push(index);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Shows clients new facts about the node and its keyspaces.
    pub fn show(&mut self, (node, keyspaces): (NodeView, Vec<KeyspaceView>)) {
        self.node = node;
        self.keyspaces = keyspaces;
    }

    /// So many copies have what is safe in this keyspace.
    pub fn has_copies(&mut self, keyspace: KeyspaceId, copies: Option<u64>) {
        let views = self.keyspaces.iter_mut().filter(|view| view.id == keyspace);
        // A deployment has at most 7 replicas.
        views.for_each(|view| view.copies = copies.unwrap_or(0) as u32);
    }

    /// How long a command may take.
    pub fn request_time(&self) -> Span {
        self.limits.request_time
    }

    pub fn keyspaces(&self) -> &[KeyspaceView] {
        &self.keyspaces
    }

    pub fn node(&self) -> &NodeView {
        &self.node
    }

    /// Takes every connection that waits at a listener.
    pub fn accept(&mut self, listener: usize, now: Instant, stamp: Stamp, registry: &Registry) {
        while let Some(from) = self.listeners.get(listener) {
            let (socket, address) = match from.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client; is the limit of open files too low?");
                    // The system tells of who waits there once only.
                    self.missed.insert(listener);
                    return;
                }
            };
            let (local, keyspace) = (from.address, from.index);
            let Ok(mut stream) = Stream::accepted(socket, &from.acceptor) else { continue };
            self.counters.connections += 1;
            if self.connections.len() >= self.limits.clients {
                *self.counters.limited.entry("clients").or_default() += 1;
                self.gateway.refuse(stream.out());
                stream.close();
                continue;
            }
            stream.keep_alive(KEEP_ALIVE);
            let index = self.connections.next();
            if let Err(error) = stream.register(registry, token(Kind::Client, index)) {
                tracing::warn!(%error, "cannot watch a client");
                continue;
            }
            let number = self.next_connection;
            self.next_connection += 1;
            self.views.insert(number, ClientView { index: keyspace, ..view(address, local, now) });
            let mut context = Context {
                now,
                stamp,
                connection: number,
                unsent: 0,
                random: &mut self.random,
                limits: &self.limits,
                node: &self.node,
                keyspaces: &self.keyspaces,
                login: self.hub.users.login(),
                clients: &mut self.views,
                counters: &mut self.counters,
                hub: &mut self.hub,
            };
            self.places.insert(number, index);
            let session = self.gateway.accept(&mut context);
            self.connections.insert(Connection {
                stream,
                session,
                number,
                queued: false,
                held_up: false,
                input: false,
                dirty: false,
                ended: false,
                in_flight: 0,
            });
        }
    }

    /// Takes those that could not be taken when they came.
    pub fn accept_missed(&mut self, now: Instant, stamp: Stamp, registry: &Registry) {
        for listener in std::mem::take(&mut self.missed) {
            self.accept(listener, now, stamp, registry);
        }
    }

    /// A connection's socket has news.
    pub fn wake(&mut self, index: usize, ready: Ready) {
        let Some(connection) = self.connections.get(index) else { return };
        if ready.readable {
            connection.stream.wake(ready.closed);
            connection.input = true;
            if !connection.queued {
                connection.queued = true;
                self.readable.push_back(index);
            }
        }
        if ready.writable && !connection.stream.flushed() && !connection.dirty {
            connection.dirty = true;
            self.dirty.push(index);
        }
        if ready.closed {
            self.give_up_on(index);
        }
    }

    /// Where many wait for their passwords to be checked, nobody does who sends no more and is gone, as a rule: the place
    /// among the connections is for others.
    fn give_up_on(&mut self, index: usize) {
        let Some(connection) = self.connections.get(index).filter(|connection| connection.stream.is_closed())
        else {
            return;
        };
        let Some(from) = self.views.get(&connection.number).map(|view| view.address.ip()) else { return };
        if self.verifier.is_long(from) && self.verifier.leave(connection.number, from) {
            connection.in_flight = connection.in_flight.saturating_sub(1);
            connection.ended = true;
            self.mark(index);
        }
    }

    /// Whether there is something that could be done at once.
    pub fn pending(&self, shard: &mut Shard, origins: &Origins) -> bool {
        let mut parked = self.parked.iter().enumerate();
        let room =
            |(place, waiting): (usize, &VecDeque<usize>)| !waiting.is_empty() && origins.has_room(place);
        ((!self.readable.is_empty() || parked.any(room)) && !self.is_full(shard, origins))
            || !self.dirty.is_empty()
            || self.hub.has_mail()
            || self.verifier.has_verdicts()
            || !self.verdicts_of_calls.is_empty()
    }

    /// Whether nothing more may be read, whoever has sent it.
    fn is_full(&self, shard: &mut Shard, origins: &Origins) -> bool {
        origins.len() >= self.limits.requests
            || shard.io().ledger().backlog() >= self.limits.journal_queue_bytes
    }

    /// Reads from those who have sent something, as long as there is room for what they ask: first from those who have waited
    /// for it longest. The others are looked at again in a later round, of which every answer makes one.
    pub fn serve(&mut self, shard: &mut Shard, origins: &mut Origins, clock: Clock, scratch: &mut [u8]) {
        for (place, waiting) in self.parked.iter_mut().enumerate() {
            if !waiting.is_empty() && origins.has_room(place) {
                waiting.append(&mut self.readable);
                std::mem::swap(waiting, &mut self.readable);
            }
        }
        for _ in 0..self.readable.len() {
            if self.is_full(shard, origins) {
                *self.counters.limited.entry("in_flight").or_default() += 1;
                return;
            }
            let Some(index) = self.readable.pop_front() else { return };
            let Some(connection) = self.connections.get(index) else { continue };
            if connection.sips() && connection.in_flight > 0 {
                // It is looked at again with the next answer.
                connection.queued = false;
                continue;
            }
            if !origins.has_room_everywhere() {
                let used = self.views.get(&connection.number).map(|view| view.index);
                let place = self.keyspaces.iter().position(|view| Some(view.index) == used);
                if let Some(place) = place.filter(|place| !origins.has_room(*place))
                    && let Some(waiting) = self.parked.get_mut(place)
                {
                    connection.held_up = true;
                    waiting.push_back(index);
                    continue;
                }
            }
            connection.queued = false;
            self.read(index, shard, origins, clock, scratch);
        }
    }

    fn read(
        &mut self,
        index: usize,
        shard: &mut Shard,
        origins: &mut Origins,
        clock: Clock,
        scratch: &mut [u8],
    ) {
        for _ in 0..READS_PER_TURN {
            let Some(connection) = self.connections.get(index) else { return };
            if !connection.input || connection.ended || self.hub.is_killed(connection.number) {
                return;
            }
            if !connection.session.wants_input() {
                if connection.stream.is_closed() {
                    self.hang_up(index, shard, origins, clock.now());
                }
                return;
            }
            let sips = connection.sips();
            let most = if sips { SIP.min(scratch.len()) } else { scratch.len() };
            let bytes = match connection.stream.read(&mut scratch[..most]) {
                Ok(Got::Bytes(bytes)) => bytes,
                Ok(Got::Later) => {
                    (connection.input, connection.held_up) = (false, false);
                    // A handshake of TLS answers without the session.
                    if !connection.stream.flushed() {
                        self.mark(index);
                    }
                    return;
                }
                Ok(Got::End) | Err(_) => {
                    connection.ended = true;
                    connection.input = false;
                    return self.mark(index);
                }
            };
            let number = connection.number;
            let now = shard.look_at(clock);
            if let Some(view) = self.views.get_mut(&number) {
                view.active = now;
                view.traffic.0 += bytes as u64;
            }
            self.counters.traffic.0 += bytes as u64;
            self.call(index, shard, origins, now, |session, context, out, requests| {
                session.receive(&scratch[..bytes], context, out, requests);
            });
            if sips {
                break;
            }
        }
        self.look_again(index);
    }

    /// A client has closed its end, and what it has sent before is not welcome yet. What waits for others would wait for nobody,
    /// and take what somebody else could have had.
    fn hang_up(&mut self, index: usize, shard: &mut Shard, origins: &mut Origins, now: Instant) {
        let mut gone = false;
        self.call(index, shard, origins, now, |session, context, out, _| {
            gone = session.hang_up(context, out)
        });
        if gone && let Some(connection) = self.connections.get(index) {
            connection.ended = true;
            connection.input = false;
            self.mark(index);
        }
    }

    /// Hands over what connections tell each other. What they tell then comes with the next round, so that
    /// nobody has the loop alone.
    pub fn deliver(&mut self, shard: &mut Shard, origins: &mut Origins, now: Instant) {
        for (number, notice) in self.hub.take_mail() {
            let Some(index) = self.places.get(&number).copied() else { continue };
            let goes_on = notice == Notice::GoOn;
            self.call(index, shard, origins, now, |session, context, out, requests| {
                session.notify(notice, context, out, requests);
            });
            if goes_on {
                self.look_again(index);
            }
        }
    }

    /// A connection may be read again, if there is something.
    fn look_again(&mut self, index: usize) {
        if let Some(connection) = self.connections.get(index)
            && connection.input
            && !connection.queued
        {
            connection.queued = true;
            self.readable.push_back(index);
        }
    }

    /// Hands an answer to the session that waits for it.
    pub fn answer(
        &mut self,
        to: Recipient,
        outcome: Outcome,
        shard: &mut Shard,
        origins: &mut Origins,
        now: Instant,
    ) {
        let Some(connection) = self.connections.get(to.index).filter(|c| c.number == to.connection) else {
            return;
        };
        connection.in_flight = connection.in_flight.saturating_sub(1);
        self.look_again(to.index);
        self.call(to.index, shard, origins, now, |session, context, out, requests| {
            session.answer(to.request, outcome, context, out, requests);
        });
    }

    /// Tells every session that time has passed; hands out verdicts that are due.
    pub fn tick(&mut self, shard: &mut Shard, origins: &mut Origins, now: Instant) {
        for index in self.connections.keys() {
            self.call(index, shard, origins, now, |session, context, out, requests| {
                session.tick(context, out, requests);
            });
            self.look_again(index);
        }
        // Old failures are forgiven a little at a time.
        if self.failures.len() > FAILURE_TABLE / 2 {
            self.failures.pop_first();
        }
        self.counters.logins_waiting = self.verifier.waiting() as u64;
        self.counters.login_checks = self.verifier.checks();
    }

    /// Hands verdicts on passwords to those who wait for them.
    fn verdicts(&mut self, shard: &mut Shard, origins: &mut Origins, now: Instant) {
        while let Some(Verdict { asker, from, accepted }) = self.verifier.next(now) {
            let mut due = now;
            if accepted {
                self.failures.remove(&from);
            } else {
                self.counters.login_failures += 1;
                if self.failures.len() >= FAILURE_TABLE && !self.failures.contains_key(&from) {
                    self.failures.pop_first();
                }
                let failures = self.failures.entry(from).or_default();
                *failures = failures.saturating_add(1);
                if *failures >= FAILURES_FREE {
                    due = now + FAILURE_DELAY;
                }
            }
            self.late.push_back((due, asker, accepted));
        }
        let mut waiting = VecDeque::new();
        for (due, to, accepted) in std::mem::take(&mut self.late) {
            match to {
                _ if now < due => waiting.push_back((due, to, accepted)),
                Asker::Session(to) => self.answer(to, Outcome::Verified { accepted }, shard, origins, now),
                Asker::Calls(party) => self.verdicts_of_calls.push((party, accepted)),
            }
        }
        waiting.append(&mut self.late);
        self.late = waiting;
    }

    /// Writes to everyone who has something, and ends what is to end.
    pub fn flush(&mut self, shard: &mut Shard, origins: &mut Origins, now: Instant, registry: &Registry) {
        self.verdicts(shard, origins, now);
        // Whatever they have not read yet.
        for number in self.hub.take_killed() {
            if let Some(index) = self.places.get(&number).copied() {
                self.end(index, registry);
            }
        }
        for index in std::mem::take(&mut self.dirty) {
            let Some(connection) = self.connections.get(index) else { continue };
            connection.dirty = false;
            let sent = connection.stream.flush();
            let number = connection.number;
            if let (Ok(sent), Some(view)) = (&sent, self.views.get_mut(&number)) {
                view.traffic.1 += *sent as u64;
                self.counters.traffic.1 += *sent as u64;
            }
            let unsent = connection.stream.unsent();
            // The session has had its chance to do something about it.
            let flooded = unsent > self.limits.output_bytes.saturating_mul(FLOODED);
            if flooded {
                self.counters.fell_behind("output", number, self.views.get(&number), unsent, now);
            }
            let done = connection.ended || connection.session.closing();
            // In a handshake of TLS nothing can be said, so who is to go has nothing to wait for.
            let mute = done && connection.stream.handshaking();
            let dead = sent.is_err() || flooded || mute;
            // Whoever has closed its own end may still read what it asked for.
            let awaits = connection.in_flight > 0 || self.hub.is_owed(number);
            let owed = connection.ended && awaits;
            if dead || (done && connection.stream.flushed() && !owed) {
                self.end(index, registry);
            }
        }
    }

    fn end(&mut self, index: usize, registry: &Registry) {
        if let Some(mut connection) = self.connections.remove(index) {
            connection.stream.close();
            connection.stream.deregister(registry);
            let view = self.views.remove(&connection.number);
            self.places.remove(&connection.number);
            self.hub.leave(connection.number);
            // What it has asked goes on, and takes the room that it takes.
            if let Some(view) = view.filter(|_| connection.in_flight > 0) {
                self.verifier.leave(connection.number, view.address.ip());
            }
        }
    }

    fn mark(&mut self, index: usize) {
        if let Some(connection) = self.connections.get(index)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Calls a session and takes up what it asks for.
    fn call(
        &mut self,
        index: usize,
        shard: &mut Shard,
        origins: &mut Origins,
        now: Instant,
        call: impl FnOnce(&mut dyn Session, &mut Context<'_>, &mut Vec<u8>, &mut Vec<Request>),
    ) {
        let Some(connection) = self.connections.get(index) else { return };
        let number = connection.number;
        if self.hub.is_killed(number) {
            return;
        }
        let mut requests = std::mem::take(&mut self.requests);
        let mut context = Context {
            now,
            stamp: shard.io().stamp,
            connection: number,
            unsent: connection.stream.unsent(),
            random: &mut self.random,
            limits: &self.limits,
            node: &self.node,
            keyspaces: &self.keyspaces,
            login: self.hub.users.login(),
            clients: &mut self.views,
            counters: &mut self.counters,
            hub: &mut self.hub,
        };
        call(&mut *connection.session, &mut context, connection.stream.out(), &mut requests);
        connection.in_flight += requests.len() as u32;
        if connection.stream.unsent() > 0 || connection.session.closing() || connection.ended {
            self.mark(index);
        }
        for request in requests.drain(..) {
            let to = Recipient { index, connection: number, request: request.id };
            if let Err(outcome) = self.take_up(to, request.ask, shard, origins, now) {
                self.refused.push_back((to, outcome));
            }
        }
        self.requests = requests;
        // Upon each the session may ask for more, which may be refused as well: one after the other, not one within the other.
        if !std::mem::replace(&mut self.refusing, true) {
            while let Some((to, outcome)) = self.refused.pop_front() {
                self.answer(to, outcome, shard, origins, now);
            }
            self.refusing = false;
        }
    }

    /// Has a password checked that came from this address. False for calls where too many wait for that already.
    pub fn verify(
        &mut self,
        asker: Asker,
        from: IpAddr,
        user: String,
        password: Secret,
        now: Instant,
    ) -> bool {
        // Off, or deleted: whoever comes back under that name is not known.
        if !self.hub.users.admits(&user) {
            self.verifier.forget(&user);
        }
        let taken = self.verifier.ask(asker, from, user, password, now);
        if !taken {
            *self.counters.limited.entry("login_checks").or_default() += 1;
        }
        taken
    }

    /// What tells this user and password from all others.
    pub fn print(&self, user: &str, password: &Secret) -> Print {
        self.verifier.print(user, password)
    }

    /// Understands a command that came without a connection.
    pub fn understand<'w>(
        &mut self,
        words: impl IntoIterator<Item = &'w [u8]>,
        keyspace: KeyspaceId,
        user: &str,
        stamp: Stamp,
    ) -> Result<Call, Objection> {
        let Hub { users, scripts, .. } = &mut self.hub;
        let (bulk_max, elements_max) = (self.limits.bulk_bytes, self.limits.elements);
        let view = self.keyspaces.iter().find(|view| view.id == keyspace);
        let selected = view.map(|view| view.index.into());
        let mut given = Given { selected, stamp, random: &mut self.random, scripts, bulk_max, elements_max };
        call::understand(words, keyspace, user, users, &mut given)
    }

    /// Every limit.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What a keyspace is called.
    pub fn called(&self, keyspace: KeyspaceId) -> String {
        let view = self.keyspaces.iter().find(|view| view.id == keyspace);
        view.map_or_else(|| keyspace.to_string(), |view| format!("keyspace {:?}", view.name))
    }

    /// The process that serves a keyspace for clients of this node.
    pub fn host(&self, keyspace: KeyspaceId) -> Option<ProcessId> {
        let place = self.keyspaces.iter().position(|view| view.id == keyspace)?;
        self.hosts.get(place).copied()?
    }

    fn take_up(
        &mut self,
        to: Recipient,
        ask: Ask,
        shard: &mut Shard,
        origins: &mut Origins,
        now: Instant,
    ) -> Result<(), Outcome> {
        match ask {
            Ask::Execute { keyspace, command } => {
                let place = self.keyspaces.iter().position(|view| view.id == keyspace);
                let host = place.and_then(|place| Some((place, self.hosts.get(place).copied()??)));
                let Some((place, of)) = host else {
                    let keyspace = self.called(keyspace);
                    return Err(Outcome::Refused(format!("no process of this node serves {keyspace}")));
                };
                let ticket = origins.ticket();
                let reads = command.operation.is_read();
                let walks = self.keyspaces[place].transactional && command.touches_all();
                shard.execute(of, ticket, command).map_err(|error| Outcome::Refused(error.to_string()))?;
                origins.ask(ticket, Asked { to, keyspace: place, asked: now, of, reads, walks });
                Ok(())
            }
            Ask::Verify { user, password } => {
                if let Some(from) = self.views.get(&to.connection).map(|view| view.address.ip()) {
                    let taken = self.verify(Asker::Session(to), from, user, password, now);
                    debug_assert!(taken, "a session waits");
                    self.give_up_on(to.index);
                }
                Ok(())
            }
        }
    }
}

impl Connection {
    /// Whether it is read by little and little, answer by answer: it may be that nobody reads them.
    fn sips(&self) -> bool {
        self.held_up && self.stream.is_closed()
    }
}

fn view(address: SocketAddr, local: SocketAddr, now: Instant) -> ClientView {
    ClientView {
        address,
        local,
        since: now,
        active: now,
        name: String::new(),
        library: (String::new(), String::new()),
        user: "default".to_owned(),
        index: 0,
        protocol: 2,
        last_command: "",
        transaction: (None, 0),
        waits: false,
        no_evict: false,
        no_touch: false,
        traffic: (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_only_reads_nothing_is_unknown() {
        let asked = |reads| {
            let to = Recipient { index: 0, connection: 1, request: 1 };
            let of = ProcessId::from_u64(0);
            Asked { to, keyspace: 0, asked: Instant::ZERO, of, reads, walks: false }
        };
        let unknown = || Outcome::Unknown("no answer in time".to_owned());
        assert_eq!(asked(true).told(unknown()), Outcome::Refused("no answer in time".to_owned()));
        assert_eq!(asked(false).told(unknown()), unknown());
    }
}
