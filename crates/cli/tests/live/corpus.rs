//! What a version has written to disk, later ones read: the data directories of three nodes (of one alone, where that is said) are
//! kept as each version left them, with a keyspace of every protocol, snapshots and records behind them, and are opened by this one.
//!
//! `UPDATE_EXPECT=1` writes those of this version and its format where none are kept (`make corpus`). What is kept is never written
//! over: who changes on purpose what was never released moves the file away first; what only it has, as an earlier format, is kept
//! under another name.

use super::processes::until;
use super::resp::{Client, Reply};
use bzip2::Compression;
use bzip2::read::BzDecoder;
use bzip2::write::BzEncoder;
use isochrone_core::wire::RECORDED;
use isochrone_core::{Deployment, KeyspaceId, NodeId, ProcessId, Role};
use isochrone_node::journal::Expect;
use isochrone_node::node::{DEFAULT_SNAPSHOT_BYTES, Node, NodeConfig, NodeHandle, Sockets};
use isochrone_node::redis::RedisGateway;
use isochrone_protocols as protocols;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is put into each keyspace, again and again.
const WRITES: &[&str] = &[
    "DEL list stream gone",
    "SET text words",
    "EXPIREAT text 4102444800",
    "SET count 41",
    "INCR count",
    "RPUSH list a b c",
    "HSET hash f v g w",
    "SADD set x y",
    "ZADD sorted 1 one 2.5 two",
    "XADD stream 1-1 f v",
    "XADD stream 2-1 g w",
    "XGROUP CREATE stream readers 0",
    "XREADGROUP GROUP readers me COUNT 1 STREAMS stream >",
    "PFADD log a b c",
    "SETBIT bits 7 1",
    "SET gone x",
    "DEL gone",
];

/// What is there then.
const READS: &[(&str, &str)] = &[
    ("GET text", "words"),
    ("EXPIRETIME text", "4102444800"),
    ("GET count", "42"),
    ("LRANGE list 0 -1", "[a, b, c]"),
    ("HGET hash g", "w"),
    ("SISMEMBER set y", "1"),
    ("ZRANGE sorted 0 -1 WITHSCORES", "[one, 1, two, 2.5]"),
    ("XRANGE stream - +", "[[1-1, [f, v]], [2-1, [g, w]]]"),
    ("XPENDING stream readers", "[1, 1-1, 1-1, [[me, 1]]]"),
    ("PFCOUNT log", "3"),
    ("GETBIT bits 7", "1"),
    ("EXISTS gone", "0"),
];

/// Bytes of each of three values that are put into some keyspaces besides: together they take more than one chunk of a snapshot.
const LONG: usize = 90_000;

/// Whether a keyspace is one of those. Some of them are of transactions.
fn is_long(index: u16) -> bool {
    index.is_multiple_of(4)
}

/// All that is asked of so many keyspaces, each question with the reply to it in the line below.
fn expectations(keyspaces: u16) -> String {
    let mut text = String::new();
    for index in 0..keyspaces {
        text += &format!("SELECT {index}\nOK\n");
        READS.iter().for_each(|(question, reply)| text += &format!("{question}\n{reply}\n"));
        text += &match is_long(index) {
            true => format!("HSTRLEN long b\n{LONG}\nDBSIZE\n10\n"),
            false => "DBSIZE\n9\n".to_owned(),
        };
    }
    text
}

#[test]
fn what_versions_have_written_is_read_by_this_one() {
    let kept = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus"));
    let own = kept.join(format!("{}-{RECORDED}.data.bz2", env!("CARGO_PKG_VERSION")));
    if !own.exists() {
        let told = "no data of this version and format is kept: run `make corpus`, which writes it, and commit the file";
        assert!(std::env::var_os("UPDATE_EXPECT").is_some(), "{}: {told}", own.display());
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        fs::create_dir_all(kept).unwrap();
        let mut packed = BzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&pack(folder.path())).unwrap();
        fs::write(&own, packed.finish().unwrap()).unwrap();
    }
    let told = "this version keeps nothing of them: where it was never released, copy the file under another name, so that what only \
                it has is still read, delete it, run `make corpus` and commit both; else give the workspace the number of the next \
                version";
    assert_eq!(of_none(&own), BTreeSet::new(), "{}: {told}", own.display());
    let mut corpora: Vec<PathBuf> = fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    corpora.sort();
    for corpus in corpora {
        read(open(&corpus).path(), &corpus, corpus == own);
    }
}

/// What is kept in a file, in a folder.
fn open(corpus: &Path) -> tempfile::TempDir {
    let (file, folder) = (fs::File::open(corpus).unwrap(), tempfile::tempdir().unwrap());
    let mut packed = Vec::new();
    BzDecoder::new(file).read_to_end(&mut packed).unwrap();
    unpack(&packed, folder.path());
    folder
}

fn deployment(folder: &Path) -> Deployment {
    Deployment::load(&folder.join("deployment.toml"), &protocols::known()).unwrap()
}

/// The protocols of which a file of data has no keyspace.
fn of_none(corpus: &Path) -> BTreeSet<&'static str> {
    let deployment = deployment(open(corpus).path());
    let has = |name: &&str| deployment.keyspaces().iter().any(|keyspace| keyspace.protocol == *name);
    protocols::ALL.iter().map(|protocol| protocol.name).filter(|name| !has(name)).collect()
}

/// The nodes of the deployment in a folder, and where each has its data.
fn directories(folder: &Path) -> Vec<(NodeId, PathBuf)> {
    let deployment = deployment(folder);
    let alone = deployment.nodes().len() == 1;
    let of = |node: NodeId| if alone { folder.join("data") } else { folder.join(format!("n{}", node.0)) };
    deployment.nodes().iter().map(|node| (node.id, of(node.id))).collect()
}

/// These nodes, which know each other.
fn start(folder: &Path, expect: Expect, snapshot_bytes: u64) -> Vec<NodeHandle> {
    let any = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (deployment, directories) = (Arc::new(deployment(folder)), directories(folder));
    let sockets: Vec<TcpListener> = directories.iter().map(|_| any()).collect();
    let peer = |((node, _), socket): (&(NodeId, _), &TcpListener)| (*node, socket.local_addr().unwrap());
    let peers: BTreeMap<_, _> = directories.iter().zip(&sockets).map(peer).collect();
    let begin = |((node, data), socket)| {
        let config = NodeConfig {
            deployment: Arc::clone(&deployment),
            node,
            data,
            expect,
            sockets: Sockets { peer: Some(socket), redis: vec![any()], grpc: None, http: None },
            peers: peers.clone(),
            emulation: None,
            admin_token: None,
            network: None,
            snapshot_bytes,
        };
        Node::start(config, &protocols::served(), Box::new(RedisGateway)).unwrap()
    };
    directories.into_iter().zip(sockets).map(begin).collect()
}

/// How many keyspaces the deployment in a folder has.
fn keyspaces(folder: &Path) -> u16 {
    deployment(folder).keyspaces().len() as u16
}

/// Makes the deployment and the data of its nodes, which end as if they were killed, and what is to be found in it.
fn write(folder: &Path) {
    let mut text = "cluster = \"corpus\"\n[[region]]\nname = \"here\"\n".to_owned();
    for node in 0..3 {
        let address = format!("listen = \"127.0.0.1:700{node}\"");
        text += &format!("[[node]]\nname = \"n{node}\"\nregion = \"here\"\n{address}\n");
    }
    for protocol in protocols::ALL {
        let name = protocol.name;
        text += &format!("[[keyspace]]\nname = \"{name}\"\nprotocol = \"{name}\"\nreplication = 3\n");
    }
    fs::write(folder.join("deployment.toml"), text).unwrap();
    let all = keyspaces(folder);
    fs::write(folder.join("expected.txt"), expectations(all)).unwrap();
    let nodes = start(folder, Expect::Anything, 2 << 10);
    let mut client = Client::connect(nodes[0].redis_addresses()[0]).unwrap();
    until("a snapshot of every keyspace on every node", || {
        (0..all).for_each(|index| fill(&mut client, index));
        let mut directories = directories(folder).into_iter();
        directories.all(|(_, data)| with_snapshots(&data).len() == usize::from(all)).then_some(())
    });
    (0..all).for_each(|index| fill(&mut client, index));
    nodes.into_iter().for_each(|node| node.kill().unwrap());
}

/// The keyspaces whose servers have a snapshot that is finished, in a node's data.
fn with_snapshots(data: &Path) -> BTreeSet<KeyspaceId> {
    let names = fs::read_dir(data.join("snapshots")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap()).filter(|name| !name.ends_with(".new"));
    let streams = names.filter_map(|name| u64::from_str_radix(name.split('-').next()?, 16).ok());
    streams.map(ProcessId::from_u64).filter(|id| id.role == Role(0)).map(|id| id.keyspace).collect()
}

/// What holds of data that a version has left in this folder: all of it is read, also after more was written.
fn read(folder: &Path, corpus: &Path, own: bool) {
    let corpus = corpus.display();
    let all = keyspaces(folder);
    for (node, data) in directories(folder) {
        assert_eq!(with_snapshots(&data).len(), usize::from(all), "{corpus}: {node} has a snapshot of each");
    }
    if own {
        // Under the same version the same formats are written.
        let fresh = tempfile::tempdir().unwrap();
        fs::copy(folder.join("deployment.toml"), fresh.path().join("deployment.toml")).unwrap();
        let nodes = start(fresh.path(), Expect::Anything, DEFAULT_SNAPSHOT_BYTES);
        nodes.into_iter().for_each(|node| node.kill().unwrap());
        let head = |bytes: Vec<u8>| bytes.into_iter().take_while(|byte| *byte != b'\n').collect::<Vec<_>>();
        for ((_, new), (_, kept)) in directories(fresh.path()).into_iter().zip(directories(folder)) {
            let file = |data: &Path, name: &str| fs::read(data.join(name)).unwrap();
            assert_eq!(file(&new, "IDENTITY"), file(&kept, "IDENTITY"), "{corpus}");
            for name in ["KEYSPACES", "PEERS"] {
                assert_eq!(head(file(&new, name)), head(file(&kept, name)), "{corpus}: {name}");
            }
        }
    }
    let found = fs::read_to_string(folder.join("expected.txt")).unwrap();
    for (life, expected) in [(1, found), (2, expectations(all))] {
        let nodes = start(folder, Expect::Existing, DEFAULT_SNAPSHOT_BYTES);
        for node in &nodes {
            let mut client = Client::connect(node.redis_addresses()[0]).unwrap();
            let (mut lines, mut keyspace) = (expected.lines(), "");
            while let (Some(question), Some(reply)) = (lines.next(), lines.next()) {
                keyspace = if question.starts_with("SELECT ") { question } else { keyspace };
                let what = format!("{corpus}, start {life}, {keyspace}: {question}");
                let answer = until(&what, || {
                    let told = told(&ask(&mut client, question));
                    // Whoever leads has to be found first.
                    (!["!NOLEADER", "!TRYAGAIN", "!UNKNOWN"].iter().any(|no| told.starts_with(no)))
                        .then_some(told)
                });
                assert_eq!(answer, reply, "{what}");
            }
        }
        let mut client = Client::connect(nodes[0].redis_addresses()[0]).unwrap();
        (0..all).for_each(|index| fill(&mut client, index));
        nodes.into_iter().for_each(|node| node.stop().unwrap());
    }
}

fn select(client: &mut Client, index: u16) {
    assert_eq!(told(&ask(client, &format!("SELECT {index}"))), "OK");
}

/// Puts everything into a keyspace.
fn fill(client: &mut Client, index: u16) {
    select(client, index);
    let long = "x".repeat(LONG);
    let words = WRITES.iter().map(|line| line.split(' ').collect());
    let long = is_long(index).then(|| vec!["HSET", "long", "a", &long, "b", &long, "c", &long]);
    let words: Vec<Vec<&str>> = words.chain(long).collect();
    let commands: Vec<&[&str]> = words.iter().map(Vec::as_slice).collect();
    until("all that is to be written", || {
        let replies = client.pipeline(&commands).unwrap();
        let failed = replies.iter().find(|reply| matches!(reply, Reply::Error(_)));
        failed.is_none().then_some(()).or_else(|| {
            println!("SELECT {index}: {failed:?}");
            None
        })
    });
}

fn ask(client: &mut Client, line: &str) -> Reply {
    client.ask(&line.split(' ').collect::<Vec<_>>()).unwrap()
}

/// A reply in a line.
fn told(reply: &Reply) -> String {
    match reply {
        Reply::Text(text) => text.clone(),
        Reply::Number(number) => number.to_string(),
        Reply::Nothing => "nil".to_owned(),
        Reply::List(list) => format!("[{}]", list.iter().map(told).collect::<Vec<_>>().join(", ")),
        Reply::Error(text) => format!("!{text}"),
    }
}

/// Files are kept without their empty sectors: a journal is made ahead of time and is mostly that.
const SECTOR: usize = 512;

/// All below a folder in one file: of each a line `name length sectors`, then each sector that is not empty behind its number; of
/// a folder, whose name ends with a slash, a line alone.
fn pack(folder: &Path) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, content) in below(folder, "") {
        let Some(content) = content else {
            packed.extend_from_slice(format!("{name} 0 0\n").as_bytes());
            continue;
        };
        let sectors =
            || content.chunks(SECTOR).enumerate().filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
        let head = format!("{name} {} {}\n", content.len(), sectors().count());
        packed.extend_from_slice(head.as_bytes());
        for (number, sector) in sectors() {
            packed.extend_from_slice(&(number as u32).to_le_bytes());
            packed.extend_from_slice(sector);
            packed.resize(packed.len() + SECTOR - sector.len(), 0);
        }
    }
    packed
}

/// Names below a folder, in order, and what files hold. The lock is nobody's, and what is half-written would be removed.
fn below(folder: &Path, under: &str) -> Vec<(String, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        assert!(!name.contains([' ', '\n']), "{name}");
        if name == "LOCK" || name.ends_with(".new") {
            continue;
        }
        let (path, name) = (entry.path(), format!("{under}{name}"));
        if path.is_dir() {
            let name = name + "/";
            found.push((name.clone(), None));
            found.extend(below(&path, &name));
        } else {
            found.push((name, Some(fs::read(&path).unwrap())));
        }
    }
    found
}

/// The inverse of [`pack`].
fn unpack(mut packed: &[u8], folder: &Path) {
    while let Some(end) = packed.iter().position(|byte| *byte == b'\n') {
        let head = std::str::from_utf8(&packed[..end]).unwrap();
        packed = &packed[end + 1..];
        let [name, length, sectors] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        if name.ends_with('/') {
            fs::create_dir_all(folder.join(name)).unwrap();
            continue;
        }
        let mut content = vec![0; length.parse().unwrap()];
        for _ in 0..sectors.parse::<usize>().unwrap() {
            let number = u32::from_le_bytes(packed[..4].try_into().unwrap()) as usize;
            let begin = number * SECTOR;
            let end = content.len().min(begin + SECTOR);
            content[begin..end].copy_from_slice(&packed[4..4 + end - begin]);
            packed = &packed[4 + SECTOR..];
        }
        fs::write(folder.join(name), content).unwrap();
    }
    assert!(packed.is_empty(), "the file is damaged");
}
