//! Three real nodes under load, while their leader, or where nobody leads one after the other, is killed,
//! paused and cut off again and again. What clients saw must be linearizable, and nothing that was
//! acknowledged may be missing.
//!
//! `ISOCHRONE_LIVE_SECONDS` says how long for each protocol; 12 and 8 where it says nothing. Longer where the machine is
//! so slow that too little has been done by then.

use super::processes::{
    Addresses, PATIENCE, Process, client, deployment_of, isochrone, leader, node, nodes, outcome, page,
    serves, until,
};
use super::proxy::{Proxy, Wire, between, seen};
use super::resp::{Client, Reply};
use super::transactions::{ENOUGH, assert_strictly_serializable, transact};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

struct Cluster {
    folder: PathBuf,
    /// Whether one node leads, and is the one to hurt.
    led: bool,
    struck: usize,
    addresses: Vec<Addresses>,
    /// The wire by which a node dials another.
    wires: Vec<Vec<Option<Proxy>>>,
    files: Vec<PathBuf>,
    processes: Vec<Process>,
}

impl Cluster {
    fn start(folder: &Path, protocol: &str, led: bool) -> Cluster {
        let addresses = nodes(NODES);
        let wires = between(&addresses, Proxy::to);
        let files: Vec<_> = (0..NODES)
            .map(|me| {
                let seen = seen(&addresses, &wires[me]);
                deployment_of(folder, &format!("n{me}.toml"), "live", &seen, protocol)
            })
            .collect();
        let processes = (0..NODES).map(|index| node(&files[index], index, folder)).collect();
        let folder = folder.to_owned();
        Cluster { folder, led, struck: 0, addresses, wires, files, processes }
    }

    /// The node that the others, or all where none is left out, agree leads; where nobody does, each in turn.
    fn leader(&self, without: Option<usize>) -> usize {
        if !self.led {
            return without.map_or(self.struck % NODES, |victim| (victim + 1) % NODES);
        }
        until("a leader", || {
            let mut found = BTreeSet::new();
            for index in (0..NODES).filter(|index| Some(*index) != without) {
                found.insert(leader(self.addresses[index].http)?);
            }
            let name = found.pop_first().filter(|_| found.is_empty())?;
            let index = name.strip_prefix('n')?.parse().ok()?;
            (Some(index) != without).then_some(index)
        })
    }

    fn wire(&self, node: usize, wire: Wire) {
        for other in (0..NODES).filter(|other| *other != node) {
            for one in [&self.wires[node][other], &self.wires[other][node]].into_iter().flatten() {
                one.set(wire);
            }
        }
    }

    /// Hurts the leader, waits until the others have chosen another and it serves, and heals.
    fn strike(&mut self, fault: Fault) {
        let victim = self.leader(None);
        self.struck += 1;
        match fault {
            Fault::Kill => self.processes[victim].signal("KILL"),
            Fault::Pause => self.processes[victim].signal("STOP"),
            Fault::Break => self.wire(victim, Wire::Broken),
            Fault::Silence => self.wire(victim, Wire::Silent),
        }
        let next = self.leader(Some(victim));
        serves(self.addresses[next].redis);
        match fault {
            Fault::Kill => {
                assert_eq!(self.processes[victim].end(), None, "a signal has ended it");
                self.processes[victim] = node(&self.files[victim], victim, &self.folder);
            }
            Fault::Pause => self.processes[victim].signal("CONT"),
            Fault::Break | Fault::Silence => self.wire(victim, Wire::Whole),
        }
        serves(self.addresses[victim].redis);
    }
}

impl Drop for Cluster {
    /// Of a test that fails, what its nodes say: their folder goes with it.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (index, process) in self.processes.iter_mut().enumerate() {
            let log = std::fs::read_to_string(self.folder.join(format!("n{index}.log"))).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            let page = page(self.addresses[index].http, "/metrics");
            let metrics = page.as_deref().unwrap_or("does not answer").lines();
            let dull =
                |line: &&str| line.starts_with('#') || line.contains("_bucket{") || line.contains("_limit{");
            let metrics: Vec<_> = metrics.filter(|line| !dull(line)).collect();
            let state = process.state();
            println!("n{index} ({state}):\n{}\n{}", last.join("\n"), metrics.join("\n"));
        }
    }
}

/// What one writer was told.
#[derive(Default)]
struct Told {
    acknowledged: Vec<String>,
    unknown: BTreeSet<String>,
    increments: u64,
    increments_unknown: u64,
}

/// Increments a counter and appends values of its own to a list, through one node, until it is told to stop.
fn writer(number: usize, address: SocketAddr, stop: Arc<AtomicBool>) -> JoinHandle<Told> {
    std::thread::spawn(move || {
        let mut told = Told::default();
        let mut connection = None;
        let mut sequence = 0;
        while !stop.load(Ordering::SeqCst) {
            if connection.is_none() {
                connection = Client::reconnect(address);
            }
            let Some(client) = &mut connection else { continue };
            sequence += 1;
            let value = format!("{number}:{sequence}");
            match client.ask(&["RPUSH", "list", &value]) {
                Ok(Reply::Number(_)) => told.acknowledged.push(value),
                // An error says that it was not done, unless it says that nobody knows.
                Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => {}
                Ok(Reply::Error(_)) => drop(told.unknown.insert(value)),
                other => {
                    told.unknown.insert(value);
                    assert!(other.is_err(), "{other:?}");
                    connection = None;
                    continue;
                }
            }
            match client.ask(&["INCR", "count"]) {
                Ok(Reply::Number(_)) => told.increments += 1,
                Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => {}
                Ok(Reply::Error(_)) => told.increments_unknown += 1,
                other => {
                    told.increments_unknown += 1;
                    assert!(other.is_err(), "{other:?}");
                    connection = None;
                }
            }
        }
        told
    })
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
    let mut cluster = Cluster::start(folder.path(), protocol, led);
    serves(cluster.addresses[0].redis);

    let all = deployment_of(folder.path(), "all.toml", "live", &cluster.addresses, protocol);
    let stop = Arc::new(AtomicBool::new(false));
    let ran = Arc::new(AtomicUsize::new(0));
    let load = load(all, folder.path().to_owned(), Arc::clone(&stop), Arc::clone(&ran));
    let writers: Vec<_> =
        (0..NODES).map(|number| writer(number, cluster.addresses[number].redis, Arc::clone(&stop))).collect();

    // Where there are partitions, transactions are over several.
    let spread = protocol.contains(' ') && !protocol.starts_with("curp");
    let (start, committed) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let transactions: Vec<_> = (0..NODES)
        .map(|number| {
            let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
            transact(number as u64, cluster.addresses[number].redis, spread, start, stop, committed)
        })
        .collect();
    let (mut struck, mut seen) = (0, 0);
    for fault in [Fault::Kill, Fault::Break, Fault::Pause, Fault::Kill, Fault::Silence].into_iter().cycle() {
        let loaded = ran.load(Ordering::SeqCst) > 1;
        let enough = struck >= 2 && loaded && committed.load(Ordering::SeqCst) >= ENOUGH;
        if start.elapsed() >= Duration::from_secs(seconds) && (enough || start.elapsed() >= PATIENCE) {
            break;
        }
        // One fault upon another shows little: there is to be something that it may take away.
        until("transactions between two faults", || {
            (committed.load(Ordering::SeqCst) >= seen + BETWEEN).then_some(())
        });
        println!("{:?}: {fault:?}", start.elapsed());
        cluster.strike(fault);
        seen = committed.load(Ordering::SeqCst);
        struck += 1;
    }
    println!("{struck} faults in {:?}", start.elapsed());
    assert!(struck >= 2, "a fault may not take {PATIENCE:?}");

    stop.store(true, Ordering::SeqCst);
    let histories = load.join().expect("the load was generated");
    assert!(histories.len() > 1, "the load hardly ran");
    let told: Vec<_> =
        writers.into_iter().map(|writer| writer.join().expect("no reply was nonsense")).collect();

    assert_strictly_serializable(
        transactions.into_iter().map(|worker| worker.join().expect("no reply was nonsense")).collect(),
    );

    // Every node, the last victim too, has everything.
    for index in 0..NODES {
        let mut client = client(cluster.addresses[index].redis);
        let list = until("the list", || match client.ask(&["LRANGE", "list", "0", "-1"]) {
            Ok(Reply::List(items)) => Some(items),
            _ => None,
        });
        let found: Vec<_> = list
            .into_iter()
            .map(|item| match item {
                Reply::Text(text) => text,
                other => panic!("in the list: {other:?}"),
            })
            .collect();
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len(), "a value was appended twice");
        for told in &told {
            let lost: Vec<_> = told.acknowledged.iter().filter(|value| !distinct.contains(value)).collect();
            assert!(lost.is_empty(), "n{index} has lost acknowledged values: {lost:?}");
        }
        let known: BTreeSet<_> =
            told.iter().flat_map(|told| told.acknowledged.iter().chain(&told.unknown)).collect();
        let strangers: Vec<_> = found.iter().filter(|value| !known.contains(value)).collect();
        assert!(strangers.is_empty(), "refused, but appended: {strangers:?}");
        let count = until("the count", || match client.ask(&["GET", "count"]) {
            Ok(Reply::Text(text)) => text.parse::<u64>().ok(),
            _ => None,
        });
        let least: u64 = told.iter().map(|told| told.increments).sum();
        let most = least + told.iter().map(|told| told.increments_unknown).sum::<u64>();
        assert!((least..=most).contains(&count), "{count} increments, but {least} to {most} were asked for");
        println!("n{index}: {} values, {count} increments ({least} to {most})", found.len());
    }

    for history in histories {
        let limit = format!("{}s", PATIENCE.as_secs());
        let (status, out, err) = outcome(["check", history.to_str().unwrap(), "--limit", &limit]);
        println!("{out}");
        assert_eq!(status, 0, "{out}{err}\n{}", keep(&history));
    }
}

/// `isochrone bench` again and again, each run with a history of its own: a checker decides several short ones where
/// it would give up on a long one with many unknown outcomes.
/// `ran` says how many there are.
fn load(
    file: PathBuf,
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    ran: Arc<AtomicUsize>,
) -> JoinHandle<Vec<PathBuf>> {
    std::thread::spawn(move || {
        let mut histories = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let history = folder.join(format!("history-{}.jsonl", histories.len()));
            let mut command = isochrone(["bench", "--workload", "check", "--reconnect", "--format", "json"]);
            command.args(["--clients", "6", "--duration", "3s"]).arg(&file).arg("--history").arg(&history);
            command.stderr(Stdio::null());
            let mut process = Process::start(command);
            // A node that is down just then refuses the first connection; that is tried again.
            let Some(report) = process.line() else { continue };
            let report: Value = serde_json::from_str(&report).expect("JSON");
            // Refused commands make its status 1; what counts is the history.
            process.end();
            println!("the load saw {} operations, {} unknown", report["operations"], report["unknown"]);
            // A fault may take as long as the run.
            if report["operations"].as_u64().expect("a number") > 0 {
                histories.push(history);
                ran.store(histories.len(), Ordering::SeqCst);
            }
        }
        histories
    })
}

/// A history that does not hold is worth more than the test's folder.
fn keep(history: &Path) -> String {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("violated.jsonl");
    match std::fs::copy(history, &kept) {
        Ok(_) => format!("the history is kept: isochrone check {}", kept.display()),
        Err(error) => format!("the history cannot be kept: {error}"),
    }
}
