//! The replicated directory: which nodes there are, and who holds which part of which keyspace.
//!
//! **What it is.** A small state machine over Multi-Paxos, in keyspace 0; clients keep what they were told
//! and ask again when a member says that it no longer serves a key. A keyspace is a ring of 2^64 places
//! ([`key_hash`](isochrone_core::key_hash)); each partition owns the arc from its first place to the next
//! partition's.
//!
//! **What it promises.** Linearizable. Every entry has a version that rises by one with each change, and a
//! change names the version that it was made from: of two made from the same, one is refused. So an
//! operator's tool may read, decide and write without a lock, and one that repeats itself does no harm.
//!
//! **What stays with its users**: the order of steps in a migration (`specs/curp.md` 3.12), owners by
//! position (FLStore), home and host apart (Sloth).

mod machine;

#[cfg(test)]
mod tests;

pub use machine::{Command, Directory, Node, Partition, Refusal, Reply, Version};

use crate::multipaxos::{MultiPaxos, Placement};
use isochrone_core::deployment::{ConfigErrors, Deployment};
use isochrone_core::{KeyspaceId, NodeId};

/// The keyspace of the directory.
pub const KEYSPACE: KeyspaceId = KeyspaceId(0);

/// Replicas of the directory at most: more make it slower and hardly safer.
const REPLICAS_MAX: usize = 5;

/// The protocol that replicates it.
pub type Protocol = MultiPaxos<Directory>;

/// Where the directory of a deployment stands, filled with what the deployment says: replicas on the first
/// node of each region, up to five, an odd number of them.
///
/// # Errors
/// Those of a placement.
pub fn placement(deployment: &Deployment) -> Result<Placement<Directory>, ConfigErrors> {
    let firsts = deployment.regions().iter().filter_map(|region| deployment.nodes_in(region.id).next());
    let mut replicas: Vec<NodeId> = firsts.map(|node| node.id).take(REPLICAS_MAX).collect();
    if replicas.len().is_multiple_of(2) {
        replicas.pop();
    }
    // A deployment has at least one keyspace; the directory takes its shape and nothing else from it.
    let mut keyspace = deployment.keyspaces()[0].clone();
    (keyspace.id, keyspace.replicas, keyspace.leader, keyspace.partitions) = (KEYSPACE, replicas, None, 1);
    keyspace.parameters = isochrone_core::deployment::Parameters::none();
    let mut placement = Placement::<Directory>::of(deployment, &keyspace)?;
    placement.machine = Directory::of(deployment);
    Ok(placement)
}
