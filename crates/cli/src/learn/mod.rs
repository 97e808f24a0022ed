//! `isochrone learn`: plan, train, predict, evaluate, generate, global.

pub mod arguments;
mod batches;
mod generate;
mod global;
mod plan;
mod predict;
mod told;
mod train;

use crate::output::{apart, bar, no_place, say};
use crate::{Status, Usage};
use anyhow::bail;
use arguments::{Base, Care, Input, Label, Learn, Lists, Verb};
use indicatif::ProgressBar;
use isochrone_learn::generate::RecipeError;
use isochrone_learn::read::{self, Columns, Options, ReadError, Reader};
use isochrone_learn::saved::{Numbering, SavedError, SavedModel};
use isochrone_learn::tasks::NotPairs;
use isochrone_learn::write::Target;
use isochrone_learn::{DataError, Dataset};
use std::num::NonZeroUsize;
use std::path::Path;

/// Runs the verb.
pub(crate) fn run(arguments: Learn) -> anyhow::Result<Status> {
    match arguments.verb {
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Train(arguments) => train::run(arguments),
        Verb::Predict(arguments) => predict::run(arguments),
        Verb::Evaluate(arguments) => predict::evaluate(arguments),
        Verb::Generate(arguments) => generate::run(arguments),
        Verb::Global(arguments) => global::run(arguments),
    }
}

/// Whether an error is about the files that were given, and so about what was asked for; memory that they want in vain is not.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ReadError>().is_some_and(|error| !error.is_memory())
        || error.is::<DataError>()
        || error.is::<SavedError>()
        || error.is::<isochrone_learn::plan::file::PlanFileError>()
        || error.is::<isochrone_learn::plan::PlanMismatch>()
        || error
            .downcast_ref::<RecipeError>()
            .is_some_and(|error| !matches!(error, RecipeError::NoRoom { .. }))
}

/// Refuses a place that nothing can be written to, before what is to be written there takes its time.
fn writable(path: &Path) -> Result<(), Usage> {
    Target::check(path).map_err(|cause| no_place(path, &cause))
}

/// Begins to write what a flag asks for.
fn target(path: &Path) -> Result<Target, Usage> {
    Target::create(path).map_err(|cause| no_place(path, &cause))
}

/// Loads the model that --model names.
fn model(path: &Path) -> anyhow::Result<SavedModel> {
    SavedModel::load(path).map_err(|error| match error {
        SavedError::Io { cause, .. } => Usage(format!(
            "--model {}: cannot be read: {cause}\n  `isochrone learn train --model` writes one",
            path.display()
        ))
        .into(),
        other => other.into(),
    })
}

/// What is wrong with a sample that is to be a cell, of a file from whose sample number `first` (from 0) on these are.
fn no_cell(path: &Path, first: u64, wrong: NotPairs) -> Usage {
    let NotPairs { row, features } = wrong;
    let values = if features == 1 { "feature" } else { "features" };
    Usage(format!(
        "{}: sample {} has {features} {values}, where a cell has two: its row and its column",
        path.display(),
        first + row as u64 + 1
    ))
}

fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

fn options(input: &Input) -> anyhow::Result<Options> {
    if input.input == read::Format::Vw && input.features.is_some() {
        bail!(Usage(
            "--features is for svmlight; of --input vw, --bits says how many features there are".to_owned()
        ));
    }
    if let (read::Format::Svmlight, Some(bits)) = (input.input, input.bits) {
        bail!(Usage(format!("--bits {bits}: it is for --input vw, whose features are hashed")));
    }
    if let (read::Format::Vw, Base::Zero | Base::One) = (input.input, input.base) {
        bail!(Usage("--base: it is for svmlight; of --input vw, names are hashed".to_owned()));
    }
    let base = match input.base {
        Base::Auto => read::Base::Auto,
        Base::Zero => read::Base::Zero,
        Base::One => read::Base::One,
    };
    let columns = columns(Some(&input.label), &input.lists);
    let (format, width) = (input.input, input.features);
    let others = careful(&input.care);
    Ok(Options { format, base, width, bits: input.bits.unwrap_or(others.bits), columns, ..others })
}

fn columns(label: Option<&Label>, lists: &Lists) -> Columns {
    let Lists { indices, values } = lists.clone();
    let columns = Columns::default();
    let weight = label.and_then(|label| label.weight.clone());
    let label = label.and_then(|label| label.label.clone().or(columns.label));
    Columns { label, indices: indices.unwrap_or(columns.indices), values, weight }
}

/// Refuses names of columns where there are none; of weights, the reader has.
fn are_columns(
    path: &Path,
    reader: &Reader,
    format: read::Format,
    label: Option<&Label>,
    lists: &Lists,
) -> anyhow::Result<()> {
    let given = [
        ("label", label.and_then(|label| label.label.as_ref())),
        ("indices", lists.indices.as_ref()),
        ("values", lists.values.as_ref()),
    ];
    match given.iter().find_map(|(flag, column)| column.map(|column| (flag, column))) {
        Some((flag, column)) if reader.base() != read::Base::Auto => bail!(Usage(format!(
            "--{flag} {column}: it names a column of Parquet or Arrow; {} has lines of {}",
            path.display(),
            if format == read::Format::Vw { "Vowpal Wabbit's" } else { "svmlight" }
        ))),
        _ => Ok(()),
    }
}

fn careful(care: &Care) -> Options {
    Options { double: care.double, skip_errors: care.skip_errors, ..Options::default() }
}

/// Opens what a model of this file is to predict, and reads it as what that learnt from, but for a first index that was given.
/// Features that the model has not seen are not wrong: they count as nothing.
fn open_like(
    (of, model): (&Path, &SavedModel),
    path: &Path,
    base: Option<read::Base>,
    options: Options,
    label: Option<&Label>,
    lists: &Lists,
) -> anyhow::Result<(Reader, ProgressBar)> {
    let Numbering { format, base: known, bits } = model.numbering;
    if format == read::Format::Vw && base.is_some() {
        let of = of.display();
        bail!(Usage(format!("--base: it is for svmlight; {of} is of --input vw, where names are hashed")));
    }
    let base_of = base.is_none().then(|| of.to_owned());
    let options = Options { format, base: base.unwrap_or(known), base_of, bits, width: None, ..options };
    let (reader, progress) = open(path, &options)?;
    counts_so(path, &reader, base)?;
    are_columns(path, &reader, format, label, lists)?;
    if options.base == read::Base::Auto && reader.base() != read::Base::Auto {
        bail!(Usage(format!(
            "{}: it has lines, and {} is of a table, which does not tell whether they count features from 0 or from 1\n  \
             say --base 0 (as scikit-learn writes by default) or --base 1 (as libsvm's files have it)",
            path.display(),
            of.display()
        )));
    }
    Ok((reader, progress))
}

/// Refuses a given first index that a table does not have.
fn counts_so(path: &Path, reader: &Reader, base: Option<read::Base>) -> anyhow::Result<()> {
    if base == Some(read::Base::One) && reader.base() == read::Base::Auto {
        bail!(Usage(format!("--base 1: {} is a table, whose indices count from 0", path.display())));
    }
    Ok(())
}

fn numbering(options: &Options, reader: &Reader) -> Numbering {
    Numbering { format: options.format, base: reader.base(), bits: options.bits }
}

/// Opens what a verb is given to learn from, and how it is read.
fn input(path: &Path, input: &Input) -> anyhow::Result<(Options, Reader, ProgressBar)> {
    let options = options(input)?;
    let (reader, progress) = open(path, &options)?;
    counts_so(path, &reader, Some(options.base))?;
    are_columns(path, &reader, options.format, Some(&input.label), &input.lists)?;
    Ok((options, reader, progress))
}

/// Opens a file of samples, or standard input; the bar follows what is read of a file.
fn open(path: &Path, options: &Options) -> anyhow::Result<(Reader, ProgressBar)> {
    if path == Path::new("-") {
        let progress = ProgressBar::hidden();
        return Ok((Reader::of(Path::new("standard input"), std::io::stdin(), options.clone())?, progress));
    }
    let progress = bar("reading", path.metadata().map_or(0, |about| about.len()));
    let told = progress.clone();
    let reader = Reader::open_watched(path, options.clone(), move |read| told.inc(read));
    if reader.is_err() {
        progress.finish_and_clear();
    }
    let reader = reader.map_err(|error| match error {
        ReadError::Open { .. } if !error.is_memory() => {
            anyhow::Error::from(Usage(format!("{error}\n  name a file of samples, or - for standard input")))
        }
        error => error.into(),
    });
    Ok((reader?, progress))
}

/// Says which lines were left out.
fn tell_skipped(reader: &Reader) {
    let (count, shown) = reader.skipped();
    if count > 0 {
        let lines = if count == 1 { "line was" } else { "lines were" };
        say(format_args!("isochrone: {count} wrong {lines} left out:"));
        shown.iter().for_each(|error| say(format_args!("  {error}")));
        if count > shown.len() as u64 {
            say(format_args!("  and {} more", count - shown.len() as u64));
        }
    }
}

/// The labels that occur, ascending.
fn distinct(data: &Dataset<'_>, into: &mut Vec<f64>) -> anyhow::Result<()> {
    for &label in data.labels() {
        // Of the two zeros there is one.
        let label = label + 0.0;
        if let Err(at) = into.binary_search_by(|known| known.total_cmp(&label)) {
            if into.len() == CLASSES {
                bail!(Usage(format!(
                    "there are more than {CLASSES} different labels, which are hardly classes\n  for numbers use --loss squared"
                )));
            }
            into.insert(at, label);
        }
    }
    Ok(())
}

/// More classes than anyone tells apart by as many planes.
const CLASSES: usize = 1000;

/// Labels as tasks want them, for the plane of one class: 1 where it is that class, else -1.
fn against_rest(labels: &[f64], class: f64) -> Vec<f64> {
    labels.iter().map(|label| if *label == class { 1.0 } else { -1.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_no_fault_of_the_file() {
        let cause = isochrone_learn::NoRoom::check("reading", 1 << 60, 1).unwrap_err();
        let path = Path::new("a.svm").to_owned();
        let error = ReadError::NoRoom { path: path.clone(), rows: 7, cause }.into();
        assert!(!is_usage(&error));
        assert!(error.to_string().starts_with(
            "a.svm: after 7 samples there is no memory for more: 1073741824.0 GiB were asked for in vain"
        ));
        assert!(!is_usage(&RecipeError::NoRoom { bytes: 1 << 60 }.into()));
        assert!(is_usage(&ReadError::Empty { path }.into()));
    }

    #[test]
    fn the_two_zeros_are_one_label() {
        let text = std::io::Cursor::new("0 1:1\n-0 2:1\n1 1:1\n-0 1:1\n");
        let data = Reader::of(Path::new("-"), text, Options::default()).unwrap().all().unwrap();
        let mut found = Vec::new();
        distinct(&data, &mut found).unwrap();
        assert_eq!(found, [0.0, 1.0]);
        assert!(found[0].is_sign_positive());
    }
}
