//! Keys move between partitions while clients count and append, and while nodes are killed: nothing is lost and
//! nothing is done twice. And planted bugs of moves are found by the simulator.

use super::census::keys;
use super::processes::{Process, client, node, nodes, order, outcome, until};
use super::resp::{Client, Reply};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

const NODES: usize = 3;
const PARTITIONS: usize = 3;

/// What one writer was told of its keys.
struct Told {
    number: usize,
    counted: Vec<u64>,
    pushed: Vec<Vec<String>>,
    unknown: u64,
}

const KEYS: usize = 12;
const WRITERS: usize = 4;

/// What the writers and the test tell each other.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Writers that have been through all their keys once.
    through: AtomicUsize,
}

/// Counts in many counters and appends to many lists of its own, always the next value, until it is told to stop.
fn writer(number: usize, address: SocketAddr, shared: Arc<Shared>) -> JoinHandle<Told> {
    std::thread::spawn(move || {
        let mut told = Told { number, counted: vec![0; KEYS], pushed: vec![Vec::new(); KEYS], unknown: 0 };
        let mut client = client(address);
        for round in 0_u64.. {
            if shared.stop.load(Ordering::SeqCst) {
                break;
            }
            if round as usize == KEYS {
                shared.through.fetch_add(1, Ordering::SeqCst);
            }
            let at = round as usize % KEYS;
            let value = round.to_string();
            match client.ask(&["INCR", &format!("count:{number}:{at}")]) {
                Ok(Reply::Number(count)) => {
                    told.counted[at] += 1;
                    assert_eq!(count as u64, told.counted[at], "counted twice, or lost");
                }
                // Not done, and will not be.
                Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => {}
                other => {
                    // Whether it was done shows in what is found at the end only: this writer ends.
                    println!("writer {number}: {other:?}");
                    told.unknown += 1;
                    break;
                }
            }
            match client.ask(&["RPUSH", &format!("list:{number}:{at}"), &value]) {
                Ok(Reply::Number(_)) => told.pushed[at].push(value),
                Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => {}
                other => {
                    println!("writer {number}: {other:?}");
                    told.unknown += 1;
                    break;
                }
            }
        }
        told
    })
}

fn deployment(folder: &Path, nodes: &[super::processes::Addresses], protocol: &str) -> std::path::PathBuf {
    let path = super::processes::deployment_of(folder, "nodes.toml", "ranges", nodes, protocol);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}partitions = {PARTITIONS}\n")).unwrap();
    path
}

/// With `whole`, commands on all keys are served.
fn keys_move_while_clients_write(protocol: &str, whole: bool) {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(NODES);
    let file = deployment(folder.path(), &nodes, protocol);
    let mut processes: Vec<Process> = (0..NODES).map(|index| node(&file, index, folder.path())).collect();
    for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        until("a write", || {
            let mut client = Client::connect(nodes[0].redis).ok()?;
            matches!(client.ask(&["SET", key, "1"]), Ok(Reply::Text(_))).then_some(())
        });
    }
    let shared = Arc::new(Shared::default());
    // The last node is killed: its clients would not know what became of what they asked.
    let writers: Vec<_> =
        (0..WRITERS).map(|number| writer(number, nodes[number % 2].redis, Arc::clone(&shared))).collect();
    until("every key", || (shared.through.load(Ordering::SeqCst) == WRITERS).then_some(()));
    let (mut moved, mut ends) = (0, 0);
    for round in 0..9 {
        if round == 4 {
            processes[NODES - 1].signal("KILL");
            processes[NODES - 1].end();
        }
        if round == 6 {
            processes[NODES - 1] = node(&file, NODES - 1, folder.path());
        }
        let (from, to) = (round % PARTITIONS, (round + 1 + round / 3) % PARTITIONS);
        if from == to {
            continue;
        }
        let body = format!(r#"{{"keyspace": "main", "from": {from}, "to": {to}}}"#);
        let (status, text) = order(nodes[round % 2].http, "/admin/move-range", &body);
        println!("{from} to {to}: {status} {text}");
        if status == 200 {
            let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            moved += told["keys"].as_u64().expect("a number");
            ends += 1;
        }
    }
    shared.stop.store(true, Ordering::SeqCst);
    let told: Vec<Told> =
        writers.into_iter().map(|writer| writer.join().expect("no reply was nonsense")).collect();
    assert!(ends >= 3 && moved > 50, "{moved} keys in {ends} moves");

    // Each node, also one that has learnt nothing of any move yet, has everything.
    for node in &nodes {
        let mut client = client(node.redis);
        // Those that were set at the beginning.
        let mut found = 8;
        for told in &told {
            for at in 0..KEYS {
                let key = format!("count:{}:{at}", told.number);
                let count = until("a count", || match client.ask(&["GET", &key]) {
                    Ok(Reply::Text(text)) => text.parse::<u64>().ok(),
                    Ok(Reply::Nothing) => Some(0),
                    _ => None,
                });
                let most = told.counted[at] + told.unknown;
                assert!((told.counted[at]..=most).contains(&count), "{key}: {count} of {}", told.counted[at]);
                found += usize::from(count > 0);
                let key = format!("list:{}:{at}", told.number);
                let list = until("a list", || match client.ask(&["LRANGE", &key, "0", "-1"]) {
                    Ok(Reply::List(items)) => Some(items),
                    _ => None,
                });
                let expected = told.pushed[at].iter().map(|value| Reply::Text(value.clone()));
                let expected: Vec<Reply> = expected.collect();
                assert!(list.starts_with(&expected), "{key}: {list:?} of {expected:?}");
                assert!((list.len() - expected.len()) as u64 <= told.unknown, "{key} has more");
                found += usize::from(!list.is_empty());
            }
        }
        // A key counts where it is, and not where it was; what a directory keeps is none.
        let line = format!("db0:keys={found},expires=0,avg_ttl=0");
        until("their number at this node", || (keys(node.redis)? == line).then_some(()));
        if !whole {
            continue;
        }
        // What touches all keys is asked of every partition.
        let keys = until("all keys", || match client.ask(&["KEYS", "*"]) {
            Ok(Reply::List(keys)) => Some(keys),
            _ => None,
        });
        let size = until("their number", || match client.ask(&["DBSIZE"]) {
            Ok(Reply::Number(size)) => Some(size),
            _ => None,
        });
        assert_eq!((keys.len(), size as usize), (found, found));
    }
    let (status, map) = order(nodes[0].http, "/admin/ranges?keyspace=main", "");
    assert_eq!(status, 200, "{map}");
    let map: Vec<serde_json::Value> = serde_json::from_str(&map).expect("JSON");
    assert_eq!(map.first().map(|run| run["first"].clone()), Some("0000000000000000".into()));
    assert_eq!(map.last().map(|run| run["last"].clone()), Some("ffffffffffffffff".into()));
}

#[test]
fn keys_move_while_clients_of_multipaxos_write() {
    keys_move_while_clients_write("multipaxos", true);
}

#[test]
fn keys_move_while_clients_of_curp_write() {
    keys_move_while_clients_write("curp", true);
}

#[test]
fn keys_move_while_clients_of_curp_consensus_write() {
    keys_move_while_clients_write("curp-consensus", true);
}

#[test]
fn keys_move_while_transactions_run() {
    keys_move_while_clients_write("carousel-fast", false);
}

/// All keys, a page at a time; `between` is told how many pages there were before the next one is asked for.
fn scan(client: &mut Client, between: impl FnMut(usize)) -> Vec<String> {
    client.scan(&["MATCH", "*:*", "COUNT", "100", "TYPE", "string"], between)
}

/// Keys move to where a scan has been, and to and fro while it goes on, and the node that scans hears of it late.
fn scans_miss_nothing_that_moves(protocol: &str) {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(NODES);
    let file = deployment(folder.path(), &nodes, protocol);
    let _processes: Vec<Process> = (0..NODES).map(|index| node(&file, index, folder.path())).collect();
    let mut client = client(nodes[0].redis);
    let mut all = Vec::new();
    for tag in 0..150 {
        let keys: Vec<String> = (0..20).map(|number| format!("{{t{tag}}}:{number}")).collect();
        let mut words = vec!["MSET"];
        words.extend(keys.iter().flat_map(|key| [key, "1"]));
        until("a write", || matches!(client.ask(&words), Ok(Reply::Text(_))).then_some(()));
        all.extend(keys);
    }
    all.sort();
    // Of another type.
    let push = ["RPUSH", "a:list", "1"];
    until("a list", || matches!(client.ask(&push), Ok(Reply::Number(_))).then_some(()));
    let http = nodes[1].http;
    let move_all = move |from: usize, to: usize| {
        let body = format!(r#"{{"keyspace": "main", "from": {from}, "to": {to}}}"#);
        let (status, text) = order(http, "/admin/move-range", &body);
        assert_eq!(status, 200, "{text}");
        let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        told["keys"].as_u64().expect("a number")
    };
    // Everything is in the last partition, and goes to the first when the scan has been there.
    let moved = move_all(0, 2) + move_all(1, 2);
    assert!(moved > 1_000, "{moved}");
    let mut moves = 0;
    let found = scan(&mut client, |pages| match pages {
        5 => moves += move_all(2, 0),
        15 => moves += move_all(0, 1),
        25 => moves += move_all(1, 2),
        _ => {}
    });
    assert!(moves >= 2 * all.len() as u64, "{moves} keys moved while it went on");
    assert!(found == all, "{} of {}", found.len(), all.len());

    let stop = Arc::new(AtomicBool::new(false));
    let mover = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut moved = 0;
            for round in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let from = round % PARTITIONS;
                moved += move_all(from, (from + 1 + round / PARTITIONS % 2) % PARTITIONS);
            }
            moved
        }
    });
    for _ in 0..5 {
        let found = scan(&mut client, |_| {});
        assert!(found == all, "{} of {} while others moved", found.len(), all.len());
        assert_eq!(client.ask(&["DBSIZE"]).expect("a reply"), Reply::Number(all.len() as i64 + 1));
        match client.ask(&["KEYS", "*"]).expect("a reply") {
            Reply::List(keys) => assert_eq!(keys.len(), all.len() + 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.ask(&["FLUSHDB"]).expect("a reply"), Reply::Text("OK".into()));
    stop.store(true, Ordering::SeqCst);
    let moved = mover.join().expect("every move was made");
    println!("{moved} keys moved beside the scans");
    assert_eq!(client.ask(&["DBSIZE"]).expect("a reply"), Reply::Number(0));
}

#[test]
fn scans_of_multipaxos_miss_nothing_that_moves() {
    scans_miss_nothing_that_moves("multipaxos");
}

#[test]
fn scans_of_curp_miss_nothing_that_moves() {
    scans_miss_nothing_that_moves("curp");
}

#[test]
fn orders_that_make_no_sense_are_refused_with_what_would() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(1);
    let file = deployment(folder.path(), &nodes, "multipaxos");
    let _process = node(&file, 0, folder.path());
    for (body, status, words) in [
        (r#"{"keyspace": "main", "from": 0, "to": 0}"#, 409, "no such partition"),
        (r#"{"keyspace": "main", "from": 0, "to": 9}"#, 409, "no such partition"),
        (r#"{"keyspace": "none", "from": 0, "to": 1}"#, 400, "no keyspace"),
        (r#"{"keyspace": "main", "from": 0, "to": 1, "first": "xyz"}"#, 400, "hexadecimal"),
        (r#"{"keyspace": "main", "from": 0}"#, 400, "send {"),
        (
            r#"{"keyspace": "main", "from": 0, "to": 1, "first_key": "b", "end_key": "a"}"#,
            400,
            "no key between",
        ),
        (r#"{"keyspace": "main", "from": 0, "to": 1, "first_key": "b"}"#, 409, "not by the order of keys"),
    ] {
        let (found, text) = order(nodes[0].http, "/admin/move-range", body);
        assert_eq!(found, status, "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn what_a_protocol_does_not_do_is_refused_with_the_reason() {
    for (protocol, path, words) in [
        ("epaxos", "/admin/move-leader", "no replica of this protocol leads"),
        ("mencius", "/admin/move-leader", "no replica of this protocol leads"),
        ("tapir", "/admin/move-leader", "none of its replicas leads"),
        ("tapir", "/admin/add-replica", "its replicas are those of the deployment file"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let nodes = nodes(1);
        let file = deployment(folder.path(), &nodes, protocol);
        let _process = node(&file, 0, folder.path());
        let (status, text) = order(nodes[0].http, path, r#"{"keyspace": "main", "node": "n0"}"#);
        assert!(status == 409 && text.contains(words), "{protocol}: {status} {text}");
        let (status, text) = order(nodes[0].http, "/admin/ranges", "");
        assert!(status == 400 && text.contains("/admin/ranges?keyspace=NAME"), "{status} {text}");
    }
}

/// Moves at random under all faults, as `isochrone sim` has them; and each planted bug is found.
#[test]
fn the_simulator_moves_keys_and_finds_the_bugs_of_moves() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");
    let run = |protocol: &str, seeds: &str, more: &[&str]| {
        let mut words = vec!["sim", file, "--protocol", protocol, "--partitions", "3", "--faults", "all"];
        words.extend(["--seeds", seeds, "--clients", "12", "--threads", "2", "--moves", "12"]);
        words.extend(more);
        outcome(words)
    };
    let usual: &[&str] = &[];
    let unified: &[&str] = &["--set", "unified=true"];
    for (protocol, more) in [
        ("multipaxos", usual),
        ("curp", usual),
        ("curp", unified),
        ("curp-consensus", usual),
        ("epaxos", usual),
        ("2pc", usual),
        ("tapir", usual),
    ] {
        let (status, out, err) = run(protocol, "24", more);
        assert_eq!(status, 0, "{protocol} {more:?}: {out}{err}");
    }
    // The first of these is found by two seeds of six hundred.
    for (bug, from) in [("reissue-in-doubt", "344"), ("drop-chunk", "0")] {
        let (status, out, err) = run("multipaxos", "48", &["--plant", bug, "--from", from]);
        assert_eq!(status, 1, "{bug} is not found: {out}{err}");
        assert!(out.contains("VIOLATION (history)"), "{bug}: {out}");
    }
}
