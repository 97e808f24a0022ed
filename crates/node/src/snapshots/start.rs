//! How a shard starts: journal and snapshots together, checked against each other before anything is restored.

use std::collections::BTreeMap;

use isochrone_core::Blob;

use super::error::SnapshotError;
use super::store::{SnapshotInfo, SnapshotStore};
use crate::journal::{DataDirectory, Journal, JournalOptions, Position, Recovered, StreamId};

/// A shard's journal and snapshots, opened and found sound, before anything was replayed.
pub struct Start {
    journal: Journal,
    recovered: Recovered,
    store: SnapshotStore,
    /// The snapshot each stream starts from.
    chosen: BTreeMap<StreamId, SnapshotInfo>,
}

/// The snapshot a process starts from.
pub struct Found<Chunks> {
    /// Which one it is.
    pub info: SnapshotInfo,
    /// Its chunks, in order, checked once already; checked again as they come.
    pub chunks: Chunks,
}

impl Start {
    /// Opens journal and snapshots and chooses for each stream its newest sound snapshot.
    ///
    /// # Errors
    /// Anything wrong with the journal; or a stream whose records were trimmed has no sound snapshot; or a snapshot
    /// proves that the journal has lost records.
    pub fn open(directory: DataDirectory, options: JournalOptions) -> Result<Self, SnapshotError> {
        let data = directory.path().to_path_buf();
        let mut store = SnapshotStore::open(&directory.snapshots())?;
        let (journal, recovered) = Journal::open(directory, options)?;
        store.bind(journal.birth());
        let mut chosen = BTreeMap::new();
        let mut streams: Vec<_> = store.streams().chain(recovered.marks.keys().copied()).collect();
        streams.sort();
        streams.dedup();
        for stream in streams {
            let mark = recovered.marks.get(&stream).copied().unwrap_or(Position::ZERO);
            // What ended is no start for the life behind it.
            let least = recovered.ended.get(&stream).map_or(mark, |end| mark.max(end.next()));
            let newest = store.newest(stream, least)?;
            match newest {
                // It was finished only once the journal was durable that far.
                Some(info) if info.position.before() > recovered.last => {
                    let (last, position) = (recovered.last, info.position.before());
                    return Err(SnapshotError::JournalBehind { path: data, stream, last, position });
                }
                Some(info) => _ = chosen.insert(stream, info),
                None if mark > Position::ZERO => {
                    let found = store.complaints(stream);
                    return Err(SnapshotError::Lost { path: store.path().into(), stream, mark, found });
                }
                None => {}
            }
        }
        // Only now it is known that they are this directory's.
        for (stream, end) in &recovered.ended {
            store.forget(*stream, *end);
        }
        Ok(Self { journal, recovered, store, chosen })
    }

    /// How often this node has started, this time included; durable.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.journal.incarnation()
    }

    /// The birth of the directory; never zero.
    #[must_use]
    pub fn birth(&self) -> u64 {
        self.journal.birth()
    }

    /// What the journal's pass found.
    #[must_use]
    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The snapshot to restore `stream` from, before its records; `None` where it begins with its first record.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub fn snapshot(
        &self,
        stream: StreamId,
    ) -> Result<Option<Found<impl Iterator<Item = Result<Blob, SnapshotError>> + use<>>>, SnapshotError> {
        let Some(info) = self.chosen.get(&stream) else { return Ok(None) };
        Ok(Some(Found { info: *info, chunks: self.store.read(info)? }))
    }

    /// Gives each record that its stream's snapshot does not hold, in order. To be called once, after all snapshots.
    ///
    /// # Errors
    /// The journal cannot be read any more.
    pub fn replay(&mut self, mut replay: impl FnMut(StreamId, &[u8])) -> Result<(), SnapshotError> {
        let chosen = &self.chosen;
        self.journal.replay(|stream, position, payload| {
            if chosen.get(&stream).is_none_or(|info| position >= info.position) {
                replay(stream, payload);
            }
        })?;
        Ok(())
    }

    /// The journal, for its thread, and the store, for its own.
    #[must_use]
    pub fn finish(self) -> (Journal, SnapshotStore) {
        (self.journal, self.store)
    }
}
