//! Conflict order planning: wait for the planned version of each parameter, and for the planned readers of what is
//! overwritten. Specification: `specs/cop.md` 4.

use super::TrainError;
use super::cells::{Heads, Planned, Singles};
use super::pool::{Pool, Stopped, WorkerReport};
use super::run::{Executor, Run, Turn, Worker, prefetch_all, room};
use super::source::Source;
use super::transaction::{Awaited, Ops, Sound, Waiting, transact};
use crate::data::Value;
use crate::task::{Sets, Step, Task};

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
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped> {
        let Worker { read, write, weights, lag, report, .. } = worker;
        let entries = run.rows.range(turn.row);
        let sample = run.rows.sample(turn.row);
        let size = run.steps.size(&turn.lap.epoch, turn.position);
        let intercept = run.intercept(turn.place(), lag, report)?;
        let planned = &self.planned[entries.clone()];
        let read = room(read, sample.features.len());
        if !self.cells.gather(sample.features, planned, turn.lap.base, read) {
            self.wait(run.pool, turn, sample.features, planned, read, report)?;
        }
        let weights = match self.shares {
            [] => run.weights(self.cells, sample.features.iter().copied(), weights),
            shares => &shares[entries],
        };
        let write = room(write, sample.features.len());
        run.compute(&sample, &Step { size, intercept, weights }, turn.place(), read, write);
        self.cells.scatter(sample.features, write, turn.version());
        Ok(())
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, _: &mut Sets) {
        prefetch_all(self.cells, run.rows.sample(run.row(position)).features.iter().copied());
    }
}

impl Compact<'_> {
    /// Reads again, waiting for each version in turn. Versions that were there already cannot have changed: only this
    /// transaction may replace them.
    #[cold]
    fn wait(
        &self,
        pool: &Pool,
        turn: &Turn<'_>,
        features: &[u32],
        planned: &[u32],
        read: &mut [f64],
        report: &mut WorkerReport,
    ) -> Result<(), Stopped> {
        let mut patient = Patient { pool, report, transaction: turn.place() + 1 };
        for (at, (&parameter, &version)) in features.iter().zip(planned).enumerate() {
            let expected = turn.lap.base.wrapping_add(version);
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
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped> {
        let Worker { read, write, weights, lag, report, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let size = run.steps.size(&turn.lap.epoch, turn.position);
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
        let step = Step { size, intercept, weights };
        let compute =
            |read: &[f64], write: &mut [f64]| run.compute(&sample, &step, turn.place(), read, write);
        transact::<C, _, _, Sound>(self.cells, &ops, turn.version(), &mut patient, read, write, compute)
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, _: &mut Sets) {
        let row = run.row(position);
        let place = self.source.place(&run.rows, position, row);
        let ops = self.source.ops(&place, run.rows.sample(row).features, 0);
        prefetch_all(self.cells, ops.reads().map(|op| op.parameter));
        if self.source.writes_differ() {
            prefetch_all(self.cells, ops.writes().map(|op| op.parameter));
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
