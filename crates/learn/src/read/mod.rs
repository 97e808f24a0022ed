//! Reading samples from files: svmlight/libsvm and Vowpal Wabbit text, plain or compressed, Parquet and Arrow, whole or in
//! batches of rows where a file is larger than memory.
//!
//! | format | a line |
//! |---|---|
//! | [`Format::Svmlight`] | `LABEL INDEX:VALUE INDEX:VALUE … # comment` |
//! | [`Format::Vw`] | `LABEL IMPORTANCE 'tag \|namespace feature feature:VALUE …`; features are hashed |
//!
//! Compression is known by the file's first bytes, not by its name: gzip, zstd and bzip2. So are Parquet and Arrow (with the
//! feature `tables`), where a sample is a row, and its features a list each of indices and values (`Columns`). A line or row
//! that is wrong ends the reading with its place and what was expected there, unless [`Options::skip_errors`] lets some pass.

mod error;
mod number;
mod source;
mod svmlight;
#[cfg(feature = "tables")]
mod table;
mod vw;

pub use error::{LineError, ReadError};
pub use source::Compression;
#[cfg(feature = "tables")]
pub use table::Columns;

use crate::data::{Dataset, Values};
use crate::exec::Stop;
use crate::memory::{self, NoRoom};
use crate::plan::Plan;
use crate::plan::loading::Planner;
use source::Lines;
use std::fs::File;
#[cfg(feature = "tables")]
use std::io::Seek;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc;

/// The form of a line.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// svmlight's, which libsvm, LIBLINEAR and XGBoost write as well.
    #[default]
    Svmlight,
    /// Vowpal Wabbit's.
    Vw,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        match name {
            "svmlight" | "libsvm" => Ok(Format::Svmlight),
            "vw" => Ok(Format::Vw),
            _ => Err(format!("no format is called `{name}`; there are svmlight (libsvm) and vw")),
        }
    }
}

/// The number that a file calls its first feature.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Base {
    /// 0 if an index 0 occurs in the first batch (of a whole file, its first 4,096 samples), else 1.
    #[default]
    Auto,
    /// 0, as scikit-learn writes by default.
    Zero,
    /// 1, as libsvm's own files have it.
    One,
}

/// How to read.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// The form of a line.
    pub format: Format,
    /// The first index; of svmlight files.
    pub base: Base,
    /// The model whose first index `base` is, if it is one's: for what is said of a lower index.
    pub base_of: Option<PathBuf>,
    /// Number of features, where it is known; a file that has more is wrong. Else the largest index decides. Batches of a
    /// file without it may grow wider from one to the next.
    pub width: Option<u32>,
    /// Keep values in eight bytes rather than four.
    pub double: bool,
    /// Lines that may be wrong, and are left out.
    pub skip_errors: u64,
    /// Under [`Format::Vw`], features are hashed to so many bits: 18 as there.
    pub bits: u32,
    /// Which columns make up a sample; of Parquet and Arrow, whose indices count from 0.
    #[cfg(feature = "tables")]
    pub columns: Columns,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: Format::default(),
            base: Base::default(),
            base_of: None,
            width: None,
            double: false,
            skip_errors: 0,
            bits: 18,
            #[cfg(feature = "tables")]
            columns: Columns::default(),
        }
    }
}

/// Wrong lines that are kept to be shown; all are counted.
const SHOWN: usize = 10;

/// Rows that are parsed and handed on together.
const CHUNK: usize = 4096;

/// Samples that one set can have: they are numbered from 1, and one number more is not to be used up.
const MOST: usize = u32::MAX as usize - 1;

/// Chunks that may wait to be stored.
const WAITING: usize = 4;

/// U+FEFF in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The first bytes of a source, by which it is known.
fn start(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    source.take(6).read_to_end(&mut start)?;
    Ok(start)
}

/// A file whose reader is watched.
struct Watched<W> {
    file: File,
    watch: W,
}

impl<W: Fn(u64)> Read for Watched<W> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        (self.watch)(read as u64);
        Ok(read)
    }
}

/// Where samples come from.
#[derive(Debug)]
enum Source {
    Lines(Lines),
    #[cfg(feature = "tables")]
    Table(Box<table::Table>),
}

/// Reads a file batch by batch.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    source: Source,
    /// Bytes of the file; 0 where there is none, or they do not matter.
    length: u64,
    options: Options,
    base: Option<u32>,
    width: u32,
    rows: u64,
    skipped: u64,
    shown: Vec<LineError>,
    stop: Stop,
}

impl Reader {
    /// Opens a file and finds out what it is and how it is compressed.
    pub fn open(path: &Path, options: Options) -> Result<Reader, ReadError> {
        Reader::open_watched(path, options, |_| ())
    }

    /// The same; `watch` is told how many bytes more of the file have been read.
    pub fn open_watched(
        path: &Path,
        options: Options,
        watch: impl Fn(u64) + Send + 'static,
    ) -> Result<Reader, ReadError> {
        let failed = |cause| ReadError::Open { path: path.to_owned(), cause };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        #[cfg(feature = "tables")]
        if about.is_file() {
            let start = start(&mut &file).map_err(failed)?;
            (&file).rewind().map_err(failed)?;
            if let Some(form) = table::Form::of_content(&start) {
                let table = table::Table::file(path, form, file, &options.columns)?;
                let table = table.watched(about.len(), watch);
                return Ok(Reader { length: about.len(), ..Reader::of_table(path, table, options)? });
            }
        }
        Ok(Reader { length: about.len(), ..Reader::of(path, Watched { file, watch }, options)? })
    }

    /// The same of any stream of bytes; `path` stands for it in errors.
    pub fn of(
        path: &Path,
        mut source: impl Read + Send + 'static,
        options: Options,
    ) -> Result<Reader, ReadError> {
        let failed = |cause| ReadError::Open { path: path.to_owned(), cause };
        let start = start(&mut source).map_err(failed)?;
        #[cfg(feature = "tables")]
        if let Some(form) = table::Form::of_content(&start) {
            let source = io::Cursor::new(start).chain(source);
            let table = table::Table::stream(path, form, source, &options.columns)?;
            return Reader::of_table(path, table, options);
        }
        #[cfg(feature = "tables")]
        if let Some(weight) = &options.columns.weight {
            let what = format!("it is no table, and has no column `{weight}` of weights");
            return Err(ReadError::Table { path: path.to_owned(), what });
        }
        let lines = Lines::new(path, start, source)?;
        let base = match (options.format, options.base) {
            (Format::Vw, _) | (_, Base::Zero) => Some(0),
            (_, Base::One) => Some(1),
            (_, Base::Auto) => None,
        };
        Ok(Reader::from(path, Source::Lines(lines), options, base))
    }

    #[cfg(feature = "tables")]
    fn of_table(path: &Path, table: table::Table, options: Options) -> Result<Reader, ReadError> {
        if options.format == Format::Vw {
            let what = "it is a table, which has indices; under the format vw features are hashes of names";
            return Err(ReadError::Table { path: path.to_owned(), what: what.to_owned() });
        }
        Ok(Reader::from(path, Source::Table(Box::new(table)), options, Some(0)))
    }

    fn from(path: &Path, source: Source, options: Options, base: Option<u32>) -> Reader {
        let width = match options.format {
            Format::Vw => 1 << options.bits.min(31),
            Format::Svmlight => options.width.unwrap_or(0),
        };
        let path = path.to_owned();
        let (shown, stop) = (Vec::new(), Stop::default());
        Reader { path, source, length: 0, options, base, width, rows: 0, skipped: 0, shown, stop }
    }

    /// The same, until somebody asks for its end: that is [`ReadError::Interrupted`] then.
    pub fn until(self, stop: Stop) -> Reader {
        Reader { stop, ..self }
    }

    /// The next `rows` samples, fewer only at the end of the file; nothing beyond it.
    pub fn batch(&mut self, rows: usize) -> Result<Option<Dataset<'static>>, ReadError> {
        let mut parsed = Parsed::new(self.options.double);
        self.parse(&mut parsed, rows.clamp(1, MOST))?;
        if parsed.labels.is_empty() {
            return Ok(None);
        }
        Ok(Some(parsed.data(self.width)))
    }

    /// All samples that are left. Parsing has a thread of its own, beside this one that stores what was parsed.
    pub fn all(&mut self) -> Result<Dataset<'static>, ReadError> {
        self.all_of(MOST)
    }

    /// The same of as many as there may be.
    fn all_of(&mut self, most: usize) -> Result<Dataset<'static>, ReadError> {
        let mut stored = self.first()?;
        let path = self.path.clone();
        self.pour(|parsed| stored.append(parsed, most, &path))?;
        self.whole(stored)
    }

    /// All samples that are left, and their plan, made while they are read: for tasks under
    /// [`Rule::Features`](crate::Rule::Features). Specification: 3.2.
    pub fn all_planned(&mut self) -> Result<(Dataset<'static>, Plan), ReadError> {
        let mut stored = self.first()?;
        let mut planner = Planner::new();
        planner.expect(stored.features.capacity());
        let path = self.path.clone();
        let mut plan = |parsed: &Parsed| {
            let (room, rows) = (planner.room(parsed.features.len()), u64::from(planner.rows()));
            room.map_err(|cause| ReadError::NoRoom { path: path.clone(), rows, cause })?;
            let planned = planner.rows_of(&parsed.offsets, &parsed.features);
            planned.map_err(|cause| ReadError::Wide { path: path.clone(), cause })
        };
        plan(&stored)?;
        self.pour(|parsed| {
            stored.append(parsed, MOST, &path)?;
            plan(parsed)
        })?;
        let data = self.whole(stored)?;
        let plan = planner.finish(&data);
        let plan = plan.unwrap_or_else(|mismatch| unreachable!("each row was planned: {mismatch}"));
        Ok((data, plan))
    }

    /// The first rows, with room for all, as far as it can be told how many there are.
    fn first(&mut self) -> Result<Parsed, ReadError> {
        let mut first = Parsed::new(self.options.double);
        self.parse(&mut first, CHUNK)?;
        let times = match &self.source {
            Source::Lines(lines) => lines.times(self.length),
            #[cfg(feature = "tables")]
            Source::Table(table) => table.times(self.length),
        };
        first.expect(times);
        Ok(first)
    }

    fn whole(&self, stored: Parsed) -> Result<Dataset<'static>, ReadError> {
        if self.rows == 0 {
            return Err(self.empty());
        }
        Ok(stored.data(self.width))
    }

    /// Parses to the end of the file in a thread, and hands chunks of rows on as they are ready; by turns where the system gives
    /// no thread. Ends where one is refused.
    fn pour(&mut self, mut each: impl FnMut(&Parsed) -> Result<(), ReadError>) -> Result<(), ReadError> {
        let double = self.options.double;
        let parsed = std::thread::scope(|scope| {
            if !memory::can_hold_thread() {
                return None;
            }
            let (full, parsed) = mpsc::sync_channel(WAITING);
            let (empty, used) = mpsc::channel();
            let reader = &mut *self;
            let parsing = std::thread::Builder::new().spawn_scoped(scope, move || {
                let mut more = true;
                while more {
                    let mut chunk = used.try_recv().unwrap_or_else(|_| Parsed::new(double));
                    more = reader.parse(&mut chunk, CHUNK)?;
                    if full.send(chunk).is_err() {
                        break;
                    }
                }
                Ok(())
            });
            let parsing = parsing.ok()?;
            let mut taken = Ok(());
            for mut chunk in parsed {
                taken = each(&chunk);
                if taken.is_err() {
                    break;
                }
                chunk.clear();
                // Where parsing has ended, nobody wants it.
                let _ = empty.send(chunk);
            }
            Some(parsing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(taken))
        });
        if let Some(parsed) = parsed {
            return parsed;
        }
        let (mut chunk, mut more) = (Parsed::new(double), true);
        while more {
            more = self.parse(&mut chunk, CHUNK)?;
            each(&chunk)?;
            chunk.clear();
        }
        Ok(())
    }

    /// What it says where there is no sample.
    pub fn empty(&self) -> ReadError {
        let path = self.path.clone();
        match &self.source {
            Source::Lines(_) => ReadError::Empty { path },
            #[cfg(feature = "tables")]
            Source::Table(_) => ReadError::Table { path, what: "there is no row in it".to_owned() },
        }
    }

    /// Samples read so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Features seen so far: one more than the largest index, counted from 0; or the number that was given.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The first index of the file, 0 or 1, as it was given or found; 1 as long as nothing was read. Of a table, whose indices
    /// always count from 0, [`Base::Auto`].
    pub fn base(&self) -> Base {
        #[cfg(feature = "tables")]
        if matches!(self.source, Source::Table(_)) {
            return Base::Auto;
        }
        if self.base == Some(0) { Base::Zero } else { Base::One }
    }

    /// Wrong lines that were left out: how many, and the first ten.
    pub fn skipped(&self) -> (u64, &[LineError]) {
        (self.skipped, &self.shown)
    }

    /// Parses up to `rows` samples more; whether the file may have others.
    fn parse(&mut self, parsed: &mut Parsed, rows: usize) -> Result<bool, ReadError> {
        let (first_row, first_entry) = (parsed.labels.len(), parsed.features.len());
        let mut wrong = Wrong {
            path: &self.path,
            most: self.options.skip_errors,
            skipped: &mut self.skipped,
            shown: &mut self.shown,
        };
        #[cfg(feature = "tables")]
        let unlabelled = self.options.columns.label.is_none();
        #[cfg(not(feature = "tables"))]
        let unlabelled = false;
        let vw = self.options.format == Format::Vw;
        let mut more = true;
        while more && parsed.labels.len() - first_row < rows {
            if self.stop.is_asked() {
                return Err(ReadError::Interrupted { path: self.path.clone() });
            }
            match &mut self.source {
                Source::Lines(lines) => {
                    let broken = |line, cause| ReadError::Io { path: self.path.clone(), line, cause };
                    let (number, line) = match lines.next() {
                        Ok(Some(found)) => found,
                        Ok(None) => {
                            more = false;
                            continue;
                        }
                        Err(cause) => return Err(broken(lines.number(), cause)),
                    };
                    // A mark of the encoding that some programs put before text: it is no part of the first line.
                    let line = line.strip_prefix(if number == 1 { MARK } else { b"" }).unwrap_or(line);
                    // A feature takes a blank and a name, under svmlight a colon and a value too.
                    let room = parsed.room(1, line.len() / if vw { 2 } else { 4 }, vw);
                    room.map_err(|cause| {
                        let rows = self.rows + (parsed.labels.len() - first_row) as u64;
                        ReadError::NoRoom { path: self.path.clone(), rows, cause }
                    })?;
                    let done = match self.options.format {
                        Format::Svmlight => svmlight::line(line, self.base, &self.options, parsed),
                        Format::Vw => vw::line(line, self.options.bits.min(31), unlabelled, parsed),
                    };
                    if let Err(problem) = done {
                        parsed.undo();
                        wrong.pass(number, problem)?;
                    }
                }
                #[cfg(feature = "tables")]
                Source::Table(table) => {
                    let most = (rows - (parsed.labels.len() - first_row)).min(CHUNK);
                    let each = &mut |row, problem| wrong.pass(row, problem);
                    more = table.read(most, &self.options, parsed, each, &self.path)?;
                }
            }
        }
        self.rows += (parsed.labels.len() - first_row) as u64;
        let fresh = &mut parsed.features[first_entry..];
        if self.base.is_none() && !fresh.is_empty() {
            self.base = Some(u32::from(!fresh.contains(&0)));
            if let (Some(0), Some(width)) = (self.base, self.options.width)
                && fresh.contains(&width)
            {
                return Err(ReadError::Width { path: self.path.clone(), width });
            }
        }
        if self.base == Some(1) {
            fresh.iter_mut().for_each(|feature| *feature -= 1);
        }
        if self.options.width.is_none() && self.options.format == Format::Svmlight {
            let largest = fresh.iter().copied().max();
            self.width = self.width.max(largest.map_or(0, |largest| largest + 1));
        }
        Ok(more)
    }
}

/// Lines and rows that were wrong.
struct Wrong<'a> {
    path: &'a Path,
    most: u64,
    skipped: &'a mut u64,
    shown: &'a mut Vec<LineError>,
}

impl Wrong<'_> {
    /// Leaves one out, or ends the reading.
    fn pass(&mut self, line: u64, problem: error::Problem) -> Result<(), ReadError> {
        let error = LineError { file: self.path.to_owned(), line, problem };
        *self.skipped += 1;
        if *self.skipped > self.most {
            return Err(ReadError::Line { error, skipped: *self.skipped - 1 });
        }
        if self.shown.len() < SHOWN {
            self.shown.push(error);
        }
        Ok(())
    }
}

/// Reads a whole file.
pub fn read(path: &Path, options: Options) -> Result<Dataset<'static>, ReadError> {
    Reader::open(path, options)?.all()
}

/// What a value is that single precision has no number for.
const SINGLE: &str = "a value of at most 3.4e38 in single precision: read in double (--double, or dtype=numpy.float64 in Python)";

/// Samples as they are parsed. Whole rows only, but for the one under way.
#[derive(Debug)]
struct Parsed {
    offsets: Vec<u64>,
    features: Vec<u32>,
    single: Vec<f32>,
    double: Option<Vec<f64>>,
    labels: Vec<f64>,
    /// Of each whole row; empty where all are 1.
    importances: Vec<f64>,
}

impl Parsed {
    fn new(double: bool) -> Parsed {
        Parsed {
            offsets: vec![0],
            features: Vec::new(),
            single: Vec::new(),
            double: double.then(Vec::new),
            labels: Vec::new(),
            importances: Vec::new(),
        }
    }

    /// Has room for so many rows more, which have so many features together at most, and may count differently.
    #[inline]
    fn room(&mut self, rows: usize, entries: usize, weighed: bool) -> Result<(), NoRoom> {
        memory::try_reserve(&mut self.features, entries)?;
        match &mut self.double {
            None => memory::try_reserve(&mut self.single, entries)?,
            Some(values) => memory::try_reserve(values, entries)?,
        }
        if weighed {
            let more = self.labels.len() + rows - self.importances.len();
            memory::try_reserve(&mut self.importances, more)?;
        }
        memory::try_reserve(&mut self.labels, rows)?;
        memory::try_reserve(&mut self.offsets, rows)
    }

    #[inline(always)]
    fn push(&mut self, feature: u32, value: f64) {
        self.features.push(feature);
        match &mut self.double {
            None => self.single.push(value as f32),
            Some(values) => values.push(value),
        }
    }

    /// What would be right in the place of a value that is not finite as it is kept.
    #[inline(always)]
    fn refuses(&self, value: f64) -> Option<&'static str> {
        match self.double {
            _ if !value.is_finite() => Some("a value that is a finite number"),
            None if (value as f32).is_infinite() => Some(SINGLE),
            _ => None,
        }
    }

    /// Ends the row under way.
    fn end(&mut self, label: f64) {
        self.labels.push(label);
        self.offsets.push(self.features.len() as u64);
    }

    /// Ends the row under way, whose loss counts so many times.
    fn end_weighed(&mut self, label: f64, importance: f64) {
        if importance != 1.0 || !self.importances.is_empty() {
            self.importances.resize(self.labels.len(), 1.0);
            self.importances.push(importance);
        }
        self.end(label);
    }

    fn clear(&mut self) {
        self.offsets.truncate(1);
        self.features.clear();
        self.single.clear();
        self.double.iter_mut().for_each(Vec::clear);
        self.labels.clear();
        self.importances.clear();
    }

    /// Adds the rows of another, if there are not more than `most` then.
    fn append(&mut self, other: &Parsed, most: usize, path: &Path) -> Result<(), ReadError> {
        if self.labels.len() + other.labels.len() > most {
            return Err(ReadError::TooMany { path: path.to_owned(), most });
        }
        let weighed = !self.importances.is_empty() || !other.importances.is_empty();
        let room = self.room(other.labels.len(), other.features.len(), weighed);
        let rows = self.labels.len() as u64;
        room.map_err(|cause| ReadError::NoRoom { path: path.to_owned(), rows, cause })?;
        let base = self.features.len() as u64;
        self.offsets.extend(other.offsets[1..].iter().map(|offset| base + offset));
        self.features.extend_from_slice(&other.features);
        self.single.extend_from_slice(&other.single);
        if let (Some(values), Some(more)) = (&mut self.double, &other.double) {
            values.extend_from_slice(more);
        }
        if weighed {
            self.importances.resize(self.labels.len(), 1.0);
            self.importances.extend_from_slice(&other.importances);
            self.importances.resize(self.labels.len() + other.labels.len(), 1.0);
        }
        self.labels.extend_from_slice(&other.labels);
        Ok(())
    }

    /// Has room for so many times as much as it has, and a little more, since growing would copy all of it.
    fn expect(&mut self, times: f64) {
        let Parsed { offsets, features, single, double, labels, importances } = self;
        let in_all = |count: usize| (count as f64 * times * 1.02) as usize;
        memory::expect(features, in_all(features.len()));
        memory::expect(single, in_all(single.len()));
        double.iter_mut().for_each(|values| memory::expect(values, in_all(values.len())));
        memory::expect(offsets, in_all(offsets.len()));
        memory::expect(labels, in_all(labels.len()));
        memory::expect(importances, in_all(importances.len()));
    }

    /// Where the row under way begins.
    fn start(&self) -> usize {
        self.offsets.last().map_or(0, |offset| *offset as usize)
    }

    /// Forgets the row under way.
    fn undo(&mut self) {
        let start = self.start();
        self.features.truncate(start);
        match &mut self.double {
            None => self.single.truncate(start),
            Some(values) => values.truncate(start),
        }
    }

    fn data(self, width: u32) -> Dataset<'static> {
        let values = match self.double {
            None => Values::F32(self.single.into()),
            Some(values) => Values::F64(values.into()),
        };
        Dataset::sound(self.offsets, self.features, values, self.labels, width).weighed(self.importances)
    }
}

#[cfg(test)]
mod tests;
