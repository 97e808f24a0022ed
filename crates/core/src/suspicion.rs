//! Who has been silent for too long.

use crate::quorum::ReplicaSet;
use crate::{Instant, ReplicaId, Span};

/// The looks of one who watches others, each so long behind the last. Where one comes late the watcher stood still: it has asked
/// nobody meanwhile and read no answer, which is no silence of theirs.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Looks {
    due: Instant,
}

impl Default for Looks {
    fn default() -> Looks {
        Looks { due: Instant::MAX }
    }
}

impl Looks {
    /// Until when silence counts: until now, or until a look was due that has not come yet.
    pub fn until(&self, now: Instant) -> Instant {
        now.min(self.due)
    }

    /// A look; the next is due after `every`. For how long the watcher stood still before it; zero where that is less than half of
    /// the `patience` that is had with others.
    pub fn look(&mut self, every: Span, patience: Span, now: Instant) -> Span {
        let late = now.since(self.due);
        self.due = now + every;
        if late >= patience / 2 { late } else { Span::ZERO }
    }
}

/// When each watched replica was last heard of.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Suspicion {
    patience: Span,
    heard: Vec<(ReplicaId, Instant)>,
    looks: Looks,
}

impl Suspicion {
    /// Watches these from `now` on; a silence of `patience` makes a suspect.
    pub fn watching(
        replicas: impl IntoIterator<Item = ReplicaId>,
        patience: Span,
        now: Instant,
    ) -> Suspicion {
        let heard = replicas.into_iter().map(|replica| (replica, now)).collect();
        Suspicion { patience, heard, looks: Looks::default() }
    }

    /// From now on a silence of so long makes a suspect.
    pub fn bear(&mut self, patience: Span) {
        self.patience = patience;
    }

    /// A sign of life. One who was not watched is from now on.
    pub fn heard(&mut self, replica: ReplicaId, now: Instant) {
        match self.heard.iter_mut().find(|(known, _)| *known == replica) {
            Some((_, last)) => *last = now.max(*last),
            None => self.heard.push((replica, now)),
        }
    }

    /// Whoever watches stood still for so long, until now, and heard nobody: that is no silence of theirs.
    pub fn excuse(&mut self, still: Span, now: Instant) {
        for (_, last) in &mut self.heard {
            *last = (*last + still).min(now);
        }
    }

    /// Stops watching.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.heard.retain(|(known, _)| *known != replica);
    }

    /// A look at who is silent, which is done again after `every`. For how long the watcher stood still before it, which is no
    /// silence of anybody.
    pub fn look(&mut self, every: Span, now: Instant) -> Span {
        let still = self.looks.look(every, self.patience, now);
        self.excuse(still, now);
        still
    }

    /// The silent ones.
    pub fn suspects(&self, now: Instant) -> ReplicaSet {
        self.silent_for(self.patience, now)
    }

    /// Those who have been silent for so long.
    pub fn silent_for(&self, span: Span, now: Instant) -> ReplicaSet {
        let silent = |last: Instant| now.since(last) >= span;
        self.heard.iter().filter(|(_, last)| silent(*last)).map(|(replica, _)| *replica).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_makes_a_suspect_and_a_word_clears_it() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut suspicion = Suspicion::watching([0, 1].map(ReplicaId), Span::from_millis(100), at(0));
        suspicion.heard(ReplicaId(1), at(60));
        assert!(suspicion.suspects(at(99)).is_empty());
        assert_eq!(suspicion.suspects(at(100)), ReplicaSet::from_iter([ReplicaId(0)]));
        suspicion.heard(ReplicaId(0), at(170));
        suspicion.forget(ReplicaId(1));
        assert!(suspicion.suspects(at(200)).is_empty());
    }

    #[test]
    fn while_nobody_listens_nobody_is_silent() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let mut suspicion = Suspicion::watching([0, 1].map(ReplicaId), Span::from_millis(100), at(0));
        suspicion.heard(ReplicaId(1), at(590));
        suspicion.excuse(Span::from_millis(550), at(600));
        // One was silent for 50 ms before it, the other is heard of no later than now.
        let silent = |ms| suspicion.suspects(at(ms)).iter().count();
        assert_eq!([649, 650, 699, 700].map(silent), [0, 1, 1, 2]);
    }

    #[test]
    fn who_comes_late_to_look_finds_nobody_silent_for_as_long() {
        let at = |ms| Instant::ZERO + Span::from_millis(ms);
        let (patience, every) = (Span::from_millis(100), Span::from_millis(20));
        let mut suspicion = Suspicion::watching([0, 1].map(ReplicaId), patience, at(0));
        let mut silent = |heard: Option<u64>, looks: &[u64]| {
            heard.iter().for_each(|ms| suspicion.heard(ReplicaId(1), at(*ms)));
            let mut look = |ms| {
                suspicion.look(every, at(ms));
                suspicion.suspects(at(ms)).iter().count()
            };
            looks.iter().map(|ms| look(*ms)).collect::<Vec<_>>()
        };
        assert_eq!(silent(None, &[20, 40]), [0, 0]);
        // A second late: both were silent for 60 ms when it was due, and are asked now.
        assert_eq!(silent(None, &[1_060, 1_080, 1_100]), [0, 0, 2]);
        // What is a little late is as if it were in time.
        assert_eq!(silent(Some(1_100), &[1_144, 1_188, 1_200]), [1, 1, 2]);
        let looks = suspicion.looks;
        assert_eq!([1_219, 1_220, 9_999].map(|ms| looks.until(at(ms))), [1_219, 1_220, 1_220].map(at));
    }
}
