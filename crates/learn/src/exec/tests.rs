//! Every scheme against the serial one.

use super::*;
use crate::data::Values;
use crate::tasks::{Linear, Loss};
use isochrone_core::Random;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

/// Random samples of `length` features out of `width`, labelled by a random plane.
pub(crate) fn samples(count: usize, width: u32, length: usize, seed: u64) -> Dataset<'static> {
    let mut random = Random::seeded(seed);
    let (mut offsets, mut features, mut values, mut labels) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    let plane: Vec<f64> = (0..width).map(|_| random.unit() - 0.5).collect();
    for _ in 0..count {
        let mut row: Vec<u32> = Vec::new();
        while row.len() < length {
            let feature = (random.unit() * f64::from(width)) as u32;
            if !row.contains(&feature) {
                row.push(feature);
            }
        }
        let mut sum = 0.0;
        for &feature in &row {
            let value = random.unit() as f32;
            sum += f64::from(value) * plane[feature as usize];
            values.push(value);
        }
        features.extend(row);
        offsets.push(features.len() as u64);
        labels.push(if sum > 0.0 { 1.0 } else { -1.0 });
    }
    Dataset::new(offsets, features, Values::F32(values.into()), labels, width).unwrap()
}

pub(crate) fn options(scheme: Scheme, threads: usize) -> Options {
    Options { scheme, threads: NonZeroUsize::new(threads).unwrap(), ..Options::default() }
}

pub(crate) fn learnt<T: Task>(task: &T, data: &Dataset<'_>, options: &Options) -> Model {
    let mut model = Model::zeros(task, data.width());
    train(task, data, None, &mut model, options, &mut |_| ControlFlow::Continue(())).unwrap();
    model
}

/// T-COP-10.
#[test]
fn planned_threads_learn_what_one_would() {
    let data = samples(400, 200, 9, 1);
    for task in [Linear::published_svm(1.0), Linear { intercept: true, ..Linear::new(Loss::Logistic) }] {
        let serial = learnt(&task, &data, &options(Scheme::Serial, 1));
        assert_eq!(learnt(&task, &data, &options(Scheme::Hogwild, 1)), serial);
        for threads in [1, 2, 3, 4, 8] {
            assert_eq!(learnt(&task, &data, &options(Scheme::Cop, threads)), serial, "{threads} threads");
        }
    }
}
