//! Deliberate bugs. They exist so that a test can show that the checks would find them.

use isochrone_core::mutations;

mutations! {
    /// A replica judges lateness by its wall clock as it reads now: after a step back it votes for requests
    /// at stamps below a clock that it has announced.
    ClockNotMonotone = "clock-not-monotone",
    /// A restart begins with the wall clock instead of the reserve on disk, and votes for requests at stamps
    /// below a clock that its former life announced.
    ReserveNotJournalled = "reserve-not-journalled",
    /// A client counts votes of different epochs together.
    EpochsTogether = "epochs-together",
    /// A replica announces its clock before the votes that the announcement covers.
    ClockBeforeVote = "clock-before-vote",
    /// The owner of a lane proposes at ballot 0 where it has promised a revoker not to, and others vote so.
    ProposeInSealed = "propose-in-sealed",
    /// Recovery asks for more votes than a value that was chosen may show, and proposes what it likes.
    HighThreshold = "high-threshold",
    /// Votes are sent before they are durable.
    VoteBeforeDurable = "vote-before-durable",
    /// A command is executed although another lane may still decide something before it.
    ExecuteEarly = "execute-early",
    /// A new coordinator takes any vote for a position instead of that of the highest ballot.
    AdoptAny = "adopt-any",
    /// A coordinator recovers a position for which its ballot has another proposal on its way.
    ProposeTwice = "propose-twice",
    /// A snapshot leaves out the exactly-once table.
    DropSession = "drop-session",
}
