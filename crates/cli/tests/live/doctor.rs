//! Whether a machine is fit for its node, before that is started and beside it.

use crate::processes::{deployment, node, nodes, outcome, until};
use serde_json::Value;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::Path;

/// What is said of a node: the exit status and the object.
fn doctor(file: &Path, name: &str, data: Option<&Path>) -> (i32, Value) {
    let mut words: Vec<&OsStr> = vec!["doctor".as_ref(), file.as_os_str()];
    for word in ["--name", name, "--format", "json"] {
        words.push(word.as_ref());
    }
    if let Some(data) = data {
        words.push("--data".as_ref());
        words.push(data.as_os_str());
    }
    let (status, out, err) = outcome(words);
    (status, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}")))
}

/// The verdict of a check, and what was found.
#[track_caller]
fn check<'v>(shown: &'v Value, name: &str) -> (&'v str, &'v str) {
    let checks = shown["checks"].as_array().unwrap();
    match checks.iter().find(|check| check["name"] == name) {
        Some(check) => (check["verdict"].as_str().unwrap(), check["found"].as_str().unwrap()),
        None => panic!("no {name}: {shown}"),
    }
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_machine_is_looked_at_before_its_node_starts_and_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment(path, "three.toml", "fit", &addresses);
    let data = path.join("n0");

    let (status, shown) = doctor(&file, "n0", Some(&data));
    assert_eq!(status, 0, "{shown}");
    assert_eq!((&shown["cluster"], &shown["node"]), (&"fit".into(), &"n0".into()));
    assert_eq!(check(&shown, "node"), ("ok", "is not seen to run here"));
    let (verdict, found) = check(&shown, "directory");
    assert!(verdict == "ok" && found.contains("n0 does not exist yet, and would be made in "), "{found}");
    for (key, address) in [("listen", addresses[0].listen), ("redis", addresses[0].redis)] {
        let found = format!("{address} can be had");
        assert_eq!(check(&shown, &format!("address {key}")), ("ok", found.as_str()));
    }
    let (verdict, found) = check(&shown, "disk sync");
    assert!(verdict != "fail" && found.starts_with("median ") && found.ends_with(" of 4 KiB"), "{found}");
    for (peer, address) in addresses.iter().enumerate().skip(1) {
        let (verdict, found) = check(&shown, &format!("round trip to n{peer}"));
        let away = format!("no node listens at {}", address.listen);
        assert!(verdict == "warn" && found.contains(&away), "{found}");
    }
    for name in
        ["file", "file system", "free space", "open files", "memory", "memory limit", "processors", "clock"]
    {
        check(&shown, name);
    }
    assert_eq!(names(path), ["three.toml"], "it makes nothing that stays");

    let _runs = [node(&file, 0, path), node(&file, 1, path)];
    let shown = until("the node says that it runs", || {
        let (status, shown) = doctor(&file, "n0", Some(&data));
        (status == 0 && check(&shown, "node").1.starts_with("runs, version ")).then_some(shown)
    });
    let (verdict, found) = check(&shown, "directory");
    assert!(verdict == "ok" && found.ends_with("n0 belongs to n0 of fit; a node runs on it"), "{found}");
    for key in ["listen", "redis", "http"] {
        let (verdict, found) = check(&shown, &format!("address {key}"));
        assert!(verdict == "ok" && found.ends_with(" is in use, and the node runs"), "{key}: {found}");
    }
    let (verdict, found) = check(&shown, "round trip to n1");
    assert!(verdict == "ok" && found.ends_with(" ms; the file gives none"), "{found}");
    for directory in [&data, &data.join("journal")] {
        let left = names(directory);
        assert!(!left.iter().any(|name| name.starts_with('.')), "{left:?}");
    }

    // The directory of one is not that of another.
    let (status, shown) = doctor(&file, "n2", Some(&data));
    assert_eq!((status, &shown["verdict"]), (1, &"fail".into()), "{shown}");
    let (verdict, found) = check(&shown, "directory");
    assert!(verdict == "fail" && found.ends_with("another node: found n0, expected n2"), "{found}");
    assert_eq!(check(&shown, "node"), ("ok", "is not seen to run here"));

    // An address that another program has; nothing of a directory that is not named.
    let _other = TcpListener::bind(addresses[2].redis).unwrap();
    let (status, shown) = doctor(&file, "n2", None);
    assert_eq!(status, 1, "{shown}");
    let (verdict, found) = check(&shown, "address redis");
    assert!(verdict == "fail" && found.contains("in use by another program"), "{found}");
    assert_eq!(check(&shown, "directory"), ("warn", "left out, as none is named"));
    let (status, out, err) = outcome(["doctor", file.to_str().unwrap(), "--name", "n2"]);
    assert_eq!((status, err.as_str()), (1, ""), "{out}");
    assert!(
        out.starts_with("n2 of fit\n\n  ok    file  ") && out.contains("\n  fail  address redis  "),
        "{out}"
    );
    assert!(out.contains("\n1 failed, "), "{out}");

    let (status, _, err) = outcome(["doctor", file.to_str().unwrap(), "--name", "nobody"]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("use one of n0, n1, n2"), "{err}");
}
