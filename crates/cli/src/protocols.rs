//! The protocols this program can run: a line each in [`ALL`], and how each is spoken with.

use isochrone_core::deployment::{ConfigErrors, Known};
use isochrone_core::{Deployment, KeyspaceId};
use isochrone_node::protocols::Protocols;
use isochrone_replication::{
    Family, Replicated, curp, domino, epaxos, fastpaxos, mencius, multipaxos, sdpaxos,
};
use isochrone_store::Store;
use isochrone_workload::trial::{self, Terms};

mod speech;

/// All of them.
pub(crate) const ALL: &[Entry] = &[
    entry::<multipaxos::Family>(),
    entry::<curp::consensus::Family>(),
    entry::<mencius::Family>(),
    entry::<epaxos::Family>(),
    entry::<sdpaxos::Family>(),
    entry::<fastpaxos::Family>(),
    entry::<domino::Family>(),
    entry::<curp::primary::Family>(),
];

/// A protocol as the verbs know it.
pub(crate) struct Entry {
    /// Its name on the command line and in deployment files.
    pub(crate) name: &'static str,
    /// Whether nothing is served without a leader.
    pub(crate) led: bool,
    /// Runs one seed of it.
    pub(crate) trial: fn(&Deployment, KeyspaceId, &Terms, u64) -> Result<trial::Outcome, ConfigErrors>,
    register: fn(&mut Protocols),
}

const fn entry<F: Family>() -> Entry {
    Entry {
        name: F::NAME,
        led: F::LED,
        trial: |deployment, keyspace, terms, seed| {
            trial::run(deployment, keyspace, speech::bridge::<F>(), terms, seed)
        },
        register: |protocols| protocols.register::<Replicated<Store, F>>(speech::registration::<F>()),
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
