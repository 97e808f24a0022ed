//! The intercept, which every sample reads and moves, without making every sample wait for the one before.
//!
//! Were it a parameter like others, every plan would be a chain. So it lags: samples are cut into blocks in planned order, as
//! long as their number says ([`block_of`]), and a sample of block m is learnt from with the intercept after all samples of the
//! blocks up to m - 2. What
//! each sample moves it by is stored at the sample's place and added up in planned order, so the intercept is the same in
//! every scheme and with any number of threads, and only a thread that is two blocks behind makes others wait.

use super::TrainError;
use super::pool::{Halt, Pool};
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, Ordering::*};
use std::time::Duration;

/// Samples of a block, at most, and where nobody knows how many there will be: a few chunks of work, so that threads hardly ever
/// wait for one another.
pub(crate) const BLOCK: u64 = 64;

/// Samples of a block of an epoch over so many. It depends on nothing else, so every scheme and any number of threads see the same
/// intercept. A few thousand samples are cut into so many blocks that two of them are little of the epoch: longer ones would have
/// the intercept of small data learnt late. A power of two, by which places are divided at each sample.
pub(crate) fn block_of(samples: usize) -> u64 {
    const BLOCKS: usize = 64;
    1 << (samples / BLOCKS).clamp(1, BLOCK as usize).ilog2()
}

/// What the threads share is made of: the machine's memory, or the model checker's.
pub(crate) trait Memory {
    type Word: Atomic<u64>;
    type Count: Atomic<u32>;
    type Gate: Gate;
    /// Blocks that are remembered. A block is begun only when the one two before is summed, and its sum is needed until the block
    /// two after is done: four cover all that can be in use.
    const RING: u64 = 4;
    /// Releases the moves to whoever sums the block.
    const TOLD: Ordering = Release;
    /// Publishes the sum, and the count that begins again for the block that takes this place of the ring.
    const SUMMED: Ordering = Release;
}

/// A number that threads share.
pub(crate) trait Atomic<N>: Debug {
    fn new(number: N) -> Self;
    fn load(&self, order: Ordering) -> N;
    fn store(&self, number: N, order: Ordering);
    fn add(&self, number: N, order: Ordering);
}

/// What one thread is in at a time.
pub(crate) trait Gate: Debug {
    fn new() -> Self;
    /// Does this, unless another thread is in it.
    fn alone(&self, act: impl FnOnce());
}

/// The machine's memory.
#[derive(Debug)]
pub(crate) struct Native;

impl Memory for Native {
    type Word = AtomicU64;
    type Count = AtomicU32;
    type Gate = Mutex<()>;
}

/// That of atomics and locks which are called as the standard library's are.
macro_rules! memory {
    ($($atomic:ty, $number:ty);* => $gate:ty) => {
        $(impl crate::exec::intercept::Atomic<$number> for $atomic {
            fn new(number: $number) -> Self {
                <$atomic>::new(number)
            }

            #[inline(always)]
            fn load(&self, order: std::sync::atomic::Ordering) -> $number {
                <$atomic>::load(self, order)
            }

            #[inline(always)]
            fn store(&self, number: $number, order: std::sync::atomic::Ordering) {
                <$atomic>::store(self, number, order);
            }

            #[inline(always)]
            fn add(&self, number: $number, order: std::sync::atomic::Ordering) {
                <$atomic>::fetch_add(self, number, order);
            }
        })*

        impl crate::exec::intercept::Gate for $gate {
            fn new() -> Self {
                <$gate>::new(())
            }

            fn alone(&self, act: impl FnOnce()) {
                if let Ok(_in) = self.try_lock() {
                    act();
                }
            }
        }
    };
}

memory!(AtomicU64, u64; AtomicU32, u32 => Mutex<()>);

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
pub(crate) type Intercept = Ring<Native>;

/// What the latest blocks move the intercept by, and their sums.
#[derive(Debug)]
pub(crate) struct Ring<M: Memory> {
    start: f64,
    /// Samples of a block: a power of two.
    block: u64,
    moves: Vec<M::Word>,
    done: Vec<M::Count>,
    sums: Vec<M::Word>,
    /// Blocks summed.
    summed: M::Word,
    summing: M::Gate,
}

impl Intercept {
    /// The intercept for the sample at this place (from 0) of the planned order; waits until it is known, at most so
    /// long. Returns polls too.
    pub(crate) fn at(
        &self,
        place: u64,
        lag: &mut Lag,
        pool: &Pool,
        most: Option<Duration>,
    ) -> Result<(f64, u64), Halt> {
        let mut wait = None;
        let value = self.known(place, lag, |block, observed| {
            wait.get_or_insert_with(|| pool.wait_for(place, most)).poll(|| TrainError::Stuck {
                transaction: place + 1,
                what: "the intercept after block",
                number: block,
                expected: self.block as u32,
                observed,
            })
        })?;
        Ok((value, wait.map_or(0, |wait| wait.polls)))
    }
}

impl<M: Memory> Ring<M> {
    /// Beginning with this value, in blocks of so many samples.
    pub(crate) fn new(start: f64, block: u64) -> Ring<M> {
        assert!(block.is_power_of_two(), "blocks of {block} samples");
        Ring {
            start,
            block,
            moves: (0..M::RING * block).map(|_| M::Word::new(0)).collect(),
            done: (0..M::RING).map(|_| M::Count::new(0)).collect(),
            sums: (0..M::RING).map(|_| M::Word::new(0)).collect(),
            summed: M::Word::new(0),
            summing: M::Gate::new(),
        }
    }

    /// As [`Intercept::at`]; before each further look `wait` is told which block it waits for, and how many of its samples are done.
    #[inline]
    fn known<E>(
        &self,
        place: u64,
        lag: &mut Lag,
        mut wait: impl FnMut(u64, u32) -> Result<(), E>,
    ) -> Result<f64, E> {
        let block = self.block_at(place);
        if lag.block == block {
            return Ok(lag.value);
        }
        // Before it waits: others may be waiting for these.
        self.tell(lag);
        let value = if block < 2 {
            self.start
        } else {
            while self.summed.load(Acquire) < block - 1 {
                self.sum();
                if self.summed.load(Acquire) >= block - 1 {
                    break;
                }
                wait(block - 2, self.done[Self::slot(block - 2)].load(Relaxed))?;
            }
            f64::from_bits(self.sums[Self::slot(block - 2)].load(Relaxed))
        };
        *lag = Lag { block, value, done: 0 };
        Ok(value)
    }

    #[inline]
    fn block_at(&self, place: u64) -> u64 {
        place >> self.block.trailing_zeros()
    }

    /// Where the move of the sample at this place lies.
    #[inline]
    fn at_place(&self, place: u64) -> usize {
        // The ring has a power of two of blocks.
        (place & (M::RING * self.block - 1)) as usize
    }

    fn slot(block: u64) -> usize {
        (block % M::RING) as usize
    }

    /// Notes by how much the sample at this place moves the intercept that the thread had for it.
    #[inline]
    pub(crate) fn record(&self, place: u64, by: f64, lag: &mut Lag) {
        debug_assert_eq!(lag.block, self.block_at(place));
        self.moves[self.at_place(place)].store(by.to_bits(), Relaxed);
        lag.done += 1;
    }

    /// Tells others what the thread has done of a block: once it begins another, and when it has nothing left to do. Not at each
    /// sample: all threads count at the same place, and would take it from one another every time. What a thread waits for before
    /// it tells must not wait for what it would tell: transactions before its own do not.
    pub(crate) fn tell(&self, lag: &mut Lag) {
        if lag.done > 0 {
            self.done[Self::slot(lag.block)].add(lag.done, M::TOLD);
            lag.done = 0;
        }
    }

    /// Sums what blocks are complete, unless another thread is at it.
    fn sum(&self) {
        self.summing.alone(|| {
            let mut block = self.summed.load(Relaxed);
            let mut value = self.after(block);
            while self.done[Self::slot(block)].load(Acquire) == self.block as u32 {
                value = (0..self.block).fold(value, |value, at| value - self.moved(block * self.block + at));
                self.sums[Self::slot(block)].store(value.to_bits(), Relaxed);
                self.done[Self::slot(block)].store(0, Relaxed);
                block += 1;
                self.summed.store(block, M::SUMMED);
            }
        });
    }

    /// The intercept after this many blocks.
    fn after(&self, blocks: u64) -> f64 {
        match blocks {
            0 => self.start,
            _ => f64::from_bits(self.sums[Self::slot(blocks - 1)].load(Relaxed)),
        }
    }

    fn moved(&self, place: u64) -> f64 {
        f64::from_bits(self.moves[self.at_place(place)].load(Relaxed))
    }

    /// The intercept after all `samples` samples, where no thread is at work.
    pub(crate) fn settled(&self, samples: u64) -> f64 {
        let blocks = self.summed.load(Relaxed);
        (blocks * self.block..samples).fold(self.after(blocks), |value, place| value - self.moved(place))
    }

    /// As [`Intercept::settled`]; the next sample is number 0 again.
    pub(crate) fn finish(&mut self, samples: u64) -> f64 {
        let end = self.settled(samples);
        *self = Ring::new(end, self.block);
        end
    }
}

#[cfg(test)]
mod explored;
