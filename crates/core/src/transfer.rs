//! State that travels to a peer, chunk by chunk, pulled by the one who lacks it.
//!
//! What travels is applied state at a position. Promises, votes, leases and identity never do
//! (`specs/carousel.md` 8.23): they are one replica's word and mean nothing in another's mouth.

use crate::{Blob, Export, ProcessId, Span};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The giver's side: the few views that are being read, newest last.
#[derive(Clone)]
pub struct Offers<V> {
    views: Vec<(u64, V)>,
}

/// How long views stay on offer after the last question.
pub const OFFER_IDLE: Span = Span::from_secs(60);

/// Views kept at once. An older one is dropped for a newer: whoever was reading it starts again.
const VIEWS_MAX: usize = 2;

impl<V> Default for Offers<V> {
    fn default() -> Offers<V> {
        Offers { views: Vec::new() }
    }
}

impl<V: Export> Offers<V> {
    /// Offers a view at a position.
    pub fn offer(&mut self, position: u64, view: V) {
        self.views.retain(|(known, _)| *known != position);
        if self.views.len() >= VIEWS_MAX {
            self.views.remove(0);
        }
        self.views.push((position, view));
    }

    /// The newest position on offer.
    pub fn newest(&self) -> Option<u64> {
        self.views.last().map(|(position, _)| *position)
    }

    /// Chunk `index` of the view at `position`: `None` where that view is gone, `Some(None)` behind its end.
    pub fn chunk(&self, position: u64, index: u64) -> Option<Option<Blob>> {
        let (_, view) = self.views.iter().find(|(known, _)| *known == position)?;
        Some(view.chunk(index))
    }

    /// Drops every view: nobody has read for long.
    pub fn clear(&mut self) {
        self.views.clear();
    }
}

impl<V> fmt::Debug for Offers<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.views.iter().map(|(position, _)| position)).finish()
    }
}

// A view is a pure function of the state at its position, so the position says it all.
impl<V> Hash for Offers<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.views.iter().for_each(|(position, _)| position.hash(state));
    }
}

/// What a chunk that came in has done.
#[derive(Clone, Eq, PartialEq, Debug)]
enum Arrived {
    /// It was not asked for, or came twice.
    Ignored,
    /// It waits for one before it.
    Early,
    /// These are next, in order.
    Chunks(Vec<Blob>),
    /// These were the last.
    Complete(Vec<Blob>),
}

/// The taker's side: asks for a window of chunks at a time and hands them on in order.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Default)]
struct Transfer {
    /// Fixed by the giver's first answer.
    position: Option<u64>,
    next: u64,
    early: BTreeMap<u64, Option<Blob>>,
}

/// Chunks asked for at once: 2 MiB on the way at 256 KiB each, enough for 80 Mbit/s at 200 ms.
const WINDOW: u64 = 8;

impl Transfer {
    /// The position that is being taken in.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// The chunks to ask for (again): all of the window that have not come. Before the first answer there
    /// is no window, since the position is the giver's to choose.
    pub fn wanted(&self) -> impl Iterator<Item = u64> + '_ {
        let window = if self.position.is_some() { WINDOW } else { 1 };
        (self.next..self.next + window).filter(|index| !self.early.contains_key(index))
    }

    /// Takes in chunk `index` at `position`; `None` says that the view ends before it.
    pub fn accept(&mut self, position: u64, index: u64, chunk: Option<Blob>) -> Arrived {
        let expected = *self.position.get_or_insert(position);
        if expected != position || index < self.next || index >= self.next + WINDOW {
            return Arrived::Ignored;
        }
        self.early.insert(index, chunk);
        let mut chunks = Vec::new();
        while let Some(chunk) = self.early.remove(&self.next) {
            match chunk {
                Some(chunk) => chunks.push(chunk),
                None => return Arrived::Complete(chunks),
            }
            self.next += 1;
        }
        if chunks.is_empty() { Arrived::Early } else { Arrived::Chunks(chunks) }
    }
}

/// A transfer under way, as its taker knows it: from whom, and how often it was asked for in vain.
#[derive(Clone, Hash, Debug)]
pub struct Pull {
    giver: ProcessId,
    transfer: Transfer,
    vain: u32,
    /// How many givers were turned away from before this one.
    turns: u32,
    /// Whether this one has answered.
    answered: bool,
}

/// What has come of a transfer.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Pulled {
    /// The next chunks in order, each with its number.
    pub chunks: Vec<(u64, Blob)>,
    /// Whether these were the last.
    pub complete: bool,
    /// What has come into the window, to be asked for.
    pub wanted: Vec<u64>,
}

/// Questions without an answer after which a giver is given up.
const VAIN_MAX: u32 = 6;

/// Questions without an answer after which another giver is turned to, if there is one.
const VAIN_BORNE: u32 = 2;

impl Pull {
    /// A transfer from this peer, of which nothing was asked.
    pub fn new(giver: ProcessId) -> Pull {
        Pull { giver, transfer: Transfer::default(), vain: 0, turns: 0, answered: false }
    }

    /// Who is asked.
    pub fn giver(&self) -> ProcessId {
        self.giver
    }

    /// The position that is being taken in.
    pub fn position(&self) -> Option<u64> {
        self.transfer.position()
    }

    /// Begins anew with another peer that can give what is lacked, where two questions in a row were in vain, or four of one that
    /// has answered, from whom much may have come; whether it does. It is waited for as if those had been asked of it: where the lines are slow, each of two would otherwise be
    /// turned away from before its answer is there, for ever.
    pub fn turn_to(&mut self, other: ProcessId) -> bool {
        // The last question may still be answered.
        let borne = if self.answered { VAIN_MAX - VAIN_BORNE } else { VAIN_BORNE };
        let turns = other != self.giver && self.vain > borne;
        if turns {
            *self = Pull { turns: self.turns + 1, ..Pull::new(other) };
        }
        turns
    }

    /// The chunks to ask for (again); `None` where that was in vain too often.
    pub fn again(&mut self) -> Option<Vec<u64>> {
        self.vain += 1;
        (self.asked() <= VAIN_MAX).then(|| self.transfer.wanted().collect())
    }

    /// Questions since the last answer, with those for which other givers were turned away from: what a giver that has said nothing
    /// yet is waited for by, and all are given up by.
    fn asked(&self) -> u32 {
        self.turns * VAIN_BORNE + self.vain
    }

    /// Whether what is asked for now was asked for before: its answer may be on its way.
    pub fn repeats(&self) -> bool {
        self.vain > 1 || self.position().is_some()
    }

    /// How long to wait for an answer before asking again, where it is `resend` at first: longer each time, as a chunk may be large
    /// and the line slow.
    pub fn patience(&self, resend: Span) -> Span {
        let asked = if self.answered { self.vain } else { self.asked() };
        resend * (1 << asked.saturating_sub(1).min(VAIN_MAX))
    }

    /// Takes in chunk `index` at `position`; `None` where it is of another transfer, was not asked for, or came twice.
    pub fn accept(
        &mut self,
        from: ProcessId,
        position: u64,
        index: u64,
        chunk: Option<Blob>,
    ) -> Option<Pulled> {
        if self.giver != from {
            return None;
        }
        let (first, before) = (self.transfer.next, self.transfer.wanted().last());
        let (chunks, complete) = match self.transfer.accept(position, index, chunk) {
            Arrived::Ignored => return None,
            Arrived::Early => (Vec::new(), false),
            Arrived::Chunks(chunks) => (chunks, false),
            Arrived::Complete(chunks) => (chunks, true),
        };
        (self.vain, self.turns, self.answered) = (0, 0, true);
        let new = |index: &u64| before.is_none_or(|before| *index > before);
        let wanted = if complete { Vec::new() } else { self.transfer.wanted().filter(new).collect() };
        Some(Pulled { chunks: (first..).zip(chunks).collect(), complete, wanted })
    }

    /// The giver no longer offers that view. Whether it was this one, which then begins anew.
    pub fn gone(&mut self, from: ProcessId, position: u64) -> bool {
        let ours = self.giver == from && self.transfer.position() == Some(position);
        if ours {
            self.transfer = Transfer::default();
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Count(u64);

    impl Export for Count {
        fn chunk(&self, index: u64) -> Option<Blob> {
            (index < self.0).then(|| Blob::new(&index.to_le_bytes()))
        }
    }

    #[test]
    fn a_view_arrives_whole_and_in_order_whatever_the_network_does() {
        for length in [0, 1, 7, 8, 9, 30] {
            let mut offers = Offers::default();
            offers.offer(100, Count(length));
            let (mut transfer, mut got, mut complete) = (Transfer::default(), Vec::new(), false);
            let mut rounds = 0;
            while !complete {
                rounds += 1;
                assert!(rounds < 100, "no progress at length {length}");
                let mut asked: Vec<u64> = transfer.wanted().collect();
                asked.reverse();
                if rounds % 2 == 0 {
                    asked.truncate(asked.len() / 2); // the rest is lost
                }
                for index in asked.into_iter().flat_map(|index| [index, index]) {
                    let chunk = offers.chunk(100, index).unwrap();
                    match transfer.accept(100, index, chunk) {
                        Arrived::Ignored | Arrived::Early => {}
                        Arrived::Chunks(chunks) => got.extend(chunks),
                        Arrived::Complete(chunks) => {
                            got.extend(chunks);
                            complete = true;
                            break;
                        }
                    }
                }
            }
            assert!(got.iter().enumerate().all(|(index, chunk)| **chunk == (index as u64).to_le_bytes()));
            assert_eq!(got.len() as u64, length);
            assert_eq!(transfer.accept(99, transfer.next, None), Arrived::Ignored, "another view's chunk");
        }
    }

    #[test]
    fn another_giver_is_turned_to_where_one_does_not_answer() {
        let (resend, chunk) = (Span::from_millis(100), || Some(Blob::new(b"chunk")));
        let [one, other] = [1, 2].map(ProcessId::from_u64);
        let mut pull = Pull::new(one);
        let ask = |pull: &mut Pull| pull.again().map(|_| pull.patience(resend));
        let waits = |times: u64| Some(resend * times);
        assert_eq!([0; 2].map(|_| ask(&mut pull)), [1, 2].map(waits));
        assert!(!pull.turn_to(other), "the second question may be answered yet");
        assert!(pull.accept(one, 7, 0, chunk()).is_some());
        assert_eq!([0; 2].map(|_| ask(&mut pull)), [1, 2].map(waits));
        assert!(!pull.turn_to(other), "it has answered meanwhile");
        assert_eq!([0; 3].map(|_| ask(&mut pull)), [4, 8, 16].map(waits));
        assert!(!pull.turn_to(one) && pull.turn_to(other));
        assert_eq!((pull.giver(), pull.position()), (other, None));
        assert_eq!(pull.accept(one, 7, 1, chunk()), None, "of the state that was begun before");
        // Each of two is waited for longer, and neither for ever.
        assert_eq!([0; 3].map(|_| ask(&mut pull)), [4, 8, 16].map(waits));
        assert!(pull.turn_to(one));
        assert_eq!([0; 2].map(|_| ask(&mut pull)), [16, 32].map(waits));
        assert_eq!(ask(&mut pull), None);
        // Who has answered is not waited for longer than the first.
        let mut pull = Pull::new(one);
        assert_eq!([0; 3].map(|_| ask(&mut pull)), [1, 2, 4].map(waits));
        assert!(pull.turn_to(other) && pull.accept(other, 7, 0, chunk()).is_some());
        assert_eq!(ask(&mut pull), waits(1));
    }

    #[test]
    fn old_views_give_way() {
        let mut offers = Offers::default();
        for position in [1, 2, 3] {
            offers.offer(position, Count(1));
        }
        assert_eq!((offers.chunk(1, 0), offers.newest()), (None, Some(3)));
        assert_eq!(offers.chunk(2, 1), Some(None));
        offers.clear();
        assert_eq!(offers.newest(), None);
    }
}
