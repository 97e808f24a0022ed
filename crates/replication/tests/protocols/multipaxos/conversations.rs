//! The protocol as conversations: what is said when, in the cases that everyone should know. Read them in
//! order; `UPDATE_EXPECT=1` writes them anew. Heartbeats are left out, and three machine rooms A, B and C
//! are 10 ms apart.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Reply, key};
use expect_test::{Expect, expect};
use isochrone_core::{Instant, NodeId, ProcessId, Span, Ticket};
use isochrone_replication::multipaxos::{Family, Form, MultiPaxos, Placement};
use isochrone_replication::{Change, Outcome, Request};
use isochrone_sim::{Config, Driver, FlowEvent, Next, Record, Session, Simulation};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);
const D: NodeId = NodeId(3);

/// Nobody asks anything but the test.
#[derive(Default)]
struct Silent(Vec<Outcome<Reply>>);

impl Driver<MultiPaxos<crate::machine::Machine>> for Silent {
    fn next(&mut self, _: Session, _: Instant) -> Next<Request<Command>> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: Outcome<Reply>, _: Instant) {}
    fn answered(&mut self, _: ProcessId, _: Ticket, outcome: Outcome<Reply>, _: bool) {
        self.0.push(outcome);
    }
}

struct Talk {
    cluster: Cluster<Family>,
    answers: Silent,
    clients: Vec<ProcessId>,
    tickets: u64,
    told: usize,
}

impl Talk {
    fn new(spares: u16, tune: impl FnOnce(&mut Placement<crate::machine::Machine>)) -> Talk {
        let nodes = 3 + spares;
        let names = ["A", "B", "C", "D"];
        let delays = (0..nodes).map(|from| {
            let way = |to| if from == to { Span::ZERO } else { Span::from_millis(10) };
            (0..nodes).map(way).collect()
        });
        let mut config = Config::new(1, &names[..usize::from(nodes)], delays.collect());
        config.record = Record::Flow;
        config.sync = Span::from_millis(1);
        config.sessions = 0;
        let mut placement = placement(nodes, 3, spares, Span::from_millis(20));
        tune(&mut placement);
        let mut cluster = Simulation::new(config, &placement);
        cluster.boot();
        Talk {
            cluster,
            answers: Silent::default(),
            clients: (0..nodes).map(|node| placement.client(NodeId(node))).collect(),
            tickets: 0,
            told: 0,
        }
    }

    fn ask(&mut self, node: NodeId, request: impl Into<Request<Command>>) {
        self.tickets += 1;
        let client = self.clients[usize::from(node.0)];
        self.cluster.request(client, Ticket(self.tickets), request.into());
    }

    fn change(&mut self, change: Change) {
        self.ask(A, Request::Change(change));
    }

    /// Lets time pass and nothing be said about it.
    fn pass(&mut self, millis: u64) -> &mut Talk {
        self.cluster.run_for(Span::from_millis(millis), &mut self.answers);
        self.told = self.cluster.flow().len();
        self
    }

    /// Lets time pass and compares what was said.
    fn hear(&mut self, millis: u64, expected: Expect) {
        self.cluster.run_for(Span::from_millis(millis), &mut self.answers);
        assert_eq!(self.cluster.broken(), None);
        let mut text = String::new();
        for line in &self.cluster.flow()[self.told..] {
            let at = line.at.as_millis();
            match &line.event {
                FlowEvent::Message { between: (from, to), label, held, ahead, .. } => {
                    let label = label
                        .strip_prefix("Log(")
                        .map_or(label.as_str(), |label| label.strip_suffix(')').unwrap_or(label));
                    if label.starts_with("Heartbeat") || label.starts_with("Heard") {
                        continue;
                    }
                    let how = match (*ahead, *held > Span::ZERO) {
                        (true, _) => " (ahead)",
                        (_, true) => " (behind a record)",
                        _ => "",
                    };
                    text += &format!("{at} {} -> {}{how}: {}\n", name(from), name(to), brief(label));
                }
                FlowEvent::Answer(answer) => text += &format!("{at} answer: {answer}\n"),
                FlowEvent::Mark(mark) if mark.contains("Leads") => {
                    text += &format!("{at} {}\n", brief(mark));
                }
                _ => {}
            }
        }
        self.told = self.cluster.flow().len();
        expected.assert_eq(&text);
    }
}

/// `r0.role1.0` is the client at A.
fn name(process: &str) -> String {
    let node = process.chars().next().map(|c| c.to_string()).unwrap_or_default();
    let role = if process.contains("role1") { "client" } else { "replica" };
    format!("{role} {node}")
}

/// Without what is the same everywhere.
fn brief(label: &str) -> String {
    let mut text = label.to_owned();
    for (long, short) in
        [("CommandId { client: ", ""), ("/k1/p0/role1/0", ""), (" }", ""), ("{ ", ""), ("n0", "A")]
    {
        text = text.replace(long, short);
    }
    text.chars().take(100).collect()
}

fn set(text: &str) -> Command {
    Command::Set(key(1), text.to_owned())
}

#[test]
fn a_leader_is_elected_and_a_command_takes_two_round_trips() {
    let mut talk = Talk::new(0, |_| {});
    talk.hear(100, expect![[r#"
        1 replica A -> replica A (behind a record): Order epoch: 0, message: Prepare ballot: b1.0, from: s0
        1 replica A -> replica B (behind a record): Order epoch: 0, message: Prepare ballot: b1.0, from: s0
        1 replica A -> replica C (behind a record): Order epoch: 0, message: Prepare ballot: b1.0, from: s0
        1 replica A -> replica A: Order epoch: 0, message: Promised ballot: b1.0, report: Report decided: s0, tail: b0.0, end: s0, acc
        12 replica B -> replica A (behind a record): Order epoch: 0, message: Promised ballot: b1.0, report: Report decided: s0, tail: b0.0, end: s0, acc
        12 replica C -> replica A (behind a record): Order epoch: 0, message: Promised ballot: b1.0, report: Report decided: s0, tail: b0.0, end: s0, acc
        22 replica A -> replica B (ahead): Order epoch: 0, message: Adopt ballot: b1.0, from: s0, values: [], decided: s0
        22 replica A -> replica C (ahead): Order epoch: 0, message: Adopt ballot: b1.0, from: s0, values: [], decided: s0
        22 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s0, sent: 151264.756ms
        22 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s0, sent: 151264.756ms
        23 Order(0, Leads(b1.0))
        32 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151264.756ms, decided: s0
        32 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151264.756ms, decided: s0
        72 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s0, sent: 151314.756ms
        72 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s0, sent: 151314.756ms
        82 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151314.756ms, decided: s0
        82 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151314.756ms, decided: s0
    "#]]);
    talk.ask(C, set("x"));
    talk.hear(100, expect![[r#"
        100 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        110 replica A -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1,
        110 replica A -> replica C (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1,
        111 replica A -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        121 replica B -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        121 replica C -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        122 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s0, sent: 151364.756ms
        122 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s0, sent: 151364.756ms
        131 replica A -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        132 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151364.756ms, decided: s0
        132 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151364.756ms, decided: s0
        141 answer: Replied(Ok)
        172 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151414.756ms
        172 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151414.756ms
        182 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151414.756ms, decided: s0
        182 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151414.756ms, decided: s0
    "#]]);
    // Under the leader's lease a read needs one.
    talk.ask(C, Command::Get(key(1)));
    talk.hear(100, expect![[r#"
        200 client C -> replica A: Requests client: n2#1, below: 2, asks: [Ask sequence: 2, command: Get("\x01"), touching: false], for
        210 replica A -> client C (ahead): Replies incarnation: 1, spans: None, answers: [(2, Read(Text(Some("x"))))]
        220 answer: Replied(Text(Some("x")))
        222 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151464.756ms
        222 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151464.756ms
        232 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151464.756ms, decided: s1
        232 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151464.756ms, decided: s1
        272 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151514.756ms
        272 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151514.756ms
        282 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151514.756ms, decided: s1
        282 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151514.756ms, decided: s1
    "#]]);
    assert_eq!(talk.answers.0.last(), Some(&Outcome::Replied(Reply::Text(Some("x".to_owned())))));
}

#[test]
fn a_follower_takes_over_and_the_client_asks_again() {
    let mut talk = Talk::new(0, |_| {});
    talk.pass(100).ask(C, set("x"));
    talk.cluster.run_for(Span::from_millis(15), &mut talk.answers);
    talk.cluster.crash(A);
    talk.hear(1_200, expect![[r#"
        100 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        110 replica A -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1,
        110 replica A -> replica C (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s0, value: Batch([Command id: n2#1, sequence: 1,
        111 replica A -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        121 replica B -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        121 replica C -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        540 client C -> replica B: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        550 replica B -> replica A (ahead): Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        560 replica B -> replica A (ahead): Order epoch: 0, message: Poll ballot: b1.1, decided: s0
        560 replica B -> replica C (ahead): Order epoch: 0, message: Poll ballot: b1.1, decided: s0
        570 replica C -> replica B (ahead): Order epoch: 0, message: Polled ballot: b1.1, granted: true, promised: b1.0, decided: s0
        581 replica B -> replica A (behind a record): Order epoch: 0, message: Prepare ballot: b1.1, from: s0
        581 replica B -> replica B (behind a record): Order epoch: 0, message: Prepare ballot: b1.1, from: s0
        581 replica B -> replica C (behind a record): Order epoch: 0, message: Prepare ballot: b1.1, from: s0
        581 replica B -> replica B: Order epoch: 0, message: Promised ballot: b1.1, report: Report decided: s0, tail: b0.0, end: s1, acc
        592 replica C -> replica B (behind a record): Order epoch: 0, message: Promised ballot: b1.1, report: Report decided: s0, tail: b0.0, end: s1, acc
        602 replica B -> replica A (ahead): Order epoch: 0, message: Adopt ballot: b1.1, from: s0, values: [Batch([Command id: n2#1, sequence: 1
        602 replica B -> replica C (ahead): Order epoch: 0, message: Adopt ballot: b1.1, from: s0, values: [Batch([Command id: n2#1, sequence: 1
        602 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s0, sent: 517880.216ms
        602 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s0, sent: 517880.216ms
        603 replica B -> replica B (behind a record): Order epoch: 0, message: Accepted ballot: b1.1, first: s0, last: s0
        603 Order(0, Leads(b1.1))
        612 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 517880.216ms, decided: s0
        613 replica C -> replica B (behind a record): Order epoch: 0, message: Accepted ballot: b1.1, first: s0, last: s0
        623 replica B -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        633 answer: Replied(Ok)
        652 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 517930.216ms
        652 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 517930.216ms
        662 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 517930.216ms, decided: s0
        702 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 517980.216ms
        702 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 517980.216ms
        712 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 517980.216ms, decided: s1
        752 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518030.216ms
        752 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518030.216ms
        762 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518030.216ms, decided: s1
        802 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518080.216ms
        802 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518080.216ms
        812 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518080.216ms, decided: s1
        852 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518130.216ms
        852 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518130.216ms
        862 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518130.216ms, decided: s1
        902 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518180.216ms
        902 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518180.216ms
        912 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518180.216ms, decided: s1
        952 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518230.216ms
        952 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518230.216ms
        962 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518230.216ms, decided: s1
        1002 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518280.216ms
        1002 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518280.216ms
        1012 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518280.216ms, decided: s1
        1052 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518330.216ms
        1052 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518330.216ms
        1062 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518330.216ms, decided: s1
        1102 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518380.216ms
        1102 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518380.216ms
        1112 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518380.216ms, decided: s1
        1152 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518430.216ms
        1152 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518430.216ms
        1162 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518430.216ms, decided: s1
        1202 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518480.216ms
        1202 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518480.216ms
        1212 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518480.216ms, decided: s1
        1252 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518530.216ms
        1252 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518530.216ms
        1262 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518530.216ms, decided: s1
        1302 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518580.216ms
        1302 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518580.216ms
        1312 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518580.216ms, decided: s1
    "#]]);
    assert_eq!(talk.answers.0, [Outcome::Replied(Reply::Ok)]);
    // The former leader comes back, follows and learns.
    talk.cluster.restart(A);
    talk.hear(100, expect![[r#"
        1352 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518630.216ms
        1352 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518630.216ms
        1362 replica A -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518630.216ms, decided: s0
        1362 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518630.216ms, decided: s1
        1382 replica A -> replica B (ahead): Order epoch: 0, message: Fetch from: s0
        1392 replica B -> replica A (ahead): Order epoch: 0, message: Learned from: s0, values: [Batch([Command id: n2#1, sequence: 1, below: 1, 
        1392 replica B -> replica A (ahead): Order epoch: 0, message: Adopt ballot: b1.1, from: s1, values: [], decided: s1
        1402 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518680.216ms
        1402 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s1, sent: 518680.216ms
        1412 replica A -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518680.216ms, decided: s1
        1412 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518680.216ms, decided: s1
    "#]]);
}

#[test]
fn one_far_behind_takes_in_a_snapshot() {
    let mut talk = Talk::new(0, |placement| placement.parameters.keep_slots = 1);
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
        272 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151514.756ms
        272 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151514.756ms
        282 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151514.756ms, decided: s3
        282 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151514.756ms, decided: s0
        302 replica C -> replica A (ahead): Order epoch: 0, message: Fetch from: s0
        312 replica A -> replica C (ahead): Order epoch: 0, message: Trimmed decided: s3
        322 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151564.756ms
        322 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151564.756ms
        322 replica C -> replica A (ahead): Want position: None, index: 0
        332 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151564.756ms, decided: s3
        332 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151564.756ms, decided: s0
        332 replica A -> replica C (ahead): Chunk position: 3, index: 0, chunk: Some("\x03\x00\x03\x00\x00\x01\x00\x00\x00\x01\x01\x01\x00\x00\x
        342 replica C -> replica A (ahead): Want position: Some(3), index: 1
        342 replica C -> replica A (ahead): Want position: Some(3), index: 2
        342 replica C -> replica A (ahead): Want position: Some(3), index: 3
        342 replica C -> replica A (ahead): Want position: Some(3), index: 4
        342 replica C -> replica A (ahead): Want position: Some(3), index: 5
        342 replica C -> replica A (ahead): Want position: Some(3), index: 6
        342 replica C -> replica A (ahead): Want position: Some(3), index: 7
        342 replica C -> replica A (ahead): Want position: Some(3), index: 8
        352 replica A -> replica C (ahead): Chunk position: 3, index: 1, chunk: Some("\x01\x00\x01\x00\x01\x00\x01\x03\x01\x03\x01")
        352 replica A -> replica C (ahead): Chunk position: 3, index: 2, chunk: Some("\x01\x01\x01z")
        352 replica A -> replica C (ahead): Chunk position: 3, index: 3, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 4, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 5, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 6, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 7, chunk: None
        352 replica A -> replica C (ahead): Chunk position: 3, index: 8, chunk: None
        362 replica C -> replica A (ahead): Want position: Some(3), index: 9
        362 replica C -> replica A (ahead): Want position: Some(3), index: 10
        372 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151614.756ms
        372 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151614.756ms
        372 replica A -> replica C (ahead): Chunk position: 3, index: 9, chunk: None
        372 replica A -> replica C (ahead): Chunk position: 3, index: 10, chunk: None
        382 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151614.756ms, decided: s3
        382 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151614.756ms, decided: s3
    "#]]);
}

#[test]
fn a_new_member_catches_up_before_it_votes() {
    let mut talk = Talk::new(1, |_| {});
    talk.pass(100).ask(A, set("x"));
    talk.pass(100).change(Change::Add(D));
    talk.hear(100, expect![[r#"
        200 client A -> replica A: Administer number: 2, change: Add(n3)
        200 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151442.756ms
        200 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151442.756ms
        200 replica A -> replica D (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s1, sent: 151442.756ms
        210 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151442.756ms, decided: s1
        210 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151442.756ms, decided: s1
        210 replica D -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151442.756ms, decided: s0
        220 replica A -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s1, value: Change(Configuration version: 1, memb
        220 replica A -> replica C (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s1, value: Change(Configuration version: 1, memb
        220 replica A -> replica D (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s1, value: Change(Configuration version: 1, memb
        221 replica A -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        230 replica D -> replica A (ahead): Order epoch: 0, message: Fetch from: s0
        231 replica B -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        231 replica C -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        231 replica D -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        240 replica A -> replica D (ahead): Order epoch: 0, message: Learned from: s0, values: [Batch([Command id: A#1, sequence: 1, below: 1, c
        240 replica A -> replica D (ahead): Order epoch: 0, message: Adopt ballot: b1.0, from: s1, values: [Change(Configuration version: 1, mem
        241 replica A -> client A: Administered number: 2, result: Ok(()), leader: Some(A/k1/p0/role0/0)
        241 answer: Changed
        250 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s2, sent: 151492.756ms
        250 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s2, sent: 151492.756ms
        250 replica A -> replica D (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s2, sent: 151492.756ms
        251 replica D -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        260 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151492.756ms, decided: s1
        260 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151492.756ms, decided: s1
        260 replica D -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151492.756ms, decided: s1
        300 replica A -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s2, sent: 151542.756ms
        300 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s2, sent: 151542.756ms
        300 replica A -> replica D (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s2, sent: 151542.756ms
    "#]]);
    talk.pass(200).change(Change::Remove(B));
    talk.hear(100, expect![[r#"
        500 client A -> replica A: Administer number: 3, change: Remove(n1)
        500 replica A -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s2, value: Change(Configuration version: 2, memb
        500 replica A -> replica C (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s2, value: Change(Configuration version: 2, memb
        500 replica A -> replica D (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s2, value: Change(Configuration version: 2, memb
        501 replica A -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s2, last: s2
        510 replica B -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151742.756ms, decided: s2
        510 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151742.756ms, decided: s2
        510 replica D -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151742.756ms, decided: s2
        511 replica B -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s2, last: s2
        511 replica C -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s2, last: s2
        511 replica D -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s2, last: s2
        521 replica A -> client A: Administered number: 3, result: Ok(()), leader: Some(A/k1/p0/role0/0)
        521 answer: Changed
        550 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151792.756ms
        550 replica A -> replica D (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151792.756ms
        560 replica C -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151792.756ms, decided: s2
        560 replica D -> replica A (ahead): Order epoch: 0, message: Heard ballot: b1.0, sent: 151792.756ms, decided: s2
        600 replica A -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151842.756ms
        600 replica A -> replica D (ahead): Order epoch: 0, message: Heartbeat ballot: b1.0, decided: s3, sent: 151842.756ms
    "#]]);
    assert_eq!(talk.answers.0, [Outcome::Replied(Reply::Ok), Outcome::Changed, Outcome::Changed]);
}

#[test]
fn leadership_is_handed_over_without_waiting_for_the_lease() {
    let mut talk = Talk::new(0, |_| {});
    talk.pass(100).change(Change::Lead(C));
    talk.hear(120, expect![[r#"
        100 client A -> replica A: Administer number: 1, change: Lead(n2)
        100 replica A -> replica C: Order epoch: 0, message: Handover ballot: b1.0, decided: s0
        111 replica C -> replica A (behind a record): Order epoch: 0, message: Prepare ballot: b1.2, from: s0
        111 replica C -> replica B (behind a record): Order epoch: 0, message: Prepare ballot: b1.2, from: s0
        111 replica C -> replica C (behind a record): Order epoch: 0, message: Prepare ballot: b1.2, from: s0
        111 replica C -> replica C: Order epoch: 0, message: Promised ballot: b1.2, report: Report decided: s0, tail: b0.0, end: s0, acc
        122 replica A -> replica C (behind a record): Order epoch: 0, message: Promised ballot: b1.2, report: Report decided: s0, tail: b1.0, end: s0, acc
        122 replica A -> client A (behind a record): Administered number: 1, result: Ok(()), leader: None
        122 answer: Changed
        122 replica B -> replica C (behind a record): Order epoch: 0, message: Promised ballot: b1.2, report: Report decided: s0, tail: b0.0, end: s0, acc
        132 replica C -> replica A (ahead): Order epoch: 0, message: Adopt ballot: b1.2, from: s0, values: [], decided: s0
        132 replica C -> replica B (ahead): Order epoch: 0, message: Adopt ballot: b1.2, from: s0, values: [], decided: s0
        132 replica C -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.2, decided: s0, sent: 798652.013ms
        132 replica C -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.2, decided: s0, sent: 798652.013ms
        133 Order(0, Leads(b1.2))
        142 replica A -> replica C (ahead): Order epoch: 0, message: Heard ballot: b1.2, sent: 798652.013ms, decided: s0
        142 replica B -> replica C (ahead): Order epoch: 0, message: Heard ballot: b1.2, sent: 798652.013ms, decided: s0
        182 replica C -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.2, decided: s0, sent: 798702.013ms
        182 replica C -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.2, decided: s0, sent: 798702.013ms
        192 replica A -> replica C (ahead): Order epoch: 0, message: Heard ballot: b1.2, sent: 798702.013ms, decided: s0
        192 replica B -> replica C (ahead): Order epoch: 0, message: Heard ballot: b1.2, sent: 798702.013ms, decided: s0
    "#]]);
    talk.ask(C, set("x"));
    talk.hear(60, expect![[r#"
        220 client C -> replica A: Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        230 replica A -> replica C (ahead): Requests client: n2#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false]
        232 replica C -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.2, decided: s0, sent: 798752.013ms
        232 replica C -> replica B (ahead): Order epoch: 0, message: Heartbeat ballot: b1.2, decided: s0, sent: 798752.013ms
        240 replica C -> replica A (ahead): Order epoch: 0, message: Accept ballot: b1.2, slot: s0, value: Batch([Command id: n2#1, sequence: 1,
        240 replica C -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.2, slot: s0, value: Batch([Command id: n2#1, sequence: 1,
        241 replica C -> replica C (behind a record): Order epoch: 0, message: Accepted ballot: b1.2, first: s0, last: s0
        242 replica A -> replica C (ahead): Order epoch: 0, message: Heard ballot: b1.2, sent: 798752.013ms, decided: s0
        242 replica B -> replica C (ahead): Order epoch: 0, message: Heard ballot: b1.2, sent: 798752.013ms, decided: s0
        251 replica A -> replica C (behind a record): Order epoch: 0, message: Accepted ballot: b1.2, first: s0, last: s0
        251 replica B -> replica C (behind a record): Order epoch: 0, message: Accepted ballot: b1.2, first: s0, last: s0
        261 replica C -> client C (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok))]
        261 answer: Replied(Ok)
    "#]]);
    assert_eq!(talk.answers.0, [Outcome::Changed, Outcome::Replied(Reply::Ok)]);
}

#[test]
fn a_prefix_log_is_adopted_whole() {
    let mut talk = Talk::new(0, |placement| placement.parameters.form = Form::Prefix);
    talk.pass(100).ask(A, set("x"));
    talk.cluster.run_for(Span::from_millis(15), &mut talk.answers);
    talk.ask(A, set("y"));
    talk.cluster.run_for(Span::from_millis(3), &mut talk.answers);
    talk.cluster.crash(A);
    talk.hear(1_000, expect![[r#"
        100 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 1, command: Set("\x01", "x"), touching: false],
        100 replica A -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s0, value: Batch([Command id: A#1, sequence: 1, 
        100 replica A -> replica C (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s0, value: Batch([Command id: A#1, sequence: 1, 
        101 replica A -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        111 replica B -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        111 replica C -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s0, last: s0
        115 client A -> replica A: Requests client: A#1, below: 1, asks: [Ask sequence: 2, command: Set("\x01", "y"), touching: false],
        115 replica A -> replica B (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s1, value: Batch([Command id: A#1, sequence: 2, 
        115 replica A -> replica C (ahead): Order epoch: 0, message: Accept ballot: b1.0, slot: s1, value: Batch([Command id: A#1, sequence: 2, 
        116 replica A -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        126 replica B -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        126 replica C -> replica A (behind a record): Order epoch: 0, message: Accepted ballot: b1.0, first: s1, last: s1
        565 replica B -> replica A (ahead): Order epoch: 0, message: Poll ballot: b1.1, decided: s0
        565 replica B -> replica C (ahead): Order epoch: 0, message: Poll ballot: b1.1, decided: s0
        575 replica C -> replica B (ahead): Order epoch: 0, message: Polled ballot: b1.1, granted: true, promised: b1.0, decided: s0
        586 replica B -> replica A (behind a record): Order epoch: 0, message: Prepare ballot: b1.1, from: s0
        586 replica B -> replica B (behind a record): Order epoch: 0, message: Prepare ballot: b1.1, from: s0
        586 replica B -> replica C (behind a record): Order epoch: 0, message: Prepare ballot: b1.1, from: s0
        586 replica B -> replica B: Order epoch: 0, message: Promised ballot: b1.1, report: Report decided: s0, tail: b1.0, end: s2, acc
        597 replica C -> replica B (behind a record): Order epoch: 0, message: Promised ballot: b1.1, report: Report decided: s0, tail: b1.0, end: s2, acc
        607 replica B -> replica A (ahead): Order epoch: 0, message: Adopt ballot: b1.1, from: s0, values: [Batch([Command id: A#1, sequence: 1,
        607 replica B -> replica C (ahead): Order epoch: 0, message: Adopt ballot: b1.1, from: s0, values: [Batch([Command id: A#1, sequence: 1,
        607 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s0, sent: 517885.216ms
        607 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s0, sent: 517885.216ms
        608 replica B -> replica B (behind a record): Order epoch: 0, message: Accepted ballot: b1.1, first: s0, last: s1
        608 Order(0, Leads(b1.1))
        617 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 517885.216ms, decided: s0
        618 replica C -> replica B (behind a record): Order epoch: 0, message: Accepted ballot: b1.1, first: s0, last: s1
        628 replica B -> client A (ahead): Replies incarnation: 1, spans: Some([0, 1000, 20000, 0, 0]), answers: [(1, Done(Ok)), (2, Done(Ok))]
        657 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 517935.216ms
        657 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 517935.216ms
        667 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 517935.216ms, decided: s0
        707 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 517985.216ms
        707 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 517985.216ms
        717 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 517985.216ms, decided: s2
        757 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518035.216ms
        757 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518035.216ms
        767 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518035.216ms, decided: s2
        807 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518085.216ms
        807 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518085.216ms
        817 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518085.216ms, decided: s2
        857 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518135.216ms
        857 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518135.216ms
        867 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518135.216ms, decided: s2
        907 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518185.216ms
        907 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518185.216ms
        917 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518185.216ms, decided: s2
        957 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518235.216ms
        957 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518235.216ms
        967 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518235.216ms, decided: s2
        1007 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518285.216ms
        1007 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518285.216ms
        1017 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518285.216ms, decided: s2
        1057 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518335.216ms
        1057 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518335.216ms
        1067 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518335.216ms, decided: s2
        1107 replica B -> replica A (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518385.216ms
        1107 replica B -> replica C (ahead): Order epoch: 0, message: Heartbeat ballot: b1.1, decided: s2, sent: 518385.216ms
        1117 replica C -> replica B (ahead): Order epoch: 0, message: Heard ballot: b1.1, sent: 518385.216ms, decided: s2
    "#]]);
}
