//! Deliberate bugs. They exist so that a test can show that the checks would find them.

/// One planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mutation {
    /// Rebuilding the assignment log as published: the loop runs at least once, and a surplus slot stays.
    LoopRepeats,
    /// Whoever was voted for last counts as the old sequencer, even if its log was installed nowhere.
    OldSequencerAfterAbortedView,
    /// A slot that a sequencer named for a read is waited for in a later view as well, and a command is ready
    /// once its owner has as many slots as commands, wherever they are and whatever lies before them.
    SlotAcrossViews,
    /// Every request takes another slot, also a repeated or overtaken one.
    CountDuplicateRequest,
    /// A restart forgets for whom this replica has voted.
    ForgetVote,
    /// A sequencer answers reads without looking at its lease.
    ReadAfterLease,
    /// At five replicas an accepted slot of anybody counts as committed.
    CommitOnAcceptance,
    /// At five replicas a recovered log is acted on before a majority has installed it.
    ActBeforeActive,
    /// A restarted replica gives new commands the numbers that it may have used already, and asks nobody how
    /// many slots it has.
    ReuseIndex,
    /// A recoverer proposes any value that it was told of instead of that of the highest ballot.
    AdoptAny,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 10] = [
        Mutation::LoopRepeats,
        Mutation::OldSequencerAfterAbortedView,
        Mutation::SlotAcrossViews,
        Mutation::CountDuplicateRequest,
        Mutation::ForgetVote,
        Mutation::ReadAfterLease,
        Mutation::CommitOnAcceptance,
        Mutation::ActBeforeActive,
        Mutation::ReuseIndex,
        Mutation::AdoptAny,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::LoopRepeats => "loop-repeats",
            Mutation::OldSequencerAfterAbortedView => "old-sequencer-after-aborted-view",
            Mutation::SlotAcrossViews => "slot-across-views",
            Mutation::CountDuplicateRequest => "count-duplicate-request",
            Mutation::ForgetVote => "forget-vote",
            Mutation::ReadAfterLease => "read-after-lease",
            Mutation::CommitOnAcceptance => "commit-on-acceptance",
            Mutation::ActBeforeActive => "act-before-active",
            Mutation::ReuseIndex => "reuse-index",
            Mutation::AdoptAny => "adopt-any",
        }
    }
}
