//! Conflict order planning: wait for the planned version of each parameter, and for the planned readers of what is
//! overwritten. Specification: `specs/cop.md` 4. What needs neither counters nor more than one number a parameter is
//! [`super::ordered`].

use super::TrainError;
use super::cells::Heads;
use super::pool::{Halt, Pool, WorkerReport};
use super::run::{AHEAD_MAX, Executor, Run, Turn, Worker, room};
use super::source::Source;
use super::transaction::{Awaited, Ops, Sound, Waiting, transact};
use crate::data::Value;
use crate::task::{Sets, Task};

/// Any form of plan, any cells.
pub(crate) struct Cop<'a, C, S> {
    pub(crate) cells: &'a C,
    pub(crate) source: S,
    /// For each read of the plan, its weight, where cells do not have it.
    pub(crate) shares: &'a [f32],
}

impl<T: Task, V: Value, C: Heads, S: Source> Executor<T, V> for Cop<'_, C, S> {
    const STRIDES: bool = true;

    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Halt> {
        let Worker { read, write, weights, lag, report, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let intercept = run.intercept(turn.place(), lag, report, None)?;
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
        let compute = |read: &[f64], write: &mut [f64]| {
            run.compute(&sample, &step, turn.place(), lag, (read, write));
        };
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
    ) -> Result<(), Halt> {
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
    ) -> Result<(), Halt> {
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
