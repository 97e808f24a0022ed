//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// An acceptor votes before its record is durable.
    AcknowledgeBeforeDurable = "acknowledge-before-durable",
    /// A restart forgets what was promised and voted for higher ballots.
    ForgetPromise = "forget-promise",
    /// A repeated vote of one acceptor counts twice.
    CountDuplicateVote = "count-duplicate-vote",
    /// A snapshot leaves out the exactly-once table.
    DropSession = "drop-session",
    /// A revoker proposes a no-op whatever the promises tell.
    RevokeBlindly = "revoke-blindly",
    /// A revoker takes its no-ops for decided with the promises, without an accept round.
    RevokeWithoutAccept = "revoke-without-accept",
    /// After a restart the owner goes on with the turn behind the last one in its journal, although it may
    /// have used later ones.
    ReuseTurns = "reuse-turns",
    /// The owner takes a lower turn than one that it has skipped.
    SuggestSkipped = "suggest-skipped",
    /// An owner calls turns decided as it suggested them although a revoker has emptied one of them.
    ClaimRevoked = "claim-revoked",
    /// A command is answered early although what stands in an earlier slot is not known.
    AnswerBeforeKnown = "answer-before-known",
}
