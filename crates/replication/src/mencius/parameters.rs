//! How Mencius is tuned: every knob with its unit, its default and the reason for it.

use super::Mutation;
use crate::family::Tuning;
use crate::knobs::{self, KEEP_BYTES, LEAST, MOST};
use crate::service::Reply;
use isochrone_core::Span;
use isochrone_core::deployment::ParameterReader;

/// The parameters of Mencius.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Parameters {
    /// How often every replica says that it lives: several times in `patience`, and whoever asks nothing
    /// learns of commits and skips soon.
    pub heartbeat: Span,
    /// How long a replica is silent before its turns are revoked. The longest round trip and five heartbeats.
    pub patience: Span,
    /// How long a vote, a promise or an answer may take before it is asked for again.
    pub resend: Span,
    /// How long something missing may be only late before it is asked for: longer than a skip may wait, and
    /// than two that sent at once may lie apart.
    pub repair: Span,
    /// How long a skip waits for a message that it can ride on (`specs/sdpaxos.md` 5.2).
    pub skip_delay: Span,
    /// How many skipped turns may wait so; more are told at once.
    pub skip_limit: u64,
    /// How many turns ahead of the group's last slot the turns of a suspect are revoked: few revocations
    /// while it is away, and no more than numbers to whoever must step over them.
    pub revoke_turns: u64,
    /// Whether a blind command is answered as soon as its own slot has its quorum and nothing open before
    /// it interferes (`reply = "commit"`); else a command is answered when it is executed.
    pub early: bool,
    /// Commands in one slot at most.
    pub batch_commands: usize,
    /// Bytes in one slot at most, unless a single command is larger.
    pub batch_bytes: usize,
    /// Own slots suggested and not decided at most: bounds what a promise must carry.
    pub window: u64,
    /// Bytes suggested and not decided at most.
    pub window_bytes: usize,
    /// Commands that may wait for a slot; more are refused.
    pub queue_commands: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Executed slots with commands that are kept for replicas that lag; who lags more takes in a snapshot.
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
            heartbeat,
            // On a LAN not less than a busy machine may stand still.
            patience: (heartbeat * 5 + rtt_max).max(Span::from_millis(400)),
            resend: rtt_max + rtt_max / 2 + Span::from_millis(200),
            repair: Span::from_millis(70) + rtt_max / 2,
            skip_delay: Span::from_millis(50),
            skip_limit: 20,
            revoke_turns: 1_000,
            early: false,
            batch_commands: 4_096,
            batch_bytes: 1 << 20,
            window: 1_024,
            window_bytes: 32 << 20,
            queue_commands: 65_536,
            queue_bytes: 64 << 20,
            keep_slots: 8_192,
            keep_bytes: KEEP_BYTES,
            mutation: None,
        }
    }

    fn read_from(&mut self, reader: &mut ParameterReader<'_>, reply: Reply) {
        self.heartbeat = reader.span("heartbeat", self.heartbeat, LEAST, MOST);
        knobs::silence(reader, "suspect_after", &mut self.patience, self.heartbeat);
        self.skip_delay = reader.span("skip_delay", self.skip_delay, Span::ZERO, MOST);
        self.skip_limit = reader.integer("skip_limit", self.skip_limit, 0, 1 << 20);
        self.revoke_turns = reader.integer("revoke_turns", self.revoke_turns, 2, 1 << 32);
        self.early = reply == Reply::Commit;
        knobs::batch(reader, &mut self.batch_commands, &mut self.batch_bytes);
        self.window = reader.integer("window", self.window, 1, 1 << 20);
        knobs::window_bytes(reader, &mut self.window_bytes);
        knobs::keep(reader, "keep_slots", &mut self.keep_slots, &mut self.keep_bytes);
        knobs::queue(reader, &mut self.queue_commands, &mut self.queue_bytes);
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
    /// Whether this bug is planted.
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        mutation.acts(self.mutation)
    }
}
