//! `isochrone check`: decides a recorded history.

use crate::arguments::{Check, Format};
use crate::output::{print_json, print_text};
use crate::{Status, Usage};
use anyhow::Context;
use isochrone_check::transactions::{Isolation, TransactionVerdict, Transactions, check_transactions};
use isochrone_check::{
    Budget, CheckError, History, ModelName, Promise, Verdict, check_named, check_promised,
};
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

/// The model whose history is one of transactions.
const TRANSACTIONS: &str = "transactions";

/// Runs the verb.
pub(crate) fn run(arguments: Check) -> anyhow::Result<Status> {
    // What is asked for is looked at before the file, which may be large.
    let model = match arguments.model.as_str() {
        TRANSACTIONS => None,
        model => Some(model.parse::<ModelName>().context("--model")?),
    };
    if let (Some(isolation), Some(model)) = (&arguments.isolation, model) {
        return Err(Usage(format!(
            "--isolation {isolation} is for --model {TRANSACTIONS}; operations of --model {} are linearizable or not\n  leave it out",
            model.as_str()
        ))
        .into());
    }
    let promise = arguments.promise.as_deref().map(str::parse::<Promise>).transpose().context("--promise")?;
    if let Some(promise) = promise.filter(|_| model != Some(ModelName::Kv)) {
        return Err(Usage(format!(
            "--promise {promise} is for --model {}, the commands of keyspaces; transactions have --isolation\n  leave it out",
            ModelName::Kv
        ))
        .into());
    }
    let isolation = arguments.isolation.as_deref().map_or(Ok(Isolation::default()), str::parse);
    let isolation = isolation.context("--isolation")?;
    let (path, file) = open(&arguments.history)?;
    let start = Instant::now();
    let clock = || start.elapsed();
    let budget = Budget {
        time: Some(Duration::from_nanos(arguments.limit.as_nanos())),
        clock: Some(&clock),
        ..Budget::default()
    };
    let Some(model) = model else {
        let history = Transactions::read(&path, BufReader::new(file))?;
        some(&path, history.list.len())?;
        let report = check_transactions(&history, isolation, &budget);
        let report = report.map_err(|error| placed(&path, error))?;
        return told(arguments.format, &report, |report| match report.verdict {
            TransactionVerdict::Held => Status::Held,
            TransactionVerdict::Violation(_) => Status::Failed,
            TransactionVerdict::Undecided { .. } => Status::Undecided,
        });
    };
    let history = History::read(&path, BufReader::new(file))?;
    some(&path, history.operations.len())?;
    let report = match model {
        // A history does not say by when what was answered was executed.
        ModelName::Kv => check_promised(&history, promise.unwrap_or_default(), u64::MAX, &budget),
        ModelName::Register | ModelName::Bank => check_named(&history, model, &budget),
    };
    let report = report.map_err(|error| placed(&path, error))?;
    let status = told(arguments.format, &report, |report| match report.verdict {
        Verdict::Linearizable => Status::Held,
        Verdict::Violation(_) => Status::Failed,
        Verdict::Undecided { .. } => Status::Undecided,
    })?;
    let assumed = model == ModelName::Kv && promise.is_none();
    if assumed && status == Status::Failed && arguments.format == Format::Text {
        print_text(
            "where the keyspace promises less than linearizability, say --promise (docs/histories.md)\n",
        )?;
    }
    Ok(status)
}

/// What the history is called, and what it is read from.
fn open(path: &Path) -> Result<(String, Box<dyn Read>), Usage> {
    if path == Path::new("-") {
        return Ok(("standard input".to_owned(), Box::new(io::stdin())));
    }
    let shown = path.display().to_string();
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::Error::new(io::ErrorKind::IsADirectory, "Is a directory")),
        false => Ok(file),
    });
    match file {
        Ok(file) => Ok((shown, Box::new(file))),
        Err(cause) => Err(Usage(format!(
            "{shown}: cannot be read: {cause}\n  name a history, or - for standard input; `bench --history` and `sim --history` write one"
        ))),
    }
}

/// What makes a history one that cannot be checked, behind where it stands, blank lines not counted.
fn placed(path: &str, error: CheckError) -> Usage {
    let (line, problem) = match error {
        CheckError::Operation { line, problem } => (line, problem.to_string()),
        CheckError::Malformed { line, problem } => (line, problem.to_owned()),
    };
    Usage(format!("{path}:{line}: {problem}"))
}

/// Of nothing everything holds: whoever has such a history checked means another.
fn some(path: &str, lines: usize) -> Result<(), Usage> {
    if lines > 0 {
        return Ok(());
    }
    Err(Usage(format!(
        "{path}: the history is empty, so there is nothing to be checked\n  name one that a run has written to its end"
    )))
}

/// Prints a report; the status that it is.
fn told<R: Serialize + Display>(
    format: Format,
    report: &R,
    status: fn(&R) -> Status,
) -> anyhow::Result<Status> {
    match format {
        Format::Json => print_json(report)?,
        Format::Text => print_text(&format!("{report}\n"))?,
    }
    Ok(status(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_checked_is_said_with_its_place() {
        let line = r#"{"client":3,"session":1,"sequence":17,"key":"x","op":"foo","args":["3"],"invoked":10,"returned":20,"outcome":"ok"}"#;
        let history = History::read("h.jsonl", line.as_bytes()).unwrap();
        let told = |model| {
            let error = check_named(&history, model, &Budget::default()).unwrap_err();
            placed("h.jsonl", error).to_string()
        };
        for model in [ModelName::Kv, ModelName::Register] {
            assert!(told(model).starts_with("h.jsonl:1: foo x 3: no operation of the "), "{}", told(model));
        }
        let twice = CheckError::Malformed { line: 2, problem: "it writes twice" };
        assert_eq!(placed("h.jsonl", twice).to_string(), "h.jsonl:2: it writes twice");
    }
}
