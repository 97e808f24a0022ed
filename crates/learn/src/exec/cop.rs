//! Conflict order planning: wait for the planned version of each parameter, and for the planned readers of what is
//! overwritten. Specification: `specs/cop.md` 4.

use super::TrainError;
use super::cells::{Cells, Singles};
use super::pool::Stopped;
use super::run::{Executor, Run, Turn, Worker, room};
use crate::data::Value;
use crate::task::Task;

/// The compact form without counters: each transaction reads and writes the features of its sample, one number each, and is
/// itself the only reader of what it replaces. So nobody else ever waits for its reads, and they need not be counted.
pub(crate) struct Compact<'a> {
    pub(crate) cells: Singles,
    pub(crate) planned: &'a [u32],
}

impl<T: Task, V: Value> Executor<T, V> for Compact<'_> {
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped> {
        let Worker { read, write, weights, lag, report, .. } = worker;
        let entries = run.rows.range(turn.row);
        let sample = run.rows.sample(turn.row);
        let size = run.steps.size(turn.epoch, turn.position);
        let intercept = run.intercept(turn.place, lag, report)?;
        let base = (turn.place - u64::from(turn.position)) as u32;
        let planned = &self.planned[entries];
        let read = room(read, sample.features.len());
        if !self.cells.gather(sample.features, planned, base, read) {
            self.wait(run, turn, planned, base, read, report)?;
        }
        let weights = run.weights(&self.cells, sample.features, weights);
        let write = room(write, sample.features.len());
        let derivative = run.compute(&sample, size, intercept, weights, read, write);
        self.cells.scatter(sample.features, write, base.wrapping_add(turn.position + 1));
        run.moved(turn.place, size, derivative);
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, parameter: u32) {
        self.cells.prefetch(parameter);
    }
}

impl Compact<'_> {
    /// Reads again, waiting for each version in turn. What was read before of versions that were there already is read
    /// again too: it cannot have changed, since only this transaction may replace it.
    #[cold]
    fn wait<T: Task, V: Value>(
        &self,
        run: &Run<'_, T, V>,
        turn: &Turn<'_>,
        planned: &[u32],
        base: u32,
        read: &mut [f64],
        report: &mut super::WorkerReport,
    ) -> Result<(), Stopped> {
        use super::cells::Planned;
        let features = run.rows.sample(turn.row).features;
        for (at, (&parameter, &version)) in features.iter().zip(planned).enumerate() {
            let expected = base.wrapping_add(version);
            let mut wait = run.pool.wait();
            loop {
                let observed = self.cells.version(parameter);
                if observed == expected {
                    break;
                }
                wait.poll(|| TrainError::Stuck {
                    transaction: turn.place + 1,
                    what: "the version of parameter",
                    number: u64::from(parameter),
                    expected,
                    observed,
                })?;
            }
            if wait.polls > 0 {
                report.read_polls += wait.polls;
                report.blocked += wait.blocked();
            }
            self.cells.read(parameter, read, at);
        }
        Ok(())
    }
}
