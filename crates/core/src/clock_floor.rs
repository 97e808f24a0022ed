//! A wall clock that never goes back, not even over a restart.

use crate::{Span, Stamp};

/// Readings of a wall clock that may be wrong and jump, made monotone.
///
/// What was shown to others must not be taken back by a crash, so the protocol announces only what lies
/// below a *reserve* that is on disk: [`ClockFloor::reserve`] says when a new one is to be recorded, and a
/// restart goes on from the last ([`ClockFloor::recovered`]). The reserve lies ahead by a step, so it is
/// written once a step and not once a reading. What a restart does with the time between the last reading
/// and the reserve is the protocol's affair.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub struct ClockFloor {
    floor: Stamp,
    reserve: Stamp,
}

impl ClockFloor {
    /// The clock now, but never before an earlier reading. Two readings at one instant are equal.
    pub fn now(&mut self, clock: Stamp) -> Stamp {
        self.floor = self.floor.max(clock);
        self.floor
    }

    /// The clock now, strictly behind every earlier reading.
    pub fn read(&mut self, clock: Stamp) -> Stamp {
        self.floor = clock.max(Stamp::from_nanos(self.floor.as_nanos().saturating_add(1)));
        self.floor
    }

    /// The last reading.
    pub fn last(&self) -> Stamp {
        self.floor
    }

    /// No later reading is before `to`.
    pub fn raise(&mut self, to: Stamp) {
        self.floor = self.floor.max(to);
    }

    /// What is on disk, or will be before anything made later leaves.
    pub fn reserved(&self) -> Stamp {
        self.reserve
    }

    /// Where less than half of `ahead` is left between the last reading and the reserve, the new reserve: it
    /// is to be recorded before anything that is made from now on leaves.
    pub fn reserve(&mut self, ahead: Span) -> Option<Stamp> {
        if self.floor + ahead / 2 < self.reserve {
            return None;
        }
        self.reserve = self.floor + ahead;
        Some(self.reserve)
    }

    /// This reserve is on disk, or will be before anything made later leaves; the readings stay as they are.
    pub fn raise_reserve(&mut self, reserve: Stamp) {
        self.reserve = self.reserve.max(reserve);
    }

    /// A restart found this reserve on disk: whatever was shown lies below it.
    pub fn recovered(&mut self, reserve: Stamp) {
        self.reserve = self.reserve.max(reserve);
        self.floor = self.floor.max(reserve);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Stamp {
        Stamp::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn readings_do_not_follow_a_clock_that_steps_back() {
        let mut floor = ClockFloor::default();
        assert_eq!(floor.now(ms(100)), ms(100));
        assert_eq!(floor.now(ms(40)), ms(100));
        assert_eq!(floor.read(ms(100)).as_nanos(), ms(100).as_nanos() + 1);
        assert_eq!(floor.read(ms(200)), ms(200));
        floor.raise(ms(300));
        assert_eq!(floor.now(ms(250)), ms(300));
    }

    #[test]
    fn what_was_shown_lies_below_what_a_restart_begins_with() {
        let ahead = Span::from_millis(1_000);
        let (mut floor, mut disk, mut written) = (ClockFloor::default(), Stamp::ZERO, 0);
        for now in 0..10_000 {
            floor.now(ms(now));
            if let Some(reserve) = floor.reserve(ahead) {
                disk = reserve;
                written += 1;
            }
            assert!(floor.last() < disk);
        }
        assert!(written <= 21, "{written} records in ten steps");
        let mut again = ClockFloor::default();
        again.recovered(disk);
        assert!(again.now(ms(5_000)) >= floor.last());
    }
}
