//! For tests: samples whose features are read, written, or both, as their values say; nothing else is learnt.

use crate::data::{Dataset, Sample, Value, Values};
use crate::task::{Rule, Sets, Step, Task};
use proptest::prelude::*;

/// Features of the samples below.
pub(crate) const WIDTH: u32 = 8;
/// A value that means: read only.
pub(crate) const READ: f64 = 1.0;
/// A value that means: written only.
pub(crate) const WRITE: f64 = 2.0;
/// A value that means: read and written.
pub(crate) const BOTH: f64 = 3.0;

/// Reads and writes what the values say; under [`Rule::Features`], everything. Its computation depends on the order of
/// samples and on every value read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed(pub(crate) Rule);

impl Task for Mixed {
    fn rule(&self) -> Rule {
        self.0
    }

    fn sets<V: Value>(&self, sample: &Sample<'_, V>, sets: &mut Sets) {
        for (&feature, value) in sample.features.iter().zip(sample.values) {
            if value.wide() != WRITE {
                sets.reads.push(feature);
            }
            if value.wide() != READ {
                sets.writes.push(feature);
            }
        }
    }

    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        let seen = read.iter().fold(sample.label, |sum, value| sum * 0.75 + value);
        for (place, write) in write.iter_mut().enumerate() {
            *write = seen * 0.5 + step.size * (place as f64 + 1.0);
        }
        seen
    }
}

/// [`Mixed`] of [`Narrow::PARAMETERS`], whatever its samples touch; and what one of a single feature writes, it writes twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrow;

impl Narrow {
    pub(crate) const PARAMETERS: u32 = 4;
}

impl Task for Narrow {
    fn rule(&self) -> Rule {
        Rule::Own(7)
    }

    fn parameters(&self, _: u32) -> u32 {
        Narrow::PARAMETERS
    }

    fn sets<V: Value>(&self, sample: &Sample<'_, V>, sets: &mut Sets) {
        Mixed(self.rule()).sets(sample, sets);
        if let [_] = sample.features {
            sets.writes.extend_from_within(..);
        }
    }

    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        Mixed(self.rule()).compute(sample, step, read, write)
    }
}

/// Samples of these features and values.
pub(crate) fn data(rows: &[Vec<(u32, f64)>]) -> Dataset<'static> {
    let mut offsets = vec![0];
    let mut features = Vec::new();
    let mut values = Vec::new();
    for row in rows {
        features.extend(row.iter().map(|entry| entry.0));
        values.extend(row.iter().map(|entry| entry.1));
        offsets.push(features.len() as u64);
    }
    let labels: Vec<f64> = (0..rows.len()).map(|row| if row % 3 == 0 { 1.0 } else { -1.0 }).collect();
    Dataset::new(offsets, features, Values::F64(values.into()), labels, WIDTH).unwrap()
}

/// Up to 40 samples of up to [`WIDTH`] features.
pub(crate) fn rows() -> impl Strategy<Value = Vec<Vec<(u32, f64)>>> {
    let entry = prop::sample::select(vec![READ, WRITE, BOTH]);
    let row = prop::collection::btree_map(0..WIDTH, entry, 0..=WIDTH as usize);
    prop::collection::vec(row.prop_map(|row| row.into_iter().collect()), 0..40)
}
