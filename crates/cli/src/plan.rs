//! `isochrone plan`: what the distances allow, and which protocol, leader and placement to choose; of a file, of a running
//! cluster, or of the answers to five questions.

mod ask;
pub(crate) mod live;

use crate::arguments::{Format, Plan};
use crate::chart::{self, Bars};
use crate::output::{apart, print_json, print_text, write};
use crate::{Status, Usage, protocols};
use anyhow::bail;
use isochrone_core::{Deployment, KeyspaceId, Matrix};
use isochrone_plan::{Demand, Forecast, TransactionPlan};
use live::Live;
use serde::Serialize;
use std::fmt::Display;

/// Runs the verb.
pub(crate) fn run(arguments: Plan) -> anyhow::Result<Status> {
    if arguments.ask {
        return ask::run(arguments.out.as_deref());
    }
    if let (Some(file), Some(svg)) = (&arguments.file, &arguments.svg) {
        apart(file, "svg", svg)?;
    }
    let deployment = match &arguments.file {
        // Nothing is served: the certificates may come later.
        Some(file) => Deployment::load(file, &protocols::known().insecure(true))?,
        None => Deployment::five_regions(),
    };
    protocols::check(&deployment)?;
    let mut demand = Demand::of(&deployment);
    if !(0.0..=100.0).contains(&arguments.conflict) {
        bail!(Usage(format!("--conflict {}: a share is 0 to 100 percent", arguments.conflict)));
    }
    demand.conflict = arguments.conflict;
    if !arguments.weights.is_empty() {
        demand.clients = weights(&deployment, &arguments.weights)?;
    }
    let keyspace = deployment.choose_keyspace(arguments.keyspace.as_deref())?;
    let (deployment, mut live) = match arguments.live {
        true => {
            let (deployment, live) = live::look(&arguments, deployment, keyspace)?;
            (deployment, Some(live))
        }
        false => (deployment, None),
    };
    let matrix = match &live {
        Some(live) => live.matrix.clone(),
        None => deployment.given_matrix()?.clone(),
    };
    if protocols::of(&deployment, keyspace).is_some_and(protocols::Entry::transactional) {
        return transactions(&arguments, &deployment, &matrix, keyspace, &demand, live.as_ref());
    }
    let plan = isochrone_plan::plan_over(&deployment, &matrix, keyspace, &demand)?;
    if let Some(live) = &mut live {
        live.compare(&plan);
    }
    if let Some(path) = &arguments.svg {
        write(path, &draw(&plan))?;
    }
    print(arguments.format, &plan, live.as_ref())?;
    Ok(Status::Held)
}

/// The same of a keyspace of transactions.
fn transactions(
    arguments: &Plan,
    deployment: &Deployment,
    matrix: &Matrix,
    keyspace: KeyspaceId,
    demand: &Demand,
    live: Option<&Live>,
) -> anyhow::Result<Status> {
    if arguments.conflict > 0.0 {
        bail!(Usage(
            "--conflict is for commands; what transactions pay for it, `isochrone sim` shows".to_owned()
        ));
    }
    let plan = isochrone_plan::plan_transactions_over(deployment, matrix, keyspace, demand);
    if let Some(path) = &arguments.svg {
        write(path, &draw_transactions(deployment, &plan))?;
    }
    print(arguments.format, &plan, live)?;
    Ok(Status::Held)
}

/// A plan, and with it what a running cluster tells: that is one object more in its JSON, and text around it.
fn print(format: Format, plan: &(impl Display + Serialize), live: Option<&Live>) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Beside<'a, P> {
        #[serde(flatten)]
        plan: &'a P,
        live: &'a Live,
    }
    match (format, live) {
        (Format::Json, None) => print_json(plan),
        (Format::Json, Some(live)) => print_json(&Beside { plan, live }),
        (Format::Text, None) => print_text(&plan.to_string()),
        (Format::Text, Some(live)) => print_text(&format!("{}{plan}{}", live.head(), live.tail())),
    }
}

/// Bars for each region: the medians of each protocol under one workload.
fn draw_transactions(deployment: &Deployment, plan: &TransactionPlan) -> String {
    chart::bars(&Bars {
        title: "Median latency of Retwis without load".to_owned(),
        unit: "ms",
        groups: deployment.regions().iter().map(|region| region.name.clone()).collect(),
        series: plan
            .forecasts
            .iter()
            .filter(|forecast| forecast.workload == "retwis")
            .map(|forecast| {
                let medians = forecast.regions.iter().map(|region| region.p50_ms).collect::<Vec<_>>();
                (forecast.protocol.clone(), medians)
            })
            .collect(),
        floor: Vec::new(),
    })
}

/// `REGION=N` for some regions; the others have no clients.
fn weights(deployment: &Deployment, words: &[String]) -> anyhow::Result<Vec<u32>> {
    let mut given = vec![None; deployment.regions().len()];
    for word in words {
        let wrong = |why: &str| Usage(format!("--weights {word}: {why}; write REGION=N,REGION=N"));
        let Some((name, number)) = word.split_once('=') else { bail!(wrong("there is no `=`")) };
        let Some(region) = deployment.region_named(name.trim()) else {
            let names: Vec<_> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
            bail!(wrong(&format!("no region is called {:?}; there are {}", name.trim(), names.join(", "))))
        };
        let number = match number.trim().parse::<u32>() {
            Ok(number) if number <= 1_000_000 => number,
            _ => bail!(wrong("N is a whole number up to a million")),
        };
        if given[usize::from(region.id.0)].replace(number).is_some() {
            bail!(wrong(&format!("{} is named twice; name each region once", region.name)));
        }
    }
    let clients: Vec<u32> = given.into_iter().map(Option::unwrap_or_default).collect();
    if clients.iter().all(|number| *number == 0) {
        bail!(Usage("--weights leaves no clients at all; give one region a number above 0".to_owned()));
    }
    Ok(clients)
}

/// Bars for each region: the best row of each protocol and case, and the floor as a line across them.
fn draw(plan: &isochrone_plan::Plan) -> String {
    let mut best: Vec<&Forecast> = Vec::new();
    // They come lowest mean first.
    for forecast in &plan.protocols {
        if !best.iter().any(|known| known.protocol == forecast.protocol && known.case == forecast.case) {
            best.push(forecast);
        }
    }
    let series = best.iter().map(|forecast| {
        (forecast.label(), forecast.regions.iter().map(|region| region.commit_ms).collect::<Vec<_>>())
    });
    chart::bars(&Bars {
        title: format!(
            "Commit latency without load, {} replicas: {}",
            plan.replicas.len(),
            plan.replicas.join(", ")
        ),
        unit: "ms",
        groups: plan.floor_ms.iter().map(|(region, _)| region.clone()).collect(),
        series: series.collect(),
        floor: plan.floor_ms.iter().map(|(_, floor)| *floor).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn weights_are_by_name_and_the_rest_has_none() {
        let deployment = Deployment::five_regions();
        assert_eq!(weights(&deployment, &words("Euro=3,US East=70")).unwrap(), [0, 70, 3, 0, 0]);
        let error = |text: &str| weights(&deployment, &words(text)).unwrap_err().to_string();
        assert_eq!(
            error("Mars=1"),
            "--weights Mars=1: no region is called \"Mars\"; there are US West, US East, Euro, Asia, Australia; \
             write REGION=N,REGION=N"
        );
        assert_eq!(error("Euro"), "--weights Euro: there is no `=`; write REGION=N,REGION=N");
        assert!(error("Euro=-1").contains("whole number"));
        assert!(error("Euro=0").contains("no clients at all"));
        assert_eq!(
            error("Euro=1,Asia=3,Euro=2"),
            "--weights Euro=2: Euro is named twice; name each region once; write REGION=N,REGION=N"
        );
    }

    #[test]
    fn the_chart_has_a_bar_for_each_region_of_each_protocol() {
        let deployment = Deployment::five_regions();
        let keyspace = deployment.choose_keyspace(None).unwrap();
        let plan = isochrone_plan::plan(&deployment, keyspace, &Demand::of(&deployment)).unwrap();
        let svg = draw(&plan);
        // multipaxos, curp-consensus, curp, sdpaxos; mencius, epaxos, fastpaxos and domino in two cases each.
        let bars: Vec<&str> = svg.lines().filter(|line| line.starts_with("<rect class=\"bar\"")).collect();
        assert_eq!(bars.len(), 12 * 5);
        let colour = |bar: &&str| bar.split("fill=").nth(1).unwrap()[..9].to_owned();
        let colours: std::collections::BTreeSet<_> = bars.iter().map(colour).collect();
        assert_eq!(colours.len(), 12, "{colours:?}");
        for word in ["US East", "multipaxos, leader US East", "epaxos, conflict", "floor"] {
            assert!(svg.contains(word), "{word}");
        }
    }
}
