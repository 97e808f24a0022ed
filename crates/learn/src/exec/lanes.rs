//! Who carries out whose transactions.
//!
//! A roster gives each transaction to a thread; those of one thread are its *lane*. As a rule everybody holds the own lane and
//! no other. But where something else wants the processors too, the system puts a thread aside for milliseconds, and who waits
//! for it would wait as long, and be waited for in turn. So who has waited for long gives its lane away and sleeps; who comes to
//! wait for a lane that is free takes it, and carries out both, in ascending order; and who wakes up asks for its own, and gets it
//! between two transactions. A processor for one thread is enough then for what one thread does.
//!
//! - *Nothing is done twice or left out*: a lane has one holder, who knows its place. What is before that is finished.
//! - *No two wait for each other*: the first transaction that is not finished is in a lane that somebody holds, who does
//!   nothing before it, or in one that is free, and then all that wait come to take it, or its own thread wakes up.

use super::pool::Still;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The lanes of a run. Memory orderings are those of the implementation.
pub(crate) trait Lanes {
    /// The place of the next transaction of a lane: all before it are finished. Acquires what they wrote.
    fn next(&self, lane: usize) -> u64;

    /// Moves a lane on to this place. Releases what was written before.
    fn advance(&self, lane: usize, place: u64);

    /// Takes a lane if it is free, and tells whether it was. Acquires what its last holder did.
    fn take(&self, lane: usize) -> bool;

    /// Gives a lane away. Releases what was done.
    fn release(&self, lane: usize);
}

/// The lanes that a thread holds.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Each with the place before which all of it is finished. The first is its own.
    lanes: Vec<(usize, u64)>,
}

impl Held {
    /// The own lane of this thread.
    pub(crate) fn own(thread: usize) -> Held {
        Held { lanes: vec![(thread, 0)] }
    }

    /// Whether none but its own.
    #[inline(always)]
    pub(crate) fn is_own(&self) -> bool {
        self.lanes.len() == 1
    }

    /// Whether the transaction at this place of this lane is to be carried out.
    pub(crate) fn has(&self, lane: usize, place: u64) -> bool {
        self.lanes.iter().any(|&(held, from)| held == lane && from <= place)
    }

    /// Where to begin.
    pub(crate) fn first(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.1).min().unwrap_or(0)
    }

    /// All before this place is finished of all lanes held.
    #[inline(always)]
    pub(crate) fn advance(&self, lanes: &impl Lanes, place: u64) {
        for &(lane, from) in &self.lanes {
            lanes.advance(lane, place.max(from));
        }
    }

    /// For who waits at this place of a lap that begins at another: takes what is free and stands between. Whether anything was.
    pub(crate) fn take_over(&mut self, lanes: &impl Lanes, count: usize, between: Range<u64>) -> bool {
        for (_, from) in &mut self.lanes {
            *from = between.end.max(*from);
        }
        let before = self.lanes.len();
        for lane in 0..count {
            if self.lanes.iter().any(|held| held.0 == lane) || !between.contains(&lanes.next(lane)) {
                continue;
            }
            if lanes.take(lane) {
                // Another may have held it meanwhile.
                let next = lanes.next(lane);
                if between.contains(&next) {
                    self.lanes.push((lane, next));
                } else {
                    lanes.release(lane);
                }
            }
        }
        self.lanes.len() > before
    }

    /// For who has come to this place: gives back the lanes of others for which this holds; whether there was one.
    pub(crate) fn give_back(
        &mut self,
        lanes: &impl Lanes,
        place: u64,
        which: impl Fn(usize) -> bool,
    ) -> bool {
        let (own, before) = (self.lanes[0].0, self.lanes.len());
        for (_, from) in &mut self.lanes {
            *from = place.max(*from);
        }
        self.lanes.retain(|&(lane, _)| {
            let goes = lane != own && which(lane);
            if goes {
                lanes.release(lane);
            }
            !goes
        });
        self.lanes.len() < before
    }

    /// Gives all of them away, at this place.
    pub(crate) fn give_away(&mut self, lanes: &impl Lanes, place: u64) {
        self.give_back(lanes, place, |_| true);
        lanes.release(self.lanes[0].0);
    }

    /// Takes its own lane again, if it is free: the place where it stands.
    pub(crate) fn take_own(&mut self, lanes: &impl Lanes) -> Option<u64> {
        let taken = lanes.take(self.lanes[0].0);
        taken.then(|| self.continue_own(lanes))
    }

    /// Where its own lane stands, which it holds.
    pub(crate) fn continue_own(&mut self, lanes: &impl Lanes) -> u64 {
        let (own, from) = &mut self.lanes[0];
        *from = lanes.next(*own);
        *from
    }
}

/// How long a thread waits before it gives its lane away, and for how long then. Where it had to do so again soon, the processors
/// are not its own: it had better look shortly and stay away for long.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    level: u32,
    since: Option<Instant>,
    /// Whether the pool makes progress.
    pub(crate) still: Option<Still>,
}

/// At first; longer than it takes to wake up. On processors that nobody else wants, nearly all waits are shorter.
const SPIN_NANOS: u64 = 100_000;

/// At first.
const NAP: Duration = Duration::from_micros(50);

/// How often one is halved and the other doubled.
const LEVELS: u32 = 5;

impl Crowd {
    /// Where there are more threads than processors, or not.
    pub(crate) fn new(crowded: bool) -> Crowd {
        Crowd { level: if crowded { LEVELS } else { 0 }, ..Crowd::default() }
    }

    /// Asked for by every transaction: nothing is divided.
    #[inline(always)]
    pub(crate) fn spin(&self) -> Duration {
        Duration::from_nanos(SPIN_NANOS >> self.level)
    }

    pub(crate) fn nap(&self) -> Duration {
        NAP * (1 << self.level)
    }

    /// It has waited for long.
    pub(crate) fn gave_way(&mut self) {
        let soon = self.since.is_some_and(|since| since.elapsed() < 8 * self.nap());
        self.level = if soon { (self.level + 1).min(LEVELS) } else { self.level.saturating_sub(1) };
    }

    /// It goes on.
    pub(crate) fn came_back(&mut self) {
        self.since = Some(Instant::now());
    }
}
