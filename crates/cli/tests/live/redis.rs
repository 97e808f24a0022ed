//! `isochrone redis`: the start with nothing but a directory, and that directory in the hands of `isochrone node`.

use super::grammar::{Peer, Server, encode};
use super::processes::{
    Addresses, Process, TOKEN, addresses, client, deployment, hash, isochrone, node, nodes, outcome, page,
    there_is_redis, until, writes,
};
use super::resp::{Client, Reply, ask};
use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

/// The verb, once it says that it serves.
fn redis(dir: &Path, address: SocketAddr, more: &[&str]) -> Process {
    let mut command = isochrone(["redis", "--dir"]);
    command.arg(dir).args(["--port", &address.port().to_string()]).args(more);
    let process = Process::start(command);
    let line = process.line().expect("a line");
    assert_eq!(line, format!("redis of redis is ready, redis {address}"));
    process
}

/// Asks until the node, which elects itself first, serves.
fn served(address: SocketAddr, words: &[&str]) -> Reply {
    until("a reply", || match client(address).ask(words).ok()? {
        Reply::Error(text) if text.starts_with("NOLEADER") => None,
        reply => Some(reply),
    })
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn what_was_answered_outlives_a_kill_and_the_node_verb_takes_the_directory_over() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("deep/data");
    let address = addresses(1)[0];
    let mut process = redis(&dir, address, &[]);
    assert_eq!(served(address, &["SET", "city", "Lisbon"]), Reply::Text("OK".to_owned()));
    assert_eq!(ask(&mut client(address), &["INCR", "visits"]), Reply::Number(1));
    process.signal("KILL");
    assert_eq!(process.end(), None);

    // Another port: the file is still as it was written, so it follows.
    let other = addresses(1)[0];
    let mut process = redis(&dir, other, &[]);
    assert_eq!(served(other, &["GET", "city"]), Reply::Text("Lisbon".to_owned()));
    assert_eq!(ask(&mut client(other), &["INCR", "visits"]), Reply::Number(2));
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));

    // Edited, it is run by the node verb as well.
    let file = dir.join("deployment.toml");
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains(&format!("redis = \"{other}\"")), "{written}");
    let last = addresses(1)[0];
    fs::write(&file, written.replace(&other.to_string(), &last.to_string()) + "\n# Mine now.\n").unwrap();
    let mut command = isochrone(["node", text(&file), "--name", "redis", "--expect-data", "--data"]);
    command.arg(&dir);
    let mut process = Process::start(command);
    assert!(process.line().expect("a line").contains("is ready"));
    assert_eq!(served(last, &["GET", "city"]), Reply::Text("Lisbon".to_owned()));
    assert_eq!(ask(&mut client(last), &["INCR", "visits"]), Reply::Number(3));
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));

    // And an edited file is not written again.
    let (status, _, err) = outcome(["redis", "--dir", text(&dir), "--port", "7777"]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("--port: ") && err.contains("was edited"), "{err}");
}

/// `isochrone node` of this name, its HTTP address open to orders.
fn member(file: &Path, name: &str, data: &Path) -> Process {
    let mut command = isochrone(["node", text(file), "--name", name, "--data", text(data)]);
    command.env("ISOCHRONE_ADMIN_TOKEN", TOKEN);
    let process = Process::start(command);
    assert!(process.line().is_some_and(|line| line.contains("is ready")), "{name}");
    process
}

/// What a node counts under this name of what its protocols do.
fn counted(http: SocketAddr, what: &str) -> u64 {
    let label = format!("what=\"{what}\"}} ");
    let page = page(http, "/metrics").unwrap_or_default();
    page.lines().find_map(|line| line.split_once(&label)?.1.trim().parse().ok()).unwrap_or(0)
}

/// One of every type, and how all of it is read.
const FILL: &[&str] = &[
    "SET city Lisbon",
    "SET session abc EXAT 4000000000",
    "SETBIT bits 100 1",
    "HSET hash a 1 b 2",
    "RPUSH list one two three",
    "SADD set x",
    "ZADD scores 1.5 a 2 b",
    "XADD stream 1-1 field value",
    "INCRBY count 41",
];
const LOOK: &[&str] = &[
    "GET city",
    "EXPIRETIME session",
    "BITCOUNT bits",
    "HMGET hash a b c",
    "LRANGE list 0 -1",
    "SMEMBERS set",
    "ZRANGE scores 0 -1 WITHSCORES",
    "XRANGE stream - +",
    "GET count",
    "DBSIZE",
];

fn told_by_info(address: SocketAddr) -> String {
    format!("{:?}", served(address, &["INFO", "isochrone"]))
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn look(address: SocketAddr) -> Vec<Reply> {
    LOOK.iter().map(|line| served(address, &words(line))).collect()
}

#[test]
fn one_node_grows_into_a_master_with_two_witnesses_and_may_then_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let three = nodes(3);
    let mut process = redis(&dir, three[0].redis, &[]);
    for line in FILL {
        let reply = served(three[0].redis, &words(line));
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
    let filled = look(three[0].redis);
    assert_eq!(filled[0], Reply::Text("Lisbon".to_owned()));
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));

    let file = dir.join("deployment.toml");
    let own = format!("redis = \"{}\"\n", three[0].redis);
    let Addresses { listen, http, .. } = &three[0];
    let mut edited = fs::read_to_string(&file).unwrap();
    edited = edited.replace(&own, &format!("{own}listen = \"{listen}\"\nhttp = \"{http}\"\n"));
    for (index, Addresses { listen, redis, http, .. }) in three.iter().enumerate().skip(1) {
        edited += &format!(
            "[[node]]\nname = \"n{index}\"\nregion = \"here\"\nlisten = \"{listen}\"\nredis = \"{redis}\"\nhttp = \"{http}\"\n"
        );
    }
    // Three first replicas: the two that know nothing could agree without the one that has the data.
    let first = "replicas = [\"redis\"]\n";
    fs::write(&file, edited.replace(first, "replicas = [\"redis\", \"n1\", \"n2\"]\n")).unwrap();
    let (status, _, err) = outcome(["node", text(&file), "--name", "redis", "--data", text(&dir)]);
    assert_eq!(status, 2, "{err}");
    assert!(
        err.contains("began with replicas = redis") && err.contains("name nodes that are added in `spares`"),
        "{err}"
    );

    fs::write(&file, edited.replace(first, &format!("{first}parameters = {{ spares = \"n1, n2\" }}\n")))
        .unwrap();
    let (status, _, err) = outcome(["redis", "--dir", text(&dir)]);
    assert_eq!(status, 2, "{err}");
    assert!(err.contains("has 3 nodes") && err.contains("--name redis --data"), "{err}");

    let mut first = member(&file, "redis", &dir);
    let others = [1, 2].map(|index| {
        let name = format!("n{index}");
        member(&file, &name, &folder.path().join(&name))
    });
    for node in &three {
        assert_eq!(look(node.redis), filled);
    }
    assert_eq!(served(three[2].redis, &["INCR", "count"]), Reply::Number(42));
    until("managers beside the first", || (counted(three[0].http, "managers_added") == 2).then_some(()));
    for node in &three {
        until("a count of what there is now", || {
            let ready = page(node.http, "/readyz")?;
            let told = ready.contains("ready, 3 replicas, 3 of 3 nodes reachable");
            (told && told_by_info(node.redis).contains(",replicas=3,")).then_some(())
        });
    }

    first.signal("KILL");
    assert_eq!(first.end(), None);
    for node in &three[1..] {
        let found = look(node.redis);
        assert_eq!(found[8], Reply::Text("42".to_owned()));
        assert_eq!((&found[..8], &found[9..]), (&filled[..8], &filled[9..]));
    }
    assert_eq!(served(three[1].redis, &["INCR", "count"]), Reply::Number(43));
    // It is one like the others now.
    let _first = member(&file, "redis", &dir);
    assert_eq!(served(three[0].redis, &["GET", "count"]), Reply::Text("43".to_owned()));
    drop(others);
}

#[test]
fn a_monitor_sees_how_many_commands_come_in_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let _process = redis(folder.path(), address, &[]);
    let mut client = client(address);
    // The questions themselves are commands.
    let rate = until("a rate", || {
        let Reply::Text(text) = ask(&mut client, &["INFO", "stats"]) else { return None };
        let rate = text.lines().find_map(|line| line.strip_prefix("instantaneous_ops_per_sec:"));
        rate.and_then(|rate| rate.parse::<u64>().ok()).filter(|rate| *rate > 0)
    });
    // One is sent at most every five milliseconds.
    assert!(rate <= 250, "{rate} commands a second");
}

#[test]
fn a_load_is_part_of_the_history_that_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let data = folder.path().join("data");
    let _process = redis(&data, address, &[]);
    served(address, &["PING"]);
    let (history, address) = (folder.path().join("history.jsonl"), address.to_string());
    let bench = ["bench", "--endpoint", &address, "--clients", "4", "--records", "200", "--duration", "1s"];
    for workload in ["ycsb-a", "get"] {
        let asked = [&bench[..], &["--workload", workload, "--history", text(&history)]].concat();
        let (status, out, err) = outcome(asked);
        assert_eq!(status, 0, "{out}{err}");
        let (status, out, err) = outcome(["check", text(&history)]);
        assert_eq!(status, 0, "{out}{err}");
    }
    let (status, out, err) = outcome([&bench[..], &["--workload", "retwis"]].concat());
    assert!(status != 0 && format!("{out}{err}").contains("transactions go through gRPC"), "{out}{err}");
}

#[test]
fn with_a_password_nothing_is_answered_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let _process = redis(folder.path(), address, &["--password-hash", &hash("open sesame")]);
    let mut client = client(address);
    let refused = Reply::Error("NOAUTH Authentication required.".to_owned());
    assert_eq!(ask(&mut client, &["GET", "city"]), refused);
    assert_eq!(ask(&mut client, &["AUTH", "open sesame"]), Reply::Text("OK".to_owned()));
    assert_eq!(ask(&mut client, &["PING"]), Reply::Text("PONG".to_owned()));
}

#[test]
fn what_cannot_be_started_says_why_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let refused = |dir: &Path, more: &[&str]| {
        let (status, out, err) =
            outcome(["redis", "--dir", text(dir)].into_iter().chain(more.iter().copied()));
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        err
    };
    let free = addresses(1)[0].port().to_string();

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let new = path.join("new");
    let err = refused(&new, &["--port", &address.port().to_string()]);
    let right = "stop it (a redis-server, or this very command?), or choose another with --port";
    assert_eq!(err, format!("isochrone: {address}: in use by another program\n  {right}\n"));
    assert!(!new.exists(), "nothing was written");

    let file = path.join("file");
    fs::write(&file, "").unwrap();
    for dir in [file.clone(), file.join("below")] {
        let err = refused(&dir, &["--port", &free]);
        assert!(err.contains("cannot write there: ") && err.contains("name a directory"), "{err}");
    }

    let photos = path.join("photos");
    fs::create_dir(&photos).unwrap();
    fs::write(photos.join("cat.jpg"), "meow").unwrap();
    let err = refused(&photos, &["--port", &free]);
    assert!(err.contains("not an isochrone data directory: found `cat.jpg`"), "{err}");
    assert_eq!(fs::read_dir(&photos).unwrap().count(), 1, "nothing was written");

    let ours = deployment(path, "ours.toml", "ours", &nodes(1));
    let mut first = node(&ours, 0, path);
    first.signal("TERM");
    assert_eq!(first.end(), Some(0));
    let err = refused(&path.join("n0"), &["--port", &free]);
    assert!(err.contains("this data directory belongs to another cluster"), "{err}");
    assert!(!path.join("n0/deployment.toml").exists(), "nothing was written");

    // What was mistyped must not leave data behind, which the corrected command would then find without a file.
    let mistyped = path.join("mistyped");
    let err = refused(&mistyped, &["--port", &free, "--cert", "none.pem", "--key", "none.key"]);
    assert!(err.contains("none.pem: cannot read the certificate"), "{err}");
    let err = refused(&mistyped, &["--port", &free, "--password-hash", "=19,t=2"]);
    assert!(err.contains("--password-hash, or ISOCHRONE_PASSWORD_HASH: it is no hash"), "{err}");
    assert!(err.contains("single quotes") && !err.contains("t=2"), "{err}");
    assert!(fs::read_dir(&mistyped).unwrap().next().is_none(), "nothing was written");

    let open = path.join("open");
    let err = refused(&open, &["--bind", "0.0.0.0", "--insecure"]);
    assert!(err.contains("there is no password") && err.contains("--password-hash"), "{err}");
    assert!(!open.exists(), "nothing was written");
}

#[test]
fn an_element_is_not_popped_for_who_has_closed_while_it_waited() {
    let (folder, address) = (tempfile::tempdir().unwrap(), addresses(1)[0]);
    let _node = redis(folder.path(), address, &[]);
    let mut client = until("it serves", || Client::connect(address).ok());
    let mut waits = |command: &str| match ask(&mut client, &["CLIENT", "LIST"]) {
        Reply::Text(list) => list.contains(&format!("cmd={command} ")),
        other => panic!("{other:?}"),
    };
    // One closes all of its socket, the other only the end that it sends from, with a command behind the one that waits.
    for half in [false, true] {
        let mut gone = TcpStream::connect(address).unwrap();
        gone.write_all(b"BLPOP queue 0\r\nSET behind 1\r\n").unwrap();
        until("it waits", || waits("blpop").then_some(()));
        let kept = if half {
            gone.shutdown(Shutdown::Write).unwrap();
            Some(gone)
        } else {
            drop(gone);
            None
        };
        until("it waits no longer", || (!waits("blpop")).then_some(()));
        drop(kept);
    }
    assert_eq!(ask(&mut client, &["RPUSH", "queue", "job"]), Reply::Number(1));
    assert_eq!(
        ask(&mut client, &["LRANGE", "queue", "0", "-1"]),
        Reply::List(vec![Reply::Text("job".into())])
    );
    assert_eq!(ask(&mut client, &["EXISTS", "behind"]), Reply::Number(0));
}

#[test]
fn databases_are_apart_and_more_may_come() {
    let (folder, address) = (tempfile::tempdir().unwrap(), addresses(1)[0]);
    let in_database = |number: &str, words: &[&str]| {
        until("a reply", || {
            let mut client = Client::connect(address).ok()?;
            let selected = client.ask(&["SELECT", number]).ok()?;
            if selected != Reply::Text("OK".into()) {
                return Some(selected);
            }
            client
                .ask(words)
                .ok()
                .filter(|reply| !matches!(reply, Reply::Error(text) if text.starts_with("NOLEADER")))
        })
    };
    let out_of_range = Reply::Error("ERR DB index is out of range".into());
    let mut first = redis(folder.path(), address, &[]);
    assert_eq!(in_database("0", &["SET", "k", "zero"]), Reply::Text("OK".into()));
    assert_eq!(in_database("1", &["GET", "k"]), out_of_range);
    first.signal("TERM");
    assert_eq!(first.end(), Some(0));
    let _second = redis(folder.path(), address, &["--databases", "2"]);
    assert_eq!(in_database("1", &["SET", "k", "one"]), Reply::Text("OK".into()));
    assert_eq!(in_database("0", &["GET", "k"]), Reply::Text("zero".into()));
    assert_eq!(in_database("1", &["GET", "k"]), Reply::Text("one".into()));
    assert_eq!(in_database("2", &["GET", "k"]), out_of_range);
}

/// A key that has come and is gone again has the version of one that was never there.
#[test]
fn what_was_read_between_watch_and_exec_must_still_be_there() {
    let (folder, one) = (tempfile::tempdir().unwrap(), nodes(1));
    let file = deployment(folder.path(), "one.toml", "watched", &one);
    let others = isochrone_protocols::ALL.iter().map(|entry| entry.name).filter(|name| *name != "multipaxos");
    let keyspaces: Vec<_> = std::iter::once("multipaxos").chain(others).collect();
    let mut text = fs::read_to_string(&file).unwrap();
    for name in &keyspaces[1..] {
        text += &format!("[[keyspace]]\nname = \"{name}\"\nprotocol = \"{name}\"\nreplication = 1\n");
    }
    fs::write(&file, text).unwrap();
    let _node = node(&file, 0, folder.path());
    let (mut one, mut other) = (client(one[0].redis), client(one[0].redis));
    let ok = || Reply::Text("OK".to_owned());
    let executes = |client: &mut Client| {
        assert_eq!(ask(client, &["MULTI"]), ok());
        assert_eq!(ask(client, &["SET", "copy", "token"]), Reply::Text("QUEUED".to_owned()));
        ask(client, &["EXEC"])
    };
    for (index, name) in keyspaces.iter().enumerate() {
        for client in [&mut one, &mut other] {
            assert_eq!(ask(client, &["SELECT", &index.to_string()]), ok(), "{name}");
        }
        until("a write", || writes(&mut one));
        let token = Reply::Text("token".to_owned());
        assert_eq!(ask(&mut one, &["WATCH", "box"]), ok(), "{name}");
        assert_eq!(ask(&mut other, &["SET", "box", "token"]), ok(), "{name}");
        assert_eq!(ask(&mut one, &["GET", "box"]), token, "{name}");
        assert_eq!(ask(&mut other, &["GETDEL", "box"]), token, "{name}");
        assert_eq!(executes(&mut one), Reply::Nothing, "{name}");
        // Nor may that be gone which the connection itself has put there.
        assert_eq!(ask(&mut one, &["WATCH", "box"]), ok(), "{name}");
        assert_eq!(ask(&mut one, &["SETNX", "box", "token"]), Reply::Number(1), "{name}");
        assert_eq!(ask(&mut other, &["DEL", "box"]), Reply::Number(1), "{name}");
        assert_eq!(executes(&mut one), Reply::Nothing, "{name}");
        // What was not there all the while may be looked at.
        assert_eq!(ask(&mut one, &["WATCH", "box"]), ok(), "{name}");
        assert_eq!(ask(&mut one, &["GET", "box"]), Reply::Nothing, "{name}");
        assert_eq!(ask(&mut one, &["GETDEL", "box"]), Reply::Nothing, "{name}");
        assert_eq!(executes(&mut one), Reply::List(vec![ok()]), "{name}");
    }
}

#[test]
fn its_help_has_an_example() {
    let (status, out, _) = outcome(["redis", "--help"]);
    assert_eq!(status, 0);
    assert!(
        out.contains("Example:\n  isochrone redis --dir /var/lib/isochrone\n  redis-cli SET city"),
        "{out}"
    );
}

/// What the managers and the witness of the keyspace have recorded is little, and does not keep what others record.
#[test]
fn the_journal_lets_go_of_what_is_in_snapshots() {
    const ENOUGH: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let mut process = redis(folder.path(), address, &[]);
    served(address, &["PING"]);
    let segments = || {
        let names =
            fs::read_dir(folder.path().join("journal")).unwrap().map(|file| file.unwrap().file_name());
        names
            .map(|name| name.into_string().unwrap())
            .filter(|name| name.starts_with("segment-"))
            .collect::<Vec<_>>()
    };
    let first = segments().into_iter().min().unwrap();
    let (mut client, value) = (client(address), "x".repeat(1 << 20));
    let written = (1..=ENOUGH).find(|_| {
        assert_eq!(ask(&mut client, &["SET", "one", &value]), Reply::Text("OK".to_owned()));
        !segments().contains(&first)
    });
    assert!(written.is_some(), "after {ENOUGH} MiB of one value {:?} are there", segments());
    process.signal("KILL");
    process.end();
    let mut process = redis(folder.path(), address, &[]);
    assert_eq!(served(address, &["STRLEN", "one"]), Reply::Number(1 << 20));
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
}

/// One of every type, in forms of small values and of large ones.
const MOVED: &[&str] = &[
    "SET city Lisbon",
    "SET session abc EXAT 4000000000",
    "SET count 41",
    "HSET hash a 1 b 2",
    "RPUSH list one two three",
    "SADD numbers 1 2 70000",
    "SADD set x y",
    "ZADD scores 1.5 a -inf b",
    "XADD stream 1-1 field value",
    "XADD stream 9-0 field value other 7",
    "XDEL stream 9-0",
];
const ARRIVED: &[&str] = &[
    "GET city",
    "EXPIRETIME session",
    "TTL city",
    "INCR count",
    "HMGET hash a b c",
    "LRANGE list 0 -1",
    "SMISMEMBER numbers 1 2 70000 3",
    "SCARD set",
    "ZRANGE scores 0 -1 WITHSCORES",
    "XRANGE stream - +",
    "XADD stream 8-0 field value",
    "DBSIZE",
];

/// A real Redis moves in, by its own MIGRATE as by SCAN, DUMP and RESTORE, and a value moves back.
#[test]
fn a_running_redis_moves_in() {
    if !there_is_redis() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = addresses(1)[0];
    let mut process = redis(folder.path(), address, &[]);
    served(address, &["PING"]);
    served(address, &["EXISTS", "city"]);
    let (mut old, mut new) = (Server::start(), Peer::new(TcpStream::connect(address).unwrap()));
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let ask = |peer: &mut Peer, words: &[Vec<u8>]| {
        peer.send(&encode(words));
        peer.next()
    };
    for line in MOVED {
        ask(&mut old.peer, &words(line));
    }
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut migrate = words(&format!("MIGRATE {host} {port} KEY 0 20000 COPY REPLACE KEYS"));
    migrate[3].clear();
    migrate.extend(words("city session count hash"));
    assert_eq!(ask(&mut old.peer, &migrate), b"+OK\r\n");
    let bulk = |reply: Vec<u8>| {
        let line = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(reply[0], b'$', "{}", reply.escape_ascii());
        reply[line..reply.len() - 2].to_vec()
    };
    for key in ["list", "numbers", "set", "scores", "stream"] {
        let payload = bulk(ask(&mut old.peer, &words(&format!("DUMP {key}"))));
        let restore = [words(&format!("RESTORE {key} 0")), vec![payload]].concat();
        assert_eq!(ask(&mut new, &restore), b"+OK\r\n", "{key}");
        assert_eq!(ask(&mut new, &restore), b"-BUSYKEY Target key name already exists.\r\n");
    }
    for line in ARRIVED {
        let (found, expected) = (ask(&mut new, &words(line)), ask(&mut old.peer, &words(line)));
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{line}");
    }
    let payload = bulk(ask(&mut new, &words("DUMP stream")));
    let restore = [words("RESTORE back 0"), vec![payload]].concat();
    assert_eq!(ask(&mut old.peer, &restore), b"+OK\r\n");
    let range = |key: &str| words(&format!("XRANGE {key} - +"));
    assert_eq!(ask(&mut old.peer, &range("back")), ask(&mut new, &range("stream")));
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
}
