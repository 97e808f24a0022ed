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
            run.task.taken_back(&sample, &step, read, write);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, Rows, Sample, Values};
    use crate::exec::cells::{Cells, Singles};
    use crate::exec::options::Steps;
    use crate::exec::run::Lap;
    use crate::exec::tests::{begin, learnt, options};
    use crate::exec::{Options, Scheme, Stop};
    use crate::task::Step;
    use crate::tasks::{Linear, Loss, Predicts, Tallied};
    use std::sync::atomic::AtomicU64;

    /// When a sample is learnt from for the first time, its features get other versions meanwhile, as if another thread wrote them.
    struct Overtaken<'a> {
        linear: Linear,
        cells: &'a Singles,
        /// A bit for each label that was seen.
        seen: AtomicU64,
    }

    impl Predicts for Overtaken<'_> {
        fn learn<V: Value>(
            &self,
            sample: &Sample<'_, V>,
            step: &Step<'_>,
            read: &[f64],
            write: &mut [f64],
        ) -> (f64, f64) {
            let bit = 1_u64 << (sample.label as u64);
            if self.seen.fetch_or(bit, Relaxed) & bit == 0 {
                for &feature in sample.features {
                    self.cells.word(feature).fetch_add(2, Relaxed);
                }
            }
            self.linear.learn(sample, step, read, write)
        }

        fn cost(&self, prediction: f64, label: f64) -> f64 {
            self.linear.cost(prediction, label)
        }
    }

    impl Task for Overtaken<'_> {
        fn compute<V: Value>(
            &self,
            sample: &Sample<'_, V>,
            step: &Step<'_>,
            read: &[f64],
            write: &mut [f64],
        ) -> f64 {
            self.learn(sample, step, read, write).1
        }
    }

    #[test]
    fn the_loss_of_a_sample_that_is_begun_again_counts_once() {
        let (features, labels) = (vec![0, 1, 1, 2, 0, 2, 0, 1], vec![0.0, 1.0, 2.0, 3.0]);
        let values = Values::F64(vec![1.0; 8].into());
        let data = Dataset::new(vec![0, 2, 4, 6, 8], features, values, labels, 3).unwrap();
        let linear = Linear::new(Loss::Squared);
        let begun = begin(&linear, &data);
        let serial = Tallied::new(linear, true);
        let model = learnt(&serial, &data, &Options { epochs: 1, ..options(Scheme::Serial, 1) });

        let cells = &Singles::new(&begun.parameters, &[]);
        let task = Tallied::new(Overtaken { linear, cells, seen: AtomicU64::new(0) }, true);
        let options = options(Scheme::Occ, 1);
        let pool = Pool::new(1, options.patience, Stop::default());
        let steps = Steps::new(&options, 4);
        let Values::F64(values) = data.values() else { unreachable!("they are made so") };
        let rows = Rows::of(&data, values);
        let run = Run::new(&task, rows, None, steps, (&pool, None, begun.intercept), &options);
        let laps = [Lap::new(steps.epoch(0), 0, 0)];
        let workers = run.segment(&Occ { cells, record: false }, 1, &laps).unwrap();
        assert_eq!(workers[0].report.restarts, 4);
        let mut parameters = vec![0.0; 3];
        cells.export(1, &mut parameters);
        assert_eq!(parameters, model.parameters);
        assert_eq!(task.take().to_bits(), serial.take().to_bits());
    }
}
