//! `isochrone up`: the whole cluster in one process.

use super::processes::{Process, client, isochrone, outcome, until};
use super::resp::{Reply, ask};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Instant;

const REGIONS: [&str; 3] = ["North", "South", "East"];

/// Three regions, milliseconds apart.
fn near(folder: &Path) -> PathBuf {
    fs::write(folder.join("near.csv"), "region,North,South,East\nNorth,0,4,6\nSouth,4,0,8\nEast,6,8,0\n")
        .unwrap();
    let mut text = "cluster = \"near\"\n[network]\nrtt = \"near.csv\"\n".to_owned();
    for region in REGIONS {
        let name = region.to_lowercase();
        text +=
            &format!("[[region]]\nname = \"{region}\"\n[[node]]\nname = \"{name}\"\nregion = \"{region}\"\n");
    }
    text += "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nleader = \"North\"\n";
    let path = folder.join("near.toml");
    fs::write(&path, text).unwrap();
    path
}

struct Up {
    process: Process,
    doors: Vec<SocketAddr>,
    grpc: Vec<String>,
    start: Instant,
}

fn up(folder: &Path, more: &[&str]) -> Up {
    let start = Instant::now();
    let mut command = isochrone(["up", "--plain", "--format", "json", "--port", "0"]);
    command.arg(near(folder)).args(more);
    let process = Process::start(command);
    let ready: Value = serde_json::from_str(&process.line().expect("a line")).expect("JSON");
    assert_eq!(ready["ready"], true, "{ready}");
    assert_eq!(ready["cluster"], "near");
    let regions = ready["regions"].as_array().expect("a list");
    assert_eq!(regions.iter().map(|region| region["region"].as_str().unwrap()).collect::<Vec<_>>(), REGIONS);
    let doors = regions.iter().map(|region| region["redis"].as_str().unwrap().parse().unwrap()).collect();
    let grpc = regions.iter().map(|region| region["grpc"].as_str().unwrap().to_owned()).collect();
    Up { process, doors, grpc, start }
}

#[test]
fn every_region_serves_what_any_has_written() {
    let folder = tempfile::tempdir().unwrap();
    let Up { mut process, doors, start, .. } = up(folder.path(), &["--for", "8s"]);
    let mut clients: Vec<_> = doors.iter().map(|door| client(*door)).collect();
    for index in 0..clients.len() {
        let (key, value) = (format!("city:{index}"), format!("Lisbon {index}"));
        assert_eq!(ask(&mut clients[index], &["SET", &key, &value]), Reply::Text("OK".to_owned()));
        if index == 0 {
            println!("start to first served command: {:?}", start.elapsed());
        }
        for other in &mut clients {
            assert_eq!(ask(other, &["GET", &key]), Reply::Text(value.clone()));
        }
    }
    println!("memory with three idle regions: {:?} MiB", process.memory_mib());
    let lines: Vec<Value> = std::iter::from_fn(|| process.line())
        .map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let last = lines.last().expect("a summary");
    assert_eq!(last["final"], true, "{last}");
    assert!(lines[..lines.len() - 1].iter().all(|line| line["final"].is_null()));
    for (row, region) in last["regions"].as_array().unwrap().iter().zip(REGIONS) {
        assert_eq!(row["region"], region);
        assert_eq!(row["state"], "up", "{row}");
        // A SET and three GETs each; the emulated way to the leader and back, and its quorum's, cannot be faster.
        assert_eq!(row["operations"], 4, "{row}");
        let (p50, floor) = (row["p50_ms"].as_f64().unwrap(), row["floor_ms"].as_f64().unwrap());
        assert!(floor > 3.9 && row["p99_ms"].as_f64().unwrap() >= floor * 0.95, "{row}");
        assert!(p50 > 0.0, "{row}");
    }
    assert_eq!(process.end(), Some(0));
}

#[test]
fn transactions_are_measured_and_their_history_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let Up { mut process, grpc, .. } = up(folder.path(), &["--protocol", "carousel-fast"]);
    let history = folder.path().join("history.jsonl").to_str().unwrap().to_owned();
    let endpoints: Vec<&str> = grpc.iter().flat_map(|door| ["--endpoint", door]).collect();
    let words = ["bench", "--workload", "bank", "--clients", "6", "--duration", "1s", "--format", "json"];
    let (status, out, err) = outcome([&words[..], &["--history", &history], &endpoints].concat());
    assert_eq!(status, 0, "{out}\n{err}");
    let measured: Value = serde_json::from_str(&out).expect("JSON");
    let count = |value: &Value| value.as_u64().expect("a count");
    assert!(count(&measured["committed"]) > 20, "{measured}");
    assert_eq!((&measured["unknown"], &measured["refused"]), (&0.into(), &0.into()), "{measured}");
    assert_eq!(measured["broken"], Value::Array(Vec::new()), "{measured}");
    let regions = measured["regions"].as_array().unwrap();
    let named: Vec<_> = regions.iter().map(|region| region["name"].as_str().unwrap()).collect();
    assert_eq!(named, grpc);
    let sum: u64 = regions.iter().map(|region| count(&region["committed"])).sum();
    assert_eq!(
        (sum, count(&measured["all"]["committed"])),
        (count(&measured["committed"]), sum),
        "{measured}"
    );
    let check = ["check", &history, "--model", "transactions", "--isolation", "strictly-serializable"];
    let (status, out, err) = outcome(check);
    assert_eq!(status, 0, "{out}\n{err}");

    for (words, expected) in [
        (&["--workload", "retwis", "--pipeline", "2"][..], "--conflict and --pipeline are for commands"),
        (&["--workload", "retwis", "--records", "3"], "use at least 10"),
        (&["--workload", "tpcc"], "there are retwis, ycsbt, smallbank, bank, ledger, txn-check"),
        (&["--workload", "set", "--keyspace", "main"], "--keyspace is for transactions"),
    ] {
        let (status, out, err) = outcome([&["bench"][..], words, &endpoints].concat());
        assert_eq!(status, 2, "{words:?}\n{out}\n{err}");
        assert!(err.contains(expected), "{words:?}: {err}");
    }
    let nowhere = ["bench", "--workload", "retwis", "--keyspace", "other", "--duration", "1s"];
    let (status, out, err) = outcome([&nowhere[..], &endpoints].concat());
    assert_eq!(status, 1, "{out}\n{err}");
    assert!(err.contains("there is no keyspace \"other\"; there is: main"), "{err}");
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
}

#[test]
fn a_signal_ends_it_in_order_and_data_is_kept_where_it_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    for (signal, words, expected) in [
        ("TERM", ["APPEND", "log", "a"], Reply::Number(1)),
        ("INT", ["APPEND", "log", "b"], Reply::Number(2)),
    ] {
        let Up { mut process, doors, .. } = up(folder.path(), &["--data", data]);
        assert_eq!(ask(&mut client(doors[2]), &words), expected);
        process.signal(signal);
        assert_eq!(process.end(), Some(0), "{signal}");
    }
}

#[test]
fn plain_text_says_where_to_connect() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = isochrone(["up", "--plain", "--port", "0"]);
    command.arg(near(folder.path()));
    let mut process = Process::start(command);
    let mut out = String::new();
    while !out.contains("try: redis-cli -p ") {
        let Some(line) = process.line() else { panic!("no greeting: {out}") };
        out += &format!("{line}\n");
    }
    assert!(
        out.starts_with("near: keyspace main, multipaxos, linearizable\n  North  redis 127.0.0.1:"),
        "{out}"
    );
    process.signal("TERM");
    let rest: Vec<String> = std::iter::from_fn(|| process.line()).collect();
    assert!(rest.last().is_some_and(|line| line.starts_with("whole run: 0 operations")), "{rest:?}");
    assert_eq!(process.end(), Some(0));
}

#[test]
fn where_not_all_regions_serve_in_time_it_ends_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let config = near(folder.path());
    // No majority has heard of another by then.
    let far = "region,North,South,East\nNorth,0,4000,4000\nSouth,4000,0,4000\nEast,4000,4000,0\n";
    fs::write(folder.path().join("near.csv"), far).unwrap();
    for more in [&[] as &[&str], &["--format", "json"]] {
        let words = ["up", "--plain", "--port", "0", "--for", "100ms", config.to_str().unwrap()];
        let (status, out, err) = outcome([&words[..], more].concat());
        assert_eq!((status, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("not all regions serve yet, and --for is over"), "{err}");
    }
}

#[test]
fn a_port_in_use_is_named_with_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let config = near(folder.path());
    // Two in a row, so that the second region's is the one in use.
    let (taken, port) = until("two free ports in a row", || {
        let taken = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = taken.local_addr().ok()?.port();
        let before = port.checked_sub(1)?;
        TcpListener::bind(("127.0.0.1", before)).is_ok().then_some((taken, before))
    });
    let first = port.to_string();
    let (status, out, err) = outcome(["up", "--plain", config.to_str().unwrap(), "--port", &first]);
    drop(taken);
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    let other = if port < 50_000 { port + 100 } else { 7101 };
    assert_eq!(
        err,
        format!(
            "isochrone: 127.0.0.1:{}, the Redis port of South: in use by another program\n  \
             choose other ports, e.g. --port {other}, or let the system choose: --port 0\n",
            port + 1
        )
    );
}

#[test]
fn ports_beyond_the_last_are_refused() {
    let (status, _, err) = outcome(["up", "--plain", "--port", "65533"]);
    assert_eq!(status, 2);
    assert_eq!(err, "isochrone: --port 65533: 5 regions need as many ports; use at most --port 65531\n");
}
