//! The memory that this process has asked for, and how much of it a node may use.
//!
//! What is asked for is counted where the program's allocator says so ([`took`], [`gave`], [`resized`]), as that of `isochrone` does.
//! Elsewhere nothing is known, and nothing is refused. Resident memory is no measure of it: it does not fall with what is deleted.
//!
//! A node that uses more than its limit is *full*. It tells its peers, and commands that may make data grow are refused by the
//! gateways of all nodes whose keyspaces it is a member of; nothing that was taken in is dropped.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How many counters there are: threads take their places among them in turn, so that few write to the same one.
const PLACES: usize = 64;

/// Alone in what processors take of memory at once, or two of them.
#[repr(align(128))]
struct Counter(AtomicI64);

/// What was asked for less what was given back, bytes. One counter alone may be negative: what a thread takes another may give back.
struct Counters([Counter; PLACES]);

impl Counters {
    const fn new() -> Counters {
        Counters([const { Counter(AtomicI64::new(0)) }; PLACES])
    }

    fn add(&self, bytes: i64) {
        self.0[place()].0.fetch_add(bytes, Relaxed);
    }

    fn sum(&self) -> u64 {
        let sum: i64 = self.0.iter().map(|counter| counter.0.load(Relaxed)).sum();
        // Others go on counting meanwhile.
        sum.max(0) as u64
    }
}

static ALL: Counters = Counters::new();

/// The place of the calling thread. Asks for no memory, since whoever asks for some is here.
#[inline]
fn place() -> usize {
    static DRAWN: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: Cell<usize> = const { Cell::new(PLACES) };
    }
    let known = PLACE.try_with(|place| {
        if place.get() == PLACES {
            place.set(DRAWN.fetch_add(1, Relaxed) % PLACES);
        }
        place.get()
    });
    // A thread that ends has none any more.
    known.unwrap_or(0)
}

/// What glibc takes for so many bytes.
fn taken(size: usize) -> i64 {
    // What was given fits into the address space by far.
    (size + 8).next_multiple_of(16).max(32) as i64
}

/// An allocator has given away so many bytes.
#[inline]
pub fn took(size: usize) {
    ALL.add(taken(size));
}

/// An allocator has so many bytes back.
#[inline]
pub fn gave(size: usize) {
    ALL.add(-taken(size));
}

/// An allocator has made a piece of `before` bytes one of `after`.
#[inline]
pub fn resized(before: usize, after: usize) {
    ALL.add(taken(after) - taken(before));
}

/// Bytes that this process has asked for and not given back, with what each piece takes beside itself; 0 where its allocator does not
/// count.
#[must_use]
pub fn used_bytes() -> u64 {
    ALL.sum()
}

/// What one node may use, and what it was last seen to use.
#[derive(Debug, Default)]
pub struct Memory {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Memory {
    /// Of a node that may use so many bytes; 0 for any number.
    #[must_use]
    pub fn new(limit: u64) -> Memory {
        Memory { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Bytes that it may use; 0 for any number.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// From now on it may use so many; 0 for any number.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// Bytes that it used when that was last looked at; 0 where that is not known.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// It uses so many bytes now.
    pub(crate) fn note(&self, used: u64) {
        self.used.store(used, Relaxed);
    }

    /// The limit, where more is used.
    pub fn exceeded(&self) -> Option<u64> {
        self.exceeded_beside(0)
    }

    /// The limit, where more is used beside so many bytes that clients make the node hold: those are its own affair, and nothing that
    /// other nodes refuse makes them less.
    pub(crate) fn exceeded_beside(&self, held: u64) -> Option<u64> {
        Some(self.limit()).filter(|limit| *limit > 0 && self.used().saturating_sub(held) > *limit)
    }
}

/// Whether it was told last that a node is full.
#[derive(Default)]
pub(crate) struct Warned(bool);

impl Warned {
    /// Whether to tell that it is full now, or that it is so no longer; nothing where that was done. It has to be well below its limit
    /// again, so that a node which stays about there fills no log.
    pub(crate) fn take_news(&mut self, memory: &Memory) -> Option<bool> {
        let limit = memory.limit();
        let full = match memory.exceeded() {
            Some(_) => true,
            None => self.0 && limit > 0 && memory.used() > limit - limit / 20,
        };
        (std::mem::replace(&mut self.0, full) != full).then_some(full)
    }
}

/// A size as people read it: `512 B`, `6.4 GiB`.
pub(crate) fn shown(bytes: u64) -> String {
    let mut scaled = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1024.0 || unit == "TiB" {
            return if unit == "B" { format!("{bytes} B") } else { format!("{scaled:.1} {unit}") };
        }
        scaled /= 1024.0;
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_takes_what_glibc_takes() {
        for (size, takes) in [(0, 32), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64), (4_096, 4_112)] {
            assert_eq!(taken(size), takes, "{size}");
        }
    }

    #[test]
    fn what_one_thread_takes_another_gives_back() {
        let counters = Counters::new();
        counters.add(taken(100));
        std::thread::scope(|scope| {
            for _ in 0..PLACES + 3 {
                scope.spawn(|| {
                    counters.add(taken(1_000));
                    counters.add(-taken(10));
                });
            }
        });
        let threads = PLACES as i64 + 3;
        assert_eq!(counters.sum() as i64, taken(100) + threads * (taken(1_000) - taken(10)));
        counters.add(-(counters.sum() as i64) - 1);
        assert_eq!(counters.sum(), 0, "never less than nothing");
    }

    #[test]
    fn a_node_is_full_above_its_limit_and_told_of_once() {
        let (memory, mut warned) = (Memory::new(1_000), Warned::default());
        for (used, exceeded, told) in [
            (0, false, None),
            (1_000, false, None),
            (1_001, true, Some(true)),
            (1_000, false, None),
            (1_200, true, None),
            (951, false, None),
            (950, false, Some(false)),
            (960, false, None),
        ] {
            memory.note(used);
            assert_eq!(memory.exceeded().is_some(), exceeded, "{used}");
            assert_eq!(warned.take_news(&memory), told, "{used}");
        }
        memory.note(5_000);
        assert_eq!((memory.exceeded(), warned.take_news(&memory)), (Some(1_000), Some(true)));
        memory.set_limit(0);
        assert_eq!((memory.exceeded(), warned.take_news(&memory)), (None, Some(false)), "no limit");
    }

    #[test]
    fn sizes_are_shown_as_people_read_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (6 << 30, "6.0 GiB"),
            (5_000 << 40, "5000.0 TiB"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }
}
