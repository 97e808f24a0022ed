//! Conflict order planning where each transaction reads and writes the parameters of its sample, and is itself
//! the only reader of what it replaces: compact plans without counters. Specification: `specs/cop.md` 4.
//!
//! The specification has a version beside each value, to be compared by every read and stored by every write. Here no version
//! is stored ([D] in its section 2.2): values alone lie in memory, as in a run without coordination, and each thread tells the
//! place of the transaction that it will do next. A transaction waits until all transactions are finished that wrote what it
//! reads ([`Roster`] says which), then does what it would do if it were alone, then its thread's place moves on. Why that is
//! as good as versions:
//!
//! - *A read sees its planned writer or none later.* The writer w of x planned for t is finished before t reads: w's stores come
//!   before the release of its thread's place, and t has acquired that place, or is of the same thread.
//! - *And nobody has replaced it.* The next writer of x after w is t itself. The one after t has t for its planned writer, and
//!   waits until t is finished, by when t has read. All later ones wait for that one, and so on.
//! - *No two wait for each other*: threads take transactions in ascending order, and wait for earlier ones only. A thread that
//!   waits for long does so without having begun: others may carry out what is its own ([`super::lanes`]).
//!
//! A transaction does not begin before all that it waits for are finished, where with versions it could read the rest of
//! its parameters meanwhile. What it costs to wait for more than necessary is less than to look at a version in every cell; and
//! waits are rare, since the roster has most transactions run where what they wait for ran.

use super::TrainError;
use super::cells::Cells;
use super::lanes::Lanes as _;
use super::pool::{Halt, Pool, WorkerReport};
use super::roster::Roster;
use super::run::{AHEAD_MAX, Executor, Run, Turn, Worker, room};
use crate::data::{Rows, Value, ask_for};
use crate::task::{Sets, Task};
use std::time::Duration;

/// Over cells of any layout.
pub(crate) struct Ordered<'a, C> {
    pub(crate) cells: &'a C,
    pub(crate) roster: &'a Roster,
    /// For each entry of the data, which cell is its feature's: the features themselves, unless parameters are laid out
    /// otherwise ([`super::places`]).
    pub(crate) places: &'a [u32],
    /// For each entry of the data, its weight, where cells do not have it.
    pub(crate) shares: &'a [f32],
}

impl<T: Task, V: Value, C: Cells> Executor<T, V> for Ordered<'_, C> {
    #[inline(always)]
    fn transact(&self, run: &Run<'_, T, V>, worker: &mut Worker, turn: &Turn<'_>) -> Result<(), Halt> {
        let (sample, entries) = (run.rows.sample(turn.row), run.rows.range(turn.row));
        let most = Some(worker.crowd.spin());
        let intercept = run.intercept(turn.place(), &mut worker.lag, &mut worker.report, most)?;
        let Worker { number, read, write, weights, floor, lag, report, .. } = worker;
        let (length, width) = (sample.features.len(), run.width);
        let own = if run.weighted && self.shares.is_empty() { length } else { 0 };
        let buffers = (room(read, length * width), room(weights, own), room(write, length * width));
        let mut others = Pooled { pool: run.pool, own: *number, most, report };
        let compute = |read: &[f64], weights: &[f32], write: &mut [f64]| {
            let weights = if self.shares.is_empty() { weights } else { &self.shares[entries.clone()] };
            let step = run.step(turn.lap, turn.position, intercept, weights);
            run.compute(&sample, &step, turn.place(), lag, (read, write));
        };
        let at = At { position: turn.position, place: turn.place() };
        carry_out::<C, _, Sound>(
            self.cells,
            self.roster,
            at,
            (&mut others, floor),
            &self.places[entries.clone()],
            buffers,
            compute,
        )
    }

    #[inline(always)]
    fn prepare(&self, run: &Run<'_, T, V>, position: u32, _: &mut Sets) {
        let places = &self.places[run.rows.range(run.row(position))];
        self.cells.prefetch_all(places.iter().take(AHEAD_MAX).copied());
    }

    #[inline(always)]
    fn ask(&self, run: &Run<'_, T, V>, row: usize) {
        // Tasks hardly ever look at the features themselves.
        Rows { features: self.places, ..run.rows }.prefetch(row);
        if !self.shares.is_empty() {
            ask_for(&self.shares[run.rows.range(row)]);
        }
    }

    fn owners(&self) -> &[u8] {
        self.roster.owners()
    }

    fn busy(&self, threads: usize) -> usize {
        if self.roster.owners().is_empty() { threads } else { self.roster.busy() }
    }
}

/// A transaction: its position in the lap, and its place since all threads stood at the same.
#[derive(Copy, Clone, Debug)]
pub(crate) struct At {
    pub(crate) position: u32,
    pub(crate) place: u64,
}

/// The other threads of a run.
pub(crate) trait Others {
    /// Number of threads, this one among them, and its own number.
    fn threads(&self) -> (usize, usize);

    /// The place of the transaction that this thread does next: all of its own before are finished. Acquires what they wrote.
    fn next(&self, thread: usize) -> u64;

    /// Waits until that is `least`, for the transaction at this place.
    fn until(&mut self, thread: usize, least: u64, place: u64) -> Result<(), Halt>;
}

/// Mistakes planted by the tests that show that they would be noticed; none by default.
pub(crate) trait Slips {
    /// Values are read before what is waited for is finished.
    const READ_EARLY: bool = false;
    /// Nobody is waited for whom the word does not name.
    const NONE_OLDER: bool = false;
    /// Only the nearest is waited for.
    const NEAREST_ONLY: bool = false;
    /// Others need only have begun.
    const ONE_SHORT: bool = false;
}

/// No mistakes.
pub(crate) struct Sound;

impl Slips for Sound {}

/// Carries out a transaction. All transactions of others before `floor` are finished.
#[inline(always)]
pub(crate) fn carry_out<C: Cells, O: Others, S: Slips>(
    cells: &C,
    roster: &Roster,
    at: At,
    (others, floor): (&mut O, &mut u64),
    places: &[u32],
    (read, weights, write): (&mut [f64], &mut [f32], &mut [f64]),
    compute: impl FnOnce(&[f64], &[f32], &mut [f64]),
) -> Result<(), Halt> {
    if S::READ_EARLY {
        cells.gather(places, read, weights);
    }
    let nearest = u64::from(roster.waits(at.position).trailing_zeros());
    // The transaction `nearest` + 1 before this one, and so all that are waited for, are below the floor: most often.
    if *floor + nearest + u64::from(S::ONE_SHORT) < at.place {
        wait::<O, S>(roster, at, others, floor)?;
    }
    if !S::READ_EARLY {
        cells.gather(places, read, weights);
    }
    compute(read, weights, write);
    cells.scatter(places, write);
    Ok(())
}

#[cold]
fn wait<O: Others, S: Slips>(roster: &Roster, at: At, others: &mut O, floor: &mut u64) -> Result<(), Halt> {
    let place = at.place;
    let (threads, own) = others.threads();
    let all = (0..threads).filter(move |&other| other != own);
    // Far enough below the end of numbers to be added to.
    let lowest = |others: &O| all.clone().map(|other| others.next(other)).min().unwrap_or(u64::MAX / 2);
    *floor = lowest(others);
    let mut waits = roster.waits(at.position);
    if *floor + u64::from(waits.trailing_zeros()) >= place {
        return Ok(());
    }
    let older = waits.ilog2();
    while waits != 0 {
        let back = waits.trailing_zeros();
        waits &= waits - 1;
        let least = place.saturating_sub(u64::from(back) + u64::from(S::ONE_SHORT));
        match roster.owner(at.position, back) {
            // What is of this thread itself is finished.
            Some(owner) if owner == own && back < older => {}
            Some(owner) if back < older => others.until(owner, least, place)?,
            // All older ones, whosever they are; or one of an earlier lap, of which it is not known whose it is.
            _ if S::NONE_OLDER => {}
            _ => all.clone().try_for_each(|other| others.until(other, least, place))?,
        }
        if S::NEAREST_ONLY {
            break;
        }
    }
    *floor = lowest(others);
    Ok(())
}

/// The threads of a pool, as one of them sees them.
pub(crate) struct Pooled<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) own: usize,
    /// How long it waits before it gives way; `None` for as long as it takes.
    pub(crate) most: Option<Duration>,
    pub(crate) report: &'a mut WorkerReport,
}

impl Others for Pooled<'_> {
    fn threads(&self) -> (usize, usize) {
        (self.pool.threads(), self.own)
    }

    fn next(&self, thread: usize) -> u64 {
        self.pool.next(thread)
    }

    fn until(&mut self, thread: usize, least: u64, place: u64) -> Result<(), Halt> {
        let mut wait = self.pool.wait_for(place, self.most);
        let ended = loop {
            let next = self.pool.next(thread);
            if next >= least {
                break Ok(());
            }
            let stuck = || TrainError::Stuck {
                transaction: place + 1,
                what: "the next transaction of thread",
                number: thread as u64,
                expected: least as u32 + 1,
                observed: next as u32 + 1,
            };
            if let Err(halt) = wait.poll(stuck) {
                break Err(halt);
            }
        };
        self.report.read_polls += wait.polls;
        self.report.blocked += wait.blocked();
        ended
    }
}
