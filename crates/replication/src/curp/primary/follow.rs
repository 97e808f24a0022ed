//! A server that follows: it keeps what the master sends, durably, before it says so, and nothing of a master that
//! was given up (I9).

use super::Mutation;
use super::message::{Batch, Beat, Message, Note, Record, Run};
use super::order::Order;
use super::unified::Lacking;
use crate::order::{Ordered, Reign};
use isochrone_core::{Effects, ProcessId, Slot, Span};

impl<V: Ordered> Order<V> {
    /// Whether something of this master is taken; what is later than all before it is promised.
    fn heeds(&mut self, from: ProcessId, epoch: u64, effects: &mut Effects<Self>) -> bool {
        if epoch < self.promised {
            // Ahead: it may only make an old master stop.
            let fenced = Message::Fenced { epoch: self.promised };
            effects.urgently(|effects| effects.send_ahead(from, fenced));
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
        self.own.promise(epoch);
        effects.record(Record::Promised { epoch });
    }

    pub(super) fn on_beat(&mut self, from: ProcessId, beat: Beat, effects: &mut Effects<Self>) {
        let Beat { epoch, full, acked, sent, list, reads } = beat;
        if !self.heeds(from, epoch, effects) {
            return;
        }
        let terms = self.parameters().lease_terms();
        let bound = if self.parameters().lease { terms.length() } else { Span::ZERO };
        // Ahead: a restart forgets the grant, and waits for as long as it may hold.
        self.granted = self.granted.max(effects.now() + bound);
        self.near.heard(Reign(epoch, list), reads, self.knobs.0.drift_ppm);
        let Reign(_, list) = self.near.reign();
        let (life, at) = (self.near.life(), effects.now());
        // Ahead: a lease to read that it gave up it does not have in another life either.
        let heard = Message::Heard { epoch, sent, bound, list, life, at };
        effects.urgently(|effects| effects.send_ahead(from, heard));
        if self.adopted != epoch {
            let (full, ends) = (self.book.full(), Some(self.book.end()));
            // Held behind the promise: from here on no earlier master gets anything past this server.
            let want = Message::Want { epoch, from: full, ends };
            return effects.urgently(|effects| effects.send(from, want));
        }
        self.learn_full(full, effects);
        let end = self.book.end();
        // Also with nothing in its log: until the master knows that it follows it is sent nothing, and what said so may
        // have been lost, or of an earlier list.
        if acked < end || end == Slot::ZERO {
            effects.urgently(|effects| effects.send(from, Message::Acked { epoch, upto: end }));
        }
    }

    pub(super) fn on_replicate(&mut self, from: ProcessId, run: Run<V>, effects: &mut Effects<Self>) {
        let (epoch, at, end) = (run.epoch, run.at, self.book.end());
        if epoch < self.promised && self.parameters().mutated(Mutation::AcceptOldEpochs) {
            return effects.send(from, Message::Acked { epoch, upto: run.end() });
        }
        if !self.heeds(from, epoch, effects) {
            return;
        }
        if self.adopted != epoch {
            let known = self.book.full();
            if !run.adopts || at > known || run.end() < known {
                let want = Message::Want { epoch, from: known, ends: Some(end) };
                return effects.urgently(|effects| effects.send(from, want));
            }
            let batches = run.batches[known.since(at) as usize..].to_vec();
            self.adopt(epoch, known, batches.clone());
            effects.record(Record::Adopted { epoch, at: known, batches });
            self.learn_full(run.full, effects);
        } else {
            if at > self.own.reach().map_or(end, |reach| reach.max(end)) {
                let want = Message::Want { epoch, from: end, ends: None };
                return effects.urgently(|effects| effects.send(from, want));
            }
            let none = Lacking::new();
            let missing = self.missing(&run, &none);
            let found = if at <= end && missing.is_empty() { self.resolve(&run, &none) } else { None };
            let Some(batches) = found else { return self.wait_for(from, run, &missing, effects) };
            self.take_run(from, Run { batches, names: Vec::new(), ..run }, effects);
            self.take_waiting(from, effects);
        }
        self.acknowledge(from, epoch, effects);
    }

    /// Takes in a run of the log that is followed, which begins at its end or before it, and names nothing.
    pub(super) fn take_run(&mut self, from: ProcessId, run: Run<V>, effects: &mut Effects<Self>) {
        let Run { epoch, at, mut batches, full, urgent, .. } = run;
        let end = self.book.end();
        let fresh = batches.len().min(end.since(at) as usize);
        batches.drain(..fresh);
        if batches.is_empty() {
            self.learn_full(full, effects);
            if urgent {
                // What came before may be waiting for company.
                effects.record(Record::Full { full: self.book.full() });
            }
            return;
        }
        self.take_in(end, batches.clone());
        let full = full.min(self.book.end()).max(self.book.full());
        drop(self.book.advance(full));
        let record = Record::Appended { at: end, batches, full };
        if urgent {
            effects.record(record)
        } else {
            effects.record_soon(record)
        }
        let suspects = self.own.turn(epoch, self.book.end(), full);
        if !suspects.is_empty() {
            effects.mark(Note::Added("requests_suspected", suspects.len()));
            effects.send(from, Message::Collected { master: epoch, round: 0, suspects });
        }
    }

    /// Says how much of the master's log is here.
    pub(super) fn acknowledge(&mut self, master: ProcessId, epoch: u64, effects: &mut Effects<Self>) {
        let upto = self.book.end();
        match self.parameters().mutated(Mutation::AcknowledgeBeforeDurable) {
            true => effects.send_ahead(master, Message::Acked { epoch, upto }),
            false => effects.urgently(|effects| effects.send(master, Message::Acked { epoch, upto })),
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
        let end = self.book.end();
        assert!(at <= end, "the log ends at {end}, and what follows begins at {at}");
        let held = end.since(at) as usize;
        for batch in batches.into_iter().skip(held) {
            if self.parameters().unified {
                self.own.moved(self.adopted, self.process.keyspace, &batch);
            }
            self.book.append(batch);
        }
    }

    /// The log is that of a master from this place on, which is not before what is final.
    pub(super) fn adopt(&mut self, epoch: u64, at: Slot, batches: Vec<Batch<V>>) {
        self.book.truncate(at.max(self.book.full()));
        self.near.forget();
        self.own.forget();
        self.adopted = epoch;
        self.take_in(at, batches);
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
        // What came into the log in this turn stays there, and counts from now on as something that is on the disk.
        self.write_down(effects);
        let Some(lead) = self.lead.take() else { return };
        self.queue.clear();
        self.queue_bytes = 0;
        self.dropped = true;
        effects.disarm(super::message::Timer::Beat);
        effects.disarm(super::message::Timer::Sync);
        effects.mark(Note::Stands("unsynced_commands", 0));
        effects.mark(Note::Stands("unsynced_age_milliseconds", 0));
        effects.mark(Note::Stands("copies_silent", 0));
        if lead.serves() {
            effects.mark(Note::Follows);
            effects.mark(Note::Counted("masters_deposed"));
        }
    }
}
