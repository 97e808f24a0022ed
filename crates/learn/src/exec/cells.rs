//! How parameters lie in memory while threads work on them: a layout for each need.

use super::prefetch::prefetch;
use crate::memory::collected;
use crate::shares::each_share;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Values that all threads may read and write at any time, none of them torn.
pub(crate) trait Cells: Sync {
    /// Copies the values of a parameter to `out`, at the place of the `at`th parameter there.
    fn load(&self, parameter: u32, out: &mut [f64], at: usize);

    /// Takes the values of a parameter from `from`, at the place of the `at`th parameter there.
    fn store(&self, parameter: u32, from: &[f64], at: usize);

    /// One over the number of samples that touch the parameter; 0 where the task did not ask.
    fn weight(&self, parameter: u32) -> f32;

    /// Asks for the parameter's memory.
    fn prefetch(&self, parameter: u32);

    /// Asks for the memory of these parameters.
    #[inline(always)]
    fn prefetch_all(&self, parameters: impl Iterator<Item = u32>) {
        parameters.for_each(|parameter| self.prefetch(parameter));
    }

    /// Loads all of these parameters, and their weights where there is room for them.
    #[inline(always)]
    fn gather(&self, parameters: &[u32], values: &mut [f64], weights: &mut [f32]) {
        for (at, &parameter) in parameters.iter().enumerate() {
            self.load(parameter, values, at);
        }
        for (weight, &parameter) in weights.iter_mut().zip(parameters) {
            *weight = self.weight(parameter);
        }
    }

    /// Stores all of these parameters.
    #[inline(always)]
    fn scatter(&self, parameters: &[u32], values: &[f64]) {
        for (at, &parameter) in parameters.iter().enumerate() {
            self.store(parameter, values, at);
        }
    }

    /// Multiplies all values by this, where no thread is at work.
    fn scale(&self, threads: usize, by: f64);

    /// Copies all values to `out`, where no thread is at work.
    fn export(&self, threads: usize, out: &mut [f64]);
}

/// Cells with a word beside the values: a version, a lock, or both.
pub(crate) trait Words: Cells {
    /// The word of a parameter.
    fn word(&self, parameter: u32) -> &AtomicU32;
}

/// What conflict order planning needs of cells (specs/cop.md 4.1). The order in which a transaction makes these calls is the
/// protocol; the memory ordering of each is fixed here.
pub(crate) trait Planned {
    /// Number of the transaction that wrote the value. Acquires what it published.
    fn version(&self, parameter: u32) -> u32;

    /// Copies the values, as [`Cells::load`].
    fn read(&self, parameter: u32, out: &mut [f64], at: usize);

    /// Counts a reader of this version, once it has taken the value: releases that read to the writer that waits for it.
    fn count(&self, parameter: u32);

    /// Readers of this version so far. Acquires their reads.
    fn readers(&self, parameter: u32) -> u32;

    /// Starts the count again for the next version.
    fn restart(&self, parameter: u32);

    /// Stores the values, as [`Cells::store`].
    fn write(&self, parameter: u32, from: &[f64], at: usize);

    /// Makes value and count visible as this version.
    fn publish(&self, parameter: u32, version: u32);

    /// Whether the values are those already: for a planted mistake only.
    fn unchanged(&self, _parameter: u32, _from: &[f64], _at: usize) -> bool {
        false
    }
}

/// Planned cells as a run begins, resets and checks them.
pub(crate) trait Heads: Cells + Planned {
    /// Sets version and count of every parameter to what `head` says of it, where no thread is at work.
    fn set_heads(&self, threads: usize, head: impl Fn(usize) -> (u32, u32) + Sync);
}

/// A value alone: eight bytes. For one number a parameter, without coordination and without weights.
#[derive(Debug)]
pub(crate) struct Bare<'a> {
    cells: Vec<AtomicU64>,
    /// Which cell is that of each parameter; empty where they lie in their order. What is asked for and handed out goes by
    /// cells.
    places: &'a [u32],
}

impl Bare<'_> {
    pub(crate) fn new(values: &[f64]) -> Bare<'static> {
        let cells = collected(values.iter().map(|value| AtomicU64::new(value.to_bits())));
        Bare { cells, places: &[] }
    }

    /// Laid out so, on so many threads.
    pub(crate) fn laid_out<'a>(values: &[f64], places: &'a [u32], threads: usize) -> Bare<'a> {
        let cells = collected(values.iter().map(|_| AtomicU64::new(0)));
        in_parallel(places, threads, |parameter, &place| {
            cells[place as usize].store(values[parameter].to_bits(), Relaxed);
        });
        Bare { cells, places }
    }
}

impl Cells for Bare<'_> {
    #[inline(always)]
    fn load(&self, parameter: u32, out: &mut [f64], at: usize) {
        out[at] = f64::from_bits(self.cells[parameter as usize].load(Relaxed));
    }

    #[inline(always)]
    fn store(&self, parameter: u32, from: &[f64], at: usize) {
        self.cells[parameter as usize].store(from[at].to_bits(), Relaxed);
    }

    fn weight(&self, _: u32) -> f32 {
        0.0
    }

    #[inline(always)]
    fn prefetch(&self, parameter: u32) {
        prefetch(&self.cells[parameter as usize]);
    }

    // A slice of one's own in each of these: otherwise its address is looked up again for every entry.

    #[inline(always)]
    fn prefetch_all(&self, parameters: impl Iterator<Item = u32>) {
        let cells = &self.cells[..];
        parameters.for_each(|parameter| prefetch(&cells[parameter as usize]));
    }

    #[inline(always)]
    fn gather(&self, parameters: &[u32], values: &mut [f64], _: &mut [f32]) {
        let cells = &self.cells[..];
        for (&parameter, value) in parameters.iter().zip(values) {
            *value = f64::from_bits(cells[parameter as usize].load(Relaxed));
        }
    }

    #[inline(always)]
    fn scatter(&self, parameters: &[u32], values: &[f64]) {
        let cells = &self.cells[..];
        for (&parameter, value) in parameters.iter().zip(values) {
            cells[parameter as usize].store(value.to_bits(), Relaxed);
        }
    }

    fn scale(&self, threads: usize, by: f64) {
        in_parallel(&self.cells, threads, |_, value| multiply(value, by));
    }

    fn export(&self, threads: usize, out: &mut [f64]) {
        if self.places.is_empty() {
            copied(&self.cells, threads, out, |cell| cell);
        } else {
            copied(self.places, threads, out, |&place| &self.cells[place as usize]);
        }
    }
}

/// A value with a word beside it, and four more bytes: one number a parameter, four of them a cache line.
#[repr(C, align(16))]
#[derive(Debug)]
struct Single {
    value: AtomicU64,
    word: AtomicU32,
    /// The weight, or the number of readers.
    beside: AtomicU32,
}

fn singles(values: &[f64], beside: impl Fn(usize) -> u32) -> Vec<Single> {
    let cell = |(at, value): (usize, &f64)| Single {
        value: AtomicU64::new(value.to_bits()),
        word: AtomicU32::new(0),
        beside: AtomicU32::new(beside(at)),
    };
    collected(values.iter().enumerate().map(cell))
}

/// Parameters of one number each, with the weight beside it: what it takes to regularise costs no second way to memory.
#[derive(Debug)]
pub(crate) struct Singles(Vec<Single>);

impl Singles {
    /// With these values and weights (none: all 0); words are 0.
    pub(crate) fn new(values: &[f64], weights: &[f32]) -> Singles {
        Singles(singles(values, |at| weights.get(at).copied().unwrap_or(0.0).to_bits()))
    }
}

impl Cells for Singles {
    #[inline(always)]
    fn load(&self, parameter: u32, out: &mut [f64], at: usize) {
        out[at] = f64::from_bits(self.0[parameter as usize].value.load(Relaxed));
    }

    #[inline(always)]
    fn store(&self, parameter: u32, from: &[f64], at: usize) {
        self.0[parameter as usize].value.store(from[at].to_bits(), Relaxed);
    }

    #[inline(always)]
    fn weight(&self, parameter: u32) -> f32 {
        f32::from_bits(self.0[parameter as usize].beside.load(Relaxed))
    }

    #[inline(always)]
    fn prefetch(&self, parameter: u32) {
        prefetch(&self.0[parameter as usize]);
    }

    #[inline(always)]
    fn prefetch_all(&self, parameters: impl Iterator<Item = u32>) {
        let cells = &self.0[..];
        parameters.for_each(|parameter| prefetch(&cells[parameter as usize]));
    }

    #[inline(always)]
    fn gather(&self, parameters: &[u32], values: &mut [f64], weights: &mut [f32]) {
        let cells = &self.0[..];
        if weights.is_empty() {
            for (&parameter, value) in parameters.iter().zip(values) {
                *value = f64::from_bits(cells[parameter as usize].value.load(Relaxed));
            }
        } else {
            for ((&parameter, value), weight) in parameters.iter().zip(values).zip(weights) {
                let cell = &cells[parameter as usize];
                *value = f64::from_bits(cell.value.load(Relaxed));
                *weight = f32::from_bits(cell.beside.load(Relaxed));
            }
        }
    }

    #[inline(always)]
    fn scatter(&self, parameters: &[u32], values: &[f64]) {
        let cells = &self.0[..];
        for (&parameter, value) in parameters.iter().zip(values) {
            cells[parameter as usize].value.store(value.to_bits(), Relaxed);
        }
    }

    fn scale(&self, threads: usize, by: f64) {
        in_parallel(&self.0, threads, |_, cell| multiply(&cell.value, by));
    }

    fn export(&self, threads: usize, out: &mut [f64]) {
        copied(&self.0, threads, out, |cell| &cell.value);
    }
}

impl Words for Singles {
    #[inline(always)]
    fn word(&self, parameter: u32) -> &AtomicU32 {
        &self.0[parameter as usize].word
    }
}

/// Parameters of one number each, with a counter of readers beside it.
#[derive(Debug)]
pub(crate) struct Counted {
    cells: Singles,
    weights: Vec<f32>,
}

impl Counted {
    /// With these values and weights (none: all 0); versions and counters are 0.
    pub(crate) fn new(values: &[f64], weights: &[f32]) -> Counted {
        Counted { cells: Singles(singles(values, |_| 0)), weights: weights.to_vec() }
    }
}

impl Cells for Counted {
    #[inline(always)]
    fn load(&self, parameter: u32, out: &mut [f64], at: usize) {
        self.cells.load(parameter, out, at);
    }

    #[inline(always)]
    fn store(&self, parameter: u32, from: &[f64], at: usize) {
        self.cells.store(parameter, from, at);
    }

    #[inline(always)]
    fn weight(&self, parameter: u32) -> f32 {
        self.weights.get(parameter as usize).copied().unwrap_or(0.0)
    }

    #[inline(always)]
    fn prefetch(&self, parameter: u32) {
        self.cells.prefetch(parameter);
        if let Some(weight) = self.weights.get(parameter as usize) {
            prefetch(weight);
        }
    }

    fn scale(&self, threads: usize, by: f64) {
        self.cells.scale(threads, by);
    }

    fn export(&self, threads: usize, out: &mut [f64]) {
        self.cells.export(threads, out);
    }
}

impl Planned for Counted {
    #[inline(always)]
    fn version(&self, parameter: u32) -> u32 {
        self.cells.word(parameter).load(Acquire)
    }

    #[inline(always)]
    fn read(&self, parameter: u32, out: &mut [f64], at: usize) {
        self.cells.load(parameter, out, at);
    }

    #[inline(always)]
    fn count(&self, parameter: u32) {
        self.cells.0[parameter as usize].beside.fetch_add(1, Release);
    }

    #[inline(always)]
    fn readers(&self, parameter: u32) -> u32 {
        self.cells.0[parameter as usize].beside.load(Acquire)
    }

    #[inline(always)]
    fn restart(&self, parameter: u32) {
        self.cells.0[parameter as usize].beside.store(0, Relaxed);
    }

    #[inline(always)]
    fn write(&self, parameter: u32, from: &[f64], at: usize) {
        self.cells.store(parameter, from, at);
    }

    #[inline(always)]
    fn publish(&self, parameter: u32, version: u32) {
        self.cells.word(parameter).store(version, Release);
    }
}

impl Heads for Counted {
    fn set_heads(&self, threads: usize, head: impl Fn(usize) -> (u32, u32) + Sync) {
        in_parallel(&self.cells.0, threads, |at, cell| {
            let (version, readers) = head(at);
            cell.word.store(version, Relaxed);
            cell.beside.store(readers, Relaxed);
        });
    }
}

/// Version and readers of a parameter whose values lie elsewhere.
#[derive(Default, Debug)]
struct Head {
    word: AtomicU32,
    readers: AtomicU32,
}

/// Parameters of any number of numbers each.
#[derive(Debug)]
pub(crate) struct Wide {
    width: usize,
    values: Vec<AtomicU64>,
    heads: Vec<Head>,
    weights: Vec<f32>,
}

impl Wide {
    /// With these values, `width` for each parameter, and weights (none: all 0); words and counters are 0.
    pub(crate) fn new(values: &[f64], width: usize, weights: &[f32]) -> Wide {
        Wide {
            width,
            values: collected(values.iter().map(|value| AtomicU64::new(value.to_bits()))),
            heads: collected((0..values.len() / width.max(1)).map(|_| Head::default())),
            weights: weights.to_vec(),
        }
    }

    #[inline(always)]
    fn of(&self, parameter: u32) -> &[AtomicU64] {
        &self.values[parameter as usize * self.width..][..self.width]
    }
}

impl Cells for Wide {
    #[inline(always)]
    fn load(&self, parameter: u32, out: &mut [f64], at: usize) {
        let out = &mut out[at * self.width..][..self.width];
        for (out, value) in out.iter_mut().zip(self.of(parameter)) {
            *out = f64::from_bits(value.load(Relaxed));
        }
    }

    #[inline(always)]
    fn store(&self, parameter: u32, from: &[f64], at: usize) {
        let from = &from[at * self.width..][..self.width];
        for (value, from) in self.of(parameter).iter().zip(from) {
            value.store(from.to_bits(), Relaxed);
        }
    }

    #[inline(always)]
    fn weight(&self, parameter: u32) -> f32 {
        self.weights.get(parameter as usize).copied().unwrap_or(0.0)
    }

    #[inline(always)]
    fn prefetch(&self, parameter: u32) {
        prefetch(&self.heads[parameter as usize]);
        // Eight numbers are a line; the processor finds the next ones by itself where there are many.
        for line in self.of(parameter).chunks(8).take(4) {
            prefetch(&line[0]);
        }
    }

    fn scale(&self, threads: usize, by: f64) {
        in_parallel(&self.values, threads, |_, value| multiply(value, by));
    }

    fn export(&self, threads: usize, out: &mut [f64]) {
        copied(&self.values, threads, out, |value| value);
    }
}

impl Words for Wide {
    #[inline(always)]
    fn word(&self, parameter: u32) -> &AtomicU32 {
        &self.heads[parameter as usize].word
    }
}

impl Planned for Wide {
    #[inline(always)]
    fn version(&self, parameter: u32) -> u32 {
        self.heads[parameter as usize].word.load(Acquire)
    }

    #[inline(always)]
    fn read(&self, parameter: u32, out: &mut [f64], at: usize) {
        self.load(parameter, out, at);
    }

    #[inline(always)]
    fn count(&self, parameter: u32) {
        self.heads[parameter as usize].readers.fetch_add(1, Release);
    }

    #[inline(always)]
    fn readers(&self, parameter: u32) -> u32 {
        self.heads[parameter as usize].readers.load(Acquire)
    }

    #[inline(always)]
    fn restart(&self, parameter: u32) {
        self.heads[parameter as usize].readers.store(0, Relaxed);
    }

    #[inline(always)]
    fn write(&self, parameter: u32, from: &[f64], at: usize) {
        self.store(parameter, from, at);
    }

    #[inline(always)]
    fn publish(&self, parameter: u32, version: u32) {
        self.heads[parameter as usize].word.store(version, Release);
    }
}

impl Heads for Wide {
    fn set_heads(&self, threads: usize, head: impl Fn(usize) -> (u32, u32) + Sync) {
        in_parallel(&self.heads, threads, |at, cell| {
            let (version, readers) = head(at);
            cell.word.store(version, Relaxed);
            cell.readers.store(readers, Relaxed);
        });
    }
}

fn multiply(value: &AtomicU64, by: f64) {
    value.store((f64::from_bits(value.load(Relaxed)) * by).to_bits(), Relaxed);
}

/// Changes all cells, each thread a share of them.
fn in_parallel<C: Sync>(cells: &[C], threads: usize, change: impl Fn(usize, &C) + Sync) {
    in_shares(cells.len(), threads, &|share| {
        let first = share.start;
        cells[share].iter().enumerate().for_each(|(at, cell)| change(first + at, cell));
    });
}

/// Copies the value of each cell, each thread a share of them.
fn copied<'c, C: Sync>(
    cells: &'c [C],
    threads: usize,
    out: &mut [f64],
    value: impl Fn(&'c C) -> &'c AtomicU64 + Sync,
) {
    let copy = &|cells: &'c [C], out: &mut [f64]| {
        out.iter_mut().zip(cells).for_each(|(out, cell)| *out = f64::from_bits(value(cell).load(Relaxed)));
    };
    let share = share_of(cells.len(), threads);
    each_share(cells.chunks(share).zip(out.chunks_mut(share)), |(cells, out)| copy(cells, out));
}

/// Cells, or entries, that each of so many threads sweeps over.
pub(super) fn share_of(cells: usize, threads: usize) -> usize {
    // Below this a thread costs more to start than it saves.
    const WORTH_A_THREAD: usize = 1 << 16;
    cells.div_ceil(threads.max(1)).max(WORTH_A_THREAD)
}

/// Sweeps over so many cells, each thread a share of them. One copy serves all cells: threads are much code.
fn in_shares(cells: usize, threads: usize, sweep: &(dyn Fn(Range<usize>) + Sync)) {
    let share = share_of(cells, threads);
    each_share((0..cells).step_by(share), |first| sweep(first..cells.min(first + share)));
}
