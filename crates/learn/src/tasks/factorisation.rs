//! The factorisation of a matrix of which some cells are known: ratings, counts, distances.

use super::tallied::Predicts;
use crate::data::{Dataset, Sample, Value};
use crate::task::{Step, Task};
use crate::with_rows;
use isochrone_core::Random;

/// Each row and each column gets a vector of `rank` numbers; a cell is predicted as their product, plus the intercept.
///
/// A sample is a cell: its label is what stands there, and it has two features, the row's number and the column's; columns
/// are numbered on from the rows. The values of the features scale the prediction and are 1 as a rule. Minimised are the
/// squared errors (p - y)² / 2, plus l2 / 2 Σ v² + l1 Σ |v| over all numbers of all vectors.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Factorisation {
    /// Length of each vector.
    pub rank: usize,
    /// Weight of the squares.
    pub l2: f64,
    /// Weight of the absolute values.
    pub l1: f64,
    /// Whether there is an intercept, which ends near the mean of all cells.
    pub intercept: bool,
}

/// A sample is no cell of a matrix.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("row {row} has {features} features, where a cell has two: its row and its column")]
pub struct NotPairs {
    /// The sample, counted from 0.
    pub row: usize,
    /// How many features it has.
    pub features: usize,
}

impl Factorisation {
    /// Without penalties and without an intercept.
    pub fn new(rank: usize) -> Factorisation {
        Factorisation { rank, l2: 0.0, l1: 0.0, intercept: false }
    }

    /// Whether every sample is a cell; to be asked before training.
    pub fn check(&self, data: &Dataset<'_>) -> Result<(), NotPairs> {
        let wrong = (0..data.len()).find(|&row| data.range(row).len() != 2);
        wrong.map_or(Ok(()), |row| Err(NotPairs { row, features: data.range(row).len() }))
    }

    /// Values to begin with, for data with this many features: uniform between ±1 / √rank. Vectors of zeros would stay so
    /// for ever, since the step of each is along the other.
    pub fn initial(&self, features: u32, seed: u64) -> Vec<f64> {
        let mut random = Random::seeded(seed);
        let scale = 1.0 / (self.rank.max(1) as f64).sqrt();
        (0..features as usize * self.rank).map(|_| (2.0 * random.unit() - 1.0) * scale).collect()
    }

    /// The prediction for each sample, from vectors one after the other; a row or column beyond them counts as zeros.
    pub fn predictions(&self, data: &Dataset<'_>, vectors: &[f64], intercept: f64) -> Vec<f64> {
        let mut told = Vec::with_capacity(data.len());
        self.predict(data, vectors, intercept, |prediction| told.push(prediction));
        told
    }

    /// Hands out [`Factorisation::predictions`] one after the other, and keeps none.
    pub fn predict(&self, data: &Dataset<'_>, vectors: &[f64], intercept: f64, mut each: impl FnMut(f64)) {
        let vector = |feature: u32| {
            let from = feature as usize * self.rank;
            vectors.get(from..from + self.rank).unwrap_or(&[])
        };
        with_rows!(data, rows => (0..data.len()).for_each(|row| each(match rows.sample(row) {
            Sample { features: &[row, column], values: [a, b], .. } => {
                product(vector(row), vector(column)) * (a.wide() * b.wide()) + intercept
            }
            _ => intercept,
        })))
    }

    /// What is minimised, divided by the number of samples.
    pub fn objective(&self, data: &Dataset<'_>, vectors: &[f64], intercept: f64) -> f64 {
        if data.is_empty() {
            return 0.0;
        }
        let told = self.predictions(data, vectors, intercept);
        let cells = told.iter().zip(data.labels()).enumerate();
        let losses: f64 = cells.map(|(row, (p, y))| 0.5 * data.importance(row) * (p - y) * (p - y)).sum();
        let mut penalty = 0.0;
        for (feature, degree) in data.degrees().into_iter().enumerate() {
            if degree > 0 {
                let vector = &vectors[feature * self.rank..(feature + 1) * self.rank];
                penalty += vector.iter().map(|v| 0.5 * self.l2 * v * v + self.l1 * v.abs()).sum::<f64>();
            }
        }
        (losses + penalty) / data.len() as f64
    }
}

#[inline(always)]
fn product(row: &[f64], column: &[f64]) -> f64 {
    row.iter().zip(column).map(|(p, q)| p * q).sum()
}

/// The two vectors of a sample are both read and both written: what the rule of features says.
impl Task for Factorisation {
    fn width(&self) -> usize {
        self.rank
    }

    fn weighted(&self) -> bool {
        self.l2 != 0.0 || self.l1 != 0.0
    }

    fn intercept(&self) -> bool {
        self.intercept
    }

    fn settings(&self) -> String {
        let Factorisation { rank, l2, l1, intercept } = self;
        let moved = if *intercept { "an intercept" } else { "no intercept" };
        format!("factorisation of rank {rank}, l2 {l2}, l1 {l1}, {moved}")
    }

    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        self.learn(sample, step, read, write).1
    }
}

impl Predicts for Factorisation {
    #[inline(always)]
    fn learn<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> (f64, f64) {
        let &[a, b] = sample.values else {
            // No cell: nothing changes.
            write.copy_from_slice(read);
            return (step.intercept, 0.0);
        };
        let scale = a.wide() * b.wide();
        let (row, column) = read.split_at(self.rank);
        let prediction = product(row, column) * scale + step.intercept;
        let error = (prediction - sample.label) * sample.importance;
        let (new_row, new_column) = write.split_at_mut(self.rank);
        for (at, (new, own, other)) in
            [(new_row, row, column), (new_column, column, row)].into_iter().enumerate()
        {
            let share = step.weights.get(at).map_or(0.0, |&share| f64::from(share));
            let shrink = (self.l2 * share).min(1.0 / step.size);
            let threshold = step.size * self.l1 * share;
            for ((new, v), along) in new.iter_mut().zip(own).zip(other) {
                let moved = v - step.size * (shrink * v + error * scale * along);
                *new = (moved.abs() - threshold).max(0.0).copysign(moved);
            }
        }
        (prediction, error * INTERCEPT_DECAY)
    }

    fn cost(&self, prediction: f64, label: f64) -> f64 {
        0.5 * (prediction - label) * (prediction - label)
    }
}

/// The intercept's steps are smaller, as for sparse linear models: every sample moves it.
const INTERCEPT_DECAY: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Values;

    fn cells(value: f64) -> Dataset<'static> {
        let values = Values::F64(vec![value; 6].into());
        Dataset::new(vec![0, 2, 4, 6], vec![0, 2, 1, 2, 1, 3], values, vec![1.0, -2.0, 0.5], 4).unwrap()
    }

    #[test]
    fn steps_go_down_the_objective() {
        for (l2, l1, value) in [(0.0, 0.0, 1.0), (0.3, 0.0, 1.0), (0.3, 0.05, 0.5)] {
            let task = Factorisation { l2, l1, intercept: true, ..Factorisation::new(3) };
            let data = cells(value);
            let data = data.with_importances(vec![2.0, 1.0, 0.5]).unwrap();
            let vectors = task.initial(4, 7);
            let (degrees, size) = (data.degrees(), 1e-4);
            let mut steps = vec![0.0; vectors.len()];
            with_rows!(&data, rows => for row in 0..3 {
                let sample = rows.sample(row);
                let at = |u: u32| u as usize * 3..u as usize * 3 + 3;
                let read: Vec<f64> = sample.features.iter().flat_map(|&u| vectors[at(u)].to_vec()).collect();
                let shares: Vec<f32> = sample.features.iter().map(|&u| 1.0 / degrees[u as usize] as f32).collect();
                let mut write = vec![0.0; 6];
                task.compute(&sample, &Step { size, intercept: 0.1, weights: &shares, scale: [1.0; 2] }, &read, &mut write);
                let places = sample.features.iter().flat_map(|&u| at(u));
                for ((place, old), new) in places.zip(&read).zip(&write) {
                    steps[place] += (old - new) / size;
                }
            });
            for at in 0..vectors.len() {
                let moved = |by: f64| {
                    let mut vectors = vectors.clone();
                    vectors[at] += by;
                    3.0 * task.objective(&data, &vectors, 0.1)
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!((slope - steps[at]).abs() < 1e-5, "{task:?} at {at}: {slope} {}", steps[at]);
            }
        }
    }

    #[test]
    fn beginnings_are_of_their_seed_and_bounded() {
        let task = Factorisation::new(4);
        assert_eq!(task.initial(3, 1), task.initial(3, 1));
        assert_ne!(task.initial(3, 1), task.initial(3, 2));
        assert!(task.initial(100, 1).iter().all(|v| v.abs() <= 0.5));
    }

    #[test]
    fn samples_that_are_no_cells_are_told() {
        let values = Values::F64(vec![1.0; 5].into());
        let data = Dataset::new(vec![0, 2, 5], vec![0, 1, 0, 1, 2], values, vec![1.0; 2], 3).unwrap();
        assert_eq!(
            Factorisation::new(2).check(&data).unwrap_err().to_string(),
            "row 1 has 3 features, where a cell has two: its row and its column"
        );
    }
}
