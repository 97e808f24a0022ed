//! Which keys a partition holds: what clients ask its replicas, page by page.
//!
//! A replica answers once it has applied a version of a key that the client names, and tells the keys that have a value
//! and those that transactions under way may write.

use crate::map::Group;
use crate::request::Outcome;
use isochrone_core::{Blob, CommandId, Effects, Process, ProcessId, Ticket};
use isochrone_store::versions::{Version, Versions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is asked.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Query {
    /// Where in the order of [`Versions::page`] the page begins.
    pub from: u64,
    /// What the replica must have applied: this version of this key, or a later one.
    pub fence: (Blob, Version),
}

/// What a replica answers.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Page {
    /// Keys, in any order.
    pub keys: Vec<Blob>,
    /// Where the next page begins; nothing behind the last.
    pub next: Option<u64>,
}

/// Entries that a replica looks at for one page: a millisecond of work.
const PAGE: usize = 4_096;

impl Query {
    /// The page of a replica with these committed versions, where transactions under way may write these keys; nothing
    /// where it is behind.
    pub(crate) fn answer<'a>(
        &self,
        store: &Versions,
        pending: impl Iterator<Item = &'a Blob>,
    ) -> Option<Page> {
        let (key, version) = &self.fence;
        if store.latest(key).0 < *version {
            return None;
        }
        let (mut keys, next) = store.page(self.from, PAGE);
        let within = |key: &&Blob| {
            let place = Versions::place(key);
            self.from <= place && next.is_none_or(|next| place < next)
        };
        keys.extend(pending.filter(within).cloned());
        Some(Page { keys, next })
    }
}

/// The questions of a client that are open.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Listings {
    open: BTreeMap<Ticket, Listing>,
}

#[derive(Clone, Hash, Debug)]
struct Listing {
    needed: usize,
    pages: BTreeMap<ProcessId, Page>,
}

impl Listings {
    /// Asks all who may be replicas of a group, of which so many are to answer.
    pub(crate) fn ask<C: Process>(
        &mut self,
        ticket: Ticket,
        group: &Group,
        needed: usize,
        question: &C::Message,
        effects: &mut Effects<C>,
    ) {
        self.open.insert(ticket, Listing { needed, pages: BTreeMap::new() });
        for replica in group.processes() {
            effects.send_ahead(replica, question.clone());
        }
    }

    /// A replica has answered: the host is told, once enough have.
    pub(crate) fn heard<C: Process<Outcome = Outcome>>(
        &mut self,
        from: ProcessId,
        ask: CommandId,
        page: Page,
        effects: &mut Effects<C>,
    ) {
        let ticket = Ticket(ask.sequence);
        let Some(listing) = self.open.get_mut(&ticket) else { return };
        listing.pages.insert(from, page);
        if listing.pages.len() < listing.needed {
            return;
        }
        let pages = std::mem::take(&mut listing.pages);
        self.open.remove(&ticket);
        // As far as all of them have come.
        let next = pages.values().filter_map(|page| page.next).min();
        let within = |key: &Blob| next.is_none_or(|next| Versions::place(key) < next);
        let keys: BTreeSet<Blob> = pages.into_values().flat_map(|page| page.keys).filter(within).collect();
        effects.complete_ahead(ticket, Outcome::Listed { keys: keys.into_iter().collect(), next });
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.open.remove(&ticket);
    }
}
