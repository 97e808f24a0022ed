//! `isochrone sim` of a keyspace of transactions: latency, aborts, and whether they are as serializable as promised.

use super::campaign::{self, Campaign};
use super::{faults, terms, write_history};
use crate::arguments::{Format, Sim};
use crate::output::{print_json, print_text};
use crate::protocols::TransactionTrial;
use crate::{Status, Usage};
use anyhow::bail;
use isochrone_core::{Deployment, KeyspaceId, Span};
use isochrone_transactions::retry::Retry;
use isochrone_workload::transactions::{Figures, Keys, Outcome, Tally, Workload};
use isochrone_workload::{Quantiles, Window};
use serde::Serialize;

/// What `--format json` prints. Latencies are of what committed, in milliseconds.
#[derive(Serialize)]
struct Printed {
    protocol: String,
    workload: String,
    /// Of transactions that write.
    updates: String,
    /// Of those that only read.
    reads: String,
    #[serde(flatten)]
    campaign: Campaign,
    #[serde(flatten)]
    tally: Tally,
    abort_rate: f64,
    /// Of a second of the part of the run that is measured.
    committed_per_second: f64,
    messages_per_transaction: f64,
    /// What of all messages of the run belongs to one transaction.
    #[serde(skip)]
    share: f64,
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

/// Runs the verb.
pub(super) fn run(
    arguments: &Sim,
    deployment: &Deployment,
    keyspace: KeyspaceId,
    trial: TransactionTrial,
) -> anyhow::Result<Status> {
    let faults = faults(arguments)?;
    let default = if faults.is_empty() { "retwis" } else { "txn-check" };
    let workload = workload(arguments, deployment, arguments.workload.as_deref().unwrap_or(default))?;
    let terms = terms(arguments, deployment, workload, faults)?;
    let mut promised = (String::new(), String::new());
    let (campaign, gathered) = campaign::run(
        arguments,
        |seed| trial(deployment, keyspace, &terms, seed),
        Gathered { messages: 0.0, sent: 0, figures: Figures::new(Window::ALL), measured: 0.0 },
        Gathered::merge,
        |first| {
            promised = (first.guarantee.0.to_string(), first.guarantee.1.to_string());
            write_history(arguments, |file| first.history.write(file))
        },
    )?;
    let status = campaign.status();
    let protocol = deployment.keyspace(keyspace).protocol.clone();
    let printed = print(deployment, (protocol, terms.workload.name), promised, campaign, &gathered);
    match arguments.format {
        Format::Json => print_json(&printed)?,
        Format::Text => print_text(&show(&printed))?,
    }
    Ok(status)
}

/// The workload, the flags taken in.
fn workload(arguments: &Sim, deployment: &Deployment, name: &str) -> anyhow::Result<Workload> {
    if arguments.conflict.is_some() {
        bail!(Usage("--conflict is for commands; of transactions say --zipf and --records".to_owned()));
    }
    if arguments.moves > 0 {
        bail!(Usage("--moves: keys of transactions stay in their partitions; leave it out".to_owned()));
    }
    let mut workload = Workload::named(name).map_err(|error| Usage(format!("--workload: {error}")))?;
    workload.records = arguments.records.unwrap_or(workload.records);
    // A transaction of Retwis touches up to ten different keys.
    if workload.records < 10 && matches!(workload.name, "retwis" | "ycsbt") || workload.records < 2 {
        bail!(Usage(format!("--records {}: {name} needs more; use at least 10", workload.records)));
    }
    if let Some(exponent) = arguments.zipf {
        if !(exponent > 0.0 && exponent < 1.0) {
            bail!(Usage(format!("--zipf {exponent}: the exponent is above 0 and below 1")));
        }
        workload.keys = Keys::Zipf(exponent);
    }
    if arguments.retry {
        let nodes = || deployment.nodes().iter().map(|node| node.id);
        let far = nodes().flat_map(|a| nodes().map(move |b| (a, b)));
        let rtt_max = far.map(|(a, b)| deployment.one_way(a, b) + deployment.one_way(b, a)).max();
        workload.retry = Retry::for_rtt(rtt_max.unwrap_or_default());
    }
    Ok(workload)
}

struct Gathered {
    /// Messages of the measured part, and of all.
    messages: f64,
    sent: u64,
    figures: Figures,
    /// Seconds that were measured, of all seeds.
    measured: f64,
}

impl Gathered {
    fn merge(&mut self, outcome: &Outcome) {
        let window = outcome.figures.recorder().window().length();
        let measured = if window > Span::from_secs(1 << 30) { outcome.report.virtual_time } else { window };
        self.measured += measured.as_secs_f64();
        self.figures.merge(&outcome.figures);
        let share = measured.as_secs_f64() / outcome.report.virtual_time.as_secs_f64().max(1e-9);
        self.messages += outcome.report.messages as f64 * share.min(1.0);
        self.sent += outcome.report.messages;
    }
}

fn print(
    deployment: &Deployment,
    (protocol, workload): (String, &str),
    (updates, reads): (String, String),
    campaign: Campaign,
    gathered: &Gathered,
) -> Printed {
    let figures = &gathered.figures;
    let tally = figures.tally(None);
    let regions = deployment.regions().iter().filter_map(|region| {
        let at = usize::from(region.id.0);
        let aborts = figures.tally(Some(at)).abort_rate();
        Some(Line::of(&region.name, figures.recorder().region(at, None)?, Some(aborts)))
    });
    let kinds = figures.recorder().kinds().into_iter();
    let kinds = kinds.filter_map(|kind| Some(Line::of(kind.name(), figures.recorder().kind(kind)?, None)));
    // Operations count the two requests of a transaction that writes; what ended is counted by the tally.
    let ended = tally.committed
        + tally.aborted.values().sum::<u64>()
        + tally.given_up
        + tally.refused
        + tally.unknown;
    Printed {
        protocol,
        workload: workload.to_owned(),
        updates,
        reads,
        campaign,
        abort_rate: tally.abort_rate(),
        committed_per_second: tally.committed as f64 / gathered.measured.max(1e-9),
        messages_per_transaction: gathered.messages / ended.max(1) as f64,
        share: gathered.messages / gathered.sent.max(1) as f64 / ended.max(1) as f64,
        tally,
        regions: regions.collect(),
        kinds: kinds.collect(),
    }
}

fn show(printed: &Printed) -> String {
    let mut figures = String::new();
    for (title, lines) in [("region", &printed.regions), ("kind", &printed.kinds)] {
        if !lines.is_empty() {
            figures += &format!("\n{}", table(title, lines));
        }
    }
    let tally = &printed.tally;
    let counts = tally.aborted.iter().map(|(reason, count)| (*reason, *count));
    let others =
        [("given up by clients", tally.given_up), ("refused", tally.refused), ("unknown", tally.unknown)];
    let counts: Vec<String> = counts
        .chain(others.into_iter().filter(|(_, count)| *count > 0))
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    figures += &format!(
        "\n{:.1} committed a second, {:.1} messages a transaction, {:.2} % aborted{}{}\n",
        printed.committed_per_second,
        printed.messages_per_transaction,
        printed.abort_rate * 100.0,
        if counts.is_empty() { "" } else { ": " },
        counts.join(", ")
    );
    figures += &printed.campaign.traffic("transaction", printed.share);
    let Printed { protocol, updates, reads, workload, .. } = printed;
    let subject = format!("{protocol} (updates {updates}, reads {reads}), {workload}");
    printed.campaign.show(&subject, &format!("{} committed", tally.committed), &figures)
}

fn table(title: &str, lines: &[Line]) -> String {
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
