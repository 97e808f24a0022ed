//! Which copy a client reads at (`specs/curp.md` 3.10, 7.2).

use super::{FastPath, View};
use isochrone_core::{Instant, NodeId, ProcessId, RoundTrip, Span};

/// The copies of a view that are nearer than its leader, nearest first.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Nearby {
    copies: Vec<Copy>,
    /// The smoothed round trip to the leader.
    leader: RoundTrip,
}

#[derive(Clone, Hash, Debug)]
struct Copy {
    witness: ProcessId,
    /// Its smoothed round trip.
    trip: RoundTrip,
    /// Reads in a row that it has refused.
    refused: u32,
    /// Reads in a row that it has not answered in time.
    missed: u32,
    /// It is passed over before this.
    paused: Option<Instant>,
    /// Reads until it is asked although it is slower than the leader.
    until_sample: u32,
}

/// So many refusals in a row, and a copy is passed over for a while.
const REFUSALS: u32 = 16;
/// How often a copy is asked that was slower than the leader: each so many reads.
const SAMPLE: u32 = 128;

impl Nearby {
    /// Of this view, where the replicas stand so, nearest first. What was measured of the same copies is kept.
    pub(crate) fn of(view: &View, replicas: &[ProcessId], former: &Nearby) -> Nearby {
        let nearer = replicas.iter().take_while(|replica| **replica != view.leader);
        let witness = |replica: &ProcessId| view.witnesses.iter().find(|at| at.node == replica.node);
        let known = |witness: &ProcessId| former.copies.iter().find(|copy| copy.witness == *witness);
        let copy = |witness: &ProcessId| Copy {
            witness: *witness,
            trip: known(witness).map(|copy| copy.trip).unwrap_or_default(),
            refused: 0,
            missed: 0,
            paused: None,
            until_sample: 0,
        };
        Nearby { copies: nearer.filter_map(witness).map(copy).collect(), leader: RoundTrip::default() }
    }

    /// The witness of the copy that is asked now, if any is better than the leader.
    pub(crate) fn choose(&mut self, now: Instant) -> Option<ProcessId> {
        let copy = self.copies.iter_mut().find(|copy| copy.paused.is_none_or(|until| now >= until))?;
        let slower = copy.trip.known().zip(self.leader.known()).is_some_and(|(trip, leader)| trip >= leader);
        if slower && copy.until_sample > 0 {
            copy.until_sample -= 1;
            return None;
        }
        copy.until_sample = SAMPLE;
        Some(copy.witness)
    }

    /// How long the answer of this node's copy is waited for: so long where it has not been measured.
    pub(crate) fn patience(&self, node: NodeId, knobs: &FastPath, unknown: Span) -> Span {
        let copy = self.copies.iter().find(|copy| copy.witness.node == node);
        let trip = copy.and_then(|copy| copy.trip.known());
        trip.map_or(unknown, |trip| trip * 2).max(knobs.record_floor)
    }

    /// The leader has answered at once.
    pub(crate) fn led(&mut self, trip: Span) {
        if !self.copies.is_empty() {
            self.leader.mean(trip);
        }
    }

    /// Whether reads may be sent to this node although another one leads.
    pub(crate) fn is_copy(&self, node: NodeId) -> bool {
        self.copies.iter().any(|copy| copy.witness.node == node)
    }

    fn of_node(&mut self, node: NodeId) -> Option<&mut Copy> {
        self.copies.iter_mut().find(|copy| copy.witness.node == node)
    }

    /// The copy of this node has answered.
    pub(crate) fn answered(&mut self, node: NodeId, trip: Span) {
        if let Some(copy) = self.of_node(node) {
            copy.trip.mean(trip);
            (copy.refused, copy.missed) = (0, 0);
        }
    }

    /// It does not answer a read, and has said so.
    pub(crate) fn refused(&mut self, node: NodeId, trip: Span, knobs: &FastPath, now: Instant) {
        if let Some(copy) = self.of_node(node) {
            copy.trip.mean(trip);
            (copy.refused, copy.missed) = (copy.refused + 1, 0);
            copy.pause_if(copy.refused >= REFUSALS, knobs, now);
        }
    }

    /// It has not answered in time.
    pub(crate) fn missed(&mut self, node: NodeId, knobs: &FastPath, now: Instant) {
        if let Some(copy) = self.of_node(node) {
            copy.missed += 1;
            copy.pause_if(copy.missed >= knobs.misses, knobs, now);
        }
    }
}

impl Copy {
    /// Passes it over for a while; after that it has one try.
    fn pause_if(&mut self, enough: bool, knobs: &FastPath, now: Instant) {
        if enough {
            self.paused = Some(now + knobs.pause);
            (self.refused, self.missed) = (REFUSALS - 1, knobs.misses.saturating_sub(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Reign;

    fn process(node: u16) -> ProcessId {
        ProcessId { node: NodeId(node), ..ProcessId::from_u64(0) }
    }

    fn of(leader: u16, witnesses: &[u16], former: &Nearby) -> Nearby {
        let witnesses = witnesses.iter().map(|node| process(*node)).collect();
        let view = View { reign: Reign(1, 1), leader: process(leader), witnesses, needed: 2 };
        Nearby::of(&view, &[1, 2, 3, 4, 5].map(process), former)
    }

    const KNOBS: fn() -> FastPath = || FastPath::for_rtt(Span::from_millis(100));

    #[test]
    fn the_nearest_copy_before_the_leader_is_asked() {
        let none = Nearby::default();
        for (leader, witnesses, expected) in [
            (1, [2, 3], None),
            (3, [2, 4], Some(2)),
            (2, [3, 4], None),
            (5, [4, 2], Some(2)),
            (4, [3, 5], Some(3)),
        ] {
            let chosen = of(leader, &witnesses, &none).choose(Instant::ZERO);
            assert_eq!(chosen, expected.map(process), "{leader} leads {witnesses:?}");
        }
    }

    /// 7.2: where it turns out to be the slower one, it is asked only to see whether it still is.
    #[test]
    fn the_faster_way_is_taken() {
        let ms = Span::from_millis;
        let mut nearby = of(3, &[1, 2], &Nearby::default());
        nearby.led(ms(20));
        nearby.answered(NodeId(1), ms(19));
        assert!((0..500).all(|_| nearby.choose(Instant::ZERO) == Some(process(1))));
        nearby.answered(NodeId(1), ms(100));
        let asked = (0..5 * SAMPLE).filter(|_| nearby.choose(Instant::ZERO).is_some()).count();
        assert!((4..=5).contains(&asked), "{asked}");
        let patience = |node: u16| nearby.patience(NodeId(node), &KNOBS(), ms(700));
        assert_eq!((patience(1), patience(2)), (nearby.copies[0].trip.known().unwrap() * 2, ms(700)));
        let mut after = of(4, &[1, 3], &nearby);
        assert_eq!(after.copies[0].trip, nearby.copies[0].trip);
        assert_eq!(after.choose(Instant::ZERO), Some(process(1)), "of the new leader nothing is known");
    }

    #[test]
    fn who_refuses_or_is_silent_is_passed_over_for_a_while() {
        let (knobs, trip) = (KNOBS(), Span::from_millis(1));
        let mut now = Instant::ZERO;
        let mut nearby = of(5, &[1, 2], &Nearby::default());
        for _ in 0..REFUSALS {
            assert_eq!(nearby.choose(now), Some(process(1)));
            nearby.refused(NodeId(1), trip, &knobs, now);
        }
        assert_eq!(nearby.choose(now), Some(process(2)), "the next one");
        for _ in 0..knobs.misses {
            assert_eq!(nearby.choose(now), Some(process(2)));
            nearby.missed(NodeId(2), &knobs, now);
        }
        assert_eq!(nearby.choose(now), None);
        now = now + knobs.pause;
        assert_eq!(nearby.choose(now), Some(process(1)), "one try");
        nearby.missed(NodeId(1), &knobs, now);
        assert_eq!(nearby.choose(now), Some(process(2)));
        nearby.answered(NodeId(2), trip);
        nearby.refused(NodeId(2), trip, &knobs, now);
        assert_eq!(nearby.choose(now), Some(process(2)));
    }
}
