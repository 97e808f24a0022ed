//! The two clocks of a node. The only place of this crate that reads the system's.

use isochrone_core::{Instant, Stamp};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reads both clocks. Copies agree with each other, so that every thread of a process tells one time.
#[derive(Copy, Clone, Debug)]
pub struct Clock {
    base: std::time::Instant,
}

impl Clock {
    /// A steady clock that stands at zero now.
    pub fn start() -> Clock {
        Clock { base: std::time::Instant::now() }
    }

    /// The steady clock.
    pub fn now(&self) -> Instant {
        // 584 years fit.
        Instant::from_nanos(self.base.elapsed().as_nanos() as u64)
    }

    /// The wall clock; zero where it stands before 1970.
    pub fn stamp(&self) -> Stamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
