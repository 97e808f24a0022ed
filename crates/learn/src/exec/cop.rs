//! Conflict order planning: wait for the planned version of each parameter, and for the planned readers of what is
//! overwritten. Specification: `specs/cop.md` 4.

use super::TrainError;
use super::cells::{Cells, Heads, Planned, Singles};
use super::pool::{Pool, Stopped, WorkerReport};
use super::run::{AHEAD_MAX, Executor, Run, Turn, Worker, room};
use super::source::Source;
use super::transaction::{Awaited, Ops, Sound, Waiting, transact};
use crate::data::Value;
use crate::task::{Sets, Task};

/// The compact form without counters: each transaction reads and writes the features of its sample, one number each, and is
/// itself the only reader of what it replaces. So nobody else ever waits for its reads, and they need not be counted.
pub(crate) struct Compact<'a> {
    pub(crate) cells: &'a Singles,
    /// For each entry of the data, the version to read and to replace, less the base of the lap.
    pub(crate) planned: &'a [u32],
    /// For each entry of the data, its weight, where cells do not have it.
    pub(crate) shares: &'a [f32],
}

impl<T: Task, V: Value> Executor<T, V> for Compact<'_> {
    const STRIDES: bool = true;

    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped> {
        let Worker { read, write, weights, lag, report, missing, .. } = worker;
        let entries = run.rows.range(turn.row);
        let sample = run.rows.sample(turn.row);
        let intercept = run.intercept(turn.place(), lag, report)?;
        let planned = &self.planned[entries.clone()];
        let read = room(read, sample.features.len());
        let own = if run.weighted && self.shares.is_empty() { sample.features.len() } else { 0 };
        let weights = room(weights, own);
        if !self.cells.gather_planned(sample.features, planned, turn.lap.base, read, weights) {
            self.wait(run.pool, turn, (sample.features, planned), read, missing, report)?;
        }
        let weights = if self.shares.is_empty() { weights } else { &self.shares[entries] };
        let write = room(write, sample.features.len());
        let step = run.step(turn.lap, turn.position, intercept, weights);
        run.compute(&sample, &step, turn.place(), read, write);
        self.cells.publish_all(sample.features, write, turn.version());
        Ok(())
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, _: &mut Sets) {
        // What another is about to replace is not asked for: it would be fetched twice, once from the middle of the other's
        // work. Only a plan can tell.
        let row = run.row(position);
        let settled = run.settled_before(position).max(1) as i32;
        let planned = &self.planned[run.rows.range(row)];
        let entries = run.rows.sample(row).features.iter().zip(planned).take(AHEAD_MAX);
        // References to the lap before are negative.
        let due = entries.filter(|&(_, &version)| (version as i32) < settled);
        self.cells.prefetch_all(due.map(|(&feature, _)| feature));
    }
}

impl Compact<'_> {
    /// Reads again what was not there yet, waiting for each version in turn. What was there cannot have changed: only this
    /// transaction may replace it.
    #[cold]
    fn wait(
        &self,
        pool: &Pool,
        turn: &Turn<'_>,
        (features, planned): (&[u32], &[u32]),
        read: &mut [f64],
        missing: &mut Vec<u32>,
        report: &mut WorkerReport,
    ) -> Result<(), Stopped> {
        // First all that is there by now: when the last version comes, nothing but its value is left to be read.
        missing.clear();
        for (at, (&parameter, &version)) in features.iter().zip(planned).enumerate() {
            if self.cells.version(parameter) == turn.lap.base.wrapping_add(version) {
                self.cells.read(parameter, read, at);
            } else {
                missing.push(at as u32);
            }
        }
        let mut patient = Patient { pool, report, transaction: turn.place() + 1 };
        for at in missing.iter().map(|&at| at as usize) {
            let (parameter, expected) = (features[at], turn.lap.base.wrapping_add(planned[at]));
            patient.until(Awaited::Read, parameter, expected, || self.cells.version(parameter))?;
            self.cells.read(parameter, read, at);
        }
        Ok(())
    }
}

/// Any other form of plan, any cells.
pub(crate) struct Cop<'a, C, S> {
    pub(crate) cells: &'a C,
    pub(crate) source: S,
    /// For each read of the plan, its weight, where cells do not have it.
    pub(crate) shares: &'a [f32],
}

impl<T: Task, V: Value, C: Heads, S: Source> Executor<T, V> for Cop<'_, C, S> {
    const STRIDES: bool = true;

    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped> {
        let Worker { read, write, weights, lag, report, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let intercept = run.intercept(turn.place(), lag, report)?;
        let place = self.source.place(&run.rows, turn.position, turn.row);
        let ops = self.source.ops(&place, sample.features, turn.lap.base);
        let weights = match self.shares {
            [] => run.weights(self.cells, ops.reads().map(|op| op.parameter), weights),
            shares => &shares[place.reads.clone()],
        };
        let read = room(read, ops.reads().len() * run.width);
        let write = room(write, ops.writes().len() * run.width);
        let mut patient = Patient { pool: run.pool, report, transaction: turn.place() + 1 };
        let step = run.step(turn.lap, turn.position, intercept, weights);
        let compute =
            |read: &[f64], write: &mut [f64]| run.compute(&sample, &step, turn.place(), read, write);
        transact::<C, _, _, Sound>(self.cells, &ops, turn.version(), &mut patient, read, write, compute)
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, _: &mut Sets) {
        let row = run.row(position);
        let place = self.source.place(&run.rows, position, row);
        let ops = self.source.ops(&place, run.rows.sample(row).features, 0);
        self.cells.prefetch_all(ops.reads().take(AHEAD_MAX).map(|op| op.parameter));
        if self.source.writes_differ() {
            self.cells.prefetch_all(ops.writes().take(AHEAD_MAX).map(|op| op.parameter));
        }
    }
}

/// Waits as specs/cop.md 4.2 says, and counts.
struct Patient<'a> {
    pool: &'a Pool,
    report: &'a mut WorkerReport,
    transaction: u64,
}

impl Waiting for Patient<'_> {
    #[inline(always)]
    fn until(
        &mut self,
        awaited: Awaited,
        parameter: u32,
        expected: u32,
        mut observe: impl FnMut() -> u32,
    ) -> Result<(), Stopped> {
        if observe() == expected { Ok(()) } else { self.poll(awaited, parameter, expected, observe) }
    }
}

impl Patient<'_> {
    #[cold]
    fn poll(
        &mut self,
        awaited: Awaited,
        parameter: u32,
        expected: u32,
        mut observe: impl FnMut() -> u32,
    ) -> Result<(), Stopped> {
        let mut wait = self.pool.wait();
        let ended = loop {
            let observed = observe();
            if observed == expected {
                break Ok(());
            }
            let stuck = || TrainError::Stuck {
                transaction: self.transaction,
                what: match awaited {
                    Awaited::Read | Awaited::Writer => "the version of parameter",
                    Awaited::Readers => "the readers of parameter",
                },
                number: u64::from(parameter),
                expected,
                observed,
            };
            if let Err(stopped) = wait.poll(stuck) {
                break Err(stopped);
            }
        };
        match awaited {
            Awaited::Read => self.report.read_polls += wait.polls,
            Awaited::Writer | Awaited::Readers => self.report.write_polls += wait.polls,
        }
        self.report.blocked += wait.blocked();
        ended
    }
}
