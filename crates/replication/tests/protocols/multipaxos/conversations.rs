//! The protocol as conversations: what is said when, in the cases that everyone should know. Read them in
//! order; `UPDATE_EXPECT=1` writes them anew. Heartbeats are left out, and three machine rooms A, B and C
//! are 10 ms apart.

use crate::machine::{Command, Reply, key};
use crate::talk::{A, B, C, D, Talk, set};
use expect_test::expect;
use isochrone_core::Span;
use isochrone_replication::multipaxos::{Family, Form};
use isochrone_replication::{Change, Outcome, Refusal};

#[test]
fn a_leader_is_elected_and_a_command_takes_two_round_trips() {
    let mut talk = Talk::<Family>::new(0, |_| {});
    talk.hear(100, expect![[r#"
        1 replica A -> replica A (behind a record): Prepare ballot: b1.0, from: s0
        1 replica A -> replica B (behind a record): Prepare ballot: b1.0, from: s0
        1 replica A -> replica C (behind a record): Prepare ballot: b1.0, from: s0
        1 replica A -> replica A: Promised ballot: b1.0, report: Report decided: s0, tail: b0.0, end: s0, accepted: [], lease: None, l
        12 replica B -> replica A (behind a record): Promised ballot: b1.0, report: Report decided: s0, tail: b0.0, end: s0, accepted: [], lease: None, l
        12 replica C -> replica A (behind a record): Promised ballot: b1.0, report: Report decided: s0, tail: b0.0, end: s0, accepted: [], lease: None, l
        22 replica A -> replica B (ahead): Adopt ballot: b1.0, from: s0, values: [], decided: s0
        22 replica A -> replica C (ahead): Adopt ballot: b1.0, from: s0, values: [], decided: s0
        23 Order(0, Leads(b1.0))
    "#]]);
    talk.ask(C, set("x"));
    talk.hear(100, expect![[r#"
        100 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        110 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        110 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        111 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        121 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        121 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        131 replica A -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        141 answer: Replied(Ok)
    "#]]);
    // Under the leader's lease a read needs one.
    talk.ask(C, Command::Get(key(1)));
    talk.hear(100, expect![[r#"
        200 client C -> replica A: Requests client: n2#1, below: 2, asks: [Ask sequence: 2, command: Get("\x01"), touching: false], for
        210 replica A -> client C (ahead): Replies incarnation: 1, spans: None, answers: [(2, Read(Text(Some("x"))))]
        220 answer: Replied(Text(Some("x")))
    "#]]);
    assert_eq!(talk.answers.0.last(), Some(&Outcome::Replied(Reply::Text(Some("x".to_owned())))));
}

#[test]
fn a_follower_takes_over_and_the_client_asks_again() {
    let mut talk = Talk::<Family>::new(0, |_| {});
    talk.pass(100).ask(C, set("x"));
    talk.cluster.run_for(Span::from_millis(15), &mut talk.answers);
    talk.cluster.crash(A);
    talk.hear(1_200, expect![[r#"
        100 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        110 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        110 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        111 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        121 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        121 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        320 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        347 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        375 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        402 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        430 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        457 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        485 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        512 client C -> replica A: Requests client: n2#1, below: 1, asks: [], forwarded: false, said: Freely
        540 client C -> replica B: Around(Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching:
        549 replica B -> replica A (ahead): Poll ballot: b1.1, decided: s0
        549 replica B -> replica C (ahead): Poll ballot: b1.1, decided: s0
        550 replica B -> client C (ahead): Redirect incarnation: 1, leader: None, sequences: [1]
        559 replica C -> replica B (ahead): Polled ballot: b1.1, granted: true, promised: b1.0, decided: s0
        567 client C -> replica B: Around(Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching:
        570 replica B -> replica A (behind a record): Prepare ballot: b1.1, from: s0
        570 replica B -> replica B (behind a record): Prepare ballot: b1.1, from: s0
        570 replica B -> replica C (behind a record): Prepare ballot: b1.1, from: s0
        570 replica B -> replica B: Promised ballot: b1.1, report: Report decided: s0, tail: b0.0, end: s1, accepted: [(s0, b1.0, Batch(
        577 replica B -> client C (ahead): Redirect incarnation: 1, leader: None, sequences: [1]
        581 replica C -> replica B (behind a record): Promised ballot: b1.1, report: Report decided: s0, tail: b0.0, end: s1, accepted: [(s0, b1.0, Batch(
        591 replica B -> replica A (ahead): Adopt ballot: b1.1, from: s0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set(
        591 replica B -> replica C (ahead): Adopt ballot: b1.1, from: s0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set(
        592 replica B -> replica B (behind a record): Accepted ballot: b1.1, first: s0, last: s0
        592 Order(0, Leads(b1.1))
        595 client C -> replica B: Around(Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching:
        602 replica C -> replica B (behind a record): Accepted ballot: b1.1, first: s0, last: s0
        605 replica B -> replica A (ahead): Accept ballot: b1.1, slot: s1, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        605 replica B -> replica C (ahead): Accept ballot: b1.1, slot: s1, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        606 replica B -> replica B (behind a record): Accepted ballot: b1.1, first: s1, last: s1
        612 replica B -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        616 replica C -> replica B (behind a record): Accepted ballot: b1.1, first: s1, last: s1
        622 answer: Replied(Ok)
        626 replica B -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
    "#]]);
    assert_eq!(talk.answers.0, [Outcome::Replied(Reply::Ok)]);
    // The former leader comes back, follows and learns.
    talk.cluster.restart(A);
    talk.hear(100, expect![[r#"
        1371 replica A -> replica B (ahead): Fetch from: s0
        1381 replica B -> replica A (ahead): Learned from: s0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x")
        1381 replica B -> replica A (ahead): Adopt ballot: b1.1, from: s2, values: [], decided: s2
    "#]]);
}

#[test]
fn one_far_behind_takes_in_a_snapshot() {
    let mut talk = Talk::<Family>::new(0, |placement| placement.parameters.keep_slots = 1);
    talk.pass(100);
    for other in [A, B] {
        talk.cluster.connect(C, other, false);
    }
    for text in ["x", "y", "z"] {
        talk.ask(A, set(text));
        talk.pass(50);
    }
    for other in [A, B] {
        talk.cluster.connect(C, other, true);
    }
    talk.hear(150, expect![[r#"
        302 replica C -> replica A (ahead): Fetch from: s0
        312 replica A -> replica C (ahead): Trimmed decided: s3
        322 replica C -> replica A (ahead): Want position: None, index: 0, again: false
        332 replica A -> replica C (ahead): Chunk position: 3, index: 0, chunk: Some("\x03\x00\x03\x00\x00\x01\x00\x00\x00\x01\x01\x01\x00\x00\x
        342 replica C -> replica A (ahead): Want position: Some(3), index: 1, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 2, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 3, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 4, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 5, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 6, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 7, again: false
        342 replica C -> replica A (ahead): Want position: Some(3), index: 8, again: false
        352 replica A -> replica C (ahead): Chunk position: 3, index: 1, chunk: Some("\x01\x00\x01\x00\x01\x00\x01\x03\x01\x03\x01")
        352 replica A -> replica C (ahead): Chunk position: 3, index: 2, chunk: Some("\x01\x01\x01z")
        352 replica A -> replica C (ahead): Chunk position: 3, index: 3, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 4, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 5, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 6, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 7, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 8, chunk: None
        362 replica C -> replica A (ahead): Want position: Some(3), index: 9, again: false
        362 replica C -> replica A (ahead): Want position: Some(3), index: 10, again: false
        372 replica A -> replica C (ahead): Chunk position: 3, index: 9, chunk: None
        372 replica A -> replica C (ahead): Chunk position: 3, index: 10, chunk: None
    "#]]);
}

#[test]
fn a_new_member_catches_up_before_it_votes() {
    let mut talk = Talk::<Family>::new(1, |_| {});
    talk.pass(100).ask(A, set("x"));
    talk.pass(100).change(Change::Add(D));
    talk.hear(100, expect![[r#"
        200 client A -> replica A: Administer number: 4294967298, change: Add(n3)
        220 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s1, value: Change(Configuration version: 1, members: [Member replica: r0,
        220 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s1, value: Change(Configuration version: 1, members: [Member replica: r0,
        220 replica A -> replica D (ahead): Accept ballot: b1.0, slot: s1, value: Change(Configuration version: 1, members: [Member replica: r0,
        221 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        230 replica D -> replica A (ahead): Fetch from: s0
        231 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        231 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        231 replica D -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        240 replica A -> replica D (ahead): Learned from: s0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        240 replica A -> replica D (ahead): Adopt ballot: b1.0, from: s1, values: [Change(Configuration version: 1, members: [Member replica: r0
        241 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s2, value: NoOp, decided: s2
        241 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s2, value: NoOp, decided: s2
        241 replica A -> replica D (ahead): Accept ballot: b1.0, slot: s2, value: NoOp, decided: s2
        242 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s2, last: s2
        251 replica D -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        252 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s2, last: s2
        252 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s2, last: s2
        252 replica D -> replica A (behind a record): Accepted ballot: b1.0, first: s2, last: s2
        262 replica A -> client A: Administered number: 4294967298, result: Ok(()), leader: Some(A/k1/p0/role0/0)
        262 answer: Changed
    "#]]);
    talk.pass(200).change(Change::Remove(B));
    talk.hear(100, expect![[r#"
        500 client A -> replica A: Administer number: 4294967299, change: Remove(n1)
        500 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s3, value: Change(Configuration version: 2, members: [Member replica: r0,
        500 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s3, value: Change(Configuration version: 2, members: [Member replica: r0,
        500 replica A -> replica D (ahead): Accept ballot: b1.0, slot: s3, value: Change(Configuration version: 2, members: [Member replica: r0,
        501 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s3, last: s3
        511 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s3, last: s3
        511 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s3, last: s3
        511 replica D -> replica A (behind a record): Accepted ballot: b1.0, first: s3, last: s3
        521 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s4, value: NoOp, decided: s4
        521 replica A -> replica D (ahead): Accept ballot: b1.0, slot: s4, value: NoOp, decided: s4
        522 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s4, last: s4
        532 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s4, last: s4
        532 replica D -> replica A (behind a record): Accepted ballot: b1.0, first: s4, last: s4
        542 replica A -> client A: Administered number: 4294967299, result: Ok(()), leader: Some(A/k1/p0/role0/0)
        542 answer: Changed
    "#]]);
    assert_eq!(talk.answers.0, [Outcome::Replied(Reply::Ok), Outcome::Changed, Outcome::Changed]);
}

#[test]
fn who_is_needed_is_not_removed() {
    let mut talk = Talk::<Family>::new(0, |_| {});
    talk.pass(100).cluster.crash(C);
    for (change, expected) in [
        (Change::Remove(B), Outcome::Refused(Refusal::TooFew)),
        (Change::Remove(C), Outcome::Changed),
        (Change::Remove(B), Outcome::Changed),
    ] {
        talk.pass(2_000).change(change);
        talk.pass(300);
        assert_eq!(talk.answers.0.last(), Some(&expected), "{change:?}");
    }
    assert_eq!(talk.answers.0.len(), 3);
}

#[test]
fn leadership_is_handed_over_without_waiting_for_the_lease() {
    let mut talk = Talk::<Family>::new(0, |_| {});
    talk.pass(100).change(Change::Lead(C));
    talk.hear(120, expect![[r#"
        100 client A -> replica A: Administer number: 4294967297, change: Lead(n2)
        100 replica A -> replica C: Handover ballot: b1.0, decided: s0
        111 replica C -> replica A (behind a record): Prepare ballot: b1.2, from: s0
        111 replica C -> replica B (behind a record): Prepare ballot: b1.2, from: s0
        111 replica C -> replica C (behind a record): Prepare ballot: b1.2, from: s0
        111 replica C -> replica C: Promised ballot: b1.2, report: Report decided: s0, tail: b0.0, end: s0, accepted: [], lease: Some((r
        122 replica A -> replica C (behind a record): Promised ballot: b1.2, report: Report decided: s0, tail: b1.0, end: s0, accepted: [], lease: None, l
        122 replica A -> client A (behind a record): Administered number: 4294967297, result: Ok(()), leader: None
        122 answer: Changed
        122 replica B -> replica C (behind a record): Promised ballot: b1.2, report: Report decided: s0, tail: b0.0, end: s0, accepted: [], lease: Some((r
        132 replica C -> replica A (ahead): Adopt ballot: b1.2, from: s0, values: [], decided: s0
        132 replica C -> replica B (ahead): Adopt ballot: b1.2, from: s0, values: [], decided: s0
        133 Order(0, Leads(b1.2))
    "#]]);
    talk.ask(C, set("x"));
    talk.hear(60, expect![[r#"
        220 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        230 replica A -> replica C (ahead): Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        240 replica C -> replica A (ahead): Accept ballot: b1.2, slot: s0, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        240 replica C -> replica B (ahead): Accept ballot: b1.2, slot: s0, value: Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("
        241 replica C -> replica C (behind a record): Accepted ballot: b1.2, first: s0, last: s0
        251 replica A -> replica C (behind a record): Accepted ballot: b1.2, first: s0, last: s0
        251 replica B -> replica C (behind a record): Accepted ballot: b1.2, first: s0, last: s0
        261 replica C -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        261 answer: Replied(Ok)
    "#]]);
    assert_eq!(talk.answers.0, [Outcome::Changed, Outcome::Replied(Reply::Ok)]);
}

#[test]
fn a_prefix_log_is_adopted_whole() {
    let mut talk = Talk::<Family>::new(0, |placement| placement.parameters.form = Form::Prefix);
    talk.pass(100).ask(A, set("x"));
    talk.cluster.run_for(Span::from_millis(15), &mut talk.answers);
    talk.ask(A, set("y"));
    talk.cluster.run_for(Span::from_millis(3), &mut talk.answers);
    talk.cluster.crash(A);
    talk.hear(1_000, expect![[r#"
        100 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false],
        100 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s0, value: Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\
        100 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s0, value: Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\
        101 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        111 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        111 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s0, last: s0
        115 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 2, command: Set("\x01", "y"), touching: false],
        115 replica A -> replica B (ahead): Accept ballot: b1.0, slot: s1, value: Batch([Command id: A#1, sequence: 2, below: 1, command: Set("\
        115 replica A -> replica C (ahead): Accept ballot: b1.0, slot: s1, value: Batch([Command id: A#1, sequence: 2, below: 1, command: Set("\
        116 replica A -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        126 replica B -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        126 replica C -> replica A (behind a record): Accepted ballot: b1.0, first: s1, last: s1
        554 replica B -> replica A (ahead): Poll ballot: b1.1, decided: s0
        554 replica B -> replica C (ahead): Poll ballot: b1.1, decided: s0
        564 replica C -> replica B (ahead): Polled ballot: b1.1, granted: true, promised: b1.0, decided: s0
        575 replica B -> replica A (behind a record): Prepare ballot: b1.1, from: s0
        575 replica B -> replica B (behind a record): Prepare ballot: b1.1, from: s0
        575 replica B -> replica C (behind a record): Prepare ballot: b1.1, from: s0
        575 replica B -> replica B: Promised ballot: b1.1, report: Report decided: s0, tail: b1.0, end: s2, accepted: [(s0, b1.0, Batch(
        586 replica C -> replica B (behind a record): Promised ballot: b1.1, report: Report decided: s0, tail: b1.0, end: s2, accepted: [(s0, b1.0, Batch(
        596 replica B -> replica A (ahead): Adopt ballot: b1.1, from: s0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("
        596 replica B -> replica C (ahead): Adopt ballot: b1.1, from: s0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("
        597 replica B -> replica B (behind a record): Accepted ballot: b1.1, first: s0, last: s1
        597 Order(0, Leads(b1.1))
        607 replica C -> replica B (behind a record): Accepted ballot: b1.1, first: s0, last: s1
        617 replica B -> client A (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok)), (2, Done(Ok))]
    "#]]);
}
