//! `isochrone reproduce`: published evaluations, run again; published and measured figures side by side.

mod carousel;
mod cop;
mod curp;
mod domino;
mod lab;
mod published;
mod sdpaxos;
mod self_check;
mod traces;
mod transactions;

use crate::arguments::{Format, Reproduce};
use crate::chart::{self, Bars, Curves};
use crate::output::{make_directory, print_json, print_text, say, write};
use crate::{Status, Usage};
use anyhow::{Context, bail};
use lab::Lab;
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// One figure. `published` is what the source states (for the self-check: what arithmetic says), `ratio` is
/// measured over published.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    id: String,
    setting: String,
    system: String,
    metric: String,
    published: Published,
    measured: Option<f64>,
    unit: String,
    ratio: Option<f64>,
    note: String,
    /// Whether the figure was measured, is off by more than the evaluation tolerates, and nobody has said why.
    #[serde(skip)]
    missed: bool,
}

/// What a source states: a number, or words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Published {
    /// A number.
    Number(f64),
    /// Words.
    Words(String),
}

/// Which rows, by their id, and which drawings, by their name.
type Wanted<'a> = &'a dyn Fn(&str) -> bool;

/// The name of a file, and what is drawn in it.
type Drawing = (&'static str, Curves);

/// The same of bars.
type BarDrawing = (String, Bars);

/// An evaluation: its name, what it is, and how it is run.
struct Evaluation {
    name: &'static str,
    what: &'static str,
    /// Rows whose id the filter lets through.
    run: fn(Wanted<'_>, &mut Lab) -> anyhow::Result<Vec<Row>>,
    /// Its drawings whose name the filter lets through, each with the name of its file.
    draw: fn(Wanted<'_>, &mut Lab) -> anyhow::Result<Vec<Drawing>>,
    /// The same of what is drawn as bars.
    bars: fn(Wanted<'_>, &mut Lab) -> anyhow::Result<Vec<BarDrawing>>,
}

/// A line of `list`, for programs.
#[derive(Serialize)]
struct Named {
    name: &'static str,
    what: &'static str,
}

impl Named {
    fn of(one: &Evaluation) -> Named {
        Named { name: one.name, what: one.what }
    }
}

/// All evaluations, a line each.
const ALL: &[Evaluation] = &[
    Evaluation {
        name: "self-check",
        what: "Multi-Paxos in the simulator against its closed form, every leader and client of five regions",
        run: self_check::run,
        draw: |_, _| Ok(Vec::new()),
        bars: |_, _| Ok(Vec::new()),
    },
    Evaluation {
        name: "domino",
        what: "Domino, Chapter 4 of Yan's thesis (Waterloo 2021): commit and execution latency, choices, throughput",
        run: domino::run,
        draw: domino::draw,
        bars: |_, _| Ok(Vec::new()),
    },
    Evaluation {
        name: "sdpaxos",
        what: "SDPaxos (Zhao et al., SoCC 2018): latency, contention, stragglers, reads, failover",
        run: sdpaxos::run,
        draw: sdpaxos::draw,
        bars: |_, _| Ok(Vec::new()),
    },
    Evaluation {
        name: "curp",
        what: "CURP (Park and Ousterhout, NSDI 2019): round trips, witnesses, skew; beside a real Redis",
        run: curp::run,
        draw: curp::draw,
        bars: |_, _| Ok(Vec::new()),
    },
    Evaluation {
        name: "carousel",
        what: "Carousel, Chapter 3 of Yan's thesis (Waterloo 2021): transaction latency, throughput, aborts, round trips",
        run: carousel::run,
        draw: carousel::draw,
        bars: |_, _| Ok(Vec::new()),
    },
    Evaluation {
        name: "cop",
        what: "COP, Chapter 6 of Nawab's dissertation (UCSB 2018): throughput by scheme and threads, contention, planning",
        run: cop::run,
        draw: cop::draw,
        bars: cop::bars,
    },
];

/// Runs the verb.
pub(crate) fn run(arguments: Reproduce) -> anyhow::Result<Status> {
    if arguments.name == "list" {
        if !arguments.only.is_empty() || arguments.svg.is_some() {
            bail!(Usage(
                "list names the evaluations; --only and --svg are for one of them\n  leave them out"
                    .to_owned()
            ));
        }
        match arguments.format {
            Format::Json => print_json(&ALL.iter().map(Named::of).collect::<Vec<_>>())?,
            Format::Text => {
                let text: String = ALL.iter().map(|one| format!("{:<12} {}\n", one.name, one.what)).collect();
                print_text(&text)?;
            }
        }
        return Ok(Status::Held);
    }
    let Some(evaluation) = ALL.iter().find(|one| one.name == arguments.name) else {
        let names: Vec<_> = ALL.iter().map(|one| one.name).collect();
        bail!(Usage(format!(
            "no evaluation is called `{}`\n  use {}, or list, which says what they are",
            arguments.name,
            names.join(", ")
        )));
    };
    let mut lab = Lab::default();
    let wanted = |id: &str| {
        let chosen =
            |only: &String| only == id || only.strip_suffix('*').is_some_and(|only| id.starts_with(only));
        arguments.only.is_empty() || arguments.only.iter().any(chosen)
    };
    if let Some(folder) = &arguments.svg {
        // Before the work, which may take minutes.
        make_directory("svg", folder)?;
    }
    let rows = (evaluation.run)(&wanted, &mut lab)?;
    let mut drawn = 0;
    let drawings = RefCell::new(Vec::new());
    if let Some(folder) = &arguments.svg {
        let wanted = |name: &str| {
            drawings.borrow_mut().push(name.to_owned());
            wanted(name)
        };
        let curves = (evaluation.draw)(&wanted, &mut lab)?;
        let curves = curves.into_iter().map(|(name, curves)| (name.to_owned(), chart::curves(&curves)));
        let bars = (evaluation.bars)(&wanted, &mut lab)?;
        let bars = bars.into_iter().map(|(name, bars)| (name, chart::bars(&bars)));
        for (name, svg) in curves.chain(bars) {
            let path = folder.join(format!("{}-{name}.svg", evaluation.name));
            write(&path, &svg)?;
            drawn += 1;
        }
    }
    let (only, name) = (arguments.only.join(","), evaluation.name);
    if rows.is_empty() && drawn == 0 {
        bail!(Usage(format!(
            "--only {only}: {name} has no such row\n  `isochrone reproduce {name}` names them all; * at the end stands for any ending"
        )));
    }
    let drawings = drawings.into_inner();
    if drawn == 0 && !drawings.is_empty() {
        say(format_args!(
            "nothing is drawn: --only {only} names no drawing of {name}; there are {}",
            drawings.join(", ")
        ));
    }
    lab.finish();
    match arguments.format {
        Format::Json => print_json(&rows)?,
        Format::Text => print_text(&table(&rows))?,
    }
    Ok(if rows.iter().any(|row| row.missed) { Status::Failed } else { Status::Held })
}

/// From now on a signal has `end` put away what is held, and ends this process. Only one can be in a process.
fn when_interrupted<T: Send + 'static>(held: &Arc<Mutex<T>>, end: fn(&mut T)) -> anyhow::Result<()> {
    let held = held.clone();
    ctrlc::set_handler(move || {
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        end(&mut held);
        // With the lock: nothing more is begun.
        std::process::exit(130);
    })
    .context("signals cannot be heard")
}

fn table(rows: &[Row]) -> String {
    let published = |row: &Row| match &row.published {
        Published::Number(number) => format!("{number:.2}"),
        Published::Words(words) => words.clone(),
    };
    let wide =
        |column: fn(&Row) -> usize, least: usize| rows.iter().map(column).max().unwrap_or(0).max(least);
    let (id, setting) = (wide(|row| row.id.len(), 2), wide(|row| row.setting.len(), 7));
    let (system, metric) = (wide(|row| row.system.len(), 6), wide(|row| row.metric.len(), 6));
    let unit = wide(|row| row.unit.len(), 4);
    let mut text = format!(
        "{:id$}  {:setting$}  {:system$}  {:metric$}  {:>10}  {:>10}  {:unit$}  {:>6}  note\n",
        "id", "setting", "system", "metric", "published", "measured", "unit", "ratio"
    );
    let shown =
        |value: Option<f64>, digits| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:id$}  {:setting$}  {:system$}  {:metric$}  {:>10}  {:>10}  {:unit$}  {:>6}  {}{}",
            row.id,
            row.setting,
            row.system,
            row.metric,
            published(row),
            shown(row.measured, 2),
            row.unit,
            shown(row.ratio, 3),
            if row.missed { "MISSED " } else { "" },
            row.note
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At once: what is not drawn is not measured.
    #[test]
    fn only_the_drawings_that_are_named_are_made() {
        let mut lab = Lab::default();
        for one in ALL {
            assert!((one.draw)(&|_| false, &mut lab).unwrap().is_empty(), "{}", one.name);
            assert!((one.bars)(&|_| false, &mut lab).unwrap().is_empty(), "{}", one.name);
        }
    }
}
