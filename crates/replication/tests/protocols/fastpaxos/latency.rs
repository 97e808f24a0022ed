//! Without load a command takes the round trip to a fast quorum, or with too few replicas the way through the
//! coordinator.

use crate::cluster::{Cluster, placement};
use crate::driver::Loops;
use crate::latency::{Measured, groups, matrices};
use crate::machine::Machine;
use isochrone_core::{Matrix, NodeId, Path, RegionId, Span};
use isochrone_plan::{Client, Group, fastpaxos};
use isochrone_replication::fastpaxos::{Family, Learners, Placement};
use isochrone_replication::service::Reply;
use isochrone_sim::{Config, Jitter, Simulation};

/// Replies at commit, to clients that learn by themselves.
fn measured(matrix: &Matrix, replicas: &[RegionId]) -> Measured<Family> {
    let mut measured = Measured::<Family>::new(matrix, replicas);
    measured.tune = |placement| {
        placement.service.reply = Reply::Commit;
        placement.parameters.cast = true;
        placement.parameters.learners = Learners::Sole;
    };
    measured
}

#[test]
fn every_region_waits_for_a_fast_quorum_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let form = |at| fastpaxos::commit(&matrix, Client::At(at), replicas[0], &replicas);
            measured(&matrix, &replicas).equals(form);
        }
    }
}

#[test]
fn with_the_dead_every_region_waits_what_the_closed_form_says() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            let last = replicas.len() - 1;
            let mut dead = vec![vec![last], vec![0]];
            if replicas.len() > 3 {
                dead.extend([vec![last - 1, last], vec![0, last]]);
            }
            for dead in dead {
                let group = Group::from(&replicas).without(&dead);
                // The next in line coordinates.
                let coordinator = replicas[usize::from(dead[0] == 0)];
                let form = |at| fastpaxos::commit(&matrix, Client::At(at), coordinator, group);
                let mut measured = measured(&matrix, &replicas);
                measured.dead = dead.iter().map(|seat| NodeId(replicas[*seat].0)).collect();
                measured.equals(form);
            }
        }
    }
}

/// Replies at execution.
fn executed(matrix: &Matrix, replicas: &[RegionId], learners: Learners) -> Measured<Family> {
    let mut measured = Measured::<Family>::new(matrix, replicas);
    measured.tune = match learners {
        Learners::Sole => |placement| placement.parameters.learners = Learners::Sole,
        Learners::All => |placement| placement.parameters.learners = Learners::All,
    };
    measured
}

#[test]
fn the_first_replica_that_learns_and_executes_answers_on_every_matrix() {
    for (_, matrix) in matrices() {
        for replicas in groups(&matrix) {
            for learners in [Learners::Sole, Learners::All] {
                let all = learners == Learners::All;
                let form = |at| fastpaxos::execute(&matrix, Client::At(at), replicas[0], &replicas, all);
                executed(&matrix, &replicas, learners).equals(form);
                let last = [replicas.len() - 1];
                let group = Group::from(&replicas).without(&last);
                let form = |at| fastpaxos::execute(&matrix, Client::At(at), replicas[0], group, all);
                let mut measured = executed(&matrix, &replicas, learners);
                measured.dead = vec![NodeId(replicas[last[0]].0)];
                measured.equals(form);
            }
        }
    }
}

#[test]
fn the_fast_path_is_the_one_taken() {
    let (_, matrix) = matrices().into_iter().next().unwrap();
    let replicas = groups(&matrix).into_iter().next().unwrap();
    let (_, paths) = measured(&matrix, &replicas).waits();
    assert_eq!(paths.into_iter().collect::<Vec<_>>(), [Path::Fast]);
}

/// Where much collides, the coordinator keeps an index free for what has lost, and it lies ahead of where others vote: that these
/// cast none before it either is told along, or nothing behind that is executed until their votes are late, which takes 20 ms and
/// the next heartbeat.
#[test]
fn what_collides_waits_for_no_votes_that_will_not_come() {
    let way = Span::from_micros(100);
    let delays = (0..3).map(|from| (0..3).map(|to| if from == to { Span::ZERO } else { way }).collect());
    let mut config = Config::new(1, &["A", "B", "C"], delays.collect());
    (config.sync, config.jitter, config.sessions) = (way * 2, Jitter::Uniform(way), 20);
    let placement: Placement<Machine> = placement(3, 3, 0, way * 2);
    let mut loops = Loops::new(1, 80);
    (loops.think, loops.reads) = (Span::ZERO, 0);
    let mut cluster: Cluster<Family> = Simulation::new(config, &placement);
    let report = cluster.run(&mut loops);
    assert_eq!(report.violations, []);
    assert!(loops.counted["indices_sealed"] > 10, "{:?}", loops.counted);
    let waited = loops.latencies.iter().map(|(_, waited)| waited.as_nanos()).sum::<u64>();
    let mean = Span::from_nanos(waited / loops.latencies.len() as u64);
    assert!(loops.latencies.len() == 80 * 60 && mean < Span::from_millis(3), "{mean}");
}
