//! A server that follows: it keeps what the master sends, durably, before it says so, and nothing of a master that
//! was given up (I9).

use super::Mutation;
use super::message::{Batch, Beat, Message, Note, Record, Run};
use super::order::Order;
use crate::order::{Ordered, Reign};
use isochrone_core::{Effects, ProcessId, Slot};

impl<V: Ordered> Order<V> {
    /// Whether something of this master is taken; what is later than all before it is promised.
    fn heeds(&mut self, from: ProcessId, epoch: u64, effects: &mut Effects<Self>) -> bool {
        if epoch < self.promised {
            // Ahead: it may only make an old master stop.
            effects.send_ahead(from, Message::Fenced { epoch: self.promised });
            return false;
        }
        if epoch > self.promised {
            self.step_down(effects);
            self.promise(epoch, effects);
        }
        self.lead.is_none()
    }

    pub(super) fn promise(&mut self, epoch: u64, effects: &mut Effects<Self>) {
        self.promised = epoch;
        self.behind = None;
        self.near.void();
        effects.record(Record::Promised { epoch });
    }

    pub(super) fn on_beat(&mut self, from: ProcessId, beat: Beat, effects: &mut Effects<Self>) {
        let Beat { epoch, full, acked, sent, list, reads } = beat;
        if !self.heeds(from, epoch, effects) {
            return;
        }
        if self.parameters().lease {
            // Ahead: a restart forgets the grant, and waits for as long as it may hold.
            self.granted = self.granted.max(self.parameters().lease_terms().bound_until(effects.now()));
        }
        self.near.heard(Reign(epoch, list), reads, self.knobs.0.drift_ppm);
        let Reign(_, list) = self.near.reign();
        let (life, at) = (self.near.life(), effects.now());
        // Ahead: a lease to read that it gave up it does not have in another life either.
        effects.send_ahead(from, Message::Heard { epoch, sent, list, life, at });
        if self.adopted != epoch {
            let full = self.book.full();
            // Held behind the promise: from here on no earlier master gets anything past this server.
            return effects.send(from, Message::Want { epoch, from: full, follows: false });
        }
        self.learn_full(full, effects);
        let end = self.book.end();
        if acked < end {
            effects.send(from, Message::Acked { epoch, upto: end });
        }
    }

    pub(super) fn on_replicate(&mut self, from: ProcessId, run: Run<V>, effects: &mut Effects<Self>) {
        let Run { epoch, at, batches, full, adopts, urgent } = run;
        if epoch < self.promised && self.parameters().mutated(Mutation::AcceptOldEpochs) {
            let upto = at.plus(batches.len() as u64);
            return effects.send(from, Message::Acked { epoch, upto });
        }
        if !self.heeds(from, epoch, effects) {
            return;
        }
        if self.adopted != epoch {
            let known = self.book.full();
            if !adopts || at > known || at.plus(batches.len() as u64) < known {
                return effects.send(from, Message::Want { epoch, from: known, follows: false });
            }
            let batches = batches[known.since(at) as usize..].to_vec();
            self.adopt(epoch, known, batches.clone());
            effects.record(Record::Adopted { epoch, at: known, batches });
            self.learn_full(full, effects);
        } else {
            let end = self.book.end();
            if at > end {
                return effects.send(from, Message::Want { epoch, from: end, follows: true });
            }
            let fresh = batches.len().min(end.since(at) as usize);
            let batches = batches[fresh..].to_vec();
            if batches.is_empty() {
                self.learn_full(full, effects);
                if urgent {
                    // What came before may be waiting for company.
                    effects.record(Record::Full { full: self.book.full() });
                }
            } else {
                self.take_in(end, batches.clone());
                let full = full.min(self.book.end()).max(self.book.full());
                drop(self.book.advance(full));
                let record = Record::Appended { at: end, batches, full };
                if urgent { effects.record(record) } else { effects.record_soon(record) }
            }
        }
        let upto = self.book.end();
        match self.parameters().mutated(Mutation::AcknowledgeBeforeDurable) {
            true => effects.send_ahead(from, Message::Acked { epoch, upto }),
            false => effects.send(from, Message::Acked { epoch, upto }),
        }
    }

    /// Everything before a place is on all backups, says the master whose log this is.
    fn learn_full(&mut self, full: Slot, effects: &mut Effects<Self>) {
        let full = full.min(self.book.end());
        if full > self.book.full() {
            drop(self.book.advance(full));
            effects.record_lazily(Record::Full { full });
        }
    }

    /// More of the log; what is held already is passed over.
    pub(super) fn take_in(&mut self, at: Slot, batches: Vec<Batch<V>>) {
        let held = self.book.end().since(at) as usize;
        batches.into_iter().skip(held).for_each(|batch| self.book.append(batch));
    }

    /// The log is that of a master from this place on, which is not before what is final.
    pub(super) fn adopt(&mut self, epoch: u64, at: Slot, batches: Vec<Batch<V>>) {
        self.book.truncate(at.max(self.book.full()));
        self.near.forget();
        self.take_in(at, batches);
        self.adopted = epoch;
        self.promised = self.promised.max(epoch);
    }

    /// There is a later master.
    pub(super) fn on_fenced(&mut self, epoch: u64, effects: &mut Effects<Self>) {
        if self.lead.as_ref().is_some_and(|lead| lead.epoch < epoch) {
            self.step_down(effects);
        }
    }

    /// Is no master any more, and takes back what was tentative.
    pub(super) fn step_down(&mut self, effects: &mut Effects<Self>) {
        let Some(lead) = self.lead.take() else { return };
        self.queue.clear();
        self.queue_bytes = 0;
        self.dropped = true;
        effects.disarm(super::message::Timer::Beat);
        effects.disarm(super::message::Timer::Sync);
        if lead.serves() {
            effects.mark(Note::Follows);
            effects.mark(Note::Counted("masters_deposed"));
        }
    }
}
