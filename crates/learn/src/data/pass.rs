//! What samples are looked at for before they are learnt from, in one pass by several threads: whether they are sound, and their
//! fingerprint. It goes by blocks, so that both look at what one of them has brought into a cache.

use super::{Dataset, Value, Values};
use crate::shares::each_share;
use std::num::NonZeroUsize;
use std::ops::Range;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Entries of a block. The fingerprint depends on it.
const BLOCK: usize = 1 << 14;

/// Less than this is looked at sooner than a thread is there.
const WORTH_A_THREAD: usize = 1 << 18;

/// What is looked for.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pass {
    /// Whether the features of each row ascend, all features exist and all numbers are finite: nearly all data passes.
    pub(super) order: bool,
    /// [`Dataset::fingerprint`].
    pub(super) fingerprint: bool,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// `true` where nobody asked.
    pub(super) in_order: bool,
    /// `None` where nobody asked.
    pub(super) fingerprint: Option<u64>,
}

impl Pass {
    /// Looks at all samples, of which it has been checked where rows begin and end. Finds the same with any number of threads.
    pub(super) fn over(self, data: &Dataset<'_>, threads: NonZeroUsize) -> Found {
        let shares = threads.get().min(data.entries() / WORTH_A_THREAD).max(1);
        let (in_order, hashes): (Vec<_>, Vec<_>) =
            each_share(0..shares, |number| self.share(data, number, shares)).into_iter().unzip();
        let (in_order, hashes) = (!in_order.contains(&false), hashes.concat());
        Found { in_order, fingerprint: self.fingerprint.then(|| combined(data, &hashes)) }
    }

    /// The share of one thread: whether it is in order, and the hashes of its blocks.
    fn share(self, data: &Dataset<'_>, number: usize, shares: usize) -> (bool, Vec<u64>) {
        let edge = |of: usize, number: usize| of * number / shares;
        let rows = edge(data.len(), number)..edge(data.len(), number + 1);
        let mut in_order = !self.order || all_finite(&data.labels[rows]);
        let blocks = data.entries().div_ceil(BLOCK);
        let blocks = edge(blocks, number)..edge(blocks, number + 1);
        let mut hashes = Vec::new();
        // The next row that begins.
        let mut row = data.offsets.partition_point(|&offset| offset < (blocks.start * BLOCK) as u64);
        for block in blocks {
            let entries = block * BLOCK..data.entries().min((block + 1) * BLOCK);
            if self.fingerprint {
                hashes.push(hash_of(&data.features[entries.clone()]));
            }
            if self.order && in_order {
                in_order = ascends(data, entries.clone(), &mut row)
                    && match &data.values {
                        Values::F32(values) => all_finite(&values[entries]),
                        Values::F64(values) => all_finite(&values[entries]),
                    };
            }
        }
        (in_order, hashes)
    }
}

/// Whether none is infinite or not a number.
pub(crate) fn all_finite<V: Value>(values: &[V]) -> bool {
    // Without a way out before the end, which processors are good at.
    values.iter().fold(true, |all, value| all & value.is_finite())
}

/// Whether these features exist, and none but the first of a row fails to exceed the one before it. `row` is the first row that
/// begins among them or later, and becomes that of what follows.
fn ascends(data: &Dataset<'_>, entries: Range<usize>, row: &mut usize) -> bool {
    let (all, end) = (&data.features[..], entries.end as u64);
    if !all[entries.clone()].iter().fold(true, |all, &feature| all & (feature < data.width)) {
        return false;
    }
    let seen = &all[entries.start.saturating_sub(1)..entries.end];
    let falls: u32 = seen.iter().zip(&seen[1..]).map(|(one, next)| u32::from(one >= next)).sum();
    let mut starts = 0;
    while data.offsets[*row] < end {
        let at = data.offsets[*row] as usize;
        *row += 1;
        let first = at > 0 && data.offsets[*row] as usize > at;
        starts += u32::from(first && all[at - 1] >= all[at]);
    }
    falls == starts
}

/// Of the numbers of samples and of features, of where rows begin, and of the hashes of all blocks.
fn combined(data: &Dataset<'_>, hashes: &[u64]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&data.width.to_le_bytes());
    hash.update(&(data.len() as u64).to_le_bytes());
    for numbers in [&data.offsets[..], hashes] {
        if cfg!(target_endian = "little") {
            hash.update(bytemuck::cast_slice(numbers));
        } else {
            numbers.iter().for_each(|number| hash.update(&number.to_le_bytes()));
        }
    }
    hash.digest()
}

/// [`Dataset::checksum`].
pub(super) fn checksum(data: &Dataset<'_>) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(bytemuck::cast_slice(&data.offsets));
    hash.update(bytemuck::cast_slice(&data.features));
    match &data.values {
        Values::F32(values) => hash.update(bytemuck::cast_slice(values)),
        Values::F64(values) => hash.update(bytemuck::cast_slice(values)),
    }
    hash.update(bytemuck::cast_slice(&data.labels));
    hash.update(bytemuck::cast_slice(&data.importances));
    hash.digest()
}

fn hash_of(features: &[u32]) -> u64 {
    if cfg!(target_endian = "little") {
        return xxh3_64(bytemuck::cast_slice(features));
    }
    let mut hash = Xxh3::new();
    features.iter().for_each(|feature| hash.update(&feature.to_le_bytes()));
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever blocks and the shares of threads begin.
    #[test]
    fn what_is_out_of_order_is_seen_wherever_it_is() {
        let entries = 3 * WORTH_A_THREAD + 7;
        // Rows of five, some without any between them, with features of 0 to 4 and of 5 to 9 by turns.
        let mut offsets = vec![0, 0];
        offsets.extend((5..=entries as u64).step_by(5).chain([entries as u64, entries as u64]));
        let ascending: Vec<u32> = (0..entries as u32).map(|at| at % 10).collect();
        let of = |features: Vec<u32>| {
            let (values, labels) = (vec![1.0_f32; entries], vec![1.0; offsets.len() - 1]);
            Dataset::new(offsets.clone(), features, Values::F32(values.into()), labels, 10).unwrap()
        };
        let blocks = entries.div_ceil(BLOCK);
        let edges = [1, BLOCK, blocks / 3 * BLOCK, blocks / 2 * BLOCK, blocks * 2 / 3 * BLOCK, entries - 2];
        for at in edges.into_iter().flat_map(|edge| edge - 1..=edge + 1).filter(|&at| at > 0) {
            // Of two rows it moves no feature out of order, of one it does.
            let mut features = ascending.clone();
            features.swap(at - 1, at);
            let data = of(features);
            let rises = |row: usize| data.row(row).windows(2).all(|pair| pair[0] < pair[1]);
            let (in_order, mut fingerprints) = ((0..data.len()).all(rises), Vec::new());
            for threads in [1, 2, 3] {
                let threads = NonZeroUsize::new(threads).unwrap();
                let found = Pass { order: true, fingerprint: true }.over(&data, threads);
                assert_eq!(found.in_order, in_order, "{threads} threads, swapped at {at}");
                fingerprints.push(found.fingerprint.unwrap());
            }
            assert_eq!(fingerprints, [data.fingerprint(); 3]);
            assert_ne!(data.fingerprint(), of(ascending.clone()).fingerprint());
        }
    }
}
