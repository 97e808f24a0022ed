//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// Reads take no locks.
    ReadWithoutLocks = "read-without-locks",
    /// A participant does not look whether what was read is still the latest.
    PrepareWithoutValidation = "prepare-without-validation",
    /// A participant says that it is prepared before that is replicated.
    VoteBeforeReplication = "vote-before-replication",
    /// A coordinator tells the outcome before it is replicated.
    DecisionBeforeReplication = "decision-before-replication",
    /// A participant releases the locks of a transaction when it hears of the outcome, before it is replicated.
    ReleaseBeforeApply = "release-before-apply",
    /// A new leader does not lock what is prepared.
    ForgetPreparedLocks = "forget-prepared-locks",
    /// A coordinator that does not know a transaction says that it has committed.
    PresumeCommit = "presume-commit",
    /// A coordinator says that what is withdrawn was aborted, and decides nothing.
    WithdrawWithoutDecision = "withdraw-without-decision",
}
