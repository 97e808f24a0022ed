//! What the journal counts. Written by whoever writes the journal, read by whoever exports metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters and gauges of one journal. All reads are relaxed: they are figures, not synchronisation.
#[derive(Debug, Default)]
pub struct JournalMetrics {
    /// Bytes written, frame headers and padding included.
    pub bytes: AtomicU64,
    /// Frames written: one write and, unless `fsync = off`, one sync each.
    pub frames: AtomicU64,
    /// Batches written; several may share a frame.
    pub batches: AtomicU64,
    /// Records written.
    pub records: AtomicU64,
    /// How long syncs took; its count is the number of syncs.
    pub syncs: DurationHistogram,
    /// Batches handed over and not yet taken by the journal's thread.
    pub queued: AtomicU64,
    /// Segments in use.
    pub segments: AtomicU64,
    /// Bytes of all segments in use, as allocated.
    pub segment_bytes: AtomicU64,
    /// Segments given back since the node started, to be used again or removed.
    pub recycled: AtomicU64,
    /// Spare segments that could not be made ahead of time: the disk is nearly full.
    pub spare_failures: AtomicU64,
    /// Bytes that were free in the journal's file system when it was last looked at, 1 where there were none; 0 where nobody tells.
    pub free_bytes: AtomicU64,
    /// 1 where syncs are switched off.
    pub unsafe_no_fsync: AtomicU64,
}

/// Durations in buckets from 0.1 ms to 13 s, each bound 1.5 times the one before: fine enough for a p99, few enough
/// for a scrape.
#[derive(Debug)]
pub struct DurationHistogram {
    buckets: [AtomicU64; Self::BUCKETS + 1],
    nanos: AtomicU64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl DurationHistogram {
    /// How many buckets have a bound; one more takes what is longer.
    pub const BUCKETS: usize = 30;
    const FIRST: f64 = 0.000_1;
    const FACTOR: f64 = 1.5;

    /// The upper bounds in seconds, without the last, infinite one.
    pub fn bounds() -> impl Iterator<Item = f64> {
        std::iter::successors(Some(Self::FIRST), |bound| Some(bound * Self::FACTOR)).take(Self::BUCKETS)
    }

    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = Self::bounds().position(|bound| seconds <= bound).unwrap_or(Self::BUCKETS);
        self.buckets[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Their sum in seconds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64()
    }

    /// How many durations were at most each bound, as Prometheus counts: `(bound in seconds, count so far)`; the
    /// last bound is infinite.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let bounds = Self::bounds().chain([f64::INFINITY]);
        let mut sum = 0;
        bounds
            .zip(&self.buckets)
            .map(|(bound, bucket)| {
                sum += bucket.load(Relaxed);
                (bound, sum)
            })
            .collect()
    }
}
