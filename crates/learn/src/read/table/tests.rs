//! Files as other programs write them: other types, levels of nulls, row groups, compression.

use super::*;
use crate::data::{Dataset, Values};
use crate::plan::Plan;
use crate::read::Reader;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

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
        let (found, plan) = open(&file, Options::default()).all_planned().unwrap();
        assert_eq!(found, expected, "groups of {group}, {compression:?}");
        assert_eq!(plan, Plan::compact(&expected));
        let mut reader = open(&file, Options { width: Some(97), ..Options::default() });
        let batches = std::iter::from_fn(|| reader.batch(2_345).unwrap());
        let batches: Vec<_> = batches.collect();
        assert_eq!(batches.iter().map(Dataset::len).collect::<Vec<_>>(), [2_345, 2_345, 2_345, 1_965]);
        assert_eq!(Dataset::concatenated(&batches, 97), expected, "groups of {group}, {compression:?}");
    }
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
        let file = written(&rows, 20, USUAL, Compression::SNAPPY);
        let options = Options { width: Some(100), ..Options::default() };
        let error = open(&file, options.clone()).all().unwrap_err().to_string();
        assert_eq!(error, format!("{}: row 42, {message}", file.path().display()));
        let mut lenient = open(&file, Options { skip_errors: 1, ..options });
        let found = lenient.all().unwrap();
        assert_eq!((found.features(), found.labels()), (right.features(), right.labels()));
        assert_eq!(lenient.skipped().0, 1);
    }
}

#[test]
fn tables_of_something_else_say_what_they_have() {
    let file = written(&some(3), 3, USUAL, Compression::SNAPPY);
    let name = |label: &str, indices: &str, values: &str| Columns {
        label: Some(label.to_owned()),
        indices: indices.to_owned(),
        values: Some(values.to_owned()),
    };
    for (columns, message) in [
        (name("label", "words", "values"), "there is no column `words`: it has label, indices, values"),
        (name("values", "indices", "values"), "column `values` has lists of DOUBLE: numbers are wanted"),
        (
            name("label", "values", "values"),
            "column `values` has lists of DOUBLE: a list of integers in each row is wanted",
        ),
        (
            name("label", "indices", "label"),
            "column `label` has DOUBLE: a list of numbers in each row is wanted",
        ),
    ] {
        let error = Reader::open(file.path(), Options { columns, ..Options::default() }).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: {message}", file.path().display()));
    }
    let vw = Options { format: crate::read::Format::Vw, ..Options::default() };
    let error = Reader::open(file.path(), vw).unwrap_err().to_string();
    assert!(
        error.ends_with("it is Parquet, which has indices; under the format vw features are hashes of names")
    );
    let empty = written(&[], 3, USUAL, Compression::SNAPPY);
    let error = open(&empty, Options::default()).all().unwrap_err().to_string();
    assert!(error.ends_with(": there is no row in it"), "{error}");
    let stream = Reader::of(Path::new("-"), file.reopen().unwrap(), Options::default()).unwrap_err();
    assert_eq!(stream.to_string(), "-: this is Parquet\n  give its file: it cannot be read from a stream");
}

#[test]
fn a_damaged_file_is_an_error() {
    let file = written(&some(500), 100, USUAL, Compression::SNAPPY);
    let whole = std::fs::read(file.path()).unwrap();
    let expected = open(&file, Options::default()).all().unwrap();
    let mut failed = 0;
    for at in (4..whole.len()).step_by(23) {
        for damage in 0..2 {
            let mut bytes = whole.clone();
            if damage == 0 {
                bytes.truncate(at)
            } else {
                bytes[at] ^= 0x55
            }
            let damaged = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(damaged.path(), &bytes).unwrap();
            match Reader::open(damaged.path(), Options::default()).and_then(|mut reader| reader.all()) {
                Err(_) => failed += 1,
                // A bit of a number, or of what nobody reads.
                Ok(found) => assert!(damage == 1 && found.len() <= expected.len()),
            }
        }
    }
    assert!(failed > whole.len() / 23, "{failed}");
}

/// Written by pyarrow 26.
#[test]
fn what_pyarrow_writes_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pyarrow.parquet");
    let found = Reader::open(&path, Options::default()).unwrap().all().unwrap();
    let sign = |row: usize| if row.is_multiple_of(3) { -1.0 } else { 1.0 };
    let label = |row: usize| if row.is_multiple_of(3) { 4.0 } else { 7.0 };
    let sample = |row: usize| {
        super::tests::row(label(row), &[(0, sign(row) * (1 + row % 5) as f64), ((row % 4 + 1) as i64, 1.0)])
    };
    let rows: Vec<Row> = (0..60).map(sample).collect();
    assert_eq!(found, data(&rows));
}
