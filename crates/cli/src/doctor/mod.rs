//! `isochrone doctor`: whether a machine is fit for its node of a deployment, before that is started or beside it. Nothing is
//! changed; what is written to see how long the disk takes is removed.

mod clock;
mod data;
mod machine;
mod network;
#[cfg(test)]
mod tests;

use crate::arguments::{Doctor as Arguments, Format};
use crate::output::{clean, print_json, print_text, say};
use crate::status::ask::ask;
use crate::status::told::Told;
use crate::{Status, node, protocols};
use isochrone_core::deployment::Node;
use isochrone_core::{Deployment, NodeId};
use isochrone_node::journal::{DataDirectory, JournalError};
use isochrone_node::node::{StartError, Validity, audit_log, credentials};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long it is waited for what tells whether the node runs.
const FIRST: Duration = Duration::from_secs(3);
/// How long it is waited for all else, which goes on side by side.
const REST: Duration = Duration::from_secs(12);

const DAY: u64 = 24 * 60 * 60;
/// A certificate that runs out sooner is told of, seconds: as the node does.
const SOON: u64 = 30 * DAY;

/// What a check has come to.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Somebody should look at it; the node runs.
    Warn,
    /// The node does not start, or not for long.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Check {
    name: String,
    verdict: Verdict,
    found: String,
    /// What would be right.
    advice: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>) -> Check {
        Check { name: name.into(), verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    fn warn(name: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = Some(advice.into());
        Check { name: name.into(), verdict: Verdict::Warn, found: found.into(), advice }
    }

    fn fail(name: impl Into<String>, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { verdict: Verdict::Fail, ..Check::warn(name, found, advice) }
    }

    /// Of what the node would not start for, in its own words: what is wrong, and behind it what would be right.
    fn refused(name: impl Into<String>, error: StartError) -> Check {
        let text = node::start(error).to_string();
        match text.split_once("\n  ").or_else(|| text.split_once(". ")) {
            Some((found, advice)) => Check::fail(name, found, advice),
            None => Check { verdict: Verdict::Fail, ..Check::ok(name, text) },
        }
    }
}

/// All of them, as printed in JSON.
#[derive(Debug, Serialize)]
struct View {
    cluster: String,
    node: String,
    /// The worst of the checks.
    verdict: Verdict,
    checks: Vec<Check>,
}

/// What is looked at.
struct Case {
    deployment: Deployment,
    me: NodeId,
    data: Option<PathBuf>,
    /// What the node tells of itself, where it runs and serves HTTP.
    told: Option<Told>,
    /// Whether a node has the data directory open, which is this node's; nothing where none is named.
    locked: Option<Result<bool, JournalError>>,
}

impl Case {
    fn node(&self) -> &Node {
        self.deployment.node(self.me)
    }

    /// Whether the node runs on this machine, as far as that can be seen.
    fn runs(&self) -> bool {
        self.told.is_some() || matches!(self.locked, Some(Ok(true)))
    }
}

/// Checks that are made one after the other, beside those of other groups.
type Group = fn(&Case) -> Vec<Check>;

const GROUPS: [(&str, Group); 6] = [
    ("file", file),
    ("directory", data::look),
    ("machine", machine::look),
    ("clock", clock::look),
    ("addresses", network::addresses),
    ("round trips", network::round_trips),
];

/// Runs the verb.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    let Arguments { file, name, data, insecure, format } = arguments;
    let deployment = Deployment::load(&file, &protocols::known().insecure(insecure))?;
    let me = node::find(&deployment, &name)?.id;
    if std::io::stderr().is_terminal() {
        let most = (FIRST + REST).as_secs();
        say(format_args!("looking at this machine and at the way to its peers, for {most} s at most"));
    }
    let case = look(deployment, me, data);
    let (cluster, node) = (case.deployment.cluster().to_owned(), case.node().name.clone());
    let checks = checks(&Arc::new(case));
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    let view = View { cluster, node, verdict, checks };
    match format {
        Format::Json => print_json(&view)?,
        Format::Text => print_text(&text(&view))?,
    }
    Ok(if verdict == Verdict::Fail { Status::Failed } else { Status::Held })
}

/// Sees whether the node runs: much of the rest depends on it.
fn look(deployment: Deployment, me: NodeId, data: Option<PathBuf>) -> Case {
    let node = deployment.node(me);
    let told = node.http.clone().map(|http| begin(move || ask(&[http])));
    let cluster = deployment.cluster_id();
    let locked = data.clone().map(|data| {
        begin(move || match DataDirectory::is_used(&data, cluster, me.0) {
            Ok(_) => DataDirectory::is_locked(&data),
            // Whoever has it open is another. What is wrong with it is found by its own check.
            Err(_) => Ok(false),
        })
    });
    let deadline = Instant::now() + FIRST;
    let told = told
        .and_then(|told| within(&told, deadline))
        .and_then(|answers| answers.ok()?.pop()?.ok())
        .filter(|told| told.node == node.name && told.cluster == deployment.cluster());
    let locked = locked.and_then(|locked| within(&locked, deadline));
    Case { deployment, me, data, told, locked }
}

/// Makes all checks.
fn checks(case: &Arc<Case>) -> Vec<Check> {
    let begun = GROUPS.map(|(name, group)| {
        let case = Arc::clone(case);
        (name, begin(move || group(&case)))
    });
    let deadline = Instant::now() + REST;
    let mut checks = Vec::new();
    for (name, group) in begun {
        checks.extend(within(&group, deadline).unwrap_or_else(|| {
            let found = format!("nothing has come of it within {} s", REST.as_secs());
            let advice = "a disk, a name server or a program does not answer: look at the log of the system";
            vec![Check::fail(name, found, advice)]
        }));
    }
    checks
}

/// Begins something on a thread of its own. Where it hangs, as on a disk that does, it cannot be interrupted, and is left to
/// itself.
fn begin<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (tell, told) = sync_channel(1);
    let work = move || {
        // Nobody may wait for it any more.
        let _ = tell.send(work());
    };
    // Without a thread nothing comes of it either.
    let _ = std::thread::Builder::new().name("doctor".to_owned()).spawn(work);
    told
}

/// What came of it by then.
fn within<T>(begun: &Receiver<T>, deadline: Instant) -> Option<T> {
    begun.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

/// The file, and what is read with it; whether the node runs.
fn file(case: &Case) -> Vec<Check> {
    let Case { deployment, .. } = case;
    let me = case.node();
    let found = format!(
        "{}: {} is one of {}, in {}; {}",
        deployment.file(),
        me.name,
        count(deployment.nodes().len() as u64, "node"),
        deployment.region(me.region).name,
        count(deployment.keyspaces().len() as u64, "keyspace"),
    );
    let mut checks = vec![Check::ok("file", found)];
    if !deployment.fsync() {
        let found = "UNSAFE: off in the file, a power failure of a majority loses acknowledged writes";
        checks.push(Check::warn("fsync", found, "take `fsync` out of [journal], but for tests"));
    }
    let security = deployment.security();
    if security.insecure {
        let found = "INSECURE: allowed beyond loopback, anyone on the way reads and changes everything";
        let advice = "give [security] certificates, which `isochrone cert` makes, and take insecure out";
        checks.push(Check::warn("plain text", found, advice));
    }
    if security.peer.is_some() || security.client.is_some() || security.acl.is_some() {
        checks.push(match credentials(deployment, case.me) {
            Err(error) => Check::refused("certificates", error),
            Ok(validity) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                certificates(&validity, now)
            }
        });
    }
    checks.extend(audit(case));
    checks.push(running(case));
    checks
}

/// Whether and until when certificates are good, which can be read.
fn certificates(Validity { begins, ends }: &Validity, now: u64) -> Check {
    let name = "certificates";
    let early = begins.saturating_sub(now);
    if early > 0 {
        let found =
            format!("by this machine's clock they are good in {} only", count(early.div_ceil(DAY), "day"));
        let advice = "see whether the clock is right (`date`): `isochrone cert` makes certificates that are good since the day before";
        return Check::fail(name, found, advice);
    }
    let listed: Vec<_> = ends
        .iter()
        .map(|(which, at)| match at.saturating_sub(now) {
            0 => format!("{which} has run out"),
            left => format!("{which} is good for {}", count(left / DAY, "day")),
        })
        .collect();
    let advice = "where this machine's clock is right (`date`), `isochrone cert` makes new ones, which are taken up without a restart";
    match ends.iter().map(|(_, at)| at.saturating_sub(now)).min() {
        None => Check::ok(name, "none in the file; its users can be read"),
        Some(0) => Check::fail(name, listed.join(", "), advice),
        Some(left) if left < SOON => Check::warn(name, listed.join(", "), advice),
        Some(_) => Check::ok(name, listed.join(", ")),
    }
}

/// Whether the audit log can be written, if the node is to keep one. One that runs writes it, and keeps others from it.
fn audit(case: &Case) -> Option<Check> {
    if case.runs() {
        return None;
    }
    match audit_log(&case.deployment, case.me) {
        Ok(path) => path.map(|path| Check::ok("audit log", format!("{} can be written", path.display()))),
        Err(error) => Some(Check::refused("audit log", error)),
    }
}

fn running(case: &Case) -> Check {
    let name = "node";
    match &case.told {
        Some(told) => {
            let found = |how: &str| format!("runs, version {}, {how}", told.version);
            match told {
                Told { stopping: true, .. } => Check::ok(name, found("stopping")),
                Told { ready: true, .. } => Check::ok(name, found("ready")),
                _ => Check::warn(name, found("not ready"), "`isochrone status` says what it lacks"),
            }
        }
        None if case.runs() && case.node().http.is_some() => Check::warn(
            name,
            "runs, and does not answer at its `http` within 3 s",
            "it may be reading its journal, or hang: see its log",
        ),
        None if case.runs() => Check::ok(name, "runs, and tells nothing over HTTP"),
        None => Check::ok(name, "is not seen to run here"),
    }
}

/// The checks as text for people.
fn text(view: &View) -> String {
    let View { cluster, node, checks, .. } = view;
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{node} of {cluster}\n\n");
    for Check { name, verdict, found, advice } in checks {
        let verdict = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        text += &format!("  {verdict:4}  {name:width$}  {}\n", found.replace('\n', " "));
        for line in advice.iter().flat_map(|advice| advice.lines()) {
            text += &format!("  {:4}  {:width$}    {}\n", "", "", line.trim_start());
        }
    }
    let number = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let failed = match number(Verdict::Fail) {
        0 => "nothing has failed".to_owned(),
        failed => format!("{failed} failed"),
    };
    text += &format!("\n{failed}, {}\n", count(number(Verdict::Warn) as u64, "warning"));
    // Some of it is what others said.
    clean(&text)
}

fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn time(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    if millis < 1.0 { format!("{:.0} us", millis * 1e3) } else { format!("{millis:.1} ms") }
}

fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
