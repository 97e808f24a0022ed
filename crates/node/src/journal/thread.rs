//! The journal's own thread: the shard goes on while the disk syncs, and everything that has gathered meanwhile
//! shares the next write and sync. Where little has gathered and the disk is quick, the shard writes it itself
//! ([`JournalThread::write_here`]): waking another thread and being woken by it takes longer than what could be done
//! meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::disk::Disk;
use super::error::JournalError;
use super::format::{Position, StreamId};
use super::metrics::JournalMetrics;
use super::segments::Holder;
use super::writer::Journal;

/// How long the journal is idle before it proves its newest frame durable with a seal: long enough to cost nothing
/// under any load, short enough that a crash rarely falls into it.
pub const SEAL_AFTER: Duration = Duration::from_millis(100);

/// How often the journal's thread looks whether the files are still there ([`Journal::look`]): often enough that little is
/// written to what is removed, rare enough to cost nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Batches that may wait for the disk. The shard keeps adding to its open batch when they are all taken, so this
/// bounds buffers, not throughput.
const QUEUE: usize = 16;
/// One write takes at most about so many bytes; the rest waits for the next.
const FRAME_MAX: usize = 8 << 20;

/// A batch that waits for the disk and has so many bytes is left as it is, and what comes goes into another: a frame holds
/// no more than 4 GiB.
const BATCH_MAX: usize = 64 << 20;

/// The shard itself writes at most so many bytes: what a few commands leave. While the disk works on more, there is
/// more to do.
const HERE_BYTES: usize = 2 << 10;
/// It does so once so many batches in a row were no larger: where a pipeline comes in pieces, small ones are chance.
const HERE_AFTER: u32 = 32;
/// And where a write and its sync took no longer than this, on average of late: so long it hears nobody.
const HERE_TIME: Duration = Duration::from_millis(1);

/// How far the journal is durable, for other threads: cheap to read, and to wait for.
#[derive(Clone, Debug, Default)]
pub struct DurableMark(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    durable: AtomicU64,
    failed: Mutex<Option<JournalError>>,
    stopped: AtomicBool,
    moved: Condvar,
    holder: Mutex<Option<Holder>>,
    /// Nanoseconds that a write and its sync take, on average of late.
    pace: AtomicU64,
    /// When the journal's thread last had to wait for the shard that writes.
    waited: Mutex<Option<Instant>>,
}

impl DurableMark {
    /// The position up to which every record is durable.
    ///
    /// # Errors
    /// The error that stopped the journal. Nothing may be acknowledged after it.
    pub fn get(&self) -> Result<Position, JournalError> {
        if self.0.stopped.load(Ordering::Acquire)
            && let Some(error) = &*lock(&self.0.failed)
        {
            return Err(error.clone());
        }
        Ok(Position(self.0.durable.load(Ordering::Acquire)))
    }

    /// Waits until the record at `position` is durable.
    ///
    /// # Errors
    /// The journal stopped first, by an error or because it was closed.
    pub fn wait(&self, position: Position) -> Result<(), JournalError> {
        // The length of one wait does not matter: every change wakes.
        while !self.wait_timeout(position, Duration::from_secs(60))? {}
        Ok(())
    }

    /// As [`Self::wait`], but no longer than `timeout`; answers whether it is durable.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_timeout(&self, position: Position, timeout: Duration) -> Result<bool, JournalError> {
        let failed = lock(&self.0.failed);
        if self.0.durable.load(Ordering::Acquire) >= position.0 {
            return Ok(true);
        }
        let stopped = |failed: &Option<JournalError>| failed.clone().unwrap_or(JournalError::ThreadGone);
        if self.0.stopped.load(Ordering::Acquire) {
            return Err(stopped(&failed));
        }
        let (failed, _) = self.0.moved.wait_timeout(failed, timeout).unwrap_or_else(PoisonError::into_inner);
        let durable = self.0.durable.load(Ordering::Acquire) >= position.0;
        if !durable && self.0.stopped.load(Ordering::Acquire) {
            return Err(stopped(&failed));
        }
        Ok(durable)
    }

    /// Notes how long a write and its sync took. For who has the journal.
    pub(super) fn note_pace(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let pace = self.0.pace.load(Ordering::Relaxed);
        self.0.pace.store(pace - pace / 8 + took / 8, Ordering::Relaxed);
    }

    fn advance(&self, position: Position) {
        // Under the lock, or a waiter that has just looked would sleep through it.
        let _failed = lock(&self.0.failed);
        self.0.durable.store(position.0, Ordering::Release);
        self.0.moved.notify_all();
    }

    fn stop(&self, error: Option<JournalError>) {
        let mut failed = lock(&self.0.failed);
        if failed.is_none() {
            *failed = error;
        }
        self.0.stopped.store(true, Ordering::Release);
        self.0.moved.notify_all();
    }
}

/// The shard's end of the journal. Not shared: one shard, one journal.
///
/// The shard adds records as its processes make them, calls [`submit`](Self::submit) at the end of each turn, and
/// releases what waits for a position once [`durable`](Self::durable) has reached it. Dropped without
/// [`close`](Self::close), it is as if the process had crashed: what was not yet written is lost.
pub struct JournalThread {
    open: Batch,
    /// Batches that are full and were not taken yet; they go before the open one.
    full: VecDeque<Batch>,
    next: Position,
    batches: Option<SyncSender<Batch>>,
    emptied: Receiver<Batch>,
    mark: DurableMark,
    metrics: Arc<JournalMetrics>,
    incarnation: u32,
    unsafe_no_fsync: bool,
    abandoned: Arc<AtomicBool>,
    journal: Arc<dyn Written>,
    /// How many batches in a row were small.
    small: u32,
    thread: Option<JoinHandle<Result<(), JournalError>>>,
}

/// A journal that the shard and the journal's thread write by turns.
trait Written: Send + Sync {
    /// Writes and syncs a batch, if nobody else is writing.
    fn try_write(&self, batches: &[Batch], mark: &DurableMark) -> Option<Result<(), JournalError>>;
}

impl<D: Disk> Written for Mutex<Journal<D>> {
    fn try_write(&self, batches: &[Batch], mark: &DurableMark) -> Option<Result<(), JournalError>> {
        Some(write(&mut *self.try_lock().ok()?, batches, mark))
    }
}

fn write<D: Disk>(
    journal: &mut Journal<D>,
    batches: &[Batch],
    mark: &DurableMark,
) -> Result<(), JournalError> {
    let begun = Instant::now();
    let durable = journal.append_sync(batches)?;
    mark.note_pace(begun.elapsed());
    *lock(&mark.0.holder) = journal.oldest_segment_holder();
    mark.advance(durable);
    Ok(())
}

impl JournalThread {
    /// Starts the thread. `wake` is called, from that thread, whenever [`Self::durable`] has news.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn start<D: Disk>(mut journal: Journal<D>, wake: Box<dyn Fn() + Send>) -> std::io::Result<Self> {
        journal.make_spares_ahead();
        let (batches, queue) = sync_channel(QUEUE);
        let (give_back, emptied) = sync_channel(QUEUE + 1);
        let mark = DurableMark::default();
        mark.advance(journal.last());
        *lock(&mark.0.holder) = journal.oldest_segment_holder();
        let abandoned = Arc::new(AtomicBool::new(false));
        let (next, metrics, incarnation) = (journal.last().next(), journal.metrics(), journal.incarnation());
        let unsafe_no_fsync = journal.unsafe_no_fsync();
        let worker = Worker { queue, give_back, mark: mark.clone(), wake, abandoned: Arc::clone(&abandoned) };
        let journal = Arc::new(Mutex::new(journal));
        let theirs = Arc::clone(&journal);
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || worker.run(&theirs))?;
        Ok(Self {
            open: Batch::default(),
            full: VecDeque::new(),
            next,
            batches: Some(batches),
            emptied,
            mark,
            metrics,
            incarnation,
            unsafe_no_fsync,
            abandoned,
            journal,
            small: HERE_AFTER,
            thread: Some(thread),
        })
    }

    /// Adds a record whose bytes `encode` appends; answers its position. It goes to disk with the next
    /// [`Self::submit`].
    pub fn record(&mut self, stream: StreamId, encode: impl FnOnce(&mut Vec<u8>)) -> Position {
        self.open.record_with(stream, encode);
        let position = self.next;
        self.next = position.next();
        position
    }

    /// Adds `stream`'s word that its records before `before` may go. See [`Batch::truncate`].
    pub fn truncate(&mut self, stream: StreamId, before: Position) {
        self.open.truncate(stream, before);
        self.leave_to_the_thread();
    }

    /// Adds that `stream` has ended: nothing it recorded is needed any more.
    pub fn end(&mut self, stream: StreamId) {
        self.open.end(stream, self.next);
        self.leave_to_the_thread();
    }

    /// What was added may give back many segments, each with a sync of the directory, however few bytes say so.
    fn leave_to_the_thread(&mut self) {
        self.small = 0;
    }

    /// The position that the next record will have: everything recorded so far lies before it.
    #[must_use]
    pub fn next_position(&self) -> Position {
        self.next
    }

    /// Hands over what was added. Answers false if the queue is full: nothing is lost, it goes with a later call;
    /// call again when woken.
    ///
    /// # Errors
    /// The error that stopped the journal.
    pub fn submit(&mut self) -> Result<bool, JournalError> {
        self.mark.get()?;
        if !self.open.is_empty() {
            self.small = if self.open.bytes() <= HERE_BYTES { self.small.saturating_add(1) } else { 0 };
        }
        while let Some(batch) = self.full.pop_front().or_else(|| self.take_open()) {
            let Some(batches) = &self.batches else { return Err(JournalError::ThreadGone) };
            // Counted before it is sent, so that the thread never counts down first.
            self.metrics.queued.fetch_add(1, Ordering::Relaxed);
            let Err(refused) = batches.try_send(batch) else { continue };
            self.metrics.queued.fetch_sub(1, Ordering::Relaxed);
            let gone = matches!(refused, TrySendError::Disconnected(_));
            let (TrySendError::Full(batch) | TrySendError::Disconnected(batch)) = refused;
            // It was the open one where that is empty, and stays that for as long as it is small.
            if self.open.is_empty() && self.full.is_empty() && batch.bytes() < BATCH_MAX {
                self.open = batch;
            } else {
                self.full.push_front(batch);
            }
            if self.open.bytes() >= BATCH_MAX {
                let open = std::mem::take(&mut self.open);
                self.full.push_back(open);
            }
            return match gone {
                true => Err(self.mark.get().err().unwrap_or(JournalError::ThreadGone)),
                false => Ok(false),
            };
        }
        Ok(true)
    }

    /// The open batch, unless it is empty; the next one is open from now on.
    fn take_open(&mut self) -> Option<Batch> {
        (!self.open.is_empty())
            .then(|| std::mem::replace(&mut self.open, self.emptied.try_recv().unwrap_or_default()))
    }

    /// Whether the shard should write what was added itself ([`Self::write_here`]) once it has nothing else to do:
    /// it is little, as it was for a while, gives no segments back, and the disk is quick and at rest.
    #[must_use]
    pub fn better_here(&self) -> bool {
        self.open.bytes() <= HERE_BYTES
            && self.full.is_empty()
            && self.small >= HERE_AFTER
            && self.metrics.queued.load(Ordering::Acquire) == 0
            && u128::from(self.mark.0.pace.load(Ordering::Relaxed)) <= HERE_TIME.as_nanos()
    }

    /// Writes and syncs what was added, on the thread that calls. Answers false, and does nothing, where the
    /// journal's thread is at work: [`Self::submit`] then.
    ///
    /// # Errors
    /// The error that stopped the journal.
    pub fn write_here(&mut self) -> Result<bool, JournalError> {
        self.mark.get()?;
        // What was handed over goes first.
        if self.metrics.queued.load(Ordering::Acquire) > 0 || !self.full.is_empty() {
            return Ok(false);
        }
        match self.journal.try_write(std::slice::from_ref(&self.open), &self.mark) {
            None => return Ok(false),
            Some(Ok(())) => self.open.clear(),
            Some(Err(error)) => {
                self.mark.stop(Some(error.clone()));
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Whether all of this process stood still in what [`Self::write_here`] took since `begun`, seconds and not the time of one
    /// write: the journal's thread was not there to wait for it.
    #[must_use]
    pub fn stood_still(&self, begun: Instant) -> bool {
        !waits_in(*lock(&self.mark.0.waited), begun, Instant::now())
    }

    /// The position up to which every record is durable.
    ///
    /// # Errors
    /// The error that stopped the journal. The node must stop; nothing may be acknowledged any more.
    pub fn durable(&self) -> Result<Position, JournalError> {
        self.mark.get()
    }

    /// The same for other threads.
    #[must_use]
    pub fn mark(&self) -> DurableMark {
        self.mark.clone()
    }

    /// Bytes added and not yet handed over: grows while the disk is slower than the shard, so the shard refuses new
    /// work above its limit.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.open.bytes() + self.full.iter().map(Batch::bytes).sum::<usize>()
    }

    /// How often this node has started, this time included; durable.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Whether syncs are switched off.
    #[must_use]
    pub fn unsafe_no_fsync(&self) -> bool {
        self.unsafe_no_fsync
    }

    /// The stream that keeps the oldest segment in use, as of the newest frame.
    #[must_use]
    pub fn oldest_segment_holder(&self) -> Option<Holder> {
        *lock(&self.mark.0.holder)
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> Arc<JournalMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Writes everything that was added, seals the journal and ends the thread.
    ///
    /// # Errors
    /// The error that stopped the journal, now or before.
    pub fn close(mut self) -> Result<(), JournalError> {
        let batches = self.batches.take();
        while let Some(batch) = self.full.pop_front().or_else(|| self.take_open()) {
            let Some(batches) = &batches else { break };
            self.metrics.queued.fetch_add(1, Ordering::Relaxed);
            // If the thread is gone, joining it says why.
            let _ = batches.send(batch);
        }
        drop(batches);
        self.join()
    }

    fn join(&mut self) -> Result<(), JournalError> {
        self.batches = None;
        let outcome = self.thread.take().map(JoinHandle::join);
        outcome.unwrap_or(Ok(Err(JournalError::ThreadGone))).unwrap_or(Err(JournalError::ThreadGone))
    }
}

/// Whether a thread that last began to wait at `waited`, as it does within [`LOOK_EVERY`] where the journal is held, lived between
/// these two, and not only at the end, when a process that stood still goes on.
fn waits_in(waited: Option<Instant>, begun: Instant, ended: Instant) -> bool {
    waited.is_some_and(|waited| waited >= begun && ended.saturating_duration_since(waited) >= LOOK_EVERY)
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.abandoned.store(true, Ordering::Release);
            // Waited for, so that the directory is free again; why it stopped was for `durable` to tell.
            let _ = self.join();
        }
    }
}

struct Worker {
    queue: Receiver<Batch>,
    give_back: SyncSender<Batch>,
    mark: DurableMark,
    wake: Box<dyn Fn() + Send>,
    abandoned: Arc<AtomicBool>,
}

impl Worker {
    fn run<D: Disk>(self, journal: &Mutex<Journal<D>>) -> Result<(), JournalError> {
        let outcome = self.serve(journal);
        let outcome = match outcome {
            Ok(()) if !self.abandoned.load(Ordering::Acquire) => lock(journal).close(),
            other => other,
        };
        self.mark.stop(outcome.clone().err());
        (self.wake)();
        outcome
    }

    /// The journal, once the shard does not write. Since when it is waited for is noted.
    fn hold<'a, D: Disk>(&self, shared: &'a Mutex<Journal<D>>) -> MutexGuard<'a, Journal<D>> {
        if let Ok(journal) = shared.try_lock() {
            return journal;
        }
        *lock(&self.mark.0.waited) = Some(Instant::now());
        lock(shared)
    }

    fn serve<D: Disk>(&self, shared: &Mutex<Journal<D>>) -> Result<(), JournalError> {
        let metrics = lock(shared).metrics();
        let mut batches = Vec::with_capacity(QUEUE);
        let mut seen = metrics.frames.load(Ordering::Relaxed);
        let mut looked: Option<Instant> = None;
        loop {
            if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                self.hold(shared).look()?;
                looked = Some(Instant::now());
            }
            match self.queue.recv_timeout(SEAL_AFTER) {
                Ok(batch) => batches.push(batch),
                Err(RecvTimeoutError::Timeout) => {
                    // The shard may have written since.
                    let frames = metrics.frames.load(Ordering::Relaxed);
                    if std::mem::replace(&mut seen, frames) == frames {
                        self.hold(shared).seal()?;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let mut journal = self.hold(shared);
            let mut bytes = batches[0].bytes();
            while bytes < FRAME_MAX
                && let Ok(batch) = self.queue.try_recv()
            {
                bytes += batch.bytes();
                batches.push(batch);
            }
            // Under the lock: who sees none queued and has it comes after these.
            metrics.queued.fetch_sub(batches.len() as u64, Ordering::Release);
            if self.abandoned.load(Ordering::Acquire) {
                return Ok(());
            }
            write(&mut journal, &batches, &self.mark)?;
            drop(journal);
            seen = metrics.frames.load(Ordering::Relaxed);
            (self.wake)();
            for mut batch in batches.drain(..) {
                batch.clear();
                // More than the shard can use at once are dropped.
                let _ = self.give_back.try_send(batch);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Reached in a panic too: whoever waits must learn that nothing will come.
        if std::thread::panicking() {
            self.mark.stop(Some(JournalError::ThreadGone));
            (self.wake)();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_long_for_the_disk_only_where_the_other_thread_has_waited_for_it() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let of_the_disk = |waited| waits_in(waited, begun, at(6));
        assert!(of_the_disk(Some(begun)) && of_the_disk(Some(at(1))));
        // Both go on at once when the process does, and the thread may come to wait for what is left of the write.
        assert!(!of_the_disk(Some(at(6))) && !of_the_disk(Some(begun + Duration::from_millis(5_100))));
        let before = begun.checked_sub(Duration::from_millis(80)).unwrap();
        assert!(!of_the_disk(Some(before)) && !of_the_disk(None));
    }
}
