//! Executing what is decided, in order, each command once.

use super::Replica;
use super::speculation::{Ran, Settled};
use crate::curp::Bug;
use crate::message::{Entry, Note, Spans, Successors, Told, micros};
use crate::order::{Decided, Membership, Order, Ordered as _, Step};
use crate::service::Reply;
use isochrone_core::machine::Keys;
use isochrone_core::{CommandId, Effects, Fact, Instant, Seen, Span, StateMachine};

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Replica<S, O> {
    pub(super) fn take_steps(&mut self, effects: &mut Effects<Self>) {
        while let Some(step) = self.order.step(effects.now()) {
            match step {
                Step::Decided(decided) => {
                    let (position, digest) = (self.place(decided.position), decided.digest);
                    effects.mark(Note::Fact(Fact::Decided { position, digest }));
                    let stopped = self.execute(&decided, decided.answer);
                    self.mark_applied(effects);
                    if let Some(successors) = stopped {
                        self.begin_epoch(self.epoch + 1, successors);
                        return self.epoch_begun(effects);
                    }
                    self.decided_behind(Some(effects));
                }
                Step::Committed(entry, spans) => {
                    if self.service.reply == Reply::Commit {
                        self.answer_committed(&entry, spans);
                    }
                }
                Step::Local(entry) => self.answer_local(&entry, effects.now()),
                Step::Near(entry) => self.answer_near(&entry),
                Step::Dropped => self.undo(Some(effects)),
                Step::Tentative(tentative) => self.speculate(&tentative, Some(effects)),
            }
        }
    }

    /// As [`Replica::take_steps`], before the start: nobody is told anything.
    pub(super) fn execute_quietly(&mut self) {
        while let Some(step) = self.order.step(Instant::ZERO) {
            match step {
                Step::Decided(decided) => {
                    if let Some(successors) = self.execute(&decided, false) {
                        return self.begin_epoch(self.epoch + 1, successors);
                    }
                    self.decided_behind(None);
                }
                Step::Tentative(tentative) => self.speculate(&tentative, None),
                Step::Dropped => self.undo(None),
                Step::Committed(..) | Step::Local(_) | Step::Near(_) => {}
            }
        }
    }

    /// Tells how far the state has come.
    pub(super) fn mark_applied(&mut self, effects: &mut Effects<Self>) {
        let (position, digest) = (self.applied, O::TOTAL.then_some(self.digest));
        effects.mark(Note::Fact(Fact::Applied { position, digest }));
        let keys = self.machine.keys();
        if keys != self.told {
            self.told = keys;
            let Keys { held, expiring, expired } = keys.unwrap_or_default();
            let expired = expired.wrapping_sub(self.expired_before);
            effects.mark(Note::Fact(Fact::stands("keys", held as u64)));
            effects.mark(Note::Fact(Fact::stands("keys_with_deadline", expiring as u64)));
            effects.mark(Note::Fact(Fact::stands("keys_expired", expired)));
        }
    }

    /// Tells who the members are, where that is news.
    pub(super) fn mark_members(&mut self, effects: &mut Effects<Self>) {
        let members = match O::MEMBERSHIP {
            Membership::Own => self.order.members(),
            Membership::StopAndHandOver => &self.members,
        };
        let nodes = || members.iter().map(|member| member.process.node);
        if !nodes().eq(self.told_members.iter().copied()) {
            self.told_members = nodes().collect();
            let (partition, nodes) = (self.identity.process.partition, self.told_members.clone());
            effects.mark(Note::Fact(Fact::Members { partition, version: 0, nodes }));
        }
    }

    /// A number for a place of this epoch's order among those of all epochs.
    fn place(&self, position: u64) -> u64 {
        // Epochs lie far apart: no two places of small numbers meet.
        position.wrapping_add(u64::from(self.epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Brings nearer what is about to be executed.
    pub(super) fn prepare(&self, values: &[Entry<S::Command>]) {
        self.machine.prepare(values.iter().filter_map(|entry| match entry {
            Entry::Command { command, .. } | Entry::Read { command, .. } => Some(command),
            Entry::Expire { .. } | Entry::Stop { .. } | Entry::HandOver { .. } => None,
        }));
    }

    /// Executes; the members of the next epoch, if the order ends here.
    fn execute(&mut self, decided: &Decided<Entry<S::Command>>, tell: bool) -> Option<Successors> {
        let spans = decided.spans.map(measured);
        if !self.speculation.is_tentative() {
            self.prepare(&decided.values);
        }
        for entry in decided.values.iter() {
            match self.speculation.settle(entry) {
                Some(Settled { mut ran, told }) => {
                    self.execute_entry(entry, ran.as_mut(), tell && !told, spans);
                }
                None => {
                    entry.id().map(|id| self.speculation.waits_no_more(id));
                    self.execute_entry(entry, None, tell, spans);
                }
            }
            if let Some(successors) = entry.successors() {
                self.applied += 1;
                self.fold(decided.digest);
                return Some(successors);
            }
        }
        if !decided.values.is_empty() {
            self.applied += decided.values.len() as u64;
            self.fold(decided.digest);
        }
        None
    }

    /// Executes a value, of which `ran` came when it was tentative, and answers if `tell` says so.
    ///
    /// What came of it is lent: mostly there is nothing, and to move that from place to place is to wait for all
    /// that the command before has written.
    fn execute_entry(
        &mut self,
        entry: &Entry<S::Command>,
        ran: Option<&mut Ran<S::Reply>>,
        tell: bool,
        spans: Option<Spans>,
    ) {
        match entry {
            Entry::Command { id, below, command } => {
                let told = self.execute_command(*id, *below, command, ran);
                if tell {
                    self.answer(id.client, spans, id.sequence, told);
                }
            }
            Entry::Read { id, below, command } => {
                self.once.acknowledge(id.client, *below);
                self.once.end(*id);
                if tell {
                    let told = match ran {
                        Some(Ran::Looked(told)) => told.clone(),
                        _ => self.machine.read(command).map_or(Told::Touches, Told::Looked),
                    };
                    self.answer(id.client, spans, id.sequence, told);
                }
            }
            Entry::Expire { client, through } => {
                // It conflicts with everything.
                self.once.barrier(*client);
                if self.once.last(*client).is_none_or(|last| last <= *through) {
                    self.once.expire(*client);
                    self.clients.remove(client);
                    self.ways.remove(client);
                }
            }
            Entry::Stop { .. } | Entry::HandOver { .. } => {}
        }
    }

    /// Takes something into the digest of all that was executed; also what was left out, so that replicas
    /// whose exactly-once tables differ show it.
    fn fold(&mut self, number: u64) {
        self.digest = (self.digest.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Executes a command that is decided, unless it was when it was tentative.
    fn execute_command(
        &mut self,
        id: CommandId,
        below: u64,
        command: &S::Command,
        ran: Option<&mut Ran<S::Reply>>,
    ) -> Told<S::Reply> {
        self.once.acknowledge(id.client, below);
        let executed = matches!(&ran, Some(Ran::Executed(_)));
        let seen = self.once.look(id);
        assert!(
            !executed || matches!(seen, Seen::Fresh | Seen::Running),
            "{id:?} was executed while it was tentative, for the second time"
        );
        match seen {
            Seen::Done(reply) => {
                let told = Told::Done(reply.clone());
                self.fold(id.sequence);
                told
            }
            Seen::Forgotten if ran.is_none() && self.planted(Bug::ExecuteForgotten) => {
                self.speculation.passed_by();
                Told::Done(self.machine.apply(command))
            }
            Seen::Forgotten => {
                self.once.end(id);
                self.fold(id.sequence);
                Told::Forgotten
            }
            Seen::Fresh | Seen::Running => {
                let reply = match ran {
                    Some(Ran::Executed(reply)) => reply.clone(),
                    Some(ran) => panic!("{id:?} was passed over while it was tentative: {ran:?}"),
                    None => {
                        self.speculation.passed_by();
                        self.machine.apply(command)
                    }
                };
                self.once.finish(id, reply.clone());
                Told::Done(reply)
            }
        }
    }

    /// Tells of a blind write that its place is certain, and so is its reply.
    fn answer_committed(&mut self, entry: &Entry<S::Command>, spans: Option<[Span; 4]>) {
        if let Entry::Command { id, command, .. } = entry
            && let Some(reply) = S::blind(command)
        {
            self.answer(id.client, spans.map(measured), id.sequence, Told::Placed(reply));
        }
    }

    /// Reads for a client of this replica, now.
    fn answer_local(&mut self, entry: &Entry<S::Command>, now: Instant) {
        if let Entry::Read { id, command, .. } = entry {
            self.once.end(*id);
            if let Some(told) = self.read_now(*id, command, now) {
                self.answer(id.client, None, id.sequence, told);
            }
        }
    }

    /// Reads for a client here, where nothing is tentative, although this replica does not lead.
    fn answer_near(&mut self, entry: &Entry<S::Command>) {
        debug_assert!(!self.speculation.is_tentative(), "who does not lead speculates on nothing");
        if let Entry::Read { id, command, .. } = entry {
            let told = self.machine.read(command).map_or(Told::Touches, Told::Near);
            self.answer(id.client, None, id.sequence, told);
        }
    }
}

/// Execution takes no time of this clock: an input is handled at one instant.
fn measured([queue, journal, quorum, order]: [Span; 4]) -> Spans {
    [micros(queue), micros(journal), micros(quorum), micros(order), 0]
}
