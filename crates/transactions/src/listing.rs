//! Which keys a partition holds: what clients ask its replicas, page by page.
//!
//! A replica answers once it has applied what the client names ([`AsOf`]), and tells the keys that have a value and
//! those that transactions under way may write.

use crate::directory::located;
use crate::map::Group;
use crate::request::Outcome;
use isochrone_core::command::Kind;
use isochrone_core::{Blob, CommandId, Effects, Process, ProcessId, Stamp, Ticket};
use isochrone_store::entry;
use isochrone_store::versions::{Version, Versions};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is asked.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Query {
    /// Where in the order of [`Versions::page`] the page begins.
    pub from: u64,
    /// So many entries are looked at.
    pub most: u32,
    /// Which keys are wanted.
    pub as_of: AsOf,
}

/// Which keys are wanted, as of when.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum AsOf {
    /// All that were there when this version of this key, or a later one, was written.
    Version(Blob, Version),
    /// Those of commands that are there when it is asked: of this type, where one is named, and not past their deadline
    /// at this stamp.
    Now {
        /// The type.
        kind: Option<Kind>,
        /// The stamp.
        stamp: Stamp,
        /// Whether a directory names and stores them.
        located: bool,
    },
}

/// What a replica answers.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Page {
    /// Keys with such a value, in any order.
    pub keys: Vec<Blob>,
    /// Keys that may have one, or may be gone: transactions under way write them.
    pub open: Vec<Blob>,
    /// Where the next page begins; nothing behind the last.
    pub next: Option<u64>,
}

/// The last place, where practically no key is: a page that begins there is asked for to learn whether anybody leads.
pub(crate) const END: u64 = u64::MAX;

/// Entries that a replica looks at for one page at most: a millisecond of work.
pub(crate) const PAGE: u32 = 4_096;

impl Query {
    /// The same of keys that a directory names.
    pub(crate) fn located(mut self) -> Query {
        if let AsOf::Now { located, .. } = &mut self.as_of {
            *located = true;
        }
        self
    }

    /// The page of a replica with these committed versions, where transactions under way may write these keys; nothing
    /// where it is behind.
    pub(crate) fn answer<'a>(
        &self,
        store: &Versions,
        pending: impl Iterator<Item = &'a Blob>,
    ) -> Option<Page> {
        if let AsOf::Version(key, version) = &self.as_of
            && store.latest(key).0 < *version
        {
            return None;
        }
        if self.from == END && matches!(self.as_of, AsOf::Now { .. }) {
            // All that is pending would be looked at for nothing.
            return Some(Page { keys: Vec::new(), open: Vec::new(), next: None });
        }
        let (mut keys, next) = store.page(self.from, self.most.clamp(1, PAGE) as usize);
        let within = |key: &&Blob| {
            let place = Versions::place(key);
            self.from <= place && next.is_none_or(|next| place < next)
        };
        let open: BTreeSet<Blob> = pending.filter(within).cloned().collect();
        if let AsOf::Now { kind, stamp, located } = self.as_of {
            let bare = |value| if located { located::bare(value) } else { value };
            keys.retain(|key| {
                let value = store.latest(key).1.filter(|_| !located || !located::is_entry(key));
                !open.contains(key) && value.is_some_and(|value| holds(bare(value), kind, stamp))
            });
        }
        let open = open.into_iter().collect();
        Some(Page { keys, open, next })
    }
}

/// Whether this is a value of this type whose time is not over.
pub(crate) fn holds(value: &[u8], kind: Option<Kind>, stamp: Stamp) -> bool {
    entry::deadline(value).is_none_or(|deadline| deadline > stamp)
        && kind.is_none_or(|kind| entry::kind(value) == Some(kind))
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
        let (of, mut named, mut open) = (pages.len(), BTreeMap::<Blob, usize>::new(), BTreeSet::new());
        for page in pages.into_values() {
            page.keys.into_iter().filter(within).for_each(|key| *named.entry(key).or_default() += 1);
            open.extend(page.open.into_iter().filter(within));
        }
        // What not all of them have may be gone.
        let mut keys = BTreeSet::new();
        for (key, by) in named {
            let sure = by == of && !open.contains(&key);
            if sure { &mut keys } else { &mut open }.insert(key);
        }
        let (keys, open) = (keys.into_iter().collect(), open.into_iter().collect());
        effects.complete_ahead(ticket, Outcome::Listed { keys, open, next });
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.open.remove(&ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_asks_whether_anybody_leads_has_nothing_looked_at() {
        let as_of = AsOf::Now { kind: None, stamp: Stamp::ZERO, located: false };
        let query = Query { from: END, most: 1, as_of };
        let pending =
            std::iter::from_fn(|| -> Option<&'static Blob> { panic!("what is pending is looked at") });
        let nothing = Page { keys: Vec::new(), open: Vec::new(), next: None };
        assert_eq!(query.answer(&Versions::default(), pending), Some(nothing));
    }
}
