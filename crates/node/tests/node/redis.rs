//! Multi-Paxos, the store and the Redis gateway, put together on three nodes.

use crate::live::{Cluster, eventually};
use isochrone_core::{KeyspaceId, NodeId};
use isochrone_node::cert;
use isochrone_node::gateway::{Outcome, Secret};
use isochrone_node::protocols::{Administration, Protocols, Registration};
use isochrone_node::redis::RedisGateway;
use isochrone_node::security::hash_password;
use isochrone_replication::multipaxos::{MultiPaxos, Placement};
use isochrone_replication::{Change, Outcome as Ended, Refusal, Request};
use isochrone_store::Store;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::any::Any;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

fn protocols() -> Protocols {
    let mut protocols = Protocols::default();
    protocols.register::<MultiPaxos<Store>>(Registration {
        transaction: None,
        durability: isochrone_node::gateway::Durability::Most,
        led: true,
        placement: Placement::of,
        request: Request::Command,
        outcome: |outcome| match outcome {
            Ended::Replied(response) => Outcome::Done(response),
            Ended::Changed | Ended::Moved { .. } | Ended::Served(_) => {
                Outcome::Refused("a command was taken for a change".to_owned())
            }
            Ended::Refused(why) => Outcome::Refused(why.to_string()),
            Ended::Unknown => Outcome::Unknown("no answer in time".to_owned()),
        },
        administer: |what| {
            Some(Box::new(match what {
                Administration::MoveLeader(node) => Change::Lead(*node),
                Administration::StepDown => Change::Resign,
                Administration::AddReplica(node) => Change::Add(*node),
                Administration::RemoveReplica(node) => Change::Remove(*node),
                Administration::MoveRange { .. } | Administration::Ranges | Administration::Retire => {
                    return None;
                }
            }))
        },
        administered: |outcome: Box<dyn Any + Send>| match outcome.downcast::<Result<(), Refusal>>() {
            Ok(result) => result.map(|()| "done".to_owned()).map_err(|why| why.to_string()),
            Err(_) => Err("an answer of another protocol".to_owned()),
        },
    });
    protocols
}

fn cluster(extra: &str, base: Option<tempfile::TempDir>) -> Cluster {
    let mut cluster = Cluster::of("multipaxos", protocols(), || Box::new(RedisGateway), extra, base);
    cluster.start_all();
    cluster.connected();
    cluster
}

/// Speaks inline commands and reads one-line replies, which is all these tests need.
struct Client<S>(BufReader<S>);

impl<S: Read + Write> Client<S> {
    fn call(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        match line.strip_prefix('$') {
            Some(length) if !length.starts_with('-') => {
                let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
            }
            _ => line,
        }
    }
}

fn dial(cluster: &Cluster, node: u16) -> TcpStream {
    let address: SocketAddr = cluster.nodes[&NodeId(node)].redis_addresses()[0];
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn client(cluster: &Cluster, node: u16) -> Client<TcpStream> {
    Client(BufReader::new(dial(cluster, node)))
}

#[test]
fn redis_commands_survive_kills_and_a_moved_leader() {
    let mut cluster = cluster("", None);
    let mut one = client(&cluster, 0);
    assert_eq!(one.call("SET greeting hello"), "+OK");
    assert_eq!(client(&cluster, 2).call("GET greeting"), "hello");
    for count in 1..=200 {
        assert_eq!(one.call("INCR count"), format!(":{count}"));
    }
    let leader = |cluster: &Cluster| {
        eventually("a leader", || {
            let led = |node: &NodeId| {
                cluster.nodes[node].board().metrics.keyspaces[0]
                    .leads
                    .load(std::sync::atomic::Ordering::Relaxed)
            };
            cluster.nodes.keys().copied().find(led)
        })
    };
    // On a slow machine another may lead by the time it is asked.
    let (old, other) = eventually("a leader that hands over", || {
        let old = leader(&cluster);
        let other = NodeId((old.0 + 1) % 3);
        let answer = cluster.nodes[&old].administer(KeyspaceId(1), Administration::MoveLeader(other));
        (answer.as_deref() == Ok("done")).then_some((old, other))
    });
    eventually("moved", || (leader(&cluster) == other).then_some(()));
    assert_eq!(client(&cluster, old.0).call("INCR count"), ":201");
    for round in 0..3 {
        let victim = leader(&cluster);
        let survivor = NodeId((victim.0 + 1) % 3);
        let mut client = client(&cluster, survivor.0);
        cluster.kill_and_start(victim);
        assert_eq!(client.call("INCR count"), format!(":{}", 202 + round));
    }
    let info = {
        let mut stream = dial(&cluster, 0);
        stream.write_all(b"INFO\r\n").unwrap();
        let mut client = Client(BufReader::new(stream));
        client.line()
    };
    assert!(info.contains("redis_version") && info.contains("multipaxos"), "{info}");
    for (_, node) in std::mem::take(&mut cluster.nodes) {
        node.stop().unwrap();
    }
}

#[test]
fn a_keyspace_in_partitions_serves_what_lies_together() {
    let cluster = cluster("partitions = 3\n", None);
    let mut client = client(&cluster, 1);
    for number in 0..60 {
        assert_eq!(client.call(&format!("SET key:{number} {number}")), "+OK");
    }
    for number in 0..60 {
        assert_eq!(client.call(&format!("GET key:{number}")), number.to_string());
    }
    let apart = client.call("MSET key:0 a key:1 b key:2 c key:3 d key:4 e key:5 f");
    assert_eq!(apart, "-CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(client.call("GET key:0"), "0", "nothing of it was done");
    assert_eq!(client.call("MSET {u}:1 a {u}:2 b"), "+OK");
    assert_eq!(client.call("GET {u}:2"), "b");
    assert_eq!(client.call("DBSIZE"), ":62", "asked of each");
    assert_eq!([client.call("MULTI"), client.call("DBSIZE")], ["+OK", "+QUEUED"]);
    let whole = client.call("EXEC");
    assert_eq!(whole, "-ERR this command touches the whole keyspace, which is divided into partitions");
    assert_eq!(client.call("FLUSHALL"), "+OK");
    assert_eq!(client.call("DBSIZE"), ":0");
    let leads = |node: &isochrone_node::node::NodeHandle| {
        node.status().processes.iter().filter(|process| process.leads.is_some()).count()
    };
    eventually("each node leads one partition", || {
        cluster.nodes.values().all(|node| leads(node) == 1).then_some(())
    });
}

/// A client that trusts one authority.
fn secure(
    cluster: &Cluster,
    node: u16,
    authority: &cert::Issued,
) -> Client<rustls::StreamOwned<rustls::ClientConnection, TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection =
        rustls::ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    Client(BufReader::new(rustls::StreamOwned::new(connection, dial(cluster, node))))
}

#[test]
fn renewed_certificates_are_taken_up_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (pem, key) = (directory.path().join("server.pem"), directory.path().join("server.key"));
    let [old, new] = [30, 60].map(|days| cert::authority("test", days).unwrap());
    let issue = |authority: &cert::Issued| {
        cert::server(authority, "test", "server", vec!["localhost".to_owned()], 60).unwrap()
    };
    let (first, second) = (issue(&old), issue(&new));
    std::fs::write(&pem, &first.certificate).unwrap();
    std::fs::write(&key, &first.key).unwrap();
    let security = "[security]\nclient_cert = \"server.pem\"\nclient_key = \"server.key\"\n";
    let cluster = cluster(security, Some(directory));
    let mut before = secure(&cluster, 0, &old);
    assert_eq!(before.call("SET a 1"), "+OK");
    // In the middle of being replaced the two do not fit together, and nothing changes.
    std::fs::write(&pem, &second.certificate).unwrap();
    std::fs::write(&key, &second.key).unwrap();
    let trusts = |authority: &cert::Issued| {
        let mut client = secure(&cluster, 0, authority);
        let mut line = String::new();
        let asked = client.0.get_mut().write_all(b"PING\r\n").is_ok();
        asked && client.0.read_line(&mut line).is_ok() && line == "+PONG\r\n"
    };
    eventually("new connections are shown the new certificate", || trusts(&new).then_some(()));
    assert!(!trusts(&old), "the old one is shown to nobody");
    assert_eq!(before.call("GET a"), "1", "a connection that stands goes on");
}

#[test]
fn clients_log_in_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let ca = cert::authority("test", 30).unwrap();
    let issued = cert::server(&ca, "test", "server", vec!["localhost".to_owned()], 30).unwrap();
    std::fs::write(directory.path().join("server.pem"), &issued.certificate).unwrap();
    std::fs::write(directory.path().join("server.key"), &issued.key).unwrap();
    let hash = hash_password(&Secret::new(b"s3same".to_vec())).unwrap();
    let security = format!(
        "[limits]\nlogin_time = \"5s\"\n[security]\nclient_cert = \"server.pem\"\nclient_key = \"server.key\"\n[[security.user]]\nname = \"app\"\npassword = \"{hash}\"\n"
    );
    let cluster = cluster(&security, Some(directory));

    let mut silent = dial(&cluster, 1);
    let mut client = secure(&cluster, 1, &ca);
    assert!(client.call("GET a").starts_with("-NOAUTH"));
    assert!(client.call("AUTH app wrong").starts_with("-WRONGPASS"));
    assert_eq!(client.call("AUTH app s3same"), "+OK");
    assert_eq!(client.call("SET a 1"), "+OK");
    assert_eq!(client.call(&format!("SET long {}", "x".repeat(60_000))), "+OK");
    assert_eq!(client.call("GET long").len(), 60_000, "several records of TLS");

    // A client that does not speak TLS is cut off.
    let mut plain = dial(&cluster, 1);
    plain.write_all(b"GET a\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"-") && !answer.starts_with(b"$"), "{answer:?}");

    // So is one that does not say anything, whom nothing can be told.
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).expect("it is ended within its time");
    assert!(!heard.starts_with(b"-"), "{heard:?}");
}

#[test]
fn a_handshake_that_comes_to_no_end_is_ended_also_where_nobody_logs_in() {
    let directory = tempfile::tempdir().unwrap();
    let ca = cert::authority("test", 30).unwrap();
    let issued = cert::server(&ca, "test", "server", vec!["localhost".to_owned()], 30).unwrap();
    std::fs::write(directory.path().join("server.pem"), &issued.certificate).unwrap();
    std::fs::write(directory.path().join("server.key"), &issued.key).unwrap();
    let security = "[limits]\nlogin_time = \"1s\"\n[security]\nclient_cert = \"server.pem\"\nclient_key = \"server.key\"\n";
    let cluster = cluster(security, Some(directory));
    let mut client = secure(&cluster, 1, &ca);
    assert_eq!(client.call("SET a 1"), "+OK");
    let mut silent = dial(&cluster, 1);
    silent.read_to_end(&mut Vec::new()).expect("it is ended within its time");
    assert_eq!(client.call("GET a"), "1", "and one that is through is not");
}

/// One command that may wait long, on a thread of its own; its reply's lines, flat.
fn wait_for(
    cluster: &Cluster,
    node: u16,
    command: &str,
    lines: usize,
) -> std::thread::JoinHandle<Vec<String>> {
    let mut client = client(cluster, node);
    let command = command.to_owned();
    std::thread::spawn(move || {
        let first = client.call(&command);
        std::iter::once(first).chain((1..lines).map(|_| client.line())).collect()
    })
}

#[test]
fn pops_wait_at_every_node_and_messages_reach_every_node() {
    const EACH: usize = 40;
    let cluster = cluster("", None);
    let mut producer = client(&cluster, 0);
    assert_eq!(producer.call("SET warm up"), "+OK");
    let workers: Vec<_> = (0..3)
        .map(|node| {
            let mut client = client(&cluster, node);
            std::thread::spawn(move || {
                let mut popped = Vec::new();
                for _ in 0..EACH {
                    assert_eq!(client.call("BLPOP none queue 20"), "*2");
                    assert_eq!(client.line(), "queue");
                    popped.push(client.line());
                }
                popped
            })
        })
        .collect();
    for number in 0..3 * EACH {
        producer.call(&format!("RPUSH queue {number}"));
    }
    let mut popped: Vec<usize> =
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).map(|n| n.parse().unwrap()).collect();
    popped.sort_unstable();
    assert_eq!(popped, (0..3 * EACH).collect::<Vec<_>>(), "each element is popped once");

    let waits = wait_for(&cluster, 2, "BZPOPMIN scores 20", 4);
    client(&cluster, 1).call("ZADD scores 1.5 a");
    assert_eq!(waits.join().unwrap(), ["*3", "scores", "a", "1.5"]);

    let mut listener = client(&cluster, 1);
    assert_eq!(listener.call("SUBSCRIBE news"), "*3");
    assert_eq!([listener.line(), listener.line(), listener.line()], ["subscribe", "news", ":1"]);
    assert_eq!(client(&cluster, 2).call("PUBLISH news hello"), ":0", "nobody at that node");
    let heard: Vec<String> = (0..4).map(|_| listener.line()).collect();
    assert_eq!(heard, ["*3", "message", "news", "hello"]);
    let mut here = client(&cluster, 1);
    assert_eq!(here.call("PUBLISH news again"), ":1");
    let mut of_shard = client(&cluster, 1);
    assert_eq!(of_shard.call("SSUBSCRIBE news"), "*3");
    assert_eq!([of_shard.line(), of_shard.line(), of_shard.line()], ["ssubscribe", "news", ":1"]);

    // Who has subscribed counts at every node, for as long as it is there.
    let mut elsewhere = client(&cluster, 2);
    let mut counts = |command: &str, count: &str| {
        eventually(command, || {
            assert_eq!([elsewhere.call(command), elsewhere.line()], ["*2", "news"]);
            (elsewhere.line() == count).then_some(())
        });
    };
    counts("PUBSUB NUMSUB news", ":1");
    counts("PUBSUB SHARDNUMSUB news", ":1");
    drop(listener);
    counts("PUBSUB NUMSUB news", ":0");
    assert_eq!(elsewhere.call("SPUBLISH news hello"), ":0", "nobody at that node");
    let heard: Vec<String> = (0..4).map(|_| of_shard.line()).collect();
    assert_eq!(heard, ["*3", "smessage", "news", "hello"]);
}

#[test]
fn events_of_keys_reach_who_wants_them_at_another_node() {
    let cluster = cluster("", None);
    let mut listener = client(&cluster, 1);
    assert_eq!(listener.call("CONFIG SET notify-keyspace-events Exg"), "+OK");
    assert_eq!(listener.call("PSUBSCRIBE __keyevent@0__:*"), "*3");
    let confirmed = [listener.line(), listener.line(), listener.line()];
    assert_eq!(confirmed, ["psubscribe", "__keyevent@0__:*", ":1"]);
    let (mut writer, mut sweeper) = (client(&cluster, 2), client(&cluster, 0));
    for other in [&mut writer, &mut sweeper] {
        eventually("both others know", || (other.call("PUBSUB NUMPAT") == ":1").then_some(()));
    }
    assert_eq!(writer.call("MSET kept 1 other 2"), "+OK");
    assert_eq!(writer.call("SET gone 1 PX 1"), "+OK");
    assert_eq!(writer.call("DEL kept nosuch"), ":1");
    let mut heard: Vec<String> = (0..3)
        .map(|_| {
            let lines: Vec<String> = (0..5).map(|_| listener.line()).collect();
            assert_eq!(lines[..3], ["*4", "pmessage", "__keyevent@0__:*"]);
            lines[3..].join(" ")
        })
        .collect();
    // That its time is over may be found at any time from then on.
    heard.sort();
    assert_eq!(
        heard,
        ["__keyevent@0__:del kept", "__keyevent@0__:expire gone", "__keyevent@0__:expired gone"]
    );
}

#[test]
fn a_killed_connection_asks_nothing_more() {
    let cluster = cluster("", None);
    let mut killer = client(&cluster, 0);
    assert_eq!(killer.call("SET executed 0"), "+OK");
    // What is sent now is sent after the kill was answered; the socket may be closed by then.
    let silent = |victim: &mut Client<TcpStream>| {
        let _ = victim.0.get_mut().write_all(b"INCR executed\r\n");
        let mut answer = Vec::new();
        let _ = victim.0.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    };
    for _ in 0..20 {
        let mut victim = client(&cluster, 0);
        let id = victim.call("CLIENT ID").split_off(1);
        assert_eq!(killer.call(&format!("CLIENT KILL ID {id}")), ":1");
        silent(&mut victim);
    }
    let mut victims: Vec<_> = (0..20).map(|_| client(&cluster, 0)).collect();
    victims.iter_mut().for_each(|victim| assert_eq!(victim.call("PING"), "+PONG"));
    assert_eq!(killer.call("CLIENT KILL TYPE normal"), ":20");
    victims.iter_mut().for_each(silent);

    assert_eq!(killer.call("ACL SETUSER bob on nopass allkeys +@all"), "+OK");
    let mut bob = client(&cluster, 0);
    assert_eq!(bob.call("AUTH bob x"), "+OK");
    assert_eq!(killer.call("ACL DELUSER bob"), ":1");
    assert_eq!(bob.0.read_to_end(&mut Vec::new()).unwrap(), 0, "closed without having asked anything");

    // Whoever does not read its replies is closed as well.
    let mut deaf = client(&cluster, 0);
    let id = deaf.call("CLIENT ID").split_off(1);
    assert_eq!(killer.call("SETRANGE large 4000000 x"), ":4000001");
    deaf.0.get_mut().write_all(&b"GET large\r\n".repeat(10)).unwrap();
    eventually("a large reply", || {
        let line = killer.call(&format!("CLIENT LIST ID {id}"));
        let sent: u64 = line.rsplit_once('=').unwrap().1.trim().parse().unwrap();
        (sent > 1_000_000).then_some(())
    });
    assert_eq!(killer.call(&format!("CLIENT KILL ID {id}")), ":1");
    assert_eq!(killer.call(&format!("CLIENT LIST ID {id}")), "");
    assert_eq!(killer.call("GET executed"), "0");
}
