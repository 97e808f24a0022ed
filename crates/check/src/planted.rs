//! Errors planted in the checker on purpose, to see that its own tests find them (`trust.md` R21).
//!
//! Outside this crate's unit tests [`planted`] is the constant `false`, and every branch on it disappears.

/// One wrong way to write the checker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) enum Mutation {
    /// Any operation may come next, whatever had returned before it was invoked.
    RealTimeIgnored,
    /// An operation invoked in the nanosecond in which another returned is ordered behind it.
    TiesOrdered,
    /// Every unknown operation must take effect.
    UnknownMustHappen,
    /// No unknown operation takes effect.
    UnknownNeverHappens,
    /// An unknown operation may take effect before it was invoked.
    UnknownBeforeInvocation,
    /// A failed operation may take effect.
    FailedMayHappen,
    /// Only one unknown operation may take effect between two known ones.
    UnknownChainCut,
    /// The memory of visited configurations compares no states.
    MemoIgnoresState,
    /// The memory of visited configurations compares no pending operations.
    MemoIgnoresPending,
    /// The memory of visited configurations does not compare which unknown operations took effect.
    MemoIgnoresApplied,
    /// Writes are taken as eagerly as reads.
    WritesTakenEagerly,
    /// The search does not go back.
    NoBacktracking,
    /// The search goes back but leaves eagerly taken reads taken.
    ReadsNotGivenBack,
    /// All unknown operations count as alike.
    UnknownAllAlike,
    /// A text that is still to be read is lost though it may be copied back.
    LostThoughCopied,
    /// A text that is still to be read is lost though it may be written again.
    LostThoughWritten,
    /// An unknown operation is passed over if the next one was legal without it, whatever it led to.
    UnknownPassedOver,
    /// An unknown write is left out although its value was read.
    IdleThoughSeen,
    /// Only an operation's first key joins it to a component.
    FirstKeyOnly,
    /// Only the first component is checked.
    FirstComponentOnly,
    /// A budget that ends counts as linearizable.
    UndecidedAccepted,
    /// Looking ahead, unknown pops are not counted.
    OutlookForgetsPops,
    /// Looking ahead, unknown pushes are not counted.
    OutlookForgetsPushes,
    /// A value may be read before it was written.
    ReadBeforeItsWrite,
    /// That one write had returned before another was invoked says nothing of the order of versions.
    TimeOrdersNoVersions,
    /// Two values may each be read after the other.
    ZonesOverlap,
    /// A value may be written between two reads of another.
    ZoneWithinZone,
    /// An answer that was not recorded is held to be nil.
    UnrecordedIsNil,
    /// An absent key may be read as anything.
    AbsentReadsAnything,
    /// INCRBY adds one, whatever its argument.
    IncrementByOne,
    /// APPEND overwrites.
    AppendReplaces,
    /// CAS writes without comparing.
    CasIgnoresExpected,
    /// DEL counts keys that were not there.
    DeleteCountsAbsent,
    /// SET NX writes over an existing key.
    NxOverwrites,
    /// SET XX creates a key.
    XxCreates,
    /// A key still lives at the stamp of its deadline.
    DeadlineInclusive,
    /// No operation deletes what has expired for it.
    ExpiredKept,
    /// SET keeps the old deadline.
    SetKeepsDeadline,
    /// LPOP takes from the tail.
    PopFromTail,
    /// A transfer takes and does not give.
    TransferLosesMoney,
    /// A wrong type is treated as an absent key.
    WrongTypeAccepted,
    /// A violation is explained by a subset in which acknowledged writes were left out.
    ShrinkDropsWrites,
    /// A token found twice passes.
    DuplicateAccepted,
    /// An acknowledged token that is missing passes.
    LossAccepted,
    /// A failed token that is found passes.
    FailedTokenAccepted,
    /// A session's operations may take effect in any order.
    SessionOrderIgnored,
    /// A session may miss its own writes.
    OwnWriteMissed,
    /// What an aborted transaction wrote may be read.
    AbortedReadAccepted,
    /// What a transaction overwrites itself may be read by others.
    IntermediateReadAccepted,
    /// A transaction may miss what it wrote itself.
    OwnWritesForgotten,
    /// Two reads of a list may disagree.
    ListsMayDisagree,
    /// A transaction of unknown outcome has no effect, though it was seen.
    SeenUnknownIgnored,
    /// Appends that nobody read stand nowhere.
    UnseenAppendsIgnored,
    /// Where the store says that an append stands says nothing.
    AppendNumbersIgnored,
    /// That a transaction read what it overwrote says nothing about order.
    UpdatesUnordered,
    /// Who read what was overwritten may come behind the overwriting.
    AntiDependenciesIgnored,
    /// Who read what another wrote may come before it.
    ReadsIgnored,
    /// A transaction may come before one that had ended when it began.
    TimeIgnored,
    /// A transaction that began in the nanosecond in which another ended comes behind it.
    MeetingOrdered,
    /// What a predicate covers and did not find says nothing.
    ScansIgnored,
    /// What is absent was never written.
    DeletionsForgotten,
    /// A transaction of unknown outcome has deleted nothing, though something is missing.
    DoubtfulForgotten,
    /// A serial order need not explain what was found absent.
    AbsencesNotReplayed,
    /// What is absent and may be several versions is left at that.
    AbsencesNotNarrowed,
    /// Where no circle is found, there is an order.
    OrderNotTried,
}

/// Whether `mutation` is planted in this thread.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn planted(_mutation: Mutation) -> bool {
    false
}

#[cfg(test)]
pub(crate) use under_test::{planted, with};

#[cfg(test)]
mod under_test {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static PLANTED: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    pub(crate) fn planted(mutation: Mutation) -> bool {
        PLANTED.get() == Some(mutation)
    }

    /// Runs `body` with `mutation` planted in this thread.
    pub(crate) fn with<T>(mutation: Mutation, body: impl FnOnce() -> T) -> T {
        PLANTED.set(Some(mutation));
        let result = body();
        PLANTED.set(None);
        result
    }

    impl Mutation {
        /// Every mutation there is; one left out is reported as dead code.
        pub(crate) const ALL: &[Mutation] = {
            use Mutation::*;
            &[
                RealTimeIgnored,
                TiesOrdered,
                UnknownMustHappen,
                UnknownNeverHappens,
                UnknownBeforeInvocation,
                FailedMayHappen,
                UnknownChainCut,
                MemoIgnoresState,
                MemoIgnoresPending,
                MemoIgnoresApplied,
                WritesTakenEagerly,
                NoBacktracking,
                ReadsNotGivenBack,
                UnknownAllAlike,
                LostThoughCopied,
                LostThoughWritten,
                UnknownPassedOver,
                IdleThoughSeen,
                FirstKeyOnly,
                FirstComponentOnly,
                UndecidedAccepted,
                OutlookForgetsPops,
                OutlookForgetsPushes,
                ReadBeforeItsWrite,
                TimeOrdersNoVersions,
                ZonesOverlap,
                ZoneWithinZone,
                UnrecordedIsNil,
                AbsentReadsAnything,
                IncrementByOne,
                AppendReplaces,
                CasIgnoresExpected,
                DeleteCountsAbsent,
                NxOverwrites,
                XxCreates,
                DeadlineInclusive,
                ExpiredKept,
                SetKeepsDeadline,
                PopFromTail,
                TransferLosesMoney,
                WrongTypeAccepted,
                ShrinkDropsWrites,
                DuplicateAccepted,
                LossAccepted,
                FailedTokenAccepted,
                SessionOrderIgnored,
                OwnWriteMissed,
                AbortedReadAccepted,
                IntermediateReadAccepted,
                OwnWritesForgotten,
                ListsMayDisagree,
                SeenUnknownIgnored,
                UnseenAppendsIgnored,
                AppendNumbersIgnored,
                UpdatesUnordered,
                AntiDependenciesIgnored,
                ReadsIgnored,
                TimeIgnored,
                MeetingOrdered,
                ScansIgnored,
                DeletionsForgotten,
                DoubtfulForgotten,
                AbsencesNotReplayed,
                AbsencesNotNarrowed,
                OrderNotTried,
            ]
        };
    }
}
