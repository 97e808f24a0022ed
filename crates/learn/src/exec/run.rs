//! The loop of a worker, the same for all schemes: take the next transactions in planned order, prefetch what comes after,
//! hand each to the scheme.

use super::TrainError;
use super::cells::Cells;
use super::intercept::{Intercept, Lag};
use super::options::{Epoch, Options, Steps};
use super::pool::{Guard, Pool, Stopped, WorkerReport};
use crate::data::{Rows, Sample, Value};
use crate::task::{Rule, Sets, Step, Task};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Transactions ahead whose parameters are asked for: by the time they are needed, two transactions' worth of work has
/// hidden the way to memory.
const AHEAD: u64 = 2;

/// Parameters of a transaction that are asked for ahead; of very long samples, the rest would push the first out again.
const AHEAD_MAX: usize = 512;

/// What all workers of a run see.
pub(crate) struct Run<'a, T, V> {
    pub(crate) task: &'a T,
    pub(crate) rows: Rows<'a, V>,
    /// Row of each transaction; `None` where it is the transaction's place.
    pub(crate) order: Option<&'a [u32]>,
    /// Transactions of an epoch, n.
    pub(crate) samples: u32,
    pub(crate) steps: Steps,
    pub(crate) intercept: Option<Intercept>,
    pub(crate) pool: Pool,
    /// The next transaction to take, counted from 0 over the epochs of a segment.
    next: AtomicU64,
    chunk: u64,
    /// [`Task::width`], [`Task::weighted`], and whether the rule is [`Rule::Features`].
    pub(crate) width: usize,
    pub(crate) weighted: bool,
    pub(crate) features: bool,
}

/// A transaction's turn.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) epoch: &'a Epoch,
    /// Place in the planned order of its epoch, from 0.
    pub(crate) position: u32,
    /// Place in the segment that runs without a barrier, from 0.
    pub(crate) place: u64,
    pub(crate) row: usize,
}

/// How a scheme carries out a transaction.
pub(crate) trait Executor<T: Task, V: Value>: Sync {
    /// Carries it out, or waits until it can.
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped>;

    /// Asks for the memory of this parameter.
    fn prefetch(&self, parameter: u32);

    /// Asks for the memory of what belongs to this transaction beside its sample.
    fn prefetch_plan(&self, _position: u32) {}
}

/// What a thread keeps from transaction to transaction, so that none allocates.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) read: Vec<f64>,
    pub(crate) write: Vec<f64>,
    pub(crate) weights: Vec<f32>,
    pub(crate) sets: Sets,
    pub(crate) locks: Vec<u32>,
    pub(crate) versions: Vec<u32>,
    pub(crate) lag: Lag,
    pub(crate) report: WorkerReport,
    /// Commit sequence number and row of each transaction, where they are recorded.
    pub(crate) commits: Vec<(u64, u32)>,
    /// Reads and writes of the first epoch's plan in the general form, in the order of `commits`.
    pub(crate) planned: super::first::General,
}

impl Worker {
    fn new(number: usize) -> Worker {
        Worker {
            number,
            read: Vec::new(),
            write: Vec::new(),
            weights: Vec::new(),
            sets: Sets::default(),
            locks: Vec::new(),
            versions: Vec::new(),
            lag: Lag::unknown(),
            report: WorkerReport::default(),
            commits: Vec::new(),
            planned: super::first::General::default(),
        }
    }
}

/// The error for a worker that panicked.
pub(crate) fn panicked(worker: usize, panic: &(dyn std::any::Any + Send)) -> TrainError {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    TrainError::Panicked { worker, message: message.unwrap_or("for a reason it did not tell").to_string() }
}

/// The first `length` numbers of a buffer that grows when it must.
#[inline(always)]
pub(crate) fn room<N: Copy + Default>(buffer: &mut Vec<N>, length: usize) -> &mut [N] {
    if buffer.len() < length {
        buffer.resize(length.next_power_of_two(), N::default());
    }
    &mut buffer[..length]
}

impl<'a, T: Task, V: Value> Run<'a, T, V> {
    pub(crate) fn new(
        task: &'a T,
        rows: Rows<'a, V>,
        order: Option<&'a [u32]>,
        intercept: f64,
        options: &Options,
    ) -> Run<'a, T, V> {
        let samples = rows.labels.len() as u32;
        Run {
            task,
            rows,
            order,
            samples,
            steps: Steps::new(options, samples),
            intercept: task.intercept().then(|| Intercept::new(intercept)),
            pool: Pool::new(options.threads.get(), options.patience),
            next: AtomicU64::new(0),
            chunk: u64::from(options.chunk.max(1)),
            width: task.width(),
            weighted: task.weighted(),
            features: task.rule() == Rule::Features,
        }
    }

    #[inline(always)]
    fn row(&self, position: u32) -> usize {
        match self.order {
            Some(order) => order[position as usize] as usize,
            None => position as usize,
        }
    }

    /// The intercept for a transaction.
    #[inline(always)]
    pub(crate) fn intercept(
        &self,
        place: u64,
        lag: &mut Lag,
        report: &mut WorkerReport,
    ) -> Result<f64, Stopped> {
        let Some(intercept) = &self.intercept else { return Ok(0.0) };
        let (value, polls) = intercept.at(place, lag, &self.pool)?;
        report.intercept_polls += polls;
        Ok(value)
    }

    /// The parameters that a sample reads and those that it writes.
    #[inline(always)]
    pub(crate) fn sets<'s>(&self, sample: &Sample<'s, V>, sets: &'s mut Sets) -> (&'s [u32], &'s [u32]) {
        if self.features {
            return (sample.features, sample.features);
        }
        sets.reads.clear();
        sets.writes.clear();
        self.task.sets(sample, sets);
        (&sets.reads, &sets.writes)
    }

    /// The weights of the parameters read, if the task wants them.
    #[inline(always)]
    pub(crate) fn weights<'s, C: Cells>(&self, cells: &C, reads: &[u32], to: &'s mut Vec<f32>) -> &'s [f32] {
        if !self.weighted {
            return &[];
        }
        let to = room(to, reads.len());
        for (weight, &parameter) in to.iter_mut().zip(reads) {
            *weight = cells.weight(parameter);
        }
        to
    }

    /// What the task makes of a sample, from `read` to `write`.
    #[inline(always)]
    pub(crate) fn compute(
        &self,
        sample: &Sample<'_, V>,
        size: f64,
        intercept: f64,
        weights: &[f32],
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        self.task.compute(sample, &Step { size, intercept, weights }, read, write)
    }

    /// Notes what a transaction moves the intercept by.
    #[inline(always)]
    pub(crate) fn moved(&self, place: u64, size: f64, derivative: f64) {
        if let Some(intercept) = &self.intercept {
            intercept.record(place, size * derivative);
        }
    }

    /// Runs the epochs in one segment, without a barrier between them, on all threads; what each of them did.
    pub(crate) fn segment<E: Executor<T, V>>(
        &self,
        executor: &E,
        threads: usize,
        epochs: Range<u32>,
    ) -> Result<Vec<Worker>, TrainError> {
        self.next.store(0, Relaxed);
        let workers = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|number| {
                    let epochs = epochs.clone();
                    scope.spawn(move || {
                        let mut worker = Worker::new(number);
                        let _guard = Guard { pool: &self.pool, worker: number };
                        // Why it stopped early is in the pool.
                        let _ = self.work(executor, &mut worker, epochs);
                        worker
                    })
                })
                .collect();
            let join = |(worker, handle): (usize, std::thread::ScopedJoinHandle<'_, Worker>)| {
                handle.join().map_err(|panic| panicked(worker, &*panic))
            };
            handles.into_iter().enumerate().map(join).collect::<Vec<_>>()
        });
        let workers = workers.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.pool.failure().map_or(Ok(workers), Err)
    }

    fn work<E: Executor<T, V>>(
        &self,
        executor: &E,
        worker: &mut Worker,
        epochs: Range<u32>,
    ) -> Result<(), Stopped> {
        let samples = u64::from(self.samples);
        let end = samples * u64::from(epochs.end - epochs.start);
        let mut epoch = self.steps.epoch(epochs.start);
        // The chunk after the present one is taken early, so that its first samples can be prefetched. Every worker's
        // transactions still ascend, which is what keeps them from waiting in a circle (specs/cop.md 4.3).
        let mut here = self.take(end);
        let mut then = self.take(end);
        for place in here.start..(here.start + AHEAD).min(here.end) {
            self.prefetch(executor, (place % samples) as u32);
        }
        while !here.is_empty() {
            for place in here.clone() {
                let ahead = place + AHEAD;
                let ahead = if ahead < here.end { ahead } else { then.start + (ahead - here.end) };
                if ahead < end {
                    self.prefetch(executor, (ahead % samples) as u32);
                }
                let number = epochs.start + (place / samples) as u32;
                if number != epoch.number {
                    epoch = self.steps.epoch(number);
                }
                let position = (place % samples) as u32;
                let turn = Turn { epoch: &epoch, position, place, row: self.row(position) };
                executor.transact(self, worker, &turn)?;
                worker.report.transactions += 1;
                self.pool.completed(worker.number, worker.report.transactions);
            }
            if self.pool.is_stopped() {
                return Err(Stopped);
            }
            here = std::mem::replace(&mut then, self.take(end));
        }
        Ok(())
    }

    fn take(&self, end: u64) -> Range<u64> {
        let start = self.next.fetch_add(self.chunk, Relaxed).min(end);
        start..(start + self.chunk).min(end)
    }

    #[inline(always)]
    fn prefetch<E: Executor<T, V>>(&self, executor: &E, position: u32) {
        if self.features {
            let sample = self.rows.sample(self.row(position));
            for &feature in sample.features.iter().take(AHEAD_MAX) {
                executor.prefetch(feature);
            }
        } else {
            executor.prefetch_plan(position);
        }
    }
}
