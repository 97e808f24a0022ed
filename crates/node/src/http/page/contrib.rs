//! The alerting rules and the dashboard of `contrib/` name only what the page shows.

use super::page;
use super::tests::peer;
use crate::certificates::Expiries;
use crate::gateway::Counters;
use crate::limits::Limits;
use crate::metrics::{KeyspaceMetrics, NodeMetrics, PATHS};
use crate::reactor::{Board, PeerStatus, ProcessStatus, Status};
use isochrone_core::{Phase, Span};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const RULES: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/prometheus/isochrone.rules.yml"));
const DASHBOARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/grafana/isochrone.json"));

/// Labels that are not of the page: Prometheus' own, and those that expressions make.
const OTHERS: [&str; 3] = ["job", "instance", "peer_region"];

/// By metric, as its lines begin, and label: the values.
type Shown = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A page that shows each metric there is.
fn whole() -> Shown {
    let keyspace = KeyspaceMetrics::new("main", "multipaxos", "R", vec!["a".to_owned(), "b".to_owned()]);
    let second = Span::from_millis(1_000);
    for path in PATHS {
        keyspace.committed(path, second, &[second; Phase::ALL.len()]);
    }
    let metrics = NodeMetrics { keyspaces: vec![Arc::new(keyspace)], ..NodeMetrics::default() };
    metrics.certificates.set(Expiries { authority: Some(1), peer: Some(1), client: Some(1) });
    metrics.audit.kept.store(1, Relaxed);
    metrics.journal.free_bytes.store(1, Relaxed);
    metrics.grpc.limited("clients");
    metrics.grpc.called(0, "OK", Duration::from_secs(1));
    let board = Board::new(Arc::new(metrics));
    let measured = Some(80.0);
    let peer = PeerStatus { member: true, round_trip_ms: measured, clock_ahead_ms: Some(0.0), ..peer() };
    let process = ProcessStatus {
        last_voters: [("b".to_owned(), 1)].into(),
        counted: [("some", 1)].into(),
        stands: [(("some", 0), 1)].into(),
        ..ProcessStatus::default()
    };
    let node = "a".to_owned();
    let status = Status { node, processes: vec![process], peers: vec![peer], ..Status::default() };
    let mut counters = Counters::default();
    counters.commands.insert("get", 1);
    counters.errors.insert("ERR", 1);
    counters.limited.insert("clients", 1);
    board.post(status, counters, std::time::Instant::now());

    let mut shown = Shown::new();
    for line in page(&board, &Limits::default()).lines().filter(|line| super::is_series(line)) {
        let name = word(line);
        let labels = shown.entry(name.to_owned()).or_default();
        for (label, _, value) in matchers(&line[name.len()..]) {
            labels.entry(label.to_owned()).or_default().insert(value.to_owned());
        }
    }
    shown
}

/// The word with which a text begins.
fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

/// What stands in the braces with which a text begins: label, operator, value.
fn matchers(text: &str) -> Vec<(&str, &str, &str)> {
    let mut all = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else { return all };
    while !rest.starts_with('}') {
        let label = word(rest);
        let (operator, quoted) = rest[label.len()..].split_once('"').unwrap_or_else(|| panic!("{text}"));
        let (value, behind) = quoted.split_once('"').unwrap_or_else(|| panic!("{text}"));
        all.push((label, operator, value));
        rest = behind.strip_prefix(',').unwrap_or(behind).trim_start();
    }
    all
}

/// Each metric of ours that is named, with what follows it.
fn metrics(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("isochrone_").map(move |(at, _)| {
        let name = word(&text[at..]);
        (name, &text[at + name.len()..])
    })
}

/// The words in the parentheses behind each of these.
fn grouped<'a>(text: &'a str, by: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let lists = by.iter().flat_map(move |by| text.split(*by).skip(1));
    let lists = lists.filter_map(|rest| Some(rest.strip_prefix(" (")?.split_once(')')?.0));
    lists.flat_map(|list| list.split(',').map(str::trim)).filter(|label| !label.is_empty())
}

/// The labels that `{{…}}` stands for.
fn told(text: &str) -> impl Iterator<Item = &str> {
    let places = text.split("{{").skip(1).map(|rest| rest.trim_start());
    places.filter(|rest| !rest.starts_with("$value")).map(|rest| word(rest.trim_start_matches("$labels.")))
}

/// Whether what processes tell of themselves has this name: by the sources, where it is a literal.
fn counted(what: &str) -> bool {
    fn has(folder: &Path, literal: &str) -> bool {
        let mut entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.any(|path| match path.is_dir() {
            true => has(&path, literal),
            false => {
                path.extension().is_some_and(|end| end == "rs")
                    && std::fs::read_to_string(&path).unwrap().contains(literal)
            }
        })
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    ["core", "replication", "transactions"]
        .iter()
        .any(|name| has(&crates.join(name).join("src"), &format!("\"{what}\"")))
}

/// What is wrong with a text that holds expressions.
fn wrong(text: &str, shown: &Shown) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, rest) in metrics(text) {
        let Some(labels) = shown.get(name) else {
            wrong.push(format!("{name} is not on the page"));
            continue;
        };
        for (label, operator, value) in matchers(rest) {
            let Some(values) = labels.get(label) else {
                if !OTHERS.contains(&label) {
                    wrong.push(format!("{name} has no label {label}"));
                }
                continue;
            };
            // Of what is free, and of patterns that are more than a choice, there is nothing to compare with.
            let choice = |letter: char| letter.is_ascii_alphanumeric() || "_|".contains(letter);
            for value in value.split('|').filter(|_| value.chars().all(choice)) {
                let known = if label == "what" { counted(value) } else { values.contains(value) };
                if !known {
                    wrong.push(format!("{name} has no {label}{operator}{value}"));
                }
            }
        }
    }
    let labels: BTreeSet<&str> =
        shown.values().flat_map(|labels| labels.keys().map(String::as_str)).collect();
    let used = grouped(text, &["by", "on", "group_left", "group_right", "without", "ignoring"]);
    for label in used.chain(told(text)) {
        if !labels.contains(label) && !OTHERS.contains(&label) {
            wrong.push(format!("there is no label {label}"));
        }
    }
    // Clients of different regions wait for different things: a mean over them is nobody's.
    let averaged = text.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| word == "avg");
    let of_regions = ["isochrone_command_duration_seconds_", "isochrone_commit_duration_seconds_"];
    let quantile = text.contains("histogram_quantile") && of_regions.iter().any(|name| text.contains(name));
    if averaged || quantile && !grouped(text, &["by"]).any(|label| label == "origin_region") {
        wrong.push("an average over regions".to_owned());
    }
    wrong
}

/// All expressions, queries and legends.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| expressions(value, found)),
        Value::Object(all) => {
            for (key, value) in all {
                match value.as_str() {
                    Some(text) if ["expr", "query", "definition", "legendFormat"].contains(&key.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => expressions(value, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_rules_name_what_is_shown_and_say_what_to_do() {
    let shown = whole();
    let lines = RULES.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let rules: Vec<&str> = text.split("- alert:").skip(1).collect();
    assert!(rules.len() > 20, "{}", rules.len());
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule.lines().next().unwrap_or_default().trim();
        assert!(name.starts_with("Isochrone") && names.insert(name), "{name}");
        assert_eq!(wrong(rule, &shown), [""; 0], "{name}");
        for once in ["expr:", "for:", "severity:", "summary:", "description:"] {
            assert_eq!(rule.matches(once).count(), 1, "{name}: {once}");
        }
        assert!(
            ["critical", "warning"].iter().any(|how| rule.contains(&format!("severity: {how}\n"))),
            "{name}"
        );
        assert!(rule.contains("`isochrone "), "{name}: it names no command to try");
    }
}

#[test]
fn the_dashboard_names_what_is_shown() {
    let (shown, dashboard) = (whole(), serde_json::from_str::<Value>(DASHBOARD).unwrap());
    let mut all = Vec::new();
    expressions(&dashboard, &mut all);
    assert!(all.iter().filter(|text| text.contains("isochrone_")).count() > 50);
    for text in all {
        assert_eq!(wrong(&text, &shown), [""; 0], "{text}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(panel["targets"].as_array().is_some_and(|all| !all.is_empty()), "{}", panel["title"]);
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
    }
    let ids: BTreeSet<_> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
}

#[test]
fn what_is_not_shown_is_found() {
    let shown = whole();
    for (text, expected) in [
        ("isochrone_ready == 0", ""),
        ("isochrone_readiness == 0", "isochrone_readiness is not on the page"),
        ("isochrone_leader{region=\"R\"}", "isochrone_leader has no label region"),
        (
            "isochrone_commit_phase_seconds_sum{phase=\"qorum\"}",
            "isochrone_commit_phase_seconds_sum has no phase=qorum",
        ),
        ("isochrone_protocol_stands{what=\"moves_unended\"}", ""),
        (
            "isochrone_protocol_stands{what!=\"moves_unendet\"}",
            "isochrone_protocol_stands has no what!=moves_unendet",
        ),
        ("sum by (keyspace, origin) (isochrone_leader)", "there is no label origin"),
        ("{{ $labels.keyspaces }} {{ $value | humanize }}", "there is no label keyspaces"),
        ("avg(isochrone_commit_bound_ratio)", "an average over regions"),
        (
            "histogram_quantile(0.5, sum by (le) (rate(isochrone_commit_duration_seconds_bucket[5m])))",
            "an average over regions",
        ),
    ] {
        assert_eq!(wrong(text, &shown).join(", "), expected, "{text}");
    }
}
