//! Deliberate bugs. They exist so that a test can show that the checks would find them.

/// One planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mutation {
    /// An acceptor votes before its record is durable.
    AcknowledgeBeforeDurable,
    /// A restart forgets what was promised and voted for higher ballots.
    ForgetPromise,
    /// A repeated vote of one acceptor counts twice.
    CountDuplicateVote,
    /// A snapshot leaves out the exactly-once table.
    DropSession,
    /// A revoker proposes a no-op whatever the promises tell.
    RevokeBlindly,
    /// A revoker takes its no-ops for decided with the promises, without an accept round.
    RevokeWithoutAccept,
    /// After a restart the owner goes on with the turn behind the last one in its journal, although it may
    /// have used later ones.
    ReuseTurns,
    /// The owner takes a lower turn than one that it has skipped.
    SuggestSkipped,
    /// An owner calls turns decided as it suggested them although a revoker has emptied one of them.
    ClaimRevoked,
    /// A command is answered early although what stands in an earlier slot is not known.
    AnswerBeforeKnown,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 10] = [
        Mutation::AcknowledgeBeforeDurable,
        Mutation::ForgetPromise,
        Mutation::CountDuplicateVote,
        Mutation::DropSession,
        Mutation::RevokeBlindly,
        Mutation::RevokeWithoutAccept,
        Mutation::ReuseTurns,
        Mutation::SuggestSkipped,
        Mutation::ClaimRevoked,
        Mutation::AnswerBeforeKnown,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::AcknowledgeBeforeDurable => "acknowledge-before-durable",
            Mutation::ForgetPromise => "forget-promise",
            Mutation::CountDuplicateVote => "count-duplicate-vote",
            Mutation::DropSession => "drop-session",
            Mutation::RevokeBlindly => "revoke-blindly",
            Mutation::RevokeWithoutAccept => "revoke-without-accept",
            Mutation::ReuseTurns => "reuse-turns",
            Mutation::SuggestSkipped => "suggest-skipped",
            Mutation::ClaimRevoked => "claim-revoked",
            Mutation::AnswerBeforeKnown => "answer-before-known",
        }
    }
}
