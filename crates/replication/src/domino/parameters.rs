//! How Domino is tuned: every knob with its unit, its default and the reason for it (`specs/domino.md` 9).

use super::Mutation;
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::service::Reply;
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{FastQuorums, Span};
use isochrone_plan::domino::Tuned;

pub use isochrone_plan::Learners;
pub use isochrone_plan::domino::{Extra, Way};

/// How a client predicts when a request arrives.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Estimate {
    /// From the replica's clock at the arrival of probes: delays that differ by direction, and clocks that are
    /// off, are in it.
    OneWay,
    /// Half of a round trip, for comparison: right only where both directions take equally long and both
    /// clocks show the same.
    HalfRoundTrip,
}

/// The parameters of Domino.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// When the keyspace answers writes: commits are told only where somebody is answered then.
    pub reply: Reply,
    /// How often replicas announce their clocks. Execution waits for announcements.
    pub heartbeat: Span,
    /// How often clients probe each replica. A client that was idle for long probes ten times more rarely.
    pub probe: Span,
    /// How far back measurements count.
    pub window: Span,
    /// The percentile of the measurements that is taken for a prediction.
    pub percentile: u32,
    /// What is taken for the way to a replica.
    pub estimate: Estimate,
    /// Measurements in the window that a prediction needs.
    pub samples: usize,
    /// A replica that answers no probe for this long counts as infinitely far.
    pub probe_timeout: Span,
    /// What is added to the stamp of a fast request.
    pub extra: Extra,
    /// Who learns of fast decisions.
    pub learners: Learners,
    /// Which way commands take.
    pub way: Way,
    /// The quorums of the fast lane in a group of as many replicas as they are of; in any other, after members were
    /// added or removed, those that follow from its number.
    pub quorums: Option<FastQuorums>,
    /// How much faster the other way must be before a client changes over; none by default.
    pub hysteresis: Span,
    /// How far ahead of the clock the reserve is written: a restart treats that much time as past.
    pub reserve: Span,
    /// Stamps further ahead than this are refused, so that failover and storage stay bounded.
    pub future_max: Span,
    /// A replica that was silent for this long is taken for failed; what follows is safe where that is wrong.
    pub suspect: Span,
    /// How far ahead of the clock the lane of a failed owner is closed in one go.
    pub revoke: Span,
    /// A clock that is further than this behind most others, or ahead, is not waited for and not followed.
    pub lag_max: Span,
    /// How far ahead of all votes a new coordinator opens its epoch.
    pub margin: Span,
    /// How long an answer between replicas may take before it is asked for again.
    pub resend: Span,
    /// Fast requests over which a client judges whether the fast way is worth while.
    pub slow_window: u32,
    /// Of a hundred of these, how many may be slow.
    pub slow_threshold: u32,
    /// How long a client then goes the other way.
    pub slow_backoff: Span,
    /// Commands in one message at most.
    pub batch_commands: usize,
    /// Commands that a replica may have proposed in its lane and not seen executed; more are refused.
    pub queue_commands: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Messages to a peer that may be unacknowledged before it is taken for cut off.
    pub link_messages: usize,
    /// Executed commands that are kept for replicas that lag; who lags more takes in a snapshot.
    pub keep_commands: usize,
    /// Bytes of them.
    pub keep_bytes: usize,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let Tuned { way, extra, heartbeat, learners } = Tuned::usual(Reply::Execute);
        let suspect = (rtt_max * 3 + heartbeat * 5).max(Span::from_millis(500));
        Parameters {
            reply: Reply::Execute,
            heartbeat,
            probe: Span::from_millis(10),
            window: Span::from_secs(1),
            percentile: 95,
            estimate: Estimate::OneWay,
            samples: 10,
            probe_timeout: suspect,
            extra,
            learners,
            way,
            quorums: None,
            hysteresis: Span::ZERO,
            reserve: Span::from_secs(1),
            future_max: Span::from_secs(10),
            suspect,
            revoke: Span::from_secs(2),
            lag_max: Span::from_secs(1),
            margin: rtt_max / 2 + Span::from_millis(50),
            resend: rtt_max + rtt_max / 2 + Span::from_millis(100),
            slow_window: 200,
            slow_threshold: 30,
            slow_backoff: Span::from_secs(5),
            batch_commands: 1_024,
            queue_commands: 65_536,
            queue_bytes: 64 << 20,
            link_messages: 4_096,
            keep_commands: 65_536,
            keep_bytes: KEEP_BYTES,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply) {
        self.reply = reply;
        let Tuned { way, extra, heartbeat, learners } = Tuned::read(reader, reply);
        (self.way, self.extra, self.heartbeat, self.learners) = (way, extra, heartbeat, learners);
        self.probe = reader.span("probe", self.probe, LEAST, Span::from_secs(1));
        self.window = reader.span("window", self.window, LEAST, MOST);
        self.percentile = reader.integer("percentile", u64::from(self.percentile), 1, 100) as u32;
        let estimates = [("one_way", Estimate::OneWay), ("half_rtt", Estimate::HalfRoundTrip)];
        self.estimate = reader.choice("estimate", self.estimate, &estimates);
        self.samples = reader.integer("samples", self.samples as u64, 1, 1_000) as usize;
        if self.probe * self.samples as u64 > self.window {
            let right = format!("use at least {}, or probe more often", self.probe * self.samples as u64);
            reader.reject("window", "holds too few probes for a prediction", &right);
        }
        knobs::silence(reader, "suspect_after", &mut self.suspect, self.heartbeat);
        self.probe_timeout = reader.span("probe_timeout", self.probe_timeout, LEAST, MOST);
        self.hysteresis = reader.span("hysteresis", self.hysteresis, Span::ZERO, MOST);
        self.reserve = reader.span("reserve", self.reserve, LEAST, MOST);
        self.future_max = reader.span("future_max", self.future_max, LEAST, MOST);
        self.revoke = reader.span("revoke", self.revoke, LEAST, MOST);
        self.lag_max = reader.span("lag_max", self.lag_max, LEAST, MOST);
        self.margin = reader.span("margin", self.margin, Span::ZERO, MOST);
        self.resend = reader.span("resend", self.resend, LEAST, MOST);
        self.slow_window = reader.integer("slow_window", u64::from(self.slow_window), 1, 1 << 20) as u32;
        self.slow_threshold = reader.integer("slow_threshold", u64::from(self.slow_threshold), 0, 100) as u32;
        self.slow_backoff = reader.span("slow_backoff", self.slow_backoff, Span::ZERO, MOST);
        knobs::batch_commands(reader, &mut self.batch_commands);
        knobs::queue(reader, &mut self.queue_commands, &mut self.queue_bytes);
        knobs::keep(reader, "keep_commands", &mut self.keep_commands, &mut self.keep_bytes);
    }

    fn read_sizes(&mut self, reader: &mut ParameterReader<'_>, replicas: usize, _spares: usize) {
        self.quorums = Some(reader.quorums(replicas));
    }

    /// Smaller quorums do not meet those that decided before.
    fn fixed(&self, replicas: usize) -> Vec<(&'static str, String)> {
        let quorums = self.quorums(replicas);
        [(FastQuorums::FAST, quorums.fast()), (FastQuorums::CLASSIC, quorums.classic())]
            .map(|(key, size)| (key, size.to_string()))
            .into()
    }

    fn bugs() -> Vec<&'static str> {
        Mutation::names()
    }

    fn plant(&mut self, bug: &str) -> bool {
        self.mutation = Mutation::named(bug);
        self.mutation.is_some()
    }

    fn drops_sessions(&self) -> bool {
        self.mutated(Mutation::DropSession)
    }
}

impl Parameters {
    /// The quorums of the fast lane in a group of `n`.
    pub fn quorums(&self, n: usize) -> FastQuorums {
        self.quorums.filter(|quorums| quorums.replicas() == n).unwrap_or(FastQuorums::of(n))
    }

    /// Whether this bug is planted.
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }
}
