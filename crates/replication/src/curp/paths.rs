//! How long the two ways to an answer take, as a client has measured (`specs/curp.md` 7.2, D-5).

use super::{FastPath, View};
use isochrone_core::{Instant, ProcessId, RoundTrip, Span};

/// The ways of one view.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Paths {
    /// Of each witness of the view.
    witnesses: Vec<Meter>,
    /// From the question to a safe answer that was asked for at once.
    safe: RoundTrip,
    /// Commands asked for until a safe answer is asked for to see how long that takes.
    until_sample: u32,
    /// Commands from the last time to that one.
    every: u32,
    /// Nothing is recorded before this.
    paused: Option<Instant>,
}

/// One witness.
#[derive(Clone, Hash, Debug, Default)]
struct Meter {
    /// Its smoothed round trip.
    trip: RoundTrip,
    /// Records in a row that it has not answered in time.
    misses: u32,
}

/// How often the way of two steps is measured: each so many commands.
const SAMPLE: u32 = 128;
/// The same at first while it is not known, and then eight times as many: of one that is asked for again, as under a new
/// leader the first often is, the time says nothing; and of many that are asked for at once none has an answer yet.
const SOON: u32 = 4;

impl Paths {
    /// Nothing is known of the ways of this view but what those of the former one say of the same witnesses.
    pub(crate) fn of(view: &View, former: Option<(&View, &Paths)>) -> Paths {
        let known = |witness: &ProcessId| {
            let (view, paths) = former?;
            let at = view.witnesses.iter().position(|known| known == witness)?;
            paths.witnesses.get(at).map(|meter| Meter { misses: 0, ..meter.clone() })
        };
        let witnesses = view.witnesses.iter().map(|witness| known(witness).unwrap_or_default()).collect();
        Paths { witnesses, ..Paths::default() }
    }

    /// Whether commands are recorded now. While too few witnesses answer they are not, but for one try in a while.
    pub(crate) fn records(&mut self, needed: usize, knobs: &FastPath, now: Instant) -> bool {
        match self.paused {
            Some(until) if now < until => return false,
            Some(_) => {
                self.paused = None;
                // One more miss, and it is paused again.
                for meter in &mut self.witnesses {
                    meter.misses = meter.misses.min(knobs.misses.saturating_sub(1));
                }
            }
            None => {}
        }
        let well = self.witnesses.iter().filter(|meter| meter.misses < knobs.misses).count();
        if well < needed {
            self.paused = Some(now + knobs.pause);
        }
        well >= needed
    }

    /// How long the answers to a record are waited for.
    pub(crate) fn deadline(&self, knobs: &FastPath, unknown: Span) -> Span {
        let well = self.witnesses.iter().filter(|meter| meter.misses < knobs.misses);
        let longest = well.map(|meter| meter.trip.known().map_or(unknown, |trip| trip * 2)).max();
        longest.unwrap_or(unknown).max(knobs.record_floor)
    }

    /// A witness has answered.
    pub(crate) fn answered(&mut self, witness: usize, trip: Span) {
        if let Some(meter) = self.witnesses.get_mut(witness) {
            meter.trip.mean(trip);
            meter.misses = 0;
        }
    }

    /// It has not, in time.
    pub(crate) fn missed(&mut self, witness: usize) {
        if let Some(meter) = self.witnesses.get_mut(witness) {
            meter.misses = meter.misses.saturating_add(1);
        }
    }

    /// A safe answer has come that was asked for at once.
    pub(crate) fn safe(&mut self, trip: Span) {
        self.safe.mean(trip);
        (self.every, self.until_sample) = (SAMPLE, SAMPLE - 1);
    }

    /// Whether a safe answer is to be asked for together with the command: where it comes as soon as the last
    /// witness that is needed answers, and sometimes to see how long it takes.
    pub(crate) fn wants_safe(&mut self, needed: usize) -> bool {
        if self.until_sample == 0 {
            self.every = (self.every * 8).clamp(SOON, SAMPLE);
            self.until_sample = self.every - 1;
            return true;
        }
        self.until_sample -= 1;
        let well = self.witnesses.iter().filter(|meter| meter.misses == 0);
        let mut trips: Vec<Span> = well.filter_map(|meter| meter.trip.known()).collect();
        trips.sort_unstable();
        match (needed.checked_sub(1).and_then(|last| trips.get(last)), self.safe.known()) {
            (Some(farthest), Some(safe)) => *farthest >= safe,
            // Too few have answered lately: nobody waits for the rest.
            _ => self.witnesses.iter().any(|meter| meter.misses > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Reign;
    use isochrone_core::NodeId;

    fn process(node: u16) -> ProcessId {
        ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
    }

    fn view(reign: u64, nodes: &[u16]) -> View {
        let witnesses = nodes.iter().map(|node| process(*node)).collect();
        View { reign: Reign(reign, 0), leader: process(0), witnesses, needed: nodes.len() }
    }

    const KNOBS: fn() -> FastPath = || FastPath::for_rtt(Span::from_millis(100));

    /// 7.2: next to the master nothing is gained, far from it much.
    #[test]
    fn the_nearer_way_is_taken() {
        let ms = Span::from_millis;
        for (far, safe, wants) in [(80, 80, true), (80, 160, false), (80, 79, true)] {
            let mut paths = Paths::of(&view(1, &[1, 2]), None);
            assert!(paths.wants_safe(2), "once, to see how long it takes");
            paths.answered(0, ms(5));
            assert!(!paths.wants_safe(2), "not known yet");
            paths.answered(1, ms(far));
            paths.safe(ms(safe));
            assert_eq!(paths.wants_safe(2), wants);
            assert!(!paths.wants_safe(1), "the nearest alone is nearer");
            let sampled = (0..3 * SAMPLE).filter(|_| paths.wants_safe(1)).count();
            assert!((2..=3).contains(&sampled), "{sampled}");
            let after = Paths::of(&view(2, &[2, 3]), Some((&view(1, &[1, 2]), &paths)));
            assert_eq!(after.witnesses[0].trip.known(), Some(ms(far)));
            assert_eq!(after.witnesses[1].trip.known(), None);
        }
    }

    /// 7.2: until it is, everybody waits for the far witness, however near the leader and its majority are.
    #[test]
    fn a_way_that_is_not_known_is_soon_measured() {
        let ms = Span::from_millis;
        let mut paths = Paths::of(&view(1, &[1, 2]), None);
        paths.answered(0, ms(5));
        paths.answered(1, ms(200));
        let sampled = |paths: &mut Paths, count: u32| (0..count).filter(|_| paths.wants_safe(2)).count();
        assert_eq!(sampled(&mut paths, 36 + SAMPLE), 3, "the first, the 5th and the 37th");
        paths.safe(ms(300));
        assert_eq!(sampled(&mut paths, SAMPLE), 1, "known, it is measured as seldom as before");
        paths.safe(ms(300));
        assert_eq!(sampled(&mut paths, SAMPLE - 1), 0);
        // Under the next leader the witnesses are as far as they were, and the safe way is another.
        let mut after = Paths::of(&view(2, &[1, 2]), Some((&view(1, &[1, 2]), &paths)));
        assert_eq!(sampled(&mut after, SOON), 1);
        after.safe(ms(6));
        assert_eq!(sampled(&mut after, SAMPLE), SAMPLE as usize);
    }

    /// D-5.
    #[test]
    fn silent_witnesses_are_left_alone_for_a_while() {
        let (knobs, mut now) = (KNOBS(), Instant::ZERO);
        let mut paths = Paths::of(&view(1, &[1, 2]), None);
        paths.answered(0, Span::from_millis(30));
        paths.answered(1, Span::from_millis(20));
        assert_eq!(paths.deadline(&knobs, Span::from_secs(1)), Span::from_millis(60));
        for _ in 0..knobs.misses {
            assert!(paths.records(2, &knobs, now));
            paths.missed(1);
        }
        assert!(!paths.records(2, &knobs, now));
        now = now + knobs.pause;
        assert!(paths.records(2, &knobs, now), "one try");
        paths.missed(1);
        assert!(!paths.records(2, &knobs, now));
        now = now + knobs.pause;
        assert!(paths.records(2, &knobs, now));
        paths.answered(1, Span::from_millis(20));
        paths.missed(1);
        assert!(paths.records(2, &knobs, now));
        // The others are enough.
        (0..9).for_each(|_| paths.missed(1));
        assert!(paths.records(1, &knobs, now));
        assert_eq!(paths.deadline(&knobs, Span::from_secs(1)), Span::from_millis(60));
    }
}
