//! One plan of all samples, planned in blocks by several threads and stitched: equal to the plan of one pass.

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::data::Dataset;
use crate::exec::Stop;
use crate::memory::{NoRoom, zeros};
use crate::plan::batch::BatchPlanner;
use crate::plan::stitch::Stitcher;
use crate::plan::{Annotations, Plan, PlanError, TooWide, replace_all};
use crate::shares::each_share;
use crate::task::{Rule, Task};

impl Plan {
    /// [`Plan::of`] with several threads: each plans a block of rows, then the blocks are stitched. The plan is the same
    /// for any number of threads. Takes eight bytes of scratch memory for each parameter and thread.
    ///
    /// # Errors
    /// If there is not the memory, or, only in the general form, a block has more entries than one can have or the task tells
    /// sets that none may have.
    pub fn in_blocks<T: Task>(
        task: &T,
        data: &Dataset<'_>,
        threads: NonZeroUsize,
    ) -> Result<Plan, PlanError> {
        Plan::in_blocks_until(task, data, threads, &Stop::default())
    }

    /// The same, until somebody asks for its end: that is [`PlanError::Interrupted`] then.
    ///
    /// # Errors
    /// As there.
    pub fn in_blocks_until<T: Task>(
        task: &T,
        data: &Dataset<'_>,
        threads: NonZeroUsize,
        stop: &Stop,
    ) -> Result<Plan, PlanError> {
        // A block must be worth its thread and its scratch memory.
        let blocks = threads.get().min(data.entries() / BLOCK_MIN).max(1);
        let scratch = match task.rule() {
            Rule::Features => 4 * blocks,
            // What stitching keeps, beside what each block takes.
            Rule::Own(_) => 8 * (blocks + 1),
        };
        let parameters = u64::from(task.parameters(data.width()));
        let scratch = parameters * scratch as u64;
        TooWide::check(data.width(), scratch)?;
        let entries = data.entries() as u64;
        let annotations = match task.rule() {
            // And the first touches of all blocks but the first, in lists that double.
            Rule::Features => 4 * entries + 48 * entries.min(parameters * (blocks as u64 - 1)),
            // An estimate: nobody knows the size of the sets.
            Rule::Own(_) => 3 * (20 * entries + 16 * data.len() as u64),
        };
        NoRoom::check("planning", scratch + annotations, blocks)?;
        data.fingerprint_by(threads);
        let plan = Plan::in_exactly(task, data, blocks, stop)?;
        if stop.is_asked() { Err(PlanError::Interrupted) } else { Ok(plan) }
    }

    /// A part of the plan only where somebody has asked for the end.
    fn in_exactly<T: Task>(
        task: &T,
        data: &Dataset<'_>,
        blocks: usize,
        stop: &Stop,
    ) -> Result<Plan, PlanError> {
        let blocks = cut(data, blocks);
        match task.rule() {
            Rule::Features => Ok(compact(data, &blocks, stop)),
            Rule::Own(_) => general(task, data, &blocks),
        }
    }
}

/// Entries below which a second thread costs more than it brings: about a tenth of a millisecond of planning.
const BLOCK_MIN: usize = 1 << 16;

/// Rows of blocks with about as many entries each.
fn cut(data: &Dataset<'_>, blocks: usize) -> Vec<Range<usize>> {
    let edge = |block: usize| match block == blocks {
        true => data.len(),
        false => {
            let entry = (data.entries() as u128 * block as u128 / blocks as u128) as u64;
            data.offsets().partition_point(|&offset| offset < entry).min(data.len())
        }
    };
    (0..blocks).map(|block| edge(block)..edge(block + 1)).collect()
}

/// A block's first touches (parameter, entry), and the last transaction of the block that touches each parameter.
struct Touched {
    first: Vec<(u32, usize)>,
    last: Vec<u32>,
}

fn compact(data: &Dataset<'_>, blocks: &[Range<usize>], stop: &Stop) -> Plan {
    let mut versions: Vec<u32> = zeros(data.entries());
    let mut rest = &mut versions[..];
    let parts = blocks.iter().enumerate().map(|(block, rows)| {
        let entries = (data.offsets()[rows.end] - data.offsets()[rows.start]) as usize;
        let (own, others) = std::mem::take(&mut rest).split_at_mut(entries);
        rest = others;
        (rows.clone(), own, block > 0)
    });
    let touched = each_share(parts, |(rows, own, stitched)| plan_block(data, rows, own, stitched, stop));
    let mut touched = touched.into_iter();
    if let Some(Touched { last: mut carried, .. }) = touched.next() {
        for block in touched {
            for (parameter, entry) in block.first {
                versions[entry] =
                    std::mem::replace(&mut carried[parameter as usize], block.last[parameter as usize]);
            }
        }
    }
    Plan::of_data(data, data.width(), Rule::Features, Annotations::Compact(versions))
}

/// Numbers of transactions are those of the whole plan, so only first touches are left to be stitched. The first block
/// needs none (`stitched`): what was there before it is version 0.
fn plan_block(
    data: &Dataset<'_>,
    rows: Range<usize>,
    versions: &mut [u32],
    stitched: bool,
    stop: &Stop,
) -> Touched {
    let mut last: Vec<u32> = zeros(data.width() as usize);
    let mut first = Vec::new();
    let from = data.offsets()[rows.start] as usize;
    for row in rows.take_while(|_| !stop.is_asked()) {
        let transaction = row as u32 + 1;
        replace_all(&mut last, transaction, data.range(row), data.features(), |entry, version| {
            versions[entry - from] = version;
            if stitched && version == 0 {
                first.push((data.features()[entry], entry));
            }
        });
    }
    Touched { first, last }
}

fn general<T: Task>(task: &T, data: &Dataset<'_>, blocks: &[Range<usize>]) -> Result<Plan, PlanError> {
    let planned = each_share(blocks, |rows| {
        let planned = BatchPlanner::new().plan(task, &data.slice(rows.clone()));
        // A block counts its rows from its own first one.
        planned.map_err(|error| match error {
            PlanError::Sets(error) => PlanError::Sets(error.behind(rows.start)),
            error => error,
        })
    });
    let planned = planned.into_iter().collect::<Result<Vec<_>, _>>()?;
    let parameters = task.parameters(data.width());
    let mut stitcher = Stitcher::new(task.rule().id(), parameters);
    let (mut all_reads_at, mut all_writes_at) = (vec![0_u64], vec![0_u64]);
    let (mut all_reads, mut all_writes) = (Vec::new(), Vec::new());
    for batch in planned {
        #[allow(clippy::expect_used)] // One task planned all blocks, and data has fewer than 2^32 samples.
        let plan = stitcher.stitch(batch).expect("blocks of one plan fit one another").absolute();
        let Annotations::General { reads_at, reads, writes_at, writes } = plan.annotations else {
            unreachable!("a rule of its own is planned in the general form")
        };
        all_reads_at.extend(reads_at[1..].iter().map(|at| at + all_reads.len() as u64));
        all_writes_at.extend(writes_at[1..].iter().map(|at| at + all_writes.len() as u64));
        all_reads.extend(reads);
        all_writes.extend(writes);
    }
    let annotations = Annotations::General {
        reads_at: all_reads_at,
        reads: all_reads,
        writes_at: all_writes_at,
        writes: all_writes,
    };
    Ok(Plan::of_data(data, parameters, task.rule(), annotations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SetsError;
    use crate::plan::mixed::{self, Mixed, Narrow};
    use proptest::prelude::*;

    proptest! {
        /// T-COP-04: whatever the number of blocks, also more blocks than samples.
        #[test]
        fn blocks_in_parallel_are_one_plan(rows in mixed::rows(), blocks in 1..9_usize) {
            let data = mixed::data(&rows);
            let (stop, features) = (Stop::default(), Mixed(Rule::Features));
            prop_assert_eq!(Plan::in_exactly(&features, &data, blocks, &stop).unwrap(), Plan::compact(&data));
            let own = Mixed(Rule::Own(7));
            prop_assert_eq!(Plan::in_exactly(&own, &data, blocks, &stop).unwrap(), Plan::general(&own, &data));
        }
    }

    #[test]
    fn sets_that_none_may_have_are_refused_wherever_they_are() {
        let sound: Vec<_> = (0..8_u32).map(|row| vec![(row % 3, mixed::BOTH), (3, mixed::READ)]).collect();
        let beyond = |row, parameter| SetsError::Beyond { row, parameter, parameters: Narrow::PARAMETERS };
        for (odd, refused) in [
            (vec![(2, mixed::READ), (4, mixed::READ)], beyond(5, 4)),
            (vec![(2, mixed::READ), (7, mixed::WRITE)], beyond(5, 7)),
            (vec![(2, mixed::WRITE)], SetsError::Twice { row: 5, parameter: 2 }),
        ] {
            let mut rows = sound.clone();
            rows[5] = odd;
            let data = mixed::data(&rows);
            let refused = PlanError::Sets(refused);
            for blocks in 1..5 {
                let planned = Plan::in_exactly(&Narrow, &data, blocks, &Stop::default());
                assert_eq!(planned.err(), Some(refused), "{blocks} blocks");
            }
            // What it had seen of them is forgotten.
            let (mut planner, sound) = (BatchPlanner::new(), mixed::data(&sound));
            assert_eq!(planner.plan(&Narrow, &data), Err(refused));
            assert_eq!(planner.plan(&Narrow, &sound), BatchPlanner::new().plan(&Narrow, &sound));
        }
    }

    #[test]
    fn blocks_have_about_as_many_entries() {
        let rows: Vec<_> = (0..100).map(|row| (0..row % 8).map(|feature| (feature, 1.0)).collect()).collect();
        let data = mixed::data(&rows);
        let blocks = cut(&data, 4);
        assert_eq!((blocks[0].start, blocks[3].end), (0, 100));
        for rows in blocks {
            let entries = data.offsets()[rows.end] - data.offsets()[rows.start];
            assert!(entries.abs_diff(data.entries() as u64 / 4) <= 8, "{rows:?} has {entries}");
        }
    }
}
