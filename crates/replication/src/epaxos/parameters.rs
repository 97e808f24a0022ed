//! How EPaxos is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::service::Reply;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;
use isochrone_plan::epaxos::Tuned;

/// The parameters of EPaxos.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// When the keyspace answers writes: commits are told only where somebody is answered then.
    pub reply: Reply,
    /// How often a replica says that it lives and what it has executed.
    pub heartbeat: Span,
    /// How long a replica is silent until its instances are recovered by others. Several heartbeats and the
    /// longest round trip.
    pub patience: Span,
    /// How often instances that are late are looked at.
    pub tick: Span,
    /// How long a dependency may be only late before it is asked for.
    pub repair: Span,
    /// How long an answer or a commit may take before it is asked for again.
    pub resend: Span,
    /// By how much recoveries of one instance by different replicas are kept apart: about a round trip.
    pub stagger: Span,
    /// Whether `PreAccept` and `Accept` go to a quorum only, the nearest, instead of to all.
    pub thrifty: bool,
    /// Whether at three replicas the nearest other one settles the attributes by itself, so that interference
    /// costs no second round trip.
    pub delegate: bool,
    /// Own instances that may leave ahead of their records: so many at most a restart has to have given up,
    /// for it may have lost them.
    pub ahead: u64,
    /// Commands in one instance at most.
    pub batch_commands: usize,
    /// Bytes in one instance at most, unless a single command is larger.
    pub batch_bytes: usize,
    /// Own instances proposed and not committed at most: under contention each leads to all of them.
    pub window: u64,
    /// Commands that may wait for an instance; more are refused.
    pub queue_commands: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Executed instances whose commands are kept for others although some have not executed them; who lags
    /// more takes in somebody's state.
    pub keep_instances: usize,
    /// Bytes of them.
    pub keep_bytes: usize,
    /// Executed instances whose attributes are kept until all members have executed them. Beyond that, every
    /// new instance depends on all that is gone.
    pub keep_attributes: u64,
    /// Keys that they touch, of each member's instances, about: the same goes beyond that. (Some two thousand
    /// instances are kept in any case.)
    pub keep_keys: u64,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let heartbeat = Span::from_millis(100);
        Parameters {
            reply: Reply::Execute,
            heartbeat,
            // On a LAN not less than a busy machine may stand still.
            patience: heartbeat * 4 + rtt_max,
            tick: Span::from_millis(20),
            repair: Span::from_millis(20) + rtt_max / 4,
            resend: rtt_max + rtt_max / 2 + Span::from_millis(200),
            stagger: rtt_max + Span::from_millis(20),
            thrifty: false,
            delegate: Tuned::default().delegate,
            // What is on the way at once over a LAN; over longer ways a sync counts for little.
            ahead: 32,
            batch_commands: 1_024,
            batch_bytes: 1 << 20,
            window: 256,
            queue_commands: 65_536,
            queue_bytes: 64 << 20,
            keep_instances: 8_192,
            keep_bytes: KEEP_BYTES,
            keep_attributes: 262_144,
            // Sixty megabytes, with the conflict index.
            keep_keys: 524_288,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply) {
        self.reply = reply;
        self.heartbeat = reader.span("heartbeat", self.heartbeat, LEAST, MOST);
        knobs::silence(reader, "suspect_after", &mut self.patience, self.heartbeat);
        self.resend = reader.span("resend", self.resend, LEAST, MOST);
        self.stagger = reader.span("stagger", self.stagger, LEAST, MOST);
        self.thrifty = reader.boolean("thrifty", self.thrifty);
        self.delegate = Tuned::read(reader).delegate;
        self.ahead = reader.integer("ahead", self.ahead, 1, 4_096);
        knobs::batch(reader, &mut self.batch_commands, &mut self.batch_bytes);
        self.window = reader.integer("window", self.window, 1, 4_096);
        knobs::queue(reader, &mut self.queue_commands, &mut self.queue_bytes);
        knobs::keep(reader, "keep_instances", &mut self.keep_instances, &mut self.keep_bytes);
        self.keep_attributes = reader.integer("keep_attributes", self.keep_attributes, 1_024, 1 << 24);
        self.keep_keys = reader.integer("keep_keys", self.keep_keys, 1_024, 1 << 30);
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
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }
}
