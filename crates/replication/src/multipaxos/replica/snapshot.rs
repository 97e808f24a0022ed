//! A replica's snapshot of itself, for its own restart: promises and votes included.

use super::super::Mutation;
use super::Replica;
use isochrone_core::{Blob, Export, Malformed, OnceTable, Process, Slot, Snapshot, StateMachine, wire};
use serde::{Deserialize, Serialize};

/// One chunk of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Piece {
    /// Of the log.
    Log(Blob),
    /// What the rest is the state at.
    Head { applied: Slot, digest: u64 },
    /// Of the exactly-once table.
    Once(Blob),
    /// Of the state machine.
    State(Blob),
}

impl<S: StateMachine> Replica<S> {
    pub(super) fn own_snapshot(&self) -> Snapshot {
        let log = self.log.snapshot().into_iter().flatten().map(Piece::Log);
        let head = Piece::Head { applied: self.applied, digest: self.digest };
        let forgets = self.parameters.mutated(Mutation::DropSession);
        let once = if forgets { OnceTable::<S::Reply>::default().export() } else { self.once.export() };
        let view = self.machine.export();
        let state = (0..).map_while(move |index| view.chunk(index)).map(Piece::State);
        let pieces = log.chain([head]).chain(once.into_iter().map(Piece::Once)).chain(state);
        Box::new(pieces.map(|piece| Blob::from(wire::encode(&piece))))
    }

    pub(super) fn restore_piece(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let piece: Piece = wire::decode(chunk)
            .map_err(|error| Malformed { what: "replica snapshot chunk", cause: error.to_string() })?;
        match piece {
            Piece::Log(chunk) => self.log.restore(chunk),
            Piece::Head { applied, digest } => {
                (self.applied, self.digest) = (applied, digest);
                Ok(())
            }
            Piece::Once(chunk) => self.once.absorb(&chunk),
            Piece::State(chunk) => self.machine.absorb(&chunk),
        }
    }
}
