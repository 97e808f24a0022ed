//! Learns from stitched batches, in order.

use crate::exec::{Model, Schedule};
use crate::global::center::{CenterOptions, Ordered};
use crate::global::serial::Serial;
use crate::plan::{Annotations, Stitched};
use crate::task::Task;

/// Why a batch was not learnt from.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum LearnError {
    /// A plan that does not belong where it was stitched.
    #[error(
        "transaction {transaction} waits for {what} of parameter {parameter} to be {expected}, and it is {observed}: the plan \
         of its batch does not belong behind the batches before it"
    )]
    Plan {
        /// The transaction, counted from 1 since the last mark.
        transaction: u64,
        /// `the version` or `the readers`.
        what: &'static str,
        /// Whose.
        parameter: u32,
        /// What the plan says.
        expected: u32,
        /// What it is.
        observed: u32,
    },
}

/// One thread, which checks that every annotation holds when its turn comes.
#[derive(Debug)]
pub(crate) struct Learner {
    serial: Serial,
    schedule: Schedule,
    /// Version and readers of each parameter.
    heads: Vec<(u32, u32)>,
}

impl Learner {
    pub(crate) fn new<T: Task>(task: &T, model: Model, seen: u64, options: &CenterOptions) -> Learner {
        let heads = vec![(0, 0); task.parameters(options.features) as usize];
        Learner { serial: Serial::new(model, seen), schedule: options.schedule, heads }
    }

    /// Learns from batches that were stitched in this order.
    pub(crate) fn learn<T: Task>(&mut self, task: &T, batches: &[Ordered]) -> Result<(), LearnError> {
        for batch in batches {
            self.check(&batch.stitched, batch.data.offsets(), batch.data.features())?;
            self.serial.learn(task, self.schedule, &batch.data, &batch.weights);
        }
        Ok(())
    }

    /// Makes up for what lags behind, and begins versions again at 0.
    pub(crate) fn settle(&mut self) {
        self.serial.settle();
        self.heads.fill((0, 0));
    }

    /// The model as it were if it settled now.
    pub(crate) fn model(&self) -> Model {
        self.serial.settled()
    }

    /// Samples learnt from.
    pub(crate) fn seen(&self) -> u64 {
        self.serial.seen
    }

    fn check(&mut self, stitched: &Stitched, offsets: &[u64], features: &[u32]) -> Result<(), LearnError> {
        let base = stitched.base;
        for at in 0..stitched.plan.transactions as usize {
            let own = base.wrapping_add(at as u32 + 1);
            let expect = |what, parameter, expected: u32, observed: u32| match expected == observed {
                true => Ok(()),
                false => {
                    let transaction = u64::from(base) + at as u64 + 1;
                    Err(LearnError::Plan { transaction, what, parameter, expected, observed })
                }
            };
            match &stitched.plan.annotations {
                Annotations::Compact(versions) => {
                    let entries = offsets[at] as usize..offsets[at + 1] as usize;
                    for (&parameter, &version) in features[entries.clone()].iter().zip(&versions[entries]) {
                        let head = &mut self.heads[parameter as usize];
                        expect("the version", parameter, base.wrapping_add(version), head.0)?;
                        head.0 = own;
                    }
                }
                Annotations::General { reads_at, reads, writes_at, writes } => {
                    for read in &reads[reads_at[at] as usize..reads_at[at + 1] as usize] {
                        let head = &mut self.heads[read.parameter as usize];
                        expect("the version", read.parameter, base.wrapping_add(read.version), head.0)?;
                        head.1 += 1;
                    }
                    for write in &writes[writes_at[at] as usize..writes_at[at + 1] as usize] {
                        let head = &mut self.heads[write.parameter as usize];
                        expect("the version", write.parameter, base.wrapping_add(write.writer), head.0)?;
                        expect("the readers", write.parameter, write.readers, head.1)?;
                        *head = (own, 0);
                    }
                }
            }
        }
        Ok(())
    }
}
