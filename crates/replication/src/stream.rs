//! What a client says to one replica is run in the order in which it was said: a replica that has missed some of it takes
//! nothing that was said behind, and has it all said anew.
//!
//! Links keep order and lose what was on them when a connection breaks, and a replica that restarts has lost what it had not
//! placed. Asked for again later, that would be run behind what was said after it: of a pipeline that sets a key twice,
//! the first value would stand. So messages with commands are numbered within a *turn*. A turn begins with all that
//! the client has outstanding; whoever hears a number too high in it asks for the next turn.

use crate::order::Reign;
use isochrone_core::{ClientId, ProcessId};
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
#[derive(Copy, Clone, Default, Hash, Debug)]
pub(crate) struct Saying {
    turn: u32,
    said: u64,
}

impl Saying {
    /// Begins a turn: all that is outstanding is to be said next, or another replica is spoken to.
    pub(crate) fn begin(&mut self) {
        *self = Saying { turn: self.turn + 1, said: 0 };
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
