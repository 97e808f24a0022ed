//! `isochrone check`: decides a recorded history.

use crate::Status;
use crate::arguments::{Check, Format};
use crate::output::{print_json, print_text};
use anyhow::Context;
use isochrone_check::{Budget, History, Verdict, check_named};
use std::fs::File;
use std::io::BufReader;
use std::time::{Duration, Instant};

/// Runs the verb.
pub(crate) fn run(arguments: Check) -> anyhow::Result<Status> {
    let path = arguments.history.display().to_string();
    let file = File::open(&arguments.history).with_context(|| {
        format!("{path}: cannot be read; `bench --history` and `sim --history` write one")
    })?;
    let history = History::read(&path, BufReader::new(file))?;
    let start = Instant::now();
    let clock = || start.elapsed();
    let budget = Budget {
        time: Some(Duration::from_nanos(arguments.limit.as_nanos())),
        clock: Some(&clock),
        ..Budget::default()
    };
    let report = check_named(&history, arguments.model.parse()?, &budget)?;
    match arguments.format {
        Format::Json => print_json(&report)?,
        Format::Text => print_text(&format!("{report}\n"))?,
    }
    Ok(match report.verdict {
        Verdict::Linearizable => Status::Held,
        Verdict::Violation(_) => Status::Failed,
        Verdict::Undecided { .. } => Status::Undecided,
    })
}
