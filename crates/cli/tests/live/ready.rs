//! A keyspace is ready where a majority of those who are its replicas now is within reach. Whether one of `curp` serves is
//! whether its master does, however many of its nodes are within reach.

use super::processes::{
    PATIENCE, Process, client, deployment, deployment_of, figure, isochrone, leader, node, nodes, outcome,
    page, page_within, serves, until,
};
use super::replace::order;
use super::resp::{Client, Reply};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};

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
    let copy = *lost.iter().find(|index| format!("n{index}") != master).unwrap();
    let waits = |reached| {
        format!("main: no master serves, 2 replicas, {reached} of 5 nodes reachable; waits for n{copy}")
    };
    for index in &left {
        says(*index, &waits(3));
        let metrics = page_within(addresses[*index].http, "/metrics", PATIENCE).unwrap();
        assert!(metrics.contains("\nisochrone_ready 0\n"), "{metrics}");
    }
    // A read has no effect in any case; of a write that comes after it nobody was asked.
    let mut asker = client(addresses[left[0]].redis);
    for command in [&["GET", "pulse"][..], &["SET", "pulse", "none"], &["INCR", "count"]] {
        let answer = asker.ask(command);
        assert!(matches!(&answer, Ok(Reply::Error(text)) if text.starts_with("NOLEADER ")), "{answer:?}");
    }

    // A master that was started again does not go on by itself.
    let first = *lost.iter().find(|index| **index != copy).unwrap();
    processes[first] = node(&file, first, path);
    says(first, &waits(4));
    let (_, out, _) = outcome(["status", file.to_str().unwrap()]);
    let note = format!("not ready at {master}, which reaches 4 of 5, and waits for n{copy}\n");
    assert!(out.contains(&note), "{out}");
    processes[copy] = node(&file, copy, path);
    for (index, place) in addresses.iter().enumerate() {
        says(index, "main: ready, 2 replicas, 5 of 5 nodes reachable");
        serves(place.redis);
    }
    let count = client(addresses[left[0]].redis).ask(&["INCR", "count"]);
    assert!(matches!(count, Ok(Reply::Number(1))), "{count:?}");
}

/// Its managers go on without a copy that is lost, so that none of its members is away.
#[test]
fn a_copy_of_curp_whose_node_is_lost_is_missed_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment_of(path, "three.toml", "missed", &addresses, "curp");
    let name = file.to_str().unwrap();
    let mut processes: Vec<Process> = (0..3).map(|index| node(&file, index, path)).collect();
    serves(addresses[0].redis);
    let healthy = || {
        until("a status that misses nobody", || (outcome(["status", name]).0 == 0).then_some(()));
    };
    healthy();
    let master = until("a master", || leader(addresses[0].http));
    let lost = (0..3).find(|index| format!("n{index}") != master).unwrap();
    processes[lost].signal("KILL");
    assert_eq!(processes[lost].end(), None);
    let note = format!("  keyspace main has 2 of 3 replicas, and none at n{lost}: ");
    let out = until(&note, || {
        let (status, out, _) = outcome(["status", name]);
        out.contains(&note).then(|| {
            assert_eq!(status, 1, "{out}");
            out
        })
    });
    assert!(out.contains(&format!("  n{lost} does not tell how it stands")), "{out}");
    assert!(out.contains(&format!(" has no link to n{lost} for ")), "{out}");
    assert!(!out.contains("member of nothing"), "{out}");
    let left = (0..3).find(|index| *index != lost).unwrap();
    let stands = |what| figure(addresses[left].http, "stands", what);
    until("figures", || (stands("replicas")? == 2 && stands("replicas_wanted")? == 3).then_some(()));
    let (status, out, _) = outcome(["status", name, "--format", "json"]);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, &shown["ready"]), (1, &Value::from(false)), "{out}");

    processes[lost] = node(&file, lost, path);
    healthy();
}

/// The pings of `isochrone up` come through a cut, for its nodes are connected: what they say of a master does not count.
#[test]
fn a_region_of_curp_that_is_cut_off_from_its_master_is_not_ready() {
    const REGIONS: [&str; 3] = ["North", "South", "East"];
    let folder = tempfile::tempdir().unwrap();
    let table = "region,North,South,East\nNorth,0,4,6\nSouth,4,0,8\nEast,6,8,0\n";
    std::fs::write(folder.path().join("near.csv"), table).unwrap();
    let mut text = "cluster = \"near\"\n[network]\nrtt = \"near.csv\"\n".to_owned();
    for region in REGIONS {
        let name = region.to_lowercase();
        text +=
            &format!("[[region]]\nname = \"{region}\"\n[[node]]\nname = \"{name}\"\nregion = \"{region}\"\n");
    }
    text += "[[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\n";
    let file = folder.path().join("near.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = isochrone(["up", "--plain", "--format", "json", "--port", "0"]);
    command.arg(&file);
    let up = Process::start(command);
    let ready: Value = serde_json::from_str(&up.line().expect("a line")).expect("JSON");
    let regions = ready["regions"].as_array().expect("a list").iter();
    let http: Vec<SocketAddr> = regions.map(|row| row["http"].as_str().unwrap().parse().unwrap()).collect();
    let says = |index: usize, begin: &str| {
        until(begin, || page(http[index], "/readyz").filter(|text| text.starts_with(begin)));
    };
    (0..3).for_each(|index| says(index, "main: ready, "));

    let master = until("a master", || leader(http[0]));
    let cut = REGIONS.iter().position(|region| region.to_lowercase() != master).unwrap();
    let others = (0..3).filter(|index| *index != cut);
    let asked = http[usize::from(cut == 0)].to_string();
    let net = |what: &str| {
        let (status, out, err) = outcome(["net", what, REGIONS[cut], "--http", &asked]);
        assert_eq!(status, 0, "{out}\n{err}");
    };
    net("cut");
    says(cut, "main: no master serves, ");
    others.for_each(|index| says(index, "main: ready, "));
    net("heal");
    says(cut, "main: ready, ");
}

/// Of `n0` to `n2`, `n3` takes the place of `n0`; then two of the four are lost, and two others.
fn counts_the_replicas_of_now(protocol: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(4);
    let file = deployment_of(path, "four.toml", "members", &addresses, protocol);
    let text = std::fs::read_to_string(&file).unwrap();
    let more = "replicas = [\"n0\", \"n1\", \"n2\"]\nparameters = { spares = \"n3\" }\n";
    std::fs::write(&file, text + more).unwrap();
    let mut processes: Vec<Process> = (0..4).map(|index| node(&file, index, path)).collect();
    let says = |index: usize, what: &str| {
        let line = format!("main: {what} replicas reachable\n");
        until(&format!("{protocol}: {line}"), || {
            page(addresses[index].http, "/readyz").filter(|text| *text == line)
        });
        let ready = format!("\nisochrone_ready {}\n", u8::from(what.starts_with("ready")));
        until(&ready, || page(addresses[index].http, "/metrics").filter(|text| text.contains(&ready)));
    };
    let (three, two, one) = ("ready, 3 of 3", "ready, 2 of 3", "no quorum, 1 of 3");
    serves(addresses[3].redis);
    (0..4).for_each(|index| says(index, three));
    for (what, replica) in [("add-replica", "n3"), ("remove-replica", "n0")] {
        until(what, || {
            order(addresses[1].http, what, replica).inspect_err(|why| println!("{what}: {why}")).ok()
        });
    }
    serves(addresses[2].redis);
    (1..4).for_each(|index| says(index, three));

    let lose = |processes: &mut Vec<Process>, lost: [usize; 2]| {
        for index in lost {
            processes[index].signal("KILL");
            assert_eq!(processes[index].end(), None);
        }
    };
    lose(&mut processes, [2, 3]);
    says(1, one);
    for index in [2, 3] {
        processes[index] = node(&file, index, path);
    }
    (1..4).for_each(|index| says(index, three));
    lose(&mut processes, [0, 1]);
    for index in [2, 3] {
        says(index, two);
        serves(addresses[index].redis);
    }
}

#[test]
fn where_members_change_in_the_log_those_of_now_are_counted() {
    counts_the_replicas_of_now("multipaxos");
    counts_the_replicas_of_now("curp-consensus");
}

#[test]
fn where_members_change_by_stop_and_hand_over_those_of_now_are_counted() {
    for protocol in ["mencius", "epaxos", "sdpaxos", "fastpaxos", "domino"] {
        counts_the_replicas_of_now(protocol);
    }
}

#[test]
fn while_it_reads_its_journal_a_node_lives_refuses_clients_and_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(1);
    let file = deployment(path, "one.toml", "journal", &addresses);
    let mut first = node(&file, 0, path);
    serves(addresses[0].redis);
    let (mut writer, value) = (client(addresses[0].redis), "v".repeat(1 << 20));
    for index in 0..100 {
        let reply = writer.ask(&["SET", &format!("key:{}", index % 10), &value]);
        assert_eq!(reply.unwrap(), Reply::Text("OK".to_owned()));
    }
    first.signal("KILL");
    assert_eq!(first.end(), None);

    let log = path.join("again.log");
    let mut command = isochrone(["node".as_ref(), file.as_os_str(), "--name".as_ref(), "n0".as_ref()]);
    command.arg("--data").arg(path.join("n0")).stderr(std::fs::File::create(&log).unwrap());
    let again = Process::start(command);
    let (mut lives, mut waits) = (false, false);
    let mut asker = until("a client is taken", || {
        // Whoever is taken is answered.
        if let Ok(socket) = TcpStream::connect(addresses[0].redis) {
            drop(socket);
            return Client::connect(addresses[0].redis).ok();
        }
        lives |= page(addresses[0].http, "/healthz").is_some_and(|text| text == "ok\n");
        waits |= page(addresses[0].http, "/readyz").is_some_and(|text| text == "reading the journal\n");
        None
    });
    assert!(lives && waits, "lives: {lives}, waits: {waits}");
    assert_eq!(asker.ask(&["PING"]).unwrap(), Reply::Text("PONG".to_owned()));
    let line = again.line();
    assert!(line.as_ref().is_some_and(|line| line.contains("is ready")), "{line:?}");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("reading the journal; clients are refused meanwhile"), "{said}");
    until("ready", || page(addresses[0].http, "/readyz").filter(|text| text.starts_with("main: ready")));
}
