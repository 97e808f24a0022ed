//! Putting planned blocks one behind the other, so that no barrier is needed between them. Specification: 3.4, carry mode.
//!
//! A transaction's number is then its place in its block plus the number of transactions before the block (`base`). Three
//! things change in a block: references to its own transactions grow by `base`; references to "whatever was there before"
//! become the last writer of an earlier block; and the first write of a parameter must also wait for the planned readers
//! that the earlier blocks left behind (without them it would overwrite too early, or never).
//!
//! The first is left to whoever executes: annotations are stored *relative to `base`*, so a reference into an earlier block
//! is a difference that wraps around, and only first touches need work here, one step for each. So this stage costs
//! O(first touches), and runs far ahead of the execution.

use crate::exec::prefetch::prefetch;
use crate::memory::zeros;
use crate::plan::batch::{PlannedBatch, Seams};
use crate::plan::{AHEAD, Annotations, Plan};

/// A planned block at its place behind all earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stitched {
    /// Transactions in the blocks before: its own are numbered from `base + 1`.
    pub base: u32,
    /// Versions and writers are relative: the transaction meant is `base.wrapping_add(annotation)`. Reader counts are
    /// absolute.
    pub plan: Plan,
}

impl Stitched {
    /// The plan with the numbers of all transactions written out: what [`Plan`] would say of these samples had all blocks
    /// been planned in one pass.
    pub fn absolute(mut self) -> Plan {
        let base = self.base;
        match self.plan.annotations_mut() {
            Annotations::Compact(versions) => {
                versions.iter_mut().for_each(|version| *version = base.wrapping_add(*version));
            }
            Annotations::General { reads, writes, .. } => {
                reads.iter_mut().for_each(|read| read.version = base.wrapping_add(read.version));
                writes.iter_mut().for_each(|write| write.writer = base.wrapping_add(write.writer));
            }
        }
        self.plan
    }
}

/// Why a block cannot be put behind the others.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StitchError {
    /// Its plan is for other read and write sets than the blocks before it.
    #[error(
        "the batch is planned for rule {found}, the batches before it for rule {wanted}: plan it for this task"
    )]
    Rule {
        /// The rule of its plan.
        found: u32,
        /// The rule of the blocks before it.
        wanted: u32,
    },
    /// It has more parameters than the model.
    #[error("the batch is planned for {found} parameters, the model has {wanted}: plan it for this model")]
    Parameters {
        /// Of its plan.
        found: u32,
        /// Of the model.
        wanted: u32,
    },
    /// Transactions are numbered with 32 bits, and these are used up.
    #[error(
        "{base} transactions and the batch's {batch} are more than 32 bits can number: let all of them finish, then reset"
    )]
    Full {
        /// Transactions so far.
        base: u32,
        /// Transactions of the block.
        batch: u32,
    },
}

/// Puts planned blocks behind one another. Keeps, for each parameter, its last planned writer and the planned readers of
/// what that one wrote: eight bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stitcher {
    rule: u32,
    base: u32,
    writers: Vec<u32>,
    readers: Vec<u32>,
}

impl Stitcher {
    /// For blocks planned under the rule of this number ([`crate::Rule::id`]), over this many parameters.
    pub fn new(rule: u32, parameters: u32) -> Stitcher {
        Stitcher { rule, base: 0, writers: zeros(parameters as usize), readers: zeros(parameters as usize) }
    }

    /// Transactions of all blocks so far.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// The last planned writer of each parameter; 0 where there is none.
    pub fn writers(&self) -> &[u32] {
        &self.writers
    }

    /// The planned readers of what [`Stitcher::writers`] wrote: what the counter of each parameter stands at once all
    /// blocks are executed.
    pub fn readers(&self) -> &[u32] {
        &self.readers
    }

    /// Puts a block behind all blocks so far.
    ///
    /// # Errors
    /// If the block does not fit; nothing has changed then. At [`StitchError::Full`], finish what was stitched, call
    /// [`Stitcher::reset`], and begin again with versions and counters of 0.
    pub fn stitch(&mut self, batch: PlannedBatch) -> Result<Stitched, StitchError> {
        let PlannedBatch { mut plan, seams } = batch;
        if plan.rule != self.rule {
            return Err(StitchError::Rule { found: plan.rule, wanted: self.rule });
        }
        if plan.parameters as usize > self.writers.len() {
            let wanted = self.writers.len() as u32;
            return Err(StitchError::Parameters { found: plan.parameters, wanted });
        }
        let base = self.base;
        let Some(end) = base.checked_add(plan.transactions) else {
            return Err(StitchError::Full { base, batch: plan.transactions });
        };
        match plan.annotations_mut() {
            Annotations::Compact(versions) => self.compact(versions, &seams),
            Annotations::General { reads, writes, .. } => {
                // specs/cop.md 3.4: all annotations first, the carried state after them.
                for &place in &seams.reads {
                    let read = &mut reads[place as usize];
                    read.version = self.writers[read.parameter as usize].wrapping_sub(base);
                }
                for &place in &seams.writes {
                    let write = &mut writes[place as usize];
                    write.writer = self.writers[write.parameter as usize].wrapping_sub(base);
                    write.readers += self.readers[write.parameter as usize];
                }
                for (end, &readers) in seams.ends.iter().zip(&seams.readers) {
                    let parameter = end.parameter as usize;
                    if end.writer == 0 {
                        self.readers[parameter] += readers;
                    } else {
                        self.writers[parameter] = base + end.writer;
                        self.readers[parameter] = readers;
                    }
                }
            }
        }
        self.base = end;
        Ok(Stitched { base, plan })
    }

    /// Every parameter touched is read and written by each transaction that touches it, so no readers are ever left behind,
    /// and a first touch needs the last writer only.
    fn compact(&mut self, versions: &mut [u32], seams: &Seams) {
        let (base, writers) = (self.base, &mut self.writers[..]);
        // What is written next lies all over the memory, and is asked for early.
        let ahead =
            seams.ends.iter().skip(AHEAD).map(|end| Some(end.parameter)).chain(std::iter::repeat(None));
        for ((&place, end), ahead) in seams.reads.iter().zip(&seams.ends).zip(ahead) {
            if let Some(ahead) = ahead {
                prefetch(&writers[ahead as usize]);
            }
            let last = std::mem::replace(&mut writers[end.parameter as usize], base + end.writer);
            versions[place as usize] = last.wrapping_sub(base);
        }
    }

    /// Begins again at transaction 1, all parameters unwritten: allowed only when everything stitched is executed, and
    /// versions and counters of the parameters are set to 0 too.
    pub fn reset(&mut self) {
        self.base = 0;
        self.writers.fill(0);
        self.readers.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::batch::BatchPlanner;
    use crate::plan::mixed::{self, Mixed};
    use crate::task::Rule;
    use proptest::prelude::*;

    /// One plan of everything, from blocks: annotations one after the other, all numbers absolute.
    fn chained(parts: Vec<Plan>) -> Annotations {
        let mut parts = parts.into_iter().map(|part| part.annotations);
        let first = parts.next().unwrap();
        parts.fold(first, |sum, part| match (sum, part) {
            (Annotations::Compact(mut sum), Annotations::Compact(part)) => {
                sum.extend(part);
                Annotations::Compact(sum)
            }
            (
                Annotations::General { mut reads_at, mut reads, mut writes_at, mut writes },
                Annotations::General { reads_at: ra, reads: r, writes_at: wa, writes: w },
            ) => {
                reads_at.extend(ra[1..].iter().map(|at| at + reads.len() as u64));
                writes_at.extend(wa[1..].iter().map(|at| at + writes.len() as u64));
                reads.extend(r);
                writes.extend(w);
                Annotations::General { reads_at, reads, writes_at, writes }
            }
            _ => unreachable!("one form for all blocks"),
        })
    }

    fn stitched(rows: &[Vec<(u32, f64)>], cuts: &[usize], rule: Rule) -> (Annotations, Stitcher) {
        let mut stitcher = Stitcher::new(rule.id(), mixed::WIDTH);
        let mut planner = BatchPlanner::new();
        let mut edges: Vec<usize> = cuts.iter().map(|cut| cut % (rows.len() + 1)).collect();
        edges.extend([0, rows.len()]);
        edges.sort_unstable();
        let parts = edges.windows(2).map(|edge| {
            let data = mixed::data(&rows[edge[0]..edge[1]]);
            let batch = planner.plan(&Mixed(rule), &data).unwrap();
            stitcher.stitch(batch).unwrap().absolute()
        });
        let parts = parts.collect();
        (chained(parts), stitcher)
    }

    proptest! {
        /// T-COP-04, any sets: blind writes, parameters that are read and never written, empty blocks.
        #[test]
        fn blocks_that_are_stitched_are_one_plan(rows in mixed::rows(), cuts in prop::collection::vec(0..64_usize, 0..8)) {
            let task = Mixed(Rule::Own(7));
            let (annotations, stitcher) = stitched(&rows, &cuts, Rule::Own(7));
            let whole = Plan::general(&task, &mixed::data(&rows));
            prop_assert_eq!(annotations, whole.annotations);
            let left = BatchPlanner::new().general(&task, &mixed::data(&rows)).unwrap().seams;
            let mut carried = Stitcher::new(7, mixed::WIDTH);
            carried.base = rows.len() as u32;
            for (end, readers) in left.ends.into_iter().zip(left.readers) {
                carried.writers[end.parameter as usize] = end.writer;
                carried.readers[end.parameter as usize] = readers;
            }
            prop_assert_eq!(stitcher, carried);
        }

        /// T-COP-04, the compact form.
        #[test]
        fn compact_blocks_that_are_stitched_are_one_plan(rows in mixed::rows(), cuts in prop::collection::vec(0..64_usize, 0..8)) {
            let (annotations, stitcher) = stitched(&rows, &cuts, Rule::Features);
            let data = mixed::data(&rows);
            prop_assert_eq!(annotations, Plan::compact(&data).annotations);
            prop_assert!(stitcher.readers().iter().all(|&readers| readers == 0));
            let ends = BatchPlanner::new().compact(&data).unwrap().seams.ends;
            prop_assert!(ends.iter().all(|end| stitcher.writers()[end.parameter as usize] == end.writer));
        }

        /// T-COP-03: both forms of a block say the same, and leave the same.
        #[test]
        fn compact_and_general_blocks_agree(rows in mixed::rows()) {
            let (task, data) = (Mixed(Rule::Features), mixed::data(&rows));
            let compact = BatchPlanner::new().compact(&data).unwrap();
            let general = BatchPlanner::new().general(&task, &data).unwrap();
            prop_assert_eq!(&compact.seams.ends, &general.seams.ends);
            prop_assert!(compact.seams.readers.is_empty() && general.seams.readers.iter().all(|&readers| readers == 0));
            prop_assert_eq!(&compact.seams.reads, &general.seams.reads);
            let Annotations::Compact(versions) = compact.plan.annotations else { unreachable!() };
            let Annotations::General { reads, writes, .. } = general.plan.annotations else { unreachable!() };
            prop_assert_eq!(&versions, &reads.iter().map(|read| read.version).collect::<Vec<_>>());
            prop_assert_eq!(&versions, &writes.iter().map(|write| write.writer).collect::<Vec<_>>());
            prop_assert!(writes.iter().all(|write| write.readers == 1));
        }

        /// I5: every planned read is waited for by exactly one writer, or is left for the next block.
        #[test]
        fn no_reader_is_lost(rows in mixed::rows(), cuts in prop::collection::vec(0..64_usize, 0..8)) {
            let (annotations, stitcher) = stitched(&rows, &cuts, Rule::Own(7));
            let Annotations::General { reads, writes, .. } = annotations else { unreachable!() };
            let awaited: u32 = writes.iter().map(|write| write.readers).sum();
            prop_assert_eq!((awaited + stitcher.readers().iter().sum::<u32>()) as usize, reads.len());
        }
    }

    /// The mutant of T-COP-16 that forgets the carried readers: the second block's writer would not wait for the first
    /// block's reader. Here it does.
    #[test]
    fn a_first_writer_waits_for_the_readers_of_earlier_blocks() {
        let task = Mixed(Rule::Own(7));
        let mut stitcher = Stitcher::new(7, mixed::WIDTH);
        let mut planner = BatchPlanner::new();
        let read = mixed::data(&[vec![(3, mixed::READ)], vec![(3, mixed::READ)]]);
        let write = mixed::data(&[vec![(3, mixed::WRITE)]]);
        stitcher.stitch(planner.plan(&task, &read).unwrap()).unwrap();
        assert_eq!(stitcher.readers()[3], 2);
        let second = stitcher.stitch(planner.plan(&task, &write).unwrap()).unwrap().absolute();
        let Annotations::General { writes, .. } = second.annotations else { unreachable!() };
        assert_eq!((writes[0].writer, writes[0].readers), (0, 2));
        assert_eq!((stitcher.writers()[3], stitcher.readers()[3], stitcher.base()), (3, 0, 3));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let task = Mixed(Rule::Features);
        let batch = BatchPlanner::new().plan(&task, &mixed::data(&[vec![(0, 1.0)], vec![(0, 1.0)]])).unwrap();
        let told = |stitcher: &mut Stitcher| {
            let before = stitcher.clone();
            let error = stitcher.stitch(batch.clone()).unwrap_err();
            assert_eq!(*stitcher, before);
            error.to_string()
        };
        assert_eq!(
            told(&mut Stitcher::new(7, mixed::WIDTH)),
            "the batch is planned for rule 0, the batches before it for rule 7: plan it for this task"
        );
        assert_eq!(
            told(&mut Stitcher::new(0, 3)),
            "the batch is planned for 8 parameters, the model has 3: plan it for this model"
        );
        let mut full = Stitcher::new(0, mixed::WIDTH);
        full.base = u32::MAX - 1;
        assert_eq!(
            told(&mut full),
            "4294967294 transactions and the batch's 2 are more than 32 bits can number: let all of them finish, then \
             reset"
        );
        full.reset();
        assert_eq!(full.stitch(batch.clone()).unwrap().base, 0);
    }
}
