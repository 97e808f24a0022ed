//! Whether a keyspace of `curp` serves is whether its master does, however many of its nodes are within reach.

use super::processes::{Process, client, deployment_of, figure, leader, node, nodes, page, serves, until};
use super::resp::Reply;

#[test]
fn without_a_master_curp_is_not_ready_and_says_that_nothing_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(5);
    let file = deployment_of(path, "five.toml", "ready", &addresses, "curp");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "parameters = { f = 1, time_limit = \"4s\" }\n").unwrap();
    let mut processes: Vec<Process> = (0..5).map(|index| node(&file, index, path)).collect();
    serves(addresses[2].redis);
    let says = |index: usize, what: &str| {
        until(what, || page(addresses[index].http, "/readyz").filter(|text| text.trim_end() == what));
    };
    for index in 0..5 {
        says(index, "main: ready, 2 replicas, 5 of 5 nodes reachable");
    }

    let master = until("a master", || leader(addresses[2].http));
    let holds = |index: &usize| {
        format!("n{index}") == master
            || figure(addresses[*index].http, "stands", "witness_slots_used").is_some()
    };
    let (lost, left): (Vec<usize>, Vec<usize>) = (0..5).partition(holds);
    assert_eq!(lost.len(), 2, "the master and one copy");
    for index in &lost {
        processes[*index].signal("KILL");
    }
    for index in &lost {
        assert_eq!(processes[*index].end(), None);
    }
    for index in &left {
        says(*index, "main: no master serves, 2 replicas, 3 of 5 nodes reachable");
        let metrics = page(addresses[*index].http, "/metrics").unwrap();
        assert!(metrics.contains("\nisochrone_ready 0\n"), "{metrics}");
    }
    // A read has no effect in any case; of a write that comes after it nobody was asked.
    let mut asker = client(addresses[left[0]].redis);
    for command in [&["GET", "pulse"][..], &["SET", "pulse", "none"], &["INCR", "count"]] {
        let answer = asker.ask(command);
        assert!(matches!(&answer, Ok(Reply::Error(text)) if text.starts_with("NOLEADER ")), "{answer:?}");
    }

    for index in &lost {
        processes[*index] = node(&file, *index, path);
    }
    for (index, place) in addresses.iter().enumerate() {
        says(index, "main: ready, 2 replicas, 5 of 5 nodes reachable");
        serves(place.redis);
    }
    let count = client(addresses[left[0]].redis).ask(&["INCR", "count"]);
    assert!(matches!(count, Ok(Reply::Number(1))), "{count:?}");
}
