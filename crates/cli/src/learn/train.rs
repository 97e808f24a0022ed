//! `isochrone learn train`.

use super::arguments::{Steps, Train as Arguments};
use super::told::Told;
use super::{
    against_rest, apart, batches, distinct, input, no_cell, numbering, predict, tell_skipped, threads,
    writable,
};
use crate::arguments::Format;
use crate::output::{bar, print_json, print_text, say};
use crate::{Status, Usage};
use anyhow::bail;
use isochrone_core::Random;
use isochrone_learn::plan::file::PlanFileError;
use isochrone_learn::plan::{Plan, TooWide};
use isochrone_learn::saved::{SavedModel, SavedTask};
use isochrone_learn::tasks::{Factorisation, Linear, Loss, decisions};
use isochrone_learn::{Dataset, Mode, Model, Options, Schedule, Scheme, Task, train};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

/// Runs the verb.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    check(&arguments)?;
    apart(&arguments.data, "model", &arguments.model)?;
    if let Some(plan) = &arguments.plan {
        apart(plan, "model", &arguments.model)?;
    }
    writable(&arguments.model)?;
    if let Some(rows) = arguments.batch_rows {
        let (told, model) = batches::run(&arguments, rows)?;
        return finish(&arguments, &told, &model);
    }
    let begun = Instant::now();
    let (input, mut reader, progress) = input(&arguments.data, &arguments.input)?;
    // A plan of all samples costs next to nothing while they are parsed.
    let planned = arguments.scheme == Scheme::Cop
        && arguments.plan.is_none()
        && arguments.rank.is_none()
        && arguments.held_out.is_none()
        && !arguments.first_epoch;
    let (data, plan) = match planned {
        true => reader.all_planned().map(|(data, plan)| (data, Some(plan)))?,
        false => (reader.all()?, None),
    };
    progress.finish_and_clear();
    tell_skipped(&reader);
    let mut told = Told {
        samples: data.len() as u64,
        features: data.width(),
        values: data.entries() as u64,
        reading: begun.elapsed().as_secs_f64(),
        ..Told::default()
    };
    let model = learn(&arguments, &data, plan, numbering(&input, &reader), &mut told)?;
    finish(&arguments, &told, &model)
}

fn wrong(flag: &str, number: f64, right: &str) -> anyhow::Result<()> {
    bail!(Usage(format!("--{flag} {number}: {right}")))
}

pub(super) fn strength(alpha: f64) -> anyhow::Result<()> {
    if alpha >= 0.0 && alpha.is_finite() {
        return Ok(());
    }
    wrong("alpha", alpha, "a strength is a number from 0 on")
}

pub(super) fn step(size: f64) -> anyhow::Result<()> {
    if size > 0.0 && size.is_finite() { Ok(()) } else { wrong("step", size, "a step is a number above 0") }
}

/// Below 0, steps grow.
pub(super) fn power(power: f64) -> anyhow::Result<()> {
    if power.is_finite() { Ok(()) } else { wrong("power", power, "an exponent is a number") }
}

/// What numbers cannot mean.
fn check(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { alpha, l1_ratio, decay, .. } = *arguments;
    strength(alpha)?;
    if !(0.0..=1.0).contains(&l1_ratio) {
        return wrong("l1-ratio", l1_ratio, "a share is a number from 0 to 1");
    }
    if let Some(size) = arguments.step {
        if arguments.schedule == Steps::Optimal {
            return wrong("step", size, "--schedule optimal takes its steps from --alpha");
        }
        step(size)?;
    }
    if let (Some(rank), Steps::Optimal) = (arguments.rank, arguments.schedule) {
        bail!(Usage(format!(
            "--rank {rank}: --schedule optimal is that of linear models; take geometric, constant or inverse-scaling"
        )));
    }
    if let (Some(seed), None, None) = (arguments.seed, arguments.rank, arguments.held_out) {
        bail!(Usage(format!(
            "--seed {seed}: nothing is drawn here; it is for --held-out and --rank, samples are taken in their order"
        )));
    }
    if let Some(decay) = decay {
        if arguments.schedule != Steps::Geometric {
            return wrong("decay", decay, "it is for --schedule geometric");
        }
        if !(decay > 0.0 && decay <= 1.0) {
            return wrong("decay", decay, "a step shrinks by a factor above 0, up to 1");
        }
    }
    if let Some(exponent) = arguments.power {
        if arguments.schedule != Steps::InverseScaling {
            return wrong("power", exponent, "it is for --schedule inverse-scaling");
        }
        power(exponent)?;
    }
    if let Some(share) = arguments.held_out
        && !(share > 0.0 && share < 100.0)
    {
        return wrong("held-out", share, "a share is between 0 and 100 percent");
    }
    if arguments.schedule == Steps::Optimal && alpha == 0.0 {
        return wrong("alpha", alpha, "--schedule optimal takes its steps from alpha, which must be above 0");
    }
    if arguments.first_epoch && arguments.scheme != Scheme::Cop {
        bail!(Usage(format!("--first-epoch is for --scheme cop; {} needs no plan", arguments.scheme)));
    }
    if arguments.carry && !matches!(arguments.scheme, Scheme::Cop | Scheme::Serial) {
        bail!(Usage(format!(
            "--carry is for --scheme cop and serial; {} has no versions to carry on",
            arguments.scheme
        )));
    }
    if arguments.plan.is_some() && arguments.scheme != Scheme::Cop {
        bail!(Usage(format!("--plan is for --scheme cop; {} needs no plan", arguments.scheme)));
    }
    if arguments.packed && arguments.scheme != Scheme::Cop {
        bail!(Usage(format!(
            "--packed is for --scheme cop; {} has no plan to lay the model out by",
            arguments.scheme
        )));
    }
    Ok(())
}

pub(super) fn seed(arguments: &Arguments) -> u64 {
    arguments.seed.unwrap_or(0)
}

pub(super) fn linear(arguments: &Arguments, samples: usize) -> Linear {
    let task = Linear { intercept: !arguments.no_intercept, ..Linear::new(arguments.loss) };
    task.penalised(arguments.alpha, arguments.l1_ratio, samples)
}

pub(super) fn factorisation(arguments: &Arguments, rank: usize, samples: usize) -> Factorisation {
    let Linear { l2, l1, intercept, .. } = linear(arguments, samples);
    Factorisation { rank, l2, l1, intercept }
}

pub(super) fn execution(arguments: &Arguments) -> Options {
    let (initial, decay, power) =
        (arguments.step.unwrap_or(0.1), arguments.decay.unwrap_or(0.9), arguments.power.unwrap_or(0.5));
    let schedule = match arguments.schedule {
        Steps::Geometric => Schedule::Geometric { initial, decay },
        Steps::Constant => Schedule::Constant(initial),
        Steps::InverseScaling => Schedule::InverseScaling { initial, power },
        Steps::Optimal => Linear::new(arguments.loss).optimal(arguments.alpha),
    };
    Options {
        scheme: arguments.scheme,
        threads: threads(arguments.threads),
        epochs: arguments.epochs,
        schedule,
        mode: if arguments.carry { Mode::Carry } else { Mode::Reset },
        first_epoch: arguments.first_epoch,
        packed: arguments.packed,
        ..Options::default()
    }
}

/// Samples that tell something of their classes; of fewer, the order and the number of them may be chance.
const TELLING: usize = 20;

/// The labels of the classes of so many samples. What classes are, and what may be none, is as scikit-learn's `type_of_target` has it.
pub(super) fn classes(data: &Path, found: Vec<f64>, samples: u64) -> anyhow::Result<Vec<f64>> {
    let path = data.display();
    if let [only] = found[..] {
        bail!(Usage(format!(
            "{path}: all samples are of class {only}; there must be two classes to tell apart\n  for numbers use --loss squared"
        )));
    }
    if let Some(label) = found.iter().find(|label| label.fract() != 0.0) {
        bail!(Usage(format!(
            "{path}: there are labels such as {label}, which are hardly classes\n  for numbers use --loss squared; name classes by whole numbers"
        )));
    }
    let count = found.len() as u64;
    if samples > TELLING as u64 && count * 2 > samples {
        say(format_args!(
            "isochrone: {path}: there are {count} labels in {samples} samples, which are hardly classes: for numbers use --loss squared"
        ));
    }
    Ok(found)
}

/// How the classes of samples follow each other.
#[derive(Default)]
pub(super) struct Succession {
    samples: usize,
    last: Option<f64>,
    /// Samples of another class than the one before.
    changes: usize,
    /// The class of the first batch that has no other.
    alone: Option<f64>,
    /// Whether a batch has nothing but another class than that.
    apart: bool,
}

impl Succession {
    /// Adds the samples of the next batch.
    pub(super) fn add(&mut self, labels: &[f64]) {
        for &label in labels {
            self.changes += usize::from(self.last.is_some_and(|last| last != label));
            self.last = Some(label);
        }
        self.samples += labels.len();
        if let [class, ..] = *labels
            && labels.len() >= TELLING
            && labels.iter().all(|label| *label == class)
        {
            self.apart |= *self.alone.get_or_insert(class) != class;
        }
    }

    /// Warns of samples that come class by class, so many classes: what is learnt last is learnt best.
    pub(super) fn warn(&self, data: &Path, classes: usize) {
        if self.apart || self.samples >= TELLING && self.changes + 1 == classes {
            say(format_args!(
                "isochrone: {}: the samples come class by class, and are learnt from in that order, which makes a worse model: \
                 shuffle them before (lines: shuf FILE)",
                data.display()
            ));
        }
    }
}

/// Whether labels are classes.
pub(super) fn classifies(arguments: &Arguments) -> bool {
    arguments.rank.is_none() && arguments.loss != Loss::Squared
}

/// Labels for each plane: of two classes one plane, for the higher.
pub(super) fn planes(classes: &[f64], labels: &[f64]) -> Vec<Vec<f64>> {
    match *classes {
        [] => vec![labels.to_vec()],
        [_, high] => vec![against_rest(labels, high)],
        _ => classes.iter().map(|&class| against_rest(labels, class)).collect(),
    }
}

/// Learns all planes from data in memory.
fn learn(
    arguments: &Arguments,
    data: &Dataset<'_>,
    plan: Option<Plan>,
    numbering: isochrone_learn::saved::Numbering,
    told: &mut Told,
) -> anyhow::Result<SavedModel> {
    let mut found = Vec::new();
    if classifies(arguments) {
        distinct(data, &mut found)?;
        found = classes(&arguments.data, found, data.len() as u64)?;
        let mut succession = Succession::default();
        succession.add(data.labels());
        succession.warn(&arguments.data, found.len());
    }
    let (training, held) = split(arguments, data)?;
    let options = execution(arguments);
    told.scheme = options.scheme.to_string();
    let setting = Setting { arguments, options };
    told.classes.clone_from(&found);
    let (task, models) = match arguments.rank {
        Some(rank) => {
            let task = factorisation(arguments, rank.get(), training.len());
            task.check(data).map_err(|wrong| no_cell(&arguments.data, 0, wrong))?;
            room(&task, data.width(), 1)?;
            let plan = prepared(arguments, &task, &training, plan, told)?;
            let begin = Model { parameters: task.initial(data.width(), seed(arguments)), intercept: 0.0 };
            let held = held.as_ref().map(|held| held.borrowed());
            let loss = |model: &Model| {
                let held = held.as_ref()?;
                let predictions = task.predictions(held, &model.parameters, model.intercept);
                Some(mean_loss(Loss::Squared, &predictions, held.labels(), held))
            };
            let (model, _) = one(&task, &training, plan.as_ref(), begin, &setting, &loss, told)?;
            told.objective = Some(task.objective(&training, &model.parameters, model.intercept));
            (SavedTask::Factorisation(task), vec![model])
        }
        None => {
            let task = linear(arguments, training.len());
            room(&task, data.width(), 1)?;
            let mut plan = prepared(arguments, &task, &training, plan, told)?;
            let held_planes = held.as_ref().map(|held| planes(&found, held.labels()));
            let mut models = Vec::new();
            let mut objectives = 0.0;
            for (plane, labels) in planes(&found, training.labels()).into_iter().enumerate() {
                let of_plane = training.with_labels(labels)?;
                let held = held.as_ref().zip(held_planes.as_ref().map(|planes| &planes[plane]));
                let loss = |model: &Model| {
                    let (held, labels) = held?;
                    let predictions = decisions(held, &model.parameters, model.intercept);
                    Some(mean_loss(task.loss, &predictions, labels, held))
                };
                let begin = Model::zeros(&task, data.width());
                let (model, made) = one(&task, &of_plane, plan.as_ref(), begin, &setting, &loss, told)?;
                // A plan that the first class made, in its first epoch, serves the others.
                plan = plan.or(made);
                let objective = task.objective(&of_plane, &model.parameters, model.intercept);
                descended(&task, &of_plane, objective)?;
                objectives += objective;
                models.push(model);
            }
            told.objective = Some(objectives / models.len() as f64);
            // Of all planes together so far.
            told.held_out_loss = told.held_out_loss.map(|losses| losses / models.len() as f64);
            (SavedTask::Linear(task), models)
        }
    };
    let epochs = u64::from(told.epochs);
    let count = models.len() as u64;
    told.rate(training.len() as u64 * epochs * count, training.entries() as u64 * epochs * count);
    let model = SavedModel {
        task,
        features: data.width(),
        classes: found,
        models,
        seen: training.len() as u64 * epochs,
        numbering,
    };
    let [of_training, of_held] = [Some(&training), held.as_ref()].map(|data| {
        data.map(|data| predict::figures(&model, &model.decisions(data), data.labels(), data.importances()))
    });
    (told.figures, told.held_out_figures) = (of_training.unwrap_or_default(), of_held.unwrap_or_default());
    Ok(model)
}

/// What was asked for, in two forms.
struct Setting<'a> {
    arguments: &'a Arguments,
    options: Options,
}

/// The samples to learn from, and those kept out.
fn split<'a>(
    arguments: &Arguments,
    data: &'a Dataset<'_>,
) -> anyhow::Result<(Dataset<'a>, Option<Dataset<'static>>)> {
    let Some(share) = arguments.held_out else { return Ok((data.borrowed(), None)) };
    let mut random = Random::seeded(seed(arguments));
    let (mut kept, mut out) = (Vec::new(), Vec::new());
    for row in 0..data.len() {
        if random.chance(share / 100.0) { out.push(row) } else { kept.push(row) }
    }
    if kept.is_empty() || out.is_empty() {
        let samples = data.len();
        bail!(Usage(format!(
            "--held-out {share}: of {samples} samples that leaves {} to learn from and {} to keep out",
            kept.len(),
            out.len()
        )));
    }
    Ok((data.select(&kept), Some(data.select(&out))))
}

/// The plan that a file holds, that was made while reading, or that is made now; none where the scheme needs none.
fn prepared<T: Task>(
    arguments: &Arguments,
    task: &T,
    data: &Dataset<'_>,
    plan: Option<Plan>,
    told: &mut Told,
) -> anyhow::Result<Option<Plan>> {
    if let Some(path) = &arguments.plan {
        return match Plan::load_for(path, task, data) {
            Ok(plan) => Ok(Some(plan)),
            Err(PlanFileError::Io { cause, .. }) => Err(Usage(format!(
                "--plan {}: cannot be read: {cause}\n  `isochrone learn plan --out` writes one",
                path.display()
            ))
            .into()),
            Err(error) => Err(anyhow::Error::from(error).context(path.display().to_string())),
        };
    }
    if plan.is_some() || arguments.scheme != Scheme::Cop || arguments.first_epoch {
        return Ok(plan);
    }
    let begun = Instant::now();
    let plan = Plan::in_blocks(task, data, threads(arguments.threads))?;
    told.planning += begun.elapsed().as_secs_f64();
    Ok(Some(plan))
}

/// The mean loss by the importances of these samples, whose labels may be others.
fn mean_loss(loss: Loss, predictions: &[f64], labels: &[f64], data: &Dataset<'_>) -> f64 {
    let told = predictions.iter().zip(labels).enumerate();
    let sum: f64 = told.map(|(row, (told, label))| data.importance(row) * loss.value(*told, *label)).sum();
    sum / data.importance_sum().max(f64::MIN_POSITIVE)
}

/// Learns one plane. With samples kept out, the best model by their loss is what stays.
fn one<T: Task>(
    task: &T,
    data: &Dataset<'_>,
    plan: Option<&Plan>,
    begin: Model,
    setting: &Setting<'_>,
    held_loss: &dyn Fn(&Model) -> Option<f64>,
    told: &mut Told,
) -> anyhow::Result<(Model, Option<Plan>)> {
    let Setting { arguments, options } = setting;
    let progress = bar("learning", u64::from(options.epochs));
    let mut model = begin;
    let mut best: Option<(f64, Model)> = None;
    let mut since = 0;
    let mut report = train(task, data, plan, &mut model, options, &mut |end| {
        progress.set_position(u64::from(end.epoch));
        if arguments.held_out.is_none() {
            return ControlFlow::Continue(());
        }
        let Some(loss) = held_loss(end.model()) else { return ControlFlow::Continue(()) };
        if best.as_ref().is_none_or(|(least, _)| loss < *least) {
            best = Some((loss, end.model().clone()));
            since = 0;
        } else {
            since += 1;
        }
        if since >= arguments.patience { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    progress.finish_and_clear();
    if let Some((loss, kept)) = best {
        told.held_out_loss = Some(told.held_out_loss.unwrap_or(0.0) + loss);
        model = kept;
    }
    converged(&model)?;
    told.add(&report);
    Ok((model, report.plan.take()))
}

/// Refuses models, so many at a time, for which the memory is not there: what is asked for beyond that ends the process.
pub(super) fn room<T: Task>(task: &T, features: u32, models: usize) -> Result<(), Usage> {
    // Itself, what threads share of it, its versions, and the weights of its penalty.
    let numbers = u64::from(task.parameters(features)).saturating_mul(task.width() as u64);
    TooWide::check(features, numbers.saturating_mul(32 * models as u64))
        .map_err(|wide| Usage(wide.to_string()))
}

/// What helps a model that diverges.
const SMALLER: &str = "take smaller steps (--step 0.01, with --schedule optimal a larger --alpha), or scale the values of \
    the samples to about 1";

/// Whether all numbers of a model are finite.
pub(super) fn converged(model: &Model) -> anyhow::Result<()> {
    if model.parameters.iter().chain([&model.intercept]).all(|number| number.is_finite()) {
        return Ok(());
    }
    bail!(Usage(format!("the model diverged: its numbers grew beyond all bounds\n  {SMALLER}")))
}

/// Whether a model is not far worse than none: steps that are too large need not end in infinities.
fn descended(task: &Linear, data: &Dataset<'_>, objective: f64) -> anyhow::Result<()> {
    let nothing = mean_loss(task.loss, &vec![0.0; data.len()], data.labels(), data);
    // An objective is by sample, however much each counts.
    let nothing = nothing * data.importance_sum() / data.len() as f64;
    if objective <= 10.0 * nothing + 1.0 {
        return Ok(());
    }
    bail!(Usage(format!(
        "the model diverged: its objective is {objective:.3e}, that of a model of zeros {nothing:.3}\n  {SMALLER}"
    )))
}

/// Saves the model and prints what came of it.
fn finish(arguments: &Arguments, told: &Told, model: &SavedModel) -> anyhow::Result<Status> {
    model.save(&arguments.model)?;
    match arguments.format {
        Format::Json => print_json(told)?,
        Format::Text => {
            print_text(&told.text())?;
            print_text(&format!("model            {}\n", arguments.model.display()))?;
        }
    }
    Ok(Status::Held)
}
