//! One thread over the order log: what every centre's model is held to, and what a doubted model is audited with.

use std::collections::VecDeque;

use crate::data::{Dataset, Rows, Value};
use crate::exec::{Model, Schedule};
use crate::global::batch::{Batch, BatchError};
use crate::global::log::{Kind, LogError, OrderLog, Place, Record};
use crate::global::storage::Storage;
use crate::plan::sets_of;
use crate::task::{Rule, Sets, Step, Task};
use crate::with_rows;

/// Samples of a block of the intercept, which lags by two blocks as in every execution; as many as in an epoch of many samples, for
/// nobody knows how many there will be.
const BLOCK: usize = 64;

/// Why a log cannot be learnt from.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A batch in it, which was sound when it was taken.
    #[error("record {position} of the order log is no batch of this task: {error}")]
    Batch {
        /// Which record, from 0.
        position: u64,
        /// What is wrong with it.
        error: BatchError,
    },
}

/// What one thread learns from the order log, from its beginning, without any plan. A centre's model is bit for bit this; of
/// a centre of several tasks, the model of this one of them.
///
/// # Errors
/// If the log was begun with other settings or another task, or is damaged.
pub fn serial<T: Task, S: Storage>(
    storage: &mut S,
    task: &T,
    features: u32,
    schedule: Schedule,
) -> Result<Model, ReplayError> {
    let mut degrees = Degrees::new(task, features);
    let mut learner = Serial::new(Model::zeros(task, features), 0);
    let each = |record: Record, place: Place| {
        match record {
            Record::Mark => learner.settle(),
            Record::Batch(bytes) => {
                let position = place.position - 1;
                let batch = Batch::decode(&bytes, task, features);
                let batch = batch.map_err(|error| ReplayError::Batch { position, error })?.0;
                let weights = degrees.count(task, &batch.data);
                learner.learn(task, schedule, &batch.data, &weights);
            }
        }
        Ok::<(), ReplayError>(())
    };
    let kind = Kind::learning(std::slice::from_ref(task), features, schedule);
    OrderLog::read(storage, &kind, each)?;
    learner.settle();
    Ok(learner.model)
}

/// How many samples touched each parameter so far, where the task weighs by it. A batch's own samples count before any of
/// them is learnt from, so weights are functions of the order log (specs/cop.md 5).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Degrees {
    /// Empty where the task does not ask.
    pub(crate) counts: Vec<u32>,
}

impl Degrees {
    pub(crate) fn new<T: Task>(task: &T, features: u32) -> Degrees {
        let parameters = if task.weighted() { task.parameters(features) as usize } else { 0 };
        Degrees { counts: vec![0; parameters] }
    }

    /// Counts a batch, and returns the weight of each of its reads, in their order.
    pub(crate) fn count<T: Task>(&mut self, task: &T, data: &Dataset<'_>) -> Vec<f32> {
        if self.counts.is_empty() {
            return Vec::new();
        }
        let mut reads = Vec::new();
        let read: &[u32] = match task.rule() {
            Rule::Features => data.features(),
            Rule::Own(_) => {
                let mut sets = Sets::default();
                with_rows!(data, rows => for row in 0..data.len() {
                    sets_of(task, &rows.sample(row), &mut sets);
                    reads.extend_from_slice(&sets.reads);
                });
                &reads
            }
        };
        for &parameter in read {
            let count = &mut self.counts[parameter as usize];
            *count = count.saturating_add(1);
        }
        read.iter().map(|&parameter| 1.0 / self.counts[parameter as usize] as f32).collect()
    }
}

/// The model as one thread learns it.
#[derive(Clone, Debug)]
pub(crate) struct Serial {
    pub(crate) model: Model,
    /// Samples learnt from.
    pub(crate) seen: u64,
    /// What the last two blocks of samples move the intercept by.
    lag: VecDeque<Vec<f64>>,
    /// Samples of a block.
    block: usize,
    sets: Sets,
    read: Vec<f64>,
    write: Vec<f64>,
}

impl Serial {
    pub(crate) fn new(model: Model, seen: u64) -> Serial {
        let (sets, read, write) = (Sets::default(), Vec::new(), Vec::new());
        Serial { model, seen, lag: VecDeque::new(), block: BLOCK, sets, read, write }
    }

    /// Learns from samples; `weights` of each of their reads, or none.
    pub(crate) fn learn<T: Task>(
        &mut self,
        task: &T,
        schedule: Schedule,
        data: &Dataset<'_>,
        weights: &[f32],
    ) {
        with_rows!(data, rows => self.rows(task, schedule, &rows, weights));
    }

    fn rows<T: Task, V: Value>(
        &mut self,
        task: &T,
        schedule: Schedule,
        rows: &Rows<'_, V>,
        mut weights: &[f32],
    ) {
        let width = task.width();
        for row in 0..rows.labels.len() {
            let sample = rows.sample(row);
            sets_of(task, &sample, &mut self.sets);
            let values = &mut self.model.parameters;
            self.read.clear();
            for &parameter in &self.sets.reads {
                self.read.extend_from_slice(&values[parameter as usize * width..][..width]);
            }
            let (own, others) = weights.split_at(if weights.is_empty() { 0 } else { self.sets.reads.len() });
            weights = others;
            let size = size(schedule, self.seen);
            let step = Step { size, intercept: self.model.intercept, weights: own, scale: [1.0; 2] };
            self.write.clear();
            self.write.resize(self.sets.writes.len() * width, 0.0);
            let derivative = task.compute(&sample, &step, &self.read, &mut self.write);
            for (place, &parameter) in self.sets.writes.iter().enumerate() {
                values[parameter as usize * width..][..width]
                    .copy_from_slice(&self.write[place * width..][..width]);
            }
            self.seen += 1;
            if task.intercept() {
                self.moved(size * derivative);
            }
        }
    }
}

impl Serial {
    /// Remembers what a sample moves the intercept by. The move counts from the block after the next one on.
    fn moved(&mut self, by: f64) {
        match self.lag.back_mut() {
            Some(block) if block.len() < self.block => block.push(by),
            _ => self.lag.push_back(vec![by]),
        }
        // The next sample begins a block: it sees all blocks but the one just completed.
        if self.lag.back().is_some_and(|block| block.len() == self.block) && self.lag.len() == 2 {
            for by in self.lag.pop_front().into_iter().flatten() {
                self.model.intercept -= by;
            }
        }
    }

    /// Adds what lags behind to the intercept: what a mark does.
    pub(crate) fn settle(&mut self) {
        for by in self.lag.drain(..).flatten() {
            self.model.intercept -= by;
        }
    }
}

/// Size of the step for the sample before which so many were learnt from. All samples of a stream are in its first epoch.
fn size(schedule: Schedule, seen: u64) -> f64 {
    match schedule {
        Schedule::Geometric { initial, .. } => initial,
        Schedule::Constant(size) => size,
        Schedule::InverseScaling { initial, power } => initial / (seen as f64 + 1.0).powf(power),
        Schedule::Optimal { alpha, t0 } => 1.0 / (alpha * (t0 + seen as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{Options, Scheme, block_of, train};
    use crate::plan::mixed::{self, Mixed};
    use std::ops::ControlFlow;

    /// [`Mixed`] with an intercept.
    struct Moved;

    impl Task for Moved {
        fn intercept(&self) -> bool {
            true
        }

        fn compute<V: Value>(
            &self,
            sample: &crate::Sample<'_, V>,
            step: &Step<'_>,
            read: &[f64],
            write: &mut [f64],
        ) -> f64 {
            let seen = Mixed(Rule::Features).compute(sample, step, read, write);
            (seen + step.intercept).sin()
        }
    }

    /// The executors' serial scheme and this one are written apart; they must agree on every bit.
    #[test]
    fn it_learns_what_the_serial_scheme_learns() {
        let rows: Vec<_> =
            (0..4_500_u32).map(|row| vec![(row % 8, 1.0), ((row + 1 + row / 3 % 6) % 8, 2.0)]).collect();
        let rows: Vec<Vec<_>> = rows
            .into_iter()
            .map(|mut row| {
                row.dedup_by_key(|entry| entry.0);
                row
            })
            .collect();
        let data = mixed::data(&rows);
        for samples in [0, 1, 63, 64, 65, 127, 128, 129, 191, 192, 193, 500, 4_225] {
            let data = data.slice(0..samples);
            let schedule = Schedule::InverseScaling { initial: 0.3, power: 0.5 };
            let mut model = Model::zeros(&Moved, mixed::WIDTH);
            let options = Options { scheme: Scheme::Serial, epochs: 1, schedule, ..Options::default() };
            train(&Moved, &data, None, &mut model, &options, &mut |_| ControlFlow::Continue(())).unwrap();
            let mut serial = Serial::new(Model::zeros(&Moved, mixed::WIDTH), 0);
            serial.block = block_of(samples) as usize;
            // In pieces, as batches come.
            for start in (0..samples).step_by(50) {
                serial.learn(&Moved, schedule, &data.slice(start..samples.min(start + 50)), &[]);
            }
            serial.settle();
            assert_eq!((&serial.model, serial.seen), (&model, samples as u64), "{samples} samples");
        }
    }
}
