//! Planted bugs are found: by the adversary of the lab, each within some hundred seeds, or as is said below.

use super::lab::Lab;
use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::curp::primary::{Family, Mutation};
use isochrone_sim::FaultSet;

/// The forms in which the lab finds a bug of servers and witnesses: whether they are unified.
fn forms(mutation: Mutation) -> &'static [bool] {
    match mutation {
        Mutation::AcknowledgeBeforeDurable
        | Mutation::AcceptConflicts
        | Mutation::AcceptAfterRecovery
        | Mutation::IgnoreVersions
        | Mutation::SkipReplay
        | Mutation::SyncOnOne
        | Mutation::ReadyBeforeSync
        | Mutation::NearWithoutLease
        | Mutation::NearUnsynced => &[false, true],
        Mutation::HonourAcknowledgements
        | Mutation::AcceptOldEpochs
        | Mutation::CollectEarly
        | Mutation::BackupBeforeWitness
        | Mutation::SpeculateOnConflict
        | Mutation::SpeculateOnDuplicate
        | Mutation::ReadTentative
        | Mutation::KeepTentative
        | Mutation::ForgetReadKeys
        | Mutation::ForgetFailures => &[false],
        Mutation::MixNodes | Mutation::DropMissing => &[true],
        // Scripts: `crashes`, `zombies`, `by_hand`, `nearby`, `unified`, `garbage`, and beside the client
        // `curp::conversation`. `store-again` costs room and no more, `drop-readers-at-once` needs a copy that hears of
        // nothing for the whole of a lease, `mix-reigns` a list that changes between a record and its command.
        Mutation::AcceptBeforeDurable
        | Mutation::ServeWithoutWitness
        | Mutation::IgnoreLeases
        | Mutation::ReadAfterLease
        | Mutation::ServeAfterYield
        | Mutation::DropReadersAtOnce
        | Mutation::StoreAgain
        | Mutation::ExecuteForgotten
        | Mutation::MixReigns => &[],
        // Below.
        Mutation::DropSession | Mutation::OneAcceptanceLess => &[],
        // No bug: `replay`, `lab`.
        Mutation::ReplayBackwards => &[],
    }
}

/// The first seed that is tried: near one that shows the bug, where that takes many.
fn first(mutation: Mutation, unified: bool) -> u64 {
    match mutation {
        Mutation::AcceptAfterRecovery if unified => 290,
        Mutation::AcceptAfterRecovery => 745,
        Mutation::SpeculateOnDuplicate => 220,
        Mutation::ReadTentative => 135,
        Mutation::BackupBeforeWitness | Mutation::IgnoreVersions if !unified => 100,
        _ => 0,
    }
}

/// Of so many seeds from there the one that shows this bug, and what it shows; slowness is no catch.
fn caught(mutation: Mutation, seeds: u64, unified: bool) -> Option<(u64, String)> {
    let (bug, first) = (mutation.name(), first(mutation, unified));
    (first..first + seeds).find_map(|seed| {
        let run = std::panic::catch_unwind(|| Lab::new(seed, Some(bug), unified).run(6_000));
        // An invariant that a server checks itself is a catch as well.
        let found = run.unwrap_or_else(|_| Some("an invariant failed".to_owned()));
        Some((seed, found.filter(|text| !text.starts_with("Stuck"))?))
    })
}

#[test]
fn every_bug_of_servers_and_witnesses_is_caught() {
    all_are_caught(false);
}

#[test]
fn every_bug_of_servers_that_are_witnesses_is_caught() {
    all_are_caught(true);
}

fn all_are_caught(unified: bool) {
    let mut missed = Vec::new();
    let bugs = Mutation::ALL.into_iter().filter(|mutation| forms(*mutation).contains(&unified));
    for bug in bugs {
        match caught(bug, 1_000, unified) {
            Some((seed, text)) => println!("{:<28} seed {seed:>4}: {text:.160}", bug.name()),
            None => missed.push(bug.name()),
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}

/// In the simulator, with the clients that are served: what only they, or snapshots, can do wrong.
fn case(mutation: Mutation) -> Option<Case<Family>> {
    let with = |replicas, faults: &str, crashes| {
        // The names are those of the table below.
        let faults = faults.parse::<FaultSet>().unwrap();
        Case { crashes, hot: true, mute: true, rounds: 400, ..Case::new(replicas, faults, tune) }
    };
    match mutation {
        Mutation::OneAcceptanceLess => Some(with(3, "loss", 0)),
        // T18, T19: what reads one key and writes another, what fails.
        Mutation::ForgetReadKeys => Some(Case { mixed: true, first: 60, ..with(3, "crash", 4) }),
        Mutation::ForgetFailures => Some(Case { mixed: true, ..with(3, "crash", 4) }),
        Mutation::DropSession => Some(with(3, "crash", 4)),
        _ => None,
    }
}

#[test]
fn every_bug_of_clients_and_snapshots_is_caught() {
    let cases = Mutation::ALL.into_iter().filter_map(|mutation| Some((mutation.name(), case(mutation)?)));
    every_bug_is_caught(cases);
}
