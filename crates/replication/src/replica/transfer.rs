//! Giving a peer the applied state, and taking it in: by messages, chunk by chunk, pulled.
//!
//! A view holds state, exactly-once table, members and digest where an order stands; never promises, votes
//! or leases.

use super::Replica;
use crate::family::Tuning as _;
use crate::message::{Entry, Message, Note, Record, Successors, Timer};
use crate::order::{Member, Order};
use isochrone_core::transfer::OFFER_IDLE;
use isochrone_core::{
    Blob, Effects, Export, Fact, Malformed, OnceTable, ProcessId, Pull, StateMachine, wire,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Chunk 0 of a view. Behind it stands a 1 where the first of the members has led first: it is in journals, too, where earlier
/// versions have written it without.
#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
struct Head<P> {
    /// Which view this is, among those of its giver.
    view: u64,
    epoch: u32,
    members: Arc<[Member]>,
    position: P,
    applied: u64,
    digest: u64,
    once_chunks: u64,
}

/// The applied state at one position: the head, then the exactly-once table, then the state machine.
#[derive(Clone)]
pub(super) struct View<S: StateMachine> {
    first: Arc<[Blob]>,
    state: S::View,
}

impl<S: StateMachine> Export for View<S> {
    fn chunk(&self, index: u64) -> Option<Blob> {
        match usize::try_from(index).ok().and_then(|index| self.first.get(index)) {
            Some(chunk) => Some(chunk.clone()),
            None => self.state.chunk(index - self.first.len() as u64),
        }
    }
}

/// What has come of a peer's state.
#[derive(Clone, Hash)]
pub(super) struct Staged<S: StateMachine, P> {
    head: Head<P>,
    first_leads: bool,
    machine: S,
    once: OnceTable<S::Reply>,
}

/// Behind the head of a view whose first member has led first.
const FIRST_LEADS: u8 = 1;

/// The number of a view: later epochs behind earlier ones.
fn numbered(epoch: u32, serial: u64) -> u64 {
    u64::from(epoch) << 44 | serial
}

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Replica<S, O> {
    pub(super) fn on_want(
        &mut self,
        from: ProcessId,
        position: Option<u64>,
        index: u64,
        again: bool,
        effects: &mut Effects<Self>,
    ) {
        // A view from which the order still goes on serves as well as a new one.
        let serves =
            |view: u64| view > numbered(self.epoch, 0) && self.order.serves(view - numbered(self.epoch, 0));
        let position = match position.or(self.offers.newest().filter(|newest| serves(*newest))) {
            Some(position) => position,
            None => {
                let view = numbered(self.epoch, self.order.serial());
                self.offers.offer(view, self.view(view));
                effects.mark(Note::Fact(Fact::Counted("snapshots_offered")));
                view
            }
        };
        self.order.hold(true);
        effects.arm(Timer::Offers, OFFER_IDLE);
        match self.offers.chunk(position, index) {
            // The answer to the first question may be on its way.
            Some(chunk) => effects.repeating_if(again, |effects| {
                Self::send_executed(from, Message::Chunk { position, index, chunk }, effects);
            }),
            None => effects.send_ahead(from, Message::Gone { position }),
        }
    }

    /// Says what follows from what was executed here: ahead where that is decided whatever this replica forgets, and behind
    /// its records where one of them may be all that says so.
    pub(super) fn send_executed(
        to: ProcessId,
        message: Message<S::Command, S::Reply, O::Message>,
        effects: &mut Effects<Self>,
    ) {
        if O::AHEAD {
            effects.send_ahead(to, message);
        } else {
            effects.send(to, message);
        }
    }

    pub(super) fn view(&self, view: u64) -> View<S> {
        let once = if self.knobs.0.drops_sessions() { Vec::new() } else { self.once.export() };
        let head = Head {
            view,
            epoch: self.epoch,
            members: self.members.clone(),
            position: self.order.position(),
            applied: self.applied,
            digest: self.digest,
            once_chunks: once.len() as u64,
        };
        let mut bytes = wire::encode(&head);
        bytes.extend(self.first_leads.then_some(FIRST_LEADS));
        let first = std::iter::once(Blob::from(bytes)).chain(once).collect();
        View { first, state: self.decided_machine().export() }
    }

    /// A peer no longer holds what the order lacks, or is in a later epoch. Where the one that is asked does not answer, it is
    /// the last that has shown so that is asked instead.
    pub(super) fn pull_if_behind(&mut self, effects: &mut Effects<Self>) {
        let Some(giver) = self.later.or_else(|| self.order.behind()) else { return };
        match self.taking.as_mut().map(|taking| taking.turn_to(giver)) {
            None => self.taking = Some(Pull::new(giver)),
            // The other's state is another.
            Some(true) => self.staged = None,
            Some(false) => return,
        }
        self.pull(effects);
    }

    /// The timer of pulling: asks for what has not come, or gives the giver up.
    pub(super) fn pull(&mut self, effects: &mut Effects<Self>) {
        let behind = self.later.is_some() || self.order.behind().is_some();
        let Some(taking) = &mut self.taking else { return };
        let Some(wanted) = taking.again().filter(|_| behind) else {
            // If it is still behind, the order will ask someone and be told so again.
            (self.taking, self.staged, self.later) = (None, None, None);
            self.order.give_up();
            return;
        };
        let position = taking.position();
        let (giver, again) = (taking.giver(), taking.repeats());
        for index in wanted {
            effects.urgently(|effects| effects.send_ahead(giver, Message::Want { position, index, again }));
        }
        effects.arm(Timer::Pull, taking.patience(self.service.resend));
    }

    pub(super) fn on_chunk(
        &mut self,
        from: ProcessId,
        position: u64,
        index: u64,
        chunk: Option<Blob>,
        effects: &mut Effects<Self>,
    ) {
        let Some(taking) = &mut self.taking else { return };
        let Some(pulled) = taking.accept(from, position, index, chunk) else { return };
        for index in pulled.wanted {
            let want = Message::Want { position: Some(position), index, again: false };
            effects.urgently(|effects| effects.send_ahead(from, want));
        }
        for (index, chunk) in pulled.chunks {
            self.stage(index, &chunk);
            effects.record_lazily(Record::Chunk { index, chunk });
        }
        if pulled.complete {
            self.taking = None;
            effects.disarm(Timer::Pull);
            if self.staged.as_ref().is_some_and(|staged| staged.head.view == position) {
                effects.record(Record::Installed { position });
                effects.mark(Note::Fact(Fact::Counted("snapshots_installed")));
            }
            let epoch = self.epoch;
            if self.install(position) {
                self.mark_applied(effects);
            }
            self.staged = None;
            self.later = None;
            if self.epoch != epoch {
                self.epoch_begun(effects);
            } else if self.is_active() {
                self.take_steps(effects);
            }
        }
    }

    pub(super) fn on_gone(&mut self, from: ProcessId, position: u64, effects: &mut Effects<Self>) {
        if self.taking.as_mut().is_some_and(|taking| taking.gone(from, position)) {
            self.staged = None;
            self.pull(effects);
        }
    }

    /// Takes in one chunk of a peer's state; a chunk that makes no sense ends the transfer.
    pub(super) fn stage(&mut self, index: u64, chunk: &[u8]) {
        if self.absorb_staged(index, chunk).is_err() {
            self.staged = None;
        }
    }

    fn absorb_staged(&mut self, index: u64, chunk: &[u8]) -> Result<(), Malformed> {
        if index == 0 {
            let malformed = |cause| Malformed { what: "head of a peer's state", cause };
            let (head, rest): (Head<O::Position>, _) =
                wire::decode_prefix(chunk).map_err(|error| malformed(error.to_string()))?;
            let first_leads = match rest {
                [] => false,
                [FIRST_LEADS] => true,
                _ => return Err(malformed("more stands behind it".to_owned())),
            };
            let (machine, once) = (self.empty.clone(), Self::empty_once(&self.service));
            self.staged = Some(Box::new(Staged { head, first_leads, machine, once }));
            return Ok(());
        }
        match &mut self.staged {
            Some(staged) if index <= staged.head.once_chunks => staged.once.absorb(chunk),
            Some(staged) => staged.machine.absorb(chunk),
            None => Ok(()),
        }
    }

    /// Makes the staged state this replica's own, where it is ahead.
    pub(super) fn install(&mut self, view: u64) -> bool {
        let Some(staged) = self.staged.take_if(|staged| staged.head.view == view) else { return false };
        let Staged { head, first_leads, machine, once } = *staged;
        if head.epoch < self.epoch {
            self.order.give_up();
            return false;
        }
        let later = head.epoch > self.epoch;
        if later {
            self.begin_epoch(head.epoch, Successors { members: head.members, first_leads });
        }
        // At the beginning of an epoch no order has anything to say against it.
        let ahead = self.order.install(&head.position) || later;
        if ahead {
            // The other machine begins with none.
            self.expired_before = self.expired_before.wrapping_sub(self.expired());
            (self.machine, self.once) = (machine, once);
            self.speculation.forget();
            (self.applied, self.digest) = (head.applied, head.digest);
        }
        ahead
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Head<u64>>("replica-head");
}
