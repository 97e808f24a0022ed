//! A [`Network`] as text for people.

use super::told::{Link, Network};
use crate::output::{clean, quoted};
use crate::status::screen::columns;
use crate::up::table::millis;
use std::collections::BTreeMap;
use std::iter::once;

/// Each two regions and what stands between them.
pub(super) fn text(network: &Network) -> String {
    let names: Vec<&str> = network.regions.iter().map(|region| region.region.as_str()).collect();
    let links: BTreeMap<(&str, &str), &Link> =
        network.links.iter().map(|link| ((link.from.as_str(), link.to.as_str()), link)).collect();
    let cell = |from: usize, to: usize| {
        let (from, to) = (names[from], names[to]);
        match links.get(&(from, to)).or_else(|| links.get(&(to, from))) {
            Some(link) if link.cut => "cut".to_owned(),
            Some(link) => millis(Some(link.round_trip_ms)),
            None => "-".to_owned(),
        }
    };
    let heads: Vec<(&str, bool)> = once(("", false)).chain(names.iter().map(|name| (*name, true))).collect();
    let row = |(from, name): (usize, &&str)| -> Vec<String> {
        let cells = (0..names.len()).map(|to| cell(from, to));
        once((*name).to_owned()).chain(cells).collect()
    };
    let word = if names.len() == 1 { "region" } else { "regions" };
    let those = cut_off(network).unwrap_or_else(|| "none is".to_owned());
    let head = format!("{}: {} {word}, {those} cut off\nround trips, ms\n\n", network.cluster, names.len());
    clean(&(head + &columns(&heads, names.iter().enumerate().map(row))))
}

/// What came of the order to cut a region off. `more` is what else has to be said for the next order to find the cluster.
pub(super) fn cut(network: &Network, region: &str, more: &str) -> String {
    let text = match changed(network) {
        [] => format!("{region} is cut off already"),
        _ => format!("{region}: cut off, no message comes in or out"),
    };
    clean(&format!("{text}; what heals it: isochrone net heal {}{more}\n", quoted(region)))
}

/// What came of the order to heal a region, or all.
pub(super) fn heal(network: &Network, region: Option<&str>) -> String {
    let text = match (changed(network), region) {
        ([], Some(region)) => format!("{region} was not cut off"),
        ([], None) => "no region was cut off".to_owned(),
        (names, _) => format!("{}: healed", names.join(", ")),
    };
    let others = cut_off(network).map_or_else(String::new, |those| format!("; {those} still cut off"));
    clean(&format!("{text}{others}\n"))
}

fn changed(network: &Network) -> &[String] {
    network.changed.as_deref().unwrap_or_default()
}

/// Who is cut off, with its verb.
fn cut_off(network: &Network) -> Option<String> {
    let cut = network.regions.iter().filter(|region| region.cut);
    let names: Vec<&str> = cut.map(|region| region.region.as_str()).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is")),
        several => Some(format!("{} are", several.join(", "))),
    }
}
