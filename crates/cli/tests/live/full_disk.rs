//! A disk that is full: the node ends and says so, nothing that was answered is lost, it can be started to be read, and with room
//! made it goes on.
//!
//! The disk is a small file system in memory, in a mount namespace of the test's own; where the system lets nobody have
//! one, nothing is tested.

use super::processes::{Process, addresses, client, isochrone, until};
use super::resp::{Client, Reply};
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Runs a node on 80 MiB of which something else has 48, until it ends, and as it is once more; frees those and runs it again.
const SCRIPT: &str = "set -e
mkdir disk
mount -t tmpfs -o size=80m tmpfs disk
head -c 50331648 /dev/zero >disk/ballast
status=0
\"$@\" || status=$?
echo \"ended with $status\"
status=0
\"$@\" || status=$?
echo \"ended with $status\"
rm disk/ballast
exec \"$@\"
";

/// A namespace of processes too, so that nothing outlives the test.
fn alone() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]);
    command
}

fn value(index: usize) -> String {
    format!("{index:0>4096}")
}

/// Sets keys from this one on until the node has ended: the first one that was not answered.
fn fill(address: SocketAddr, first: usize) -> usize {
    let mut writer = client(address);
    let mut next = first;
    loop {
        match writer.ask(&["SET", &format!("key:{next}"), &value(next)]) {
            Ok(Reply::Text(_)) => next += 1,
            // It elects itself first.
            Ok(Reply::Error(text)) if text.starts_with("NOLEADER") && next == first => {}
            Ok(reply) => panic!("{reply:?}"),
            Err(_) => return next,
        }
        assert!(next < 100_000, "400 MiB do not fit");
    }
}

#[test]
fn a_full_disk_ends_the_node_and_takes_nothing_that_was_answered() {
    let probe = alone().args(["sh", "-c", "mount -t tmpfs tmpfs /mnt"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this system gives nobody a mount namespace");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let text = format!(
        "cluster = \"full\"\n[[region]]\nname = \"here\"\n[[node]]\nname = \"n0\"\nregion = \"here\"\n\
         redis = \"{address}\"\n[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\n"
    );
    fs::write(folder.path().join("full.toml"), text).unwrap();
    let node = isochrone(["node", "full.toml", "--name", "n0", "--data", "disk/n0"]);
    let log = folder.path().join("log");
    let mut command = alone();
    command.args(["sh", "-c", SCRIPT, "sh"]).arg(node.get_program()).args(node.get_args());
    command.current_dir(folder.path()).env("NO_COLOR", "1").stderr(fs::File::create(&log).unwrap());
    let process = Process::start(command);
    let line = process.line();
    assert!(line.as_ref().is_some_and(|line| line.contains("is ready")), "{line:?}");

    let answered = fill(address, 0);
    assert!(answered > 1000, "it ended after {answered}: the disk is not full yet");
    let line = process.line();
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(line.as_deref(), Some("ended with 1"), "{said}");
    let last = said.lines().rfind(|line| line.starts_with("isochrone: ")).unwrap_or_default();
    assert!(last.contains("the disk is full: ") && last.contains("nothing acknowledged is lost"), "{said}");

    let warned = said.matches("could not be made ahead of time").count();
    assert_eq!(warned, 1, "it was tried with every batch, and is said once: {said}");

    // Some room was left, so that it can be read, and be told to delete.
    let line = process.line();
    assert!(line.as_ref().is_some_and(|line| line.contains("is ready")), "{line:?}");
    let more = fill(address, answered) - answered;
    assert!(more > 20, "only {more} more were answered by the second start");
    let answered = answered + more;
    assert_eq!(process.line().as_deref(), Some("ended with 1"));

    let line = process.line();
    assert!(line.as_ref().is_some_and(|line| line.contains("is ready")), "{line:?}");
    let mut reader: Option<Client> = None;
    let keys: Vec<String> = (0..answered).map(|index| format!("key:{index}")).collect();
    for (chunk, keys) in keys.chunks(100).enumerate() {
        let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
        let found = until("a reply", || match reader.get_or_insert_with(|| client(address)).ask(&words) {
            Ok(Reply::List(values)) => Some(values),
            _ => None,
        });
        let expected: Vec<_> = (0..keys.len()).map(|at| Reply::Text(value(100 * chunk + at))).collect();
        assert!(found == expected, "an answered write is lost among {keys:?}");
    }
    let mut writer = client(address);
    for index in 0..1000 {
        let reply = writer.ask(&["SET", &format!("more:{index}"), &value(index)]).unwrap();
        assert_eq!(reply, Reply::Text("OK".to_owned()));
    }
}
