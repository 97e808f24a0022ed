//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// Rebuilding the assignment log as published: the loop runs at least once, and a surplus slot stays.
    LoopRepeats = "loop-repeats",
    /// Whoever was voted for last counts as the old sequencer, even if its log was installed nowhere.
    OldSequencerAfterAbortedView = "old-sequencer-after-aborted-view",
    /// A slot that a sequencer named for a read is waited for in a later view as well, and a command is ready
    /// once its owner has as many slots as commands, wherever they are and whatever lies before them.
    SlotAcrossViews = "slot-across-views",
    /// Every request takes another slot, also a repeated or overtaken one.
    CountDuplicateRequest = "count-duplicate-request",
    /// A restart forgets for whom this replica has voted.
    ForgetVote = "forget-vote",
    /// A sequencer answers reads without looking at its lease.
    ReadAfterLease = "read-after-lease",
    /// At five replicas an accepted slot of anybody counts as committed.
    CommitOnAcceptance = "commit-on-acceptance",
    /// At five replicas a recovered log is acted on before a majority has installed it.
    ActBeforeActive = "act-before-active",
    /// A restarted replica gives new commands the numbers that it may have used already, and asks nobody how
    /// many slots it has.
    ReuseIndex = "reuse-index",
    /// A recoverer proposes any value that it was told of instead of that of the highest ballot.
    AdoptAny = "adopt-any",
}
