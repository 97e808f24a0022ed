//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// One ballot an instance, as first published: a promise passes for the ballot of the last vote.
    SingleBallot = "single-ballot",
    /// The published recovery, which is sound with large fast quorums only, beside the small ones.
    PublishedRecovery = "published-recovery",
    /// A recovery takes what enough replicas pre-accepted without asking for commands that rule it out.
    NoValidation = "no-validation",
    /// A recovery asks about conflicts, but the answers of one replica are enough.
    ValidateAnywhere = "validate-anywhere",
    /// The slow path proposes what the command leader knew, not what the quorum has added.
    DependenciesNotMerged = "dependencies-not-merged",
    /// A command is executed although something that it depends on is not committed.
    ExecuteUncommitted = "execute-uncommitted",
    /// The members of a component are executed in the order in which they were committed here.
    ComponentUnordered = "component-unordered",
    /// A restart forgets what was promised.
    ForgetPromise = "forget-promise",
    /// A pre-acceptance is told before its record is durable.
    AcknowledgeBeforeDurable = "acknowledge-before-durable",
    /// A fast commit is told before it is recorded, although a recovery takes the word of its leader.
    CommitBeforeDurable = "commit-before-durable",
    /// A restart forgets that instances may have left ahead of their records: their numbers are used again.
    ForgetReserved = "forget-reserved",
    /// A restart uses no number again, but lets commands pass by what may have left with these.
    ForgetLost = "forget-lost",
}
