//! Finding the addresses of peers by name, on a thread of its own: asking a name server can take seconds,
//! and a peer that is not there yet may not have a name yet.

use isochrone_core::NodeId;
use mio::Waker;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

/// Questions that may wait; one a peer is enough, and more are asked again anyway.
const WAITING: usize = 256;

/// See the module's page.
pub struct Resolver {
    questions: SyncSender<(NodeId, String, u16, u64)>,
    answers: Receiver<(NodeId, Result<SocketAddr, String>)>,
}

impl Resolver {
    /// Starts the thread; it ends with its owner.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn start(waker: Arc<Waker>) -> io::Result<Resolver> {
        let (questions, asked) = sync_channel::<(NodeId, String, u16, u64)>(WAITING);
        let (answer, answers) = channel();
        std::thread::Builder::new().name("resolver".into()).spawn(move || {
            for (node, host, port, turn) in asked {
                let found = (host.as_str(), port).to_socket_addrs().map_err(|error| error.to_string());
                let one = found.and_then(|found| {
                    let found: Vec<SocketAddr> = found.collect();
                    // The remainder is below the length, which is a usize.
                    let turn = turn.checked_rem(found.len() as u64).map(|turn| turn as usize);
                    turn.map(|turn| found[turn]).ok_or_else(|| "it has no address".to_owned())
                });
                let one = one.map_err(|why| format!("cannot find {host:?}: {why}"));
                if answer.send((node, one)).is_err() {
                    return;
                }
                // A poll that is gone needs no waking.
                let _ = waker.wake();
            }
        })?;
        Ok(Resolver { questions, answers })
    }

    /// Asks for an address of a peer: of several, for the one whose turn it is. Where too much waits already,
    /// nothing is asked.
    pub fn ask(&self, node: NodeId, host: &str, port: u16, turn: u64) {
        let _ = self.questions.try_send((node, host.to_owned(), port, turn));
    }

    /// The next answer, if there is one.
    pub fn answer(&self) -> Option<(NodeId, Result<SocketAddr, String>)> {
        self.answers.try_recv().ok()
    }
}
