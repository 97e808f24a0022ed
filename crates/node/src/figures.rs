//! Rates and quantiles of the last seconds, from readings of a counter that only rises.

use crate::metrics::{Counts, KeyspaceMetrics};
use isochrone_core::Span;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the clients of a node, or of a region's nodes, have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Commands answered since the start.
    pub operations: u64,
    /// Commands answered a second.
    #[serde(rename = "operations_per_second")]
    pub rate: f64,
    /// Median, milliseconds; none where nothing was answered.
    pub p50_ms: Option<f64>,
    /// 99th percentile, milliseconds.
    pub p99_ms: Option<f64>,
    /// Median of those that may have changed something: reads may be faster than the floor of writes.
    pub write_p50_ms: Option<f64>,
}

/// What has been counted of commands.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// All commands.
    pub commands: Counts,
    /// Those that may have changed something.
    pub writes: Counts,
}

impl Reading {
    /// Adds what a node has counted of a keyspace.
    pub fn add(&mut self, metrics: &KeyspaceMetrics) {
        self.commands.add(&metrics.commands.read());
        self.writes.add(&metrics.writes.read());
    }

    fn since(&self, earlier: &Reading) -> Reading {
        Reading {
            commands: self.commands.since(&earlier.commands),
            writes: self.writes.since(&earlier.writes),
        }
    }
}

/// Readings of the last while, and the first.
pub struct Readings {
    window: Duration,
    first: Option<Instant>,
    recent: VecDeque<(Instant, Reading)>,
}

impl Readings {
    /// Figures will be those of the last `window`.
    pub fn over(window: Duration) -> Readings {
        Readings { window, first: None, recent: VecDeque::new() }
    }

    /// Adds a reading. Time does not go back.
    pub fn add(&mut self, now: Instant, reading: Reading) {
        self.first.get_or_insert(now);
        self.recent.push_back((now, reading));
        // The oldest that is kept is the youngest outside the window. Readings come a little early or late.
        let window = self.window.mul_f64(0.95);
        while self.recent.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= window) {
            self.recent.pop_front();
        }
    }

    /// Of the window.
    pub fn recent(&self) -> Figures {
        match (self.recent.front(), self.recent.back()) {
            (Some((from, before)), Some((to, after))) => figures(after, &after.since(before), *to - *from),
            _ => Figures::default(),
        }
    }

    /// Of all time.
    pub fn whole(&self) -> Figures {
        match (self.first, self.recent.back()) {
            (Some(first), Some((now, reading))) => figures(reading, reading, *now - first),
            _ => Figures::default(),
        }
    }
}

fn figures(all: &Reading, reading: &Reading, period: Duration) -> Figures {
    let quantile = |counts: &Counts, share| counts.quantile(share).map(Span::as_millis_f64);
    let Reading { commands, writes } = reading;
    let seconds = period.as_secs_f64();
    Figures {
        operations: all.commands.count(),
        rate: if seconds > 0.0 { commands.count() as f64 / seconds } else { 0.0 },
        p50_ms: quantile(commands, 0.5),
        p99_ms: quantile(commands, 0.99),
        write_p50_ms: quantile(writes, 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_forget_what_left_the_window() {
        let start = Instant::now();
        let (metrics, mut readings) = (KeyspaceMetrics::default(), Readings::over(Duration::from_secs(2)));
        let mut second = 0;
        let mut pass = |readings: &mut Readings, millis: u64, count: u64| {
            (0..count).for_each(|_| metrics.commands.record(Span::from_millis(millis)));
            // As many writes, which take twice as long as all together.
            (0..count).for_each(|_| metrics.writes.record(Span::from_millis(2 * millis)));
            let mut reading = Reading::default();
            reading.add(&metrics);
            readings.add(start + Duration::from_secs(second), reading);
            second += 1;
        };
        pass(&mut readings, 0, 0);
        pass(&mut readings, 100, 30);
        let early = readings.recent();
        assert_eq!((early.operations, early.rate), (30, 30.0));
        assert!(early.p50_ms.is_some_and(|p50| (97.0..103.0).contains(&p50)), "{early:?}");
        assert!(early.write_p50_ms.is_some_and(|p50| (194.0..206.0).contains(&p50)), "{early:?}");
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
