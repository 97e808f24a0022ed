//! Every planted bug is found, each within 2,000 seeds.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::epaxos::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Case<Family> {
    let with = |replicas, faults: &str, crashes| {
        // The names are those of the fault table.
        let faults = faults.parse::<FaultSet>().unwrap();
        Case { crashes, hot: true, rounds: 100, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::AcknowledgeBeforeDurable | Mutation::ForgetReserved => with(3, "power_loss,disk_slow", 10),
        Mutation::DependenciesNotMerged | Mutation::ExecuteUncommitted | Mutation::ComponentUnordered => {
            with(3, "none", 0)
        }
        _ => Case { isolated: 4, ..with(5, "loss,delay", 12) },
    }
}

/// Those that need a rare order of messages are found in `tests/walk/epaxos/recovery.rs`.
const SHOWN_BY_SEEDS: [Mutation; 6] = [
    Mutation::DependenciesNotMerged,
    Mutation::ExecuteUncommitted,
    Mutation::ComponentUnordered,
    Mutation::AcknowledgeBeforeDurable,
    Mutation::CommitBeforeDurable,
    Mutation::ForgetReserved,
];

#[test]
fn every_planted_bug_is_caught() {
    let only = std::env::var("ISOCHRONE_BUG").ok();
    let wanted = |mutation: &Mutation| only.as_ref().is_none_or(|only| only == mutation.name());
    let all = SHOWN_BY_SEEDS.into_iter().filter(wanted);
    every_bug_is_caught(all.map(|mutation| (mutation.name(), case(mutation))));
}
