//! Workloads of transactions against a family made for this test: what they ask, and that their verdicts can fail.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

mod locks;

use isochrone_check::Outcome::Failed;
use isochrone_check::transactions::Access;
use isochrone_core::deployment::Deployment;
use isochrone_core::{Guarantee, Known, Span};
use isochrone_transactions::retry::Retry;
use isochrone_workload::Window;
use isochrone_workload::transactions::{Kind, Outcome, Workload, run};
use isochrone_workload::trial::Terms;
use std::path::Path;

/// Five partitions of one node each, in five regions.
fn five() -> Deployment {
    const TEXT: &str = include_str!("../../../../deployments/five-regions.toml");
    const MATRIX: &str = include_str!("../../../../reference/rtt/carousel-ec2.csv");
    let text =
        TEXT.replace("multipaxos", "locks").replace("replication = 5", "replication = 1\npartitions = 5");
    let known = Known::default().placing(&["locks"]);
    let read = |_: &Path| Ok(MATRIX.to_owned());
    Deployment::parse_with(&text, "five.toml", Path::new(""), &known, &read).unwrap()
}

fn ran(terms: &Terms<Workload>, seed: u64) -> Outcome {
    let deployment = five();
    let keyspace = deployment.keyspaces()[0].id;
    run::<locks::Family>(&deployment, keyspace, terms, seed).unwrap()
}

fn quiet(workload: &str) -> Terms<Workload> {
    let workload = Workload::named(workload).unwrap();
    Terms { sessions: 2, requests_max: 60, ..Terms::quiet(workload, Span::from_secs(20)) }
}

#[test]
fn every_workload_runs_and_is_serializable() {
    for name in Workload::names() {
        let outcome = ran(&quiet(name), 5);
        assert_eq!(outcome.report.violations, [], "{name}");
        assert_eq!(outcome.undecided, None, "{name}");
        assert_eq!(outcome.guarantee.0, Guarantee::StrictlySerializable);
        let tally = outcome.figures.tally(None);
        assert!(tally.committed > 60 && tally.unknown == 0 && tally.refused == 0, "{name}: {tally:?}");
        assert!(outcome.figures.recorder().region(4, None).is_some());
    }
}

#[test]
fn a_round_of_locks_takes_a_round_trip_and_a_commit_another() {
    // One session at a time: nothing conflicts, and a transaction lasts two round trips to the farthest partition.
    let mut terms = quiet("ycsbt");
    terms.clients = Some(vec![0, 0, 1, 0, 0]);
    let outcome = ran(&terms, 1);
    let figures = outcome.figures.recorder().region(2, None).unwrap();
    assert!((figures.max_ms - 580.0).abs() < 1.0, "{figures:?}");
    assert_eq!(outcome.figures.tally(Some(2)).abort_rate(), 0.0);
}

#[test]
fn what_clients_give_up_has_no_effect_and_is_no_abort() {
    let outcome = ran(&quiet("txn-check"), 2);
    let given_up = outcome.figures.tally(None).given_up;
    assert!(given_up > 3, "{given_up}");
    let failed = outcome.history.list.iter().filter(|one| one.outcome == Failed && !one.updates()).count();
    assert!(failed as u64 >= given_up);
}

#[test]
fn retries_let_conflicting_transactions_through() {
    let mut terms = quiet("bank");
    terms.workload.records = 3;
    (terms.requests_max, terms.duration, terms.window) = (5, Span::from_secs(600), Some(Window::ALL));
    let never = ran(&terms, 3).figures.tally(None);
    assert!(never.committed < 40, "{never:?} of 50");
    terms.workload.retry = Retry { tries: 100, ..Retry::for_rtt(Span::from_millis(290)) };
    let again = ran(&terms, 3).figures.tally(None);
    assert_eq!(again.committed + again.given_up, 50, "{again:?}");
}

#[test]
fn the_published_pace_fires_at_its_rate_and_nothing_piles_up() {
    let mut terms = quiet("retwis");
    // At twenty a second no session of this cluster is done in time: each begins again as soon as it is.
    for (rate, least, most) in [(0.5, 95, 105), (20.0, 250, 1_000)] {
        terms.rate = Some(rate);
        terms.requests_max = u64::MAX;
        let outcome = ran(&terms, 4);
        let begun = outcome.history.list.len();
        assert!((least..=most).contains(&begun), "{rate} a second: {begun} in 20 s of 10 sessions");
        let mut ends = std::collections::BTreeMap::new();
        let mut list = outcome.history.list.clone();
        list.sort_by_key(|one| (one.client, one.invoked));
        for one in &list {
            let end = ends.insert(one.client, one.returned).flatten().unwrap_or(0);
            assert!(one.invoked >= end, "one at a time");
        }
    }
}

#[test]
fn a_store_without_locks_is_found_out() {
    for name in ["bank", "ledger", "txn-check"] {
        let mut terms = quiet(name);
        terms.plant = Some("no_locks".to_owned());
        let broken = (0..5).filter(|seed| !ran(&terms, *seed).report.violations.is_empty()).count();
        assert!(broken >= 3, "{name}: {broken} of 5 seeds");
    }
    let mut terms = quiet("bank");
    terms.plant = Some("no_such".to_owned());
    let deployment = five();
    let error = run::<locks::Family>(&deployment, deployment.keyspaces()[0].id, &terms, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--plant: protocol locks has no bug called \"no_such\" to plant\n  use one of no_locks, trust-the-cache, \
         read-source-only, keep-source, carry-nothing, forget-pending"
    );
}

#[test]
fn accounts_of_the_ledger_open_and_close_and_audits_scan_them() {
    let outcome = ran(&quiet("ledger"), 6);
    let accesses = || outcome.history.list.iter().flat_map(|one| &one.accesses);
    let closed = accesses().filter(|access| matches!(access, Access::Delete(_))).count();
    let scans = || {
        accesses().filter_map(|access| if let Access::Scan(_, found) = access { Some(found) } else { None })
    };
    let (few, many) = (scans().map(|found| found.len()).min(), scans().map(|found| found.len()).max());
    assert!(closed > 20 && scans().count() > 10, "{closed} closed, {} scans", scans().count());
    assert!(few < many && many < Some(16), "{few:?} to {many:?} open accounts");
    let moves = outcome.figures.recorder().kind(Kind::Move).unwrap();
    assert!(moves.operations > 40, "{moves:?}");
}

#[test]
fn an_audit_counts_every_account_of_the_bank() {
    let outcome = ran(&quiet("bank"), 6);
    let audits = outcome.figures.recorder().kind(Kind::Audit).unwrap();
    let read = outcome.history.list.iter().filter(|one| one.accesses.len() == 20).count() as u64;
    assert!(audits.operations > 5 && read >= audits.operations, "{read} of {audits:?}");
}
