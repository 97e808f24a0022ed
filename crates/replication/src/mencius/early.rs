//! Answering before execution: a batch whose slot has its quorum, behind slots that are all known and of
//! which those that are open touch nothing that it touches, commutes with whatever is decided in them.

use super::Mutation;
use super::lane::State;
use super::message::{Turn, Value};
use super::order::Order;
use crate::order::{Ordered, Step};
use isochrone_core::command::{Access, Touch};
use isochrone_core::{Blob, Instant};

impl<V: Ordered> Order<V> {
    /// Says of own suggestions that their place is certain and nothing open before them interferes.
    pub(super) fn answer_early(&mut self, now: Instant) {
        for index in 0..self.flights.len() {
            let flight = &self.flights[index];
            if flight.quorum.is_none() || flight.answered || !self.commutes(flight.turn, &flight.values) {
                continue;
            }
            if self.deal.slot(self.me, flight.turn) >= self.decided() {
                self.counted.push("answered_early");
            }
            let flight = &mut self.flights[index];
            flight.answered = true;
            let spans = flight.spans(now);
            for value in flight.values.iter() {
                self.steps.push_back(Step::Committed(value.clone(), Some(spans)));
            }
        }
    }

    /// Whether every slot before this own one is known, and those not decided touch nothing of this. An
    /// open slot is known if its owner's suggestion is: nothing else can be decided there but a no-op.
    fn commutes(&self, turn: Turn, values: &[V]) -> bool {
        let slot = self.deal.slot(self.me, turn);
        let mut touches: Option<Touches<'_>> = None;
        let blind = self.parameters.mutated(Mutation::AnswerBeforeKnown);
        for (rank, lane) in self.lanes.iter().enumerate() {
            let turns = lane.frontier()..self.deal.turn(rank, slot);
            if lane.gap(turns.clone()).is_some() && !blind {
                return false;
            }
            for (_, state) in lane.range(turns) {
                match state {
                    State::Decided(_) => {}
                    // A revoker found nothing; another may still find what the owner suggested.
                    State::Voted(_, Value::NoOp) => return false,
                    State::Voted(_, Value::Batch(others)) => {
                        let touches = touches.get_or_insert_with(|| Touches::of(values));
                        if others.iter().any(|other| touches.meet(other)) {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }
}

/// What a batch touches.
struct Touches<'a> {
    keys: Vec<(&'a Blob, Access)>,
    all: Option<Access>,
}

impl<'a> Touches<'a> {
    fn of<V: Ordered>(values: &'a [V]) -> Touches<'a> {
        let mut touches = Touches { keys: Vec::new(), all: None };
        for value in values {
            value.visit(&mut |touch| match touch {
                Touch::Key(key, access) => touches.keys.push((key, access)),
                Touch::All(access) if touches.all.is_none_or(|known| !known.writes()) => {
                    touches.all = Some(access);
                }
                Touch::All(_) => {}
            });
        }
        touches.keys.sort_by_key(|(key, _)| *key);
        touches
    }

    /// Whether this value touches something of it, and one of the two writes.
    fn meet<V: Ordered>(&self, value: &V) -> bool {
        let clash = |a: Access, b: Access| a.writes() || b.writes();
        let mut meets = false;
        value.visit(&mut |touch| {
            meets |= match touch {
                Touch::All(access) => {
                    self.keys.iter().any(|(_, known)| clash(*known, access))
                        || self.all.is_some_and(|known| clash(known, access))
                }
                Touch::Key(key, access) => {
                    let first = self.keys.partition_point(|(known, _)| *known < key);
                    let same = self.keys[first..].iter().take_while(|(known, _)| *known == key);
                    same.into_iter().any(|(_, known)| clash(*known, access))
                        || self.all.is_some_and(|known| clash(known, access))
                }
            }
        });
        meets
    }
}
