//! Rates and quantiles of the last seconds, from readings of a counter that only rises.

use isochrone_node::metrics::Counts;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a region's clients have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Commands answered since the start.
    pub(crate) operations: u64,
    /// Commands answered a second.
    pub(crate) rate: f64,
    /// Median, milliseconds; none where nothing was answered.
    pub(crate) p50_ms: Option<f64>,
    /// 99th percentile, milliseconds.
    pub(crate) p99_ms: Option<f64>,
}

/// Readings of the last while, and the first.
pub(crate) struct Readings {
    window: Duration,
    first: Option<Instant>,
    recent: VecDeque<(Instant, Counts)>,
}

impl Readings {
    /// Figures will be those of the last `window`.
    pub(crate) fn over(window: Duration) -> Readings {
        Readings { window, first: None, recent: VecDeque::new() }
    }

    /// Adds a reading. Time does not go back.
    pub(crate) fn add(&mut self, now: Instant, counts: Counts) {
        self.first.get_or_insert(now);
        self.recent.push_back((now, counts));
        // The oldest that is kept is the youngest outside the window. Readings come a little early or late.
        let window = self.window.mul_f64(0.95);
        while self.recent.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
            self.recent.pop_front();
        }
    }

    /// Of the window.
    pub(crate) fn recent(&self) -> Figures {
        match (self.recent.front(), self.recent.back()) {
            (Some((from, before)), Some((to, after))) => figures(after, &after.since(before), *to - *from),
            _ => Figures::default(),
        }
    }

    /// Of all time.
    pub(crate) fn whole(&self) -> Figures {
        match (self.first, self.recent.back()) {
            (Some(first), Some((now, counts))) => figures(counts, counts, *now - first),
            _ => Figures::default(),
        }
    }
}

fn figures(all: &Counts, counts: &Counts, period: Duration) -> Figures {
    let quantile = |share| counts.quantile(share).map(isochrone_core::Span::as_millis_f64);
    let seconds = period.as_secs_f64();
    Figures {
        operations: all.count(),
        rate: if seconds > 0.0 { counts.count() as f64 / seconds } else { 0.0 },
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_core::Span;
    use isochrone_node::metrics::Histogram;

    #[test]
    fn figures_forget_what_left_the_window() {
        let start = Instant::now();
        let (histogram, mut readings) = (Histogram::default(), Readings::over(Duration::from_secs(2)));
        let mut second = 0;
        let mut pass = |readings: &mut Readings, millis: u64, count: u64| {
            (0..count).for_each(|_| histogram.record(Span::from_millis(millis)));
            readings.add(start + Duration::from_secs(second), histogram.read());
            second += 1;
        };
        pass(&mut readings, 0, 0);
        pass(&mut readings, 100, 30);
        let early = readings.recent();
        assert_eq!((early.operations, early.rate), (30, 30.0));
        assert!(early.p50_ms.is_some_and(|p50| (97.0..103.0).contains(&p50)), "{early:?}");
        for _ in 0..3 {
            pass(&mut readings, 10, 5);
        }
        let late = readings.recent();
        assert_eq!((late.operations, late.rate), (45, 5.0));
        assert!(late.p99_ms.is_some_and(|p99| (9.7..10.3).contains(&p99)), "{late:?}");
        pass(&mut readings, 0, 0);
        pass(&mut readings, 0, 0);
        assert_eq!(readings.recent(), Figures { operations: 45, ..Figures::default() });
        let whole = readings.whole();
        assert_eq!((whole.operations, whole.rate), (45, 7.5));
        assert!(whole.p50_ms.is_some_and(|p50| p50 > 97.0), "{whole:?}");
    }
}
