//! ACL LOG: what was denied of late.

use crate::redis::complaint::Complaint;
use crate::redis::reply::Reply;
use isochrone_core::Stamp;
use isochrone_core::command::Score;
use std::collections::VecDeque;

/// How many entries are kept (`acllog-max-len` of Redis).
const KEPT: usize = 128;
/// Within this time equal denials make one entry.
const GROUPED_MS: i64 = 60_000;
/// Bytes of a name that an entry keeps: whoever is denied must not fill the memory.
const OBJECT_MAX: usize = 1024;

/// Why something was denied.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    /// A login.
    Auth,
}

/// Where something was denied.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Within {
    /// In a request.
    Nothing,
    /// In a transaction.
    Multi,
    /// In a script.
    Script,
}

/// Something that was denied.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(crate) struct Entry {
    reason: Reason,
    within: Within,
    object: Vec<u8>,
    user: String,
}

impl Entry {
    /// `object` is what was denied: a command, a key, a channel, or AUTH.
    pub(crate) fn new(reason: Reason, within: Within, object: &[u8], user: &str) -> Entry {
        let object = object[..object.len().min(OBJECT_MAX)].to_vec();
        let user = user.chars().take(OBJECT_MAX).collect();
        Entry { reason, within, object, user }
    }
}

#[derive(Debug)]
struct Noted {
    entry: Entry,
    count: i64,
    id: i64,
    created_ms: i64,
    updated_ms: i64,
    client: String,
}

/// See the module. The latest is the first.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<Noted>,
    next: i64,
}

impl Log {
    pub(super) fn add(&mut self, entry: Entry, client: String, stamp: Stamp) {
        let now = (stamp.as_nanos() / 1_000_000) as i64;
        let same = |noted: &Noted| noted.entry == entry && now - noted.updated_ms <= GROUPED_MS;
        if let Some(at) = self.entries.iter().position(same)
            && let Some(noted) = self.entries.remove(at)
        {
            self.entries.push_front(Noted { count: noted.count + 1, updated_ms: now, client, ..noted });
            return;
        }
        let id = self.next;
        self.next += 1;
        self.entries.push_front(Noted { entry, count: 1, id, created_ms: now, updated_ms: now, client });
        self.entries.truncate(KEPT);
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// The latest so many.
    pub(super) fn tell(&self, count: usize, stamp: Stamp, reply: &mut Reply<'_>) -> Result<(), Complaint> {
        let now = (stamp.as_nanos() / 1_000_000) as i64;
        let chosen = self.entries.iter().take(count);
        reply.array(chosen.len());
        for noted in chosen {
            let Entry { reason, within, object, user } = &noted.entry;
            reply.map(10);
            reply.bulk(b"count");
            reply.integer(noted.count);
            reply.bulk(b"reason");
            reply.bulk(match reason {
                Reason::Command => b"command",
                Reason::Key => b"key",
                Reason::Channel => b"channel",
                Reason::Auth => b"auth",
            });
            reply.bulk(b"context");
            reply.bulk(match within {
                Within::Nothing => b"toplevel",
                Within::Multi => b"multi",
                Within::Script => b"lua",
            });
            reply.bulk(b"object");
            reply.bulk(object);
            reply.bulk(b"username");
            reply.bulk(user.as_bytes());
            reply.bulk(b"age-seconds");
            reply.double(Score::new((now - noted.updated_ms) as f64 / 1000.0).unwrap_or_default());
            reply.bulk(b"client-info");
            reply.bulk(noted.client.as_bytes());
            reply.bulk(b"entry-id");
            reply.integer(noted.id);
            reply.bulk(b"timestamp-created");
            reply.integer(noted.created_ms);
            reply.bulk(b"timestamp-last-updated");
            reply.integer(noted.updated_ms);
        }
        Ok(())
    }
}
