//! A plan of one block of samples, made without knowing what comes before it, and what is needed to put it behind
//! another one: where the block touches each parameter first, and what state it leaves. Specification: 3.4.

use crate::data::Dataset;
use crate::exec::prefetch::prefetch;
use crate::plan::{AHEAD, Annotations, Plan, PlanError, ReadOp, SetsError, WriteOp, replace_all};
use crate::task::{Rule, Sets, Task};
use crate::with_rows;

/// What a block leaves of a parameter that it touches.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct End {
    /// The parameter.
    pub parameter: u32,
    /// The last transaction of the block that writes it, counted in the block from 1; 0 where none does.
    pub writer: u32,
}

/// Where a block touches parameters first, and what it leaves: sparse, of the size of the block whatever the model's.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Seams {
    /// Places of the annotations that refer to what was there before the block: among the reads of a general plan, among
    /// the entries of a compact one. Ascending.
    pub reads: Vec<u32>,
    /// Places of the writes that replace what was there before the block, in a general plan; empty for a compact one.
    /// Ascending.
    pub writes: Vec<u32>,
    /// One for each parameter touched, in the order of first touches: for a compact plan, in the order of `reads`.
    pub ends: Vec<End>,
    /// For each of `ends`, planned reads of what that transaction wrote (of what was there before the block, where none
    /// writes it), in a general plan. Empty for a compact one, which leaves none.
    pub readers: Vec<u32>,
}

/// A block of samples that is planned for itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedBatch {
    /// Its plan: transactions are counted from 1 in the block, version 0 is whatever was there before it.
    pub plan: Plan,
    /// What stitching needs.
    pub seams: Seams,
}

/// A block has more entries than places can be counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the batch has {entries} reads and writes, more than the 2147483647 that one can have: cut it into smaller ones"
)]
pub struct BatchTooLong {
    /// How many entries there are.
    pub entries: u64,
}

/// Plans blocks one after the other. It keeps two numbers for each parameter between them, and clears only those
/// that a block touched: the cost of a block depends on its size, not on the model's.
#[derive(Clone, Default, Debug)]
pub struct BatchPlanner {
    last: Vec<u32>,
    /// Planned readers of the version in `last`. Above them, in the same word, whether the block touched the parameter.
    readers: Vec<u32>,
    /// Parameters that the last block touched: the next one may touch as many.
    touches: usize,
}

const TOUCHED: u32 = 1 << 31;

impl BatchPlanner {
    /// One that has planned nothing yet.
    pub fn new() -> BatchPlanner {
        BatchPlanner::default()
    }

    /// Plans a block in the form that is smallest for the task's rule.
    ///
    /// # Errors
    /// If the block has more entries than places are counted, or the task tells sets that none may have. The planner is as before
    /// then.
    pub fn plan<T: Task>(&mut self, task: &T, data: &Dataset<'_>) -> Result<PlannedBatch, PlanError> {
        match task.rule() {
            Rule::Features => Ok(self.compact(data)?),
            Rule::Own(_) => self.general(task, data),
        }
    }

    /// Plans a block in the compact form, under [`Rule::Features`].
    ///
    /// # Errors
    /// If the block has more entries than places are counted.
    pub fn compact(&mut self, data: &Dataset<'_>) -> Result<PlannedBatch, BatchTooLong> {
        check_length(data.entries() as u64)?;
        self.grow(data.width());
        self.touches = self.touches.min(data.entries());
        let mut versions = Vec::with_capacity(data.entries());
        let mut seams = Seams {
            reads: Vec::with_capacity(self.touches),
            writes: Vec::new(),
            ends: Vec::with_capacity(self.touches),
            readers: Vec::new(),
        };
        for row in 0..data.len() {
            let transaction = row as u32 + 1;
            replace_all(&mut self.last, transaction, data.range(row), data.features(), |entry, version| {
                if version == 0 {
                    seams.reads.push(entry as u32);
                    seams.ends.push(End { parameter: data.features()[entry], writer: 0 });
                }
                versions.push(version);
            });
        }
        for at in 0..seams.ends.len() {
            if let Some(ahead) = seams.ends.get(at + AHEAD) {
                prefetch(&self.last[ahead.parameter as usize]);
            }
            let end = &mut seams.ends[at];
            end.writer = std::mem::take(&mut self.last[end.parameter as usize]);
        }
        self.touches = seams.ends.len();
        let annotations = Annotations::Compact(versions);
        let plan = Plan::of_data(data, data.width(), Rule::Features, annotations);
        Ok(PlannedBatch { plan, seams })
    }

    /// Plans a block in the general form, for any rule.
    ///
    /// # Errors
    /// As [`BatchPlanner::plan`].
    pub fn general<T: Task>(&mut self, task: &T, data: &Dataset<'_>) -> Result<PlannedBatch, PlanError> {
        let parameters = task.parameters(data.width());
        self.grow(parameters);
        let (mut reads_at, mut writes_at) = (vec![0], vec![0]);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let (mut seams, mut sets) = (Seams::default(), Sets::default());
        let planned = with_rows!(data, rows => (0..data.len()).try_for_each(|row| {
            super::sets_of(task, &rows.sample(row), &mut sets);
            let mut touched = sets.reads.iter().chain(&sets.writes).copied();
            if let Some(parameter) = touched.find(|&parameter| parameter >= parameters) {
                return Err(SetsError::Beyond { row, parameter, parameters });
            }
            for &parameter in &sets.reads {
                let version = self.touch(parameter, &mut seams.ends);
                if version == 0 {
                    seams.reads.push(reads.len() as u32);
                }
                self.readers[parameter as usize] += 1;
                reads.push(ReadOp { parameter, version });
            }
            for &parameter in &sets.writes {
                let writer = self.touch(parameter, &mut seams.ends);
                if writer == row as u32 + 1 {
                    return Err(SetsError::Twice { row, parameter });
                }
                if writer == 0 {
                    seams.writes.push(writes.len() as u32);
                }
                self.last[parameter as usize] = row as u32 + 1;
                let readers = std::mem::replace(&mut self.readers[parameter as usize], TOUCHED) & !TOUCHED;
                writes.push(WriteOp { parameter, writer, readers });
            }
            reads_at.push(reads.len() as u64);
            writes_at.push(writes.len() as u64);
            Ok(())
        }));
        for end in &mut seams.ends {
            end.writer = std::mem::take(&mut self.last[end.parameter as usize]);
            seams.readers.push(std::mem::take(&mut self.readers[end.parameter as usize]) & !TOUCHED);
        }
        planned?;
        check_length(reads.len().max(writes.len()) as u64)?;
        let annotations = Annotations::General { reads_at, reads, writes_at, writes };
        let plan = Plan::of_data(data, parameters, task.rule(), annotations);
        Ok(PlannedBatch { plan, seams })
    }

    /// The transaction that last wrote this parameter; notes the parameter where the block had not touched it.
    fn touch(&mut self, parameter: u32, ends: &mut Vec<End>) -> u32 {
        let readers = &mut self.readers[parameter as usize];
        if *readers & TOUCHED == 0 {
            *readers |= TOUCHED;
            ends.push(End { parameter, writer: 0 });
        }
        self.last[parameter as usize]
    }

    fn grow(&mut self, parameters: u32) {
        if self.last.len() < parameters as usize {
            self.last.resize(parameters as usize, 0);
            self.readers.resize(parameters as usize, 0);
        }
    }
}

fn check_length(entries: u64) -> Result<(), BatchTooLong> {
    // Also keeps the readers of a version below the bit beside their count.
    if entries > u64::from(TOUCHED - 1) { Err(BatchTooLong { entries }) } else { Ok(()) }
}
