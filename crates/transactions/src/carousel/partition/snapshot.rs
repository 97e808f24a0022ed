//! The replicated state in chunks: the tables, then the versions of the keys.

use super::{Closed, Coordinated, State};
use crate::carousel::message::Vote;
use crate::request::TxnId;
use isochrone_core::{Ballot, Blob, ClientId, Export, Malformed, wire};
use isochrone_store::versions::{self, Version};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is not the versions of keys. It is bounded by what is open and what clients have not acknowledged.
#[derive(Serialize, Deserialize)]
struct Tables {
    pending: Vec<(TxnId, Vote)>,
    closed: Vec<(TxnId, Closed)>,
    coordinated: Vec<(TxnId, Coordinated)>,
    floors: Vec<(ClientId, u64)>,
    clock: Version,
    ceiling: Version,
    barrier: Ballot,
}

/// One chunk.
#[derive(Serialize, Deserialize)]
enum Chunk {
    Tables(Box<Tables>),
    Versions(Blob),
}

/// The state at one moment.
#[derive(Clone)]
pub struct View {
    tables: Arc<Tables>,
    versions: versions::View,
}

impl View {
    pub(super) fn of(state: &State) -> View {
        fn list<K: Copy, V: Clone>(table: &std::collections::BTreeMap<K, V>) -> Vec<(K, V)> {
            table.iter().map(|(key, value)| (*key, value.clone())).collect()
        }
        let tables = Tables {
            pending: list(&state.pending),
            closed: list(&state.closed),
            coordinated: list(&state.coordinated),
            floors: list(&state.floors),
            clock: state.clock,
            ceiling: state.ceiling,
            barrier: state.barrier,
        };
        View { tables: Arc::new(tables), versions: state.store.export() }
    }
}

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        match index.checked_sub(1) {
            None => {
                #[derive(Serialize)]
                enum Chunk<'a> {
                    Tables(&'a Tables),
                }
                Some(Blob::from(wire::encode(&Chunk::Tables(&self.tables))))
            }
            Some(index) => {
                let chunk = self.versions.chunk(index)?;
                Some(Blob::from(wire::encode(&Chunk::Versions(chunk))))
            }
        }
    }
}

impl State {
    pub(super) fn absorb(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let chunk = wire::decode(chunk)
            .map_err(|error| Malformed { what: "state of a partition", cause: format!("{error}") })?;
        match chunk {
            Chunk::Versions(chunk) => return self.store.absorb(&chunk),
            Chunk::Tables(tables) => {
                let tables = *tables;
                self.pending = tables.pending.into_iter().collect();
                self.closed = tables.closed.into_iter().collect();
                self.coordinated = tables.coordinated.into_iter().collect();
                self.floors = tables.floors.into_iter().collect();
                (self.clock, self.ceiling, self.barrier) = (tables.clock, tables.ceiling, tables.barrier);
            }
        }
        Ok(())
    }
}
