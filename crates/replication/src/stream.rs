//! What a client says to one replica is run in the order in which it was said: a replica that has missed some of it takes
//! nothing that was said behind, and has it all said anew.
//!
//! Links keep order and lose what was on them when a connection breaks, and a replica that restarts has lost what it had not
//! placed. Asked for again later, that would be run behind what was said after it: of a pipeline that sets a key twice,
//! the first value would stand. So messages with commands are numbered within a *turn*. A turn begins with all that
//! the client has outstanding; whoever hears a number too high in it asks for the next turn.
//!
//! What is said behind something that was lost crosses the line for nothing. So no more than a *window* of bytes is said and not
//! answered at a time: it is halved where something was missed, and grows by what is answered. Else a queue that has once
//! overflowed would be kept full by what nobody takes.

use crate::order::Reign;
use isochrone_core::{ClientId, ProcessId, Wire, wire};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Where a message stands in what a client says to a replica.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Said {
    /// Nowhere: it is taken as it comes.
    Freely,
    /// It was said in this turn, after so many others.
    Next {
        /// The turn.
        turn: u32,
        /// How many were said before it.
        number: u64,
    },
    /// Its commands were said before, in this turn or an earlier one, and are not answered.
    Again {
        /// The turn.
        turn: u32,
        /// How many were said in it before.
        number: u64,
    },
}

/// How far a client is.
#[derive(Copy, Clone, Hash, Debug)]
pub(crate) struct Saying {
    turn: u32,
    said: u64,
    /// Bytes that were said in this turn and are not answered.
    under_way: usize,
    /// How many may be.
    window: usize,
}

/// The least and the most that may be under way, in bytes: what is small is hardly held back, and a node's queue towards
/// another has room for the most (`peer_queue`), which fills a line of 100 MB/s around the world.
const WINDOWS: (usize, usize) = (256 << 10, 32 << 20);

/// A command's size in bytes, and the turn in which it was said last.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Load {
    size: usize,
    turn: Option<u32>,
}

impl Load {
    pub(crate) fn of(command: &impl Wire) -> Load {
        Load { size: wire::encoded_size(command), turn: None }
    }

    pub(crate) fn size(self) -> usize {
        self.size
    }
}

impl Default for Saying {
    fn default() -> Saying {
        Saying { turn: 0, said: 0, under_way: 0, window: WINDOWS.1 }
    }
}

impl Saying {
    /// Begins a turn: all that is outstanding is to be said next, or another replica is spoken to.
    pub(crate) fn begin(&mut self) {
        *self = Saying { turn: self.turn + 1, said: 0, under_way: 0, window: self.window };
    }

    /// Something was missed in this turn: the next begins, with less at a time.
    pub(crate) fn missed(&mut self) {
        self.window = (self.under_way / 2).clamp(WINDOWS.0, WINDOWS.1);
        self.begin();
    }

    /// Whether there is room for these, one after the other; what is outstanding no more needs none.
    pub(crate) fn room(&self) -> impl FnMut(Option<Load>) -> bool + use<> {
        let Saying { turn, mut under_way, window, .. } = *self;
        move |load| {
            let Some(load) = load.filter(|load| load.turn != Some(turn)) else { return true };
            let room = under_way == 0 || under_way + load.size <= window;
            under_way += load.size;
            room
        }
    }

    /// It is said in this turn.
    pub(crate) fn take(&mut self, load: &mut Load) {
        if !self.has_said(*load) {
            load.turn = Some(self.turn);
            self.under_way += load.size;
        }
    }

    /// Whether it was said in this turn.
    pub(crate) fn has_said(&self, load: Load) -> bool {
        load.turn == Some(self.turn)
    }

    /// It is outstanding no more, or has its place.
    pub(crate) fn answered(&mut self, load: Load) {
        if self.has_said(load) {
            self.under_way -= load.size;
            self.window = (self.window + load.size).min(WINDOWS.1);
        }
    }

    /// It came, and was not taken: asked for once more it repeats nothing that is on its way.
    pub(crate) fn refused(&mut self, load: &mut Load) {
        if self.has_said(*load) {
            // The window grows by what is taken only.
            self.under_way -= load.size;
        }
        load.turn = None;
    }

    /// Whether so much was said in this turn and is not answered that it may be long on its way, and would be once more elsewhere.
    pub(crate) fn is_much(&self) -> bool {
        self.under_way > WINDOWS.0
    }

    /// The place of the next message.
    pub(crate) fn next(&mut self) -> Said {
        let said = Said::Next { turn: self.turn, number: self.said };
        self.said += 1;
        said
    }

    /// The place of one that says again what was said.
    pub(crate) fn again(&self) -> Said {
        Said::Again { turn: self.turn, number: self.said }
    }

    /// Whether this turn is the one that is said now.
    pub(crate) fn is_in(&self, turn: u32) -> bool {
        self.turn == turn
    }
}

/// In which order a replica takes commands: that of an epoch, under a reign. In another one what it has heard may be void.
pub(crate) type Under = (u32, Reign);

/// How far a replica has heard each client in its newest life.
#[derive(Clone, Default, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Hearing(BTreeMap<ProcessId, Heard>);

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
struct Heard {
    incarnation: u32,
    turn: u32,
    next: u64,
    under: Under,
}

/// What is to be done about a message.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Heed {
    /// It is taken.
    Take,
    /// It is late: all of it is or was said again.
    Drop,
    /// Something before it is missing: its client is to begin the turn after this one.
    Miss(u32),
}

impl Hearing {
    /// Takes note of a message.
    pub(crate) fn hear(&mut self, client: ClientId, said: Said, under: Under) -> Heed {
        let (turn, number, again) = match said {
            Said::Freely => return Heed::Take,
            Said::Next { turn, number } => (turn, number, false),
            Said::Again { turn, number } => (turn, number, true),
        };
        let incarnation = client.incarnation;
        if let Some(heard) = self.0.get_mut(&client.process).filter(|heard| heard.under == under) {
            match (incarnation, turn).cmp(&(heard.incarnation, heard.turn)) {
                Ordering::Less => return Heed::Drop,
                Ordering::Equal => {
                    return match number.cmp(&heard.next) {
                        Ordering::Less if again => Heed::Take,
                        Ordering::Less => Heed::Drop,
                        Ordering::Equal => {
                            heard.next += u64::from(!again);
                            Heed::Take
                        }
                        Ordering::Greater => Heed::Miss(turn),
                    };
                }
                Ordering::Greater => {}
            }
        }
        if number > 0 {
            return Heed::Miss(turn);
        }
        if !again {
            self.0.insert(client.process, Heard { incarnation, turn, next: 1, under });
        }
        Heed::Take
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Identity;

    const HERE: Under = (0, Reign(1, 0));

    fn client(incarnation: u32) -> ClientId {
        Identity { process: ProcessId::from_u64(7), incarnation }.into()
    }

    #[test]
    fn what_was_missed_is_noticed_until_a_turn_begins() {
        let mut hearing = Hearing::default();
        let mut saying = Saying::default();
        let said: Vec<_> = (0..4).map(|_| saying.next()).collect();
        let mut hear = |said| hearing.hear(client(1), said, HERE);
        assert_eq!(hear(said[0]), Heed::Take);
        assert_eq!(hear(said[2]), Heed::Miss(0), "1 is missing");
        assert_eq!(hear(saying.again()), Heed::Miss(0), "and is not begun by what is asked again");
        assert_eq!(hear(said[1]), Heed::Take, "it was only late");
        assert_eq!(hear(said[1]), Heed::Drop, "and came twice");
        assert_eq!(hear(said[2]), Heed::Take);
        assert_eq!(hear(said[3]), Heed::Take);
        assert_eq!(hear(saying.again()), Heed::Take);
        assert!(saying.is_in(0));
        saying.begin();
        assert!(!saying.is_in(0));
        let (first, second) = (saying.next(), saying.next());
        assert_eq!(hear(second), Heed::Miss(1));
        assert_eq!(hear(first), Heed::Take);
        assert_eq!(hear(said[3]), Heed::Drop, "of a turn that is over");
        assert_eq!(hear(second), Heed::Take);
    }

    #[test]
    fn no_more_than_a_window_is_under_way_and_what_was_missed_halves_it() {
        let mut saying = Saying::default();
        let load = |size| Load { size, turn: None };
        let fit = |saying: &Saying, size| {
            let mut room = saying.room();
            (0..100).take_while(|_| room(Some(load(size)))).count()
        };
        assert_eq!(fit(&saying, WINDOWS.1 * 2), 1, "one is said, however large");
        assert_eq!(fit(&saying, 1 << 20), 32);
        let mut loads = vec![load(1 << 20); 32];
        for load in &mut loads {
            saying.take(load);
            saying.take(load);
        }
        assert_eq!(fit(&saying, 1), 0);
        assert!(
            saying.room()(Some(loads[0])) && saying.room()(None),
            "it is under way as it is, or not any more"
        );
        saying.answered(loads[0]);
        assert_eq!(fit(&saying, 1 << 20), 1);
        saying.missed();
        assert!(!saying.has_said(loads[1]));
        assert_eq!(fit(&saying, 1 << 20), 15);
        saying.answered(loads[1]);
        assert_eq!(fit(&saying, 1 << 20), 15, "it was said in a turn that is over");
        saying.take(&mut loads[2]);
        saying.answered(loads[2]);
        assert_eq!(fit(&saying, 1 << 20), 16);
        saying.take(&mut loads[3]);
        saying.refused(&mut loads[3]);
        assert_eq!(fit(&saying, 1 << 20), 16, "what is refused leaves room, and opens none");
        assert!(!saying.has_said(loads[3]));
        saying.missed();
        assert_eq!(fit(&saying, 64 << 10), 4, "never less");
    }

    #[test]
    fn nothing_heard_counts_under_another_reign_or_of_another_life() {
        let mut hearing = Hearing::default();
        let mut saying = Saying::default();
        assert_eq!(hearing.hear(client(1), saying.next(), HERE), Heed::Take);
        let second = saying.next();
        for under in [(0, Reign(2, 0)), (1, Reign(1, 0))] {
            assert_eq!(hearing.hear(client(1), second, under), Heed::Miss(0), "what was first may be void");
        }
        assert_eq!(hearing.hear(client(1), second, HERE), Heed::Take);
        assert_eq!(hearing.hear(client(2), saying.next(), HERE), Heed::Miss(0));
        assert_eq!(hearing.hear(client(2), Saying::default().next(), HERE), Heed::Take);
        assert_eq!(hearing.hear(client(1), saying.next(), HERE), Heed::Drop);
        assert_eq!(hearing.hear(client(1), Said::Freely, HERE), Heed::Take);
    }
}
