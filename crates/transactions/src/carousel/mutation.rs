//! Bugs that can be planted in Carousel (`specs/carousel.md` F18).

isochrone_core::mutations! {
    /// A fast quorum need not have the leader in it.
    LeaderNotRequired = "leader-not-required",
    /// Votes of different terms count together.
    TermIgnored = "term-ignored",
    /// Votes that have read different versions count together, and nobody compares what the client has read.
    VersionsIgnored = "versions-ignored",
    /// A repeated request is voted on again, in the new term.
    VoteAgain = "vote-again",
    /// A new leader forgets the votes that its own log has truncated: votes are lost when a leader steps down.
    VotesLost = "votes-lost",
    /// A key is free as soon as the outcome is known, before it is replicated.
    ReleaseEarly = "release-early",
    /// A client that is not heard of is aborted without replicating that first.
    AbortUnreplicated = "abort-unreplicated",
    /// A transaction commits before what it writes is replicated.
    CommitUnwritten = "commit-unwritten",
    /// Reads at a moment do not look at what is prepared.
    ReadPastPending = "read-past-pending",
    /// A new leader adopts every candidate, whatever it conflicts with.
    AdoptAll = "adopt-all",
    /// A new leader adopts no votes.
    AdoptNone = "adopt-none",
    /// The leader's votes count although the members are about to change.
    ChangeIgnored = "change-ignored",
}
