//! How Carousel is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::group;
use crate::limits::Bounds;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;
use isochrone_plan::carousel::Tuned;
use isochrone_replication::multipaxos;

pub use isochrone_plan::carousel::Reads;

/// How often the pause between attempts is doubled.
const BACKOFF_MAX: u32 = 4;

/// The parameters of Carousel.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// The knobs of the group logs.
    pub log: multipaxos::Parameters,
    /// Whether replicas vote on their own, beside the log (CPC, 3.3): Fast.
    pub cpc: bool,
    /// Who serves reads.
    pub reads: Reads,
    /// Whether an abort is told before the client asks to commit (8.9).
    pub early_abort: bool,
    /// How often clients say that they live, and everything open is looked after (8.3).
    pub heartbeat: Span,
    /// Heartbeats that may be missed before a transaction is aborted (8.3).
    pub missed: u64,
    /// How long something may go unanswered before it is asked again; doubled each time.
    pub resend: Span,
    /// By how much somebody else must be older that a transaction is refused for: by more than messages are under way for
    /// longer to one leader than to another. It is waited for, in turn, for ten times as long.
    pub apart: Span,
    /// How long a prepared transaction or a vote may lie before its end is asked for.
    pub orphan: Span,
    /// How long a transaction may be open before it is to be committed (8.3), and how long a client waits for its end.
    pub limit: Span,
    /// How far ahead of the clock moments may be served without asking the log: what a failover costs in stamps.
    pub ceiling: Span,
    /// How long old versions are kept for read-only transactions (8.23).
    pub keep: Span,
    /// How long a client may be silent before what is remembered for it goes.
    pub idle: Span,
    /// Whether read-only transactions see the latest, as those that write do and by their way; else all of one moment by
    /// their client's clock, in one round trip, which may lie behind what others have written where clocks differ or a
    /// leader has failed. Where nothing is said, served keyspaces have the latest, and others a moment (3.6).
    pub latest: Option<bool>,
    /// How often a read-only transaction is tried at a new moment before it takes the way of the others (8.14).
    pub snapshots: u32,
    /// Transactions that one client process may have open.
    pub open_max: usize,
    /// Requests that wait for a leader to be ready.
    pub waiting_max: usize,
    /// Keys of a transaction.
    pub keys_max: usize,
    /// Bytes of what a transaction names and writes.
    pub bytes_max: usize,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let resend = rtt_max * 2 + Span::from_millis(200);
        Parameters {
            log: group::log_for_rtt(rtt_max),
            cpc: Tuned::BASIC.votes,
            reads: Tuned::BASIC.reads,
            early_abort: false,
            heartbeat: Span::from_millis(500),
            missed: 6,
            resend,
            apart: rtt_max + Span::from_millis(10),
            orphan: resend * 2 + Span::from_secs(1),
            limit: Span::from_secs(30),
            ceiling: Span::from_secs(1) + rtt_max,
            keep: Span::from_secs(60),
            idle: Span::from_secs(600),
            latest: Tuned::BASIC.latest,
            snapshots: 3,
            open_max: 16_384,
            waiting_max: 4_096,
            keys_max: 10_000,
            bytes_max: 16 << 20,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>) {
        let (least, most) = (Span::from_millis(1), Span::from_secs(3_600));
        group::read_log(&mut self.log, reader);
        let tuned = Tuned { votes: self.cpc, reads: self.reads, latest: self.latest }.read(reader);
        (self.cpc, self.reads, self.latest) = (tuned.votes, tuned.reads, tuned.latest);
        if self.reads != Reads::Leader && !self.cpc {
            reader.reject("reads", "is from followers, which want fast_path = true", "leave one of them out");
        }
        self.early_abort = reader.boolean("early_abort", self.early_abort);
        self.missed = reader.integer("heartbeats_missed", self.missed, 1, 1_000);
        self.limit = reader.span("time_limit", self.limit, least, most);
        self.keep = reader.span("keep_versions", self.keep, Span::from_secs(1), most * 24);
        self.open_max = reader.integer("outstanding", self.open_max as u64, 1, 1 << 24) as usize;
        self.keys_max = reader.integer("txn_keys", self.keys_max as u64, 1, 1 << 20) as usize;
        self.bytes_max = reader.bytes("txn_bytes", self.bytes_max as u64, 1_024, 256 << 20) as usize;
    }

    /// A leader that knows no fast path does not ask what was settled by it.
    fn fixed(&self, fixed: &mut Vec<(&'static str, String)>) {
        fixed.push(("fast_path", self.cpc.to_string()));
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
    /// The defaults of the fast variant.
    pub(super) fn fast(rtt_max: Span) -> Parameters {
        let Tuned { votes: cpc, reads, latest } = Tuned::FAST;
        Parameters { cpc, reads, latest, ..Parameters::for_rtt(rtt_max) }
    }

    /// How long to wait for an answer after so many attempts.
    pub(super) fn pause(&self, attempts: u32) -> Span {
        self.resend * (1 << attempts.min(BACKOFF_MAX))
    }

    /// How old a transaction must be to go before the younger when it comes again. Whoever is refused for it is delayed by about
    /// as much as it gains: most get on by a few tries, at nobody's cost.
    pub(super) fn patience(&self) -> Span {
        self.apart * 3
    }

    /// Within how long what was refused comes again: the longest pause between two tries is eight round trips, and the answer
    /// takes two.
    pub(super) fn hold(&self) -> Span {
        self.apart * 10
    }

    /// Whether this bug is planted.
    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }
}
