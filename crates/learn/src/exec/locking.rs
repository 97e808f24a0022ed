//! A lock for each parameter: all locks of a transaction are taken in ascending order of parameters, and released together.
//! Specification: `specs/cop.md` 6.3. With a [`FirstEpoch`], the order found is written down as a plan (3.3).

use super::TrainError;
use super::cells::Words;
use super::first::FirstEpoch;
use super::pool::{Halt, WorkerReport};
use super::run::{Executor, Run, Turn, Worker, room};
use crate::data::Value;
use crate::task::{Sets, Task};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The word of a parameter that is locked. One that is free tells the last transaction that held it, where that is asked for,
/// else 0.
const LOCKED: u32 = 1 << 31;

/// Samples that a plan can be made of while they run: their numbers stand in the words of free locks.
pub(crate) const MOST: u32 = LOCKED - 1;

/// Over cells whose word is a lock.
pub(crate) struct Locking<'a, C> {
    pub(crate) cells: &'a C,
    /// Whether each transaction is to get its place among the commits, while it holds all its locks. That place, and not the
    /// one in the data, then decides its step and intercept, so that a serial run in the order of commits gives the same.
    pub(crate) record: bool,
    pub(crate) first: Option<&'a FirstEpoch>,
}

impl<T: Task, V: Value, C: Words> Executor<T, V> for Locking<'_, C> {
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Halt> {
        let sets = worker.take_sets(turn);
        let Worker { read, write, weights, lag, report, locks, versions, commits, planned, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let (reads, writes) = run.sets(&sample, &sets);
        let mut position = turn.position;
        let mut intercept = 0.0;
        if !self.record {
            // Before any lock is held: nobody waits for somebody who waits here.
            intercept = run.intercept(turn.lap.place + u64::from(position), lag, report, None)?;
        }
        let locks = ascending(reads, writes, locks);
        let holders = room(versions, if self.first.is_some() { locks.len() } else { 0 });
        for (at, &parameter) in locks.iter().enumerate() {
            let holder = match self.try_lock(parameter) {
                Some(holder) => holder,
                None => self.lock(run, turn, parameter, report)?,
            };
            if let Some(last) = holders.get_mut(at) {
                *last = holder;
            }
        }
        if self.record {
            let number = turn.lap.sequence.0.fetch_add(1, Relaxed);
            position = number as u32;
            commits.push((number, turn.row as u32));
            // Every transaction before this one holds all its locks too, and so needs nothing of this one.
            intercept = run.intercept(turn.lap.place + number, lag, report, None)?;
        }
        let mut number = 0;
        if let Some(first) = self.first {
            number = position + 1;
            first.plan(number, run.rows.range(turn.row), (reads, writes), (locks, holders), planned);
        }
        let read = room(read, reads.len() * run.width);
        let weights = run.gather(self.cells, reads, read, weights);
        let write = room(write, writes.len() * run.width);
        let step = run.step(turn.lap, position, intercept, weights);
        run.compute(&sample, &step, turn.lap.place + u64::from(position), lag, (read, write));
        if self.record {
            // Now, and not with its next sample: for that one it may wait for locks of a thread that waits for this.
            run.intercept.iter().for_each(|intercept| intercept.tell(lag));
        }
        self.cells.scatter(writes, write);
        for &parameter in locks {
            self.cells.word(parameter).store(number, Release);
        }
        worker.put_back(turn, sets);
        Ok(())
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, sets: &mut Sets) {
        run.prepare(self.cells, position, sets);
    }
}

impl<C: Words> Locking<'_, C> {
    /// The word as it was when it was free; `None` where it is not.
    #[inline(always)]
    fn try_lock(&self, parameter: u32) -> Option<u32> {
        // Looks before it swaps: a failed swap would take the line from whoever is to release it.
        let lock = self.cells.word(parameter);
        if lock.load(Relaxed) == LOCKED {
            return None;
        }
        let holder = lock.swap(LOCKED, Acquire);
        (holder != LOCKED).then_some(holder)
    }

    #[cold]
    fn lock<T: Task, V: Value>(
        &self,
        run: &Run<'_, T, V>,
        turn: &Turn<'_>,
        parameter: u32,
        report: &mut WorkerReport,
    ) -> Result<u32, Halt> {
        let mut wait = run.pool.wait();
        let holder = loop {
            if let Some(holder) = self.try_lock(parameter) {
                break holder;
            }
            wait.back_off(|| TrainError::Stuck {
                transaction: turn.place() + 1,
                what: "the lock of parameter",
                number: u64::from(parameter),
                expected: 0,
                observed: 1,
            })?;
        };
        report.write_polls += wait.polls;
        report.blocked += wait.blocked();
        Ok(holder)
    }
}

/// All parameters of two sets, ascending, each once; in `buffer` where neither set is that already.
#[inline(always)]
pub(crate) fn ascending<'s>(reads: &'s [u32], writes: &'s [u32], buffer: &'s mut Vec<u32>) -> &'s [u32] {
    let same = std::ptr::eq(reads, writes);
    if same && reads.is_sorted() {
        return reads;
    }
    buffer.clear();
    buffer.extend_from_slice(reads);
    if !same {
        buffer.extend_from_slice(writes);
    }
    buffer.sort_unstable();
    buffer.dedup();
    buffer
}
