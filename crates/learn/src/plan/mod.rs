//! The planned order of conflicts: for each read the version it must see, for each write the version it replaces and how
//! many must have read that one before. Specification: `specs/cop.md` 2 and 3.
//!
//! Transactions are numbered from 1 in the planned order; version 0 is what a parameter holds before any of them.

pub mod batch;
mod blocks;
pub mod file;
pub mod loading;
#[cfg(test)]
pub(crate) mod mixed;
pub mod statistics;
pub mod stitch;
mod verify;

pub use batch::{BatchPlanner, BatchTooLong, PlannedBatch};
pub use file::PlanFileError;
pub use loading::Planner;
pub use statistics::Statistics;
pub use stitch::{Stitched, Stitcher};

use crate::data::{Dataset, Sample, Value};
use crate::exec::places::Places;
use crate::exec::prefetch::prefetch;
use crate::exec::roster::{Kept, Roster};
use crate::memory::{self, NoRoom};
use crate::task::{Rule, Sets, Task};
use crate::with_rows;
use std::sync::Arc;

/// A read of the version that transaction `version` wrote.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReadOp {
    /// The parameter.
    pub parameter: u32,
    /// The transaction whose value must be seen; 0 for the initial one.
    pub version: u32,
}

/// A write that replaces what transaction `writer` wrote once `readers` reads of it were made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WriteOp {
    /// The parameter.
    pub parameter: u32,
    /// The transaction whose value is replaced; 0 for the initial one.
    pub writer: u32,
    /// Planned reads of that value, the transaction's own among them.
    pub readers: u32,
}

/// The annotations of all transactions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Annotations {
    /// Under [`Rule::Features`]: for each entry of the data, in its order, the version that is read and then replaced. The
    /// number of readers is always 1, the transaction itself. Four bytes an entry.
    Compact(Vec<u32>),
    /// For any rule. Transaction `i` (from 1) has the reads `reads_at[i - 1]..reads_at[i]`, and writes alike.
    General {
        /// n + 1 offsets into `reads`.
        reads_at: Vec<u64>,
        /// All reads.
        reads: Vec<ReadOp>,
        /// n + 1 offsets into `writes`.
        writes_at: Vec<u64>,
        /// All writes.
        writes: Vec<WriteOp>,
    },
}

/// A plan: valid for the data and the rule that it was made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    transactions: u32,
    parameters: u32,
    rule: u32,
    fingerprint: u64,
    order: Option<Vec<u32>>,
    annotations: Annotations,
    /// Who carries out what of it, and where parameters lie: follows from all of the above, and is forgotten where that is altered.
    kept: Kept,
}

impl Plan {
    /// Plans the samples in the order of the data, in one pass, in the form that is smallest for the task's rule.
    ///
    /// # Panics
    /// As [`Plan::general`], under [`Rule::Own`].
    pub fn of<T: Task>(task: &T, data: &Dataset<'_>) -> Plan {
        match task.rule() {
            Rule::Features => Plan::compact(data),
            Rule::Own(_) => Plan::general(task, data),
        }
    }

    /// The compact plan under [`Rule::Features`].
    pub fn compact(data: &Dataset<'_>) -> Plan {
        let mut last = memory::zeros(data.width() as usize);
        let mut versions = Vec::new();
        memory::reserve(&mut versions, data.entries());
        for row in 0..data.len() {
            replace_all(&mut last, row as u32 + 1, data.range(row), data.features(), |_, version| {
                versions.push(version);
            });
        }
        Plan::of_data(data, data.width(), Rule::Features, Annotations::Compact(versions))
    }

    /// The plan in the general form, for any rule: the reference that the compact one is held to.
    ///
    /// # Panics
    /// With a [`SetsError`] where the task tells sets that none may have; [`crate::train`], which plans too, answers an error.
    pub fn general<T: Task>(task: &T, data: &Dataset<'_>) -> Plan {
        Plan::checked(task, data).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, where it is not known whether the sets are some that a task may have.
    pub(crate) fn checked<T: Task>(task: &T, data: &Dataset<'_>) -> Result<Plan, SetsError> {
        let parameters = task.parameters(data.width());
        let mut last: Vec<u32> = memory::zeros(parameters as usize);
        let mut readers: Vec<u32> = memory::zeros(parameters as usize);
        let (mut reads_at, mut writes_at) = (vec![0], vec![0]);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut sets = Sets::default();
        with_rows!(data, rows => for row in 0..data.len() {
            sets_of(task, &rows.sample(row), &mut sets);
            let beyond = |parameter| SetsError::Beyond { row, parameter, parameters };
            for &parameter in &sets.reads {
                let &version = last.get(parameter as usize).ok_or_else(|| beyond(parameter))?;
                reads.push(ReadOp { parameter, version });
                readers[parameter as usize] += 1;
            }
            for &parameter in &sets.writes {
                let newest = last.get_mut(parameter as usize).ok_or_else(|| beyond(parameter))?;
                let writer = std::mem::replace(newest, row as u32 + 1);
                if writer == row as u32 + 1 {
                    return Err(SetsError::Twice { row, parameter });
                }
                let readers = std::mem::take(&mut readers[parameter as usize]);
                writes.push(WriteOp { parameter, writer, readers });
            }
            reads_at.push(reads.len() as u64);
            writes_at.push(writes.len() as u64);
        });
        let annotations = Annotations::General { reads_at, reads, writes_at, writes };
        Ok(Plan::of_data(data, parameters, task.rule(), annotations))
    }

    /// A plan of these samples in the order of the data.
    pub(crate) fn of_data(data: &Dataset<'_>, parameters: u32, rule: Rule, annotations: Annotations) -> Plan {
        Plan {
            transactions: data.len() as u32,
            parameters,
            rule: rule.id(),
            fingerprint: data.fingerprint(),
            order: None,
            annotations,
            kept: Kept::default(),
        }
    }

    /// The same for the rows in this order, which the annotations are of.
    pub(crate) fn in_order(self, order: Vec<u32>) -> Plan {
        Plan { order: Some(order), kept: Kept::default(), ..self }
    }

    /// Number of transactions, n.
    pub fn transactions(&self) -> u32 {
        self.transactions
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u32 {
        self.parameters
    }

    /// Whose sets were planned: [`Rule::id`].
    pub fn rule(&self) -> u32 {
        self.rule
    }

    /// [`Dataset::fingerprint`] of the data.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Row of each transaction in the planned order; `None` where that is the order of the data.
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// What each transaction waits for.
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// What each transaction waits for, of a plan that nobody needs any more.
    pub fn into_annotations(self) -> Annotations {
        self.annotations
    }

    /// What each transaction waits for, to be altered.
    pub(crate) fn annotations_mut(&mut self) -> &mut Annotations {
        self.kept = Kept::default();
        &mut self.annotations
    }

    /// Who carries out what of it, on so many threads; made if it is not there.
    pub(crate) fn roster(&self, threads: usize, chunk: u32, make: impl FnOnce() -> Roster) -> Arc<Roster> {
        self.kept.roster(threads, chunk, make)
    }

    /// Where its parameters lie, by how many of its samples touch them; made if it is not there.
    pub(crate) fn places(&self, shares: bool, make: impl FnOnce() -> Places) -> Arc<Places> {
        self.kept.places(shares, make)
    }

    /// Whether it was made of these samples for a task of this rule; else what differs.
    ///
    /// # Errors
    /// What differs. Whether the annotations are those of the samples is not looked at: [`Plan::validate`].
    pub fn check<T: Task>(&self, task: &T, data: &Dataset<'_>) -> Result<(), PlanMismatch> {
        if self.rule != task.rule().id() {
            return Err(PlanMismatch::Rule { plan: self.rule, task: task.rule().id() });
        }
        let (plan, task) = (self.parameters, task.parameters(data.width()));
        // Another number of features is another fingerprint, which would say less.
        if self.transactions as usize == data.len() && plan != task {
            return Err(PlanMismatch::Parameters { plan, task });
        }
        self.check_data(data)
    }

    /// Whether it has the sets that the task tells of each sample, which under a rule of its own may follow from values and labels,
    /// that the fingerprint is not of. For a plan that [`Plan::validate`] finds nothing in.
    ///
    /// # Errors
    /// The first row that has others.
    pub fn check_sets<T: Task>(&self, task: &T, data: &Dataset<'_>) -> Result<(), PlanMismatch> {
        let Annotations::General { reads_at, reads, writes_at, writes } = &self.annotations else {
            return Ok(());
        };
        let mut sets = Sets::default();
        with_rows!(data, rows => for at in 0..data.len() {
            let row = self.order.as_ref().map_or(at, |order| order[at] as usize);
            sets_of(task, &rows.sample(row), &mut sets);
            let reads = &reads[reads_at[at] as usize..reads_at[at + 1] as usize];
            let writes = &writes[writes_at[at] as usize..writes_at[at + 1] as usize];
            let same = reads.iter().map(|read| read.parameter).eq(sets.reads.iter().copied())
                && writes.iter().map(|write| write.parameter).eq(sets.writes.iter().copied());
            if !same {
                return Err(PlanMismatch::Sets { row });
            }
        });
        Ok(())
    }

    /// Whether it was made of these samples.
    pub(crate) fn check_data(&self, data: &Dataset<'_>) -> Result<(), PlanMismatch> {
        let entries = match &self.annotations {
            Annotations::Compact(versions) => versions.len(),
            Annotations::General { .. } => data.entries(),
        };
        if self.transactions as usize != data.len()
            || entries != data.entries()
            || self.fingerprint != data.fingerprint()
        {
            return Err(PlanMismatch::Data { plan: self.transactions, data: data.len() });
        }
        Ok(())
    }

    /// Its size in bytes: annotations, and the order where there is one. What a run finds out of it and leaves with it comes on top:
    /// nine bytes a sample where several threads learn, and four an entry ([`crate::Options::packed`], eight with weights).
    pub fn bytes(&self) -> u64 {
        let annotations = match &self.annotations {
            Annotations::Compact(versions) => size_of_val(&versions[..]),
            Annotations::General { reads_at, reads, writes_at, writes } => {
                size_of_val(&reads_at[..])
                    + size_of_val(&reads[..])
                    + size_of_val(&writes_at[..])
                    + size_of_val(&writes[..])
            }
        };
        (annotations + self.order.as_ref().map_or(0, |order| size_of_val(&order[..]))) as u64
    }
}

/// Has `transaction` be the last one for the features of these entries, and hands `each` the entry and the one before.
/// The numbers of later entries are asked for early: which they are is known, and they lie all over the memory.
#[inline(always)]
pub(crate) fn replace_all(
    last: &mut [u32],
    transaction: u32,
    entries: std::ops::Range<usize>,
    features: &[u32],
    mut each: impl FnMut(usize, u32),
) {
    for entry in entries {
        if let Some(&ahead) = features.get(entry + AHEAD) {
            prefetch(&last[ahead as usize]);
        }
        each(entry, std::mem::replace(&mut last[features[entry] as usize], transaction));
    }
}

/// Entries between a number's being asked for and its use: some hundred nanoseconds of planning.
pub(crate) const AHEAD: usize = 48;

/// The read and write sets of a sample under the task's rule.
pub(crate) fn sets_of<T: Task, V: Value>(task: &T, sample: &Sample<'_, V>, sets: &mut Sets) {
    sets.reads.clear();
    sets.writes.clear();
    match task.rule() {
        Rule::Features => {
            sets.reads.extend_from_slice(sample.features);
            sets.writes.extend_from_slice(sample.features);
        }
        Rule::Own(_) => task.sets(sample, sets),
    }
}

/// So many features want more memory than there is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{features} features want {:.1} GiB of memory at a time, which is not there: hash them into fewer, or, if there should not \
     be so many, look for an index that is mistyped",
    *bytes as f64 / f64::from(1 << 30)
)]
pub struct TooWide {
    /// How many features there are.
    pub features: u32,
    /// What they want together.
    pub bytes: u64,
}

impl TooWide {
    /// Refuses what would not be there.
    ///
    /// # Errors
    /// If the system would not give so many bytes.
    pub fn check(features: u32, bytes: u64) -> Result<(), TooWide> {
        if memory::can_hold(bytes) { Ok(()) } else { Err(TooWide { features, bytes }) }
    }
}

/// A sample's sets are none that a task may tell.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetsError {
    /// There is no such parameter.
    #[error(
        "row {row} touches parameter {parameter} of a task that has {parameters}, counted from 0: Task::parameters must be above \
         all that are touched"
    )]
    Beyond {
        /// The sample.
        row: usize,
        /// The parameter that it reads or writes.
        parameter: u32,
        /// How many the task has.
        parameters: u32,
    },
    /// A sample writes once what it writes.
    #[error("row {row} has parameter {parameter} twice in its write set: Task::sets must name each once")]
    Twice {
        /// The sample.
        row: usize,
        /// The parameter that it writes.
        parameter: u32,
    },
}

impl SetsError {
    /// The same where so many rows stand before those that were counted.
    fn behind(mut self, rows: usize) -> SetsError {
        let (SetsError::Beyond { row, .. } | SetsError::Twice { row, .. }) = &mut self;
        *row += rows;
        self
    }
}

/// Why samples are not planned, or a plan is not looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    /// A block has too many entries.
    #[error(transparent)]
    TooLong(#[from] BatchTooLong),
    /// There is not the memory.
    #[error(transparent)]
    TooWide(#[from] TooWide),
    /// There is not the memory for the plan.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The task's sets are none that it may tell.
    #[error(transparent)]
    Sets(#[from] SetsError),
    /// The plan is of other samples.
    #[error(transparent)]
    Mismatch(#[from] PlanMismatch),
    /// Somebody has asked for the end.
    #[error("it was interrupted")]
    Interrupted,
}

/// Why a plan does not fit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanMismatch {
    /// It was made for other read and write sets.
    #[error("the plan is for rule {plan}, the task's rule is {task}: plan the data for this task")]
    Rule {
        /// Rule of the plan.
        plan: u32,
        /// Rule of the task.
        task: u32,
    },
    /// It was made for another number of parameters.
    #[error("the plan is for {plan} parameters, the task has {task}: plan the data for this task")]
    Parameters {
        /// Of the plan.
        plan: u32,
        /// Of the task.
        task: u32,
    },
    /// It was made of samples that touch other parameters.
    #[error(
        "the plan is of other data: row {row} does not touch the parameters that it has planned: plan this data"
    )]
    Sets {
        /// The first row that is another one.
        row: usize,
    },
    /// It was made of other samples.
    #[error("the plan is of other data{}: plan this data", samples(*plan, *data))]
    Data {
        /// Samples of the plan.
        plan: u32,
        /// Samples at hand.
        data: usize,
    },
}

/// What tells two sets of samples apart, where their number does.
fn samples(plan: u32, data: usize) -> String {
    if plan as usize == data {
        return format!(": of {data} samples, as these are, but not with entries at the same places");
    }
    format!(" (it has {plan} samples, the data {data})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Values;
    use crate::task::Step;

    #[test]
    fn a_plan_of_other_data_says_how_it_differs() {
        let text = |plan, data| PlanMismatch::Data { plan, data }.to_string();
        assert_eq!(text(3, 5), "the plan is of other data (it has 3 samples, the data 5): plan this data");
        assert_eq!(
            text(5, 5),
            "the plan is of other data: of 5 samples, as these are, but not with entries at the same places: plan this data"
        );
    }

    #[test]
    fn no_rule_of_a_task_is_taken_for_that_of_the_features() {
        let data = mixed::data(&[vec![(0, mixed::BOTH)], vec![(0, mixed::READ), (1, mixed::BOTH)]]);
        let (features, own) = (mixed::Mixed(Rule::Features), mixed::Mixed(Rule::Own(0)));
        let mismatch = |plan, task| Err(PlanMismatch::Rule { plan, task });
        for plan in [Plan::compact(&data), Plan::general(&features, &data)] {
            assert_eq!(plan.check(&features, &data), Ok(()));
            assert_eq!(plan.check(&own, &data), mismatch(0, u32::MAX));
        }
        let plan = Plan::of(&own, &data);
        assert_eq!(plan.check(&own, &data), Ok(()));
        assert_eq!(plan.check(&features, &data), mismatch(u32::MAX, 0));
        // Plans of other rules that were saved before are read as ever.
        assert_eq!(Rule::Own(7).id(), 7);
    }

    #[test]
    fn more_features_than_there_is_memory_for_are_refused() {
        assert_eq!(TooWide::check(7, 28), Ok(()));
        assert_eq!(
            TooWide::check(u32::MAX, 1 << 60).unwrap_err().to_string(),
            "4294967295 features want 1073741824.0 GiB of memory at a time, which is not there: hash them into fewer, or, if \
             there should not be so many, look for an index that is mistyped"
        );
    }

    struct Touch;

    impl Task for Touch {
        fn compute<V: Value>(&self, _: &Sample<'_, V>, _: &Step<'_>, read: &[f64], write: &mut [f64]) -> f64 {
            write.copy_from_slice(read);
            0.0
        }
    }

    /// T-COP-01: Figure 6.3: the first and the third transaction touch p, the second q.
    #[test]
    fn the_published_example() {
        let values = Values::F32(vec![1.0; 3].into());
        let data = Dataset::new(vec![0, 1, 2, 3], vec![0, 1, 0], values, vec![1.0; 3], 2).unwrap();
        let plan = Plan::of(&Touch, &data);
        assert_eq!(plan.annotations, Annotations::Compact(vec![0, 0, 1]));
        let Annotations::General { reads, writes, .. } = Plan::general(&Touch, &data).into_annotations()
        else {
            unreachable!("it was asked for")
        };
        let versions: Vec<_> = reads.iter().map(|read| (read.parameter, read.version)).collect();
        assert_eq!(versions, [(0, 0), (1, 0), (0, 1)]);
        let replaced: Vec<_> =
            writes.iter().map(|write| (write.parameter, write.writer, write.readers)).collect();
        assert_eq!(replaced, [(0, 0, 1), (1, 0, 1), (0, 1, 1)]);
    }

    /// Else threads would carry out the plan that it was before.
    #[test]
    fn what_threads_made_of_a_plan_goes_when_it_is_altered() {
        let values = Values::F32(vec![1.0; 3].into());
        let data = Dataset::new(vec![0, 1, 2, 3], vec![0, 1, 0], values, vec![1.0; 3], 2).unwrap();
        let made = |plan: &Plan| {
            let (mut roster, mut places) = (false, false);
            plan.roster(2, 0, || {
                roster = true;
                Roster::default()
            });
            plan.places(false, || {
                places = true;
                Places::new(&data, false, 1)
            });
            assert_eq!(roster, places);
            roster
        };
        let planned = BatchPlanner::new().compact(&data).unwrap();
        assert!(made(&planned.plan) && !made(&planned.plan));
        let stitched = Stitcher::new(Rule::Features.id(), 2).stitch(planned).unwrap();
        assert!(made(&stitched.plan) && !made(&stitched.plan));
        let plan = stitched.absolute();
        assert!(made(&plan) && !made(&plan));
        let plan = plan.in_order(vec![2, 1, 0]);
        assert!(made(&plan) && !made(&plan));
    }
}
