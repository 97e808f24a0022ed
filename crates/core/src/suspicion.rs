//! Who has been silent for too long.

use crate::quorum::ReplicaSet;
use crate::{Instant, ReplicaId, Span};

/// When each watched replica was last heard of.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct Suspicion {
    patience: Span,
    heard: Vec<(ReplicaId, Instant)>,
}

impl Suspicion {
    /// Watches these from `now` on; a silence of `patience` makes a suspect.
    pub fn watching(
        replicas: impl IntoIterator<Item = ReplicaId>,
        patience: Span,
        now: Instant,
    ) -> Suspicion {
        Suspicion { patience, heard: replicas.into_iter().map(|replica| (replica, now)).collect() }
    }

    /// A sign of life. One who was not watched is from now on.
    pub fn heard(&mut self, replica: ReplicaId, now: Instant) {
        match self.heard.iter_mut().find(|(known, _)| *known == replica) {
            Some((_, last)) => *last = now.max(*last),
            None => self.heard.push((replica, now)),
        }
    }

    /// Stops watching.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.heard.retain(|(known, _)| *known != replica);
    }

    /// The silent ones.
    pub fn suspects(&self, now: Instant) -> ReplicaSet {
        let silent = |last: Instant| now.since(last) >= self.patience;
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
}
