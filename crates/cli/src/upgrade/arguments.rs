//! The command line of `isochrone upgrade`.

use crate::arguments::{Format, span};
use clap::Args;
use isochrone_core::Span;
use isochrone_core::deployment::Address;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  isochrone upgrade cluster.toml\n  isochrone upgrade cluster.toml --started-before 2030-01-31T13:00:00Z\n  last=\n  while true; do\n    node=$(isochrone upgrade cluster.toml --next) || exit 1\n    test -n \"$node\" || break\n    test \"$node\" != \"$last\" || { echo \"$node was not started anew\" >&2; exit 1; }\n    ssh \"$node\" systemctl restart \"isochrone@$node\" || exit 1\n    last=$node\n  done\n\nIt asks nodes, and stops and starts none. With the new program installed on every machine, a loop such as the one above starts\nall anew, one by one. For a new file or new certificates, where the version stays, --started-before takes the place of --to: the\nmoment from which on nodes are new, taken once before the loop, as with date +%s.\n\nA node may be stopped while all others serve, and have for ten seconds, have applied what was applied anywhere two seconds ago,\nknow the same leaders and members, and are enough without it, in every keyspace; and while no keys move and no order about\nreplicas is under way. Who leads comes last. With --next the command that stops a node must have stopped it when it ends.\n\nExit status: 0 a node may be stopped now, and --next has printed its name; or nothing is left to be done, every node serves, and\n--next has printed nothing; 1 it has to be waited, or was waited for in vain, or the rest cannot be done one by one; 2 what was\nasked for cannot be meant."
)]
pub struct Upgrade {
    /// The deployment: each node is asked where its `http` is, and all must answer
    pub file: PathBuf,
    /// Where a node's `http` is, in the place of what the file says; once for each node
    #[arg(long, value_name = "HOST:PORT", value_parser = Address::parse)]
    pub http: Vec<Address>,
    /// Wait until one more node may be stopped, and print its name alone; nothing where all are done
    #[arg(long)]
    pub next: bool,
    /// How long --next waits at most, e.g. 30s; 0s does not wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = span, requires = "next")]
    pub timeout: Span,
    /// The version that every node is to run [default: that of this program]
    #[arg(long, value_name = "VERSION", value_parser = version, conflicts_with = "started_before")]
    pub to: Option<String>,
    /// Every node that was started before this moment is to be started anew, whatever version it runs: seconds since 1970, or
    /// a date in UTC such as 2030-01-31T13:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = moment)]
    pub started_before: Option<SystemTime>,
    /// A node that is gone, or is not started yet: it is not waited for, and nothing rests on it; may be given several times
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,
    /// A keyspace that may be without service meanwhile, such as one of a single replica: no node waits for it; may be given
    /// several times
    #[arg(long, value_name = "KEYSPACE")]
    pub interrupt: Vec<String>,
    /// How it is told
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Parses a version as programs print it. With another no node would ever be done.
fn version(text: &str) -> Result<String, String> {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let numbers = core.split('.').filter(|part| part.parse::<u64>().is_ok()).count();
    if numbers == 3 && core.split('.').count() == 3 {
        return Ok(text.to_owned());
    }
    Err(concat!(
        "it is no version; one as `isochrone --version` prints it would be right, e.g. ",
        env!("CARGO_PKG_VERSION")
    )
    .to_owned())
}

/// Parses a moment: as `date +%s` or `date -u +%FT%TZ` print it.
fn moment(text: &str) -> Result<SystemTime, String> {
    let since = seconds(text).or_else(|| date(text)).ok_or_else(|| {
        format!("`{text}` is no moment; seconds since 1970 (`date +%s`) or a date in UTC would be, e.g. 2030-01-31T13:00:00Z")
    })?;
    match UNIX_EPOCH.checked_add(since) {
        Some(moment) if moment <= SystemTime::now() => Ok(moment),
        _ => Err("it lies ahead, and a node that is started anew before it would have to be started again and again; `date +%s` \
                  prints this moment"
            .to_owned()),
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    Duration::try_from_secs_f64(text.parse().ok().filter(|_| plain)?).ok()
}

fn date(text: &str) -> Option<Duration> {
    const DAY: u64 = 24 * 60 * 60;
    let number = |text: &str, width: usize| {
        let digits = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| digits)
    };
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let mut clock = clock.split(':');
    let (hour, minute, second) =
        (number(clock.next()?, 2)?, number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let good =
        (1..=12).contains(&month) && (1..=last).contains(&day) && hour < 24 && minute < 60 && second < 60;
    if !good || date.next().is_some() || clock.next().is_some() {
        return None;
    }
    // Years begin with March, so that leap days are their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(Duration::from_secs(days * DAY + hour * 3_600 + minute * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(text: &str) -> Result<f64, String> {
        moment(text).map(|moment| moment.duration_since(UNIX_EPOCH).unwrap().as_secs_f64())
    }

    #[test]
    fn a_moment_is_seconds_or_a_date() {
        for (text, expected) in [
            ("0", 0.0),
            ("1700000000", 1_700_000_000.0),
            ("1700000000.25", 1_700_000_000.25),
            ("1970-01-01T00:00:00Z", 0.0),
            ("2000-02-29T00:00:00Z", 951_782_400.0),
            ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        ] {
            assert_eq!(since(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            ".",
            "-1",
            "1e3",
            "inf",
            "today",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-02-29T00:00:00Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-11-14T24:00:00Z",
            "2023-11-14T22:13:20:00Z",
            "23-11-14T22:13:20Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert!(since(wrong).unwrap_err().contains("is no moment; "), "{wrong}");
        }
        for ahead in ["99999999999", "9999-01-01T00:00:00Z"] {
            assert!(since(ahead).unwrap_err().contains("lies ahead"), "{ahead}");
        }
    }

    #[test]
    fn a_version_is_one_that_programs_print() {
        for good in ["0.1.0", "10.2.33", "1.0.0-rc.1", "1.0.0+build.7", env!("CARGO_PKG_VERSION")] {
            assert_eq!(version(good).unwrap(), good);
        }
        for wrong in ["", "0.1", "v0.1.0", "0.1.0.0", "0.1.x", "-0.1.0"] {
            assert!(version(wrong).unwrap_err().contains("--version"), "{wrong}");
        }
    }
}
