//! Keyspaces of transactions: simulated, planned and checked.

use crate::processes::outcome;
use serde_json::Value;

const EC2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/carousel-ec2.toml");
const FIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
const PROTOCOLS: [&str; 4] = ["carousel-fast", "carousel-basic", "2pc", "tapir"];

#[track_caller]
fn json(words: &[&str], status: i32) -> Value {
    let words = [words, &["--format", "json"]].concat();
    let (found, out, err) = outcome(&words);
    assert_eq!(found, status, "{words:?}\n{out}\n{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}\n{out}"))
}

#[test]
fn what_is_simulated_without_load_is_what_is_planned() {
    let plan = json(&["plan", EC2], 0);
    assert_eq!(plan["partitions"][4], serde_json::json!(["Australia", "US West", "Euro"]));
    for protocol in PROTOCOLS {
        // One client at a time, each in a run of its own: nothing is in its way.
        for (at, region) in ["US West", "US East", "Euro", "Asia", "Australia"].into_iter().enumerate() {
            let clients = format!("{region}=1");
            let words = ["sim", EC2, "--protocol", protocol, "--workload", "ycsbt", "--clients", &clients];
            // Apart in time too: a client of TAPIR waits for what it wrote last.
            let printed = json(&[&words[..], &["--rate", "0.5", "--duration", "400s"]].concat(), 0);
            assert_eq!(printed["workload"], "ycsbt");
            let measured = printed["regions"][0]["p50_ms"].as_f64().unwrap();
            let forecasts = plan["forecasts"].as_array().unwrap();
            let mut same =
                forecasts.iter().filter(|row| row["workload"] == "ycsbt" && row["protocol"] == protocol);
            let planned = same.next().unwrap()["regions"][at]["p50_ms"].as_f64().unwrap();
            // Histograms keep three digits.
            let ratio = measured / planned;
            assert!((0.999..1.001).contains(&ratio), "{protocol} from {region}: {measured} for {planned}");
        }
    }
}

/// specs/carousel.md 3.2 and 3.3: what a transaction costs in messages, by phase.
#[test]
fn messages_are_counted_by_kind() {
    let sent = |protocol: &str| {
        let words = ["sim", EC2, "--protocol", protocol, "--workload", "ycsbt", "--clients", "5"];
        let (status, out, err) =
            outcome([&words[..], &["--rate", "1", "--duration", "120s", "--messages"]].concat());
        assert_eq!(status, 0, "{out}\n{err}");
        let rows = out.lines().skip_while(|line| *line != "between nodes, for each transaction").skip(2);
        let rows = rows.take_while(|line| !line.is_empty()).map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap().to_owned();
            (name, words.map(|word| word.parse().unwrap()).collect::<Vec<f64>>())
        });
        let rows: std::collections::BTreeMap<String, Vec<f64>> = rows.collect();
        let (parts, all): (Vec<_>, Vec<_>) = rows.iter().partition(|(name, _)| *name != "all");
        let sum: f64 = parts.iter().map(|(_, row)| row[0]).sum();
        assert!((sum - all[0].1[0]).abs() < 0.01, "{rows:?}");
        rows
    };
    let [basic, fast] = ["carousel-basic", "carousel-fast"].map(sent);
    // Fast asks each replica of a partition, and each answers with a vote; Basic asks leaders alone.
    assert!(fast["Prepare"][0] > 2.0 * basic["Prepare"][0], "{fast:?}\n{basic:?}");
    assert!(fast.contains_key("Vote") && !basic.contains_key("Vote"));
}

#[test]
fn every_protocol_of_transactions_holds_under_faults() {
    for protocol in PROTOCOLS {
        for workload in ["bank", "ledger", "txn-check"] {
            let words = [
                "sim",
                EC2,
                "--protocol",
                protocol,
                "--workload",
                workload,
                "--seeds",
                "8",
                "--faults",
                "all",
            ];
            // Every audit is in the way of every move: once is seldom enough.
            let retry: &[&str] = if workload == "ledger" { &["--retry"] } else { &[] };
            let printed = json(&[&words[..], retry].concat(), 0);
            assert_eq!(printed["violations"], Value::Array(Vec::new()), "{protocol} {workload}");
            assert_eq!((&printed["undecided"], &printed["seeds"]), (&0.into(), &8.into()));
            assert!(printed["committed"].as_u64() > Some(20), "{protocol} {workload}: {printed}");
            assert!(printed["abort_rate"].as_f64().is_some_and(|rate| rate < 1.0));
        }
    }
}

#[test]
fn a_history_of_transactions_is_written_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history.jsonl").to_str().unwrap().to_owned();
    let (status, out, err) =
        outcome(["sim", EC2, "--seed", "3", "--faults", "crash,partition", "--history", &history]);
    assert_eq!(status, 0, "{out}\n{err}");
    let words = ["check", &history, "--model", "transactions", "--isolation", "strict-updates"];
    assert_eq!(json(&words, 0)["verdict"], "strict-updates");
    // One that has scans and deletions.
    let words = ["sim", EC2, "--seed", "3", "--workload", "ledger", "--history", &history];
    assert_eq!(outcome(words).0, 0);
    assert!(std::fs::read_to_string(&history).unwrap().contains(r#"["scan","key:",{"key:"#));
    let words = ["check", &history, "--model", "transactions", "--isolation", "serializable"];
    assert_eq!(json(&words, 0)["verdict"], "serializable");
}

#[test]
fn the_partitions_of_a_ring_are_as_many_as_are_asked_for() {
    let words = ["sim", FIVE, "--protocol", "carousel-basic", "--partitions", "7", "--workload", "smallbank"];
    let printed = json(&[&words[..], &["--retry", "--clients", "10", "--duration", "5s"]].concat(), 0);
    let kinds: Vec<&str> =
        printed["kinds"].as_array().unwrap().iter().map(|kind| kind["name"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"amalgamate") && kinds.contains(&"balance"), "{kinds:?}");
    assert_eq!(printed["updates"], "strictly serializable");
}

#[test]
fn flags_of_commands_are_refused_for_transactions_and_the_other_way_round() {
    for (words, expected) in [
        (&["sim", EC2, "--conflict", "3"][..], "of transactions say --zipf and --records"),
        (&["sim", EC2, "--zipf", "1.5"], "the exponent is above 0 and below 1"),
        (&["sim", EC2, "--records", "3"], "use at least 10"),
        (&["sim", EC2, "--workload", "tpcc"], "there are retwis, ycsbt, smallbank, bank, ledger, txn-check"),
        (&["sim", FIVE, "--workload", "retwis"], "its transactions are more than multipaxos does"),
        (&["sim", FIVE, "--retry"], "--zipf and --retry are for transactions"),
        (&["plan", EC2, "--conflict", "3"], "what transactions pay for it, `isochrone sim` shows"),
    ] {
        let (status, out, err) = outcome(words);
        assert_eq!(status, 2, "{words:?}\n{out}\n{err}");
        assert!(err.contains(expected), "{words:?}: {err}");
    }
}
