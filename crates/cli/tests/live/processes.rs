//! Processes of the program, and what tests need of the machine: ports, files, signals, waiting.

use super::resp::{Client, Reply};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the nodes of tests want to see before anything is changed.
pub const TOKEN: &str = "a token of the tests";

/// The program, as if from a plain shell.
pub fn isochrone<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_isochrone"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null());
    for variable in [
        "RUST_LOG",
        "ISOCHRONE_LOG_FORMAT",
        "ISOCHRONE_AUTH",
        "ISOCHRONE_ADMIN_TOKEN",
        "ISOCHRONE_PASSWORD_HASH",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Runs it to its end: exit status, standard output, standard error.
pub fn outcome<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> (i32, String, String) {
    let Output { status, stdout, stderr } = isochrone(arguments).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// The hash of a password, as it stands in deployment files.
pub fn hash(password: &str) -> String {
    let mut command = isochrone(["password"]);
    let mut hashing =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut input = hashing.stdin.take().expect("it is piped");
    input.write_all(format!("{password}\n").as_bytes()).expect("it reads");
    drop(input);
    let out = hashing.wait_with_output().expect("it ends").stdout;
    String::from_utf8(out).expect("UTF-8").trim().to_owned()
}

/// A running process, killed if the test ends before it.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it.
    pub fn start(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let out: ChildStdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    // Read on: a full pipe would stop the process.
                    continue;
                }
            }
        });
        Process { child, lines }
    }

    /// Its next line on standard output; `None` where it has ended.
    pub fn line(&self) -> Option<String> {
        self.lines.recv_timeout(PATIENCE).ok()
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", name, &pid]).status().expect("kill is there");
        assert!(done.success(), "kill -s {name} {pid}");
    }

    /// Waits for its end: the exit status, none where a signal has ended it.
    pub fn end(&mut self) -> Option<i32> {
        let child = &mut self.child;
        until("the process ends", || child.try_wait().expect("it is ours")).code()
    }

    /// How it ended, or that it runs.
    pub fn state(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "it runs".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    /// Resident memory in MiB, where the system tells.
    pub fn memory_mib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is a real Redis on the path; says so where there is none.
pub fn there_is_redis() -> bool {
    let found = Command::new("redis-server").arg("--version").output().is_ok();
    if !found {
        println!("skipped: there is no redis-server on the path");
    }
    found
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// If none comes.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Addresses on loopback that nobody listens on. They lie below the ports that systems give to outgoing connections:
/// one of those could take the port of a node that is down for a moment.
pub fn addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = 20_000..32_000u16;
    // Runs beside one another begin at different places.
    let begin = (std::process::id() % 120) as u16 * 100;
    let next = || {
        let step = NEXT.fetch_add(1, Ordering::SeqCst);
        assert!(step < range.end - range.start, "no free port in {range:?}");
        let port = range.start + (begin + step) % (range.end - range.start);
        TcpListener::bind(("127.0.0.1", port)).ok()?.local_addr().ok()
    };
    std::iter::repeat_with(next).flatten().take(count).collect()
}

/// The addresses of one node.
#[derive(Clone)]
pub struct Addresses {
    pub listen: SocketAddr,
    pub redis: SocketAddr,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
}

/// Of so many nodes.
pub fn nodes(count: usize) -> Vec<Addresses> {
    let four =
        |four: &[SocketAddr]| Addresses { listen: four[0], redis: four[1], grpc: four[2], http: four[3] };
    addresses(count * 4).chunks(4).map(four).collect()
}

/// Writes the deployment of nodes `n0`, `n1`, ... in regions `R0`, `R1`, ...
pub fn deployment(folder: &Path, name: &str, cluster: &str, nodes: &[Addresses]) -> PathBuf {
    deployment_of(folder, name, cluster, nodes, "multipaxos")
}

/// As [`deployment`], of this protocol; with a knob behind its name, with that switched on; with a number there, in so
/// many partitions.
pub fn deployment_of(
    folder: &Path,
    name: &str,
    cluster: &str,
    nodes: &[Addresses],
    protocol: &str,
) -> PathBuf {
    let mut text = format!("cluster = \"{cluster}\"\n");
    for index in 0..nodes.len() {
        writeln!(text, "[[region]]\nname = \"R{index}\"").expect("a string");
    }
    for (index, Addresses { listen, redis, http, .. }) in nodes.iter().enumerate() {
        writeln!(
            text,
            "[[node]]\nname = \"n{index}\"\nregion = \"R{index}\"\n\
             listen = \"{listen}\"\nredis = \"{redis}\"\nhttp = \"{http}\""
        )
        .expect("a string");
    }
    let (protocol, knob) = protocol.split_once(' ').unwrap_or((protocol, ""));
    writeln!(text, "[[keyspace]]\nname = \"main\"\nprotocol = \"{protocol}\"").expect("a string");
    if knob.parse::<u16>().is_ok() {
        writeln!(text, "partitions = {knob}").expect("a string");
    } else if !knob.is_empty() {
        writeln!(text, "parameters = {{ {knob} = true }}").expect("a string");
    }
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a writable folder");
    path
}

/// `isochrone node` with its data under `folder`, once it says that it serves.
pub fn node(file: &Path, index: usize, folder: &Path) -> Process {
    let process = spawn(file, index, folder);
    let line = process.line();
    let ready = line.as_ref().is_some_and(|line| line.contains("is ready"));
    let log = || std::fs::read_to_string(folder.join(format!("n{index}.log"))).unwrap_or_default();
    assert!(ready, "n{index}: {line:?}\n{}", log());
    process
}

/// The same, just started.
pub fn spawn(file: &Path, index: usize, folder: &Path) -> Process {
    let name = format!("n{index}");
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(folder.join(format!("{name}.log")))
        .expect("a writable folder");
    let mut command = isochrone(["node".as_ref(), file.as_os_str(), "--name".as_ref(), name.as_ref()]);
    command.arg("--data").arg(folder.join(&name)).env("ISOCHRONE_ADMIN_TOKEN", TOKEN).stderr(log);
    Process::start(command)
}

/// A page that a node serves over HTTP, where it comes within a second.
pub fn page(http: SocketAddr, path: &str) -> Option<String> {
    page_within(http, path, Duration::from_secs(1))
}

/// The same within so long.
pub fn page_within(http: SocketAddr, path: &str, patience: Duration) -> Option<String> {
    let mut socket = TcpStream::connect_timeout(&http, patience).ok()?;
    socket.set_read_timeout(Some(patience)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    socket.read_to_string(&mut text).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

/// Gives a node an order, or without a body asks it for what only an administrator may know: the status and the text.
pub fn order(http: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let mut socket = TcpStream::connect_timeout(&http, PATIENCE).expect("it serves");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let method = if body.is_empty() { "GET" } else { "POST" };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).expect("a socket");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("an answer in time");
    let (head, text) = text.split_once("\r\n\r\n").expect("HTTP");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, text.to_owned())
}

/// The name of the leader of the first keyspace, as this node sees it.
pub fn leader(http: SocketAddr) -> Option<String> {
    let status: serde_json::Value = serde_json::from_str(&page(http, "/status")?).ok()?;
    Some(status["keyspaces"][0]["leader"].as_str()?.to_owned())
}

/// A connection to a node that serves.
pub fn client(address: SocketAddr) -> Client {
    until("a connection", || Client::connect(address).ok())
}

/// A write through this connection is done.
pub fn writes(client: &mut Client) -> Option<()> {
    matches!(client.ask(&["SET", "pulse", "beats"]), Ok(Reply::Text(_))).then_some(())
}

/// A write goes through at this node.
pub fn serves(address: SocketAddr) {
    until("a write", || writes(&mut Client::connect(address).ok()?));
}

/// A figure on the page of metrics, of all partitions.
pub fn figure(http: SocketAddr, name: &str, what: &str) -> Option<u64> {
    let (name, label) = (format!("isochrone_protocol_{name}{{"), format!("what=\"{what}\"}} "));
    let page = page(http, "/metrics")?;
    let values = page.lines().filter(|line| line.starts_with(&name));
    values
        .filter_map(|line| line.split_once(&label)?.1.trim().parse::<u64>().ok())
        .reduce(|sum, value| sum + value)
}
