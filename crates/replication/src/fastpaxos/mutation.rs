//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// Fast votes of different reigns are counted together.
    CountReignsTogether = "count-reigns-together",
    /// One vote more than needed must be equal before a recovery feels obliged.
    ThresholdOffByOne = "threshold-off-by-one",
    /// A vote leaves before its record is durable, so that votes of replicas that have forgotten them add up
    /// (stray votes).
    VoteBeforeDurable = "vote-before-durable",
    /// A restart forgets what was promised.
    ForgetPromise = "forget-promise",
    /// A command that is asked for again gets a new name, so nothing tells it from its first copy.
    RetryUnderNewName = "retry-under-new-name",
    /// A coordinator goes on in its reign after a restart.
    ReignOn = "reign-on",
    /// One vote less than a fast quorum decides.
    FastQuorumTooSmall = "fast-quorum-too-small",
    /// A new coordinator lets fast votes begin at what it knows to be decided, not behind all votes.
    OpenTooLow = "open-too-low",
    /// A new coordinator takes any value that was voted for, not that of the highest ballot.
    AdoptAny = "adopt-any",
}
