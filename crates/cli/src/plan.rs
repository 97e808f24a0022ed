//! `isochrone plan`: what the distances allow, and which protocol, leader and placement to choose.

use crate::arguments::{Format, Plan};
use crate::chart::{self, Bars};
use crate::output::{apart, print_json, print_text, write};
use crate::{Status, Usage, protocols};
use anyhow::bail;
use isochrone_core::{Deployment, KeyspaceId};
use isochrone_plan::{Demand, Forecast};

/// Runs the verb.
pub(crate) fn run(arguments: Plan) -> anyhow::Result<Status> {
    if let Some(svg) = &arguments.svg {
        apart(&arguments.file, "svg", svg)?;
    }
    // Nothing is served: the certificates may come later.
    let deployment = Deployment::load(&arguments.file, &protocols::known().insecure(true))?;
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
    if protocols::of(&deployment, keyspace).is_some_and(protocols::Entry::transactional) {
        return transactions(&arguments, &deployment, keyspace, &demand);
    }
    let plan = isochrone_plan::plan(&deployment, keyspace, &demand)?;
    if let Some(path) = &arguments.svg {
        write(path, &draw(&plan))?;
    }
    match arguments.format {
        Format::Json => print_json(&plan)?,
        Format::Text => print_text(&plan.to_string())?,
    }
    Ok(Status::Held)
}

/// The same of a keyspace of transactions.
fn transactions(
    arguments: &Plan,
    deployment: &Deployment,
    keyspace: KeyspaceId,
    demand: &Demand,
) -> anyhow::Result<Status> {
    if arguments.conflict > 0.0 {
        bail!(Usage(
            "--conflict is for commands; what transactions pay for it, `isochrone sim` shows".to_owned()
        ));
    }
    let plan = isochrone_plan::plan_transactions(deployment, keyspace, demand)?;
    if let Some(path) = &arguments.svg {
        let svg = chart::bars(&Bars {
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
        });
        write(path, &svg)?;
    }
    match arguments.format {
        Format::Json => print_json(&plan)?,
        Format::Text => print_text(&plan.to_string())?,
    }
    Ok(Status::Held)
}

/// `REGION=N` for some regions; the others have no clients.
fn weights(deployment: &Deployment, words: &[String]) -> anyhow::Result<Vec<u32>> {
    let mut clients = vec![0; deployment.regions().len()];
    for word in words {
        let wrong = |why: &str| Usage(format!("--weights {word}: {why}; write REGION=N,REGION=N"));
        let Some((name, number)) = word.split_once('=') else { bail!(wrong("there is no `=`")) };
        let Some(region) = deployment.region_named(name.trim()) else {
            let names: Vec<_> = deployment.regions().iter().map(|region| region.name.as_str()).collect();
            bail!(wrong(&format!("no region is called {:?}; there are {}", name.trim(), names.join(", "))))
        };
        match number.trim().parse::<u32>() {
            Ok(number) if number <= 1_000_000 => clients[usize::from(region.id.0)] = number,
            _ => bail!(wrong("N is a whole number up to a million")),
        }
    }
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
    }

    #[test]
    fn the_chart_has_a_bar_for_each_region_of_each_protocol() {
        let deployment = Deployment::five_regions();
        let keyspace = deployment.choose_keyspace(None).unwrap();
        let plan = isochrone_plan::plan(&deployment, keyspace, &Demand::of(&deployment)).unwrap();
        let svg = draw(&plan);
        // multipaxos, curp-consensus, curp, sdpaxos, mencius and epaxos and domino in two cases each, fastpaxos.
        let bars: Vec<&str> = svg.lines().filter(|line| line.starts_with("<rect class=\"bar\"")).collect();
        assert_eq!(bars.len(), 11 * 5);
        let colour = |bar: &&str| bar.split("fill=").nth(1).unwrap()[..9].to_owned();
        let colours: std::collections::BTreeSet<_> = bars.iter().map(colour).collect();
        assert_eq!(colours.len(), 11, "{colours:?}");
        for word in ["US East", "multipaxos, leader US East", "epaxos, conflict", "floor"] {
            assert!(svg.contains(word), "{word}");
        }
    }
}
