//! A planned transaction, step by step (specs/cop.md 4.1), over any cells and any form of plan. Where each transaction writes
//! just what it reads there is a shorter way ([`super::ordered`]).

use super::cells::Planned;
use super::pool::Halt;

/// A read, ready for execution.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) parameter: u32,
    /// The version to see; `None` where nobody ever writes the parameter.
    pub(crate) version: Option<u32>,
    /// Whether a writer waits for it. Not where the only one is this transaction (self-reader elision).
    pub(crate) counted: bool,
}

/// A write, ready for execution.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    pub(crate) parameter: u32,
    /// The version to replace.
    pub(crate) writer: u32,
    /// Counted reads of that version to wait for; `None` where they are not counted.
    pub(crate) readers: Option<u32>,
}

/// The annotations of one transaction.
pub(crate) trait Ops {
    /// In the order in which values are handed to the task.
    fn reads(&self) -> impl ExactSizeIterator<Item = Read>;
    /// In the order in which the task hands values back.
    fn writes(&self) -> impl ExactSizeIterator<Item = Write>;
}

/// What is waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The version that a read must see.
    Read,
    /// The version that a write replaces.
    Writer,
    /// The readers of the version that a write replaces.
    Readers,
}

/// How to wait.
pub(crate) trait Waiting {
    /// Polls until `observe` gives `expected`.
    fn until(
        &mut self,
        awaited: Awaited,
        parameter: u32,
        expected: u32,
        observe: impl FnMut() -> u32,
    ) -> Result<(), Halt>;
}

/// Mistakes planted by the tests that show that they would be noticed; none by default.
pub(crate) trait Planted {
    /// The count of readers is tested before the version.
    const READERS_FIRST: bool = false;
    /// A reader is counted before it has taken the value.
    const COUNTED_EARLY: bool = false;
    /// The count goes on from version to version.
    const NO_RESTART: bool = false;
    /// The version is published before its value.
    const PUBLISHED_EARLY: bool = false;
    /// A write that changes nothing is left out.
    const UNCHANGED_SKIPPED: bool = false;
}

/// No mistakes.
pub(crate) struct Sound;

impl Planted for Sound {}

/// Carries out a transaction: `compute` makes the values written from those read; both have `width` numbers a parameter.
#[inline(always)]
pub(crate) fn transact<C: Planned, O: Ops, W: Waiting, P: Planted>(
    cells: &C,
    ops: &O,
    version: u32,
    waiting: &mut W,
    read: &mut [f64],
    write: &mut [f64],
    compute: impl FnOnce(&[f64], &mut [f64]),
) -> Result<(), Halt> {
    for (at, op) in ops.reads().enumerate() {
        let parameter = op.parameter;
        if let Some(expected) = op.version {
            waiting.until(Awaited::Read, parameter, expected, || cells.version(parameter))?;
        }
        if P::COUNTED_EARLY && op.counted {
            cells.count(parameter);
        }
        // Version first, then value; and only then the count, after which the value may be overwritten.
        cells.read(parameter, read, at);
        if !P::COUNTED_EARLY && op.counted {
            cells.count(parameter);
        }
    }
    compute(read, write);
    for op in ops.writes() {
        let Write { parameter, writer, readers } = op;
        if let (true, Some(readers)) = (P::READERS_FIRST, readers) {
            waiting.until(Awaited::Readers, parameter, readers, || cells.readers(parameter))?;
        }
        // The version first, and only then its readers: the count of an older version may happen to be the same. Once the
        // version is the one to replace, it cannot change before this transaction writes.
        waiting.until(Awaited::Writer, parameter, writer, || cells.version(parameter))?;
        if let Some(readers) = readers {
            if !P::READERS_FIRST {
                waiting.until(Awaited::Readers, parameter, readers, || cells.readers(parameter))?;
            }
            if !P::NO_RESTART {
                cells.restart(parameter);
            }
        }
    }
    for (at, op) in ops.writes().enumerate() {
        if P::UNCHANGED_SKIPPED && cells.unchanged(op.parameter, write, at) {
            continue;
        }
        if P::PUBLISHED_EARLY {
            cells.publish(op.parameter, version);
        }
        // Also where the value has not changed: successors wait for the version.
        cells.write(op.parameter, write, at);
        if !P::PUBLISHED_EARLY {
            cells.publish(op.parameter, version);
        }
    }
    Ok(())
}
