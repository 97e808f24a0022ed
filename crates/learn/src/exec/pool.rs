//! What the threads of a run share beside the model: who is alive, who makes progress, and why a run ended early.

use super::TrainError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a waiting thread polls before it gives its processor away (specs/cop.md 4.2): it sleeps between polls then. Where
/// others want the processors, who yields to them is let in again when they have had their turn of milliseconds; who wakes up,
/// almost at once. Longer than it takes to wake up: while one sleeps, another soon waits for it, and were that one to fall
/// asleep too, they would hardly ever be awake at the same time (a hiccup of 50 us then made an epoch half as long again).
const SPIN: Duration = Duration::from_micros(250);

/// Failed polls after which it sleeps where there are more threads than processors, so that who waits is in the way of whom it
/// waits for.
const SPINS_CROWDED: u64 = 1000;

/// How long it sleeps.
const NAP: Duration = Duration::from_micros(50);

/// Failed polls after which a wait is timed: most are over before the clock could be read.
const SHORT: u64 = 32;

/// The run is over for this thread; the reason is in the pool.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stopped;

/// What one thread did.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkerReport {
    /// Transactions completed.
    pub transactions: u64,
    /// Failed polls for the version that a read must see.
    pub read_polls: u64,
    /// Failed polls before a write: for versions and readers; for locks and the values of others in the other schemes.
    pub write_polls: u64,
    /// Failed polls for the intercept.
    pub intercept_polls: u64,
    /// Transactions begun again because their validation failed.
    pub restarts: u64,
    /// Time spent in waits of more than some microseconds; shorter ones are in the polls only.
    pub blocked: Duration,
}

impl WorkerReport {
    /// Adds what the same thread did later.
    pub(crate) fn add(&mut self, later: &WorkerReport) {
        self.transactions += later.transactions;
        self.read_polls += later.read_polls;
        self.write_polls += later.write_polls;
        self.intercept_polls += later.intercept_polls;
        self.restarts += later.restarts;
        self.blocked += later.blocked;
    }
}

/// A number on a cache line of its own.
#[repr(align(128))]
#[derive(Default, Debug)]
pub(crate) struct Line(pub(crate) AtomicU64);

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    stopped: AtomicBool,
    failure: Mutex<Option<TrainError>>,
    /// Where each thread is.
    next: Vec<Line>,
    /// Whether there are more threads than processors.
    crowded: bool,
    patience: Duration,
}

impl Pool {
    pub(crate) fn new(threads: usize, patience: Duration) -> Pool {
        let alone = std::thread::available_parallelism().is_ok_and(|processors| threads <= processors.get());
        Pool {
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
            next: (0..threads).map(|_| Line::default()).collect(),
            crowded: !alone,
            patience,
        }
    }

    /// Ends the run for all threads. The first reason is kept.
    pub(crate) fn fail(&self, reason: TrainError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(reason);
        self.stopped.store(true, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Why the run ended early.
    pub(crate) fn failure(&self) -> Option<TrainError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.next.len()
    }

    /// All transactions before this place are finished, and no thread is at work.
    pub(crate) fn begin(&self, place: u64) {
        self.next.iter().for_each(|line| line.0.store(place, Relaxed));
    }

    /// Notes the place of this thread's next transaction: it has finished all of its own before. Releases what they wrote.
    #[inline(always)]
    pub(crate) fn advance(&self, thread: usize, place: u64) {
        self.next[thread].0.store(place, Release);
    }

    /// The place of a thread's next transaction. Acquires what it wrote before.
    #[inline(always)]
    pub(crate) fn next(&self, thread: usize) -> u64 {
        self.next[thread].0.load(Acquire)
    }

    fn progress(&self) -> u64 {
        self.next.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(Relaxed)))
    }

    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { pool: self, polls: 0, since: None, sleeps: false, still: None }
    }
}

/// Stops the pool when the thread that holds it panics.
pub(crate) struct Guard<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) worker: usize,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.fail(TrainError::Panicked { worker: self.worker, message: String::new() });
        }
    }
}

/// One wait of one thread.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pool: &'a Pool,
    /// Failed polls so far.
    pub(crate) polls: u64,
    since: Option<Instant>,
    /// Whether it has polled for long enough.
    sleeps: bool,
    still: Option<(u64, Instant)>,
}

impl Wait<'_> {
    /// To be called after each failed poll; `stuck` describes what is waited for, should the whole pool stand still.
    pub(crate) fn poll(&mut self, stuck: impl FnOnce() -> TrainError) -> Result<(), Stopped> {
        self.polls += 1;
        if self.pool.is_stopped() {
            return Err(Stopped);
        }
        if !self.sleeps {
            std::hint::spin_loop();
            if self.polls == SHORT {
                self.since = Some(Instant::now());
            } else if self.polls.is_multiple_of(256) {
                let crowded = self.pool.crowded && self.polls >= SPINS_CROWDED;
                self.sleeps = crowded || self.blocked() >= SPIN;
            }
            return Ok(());
        }
        std::thread::sleep(NAP);
        if self.polls.is_multiple_of(64) {
            let (progress, now) = (self.pool.progress(), Instant::now());
            match self.still {
                Some((before, since)) if before == progress => {
                    if now - since >= self.pool.patience {
                        self.pool.fail(stuck());
                        return Err(Stopped);
                    }
                }
                _ => self.still = Some((progress, now)),
            }
        }
        Ok(())
    }

    /// As [`Wait::poll`], with pauses that double up to a bound: for locks, where every look costs their holder.
    pub(crate) fn back_off(&mut self, stuck: impl FnOnce() -> TrainError) -> Result<(), Stopped> {
        for _ in 1..1_u32 << self.polls.min(6) {
            std::hint::spin_loop();
        }
        self.poll(stuck)
    }

    /// Time waited, where it was long enough to be measured.
    pub(crate) fn blocked(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
