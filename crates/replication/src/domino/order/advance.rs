//! Execution: decided commands of all lanes, in the order of their places (`specs/domino.md` 3.9).

use super::super::Mutation;
use super::super::message::{Item, Place, Record};
use super::super::parameters::Learners;
use super::Order;
use crate::keep::Keep;
use crate::order::{Decided, Ordered, Step};
use isochrone_core::{Effects, wire};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Executed commands that are kept for replicas that lag.
#[derive(Clone, Hash, Debug)]
pub(super) struct Kept<V> {
    commands: VecDeque<(Place, V, u32)>,
    bytes: usize,
    /// All commands executed from here on are there.
    from: Place,
}

impl<V> Default for Kept<V> {
    fn default() -> Kept<V> {
        Kept { commands: VecDeque::new(), bytes: 0, from: Place::default() }
    }
}

impl<V> Kept<V> {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// The commands from a place on, if they are all there.
    pub(super) fn from(&self, place: Place) -> Option<impl Iterator<Item = (Place, &V)>> {
        let first = self.commands.partition_point(|(known, ..)| *known < place);
        let range = self.commands.range(first..).map(|(place, value, _)| (*place, value));
        (place >= self.from).then_some(range)
    }

    /// The command at a place.
    pub(super) fn at(&self, place: Place) -> Option<&V> {
        let found = self.commands.binary_search_by_key(&place, |(known, ..)| *known).ok()?;
        self.commands.get(found).map(|(_, value, _)| value)
    }

    fn push(&mut self, place: Place, value: V, bytes: u32) {
        self.bytes += bytes as usize;
        self.commands.push_back((place, value, bytes));
    }

    fn trim(&mut self, keep: Keep) {
        while keep.exceeded(self.commands.len(), self.bytes) {
            let Some((place, _, bytes)) = self.commands.pop_front() else { return };
            self.bytes -= bytes as usize;
            self.from = Place { at: place.at, lane: place.lane + 1 };
        }
    }

    /// Nothing before a place is kept.
    pub(super) fn reset(&mut self, from: Place) {
        self.commands.clear();
        (self.bytes, self.from) = (0, from);
    }
}

impl<V: Ordered> Order<V> {
    /// The end of every input: what has come to have its turn is executed, and what is past is forgotten.
    pub(super) fn advance(&mut self, effects: &mut Effects<Self>) {
        if !self.is_member() {
            return;
        }
        let now = effects.now();
        self.collect_flights(now);
        let floor = self.floor();
        if floor <= self.done {
            return;
        }
        let mut values = Vec::new();
        while let Some((place, value)) = self.next_below(floor) {
            assert!(place >= self.done, "I9: {place:?} is executed behind {:?}", self.done);
            values.push((place, (!self.voted_here(place, &value)).then(|| value.clone())));
            let spans = (usize::from(place.lane) == self.me + 1).then(|| self.owner.land(place.at, now));
            let answer = place.lane == 0 || place.lane == self.lane();
            self.execute(place, value, answer, spans.flatten());
        }
        self.done = floor;
        if !values.is_empty() {
            // Values left out are votes, which must lie before them in the journal.
            self.flush_records(effects);
            effects.record_lazily(Record::Executed { values, until: floor });
        }
        self.trim();
    }

    /// The first place that is not decided.
    fn floor(&self) -> Place {
        let frontiers = self.tracks.iter().enumerate();
        let places = frontiers.map(|(lane, track)| Place { at: track.frontier(), lane: lane as u8 });
        if self.parameters().mutated(Mutation::ExecuteEarly) {
            // The own and the fast lane alone.
            let seen = places.filter(|place| place.lane == 0 || usize::from(place.lane) == self.me + 1);
            return seen.min().unwrap_or_default().max(self.done);
        }
        places.min().unwrap_or_default()
    }

    /// Takes out the first decided command below a place.
    fn next_below(&mut self, floor: Place) -> Option<(Place, V)> {
        let firsts = self.tracks.iter().enumerate().filter_map(|(lane, track)| {
            let (at, _) = track.commands.first_key_value()?;
            Some(Place { at: *at, lane: lane as u8 })
        });
        let place = firsts.min().filter(|place| *place < floor)?;
        let (_, value) = self.tracks[usize::from(place.lane)].commands.pop_first()?;
        Some((place, value))
    }

    /// Whether the journal has the value of a place as this replica's vote.
    fn voted_here(&self, place: Place, value: &V) -> bool {
        self.vote_at(place) == Some(value)
    }

    pub(super) fn vote_at(&self, place: Place) -> Option<&V> {
        match place.lane.checked_sub(1) {
            None => self.acceptor.votes.get(&place.at)?.value.as_ref(),
            Some(seat) => self.lanes.get(usize::from(seat))?.votes.get(&place.at)?.1.as_ref(),
        }
    }

    pub(super) fn execute(
        &mut self,
        place: Place,
        value: V,
        answer: bool,
        spans: Option<[isochrone_core::Span; 4]>,
    ) {
        let mut hasher = rustc_hash::FxHasher::default();
        value.hash(&mut hasher);
        let position = place.at.wrapping_mul(self.tracks.len() as u64).wrapping_add(u64::from(place.lane));
        let bytes = u32::try_from(wire::encoded_size(&value)).unwrap_or(u32::MAX);
        self.kept.push(place, value.clone(), bytes);
        let digest = hasher.finish();
        let values = Arc::from([value]);
        self.ready.push_back(Step::Decided(Decided { position, digest, values, answer, spans }));
    }

    /// Forgets what is executed, beyond what is kept for others.
    pub(super) fn trim(&mut self) {
        let (commands, bytes) = (self.parameters().keep_commands, self.parameters().keep_bytes);
        self.kept.trim(Keep::new(commands, bytes, self.serving));
        // Votes of positions that are decided and not executed stay: nothing else of these is durable.
        let below = self.done.at;
        self.acceptor.trim(below);
        for lane in &mut self.lanes {
            lane.trim(below);
        }
        self.forget_heard();
        let frontier = self.tracks[0].frontier();
        self.learner.trim(frontier);
        while self.bodies.first_key_value().is_some_and(|(at, _)| *at < below) {
            self.bodies.pop_first();
        }
    }

    /// The state before a place was taken from a peer; false where this replica is not behind it.
    pub(super) fn jump(&mut self, place: Place) -> bool {
        if place <= self.done {
            return false;
        }
        self.done = place;
        self.ready.clear();
        for (lane, track) in self.tracks.iter_mut().enumerate() {
            track.jump(place.at + u64::from(lane < usize::from(place.lane)));
        }
        if self.reign.is_some() && self.parameters().learners == Learners::Sole {
            // What was jumped over nobody is told of here: who lacks it fetches it, and may not take it for nothing.
            self.tell_others(&Item::Lead { base: self.tracks[0].frontier() });
        }
        self.kept.reset(place);
        self.serial += 1;
        if self.is_member() {
            self.drop_landed();
        }
        self.trim();
        true
    }

    /// Whether no bug is planted: invariants hold then.
    pub(super) fn is_sound(&self) -> bool {
        self.parameters().mutation.is_none()
    }

    /// What must hold after every input. What a step rests on is asserted where it is taken: I1 in `choose`, I2 and I3 in
    /// `assert_may_vote` and `on_recover`, I5 in `flush_tick`, I6 in `assign`, I8 in `open_epoch`, I9 in `advance`.
    pub(super) fn check_invariants(&self) {
        assert!(self.done <= self.floor() || !self.is_member(), "executed what is not decided");
        if self.is_member() && self.is_sound() {
            let announced = self.learner.announced(self.me);
            let reached = self.clock.last().max(self.acceptor.from);
            assert!(
                announced.is_none_or(|announced| announced <= reached),
                "I4: {announced:?} was announced, and the clock is at {reached}"
            );
            assert!(self.owner.is_within(), "I6: a proposal behind the last stamp given");
        }
        for (lane, track) in self.tracks.iter().enumerate() {
            let first = track.commands.first_key_value().map(|(at, _)| Place { at: *at, lane: lane as u8 });
            assert!(first.is_none_or(|first| first >= self.done), "a command before the end is not executed");
            assert!(
                track.is_whole(),
                "I10: a frontier that stands before what is decided, or a command that is not"
            );
        }
        if let Some(reign) = &self.reign {
            assert!(reign.epoch == self.acceptor.epoch || !self.acceptor.open, "two reigns at once");
        }
    }
}
