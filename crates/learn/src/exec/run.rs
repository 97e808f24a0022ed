//! The loop of a worker, the same for all schemes: take the next transactions in planned order, ask for the memory of what
//! comes after, hand each to the scheme.

use super::TrainError;
use super::cells::Cells;
use super::first::General;
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

/// Places for what is known of transactions ahead, and of the present one: a power of two.
const SLOTS: usize = 4;

/// Parameters of a transaction that are asked for ahead; of very long samples, the rest would push the first out again.
const AHEAD_MAX: usize = 512;

/// What all workers see, whatever they do just now.
pub(crate) struct Run<'a, T, V> {
    pub(crate) task: &'a T,
    pub(crate) rows: Rows<'a, V>,
    /// Row of each transaction; `None` where it is the transaction's place.
    pub(crate) order: Option<&'a [u32]>,
    pub(crate) steps: Steps,
    pub(crate) intercept: Option<&'a Intercept>,
    pub(crate) pool: &'a Pool,
    chunk: u64,
    /// [`Task::width`], [`Task::weighted`], and whether the rule is [`Rule::Features`].
    pub(crate) width: usize,
    pub(crate) weighted: bool,
    pub(crate) features: bool,
}

/// One pass over the transactions of a plan: an epoch, or a batch. Laps that follow one another need no barrier between
/// them if their versions go on.
#[derive(Debug)]
pub(crate) struct Lap {
    pub(crate) epoch: Epoch,
    /// Transactions before this lap by which versions go on; 0 after a reset.
    pub(crate) base: u32,
    /// Transactions before this lap since the lag of the intercept began.
    pub(crate) place: u64,
    /// The next transaction to take, from 0.
    next: AtomicU64,
    /// Numbers the commits of schemes that find their order while they run.
    pub(crate) sequence: AtomicU64,
}

impl Lap {
    pub(crate) fn new(epoch: Epoch, base: u32, place: u64) -> Lap {
        Lap { epoch, base, place, next: AtomicU64::new(0), sequence: AtomicU64::new(0) }
    }
}

/// A transaction's turn.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) lap: &'a Lap,
    /// Place in the planned order of the lap, from 0.
    pub(crate) position: u32,
    pub(crate) row: usize,
    /// Where the worker keeps what it found out ahead.
    slot: usize,
}

impl<'a> Turn<'a> {
    /// For a worker that has found out nothing ahead.
    #[cfg(test)]
    pub(crate) fn at(lap: &'a Lap, position: u32, row: usize) -> Turn<'a> {
        Turn { lap, position, row, slot: 0 }
    }

    /// Place since the lag of the intercept began.
    #[inline(always)]
    pub(crate) fn place(&self) -> u64 {
        self.lap.place + u64::from(self.position)
    }

    /// The number that versions written by it carry.
    #[inline(always)]
    pub(crate) fn version(&self) -> u32 {
        self.lap.base.wrapping_add(self.position).wrapping_add(1)
    }
}

/// How a scheme carries out a transaction.
pub(crate) trait Executor<T: Task, V: Value>: Sync {
    /// Carries it out, or waits until it can.
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped>;

    /// Asks for the memory of a transaction that has its turn soon. `sets` is empty, and still there at its turn.
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, sets: &mut Sets);
}

/// What a thread keeps from transaction to transaction, so that none allocates.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) read: Vec<f64>,
    pub(crate) write: Vec<f64>,
    pub(crate) weights: Vec<f32>,
    pub(crate) locks: Vec<u32>,
    pub(crate) versions: Vec<u32>,
    pub(crate) lag: Lag,
    pub(crate) report: WorkerReport,
    sets: [Sets; SLOTS],
    /// Commit sequence number and row of each transaction, where they are recorded.
    pub(crate) commits: Vec<(u64, u32)>,
    /// The general plan of the first epoch, in the order of `commits`.
    pub(crate) planned: General,
}

impl Worker {
    pub(crate) fn new(number: usize) -> Worker {
        Worker {
            number,
            read: Vec::new(),
            write: Vec::new(),
            weights: Vec::new(),
            locks: Vec::new(),
            versions: Vec::new(),
            lag: Lag::unknown(),
            report: WorkerReport::default(),
            sets: Default::default(),
            commits: Vec::new(),
            planned: General::default(),
        }
    }

    /// The sets found out when the transaction was prepared; given back with [`Worker::put_back`].
    #[inline(always)]
    pub(crate) fn take_sets(&mut self, turn: &Turn<'_>) -> Sets {
        std::mem::take(&mut self.sets[turn.slot])
    }

    #[inline(always)]
    pub(crate) fn put_back(&mut self, turn: &Turn<'_>, sets: Sets) {
        self.sets[turn.slot] = sets;
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

/// Fills `sets` with what a sample reads and writes.
pub(crate) fn sets_of<T: Task, V: Value>(task: &T, sample: &Sample<'_, V>, sets: &mut Sets) {
    sets.reads.clear();
    sets.writes.clear();
    task.sets(sample, sets);
}

impl<'a, T: Task, V: Value> Run<'a, T, V> {
    pub(crate) fn new(
        task: &'a T,
        rows: Rows<'a, V>,
        order: Option<&'a [u32]>,
        steps: Steps,
        (pool, intercept): (&'a Pool, Option<&'a Intercept>),
        options: &Options,
    ) -> Run<'a, T, V> {
        Run {
            task,
            rows,
            order,
            steps,
            intercept,
            pool,
            chunk: u64::from(options.chunk.max(1)),
            width: task.width(),
            weighted: task.weighted(),
            features: task.rule() == Rule::Features,
        }
    }

    /// The row of a transaction.
    #[inline(always)]
    pub(crate) fn row(&self, position: u32) -> usize {
        match self.order {
            Some(order) => order[position as usize] as usize,
            None => position as usize,
        }
    }

    /// The intercept for the transaction at this place; 0 where there is none.
    #[inline(always)]
    pub(crate) fn intercept(
        &self,
        place: u64,
        lag: &mut Lag,
        report: &mut WorkerReport,
    ) -> Result<f64, Stopped> {
        let Some(intercept) = self.intercept else { return Ok(0.0) };
        let (value, polls) = intercept.at(place, lag, self.pool)?;
        report.intercept_polls += polls;
        Ok(value)
    }

    /// The parameters that a sample reads and those that it writes; `sets` are those of its turn.
    #[inline(always)]
    pub(crate) fn sets<'s>(&self, sample: &Sample<'s, V>, sets: &'s Sets) -> (&'s [u32], &'s [u32]) {
        if self.features { (sample.features, sample.features) } else { (&sets.reads, &sets.writes) }
    }

    /// The weights of the parameters read, if the task wants them.
    #[inline(always)]
    pub(crate) fn weights<'s, C: Cells>(
        &self,
        cells: &C,
        reads: impl ExactSizeIterator<Item = u32>,
        to: &'s mut Vec<f32>,
    ) -> &'s [f32] {
        if !self.weighted {
            return &[];
        }
        let to = room(to, reads.len());
        for (weight, parameter) in to.iter_mut().zip(reads) {
            *weight = cells.weight(parameter);
        }
        to
    }

    /// What the task makes of a sample, from `read` to `write`; notes what it moves the intercept by.
    #[inline(always)]
    pub(crate) fn compute(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        place: u64,
        read: &[f64],
        write: &mut [f64],
    ) {
        let derivative = self.task.compute(sample, step, read, write);
        self.moved(place, step.size, derivative);
    }

    /// Notes what the transaction at this place moves the intercept by.
    #[inline(always)]
    pub(crate) fn moved(&self, place: u64, size: f64, derivative: f64) {
        if let Some(intercept) = self.intercept {
            intercept.record(place, size * derivative);
        }
    }

    /// How schemes without a plan prepare a transaction: asks for all parameters of the sample, or of its sets.
    #[inline(always)]
    pub(crate) fn prepare<C: Cells>(&self, cells: &C, position: u32, sets: &mut Sets) {
        let sample = self.rows.sample(self.row(position));
        if self.features {
            prefetch_all(cells, sample.features.iter().copied());
        } else {
            sets_of(self.task, &sample, sets);
            prefetch_all(cells, sets.reads.iter().chain(&sets.writes).copied());
        }
    }

    /// Carries out all transactions of a lap that this worker can get hold of.
    pub(crate) fn lap<E: Executor<T, V>>(
        &self,
        executor: &E,
        worker: &mut Worker,
        lap: &Lap,
    ) -> Result<(), Stopped> {
        let end = self.rows.labels.len() as u64;
        // The chunk after the present one is taken early, so that its first samples can be prefetched. Every worker's
        // transactions still ascend, which is what keeps them from waiting in a circle (specs/cop.md 4.3).
        let mut here = self.take(lap, end);
        let mut then = self.take(lap, end);
        // Slots go round with the transactions of this worker.
        let mut turns = 0;
        for place in here.start..(here.start + AHEAD).min(here.end) {
            executor.prepare(self, place as u32, &mut worker.sets[(place - here.start) as usize]);
        }
        // Shorter than AHEAD: what the loop below cannot reach.
        for place in then.start..(then.start + AHEAD.saturating_sub(here.end - here.start)).min(then.end) {
            let slot = (here.end - here.start + place - then.start) as usize;
            executor.prepare(self, place as u32, &mut worker.sets[slot]);
        }
        while !here.is_empty() {
            for position in here.clone() {
                let ahead = position + AHEAD;
                let ahead = if ahead < here.end { ahead } else { then.start + (ahead - here.end) };
                if ahead < end {
                    let slot = (turns + AHEAD as usize) % SLOTS;
                    executor.prepare(self, ahead as u32, &mut worker.sets[slot]);
                }
                let position = position as u32;
                let turn = Turn { lap, position, row: self.row(position), slot: turns % SLOTS };
                executor.transact(self, worker, &turn)?;
                turns += 1;
                worker.report.transactions += 1;
                self.pool.completed(worker.number, worker.report.transactions);
            }
            if self.pool.is_stopped() {
                return Err(Stopped);
            }
            here = std::mem::replace(&mut then, self.take(lap, end));
        }
        Ok(())
    }

    fn take(&self, lap: &Lap, end: u64) -> Range<u64> {
        let start = lap.next.fetch_add(self.chunk, Relaxed).min(end);
        start..(start + self.chunk).min(end)
    }

    /// Runs laps one behind the other on all threads, without a barrier between them; what each thread did.
    pub(crate) fn segment<E: Executor<T, V>>(
        &self,
        executor: &E,
        threads: usize,
        laps: &[Lap],
    ) -> Result<Vec<Worker>, TrainError> {
        on_threads(self.pool, threads, |worker| {
            laps.iter().try_for_each(|lap| self.lap(executor, worker, lap))
        })
    }
}

/// Runs `work` on this many threads; what each of them did, or why the pool was stopped.
pub(crate) fn on_threads(
    pool: &Pool,
    threads: usize,
    work: impl Fn(&mut Worker) -> Result<(), Stopped> + Sync,
) -> Result<Vec<Worker>, TrainError> {
    let work = |number| {
        let mut worker = Worker::new(number);
        let _guard = Guard { pool, worker: number };
        // Why it stopped early is in the pool.
        let _ = work(&mut worker);
        worker
    };
    let work = &work;
    let workers = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        let joined = handles.into_iter().enumerate();
        joined
            .map(|(worker, handle)| handle.join().map_err(|panic| panicked(worker, &*panic)))
            .collect::<Vec<_>>()
    });
    let workers = workers.into_iter().collect::<Result<Vec<_>, _>>()?;
    pool.failure().map_or(Ok(workers), Err)
}

/// Asks for the memory of these parameters.
#[inline(always)]
pub(crate) fn prefetch_all<C: Cells>(cells: &C, parameters: impl Iterator<Item = u32>) {
    for parameter in parameters.take(AHEAD_MAX) {
        cells.prefetch(parameter);
    }
}
