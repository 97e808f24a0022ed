//! The lines of an audit log, and what holds them together.

use crate::redis::digest::sha256;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, Read as _};
use std::os::unix::fs::FileExt as _;
use thiserror::Error;

/// What the first line has in the place of the digest of one before it.
pub(super) const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// What every line begins with, so that no other file is taken for an audit log.
const HEAD: &[u8] = b"{\"time\":\"";
/// A line is shorter: its texts are cut, and a byte of them takes six at most.
const LINE_MAX: u64 = 64 << 10;
/// In so much of the end of a file its last whole line is looked for, and where there is none, in so much, bytes. The first is more
/// than what is written at once, so that all that a crash may have left in part lies there.
const TAILS: [u64; 2] = [1 << 20, 64 << 20];

/// What became of an act.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It was let through, and, where the node does it by itself, done.
    Allowed,
    /// It was refused to who asked for it.
    Denied,
    /// It was let through, and not done, or nobody knows.
    Failed,
}

/// One line.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When, by the node's clock: UTC, to the microsecond.
    pub time: String,
    /// The node's name.
    pub node: String,
    /// How it was asked: `redis`, `grpc`, `http`; `node` of what the node does by itself.
    pub via: String,
    /// The user, or the name that was given for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// From where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The command, the method or the order.
    pub act: String,
    /// Of which keyspace, where it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyspace: Option<String>,
    /// On what: a key, a channel, a user and rules, an order in full. Never a value or a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What became of it.
    pub decision: Decision,
    /// Why, where it was not simply allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many acts are missing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// The SHA-256 of the line before, without its end; zeros in the first line.
    pub previous: String,
}

/// What an audit log says, all in all.
#[derive(Clone, Eq, PartialEq, Debug, Default, Serialize)]
pub struct Summary {
    /// Whole lines.
    pub lines: u64,
    /// The nodes that wrote them.
    pub nodes: BTreeSet<String>,
    /// The time of the first.
    pub first: Option<String>,
    /// The time of the last.
    pub last: Option<String>,
    /// Acts that were allowed.
    pub allowed: u64,
    /// Those that were denied.
    pub denied: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that it says are missing.
    pub lost: u64,
    /// Bytes behind the last whole line: it is being written, or the node ended in the middle of it.
    pub torn: u64,
    /// The SHA-256 of the last line: kept elsewhere, it is what nobody can change this log behind.
    pub digest: String,
}

/// Why an audit log is not what was written.
#[derive(Debug, Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// A line is no line of an audit log.
    #[error("line {line} is none of an audit log")]
    Strange {
        /// Its number, from 1.
        line: u64,
    },
    /// The first line says that there was one before it.
    #[error("line 1 is not the first that was written: those before it are missing")]
    Beheaded,
    /// A line carries the digest of another one than the one before it.
    #[error("line {line} does not follow line {}: that one was changed, or lines between them are missing", line - 1)]
    Broken {
        /// Its number, from 1.
        line: u64,
    },
    /// No line has the digest that was asked for.
    #[error(
        "no line has the digest {0}: the line that had it was changed, or it and all behind it are missing"
    )]
    Missing(String),
}

/// Reads an audit log to its end. With a `digest` that was told of it before, also whether that line is still there.
///
/// # Errors
/// The first line that is not what was written.
pub fn verify(mut file: impl BufRead, digest: Option<&str>) -> Result<Summary, Fault> {
    let mut found = Summary { digest: NOTHING.to_owned(), ..Summary::default() };
    let mut met = digest.is_none_or(|digest| digest == NOTHING);
    let mut text = Vec::new();
    loop {
        text.clear();
        file.by_ref().take(LINE_MAX).read_until(b'\n', &mut text)?;
        let line = found.lines + 1;
        if text.pop_if(|end| *end == b'\n').is_none() {
            let known = HEAD.len().min(text.len());
            if text.len() as u64 == LINE_MAX || line == 1 && text[..known] != HEAD[..known] {
                return Err(Fault::Strange { line });
            }
            found.torn = text.len() as u64;
            break;
        }
        let record: Record = serde_json::from_slice(&text).map_err(|_| Fault::Strange { line })?;
        if record.previous != found.digest {
            return Err(if line == 1 { Fault::Beheaded } else { Fault::Broken { line } });
        }
        found.lines = line;
        found.digest = sha256(&text);
        met |= digest == Some(found.digest.as_str());
        *match record.decision {
            Decision::Allowed => &mut found.allowed,
            Decision::Denied => &mut found.denied,
            Decision::Failed => &mut found.failed,
        } += 1;
        found.lost = found.lost.saturating_add(record.lost.unwrap_or(0));
        found.nodes.insert(record.node);
        found.first.get_or_insert_with(|| record.time.clone());
        found.last = Some(record.time);
    }
    match digest {
        Some(digest) if !met => Err(Fault::Missing(digest.to_owned())),
        _ => Ok(found),
    }
}

/// Where an audit log goes on.
#[derive(Clone, Eq, PartialEq, Debug)]
pub(super) struct End {
    /// Bytes up to the end of the last whole line.
    pub length: u64,
    /// Its digest.
    pub previous: String,
    /// Bytes behind it, which are none of a line.
    pub torn: u64,
}

/// Where this file goes on; nothing where it is no audit log.
pub(super) fn end(file: &File) -> io::Result<Option<End>> {
    let length = file.metadata()?.len();
    let mut head = [0; HEAD.len()];
    let known = HEAD.len().min(usize::try_from(length).unwrap_or(usize::MAX));
    file.read_exact_at(&mut head[..known], 0)?;
    if head[..known] != HEAD[..known] {
        return Ok(None);
    }
    let line_end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == b'\n');
    for most in TAILS {
        let from = length.saturating_sub(most);
        let mut tail = vec![0; usize::try_from(length - from).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut tail, from)?;
        // No line has a zero. A page that a crash has lost is full of them, and what lies behind it follows nothing.
        let hole = tail.iter().position(|byte| *byte == 0).unwrap_or(tail.len());
        let mut before = &tail[..hole];
        while let Some(at) = line_end(before) {
            let start = line_end(&before[..at]).map_or(0, |end| end + 1);
            // What a disk has kept of the last writes in part, behind those that were synced, may have line ends too.
            if serde_json::from_slice::<Record>(&before[start..at]).is_ok() {
                let whole = from + at as u64 + 1;
                let previous = sha256(&before[start..at]);
                return Ok(Some(End { length: whole, previous, torn: length - whole }));
            }
            before = &before[..at];
        }
        if from == 0 {
            return Ok(Some(End { length: 0, previous: NOTHING.to_owned(), torn: length }));
        }
    }
    Ok(None)
}
