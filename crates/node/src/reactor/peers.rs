//! The links to peers and the connections that come from them.

use super::{Failure, Kind, token};
use crate::births::{Births, Stranger, Way};
use crate::clock::Clock;
use crate::hub::{Heard, News};
use crate::limits::{Limits, Lines};
use crate::metrics::NodeMetrics;
use crate::node::{Agreed, differences};
use crate::outgoing::Outgoing;
use crate::poller::Ready;
use crate::reactor::slab::Slab;
use crate::resolver::Resolver;
use crate::security::{self, PeerTls};
use crate::shard::{Refused, Shard};
use crate::transport::emulation::Emulation;
use crate::transport::frame::{self, Frame, FrameBuffer, FrameError, Hello, MAGIC, VERSION};
use crate::transport::link::{Link, Target};
use crate::transport::stream::{Acceptor, Got, Stream};
use isochrone_core::{Instant, KeyspaceId, NodeId, PartitionId, Span, Stamp};
use mio::Registry;
use mio::net::TcpListener;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Scratch buffers full that are read from one connection before the others get their turn.
const READS_PER_TURN: usize = 8;

/// Groups whose leaders are kept by what peers claim.
const LEADERS_MAX: usize = 256 * 1_024;
/// Bytes of answers to heartbeats that may wait for a peer that does not read them.
const PONGS_MAX: usize = 64 << 10;

/// Clocks that differ by more than that are told of: what is overdue is deleted after as long, whoever knows of it.
const CLOCKS_APART: Span = Span::from_secs(1);
/// How often.
const REMIND: Span = Span::from_secs(3_600);

/// What a peer has said of its memory counts for so long; its pings come every second.
const FULL: Span = Span::from_secs(5);

/// A peer that is reached dials back within seconds, unless it does not find this node where it listens.
const ONE_WAY: Span = Span::from_secs(10);

/// Everything between this node and the others.
pub(crate) struct Peers {
    pub hello: Hello,
    /// What this node is called.
    pub name: String,
    pub links: BTreeMap<NodeId, Link>,
    /// The highest reign of each group that a peer claims, and who claims it.
    pub leaders: BTreeMap<(KeyspaceId, PartitionId), (u64, NodeId)>,
    /// When that was last claimed.
    pub claimed: BTreeMap<(KeyspaceId, PartitionId), Instant>,
    /// The peers that use more memory than they may: how much that is, and when they said so last.
    pub without_memory: BTreeMap<NodeId, (u64, Instant)>,
    pub listener: Option<TcpListener>,
    pub acceptor: Acceptor,
    pub emulation: Option<Emulation>,
    pub metrics: Arc<NodeMetrics>,
    pub limits: Limits,
    pub resolver: Option<Resolver>,
    /// How often each link had failed when its peer's name was last looked up.
    looked_up: BTreeMap<NodeId, u64>,
    /// When it was last said that the clock of a peer differs, and whether it does still, as was said.
    warned: BTreeMap<NodeId, (Instant, bool)>,
    /// Since when peers are reached that do not reach this node, and whether that was said.
    one_way: BTreeMap<NodeId, (Instant, bool)>,
    /// What the connections of other nodes have told since they were last taken.
    pub news: Vec<Heard>,
    /// How many links had been made when that was last asked.
    made: u64,
    inbound: Slab<Inbound>,
    /// Connections with more to read than one turn took.
    again: Vec<usize>,
    /// Whether so much waits for the disk that nothing more is read from peers, who would have it record more.
    full: bool,
    /// Whether somebody could not be taken, of whom the system does not tell again.
    missed: bool,
    generation: u64,
    /// The data directories of all, and their starts.
    births: Births,
    /// Lines about connections that have not greeted.
    strangers: Lines,
    /// From where the last came of whom there was no line.
    left_out: Option<SocketAddr>,
    /// In what the deployment files of others differed when they last greeted.
    pub apart: BTreeMap<NodeId, Apart>,
    /// Why processes of others were refused when they last greeted, as it was told.
    refused: BTreeMap<NodeId, String>,
}

/// In what another node's deployment file and this one's differ.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub(crate) struct Apart {
    /// The keyspaces of which nothing is taken from that node.
    pub keyspaces: BTreeSet<KeyspaceId>,
    /// What differs, for people; empty where nothing does.
    pub why: String,
}

struct Inbound {
    stream: Stream,
    /// From where it has come; the system forgets that of one that is broken.
    address: SocketAddr,
    frames: FrameBuffer,
    /// Who it is, once it has greeted.
    node: Option<NodeId>,
    /// By its greeting.
    apart: Apart,
    until: Instant,
}

/// Why a connection of a peer ends.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it closed the connection")]
    Closed,
    #[error("it sent {0}")]
    Frame(#[from] FrameError),
    #[error("it sent a malformed message {0}")]
    Message(#[from] Refused),
    #[error("{0}")]
    Greeting(String),
    #[error("{name}: {why}")]
    Stranger { node: NodeId, name: String, why: Stranger },
    #[error("{}", .apart.why)]
    Differs { node: NodeId, apart: Apart },
    #[error("it sent a frame that a dialler does not send here")]
    Unexpected,
}

impl Peers {
    pub fn new(
        hello: Hello,
        listener: Option<TcpListener>,
        acceptor: Acceptor,
        emulation: Option<Emulation>,
        metrics: Arc<NodeMetrics>,
        limits: Limits,
        births: Births,
    ) -> Peers {
        Peers {
            hello,
            name: String::new(),
            links: BTreeMap::new(),
            leaders: BTreeMap::new(),
            claimed: BTreeMap::new(),
            without_memory: BTreeMap::new(),
            listener,
            acceptor,
            emulation,
            metrics,
            limits,
            resolver: None,
            looked_up: BTreeMap::new(),
            warned: BTreeMap::new(),
            one_way: BTreeMap::new(),
            news: Vec::new(),
            made: 0,
            inbound: Slab::default(),
            again: Vec::new(),
            full: false,
            missed: false,
            generation: 0,
            births,
            strangers: Lines::default(),
            left_out: None,
            apart: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Connections from now on show and demand this.
    pub fn renew(&mut self, tls: &PeerTls) {
        self.acceptor = Acceptor::Tls(Arc::clone(&tls.server));
        self.links.values_mut().for_each(|link| link.renew(Arc::clone(&tls.client)));
    }

    /// Takes every connection that waits.
    pub fn accept(&mut self, now: Instant, registry: &Registry) {
        while let Some(listener) = &self.listener {
            let (socket, address) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a peer");
                    self.missed = true;
                    return;
                }
            };
            self.make_room(registry);
            let number = token(Kind::Inbound, self.inbound.next());
            let stream = Stream::accepted(socket, &self.acceptor)
                .and_then(|mut stream| stream.register(registry, number).map(|()| stream));
            match stream {
                Ok(stream) => {
                    let until = now + self.limits.handshake_time;
                    let frames = FrameBuffer::default();
                    self.inbound.insert(Inbound {
                        stream,
                        address,
                        frames,
                        node: None,
                        apart: Apart::default(),
                        until,
                    });
                }
                Err(error) => tracing::warn!(%error, "cannot take in a peer"),
            }
        }
    }

    /// Ends the connection that has not greeted for the longest, where there are as many of those as there may be: a peer greets
    /// within some round trips, and whoever is silent must not keep it out.
    fn make_room(&mut self, registry: &Registry) {
        let limit = self.limits.handshakes;
        let greeting = self.inbound.iter_mut().filter(|(_, inbound)| inbound.node.is_none());
        let greeting: Vec<_> = greeting.map(|(index, inbound)| (inbound.until, index)).collect();
        if greeting.len() >= limit
            && let Some((_, oldest)) = greeting.into_iter().min()
        {
            let why = Broken::Greeting(format!("no greeting, and {limit} others wait to greet"));
            self.end(oldest, registry, &why);
        }
    }

    /// An inbound connection has news.
    pub fn wake(
        &mut self,
        index: usize,
        ready: Ready,
        shard: &mut Shard,
        clock: Clock,
        registry: &Registry,
        scratch: &mut [u8],
    ) {
        let Some(inbound) = self.inbound.get(index) else { return };
        if ready.readable {
            inbound.stream.wake(ready.closed);
            if self.again.contains(&index) {
                // It has had its turn, or has none now.
                return;
            }
            if self.full && inbound.node.is_some() {
                self.again.push(index);
            } else {
                self.read(index, shard, clock, registry, scratch);
            }
        } else if !inbound.stream.flushed()
            && let Err(error) = inbound.stream.flush()
        {
            self.end(index, registry, &Broken::Io(error));
        }
    }

    /// What is read with, beside the connections that are read.
    fn reading(&mut self, clock: Clock) -> (Reading<'_>, &mut Slab<Inbound>) {
        let context = Reading {
            clock,
            hello: &self.hello,
            name: &self.name,
            leaders: &mut self.leaders,
            claimed: &mut self.claimed,
            without_memory: &mut self.without_memory,
            births: &mut self.births,
            links: &self.links,
            emulation: self.emulation.as_ref(),
            limits: &self.limits,
            news: &mut self.news,
        };
        (context, &mut self.inbound)
    }

    fn read(
        &mut self,
        index: usize,
        shard: &mut Shard,
        clock: Clock,
        registry: &Registry,
        scratch: &mut [u8],
    ) {
        let (context, inbound) = self.reading(clock);
        let Some(inbound) = inbound.get(index) else { return };
        let known = inbound.node;
        let outcome = context.read(inbound, shard, scratch);
        let outcome = outcome.and_then(|more| Ok((more, inbound.stream.flush()?)));
        let node = inbound.node;
        let greeted = node.filter(|_| known.is_none()).map(|node| (node, inbound.apart.clone()));
        if let Some((node, apart)) = greeted {
            self.refused.remove(&node);
            if apart.keyspaces.is_empty() {
                self.apart.remove(&node);
            } else {
                self.metrics.refused_greetings.fetch_add(1, Relaxed);
                if self.apart.get(&node) != Some(&apart) {
                    tracing::warn!(why = %apart.why, "nothing of a keyspace is taken from a peer");
                }
                self.apart.insert(node, apart);
            }
            if let Some(link) = self.links.get_mut(&node)
                && let Some(queue) = shard.io().outgoing.peer(node)
            {
                link.hail(queue, clock.now(), registry);
            }
        }
        match outcome {
            Ok((true, _)) => self.again.push(index),
            Ok((false, _)) => {
                if let Some(node) = node {
                    self.retire_others(index, node, registry);
                    if known.is_none() {
                        self.leave_stale(clock.now(), registry);
                    }
                }
            }
            Err(error) => self.end(index, registry, &error),
        }
    }

    /// Reads on where the last turn stopped, unless too much waits for the disk.
    pub fn read_on(&mut self, shard: &mut Shard, clock: Clock, registry: &Registry, scratch: &mut [u8]) {
        self.full = shard.io().ledger().backlog() >= self.limits.journal_queue_bytes;
        if self.full {
            return;
        }
        for index in std::mem::take(&mut self.again) {
            self.read(index, shard, clock, registry, scratch);
        }
    }

    /// Takes over what the shard has for its peers and moves what is due.
    pub fn flush(&mut self, shard: &mut Shard, now: Instant, registry: &Registry, scratch: &mut [u8]) {
        let changed =
            self.emulation.as_ref().map(Emulation::generation).filter(|new| *new != self.generation);
        let mut flush = |link: &mut Link, outgoing: &mut Outgoing| {
            let Some(queue) = outgoing.peer(link.node) else { return };
            if changed.is_some()
                && let Some(emulation) = &self.emulation
            {
                link.emulate(emulation.get(self.hello.from, link.node), queue, now);
            }
            let fresh = !queue.frames.is_empty() || !queue.urgent.is_empty();
            link.take(queue, now);
            if fresh || link.next_deadline() <= now {
                link.tick(now, &mut self.births, registry, scratch);
                link.take(queue, now);
            }
            queue.wait(link.waiting(), now);
        };
        let outgoing = &mut shard.io().outgoing;
        let mut order = std::mem::take(&mut outgoing.order);
        for node in order.drain(..) {
            if let Some(link) = self.links.get_mut(&node) {
                flush(link, outgoing);
            }
        }
        outgoing.order = order;
        // The others: news, and what was to be delayed until now.
        self.links.values_mut().for_each(|link| flush(link, outgoing));
        self.generation = changed.unwrap_or(self.generation);
    }

    /// Says where the clock of a peer differs from this node's, which stands at `stamp`: every [`REMIND`] at most, and when it is
    /// over.
    fn compare_clocks(&mut self, now: Instant, stamp: Stamp) {
        for (node, link) in &self.links {
            let Some((ahead, wrong)) = link.told().map(|told| told.ahead(now, stamp)) else { continue };
            let apart = ahead.unsigned_abs();
            let (least, most) = (apart.saturating_sub(wrong), apart.saturating_add(wrong));
            let told = self.warned.get(node).copied();
            match to_tell(Span::from_nanos(least), Span::from_nanos(most), told, now) {
                Some(true) => {
                    self.warned.insert(*node, (now, true));
                    tracing::warn!(
                        peer = %link.name,
                        "the clocks of {} and {} differ: that of {} is {} ahead. Keys expire by the clock of the node that is \
                         asked, so early or late by as much. Have NTP set both (chrony, systemd-timesyncd)",
                        self.name,
                        link.name,
                        if ahead > 0 { &link.name } else { &self.name },
                        Span::from_nanos(ahead.unsigned_abs()),
                    );
                }
                Some(false) => {
                    if let Some((_, apart)) = self.warned.get_mut(node) {
                        *apart = false;
                    }
                    tracing::info!(peer = %link.name, "the clocks of {} and {} agree again", self.name, link.name);
                }
                None => {}
            }
        }
    }

    /// Says which peers are reached and do not reach this node, once, and when that is over: nothing else here would tell that its
    /// own address leads nowhere.
    fn look_back(&mut self, now: Instant) {
        let here: BTreeSet<NodeId> =
            self.inbound.iter_mut().filter_map(|(_, inbound)| inbound.node).collect();
        for (node, link) in &self.links {
            let only = link.ready() && !here.contains(node);
            match comes_back(&mut self.one_way, *node, only, now) {
                Some(true) => {
                    let listens = self.listener.as_ref().and_then(|listener| listener.local_addr().ok());
                    let listens = listens.map_or_else(|| "nowhere".to_owned(), |address| address.to_string());
                    tracing::warn!(
                        peer = %link.name,
                        "{} is reached, and has not reached this node for {ONE_WAY}, which listens at {listens}: see that its `listen` \
                         in the file of {} leads there. Loopback, as Debian's 127.0.1.1, leads no other machine here; where the \
                         address of this machine has changed since the node started, start the node again; where its connections are refused here, this log says why",
                        link.name,
                        link.name,
                    );
                }
                Some(false) if here.contains(node) => {
                    tracing::info!(peer = %link.name, "{} reaches this node again", link.name);
                }
                _ => {}
            }
        }
    }

    /// By how many nanoseconds the clock of a peer is ahead of this node's, which stands at `stamp`; see [`to_show`].
    pub fn ahead(&self, node: NodeId, now: Instant, stamp: Stamp) -> Option<i64> {
        Some(to_show(self.links.get(&node)?.told()?.ahead(now, stamp)))
    }

    /// Ends greetings that take too long, looks at clocks, and takes who could not be taken.
    pub fn tick(&mut self, now: Instant, stamp: Stamp, registry: &Registry) {
        self.compare_clocks(now, stamp);
        self.leave_stale(now, registry);
        self.look_back(now);
        if let Some(more) = self.strangers.pass(now) {
            let last = self.left_out.take().map_or_else(|| "unknown".to_owned(), |last| last.to_string());
            tracing::warn!(
                "{more} more connections to the peer port were refused or ended before they greeted, the last from {last}"
            );
        }
        if std::mem::take(&mut self.missed) {
            self.accept(now, registry);
        }
        for index in self.inbound.keys() {
            if self.inbound.get(index).is_some_and(|inbound| inbound.node.is_none() && inbound.until <= now) {
                let why = Broken::Greeting(format!("no greeting within {}", self.limits.handshake_time));
                self.end(index, registry, &why);
            }
        }
    }

    /// Looks the names of peers up that were not, or whose links have failed since. Called with every round:
    /// it only looks at counters, but answers are wanted at once.
    pub fn resolve(&mut self, now: Instant) {
        let Some(resolver) = &mut self.resolver else { return };
        while let Some((node, found)) = resolver.answer() {
            if let Some(link) = self.links.get_mut(&node) {
                link.resolved(now, found);
            }
        }
        for link in self.links.values() {
            let known = self.looked_up.get(&link.node).copied();
            if let Target::Name { host, port, .. } = &link.address
                && known.is_none_or(|failures| failures < link.failures)
                && resolver.ask(link.node, host, *port, link.failures)
            {
                self.looked_up.insert(link.node, link.failures);
            }
        }
    }

    pub fn next_deadline(&self) -> Instant {
        if !self.again.is_empty() && !self.full {
            return Instant::ZERO;
        }
        self.links.values().map(Link::next_deadline).min().unwrap_or(Instant::MAX)
    }

    /// The shortest round trip of the last ten seconds to a peer that is reached, what is emulated included.
    pub fn round_trip(&self, node: NodeId) -> Option<Span> {
        // Pings pass a way that is cut.
        let measured = self.links.get(&node).filter(|link| link.ready())?.told()?.round_trip;
        let emulated = self.emulation.as_ref().map_or(Span::ZERO, |emulation| {
            let me = self.hello.from;
            emulation.get(me, node).one_way + emulation.get(node, me).one_way
        });
        Some(measured + emulated)
    }

    /// How much memory a peer may use that has said of late that it uses more.
    pub fn full(&self, node: NodeId, now: Instant) -> Option<u64> {
        let (limit, heard) = self.without_memory.get(&node)?;
        (now.since(*heard) < FULL).then_some(*limit)
    }

    /// How much memory this node may use, where it uses more: the peers are told, at once where that is new.
    pub fn tell_full(&mut self, full: Option<u64>) {
        self.links.values_mut().for_each(|link| link.tell_full(full));
    }

    /// Whether nothing of a keyspace is taken from a node, since their deployment files differ in it.
    pub fn is_apart(&self, node: NodeId, keyspace: KeyspaceId) -> bool {
        self.apart.get(&node).is_some_and(|apart| apart.keyspaces.contains(&keyspace))
    }

    /// Whether a link was made since this was last asked: its peer has not heard what others were told before.
    pub fn reaches_another(&mut self) -> bool {
        let made: u64 = self.links.values().map(|link| link.connects).sum();
        std::mem::replace(&mut self.made, made) != made
    }

    /// A peer's link has news.
    pub fn wake_link(
        &mut self,
        node: NodeId,
        ready: Ready,
        now: Instant,
        registry: &Registry,
        scratch: &mut [u8],
    ) {
        if let Some(link) = self.links.get_mut(&node) {
            link.wake(ready, now, &mut self.births, registry, scratch);
        }
    }

    /// Fails where a peer says that this node has lost its data directory, or has a copy: it must not take part without
    /// what it promised.
    pub fn check(&mut self) -> Result<(), Failure> {
        let disowned =
            |link: &Link| Some(Failure::Disowned { by: link.name.clone(), why: link.disowned()?.to_owned() });
        let Some(failure) = self.links.values().find_map(disowned) else { return Ok(()) };
        if let Err(error) = self.births.refused(self.hello.from) {
            tracing::warn!("that this start was refused is not kept: {error}");
        }
        Err(failure)
    }

    pub fn close(&mut self, registry: &Registry) {
        self.listener = None;
        self.links.values_mut().for_each(|link| link.close(registry));
    }

    /// A node has one connection towards us: a newer one means that the older is dead, if not yet known to be.
    fn retire_others(&mut self, index: usize, node: NodeId, registry: &Registry) {
        for other in self.inbound.keys() {
            if other != index && self.inbound.get(other).is_some_and(|inbound| inbound.node == Some(node)) {
                self.drop_inbound(other, registry);
            }
        }
    }

    /// Ends the connections that lead to another process of a node than the one that was taken in last.
    fn leave_stale(&mut self, now: Instant, registry: &Registry) {
        self.links.values_mut().for_each(|link| link.leave_stale(now, &mut self.births, registry));
        for index in self.inbound.keys() {
            let node = self.inbound.get(index).and_then(|inbound| inbound.node);
            if node.is_some_and(|node| self.births.is_stale(node, Way::Back)) {
                self.drop_inbound(index, registry);
            }
        }
    }

    fn end(&mut self, index: usize, registry: &Registry, why: &Broken) {
        let Some((node, address)) = self.inbound.get(index).map(|inbound| (inbound.node, inbound.address))
        else {
            return;
        };
        let peer = node.and_then(|node| self.links.get(&node)).map_or("unknown", |link| &link.name);
        // A node dials again and again: that its file differs is one line, and so is why it is refused, until that is another.
        let known = match why {
            Broken::Differs { node, apart } => self.apart.get(node) == Some(apart),
            Broken::Stranger { node, .. } => self.refused.get(node) == Some(&why.to_string()),
            _ => false,
        };
        // Whoever has not greeted may be anybody.
        let told = node.is_some() || !known && self.strangers.take();
        if !told && !known {
            self.left_out = Some(address);
        }
        // What is no TLS, or a certificate that one of the two does not trust, is no better than a wrong greeting.
        let stranger = |error: &io::Error| node.is_none() && error.kind() == io::ErrorKind::InvalidData;
        match why {
            Broken::Io(error) if stranger(error) => {
                self.metrics.refused_greetings.fetch_add(1, Relaxed);
                if told {
                    tracing::warn!(%address, why = %why, "a connection to the peer port was refused");
                }
            }
            Broken::Io(_) | Broken::Closed => {
                if told {
                    tracing::info!(peer, %address, why = %why, "a peer's connection ended");
                }
            }
            Broken::Greeting(_) | Broken::Stranger { .. } => {
                self.metrics.refused_greetings.fetch_add(1, Relaxed);
                if told {
                    tracing::warn!(%address, why = %why, "a connection to the peer port was refused");
                    if let Broken::Stranger { node, .. } = why {
                        self.refused.insert(*node, why.to_string());
                    }
                }
            }
            Broken::Differs { node, apart } => {
                self.metrics.refused_greetings.fetch_add(1, Relaxed);
                if told {
                    tracing::warn!(%address, why = %why, "a connection to the peer port was refused");
                    self.apart.insert(*node, apart.clone());
                }
            }
            Broken::Frame(_) | Broken::Message(_) | Broken::Unexpected => {
                self.metrics.malformed_frames.fetch_add(1, Relaxed);
                if told {
                    tracing::warn!(peer, %address, why = %why, "a peer's connection was dropped");
                }
            }
        }
        self.drop_inbound(index, registry);
    }

    fn drop_inbound(&mut self, index: usize, registry: &Registry) {
        if let Some(mut inbound) = self.inbound.remove(index) {
            let _ = inbound.stream.flush();
            inbound.stream.deregister(registry);
            if let Some(node) = inbound.node
                && !self.inbound.iter_mut().any(|(_, other)| other.node == Some(node))
            {
                self.births.ended(node, Way::Back);
                self.news.push((node, None));
            }
        }
        self.again.retain(|other| *other != index);
    }
}

/// Whether to tell that clocks which are so far apart, at least and at most, differ, or that they agree again; nothing where
/// that was done: when, and whether they differed as was said last.
fn to_tell(least: Span, most: Span, warned: Option<(Instant, bool)>, now: Instant) -> Option<bool> {
    match warned {
        Some((_, true)) if most <= CLOCKS_APART / 2 => Some(false),
        // Also where they have agreed meanwhile: what comes and goes is no more than one line an hour.
        Some((last, _)) if now.since(last) < REMIND => None,
        _ => (least > CLOCKS_APART).then_some(true),
    }
}

/// What to show of a clock that is ahead by so many nanoseconds, give or take so many: just that, but where answers take so long
/// that this may be wrong by much, only what is certain.
fn to_show((ahead, wrong): (i64, u64)) -> i64 {
    let wrong = i64::try_from(wrong).unwrap_or(i64::MAX);
    if Span::from_nanos(wrong.unsigned_abs()) <= CLOCKS_APART / 2 {
        return ahead;
    }
    ahead.saturating_sub(ahead.clamp(-wrong, wrong))
}

/// Whether to tell that a peer is reached only, which it is now or not, or that it is so no longer; nothing where that was done.
fn comes_back(
    since: &mut BTreeMap<NodeId, (Instant, bool)>,
    node: NodeId,
    only: bool,
    now: Instant,
) -> Option<bool> {
    if !only {
        return since.remove(&node).and_then(|(_, told)| told.then_some(false));
    }
    let (since, told) = since.entry(node).or_insert((now, false));
    let late = !*told && now.since(*since) >= ONE_WAY;
    *told |= late;
    late.then_some(true)
}

/// What reading a connection needs besides it.
struct Reading<'a> {
    clock: Clock,
    hello: &'a Hello,
    name: &'a str,
    leaders: &'a mut BTreeMap<(KeyspaceId, PartitionId), (u64, NodeId)>,
    claimed: &'a mut BTreeMap<(KeyspaceId, PartitionId), Instant>,
    without_memory: &'a mut BTreeMap<NodeId, (u64, Instant)>,
    births: &'a mut Births,
    links: &'a BTreeMap<NodeId, Link>,
    emulation: Option<&'a Emulation>,
    limits: &'a Limits,
    news: &'a mut Vec<Heard>,
}

impl Reading<'_> {
    /// Reads and handles what is there; true where there may be more.
    fn read(mut self, inbound: &mut Inbound, shard: &mut Shard, scratch: &mut [u8]) -> Result<bool, Broken> {
        for _ in 0..READS_PER_TURN {
            let bytes = match inbound.stream.read(scratch)? {
                Got::Bytes(bytes) => bytes,
                Got::Later => return Ok(false),
                Got::End => return Err(Broken::Closed),
            };
            let now = shard.look_at(self.clock);
            // Before the greeting nobody may make us keep more than a greeting.
            let limit = if inbound.node.is_some() { self.limits.frame_bytes } else { frame::HELLO_MAX };
            let Inbound { stream, frames, node, apart, .. } = inbound;
            frames.feed(&scratch[..bytes], limit, |frame| match (frame, *node) {
                (Frame::Message { to, .. }, Some(_)) if apart.keyspaces.contains(&to.keyspace) => {
                    shard.misaddressed += 1;
                    Ok(())
                }
                (Frame::Message { from, to, body }, Some(peer)) => Ok(shard.frame(peer, from, to, body)?),
                (Frame::Hello(hello), None) => {
                    *apart = self.greet(&hello, stream, now).inspect_err(|why| match why {
                        Broken::Stranger {
                            why:
                                why @ (Stranger::Reborn
                                | Stranger::Outdated { .. }
                                | Stranger::Twin { .. }
                                | Stranger::Displaced { .. }),
                            ..
                        } => {
                            frame::disown(stream.out(), &why.to_string());
                        }
                        why => frame::refuse(stream.out(), &why.to_string()),
                    })?;
                    *node = Some(hello.from);
                    self.news.push((hello.from, None));
                    frame::welcome(stream.out(), self.births.own());
                    Ok(())
                }
                (
                    Frame::News(
                        News::Waiting { keyspace, .. }
                        | News::Filled { keyspace, .. }
                        | News::Happened { keyspace, .. },
                    ),
                    Some(_),
                ) if apart.keyspaces.contains(&keyspace) => Ok(()),
                (Frame::News(news), Some(peer)) => {
                    self.news.push((peer, Some(news)));
                    Ok(())
                }
                (Frame::Ping(ping), Some(peer)) => {
                    self.births.heard(peer, Way::Back, Instant::from_nanos(ping.heard), now);
                    // What the emulated network cuts off says nothing here, although its pings come.
                    let (leads, full) =
                        if self.is_cut_off(peer) { (Vec::new(), None) } else { (ping.leads, ping.full) };
                    match full {
                        Some(limit) => {
                            self.without_memory.insert(peer, (limit, now));
                        }
                        None => {
                            self.without_memory.remove(&peer);
                        }
                    }
                    let leads = leads.into_iter().filter(|(of, ..)| !apart.keyspaces.contains(of));
                    for (keyspace, partition, reign) in leads {
                        // Nobody tells of more groups than a cluster may have.
                        if self.leaders.len() >= LEADERS_MAX
                            && !self.leaders.contains_key(&(keyspace, partition))
                        {
                            continue;
                        }
                        let known = self.leaders.entry((keyspace, partition)).or_insert((reign, peer));
                        if reign >= known.0 {
                            *known = (reign, peer);
                            self.claimed.insert((keyspace, partition), now);
                        }
                    }
                    // Whoever asks has to read the answers.
                    if stream.unsent() > PONGS_MAX {
                        return Err(Broken::Unexpected);
                    }
                    frame::pong(stream.out(), ping.number, shard.io().stamp, now);
                    Ok(())
                }
                _ => Err(Broken::Unexpected),
            })?;
        }
        Ok(true)
    }

    /// Whether the emulation cuts a peer off, in either direction.
    fn is_cut_off(&self, peer: NodeId) -> bool {
        let me = self.hello.from;
        self.emulation.is_some_and(|emulation| emulation.get(peer, me).cut || emulation.get(me, peer).cut)
    }

    /// Whether this greeting is one of a peer's, and in what its deployment file differs: the keyspaces that agree are served all
    /// the same.
    fn greet(&mut self, hello: &Hello, stream: &Stream, now: Instant) -> Result<Apart, Broken> {
        self.recognise(hello, stream).map_err(Broken::Greeting)?;
        let name = self.called(hello.from);
        let (mine, theirs) = (&*self.hello.keyspaces, &*hello.keyspaces);
        let apart = apart((self.name, mine), (name.as_str(), theirs));
        // Where all keyspaces of both differ nothing is exchanged, and its data directory not remembered: who has begun under a
        // wrong file needs another one.
        let agrees = |own: &Agreed| {
            let there = theirs.iter().any(|other| other.number == own.number);
            there && !apart.keyspaces.contains(&KeyspaceId(own.number))
        };
        if !apart.keyspaces.is_empty() && !mine.iter().any(agrees) {
            return Err(Broken::Differs { node: hello.from, apart });
        }
        let place = stream
            .address()
            .map_or_else(|| "an address that is gone".to_owned(), |from| from.ip().to_string());
        let taken = self.births.take_in(hello.from, &hello.life, Way::Back, &place, now);
        taken.map_err(|why| {
            let (node, name) = (hello.from, format!("{name}, from {place}"));
            Broken::Stranger { node, name, why }
        })?;
        Ok(apart)
    }

    /// What a node is called here; one that is not in the file has only a number.
    fn called(&self, node: NodeId) -> String {
        match self.links.get(&node) {
            Some(link) => link.name.clone(),
            None if node == self.hello.from => self.name.to_owned(),
            None => format!("number {} in the file, counted from 0", node.0),
        }
    }

    /// Whether it comes from who it says that it does, and is meant for this node.
    fn recognise(&self, hello: &Hello, stream: &Stream) -> Result<(), String> {
        let mine = self.hello;
        if hello.magic != MAGIC {
            return Err("this is the port for peers of an Isochrone cluster, and that was no greeting".into());
        }
        if hello.version != VERSION {
            return Err(format!(
                "this node speaks version {VERSION} of the protocol between nodes, you speak {}",
                hello.version
            ));
        }
        if hello.cluster_id != mine.cluster_id {
            return Err(format!(
                "this node belongs to cluster {:?}, you to {:?}; check `cluster` and the addresses in your deployment file",
                mine.cluster, hello.cluster
            ));
        }
        let me = self.name;
        if hello.to != mine.from {
            return Err(format!(
                "this is node {me} of the cluster, you meant to reach {}; check the addresses in your deployment file, and \
                 whether it has the [[node]] sections in the same order as that of {me}: nodes are known by their places",
                self.called(hello.to)
            ));
        }
        if hello.from == mine.from {
            return Err(format!("you say that you are {me}, and so am I: two processes run as one node"));
        }
        let name = self.called(hello.from);
        if !self.links.contains_key(&hello.from) {
            return Err(format!(
                "the deployment file that {me} was started with does not have you, {name}; start {me} again with the file of now"
            ));
        }
        if stream.encrypted() {
            security::check_peer(stream.certificates(), hello.from, mine.cluster_id)
                .map_err(|why| format!("you say that you are {name}, but {why}"))?;
        }
        Ok(())
    }
}

/// In what the files of this node and of another, each with its name, differ.
fn apart(mine: (&str, &[Agreed]), theirs: (&str, &[Agreed])) -> Apart {
    let found = differences(mine, theirs);
    let Some((_, what)) = found.first() else { return Apart::default() };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more differ"),
    };
    let why = format!(
        "the deployment files of {} and {} differ in what must be the same on all nodes: {what}{more}; see \
         docs/operations.md, \"Files that differ\"",
        mine.0, theirs.0
    );
    Apart { keyspaces: found.into_iter().map(|(keyspace, _)| keyspace).collect(), why }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::transport::frame::{Life, Start};
    use crate::transport::link::Told;
    use isochrone_core::Random;
    use mio::Token;
    use std::fmt::Debug;
    use std::path::Path;
    use std::sync::Mutex;
    use tracing::field::Field;
    use tracing::{Event, Level, Metadata, Subscriber, span};

    /// What the first of two nodes, which has its data here, greets with, and whom it knows.
    fn first_of_two(data: &Path) -> (Hello, Births) {
        let births = Births::open(data, NodeId(0), 1, 1, &mut Random::seeded(1)).unwrap();
        let (magic, version, life) = (MAGIC, VERSION, births.own().clone());
        let (from, to) = (NodeId(0), NodeId(1));
        let (cluster, keyspaces) = ("tests".to_owned(), Arc::default());
        (Hello { magic, version, cluster_id: 1, cluster, from, to, life, keyspaces }, births)
    }

    /// The peers of that node, to none of which it has a link yet.
    pub(in crate::reactor) fn peers(data: &Path, listener: Option<TcpListener>, limits: Limits) -> Peers {
        let (hello, births) = first_of_two(data);
        Peers::new(hello, listener, Acceptor::Plain, None, Arc::default(), limits, births)
    }

    #[test]
    fn who_does_not_greet_makes_room_for_who_comes_later() {
        let data = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { handshakes: 2, ..Limits::default() };
        let time = limits.handshake_time;
        let mut peers = peers(data.path(), Some(listener), limits);
        let poll = mio::Poll::new().unwrap();
        let at = |second| Instant::ZERO + Span::from_secs(second);
        let mut sockets = Vec::new();
        for second in 0..5 {
            sockets.push(std::net::TcpStream::connect(address).unwrap());
            let refused = |peers: &Peers| peers.metrics.refused_greetings.load(Relaxed);
            while peers.inbound.len() as u64 + refused(&peers) < sockets.len() as u64 {
                peers.accept(at(second), poll.registry());
            }
            if second == 0 {
                let first = peers.inbound.get(0).unwrap();
                first.node = Some(NodeId(1));
            }
        }
        let mut left: Vec<_> =
            peers.inbound.iter_mut().map(|(_, inbound)| (inbound.node, inbound.until)).collect();
        left.sort();
        // The one that has greeted, and the latest two.
        assert_eq!(left, [(None, at(3) + time), (None, at(4) + time), (Some(NodeId(1)), at(0) + time)]);
        assert_eq!(peers.metrics.refused_greetings.load(Relaxed), 2);
    }

    /// Keeps what would be in the log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::INFO
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = String::new();
            event.record(&mut |_: &Field, value: &dyn Debug| line += &format!("{value:?} "));
            self.0.lock().unwrap().push(line);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn strangers_do_not_fill_the_log() {
        let data = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits::default();
        let late = Instant::ZERO + limits.handshake_time;
        let mut peers = peers(data.path(), Some(listener), limits);
        let poll = mio::Poll::new().unwrap();
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            let refused = |peers: &Peers| peers.metrics.refused_greetings.load(Relaxed);
            for count in 1..=1_000 {
                drop(std::net::TcpStream::connect(address).unwrap());
                while peers.inbound.len() as u64 + refused(&peers) < count {
                    peers.accept(Instant::ZERO, poll.registry());
                }
            }
            for seconds in [0, 2] {
                peers.tick(late + Span::from_secs(seconds), Stamp::ZERO, poll.registry());
            }
            assert_eq!(refused(&peers), 1_000);
        });
        let lines = log.0.lock().unwrap();
        assert!(lines.len() < 50, "{}", lines.len());
        let more =
            lines.iter().filter_map(|line| line.split_once(" more connections")?.0.parse::<u64>().ok());
        let (told, left_out): (Vec<u64>, u64) = (more.clone().collect(), more.sum());
        assert!(!told.is_empty());
        assert_eq!((lines.len() - told.len()) as u64 + left_out, 1_000, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("127.0.0.1:")), "{lines:?}");
    }

    #[test]
    fn a_handshake_that_fails_counts_as_a_greeting_that_is_refused_and_a_connection_that_ends_does_not() {
        let data = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut peers = peers(data.path(), Some(listener), Limits::default());
        let poll = mio::Poll::new().unwrap();
        let log = Log::default();
        let mut from = Vec::new();
        tracing::subscriber::with_default(log.clone(), || {
            for kind in [io::ErrorKind::InvalidData, io::ErrorKind::ConnectionReset] {
                let client = std::net::TcpStream::connect(address).unwrap();
                from.push(client.local_addr().unwrap());
                while peers.inbound.len() == 0 {
                    peers.accept(Instant::ZERO, poll.registry());
                }
                let index = peers.inbound.keys()[0];
                peers.end(index, poll.registry(), &Broken::Io(kind.into()));
            }
        });
        assert_eq!(peers.metrics.refused_greetings.load(Relaxed), 1);
        let lines = log.0.lock().unwrap();
        let [refused, ended] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(refused.contains("was refused") && refused.contains(&from[0].to_string()), "{refused}");
        assert!(ended.contains("ended") && ended.contains(&from[1].to_string()), "{ended}");
    }

    /// What comes of a connection that greets so, and ends.
    fn greet(peers: &mut Peers, hello: &Hello, now: Instant, registry: &Registry) -> Result<Apart, String> {
        let address = peers.listener.as_ref().unwrap().local_addr().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        while peers.inbound.len() == 0 {
            peers.accept(now, registry);
        }
        let index = peers.inbound.keys()[0];
        let (mut context, inbound) = peers.reading(Clock::start());
        let greeted = context.greet(hello, &inbound.get(index).unwrap().stream, now);
        peers.end(index, registry, greeted.as_ref().err().unwrap_or(&Broken::Closed));
        greeted.map_err(|why| why.to_string())
    }

    #[test]
    fn a_copy_that_comes_again_and_again_is_told_of_once_and_again_when_that_changes() {
        let data = tempfile::tempdir().unwrap();
        let (hello, births) = first_of_two(data.path());
        let node = hello.to;
        let [first, second] = [(1, 20), (2, 30)].map(|(number, salt)| Start { number, salt });
        let original = Life { birth: 7, start: first, past: Vec::new() };
        let copy = Life { birth: 7, start: second, past: vec![first] };
        let copy = Hello { from: node, to: hello.from, life: copy, ..hello.clone() };
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (limits, poll) = (Limits::default(), mio::Poll::new().unwrap());
        let target = Target::new("127.0.0.1", 1);
        let link = Link::new(node, "b".to_owned(), target, Token(0), hello.clone(), None, Random::seeded(2));
        let mut peers =
            Peers::new(hello, Some(listener), Acceptor::Plain, None, Arc::default(), limits, births);
        peers.links.insert(node, link);
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        peers.births.take_in(node, &original, Way::Back, "there", at(0)).unwrap();
        let log = Log::default();
        tracing::subscriber::with_default(log.clone(), || {
            for ms in 100..107 {
                greet(&mut peers, &copy, at(ms), poll.registry()).unwrap_err();
            }
            peers.births.heard(node, Way::Back, at(200), at(300));
            for ms in 301..303 {
                greet(&mut peers, &copy, at(ms), poll.registry()).unwrap_err();
            }
        });
        assert_eq!(peers.metrics.refused_greetings.load(Relaxed), 9);
        let lines = log.0.lock().unwrap();
        let [once, again] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(once.contains("answered a moment ago, as start 1, at there"), "{once}");
        assert!(again.contains("has answered since this one, start 2, first came"), "{again}");
    }

    #[test]
    fn a_node_whose_file_differs_is_refused_and_told_of_once() {
        let data = tempfile::tempdir().unwrap();
        let (hello, births) = first_of_two(data.path());
        let to = hello.to;
        let of = |replicas: &str| -> Arc<[Agreed]> {
            let values = [("replicas".to_owned(), replicas.to_owned())].into();
            [Agreed { number: 1, name: "main".to_owned(), values }].into()
        };
        let hello = Hello { keyspaces: of("a,b,c"), ..hello };
        let greeting = |birth, replicas| {
            let life = Life { birth, ..hello.life.clone() };
            Hello { from: to, to: hello.from, life, keyspaces: of(replicas), ..hello.clone() }
        };
        let (same, other) = (greeting(7, "a,b,c"), greeting(8, "a,b,c,d,e"));
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (limits, poll) = (Limits::default(), mio::Poll::new().unwrap());
        let target = Target::new("127.0.0.1", 1);
        let link = Link::new(to, "b".to_owned(), target, Token(0), hello.clone(), None, Random::seeded(2));
        let mut peers =
            Peers::new(hello, Some(listener), Acceptor::Plain, None, Arc::default(), limits, births);
        peers.name = "a".to_owned();
        peers.links.insert(to, link);
        let log = Log::default();
        let greet = |peers: &mut Peers, hello: &Hello| greet(peers, hello, Instant::ZERO, poll.registry());
        tracing::subscriber::with_default(log.clone(), || {
            for _ in 0..50 {
                let why = greet(&mut peers, &other).unwrap_err();
                let what = "differ in what must be the same on all nodes: keyspace \"main\" has replicas = a,b,c at a and \
                            replicas = a,b,c,d,e at b; see";
                assert!(why.starts_with("the deployment files of a and b") && why.contains(what), "{why}");
            }
            // With the right file, and the new directory that goes with it, it is welcome.
            assert_eq!(greet(&mut peers, &same), Ok(Apart::default()));
            // A mistake in a keyspace that was added cuts off that one alone.
            let log = |partitions: &str| Agreed {
                number: 2,
                name: "log".to_owned(),
                values: [("partitions".to_owned(), partitions.to_owned())].into(),
            };
            peers.hello.keyspaces = [of("a,b,c")[0].clone(), log("1")].into();
            let added: Arc<[Agreed]> = [of("a,b,c")[0].clone(), log("2")].into();
            let apart = greet(&mut peers, &Hello { keyspaces: added, ..same.clone() }).unwrap();
            assert_eq!(apart.keyspaces, BTreeSet::from([KeyspaceId(2)]));
            let what = "keyspace \"log\" has partitions = 1 at a and partitions = 2 at b; see";
            assert!(apart.why.contains(what), "{}", apart.why);
            // Nothing is left where they have no other one in common.
            let alone: Arc<[Agreed]> = [log("2")].into();
            greet(&mut peers, &Hello { keyspaces: alone, ..same.clone() }).unwrap_err();
        });
        assert_eq!(peers.metrics.refused_greetings.load(Relaxed), 51);
        let lines = log.0.lock().unwrap();
        let told = lines.iter().filter(|line| line.contains("the deployment files of a and b")).count();
        assert_eq!((told, lines.iter().filter(|line| line.contains(" more connections")).count()), (2, 0));
    }

    #[test]
    fn a_peer_that_is_reached_and_does_not_come_is_told_of_once() {
        let mut since = BTreeMap::new();
        let steps = [
            (0, true, None),
            (9, true, None),
            // It has come.
            (9, false, None),
            (10, true, None),
            (20, true, Some(true)),
            (3_000, true, None),
            (3_001, false, Some(false)),
            (3_002, false, None),
        ];
        for (second, only, told) in steps {
            let now = Instant::ZERO + Span::from_secs(second);
            assert_eq!(comes_back(&mut since, NodeId(1), only, now), told, "{second}");
        }
    }

    #[test]
    fn clocks_that_differ_are_told_of_now_and_then() {
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        let stamp = |seconds: u64| Stamp::from_nanos(seconds * 1_000_000_000);
        let told = Told { at: at(10), stamp: stamp(5_000), round_trip: Span::from_secs(2) };
        // A second for the way back and three that have passed since.
        for (mine, ahead) in [(5_004, 0), (5_000, 4), (8_604, -3_600)] {
            assert_eq!(told.ahead(at(13), stamp(mine)), (ahead * 1_000_000_000, 1_000_000_000));
        }
        let far = Told { stamp: Stamp::from_nanos(u64::MAX), ..told };
        assert_eq!(far.ahead(at(10), Stamp::ZERO).0, i64::MAX);
        for (least, most, warned, expected) in [
            (900, 1_300, None, None),
            (1_100, 1_300, None, Some(true)),
            (1_100, 1_300, Some((at(401), true)), None),
            (1_100, 1_300, Some((at(400), true)), Some(true)),
            (900, 1_300, Some((Instant::ZERO, true)), None),
            (0, 1_300, Some((at(10), true)), None),
            (0, 400, Some((at(3_990), true)), Some(false)),
            // They agreed again meanwhile.
            (0, 400, Some((at(10), false)), None),
            (1_100, 1_300, Some((at(401), false)), None),
            (1_100, 1_300, Some((at(400), false)), Some(true)),
        ] {
            let told = to_tell(Span::from_millis(least), Span::from_millis(most), warned, at(4_000));
            assert_eq!(told, expected, "{least} {most} {warned:?}");
        }
    }

    #[test]
    fn what_is_shown_of_a_clock_is_never_far_from_what_is_certain() {
        for (ahead, wrong, shown) in [
            (40, 75, 40),
            (-1_400, 500, -1_400),
            // Answers of a node without a processor.
            (2_900, 3_000, 0),
            (-3_400, 3_500, 0),
            (-3_600_000, 3_000, -3_597_000),
        ] {
            let nanos = |millis: i64| millis * 1_000_000;
            assert_eq!(to_show((nanos(ahead), nanos(wrong).unsigned_abs())), nanos(shown), "{ahead} {wrong}");
        }
        assert_eq!(to_show((i64::MIN, u64::MAX)), -1);
        assert_eq!(to_show((i64::MAX, u64::MAX)), 0);
    }
}
