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
    /// The class; without one, labels are what they are.
    pub class: Option<Class>,
}

/// A class that is set against the rest.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Class {
    /// Its label.
    pub label: f64,
    /// How many times the loss of its samples counts, times their importance: 0 or more.
    pub own: f64,
    /// The same of all other samples.
    pub others: f64,
}

impl Class {
    /// The class of this label; samples count as their importance says.
    #[must_use]
    pub fn of(label: f64) -> Class {
        Class { label, own: 1.0, others: 1.0 }
    }
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

    fn settings(&self) -> String {
        let linear = self.linear.settings();
        match self.class {
            None => linear,
            Some(Class { label, own, others }) => {
                format!("class {label} against the rest, counting {own} and {others}, {linear}")
            }
        }
    }

    #[inline]
    fn compute<V: Value>(
        &self,
        sample: &Sample<'_, V>,
        step: &Step<'_>,
        read: &[f64],
        write: &mut [f64],
    ) -> f64 {
        let (label, count) = match self.class {
            None => (sample.label, 1.0),
            Some(class) if sample.label == class.label => (1.0, class.own),
            Some(class) => (-1.0, class.others),
        };
        let importance = sample.importance * count;
        self.linear.compute(&Sample { label, importance, ..*sample }, step, read, write)
    }
}
