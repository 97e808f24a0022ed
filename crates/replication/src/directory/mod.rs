//! The replicated directory: which nodes there are, and who holds which part of which keyspace.
//!
//! **What it is.** A small state machine over Multi-Paxos, in keyspace 0; clients keep what they were told
//! and ask again when a member says that it no longer serves a key. A keyspace is a ring of 2^64 places
//! ([`key_hash`](isochrone_core::key_hash)); each partition owns the arc from its first place to the next
//! partition's.
//!
//! **What it promises.** Linearizable. Every entry has a version that rises by one with each change (of a
//! partition also when a neighbour's change moves the end of its arc), and a change names the version that
//! it was made from: of two made from the same, one is refused with the version of now. So an operator's
//! tool may read, decide and write without a lock, and one that repeats itself does no harm. At every
//! moment each place of a keyspace's ring has exactly one partition.
//!
//! **Who asks** (`specs/README.md`, row `Directory`). A client keeps [`Routes`]. A steward asks for the
//! [`Order`]s of its node and starts and stops processes accordingly (contract point 11): an order names
//! protocol, partition and members; which roles those take is the protocol's business.
//!
//! **What stays with its users**: the order of steps in a migration (`specs/curp.md` 3.12), owners by
//! position (FLStore), home and host apart (Sloth).

mod entry;
mod export;
mod machine;
mod routes;

#[cfg(test)]
mod tests;

pub use entry::{Command, Keyspace, Node, Order, Partition, Refusal, Reply, Route, Version};
pub use export::View;
pub use machine::Directory;
pub use routes::Routes;

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
/// node of each region, then on the others, up to five, an odd number of them; clients on all nodes.
///
/// # Errors
/// Those of a placement.
pub fn placement(deployment: &Deployment) -> Result<Placement<Directory>, ConfigErrors> {
    // In file order, but a region's second node after every region's first.
    let rank = |node: &NodeId| {
        let region = deployment.nodes()[usize::from(node.0)].region;
        deployment.nodes_in(region).position(|other| other.id == *node)
    };
    let mut replicas: Vec<NodeId> = deployment.nodes().iter().map(|node| node.id).collect();
    replicas.sort_by_key(rank);
    replicas.truncate(REPLICAS_MAX);
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
