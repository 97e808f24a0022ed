//! A task that sums up what its predictions cost while it learns.

use crate::data::{Sample, Value};
use crate::task::{Rule, Sets, Step, Task};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A task that predicts a number for each sample, and learns from what that costs.
pub trait Predicts: Task {
    /// [`Task::compute`], which also tells the prediction that was made: that and what is returned there.
    fn learn<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> (f64, f64);

    /// What a prediction costs where this is the label.
    fn cost(&self, prediction: f64, label: f64) -> f64;
}

/// A task that tallies the loss of each sample as it was before the sample was learnt from.
///
/// What is learnt is the same. The sum does not depend on which thread learnt from which sample, bit for bit, so that
/// stopping by it does not either: losses are added as whole numbers, in units that grow with them, which are a
/// sixteen-millionth of the loss or less.
#[derive(Debug)]
pub struct Tallied<T> {
    task: T,
    /// Without it nothing is summed up: what a caller pays who does not look.
    counts: AtomicBool,
    /// Losses that were not finite numbers.
    diverged: AtomicU64,
    shards: [Shard; SHARDS],
}

/// More than threads can be expected: two in one only slow each other down.
const SHARDS: usize = 64;

/// Losses are sorted by size, 2⁸ times as large in each; the smallest are those below 2⁻³², the largest those from 2¹²⁰ on.
const SIZES: usize = 21;

/// Binary exponent at which the second size begins.
const SECOND: i32 = -32;

/// Sums of one thread, away from those of others.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Shard([AtomicU64; SIZES]);

impl<T> Tallied<T> {
    /// The same task; `counts` tells whether to sum up at all.
    pub fn new(task: T, counts: bool) -> Tallied<T> {
        let counts = AtomicBool::new(counts);
        let diverged = AtomicU64::new(0);
        Tallied { task, counts, diverged, shards: std::array::from_fn(|_| Shard::default()) }
    }

    /// Sums up from now on, or no longer; called at a barrier, for all samples after it.
    pub fn count(&self, counts: bool) {
        self.counts.store(counts, Ordering::Relaxed);
    }

    /// The sum of the losses, by importance, since it was last taken; 0 if it does not count, infinite where one of them was not
    /// finite. Called at a barrier, it is the sum of all samples before.
    pub fn take(&self) -> f64 {
        let diverged = self.diverged.swap(0, Ordering::Relaxed) > 0;
        let sums = (0..SIZES).map(|size| {
            let whole: u128 =
                self.shards.iter().map(|shard| u128::from(shard.0[size].swap(0, Ordering::Relaxed))).sum();
            whole as f64 * unit(size)
        });
        let sum: f64 = sums.sum();
        if diverged { f64::INFINITY } else { sum }
    }

    /// The loss of a sample whose prediction was this, if it is to be summed up. That of one that counts nothing is not: it may be
    /// infinite, and 0 times that is no number.
    #[inline]
    fn loss<V: Value>(&self, sample: &Sample<'_, V>, prediction: f64) -> Option<f64>
    where
        T: Predicts,
    {
        let counts = sample.importance != 0.0 && self.counts.load(Ordering::Relaxed);
        counts.then(|| sample.importance * self.task.cost(prediction, sample.label))
    }

    fn add(&self, loss: f64) {
        let (sum, by) = self.share(loss);
        sum.fetch_add(by, Ordering::Relaxed);
    }

    /// Of a loss that the calling thread has added: so no sum falls below 0.
    fn take_back(&self, loss: f64) {
        let (sum, by) = self.share(loss);
        sum.fetch_sub(by, Ordering::Relaxed);
    }

    /// The sum that a loss is in, and how much of it.
    fn share(&self, loss: f64) -> (&AtomicU64, u64) {
        if !loss.is_finite() {
            return (&self.diverged, 1);
        }
        let exponent = (loss.to_bits() >> 52) as i32 - 1023;
        let size = ((exponent - SECOND).div_euclid(8) + 1).clamp(0, SIZES as i32 - 1) as usize;
        // A cast of what is too large stops at the end of the range.
        let whole = (loss / unit(size)).round() as u32;
        (&self.shards[shard()].0[size], u64::from(whole))
    }
}

/// What is counted in for losses of this size: 2⁻³² of the next one.
fn unit(size: usize) -> f64 {
    f64::from(SECOND + 8 * size as i32 - 32).exp2()
}

/// The calling thread's.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
}

impl<T: Predicts> Task for Tallied<T> {
    fn rule(&self) -> Rule {
        self.task.rule()
    }

    fn parameters(&self, features: u32) -> u32 {
        self.task.parameters(features)
    }

    fn width(&self) -> usize {
        self.task.width()
    }

    fn sets<V: Value>(&self, sample: &Sample<'_, V>, sets: &mut Sets) {
        self.task.sets(sample, sets);
    }

    fn weighted(&self) -> bool {
        self.task.weighted()
    }

    fn decays(&self) -> bool {
        self.task.decays()
    }

    fn intercept(&self) -> bool {
        self.task.intercept()
    }

    fn settings(&self) -> String {
        self.task.settings()
    }

    #[inline]
    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        let (prediction, slope) = self.task.learn(sample, step, read, write);
        if let Some(loss) = self.loss(sample, prediction) {
            self.add(loss);
        }
        slope
    }

    #[cold]
    fn taken_back<V: Value>(&self, sample: &Sample<'_, V>, step: &Step<'_>, read: &[f64], write: &mut [f64]) {
        if !self.counts.load(Ordering::Relaxed) || sample.importance == 0.0 {
            return;
        }
        let (prediction, _) = self.task.learn(sample, step, read, write);
        if let Some(loss) = self.loss(sample, prediction) {
            self.take_back(loss);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::{Linear, Loss};

    fn tallied(losses: impl IntoIterator<Item = f64>) -> f64 {
        let tally = Tallied::new(Linear::new(Loss::Hinge), true);
        losses.into_iter().for_each(|loss| tally.add(loss));
        let sum = tally.take();
        assert_eq!(tally.take(), 0.0, "what was taken is gone");
        sum
    }

    #[test]
    fn losses_of_every_size_add_up() {
        for scale in [1e-9, 1e-3, 1.0, 1e5, 1e12, 1e25] {
            let losses = (0..1000).map(|at| f64::from(at) * 0.37 * scale);
            let sum: f64 = losses.clone().sum();
            assert!((tallied(losses) / sum - 1.0).abs() < 1e-6, "{scale}");
        }
    }

    #[test]
    fn one_that_is_not_finite_is_not_hidden() {
        for loss in [f64::NAN, f64::INFINITY] {
            assert_eq!(tallied([1.0, loss, 2.0]), f64::INFINITY);
        }
    }

    #[test]
    fn the_order_and_the_threads_do_not_matter() {
        let losses: Vec<f64> =
            (0..10_000).map(|at| f64::from(at).sin().abs() * 1.1_f64.powi(at % 200)).collect();
        let forwards = tallied(losses.iter().copied());
        let tally = Tallied::new(Linear::new(Loss::Hinge), true);
        std::thread::scope(|scope| {
            for part in losses.chunks(3_000).rev() {
                let tally = &tally;
                scope.spawn(move || part.iter().rev().for_each(|&loss| tally.add(loss)));
            }
        });
        assert_eq!(tally.take().to_bits(), forwards.to_bits());
    }

    #[test]
    fn it_learns_as_the_task_within() {
        let task = Linear { l2: 0.5, l1: 0.1, intercept: true, ..Linear::new(Loss::Logistic) };
        let tally = Tallied::new(task, true);
        let sample = Sample { features: &[0, 3], values: &[1.0, -2.0], label: 1.0, importance: 1.0 };
        let step = Step { size: 0.1, intercept: 0.2, weights: &[0.5, 1.0], scale: [1.0; 2] };
        let (mut one, mut other) = ([0.0; 2], [0.0; 2]);
        let slope = task.compute(&sample, &step, &[0.3, 0.1], &mut one);
        assert_eq!(tally.compute(&sample, &step, &[0.3, 0.1], &mut other), slope);
        assert_eq!(one, other);
        let loss = Loss::Logistic.value(0.3 - 0.2 + 0.2, 1.0);
        assert!((tally.take() - loss).abs() < 1e-9);
        let silent = Tallied::new(task, false);
        silent.compute(&sample, &step, &[0.3, 0.1], &mut other);
        assert_eq!(silent.take(), 0.0);
        silent.count(true);
        silent.compute(&sample, &step, &[0.3, 0.1], &mut other);
        assert!((silent.take() - loss).abs() < 1e-9);
    }

    /// Learns from a sample, and takes it back if it is to.
    fn learnt(tally: &Tallied<Linear>, label: f64, importance: f64, back: bool) {
        let sample = Sample { features: &[0], values: &[1.0], label, importance };
        let step = Step { size: 0.1, intercept: 0.0, weights: &[], scale: [1.0; 2] };
        tally.compute(&sample, &step, &[0.3], &mut [0.0]);
        if back {
            tally.taken_back(&sample, &step, &[0.3], &mut [0.0]);
        }
    }

    #[test]
    fn what_is_taken_back_is_as_if_it_had_never_been() {
        for label in [1.0, 1e100, f64::INFINITY] {
            let tally = Tallied::new(Linear::new(Loss::Squared), true);
            learnt(&tally, label, 2.0, true);
            assert_eq!(tally.take(), 0.0, "{label}");
        }
    }

    #[test]
    fn what_counts_nothing_may_be_of_any_size() {
        let tally = Tallied::new(Linear::new(Loss::Squared), true);
        learnt(&tally, f64::MAX, 0.0, false);
        assert_eq!(tally.take(), 0.0);
        learnt(&tally, f64::MAX, 1.0, false);
        assert_eq!(tally.take(), f64::INFINITY);
    }
}
