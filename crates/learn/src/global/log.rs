//! The order log: the batches of all sources in the one order in which they are learnt from, and the marks at which the
//! model was whole. It is what makes a run replayable: the model is what one thread learns from the log from its beginning.
//!
//! All numbers are little-endian. The file begins with `isoorder`, format (u32), rule, number of features, and numbers a
//! parameter (u32 each), and their checksum (u64). Then come records:
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

use std::io;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::global::batch::{u32_at, u64_at};
use crate::global::storage::Storage;
use crate::task::Task;

/// Name of the log's file.
pub const LOG: &str = "order.log";

const MAGIC: [u8; 8] = *b"isoorder";
const VERSION: u32 = 1;
/// Bytes before the first record.
const START: u64 = 8 + 4 * 4 + 8;
const HEADER: u64 = 3 * 8;
const MARK: u64 = 1 << 63;

/// What the log is of: another task's must not be replayed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// [`crate::Rule::id`] of the task.
    pub rule: u32,
    /// Number of features.
    pub features: u32,
    /// [`crate::Task::width`].
    pub width: u32,
}

impl Kind {
    /// What the logs of this task, on data with this many features, are of.
    pub fn of<T: Task>(task: &T, features: u32) -> Kind {
        Kind { rule: task.rule().id(), features, width: task.width() as u32 }
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
    /// Before the first record.
    pub const START: Place = Place { position: 0, offset: START };
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
    /// It is of another task or model.
    #[error(
        "{LOG} is of rule {}, {} features and {} numbers a parameter; this task has rule {}, {} and {}: use another folder",
        found.rule, found.features, found.width, wanted.rule, wanted.features, wanted.width
    )]
    Kind {
        /// What it is of.
        found: Kind,
        /// What the task is of.
        wanted: Kind,
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
        kind: Kind,
        from: Place,
        mut each: impl FnMut(Record, Place) -> Result<(), E>,
    ) -> Result<OrderLog, E> {
        let length = OrderLog::begin(storage, kind)?;
        // A process that died between writing and synchronising has left records that only the system's memory may hold, and
        // whoever replays them tells their sources to go on behind them.
        storage.sync(LOG).map_err(LogError::Io)?;
        if from.offset > length {
            return Err(LogError::Short { found: length, wanted: from.offset }.into());
        }
        let mut end = from;
        while let Some((record, next)) = read(storage, end, length).map_err(E::from)? {
            each(record, next)?;
            end = next;
        }
        if end.offset < length {
            storage.truncate(LOG, end.offset).map_err(LogError::Io)?;
        }
        Ok(OrderLog { end })
    }

    /// Checks the header, or writes it where there is none. Returns the length.
    fn begin<S: Storage>(storage: &mut S, kind: Kind) -> Result<u64, LogError> {
        let mut header = Vec::from(MAGIC);
        for number in [VERSION, kind.rule, kind.features, kind.width] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&xxh3_64(&header).to_le_bytes());
        let length = storage.len(LOG)?.unwrap_or(0);
        if length < START {
            // No record was ever written, as the header is durable before the first one.
            storage.replace(LOG, &header)?;
            return Ok(START);
        }
        let mut found = [0; START as usize];
        storage.read(LOG, 0, &mut found)?;
        if found[..12] != header[..12] || u64_at(&found, 24) != xxh3_64(&found[..24]) {
            return Err(LogError::Unknown);
        }
        let found =
            Kind { rule: u32_at(&found, 12), features: u32_at(&found, 16), width: u32_at(&found, 20) };
        if found == kind { Ok(length) } else { Err(LogError::Kind { found, wanted: kind }) }
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

    const KIND: Kind = Kind { rule: 0, features: 8, width: 1 };

    fn replay(storage: &mut Memory, from: Place) -> Result<(Vec<Record>, OrderLog), LogError> {
        let mut records = Vec::new();
        let log = OrderLog::open(storage, KIND, from, |record, _| {
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
            let length = START as usize + cut.index(bytes.len() - START as usize);
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
            if (at as u64) < START {
                prop_assert!(matches!(result, Err(LogError::Unknown)));
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
        let open = |storage: &mut Memory, kind, from| {
            OrderLog::open(storage, kind, from, |_, _| Ok::<(), LogError>(())).unwrap_err().to_string()
        };
        let told = open(&mut storage, Kind { rule: 7, ..KIND }, Place::START);
        assert_eq!(
            told,
            "order.log is of rule 0, 8 features and 1 numbers a parameter; this task has rule 7, 8 and 1: use another folder"
        );
        let beyond = Place { position: 9, offset: places[4].offset + 1 };
        assert!(open(&mut storage, KIND, beyond).contains("but its checkpoint was made at byte"));
    }
}
