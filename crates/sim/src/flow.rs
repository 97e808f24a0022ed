//! A protocol's message flow as lanes of text, for the reader of its source.

use crate::trace::{FlowEvent, Line};
use isochrone_core::Instant;

/// What a flow drawing shows. Choose delays of which no small sums are equal, such as 10, 17 and 31 ms:
/// arrivals are told as sums of them.
#[derive(Clone, Debug)]
pub struct Lanes<'a> {
    /// The lanes from the client outward: the name of the node or process in the trace, and the heading.
    pub lanes: &'a [(&'a str, &'a str)],
    /// One-way delays by letter, nanoseconds.
    pub delays: &'a [(&'a str, u64)],
    /// Messages that are no part of the story, by name.
    pub without: &'a [&'a str],
    /// From the first request to this many answers.
    pub answers: usize,
}

const WIDTH: usize = 13;
const MARGIN: usize = 2;

/// Draws the flow: lanes from left to right, time downward, a message a line with its name as in the code;
/// `*` stands at a sender whose record must be durable first, `C` where a value is first decided; the
/// right column is the arrival after the request, as a sum of one-way delays.
pub fn lanes(flow: &[Line], what: &Lanes) -> String {
    let begin = flow.iter().find(|line| matches!(line.event, FlowEvent::Request(_)));
    let begin = begin.map_or(Instant::ZERO, |line| line.at);
    let answers = flow.iter().filter(|line| line.at >= begin && matches!(line.event, FlowEvent::Answer(_)));
    let end = answers.take(what.answers).last().map_or(Instant::MAX, |line| line.at);
    let decided = flow.iter().find(|line| line.at >= begin && matches!(line.event, FlowEvent::Decided(_)));
    let decided = decided.map(|line| line.at);
    let right = MARGIN + WIDTH * what.lanes.len();
    let mut out = String::new();
    for (_, heading) in what.lanes {
        out += &format!("{heading:<WIDTH$}");
    }
    out = format!("{out:<right$}arrives\n");
    for line in flow.iter().filter(|line| line.at >= begin && line.at < end) {
        let FlowEvent::Message { between: (from, to), label, arrival: Some(arrival), held, .. } = &line.event
        else {
            continue;
        };
        let lane = |name: &str| what.lanes.iter().position(|(lane, _)| *lane == name);
        let (Some(from), Some(to)) = (lane(from), lane(to)) else { continue };
        let name = name_of(label);
        if from == to || what.without.contains(&name) || *arrival > end {
            continue;
        }
        let held = held.as_nanos() > 0;
        let mut text = arrow(what.lanes.len(), from, to, name, held);
        let commits = decided == Some(*arrival);
        let sum = sum(arrival.since(begin).as_nanos(), what.delays);
        text = format!("{text:<right$}{sum:<10}{}", if commits { "C" } else { "" });
        out += text.trim_end();
        out.push('\n');
    }
    out
}

fn arrow(lanes: usize, from: usize, to: usize, name: &str, held: bool) -> String {
    let mut row = vec![b' '; MARGIN + WIDTH * lanes];
    for lane in 0..lanes {
        row[MARGIN + WIDTH * lane] = b'|';
    }
    let (start, end) = (MARGIN + WIDTH * from.min(to), MARGIN + WIDTH * from.max(to));
    row[start + 1..end].fill(b'-');
    let name = &name.as_bytes()[..name.len().min(WIDTH - 4)];
    if from < to {
        row[end - 1] = b'>';
        let at = start + 1 + (WIDTH - 2 - name.len()).div_ceil(2);
        row[at..at + name.len()].copy_from_slice(name);
        if held {
            row[start + 1] = b'*';
        }
    } else {
        row[start + 1] = b'<';
        let at = end - (WIDTH - 2 - name.len()) / 2 - name.len() - 1;
        row[at..at + name.len()].copy_from_slice(name);
        if held {
            row[end - 1] = b'*';
        }
    }
    String::from_utf8_lossy(&row).into_owned()
}

/// The name of a message: its variant.
pub(crate) fn name_of<'a>(label: &'a str) -> &'a str {
    let word = |text: &'a str| text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
    let outer = word(label).unwrap_or(label);
    // A message of a process that another one holds goes by its own name: `Log(Accept { .. })` is `Accept`, and so is
    // `Order { epoch: 0, message: Accept { .. } }`.
    let inner = label[outer.len()..].strip_prefix('(').and_then(|held| Some((word(held)?, held)));
    let named = label[outer.len()..].strip_prefix(" { ").and_then(|fields| fields.split_once("message: "));
    match (inner, named) {
        (Some((name, held)), _) if held[name.len()..].starts_with(" {") && !name.is_empty() => name,
        (None, Some((before, held))) if !before.contains(['{', '(', '[', '"']) => word(held).unwrap_or(outer),
        _ => outer,
    }
}

/// `nanos` as a sum of the fewest delays, within what syncs of a few microseconds add.
fn sum(nanos: u64, delays: &[(&str, u64)]) -> String {
    const SLACK: u64 = 100_000;
    fn search(rest: u64, delays: &[(&str, u64)], terms: u64) -> Option<Vec<u64>> {
        let Some(((_, delay), others)) = delays.split_first() else {
            return (rest <= SLACK).then(Vec::new);
        };
        for count in (0..=terms.min((rest + SLACK) / delay)).rev() {
            let left = (count * delay).min(rest);
            if let Some(mut counts) = search(rest - left, others, terms - count) {
                counts.insert(0, count);
                return Some(counts);
            }
        }
        None
    }
    let found = (0..=12).find_map(|terms| search(nanos, delays, terms));
    let Some(counts) = found else { return format!("{:.3} ms", nanos as f64 / 1e6) };
    let terms = counts.iter().zip(delays).filter(|(count, _)| **count > 0);
    let terms: Vec<String> = terms
        .map(|(count, (name, _))| if *count == 1 { (*name).to_owned() } else { format!("{count}{name}") })
        .collect();
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}
