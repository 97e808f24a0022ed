//! What is said when nothing fails, when a request is late everywhere, and when a leader takes one. Clocks that
//! are announced are left out, and stamps are milliseconds.

use crate::machine::Machine;
use crate::talk::{A, B, C, Talk, set};
use expect_test::expect;
use isochrone_core::Span;
use isochrone_replication::domino::{Extra, Family, Learners, Placement, Way};
use isochrone_replication::service::Reply;

/// What is said beside probes and clocks: of a link between replicas only what it carries.
pub fn show(label: &str) -> Option<String> {
    if label.starts_with("Probe") {
        return None;
    }
    let carried = |label: &str| {
        label.split_once("item: ").or_else(|| label.split_once("items: ")).map(|(_, items)| items.to_owned())
    };
    let text = if label.starts_with("Flow") || label.starts_with("Own") {
        carried(label)?
    } else {
        label.to_owned()
    };
    if ["[Tick", "[Settled", "[Report", "None"].iter().any(|start| text.starts_with(start)) {
        return None;
    }
    let mut shown = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        match digits.parse::<u64>() {
            // Of the simulator's wall clock.
            Ok(stamp) if digits.len() == 19 => {
                let past = stamp - 1_700_000_000_000_000_000;
                shown += &format!("@{}.{:06}{}", past / 1_000_000, past % 1_000_000, &part[digits.len()..]);
            }
            _ => shown += part,
        }
    }
    Some(shown)
}

fn talk(way: Way) -> Talk<Family> {
    let mut talk = Talk::new(0, |placement: &mut Placement<Machine>| {
        placement.service.reply = Reply::Commit;
        placement.parameters.reply = Reply::Commit;
        let parameters = &mut placement.parameters;
        (parameters.way, parameters.learners) = (way, Learners::Sole);
        parameters.extra = Extra::Fixed(Span::ZERO);
    });
    talk.show = show;
    talk.pass(1_500);
    talk
}

#[test]
fn a_fast_command_takes_one_round_trip() {
    let mut talk = talk(Way::Fast);
    talk.ask(B, set("x"));
    talk.hear(60, expect![[r#"
        1500 client B -> replica A: Propose values: [(@1510.000001, Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1500 client B -> replica B: Propose values: [(@1510.000001, Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1500 client B -> replica C: Propose values: [(@1510.000001, Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1501 replica B -> replica A (behind a record): [Vote votes: [(@1510.000001, n1#1, sequence: 1)]]), received: Some((4294967296, 148)), beat: None
        1501 replica B -> client B (behind a record): Voted incarnation: 1, epoch: 0, votes: [(@1510.000001, 1)]
        1511 replica A -> replica A (behind a record): [Vote votes: [(@1510.000001, n1#1, sequence: 1)]]
        1511 replica A -> client B (behind a record): Voted incarnation: 1, epoch: 0, votes: [(@1510.000001, 1)]
        1511 replica C -> replica A (behind a record): [Vote votes: [(@1510.000001, n1#1, sequence: 1)]]), received: Some((4294967296, 149)), beat: None
        1511 replica C -> client B (behind a record): Voted incarnation: 1, epoch: 0, votes: [(@1510.000001, 1)]
        1521 answer: Replied(Ok)
        1521 replica A -> replica B: [Chosen values: [(@1510.000001, Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1521 replica A -> replica C: [Chosen values: [(@1510.000001, Command id: n1#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1531 replica A -> client B (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
        1550 replica B -> client B (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
        1550 replica C -> client B (ahead): Replies incarnation: 1, spans: None, answers: [(1, Done(Ok))]
    "#]]);
}

#[test]
fn a_request_that_is_late_everywhere_goes_through_a_leader() {
    let mut talk = talk(Way::Fast);
    talk.cluster.step_wall_clock(C, -300_000_000);
    talk.ask(C, set("x"));
    talk.hear(80, expect![[r#"
        1500 client C -> replica A: Propose values: [(@1210.000002, Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1500 client C -> replica B: Propose values: [(@1210.000002, Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1500 client C -> replica C: Propose values: [(@1210.000002, Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x"))]
        1500 replica C -> client C (ahead): Rejected incarnation: 1, votes: [(@1210.000002, 1, Late)]
        1510 replica A -> client C (ahead): Rejected incarnation: 1, votes: [(@1210.000002, 1, Late)]
        1510 replica B -> client C (ahead): Rejected incarnation: 1, votes: [(@1210.000002, 1, Late)]
        1520 client C -> replica C: ProposeLed above: 0, values: [Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        1521 replica C -> replica A (behind a record): [Accept values: [(@1537.500000, Some(Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "
        1521 replica C -> replica B (behind a record): [Accept values: [(@1537.500000, Some(Command id: n2#1, sequence: 1, below: 1, command: Set("\x01", "
        1521 replica C -> replica C (behind a record): [Accepted stamps: [@1537.500000]]
        1532 replica A -> replica C (behind a record): [Accepted stamps: [@1537.500000]]), received: Some((4294967296, 153)), beat: None
        1532 replica B -> replica C (behind a record): [Accepted stamps: [@1537.500000]]), received: Some((4294967296, 153)), beat: None
        1542 replica C -> replica A: [Commit stamps: [@1537.500000]]), received: Some((4294967296, 153)), beat: None
        1542 replica C -> replica B: [Commit stamps: [@1537.500000]]), received: Some((4294967296, 153)), beat: None
        1542 replica C -> client C (ahead): Committed incarnation: 1, places: [(1, @1537.500000)]
        1542 answer: Replied(Ok)
        1580 replica C -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 21000, 38000, 0]), answers: [(1, Done(Ok))]
    "#]]);
}

#[test]
fn a_leader_gives_a_command_a_place_in_its_lane() {
    let mut talk = talk(Way::Led);
    talk.ask(A, set("x"));
    talk.hear(60, expect![[r#"
        1500 client A -> replica A: ProposeLed above: 0, values: [Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x")]
        1501 replica A -> replica A (behind a record): [Accepted stamps: [@1520.000000]]
        1501 replica A -> replica B (behind a record): [Accept values: [(@1520.000000, Some(Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x
        1501 replica A -> replica C (behind a record): [Accept values: [(@1520.000000, Some(Command id: A#1, sequence: 1, below: 1, command: Set("\x01", "x
        1512 replica B -> replica A (behind a record): [Accepted stamps: [@1520.000000]]), received: Some((4294967296, 150)), beat: None
        1512 replica C -> replica A (behind a record): [Accepted stamps: [@1520.000000]]), received: Some((4294967296, 150)), beat: None
        1522 replica A -> replica B: [Commit stamps: [@1520.000000]]), received: Some((4294967296, 152)), beat: None
        1522 replica A -> replica C: [Commit stamps: [@1520.000000]]), received: Some((4294967296, 151)), beat: None
        1522 replica A -> client A (ahead): Committed incarnation: 1, places: [(1, @1520.000000)]
        1522 answer: Replied(Ok)
        1540 replica A -> client A (ahead): Replies incarnation: 1, spans: Some([0, 1000, 21000, 18000, 0]), answers: [(1, Done(Ok))]
    "#]]);
}
