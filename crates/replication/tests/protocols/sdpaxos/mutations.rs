//! Every planted bug is found, each within 2,000 seeds.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::sdpaxos::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Case<Family> {
    let with = |replicas, faults: &str, crashes, hot| {
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { crashes, hot, rounds, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::LoopRepeats => Case { isolated: 6, ..with(5, "loss", 8, true) },
        Mutation::OldSequencerAfterAbortedView => Case { isolated: 8, ..with(5, "loss", 16, true) },
        Mutation::SlotAcrossViews => Case { isolated: 6, ..with(3, "loss", 8, true) },
        Mutation::CountDuplicateRequest => with(3, "duplicate,delay", 0, true),
        Mutation::ForgetVote => Case { isolated: 6, ..with(3, "delay", 20, false) },
        Mutation::ReadAfterLease => Case { isolated: 6, ..with(3, "none", 0, true) },
        Mutation::CommitOnAcceptance => Case { isolated: 6, ..with(5, "loss", 8, true) },
        Mutation::ActBeforeActive => Case { isolated: 8, ..with(5, "loss", 16, true) },
        Mutation::ReuseIndex => with(3, "disk_slow", 20, true),
        Mutation::AdoptAny => Case { isolated: 6, ..with(3, "loss", 16, false) },
    }
}

#[test]
fn every_planted_bug_is_caught() {
    let only = std::env::var("ISOCHRONE_BUG").ok();
    let wanted = |mutation: &Mutation| only.as_ref().is_none_or(|name| mutation.name() == name);
    let bugs = Mutation::ALL.into_iter().filter(wanted);
    every_bug_is_caught(bugs.map(|mutation| (mutation.name(), case(mutation))));
}

/// The same runs without the bugs.
#[test]
fn nothing_breaks_where_no_bug_is_planted() {
    let count = if std::env::var_os("ISOCHRONE_SEEDS").is_some() { 0 } else { 3 };
    let only = std::env::var("ISOCHRONE_BUG").ok();
    for mutation in Mutation::ALL {
        if only.as_ref().is_none_or(|name| mutation.name() == name) {
            crate::safety::hold(&case(mutation), 100, count);
        }
    }
}
