//! When requests are made.

use isochrone_core::{Instant, Random, Span};

/// How the sessions of a run are paced.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Pace {
    /// A session asks again when it was answered, after a pause.
    Closed {
        /// The pause.
        think: Span,
    },
    /// Requests arrive at a rate whether or not earlier ones were answered, at the times of a Poisson
    /// process. Latency counts from the time a request was *due*, so a stall is charged to every request
    /// that fell into it, not only to the one that met it (coordinated omission).
    Open {
        /// Requests a second, each session.
        rate: f64,
    },
}

/// How long a session waits after what took no time, as a read at its own node's replica.
const BREATH: Span = Span::from_millis(1);

impl Pace {
    /// When a session's first request is due, given when the run starts: closed loops start at once,
    /// open ones at their first arrival.
    pub fn first(&self, start: Instant, random: &mut Random) -> Instant {
        match self {
            Pace::Closed { .. } => start,
            Pace::Open { .. } => self.next(start, start, random),
        }
    }

    /// When a session may ask again that asked and was answered at these moments: what took no time is not followed by
    /// another at the same moment, or a run would never end.
    pub(crate) fn not_before(asked: Instant, answered: Instant) -> Instant {
        if asked == answered { answered + BREATH } else { answered }
    }

    /// When the next request is due, given when the last was due and when it was answered. An open
    /// loop's time may already have passed: the request is then late, and its latency says so.
    pub fn next(&self, due: Instant, answered: Instant, random: &mut Random) -> Instant {
        match *self {
            Pace::Closed { think } => answered + think,
            Pace::Open { rate } => {
                // The inverse of the exponential distribution; 1 - unit() is never zero.
                let gap_seconds = -(1.0 - random.unit()).ln() / rate;
                due + Span::from_nanos((gap_seconds * 1e9) as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_keeps_its_rate_and_never_waits_for_answers() {
        let pace = Pace::Open { rate: 200.0 };
        let mut random = Random::seeded(5);
        let mut due = pace.first(Instant::ZERO, &mut random);
        for _ in 1..20_000 {
            due = pace.next(due, due + Span::from_secs(3), &mut random);
        }
        let rate = 20_000.0 / (due.as_nanos() as f64 / 1e9);
        assert!((rate / 200.0 - 1.0).abs() < 0.03, "{rate} requests a second for 200");
    }

    #[test]
    fn a_closed_loop_waits_for_its_answer() {
        let pace = Pace::Closed { think: Span::from_millis(2) };
        let answered = Instant::from_nanos(9_000_000);
        assert_eq!(
            pace.next(Instant::ZERO, answered, &mut Random::seeded(0)),
            Instant::from_nanos(11_000_000)
        );
    }
}
