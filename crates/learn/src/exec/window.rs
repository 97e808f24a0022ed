//! Learning from a few samples with a wide model, at the cost of the samples: only those parameters are taken out of the model
//! that the samples touch, learnt as a model of their own, and put back. The bits are those of learning in place: features keep
//! their order, so sums and conflicts are the same.

use super::options::{Options, Steps};
use super::train::Scales;
use crate::data::Dataset;
use crate::memory::zeros;
use crate::shares::each_share;
use std::num::NonZeroUsize;

/// Samples over the features that occur in them only. For tasks with one number for each feature.
#[derive(Debug)]
pub struct Window<'a> {
    data: Dataset<'a>,
    touched: Vec<u32>,
}

impl<'a> Window<'a> {
    /// Of these samples; `None` where they touch so much of the model that all of it may as well be learnt from.
    pub fn of(data: &'a Dataset<'_>) -> Option<Window<'a>> {
        if data.entries() >= data.width() as usize {
            return None;
        }
        // A bit for each feature, and how many there are before each word of them.
        let mut words: Vec<u64> = zeros(data.width() as usize / 64 + 1);
        for &feature in data.features() {
            words[feature as usize / 64] |= 1 << (feature % 64);
        }
        let (mut touched, mut before) = (Vec::new(), Vec::with_capacity(words.len()));
        for (&word, first) in words.iter().zip((0..).step_by(64)) {
            before.push(touched.len() as u32);
            let mut left = word;
            while left != 0 {
                touched.push(first + left.trailing_zeros());
                left &= left - 1;
            }
        }
        let number = |&feature: &u32| {
            let (word, below) = (feature as usize / 64, (1_u64 << (feature % 64)) - 1);
            before[word] + (words[word] & below).count_ones()
        };
        let features: Vec<u32> = data.features().iter().map(number).collect();
        Some(Window { data: data.over(features, touched.len() as u32), touched })
    }

    /// The samples; their features are numbered as they stand in [`Window::take`].
    pub fn data(&self) -> &Dataset<'a> {
        &self.data
    }

    /// The parameters touched, ascending, by their numbers in the model.
    pub fn touched(&self) -> &[u32] {
        &self.touched
    }

    /// Those numbers, when the samples are no longer needed.
    pub fn into_touched(self) -> Vec<u32> {
        self.touched
    }

    /// The values of the parameters touched.
    pub fn take(&self, model: &[f64]) -> Vec<f64> {
        self.touched.iter().map(|&parameter| model[parameter as usize]).collect()
    }
}

/// Puts `values` back in the places of the parameters `touched`. All others fade: `fades` are what [`Options::fades`] says.
pub fn put_back(model: &mut [f64], touched: &[u32], values: &[f64], fades: &[f64], threads: NonZeroUsize) {
    if !fades.is_empty() {
        // Less than this is swept over sooner than a thread is there.
        const WORTH_A_THREAD: usize = 1 << 16;
        let share = model.len().div_ceil(threads.get()).max(WORTH_A_THREAD);
        each_share(model.chunks_mut(share), |share| {
            for &by in fades {
                share.iter_mut().for_each(|value| *value *= by);
            }
        });
    }
    for (&parameter, &value) in touched.iter().zip(values) {
        model[parameter as usize] = value;
    }
}

impl Options {
    /// What the decay of one epoch over so many samples multiplies a parameter by that none of them touches, one factor after the
    /// other; none where nothing decays.
    pub fn fades(&self, samples: u32) -> Vec<f64> {
        let steps = Steps::new(self, samples);
        if !steps.decays() {
            return Vec::new();
        }
        Scales::of(&steps, 0, samples).factors().filter(|&by| by != 1.0).collect()
    }
}
