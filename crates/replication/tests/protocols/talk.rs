//! Conversations: what is said when. `UPDATE_EXPECT=1` writes them anew. Heartbeats are left out, and the
//! machine rooms A, B, C and D are 10 ms apart.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply, key};
use expect_test::Expect;
use isochrone_core::{Instant, NodeId, ProcessId, Span, Ticket};
use isochrone_replication::{Change, Family, Outcome, Placement, Replicated, Request};
use isochrone_sim::{Config, Driver, FlowEvent, Next, Record, Session, Simulation};

pub const A: NodeId = NodeId(0);
pub const B: NodeId = NodeId(1);
pub const C: NodeId = NodeId(2);
pub const D: NodeId = NodeId(3);

/// Nobody asks anything but the test.
#[derive(Default)]
pub struct Silent(pub Vec<Outcome<Reply>>);

impl<F: Family> Driver<Replicated<Machine, F>> for Silent {
    fn next(&mut self, _: Session, _: Instant) -> Next<Request<Command>> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: Outcome<Reply>, _: Instant) {}
    fn answered(&mut self, _: ProcessId, _: Ticket, outcome: Outcome<Reply>, _: bool) {
        self.0.push(outcome);
    }
}

/// A cluster that is listened to.
pub struct Talk<F: Family> {
    pub cluster: Cluster<F>,
    pub answers: Silent,
    /// What of a message is shown; nothing of one that is left out.
    pub show: fn(&str) -> Option<String>,
    clients: Vec<ProcessId>,
    tickets: u64,
    told: usize,
}

impl<F: Family> Talk<F> {
    pub fn new(spares: u16, tune: impl FnOnce(&mut Placement<Machine, F>)) -> Talk<F> {
        Talk::over(None, spares, tune)
    }

    /// Over lines of so many bytes a second.
    pub fn over(
        bandwidth: Option<u64>,
        spares: u16,
        tune: impl FnOnce(&mut Placement<Machine, F>),
    ) -> Talk<F> {
        let nodes = 3 + spares;
        let names = ["A", "B", "C", "D"];
        let delays = (0..nodes).map(|from| {
            let way = |to| if from == to { Span::ZERO } else { Span::from_millis(10) };
            (0..nodes).map(way).collect()
        });
        let mut config = Config::new(1, &names[..usize::from(nodes)], delays.collect());
        (config.record, config.bandwidth) = (Record::Flow, bandwidth);
        config.sync = Span::from_millis(1);
        config.sessions = 0;
        let mut placement = placement(nodes, 3, spares, Span::from_millis(20));
        tune(&mut placement);
        let mut cluster = Simulation::new(config, &placement);
        cluster.boot();
        Talk {
            cluster,
            answers: Silent::default(),
            show: |label| Some(label.to_owned()),
            clients: (0..nodes).map(|node| placement.client(NodeId(node))).collect(),
            tickets: 0,
            told: 0,
        }
    }

    pub fn ask(&mut self, node: NodeId, request: impl Into<Request<Command>>) {
        self.tickets += 1;
        let client = self.clients[usize::from(node.0)];
        self.cluster.request(client, Ticket(self.tickets), request.into());
    }

    pub fn change(&mut self, change: Change) {
        self.ask(A, Request::Change(change));
    }

    /// Lets time pass and nothing be said about it.
    pub fn pass(&mut self, millis: u64) -> &mut Talk<F> {
        self.cluster.run_for(Span::from_millis(millis), &mut self.answers);
        self.told = self.cluster.flow().len();
        self
    }

    /// Lets time pass and compares what was said.
    pub fn hear(&mut self, millis: u64, expected: Expect) {
        self.cluster.run_for(Span::from_millis(millis), &mut self.answers);
        assert_eq!(self.cluster.broken(), None);
        let mut text = String::new();
        for line in &self.cluster.flow()[self.told..] {
            let at = line.at.as_millis();
            match &line.event {
                FlowEvent::Message { between: (from, to), label, held, ahead, .. } => {
                    let label = ["Order { epoch: 0, message: ", "Order { epoch: 1, message: "]
                        .iter()
                        .find_map(|wrap| label.strip_prefix(wrap))
                        .map_or(label.as_str(), |inner| inner.strip_suffix(" }").unwrap_or(inner));
                    if ["Heartbeat", "Heard", "Beat"].iter().any(|name| label.starts_with(name)) {
                        continue;
                    }
                    let Some(label) = (self.show)(label) else { continue };
                    let how = match (*ahead, *held > Span::ZERO) {
                        (true, _) => " (ahead)",
                        (_, true) => " (behind a record)",
                        _ => "",
                    };
                    text += &format!("{at} {} -> {}{how}: {}\n", name(from), name(to), brief(&label));
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

/// What is said only where nothing is speculative.
const NOTHING: [&str; 3] = [", synced: false", "under: None, ", "reign: Reign(0, 0), "];

/// Without what is the same everywhere.
fn brief(label: &str) -> String {
    let mut text = label.to_owned();
    for (long, short) in
        [("CommandId { client: ", ""), ("/k1/p0/role1/0", ""), (" }", ""), ("{ ", ""), ("n0", "A")]
            .into_iter()
            .chain(NOTHING.map(|nothing| (nothing, "")))
    {
        text = text.replace(long, short);
    }
    text.chars().take(100).collect()
}

/// Sets the one key.
pub fn set(text: &str) -> Command {
    Command::Set(key(1), text.to_owned())
}
