//! How TAPIR is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::limits::Bounds;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;

const LEAST: Span = Span::from_millis(1);
const MOST: Span = Span::from_secs(600);

/// The parameters of TAPIR. The times are those of the public code, unless the deployment is too large for them.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// Whether a key that anybody is prepared to write refuses its readers, and one that is prepared to be written
    /// later its writers; else only writes that are earlier refuse readers. Serializable either way.
    pub strict_reads: bool,
    /// Whether a handle of a client begins no transaction at a partition before a majority there knows how its last one
    /// ended.
    pub self_blocking: bool,
    /// How long a client waits for a fast quorum of equal votes before it makes do with a majority.
    pub fast_path: Span,
    /// How long an answer may take before it is asked for again, by whoever waits for one.
    pub resend: Span,
    /// How long a read may take before the next replica is asked.
    pub read: Span,
    /// How long a prepare may take before all replicas are asked again, also those that have answered.
    pub prepare: Span,
    /// How many timestamps a transaction is tried at.
    pub tries: u32,
    /// How long a transaction may be prepared before the replicas end it themselves: its client may be dead.
    pub terminate_after: Span,
    /// How long a client tries at all; then the outcome is unknown.
    pub time_limit: Span,
    /// Transactions that one client process may have open; more are refused.
    pub open: usize,
    /// Keys in one transaction.
    pub txn_keys: usize,
    /// Bytes of keys and values in one transaction.
    pub txn_bytes: usize,
    /// Transactions that a replica remembers after their end, for others of their replicas that may ask, besides those whose
    /// clients may still ask.
    pub keep_records: usize,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let millis = Span::from_millis;
        Parameters {
            strict_reads: true,
            self_blocking: true,
            fast_path: millis(500).max(rtt_max + rtt_max / 2),
            resend: millis(500).max(rtt_max + rtt_max / 2),
            read: millis(250).max(rtt_max + rtt_max / 4),
            prepare: millis(1_000).max(rtt_max * 3),
            tries: 5,
            terminate_after: millis(3_000).max(rtt_max * 15),
            time_limit: Span::from_secs(20),
            open: 65_536,
            txn_keys: 10_000,
            txn_bytes: 16 << 20,
            keep_records: 65_536,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>) {
        self.strict_reads = reader.boolean("strict_reads", self.strict_reads);
        self.self_blocking = reader.boolean("self_blocking", self.self_blocking);
        self.fast_path = reader.span("fast_path", self.fast_path, LEAST, MOST);
        self.resend = reader.span("resend", self.resend, LEAST, MOST);
        self.read = reader.span("read", self.read, LEAST, MOST);
        self.prepare = reader.span("prepare", self.prepare, LEAST, MOST);
        // At most 100.
        self.tries = reader.integer("tries", u64::from(self.tries), 1, 100) as u32;
        self.terminate_after = reader.span("terminate_after", self.terminate_after, LEAST, MOST);
        self.time_limit = reader.span("time_limit", self.time_limit, LEAST, Span::from_secs(3_600));
        self.open = reader.integer("outstanding", self.open as u64, 1, 1 << 24) as usize;
        self.txn_keys = reader.integer("txn_keys", self.txn_keys as u64, 1, 1 << 20) as usize;
        self.txn_bytes = reader.bytes("txn_bytes", self.txn_bytes as u64, 1, 64 << 20) as usize;
        self.keep_records = reader.integer("keep_records", self.keep_records as u64, 16, 1 << 24) as usize;
    }

    fn bounds(&self) -> Bounds {
        Bounds { keys: self.txn_keys, bytes: self.txn_bytes }
    }

    fn bound(&mut self, bounds: Bounds) {
        (self.txn_keys, self.txn_bytes) = (bounds.keys, bounds.bytes);
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
}
