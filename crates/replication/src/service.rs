//! What is tuned alike in every protocol: how clients ask and are answered.

use crate::knobs::{LEAST, MOST};
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;

pub use isochrone_plan::Reply;

/// The knobs of sessions, the same for every protocol.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Service {
    /// When writes are answered.
    pub reply: Reply,
    /// Whether a replica that takes no commands forwards them; else it tells the client who does.
    pub forward: bool,
    /// How long a client may be silent before its unacknowledged answers are dropped, by an entry in the log.
    pub session_idle: Span,
    /// How long a client waits for an answer before it asks again, another replica if need be.
    pub retry: Span,
    /// How long a client tries at all; then the outcome is unknown.
    pub limit: Span,
    /// Commands that one client process may have outstanding; more are refused.
    pub outstanding: usize,
    /// How long a chunk of a peer's state may take before it is asked for again.
    pub resend: Span,
}

impl Service {
    /// The defaults for replicas and clients that are at most this far apart.
    pub fn for_rtt(rtt_max: Span) -> Service {
        Service {
            reply: Reply::default(),
            forward: true,
            session_idle: Span::from_secs(600),
            retry: rtt_max * 2 + Span::from_millis(400),
            limit: Span::from_secs(20),
            outstanding: 65_536,
            resend: rtt_max + rtt_max / 2 + Span::from_millis(200),
        }
    }

    /// How long a command waits for its keys while they are on their way to another partition. Gateways wait 15 s at least
    /// before they say that nobody knows, and are told before what is known: that nothing has come of it.
    pub(crate) fn patience(&self) -> Span {
        self.limit.min(Span::from_secs(10))
    }

    /// Reads over these defaults; the caller finishes the reader. `commits` says whether the protocol knows
    /// of a commit before the execution.
    pub fn read_from(&mut self, reader: &mut ParameterReader<'_>, commits: bool) {
        if commits {
            self.reply = Reply::read(reader);
        }
        let routes = [("forward", true), ("redirect", false)];
        self.forward = reader.choice("route", self.forward, &routes);
        self.session_idle = reader.span("session_idle", self.session_idle, Span::from_secs(1), Span::MAX);
        self.retry = reader.span("retry", self.retry, LEAST, MOST);
        self.limit = reader.span("time_limit", self.limit, LEAST, Span::from_secs(3_600));
        self.outstanding = reader.integer("outstanding", self.outstanding as u64, 1, 1 << 24) as usize;
    }
}
