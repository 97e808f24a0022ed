//! The intercept, which every sample reads and moves, without making every sample wait for the one before.
//!
//! Were it a parameter like others, every plan would be a chain. So it lags: samples are cut into blocks of [`BLOCK`] in
//! planned order, and a sample of block m is learnt from with the intercept after all samples of the blocks up to m - 2. What
//! each sample moves it by is stored at the sample's place and added up in planned order, so the intercept is the same in
//! every scheme and with any number of threads, and only a thread that is two blocks behind makes others wait.

use super::TrainError;
use super::pool::{Halt, Pool};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

/// Samples of a block. Blocks of the size of a few chunks of work keep threads from waiting; much larger ones would have
/// the intercept of small data learnt late.
pub(crate) const BLOCK: u64 = 64;

/// Blocks that are remembered. A block is begun only when the one two before is summed, and its sum is needed until the block
/// two after is done: four cover all that can be in use.
const RING: u64 = 4;

/// The intercept before the samples of a block, as a thread remembers it.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Lag {
    block: u64,
    value: f64,
    /// Samples of the block that the thread has done, which no other has been told yet.
    done: u32,
}

impl Lag {
    pub(crate) fn unknown() -> Lag {
        Lag { block: u64::MAX, value: 0.0, done: 0 }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Intercept {
    start: f64,
    moves: Vec<AtomicU64>,
    done: Vec<AtomicU32>,
    sums: Vec<AtomicU64>,
    /// Blocks summed.
    summed: AtomicU64,
    summing: Mutex<()>,
}

impl Intercept {
    pub(crate) fn new(start: f64) -> Intercept {
        Intercept {
            start,
            moves: (0..RING * BLOCK).map(|_| AtomicU64::new(0)).collect(),
            done: (0..RING).map(|_| AtomicU32::new(0)).collect(),
            sums: (0..RING).map(|_| AtomicU64::new(0)).collect(),
            summed: AtomicU64::new(0),
            summing: Mutex::new(()),
        }
    }

    /// The intercept for the sample at this place (from 0) of the planned order; waits until it is known, at most so
    /// long. Returns polls too.
    pub(crate) fn at(
        &self,
        place: u64,
        lag: &mut Lag,
        pool: &Pool,
        most: Option<Duration>,
    ) -> Result<(f64, u64), Halt> {
        let block = place / BLOCK;
        if lag.block == block {
            return Ok((lag.value, 0));
        }
        // Before it waits: others may be waiting for these.
        self.tell(lag);
        let mut polls = 0;
        let value = if block < 2 {
            self.start
        } else {
            let mut wait = pool.wait_for(place, most);
            while self.summed.load(Acquire) < block - 1 {
                self.sum();
                if self.summed.load(Acquire) >= block - 1 {
                    break;
                }
                wait.poll(|| TrainError::Stuck {
                    transaction: place + 1,
                    what: "the intercept after block",
                    number: block - 2,
                    expected: BLOCK as u32,
                    observed: self.done[((block - 2) % RING) as usize].load(Relaxed),
                })?;
            }
            polls = wait.polls;
            f64::from_bits(self.sums[((block - 2) % RING) as usize].load(Relaxed))
        };
        *lag = Lag { block, value, done: 0 };
        Ok((value, polls))
    }

    /// Notes by how much the sample at this place moves the intercept that the thread had for it.
    #[inline]
    pub(crate) fn record(&self, place: u64, by: f64, lag: &mut Lag) {
        debug_assert_eq!(lag.block, place / BLOCK);
        self.moves[(place % (RING * BLOCK)) as usize].store(by.to_bits(), Relaxed);
        lag.done += 1;
    }

    /// Tells others what the thread has done of a block: once it begins another, and when it has nothing left to do. Not at each
    /// sample: all threads count at the same place, and would take it from one another every time. What a thread waits for before
    /// it tells must not wait for what it would tell: transactions before its own do not.
    pub(crate) fn tell(&self, lag: &mut Lag) {
        if lag.done > 0 {
            // Releases the moves to whoever sums the block.
            self.done[(lag.block % RING) as usize].fetch_add(lag.done, Release);
            lag.done = 0;
        }
    }

    /// Sums what blocks are complete, unless another thread is at it.
    fn sum(&self) {
        let Ok(_summing) = self.summing.try_lock() else { return };
        let mut block = self.summed.load(Relaxed);
        let mut value = self.after(block);
        while self.done[(block % RING) as usize].load(Acquire) == BLOCK as u32 {
            value = (0..BLOCK).fold(value, |value, at| value - self.moved(block * BLOCK + at));
            self.sums[(block % RING) as usize].store(value.to_bits(), Relaxed);
            self.done[(block % RING) as usize].store(0, Relaxed);
            block += 1;
            // Publishes the sum, and the count that begins again for the block that takes this place of the ring.
            self.summed.store(block, Release);
        }
    }

    /// The intercept after this many blocks.
    fn after(&self, blocks: u64) -> f64 {
        match blocks {
            0 => self.start,
            _ => f64::from_bits(self.sums[((blocks - 1) % RING) as usize].load(Relaxed)),
        }
    }

    fn moved(&self, place: u64) -> f64 {
        f64::from_bits(self.moves[(place % (RING * BLOCK)) as usize].load(Relaxed))
    }

    /// The intercept after all `samples` samples, where no thread is at work.
    pub(crate) fn settled(&self, samples: u64) -> f64 {
        let blocks = self.summed.load(Relaxed);
        (blocks * BLOCK..samples).fold(self.after(blocks), |value, place| value - self.moved(place))
    }

    /// As [`Intercept::settled`]; the next sample is number 0 again.
    pub(crate) fn finish(&mut self, samples: u64) -> f64 {
        let end = self.settled(samples);
        *self = Intercept::new(end);
        end
    }
}
