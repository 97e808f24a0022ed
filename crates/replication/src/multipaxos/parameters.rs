//! How Multi-Paxos is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::service::Reply;
use isochrone_core::deployment::ParameterReader;
use isochrone_core::{LeaseTerms, Span};

/// How the group log keeps its slots.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Form {
    /// Slots may have gaps; a new leader adopts for each the value of the highest ballot and fills holes.
    Slots,
    /// Slots are accepted in order; a new leader adopts one promised log whole, that of the highest (ballot
    /// in which it was adopted, length). Transaction groups and streams need this (`specs/carousel.md` 2.1).
    Prefix,
}

impl Form {
    const ALL: [Form; 2] = [Form::Slots, Form::Prefix];

    /// Its name in deployment files.
    fn name(self) -> &'static str {
        match self {
            Form::Slots => "slots",
            Form::Prefix => "prefix",
        }
    }
}

/// The parameters of Multi-Paxos.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// How the log keeps its slots.
    pub form: Form,
    /// How often a leader says that it lives: several times in an election timeout, and an idle follower
    /// learns of commits soon.
    pub heartbeat: Span,
    /// How long a follower hears nothing before it asks whether others hear as little. The longest round
    /// trip, so that leases of this length last from one answered heartbeat to the next, and five heartbeats.
    pub election: Span,
    /// How long a candidate waits for promises; doubled for each failed attempt, since both sides must
    /// sync and a disk may be slower than anyone thought.
    pub campaign: Span,
    /// How long something missing may be only late before it is asked for.
    pub repair: Span,
    /// How long an answer to such a question, or a vote, may take before it is asked for again.
    pub resend: Span,
    /// Whether the leader holds leases and answers reads from its own state.
    pub lease: bool,
    /// How long a lease lasts. Not above `election`, so that a failover waits for no lease.
    pub lease_length: Span,
    /// How far a steady clock's rate may be off, in millionths: leases rest on it.
    pub drift_ppm: u64,
    /// Commands in one slot at most.
    pub batch_commands: usize,
    /// Bytes in one slot at most, unless a single command is larger.
    pub batch_bytes: usize,
    /// Whether commands wait while the leader's disk is busy with those before them. Where replicas are near,
    /// the syncs bound the rate; where they are far, a command should be on its way.
    pub gather: bool,
    /// Slots proposed and not decided at most: bounds what a promise must carry.
    pub window: u64,
    /// Bytes proposed and not decided at most.
    pub window_bytes: usize,
    /// Commands that may wait at the leader for a slot; more are refused.
    pub queue_commands: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Executed slots that are kept for followers that lag; who lags more takes in a snapshot.
    pub keep_slots: usize,
    /// Bytes of them.
    pub keep_bytes: usize,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let heartbeat = Span::from_millis(50);
        // On a LAN not less than a busy machine may stand still.
        let election = (heartbeat * 5 + rtt_max).max(Span::from_millis(400));
        Parameters {
            form: Form::Slots,
            heartbeat,
            election,
            campaign: rtt_max * 2 + Span::from_millis(400),
            repair: Span::from_millis(20),
            resend: rtt_max + rtt_max / 2 + Span::from_millis(200),
            lease: true,
            lease_length: election,
            drift_ppm: 10_000,
            batch_commands: 4_096,
            batch_bytes: 1 << 20,
            gather: rtt_max < Span::from_millis(5),
            window: 1_024,
            window_bytes: 32 << 20,
            queue_commands: 65_536,
            queue_bytes: 64 << 20,
            keep_slots: 8_192,
            keep_bytes: KEEP_BYTES,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, _: Reply) {
        self.form = reader.choice("form", self.form, &Form::ALL.map(|form| (form.name(), form)));
        self.heartbeat = reader.span("heartbeat", self.heartbeat, LEAST, MOST);
        knobs::silence(reader, "election", &mut self.election, self.heartbeat);
        self.campaign = reader.span("campaign", self.campaign, LEAST, MOST);
        self.lease = reader.boolean("lease", self.lease);
        knobs::lease_length(reader, &mut self.lease_length, self.election);
        self.drift_ppm = reader.integer("drift_max_ppm", self.drift_ppm, 1, 100_000);
        knobs::batch(reader, &mut self.batch_commands, &mut self.batch_bytes);
        self.gather = reader.boolean("gather", self.gather);
        self.window = reader.integer("window", self.window, 1, 1 << 20);
        knobs::window_bytes(reader, &mut self.window_bytes);
        knobs::keep(reader, "keep_slots", &mut self.keep_slots, &mut self.keep_bytes);
        knobs::queue(reader, &mut self.queue_commands, &mut self.queue_bytes);
    }

    /// Only the prefix form keeps which leader's log was accepted.
    fn fixed(&self, _: usize) -> Vec<(&'static str, String)> {
        vec![("form", self.form.name().to_owned())]
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

    fn drops_sessions(&self) -> bool {
        self.mutated(Mutation::DropSession)
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
}
