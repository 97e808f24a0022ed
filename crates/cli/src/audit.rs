//! `isochrone audit`: whether the audit log of a node is what was written.

use crate::arguments::Format;
use crate::output::{clean, print_json, print_text};
use crate::{Status, Usage};
use clap::Args;
use isochrone_node::audit::{Fault, Summary, verify};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone audit va1-audit.jsonl\n  isochrone audit va1-audit.jsonl --digest $(cat yesterday)\n\nThe lines hold each other, and the last one is held by its digest: keep what this prints somewhere else, and have it looked\nfor the next time. Without that, a log whose end was cut off or written anew passes.\n\nExit status: 0 the log is whole; 1 a line was changed, moved or removed, or is none; 2 the command is wrong."
)]
pub struct Audit {
    /// What a node with `audit` under [security] writes; - for standard input
    pub file: PathBuf,
    /// The digest of the last line, as this has printed it before: that line must still be there
    #[arg(long, value_name = "SHA256", value_parser = digest)]
    pub digest: Option<String>,
    /// How the verdict is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

fn digest(text: &str) -> Result<String, String> {
    match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(text.to_lowercase()),
        false => Err("is no SHA-256; give the 64 hexadecimal digits behind `digest`".to_owned()),
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: Audit) -> anyhow::Result<Status> {
    let Audit { file, digest, format } = arguments;
    let (shown, reader) = open(&file)?;
    let verdict = Verdict::of(&shown, verify(reader, digest.as_deref()));
    match format {
        Format::Json => print_json(&verdict)?,
        Format::Text => print_text(&verdict.text())?,
    }
    Ok(if verdict.whole { Status::Held } else { Status::Failed })
}

/// What the log is called, and what it is read from.
fn open(path: &Path) -> Result<(String, Box<dyn BufRead>), Usage> {
    if path == Path::new("-") {
        return Ok(("standard input".to_owned(), Box::new(io::stdin().lock())));
    }
    let shown = path.display().to_string();
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::Error::from(ErrorKind::IsADirectory)),
        false => Ok(file),
    });
    match file {
        Ok(file) => Ok((shown, Box::new(BufReader::new(file)))),
        Err(cause) => Err(Usage(format!(
            "{shown}: cannot be read: {cause}\n  name a log that a node writes, where `audit` under [security] says"
        ))),
    }
}

/// What was found.
#[derive(Debug, Serialize)]
struct Verdict {
    file: String,
    /// Whether it is what was written.
    whole: bool,
    /// The first line that is not, from 1, where it is one that is there.
    line: Option<u64>,
    /// Why not.
    why: Option<String>,
    /// What it says.
    #[serde(flatten)]
    summary: Option<Summary>,
}

impl Verdict {
    fn of(file: &str, found: Result<Summary, Fault>) -> Verdict {
        let file = file.to_owned();
        match found {
            Ok(summary) => Verdict { file, whole: true, line: None, why: None, summary: Some(summary) },
            Err(fault) => {
                let line = match &fault {
                    Fault::Strange { line } | Fault::Broken { line } => Some(*line),
                    Fault::Beheaded => Some(1),
                    Fault::Missing(_) | Fault::Unreadable(_) => None,
                };
                Verdict { file, whole: false, line, why: Some(fault.to_string()), summary: None }
            }
        }
    }

    /// For people.
    fn text(&self) -> String {
        let Verdict { file, why, summary, .. } = self;
        let Some(summary) = summary else {
            let why = why.as_deref().unwrap_or_default();
            return format!(
                "{file}: {why}\n  trust no line from there on that a copy kept elsewhere does not have\n"
            );
        };
        let Summary { lines, nodes, first, last, allowed, denied, failed, lost, torn, digest } = summary;
        let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
        let mut text = format!("{file}: whole, {lines} lines\n");
        if let (Some(first), Some(last)) = (first, last) {
            text += &format!("  of      {}, from {first} to {last}\n", names.join(", "));
        }
        text += &format!("  acts    {allowed} allowed, {denied} denied, {failed} failed\n");
        if *lost > 0 {
            text += &format!("  lost    {lost} more, as it says itself\n");
        }
        if *torn > 0 {
            text += &format!(
                "  behind  {torn} bytes of a line that is being written, or that a crash has cut short\n"
            );
        }
        text += &format!("  digest  {digest}\n");
        clean(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn what_a_log_says_is_told_in_a_few_lines() {
        let summary = Summary {
            lines: 42,
            nodes: ["va1\u{1b}".to_owned()].into(),
            first: Some("2026-01-01T00:00:00.000000Z".to_owned()),
            last: Some("2026-01-02T00:00:00.000000Z".to_owned()),
            allowed: 30,
            denied: 10,
            failed: 2,
            lost: 7,
            torn: 9,
            digest: "d".repeat(64),
        };
        expect![[r#"
            log: whole, 42 lines
              of      va1?, from 2026-01-01T00:00:00.000000Z to 2026-01-02T00:00:00.000000Z
              acts    30 allowed, 10 denied, 2 failed
              lost    7 more, as it says itself
              behind  9 bytes of a line that is being written, or that a crash has cut short
              digest  dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd
        "#]]
        .assert_eq(&Verdict::of("log", Ok(summary)).text());
        let broken = Verdict::of("log", Err(Fault::Broken { line: 5 }));
        expect![[r#"
            log: line 5 does not follow line 4: that one was changed, or lines between them are missing
              trust no line from there on that a copy kept elsewhere does not have
        "#]]
        .assert_eq(&broken.text());
        expect![[r#"{"file":"log","whole":false,"line":5,"why":"line 5 does not follow line 4: that one was changed, or lines between them are missing"}"#]]
            .assert_eq(&serde_json::to_string(&broken).unwrap());
    }

    #[test]
    fn a_digest_is_one() {
        assert_eq!(digest(&"A".repeat(64)), Ok("a".repeat(64)));
        for wrong in ["", "abc", &"g".repeat(64)] {
            assert!(digest(wrong).unwrap_err().contains("64 hexadecimal digits"), "{wrong}");
        }
    }
}
