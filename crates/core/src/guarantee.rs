//! What a keyspace promises, as one word.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The consistency a keyspace gives. One enum for `plan`, `up`, `INFO`, metrics and documents; the
/// checker that tests a history is chosen by it too.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Each command seems to take effect at one point between its call and its answer.
    Linearizable,
    /// The commands of each key, seen by themselves, are linearizable. One that touches several keys may lie between two
    /// others on different keys in another order than that of real time.
    LinearizableByKey,
    /// All replicas execute one order; an acknowledged command has its place, its result may come later.
    Sequenced,
    /// Serializable, in an order that respects real time.
    StrictlySerializable,
    /// Equal to some serial order of the transactions.
    Serializable,
    /// Updates are serializable; each read-only transaction agrees with some serial order of the updates.
    UpdateSerializable,
    /// Reads from one consistent snapshot; write conflicts abort.
    Snapshot,
    /// What happened before is seen before.
    Causal,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::Linearizable => "linearizable",
            Guarantee::LinearizableByKey => "linearizable by key",
            Guarantee::Sequenced => "sequenced",
            Guarantee::StrictlySerializable => "strictly serializable",
            Guarantee::Serializable => "serializable",
            Guarantee::UpdateSerializable => "update serializable",
            Guarantee::Snapshot => "snapshot",
            Guarantee::Causal => "causal",
        })
    }
}
