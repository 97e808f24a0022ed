//! What clients of all nodes do while something is done to these, and whether what they were told holds: the histories of
//! single commands are linearizable, those of transactions strictly serializable, and nothing that was acknowledged is missing.

use super::cluster::Cluster;
use super::processes::{PATIENCE, Process, client, isochrone, outcome, until};
use super::resp::{Client, Reply};
use super::transactions::{assert_strictly_serializable, transact};
use isochrone_check::transactions::Transaction;
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What one writer was told.
#[derive(Default)]
struct Told {
    acknowledged: Vec<String>,
    unknown: BTreeSet<String>,
    increments: u64,
    increments_unknown: u64,
}

/// Increments a counter and appends values of its own to a list, through one node, until it is told to stop.
fn writer(number: usize, address: SocketAddr, lap: usize, stop: Arc<AtomicBool>) -> JoinHandle<Told> {
    std::thread::spawn(move || {
        let (list, count) = (format!("list{lap}"), format!("count{lap}"));
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
            match client.ask(&["RPUSH", &list, &value]) {
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
            match client.ask(&["INCR", &count]) {
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

/// Clients of all nodes, until they are told to stop.
pub struct Load {
    start: Instant,
    stop: Arc<AtomicBool>,
    /// Stands behind the names of what writers count and append to.
    lap: usize,
    /// Runs of `isochrone bench` that have ended.
    pub ran: Arc<AtomicUsize>,
    /// Transactions that have committed.
    pub committed: Arc<AtomicUsize>,
    bench: JoinHandle<Vec<PathBuf>>,
    writers: Vec<JoinHandle<Told>>,
    transactions: Vec<JoinHandle<Vec<Transaction>>>,
}

impl Load {
    /// Of each node one client that counts, one of transactions, and two of `isochrone bench`, whose runs are so long. A lap
    /// has a counter, a list and files of its own.
    pub fn start(cluster: &Cluster, protocol: &str, lap: usize, run: Duration) -> Load {
        let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let (ran, committed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let addresses = || cluster.addresses.iter().map(|node| node.redis).enumerate();
        let bench = bench(cluster, lap, run, Arc::clone(&stop), Arc::clone(&ran));
        let writers =
            addresses().map(|(number, redis)| writer(number, redis, lap, Arc::clone(&stop))).collect();
        // Where there are partitions, transactions are over several.
        let spread = protocol.contains(' ') && !protocol.starts_with("curp");
        let transactions = addresses()
            .map(|(number, redis)| {
                let (stop, committed) = (Arc::clone(&stop), Arc::clone(&committed));
                transact(number as u64, redis, spread, lap, start, stop, committed)
            })
            .collect();
        Load { start, stop, lap, ran, committed, bench, writers, transactions }
    }

    /// For how long it has run.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends it once all that runs has been seen, and checks what its clients were told, and that every node has everything.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn finish(self, cluster: &Cluster) {
        self.stop.store(true, Ordering::SeqCst);
        let histories = self.bench.join().expect("the load was generated");
        let told =
            self.writers.into_iter().map(|writer| writer.join().expect("no reply was nonsense")).collect();
        assert_strictly_serializable(
            self.transactions
                .into_iter()
                .map(|worker| worker.join().expect("no reply was nonsense"))
                .collect(),
        );
        assert_complete(cluster, self.lap, told);
        assert!(!histories.is_empty(), "the load hardly ran");
        for history in histories {
            let limit = format!("{}s", PATIENCE.as_secs());
            let (status, out, err) = outcome(["check", history.to_str().unwrap(), "--limit", &limit]);
            println!("{out}");
            assert_eq!(status, 0, "{out}{err}\n{}", keep(&history));
        }
    }
}

/// Every node, the last victim too, has everything that writers were told, and nothing else.
fn assert_complete(cluster: &Cluster, lap: usize, told: Vec<Told>) {
    let (list, count) = (format!("list{lap}"), format!("count{lap}"));
    for (index, node) in cluster.addresses.iter().enumerate() {
        let mut client = client(node.redis);
        let items = until("the list", || match client.ask(&["LRANGE", &list, "0", "-1"]) {
            Ok(Reply::List(items)) => Some(items),
            _ => None,
        });
        let found: Vec<_> = items
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
        let count = until("the count", || match client.ask(&["GET", &count]) {
            Ok(Reply::Text(text)) => text.parse::<u64>().ok(),
            _ => None,
        });
        let least: u64 = told.iter().map(|told| told.increments).sum();
        let most = least + told.iter().map(|told| told.increments_unknown).sum::<u64>();
        assert!((least..=most).contains(&count), "{count} increments, but {least} to {most} were asked for");
        println!("n{index}: {} values, {count} increments ({least} to {most})", found.len());
    }
}

/// `isochrone bench` again and again, each run with a history of its own: a checker decides several short ones where
/// it would give up on a long one with many unknown outcomes.
/// `ran` says how many there are.
fn bench(
    cluster: &Cluster,
    lap: usize,
    run: Duration,
    stop: Arc<AtomicBool>,
    ran: Arc<AtomicUsize>,
) -> JoinHandle<Vec<PathBuf>> {
    let (file, folder) = (cluster.file.clone(), cluster.folder.clone());
    let (clients, run) = (format!("{}", 2 * cluster.addresses.len()), format!("{}ms", run.as_millis()));
    std::thread::spawn(move || {
        let mut histories = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            let history = folder.join(format!("history-{lap}-{}.jsonl", histories.len()));
            let mut command = isochrone(["bench", "--workload", "check", "--reconnect", "--format", "json"]);
            command
                .args(["--clients", &clients, "--duration", &run])
                .arg(&file)
                .arg("--history")
                .arg(&history);
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
