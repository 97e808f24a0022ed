//! The replicated state in chunks: the tables, cut where they are too large for one, then the versions of the keys.

use super::{Closed, Coordinated, State};
use crate::carousel::message::Vote;
use crate::request::TxnId;
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Ballot, Blob, ClientId, Export, Malformed, wire};
use isochrone_store::versions::{self, Version};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is not the versions of keys, or a part of it. It is bounded by what is open and what clients have not
/// acknowledged.
#[derive(Default, Serialize, Deserialize)]
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
    /// The first part of the tables.
    Tables(Box<Tables>),
    Versions(Blob),
    /// A further part: rows, and nothing else of it counts.
    More(Box<Tables>),
}

/// Bytes of a part beside its rows, at most.
const MARGIN: usize = 256;

/// Tables as they are cut into parts: each has room in a chunk, unless a single row has none.
struct Cut {
    parts: Vec<Tables>,
    size: usize,
}

impl Cut {
    fn add<K: Copy + Serialize, V: Clone + Serialize>(
        &mut self,
        rows: &BTreeMap<K, V>,
        table: fn(&mut Tables) -> &mut Vec<(K, V)>,
    ) {
        for row in rows {
            let bytes = wire::encoded_size(&row);
            if self.size > 0 && self.size + bytes > CHUNK_MAX - MARGIN {
                self.parts.push(Tables::default());
                self.size = 0;
            }
            self.size += bytes;
            if let Some(part) = self.parts.last_mut() {
                table(part).push((*row.0, row.1.clone()));
            }
        }
    }
}

/// The state at one moment.
#[derive(Clone)]
pub struct View {
    tables: Arc<[Tables]>,
    versions: versions::View,
}

impl View {
    pub(super) fn of(state: &State) -> View {
        let (clock, ceiling, barrier) = (state.clock, state.ceiling, state.barrier);
        let mut cut = Cut { parts: vec![Tables { clock, ceiling, barrier, ..Tables::default() }], size: 0 };
        cut.add(&state.floors, |part| &mut part.floors);
        cut.add(&state.closed, |part| &mut part.closed);
        cut.add(&state.coordinated, |part| &mut part.coordinated);
        cut.add(&state.pending, |part| &mut part.pending);
        View { tables: cut.parts.into(), versions: state.store.export() }
    }
}

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        #[derive(Serialize)]
        enum Chunk<'a> {
            Tables(&'a Tables),
            Versions(Blob),
            More(&'a Tables),
        }
        let at = usize::try_from(index).ok()?;
        let chunk = match self.tables.get(at) {
            Some(first) if at == 0 => Chunk::Tables(first),
            Some(part) => Chunk::More(part),
            None => Chunk::Versions(self.versions.chunk(index - self.tables.len() as u64)?),
        };
        Some(Blob::from(wire::encode(&chunk)))
    }
}

impl State {
    /// Whether the chunk was of the tables, and not of the versions of keys, of which there may be very many.
    pub(super) fn absorb(&mut self, chunk: &[u8]) -> Result<bool, Malformed> {
        let chunk = wire::decode(chunk)
            .map_err(|error| Malformed { what: "state of a partition", cause: format!("{error}") })?;
        let part = match chunk {
            Chunk::Versions(chunk) => return self.store.absorb(&chunk).map(|()| false),
            Chunk::Tables(first) => {
                (self.clock, self.ceiling, self.barrier) = (first.clock, first.ceiling, first.barrier);
                first
            }
            Chunk::More(part) => part,
        };
        self.pending.extend(part.pending);
        self.closed.extend(part.closed);
        self.coordinated.extend(part.coordinated);
        self.floors.extend(part.floors);
        Ok(true)
    }
}

#[test]
fn what_is_kept_has_the_shape_of_its_format() {
    isochrone_core::shape::hold::<Chunk>("carousel");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carousel::message::{Part, Verdict};
    use crate::request::Update;
    use isochrone_core::ProcessId;

    #[test]
    fn a_copy_made_of_chunks_is_equal() {
        for (rows, bytes) in [(0, 0), (3, 10), (40, CHUNK_MAX / 3), (3, CHUNK_MAX * 2)] {
            let mut state = State { clock: Version(5), ceiling: Version(6), ..State::default() };
            for number in 0..rows {
                let client = ClientId { process: ProcessId::from_u64(number % 2), incarnation: 1 };
                let txn = TxnId { client, sequence: number };
                let key = Blob::from(format!("key{number}"));
                let part =
                    Part { partition: Default::default(), reads: [key.clone()].into(), writes: [].into() };
                let verdict = Verdict { prepared: true, versions: vec![Version(1)], at: Version(2) };
                let (coordinator, term) = (client.process, Ballot::default());
                let vote = Vote { txn, part: part.clone(), coordinator, term, verdict: verdict.clone() };
                let update = Update { key, value: Some(Blob::from(vec![7; bytes])) };
                let write = Some(([update].into(), [].into()));
                let known = Coordinated { parts: [part].into(), write, ended: None, forgotten: false };
                state.pending.insert(txn, vote);
                state.closed.insert(txn, Closed { verdict: Some(verdict), ended: None, coordinator });
                state.coordinated.insert(txn, known);
                state.floors.insert(client, number);
            }
            let view = View::of(&state);
            let chunks: Vec<Blob> = (0..).map_while(|index| view.chunk(index)).collect();
            let most = CHUNK_MAX.max(bytes + MARGIN);
            assert!(chunks.iter().all(|chunk| chunk.len() <= most), "{rows} rows of {bytes} bytes");
            let mut copy = State::default();
            for chunk in &chunks {
                copy.absorb(chunk).unwrap();
            }
            assert_eq!(format!("{copy:?}"), format!("{state:?}"), "{rows} rows of {bytes} bytes");
        }
    }
}
