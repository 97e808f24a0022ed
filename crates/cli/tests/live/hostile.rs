//! Clients that ask too much of a node: huge arguments, deep pipelines, replies that nobody reads, connections that
//! do nothing, users outside their keys, globs built to explode. Each is bounded, is told so in Redis' words, and
//! costs the others nothing but a share of the time.
//!
//! What goes through a protocol is asked twice: of one node that is alone, and of a copy of three of `curp`, where
//! witnesses and the master are on other nodes.

use super::processes::{
    self, Process, addresses, client, hash, isochrone, leader, nodes, page, until, writes,
};
use super::resp::{Client, Reply, ask};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// A node of its own, with this at the end of its deployment file.
fn node(folder: &Path, more: &str) -> (Process, SocketAddr) {
    let address = addresses(1)[0];
    fs::write(
        folder.join("node.toml"),
        format!(
            "cluster = \"hostile\"\n[[region]]\nname = \"here\"\n[[node]]\nname = \"n\"\nregion = \"here\"\n\
             redis = \"{address}\"\n[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplicas = [\"n\"]\n{more}"
        ),
    )
    .unwrap();
    let mut command =
        isochrone(["node", folder.join("node.toml").to_str().unwrap(), "--name", "n", "--data"]);
    command.arg(folder.join("data")).stderr(fs::File::create(folder.join("log")).unwrap());
    let process = Process::start(command);
    let line = process.line();
    let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(line.as_ref().is_some_and(|line| line.contains("is ready")), "{line:?}\n{}", log());
    (process, address)
}

/// Three nodes of `curp`, with this at the end of their deployment files, once there is a master; the addresses of two,
/// the first of which is a copy's.
fn copies(folder: &Path, more: &str) -> (Vec<Process>, [SocketAddr; 2]) {
    let addresses = nodes(3);
    let file = processes::deployment_of(folder, "three.toml", "hostile", &addresses, "curp");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + more).unwrap();
    let processes = (0..3).map(|index| processes::node(&file, index, folder)).collect();
    let master = until("a master", || leader(addresses[0].http));
    let of = |index: usize| addresses[index].redis;
    (processes, if master == "n1" { [of(2), of(0)] } else { [of(1), of(2)] })
}

/// A client of a node that has elected itself.
fn served(address: SocketAddr) -> Client {
    let mut client = client(address);
    until("a node that serves", || writes(&mut client));
    client
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// All that comes until the node closes.
fn last_words(mut socket: TcpStream) -> String {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn huge_arguments_and_requests_are_refused_by_their_headers() {
    let folder = tempfile::tempdir().unwrap();
    let (process, address) = node(folder.path(), "");
    huge(&process, address, 400);
    let (processes, [address, beside]) = copies(folder.path(), "");
    huge(&processes[1], address, 400);
    assert_eq!(ask(&mut served(beside), &["STRLEN", "large"]), Reply::Number(8 << 20));
}

fn huge(process: &Process, address: SocketAddr, most_mib: u64) {
    let mut other = served(address);
    for (bytes, words) in [
        ("*2\r\n$3\r\nGET\r\n$67108865\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*2\r\n$3\r\nGET\r\n$-7\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*1048577\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("*1\r\n*1\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
    ] {
        let mut socket = socket(address);
        socket.write_all(bytes.as_bytes()).unwrap();
        assert_eq!(last_words(socket), words, "{bytes:?}");
    }
    // Many that begin a large one and never end it: memory is for bytes that have come, not for those announced.
    let begun: Vec<_> = (0..50)
        .map(|_| {
            let mut socket = socket(address);
            socket.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67000000\r\nabc").unwrap();
            socket
        })
        .collect();
    assert_eq!(ask(&mut other, &["PING"]), Reply::Text("PONG".to_owned()));
    if let Some(memory) = process.memory_mib() {
        assert!(memory < most_mib, "{memory} MiB");
    }
    drop(begun);
    // A large one that is allowed is kept whole.
    let large = "x".repeat(8 << 20);
    assert_eq!(ask(&mut other, &["SET", "large", &large]), Reply::Text("OK".to_owned()));
    assert_eq!(ask(&mut other, &["STRLEN", "large"]), Reply::Number(8 << 20));
}

#[test]
fn a_deep_pipeline_waits_its_turn_and_is_answered_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (_process, address) = node(folder.path(), "");
    deep(address, address);
    let (_processes, [address, beside]) = copies(folder.path(), "");
    deep(address, beside);
}

fn deep(address: SocketAddr, beside: SocketAddr) {
    const DEPTH: usize = 20_000;
    let mut other = served(address);
    let mut writer = socket(address);
    let mut reader = writer.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        writer.write_all(&request(&[b"INCR", b"n"]).repeat(DEPTH)).unwrap();
    });
    let expected: String = (1..=DEPTH).map(|number| format!(":{number}\r\n")).collect();
    let mut found = vec![0; expected.len()];
    // Whoever asks for one thing meanwhile does not wait for all of it.
    assert_eq!(ask(&mut other, &["PING"]), Reply::Text("PONG".to_owned()));
    reader.read_exact(&mut found).unwrap();
    sending.join().unwrap();
    assert!(found == expected.as_bytes(), "a reply is missing, doubled or out of order");
    assert_eq!(ask(&mut served(beside), &["GET", "n"]), Reply::Text(DEPTH.to_string()));
}

#[test]
fn a_reader_that_does_not_read_is_held_back_and_cut_off() {
    let (folder, limits) = (tempfile::tempdir().unwrap(), "[limits]\noutput = \"4MiB\"\n");
    let (process, address) = node(folder.path(), limits);
    unread(&process, address);
    let (processes, [address, _]) = copies(folder.path(), limits);
    unread(&processes[1], address);
}

fn unread(process: &Process, address: SocketAddr) {
    let mut other = served(address);
    ask(&mut other, &["SET", "large", &"x".repeat(1 << 20)]);
    let mut slow = socket(address);
    slow.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Two gigabytes of replies, were they made.
    let requests = request(&[b"GET", b"large"]).repeat(2000);
    let _ = slow.write_all(&requests);
    // And a subscriber who does not listen to what is published.
    let mut deaf = socket(address);
    deaf.write_all(&request(&[b"SUBSCRIBE", b"news"])).unwrap();
    until("a subscriber", || {
        let count = Reply::List(vec![Reply::Text("news".to_owned()), Reply::Number(1)]);
        (ask(&mut other, &["PUBSUB", "NUMSUB", "news"]) == count).then_some(())
    });
    let message = "y".repeat(1 << 20);
    until("a subscriber that is cut off", || {
        (ask(&mut other, &["PUBLISH", "news", &message]) == Reply::Number(0)).then_some(())
    });
    assert_eq!(ask(&mut other, &["STRLEN", "large"]), Reply::Number(1 << 20));
    if let Some(memory) = process.memory_mib() {
        assert!(memory < 400, "{memory} MiB");
    }
    // What the slow one is owed is a small part of what it asked for.
    let mut got = 0;
    let mut chunk = vec![0; 1 << 20];
    while let Ok(read) = slow.read(&mut chunk) {
        got += read;
        if read == 0 || got > 64 << 20 {
            break;
        }
    }
    assert!(got > 0, "what was made is sent");
}

/// How many files a process may have open here at the most.
fn files_max() -> usize {
    let asked = Command::new("sh").args(["-c", "ulimit -Hn"]).output().expect("a shell");
    String::from_utf8_lossy(&asked.stdout).trim().parse().unwrap_or(usize::MAX)
}

/// Has a command run with as many open files as may be.
fn with_all_files(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n \"$(ulimit -Hn)\"; exec \"$0\" \"$@\""]).arg(program);
    command
}

/// What [`ten_thousand_idle_connections`] starts in a process of its own, whose limit of open files is its own: opens so
/// many connections, says so, and holds them until its input ends.
#[test]
#[ignore = "started by the test of idle connections"]
fn idle_clients() {
    let Ok(text) = std::env::var("ISOCHRONE_IDLE") else { return };
    let (address, count) = text.split_once(' ').expect("an address and a number");
    let (address, count): (SocketAddr, usize) = (address.parse().unwrap(), count.parse().unwrap());
    let open: Vec<_> = (0..count).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    println!("opened {}", open.len());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Ten thousand who say nothing and have not logged in, through `address` of this process of a node, cost less than
/// 512 MiB (S8); the next one is told that the house is full; and what a stranger may do is little all the same.
fn ten_thousand_idle_connections(process: &Process, address: SocketAddr) {
    let mut other = client(address);
    assert_eq!(ask(&mut other, &["AUTH", "root", "toor"]), Reply::Text("OK".to_owned()));
    until("a node that serves", || writes(&mut other));
    let before = process.memory_mib();
    let mut holder = with_all_files(&std::env::current_exe().unwrap());
    holder.args(["--exact", "hostile::idle_clients", "--ignored", "--nocapture"]);
    holder.env("ISOCHRONE_IDLE", format!("{address} {IDLE}")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut holder = holder.spawn().unwrap();
    let connected = |other: &mut Client| match ask(other, &["INFO", "clients"]) {
        Reply::Text(text) => {
            let line = text.lines().find_map(|line| line.strip_prefix("connected_clients:"));
            line.and_then(|count| count.parse::<usize>().ok()).expect("a number")
        }
        reply => panic!("{reply:?}"),
    };
    until("all connections", || (connected(&mut other) == IDLE + 1).then_some(()));
    assert_eq!(last_words(socket(address)), "-ERR max number of clients reached\r\n");
    let start = Instant::now();
    assert_eq!(ask(&mut other, &["INCR", "served"]), Reply::Number(1));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    if let (Some(before), Some(after)) = (before, process.memory_mib()) {
        println!("{IDLE} idle connections: {before} MiB, then {after} MiB");
        assert!(after < before + 512, "{before} MiB, then {after} MiB");
    }
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    until("room again", || (connected(&mut other) < 10).then_some(()));
    // A stranger may say three things, 16 KiB in all, and nothing that needs a name.
    let mut stranger = socket(address);
    stranger.write_all(&request(&[b"PING"]).repeat(4)).unwrap();
    let refused = "-NOAUTH Authentication required.\r\n";
    let words = last_words(stranger);
    assert_eq!(words, refused.repeat(3) + "-ERR too many commands before login\r\n");
    let mut stranger = socket(address);
    stranger.write_all(&vec![b'x'; (16 << 10) + 1]).unwrap();
    assert_eq!(last_words(stranger), "-ERR too much input before login\r\n");
    assert_eq!(ask(&mut other, &["GET", "served"]), Reply::Text("1".to_owned()));
}

const IDLE: usize = 10_000;

#[test]
fn ten_thousand_idle_connections_cost_little_and_the_last_is_told_that_the_house_is_full() {
    if files_max() < IDLE + 500 {
        println!(
            "SKIPPED: a process may open {} files here; ulimit -Hn {} would do",
            files_max(),
            IDLE + 500
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let addresses = nodes(3);
    let file = processes::deployment_of(folder.path(), "three.toml", "hostile", &addresses, "curp");
    fs::write(folder.path().join("users.acl"), "user default off\nuser root on >toor ~* &* +@all\n").unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let limits = format!("[limits]\nclients = {}\nlogin_time = \"120s\"\n", IDLE + 1);
    fs::write(&file, format!("{text}[security]\naclfile = \"users.acl\"\n{limits}")).unwrap();
    let node = |index: usize| {
        let mut command = with_all_files(Path::new(env!("CARGO_BIN_EXE_isochrone")));
        command.args(["node", file.to_str().unwrap(), "--name", &format!("n{index}"), "--data"]);
        command.arg(folder.path().join(format!("n{index}"))).stdin(Stdio::null());
        command.stderr(fs::File::create(folder.path().join(format!("n{index}.log"))).unwrap());
        let process = Process::start(command);
        assert!(process.line().is_some_and(|line| line.contains("is ready")));
        process
    };
    let processes: Vec<_> = (0..3).map(node).collect();
    let master = until("a master", || leader(addresses[0].http));
    let copy = if master == "n1" { 2 } else { 1 };
    ten_thousand_idle_connections(&processes[copy], addresses[copy].redis);
}

/// What a node says to these who have sent one command each.
fn replies(sockets: Vec<TcpStream>) -> Vec<String> {
    let reply = |mut socket: TcpStream| {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    };
    sockets.into_iter().map(reply).collect()
}

/// So many who all want to log in before any of them is answered.
fn log_in(address: SocketAddr, count: usize, words: &[&[u8]]) -> Vec<TcpStream> {
    let asks = |mut socket: TcpStream| {
        socket.write_all(&request(words)).unwrap();
        socket
    };
    (0..count).map(|_| asks(socket(address))).collect()
}

#[test]
fn whoever_knows_the_password_logs_in_beside_hundreds_and_beside_those_who_guess() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(1);
    let file = processes::deployment(folder.path(), "one.toml", "hostile", &nodes);
    let users = ["app", "fleet"].map(|name| {
        format!("[[security.user]]\nname = \"{name}\"\npassword = \"{}\"\n", hash(&format!("that of {name}")))
    });
    let text = fs::read_to_string(&file).unwrap() + &users.concat();
    fs::write(&file, text).unwrap();
    let _process = processes::node(&file, 0, folder.path());
    let address = nodes[0].redis;

    // A fleet comes back: nobody is turned away, and its password is hashed once.
    let fleet = log_in(address, 200, &[b"AUTH", b"fleet", b"that of fleet"]);
    assert_eq!(replies(fleet), ["+OK\r\n"; 200]);
    let figure = |name: &str| {
        let page = page(nodes[0].http, "/metrics")?;
        let figure = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(figure.parse::<u64>().unwrap())
    };
    let checks = || figure("isochrone_gateway_login_checks_total");
    assert_eq!(until("a check", || checks().filter(|count| *count > 0)), 1);

    // Of those who guess and do not wait, few are checked, and none keeps a place.
    drop(log_in(address, 400, &[b"AUTH", b"app", b"a guess"]));
    until("the end of the guesses", || {
        let now = ["gateway_connections_total", "clients", "gateway_logins_waiting"];
        (now.map(|name| figure(&format!("isochrone_{name}"))) == [Some(600), Some(0), Some(0)]).then_some(())
    });
    assert!(checks().unwrap() < 200, "{:?}", checks());

    // Forty who guess, again and again, are each told that they are wrong; whoever is right waits for them once.
    let (guessed, guesses) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wanted = true;
            while wanted {
                let sockets = log_in(address, 40, &[b"AUTH", b"app", b"a guess"]);
                wanted = guessed.send(()).is_ok();
                let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
                assert_eq!(replies(sockets), [wrong; 40]);
            }
        });
        guesses.recv().unwrap();
        let start = Instant::now();
        for _ in 0..5 {
            let honest = log_in(address, 1, &[b"AUTH", b"app", b"that of app"]);
            assert_eq!(replies(honest), ["+OK\r\n"]);
        }
        let took = start.elapsed();
        drop(guesses);
        println!("five logins beside forty who guess: {took:?}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    });
}

#[test]
fn users_of_an_acl_file_stay_within_their_rules() {
    let folder = tempfile::tempdir().unwrap();
    let acl = folder.path().join("n.acl");
    fs::write(
        &acl,
        "user default off\nuser app on >secret ~app:* +@all -@dangerous\nuser root on >toor ~* &* +@all\n",
    )
    .unwrap();
    let (mut process, address) = node(folder.path(), "[security]\naclfile = \"{node}.acl\"\n");
    let mut root = client(address);
    let error = |text: &str| Reply::Error(text.to_owned());
    assert_eq!(ask(&mut root, &["GET", "a"]), error("NOAUTH Authentication required."));
    let wrong = error("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(ask(&mut root, &["AUTH", "app", "wrong"]), wrong);
    assert_eq!(ask(&mut root, &["AUTH", "root", "toor"]), Reply::Text("OK".to_owned()));
    let mut app = client(address);
    assert_eq!(ask(&mut app, &["AUTH", "app", "secret"]), Reply::Text("OK".to_owned()));
    until("a node that serves", || {
        matches!(app.ask(&["SET", "app:a", "1"]), Ok(Reply::Text(_))).then_some(())
    });
    assert_eq!(ask(&mut app, &["GET", "other"]), error("NOPERM No permissions to access a key"));
    let denied = error("NOPERM User app has no permissions to run the 'flushall' command");
    assert_eq!(ask(&mut app, &["FLUSHALL"]), denied);
    // What root changes holds at once, and after a restart where it was saved.
    assert_eq!(ask(&mut root, &["ACL", "SETUSER", "app", "-set"]), Reply::Text("OK".to_owned()));
    let denied = error("NOPERM User app has no permissions to run the 'set' command");
    assert_eq!(ask(&mut app, &["SET", "app:a", "2"]), denied);
    assert_eq!(ask(&mut root, &["ACL", "SAVE"]), Reply::Text("OK".to_owned()));
    let saved = fs::read_to_string(&acl).unwrap();
    assert!(
        saved.contains("~app:* resetchannels +@all -@dangerous -set\n") && !saved.contains("secret"),
        "{saved}"
    );
    assert_eq!(ask(&mut root, &["ACL", "DELUSER", "app"]), Reply::Number(1));
    until("the end of who is logged in as nobody", || app.ask(&["PING"]).is_err().then_some(()));
    assert_eq!(ask(&mut root, &["ACL", "LOAD"]), Reply::Text("OK".to_owned()));
    let mut app = client(address);
    assert_eq!(ask(&mut app, &["AUTH", "app", "secret"]), Reply::Text("OK".to_owned()));
    process.signal("TERM");
    assert_eq!(process.end(), Some(0));
}

#[test]
fn a_glob_built_to_explode_takes_no_more_than_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (_process, address) = node(folder.path(), "");
    explode(address);
    let (_processes, [address, _]) = copies(folder.path(), "");
    explode(address);
}

fn explode(address: SocketAddr) {
    let mut client = served(address);
    let long = "a".repeat(1 << 20);
    assert_eq!(ask(&mut client, &["SET", &long, "1"]), Reply::Text("OK".to_owned()));
    let nothing = Reply::List(vec![]);
    let start = Instant::now();
    for pattern in [
        "a*".repeat(1500) + "b",
        "*".to_owned() + &"a".repeat(4000) + "b*",
        "*".to_owned() + &"a?".repeat(2000) + "c",
    ] {
        assert_eq!(ask(&mut client, &["KEYS", &pattern]), nothing);
        assert_eq!(ask(&mut client, &["PUBSUB", "CHANNELS", &pattern]), nothing);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let refused = Reply::Error("ERR the pattern is longer than 4096 bytes".to_owned());
    let pattern = "a".repeat(5000);
    for words in [
        &["KEYS", &pattern][..],
        &["SCAN", "0", "MATCH", &pattern],
        &["HSCAN", "h", "0", "MATCH", &pattern],
        &["PSUBSCRIBE", &pattern],
        &["PUBSUB", "CHANNELS", &pattern],
    ] {
        assert_eq!(ask(&mut client, words), refused, "{:?}", words[0]);
    }
}
