//! Many seeds of one keyspace, and what they show together, whatever its clients did.

use super::{replay, seeds, show_flow};
use crate::Status;
use crate::arguments::Sim;
use crate::output::bar;
use isochrone_core::deployment::ConfigErrors;
use isochrone_sim::{Load, Traffic, Violation, run_seeds};
use isochrone_workload::trial::Outcome;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// What every campaign prints.
#[derive(Serialize)]
pub(super) struct Campaign {
    pub(super) seeds: u64,
    violations: Vec<Broken>,
    undecided: u64,
    events: u64,
    events_per_second: f64,
    faults: BTreeMap<&'static str, u64>,
    virtual_seconds: f64,
    seconds: f64,
    runs_repeated: u64,
    hash: String,
    #[serde(skip_serializing_if = "Traffic::is_empty")]
    traffic: Traffic,
    /// Requests whose outcome clients heard.
    #[serde(skip)]
    pub(super) operations: u64,
    #[serde(skip)]
    reasons: Vec<(u64, String)>,
    /// The faults of the first seed.
    #[serde(skip)]
    plan: String,
    /// How many of a million messages are lost as the file says, where that is all that befalls them.
    #[serde(skip)]
    file_loss: Option<u32>,
}

/// A violation, and the command that shows it again.
#[derive(Serialize)]
struct Broken {
    seed: u64,
    kind: String,
    at_ms: f64,
    text: String,
    replay: String,
}

struct Gathered<T> {
    /// Events, and the time they took.
    events: u64,
    simulating: std::time::Duration,
    undecided: Vec<(u64, String)>,
    /// The seeds that are in the figures.
    merged: BTreeSet<u64>,
    figures: T,
}

/// Runs the seeds that were asked for, and merges what they measured into `figures`. One run comes first, on this
/// thread: it shows wrong parameters as such, is what `--trace` shows, and is handed to `first`.
pub(super) fn run<G, F: Send, H, T: Send>(
    arguments: &Sim,
    file_loss: Option<u32>,
    trial: impl Fn(u64) -> Result<Outcome<G, F, H>, ConfigErrors> + Sync,
    figures: T,
    merge: impl Fn(&mut T, &Outcome<G, F, H>) + Sync,
    first: impl FnOnce(&Outcome<G, F, H>) -> anyhow::Result<()>,
) -> anyhow::Result<(Campaign, T)> {
    let seeds = seeds(arguments);
    let shown = trial(seeds.first)?;
    show_flow(arguments, &shown.trace, &shown.drawing)?;
    first(&shown)?;
    let gathered = Gathered {
        events: 0,
        simulating: Default::default(),
        undecided: Vec::new(),
        merged: BTreeSet::new(),
        figures,
    };
    let gathered = Mutex::new(gathered);
    let progress = bar("simulating", seeds.count);
    let summary = run_seeds(
        &seeds,
        |seed| match trial(seed) {
            Ok(outcome) => {
                let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
                gathered.events += outcome.report.events;
                gathered.simulating += outcome.elapsed;
                // Some are run twice, to see that both runs are the same.
                if gathered.merged.insert(seed) {
                    merge(&mut gathered.figures, &outcome);
                    gathered.undecided.extend(outcome.undecided.map(|reason| (seed, reason)));
                }
                outcome.report
            }
            Err(errors) => panic!("the same parameters were good before: {errors}"),
        },
        |summary| progress.set_position(summary.seeds),
    );
    progress.finish_and_clear();
    let mut gathered = gathered.into_inner().unwrap_or_else(PoisonError::into_inner);
    gathered.undecided.sort();
    let campaign = Campaign {
        seeds: summary.seeds,
        violations: summary.violations.iter().map(|violation| broken(arguments, violation)).collect(),
        undecided: gathered.undecided.len() as u64,
        events: summary.events,
        events_per_second: (gathered.events as f64 / gathered.simulating.as_secs_f64().max(1e-9)).round(),
        faults: summary.faults.iter().map(|(kind, count)| (kind.name(), count)).collect(),
        virtual_seconds: summary.virtual_time.as_secs_f64(),
        seconds: summary.elapsed.as_secs_f64(),
        runs_repeated: summary.twice,
        hash: format!("{:016x}", summary.hash()),
        traffic: summary.traffic,
        operations: summary.operations,
        reasons: gathered.undecided,
        plan: shown.plan,
        file_loss,
    };
    Ok((campaign, gathered.figures))
}

fn broken(arguments: &Sim, violation: &Violation) -> Broken {
    Broken {
        seed: violation.seed,
        kind: format!("{:?}", violation.kind).to_lowercase(),
        at_ms: violation.at.as_millis_f64(),
        text: violation.text.clone(),
        replay: replay(arguments, violation.seed),
    }
}

impl Campaign {
    /// What it has shown.
    pub(super) fn status(&self) -> Status {
        match (self.violations.len(), self.undecided) {
            (0, 0) => Status::Held,
            (0, _) => Status::Undecided,
            _ => Status::Failed,
        }
    }

    /// The table of messages between nodes, if it was asked for; `share` of all is what each of `what` takes.
    pub(super) fn traffic(&self, what: &str, share: f64) -> String {
        if self.traffic.is_empty() {
            return String::new();
        }
        let longest = self.traffic.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let width = longest.max("message".len());
        let mut text = format!(
            "\nbetween nodes, for each {what}\n{:width$}  {:>9}  {:>14}  {:>10}  {:>10}\n",
            "message", "messages", "across regions", "bytes", "bytes each"
        );
        let mut sum = Load::default();
        let mut line = |name: &str, load: Load| {
            let [messages, across, bytes] =
                [load.messages, load.across, load.bytes].map(|n| n as f64 * share);
            let each = load.bytes as f64 / load.messages.max(1) as f64;
            text += &format!("{name:width$}  {messages:>9.3}  {across:>14.3}  {bytes:>10.1}  {each:>10.1}\n");
        };
        for (name, load) in self.traffic.iter() {
            line(name, load);
            sum.messages += load.messages;
            sum.across += load.across;
            sum.bytes += load.bytes;
        }
        line("all", sum);
        text
    }

    /// The whole text: `subject` is what ran, `counted` what its clients did, and `figures` the tables.
    pub(super) fn show(&self, subject: &str, counted: &str, figures: &str) -> String {
        let mut text = String::new();
        let mut line = |words: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{words}");
        };
        line(format_args!(
            "{subject}: {} {}, {counted}, {} events, {:.2} M events/s a core, {:.0} virtual s in {:.1} s",
            self.seeds,
            if self.seeds == 1 { "seed" } else { "seeds" },
            self.events,
            self.events_per_second / 1e6,
            self.virtual_seconds,
            self.seconds,
        ));
        let total: u64 = self.faults.values().sum();
        if let Some(per_million) = self.file_loss {
            let (share, lost) = (f64::from(per_million) / 1e4, self.faults.get("loss").unwrap_or(&0));
            line(format_args!("\nnetwork: {share} % of the messages lost, as the file says ({lost})"));
        } else if total > 0 {
            if self.seeds == 1 {
                line(format_args!("\n{}", self.plan.trim_end()));
            }
            let counts: Vec<_> = self.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            line(format_args!("\n{total} faults: {}", counts.join(", ")));
        }
        line(format_args!("{figures}"));
        for violation in &self.violations {
            line(format_args!(
                "VIOLATION ({}) in seed {} at {:.3} ms",
                violation.kind, violation.seed, violation.at_ms
            ));
            line(format_args!("{}\nreplay: {}\n", violation.text, violation.replay));
        }
        for (seed, reason) in &self.reasons {
            line(format_args!("UNDECIDED seed {seed}: {reason}"));
        }
        line(format_args!(
            "{} violations, {} undecided, {} runs repeated with equal traces",
            self.violations.len(),
            self.undecided,
            self.runs_repeated
        ));
        text
    }
}
