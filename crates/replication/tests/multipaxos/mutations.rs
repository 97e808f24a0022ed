//! Every planted bug is found, each within 2,000 seeds.

use crate::cluster::{Case, Ran};
use isochrone_replication::multipaxos::Mutation;
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together.
fn case(mutation: Mutation) -> Case {
    let with = |replicas, faults: &str, crashes, hot| {
        // The names are those of the table below.
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { mutation: Some(mutation), crashes, hot, rounds, ..Case::new(replicas, faults) }
    };
    match mutation {
        Mutation::AcknowledgeBeforeDurable => with(3, "power_loss,disk_slow", 4, false),
        Mutation::OwnVoteAtOnce => Case { isolated: 4, ..with(3, "disk_slow", 20, false) },
        Mutation::PrepareAhead => Case { relapse: true, ..with(3, "none", 0, true) },
        Mutation::ForgetPromise => Case { isolated: 4, ..with(3, "delay", 20, false) },
        Mutation::CountDuplicateVote => with(5, "duplicate,partition", 0, false),
        Mutation::ApplyGap => with(3, "loss,duplicate,partition,reorder", 0, false),
        Mutation::ReadAfterLease => Case { isolated: 4, ..with(3, "drift", 0, true) },
        Mutation::DropSession => with(3, "power_loss,snapshot,loss", 10, false),
        Mutation::ReadBeforeOwnCommit => with(3, "partition,region_loss", 4, false),
        Mutation::AdoptAny => Case { isolated: 8, ..with(3, "loss", 12, true) },
        Mutation::IgnoreLeases => Case { usurped: true, ..with(3, "none", 0, true) },
    }
}

/// Whether something broke; slowness and a history that was not decided are no catch.
fn caught(ran: &Ran) -> bool {
    ran.broken().is_some_and(|text| !text.contains("Undecided") && !text.contains("Stuck"))
}

fn first_caught(mutation: Mutation) -> Option<(u64, Ran)> {
    let case = case(mutation);
    (0..2_000).map(|seed| (seed, case.run(seed))).find(|(_, ran)| caught(ran))
}

#[test]
fn every_planted_bug_is_caught() {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        match first_caught(mutation) {
            Some((seed, ran)) => {
                let sound = Case { mutation: None, ..case(mutation) }.run(seed);
                assert!(!caught(&sound), "seed {seed} breaks without {}", mutation.name());
                let text = ran.broken().unwrap_or_default();
                println!("{:<28} seed {seed:>4}: {:.160}", mutation.name(), text);
            }
            None => missed.push(mutation.name()),
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}
