//! Every planted bug is found, each within 2,000 seeds.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::multipaxos::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Case<Family> {
    let with = |replicas, faults: &str, crashes, hot| {
        // The names are those of the table below.
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { crashes, hot, rounds, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::AcknowledgeBeforeDurable => Case { first: 70, ..with(3, "power_loss,disk_slow", 4, false) },
        Mutation::OwnVoteAtOnce => Case { first: 720, isolated: 4, ..with(3, "disk_slow", 20, false) },
        Mutation::PrepareAhead => Case { relapse: true, ..with(3, "none", 0, true) },
        Mutation::ForgetPromise => Case { first: 40, isolated: 4, ..with(3, "delay", 20, false) },
        Mutation::CountDuplicateVote => Case { first: 40, ..with(5, "duplicate,partition", 0, false) },
        Mutation::ApplyGap => with(3, "loss,duplicate,partition,reorder", 0, false),
        Mutation::ReadAfterLease => Case { isolated: 4, ..with(3, "drift", 0, true) },
        Mutation::DropSession => Case { first: 600, ..with(3, "power_loss,snapshot,loss", 10, false) },
        Mutation::ReadBeforeOwnCommit => Case { first: 265, ..with(3, "partition,region_loss", 4, false) },
        Mutation::AdoptAny => Case { first: 20, isolated: 8, ..with(3, "loss", 12, true) },
        Mutation::IgnoreLeases => Case { usurped: true, ..with(3, "none", 0, true) },
    }
}

#[test]
fn every_planted_bug_is_caught() {
    every_bug_is_caught(Mutation::ALL.map(|mutation| (mutation.name(), case(mutation))));
}
