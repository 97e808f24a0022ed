//! How good predictions would have been: the predictor of clients, fed with probes that were written down
//! (`specs/domino.md` 6.1).

use super::parameters::Parameters;
use super::predict::Predictor;
use isochrone_core::{Instant, ProcessId, Span, Stamp};
use std::collections::BTreeMap;

/// One probe and its answer.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Exchange {
    /// When it was sent, by the sender's clock.
    pub sent: Stamp,
    /// When it arrived, by the receiver's.
    pub received: Stamp,
    /// When the answer came, by the sender's.
    pub replied: Stamp,
}

/// What came of a replay.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Accuracy {
    /// Probes whose arrival was predicted: all but the first few.
    pub predicted: usize,
    /// By how much those were late that came later than predicted, smallest first.
    late: Vec<Span>,
}

impl Accuracy {
    /// Of a hundred, how many came no later than predicted; none where nothing was predicted.
    pub fn correct(&self) -> Option<f64> {
        let on_time = self.predicted - self.late.len();
        (self.predicted > 0).then(|| 100.0 * on_time as f64 / self.predicted as f64)
    }

    /// The `p`-th percentile of the lateness of late ones, `p` from 1 to 100: the nearest rank. None where none
    /// were late.
    pub fn misprediction(&self, p: u32) -> Option<Span> {
        let rank = (self.late.len() * p as usize).div_ceil(100).checked_sub(1)?;
        self.late.get(rank).copied()
    }
}

/// Predicts the arrival of each probe of a trace from the answers that had come before it was sent. The trace is in
/// the order of sending, by a clock of the sender that nobody steps; the receiver's may do as it likes.
pub fn replay(trace: &[Exchange], parameters: Parameters) -> Accuracy {
    let receiver = ProcessId::from_u64(0);
    let mut predictor = Predictor::new(parameters, [receiver]);
    let mut waiting: BTreeMap<(Stamp, usize), &Exchange> = BTreeMap::new();
    let mut accuracy = Accuracy::default();
    let steady = |stamp: Stamp| Instant::from_nanos(stamp.as_nanos());
    for (number, exchange) in trace.iter().enumerate() {
        while let Some(((replied, _), answered)) =
            waiting.first_key_value().map(|(key, value)| (*key, *value))
            && replied < exchange.sent
        {
            waiting.pop_first();
            let rtt = replied.since(answered.sent);
            predictor.probed(receiver, steady(replied), answered.sent, answered.received, rtt, None);
        }
        waiting.insert((exchange.replied, number), exchange);
        let Some(predicted) = predictor.one_way(0, steady(exchange.sent)) else { continue };
        accuracy.predicted += 1;
        let arrival = i128::from(exchange.received.as_nanos()) - i128::from(exchange.sent.as_nanos());
        // Two clocks further apart than 292 years are as late as can be said.
        let late = u64::try_from((arrival - i128::from(predicted)).clamp(0, i128::from(u64::MAX)));
        accuracy.late.extend(late.ok().filter(|late| *late > 0).map(Span::from_nanos));
    }
    accuracy.late.sort_unstable();
    accuracy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domino::Estimate;
    use crate::family::Tuning;
    use isochrone_core::Random;

    const MS: i64 = 1_000_000;

    /// A minute of probes, ten milliseconds apart. One message in twenty is up to six milliseconds late; the way
    /// back takes 20 ms. `way` is the way there and what the receiver's clock is ahead by, at a time, nanoseconds.
    fn trace(way: impl Fn(u64) -> (u64, i64)) -> Vec<Exchange> {
        let mut random = Random::seeded(1);
        let mut jitter =
            || random.below(500_000) + if random.chance(0.05) { random.below(6_000_000) } else { 0 };
        let probe = |number: u64| {
            let sent = 1_000_000_000_000 + number * 10_000_000;
            let (there, ahead) = way(number * 10_000_000);
            let arrived = sent + there + jitter();
            Exchange {
                sent: Stamp::from_nanos(sent),
                received: Stamp::from_nanos(arrived.saturating_add_signed(ahead)),
                replied: Stamp::from_nanos(arrived + 20_000_000 + jitter()),
            }
        };
        (0..6_000).map(probe).collect()
    }

    /// The 99th percentile of the misprediction by clocks and by half of a round trip, microseconds; and how many
    /// of a hundred clocks predicted right.
    fn compared(trace: &[Exchange]) -> (u64, u64, f64) {
        let parameters = Parameters::for_rtt(Span::from_millis(100));
        let by = |estimate| replay(trace, Parameters { estimate, ..parameters });
        let micros =
            |accuracy: &Accuracy| accuracy.misprediction(99).map_or(0, |span| span.as_nanos() / 1_000);
        let (clocks, half) = (by(Estimate::OneWay), by(Estimate::HalfRoundTrip));
        (micros(&clocks), micros(&half), clocks.correct().unwrap_or(0.0))
    }

    /// P4: half of a round trip is off by half of what the ways there and back differ, and by all that the clocks
    /// do; a one-way delay by neither.
    #[test]
    fn half_a_round_trip_is_far_off_where_directions_or_clocks_differ_and_a_one_way_delay_is_not() {
        let (even, half, rate) = compared(&trace(|_| (20_000_000, 0)));
        assert!(even <= 6_100 && half <= 6_100, "with equal ways and clocks both are good: {even} {half}");
        assert!((93.0..=96.0).contains(&rate), "the 95th percentile of the last second: {rate}");
        let (one_way, half, _) = compared(&trace(|_| (80_000_000, 0)));
        assert!(one_way <= 6_100 && half >= 30_000, "60 ms apart: {one_way} {half}");
        let (one_way, half, _) = compared(&trace(|_| (20_000_000, 25 * MS)));
        assert!(one_way <= 6_100 && half >= 25_000, "a clock 25 ms ahead: {one_way} {half}");
        // A clock that gains half a millisecond a second, as fast as one is slewed, is followed by the window: more
        // come late, and none by more than half a millisecond more.
        let wander = |at: u64| (20_000_000, (at / 2_000) as i64);
        let (one_way, half, _) = compared(&trace(wander));
        assert!(one_way <= 6_500 && half >= 29_000, "a clock that wanders off: {one_way} {half}");
    }

    #[test]
    fn a_step_of_the_receivers_clock_is_forgotten_with_the_window() {
        let step = |at: u64| (20_000_000, if at >= 30_000_000_000 { 100 * MS } else { 0 });
        let accuracy = replay(&trace(step), Parameters::for_rtt(Span::from_millis(100)));
        let wrong = accuracy.late.iter().filter(|late| **late >= Span::from_millis(90)).count();
        // Those sent before the first answer with the new clock, and until one in twenty in the window has it.
        assert!((5..=12).contains(&wrong), "{wrong} were predicted by the old clock");
    }

    #[test]
    fn only_what_was_known_at_the_time_is_used() {
        let every = Span::from_millis(10);
        let late = trace(|_| (20_000_000, 0)).into_iter().map(|exchange| {
            // Nothing is answered before the last probe was sent.
            Exchange { replied: exchange.sent + every * 6_000, ..exchange }
        });
        let late: Vec<_> = late.collect();
        let accuracy = replay(&late, Parameters::for_rtt(Span::from_millis(100)));
        assert_eq!((accuracy.predicted, accuracy.correct(), accuracy.misprediction(99)), (0, None, None));
    }
}
