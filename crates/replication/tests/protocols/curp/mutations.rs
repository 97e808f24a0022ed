//! Planted bugs are found: by the adversary of the lab, each within some hundred seeds. `drop-readers-at-once`
//! needs a copy that hears of nothing for the whole of a lease, and has its script: T43 in [`super::nearby`].

use super::lab::Lab;
use super::tune;
use crate::cluster::Case;
use crate::mutations::every_bug_is_caught;
use isochrone_replication::curp::primary::Family;
use isochrone_sim::FaultSet;

/// The first seed that shows this bug, and what it shows; slowness is no catch.
fn caught(bug: &'static str, seeds: u64, unified: bool) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        let run = std::panic::catch_unwind(|| Lab::new(seed, Some(bug), unified).run(6_000));
        // An invariant that a server checks itself is a catch as well.
        let found = run.unwrap_or_else(|_| Some("an invariant failed".to_owned()));
        Some((seed, found.filter(|text| !text.starts_with("Stuck"))?))
    })
}

#[test]
fn every_bug_of_servers_and_witnesses_is_caught() {
    let bugs = [
        "acknowledge-before-durable",
        "accept-conflicts",
        "accept-after-recovery",
        "ignore-versions",
        "skip-replay",
        "honour-acknowledgements",
        "accept-old-epochs",
        "sync-on-one",
        "ready-before-sync",
        "collect-early",
        "near-without-lease",
        "near-unsynced",
        "backup-before-witness",
        "speculate-on-conflict",
        "speculate-on-duplicate",
        "read-tentative",
        "keep-tentative",
        "forget-read-keys",
        "forget-failures",
    ];
    all_are_caught(&bugs, false);
}

/// `store-again` costs room and no more, and has its script ([`super::unified`]).
#[test]
fn every_bug_of_servers_that_are_witnesses_is_caught() {
    let bugs = [
        "mix-nodes",
        "drop-missing",
        "acknowledge-before-durable",
        "accept-conflicts",
        "accept-after-recovery",
        "ignore-versions",
        "skip-replay",
        "sync-on-one",
        "ready-before-sync",
        "near-without-lease",
        "near-unsynced",
    ];
    all_are_caught(&bugs, true);
}

fn all_are_caught(bugs: &[&'static str], unified: bool) {
    let mut missed = Vec::new();
    for bug in bugs.iter().copied() {
        match caught(bug, 1_000, unified) {
            Some((seed, text)) => println!("{bug:<28} seed {seed:>4}: {text:.160}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}

/// In the simulator, with the clients that are served: what only they, or snapshots, can do wrong. `mix-reigns` needs a
/// list that changes between a record and its command, and has its script beside the client (`curp::conversation`).
fn case(bug: &str) -> Case<Family> {
    let with = |replicas, faults: &str, crashes| {
        // The names are those of the table below.
        let faults = faults.parse::<FaultSet>().unwrap();
        Case { crashes, hot: true, mute: true, rounds: 400, ..Case::new(replicas, faults, tune) }
    };
    match bug {
        "one-acceptance-less" => with(3, "loss", 0),
        // T18, T19: what reads one key and writes another, what fails.
        "forget-read-keys" | "forget-failures" => Case { mixed: true, ..with(3, "crash", 4) },
        _ => with(3, "crash", 4),
    }
}

#[test]
fn every_bug_of_clients_and_snapshots_is_caught() {
    let bugs = ["one-acceptance-less", "drop-session", "forget-read-keys", "forget-failures"];
    every_bug_is_caught(bugs.into_iter().map(|bug| (bug, case(bug))));
}
