use super::source::LINE_MAX;
use super::*;
use proptest::prelude::*;
use std::io::{Cursor, Write};

fn reader(text: impl Into<Vec<u8>>, options: Options) -> Reader {
    Reader::of(Path::new("data.svm"), Cursor::new(text.into()), options).unwrap()
}

fn told(text: impl Into<Vec<u8>>, options: Options) -> String {
    reader(text, options).all().unwrap_err().to_string()
}

fn values(data: &Dataset<'_>) -> Vec<f64> {
    match data.values() {
        Values::F32(values) => values.iter().map(|value| f64::from(*value)).collect(),
        Values::F64(values) => values.to_vec(),
    }
}

const TEXT: &str = "# a file\n+1 1:0.5 3:-2\n\n-1 qid:7 2:1e-1 # second\r\n0.25\n2 4:4";

#[test]
fn a_file_of_all_that_may_occur() {
    let data = reader(TEXT, Options { double: true, ..Options::default() }).all().unwrap();
    assert_eq!((data.len(), data.width()), (4, 4));
    assert_eq!(data.labels(), [1.0, -1.0, 0.25, 2.0]);
    assert_eq!(data.features(), [0, 2, 1, 3]);
    assert_eq!(values(&data), [0.5, -2.0, 0.1, 4.0]);
    assert_eq!(data.offsets(), [0, 2, 3, 3, 4]);
}

#[test]
fn a_comment_ends_the_group_of_a_sample() {
    let data = reader("1 qid:3#1:5 2:7\n1 qid:3#doc a\n1 qid:3 2:7\n", Options::default()).all().unwrap();
    assert_eq!((data.offsets(), data.features()), (&[0, 0, 0, 1][..], &[1][..]));
}

#[test]
fn the_first_index_is_found_or_given() {
    let features =
        |text, base| reader(text, Options { base, ..Options::default() }).all().unwrap().features().to_vec();
    assert_eq!(features("1 1:1 2:1\n1 3:1\n", Base::Auto), [0, 1, 2]);
    assert_eq!(features("1 1:1 2:1\n1 0:1\n", Base::Auto), [1, 2, 0]);
    assert_eq!(features("1 1:1 2:1\n", Base::Zero), [1, 2]);
    let given = Options { base: Base::One, ..Options::default() };
    assert_eq!(
        told("1 1:1\n1 0:1\n", given.clone()),
        "data.svm:2:3: `0:1`: expected an index from 1 on, from which the file counts by the first index given for it"
    );
    assert_eq!(
        told("1 0:1\n", Options { base_of: Some("a.model".into()), ..given }),
        "data.svm:1:3: `0:1`: expected an index from 1 on, from which the data of a.model counted: if this file alone counts \
         from 0, say --base 0; if that did too, train again with --base 0"
    );
    // In batches, the first one decides.
    let mut batches = reader("1 1:1\n1 0:1\n", Options::default());
    assert_eq!(batches.batch(1).unwrap().unwrap().features(), [0]);
    assert_eq!(
        batches.batch(1).unwrap_err().to_string(),
        "data.svm:2:3: `0:1`: expected an index from 1 on, from which a file counts whose first lines have no 0: if this one \
         counts from 0, say so (--base 0, or zero_based=True in Python)"
    );
}

#[test]
fn what_is_wrong_has_its_place() {
    for (text, message) in [
        ("x 1:1", "data.svm:1:1: `x`: expected a label, a number such as 1 or -1"),
        ("1 1:1\n1 2", "data.svm:2:3: `2`: expected INDEX:VALUE, e.g. 3:0.5"),
        ("1 1:1 2:x", "data.svm:1:7: `2:x`: expected INDEX:VALUE, e.g. 3:0.5"),
        ("1 1:1 2:", "data.svm:1:7: `2:`: expected INDEX:VALUE, e.g. 3:0.5"),
        ("1 1:1:1", "data.svm:1:3: `1:1:1`: expected INDEX:VALUE, e.g. 3:0.5"),
        ("1 -1:1", "data.svm:1:3: `-1:1`: expected INDEX:VALUE, e.g. 3:0.5"),
        ("1 1:nan", "data.svm:1:3: `1:nan`: expected a value that is a finite number"),
        (
            "1 1:1e39",
            "data.svm:1:3: `1:1e39`: expected a value of at most 3.4e38 in single precision: read in double (--double, or \
             dtype=numpy.float64 in Python)",
        ),
        ("1 4294967296:1", "data.svm:1:3: `4294967296:1`: expected an index of at most 4294967294"),
        ("inf 1:1", "data.svm:1:1: `inf`: expected a label that is a finite number"),
        ("1,2 1:1", "data.svm:1:1: `1,2`: expected one label: samples of several classes are not read"),
        ("1 3:1 2:1 3:2", "data.svm:1:11: `3:2`: expected each index once in a line"),
        ("1 2:1 2:1", "data.svm:1:7: `2:1`: expected each index once in a line"),
        ("1 4294967295:1", "data.svm:1:3: `4294967295:1`: expected an index of at most 4294967294"),
        ("", "data.svm: there is no sample in it: expected lines such as `1 3:0.5 7:1`"),
    ] {
        assert_eq!(told(text, Options::default()), message, "{text}");
    }
    let narrow = Options { width: Some(3), base: Base::One, ..Options::default() };
    assert_eq!(told("1 3:1\n1 4:1", narrow), "data.svm:2:3: `4:1`: expected an index of at most 3");
    // Whose first index is not known counts from 1, until a 0 shows that it does not.
    let narrow = Options { width: Some(3), ..Options::default() };
    assert_eq!(reader("1 3:1\n", narrow.clone()).all().unwrap().features(), [2]);
    assert_eq!(
        told("1 3:1\n1 0:1", narrow),
        "data.svm: it has the index 0 and the index 3, so more than the 3 features that were given"
    );
    assert!(reader("1 1:1e39", Options { double: true, ..Options::default() }).all().is_ok());
}

#[test]
fn wrong_lines_are_left_out_only_when_asked() {
    let text = "1 1:1\n1 x\n1 2:1 2:1\n-1 3:1\n?\n";
    let mut some = reader(text, Options { skip_errors: 3, ..Options::default() });
    let data = some.all().unwrap();
    assert_eq!((data.labels(), data.features()), (&[1.0, -1.0][..], &[0, 2][..]));
    let (count, shown) = some.skipped();
    assert_eq!((count, shown.len()), (3, 3));
    assert_eq!(shown[1].to_string(), "data.svm:3:7: `2:1`: expected each index once in a line");
    assert_eq!(
        told(text, Options { skip_errors: 2, ..Options::default() }),
        "data.svm:5:1: `?`: expected a label, a number such as 1 or -1\n  2 wrong lines before it were left out"
    );
}

/// More samples than 32 bits can number would be learnt from under one another's numbers; here there may be fewer.
#[test]
fn more_samples_than_can_be_numbered_are_refused() {
    let lines = "1 1:1\n".repeat(CHUNK + 7);
    let reader =
        || Reader::of(Path::new("a.svm"), std::io::Cursor::new(lines.clone()), Options::default()).unwrap();
    assert_eq!(reader().all_of(CHUNK + 7).unwrap().len(), CHUNK + 7);
    assert_eq!(
        reader().all_of(CHUNK + 6).unwrap_err().to_string(),
        "a.svm: it has more than the 4102 samples that can be learnt from at a time: read it in batches"
    );
}

#[test]
fn batches_are_the_whole_in_pieces() {
    let text: String = (1..=1000).map(|row| format!("{} {}:1 {}:2\n", row % 3, row, row + 7)).collect();
    let whole = reader(text.clone(), Options::default()).all().unwrap();
    let mut batches = reader(text, Options::default());
    let mut parts = Vec::new();
    while let Some(part) = batches.batch(77).unwrap() {
        parts.push(part);
    }
    assert_eq!(parts.len(), 13);
    assert_eq!((batches.rows(), batches.width()), (1000, 1007));
    assert_eq!(Dataset::concatenated(&parts, batches.width()), whole);
}

#[test]
fn a_plan_made_while_reading_is_that_of_the_data() {
    let text: String = (0..3000).map(|row| format!("1 {}:1 {}:1\n", row % 17 + 1, 20 + row % 1001)).collect();
    let (data, plan) = reader(text.clone(), Options::default()).all_planned().unwrap();
    assert_eq!(data, reader(text, Options::default()).all().unwrap());
    assert_eq!(plan, Plan::compact(&data));
}

/// What the first rows are like says only how much room there is to be.
#[test]
fn a_file_whose_rows_differ_is_read_as_its_text_is() {
    let short = |row: usize| format!("1 {}:1\n", row % 97 + 1);
    let long = |row: usize| {
        let entries: String = (0..40).map(|at| format!(" {}:{row}", 1 + at * 3)).collect();
        format!("-1{entries}\n")
    };
    let (few, many): (String, String) = ((0..5000).map(short).collect(), (0..5000).map(long).collect());
    for text in [format!("{few}{many}"), format!("{many}{few}"), few, String::from("1 1:1")] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let (data, plan) = Reader::open(file.path(), Options::default()).unwrap().all_planned().unwrap();
        assert_eq!(data, reader(text, Options::default()).all().unwrap());
        assert_eq!(plan, Plan::compact(&data));
        assert_eq!(data, Reader::open(file.path(), Options::default()).unwrap().all().unwrap());
    }
}

fn packed(text: &str, how: Compression) -> Vec<u8> {
    let mut packed = Vec::new();
    how.write(&mut packed, |to| to.write_all(text.as_bytes())).unwrap();
    packed
}

/// A disk with room for so many bytes.
#[derive(Debug)]
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_of_every_compression() {
    let text: String = (0..400_000).map(|row| format!("1 {}:0.{row}\n", row + 1)).collect();
    for how in [Compression::Plain, Compression::Gzip, Compression::Zstd, Compression::Bzip2] {
        for room in [0, 5_000] {
            let error = how.write(Disk(room), |to| to.write_all(text.as_bytes())).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{how:?}");
        }
        let error = how.write(Disk(1 << 20), |_| Err(io::Error::other("it has no more"))).unwrap_err();
        assert_eq!(error.to_string(), "it has no more", "{how:?}");
    }
}

#[test]
fn compression_is_known_by_content() {
    let text: String = (0..40_000).map(|row| format!("1 {}:0.{row}\n", row + 1)).collect();
    let plain = reader(text.clone(), Options::default()).all().unwrap();
    for how in [Compression::Gzip, Compression::Zstd, Compression::Bzip2] {
        let mut bytes = packed(&text, how);
        assert!(bytes.len() < text.len(), "{how:?}");
        assert_eq!(reader(bytes.clone(), Options::default()).all().unwrap(), plain, "{how:?}");
        // Several members, frames or streams in one file are its content one after the other.
        bytes.extend(packed(&text, how));
        let twice = reader(bytes.clone(), Options::default()).all().unwrap();
        assert_eq!((twice.len(), twice.entries()), (80_000, 80_000), "{how:?}");
        bytes.truncate(bytes.len() - 60);
        let broken = reader(bytes, Options::default()).all().unwrap_err();
        assert!(matches!(broken, ReadError::Io { line: 40_000.., .. }), "{how:?}: {broken}");
    }
    // A zstd file of two frames, each behind one to be skipped as pzstd writes them; the second one's checksum is wrong.
    let (aside, frame) = (b"\x50\x2a\x4d\x18\x04\0\0\0size", packed(&text, Compression::Zstd));
    let mut bytes = [&aside[..], &frame, aside, &frame].concat();
    assert_eq!(reader(bytes.clone(), Options::default()).all().unwrap().len(), 80_000);
    *bytes.last_mut().unwrap() ^= 1;
    let damaged = told(bytes, Options::default());
    let at = "data.svm: cannot read on after line 80000: zstd frame 2 has the checksum ";
    assert!(damaged.starts_with(at), "{damaged}");
    let cut = told([&frame[..], &aside[..9]].concat(), Options::default());
    assert!(cut.contains("a zstd frame to be skipped, behind frame 1, is cut off"), "{cut}");
    let cut = told([&frame[..], &frame[..frame.len() - 60]].concat(), Options::default());
    assert!(cut.contains(": zstd frame 2 is cut off\n  the file is damaged"), "{cut}");
    let behind = told([&frame[..], b"nothing of zstd"].concat(), Options::default());
    assert!(behind.contains(": zstd frame 2: no zstd frame begins where one should\n"), "{behind}");
    // Behind the header of a frame and that of its first block, what that block says of itself.
    let header = &frame[..4];
    let reserved = told([header, b"\0\x58\x06\0\0"].concat(), Options::default());
    assert!(reserved.contains(": zstd frame 1: what is packed cannot be what was written\n"), "{reserved}");
    let xz = Reader::of(Path::new("data.xz"), Cursor::new(b"\xfd7zXZ\0\0".to_vec()), Options::default());
    assert_eq!(
        xz.unwrap_err().to_string(),
        "data.xz: this is compressed by xz\n  unpack it first: unxz FILE"
    );
}

/// Of a few packed bytes, or of a device, a line may come that no memory holds.
#[test]
fn a_line_that_is_too_long_is_refused() {
    let mut lines = format!("1 1:1\n1 2:1 #{}", "-".repeat(LINE_MAX - 100));
    assert_eq!(reader(lines.clone(), Options::default()).all().unwrap().len(), 2);
    lines += &"-".repeat(2 * LINE_MAX);
    for how in [Compression::Plain, Compression::Gzip] {
        assert_eq!(
            told(packed(&lines, how), Options::default()),
            "data.svm: cannot read on after line 1: line 2 is longer than 4194304 bytes\n  if it is text, give each sample a \
             line of its own"
        );
    }
}

#[test]
fn reading_ends_when_it_is_asked_to() {
    let stop = crate::Stop::default();
    let mut lines = reader("1 1:1\n".repeat(3), Options::default()).until(stop.clone());
    assert_eq!(lines.batch(1).unwrap().unwrap().len(), 1);
    stop.ask();
    for read in [lines.batch(1).unwrap_err(), lines.all().unwrap_err(), lines.all_planned().unwrap_err()] {
        assert_eq!(read.to_string(), "data.svm: reading it was interrupted");
    }
}

#[test]
fn vowpal_wabbits_lines() {
    let options = Options { format: Format::Vw, double: true, ..Options::default() };
    let text = "1 |a price:.23 sqft:.25 7\n-1 1.0 'tag|a:2 price:0.5 |b price:1\n0 tag| x x:2\n";
    let data = reader(text, options.clone()).all().unwrap();
    assert_eq!((data.labels(), data.width()), (&[1.0, -1.0, 0.0][..], 1 << 18));
    assert_eq!(data.offsets(), [0, 3, 5, 6]);
    let price = data.row(0).iter().zip(values(&data)).find(|(_, value)| *value == 0.23).unwrap().0;
    let at = data.row(1).iter().position(|feature| feature == price).unwrap();
    assert_eq!(values(&data)[3 + at], 1.0, "the namespace's scale times the value");
    assert_eq!(values(&data)[5], 3.0, "what meets in a hash is added up");
    let dense = reader("1 |b y:9 |a :0.5 :0 :0.25 x:7 :2 |b y :4\n", options.clone()).all().unwrap();
    let first = dense.row(0).iter().zip(values(&dense)).find(|(_, value)| *value == 0.5).unwrap().0;
    let unnamed = |place| {
        let at = dense.row(0).iter().position(|feature| *feature == first + place);
        at.map(|at| values(&dense)[at])
    };
    assert_eq!([1, 2, 3].map(unnamed), [Some(0.0), Some(0.25), Some(2.0)], "numbered in their namespace");
    for (text, message) in [
        ("1 a b", "data.svm:1:5: `b`: expected `|` and features after the label"),
        ("|a b", "data.svm:1:1: `|a`: expected a label, a number such as 1 or -1, before the first `|`"),
        ("1 1 0.5 |a b", "data.svm:1:5: `0.5`: expected an initial prediction of 0, or none"),
        (
            "1 |a b:x",
            "data.svm:1:6: `b:x`: expected NAME or NAME:VALUE with a finite number, e.g. price:0.23",
        ),
    ] {
        assert_eq!(told(text, options.clone()), message);
    }
}

/// In chunks and batches some of which have them and some not, and lines that are left out.
#[test]
fn importances_are_those_of_the_samples_that_have_them() {
    let importance = |row: usize| if row > 5000 && row.is_multiple_of(3) { row as f64 / 2.0 } else { 1.0 };
    let line = |row: usize| match importance(row) {
        1.0 if row.is_multiple_of(2) => format!("1 |a b:{row}\n"),
        importance => format!("-1 {importance} tag|a c\n{}", if row % 500 == 1 { "1 -2 |a b\n" } else { "" }),
    };
    let text: String = (0..12_000).map(line).collect();
    let options = Options { format: Format::Vw, skip_errors: 100, ..Options::default() };
    let mut whole = reader(text.clone(), options.clone());
    let (data, plan) = whole.all_planned().unwrap();
    assert_eq!((data.len(), whole.skipped().0), (12_000, 24));
    assert!((0..12_000).all(|row| data.importance(row) == importance(row)));
    assert_eq!(plan, Plan::compact(&data));
    let mut batches = reader(text, options.clone());
    let parts: Vec<_> = std::iter::from_fn(|| batches.batch(1_100).unwrap()).collect();
    assert_eq!(Dataset::concatenated(&parts, data.width()), data);
    for (text, message) in [
        ("1 -2 |a b", "data.svm:1:3: `-2`: expected an importance, a finite number from 0 on such as 2.5"),
        ("1 inf |a b", "data.svm:1:3: `inf`: expected an importance, a finite number from 0 on such as 2.5"),
        (
            "1 2x 'tag|a b",
            "data.svm:1:3: `2x`: expected an importance, a finite number from 0 on such as 2.5",
        ),
    ] {
        assert_eq!(told(text, Options { skip_errors: 0, ..options.clone() }), message);
    }
}

proptest! {
    /// Whatever the bytes, reading ends, and what comes of it is sound.
    #[test]
    fn no_bytes_break_it(text in "[-+0-9:. #a|\n\r\te]{0,200}", vw: bool) {
        let format = if vw { Format::Vw } else { Format::Svmlight };
        let options = Options { format, skip_errors: 1000, ..Options::default() };
        if let Ok(data) = reader(text, options).all() {
            let again = Dataset::new(
                data.offsets().to_vec(), data.features().to_vec(), data.values().clone(), data.labels().to_vec(), data.width()
            );
            prop_assert!(data.importances().is_empty() || data.check_importances(data.importances()).is_ok());
            let again = again.map(|again| again.weighed(data.importances().to_vec()));
            prop_assert_eq!(again.as_ref(), Ok(&data));
        }
    }

    #[test]
    fn what_is_written_is_read(rows in proptest::collection::vec((-1e3..1e3_f64, proptest::collection::btree_map(0_u32..50, -1e6..1e6_f64, 0..6)), 1..20)) {
        let text: String = rows.iter().map(|(label, row)| {
            let row: String = row.iter().map(|(feature, value)| format!(" {feature}:{value}")).collect();
            format!("{label}{row}\n")
        }).collect();
        let data = reader(text, Options { base: Base::Zero, double: true, ..Options::default() }).all().unwrap();
        prop_assert_eq!(data.labels().to_vec(), rows.iter().map(|row| row.0).collect::<Vec<_>>());
        prop_assert_eq!(data.features().to_vec(), rows.iter().flat_map(|row| row.1.keys().copied()).collect::<Vec<_>>());
        prop_assert_eq!(values(&data), rows.iter().flat_map(|row| row.1.values().copied()).collect::<Vec<_>>());
    }
}

#[test]
fn values_of_vowpal_wabbit_are_finite_as_they_are_kept() {
    let vw = |double| Options { format: Format::Vw, double, ..Options::default() };
    for (text, place) in [
        ("1 |a x:1e39", "data.svm:1:6: `x:1e39`"),
        ("1 |a:1e20 x:1 y:1e20", "data.svm:1:15: `y:1e20`"),
        ("1 |a 7:3e38 7:3e38", "data.svm:1:6: `7:3e38`"),
    ] {
        let message = told(text, vw(false));
        assert!(
            message.starts_with(&format!("{place}: expected a value of at most 3.4e38 in single")),
            "{message}"
        );
        assert!(
            values(&reader(text, vw(true)).all().unwrap()).iter().all(|value| value.is_finite()),
            "{text}"
        );
    }
    assert_eq!(
        told("1 |a:1e200 x:1e200", vw(true)),
        "data.svm:1:12: `x:1e200`: expected a value that is a finite number"
    );
}

#[test]
fn a_mark_of_the_encoding_is_passed_over() {
    let text = "\u{feff}1 1:1\n-1 2:1\n";
    let data = reader(text, Options::default()).all().unwrap();
    assert_eq!((data.labels(), data.features()), (&[1.0, -1.0][..], &[0, 1][..]));
    assert!(told("1 1:1\n\u{feff}1 1:1\n", Options::default()).starts_with("data.svm:2:1: "));
}

#[cfg(feature = "tables")]
#[test]
fn lines_of_vowpal_wabbit_go_without_a_label_where_nobody_asks_for_it() {
    let columns = Columns { label: None, ..Columns::default() };
    let options = Options { format: Format::Vw, columns, ..Options::default() };
    let data = reader("|a 1:1\n'tag |a 2:1\n-1 |a 3:1\n", options.clone()).all().unwrap();
    assert_eq!((data.labels(), data.len()), (&[0.0, 0.0, -1.0][..], 3));
    assert!(told("x |a 1:1\n", options).starts_with("data.svm:1:1: `x`: expected a label"));
    let asked = Options { format: Format::Vw, ..Options::default() };
    assert!(told("|a 1:1\n", asked).starts_with("data.svm:1:1: `|a`: expected a label"));
}
