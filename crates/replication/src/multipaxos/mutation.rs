//! Deliberate bugs. They exist so that a test can show that the checks would find them.

/// One planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mutation {
    /// An acceptor votes before its record is durable.
    AcknowledgeBeforeDurable,
    /// A restart forgets what was promised.
    ForgetPromise,
    /// A repeated vote of one acceptor counts twice.
    CountDuplicateVote,
    /// A slot is executed although one before it is missing.
    ApplyGap,
    /// A read is served under a lease that has run out.
    ReadAfterLease,
    /// A snapshot leaves out the exactly-once table.
    DropSession,
    /// The leader counts its own vote at once although `Accept` goes ahead of its record.
    OwnVoteAtOnce,
    /// `Prepare` leaves before the promise behind it is durable, so that a restarted leader may use a ballot
    /// twice; it campaigns at every start without a poll, whose answers would warn it.
    PrepareAhead,
    /// A new leader serves reads before what it adopted is decided.
    ReadBeforeOwnCommit,
    /// A new leader proposes any value that it was told of instead of that of the highest ballot.
    AdoptAny,
    /// A new leader does not wait for leases that its voters granted to another.
    IgnoreLeases,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 11] = [
        Mutation::AcknowledgeBeforeDurable,
        Mutation::ForgetPromise,
        Mutation::CountDuplicateVote,
        Mutation::ApplyGap,
        Mutation::ReadAfterLease,
        Mutation::DropSession,
        Mutation::OwnVoteAtOnce,
        Mutation::PrepareAhead,
        Mutation::ReadBeforeOwnCommit,
        Mutation::AdoptAny,
        Mutation::IgnoreLeases,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::AcknowledgeBeforeDurable => "acknowledge-before-durable",
            Mutation::ForgetPromise => "forget-promise",
            Mutation::CountDuplicateVote => "count-duplicate-vote",
            Mutation::ApplyGap => "apply-gap",
            Mutation::ReadAfterLease => "read-after-lease",
            Mutation::DropSession => "drop-session",
            Mutation::OwnVoteAtOnce => "own-vote-at-once",
            Mutation::PrepareAhead => "prepare-ahead",
            Mutation::ReadBeforeOwnCommit => "read-before-own-commit",
            Mutation::AdoptAny => "adopt-any",
            Mutation::IgnoreLeases => "ignore-leases",
        }
    }
}
