//! A replica's snapshot of itself, for its own restart: promises and votes included.

use super::Replica;
use crate::family::Tuning as _;
use crate::message::{Entry, Successors};
use crate::order::{Member, Order};
use isochrone_core::{Blob, Export, Malformed, Snapshot, StateMachine, wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One chunk of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Piece {
    /// What the rest is the state at.
    Head { epoch: u32, members: Arc<[Member]>, applied: u64, digest: u64 },
    /// Of the order.
    Order(Blob),
    /// Of the exactly-once table.
    Once(Blob),
    /// Of the state machine.
    State(Blob),
    /// Before the head: the first of the members has led first.
    FirstLeads,
}

impl<S: StateMachine, O: Order<Value = Entry<S::Command>>> Replica<S, O> {
    pub(super) fn own_snapshot(&self) -> Snapshot {
        let members = self.members.clone();
        let head = Piece::Head { epoch: self.epoch, members, applied: self.applied, digest: self.digest };
        let order = self.order.snapshot().into_iter().flatten().map(Piece::Order);
        let forgets = self.knobs.0.drops_sessions();
        let once = if forgets { Self::empty_once(&self.service).export() } else { self.once.export() };
        let view = self.decided_machine().export();
        let state = view.into_chunks().map(Piece::State);
        let once = once.into_iter().map(Piece::Once);
        let pieces = self
            .first_leads
            .then_some(Piece::FirstLeads)
            .into_iter()
            .chain([head])
            .chain(order)
            .chain(once)
            .chain(state);
        Box::new(pieces.map(|piece| Blob::from(wire::encode(&piece))))
    }

    pub(super) fn restore_piece(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let piece: Piece = wire::decode(chunk)
            .map_err(|error| Malformed { what: "replica snapshot chunk", cause: error.to_string() })?;
        match piece {
            Piece::Head { epoch, members, applied, digest } => {
                if epoch > self.epoch {
                    let first_leads = self.first_leads;
                    self.begin_epoch(epoch, Successors { members, first_leads });
                }
                (self.applied, self.digest) = (applied, digest);
                Ok(())
            }
            Piece::FirstLeads => {
                self.first_leads = true;
                Ok(())
            }
            Piece::Order(chunk) => self.order.restore(chunk),
            Piece::Once(chunk) => self.once.absorb(&chunk),
            Piece::State(chunk) => self.machine.absorb(&chunk),
        }
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Piece>("replica");
}
