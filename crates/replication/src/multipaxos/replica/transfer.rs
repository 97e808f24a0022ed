//! Giving a peer the applied state, and taking it in: by messages, chunk by chunk, pulled.
//!
//! A view holds state, exactly-once table, members and digest at one position; never promises, votes or
//! leases.

use super::super::log::Configuration;
use super::super::message::{Message, Record, Timer};
use super::super::{Mutation, Note};
use super::Replica;
use isochrone_core::{
    Arrived, Blob, Effects, Export, Fact, Malformed, OnceTable, ProcessId, Slot, Span, StateMachine,
    Transfer, wire,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How long views stay on offer after the last question.
const OFFER_IDLE: Span = Span::from_secs(60);
/// Questions without an answer after which a giver is given up.
const PULLS_MAX: u32 = 6;

/// Chunk 0 of a view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) position: Slot,
    pub(super) digest: u64,
    configuration: Arc<Configuration>,
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

/// A transfer that is coming in.
#[derive(Clone, Hash, Debug)]
pub(super) struct Taking {
    giver: ProcessId,
    transfer: Transfer,
    next: u64,
    pulls: u32,
}

/// What has come of a peer's state.
#[derive(Clone, Hash)]
pub(super) struct Staged<S: StateMachine> {
    machine: S,
    once: OnceTable<S::Reply>,
    position: Slot,
    digest: u64,
    configuration: Arc<Configuration>,
    once_chunks: u64,
}

impl<S: StateMachine> Replica<S> {
    pub(super) fn on_want(
        &mut self,
        from: ProcessId,
        position: Option<u64>,
        index: u64,
        effects: &mut Effects<Self>,
    ) {
        // A view from which the log still goes on serves as well as a new one.
        let usable = self.offers.newest().filter(|newest| *newest >= self.log.base().0 && *newest > 0);
        let position = match position.or(usable) {
            Some(position) => position,
            None => {
                self.offers.offer(self.applied.0, self.view());
                effects.mark(Note::Fact(Fact::Counted("snapshots_offered")));
                self.applied.0
            }
        };
        effects.arm(Timer::Offers, OFFER_IDLE);
        // Ahead: what was executed is decided, whatever this replica forgets.
        match self.offers.chunk(position, index) {
            Some(chunk) => effects.send_ahead(from, Message::Chunk { position, index, chunk }),
            None => effects.send_ahead(from, Message::Gone { position }),
        }
    }

    fn view(&self) -> View<S> {
        let forgets = self.parameters.mutated(Mutation::DropSession);
        let once = if forgets { Vec::new() } else { self.once.export() };
        let head = Head {
            position: self.applied,
            digest: self.digest,
            configuration: self.log.configuration().clone(),
            once_chunks: once.len() as u64,
        };
        let first = std::iter::once(Blob::from(wire::encode(&head))).chain(once).collect();
        View { first, state: self.machine.export() }
    }

    /// The log has been told that a peer no longer holds what it lacks.
    pub(super) fn pull_if_behind(&mut self, effects: &mut Effects<Self>) {
        if self.taking.is_some() {
            return;
        }
        if let Some(giver) = self.log.behind() {
            self.taking = Some(Taking { giver, transfer: Transfer::default(), next: 0, pulls: 0 });
            self.pull(effects);
        }
    }

    /// The timer of pulling: asks for what has not come, or gives the giver up.
    pub(super) fn pull(&mut self, effects: &mut Effects<Self>) {
        let Some(taking) = &mut self.taking else { return };
        taking.pulls += 1;
        if taking.pulls > PULLS_MAX || self.log.leads() {
            // If it is still behind, the log will ask someone and be told so again.
            (self.taking, self.staged) = (None, None);
            self.log.install(Slot::ZERO, self.log.configuration().clone());
            return;
        }
        let position = taking.transfer.position();
        for index in taking.transfer.wanted() {
            effects.send_ahead(taking.giver, Message::Want { position, index });
        }
        effects.arm(Timer::Pull, self.parameters.resend);
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
        if taking.giver != from {
            return;
        }
        let before = taking.transfer.wanted().last();
        let (chunks, complete) = match taking.transfer.accept(position, index, chunk) {
            Arrived::Ignored => return,
            Arrived::Early => (Vec::new(), false),
            Arrived::Chunks(chunks) => (chunks, false),
            Arrived::Complete(chunks) => (chunks, true),
        };
        taking.pulls = 0;
        let first = taking.next;
        taking.next += chunks.len() as u64;
        if !complete {
            // The window has moved: ask for what has come into it.
            for index in taking.transfer.wanted().filter(|index| before.is_none_or(|before| *index > before))
            {
                effects.send_ahead(from, Message::Want { position: Some(position), index });
            }
        }
        for (index, chunk) in (first..).zip(chunks) {
            self.stage(index, &chunk);
            effects.record_lazily(Record::Chunk { index, chunk });
        }
        if complete {
            self.taking = None;
            effects.disarm(Timer::Pull);
            let position = Slot(position);
            if self.staged.as_ref().is_some_and(|staged| staged.position == position) {
                effects.record(Record::Installed { position });
                effects.mark(Note::Fact(Fact::Counted("snapshots_installed")));
            }
            let installed = self.install(position);
            self.staged = None;
            if installed {
                let (position, digest) = (self.applied.0, self.digest);
                effects.mark(Note::Fact(Fact::Applied { position, digest }));
            }
        }
    }

    pub(super) fn on_gone(&mut self, from: ProcessId, position: u64, effects: &mut Effects<Self>) {
        if let Some(taking) = &mut self.taking
            && taking.giver == from
            && taking.transfer.position() == Some(position)
        {
            (taking.transfer, taking.next) = (Transfer::default(), 0);
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
            let head: Head = wire::decode(chunk)
                .map_err(|error| Malformed { what: "head of a peer's state", cause: error.to_string() })?;
            self.staged = Some(Box::new(Staged {
                machine: self.empty.clone(),
                once: OnceTable::default(),
                position: head.position,
                digest: head.digest,
                configuration: head.configuration,
                once_chunks: head.once_chunks,
            }));
            return Ok(());
        }
        match &mut self.staged {
            Some(staged) if index <= staged.once_chunks => staged.once.absorb(chunk),
            Some(staged) => staged.machine.absorb(chunk),
            None => Ok(()),
        }
    }

    /// Makes the staged state this replica's own, where it is ahead.
    pub(super) fn install(&mut self, position: Slot) -> bool {
        let Some(staged) = self.staged.take_if(|staged| staged.position == position) else { return false };
        let ahead = position > self.applied;
        self.log.install(position, staged.configuration);
        if ahead {
            self.machine = staged.machine;
            self.once = staged.once;
            self.applied = position;
            self.digest = staged.digest;
        }
        ahead
    }
}
