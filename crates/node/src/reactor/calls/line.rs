//! The line on which calls come, and what is said on it.

use crate::gateway::{Abort, Secret};
use bytes::Bytes;
use isochrone_core::Blob;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;

/// Calls that may wait for the loop; more are refused.
pub(crate) const WAITING: usize = 4_096;

/// What is asked, and who waits for the answer.
pub(crate) struct Call {
    pub ask: Ask,
    pub by: By,
    pub answer: oneshot::Sender<Answer>,
}

/// How a call was made, for the audit log.
#[derive(Copy, Clone)]
pub(crate) struct By {
    pub method: &'static str,
    /// From where.
    pub address: Option<IpAddr>,
}

/// What a call asks.
pub(crate) enum Ask {
    /// Who is this?
    Login {
        /// The user and the password, if the client named any.
        named: Option<(String, Secret)>,
        from: IpAddr,
    },
    Begin {
        user: Arc<str>,
        on: Connection,
        keyspace: String,
        reads: Vec<Blob>,
        writes: Vec<Blob>,
        /// What its client calls it: the one before of this user and this name is ended.
        name: Option<Blob>,
    },
    Commit {
        user: Arc<str>,
        txn: Token,
        updates: Vec<(Blob, Option<Blob>)>,
    },
    Abort {
        user: Arc<str>,
        txn: Token,
    },
    /// The same by the name that its client has given it, also where it is still beginning, or is none.
    AbortNamed {
        user: Arc<str>,
        name: Blob,
    },
    Execute {
        user: Arc<str>,
        keyspace: String,
        words: Vec<Bytes>,
    },
}

impl Ask {
    /// Who asks, unless that is the question.
    pub fn user(&self) -> Option<&Arc<str>> {
        match self {
            Ask::Login { .. } => None,
            Ask::Begin { user, .. }
            | Ask::Commit { user, .. }
            | Ask::Abort { user, .. }
            | Ask::AbortNamed { user, .. }
            | Ask::Execute { user, .. } => Some(user),
        }
    }
}

/// The name of an open transaction for its client: of this life of this node, and a count.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Token {
    pub life: u64,
    pub number: u64,
}

/// A connection that calls come on: what was begun on it does not outlive it.
#[derive(Clone, Default)]
pub(crate) struct Connection(Arc<AtomicBool>);

impl Connection {
    /// It has ended: nobody will be heard on it any more.
    pub fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it has.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a call ended.
pub(crate) type Answer = Result<Said, Refusal>;

/// What is said to a call.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) enum Said {
    /// Logged in as this user.
    User(Arc<str>),
    Begun {
        txn: Token,
        reads: Vec<(Blob, Option<Blob>, u64)>,
    },
    Snapshot {
        reads: Vec<(Blob, Option<Blob>, u64)>,
        at: u64,
    },
    Committed(u64),
    Aborted(Abort),
    /// A reply in RESP3.
    Replied(Vec<u8>),
    /// Nobody knows whether it takes effect, and why not.
    Unknown(String),
}

/// A call that had no effect.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) struct Refusal {
    pub why: Why,
    pub text: String,
}

/// In which way a call was not taken up.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Why {
    /// It makes no sense.
    Invalid,
    /// There is no such keyspace.
    NotFound,
    /// What it is about is not so.
    Precondition,
    /// Another time it may go well.
    TryAgain,
    /// A limit was met.
    Limit,
    /// Nobody knows this user, or the password is another.
    Stranger,
    /// The user may not.
    Denied,
}

impl Refusal {
    pub(crate) fn new(why: Why, text: impl Into<String>) -> Refusal {
        Refusal { why, text: text.into() }
    }
}

/// Sends calls to the loop.
#[derive(Clone)]
pub(crate) struct Line {
    queue: SyncSender<Call>,
    waker: Arc<mio::Waker>,
}

impl Line {
    /// A line, and the end of it that the loop holds.
    pub fn new(waker: Arc<mio::Waker>) -> (Line, Receiver<Call>) {
        let (queue, calls) = sync_channel(WAITING);
        (Line { queue, waker }, calls)
    }

    /// Sends a call; never blocks.
    ///
    /// # Errors
    /// The loop has ended, or too many calls wait.
    pub fn send(&self, ask: Ask, by: By) -> Result<oneshot::Receiver<Answer>, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(Call { ask, by, answer }).map_err(|error| match error {
            TrySendError::Full(_) => {
                Refusal::new(Why::Limit, format!("{WAITING} calls wait at this node already; send fewer"))
            }
            TrySendError::Disconnected(_) => Refusal::new(Why::TryAgain, STOPPING),
        })?;
        // A poll that is gone answers nobody: the sender of the answer is dropped with it.
        let _ = self.waker.wake();
        Ok(answered)
    }
}

/// To whom asks a node that stops.
pub(super) const STOPPING: &str = "this node is stopping; ask another";
