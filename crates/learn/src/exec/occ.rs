//! Optimistic execution: values are read without locks, and what was read is validated while the written parameters are
//! locked. Specification: `specs/cop.md` 6.4.

use super::TrainError;
use super::cells::Words;
use super::locking::ascending;
use super::pool::{Halt, Pool, WorkerReport};
use super::run::{Executor, Run, Turn, Worker, room};
use crate::data::Value;
use crate::task::{Sets, Task};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

/// Samples of which all versions can be told apart. A version is 31 bits of (epoch · n + i), which every epoch gives to
/// every parameter written anew: as long as two epochs are fewer than 2^31 transactions, no parameter can have the same
/// version twice within the life of a transaction.
pub(crate) const MOST: u32 = 1 << 30;

/// Over cells whose word is a version and, in the lowest bit, a lock.
pub(crate) struct Occ<'a, C> {
    pub(crate) cells: &'a C,
    /// Whether the order of commits is asked for.
    pub(crate) record: bool,
}

impl<T: Task, V: Value, C: Words> Executor<T, V> for Occ<'_, C> {
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Halt> {
        let sets = worker.take_sets(turn);
        let Worker { read, write, weights, lag, report, locks, versions, commits, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let (reads, writes) = run.sets(&sample, &sets);
        let intercept = run.intercept(turn.place(), lag, report, None)?;
        let read = room(read, reads.len() * run.width);
        let write = room(write, writes.len() * run.width);
        let versions = room(versions, reads.len());
        let weights = run.weights(self.cells, reads.iter().copied(), weights);
        let locks = ascending(writes, writes, locks);
        let attempt = Attempt { cells: self.cells, pool: run.pool, transaction: turn.place() + 1 };
        let step = run.step(turn.lap, turn.position, intercept, weights);
        let derivative = loop {
            for (at, &parameter) in reads.iter().enumerate() {
                versions[at] = attempt.read(parameter, read, at, report)?;
            }
            let derivative = run.task.compute(&sample, &step, read, write);
            for &parameter in locks {
                attempt.lock(parameter, report)?;
            }
            // Before the values change: whoever sees one of them then sees the lock or what came after.
            fence(Release);
            // Between locking and validation: whoever comes later with a conflicting write sees these locks, and whoever came
            // earlier is seen by the validation.
            let number = self.record.then(|| turn.lap.sequence.0.fetch_add(1, SeqCst));
            if attempt.is_valid(reads, versions, locks) {
                if let Some(number) = number {
                    commits.push((number, turn.row as u32));
                }
                break derivative;
            }
            for &parameter in locks {
                let word = self.cells.word(parameter);
                word.store(word.load(Relaxed) & !1, Release);
            }
            report.restarts += 1;
            if run.pool.is_stopped() {
                return Err(Halt::Stopped);
            }
        };
        self.cells.scatter(writes, write);
        for &parameter in locks {
            self.cells.word(parameter).store(turn.version() << 1, Release);
        }
        run.moved(turn.place(), step.size * derivative, lag);
        worker.put_back(turn, sets);
        Ok(())
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, sets: &mut Sets) {
        run.prepare(self.cells, position, sets);
    }
}

/// One transaction's access to words.
struct Attempt<'a, C> {
    cells: &'a C,
    pool: &'a Pool,
    transaction: u64,
}

impl<C: Words> Attempt<'_, C> {
    /// Reads values and the word that they belong to, which was not locked.
    #[inline(always)]
    fn read(
        &self,
        parameter: u32,
        out: &mut [f64],
        at: usize,
        report: &mut WorkerReport,
    ) -> Result<u32, Halt> {
        let word = self.cells.word(parameter);
        loop {
            let before = word.load(Acquire);
            if before & 1 == 0 {
                self.cells.load(parameter, out, at);
                fence(Acquire);
                if word.load(Relaxed) == before {
                    return Ok(before);
                }
            } else {
                report.read_polls += self.wait_unlocked(parameter)?;
            }
        }
    }

    #[inline(always)]
    fn lock(&self, parameter: u32, report: &mut WorkerReport) -> Result<(), Halt> {
        let word = self.cells.word(parameter);
        loop {
            let free = word.load(Relaxed) & !1;
            // In one order with the validations of others: of two transactions that each write what the other has read, at
            // least one sees the other's lock.
            if word.compare_exchange(free, free | 1, SeqCst, Relaxed).is_ok() {
                return Ok(());
            }
            report.write_polls += self.wait_unlocked(parameter)?;
        }
    }

    /// Whether all that was read is still there, and not about to be overwritten by another.
    #[inline(always)]
    fn is_valid(&self, reads: &[u32], versions: &[u32], locks: &[u32]) -> bool {
        reads.iter().zip(versions).all(|(&parameter, &kept)| {
            let word = self.cells.word(parameter).load(SeqCst);
            word == kept || (word == kept | 1 && (std::ptr::eq(reads, locks) || owns(locks, parameter)))
        })
    }

    #[cold]
    fn wait_unlocked(&self, parameter: u32) -> Result<u64, Halt> {
        let word = self.cells.word(parameter);
        let mut wait = self.pool.wait();
        while word.load(Relaxed) & 1 == 1 {
            wait.back_off(|| TrainError::Stuck {
                transaction: self.transaction,
                what: "the lock of parameter",
                number: u64::from(parameter),
                expected: 0,
                observed: 1,
            })?;
        }
        Ok(wait.polls)
    }
}

/// Whether the transaction itself has locked this parameter.
fn owns(locks: &[u32], parameter: u32) -> bool {
    locks.binary_search(&parameter).is_ok()
}
