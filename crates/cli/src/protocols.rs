//! The protocols this program can run: a line each in [`ALL`], and how each is spoken with.

use isochrone_core::deployment::{ConfigErrors, Known};
use isochrone_core::{Deployment, KeyspaceId, Protocol};
use isochrone_node::protocols::{Protocols, Registration};
use isochrone_replication::multipaxos::MultiPaxos;
use isochrone_store::Store;
use isochrone_workload::trial::{self, Bridge, Terms};

mod multipaxos;

/// All of them.
pub(crate) const ALL: &[Entry] = &[entry::<MultiPaxos<Store>, multipaxos::Speech>()];

/// A protocol as the verbs know it.
pub(crate) struct Entry {
    /// Its name on the command line and in deployment files.
    pub(crate) name: &'static str,
    /// Runs one seed of it.
    pub(crate) trial: fn(&Deployment, KeyspaceId, &Terms, u64) -> Result<trial::Outcome, ConfigErrors>,
    register: fn(&mut Protocols),
}

/// How a protocol is spoken with.
pub(crate) trait Speech<F: Protocol> {
    /// By trials.
    const BRIDGE: Bridge<F>;
    /// By nodes.
    const REGISTRATION: Registration<F>;
}

const fn entry<F: Protocol, S: Speech<F>>() -> Entry {
    Entry {
        name: F::NAME,
        trial: |deployment, keyspace, terms, seed| trial::run(deployment, keyspace, S::BRIDGE, terms, seed),
        register: |protocols| protocols.register::<F>(S::REGISTRATION),
    }
}

/// What a deployment file may name.
pub(crate) fn known() -> Known {
    let names: Vec<_> = ALL.iter().map(|entry| entry.name).collect();
    Known::names(&names)
}

/// How nodes run them.
pub(crate) fn served() -> Protocols {
    let mut protocols = Protocols::default();
    for entry in ALL {
        (entry.register)(&mut protocols);
    }
    protocols
}

/// The entry of a keyspace's protocol.
pub(crate) fn of(deployment: &Deployment, keyspace: KeyspaceId) -> Option<&'static Entry> {
    let name = &deployment.keyspace(keyspace).protocol;
    ALL.iter().find(|entry| entry.name == name)
}
