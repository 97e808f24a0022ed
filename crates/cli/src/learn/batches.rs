//! Training on data that is larger than memory: a batch of samples is learnt from while the next one is read and planned.

use super::arguments::Train as Arguments;
use super::told::Told;
use super::train::{
    Succession, classes, classifies, converged, execution, factorisation, linear, planes, room, seed,
};
use super::{distinct, input, no_cell, numbering, tell_skipped};
use crate::Usage;
use crate::output::bar;
use anyhow::{Context, bail};
use isochrone_learn::plan::Plan;
use isochrone_learn::read::{Options as Reading, ReadError, Reader};
use isochrone_learn::saved::{SavedModel, SavedTask};
use isochrone_learn::tasks::{Factorisation, Linear};
use isochrone_learn::{Dataset, EpochEnd, Model, Options, Report, Scheme, train};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

/// What is learnt, whatever the task.
enum Learner {
    Linear(Linear),
    Factorisation(Factorisation),
}

impl Learner {
    fn train(
        &self,
        data: &Dataset<'_>,
        plan: Option<&Plan>,
        model: &mut Model,
        options: &Options,
    ) -> anyhow::Result<Report> {
        let after = &mut |_: &EpochEnd<'_>| ControlFlow::Continue(());
        Ok(match self {
            Learner::Linear(task) => train(task, data, plan, model, options, after)?,
            Learner::Factorisation(task) => train(task, data, plan, model, options, after)?,
        })
    }

    fn plan(&self, data: &Dataset<'_>) -> Plan {
        match self {
            Learner::Linear(task) => Plan::of(task, data),
            Learner::Factorisation(task) => Plan::of(task, data),
        }
    }
}

/// Reads the file once to know its shape, then once an epoch.
pub(super) fn run(arguments: &Arguments, rows: NonZeroUsize) -> anyhow::Result<(Told, SavedModel)> {
    readable_again(&arguments.data)?;
    let begun = Instant::now();
    let (input, mut reader, progress) = input(&arguments.data, &arguments.input)?;
    let mut told = Told::default();
    let (mut found, mut succession) = (Vec::new(), Succession::default());
    let mut seen_first = Checksum::default();
    while let Some(batch) = reader.batch(rows.get())? {
        seen_first.add(&batch);
        if let Some(rank) = arguments.rank {
            let cells = factorisation(arguments, rank.get(), 1).check(&batch);
            cells.map_err(|wrong| no_cell(&arguments.data, told.samples, wrong))?;
        }
        told.samples += batch.len() as u64;
        told.values += batch.entries() as u64;
        if classifies(arguments) {
            distinct(&batch, &mut found)?;
            succession.add(batch.labels());
        }
    }
    progress.finish_and_clear();
    tell_skipped(&reader);
    if told.samples == 0 {
        bail!(reader.empty());
    }
    if classifies(arguments) {
        found = classes(&arguments.data, found, told.samples)?;
        succession.warn(&arguments.data, found.len());
    }
    told.features = reader.width();
    match learner(arguments, 1) {
        Learner::Linear(task) => room(&task, reader.width(), 1)?,
        Learner::Factorisation(task) => room(&task, reader.width(), 1)?,
    }
    told.reading = begun.elapsed().as_secs_f64();
    told.classes.clone_from(&found);
    let numbering = numbering(&input, &reader);
    // All batches have all features, and the base that was found.
    let width = match numbering.format {
        isochrone_learn::read::Format::Svmlight => Some(told.features),
        isochrone_learn::read::Format::Vw => None,
    };
    let input = Reading { width, base: numbering.base, ..input };

    let options = execution(arguments);
    told.scheme = options.scheme.to_string();
    let count = if found.len() > 2 { found.len() } else { 1 };
    let mut models = vec![begin(arguments, told.features); count];
    let whole = u64::from(arguments.epochs) * told.samples;
    let progress = bar("learning", whole);
    let mut seen = 0;
    for epoch in 0..arguments.epochs {
        let mut learn = |batch: &Dataset<'_>, plan: Option<&Plan>| -> anyhow::Result<()> {
            let learner = learner(arguments, batch.len());
            let options = Options { epochs: 1, seen, epochs_before: epoch, ..options.clone() };
            for (model, labels) in models.iter_mut().zip(planes(&found, batch.labels())) {
                let report = learner.train(&batch.with_labels(labels)?, plan, model, &options)?;
                converged(model)?;
                told.add(&report);
            }
            seen += batch.len() as u64;
            progress.set_position(seen);
            Ok(())
        };
        let (samples, checksum) = pass(arguments, &input, rows.get(), &mut learn)?;
        let (path, number) = (arguments.data.display(), epoch + 1);
        let differs = if samples != told.samples {
            format!("it had {} samples when it was read first, and {samples} in epoch {number}", told.samples)
        } else if checksum != seen_first {
            format!("its samples in epoch {number} are not those of when it was read first")
        } else {
            continue;
        };
        bail!(Usage(format!(
            "{path}: {differs}: it has changed meanwhile\n  train on a file that stays as it is"
        )));
    }
    progress.finish_and_clear();
    told.epochs = arguments.epochs;
    told.rate(seen * count as u64, told.values * u64::from(arguments.epochs) * count as u64);
    let task = match learner(arguments, told.samples as usize) {
        Learner::Linear(task) => SavedTask::Linear(task),
        Learner::Factorisation(task) => SavedTask::Factorisation(task),
    };
    Ok((told, SavedModel { task, features: reader.width(), classes: found, models, seen, numbering }))
}

/// Refuses what gives its bytes only once: standard input, pipes, and what a shell makes of `<(...)`.
fn readable_again(path: &Path) -> anyhow::Result<()> {
    let what = match path.metadata() {
        _ if path == Path::new("-") => "standard input".to_owned(),
        Ok(about) if !about.is_file() => path.display().to_string(),
        // What cannot be opened is told where it is opened.
        _ => return Ok(()),
    };
    bail!(Usage(format!("--batch-rows reads the data more than once, which {what} cannot be\n  give a file")))
}

fn learner(arguments: &Arguments, samples: usize) -> Learner {
    match arguments.rank {
        Some(rank) => Learner::Factorisation(factorisation(arguments, rank.get(), samples)),
        None => Learner::Linear(linear(arguments, samples)),
    }
}

fn begin(arguments: &Arguments, features: u32) -> Model {
    match learner(arguments, 1) {
        Learner::Linear(task) => Model::zeros(&task, features),
        Learner::Factorisation(task) => {
            Model { parameters: task.initial(features, seed(arguments)), intercept: 0.0 }
        }
    }
}

/// Of all batches of a pass, in their order.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, batch: &Dataset<'_>) {
        // Odd, so that what was added before is never lost.
        self.0 = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ batch.checksum();
    }
}

/// Reads the file once; a thread reads and plans ahead of what is learnt. Returns how many samples there were, and their checksum.
fn pass(
    arguments: &Arguments,
    input: &Reading,
    rows: usize,
    learn: &mut dyn FnMut(&Dataset<'_>, Option<&Plan>) -> anyhow::Result<()>,
) -> anyhow::Result<(u64, Checksum)> {
    let planned = arguments.scheme == Scheme::Cop && !arguments.first_epoch;
    std::thread::scope(|scope| {
        // One batch is learnt from, one waits, one is read: three in memory.
        let (to, from) = mpsc::sync_channel(1);
        let reading =
            std::thread::Builder::new().spawn_scoped(scope, move || -> Result<Checksum, ReadError> {
                let mut reader = Reader::open(&arguments.data, input.clone())?;
                let mut checksum = Checksum::default();
                while let Some(batch) = reader.batch(rows)? {
                    checksum.add(&batch);
                    let plan = planned.then(|| learner(arguments, batch.len()).plan(&batch));
                    if to.send((batch, plan)).is_err() {
                        break;
                    }
                }
                Ok(checksum)
            });
        let reading = reading
            .context("the system gives no thread to read with (see ulimit -u and the container's limit)")?;
        let (mut done, mut samples) = (Ok(()), 0);
        for (batch, plan) in from {
            done = learn(&batch, plan.as_ref());
            if done.is_err() {
                break;
            }
            samples += batch.len() as u64;
        }
        match reading.join() {
            Ok(read) => done.and(read.map_err(anyhow::Error::from)).map(|checksum| (samples, checksum)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
