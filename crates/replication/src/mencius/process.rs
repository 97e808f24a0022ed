//! The order as a process: how its inputs reach the parts of the protocol.

use super::Parameters;
use super::contact::Contact;
use super::message::{Message, Note, Record, Timer};
use super::order::Order;
use crate::order::{Ordered, Setup};
use crate::request::Refusal;
use isochrone_core::{Blob, Effects, Identity, Malformed, Process, ProcessId, Snapshot, Ticket};

impl<V: Ordered> Process for Order<V> {
    type Setup = Setup<Parameters>;
    type Message = Message<V>;
    type Record = Record<V>;
    type Request = ();
    type Outcome = Result<(), Refusal>;
    type Timer = Timer;
    type Mark = Note;

    fn open(identity: Identity, setup: &Setup<Parameters>) -> Order<V> {
        Order::new(identity, setup)
    }

    fn restore(&mut self, chunk: Blob) -> Result<(), Malformed> {
        self.restore_image(&chunk)
    }

    fn replay(&mut self, record: Record<V>) {
        self.replay_record(record);
        self.now_durable(self.next);
    }

    fn start(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() {
            return;
        }
        let now = effects.now();
        self.contact = Contact::new(self.members.len(), self.parameters.patience, now);
        self.seen = self.decided();
        self.restart(effects);
        self.finish(effects);
        if self.members.len() > 1 {
            effects.arm(Timer::Beat, self.parameters.heartbeat);
            self.beat(effects);
        } else {
            self.tend_revocations(effects);
        }
    }

    fn receive(&mut self, from: ProcessId, message: Message<V>, effects: &mut Effects<Self>) {
        let (Some(sender), true) = (self.rank(from), self.is_member()) else { return };
        if sender != self.me {
            self.contact.heard(sender, effects.now());
        }
        match message {
            Message::Suggest { turn, values, skipped, decided } => {
                self.on_suggest(sender, turn, values, skipped, decided, effects);
            }
            Message::Accepted { lane, ballot, turns, skipped } => {
                self.on_accepted(sender, usize::from(lane), ballot, turns, skipped, effects);
            }
            Message::Commit { decided } => self.confirm(sender, decided),
            Message::Skip { skipped } => self.on_skip(sender, skipped, effects.now()),
            Message::Beat { skipped, decided, seen, executed, barred } => {
                self.on_skip(sender, skipped, effects.now());
                self.confirm(sender, decided);
                self.on_beat(sender, seen, executed, barred, effects);
            }
            Message::Prepare { lane, ballot, turns } => {
                self.on_prepare(sender, usize::from(lane), ballot, turns, effects);
            }
            Message::Promised { lane, ballot, held } => {
                self.on_promised(sender, usize::from(lane), ballot, held, effects);
            }
            Message::Accept { lane, ballot, turns, runs } => {
                self.on_accept(sender, usize::from(lane), ballot, turns, runs, effects);
            }
            Message::Rejected { lane, promised, barred, decided } => {
                self.on_rejected(sender, usize::from(lane), promised, barred, decided, effects);
            }
            // What it lacks may be on its way.
            Message::Fetch { from: first } => {
                effects.repeating(|effects| self.on_fetch(from, first, effects));
            }
            Message::Learned { runs, executed } => self.on_learned(sender, runs, executed, effects),
            Message::Trimmed { executed } => self.on_trimmed(sender, executed),
        }
        self.look_for_gaps(effects);
        self.finish(effects);
    }

    fn request(&mut self, ticket: Ticket, (): (), effects: &mut Effects<Self>) {
        effects.complete_ahead(ticket, Ok(()));
    }

    fn expire(&mut self, timer: Timer, effects: &mut Effects<Self>) {
        match timer {
            Timer::Beat => self.beat(effects),
            Timer::Skip => {
                self.skipping = false;
                if self.told < self.next {
                    self.tell_skips(effects);
                }
            }
            Timer::Repair => self.repair(effects),
        }
        self.finish(effects);
    }

    fn settle(&mut self, effects: &mut Effects<Self>) {
        if self.is_member() {
            self.flush(effects);
            self.record_decided(effects);
        }
    }

    fn snapshot(&self) -> Option<Snapshot> {
        Some(self.own_snapshot())
    }

    fn check(&self) {
        assert!(self.base <= self.delivered, "what was not taken out was trimmed");
        if self.parameters.mutation.is_some() {
            return;
        }
        assert!(self.delivered <= self.decided(), "{} taken out beyond {}", self.delivered, self.decided());
        assert!(self.skip_from <= self.next, "a skip of turns that may be used");
        if self.is_member() {
            assert!(self.lanes[self.me].end() <= self.next, "an own turn that others filled may be used");
        }
        assert!(self.durable <= self.next, "turns durably used that were not");
        for (lane, held) in self.lanes.iter().enumerate() {
            assert!(held.base() == self.deal.turn(lane, self.base), "lanes are trimmed alike");
        }
        assert!(self.flights.iter().is_sorted_by_key(|flight| flight.turn), "flights out of order");
        assert!(self.flights.iter().all(|flight| flight.turn < self.next), "a flight of a turn not taken");
        let open = self.flights.iter().filter(|flight| flight.quorum.is_none());
        assert_eq!(open.count() as u64, self.flying, "flights miscounted");
    }
}
