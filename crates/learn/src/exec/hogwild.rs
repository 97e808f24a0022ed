//! No coordination at all: read, compute, store. Updates may overwrite each other, so with two threads and more it is not
//! serializable; an upper bound on speed. Specification: `specs/cop.md` 6.2.

use super::cells::Cells;
use super::pool::Halt;
use super::run::{Executor, Run, Turn, Worker, room};
use crate::data::Value;
use crate::task::{Sets, Task};

/// Over cells of any layout.
pub(crate) struct Hogwild<'a, C>(pub(crate) &'a C);

impl<T: Task, V: Value, C: Cells> Executor<T, V> for Hogwild<'_, C> {
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Halt> {
        let sets = worker.take_sets(turn);
        let Worker { read, write, weights, lag, report, .. } = worker;
        let sample = run.rows.sample(turn.row);
        let intercept = run.intercept(turn.place(), lag, report, None)?;
        let (reads, writes) = run.sets(&sample, &sets);
        let read = room(read, reads.len() * run.width);
        let weights = run.gather(self.0, reads, read, weights);
        let write = room(write, writes.len() * run.width);
        let step = run.step(turn.lap, turn.position, intercept, weights);
        run.compute(&sample, &step, turn.place(), lag, (read, write));
        self.0.scatter(writes, write);
        worker.put_back(turn, sets);
        Ok(())
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, sets: &mut Sets) {
        run.prepare(self.0, position, sets);
    }
}
