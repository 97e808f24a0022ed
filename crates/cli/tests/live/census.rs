//! `INFO keyspace`: each node counts what it holds, and asks nobody.

use super::processes::{Addresses, Process, client, deployment_of, node, nodes, until};
use super::resp::{Client, Reply};
use std::net::SocketAddr;

const NODES: usize = 3;

/// What a node says of the keyspace.
pub fn keys(address: SocketAddr) -> Option<String> {
    let Ok(Reply::Text(text)) = Client::connect(address).ok()?.ask(&["INFO", "keyspace"]) else {
        return None;
    };
    text.lines().find(|line| line.starts_with("db0:")).map(str::to_owned)
}

/// How many keys a node says that its replicas have deleted because their time was over.
fn expired(address: SocketAddr) -> Option<u64> {
    let Ok(Reply::Text(text)) = Client::connect(address).ok()?.ask(&["INFO", "stats"]) else { return None };
    text.lines().find_map(|line| line.strip_prefix("expired_keys:")?.trim().parse().ok())
}

fn all_say(nodes: &[Addresses], line: &str) {
    for Addresses { redis, .. } in nodes {
        until(line, || (keys(*redis)? == line).then_some(()));
    }
}

#[test]
fn each_node_counts_the_keys_that_it_holds_of_a_keyspace_of_transactions() {
    for protocol in ["carousel-fast", "carousel-basic 2", "2pc 2", "tapir"] {
        let folder = tempfile::tempdir().unwrap();
        let nodes = nodes(NODES);
        let file = deployment_of(folder.path(), "three.toml", "census", &nodes, protocol);
        let mut processes: Vec<Process> = (0..NODES).map(|index| node(&file, index, folder.path())).collect();
        assert_eq!(keys(nodes[0].redis), None, "nothing is said of what is empty");
        let mut client = client(nodes[0].redis);
        let mut ask = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            until(line, || client.ask(&words).ok().filter(|reply| !matches!(reply, Reply::Error(_))));
        };
        for line in [
            "SET a 1",
            "SET b 1 EX 1000",
            "RPUSH c 1 2 3",
            "EXPIRE c 1000",
            "HSET d f v",
            "EXPIRE d 1000",
            "PERSIST d",
            "SET e 1",
            "DEL e",
            "MSET f 1 g 1",
            "RENAME f g",
        ] {
            ask(line);
        }
        all_say(&nodes, "db0:keys=5,expires=2,avg_ttl=0");
        processes[2].signal("KILL");
        processes[2].end();
        ask("DEL b g");
        processes[2] = node(&file, 2, folder.path());
        all_say(&nodes, "db0:keys=3,expires=1,avg_ttl=0");
    }
}

/// What no command touches goes from all replicas, and soon also when whoever saw to it is gone.
#[test]
fn keys_that_nobody_touches_go_when_their_time_is_over() {
    for protocol in ["multipaxos", "epaxos", "curp", "curp-consensus"] {
        they_go(protocol, true);
    }
}

/// There, each as a transaction with others that are over.
#[test]
fn keys_of_transactions_that_nobody_touches_go_when_their_time_is_over() {
    for protocol in ["carousel-fast", "2pc 2", "tapir"] {
        they_go(protocol, false);
    }
}

fn they_go(protocol: &str, counted: bool) {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(NODES);
    let file = deployment_of(folder.path(), "three.toml", "expiry", &nodes, protocol);
    let mut processes: Vec<Process> = (0..NODES).map(|index| node(&file, index, folder.path())).collect();
    let mut client = client(nodes[1].redis);
    let mut ask = |words: &[&str]| {
        until("a reply", || client.ask(words).ok().filter(|reply| !matches!(reply, Reply::Error(_))))
    };
    let mut keys_for_a_moment = |name: &str| {
        for number in 0..50 {
            ask(&["SET", &format!("{name}{number}"), "v", "PX", "100"]);
        }
        ask(&["RPUSH", "list", "1"]);
    };
    keys_for_a_moment("one");
    let holders = if protocol == "curp" { 2 } else { NODES };
    let only_the_list = |nodes: &[Addresses], least: usize| {
        until("only the list is left", || {
            let said: Vec<_> = nodes.iter().filter_map(|node| keys(node.redis)).collect();
            let gone = said.iter().all(|line| line == "db0:keys=1,expires=0,avg_ttl=0");
            (said.len() >= least && gone).then_some(())
        });
    };
    only_the_list(&nodes, holders);
    if counted {
        until("every holder has deleted fifty", || {
            let counts = nodes.iter().filter_map(|node| expired(node.redis));
            (counts.filter(|count| *count >= 50).count() >= holders).then_some(())
        });
    }
    processes[0].signal("KILL");
    processes[0].end();
    keys_for_a_moment("other");
    only_the_list(&nodes[1..], holders - 1);
}
