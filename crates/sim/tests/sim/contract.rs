//! The contract suite over the simulator.

use isochrone_core::contract::{self, Act, Contract, ContractHost, Log, Note};
use isochrone_core::{Assemble, Fact, Instant, NodeId, Process, ProcessId, Span, Ticket};
use isochrone_sim::{Config, Driver, Next, Session, Simulation};

struct Host {
    simulation: Simulation<Contract>,
    log: Logger,
    placed: Vec<ProcessId>,
}

#[derive(Default)]
struct Logger(Log);

impl Driver<Contract> for Logger {
    fn next(&mut self, _: Session, _: Instant) -> Next<Vec<Act>> {
        Next::Done
    }
    fn completed(&mut self, _: Session, _: Ticket, _: u32, _: Instant) {}
    fn answered(&mut self, process: ProcessId, ticket: Ticket, outcome: u32, last: bool) {
        self.0.answered(process, ticket, outcome, last);
    }
    fn fact(&mut self, process: ProcessId, fact: &Fact, _: Instant) {
        self.0.marked(process, fact);
    }
}

fn cluster(nodes: u16) -> Simulation<Contract> {
    let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let delays = vec![vec![Span::from_millis(5); names.len()]; names.len()];
    let mut config = Config::new(1, &names, delays);
    config.sync = Span::from_millis(1);
    config.sessions = 0;
    Simulation::new(config, &())
}

impl ContractHost for Host {
    fn reset(&mut self, nodes: u16, log: &Log) {
        self.simulation = cluster(nodes);
        self.simulation.boot();
        self.log = Logger(log.clone());
        self.placed.clear();
    }

    fn start<P>(&mut self, id: ProcessId, setup: P::Setup)
    where
        P: Process<Message = Note, Request = Vec<Act>, Outcome = u32>,
    {
        if !self.placed.contains(&id) {
            self.placed.push(id);
            self.simulation.client::<P>(id, setup);
        }
        self.simulation.start(id);
    }

    fn stop(&mut self, id: ProcessId) {
        self.simulation.stop(id);
    }
    fn request(&mut self, id: ProcessId, ticket: Ticket, script: Vec<Act>) {
        self.simulation.request(id, ticket, script);
    }
    fn cancel(&mut self, id: ProcessId, ticket: Ticket) {
        self.simulation.cancel(id, ticket);
    }
    fn freeze_disk(&mut self, node: NodeId) {
        self.simulation.freeze_disk(node);
    }
    fn thaw_disk(&mut self, node: NodeId) {
        self.simulation.thaw_disk(node);
    }
    fn crash(&mut self, node: NodeId) {
        self.simulation.crash(node);
    }
    fn restart(&mut self, node: NodeId) {
        self.simulation.restart(node);
    }
    fn snapshot(&mut self, id: ProcessId) {
        self.simulation.snapshot(id);
        self.simulation.quiesce(&mut self.log);
    }
    fn connect(&mut self, a: NodeId, b: NodeId, connected: bool) {
        self.simulation.connect(a, b, connected);
    }
    fn step_wall_clock(&mut self, node: NodeId, nanos: i64) {
        self.simulation.step_wall_clock(node, nanos);
    }
    fn quiesce(&mut self) {
        self.simulation.quiesce(&mut self.log);
    }
    fn run_for(&mut self, span: Span) {
        self.simulation.run_for(span, &mut self.log);
        self.simulation.quiesce(&mut self.log);
    }
}

#[test]
fn the_simulator_keeps_the_contract() {
    let mut host = Host { simulation: cluster(1), log: Logger::default(), placed: Vec::new() };
    contract::run_all(&mut host);
}
