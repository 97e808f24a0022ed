//! Whether the compact plan of a batch is that of its samples, found out without planning them again.
//!
//! Planning goes all over the memory, to the last writer of each feature. This goes along the entries only. The entries of a
//! feature are a chain: each replaces the one before, the first replaces what was there before the batch, and the last is left
//! behind. So every pair of a feature and a transaction that has it is referred to exactly once, by an annotation or as an end;
//! every feature has one annotation of 0; and no annotation refers to its own transaction or a later one. These three leave one
//! plan only. The first is a comparison of two bags of pairs, by sums of hashes under keys drawn for each batch: two that differ
//! have the same sum once in 2⁶⁴ times.

use crate::data::Dataset;
use crate::plan::batch::Seams;
use std::hash::{BuildHasher, RandomState};

/// Whether these are the annotations and the ends that planning gives for these samples, in their order. That versions are below
/// their transaction, and that the ends are in the order of the zeros, is seen before.
pub(super) fn is_plan_of(data: &Dataset<'_>, versions: &[u32], seams: &Seams) -> bool {
    let drawn = RandomState::new();
    let keys = [drawn.hash_one(0), drawn.hash_one(1)];
    let pair = |feature: u32, transaction: u32| {
        // Both halves of a product of 128 bits, of which each factor has the pair, and a key.
        let pair = u64::from(feature) << 32 | u64::from(transaction);
        let product = u128::from(pair ^ keys[0]) * u128::from(pair.rotate_left(32) ^ keys[1]);
        (product >> 64) as u64 ^ product as u64
    };
    let mut sum = 0_u64;
    for row in 0..data.len() {
        let (entries, transaction) = (data.range(row), row as u32 + 1);
        for (&feature, &version) in data.features()[entries.clone()].iter().zip(&versions[entries]) {
            sum = sum.wrapping_add(pair(feature, transaction)).wrapping_sub(pair(feature, version));
        }
    }
    let mut ended = vec![0_u64; data.width() as usize / 64 + 1];
    for end in &seams.ends {
        sum = sum.wrapping_add(pair(end.parameter, 0)).wrapping_sub(pair(end.parameter, end.writer));
        let (word, bit) = (&mut ended[end.parameter as usize / 64], 1 << (end.parameter % 64));
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
    }
    sum == 0
}

#[cfg(test)]
mod tests {
    use crate::plan::mixed::{self, Mixed};
    use crate::plan::{Annotations, BatchPlanner, PlannedBatch};
    use crate::task::Rule;
    use proptest::prelude::*;

    proptest! {
        /// Of all plans that could be followed, only the one that planning gives is let through.
        #[test]
        fn another_plan_is_refused(
            rows in mixed::rows(),
            at in any::<prop::sample::Index>(),
            by in any::<u32>(),
            end in any::<bool>(),
        ) {
            let (task, data) = (Mixed(Rule::Features), mixed::data(&rows));
            let planned = BatchPlanner::new().plan(&task, &data).unwrap();
            let decoded = |batch: &PlannedBatch| {
                let mut bytes = Vec::new();
                batch.encode(&mut bytes);
                PlannedBatch::decode(&bytes, &task, &data)
            };
            prop_assert_eq!(decoded(&planned).unwrap(), planned.clone());
            prop_assume!(data.entries() > 0);
            let mut other = planned.clone();
            if end {
                let at = at.index(other.seams.ends.len());
                other.seams.ends[at].writer = by % (data.len() as u32 + 1);
            } else {
                let at = at.index(data.entries());
                let row = (0..data.len()).find(|&row| data.range(row).contains(&at)).unwrap();
                let Annotations::Compact(versions) = other.plan.annotations_mut() else { unreachable!() };
                versions[at] = by % (row as u32 + 1);
                // Seams that agree with it.
                other.seams.reads = (0_u32..).zip(&*versions).filter(|one| *one.1 == 0).map(|one| one.0).collect();
                other.seams.ends.truncate(other.seams.reads.len());
                while other.seams.ends.len() < other.seams.reads.len() {
                    other.seams.ends.push(crate::plan::batch::End { parameter: 0, writer: row as u32 + 1 });
                }
                for (end, &place) in other.seams.ends.iter_mut().zip(&other.seams.reads) {
                    end.parameter = data.features()[place as usize];
                }
            }
            prop_assert_eq!(decoded(&other).is_ok(), other == planned);
        }
    }

    /// Steps and the intercept go by it, also where no two samples touch the same.
    #[test]
    fn another_order_is_refused() {
        let data = mixed::data(&[vec![(0, mixed::BOTH)], vec![(1, mixed::BOTH)]]);
        let task = Mixed(Rule::Features);
        let mut other = BatchPlanner::new().plan(&task, &data).unwrap();
        other.plan = other.plan.in_order(vec![1, 0]);
        let mut bytes = Vec::new();
        other.encode(&mut bytes);
        let error = PlannedBatch::decode(&bytes, &task, &data).unwrap_err().to_string();
        assert!(error.contains("its samples have an order of their own"), "{error}");
    }
}
