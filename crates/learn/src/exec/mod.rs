//! Execution: five schemes that learn the same task from the same samples, and differ in how threads keep out of each
//! other's way. Specification: `specs/cop.md` 4 and 6.
//!
//! Guaranteed under [`Scheme::Cop`]: the model is bit for bit that of [`Scheme::Serial`] in the planned order, for any number
//! of threads and any scheduling, as long as [`crate::Task::compute`] is deterministic. [`Scheme::Locking`] and [`Scheme::Occ`]
//! are serializable in an order found at run time (which they can record); [`Scheme::Hogwild`] is not serializable.
//!
//! No scheme reads parameters of others outside its own transactions: models are looked at between epochs only.

mod cells;
mod cop;
mod cycle;
#[cfg(test)]
mod explored;
mod first;
mod hogwild;
mod intercept;
mod lanes;
mod locking;
mod occ;
mod options;
mod ordered;
pub(crate) mod places;
mod pool;
pub(crate) mod prefetch;
#[cfg(test)]
mod progress;
pub(crate) mod roster;
mod run;
mod serial;
mod source;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod train;
mod transaction;
mod wanted;
mod window;

#[cfg(test)]
pub(crate) use intercept::block_of;
pub use options::{Mode, Options, Schedule, Scheme, Stop, UnknownScheme};
pub use pool::WorkerReport;
pub use stream::{Stream, StreamBatch};
pub use train::{After, train};
pub use window::{Window, put_back};

use crate::data::{Dataset, Rows, Value};
use crate::memory::{NoRoom, collected, zeros};
use crate::plan::{Plan, PlanError, PlanMismatch, SetsError};
use crate::task::{Rule, Sets, Task};
use std::cell::OnceCell;
use std::time::Duration;

/// What is learnt.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Model {
    /// [`Task::width`] numbers for each of [`Task::parameters`].
    pub parameters: Vec<f64>,
    /// Added to every prediction; 0 where the task has none.
    pub intercept: f64,
}

impl Model {
    /// All zeros, for data with this many features.
    pub fn zeros<T: Task>(task: &T, features: u32) -> Model {
        Model { parameters: zeros(task.parameters(features) as usize * task.width()), intercept: 0.0 }
    }
}

/// What is told after an epoch, or after all of them where there is no barrier between ([`Mode::Carry`]).
pub struct EpochEnd<'a> {
    /// Epochs done in this run.
    pub epoch: u32,
    /// Time spent on learning so far: neither planning nor what is done in these calls.
    pub elapsed: Duration,
    /// Time spent on planning so far.
    pub planning: Duration,
    parameters: usize,
    intercept: f64,
    export: &'a dyn Fn(&mut [f64]),
    model: OnceCell<Model>,
}

impl EpochEnd<'_> {
    /// The model as it is now. Copied when first asked for, so that whoever does not look pays nothing.
    pub fn model(&self) -> &Model {
        self.model.get_or_init(|| {
            let mut parameters = zeros(self.parameters);
            (self.export)(&mut parameters);
            Model { parameters, intercept: self.intercept }
        })
    }
}

/// What a run did.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Epochs done.
    pub epochs: u32,
    /// Time spent on learning, resets between epochs included; neither planning nor calls of `after`.
    pub elapsed: Duration,
    /// Time spent on each epoch; one number for all of them in [`Mode::Carry`].
    pub epoch_times: Vec<Duration>,
    /// Time spent on planning before the first epoch.
    pub planning: Duration,
    /// Threads that had samples to learn from: fewer than were asked for where so many are of no use, or where samples wait for one
    /// another so much that one does better.
    pub threads: usize,
    /// What each thread did.
    pub workers: Vec<WorkerReport>,
    /// The plan that this run made, if it did.
    pub plan: Option<Plan>,
    /// For each epoch, the rows in the order in which they were committed: [`Options::record`].
    pub commits: Vec<Vec<u32>>,
}

impl From<PlanError> for TrainError {
    fn from(error: PlanError) -> TrainError {
        match error {
            PlanError::Interrupted => TrainError::Interrupted,
            PlanError::NoRoom(error) => TrainError::NoRoom(error),
            PlanError::Mismatch(error) => TrainError::Plan(error),
            error @ (PlanError::TooLong(_) | PlanError::TooWide(_) | PlanError::Sets(_)) => {
                TrainError::Planning(error)
            }
        }
    }
}

/// Why a run gave no model. What it had learnt is discarded; the model is what it was before.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum TrainError {
    /// The plan is of other data or for another task.
    #[error(transparent)]
    Plan(#[from] PlanMismatch),
    /// The model has the wrong size.
    #[error(
        "the model has {found} numbers, where task and data want {wanted}: begin with Model::zeros, or load the model of this task"
    )]
    Model {
        /// Numbers of the model.
        found: usize,
        /// Numbers it must have.
        wanted: usize,
    },
    /// A number of the model is infinite or not a number.
    #[error("the model's number {at} is {found}, from which nothing can be learnt")]
    NotFinite {
        /// Place among the parameters; their number for the intercept.
        at: usize,
        /// What stands there.
        found: f64,
    },
    /// More samples than versions can be told apart.
    #[error("{samples} samples are more than the {most} that a run can tell apart: train on them in batches")]
    TooMany {
        /// Samples of the data.
        samples: u32,
        /// The most there may be.
        most: u32,
    },
    /// Weights were to decay where they cannot.
    #[error("weights do not decay {0}: penalise them by features instead")]
    Decay(&'static str),
    /// Parameters were to be packed where they cannot.
    #[error("parameters are not packed {0}")]
    Packed(&'static str),
    /// An epoch was to begin with the versions of the one before.
    #[error(
        "versions stand where the last epoch left them: reset them, or carry them on, before the next epoch"
    )]
    NotReset,
    /// There is not the memory.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The data could not be planned.
    #[error(transparent)]
    Planning(PlanError),
    /// No thread made progress for [`Options::patience`].
    #[error(
        "no thread made progress: transaction {transaction} waits for {what} {number} to be {expected} and sees {observed}; \
         either the plan is not what these samples give, or transactions were not taken in planned order"
    )]
    Stuck {
        /// The transaction that waits, counted from 1.
        transaction: u64,
        /// What it waits for.
        what: &'static str,
        /// Which one.
        number: u64,
        /// What it must be.
        expected: u32,
        /// What it is.
        observed: u32,
    },
    /// Somebody has asked for the end, by [`Options::stop`].
    #[error("it was interrupted")]
    Interrupted,
    /// The system refused a thread.
    #[error(
        "the system refused thread {} of {threads}: {error}; train with fewer threads (--threads, n_jobs), or raise the limit \
         of processes (ulimit -u) or of memory (ulimit -v)", worker + 1
    )]
    Refused {
        /// Threads that were wanted.
        threads: usize,
        /// The one that was refused, counted from 0.
        worker: usize,
        /// What the system said.
        error: String,
    },
    /// A thread panicked, most likely in the task.
    #[error("worker {worker} panicked: {message}")]
    Panicked {
        /// The thread, counted from 0.
        worker: usize,
        /// What it said.
        message: String,
    },
}

/// One over the number of samples that touch each parameter, if the task wants to know.
fn weights<T: Task, V: Value>(
    task: &T,
    data: &Dataset<'_>,
    rows: &Rows<'_, V>,
    threads: usize,
) -> Result<Vec<f32>, SetsError> {
    if !task.weighted() {
        return Ok(Vec::new());
    }
    let degrees = match task.rule() {
        Rule::Features => data.degrees_by(threads),
        Rule::Own(_) => {
            let parameters = task.parameters(data.width());
            let mut degrees: Vec<u32> = zeros(parameters as usize);
            let mut sets = Sets::default();
            for row in 0..data.len() {
                sets.reads.clear();
                sets.writes.clear();
                task.sets(&rows.sample(row), &mut sets);
                // A parameter that is only read is touched too.
                for &parameter in &sets.reads {
                    let beyond = SetsError::Beyond { row, parameter, parameters };
                    *degrees.get_mut(parameter as usize).ok_or(beyond)? += 1;
                }
            }
            degrees
        }
    };
    Ok(weights_by_degree(&degrees))
}

/// The weights of parameters that so many samples touch.
fn weights_by_degree(degrees: &[u32]) -> Vec<f32> {
    collected(degrees.iter().map(|&degree| 1.0 / degree.max(1) as f32))
}
