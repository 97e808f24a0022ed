//! Where a transaction finds its annotations: plans of both forms, with or without counted readers.

use super::cycle::Cycle;
use super::transaction::{Ops, Read, Write};
use crate::data::{Rows, Value};
use crate::plan::{Annotations, ReadOp, WriteOp};
use std::ops::Range;

/// Where the annotations of a transaction lie.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its reads among those of the plan.
    pub(crate) reads: Range<usize>,
    /// Its writes among those of the plan.
    pub(crate) writes: Range<usize>,
}

/// A plan that can be executed.
pub(crate) trait Source: Sync {
    /// Annotations of one transaction.
    type Ops<'o>: Ops
    where
        Self: 'o;

    /// Where those of the transaction at this position, of this row, lie.
    fn place<V: Value>(&self, rows: &Rows<'_, V>, position: u32, row: usize) -> Place;

    /// Those at a place, for a sample of these features, in a lap of this base.
    fn ops<'o>(&'o self, place: &Place, features: &'o [u32], base: u32) -> Self::Ops<'o>;

    /// Whether a transaction writes what it does not read.
    fn writes_differ(&self) -> bool;
}

/// A compact plan, with or without counted readers.
pub(crate) struct CompactSource<'a> {
    pub(crate) versions: &'a [u32],
    pub(crate) elide: bool,
    /// What version 0 means, where laps follow one another.
    pub(crate) cycle: Option<&'a Cycle>,
}

/// Of a compact plan.
pub(crate) struct CompactOps<'a> {
    features: &'a [u32],
    versions: &'a [u32],
    base: u32,
    elide: bool,
    cycle: Option<&'a Cycle>,
}

impl Source for CompactSource<'_> {
    type Ops<'o>
        = CompactOps<'o>
    where
        Self: 'o;

    #[inline(always)]
    fn place<V: Value>(&self, rows: &Rows<'_, V>, _: u32, row: usize) -> Place {
        Place { reads: rows.range(row), writes: rows.range(row) }
    }

    #[inline(always)]
    fn ops<'o>(&'o self, place: &Place, features: &'o [u32], base: u32) -> CompactOps<'o> {
        let CompactSource { versions, elide, cycle } = *self;
        CompactOps { features, versions: &versions[place.reads.clone()], base, elide, cycle }
    }

    fn writes_differ(&self) -> bool {
        false
    }
}

/// A version as it is in a lap, where there are laps.
#[inline(always)]
pub(crate) fn within(cycle: Option<&Cycle>, version: u32, parameter: u32) -> u32 {
    match cycle {
        Some(cycle) if version == 0 => cycle.before(parameter),
        _ => version,
    }
}

impl Ops for CompactOps<'_> {
    #[inline(always)]
    fn reads(&self) -> impl ExactSizeIterator<Item = Read> {
        self.features.iter().zip(self.versions).map(|(&parameter, &version)| Read {
            parameter,
            version: Some(self.base.wrapping_add(within(self.cycle, version, parameter))),
            counted: !self.elide,
        })
    }

    #[inline(always)]
    fn writes(&self) -> impl ExactSizeIterator<Item = Write> {
        self.features.iter().zip(self.versions).map(|(&parameter, &version)| Write {
            parameter,
            writer: self.base.wrapping_add(within(self.cycle, version, parameter)),
            readers: if self.elide { None } else { Some(1) },
        })
    }
}

/// A general plan.
pub(crate) struct GeneralSource<'a> {
    pub(crate) reads_at: &'a [u64],
    pub(crate) reads: &'a [ReadOp],
    pub(crate) writes_at: &'a [u64],
    pub(crate) writes: &'a [WriteOp],
    /// Which reads and writes need no counter.
    pub(crate) alone: Option<&'a Alone>,
    /// What version 0 means, where laps follow one another; reads of [`NEVER`] are of parameters that nobody writes.
    pub(crate) cycle: Option<&'a Cycle>,
}

/// In the plan of a cycle, the version of a parameter that nobody writes: no difference of two transactions of neighbouring
/// laps is as large.
pub(crate) const NEVER: u32 = 1 << 31;

impl<'a> GeneralSource<'a> {
    /// The source for these annotations; `None` if they are compact.
    pub(crate) fn of(
        annotations: &'a Annotations,
        alone: Option<&'a Alone>,
        cycle: Option<&'a Cycle>,
    ) -> Option<GeneralSource<'a>> {
        match annotations {
            Annotations::Compact(_) => None,
            Annotations::General { reads_at, reads, writes_at, writes } => {
                Some(GeneralSource { reads_at, reads, writes_at, writes, alone, cycle })
            }
        }
    }
}

/// Of a general plan.
pub(crate) struct GeneralOps<'a> {
    reads: &'a [ReadOp],
    writes: &'a [WriteOp],
    first_read: usize,
    first_write: usize,
    base: u32,
    alone: Option<&'a Alone>,
    cycle: Option<&'a Cycle>,
}

impl Source for GeneralSource<'_> {
    type Ops<'o>
        = GeneralOps<'o>
    where
        Self: 'o;

    #[inline(always)]
    fn place<V: Value>(&self, _: &Rows<'_, V>, position: u32, _: usize) -> Place {
        let at = position as usize;
        Place {
            reads: self.reads_at[at] as usize..self.reads_at[at + 1] as usize,
            writes: self.writes_at[at] as usize..self.writes_at[at + 1] as usize,
        }
    }

    #[inline(always)]
    fn ops<'o>(&'o self, place: &Place, _: &'o [u32], base: u32) -> GeneralOps<'o> {
        GeneralOps {
            reads: &self.reads[place.reads.clone()],
            writes: &self.writes[place.writes.clone()],
            first_read: place.reads.start,
            first_write: place.writes.start,
            base,
            alone: self.alone,
            cycle: self.cycle,
        }
    }

    fn writes_differ(&self) -> bool {
        true
    }
}

impl Ops for GeneralOps<'_> {
    #[inline(always)]
    fn reads(&self) -> impl ExactSizeIterator<Item = Read> {
        self.reads.iter().enumerate().map(|(at, op)| Read {
            parameter: op.parameter,
            version: match within(self.cycle, op.version, op.parameter) {
                NEVER if self.cycle.is_some() => None,
                version => Some(self.base.wrapping_add(version)),
            },
            counted: !self.alone.is_some_and(|alone| alone.reads.has(self.first_read + at)),
        })
    }

    #[inline(always)]
    fn writes(&self) -> impl ExactSizeIterator<Item = Write> {
        self.writes.iter().enumerate().map(|(at, op)| Write {
            parameter: op.parameter,
            writer: self.base.wrapping_add(within(self.cycle, op.writer, op.parameter)),
            readers: if self.alone.is_some_and(|alone| alone.writes.has(self.first_write + at)) {
                None
            } else {
                Some(readers(self.cycle, op))
            },
        })
    }
}

/// How many read what a write replaces, those of the lap before among them.
#[inline(always)]
fn readers(cycle: Option<&Cycle>, op: &WriteOp) -> u32 {
    match cycle {
        Some(cycle) if op.writer == 0 => op.readers + cycle.read_before(op.parameter),
        _ => op.readers,
    }
}

/// The reads that only their own transaction waits for, and the writes that wait for no other: a bit each, one in 32 of
/// what the plan takes (self-reader elision, specs/cop.md 4.1).
#[derive(Default, Debug)]
pub(crate) struct Alone {
    reads: Bits,
    writes: Bits,
}

impl Alone {
    /// Of annotations as they are executed: after stitching, or in a cycle, since a first writer may get readers of earlier
    /// batches and laps.
    pub(crate) fn of(annotations: &Annotations, parameters: u32, cycle: Option<&Cycle>) -> Alone {
        let Annotations::General { reads_at, reads, writes_at, writes } = annotations else {
            return Alone::default();
        };
        let mut alone = Alone { reads: Bits::of(reads.len()), writes: Bits::of(writes.len()) };
        // The last read of each parameter so far, counted from 1.
        let mut last = vec![0_u64; parameters as usize];
        for (read, write) in reads_at.windows(2).zip(writes_at.windows(2)) {
            for at in read[0]..read[1] {
                last[reads[at as usize].parameter as usize] = at + 1;
            }
            for at in write[0]..write[1] {
                let op = &writes[at as usize];
                let own = last[op.parameter as usize];
                if readers(cycle, op) == 1 && own > read[0] {
                    alone.reads.set(own as usize - 1);
                    alone.writes.set(at as usize);
                }
            }
        }
        alone
    }
}

#[derive(Default, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn of(length: usize) -> Bits {
        Bits(vec![0; length.div_ceil(64)])
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    #[inline(always)]
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }
}
