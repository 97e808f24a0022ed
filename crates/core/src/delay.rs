//! How long messages to one peer take, from what probes of the recent past took.

use crate::{Instant, Span, Stamp};
use std::collections::VecDeque;

/// A span that may be negative, nanoseconds: a one-way delay measured across two clocks.
pub type SignedSpan = i64;

/// The probes of a recent window to one peer, and percentiles over them (`specs/domino.md` 3.7).
///
/// A one-way delay is the peer's wall clock at arrival less the own wall clock at sending. It mixes the delay
/// with the offset of the two clocks on purpose: added to a reading of the own clock it gives the reading of
/// the peer's clock at arrival, so a constant offset cancels out, and a step of either clock is forgotten
/// with the window.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub struct DelayEstimate {
    window: Span,
    samples: VecDeque<Sample>,
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
struct Sample {
    at: Instant,
    one_way: SignedSpan,
    round_trip: Span,
}

/// Samples kept at most, whatever the window: a bound on memory and on the cost of a percentile.
const SAMPLES_MAX: usize = 1_024;

impl DelayEstimate {
    /// An estimate over the samples of the last `window`.
    pub fn over(window: Span) -> DelayEstimate {
        DelayEstimate { window, samples: VecDeque::new() }
    }

    /// Takes in one answered probe: sent at `sent` by the own wall clock, received at `received` by the
    /// peer's, answered after `rtt` by the own steady clock, now.
    pub fn sample(&mut self, now: Instant, sent: Stamp, received: Stamp, rtt: Span) {
        self.expire(now);
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        // Two clocks further apart than 292 years are clamped.
        let one_way = i128::from(received.as_nanos()) - i128::from(sent.as_nanos());
        let one_way = one_way.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as SignedSpan;
        self.samples.push_back(Sample { at: now, one_way, round_trip: rtt });
    }

    /// Forgets what is older than the window.
    pub fn expire(&mut self, now: Instant) {
        while self.samples.front().is_some_and(|sample| now.since(sample.at) > self.window) {
            self.samples.pop_front();
        }
    }

    /// How many samples the window holds.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether the window holds none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// When the newest sample was taken.
    pub fn newest(&self) -> Option<Instant> {
        self.samples.back().map(|sample| sample.at)
    }

    /// The `p`-th percentile of one-way delays, `p` from 1 to 100: the nearest rank, so it was measured.
    pub fn one_way(&self, p: u32) -> Option<SignedSpan> {
        self.percentile(p, |sample| sample.one_way)
    }

    /// The `p`-th percentile of round trips.
    pub fn round_trip(&self, p: u32) -> Option<Span> {
        self.percentile(p, |sample| sample.round_trip)
    }

    fn percentile<T: Copy + Ord>(&self, p: u32, what: impl Fn(&Sample) -> T) -> Option<T> {
        let rank = (self.samples.len() * p as usize).div_ceil(100).checked_sub(1)?;
        let mut values: Vec<T> = self.samples.iter().map(what).collect();
        let rank = rank.min(values.len() - 1);
        Some(*values.select_nth_unstable(rank).1)
    }
}

/// One number for how long a message to a peer and its answer take, where no percentile is asked for; none before the
/// first sample.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct RoundTrip(Option<Span>);

impl RoundTrip {
    /// What is known.
    pub fn known(self) -> Option<Span> {
        self.0
    }

    /// Follows the mean: a sample counts an eighth.
    pub fn mean(&mut self, sample: Span) {
        self.0 = Some(self.0.map_or(sample, |known| (known * 7 + sample) / 8));
    }

    /// Follows the least: a shorter one is true at once, a longer one counts an eighth, so that who is nearest does
    /// not change with one late message.
    pub fn least(&mut self, sample: Span) {
        match self.0 {
            Some(known) if sample >= known => self.mean(sample),
            _ => self.0 = Some(sample),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_late_message_moves_the_least_little_and_the_mean_both_ways() {
        let ms = Span::from_millis;
        let (mut mean, mut least) = (RoundTrip::default(), RoundTrip::default());
        assert_eq!((mean.known(), least.known()), (None, None));
        for (sample, of_mean, of_least) in [(80, 80, 80), (160, 90, 90), (82, 89, 82), (82, 88_125, 82)] {
            mean.mean(ms(sample));
            least.least(ms(sample));
            let expected = if of_mean > 1_000 { Span::from_micros(of_mean) } else { ms(of_mean) };
            assert_eq!(
                (mean.known(), least.known()),
                (Some(expected), Some(ms(of_least))),
                "after {sample} ms"
            );
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut estimate = DelayEstimate::over(Span::from_secs(1));
        assert_eq!(estimate.one_way(95), None);
        for k in 1..=20u64 {
            let sent = Stamp::from_nanos(1_000);
            estimate.sample(at(k), sent, Stamp::from_nanos(1_000 + k), Span::from_nanos(2 * k));
        }
        let ranks = [1, 5, 6, 50, 95, 96, 100].map(|p| estimate.one_way(p).unwrap_or_default());
        assert_eq!(ranks, [1, 1, 2, 10, 19, 20, 20]);
        assert_eq!(estimate.round_trip(95), Some(Span::from_nanos(38)));
    }

    #[test]
    fn a_clock_that_is_behind_gives_negative_delays_and_a_step_is_forgotten_with_the_window() {
        let mut estimate = DelayEstimate::over(Span::from_secs(1));
        let sent = Stamp::from_nanos(1_000_000_000);
        estimate.sample(at(0), sent, Stamp::from_nanos(500_000_000), Span::from_millis(20));
        assert_eq!(estimate.one_way(95), Some(-500_000_000));
        estimate.sample(at(900), sent, Stamp::from_nanos(1_010_000_000), Span::from_millis(20));
        estimate.expire(at(1_001));
        assert_eq!((estimate.len(), estimate.one_way(1)), (1, Some(10_000_000)));
        assert_eq!(estimate.newest(), Some(at(900)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut estimate = DelayEstimate::over(Span::from_secs(3_600));
        for k in 0..5_000 {
            estimate.sample(at(k), Stamp::ZERO, Stamp::from_nanos(k), Span::ZERO);
        }
        assert_eq!((estimate.len(), estimate.one_way(1)), (SAMPLES_MAX, Some(3_986)));
    }
}
