//! What holds a running node, and gives it orders.

use crate::audit;
use crate::background::Background;
use crate::http;
use crate::protocols::Administration;
use crate::reactor::{Board, Control, Failure, Responder, Status};
use isochrone_core::KeyspaceId;
use mio::Waker;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Orders that may wait for the loop.
pub(super) const ORDERS: usize = 64;

/// A running node. Dropped, the node stops in order.
pub struct NodeHandle {
    pub(super) name: String,
    pub(super) board: Arc<Board>,
    pub(super) orders: SyncSender<Control>,
    pub(super) waker: Arc<Waker>,
    pub(super) killed: Arc<AtomicBool>,
    pub(super) ended: Arc<OnceLock<()>>,
    pub(super) thread: Option<JoinHandle<Result<(), Failure>>>,
    pub(super) http: Option<http::Server>,
    pub(super) http_address: Option<SocketAddr>,
    pub(super) grpc: Option<Background>,
    pub(super) grpc_address: Option<SocketAddr>,
    pub(super) audit: Option<audit::Keeper>,
    pub(super) redis_addresses: Vec<SocketAddr>,
}

/// Sends orders to a running node from any thread.
#[derive(Clone)]
pub struct Orders {
    pub(super) orders: SyncSender<Control>,
    pub(super) waker: Arc<Waker>,
}

impl Orders {
    /// Sends an order; never blocks.
    ///
    /// # Errors
    /// The node has ended, or too many orders wait.
    pub fn send(&self, order: Control) -> Result<(), String> {
        self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => format!("{ORDERS} orders wait already; try again"),
            TrySendError::Disconnected(_) => "the node has stopped".to_owned(),
        })?;
        self.waker.wake().map_err(|error| error.to_string())
    }

    /// Sends an order and waits for its answer.
    ///
    /// # Errors
    /// What the answer says, or that there is none.
    pub fn ask(&self, order: impl FnOnce(Responder) -> Control) -> Result<String, String> {
        let (answer, answered) = channel();
        let respond: Responder = Box::new(move |outcome| drop(answer.send(outcome)));
        self.send(order(respond))?;
        answered
            .recv_timeout(std::time::Duration::from_secs(10))
            .unwrap_or_else(|_| Err("no answer within 10 s".to_owned()))
    }
}

impl NodeHandle {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its metrics and status.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// How it stood a moment ago.
    pub fn status(&self) -> Arc<Status> {
        self.board.status()
    }

    /// Where its Redis clients connect, in the order of the sockets it was given.
    pub fn redis_addresses(&self) -> &[SocketAddr] {
        &self.redis_addresses
    }

    /// Where its gRPC clients connect.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc_address
    }

    /// Where it serves HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// A way to send it orders.
    pub fn orders(&self) -> Orders {
        Orders { orders: self.orders.clone(), waker: Arc::clone(&self.waker) }
    }

    /// Asks its replica of a keyspace for something.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn administer(&self, keyspace: KeyspaceId, what: Administration) -> Result<String, String> {
        self.orders().ask(|respond| Control::Administer(keyspace, None, what, respond))
    }

    /// Whether it still runs: false once it has failed or was stopped.
    pub fn running(&self) -> bool {
        self.ended.get().is_none() && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops it in order and waits: no new clients, leadership to others, commands under way answered,
    /// everything flushed.
    ///
    /// # Errors
    /// Why it failed, now or earlier.
    pub fn stop(mut self) -> Result<(), Failure> {
        // An error says that it has ended already.
        let _ = self.orders().send(Control::Stop);
        self.join()
    }

    /// Ends it as SIGKILL would, and waits: nothing is flushed, what is not durable is lost.
    ///
    /// # Errors
    /// Why it had failed before.
    pub fn kill(mut self) -> Result<(), Failure> {
        self.killed.store(true, Ordering::Release);
        let _ = self.waker.wake();
        self.join()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(mut self) -> Result<(), Failure> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Failure> {
        self.http = None;
        let ended = self.thread.take().map(JoinHandle::join);
        // Only now: calls under way are answered first.
        self.grpc = None;
        let outcome = match ended {
            Some(Ok(outcome)) => outcome,
            // The panic was printed when it happened.
            Some(Err(_)) => Err(Failure::Io(std::io::Error::other("the node's thread panicked"))),
            None => Ok(()),
        };
        if let (Some(audit), Err(failure)) = (&mut self.audit, &outcome) {
            audit.fails(failure.to_string());
        }
        // Behind whatever any of them may tell.
        self.audit = None;
        outcome
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.orders().send(Control::Stop);
            let _ = self.join();
        }
    }
}
