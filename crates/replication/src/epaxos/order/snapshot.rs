//! A replica's snapshot of its order, for its own restart, and its journal.

use super::super::Mutation;
use super::super::message::{Attributes, Content, InstanceId, Phase, Record, SEATS};
use super::instances::Executed;
use super::{Instance, Order};
use crate::chunks::chunked;
use crate::order::{Order as _, Ordered};
use isochrone_core::{Ballot, Malformed, Snapshot, wire};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// One chunk: where the whole stands, and some instances.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Image<V: Ordered> {
    executed: Executed,
    bases: Vec<u64>,
    settled: [u64; SEATS],
    known: [u64; SEATS],
    paused: bool,
    instances: Vec<(InstanceId, Held<V>)>,
}

/// An instance as it is held.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
struct Held<V: Ordered> {
    phase: Phase,
    promised: Ballot,
    accepted: Ballot,
    batch: Option<Arc<[V]>>,
    touches: Option<Arc<isochrone_core::TouchSet>>,
    initial: Option<Attributes>,
    noop: bool,
    attributes: Attributes,
}

impl<V: Ordered> Order<V> {
    pub(super) fn own_snapshot(&self) -> Snapshot {
        // Numbers that are reserved are heard of, to whoever starts from here.
        let mut known = self.known;
        if let Some(own) = known.get_mut(self.me) {
            *own = (self.numbers.end() - 1).max(*own);
        }
        let head = Image {
            executed: self.position(),
            bases: self.spaces.iter().map(|space| space.base()).collect(),
            settled: self.settled,
            known,
            paused: self.paused,
            instances: Vec::new(),
        };
        let held = |instance: &Instance<V>| Held {
            phase: instance.phase,
            promised: instance.promised,
            accepted: instance.accepted,
            batch: instance.batch.clone(),
            touches: instance.touches.clone(),
            initial: instance.initial,
            noop: instance.noop,
            attributes: instance.attributes,
        };
        let mut instances: VecDeque<(InstanceId, Held<V>)> = VecDeque::new();
        for (seat, space) in self.spaces.iter().enumerate() {
            let here = space.from(0).map(|(number, instance)| (InstanceId::at(seat, number), held(instance)));
            instances.extend(here);
        }
        chunked(instances, move |instances| Image { instances, ..head.clone() })
    }

    pub(super) fn restore_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let image: Image<V> = wire::decode(chunk)
            .map_err(|error| Malformed { what: "order snapshot chunk", cause: error.to_string() })?;
        let seats = self.spaces.len();
        if image.executed.len() != seats || image.bases.len() != seats {
            let cause = format!("{} seats, not {seats}", image.executed.len());
            return Err(Malformed { what: "order snapshot chunk", cause });
        }
        if self.spaces.iter().all(|space| space.end() == 1 && space.executed() == 0) {
            for (seat, space) in self.spaces.iter_mut().enumerate() {
                space.reset(image.bases[seat]);
                space.execute_all(image.executed[seat].0);
                image.executed[seat].1.iter().for_each(|number| {
                    space.execute(*number);
                });
            }
            self.serial += 1;
            self.trimmed = self.serial;
        }
        (self.settled, self.known, self.paused) = (image.settled, image.known, image.paused);
        let mut committed = Vec::new();
        for (id, held) in image.instances {
            if id.leader() >= seats {
                return Err(Malformed { what: "order snapshot chunk", cause: format!("instance {id}") });
            }
            let Some(instance) = self.spaces[id.leader()].open(id.number) else { continue };
            *instance = Instance {
                phase: held.phase,
                promised: held.promised,
                accepted: held.accepted,
                batch: held.batch,
                bytes: 0,
                touches: held.touches,
                initial: held.initial,
                noop: held.noop,
                attributes: held.attributes,
                indexed: 0,
            };
            let (is_committed, kept) =
                (instance.is_committed(), instance.batch.as_ref().map(wire::encoded_size));
            self.index_instance(id);
            self.relink(id);
            if self.is_executed(id) {
                if let Some(bytes) = kept {
                    self.keep(id, u32::try_from(bytes).unwrap_or(u32::MAX));
                }
            } else if is_committed {
                committed.push(id);
            }
        }
        for id in committed {
            self.link(id);
        }
        Ok(())
    }

    pub(super) fn replay_record(&mut self, record: Record<V>) {
        match record {
            Record::PreAccepted { id, batch, initial, attributes, delegate } => {
                self.hear_of(id.leader(), id.number);
                if let Some(instance) = self.open_instance(id)
                    && instance.phase == Phase::Initial
                {
                    instance.phase = if delegate { Phase::Accepted } else { Phase::PreAccepted };
                    instance.initial = Some(initial);
                    instance.attributes = attributes;
                }
                self.learn_batch(id, &batch);
            }
            Record::Promised { id, ballot } => {
                self.hear_of(id.leader(), id.number);
                if !self.mutated(Mutation::ForgetPromise)
                    && let Some(instance) = self.open_instance(id)
                {
                    instance.promised = ballot.max(instance.promised);
                }
            }
            Record::Validated { id, batch, initial } => self.note_proposal(id, &batch, initial),
            Record::Accepted { id, ballot, content, attributes } => {
                self.hear_of(id.leader(), id.number);
                self.cast(id, ballot, &content, attributes);
            }
            Record::Committed(committed) => {
                if let Content::Batch(batch) = &committed.content {
                    self.learn_batch(committed.id, batch);
                }
                self.set_committed(committed.id, committed.content == Content::NoOp, committed.attributes);
            }
            Record::Reported => {}
            Record::Paused => self.paused = true,
            Record::Resumed => self.resume(),
            Record::Reserved { upto } => {
                if !self.mutated(Mutation::ForgetReserved) {
                    self.hear_of(self.me, upto);
                }
            }
        }
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Image<u8>>("epaxos");
}
