//! `isochrone learn predict` and `isochrone learn evaluate`.

use super::arguments::{Evaluate, Predict, What};
use super::told::count;
use super::{against_rest, apart, careful, columns, model, no_cell, open_like, target, tell_skipped};
use crate::arguments::Format;
use crate::output::{print_json, print_text, say, unprinted, unwritable};
use crate::{Status, Usage};
use anyhow::{Context, bail};
use isochrone_learn::Dataset;
use isochrone_learn::read::Options;
use isochrone_learn::saved::{SavedModel, SavedTask};
use isochrone_learn::tasks::{Classified, Regressed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Samples that are predicted at a time: files may be larger than memory.
const ROWS: usize = 1 << 16;

/// Runs `predict`.
pub(super) fn run(arguments: Predict) -> anyhow::Result<Status> {
    let model = model(&arguments.model)?;
    match &arguments.out {
        Some(path) => {
            apart(&arguments.data, "out", path)?;
            apart(&arguments.model, "out", path)?;
            let mut target = target(path)?;
            // What is wrong with what is read is no error of the system.
            predict(&model, &arguments, &mut target).map_err(|error| {
                match error.downcast::<io::Error>() {
                    Ok(cause) => unwritable(path, &cause).into(),
                    Err(error) => error,
                }
            })?;
            target.finish().map_err(|cause| unwritable(path, &cause))?;
        }
        None => match predict(&model, &arguments, io::stdout().lock()) {
            Ok(()) => {}
            Err(error) => match error.downcast::<io::Error>() {
                // Whoever reads may stop early.
                Ok(cause) if cause.kind() == io::ErrorKind::BrokenPipe => {}
                Ok(cause) => return Err(unprinted(&cause).into()),
                Err(error) => return Err(error),
            },
        },
    }
    Ok(Status::Held)
}

/// A line of `--format json`: what is predicted of a sample.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Label(f64),
    Decision(&'a [f64]),
    Probability(&'a [f64]),
}

fn predict(model: &SavedModel, arguments: &Predict, to: impl Write) -> anyhow::Result<()> {
    let columns = columns(None, &arguments.lists);
    let options = Options { double: arguments.double, columns, ..Options::default() };
    let Predict { data, base, lists, .. } = arguments;
    let (mut reader, progress) = open_like((&arguments.model, model), data, *base, options, None, lists)?;
    let mut to = BufWriter::new(to);
    let mut seen = Seen::default();
    while let Some(data) = reader.batch(ROWS)? {
        seen.check(model, &arguments.data, &data)?;
        let decisions = model.decisions(&data);
        match arguments.what {
            What::Label => {
                for label in model.labels(&decisions) {
                    line(&mut to, arguments.format, &Line::Label(label))?;
                }
            }
            What::Decision => {
                let mut planes = Vec::new();
                for row in 0..data.len() {
                    planes.clear();
                    planes.extend(decisions.iter().map(|plane| plane[row]));
                    line(&mut to, arguments.format, &Line::Decision(&planes))?;
                }
            }
            What::Probability => {
                let Some(told) = model.probabilities(&decisions) else {
                    bail!(Usage(format!(
                        "--what probability: the decisions of {} are no log-odds\n  train with --loss logistic",
                        arguments.model.display()
                    )));
                };
                for classes in told {
                    line(&mut to, arguments.format, &Line::Probability(&classes))?;
                }
            }
        }
    }
    to.flush()?;
    progress.finish_and_clear();
    seen.tell(model);
    Ok(())
}

/// What was seen of the samples that a model predicts.
#[derive(Default)]
struct Seen {
    samples: usize,
    /// Values of features that the model does not have.
    unknown: u64,
}

impl Seen {
    /// Whether they are cells, where the model is a factorisation.
    fn check(&mut self, model: &SavedModel, path: &Path, data: &Dataset<'_>) -> Result<(), Usage> {
        if let SavedTask::Factorisation(task) = &model.task {
            task.check(data).map_err(|wrong| no_cell(path, self.samples as u64, wrong))?;
        }
        self.samples += data.len();
        if data.width() > model.features {
            self.unknown +=
                data.features().iter().filter(|&&feature| feature >= model.features).count() as u64;
        }
        Ok(())
    }

    /// Such values are not wrong, but they may come of data that the model is not for.
    fn tell(&self, model: &SavedModel) {
        if self.unknown > 0 {
            say(format_args!(
                "isochrone: {} of features beyond the model's {} {} as nothing",
                count(self.unknown as usize, "value"),
                model.features,
                if self.unknown == 1 { "counts" } else { "count" }
            ));
        }
    }
}

fn line(to: &mut impl Write, format: Format, told: &Line<'_>) -> io::Result<()> {
    match (format, told) {
        (Format::Json, told) => serde_json::to_writer(&mut *to, told)?,
        (Format::Text, Line::Label(label)) => write!(to, "{label}")?,
        (Format::Text, Line::Decision(numbers) | Line::Probability(numbers)) => {
            for (at, number) in numbers.iter().enumerate() {
                write!(to, "{}{number}", if at == 0 { "" } else { " " })?;
            }
        }
    }
    to.write_all(b"\n")
}

/// Runs `evaluate`.
pub(super) fn evaluate(arguments: Evaluate) -> anyhow::Result<Status> {
    let model = model(&arguments.model)?;
    let columns = columns(Some(&arguments.label), &arguments.lists);
    let options = Options { columns, ..careful(&arguments.care) };
    let Evaluate { data, base, label, lists, .. } = &arguments;
    let (mut reader, progress) =
        open_like((&arguments.model, &model), data, *base, options, Some(label), lists)?;
    let mut decisions = vec![Vec::new(); model.models.len()];
    let (mut labels, mut importances) = (Vec::new(), Vec::new());
    let mut seen = Seen::default();
    while let Some(data) = reader.batch(ROWS)? {
        seen.check(&model, &arguments.data, &data)?;
        for (all, more) in decisions.iter_mut().zip(model.decisions(&data)) {
            keep(all, more.into_iter())?;
        }
        keep(&mut labels, data.labels().iter().copied())?;
        keep(&mut importances, (0..data.len()).map(|row| data.importance(row)))?;
    }
    progress.finish_and_clear();
    tell_skipped(&reader);
    if labels.is_empty() {
        bail!(Usage(format!(
            "{}: there is no sample in it to hold the model against",
            arguments.data.display()
        )));
    }
    let strange = labels.iter().find(|label| !model.classes.is_empty() && !model.classes.contains(label));
    if let Some(strange) = strange {
        let classes: Vec<String> = model.classes.iter().take(10).map(f64::to_string).collect();
        let more = if model.classes.len() > 10 { ", …" } else { "" };
        bail!(Usage(format!(
            "{}: a sample is of class {strange}, the model knows {}{more}\n  evaluate on data of the model's classes",
            arguments.data.display(),
            classes.join(", ")
        )));
    }
    seen.tell(&model);
    let figures = figures(&model, &decisions, &labels, &importances);
    match arguments.format {
        Format::Json => {
            let samples = ("samples", labels.len() as f64);
            // What cannot be said (NaN) is null.
            let figures: BTreeMap<_, _> =
                figures.iter().map(|(name, value)| (*name, *value)).chain([samples]).collect();
            print_json(&figures)?;
        }
        Format::Text => {
            let mut text = format!("{:<20} {:>12}\n", "samples", labels.len());
            for (name, value) in figures {
                // Writing to a string cannot fail.
                let _ = match value.is_nan() {
                    true => writeln!(text, "{:<20} {:>12}", name.replace('_', " "), "-"),
                    false => writeln!(text, "{:<20} {value:>12.6}", name.replace('_', " ")),
                };
            }
            print_text(&text)?;
        }
    }
    Ok(Status::Held)
}

/// Keeps what is told of some samples more until all were seen.
fn keep(all: &mut Vec<f64>, more: impl ExactSizeIterator<Item = f64>) -> anyhow::Result<()> {
    let room = all.try_reserve(more.len());
    room.with_context(|| {
        let samples = all.len();
        format!(
            "after {samples} samples there is no memory for what is told of more: evaluate fewer at a time"
        )
    })?;
    all.extend(more);
    Ok(())
}

/// Names and values of what is said of predictions, for samples with these labels and importances (none where all are 1).
pub(super) fn figures(
    model: &SavedModel,
    decisions: &[Vec<f64>],
    labels: &[f64],
    importances: &[f64],
) -> Vec<(&'static str, f64)> {
    match (&model.classes[..], decisions) {
        ([], [told]) => {
            let Regressed { rmse, mean_absolute_error, r2 } = Regressed::of(told, labels, importances);
            vec![("rmse", rmse), ("mean_absolute_error", mean_absolute_error), ("r2", r2)]
        }
        (&[_, high], [told]) => {
            let told = Classified::of(told, &against_rest(labels, high), importances);
            let mut figures = vec![
                ("accuracy", told.accuracy),
                ("precision", told.precision),
                ("recall", told.recall),
                ("area_under_curve", told.area_under_curve),
            ];
            if model.probabilities(decisions).is_some() {
                figures.push(("log_loss", told.log_loss));
            }
            figures
        }
        (classes, _) => {
            let told = model.labels(decisions);
            let mean = |of: &dyn Fn(usize) -> f64| {
                let count = |row: usize| importances.get(row).copied().unwrap_or(1.0);
                let sum = |of: &dyn Fn(usize) -> f64| (0..labels.len()).map(of).sum::<f64>();
                sum(&|row| count(row) * of(row)) / sum(&count)
            };
            let right = |row: usize| f64::from(u8::from(told[row] == labels[row]));
            let mut figures = vec![("accuracy", mean(&right))];
            if let Some(probabilities) = model.probabilities(decisions) {
                let loss = |row: usize| {
                    let class = classes.iter().position(|class| *class == labels[row]);
                    // A probability of 0 costs what the least one costs.
                    -class.map_or(0.0, |class| probabilities[row][class]).max(f64::MIN_POSITIVE).ln()
                };
                figures.push(("log_loss", mean(&loss)));
            }
            figures
        }
    }
}
