//! Driving a move ([`isochrone_core::migration`]). Nothing of it is kept but in the two partitions: a driver that
//! dies leaves a move that anybody ends, because each step may be taken again and by several.

use super::Bug;
use isochrone_core::Ticket;
use isochrone_core::migration::{Cursor, Move, Piece, Ring, Step, Stretch, Told};
use isochrone_core::{Instant, PartitionId};

/// What drives the moves from one partition, as a value: it is told answers and says what is asked next.
#[derive(Clone, Hash, Debug)]
pub(super) struct Drive {
    from: PartitionId,
    /// What is still to go where; nothing where only the move under way is to be ended.
    pub wish: Option<(Stretch, PartitionId)>,
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
                (self.from, Step::Release { ring: at(self.from), wish: self.wish, done: *done })
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
            (Stage::Release { .. }, Told::Nothing) => (Then::Over, None),
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
        // A move that was under way before the wish counts where it is a part of it; what comes back from elsewhere
        // meanwhile is not moved again, or two wishes against each other would never end.
        if let Some((stretch, to)) = self.wish
            && stretch.covers(of.stretch)
            && to == of.to
        {
            self.moved.keys += keys;
            self.moved.bytes += bytes;
            self.moved.stretches += 1;
            self.wish = match of.stretch.last.checked_add(1) {
                Some(first) if first <= stretch.last => Some((Stretch { first, ..stretch }, to)),
                _ => None,
            };
        }
    }
}
