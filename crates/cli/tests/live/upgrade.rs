//! All nodes are stopped and started one by one, as `isochrone upgrade --next` says, while clients write.

use super::processes::{Process, client, deployment, leader, node, nodes, outcome, page, serves, until};
use super::resp::{Client, Reply};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Writes one number after the other, each at whichever node does it; what one does not do, the next is asked. How many.
fn writer(nodes: Vec<SocketAddr>, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut connections: Vec<Option<Client>> = nodes.iter().map(|_| None).collect();
        let (mut written, mut at) = (0, 0);
        while !stop.load(Ordering::SeqCst) {
            let value = written.to_string();
            until("a write", || {
                at = (at + 1) % nodes.len();
                if connections[at].is_none() {
                    connections[at] = Client::reconnect(nodes[at]);
                }
                match connections[at].as_mut()?.ask(&["SET", "count", &value]) {
                    Ok(Reply::Text(_)) => Some(()),
                    Ok(_) => None,
                    Err(_) => {
                        connections[at] = None;
                        None
                    }
                }
            });
            written += 1;
            // A trickle.
            std::thread::sleep(Duration::from_millis(2));
        }
        written
    })
}

/// This moment, as `date` would print it.
fn moment() -> String {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

#[test]
fn all_are_started_anew_one_by_one_while_clients_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment(path, "three.toml", "rolling", &addresses);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "[[keyspace]]\nname = \"idle\"\nprotocol = \"mencius\"\n").unwrap();
    let name = file.to_str().unwrap();
    let (status, out, err) = outcome(["upgrade", name]);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("no node tells how it stands"), "{err}");
    let mut processes: Vec<Process> = (0..3).map(|index| node(&file, index, path)).collect();
    addresses.iter().for_each(|place| serves(place.redis));

    // Of another version nothing has come where a node was just started; and all run this one.
    let (status, out, err) = outcome(["upgrade", name, "--next", "--to", "99.0.0"]);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains(" s ago and runs version ") && err.contains(", not 99.0.0"), "{err}");
    // One keyspace is written once and never again.
    let mut idle = client(addresses[0].redis);
    assert_eq!(idle.ask(&["SELECT", "1"]).unwrap(), Reply::Text("OK".to_owned()));
    until("a write", || matches!(idle.ask(&["SET", "once", "1"]), Ok(Reply::Text(_))).then_some(()));
    let (status, out, err) = outcome(["upgrade", name, "--next", "--timeout", "60s"]);
    assert_eq!((status, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("nothing is left to be done; 3 of 3 nodes run version "), "{err}");
    let (served, up) = until("how long it serves", || {
        let told: Value = serde_json::from_str(&page(addresses[0].http, "/status")?).ok()?;
        Some((told["serves_ms"].as_u64()?, told["uptime_ms"].as_u64()?))
    });
    assert!((10_000..=up).contains(&served), "{served} of {up}");
    for (words, expected) in [
        (["--without", "n9"], "three.toml has no node of this name\n  use one of n0, n1, n2"),
        (["--interrupt", "none"], "three.toml has no keyspace of this name\n  use one of main"),
        (["--started-before", "9999-01-01T00:00:00Z"], "it lies ahead"),
    ] {
        let (status, _, err) = outcome(["upgrade", name].into_iter().chain(words));
        assert!(status == 2 && err.contains(expected), "{status}: {err}");
    }

    let moment = moment();
    // A node whose answer takes long seems to have been started earlier.
    std::thread::sleep(Duration::from_secs(1));
    let next =
        |timeout| outcome(["upgrade", name, "--next", "--started-before", &moment, "--timeout", timeout]);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = writer(addresses.iter().map(|place| place.redis).collect(), Arc::clone(&stop));
    let mut done = Vec::new();
    for round in 0..3 {
        let before = leader(addresses[0].http);
        let (status, out, err) = next("60s");
        assert_eq!(status, 0, "{err}");
        assert!(err.contains(" may be stopped; "), "{err}");
        let index: usize = out.trim_end().strip_prefix('n').unwrap().parse().unwrap();
        assert_eq!(out, format!("n{index}\n"));
        assert!(!done.contains(&index), "n{index} again, after {done:?}");
        if round < 2 && before == leader(addresses[0].http) {
            assert_ne!(before, Some(format!("n{index}")), "who leads comes last");
        }
        processes[index].signal("TERM");
        assert_eq!(processes[index].end(), Some(0));
        if round == 0 {
            // Nobody else as long as it is away.
            let (status, out, err) = next("0s");
            assert_eq!((status, out.as_str()), (1, ""), "{err}");
            assert!(err.contains(&format!("\n  n{index} does not tell how it stands: ")), "{err}");
        }
        processes[index] = node(&file, index, path);
        done.push(index);
    }
    let (status, out, err) = next("60s");
    assert_eq!((status, out.as_str()), (0, ""), "{err}");
    stop.store(true, Ordering::SeqCst);
    let written = writer.join().unwrap();
    assert!(written > 20, "{written}");
    for place in &addresses {
        let mut asker = client(place.redis);
        until("the count", || {
            let Reply::Text(count) = asker.ask(&["GET", "count"]).ok()? else { return None };
            assert!(count.parse::<u64>().unwrap() < written, "{count}");
            Some(())
        });
    }

    // As a table and for programs; a node that was named as gone is left out.
    let out = until("nothing is left", || {
        let (status, out, _) = outcome(["upgrade", name, "--started-before", &moment]);
        (status == 0).then_some(out)
    });
    assert!(out.contains("\nnothing is left to be done\n"), "{out}");
    let words = ["upgrade", name, "--started-before", "0", "--without", "n2", "--format", "json"];
    let shown = until("all serve", || {
        let (status, out, _) = outcome(words);
        let shown: Value = serde_json::from_str(&out).ok()?;
        (shown["waits"].as_array()?.is_empty()).then_some((status, shown))
    });
    let (status, shown) = shown;
    assert_eq!((status, &shown["way"]), (0, &"done".into()), "{shown}");
    let stands: Vec<_> = shown["nodes"].as_array().unwrap().iter().map(|node| &node["progress"]).collect();
    assert_eq!(stands, ["done", "done", "without"], "{shown}");
}

/// A keyspace of one replica, and one whose copies are chosen anew when a node is away.
#[test]
fn what_cannot_be_served_meanwhile_is_said_and_copies_are_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment(path, "three.toml", "copies", &addresses);
    let text = std::fs::read_to_string(&file).unwrap().replace("\"multipaxos\"", "\"curp\"");
    let alone = "[[keyspace]]\nname = \"alone\"\nprotocol = \"multipaxos\"\nreplicas = [\"n2\"]\n";
    std::fs::write(&file, text + alone).unwrap();
    let name = file.to_str().unwrap();
    let mut processes: Vec<Process> = (0..3).map(|index| node(&file, index, path)).collect();
    addresses.iter().for_each(|place| serves(place.redis));
    // Whoever was started within the same moment might be taken for new.
    for place in &addresses {
        until("a node that is up for a second", || {
            let told: Value = serde_json::from_str(&page(place.http, "/status")?).ok()?;
            (told["uptime_ms"].as_u64()? > 1_000).then_some(())
        });
    }
    let moment = moment();
    // A node whose answer takes long seems to have been started earlier.
    std::thread::sleep(Duration::from_secs(1));
    let words = ["upgrade", name, "--next", "--started-before", &moment, "--timeout", "60s"];
    // Two of them, each once all three have a copy again.
    for _ in 0..2 {
        let (status, out, err) = outcome(words);
        assert_eq!(status, 0, "{err}");
        let index: usize = out.trim_end().strip_prefix('n').unwrap().parse().unwrap();
        assert_ne!(index, 2, "it has all that there is of a keyspace");
        processes[index].signal("TERM");
        assert_eq!(processes[index].end(), Some(0));
        processes[index] = node(&file, index, path);
        serves(addresses[2].redis);
    }
    let (status, out, err) = outcome(words);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    let expected = "while n2 is down, keyspace alone has 0 of 1 replicas left and needs 1\n  where alone may be without service \
                    meanwhile: --interrupt alone\n";
    assert!(err.contains(expected), "{err}");
    let (status, out, err) = outcome(words.into_iter().chain(["--interrupt", "alone"]));
    assert_eq!((status, out.as_str()), (0, "n2\n"), "{err}");
}

/// What tells as a node of three does whose clients write all the time: it has applied a hundred commands more whenever it is
/// asked, but for those that it is behind.
fn teller(cluster: &'static str, index: usize, behind: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let names = ["n0", "n1", "n2"];
        let peers = names.map(|name| json!({"name": name, "connected": true}));
        for (asked, stream) in (1_u64..).zip(listener.incoming()) {
            let (mut stream, mut head, mut byte) = (stream.unwrap(), Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.push(byte[0]);
            }
            let process = format!("n{index}/k1/p0/role0/0");
            let status = json!({
                "version": "0.1\u{1b}[2J", "cluster": cluster, "node": names[index], "uptime_seconds": 7_200,
                "ready": true, "peers": peers,
                "keyspaces": [{
                    "id": 1, "name": "main", "protocol": "multipaxos", "leaders": ["n0"], "members": [names],
                    "reachable": [3, 3], "ready": true,
                }],
                "processes": [{"process": process, "keyspace": 1, "applied": 100 * asked - behind}],
            });
            let status = status.to_string();
            let length = status.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{status}");
            // Who has asked may be gone.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// Nodes that write all the time are compared with what was seen a while ago, also where one of them takes connections and says
/// nothing; and what is told by nodes moves no cursor.
#[test]
fn who_is_gone_and_does_not_answer_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut addresses = nodes(3);
    (addresses[0].http, addresses[1].http) = (teller("shop", 0, 0), teller("shop", 1, 50));
    addresses[2].http = silent.local_addr().unwrap();
    let file = deployment(folder.path(), "three.toml", "shop", &addresses);
    let words = ["upgrade", file.to_str().unwrap(), "--started-before", "0", "--without", "n2"];
    let (status, out, err) = outcome(words);
    assert_eq!(status, 0, "{out}{err}");
    assert!(out.contains("\nnothing is left to be done\n"), "{out}");
    let (status, out, err) = outcome(words.into_iter().chain(["--next", "--timeout", "0s"]));
    assert_eq!((status, out.as_str()), (0, ""), "{err}");
    let note =
        "look at: n0 does not say which frames it speaks: whether those of its version 0.1?[2J and others";
    assert!(err.contains(note) && !err.contains('\u{1b}'), "{err}");
}

#[test]
fn nodes_of_another_cluster_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut addresses = nodes(3);
    (addresses[0].http, addresses[1].http) = (teller("ship\u{1b}[2J", 0, 0), teller("ship", 1, 0));
    let file = deployment(folder.path(), "three.toml", "shop", &addresses);
    let (name, place) = (file.to_str().unwrap(), addresses[0].http.to_string());
    let text = std::fs::read_to_string(&file).unwrap();
    // Its nodes have other names than those of the file, or the same.
    for text in [text.replace("\"n", "\"m"), text] {
        std::fs::write(&file, text).unwrap();
        let next = ["upgrade", name, "--next", "--timeout", "60s", "--http", place.as_str()];
        for words in [&["upgrade", name][..], &next[..5], &next] {
            let (status, out, err) = outcome(words);
            assert_eq!((status, out.as_str()), (2, ""), "{err}");
            let expected = "n0 of another cluster, ship?[2J, answers there, and no node of shop\n";
            assert!(err.contains(expected) && !err.contains('\u{1b}'), "{err}");
        }
    }
    let (status, _, err) = outcome(["status", name]);
    assert!(status == 2 && err.contains("n0 of ship?[2J answers at ") && !err.contains('\u{1b}'), "{err}");
}

#[test]
fn a_node_without_a_place_in_the_file_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut addresses = nodes(3);
    (addresses[0].http, addresses[1].http) = (teller("shop", 0, 0), teller("shop", 1, 0));
    let file = deployment(folder.path(), "three.toml", "shop", &addresses);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(&format!("http = \"{}\"\n", addresses[2].http), "")).unwrap();
    let words = ["upgrade", file.to_str().unwrap(), "--started-before", "0", "--next", "--timeout", "60s"];
    let (status, out, err) = outcome(words);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    let expected = "n2 has no `http` in the file, where it would tell how it stands\n  give it one and start it anew, or name it \
                    with --without\n";
    assert!(err.contains(expected), "{err}");
    let (status, out, err) = outcome(words.into_iter().chain(["--without", "n2"]));
    assert_eq!((status, out.as_str()), (0, ""), "{err}");
}
