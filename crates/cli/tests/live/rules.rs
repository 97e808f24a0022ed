//! What holds of every verb: it has a manual page, what it tells people it tells programs in JSON, and what cannot be written
//! or meant ends it with 2 and a word on what would be right.

use super::processes::{Process, addresses, deployment, isochrone, nodes, outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

const THREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");

#[track_caller]
fn json(words: &[&str]) -> Value {
    let (status, out, err) = outcome(words);
    assert_eq!(status, 0, "{words:?}\n{out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}\n{out}"))
}

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn manual_pages_are_printed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let to = at(folder.path(), "share/man1");
    let (status, out, err) = outcome(["man", "--out", &to]);
    assert_eq!((status, out.as_str()), (0, ""), "{err}");
    let pages: BTreeMap<String, String> = fs::read_dir(&to)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    assert_eq!(err, format!("wrote {} pages into {to}\n", pages.len()));
    let cases: &[(&[&str], &str)] = &[
        (&["man"], "isochrone.1"),
        (&["man", "up"], "isochrone-up.1"),
        (&["man", "learn", "train"], "isochrone-learn-train.1"),
    ];
    for (words, file) in cases {
        let (status, out, err) = outcome(*words);
        assert_eq!((status, Some(&out)), (0, pages.get(*file)), "{words:?}\n{err}");
    }
    // Every verb that the help names has one.
    let (_, help, _) = outcome(["--help"]);
    let verbs =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What goes on from the line before stands further in.
    let verbs = verbs.filter(|line| !line.starts_with("   "));
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.contains(&"up") && verbs.contains(&"man"), "{help}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        assert!(pages.contains_key(&format!("isochrone-{verb}.1")), "{verb}");
    }
    let (status, _, err) = outcome(["man", "fly"]);
    assert!(status == 2 && err.contains("isochrone has no verb \"fly\"\n  use one of up, "), "{err}");
}

#[test]
fn nodes_say_in_json_that_they_serve_and_what_they_log() {
    let folder = tempfile::tempdir().unwrap();
    let (all, port) = (nodes(1), addresses(1)[0].port().to_string());
    let file = deployment(folder.path(), "cluster.toml", "rules", &all);
    let file = file.to_str().unwrap();
    let (data, dir) = (at(folder.path(), "n0"), at(folder.path(), "redis"));
    let (first, second) = (all[0].redis.to_string(), format!("127.0.0.1:{port}"));
    let cases: &[(&[&str], [&str; 3])] = &[
        (&["node", file, "--name", "n0", "--data", &data], ["rules", "n0", &first]),
        (&["redis", "--dir", &dir, "--port", &port], ["redis", "redis", &second]),
    ];
    for (words, [cluster, node, redis]) in cases {
        let log = folder.path().join("log");
        let mut command = isochrone(words.iter().copied().chain(["--format", "json"]));
        command.stderr(File::create(&log).unwrap());
        let mut process = Process::start(command);
        let line = process.line().unwrap_or_else(|| fs::read_to_string(&log).unwrap());
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(ready["ready"], true);
        assert_eq!((&ready["cluster"], &ready["node"]), (&Value::from(*cluster), &Value::from(*node)));
        assert_eq!(ready["redis"], Value::from(vec![*redis]));
        process.signal("TERM");
        assert_eq!(process.end(), Some(0));
        let logged = fs::read_to_string(&log).unwrap();
        assert!(logged.contains("stopped in order"), "{logged}");
        for line in logged.lines() {
            let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(entry["level"].is_string() && entry["message"].is_string(), "{line}");
        }
    }
}

#[test]
fn what_is_made_or_predicted_is_told_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = json(&["cert", THREE, "--out", &at(folder, "certs"), "--format", "json"]);
    let nodes = made["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    let pairs = nodes.iter().flat_map(|node| [&node["peers"], &node["clients"]]).chain([&made["authority"]]);
    for file in pairs.flat_map(|pair| [&pair["certificate"], &pair["key"]]) {
        assert!(file.as_str().is_some_and(|file| Path::new(file).is_file()), "{file}: {made}");
    }
    assert!(made["security"]["peer_cert"].as_str().unwrap().ends_with("/{node}.pem"), "{made}");

    let mut command = isochrone(["password", "--format", "json"]);
    let mut hashing = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    hashing.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let hashed: Value = serde_json::from_slice(&hashing.wait_with_output().unwrap().stdout).unwrap();
    assert!(hashed["hash"].as_str().is_some_and(|hash| hash.starts_with("$argon2id$")), "{hashed}");

    let (data, model) = (at(folder, "data.svm"), at(folder, "a.model"));
    fs::write(&data, "1 1:1 2:1\n-1 2:1 3:1\n").unwrap();
    let train = ["learn", "train", &data, "--model", &model, "--loss", "logistic", "--format", "json"];
    assert_eq!(json(&train)["samples"], 2);
    for (what, numbers) in [("label", 0), ("decision", 1), ("probability", 2)] {
        let words = ["learn", "predict", &data, "--model", &model, "--what", what, "--format", "json"];
        let (status, out, err) = outcome(words);
        assert_eq!((status, out.lines().count()), (0, 2), "{out}{err}");
        for line in out.lines() {
            let told: Value = serde_json::from_str(line).unwrap();
            let list = told[what].as_array();
            let right =
                if numbers == 0 { told[what].is_number() } else { list.map(Vec::len) == Some(numbers) };
            assert!(right, "{line}");
        }
    }

    let named = json(&["reproduce", "list", "--format", "json"]);
    let names: Vec<_> = named.as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(
        names.contains(&&Value::from("self-check")) && names.contains(&&Value::from("domino")),
        "{named}"
    );
}

#[test]
fn a_history_comes_by_standard_input_too() {
    let folder = tempfile::tempdir().unwrap();
    let history = at(folder.path(), "history.jsonl");
    let (status, out, err) = outcome(["sim", THREE, "--seed", "1", "--faults", "all", "--history", &history]);
    assert_eq!(status, 0, "{out}{err}");
    let mut command = isochrone(["check", "-", "--format", "json"]);
    let checked = command.stdin(File::open(&history).unwrap()).output().unwrap();
    let told: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((checked.status.code(), &told["verdict"]), (Some(0), &Value::from("linearizable")), "{told}");
    // Nothing comes.
    let (status, _, err) = outcome(["check", "-"]);
    assert!(status == 2 && err.contains("standard input: the history is empty"), "{err}");
}

#[test]
fn what_cannot_be_written_or_read_is_bad_input_of_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let (data, model) = (at(folder.path(), "data.svm"), at(folder.path(), "a.model"));
    fs::write(&data, "1 1:1 2:1\n-1 2:1 3:1\n").unwrap();
    assert_eq!(outcome(["learn", "train", &data, "--model", &model]).0, 0);
    let directory = folder.path().to_str().unwrap();
    let generate = ["learn", "generate", "hotspot:1K", "--samples", "5"];
    let into = [&generate[..], &["--out", directory]].concat();
    let cases: &[(&[&str], &str)] = &[
        (&["check", directory], "cannot be read: Is a directory"),
        (&["learn", "plan", directory], "Is a directory (os error 21)\n  name a file of samples"),
        (&["learn", "train", &data, "--model", directory], "cannot be written: Is a directory"),
        (&["learn", "predict", &data, "--model", directory], "cannot be read: Is a directory"),
        (
            &["learn", "predict", &data, "--model", &model, "--out", directory],
            "cannot be written: Is a directory",
        ),
        (&into, "cannot be written: Is a directory"),
        (&["learn", "generate", "hotspot:0"], "hotspot:FEATURES, e.g. hotspot:10000"),
        (&["up", "--plain", "--for", "0s"], "a time above 0"),
        (&["reproduce", "self-check", "--only", "none"], "`isochrone reproduce self-check` names them all"),
        (
            &["bench", "--endpoint", ""],
            "\"\" is no HOST:PORT that resolves\n  such as 127.0.0.1:7001 would be right",
        ),
    ];
    for (words, expected) in cases {
        let (status, out, err) = outcome(*words);
        assert_eq!(status, 2, "{words:?}\n{out}{err}");
        assert_eq!(err.matches(expected).count(), 1, "{words:?}\n{out}{err}");
    }
    // Linux has a file that is always full.
    let Ok(full) = File::options().write(true).open("/dev/full") else { return };
    let printing: &[&[&str]] = &[
        &["--help"],
        &["man"],
        &["completions", "bash"],
        &["reproduce", "list"],
        &["learn", "predict", &data, "--model", &model],
        &generate,
        &["up", "--plain", "--port", "0", "--for", "60s"],
    ];
    for words in printing {
        let told = isochrone(*words).stdout(full.try_clone().unwrap()).output().unwrap();
        let err = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(2), "{words:?}\n{err}");
        assert_eq!(err.matches("standard output: cannot be written").count(), 1, "{words:?}\n{err}");
    }
}
