//! Latencies per region and kind of request, from histograms of three significant digits.

use crate::Kind;
use hdrhistogram::Histogram;
use isochrone_core::{Instant, Span};
use serde::Serialize;
use std::collections::BTreeMap;

/// The part of a run that counts: ramp-up and cool-down are cut, by when a request was *due*.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Requests due before this do not count.
    pub from: Instant,
    /// Requests due at or after this do not count.
    pub until: Instant,
}

impl Window {
    /// The middle of a run of `duration` from `start`: a tenth is cut at either end, at most 5 s each.
    pub fn middle(start: Instant, duration: Span) -> Window {
        let cut = Span::from_nanos((duration.as_nanos() / 10).min(Span::from_secs(5).as_nanos()));
        Window { from: start + cut, until: start + duration.saturating_sub(cut) }
    }

    /// Everything.
    pub const ALL: Window = Window { from: Instant::ZERO, until: Instant::MAX };

    /// Whether it is within.
    pub fn contains(&self, at: Instant) -> bool {
        (self.from..self.until).contains(&at)
    }

    /// How long the window is.
    pub fn length(&self) -> Span {
        self.until.since(self.from)
    }
}

/// Collects the latencies of a run, by what was asked: `K` tells it apart.
#[derive(Clone, Debug)]
pub struct Recorder<K = Kind> {
    window: Window,
    cells: BTreeMap<(usize, K), Cell>,
    /// Answered within the window, whenever they were due.
    answered: u64,
}

/// Histograms round to three digits; the sum does not, so that means are exact.
#[derive(Clone, Debug)]
struct Cell {
    counted: Histogram<u64>,
    sum_nanos: u128,
}

impl Cell {
    fn new() -> Cell {
        Cell { counted: histogram(), sum_nanos: 0 }
    }

    fn add(&mut self, other: &Cell) {
        add(&mut self.counted, &other.counted);
        self.sum_nanos += other.sum_nanos;
    }
}

/// The figures of one set of requests. Latencies in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// How many requests counted.
    pub operations: u64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The 999th of a thousand: the tail that chains of waiting commands show in.
    pub p999_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Latencies are kept from 1 ns to this; a longer one counts as this long.
const LONGEST: Span = Span::from_secs(3600);

#[expect(clippy::expect_used, reason = "the bounds are constants that hdrhistogram takes")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST.as_nanos(), 3).expect("bounds of a histogram")
}

#[expect(clippy::expect_used, reason = "all histograms here have the same bounds")]
fn add(sum: &mut Histogram<u64>, counted: &Histogram<u64>) {
    sum.add(counted).expect("histograms of equal bounds");
}

impl<K: Copy + Ord> Recorder<K> {
    /// A recorder that counts the requests due within `window`, and those answered within it.
    pub fn new(window: Window) -> Recorder<K> {
        Recorder { window, cells: BTreeMap::new(), answered: 0 }
    }

    /// Counts a request of `region` that was due at `due` and answered at `answered`.
    pub fn record(&mut self, region: usize, kind: K, due: Instant, answered: Instant) {
        if self.window.contains(answered) {
            self.answered += 1;
        }
        if !self.window.contains(due) {
            return;
        }
        let nanos = answered.since(due).as_nanos().clamp(1, LONGEST.as_nanos());
        let cell = self.cells.entry((region, kind)).or_insert_with(Cell::new);
        cell.counted.saturating_record(nanos);
        cell.sum_nanos += u128::from(nanos);
    }

    /// Takes in what another recorder counted.
    pub fn merge(&mut self, other: &Recorder<K>) {
        for (cell, counted) in &other.cells {
            self.cells.entry(*cell).or_insert_with(Cell::new).add(counted);
        }
        self.answered += other.answered;
    }

    /// How many were answered a second, in the window: also of those that were due before, which a server that has fallen
    /// behind answers first, and none of those that it still owes.
    pub fn throughput(&self) -> f64 {
        self.answered as f64 / self.window.length().as_secs_f64()
    }

    /// How many requests counted.
    pub fn operations(&self) -> u64 {
        self.cells.values().map(|cell| cell.counted.len()).sum()
    }

    /// The figures of a region, of all kinds or of one; `None` where nothing counted.
    pub fn region(&self, region: usize, kind: Option<K>) -> Option<Quantiles> {
        self.sum(|&(at, of)| at == region && kind.is_none_or(|kind| kind == of))
    }

    /// The figures of one kind over all regions.
    pub fn kind(&self, kind: K) -> Option<Quantiles> {
        self.sum(|&(_, of)| of == kind)
    }

    /// The figures of all regions and kinds.
    pub fn all(&self) -> Option<Quantiles> {
        self.sum(|_| true)
    }

    /// The latency that this share of the requests did not exceed, milliseconds; of one region or of all.
    pub fn quantile(&self, share: f64, region: Option<usize>) -> Option<f64> {
        let all = self.gathered(|&(at, _)| region.is_none_or(|region| region == at)).counted;
        (!all.is_empty()).then(|| all.value_at_quantile(share) as f64 / 1e6)
    }

    /// The same of one kind over all regions.
    pub fn quantile_of(&self, kind: K, share: f64) -> Option<f64> {
        let counted = self.gathered(|&(_, of)| of == kind).counted;
        (!counted.is_empty()).then(|| counted.value_at_quantile(share) as f64 / 1e6)
    }

    /// The mean latency over all regions and kinds, milliseconds, not rounded.
    pub fn mean(&self) -> Option<f64> {
        let all = self.gathered(|_| true);
        let count = all.counted.len();
        (count > 0).then(|| all.sum_nanos as f64 / count as f64 / 1e6)
    }

    /// The distribution over all regions and kinds: latencies in milliseconds, rising, each with the share of the
    /// requests that took no longer.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let all = self.gathered(|_| true).counted;
        let mut below = 0;
        let steps = all.iter_recorded().map(|step| {
            below += step.count_since_last_iteration();
            (step.value_iterated_to() as f64 / 1e6, below as f64 / all.len() as f64)
        });
        steps.collect()
    }

    /// How long the counted part of the run was.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The kinds that were recorded, in order.
    pub fn kinds(&self) -> Vec<K> {
        let mut kinds: Vec<K> = self.cells.keys().map(|&(_, kind)| kind).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    fn gathered(&self, wanted: impl Fn(&(usize, K)) -> bool) -> Cell {
        let mut sum = Cell::new();
        for (cell, counted) in &self.cells {
            if wanted(cell) {
                sum.add(counted);
            }
        }
        sum
    }

    fn sum(&self, wanted: impl Fn(&(usize, K)) -> bool) -> Option<Quantiles> {
        let sum = self.gathered(wanted);
        let ms = |nanos: f64| (nanos / 1e3).round() / 1e3;
        let all = &sum.counted;
        (!all.is_empty()).then(|| Quantiles {
            operations: all.len(),
            p50_ms: ms(all.value_at_quantile(0.50) as f64),
            p95_ms: ms(all.value_at_quantile(0.95) as f64),
            p99_ms: ms(all.value_at_quantile(0.99) as f64),
            p999_ms: ms(all.value_at_quantile(0.999) as f64),
            mean_ms: ms(sum.sum_nanos as f64 / all.len() as f64),
            max_ms: ms(all.max() as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn quantiles_are_those_of_the_window() {
        let window = Window { from: at(1_000), until: at(2_000) };
        let mut recorder = Recorder::new(window);
        for i in 0..1_000 {
            recorder.record(0, Kind::Read, at(1_000 + i / 2), at(1_000 + i / 2 + 1 + i));
        }
        recorder.record(0, Kind::Read, at(999), at(90_000));
        recorder.record(0, Kind::Read, at(2_000), at(90_000));
        let figures = recorder.region(0, None).expect("requests counted");
        assert_eq!(figures.operations, 1_000);
        let measured = [figures.p50_ms, figures.p95_ms, figures.p99_ms, figures.p999_ms, figures.max_ms];
        for (measured, expected) in measured.into_iter().zip([500.0, 950.0, 990.0, 999.0, 1_000.0]) {
            assert!((measured - expected).abs() < 1.0, "{measured} for {expected}");
        }
        assert_eq!(recorder.region(1, None), None);
        let median = recorder.quantile_of(Kind::Read, 0.5).expect("reads counted");
        assert!((median - 500.0).abs() < 1.0, "{median}");
        assert_eq!(recorder.quantile_of(Kind::Update, 0.5), None);
        assert_eq!(recorder.mean(), Some(500.5));
    }

    #[test]
    fn throughput_is_of_what_was_answered_in_the_window() {
        let window = Window { from: at(1_000), until: at(3_000) };
        let mut recorder = Recorder::new(window);
        // Due long ago; due and answered; due and owed.
        for (due, answered) in [(0, 1_000), (0, 2_999), (1_000, 2_000), (2_000, 3_000), (2_000, 9_000)] {
            recorder.record(0, Kind::Read, at(due), at(answered));
        }
        assert_eq!((recorder.throughput(), recorder.operations()), (1.5, 3));
    }

    #[test]
    fn merging_counts_everything_once() {
        let mut left = Recorder::new(Window::ALL);
        let mut right = Recorder::new(Window::ALL);
        left.record(0, Kind::Read, at(0), at(10));
        right.record(0, Kind::Update, at(0), at(20));
        right.record(2, Kind::Read, at(0), at(30));
        left.merge(&right);
        assert_eq!((left.operations(), left.answered), (3, 3));
        assert_eq!(left.region(0, None).expect("counted").operations, 2);
        assert_eq!(left.kind(Kind::Read).expect("counted").operations, 2);
        assert_eq!(left.kinds(), [Kind::Read, Kind::Update]);
    }

    #[test]
    fn a_distribution_rises_to_the_whole() {
        let mut recorder = Recorder::new(Window::ALL);
        for (region, millis) in [(0, 10), (0, 10), (1, 30), (1, 40)] {
            recorder.record(region, Kind::Read, at(0), at(millis));
        }
        let steps = recorder.distribution();
        let shares: Vec<f64> = steps.iter().map(|(_, share)| *share).collect();
        assert_eq!(shares, [0.5, 0.75, 1.0]);
        assert!((steps[1].0 - 30.0).abs() < 0.1, "{steps:?}");
        let near = |share, region, expected: f64| {
            let found = recorder.quantile(share, region).expect("counted");
            assert!((found - expected).abs() < 0.1, "{found} for {expected}");
        };
        near(0.5, None, 10.0);
        near(0.5, Some(1), 30.0);
        assert_eq!(recorder.quantile(0.5, Some(2)), None);
    }

    #[test]
    fn a_window_cuts_a_tenth_at_either_end() {
        let window = Window::middle(at(0), Span::from_secs(10));
        assert_eq!((window.from, window.until), (at(1_000), at(9_000)));
        let long = Window::middle(at(0), Span::from_secs(100));
        assert_eq!((long.from, long.until), (at(5_000), at(95_000)));
    }
}
