//! The protocol as conversations: what is said when, in the cases that everyone should know.

use crate::machine::Reply;
use crate::talk::{A, B, C, Talk, set};
use expect_test::expect;
use isochrone_core::Span;
use isochrone_replication::Outcome;
use isochrone_replication::mencius::Family;

#[test]
fn a_command_waits_for_the_skips_of_all() {
    let mut talk = Talk::<Family>::new(0, |_| {});
    talk.pass(10).ask(C, set("x"));
    talk.hear(100, expect![[r#"
        10 client C -> replica C: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        10 replica C -> replica A (ahead): Suggest turn: 0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        10 replica C -> replica B (ahead): Suggest turn: 0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        11 replica C -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 1..1
        21 replica A -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 0..1
        21 replica B -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 0..1
        31 replica C -> replica A (ahead): Commit decided: 0..1
        31 replica C -> replica B (ahead): Commit decided: 0..1
        31 replica C -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        31 answer: Replied(Ok)
    "#]]);
}

#[test]
fn owners_who_are_busy_fill_their_slots() {
    let mut talk = Talk::<Family>::new(0, |_| {});
    talk.pass(10);
    for node in [A, B, C] {
        talk.ask(node, set("x"));
    }
    talk.hear(40, expect![[r#"
        10 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false],
        10 replica A -> replica B (ahead): Suggest turn: 0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x")])
        10 replica A -> replica C (ahead): Suggest turn: 0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x")])
        10 client B -> replica B: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        10 replica B -> replica A (ahead): Suggest turn: 0, values: [Batch([Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        10 replica B -> replica C (ahead): Suggest turn: 0, values: [Batch([Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        10 client C -> replica C: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        10 replica C -> replica A (ahead): Suggest turn: 0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        10 replica C -> replica B (ahead): Suggest turn: 0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        11 replica A -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 0..1, skipped: 1..1
        11 replica B -> replica B (behind a record): Accepted lane: 1, ballot: b0.0, turns: 0..1, skipped: 1..1
        11 replica C -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 1..1
        21 replica B -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 0..1, skipped: 1..1
        21 replica C -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 0..1, skipped: 1..1
        21 replica A -> replica B (behind a record): Accepted lane: 1, ballot: b0.0, turns: 0..1, skipped: 1..1
        22 replica B -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 1..1
        22 replica C -> replica B (behind a record): Accepted lane: 1, ballot: b0.0, turns: 0..1, skipped: 1..1
        22 replica A -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 1..1
        31 replica A -> client A (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        31 replica A -> replica B (ahead): Commit decided: 0..1
        31 replica A -> replica C (ahead): Commit decided: 0..1
        31 answer: Replied(Ok)
        31 replica B -> replica A (ahead): Commit decided: 0..1
        31 replica B -> replica C (ahead): Commit decided: 0..1
        32 replica C -> replica A (ahead): Commit decided: 0..1
        32 replica C -> replica B (ahead): Commit decided: 0..1
        41 replica B -> client B (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 10000, 0]), answers: [(1, Done(Ok))]
        41 answer: Replied(Ok)
        41 replica C -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 21000, 9000, 0]), answers: [(1, Done(Ok))]
        41 answer: Replied(Ok)
    "#]]);
    assert_eq!(talk.answers.0, vec![Outcome::Replied(Reply::Ok); 3]);
}

#[test]
fn a_dead_owners_slots_are_revoked_and_it_comes_back_behind_them() {
    let mut talk = Talk::<Family>::new(0, |parameters| parameters.parameters.revoke_turns = 10);
    talk.pass(100);
    // Its suggestion reaches B and it dies.
    talk.cluster.connect(A, C, false);
    talk.ask(A, set("x"));
    talk.cluster.run_for(Span::from_millis(8), &mut talk.answers);
    talk.cluster.crash(A);
    talk.cluster.connect(A, C, true);
    talk.hear(600, expect![[r#"
        100 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false],
        100 replica A -> replica B (ahead): Suggest turn: 0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x")])
        100 replica A -> replica C (ahead): Suggest turn: 0, values: [Batch([Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x")])
        101 replica A -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 0..1, skipped: 1..1
        111 replica B -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 0..1, skipped: 0..0
        551 replica B -> replica A (behind a record): Prepare lane: 0, ballot: b1.1, turns: 0..11
        551 replica B -> replica B (behind a record): Prepare lane: 0, ballot: b1.1, turns: 0..11
        551 replica B -> replica C (behind a record): Prepare lane: 0, ballot: b1.1, turns: 0..11
        551 replica B -> replica B: Promised lane: 0, ballot: b1.1, held: [Held turns: 0..1, ballot: Some(b0.0), value: Batch([Command i
        562 replica C -> replica B (behind a record): Promised lane: 0, ballot: b1.1, held: []
        572 replica B -> replica A (ahead): Accept lane: 0, ballot: b1.1, turns: 0..11, runs: [Run lane: 0, turns: 0..1, value: Batch([Command i
        572 replica B -> replica B (ahead): Accept lane: 0, ballot: b1.1, turns: 0..11, runs: [Run lane: 0, turns: 0..1, value: Batch([Command i
        572 replica B -> replica C (ahead): Accept lane: 0, ballot: b1.1, turns: 0..11, runs: [Run lane: 0, turns: 0..1, value: Batch([Command i
        573 replica B -> replica B (behind a record): Accepted lane: 0, ballot: b1.1, turns: 0..11, skipped: 0..0
        583 replica C -> replica B (behind a record): Accepted lane: 0, ballot: b1.1, turns: 0..11, skipped: 0..0
        593 replica B -> replica A (ahead): Learned runs: [Run lane: 0, turns: 0..1, value: Batch([Command id: A#1, sequence: 1, below: 1, comma
        593 replica B -> replica C (ahead): Learned runs: [Run lane: 0, turns: 0..1, value: Batch([Command id: A#1, sequence: 1, below: 1, comma
    "#]]);
    talk.ask(C, set("y"));
    talk.hear(100, expect![[r#"
        708 client C -> replica C: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "y"), touching: false]
        708 replica C -> replica A (ahead): Suggest turn: 0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "y")]
        708 replica C -> replica B (ahead): Suggest turn: 0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "y")]
        709 replica C -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 1..1
        719 replica B -> replica C (behind a record): Accepted lane: 2, ballot: b0.0, turns: 0..1, skipped: 0..1
        729 replica C -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        729 replica C -> replica A (ahead): Commit decided: 0..1
        729 replica C -> replica B (ahead): Commit decided: 0..1
        729 answer: Replied(Ok)
    "#]]);
    talk.cluster.restart(A);
    talk.hear(200, expect![[r#"
        809 replica A -> replica A (behind a record): Skip skipped: 257..257
        809 replica A -> replica A (behind a record): Prepare lane: 0, ballot: b1.0, turns: 0..257
        809 replica A -> replica B (behind a record): Prepare lane: 0, ballot: b1.0, turns: 0..257
        809 replica A -> replica C (behind a record): Prepare lane: 0, ballot: b1.0, turns: 0..257
        809 replica A -> replica A (behind a record): Skip skipped: 257..257
        809 replica A -> replica A: Promised lane: 0, ballot: b1.0, held: [Held turns: 0..1, ballot: Some(b0.0), value: Batch([Command i
        819 replica B -> replica A: Rejected lane: 0, promised: b1.1, barred: 11, decided: 11
        819 replica C -> replica A: Rejected lane: 0, promised: b1.1, barred: 11, decided: 11
        829 replica A -> replica B (ahead): Fetch from: s0
        829 replica A -> replica C (ahead): Fetch from: s0
        839 replica B -> replica A: Learned runs: [Run lane: 0, turns: 0..1, value: Batch([Command id: A#1, sequence: 1, below: 1, comma
        839 replica C -> replica A: Learned runs: [Run lane: 0, turns: 0..1, value: Batch([Command id: A#1, sequence: 1, below: 1, comma
        849 replica A -> client A (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
        909 replica A -> replica A (behind a record): Prepare lane: 0, ballot: b2.0, turns: 11..257
        909 replica A -> replica B (behind a record): Prepare lane: 0, ballot: b2.0, turns: 11..257
        909 replica A -> replica C (behind a record): Prepare lane: 0, ballot: b2.0, turns: 11..257
        909 replica A -> replica A: Promised lane: 0, ballot: b2.0, held: []
        920 replica B -> replica A (behind a record): Promised lane: 0, ballot: b2.0, held: []
        920 replica C -> replica A (behind a record): Promised lane: 0, ballot: b2.0, held: []
        930 replica A -> replica A (ahead): Accept lane: 0, ballot: b2.0, turns: 11..257, runs: [Run lane: 0, turns: 11..257, value: NoOp]
        930 replica A -> replica B (ahead): Accept lane: 0, ballot: b2.0, turns: 11..257, runs: [Run lane: 0, turns: 11..257, value: NoOp]
        930 replica A -> replica C (ahead): Accept lane: 0, ballot: b2.0, turns: 11..257, runs: [Run lane: 0, turns: 11..257, value: NoOp]
        931 replica A -> replica A (behind a record): Accepted lane: 0, ballot: b2.0, turns: 11..257, skipped: 257..257
        941 replica B -> replica A (behind a record): Accepted lane: 0, ballot: b2.0, turns: 11..257, skipped: 0..1
        941 replica C -> replica A (behind a record): Accepted lane: 0, ballot: b2.0, turns: 11..257, skipped: 1..1
        951 replica A -> replica B (ahead): Learned runs: [Run lane: 0, turns: 11..257, value: NoOp], executed: s4
        951 replica A -> replica C (ahead): Learned runs: [Run lane: 0, turns: 11..257, value: NoOp], executed: s4
    "#]]);
    talk.ask(A, set("z"));
    talk.hear(100, expect![[r#"
        1008 client A -> replica A: Requests client: A#2, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "z"), touching: false],
        1008 replica A -> replica B (ahead): Suggest turn: 257, values: [Batch([Command id: A#2, sequence: 1, below: 1, command: Set("\x01", "z")
        1008 replica A -> replica C (ahead): Suggest turn: 257, values: [Batch([Command id: A#2, sequence: 1, below: 1, command: Set("\x01", "z")
        1009 replica A -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 257..258, skipped: 258..258
        1019 replica B -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 257..258, skipped: 0..257
        1019 replica B -> replica A (behind a record): Skip skipped: 0..257
        1019 replica B -> replica B (behind a record): Skip skipped: 0..257
        1019 replica B -> replica C (behind a record): Skip skipped: 0..257
        1019 replica C -> replica A (behind a record): Accepted lane: 0, ballot: b0.0, turns: 257..258, skipped: 1..257
        1019 replica C -> replica A (behind a record): Skip skipped: 1..257
        1019 replica C -> replica B (behind a record): Skip skipped: 1..257
        1019 replica C -> replica C (behind a record): Skip skipped: 1..257
        1029 replica A -> replica B (ahead): Commit decided: 257..258
        1029 replica A -> replica C (ahead): Commit decided: 257..258
        1029 replica A -> client A (ahead): Replies incarnation: 2, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        1029 answer: Replied(Ok)
    "#]]);
}
