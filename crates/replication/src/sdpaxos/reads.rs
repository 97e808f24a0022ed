//! Reads that cost two messages: the sequencer names the slot behind which the reader's own state will do
//! (`specs/sdpaxos.md` 3.8).

use super::Mutation;
use super::assignment::Rank;
use super::message::Part;
use super::order::Order;
use crate::order::{Ordered, Step};
use crate::request::Refusal;
use isochrone_core::command::Touch;
use isochrone_core::{Instant, Waiters, key_hash};
use std::collections::BTreeMap;

/// The object of a read that touches several, or all.
const ANY: u64 = 0;

/// A read under way.
#[derive(Clone, Hash, Debug)]
struct Read<V: Ordered> {
    value: V,
    bytes: usize,
    object: u64,
    /// When the sequencer was asked; not yet, or not in this view.
    asked: Option<Instant>,
    /// It has answered.
    placed: bool,
}

/// The reads of a replica.
#[derive(Clone, Hash, Debug)]
pub(super) struct Reads<V: Ordered> {
    open: BTreeMap<u64, Read<V>>,
    next: u64,
    waiting: Waiters<u64, u64>,
    /// Whether some were not asked for yet.
    fresh: bool,
}

impl<V: Ordered> Reads<V> {
    /// Of one life: an answer to a former one names the slot of another read.
    pub(super) fn of_life(incarnation: u32) -> Reads<V> {
        Reads {
            open: BTreeMap::new(),
            next: u64::from(incarnation) << 32,
            waiting: Waiters::default(),
            fresh: false,
        }
    }

    /// The view has changed: what a slot means may have changed with it.
    pub(super) fn ask_again(&mut self) {
        self.waiting.drain().for_each(drop);
        for read in self.open.values_mut() {
            (read.asked, read.placed) = (None, false);
        }
        self.fresh = !self.open.is_empty();
    }

    fn place(&mut self, number: u64, slot: u64) {
        if let Some(read) = self.open.get_mut(&number)
            && !read.placed
        {
            read.placed = true;
            self.waiting.park(slot, number);
        }
    }

    /// Those that wait for no slot behind `executed`.
    pub(super) fn release(&mut self, executed: u64) -> Vec<V> {
        let Reads { open, waiting, .. } = self;
        if waiting.first().is_none_or(|first| *first > executed) {
            return Vec::new();
        }
        let due = waiting.release(executed);
        due.filter_map(|number| open.remove(&number)).map(|read| read.value).collect()
    }
}

impl<V: Ordered> Order<V> {
    pub(super) fn begin_read(&mut self, value: V, bytes: usize) -> Result<(), Refusal> {
        if self.reads.open.len() >= self.parameters().queue_commands {
            return Err(Refusal::Overloaded);
        }
        let (mut object, mut count) = (ANY, 0);
        value.visit(&mut |touch| {
            count += 1;
            object = match touch {
                Touch::Key(key, _) if count == 1 => key_hash(self.process.keyspace, key).max(1),
                _ => ANY,
            };
        });
        let number = self.reads.next;
        self.reads.next += 1;
        self.reads.open.insert(number, Read { value, bytes, object, asked: None, placed: false });
        self.reads.fresh = true;
        Ok(())
    }

    /// Asks the sequencer for the slots of new reads.
    pub(super) fn ask_reads(&mut self, now: Instant) {
        if !self.reads.fresh || !self.normal() {
            return;
        }
        self.reads.fresh = false;
        let mut asks = Vec::new();
        for (number, read) in &mut self.reads.open {
            if read.asked.is_none() {
                read.asked = Some(now);
                asks.push((*number, read.object));
            }
        }
        if asks.is_empty() {
            return;
        }
        if self.head() == self.me {
            let answers = self.name_slots(&asks, now);
            self.on_read_at(&answers, now);
        } else {
            let head = self.head();
            self.out(head).ahead.push(Part::Read(asks));
        }
    }

    /// Asks again for what was not answered.
    pub(super) fn resend_reads(&mut self, now: Instant) {
        let patience = self.parameters().resend;
        for read in self.reads.open.values_mut() {
            if !read.placed && read.asked.is_some_and(|asked| now.since(asked) >= patience) {
                read.asked = None;
                self.reads.fresh = true;
            }
        }
    }

    /// R-REQUEST.
    pub(super) fn on_read(&mut self, from: Rank, reads: &[(u64, u64)], now: Instant) {
        let answers = self.name_slots(reads, now);
        self.out(from).ahead.push(Part::ReadAt(answers));
    }

    /// The last slot that may hold an update of each object. Under a lease there is no other sequencer, so no
    /// update that is ready can be in a later one.
    fn name_slots(&self, reads: &[(u64, u64)], now: Instant) -> Vec<(u64, Option<u64>)> {
        let lease = self.holds_lease(now);
        let end = self.log.end();
        let name = |object: u64| {
            let sequencer = self.sequencer.as_ref().filter(|_| lease)?;
            let last = sequencer.history.get(&object).copied().unwrap_or(0).max(sequencer.floor);
            Some(if object == ANY { end } else { last })
        };
        reads.iter().map(|(number, object)| (*number, name(*object))).collect()
    }

    /// R-REPLY. Without a slot the read is ordered like a command.
    pub(super) fn on_read_at(&mut self, answers: &[(u64, Option<u64>)], now: Instant) {
        for (number, slot) in answers {
            match slot {
                Some(slot) => self.reads.place(*number, *slot),
                None => {
                    let unplaced = self.reads.open.get(number).is_some_and(|read| !read.placed);
                    if unplaced
                        && let Some(read) = self.reads.open.remove(number)
                        && self.enqueue(read.value, read.bytes, now).is_err()
                    {
                        self.dropped = true;
                    }
                }
            }
        }
        self.release_reads();
    }

    /// Reads whose slot is executed are answered. Not in a view that this replica is leaving: their slots may
    /// mean something else in the next.
    pub(super) fn release_reads(&mut self) {
        if self.normal() || self.mutated(Mutation::SlotAcrossViews) {
            let due = self.reads.release(self.executed);
            self.steps.extend(due.into_iter().map(Step::Local));
        }
    }
}
