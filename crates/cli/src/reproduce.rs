//! `isochrone reproduce`: published evaluations, run again; published and measured figures side by side.

use crate::arguments::{Format, Reproduce};
use crate::output::{print_json, print_text};
use crate::{Status, Usage, protocols};
use anyhow::bail;
use isochrone_core::{Deployment, Span};
use isochrone_plan::Client;
use isochrone_workload::Workload;
use isochrone_workload::trial::Terms;
use serde::Serialize;
use std::fmt::Write;

/// One figure. `published` is what the source states (for the self-check: what arithmetic says), `ratio` is
/// measured over published.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    id: String,
    setting: String,
    system: &'static str,
    metric: &'static str,
    published: f64,
    measured: Option<f64>,
    unit: &'static str,
    ratio: Option<f64>,
    note: String,
}

/// Which rows, by their id.
type Wanted<'a> = &'a dyn Fn(&str) -> bool;

/// An evaluation: its name, what it is, and how it is run.
struct Evaluation {
    name: &'static str,
    what: &'static str,
    /// Rows whose id the filter lets through.
    run: fn(Wanted<'_>) -> anyhow::Result<Vec<Row>>,
    /// How far a ratio may be from 1 before the figure counts as missed.
    tolerance: f64,
}

/// All evaluations, a line each.
const ALL: &[Evaluation] = &[Evaluation {
    name: "self-check",
    what: "Multi-Paxos in the simulator against its closed form, every leader and client of five regions",
    run: self_check,
    tolerance: 0.000_5,
}];

/// Runs the verb.
pub(crate) fn run(arguments: Reproduce) -> anyhow::Result<Status> {
    if arguments.name == "list" {
        let text: String = ALL.iter().map(|one| format!("{:<12} {}\n", one.name, one.what)).collect();
        print_text(&text)?;
        return Ok(Status::Held);
    }
    let Some(evaluation) = ALL.iter().find(|one| one.name == arguments.name) else {
        let names: Vec<_> = ALL.iter().map(|one| one.name).collect();
        bail!(Usage(format!(
            "no evaluation is called `{}`; there are {} (and `list`)",
            arguments.name,
            names.join(", ")
        )));
    };
    let rows =
        (evaluation.run)(&|id| arguments.only.is_empty() || arguments.only.iter().any(|only| only == id))?;
    if rows.is_empty() {
        bail!(Usage(format!("{}: no row is called {}", evaluation.name, arguments.only.join(" or "))));
    }
    match arguments.format {
        Format::Json => print_json(&rows)?,
        Format::Text => print_text(&table(&rows))?,
    }
    let missed =
        rows.iter().any(|row| row.ratio.is_none_or(|ratio| (ratio - 1.0).abs() > evaluation.tolerance));
    Ok(if missed { Status::Failed } else { Status::Held })
}

/// Commit latency of every client region under every leader of the five built-in regions: writes without
/// load, jitter, processing or sync cost. What arithmetic says stands in the place of a published figure.
fn self_check(wanted: Wanted<'_>) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let base = Deployment::five_regions();
    let keyspace = base.choose_keyspace(None)?;
    for leader in base.regions() {
        let deployment = base.clone().with_leader(keyspace, &leader.name)?;
        let ids: Vec<_> = deployment
            .regions()
            .iter()
            .map(|client| format!("{}-{}", slug(&leader.name), slug(&client.name)))
            .collect();
        if !ids.iter().any(|id| wanted(id)) {
            continue;
        }
        let Some(entry) = protocols::of(&deployment, keyspace) else {
            bail!("multipaxos is not in this program")
        };
        let terms = Terms::quiet(Workload::named("set")?, Span::from_secs(30));
        let outcome = (entry.trial)(&deployment, keyspace, &terms, 1)?;
        let replicas: Vec<_> = deployment.regions().iter().map(|region| region.id).collect();
        for (client, id) in deployment.regions().iter().zip(ids) {
            if !wanted(&id) {
                continue;
            }
            let at = Client::At(client.id);
            let form = isochrone_plan::multipaxos::commit(deployment.matrix(), at, leader.id, &replicas);
            let measured =
                outcome.recorder.region(usize::from(client.id.0), None).map(|figures| figures.mean_ms);
            rows.push(Row {
                id,
                setting: format!("leader {}, client {}", leader.name, client.name),
                system: "multipaxos",
                metric: "commit latency",
                published: form.as_millis_f64(),
                measured,
                unit: "ms",
                ratio: measured.map(|measured| measured / form.as_millis_f64()),
                note: match measured {
                    Some(_) => "published is the closed form".to_owned(),
                    None => "nothing was answered".to_owned(),
                },
            });
        }
    }
    Ok(rows)
}

/// A name as part of an id: small letters, no spaces.
fn slug(name: &str) -> String {
    name.to_lowercase().replace(' ', "")
}

fn table(rows: &[Row]) -> String {
    let wide =
        |column: fn(&Row) -> usize, least: usize| rows.iter().map(column).max().unwrap_or(0).max(least);
    let (id, setting) = (wide(|row| row.id.len(), 2), wide(|row| row.setting.len(), 7));
    let (system, metric) = (wide(|row| row.system.len(), 6), wide(|row| row.metric.len(), 6));
    let mut text = format!(
        "{:id$}  {:setting$}  {:system$}  {:metric$}  {:>10}  {:>10}  {:4}  {:>6}  note\n",
        "id", "setting", "system", "metric", "published", "measured", "unit", "ratio"
    );
    let shown =
        |value: Option<f64>, digits| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:id$}  {:setting$}  {:system$}  {:metric$}  {:>10.2}  {:>10}  {:4}  {:>6}  {}",
            row.id,
            row.setting,
            row.system,
            row.metric,
            row.published,
            shown(row.measured, 2),
            row.unit,
            shown(row.ratio, 3),
            row.note
        );
    }
    text
}
