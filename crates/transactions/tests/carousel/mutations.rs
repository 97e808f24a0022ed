//! Planted bugs are found (`specs/carousel.md` F18).

use super::safety::tune;
use crate::cluster::{Case, every_bug_is_caught};
use isochrone_core::Span;
use isochrone_sim::FaultSet;
use isochrone_transactions::carousel::{Fast, Mutation};

#[test]
fn every_bug_is_caught_by_seeds() {
    let quiet = Case { records: 4, think: Span::from_millis(20), ..Case::<Fast>::new(FaultSet::NONE, tune) };
    let rough = Case { crashes: 6, isolated: 5, handovers: 10, ..quiet.clone() };
    // These want a succession of failures that seeds seldom draw. The first is found by the coordinator's own test,
    // the second by `scripts`, the third by the test of one replica, the fourth by `members`.
    let scripted =
        [Mutation::TermIgnored, Mutation::AbortUnreplicated, Mutation::VoteAgain, Mutation::ChangeIgnored];
    // Where the search begins, for those that few seeds show.
    let first = |bug| match bug {
        Mutation::VotesLost => 205,
        Mutation::AdoptAll => 5_440,
        Mutation::AdoptNone => 205,
        _ => 0,
    };
    let cases = Mutation::ALL.into_iter().filter(|bug| !scripted.contains(bug));
    every_bug_is_caught(1_000, cases.map(|bug| (bug.name(), Case { first: first(bug), ..rough.clone() })));
}

/// A read-only transaction that is not atomic misses an account that was opened with money it has seen the loss of.
#[test]
fn a_torn_audit_is_a_predicate_anomaly() {
    let sound = Case {
        records: 6,
        think: Span::from_millis(20),
        workload: Some("ledger"),
        ..Case::<Fast>::new(FaultSet::NONE, tune)
    };
    let torn = Case { bug: Some(Mutation::ReadPastPending.name()), ..sound.clone() };
    let named = |text: &String| text.contains("G-single-predicate: ");
    let (seed, text) =
        (0..100).find_map(|seed| torn.run(seed).broken().filter(named).map(|text| (seed, text))).unwrap();
    println!("{text}");
    assert!(text.contains("(predicate-rw)"), "{text}");
    assert_eq!(sound.run(seed).broken(), None);
}
