//! One connection of a gRPC client.

use crate::metrics::NodeMetrics;
use crate::reactor::calls::Connection;
use crate::security::Print;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// So many calls on one connection may watch how the node and its keyspaces stand.
pub(super) const WATCHES: usize = 8;
/// So many streams of reflection may be open on one connection: a tool has one.
pub(super) const REFLECTIONS: usize = 2;
/// So many users of one connection are remembered, by what they have shown. Where a proxy shares it among more, they are asked
/// about again.
const SHOWN: usize = 64;
/// How long a user stays logged in on a connection without being asked about again: what a change of users takes to be felt.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Who is at the other end: every call of the connection finds this among its extensions.
#[derive(Clone)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: IpAddr,
    /// Whether somebody has logged in on it.
    known: Arc<AtomicBool>,
    /// Calls on it that wait to be told whether they have logged in.
    asking: Arc<AtomicUsize>,
    /// Places of its own for calls that nobody has logged in for yet.
    places: Arc<Semaphore>,
    /// Places of its own for those that watch.
    watches: Arc<Semaphore>,
    /// Places of its own for streams of reflection.
    reflections: Arc<Semaphore>,
    /// Who was let in on it, the last first.
    shown: Arc<Mutex<VecDeque<Shown>>>,
    /// Logins on it that were refused, and how many may be before somebody has logged in.
    refused: Arc<AtomicUsize>,
    refusals: usize,
    /// Bytes that it was answered and has not taken yet.
    unread: Arc<AtomicUsize>,
    /// Why it ends.
    end: Arc<OnceLock<&'static str>>,
    /// As the loop knows it.
    pub(super) connection: Connection,
}

/// What was shown on a connection and was right: whose it is, and when that was said.
struct Shown {
    print: Print,
    user: Arc<str>,
    since: Instant,
}

impl Peer {
    /// So many of its calls may wait to be told whether they have logged in, whatever others do, and be refused before one
    /// has.
    pub(super) fn new(address: IpAddr, logins: usize) -> Peer {
        Peer {
            address,
            known: Arc::default(),
            asking: Arc::default(),
            places: Arc::new(Semaphore::new(logins)),
            watches: Arc::new(Semaphore::new(WATCHES)),
            reflections: Arc::new(Semaphore::new(REFLECTIONS)),
            shown: Arc::default(),
            refused: Arc::default(),
            refusals: logins,
            unread: Arc::default(),
            end: Arc::default(),
            connection: Connection::default(),
        }
    }

    /// Bytes that it was answered and has not taken yet.
    pub(super) fn unread(&self) -> usize {
        self.unread.load(Relaxed)
    }

    /// It is answered so many bytes, which are not taken as long as this is held. Beyond `most` the connection ends.
    pub(super) fn answers(&self, bytes: usize, most: usize) -> Answered {
        let before = self.unread.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > most {
            self.ends("it does not read what it is answered");
        }
        Answered { unread: Arc::clone(&self.unread), bytes }
    }

    /// Whether a login may be tried on it. Where that was refused too often, the connection ends.
    pub(super) fn may_log_in(&self) -> bool {
        let may = self.known.load(Relaxed) || self.refused.load(Relaxed) < self.refusals;
        if !may {
            self.ends("too many logins on it were refused");
        }
        may
    }

    /// A login on it was refused.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// It is to end, for this reason.
    pub(super) fn ends(&self, why: &'static str) {
        // The first reason is as good as another.
        let _ = self.end.set(why);
    }

    fn check(&self) -> io::Result<()> {
        match self.end.get() {
            Some(why) => Err(io::Error::other(*why)),
            None => Ok(()),
        }
    }

    /// A place of its own for a call that nobody has logged in for yet, if there is one.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// A place of its own for one that watches, if there is one.
    pub(super) fn watch(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.watches).try_acquire_owned().ok()
    }

    /// A place of its own for a stream of reflection, if there is one.
    pub(super) fn reflection(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.reflections).try_acquire_owned().ok()
    }

    /// Whether somebody has logged in on it with what has this print, however long ago.
    pub(super) fn has_seen(&self, print: &Print) -> bool {
        self.shown().iter().any(|shown| shown.print == *print)
    }

    /// Who has logged in on it with what has this print, where that need not be asked again.
    pub(super) fn remembers(&self, print: &Print) -> Option<Arc<str>> {
        let shown = self.shown();
        let found = shown.iter().find(|shown| shown.print == *print && shown.since.elapsed() < REMEMBERED);
        found.map(|shown| Arc::clone(&shown.user))
    }

    /// This user has logged in on it with what has this print: whether that is new here, as far as is remembered.
    pub(super) fn let_in(&self, print: Print, user: &Arc<str>) -> bool {
        self.known.store(true, Relaxed);
        let mut shown = self.shown();
        let known = shown.iter().position(|shown| shown.print == print).and_then(|at| shown.remove(at));
        shown.truncate(SHOWN - 1);
        shown.push_front(Shown { print, user: Arc::clone(user), since: Instant::now() });
        known.is_none()
    }

    /// Who shows what has this print is not let in any more.
    pub(super) fn forget(&self, print: &Print) {
        self.shown().retain(|shown| shown.print != *print);
    }

    fn shown(&self) -> MutexGuard<'_, VecDeque<Shown>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call on it waits to be told whether it has logged in, for as long as this is held.
    pub(super) fn asks(&self) -> Asking {
        self.asking.fetch_add(1, Relaxed);
        Asking(Arc::clone(&self.asking))
    }
}

/// See [`Peer::answers`].
pub(super) struct Answered {
    unread: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.unread.fetch_sub(self.bytes, Relaxed);
    }
}

/// See [`Peer::asks`].
pub(super) struct Asking(Arc<AtomicUsize>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A place among the connections, while it lasts.
pub(super) struct Seat {
    metrics: Arc<NodeMetrics>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    pub(super) fn new(permit: OwnedSemaphorePermit, metrics: Arc<NodeMetrics>) -> Seat {
        metrics.grpc.connections.fetch_add(1, Relaxed);
        Seat { metrics, _permit: permit }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.metrics.grpc.connections.fetch_sub(1, Relaxed);
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection, closed where nobody logs in on it in time.
pub(super) struct Socket {
    stream: Stream,
    peer: Peer,
    /// Until when somebody must have logged in, and how long that is; nothing once somebody has.
    grace: Option<(Pin<Box<Sleep>>, Duration)>,
    _seat: Seat,
}

impl Socket {
    pub(super) fn plain(stream: TcpStream, peer: Peer, grace: Duration, seat: Seat) -> Socket {
        Socket::new(Stream::Plain(stream), peer, grace, seat)
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, peer: Peer, grace: Duration, seat: Seat) -> Socket {
        Socket::new(Stream::Tls(Box::new(stream)), peer, grace, seat)
    }

    fn new(stream: Stream, peer: Peer, grace: Duration, seat: Seat) -> Socket {
        Socket { stream, peer, grace: Some((Box::pin(tokio::time::sleep(grace)), grace)), _seat: seat }
    }
}

/// The server drops a connection's socket when it has ended, in whichever way: closed by the client, broken, silent for
/// too long.
impl Drop for Socket {
    fn drop(&mut self) {
        self.peer.connection.close();
    }
}

impl Connected for Socket {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.peer.check()?;
        if me.peer.known.load(Relaxed) {
            me.grace = None;
        }
        if let Some((end, grace)) = &mut me.grace {
            while end.as_mut().poll(context).is_ready() {
                if me.peer.asking.load(Relaxed) == 0 {
                    let late = "nobody has logged in within the time allowed";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late)));
                }
                // It is not the client that takes so long.
                end.as_mut().reset(Instant::now() + *grace);
            }
        }
        match &mut me.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        me.peer.check()?;
        match &mut me.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.peer.check()?;
        match &mut me.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = match &mut self.get_mut().stream {
            Stream::Plain(stream) => ready!(Pin::new(stream).poll_shutdown(context)),
            Stream::Tls(stream) => ready!(Pin::new(stream).poll_shutdown(context)),
        };
        Poll::Ready(done)
    }
}
