//! Arrow: record batches of a stream as they come, or of a file by the directory at its end.

mod messages;

use super::super::error::ReadError;
use super::believed::{caught, room};
use super::{Columns, Holder, Kind, Run, Runs, absent, ambiguous};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType, Schema};
use messages::Messages;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// A stream, and how much of it was read.
type Bytes = Messages<BufReader<Counted<Box<dyn Read + Send>>>>;

/// Where batches come from.
enum Source {
    Stream(Box<StreamReader<Bytes>>),
    /// And how many were read of it.
    File(Box<FileReader<Messages<File>>>, usize),
}

/// Record batches, one after the other.
pub(super) struct Batches {
    source: Source,
    label: Option<usize>,
    indices: usize,
    values: Option<usize>,
    weight: Option<usize>,
    /// The batch under way, and how many of its rows were handed out.
    batch: Option<(RecordBatch, usize)>,
}

/// The columns of a sample in a schema.
struct Found {
    label: Option<usize>,
    indices: usize,
    values: Option<usize>,
    weight: Option<usize>,
}

impl Found {
    fn of(schema: &Schema, columns: &mut Columns) -> Result<Found, String> {
        columns.resolve(schema.fields().iter().map(|field| field.name().as_str()));
        let find = |name: &str, kind| column(schema, name, kind);
        Ok(Found {
            label: columns.label.as_deref().map(|name| find(name, Kind::Number)).transpose()?,
            indices: find(&columns.indices, Kind::Integers)?,
            values: columns.values.as_deref().map(|name| find(name, Kind::Numbers)).transpose()?,
            weight: columns.weight.as_deref().map(|name| find(name, Kind::Number)).transpose()?,
        })
    }
}

impl Batches {
    pub(super) fn stream(
        path: &Path,
        source: Box<dyn Read + Send>,
        columns: &mut Columns,
    ) -> Result<Batches, ReadError> {
        let open = |cause| ReadError::Open { path: path.to_owned(), cause };
        let source = BufReader::with_capacity(1 << 20, Counted { source, read: 0 });
        let reader = done(|| StreamReader::try_new(Messages::stream(source), None)).map_err(open)?;
        let table = |what| ReadError::Table { path: path.to_owned(), what };
        let found = Found::of(&reader.schema(), columns).map_err(table)?;
        let Found { label, indices, values, weight } = found;
        Ok(Batches { source: Source::Stream(Box::new(reader)), label, indices, values, weight, batch: None })
    }

    /// Of other columns than those of a sample nothing is read.
    pub(super) fn file(path: &Path, file: File, columns: &mut Columns) -> Result<Batches, ReadError> {
        let open = |cause| ReadError::Open { path: path.to_owned(), cause };
        let again = file.try_clone().and_then(Messages::file).map_err(open)?;
        let whole = done(|| FileReader::try_new(again, None)).map_err(open)?;
        let table = |what| ReadError::Table { path: path.to_owned(), what };
        let found = Found::of(&whole.schema(), columns).map_err(table)?;
        let mut wanted: Vec<_> =
            [found.label, Some(found.indices), found.values, found.weight].into_iter().flatten().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let place = |column: usize| wanted.partition_point(|wanted| *wanted < column);
        let (label, indices) = (found.label.map(place), place(found.indices));
        let (values, weight) = (found.values.map(place), found.weight.map(place));
        let file = Messages::file(file).map_err(open)?;
        let reader = done(|| FileReader::try_new(file, Some(wanted))).map_err(open)?;
        Ok(Batches { source: Source::File(Box::new(reader), 0), label, indices, values, weight, batch: None })
    }
}

impl Holder for Batches {
    fn next(&mut self, most: usize) -> io::Result<Option<Runs>> {
        while self.batch.as_ref().is_none_or(|(batch, from)| *from == batch.num_rows()) {
            let read = done(|| match &mut self.source {
                Source::Stream(reader) => reader.next().transpose(),
                Source::File(reader, read) => {
                    *read += 1;
                    reader.next().transpose()
                }
            });
            match read? {
                None => return Ok(None),
                Some(batch) => self.batch = Some((batch, 0)),
            }
        }
        let Some((batch, from)) = &mut self.batch else { return Ok(None) };
        let rows = most.min(batch.num_rows() - *from);
        let part = batch.slice(*from, rows);
        *from += rows;
        caught(|| {
            Ok(Some(Runs {
                rows,
                label: self.label.map(|at| numbers(part.column(at))).transpose()?,
                indices: lists(part.column(self.indices))?,
                values: self.values.map(|at| lists(part.column(at))).transpose()?,
                weight: self.weight.map(|at| numbers(part.column(at))).transpose()?,
            }))
        })
    }

    fn share(&self, row: u64, length: u64) -> f64 {
        let left = self.batch.as_ref().map_or(0, |(batch, from)| batch.num_rows() - from) as u64;
        // Of what was read of the table, this was handed out; what is buffered of batches behind makes it a little less.
        let handed = row as f64 / (row + left).max(1) as f64;
        let read = match &self.source {
            Source::Stream(reader) => reader.get_ref().within().get_ref().read as f64 / length.max(1) as f64,
            Source::File(reader, read) => *read as f64 / reader.num_batches().max(1) as f64,
        };
        handed * read
    }
}

/// What the library does.
fn done<T>(act: impl FnOnce() -> Result<T, ArrowError>) -> io::Result<T> {
    caught(|| {
        act().map_err(|error| match error {
            ArrowError::IoError(_, cause) => cause,
            error => io::Error::other(error),
        })
    })
}

/// Counts what is read.
struct Counted<S> {
    source: S,
    read: u64,
}

impl<S: Read> Read for Counted<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// Where the column of this name stands, if it is of this kind.
fn column(schema: &Schema, name: &str, kind: Kind) -> Result<usize, String> {
    let Some((at, field)) = schema.column_with_name(name) else {
        return Err(absent(name, schema.fields().iter().map(|field| field.name().as_str())));
    };
    if schema.fields().iter().filter(|field| field.name() == name).count() > 1 {
        return Err(ambiguous(name));
    }
    let element = match field.data_type() {
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            Some(element.data_type())
        }
        _ => None,
    };
    let fits = match kind {
        Kind::Number => is_number(field.data_type()),
        Kind::Integers => element.is_some_and(|of| said(of).is_integer()),
        Kind::Numbers => element.is_some_and(is_number),
    };
    let found = match element {
        None => field.data_type().to_string(),
        Some(element) => format!("lists of {element}"),
    };
    if fits { Ok(at) } else { Err(kind.refuses(name, &found)) }
}

/// What a dictionary says; the type itself, of what is none.
fn said(of: &DataType) -> &DataType {
    if let DataType::Dictionary(_, said) = of { said } else { of }
}

fn is_number(of: &DataType) -> bool {
    let of = said(of);
    // Half a float is read by few programs, this one not among them.
    *of == DataType::Boolean || of.is_integer() || matches!(of, DataType::Float32 | DataType::Float64)
}

/// The numbers of a column, whose rows have one each.
fn numbers(column: &ArrayRef) -> io::Result<Run> {
    let mut run = Run::default();
    append(column, &mut run.numbers)?;
    // Also of what a dictionary says nothing.
    let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
        run.rows.extend((1..=column.len()).map(|end| (end, false)));
        return Ok(run);
    };
    let all = std::mem::take(&mut run.numbers);
    for (row, number) in all.into_iter().enumerate() {
        let null = nulls.is_null(row);
        run.numbers.extend((!null).then_some(number));
        run.rows.push((run.numbers.len(), null));
    }
    Ok(run)
}

/// The numbers of a column of lists.
fn lists(column: &ArrayRef) -> io::Result<Run> {
    fn bounds<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> (ArrayRef, Vec<usize>) {
        let offsets = lists.value_offsets();
        let first = offsets[0].as_usize();
        let ends: Vec<_> = offsets[1..].iter().map(|end| end.as_usize() - first).collect();
        (lists.values().slice(first, ends.last().copied().unwrap_or(0)), ends)
    }
    let (elements, ends) = match column.data_type() {
        DataType::List(_) => bounds(column.as_list::<i32>()),
        DataType::LargeList(_) => bounds(column.as_list::<i64>()),
        _ => {
            let lists = column.as_fixed_size_list();
            let length = usize::try_from(lists.value_length()).unwrap_or(0);
            (lists.values().clone(), (1..=lists.len()).map(|row| row * length).collect())
        }
    };
    let mut run = Run::default();
    append(&elements, &mut run.numbers)?;
    let nulls = elements.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let mut start = 0;
    for (row, end) in ends.into_iter().enumerate() {
        let within = nulls.as_ref().is_some_and(|nulls| (start..end).any(|at| nulls.is_null(at)));
        run.rows.push((end, within || column.is_null(row)));
        start = end;
    }
    Ok(run)
}

/// The numbers of an array; where it is null, any. They take up to 64 times the bytes that the array has.
fn append(array: &ArrayRef, to: &mut Vec<f64>) -> io::Result<()> {
    fn typed<T: ArrowPrimitiveType>(array: &ArrayRef, to: &mut Vec<f64>, number: impl Fn(T::Native) -> f64) {
        to.extend(array.as_primitive::<T>().values().iter().map(|value| number(*value)));
    }
    room(size_of::<f64>() as u64 * array.len() as u64)?;
    match array.data_type() {
        DataType::Boolean => {
            to.extend(array.as_boolean().values().iter().map(|bit| f64::from(u8::from(bit))))
        }
        DataType::Int8 => typed::<Int8Type>(array, to, f64::from),
        DataType::Int16 => typed::<Int16Type>(array, to, f64::from),
        DataType::Int32 => typed::<Int32Type>(array, to, f64::from),
        DataType::Int64 => typed::<Int64Type>(array, to, |number| number as f64),
        DataType::UInt8 => typed::<UInt8Type>(array, to, f64::from),
        DataType::UInt16 => typed::<UInt16Type>(array, to, f64::from),
        DataType::UInt32 => typed::<UInt32Type>(array, to, f64::from),
        DataType::UInt64 => typed::<UInt64Type>(array, to, |number| number as f64),
        DataType::Float32 => typed::<Float32Type>(array, to, f64::from),
        DataType::Float64 => typed::<Float64Type>(array, to, |number| number),
        DataType::Dictionary(_, _) => {
            let (dictionary, mut words) = (array.as_any_dictionary(), Vec::new());
            append(dictionary.values(), &mut words)?;
            match words.is_empty() {
                // It says nothing of anything: all are null.
                true => to.resize(to.len() + array.len(), 0.0),
                false => to.extend(dictionary.normalized_keys().into_iter().map(|key| words[key])),
            }
        }
        other => unreachable!("a column of {other} is refused when the table is opened"),
    }
    Ok(())
}
