//! What outlives a restart: the journal's records, the own snapshot, and what neither of them tells.

use super::Mutation;
use super::message::{Held, Message, Rank, Record, Turn};
use super::order::{Order, RESERVE};
use crate::chunks::chunked;
use crate::order::Ordered;
use isochrone_core::{Ballot, Effects, Malformed, Slot, Snapshot, wire};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A chunk of an order's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Ordered> {
    delivered: Slot,
    next: Turn,
    /// By owner: the ballot promised, and below which turn.
    promised: Vec<(Ballot, Turn)>,
    /// What is held, by owner.
    held: Vec<(Rank, Held<V>)>,
}

impl<V: Ordered> Order<V> {
    pub(super) fn restore_image(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let image: Image<V> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "order snapshot chunk", cause: error.to_string() })?;
        if image.promised.len() != self.lanes.len() {
            let cause = format!("{} owners, not {}", image.promised.len(), self.lanes.len());
            return Err(Malformed { what: "order snapshot chunk", cause });
        }
        (self.delivered, self.recorded) = (image.delivered, image.delivered);
        self.trim(image.delivered);
        (self.next, self.durable) = (image.next, image.next);
        for (lane, (ballot, barred)) in self.lanes.iter_mut().zip(image.promised) {
            lane.admit(ballot, barred);
        }
        for (lane, Held { turns, ballot, value }) in image.held {
            let Some(lane) = self.lanes.get_mut(usize::from(lane)) else { continue };
            match ballot {
                Some(ballot) => lane.vote(turns, ballot, &value),
                None => drop(lane.decide(turns, &value)),
            }
        }
        Ok(())
    }

    pub(super) fn replay_record(&mut self, record: Record<V>) {
        let forget = self.parameters.mutated(Mutation::ForgetPromise);
        match record {
            Record::Voted { lane, turn, values } => {
                let lane = usize::from(lane);
                let turns = turn..turn + values.len() as u64;
                if lane == self.me {
                    self.give_up(turns.start);
                    self.next = self.next.max(turns.end);
                } else if turns.start < turns.end {
                    self.give_up(self.deal.turn(self.me, self.deal.slot(lane, turns.end - 1)));
                }
                for (turn, value) in turns.zip(values.iter()) {
                    self.lanes[lane].vote(turn..turn + 1, Ballot::ZERO, value);
                }
            }
            Record::Advanced { next } => self.give_up(next),
            Record::Restarted { next } => self.next = self.next.max(next),
            Record::Promised { .. } | Record::Adopted { .. } if forget => {}
            Record::Promised { lane, ballot, barred } => {
                self.lanes[usize::from(lane)].admit(ballot, barred);
                if usize::from(lane) == self.me {
                    self.give_up(barred);
                }
            }
            Record::Adopted { lane, ballot, runs } => {
                let barred = runs.last().map_or(0, |run| run.turns.end);
                self.lanes[usize::from(lane)].admit(ballot, barred);
                for run in runs.iter() {
                    self.lanes[usize::from(lane)].vote(run.turns.clone(), ballot, &run.value);
                }
                if usize::from(lane) == self.me {
                    self.give_up(barred);
                }
            }
            Record::Learned { runs } => {
                for run in runs.iter() {
                    self.lanes[usize::from(run.lane)].decide(run.turns.clone(), &run.value);
                }
                // As when they were learnt: the record that gives up own turns comes behind this one, and may be lost.
                self.give_up(self.lanes[self.me].end());
            }
            Record::Decided { slot } => self.close(slot),
        }
    }

    pub(super) fn own_snapshot(&self) -> Snapshot {
        let head = Image {
            delivered: self.delivered,
            next: self.next,
            promised: self.lanes.iter().map(|lane| (lane.promised, lane.barred)).collect(),
            held: Vec::new(),
        };
        let mut held = VecDeque::new();
        for (lane, of) in self.lanes.iter().enumerate() {
            let from = self.deal.turn(lane, self.delivered);
            held.extend(of.report(from..of.end()).into_iter().map(|held| (lane as Rank, held)));
        }
        chunked(held, move |held| Image { held, ..head.clone() })
    }

    /// What a former life may have left in its turns is found out by revoking them; the first own turn of
    /// this life lies behind.
    pub(super) fn restart(&mut self, effects: &mut Effects<Self>) {
        if self.incarnation > 1 && !self.parameters.mutated(Mutation::ReuseTurns) {
            let next = self.next + RESERVE;
            self.next = next;
            (self.reclaim, self.reclaim_at) = (next, effects.now());
            effects.record(Record::Restarted { next });
            effects.send(self.process, Message::Skip { skipped: next..next });
        }
        (self.skip_from, self.claim_from, self.told) = (self.next, self.next, self.next);
    }

    /// Everything before this slot is decided: as voted, or nothing.
    fn close(&mut self, slot: Slot) {
        for (lane, held) in self.lanes.iter_mut().enumerate() {
            held.close(self.deal.turn(lane, slot));
        }
        self.recorded = self.recorded.max(slot);
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Image<u8>>("mencius");
}
