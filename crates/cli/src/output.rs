//! What all verbs print alike: rows of regions, JSON, what others said, progress.

use crate::Usage;
use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use isochrone_learn::write::Target;
use isochrone_workload::Quantiles;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
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
    let width = rows.iter().map(|row| isochrone_plan::cells(&row.region)).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:width$}  {:>10}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n",
        "region", "operations", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "mean ms", "floor ms"
    );
    for row in rows {
        let floor = row.floor_ms.map_or_else(|| "-".to_owned(), |floor| format!("{floor:.2}"));
        text += &format!(
            "{}{}  {:>10}  {:>9.2}  {:>9.2}  {:>9.2}  {:>9.2}  {:>9.2}  {floor:>9}\n",
            row.region,
            isochrone_plan::gap(&row.region, width),
            row.operations,
            row.p50_ms,
            row.p95_ms,
            row.p99_ms,
            row.p999_ms,
            row.mean_ms
        );
    }
    text
}

/// What others said moves no cursor: `?` stands for a control character other than the end of a line and a tab.
pub(crate) fn clean(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() && !matches!(letter, '\n' | '\t'), "?")
}

/// The same on one line, without tabs.
pub(crate) fn clean_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Prints one JSON value on a line of its own.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_text(&(serde_json::to_string(value)? + "\n"))
}

/// Prints text for people. Whoever reads it may stop early (`| head`); that is no failure of ours. Where it cannot be written
/// the place was given wrongly: no verdict is to be read from the exit status then.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    match put(text) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => Err(unprinted(&cause).into()),
        _ => Ok(()),
    }
}

/// Standard output cannot be written.
pub(crate) fn unprinted(cause: &io::Error) -> Usage {
    Usage(format!(
        "standard output: cannot be written: {cause}\n  send it to a file on a disk with room, or to a pipe that is read"
    ))
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

/// Makes the directory that a flag asks for, and those above it, where they are not there.
///
/// # Errors
/// A directory that cannot be made is one that was given wrongly.
pub(crate) fn make_directory(flag: &str, path: &Path) -> Result<(), Usage> {
    fs::create_dir_all(path).map_err(|cause| {
        let right = another_directory(&cause);
        Usage(format!("--{flag} {}: cannot make the directory: {cause}\n  {right}", path.display()))
    })
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

/// Refuses to write over what is read, by whatever names; what is read may be - for standard input.
pub(crate) fn apart(read: &Path, flag: &str, written: &Path) -> anyhow::Result<()> {
    let read = if read == Path::new("-") { Path::new("/dev/stdin") } else { read };
    if let (Ok(one), Ok(other)) = (read.metadata(), written.metadata())
        && other.is_file()
        && (one.dev(), one.ino()) == (other.dev(), other.ino())
    {
        bail!(Usage(format!(
            "--{flag} {}: this is the file that is read from\n  write to another one",
            written.display()
        )));
    }
    Ok(())
}

/// Refuses a place that no file can be written to, before what is to be written there takes its time. A file that is there
/// stays as it is.
///
/// # Errors
/// As of [`create`].
pub(crate) fn writable(path: &Path) -> Result<(), Usage> {
    // A file that is there is written into, which takes no right on its folder.
    let written = match path.is_file() {
        true => File::options().append(true).open(path).map(drop),
        false => Target::check(path),
    };
    written.map_err(|cause| no_place(path, &cause))
}

/// Makes a file that a flag asks for, replacing one that is there.
///
/// # Errors
/// A path that cannot be written is one that was given wrongly.
pub(crate) fn create(path: &Path) -> Result<File, Usage> {
    File::create(path).map_err(|cause| no_place(path, &cause))
}

/// No file can be made at this path.
pub(crate) fn no_place(path: &Path, cause: &io::Error) -> Usage {
    let wrong = format!("{}: cannot be written: {cause}", path.display());
    Usage(format!("{wrong}\n  name a file in a folder that this user may write"))
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
    fn what_is_read_is_not_written_over_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("cluster.toml"), "cluster").unwrap();
        fs::write(path("other"), "").unwrap();
        std::os::unix::fs::symlink("cluster.toml", path("soft")).unwrap();
        fs::hard_link(path("cluster.toml"), path("hard")).unwrap();
        for name in ["cluster.toml", "./cluster.toml", "soft", "hard"] {
            let error = apart(&path("cluster.toml"), "svg", &path(name)).unwrap_err();
            assert!(error.is::<Usage>(), "{error}");
            let expected = format!("--svg {}: this is the file that is read from", path(name).display());
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
        for name in ["other", "none"] {
            apart(&path("cluster.toml"), "svg", &path(name)).unwrap();
        }
    }

    #[test]
    fn where_a_file_could_be_written_nothing_is_written_yet() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "kept").unwrap();
        writable(&old).unwrap();
        writable(&new).unwrap();
        assert_eq!((fs::read_to_string(&old).unwrap().as_str(), new.exists()), ("kept", false));
        let error = writable(&folder.path().join("none/file")).unwrap_err().to_string();
        assert!(error.contains("none/file: cannot be written: No such file"), "{error}");
    }

    #[test]
    fn what_others_said_moves_no_cursor() {
        let said = "a\u{1b}[2J\r\nb\tc\u{7f}\u{9b}é";
        assert_eq!(clean(said), "a?[2J?\nb\tc??é");
        assert_eq!(clean_line(said), "a?[2J??b?c??é");
    }

    #[test]
    fn words_are_as_a_shell_takes_them() {
        for plain in
            ["Euro", "eu-west_1.a", "--http", "127.0.0.1:9000", "deployments/three-regions.toml", "--key=a"]
        {
            assert_eq!(quoted(plain), plain);
        }
        for (word, expected) in [
            ("US West", "'US West'"),
            ("Côte d'Or", r"'Côte d'\''Or'"),
            ("{user 7}", "'{user 7}'"),
            ("$(x)", "'$(x)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

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
