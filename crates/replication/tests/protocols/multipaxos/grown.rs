//! A group that was told that it has grown survives whom it now should: as many of those that it began with as may fail,
//! lost in that moment.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine};
use crate::talk::{Silent, set};
use isochrone_core::{NodeId, ProcessId, Span, Ticket};
use isochrone_replication::multipaxos::{Family, Form, Placement};
use isochrone_replication::{Change, Outcome, Request};
use isochrone_sim::{Config, Jitter, Simulation};

struct Group {
    cluster: Cluster<Family>,
    answers: Silent,
    clients: Vec<ProcessId>,
    tickets: u64,
    /// The last that was answered.
    told: String,
}

impl Group {
    fn new(seed: u64, first: u16, added: u16, form: Form) -> Group {
        let nodes = first + added;
        let delay = |from, to| if from == to { Span::ZERO } else { Span::from_millis(5) };
        let delays = (0..nodes).map(|from| (0..nodes).map(|to| delay(from, to)).collect()).collect();
        let names = ["A", "B", "C", "D", "E"];
        let mut config = Config::new(seed, &names[..usize::from(nodes)], delays);
        (config.sync, config.sessions) = (Span::from_millis(1), 0);
        config.jitter = Jitter::Exponential(Span::from_millis(5));
        let mut placement: Placement<Machine> = placement(nodes, first, added, Span::from_millis(20));
        for (_, near) in &mut placement.clients {
            near.extend((first..nodes).map(NodeId));
        }
        placement.parameters.form = form;
        let clients = (0..nodes).map(|node| placement.client(NodeId(node))).collect();
        let mut cluster = Simulation::new(config, &placement);
        cluster.boot();
        Group { cluster, answers: Silent::default(), clients, tickets: 0, told: String::new() }
    }

    /// Asks at a node, again where it was refused or nobody knows; whether it was done within a minute.
    fn done(&mut self, node: NodeId, request: &Request<Command>) -> bool {
        let end = self.cluster.now() + Span::from_secs(60);
        while self.cluster.now() < end {
            self.tickets += 1;
            let client = self.clients[usize::from(node.0)];
            self.cluster.request(client, Ticket(self.tickets), request.clone());
            while self.answers.0.is_empty() && self.cluster.now() < end {
                self.cluster.run_for(Span::from_millis(1), &mut self.answers);
            }
            let answer = self.answers.0.pop();
            self.told = format!("{answer:?} after {} at {:?}", self.tickets, self.cluster.now());
            match answer {
                Some(Outcome::Refused(_) | Outcome::Unknown) => {
                    self.cluster.run_for(Span::from_millis(100), &mut self.answers);
                }
                done => return done.is_some(),
            }
        }
        false
    }
}

/// From `first` replicas by two more, one after the other; then as many of the first are lost as may be. Where all lose
/// power, the others come back. What was answered last, where nothing is served any more.
fn lose_the_first(seed: u64, first: u16, form: Form, power: bool) -> Option<String> {
    let mut group = Group::new(seed, first, 2, form);
    for node in [first, first + 1].map(NodeId) {
        let change = Request::Change(Change::Add(node));
        assert!(group.done(NodeId(0), &change), "seed {seed}: {node:?} was not added: {}", group.told);
    }
    let lost = first.div_ceil(2);
    for node in (0..first + 2).filter(|node| power || *node < lost) {
        group.cluster.crash(NodeId(node));
    }
    for node in (lost..first + 2).filter(|_| power) {
        group.cluster.restart(NodeId(node));
    }
    let served = group.done(NodeId(lost), &Request::Command(set("still here")));
    assert_eq!(group.cluster.broken(), None, "seed {seed}");
    (!served).then_some(group.told)
}

#[test]
fn a_group_that_has_grown_survives_those_it_began_with() {
    for (first, form, power) in [
        (1, Form::Slots, false),
        (1, Form::Slots, true),
        (1, Form::Prefix, false),
        (1, Form::Prefix, true),
        (3, Form::Slots, false),
        (3, Form::Slots, true),
    ] {
        for seed in 0..60 {
            let stuck = lose_the_first(seed, first, form, power);
            assert_eq!(stuck, None, "seed {seed}, {first} at first, {form:?}, power lost: {power}");
        }
    }
}
