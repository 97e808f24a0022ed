//! A node that has lost its disk is replaced by another, as `docs/operations.md` says.

use super::processes::{TOKEN, client, deployment_of, leader, node, nodes, outcome, page, serves, until};
use super::resp::{Client, Reply};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Sends an order to a node; the body of its answer once it is done.
pub fn order(http: SocketAddr, what: &str, replica: &str) -> Result<String, String> {
    let body = format!("{{\"keyspace\": \"main\", \"node\": \"{replica}\"}}");
    let request = format!(
        "POST /admin/{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(http).map_err(|error| error.to_string())?;
    socket.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    let mut text = String::new();
    socket.read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.starts_with("HTTP/1.1 200") { Ok(text) } else { Err(text) }
}

/// Keys of several partitions, where there are such.
const KEYS: [&str; 4] = ["precious", "dear", "costly", "valued"];

#[test]
fn a_lost_node_is_replaced_and_then_another_may_be_lost() {
    replaced("multipaxos", 1);
}

#[test]
fn a_lost_node_of_transactions_is_replaced_and_then_another_may_be_lost() {
    replaced("2pc", 3);
}

#[test]
fn a_lost_node_of_transactions_that_votes_settle_is_replaced_and_then_another_may_be_lost() {
    replaced("carousel-fast", 3);
}

fn replaced(protocol: &str, partitions: u16) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(4);
    let file = deployment_of(path, "cluster.toml", "replace", &addresses, protocol);
    let text = fs::read_to_string(&file).unwrap();
    let more = format!(
        "replicas = [\"n0\", \"n1\", \"n2\"]\npartitions = {partitions}\nparameters = {{ spares = \"n3\" }}\n"
    );
    fs::write(&file, text + &more).unwrap();
    let mut first: Vec<_> = (0..3).map(|index| node(&file, index, path)).collect();

    let write = |index: usize, value: &str| {
        for key in KEYS {
            until("a write", || {
                let mut client = Client::connect(addresses[index].redis).ok()?;
                matches!(client.ask(&["SET", key, value]), Ok(Reply::Text(_))).then_some(())
            });
        }
    };
    write(1, "before");

    // It has run before, so with an empty directory it must not come back under its name.
    first[0].signal("KILL");
    assert_eq!(first[0].end(), None);
    fs::remove_dir_all(path.join("n0")).unwrap();
    let data = path.join("n0");
    let words =
        ["node", file.to_str().unwrap(), "--name", "n0", "--expect-data", "--data", data.to_str().unwrap()];
    let (status, _, err) = outcome(words);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("no data of this node is here, but this node has run before"), "{err}");
    // Whoever starts it may not know that: the others do.
    let (status, _, err) =
        outcome(["node", file.to_str().unwrap(), "--name", "n0", "--data", data.to_str().unwrap()]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("does not take this node in: it has another data directory"), "{err}");

    let _spare = node(&file, 3, path);
    until("a leader that is not the lost one", || leader(addresses[1].http).filter(|name| name != "n0"));
    let refused = order(addresses[1].http, "add-replica", "n9").unwrap_err();
    assert!(
        refused.contains("there is no node \\\"n9\\\"") || refused.contains("there is no node \"n9\""),
        "{refused}"
    );
    for (what, replica) in [("add-replica", "n3"), ("remove-replica", "n0")] {
        until(what, || {
            order(addresses[1].http, what, replica).inspect_err(|why| println!("{what}: {why}")).ok()
        });
    }

    // The leader knows that the removal is decided. With a write, or a heartbeat later, the others know it too.
    write(2, "between");
    let shown = missed_by_nobody(&file);
    let members = json!(["n1", "n2", "n3"]);
    let told = shown["keyspaces"][0]["members"].as_array().unwrap();
    assert!(told.len() == usize::from(partitions) && told.iter().all(|told| *told == members), "{shown}");

    // Now any of the three may be lost: this would not be so if the lost one still counted.
    first[1].signal("KILL");
    assert_eq!(first[1].end(), None);
    write(2, "after");
    let mut client = client(addresses[3].redis);
    for key in KEYS {
        let found = until("a read", || match client.ask(&["GET", key]) {
            Ok(Reply::Text(text)) => Some(text),
            _ => None,
        });
        assert_eq!(found, "after");
    }
    assert_eq!(client.ask(&["DBSIZE"]).unwrap(), Reply::Number(KEYS.len() as i64));
    let listed = client.scan(&["COUNT", "2"], |_| {});
    let mut keys = KEYS.map(str::to_owned).to_vec();
    keys.sort();
    assert_eq!(listed, keys, "each once");
    // In one pipeline, each in its place.
    let commands = [&["SET", "before", "x"][..], &["FLUSHDB"], &["SET", "behind", "x"], &["DBSIZE"]];
    let replies = client.pipeline(&commands).unwrap();
    let ok = || Reply::Text("OK".into());
    assert_eq!(replies, [ok(), ok(), ok(), Reply::Number(1)]);
}

/// What `isochrone status` shows where all who are members of something are there.
fn missed_by_nobody(file: &std::path::Path) -> Value {
    until("a status that misses nobody", || {
        let (status, out, _) = outcome(["status", file.to_str().unwrap(), "--format", "json"]);
        if status == 0 { serde_json::from_str(&out).ok() } else { None }
    })
}

/// Where copies are is seen at every node, and the alarm on links goes out with the node that was removed.
#[test]
fn a_node_of_curp_whose_copy_is_on_a_spare_now_is_missed_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(4);
    let file = deployment_of(path, "cluster.toml", "spare", &addresses, "curp");
    let text = fs::read_to_string(&file).unwrap();
    let more = "replicas = [\"n0\", \"n1\", \"n2\"]\nparameters = { spares = \"n3\" }\n";
    fs::write(&file, text + more).unwrap();
    let mut running: Vec<_> = (0..4).map(|index| node(&file, index, path)).collect();
    addresses.iter().for_each(|addresses| serves(addresses.redis));
    until("remove-replica", || {
        order(addresses[0].http, "remove-replica", "n1").inspect_err(|why| println!("{why}")).ok()
    });
    running[1].signal("KILL");
    assert_eq!(running[1].end(), None);
    for (index, says) in [(0, ["n1\"} 0", "n3\"} 1"]), (3, ["n0\"} 1", "n1\"} 0"])] {
        for says in says.map(|says| format!("\nisochrone_peer_member{{peer=\"{says}\n")) {
            until(&says, || page(addresses[index].http, "/metrics").filter(|page| page.contains(&says)));
        }
    }
    let shown = missed_by_nobody(&file);
    let keyspace = &shown["keyspaces"][0];
    assert_eq!(keyspace["members"], json!([["n0", "n2", "n3"]]), "{shown}");
    let mut roles: Vec<_> = keyspace["nodes"].as_array().unwrap().iter().map(|row| &row["role"]).collect();
    roles.sort_by_key(|role| role.to_string());
    assert_eq!(roles, ["leader", "replica", "replica"], "{shown}");
}

/// D-2: a witness that has lost what it held is no witness of the same master any more, and neither is its node a copy;
/// the keyspace goes on with the other, also over the next crash of the master.
#[test]
fn a_copy_of_curp_that_has_lost_its_disk_is_not_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment_of(path, "cluster.toml", "lost", &addresses, "curp");
    let mut running: Vec<_> = (0..3).map(|index| node(&file, index, path)).collect();
    addresses.iter().for_each(|addresses| serves(addresses.redis));
    let set = client(addresses[0].redis).ask(&["SET", "precious", "kept"]).unwrap();
    assert_eq!(set, Reply::Text("OK".into()));
    let master = until("a master", || leader(addresses[0].http)?.strip_prefix('n')?.parse::<usize>().ok());
    let (lost, other) = ((master + 1) % 3, (master + 2) % 3);

    running[lost].signal("KILL");
    assert_eq!(running[lost].end(), None);
    let data = path.join(format!("n{lost}"));
    fs::remove_dir_all(&data).unwrap();
    let name = format!("n{lost}");
    for life in 1..=2 {
        // The second time there is a directory, which is still not the one.
        let words = ["node", file.to_str().unwrap(), "--name", &name, "--data", data.to_str().unwrap()];
        let (status, _, err) = outcome(words);
        assert_eq!(status, 2, "start {life}: {err}");
        assert!(
            err.contains("does not take this node in: it has another data directory"),
            "start {life}: {err}"
        );
    }
    serves(addresses[other].redis);

    running[master].signal("KILL");
    assert_eq!(running[master].end(), None);
    running[master] = node(&file, master, path);
    serves(addresses[other].redis);
    for index in [master, other] {
        let mut client = client(addresses[index].redis);
        let found = until("a read", || {
            client.ask(&["GET", "precious"]).ok().filter(|found| !matches!(found, Reply::Error(_)))
        });
        assert_eq!(found, Reply::Text("kept".into()));
    }
}
