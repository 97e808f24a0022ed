//! Where others read what a node told last.

use super::Status;
use crate::gateway::Counters;
use crate::io::HANGS;
use crate::metrics::NodeMetrics;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a node's loop puts what others may read: HTTP, and the program that started the node.
pub struct Board {
    /// Counters, always up to date.
    pub metrics: Arc<NodeMetrics>,
    /// How many pages of metrics were longer than they may be.
    pub(crate) cut: AtomicU64,
    posted: Mutex<Posted>,
}

/// What was told last, and when.
struct Posted {
    status: Arc<Status>,
    counters: Arc<Counters>,
    at: std::time::Instant,
}

/// A node that has told nothing for so long is not ready, whatever it told: its loop waits for a disk that hangs, or gets no
/// processor.
pub(super) const STALE: std::time::Duration = std::time::Duration::from_nanos(HANGS.as_nanos());

impl Board {
    /// An empty board over these metrics.
    pub fn new(metrics: Arc<NodeMetrics>) -> Board {
        let posted =
            Posted { status: Arc::default(), counters: Arc::default(), at: std::time::Instant::now() };
        Board { metrics, cut: AtomicU64::new(0), posted: Mutex::new(posted) }
    }

    /// How the node stood a moment ago; not ready where that was long ago.
    pub fn status(&self) -> Arc<Status> {
        let posted = self.posted();
        if posted.status.able && posted.at.elapsed() >= STALE {
            return Arc::new(Status { ready: false, able: false, ..Status::clone(&posted.status) });
        }
        Arc::clone(&posted.status)
    }

    /// What its gateways had counted then.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.posted().counters)
    }

    pub(crate) fn post(&self, status: Status, counters: Counters, at: std::time::Instant) {
        *self.posted() = Posted { status: Arc::new(status), counters: Arc::new(counters), at };
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
