//! Tables: a row for each sample, its features in a column of lists. Whatever holds them is read a run of rows at a time, so
//! that a table may be larger than memory.

mod arrow;
mod believed;
mod parquet;

use super::error::{Problem, ReadError};
use super::{Options, Parsed, svmlight};
use crate::data::is_importance;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The columns of a table that make up a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    /// Of the labels, numbers; without a name nothing is read, and every label is 0. Lines of
    /// [`Format::Vw`](super::Format::Vw) may go without a label then.
    pub label: Option<String>,
    /// Of lists of integers: the features that a sample has, counted from 0.
    pub indices: String,
    /// Of lists of numbers, as long as those of `indices`. Without a name, the column `values` if there is one; else each
    /// value is 1.
    pub values: Option<String>,
    /// Of how many times the loss of a sample counts, numbers from 0 on; without a name each counts once.
    pub weight: Option<String>,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns { label: Some("label".to_owned()), indices: "indices".to_owned(), values: None, weight: None }
    }
}

impl Columns {
    /// Among these names, whether there are values.
    fn resolve<'a>(&mut self, mut names: impl Iterator<Item = &'a str>) {
        if self.values.is_none() && names.any(|name| name == "values") {
            self.values = Some("values".to_owned());
        }
    }

    fn label(&self) -> &str {
        self.label.as_deref().unwrap_or_default()
    }

    fn values(&self) -> &str {
        self.values.as_deref().unwrap_or_default()
    }

    fn weight(&self) -> &str {
        self.weight.as_deref().unwrap_or_default()
    }
}

/// What a column has in each row.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Number,
    Integers,
    Numbers,
}

impl Kind {
    /// What is said of a column that has something else.
    fn refuses(self, name: &str, found: &str) -> String {
        let wanted = match self {
            Kind::Number => "numbers are",
            Kind::Integers => "a list of integers in each row is",
            Kind::Numbers => "a list of numbers in each row is",
        };
        format!("column `{name}` has {found}: {wanted} wanted")
    }
}

/// What is said of a name that more than one column has.
fn ambiguous(name: &str) -> String {
    format!("there is more than one column `{name}`: give each a name of its own")
}

/// What is said of a column that there is not.
fn absent<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    format!("there is no column `{name}`: it has {}", names.collect::<Vec<_>>().join(", "))
}

/// What holds a table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Parquet. Like the next it is read from its end: of a stream, what comes is put into a file first.
    Parquet,
    /// An Arrow file, or Feather of version 2.
    ArrowFile,
    /// An Arrow stream.
    ArrowStream,
}

impl Form {
    /// By the first bytes.
    pub(super) fn of_content(start: &[u8]) -> Option<Form> {
        match start {
            [b'P', b'A', b'R', b'1', ..] => Some(Form::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Form::ArrowFile),
            [0xff, 0xff, 0xff, 0xff, ..] => Some(Form::ArrowStream),
            _ => None,
        }
    }
}

/// A table that is being read.
pub(super) struct Table {
    holder: Box<dyn Holder + Send>,
    columns: Columns,
    row: u64,
    watch: Option<Watch>,
}

/// Who is told how much was read of a file that is not read from its beginning to its end.
struct Watch {
    length: u64,
    told: u64,
    each: Box<dyn Fn(u64) + Send>,
}

/// What hands out rows: a file, a stream.
trait Holder {
    /// The next rows, at most so many; nothing behind the last.
    fn next(&mut self, most: usize) -> io::Result<Option<Runs>>;

    /// About what share of a table in a file of this length (0: not known) so many rows are, which were handed out.
    fn share(&self, row: u64, length: u64) -> f64;
}

impl std::fmt::Debug for Table {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Table").field("row", &self.row).finish_non_exhaustive()
    }
}

/// Some rows of all columns.
struct Runs {
    rows: usize,
    label: Option<Run>,
    indices: Run,
    values: Option<Run>,
    weight: Option<Run>,
}

/// Some rows of a column.
#[derive(Default)]
struct Run {
    numbers: Vec<f64>,
    /// Where the numbers of each row end, and whether a null is among them.
    rows: Vec<(usize, bool)>,
}

impl Run {
    /// The one number of a row, which is to be a good one.
    fn number(&self, row: usize, good: impl Fn(f64) -> bool) -> Result<f64, String> {
        match self.row(row).0.map(|at| self.numbers[at]).next() {
            Some(number) if good(number) => Ok(number),
            Some(number) => Err(number.to_string()),
            None => Err("null".to_owned()),
        }
    }

    fn row(&self, row: usize) -> (std::ops::Range<usize>, bool) {
        let start = if row == 0 { 0 } else { self.rows[row - 1].0 };
        (start..self.rows[row].0, self.rows[row].1)
    }
}

impl Table {
    /// What a file has, read by its end.
    pub(super) fn file(path: &Path, form: Form, file: File, columns: &Columns) -> Result<Table, ReadError> {
        let mut columns = columns.clone();
        let holder: Box<dyn Holder + Send> = match form {
            Form::Parquet => Box::new(parquet::Groups::open(path, file, &mut columns)?),
            Form::ArrowFile => Box::new(arrow::Batches::file(path, file, &mut columns)?),
            Form::ArrowStream => Box::new(arrow::Batches::stream(path, Box::new(file), &mut columns)?),
        };
        Ok(Table { holder, columns, row: 0, watch: None })
    }

    /// What comes in a stream.
    pub(super) fn stream(
        path: &Path,
        form: Form,
        mut source: impl Read + Send + 'static,
        columns: &Columns,
    ) -> Result<Table, ReadError> {
        if form != Form::ArrowStream {
            let failed = |cause| ReadError::Open { path: path.to_owned(), cause };
            let mut whole = tempfile::tempfile().map_err(failed)?;
            io::copy(&mut source, &mut whole).map_err(failed)?;
            return Table::file(path, form, whole, columns);
        }
        let mut columns = columns.clone();
        let stream = arrow::Batches::stream(path, Box::new(source), &mut columns)?;
        Ok(Table { holder: Box::new(stream), columns, row: 0, watch: None })
    }

    /// The same, watched.
    pub(super) fn watched(self, length: u64, each: impl Fn(u64) + Send + 'static) -> Table {
        Table { watch: Some(Watch { length, told: 0, each: Box::new(each) }), ..self }
    }

    /// About how many times as many rows as were read a file of this length has.
    pub(super) fn times(&self, length: u64) -> f64 {
        let share = self.holder.share(self.row, length);
        if share > 0.0 { (1.0 / share).max(1.0) } else { 1.0 }
    }

    /// Reads up to `most` rows more into `parsed`, and says which are wrong, counted from 1; false where there are none.
    pub(super) fn read(
        &mut self,
        most: usize,
        options: &Options,
        parsed: &mut Parsed,
        wrong: &mut dyn FnMut(u64, Problem) -> Result<(), ReadError>,
        path: &Path,
    ) -> Result<bool, ReadError> {
        let found = self.holder.next(most);
        let broken = |cause| ReadError::Io { path: path.to_owned(), line: self.row, cause };
        let Some(runs) = found.map_err(broken)? else { return Ok(false) };
        if let Some(Watch { length, told, each }) = &mut self.watch {
            let share = self.holder.share(self.row + runs.rows as u64, *length);
            let more = ((*length as f64 * share) as u64).saturating_sub(*told);
            *told += more;
            each(more);
        }
        let room = parsed.room(runs.rows, runs.indices.numbers.len(), self.columns.weight.is_some());
        room.map_err(|cause| ReadError::NoRoom { path: path.to_owned(), rows: self.row, cause })?;
        for row in 0..runs.rows {
            self.row += 1;
            match sample(row, &runs, &self.columns, options, parsed) {
                Ok((label, weight)) => parsed.end_weighed(label, weight),
                Err(problem) => {
                    parsed.undo();
                    wrong(self.row, problem)?;
                }
            }
        }
        Ok(true)
    }
}

/// The features of a row; its label, and how many times it counts.
fn sample(
    row: usize,
    runs: &Runs,
    columns: &Columns,
    options: &Options,
    parsed: &mut Parsed,
) -> Result<(f64, f64), Problem> {
    let wrong_index = |found: &str, expected: &str| Err(Problem::cell(&columns.indices, found, expected));
    let wrong_value = |found: &str, expected: &str| Err(Problem::cell(columns.values(), found, expected));
    let label = match &runs.label {
        None => 0.0,
        Some(labels) => {
            let told =
                |found: String| Problem::cell(columns.label(), &found, "a label that is a finite number");
            labels.number(row, f64::is_finite).map_err(told)?
        }
    };
    let weight = match &runs.weight {
        None => 1.0,
        Some(weights) => {
            let expected = "a weight that is a finite number from 0 on";
            let told = |found: String| Problem::cell(columns.weight(), &found, expected);
            weights.number(row, is_importance).map_err(told)?
        }
    };
    let (features, null) = runs.indices.row(row);
    if null {
        return wrong_index("null", "a list without nulls");
    }
    let beyond = options.width.unwrap_or(u32::MAX);
    let start = parsed.features.len();
    let (mut last, mut sorted) = (None, true);
    let numbers = match &runs.values {
        None => None,
        Some(values) => {
            let (range, null) = values.row(row);
            if null {
                return wrong_value("null", "a list without nulls");
            }
            if range.len() != features.len() {
                let found = format!("{} for {} indices", range.len(), features.len());
                return wrong_value(&found, "a value for each index");
            }
            Some(&values.numbers[range])
        }
    };
    for (at, &feature) in runs.indices.numbers[features].iter().enumerate() {
        if !(0.0..f64::from(beyond)).contains(&feature) {
            return wrong_index(&feature.to_string(), &format!("an index from 0 on, below {beyond}"));
        }
        let value = numbers.map_or(1.0, |numbers| numbers[at]);
        // Overflow of a single shows as an infinity of the value that is kept.
        let kept = if options.double { value } else { f64::from(value as f32) };
        if !kept.is_finite() {
            return wrong_value(&value.to_string(), "a value that is a finite number");
        }
        let feature = feature as u32;
        sorted &= last.is_none_or(|last| last < feature);
        last = Some(feature);
        parsed.push(feature, value);
    }
    if !sorted && let Some(twice) = svmlight::repeated(&parsed.features[start..]) {
        return wrong_index(&format!("{twice} twice"), "each index once in a list");
    }
    Ok((label, weight))
}

#[cfg(test)]
mod tests;
