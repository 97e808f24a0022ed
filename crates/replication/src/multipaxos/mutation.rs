//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// An acceptor votes before its record is durable.
    AcknowledgeBeforeDurable = "acknowledge-before-durable",
    /// A restart forgets what was promised.
    ForgetPromise = "forget-promise",
    /// A repeated vote of one acceptor counts twice.
    CountDuplicateVote = "count-duplicate-vote",
    /// A slot is executed although one before it is missing.
    ApplyGap = "apply-gap",
    /// A read is served under a lease that has run out.
    ReadAfterLease = "read-after-lease",
    /// A snapshot leaves out the exactly-once table.
    DropSession = "drop-session",
    /// The leader counts its own vote at once although `Accept` goes ahead of its record.
    OwnVoteAtOnce = "own-vote-at-once",
    /// `Prepare` leaves before the promise behind it is durable, so that a restarted leader may use a ballot
    /// twice; it campaigns at every start without a poll, whose answers would warn it.
    PrepareAhead = "prepare-ahead",
    /// A new leader serves reads before what it adopted is decided.
    ReadBeforeOwnCommit = "read-before-own-commit",
    /// A new leader proposes any value that it was told of instead of that of the highest ballot.
    AdoptAny = "adopt-any",
    /// A new leader does not wait for leases that its voters granted to another.
    IgnoreLeases = "ignore-leases",
}
