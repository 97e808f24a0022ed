//! Keys that nobody touches go, too, when their time is over.
//!
//! Only a command deletes a key, by its stamp (specs/curp.md 7.3), so that all replicas delete the same. What no command touches
//! would stay for ever. So one of the nodes that hold a keyspace asks for the deletion of what is overdue there, as a client
//! would: the one that leads, or where nobody does the first that is reached. A node whose clock is fast
//! and that is not this one deletes nothing early.

use super::{Origin, Origins, Reactor};
use isochrone_core::command::{Command, Operation};
use isochrone_core::{Blob, Instant, ProcessId, Span};

/// How long what is overdue is left to whoever touches it: longer than clocks should differ.
const GRACE: Span = Span::from_secs(1);
/// Keys that go with one command, and bytes of them: what a replica deletes in a millisecond or two.
const KEYS: usize = 1024;
/// See [`KEYS`].
const BYTES: usize = 256 << 10;

impl Reactor {
    /// Asks for the deletion of what is overdue, where that is this node's part and not under way.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.stopping.is_some() {
            return;
        }
        let stamp = self.shard.io().stamp;
        for (of, keyspace) in self.reporter.to_sweep(&self.peers) {
            let Some(by) = self.clients.host(keyspace).filter(|_| !self.origins.sweeping.contains(&of))
            else {
                continue;
            };
            let mut keys = self.shard.overdue(of, stamp - GRACE, KEYS);
            let mut bytes = 0;
            let mut more = |key: &Blob| {
                bytes += key.len();
                bytes <= BYTES
            };
            // One at least, however long.
            keys.truncate(keys.iter().take_while(|key| more(key)).count().max(1));
            if keys.is_empty() {
                continue;
            }
            let ticket = self.origins.ticket();
            let command = Command::new(stamp, Operation::Sweep { keys: keys.into() });
            match self.shard.execute(by, ticket, command) {
                Ok(()) => {
                    self.origins.sweeping.insert(of);
                    self.origins.waiting.insert(ticket, Origin::Sweep { of, by, asked: now });
                }
                Err(error) => tracing::debug!(%error, "nothing overdue is deleted"),
            }
        }
    }
}

impl Origins {
    /// What was overdue in the state of this process was deleted, or not.
    pub(super) fn swept(&mut self, of: ProcessId) {
        self.sweeping.remove(&of);
    }
}
