//! Three real nodes under load, while their leader, or where nobody leads one after the other, is killed,
//! paused and cut off again and again. What clients saw must be linearizable, and nothing that was
//! acknowledged may be missing.
//!
//! `ISOCHRONE_LIVE_SECONDS` says how long for each protocol; 12 and 8 where it says nothing. Longer where the machine is
//! so slow that too little has been done by then.

use super::cluster::Cluster;
use super::load::Load;
use super::processes::{PATIENCE, serves, until};
use super::proxy::Wire;
use super::transactions::ENOUGH;
use std::sync::atomic::Ordering;
use std::time::Duration;

const NODES: usize = 3;
/// Transactions between two faults.
const BETWEEN: usize = 10;

/// What is done to the leader.
#[derive(Copy, Clone, Debug)]
enum Fault {
    /// SIGKILL, and a restart once the others go on.
    Kill,
    /// SIGSTOP, and SIGCONT once the others go on: it still believes to lead.
    Pause,
    /// Its connections to the others break.
    Break,
    /// What it sends and is sent vanishes.
    Silence,
}

/// Hurts a node, waits until the others have chosen another where one leads and it serves, and heals.
fn strike(cluster: &mut Cluster, victim: usize, fault: Fault, led: bool) {
    match fault {
        Fault::Kill => cluster.kill(victim),
        Fault::Pause => cluster.processes[victim].signal("STOP"),
        Fault::Break => cluster.wires_of(victim, Wire::Broken),
        Fault::Silence => cluster.wires_of(victim, Wire::Silent),
    }
    let next = if led { cluster.leader(Some(victim)) } else { (victim + 1) % NODES };
    serves(cluster.addresses[next].redis);
    match fault {
        Fault::Kill => cluster.start_again(victim),
        Fault::Pause => cluster.processes[victim].signal("CONT"),
        Fault::Break | Fault::Silence => cluster.wires_of(victim, Wire::Whole),
    }
    serves(cluster.addresses[victim].redis);
}

#[test]
fn multipaxos_loses_no_acknowledged_write_whatever_happens_to_its_leader() {
    survive("multipaxos", true, 12);
}

#[test]
fn curp_consensus_loses_no_acknowledged_write_whatever_happens_to_its_leader() {
    survive("curp-consensus", true, 8);
}

#[test]
fn curp_loses_no_acknowledged_write_whatever_happens_to_its_master() {
    survive("curp", true, 8);
}

#[test]
fn curp_loses_no_acknowledged_write_where_its_servers_are_witnesses() {
    survive("curp unified", true, 8);
}

#[test]
fn mencius_loses_no_acknowledged_write_whatever_happens_to_its_owners() {
    survive("mencius", false, 8);
}

#[test]
fn fastpaxos_loses_no_acknowledged_write_whatever_happens_to_its_replicas() {
    survive("fastpaxos", false, 8);
}

#[test]
fn epaxos_loses_no_acknowledged_write_whatever_happens_to_its_replicas() {
    survive("epaxos", false, 8);
}

#[test]
fn sdpaxos_loses_no_acknowledged_write_whatever_happens_to_its_replicas() {
    survive("sdpaxos", false, 8);
}

#[test]
fn domino_loses_no_acknowledged_write_whatever_happens_to_its_replicas() {
    survive("domino", false, 8);
}

#[test]
fn carousel_fast_loses_no_acknowledged_write_whatever_happens_to_its_replicas() {
    survive("carousel-fast 3", false, 12);
}

#[test]
fn carousel_basic_loses_no_acknowledged_write_whatever_happens_to_its_leader() {
    survive("carousel-basic", true, 12);
}

#[test]
fn two_phase_commit_loses_no_acknowledged_write_whatever_happens_to_its_replicas() {
    survive("2pc 3", false, 12);
}

fn survive(protocol: &str, led: bool, seconds: u64) {
    let given = std::env::var("ISOCHRONE_LIVE_SECONDS").ok();
    let seconds = given.map_or(seconds, |text| text.parse().expect("ISOCHRONE_LIVE_SECONDS is a number"));
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path(), protocol, NODES);
    serves(cluster.addresses[0].redis);

    let load = Load::start(&cluster, protocol, 0, Duration::from_secs(3));
    let (mut struck, mut seen) = (0, 0);
    for fault in [Fault::Kill, Fault::Break, Fault::Pause, Fault::Kill, Fault::Silence].into_iter().cycle() {
        let loaded = load.ran.load(Ordering::SeqCst) > 1;
        let enough = struck >= 2 && loaded && load.committed.load(Ordering::SeqCst) >= ENOUGH;
        if load.elapsed() >= Duration::from_secs(seconds) && (enough || load.elapsed() >= PATIENCE) {
            break;
        }
        // One fault upon another shows little: there is to be something that it may take away.
        until("transactions between two faults", || {
            (load.committed.load(Ordering::SeqCst) >= seen + BETWEEN).then_some(())
        });
        println!("{:?}: {fault:?}", load.elapsed());
        // Where nobody leads, each in turn.
        let victim = if led { cluster.leader(None) } else { struck % NODES };
        strike(&mut cluster, victim, fault, led);
        seen = load.committed.load(Ordering::SeqCst);
        struck += 1;
    }
    println!("{struck} faults in {:?}", load.elapsed());
    assert!(struck >= 2, "a fault may not take {PATIENCE:?}");
    assert!(load.ran.load(Ordering::SeqCst) > 1, "the load hardly ran");
    let committed = load.committed.load(Ordering::SeqCst);
    assert!(committed >= ENOUGH, "{committed} transactions committed, which shows nothing");
    load.finish(&cluster);
}
