//! No coordination at all: read, compute, store. Updates may overwrite each other, so with two threads and more it is not
//! serializable; an upper bound on speed. Specification: `specs/cop.md` 6.2.

use super::cells::Cells;
use super::pool::Stopped;
use super::run::{Executor, Run, Turn, Worker, room};
use crate::data::Value;
use crate::task::Task;

/// Over cells of any layout.
pub(crate) struct Hogwild<C>(pub(crate) C);

impl<T: Task, V: Value, C: Cells> Executor<T, V> for Hogwild<C> {
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Stopped> {
        let Worker { read, write, weights, sets, lag, report, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let size = run.steps.size(turn.epoch, turn.position);
        let intercept = run.intercept(turn.place, lag, report)?;
        let (reads, writes) = run.sets(&sample, sets);
        let read = room(read, reads.len() * run.width);
        for (at, &parameter) in reads.iter().enumerate() {
            self.0.load(parameter, read, at);
        }
        let weights = run.weights(&self.0, reads, weights);
        let write = room(write, writes.len() * run.width);
        let derivative = run.compute(&sample, size, intercept, weights, read, write);
        for (at, &parameter) in writes.iter().enumerate() {
            self.0.store(parameter, write, at);
        }
        run.moved(turn.place, size, derivative);
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, parameter: u32) {
        self.0.prefetch(parameter);
    }
}
