//! Orders to a running cluster by the command line: who leads, who has replicas, which partition serves which keys, and that a
//! node stops.

use super::processes::{
    Process, TOKEN, client, deployment_of, isochrone, node, nodes, outcome, page, serves, until,
};
use super::resp::Reply;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a verb with this token: exit status, standard output, standard error.
fn with_token(token: &str, words: &[&str]) -> (i32, String, String) {
    let output = isochrone(words).env("ISOCHRONE_ADMIN_TOKEN", token).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

fn give(words: &[&str]) -> (i32, String, String) {
    with_token(TOKEN, words)
}

/// Gives an order until it is done; what is told of it then, and whether it was the first try: what one before has done, of one
/// partition or behind the back of whoever waited, is told as what was so before. Elections and orders that are still under way
/// refuse some.
fn done(words: &[&str]) -> (Value, bool) {
    let words = [words, &["--format", "json"]].concat();
    let mut tries = 0;
    let told = until(&words.join(" "), || {
        tries += 1;
        let (status, out, err) = give(&words);
        let told: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
        assert_eq!(status == 0, told["outcome"] == "done", "{told}");
        (status == 0).then_some(told).or_else(|| {
            println!("{err}");
            None
        })
    });
    (told, tries == 1)
}

/// What every partition has under this name, sorted where it is a list.
fn each(told: &Value, name: &str) -> Vec<Value> {
    let partitions = told["partitions"].as_array().unwrap_or_else(|| panic!("{told}"));
    let of = |partition: &Value| match &partition[name] {
        Value::Array(list) => {
            let mut list: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            list.sort_unstable();
            json!(list)
        }
        other => other.clone(),
    };
    partitions.iter().map(of).collect()
}

#[test]
fn a_cluster_takes_orders_by_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(4);
    let file = deployment_of(path, "cluster.toml", "shop", &addresses, "multipaxos");
    let text = std::fs::read_to_string(&file).unwrap();
    let more = "replicas = [\"n0\", \"n1\", \"n2\"]\npartitions = 2\nparameters = { spares = \"n3\" }\n";
    std::fs::write(&file, text + more).unwrap();
    let file = file.to_str().unwrap();

    // What cannot be meant is told although no node runs.
    let wrong: [(&[&str], &str); 7] = [
        (&["move-leader", file, "--to", "n9"], "has no node of this name\n  there are n0, n1, n2, n3"),
        (&["move-leader", file, "--to", "n1", "--keyspace", "mine"], "there are main"),
        (&["move-leader", file, "--to", "n1", "--partition", "2"], "there are 0 to 1"),
        (&["range", "move", file, "--from", "0", "--to", "0"], "name another one"),
        (&["replica", "remove", file, "--node", "n0"], "--cluster NAME"),
        (&["replica", "remove", file, "--node", "n0", "--cluster", "shops"], "the cluster is shop\n"),
        (&["stop", file, "--node", "n0", "--cluster", "ship"], "the cluster is shop\n"),
    ];
    for (words, expected) in wrong {
        let (status, out, err) = give(words);
        assert_eq!((status, out.as_str()), (2, ""), "{words:?}: {err}");
        assert!(err.contains(expected), "{words:?}: {err}");
    }
    let lead = ["move-leader", file, "--to", "n2"];
    let (status, _, err) = outcome(lead);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("ISOCHRONE_ADMIN_TOKEN: there is no token"), "{err}");
    let (status, _, err) = give(&lead);
    assert_eq!(status, 1, "{err}");
    assert!(err.contains("no node tells how it stands"), "{err}");

    let mut processes: Vec<Process> =
        (0..4).map(|index| node(std::path::Path::new(file), index, path)).collect();
    addresses.iter().for_each(|addresses| serves(addresses.redis));
    let (status, out, err) = with_token("another", &lead);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("the token is not that with which this node was started"), "{err}");

    let (led, _) = done(&lead);
    assert_eq!((&led["order"], &led["cluster"]), (&json!("move-leader"), &json!("shop")));
    assert_eq!(each(&led, "leader"), ["n2", "n2"], "{led}");
    let leaders = |http| {
        let status: Value = serde_json::from_str(&page(http, "/status")?).ok()?;
        (status["keyspaces"][0]["leaders"] == json!(["n2", "n2"])).then_some(())
    };
    addresses.iter().for_each(|addresses| until("every node hears of it", || leaders(addresses.http)));
    let (status, out, err) = give(&lead);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("\n  partition 0: n2 leads, as before\n  partition 1: n2 leads, as before\n"),
        "{out}"
    );
    let (one, _) = done(&["move-leader", file, "--to", "n1", "--partition", "1"]);
    assert_eq!((each(&one, "partition"), each(&one, "leader")), (vec![json!(1)], vec![json!("n1")]), "{one}");

    let three = json!(["n0", "n1", "n2"]);
    let (added, first) = done(&["replica", "add", file, "--node", "n3"]);
    assert!(!first || each(&added, "members_before")[0] == three, "{added}");
    assert_eq!(each(&added, "members"), [json!(["n0", "n1", "n2", "n3"]), json!(["n0", "n1", "n2", "n3"])]);
    let token = path.join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let token = token.to_str().unwrap();
    let (removed, _) =
        done(&["replica", "remove", file, "--node", "n0", "--cluster", "shop", "--token-file", token]);
    assert_ne!(removed["asked"], "n0", "the one that goes may not hear of it");
    assert_eq!(
        each(&removed, "members"),
        [json!(["n1", "n2", "n3"]), json!(["n1", "n2", "n3"])],
        "{removed}"
    );

    let mut client = client(addresses[1].redis);
    for key in 0..50 {
        let key = key.to_string();
        until("a write", || matches!(client.ask(&["SET", &key, "1"]), Ok(Reply::Text(_))).then_some(()));
    }
    let (moved, first) = done(&["range", "move", file, "--from", "0", "--to", "1"]);
    assert!(!first || moved["keys"].as_u64().is_some_and(|keys| keys > 0 && keys < 52), "{moved}");
    let (status, out, err) = give(&["range", "list", file, "--format", "json"]);
    assert_eq!(status, 0, "{err}");
    let list: Value = serde_json::from_str(&out).unwrap();
    let ranges = list["ranges"].as_array().unwrap();
    assert!(!ranges.is_empty() && ranges.iter().all(|range| range["partition"] == 1), "{list}");
    assert_eq!(ranges[0]["first"], "0000000000000000", "{list}");
    let (status, out, _) = give(&["range", "list", file]);
    assert!(status == 0 && out.contains(" knows it\n  first "), "{out}");

    // The first of the members is away: another one is asked.
    processes[1].signal("KILL");
    assert_eq!(processes[1].end(), None);
    assert_ne!(done(&lead).0["asked"], "n1");

    let stop = ["stop", file, "--node", "n3", "--cluster", "shop"];
    let (status, out, err) = give(&stop);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("n3 has stopped; took "), "{out}");
    assert_eq!(processes[3].end(), Some(0));
    let (status, out, err) = give(&stop);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(
        err.contains("nothing was sent\n  n3, ") && err.contains("on that of n3 run: isochrone stop "),
        "{err}"
    );
}

/// What answers as node `n0` or `n1` of two, and goes when it is given an order. How many it was given.
fn deaf(index: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, orders) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&orders);
    let keyspace = json!({"name": "main", "leaders": ["n0"], "members": [["n0", "n1"]]});
    let peers = json!([{"name": format!("n{}", 1 - index)}]);
    let status = json!({
        "cluster": "shop", "node": format!("n{index}"), "ready": true, "peers": peers, "keyspaces": [keyspace],
    });
    let status = status.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.push(byte[0]);
            }
            if head.starts_with(b"POST ") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            if head.starts_with(b"GET /status ") {
                let length = status.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{status}"
                );
                // Who has asked may be gone.
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    (address, orders)
}

#[test]
fn an_order_whose_outcome_nobody_knows_is_not_given_again() {
    let nodes = [deaf(0), deaf(1)];
    let [first, second] = [0, 1].map(|index| nodes[index].0.to_string());
    let words = ["move-leader", "--http", &first, "--http", &second, "--to", "n1"];
    let (status, out, err) = give(&words);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("the order may still be carried out, and was given to nobody else"), "{err}");
    assert!(err.contains(&format!("isochrone status --http {first} --http {second}")), "{err}");
    let given = || nodes.iter().map(|(_, orders)| orders.load(Ordering::SeqCst)).sum::<usize>();
    assert_eq!(given(), 1);
    let (status, out, _) = give(&[&words[..], &["--format", "json"]].concat());
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &told["outcome"], &told["node"]), (1, &json!("unknown"), &json!("n1")));
    assert_eq!(given(), 2);
    let (status, _, err) = give(&[&words[..5], &["--to", "n2"]].concat());
    assert_eq!((status, given()), (2, 2), "{err}");
    assert!(err.contains("cluster shop has no node of this name\n  there are n0, n1"), "{err}");
}
