//! Parquet: a row for each sample, its features in a column of lists. A row group's columns are read side by side, a run of
//! rows at a time, so that a file may be larger than memory.

use super::error::{Problem, ReadError};
use super::{Options, Parsed, svmlight};
use parquet::basic::{ConvertedType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// The columns of a Parquet file that make up a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns {
    /// Of the labels, numbers; without a name nothing is read, and every label is 0.
    pub label: Option<String>,
    /// Of lists of integers: the features that a sample has, counted from 0.
    pub indices: String,
    /// Of lists of numbers, as long as those of `indices`. Without a name, the column `values` if there is one; else each
    /// value is 1.
    pub values: Option<String>,
}

impl Default for Columns {
    fn default() -> Columns {
        Columns { label: Some("label".to_owned()), indices: "indices".to_owned(), values: None }
    }
}

/// Whether a file is Parquet, by its first bytes; it is left at its beginning.
pub(super) fn is_one(file: &mut File) -> io::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    file.by_ref().take(4).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start == b"PAR1")
}

/// A column among the leaves of the schema.
struct Leaf {
    name: String,
    at: usize,
    /// From this definition level on a list has an element; one below, it is empty. Nothing where rows are no lists.
    element: i16,
    /// At this level there is a value.
    whole: i16,
    unsigned: bool,
}

/// A Parquet file that is being read.
pub(super) struct Table {
    reader: SerializedFileReader<File>,
    label: Option<Leaf>,
    indices: Leaf,
    values: Option<Leaf>,
    /// The next row group.
    next: usize,
    group: Option<Group>,
    row: u64,
}

/// A row group under way.
struct Group {
    label: Option<ColumnReader>,
    indices: ColumnReader,
    values: Option<ColumnReader>,
    left: usize,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Table").field("row", &self.row).finish_non_exhaustive()
    }
}

/// What is read of a column for some rows.
struct Run<'a> {
    name: &'a str,
    numbers: Vec<f64>,
    /// Where the numbers of each row end, and whether a null is among them.
    rows: Vec<(usize, bool)>,
}

impl Run<'_> {
    /// What is wrong in it.
    fn problem(&self, found: &str, expected: impl Into<String>) -> Problem {
        Problem::cell(self.name, found, expected)
    }

    fn row(&self, row: usize) -> (std::ops::Range<usize>, bool) {
        let start = if row == 0 { 0 } else { self.rows[row - 1].0 };
        (start..self.rows[row].0, self.rows[row].1)
    }
}

impl Table {
    pub(super) fn open(path: &Path, file: File, columns: &Columns) -> Result<Table, ReadError> {
        let reader = SerializedFileReader::new(file);
        let reader = reader
            .map_err(|error| ReadError::Open { path: path.to_owned(), cause: io::Error::other(error) })?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let find = |name: &str, kind: Kind| {
            leaf(schema, name, kind).map_err(|what| ReadError::Table { path: path.to_owned(), what })
        };
        let label = columns.label.as_deref().map(|name| find(name, Kind::Number)).transpose()?;
        let indices = find(&columns.indices, Kind::Integers)?;
        let unnamed = schema.root_schema().get_fields().iter().any(|field| field.name() == "values");
        let values = columns.values.as_deref().or(unnamed.then_some("values"));
        let values = values.map(|name| find(name, Kind::Numbers)).transpose()?;
        Ok(Table { reader, label, indices, values, next: 0, group: None, row: 0 })
    }

    /// How many times as many rows as were read the file has, as it says.
    pub(super) fn times(&self) -> f64 {
        let rows = self.reader.metadata().file_metadata().num_rows();
        (rows as f64 / self.row.max(1) as f64).max(1.0)
    }

    /// The next group that has rows; false behind the last.
    fn advance(&mut self) -> Result<bool, ParquetError> {
        while self.group.as_ref().is_none_or(|group| group.left == 0) {
            if self.next == self.reader.num_row_groups() {
                return Ok(false);
            }
            let rows = self.reader.get_row_group(self.next)?;
            let left = usize::try_from(rows.metadata().num_rows()).unwrap_or(0);
            let column = |leaf: &Leaf| rows.get_column_reader(leaf.at);
            self.group = Some(Group {
                label: self.label.as_ref().map(column).transpose()?,
                indices: column(&self.indices)?,
                values: self.values.as_ref().map(column).transpose()?,
                left,
            });
            self.next += 1;
        }
        Ok(true)
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
        let broken =
            |row, error| ReadError::Io { path: path.to_owned(), line: row, cause: io::Error::other(error) };
        if !self.advance().map_err(|error| broken(self.row, error))? {
            return Ok(false);
        }
        let Some(group) = &mut self.group else { return Ok(false) };
        let rows = most.min(group.left);
        group.left -= rows;
        let row = self.row;
        let failed = |error| broken(row, error);
        let indices = run(&mut group.indices, &self.indices, rows).map_err(failed)?;
        let others = |column: Option<&mut ColumnReader>, leaf| {
            column.zip(leaf).map(|(column, leaf)| run(column, leaf, rows)).transpose().map_err(failed)
        };
        let labels = others(group.label.as_mut(), self.label.as_ref())?;
        let values = others(group.values.as_mut(), self.values.as_ref())?;
        for row in 0..rows {
            self.row += 1;
            match sample(row, labels.as_ref(), &indices, values.as_ref(), options, parsed) {
                Ok(label) => parsed.end(label),
                Err(problem) => {
                    parsed.undo();
                    wrong(self.row, problem)?;
                }
            }
        }
        Ok(true)
    }
}

/// The features of a row, and its label.
fn sample(
    row: usize,
    labels: Option<&Run<'_>>,
    indices: &Run<'_>,
    values: Option<&Run<'_>>,
    options: &Options,
    parsed: &mut Parsed,
) -> Result<f64, Problem> {
    let label = match labels {
        None => 0.0,
        Some(labels) => {
            let label = labels.row(row).0.map(|at| labels.numbers[at]).next();
            let expected = "a label that is a finite number";
            let Some(label) = label else { return Err(labels.problem("null", expected)) };
            if !label.is_finite() {
                return Err(labels.problem(&label.to_string(), expected));
            }
            label
        }
    };
    let (features, null) = indices.row(row);
    if null {
        return Err(indices.problem("null", "a list without nulls"));
    }
    let beyond = options.width.unwrap_or(u32::MAX);
    let start = parsed.features.len();
    let (mut last, mut sorted) = (None, true);
    let numbers = match values {
        None => None,
        Some(values) => {
            let (range, null) = values.row(row);
            if null {
                return Err(values.problem("null", "a list without nulls"));
            }
            if range.len() != features.len() {
                let found = format!("{} for {} indices", range.len(), features.len());
                return Err(values.problem(&found, "a value for each index"));
            }
            Some((values, &values.numbers[range]))
        }
    };
    for (at, &feature) in indices.numbers[features].iter().enumerate() {
        if !(0.0..f64::from(beyond)).contains(&feature) {
            let expected = format!("an index from 0 on, below {beyond}");
            return Err(indices.problem(&feature.to_string(), expected));
        }
        let value = numbers.map_or(1.0, |(_, numbers)| numbers[at]);
        // Overflow of a single shows as an infinity of the value that is kept.
        let kept = if options.double { value } else { f64::from(value as f32) };
        if let Some((values, _)) = numbers
            && !kept.is_finite()
        {
            return Err(values.problem(&value.to_string(), "a value that is a finite number"));
        }
        let feature = feature as u32;
        sorted &= last.is_none_or(|last| last < feature);
        last = Some(feature);
        parsed.push(feature, value);
    }
    if !sorted && let Some(twice) = svmlight::repeated(&parsed.features[start..]) {
        return Err(indices.problem(&format!("{twice} twice"), "each index once in a list"));
    }
    Ok(label)
}

/// What a column has in each row.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Kind {
    Number,
    Integers,
    Numbers,
}

/// The one leaf of a column of this kind.
fn leaf(schema: &SchemaDescriptor, name: &str, kind: Kind) -> Result<Leaf, String> {
    let columns = schema.columns().iter().enumerate();
    let mut leaves = columns.filter(|(at, _)| schema.get_column_root(*at).name() == name);
    let Some((at, column)) = leaves.next() else {
        let names: Vec<_> = schema.root_schema().get_fields().iter().map(|field| field.name()).collect();
        return Err(format!("there is no column `{name}`: it has {}", names.join(", ")));
    };
    let list = kind != Kind::Number;
    let fits = leaves.next().is_none() && column.max_rep_level() == i16::from(list) && is_number(column);
    let integers = !matches!(column.physical_type(), PhysicalType::FLOAT | PhysicalType::DOUBLE);
    if !fits || (kind == Kind::Integers && !integers) {
        let wanted = match kind {
            Kind::Number => "numbers are",
            Kind::Integers => "a list of integers in each row is",
            Kind::Numbers => "a list of numbers in each row is",
        };
        let found = column.physical_type();
        let found = match column.max_rep_level() {
            0 => format!("{found}"),
            1 => format!("lists of {found}"),
            _ => format!("lists of lists of {found}"),
        };
        return Err(format!("column `{name}` has {found}: {wanted} wanted"));
    }
    let element = if list { column.repeated_ancestor_def_level() } else { 0 };
    let (whole, unsigned) = (column.max_def_level(), is_unsigned(column));
    Ok(Leaf { name: name.to_owned(), at, element, whole, unsigned })
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
    matches!(column.converted_type(), UINT_8 | UINT_16 | UINT_32 | UINT_64)
}

/// Whether it holds what reads as a number: a decimal or a time does not.
fn is_number(column: &ColumnDescriptor) -> bool {
    use ConvertedType::{INT_8, INT_16, INT_32, INT_64, NONE};
    use PhysicalType::{BOOLEAN, DOUBLE, FLOAT, INT32, INT64};
    let plain = matches!(column.converted_type(), NONE | INT_8 | INT_16 | INT_32 | INT_64);
    let stored = matches!(column.physical_type(), BOOLEAN | INT32 | INT64 | FLOAT | DOUBLE);
    (plain || is_unsigned(column)) && stored
}

/// The numbers of the next `rows` rows of a column.
fn run<'a>(column: &mut ColumnReader, leaf: &'a Leaf, rows: usize) -> Result<Run<'a>, ParquetError> {
    let unsigned = leaf.unsigned;
    match column {
        ColumnReader::BoolColumnReader(column) => typed(column, leaf, rows, |bit| f64::from(u8::from(*bit))),
        ColumnReader::Int32ColumnReader(column) => typed(column, leaf, rows, |number| match unsigned {
            true => f64::from(*number as u32),
            false => f64::from(*number),
        }),
        ColumnReader::Int64ColumnReader(column) => typed(column, leaf, rows, |number| match unsigned {
            true => *number as u64 as f64,
            false => *number as f64,
        }),
        ColumnReader::FloatColumnReader(column) => typed(column, leaf, rows, |number| f64::from(*number)),
        ColumnReader::DoubleColumnReader(column) => typed(column, leaf, rows, |number| *number),
        _ => Err(ParquetError::General("a column of no numbers".to_owned())),
    }
}

fn typed<'a, T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    leaf: &'a Leaf,
    rows: usize,
    number: impl Fn(&T::T) -> f64,
) -> Result<Run<'a>, ParquetError> {
    let (mut definitions, mut repetitions, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let levels = (Some(&mut definitions), Some(&mut repetitions));
        let (more, _, _) = column.read_records(rows - read, levels.0, levels.1, &mut found)?;
        if more == 0 {
            return Err(ParquetError::General(format!("a column ends {} rows early", rows - read)));
        }
        read += more;
    }
    let mut run =
        Run { name: &leaf.name, numbers: found.iter().map(number).collect(), rows: Vec::with_capacity(rows) };
    if definitions.is_empty() {
        // Neither nulls nor lists.
        run.rows.extend((1..=rows).map(|end| (end, false)));
        return Ok(run);
    }
    let mut end = 0;
    for (at, &definition) in definitions.iter().enumerate() {
        if repetitions.get(at).is_none_or(|repetition| *repetition == 0) {
            run.rows.push((end, false));
        }
        end += usize::from(definition == leaf.whole);
        if let Some(row) = run.rows.last_mut() {
            row.0 = end;
            // An empty list is no null.
            row.1 |= definition != leaf.whole && (leaf.element == 0 || definition != leaf.element - 1);
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests;
