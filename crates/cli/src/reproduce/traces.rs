//! The study of the network that Domino begins with, over a made-up trace: Tables 4.2 and 4.3.
//!
//! The source measured six data centers for 24 hours, and has not published the traces. What is replayed here has
//! the round trips of its Table 4.1 and a jitter under which late messages are as late as in its Table 4.3. How
//! clocks and directions differ is chosen after Table 4.2: what leaves HK and SG is never far off, what goes there
//! is, and NSW is far off either way. So the figures of one-way delays follow from the estimator and that jitter,
//! and those of half a round trip from what was chosen; that the first are far below the second is the finding.

use super::lab::{Lab, Topology};
use super::published::Finding;
use isochrone_core::{Matrix, Random, RegionId, Span, Stamp};
use isochrone_replication::Tuning;
use isochrone_replication::domino::replay::{Accuracy, Exchange, replay};
use isochrone_replication::domino::{Estimate, Parameters};

/// What is said beside each figure of one-way delays.
pub(super) const NOTE: &str = "synthetic trace (round trips of Table 4.1, exponential jitter, HK and SG 25 ms ahead, NSW \
                               wandering 30 ms to either side); those of the source are not public";

/// What is said beside those of half a round trip.
pub(super) const CHOSEN: &str = "follows from the clocks of a synthetic trace (HK and SG 25 ms ahead, NSW wandering 30 ms to either \
                                 side), chosen after this table; that it is far above Table 4.3 where clocks differ compares";

/// The same of what leaves NSW.
pub(super) const DISTURBED: &str = "follows from the clock of a synthetic trace, which wanders 30 ms to either side; the source's \
                                    hundreds and thousands of milliseconds are some hour's disturbance, which is not made up here";

/// One probe each 10 ms, as in the source, for as long as NSW's clock takes to wander and come back.
const EVERY: u64 = 10_000_000;
const PROBES: u64 = 60_000;

/// By how much a region's clock is ahead at a time, nanoseconds. What directions differ by is in it: seen from clocks
/// it is the same.
fn ahead(region: &str, at: u64) -> i64 {
    const MS: i64 = 1_000_000;
    match region {
        "HK" | "SG" => 25 * MS,
        // A fifth of a millisecond a second: up to 30 ms, down to as much behind, and back.
        "NSW" => {
            let (length, quarter) = (EVERY * PROBES, EVERY * PROBES / 4);
            let at = at % length;
            let far = if at < quarter { at } else { (2 * quarter).abs_diff(at).min(quarter) } as i64;
            let sign = if at > 2 * quarter { -1 } else { 1 };
            let far = if at > 3 * quarter { (length - at) as i64 } else { far };
            sign * far / 5_000
        }
        _ => 0,
    }
}

/// The probes of one region to another, always the same.
fn trace(matrix: &Matrix, from: RegionId, to: RegionId) -> Vec<Exchange> {
    let mut random = Random::seeded(u64::from(from.0) << 16 | u64::from(to.0));
    let mut jitter = || {
        let mean = super::domino::JITTER.as_nanos() as f64;
        (-mean * (1.0 - random.unit()).ln()) as u64
    };
    let (there, back) = (matrix.one_way(from, to).as_nanos(), matrix.one_way(to, from).as_nanos());
    let probe = |number: u64| {
        let at = number * EVERY;
        let clock = |region, time: u64| {
            // A million seconds is beyond what any clock is behind.
            Stamp::from_nanos(
                (1_000_000_000_000_000 + time).saturating_add_signed(ahead(matrix.name(region), at)),
            )
        };
        let arrived = at + there + jitter();
        Exchange {
            sent: clock(from, at),
            received: clock(to, arrived),
            replied: clock(from, arrived + back + jitter()),
        }
    };
    (0..PROBES).map(probe).collect()
}

fn measured(matrix: &Matrix, from: RegionId, to: RegionId, estimate: Estimate) -> Accuracy {
    let parameters = Parameters { estimate, ..Parameters::for_rtt(Span::from_millis(250)) };
    replay(&trace(matrix, from, to), parameters)
}

fn misprediction(accuracy: &Accuracy) -> Option<f64> {
    accuracy.misprediction(99).map(Span::as_millis_f64)
}

/// A cell of Table 4.2 or 4.3: the figure is called `t42-FROM-TO` or `t43-FROM-TO`.
pub(super) fn cell(lab: &mut Lab) -> anyhow::Result<Finding> {
    let matrix = Topology::Globe.matrix()?;
    let mut words = lab.figure().split('-');
    let estimate = match words.next() {
        Some("t42") => Estimate::HalfRoundTrip,
        _ => Estimate::OneWay,
    };
    let mut region = || matrix.region(&words.next().unwrap_or_default().to_uppercase());
    let (Some(from), Some(to)) = (region(), region()) else { return Ok(Finding::Absent) };
    Ok(misprediction(&measured(&matrix, from, to, estimate)).into())
}

/// The least or the greatest of something over all pairs.
fn over_pairs(
    estimate: Estimate,
    wanted: impl Fn(&str, &str) -> bool,
    of: impl Fn(&Accuracy) -> Option<f64>,
    better: impl Fn(f64, f64) -> f64,
) -> anyhow::Result<Finding> {
    let matrix = Topology::Globe.matrix()?;
    let mut found: Option<f64> = None;
    for from in matrix.regions() {
        for to in matrix.regions().filter(|to| *to != from && wanted(matrix.name(from), matrix.name(*to))) {
            let one = of(&measured(&matrix, from, to, estimate));
            found = one.map(|one| found.map_or(one, |found| better(found, one))).or(found);
        }
    }
    Ok(found.into())
}

/// The greatest misprediction of one-way delays.
pub(super) fn one_way_most(_: &mut Lab) -> anyhow::Result<Finding> {
    over_pairs(Estimate::OneWay, |_, _| true, misprediction, f64::max)
}

/// The least misprediction of half a round trip to NSW.
pub(super) fn half_least_to_nsw(_: &mut Lab) -> anyhow::Result<Finding> {
    over_pairs(Estimate::HalfRoundTrip, |_, to| to == "NSW", misprediction, f64::min)
}

/// How many of a hundred predictions were right: for the pair with the fewest.
pub(super) fn fewest_right(_: &mut Lab) -> anyhow::Result<Finding> {
    over_pairs(Estimate::OneWay, |_, _| true, Accuracy::correct, f64::min)
}

/// The same for the pair with the most.
pub(super) fn most_right(_: &mut Lab) -> anyhow::Result<Finding> {
    over_pairs(Estimate::OneWay, |_, _| true, Accuracy::correct, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_nsw_wanders_to_either_side_and_comes_back() {
        let length = EVERY * PROBES;
        let ms = |eighths: u64| ahead("NSW", length * eighths / 8) / 1_000_000;
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(ms), [0, 15, 30, 15, 0, -15, -30, -15, 0]);
    }

    #[test]
    fn one_way_delays_predict_far_better_than_half_round_trips_where_clocks_differ() {
        let matrix = Topology::Globe.matrix().unwrap();
        let at = |from: &str, to: &str, estimate| {
            let (from, to) = (matrix.region(from).unwrap(), matrix.region(to).unwrap());
            misprediction(&measured(&matrix, from, to, estimate)).unwrap()
        };
        for (from, to) in [("VA", "HK"), ("VA", "NSW"), ("NSW", "WA")] {
            let (clocks, half) = (at(from, to, Estimate::OneWay), at(from, to, Estimate::HalfRoundTrip));
            assert!((4.5..=6.5).contains(&clocks) && half > 20.0, "{from} to {to}: {clocks} and {half} ms");
        }
        // Towards a clock that is behind half a round trip is never late, and far too much.
        let back = over_pairs(
            Estimate::HalfRoundTrip,
            |from, to| (from, to) == ("HK", "VA"),
            Accuracy::correct,
            f64::min,
        );
        assert!(matches!(back.unwrap(), Finding::Measured(right) if right > 99.9));
    }
}
