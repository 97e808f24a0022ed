//! Bad input at the command line: what is said, and the exit status.

use super::processes::{deployment, deployment_of, isochrone, node, nodes, outcome};
use expect_test::{Expect, expect};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::path::Path;

/// Runs it and compares what it says on standard error, with the folder's path taken out.
fn says(folder: &Path, words: &[&str], status: i32, expected: Expect) {
    let (found, out, err) = outcome(words);
    let err = err.replace(folder.to_str().unwrap(), "FOLDER");
    // Log lines carry the time; what matters is the last word.
    let said: String =
        err.lines().skip_while(|line| !line.starts_with("isochrone: ")).map(|l| format!("{l}\n")).collect();
    expected.assert_eq(if said.is_empty() { &err } else { &said });
    assert_eq!(found, status, "{out}{err}");
    assert_eq!(out, "");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    fs::write(&file, "cluster = \"x\n[[region]]\n").unwrap();
    says(
        folder.path(),
        &["up", text(&file)],
        2,
        expect![[r#"
        isochrone: FOLDER/bad.toml:1: not TOML: invalid basic string, expected `"`
          see docs/deployment.md for the form of the file
    "#]],
    );
    says(
        folder.path(),
        &["plan", text(&folder.path().join("none.toml"))],
        2,
        expect![[r#"
        isochrone: FOLDER/none.toml: cannot read it: No such file or directory (os error 2)
          give the path of a deployment file; deployments/ has ready-made ones
    "#]],
    );
}

#[test]
fn a_matrix_without_a_region() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.csv"), "region,R0,R1\nR0,0,9\nR1,9,0\n").unwrap();
    let file = deployment(folder.path(), "cluster.toml", "live", &nodes(3));
    fs::write(&file, fs::read_to_string(&file).unwrap() + "[network]\nrtt = \"m.csv\"\n").unwrap();
    says(
        folder.path(),
        &["up", "--plain", text(&file)],
        2,
        expect![[r#"
        isochrone: FOLDER/cluster.toml:7: region "R2" is not in the matrix m.csv
          did you mean "R0"?
    "#]],
    );
}

#[test]
fn witnesses_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let file = deployment_of(folder.path(), "cluster.toml", "live", &nodes(3), "curp");
    let more = "parameters = { witness_slots = 30, witness_ways = 4, witness_slot_bytes = \"1B\", always_synced = 1 }\n";
    fs::write(&file, fs::read_to_string(&file).unwrap() + more).unwrap();
    // Whoever plans, or makes certificates, hears of it as early.
    let (data, certs) = (folder.path().join("n0"), folder.path().join("certs"));
    for words in [
        &["node", text(&file), "--name", "n0", "--data", text(&data)][..],
        &["plan", text(&file)],
        &["cert", text(&file), "--out", text(&certs)],
    ] {
        says(
            folder.path(),
            words,
            2,
            expect![[r#"
            isochrone: FOLDER/cluster.toml:29: keyspace "main": parameter witness_slots = 30 is not a whole number of sets
              use a multiple of witness_ways
            FOLDER/cluster.toml:29: keyspace "main": parameter witness_slot_bytes = "1B" is out of range
              use "128B" to "1MiB"
            FOLDER/cluster.toml:29: keyspace "main": parameter always_synced = 1 is not a yes or no
              write true or false
        "#]],
        );
    }
}

#[test]
fn flags_and_names_that_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = deployment(folder.path(), "cluster.toml", "live", &nodes(3));
    says(
        folder.path(),
        &["up", "--prot", "7001"],
        2,
        expect![[r#"
            error: unexpected argument '--prot' found

              tip: a similar argument exists: '--port'

            Usage: isochrone up --port <PORT> [FILE]

            For more information, try '--help'.
        "#]],
    );
    says(
        folder.path(),
        &["up", "--for", "5"],
        2,
        expect![[r#"
        error: invalid value '5' for '--for <TIME>': `5` is no time; a number and its unit would be, e.g. 250us, 1.5ms, 30s, 5m

        For more information, try '--help'.
    "#]],
    );
    let data = folder.path().join("data");
    says(
        folder.path(),
        &["node", text(&file), "--name", "n7", "--data", text(&data)],
        2,
        expect![[r#"
        isochrone: --name n7: FOLDER/cluster.toml has no such node
          use one of n0, n1, n2
    "#]],
    );
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/three-regions.toml");
    let (status, _, err) = outcome(["node", built_in, "--name", "euro", "--data", text(&data)]);
    assert_eq!(status, 2);
    assert!(err.contains("node \"euro\" has no address for its peers\n  give every node listen"), "{err}");
    assert!(!data.exists(), "a refused start leaves nothing behind");
}

#[test]
fn a_port_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = nodes(1);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    nodes[0].redis = taken.local_addr().unwrap();
    let file = deployment(folder.path(), "cluster.toml", "live", &nodes);
    let data = folder.path().join("data");
    let (status, _, err) = outcome(["node", text(&file), "--name", "n0", "--data", text(&data)]);
    assert_eq!(status, 2);
    let expected = format!(
        "isochrone: {}, for Redis clients: in use by another program\n  \
         stop the other program (is this node running already?), or change the address in the deployment file\n",
        nodes[0].redis
    );
    assert_eq!(err, expected);
}

#[test]
fn data_directories_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let start = |file: &Path, name: &str, data: &str, status, expected| {
        let data = path.join(data);
        says(path, &["node", text(file), "--name", name, "--data", text(&data)], status, expected);
    };
    let ours = deployment(path, "ours.toml", "ours", &nodes(1));
    let mut first = node(&ours, 0, path);
    // The same data while a node has it, at other ports.
    let twin = deployment(path, "twin.toml", "ours", &nodes(1));
    start(
        &twin,
        "n0",
        "n0",
        2,
        expect![[r#"
        isochrone: FOLDER/n0/LOCK: locked by another process: an isochrone node is already running on this data directory. Stop it first.
    "#]],
    );
    first.signal("TERM");
    assert_eq!(first.end(), Some(0));

    let theirs = deployment(path, "theirs.toml", "theirs", &nodes(1));
    start(
        &theirs,
        "n0",
        "n0",
        2,
        expect![[r#"
        isochrone: FOLDER/n0/IDENTITY: this data directory belongs to another cluster than "theirs", the one of the deployment file. Name this node's own directory; a new one only where it has never run. Clusters are known by their names: where `cluster` has changed in the file, put it back.
    "#]],
    );
    let three = deployment(path, "three.toml", "ours", &nodes(3));
    start(
        &three,
        "n1",
        "n0",
        2,
        expect![[r#"
        isochrone: FOLDER/n0/IDENTITY: this data directory belongs to another node: found n0, expected n1. Two nodes must never share a directory: name this node's own with --data. Nodes are known by their places in the deployment file: where these have changed, put them back, and what is new at the end.
    "#]],
    );
    // A directory that is expected is not made.
    let none = path.join("none");
    let expecting = ["node", text(&ours), "--name", "n0", "--expect-data", "--data", text(&none)];
    let (status, _, err) = outcome(expecting);
    assert!(status == 2 && err.contains("/none: no data of this node is here"), "{err}");
    assert!(!none.exists());
    let up = || {
        let (status, _, err) = outcome(["up", "--plain", "--data", text(&path.join("n0"))]);
        assert!(status == 2 && err.contains("this is the data directory of one node"), "{err}");
    };
    up();
    // Its segments say so as well.
    fs::rename(path.join("n0/IDENTITY"), path.join("identity")).unwrap();
    up();
    fs::rename(path.join("identity"), path.join("n0/IDENTITY")).unwrap();
    fs::create_dir(path.join("photos")).unwrap();
    fs::write(path.join("photos/cat.jpg"), "meow").unwrap();
    start(
        &ours,
        "n0",
        "photos",
        2,
        expect![[r#"
        isochrone: FOLDER/photos: not an isochrone data directory: found `cat.jpg` but no IDENTITY file. Name this node's own directory; an empty or a new one only where it has never run.
    "#]],
    );

    // A later format says so in a place that never moves, under a check that never changes.
    let identity = path.join("n0/IDENTITY");
    let mut sector = fs::read(&identity).unwrap();
    sector[8..12].copy_from_slice(&9u32.to_le_bytes());
    let end = sector.len() - 8;
    let check = xxhash_rust::xxh3::xxh3_64_with_seed(&sector[..end], 0);
    sector[end..].copy_from_slice(&check.to_le_bytes());
    fs::write(&identity, &sector).unwrap();
    start(
        &ours,
        "n0",
        "n0",
        2,
        expect![[r#"
        isochrone: FOLDER/n0/IDENTITY: written by a newer version of isochrone: found format 9, this version reads up to 1. Nothing was changed. Start the version that wrote it, or a later one.
    "#]],
    );
}

#[test]
fn a_journal_damaged_in_its_middle_stops_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let file = deployment(path, "ours.toml", "ours", &nodes(1));
    let mut first = node(&file, 0, path);
    let redis = fs::read_to_string(&file).unwrap();
    let redis =
        redis.lines().find_map(|line| line.strip_prefix("redis = ")).unwrap().trim_matches('"').to_owned();
    let mut client = super::processes::client(redis.parse().unwrap());
    for round in 0..20 {
        super::processes::until("a write", || {
            client
                .ask(&["SET", &format!("k{round}"), "precious"])
                .ok()
                .filter(|reply| *reply == super::resp::Reply::Text("OK".into()))
        });
    }
    first.signal("KILL");
    assert_eq!(first.end(), None);
    let journal = path.join("n0/journal");
    let segment = fs::read_dir(&journal).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let bytes = fs::read(&segment).unwrap();
    // The first record of the first write: many durable frames follow it.
    let at = bytes.windows(8).position(|window| window == b"precious").expect("a record of it");
    let mut damaged = File::options().write(true).open(&segment).unwrap();
    damaged.seek(SeekFrom::Start(at as u64)).unwrap();
    damaged.write_all(b"P").unwrap();
    drop(damaged);
    let (status, _, err) = outcome(["node", text(&file), "--name", "n0", "--data", text(&path.join("n0"))]);
    assert_eq!(status, 1, "{err}");
    assert!(err.contains(": corrupt at byte ") && err.contains("Nothing was changed"), "{err}");
    assert!(err.contains("put a node of another name in its place") && !err.contains("empty"), "{err}");
}

#[test]
fn a_password_is_hashed_and_an_empty_one_is_not() {
    let (status, out, err) = outcome(["password"]);
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(err.starts_with("isochrone: the password is empty"), "{err}");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let file = deployment(folder.path(), "cluster.toml", "live", &nodes(1));
    let certs = folder.path().join("certs");
    for words in
        [&["completions", "bash"][..], &["cert", text(&file), "--out", text(&certs)], &["check", "none"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = isochrone(words);
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        // What it would say goes nowhere; a panic would be status 101.
        let expected = if words[0] == "check" { 2 } else { 0 };
        assert_eq!(command.status().unwrap().code(), Some(expected), "{words:?}");
    }
}
