//! The audit log: who has logged in, administered, or been denied something at this node, from where, and what became of it
//! (`trust.md` S5).
//!
//! A file of lines, a [`Record`] each, in JSON. Each carries the SHA-256 of the line before, so that who changes, removes or
//! moves a line breaks the chain. It has no key: who can write the file can write a whole new chain behind any line. So the
//! digest of the last line is to be kept elsewhere now and then ([`verify`]).
//!
//! Nobody who acts waits for the file. A thread of its own gathers for a moment what comes through a bounded queue, and writes and
//! syncs it together. What finds no place there, or comes too often, or cannot be written, is lost: it is counted, and the next line that is
//! written says how many are missing. What a crash leaves of a last line is cut off at the next start, and a line says so.
//!
//! There is one file, as long as it gets. To begin another, stop the node and move it away.

mod chain;
#[cfg(test)]
mod tests;

pub use chain::{Decision, Fault, Record, Summary, verify};

use crate::metrics::Page;
use crate::redis::digest::sha256;
use chain::End;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Acts that may wait to be written.
const QUEUE: usize = 4_096;
/// So many are written and synced at once, at most: together they are shorter than the end of a file in which it is looked for
/// what a crash has left of them ([`chain::end`]).
const BATCH: usize = 100;
/// How long others are waited for that are written and synced with the first.
const GATHER: Duration = Duration::from_millis(100);
/// Bytes of each text of an act that are kept, about.
const TEXT_MAX: usize = 256;
/// Of each kind of acts that others can bring about as often as they like ([`kind`]) so many are kept at once, and so many a second
/// on and on. Where each byte that a client chose has to be escaped, a line has 2.5 kB: of one kind 2.2 GB a day at most.
const BURST: u64 = 1_000;
const RATE: u64 = 10;
/// How many such kinds there are.
const KINDS: usize = 4;
/// How often it is looked whether acts were lost, while none comes.
const GLANCE: Duration = Duration::from_secs(1);
/// How long the last lines are waited for when the node stops.
const FAREWELL: Duration = Duration::from_secs(5);

/// What was done, or not.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    pub via: &'static str,
    pub user: Option<String>,
    pub address: Option<String>,
    pub act: String,
    pub keyspace: Option<String>,
    pub object: Option<String>,
    pub decision: Decision,
    pub why: Option<String>,
    /// Whether it is about who somebody is: a login, or what was refused to a stranger.
    pub login: bool,
}

impl Act {
    pub(crate) fn new(via: &'static str, act: impl Into<String>, decision: Decision) -> Act {
        Act {
            via,
            user: None,
            address: None,
            act: act.into(),
            keyspace: None,
            object: None,
            decision,
            why: None,
            login: false,
        }
    }

    /// The same with the beginnings of its texts, so that it takes little room where it waits.
    fn cut(self) -> Act {
        let cut = |part: Option<String>| part.map(|part| text(part.as_bytes()));
        Act {
            user: cut(self.user),
            act: text(self.act.as_bytes()),
            keyspace: cut(self.keyspace),
            object: cut(self.object),
            why: cut(self.why),
            ..self
        }
    }
}

/// Which allowance an act takes from. Each has its own, so that strangers hide no user's acts, and those that are denied none that
/// were let through. What administrators do is kept however much it is.
fn kind(act: &Act) -> Option<usize> {
    match (act.login, act.decision) {
        (true, Decision::Allowed) => Some(0),
        (true, Decision::Denied | Decision::Failed) => Some(1),
        (false, Decision::Denied) => Some(2),
        (false, Decision::Failed) => Some(3),
        (false, Decision::Allowed) => None,
    }
}

/// The beginning of what comes from elsewhere, as far as it is kept.
pub(crate) fn text(bytes: &[u8]) -> String {
    let kept = bytes.get(..TEXT_MAX).unwrap_or(bytes);
    let more = if kept.len() < bytes.len() { "..." } else { "" };
    format!("{}{more}", String::from_utf8_lossy(kept))
}

/// What is counted of an audit log.
#[derive(Debug, Default)]
pub struct AuditMetrics {
    pub(crate) kept: AtomicU64,
    lost: AtomicU64,
}

impl AuditMetrics {
    /// Adds what there is to the page, where there is an audit log.
    pub(crate) fn show(&self, page: &mut Page) {
        let counts = [("kept", self.kept.load(Relaxed)), ("lost", self.lost.load(Relaxed))];
        for (outcome, count) in counts.into_iter().filter(|_| counts != [("kept", 0), ("lost", 0)]) {
            page.value(
                "isochrone_audit_acts_total",
                "counter",
                "Acts that the audit log was told, by whether it has them.",
                &[("outcome", outcome)],
                count as f64,
            );
        }
    }
}

/// Takes what goes into the audit log, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: SyncSender<Told>,
    /// What may still come, by [`kind`].
    allowances: Mutex<[Allowance; KINDS]>,
    losses: Arc<Losses>,
}

#[derive(Debug)]
struct Losses {
    metrics: Arc<AuditMetrics>,
    /// Those that no line tells of yet.
    untold: AtomicU64,
}

impl Losses {
    fn add(&self, count: u64) {
        self.metrics.lost.fetch_add(count, Relaxed);
        self.untold.fetch_add(count, Relaxed);
    }
}

enum Told {
    Act(SystemTime, Box<Act>),
    /// The last.
    End(Box<Act>),
}

impl Audit {
    /// Takes it, or counts it as lost; never waits.
    pub(crate) fn tell(&self, act: Act) {
        let allowed = kind(&act).is_none_or(|kind| {
            let mut allowances = self.0.allowances.lock().unwrap_or_else(PoisonError::into_inner);
            allowances[kind].take(Instant::now())
        });
        let told = Told::Act(SystemTime::now(), Box::new(act.cut()));
        if !allowed || self.0.queue.try_send(told).is_err() {
            self.0.losses.add(1);
        }
    }
}

/// An act that is under way. Dropped before its end it is told as one of which nobody knows: who asked for it has gone.
pub(crate) struct Pending {
    audit: Audit,
    act: Option<Act>,
}

impl Pending {
    pub(crate) fn new(audit: &Audit, act: Act) -> Pending {
        Pending { audit: audit.clone(), act: Some(act) }
    }

    /// It has ended so.
    pub(crate) fn ends(mut self, decision: Decision, why: Option<String>) {
        if let Some(act) = self.act.take() {
            self.audit.tell(Act { decision, why, ..act });
        }
    }

    /// The same act, without what it was on: that was not looked at.
    pub(crate) fn nameless(mut self) -> Pending {
        if let Some(act) = &mut self.act {
            act.object = None;
        }
        self
    }

    /// The same of somebody unknown.
    pub(crate) fn of_stranger(self) -> Pending {
        let mut pending = self.nameless();
        if let Some(act) = &mut pending.act {
            act.login = true;
        }
        pending
    }

    /// Somebody else tells of it.
    pub(crate) fn forget(mut self) {
        self.act = None;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(act) = self.act.take() {
            let why = Some("who asked for it has gone before the answer; it may have happened".to_owned());
            self.audit.tell(Act { decision: Decision::Failed, why, ..act });
        }
    }
}

/// So many, and more as time passes.
#[derive(Debug)]
struct Allowance {
    left: u64,
    since: Instant,
}

impl Allowance {
    fn new() -> Allowance {
        Allowance { left: BURST, since: Instant::now() }
    }

    fn take(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_millis() as u64 * RATE / 1_000;
        if more > 0 {
            (self.left, self.since) = (self.left.saturating_add(more).min(BURST), now);
        }
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        any
    }
}

/// An audit log that nobody else writes to, as long as this is held.
pub(crate) struct Opened {
    file: File,
    path: PathBuf,
    end: End,
}

/// Opens the audit log at this path, or makes one.
///
/// # Errors
/// Why it cannot be written, and what would be right.
pub(crate) fn open(path: &Path) -> Result<Opened, String> {
    let fresh = !path.exists();
    // It names keys and users.
    let options = OpenOptions::new().read(true).append(true).create(true).mode(0o600).clone();
    let file = options.open(path).map_err(|cause| {
        format!("the audit log cannot be opened: {cause}; name a file in a folder that this user may write")
    })?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            "another node writes this audit log; write {node} into the path, so that each has its own"
                .to_owned()
        }
        TryLockError::Error(cause) => format!("the audit log cannot be locked: {cause}"),
    })?;
    let unread = |cause: io::Error| format!("the audit log cannot be read: {cause}");
    let end = chain::end(&file).map_err(unread)?;
    let end = end.ok_or_else(|| "this is no audit log; name another file, or move it away".to_owned())?;
    if fresh {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(unread)?;
    }
    Ok(Opened { file, path: path.to_owned(), end })
}

impl Opened {
    /// Begins to write: that the node has started, before anything else. What is told then is written until the keeper is
    /// dropped.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn start(self, node: &str, metrics: Arc<AuditMetrics>) -> io::Result<(Audit, Keeper)> {
        let losses = Arc::new(Losses { metrics, untold: AtomicU64::new(0) });
        let Opened { file, path, end: End { length, previous, torn } } = self;
        let node = node.to_owned();
        let mut writer =
            Writer { file, path, length, previous, node, unfit: torn > 0, failing: false, losses };
        let mut first = Vec::new();
        if torn > 0 {
            let mut cut = Act::new("node", "AUDIT", Decision::Failed);
            cut.why = Some(format!(
                "{torn} bytes behind the line before were not written whole, or changed since, and are cut off"
            ));
            first.push(writer.record(SystemTime::now(), cut));
        }
        let mut start = Act::new("node", "START", Decision::Allowed);
        start.object = Some(format!("isochrone {}", env!("CARGO_PKG_VERSION")));
        first.push(writer.record(SystemTime::now(), start));
        writer.append(first)?;
        let (queue, told) = sync_channel(QUEUE);
        let (over, ended) = channel();
        let shared = Shared {
            queue,
            allowances: Mutex::new([(); KINDS].map(|()| Allowance::new())),
            losses: Arc::clone(&writer.losses),
        };
        let audit = Audit(Arc::new(shared));
        std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&told, over))?;
        let failure = Some("it did not come to serve".to_owned());
        Ok((audit.clone(), Keeper { audit, ended, failure }))
    }
}

/// Holds the thread that writes. Dropped, it has the last lines written, and waits for that, though not for ever.
pub(crate) struct Keeper {
    audit: Audit,
    ended: Receiver<()>,
    /// Why the node does not stop in order, where it stops here.
    failure: Option<String>,
}

impl Keeper {
    /// The node has come to serve: where it stops, that is in order.
    pub(crate) fn serves(&mut self) {
        self.failure = None;
    }

    /// The node does not stop in order, but for this reason: the last line says so.
    pub(crate) fn fails(&mut self, why: String) {
        self.failure = Some(why);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let start = Instant::now();
        let why = self.failure.take();
        let decision = if why.is_some() { Decision::Failed } else { Decision::Allowed };
        let mut last = Told::End(Box::new(Act { why, ..Act::new("node", "STOP", decision) }.cut()));
        while let Err(TrySendError::Full(told)) = self.audit.0.queue.try_send(last)
            && start.elapsed() < FAREWELL
        {
            last = told;
            std::thread::sleep(Duration::from_millis(1));
        }
        // An error says that it has ended.
        if self.ended.recv_timeout(FAREWELL) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("the last lines of the audit log could not be written");
        }
    }
}

/// What the thread has.
struct Writer {
    file: File,
    path: PathBuf,
    /// Bytes of the file that are whole lines.
    length: u64,
    /// The digest of the last of them.
    previous: String,
    node: String,
    /// Behind them there may be others.
    unfit: bool,
    /// The last batch could not be written.
    failing: bool,
    losses: Arc<Losses>,
}

impl Writer {
    /// Writes what it is told. `over` is let go at the end.
    fn run(mut self, told: &Receiver<Told>, over: Sender<()>) {
        let mut ended = false;
        while !ended {
            let (acts, last) = self.gather(told, GATHER);
            self.write(acts);
            ended = last;
        }
        // Whoever hears that it is over may open the file, which is locked as long as it is open here.
        drop(self);
        drop(over);
    }

    /// What it is told within this time of the first, and whether that is the end.
    fn gather(&self, told: &Receiver<Told>, time: Duration) -> (Vec<Record>, bool) {
        let mut acts = Vec::new();
        let mut next = told.recv_timeout(GLANCE);
        let until = Instant::now() + time;
        loop {
            match next {
                Ok(Told::Act(at, act)) => acts.push(self.record(at, *act)),
                Ok(Told::End(act)) => {
                    acts.push(self.record(SystemTime::now(), *act));
                    return (acts, true);
                }
                Err(RecvTimeoutError::Disconnected) => return (acts, true),
                Err(RecvTimeoutError::Timeout) => return (acts, false),
            }
            if acts.len() >= BATCH {
                return (acts, false);
            }
            next = told.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Writes these, behind how many were lost before them.
    fn write(&mut self, mut acts: Vec<Record>) {
        let count = acts.len() as u64;
        let lost = self.losses.untold.swap(0, Relaxed);
        if lost > 0 {
            let mut missing = Act::new("node", "AUDIT", Decision::Failed);
            missing.why =
                Some("acts were too many, or could not be written, and are missing here".to_owned());
            acts.insert(0, Record { lost: Some(lost), ..self.record(SystemTime::now(), missing) });
        }
        if acts.is_empty() {
            return;
        }
        match self.append(acts) {
            Ok(()) if self.failing => {
                self.failing = false;
                tracing::info!(path = %self.path.display(), "the audit log is written again");
            }
            Ok(()) => {}
            Err(error) => {
                // Those that were lost before are in no line yet.
                self.losses.untold.fetch_add(lost, Relaxed);
                self.losses.add(count);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, path = %self.path.display(), "the audit log cannot be written: acts are lost");
                }
            }
        }
    }

    /// A line, but for what it follows.
    fn record(&self, at: SystemTime, act: Act) -> Record {
        Record {
            time: time(at),
            node: self.node.clone(),
            via: act.via.to_owned(),
            user: act.user,
            address: act.address,
            act: act.act,
            keyspace: act.keyspace,
            object: act.object,
            decision: act.decision,
            why: act.why,
            lost: None,
            previous: String::new(),
        }
    }

    /// Writes these lines and syncs them, all or none.
    fn append(&mut self, records: Vec<Record>) -> io::Result<()> {
        let there = self.file.metadata()?;
        if there.nlink() == 0 {
            let text = "the file was removed; start the node anew, so that it begins another";
            return Err(io::Error::other(text));
        }
        if self.unfit {
            if there.len() < self.length {
                let text =
                    "the file is shorter than what was written to it; move it away and start the node anew";
                return Err(io::Error::other(text));
            }
            self.file.set_len(self.length)?;
        }
        self.unfit = true;
        let (mut bytes, mut previous, count) = (Vec::new(), self.previous.clone(), records.len());
        for record in records {
            let start = bytes.len();
            serde_json::to_writer(&mut bytes, &Record { previous, ..record })?;
            previous = sha256(&bytes[start..]);
            bytes.push(b'\n');
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.unfit = false;
        (self.length, self.previous) = (self.length + bytes.len() as u64, previous);
        self.losses.metrics.kept.fetch_add(count as u64, Relaxed);
        Ok(())
    }
}

/// As in RFC 3339, UTC, to the microsecond.
fn time(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    // A clock that says more than the year 9999 says nothing.
    let at = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}
