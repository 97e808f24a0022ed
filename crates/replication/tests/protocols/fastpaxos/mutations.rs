//! Every planted bug is found, each within 2,000 seeds.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::fastpaxos::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Case<Family> {
    let with = |replicas, faults: &str, crashes, hot| {
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { crashes, hot, rounds, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::CountReignsTogether => with(3, "none", 0, false),
        Mutation::ThresholdOffByOne => Case { deaf: true, ..with(5, "none", 0, true) },
        Mutation::VoteBeforeDurable => with(3, "power_loss,disk_slow", 8, true),
        Mutation::ForgetPromise => Case { first: 400, isolated: 6, ..with(3, "delay", 20, true) },
        Mutation::RetryUnderNewName => with(3, "loss", 0, false),
        Mutation::ReignOn => with(3, "disk_slow", 20, true),
        Mutation::FastQuorumTooSmall => Case { first: 30, ..with(3, "loss", 0, true) },
        Mutation::OpenTooLow => Case { first: 20, isolated: 6, ..with(3, "loss", 8, true) },
        Mutation::AdoptAny => Case { first: 20, isolated: 6, ..with(3, "loss", 12, true) },
    }
}

#[test]
fn every_planted_bug_is_caught() {
    let wanted = std::env::var("ISOCHRONE_BUG").ok();
    let named = |mutation: &Mutation| wanted.as_deref().is_none_or(|name| name == mutation.name());
    // Votes of different reigns must meet at one index, in two quorums: `tests/walk/fastpaxos/table.rs` plays that out by hand.
    let drawn = |mutation: &Mutation| *mutation != Mutation::CountReignsTogether;
    let planted = Mutation::ALL.into_iter().filter(drawn).filter(named);
    every_bug_is_caught(planted.map(|mutation| (mutation.name(), case(mutation))));
}
