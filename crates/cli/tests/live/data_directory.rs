//! A data directory of which a part is missing, or older than the rest: its node does not start, and `doctor` says so before.

use super::processes::{Process, deployment, node, nodes, outcome, spawn, until};
use super::resp::{Client, Reply};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

fn set(address: SocketAddr, value: &str) {
    until("a write", || {
        let reply = Client::reconnect(address)?.ask(&["SET", "x", value]);
        matches!(reply, Ok(Reply::Text(_))).then_some(())
    });
}

fn kill(process: &mut Process) {
    process.signal("KILL");
    assert_eq!(process.end(), None);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, to).unwrap();
        }
    }
}

/// What `doctor` finds of the data directory of a node, and how bad that is.
fn doctor(file: &Path, index: usize, folder: &Path) -> (String, String) {
    let name = format!("n{index}");
    let data = folder.join(&name);
    let (file, data) = (file.to_str().unwrap(), data.to_str().unwrap());
    let (_, out, err) = outcome(["doctor", file, "--name", &name, "--data", data, "--format", "json"]);
    let shown: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let checks = shown["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "directory").unwrap();
    let part = |name: &str| check[name].as_str().unwrap().to_owned();
    (part("verdict"), part("found"))
}

/// A node that must not start says this, ends with this status, and never serves; `doctor` says the same.
fn refused(file: &Path, index: usize, folder: &Path, status: i32, told: &str) {
    let (verdict, found) = doctor(file, index, folder);
    assert!(verdict == "fail" && found.contains(told), "{verdict}: {found}");
    let log = folder.join(format!("n{index}.log"));
    // What an earlier life has logged is not to be taken for this one's.
    fs::write(&log, "").unwrap();
    let mut process = spawn(file, index, folder);
    assert_eq!(process.line(), None, "it serves");
    let ended = process.end();
    let log = fs::read_to_string(log).unwrap();
    assert!(ended == Some(status) && log.contains(told), "{ended:?}: {log}");
}

#[test]
fn with_an_old_copy_of_its_journal_a_node_ends_and_with_the_newest_one_it_has_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(3);
    let file = deployment(path, "three.toml", "copies", &addresses);
    let mut processes: Vec<_> = (0..3).map(|index| node(&file, index, path)).collect();
    set(addresses[0].redis, "before");
    kill(&mut processes[1]);
    let (journal, old, newest) = (path.join("n1/journal"), path.join("old"), path.join("newest"));
    copy(&journal, &old);
    processes[1] = node(&file, 1, path);
    kill(&mut processes[2]);
    set(addresses[1].redis, "after");
    kill(&mut processes[0]);
    kill(&mut processes[1]);

    fs::rename(&journal, &newest).unwrap();
    fs::rename(&old, &journal).unwrap();
    processes[2] = node(&file, 2, path);
    // A start that is refused is not counted: the copy does not catch up.
    for _ in 0..3 {
        refused(
            &file,
            1,
            path,
            2,
            "this journal is an old copy: the last start of this node that it knows of is number 1",
        );
    }
    fs::remove_dir_all(&journal).unwrap();
    fs::rename(&newest, &journal).unwrap();
    let (verdict, found) = doctor(&file, 1, path);
    assert_eq!(verdict, "ok", "{found}");
    processes[1] = node(&file, 1, path);
    let value = until("a read", || match Client::reconnect(addresses[1].redis)?.ask(&["GET", "x"]) {
        Ok(Reply::Text(value)) => Some(value),
        _ => None,
    });
    assert_eq!(value, "after");
}

#[test]
fn without_a_part_of_its_data_directory_a_node_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let addresses = nodes(1);
    let file = deployment(path, "one.toml", "parts", &addresses);
    let mut process = node(&file, 0, path);
    set(addresses[0].redis, "x");
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
    let (data, whole) = (path.join("n0"), path.join("whole"));
    fs::rename(&data, &whole).unwrap();

    type Harm = fn(&Path);
    let harms: [(Harm, &str); 3] = [
        (|data| fs::remove_file(data.join("KEYSPACES")).unwrap(), "KEYSPACES: it is missing, though"),
        (
            |data| {
                let text = fs::read(data.join("PEERS")).unwrap();
                fs::write(data.join("PEERS"), &text[..text.len() / 2]).unwrap();
            },
            "PEERS: it is damaged",
        ),
        (
            |data| fs::remove_dir_all(data.join("journal")).unwrap(),
            "journal/: no data of this node is here, but this node has run before",
        ),
    ];
    for (harm, told) in harms {
        copy(&whole, &data);
        let (verdict, found) = doctor(&file, 0, path);
        assert_eq!(verdict, "ok", "{found}");
        harm(&data);
        refused(&file, 0, path, 2, told);
        fs::remove_dir_all(&data).unwrap();
    }
    // Nothing of it was changed: it is the same with all parts.
    fs::rename(&whole, &data).unwrap();
    process = node(&file, 0, path);
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
}
