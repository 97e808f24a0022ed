//! What `sim` and `bench` have in common where they run transactions: how these ended and what they took, as it is printed.

use crate::Usage;
use isochrone_workload::Quantiles;
use isochrone_workload::transactions::{Figures, Tally, Workload};
use serde::Serialize;

/// Gives a workload another number of records, where one was asked for.
pub(crate) fn size(workload: &mut Workload, records: Option<u64>) -> Result<(), Usage> {
    workload.records = records.unwrap_or(workload.records);
    let Workload { name, records, .. } = *workload;
    // A transaction of Retwis touches up to ten different keys.
    if records < 10 && matches!(name, "retwis" | "ycsbt") || records < 2 {
        return Err(Usage(format!("--records {records}: {name} needs more; use at least 10")));
    }
    Ok(())
}

/// The figures of a run. Latencies are of what committed, in milliseconds.
#[derive(Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    pub(crate) tally: Tally,
    abort_rate: f64,
    /// Of a second of the part of the run that is measured.
    pub(crate) committed_per_second: f64,
    /// Of all regions and kinds; nothing where nothing has committed.
    all: Option<Line>,
    regions: Vec<Line>,
    kinds: Vec<Line>,
}

/// The figures of a region, or of a kind of transaction.
#[derive(Serialize)]
struct Line {
    name: String,
    committed: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    mean_ms: f64,
    /// Not known of a kind.
    abort_rate: Option<f64>,
}

impl Line {
    fn of(name: &str, figures: Quantiles, abort_rate: Option<f64>) -> Line {
        let Quantiles { operations: committed, p50_ms, p95_ms, p99_ms, mean_ms, .. } = figures;
        Line { name: name.to_owned(), committed, p50_ms, p95_ms, p99_ms, mean_ms, abort_rate }
    }
}

impl Shown {
    /// Of clients in these regions, whose part that is measured took so many seconds.
    pub(crate) fn of(figures: &Figures, regions: &[&str], seconds: f64) -> Shown {
        let (recorder, tally) = (figures.recorder(), figures.tally(None));
        let region = |(at, name): (usize, &&str)| {
            let aborts = figures.tally(Some(at)).abort_rate();
            Some(Line::of(name, recorder.region(at, None)?, Some(aborts)))
        };
        let kinds = recorder.kinds().into_iter();
        Shown {
            abort_rate: tally.abort_rate(),
            committed_per_second: tally.committed as f64 / seconds.max(1e-9),
            all: recorder.all().map(|all| Line::of("all", all, Some(tally.abort_rate()))),
            regions: regions.iter().enumerate().filter_map(region).collect(),
            kinds: kinds.filter_map(|kind| Some(Line::of(kind.name(), recorder.kind(kind)?, None))).collect(),
            tally,
        }
    }

    /// Tries that have ended, however.
    pub(crate) fn ended(&self) -> u64 {
        let Tally { committed, aborted, given_up, refused, unknown } = &self.tally;
        committed + aborted.values().sum::<u64>() + given_up + refused + unknown
    }

    /// A table of the regions, and one of what was asked.
    pub(crate) fn tables(&self) -> String {
        let regions: Vec<_> = self.regions.iter().chain(&self.all).collect();
        let kinds: Vec<_> = self.kinds.iter().collect();
        let mut text = String::new();
        for (title, lines) in [("region", regions), ("kind", kinds)] {
            if !lines.is_empty() {
                text += &format!("\n{}", table(title, &lines));
            }
        }
        text
    }

    /// One line of all together; `more` stands in its midst.
    pub(crate) fn summary(&self, more: &str) -> String {
        let tally = &self.tally;
        let counts = tally.aborted.iter().map(|(reason, count)| (*reason, *count));
        let others =
            [("given up by clients", tally.given_up), ("refused", tally.refused), ("unknown", tally.unknown)];
        let counts: Vec<String> = counts
            .chain(others.into_iter().filter(|(_, count)| *count > 0))
            .map(|(what, count)| format!("{what} {count}"))
            .collect();
        format!(
            "\n{:.1} committed a second, {more}{:.2} % aborted{}{}\n",
            self.committed_per_second,
            self.abort_rate * 100.0,
            if counts.is_empty() { "" } else { ": " },
            counts.join(", ")
        )
    }
}

fn table(title: &str, lines: &[&Line]) -> String {
    let width = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0).max(title.len());
    let aborts = lines.iter().any(|line| line.abort_rate.is_some());
    let mut text = format!(
        "{title:width$}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}{}\n",
        "committed",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "mean ms",
        if aborts { "  aborted %" } else { "" }
    );
    for line in lines {
        let rate = line.abort_rate.map_or_else(String::new, |rate| format!("  {:>9.2}", rate * 100.0));
        text += &format!(
            "{:width$}  {:>10}  {:>9.2}  {:>9.2}  {:>9.2}  {:>9.2}{rate}\n",
            line.name, line.committed, line.p50_ms, line.p95_ms, line.p99_ms, line.mean_ms
        );
    }
    text
}
