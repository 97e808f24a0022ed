//! Linear models: support vector machines, logistic regression, least squares.

use super::loss::Loss;
use super::tallied::Predicts;
use crate::data::{Dataset, Sample, Value};
use crate::exec::Schedule;
use crate::task::{Step, Task};
use crate::with_rows;

/// A linear model under a [`Loss`], with L2 and L1 penalties.
///
/// It minimises Σ loss + l2 / 2 Σ w² + l1 Σ |w| over the n samples: sums, not means. scikit-learn's `alpha` and
/// `l1_ratio` are [`Linear::penalised`].
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Linear {
    /// What a prediction costs.
    pub loss: Loss,
    /// Weight of the squares.
    pub l2: f64,
    /// Weight of the absolute values.
    pub l1: f64,
    /// Whether there is an intercept. It is not penalised.
    pub intercept: bool,
    /// By how much the intercept's steps are smaller than those of the weights. Every sample moves it and only few
    /// move a weight, so with steps of the same size it would swing: 0.01, as in scikit-learn for sparse samples.
    pub intercept_decay: f64,
}

impl Linear {
    /// Without penalties and without an intercept.
    pub fn new(loss: Loss) -> Linear {
        Linear { loss, l2: 0.0, l1: 0.0, intercept: false, intercept_decay: 0.01 }
    }

    /// The support vector machine of the specification, section 5: hinge loss and the penalty λ Σ w², which in the terms
    /// here is `l2` = 2 λ; the published runs have λ = 1.
    pub fn published_svm(lambda: f64) -> Linear {
        Linear { l2: 2.0 * lambda, ..Linear::new(Loss::Hinge) }
    }

    /// The same model with scikit-learn's penalty: per sample `alpha` ((1 - `l1_ratio`) / 2 Σ w² + `l1_ratio` Σ |w|),
    /// for `samples` samples.
    pub fn penalised(self, alpha: f64, l1_ratio: f64, samples: usize) -> Linear {
        let whole = alpha * samples as f64;
        Linear { l2: whole * (1.0 - l1_ratio), l1: whole * l1_ratio, ..self }
    }

    /// scikit-learn's schedule "optimal" for a penalty of this strength: 1 / (`alpha` (t0 + t)), where t0 is such that the
    /// first step is about as large as the weights are expected to be (Bottou).
    pub fn optimal(&self, alpha: f64) -> Schedule {
        let typical = (1.0 / alpha.sqrt()).sqrt();
        let first = typical / self.loss.derivative(-typical, 1.0).abs().max(1.0);
        Schedule::Optimal { alpha, t0: 1.0 / (first * alpha) }
    }

    /// What is minimised, divided by the number of samples: their mean loss, by importance, and their share of the penalty.
    /// Features that no sample has are not penalised, for no step would shrink them.
    pub fn objective(&self, data: &Dataset<'_>, weights: &[f64], intercept: f64) -> f64 {
        if data.is_empty() {
            return 0.0;
        }
        let predictions = decisions(data, weights, intercept);
        let told = predictions.iter().zip(data.labels()).enumerate();
        let losses = told.map(|(row, (&told, &label))| data.importance(row) * self.loss.value(told, label));
        let losses: f64 = losses.sum();
        let mut penalty = 0.0;
        if self.weighted() {
            let touched = data.degrees().into_iter().zip(weights).filter(|(degree, _)| *degree > 0);
            penalty =
                touched.map(|(_, weight)| 0.5 * self.l2 * weight * weight + self.l1 * weight.abs()).sum();
        }
        (losses + penalty) / data.len() as f64
    }
}

/// The prediction for each sample before it is turned into a class: ⟨w, z⟩ + b. Features beyond the weights, which
/// training has not seen, count as 0.
pub fn decisions(data: &Dataset<'_>, weights: &[f64], intercept: f64) -> Vec<f64> {
    let mut told = Vec::with_capacity(data.len());
    decide(data, weights, intercept, |decision| told.push(decision));
    told
}

/// Hands out [`decisions`] one after the other, and keeps none.
pub fn decide(data: &Dataset<'_>, weights: &[f64], intercept: f64, mut each: impl FnMut(f64)) {
    with_rows!(data, rows => for row in 0..data.len() {
        let sample = rows.sample(row);
        let known = sample.features.iter().zip(sample.values);
        let sum: f64 = known.map(|(&u, z)| weights.get(u as usize).map_or(0.0, |w| w * z.wide())).sum();
        each(sum + intercept);
    })
}

/// ⟨w, z⟩, in four sums that are added at the end: the entries' order decides it, and nothing else, so it is the same in every
/// scheme. In one sum every entry would wait for the one before, which takes longer than all else that a task does.
#[inline(always)]
fn product<V: Value>(weights: &[f64], values: &[V]) -> f64 {
    let mut sums = [0.0; 4];
    let (weights, values) = (weights.chunks_exact(4), values.chunks_exact(4));
    let rest = weights.remainder().iter().zip(values.remainder());
    let rest: f64 = rest.map(|(w, z)| w * z.wide()).sum();
    for (weights, values) in weights.zip(values) {
        for ((sum, w), z) in sums.iter_mut().zip(weights).zip(values) {
            *sum += w * z.wide();
        }
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest
}

/// `value` moved towards 0 by `by`, and no further than that.
#[inline(always)]
fn towards_zero(value: f64, by: f64) -> f64 {
    (value.abs() - by).max(0.0).copysign(value)
}

impl Predicts for Linear {
    /// specs/cop.md 5. The sum runs as `product` says, whatever the scheme.
    #[inline(always)]
    fn learn<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> (f64, f64) {
        let [scale, after] = step.scale;
        let prediction = product(read, sample.values) * scale + step.intercept;
        let slope = self.loss.derivative(prediction, sample.label) * sample.importance;
        // As it is to be written.
        let (size, moved) = (step.size, slope / after);
        if !self.weighted() {
            for ((new, w), z) in write.iter_mut().zip(read).zip(sample.values) {
                *new = w - size * (moved * z.wide());
            }
            return (prediction, slope * self.intercept_decay);
        }
        // A feature of few samples has a large share of its penalty in each: beyond 1 / size the step would take the weight
        // past 0 and, from 2 / size on, make it grow without end.
        let most = 1.0 / size;
        let entries = write.iter_mut().zip(read).zip(sample.values).zip(step.weights);
        for (((new, w), z), &share) in entries {
            let shrink = (self.l2 * f64::from(share)).min(most);
            *new = w - size * (shrink * w + moved * z.wide());
        }
        if self.l1 != 0.0 {
            for (new, &share) in write.iter_mut().zip(step.weights) {
                *new = towards_zero(*new, size * self.l1 * f64::from(share) / after);
            }
        }
        (prediction, slope * self.intercept_decay)
    }

    #[inline]
    fn cost(&self, prediction: f64, label: f64) -> f64 {
        self.loss.value(prediction, label)
    }
}

impl Task for Linear {
    fn weighted(&self) -> bool {
        self.l2 != 0.0 || self.l1 != 0.0
    }

    fn decays(&self) -> bool {
        true
    }

    fn intercept(&self) -> bool {
        self.intercept
    }

    fn settings(&self) -> String {
        let Linear { loss, l2, l1, intercept, intercept_decay } = self;
        let moved = if *intercept {
            format!("an intercept moved by {intercept_decay}")
        } else {
            "no intercept".to_owned()
        };
        format!("{loss} loss, l2 {l2}, l1 {l1}, {moved}")
    }

    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Values;

    fn three() -> Dataset<'static> {
        let values = Values::F64(vec![1.0, 2.0, 0.5, -1.0, 3.0].into());
        Dataset::new(vec![0, 2, 4, 5], vec![0, 2, 1, 2, 3], values, vec![1.0, -1.0, 1.0], 5).unwrap()
    }

    /// What a step over every sample at the same weights takes away from them.
    fn gradient(task: &Linear, data: &Dataset<'_>, weights: &[f64], intercept: f64) -> (Vec<f64>, f64) {
        let size = 1e-3;
        let degrees = data.degrees();
        let (mut sum, mut slopes) = (vec![0.0; weights.len()], 0.0);
        with_rows!(data, rows => for row in 0..data.len() {
            let sample = rows.sample(row);
            let pick = |of: &[f64]| sample.features.iter().map(|&u| of[u as usize]).collect::<Vec<_>>();
            let shares: Vec<f32> =
                sample.features.iter().map(|&u| 1.0 / degrees[u as usize] as f32).collect();
            let read = pick(weights);
            let mut write = vec![0.0; read.len()];
            let step = Step { size, intercept, weights: &shares, scale: [1.0; 2] };
            slopes += task.compute(&sample, &step, &read, &mut write);
            for ((&u, old), new) in sample.features.iter().zip(read).zip(write) {
                sum[u as usize] += (old - new) / size;
            }
        });
        (sum, slopes)
    }

    #[test]
    fn steps_go_down_the_objective() {
        let data = three();
        let data = data.with_importances(vec![1.0, 0.25, 3.0]).unwrap();
        let weights = [0.3, -0.2, 0.15, -0.4, 0.9];
        for loss in Loss::ALL {
            for (l2, l1) in [(0.0, 0.0), (0.7, 0.0), (0.0, 0.2), (0.7, 0.2)] {
                let task = Linear { l2, l1, intercept: true, ..Linear::new(loss) };
                let (steps, slopes) = gradient(&task, &data, &weights, 0.1);
                let objective = |weights: &[f64], intercept| 3.0 * task.objective(&data, weights, intercept);
                let h = 1e-6;
                for at in 0..5 {
                    let moved = |by: f64| {
                        let mut weights = weights;
                        weights[at] += by;
                        objective(&weights, 0.1)
                    };
                    let slope = (moved(h) - moved(-h)) / (2.0 * h);
                    assert!((slope - steps[at]).abs() < 1e-5, "{task:?} w{at}: {slope} {}", steps[at]);
                }
                let slope = (objective(&weights, 0.1 + h) - objective(&weights, 0.1 - h)) / (2.0 * h);
                assert!((slope * task.intercept_decay - slopes).abs() < 1e-6, "{task:?}: {slope} {slopes}");
            }
        }
    }

    /// Section 5 of the specification, written out.
    #[test]
    fn the_published_machine() {
        let task = Linear::published_svm(1.0);
        let data = three();
        with_rows!(&data, rows => {
            let (sample, shares) = (rows.sample(0), [1.0, 0.5]);
            for (read, misses) in [([0.1, 0.2], true), ([2.0, 0.5], false)] {
                let mut write = [0.0; 2];
                task.compute(&sample, &Step { size: 0.1, intercept: 0.0, weights: &shares, scale: [1.0; 2] }, &read, &mut write);
                for at in 0..2 {
                    let (z, degree) = (sample.values[at].wide(), f64::from(1.0 / shares[at]));
                    let g = 2.0 * read[at] / degree - if misses { sample.label * z } else { 0.0 };
                    assert_eq!(write[at], read[at] - 0.1 * g);
                }
            }
        });
    }

    #[test]
    fn a_heavy_penalty_takes_weights_to_zero_and_not_past_it() {
        let data = three();
        with_rows!(&data, rows => {
            let sample = Sample { values: &[0.0, 0.0], ..rows.sample(0) };
            for task in [
                Linear { l2: 1e9, ..Linear::new(Loss::Hinge) },
                Linear { l1: 1e9, ..Linear::new(Loss::Hinge) },
            ] {
                let mut write = [7.0; 2];
                let step = Step { size: 0.1, intercept: 0.0, weights: &[1.0, 1.0], scale: [1.0; 2] };
                task.compute(&sample, &step, &[0.5, -3.0], &mut write);
                assert!(write.iter().all(|new| new.abs() < 1e-12), "{task:?}: {write:?}");
            }
        });
    }

    #[test]
    fn features_that_were_not_trained_count_as_nothing() {
        let data = three();
        assert_eq!(decisions(&data, &[1.0, 1.0], 0.5), [1.5, 1.0, 0.5]);
    }

    #[test]
    fn the_optimal_schedule_is_that_of_scikit_learn() {
        // typw = 10, eta0 = 10 / max(1, 1) for the hinge at alpha = 1e-4; t0 = 1 / (eta0 alpha).
        let Schedule::Optimal { t0, .. } = Linear::new(Loss::Hinge).optimal(1e-4) else {
            panic!("it is optimal")
        };
        assert!((t0 - 1000.0).abs() < 1e-9, "{t0}");
    }

    #[test]
    fn penalties_in_the_terms_of_scikit_learn() {
        let task = Linear::new(Loss::Logistic).penalised(1e-4, 0.25, 10_000);
        assert_eq!((task.l2, task.l1), (0.75, 0.25));
    }
}
