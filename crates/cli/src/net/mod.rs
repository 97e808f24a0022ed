//! `isochrone net`: what stands between the regions of `isochrone up`, cut off and healed while it runs.

pub(crate) mod arguments;
mod ask;
mod screen;
#[cfg(test)]
mod tests;
pub(crate) mod told;

use crate::arguments::Format;
use crate::output::{print_json, print_text, quoted};
use crate::status::{self, UP, UP_NODES};
use crate::{Status, Usage};
use anyhow::bail;
use arguments::{Net, Verb};
use isochrone_core::deployment::Address;
use told::Network;

/// Runs the verb.
pub(crate) fn run(arguments: Net) -> anyhow::Result<Status> {
    let Net { verb, http, format } = arguments;
    // What else the next order has to say.
    let more = http.as_ref().map_or_else(String::new, |http| format!(" --http {http}"));
    let (address, network) = find(http)?;
    let (network, text) = match verb.unwrap_or(Verb::Show) {
        Verb::Show => {
            let text = screen::text(&network);
            (network, text)
        }
        Verb::Cut { region } => {
            known(&network, "cut", &region, &more)?;
            let network = ask::order(&address, "/net/cut", Some(&region))?;
            let text = screen::cut(&network, &region, &more);
            (network, text)
        }
        Verb::Heal { region } => {
            if let Some(region) = &region {
                known(&network, "heal", region, &more)?;
            }
            let network = ask::order(&address, "/net/heal", region.as_deref())?;
            let text = screen::heal(&network, region.as_deref());
            (network, text)
        }
    };
    match format {
        Format::Json => print_json(&network)?,
        Format::Text => print_text(&text)?,
    }
    Ok(Status::Held)
}

/// A node of `isochrone up`, and the network as it stands.
///
/// # Errors
/// Nobody answers, or only nodes that emulate nothing.
fn find(http: Option<Address>) -> anyhow::Result<(Address, Network)> {
    let named = http.is_some();
    let addresses = match http {
        Some(http) => vec![http],
        None => (0..UP_NODES).map(|index| Address::loopback(UP + index)).collect(),
    };
    let answers = status::ask::ask(&addresses)?;
    let mut real = None;
    for (address, answer) in addresses.iter().zip(&answers) {
        let Ok(told) = answer else { continue };
        match ask::show(address)? {
            Some(network) => return Ok((address.clone(), network)),
            None => real = real.or(Some((address, told))),
        }
    }
    if let Some((address, told)) = real {
        bail!(Usage(format!(
            "the network of {} is a real one: {}, which answers at {address}, emulates none, so there is nothing to cut or heal\n  \
             name with --http where a node of `isochrone up` has its `http`, or start one: isochrone up",
            told.cluster, told.node
        )));
    }
    let place = if named { "there" } else { "on this machine" };
    let why = match (addresses.first(), answers.first()) {
        (Some(address), Some(Err(why))) => format!("\n  {address}: {why}"),
        _ => String::new(),
    };
    bail!(
        "no `isochrone up` answers {place}{why}\n  start one: isochrone up; of one with other ports, name a node's `http` with --http"
    )
}

/// Refuses a name that no region has. `more` is what the next order has to say as well.
fn known(network: &Network, verb: &str, region: &str, more: &str) -> Result<(), Usage> {
    let names: Vec<&str> = network.regions.iter().map(|known| known.region.as_str()).collect();
    if names.contains(&region) {
        return Ok(());
    }
    let first = names.first().copied().unwrap_or_default();
    Err(Usage(format!(
        "net {verb} {region}: no region is called so; there are {}\n  try: isochrone net {verb} {}{more}",
        names.join(", "),
        quoted(first)
    )))
}
