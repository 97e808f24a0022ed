//! The log of one server: batches by place, of which a prefix is known to be on all backups.

use super::message::Batch;
use crate::keep::Keep;
use isochrone_core::{Slot, SlotLog, Wire, wire};

/// A batch, and how many values and bytes it has.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
struct Page<V> {
    values: Batch<V>,
    bytes: u32,
}

/// The log. Everything before `full` is on all backups and final; everything before `delivered` was handed to the
/// holder; what lies behind `full` may be another after a recovery.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub(super) struct Book<V> {
    pages: SlotLog<Page<V>>,
    full: Slot,
    delivered: Slot,
    /// Bytes of what was delivered and is kept.
    kept: usize,
    /// Values behind `full`, and bytes of them.
    open: usize,
    open_bytes: usize,
}

impl<V> Default for Book<V> {
    fn default() -> Book<V> {
        Book {
            pages: SlotLog::default(),
            full: Slot::ZERO,
            delivered: Slot::ZERO,
            kept: 0,
            open: 0,
            open_bytes: 0,
        }
    }
}

impl<V: Wire> Book<V> {
    /// The first place that is held.
    pub(super) fn base(&self) -> Slot {
        self.pages.base()
    }

    /// Behind the last place.
    pub(super) fn end(&self) -> Slot {
        self.pages.end()
    }

    /// Everything before it is on all backups, as far as is known here.
    pub(super) fn full(&self) -> Slot {
        self.full
    }

    /// Everything before it was handed out.
    pub(super) fn delivered(&self) -> Slot {
        self.delivered
    }

    /// Values that are not known to be on all backups.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Bytes of them.
    pub(super) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Batch<V>> {
        self.pages.get(slot).map(|page| &page.values)
    }

    /// Everything from there on, up to about so many bytes.
    pub(super) fn run(&self, from: Slot, bytes: usize) -> Vec<Batch<V>> {
        let mut left = bytes;
        let pages = self.pages.range(from).map(|(_, page)| page);
        let pages = pages.take_while(|page| {
            let fits = left > 0;
            left = left.saturating_sub(page.bytes as usize);
            fits
        });
        pages.map(|page| page.values.clone()).collect()
    }

    pub(super) fn append(&mut self, values: Batch<V>) {
        let bytes = values.iter().map(wire::encoded_size).sum::<usize>();
        self.open += values.len();
        self.open_bytes += bytes;
        self.pages.insert(self.pages.end(), Page { values, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
    }

    /// Forgets what is behind a place that is not before `full`.
    pub(super) fn truncate(&mut self, from: Slot) {
        debug_assert!(from >= self.full, "what is on all backups is final");
        for (_, page) in self.pages.range(from) {
            self.open -= page.values.len();
            self.open_bytes -= page.bytes as usize;
        }
        self.pages.truncate(from);
    }

    /// Notes that everything before a place is on all backups; what was new in that.
    pub(super) fn advance(&mut self, full: Slot) -> impl Iterator<Item = Slot> + use<V> {
        let before = self.full;
        let full = full.min(self.end()).max(before);
        for slot in before.until(full) {
            if let Some(page) = self.pages.get(slot) {
                self.open -= page.values.len();
                self.open_bytes -= page.bytes as usize;
            }
        }
        self.full = full;
        before.until(full)
    }

    /// The next place that is on all backups and was not handed out; it counts as handed out.
    pub(super) fn deliver(&mut self) -> Option<(Slot, Batch<V>)> {
        let slot = self.delivered;
        if slot >= self.full {
            return None;
        }
        let page = self.pages.get(slot)?;
        self.delivered = slot.next();
        self.kept += page.bytes as usize;
        Some((slot, page.values.clone()))
    }

    /// Forgets what was delivered, beyond so much of it.
    pub(super) fn trim(&mut self, keep: Keep) {
        let mut base = self.pages.base();
        while base < self.delivered && keep.exceeded(self.delivered.since(base) as usize, self.kept) {
            let page = self.pages.get(base);
            self.kept = self.kept.saturating_sub(page.map_or(0, |page| page.bytes as usize));
            base = base.next();
        }
        self.pages.trim(base);
    }

    /// The holder has the state before a place, which is ahead of what was delivered. What lies behind it stays.
    pub(super) fn install(&mut self, position: Slot) {
        drop(self.advance(position));
        if position > self.end() {
            self.pages.reset(position);
            (self.open, self.open_bytes) = (0, 0);
        } else {
            self.pages.trim(position);
        }
        self.full = self.full.max(position);
        self.delivered = position;
        self.kept = 0;
    }

    /// What has not been delivered, for a snapshot.
    pub(super) fn undelivered(&self) -> Vec<Batch<V>> {
        self.pages.range(self.delivered).map(|(_, page)| page.values.clone()).collect()
    }

    pub(super) fn check(&self) {
        assert!(self.pages.contiguous() == self.end(), "the log has a gap");
        assert!(self.base() <= self.delivered && self.delivered <= self.full && self.full <= self.end());
    }
}
