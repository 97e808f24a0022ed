//! The loop of a worker, the same for all schemes: take the next transactions in planned order, ask for the memory of what
//! comes after, hand each to the scheme.

use super::TrainError;
use super::cells::Cells;
use super::first::General;
use super::intercept::{Intercept, Lag};
use super::lanes::{Crowd, Held};
use super::options::{Epoch, Options, Steps};
use super::pool::{Guard, Halt, Line, Pool, Stopped, WorkerReport};
use crate::data::{Rows, Sample, Value};
use crate::task::{Rule, Sets, Step, Task};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Parameters that are asked for ahead, at least: so many keep all ways to memory busy. What is asked for much earlier than
/// it is needed only keeps it from others.
const AHEAD: usize = 32;

/// Transactions ahead whose samples are asked for. The processor finds by itself what comes next where one thread reads sample
/// after sample, and then not all of it; where threads take turns, it does not.
pub(crate) const SAMPLES_AHEAD: usize = 6;

/// Bytes of samples below which the caches hold all of them, and nothing need be asked for.
const CACHED: usize = 4 << 20;

/// Whether samples need be asked for.
pub(crate) fn far<V: Value>(rows: &Rows<'_, V>) -> bool {
    size_of_val(rows.features) + size_of_val(rows.values) >= CACHED
}

/// Most transactions whose parameters are asked for ahead.
const PREPARED: usize = 3;

/// Places for what is known of transactions ahead, and of the present one: a power of two.
const SLOTS: usize = 8;

/// Transactions that a worker takes from a shared counter at a time, unless told otherwise.
const CHUNK: u64 = 16;

/// Parameters of a transaction that are asked for ahead; of very long samples, the rest would push the first out again.
pub(crate) const AHEAD_MAX: usize = 512;

/// What all workers see, whatever they do just now.
pub(crate) struct Run<'a, T, V> {
    pub(crate) task: &'a T,
    pub(crate) rows: Rows<'a, V>,
    /// Row of each transaction; `None` where it is the transaction's place.
    pub(crate) order: Option<&'a [u32]>,
    pub(crate) steps: Steps,
    pub(crate) intercept: Option<&'a Intercept>,
    /// What counts for one where the task has none.
    constant: f64,
    pub(crate) pool: &'a Pool,
    chunk: u64,
    /// Transactions ahead that are prepared: at most [`PREPARED`].
    ahead: usize,
    /// Transactions ahead that are known: those, or [`SAMPLES_AHEAD`] where samples are asked for.
    known: usize,
    threads: usize,
    /// Whether there is a processor for each thread, so that all of them come forward alike.
    strides: bool,
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
    /// The part of it that is run: places in the planned order.
    part: Range<u64>,
    /// [`Step::scale`] for each of its transactions; empty where weights do not decay.
    scales: Arc<[f64]>,
    /// The next transaction to take.
    next: Line,
    /// Numbers the commits of schemes that find their order while they run.
    pub(crate) sequence: Line,
}

impl Lap {
    pub(crate) fn new(epoch: Epoch, base: u32, place: u64) -> Lap {
        let part = 0..u64::MAX;
        Lap { epoch, base, place, part, scales: [].into(), next: Line::default(), sequence: Line::default() }
    }

    /// This part of the same lap, while weights decay by these scales.
    pub(crate) fn part(self, part: Range<u64>, scales: Arc<[f64]>) -> Lap {
        let (next, sequence) = (Line(part.start.into()), Line(part.start.into()));
        Lap { part, scales, next, sequence, ..self }
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

impl Turn<'_> {
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
    /// Whether neighbours in the planned order had better run at the same time.
    const STRIDES: bool = false;

    /// The thread that carries out each transaction, where that is settled beforehand.
    fn owners(&self) -> &[u8] {
        &[]
    }

    /// Of so many threads those that carry out anything, the first ones.
    fn busy(&self, threads: usize) -> usize {
        threads
    }

    /// Carries it out, or waits until it can.
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Halt>;

    /// Asks for the memory of a transaction that has its turn soon. `sets` is empty, and still there at its turn.
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, sets: &mut Sets);

    /// Asks for the memory of a sample that is prepared soon.
    #[inline(always)]
    fn ask(&self, run: &Run<'_, T, V>, row: usize) {
        run.rows.prefetch(row);
    }
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
    /// All transactions of others before this place are finished.
    pub(crate) floor: u64,
    pub(crate) held: Held,
    /// The place of the transaction that it could not carry out.
    at: u64,
    pub(crate) crowd: Crowd,
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
            floor: 0,
            held: Held::own(number),
            at: 0,
            crowd: Crowd::default(),
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
        (pool, intercept, constant): (&'a Pool, Option<&'a Intercept>, f64),
        options: &Options,
    ) -> Run<'a, T, V> {
        let ahead = AHEAD.div_ceil(rows.features.len() / rows.labels.len().max(1) + 1).clamp(1, PREPARED);
        Run {
            task,
            rows,
            order,
            steps,
            intercept,
            constant,
            pool,
            chunk: u64::from(options.chunk),
            ahead,
            known: if far(&rows) { SAMPLES_AHEAD } else { ahead },
            threads: options.threads.get(),
            strides: std::thread::available_parallelism()
                .is_ok_and(|processors| options.threads <= processors),
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

    /// The intercept for the transaction at this place, for which it waits so long at most.
    #[inline(always)]
    pub(crate) fn intercept(
        &self,
        place: u64,
        lag: &mut Lag,
        report: &mut WorkerReport,
        most: Option<Duration>,
    ) -> Result<f64, Halt> {
        let Some(intercept) = self.intercept else { return Ok(self.constant) };
        let (value, polls) = intercept.at(place, lag, self.pool, most)?;
        report.intercept_polls += polls;
        Ok(value)
    }

    /// The parameters that a sample reads and those that it writes; `sets` are those of its turn.
    #[inline(always)]
    pub(crate) fn sets<'s>(&self, sample: &Sample<'s, V>, sets: &'s Sets) -> (&'s [u32], &'s [u32]) {
        if self.features { (sample.features, sample.features) } else { (&sets.reads, &sets.writes) }
    }

    /// The values of the parameters read, and their weights if the task wants them.
    #[inline(always)]
    pub(crate) fn gather<'s, C: Cells>(
        &self,
        cells: &C,
        reads: &[u32],
        values: &mut [f64],
        weights: &'s mut Vec<f32>,
    ) -> &'s [f32] {
        if !self.weighted {
            cells.gather(reads, values, &mut []);
            return &[];
        }
        let weights = room(weights, reads.len());
        cells.gather(reads, values, weights);
        weights
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

    /// What the transaction at this position of the lap steps by.
    #[inline(always)]
    pub(crate) fn step<'s>(&self, lap: &Lap, position: u32, intercept: f64, weights: &'s [f32]) -> Step<'s> {
        let size = self.steps.size(&lap.epoch, position);
        let scale = lap.scales.get(position as usize).copied().unwrap_or(1.0);
        Step { size, intercept, weights, scale: [scale, scale * self.steps.leaves(size)] }
    }

    /// What the task makes of a sample, from `read` to `write`; notes what it moves the intercept by.
    #[inline(always)]
    pub(crate) fn compute(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        place: u64,
        lag: &mut Lag,
        (read, write): (&[f64], &mut [f64]),
    ) {
        let derivative = self.task.compute(sample, step, read, write);
        self.moved(place, step.size * derivative, lag);
    }

    /// Notes what the transaction at this place moves the intercept by.
    #[inline(always)]
    pub(crate) fn moved(&self, place: u64, by: f64, lag: &mut Lag) {
        if let Some(intercept) = self.intercept {
            intercept.record(place, by, lag);
        }
    }

    /// How schemes without a plan prepare a transaction: asks for all parameters of the sample, or of its sets.
    #[inline(always)]
    pub(crate) fn prepare<C: Cells>(&self, cells: &C, position: u32, sets: &mut Sets) {
        let sample = self.rows.sample(self.row(position));
        if self.features {
            cells.prefetch_all(sample.features.iter().take(AHEAD_MAX).copied());
        } else {
            sets_of(self.task, &sample, sets);
            cells.prefetch_all(sets.reads.iter().chain(&sets.writes).take(AHEAD_MAX).copied());
        }
    }

    /// Carries out the transactions of a lap that are this worker's.
    pub(crate) fn lap<E: Executor<T, V>>(
        &self,
        executor: &E,
        worker: &mut Worker,
        lap: &Lap,
    ) -> Result<(), Stopped> {
        let end = lap.place + lap.part.end.min(self.rows.labels.len() as u64);
        if executor.owners().is_empty() {
            // Nobody gives way who has no lane.
            return self.along(executor, worker, lap).map(|_| ()).map_err(|_| Stopped);
        }
        // Others may have gone ahead with its lane, or be at it.
        let mut left = worker.held.continue_own(self.pool) < end;
        while left {
            left = match self.along(executor, worker, lap) {
                Ok(finished) => !finished,
                Err(Halt::Stopped) => return Err(Stopped),
                Err(Halt::Blocked(why)) => self.give_way(worker, lap, end, &why)?,
            };
        }
        if worker.held.give_back(self.pool, end, |_| true) {
            self.pool.ring();
        }
        Ok(())
    }

    /// What a worker does whose transaction has waited for long. Whether it has something left to do in the lap, which
    /// ends there.
    #[cold]
    fn give_way(&self, worker: &mut Worker, lap: &Lap, end: u64, why: &TrainError) -> Result<bool, Stopped> {
        let pool = self.pool;
        let between = lap.place + lap.part.start..worker.at;
        if worker.held.take_over(pool, pool.threads(), between) {
            return Ok(true);
        }
        if let Some(intercept) = self.intercept {
            intercept.tell(&mut worker.lag);
        }
        worker.held.give_away(pool, worker.at);
        loop {
            worker.crowd.gave_way();
            let nap = worker.crowd.nap();
            pool.nap(nap);
            worker.report.blocked += nap;
            pool.may_go_on(&mut worker.crowd, why)?;
            // Who holds it gives it back after a transaction, unless the system has put it aside.
            pool.want(worker.number, true);
            let begun = Instant::now();
            let next = loop {
                let next = worker.held.take_own(pool);
                if next.is_some() || begun.elapsed() >= worker.crowd.spin() {
                    break next;
                }
                std::hint::spin_loop();
            };
            pool.want(worker.number, false);
            if let Some(next) = next {
                worker.crowd.came_back();
                return Ok(next < end);
            }
        }
    }

    /// Carries out the transactions of the lap that are left to this worker: whether all of them, or until it holds other lanes.
    fn along<E: Executor<T, V>>(&self, executor: &E, worker: &mut Worker, lap: &Lap) -> Result<bool, Halt> {
        let mut positions = self.positions(lap, worker, E::STRIDES, executor.owners());
        let end = positions.end;
        let place = |position: u32| lap.place + if position == END { end } else { u64::from(position) };
        // The next transactions of this worker, in a ring. Their samples are asked for when they come in, and their parameters
        // when they have come nearer.
        let mut coming = [END; SLOTS];
        for (slot, coming) in coming.iter_mut().enumerate().take(self.known) {
            *coming = positions.next();
            if slot < self.ahead && *coming != END {
                executor.prepare(self, *coming, &mut worker.sets[slot]);
            }
        }
        let mut slot = 0;
        worker.held.advance(self.pool, place(coming[slot]));
        loop {
            let position = coming[slot];
            if position == END {
                if let Some(intercept) = self.intercept {
                    intercept.tell(&mut worker.lag);
                }
                return Ok(true);
            }
            let last = (slot + self.known) % SLOTS;
            coming[last] = positions.next();
            if self.known > self.ahead && coming[last] != END {
                executor.ask(self, self.row(coming[last]));
            }
            let last = (slot + self.ahead) % SLOTS;
            if coming[last] != END {
                executor.prepare(self, coming[last], &mut worker.sets[last]);
            }
            let turn = Turn { lap, position, row: self.row(position), slot };
            if let Err(halt) = executor.transact(self, worker, &turn) {
                worker.at = turn.place();
                return Err(halt);
            }
            worker.report.transactions += 1;
            slot = (slot + 1) % SLOTS;
            worker.held.advance(self.pool, place(coming[slot]));
            if self.pool.is_stopped() {
                return Err(Halt::Stopped);
            }
            if !worker.held.is_own() {
                let wanted = |lane| self.pool.is_wanted(lane);
                if worker.held.give_back(self.pool, place(coming[slot]), wanted) {
                    return Ok(false);
                }
            }
        }
    }

    /// The positions of a worker in a lap.
    fn positions<'l>(&self, lap: &'l Lap, worker: &Worker, strides: bool, owners: &'l [u8]) -> Positions<'l> {
        let end = lap.part.end.min(self.rows.labels.len() as u64);
        let chunk = match self.chunk {
            0 if strides => 1,
            0 => CHUNK,
            chunk => chunk,
        };
        let threads = self.threads as u64;
        let (next, upto, counter) = if !owners.is_empty() {
            (worker.held.first() - lap.place, end, None)
        } else if strides && self.strides {
            let first = lap.part.start + worker.number as u64 * chunk;
            (first, first + chunk, None)
        } else {
            (0, 0, Some(&lap.next.0))
        };
        let (leap, held) = ((threads - 1) * chunk, worker.held.clone());
        Positions {
            next,
            upto,
            end,
            chunk,
            leap,
            counter,
            owners,
            lap: lap.place,
            worker: worker.number,
            held,
        }
    }

    /// Runs laps one behind the other on all threads, without a barrier between them; what each thread did.
    pub(crate) fn segment<E: Executor<T, V>>(
        &self,
        executor: &E,
        threads: usize,
        laps: &[Lap],
    ) -> Result<Vec<Worker>, TrainError> {
        let busy = executor.busy(threads);
        self.pool.begin(laps.first().map_or(0, |lap| lap.place + lap.part.start), busy);
        on_threads(self.pool, busy, &|worker| laps.iter().try_for_each(|lap| self.lap(executor, worker, lap)))
    }
}

/// Runs `work` on this many threads; what each of them did, or why the pool was stopped. One copy serves all schemes
/// and tasks: threads are much code.
pub(crate) fn on_threads(
    pool: &Pool,
    threads: usize,
    work: &(dyn Fn(&mut Worker) -> Result<(), Stopped> + Sync),
) -> Result<Vec<Worker>, TrainError> {
    let work = |number| {
        let mut worker = Worker::new(number);
        worker.crowd = Crowd::new(pool.is_crowded());
        let _guard = Guard { pool, worker: number };
        // Why it stopped early is in the pool.
        let _ = work(&mut worker);
        worker
    };
    let work = &work;
    let workers = std::thread::scope(|scope| {
        let spawn = |number| {
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || work(number));
            // Those that have begun may wait for what this one was to do.
            spawned.map_err(|error| {
                pool.fail(TrainError::Refused { threads, worker: number, error: error.to_string() })
            })
        };
        let handles: Vec<_> = (0..threads).map_while(|number| spawn(number).ok()).collect();
        let joined = handles.into_iter().enumerate();
        joined
            .map(|(worker, handle)| handle.join().map_err(|panic| panicked(worker, &*panic)))
            .collect::<Vec<_>>()
    });
    let workers = workers.into_iter().collect::<Result<Vec<_>, _>>()?;
    pool.failure().map_or(Ok(workers), Err)
}

/// No position.
const END: u32 = u32::MAX;

/// Which transactions a worker carries out, in ascending order: so that no workers can wait in a circle (specs/cop.md 4.3).
///
/// Strides: worker w of W takes each Wth chunk, beginning with the wth. Neighbours in the planned order, which are the likeliest
/// to wait for each other, then run at the same time rather than one behind the other, and no counter is fought for.
/// A shared counter instead, where threads may be slower than one another. Or those that it owns, where that is settled.
struct Positions<'l> {
    next: u64,
    /// End of the present chunk.
    upto: u64,
    end: u64,
    chunk: u64,
    /// Transactions of others between two chunks of a stride.
    leap: u64,
    counter: Option<&'l AtomicU64>,
    /// The worker of each transaction; empty where that is not settled.
    owners: &'l [u8],
    /// The place of the lap.
    lap: u64,
    worker: usize,
    held: Held,
}

impl Positions<'_> {
    #[inline(always)]
    fn next(&mut self) -> u32 {
        if !self.owners.is_empty() {
            // No more workers own any than have a number in a byte.
            let left = &self.owners[self.next as usize..self.end as usize];
            if !self.held.is_own() {
                let first = self.lap + self.next;
                let mut places = left.iter().zip(first..);
                let leap = places.position(|(&owner, place)| self.held.has(usize::from(owner), place));
                self.next = leap.map_or(self.end, |leap| self.next + leap as u64 + 1);
                return leap.map_or(END, |_| (self.next - 1) as u32);
            }
            let leap = u8::try_from(self.worker).ok().and_then(|worker| memchr::memchr(worker, left));
            self.next = leap.map_or(self.end, |leap| self.next + leap as u64 + 1);
            return leap.map_or(END, |_| (self.next - 1) as u32);
        }
        if self.next == self.upto {
            match self.counter {
                Some(counter) => self.next = counter.fetch_add(self.chunk, Relaxed),
                None => self.next += self.leap,
            }
            self.upto = self.next + self.chunk;
        }
        if self.next >= self.end {
            return END;
        }
        self.next += 1;
        (self.next - 1) as u32
    }
}
