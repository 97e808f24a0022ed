//! `isochrone sim` of a keyspace of transactions: latency, aborts, and whether they are as serializable as promised.

use super::campaign::{self, Campaign};
use super::{faults, file_loss, terms, write_history};
use crate::arguments::{Format, Sim};
use crate::output::{print_json, print_text};
use crate::protocols::TransactionTrial;
use crate::transactions::{Shown, size};
use crate::{Status, Usage};
use anyhow::bail;
use isochrone_core::{Deployment, KeyspaceId, Span};
use isochrone_transactions::retry::Retry;
use isochrone_workload::Window;
use isochrone_workload::transactions::{Figures, Keys, Outcome, Workload};
use serde::Serialize;

/// What `--format json` prints.
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
    messages_per_transaction: f64,
    /// What of all messages of the run belongs to one transaction.
    #[serde(skip)]
    share: f64,
    #[serde(flatten)]
    figures: Shown,
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
        file_loss(deployment, faults),
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
    let mut workload = Workload::named(name).map_err(|error| Usage(format!("--workload: {error}")))?;
    size(&mut workload, arguments.records)?;
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
    let regions: Vec<_> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
    let figures = Shown::of(&gathered.figures, &regions, gathered.measured);
    // Operations count the two requests of a transaction that writes; what ended is counted by the tally.
    let ended = figures.ended();
    Printed {
        protocol,
        workload: workload.to_owned(),
        updates,
        reads,
        campaign,
        messages_per_transaction: gathered.messages / ended.max(1) as f64,
        share: gathered.messages / gathered.sent.max(1) as f64 / ended.max(1) as f64,
        figures,
    }
}

fn show(printed: &Printed) -> String {
    let mut figures = printed.figures.tables();
    figures += &printed.figures.summary(&format!(
        "{:.1} messages a transaction, those within a node too, ",
        printed.messages_per_transaction
    ));
    figures += &printed.campaign.traffic("transaction", printed.share);
    let Printed { protocol, updates, reads, workload, .. } = printed;
    let subject = format!("{protocol} (updates {updates}, reads {reads}), {workload}");
    let counted = format!("{} committed", printed.figures.tally.committed);
    printed.campaign.show(&subject, &counted, &figures)
}
