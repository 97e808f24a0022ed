//! How transactions ended, and how long those took that committed.

use super::plan::Kind;
use crate::{Recorder, Window};
use isochrone_core::Instant;
use isochrone_transactions::Reason;
use serde::Serialize;
use std::collections::BTreeMap;

/// How one try of a transaction ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It took effect, or read what it asked for.
    Committed,
    /// It took none.
    Aborted(Reason),
    /// It was not taken up.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// What a run measured: latencies of what committed (`specs/carousel.md` 8.15: from its beginning to its outcome), and
/// how everything ended.
#[derive(Clone, Debug)]
pub struct Figures {
    recorder: Recorder<Kind>,
    ends: BTreeMap<(usize, End), u64>,
}

impl Figures {
    /// Counts what begins in `window`.
    pub fn new(window: Window) -> Figures {
        Figures { recorder: Recorder::new(window), ends: BTreeMap::new() }
    }

    /// Counts one try: of a transaction that began at `begun` in `region`, the first try of it, and ended at `ended`.
    pub fn record(&mut self, region: usize, kind: Kind, begun: Instant, ended: Instant, end: End) {
        if self.recorder.window().contains(begun) {
            *self.ends.entry((region, end)).or_default() += 1;
        }
        if end == End::Committed {
            self.recorder.record(region, kind, begun, ended);
        }
    }

    /// Takes in what another has counted.
    pub fn merge(&mut self, other: &Figures) {
        self.recorder.merge(&other.recorder);
        for (end, count) in &other.ends {
            *self.ends.entry(*end).or_default() += count;
        }
    }

    /// The latencies.
    pub fn recorder(&self) -> &Recorder<Kind> {
        &self.recorder
    }

    /// How the transactions of one region ended, or of all.
    pub fn tally(&self, region: Option<usize>) -> Tally {
        let mut tally = Tally::default();
        for (&(at, end), &count) in &self.ends {
            if region.is_some_and(|region| region != at) {
                continue;
            }
            match end {
                End::Committed => tally.committed += count,
                End::Aborted(Reason::Client) => tally.given_up += count,
                End::Aborted(reason) => *tally.aborted.entry(reason.name()).or_default() += count,
                End::Refused => tally.refused += count,
                End::Unknown => tally.unknown += count,
            }
        }
        tally
    }
}

/// Tries by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// They took effect.
    pub committed: u64,
    /// They did not, by reason.
    pub aborted: BTreeMap<&'static str, u64>,
    /// Their clients gave them up, as the workload has it.
    pub given_up: u64,
    /// They were not taken up.
    pub refused: u64,
    /// Nobody knows.
    pub unknown: u64,
}

impl Tally {
    /// Aborted of those that were committed or aborted, 0 to 1; what clients gave up themselves does not count.
    pub fn abort_rate(&self) -> f64 {
        let aborted: u64 = self.aborted.values().sum();
        match self.committed + aborted {
            0 => 0.0,
            finished => aborted as f64 / finished as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_rate_leaves_out_what_clients_gave_up() {
        let mut figures = Figures::new(Window::ALL);
        let at = Instant::from_nanos;
        for (region, end, count) in [
            (0, End::Committed, 6),
            (1, End::Committed, 3),
            (1, End::Aborted(Reason::Conflict), 1),
            (1, End::Aborted(Reason::Client), 5),
        ] {
            for _ in 0..count {
                figures.record(region, Kind::Transfer, at(0), at(5), end);
            }
        }
        assert!((figures.tally(None).abort_rate() - 0.1).abs() < 1e-9);
        assert!((figures.tally(Some(1)).abort_rate() - 0.25).abs() < 1e-9);
        assert_eq!(figures.recorder().operations(), 9);
    }
}
