//! Parquet: a row group's columns are read side by side, a run of rows at a time.

mod pages;

use super::super::error::ReadError;
use super::believed::caught;
use super::{Columns, Holder, Kind, Run, Runs, absent, ambiguous};
use parquet::basic::{Compression, ConvertedType, LogicalType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use std::fs::File;
use std::io;
use std::path::Path;

/// A column among the leaves of the schema.
struct Leaf {
    at: usize,
    /// From this definition level on a list has an element; one below, it is empty. Nothing where rows are no lists.
    element: i16,
    /// At this level there is a value.
    whole: i16,
    unsigned: bool,
}

/// The row groups of a file.
pub(super) struct Groups {
    reader: SerializedFileReader<File>,
    file: File,
    length: u64,
    label: Option<Leaf>,
    indices: Leaf,
    values: Option<Leaf>,
    weight: Option<Leaf>,
    /// The next row group.
    next: usize,
    group: Option<Group>,
}

/// A row group under way.
struct Group {
    label: Option<ColumnReader>,
    indices: ColumnReader,
    values: Option<ColumnReader>,
    weight: Option<ColumnReader>,
    left: usize,
}

impl Groups {
    pub(super) fn open(path: &Path, file: File, columns: &mut Columns) -> Result<Groups, ReadError> {
        let failed = |cause| ReadError::Open { path: path.to_owned(), cause };
        let length = file.metadata().map_err(failed)?.len();
        let again = file.try_clone().map_err(failed)?;
        let reader = caught(|| SerializedFileReader::new(again).map_err(io::Error::other)).map_err(failed)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        columns.resolve(schema.root_schema().get_fields().iter().map(|field| field.name()));
        let find = |name: &str, kind| {
            leaf(schema, name, kind).map_err(|what| ReadError::Table { path: path.to_owned(), what })
        };
        let label = columns.label.as_deref().map(|name| find(name, Kind::Number)).transpose()?;
        let indices = find(&columns.indices, Kind::Integers)?;
        let values = columns.values.as_deref().map(|name| find(name, Kind::Numbers)).transpose()?;
        let weight = columns.weight.as_deref().map(|name| find(name, Kind::Number)).transpose()?;
        let leaves = [label.as_ref(), Some(&indices), values.as_ref(), weight.as_ref()];
        for leaf in leaves.into_iter().flatten() {
            unpackable(&reader, leaf).map_err(|what| ReadError::Table { path: path.to_owned(), what })?;
        }
        Ok(Groups { reader, file, length, label, indices, values, weight, next: 0, group: None })
    }

    /// The next group that has rows; false behind the last.
    fn advance(&mut self) -> io::Result<bool> {
        while self.group.as_ref().is_none_or(|group| group.left == 0) {
            if self.next == self.reader.num_row_groups() {
                return Ok(false);
            }
            let rows = self.reader.get_row_group(self.next).map_err(io::Error::other)?;
            let left = usize::try_from(rows.metadata().num_rows()).unwrap_or(0);
            let column = |leaf: &Leaf| {
                pages::check(&self.file, self.length, rows.metadata().column(leaf.at))?;
                rows.get_column_reader(leaf.at).map_err(io::Error::other)
            };
            self.group = Some(Group {
                label: self.label.as_ref().map(column).transpose()?,
                indices: column(&self.indices)?,
                values: self.values.as_ref().map(column).transpose()?,
                weight: self.weight.as_ref().map(column).transpose()?,
                left,
            });
            self.next += 1;
        }
        Ok(true)
    }

    fn read(&mut self, most: usize) -> io::Result<Option<Runs>> {
        if !self.advance()? {
            return Ok(None);
        }
        let Some(group) = &mut self.group else { return Ok(None) };
        let rows = most.min(group.left);
        group.left -= rows;
        let others = |column: Option<&mut ColumnReader>, leaf: Option<&Leaf>| {
            column
                .zip(leaf)
                .map(|(column, leaf)| run(column, leaf, rows).map_err(io::Error::other))
                .transpose()
        };
        Ok(Some(Runs {
            rows,
            label: others(group.label.as_mut(), self.label.as_ref())?,
            indices: run(&mut group.indices, &self.indices, rows).map_err(io::Error::other)?,
            values: others(group.values.as_mut(), self.values.as_ref())?,
            weight: others(group.weight.as_mut(), self.weight.as_ref())?,
        }))
    }
}

impl Holder for Groups {
    fn next(&mut self, most: usize) -> io::Result<Option<Runs>> {
        caught(|| self.read(most))
    }

    fn share(&self, row: u64, _: u64) -> f64 {
        row as f64 / self.reader.metadata().file_metadata().num_rows().max(1) as f64
    }
}

/// Whether all of a column is packed in a way that is read here.
fn unpackable(reader: &SerializedFileReader<File>, leaf: &Leaf) -> Result<(), String> {
    for group in reader.metadata().row_groups() {
        let column = group.column(leaf.at);
        if let packing @ (Compression::BROTLI(_) | Compression::LZO) = column.compression() {
            let (name, packing) = (&column.column_path().parts()[0], packing.to_string());
            let packing = packing.split('(').next().unwrap_or_default();
            return Err(format!(
                "column `{name}` is packed with {packing}: write it with snappy, gzip, lz4, zstd, or unpacked"
            ));
        }
    }
    Ok(())
}

/// The one leaf of a column of this kind.
fn leaf(schema: &SchemaDescriptor, name: &str, kind: Kind) -> Result<Leaf, String> {
    let names = || schema.root_schema().get_fields().iter().map(|field| field.name());
    if names().filter(|other| *other == name).count() > 1 {
        return Err(ambiguous(name));
    }
    let columns = schema.columns().iter().enumerate();
    let mut leaves = columns.filter(|(at, _)| schema.get_column_root(*at).name() == name);
    let Some((at, column)) = leaves.next() else {
        return Err(absent(name, names()));
    };
    let list = kind != Kind::Number;
    let fits = leaves.next().is_none() && column.max_rep_level() == i16::from(list) && is_number(column);
    let integers = matches!(column.physical_type(), PhysicalType::INT32 | PhysicalType::INT64);
    if !fits || (kind == Kind::Integers && !integers) {
        let meaning =
            if is_stored(column) && !is_number(column) { " that is a time or a decimal" } else { "" };
        let found = format!("{}{meaning}", column.physical_type());
        let found = match column.max_rep_level() {
            0 => found,
            1 => format!("lists of {found}"),
            _ => format!("lists of lists of {found}"),
        };
        return Err(kind.refuses(name, &found));
    }
    let element = if list { column.repeated_ancestor_def_level() } else { 0 };
    let (whole, unsigned) = (column.max_def_level(), is_unsigned(column));
    Ok(Leaf { at, element, whole, unsigned })
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
    matches!(column.converted_type(), UINT_8 | UINT_16 | UINT_32 | UINT_64)
}

/// Whether it holds what reads as a number: a decimal or a time does not.
fn is_number(column: &ColumnDescriptor) -> bool {
    use ConvertedType::{INT_8, INT_16, INT_32, INT_64, NONE};
    // A time in nanoseconds has a logical type only.
    let logical = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer { .. }));
    let plain = logical && matches!(column.converted_type(), NONE | INT_8 | INT_16 | INT_32 | INT_64);
    (plain || is_unsigned(column)) && is_stored(column)
}

/// Whether it is stored as numbers, whatever they stand for.
fn is_stored(column: &ColumnDescriptor) -> bool {
    use PhysicalType::{BOOLEAN, DOUBLE, FLOAT, INT32, INT64};
    matches!(column.physical_type(), BOOLEAN | INT32 | INT64 | FLOAT | DOUBLE)
}

/// The numbers of the next `rows` rows of a column.
fn run(column: &mut ColumnReader, leaf: &Leaf, rows: usize) -> Result<Run, ParquetError> {
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

fn typed<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    leaf: &Leaf,
    rows: usize,
    number: impl Fn(&T::T) -> f64,
) -> Result<Run, ParquetError> {
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
    let mut run = Run { numbers: found.iter().map(number).collect(), rows: Vec::with_capacity(rows) };
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
