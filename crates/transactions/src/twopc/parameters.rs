//! How layered two-phase commit is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::group;
use crate::limits::Bounds;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;
use isochrone_replication::multipaxos;

pub use isochrone_plan::twopc::Coordinator;

/// The parameters of layered two-phase commit.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// The knobs of the logs.
    pub log: multipaxos::Parameters,
    /// Who coordinates.
    pub coordinator: Coordinator,
    /// How long something may go unanswered before it is asked again, doubled each time: longer than a commit takes
    /// where all are far apart, three round trips.
    pub retry: Span,
    /// How often a client says which of its transactions are open.
    pub heartbeat: Span,
    /// After so many of them without a word the read locks of a client go.
    pub missed: u64,
    /// How long a transaction may stay open, and how long its commit may take before it is given up.
    pub time_limit: Span,
    /// How long superseded versions stay: so long a deletion is told from a key that was never written.
    pub keep: Span,
    /// Keys that a transaction may have.
    pub keys_max: usize,
    /// Bytes of keys and values that it may have.
    pub bytes_max: usize,
    /// Transactions that may be open at a client.
    pub open_max: usize,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        Parameters {
            log: group::log_for_rtt(rtt_max),
            coordinator: Coordinator::default(),
            retry: rtt_max * 3 + Span::from_millis(300),
            heartbeat: Span::from_millis(500),
            missed: 6,
            time_limit: Span::from_secs(30),
            keep: Span::from_secs(60),
            keys_max: 10_000,
            bytes_max: 16 << 20,
            open_max: 65_536,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>) {
        const LEAST: Span = Span::from_millis(1);
        const MOST: Span = Span::from_secs(600);
        group::read_log(&mut self.log, reader);
        self.coordinator = Coordinator::read(reader);
        self.retry = reader.span("retry", self.retry, LEAST, MOST);
        self.heartbeat = reader.span("client_heartbeat", self.heartbeat, LEAST, MOST);
        self.missed = reader.integer("heartbeats_missed", self.missed, 1, 1_000);
        self.time_limit = reader.span("time_limit", self.time_limit, LEAST, MOST);
        self.keep = reader.span("keep_versions", self.keep, Span::from_secs(1), MOST * 144);
        self.keys_max = reader.integer("txn_keys", self.keys_max as u64, 1, 1 << 20) as usize;
        self.bytes_max = reader.bytes("txn_bytes", self.bytes_max as u64, 1, 64 << 20) as usize;
        self.open_max = reader.integer("outstanding", self.open_max as u64, 1, 1 << 24) as usize;
    }

    fn bounds(&self) -> Bounds {
        Bounds { keys: self.keys_max, bytes: self.bytes_max }
    }

    fn bound(&mut self, bounds: Bounds) {
        (self.keys_max, self.bytes_max) = (bounds.keys, bounds.bytes);
    }

    fn bugs() -> Vec<&'static str> {
        Mutation::names()
    }

    fn plant(&mut self, bug: &str) -> bool {
        self.mutation = Mutation::named(bug);
        self.mutation.is_some()
    }
}

impl Parameters {
    /// Whether this bug is planted.
    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }

    /// How long nothing may be heard of a client before its read locks go.
    pub(super) fn silence(&self) -> Span {
        self.heartbeat * self.missed
    }
}
