//! Driving a move ([`isochrone_core::migration`]). Nothing of it is kept but in the two partitions: a driver that
//! dies leaves a move that anybody ends, because each step may be taken again and by several.

use super::Bug;
use isochrone_core::Ticket;
use isochrone_core::migration::{Cursor, Move, Piece, Ring, Step, Stretch, Told};
use isochrone_core::{Instant, PartitionId};
use std::collections::VecDeque;

/// What drives the moves from one partition, as a value: it is told answers and says what is asked next.
#[derive(Clone, Hash, Debug)]
pub(super) struct Drive {
    from: PartitionId,
    /// What is still to go where, from the first place to the last, at least one stretch; nothing where only the move
    /// under way is to be ended.
    pub wish: Option<(VecDeque<Stretch>, PartitionId)>,
    /// Who waits for the end.
    pub ticket: Option<Ticket>,
    /// What was moved for this wish.
    pub moved: Moved,
    stage: Stage,
    /// The inner ticket that is open.
    pub open: Option<u64>,
    /// When it goes on, where nothing is open.
    pub due: Instant,
    /// Steps in a row that came to nothing.
    pub failures: u32,
}

/// How much was moved.
#[derive(Copy, Clone, Default, Eq, PartialEq, Hash, Debug)]
pub(super) struct Moved {
    pub keys: u64,
    pub bytes: u64,
    pub stretches: u64,
}

#[derive(Clone, Hash, Debug)]
enum Stage {
    /// The source is asked what is leaving; the move of this number is over.
    Release {
        done: u64,
    },
    Fetch {
        moving: Moving,
        from: Cursor,
    },
    Install {
        moving: Moving,
        piece: Piece,
    },
}

#[derive(Copy, Clone, Hash, Debug)]
struct Moving {
    of: Move,
    keys: u64,
    bytes: u64,
}

/// What comes of an answer.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(super) enum Then {
    /// The next step.
    Goes,
    /// The next step, after a while, since the target is the source of a move that is to be ended first.
    After(PartitionId),
    /// The same again, after a while.
    Again,
    /// All is done.
    Over,
    /// It cannot be done.
    Impossible,
}

impl Drive {
    pub fn new(from: PartitionId, now: Instant) -> Drive {
        Drive {
            from,
            wish: None,
            ticket: None,
            moved: Moved::default(),
            stage: Stage::Release { done: 0 },
            open: None,
            due: now,
            failures: 0,
        }
    }

    /// What is asked next, of which partition.
    pub fn step(&self, ring: Ring) -> (PartitionId, Step) {
        let at = |at| Ring { at, ..ring };
        match &self.stage {
            Stage::Release { done } => {
                let wish = self.wish.as_ref().and_then(|(stretches, to)| Some((*stretches.front()?, *to)));
                (self.from, Step::Release { ring: at(self.from), wish, done: *done })
            }
            Stage::Fetch { moving, from } => {
                (self.from, Step::Fetch { serial: moving.of.serial, from: *from })
            }
            Stage::Install { moving, piece } => {
                let to = moving.of.to;
                (to, Step::Install { ring: at(to), of: moving.of, piece: piece.clone() })
            }
        }
    }

    /// Begins again with what is leaving.
    pub fn restart(&mut self) {
        self.stage = Stage::Release { done: 0 };
    }

    /// An answer. The move that it says is complete comes back as well.
    pub fn told(&mut self, told: &Told, bug: Option<Bug>) -> (Then, Option<Move>) {
        self.failures = 0;
        match (&self.stage, told) {
            (Stage::Release { .. }, Told::Leaving { of, keys, bytes, piece }) => {
                let moving = Moving { of: *of, keys: *keys, bytes: *bytes };
                if Bug::EndBeforeInstalled.acts(bug) {
                    self.arrived(moving);
                    return (Then::Goes, Some(moving.of));
                }
                if Bug::DropChunk.acts(bug) && piece.next != piece.from {
                    self.stage = Stage::Fetch { moving, from: piece.next };
                    return (Then::Goes, None);
                }
                self.stage = Stage::Install { moving, piece: piece.clone() };
                (Then::Goes, None)
            }
            (Stage::Release { .. }, Told::Nothing) => (self.empty(), None),
            (Stage::Fetch { moving, .. }, Told::Piece(piece)) => {
                let mut piece = piece.clone();
                if Bug::DropChunk.acts(bug) {
                    piece.from = Cursor::default();
                }
                self.stage = Stage::Install { moving: *moving, piece };
                (Then::Goes, None)
            }
            // Somebody else has ended it.
            (Stage::Fetch { .. }, Told::Nothing) => {
                self.restart();
                (Then::Goes, None)
            }
            (Stage::Install { moving, .. }, Told::Expects(from)) => {
                self.stage = Stage::Fetch { moving: *moving, from: *from };
                (Then::Goes, None)
            }
            (Stage::Install { moving, .. }, Told::Installed) => {
                let moving = *moving;
                self.arrived(moving);
                (Then::Goes, Some(moving.of))
            }
            (Stage::Install { moving, .. }, Told::Busy) => {
                let to = moving.of.to;
                self.restart();
                (Then::After(to), None)
            }
            _ => (Then::Impossible, None),
        }
    }

    fn arrived(&mut self, Moving { of, keys, bytes }: Moving) {
        self.stage = Stage::Release { done: of.serial };
        // A move that was under way before the wish counts where it is a part of it, and may lie anywhere in it; what comes
        // back from elsewhere meanwhile is not moved again, or two wishes against each other would never end.
        let Some((stretches, _)) = self.wish.as_mut().filter(|(_, to)| *to == of.to) else { return };
        let Some(at) = stretches.iter().position(|stretch| stretch.covers(of.stretch)) else { return };
        let Some(stretch) = stretches.remove(at) else { return };
        self.moved.keys += keys;
        self.moved.bytes += bytes;
        self.moved.stretches += 1;
        let [whole, gone] = [stretch.range(), of.stretch.range()];
        for rest in [gone.end..whole.end, whole.start..gone.start].iter().filter(|rest| !rest.is_empty()) {
            stretches.insert(at, Stretch::of(rest));
        }
        if stretches.is_empty() {
            self.wish = None;
        }
    }

    /// The source has nothing of what it was asked for.
    fn empty(&mut self) -> Then {
        let Some((stretches, _)) = &mut self.wish else { return Then::Over };
        stretches.pop_front();
        if stretches.is_empty() { Then::Over } else { Then::Goes }
    }
}
