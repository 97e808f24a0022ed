//! Redis and ourselves for real, beside each other on this machine (figures 11 to 13): servers that are processes of their
//! own, over loopback, every copy of ours on disk before anybody is answered.

use crate::bench::engine::{self, Load};
use crate::bench::wire::{Inbox, push_command};
use crate::chart::Curves;
use crate::reproduce::{Published, Row, when_interrupted};
use anyhow::{Context, bail};
use isochrone_core::{Random, Span};
use isochrone_workload::{Pace, Workload};
use redis_protocol::resp2::types::OwnedFrame;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What stands beside what.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum System {
    /// One `redis-server` that keeps nothing.
    Plain,
    /// The same that waits for its disk before it answers.
    Always,
    /// Ours: one node, or a master with so many copies, each with a witness, asked at a node that is none of them.
    Witnesses(usize),
}

const SYSTEMS: [System; 5] =
    [System::Plain, System::Always, System::Witnesses(0), System::Witnesses(1), System::Witnesses(2)];

impl System {
    fn name(self) -> String {
        match self {
            System::Plain => "Redis, nothing kept".to_owned(),
            System::Always => "Redis, appendfsync always".to_owned(),
            System::Witnesses(0) => "Isochrone, no witness".to_owned(),
            System::Witnesses(1) => "Isochrone, 1 witness".to_owned(),
            System::Witnesses(count) => format!("Isochrone, {count} witnesses"),
        }
    }

    /// As a part of a row's id.
    fn short(self) -> String {
        match self {
            System::Plain => "plain".to_owned(),
            System::Always => "always".to_owned(),
            System::Witnesses(count) => format!("w{count}"),
        }
    }
}

/// The source's commands: a key of 30 bytes out of two million, a value of 100.
pub(super) const COMMANDS: [&str; 3] = ["SET", "HMSET", "INCR"];
const KEYS: u64 = 2_000_000;
const VALUE: [u8; 100] = [b'x'; 100];
/// Systems take turns, so that a noisy moment hits all alike.
const TURNS: usize = 5;
/// Of one client, and of the many.
const TURN: Duration = Duration::from_millis(200);
const TURN_OF_MANY: Span = Span::from_millis(500);
/// The clients of a throughput, as in the source's figure 12 where it is highest.
const MANY: u32 = 50;
/// Of two Redis and nine nodes.
const PORTS: usize = 2 + 2 * 9;
/// For servers to serve.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why nothing stands beside us.
pub(super) const NO_REDIS: &str =
    "there is no redis-server on the PATH to stand beside (Debian: redis-server)";

/// The servers, once they were needed, and what was measured of them.
#[derive(Default)]
pub(in crate::reproduce) struct Beside {
    servers: Option<Servers>,
    /// Latencies in microseconds, rising, by command.
    latencies: BTreeMap<&'static str, BTreeMap<System, Vec<f64>>>,
    /// SETs a second of [`MANY`] clients: medians.
    throughput: BTreeMap<System, f64>,
}

impl Beside {
    /// Whether there is a Redis to stand beside.
    pub(super) fn there_is_redis() -> bool {
        let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    }

    fn servers(&mut self) -> anyhow::Result<&Servers> {
        if self.servers.is_none() {
            self.servers = Some(Servers::start()?);
        }
        self.servers.as_ref().context("servers have started")
    }

    /// The latencies of one client that waits for each answer, microseconds, rising.
    fn latencies(&mut self, command: &'static str) -> anyhow::Result<&BTreeMap<System, Vec<f64>>> {
        if !self.latencies.contains_key(command) {
            let measured = latencies(self.servers()?, command)?;
            self.latencies.insert(command, measured);
        }
        Ok(&self.latencies[command])
    }

    /// The median of that.
    pub(super) fn median(&mut self, system: System, command: &'static str) -> anyhow::Result<f64> {
        Ok(quantile(&self.latencies(command)?[&system], 0.5))
    }

    /// SETs that many clients have answered in a second.
    pub(super) fn throughput(&mut self, system: System) -> anyhow::Result<f64> {
        if self.throughput.is_empty() {
            self.throughput = throughputs(self.servers()?)?;
        }
        Ok(self.throughput[&system])
    }

    /// What the source draws and states no numbers of, each system in a row.
    pub(super) fn rows(&mut self, wanted: &dyn Fn(&str) -> bool) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        let none = (!Beside::there_is_redis()).then(|| (None, format!("not measured: {NO_REDIS}")));
        for command in COMMANDS {
            for system in SYSTEMS {
                let id = format!("redis-{}-{}", command.to_lowercase(), system.short());
                if wanted(&id) {
                    let found = match &none {
                        Some(none) => none.clone(),
                        None => self.told(system, command)?,
                    };
                    let setting = format!("{command}, 1 sequential client");
                    rows.push(row(id, setting, system, "median latency", found, "us"));
                }
            }
        }
        for system in SYSTEMS {
            let id = format!("redis-many-{}", system.short());
            if wanted(&id) {
                let found = match &none {
                    Some(none) => none.clone(),
                    None => self.told_of_many(system)?,
                };
                rows.push(row(id, format!("SET, {MANY} clients"), system, "throughput", found, "1/s"));
            }
        }
        Ok(rows)
    }

    /// The median of one client, and what is to be known beside it.
    fn told(&mut self, system: System, command: &'static str) -> anyhow::Result<(Option<f64>, String)> {
        let median = self.median(system, command)?;
        let mut over = |of| Ok::<_, anyhow::Error>(median / self.median(of, command)?);
        let [plain, always] = [System::Plain, System::Always].map(&mut over);
        let high = quantile(&self.latencies(command)?[&system], 0.99);
        let note = format!(
            "p99 {high:.0}; {:.2} of Redis that keeps nothing, {:.2} of Redis, always",
            plain?, always?
        );
        Ok((Some(median), note))
    }

    /// The same of the throughput of many.
    fn told_of_many(&mut self, system: System) -> anyhow::Result<(Option<f64>, String)> {
        let all = self.throughput(system)?;
        let mut over = |of| Ok::<_, anyhow::Error>(all / self.throughput(of)?);
        let [plain, always] = [System::Plain, System::Always].map(&mut over);
        let note = format!("{:.2} of Redis that keeps nothing, {:.2} of Redis, always", plain?, always?);
        Ok((Some(all), note))
    }

    /// Figures 11 and 13: the distributions of latencies.
    pub(super) fn drawings(
        &mut self,
        wanted: &dyn Fn(&str) -> bool,
    ) -> anyhow::Result<Vec<(&'static str, Curves)>> {
        let names = COMMANDS.into_iter().zip(["fig11-set", "fig13-hmset", "fig13-incr"]);
        let draw = |(command, name)| {
            let points = |sorted: &[f64]| -> Vec<(f64, f64)> {
                // The last hundredth would leave no room for the rest.
                let shares = (0..=99).map(|percent| f64::from(percent) / 100.0);
                shares.map(|share| (quantile(sorted, share), share)).collect()
            };
            let all = self.latencies(command)?;
            let series = all.iter().map(|(system, sorted)| (system.name(), points(sorted))).collect();
            let title = format!("{command} of 100 bytes, one client, on this machine: share answered within");
            Ok((name, Curves { title, axis: "latency, us".to_owned(), series }))
        };
        names.filter(|(_, name)| wanted(name)).map(draw).collect()
    }
}

fn row(
    id: String,
    setting: String,
    system: System,
    metric: &str,
    (measured, note): (Option<f64>, String),
    unit: &str,
) -> Row {
    let (metric, unit, published) = (metric.to_owned(), unit.to_owned(), Published::Words("-".to_owned()));
    let system = system.name();
    Row { id, setting, system, metric, published, measured, unit, ratio: None, note, missed: false }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

fn latencies(servers: &Servers, command: &str) -> anyhow::Result<BTreeMap<System, Vec<f64>>> {
    let mut clients = Vec::new();
    for (system, port) in &servers.ports {
        clients.push((*system, Client::connect(*port)?));
    }
    let mut measured = BTreeMap::<System, Vec<f64>>::new();
    let mut random = Random::seeded(1);
    for turn in 0..=TURNS {
        for (system, client) in &mut clients {
            let begin = Instant::now();
            while begin.elapsed() < TURN {
                let key = format!("{:030}", random.below(KEYS));
                let asked = Instant::now();
                match command {
                    "SET" => client.ask(&[b"SET", key.as_bytes(), &VALUE]),
                    "HMSET" => client.ask(&[b"HMSET", format!("h{}", &key[1..]).as_bytes(), b"f", &VALUE]),
                    _ => client.ask(&[b"INCR", format!("i{}", &key[1..]).as_bytes()]),
                }?;
                // The first turn is to warm up.
                if turn > 0 {
                    measured.entry(*system).or_default().push(asked.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    measured.values_mut().for_each(|all| all.sort_by(f64::total_cmp));
    Ok(measured)
}

fn throughputs(servers: &Servers) -> anyhow::Result<BTreeMap<System, f64>> {
    let mut workload = Workload::named("set")?;
    (workload.records, workload.value_size) = (KEYS, VALUE.len());
    let mut measured = BTreeMap::<System, Vec<f64>>::new();
    for turn in 0..=TURNS {
        for (system, port) in &servers.ports {
            let load = Load {
                endpoints: vec![(loopback(*port), 0)],
                clients: MANY,
                pipeline: 1,
                pace: Pace::Closed { think: Span::ZERO },
                workload: workload.clone(),
                duration: TURN_OF_MANY,
                seed: turn as u64,
                auth: None,
                reconnect: false,
            };
            let of = engine::run(&load, |_| {}, |_| {})?;
            if let Some(error) = of.first_error {
                bail!("{}: {error}", system.name());
            }
            if turn > 0 {
                measured.entry(*system).or_default().push(of.recorder.throughput());
            }
        }
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        quantile(&all, 0.5)
    };
    Ok(measured.into_iter().map(|(system, all)| (system, median(all))).collect())
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A connection of which one command at a time is asked.
struct Client {
    stream: TcpStream,
    inbox: Inbox,
    out: Vec<u8>,
    scratch: Vec<u8>,
}

impl Client {
    fn connect(port: u16) -> anyhow::Result<Client> {
        let stream = TcpStream::connect_timeout(&loopback(port), Duration::from_secs(1))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Client { stream, inbox: Inbox::default(), out: Vec::new(), scratch: vec![0; 1 << 12] })
    }

    fn ask(&mut self, words: &[&[u8]]) -> anyhow::Result<()> {
        self.out.clear();
        push_command(words, &mut self.out);
        self.stream.write_all(&self.out)?;
        loop {
            match self.inbox.next().map_err(anyhow::Error::msg)? {
                Some(OwnedFrame::Error(text)) => bail!("it answers: {text}"),
                Some(_) => return Ok(()),
                None => match self.stream.read(&mut self.scratch)? {
                    0 => bail!("it closed the connection"),
                    count => self.inbox.extend(&self.scratch[..count]),
                },
            }
        }
    }
}

/// Processes that end together, also where this one is interrupted, and their data with them.
struct Servers {
    running: Arc<Mutex<Running>>,
    /// Where each system is asked.
    ports: Vec<(System, u16)>,
}

#[derive(Default)]
struct Running {
    children: Vec<Child>,
    folder: Option<TempDir>,
}

impl Running {
    fn end(&mut self) {
        for mut child in self.children.drain(..) {
            // One that has ended by itself is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.folder = None;
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).end();
    }
}

impl Servers {
    fn start() -> anyhow::Result<Servers> {
        let servers = Servers { running: Arc::default(), ports: Vec::new() };
        when_interrupted(&servers.running, Running::end)?;
        servers.fill()
    }

    fn fill(mut self) -> anyhow::Result<Servers> {
        let folder = tempfile::Builder::new().prefix("isochrone-curp-").tempdir()?;
        let path = folder.path().to_owned();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).folder = Some(folder);
        let mut ports = free_ports(PORTS)?.into_iter();
        for system in SYSTEMS {
            let of = path.join(system.short());
            fs::create_dir(&of)?;
            let port = match system {
                System::Plain | System::Always => self.start_redis(system, &mut ports, &of)?,
                System::Witnesses(count) => self.start_nodes(count, &mut ports, &of)?,
            };
            self.ports.push((system, port));
        }
        for (system, port) in &self.ports {
            self.wait(*port).with_context(|| {
                let logs = last_words(&path.join(system.short()));
                format!("{} does not serve on port {port}{logs}", system.name())
            })?;
        }
        Ok(self)
    }

    fn spawn(&self, command: &mut Command, log: &Path) -> anyhow::Result<()> {
        let log = File::create(log)?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child =
            command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        running.children.push(child);
        Ok(())
    }

    fn start_redis(
        &self,
        system: System,
        ports: &mut impl Iterator<Item = u16>,
        folder: &Path,
    ) -> anyhow::Result<u16> {
        let port = ports.next().context("each server has its port")?;
        let kept = if system == System::Always { "yes" } else { "no" };
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.args(["--appendonly", kept, "--appendfsync", "always", "--dir"]).arg(folder);
        self.spawn(&mut command, &folder.join("redis.log"))?;
        Ok(port)
    }

    fn start_nodes(
        &self,
        witnesses: usize,
        ports: &mut impl Iterator<Item = u16>,
        folder: &Path,
    ) -> anyhow::Result<u16> {
        // The master, its copies, and as many that take their place: the last of them is asked.
        let count = 2 * witnesses + 1;
        let mut asked = 0;
        let mut text =
            "cluster = \"beside\"\n[[region]]\nname = \"here\"\n[network]\nlan_rtt = \"0.1ms\"\n".to_owned();
        for at in 0..count {
            let (peer, gate) = ports.next().zip(ports.next()).context("each server has its ports")?;
            asked = gate;
            text += &format!(
                "[[node]]\nname = \"n{at}\"\nregion = \"here\"\nlisten = \"127.0.0.1:{peer}\"\nredis = \"127.0.0.1:{gate}\"\n"
            );
        }
        let replicas: Vec<String> = (0..count).map(|at| format!("\"n{at}\"")).collect();
        text += &format!(
            "[[keyspace]]\nname = \"main\"\nprotocol = \"curp\"\nleader = \"n0\"\nreplicas = [{}]\nparameters = {{ f = {witnesses} }}\n",
            replicas.join(", ")
        );
        let file = folder.join("deployment.toml");
        fs::write(&file, text)?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        for at in 0..count {
            let name = format!("n{at}");
            let mut command = Command::new(&program);
            command.arg("node").arg(&file).args(["--name", &name, "--data"]).arg(folder.join(&name));
            self.spawn(&mut command, &folder.join(format!("{name}.log")))?;
        }
        Ok(asked)
    }

    /// Until what is asked there is done.
    fn wait(&self, port: u16) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let asked = Client::connect(port).and_then(|mut client| client.ask(&[b"SET", b"ready", b"1"]));
            let Err(error) = asked else { return Ok(()) };
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
            if Instant::now() >= end || running.children.iter_mut().any(ended) {
                return Err(error);
            }
            drop(running);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ports that nobody has now; all at once, so that none is among them twice.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let held = (0..count).map(|_| TcpListener::bind(loopback(0)));
    let held: Vec<TcpListener> = held.collect::<Result<_, _>>().context("no port is free")?;
    Ok(held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<std::io::Result<_>>()?)
}

/// The ends of the logs that a system's servers have left, for the error.
fn last_words(folder: &Path) -> String {
    let logs = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let last = |path: std::path::PathBuf| {
        let text = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).ok()?;
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(format!("\n  {}: {line}", path.file_name()?.display()))
    };
    logs.filter_map(last).collect()
}
