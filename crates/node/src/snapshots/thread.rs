//! Snapshots are written beside the loop, from the immutable view that a process hands out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isochrone_core::Snapshot;

use super::error::SnapshotError;
use super::store::{SnapshotInfo, SnapshotStore};
use crate::journal::{DurableMark, Position, StreamId};

/// How often a snapshot that waits for the journal looks whether the node is stopping.
const LOOK: Duration = Duration::from_millis(20);

/// Counters of one store.
#[derive(Debug, Default)]
pub struct SnapshotMetrics {
    /// Snapshots written and read back.
    pub written: AtomicU64,
    /// Bytes of their chunks.
    pub bytes: AtomicU64,
    /// Snapshots that failed.
    pub failures: AtomicU64,
    /// Snapshots that were found damaged, since this start, and passed over.
    pub unusable: AtomicU64,
    /// How long the last one took, in nanoseconds.
    pub last_nanos: AtomicU64,
}

/// What became of one snapshot.
#[derive(Debug)]
pub struct Written {
    /// Whose it is.
    pub stream: StreamId,
    /// Where the journal may be trimmed to now, if anywhere: hand it to
    /// [`JournalThread::truncate`](crate::journal::JournalThread::truncate). An error leaves everything as it was; the
    /// shard takes another snapshot later, and the journal grows meanwhile.
    pub outcome: Result<(SnapshotInfo, Option<Position>), SnapshotError>,
    /// How long it took, the wait for the journal included.
    pub took: Duration,
}

/// The shard's end of the thread that writes snapshots.
pub struct SnapshotThread {
    jobs: Option<Sender<Job>>,
    done: Receiver<Written>,
    under_way: BTreeSet<StreamId>,
    stopping: Arc<AtomicBool>,
    metrics: Arc<SnapshotMetrics>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    Write(StreamId, Position, Snapshot),
    Forget(StreamId, Position),
}

impl SnapshotThread {
    /// Starts the thread. `mark` is the journal's; `wake` is called, from that thread, when [`Self::written`] has news.
    ///
    /// # Errors
    /// The operating system gave no thread.
    pub fn start(
        store: SnapshotStore,
        mark: DurableMark,
        wake: Box<dyn Fn() + Send>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = channel();
        let (report, done) = channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let metrics =
            Arc::new(SnapshotMetrics { unusable: store.unusable().into(), ..SnapshotMetrics::default() });
        let worker = Worker { store, mark, stopping: Arc::clone(&stopping), metrics: Arc::clone(&metrics) };
        let thread = std::thread::Builder::new()
            .name("snapshots".into())
            .spawn(move || worker.run(&queue, &report, &*wake))?;
        Ok(Self {
            jobs: Some(jobs),
            done,
            under_way: BTreeSet::new(),
            stopping,
            metrics,
            thread: Some(thread),
        })
    }

    /// Begins to write a snapshot of `stream` that holds every record before `position`: the journal's
    /// [`next_position`](crate::journal::JournalThread::next_position) at the moment the process gave `snapshot`.
    /// Answers false, and does nothing, while one of this stream is under way.
    pub fn write(&mut self, stream: StreamId, position: Position, snapshot: Snapshot) -> bool {
        // At most one for each stream, so the queue is bounded by their number.
        if !self.under_way.insert(stream) {
            return false;
        }
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(Job::Write(stream, position, snapshot)).is_ok())
    }

    /// Removes the snapshots of a stream that ended, where the journal's next position was `end`; that it ended must be
    /// durable first.
    pub fn forget(&mut self, stream: StreamId, end: Position) {
        if let Some(jobs) = &self.jobs {
            // A thread that is gone forgets nothing; the next start does.
            let _ = jobs.send(Job::Forget(stream, end));
        }
    }

    /// What was finished since the last call.
    pub fn written(&mut self) -> Vec<Written> {
        let done: Vec<_> = self.done.try_iter().collect();
        for written in &done {
            self.under_way.remove(&written.stream);
        }
        done
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> Arc<SnapshotMetrics> {
        Arc::clone(&self.metrics)
    }
}

impl Drop for SnapshotThread {
    /// Gives up what is under way and waits until the directory is free.
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing left to say; a panic in it was logged by the panic hook.
            let _ = thread.join();
        }
    }
}

struct Worker {
    store: SnapshotStore,
    mark: DurableMark,
    stopping: Arc<AtomicBool>,
    metrics: Arc<SnapshotMetrics>,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Job>, report: &Sender<Written>, wake: &dyn Fn()) {
        for job in queue {
            match job {
                Job::Forget(stream, end) => self.store.forget(stream, end),
                Job::Write(stream, position, snapshot) => {
                    let written = self.write(stream, position, snapshot);
                    if report.send(written).is_err() {
                        return;
                    }
                    wake();
                }
            }
        }
    }

    fn write(&mut self, stream: StreamId, position: Position, snapshot: Snapshot) -> Written {
        let begun = Instant::now();
        let outcome = self.await_journal(position).and_then(|()| {
            let stopping = Arc::clone(&self.stopping);
            let chunks = snapshot.map(move |chunk| {
                if stopping.load(Ordering::Acquire) { Err(SnapshotError::Stopping) } else { Ok(chunk) }
            });
            self.store.write(stream, position, chunks)
        });
        let took = begun.elapsed();
        match &outcome {
            Ok((info, _)) => {
                let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                self.metrics.written.fetch_add(1, Ordering::Relaxed);
                self.metrics.bytes.fetch_add(info.bytes, Ordering::Relaxed);
                self.metrics.last_nanos.store(nanos, Ordering::Relaxed);
            }
            Err(SnapshotError::Stopping) => {}
            Err(error) => {
                self.metrics.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%stream, %error, "a snapshot failed; the journal is not trimmed");
            }
        }
        Written { stream, outcome, took }
    }

    /// Waits until everything the snapshot holds is durable in the journal too.
    fn await_journal(&self, position: Position) -> Result<(), SnapshotError> {
        while !self.mark.wait_timeout(position.before(), LOOK)? {
            if self.stopping.load(Ordering::Acquire) {
                return Err(SnapshotError::Stopping);
            }
        }
        Ok(())
    }
}
