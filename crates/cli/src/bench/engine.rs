//! The load generator: one thread, many connections, closed or open loops.

use super::wire::{Inbox, push_command, unreached};
use anyhow::{Context, bail};
use isochrone_core::{Blob, Instant, Random, Span};
use isochrone_workload::{Kind, Pace, Recorder, Request, Session, Window, Workload, words};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use redis_protocol::resp2::types::OwnedFrame;
use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant as SystemInstant};

/// One run.
pub(crate) struct Load {
    /// Where connections go, with the region that each endpoint stands for (an index).
    pub(crate) endpoints: Vec<(SocketAddr, usize)>,
    /// Connections in all, dealt out to the endpoints in turn.
    pub(crate) clients: u32,
    /// Requests under way on a connection in a closed loop.
    pub(crate) pipeline: u32,
    /// Closed or open; the rate of an open loop is that of each connection.
    pub(crate) pace: Pace,
    /// What is asked.
    pub(crate) workload: Workload,
    /// How long.
    pub(crate) duration: Span,
    /// Of what is asked.
    pub(crate) seed: u64,
    /// User and password.
    pub(crate) auth: Option<(String, String)>,
    /// Whether a broken connection is made again.
    pub(crate) reconnect: bool,
}

/// What came of a run.
pub(crate) struct Measured {
    /// Latencies by region, of what was answered without an error.
    pub(crate) recorder: Recorder,
    /// Requests answered with an error, and those that could not be asked.
    pub(crate) errors: u64,
    /// Requests whose connection broke before the answer.
    pub(crate) unknown: u64,
    /// The first error's text.
    pub(crate) first_error: Option<String>,
}

/// A request as a witness sees it: what was asked, when, and what came back (`None`: nobody knows).
pub(crate) struct Seen<'a> {
    /// The connection's number; each life of a connection is a session of its own.
    pub(crate) connection: usize,
    /// Which life of it.
    pub(crate) life: u64,
    /// The place within that life.
    pub(crate) sequence: u64,
    /// What was asked.
    pub(crate) operation: &'a isochrone_core::command::Operation,
    /// When it was sent.
    pub(crate) sent: Instant,
    /// When the answer came.
    pub(crate) answered: Instant,
    /// The answer.
    pub(crate) reply: Option<&'a OwnedFrame>,
}

struct Pending {
    kind: Kind,
    due: Instant,
    sent: Instant,
    sequence: u64,
    operation: isochrone_core::command::Operation,
    then: Option<isochrone_core::command::Operation>,
    /// A greeting (AUTH) rather than a request of the workload.
    greeting: bool,
}

struct Connection {
    address: SocketAddr,
    region: usize,
    stream: Option<TcpStream>,
    /// A connection that is being made again: others go on meanwhile.
    opening: Option<TcpStream>,
    session: Session,
    random: Random,
    life: u64,
    sequence: u64,
    inbox: Inbox,
    out: Vec<u8>,
    written: usize,
    pending: VecDeque<Pending>,
    next_due: Instant,
    /// While there is no connection: when what is being made is given up, or where nothing is, another begins.
    retry_at: Instant,
    writable_wanted: bool,
}

/// An open loop's connection may be this many requests behind; more, and the run gives up, because what
/// it would measure then is its own memory.
const BACKLOG_MAX: usize = 1_000_000;
/// How long to wait before a broken connection is tried again.
const RETRY: Span = Span::from_millis(50);
/// How long a connection may take to be made.
const PATIENCE: Span = Span::from_secs(5);

/// Runs a load to its end. `witness` sees every request when it ends; `progress` is told the share that
/// is done, about ten times a second.
pub(crate) fn run(
    load: &Load,
    mut witness: impl FnMut(Seen<'_>),
    mut progress: impl FnMut(f64),
) -> anyhow::Result<Measured> {
    let mut poll = Poll::new().context("cannot make an event queue")?;
    let mut events = Events::with_capacity(1024);
    let origin = SystemInstant::now();
    let now = || Instant::from_nanos(origin.elapsed().as_nanos() as u64);
    let mut seeds = Random::seeded(load.seed);
    let mut connections = Vec::new();
    let mut silent = BTreeSet::new();
    for number in 0..load.clients {
        let (address, region) = load.endpoints[number as usize % load.endpoints.len()];
        let random = seeds.fork();
        let mut connection = Connection {
            address,
            region,
            stream: None,
            opening: None,
            session: load.workload.session(number, load.clients, seeds.fork()),
            next_due: Instant::ZERO,
            random,
            life: 0,
            sequence: 0,
            inbox: Inbox::default(),
            out: Vec::new(),
            written: 0,
            pending: VecDeque::new(),
            retry_at: Instant::ZERO,
            writable_wanted: false,
        };
        // A node that is down now may be up later; it is waited for once, not by each of its connections.
        if !silent.contains(&address)
            && let Err(error) = connection.connect(number as usize, &poll, load)
        {
            if !load.reconnect {
                return Err(error);
            }
            silent.insert(address);
        }
        connections.push(connection);
    }
    // To connect takes a while, and so does to sum up Zipf's constant: neither is a part of what is measured.
    let begin = now();
    let window = Window::middle(begin, load.duration);
    let end = begin + load.duration;
    let give_up = end + Span::from_secs(10);
    let mut measured = Measured { recorder: Recorder::new(window), errors: 0, unknown: 0, first_error: None };
    for connection in &mut connections {
        connection.next_due = load.pace.first(begin, &mut connection.random);
    }

    let mut scratch = vec![0u8; 1 << 16];
    let mut told = begin;
    loop {
        let at = now();
        let mut idle = true;
        let mut wake = end;
        for (number, connection) in connections.iter_mut().enumerate() {
            if connection.stream.is_none() {
                if !load.reconnect {
                    bail!(
                        "the connection to {} broke{}; with --reconnect the run goes on and counts what was under way as unknown",
                        connection.address,
                        measured.first_error.as_deref().map(|text| format!(" ({text})")).unwrap_or_default()
                    );
                }
                if at < end && at >= connection.retry_at {
                    connection.reopen(number, &poll, at);
                }
                wake = wake.min(connection.retry_at);
            }
            if connection.stream.is_some() && at < end {
                connection.ask(load, at)?;
                if let Pace::Open { .. } = load.pace {
                    wake = wake.min(connection.next_due);
                }
            }
            connection.write(number, &poll, at, &mut measured, &mut witness);
            idle &= connection.pending.is_empty();
        }
        if at >= end && (idle || at >= give_up) {
            break;
        }
        if at.since(told) > Span::from_millis(100) {
            told = at;
            progress((at.since(begin).as_secs_f64() / load.duration.as_secs_f64()).min(1.0));
        }
        // Timeouts of the event queue are whole milliseconds: an open loop naps to its next request
        // instead, because its lateness would be charged to the endpoint.
        let gap = if at >= end { Span::from_millis(10) } else { wake.since(at) };
        let timeout = match load.pace {
            Pace::Open { .. } if gap < Span::from_millis(2) => {
                std::thread::sleep(Duration::from_nanos(gap.as_nanos().min(50_000)));
                Duration::ZERO
            }
            Pace::Open { .. } => Duration::from_millis(1),
            Pace::Closed { .. } => Duration::from_nanos(gap.as_nanos().min(20_000_000)),
        };
        match poll.poll(&mut events, Some(timeout)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled.context("cannot wait for events")?,
        }
        for event in &events {
            let number = event.token().0;
            connections[number].opened(number, &poll, load, now());
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                connections[number].read(&mut scratch, load, &now, &mut measured, &mut witness)?;
            }
        }
    }
    let at = now();
    for (number, connection) in connections.iter_mut().enumerate() {
        // What was due while there was no connection was not asked at all, and would be missing in the figures.
        while let Pace::Open { .. } = load.pace
            && connection.stream.is_none()
            && connection.next_due < end
        {
            measured.errors += 1;
            let text = || format!("there was no connection to {}", connection.address);
            measured.first_error.get_or_insert_with(text);
            connection.next_due = load.pace.next(connection.next_due, at, &mut connection.random);
        }
        connection.lose(number, at, &mut measured, &mut witness);
    }
    progress(1.0);
    Ok(measured)
}

impl Connection {
    /// Connects, and waits for it: before a run nobody else is kept waiting.
    fn connect(&mut self, number: usize, poll: &Poll, load: &Load) -> anyhow::Result<()> {
        let patience = Duration::from_nanos(PATIENCE.as_nanos());
        let stream = std::net::TcpStream::connect_timeout(&self.address, patience)
            .map_err(|cause| unreached(self.address, &cause))?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
        self.begin(stream, load);
        Ok(())
    }

    /// Begins to connect again, or gives up what has begun; nothing was asked on it.
    fn reopen(&mut self, number: usize, poll: &Poll, at: Instant) {
        self.retry_at = at + RETRY;
        if self.opening.take().is_some() {
            return;
        }
        let Ok(mut stream) = TcpStream::connect(self.address) else { return };
        if poll.registry().register(&mut stream, Token(number), Interest::WRITABLE).is_ok() {
            self.opening = Some(stream);
            self.retry_at = at + PATIENCE;
        }
    }

    /// Takes what was being made if it stands now; what has failed is tried again later.
    fn opened(&mut self, number: usize, poll: &Poll, load: &Load, at: Instant) {
        let Some(mut stream) = self.opening.take() else { return };
        let stands = match stream.take_error() {
            Ok(None) => stream.peer_addr().map(drop),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        let ready = stands.and_then(|()| {
            stream.set_nodelay(true)?;
            poll.registry().reregister(&mut stream, Token(number), Interest::READABLE)
        });
        match ready {
            Ok(()) => self.begin(stream, load),
            // It was woken for nothing.
            Err(error) if error.kind() == ErrorKind::NotConnected => self.opening = Some(stream),
            Err(_) => self.retry_at = at + RETRY,
        }
    }

    /// Another life, on a connection that stands.
    fn begin(&mut self, stream: TcpStream, load: &Load) {
        self.stream = Some(stream);
        self.life += 1;
        self.inbox = Inbox::default();
        self.out.clear();
        self.written = 0;
        self.writable_wanted = false;
        if let Some((user, password)) = &load.auth {
            push_command(&["AUTH", user, password], &mut self.out);
            let ping = isochrone_core::command::Operation::Get { key: Blob::default() };
            self.pending.push_back(Pending {
                kind: Kind::Read,
                due: Instant::ZERO,
                sent: Instant::ZERO,
                sequence: 0,
                operation: ping,
                then: None,
                greeting: true,
            });
        }
    }

    /// Puts in what is due.
    fn ask(&mut self, load: &Load, at: Instant) -> anyhow::Result<()> {
        match load.pace {
            Pace::Closed { .. } => {
                while self.pending.len() < load.pipeline as usize && self.next_due <= at {
                    let Request { kind, first, then } = self.session.next(None);
                    self.push(kind, at, at, first, then);
                }
            }
            Pace::Open { .. } => {
                while self.next_due <= at {
                    let due = self.next_due;
                    let Request { kind, first, then } = self.session.next(None);
                    self.push(kind, due, at, first, then);
                    self.next_due = load.pace.next(due, at, &mut self.random);
                    if self.pending.len() > BACKLOG_MAX {
                        bail!(
                            "{} is {BACKLOG_MAX} requests behind on one connection; ask for a lower --rate or more --clients",
                            self.address
                        );
                    }
                }
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        kind: Kind,
        due: Instant,
        sent: Instant,
        operation: isochrone_core::command::Operation,
        then: Option<isochrone_core::command::Operation>,
    ) {
        push_command(&words(&operation), &mut self.out);
        self.sequence += 1;
        let sequence = self.sequence;
        self.pending.push_back(Pending { kind, due, sent, sequence, operation, then, greeting: false });
    }

    fn write(
        &mut self,
        number: usize,
        poll: &Poll,
        at: Instant,
        measured: &mut Measured,
        witness: &mut impl FnMut(Seen<'_>),
    ) {
        let Some(stream) = &mut self.stream else { return };
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(0) => return self.lose(number, at, measured, witness),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.lose(number, at, measured, witness),
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        let wanted = !self.out.is_empty();
        if wanted != self.writable_wanted {
            self.writable_wanted = wanted;
            let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            if poll.registry().reregister(stream, Token(number), interest).is_err() {
                self.lose(number, at, measured, witness);
            }
        }
    }

    fn read(
        &mut self,
        scratch: &mut [u8],
        load: &Load,
        now: &impl Fn() -> Instant,
        measured: &mut Measured,
        witness: &mut impl FnMut(Seen<'_>),
    ) -> anyhow::Result<()> {
        // The number is only for the witness, which knows connections by their place.
        let number = self.session.number() as usize;
        loop {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            match stream.read(scratch) {
                Ok(0) => {
                    self.lose(number, now(), measured, witness);
                    return Ok(());
                }
                Ok(count) => {
                    self.inbox.extend(&scratch[..count]);
                    self.take_replies(number, load, now(), measured, witness)?;
                    if count < scratch.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    measured.first_error.get_or_insert_with(|| error.to_string());
                    self.lose(number, now(), measured, witness);
                    return Ok(());
                }
            }
        }
    }

    fn take_replies(
        &mut self,
        number: usize,
        load: &Load,
        at: Instant,
        measured: &mut Measured,
        witness: &mut impl FnMut(Seen<'_>),
    ) -> anyhow::Result<()> {
        while let Some(frame) =
            self.inbox.next().map_err(|error| anyhow::anyhow!("{}: {error}", self.address))?
        {
            let Some(pending) = self.pending.pop_front() else {
                bail!("{} sent a reply that nothing had asked for", self.address);
            };
            if pending.greeting {
                if let OwnedFrame::Error(text) = frame {
                    bail!("{} refused the login: {text}", self.address);
                }
                continue;
            }
            witness(Seen {
                connection: number,
                life: self.life,
                sequence: pending.sequence,
                operation: &pending.operation,
                sent: pending.sent,
                answered: at,
                reply: Some(&frame),
            });
            let refused = matches!(frame, OwnedFrame::Error(_));
            if let OwnedFrame::Error(text) = &frame {
                measured.errors += 1;
                measured.first_error.get_or_insert_with(|| text.to_string());
            }
            match pending.then {
                Some(then) => self.push(pending.kind, pending.due, at, then, None),
                None => {
                    // How fast something is refused says nothing of how fast it is done.
                    if !refused {
                        measured.recorder.record(self.region, pending.kind, pending.due, at);
                    }
                    if let Pace::Closed { .. } = load.pace {
                        self.next_due = load.pace.next(pending.due, at, &mut self.random);
                    }
                }
            }
        }
        Ok(())
    }

    /// The connection is gone, and with it the answers to what was under way.
    fn lose(
        &mut self,
        number: usize,
        at: Instant,
        measured: &mut Measured,
        witness: &mut impl FnMut(Seen<'_>),
    ) {
        self.stream = None;
        self.retry_at = at + RETRY;
        for pending in self.pending.drain(..).filter(|pending| !pending.greeting) {
            measured.unknown += 1;
            witness(Seen {
                connection: number,
                life: self.life,
                sequence: pending.sequence,
                operation: &pending.operation,
                sent: pending.sent,
                answered: at,
                reply: None,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers OK to whatever comes, on each connection so often.
    fn server(answers: usize) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    // One command is under way at a time, and short enough to come as a whole.
                    let mut scratch = [0; 1 << 12];
                    for _ in 0..answers {
                        if !stream.read(&mut scratch).is_ok_and(|count| count > 0) {
                            return;
                        }
                        // A client that has gone shows at the next read.
                        let _ = stream.write_all(b"+OK\r\n");
                    }
                });
            }
        });
        address
    }

    fn load(endpoints: &[SocketAddr]) -> Load {
        Load {
            endpoints: endpoints.iter().copied().zip(0..).collect(),
            clients: endpoints.len() as u32,
            pipeline: 1,
            pace: Pace::Closed { think: Span::ZERO },
            workload: Workload::named("set").unwrap(),
            duration: Span::from_secs(1),
            seed: 0,
            auth: None,
            reconnect: true,
        }
    }

    #[test]
    fn a_connection_that_broke_is_made_again() {
        let mut lives = 0;
        let measured = run(&load(&[server(10)]), |seen| lives = lives.max(seen.life), |_| {}).unwrap();
        assert!(lives >= 3, "{lives} lives");
        assert!(measured.recorder.operations() >= 10, "{} operations", measured.recorder.operations());
    }

    /// On Linux nobody answers who connects where too many others are waiting to be accepted.
    #[cfg(target_os = "linux")]
    #[test]
    fn while_one_endpoint_does_not_answer_the_others_are_asked() {
        use socket2::{Domain, Socket, Type};
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        full.listen(0).unwrap();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let mut waiting = Vec::new();
        let soon = Duration::from_millis(200);
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&silent, soon) {
            waiting.push(stream);
            assert!(waiting.len() < 100, "all are taken");
        }
        let measured = run(&load(&[server(usize::MAX), silent]), |_| {}, |_| {}).unwrap();
        assert!(measured.recorder.operations() > 50, "{} operations", measured.recorder.operations());
        assert_eq!((measured.errors, measured.unknown), (0, 0));
    }
}
