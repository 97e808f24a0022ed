//! Whole keyspaces into a file and back.

use crate::processes::{
    PATIENCE, Process, addresses, client, deployment_of, hash, isochrone, node, nodes, outcome, serves,
};
use crate::resp::{Client, Reply};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// One of each type in text, some with a deadline in the year 2100.
const FILL: &[&[&str]] = &[
    &["SET", "string", "Lisbon", "PXAT", "4102444800000"],
    &["SET", "number", "-42"],
    &["SETBIT", "bits", "9", "1"],
    &["PFADD", "sketch", "a", "b", "c"],
    &["RPUSH", "list", "a", "", "c"],
    &["SADD", "set", "1", "2", "x"],
    &["HSET", "hash", "field", "value", "other", "1"],
    &["PEXPIREAT", "hash", "4102444800001"],
    &["ZADD", "sorted", "1.5", "a", "-inf", "b", "2", "c"],
    &["GEOADD", "places", "13.361389", "38.115556", "Palermo"],
    &["XADD", "stream", "1-1", "f", "v"],
    &["XADD", "stream", "2-1", "f", "w", "g", "x"],
    &["XADD", "stream", "3-1", "f", "y"],
    &["XGROUP", "CREATE", "stream", "group", "0"],
    &["XREADGROUP", "GROUP", "group", "ann", "COUNT", "2", "STREAMS", "stream", ">"],
    &["XACK", "stream", "group", "1-1"],
    &["XDEL", "stream", "3-1"],
];
/// Their keys.
const KEYS: [&str; 10] =
    ["string", "number", "bits", "sketch", "list", "set", "hash", "sorted", "places", "stream"];
/// No text.
const BYTES: &[u8] = b"\xff\0\r\n key";

/// Asks with bytes, and hears bytes: those of a value, or a line.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(address: SocketAddr) -> Raw {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw(BufReader::new(socket))
    }

    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        match line.strip_prefix('$').and_then(|length| length.trim_end().parse::<usize>().ok()) {
            Some(length) => {
                let mut value = vec![0; length + 2];
                self.0.read_exact(&mut value).unwrap();
                value
            }
            None => line.into_bytes(),
        }
    }

    /// Value and deadline of each of these keys, as they are told.
    fn picture(&mut self, keys: &[Vec<u8>]) -> Vec<(Vec<u8>, Vec<u8>)> {
        keys.iter().map(|key| (self.ask(&[b"DUMP", key]), self.ask(&[b"PEXPIRETIME", key]))).collect()
    }
}

/// Fills a keyspace; all its keys.
fn fill(address: SocketAddr) -> Vec<Vec<u8>> {
    let mut asker = client(address);
    for words in FILL {
        let reply = asker.ask(words).unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    }
    let mut raw = Raw::connect(address);
    // Longer than what is read at once.
    let long: Vec<u8> = (0..300_000u32).map(|number| (number * 7 % 256) as u8).collect();
    assert_eq!(raw.ask(&[b"SET", BYTES, &long]), b"+OK\r\n");
    let many: Vec<String> = (0..300).map(|number| format!("many:{number}")).collect();
    for key in &many {
        assert_eq!(asker.ask(&["SET", key, "x"]).unwrap(), Reply::Text("OK".to_owned()));
    }
    let named = KEYS.iter().map(|key| key.as_bytes().to_vec()).chain([BYTES.to_vec()]);
    named.chain(many.into_iter().map(String::into_bytes)).collect()
}

fn size(asker: &mut Client) -> Reply {
    asker.ask(&["DBSIZE"]).unwrap()
}

#[track_caller]
fn run(mut command: Command, status: i32) -> (String, String) {
    let done = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(status), "{command:?}\n{out}\n{err}");
    (out, err)
}

/// What a backup in this environment prints as JSON.
#[track_caller]
fn json(words: &[&str], auth: Option<&str>, status: i32) -> Value {
    let mut command = isochrone([&["backup"][..], words, &["--format", "json"]].concat());
    if let Some(auth) = auth {
        command.env("ISOCHRONE_AUTH", auth);
    }
    let (out, err) = run(command, status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error}\n{out}\n{err}"))
}

/// A backup that is refused: what it says.
#[track_caller]
fn refused(words: &[&str], auth: Option<&str>, status: i32) -> String {
    let mut command = isochrone([&["backup"][..], words].concat());
    if let Some(auth) = auth {
        command.env("ISOCHRONE_AUTH", auth);
    }
    let (out, err) = run(command, status);
    assert_eq!(out, "", "{words:?}\n{err}");
    err
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Of a keyspace in partitions, so that no two keys can be counted on to be read at once.
#[test]
fn a_keyspace_is_saved_and_restored_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let places = nodes(3);
    let deployed = deployment_of(path, "three.toml", "prod", &places, "multipaxos 4");
    let _processes: Vec<Process> = (0..3).map(|index| node(&deployed, index, path)).collect();
    serves(places[1].redis);
    let [first, second] = [places[0].redis, places[1].redis];
    let mut asker = client(first);
    assert_eq!(asker.ask(&["FLUSHALL"]).unwrap(), Reply::Text("OK".to_owned()));
    let keys = fill(first);
    let before = Raw::connect(first).picture(&keys);

    let (at, other) = (first.to_string(), second.to_string());
    let file = path.join("main.backup");
    let save = ["save", text(&file), "--endpoint", &at];
    let saved = json(&save, None, 0);
    assert_eq!((&saved["cluster"], &saved["keyspace"]), (&"prod".into(), &"main".into()));
    assert_eq!((&saved["keys"], &saved["with_deadline"]), (&keys.len().into(), &2.into()));
    assert_eq!(saved["one_moment"], false);
    assert_eq!(saved["bytes"], fs::metadata(&file).unwrap().len());
    let told = json(&["verify", text(&file)], None, 0);
    for field in ["cluster", "keyspace", "protocol", "keys", "value_bytes", "types", "begun_ms", "bytes"] {
        assert_eq!(told[field], saved[field], "{field}");
    }
    let types = serde_json::json!({"string": 305, "list": 1, "set": 1, "zset": 2, "hash": 1, "stream": 1});
    assert_eq!(told["types"], types);

    // Nothing is written over unasked: neither files, nor keys.
    let err = refused(&save, None, 2);
    assert!(err.contains("there is a file of this name"), "{err}");
    json(&[&save[..], &["--force"]].concat(), None, 0);
    let restore = ["restore", text(&file), "--endpoint", &other];
    let none = json(&restore, None, 1);
    assert_eq!((&none["restored"], &none["exist"]), (&0.into(), &keys.len().into()));
    assert_eq!(none["first"].as_array().map(Vec::len), Some(10));

    // Back, through another node.
    assert_eq!(asker.ask(&["FLUSHALL"]).unwrap(), Reply::Text("OK".to_owned()));
    assert_eq!(size(&mut asker), Reply::Number(0));
    let back = json(&restore, None, 0);
    assert_eq!((&back["restored"], &back["failed"]), (&keys.len().into(), &0.into()));
    assert_eq!(Raw::connect(first).picture(&keys), before);
    assert_eq!(size(&mut asker), Reply::Number(keys.len() as i64));

    // Over what is there: only in the cluster that is named, and what is not in the file stays.
    assert_eq!(asker.ask(&["SET", "string", "Porto"]).unwrap(), Reply::Text("OK".to_owned()));
    assert_eq!(asker.ask(&["SET", "new", "1"]).unwrap(), Reply::Text("OK".to_owned()));
    let replace = [&restore[..], &["--replace"]].concat();
    let err = refused(&replace, None, 2);
    assert!(err.contains("--cluster NAME"), "{err}");
    let err = refused(&[&replace[..], &["--cluster", "test"]].concat(), None, 2);
    assert!(err.contains("is a node of cluster prod"), "{err}");
    assert_eq!(asker.ask(&["GET", "string"]).unwrap(), Reply::Text("Porto".to_owned()));
    let over = json(&[&replace[..], &["--cluster", "prod"]].concat(), None, 0);
    assert_eq!(over["restored"], keys.len());
    assert_eq!(Raw::connect(first).picture(&keys), before);
    assert_eq!(asker.ask(&["GET", "new"]).unwrap(), Reply::Text("1".to_owned()));

    // A damaged file is refused before anything is written.
    let bytes = fs::read(&file).unwrap();
    let damaged = path.join("damaged.backup");
    let mut changed = bytes.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 4;
    assert_eq!(asker.ask(&["FLUSHALL"]).unwrap(), Reply::Text("OK".to_owned()));
    let cut = &bytes[..bytes.len() - 1];
    for (contents, expected) in [(cut, "cut short"), (&changed[..], "damaged at or behind byte")] {
        fs::write(&damaged, contents).unwrap();
        for words in [&["verify", text(&damaged)][..], &["restore", text(&damaged), "--endpoint", &at]] {
            let err = refused(words, None, 1);
            assert!(err.contains(expected), "{words:?}: {err}");
        }
    }
    assert_eq!(size(&mut asker), Reply::Number(0));
    let err = refused(&["verify", text(&deployed)], None, 2);
    assert!(err.contains("this is no backup"), "{err}");

    // A user sees what the rules allow: with less than all there is no backup.
    json(&restore, None, 0);
    let rules = "+info +client|info +select +scan +multi +exec +dump +pexpiretime";
    let user: Vec<&str> =
        ["ACL", "SETUSER", "saver", "on", ">secret", "~*"].into_iter().chain(rules.split(' ')).collect();
    assert_eq!(asker.ask(&user).unwrap(), Reply::Text("OK".to_owned()));
    let theirs = path.join("theirs.backup");
    let save = ["save", text(&theirs), "--endpoint", &at];
    assert_eq!(json(&save, Some("saver:secret"), 0)["keys"], keys.len());
    fs::remove_file(&theirs).unwrap();
    let err = refused(&save, Some("saver:wrong"), 1);
    assert!(err.contains("WRONGPASS"), "{err}");
    let less = ["ACL", "SETUSER", "saver", "resetkeys", "~many:*"];
    assert_eq!(asker.ask(&less).unwrap(), Reply::Text("OK".to_owned()));
    let err = refused(&save, Some("saver:secret"), 1);
    assert!(err.contains("NOPERM") && err.contains("the user needs +info"), "{err}");
    assert!(!theirs.exists());

    elsewhere(path, &deployed, &file, &told);
}

/// Into another cluster, of another protocol, with TLS and a password; and out of that again.
fn elsewhere(path: &Path, deployed: &Path, file: &Path, told: &Value) {
    let certificates = path.join("certs");
    let (status, out, err) = outcome(["cert", text(deployed), "--out", text(&certificates)]);
    assert_eq!(status, 0, "{out}\n{err}");
    let pem = |name: &str| certificates.join(name).to_str().unwrap().to_owned();
    let at = addresses(1)[0];
    let mut command = isochrone(["redis", "--dir", text(&path.join("redis"))]);
    command.args(["--port", &at.port().to_string(), "--cert", &pem("n0-client.pem")]);
    command.args(["--key", &pem("n0-client.key")]).env("ISOCHRONE_PASSWORD_HASH", hash("secret"));
    command.stderr(Stdio::null());
    let process = Process::start(command);
    let line = process.line();
    assert!(line.as_ref().is_some_and(|line| line.contains("is ready")), "{line:?}");

    let (at, ca) = (at.to_string(), pem("ca.pem"));
    let restore = ["restore", text(file), "--endpoint", &at];
    let err = refused(&restore, Some("default:secret"), 2);
    assert!(err.contains("it speaks TLS") && err.contains("--ca"), "{err}");
    let restore = [&restore[..], &["--ca", &ca]].concat();
    let err = refused(&restore, None, 1);
    assert!(err.contains("NOAUTH") && err.contains("ISOCHRONE_AUTH"), "{err}");
    let restored = json(&restore, Some("secret"), 0);
    assert_eq!((&restored["cluster"], &restored["restored"]), (&"redis".into(), &told["keys"]));
    let again = path.join("again.backup");
    let saved = json(&["save", text(&again), "--endpoint", &at, "--ca", &ca], Some("secret"), 0);
    assert_eq!((&saved["protocol"], &saved["cluster"]), (&"curp".into(), &"redis".into()));
    for field in ["keys", "with_deadline", "key_bytes", "value_bytes", "types"] {
        assert_eq!(saved[field], told[field], "{field}");
    }
}

/// What of a stream no DUMP is compared for: when its consumers were seen is not put back.
const OF_STREAMS: &[&[&str]] = &[
    &["XRANGE", "long:stream", "-", "+"],
    &["XINFO", "STREAM", "long:stream"],
    &["XINFO", "GROUPS", "long:stream"],
    &["XPENDING", "long:stream", "group"],
];

/// A node that takes 64 KiB in an argument: less than each of these values has as it is dumped. The keys of its keyspace are in
/// partitions, and one is of a name beside which no other has a place.
#[test]
fn values_that_a_node_does_not_take_whole_are_put_back_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let places = nodes(2);
    let [large, small] = ["large", "small"].map(|name| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    });
    let deployed = deployment_of(&large, "one.toml", "large", &places[..1], "multipaxos");
    let _large = node(&deployed, 0, &large);
    let deployed = deployment_of(&small, "one.toml", "small", &places[1..], "multipaxos 4");
    let written = fs::read_to_string(&deployed).unwrap();
    fs::write(&deployed, written + "[limits]\nbulk = \"64KiB\"\nelements = 1000\n").unwrap();
    let _small = node(&deployed, 0, &small);
    let [from, to] = [places[0].redis, places[1].redis];
    serves(from);
    serves(to);
    let (mut asker, mut other) = (client(from), client(to));
    for asker in [&mut asker, &mut other] {
        assert_eq!(asker.ask(&["FLUSHALL"]).unwrap(), Reply::Text("OK".to_owned()));
    }

    let mut fill = |words: &[&str]| {
        let reply = asker.ask(words).unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply:?}", words[0]);
    };
    fill(&["SET", "long:string", &"x".repeat((64 << 10) - 4)]);
    let values: Vec<[String; 2]> =
        (0..1_500).map(|number| [format!("{number}.5"), format!("{number:0>100}")]).collect();
    let single: Vec<&str> = values.iter().map(|[_, value]| value.as_str()).collect();
    let pairs: Vec<&str> = values.iter().flatten().map(String::as_str).collect();
    fill(&[&["RPUSH", "long:list"][..], &single[..]].concat());
    fill(&[&["RPUSH", "long:}"][..], &single[..]].concat());
    fill(&[&["SADD", "long:set"][..], &single[..]].concat());
    fill(&[&["HSET", "long:hash"][..], &pairs[..]].concat());
    fill(&[&["ZADD", "long:sorted"][..], &pairs[..]].concat());
    for number in 1..=100 {
        fill(&["XADD", "long:stream", &format!("{number}-1"), "field", &format!("{number:0>1000}")]);
    }
    fill(&["ZADD", "long:sorted", "-inf", "least", "1e300", "most"]);
    fill(&["PEXPIREAT", "long:hash", "4102444800001"]);
    fill(&["XGROUP", "CREATE", "long:stream", "group", "0"]);
    fill(&["XGROUP", "CREATE", "long:stream", "other", "7-1", "ENTRIESREAD", "7"]);
    fill(&["XREADGROUP", "GROUP", "group", "ann", "COUNT", "20", "STREAMS", "long:stream", ">"]);
    fill(&["XREADGROUP", "GROUP", "group", "bob", "COUNT", "5", "STREAMS", "long:stream", ">"]);
    fill(&["XACK", "long:stream", "group", "1-1"]);
    fill(&["XDEL", "long:stream", "100-1"]);

    let keys =
        ["string", "list", "}", "set", "hash", "sorted"].map(|kind| format!("long:{kind}").into_bytes());
    let before = Raw::connect(from).picture(&keys);
    let streams: Vec<Reply> = OF_STREAMS.iter().map(|words| asker.ask(words).unwrap()).collect();
    let file = folder.path().join("main.backup");
    let saved = json(&["save", text(&file), "--endpoint", &from.to_string()], None, 0);
    assert_eq!((&saved["keys"], &saved["in_parts"]), (&7.into(), &0.into()));

    let at = to.to_string();
    let restore = ["restore", text(&file), "--endpoint", &at];
    assert_eq!(json(&restore, None, 0)["restored"], 7);
    let none = json(&restore, None, 1);
    assert_eq!((&none["restored"], &none["exist"]), (&0.into(), &7.into()));
    let replace = [&restore[..], &["--replace", "--cluster", "small"]].concat();
    let over = json(&replace, None, 0);
    assert_eq!((&over["restored"], &over["failed"]), (&7.into(), &0.into()));
    assert_eq!(size(&mut other), Reply::Number(7));
    assert!(Raw::connect(to).picture(&keys) == before, "what was put back is another");
    let there: Vec<Reply> = OF_STREAMS.iter().map(|words| other.ask(words).unwrap()).collect();
    assert!(there == streams, "{:?}\n{:?}", &there[1..], &streams[1..]);

    // An entry that no command of this node can write: what is there stays.
    let wide: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
    let reply = asker.ask(&[&["XADD", "wide", "1-1"][..], &wide[..]].concat()).unwrap();
    assert_eq!(reply, Reply::Text("1-1".to_owned()));
    assert_eq!(other.ask(&["SET", "wide", "old"]).unwrap(), Reply::Text("OK".to_owned()));
    json(&["save", text(&file), "--endpoint", &from.to_string(), "--force"], None, 0);
    let over = json(&replace, None, 1);
    assert_eq!((&over["restored"], &over["failed"]), (&7.into(), &1.into()));
    let error = over["first"][0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("a command of 2003 words, and the node takes 1000"), "{error}");
    assert_eq!(Raw::connect(to).ask(&[b"GET", b"wide"]), b"old\r\n");
    assert_eq!(size(&mut other), Reply::Number(8));
}
