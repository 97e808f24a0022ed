//! A client around another: it says what that one says, and waits for one thing more.

use isochrone_core::{PartitionId, Process, Wrap};
use isochrone_replication::partitions::Noted;

/// What it waits for.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Timer<T> {
    /// What the client inside waits for.
    Of(T),
    /// Something is to be tried again, or to go on.
    Again,
}

/// How effects of the client inside look outside.
pub(crate) struct Around;

impl<O, I> Wrap<O, I> for Around
where
    I: Process,
    O: Process<Message = I::Message, Record = I::Record, Timer = Timer<I::Timer>, Mark = Noted<I::Mark>>,
{
    fn message(&self, message: I::Message) -> O::Message {
        message
    }

    fn record(&self, record: I::Record) -> O::Record {
        record
    }

    fn timer(&self, timer: I::Timer) -> O::Timer {
        Timer::Of(timer)
    }

    fn mark(&self, mark: I::Mark) -> O::Mark {
        Noted::Of(PartitionId(0), mark)
    }
}
