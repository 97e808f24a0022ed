//! Operators move the leader while clients count, and then a leader that was moved to is killed: totals are exact.

use super::processes::{deployment_of, leader, node, nodes, serves, until};
use super::replace::order;
use super::resp::{Client, Reply};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// What the counters and the test tell each other.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Increments that were acknowledged to anybody.
    done: AtomicI64,
}

/// Counts until it is told to stop: how many increments were acknowledged, and of how many nobody knows.
fn counter(redis: std::net::SocketAddr, shared: Arc<Shared>) -> std::thread::JoinHandle<(i64, i64)> {
    std::thread::spawn(move || {
        let (mut done, mut unknown, mut connection) = (0, 0, None);
        while !shared.stop.load(Ordering::SeqCst) {
            if connection.is_none() {
                connection = Client::reconnect(redis);
            }
            let Some(client) = &mut connection else { continue };
            match client.ask(&["INCR", "count"]) {
                Ok(Reply::Number(_)) => {
                    done += 1;
                    shared.done.fetch_add(1, Ordering::SeqCst);
                }
                Ok(Reply::Error(text)) if !text.starts_with("UNKNOWN") => {}
                Ok(Reply::Error(_)) => unknown += 1,
                _ => (unknown, connection) = (unknown + 1, None),
            }
        }
        (done, unknown)
    })
}

fn moved(protocol: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment_of(path, "cluster.toml", "moved", &addresses, protocol);
    let mut processes: Vec<_> = (0..3).map(|index| node(&file, index, path)).collect();
    serves(addresses[0].redis);
    let refused = order(addresses[0].http, "move-leader", "n9").unwrap_err();
    assert!(refused.contains("there is no node"), "{refused}");
    let shared = Arc::new(Shared::default());
    let counters: Vec<_> =
        addresses.iter().map(|addresses| counter(addresses.redis, Arc::clone(&shared))).collect();
    let move_to = |heir: usize, asked: usize| {
        let name = format!("n{heir}");
        until("the order", || {
            order(addresses[asked].http, "move-leader", &name)
                .inspect_err(|why| println!("{name}: {why}"))
                .ok()
        });
        until("the leader", || leader(addresses[heir].http).filter(|leads| *leads == name));
        // However slow the machine is: clients get on under each leader.
        let before = shared.done.load(Ordering::SeqCst);
        until("some increments", || (shared.done.load(Ordering::SeqCst) > before + 3).then_some(()));
    };
    for round in 0..6 {
        move_to((round + 1) % 3, round % 3);
    }
    // The one that was moved to last is killed: another leads without being told to; it comes back, and leads again.
    processes[0].signal("KILL");
    assert_eq!(processes[0].end(), None);
    until("another leader", || leader(addresses[1].http).filter(|leads| leads != "n0"));
    processes[0] = node(&file, 0, path);
    move_to(0, 1);
    shared.stop.store(true, Ordering::SeqCst);
    let told: Vec<(i64, i64)> = counters.into_iter().map(|counter| counter.join().unwrap()).collect();
    let least: i64 = told.iter().map(|(done, _)| done).sum();
    let most = least + told.iter().map(|(_, unknown)| unknown).sum::<i64>();
    for addresses in &addresses {
        let count =
            until("the count", || match Client::connect(addresses.redis).ok()?.ask(&["GET", "count"]) {
                Ok(Reply::Text(text)) => text.parse::<i64>().ok(),
                _ => None,
            });
        assert!((least..=most).contains(&count), "{count} is not from {least} to {most}");
    }
    assert!(least > 20, "{told:?}");
}

#[test]
fn the_master_of_curp_is_moved_and_killed() {
    moved("curp");
}

#[test]
fn the_leader_of_curp_consensus_is_moved_and_killed() {
    moved("curp-consensus");
}

#[test]
fn the_leader_of_a_partition_of_transactions_is_moved_and_killed() {
    moved("2pc");
}

/// The master of three is taken out, and switched off; a write needs the other two. Then none more may go, until it comes
/// back and is let in again.
#[test]
fn the_master_of_curp_is_removed_and_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment_of(path, "cluster.toml", "removed", &addresses, "curp");
    let mut processes: Vec<_> = (0..3).map(|index| node(&file, index, path)).collect();
    let write = |value: &str| {
        until("a write", || {
            let mut client = Client::connect(addresses[1].redis).ok()?;
            matches!(client.ask(&["SET", "pulse", value]), Ok(Reply::Text(_))).then_some(())
        });
    };
    write("first");
    let done = |what: &str, name: &str| {
        until(what, || {
            order(addresses[1].http, what, name).inspect_err(|why| println!("{what} {name}: {why}")).ok()
        });
    };
    let first = until("the master", || leader(addresses[1].http));
    done("move-leader", "n0");
    assert!(["n0", "n1", "n2"].contains(&first.as_str()));
    done("remove-replica", "n0");
    done("remove-replica", "n0");
    until("another master", || leader(addresses[1].http).filter(|name| name != "n0"));
    let few = until("a refusal", || {
        order(addresses[1].http, "remove-replica", "n2").err().filter(|why| why.contains("too few replicas"))
    });
    assert!(few.contains("409"), "{few}");
    processes[0].signal("KILL");
    assert_eq!(processes[0].end(), None);
    write("second");
    processes[0] = node(&file, 0, path);
    done("add-replica", "n0");
    done("remove-replica", "n2");
    processes[2].signal("KILL");
    assert_eq!(processes[2].end(), None);
    write("third");
}
