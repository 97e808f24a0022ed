//! Real nodes whose links carry less than is sent.

use super::processes::{Addresses, client, deployment_of, leader, node, nodes, until};
use super::proxy::{Proxy, between, seen};
use super::resp::Reply;
use std::time::{Duration, Instant};

const NODES: usize = 3;
/// Bytes a second and direction.
const RATE: u32 = 2_000_000;
/// Takes four seconds on a link, many times as long as silence is borne.
const LARGE: usize = 8_000_000;

#[test]
fn multipaxos_carries_a_large_value_over_slow_links() {
    carries("multipaxos");
}

#[test]
fn curp_carries_a_large_value_over_slow_links() {
    carries("curp");
}

#[test]
fn epaxos_carries_a_large_value_over_slow_links() {
    carries("epaxos");
}

/// A heartbeat that waited behind as much as fast links are given at a time would come too late, and so would its answer.
#[test]
fn two_values_over_links_that_carry_very_little_depose_nobody() {
    const RATE: u32 = 200_000;
    const LARGE: usize = 400_000;
    over("multipaxos", RATE, |addresses| {
        let first = until("a leader", || led(addresses));
        let serves = |at: &Addresses| client(at.redis).ask(&["SET", "small", "1"]).ok();
        until("a reply", || matches!(serves(&addresses[2])?, Reply::Text(_)).then_some(()));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for (at, name) in addresses.iter().zip(["one", "another"]) {
                scope.spawn(move || {
                    let large = "x".repeat(LARGE);
                    let done = client(at.redis).ask(&["SET", name, &large]).unwrap();
                    assert_eq!(done, Reply::Text("OK".to_owned()), "{name}");
                });
            }
        });
        // To the leader, and both from it to the others.
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
        assert_eq!(until("a leader", || led(addresses)), first, "nobody was taken for dead");
    });
}

/// Whom all of them take for the leader.
fn led(addresses: &[Addresses]) -> Option<String> {
    let mut found: Vec<_> = addresses.iter().map(|node| leader(node.http)).collect();
    found.dedup();
    found.pop().flatten().filter(|_| found.is_empty())
}

/// Nodes between which links carry so many bytes a second.
fn over(protocol: &str, rate: u32, act: impl FnOnce(&[Addresses])) {
    let folder = tempfile::tempdir().unwrap();
    let addresses = nodes(NODES);
    let wires = between(&addresses, |to| Proxy::slow(to, rate));
    let processes: Vec<_> = (0..NODES)
        .map(|me| {
            let seen = seen(&addresses, &wires[me]);
            let file = deployment_of(folder.path(), &format!("n{me}.toml"), "slow", &seen, protocol);
            node(&file, me, folder.path())
        })
        .collect();
    act(&addresses);
    drop(processes);
}

/// Who leads while a value takes long to the others leads still when it has come, and answers; or nobody leads.
fn carries(protocol: &str) {
    over(protocol, RATE, |addresses| {
        let first = (protocol != "epaxos").then(|| until("a leader", || led(addresses)));
        // By way of one that does not lead.
        let other = (0..NODES).find(|index| first != Some(format!("n{index}"))).unwrap();
        let mut client = client(addresses[other].redis);
        until("a reply", || matches!(client.ask(&["SET", "small", "1"]).ok()?, Reply::Text(_)).then_some(()));
        let begun = Instant::now();
        let large = "x".repeat(LARGE);
        assert_eq!(
            client.ask(&["SET", "large", &large]).unwrap(),
            Reply::Text("OK".to_owned()),
            "{protocol}"
        );
        // To the leader, and from it to the others.
        assert!(begun.elapsed() < Duration::from_secs(20), "{protocol}: {:?}", begun.elapsed());
        assert_eq!(client.ask(&["STRLEN", "large"]).unwrap(), Reply::Number(LARGE as i64), "{protocol}");
        if first.is_some() {
            assert_eq!(
                Some(until("a leader", || led(addresses))),
                first,
                "{protocol}: nobody was taken for dead"
            );
        }
    });
}
