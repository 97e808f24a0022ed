//! Three nodes of `curp`, killed in every order while clients count, so that totals can be exact: each order of the
//! master and the two copies, each of which is a backup and a witness, one after the other; then each two of them at
//! once, and all three.
//!
//! Half of the kills come while clients only do what commutes, which witnesses make safe long before it is on any
//! backup; the others while they contend for the same keys, which takes the backups.
//!
//! Nothing here is taken for a range. Every acknowledged `RPUSH` says which place of the list it has; every `INCR`
//! has a key of its own beside the common one, so that one whose answer was lost is seen to have been done once or
//! not at all; and a common counter and list change in one transaction, so that the list says what the counter is.

use super::processes::{
    Addresses, Process, client, deployment_of, figure, leader, node, nodes, page, serves, until,
};
use super::resp::{Client, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NODES: usize = 3;

/// The places of master, first and second copy in every order.
const ORDERS: [[usize; NODES]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Who is killed at once, at last.
const TOGETHER: [&[usize]; 4] = [&[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]];

/// What keys of lists that are appended to once begin with.
const LIST: &str = "once-list:";

struct Cluster {
    folder: PathBuf,
    file: PathBuf,
    addresses: Vec<Addresses>,
    processes: Vec<Process>,
    /// Commands that were done by witnesses, at nodes that have been killed since.
    fast: u64,
    replayed: u64,
    start: Instant,
}

impl Cluster {
    fn start(folder: &Path, unified: bool) -> Cluster {
        let addresses = nodes(NODES);
        let file = deployment_of(folder, "orders.toml", "orders", &addresses, "curp");
        // What is not in anybody's way is in the hands of witnesses alone for half a second.
        let slow = "sync_delay = \"500ms\", batch_max = 10000, hot_window = 0";
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}parameters = {{ unified = {unified}, {slow} }}\n")).unwrap();
        let processes = (0..NODES).map(|index| node(&file, index, folder)).collect();
        Cluster {
            folder: folder.to_owned(),
            file,
            addresses,
            processes,
            fast: 0,
            replayed: 0,
            start: Instant::now(),
        }
    }

    /// The node that leads as all see it; the others behind it.
    fn roles(&self) -> [usize; NODES] {
        let master = until("a master", || {
            let seen: Option<BTreeSet<_>> =
                self.addresses.iter().map(|addresses| leader(addresses.http)).collect();
            let seen = seen.filter(|seen| seen.len() == 1)?;
            seen.first()?.strip_prefix('n')?.parse::<usize>().ok()
        });
        [master, (master + 1) % NODES, (master + 2) % NODES]
    }

    /// Kills them at the same moment, and restarts them once the others, where there are enough, go on.
    fn kill(&mut self, victims: &[usize]) {
        println!("{:?}: killed {victims:?}", self.start.elapsed());
        for victim in victims {
            self.fast += figure(self.addresses[*victim].http, "events_total", "curp_fast").unwrap_or(0);
            self.replayed +=
                figure(self.addresses[*victim].http, "events_total", "requests_replayed").unwrap_or(0);
        }
        for victim in victims {
            self.processes[*victim].signal("KILL");
        }
        for victim in victims {
            assert_eq!(self.processes[*victim].end(), None, "a signal has ended it");
        }
        let living = (0..NODES).find(|index| !victims.contains(index));
        if let (1, Some(living)) = (victims.len(), living) {
            serves(self.addresses[living].redis);
        }
        for victim in victims {
            self.processes[*victim] = node(&self.file, *victim, &self.folder);
        }
        for victim in victims {
            serves(self.addresses[*victim].redis);
        }
    }
}

impl Drop for Cluster {
    /// Of a test that fails, what its nodes say: their folder goes with it.
    fn drop(&mut self) {
        for index in (0..NODES).filter(|_| std::thread::panicking()) {
            let log = std::fs::read_to_string(self.folder.join(format!("n{index}.log"))).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let events = page(self.addresses[index].http, "/metrics").unwrap_or_default();
            let events: Vec<_> = events.lines().filter(|line| line.contains("what=")).collect();
            let status = page(self.addresses[index].http, "/status").unwrap_or_default();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            println!("n{index}:\n{last}\n{status}\n{}", events.join("\n"));
        }
    }
}

/// Values that were appended, with the place that each was told; and those of which nobody knows.
#[derive(Default)]
struct Appended {
    acknowledged: BTreeMap<u64, String>,
    unknown: BTreeSet<String>,
}

impl Appended {
    fn join(&mut self, other: Appended) {
        for (place, value) in other.acknowledged {
            let before = self.acknowledged.insert(place, value.clone());
            assert_eq!(before, None, "{value} was told the place {place} of another");
        }
        self.unknown.extend(other.unknown);
    }

    /// The list is what they were told: each acknowledged value at its place, and at the others values of which nobody
    /// knew, none of them twice. How many of those it has.
    fn check(&self, what: &str, list: &[String]) -> usize {
        for (place, value) in &self.acknowledged {
            let found = usize::try_from(*place - 1).ok().and_then(|at| list.get(at));
            assert_eq!(found, Some(value), "{what}: of {} at place {place}", list.len());
        }
        let mut seen = BTreeSet::new();
        for (at, value) in list.iter().enumerate() {
            assert!(seen.insert(value), "{what}: {value} was appended twice");
            let known = self.acknowledged.contains_key(&(at as u64 + 1)) || self.unknown.contains(value);
            assert!(known, "{what}: {value} was refused, and appended at {at}");
        }
        list.len() - self.acknowledged.len()
    }
}

/// What one client was told.
#[derive(Default)]
struct Told {
    list: Appended,
    /// Of a list and a counter that change together.
    pairs: Appended,
    /// The numbers that increments of the common counter have returned.
    numbers: BTreeSet<u64>,
    numbers_unknown: u64,
    /// Keys of one command each: an increment, or an element of a list.
    once: Vec<String>,
    once_unknown: Vec<String>,
}

/// What came of a command.
enum Outcome {
    Number(u64),
    Refused,
    Unknown,
}

fn outcome(reply: std::io::Result<Reply>, connection: &mut Option<Client>) -> Outcome {
    match reply {
        Ok(Reply::Number(number)) => Outcome::Number(u64::try_from(number).expect("a count")),
        // An error says that it was not done, unless it says that nobody knows.
        Ok(Reply::Error(text)) if text.starts_with("UNKNOWN") => Outcome::Unknown,
        Ok(Reply::Error(_)) => Outcome::Refused,
        Ok(other) => panic!("no answer to that: {other:?}"),
        Err(_) => {
            *connection = None;
            Outcome::Unknown
        }
    }
}

/// What the test tells its clients, and they the test.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Only what commutes is asked, and nothing through the master: who stands beside it waits for backups, and has
    /// all before it sent there as well.
    calm: AtomicBool,
    master: AtomicUsize,
    /// Commands that were answered.
    done: AtomicUsize,
}

/// Counts through one node until it is told to stop.
fn counter(number: usize, address: SocketAddr, shared: Arc<Shared>) -> JoinHandle<Told> {
    std::thread::spawn(move || {
        let (mut told, mut connection, mut sequence) = (Told::default(), None, 0_u64);
        while !shared.stop.load(Ordering::SeqCst) {
            let calm = shared.calm.load(Ordering::SeqCst);
            if calm && shared.master.load(Ordering::SeqCst) == number % NODES {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            if connection.is_none() {
                connection = Client::reconnect(address);
            }
            let Some(client) = &mut connection else { continue };
            sequence += 1;
            let value = format!("{number}:{sequence}");
            match sequence % 4 + if calm { 4 } else { 0 } {
                0 => {
                    let reply = client.ask(&["RPUSH", "list", &value]);
                    match outcome(reply, &mut connection) {
                        Outcome::Number(place) => drop(told.list.acknowledged.insert(place, value)),
                        Outcome::Unknown => drop(told.list.unknown.insert(value)),
                        Outcome::Refused => continue,
                    }
                }
                1 => {
                    let reply = client.ask(&["INCR", "count"]);
                    match outcome(reply, &mut connection) {
                        Outcome::Number(number) => assert!(told.numbers.insert(number), "{number} twice"),
                        Outcome::Unknown => told.numbers_unknown += 1,
                        Outcome::Refused => continue,
                    }
                }
                2 => {
                    let reply = pair(client, &value);
                    match outcome(reply, &mut connection) {
                        Outcome::Number(place) => drop(told.pairs.acknowledged.insert(place, value)),
                        Outcome::Unknown => drop(told.pairs.unknown.insert(value)),
                        Outcome::Refused => continue,
                    }
                }
                kind => {
                    let key = format!("{}{value}", if kind % 2 == 0 { "once:" } else { LIST });
                    let reply = match kind % 2 {
                        0 => client.ask(&["INCR", &key]),
                        _ => client.ask(&["RPUSH", &key, &value]),
                    };
                    let told = (&mut told.once, &mut told.once_unknown);
                    match outcome(reply, &mut connection) {
                        Outcome::Number(number) => {
                            assert_eq!(number, 1, "{key} was done twice");
                            told.0.push(key);
                        }
                        Outcome::Unknown => told.1.push(key),
                        Outcome::Refused => continue,
                    }
                }
            }
            shared.done.fetch_add(1, Ordering::SeqCst);
        }
        told
    })
}

/// A list and a counter, in one transaction: the number that both say.
fn pair(client: &mut Client, value: &str) -> std::io::Result<Reply> {
    for words in [&["MULTI"][..], &["INCR", "{pair}count"], &["RPUSH", "{pair}list", value]] {
        if let refused @ Reply::Error(_) = client.ask(words)? {
            // Nothing is done without EXEC, and it is refused as well; the connection goes on.
            client.ask(&["DISCARD"])?;
            return Ok(refused);
        }
    }
    Ok(match client.ask(&["EXEC"])? {
        Reply::List(replies) => {
            let [count, length] = &replies[..] else { panic!("{replies:?}") };
            assert_eq!(count, length, "counter and list have changed together");
            count.clone()
        }
        other => other,
    })
}

/// Asks until there is an answer.
fn read(client: &mut Client, words: &[&str]) -> Reply {
    until("an answer", || client.ask(words).ok().filter(|reply| !matches!(reply, Reply::Error(_))))
}

fn whole(client: &mut Client, key: &str) -> Vec<String> {
    let text = |item| match item {
        Reply::Text(text) => text,
        other => panic!("in {key}: {other:?}"),
    };
    match read(client, &["LRANGE", key, "0", "-1"]) {
        Reply::List(items) => items.into_iter().map(text).collect(),
        other => panic!("{key}: {other:?}"),
    }
}

fn count(client: &mut Client, key: &str) -> u64 {
    match read(client, &["GET", key]) {
        Reply::Text(text) => text.parse().expect("a number"),
        other => panic!("{key}: {other:?}"),
    }
}

/// How often the one command on each of these keys was done.
fn times(client: &mut Client, keys: &[String]) -> Vec<u64> {
    let ask = |keys: &[String]| {
        // Together: one at a time would take longer than all the rest.
        read(client, &["MULTI"]);
        for key in keys {
            let get = if key.starts_with(LIST) { "LLEN" } else { "GET" };
            read(client, &[get, key]);
        }
        let Reply::List(values) = read(client, &["EXEC"]) else { panic!("EXEC gives a list") };
        values
    };
    let times = |value| match value {
        Reply::Number(length) => u64::try_from(length).expect("a length"),
        Reply::Text(text) => text.parse().expect("a number"),
        Reply::Nothing => 0,
        other => panic!("{other:?}"),
    };
    keys.chunks(500).flat_map(ask).map(times).collect()
}

/// What nodes say when nobody writes any more: the same at all, and what clients were told.
fn check(cluster: &Cluster, told: Vec<Told>) {
    let mut all = Told::default();
    for one in told {
        all.list.join(one.list);
        all.pairs.join(one.pairs);
        for number in one.numbers {
            assert!(all.numbers.insert(number), "two increments have returned {number}");
        }
        all.numbers_unknown += one.numbers_unknown;
        all.once.extend(one.once);
        all.once_unknown.extend(one.once_unknown);
    }
    let mut before = None;
    for index in 0..NODES {
        let client = &mut client(cluster.addresses[index].redis);
        serves(cluster.addresses[index].redis);
        let (list, pairs) = (whole(client, "list"), whole(client, "{pair}list"));
        let (number, paired) = (count(client, "count"), count(client, "{pair}count"));
        let doubtful = all.list.check("list", &list);
        let doubtful_pairs = all.pairs.check("{pair}list", &pairs);
        assert_eq!(paired, pairs.len() as u64, "n{index}: counter and list have changed together");
        let highest = all.numbers.last().copied().unwrap_or(0);
        let missing = number - all.numbers.len() as u64;
        assert!(highest <= number, "n{index}: {highest} was returned, and now it is {number}");
        assert!(missing <= all.numbers_unknown, "n{index}: {missing} increments that nobody asked for");
        for (key, times) in all.once.iter().zip(times(client, &all.once)) {
            assert_eq!(times, 1, "n{index}: {key} was acknowledged");
        }
        let doubtful_once = times(client, &all.once_unknown);
        for (key, times) in all.once_unknown.iter().zip(&doubtful_once) {
            assert!(*times <= 1, "n{index}: {key} was done {times} times");
        }
        println!(
            "n{index}: {} values ({doubtful} of {} in doubt), {} pairs ({doubtful_pairs} of {}), {number} increments \
             ({missing} of {}), {} of one ({} of {})",
            list.len(),
            all.list.unknown.len(),
            pairs.len(),
            all.pairs.unknown.len(),
            all.numbers_unknown,
            all.once.len(),
            doubtful_once.iter().sum::<u64>(),
            doubtful_once.len(),
        );
        // What was in doubt is so at every node, once it has been seen at one.
        let seen = (list, pairs, number, doubtful_once);
        if let Some(before) = &before {
            assert!(*before == seen, "n{index} says something else than the one before");
        }
        before = Some(seen);
    }
}

fn survive(unified: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(folder.path(), unified);
    serves(cluster.addresses[0].redis);
    let (start, shared) = (Instant::now(), Arc::new(Shared::default()));
    let counters: Vec<_> = (0..2 * NODES)
        .map(|number| counter(number, cluster.addresses[number % NODES].redis, Arc::clone(&shared)))
        .collect();
    // Clients are in the middle of it, however slow the machine is.
    let counts = |calm, master| {
        shared.master.store(master, Ordering::SeqCst);
        shared.calm.store(calm, Ordering::SeqCst);
        let before = shared.done.load(Ordering::SeqCst);
        until("commands", || (shared.done.load(Ordering::SeqCst) > before + 50).then_some(()));
    };
    for (number, order) in ORDERS.into_iter().enumerate() {
        let roles = cluster.roles();
        for victim in order.map(|role| roles[role]) {
            counts(number % 2 == 0, cluster.roles()[0]);
            cluster.kill(&[victim]);
        }
    }
    println!("{:?}: one after the other, in every order", start.elapsed());
    for together in TOGETHER {
        let roles = cluster.roles();
        let victims: Vec<_> = together.iter().map(|role| roles[*role]).collect();
        counts(true, roles[0]);
        cluster.kill(&victims);
    }
    counts(false, 0);
    shared.stop.store(true, Ordering::SeqCst);
    let told = counters.into_iter().map(|counter| counter.join().expect("no reply was nonsense")).collect();
    check(&cluster, told);
    println!(
        "{:?}, {} commands by witnesses, {} replayed by nodes that were killed later",
        start.elapsed(),
        cluster.fast,
        cluster.replayed
    );
    assert!(cluster.fast > 0, "nothing was done by witnesses: what was shown holds for a log alone");
}

#[test]
fn curp_counts_exactly_whoever_of_master_witnesses_and_backups_is_killed_in_whatever_order() {
    survive(false);
}

#[test]
fn curp_counts_exactly_in_every_order_where_its_servers_are_witnesses() {
    survive(true);
}
