//! Finding the addresses of peers by name, on a thread of its own: asking a name server can take seconds,
//! and a peer that is not there yet may not have a name yet.

use isochrone_core::NodeId;
use mio::Waker;
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

/// Questions that may wait, one a peer.
const WAITING: usize = 256;

/// See the module's page.
pub struct Resolver {
    questions: SyncSender<(NodeId, String, u16, u64)>,
    answers: Receiver<(NodeId, Result<SocketAddr, String>)>,
    /// The peers whose addresses have been asked for: where the name server is silent, a second question about one would
    /// only stand in the way of those about others.
    asked: BTreeSet<NodeId>,
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
        Ok(Resolver { questions, answers, asked: BTreeSet::new() })
    }

    /// Asks for an address of a peer: of several, for the one whose turn it is. False where one was asked for already, or
    /// too much waits.
    pub fn ask(&mut self, node: NodeId, host: &str, port: u16, turn: u64) -> bool {
        let asks = !self.asked.contains(&node)
            && self.questions.try_send((node, host.to_owned(), port, turn)).is_ok();
        if asks {
            self.asked.insert(node);
        }
        asks
    }

    /// The next answer, if there is one.
    pub fn answer(&mut self) -> Option<(NodeId, Result<SocketAddr, String>)> {
        let (node, found) = self.answers.try_recv().ok()?;
        self.asked.remove(&node);
        Some((node, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer whose name is looked up for long keeps no other from being looked up.
    #[test]
    fn one_question_a_peer_waits() {
        let ((questions, asked), (answer, answers)) = (sync_channel(2), channel());
        let mut resolver = Resolver { questions, answers, asked: BTreeSet::new() };
        let ask = |resolver: &mut Resolver, node| resolver.ask(NodeId(node), "host", 1, 0);
        assert_eq!([1, 1, 2, 1, 3].map(|node| ask(&mut resolver, node)), [true, false, true, false, false]);
        assert_eq!(asked.try_iter().map(|(node, ..)| node.0).collect::<Vec<_>>(), [1, 2]);
        assert!(ask(&mut resolver, 3), "there was no room for it");
        answer.send((NodeId(1), Err("it has no address".to_owned()))).unwrap();
        assert!(resolver.answer().is_some() && resolver.answer().is_none());
        assert!(ask(&mut resolver, 1), "its link has failed once more");
    }
}
