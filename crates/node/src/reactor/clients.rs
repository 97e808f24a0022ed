//! Client listeners, connections and sessions, and the thread that checks passwords.

use super::slab::Slab;
use super::verifier::{Asker, Claim, Party, Verdict, Verifier};
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
/// Bytes that all clients together may leave unread, or [`FLOODED`] times what one may have unsent, where that is more.
const UNREAD_MAX: usize = 1 << 30;
/// By how much answers to logins are delayed where many passwords were wrong.
const FAILURE_DELAY: Span = Span::from_secs(1);

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
    /// Bytes that they have not taken, all together, and how many that may be.
    unread: usize,
    unread_max: usize,
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
    /// Its part of [`Clients::unread`].
    unread: usize,
    /// When it last took some of that, or when there was first some to take.
    took: Instant,
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
        hub.set_numbers(keyspaces.iter().map(|view| (view.id, view.index)));
        let parked = keyspaces.iter().map(|_| VecDeque::new()).collect();
        let unread_max = limits.output_bytes.saturating_mul(FLOODED).max(UNREAD_MAX);
        Clients {
            listeners,
            missed: BTreeSet::new(),
            gateway,
            connections: Slab::default(),
            views: BTreeMap::new(),
            counters: Counters::default(),
            hub,
            places: BTreeMap::new(),
            unread: 0,
            unread_max,
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
                unread: 0,
                took: now,
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
        let number = connection.number;
        let Some(from) = self.views.get(&number).map(|view| view.address.ip()) else { return };
        if self.verifier.is_long(from)
            && self.leave(number, from)
            && let Some(connection) = self.connections.get(index)
        {
            connection.in_flight = connection.in_flight.saturating_sub(1);
            connection.ended = true;
            self.mark(index);
        }
    }

    /// A connection waits no more for its password to be checked. Whether it did. Who goes before the answer counts as who has
    /// guessed wrong, unless that is known and was counted.
    fn leave(&mut self, connection: u64, from: IpAddr) -> bool {
        let claim = self.verifier.leave(connection, from);
        if claim.as_ref().is_some_and(|claim| claim.known.is_none()) {
            self.fail(from);
        }
        claim.is_some()
    }

    /// A password from this address was wrong.
    fn fail(&mut self, from: IpAddr) {
        self.counters.login_failures += 1;
        self.hub.users.failures.add(from);
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
            self.end_late_handshake(index, now);
            self.call(index, shard, origins, now, |session, context, out, requests| {
                session.tick(context, out, requests);
            });
            self.look_again(index);
        }
        // Old failures are forgiven a little at a time.
        self.hub.users.failures.fade();
        self.counters.logins_waiting = self.verifier.waiting() as u64;
        self.counters.login_checks = self.verifier.checks();
    }

    /// Whoever is in a handshake of TLS has no session yet that could look at the time, also where nobody has to log in.
    fn end_late_handshake(&mut self, index: usize, now: Instant) {
        let late = self
            .connections
            .get(index)
            .filter(|connection| connection.stream.handshaking() && !connection.ended);
        let Some(connection) = late else { return };
        let since = self.views.get(&connection.number).map(|view| view.since);
        if since.is_some_and(|since| now.since(since) > self.limits.login_time) {
            connection.ended = true;
            self.mark(index);
            *self.counters.limited.entry("login_time").or_default() += 1;
        }
    }

    /// Takes the verdicts on passwords that there are.
    fn hear(&mut self, now: Instant) {
        while let Some(Verdict { asker, from, accepted, known, late }) = self.verifier.next(now) {
            if !accepted && !known {
                self.fail(from);
            }
            let failures = &mut self.hub.users.failures;
            let due = if late || failures.delay(from) { now + FAILURE_DELAY } else { now };
            if accepted {
                // At once: who does not wait for so long may come again.
                failures.forgive(from);
                self.verifier.trust(from);
            }
            self.late.push_back((due, asker, accepted));
        }
    }

    /// Hands verdicts on passwords to those who wait for them.
    fn verdicts(&mut self, shard: &mut Shard, origins: &mut Origins, now: Instant) {
        self.hear(now);
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
            let number = connection.number;
            let soft = self.limits.output_bytes;
            let clogged = connection.stream.unsent() > soft;
            let sent = self.send(index, now);
            let flows = self.connections.get(index).is_some_and(|it| it.stream.unsent() <= soft);
            if clogged && flows {
                // It goes on with what it has held back, and with what it has not read.
                self.call(index, shard, origins, now, |session, context, out, requests| {
                    session.tick(context, out, requests);
                });
                self.look_again(index);
            }
            let Some(connection) = self.connections.get(index) else { continue };
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
            let awaits =
                connection.in_flight > 0 || connection.session.holds() > 0 || self.hub.is_owed(number);
            let owed = connection.ended && awaits;
            if dead || (done && connection.stream.flushed() && !owed) {
                self.end(index, registry);
            }
        }
    }

    fn end(&mut self, index: usize, registry: &Registry) {
        if let Some(mut connection) = self.remove(index) {
            connection.stream.deregister(registry);
        }
    }

    /// Ends a connection. Its socket is closed with it.
    fn remove(&mut self, index: usize) -> Option<Connection> {
        let mut connection = self.connections.remove(index)?;
        connection.stream.close();
        self.unread -= connection.unread;
        let view = self.views.remove(&connection.number);
        self.places.remove(&connection.number);
        self.hub.leave(connection.number);
        // What it has asked goes on, and takes the room that it takes.
        if let Some(view) = view.filter(|_| connection.in_flight > 0) {
            self.leave(connection.number, view.address.ip());
        }
        Some(connection)
    }

    /// Sends what a connection takes; how many bytes went.
    fn send(&mut self, index: usize, now: Instant) -> io::Result<usize> {
        let Some(connection) = self.connections.get(index) else { return Ok(0) };
        let sent = connection.stream.flush();
        if matches!(sent, Ok(1..)) {
            connection.took = now;
        }
        if let (Ok(sent), Some(view)) = (&sent, self.views.get_mut(&connection.number)) {
            view.traffic.1 += *sent as u64;
            self.counters.traffic.1 += *sent as u64;
        }
        self.weigh(index, now);
        sent
    }

    /// Bytes that clients make this node hold: answers that they leave unread, and requests that are not whole.
    pub fn held(&mut self) -> u64 {
        let half_read = self.connections.iter_mut().map(|(_, connection)| connection.session.half_read());
        (self.unread + half_read.sum::<usize>()) as u64
    }

    /// Counts anew what a connection has not taken.
    fn weigh(&mut self, index: usize, now: Instant) {
        let Some(connection) = self.connections.get(index) else { return };
        let unread = connection.stream.unsent() + connection.session.holds();
        if connection.unread == 0 {
            connection.took = now;
        }
        self.unread = self.unread + unread - connection.unread;
        connection.unread = unread;
    }

    /// Where all together have left too much unread, the one that has left most for longest is cut off, unless it takes some: who has just
    /// taken some is reading, however much there is for it. What the session of one that takes some has kept is written with its next
    /// tick, within 100 ms, since [`Clients::flush`] does not see that it was clogged.
    fn relieve(&mut self, now: Instant) {
        // The same for all, so that among those that have just taken some it is the one that has most.
        const LEAST: Span = Span::from_millis(1);
        let left = |connection: &Connection| {
            let time = now.since(connection.took) + LEAST;
            connection.unread as u128 * u128::from(time.as_nanos())
        };
        while self.unread > self.unread_max {
            let all = self.connections.iter_mut().filter(|(_, connection)| connection.unread > 0);
            let most = all.max_by_key(|(_, connection)| left(connection));
            let Some((index, number, unread)) = most.map(|(index, most)| (index, most.number, most.unread))
            else {
                return;
            };
            if matches!(self.send(index, now), Ok(1..)) {
                continue;
            }
            self.counters.fell_behind("output", number, self.views.get(&number), unread, now);
            drop(self.remove(index));
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
        self.weigh(index, now);
        self.relieve(now);
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
        if !self.hub.users.admits(&user, false) {
            self.verifier.forget(&user);
        }
        let known = self.hub.users.judge(&user, password.expose()).known();
        let suspect = self.hub.users.failures.delay(from);
        let taken = self.verifier.ask(Claim { asker, user, password, known }, from, suspect, now);
        if !taken {
            *self.counters.limited.entry("login_checks").or_default() += 1;
        } else if known == Some(false) {
            // Not only with the verdict: who goes before it has guessed as well.
            self.fail(from);
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
        let full = view.is_some_and(|view| !view.full.is_empty());
        let mut given = Given { selected, stamp, random: &mut self.random, scripts, bulk_max, elements_max };
        call::understand(words, keyspace, full, user, users, &mut given)
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

    /// The keyspace at this place has carried out what a client has asked.
    pub fn has_answered(&mut self, place: usize, now: Instant) {
        if let Some(keyspace) = self.keyspaces.get(place) {
            self.hub.hear_from(keyspace.id, now);
        }
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
    use crate::redis::RedisGateway;
    use crate::security;
    use std::io::Read as _;
    use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// Clients of a node without keyspaces that has a user of the deployment file and one of an ACL file, and whose passwords the
    /// test checks.
    struct World {
        clients: Clients,
        asked: Receiver<(String, Secret)>,
        verdict: Sender<bool>,
        drawn: u64,
    }

    impl World {
        fn new() -> World {
            let rules = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&rules, "user eve on >right ~* +@all\n").unwrap();
            let users = Users::of(["app".to_owned()], Some(rules.path().to_owned())).unwrap();
            let (queue, asked) = sync_channel(1);
            let (verdict, done) = channel();
            let verifier = Verifier::of(security::draw_key().unwrap(), 64, queue, done);
            let clients = Clients::new(
                Vec::new(),
                Box::new(RedisGateway),
                Limits::default(),
                Vec::new(),
                Vec::new(),
                NodeView::default(),
                verifier,
                users,
                Random::seeded(1),
            );
            World { clients, asked, verdict, drawn: 0 }
        }

        /// A connection says to be this user. Its number.
        fn claim(&mut self, user: &str, password: &str) -> u64 {
            self.drawn += 1;
            let asker = Asker::Session(Recipient { index: 0, connection: self.drawn, request: 0 });
            let password = Secret::new(password.into());
            assert!(self.clients.verify(asker, HERE, user.to_owned(), password, Instant::ZERO));
            self.drawn
        }

        /// The password that is being checked is found wrong, as any of an ACL file.
        fn check(&mut self) {
            self.asked.try_recv().expect("something to check");
            self.verdict.send(false).unwrap();
            self.clients.hear(Instant::ZERO);
        }

        /// The connections that are to be told, when, and what.
        fn told(&mut self) -> Vec<(u64, Instant, bool)> {
            let told = |(due, asker, accepted)| match asker {
                Asker::Session(to) => (to.connection, due, accepted),
                Asker::Calls(_) => (0, due, accepted),
            };
            self.clients.late.drain(..).map(told).collect()
        }
    }

    #[test]
    fn after_wrong_passwords_a_right_one_is_told_no_earlier_than_a_wrong_one() {
        let (at_once, late) = (Instant::ZERO, Instant::ZERO + FAILURE_DELAY);
        let mut world = World::new();
        for guess in 1..=6 {
            // From the fifth on.
            world.claim("eve", "wrong");
            // Once it guesses, what is known needs no check.
            if guess < 6 {
                world.check();
            }
            world.clients.hear(Instant::ZERO);
            assert_eq!(world.told(), [(guess, if guess < 5 { at_once } else { late }, false)]);
        }
        assert_eq!(world.clients.counters.login_failures, 6);
        let [wrong, right] = ["wrong", "right"].map(|password| world.claim("eve", password));
        world.clients.hear(Instant::ZERO);
        assert_eq!(world.told(), [(wrong, late, false), (right, late, true)]);
        // It has forgiven them.
        let after = world.claim("eve", "right");
        world.check();
        assert_eq!(world.told(), [(after, at_once, true)]);
        assert_eq!(world.clients.counters.login_failures, 7);
        // A pool that logs in without a failure waits for nothing but its first check.
        for _ in 0..50 {
            world.claim("app", "right");
        }
        world.asked.try_recv().expect("something to check");
        world.verdict.send(true).unwrap();
        world.clients.hear(Instant::ZERO);
        let told = world.told();
        assert_eq!(told.len(), 50);
        assert!(told.iter().all(|(_, due, accepted)| *due == at_once && *accepted));
    }

    /// Says nothing.
    struct Silent;

    impl Session for Silent {
        fn receive(&mut self, _: &[u8], _: &mut Context<'_>, _: &mut Vec<u8>, _: &mut Vec<Request>) {}

        fn answer(&mut self, _: u64, _: Outcome, _: &mut Context<'_>, _: &mut Vec<u8>, _: &mut Vec<Request>) {
        }

        fn notify(&mut self, _: Notice, _: &mut Context<'_>, _: &mut Vec<u8>, _: &mut Vec<Request>) {}

        fn tick(&mut self, _: &mut Context<'_>, _: &mut Vec<u8>, _: &mut Vec<Request>) {}

        fn wants_input(&self) -> bool {
            true
        }

        fn hang_up(&mut self, _: &mut Context<'_>, _: &mut Vec<u8>) -> bool {
            false
        }

        fn closing(&self) -> bool {
            false
        }
    }

    #[test]
    fn what_all_clients_leave_unread_is_bounded_and_who_leaves_most_is_cut_off() {
        const MOST: usize = 16 << 20;
        // The one that is told most.
        const READER: usize = 8;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = World::new().clients;
        clients.unread_max = MOST;
        let mut ends = Vec::new();
        for number in 0..9 {
            ends.push(std::net::TcpStream::connect(address).unwrap());
            let socket = listener.accept().unwrap().0;
            socket.set_nonblocking(true).unwrap();
            let socket = mio::net::TcpStream::from_std(socket);
            clients.places.insert(number, clients.connections.next());
            clients.views.insert(number, view(address, address, Instant::ZERO));
            clients.connections.insert(Connection {
                stream: Stream::accepted(socket, &Acceptor::Plain).unwrap(),
                session: Box::new(Silent),
                number,
                queued: false,
                held_up: false,
                input: false,
                dirty: false,
                ended: false,
                in_flight: 0,
                unread: 0,
                took: Instant::ZERO,
            });
        }
        // The first is told little, seven others more than all may leave together, and the last, which reads, most.
        let (mut told, mut read) = (0, 0);
        for round in 0..24 {
            let now = Instant::ZERO + Span::from_secs(round);
            for index in 0..9 {
                let Some(connection) = clients.connections.get(index) else { continue };
                let bytes = match index {
                    0 => 100,
                    READER => 8 << 20,
                    _ => (1 << 20) + index,
                };
                connection.stream.out().extend_from_slice(&vec![b'x'; bytes]);
                clients.weigh(index, now);
                clients.relieve(now);
                assert!(clients.unread <= MOST, "{round}");
            }
            told += 8 << 20;
            while read < told {
                clients.send(READER, now).unwrap();
                let unread = clients.connections.get(READER).expect("it reads").unread;
                ends[READER].read_exact(&mut vec![0; told - unread - read]).unwrap();
                read = told - unread;
            }
        }
        let cut = clients.counters.limited.get("output").copied().unwrap_or(0);
        assert!(cut > 0 && clients.len() as u64 == 9 - cut, "{cut}");
        assert!(clients.places.contains_key(&0) && clients.connections.get(0).is_some());
    }

    #[test]
    fn who_hangs_up_before_the_answer_has_guessed_wrong() {
        let mut world = World::new();
        for (user, failures) in [("eve", 500), ("app", 1_000)] {
            for _ in 0..500 {
                let connection = world.claim(user, "wrong");
                world.clients.leave(connection, HERE);
            }
            // The first is being checked.
            world.check();
            assert_eq!(world.clients.counters.login_failures, failures);
            assert_eq!(world.clients.verifier.waiting(), 0);
        }
        assert!(world.clients.hub.users.failures.delay(HERE));
    }

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
