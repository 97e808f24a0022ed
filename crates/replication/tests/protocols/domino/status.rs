//! What stays without an answer is asked for by name, and sent again only where nobody knows of it
//! (`specs/domino.md` 7, decision 17).

use super::commit::{broken, tune_commit};
use super::{conversations, tune};
use crate::cluster::Case;
use crate::machine::Machine;
use crate::safety::hold;
use crate::talk::{A, B, C, D, Talk, set};
use expect_test::expect;
use isochrone_core::Span;
use isochrone_replication::domino::{Family, Learners, Placement, Way};
use isochrone_sim::FaultSet;

/// A client that has no replica beside it, and asks again after 100 ms.
fn talk(way: Way) -> Talk<Family> {
    let mut talk = Talk::new(1, |placement: &mut Placement<Machine>| {
        placement.service.retry = Span::from_millis(100);
        (placement.parameters.way, placement.parameters.learners) = (way, Learners::All);
    });
    // Of what a client and replicas say to each other.
    talk.show = |label| {
        let between = ["Propose", "Status", "Standing", "Replies"];
        between.iter().any(|start| label.starts_with(start)).then(|| conversations::show(label)).flatten()
    };
    talk.pass(1_500);
    talk
}

fn cut(talk: &mut Talk<Family>, up: bool) {
    for replica in [A, B, C] {
        talk.cluster.connect(D, replica, up);
    }
}

/// The replicas have a command, and their answers are lost.
fn unanswered(way: Way) -> Talk<Family> {
    let mut talk = talk(way);
    talk.ask(D, set("x"));
    talk.pass(12);
    cut(&mut talk, false);
    talk.pass(80);
    cut(&mut talk, true);
    assert_eq!(talk.answers.0, [], "{way:?}: the answers were lost");
    talk
}

#[test]
fn a_lost_answer_is_had_again_without_the_command() {
    let mut talk = unanswered(Way::Fast);
    talk.hear(
        60,
        expect![[r#"
            1600 client D -> replica A: Status client: n3#1, sequences: [1]
            1610 replica A -> client D (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
            1620 answer: Replied(Ok)
        "#]],
    );
    // The leader is asked first: it knows most.
    let mut talk = unanswered(Way::Led);
    talk.hear(
        60,
        expect![[r#"
            1600 client D -> replica A: Status client: n3#1, sequences: [1]
            1610 replica A -> client D (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
            1620 answer: Replied(Ok)
        "#]],
    );
}

#[test]
fn a_lost_command_is_sent_again_when_a_replica_says_so() {
    let mut talk = talk(Way::Led);
    cut(&mut talk, false);
    talk.ask(D, set("x"));
    talk.pass(50);
    cut(&mut talk, true);
    talk.hear(150, expect![[r#"
        1600 client D -> replica A: Status client: n3#1, sequences: [1]
        1610 replica A -> client D (ahead): Standing incarnation: 1, waiting: [], unknown: [1]
        1620 client D -> replica B: ProposeLed above: 0, values: [Command id: n3#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        1670 replica B -> client D (ahead): Replies incarnation: 1, spans: Some([0, 1000, 21000, 18000, 0]), answers: [(1, Done(Ok))]
        1680 answer: Replied(Ok)
    "#]]);
    assert_eq!(talk.answers.0.len(), 1);
}

/// A leader that is cut off has the command: once it knows how it stands, it says nothing of it any more, and the command is
/// sent to another one; and then waited for, since others have it.
#[test]
fn a_command_that_others_have_is_waited_for() {
    let mut talk = talk(Way::Led);
    talk.ask(D, set("x"));
    talk.pass(11);
    for (one, other) in [(A, B), (A, C)] {
        talk.cluster.connect(one, other, false);
    }
    talk.hear(900, expect![[r#"
        1600 client D -> replica A: Status client: n3#1, sequences: [1]
        1610 replica A -> client D (ahead): Standing incarnation: 1, waiting: [1], unknown: []
        1725 client D -> replica A: Status client: n3#1, sequences: [1]
        1735 replica A -> client D (ahead): Standing incarnation: 1, waiting: [1], unknown: []
        1950 client D -> replica A: Status client: n3#1, sequences: [1]
        1960 replica A -> client D (ahead): Standing incarnation: 1, waiting: [1], unknown: []
        2032 Order(0, Leads(1))
        2275 client D -> replica A: Status client: n3#1, sequences: [1]
        2285 replica A -> client D (ahead): Standing incarnation: 1, waiting: [], unknown: [1]
        2295 client D -> replica B: ProposeLed above: 0, values: [Command id: n3#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        2381 replica B -> client D (ahead): Replies incarnation: 1, spans: Some([0, 1000, 21000, 54000, 0]), answers: [(1, Done(Ok))]
        2391 answer: Replied(Ok)
    "#]]);
    for (one, other) in [(A, B), (A, C)] {
        talk.cluster.connect(one, other, true);
    }
    talk.pass(2_000);
    assert_eq!(talk.answers.0.len(), 1);
}

/// With lost messages answers are had by name, and histories are what they are without. Of commands that were asked
/// after, about half are not sent again; each of these was a second place in the log.
#[test]
fn fewer_commands_are_sent_again_where_messages_are_lost() {
    let faults: FaultSet = "loss".parse().unwrap();
    let (_, counted) = hold(&Case::<Family>::new(3, faults, tune), 0, 60);
    println!("{counted:?}");
    let of = |name| counted.get(name).copied().unwrap_or(0);
    assert!(of("status_asked") * 3 > of("sent_again") * 4, "{counted:?}");
    let case = Case::<Family>::new(3, faults, tune_commit);
    let wrong: Vec<String> = (0..10).filter_map(|seed| broken(&case, seed)).collect();
    assert_eq!(wrong, [] as [&str; 0]);
}
