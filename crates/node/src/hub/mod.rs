//! What the connections of a node tell each other, and the nodes of a cluster: messages of publish and
//! subscribe, and that a key has something to pop.
//!
//! Nothing here is replicated or kept: news are told at most once, and whoever is away misses them. A
//! connection that waits for a key therefore also looks again on its own ([`RETRY`]); a message that was
//! missed is gone, as in Redis.
//!
//! To other nodes ([`News`]): every message that is published; that somebody here waits for a key, once a
//! second for as long as it does; that a key for which somebody elsewhere waits was given something; how many
//! subscriptions names have here, when that changes and again every ten seconds; likewise which events of keys are wanted here, that is,
//! where there are subscriptions that may be for them, those of this node's `notify-keyspace-events`; and events, to the nodes that
//! want them.
//!
//! | File | |
//! |---|---|
//! | `subscriptions.rs` | who has subscribed to what, and gets what is published |
//! | `counts.rs` | how many subscriptions names have, here and at other nodes |
//! | `events.rs` | which events of keys are wanted where, and their channels |
//! | `waiting.rs` | who waits for keys, is told of what they are given, and gets what was taken |
//! | `news.rs` | what other nodes are told, and tell |

mod counts;
mod events;
mod news;
mod subscriptions;
mod waiting;

pub use news::{Heard, News};
pub use subscriptions::Topic;
pub use waiting::{Manner, RETRY};

use crate::audit::Audit;
use crate::redis::acl::Users;
use crate::redis::{Scripts, Slowlog};
use counts::Counts;
use events::Events;
use isochrone_core::Blob;
use news::Exchange;
use std::collections::{BTreeSet, VecDeque};
use subscriptions::Subscriptions;
use waiting::Waiting;

/// Messages that wait to be handed over, at most; beyond that nothing is published. Nor is what is for more subscriptions.
const MAIL_MAX: usize = 1 << 20;
/// What is told in one round of the loop at most, so that heartbeats do not wait behind it.
const MAIL_PER_ROUND: usize = 20_000;

/// Bytes of what is told at once to those who monitor, at most; beyond that they are closed.
pub(crate) const SEEN_MAX: usize = 64 << 20;

/// What one connection is told.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Notice {
    /// A message of a channel, by a pattern where that is how it was subscribed to.
    Message {
        /// Whether it is a shard channel.
        shard: bool,
        /// The pattern that fits the channel.
        pattern: Option<Blob>,
        /// The channel.
        channel: Blob,
        /// The message.
        payload: Blob,
    },
    /// Lines about what this node was asked; none where they were more than is kept.
    Seen(Option<Blob>),
    /// A key that it waits for was given something.
    Filled,
    /// Something that was taken, by it or by one behind it, is for it ([`Hub::take_given`]); or what it has taken was for
    /// another.
    Settled,
    /// It is to wait no longer ([`Hub::unblocked`]).
    Unblock,
    /// It has done so much in one round that it goes on in this one.
    GoOn,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Hub {
    subscriptions: Subscriptions,
    counts: Counts,
    events: Events,
    waiting: Waiting,
    exchange: Exchange,
    /// Who is to be told what, in order; without a notice, the next of the messages that lie with the connection.
    mail: VecDeque<(u64, Option<Notice>)>,
    /// The connections that are told what this node is asked.
    monitors: BTreeSet<u64>,
    /// What they are to be told, lines.
    seen: Vec<u8>,
    /// The connections that are to be closed before this round is over.
    killed: BTreeSet<u64>,
    /// The scripts that this node was sent.
    pub scripts: Scripts,
    /// The commands that took long.
    pub slowlog: Slowlog,
    /// The users of this node.
    pub users: Users,
    /// Where it is kept what they administer and are denied, where that is kept.
    pub(crate) audit: Option<Audit>,
}

/// What was long once does not keep the memory for that.
fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.len() < queue.capacity() / 8 {
        queue.shrink_to(2 * queue.len());
    }
}

impl Hub {
    /// A connection has done enough for this round, and goes on in the next.
    pub fn put_off(&mut self, connection: u64) {
        self.mail.push_back((connection, Some(Notice::GoOn)));
    }

    /// A connection is told from now on what this node is asked; whether that is new.
    pub fn monitor(&mut self, connection: u64) -> bool {
        // What was asked before is not for it.
        self.tell_monitors();
        self.monitors.insert(connection)
    }

    /// Whether any connection is told what this node is asked.
    pub fn is_monitored(&self) -> bool {
        !self.monitors.is_empty()
    }

    /// Whether this one is.
    pub fn monitors(&self, connection: u64) -> bool {
        self.monitors.contains(&connection)
    }

    /// What this node is asked, for those who monitor it: `write` adds a line.
    pub fn show(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.seen.len() <= SEEN_MAX {
            write(&mut self.seen);
        }
    }

    fn tell_monitors(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let seen = std::mem::take(&mut self.seen);
        let lines = (seen.len() <= SEEN_MAX).then(|| Blob::from(seen));
        let seen = |connection: &u64| (*connection, Some(Notice::Seen(lines.clone())));
        self.mail.extend(self.monitors.iter().map(seen));
    }

    /// Ends a connection: from now on it is asked nothing, and told nothing. The shard closes it at the end of its round.
    pub fn kill(&mut self, connection: u64) {
        self.leave(connection);
        self.killed.insert(connection);
    }

    /// Whether it has ended so.
    pub fn is_killed(&self, connection: u64) -> bool {
        self.killed.contains(&connection)
    }

    /// The connections to be closed.
    pub fn take_killed(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.killed)
    }

    /// A connection has ended, or is as new.
    pub fn leave(&mut self, connection: u64) {
        self.unwait(connection);
        self.monitors.remove(&connection);
        self.unsubscribe_all(connection);
    }

    /// How many messages and other notices wait to be handed over.
    pub fn mail(&self) -> usize {
        self.mail.len()
    }

    /// What connections are to be told, in order; what a round has no time for stays.
    pub fn take_mail(&mut self) -> VecDeque<(u64, Notice)> {
        self.tell_monitors();
        let subscriptions = &mut self.subscriptions;
        let told = |(connection, notice): (u64, Option<Notice>)| {
            let notice = notice.or_else(|| subscriptions.next_message(connection))?;
            Some((connection, notice))
        };
        let mail = self.mail.drain(..self.mail.len().min(MAIL_PER_ROUND)).filter_map(told).collect();
        shrink(&mut self.mail);
        mail
    }

    /// Whether a connection is to be told something.
    pub fn has_mail(&self) -> bool {
        !self.mail.is_empty() || !self.seen.is_empty() || self.has_told()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::{Instant, KeyspaceId, NodeId};

    pub(super) const SPACE: KeyspaceId = KeyspaceId(1);
    pub(super) const OTHER: NodeId = NodeId(1);

    /// What connections are told, in a line.
    pub(super) fn mail(hub: &mut Hub) -> String {
        let mut text = String::new();
        for (connection, notice) in hub.take_mail() {
            text.push_str(&format!("{connection} {notice:?}; "));
        }
        text
    }

    /// Has another node hear what this one tells of its subscriptions, and gives how many news that were.
    pub(super) fn tell_counts(from: &mut Hub, to: &mut Hub, now: Instant) -> usize {
        from.tell_counts(now);
        let news = from.take_news();
        let told = news.len();
        for news in news {
            to.hear_one(OTHER, news, now);
        }
        told
    }
}
