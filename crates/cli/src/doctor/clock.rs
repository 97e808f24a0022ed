//! The clock: whether something sets it, and what the links of the node say of those of its peers.

use super::{Case, Check};
use crate::status::told::Told;
use isochrone_node::node::StartError;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a program of this machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
const GLANCE: Duration = Duration::from_millis(5);
/// So much of its answer is read.
const ANSWER_MAX: u64 = 4 << 10;

/// A clock may be wrong by so much, milliseconds: what the node itself warns of.
const WRONG_MAX_MS: f64 = 1_000.0;

const NTP: &str =
    "have it set by NTP (chrony, systemd-timesyncd): keys expire by the clock of the node that is asked";

pub(super) fn look(case: &Case) -> Vec<Check> {
    if SystemTime::now() < UNIX_EPOCH {
        return vec![Check::refused("clock", StartError::Clock)];
    }
    let asked = answer("chronyc", &["-c", "tracking"]).and_then(|text| of_chrony(&text));
    let asked = asked.or_else(|| {
        let text = answer("timedatectl", &["show", "--property=NTPSynchronized", "--value"])?;
        of_system(&text)
    });
    let unknown = || {
        let found = "whether something sets it is not known: neither chronyc nor timedatectl tells";
        Check::warn("clock", found, NTP)
    };
    let mut checks = vec![asked.unwrap_or_else(unknown)];
    checks.extend(case.told.as_ref().and_then(of_peers));
    checks
}

/// What `chronyc -c tracking` tells.
fn of_chrony(text: &str) -> Option<Check> {
    let fields: Vec<&str> = text.trim().split(',').collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    if *fields.get(13)? == "Not synchronised" {
        return Some(Check::warn("clock", "chrony runs, and has found no time to set it by", NTP));
    }
    // By chrony's manual no error is greater than the offset that it is correcting, half the delay to the root and the
    // dispersion on the way there together. Seconds.
    let bound = (number(4)?.abs() + number(10)? / 2.0 + number(11)?) * 1e3;
    let found = format!("set by chrony, wrong by {bound:.1} ms at most");
    Some(if bound > WRONG_MAX_MS {
        Check::warn("clock", found, "`chronyc sources -v` shows by which servers")
    } else {
        Check::ok("clock", found)
    })
}

/// What `timedatectl` tells of the system's clock, whoever sets it.
fn of_system(text: &str) -> Option<Check> {
    match text.trim() {
        "yes" => Some(Check::ok("clock", "set by NTP, as the system says")),
        "no" => Some(Check::warn("clock", "nothing sets it, as the system says", NTP)),
        _ => None,
    }
}

/// What the node knows of its peers: that one's clock is ahead by so much, give or take half a round trip.
fn of_peers(told: &Told) -> Option<Check> {
    let linked = told.peers.iter().filter(|peer| peer.connected);
    let known: Vec<(&str, f64, f64)> = linked
        .filter_map(|peer| Some((peer.name.as_str(), peer.clock_ahead_ms?, peer.round_trip_ms? / 2.0)))
        .collect();
    let listed: Vec<_> = known
        .iter()
        .map(|(name, ahead, wrong)| format!("{name} {ahead:+.1} ms, give or take {wrong:.1}"))
        .collect();
    let found = format!("ahead of this one: {}", listed.join("; "));
    if known.is_empty() {
        None
    } else if known.iter().any(|(_, ahead, wrong)| ahead.abs() - wrong > WRONG_MAX_MS) {
        Some(Check::warn("clocks of peers", found, NTP))
    } else {
        Some(Check::ok("clocks of peers", found))
    }
}

/// What a program prints, where there is one and it ends well and soon.
fn answer(program: &str, words: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < PATIENCE => std::thread::sleep(GLANCE),
            _ => {
                // It may have ended by now.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let mut text = String::new();
    child.stdout.take()?.take(ANSWER_MAX).read_to_string(&mut text).ok()?;
    status.success().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use serde_json::json;

    #[test]
    fn chrony_tells_how_wrong_the_clock_may_be() {
        let line = |offset: &str, leap: &str| {
            format!(
                "A9FEA97B,169.254.169.123,4,1764417844.123,{offset},0.000010,0.000100,-5.1,0.001,0.01,0.000400,0.000100,64.2,{leap}\n"
            )
        };
        let check = of_chrony(&line("-0.000500", "Normal")).unwrap();
        assert_eq!(check, Check::ok("clock", "set by chrony, wrong by 0.8 ms at most"));
        assert_eq!(of_chrony(&line("1.5", "Normal")).unwrap().verdict, Verdict::Warn);
        assert_eq!(of_chrony(&line("0.0", "Not synchronised")).unwrap().verdict, Verdict::Warn);
        assert_eq!(of_chrony("506 Cannot talk to daemon\n"), None);
    }

    #[test]
    fn the_system_tells_yes_or_no() {
        assert_eq!(of_system("yes\n").unwrap().verdict, Verdict::Ok);
        assert_eq!(of_system("no\n").unwrap().verdict, Verdict::Warn);
        assert_eq!(of_system(""), None);
    }

    #[test]
    fn clocks_of_peers_are_apart_where_half_a_round_trip_is_no_excuse() {
        let told = |ahead: f64, trip: f64| -> Told {
            serde_json::from_value(json!({"peers": [
                {"name": "or1", "connected": true, "clock_ahead_ms": ahead, "round_trip_ms": trip},
                {"name": "fr1", "connected": false, "clock_ahead_ms": 5_000.0, "round_trip_ms": 80.0},
            ]}))
            .unwrap()
        };
        let check = of_peers(&told(-1_030.0, 73.0)).unwrap();
        let found = "ahead of this one: or1 -1030.0 ms, give or take 36.5";
        assert_eq!(check, Check::ok("clocks of peers", found));
        assert_eq!(of_peers(&told(-1_040.0, 73.0)).unwrap().verdict, Verdict::Warn);
        assert_eq!(of_peers(&Told::default()), None);
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_tells_nothing() {
        assert_eq!(answer("sh", &["-c", "echo yes"]).as_deref(), Some("yes\n"));
        assert_eq!(answer("sh", &["-c", "echo yes; exit 1"]), None);
        assert_eq!(answer("no-such-program-of-isochrone", &[]), None);
    }
}
