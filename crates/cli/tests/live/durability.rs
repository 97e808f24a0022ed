//! What `curp` says of itself: WAIT and WAITAOF answer once all copies have everything; and what `specs/curp.md` 8 wants
//! told is on the page of metrics.

use super::processes::{
    Addresses, Process, client, deployment_of, figure, leader, node, nodes, until, writes,
};
use super::resp::{Client, Reply, ask};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

struct Cluster {
    _folder: tempfile::TempDir,
    addresses: Vec<Addresses>,
    processes: Vec<Process>,
}

impl Cluster {
    /// Three nodes of `curp` with these parameters.
    fn start(parameters: &str) -> Cluster {
        let (folder, addresses) = (tempfile::tempdir().unwrap(), nodes(3));
        let file = deployment_of(folder.path(), "three.toml", "durability", &addresses, "curp");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}parameters = {{ {parameters} }}\n")).unwrap();
        let processes = (0..3).map(|index| node(&file, index, folder.path())).collect();
        Cluster { _folder: folder, addresses, processes }
    }

    /// The master, as all nodes say, and one of the copies.
    fn master(&self) -> (usize, usize) {
        let master = until("a master", || {
            let mut seen = self.addresses.iter().map(|addresses| leader(addresses.http));
            let first = seen.next()??;
            seen.all(|other| other.as_ref() == Some(&first)).then_some(first)
        });
        let master = master.strip_prefix('n').and_then(|index| index.parse().ok()).expect("one of ours");
        (master, (master + 1) % 3)
    }

    fn http(&self, node: usize) -> SocketAddr {
        self.addresses[node].http
    }

    /// A client of a node, once something was served there, and how many copies there are is known.
    fn client(&self, node: usize) -> Client {
        let mut client = client(self.addresses[node].redis);
        until("a write", || writes(&mut client));
        until("two copies", || (ask(&mut client, &["WAIT", "2", "1000"]) == Reply::Number(2)).then_some(()));
        client
    }
}

/// Who writes a million keys an hour would wait for backups for half an hour, if nobody asked for more.
const SLOW: &str = "sync_delay = \"600s\", batch_max = 1000000, hot_window = 0";

#[test]
fn wait_has_everything_synced_and_says_with_how_many_copies() {
    let cluster = Cluster::start(SLOW);
    let (master, copy) = cluster.master();
    let (mut one, mut other) = (cluster.client(copy), cluster.client((copy + 1) % 3));
    let unsynced = |expected: u64| {
        until("what is unsynced", || {
            (figure(cluster.http(master), "stands", "unsynced_commands") == Some(expected)).then_some(())
        });
    };
    unsynced(0);
    let ok = Reply::Text("OK".to_owned());
    assert_eq!(ask(&mut one, &["SET", "a", "1"]), ok);
    assert_eq!(ask(&mut other, &["SET", "b", "1"]), ok);
    unsynced(2);
    assert_eq!(ask(&mut one, &["WAIT", "2", "0"]), Reply::Number(2));
    // Everything, also what others wrote.
    unsynced(0);
    assert_eq!(ask(&mut one, &["SET", "c", "1"]), ok);
    assert_eq!(
        ask(&mut one, &["WAITAOF", "1", "2", "0"]),
        Reply::List(vec![Reply::Number(1), Reply::Number(2)])
    );
    unsynced(0);
    // In a transaction nothing waits, and nothing is known.
    assert_eq!(ask(&mut one, &["SET", "d", "1"]), ok);
    ask(&mut one, &["MULTI"]);
    ask(&mut one, &["WAIT", "2", "0"]);
    assert_eq!(ask(&mut one, &["EXEC"]), Reply::List(vec![Reply::Number(0)]));
    unsynced(1);

    // A copy that says nothing: nobody knows of any before it is given up, and then there is one.
    cluster.processes[copy].signal("STOP");
    let mut last = client(cluster.addresses[3 - master - copy].redis);
    let start = Instant::now();
    assert_eq!(ask(&mut last, &["WAIT", "2", "50"]), Reply::Number(0));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    until("another list", || (ask(&mut last, &["WAIT", "2", "2000"]) == Reply::Number(1)).then_some(()));
    cluster.processes[copy].signal("CONT");
    until("both copies", || (ask(&mut last, &["WAIT", "2", "2000"]) == Reply::Number(2)).then_some(()));
}

/// What the last line of `specs/curp.md` 8 asks for.
#[test]
fn what_curp_does_is_told() {
    let cluster = Cluster::start(&format!("{SLOW}, nearby_reads = true"));
    let (master, copy) = cluster.master();
    let mut one = cluster.client(copy);
    let events =
        |cluster: &Cluster, node: usize, what: &str| figure(cluster.http(node), "events_total", what);
    let told = |cluster: &Cluster, node: usize, what: &str| {
        until(what, || events(cluster, node, what).filter(|count| *count > 0))
    };
    let stands = |cluster: &Cluster, node: usize, what: &str, is: &dyn Fn(u64) -> bool| {
        until(what, || figure(cluster.http(node), "stands", what).filter(|value| is(*value)))
    };
    // The first is with witnesses, the second in its way, and large ones fit none.
    for value in ["1", "2"] {
        ask(&mut one, &["SET", "key", value]);
    }
    ask(&mut one, &["SET", "large", &"x".repeat(10_000)]);
    for what in ["curp_fast", "curp_conflict", "curp_sync"] {
        told(&cluster, copy, what);
    }
    let refused: u64 = (0..3).filter_map(|node| events(&cluster, node, "records_refused_conflict")).sum();
    assert!(refused > 0, "of two on one key a witness keeps one");
    for what in ["syncs", "sync_commands", "collection_rounds", "masters_begun"] {
        told(&cluster, master, what);
    }
    // Collections go on by what comes next.
    until("collected", || {
        ask(&mut one, &["WAIT", "2", "1000"]);
        let used: Option<u64> = (0..3)
            .filter(|node| *node != master)
            .map(|node| figure(cluster.http(node), "stands", "witness_slots_used"))
            .sum();
        used.filter(|used| *used == 0)
    });
    // A command is synced at once where that has taken no longer of late, and now and then, to learn how long it takes.
    let leave_unsynced = |one: &mut Client, key: &str| {
        until("something unsynced", || {
            for _ in 0..20 {
                ask(one, &["SET", key, "0"]);
            }
            ask(one, &["WAIT", "2", "1000"]);
            stands(&cluster, master, "unsynced_commands", &|open| open == 0);
            ask(one, &["SET", key, "1"]);
            let start = Instant::now();
            // By its age: one that is synced at once is unsynced too, for a moment.
            let age = || figure(cluster.http(master), "stands", "unsynced_age_milliseconds");
            let open = || age().is_some_and(|age| age > 200);
            while !open() && start.elapsed() < Duration::from_millis(600) {
                std::thread::sleep(Duration::from_millis(5));
            }
            open().then_some(())
        });
    };
    leave_unsynced(&mut one, "fresh");
    stands(&cluster, copy, "witness_slots_used", &|used| used == 1);
    stands(&cluster, master, "unsynced_age_milliseconds", &|age| age > 100);
    let reign = stands(&cluster, master, "reign", &|reign| reign > 0);
    stands(&cluster, master, "list_version", &|list| list > 0);
    stands(&cluster, copy, "copies", &|copies| copies == 2);
    // What is in a witness' way is read at the master, all else here.
    until("a read at the copy", || {
        ask(&mut one, &["GET", "key"]);
        ask(&mut one, &["GET", "fresh"]);
        let count = |what| events(&cluster, copy, what).unwrap_or(0);
        (count("curp_near") > 0 && count("curp_near_refused") > 0).then_some(())
    });
    leave_unsynced(&mut one, "last");

    cluster.processes[master].signal("KILL");
    let heir = until("another master", || {
        let name = leader(cluster.http(copy)).filter(|name| *name != format!("n{master}"))?;
        name.strip_prefix('n')?.parse::<usize>().ok()
    });
    let replayed = told(&cluster, heir, "replay_commands");
    assert!(replayed >= 1, "what was in the hands of witnesses alone: {replayed}");
    assert!(events(&cluster, heir, "replay_filtered").is_some());
    stands(&cluster, heir, "reign", &|later| later > reign);
    assert_eq!(
        until("a read", || client(cluster.addresses[heir].redis)
            .ask(&["GET", "last"])
            .ok()
            .filter(|reply| { !matches!(reply, Reply::Error(_)) })),
        Reply::Text("1".to_owned())
    );
}
