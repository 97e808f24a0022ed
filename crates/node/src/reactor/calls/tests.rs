//! Calls at a loop that has no process, no socket and no disk.

use super::*;
use crate::births::Births;
use crate::clock::Clock;
use crate::gateway::{Durability, NodeView};
use crate::io::Ledger;
use crate::journal::{JournalError, StreamId};
use crate::limits::Limits;
use crate::metrics::KeyspaceMetrics;
use crate::poller::Poller;
use crate::protocols::Protocols;
use crate::reactor::ClientListener;
use crate::reactor::{Board, Clients, Control, Origins, Peers, Reporter, Responder, Served, Verifier};
use crate::redis::RedisGateway;
use crate::redis::acl::Users;
use crate::shard::Shard;
use crate::transport::frame::{Hello, MAGIC, VERSION};
use crate::transport::stream::Acceptor;
use isochrone_core::{ClientId, Guarantee, KeyspaceId, NodeId, Random, Stamp};
use mio::net::TcpListener;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{channel, sync_channel};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const LIFE: u64 = 7;
const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// A journal that nothing is written to.
struct Nowhere;

impl Ledger for Nowhere {
    fn record(&mut self, _: StreamId, _: &mut dyn FnMut(&mut Vec<u8>)) -> u64 {
        0
    }

    fn truncate(&mut self, _: StreamId, _: u64) {}

    fn submit(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn better_here(&self) -> bool {
        false
    }

    fn write_here(&mut self) -> Result<bool, JournalError> {
        Ok(true)
    }

    fn durable(&mut self) -> Result<u64, JournalError> {
        Ok(0)
    }

    fn backlog(&self) -> usize {
        0
    }

    fn close(self: Box<Self>) -> Result<(), JournalError> {
        Ok(())
    }
}

fn process() -> ProcessId {
    ProcessId { keyspace: KEYSPACE, ..ProcessId::from_u64(0) }
}

fn view() -> KeyspaceView {
    KeyspaceView {
        id: KEYSPACE,
        name: "main".to_owned(),
        index: 0,
        protocol: "some",
        transactional: true,
        guarantee: Guarantee::Linearizable,
        replicas: 1,
        durability: Durability::Most,
        copies: 0,
        keys: None,
        expired: 0,
        leader: None,
        leaders: Vec::new(),
        leads: false,
    }
}

fn peers(listener: Option<TcpListener>, limits: Limits) -> Peers {
    let data = tempfile::tempdir().unwrap();
    let births = Births::open(data.path(), NodeId(0), 1, &mut Random::seeded(1)).unwrap();
    let (magic, version, life) = (MAGIC, VERSION, births.own().clone());
    let (from, to) = (NodeId(0), NodeId(1));
    let hello = Hello { magic, version, cluster_id: 1, cluster: "tests".to_owned(), from, to, life };
    Peers::new(hello, listener, Acceptor::Plain, None, Arc::default(), limits, births)
}

/// A node with one keyspace, where anybody may do anything, and eve what is here; and what is counted of the keyspace.
fn reactor(limits: Limits) -> (Reactor, Arc<KeyspaceMetrics>) {
    reactor_of(Vec::new(), limits)
}

/// The same, with these listeners for clients.
fn reactor_of(listeners: Vec<ClientListener>, limits: Limits) -> (Reactor, Arc<KeyspaceMetrics>) {
    let data = tempfile::tempdir().unwrap();
    let rules = "user default on nopass ~* &* +@all\nuser eve on >right ~mine* +@all -del\n";
    let file = data.path().join("users.acl");
    std::fs::write(&file, rules).unwrap();
    let users = Users::of([], Some(file)).unwrap();
    let peers = peers(None, limits.clone());
    let poller = Poller::new(Span::ZERO).unwrap();
    let verifier = Verifier::start(Vec::new(), limits.login_checks, poller.waker()).unwrap();
    let clients = Clients::new(
        listeners,
        Box::new(RedisGateway),
        limits,
        vec![view()],
        vec![Some(process())],
        NodeView::default(),
        verifier,
        users,
        Random::seeded(2),
    );
    let metrics = Arc::new(KeyspaceMetrics::default());
    let served = Served {
        id: KEYSPACE,
        protocol: "some",
        metrics: Arc::clone(&metrics),
        nodes: vec![NodeId(0)],
        spares: Vec::new(),
        partitions: 1,
        servers: Vec::new(),
        masterless: None,
    };
    let clock = Clock::start();
    let board = Arc::new(Board::new(Arc::default()));
    let names = vec![("n".to_owned(), "R".to_owned())];
    let reporter = Reporter::new(board, clock, NodeId(0), 1, Arc::default(), names, vec![served]);
    let (_, queue) = Line::new(poller.waker());
    let (_, control) = sync_channel(1);
    let reactor = Reactor {
        clock,
        poller,
        shard: Shard::new(NodeId(0), Box::new(Nowhere), 0),
        peers,
        clients,
        reporter,
        protocols: Protocols::default(),
        control,
        calls: Calls::new(queue, LIFE, vec![Span::from_secs(30)], vec!["some"]),
        grpc_tls: None,
        killed: Arc::new(AtomicBool::new(false)),
        snapshots: None,
        certificates: None,
        origins: Origins::default(),
        scratch: Reactor::scratch(),
        next_tick: Instant::ZERO,
        stopping: None,
        gives_way: None,
    };
    (reactor, metrics)
}

fn send(reactor: &mut Reactor, ask: Ask) -> oneshot::Receiver<Answer> {
    let (answer, answered) = oneshot::channel();
    reactor.take_call(ask, answer, Instant::ZERO);
    answered
}

/// Asks for what is refused at once.
#[track_caller]
fn refused(reactor: &mut Reactor, ask: Ask) -> Refusal {
    send(reactor, ask).try_recv().expect("an answer at once").expect_err("a refusal")
}

fn login(user: &str, password: &str) -> Ask {
    let named = Some((user.to_owned(), Secret::new(password.as_bytes().to_vec())));
    Ask::Login { named, from: FROM }
}

/// An open transaction of eve's.
fn open() -> Open {
    let client = ClientId { process: process(), incarnation: 1 };
    let (txn, on) = (CommandId { client, sequence: 1 }, Connection::default());
    Open { txn, of: process(), keyspace: 0, user: "eve".into(), on, since: Instant::ZERO }
}

/// Whether ACL LOG has this, noted once, of such a client.
fn is_noted(reactor: &Reactor, reason: Reason, object: &str, user: &str, client: &str) -> bool {
    let entry = Entry::new(reason, Within::Nothing, object.as_bytes(), user);
    let (entry, client) = (format!("{entry:?}, count: 1,"), format!("client: {client:?}"));
    let users = format!("{:?}", reactor.clients.hub.users);
    users.split("Noted").any(|noted| noted.contains(&entry) && noted.contains(&client))
}

#[test]
fn what_is_denied_to_a_call_is_in_acl_log() {
    let (mut reactor, _) = reactor(Limits::default());
    let begin = |reads: &[&str], writes: &[&str]| {
        let blobs = |keys: &[&str]| -> Vec<Blob> { keys.iter().map(|key| Blob::from(*key)).collect() };
        let (reads, writes) = (blobs(reads), blobs(writes));
        let (user, on) = ("eve".into(), Connection::default());
        Ask::Begin { user, on, keyspace: "main".to_owned(), reads, writes }
    };
    let execute = |words: &[&'static str]| Ask::Execute {
        user: "eve".into(),
        keyspace: "main".to_owned(),
        words: words.iter().map(|word| Bytes::from(*word)).collect(),
    };
    for (ask, reason, object) in [
        (begin(&["mine", "his"], &[]), Reason::Key, "his"),
        (begin(&[], &["hers"]), Reason::Key, "hers"),
        (execute(&["GET", "theirs"]), Reason::Key, "theirs"),
        (execute(&["DEL", "mine"]), Reason::Command, "del"),
    ] {
        assert_eq!(refused(&mut reactor, ask).why, Why::Denied, "{object}");
        assert!(is_noted(&reactor, reason, object, "eve", "cmd=grpc"), "{object}");
    }
}

#[test]
fn a_commit_sets_and_deletes_only_what_its_user_may_by_now() {
    let (mut reactor, _) = reactor(Limits::default());
    reactor.calls.open.insert(1, open());
    let commit = |key: &str, value: Option<&str>| Ask::Commit {
        user: "eve".into(),
        txn: Token { life: LIFE, number: 1 },
        updates: vec![(key.into(), value.map(Blob::from))],
    };
    for (key, value, text) in [
        ("his", Some("1"), "user eve may not SET key \"his\""),
        ("mine", None, "user eve may not DEL key \"mine\""),
    ] {
        let refusal = refused(&mut reactor, commit(key, value));
        assert_eq!((refusal.why, refusal.text.as_str()), (Why::Denied, text));
        assert_eq!(reactor.calls.open(), 1, "it is open still");
    }
    // What it may goes to the process, of which there is none here.
    let refusal = refused(&mut reactor, commit("mine", Some("1")));
    assert_eq!(refusal.why, Why::Precondition, "{}", refusal.text);
}

#[test]
fn a_login_that_is_refused_is_counted_and_in_acl_log() {
    let (mut reactor, _) = reactor(Limits::default());
    let client = format!("addr={FROM} cmd=grpc");
    assert_eq!(refused(&mut reactor, login("nobody", "right")).why, Why::Stranger);
    assert_eq!(reactor.clients.counters.login_failures, 1);
    assert!(is_noted(&reactor, Reason::Auth, "AUTH", "nobody", &client));
    // This one is checked first.
    let mut waits = send(&mut reactor, login("eve", "wrong"));
    assert!(waits.try_recv().is_err());
    let party = *reactor.calls.logins.keys().next().expect("it waits");
    reactor.logged_in(party, false);
    let told = waits.try_recv().expect("an answer").map_err(|refusal| refusal.why);
    assert_eq!(told, Err(Why::Stranger));
    assert!(is_noted(&reactor, Reason::Auth, "AUTH", "eve", &client));
}

#[test]
fn no_more_calls_wait_for_one_password_than_may_be_under_way() {
    let (mut reactor, _) = reactor(Limits { requests: 2, ..Limits::default() });
    let mut waits: Vec<_> = (0..2).map(|_| send(&mut reactor, login("eve", "wrong"))).collect();
    let refusal = refused(&mut reactor, login("eve", "wrong"));
    assert_eq!(refusal.why, Why::Limit, "{}", refusal.text);
    assert_eq!(reactor.clients.counters.limited.get("login_checks"), Some(&1));
    assert!(waits.iter_mut().all(|wait| wait.try_recv().is_err()));
}

#[test]
fn what_is_not_answered_in_time_is_counted_once_by_whether_it_may_have_had_an_effect() {
    let (mut reactor, metrics) = reactor(Limits::default());
    let after = |reactor: &mut Reactor| {
        let words = [&b"GET"[..], b"a"];
        reactor.clients.understand(words, KEYSPACE, DEFAULT, Stamp::ZERO).expect("a command").after
    };
    let (one, other) = (after(&mut reactor), after(&mut reactor));
    let stages = [
        (Stage::Begins(DEFAULT.into(), Connection::default()), false),
        (Stage::Executes(one), true),
        (Stage::Aborts, false),
        (Stage::Executes(other), false),
        (Stage::Commits(1, open()), false),
    ];
    for (stage, reads) in stages {
        let (answer, _) = oneshot::channel();
        let answer = Some(answer);
        let pending = Pending { answer, stage, keyspace: 0, asked: Instant::ZERO, of: process(), reads };
        let ticket = reactor.origins.ticket();
        reactor.origins.waiting.insert(ticket, Origin::Call(Box::new(pending)));
    }
    let patience = Span::from_secs(15);
    for now in [14, 16, 18] {
        let times = (Instant::ZERO + Span::from_secs(now), patience);
        reactor.origins.give_up(&mut reactor.shard, &mut reactor.clients, &mut reactor.reporter, times);
        let counted = (metrics.refused.load(Relaxed), metrics.unknown.load(Relaxed));
        assert_eq!(counted, if now < 15 { (0, 0) } else { (3, 2) });
    }
    assert_eq!(reactor.origins.len(), 1, "what begins late has to be ended");
}

#[test]
fn an_order_is_given_up_once_nobody_waits_for_it_or_its_process_is_stopped() {
    let (mut reactor, _) = reactor(Limits::default());
    let other = ProcessId { keyspace: KeyspaceId(2), ..process() };
    let [stopped, late] = [process(), other].map(|of| {
        let (told, heard) = channel();
        let responder: Responder = Box::new(move |outcome| drop(told.send(outcome)));
        let ticket = reactor.origins.ticket();
        let order =
            Origin::Order { of, protocol: "some", responder, asked: Instant::ZERO, steps_down: false };
        reactor.origins.waiting.insert(ticket, order);
        heard
    });
    reactor.obey(Control::StopProcess(process(), Box::new(|_| {})), Instant::ZERO);
    assert!(stopped.try_recv().expect("an answer").is_err());
    for (now, waiting) in [(599, 1), (601, 0)] {
        assert!(late.try_recv().is_err());
        let times = (Instant::ZERO + Span::from_secs(now), Span::from_secs(15));
        reactor.origins.give_up(&mut reactor.shard, &mut reactor.clients, &mut reactor.reporter, times);
        assert_eq!(reactor.origins.len(), waiting);
    }
    assert!(late.try_recv().expect("an answer").is_err());
}

/// A lease that is granted, or read under, by an older time would be over already.
#[test]
fn what_is_read_is_handled_at_a_time_behind_that_at_which_it_was_sent() {
    let bound = || {
        let socket = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    };
    let ((for_peers, peer_port), (socket, client_port)) = (bound(), bound());
    let listener = ClientListener { socket, address: client_port, acceptor: Acceptor::Plain, index: 0 };
    let (mut reactor, _) = reactor_of(vec![listener], Limits::default());
    reactor.peers = peers(Some(for_peers), Limits::default());
    let ready = crate::poller::Ready { token: mio::Token(0), readable: true, closed: false, writable: false };
    let mut peer = std::net::TcpStream::connect(peer_port).unwrap();
    let mut client = std::net::TcpStream::connect(client_port).unwrap();
    let Reactor { clock, poller, peers, clients, shard, origins, scratch, .. } = &mut reactor;
    let mut handled = |what: &str, wake: &mut dyn FnMut(&mut Shard, &mut Origins, &mut [u8])| {
        let (sent, start) = (clock.now(), std::time::Instant::now());
        while shard.io().now < sent {
            wake(shard, origins, scratch);
            assert!(
                start.elapsed().as_secs() < 10,
                "{what} was handled as if it had come before it was sent"
            );
        }
    };
    // A part of a greeting: what matters is when the loop takes it to have come.
    peer.write_all(&[0; 2]).unwrap();
    handled("what a peer said", &mut |shard, _, scratch| {
        peers.accept(Instant::ZERO, poller.registry());
        peers.wake(0, ready, shard, *clock, poller.registry(), scratch);
    });
    client.write_all(b"PING\r\n").unwrap();
    handled("what a client asked", &mut |shard, origins, scratch| {
        clients.accept(0, Instant::ZERO, Stamp::ZERO, poller.registry());
        clients.wake(0, ready);
        clients.serve(shard, origins, *clock, scratch);
    });
    // The same of calls, which come from another thread.
    let (line, queue) = Line::new(reactor.poller.waker());
    reactor.calls.queue = queue;
    let txn = Token { life: LIFE, number: 1 };
    let _answered = line.send(Ask::Abort { user: "eve".into(), txn }).unwrap();
    let sent = reactor.clock.now();
    reactor.take_calls(Instant::ZERO);
    assert!(reactor.shard.io().now >= sent);
}
