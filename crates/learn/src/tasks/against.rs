//! One class against the rest.

use super::linear::Linear;
use crate::data::{Sample, Value};
use crate::task::{Step, Task};

/// A [`Linear`] of samples whose labels name one of several classes: one of them counts as 1, every other as -1. Several of
/// these, one for each class, learn from the same batches.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Against {
    /// What is learnt.
    pub linear: Linear,
    /// The label of the class; without one, labels are what they are.
    pub class: Option<f64>,
}

impl Task for Against {
    fn weighted(&self) -> bool {
        self.linear.weighted()
    }

    fn decays(&self) -> bool {
        self.linear.decays()
    }

    fn intercept(&self) -> bool {
        self.linear.intercept()
    }

    #[inline]
    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        let label = match self.class {
            None => sample.label,
            Some(class) if sample.label == class => 1.0,
            Some(_) => -1.0,
        };
        self.linear.compute(&Sample { label, ..*sample }, step, read, write)
    }
}
