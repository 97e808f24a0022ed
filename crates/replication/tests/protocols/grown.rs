//! A group that was told that it has grown survives whom it now should: as many of those that it began with as may fail,
//! lost in that moment.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply};
use crate::talk::{Silent, set};
use isochrone_core::{NodeId, ProcessId, Span, Ticket};
use isochrone_replication::multipaxos::Form;
use isochrone_replication::{
    Change, Family, Outcome, Placement, Refusal, Request, curp, domino, epaxos, fastpaxos, mencius,
    multipaxos, sdpaxos,
};
use isochrone_sim::{Config, Jitter, Simulation};

struct Group<F: Family> {
    cluster: Cluster<F>,
    answers: Silent,
    clients: Vec<ProcessId>,
    tickets: u64,
    /// The last that was answered.
    told: String,
}

impl<F: Family> Group<F> {
    fn new(seed: u64, first: u16, added: u16, tune: fn(&mut F::Parameters)) -> Group<F> {
        let nodes = first + added;
        let delay = |from, to| if from == to { Span::ZERO } else { Span::from_millis(5) };
        let delays = (0..nodes).map(|from| (0..nodes).map(|to| delay(from, to)).collect()).collect();
        let names = ["A", "B", "C", "D", "E"];
        let mut config = Config::new(seed, &names[..usize::from(nodes)], delays);
        (config.sync, config.sessions) = (Span::from_millis(1), 0);
        config.jitter = Jitter::Exponential(Span::from_millis(5));
        let mut placement: Placement<Machine, F> = placement(nodes, first, added, Span::from_millis(20));
        for (_, near) in &mut placement.clients {
            near.extend((first..nodes).map(NodeId));
        }
        tune(&mut placement.parameters);
        let clients = (0..nodes).map(|node| placement.client(NodeId(node))).collect();
        let mut cluster = Simulation::new(config, &placement);
        cluster.boot();
        Group { cluster, answers: Silent::default(), clients, tickets: 0, told: String::new() }
    }

    /// Asks at a node, once; the answer, if it comes within a minute.
    fn once(&mut self, node: NodeId, request: &Request<Command>) -> Option<Outcome<Reply>> {
        let end = self.cluster.now() + Span::from_secs(60);
        self.tickets += 1;
        let client = self.clients[usize::from(node.0)];
        self.cluster.request(client, Ticket(self.tickets), request.clone());
        while self.answers.0.is_empty() && self.cluster.now() < end {
            self.cluster.run_for(Span::from_millis(1), &mut self.answers);
        }
        let answer = self.answers.0.pop();
        self.told = format!("{answer:?} after {} at {:?}", self.tickets, self.cluster.now());
        answer
    }

    /// Asks at a node, again where it was refused or nobody knows; whether it was done within a minute.
    fn done(&mut self, node: NodeId, request: &Request<Command>) -> bool {
        let end = self.cluster.now() + Span::from_secs(60);
        while self.cluster.now() < end {
            match self.once(node, request) {
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
fn lose_the_first<F: Family>(
    seed: u64,
    first: u16,
    power: bool,
    tune: fn(&mut F::Parameters),
) -> Option<String> {
    let mut group = Group::<F>::new(seed, first, 2, tune);
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

/// One comes to three replicas and the first of them, which leads where one does, leaves and lives on: those who asked it
/// last are served all the same, and soon.
fn serves_without_the_first<F: Family>(tune: fn(&mut F::Parameters)) {
    for seed in 0..40 {
        let mut group = Group::<F>::new(seed, 3, 1, tune);
        assert!(group.done(NodeId(2), &Request::Command(set("before"))), "seed {seed}: {}", group.told);
        for change in [Change::Add(NodeId(3)), Change::Remove(NodeId(0))] {
            assert!(
                group.done(NodeId(1), &Request::Change(change)),
                "seed {seed}: {change:?} {}",
                group.told
            );
        }
        for node in (0..4).rev() {
            let asked = group.cluster.now();
            assert!(group.done(NodeId(node), &Request::Command(set("after"))), "seed {seed}: {}", group.told);
            let waited = group.cluster.now().since(asked);
            assert!(waited < Span::from_secs(5), "seed {seed}: the client at {node} waited {waited}");
        }
        assert_eq!(group.cluster.broken(), None, "seed {seed}");
    }
}

/// Of three replicas one is lost: another, which lives, is not removed, and the lost one is. The first one, who is asked, leads or,
/// after a while without it, no longer does.
fn keeps_enough_of_three<F: Family>(leads: &[bool]) {
    for (seed, &led) in (0..10).flat_map(|seed| leads.iter().map(move |led| (seed, led))) {
        let mut group = Group::<F>::new(seed, 3, 0, |_| {});
        assert!(
            group.done(NodeId(0), &Request::Command(set("before"))),
            "{} {seed} {led}: {}",
            F::NAME,
            group.told
        );
        if !led {
            group.cluster.crash(NodeId(0));
            group.cluster.run_for(Span::from_secs(5), &mut group.answers);
            group.cluster.restart(NodeId(0));
            group.cluster.run_for(Span::from_secs(5), &mut group.answers);
        }
        group.cluster.crash(NodeId(2));
        group.cluster.run_for(Span::from_secs(5), &mut group.answers);
        let remove = |node| Request::Change(Change::Remove(NodeId(node)));
        // Whoever is asked may have to look for who leads first.
        let refused = (0..20).any(|_| {
            let told = group.once(NodeId(0), &remove(1));
            assert_ne!(told, Some(Outcome::Changed), "{} {seed} {led}", F::NAME);
            told == Some(Outcome::Refused(Refusal::TooFew))
        });
        assert!(refused, "{} {seed} {led}: {}", F::NAME, group.told);
        for request in [remove(2), Request::Command(set("after"))] {
            assert!(group.done(NodeId(0), &request), "{} {seed} {led}: {}", F::NAME, group.told);
        }
        assert_eq!(group.cluster.broken(), None, "{} {seed} {led}", F::NAME);
    }
}

/// Of three replicas the first, which leads, is dead, and another has taken its place; who leads when one more comes goes on to lead,
/// and nobody waits until the dead one is found dead once more. (With Domino, whoever leads, all wait for that: it has a lane.)
fn goes_on_under_who_leads<F: Family>() {
    for seed in 0..20 {
        let mut group = Group::<F>::new(seed, 3, 1, |_| {});
        let set_at = |group: &mut Group<F>, text| {
            let asked = group.cluster.now();
            assert!(
                group.done(NodeId(2), &Request::Command(set(text))),
                "{} {seed}: {}",
                F::NAME,
                group.told
            );
            group.cluster.now().since(asked)
        };
        set_at(&mut group, "before");
        group.cluster.crash(NodeId(0));
        set_at(&mut group, "without the first");
        group.cluster.run_for(Span::from_secs(5), &mut group.answers);
        let change = Request::Change(Change::Add(NodeId(3)));
        assert!(group.done(NodeId(1), &change), "{} {seed}: {}", F::NAME, group.told);
        let waited = set_at(&mut group, "with another");
        assert!(waited < Span::from_millis(150), "{} {seed}: {waited}", F::NAME);
        assert_eq!(group.cluster.broken(), None, "{} {seed}", F::NAME);
    }
}

#[test]
fn members_that_change_do_not_bring_a_dead_leader_back() {
    goes_on_under_who_leads::<fastpaxos::Family>();
    goes_on_under_who_leads::<sdpaxos::Family>();
}

#[test]
fn a_replica_that_lives_is_not_removed_where_the_others_would_be_too_few() {
    keeps_enough_of_three::<multipaxos::Family>(&[true, false]);
    keeps_enough_of_three::<mencius::Family>(&[true, false]);
    // There only who coordinates hears of the others.
    keeps_enough_of_three::<fastpaxos::Family>(&[true]);
    keeps_enough_of_three::<epaxos::Family>(&[true, false]);
    keeps_enough_of_three::<sdpaxos::Family>(&[true, false]);
    keeps_enough_of_three::<domino::Family>(&[true, false]);
    keeps_enough_of_three::<curp::consensus::Family>(&[true, false]);
}

#[test]
fn who_asked_a_replica_that_is_gone_is_served_by_the_others() {
    serves_without_the_first::<multipaxos::Family>(|parameters| parameters.form = Form::Slots);
    serves_without_the_first::<multipaxos::Family>(|parameters| parameters.form = Form::Prefix);
    serves_without_the_first::<mencius::Family>(|_| {});
    serves_without_the_first::<fastpaxos::Family>(|_| {});
    serves_without_the_first::<epaxos::Family>(|_| {});
    serves_without_the_first::<sdpaxos::Family>(|_| {});
    serves_without_the_first::<domino::Family>(|_| {});
    serves_without_the_first::<curp::consensus::Family>(|_| {});
}

fn survives<F: Family>(tune: fn(&mut F::Parameters)) {
    for (first, power) in [(1, false), (1, true), (3, false), (3, true)] {
        for seed in 0..60 {
            let stuck = lose_the_first::<F>(seed, first, power, tune);
            assert_eq!(stuck, None, "seed {seed}, {first} at first, power lost: {power}");
        }
    }
}

#[test]
fn a_group_of_multipaxos_that_has_grown_survives_those_it_began_with() {
    survives::<multipaxos::Family>(|parameters| parameters.form = Form::Slots);
}

#[test]
fn a_group_of_multipaxos_by_prefix_that_has_grown_survives_those_it_began_with() {
    survives::<multipaxos::Family>(|parameters| parameters.form = Form::Prefix);
}

#[test]
fn a_group_of_mencius_that_has_grown_survives_those_it_began_with() {
    survives::<mencius::Family>(|_| {});
}

#[test]
fn a_group_of_fastpaxos_that_has_grown_survives_those_it_began_with() {
    survives::<fastpaxos::Family>(|_| {});
}

#[test]
fn a_group_of_epaxos_that_has_grown_survives_those_it_began_with() {
    survives::<epaxos::Family>(|_| {});
}

#[test]
fn a_group_of_sdpaxos_that_has_grown_survives_those_it_began_with() {
    survives::<sdpaxos::Family>(|_| {});
}

#[test]
fn a_group_of_domino_that_has_grown_survives_those_it_began_with() {
    survives::<domino::Family>(|_| {});
}

#[test]
fn a_group_of_curp_consensus_that_has_grown_survives_those_it_began_with() {
    survives::<curp::consensus::Family>(|_| {});
}
