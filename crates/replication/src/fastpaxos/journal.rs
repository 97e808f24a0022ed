//! What outlives a crash: records, and the order's own snapshot.

use super::Mutation;
use super::message::{Record, Values, Vote};
use super::order::{Cell, Order};
use crate::chunks::fill;
use crate::order::Ordered;
use isochrone_core::{Ballot, Blob, Instant, Malformed, Promise, Slot, Snapshot, wire};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// A chunk of an order's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Ordered> {
    promise: Promise,
    opened: Ballot,
    closed: bool,
    next: Slot,
    decided: Slot,
    votes: Vec<(Slot, Vote<V>)>,
    outcomes: Vec<(Slot, Values<V>)>,
}

impl<V: Ordered> Order<V> {
    /// What a former life wrote down.
    pub(super) fn replay_record(&mut self, record: Record<V>) {
        let forget = self.parameters.mutated(Mutation::ForgetPromise);
        let mut promise = |reign: Ballot| {
            if !forget {
                self.promise.admit(reign);
            }
        };
        let zero = Instant::ZERO;
        match record {
            Record::Promised { reign } => promise(reign),
            Record::Voted { reign, first, values } => {
                promise(reign);
                for (offset, value) in values.into_iter().enumerate() {
                    let slot = first.plus(offset as u64);
                    self.set_vote(slot, reign, false, Arc::from([value]), zero);
                    self.next = self.next.max(slot.next());
                }
            }
            Record::Skipped { next } => self.next = self.next.max(next),
            Record::Accepted { reign, entries } => {
                promise(reign);
                for (slot, values) in entries {
                    self.set_vote(slot, reign, true, values, zero);
                    self.next = self.next.max(slot.next());
                }
            }
            Record::Opened { reign, floor, closed, entries } => {
                promise(reign);
                (self.opened, self.closed) = (reign, closed);
                for (slot, values) in entries {
                    self.set_vote(slot, reign, true, values, zero);
                }
                self.next = self.next.max(floor);
            }
            Record::Decided { entries } => {
                for (slot, values) in entries {
                    let own = || Some(self.cells.get(slot)?.vote.as_ref()?.values.clone());
                    if let Some(values) = values.or_else(own) {
                        self.decide(slot, values, false, zero);
                    }
                }
                self.fresh.clear();
            }
        }
    }

    pub(super) fn own_snapshot(&self) -> Snapshot {
        let head = Image {
            promise: self.promise,
            opened: self.opened,
            closed: self.closed,
            next: self.next,
            decided: self.delivered,
            votes: Vec::new(),
            outcomes: Vec::new(),
        };
        let open = self.cells.range(self.delivered);
        let vote = |(slot, cell): (Slot, &Cell<V>)| Some((slot, cell.vote.clone()?));
        let outcome = |(slot, cell): (Slot, &Cell<V>)| Some((slot, cell.outcome.clone()?));
        let mut votes: VecDeque<(Slot, Vote<V>)> = open.filter_map(vote).collect();
        let mut outcomes: VecDeque<(Slot, Values<V>)> =
            self.cells.range(self.delivered).filter_map(outcome).collect();
        let mut first = true;
        Box::new(std::iter::from_fn(move || {
            if !first && votes.is_empty() && outcomes.is_empty() {
                return None;
            }
            first = false;
            let mut size = 0;
            // Votes before outcomes: an index that is decided takes no vote.
            let votes = fill(&mut votes, &mut size);
            let outcomes = fill(&mut outcomes, &mut size);
            Some(Blob::from(wire::encode(&Image { votes, outcomes, ..head.clone() })))
        }))
    }

    pub(super) fn restore_image(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let image: Image<V> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "order snapshot chunk", cause: error.to_string() })?;
        if self.cells.is_empty() {
            self.cells.reset(image.decided);
        }
        (self.promise, self.opened, self.closed) = (image.promise, image.opened, image.closed);
        (self.decided, self.delivered, self.known) = (image.decided, image.decided, image.decided);
        for (slot, vote) in image.votes {
            self.set_vote(slot, vote.reign, vote.classic, vote.values, Instant::ZERO);
        }
        for (slot, values) in image.outcomes {
            if let Some(cell) = self.cell(slot, Instant::ZERO) {
                cell.outcome = Some(values);
            }
        }
        self.next = image.next;
        Ok(())
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Image<u8>>("fastpaxos");
}
