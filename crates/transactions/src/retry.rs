//! Whether and when a transaction that was aborted is tried again.

use crate::request::Reason;
use isochrone_core::{Random, Span};

/// How often, and after which pauses. Every try is another transaction: it reads anew.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Retry {
    /// Tries in all, the first among them; at least 1.
    pub tries: u32,
    /// The pause before the second is up to this; it doubles for each further one.
    pub pause: Span,
    /// No pause is longer.
    pub pause_max: Span,
}

impl Retry {
    /// Nothing is tried again, as in published benchmarks (`specs/carousel.md` 8.15).
    pub const NEVER: Retry = Retry { tries: 1, pause: Span::ZERO, pause_max: Span::ZERO };

    /// The defaults where everybody is at most this far apart: what stood in the way is gone after a round trip or
    /// three, and nobody waits for longer than about ten times that.
    pub fn for_rtt(rtt_max: Span) -> Retry {
        let pause = rtt_max.max(Span::from_millis(1));
        Retry { tries: 10, pause, pause_max: pause * 8 }
    }

    /// The pause before the next try, after `tried` of them (from 1) of which the last ended for this reason; `None`
    /// where it is the last. Pauses are drawn from the upper half of what is allowed, so that two that met do not meet
    /// again.
    pub fn pause(&self, tried: u32, reason: Reason, random: &mut Random) -> Option<Span> {
        if tried >= self.tries || reason == Reason::Client {
            return None;
        }
        let doubled = self.pause.as_nanos().saturating_mul(1 << tried.saturating_sub(1).min(20));
        let most = doubled.min(self.pause_max.as_nanos());
        Some(Span::from_nanos(random.between(most / 2, most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retry = Retry { tries: 6, pause: Span::from_millis(10), pause_max: Span::from_millis(50) };
        let mut random = Random::seeded(1);
        let mut pause = |tried| retry.pause(tried, Reason::Conflict, &mut random);
        for (tried, most) in [(1, 10), (2, 20), (3, 40), (4, 50), (5, 50)] {
            for _ in 0..100 {
                let pause = pause(tried).expect("one more try");
                let most = Span::from_millis(most);
                assert!(most / 2 <= pause && pause <= most, "{tried}: {pause}");
            }
        }
        assert_eq!(pause(6), None);
    }

    #[test]
    fn what_its_client_gave_up_is_not_tried_again() {
        let retry = Retry::for_rtt(Span::from_millis(200));
        assert_eq!(retry.pause(1, Reason::Client, &mut Random::seeded(0)), None);
        assert_eq!(Retry::NEVER.pause(1, Reason::Conflict, &mut Random::seeded(0)), None);
    }
}
