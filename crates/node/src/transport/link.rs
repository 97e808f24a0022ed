//! The outgoing half of the way to a peer: dials, greets, keeps what is to be sent until it is due and the connection takes it,
//! and dials again with growing pauses when the connection breaks.
//!
//! Where a peer takes less than is sent, frames wait here and not in the system's buffers, which have little that was not sent yet,
//! the less the slower that leaves ([`Pace`]): so a heartbeat is late by little more than the way itself makes it, and pings are
//! answered, however much waits.

use super::emulation::Delay;
use super::frame::{self, Frame, FrameBuffer, FrameError, Hello, Ping, VERSION};
use super::stream::{Got, Stream};
use crate::births::{Births, Stranger, Way};
use crate::outgoing::PeerQueue;
use crate::poller::Ready;
use crate::security;
use isochrone_core::{Instant, KeyspaceId, NodeId, PartitionId, Random, Span, Stamp};
use mio::{Registry, Token};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Scratch buffers full that are read at once, where an honest peer has answered some pings.
const READS_MAX: usize = 64;
/// The first pause before dialling again; doubled up to [`PAUSE_MAX`], each drawn from half to whole.
const PAUSE_MIN: Span = Span::from_millis(20);
const PAUSE_MAX: Span = Span::from_secs(1);
/// How long a connection may take to be made and greeted.
const GREETING: Span = Span::from_secs(5);
/// How often an idle or busy link is asked whether the other end is there.
pub(crate) const PING: Span = Span::from_secs(1);
/// A link whose pings stay unanswered this long is dead, whatever TCP believes.
const SILENCE: Span = Span::from_secs(8);
/// What is told of a peer is the best of its answers that are no older than this; at most so many are kept.
const RECENT: Span = Span::from_secs(10);
const RECENT_MAX: usize = 16;
/// By so much more than its round trips allow, in nanoseconds, may answers differ in what they say of a clock: for how clocks drift
/// and are slewed meanwhile, and for how late this node notices an answer. Beyond, one of both clocks has been set.
const STEP: i128 = 50_000_000;

/// So many bytes at once do not fit into one packet, where packets are those of Ethernet.
const PACKETS: usize = 2 << 10;
/// A peer to which a link is made so soon after it was silent is there, and small packets reach it.
const AT_ONCE: Span = Span::from_secs(2);
/// So many links in a row that end in silence once something large was sent, and are made again at once, are told of.
const LARGE_LOST: u32 = 2;

/// Bytes that are given to the connection at a time, at most and at least; the system has about as many that it has not sent yet.
const LEAVING: usize = 64 << 10;
const LEAVING_MIN: usize = 8 << 10;
/// So long what a connection carries is counted, ...
const WINDOW: Span = Span::from_millis(50);
/// ... and what it carried this long ago says nothing any more.
const STALE: Span = Span::from_secs(1);

/// Where a peer is reached.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Target {
    /// At this address.
    Address(SocketAddr),
    /// Where this name leads, once it is known; names are looked up again whenever the link breaks.
    Name {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// What the last look-up gave.
        found: Result<SocketAddr, String>,
    },
}

impl Target {
    /// A host that may be an address or a name.
    pub fn new(host: &str, port: u16) -> Target {
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => Target::Address(SocketAddr::new(address, port)),
            Err(_) => {
                let found = Err(format!("{host:?} was not looked up yet"));
                Target::Name { host: host.to_owned(), port, found }
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Address(address) => address.fmt(f),
            Target::Name { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

/// See the module's page.
pub struct Link {
    /// The peer.
    pub node: NodeId,
    /// Its name, for messages.
    pub name: String,
    /// Where it is reached.
    pub address: Target,
    /// How often the link was made.
    pub connects: u64,
    /// How often it broke or could not be made.
    pub failures: u64,
    /// Where it is not ready: since when the peer was not heard of, or was tried in vain.
    pub down: Option<Instant>,
    token: Token,
    hello: Hello,
    tls: Option<Arc<ClientConfig>>,
    state: State,
    pause: Span,
    /// What is emulated on the way to the peer.
    delay: Delay,
    /// Flushes that are not due yet, oldest first.
    delayed: VecDeque<(Instant, Vec<u8>)>,
    delayed_bytes: usize,
    /// Whole frames that are due, which the connection has not taken yet.
    waiting: Waiting,
    pace: Pace,
    large: Large,
    random: Random,
    last_error: String,
    disowned: Option<String>,
    recent: Recent,
    /// What pings tell the peer that this node leads.
    leads: Vec<(KeyspaceId, PartitionId, u64)>,
    /// What they tell of its memory.
    full: Option<u64>,
}

/// What a peer's wall clock stood at within a round trip.
#[derive(Copy, Clone, Debug)]
pub struct Told {
    /// When that was over.
    pub at: Instant,
    /// The peer's clock.
    pub stamp: Stamp,
    /// From ping to pong. What is emulated holds neither up.
    pub round_trip: Span,
}

impl Told {
    /// By how many nanoseconds the peer's clock is ahead of one that stands at `stamp` now, as if both ways took as long; and
    /// by how many that may be wrong.
    pub fn ahead(&self, now: Instant, stamp: Stamp) -> (i64, u64) {
        let half = self.round_trip.as_nanos() / 2;
        let since = now.since(self.at).as_nanos();
        let theirs = i128::from(self.stamp.as_nanos()) + i128::from(half) + i128::from(since);
        let ahead = theirs - i128::from(stamp.as_nanos());
        (i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX }), half)
    }

    /// Whether both may be right of clocks that nobody has set between them.
    fn agrees(&self, other: &Told) -> bool {
        let offset = |told: &Told| {
            let half = i128::from(told.round_trip.as_nanos() / 2);
            (i128::from(told.stamp.as_nanos()) + half - i128::from(told.at.as_nanos()), half)
        };
        let ((one, wrong), (another, as_wrong)) = (offset(self), offset(other));
        (one - another).abs() <= wrong + as_wrong + STEP
    }
}

/// The answers to pings of the last seconds, oldest first.
#[derive(Default)]
struct Recent(VecDeque<Told>);

impl Recent {
    fn push(&mut self, told: Told) {
        // What was said before a clock was set holds no longer, however soon it was back.
        self.0.retain(|old| old.agrees(&told));
        let stale = |first: &Told| told.at.since(first.at) > RECENT;
        while self.0.len() >= RECENT_MAX || self.0.front().is_some_and(stale) {
            self.0.pop_front();
        }
        self.0.push_back(told);
    }

    /// The one that was back soonest, the latest of equals. What makes others late is a busy node at either end, and that is
    /// no part of the way; and the sooner it was back, the less wrong is what it says of the clock.
    fn best(&self) -> Option<Told> {
        self.0.iter().rev().min_by_key(|told| told.round_trip).copied()
    }
}

/// Whether large packets get through, as far as this end can tell.
#[derive(Default)]
struct Large {
    /// Since when the connection has been given more than a packet that no answer stands behind.
    since: Option<Instant>,
    /// When the last connection ended in silence with such, if it did.
    lost: Option<Instant>,
    /// How many in a row have ended so, and were followed by another at once.
    times: u32,
}

impl Large {
    /// The system has taken so many bytes at once.
    fn sent(&mut self, bytes: usize, now: Instant) {
        if bytes >= PACKETS {
            self.since.get_or_insert(now);
        }
    }

    /// A ping that was sent then is answered: what the connection was given before it has arrived.
    fn answered(&mut self, ping: Instant) {
        if self.since.take_if(|since| *since < ping).is_some() {
            self.times = 0;
        }
    }

    /// The connection has ended, or was not made.
    fn ended(&mut self, silent: bool, now: Instant) {
        self.lost = self.since.take().filter(|_| silent).map(|_| now);
    }

    /// Another one is made. Whether it is time to say what that looks like.
    fn made(&mut self, now: Instant) -> bool {
        let at_once = self.lost.take().is_some_and(|lost| now.since(lost) <= AT_ONCE);
        self.times = if at_once { self.times.saturating_add(1) } else { 0 };
        self.times == LARGE_LOST
    }
}

/// Frames in the order in which they leave.
#[derive(Default)]
struct Waiting {
    urgent: Vec<u8>,
    others: VecDeque<Vec<u8>>,
    /// How much of the first of the others has left.
    left: usize,
    /// Bytes of the others.
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, frames: Vec<u8>) {
        self.bytes += frames.len();
        self.others.push_back(frames);
    }

    fn is_empty(&self) -> bool {
        self.bytes == 0 && self.urgent.is_empty()
    }

    /// What has left in part, and nothing else.
    fn begun(mut self) -> Waiting {
        self.urgent.clear();
        self.others.truncate(usize::from(self.left > 0));
        self.bytes = self.others.front().map_or(0, |first| first.len() - self.left);
        self
    }

    /// Gives `stream` what is urgent, and others of at least `leaving` bytes where the system has taken all that it was given before.
    fn fill(&mut self, stream: &mut Stream, leaving: usize) {
        let free = stream.flushed();
        if stream.unsent() < 2 * LEAVING {
            stream.out().append(&mut self.urgent);
        }
        while free
            && stream.unsent() < leaving
            && let Some(first) = self.others.front()
        {
            let rest = &first[self.left..];
            let taken = frame::whole(rest, leaving - stream.unsent());
            stream.out().extend_from_slice(&rest[..taken]);
            self.bytes -= taken;
            self.left += taken;
            if self.left == first.len() {
                self.left = 0;
                self.others.pop_front();
            }
        }
    }
}

/// How much a connection carries, and so how much it is given at a time: what the system has, nothing overtakes any more. Where it
/// takes all, nothing waits and nothing is learned; where it does not, what it takes next is as much as has left. Half of what
/// leaves in a [`WINDOW`] is given at a time: the system takes as much more as its own bound rises, which must not raise it again.
#[derive(Default)]
struct Pace {
    /// When the window began, and what has left since.
    since: Instant,
    taken: usize,
    /// What left in the window before.
    before: usize,
    /// Whether the system has not taken all.
    full: bool,
    /// The bound of unsent bytes that it was told.
    told: usize,
}

impl Pace {
    /// Bytes to give at a time: a power of two.
    fn leaving(&self) -> usize {
        let half = (self.taken.max(self.before) / 2).clamp(LEAVING_MIN, LEAVING);
        1 << half.ilog2()
    }

    /// The system has taken so many bytes, and all that there were or not.
    fn took(&mut self, bytes: usize, full: bool, now: Instant) {
        let passed = now.since(self.since);
        if !std::mem::replace(&mut self.full, full) {
            if full {
                let known = self.before.max(self.taken);
                (self.since, self.taken, self.before) = (now, 0, if passed < STALE { known } else { 0 });
            }
        } else if passed >= WINDOW {
            // Where nothing was taken for long, the window was as long.
            let share = (self.taken + bytes) as u64 * WINDOW.as_nanos() / passed.as_nanos();
            (self.since, self.taken, self.before) = (now, 0, share as usize);
        } else {
            self.taken += bytes;
        }
    }
}

/// `told` is the peer's steady clock in the last pong, nanoseconds.
enum State {
    Pausing { until: Instant },
    Greeting { stream: Stream, frames: FrameBuffer, until: Instant, greeted: bool },
    Ready { stream: Stream, frames: FrameBuffer, ping_at: Instant, heard: Instant, told: u64 },
}

/// Why a link broke.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Unresolved(String),
    #[error("it closed the connection")]
    Closed,
    #[error("it closed the connection before it had answered; its log says why")]
    Unanswered,
    #[error("it sent {0}")]
    Frame(#[from] FrameError),
    #[error("it refused us: {0}")]
    Refused(String),
    #[error("it does not know us: {0}")]
    Disowned(String),
    #[error(transparent)]
    Stranger(#[from] Stranger),
    #[error("it speaks version {0} of the protocol between nodes, this node {VERSION}")]
    Version(u16),
    #[error("it sent a frame that an acceptor does not send")]
    Unexpected,
    #[error("no answer within {0}")]
    Silent(Span),
    #[error("another process of it was taken in meanwhile")]
    Stale,
}

impl Link {
    /// A link that dials at the next tick, or as soon as its peer's name is known.
    pub fn new(
        node: NodeId,
        name: String,
        address: Target,
        token: Token,
        hello: Hello,
        tls: Option<Arc<ClientConfig>>,
        random: Random,
    ) -> Link {
        let named = matches!(address, Target::Name { .. });
        let until = if named { Instant::MAX } else { Instant::ZERO };
        Link {
            node,
            name,
            address,
            connects: 0,
            failures: 0,
            down: None,
            token,
            hello,
            tls,
            state: State::Pausing { until },
            pause: PAUSE_MIN,
            delay: Delay::default(),
            delayed: VecDeque::new(),
            delayed_bytes: 0,
            waiting: Waiting::default(),
            pace: Pace::default(),
            large: Large::default(),
            random,
            last_error: String::new(),
            disowned: None,
            recent: Recent::default(),
            leads: Vec::new(),
            full: None,
        }
    }

    /// Whether messages reach the peer's node, as far as this end knows.
    pub fn ready(&self) -> bool {
        matches!(self.state, State::Ready { .. }) && !self.delay.cut
    }

    /// What the peer's clock stood at within the shortest round trip of the last ten seconds; none while there is no connection.
    pub fn told(&self) -> Option<Told> {
        self.recent.best()
    }

    /// Why the peer says that this node has lost its data directory, or has a copy, if it does.
    pub fn disowned(&self) -> Option<&str> {
        self.disowned.as_deref()
    }

    /// Why it broke last; empty while it is ready.
    pub fn trouble(&self) -> &str {
        &self.last_error
    }

    /// Changes what is emulated. A cut loses what is on its way.
    pub fn emulate(&mut self, delay: Delay, queue: &mut PeerQueue, now: Instant) {
        if delay.cut {
            // The connection stays: a message of which a part has left would be taken for the beginning of the next.
            let begun = std::mem::take(&mut self.waiting).begun();
            self.lose();
            self.waiting = begun;
        }
        queue.loss = delay.loss;
        self.delay = delay;
        if self.ready() {
            self.down = None;
        } else {
            self.down.get_or_insert(now);
        }
    }

    /// The next dial shows and demands this.
    pub fn renew(&mut self, tls: Arc<ClientConfig>) {
        self.tls = Some(tls);
    }

    /// The peer's name was looked up. News are tried at once.
    pub fn resolved(&mut self, now: Instant, news: Result<SocketAddr, String>) {
        if let Target::Name { found, .. } = &mut self.address
            && *found != news
        {
            *found = news;
            if let State::Pausing { until } = &mut self.state {
                *until = now;
            }
        }
    }

    /// The peer has come up and greeted: whoever pauses before dialling again need not, and what is for the peer waits for the link.
    pub fn hail(&mut self, queue: &mut PeerQueue, now: Instant, registry: &Registry) {
        if matches!(self.state, State::Pausing { until } if until < Instant::MAX) {
            self.dial(now, registry);
            self.take(queue, now);
        }
    }

    /// What this node leads from now on. News go at once, with a ping of their own.
    pub fn tell(&mut self, leads: &[(KeyspaceId, PartitionId, u64)]) {
        if self.leads == leads {
            return;
        }
        self.leads = leads.to_vec();
        self.ping_at_once();
    }

    /// How much memory this node may use, where it uses more; likewise.
    pub fn tell_full(&mut self, full: Option<u64>) {
        if std::mem::replace(&mut self.full, full) != full {
            self.ping_at_once();
        }
    }

    fn ping_at_once(&mut self) {
        if let State::Ready { ping_at, .. } = &mut self.state {
            *ping_at = Instant::ZERO;
        }
    }

    /// Takes over what the shard has queued: it leaves now, or when it has travelled its emulated way.
    pub fn take(&mut self, queue: &mut PeerQueue, now: Instant) {
        if self.delay.cut {
            queue.urgent.clear();
        } else if self.waiting.urgent.len() < LEAVING {
            self.waiting.urgent.append(&mut queue.urgent);
        }
        if !queue.frames.is_empty() {
            let direct = self.delay == Delay::default() && self.delayed.is_empty();
            if self.delay.cut {
                queue.frames.clear();
            } else if direct && let State::Ready { stream, .. } = &mut self.state {
                if self.waiting.is_empty() && stream.unsent() + queue.frames.len() <= self.pace.leaving() {
                    stream.out().append(&mut queue.frames);
                } else {
                    // The next ones will be as many.
                    let next = Vec::with_capacity(queue.frames.len().min(LEAVING));
                    self.waiting.push(std::mem::replace(&mut queue.frames, next));
                }
            } else {
                let jitter = self.random.below(self.delay.jitter.as_nanos().saturating_add(1));
                let due = now + self.delay.one_way + Span::from_nanos(jitter);
                // A connection delivers in order: nobody overtakes the flush before.
                let due = self.delayed.back().map_or(due, |(before, _)| due.max(*before));
                self.delayed_bytes += queue.frames.len();
                self.delayed.push_back((due, std::mem::take(&mut queue.frames)));
            }
        }
        if matches!(self.state, State::Pausing { .. }) {
            queue.lose();
        }
        // Before the first dial and while it is under way messages wait; a peer that is away loses them.
        queue.open = !matches!(self.state, State::Pausing { .. }) || self.failures == 0;
        queue.backlog = self.backlog();
    }

    /// Bytes of frames that wait, since the peer takes them more slowly than they come.
    pub fn waiting(&self) -> usize {
        self.waiting.bytes
    }

    /// Bytes on this side of the wire.
    pub fn backlog(&self) -> usize {
        let unsent = match &self.state {
            State::Pausing { .. } => 0,
            State::Greeting { stream, .. } | State::Ready { stream, .. } => stream.unsent(),
        };
        unsent + self.delayed_bytes + self.waiting.bytes
    }

    /// When it wants [`Link::tick`] next.
    pub fn next_deadline(&self) -> Instant {
        let own = match &self.state {
            State::Pausing { until } | State::Greeting { until, .. } => *until,
            State::Ready { ping_at, heard, .. } => (*ping_at).min(*heard + SILENCE),
        };
        match (&self.state, self.delayed.front()) {
            (State::Ready { .. }, Some((due, _))) => own.min(*due),
            _ => own,
        }
    }

    /// Time has passed, or something was taken: dials, pings, gives up, sends what is due.
    pub fn tick(&mut self, now: Instant, births: &mut Births, registry: &Registry, scratch: &mut [u8]) {
        match &mut self.state {
            State::Pausing { until } if *until <= now => self.dial(now, registry),
            State::Pausing { .. } => {}
            State::Greeting { until, .. } if *until <= now => {
                self.broken(now, registry, &Broken::Silent(GREETING));
            }
            State::Ready { heard, .. } if *heard + SILENCE <= now => {
                self.broken(now, registry, &Broken::Silent(SILENCE));
            }
            _ => {
                if let Err(error) = self.drive(now, false, births, scratch) {
                    self.broken(now, registry, &error);
                }
            }
        }
        self.stands(births);
    }

    /// The socket has news.
    pub fn wake(
        &mut self,
        ready: Ready,
        now: Instant,
        births: &mut Births,
        registry: &Registry,
        scratch: &mut [u8],
    ) {
        if let (true, State::Greeting { stream, .. } | State::Ready { stream, .. }) =
            (ready.readable, &mut self.state)
        {
            stream.wake(ready.closed);
        }
        if let Err(error) = self.drive(now, ready.readable, births, scratch) {
            self.broken(now, registry, &error);
        }
        self.stands(births);
    }

    /// Breaks the link where it leads to another process than the one that was taken in last.
    pub fn leave_stale(&mut self, now: Instant, births: &mut Births, registry: &Registry) {
        if births.is_stale(self.node, Way::There) {
            self.broken(now, registry, &Broken::Stale);
            self.stands(births);
        }
    }

    /// A link that has broken says no longer that its peer lives.
    fn stands(&self, births: &mut Births) {
        if !matches!(self.state, State::Ready { .. }) {
            births.ended(self.node, Way::There);
        }
    }

    /// Sends what it can and leaves.
    pub fn close(&mut self, registry: &Registry) {
        if let State::Ready { stream, .. } = &mut self.state {
            // Whoever cannot be reached any more need not hear it.
            let now = self.pace.since;
            let _ = send(&mut self.waiting, &mut self.pace, stream, now);
        }
        if let State::Greeting { stream, .. } | State::Ready { stream, .. } = &mut self.state {
            stream.close();
            stream.deregister(registry);
        }
        self.state = State::Pausing { until: Instant::MAX };
    }

    fn dial(&mut self, now: Instant, registry: &Registry) {
        let name = ServerName::try_from(security::peer_name(self.node, self.hello.cluster_id));
        let tls = match (&self.tls, name) {
            (None, _) => None,
            (Some(config), Ok(name)) => Some((config, name)),
            (Some(_), Err(error)) => {
                return self.broken(now, registry, &Broken::Io(io::Error::other(error)));
            }
        };
        let address = match &self.address {
            Target::Address(address) | Target::Name { found: Ok(address), .. } => *address,
            Target::Name { found: Err(why), .. } => {
                let why = Broken::Unresolved(why.clone());
                return self.broken(now, registry, &why);
            }
        };
        match Stream::dial(address, tls) {
            Ok(mut stream) => {
                self.pace = Pace { told: LEAVING_MIN, ..Pace::default() };
                stream.keep_unsent(LEAVING_MIN);
                if let Err(error) = stream.register(registry, self.token) {
                    return self.broken(now, registry, &Broken::Io(error));
                }
                let until = now + GREETING;
                self.state =
                    State::Greeting { stream, frames: FrameBuffer::default(), until, greeted: false };
            }
            Err(error) => self.broken(now, registry, &Broken::Io(error)),
        }
    }

    fn drive(
        &mut self,
        now: Instant,
        readable: bool,
        births: &mut Births,
        scratch: &mut [u8],
    ) -> Result<(), Broken> {
        if let State::Greeting { stream, greeted, .. } = &mut self.state {
            if !stream.connected()? {
                return Ok(());
            }
            if !*greeted {
                *greeted = true;
                frame::hello(stream.out(), &self.hello);
            }
            stream.flush()?;
        }
        if readable {
            self.read(now, births, scratch)?;
        }
        if let State::Ready { stream, ping_at, told, .. } = &mut self.state {
            if *ping_at <= now {
                *ping_at = now + PING;
                let (number, leads, full) = (now.as_nanos(), self.leads.clone(), self.full);
                let ping = Ping { number, leads, full, heard: *told };
                frame::ping(stream.out(), &ping);
            }
            while let Some((_, frames)) = self.delayed.pop_front_if(|(due, _)| *due <= now) {
                self.delayed_bytes -= frames.len();
                self.waiting.push(frames);
            }
            let taken = send(&mut self.waiting, &mut self.pace, stream, now)?;
            self.large.sent(taken, now);
        }
        Ok(())
    }

    fn read(&mut self, now: Instant, births: &mut Births, scratch: &mut [u8]) -> Result<(), Broken> {
        let (mut welcome, mut pong) = (None, None);
        let greets = matches!(self.state, State::Greeting { .. });
        let (stream, frames) = match &mut self.state {
            State::Pausing { .. } => return Ok(()),
            State::Greeting { stream, frames, .. } | State::Ready { stream, frames, .. } => (stream, frames),
        };
        for read in 0.. {
            match stream.read(scratch) {
                // Some bytes a second are all that is answered here.
                Ok(Got::Bytes(_)) if read >= READS_MAX => return Err(Broken::Unexpected),
                Ok(Got::Bytes(bytes)) => {
                    frames.feed(&scratch[..bytes], frame::HANDSHAKE_MAX, |frame| {
                        match frame {
                            Frame::Welcome { life: Some(life), .. } => welcome = Some(life),
                            Frame::Welcome { version, .. } => return Err(Broken::Version(version)),
                            Frame::Refuse(why) => return Err(Broken::Refused(why)),
                            Frame::Disown(why) => return Err(Broken::Disowned(why)),
                            Frame::Pong(sent, stamp, at) => {
                                pong = Some((Instant::from_nanos(sent), stamp, at));
                            }
                            _ => return Err(Broken::Unexpected),
                        }
                        Ok(())
                    })?;
                }
                Ok(Got::Later) => break,
                Ok(Got::End) if greets => return Err(Broken::Unanswered),
                Ok(Got::End) => return Err(Broken::Closed),
                Err(error) => return Err(Broken::Io(error)),
            }
        }
        // The greeting may still wait for the handshake of TLS that the read has just ended.
        stream.flush()?;
        let address = welcome.as_ref().and_then(|_| stream.address());
        if let Some((sent, stamp, at)) = pong {
            self.recent.push(Told { at: now, stamp, round_trip: now.since(sent) });
            births.heard(self.node, Way::There, sent, now);
            self.large.answered(sent);
            if let State::Ready { heard, told, .. } = &mut self.state {
                (*heard, *told) = (now, at.as_nanos());
            }
        }
        if let Some(life) = welcome {
            let place = address.map_or_else(|| self.address.to_string(), |address| address.to_string());
            births.take_in(self.node, &life, Way::There, &place, now)?;
            self.welcomed(now)?;
        }
        Ok(())
    }

    fn welcomed(&mut self, now: Instant) -> Result<(), Broken> {
        let pausing = State::Pausing { until: now };
        match std::mem::replace(&mut self.state, pausing) {
            State::Greeting { stream, frames, .. } => {
                tracing::info!(peer = %self.name, address = %self.address, "connected");
                self.connects += 1;
                self.pause = PAUSE_MIN;
                self.last_error.clear();
                if self.large.made(now) {
                    tracing::warn!(
                        peer = %self.name,
                        address = %self.address,
                        "{LARGE_LOST} links in a row were silent for {SILENCE} once more than a packet was sent, and were made again at \
                         once: it looks as if small packets pass and large ones vanish, as where the way takes smaller ones than its \
                         ends believe (MTU) and does not say so. Try `ping -M do -s 1472` to that address; see docs/operations.md, \
                         \"Links on which large packets vanish\""
                    );
                }
                // The last one may have ended otherwise than by breaking.
                self.large.since = None;
                self.state = State::Ready { stream, frames, ping_at: now, heard: now, told: 0 };
                if self.ready() {
                    self.down = None;
                }
                Ok(())
            }
            other => {
                self.state = other;
                Err(Broken::Unexpected)
            }
        }
    }

    fn broken(&mut self, now: Instant, registry: &Registry, error: &Broken) {
        self.failures += 1;
        let heard = if let State::Ready { heard, .. } = &self.state { *heard } else { now };
        self.down.get_or_insert(heard);
        self.large.ended(matches!(error, Broken::Silent(_)), now);
        if let Broken::Disowned(why) = error {
            self.disowned = Some(why.clone());
        }
        let clock = if let Broken::Io(error) = error { security::clock_trouble(error) } else { None };
        let text = clock.unwrap_or_else(|| error.to_string());
        // The same trouble again and again is one line, not one a second.
        if text != self.last_error {
            tracing::warn!(peer = %self.name, address = %self.address, error = %text, "no link");
            self.last_error = text;
        }
        if let State::Greeting { stream, .. } | State::Ready { stream, .. } = &mut self.state {
            stream.deregister(registry);
        }
        self.recent = Recent::default();
        self.lose();
        let half = self.pause.as_nanos() / 2;
        self.state = State::Pausing { until: now + Span::from_nanos(half + self.random.below(half + 1)) };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// What has not left never will.
    fn lose(&mut self) {
        self.delayed.clear();
        self.delayed_bytes = 0;
        self.waiting = Waiting::default();
    }
}

/// Sends what waits, as far as the connection takes it; how many bytes that was.
fn send(waiting: &mut Waiting, pace: &mut Pace, stream: &mut Stream, now: Instant) -> io::Result<usize> {
    let mut taken = 0;
    loop {
        waiting.fill(stream, pace.leaving());
        if !stream.flushed() {
            taken += stream.flush()?;
        }
        if waiting.is_empty() || !stream.flushed() {
            break;
        }
    }
    pace.took(taken, !stream.flushed(), now);
    let leaving = pace.leaving();
    if std::mem::replace(&mut pace.told, leaving) != leaving {
        stream.keep_unsent(leaving);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::Outgoing;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    #[test]
    fn a_connection_is_given_at_a_time_what_leaves_soon() {
        let (mut pace, mut now) = (Pace::default(), Instant::ZERO + Span::from_secs(9));
        // So many bytes leave in a millisecond. The system takes what it is given as long as it has less than its bound: what it and
        // the stream have after two seconds.
        let mut held = |rate: usize| {
            let (mut system, mut out) = (0, 0);
            for _ in 0..2_000 {
                now = now + Span::from_millis(1);
                system -= system.min(rate);
                let mut taken = 0;
                loop {
                    out = if out == 0 { pace.leaving() } else { out };
                    if system >= pace.told.max(LEAVING_MIN) {
                        break;
                    }
                    (taken, system, out) = (taken + out, system + out, 0);
                }
                pace.took(taken, true, now);
                pace.told = pace.leaving();
            }
            system + out
        };
        // 1 Mbit/s, 160 Mbit/s, and 1 Mbit/s again.
        assert!(held(125) <= 3 * LEAVING_MIN);
        assert!(held(20_000) >= 2 * LEAVING);
        assert!(held(125) <= 3 * LEAVING_MIN);
        // What takes all is asked for nothing, and says nothing.
        let mut pace = Pace::default();
        (0..9).for_each(|_| pace.took(LEAVING, false, Instant::ZERO));
        assert_eq!(pace.leaving(), LEAVING_MIN);
    }

    #[test]
    fn an_answer_that_comes_late_moves_neither_round_trip_nor_clock() {
        let second = |second| Instant::ZERO + Span::from_secs(second);
        // The peer's clock is 100 s ahead, and an answer takes 5 ms to come back, or as much longer as it is late.
        let told = |at: u64, late: u64| Told {
            at: second(at) + Span::from_millis(late),
            stamp: Stamp::from_nanos((at + 100) * 1_000_000_000 - 5_000_000),
            round_trip: Span::from_millis(10 + late),
        };
        let mut recent = Recent::default();
        assert!(recent.best().is_none());
        for (at, late) in [(1, 0), (2, 140), (3, 0), (4, 133), (5, 9)] {
            recent.push(told(at, late));
        }
        let best = recent.best().unwrap();
        assert_eq!((best.at, best.round_trip), (second(3), Span::from_millis(10)), "the latest of equals");
        assert_eq!(best.ahead(second(6), Stamp::from_nanos(6_000_000_000)), (100_000_000_000, 5_000_000));
        // A way that has become longer is told of once all of ten seconds say so.
        for at in 6..=12 {
            recent.push(told(at, 50));
        }
        assert_eq!(recent.best().unwrap().round_trip, Span::from_millis(10));
        recent.push(told(13, 50));
        assert_eq!(recent.best().unwrap().round_trip, Span::from_millis(19));
        recent.push(told(16, 50));
        assert_eq!(recent.best().unwrap().round_trip, Span::from_millis(60));
        for _ in 0..100 {
            recent.push(told(16, 50));
        }
        assert_eq!(recent.0.len(), RECENT_MAX, "there may be more than one a second");
    }

    #[test]
    fn an_answer_from_before_a_clock_was_set_is_forgotten() {
        let told = |second: u64, stamp: u64, round_trip: u64| Told {
            at: Instant::ZERO + Span::from_secs(second),
            stamp: Stamp::from_nanos(stamp * 1_000_000_000),
            round_trip: Span::from_millis(round_trip),
        };
        let mut recent = Recent::default();
        for second in 1..=3 {
            recent.push(told(second, 1_000 + second, 10));
        }
        recent.push(told(4, 1_104, 12));
        let best = recent.best().unwrap();
        assert_eq!((best.at, recent.0.len()), (Instant::ZERO + Span::from_secs(4), 1));
        // And back.
        recent.push(told(5, 1_005, 300));
        assert_eq!(recent.best().unwrap().round_trip, Span::from_millis(300));
    }

    #[test]
    fn what_looks_as_if_large_packets_vanish_is_told_once_until_one_gets_through() {
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        // A link to which this was given at once, and that ends so; after how long the next one is made.
        let link = |large: &mut Large, begun: u64, bytes: usize, silent: bool, pause: u64| {
            large.sent(bytes, at(begun));
            large.answered(at(begun));
            large.ended(silent, at(begun + 8_000));
            large.made(at(begun + 8_000 + pause))
        };
        for (bytes, silent, pause, told) in [
            (PACKETS, true, 100, true),
            (PACKETS - 1, true, 100, false),
            (PACKETS, false, 100, false),
            (PACKETS, true, 3_000, false),
        ] {
            let mut large = Large::default();
            let tells: Vec<bool> =
                (0..4).map(|n| link(&mut large, n * 20_000, bytes, silent, pause)).collect();
            assert_eq!(tells, [false, told, false, false], "{bytes} {silent} {pause}");
        }
        let mut large = Large::default();
        assert!(!link(&mut large, 0, PACKETS, true, 100));
        large.sent(PACKETS, at(10_000));
        large.answered(at(10_001));
        assert!(!link(&mut large, 20_000, PACKETS, true, 100), "one has got through meanwhile");
        assert!(link(&mut large, 40_000, PACKETS, true, 100));
        // One that could not be made at once tells of a peer that was away.
        large.ended(true, at(60_000));
        assert!(!large.made(at(60_100)));
        assert!(!link(&mut large, 80_000, PACKETS, true, 100));
    }

    /// The link of a node to another one, and whom that node knows.
    fn link_to(peer: NodeId, address: SocketAddr, data: &Path) -> (Link, Births) {
        let births = Births::open(data, NodeId(0), 1, 1, &mut Random::seeded(1)).unwrap();
        let hello = Hello {
            magic: frame::MAGIC,
            version: VERSION,
            cluster_id: 1,
            cluster: "test".to_owned(),
            from: NodeId(0),
            to: peer,
            life: births.own().clone(),
            keyspaces: Arc::default(),
        };
        let (name, target) = ("node-1".to_owned(), Target::Address(address));
        (Link::new(peer, name, target, Token(0), hello, None, Random::seeded(2)), births)
    }

    #[test]
    fn a_ping_says_which_pong_has_come_before_it() {
        let data = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut link, mut births) = link_to(NodeId(1), listener.local_addr().unwrap(), data.path());
        let (poll, mut scratch) = (mio::Poll::new().unwrap(), vec![0; 1 << 10]);
        let mut now = Instant::from_nanos(1);
        link.tick(now, &mut births, poll.registry(), &mut scratch);
        let (mut peer, _) = listener.accept().unwrap();
        let long = std::time::Duration::from_secs(10);
        peer.set_read_timeout(Some(long)).unwrap();
        let begun = std::time::Instant::now();
        let mut frames = FrameBuffer::default();
        let mut ping = |peer: &mut TcpStream| {
            let (mut found, mut bytes) = (None, [0; 1 << 10]);
            while found.is_none() {
                let read = peer.read(&mut bytes).unwrap();
                assert!(read > 0, "the link has broken");
                let ping = |frame: Frame<'_>| {
                    if let Frame::Ping(ping) = frame {
                        found = Some(ping);
                    }
                    Ok::<(), FrameError>(())
                };
                frames.feed(&bytes[..read], frame::HELLO_MAX, ping).unwrap();
            }
            found.unwrap()
        };
        let ready = Ready { token: Token(0), readable: true, closed: false, writable: true };
        let mut out = Vec::new();
        let life = frame::Life { birth: 7, start: frame::Start { number: 1, salt: 2 }, past: Vec::new() };
        frame::welcome(&mut out, &life);
        peer.write_all(&out).unwrap();
        while !link.ready() {
            assert!(begun.elapsed() < long, "the link has broken");
            link.wake(ready, now, &mut births, poll.registry(), &mut scratch);
        }
        let first = ping(&mut peer);
        assert_eq!(first.heard, 0);
        out.clear();
        frame::pong(&mut out, first.number, Stamp::ZERO, Instant::from_nanos(77));
        peer.write_all(&out).unwrap();
        while link.told().is_none() {
            assert!(begun.elapsed() < long, "the link has broken");
            link.wake(ready, now, &mut births, poll.registry(), &mut scratch);
        }
        now = now + PING;
        link.tick(now, &mut births, poll.registry(), &mut scratch);
        let second = ping(&mut peer);
        assert_eq!((second.number, second.heard), (now.as_nanos(), 77));
    }

    #[test]
    fn a_peer_that_has_come_up_is_dialled_at_once() {
        let data = tempfile::tempdir().unwrap();
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = peer.local_addr().unwrap();
        let (poll, peer_id) = (mio::Poll::new().unwrap(), NodeId(1));
        let (registry, mut scratch) = (poll.registry(), vec![0; 1 << 10]);
        let (mut link, mut births) = link_to(peer_id, address, data.path());
        let mut outgoing = Outgoing::default();
        outgoing.add(peer_id, 1 << 10, 1 << 10, Random::seeded(3));
        let queue = outgoing.peer(peer_id).unwrap();

        // One that is away is dialled, and dialled again after a pause that whoever sends does not wait for.
        drop(peer);
        let now = Instant::from_nanos(1);
        while link.failures == 0 {
            link.tick(now, &mut births, registry, &mut scratch);
        }
        link.take(queue, now);
        assert!(!queue.open && link.next_deadline() > now);
        assert_eq!(link.down, Some(now));

        let peer = TcpListener::bind(address).unwrap();
        link.hail(queue, now, registry);
        assert!(queue.open, "what is sent now waits for the link");
        peer.accept().unwrap();
        let deadline = link.next_deadline();
        link.hail(queue, now + Span::from_secs(1), registry);
        assert_eq!(link.next_deadline(), deadline, "it is on its way already");
        link.close(registry);
        link.hail(queue, now, registry);
        assert_eq!(link.next_deadline(), Instant::MAX, "this node ends");
    }
}
