//! The order log: the batches of all sources in the one order in which they are learnt from, and the marks at which the
//! model was whole. It is what makes a run replayable: the model is what one thread learns from the log from its beginning.
//!
//! All numbers are little-endian. The file begins with `isoorder`, format (u32), rule, number of features, numbers a
//! parameter, and bytes of the settings (u32 each), the settings (lines of UTF-8), and the checksum of all that (u64). Then come
//! records:
//!
//! | part | content |
//! |---|---|
//! | position | u64: how many records there are before it |
//! | length | u64: bytes of the content; the highest bit marks a mark |
//! | checksum | u64, xxh3 of position and length |
//! | content | of a batch, its bytes as they were sent; of a mark, nothing |
//! | checksum | u64, xxh3 of the content and the checksum above |
//!
//! A record is durable before anything is learnt from it, and before the next one is written. So what a crash can leave
//! unfinished is the last record, which nobody was told of: it is cut off. Damage anywhere else is refused.

use std::fmt;
use std::io;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::exec::Schedule;
use crate::global::batch::{u32_at, u64_at};
use crate::global::storage::Storage;
use crate::task::Task;

/// Name of the log's file.
pub const LOG: &str = "order.log";

const MAGIC: [u8; 8] = *b"isoorder";
const VERSION: u32 = 2;
/// Bytes of the header around the settings: before them, and all.
const BEFORE: u64 = 8 + 5 * 4;
const AROUND: u64 = BEFORE + 8;
const HEADER: u64 = 3 * 8;
const MARK: u64 = 1 << 63;

/// What the log is of: another task's must not be replayed, nor one task's with other settings behind a checkpoint of the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// [`crate::Rule::id`] of the task.
    pub rule: u32,
    /// Number of features.
    pub features: u32,
    /// [`crate::Task::width`].
    pub width: u32,
    /// What is learnt and how, a line each: the schedule, each task's [`Task::settings`], and what the host adds. None of them for
    /// who only looks at the batches.
    pub settings: Vec<String>,
}

impl Kind {
    /// What the logs of this task, on data with this many features, are of, whatever its settings.
    pub fn of<T: Task>(task: &T, features: u32) -> Kind {
        Kind { rule: task.rule().id(), features, width: task.width() as u32, settings: Vec::new() }
    }

    /// The same with the settings of these tasks, one or more, which all learn from the log by this schedule.
    pub(crate) fn learning<T: Task>(tasks: &[T], features: u32, schedule: Schedule) -> Kind {
        let settings = std::iter::once(schedule.to_string()).chain(tasks.iter().map(Task::settings));
        let line = |line: String| line.replace('\n', " ");
        Kind { settings: settings.map(line).collect(), ..Kind::of(&tasks[0], features) }
    }

    /// The header of its logs.
    pub(crate) fn header(&self) -> Vec<u8> {
        let settings = self.settings.join("\n");
        let mut header = Vec::from(MAGIC);
        for number in [VERSION, self.rule, self.features, self.width, settings.len() as u32] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(settings.as_bytes());
        header.extend_from_slice(&xxh3_64(&header).to_le_bytes());
        header
    }

    /// The kind of a log, and where its records begin; `None` where there is no header yet.
    fn read<S: Storage>(storage: &mut S) -> Result<Option<(Kind, u64)>, LogError> {
        let length = storage.len(LOG)?.unwrap_or(0);
        // The header is written as a whole, so it is there whole or not at all. That of format 1 had 32 bytes.
        if length < BEFORE {
            return Ok(None);
        }
        let mut found = vec![0; BEFORE as usize];
        storage.read(LOG, 0, &mut found)?;
        if found[..8] != MAGIC {
            return Err(LogError::Unknown);
        }
        if u32_at(&found, 8) != VERSION {
            return Err(LogError::Version { found: u32_at(&found, 8) });
        }
        let [rule, features, width, settings] = [12, 16, 20, 24].map(|at| u32_at(&found, at));
        let start = AROUND + u64::from(settings);
        if start > length {
            return Err(LogError::Unknown);
        }
        found.resize(start as usize, 0);
        storage.read(LOG, 0, &mut found)?;
        let checked = start as usize - 8;
        let settings = std::str::from_utf8(&found[BEFORE as usize..checked]);
        match settings {
            Ok(settings) if u64_at(&found, checked) == xxh3_64(&found[..checked]) => {
                let settings = settings.split('\n').map(str::to_string).collect();
                Ok(Some((Kind { rule, features, width, settings }, start)))
            }
            _ => Err(LogError::Unknown),
        }
    }

    /// Refuses a log of another kind; one of other settings if `alike` says so of both.
    fn check(self, wanted: &Kind, alike: impl Fn(&[String], &[String]) -> bool) -> Result<(), LogError> {
        let numbers = |kind: &Kind| [kind.rule, kind.features, kind.width];
        if numbers(&self) != numbers(wanted) {
            return Err(LogError::Kind { found: numbers(&self), wanted: numbers(wanted) });
        }
        if alike(&self.settings, &wanted.settings) {
            return Ok(());
        }
        let only = |these: &[String], others: &[String]| {
            let only: Vec<&str> =
                these.iter().filter(|line| !others.contains(line)).map(String::as_str).collect();
            Settings(if only.is_empty() { "nothing else".to_string() } else { only.join("; ") })
        };
        let (found, wanted) =
            (only(&self.settings, &wanted.settings), only(&wanted.settings, &self.settings));
        Err(LogError::Settings { found, wanted })
    }
}

/// Settings, of which as much is shown as can be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings(String);

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 400;
        match self.0.char_indices().nth(SHOWN) {
            None => f.write_str(&self.0),
            Some((end, _)) => write!(f, "{}...", &self.0[..end]),
        }
    }
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A batch as it was sent.
    Batch(Vec<u8>),
    /// Everything before was learnt from, and nothing of it lags behind any more.
    Mark,
}

/// A place between two records.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// How many records there are before it.
    pub position: u64,
    /// How many bytes.
    pub offset: u64,
}

impl Place {
    /// Before everything: the header, and the first record.
    pub const START: Place = Place { position: 0, offset: 0 };
}

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The system refuses.
    #[error("{LOG}: {0}")]
    Io(#[from] io::Error),
    /// It is no order log of this program.
    #[error("{LOG} is not an order log of format {VERSION}: use another folder")]
    Unknown,
    /// It was written by another version of this program.
    #[error(
        "{LOG} has format {found}, this program goes on with format {VERSION}, which says what is learnt from it: use another \
         folder, in which the sources begin again"
    )]
    Version {
        /// The format's number.
        found: u32,
    },
    /// It is of another task or model.
    #[error(
        "{LOG} is of rule {}, {} features and {} numbers a parameter; this task has rule {}, {} and {}: use another folder",
        found[0], found[1], found[2], wanted[0], wanted[1], wanted[2]
    )]
    Kind {
        /// What it is of: [`Kind::rule`], [`Kind::features`], [`Kind::width`].
        found: [u32; 3],
        /// What the task is of.
        wanted: [u32; 3],
    },
    /// It was begun with other settings.
    #[error("{LOG} was begun with {found}; now it is {wanted}: go on as it was begun, or use another folder")]
    Settings {
        /// What it was begun with and these settings lack.
        found: Settings,
        /// What these settings have instead.
        wanted: Settings,
    },
    /// Something before its end is damaged, so what follows must not be learnt from.
    #[error(
        "{LOG} is damaged at byte {offset} (record {position}), with records behind it: restore it from a copy"
    )]
    Damaged {
        /// Which record, from 0.
        position: u64,
        /// Where it begins.
        offset: u64,
    },
    /// It ends before a place that was durable.
    #[error(
        "{LOG} ends at byte {found}, but its checkpoint was made at byte {wanted}: restore it from a copy"
    )]
    Short {
        /// Its length.
        found: u64,
        /// The length it had at least.
        wanted: u64,
    },
}

/// The log, open for appending behind its last whole record.
#[derive(Copy, Clone, Debug)]
pub struct OrderLog {
    end: Place,
}

impl OrderLog {
    /// Opens the log, or makes one, and hands every whole record from `from` on to `each`, with the place behind it. What a
    /// crash left unfinished at the end is cut off.
    ///
    /// # Errors
    /// If it is not this task's, damaged before its end, shorter than `from`, or if `each` fails.
    pub fn open<S: Storage, E: From<LogError>>(
        storage: &mut S,
        kind: &Kind,
        from: Place,
        mut each: impl FnMut(Record, Place) -> Result<(), E>,
    ) -> Result<OrderLog, E> {
        let start = OrderLog::begin(storage, kind)?;
        // A process that died between writing and synchronising has left records that only the system's memory may hold, and
        // whoever replays them tells their sources to go on behind them.
        storage.sync(LOG).map_err(LogError::Io)?;
        let length = storage.len(LOG).map_err(LogError::Io)?.unwrap_or(0);
        let end = OrderLog::replay(storage, start, from, &mut each)?;
        if end.offset < length {
            storage.truncate(LOG, end.offset).map_err(LogError::Io)?;
        }
        Ok(OrderLog { end })
    }

    /// Looks at the log, and hands every whole record to `each`, with the place behind it. Changes nothing; where there is no log,
    /// there are no records.
    ///
    /// # Errors
    /// If the log is not this task's, or lacks one of the settings asked for, is damaged before its end, or if `each` fails.
    pub fn read<S: Storage, E: From<LogError>>(
        storage: &mut S,
        kind: &Kind,
        mut each: impl FnMut(Record, Place) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((found, start)) = Kind::read(storage)? else { return Ok(()) };
        found.check(kind, |found, wanted| wanted.iter().all(|line| found.contains(line)))?;
        OrderLog::replay(storage, start, Place::START, &mut each).map(|_| ())
    }

    /// Hands on the whole records from a place on, the first of which begins at `start`. Returns the place behind them.
    fn replay<S: Storage, E: From<LogError>>(
        storage: &mut S,
        start: u64,
        from: Place,
        each: &mut impl FnMut(Record, Place) -> Result<(), E>,
    ) -> Result<Place, E> {
        let length = storage.len(LOG).map_err(LogError::Io)?.unwrap_or(0);
        let mut end = Place { offset: from.offset.max(start), ..from };
        if end.offset > length {
            return Err(LogError::Short { found: length, wanted: end.offset }.into());
        }
        while let Some((record, next)) = read(storage, end, length).map_err(E::from)? {
            each(record, next)?;
            end = next;
        }
        Ok(end)
    }

    /// Checks the header, or writes it where there is none. Returns where the records begin.
    fn begin<S: Storage>(storage: &mut S, kind: &Kind) -> Result<u64, LogError> {
        match Kind::read(storage)? {
            Some((found, start)) => {
                found.check(kind, |found, wanted| found == wanted)?;
                Ok(start)
            }
            None => {
                // No record was ever written, as the header is durable before the first one.
                let header = kind.header();
                storage.replace(LOG, &header)?;
                Ok(header.len() as u64)
            }
        }
    }

    /// The end of the log.
    pub fn end(&self) -> Place {
        self.end
    }

    /// Appends a record and makes it durable.
    ///
    /// # Errors
    /// If the system refuses; the record may be in the log or not then, so the log must be opened again.
    pub fn append<S: Storage>(&mut self, storage: &mut S, record: &Record) -> Result<(), LogError> {
        let (length, content) = match record {
            Record::Batch(bytes) => (bytes.len() as u64, &bytes[..]),
            Record::Mark => (MARK, &[][..]),
        };
        let mut header = Vec::with_capacity(HEADER as usize);
        header.extend_from_slice(&self.end.position.to_le_bytes());
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&xxh3_64(&header).to_le_bytes());
        let mut hash = Xxh3::new();
        hash.update(&header[16..]);
        hash.update(content);
        // One after the other: a batch is long, and is not copied for this.
        storage.append(LOG, &header)?;
        storage.append(LOG, content)?;
        storage.append(LOG, &hash.digest().to_le_bytes())?;
        storage.sync(LOG)?;
        let bytes = HEADER + 8 + content.len() as u64;
        self.end = Place { position: self.end.position + 1, offset: self.end.offset + bytes };
        Ok(())
    }
}

/// The record at a place, and the place behind it; `None` at the end, and where the last record is unfinished.
fn read<S: Storage>(storage: &mut S, at: Place, length: u64) -> Result<Option<(Record, Place)>, LogError> {
    let unfinished = |storage: &mut S| match followed(storage, at, length)? {
        true => Err(LogError::Damaged { position: at.position, offset: at.offset }),
        false => Ok(None),
    };
    if length - at.offset < HEADER + 8 {
        return Ok(None);
    }
    let mut header = [0; HEADER as usize];
    storage.read(LOG, at.offset, &mut header)?;
    let Some(bytes) = content(&header, at.position) else { return unfinished(storage) };
    let end = at.offset.saturating_add(HEADER + 8).saturating_add(bytes);
    if end > length {
        return unfinished(storage);
    }
    // From the header's checksum on, which the content's covers.
    let mut rest = vec![0; bytes as usize + 16];
    storage.read(LOG, at.offset + 16, &mut rest)?;
    let content = rest.len() - 8;
    if xxh3_64(&rest[..content]) != u64_at(&rest, content) {
        return unfinished(storage);
    }
    let record = match u64_at(&header, 8) & MARK {
        0 => Record::Batch(rest[8..content].to_vec()),
        _ => Record::Mark,
    };
    Ok(Some((record, Place { position: at.position + 1, offset: end })))
}

/// Bytes of content, if this is the header of the record at this position.
fn content(header: &[u8], position: u64) -> Option<u64> {
    let whole = u64_at(header, 0) == position && u64_at(header, 16) == xxh3_64(&header[..16]);
    whole.then(|| u64_at(header, 8) & !MARK)
}

/// Whether the header of the next record stands anywhere behind this place: then this one was durable once.
fn followed<S: Storage>(storage: &mut S, at: Place, length: u64) -> Result<bool, LogError> {
    const CHUNK: u64 = 1 << 20;
    let mut offset = at.offset + 1;
    let mut bytes = Vec::new();
    while offset + HEADER <= length {
        bytes.resize(CHUNK.min(length - offset) as usize, 0);
        storage.read(LOG, offset, &mut bytes)?;
        if bytes.windows(HEADER as usize).any(|header| content(header, at.position + 1).is_some()) {
            return Ok(true);
        }
        // Headers that lie across the border are in the next chunk.
        offset += bytes.len() as u64 + 1 - HEADER;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global::storage::Memory;
    use proptest::prelude::*;

    fn kind() -> Kind {
        let settings = vec!["steps of 0.5".to_string(), "hinge loss".to_string()];
        Kind { rule: 0, features: 8, width: 1, settings }
    }

    fn replay(storage: &mut Memory, from: Place) -> Result<(Vec<Record>, OrderLog), LogError> {
        let mut records = Vec::new();
        let log = OrderLog::open(storage, &kind(), from, |record, _| {
            records.push(record);
            Ok::<(), LogError>(())
        })?;
        Ok((records, log))
    }

    fn some() -> Vec<Record> {
        vec![
            Record::Batch(vec![7; 40]),
            Record::Mark,
            Record::Batch(vec![]),
            Record::Batch((0..90).collect()),
        ]
    }

    fn written(records: &[Record]) -> (Memory, Vec<Place>) {
        let mut storage = Memory::default();
        let (_, mut log) = replay(&mut storage, Place::START).unwrap();
        let mut places = vec![log.end()];
        for record in records {
            log.append(&mut storage, record).unwrap();
            places.push(log.end());
        }
        (storage, places)
    }

    #[test]
    fn records_are_replayed_from_any_place() {
        let (mut storage, places) = written(&some());
        for (skip, &place) in places.iter().enumerate() {
            let (records, log) = replay(&mut storage, place).unwrap();
            assert_eq!((&records[..], log.end()), (&some()[skip..], places[4]));
        }
    }

    proptest! {
        /// Wherever the log is cut off, all records that are whole are there, and it goes on behind them.
        #[test]
        fn a_torn_tail_is_cut_off(cut in any::<prop::sample::Index>()) {
            let (mut storage, places) = written(&some());
            let bytes = storage.bytes(LOG).unwrap();
            let start = places[0].offset as usize;
            let length = start + cut.index(bytes.len() - start);
            bytes.truncate(length);
            let whole = places.iter().filter(|place| place.offset <= length as u64).count() - 1;
            let (records, mut log) = replay(&mut storage, Place::START).unwrap();
            prop_assert_eq!(&records[..], &some()[..whole]);
            log.append(&mut storage, &Record::Mark).unwrap();
            prop_assert_eq!(replay(&mut storage, Place::START).unwrap().0.len(), whole + 1);
        }

        /// A flipped bit before the last record is refused, never skipped; in the last one it makes it unfinished.
        #[test]
        fn damage_in_the_middle_is_refused(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let (mut storage, places) = written(&some());
            let bytes = storage.bytes(LOG).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let result = replay(&mut storage, Place::START);
            if (at as u64) < places[0].offset {
                let refused = matches!(result, Err(LogError::Unknown | LogError::Version { .. }));
                prop_assert!(refused);
            } else if (at as u64) < places[3].offset {
                let refused = matches!(result, Err(LogError::Damaged { .. }));
                prop_assert!(refused);
            } else {
                prop_assert_eq!(&result.unwrap().0[..], &some()[..3]);
            }
        }
    }

    #[test]
    fn another_tasks_log_is_refused() {
        let (mut storage, places) = written(&some());
        let open = |storage: &mut Memory, kind: &Kind, from| {
            OrderLog::open(storage, kind, from, |_, _| Ok::<(), LogError>(())).unwrap_err().to_string()
        };
        assert_eq!(
            open(&mut storage, &Kind { rule: 7, ..kind() }, Place::START),
            "order.log is of rule 0, 8 features and 1 numbers a parameter; this task has rule 7, 8 and 1: use another folder"
        );
        let beyond = Place { position: 9, offset: places[4].offset + 1 };
        assert!(open(&mut storage, &kind(), beyond).contains("but its checkpoint was made at byte"));
        let with = |settings: &[&str]| Kind {
            settings: settings.iter().map(|line| line.to_string()).collect(),
            ..kind()
        };
        assert_eq!(
            open(&mut storage, &with(&["steps of 0.5", "logistic loss"]), Place::START),
            "order.log was begun with hinge loss; now it is logistic loss: go on as it was begun, or use another folder"
        );
        assert_eq!(
            open(&mut storage, &with(&["steps of 0.5"]), Place::START),
            "order.log was begun with hinge loss; now it is nothing else: go on as it was begun, or use another folder"
        );
        assert!(
            open(&mut storage, &with(&["hinge loss", "steps of 0.5"]), Place::START).contains("begun with")
        );
        let long = open(&mut storage, &with(&[&"é".repeat(1000)]), Place::START);
        assert!(long.len() < 1100 && long.contains("éé...: go on"), "{long}");
        // Who looks at it asks for as much as matters to them.
        let look = |storage: &mut Memory, settings: &[&str]| {
            let mut records = 0;
            let each = |_, _| {
                records += 1;
                Ok::<(), LogError>(())
            };
            OrderLog::read(storage, &with(settings), each).map(|()| records)
        };
        for some in [&[][..], &["hinge loss"], &["hinge loss", "steps of 0.5"]] {
            assert_eq!(look(&mut storage, some).unwrap(), 4);
        }
        assert!(matches!(look(&mut storage, &["squared loss"]), Err(LogError::Settings { .. })));
        let mut none = Memory::default();
        assert_eq!((look(&mut none, &[]).unwrap(), none.bytes(LOG)), (0, None));
        storage.bytes(LOG).unwrap()[8] = 1;
        assert_eq!(
            open(&mut storage, &kind(), Place::START),
            "order.log has format 1, this program goes on with format 2, which says what is learnt from it: use another folder, \
             in which the sources begin again"
        );
    }
}
