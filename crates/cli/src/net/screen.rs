//! A [`Network`] as text for people.

use super::told::{Link, Network};
use crate::up::table::millis;
use std::collections::BTreeMap;

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
    let head = std::iter::once("").chain(names.iter().copied()).map(str::to_owned);
    let mut rows: Vec<Vec<String>> = vec![head.collect()];
    for (from, name) in names.iter().enumerate() {
        let cells = (0..names.len()).map(|to| cell(from, to));
        rows.push(std::iter::once((*name).to_owned()).chain(cells).collect());
    }
    let word = if names.len() == 1 { "region" } else { "regions" };
    let those = cut_off(network).unwrap_or_else(|| "none is".to_owned());
    let head = format!("{}: {} {word}, {those} cut off\nround trips, ms\n\n", network.cluster, names.len());
    clean(&(head + &aligned(&rows)))
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

/// What strangers said moves no cursor.
pub(super) fn clean(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() && letter != '\n', "?")
}

/// A name as one word of a shell.
pub(super) fn quoted(name: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
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

/// Names on the left, all else on the right of its column.
fn aligned(rows: &[Vec<String>]) -> String {
    let wide = |text: &String| text.chars().count();
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(wide).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let blank = " ".repeat(width - wide(cell));
            text += &if column == 0 { format!("  {cell}{blank}") } else { format!("  {blank}{cell}") };
        }
        text.push('\n');
    }
    text
}
