//! Who was heard of lately.

use crate::election::Losses;
use isochrone_core::{Instant, Looks, Span};

/// When each member was last heard, by rank, and how much silence is borne of it. One that is busy with a large value for longer than
/// that finds the turn revoked that the value was in, suggests it again, and would be revoked again for ever: more is borne then.
#[derive(Clone, Hash, Debug)]
pub(super) struct Contact {
    /// The silence that is borne as a rule.
    patience: Span,
    members: Vec<(Instant, Losses)>,
    looks: Looks,
}

impl Contact {
    /// Of `count` members of whom nobody was silent before `now`.
    pub(super) fn new(count: usize, patience: Span, now: Instant) -> Contact {
        Contact { patience, members: vec![(now, Losses::default()); count], looks: Looks::default() }
    }

    /// A sign of life.
    pub(super) fn heard(&mut self, rank: usize, now: Instant) {
        // What is read before the look of one who stood still was not late.
        let silent = self.is_silent(rank, self.looks.until(now));
        let (last, losses) = &mut self.members[rank];
        if silent {
            losses.lost(self.patience, now);
        }
        *last = now;
    }

    /// The beat's look at who is silent, which is done again after `every`. What was borne of each long ago counts no more.
    pub(super) fn look(&mut self, every: Span, now: Instant) {
        let still = self.looks.look(every, self.patience, now);
        for (last, losses) in &mut self.members {
            *last = (*last + still).min(now);
            losses.forget(self.patience, now);
        }
    }

    /// Whether nothing was heard of a member for as long as is borne.
    pub(super) fn is_silent(&self, rank: usize, now: Instant) -> bool {
        let (last, losses) = &self.members[rank];
        now.since(*last) >= losses.bears(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_silent_and_spoke_again_twice_is_borne_for_longer() {
        let patience = Span::from_millis(400);
        let mut contact = Contact::new(2, patience, Instant::ZERO);
        let mut now = Instant::ZERO;
        for times in [1, 1, 2, 4] {
            let longest = patience * times;
            assert!(!contact.is_silent(1, now + longest.saturating_sub(Span::from_nanos(1))), "{times}");
            now = now + longest;
            assert!(contact.is_silent(1, now), "{times}");
            contact.heard(1, now);
        }
        contact.heard(0, now);
        assert!(contact.is_silent(0, now + patience), "that was another");
        contact.look(patience, now + patience * 64);
        assert!(contact.is_silent(1, now + patience));
    }
}
