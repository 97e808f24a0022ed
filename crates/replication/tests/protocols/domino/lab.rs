//! A quiet cluster whose every delay is known, with scripted requests: replicas on the first nodes, and a client
//! on every node.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply};
use isochrone_core::{Fact, Instant, NodeId, Path, ProcessId, Span, Ticket};
use isochrone_replication::domino::{Family, Placement};
use isochrone_replication::{Outcome, Replicated, Request};
use isochrone_sim::{
    Action, Config, DelayHook, Driver, FaultKind, Jitter, Next, Planned, Session, Simulation,
};
use std::collections::BTreeMap;

/// A command that was finished: when, by which way, and how long it took.
#[derive(Copy, Clone, Debug)]
pub struct Done {
    pub at: Instant,
    pub path: Path,
    pub total: Span,
}

#[derive(Default)]
pub struct Listener {
    pub done: Vec<Done>,
    pub answers: Vec<Outcome<Reply>>,
    pub counted: BTreeMap<&'static str, u64>,
    /// Of each replica, the digests of all that it has executed, one after the other.
    pub states: BTreeMap<ProcessId, Vec<u64>>,
}

impl<F: isochrone_replication::Family> Driver<Replicated<Machine, F>> for Listener {
    fn next(&mut self, _: Session, _: Instant) -> Next<Request<Command>> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: Outcome<Reply>, _: Instant) {}
    fn answered(&mut self, _: ProcessId, _: Ticket, outcome: Outcome<Reply>, _: bool) {
        self.answers.push(outcome);
    }
    fn fact(&mut self, process: ProcessId, fact: &Fact, at: Instant) {
        match *fact {
            Fact::Applied { digest: Some(digest), .. } => {
                let states = self.states.entry(process).or_default();
                if states.last() != Some(&digest) {
                    states.push(digest);
                }
            }
            Fact::Committed { path, total, .. } => self.done.push(Done { at, path, total }),
            Fact::Counted(name) => *self.counted.entry(name).or_default() += 1,
            _ => {}
        }
    }
}

pub struct Lab {
    pub cluster: Cluster<Family>,
    pub heard: Listener,
    clients: Vec<ProcessId>,
    tickets: u64,
}

/// How a lab is made.
pub struct Plan {
    /// One-way delays, milliseconds, from node to node.
    pub delays: Vec<Vec<u64>>,
    pub replicas: u16,
    pub jitter: Jitter,
    /// Decides delays instead of the matrix.
    pub hook: Option<DelayHook>,
    /// Nodes whose lines have a bound, and bytes a second.
    pub slow: Vec<(usize, u64)>,
}

impl Plan {
    pub fn new(delays: Vec<Vec<u64>>, replicas: u16) -> Plan {
        Plan { delays, replicas, jitter: Jitter::None, hook: None, slow: Vec::new() }
    }

    /// All nodes are this far apart, one way; the clients of interest are on a node of their own, the last.
    pub fn even(replicas: u16, way: u64) -> Plan {
        let nodes = usize::from(replicas) + 1;
        Plan::new(vec![vec![way; nodes]; nodes], replicas)
    }

    pub fn rtt_max(&self) -> Span {
        Span::from_millis(self.delays.iter().flatten().max().copied().unwrap_or(1) * 2)
    }

    pub fn open(self, tune: impl FnOnce(&mut Placement<Machine>)) -> Lab {
        let nodes = self.delays.len() as u16;
        let mut placement = placement(nodes, self.replicas, 0, self.rtt_max());
        tune(&mut placement);
        let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ms = |row: &Vec<u64>| row.iter().map(|way| Span::from_millis(*way)).collect();
        let mut config = Config::new(1, &names, self.delays.iter().map(ms).collect());
        (config.sessions, config.jitter, config.delay_hook) = (0, self.jitter, self.hook);
        let slow = |(node, rate)| Planned {
            at: Span::ZERO,
            length: Span::from_secs(3_600),
            kind: FaultKind::Bandwidth,
            action: Action::Bandwidth { node, rate },
        };
        config.faults.faults = self.slow.into_iter().map(slow).collect();
        let mut cluster = Simulation::new(config, &placement);
        cluster.boot();
        let clients = (0..nodes).map(|node| placement.client(NodeId(node))).collect();
        Lab { cluster, heard: Listener::default(), clients, tickets: 0 }
    }
}

impl Lab {
    pub fn pass(&mut self, span: Span) {
        self.cluster.run_for(span, &mut self.heard);
        assert_eq!(self.cluster.broken(), None);
    }

    pub fn ask(&mut self, node: usize, command: Command) {
        self.tickets += 1;
        self.cluster.request(self.clients[node], Ticket(self.tickets), Request::Command(command));
    }

    /// Lets time pass in steps of a tenth of a millisecond until something more is finished.
    pub fn await_done(&mut self) -> Done {
        let before = self.heard.done.len();
        for _ in 0..100_000 {
            self.pass(Span::from_micros(100));
            if let Some(done) = self.heard.done.get(before) {
                return *done;
            }
        }
        panic!("nothing is finished within ten seconds");
    }

    /// Asks `count` times, `every` apart, and waits a second more; what was finished.
    pub fn series(&mut self, node: usize, count: usize, every: Span, command: &Command) -> Vec<Done> {
        let before = self.heard.done.len();
        for _ in 0..count {
            self.ask(node, command.clone());
            self.pass(every);
        }
        self.pass(Span::from_secs(1));
        self.heard.done[before..].to_vec()
    }
}

pub fn mean(done: &[Done]) -> Span {
    let sum: u64 = done.iter().map(|done| done.total.as_nanos()).sum();
    Span::from_nanos(sum / done.len() as u64)
}
