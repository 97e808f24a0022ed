//! Multi-Paxos against its closed form: does the simulator measure what arithmetic says?

use super::lab::Lab;
use super::{Published, Row, Wanted};
use crate::protocols::{self, Runs};
use anyhow::bail;
use isochrone_core::{Deployment, Span};
use isochrone_plan::Client;
use isochrone_workload::Workload;
use isochrone_workload::trial::Terms;

/// How far a ratio may be from 1.
const TOLERANCE: f64 = 0.000_5;

/// Commit latency of every client region under every leader of the five built-in regions: writes without
/// load, jitter, processing or sync cost. What arithmetic says stands in the place of a published figure.
pub(super) fn run(wanted: Wanted<'_>, _: &mut Lab) -> anyhow::Result<Vec<Row>> {
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
        let Some(Runs::Commands { trial, .. }) =
            protocols::of(&deployment, keyspace).map(|entry| &entry.runs)
        else {
            bail!("multipaxos is not in this program")
        };
        let terms = Terms::quiet(Workload::named("set")?, Span::from_secs(30));
        let outcome = trial(&deployment, keyspace, &terms, 1)?;
        let replicas: Vec<_> = deployment.regions().iter().map(|region| region.id).collect();
        for (client, id) in deployment.regions().iter().zip(ids) {
            if !wanted(&id) {
                continue;
            }
            let at = Client::At(client.id);
            let form = isochrone_plan::multipaxos::commit(deployment.matrix(), at, leader.id, &replicas);
            let measured =
                outcome.figures.region(usize::from(client.id.0), None).map(|figures| figures.mean_ms);
            let ratio = measured.map(|measured| measured / form.as_millis_f64());
            rows.push(Row {
                id,
                setting: format!("leader {}, client {}", leader.name, client.name),
                system: "multipaxos".to_owned(),
                metric: "commit latency".to_owned(),
                published: Published::Number(form.as_millis_f64()),
                measured,
                unit: "ms".to_owned(),
                ratio,
                note: match measured {
                    Some(_) => "published is the closed form".to_owned(),
                    None => "nothing was answered".to_owned(),
                },
                missed: ratio.is_none_or(|ratio| (ratio - 1.0).abs() > TOLERANCE),
            });
        }
    }
    Ok(rows)
}

/// A name as part of an id: small letters, no spaces.
fn slug(name: &str) -> String {
    name.to_lowercase().replace(' ', "")
}
