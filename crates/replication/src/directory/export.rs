//! The directory as chunks, for snapshots and peers.

use super::entry::{Keyspace, Node, Partition};
use super::machine::{Directory, Versioned};
use isochrone_core::machine::CHUNK_MAX;
use isochrone_core::{Blob, Export, KeyspaceId, Malformed, NodeId, PartitionId, wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The directory at one position.
#[derive(Clone, Debug)]
pub struct View(Arc<[Blob]>);

impl Export for View {
    fn chunk(&self, index: u64) -> Option<Blob> {
        self.0.get(usize::try_from(index).ok()?).cloned()
    }
}

impl View {
    /// The chunks are made at once: a directory is small.
    pub(super) fn of(directory: &Directory) -> View {
        let nodes = directory.nodes.iter().map(|(id, entry)| Piece::Node(*id, entry.clone()));
        let keyspaces = directory.keyspaces.iter().map(|(id, entry)| Piece::Keyspace(*id, entry.clone()));
        let partitions =
            directory.partitions.iter().map(|(key, entry)| Piece::Partition(*key, entry.clone()));
        let (mut chunks, mut open) = (Vec::new(), Vec::new());
        for piece in nodes.chain(keyspaces).chain(partitions) {
            if !open.is_empty() && open.len() + wire::encoded_size(&piece) > CHUNK_MAX {
                chunks.push(Blob::from(std::mem::take(&mut open)));
            }
            wire::encode_into(&piece, &mut open);
        }
        if !open.is_empty() {
            chunks.push(Blob::from(open));
        }
        View(chunks.into())
    }

    /// Takes in one chunk.
    pub(super) fn absorb(directory: &mut Directory, chunk: &[u8]) -> Result<(), Malformed> {
        let mut rest = chunk;
        while !rest.is_empty() {
            let (piece, behind) = wire::decode_prefix(rest)
                .map_err(|error| Malformed { what: "directory chunk", cause: error.to_string() })?;
            match piece {
                Piece::Node(id, entry) => drop(directory.nodes.insert(id, entry)),
                Piece::Keyspace(id, entry) => drop(directory.keyspaces.insert(id, entry)),
                Piece::Partition(key, entry) => drop(directory.partitions.insert(key, entry)),
            }
            rest = behind;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Piece {
    Node(NodeId, Versioned<Node>),
    Keyspace(KeyspaceId, Keyspace),
    Partition((KeyspaceId, PartitionId), Versioned<Partition>),
}
