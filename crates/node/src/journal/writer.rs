//! The writing side: frames, segments, truncation. One thread at a time has a [`Journal`]; nothing here locks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::activation::{activate, born, encode_incarnation, preamble, salt};
use super::batch::{Batch, Fsync, JournalOptions, empty};
use super::directory::DataDirectory;
use super::disk::{Disk, DiskFile, RealDisk};
use super::error::JournalError;
use super::format::{
    self, FRAME_HEADER, FrameHeader, Kind, LAST, PAYLOAD_MAX, Position, SEAL, SECTOR, SEGMENT_FORMAT,
    SegmentHeader, StreamId,
};
use super::metrics::JournalMetrics;
use super::recovery::{Recovered, recover};
use super::segments::{Holder, Marks, Segment, Spares, segments_among};

/// An open journal. Written through [`super::JournalThread`] in a node, and directly in tests.
pub struct Journal<D: Disk = RealDisk> {
    disk: D,
    options: JournalOptions,
    /// All segments in use, oldest first; the last one is written.
    segments: VecDeque<Segment>,
    file: D::File,
    offset: u64,
    frame_next: u64,
    /// The last frame known durable.
    frame_durable: u64,
    position_next: u64,
    chain: u64,
    marks: Marks,
    incarnation: u32,
    sealed: bool,
    spares: Spares<D>,
    make_ahead: bool,
    buffer: Vec<u8>,
    failed: Option<JournalError>,
    metrics: Arc<JournalMetrics>,
    /// Locked as long as the journal lives.
    directory: Option<DataDirectory>,
}

impl Journal<RealDisk> {
    /// Opens the journal of a data directory: reads and checks all of it and counts one more incarnation, durably.
    /// [`Self::replay`] then gives its records.
    ///
    /// # Errors
    /// Anything that [`JournalError`] names; nothing was changed if the journal is corrupt.
    pub fn open(
        mut directory: DataDirectory,
        options: JournalOptions,
    ) -> Result<(Self, Recovered), JournalError> {
        let disk = match options.fsync {
            Fsync::On => directory.journal(),
            Fsync::Off => directory.journal().cached(),
        };
        let (mut journal, recovered) = Self::open_on(disk, options, directory.fresh())?;
        directory.claim()?;
        journal.directory = Some(directory);
        Ok((journal, recovered))
    }

    /// The directory it lives in; `None` for a journal that was opened with [`Journal::open_on`].
    #[must_use]
    pub fn directory(&self) -> Option<&DataDirectory> {
        self.directory.as_ref()
    }
}

impl<D: Disk> Journal<D> {
    /// As [`Journal::open`], on any disk; `fresh` says that no journal has ever been there.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_on(disk: D, options: JournalOptions, fresh: bool) -> Result<(Self, Recovered), JournalError> {
        let names = disk.list().map_err(|e| JournalError::io(disk.path(""), "list", 0, e))?;
        let present = !segments_among(&names).is_empty();
        if !present && !fresh {
            return Err(JournalError::Missing { path: disk.path("") });
        }
        let (journal, recovered) = if present {
            Self::resume(disk, options, &names)?
        } else {
            (Self::create(disk, options, &names)?, Recovered::default())
        };
        if journal.options.fsync == Fsync::Off {
            journal.metrics.unsafe_no_fsync.store(1, Relaxed);
            tracing::warn!("UNSAFE: fsync is off: a power loss or a kernel crash loses acknowledged writes");
        }
        journal.publish();
        Ok((journal, recovered))
    }

    /// Gives every record that is still there to `replay`, in order, those included that their stream no longer
    /// needs: a caller that restored a snapshot at some position skips that stream's records before it.
    ///
    /// A second pass after the one of [`Journal::open`], so that a process is only made once it is known that nothing
    /// is damaged, with its incarnation and its snapshot at hand. To be called before anything is appended.
    ///
    /// # Errors
    /// The disk gave other bytes than a moment ago; what was replayed is to be thrown away.
    pub fn replay(&mut self, mut replay: impl FnMut(StreamId, Position, &[u8])) -> Result<(), JournalError> {
        self.guard(|journal| {
            let names: Vec<_> = journal.segments.iter().map(|segment| segment.name.clone()).collect();
            let ended = &journal.marks.ended;
            let mut living = |stream, position, payload: &[u8]| {
                if ended.get(&stream).is_none_or(|end| position >= *end) {
                    replay(stream, position, payload);
                }
            };
            recover(&journal.disk, &names, &journal.options, &mut living).map(drop)
        })
    }

    /// Writes and syncs all of `batches` as one frame; answers the position of the last record durable now.
    ///
    /// # Errors
    /// Any error is final: nothing of this batch counts as durable, and every later call fails.
    pub fn append_sync(&mut self, batches: &[Batch]) -> Result<Position, JournalError> {
        self.guard(|journal| journal.append(batches))?;
        Ok(self.last())
    }

    /// Makes it provable, should the newest frame be damaged later, that it had been durable. Does nothing twice.
    ///
    /// # Errors
    /// As [`Self::append_sync`].
    pub fn seal(&mut self) -> Result<(), JournalError> {
        if self.sealed || self.options.fsync == Fsync::Off {
            return self.guard(|_| Ok(()));
        }
        self.guard(|journal| {
            journal.write_aside(SEAL, journal.active().header.capacity - SECTOR as u64)?;
            journal.sync()?;
            journal.sealed = true;
            Ok(())
        })
    }

    /// Syncs and seals: the end of an orderly shutdown.
    ///
    /// # Errors
    /// As [`Self::append_sync`].
    pub fn close(&mut self) -> Result<(), JournalError> {
        self.seal()?;
        self.guard(Self::sync)
    }

    /// The position of the last record.
    #[must_use]
    pub fn last(&self) -> Position {
        Position(self.position_next - 1)
    }

    /// How often this node has started, this time included; durable.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The birth of the directory it was made in; never zero.
    #[must_use]
    pub fn birth(&self) -> u64 {
        self.options.birth
    }

    /// Whether syncs are switched off.
    #[must_use]
    pub fn unsafe_no_fsync(&self) -> bool {
        self.options.fsync == Fsync::Off
    }

    /// The stream that keeps the oldest segment in use, if one does.
    #[must_use]
    pub fn oldest_segment_holder(&self) -> Option<Holder> {
        let oldest = self.segments.front()?;
        let (stream, mark, last) = oldest.holder(&self.marks)?;
        let bytes = self.segments.iter().map(|segment| segment.header.capacity).sum();
        Some(Holder { stream, mark, last, segment: oldest.header.sequence, bytes })
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> Arc<JournalMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Looks whether what is written would be found at the next start: a file that somebody has removed, or hidden behind
    /// another, takes writes and syncs as before. Tells as well how much room there is. For now and then, not for every write.
    ///
    /// # Errors
    /// As [`Self::append_sync`].
    pub(crate) fn look(&mut self) -> Result<(), JournalError> {
        if let Some(free) = self.disk.free() {
            self.metrics.free_bytes.store(free.max(1), Relaxed);
        }
        self.guard(|journal| {
            // Where that cannot be looked at nobody knows, and a write will tell.
            let lost = match journal.disk.holds(&journal.active().name, &journal.file) {
                Ok(false) => Some(JournalError::Removed { path: journal.path() }),
                Ok(true) | Err(_) => {
                    let lock = journal.directory.as_ref().and_then(DataDirectory::lost);
                    lock.map(|path| JournalError::Unlocked { path })
                }
            };
            lost.map_or(Ok(()), Err)
        })
    }

    /// Makes spare segments on another thread from now on.
    pub(crate) fn make_spares_ahead(&mut self) {
        self.make_ahead = true;
    }

    fn create(disk: D, mut options: JournalOptions, names: &[String]) -> Result<Self, JournalError> {
        let mut spares = Spares::find(&disk, names)?;
        options.birth = born(&options);
        let header = SegmentHeader {
            cluster: options.cluster,
            node: options.node,
            sequence: 1,
            frame: 1,
            first: 1,
            salt: salt(&options, 1, 0),
            birth: options.birth,
            format: SEGMENT_FORMAT,
            ..SegmentHeader::default()
        };
        let mut buffer = Vec::new();
        let preamble = preamble(&mut buffer, 1, 1, &Marks::default(), salt(&options, 1, 1));
        let (segment, file, written) =
            activate(&disk, &mut spares, header, &mut buffer, preamble, 0, &options, 0)?;
        Ok(Self::assemble(
            disk,
            options,
            spares,
            vec![segment],
            file,
            written.offset,
            written.chain,
            1,
            buffer,
        ))
    }

    fn resume(
        disk: D,
        mut options: JournalOptions,
        names: &[String],
    ) -> Result<(Self, Recovered), JournalError> {
        let pass = recover(&disk, names, &options, &mut |_, _, _| {})?;
        if let Some(torn) = &pass.recovered.torn {
            tracing::warn!(
                file = %torn.path.display(), offset = torn.offset, entries = ?torn.entries, bytes = ?torn.bytes,
                "the journal ends with a frame that is not whole, which is dropped: a crash has cut it short before it was \
                 acknowledged, or the node ended without a word within 100 ms of it and the disk has damaged it since"
            );
        }
        if options.birth == 0 {
            let known = pass.segments.iter().map(|segment| segment.header.birth).rfind(|birth| *birth != 0);
            options.birth = known.unwrap_or_else(|| born(&options));
        }
        // What the former life has renamed may be in the cache alone; nothing may rest on it, or take a spare's place, before.
        disk.sync_names().map_err(|e| JournalError::io(disk.path("."), "sync", 0, e))?;
        let spares = Spares::find(&disk, names)?;
        let newest = pass.segments.last().map(|segment| segment.name.clone()).unwrap_or_default();
        let file = disk.open(&newest).map_err(|e| JournalError::io(disk.path(&newest), "open", 0, e))?;
        let mut journal = Self::assemble(
            disk,
            options,
            spares,
            pass.segments,
            file,
            pass.offset,
            pass.chain,
            pass.incarnation,
            Vec::new(),
        );
        journal.frame_next = pass.frame_next;
        // Whatever was read is durable once the sync below has returned, but until then nothing may say so.
        journal.frame_durable = 0;
        journal.position_next = pass.position_next;
        journal.marks = pass.marks;
        journal.guard(|journal| {
            journal.rewrite(pass.unproven)?;
            journal.sync()?;
            journal.incarnation += 1;
            let nonce = salt(&journal.options, journal.frame_next, journal.chain);
            journal.begin_frame();
            encode_incarnation(&mut journal.buffer, journal.incarnation, nonce);
            journal.write_frame(0, 1, 0)?;
            journal.sync()?;
            if journal.active().header.format < SEGMENT_FORMAT {
                // An earlier version wrote it, and shall refuse what this one records.
                journal.roll(0)?;
            }
            journal.recycle()
        })?;
        Ok((journal, pass.recovered))
    }

    #[allow(clippy::too_many_arguments, reason = "one caller each for a new and a found journal")]
    fn assemble(
        disk: D,
        options: JournalOptions,
        spares: Spares<D>,
        segments: Vec<Segment>,
        file: D::File,
        offset: u64,
        chain: u64,
        incarnation: u32,
        buffer: Vec<u8>,
    ) -> Self {
        Self {
            disk,
            options,
            segments: segments.into(),
            file,
            offset,
            frame_next: 2,
            frame_durable: 1,
            position_next: 1,
            chain,
            marks: Marks::default(),
            incarnation,
            sealed: false,
            spares,
            make_ahead: false,
            buffer,
            failed: None,
            metrics: Arc::default(),
            directory: None,
        }
    }

    /// Runs `work` unless an earlier error forbids it; remembers the first error for ever.
    fn guard<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if let Some(error) = &self.failed {
            return Err(error.poisoned());
        }
        let outcome = work(self);
        if let Err(error) = &outcome {
            tracing::error!(%error, "the journal stops");
            self.failed = Some(error.clone());
        }
        outcome
    }

    fn append(&mut self, batches: &[Batch]) -> Result<(), JournalError> {
        self.begin_frame();
        let (mut entries, mut records) = (0, 0);
        for batch in batches {
            if let Some(length) = batch.too_large {
                return Err(JournalError::TooLarge { length, limit: PAYLOAD_MAX as u64 });
            }
            self.buffer.extend_from_slice(&batch.bytes);
            entries += batch.entries;
            records += batch.records;
        }
        if entries == 0 {
            return Ok(());
        }
        let (first, segment) = (self.position_next, self.active().header.sequence);
        self.write_frame(0, entries, records)?;
        if self.options.fsync == Fsync::On {
            self.sync()?;
        }
        self.metrics.batches.fetch_add(batches.len() as u64, Relaxed);
        self.metrics.records.fetch_add(u64::from(records), Relaxed);
        if self.note(batches, first) || self.active().header.sequence != segment {
            self.recycle()?;
            self.publish();
        }
        if self.make_ahead && self.offset > self.active().header.capacity / 2 {
            let usual = self.usual();
            if !self.spares.make_ahead(usual, self.options.segment_first) {
                self.metrics.spare_failures.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Notes where each stream's last record lies and what may go; answers whether a mark moved.
    fn note(&mut self, batches: &[Batch], first: u64) -> bool {
        let mut position = first;
        let mut moved = false;
        // A journal has at least one segment from its creation on.
        let Some(active) = self.segments.back_mut() else { return false };
        for batch in batches {
            let mut rest = batch.bytes.as_slice();
            while let Ok((entry, length)) = format::decode_entry(rest) {
                rest = &rest[length..];
                match entry.kind {
                    Kind::Record => {
                        active.last.insert(entry.stream, Position(position));
                        position += 1;
                    }
                    Kind::Truncate => {
                        let before = Position(format::payload_u64(entry.payload).unwrap_or(0));
                        moved |= self.marks.truncate(entry.stream, before);
                    }
                    Kind::End => {
                        let at = Position(format::payload_u64(entry.payload).unwrap_or(0));
                        moved |= self.marks.end(entry.stream, at);
                    }
                    Kind::Incarnation | Kind::Oldest => {}
                }
            }
        }
        moved
    }

    /// Clears the buffer and leaves room for a frame's header.
    fn begin_frame(&mut self) {
        empty(&mut self.buffer);
        self.buffer.resize(FRAME_HEADER, 0);
    }

    /// Writes the frame whose entries are in the buffer, into the next segment if this one is full.
    fn write_frame(&mut self, flags: u32, entries: u32, records: u32) -> Result<(), JournalError> {
        let body = self.buffer.len() - FRAME_HEADER;
        // Nothing that is torn is ever said to be whole.
        let Ok(length) = u32::try_from(body) else {
            return Err(JournalError::TooLarge { length: body as u64, limit: u32::MAX.into() });
        };
        let size = format::frame_size(body) as u64;
        // Two sectors are kept for the closing frame and the seal.
        if self.offset + size + 2 * SECTOR as u64 > self.active().header.capacity {
            let frame = std::mem::take(&mut self.buffer);
            self.roll(size)?;
            self.buffer = frame;
        }
        self.buffer.resize(size as usize, 0);
        let header = self.frame_header(flags, entries, length);
        let salt = self.active().header.salt;
        let chain = format::seal_frame(&mut self.buffer, &header, salt);
        self.write_buffer(self.offset)?;
        self.chain = chain;
        self.offset += size;
        self.frame_next += 1;
        self.position_next += u64::from(records);
        self.sealed = false;
        self.metrics.frames.fetch_add(1, Relaxed);
        self.metrics.bytes.fetch_add(size, Relaxed);
        Ok(())
    }

    fn frame_header(&self, flags: u32, entries: u32, body: u32) -> FrameHeader {
        FrameHeader {
            flags,
            entries,
            body,
            segment: self.active().header.sequence,
            frame: self.frame_next,
            first: self.position_next,
            durable: self.frame_durable,
            chain_before: self.chain,
            chain: 0,
        }
    }

    /// Writes an empty frame that is no part of the chain, for what its header says.
    fn write_aside(&mut self, flags: u32, offset: u64) -> Result<(), JournalError> {
        self.begin_frame();
        self.buffer.resize(SECTOR, 0);
        let header = self.frame_header(flags, 0, 0);
        let salt = self.active().header.salt;
        format::seal_frame(&mut self.buffer, &header, salt);
        self.write_buffer(offset)
    }

    fn write_buffer(&mut self, offset: u64) -> Result<(), JournalError> {
        let written = self.file.write_at(offset, &self.buffer);
        written.map_err(|e| JournalError::io(self.path(), "write", self.buffer.len() as u64, e))
    }

    /// Syncs the segment; from here on all its frames are durable.
    fn sync(&mut self) -> Result<(), JournalError> {
        let begun = Instant::now();
        self.file.sync().map_err(|e| JournalError::io(self.path(), "sync", 0, e))?;
        self.metrics.syncs.record(begun.elapsed());
        self.frame_durable = self.frame_next - 1;
        Ok(())
    }

    /// Writes the bytes from `offset` to the end of the journal once more.
    ///
    /// What was read may be only in the page cache, marked clean by a sync that failed before this start; written
    /// again it is dirty, and the next sync says the truth about it.
    fn rewrite(&mut self, offset: u64) -> Result<(), JournalError> {
        let mut bytes = vec![0; (self.offset - offset) as usize];
        self.file.read_at(offset, &mut bytes).map_err(|e| JournalError::io(self.path(), "read", 0, e))?;
        self.file.write_at(offset, &bytes).map_err(|e| JournalError::io(self.path(), "write", 0, e))
    }

    /// Goes on in a new segment, which has room for a frame of `size` bytes.
    ///
    /// The order is what recovery relies on: this segment is durable, then the next one with its first frame, then
    /// this one's closing frame; only then does a record go into the next one.
    fn roll(&mut self, size: u64) -> Result<(), JournalError> {
        if self.frame_durable + 1 < self.frame_next {
            self.sync()?;
        }
        let sequence = self.active().header.sequence + 1;
        let header = SegmentHeader {
            sequence,
            frame: self.frame_next,
            first: self.position_next,
            chain: self.chain,
            salt: salt(&self.options, sequence, self.chain),
            birth: self.options.birth,
            format: SEGMENT_FORMAT,
            ..self.active().header
        };
        let oldest = self.segments[0].header.sequence;
        let nonce = salt(&self.options, !sequence, self.chain);
        let mut buffer = Vec::new();
        let preamble = preamble(&mut buffer, self.incarnation, oldest, &self.marks, nonce);
        let (segment, file, written) = activate(
            &self.disk,
            &mut self.spares,
            header,
            &mut buffer,
            preamble,
            size,
            &self.options,
            self.frame_durable,
        )?;

        self.write_aside(LAST, self.offset)?;
        self.sync()?;

        self.segments.push_back(segment);
        self.file = file;
        self.offset = written.offset;
        self.chain = written.chain;
        self.frame_durable = self.frame_next;
        self.frame_next += 1;
        self.publish();
        Ok(())
    }

    /// Gives back the segments at the front that no stream needs, after saying so durably.
    fn recycle(&mut self) -> Result<(), JournalError> {
        let used = self.segments.len() - 1;
        let free = self.segments.iter().take(used).take_while(|s| s.holder(&self.marks).is_none()).count();
        if free == 0 {
            return Ok(());
        }
        self.begin_frame();
        let oldest = self.segments[free].header.sequence;
        format::encode_entry(&mut self.buffer, StreamId(0), Kind::Oldest, &oldest.to_le_bytes());
        self.write_frame(0, 1, 0)?;
        self.sync()?;
        let usual = self.usual();
        for segment in self.segments.drain(..free) {
            self.spares.give_back(&segment, usual)?;
        }
        self.metrics.recycled.fetch_add(free as u64, Relaxed);
        Ok(())
    }

    fn publish(&self) {
        let bytes = self.segments.iter().map(|segment| segment.header.capacity).sum();
        self.metrics.segments.store(self.segments.len() as u64, Relaxed);
        self.metrics.segment_bytes.store(bytes, Relaxed);
    }

    /// What the next new segment's size should be.
    fn usual(&self) -> u64 {
        (self.active().header.capacity * 2).clamp(self.options.segment_first, self.options.segment_max)
    }

    fn active(&self) -> &Segment {
        // A journal has at least one segment from its creation on.
        &self.segments[self.segments.len() - 1]
    }

    fn path(&self) -> std::path::PathBuf {
        self.disk.path(&self.active().name)
    }
}
