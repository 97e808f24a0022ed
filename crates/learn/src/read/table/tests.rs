//! Files as other programs write them: other types, levels of nulls, row groups, compression.

use super::Columns;
use crate::data::{Dataset, Values};
use crate::exec::Scheme;
use crate::exec::tests::{learnt, options};
use crate::plan::Plan;
use crate::read::{Options, Reader};
use crate::tasks::{Linear, Loss};
use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, LargeListBuilder, ListBuilder};
use arrow_array::types::{Float32Type, Int8Type, UInt32Type};
use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int8Array, Int32Array, ListArray, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use isochrone_core::Random;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A row: its label, and pairs of index and value; nothing stands for null.
type Row = (Option<f64>, Option<Vec<Option<i64>>>, Option<Vec<Option<f64>>>);

/// As most programs write: everything may be null.
const USUAL: &str = "message samples {
    optional double label;
    optional group indices (LIST) { repeated group list { optional int64 element; } }
    optional group values (LIST) { repeated group list { optional double element; } }
}";

/// Nothing may be null, and lists are of other forms.
const SPARE: &str = "message samples {
    required int32 label;
    repeated int32 indices (UINT_32);
    required group values (LIST) { repeated float array; }
}";

/// Levels of definition of a list column: how many a null list, an empty one, a null element and an element have.
fn levels<T: Clone>(lists: &[Option<Vec<Option<T>>>], usual: bool) -> (Vec<i16>, Vec<i16>, Vec<T>) {
    let [empty, null, whole] = if usual { [1, 2, 3] } else { [0, 0, 1] };
    let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for list in lists {
        let elements = list.as_deref().unwrap_or_default();
        if elements.is_empty() {
            definitions.push(if list.is_some() { empty } else { 0 });
            repetitions.push(0);
        }
        for (at, element) in elements.iter().enumerate() {
            definitions.push(if element.is_some() { whole } else { null });
            repetitions.push(i16::from(at > 0));
            values.extend(element.clone());
        }
    }
    (definitions, repetitions, values)
}

/// A file of these rows, so many in a group.
fn written(rows: &[Row], group: usize, schema: &str, compression: Compression) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().prefix("samples").tempfile().unwrap();
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let schema_of = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(file.reopen().unwrap(), schema_of, properties).unwrap();
    let usual = schema != SPARE;
    for rows in rows.chunks(group) {
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            match column.untyped() {
                ColumnWriter::Int32ColumnWriter(typed) if typed.get_descriptor().name() == "label" => {
                    let labels: Vec<i32> = rows.iter().map(|row| row.0.unwrap() as i32).collect();
                    typed.write_batch(&labels, None, None).unwrap();
                }
                ColumnWriter::Int32ColumnWriter(typed) => {
                    let lists: Vec<_> = rows.iter().map(|row| row.1.clone()).collect();
                    let (definitions, repetitions, values) = levels(&lists, usual);
                    let values: Vec<i32> = values.into_iter().map(|index| index as u32 as i32).collect();
                    typed.write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
                }
                ColumnWriter::Int64ColumnWriter(typed) => {
                    let lists: Vec<_> = rows.iter().map(|row| row.1.clone()).collect();
                    let (definitions, repetitions, values) = levels(&lists, usual);
                    typed.write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
                }
                ColumnWriter::FloatColumnWriter(typed) => {
                    let lists: Vec<_> = rows.iter().map(|row| row.2.clone()).collect();
                    let (definitions, repetitions, values) = levels(&lists, usual);
                    let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
                    typed.write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
                }
                ColumnWriter::DoubleColumnWriter(typed) if typed.get_descriptor().name() == "label" => {
                    let labels: Vec<f64> = rows.iter().filter_map(|row| row.0).collect();
                    let definitions: Vec<i16> = rows.iter().map(|row| i16::from(row.0.is_some())).collect();
                    typed.write_batch(&labels, Some(&definitions), None).unwrap();
                }
                ColumnWriter::DoubleColumnWriter(typed) => {
                    let lists: Vec<_> = rows.iter().map(|row| row.2.clone()).collect();
                    let (definitions, repetitions, values) = levels(&lists, usual);
                    typed.write_batch(&values, Some(&definitions), Some(&repetitions)).unwrap();
                }
                _ => unreachable!("the schemas have no others"),
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    file
}

/// What holds the rows of an Arrow file.
#[derive(Copy, Clone, Debug)]
enum Held {
    Stream,
    File,
}

/// The same rows as Arrow, so many in a batch: everything may be null, and lists are large.
fn arrow(
    rows: &[Row],
    batch: usize,
    held: Held,
    compression: Option<CompressionType>,
) -> tempfile::NamedTempFile {
    let batches = rows.chunks(batch).map(|rows| {
        let mut labels = Float64Builder::new();
        let mut indices = LargeListBuilder::new(Int64Builder::new());
        let mut values = LargeListBuilder::new(Float64Builder::new());
        for row in rows {
            labels.append_option(row.0);
            indices.append_option(row.1.clone());
            values.append_option(row.2.clone());
        }
        let columns: [(&str, ArrayRef); 3] = [
            ("label", Arc::new(labels.finish())),
            ("indices", Arc::new(indices.finish())),
            ("values", Arc::new(values.finish())),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    });
    packed(&batches.collect::<Vec<_>>(), held, compression)
}

/// The same with nothing that may be null, and small types.
fn spare(rows: &[Row], batch: usize, held: Held) -> tempfile::NamedTempFile {
    let batches = rows.chunks(batch).map(|rows| {
        let indices = rows.iter().map(|row| {
            row.1
                .as_ref()
                .map(|list| list.iter().map(|index| index.map(|index| index as u32)).collect::<Vec<_>>())
        });
        let values = rows.iter().map(|row| {
            row.2
                .as_ref()
                .map(|list| list.iter().map(|value| value.map(|value| value as f32)).collect::<Vec<_>>())
        });
        let columns: [(&str, ArrayRef); 3] = [
            ("label", Arc::new(rows.iter().map(|row| row.0.unwrap() as i32).collect::<Int32Array>())),
            ("indices", Arc::new(ListArray::from_iter_primitive::<UInt32Type, _, _>(indices))),
            ("values", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(values))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    });
    packed(&batches.collect::<Vec<_>>(), held, None)
}

fn packed(
    batches: &[RecordBatch],
    held: Held,
    compression: Option<CompressionType>,
) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().prefix("samples").tempfile().unwrap();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let (schema, target) = (batches[0].schema(), file.reopen().unwrap());
    match held {
        Held::Stream => {
            let mut writer = StreamWriter::try_new_with_options(target, &schema, options).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        }
        Held::File => {
            let mut writer = FileWriter::try_new_with_options(target, &schema, options).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        }
    }
    file
}

fn row(label: f64, entries: &[(i64, f64)]) -> Row {
    let indices = entries.iter().map(|entry| Some(entry.0)).collect();
    (Some(label), Some(indices), Some(entries.iter().map(|entry| Some(entry.1)).collect()))
}

/// Samples of none to six features.
fn some(rows: usize) -> Vec<Row> {
    let entries = |row: usize| (0..row % 7).map(move |at| ((row * 5 + at * 3) as i64 % 97, at as f64 + 0.5));
    (0..rows).map(|at| row(at as f64, &entries(at).collect::<Vec<_>>())).collect()
}

fn data(rows: &[Row]) -> Dataset<'static> {
    let (mut offsets, mut features, mut values) = (vec![0], Vec::new(), Vec::new());
    for (_, indices, numbers) in rows {
        features.extend(indices.iter().flatten().map(|index| index.unwrap() as u32));
        values.extend(numbers.iter().flatten().map(|value| value.unwrap() as f32));
        offsets.push(features.len() as u64);
    }
    let width = features.iter().max().unwrap() + 1;
    let labels: Vec<f64> = rows.iter().map(|row| row.0.unwrap()).collect();
    Dataset::new(offsets, features, Values::F32(values.into()), labels, width).unwrap()
}

fn open(file: &tempfile::NamedTempFile, options: Options) -> Reader {
    Reader::open(file.path(), options).unwrap()
}

#[test]
fn every_form_of_file_is_the_same_samples() {
    let rows = some(9_000);
    let expected = data(&rows);
    for (schema, group, compression) in [
        (USUAL, 9_000, Compression::SNAPPY),
        (USUAL, 1_000, Compression::UNCOMPRESSED),
        (USUAL, 4_097, Compression::ZSTD(ZstdLevel::default())),
        (SPARE, 9_000, Compression::GZIP(parquet::basic::GzipLevel::default())),
        (SPARE, 77, Compression::LZ4_RAW),
    ] {
        let file = written(&rows, group, schema, compression);
        is_the_same(&file, &expected, &format!("Parquet, groups of {group}, {compression:?}"));
    }
    for held in [Held::Stream, Held::File] {
        for (batch, compression) in
            [(9_000, None), (4_097, Some(CompressionType::ZSTD)), (1_000, Some(CompressionType::LZ4_FRAME))]
        {
            let file = arrow(&rows, batch, held, compression);
            is_the_same(&file, &expected, &format!("Arrow {held:?}, batches of {batch}, {compression:?}"));
        }
        is_the_same(&spare(&rows, 77, held), &expected, &format!("spare Arrow {held:?}"));
    }
}

/// As pandas and Polars write categories.
#[test]
fn a_dictionary_is_what_it_says() {
    let labels = |keys: &[Option<i8>], said: &[Option<f64>]| -> ArrayRef {
        let said = Arc::new(said.iter().copied().collect::<Float64Array>());
        Arc::new(DictionaryArray::new(Int8Array::from(keys.to_vec()), said))
    };
    let indices: ArrayRef = Arc::new(ListArray::from_iter_primitive::<UInt32Type, _, _>(
        (0..3).map(|row| Some(vec![Some(row), Some(row + 1)])),
    ));
    for held in [Held::Stream, Held::File] {
        let read = |labels: ArrayRef| {
            let columns = [("label", labels), ("indices", indices.clone())];
            let batch =
                RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
            let file = packed(&[batch.unwrap()], held, None);
            Reader::open(file.path(), Options::default()).and_then(|mut reader| reader.all())
        };
        let found = read(labels(&[Some(1), Some(0), Some(1)], &[Some(-1.0), Some(2.5)])).unwrap();
        assert_eq!((found.labels(), found.row(2)), (&[2.5, -1.0, 2.5][..], &[2, 3][..]));
        for (keys, said) in [
            (&[Some(0), None, Some(0)], &[Some(1.0)][..]),
            (&[Some(1), Some(0), Some(1)], &[None, Some(1.0)]),
            (&[Some(1), Some(0), Some(1)], &[Some(f64::NAN), Some(1.0)]),
        ] {
            let error = read(labels(keys, said)).unwrap_err().to_string();
            assert!(error.contains(": row 2, column `label`: `"), "{error}");
        }
        let error = read(labels(&[None; 3], &[])).unwrap_err().to_string();
        assert!(error.contains(": row 1, column `label`: `null`: expected a label"), "{error}");
        let words = DictionaryArray::<Int8Type>::from_iter(["up", "down", "up"]);
        let error = read(Arc::new(words)).unwrap_err().to_string();
        assert!(error.contains("column `label` has Dictionary(Int8, Utf8): numbers are wanted"), "{error}");
    }
}

/// pyarrow wrote it.
#[test]
fn how_a_column_is_packed_is_said_where_it_cannot_be_unpacked() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/brotli.parquet"));
    let error = Reader::open(path, Options::default()).unwrap_err().to_string();
    let told = "brotli.parquet: column `label` is packed with BROTLI: write it with snappy, gzip, lz4, zstd, or unpacked";
    assert!(error.ends_with(told), "{error}");
}

/// Whole, planned, in batches and from a stream; and whoever watches is told of the whole file.
fn is_the_same(file: &tempfile::NamedTempFile, expected: &Dataset<'_>, of: &str) {
    let read = Arc::new(AtomicU64::new(0));
    let told = read.clone();
    let watch = move |more| {
        told.fetch_add(more, Relaxed);
    };
    let mut watched = Reader::open_watched(file.path(), Options::default(), watch).unwrap();
    let (found, plan) = watched.all_planned().unwrap();
    assert_eq!(&found, expected, "{of}");
    assert_eq!(plan, Plan::compact(expected));
    let length = file.path().metadata().unwrap().len();
    // Behind the last batch of a stream there is its end.
    let read = read.load(Relaxed);
    assert!(read <= length && read > length * 9 / 10, "{of}: {read} of {length}");
    let options = Options { width: Some(97), ..Options::default() };
    let mut reader = Reader::of(Path::new("-"), file.reopen().unwrap(), options).unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| reader.batch(2_345).unwrap()).collect();
    assert_eq!(batches.iter().map(Dataset::len).collect::<Vec<_>>(), [2_345, 2_345, 2_345, 1_965]);
    assert_eq!(&Dataset::concatenated(&batches, 97), expected, "{of}");
}

/// A pipe that cannot go back, and whose every piece is asked for once the one before was used.
struct Pieces {
    file: File,
    read: Arc<Mutex<u64>>,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        *self.read.lock().unwrap() += read as u64;
        Ok(read)
    }
}

/// Of a table larger than memory only the batches asked for are in it.
#[test]
fn an_arrow_stream_is_read_as_far_as_it_is_asked_for() {
    let rows = some(200_000);
    let file = arrow(&rows, 1_000, Held::Stream, None);
    let read = Arc::new(Mutex::new(0));
    let pieces = Pieces { file: file.reopen().unwrap(), read: read.clone() };
    let mut reader = Reader::of(Path::new("-"), pieces, Options::default()).unwrap();
    assert_eq!(reader.batch(1_500).unwrap().unwrap(), {
        let expected = data(&rows[..1_500]);
        Dataset::concatenated(&[expected], 97)
    });
    let length = file.path().metadata().unwrap().len();
    assert!(length > 8 << 20 && *read.lock().unwrap() < 3 << 20, "{} of {length}", read.lock().unwrap());
}

#[test]
fn columns_are_named_and_some_may_be_missing() {
    let rows = some(10);
    let file = written(&rows, 10, USUAL, Compression::SNAPPY);
    let columns = Columns { label: None, ..Columns::default() };
    let found = open(&file, Options { columns, double: true, ..Options::default() }).all().unwrap();
    assert_eq!(found.labels(), [0.0; 10]);
    assert!(matches!(found.values(), Values::F64(_)));
    let renamed = USUAL.replace("values", "weights").replace("indices", "words");
    let plain = renamed.split("    optional group weights").next().unwrap().to_owned() + "}";
    let ones = written(&rows, 10, &plain, Compression::SNAPPY);
    assert!(Reader::open(ones.path(), Options::default()).is_err());
    let columns = Columns { indices: "words".to_owned(), ..Columns::default() };
    let Values::F32(values) =
        open(&ones, Options { columns, ..Options::default() }).all().unwrap().values().clone()
    else {
        panic!("single precision was asked for")
    };
    assert!(!values.is_empty() && values.iter().all(|value| *value == 1.0));
}

#[test]
fn what_is_wrong_has_its_row_and_column() {
    let list = |indices: &[Option<i64>], values: &[Option<f64>]| -> Row {
        (Some(1.0), Some(indices.to_vec()), Some(values.to_vec()))
    };
    for (wrong, message) in [
        (
            (None, Some(vec![]), Some(vec![])),
            "column `label`: `null`: expected a label that is a finite number",
        ),
        (row(f64::NAN, &[]), "column `label`: `NaN`: expected a label that is a finite number"),
        ((Some(1.0), None, Some(vec![])), "column `indices`: `null`: expected a list without nulls"),
        ((Some(1.0), Some(vec![]), None), "column `values`: `null`: expected a list without nulls"),
        (list(&[Some(1), None], &[Some(1.0); 2]), "column `indices`: `null`: expected a list without nulls"),
        (list(&[Some(1)], &[None]), "column `values`: `null`: expected a list without nulls"),
        (
            list(&[Some(1), Some(2)], &[Some(1.0)]),
            "column `values`: `1 for 2 indices`: expected a value for each index",
        ),
        (row(1.0, &[(-3, 1.0)]), "column `indices`: `-3`: expected an index from 0 on, below 100"),
        (row(1.0, &[(100, 1.0)]), "column `indices`: `100`: expected an index from 0 on, below 100"),
        (
            row(1.0, &[(7, 1.0), (5, 1.0), (7, 2.0)]),
            "column `indices`: `7 twice`: expected each index once in a list",
        ),
        (
            row(1.0, &[(7, 1e300)]),
            &format!("column `values`: `{}`: expected a value that is a finite number", 1e300),
        ),
    ] {
        let mut rows = some(50);
        let right = data(&rows);
        rows.insert(41, wrong);
        let files = [written(&rows, 20, USUAL, Compression::SNAPPY), arrow(&rows, 20, Held::Stream, None)];
        for file in files {
            let options = Options { width: Some(100), ..Options::default() };
            let error = open(&file, options.clone()).all().unwrap_err().to_string();
            assert_eq!(error, format!("{}: row 42, {message}", file.path().display()));
            let mut lenient = open(&file, Options { skip_errors: 1, ..options });
            let found = lenient.all().unwrap();
            assert_eq!((found.features(), found.labels()), (right.features(), right.labels()));
            assert_eq!(lenient.skipped().0, 1);
        }
    }
}

/// A column of numbers, here that of the labels, read as how much samples count.
fn weighed(label: Option<&str>, weight: &str) -> Options {
    let label = label.map(str::to_owned);
    let columns = Columns { label, weight: Some(weight.to_owned()), ..Columns::default() };
    Options { columns, ..Options::default() }
}

#[test]
fn weights_of_a_table_are_learnt_by() {
    let entries = |at: usize| [((at * 5 % 97) as i64, 1.5), (97, -0.5)];
    let rows: Vec<Row> = (0..5_000).map(|at| row((at % 3) as f64, &entries(at))).collect();
    let twos: Vec<Row> = (0..5_000).map(|at| row(2.0, &entries(at))).collect();
    let task = Linear { intercept: true, ..Linear::new(Loss::Logistic) };
    let two = options(Scheme::Cop, 2);
    for rows in [rows, twos] {
        let plain = data(&rows);
        let expected = plain.with_importances(plain.labels().to_vec()).unwrap();
        let mut files = vec![
            written(&rows, 1_000, USUAL, Compression::SNAPPY),
            written(&rows, 77, SPARE, Compression::UNCOMPRESSED),
        ];
        for held in [Held::Stream, Held::File] {
            files.extend([arrow(&rows, 1_000, held, None), spare(&rows, 77, held)]);
        }
        for file in files {
            let found = open(&file, weighed(Some("label"), "label")).all().unwrap();
            assert_eq!(found, expected);
            assert_eq!(learnt(&task, &found, &two), learnt(&task, &expected, &two));
            assert_ne!(learnt(&task, &found, &two), learnt(&task, &plain, &two));
            let mut reader = open(&file, weighed(None, "label"));
            let batches: Vec<_> = std::iter::from_fn(|| reader.batch(1_234).unwrap()).collect();
            let alone = Dataset::concatenated(&batches, 98);
            assert_eq!((alone.importances(), alone.labels()), (expected.labels(), &[0.0; 5_000][..]));
        }
    }
}

#[test]
fn what_is_no_weight_has_its_row_and_column() {
    let right = some(50);
    for (label, found) in [
        (None, "null"),
        (Some(-1.0), "-1"),
        (Some(f64::NAN), "NaN"),
        (Some(f64::INFINITY), "inf"),
        (Some(f64::NEG_INFINITY), "-inf"),
    ] {
        let mut rows = right.clone();
        rows.insert(41, (label, Some(vec![]), Some(vec![])));
        for file in [written(&rows, 20, USUAL, Compression::SNAPPY), arrow(&rows, 20, Held::File, None)] {
            let error = open(&file, weighed(None, "label")).all().unwrap_err().to_string();
            let message = "expected a weight that is a finite number from 0 on";
            let path = file.path().display();
            assert_eq!(error, format!("{path}: row 42, column `label`: `{found}`: {message}"));
            let mut lenient = open(&file, Options { skip_errors: 1, ..weighed(None, "label") });
            assert_eq!(lenient.all().unwrap().importances(), data(&right).labels());
        }
    }
    let files = [
        (written(&right, 20, USUAL, Compression::SNAPPY), "DOUBLE"),
        (arrow(&right, 20, Held::File, None), "Float64"),
        (arrow(&right, 20, Held::Stream, None), "Float64"),
    ];
    for (file, kind) in files {
        let told =
            |weight| Reader::open(file.path(), weighed(Some("label"), weight)).unwrap_err().to_string();
        let path = file.path().display();
        assert_eq!(
            told("values"),
            format!("{path}: column `values` has lists of {kind}: numbers are wanted")
        );
        assert_eq!(told("w"), format!("{path}: there is no column `w`: it has label, indices, values"));
    }
    let text = Reader::of(Path::new("-"), io::Cursor::new(b"1 1:1"), weighed(Some("label"), "w"));
    assert_eq!(text.unwrap_err().to_string(), "-: it is no table, and has no column `w` of weights");
}

#[test]
fn tables_of_something_else_say_what_they_have() {
    let file = written(&some(3), 3, USUAL, Compression::SNAPPY);
    let name = |label: &str, indices: &str, values: &str| Columns {
        label: Some(label.to_owned()),
        indices: indices.to_owned(),
        values: Some(values.to_owned()),
        weight: None,
    };
    let table = arrow(&some(3), 3, Held::File, None);
    for (columns, message, arrows) in [
        (
            name("label", "words", "values"),
            "there is no column `words`: it has label, indices, values",
            "there is no column `words`: it has label, indices, values",
        ),
        (
            name("values", "indices", "values"),
            "column `values` has lists of DOUBLE: numbers are wanted",
            "column `values` has lists of Float64: numbers are wanted",
        ),
        (
            name("label", "values", "values"),
            "column `values` has lists of DOUBLE: a list of integers in each row is wanted",
            "column `values` has lists of Float64: a list of integers in each row is wanted",
        ),
        (
            name("label", "indices", "label"),
            "column `label` has DOUBLE: a list of numbers in each row is wanted",
            "column `label` has Float64: a list of numbers in each row is wanted",
        ),
    ] {
        for (file, message) in [(&file, message), (&table, arrows)] {
            let options = Options { columns: columns.clone(), ..Options::default() };
            let error = Reader::open(file.path(), options).unwrap_err();
            assert_eq!(error.to_string(), format!("{}: {message}", file.path().display()));
        }
    }
    let twice =
        ["indices", "label", "label"].map(|name| (name, Arc::new(Int32Array::from(vec![1])) as ArrayRef));
    let twice = packed(&[RecordBatch::try_from_iter(twice).unwrap()], Held::File, None);
    let error = Reader::open(twice.path(), Options::default()).unwrap_err().to_string();
    assert!(
        error.ends_with(": there is more than one column `label`: give each a name of its own"),
        "{error}"
    );
    let vw = Options { format: crate::read::Format::Vw, ..Options::default() };
    let error = Reader::open(file.path(), vw).unwrap_err().to_string();
    assert!(
        error.ends_with("it is a table, which has indices; under the format vw features are hashes of names")
    );
    let empty = written(&[], 3, USUAL, Compression::SNAPPY);
    let error = open(&empty, Options::default()).all().unwrap_err().to_string();
    assert!(error.ends_with(": there is no row in it"), "{error}");
    for meaning in ["TIMESTAMP(NANOS,true)", "TIMESTAMP(MILLIS,true)", "DECIMAL(9,2)"] {
        let schema = USUAL.replace("double label", &format!("int64 label ({meaning})"));
        let file = written(&[], 3, &schema, Compression::SNAPPY);
        let error = Reader::open(file.path(), Options::default()).unwrap_err().to_string();
        let said = ": column `label` has INT64 that is a time or a decimal: numbers are wanted";
        assert!(error.ends_with(said), "{error}");
    }
    // A mask of features is no list of their numbers.
    let schema = USUAL.replace("int64 element", "boolean element");
    let mut mask = ListBuilder::new(BooleanBuilder::new());
    mask.append_value([Some(true)]);
    let numbers = || Arc::new(Float64Array::from(vec![1.0])) as ArrayRef;
    let columns =
        [("label", numbers()), ("indices", Arc::new(mask.finish()) as ArrayRef), ("values", numbers())];
    let masks = [
        (written(&[], 3, &schema, Compression::SNAPPY), "BOOLEAN"),
        (packed(&[RecordBatch::try_from_iter(columns).unwrap()], Held::File, None), "Boolean"),
    ];
    for (file, kind) in masks {
        let error = Reader::open(file.path(), Options::default()).unwrap_err().to_string();
        let said =
            format!(": column `indices` has lists of {kind}: a list of integers in each row is wanted");
        assert!(error.ends_with(&said), "{error}");
    }
    let old = Reader::of(Path::new("-"), io::Cursor::new(b"FEA1...."), Options::default()).unwrap_err();
    assert_eq!(old.to_string(), "-: this is Feather of version 1\n  write it as version 2, which is Arrow");
}

/// Files of every form and packing, small enough to damage them everywhere.
fn small() -> Vec<(String, Vec<u8>)> {
    let rows = some(40);
    let mut files = Vec::new();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(parquet::basic::GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        files.push((format!("Parquet, {compression:?}"), written(&rows, 25, USUAL, compression)));
    }
    for held in [Held::Stream, Held::File] {
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            files.push((format!("Arrow {held:?}, {compression:?}"), arrow(&rows, 25, held, compression)));
        }
    }
    files.into_iter().map(|(name, file)| (name, std::fs::read(file.path()).unwrap())).collect()
}

fn read_of(bytes: &[u8]) -> Result<Dataset<'static>, String> {
    let read = Reader::of(Path::new("-"), io::Cursor::new(bytes.to_vec()), Options::default());
    read.and_then(|mut reader| reader.all()).map_err(|error| error.to_string())
}

/// Whatever is read of it, and where it is an error, the file is named: nothing panics, and nothing ends the process, as it would
/// if memory were reserved that is not there. What no longer begins as a table does is read as text, which is tested elsewhere.
fn ends(name: &str, damage: &str, bytes: &[u8]) -> Result<Dataset<'static>, String> {
    let read = std::panic::catch_unwind(|| read_of(bytes));
    let read = read.unwrap_or_else(|_| panic!("{name} panics, {damage}"));
    if let Err(error) = &read {
        let text = super::Form::of_content(bytes).is_none();
        assert!(text || error.starts_with("-: "), "{name}, {damage}: {error}");
    }
    read
}

/// Every length in a file is at some place too large for any memory: of Parquet as it has them, which is anywhere; of Arrow in
/// eight bytes where it has those. With `CASES` both everywhere.
#[test]
fn no_length_in_a_damaged_file_is_believed() {
    let large = (1_i64 << 46).to_le_bytes();
    let packed = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let everywhere = std::env::var_os("CASES").is_some();
    for (name, whole) in small() {
        let (lengths, apart) = match name.contains("Parquet") {
            _ if everywhere => (&[&large[..], &packed[..]][..], 1),
            true => (&[&packed[..]][..], 1),
            false => (&[&large[..]][..], 4),
        };
        let (mut told, mut tried) = (Vec::new(), 0);
        for at in (0..whole.len()).step_by(apart) {
            for length in lengths {
                tried += 1;
                let mut bytes = whole.clone();
                let end = whole.len().min(at + length.len());
                bytes[at..end].copy_from_slice(&length[..end - at]);
                told.extend(ends(&name, &format!("with a length at {at}"), &bytes).err());
            }
        }
        // Where nothing is packed, most of it is numbers.
        assert!(told.len() > tried / 20, "{name}: {} of {tried}", told.len());
        let says = |what: &str| told.iter().any(|error| error.contains(what));
        let packed = !name.contains("UNCOMPRESSED") && !name.contains("None");
        assert_eq!(says("which cannot be"), packed, "{name}");
        assert_eq!(says(" in the last "), name.contains("Parquet"), "{name}");
        // Where what follows the number, and is overwritten with it, still reads as a header.
        assert!(says("a dictionary of 2147483647 numbers in ") || name != "Parquet, UNCOMPRESSED");
    }
}

#[test]
fn what_is_damaged_is_read_or_refused() {
    for (name, whole) in small() {
        let mut random = Random::seeded(46);
        for case in 0..2_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes[at] ^= 1 << random.below(8),
                    1 => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4) as usize],
                    2 => {
                        let end = bytes.len().min(at + 8);
                        bytes[at..end].fill(random.below(256) as u8);
                    }
                    _ => bytes[at] = random.below(256) as u8,
                }
            }
            if random.below(8) == 0 {
                bytes.truncate(random.below(bytes.len() as u64) as usize);
            }
            let _ = ends(&name, &format!("in case {case}"), &bytes);
        }
    }
}

/// Cut off anywhere it is an error, but for what only ends a stream.
#[test]
fn what_is_cut_off_is_refused() {
    for (name, whole) in small() {
        let expected = read_of(&whole).unwrap();
        let mut ended = 0;
        for at in 6..whole.len() {
            match ends(&name, &format!("cut off at {at}"), &whole[..at]) {
                Err(_) => {}
                Ok(found) => {
                    assert!(name.contains("Stream") && found.len() <= expected.len(), "{name} at {at}");
                    ended += 1;
                }
            }
        }
        // Between two messages a stream may end.
        assert!(ended <= 3, "{name}: {ended} ends");
    }
}

#[test]
fn what_is_wrong_with_a_length_is_said() {
    let rows = some(200);
    let large = (1_i64 << 46).to_le_bytes();
    for held in [Held::Stream, Held::File] {
        for (compression, packing) in [(CompressionType::LZ4_FRAME, "Lz4"), (CompressionType::ZSTD, "Zstd")] {
            let whole = std::fs::read(arrow(&rows, 200, held, Some(compression)).path()).unwrap();
            let mark = (200_i64 * 8).to_le_bytes();
            let at = whole.windows(8).rposition(|bytes| bytes == mark).unwrap();
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&large);
            let error = read_of(&bytes).unwrap_err();
            let told = format!("bytes that they were 70368744177664 before {packing}, which cannot be");
            assert!(error.starts_with("-: cannot read on after line 0: it is damaged: "), "{error}");
            assert!(error.ends_with(&told), "{error}");
        }
    }
}

/// A few bytes may say the same of many numbers, which are all there at a time where they are of one row.
#[test]
fn a_row_that_takes_more_memory_than_there_is_is_refused() {
    let row = (Some(1.0), Some(vec![Some(7); 250_000]), Some(vec![]));
    let parquet = written(&[row], 1, USUAL, Compression::UNCOMPRESSED);
    let list = ListArray::from_iter_primitive::<Int8Type, _, _>([Some(vec![Some(7); 600_000])]);
    let columns: [(&str, ArrayRef); 2] =
        [("label", Arc::new(Float64Array::from(vec![1.0]))), ("indices", Arc::new(list))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let arrow = packed(&[batch], Held::Stream, Some(CompressionType::LZ4_FRAME));
    for (file, bytes) in [(parquet, 20 * 250_000), (arrow, 8 * 600_000)] {
        let whole = std::fs::read(file.path()).unwrap();
        assert!(whole.len() < 1 << 16, "{} bytes", whole.len());
        assert_eq!(
            read_of(&whole).unwrap_err(),
            format!(
                "-: cannot read on after line 0: it takes {bytes} bytes at a time, for which there is no memory; or it is damaged"
            )
        );
    }
}

/// Written by pyarrow 26; the Arrow file with other types and strings beside, and packed.
#[test]
fn what_pyarrow_writes_is_read() {
    let sign = |row: usize| if row.is_multiple_of(3) { -1.0 } else { 1.0 };
    let label = |row: usize| if row.is_multiple_of(3) { 4.0 } else { 7.0 };
    let sample =
        |at: usize| row(label(at), &[(0, sign(at) * (1 + at % 5) as f64), ((at % 4 + 1) as i64, 1.0)]);
    let rows: Vec<Row> = (0..60).map(sample).collect();
    for name in ["data/pyarrow.parquet", "data/pyarrow.arrow"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let found = Reader::open(&path, Options::default()).unwrap().all().unwrap();
        assert_eq!(found, data(&rows), "{name}");
    }
}
