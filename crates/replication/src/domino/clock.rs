//! The clock by which a replica judges lateness and announces no-ops.
//!
//! It is the replica's wall clock, made fit to hold up a group: it never goes back, not even over a restart
//! ([`ClockFloor`]); where the wall clock was stepped back or stands still it goes on by the steady clock, a
//! little slower, until the wall clock has caught up; and it is held near those of the others. In the place of
//! a wall clock further ahead than a majority's by `lag_max` that majority's is followed, so one that jumps
//! cannot drag the positions of the log into the future, nor those of its own lane, whose commands would wait
//! for the others to get there; who is further than `lag_max` behind what they have announced is raised (`specs/domino.md` 4.6).
//! A wall clock that is behind a majority's by less is not followed either, since all wait for the clock that is last: in its place
//! is what these showed when they were last heard, and the time since. That is older by the way from them, so clocks that agree as
//! well as the ways are long are left alone. Walls are taken for it and not what was announced, by which clocks that are all ahead
//! of their walls would keep each other there.
//! Clients measure this clock, so to them it looks like any other that is a little off.

use super::Mutation;
use super::parameters::Parameters;
use isochrone_core::{ClockFloor, Instant, Span, Stamp};

#[derive(Clone, Hash, Debug)]
pub(super) struct GroupClock {
    me: usize,
    floor: ClockFloor,
    /// When it was last read.
    read: Option<Instant>,
    others: Vec<Option<Heard>>,
}

/// What another replica's clocks showed.
#[derive(Copy, Clone, Hash, Debug)]
struct Heard {
    wall: Stamp,
    clock: Stamp,
    at: Instant,
}

/// While the wall clock is behind, an eighth of the time is given back.
const SLEW: u64 = 8;
/// Half of it by a clock that is ahead of most others: after a jump of several all wait for their wall clocks, and would
/// keep their distance, by which executions are late, for eight times as long as the jump was.
const SLEW_AHEAD: u64 = 2;

impl GroupClock {
    pub(super) fn new(me: usize, members: usize) -> GroupClock {
        GroupClock { me, floor: ClockFloor::default(), read: None, others: vec![None; members] }
    }

    /// What a beat of another replica said, just now.
    pub(super) fn heard(&mut self, seat: usize, wall: Stamp, clock: Stamp, at: Instant) {
        if let Some(known) = self.others.get_mut(seat) {
            *known = Some(Heard { wall, clock, at });
        }
    }

    /// Whether a majority's clocks are known, the own included. Before that it announces nothing.
    pub(super) fn is_set(&self) -> bool {
        let known = self.others.iter().flatten().count() + 1;
        known > self.others.len() / 2
    }

    /// The time. Two readings at one instant are equal.
    pub(super) fn now(&mut self, now: Instant, wall: Stamp, parameters: &Parameters) -> u64 {
        if !self.is_set() {
            return self.floor.last().as_nanos();
        }
        if parameters.mutated(Mutation::ClockNotMonotone) {
            return wall.as_nanos();
        }
        let passed = self.read.map_or(Span::ZERO, |read| now.since(read));
        self.read = Some(now);
        let slewed = |part| self.floor.last() + passed.saturating_sub(passed / part);
        let most = self.most(wall, now, |heard| heard.wall);
        let shown = if wall > most + parameters.lag_max { most } else { wall.max(most) };
        let ahead = || self.ahead(now) > parameters.lag_max / 4;
        let part = if shown < slewed(SLEW) && ahead() { SLEW_AHEAD } else { SLEW };
        let mut target = shown.max(slewed(part));
        let announced = self.most(self.floor.last(), now, |heard| heard.clock);
        if announced > target + parameters.lag_max {
            target = announced;
        }
        self.floor.now(target).as_nanos()
    }

    /// How far the own clock is ahead of what a majority's others have reached.
    pub(super) fn ahead(&self, now: Instant) -> Span {
        let own = self.floor.last();
        // Whoever has not set its clock yet says nothing about the others.
        let set = self.others.iter().flatten().filter(|heard| heard.clock > Stamp::ZERO).count() + 1;
        if set <= self.others.len() / 2 {
            return Span::ZERO;
        }
        own.since(self.most(own, now, |heard| heard.clock))
    }

    /// It has passed this.
    pub(super) fn raise(&mut self, to: u64) {
        self.floor.raise(Stamp::from_nanos(to));
    }

    /// The last reading.
    pub(super) fn last(&self) -> u64 {
        self.floor.last().as_nanos()
    }

    /// The reserve, if it is to be recorded anew so that all up to `upto` lies below it.
    pub(super) fn reserve(&mut self, upto: u64, ahead: Span) -> Option<u64> {
        let mut highest = self.floor;
        highest.raise(Stamp::from_nanos(upto));
        let reserve = highest.reserve(ahead)?;
        self.floor.raise_reserve(reserve);
        Some(reserve.as_nanos())
    }

    /// What was written last.
    pub(super) fn reserved(&self) -> u64 {
        self.floor.reserved().as_nanos()
    }

    /// A restart found this.
    pub(super) fn recovered(&mut self, reserve: u64) {
        self.floor.recovered(Stamp::from_nanos(reserve));
    }

    /// What a majority has reached, the own reading among them: the m-th largest.
    fn most(&self, own: Stamp, now: Instant, of: impl Fn(&Heard) -> Stamp) -> Stamp {
        let majority = self.others.len() / 2 + 1;
        let mut known: Vec<Stamp> = Vec::with_capacity(self.others.len());
        for (seat, heard) in self.others.iter().enumerate() {
            match heard {
                _ if seat == self.me => known.push(own),
                Some(heard) => known.push(of(heard) + now.since(heard.at)),
                None => {}
            }
        }
        known.sort_unstable_by(|a, b| b.cmp(a));
        known.get(majority - 1).copied().unwrap_or(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Tuning;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * MS)
    }

    fn wall(ms: u64) -> Stamp {
        Stamp::from_nanos(ms * MS)
    }

    /// The clock of replica 0 of three whose others are right, 20 ms away.
    fn clock() -> (GroupClock, Parameters) {
        let mut clock = GroupClock::new(0, 3);
        clock.heard(1, wall(999_980), wall(999_980), at(0));
        clock.heard(2, wall(999_980), wall(999_980), at(0));
        (clock, Parameters::for_rtt(Span::from_millis(100)))
    }

    #[test]
    fn it_shows_the_wall_clock_and_follows_no_step_back() {
        let (mut clock, parameters) = clock();
        assert_eq!(clock.now(at(0), wall(1_000_000), &parameters), 1_000_000 * MS);
        assert_eq!(clock.now(at(8), wall(1_000_008), &parameters), 1_000_008 * MS);
        let behind = clock.now(at(16), wall(999_000), &parameters);
        assert_eq!(behind, 1_000_015 * MS, "an eighth slower than time");
        assert_eq!(clock.now(at(16), wall(999_000), &parameters), behind, "it stands at one instant");
        clock.raise(1_000_316 * MS);
        let ahead = clock.now(at(24), wall(999_008), &parameters);
        assert_eq!(ahead, 1_000_320 * MS, "far ahead of the others, half as fast as time");
    }

    #[test]
    fn it_does_not_run_away_and_does_not_stay_behind() {
        let (mut clock, parameters) = clock();
        let far = clock.now(at(0), wall(9_000_000), &parameters);
        assert_eq!(far, 999_980 * MS, "where most are: what is wrong by so much is not believed at all");
        let near = clock.now(at(1), wall(1_000_901), &parameters);
        assert_eq!(near, 1_000_901 * MS, "a little ahead");
        let mut clock = GroupClock::new(0, 3);
        assert_eq!(clock.now(at(0), wall(5), &parameters), 0, "nobody else is known yet");
        clock.heard(1, wall(8_002_000), wall(8_002_000), at(0));
        assert_eq!(clock.now(at(0), wall(7_999_500), &parameters), 7_999_500 * MS, "a little behind");
        clock.heard(2, wall(9_000_000), wall(9_000_000), at(0));
        assert_eq!(clock.now(at(10), wall(7_999_510), &parameters), 8_002_010 * MS, "raised to most");
    }

    #[test]
    fn whoever_is_behind_is_with_most_at_once_and_stays_there() {
        for behind in [50, 900, 5_000] {
            let (mut clock, parameters) = clock();
            for ms in (20..20_000).step_by(10) {
                let told = wall(1_000_000 + ms - 20);
                clock.heard(1, told, told, at(ms));
                clock.heard(2, told, told, at(ms));
                for ms in [ms, ms + 7] {
                    let now = clock.now(at(ms), wall(1_000_000 + ms - behind), &parameters);
                    assert_eq!(now, (1_000_000 + ms - 20) * MS, "{behind} ms behind, after {ms} ms");
                }
            }
        }
    }

    #[test]
    fn the_reserve_lies_ahead_of_all_that_is_announced() {
        let (mut clock, parameters) = clock();
        let now = clock.now(at(0), wall(1_000_000), &parameters);
        let reserve = clock.reserve(now + 300 * MS, parameters.reserve);
        assert_eq!(reserve, Some(now + 1_300 * MS));
        assert_eq!(clock.reserve(now + 400 * MS, parameters.reserve), None);
        assert!(clock.reserve(now + 900 * MS, parameters.reserve).is_some());
        assert_eq!(clock.last(), now);
    }
}
