//! What the shard hands over, and how the journal is told to keep it.

use super::format::{self, Kind, PAYLOAD_MAX, Position, StreamId};

/// Whether a frame is synced before it counts as durable.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Fsync {
    /// Acknowledge only what is on disk. The default, and the only safe choice (R11).
    #[default]
    On,
    /// Do not sync: a power loss loses acknowledged writes. For measuring what durability costs.
    Off,
}

/// How a journal is kept.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The deployment; checked against what is on disk.
    pub cluster: u64,
    /// This node; checked likewise.
    pub node: u16,
    /// The directory, by its birth (`births`); checked likewise, zero where nothing beside the journal says it.
    pub birth: u64,
    /// Whether to sync.
    pub fsync: Fsync,
    /// Size of the first segment in bytes: small, so that an idle node is light on disk and quick to start.
    pub segment_first: u64,
    /// Size that segments double up to, in bytes: large enough that making one is rare, small enough that giving one
    /// back frees space soon.
    pub segment_max: u64,
    /// Where salts come from; `None` is the system's randomness. Tests give a number and get the same bytes again.
    pub seed: Option<u64>,
}

impl JournalOptions {
    /// The defaults: synced, segments of 4 to 64 MiB.
    #[must_use]
    pub fn new(cluster: u64, node: u16) -> Self {
        let (segment_first, segment_max) = (4 << 20, 64 << 20);
        Self { cluster, node, birth: 0, fsync: Fsync::On, segment_first, segment_max, seed: None }
    }
}

/// Memory that an emptied buffer keeps, in bytes. A batch is used again and again, and there are as many as ever waited for the
/// disk at once: with what a large value took in each of them they would hold a gigabyte for good.
pub(super) const KEEP: usize = 1 << 20;

/// Entries to be written together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) entries: u32,
    pub(super) records: u32,
    pub(super) too_large: Option<u64>,
}

impl Batch {
    /// Adds a record of `stream`.
    pub fn record(&mut self, stream: StreamId, payload: &[u8]) {
        self.record_with(stream, |out| out.extend_from_slice(payload));
    }

    /// Adds a record of `stream` whose payload `encode` appends: no copy, no allocation of its own.
    pub fn record_with(&mut self, stream: StreamId, encode: impl FnOnce(&mut Vec<u8>)) {
        self.entry(stream, Kind::Record, encode);
        self.records += 1;
    }

    /// Adds `stream`'s word that its records before `before` may go.
    ///
    /// Only once a snapshot at `before` is durable and verified, and by the rule of
    /// [`crate::snapshots`] the one before it too.
    pub fn truncate(&mut self, stream: StreamId, before: Position) {
        self.entry(stream, Kind::Truncate, |out| out.extend_from_slice(&before.0.to_le_bytes()));
    }

    /// Adds that `stream` has ended: nothing it recorded is needed any more. `at` is the position of the journal's next
    /// record. A process that later uses the same stream begins anew.
    pub fn end(&mut self, stream: StreamId, at: Position) {
        self.entry(stream, Kind::End, |out| out.extend_from_slice(&at.0.to_le_bytes()));
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many records it holds.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Empties it and keeps its memory, unless that is much.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        empty(&mut bytes);
        *self = Self { bytes, ..Self::default() };
    }

    fn entry(&mut self, stream: StreamId, kind: Kind, encode: impl FnOnce(&mut Vec<u8>)) {
        let begin = format::open_entry(&mut self.bytes, stream, kind);
        encode(&mut self.bytes);
        let length = format::seal_entry(&mut self.bytes, begin);
        if length > PAYLOAD_MAX {
            self.too_large = Some(length as u64);
        }
        self.entries += 1;
    }
}

/// Empties a buffer, which keeps no more memory than [`KEEP`].
pub(super) fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEEP {
        *buffer = Vec::new();
    }
}
