//! Deliberate bugs. They exist so that a test can show that the checks would find them.

/// One planted bug; it acts only where the crate is built with the feature `mutations`.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Mutation {
    /// A replica judges lateness by its wall clock as it reads now: after a step back it votes for requests
    /// at stamps below a clock that it has announced.
    ClockNotMonotone,
    /// A restart begins with the wall clock instead of the reserve on disk, and votes for requests at stamps
    /// below a clock that its former life announced.
    ReserveNotJournalled,
    /// A client counts votes of different epochs together.
    EpochsTogether,
    /// A replica announces its clock before the votes that the announcement covers.
    ClockBeforeVote,
    /// The owner of a lane proposes at ballot 0 where it has promised a revoker not to, and others vote so.
    ProposeInSealed,
    /// Recovery asks for more votes than a value that was chosen may show, and proposes what it likes.
    HighThreshold,
    /// Votes are sent before they are durable.
    VoteBeforeDurable,
    /// A command is executed although another lane may still decide something before it.
    ExecuteEarly,
    /// A new coordinator takes any vote for a position instead of that of the highest ballot.
    AdoptAny,
    /// A snapshot leaves out the exactly-once table.
    DropSession,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 10] = [
        Mutation::ClockNotMonotone,
        Mutation::ReserveNotJournalled,
        Mutation::EpochsTogether,
        Mutation::ClockBeforeVote,
        Mutation::ProposeInSealed,
        Mutation::HighThreshold,
        Mutation::VoteBeforeDurable,
        Mutation::ExecuteEarly,
        Mutation::AdoptAny,
        Mutation::DropSession,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mutation::ClockNotMonotone => "clock-not-monotone",
            Mutation::ReserveNotJournalled => "reserve-not-journalled",
            Mutation::EpochsTogether => "epochs-together",
            Mutation::ClockBeforeVote => "clock-before-vote",
            Mutation::ProposeInSealed => "propose-in-sealed",
            Mutation::HighThreshold => "high-threshold",
            Mutation::VoteBeforeDurable => "vote-before-durable",
            Mutation::ExecuteEarly => "execute-early",
            Mutation::AdoptAny => "adopt-any",
            Mutation::DropSession => "drop-session",
        }
    }
}
