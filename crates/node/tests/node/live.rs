//! Whole nodes in this process, over loopback, with journals on disk.

use crate::toy::{self, Lines};
use isochrone_core::deployment::{Deployment, Known};
use isochrone_core::{KeyspaceId, NodeId, Span};
use isochrone_node::cert;
use isochrone_node::gateway::Gateway;
use isochrone_node::journal::Expect;
use isochrone_node::node::{
    DEFAULT_SNAPSHOT_BYTES, Node, NodeConfig, NodeHandle, Sockets, StartError, credentials,
};
use isochrone_node::protocols::{Administration, Protocols};
use isochrone_node::security;
use isochrone_node::transport::emulation::{Delay, Emulation};
use isochrone_node::transport::frame::{self, Agreed, Frame, Hello, Life, MAGIC, Start, VERSION};
use isochrone_proto::health::{HealthCheckRequest, HealthClient, ServingStatus};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::Endpoint;

const NODES: u16 = 3;

pub struct Cluster {
    pub deployment: Arc<Deployment>,
    protocols: Protocols,
    directory: tempfile::TempDir,
    peers: BTreeMap<NodeId, SocketAddr>,
    pub emulation: Emulation,
    snapshot_bytes: u64,
    gateway: fn() -> Box<dyn Gateway>,
    pub nodes: BTreeMap<NodeId, NodeHandle>,
}

impl Cluster {
    fn new(extra: &str, base: Option<tempfile::TempDir>) -> Cluster {
        let mut protocols = Protocols::default();
        protocols.register(toy::registration());
        Cluster::of("toy", protocols, || Box::new(Lines), extra, base)
    }

    /// A cluster of this protocol, with more lines for its deployment file, which lies in `base`.
    pub fn of(
        protocol: &'static str,
        protocols: Protocols,
        gateway: fn() -> Box<dyn Gateway>,
        extra: &str,
        base: Option<tempfile::TempDir>,
    ) -> Cluster {
        let mut text = String::from("cluster = \"test\"\n[[region]]\nname = \"here\"\n");
        for node in 0..NODES {
            text += &format!(
                "[[node]]\nname = \"node-{node}\"\nregion = \"here\"\nlisten = \"127.0.0.1:{}\"\n",
                7000 + node
            );
        }
        text += &format!("[[keyspace]]\nname = \"main\"\nprotocol = \"{protocol}\"\nreplication = 3\n");
        text += extra;
        let directory = base.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let known = Known::names(&[protocol]);
        let deployment = Deployment::parse(&text, "test.toml", directory.path(), &known).unwrap();
        Cluster {
            deployment: Arc::new(deployment),
            protocols,
            directory,
            peers: BTreeMap::new(),
            emulation: Emulation::new(usize::from(NODES), |_, _| Delay::default()),
            snapshot_bytes: DEFAULT_SNAPSHOT_BYTES,
            gateway,
            nodes: BTreeMap::new(),
        }
    }

    pub fn start_all(&mut self) {
        let sockets: Vec<TcpListener> =
            (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        for (node, socket) in (0..NODES).map(NodeId).zip(&sockets) {
            self.peers.insert(node, socket.local_addr().unwrap());
        }
        for (node, socket) in (0..NODES).map(NodeId).zip(sockets) {
            self.start(node, socket);
        }
    }

    fn start(&mut self, node: NodeId, socket: TcpListener) {
        let data = self.directory.path().join(format!("data-{}", node.0));
        let handle = self.begin(node, data, socket);
        self.nodes.insert(node, handle);
    }

    fn begin(&self, node: NodeId, data: PathBuf, socket: TcpListener) -> NodeHandle {
        let any = || TcpListener::bind("127.0.0.1:0").unwrap();
        let config = NodeConfig {
            deployment: Arc::clone(&self.deployment),
            node,
            data,
            expect: Expect::Anything,
            sockets: Sockets { peer: Some(socket), redis: vec![any()], grpc: Some(any()), http: Some(any()) },
            peers: self.peers.clone(),
            emulation: Some(self.emulation.clone()),
            admin_token: Some("secret".to_owned()),
            network: None,
            snapshot_bytes: self.snapshot_bytes,
        };
        Node::start(config, &self.protocols, (self.gateway)()).unwrap()
    }

    pub fn kill_and_start(&mut self, node: NodeId) {
        self.nodes.remove(&node).unwrap().kill().unwrap();
        let socket = eventually("the port is free", || TcpListener::bind(self.peers[&node]).ok());
        self.start(node, socket);
    }

    /// What a node says of its data directory, as it remembers it itself.
    fn life(&self, node: NodeId) -> Life {
        let file = self.directory.path().join(format!("data-{}", node.0)).join("PEERS");
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", node.0)));
        let hexadecimal = |word| u64::from_str_radix(word, 16).unwrap();
        let (birth, starts) = line.unwrap().split_once(' ').unwrap();
        let mut past: Vec<Start> = starts
            .split(' ')
            .map(|start| start.split_once(':').unwrap())
            .map(|(number, salt)| Start { number: number.parse().unwrap(), salt: hexadecimal(salt) })
            .collect();
        Life { birth: hexadecimal(birth), start: past.pop().unwrap(), past }
    }

    pub fn connected(&self) {
        for node in self.nodes.values() {
            eventually("all links", || {
                let status = node.status();
                (!status.peers.is_empty() && status.peers.iter().all(|peer| peer.connected)).then_some(())
            });
        }
    }

    fn client(&self, node: u16) -> Client {
        Client::dial(self.nodes[&NodeId(node)].redis_addresses()[0])
    }

    fn http(&self, node: u16, request: &str) -> String {
        let mut stream = TcpStream::connect(self.nodes[&NodeId(node)].http_address().unwrap()).unwrap();
        stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn get(&self, node: u16, path: &str) -> String {
        self.http(node, &format!("GET {path} HTTP/1.1\nhost: x\nconnection: close\n\n"))
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn dial(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn count(&mut self) -> u64 {
        self.send("count\n");
        self.line().parse().unwrap()
    }
}

/// Waits for what other threads bring about; the deadline only ends a broken run.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_cluster_counts_through_kills_and_shows_itself() {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    let mut client = cluster.client(1);
    assert_eq!((1..=50).map(|_| client.count()).collect::<Vec<_>>(), (1..=50).collect::<Vec<_>>());

    // Pipelined, and then the whole connection closed by the server.
    client.send(&"count\n".repeat(100));
    let pipelined: Vec<u64> = (0..100).map(|_| client.line().parse().unwrap()).collect();
    assert_eq!(pipelined, (51..=150).collect::<Vec<_>>());
    client.send("who\nquit\n");
    assert_eq!(client.line(), "node-1");
    assert_eq!(client.line(), "", "closed");

    // A replica that is killed is missed by nobody, and the one that counts goes on where it was.
    cluster.kill_and_start(NodeId(2));
    assert_eq!(cluster.client(1).count(), 151);
    cluster.kill_and_start(NodeId(0));
    cluster.connected();
    assert_eq!(cluster.client(2).count(), 152);

    assert!(cluster.get(1, "/healthz").ends_with("ok\n"));
    let ready =
        eventually("ready", || Some(cluster.get(1, "/readyz")).filter(|text| text.contains("200 OK")));
    assert!(ready.contains("main: ready, 3 of 3 replicas reachable"), "{ready}");
    let status = eventually("the leader is known", || {
        Some(cluster.get(1, "/status")).filter(|text| text.contains("\"leader\": \"node-0\""))
    });
    assert!(status.contains("\"guarantee\": \"linearizable\""), "{status}");
    let metrics = cluster.get(0, "/metrics");
    for line in [
        "isochrone_journal_sync_duration_seconds_count",
        "isochrone_unsafe_fsync_off 0",
        "isochrone_leader{keyspace=\"main\"} 1",
        "isochrone_peer_clock_ahead_seconds{peer=\"node-1\"} ",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    let counted = cluster.get(1, "/metrics");
    assert!(
        counted.contains(
            "isochrone_command_duration_seconds_count{keyspace=\"main\",origin_region=\"here\"} 151"
        ),
        "{counted}"
    );

    // Orders: not without the token, not from another origin's page.
    let order = |headers: &str| {
        let body = "{\"keyspace\": \"main\", \"node\": \"node-1\"}";
        let head = format!("POST /admin/move-leader HTTP/1.1\nhost: x\n{headers}connection: close\n");
        cluster.http(0, &format!("{head}content-length: {}\n\n{body}", body.len()))
    };
    assert!(order("").contains("401"), "{}", order(""));
    assert!(order("authorization: Bearer secret\norigin: http://evil\n").contains("403"));
    let done = order("authorization: Bearer secret\n");
    assert!(done.contains("200 OK") && done.contains("node 0 counts for ever"), "{done}");
    let refused = cluster.nodes[&NodeId(0)].administer(KeyspaceId(1), Administration::StepDown);
    assert!(refused.unwrap_err().contains("cannot do this"));

    for (_, node) in std::mem::take(&mut cluster.nodes) {
        node.stop().unwrap();
    }
}

#[test]
fn a_restart_begins_from_a_snapshot() {
    let mut cluster = Cluster::new("", None);
    cluster.snapshot_bytes = 200;
    cluster.start_all();
    cluster.connected();
    let mut client = cluster.client(0);
    let mut count = 0;
    // Two generations, so that the first is what the journal is trimmed to.
    eventually("a restored start", || {
        for _ in 0..200 {
            count += 1;
            assert_eq!(client.count(), count);
        }
        cluster.kill_and_start(NodeId(0));
        cluster.connected();
        client = cluster.client(0);
        eventually("published", || (cluster.nodes[&NodeId(0)].status().incarnation > 0).then_some(()));
        let status = eventually("facts", || {
            let status = cluster.nodes[&NodeId(0)].status();
            (!status.processes.is_empty()).then_some(status)
        });
        status.processes.iter().any(|process| process.counted.contains_key("restored")).then_some(())
    });
    assert_eq!(client.count(), count + 1);
}

#[test]
fn delays_are_emulated_and_cuts_heal() {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    let far = Span::from_millis(30);
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        cluster.emulation.change(NodeId(from), NodeId(to), |delay| delay.one_way = far);
    }
    let mut client = cluster.client(1);
    client.count();
    let begun = Instant::now();
    client.count();
    let took = begun.elapsed();
    // To node 0 and back, and in between from there to a majority and back.
    assert!(took >= Duration::from_millis(120), "{took:?}");

    cluster.emulation.isolate(NodeId(0), true);
    eventually("not ready", || cluster.get(0, "/readyz").contains("503").then_some(()));
    cluster.emulation.heal();
    eventually("ready", || cluster.get(0, "/readyz").contains("200 OK").then_some(()));
    assert!(cluster.client(2).count() >= 3);
}

#[test]
fn health_checks_over_grpc_say_what_readyz_says() {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = format!("http://{}", cluster.nodes[&NodeId(0)].grpc_address().unwrap());
    let endpoint = Endpoint::from_shared(address).unwrap();
    let mut client = HealthClient::new(runtime.block_on(endpoint.connect()).unwrap());
    let mut says = |expected: ServingStatus, code: &str| {
        for service in ["", "main"] {
            eventually(&format!("{service:?} {expected:?}"), || {
                let request = HealthCheckRequest { service: service.to_owned() };
                let found = runtime.block_on(client.check(tonic::Request::new(request))).unwrap();
                (found.into_inner().status() == expected).then_some(())
            });
        }
        assert!(cluster.get(0, "/readyz").contains(code), "{}", cluster.get(0, "/readyz"));
    };
    says(ServingStatus::Serving, "200 OK");
    cluster.emulation.isolate(NodeId(0), true);
    says(ServingStatus::NotServing, "503");
    cluster.emulation.heal();
    says(ServingStatus::Serving, "200 OK");
}

#[test]
fn strangers_at_the_peer_port_are_told_why() {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    let id = cluster.deployment.cluster_id();
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        cluster_id: id,
        cluster: "test".to_owned(),
        from: NodeId(1),
        to: NodeId(0),
        life: cluster.life(NodeId(1)),
        keyspaces: Arc::default(),
    };
    // What the others' files have, but for the partitions.
    let values = [("partitions".to_owned(), "7".to_owned())].into();
    let other: Arc<[Agreed]> = [Agreed { number: 1, name: "main".to_owned(), values }].into();
    let mut old = hello.life.clone();
    old.start = Start { number: 2, salt: 2 };
    let speaks = format!("speaks version {VERSION}");
    let refusals = [
        (
            Hello { cluster_id: 1, cluster: "other".into(), ..hello.clone() },
            "belongs to cluster \"test\", you to \"other\"",
        ),
        (Hello { version: VERSION + 1, ..hello.clone() }, speaks.as_str()),
        (
            Hello { to: NodeId(2), ..hello.clone() },
            "this is node node-0 of the cluster, you meant to reach node-2",
        ),
        (Hello { from: NodeId(0), ..hello.clone() }, "two processes run as one node"),
        (Hello { from: NodeId(7), ..hello.clone() }, "does not have you, number 7 in the file"),
        (Hello { life: old, ..hello.clone() }, "its data directory is an old copy: it comes as start 2"),
        (
            Hello { keyspaces: other, ..hello.clone() },
            "has partitions = 1 at node-0 and partitions = 7 at node-1; see",
        ),
        (Hello { magic: *b"GARBAGE!", ..hello.clone() }, "that was no greeting"),
    ];
    for (hello, expected) in refusals {
        let mut bytes = Vec::new();
        frame::hello(&mut bytes, &hello);
        let answer = say(cluster.peers[&NodeId(0)], &bytes);
        match frame::parse(&answer, 1 << 20).unwrap() {
            Some((Frame::Refuse(why) | Frame::Disown(why), _)) => assert!(why.contains(expected), "{why}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    // No frame at all, a length that nobody may claim, a message before the greeting: the connection just ends.
    for bytes in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0xff; 16],
        &[17, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(say(cluster.peers[&NodeId(0)], bytes), b"");
    }
    // After a good greeting, a message that is none, then one in another node's name.
    let bad = |sender: NodeId, body: &[u8]| {
        let process = |node| isochrone_core::ProcessId {
            node,
            keyspace: KeyspaceId(1),
            partition: isochrone_core::PartitionId(0),
            role: isochrone_core::Role(0),
            instance: 0,
        };
        let mut bytes = Vec::new();
        frame::hello(&mut bytes, &hello);
        frame::message(&mut bytes, process(sender), process(NodeId(0)), |out| out.extend_from_slice(body));
        bytes
    };
    say(cluster.peers[&NodeId(0)], &bad(NodeId(1), &[99]));
    say(cluster.peers[&NodeId(0)], &bad(NodeId(2), &[0, 1]));
    eventually("counted", || {
        let text = cluster.get(0, "/metrics");
        (text.contains("isochrone_peer_malformed_frames_total 5")
            && text.contains("isochrone_peer_greetings_refused_total 8"))
        .then_some(())
    });
    assert!(cluster.client(0).count() > 0, "the node goes on");
}

#[test]
fn a_mistake_in_a_keyspace_that_was_added_cuts_off_that_one_alone() {
    let added = |partitions: u16| {
        let log = format!("partitions = {partitions}\nprotocol = \"toy\"\nreplication = 3\n");
        Arc::clone(&Cluster::new(&format!("[[keyspace]]\nname = \"log\"\n{log}"), None).deployment)
    };
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    for (node, partitions) in [(0, 1), (1, 1), (2, 2)] {
        cluster.deployment = added(partitions);
        cluster.kill_and_start(NodeId(node));
    }
    cluster.connected();
    eventually("told, and reckoned with", || {
        let status = |node| cluster.nodes[&NodeId(node)].status();
        let apart = |node, of: &str| {
            let differs = "keyspace \"log\" has partitions = ";
            let found = status(node).peers.iter().find(|peer| peer.name == of).cloned();
            found.is_some_and(|peer| peer.connected && peer.trouble.contains(differs))
        };
        let reachable = |node| -> Vec<(usize, usize)> {
            status(node).keyspaces.iter().map(|keyspace| keyspace.reachable).collect()
        };
        let told = apart(0, "node-2") && apart(2, "node-0") && !apart(0, "node-1");
        (told && reachable(0) == [(3, 3), (2, 3)] && reachable(2) == [(3, 3), (1, 3)]).then_some(())
    });
    assert!(cluster.client(2).count() > 0, "the other keyspace is served");
    // A message to a process of that keyspace is not looked at, and one of the other ends its connection for being none.
    let values = [("partitions".to_owned(), "7".to_owned())].into();
    let main = Agreed { number: 1, name: "main".to_owned(), values: BTreeMap::new() };
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        cluster_id: cluster.deployment.cluster_id(),
        cluster: "test".to_owned(),
        from: NodeId(1),
        to: NodeId(0),
        life: cluster.life(NodeId(1)),
        keyspaces: [main, Agreed { number: 2, name: "log".to_owned(), values }].into(),
    };
    let process = |node, keyspace| isochrone_core::ProcessId {
        node: NodeId(node),
        keyspace: KeyspaceId(keyspace),
        partition: isochrone_core::PartitionId(0),
        role: isochrone_core::Role(0),
        instance: 0,
    };
    let mut bytes = Vec::new();
    frame::hello(&mut bytes, &hello);
    frame::message(&mut bytes, process(1, 2), process(0, 2), |out| out.push(99));
    frame::ping(&mut bytes, &frame::Ping { number: 5, leads: Vec::new(), full: None, heard: 0 });
    frame::message(&mut bytes, process(1, 1), process(0, 1), |out| out.push(99));
    frame::ping(&mut bytes, &frame::Ping { number: 6, leads: Vec::new(), full: None, heard: 0 });
    let answer = say(cluster.peers[&NodeId(0)], &bytes);
    let mut rest = &*answer;
    let mut told = Vec::new();
    while let Some((frame, size)) = frame::parse(rest, 1 << 20).unwrap() {
        told.push(match frame {
            Frame::Welcome { .. } => 0,
            Frame::Pong(number, ..) => number,
            other => panic!("{other:?}"),
        });
        rest = &rest[size..];
    }
    assert_eq!(told, [0, 5]);
}

#[test]
fn a_full_house_makes_everybody_wait_and_nobody_lose() {
    let mut cluster = Cluster::new("[limits]\nin_flight = 1\nclients = 3\n", None);
    cluster.start_all();
    cluster.connected();
    let mut clients: Vec<Client> = (0..3).map(|_| cluster.client(1)).collect();
    for client in &mut clients {
        client.send(&"count\n".repeat(40));
    }
    let mut counts: Vec<u64> = clients
        .iter_mut()
        .flat_map(|client| (0..40).map(|_| client.line().parse().unwrap()).collect::<Vec<_>>())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=120).collect::<Vec<_>>());
    let mut refused = cluster.client(1);
    assert_eq!((refused.line(), refused.line()), ("full".to_owned(), String::new()));
    let metrics = eventually("the limit is counted", || {
        Some(cluster.get(1, "/metrics"))
            .filter(|text| text.contains("isochrone_limit_reached_total{limit=\"clients\"} 1"))
    });
    assert!(metrics.contains("isochrone_limit{limit=\"in_flight\"} 1"), "{metrics}");
}

/// A cluster in which node 0, which counts, is so far from node 1.
fn spread(one_way: Span) -> Cluster {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    for (from, to) in [(0, 1), (1, 0)] {
        cluster.emulation.change(NodeId(from), NodeId(to), |delay| delay.one_way = one_way);
    }
    cluster
}

#[test]
fn what_cannot_be_answered_soon_waits_in_the_sockets_of_clients() {
    let cluster = spread(Span::from_millis(500));
    // More than are let in where nothing is known of how soon they are answered.
    let (mut first, mut others) = (cluster.client(1), [(); 3].map(|()| cluster.client(1)));
    first.send(&"count\n".repeat(3_000));
    eventually("all are under way", || {
        cluster.get(1, "/metrics").contains("\nisochrone_requests_in_flight 3000\n").then_some(())
    });
    for other in &mut others {
        other.send("who\n");
    }
    assert_eq!(others[0].line(), "node-1");
    first.0.get_ref().set_nonblocking(true).unwrap();
    let answered = first.0.get_ref().peek(&mut [0]);
    assert!(answered.is_ok(), "who came later was heard before there was room: {answered:?}");
    first.0.get_ref().set_nonblocking(false).unwrap();
    let counts: Vec<u64> = (0..3_000).map(|_| first.line().parse().unwrap()).collect();
    assert_eq!(counts, (1..=3_000).collect::<Vec<_>>());
    assert_eq!([others[1].line(), others[2].line()], ["node-1", "node-1"]);
    let metrics = eventually("nothing is under way", || {
        Some(cluster.get(1, "/metrics")).filter(|text| text.contains("\nisochrone_requests_in_flight 0\n"))
    });
    assert!(metrics.contains("\nisochrone_requests_room 2048\n"), "{metrics}");
}

/// Whoever has left while it waited for room costs no more than what is read before that is found out; whoever has only said
/// that nothing more comes is served to the end.
#[test]
fn what_nobody_waits_for_is_left_in_the_socket() {
    let cluster = spread(Span::from_millis(300));
    let mut first = cluster.client(1);
    first.send(&"count\n".repeat(3_000));
    let under_way = |wanted: usize| {
        eventually("so many are under way", || {
            let line = format!("\nisochrone_requests_in_flight {wanted}\n");
            cluster.get(1, "/metrics").contains(&line).then_some(())
        });
    };
    under_way(3_000);
    let mut gone = cluster.client(1);
    gone.send(&"count\n".repeat(5_000));
    drop(gone);
    let mut last = cluster.client(1);
    last.send(&"count\n".repeat(300));
    last.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    for (client, answers) in [(&mut first, 3_000), (&mut last, 300)] {
        for _ in 0..answers {
            assert!(client.line().parse::<u64>().is_ok());
        }
    }
    under_way(0);
    let counted = cluster.client(1).count();
    assert!(counted > 3_301 && counted < 3_301 + 1_000, "{counted}");
}

#[test]
fn peers_are_found_by_name() {
    let mut cluster = Cluster::new("", None);
    let text = "cluster = \"test\"\n[[region]]\nname = \"here\"\n";
    let nodes = |ports: &[u16]| -> String {
        let node = |(at, port): (usize, &u16)| {
            format!("[[node]]\nname = \"node-{at}\"\nregion = \"here\"\nlisten = \"localhost:{port}\"\n")
        };
        ports.iter().enumerate().map(node).collect()
    };
    let sockets: Vec<TcpListener> = (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
    let text = format!(
        "{text}{}[[keyspace]]\nname = \"main\"\nprotocol = \"toy\"\nreplication = 3\n",
        nodes(&ports)
    );
    let known = Known::names(&["toy"]);
    cluster.deployment = Arc::new(Deployment::parse(&text, "named.toml", Path::new(""), &known).unwrap());
    for (node, socket) in (0..NODES).map(NodeId).zip(sockets) {
        cluster.start(node, socket);
    }
    cluster.connected();
    assert_eq!(cluster.client(2).count(), 1);
    let address = &cluster.nodes[&NodeId(0)].status().peers[0].address;
    assert_eq!(*address, format!("localhost:{}", ports[1]));
}

/// Sends bytes to a port and reads until the other end closes.
fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    // A reset instead of an end is an end as well: the other side had not read everything.
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Certificates for every node, made for `cluster_id`.
fn certificates(path: &Path, cluster_id: u64) {
    let ca = cert::authority("test", 30).unwrap();
    std::fs::write(path.join("ca.pem"), &ca.certificate).unwrap();
    for node in 0..NODES {
        let name = format!("node-{node}");
        let issued = cert::node(&ca, "test", cluster_id, NodeId(node), &name, 30).unwrap();
        std::fs::write(path.join(format!("{name}.pem")), issued.certificate).unwrap();
        std::fs::write(path.join(format!("{name}.key")), issued.key).unwrap();
    }
}

const PEER_TLS: &str =
    "[security]\npeer_ca = \"ca.pem\"\npeer_cert = \"{node}.pem\"\npeer_key = \"{node}.key\"\n";

#[test]
fn a_node_that_comes_back_without_its_data_is_told_so_and_ends() {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    let lost = NodeId(1);
    let (data, away) = (cluster.directory.path().join("data-1"), cluster.directory.path().join("away"));
    let stop = |cluster: &mut Cluster| {
        let ended = cluster.nodes.remove(&lost).unwrap().kill();
        let free = || TcpListener::bind(cluster.peers[&lost]).ok();
        (ended, eventually("the port is free", free))
    };
    let (ended, socket) = stop(&mut cluster);
    ended.unwrap();
    std::fs::rename(&data, &away).unwrap();
    cluster.start(lost, socket);
    eventually("it has ended", || (!cluster.nodes[&lost].running()).then_some(()));
    // The others dial it as long as it runs, and are as little taken in.
    for node in [0, 2] {
        let others = |status: &isochrone_node::reactor::Status| {
            status.peers.iter().filter(|peer| peer.connected).count()
        };
        eventually("only the other one", || {
            (others(&cluster.nodes[&NodeId(node)].status()) == 1).then_some(())
        });
    }
    let (ended, socket) = stop(&mut cluster);
    let why = ended.unwrap_err().to_string();
    assert!(why.contains("does not take this node in: it has another data directory"), "{why}");
    // With what it had it is welcome.
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&away, &data).unwrap();
    copy(&data, &away);
    cluster.start(lost, socket);
    cluster.connected();
    // A copy of before that start, which begins as often as the original, is known also by those that were restarted since.
    let (ended, socket) = stop(&mut cluster);
    ended.unwrap();
    cluster.kill_and_start(NodeId(0));
    cluster.kill_and_start(NodeId(2));
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&away, &data).unwrap();
    cluster.start(lost, socket);
    eventually("it has ended", || (!cluster.nodes[&lost].running()).then_some(()));
    let why = stop(&mut cluster).0.unwrap_err().to_string();
    assert!(
        why.contains("does not take this node in: its data directory is an old copy: it comes as start 2"),
        "{why}"
    );
}

#[test]
fn a_copy_that_is_started_beside_its_running_original_is_told_to_end_and_the_original_goes_on() {
    let mut cluster = Cluster::new("", None);
    cluster.start_all();
    cluster.connected();
    let node = NodeId(1);
    let at = |name: &str| cluster.directory.path().join(name);
    // While the node runs a file may go that was there a moment ago.
    let mut tries = (0..100).map(|count| at(&format!("copy-{count}")));
    let data =
        tries.find(|to| try_copy(&at("data-1"), to).is_ok()).expect("its directory is at rest by then");
    let twin = cluster.begin(node, data, TcpListener::bind("127.0.0.1:0").unwrap());
    eventually("it has ended", || (!twin.running()).then_some(()));
    let why = twin.kill().unwrap_err().to_string();
    let runs = format!(
        "another process of it runs, as start 1, at {}, and has answered since",
        cluster.peers[&node]
    );
    assert!(why.contains("does not take this node in: ") && why.contains(&runs), "{why}");
    assert!(cluster.nodes[&node].running());
    cluster.connected();
    assert!(cluster.client(1).count() > 0);
    // Nothing of the copy is remembered: the original is taken in again when it was killed.
    cluster.kill_and_start(node);
    cluster.connected();
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    try_copy(from, to).unwrap();
}

fn try_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            try_copy(&path, &to)?;
        } else {
            std::fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

#[test]
fn nodes_speak_mutual_tls() {
    let directory = tempfile::tempdir().unwrap();
    let cluster_id = Cluster::new("", None).deployment.cluster_id();
    certificates(directory.path(), cluster_id);
    let mut cluster = Cluster::new(PEER_TLS, Some(directory));
    cluster.start_all();
    cluster.connected();
    let mut client = cluster.client(1);
    assert_eq!((1..=20).map(|_| client.count()).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    // Plain text gets no further than the handshake of TLS.
    let mut bytes = Vec::new();
    let (from, to) = (NodeId(1), NodeId(0));
    let (magic, version, cluster_name, life) = (MAGIC, VERSION, "test".to_owned(), cluster.life(from));
    let keyspaces = Arc::default();
    let hello = Hello { magic, version, cluster_id, cluster: cluster_name, from, to, life, keyspaces };
    frame::hello(&mut bytes, &hello);
    let answer = say(cluster.peers[&NodeId(0)], &bytes);
    assert!(!matches!(frame::parse(&answer, 1 << 20), Ok(Some((Frame::Welcome { .. }, _)))), "{answer:?}");
}

#[test]
fn a_node_with_the_certificate_of_another_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cluster_id = Cluster::new("", None).deployment.cluster_id();
    certificates(directory.path(), cluster_id);
    let mut cluster = Cluster::new(PEER_TLS, Some(directory));
    cluster.start_all();
    cluster.connected();
    // Somebody with node 1's certificate says to node 0 that it is node 2.
    let at = |name: &str| cluster.directory.path().join(name);
    let (ca, own, key) = (at("ca.pem"), at("node-1.pem"), at("node-1.key"));
    let tls = security::peer_tls(&ca, &own, &key, &security::peer_name(NodeId(1), cluster_id)).unwrap();
    let expected = ServerName::try_from(security::peer_name(NodeId(0), cluster_id)).unwrap();
    let session = ClientConnection::new(tls.client, expected).unwrap();
    let mut stream = StreamOwned::new(session, TcpStream::connect(cluster.peers[&NodeId(0)]).unwrap());
    let (from, to) = (NodeId(2), NodeId(0));
    let (magic, version, cluster_name, life) = (MAGIC, VERSION, "test".to_owned(), cluster.life(from));
    let mut bytes = Vec::new();
    let keyspaces = Arc::default();
    frame::hello(
        &mut bytes,
        &Hello { magic, version, cluster_id, cluster: cluster_name, from, to, life, keyspaces },
    );
    stream.write_all(&bytes).unwrap();
    stream.sock.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    // The end may come without that of TLS.
    let _ = stream.read_to_end(&mut answer);
    let Ok(Some((Frame::Refuse(why), _))) = frame::parse(&answer, 1 << 20) else { panic!("{answer:?}") };
    assert!(why.contains("its certificate is not made for n2."), "{why}");
    // Where node 0 looks for node 2, node 1 answers.
    let elsewhere = cluster.peers[&NodeId(1)];
    let there = cluster.peers.insert(NodeId(2), elsewhere).unwrap();
    cluster.kill_and_start(NodeId(0));
    cluster.peers.insert(NodeId(2), there);
    eventually("refused by the dialler", || {
        let status = cluster.nodes[&NodeId(0)].status();
        status.peers.get(1).map(|peer| peer.trouble.clone()).filter(|text| text.contains("certificate"))
    });
}

#[test]
fn a_node_does_not_start_with_a_certificate_that_its_peers_would_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let cluster_id = Cluster::new("", None).deployment.cluster_id();
    certificates(directory.path(), cluster_id);
    for end in ["pem", "key"] {
        let [from, to] = [1, 2].map(|node| directory.path().join(format!("node-{node}.{end}")));
        std::fs::copy(from, to).unwrap();
    }
    let cluster = Cluster::new(PEER_TLS, Some(directory));
    let refused = |error: StartError| error.to_string();
    let node = |node| credentials(&cluster.deployment, NodeId(node)).map(drop).map_err(refused);
    assert_eq!([node(0), node(1)], [Ok(()), Ok(())]);
    let config = NodeConfig {
        deployment: Arc::clone(&cluster.deployment),
        node: NodeId(2),
        data: cluster.directory.path().join("data-2"),
        expect: Expect::Anything,
        sockets: Sockets::default(),
        peers: BTreeMap::new(),
        emulation: None,
        admin_token: None,
        network: None,
        snapshot_bytes: DEFAULT_SNAPSHOT_BYTES,
    };
    let started = Node::start(config, &cluster.protocols, (cluster.gateway)()).map(drop).map_err(refused);
    assert_eq!(started, node(2));
    let why = started.unwrap_err();
    assert!(
        why.contains("node-2.pem: it is not made for n2.") && why.contains("so peers refuse it"),
        "{why}"
    );
}
