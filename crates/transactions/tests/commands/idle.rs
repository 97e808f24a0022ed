//! A transaction that stays open keeps others off its keys for as long as they have, and no longer: what they are told
//! then is that they had no effect.

use super::scans::{Cluster, cluster};
use isochrone_core::command::{Command, Condition, Expiry, Operation, Response};
use isochrone_core::{Blob, Span, Stamp};
use isochrone_transactions::commands::{Answer, Ask};
use isochrone_transactions::{Family, Outcome, Reason, Request, Update, carousel, tapir, twopc};

/// `command_limit`, and some round trips; well below what a node waits for an answer.
const TIME: Span = Span::from_secs(13);

fn key() -> Blob {
    Blob::from("x")
}

fn set(value: &str) -> Operation {
    let (value, condition) = (value.into(), Condition::Always);
    Operation::Set { key: key(), value, condition, expiry: Expiry::Clear, get: false }
}

fn command(operation: Operation) -> Ask {
    Ask::Command(Command::new(Stamp::from_nanos(1_700_000_000_000_000_000), operation))
}

fn transacts<F: Family>(cluster: &mut Cluster<F>, node: u16, request: Request) -> Outcome {
    let ticket = cluster.ask(node, Ask::Transaction(request));
    match cluster.wait(ticket) {
        Answer::Transaction(outcome) => outcome,
        other => panic!("{}: {other:?}", F::NAME),
    }
}

/// Others change what an open transaction has read, at every node: what they are answered. And how it ends.
fn changes<F: Family>(partitions: usize) -> (Vec<Answer>, Outcome, Response) {
    let mut cluster = cluster::<F>(partitions);
    assert_eq!(cluster.run(0, set("before")), Response::Ok);
    cluster.pass(Span::from_secs(1));
    let begin = Request::Begin { reads: vec![key()], writes: vec![key()] };
    let begun = transacts(&mut cluster, 0, begin);
    let Outcome::Begun { txn, .. } = begun else { panic!("{}: {begun:?}", F::NAME) };
    cluster.pass(Span::from_secs(1));
    let asked = cluster.simulation.now();
    let append = Operation::Append { key: key(), value: "+".into() };
    let tickets = [(1, set("one")), (2, append), (3, set("three")), (0, set("zero"))]
        .map(|(node, operation)| cluster.ask(node, command(operation)));
    let answers = tickets.map(|ticket| cluster.wait(ticket)).to_vec();
    let took = cluster.simulation.now().since(asked);
    assert!(took < TIME, "{} with {partitions} partitions: {took}", F::NAME);
    let end = transacts(&mut cluster, 0, Request::Commit { txn, updates: Vec::new() });
    // Nothing takes effect that has waited.
    cluster.pass(Span::from_secs(40));
    (answers, end, cluster.run(2, Operation::Get { key: key() }))
}

#[test]
fn what_waits_for_an_idle_transaction_has_had_no_effect() {
    fn refused<F: Family>(partitions: usize) {
        let (answers, end, value) = changes::<F>(partitions);
        for answer in answers {
            let Answer::Refused(refusal) = answer else { panic!("{}: {answer:?}", F::NAME) };
            assert!(refusal.to_string().starts_with("TRYAGAIN "), "{}: {refusal}", F::NAME);
        }
        assert!(matches!(end, Outcome::Committed { .. }), "{}: {end:?}", F::NAME);
        assert_eq!(value, Response::bulk(b"before"), "{}", F::NAME);
    }
    for partitions in [1, 3] {
        refused::<twopc::Family>(partitions);
        refused::<carousel::Basic>(partitions);
        refused::<carousel::Fast>(partitions);
        // Nobody holds anything before it commits.
        let (answers, ..) = changes::<tapir::Family>(partitions);
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Replied(_))), "{answers:?}");
    }
}

/// The same of what deletes all keys.
#[test]
fn what_empties_behind_an_idle_transaction_has_deleted_nothing() {
    for partitions in [1, 3] {
        let mut cluster = cluster::<twopc::Family>(partitions);
        assert_eq!(cluster.run(0, set("before")), Response::Ok);
        cluster.pass(Span::from_secs(1));
        let begin = Request::Begin { reads: vec![key()], writes: vec![key()] };
        let begun = transacts(&mut cluster, 0, begin);
        let Outcome::Begun { txn, .. } = begun else { panic!("{begun:?}") };
        let asked = cluster.simulation.now();
        let ticket = cluster.ask(1, command(Operation::Flush));
        let answer = cluster.wait(ticket);
        let Answer::Refused(refusal) = answer else { panic!("{partitions} partitions: {answer:?}") };
        assert!(refusal.to_string().starts_with("TRYAGAIN "), "{refusal}");
        let took = cluster.simulation.now().since(asked);
        assert!(took < TIME, "{partitions} partitions: {took}");
        cluster.pass(Span::from_secs(20).saturating_sub(took));
        let end = transacts(&mut cluster, 0, Request::Commit { txn, updates: Vec::new() });
        assert!(matches!(end, Outcome::Committed { .. }), "{end:?}");
        cluster.pass(Span::from_secs(20));
        let value = cluster.run(2, Operation::Get { key: key() });
        assert_eq!(value, Response::bulk(b"before"), "{partitions} partitions");
    }
}

/// The same of a commit of a transaction of the host's own.
#[test]
fn a_commit_that_waits_for_an_idle_transaction_is_aborted() {
    let mut cluster = cluster::<twopc::Family>(3);
    let begin = |reads: &[Blob]| Request::Begin { reads: reads.to_vec(), writes: vec![key()] };
    let begun = transacts(&mut cluster, 0, begin(&[key()]));
    assert!(matches!(begun, Outcome::Begun { .. }), "{begun:?}");
    let Outcome::Begun { txn, .. } = transacts(&mut cluster, 1, begin(&[])) else { panic!("it has begun") };
    let asked = cluster.simulation.now();
    let updates = vec![Update { key: key(), value: Some("late".into()) }];
    let end = transacts(&mut cluster, 1, Request::Commit { txn, updates });
    assert_eq!(end, Outcome::Aborted(Reason::Unavailable));
    assert!(cluster.simulation.now().since(asked) < TIME);
    cluster.pass(Span::from_secs(60));
    assert_eq!(cluster.run(2, Operation::Get { key: key() }), Response::Nil);
}
