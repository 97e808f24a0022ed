//! How Fast Paxos is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::service::Reply;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;

pub use isochrone_plan::Learners;

/// The parameters of Fast Paxos.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// Who counts fast votes, beside the clients.
    pub learners: Learners,
    /// Whether clients are sent the votes for their commands, and so learn by themselves that these have
    /// their place. Only where the keyspace replies at commit.
    pub cast: bool,
    /// How often the coordinator says that it lives: several times in an election timeout.
    pub heartbeat: Span,
    /// How long a replica is silent before it is suspected, and how long a replica hears no coordinator
    /// before it asks whether others hear as little: `specs/domino.md` 4.1.
    pub suspect: Span,
    /// How long a candidate waits for promises; doubled for each failed attempt, since both sides must
    /// sync and a disk may be slower than anyone thought.
    pub campaign: Span,
    /// How long a vote may be only late before it is asked for. A client's way to two replicas differs by at
    /// most a round trip between them.
    pub late: Span,
    /// How long something decided may be only late before it is asked for.
    pub repair: Span,
    /// How long an answer or an acknowledgement may take before it is asked for again.
    pub resend: Span,
    /// Commands in one index at most, where several collided or wait.
    pub batch_commands: usize,
    /// Indices voted for and not decided at most: bounds what a promise must carry.
    pub window: u64,
    /// Commands without a place that a replica holds at most; more are refused.
    pub queue_commands: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Executed indices that are kept for replicas that lag; who lags more takes in a peer's state.
    pub keep_slots: usize,
    /// Bytes of them.
    pub keep_bytes: usize,
    /// A bug planted on purpose; nothing without the feature `mutations`.
    pub mutation: Option<Mutation>,
}

impl Tuning for Parameters {
    fn for_rtt(rtt_max: Span) -> Parameters {
        let heartbeat = Span::from_millis(50);
        Parameters {
            learners: Learners::usual(Reply::Execute),
            cast: false,
            heartbeat,
            suspect: (rtt_max * 2 + heartbeat * 5).max(Span::from_millis(500)),
            campaign: rtt_max * 2 + Span::from_millis(400),
            late: rtt_max + Span::from_millis(20),
            repair: Span::from_millis(20),
            resend: rtt_max + rtt_max / 2 + Span::from_millis(200),
            batch_commands: 4_096,
            // An index holds one command, not a batch as in Multi-Paxos.
            window: 16_384,
            queue_commands: 65_536,
            queue_bytes: 64 << 20,
            keep_slots: 65_536,
            keep_bytes: KEEP_BYTES,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply) {
        self.cast = reply == Reply::Commit;
        self.learners = Learners::read(reader, reply);
        self.heartbeat = reader.span("heartbeat", self.heartbeat, LEAST, MOST);
        knobs::silence(reader, "suspect_after", &mut self.suspect, self.heartbeat);
        self.campaign = reader.span("campaign", self.campaign, LEAST, MOST);
        self.late = reader.span("late", self.late, LEAST, MOST);
        knobs::batch_commands(reader, &mut self.batch_commands);
        self.window = reader.integer("window", self.window, 1, 1 << 20);
        knobs::queue(reader, &mut self.queue_commands, &mut self.queue_bytes);
        knobs::keep(reader, "keep_slots", &mut self.keep_slots, &mut self.keep_bytes);
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
