//! `isochrone status`: one screen of who leads, who answers, and what clients wait for; from what nodes tell over HTTP.

pub(crate) mod ask;
pub(crate) mod screen;
#[cfg(test)]
mod tests;
pub(crate) mod told;
pub(crate) mod view;

use crate::arguments::{Format, Status as Arguments};
use crate::output::{print_json, print_text};
use crate::plan::live;
use crate::{Status, Usage, protocols};
use anyhow::bail;
use isochrone_core::Deployment;
use isochrone_core::deployment::Address;
use std::time::Duration;
use told::Told;
use view::{Asked, View};

/// Where `isochrone up` serves HTTP for its first node unless it is told otherwise; the others follow.
pub(crate) const UP: u16 = 8001;
/// At so many places it is looked for them.
pub(crate) const UP_NODES: u16 = 16;

/// Runs the verb.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    let file = match &arguments.file {
        // Nothing is served: the certificates may be elsewhere.
        Some(file) => Some(Deployment::load(file, &protocols::known().insecure(true))?),
        None => None,
    };
    let asked = answered(match &file {
        Some(file) => of_file(file, &[])?,
        None if arguments.http.is_empty() => of_up()?,
        None => of_addresses(&arguments.http)?,
    })?;
    let mut view = View::of(&asked, file.as_ref());
    view.notes.extend(live::off_plan(&asked, file.as_ref()));
    match arguments.format {
        Format::Json => print_json(&view)?,
        Format::Text => print_text(&screen::text(&view))?,
    }
    Ok(if view.ready { Status::Held } else { Status::Failed })
}

/// Those who were asked, of whom one answers at least, and all who do are different nodes of one cluster.
pub(crate) fn answered(asked: Vec<Asked>) -> anyhow::Result<Vec<Asked>> {
    if asked.iter().all(|asked| asked.answer.is_err()) {
        let lines = asked.iter().map(|asked| match (&asked.name, &asked.answer) {
            (Some((name, _)), Err(why)) => {
                format!("\n  {name}, {}: {why}", asked.http.as_deref().unwrap_or("-"))
            }
            (None, Err(why)) => format!("\n  {}: {why}", asked.http.as_deref().unwrap_or("-")),
            _ => String::new(),
        });
        let hint = "\n  name a deployment, or with --http where a node's `http` listens; it is for its own machine or network only";
        bail!("no node tells how it stands{}{hint}", lines.collect::<String>());
    }
    of_one_cluster(&asked)?;
    Ok(asked)
}

/// The nodes of a deployment, each where the file says; for those that count as gone it is not waited as long.
pub(crate) fn of_file(file: &Deployment, gone: &[String]) -> anyhow::Result<Vec<Asked>> {
    let mut asked = at_places_of(file, gone)?;
    asked.iter_mut().for_each(Asked::refuse_another);
    Ok(asked)
}

/// The same, whoever answers there.
pub(crate) fn at_places_of(file: &Deployment, gone: &[String]) -> anyhow::Result<Vec<Asked>> {
    let mut places: Vec<(Address, Duration)> = Vec::new();
    for node in file.nodes() {
        let patience = if gone.contains(&node.name) { ask::GLANCE } else { ask::PATIENCE };
        match places.iter_mut().find(|(address, _)| Some(address) == node.http.as_ref()) {
            Some((_, longest)) => *longest = patience.max(*longest),
            None => places.extend(node.http.clone().map(|address| (address, patience))),
        }
    }
    if places.is_empty() {
        bail!(Usage(format!(
            "{}: no node of this deployment has an `http`, where it would tell how it stands\n  give each one, e.g. http = \
             \"127.0.0.1:9000\", and start it anew",
            file.file()
        )));
    }
    let answers = ask::ask_within(&places)?;
    let named = |node: &isochrone_core::deployment::Node| {
        let answer = match &node.http {
            None => Err("it has no `http` in the file".to_owned()),
            Some(http) => {
                let at = places.iter().position(|(address, _)| address == http);
                at.and_then(|at| answers.get(at))
                    .cloned()
                    .unwrap_or_else(|| Err("it was not asked".to_owned()))
            }
        };
        let name = Some((node.name.clone(), file.region(node.region).name.clone()));
        Asked { name, http: node.http.as_ref().map(Address::to_string), answer }
    };
    Ok(file.nodes().iter().map(named).collect())
}

/// Whoever answers at these.
pub(crate) fn of_addresses(addresses: &[Address]) -> anyhow::Result<Vec<Asked>> {
    let answers = ask::ask(addresses)?;
    let asked = addresses.iter().zip(answers);
    Ok(asked.map(|(address, answer)| Asked { name: None, http: Some(address.to_string()), answer }).collect())
}

/// The nodes of `isochrone up`, as many as the first that answers says; any of them may be down.
pub(crate) fn of_up() -> anyhow::Result<Vec<Asked>> {
    let addresses: Vec<_> = (0..UP_NODES).map(|index| Address::loopback(UP + index)).collect();
    Ok(of_those_there_are(of_addresses(&addresses)?))
}

fn of_those_there_are(mut asked: Vec<Asked>) -> Vec<Asked> {
    let told = asked.iter().find_map(|asked| asked.answer.as_ref().ok());
    asked.truncate(told.map_or(1, |told| told.peers.len() + 1));
    asked
}

/// Refuses a table of two clusters, or of one node twice.
fn of_one_cluster(asked: &[Asked]) -> anyhow::Result<()> {
    let told: Vec<(&Told, &str)> = asked
        .iter()
        .filter_map(|asked| Some((asked.answer.as_ref().ok()?, asked.http.as_deref().unwrap_or("-"))))
        .collect();
    let Some(((first, at), others)) = told.split_first() else { return Ok(()) };
    if let Some((other, there)) = others.iter().find(|(told, _)| told.cluster != first.cluster) {
        bail!(Usage(format!(
            "{} of {} answers at {at}, {} of {} at {there}\n  ask nodes of one cluster",
            first.node, first.cluster, other.node, other.cluster
        )));
    }
    for (index, (one, at)) in told.iter().enumerate() {
        if let Some((_, there)) = told.iter().skip(index + 1).find(|(other, _)| other.node == one.node) {
            bail!(Usage(format!("{} answers at {at} and at {there}\n  name each node once", one.node)));
        }
    }
    Ok(())
}
