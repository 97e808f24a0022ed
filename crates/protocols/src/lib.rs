//! The protocols that there are: a line each in [`ALL`], how each is spoken with, and the code of each, made once for
//! whoever runs them.

#![forbid(unsafe_code)]

use isochrone_core::deployment::{ConfigErrors, Known};
use isochrone_core::{Deployment, KeyspaceId, NodeId};
use isochrone_node::protocols::Protocols;
use isochrone_replication::{
    Family, Replicated, curp, domino, epaxos, fastpaxos, mencius, multipaxos, sdpaxos,
};
use isochrone_store::Store;
use isochrone_transactions::commands::Served;
use isochrone_transactions::{Family as TransactionFamily, carousel, tapir, twopc};
use isochrone_workload::transactions as workload;
use isochrone_workload::trial::{self, Terms};

mod speech;
mod transactional;

/// All of them.
pub static ALL: &[Entry] = &[
    entry::<multipaxos::Family>(),
    entry::<curp::consensus::Family>(),
    entry::<mencius::Family>(),
    entry::<epaxos::Family>(),
    entry::<sdpaxos::Family>(),
    entry::<fastpaxos::Family>(),
    entry::<domino::Family>(),
    entry::<curp::primary::Family>(),
    transactions::<carousel::Fast>(),
    transactions::<carousel::Basic>(),
    transactions::<twopc::Family>(),
    transactions::<tapir::Family>(),
];

/// A protocol as the verbs know it.
pub struct Entry {
    /// Its name on the command line and in deployment files.
    pub name: &'static str,
    /// Whether nothing is served without a leader.
    pub led: bool,
    /// What it is asked, and how one seed of it is run.
    pub runs: Runs,
}

/// A protocol of commands, or of transactions.
pub enum Runs {
    /// Commands on keys of one partition.
    Commands {
        /// Runs one seed.
        trial: Trial,
        /// Says how nodes run it.
        register: fn(&mut Protocols),
    },
    /// Transactions over keys of several partitions, which stand each on nodes of its own.
    Transactions {
        /// Runs one seed.
        trial: TransactionTrial,
        /// Runs one seed of commands, each of which becomes a transaction.
        commands: Trial,
        /// Says how nodes run it.
        register: fn(&mut Protocols),
    },
}

/// Runs one seed of commands.
pub type Trial = fn(&Deployment, KeyspaceId, &Terms, u64) -> Result<trial::Outcome, ConfigErrors>;

/// Runs one seed of a protocol of transactions.
pub type TransactionTrial =
    fn(&Deployment, KeyspaceId, &Terms<workload::Workload>, u64) -> Result<workload::Outcome, ConfigErrors>;

const fn entry<F: Family>() -> Entry {
    Entry {
        name: F::NAME,
        led: F::LED,
        runs: Runs::Commands {
            trial: |deployment, keyspace, terms, seed| {
                trial::run(deployment, keyspace, speech::bridge::<F>(), terms, seed)
            },
            register: |protocols| protocols.register::<Replicated<Store, F>>(speech::registration::<F>()),
        },
    }
}

const fn transactions<F: TransactionFamily>() -> Entry {
    Entry {
        name: F::NAME,
        led: F::LED,
        runs: Runs::Transactions {
            trial: workload::run::<F>,
            commands: |deployment, keyspace, terms, seed| {
                trial::run(deployment, keyspace, transactional::bridge::<F>(), terms, seed)
            },
            register: |protocols| protocols.register::<Served<F>>(transactional::registration::<F>()),
        },
    }
}

impl Entry {
    /// Whether it is one of transactions.
    pub fn transactional(&self) -> bool {
        matches!(self.runs, Runs::Transactions { .. })
    }
}

/// What a deployment file may name.
pub fn known() -> Known {
    let names = |transactional| {
        let named = ALL.iter().filter(move |entry| entry.transactional() == transactional);
        named.map(|entry| entry.name).collect::<Vec<_>>()
    };
    Known::names(&names(false)).placing(&names(true))
}

/// How nodes run them.
pub fn served() -> Protocols {
    let mut protocols = Protocols::default();
    for entry in ALL {
        let (Runs::Commands { register, .. } | Runs::Transactions { register, .. }) = entry.runs;
        register(&mut protocols);
    }
    protocols
}

/// Whether nodes would run every keyspace of a deployment: what its protocol is told makes sense.
///
/// # Errors
/// As a node would refuse to start.
pub fn check(deployment: &Deployment) -> Result<(), ConfigErrors> {
    let protocols = served();
    let mut keyspaces = deployment.keyspaces().iter();
    keyspaces.try_for_each(|keyspace| protocols.place(deployment, keyspace, NodeId(0)).map(drop))
}

/// The entry of a keyspace's protocol.
pub fn of(deployment: &Deployment, keyspace: KeyspaceId) -> Option<&'static Entry> {
    let name = &deployment.keyspace(keyspace).protocol;
    ALL.iter().find(|entry| entry.name == name)
}
