//! A [`View`] as text for people.

use super::view::{Node, Progress, View, Way};
use crate::output::clean;
use crate::status::screen::{columns, uptime};
use std::fmt::Write;

/// The whole of it.
pub(super) fn text(view: &View) -> String {
    let way = match view.way {
        Way::Done => "",
        Way::OneByOne => ", the rest one by one",
        Way::AllAtOnce => ", the rest all at once",
    };
    let mut text = format!("{}: {}{way}\n\n", view.cluster, done(view));
    text += &columns(&NODES, view.nodes.iter().map(row));
    if let Some(next) = &view.next {
        // Writing to a string does not fail; the same holds below.
        let _ = write!(
            text,
            "\n{next} may be stopped: every keyspace is served without it\n  nothing is stopped or started from here: start it anew, \
             with what is new, and ask again\n"
        );
    }
    if view.done() {
        text += "\nnothing is left to be done\n";
    }
    let parts = [
        ("it cannot go on like this", &view.obstacles),
        ("to be waited for", &view.waits),
        ("look at", &view.notes),
    ];
    for (head, lines) in parts.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let _ = writeln!(text, "\n{head}");
        for line in lines.iter().flat_map(|line| line.lines()) {
            let _ = writeln!(text, "  {line}");
        }
    }
    clean(&text)
}

/// What is said beside the name of the next node, or where there is none.
pub(super) fn next(view: &View) -> String {
    let told = match &view.next {
        Some(next) => format!("{next} may be stopped; {}", done(view)),
        None => format!("nothing is left to be done; {}", done(view)),
    };
    clean(&told)
}

fn done(view: &View) -> String {
    let all = view.nodes.iter().filter(|node| node.progress != Progress::Without).count();
    let done = view.nodes.iter().filter(|node| node.progress == Progress::Done).count();
    match &view.to {
        Some(version) => format!("{done} of {all} nodes run version {version}"),
        None => format!("{done} of {all} nodes were started in the last {}", uptime(view.ago.as_secs())),
    }
}

const NODES: [(&str, bool); 8] = [
    ("node", false),
    ("region", false),
    ("version", false),
    ("frames", true),
    ("up", true),
    ("state", false),
    ("leads", false),
    ("", false),
];

fn row(node: &Node) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        node.node.clone(),
        node.region.clone(),
        or_none(node.version.clone()),
        or_none(node.frames.map(|frames| frames.to_string())),
        or_none(node.uptime_seconds.map(uptime)),
        node.state.to_owned(),
        or_none(Some(node.leads.join(", ")).filter(|leads| !leads.is_empty())),
        match node.progress {
            Progress::Done => "done",
            Progress::ToDo => "to do",
            Progress::Next => "next",
            Progress::Unknown => "",
            Progress::Without => "left out",
        }
        .to_owned(),
    ]
}
