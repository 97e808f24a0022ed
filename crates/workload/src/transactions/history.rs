//! What transactions did and what became of them, as a checker takes it.

use super::plan::Plan;
use isochrone_check::transactions::{Access, Transaction, Transactions};
use isochrone_check::{Outcome, Value};
use isochrone_core::{Blob, Instant};
use isochrone_transactions::{Read, Update};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One try of a transaction.
#[derive(Copy, Clone, Debug)]
pub struct Tried<'a> {
    /// Who tried it, and its place among what they tried.
    pub session: u32,
    /// See above.
    pub sequence: u64,
    /// What it was to do.
    pub plan: &'a Plan,
    /// What it read, if it came so far.
    pub reads: Option<&'a [Read]>,
    /// What it asked to be written.
    pub updates: &'a [Update],
    /// The version of what it wrote, where that was told.
    pub version: Option<u64>,
    /// When it began.
    pub invoked: Instant,
    /// When its client was told of its end, if it was.
    pub returned: Option<Instant>,
    /// How it ended.
    pub outcome: Outcome,
}

/// The history of a run.
#[derive(Default)]
pub struct History {
    list: Vec<Transaction>,
    /// The version of each value that was read, where it is wanted: it tells when a transaction took effect whose client
    /// was never told.
    seen: Option<BTreeMap<Arc<str>, u64>>,
}

impl History {
    /// An empty one. `unknown`: whether outcomes may stay unknown, so that the versions of all that is read are kept.
    pub fn new(unknown: bool) -> History {
        History { list: Vec::new(), seen: unknown.then(BTreeMap::new) }
    }

    /// Adds a try; nothing where it did nothing.
    pub fn note(&mut self, tried: Tried<'_>) {
        let text = |bytes: &Blob| String::from_utf8_lossy(bytes).into_owned();
        if let Some(seen) = &mut self.seen {
            for read in tried.reads.into_iter().flatten() {
                if let Some(value) = &read.value {
                    seen.insert(Arc::from(text(value)), read.version.0);
                }
            }
        }
        let read = |read: &Read| {
            let value = read.value.as_ref().map_or(Value::Nil, |value| Value::Text(text(value)));
            Access::Read(Arc::from(text(&read.key)), Some(value))
        };
        let write = |update: &Update| {
            let key = Arc::from(text(&update.key));
            match &update.value {
                Some(value) => Access::Write(key, Arc::from(text(value))),
                None => Access::Delete(key),
            }
        };
        let scan = |prefix: &Blob, reads: &[Read]| {
            let found = reads.iter().filter_map(|read| {
                Some((Arc::from(text(&read.key)), Value::Text(text(read.value.as_ref()?))))
            });
            Access::Scan(Arc::from(text(prefix)), found.collect())
        };
        let mut accesses: Vec<Access> = match (&tried.plan.predicate, tried.reads) {
            (Some(prefix), Some(reads)) => vec![scan(prefix, reads)],
            (_, reads) => reads.into_iter().flatten().map(read).collect(),
        };
        accesses.extend(tried.updates.iter().map(write));
        if accesses.is_empty() {
            return;
        }
        self.list.push(Transaction {
            client: u64::from(tried.session),
            session: 0,
            sequence: tried.sequence,
            version: tried.version.filter(|_| !tried.updates.is_empty()),
            accesses,
            invoked: tried.invoked.as_nanos(),
            returned: tried.returned.map(Instant::as_nanos),
            outcome: tried.outcome,
        });
    }

    /// All of it; what ended unknown has its version where somebody has read what it wrote.
    pub fn finish(mut self) -> Transactions {
        let seen = self.seen.unwrap_or_default();
        for one in self.list.iter_mut().filter(|one| one.outcome == Outcome::Unknown) {
            one.version = one.accesses.iter().find_map(|access| match access {
                Access::Write(_, value) => seen.get(value).copied(),
                _ => None,
            });
        }
        Transactions { list: self.list }
    }
}
