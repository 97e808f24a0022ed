//! A limit of memory: above it, what may make data grow is refused, whichever node is asked, and nothing else is.

use super::processes::{
    Process, addresses, client, deployment, isochrone, node, nodes, outcome, page, serves, until,
};
use super::resp::{Client, Reply, ask};
use std::fs;

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Bytes that a node may use more than it does when it is idle: several times what replicas keep for those that lag.
const ROOM: u64 = 64 << 20;
const VALUE: usize = 1 << 20;

/// A figure of `INFO memory`.
fn figure(client: &mut Client, name: &str) -> u64 {
    let Reply::Text(text) = ask(client, &["INFO", "memory"]) else { panic!("INFO is a text") };
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

/// Has this node use no more than [`ROOM`] beyond what it uses now.
fn bind(client: &mut Client) {
    let limit = figure(client, "used_memory") + ROOM;
    assert_eq!(
        ask(client, &["CONFIG", "SET", "maxmemory", &limit.to_string()]),
        Reply::Text("OK".to_owned())
    );
    assert_eq!(figure(client, "maxmemory"), limit);
}

/// Sets keys from this one on until one is refused: which.
fn fill(client: &mut Client, from: usize) -> usize {
    let value = "v".repeat(VALUE);
    // What a node uses is looked at ten times a second, so it may be passed.
    let most = 6 * ROOM as usize / VALUE;
    for key in from..most {
        match ask(client, &["SET", &format!("key:{key}"), &value]) {
            Reply::Text(_) => {}
            refused => {
                assert_eq!(refused, Reply::Error(OOM.to_owned()));
                return key;
            }
        }
    }
    panic!("{most} values are taken");
}

/// What is there is read and deleted at a full node; then there is room again.
fn empty(client: &mut Client, count: usize) {
    let Reply::Text(value) = ask(client, &["GET", "key:0"]) else { panic!("it is there") };
    assert_eq!(value.len(), VALUE);
    assert_eq!(ask(client, &["EXPIRE", "key:0", "1000"]), Reply::Number(1));
    for key in 0..count {
        assert_eq!(ask(client, &["DEL", &format!("key:{key}")]), Reply::Number(1));
    }
    has_room(client);
}

/// Waits until a SET goes through.
fn has_room(client: &mut Client) {
    until("room", || match ask(client, &["SET", "small", "value"]) {
        Reply::Text(_) => Some(()),
        refused => {
            assert_eq!(refused, Reply::Error(OOM.to_owned()));
            None
        }
    });
}

#[test]
fn a_node_that_is_full_takes_nothing_more_until_something_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let mut command = isochrone(["redis", "--dir"]);
    command.arg(folder.path().join("data")).args(["--port", &address.port().to_string()]);
    let process = Process::start(command);
    assert!(process.line().is_some_and(|line| line.contains("is ready")));
    serves(address);
    let mut client = client(address);
    assert_ne!(figure(&mut client, "used_memory"), figure(&mut client, "used_memory_rss"), "it counts");
    bind(&mut client);
    let mut count = 0;
    until("a transaction is refused", || {
        count = fill(&mut client, count);
        assert_eq!(ask(&mut client, &["MULTI"]), Reply::Text("OK".to_owned()));
        // It may just have got room.
        let refused = ask(&mut client, &["INCR", "count"]) == Reply::Error(OOM.to_owned());
        let done = ask(&mut client, &["EXEC"]);
        let aborted = "EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(refused, done == Reply::Error(aborted.to_owned()), "{done:?}");
        refused.then_some(())
    });
    empty(&mut client, count);
    // Or it may use more.
    fill(&mut client, 0);
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "maxmemory", "0"]), Reply::Text("OK".to_owned()));
    has_room(&mut client);
}

#[test]
fn what_one_replica_has_no_memory_for_is_refused_at_every_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let all = nodes(3);
    let file = deployment(path, "three.toml", "full", &all);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}[limits]\nmemory = \"1GiB\"\n")).unwrap();
    let _nodes: Vec<_> = (0..3).map(|index| node(&file, index, path)).collect();
    all.iter().for_each(|node| serves(node.redis));
    let [mut first, mut last] = [client(all[0].redis), client(all[2].redis)];
    assert_eq!(figure(&mut first, "maxmemory"), 1 << 30);
    bind(&mut last);

    let mut count = 0;
    until("who is full is told", || {
        count = fill(&mut first, count);
        let (_, shown, _) = outcome(["status", file.to_str().unwrap()]);
        let ready = page(all[0].http, "/readyz")?;
        (shown.contains("  n2 is full: it uses ") && ready.contains("; full: n2\n")).then_some(())
    });
    let counted = "isochrone_limit_reached_total{limit=\"memory\"} ";
    until("it is counted", || page(all[0].http, "/metrics")?.contains(counted).then_some(()));
    empty(&mut first, count);
}
