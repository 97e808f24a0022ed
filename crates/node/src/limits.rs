//! Every limit of a node: its name, its default, and why. A limit that is met is counted under its
//! name in `isochrone_limit_reached_total{limit}`; none is met silently.

use isochrone_core::Span;
use isochrone_core::deployment::{self, Limit};

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
    /// How long a command may stay unanswered before the client is told that its fate is unknown.
    pub request_time: Span,
    /// Bytes queued for one peer; beyond it messages are dropped, as a network may.
    pub peer_queue_bytes: usize,
    /// One frame between nodes. Snapshots travel in chunks well below it.
    pub frame_bytes: usize,
    /// Bytes of records that wait for the disk; beyond it clients are not read.
    pub journal_queue_bytes: usize,
    /// Peer connections that have not finished their handshake; more are closed at once.
    pub handshakes: usize,
    /// How long a handshake may take.
    pub handshake_time: Span,
    /// Before login: bytes taken in (`trust.md` S8; CVE-2025-21605).
    pub login_input_bytes: usize,
    /// Before login: bytes sent.
    pub login_output_bytes: usize,
    /// Before login: how long.
    pub login_time: Span,
    /// Before login: commands.
    pub login_commands: usize,
    /// Password checks waiting at once; each costs tens of milliseconds of one core.
    pub login_checks: usize,
    /// One bulk string.
    pub bulk_bytes: usize,
    /// Elements of one command.
    pub elements: usize,
    /// Nesting of one command.
    pub depth: usize,
    /// One line of an inline command.
    pub inline_bytes: usize,
    /// Bytes of one command, all its elements together.
    pub command_bytes: usize,
    /// Replies that a client has not taken; beyond it the connection is closed.
    pub output_bytes: usize,
    /// Series that metrics may show.
    pub metric_series: usize,
}

impl Limits {
    /// Every limit under its name in metrics and in `[limits]`: times in seconds, the rest as they are.
    pub fn named(&self) -> [(&'static str, f64); 21] {
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
            ("depth", count(self.depth)),
            ("inline", count(self.inline_bytes)),
            ("command", count(self.command_bytes)),
            ("output", count(self.output_bytes)),
            ("metric_series", count(self.metric_series)),
        ]
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
            depth: get(Limit::Depth),
            inline_bytes: 64 << 10,
            command_bytes: get(Limit::Bulk).saturating_add(1 << 20),
            output_bytes: get(Limit::Output),
            metric_series: 5_000,
        }
    }
}
