//! The verbs whose output other people's scripts read: JSON, exit statuses, replay commands.

use crate::processes::{Process, addresses, isochrone, outcome, there_is_redis, until};
use serde_json::Value;
use std::path::Path;

const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");
const FIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");

#[track_caller]
fn json(words: &[&str], status: i32) -> Value {
    let (found, out, err) = outcome(words);
    assert_eq!(found, status, "{words:?}\n{out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}\n{out}"))
}

#[test]
fn sim_prints_one_object_and_holds() {
    let printed = json(&["sim", THREE, "--seeds", "60", "--faults", "all", "--format", "json"], 0);
    assert_eq!(printed["protocol"], "multipaxos");
    assert_eq!(printed["seeds"], 60);
    assert_eq!(printed["violations"], Value::Array(Vec::new()));
    assert_eq!(printed["undecided"], 0);
    for figure in ["operations", "events", "events_per_second"] {
        assert!(printed[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {printed}");
    }
    let regions = printed["regions"].as_array().unwrap();
    assert_eq!(regions.len(), 3);
    for figure in ["operations", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "mean_ms", "floor_ms"] {
        assert!(regions.iter().all(|region| region[figure].is_number()), "{figure}: {printed}");
    }
    assert!(printed["runs_repeated"].as_u64() >= Some(1), "{printed}");
    // Over a few hundred seeds no kind of fault is missing; this is a sample of the suite's.
    let faults = printed["faults"].as_object().unwrap();
    let happened = faults.values().filter(|count| count.as_u64() > Some(0)).count();
    assert!(happened >= faults.len() - 3, "{faults:?}");
}

#[test]
fn no_kind_of_fault_is_missing_over_many_seeds() {
    let printed = json(&["sim", THREE, "--seeds", "500", "--faults", "all", "--format", "json"], 0);
    for (kind, count) in printed["faults"].as_object().unwrap() {
        assert!(count.as_u64() > Some(0), "{kind} never happened in 500 seeds: {printed}");
    }
}

#[test]
fn a_planted_bug_is_reported_with_a_command_that_shows_it_again() {
    let words =
        ["sim", THREE, "--seeds", "60", "--faults", "all", "--plant", "apply-gap", "--format", "json"];
    let printed = json(&words, 1);
    let found = &printed["violations"][0];
    let replay = found["replay"].as_str().unwrap();
    assert!(replay.contains("--plant apply-gap"), "{replay}");
    let again: Vec<&str> = replay.split(' ').skip(1).chain(["--format", "json"]).collect();
    let replayed = json(&again, 1);
    assert_eq!(replayed["violations"][0]["text"], found["text"]);
    assert_eq!(replayed["violations"][0]["seed"], found["seed"]);
}

#[test]
fn the_same_seed_is_the_same_run_in_another_process() {
    let words = ["sim", THREE, "--seed", "11", "--faults", "all", "--format", "json"];
    assert_eq!(json(&words, 0)["hash"], json(&words, 0)["hash"]);
    let other = json(&["sim", THREE, "--seed", "12", "--faults", "all", "--format", "json"], 0);
    assert_ne!(json(&words, 0)["hash"], other["hash"]);
}

/// The first seed of several is run twice, to see that both runs are the same: what it shows is still that of one run.
#[test]
fn a_seed_that_is_run_twice_counts_once() {
    let carousel = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/carousel-ec2.toml");
    let run = |file, seeds: [&'static str; 2]| [&["sim", file, "--duration", "10s"][..], &seeds].concat();
    let (one, several) = (["--seed", "0"], ["--seeds", "1"]);
    for file in [THREE, carousel] {
        let [once, twice] =
            [one, several].map(|seeds| json(&[&run(file, seeds)[..], &["--format", "json"]].concat(), 0));
        let repeated = [&once, &twice].map(|printed| printed["runs_repeated"].as_u64());
        assert_eq!(repeated, [Some(0), Some(1)]);
        assert_eq!(once["hash"], twice["hash"]);
        assert!(once["regions"].as_array().is_some_and(|regions| !regions.is_empty()), "{once}");
        assert_eq!(once["regions"], twice["regions"], "{file}");
        assert_eq!(once["committed"], twice["committed"], "{file}");
        // What of all messages belongs to one operation or transaction.
        let [once, twice] = [one, several].map(|seeds| {
            let (status, out, err) = outcome([&run(file, seeds)[..], &["--messages"]].concat());
            assert_eq!(status, 0, "{out}{err}");
            let table = out.lines().skip_while(|line| !line.starts_with("between nodes, for each "));
            table.take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        });
        assert!(once.len() > 3, "{once:?}");
        assert_eq!(once, twice, "{file}");
    }
}

/// A network that loses messages is none of the faults that are asked for.
#[test]
fn what_the_file_says_is_lost_is_told_as_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lossy.toml");
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference");
    let three = std::fs::read_to_string(THREE).unwrap().replace("../reference", reference);
    std::fs::write(&file, three.replace("[network]\n", "[network]\nloss = 0.025\n")).unwrap();
    let (_, out, err) =
        outcome(["sim", file.to_str().unwrap(), "--workload", "set", "--duration", "5s", "--seed", "1"]);
    assert!(out.contains("\nnetwork: 2.5 % of the messages lost, as the file says ("), "{out}{err}");
    assert!(!out.contains("faults:") && !out.contains("reorder"), "{out}");
}

#[test]
fn a_region_without_figures_is_named() {
    let (_, out, err) = outcome(["sim", THREE, "--workload", "set", "--duration", "100ms", "--seed", "1"]);
    let said = "no operation of US West, US East, Euro ended within the measured time\n";
    assert!(out.contains(said), "{out}{err}");
}

#[test]
fn a_simulated_history_is_written_drawn_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (history, drawing) = (path("history.jsonl"), path("flow.svg"));
    let words = [
        "sim",
        THREE,
        "--seed",
        "3",
        "--faults",
        "all",
        "--history",
        &history,
        "--trace-svg",
        &drawing,
        "--trace",
    ];
    let (status, out, err) = outcome(words);
    assert_eq!(status, 0, "{out}{err}");
    assert!(out.contains("us-east.replica -> euro.replica"), "{out}");
    let drawing = std::fs::read_to_string(Path::new(&drawing)).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    assert_eq!(json(&["check", &history, "--format", "json"], 0)["verdict"], "linearizable");
}

#[test]
fn check_tells_held_broken_and_unreadable_apart_by_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, lines).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let set = r#"{"client":0,"session":0,"sequence":1,"key":"x","op":"set","args":["1"],"invoked":1,"returned":2,"outcome":"ok","value":"OK"}"#;
    let get = |value: &str| {
        format!(
            r#"{{"client":1,"session":0,"sequence":1,"key":"x","op":"get","args":[],"invoked":5,"returned":6,"outcome":"ok","value":{value}}}"#
        )
    };
    let good = write("good.jsonl", &format!("{set}\n{}\n", get("\"1\"")));
    let bad = write("bad.jsonl", &format!("{set}\n{}\n", get("null")));
    let none = write("none.jsonl", "{\"client\":");
    assert_eq!(outcome(["check", &good]).0, 0);
    let (status, out, _) = outcome(["check", &bad]);
    assert_eq!(status, 1);
    assert!(out.contains("get x (client 1) returned nil"), "{out}");
    let (status, _, err) = outcome(["check", &none]);
    assert_eq!(status, 2);
    assert!(err.contains("none.jsonl:1"), "{err}");
    // Who cannot say what was found has found nothing. Linux has a file that is always full.
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let told = isochrone(["check", &bad]).stdout(full).output().unwrap();
        let err = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.code() == Some(2) && err.contains("standard output: cannot be written"), "{err}");
    }
}

/// A write that was answered and is missed later: of some keyspaces that is a violation.
#[test]
fn a_history_is_checked_against_what_its_keyspace_promises() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let lines = concat!(
        r#"{"client":1,"session":0,"sequence":1,"key":"x","op":"set","args":["1"],"invoked":0,"returned":1000000,"outcome":"ok","value":"OK"}"#,
        "\n",
        r#"{"client":2,"session":0,"sequence":1,"key":"x","op":"get","args":[],"invoked":2000000,"returned":3000000,"outcome":"ok","value":null}"#,
        "\n"
    );
    std::fs::write(&file, lines).unwrap();
    let file = file.to_str().unwrap();
    for (promise, status, verdict) in [
        ("linearizable", 1, "violation"),
        ("linearizable-by-key", 1, "violation"),
        ("sequenced", 0, "sequenced"),
        ("serializable", 0, "serializable"),
    ] {
        let printed = json(&["check", file, "--promise", promise, "--format", "json"], status);
        assert_eq!((&printed["verdict"], &printed["promise"]), (&verdict.into(), &promise.into()));
    }
    // Who does not say what was promised is told that there is more than one.
    let (status, out, _) = outcome(["check", file]);
    assert!(status == 1 && out.contains("say --promise"), "{out}");
    let (status, out, _) = outcome(["check", file, "--promise", "linearizable"]);
    assert!(status == 1 && !out.contains("--promise"), "{out}");
}

/// What holds of nothing, or can never be, is bad input and told once: neither a success nor a failure of what was asked.
#[test]
fn what_asks_for_nothing_or_names_nothing_is_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "\n").unwrap();
    let one = folder.path().join("one.toml").to_str().unwrap().to_owned();
    let text = format!(
        "cluster = \"one\"\n[[region]]\nname = \"R\"\n[[node]]\nname = \"n\"\nregion = \"R\"\nredis = \"{}\"\n\
         [[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n",
        addresses(1)[0]
    );
    std::fs::write(&one, text).unwrap();
    let (file, directory) = (file.to_str().unwrap(), folder.path().to_str().unwrap());
    let below = format!("{file}/below");
    let long = format!("{directory}/{}", "x".repeat(300));
    let huge = "99999999999999";
    let cases: &[(&[&str], &str)] = &[
        (&["check", "/no/such/history"], "/no/such/history: cannot be read: No such file"),
        (&["check", directory], "Is a directory"),
        (&["check", file], "the history is empty"),
        (&["check", file, "--model", "transactions"], "the history is empty"),
        (&["check", "/no/such/history", "--model", "foo"], "no model is named \"foo\""),
        (&["check", "/no/such/history", "--promise", "foo"], "no promise is named \"foo\""),
        (
            &["check", "/no/such/history", "--model", "transactions", "--promise", "sequenced"],
            "--promise sequenced is for --model kv, the commands of keyspaces; transactions have --isolation",
        ),
        (
            &["sim", THREE, "--set", "foo=1"],
            "isochrone: --set foo=1: keyspace \"main\": unknown parameter \"foo\"",
        ),
        (
            &["sim", THREE, "--protocol", "domino", "--set", "way=foo"],
            "isochrone: --set way=foo: keyspace \"main\": parameter way = foo is not a choice",
        ),
        (
            &[
                "sim",
                THREE,
                "--protocol",
                "carousel-fast",
                "--set",
                "fast_path=false",
                "--set",
                "reads=local",
            ],
            "parameter reads = local is from followers, which want fast_path = true",
        ),
        (&["sim", THREE, "--seeds", "1", "--threads", "0"], "1 to 1024 threads are possible"),
        (&["sim", THREE, "--seeds", "0"], "--seeds"),
        (&["sim", THREE, "--seed", "1", "--from", "1"], "cannot be used with '--from <S>'"),
        (&["sim", THREE, "--seed", "1", "--threads", "1"], "cannot be used with '--threads <T>'"),
        (&["cert", THREE, "--out", &below], "file/below: cannot make the directory: Not a directory"),
        (&["sim", THREE, "--duration", "0s"], "a time above 0"),
        (&["sim", THREE, "--moves", "3"], "--moves 3: the keyspace has one partition"),
        (&["bench"], "not provided:\n  <FILE|--endpoint <HOST:PORT>>"),
        (&["bench", THREE, "--duration", "0s"], "a time above 0"),
        (&["bench", THREE, "--clients", "0"], "--clients"),
        (&["bench", THREE, "--pipeline", "0"], "--pipeline"),
        (&["bench", &one, "--value-size", huge], "has 67108864 bytes at most"),
        (&["bench", "--endpoint", "127.0.0.1:1", "--value-size", huge], "has 536870912 bytes at most"),
        (
            &["bench", "--endpoint", "127.0.0.1:1", "--workload", "retwis", "--value-size", huge],
            "has 536870912 bytes at most",
        ),
        (&["node", &one, "--name", "n", "--data", file], "file: this is no directory"),
        (&["up", "--plain", "--for", "1s", "--data", file], "file: this is no directory"),
        (&["up", "--plain", "--for", "1s", "--data", &below], "file: this is no directory"),
        (&["up", "--plain", "--for", "1s", "--data", &long], "Name a directory that this user can make"),
    ];
    for (words, expected) in cases {
        let (status, out, err) = outcome(*words);
        assert_eq!(status, 2, "{words:?}\n{out}{err}");
        assert_eq!(err.matches(expected).count(), 1, "{words:?}\n{out}{err}");
    }
}

#[test]
fn plan_and_reproduce_print_their_contract() {
    let plan = json(&["plan", FIVE, "--format", "json"], 0);
    assert_eq!(plan["floor_ms"]["US East"], 88.0);
    let protocols = plan["protocols"].as_array().unwrap();
    let led = |row: &&serde_json::Value| row["protocol"] == "multipaxos" && row["leader"] == "US East";
    let first = protocols.iter().find(led).unwrap();
    for name in ["curp-consensus", "mencius", "fastpaxos", "epaxos", "sdpaxos", "domino"] {
        assert!(protocols.iter().any(|row| row["protocol"] == name), "{name} is not forecast");
    }
    assert!(first["regions"][0]["commit_ms"].is_number() && first["mean_ms"].is_number());

    let rows = json(&["reproduce", "self-check", "--format", "json"], 0);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 25);
    for row in rows {
        for column in ["id", "setting", "system", "metric", "published", "measured", "unit", "ratio", "note"]
        {
            assert!(!row[column].is_null(), "{column}: {row}");
        }
    }
    let only = json(&["reproduce", "self-check", "--only", "useast-euro", "--format", "json"], 0);
    assert_eq!(only.as_array().unwrap().len(), 1);
}

/// What `plan` shows of a keyspace that is told something, and what its clients wait in `sim`, by region.
#[track_caller]
fn planned_and_simulated(told: &str, case: Option<&str>, sim: &[&str]) -> (Value, Vec<(f64, f64)>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("told.toml");
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference");
    let five = std::fs::read_to_string(FIVE).unwrap().replace("../reference", reference);
    std::fs::write(&file, five.replace("protocol = \"multipaxos\"", told)).unwrap();
    let file = file.to_str().unwrap();
    let plan = json(&["plan", file, "--format", "json"], 0);
    let same = |row: &&Value| {
        let (configured, leader) = (&plan["configured"], &row["leader"]);
        row["protocol"] == configured["protocol"]
            && row["case"].as_str() == case
            && (leader.is_null() || *leader == configured["leader"])
    };
    let row = plan["protocols"].as_array().unwrap().iter().find(same).unwrap();
    let words = ["sim", file, "--workload", "set", "--duration", "5s", "--format", "json"];
    let simulated = json(&[&words[..], sim].concat(), 0);
    let figures = |of: &Value, figure: &str| -> Vec<f64> {
        of["regions"].as_array().unwrap().iter().map(|region| region[figure].as_f64().unwrap()).collect()
    };
    let waits = figures(row, "commit_ms").into_iter().zip(figures(&simulated, "p50_ms")).collect();
    (row["bound"].clone(), waits)
}

#[test]
fn nobody_waits_longer_in_sim_than_the_plan_says_whatever_the_keyspace_is_told() {
    let execute = Some("reply = execute");
    for (protocol, parameters, case) in [
        ("curp-consensus", "always_synced = true", None),
        ("domino", "heartbeat = \"200ms\"", execute),
        ("domino", "heartbeat = \"500ms\", fast_quorum = 4", execute),
        ("domino", "learners = \"sole\"", execute),
        ("domino", "way = \"fast\"", execute),
        ("domino", "way = \"fast\", reply = \"commit\"", Some("reply = commit")),
    ] {
        let told = format!("protocol = {protocol:?}\nparameters = {{ {parameters} }}");
        let (_, waits) = planned_and_simulated(&told, case, &[]);
        assert_eq!(waits.len(), 5);
        for (planned, simulated) in waits {
            assert!(simulated <= planned * 1.002, "{told}: {planned} ms are planned, and it is {simulated}");
        }
    }
}

#[test]
fn what_interferes_under_epaxos_waits_at_least_what_the_plan_says() {
    let told = "protocol = \"epaxos\"";
    let (bound, waits) =
        planned_and_simulated(told, Some("conflict, reply = execute"), &["--conflict", "100"]);
    assert_eq!(bound, "at least");
    for (planned, simulated) in waits {
        assert!(simulated > planned, "{planned} ms are planned, and it is {simulated}");
    }
}

/// The rows of an evaluation whose names begin so: what was published and what is measured.
fn reproduced(evaluation: &str, rows: &str) -> std::collections::BTreeMap<String, [f64; 2]> {
    let rows = json(&["reproduce", evaluation, "--only", rows, "--format", "json"], 0);
    let number = |row: &serde_json::Value, column: &str| {
        row[column].as_f64().or_else(|| row[column].as_str()?.parse().ok()).unwrap_or(f64::NAN)
    };
    let both = |row: &serde_json::Value| [number(row, "published"), number(row, "measured")];
    rows.as_array().unwrap().iter().map(|row| (row["id"].as_str().unwrap().to_owned(), both(row))).collect()
}

/// The headline of Domino in North America (figure 4.9a): both percentiles within a tenth, and the order of the systems.
#[test]
fn domino_is_reproduced_in_north_america() {
    let rows = reproduced("domino", "fig49a-*");
    for percentile in ["p50", "p95"] {
        let [published, measured] = rows[&format!("fig49a-domino-{percentile}")];
        assert!((measured / published - 1.0).abs() < 0.1, "{percentile}: {measured} for {published}");
        let systems = ["domino", "epaxos", "mencius", "multipaxos"];
        let measured = systems.map(|system| rows[&format!("fig49a-{system}-{percentile}")][1]);
        assert!(measured.is_sorted() && measured[0] < measured[1], "{percentile}: {measured:?}");
    }
}

/// The data of COP's evaluation, made up in the published shape and planned. How fast it is learnt from is no matter of a test.
#[test]
fn cop_is_reproduced_over_data_of_the_published_shape() {
    let [published, measured] = reproduced("cop", "COP-019")["COP-019"];
    assert!((measured / published - 1.0).abs() < 0.01, "entries of a sample: {measured} for {published}");
}

/// The headline of SDPaxos: one round trip at three and at five replicas, one and a half at more.
#[test]
fn sdpaxos_is_reproduced_in_round_trips() {
    let rows = reproduced("sdpaxos", "SDP-00*");
    for (row, trips) in [("SDP-002", 1.0), ("SDP-003", 1.0), ("SDP-004", 1.5), ("SDP-008", 1.0)] {
        let [published, measured] = rows[row];
        assert!(published == trips && (measured - trips).abs() < 0.005, "{row}: {measured} for {published}");
    }
}

/// The headlines of CURP: one round trip, two where a command conflicts or all copies are waited for, three where nobody has
/// begun to send the log; nothing for a read beside a copy, and for most of them no question to the master.
#[test]
fn curp_is_reproduced_in_round_trips() {
    let mut rows = reproduced("curp", "curp-00*");
    rows.extend(reproduced("curp", "curp-10*"));
    let trips = [("001", 2.0), ("002", 2.0), ("003", 1.5), ("004", 1.0), ("005", 2.0), ("006", 3.0)];
    for (row, trips) in trips.into_iter().chain([("100", 1.0), ("101", 1.0), ("103", 1.0)]) {
        let [published, measured] = rows[&format!("curp-{row}")];
        assert!(published == trips && (measured - trips).abs() < 0.01, "{row}: {measured} for {published}");
    }
    assert!(rows["curp-102"][1] < 0.01, "a read beside a copy: {}", rows["curp-102"][1]);
    assert!(rows["curp-104"][1] < 0.5, "questions to the master: {}", rows["curp-104"][1]);
}

/// SETs of one client to a real Redis and to nodes with none, one and two witnesses, each in a row; without Redis, why not.
#[test]
fn curp_stands_beside_a_real_redis_where_there_is_one() {
    let words = ["reproduce", "curp", "--only", "curp-086,redis-set-*", "--format", "json"];
    let done = isochrone(words).env("PATH", "").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let rows: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 6, "{rows}");
    for row in rows.as_array().unwrap() {
        let note = row["note"].as_str().unwrap();
        assert!(note.contains("not measured: there is no redis-server on the PATH"), "{row}");
        assert!(row["measured"].is_null(), "{row}");
    }

    if !there_is_redis() {
        return;
    }
    let rows = json(&words, 0);
    let measured = |row: &str| {
        let found = rows.as_array().unwrap().iter().find(|one| one["id"] == row);
        found.unwrap_or_else(|| panic!("{row}: {rows}"))["measured"].as_f64().unwrap()
    };
    let all = ["plain", "always", "w0", "w1", "w2"].map(|system| measured(&format!("redis-set-{system}")));
    assert!(all.iter().all(|micros| *micros > 0.0), "{all:?}");
    assert!((measured("curp-086") - (all[3] - all[0])).abs() < 0.001, "{rows}");
}

/// Processes that speak of this folder.
fn processes_of(folder: &Path) -> usize {
    let text = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    all.filter(|words| String::from_utf8_lossy(words).contains(text)).count()
}

#[test]
fn an_interrupted_comparison_leaves_no_server_behind() {
    if !there_is_redis() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = isochrone(["reproduce", "curp", "--only", "redis-set-w1"]);
    command.env("TMPDIR", folder.path());
    let mut process = Process::start(command);
    until("servers start", || (processes_of(folder.path()) > 0).then_some(()));
    process.signal("TERM");
    assert_eq!(process.end(), Some(130));
    assert_eq!(processes_of(folder.path()), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn data_that_was_made_to_be_read_goes_where_the_program_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = isochrone(["reproduce", "cop", "--only", "COP-E4-c"]);
    command.env("TMPDIR", folder.path());
    let mut process = Process::start(command);
    let made = || std::fs::read_dir(folder.path()).unwrap().filter_map(Result::ok);
    until("data is written", || made().any(|entry| entry.path().join("data").exists()).then_some(()));
    process.signal("TERM");
    assert_eq!(process.end(), Some(130));
    assert_eq!(made().count(), 0);
}

/// Of a path that cannot be written nothing is asked before it is said; nor is what is read written over.
#[test]
fn what_is_read_stays_and_what_cannot_be_made_is_said_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, link) = (path("one.toml"), path("link.svg"));
    let text = format!(
        "cluster = \"one\"\n[[region]]\nname = \"R\"\n[[node]]\nname = \"n\"\nregion = \"R\"\nredis = \"{}\"\n\
         [[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n[network]\nlan_rtt = \"1ms\"\n",
        addresses(1)[0]
    );
    std::fs::write(&file, &text).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let below = format!("{file}/plots");
    let cases: &[(&[&str], &str)] = &[
        (&["plan", &file, "--svg", &file], "one.toml: this is the file that is read from"),
        (&["plan", &file, "--svg", &link], "--svg"),
        (&["sim", &file, "--history", &link], "link.svg: this is the file that is read from"),
        (&["sim", &file, "--trace-svg", &file], "--trace-svg"),
        (&["bench", &file, "--history", &file], "--history"),
        (&["bench", &file, "--history", &below], "plots: cannot be written: Not a directory"),
        (&["reproduce", "self-check", "--svg", &below], "plots: cannot make the directory: Not a directory"),
    ];
    for (words, expected) in cases {
        let (status, out, err) = outcome(*words);
        assert_eq!(status, 2, "{words:?}\n{out}{err}");
        assert!(err.contains(expected), "{words:?}\n{err}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{words:?}");
    }

    // Nobody listens there: what an earlier run has written stays.
    let history = path("history.jsonl");
    std::fs::write(&history, "of an earlier run").unwrap();
    let (status, _, err) = outcome(["bench", &file, "--history", &history]);
    assert!(status == 1 && err.contains("cannot connect to"), "{err}");
    assert_eq!(std::fs::read_to_string(&history).unwrap(), "of an earlier run");
}

#[test]
fn a_reader_that_stops_early_is_no_failure() {
    let mut child = isochrone(["sim", THREE, "--seed", "1", "--faults", "all", "--trace"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
