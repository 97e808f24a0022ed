//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// One vote less than a fast quorum decides.
    FastQuorumTooSmall = "fast-quorum-too-small",
    /// A replica does not look at what others have prepared.
    IgnorePrepared = "ignore-prepared",
    /// A replica does not compare what was read with what it has.
    IgnoreStaleReads = "ignore-stale-reads",
    /// A vote leaves before its record is durable, and a restart forgets what was prepared.
    ForgetPrepared = "forget-prepared",
    /// A replica releases what a transaction holds when it hears of its end, before what it wrote is there.
    ReleaseEarly = "release-early",
    /// Who ends the work of a dead client does not look for votes that may have been a fast quorum.
    PresumeAbort = "presume-abort",
    /// A replica goes on to follow the client after another has taken the transaction over.
    ForgetTakeover = "forget-takeover",
    /// A view begins without what was prepared in the last one.
    ForgetView = "forget-view",
}
