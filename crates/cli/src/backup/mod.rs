//! `isochrone backup`: a whole keyspace into a file, through any node's Redis port, and back.
//!
//! What is saved is what `DUMP` says of each key, with its deadline, both as of one moment by `MULTI` and `EXEC`; the keys are
//! those that `SCAN` finds. What is longer than a node tells at once is read in parts, and it is told where somebody has written
//! it meanwhile; what is longer than a node takes at once is put back in parts. So it works with every protocol, and a user sees
//! no more than may be seen. It is no picture of one moment: that no command gives of a whole keyspace (a snapshot over gRPC
//! wants its keys named, and reads strings alone).

pub mod arguments;
mod format;
mod parts;
mod place;
mod putting;
mod reading;
mod restore;
mod save;
#[cfg(test)]
mod tests;
mod verify;
mod wire;

use crate::output::say;
use crate::{Status, Usage};
use arguments::{Backup, Verb};
use format::{Counts, Header};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long it is asked again and again for what is refused for now: an election takes a second, a move of keys some.
const PATIENCE: Duration = Duration::from_secs(60);
/// It is told what is waited for where that takes longer.
const QUIET: Duration = Duration::from_secs(3);
/// Between two times.
const PAUSE: Duration = Duration::from_millis(200);
/// Of a key, so many bytes are shown.
const SHOWN: usize = 100;

/// Runs the verb.
pub(crate) fn run(arguments: Backup) -> anyhow::Result<Status> {
    match arguments.verb {
        Verb::Save(arguments) => save::run(arguments),
        Verb::Restore(arguments) => restore::run(arguments),
        Verb::Verify(arguments) => verify::run(arguments),
    }
}

/// What `--format json` prints of a file that was written or read.
#[derive(Serialize)]
struct Report<'a> {
    file: String,
    bytes: u64,
    #[serde(flatten)]
    header: &'a Header,
    ended_ms: u64,
    #[serde(flatten)]
    counts: &'a Counts,
    /// Keys that had gone when they were to be read, where it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<u64>,
}

/// Waits before something is asked again, for so long in all since it last went on.
struct Patience {
    since: Instant,
    told: bool,
}

impl Patience {
    fn new() -> Patience {
        Patience { since: Instant::now(), told: false }
    }

    /// It went on.
    fn renew(&mut self) {
        *self = Patience::new();
    }

    /// Waits a moment after this node has said this; or says that it has waited long enough.
    fn wait(&mut self, at: &str, text: &str) -> bool {
        let waited = self.since.elapsed();
        if let Some(line) = self.line(waited, at, text) {
            say(line);
        }
        let left = waited < PATIENCE;
        if left {
            std::thread::sleep(PAUSE);
        }
        left
    }

    /// What is told of a wait that lasts, once.
    fn line(&mut self, waited: Duration, at: &str, text: &str) -> Option<String> {
        let left = PATIENCE.checked_sub(waited).filter(|_| waited >= QUIET && !self.told)?;
        self.told = true;
        Some(format!("{at}: {text}; it is asked again for {} s", left.as_secs()))
    }
}

/// Whether an error says that nothing was done, for a reason that passes.
fn passes(error: &str) -> bool {
    matches!(error.split(' ').next(), Some("TRYAGAIN" | "NOLEADER" | "OVERLOADED" | "LOADING"))
}

/// The same of what only reads: there it does not matter whether it was done.
fn passes_by(error: &str) -> bool {
    passes(error) || error.starts_with("UNKNOWN ")
}

/// A key as it is shown.
fn shown(key: &[u8]) -> String {
    let part = key.get(..SHOWN).unwrap_or(key);
    let more = if part.len() < key.len() { format!("... of {} bytes", key.len()) } else { String::new() };
    format!("\"{}\"{more}", part.escape_ascii())
}

/// How many values are in parts, and how many of them are not as of one moment.
fn in_parts(count: u64, changed: u64) -> String {
    let (values, are) = if count == 1 { ("value", "is") } else { ("values", "are") };
    let written = match changed {
        0 => String::new(),
        1 => "; 1 of them written while it was read, so that its parts are of different moments".to_owned(),
        more => {
            format!(
                "; {more} of them written while they were read, so that their parts are of different moments"
            )
        }
    };
    format!("{count} {values} that {are} longer than a node tells at once{written}")
}

/// A file of a backup cannot be read.
fn unreadable(path: &Path, cause: &std::io::Error) -> Usage {
    let wrong = format!("{}: cannot be read: {cause}", path.display());
    Usage(format!("{wrong}\n  name a file that `isochrone backup save` has written"))
}

/// A time as people read it, to the second.
fn date(millis: u64) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let seconds = millis / 1_000;
    let second = seconds % DAY;
    // Years begin with March, so that leap days are their last, and eras of 400 years in the year 0.
    let days = seconds / DAY + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}
