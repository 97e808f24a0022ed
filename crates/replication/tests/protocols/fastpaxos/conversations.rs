//! What is said when nothing fails, when commands collide, and when too few replicas live.

use crate::machine::Machine;
use crate::talk::{A, B, C, Talk, set};
use expect_test::expect;
use isochrone_core::NodeId;
use isochrone_replication::fastpaxos::{Family, Learners, Placement};
use isochrone_replication::service::Reply;
use isochrone_replication::{Change, Outcome};

fn talk() -> Talk<Family> {
    Talk::new(0, |placement: &mut Placement<Machine>| {
        placement.service.reply = Reply::Commit;
        placement.parameters.cast = true;
        placement.parameters.learners = Learners::Sole;
    })
}

#[test]
fn a_command_takes_one_round_trip() {
    let mut talk = talk();
    talk.pass(500);
    talk.ask(NodeId(1), set("x"));
    talk.hear(60, expect![[r#"
        500 client B -> replica B: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        500 client B -> replica A: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        500 client B -> replica C: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        501 replica B -> replica A (behind a record): Votes reign: b1.0, first: s0, names: [Name id: n1#1, sequence: 1, digest: 1008203999699090817]
        501 replica B -> client B (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s0, 1008203999699090817)]
        511 replica A -> replica A (behind a record): Votes reign: b1.0, first: s0, names: [Name id: n1#1, sequence: 1, digest: 1008203999699090817]
        511 replica A -> client B (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s0, 1008203999699090817)]
        511 replica C -> replica A (behind a record): Votes reign: b1.0, first: s0, names: [Name id: n1#1, sequence: 1, digest: 1008203999699090817]
        511 replica C -> client B (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s0, 1008203999699090817)]
        521 replica A -> client B (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
        521 replica A -> replica B (ahead): Commit entries: [(s0, Yours(2195411949906843041))], decided: s1
        521 replica A -> replica C (ahead): Commit entries: [(s0, Yours(2195411949906843041))], decided: s1
        521 answer: Replied(Ok)
    "#]]);
}

#[test]
fn two_that_collide_are_recovered() {
    let mut talk = talk();
    talk.pass(500);
    talk.ask(A, set("a"));
    talk.ask(B, set("b"));
    talk.ask(C, set("c"));
    talk.hear(100, expect![[r#"
        500 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "a"), touching: false],
        500 client A -> replica B: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "a"), touching: false],
        500 client A -> replica C: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "a"), touching: false],
        500 client B -> replica B: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "b"), touching: false]
        500 client B -> replica A: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "b"), touching: false]
        500 client B -> replica C: Requests client: n1#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "b"), touching: false]
        500 client C -> replica C: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "c"), touching: false]
        500 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "c"), touching: false]
        500 client C -> replica B: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "c"), touching: false]
        501 replica A -> replica A (behind a record): Votes reign: b1.0, first: s0, names: [Name id: A#1, sequence: 1, digest: 2376787842029960776]
        501 replica A -> client A (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s0, 2376787842029960776)]
        501 replica B -> replica A (behind a record): Votes reign: b1.0, first: s0, names: [Name id: n1#1, sequence: 1, digest: 7263914357993856064]
        501 replica B -> client B (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s0, 7263914357993856064)]
        501 replica C -> replica A (behind a record): Votes reign: b1.0, first: s0, names: [Name id: n2#1, sequence: 1, digest: 9611971620891055751]
        501 replica C -> client C (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s0, 9611971620891055751)]
        511 replica A -> replica B (ahead): Accept reign: b1.0, entries: [(s0, [Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "a"
        511 replica A -> replica C (ahead): Accept reign: b1.0, entries: [(s0, [Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "a"
        511 replica B -> replica A (behind a record): Votes reign: b1.0, first: s1, names: [Name id: A#1, sequence: 1, digest: 2376787842029960776]
        511 replica B -> client A (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s1, 2376787842029960776)]
        511 replica C -> replica A (behind a record): Votes reign: b1.0, first: s1, names: [Name id: A#1, sequence: 1, digest: 2376787842029960776]
        511 replica C -> client A (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s1, 2376787842029960776)]
        511 replica A -> replica A (behind a record): Votes reign: b1.0, first: s1, names: [Name id: n1#1, sequence: 1, digest: 7263914357993856064]
        511 replica A -> client B (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s1, 7263914357993856064)]
        512 replica B -> replica A (behind a record): Votes reign: b1.0, first: s2, names: [Name id: n2#1, sequence: 1, digest: 9611971620891055751]
        512 replica B -> client C (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s2, 9611971620891055751)]
        512 replica C -> replica A (behind a record): Votes reign: b1.0, first: s2, names: [Name id: n1#1, sequence: 1, digest: 7263914357993856064]
        512 replica C -> client B (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s2, 7263914357993856064)]
        512 replica A -> replica A (behind a record): Votes reign: b1.0, first: s2, names: [Name id: n2#1, sequence: 1, digest: 9611971620891055751]
        512 replica A -> client C (behind a record): Cast incarnation: 1, reign: b1.0, members: 3, votes: [(1, s2, 9611971620891055751)]
        512 replica A -> replica A (behind a record): Accepted reign: b1.0, slots: [s0]
        521 replica A -> replica B (ahead): Accept reign: b1.0, entries: [(s1, [])], decided: s0
        521 replica A -> replica C (ahead): Accept reign: b1.0, entries: [(s1, [])], decided: s0
        522 replica A -> replica B (ahead): Accept reign: b1.0, entries: [(s2, [Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "c
        522 replica A -> replica C (ahead): Accept reign: b1.0, entries: [(s2, [Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "c
        522 replica B -> replica A (behind a record): Accepted reign: b1.0, slots: [s0]
        522 replica C -> replica A (behind a record): Accepted reign: b1.0, slots: [s0]
        522 replica A -> replica A (behind a record): Accepted reign: b1.0, slots: [s1]
        523 replica A -> replica A (behind a record): Accepted reign: b1.0, slots: [s2]
        532 replica A -> client A (ahead): Replies incarnation: 1, spans: Some([11000, 0, 21000, 0, 0]), answers: [(1, Done(Ok))]
        532 replica A -> client B (ahead): Replies incarnation: 1, spans: Some([11000, 0, 21000, 0, 0]), answers: [(1, Done(Ok))]
        532 replica A -> replica B (ahead): Commit entries: [(s0, Yours(9342228467606004213))], decided: s1
        532 replica A -> replica C (ahead): Commit entries: [(s0, Yours(9342228467606004213))], decided: s1
        532 answer: Replied(Ok)
        532 replica B -> replica A (behind a record): Accepted reign: b1.0, slots: [s1]
        532 replica C -> replica A (behind a record): Accepted reign: b1.0, slots: [s1]
        533 replica B -> replica A (behind a record): Accepted reign: b1.0, slots: [s2]
        533 replica C -> replica A (behind a record): Accepted reign: b1.0, slots: [s2]
        542 answer: Replied(Ok)
        542 replica A -> replica B (ahead): Commit entries: [(s1, Yours(0))], decided: s2
        542 replica A -> replica C (ahead): Commit entries: [(s1, Yours(0))], decided: s2
        543 replica A -> client C (ahead): Replies incarnation: 1, spans: Some([12000, 0, 21000, 0, 0]), answers: [(1, Done(Ok))]
        543 replica A -> replica B (ahead): Commit entries: [(s2, Yours(10799179571098807975))], decided: s3
        543 replica A -> replica C (ahead): Commit entries: [(s2, Yours(10799179571098807975))], decided: s3
        553 answer: Replied(Ok)
    "#]]);
}

/// Fast votes go on deciding when the heir begins, and who has decided more refuses it: it begins again behind that.
#[test]
fn leadership_is_handed_over_while_commands_come() {
    for phase in 0..25 {
        let mut talk = talk();
        talk.pass(500);
        for millis in 0..1_500 {
            if millis % 25 == 0 {
                talk.ask(C, set("x"));
            }
            if millis == 200 + phase {
                talk.change(Change::Lead(B));
            }
            talk.pass(1);
        }
        assert!(talk.answers.0.contains(&Outcome::Changed), "{phase} ms behind a command");
    }
}
