//! Who is who: nodes, regions, keyspaces, processes, clients, commands. Plain numbers in distinct types.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A machine of the deployment, numbered in file order from 0.
    NodeId(u16), "n"
);
number!(
    /// A place with its own row in the round-trip matrix, numbered in file order from 0.
    RegionId(u16), "region"
);
number!(
    /// A keyspace, numbered in file order from 1.
    KeyspaceId(u16), "k"
);
number!(
    /// A partition of a keyspace, from 0.
    PartitionId(u16), "p"
);
number!(
    /// A member of one replication group, from 0. It names a seat: a replacement gets a new one.
    ReplicaId(u8), "r"
);
number!(
    /// What a process does in its protocol; each protocol numbers its own roles.
    Role(u8), "role"
);
number!(
    /// A host's handle for one request it made of a process; unique within one incarnation.
    Ticket(u64), "t"
);

/// Names one process of a deployment: where it runs, whose data it serves, and what it does there.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The machine it runs on.
    pub node: NodeId,
    /// The keyspace it serves.
    pub keyspace: KeyspaceId,
    /// The partition of that keyspace.
    pub partition: PartitionId,
    /// Its role in the protocol.
    pub role: Role,
    /// Tells apart processes that are alike in all else (several clients of one node).
    pub instance: u8,
}

impl ProcessId {
    /// The eight bytes of this name as one number: the stream of this process in a shared journal.
    pub fn to_u64(self) -> u64 {
        u64::from(self.node.0) << 48
            | u64::from(self.keyspace.0) << 32
            | u64::from(self.partition.0) << 16
            | u64::from(self.role.0) << 8
            | u64::from(self.instance)
    }

    /// The inverse of [`ProcessId::to_u64`].
    pub fn from_u64(number: u64) -> ProcessId {
        ProcessId {
            node: NodeId((number >> 48) as u16),
            keyspace: KeyspaceId((number >> 32) as u16),
            partition: PartitionId((number >> 16) as u16),
            role: Role((number >> 8) as u8),
            instance: number as u8,
        }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}/{}", self.node, self.keyspace, self.partition, self.role, self.instance)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A process and how many times it has been started. The incarnation rises at every start and is
/// durable before the first effect of that start leaves the node, so it is never used twice.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The process.
    pub process: ProcessId,
    /// How many times it has been started, from 1.
    pub incarnation: u32,
}

/// A client process in one of its lives: the owner of a run of command numbers. A restarted client is
/// another client, so its commands are never taken for those of its former life.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
pub struct ClientId {
    /// The client process.
    pub process: ProcessId,
    /// Its incarnation.
    pub incarnation: u32,
}

impl From<Identity> for ClientId {
    fn from(identity: Identity) -> ClientId {
        ClientId { process: identity.process, incarnation: identity.incarnation }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.process, self.incarnation)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names one command for ever: the client that issued it and its number there, from 1.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub struct CommandId {
    /// The client.
    pub client: ClientId,
    /// The client's count of commands, from 1, dense.
    pub sequence: u64,
}
