//! Deliberate bugs. They exist so that a test can show that the checks would find them.

/// One planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mutation {
    /// Fast votes of different reigns are counted together.
    CountReignsTogether,
    /// One vote more than needed must be equal before a recovery feels obliged.
    ThresholdOffByOne,
    /// A vote leaves before its record is durable, so that votes of replicas that have forgotten them add up
    /// (stray votes).
    VoteBeforeDurable,
    /// A restart forgets what was promised.
    ForgetPromise,
    /// A command that is asked for again gets a new name, so nothing tells it from its first copy.
    RetryUnderNewName,
    /// A coordinator goes on in its reign after a restart.
    ReignOn,
    /// One vote less than a fast quorum decides.
    FastQuorumTooSmall,
    /// A new coordinator lets fast votes begin at what it knows to be decided, not behind all votes.
    OpenTooLow,
    /// A new coordinator takes any value that was voted for, not that of the highest ballot.
    AdoptAny,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 9] = [
        Mutation::CountReignsTogether,
        Mutation::ThresholdOffByOne,
        Mutation::VoteBeforeDurable,
        Mutation::ForgetPromise,
        Mutation::RetryUnderNewName,
        Mutation::ReignOn,
        Mutation::FastQuorumTooSmall,
        Mutation::OpenTooLow,
        Mutation::AdoptAny,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::CountReignsTogether => "count-reigns-together",
            Mutation::ThresholdOffByOne => "threshold-off-by-one",
            Mutation::VoteBeforeDurable => "vote-before-durable",
            Mutation::ForgetPromise => "forget-promise",
            Mutation::RetryUnderNewName => "retry-under-new-name",
            Mutation::ReignOn => "reign-on",
            Mutation::FastQuorumTooSmall => "fast-quorum-too-small",
            Mutation::OpenTooLow => "open-too-low",
            Mutation::AdoptAny => "adopt-any",
        }
    }
}
