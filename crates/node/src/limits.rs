//! Every limit of a node: its name, its default, and why. A limit that is met is counted under its
//! name in `isochrone_limit_reached_total{limit}`; none is met silently.

use crate::http;
use isochrone_core::deployment::{self, Keyspace, Limit};
use isochrone_core::{Instant, Span};
use std::path::{Path, PathBuf};

/// The limits of one node, as plain fields: most come from the deployment's `[limits]`, the rest are fixed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Client connections at once. Each costs a few KiB idle.
    pub clients: usize,
    /// Commands under way at the processes, over all connections of a node. Beyond it, sockets are not
    /// read: the client feels a slow node, memory does not grow.
    pub requests: usize,
    /// Commands under way of one connection; more wait unread in its socket.
    pub pipeline: usize,
    /// How long a command may stay unanswered before the client is told that its fate is unknown: longer than any
    /// keyspace is given to try one ([`Limits::heed_tries`]).
    pub request_time: Span,
    /// Bytes queued for one peer; beyond it messages are dropped, as a network may.
    pub peer_queue_bytes: usize,
    /// One frame between nodes. Snapshots travel in chunks well below it.
    pub frame_bytes: usize,
    /// Bytes of records that wait for the disk; beyond it clients are not read.
    pub journal_queue_bytes: usize,
    /// Connections to the peer port that have not greeted; where one more comes, the oldest is closed.
    pub handshakes: usize,
    /// How long a handshake may take.
    pub handshake_time: Span,
    /// Before login: bytes taken in (`trust.md` S8; CVE-2025-21605).
    pub login_input_bytes: usize,
    /// Before login: bytes sent.
    pub login_output_bytes: usize,
    /// Before login: how long, beside the time for which a password waits to be checked.
    pub login_time: Span,
    /// Before login: commands. Of a gRPC connection, calls that may wait to be told whether they have logged in, and logins that
    /// may be refused before one is right; more calls share as many places as `requests` with those of the other connections.
    pub login_commands: usize,
    /// Passwords of gRPC calls from one network that may wait to be checked; each costs tens of milliseconds of one
    /// core. More are told to come again. Redis clients, which ask for one thing at a time, just wait.
    pub login_checks: usize,
    /// One bulk string.
    pub bulk_bytes: usize,
    /// Elements of one command.
    pub elements: usize,
    /// One line of an inline command.
    pub inline_bytes: usize,
    /// Bytes of one command, all its elements together.
    pub command_bytes: usize,
    /// Replies that a client has not taken; beyond it nothing more is read from it.
    pub output_bytes: usize,
    /// Series that metrics may show.
    pub metric_series: usize,
}

impl Limits {
    /// Every limit under its name in metrics and in `[limits]`: times in seconds, the rest as they are.
    pub fn named(&self) -> [(&'static str, f64); 20] {
        let count = |value: usize| value as f64;
        [
            ("clients", count(self.clients)),
            ("in_flight", count(self.requests)),
            ("pipeline", count(self.pipeline)),
            ("request_time", self.request_time.as_secs_f64()),
            ("peer_queue", count(self.peer_queue_bytes)),
            ("peer_frame", count(self.frame_bytes)),
            ("journal_queue", count(self.journal_queue_bytes)),
            ("handshakes", count(self.handshakes)),
            ("handshake_time", self.handshake_time.as_secs_f64()),
            ("login_input", count(self.login_input_bytes)),
            ("login_output", count(self.login_output_bytes)),
            ("login_time", self.login_time.as_secs_f64()),
            ("login_commands", count(self.login_commands)),
            ("login_checks", count(self.login_checks)),
            ("bulk", count(self.bulk_bytes)),
            ("elements", count(self.elements)),
            ("inline", count(self.inline_bytes)),
            ("command", count(self.command_bytes)),
            ("output", count(self.output_bytes)),
            ("metric_series", count(self.metric_series)),
        ]
    }
}

/// Files that a node has open beside its clients: the journal, snapshots, peers, listeners, and who asks over HTTP.
const OTHER_FILES: usize = 128 + http::CONNECTIONS;

/// Raises this process' limit of open files as far as it may itself: shells give 1,024, of which a node has use for more. How
/// many there may be; `None` for any number.
pub fn open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => return maximum,
            Err(error) => tracing::debug!(%error, "the limit of open files stays {current:?}"),
        }
    }
    current
}

/// The most memory that this process may have, bytes: what its control group may, or one above it, or else what the machine has.
/// Nothing where the system does not tell.
#[must_use]
pub fn memory() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let machine = machine.and_then(|all| all.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    [machine.and_then(|kib| kib.checked_mul(1024)), group_memory()].into_iter().flatten().min()
}

/// Bytes of memory above which a node takes nothing more that makes data grow: what its file says, or else three quarters of `most`, which
/// its process may have ([`memory`]); 0 for any number.
#[must_use]
pub fn data_memory(given: &deployment::Limits, most: Option<u64>) -> u64 {
    given.memory().unwrap_or_else(|| most.unwrap_or(0) / 4 * 3)
}

/// The most memory that the control group of this process may have, or those above it, bytes; nothing where none is bound.
#[must_use]
pub fn group_memory() -> Option<u64> {
    /// The first kind of groups says a number of this size where there is no bound.
    const UNBOUND: u64 = 1 << 60;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(group_limits);
    let limits = limits.filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    limits.filter(|limit| *limit < UNBOUND).min()
}

/// Where the limits of memory stand that hold for a control group, of which this is the line in the table of a process: its
/// own, and those of all above it.
fn group_limits(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(kinds), Some(group)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (root, file) = match kinds {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if kinds.split(',').any(|kind| kind == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let groups = Path::new(group.trim_start_matches('/')).ancestors();
    groups.map(|group| Path::new(root).join(group).join(file)).collect()
}

/// Who tries a command for a time may be in the middle of a try when that is over.
const LAST_TRY: Span = Span::from_secs(5);

impl Limits {
    /// Takes no more clients than the system allows files, and says so. As many may come in each of so many ways.
    pub fn heed_files(&mut self, files: Option<u64>, ways: usize) {
        let files = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
        let room = (files.saturating_sub(OTHER_FILES) / ways.max(1)).max(1);
        let wanted = self.clients;
        self.clients = room.min(wanted);
        let told = format!(
            "the limit of open files has room for {room} clients only: raise it (ulimit -n, LimitNOFILE), or lower `clients`"
        );
        if self.too_few(wanted) {
            tracing::warn!(clients = wanted, files, "{told}");
        } else if room < wanted {
            tracing::info!(clients = wanted, files, "{told}");
        }
    }

    /// Whether it is worth a warning that there is room for so few clients, where so many were wanted: the default is a bound, and
    /// nobody's wish, so that most of it will do.
    #[must_use]
    pub fn too_few(&self, wanted: usize) -> bool {
        let usual = Limits::default().clients;
        self.clients < if wanted == usual { usual / 2 } else { wanted }
    }

    /// Waits longer than these keyspaces say that they try a command: who has tried it knows whether it may have had an effect.
    /// The protocols in `transactional` have another limit for commands than for transactions.
    pub fn heed_tries(&mut self, keyspaces: &[Keyspace], transactional: &[&str]) {
        for keyspace in keyspaces {
            let mut reader = keyspace.parameters.read();
            let transacts = transactional.contains(&keyspace.protocol.as_str());
            let limit = if transacts { "command_limit" } else { "time_limit" };
            let tried = reader.span(limit, Span::ZERO, Span::ZERO, Span::MAX);
            self.request_time = self.request_time.max(tried + LAST_TRY);
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::from(&deployment::Limits::default())
    }
}

impl From<&deployment::Limits> for Limits {
    fn from(given: &deployment::Limits) -> Limits {
        // Limits count memory or things in memory: on the platforms we build for they fit.
        let get = |limit| usize::try_from(given.get(limit)).unwrap_or(usize::MAX);
        Limits {
            clients: get(Limit::Clients),
            requests: get(Limit::InFlight),
            pipeline: get(Limit::Pipeline),
            request_time: Span::from_secs(15),
            peer_queue_bytes: get(Limit::PeerQueue),
            frame_bytes: get(Limit::PeerFrame),
            journal_queue_bytes: get(Limit::JournalQueue),
            handshakes: 64,
            handshake_time: Span::from_secs(10),
            login_input_bytes: get(Limit::LoginInput),
            login_output_bytes: get(Limit::LoginOutput),
            login_time: given.span(Limit::LoginTime),
            login_commands: get(Limit::LoginCommands),
            login_checks: 64,
            bulk_bytes: get(Limit::Bulk),
            elements: get(Limit::Elements),
            inline_bytes: 64 << 10,
            // `deployment::Limits` has seen to it that such a command fits into a frame, beside what is under way.
            command_bytes: get(Limit::Bulk).saturating_add(1 << 20),
            output_bytes: get(Limit::Output),
            metric_series: 5_000,
        }
    }
}

/// Lines of the log about what strangers can bring about as often as they like: [`Lines::BURST`] at once, and one a second on and
/// on, which says how many were left out.
#[derive(Debug)]
pub(crate) struct Lines {
    left: u64,
    /// Up to when what has passed is counted in `left`.
    since: Instant,
    left_out: u64,
}

impl Lines {
    const BURST: u64 = 10;

    /// Whether one more may be written; else it is counted.
    pub(crate) fn take(&mut self) -> bool {
        let any = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.left_out += u64::from(!any);
        any
    }

    /// Time has passed. How many were left out, where a line may say so.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<u64> {
        let more = now.since(self.since).as_nanos() / Span::from_secs(1).as_nanos();
        if more > 0 {
            (self.left, self.since) = (self.left.saturating_add(more).min(Lines::BURST), now);
        }
        if self.left == 0 || self.left_out == 0 {
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { left: Lines::BURST, since: Instant::ZERO, left_out: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_is_bound_by_those_above_it() {
        let paths = |line| -> Vec<String> {
            group_limits(line).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            paths("0::/system.slice/isochrone"),
            [
                "/sys/fs/cgroup/system.slice/isochrone/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(paths("4:memory:/"), ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
        assert!(paths("1:cpu:/").is_empty() && paths("").is_empty());
        // What a group may is never more than what there is.
        assert!(group_memory().is_none_or(|group| memory().is_some_and(|most| most <= group)));
    }

    #[test]
    fn of_many_lines_a_few_are_written_and_how_many_were_left_out() {
        let (mut lines, mut written, mut told) = (Lines::default(), 0, Vec::new());
        // 300 a second for ten seconds, looked at ten times a second, and then none.
        for tenth in 0..200 {
            let now = Instant::from_nanos(tenth * 100_000_000);
            written += (0..30).filter(|_| tenth < 100 && lines.take()).count() as u64;
            told.extend(lines.pass(now));
        }
        assert_eq!((written, told.len()), (10, 10), "{told:?}");
        assert_eq!(written + told.iter().sum::<u64>(), 3_000);
        assert!(lines.take(), "there is room again");
    }

    #[test]
    fn commands_are_waited_for_as_long_as_they_are_tried() {
        let known = deployment::Known::names(&["tapir", "curp"]);
        for (protocol, parameters, seconds) in [
            ("tapir", "", 15),
            ("tapir", "command_limit = \"1s\"", 15),
            ("tapir", "command_limit = \"40s\"", 45),
            ("tapir", "time_limit = \"40s\"", 15),
            ("curp", "time_limit = \"5s\"", 15),
            ("curp", "time_limit = \"40s\"", 45),
        ] {
            let text = format!(
                "cluster = \"t\"\n[[region]]\nname = \"here\"\n[[node]]\nname = \"n\"\nregion = \"here\"\n\
                 [[keyspace]]\nname = \"main\"\nprotocol = \"{protocol}\"\nreplicas = [\"n\"]\nparameters = {{ {parameters} }}\n"
            );
            let deployment =
                deployment::Deployment::parse(&text, "t.toml", std::path::Path::new(""), &known).unwrap();
            let mut limits = Limits::from(deployment.limits());
            limits.heed_tries(deployment.keyspaces(), &["tapir"]);
            assert_eq!(limits.request_time, Span::from_secs(seconds), "{protocol} {parameters}");
        }
    }

    #[test]
    fn data_may_have_three_quarters_of_the_memory_unless_told() {
        let known = deployment::Known::names(&["curp"]);
        let rest = "[[region]]\nname = \"here\"\n[[node]]\nname = \"n\"\nregion = \"here\"\n\
                    [[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\nreplicas = [\"n\"]\n";
        for (line, most, bytes) in [
            ("", Some(1_000), 750),
            ("", None, 0),
            ("memory = 0", Some(1_000), 0),
            ("memory = \"1GiB\"", Some(1_000), 1 << 30),
            ("memory = \"1GiB\"", None, 1 << 30),
        ] {
            let text = format!("cluster = \"t\"\n[limits]\n{line}\n{rest}");
            let deployment =
                deployment::Deployment::parse(&text, "t.toml", std::path::Path::new(""), &known).unwrap();
            assert_eq!(data_memory(deployment.limits(), most), bytes, "{line}");
        }
    }

    #[test]
    fn there_are_no_more_clients_than_files() {
        for (files, ways, clients) in [
            (None, 1, 10_000),
            (Some(20_000), 1, 10_000),
            (Some(1_024), 1, 640),
            (Some(1_024), 2, 320),
            (Some(10), 0, 1),
        ] {
            let mut limits = Limits::default();
            limits.heed_files(files, ways);
            assert_eq!(limits.clients, clients, "{files:?}");
        }
    }

    #[test]
    fn most_of_the_default_is_room_enough_for_clients() {
        for (wanted, clients, few) in [
            (10_000, 10_000, false),
            (10_000, 9_808, false),
            (10_000, 5_000, false),
            (10_000, 4_999, true),
            (9_809, 9_808, true),
            (9_808, 9_808, false),
        ] {
            let limits = Limits { clients, ..Limits::default() };
            assert_eq!(limits.too_few(wanted), few, "{wanted} {clients}");
        }
    }
}
