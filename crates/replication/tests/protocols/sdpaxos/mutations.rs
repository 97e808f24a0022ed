//! Every planted bug is found, each within 2,000 seeds.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use crate::safety::hold;
use isochrone_replication::sdpaxos::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together. The others need several things to happen
/// in a narrow order, and are caught by the conversations beside the code.
fn case(mutation: Mutation) -> Option<Case<Family>> {
    let with = |replicas, faults: &str, crashes, hot| {
        let faults = faults.parse::<FaultSet>().unwrap();
        let rounds = if hot { 400 } else { 40 };
        Case { crashes, hot, rounds, ..Case::new(replicas, faults, tune) }
    };
    Some(match mutation {
        Mutation::CountDuplicateRequest => with(3, "duplicate,delay", 0, true),
        Mutation::ReadAfterLease => Case { isolated: 6, ..with(3, "none", 0, true) },
        Mutation::CommitOnAcceptance => Case { first: 360, isolated: 6, ..with(5, "loss", 8, true) },
        Mutation::AdoptAny => Case { first: 500, isolated: 8, ..with(3, "loss,delay", 24, false) },
        Mutation::LoopRepeats
        | Mutation::OldSequencerAfterAbortedView
        | Mutation::SlotAcrossViews
        | Mutation::ForgetVote
        | Mutation::ReuseIndex
        | Mutation::ActBeforeActive => return None,
    })
}

fn cases() -> impl Iterator<Item = (&'static str, Case<Family>)> {
    let only = std::env::var("ISOCHRONE_BUG").ok();
    let wanted = move |mutation: &Mutation| only.as_ref().is_none_or(|name| mutation.name() == name);
    let planted = Mutation::ALL.into_iter().filter(wanted);
    planted.filter_map(|mutation| Some((mutation.name(), case(mutation)?)))
}

#[test]
fn every_planted_bug_is_caught() {
    every_bug_is_caught(cases());
}

#[test]
fn nothing_breaks_where_no_bug_is_planted() {
    for (_, case) in cases() {
        hold(&case, 100, 3);
    }
}

/// Seed 1012: a replica whose log began behind the state that it took in lost what it had accepted, asked for what the
/// sequencer thought was there, and got the same answer at once, over and over.
#[test]
fn a_state_older_than_the_log_takes_back_nothing_that_was_accepted() {
    let lossy = case(Mutation::CommitOnAcceptance);
    hold(&lossy.expect("it has a case"), 1_012, 1);
}
