//! What happens to one transaction, step by step.

use crate::latency::{Alone, PLACEMENT_A, key, unit};
use crate::script::Play;
use expect_test::expect;
use isochrone_core::{Blob, NodeId, Span};
use isochrone_transactions::twopc::{Coordinator, Family};
use isochrone_transactions::{Outcome, Reason, Refusal, Request, Update};
use std::slice::from_ref;

const RTT: Span = Span::from_millis(20);

fn play() -> Play<Family> {
    Play::new(&Alone::new(unit(5, RTT), &PLACEMENT_A))
}

/// Client and coordinator in region 0, participants led in 1 and 2, round trips of 20 ms, syncs of 1 ms.
#[test]
fn a_transaction_is_this_conversation() {
    let mut play = play();
    let keys = [key(1), key(2)];
    let begun = play.cluster.now();
    let (txn, _) = play.begin(0, &keys, &keys);
    let ticket = play.commit(0, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    play.run(Span::from_secs(1));
    expect![[r#"
        0    r0.role1 -> r1.role0.p1 Read
        0    r0.role1 -> r2.role0.p2 Read
        10   r1.role0.p1 -> r0.role1 Values
        10   r2.role0.p2 -> r0.role1 Values
        20   r0.role1 -> r0.role0 Commit
        20   r0.role0 -> r1.role0.p1 Prepare
        20   r0.role0 -> r2.role0.p2 Prepare
        51   r1.role0.p1 -> r0.role0 Vote
        52   r2.role0.p2 -> r0.role0 Vote
        83   r0.role0 -> r0.role1 Ended
        83   r0.role0 -> r1.role0.p1 Outcome
        83   r0.role0 -> r2.role0.p2 Outcome
        114  r1.role0.p1 -> r0.role0 Acknowledged
        115  r2.role0.p2 -> r0.role0 Acknowledged
    "#]]
    .assert_eq(&play.conversation(begun));
}

#[test]
fn what_a_transaction_may_not_do_is_refused_with_the_reason() {
    let mut alone = Alone::<Family>::new(unit(5, RTT), &PLACEMENT_A);
    alone.tune = |parameters| (parameters.keys_max, parameters.bytes_max, parameters.open_max) = (3, 40, 2);
    let mut play = Play::new(&alone);
    let keys: Vec<Blob> = (0..4).map(key).collect();
    let refused = |play: &mut Play<Family>, request| {
        let ticket = play.ask(0, request);
        match play.wait(ticket) {
            Outcome::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let begin =
        |reads: &[Blob], writes: &[Blob]| Request::Begin { reads: reads.to_vec(), writes: writes.to_vec() };
    assert_eq!(refused(&mut play, begin(&[], &[])), Refusal::Empty);
    let twice = [keys[0].clone(), keys[0].clone()];
    assert_eq!(refused(&mut play, begin(&twice, &[])), Refusal::Twice(keys[0].clone()));
    let many = Refusal::TooLarge { what: "keys", found: 4, most: 3 };
    assert_eq!(refused(&mut play, begin(&keys, &[])), many);
    let (txn, _) = play.begin(0, &keys[..1], &keys[..1]);
    let commit = |key: &Blob, value: String| {
        let updates = vec![Update { key: key.clone(), value: Some(Blob::from(value)) }];
        Request::Commit { txn, updates }
    };
    let undeclared = refused(&mut play, commit(&keys[1], "v".to_owned()));
    assert_eq!(undeclared, Refusal::Undeclared(keys[1].clone()));
    let large = refused(&mut play, commit(&keys[0], "v".repeat(40)));
    assert_eq!(large, Refusal::TooLarge { what: "bytes", found: 45, most: 40 });
    play.begin(0, &[], &keys[1..2]);
    assert_eq!(refused(&mut play, begin(&keys[..1], &[])), Refusal::Overloaded(2));
    // What was refused left it open.
    let ticket = play.commit(0, txn, &[(&keys[0], "v")]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    assert_eq!(refused(&mut play, Request::Abort { txn }), Refusal::NotOpen(txn));
}

#[test]
fn what_is_not_written_stays_and_what_is_given_up_leaves_nothing() {
    let mut play = play();
    let (x, y) = (key(1), key(2));
    let (txn, _) = play.begin(0, &[], &[x.clone(), y.clone()]);
    let ticket = play.commit(0, txn, &[(&x, "one")]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    let (txn, _) = play.begin(0, &[x.clone(), y.clone()], &[x.clone(), y.clone()]);
    let ticket = play.ask(0, Request::Abort { txn });
    assert_eq!(play.wait(ticket), Outcome::Aborted(Reason::Client));
    // A younger one meets no lock of it.
    play.run(RTT);
    let before = play.cluster.now();
    let (txn, _) = play.begin(3, from_ref(&x), from_ref(&x));
    let ticket = play.commit(3, txn, &[(&x, "two")]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    assert!(play.cluster.now().since(before) < RTT * 5);
    assert_eq!(play.values(4, &[x, y]), [Some("two".to_owned()), None]);
}

#[test]
fn locks_of_a_client_that_dies_go_after_its_silence() {
    let mut play = play();
    let x = key(1);
    play.begin(0, from_ref(&x), from_ref(&x));
    play.cluster.kill(play.client(0));
    let (died, (txn, _)) = (play.cluster.now(), play.begin(3, from_ref(&x), from_ref(&x)));
    let ticket = play.commit(3, txn, &[(&x, "v")]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    let waited = play.cluster.now().since(died);
    assert!(Span::from_secs(2) < waited && waited < Span::from_secs(4), "{waited}");
}

#[test]
fn a_commit_that_was_asked_for_needs_its_client_no_more() {
    for coordinator in [Coordinator::Local, Coordinator::Remote] {
        let mut alone = Alone::<Family>::new(unit(5, RTT), &PLACEMENT_A);
        alone.tune = match coordinator {
            Coordinator::Local => |_| {},
            Coordinator::Remote => |parameters| parameters.coordinator = Coordinator::Remote,
        };
        let mut play = Play::new(&alone);
        let keys = [key(1), key(2)];
        let (txn, _) = play.begin(0, &keys, &keys);
        play.commit(0, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
        play.run(RTT);
        play.cluster.kill(play.client(0));
        assert_eq!(play.values(3, &keys), [Some("a".to_owned()), Some("b".to_owned())]);
    }
}

#[test]
fn an_older_writer_takes_the_locks_of_a_younger_reader() {
    let mut play = play();
    let (x, y) = (key(1), key(2));
    let (older, _) = play.begin(0, from_ref(&y), from_ref(&x));
    let (younger, _) = play.begin(3, from_ref(&x), from_ref(&x));
    let older = play.commit(0, older, &[(&x, "older")]);
    play.run(RTT * 2);
    let younger = play.commit(3, younger, &[(&x, "younger")]);
    assert_eq!(play.wait(younger), Outcome::Aborted(Reason::Conflict));
    assert!(matches!(play.wait(older), Outcome::Committed { .. }));
}

#[test]
fn a_younger_writer_waits_for_an_older_reader() {
    let mut play = play();
    let x = key(1);
    let (older, _) = play.begin(0, from_ref(&x), from_ref(&x));
    let (younger, _) = play.begin(3, &[], from_ref(&x));
    let younger = play.commit(3, younger, &[(&x, "younger")]);
    play.run(Span::from_secs(2));
    assert_eq!(play.answer(younger), None);
    let older = play.commit(0, older, &[(&x, "older")]);
    assert!(matches!(play.wait(older), Outcome::Committed { .. }));
    assert!(matches!(play.wait(younger), Outcome::Committed { .. }));
    assert_eq!(play.values(0, &[x]), [Some("younger".to_owned())]);
}

#[test]
fn a_writer_that_waits_for_too_long_is_withdrawn() {
    let mut play = play();
    let x = key(1);
    let (older, _) = play.begin(0, from_ref(&x), from_ref(&x));
    let (txn, _) = play.begin(3, &[], from_ref(&x));
    let younger = play.commit(3, txn, &[(&x, "younger")]);
    play.run(Span::from_secs(2));
    assert_eq!(play.answer(younger), None);
    let ticket = play.ask(3, Request::Abort { txn });
    assert_eq!(play.wait(ticket), Outcome::Refused(Refusal::NotOpen(txn)));
    let asked = play.cluster.now();
    assert_eq!(play.wait(younger), Outcome::Aborted(Reason::Unavailable));
    assert!(play.cluster.now().since(asked) < RTT * 5);
    let older = play.commit(0, older, &[(&x, "older")]);
    assert!(matches!(play.wait(older), Outcome::Committed { .. }));
    play.run(Span::from_secs(40));
    assert_eq!(play.values(4, &[x]), [Some("older".to_owned())]);
}

/// Whenever it is asked for, what the client is told is what has happened.
#[test]
fn a_withdrawal_ends_nothing_that_is_decided() {
    let (mut committed, mut aborted) = (0, 0);
    for after in 0..20 {
        let mut play = play();
        let keys = [key(1), key(2)];
        let (txn, _) = play.begin(0, &keys, &keys);
        let ticket = play.commit(0, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
        play.run(Span::from_millis(after * 4));
        play.ask(0, Request::Abort { txn });
        let outcome = play.wait(ticket);
        play.run(Span::from_secs(1));
        let values = play.values(3, &keys);
        match outcome {
            Outcome::Committed { .. } => {
                committed += 1;
                assert_eq!(values, ["a", "b"].map(|text| Some(text.to_owned())), "after {after}");
            }
            Outcome::Aborted(Reason::Unavailable) => {
                aborted += 1;
                assert_eq!(values, [None, None], "after {after}");
            }
            other => panic!("after {after}: {other:?}"),
        }
    }
    assert!(committed > 3 && aborted > 3, "{committed} committed, {aborted} aborted");
}

/// Two that are prepared at one partition each and wait for each other at the other: the older is let through.
#[test]
fn prepared_transactions_that_wait_for_each_other_end() {
    let mut play = play();
    let keys = [key(3), key(4)];
    // Each is near one of the partitions, and coordinates itself: its prepare is there first.
    let (older, _) = play.begin(3, &[], &keys);
    let (younger, _) = play.begin(4, &[], &keys);
    let older = play.commit(3, older, &[(&keys[0], "older"), (&keys[1], "older")]);
    let younger = play.commit(4, younger, &[(&keys[0], "younger"), (&keys[1], "younger")]);
    let begun = play.cluster.now();
    assert!(matches!(play.wait(older), Outcome::Committed { .. }));
    assert_eq!(play.wait(younger), Outcome::Aborted(Reason::Conflict));
    assert!(play.cluster.now().since(begun) < Span::from_secs(1));
    assert_eq!(play.values(0, &keys), [Some("older".to_owned()), Some("older".to_owned())]);
}

/// The leaders of coordinator and participants die at every step of a commit, and come back or not: the client is told
/// the truth, and nothing stays locked.
#[test]
fn a_leader_that_dies_at_any_step_leaves_one_outcome() {
    // The client is where nobody leads, so it outlives them all. Region 0 leads the coordinator and a participant.
    let alone = Alone::<Family>::new(unit(5, RTT), &[[0, 1, 2], [1, 2, 3]]);
    let keys = [key(0), key(1)];
    let (mut committed, mut aborted) = (0, 0);
    for (victim, back) in [(0, true), (0, false), (1, true), (1, false)] {
        for step in 0..28 {
            let mut play = Play::new(&alone);
            let (txn, _) = play.begin(4, &keys, &keys);
            play.cluster.crash_after(NodeId(victim), step);
            let ticket = play.commit(4, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
            play.run(Span::from_millis(300));
            if back && !play.cluster.is_up(NodeId(victim)) {
                play.cluster.restart(NodeId(victim));
            }
            let outcome = play.wait(ticket);
            let (a, b) = (Some("a".to_owned()), Some("b".to_owned()));
            let values = play.values(3, &keys);
            match outcome {
                Outcome::Committed { .. } => {
                    committed += 1;
                    assert_eq!(values, [a, b], "node {victim} at step {step}");
                }
                Outcome::Aborted(_) => {
                    aborted += 1;
                    assert_eq!(values, [None, None], "node {victim} at step {step}");
                }
                other => panic!("node {victim} at step {step}: {other:?}"),
            }
            // All may be written anew.
            let (txn, _) = play.begin(3, &keys, &keys);
            let ticket = play.commit(3, txn, &[(&keys[0], "c"), (&keys[1], "d")]);
            assert!(matches!(play.wait(ticket), Outcome::Committed { .. }), "node {victim} at step {step}");
        }
    }
    assert!(committed > 20, "{committed} committed, {aborted} aborted");
}

/// The leader of a participant has a successor of which it does not hear. It is told of a commit that the other one has
/// prepared, while the other one is not: nobody may take its word for the other's.
#[test]
fn a_commit_is_not_acknowledged_by_a_leader_that_has_a_successor() {
    // Client and coordinator in region 3; one participant in regions 0 to 2, the other led in region 4.
    let mut alone = Alone::<Family>::new(unit(6, RTT), &[[3, 4, 5], [0, 1, 2], [4, 3, 5]]);
    alone.tune = |parameters| parameters.log.election = Span::from_secs(60);
    let mut play = Play::new(&alone);
    play.depose(1, 2);
    let keys = [key(1), key(2)];
    let write = |play: &mut Play<Family>, values: [&str; 2]| {
        let (txn, _) = play.begin(3, &[], &keys);
        play.commit(3, txn, &[(&keys[0], values[0]), (&keys[1], values[1])])
    };
    let ticket = write(&mut play, ["a", "b"]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }), "by the successor");
    play.run(Span::from_secs(1));
    let begun = play.cluster.now();
    let ticket = write(&mut play, ["c", "d"]);
    // The votes have come; the decision is on its way.
    play.run(Span::from_millis(50));
    let apart: Vec<(u16, u16)> = (3..6).flat_map(|node| [(1, node), (2, node)]).collect();
    play.connect(&apart, false);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    play.run(Span::from_secs(5));
    let said = play.conversation(begun);
    assert!(said.contains("r3.role0 -> r0.role0.p1 Outcome"), "the former leader was not told: {said}");
    // What its client knows, and all have acknowledged, is forgotten.
    let (txn, _) = play.begin(3, &[], &keys[1..]);
    let ticket = play.commit(3, txn, &[(&keys[1], "e")]);
    assert!(matches!(play.wait(ticket), Outcome::Committed { .. }));
    play.run(Span::from_secs(2));
    play.connect(&apart, true);
    play.connect(&[(0, 1), (0, 2)], true);
    play.run(Span::from_secs(5));
    assert_eq!(play.values(5, &keys), ["c", "e"].map(|text| Some(text.to_owned())));
    play.run(Span::from_secs(30));
    assert_eq!(play.said(Span::from_secs(10)), 0, "the coordinator has not forgotten");
}

#[test]
fn an_idle_cluster_is_quiet() {
    let mut play = play();
    let keys = [key(1), key(2)];
    let (txn, _) = play.begin(0, &keys, &keys);
    let ticket = play.commit(0, txn, &[(&keys[0], "a"), (&keys[1], "b")]);
    play.wait(ticket);
    let (txn, _) = play.begin(0, &keys, &keys);
    play.ask(0, Request::Abort { txn });
    play.run(Span::from_secs(40));
    assert_eq!(play.said(Span::from_secs(30)), 0);
}

/// However fast transactions come, what they were does not pile up.
#[test]
fn thousands_are_forgotten_at_once() {
    let mut alone = Alone::<Family>::new(unit(5, RTT), &PLACEMENT_A);
    alone.tune = |parameters| parameters.retry = Span::from_secs(3);
    let last = Play::new(&alone).forgetting(5_000, "Forget");
    assert!(last < Span::from_secs(4), "{last}: not with the first look");
}
