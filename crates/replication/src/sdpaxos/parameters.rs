//! How SDPaxos is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::service::Reply;
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{LeaseTerms, Span};
use isochrone_plan::sdpaxos::Tuned;

/// The parameters of SDPaxos.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// When the keyspace answers writes: commits are told only where somebody is answered then.
    pub reply: Reply,
    /// How often everyone tells everyone that it lives; what is lazy leaves then, and what is late is looked for.
    pub heartbeat: Span,
    /// A silence that makes a suspect: the longest round trip, so that a lease of this length lasts from one
    /// heartbeat to the next, and five heartbeats.
    pub election: Span,
    /// How long a candidate waits for votes; doubled for each failed attempt.
    pub campaign: Span,
    /// How long an answer may take before more are asked (twice the longest round trip, `specs/sdpaxos.md` 4.5).
    pub resend: Span,
    /// Whether the sequencer holds leases and names slots for reads (3.8); else reads are ordered.
    pub lease: bool,
    /// How long a lease lasts. Not above `election`, so that a failover waits for no lease.
    pub lease_length: Span,
    /// How far a steady clock's rate may be off, in millionths: leases rest on it.
    pub drift_ppm: u64,
    /// Whether accepts go to the nearest quorum only, and to the rest when that is late.
    pub thrifty: bool,
    /// Whether several commands share a command instance. Off to reproduce published figures.
    pub batch: bool,
    /// Commands in one instance at most.
    pub batch_commands: usize,
    /// Bytes in one instance at most, unless a single command is larger.
    pub batch_bytes: usize,
    /// Slots of one member that one order instance may cover; 1 gives each its own.
    pub order_batch: u32,
    /// Own command instances not executed at most.
    pub window: u64,
    /// Commands that may wait for an instance; more are refused.
    pub queue_commands: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Executed slots that are kept for replicas that lag; who lags more takes in a snapshot.
    pub keep_slots: usize,
    /// Bytes of them.
    pub keep_bytes: usize,
    /// Whether a slow sequencer is replaced (4.6).
    pub straggler: bool,
    /// How long one window of that detection is.
    pub straggler_window: Span,
    /// The least time between two such replacements in the group; doubled each time, to sixteen times as much at most.
    pub straggler_rest: Span,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let heartbeat = Span::from_millis(80);
        // On a LAN not less than a busy machine may stand still.
        let election = (heartbeat * 4 + rtt_max).max(Span::from_millis(400));
        Parameters {
            reply: Reply::Execute,
            heartbeat,
            election,
            campaign: rtt_max * 2 + Span::from_millis(400),
            resend: rtt_max * 2 + Span::from_millis(60),
            lease: true,
            lease_length: election,
            drift_ppm: 10_000,
            thrifty: Tuned::default().thrifty,
            batch: true,
            batch_commands: 4_096,
            batch_bytes: 1 << 20,
            order_batch: 1_024,
            window: 1_024,
            queue_commands: 65_536,
            queue_bytes: 64 << 20,
            keep_slots: 8_192,
            keep_bytes: KEEP_BYTES,
            straggler: true,
            straggler_window: Span::from_millis(500),
            straggler_rest: Span::from_secs(10),
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply) {
        self.reply = reply;
        self.heartbeat = reader.span("heartbeat", self.heartbeat, LEAST, MOST);
        knobs::silence(reader, "election", &mut self.election, self.heartbeat);
        self.campaign = reader.span("campaign", self.campaign, LEAST, MOST);
        self.resend = reader.span("resend", self.resend, LEAST, MOST);
        self.lease = reader.boolean("lease", self.lease);
        knobs::lease_length(reader, &mut self.lease_length, self.election);
        self.drift_ppm = reader.integer("drift_max_ppm", self.drift_ppm, 1, 100_000);
        self.thrifty = Tuned::read(reader).thrifty;
        self.batch = reader.boolean("batch", self.batch);
        knobs::batch(reader, &mut self.batch_commands, &mut self.batch_bytes);
        // The bound keeps it within the type.
        self.order_batch = reader.integer("order_batch", u64::from(self.order_batch), 1, 1 << 16) as u32;
        self.window = reader.integer("window", self.window, 1, 1 << 20);
        knobs::queue(reader, &mut self.queue_commands, &mut self.queue_bytes);
        knobs::keep(reader, "keep_slots", &mut self.keep_slots, &mut self.keep_bytes);
        self.straggler = reader.boolean("straggler", self.straggler);
        self.straggler_window = reader.span("straggler_window", self.straggler_window, LEAST, MOST);
        self.straggler_rest = reader.span("straggler_rest", self.straggler_rest, LEAST, MOST);
    }

    fn leases(&self) -> Span {
        if self.lease { self.lease_length } else { Span::ZERO }
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
    /// The terms of its leases.
    pub fn lease_terms(&self) -> LeaseTerms {
        LeaseTerms::new(self.lease_length, self.drift_ppm)
    }

    /// Whether this bug is planted.
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }

    /// The planted bug, if there may be any.
    pub(crate) fn planted(&self) -> Option<Mutation> {
        self.mutation.filter(|_| cfg!(feature = "mutations"))
    }
}
