//! The clocks of a node.

use isochrone_core::{Instant, Stamp};

/// True time zero as wall clocks show it, nanoseconds since 1970.
const WALL_ORIGIN: u64 = 1_700_000_000_000_000_000;
const ONE: u64 = 1 << 32;

/// A steady clock with a rate, and a wall clock that follows it with an offset or stands still.
/// Rates are fixed point, 32 bits behind the point; the undrifted clock takes no multiplication.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    rate: u64,
    /// True time and steady time of the last change of rate.
    since: u64,
    base: u64,
    /// What the wall shows when the steady clock shows zero.
    wall: i128,
    frozen: Option<u64>,
    /// The newest steady reading that a process was given. A turn runs ahead of the queue by what its
    /// inputs cost, and a change of rate meanwhile must not take back what it has seen.
    shown: u64,
}

impl Clock {
    /// A clock that shows `base` at true time `at`, and the right wall time.
    pub(crate) fn new(at: u64, base: u64) -> Clock {
        let wall = i128::from(WALL_ORIGIN) + i128::from(at) - i128::from(base);
        Clock { rate: ONE, since: at, base, wall, frozen: None, shown: 0 }
    }

    /// The steady clock at true time `at`.
    pub(crate) fn steady(&self, at: u64) -> u64 {
        let passed = at.saturating_sub(self.since);
        self.base
            + if self.rate == ONE {
                passed
            } else {
                ((u128::from(passed) * u128::from(self.rate)) >> 32) as u64
            }
    }

    /// The first true time at which the steady clock shows `local` or more.
    pub(crate) fn when(&self, local: u64) -> u64 {
        let passed = local.saturating_sub(self.base);
        if self.rate == ONE {
            self.since.saturating_add(passed)
        } else {
            let real = (u128::from(passed) << 32).div_ceil(u128::from(self.rate));
            self.since.saturating_add(u64::try_from(real).unwrap_or(u64::MAX))
        }
    }

    /// Both clocks, for an input.
    pub(crate) fn read(&mut self, at: u64) -> (Instant, Stamp) {
        let steady = self.steady(at).max(self.shown);
        self.shown = steady;
        (Instant::from_nanos(steady), Stamp::from_nanos(self.wall_at(steady)))
    }

    fn wall_at(&self, steady: u64) -> u64 {
        self.frozen.unwrap_or_else(|| (self.wall + i128::from(steady)).clamp(0, i128::from(u64::MAX)) as u64)
    }

    /// From `at` on the steady clock, and the wall with it, runs faster by this many parts a million.
    pub(crate) fn drift(&mut self, at: u64, parts_per_million: i64) {
        self.base = self.steady(at);
        self.since = at;
        self.rate = (i128::from(ONE) * (1_000_000 + i128::from(parts_per_million)) / 1_000_000) as u64;
    }

    /// Steps the wall clock.
    pub(crate) fn step(&mut self, nanos: i64) {
        self.wall += i128::from(nanos);
        self.frozen = self.frozen.map(|stamp| stamp.saturating_add_signed(nanos));
    }

    /// Stops or releases the wall clock; released, it shows again what it would have shown.
    pub(crate) fn freeze(&mut self, at: u64, frozen: bool) {
        self.frozen = frozen.then(|| self.wall_at(self.steady(at)));
    }

    /// The machine starts anew: the steady clock from `base`, the wall clock going on.
    pub(crate) fn reboot(&mut self, at: u64, base: u64) {
        self.frozen = None;
        let wall = self.wall_at(self.steady(at));
        (self.since, self.base, self.shown) = (at, base, base);
        self.wall = i128::from(wall) - i128::from(base);
    }

    /// The right time again; the steady clock goes on from where it is.
    pub(crate) fn heal(&mut self, at: u64) {
        self.drift(at, 0);
        self.frozen = None;
        self.wall = i128::from(WALL_ORIGIN) + i128::from(at) - i128::from(self.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifted_clock_is_inverted_exactly() {
        for drift in [-10_000, -37, 0, 1, 10_000] {
            let mut clock = Clock::new(7, 1_000);
            clock.drift(1_000_000, drift);
            for local in [1_000_000, 1_002_345, 999_999_999_999] {
                let at = clock.when(clock.base + local);
                assert!(clock.steady(at) >= clock.base + local, "{drift}: due too early");
                assert!(clock.steady(at - 1) < clock.base + local, "{drift}: due too late");
            }
        }
    }

    #[test]
    fn the_wall_steps_freezes_and_heals_while_the_steady_clock_goes_on() {
        let mut clock = Clock::new(0, 50);
        let (_, right) = clock.read(10);
        clock.step(-5);
        assert_eq!(clock.read(10).1.as_nanos(), right.as_nanos() - 5);
        clock.freeze(10, true);
        let (early, late) = (clock.read(10), clock.read(1_000));
        assert!(early.0 < late.0 && early.1 == late.1);
        clock.freeze(1_000, false);
        assert_eq!(clock.read(1_000).1.as_nanos(), right.as_nanos() - 5 + 990);
        clock.heal(2_000);
        assert_eq!(clock.read(2_000).1.as_nanos(), WALL_ORIGIN + 2_000);
    }
}
