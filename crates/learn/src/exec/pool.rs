//! What the threads of a run share beside the model: who is alive, who makes progress, and why a run ended early.

use super::lanes::{Crowd, Lanes};
use super::{Stop, TrainError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a thread polls that cannot give its work away ([`super::lanes`]) before it sleeps between polls
/// (specs/cop.md 4.2). Where others want the processors, who yields to them is let in again when they have had their turn of milliseconds; who wakes up,
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

/// Patience ends after so many looks at the least.
const LOOKS: u32 = 16;

/// The run is over for this thread; the reason is in the pool.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stopped;

/// Why a transaction was not carried out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Halt {
    /// The run is over.
    Stopped,
    /// It has waited for long, and has not begun: others may carry it out. What it waits for, should the whole pool stand still.
    Blocked(Box<TrainError>),
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Halt {
        Halt::Stopped
    }
}

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

/// A thread's lane, on a cache line of its own.
#[repr(align(128))]
#[derive(Default, Debug)]
struct Lane {
    next: AtomicU64,
    free: AtomicBool,
    /// Whether its own thread asks for it.
    wanted: AtomicBool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    stopped: AtomicBool,
    /// The end that is asked for from outside.
    stop: Stop,
    failure: Mutex<Option<TrainError>>,
    lanes: Vec<Lane>,
    napping: Mutex<()>,
    bell: Condvar,
    /// Whether there are more threads than processors.
    crowded: bool,
    patience: Duration,
}

impl Pool {
    pub(crate) fn new(threads: usize, patience: Duration, stop: Stop) -> Pool {
        let alone = std::thread::available_parallelism().is_ok_and(|processors| threads <= processors.get());
        Pool {
            stopped: AtomicBool::new(false),
            stop,
            failure: Mutex::new(None),
            lanes: (0..threads).map(|_| Lane::default()).collect(),
            napping: Mutex::new(()),
            bell: Condvar::new(),
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
        self.stopped.load(Relaxed) || self.stop.is_asked()
    }

    /// Why the run ended early.
    pub(crate) fn failure(&self) -> Option<TrainError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.or_else(|| self.stop.is_asked().then_some(TrainError::Interrupted))
    }

    /// Number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.lanes.len()
    }

    /// All transactions before this place are finished, and no thread is at work: each holds its own lane. Nobody waits for those
    /// from `busy` on, who have nothing to do.
    pub(crate) fn begin(&self, place: u64, busy: usize) {
        for (number, lane) in self.lanes.iter().enumerate() {
            lane.next.store(if number < busy { place } else { u64::MAX / 2 }, Relaxed);
            lane.free.store(false, Relaxed);
            lane.wanted.store(false, Relaxed);
        }
    }

    /// Whether a lane that stands before this place has no holder: a look that orders nothing.
    fn is_left(&self, place: u64) -> bool {
        self.lanes.iter().any(|lane| lane.free.load(Relaxed) && lane.next.load(Relaxed) < place)
    }

    /// Asks whoever holds this lane for it.
    pub(crate) fn want(&self, lane: usize, wanted: bool) {
        self.lanes[lane].wanted.store(wanted, Relaxed);
    }

    pub(crate) fn is_wanted(&self, lane: usize) -> bool {
        self.lanes[lane].wanted.load(Relaxed)
    }

    /// Sleeps until the bell rings, at most so long.
    pub(crate) fn nap(&self, most: Duration) {
        let napping = self.napping.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.bell.wait_timeout(napping, most));
    }

    /// Wakes who naps.
    pub(crate) fn ring(&self) {
        drop(self.napping.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }

    fn progress(&self) -> u64 {
        self.lanes.iter().fold(0, |sum, lane| sum.wrapping_add(lane.next.load(Relaxed)))
    }

    /// Whether no thread has made progress for as long as one has patience, of which `still` keeps account.
    fn stands_still(&self, still: &mut Option<Still>) -> bool {
        let (progress, now) = (self.progress(), Instant::now());
        let since = still.take().filter(|still| still.progress == progress);
        let still = still.insert(since.unwrap_or(Still { progress, looked: now, waited: Duration::ZERO }));
        still.look(now, self.patience) >= self.patience
    }

    /// For a thread that has given way: fails if the whole pool stands still.
    pub(crate) fn may_go_on(&self, crowd: &mut Crowd, why: &TrainError) -> Result<(), Stopped> {
        if self.is_stopped() {
            return Err(Stopped);
        }
        if self.stands_still(&mut crowd.still) {
            self.fail(why.clone());
            return Err(Stopped);
        }
        Ok(())
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// A wait of a thread that cannot give its work away.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { pool: self, polls: 0, since: None, most: None, sleeps: false, still: None }
    }

    /// A wait for this place, which is given up after so long, and where what is waited for is there to be taken.
    pub(crate) fn wait_for(&self, place: u64, most: Option<Duration>) -> Wait<'_> {
        Wait { most: most.map(|most| (place, most)), ..self.wait() }
    }
}

impl Lanes for Pool {
    #[inline(always)]
    fn next(&self, lane: usize) -> u64 {
        self.lanes[lane].next.load(Acquire)
    }

    #[inline(always)]
    fn advance(&self, lane: usize, place: u64) {
        self.lanes[lane].next.store(place, Release);
    }

    fn take(&self, lane: usize) -> bool {
        self.lanes[lane].free.compare_exchange(true, false, Acquire, Relaxed).is_ok()
    }

    fn release(&self, lane: usize) {
        self.lanes[lane].free.store(true, Release);
    }
}

/// A pool that makes no progress, as one thread sees it.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Still {
    progress: u64,
    /// When that was looked at last.
    looked: Instant,
    /// For how long it was there to be looked at.
    waited: Duration,
}

impl Still {
    /// Looks again: for how long it has stood still. Looks follow one another closely, so that much time between two was nobody's:
    /// the process was stopped, or the machine asleep. Little of it counts.
    fn look(&mut self, now: Instant, patience: Duration) -> Duration {
        self.waited += (now - self.looked).min(patience / LOOKS);
        self.looked = now;
        self.waited
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
    /// The place that it is for, and after how long it is given up; `None` for never.
    most: Option<(u64, Duration)>,
    /// Whether it has polled for long enough.
    sleeps: bool,
    still: Option<Still>,
}

impl Wait<'_> {
    /// To be called after each failed poll; `stuck` describes what is waited for, should the whole pool stand still.
    pub(crate) fn poll(&mut self, stuck: impl FnOnce() -> TrainError) -> Result<(), Halt> {
        self.polls += 1;
        if self.pool.is_stopped() {
            return Err(Halt::Stopped);
        }
        if !self.sleeps {
            std::hint::spin_loop();
            if self.polls == SHORT {
                self.since = Some(Instant::now());
            } else if let Some((place, most)) = self.most {
                let looks = self.polls.is_multiple_of(SHORT);
                if looks && (self.blocked() >= most || self.pool.is_left(place)) {
                    return Err(Halt::Blocked(Box::new(stuck())));
                }
            } else if self.polls.is_multiple_of(256) {
                let crowded = self.pool.crowded && self.polls >= SPINS_CROWDED;
                self.sleeps = crowded || self.blocked() >= SPIN;
            }
            return Ok(());
        }
        std::thread::sleep(NAP);
        if self.polls.is_multiple_of(64) && self.pool.stands_still(&mut self.still) {
            self.pool.fail(stuck());
            return Err(Halt::Stopped);
        }
        Ok(())
    }

    /// As [`Wait::poll`], with pauses that double up to a bound: for locks, where every look costs their holder.
    pub(crate) fn back_off(&mut self, stuck: impl FnOnce() -> TrainError) -> Result<(), Halt> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_the_process_did_not_have_is_no_standstill() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(32));
        let mut still = Still { progress: 7, looked: begun, waited: Duration::ZERO };
        let mut after = |seconds| still.look(begun + Duration::from_secs(seconds), patience).as_secs();
        assert_eq!(after(1), 1);
        // Stopped for an hour.
        assert_eq!(after(3601), 3);
        assert!((1..=28).all(|more| after(3601 + more) == 3 + more));
        assert_eq!(after(3630), 32);
    }
}
