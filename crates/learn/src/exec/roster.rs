//! Who carries out which transaction, and for whom each of them waits: what the threads of a run make of a compact plan before
//! they begin.
//!
//! A plan tells of each entry who wrote it last. What a thread needs to know is less: which of the transactions just before
//! its own, that others carry out, it must let finish first. All older ones are finished long since, unless a thread has
//! fallen far behind, and one comparison tells. So for each transaction there is a word here, with a bit for each of the
//! [`REACH`] before it; with the number of its thread that is a quarter of a byte for an entry where samples have forty, and the
//! versions of the plan are not looked at again.
//!
//! Nor need it be left to chance who carries out what. A transaction that waits for the one just before it had better run
//! where that one ran: then it need not wait, and finds in the cache what it is to read. So time is simulated, in which a
//! transaction takes as long as it has entries, and each is given to the thread that could begin it first ([`Clock`]). Any
//! choice is right, and the model is the same with all of them: each thread carries out its own in ascending order, so the
//! first that is not finished never waits (specs/cop.md 4.3). Threads that would hardly make it faster get none ([`enough`]):
//! each takes lines of memory from the others, and where a plan keeps three busy, eight are slower.

use super::cycle::Cycle;
use super::places::Places;
use super::source::within;
use crate::data::{Rows, Value};
use crate::shares::each_share;
use std::sync::{Arc, Mutex, PoisonError};

/// Transactions before its own that a word tells apart. Its last bit, which is always set, stands for all older ones.
pub(crate) const REACH: u32 = 63;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// The thread that carries out each transaction; empty where there is one.
    owners: Vec<u8>,
    busy: usize,
    /// Bit b: waits for the transaction b + 1 before it. The highest one set is [`REACH`], and stands for all before.
    waits: Vec<u64>,
}

impl Roster {
    /// For the versions of a compact plan, or of one that is stitched: relative to the lap. In a cycle, first touches are those
    /// of the lap before. A `chunk` other than 0 gives the threads so many consecutive transactions each, by turns.
    pub(crate) fn new<V: Value>(
        versions: (&[u32], Option<&Cycle>),
        rows: &Rows<'_, V>,
        order: Option<&[u32]>,
        threads: usize,
        chunk: u32,
    ) -> Roster {
        Roster::reaching(REACH, versions, rows, order, threads, chunk)
    }

    /// The same, with fewer transactions told apart.
    pub(crate) fn reaching<V: Value>(
        reach: u32,
        (versions, cycle): (&[u32], Option<&Cycle>),
        rows: &Rows<'_, V>,
        order: Option<&[u32]>,
        threads: usize,
        chunk: u32,
    ) -> Roster {
        let samples = rows.labels.len();
        if threads < 2 {
            return Roster::default();
        }
        let mut roster = Roster { owners: vec![0; samples], busy: 1, waits: vec![0; samples] };
        // A part for each thread, in which it simulates by itself. That is not worth a thread for what is done in microseconds.
        let part = samples.div_ceil(threads).max(1 << 12);
        let parts = roster.owners.chunks_mut(part).zip(roster.waits.chunks_mut(part)).enumerate();
        let fill = |threads, first| Fill { reach, versions, cycle, rows, order, threads, chunk, first };
        let threads = threads.min(256);
        let threads = if chunk == 0 { enough(threads, samples, fill) } else { threads };
        let fill = |(number, (owners, waits)): (usize, (&mut [u8], &mut [u64]))| {
            fill(threads, number * part).fill(owners, waits);
        };
        each_share(parts, fill);
        roster.busy = roster.owners.iter().max().map_or(1, |last| usize::from(*last) + 1);
        roster
    }

    /// Threads that carry out anything: the first ones, of which there is at least one.
    pub(crate) fn busy(&self) -> usize {
        self.busy.max(1)
    }

    /// The thread of each transaction; empty where there is one.
    pub(crate) fn owners(&self) -> &[u8] {
        &self.owners
    }

    /// The thread of the transaction `back` + 1 before this one; `None` where that one is of an earlier lap.
    pub(crate) fn owner(&self, position: u32, back: u32) -> Option<usize> {
        let before = position.checked_sub(back + 1)?;
        Some(usize::from(self.owners[before as usize]))
    }

    /// For whom this transaction waits.
    #[inline(always)]
    pub(crate) fn waits(&self, position: u32) -> u64 {
        self.waits.get(position as usize).copied().unwrap_or(1 << REACH)
    }
}

/// What was last made of a plan: a roster, for so many threads and this chunk, and places, if they were asked for. They serve
/// every model that is learnt by the plan. What they follow from is compared and copied, and not they.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    roster: Last<(usize, u32), Roster>,
    places: Last<(), Places>,
}

impl Kept {
    /// The roster for so many threads and this chunk, made if it is not there.
    pub(crate) fn roster(&self, threads: usize, chunk: u32, make: impl FnOnce() -> Roster) -> Arc<Roster> {
        self.roster.or_make((threads, chunk), |_| true, make)
    }

    /// Places, with shares if they are wanted; made if they are not there.
    pub(crate) fn places(&self, shares: bool, make: impl FnOnce() -> Places) -> Arc<Places> {
        self.places.or_make((), |places| !shares || places.has_shares(), make)
    }
}

/// The last one that was made, and what for.
#[derive(Debug)]
struct Last<K, M>(Mutex<Option<(K, Arc<M>)>>);

impl<K, M> Default for Last<K, M> {
    fn default() -> Last<K, M> {
        Last(Mutex::new(None))
    }
}

impl<K: PartialEq, M> Last<K, M> {
    /// The one for this, if it will do; else another.
    fn or_make(&self, key: K, will_do: impl Fn(&M) -> bool, make: impl FnOnce() -> M) -> Arc<M> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*lock() {
            Some((its, made)) if *its == key && will_do(made) => return made.clone(),
            _ => {}
        }
        // Nobody waits meanwhile who wants another one, or has it.
        let made = Arc::new(make());
        *lock() = Some((key, made.clone()));
        made
    }
}

impl Clone for Kept {
    fn clone(&self) -> Kept {
        Kept::default()
    }
}

impl PartialEq for Kept {
    fn eq(&self, _: &Kept) -> bool {
        true
    }
}

impl Eq for Kept {}

/// The numbers with one bit set.
const BITS: [u64; 64] = {
    let (mut bits, mut at) = ([0; 64], 0);
    while at < 64 {
        bits[at] = 1 << at;
        at += 1;
    }
    bits
};

/// Places in the data from which transactions are tried to tell how many threads are enough, and at most so many at each.
const TRIES: usize = 4;
const TRIED: usize = 512;

/// The fewest threads, of so many, with which simulated time is at most a tenth longer than with all: that of an eighth of the
/// transactions, spread over all of them, since neighbours are often alike.
fn enough<'a, V: Value + 'a>(
    threads: usize,
    samples: usize,
    fill: impl Fn(usize, usize) -> Fill<'a, V>,
) -> usize {
    if threads <= 2 {
        return threads;
    }
    let count = (samples / (8 * TRIES)).clamp(samples.min(64), TRIED);
    let (mut owners, mut waits) = (vec![0; count], vec![0; count]);
    let firsts = (0..TRIES).map(|at| (samples - count) * (2 * at + 1) / (2 * TRIES));
    let mut takes = |threads| -> u64 {
        firsts.clone().map(|first| fill(threads, first).fill(&mut owners, &mut waits)).sum()
    };
    let all = takes(threads);
    // 2, 3, 4, 6, 8, 12, 16 and so on.
    let steps = (1..).flat_map(|doubled: u32| [2 << (doubled - 1), 3 << (doubled - 1)]);
    let fewer = steps.take_while(|fewer| *fewer < threads);
    fewer.into_iter().find(|fewer| takes(*fewer) * 10 <= all * 11).unwrap_or(threads)
}

/// How one thread fills its part.
struct Fill<'a, V> {
    reach: u32,
    versions: &'a [u32],
    cycle: Option<&'a Cycle>,
    rows: &'a Rows<'a, V>,
    order: Option<&'a [u32]>,
    threads: usize,
    chunk: u32,
    /// The part's first transaction.
    first: usize,
}

impl<V: Value> Fill<'_, V> {
    /// Simulated time until all of it is done, in entries.
    fn fill(&self, owners: &mut [u8], waits: &mut [u64]) -> u64 {
        let mut clock = Clock::new(self.threads);
        let older = 1_u64 << self.reach;
        for at in 0..owners.len() {
            let position = self.first + at;
            let row = self.order.map_or(position, |order| order[position] as usize);
            let entries = self.rows.range(row);
            let length = entries.len() as u64;
            let mut near = 0_u64;
            // A bit looked up, since what shifts by any number takes three steps on most processors of this kind.
            let back = |version: u32| BITS[(position as u32).wrapping_sub(version).min(REACH) as usize];
            let versions = &self.versions[entries.clone()];
            if self.cycle.is_some() && position < REACH as usize {
                // The last transactions of the lap before are near.
                for (&version, &feature) in versions.iter().zip(&self.rows.features[entries]) {
                    near |= back(within(self.cycle, version, feature));
                }
            } else {
                versions.iter().for_each(|&version| near |= back(version));
            }
            near &= older - 1;
            // Whose those before the part are is not known yet.
            let known = if at < 64 { (1 << at) - 1 } else { u64::MAX };
            let owner = match self.chunk {
                0 => clock.choose(near & known, &owners[..at]),
                chunk => position / chunk as usize % self.threads,
            };
            let others = near & !clock.took[owner];
            let nearest = others & others.wrapping_neg();
            // Of one other thread, what is nearest implies the rest.
            let others = if self.threads == 2 && nearest != 0 && at >= 64 { nearest } else { others };
            waits[at] = others | older;
            clock.took(owner, length);
            owners[at] = owner as u8;
        }
        if self.chunk == 0 && !clock.pays() {
            owners.fill(0);
            for (at, waits) in waits.iter_mut().enumerate() {
                // What is before the part may be another's.
                *waits &= if at < 64 { u64::MAX << at } else { 0 };
                *waits |= older;
            }
        }
        clock.end()
    }
}

/// Simulated time, in entries.
struct Clock {
    /// Transactions so far.
    at: usize,
    /// The bits of those that may not be done yet.
    recent: u64,
    /// What all transactions take.
    total: u64,
    /// When each thread is done with what it was given.
    free: Vec<u64>,
    /// Of each thread, a bit for each of the last 64 transactions, the latest lowest: whether it is its own.
    took: Vec<u64>,
    /// When each of the last 64 is done, by their number.
    ends: [u64; 64],
    /// When the one chosen for can begin.
    start: u64,
}

/// What a transaction takes beside its entries.
const EACH: u64 = 8;

/// What it takes until another thread knows that one is done, and has what it wrote: longer than it would seem, so that who
/// could begin at once hardly ever waits.
const HANDOVER: u64 = 60;

/// For each thread, transactions before one that may not be done yet when it begins.
const RECENT: u32 = 4;

impl Clock {
    fn new(threads: usize) -> Clock {
        let recent = u64::MAX >> (64 - (RECENT * threads as u32).min(64));
        Clock {
            at: 0,
            recent,
            total: 0,
            free: vec![0; threads],
            took: vec![0; threads],
            ends: [0; 64],
            start: 0,
        }
    }

    /// The thread that can begin first what waits for these (bits as in [`Roster`]).
    #[inline(always)]
    fn choose(&mut self, near: u64, owners: &[u8]) -> usize {
        let mut recent = near & self.recent;
        // The latest end of those that it waits for and whose it is, and the latest end of all others'.
        let (mut late, mut its, mut other) = (0, None, 0);
        while recent != 0 {
            let before = self.at - 1 - recent.trailing_zeros() as usize;
            recent &= recent - 1;
            let (owner, end) = (usize::from(owners[before]), self.ends[before % 64]);
            if Some(owner) == its {
                late = late.max(end);
            } else if end > late {
                (other, late, its) = (other.max(late), end, Some(owner));
            } else {
                other = other.max(end);
            }
        }
        let handed = |end: u64| if end == 0 { 0 } else { end + HANDOVER };
        let (mut least, mut start) = (0, u64::MAX);
        for (thread, &free) in self.free.iter().enumerate() {
            let ready = if Some(thread) == its { late.max(handed(other)) } else { handed(late) };
            let starts = free.max(ready);
            // Where it is as soon, it runs where what it waits for ran.
            if starts < start || (starts == start && Some(thread) == its) {
                (least, start) = (thread, starts);
            }
        }
        self.start = start;
        least
    }

    /// It is given to this thread.
    #[inline(always)]
    fn took(&mut self, owner: usize, length: u64) {
        let end = self.start.max(self.free[owner]) + length + EACH;
        self.free[owner] = end;
        self.ends[self.at % 64] = end;
        self.took.iter_mut().for_each(|took| *took <<= 1);
        self.took[owner] |= 1;
        self.total += length + EACH;
        self.at += 1;
    }

    /// Whether several threads are worth it. What they hand each other all the time costs more than time here knows of: of
    /// samples with 100 of 10,000 features two threads, which could be 1.27 times as fast, take more than twice as long as one.
    fn pays(&self) -> bool {
        self.total * 5 >= self.end() * 7
    }

    /// When all is done.
    fn end(&self) -> u64 {
        self.free.iter().max().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, Values};

    /// How many of so many threads are given transactions, where each waits for the one `width` before it and no other.
    fn given(width: u32, threads: usize) -> usize {
        let samples = 10_000_u32;
        let offsets: Vec<u64> = (0..=u64::from(samples)).collect();
        let features: Vec<u32> = (0..samples).map(|at| at % width).collect();
        let values = vec![1.0; samples as usize];
        let data =
            Dataset::new(offsets, features, Values::F64(values.clone().into()), values, width).unwrap();
        let versions: Vec<u32> = (0..samples).map(|at| (at + 1).saturating_sub(width)).collect();
        let rows = Rows::<f64>::of(&data, &[]);
        let roster = Roster::new((&versions, None), &rows, None, threads, 0);
        let mut owners = roster.owners().to_vec();
        owners.sort_unstable();
        owners.dedup();
        owners.len()
    }

    #[test]
    fn threads_that_a_plan_cannot_keep_busy_are_given_nothing() {
        assert_eq!([1, 3, 40].map(|width| given(width, 8)), [1, 3, 8]);
        assert_eq!([1, 3, 40].map(|width| given(width, 2)), [1, 2, 2]);
    }

    #[test]
    fn a_roster_is_made_once_for_so_many_threads() {
        let (kept, mut made) = (Kept::default(), 0);
        let mut ask = |kept: &Kept, threads, chunk| {
            let make = || {
                made += 1;
                Roster { owners: vec![threads as u8], busy: threads, waits: vec![made] }
            };
            kept.roster(threads, chunk, make).waits[0]
        };
        assert_eq!([ask(&kept, 2, 0), ask(&kept, 2, 0), ask(&kept, 3, 0), ask(&kept, 3, 1)], [1, 1, 2, 3]);
        // Who copies a plan may alter the copy.
        assert_eq!([ask(&kept.clone(), 3, 1), ask(&kept, 3, 1)], [4, 3]);
    }
}
