//! What all verbs print alike: rows of regions, JSON, progress.

use crate::Usage;
use indicatif::{ProgressBar, ProgressStyle};
use isochrone_workload::Quantiles;
use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// The figures of a region. Latencies in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Its name, or the endpoint's.
    pub(crate) region: String,
    /// Requests that counted.
    pub(crate) operations: u64,
    /// Median.
    pub(crate) p50_ms: f64,
    /// 95th percentile.
    pub(crate) p95_ms: f64,
    /// 99th percentile.
    pub(crate) p99_ms: f64,
    /// 99.9th percentile.
    pub(crate) p999_ms: f64,
    /// Mean.
    pub(crate) mean_ms: f64,
    /// No linearizable replicated write is faster from there; absent where the distances are not known.
    pub(crate) floor_ms: Option<f64>,
}

impl Row {
    /// A region's row.
    pub(crate) fn of(region: &str, figures: Quantiles, floor_ms: Option<f64>) -> Option<Row> {
        let Quantiles { operations, p50_ms, p95_ms, p99_ms, p999_ms, mean_ms, .. } = figures;
        let region = region.to_owned();
        Some(Row { region, operations, p50_ms, p95_ms, p99_ms, p999_ms, mean_ms, floor_ms })
    }
}

/// The rows as a table for people.
pub(crate) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.region.chars().count()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:width$}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n",
        "region", "operations", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "mean ms", "floor ms"
    );
    for row in rows {
        let floor = row.floor_ms.map_or_else(|| "-".to_owned(), |floor| format!("{floor:.2}"));
        text += &format!(
            "{:width$}  {:>10}  {:>9.2}  {:>9.2}  {:>9.2}  {:>9.2}  {:>9.2}  {floor:>9}\n",
            row.region, row.operations, row.p50_ms, row.p95_ms, row.p99_ms, row.p999_ms, row.mean_ms
        );
    }
    text
}

/// Prints one JSON value on a line of its own.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_text(&(serde_json::to_string(value)? + "\n"))
}

/// Prints text for people. Whoever reads it may stop early (`| head`); that is no failure of ours. Where it cannot be written
/// the place was given wrongly: no verdict is to be read from the exit status then.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    match put(text) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => Err(Usage(format!(
            "standard output: cannot be written: {cause}\n  send it to a file on a disk with room, or to a pipe that is read"
        ))
        .into()),
        _ => Ok(()),
    }
}

/// What to do where a directory cannot be made or written.
pub(crate) fn another_directory(cause: &io::Error) -> &'static str {
    match cause.kind() {
        ErrorKind::PermissionDenied => "name a directory that this user may write",
        ErrorKind::ReadOnlyFilesystem => {
            "name a directory on a file system that is not read-only, or mount this one anew"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "name a directory, or one that does not exist yet"
        }
        ErrorKind::StorageFull => "free space on this disk, or name a directory on another",
        _ => "name another directory",
    }
}

/// Prints text at once; an error also where nobody reads it any more.
pub(crate) fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Says something on standard error, to whoever reads it. `eprintln` panics where nobody does.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Makes a file that a flag asks for, replacing one that is there.
///
/// # Errors
/// A path that cannot be written is one that was given wrongly.
pub(crate) fn create(path: &Path) -> Result<File, Usage> {
    File::create(path).map_err(|cause| {
        Usage(format!(
            "{}: cannot be written: {cause}\n  name a file in a folder that this user may write",
            path.display()
        ))
    })
}

/// A file could not be written to its end: no verdict is to be read from the exit status then.
pub(crate) fn unwritable(path: &Path, cause: &io::Error) -> Usage {
    let wrong = format!("{}: cannot be written: {cause}", path.display());
    Usage(format!("{wrong}\n  free space there, or name a file on another disk"))
}

/// Writes such a file, and says so.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    create(path)?.write_all(text.as_bytes()).map_err(|cause| unwritable(path, &cause))?;
    say(format_args!("wrote {}", path.display()));
    Ok(())
}

/// A progress bar on standard error; silent where that is no terminal.
pub(crate) fn bar(what: &'static str, length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3}% {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lines_up() {
        let row = |region: &str, floor_ms| Row {
            region: region.to_owned(),
            operations: 1234,
            p50_ms: 73.0,
            p95_ms: 74.5,
            p99_ms: 120.25,
            p999_ms: 240.5,
            mean_ms: 73.9,
            floor_ms,
        };
        expect_test::expect![[r#"
            region     operations     p50 ms     p95 ms     p99 ms   p99.9 ms    mean ms   floor ms
            US West          1234      73.00      74.50     120.25     240.50      73.90      73.00
            Australia        1234      73.00      74.50     120.25     240.50      73.90          -
        "#]]
        .assert_eq(&table(&[row("US West", Some(73.0)), row("Australia", None)]));
    }
}
