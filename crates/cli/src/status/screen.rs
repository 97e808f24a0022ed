//! A [`View`] as text for people.

use super::view::{Node, Row, Shown, View};
use crate::output::clean;
use crate::up::table::{millis, rate};
use std::fmt::Write;

/// The whole of it.
pub(super) fn text(view: &View) -> String {
    let all = view.nodes.len();
    let answer = view.nodes.iter().filter(|node| node.trouble.is_none()).count();
    let stand = match view.nodes.iter().filter(|node| node.state == "ready").count() {
        ready if ready == all => "all are ready".to_owned(),
        ready => format!("{ready} ready"),
    };
    let mut text = format!("{}: {answer} of {all} nodes answer, {stand}\n", view.cluster);
    // Writing to a string does not fail; the same holds below.
    for keyspace in &view.keyspaces {
        let _ = write!(text, "\n{}\n{}", head(keyspace), columns(&ROWS, keyspace.nodes.iter().map(row)));
    }
    let _ = write!(text, "\n{}", columns(&NODES, view.nodes.iter().map(node)));
    if !view.notes.is_empty() {
        text += "\nlook at\n";
        for note in &view.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    clean(&text)
}

fn head(keyspace: &Shown) -> String {
    let Shown { keyspace: name, index, protocol, guarantee, leaders, last_voters, .. } = keyspace;
    let mut line = format!("keyspace {name} · SELECT {index} · {protocol} · {guarantee}");
    match leaders.as_slice() {
        [Some(leader)] => line += &format!(" · led from {leader}"),
        [_] => {}
        all => line += &format!(" · {} partitions", all.len()),
    }
    let votes: u64 = last_voters.values().sum();
    if votes > 0 {
        let mut voters: Vec<_> = last_voters.iter().collect();
        voters.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shares = voters
            .iter()
            .map(|(name, count)| format!("{name} {:.0} %", **count as f64 * 100.0 / votes as f64));
        line += &format!(" · waits for {}", shares.collect::<Vec<_>>().join(", "));
    }
    line
}

const ROWS: [(&str, bool); 10] = [
    ("node", false),
    ("region", false),
    ("role", false),
    ("applied", true),
    ("ops/s", true),
    ("p50 ms", true),
    ("p99 ms", true),
    ("write p50", true),
    ("bound", true),
    ("ratio", true),
];

fn row(row: &Row) -> Vec<String> {
    let ratio = match (row.write_p50_ms, row.bound_ms) {
        (Some(p50), Some(bound)) if bound > 0.0 => format!("{:.2}", p50 / bound),
        _ => "-".to_owned(),
    };
    vec![
        row.node.clone(),
        row.region.clone(),
        row.role.clone(),
        row.applied.filter(|_| row.role != "client").map_or_else(|| "-".to_owned(), |at| at.to_string()),
        rate(row.operations_per_second),
        millis(row.p50_ms),
        millis(row.p99_ms),
        millis(row.write_p50_ms),
        millis(row.bound_ms),
        ratio,
    ]
}

const NODES: [(&str, bool); 7] = [
    ("node", false),
    ("region", false),
    ("state", false),
    ("up", true),
    ("clients", true),
    ("version", false),
    ("round trips, ms", false),
];

fn node(node: &Node) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let trips: Vec<_> =
        node.round_trips_ms.iter().map(|(to, trip)| format!("{to} {}", millis(Some(*trip)))).collect();
    vec![
        node.node.clone(),
        node.region.clone(),
        if node.trouble.is_some() && !node.member {
            format!("{}, member of nothing", node.state)
        } else {
            node.state.to_owned()
        },
        or_none(node.uptime_seconds.map(uptime)),
        or_none(node.clients.map(|clients| clients.to_string())),
        or_none(node.version.clone()),
        if trips.is_empty() { "-".to_owned() } else { trips.join(", ") },
    ]
}

pub(crate) fn uptime(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {:02}h", hours % 24),
    }
}

/// Rows under their heads, two blanks before each column. With each head: whether what stands below it stands right.
pub(crate) fn columns(heads: &[(&str, bool)], rows: impl Iterator<Item = Vec<String>>) -> String {
    let first = heads.iter().map(|(head, _)| (*head).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(first).chain(rows).collect();
    let wide = |text: &str| text.chars().count();
    let widths: Vec<_> = (0..heads.len())
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| wide(cell)).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), (_, right)) in row.iter().zip(&widths).zip(heads) {
            let blank = " ".repeat(width - wide(cell));
            line += &if *right { format!("  {blank}{cell}") } else { format!("  {cell}{blank}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
