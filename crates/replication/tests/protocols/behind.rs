//! A replica that was away catches up under load, though its peers keep less than comes while their state travels, and
//! nobody waits for it.

use crate::cluster::{Cluster, placement};
use crate::machine::{Command, Machine, Reply, key};
use isochrone_core::{Fact, Instant, NodeId, ProcessId, Span, Ticket};
use isochrone_replication::multipaxos::Form;
use isochrone_replication::{
    Change, Family, Outcome, Placement, Replicated, Request, curp, domino, epaxos, fastpaxos, mencius,
    multipaxos, sdpaxos,
};
use isochrone_sim::{Config, Driver, Next, Session, Simulation};
use std::collections::BTreeMap;

/// Closed loops over many keys, so that the state has many chunks.
struct Load {
    until: Instant,
    asked: u64,
    /// What is to be changed, once.
    change: Option<Change>,
    changed: bool,
    installed: u64,
    applied: BTreeMap<ProcessId, u64>,
    /// The last answer, and the longest time without one.
    answered: Instant,
    pause: Span,
}

impl Load {
    fn new(length: Span) -> Load {
        let (until, answered) = (Instant::ZERO + length, Instant::ZERO);
        let (change, changed, pause) = (None, false, Span::ZERO);
        Load { until, asked: 0, change, changed, installed: 0, applied: BTreeMap::new(), answered, pause }
    }

    /// How many commands the last of the replicas is behind the first.
    fn lag(&self) -> u64 {
        let applied = || self.applied.values().copied();
        applied().max().zip(applied().min()).map_or(0, |(most, least)| most - least)
    }
}

impl<F: Family> Driver<Replicated<Machine, F>> for Load {
    fn next(&mut self, _: Session, now: Instant) -> Next<Request<Command>> {
        if let Some(change) = self.change.take() {
            return Next::Request { at: now, request: Request::Change(change) };
        }
        if now >= self.until {
            return Next::Done;
        }
        self.asked += 1;
        let command = Command::Set(key(self.asked as u8), "x".to_owned());
        Next::Request { at: now, request: Request::Command(command) }
    }

    fn completed(&mut self, _: Session, _: Ticket, outcome: Outcome<Reply>, now: Instant) {
        self.changed |= matches!(outcome, Outcome::Changed);
        if matches!(outcome, Outcome::Replied(_)) {
            self.pause = self.pause.max(now.since(self.answered));
            self.answered = now;
        }
    }

    fn fact(&mut self, process: ProcessId, fact: &Fact, _: Instant) {
        match fact {
            Fact::Counted("snapshots_installed") => self.installed += 1,
            Fact::Applied { position, .. } => {
                self.applied.insert(process, *position);
            }
            _ => {}
        }
    }
}

/// The third of three replicas is away for a second, then back for ten while clients at the others write. A state
/// of 256 chunks takes 33 round trips of 20 ms, and what is kept lasts for a few.
fn catches_up<F: Family>(tune: fn(&mut F::Parameters)) {
    catches_up_after::<F>(Span::from_secs(1), tune);
}

/// The same, where it is away for so long. How many commands it has missed.
fn catches_up_after<F: Family>(away: Span, tune: fn(&mut F::Parameters)) -> u64 {
    let way = |from: usize, to: usize| if from == to { Span::ZERO } else { Span::from_millis(10) };
    let delays = (0..3).map(|from| (0..3).map(|to| way(from, to)).collect()).collect();
    let mut config = Config::new(1, &["A", "B", "C"], delays);
    (config.sync, config.sessions) = (Span::from_millis(1), 10);
    config.nodes[2].sessions = Some(0);
    config.horizon = Span::from_secs(60);
    let mut placement: Placement<Machine, F> = placement(3, 3, 0, Span::from_millis(20));
    tune(&mut placement.parameters);
    let mut load = Load::new(Span::from_secs(12) + away);
    let mut cluster: Cluster<F> = Simulation::new(config, &placement);
    cluster.boot();
    cluster.run_for(Span::from_secs(2), &mut load);
    cluster.crash(NodeId(2));
    cluster.run_for(away, &mut load);
    let missed = load.lag();
    load.pause = Span::ZERO;
    cluster.restart(NodeId(2));
    cluster.run_for(Span::from_millis(9_900), &mut load);
    assert_eq!(cluster.broken(), None, "{}", F::NAME);
    assert!(load.asked > 2_000, "{}: no load, {} asked", F::NAME, load.asked);
    assert!((1..=2).contains(&load.installed), "{}: {} snapshots installed", F::NAME, load.installed);
    // The whole state takes 660 ms.
    assert!(load.pause < Span::from_millis(300), "{}: nothing was answered for {}", F::NAME, load.pause);
    assert!(load.applied.len() == 3 && load.lag() < 100, "{}: {:?}", F::NAME, load.applied);
    missed
}

#[test]
fn a_replica_of_multipaxos_catches_up_under_load() {
    catches_up::<multipaxos::Family>(|parameters| (parameters.keep_slots, parameters.window) = (8, 8));
}

#[test]
fn a_replica_of_multipaxos_by_prefix_catches_up_under_load() {
    catches_up::<multipaxos::Family>(|parameters| {
        (parameters.form, parameters.keep_slots) = (Form::Prefix, 8)
    });
}

#[test]
fn a_replica_of_mencius_catches_up_under_load() {
    catches_up::<mencius::Family>(|parameters| parameters.keep_slots = 8);
}

#[test]
fn a_replica_of_fastpaxos_catches_up_under_load() {
    catches_up::<fastpaxos::Family>(|parameters| parameters.keep_slots = 8);
}

/// Its votes are not for what is open then, and questions about them go unanswered, but it says that it lives.
#[test]
fn a_replica_of_fastpaxos_that_is_behind_its_window_catches_up_under_load() {
    let missed = catches_up_after::<fastpaxos::Family>(Span::from_secs(15), |parameters| {
        (parameters.keep_slots, parameters.window) = (8, 64);
    });
    // Of what collides an index holds one of each client's node; what is 1,152 indices away is beyond the replica.
    assert!(missed > 2 * 1_152, "{missed} missed");
}

#[test]
fn a_replica_of_epaxos_catches_up_under_load() {
    catches_up::<epaxos::Family>(|parameters| parameters.keep_instances = 8);
}

#[test]
fn a_replica_of_sdpaxos_catches_up_under_load() {
    catches_up::<sdpaxos::Family>(|parameters| parameters.keep_slots = 8);
}

#[test]
fn a_replica_of_domino_catches_up_under_load() {
    catches_up::<domino::Family>(|parameters| parameters.keep_commands = 8);
}

#[test]
fn a_replica_of_curp_consensus_catches_up_under_load() {
    catches_up::<curp::consensus::Family>(|parameters| parameters.log.keep_slots = 8);
}

#[test]
fn a_copy_of_curp_catches_up_under_load() {
    catches_up::<curp::primary::Family>(|parameters| (parameters.f, parameters.keep_slots) = (2, 8));
}

#[test]
fn a_copy_of_curp_that_is_a_witness_catches_up_under_load() {
    catches_up::<curp::primary::Family>(|parameters| {
        (parameters.f, parameters.keep_slots, parameters.unified) = (2, 8, true);
    });
}

/// How CURP loses a server.
enum Goes {
    /// The master.
    Retired,
    Dies(NodeId),
    /// For a second.
    Restarts(NodeId),
}

/// CURP loses a server, and a spare takes its place that has nothing and is 200 ms there and back from all others: a state of
/// 256 chunks takes it 33 times that. Nobody waits for it, and it comes all the same.
fn is_served_while_a_spare_joins(goes: Goes) -> Load {
    let way = |from: usize, to: usize| match (from, to) {
        (3, _) | (_, 3) if from != to => Span::from_millis(100),
        _ => Span::from_millis(if from == to { 0 } else { 10 }),
    };
    let delays = (0..4).map(|from| (0..4).map(|to| way(from, to)).collect()).collect();
    let mut config = Config::new(1, &["A", "B", "C", "D"], delays);
    (config.sync, config.sessions) = (Span::from_millis(1), 10);
    (config.nodes[0].sessions, config.nodes[3].sessions) = (Some(0), Some(0));
    config.horizon = Span::from_secs(60);
    let mut placement: Placement<Machine, curp::primary::Family> = placement(4, 3, 1, Span::from_millis(200));
    (placement.parameters.f, placement.parameters.keep_slots) = (2, 8);
    let mut load = Load::new(Span::from_secs(25));
    let mut cluster: Cluster<curp::primary::Family> = Simulation::new(config, &placement);
    cluster.boot();
    cluster.run_for(Span::from_secs(5), &mut load);
    load.pause = Span::ZERO;
    match goes {
        Goes::Retired => load.change = Some(Change::Remove(NodeId(0))),
        Goes::Dies(node) | Goes::Restarts(node) => cluster.crash(node),
    }
    cluster.run_for(Span::from_secs(1), &mut load);
    if let Goes::Restarts(node) = goes {
        cluster.restart(node);
    }
    cluster.run_for(Span::from_millis(18_900), &mut load);
    assert_eq!(cluster.broken(), None);
    if let Goes::Restarts(_) = goes {
        // Which of the two is a copy then is of no matter.
        return load;
    }
    let spare =
        load.applied.iter().find(|(process, _)| process.node == NodeId(3)).map(|(_, applied)| *applied);
    let most = load.applied.values().max().copied();
    assert!(spare.zip(most).is_some_and(|(spare, most)| most - spare < 200), "{:?}", load.applied);
    assert!((1..=2).contains(&load.installed), "{} snapshots installed", load.installed);
    load
}

#[test]
fn nobody_waits_for_a_spare_where_a_master_of_curp_dies() {
    let load = is_served_while_a_spare_joins(Goes::Dies(NodeId(0)));
    // It is given up, and perhaps the manager beside it first.
    assert!(load.pause < Span::from_secs(2), "nothing was answered for {}", load.pause);
}

#[test]
fn nobody_waits_for_a_spare_where_a_master_of_curp_is_retired() {
    let load = is_served_while_a_spare_joins(Goes::Retired);
    assert!(load.changed && load.pause < Span::from_millis(500), "nothing was answered for {}", load.pause);
}

/// The other copy is enough until the spare has everything, or until the one that was lost is back.
#[test]
fn nobody_waits_for_a_spare_where_a_copy_of_curp_dies() {
    for goes in [Goes::Dies(NodeId(1)), Goes::Restarts(NodeId(1))] {
        let load = is_served_while_a_spare_joins(goes);
        assert!(load.pause < Span::from_secs(2), "nothing was answered for {}", load.pause);
    }
}
