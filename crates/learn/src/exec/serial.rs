//! One thread, in planned order, without anything between the task and its numbers: the reference that the other schemes are
//! held to. Specification: `specs/cop.md` 6.1. It shares no code with them but the task.

use super::TrainError;
use super::intercept::block_of;
use super::options::{Epoch, Mode, Options, SMALLEST, Steps, Stop};
use super::prefetch::prefetch;
use super::run::{SAMPLES_AHEAD, far, room};
use crate::data::{Rows, Value};
use crate::memory::collected;
use crate::task::{Rule, Sets, Step, Task};
use std::collections::VecDeque;

/// The state of a serial run.
pub(crate) struct Serial<'a, T, V> {
    pub(crate) task: &'a T,
    pub(crate) rows: Rows<'a, V>,
    pub(crate) order: Option<&'a [u32]>,
    pub(crate) weights: &'a [f32],
    pub(crate) values: Vec<f64>,
    pub(crate) intercept: f64,
    steps: Steps,
    /// What has become, by decay alone, of a weight of 1.
    scale: f64,
    mode: Mode,
    stop: Stop,
    /// What the samples of the last two blocks move the intercept by.
    lag: VecDeque<f64>,
    /// Samples of a block.
    block: usize,
    sets: Sets,
    read: Vec<f64>,
    write: Vec<f64>,
    shares: Vec<f32>,
}

/// Samples ahead that are prefetched.
const AHEAD: usize = 2;

impl<'a, T: Task, V: Value> Serial<'a, T, V> {
    pub(crate) fn new(
        task: &'a T,
        rows: Rows<'a, V>,
        order: Option<&'a [u32]>,
        weights: &'a [f32],
        values: &[f64],
        intercept: f64,
        options: &Options,
    ) -> Self {
        Serial {
            task,
            rows,
            order,
            weights,
            values: collected(values.iter().copied()),
            intercept,
            steps: Steps::new(options, rows.labels.len() as u32),
            scale: 1.0,
            mode: options.mode,
            stop: options.stop.clone(),
            lag: VecDeque::new(),
            block: block_of(rows.labels.len()) as usize,
            sets: Sets::default(),
            read: Vec::new(),
            write: Vec::new(),
            shares: Vec::new(),
        }
    }

    fn row(&self, position: usize) -> usize {
        self.order.map_or(position, |order| order[position] as usize)
    }

    /// One pass over all samples.
    ///
    /// # Errors
    /// [`TrainError::Interrupted`].
    pub(crate) fn epoch(&mut self, number: u32) -> Result<(), TrainError> {
        let epoch = self.steps.epoch(number);
        let samples = self.rows.labels.len();
        let far = far(&self.rows);
        for position in 0..samples {
            if far && position + SAMPLES_AHEAD < samples {
                self.rows.prefetch(self.row(position + SAMPLES_AHEAD));
            }
            if position + AHEAD < samples && self.task.rule() == Rule::Features && self.task.width() == 1 {
                for &feature in self.rows.sample(self.row(position + AHEAD)).features {
                    prefetch(&self.values[feature as usize]);
                    if let Some(weight) = self.weights.get(feature as usize) {
                        prefetch(weight);
                    }
                }
            }
            if self.stop.is_asked() {
                return Err(TrainError::Interrupted);
            }
            self.sample(&epoch, position);
            if self.scale < SMALLEST {
                self.rescale();
            }
        }
        self.rescale();
        if self.mode == Mode::Reset {
            self.finish();
        }
        Ok(())
    }

    /// Takes the scale into the values.
    fn rescale(&mut self) {
        let scale = std::mem::replace(&mut self.scale, 1.0);
        if scale != 1.0 {
            self.values.iter_mut().for_each(|value| *value *= scale);
        }
    }

    /// Adds what lags behind to the intercept.
    pub(crate) fn finish(&mut self) {
        for by in self.lag.drain(..) {
            self.intercept -= by;
        }
    }

    fn sample(&mut self, epoch: &Epoch, position: usize) {
        let row = self.row(position);
        let sample = self.rows.sample(row);
        let size = self.steps.size(epoch, position as u32);
        if self.task.intercept() {
            // Where a block begins: of what came before, only the block right before it is not in the intercept yet.
            if self.lag.len() == 2 * self.block {
                for by in self.lag.drain(..self.block) {
                    self.intercept -= by;
                }
            }
        }
        let width = self.task.width();
        let (reads, writes) = match self.task.rule() {
            Rule::Features => (sample.features, sample.features),
            Rule::Own(_) => {
                self.sets.reads.clear();
                self.sets.writes.clear();
                self.task.sets(&sample, &mut self.sets);
                (&self.sets.reads[..], &self.sets.writes[..])
            }
        };
        let read = room(&mut self.read, reads.len() * width);
        for (out, &parameter) in read.chunks_exact_mut(width.max(1)).zip(reads) {
            out.copy_from_slice(&self.values[parameter as usize * width..][..width]);
        }
        let shares = room(&mut self.shares, if self.weights.is_empty() { 0 } else { reads.len() });
        for (share, &parameter) in shares.iter_mut().zip(reads) {
            *share = self.weights[parameter as usize];
        }
        let write = room(&mut self.write, writes.len() * width);
        let after = self.scale * self.steps.leaves(size);
        let step = Step { size, intercept: self.intercept, weights: shares, scale: [self.scale, after] };
        let derivative = self.task.compute(&sample, &step, read, write);
        for (new, &parameter) in write.chunks_exact(width.max(1)).zip(writes) {
            self.values[parameter as usize * width..][..width].copy_from_slice(new);
        }
        self.scale = after;
        if self.task.intercept() {
            self.lag.push_back(size * derivative);
        }
    }
}
