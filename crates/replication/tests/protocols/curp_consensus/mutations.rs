//! Planted bugs are found, each within 2,000 seeds; the others by the walk (`tests/walk/curp_consensus`), or where what both
//! forms of CURP share is tested.

use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::curp::consensus::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The runs in which a bug shows sooner than under all faults together; none for what is found elsewhere.
fn case(mutation: Mutation) -> Option<Case<Family>> {
    let with = |replicas, faults: &str, crashes| {
        // The names are those of the table below.
        let faults = faults.parse::<FaultSet>().unwrap();
        Case { crashes, hot: true, mute: true, rounds: 400, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::SkipReplay
        | Mutation::ReplayMoreThan
        | Mutation::PoolNotRebuilt
        | Mutation::ReadTentative
        | Mutation::AcceptConflict => Some(with(3, "none", 0)),
        Mutation::SpeculateBeforeNoop => Some(Case { first: 12, ..with(3, "none", 0) }),
        Mutation::KeepTentative => Some(Case { first: 1_570, ..with(3, "none", 0) }),
        Mutation::SuperquorumTooSmall | Mutation::OneAcceptanceLess => {
            Some(Case { first: 15, ..with(3, "loss", 0) })
        }
        // T18, T19.
        Mutation::ForgetReadKeys => Some(Case { mixed: true, first: 1_395, ..with(3, "crash", 4) }),
        Mutation::ForgetFailures => Some(Case { mixed: true, ..with(3, "crash", 4) }),
        // The walk.
        Mutation::ServeBeforeNoop
        | Mutation::ChangeMembersEarly
        | Mutation::AcceptAnyTerm
        | Mutation::AcceptBeforeDurable
        | Mutation::ForgetRecords
        | Mutation::ClearUndecided => None,
        // Conversations of what both forms of CURP share.
        Mutation::SpeculateOnConflict | Mutation::SpeculateOnDuplicate | Mutation::MixReigns => None,
    }
}

#[test]
fn every_planted_bug_is_caught() {
    let cases = Mutation::ALL.into_iter().filter_map(|mutation| Some((mutation.name(), case(mutation)?)));
    every_bug_is_caught(cases);
}
