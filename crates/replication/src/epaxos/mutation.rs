//! Deliberate bugs. They exist so that a test can show that the checks would find them.

/// One planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mutation {
    /// One ballot an instance, as first published: a promise passes for the ballot of the last vote.
    SingleBallot,
    /// The published recovery, which is sound with large fast quorums only, beside the small ones.
    PublishedRecovery,
    /// A recovery takes what enough replicas pre-accepted without asking for commands that rule it out.
    NoValidation,
    /// A recovery asks about conflicts, but the answers of one replica are enough.
    ValidateAnywhere,
    /// The slow path proposes what the command leader knew, not what the quorum has added.
    DependenciesNotMerged,
    /// A command is executed although something that it depends on is not committed.
    ExecuteUncommitted,
    /// The members of a component are executed in the order in which they were committed here.
    ComponentUnordered,
    /// A restart forgets what was promised.
    ForgetPromise,
    /// A pre-acceptance is told before its record is durable.
    AcknowledgeBeforeDurable,
    /// A fast commit is told before it is recorded, although a recovery takes the word of its leader.
    CommitBeforeDurable,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 10] = [
        Mutation::SingleBallot,
        Mutation::PublishedRecovery,
        Mutation::NoValidation,
        Mutation::ValidateAnywhere,
        Mutation::DependenciesNotMerged,
        Mutation::ExecuteUncommitted,
        Mutation::ComponentUnordered,
        Mutation::ForgetPromise,
        Mutation::AcknowledgeBeforeDurable,
        Mutation::CommitBeforeDurable,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::SingleBallot => "single-ballot",
            Mutation::PublishedRecovery => "published-recovery",
            Mutation::NoValidation => "no-validation",
            Mutation::ValidateAnywhere => "validate-anywhere",
            Mutation::DependenciesNotMerged => "dependencies-not-merged",
            Mutation::ExecuteUncommitted => "execute-uncommitted",
            Mutation::ComponentUnordered => "component-unordered",
            Mutation::ForgetPromise => "forget-promise",
            Mutation::AcknowledgeBeforeDurable => "acknowledge-before-durable",
            Mutation::CommitBeforeDurable => "commit-before-durable",
        }
    }
}
