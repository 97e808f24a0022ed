//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use crate::curp::Bug;
use isochrone_core::mutations;

mutations! {
    /// A new leader does not ask the witnesses for what only they know.
    SkipReplay = "skip-replay",
    /// A new leader takes commands at once: what only its log has is not among what is tentative, and they are executed
    /// before it.
    PoolNotRebuilt = "pool-not-rebuilt",
    /// A new leader takes commands when all is decided that it adopted: what only the witnesses know comes behind.
    SpeculateBeforeNoop = "speculate-before-noop",
    /// A new leader serves reads before what it replays and its no-op are decided.
    ServeBeforeNoop = "serve-before-noop",
    /// A new leader changes the members before what witnesses know is brought back.
    ChangeMembersEarly = "change-members-early",
    /// Clients are content with a majority of acceptances.
    SuperquorumTooSmall = "superquorum-too-small",
    /// Replayed is what more witnesses hold than the threshold says.
    ReplayMoreThan = "replay-more-than",
    /// A witness accepts before its record is durable.
    AcceptBeforeDurable = "accept-before-durable",
    /// A witness accepts records of any term.
    AcceptAnyTerm = "accept-any-term",
    /// A witness that restarts has forgotten what it holds.
    ForgetRecords = "forget-records",
    /// A witness accepts what does not commute with what it holds, in its place.
    AcceptConflict = "accept-conflict",
    /// A witness clears what its log holds beyond the commit index.
    ClearUndecided = "clear-undecided",
    /// The leader answers speculatively although the command does not commute with all that is not decided.
    SpeculateOnConflict = "speculate-on-conflict",
    /// The leader answers reads from values that are not decided.
    ReadTentative = "read-tentative",
    /// A command that is asked for again is told its speculative answer.
    SpeculateOnDuplicate = "speculate-on-duplicate",
    /// A deposed leader keeps what it executed speculatively.
    KeepTentative = "keep-tentative",
    /// Clients count acceptances of other terms.
    MixReigns = "mix-reigns",
    /// Keys that a command only reads conflict with nothing.
    ForgetReadKeys = "forget-read-keys",
    /// What fails has no place in the log, and nothing remembers it.
    ForgetFailures = "forget-failures",
    /// Clients are content with one acceptance less than needed.
    OneAcceptanceLess = "one-acceptance-less",
}

impl Mutation {
    /// The same in what the two forms of CURP share.
    pub(super) fn shared(self) -> Option<Bug> {
        Bug::named(self.name())
    }
}
