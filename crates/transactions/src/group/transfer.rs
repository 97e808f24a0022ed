//! A replica's state for its own restart, and what a peer may have of it: the replicated state where the log stands,
//! pulled chunk by chunk; never promises or votes (`specs/carousel.md` 8.23).

use super::{Message, Note, Record, Rules, Server, Timer, Turn};
use isochrone_core::transfer::OFFER_IDLE;
use isochrone_core::{Blob, Effects, Export, Fact, Malformed, ProcessId, Pull, Snapshot, wire};
use isochrone_replication::multipaxos::log::Log;
use isochrone_replication::order::Order;
use serde::{Deserialize, Serialize};

type PositionOf<R> = <Log<super::Entry<<R as Rules>::Entry>> as Order>::Position;

/// Chunk 0 of a view.
#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
struct Head<P> {
    view: u64,
    position: P,
    applied: u64,
    digest: u64,
}

/// The replicated state at one position: the head, then what the rules export.
pub(super) struct View<R: Rules> {
    head: Blob,
    state: R::View,
}

impl<R: Rules> Clone for View<R> {
    fn clone(&self) -> View<R> {
        View { head: self.head.clone(), state: self.state.clone() }
    }
}

impl<R: Rules> Export for View<R> {
    fn chunk(&self, index: u64) -> Option<Blob> {
        if index == 0 { Some(self.head.clone()) } else { self.state.chunk(index - 1) }
    }
}

/// What has come of a peer's state.
#[derive(Clone, Hash)]
pub(super) struct Staged<R: Rules> {
    head: Head<PositionOf<R>>,
    rules: R,
}

/// One chunk of a replica's own snapshot.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
enum Piece<R: isochrone_core::Wire> {
    Head { applied: u64, digest: u64 },
    Log(Blob),
    State(Blob),
    Own(R),
}

impl<R: Rules> Server<R> {
    pub(super) fn own_snapshot(&self) -> Snapshot {
        let head = Piece::Head { applied: self.applied, digest: self.digest };
        let log = isochrone_core::Process::snapshot(&self.log).into_iter().flatten().map(Piece::Log);
        let view = self.rules.export();
        let state = view.into_chunks().map(Piece::State);
        let own = self.rules.records().into_iter().map(Piece::Own);
        let pieces = std::iter::once(head).chain(log).chain(state).chain(own);
        Box::new(pieces.map(|piece: Piece<R::Record>| Blob::from(wire::encode(&piece))))
    }

    pub(super) fn restore_piece(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let piece: Piece<R::Record> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "snapshot chunk of a partition", cause: error.to_string() })?;
        match piece {
            Piece::Head { applied, digest } => (self.applied, self.digest) = (applied, digest),
            Piece::Log(chunk) => return isochrone_core::Process::restore(&mut self.log, chunk),
            Piece::State(chunk) => return self.rules.absorb(&chunk),
            Piece::Own(record) => self.rules.replay(record),
        }
        Ok(())
    }

    pub(super) fn on_want(
        &mut self,
        from: ProcessId,
        position: Option<u64>,
        index: u64,
        again: bool,
        effects: &mut Effects<Self>,
    ) {
        let position = match position.or(self.offers.newest().filter(|newest| self.log.serves(*newest))) {
            Some(position) => position,
            None => {
                let view = self.log.serial();
                let (applied, digest) = (self.applied, self.digest);
                let head = Head { view, position: self.log.position(), applied, digest };
                let head = Blob::from(wire::encode(&head));
                self.offers.offer(view, View { head, state: self.rules.export() });
                effects.mark(Note::Fact(Fact::Counted("snapshots_offered")));
                view
            }
        };
        self.log.hold(true);
        effects.arm(Timer::Offers, OFFER_IDLE);
        // Ahead: what was applied is decided, whatever this replica forgets.
        match self.offers.chunk(position, index) {
            // The answer to the first question may be on its way.
            Some(chunk) => effects.repeating_if(again, |effects| {
                effects.send_ahead(from, Message::Chunk { position, index, chunk });
            }),
            None => effects.send_ahead(from, Message::Gone { position }),
        }
    }

    /// A peer no longer holds what the log lacks. Where the one that is asked does not answer, it is the last that has said so
    /// that is asked instead.
    pub(super) fn pull_if_behind(&mut self, effects: &mut Effects<Self>) {
        let Some(giver) = self.log.behind() else { return };
        match self.taking.as_mut().map(|taking| taking.turn_to(giver)) {
            None => self.taking = Some(Pull::new(giver)),
            // The other's state is another.
            Some(true) => self.staged = None,
            Some(false) => return,
        }
        self.pull(effects);
    }

    /// Asks for what has not come, or gives the giver up.
    pub(super) fn pull(&mut self, effects: &mut Effects<Self>) {
        let behind = self.log.behind().is_some();
        let Some(taking) = &mut self.taking else { return };
        let Some(wanted) = taking.again().filter(|_| behind) else {
            // If it is still behind, the log will ask someone and be told so again.
            (self.taking, self.staged) = (None, None);
            return self.log.give_up();
        };
        let position = taking.position();
        let (giver, again) = (taking.giver(), taking.repeats());
        for index in wanted {
            effects.urgently(|effects| effects.send_ahead(giver, Message::Want { position, index, again }));
        }
        effects.arm(Timer::Pull, taking.patience(self.resend));
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
            if self.install(position, Some(effects)) {
                self.mark_applied(effects);
            }
            self.staged = None;
            self.advance(effects);
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
        let taken = match &mut self.staged {
            _ if index == 0 => wire::decode(chunk).map(|head| {
                let rules = R::open(self.identity, &self.setup.0);
                self.staged = Some(Box::new(Staged { head, rules }));
            }),
            Some(staged) => {
                return if staged.rules.absorb(chunk).is_err() {
                    self.staged = None
                };
            }
            None => Ok(()),
        };
        if taken.is_err() {
            self.staged = None;
        }
    }

    /// Makes the staged state this replica's own, where it is ahead.
    pub(super) fn install(&mut self, view: u64, effects: Option<&mut Effects<Self>>) -> bool {
        let Some(staged) = self.staged.take_if(|staged| staged.head.view == view) else { return false };
        let Staged { head, rules } = *staged;
        if !self.log.install(&head.position) {
            return false;
        }
        (self.applied, self.digest) = (head.applied, head.digest);
        let mut turn = effects.map(|effects| Turn {
            effects,
            appended: &mut self.appended,
            ballot: self.log.ballot(),
            leads: false,
            leader: self.log.leader(),
            configuration: self.log.configuration().clone(),
            changes: false,
        });
        self.rules.install(rules, turn.as_mut());
        true
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    let shapes = isochrone_core::shape::Shapes::default().with::<Piece<u64>>("piece");
    shapes.with::<Head<u64>>("head of a view").hold("group");
}
