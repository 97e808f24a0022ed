//! What came of training, for people and for programs.

use isochrone_learn::Report;
use serde::{Serialize, Serializer};
use std::fmt::Write;

/// What came of it, and what `--format json` prints. Times in seconds.
#[derive(Default, Serialize)]
pub(super) struct Told {
    pub(super) samples: u64,
    pub(super) features: u32,
    pub(super) values: u64,
    pub(super) classes: Vec<f64>,
    pub(super) scheme: String,
    /// That had samples to learn from.
    pub(super) threads: usize,
    pub(super) epochs: u32,
    pub(super) reading: f64,
    /// Beside what was hidden behind the reading.
    pub(super) planning: f64,
    pub(super) learning: f64,
    pub(super) samples_per_second: f64,
    pub(super) nanoseconds_per_value: f64,
    pub(super) polls: u64,
    pub(super) restarts: u64,
    pub(super) blocked: f64,
    /// Mean over the classes where there are more than two. Of the samples learnt from; unknown where they come in batches.
    pub(super) objective: Option<f64>,
    /// Mean loss of the samples kept out.
    pub(super) held_out_loss: Option<f64>,
    /// Of the samples learnt from.
    #[serde(serialize_with = "by_name")]
    pub(super) figures: Vec<(&'static str, f64)>,
    /// The same of the samples kept out; none where there are none.
    #[serde(serialize_with = "by_name")]
    pub(super) held_out_figures: Vec<(&'static str, f64)>,
}

/// Names of figures are keys, as those of `learn evaluate` are.
pub(super) fn by_name<S: Serializer>(figures: &[(&'static str, f64)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(figures.iter().copied())
}

impl Told {
    /// Adds a run over so many samples.
    pub(super) fn add(&mut self, report: &Report) {
        self.epochs = self.epochs.max(report.epochs);
        self.threads = self.threads.max(report.threads);
        self.planning += report.planning.as_secs_f64();
        self.learning += report.elapsed.as_secs_f64();
        for worker in &report.workers {
            self.polls += worker.read_polls + worker.write_polls + worker.intercept_polls;
            self.restarts += worker.restarts;
            self.blocked += worker.blocked.as_secs_f64();
        }
    }

    /// Sets the rates: `seen` samples and `touched` values in all epochs and classes.
    pub(super) fn rate(&mut self, seen: u64, touched: u64) {
        let seconds = self.learning.max(1e-9);
        self.samples_per_second = seen as f64 / seconds;
        self.nanoseconds_per_value = seconds * 1e9 / touched.max(1) as f64;
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, what: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<16} {what}");
        };
        let classes = match self.classes.len() {
            0 => String::new(),
            count => format!(", {count} classes"),
        };
        row(
            "data",
            format!("{} samples, {} features, {} values{classes}", self.samples, self.features, self.values),
        );
        let (threads, epochs) = (count(self.threads, "thread"), count(self.epochs as usize, "epoch"));
        row("scheme", format!("{}, {threads}, {epochs}", self.scheme));
        row("reading", seconds(self.reading));
        row("planning", seconds(self.planning));
        let rate = format!(
            "{}: {:.3} M samples/s, {:.2} ns a value",
            seconds(self.learning),
            self.samples_per_second / 1e6,
            self.nanoseconds_per_value
        );
        row("learning", rate);
        row(
            "waits",
            format!("{} polls, {} restarts, {} blocked", self.polls, self.restarts, seconds(self.blocked)),
        );
        if let Some(objective) = self.objective {
            row("objective", format!("{objective:.6}"));
        }
        if let Some(loss) = self.held_out_loss {
            row("held out", format!("{loss:.6} mean loss"));
        }
        if !self.held_out_figures.is_empty() {
            row("", "held out     training".to_owned());
        }
        for (at, (name, value)) in self.figures.iter().enumerate() {
            let figures = match self.held_out_figures.get(at) {
                Some((_, held)) => format!("{held:<12.6} {value:.6}"),
                None => format!("{value:.6}"),
            };
            row(&spelt(name), figures);
        }
        text
    }
}

/// The name of a figure in a column of names.
pub(super) fn spelt(name: &str) -> String {
    name.replace("mean_absolute_error", "mean abs. error").replace('_', " ")
}

pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn seconds(number: f64) -> String {
    format!("{number:.3} s")
}
