//! Calls at a loop that has no process, no socket and no disk.

use super::*;
use crate::audit;
use crate::books::Books;
use crate::clock::Clock;
use crate::gateway::{Full, NodeView};
use crate::hosted::{Foreign, Hosted};
use crate::io::{Io, Ledger, Reply};
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
use crate::transport::stream::Acceptor;
use isochrone_core::wire::DecodeError;
use isochrone_core::{ClientId, Identity, KeyspaceId, Malformed, NodeId, Random, Snapshot, Stamp, Ticket};
use mio::net::TcpListener;
use std::any::Any;
use std::io::Write;
use std::sync::Mutex;
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
    KeyspaceView { transactional: true, ..KeyspaceView::new(KEYSPACE, "main", 0, "some", 1) }
}

fn peers(listener: Option<TcpListener>, limits: Limits) -> Peers {
    let data = tempfile::tempdir().unwrap();
    crate::reactor::peers::tests::peers(data.path(), listener, limits)
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
        led: true,
        metrics: Arc::clone(&metrics),
        nodes: vec![NodeId(0)],
        placement: Vec::new(),
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

const BY: By = By { method: "Some", address: Some(FROM) };

fn send(reactor: &mut Reactor, ask: Ask) -> oneshot::Receiver<Answer> {
    let (answer, answered) = oneshot::channel();
    reactor.take_call(Call { ask, by: BY, answer }, Instant::ZERO);
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

/// What its process calls a transaction.
fn txn(sequence: u64) -> CommandId {
    CommandId { client: ClientId { process: process(), incarnation: 1 }, sequence }
}

/// An open transaction of eve's.
fn open() -> Open {
    let on = Connection::default();
    Open { txn: txn(1), of: process(), keyspace: 0, user: "eve".into(), on, name: None, since: Instant::ZERO }
}

/// A process that notes which transactions it is asked for, and answers when the test says so.
#[derive(Clone, Default)]
struct Slow {
    asked: Arc<Mutex<Vec<(Ticket, Transaction)>>>,
    cancelled: Arc<Mutex<Vec<Ticket>>>,
    books: Books,
}

impl Slow {
    /// In a shard of its own.
    fn hosted() -> (Reactor, Slow) {
        Slow::within(Limits::default())
    }

    fn within(limits: Limits) -> (Reactor, Slow) {
        let (mut reactor, _) = reactor(limits);
        let slow = Slow::default();
        reactor.shard.start(Box::new(slow.clone()));
        (reactor, slow)
    }

    /// What it was asked for since the last look.
    fn asked(&self) -> Vec<(Ticket, Transaction)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// What is not waited for any more, since the last look.
    fn cancelled(&self) -> Vec<Ticket> {
        std::mem::take(&mut *self.cancelled.lock().unwrap())
    }

    /// It was asked to begin, alone.
    fn asked_to_begin(&self) -> Ticket {
        let asked = self.asked();
        let [(ticket, Transaction::Begin { .. })] = &asked[..] else { panic!("{asked:?}") };
        *ticket
    }

    /// It was asked to abort these, and nothing else.
    fn is_asked_to_abort(&self, sequences: &[u64]) {
        let asked: Vec<Transaction> = self.asked().into_iter().map(|(_, asked)| asked).collect();
        let aborts = sequences.iter().map(|sequence| Transaction::Abort { txn: txn(*sequence) });
        assert_eq!(asked, aborts.collect::<Vec<_>>());
    }
}

impl Hosted for Slow {
    fn identity(&self) -> Identity {
        Identity { process: process(), incarnation: 1 }
    }

    fn restore(&mut self, _: Blob) -> Result<(), Malformed> {
        Ok(())
    }

    fn replay(&mut self, _: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn start(&mut self, _: &mut Io) {}

    fn receive(&mut self, _: ProcessId, _: &[u8], _: &mut Io) -> Result<(), DecodeError> {
        Ok(())
    }

    fn receive_local(&mut self, _: ProcessId, _: Box<dyn Any + Send>, _: &mut Io) -> Result<(), Foreign> {
        Ok(())
    }

    fn execute(&mut self, _: Ticket, _: Command, _: &mut Io) -> Result<(), Foreign> {
        Ok(())
    }

    fn transact(&mut self, ticket: Ticket, transaction: Transaction, _: &mut Io) -> Result<(), Foreign> {
        self.asked.lock().unwrap().push((ticket, transaction));
        Ok(())
    }

    fn request(&mut self, _: Ticket, _: Box<dyn Any + Send>, _: &mut Io) -> Result<(), Foreign> {
        Ok(())
    }

    fn cancel(&mut self, ticket: Ticket, _: &mut Io) {
        self.cancelled.lock().unwrap().push(ticket);
    }

    fn expire(&mut self, _: &mut Io) {}

    fn settle(&mut self, _: &mut Io) {}

    fn release(&mut self, _: &mut Io) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::MAX
    }

    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn books(&self) -> &Books {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books {
        &mut self.books
    }

    fn overdue(&self, _: Stamp, _: usize) -> Vec<Blob> {
        Vec::new()
    }

    fn check(&self) {}
}

fn give_up(reactor: &mut Reactor, times: (Instant, Span)) {
    let Reactor { shard, clients, calls, reporter, .. } = reactor;
    reactor.origins.give_up(shard, clients, calls, reporter, times);
}

/// A process answers what it was asked under this ticket.
fn answers(reactor: &mut Reactor, ticket: Ticket, outcome: Outcome) {
    let Some(Origin::Call(pending)) = reactor.origins.take(ticket) else { panic!("nobody has asked") };
    reactor.called(*pending, outcome, Instant::ZERO);
}

/// It has begun.
fn begins(reactor: &mut Reactor, ticket: Ticket, sequence: u64) {
    let step = Step::Begun { txn: txn(sequence), reads: Vec::new() };
    answers(reactor, ticket, Outcome::Transaction(Box::new(step)));
}

/// What a call was told that has begun a transaction.
#[track_caller]
fn token(answered: &mut oneshot::Receiver<Answer>) -> Token {
    match answered.try_recv().expect("an answer") {
        Ok(Said::Begun { txn, .. }) => txn,
        other => panic!("{other:?}"),
    }
}

/// Whether ACL LOG has this, noted once, of such a client.
fn is_noted(reactor: &Reactor, reason: Reason, object: &str, user: &str, client: &str) -> bool {
    let entry = Entry::new(reason, Within::Nothing, object.as_bytes(), user);
    let (entry, client) = (format!("{entry:?}, count: 1,"), format!("client: {client:?}"));
    let users = format!("{:?}", reactor.clients.hub.users);
    users.split("Noted").any(|noted| noted.contains(&entry) && noted.contains(&client))
}

#[test]
fn what_is_denied_to_a_call_is_in_the_audit_log_also_where_its_client_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, keeper) = audit::open(&path).unwrap().start("va1", Arc::default()).unwrap();
    let (mut reactor, _) = reactor(Limits::default());
    reactor.clients.hub.audit = Some(audit);
    reactor.calls.open.insert(1, open());
    let (keyspace, token) = ("main".to_owned(), Token { life: LIFE, number: 1 });
    let words = |words: [&'static str; 2]| words.map(Bytes::from).to_vec();
    for ask in [
        Ask::Execute { user: "eve".into(), keyspace: keyspace.clone(), words: words(["GET", "mine"]) },
        Ask::Execute { user: "eve".into(), keyspace, words: words(["GET", "theirs"]) },
        Ask::Abort { user: "app".into(), txn: token },
    ] {
        let (answer, gone) = oneshot::channel();
        drop(gone);
        reactor.take_call(Call { ask, by: BY, answer }, Instant::ZERO);
    }
    drop(reactor);
    drop(keeper);
    let text = std::fs::read_to_string(&path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<audit::Record>(line).unwrap());
    let told = records.filter_map(|record| Some((record.user?, record.act, record.decision, record.address)));
    let denied = |user: &str| (user.to_owned(), "Some".to_owned(), Decision::Denied, Some(FROM.to_string()));
    assert_eq!(told.collect::<Vec<_>>(), [denied("eve"), denied("app")], "{text}");
}

#[test]
fn what_is_denied_to_a_call_is_in_acl_log() {
    let (mut reactor, _) = reactor(Limits::default());
    let begin = |reads: &[&str], writes: &[&str]| {
        let blobs = |keys: &[&str]| -> Vec<Blob> { keys.iter().map(|key| Blob::from(*key)).collect() };
        let (reads, writes) = (blobs(reads), blobs(writes));
        let (user, on) = ("eve".into(), Connection::default());
        Ask::Begin { user, on, keyspace: "main".to_owned(), reads, writes, name: None }
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
fn a_call_that_may_make_data_grow_is_refused_where_a_node_is_full() {
    let (mut reactor, slow) = Slow::hosted();
    let full = vec![Full { node: "n2".to_owned(), limit: 6 << 30 }];
    reactor.clients.show((NodeView::default(), vec![KeyspaceView { full, ..view() }]));
    reactor.calls.open.insert(1, Open { user: DEFAULT.into(), ..open() });
    let execute = |words: &[&'static str]| Ask::Execute {
        user: DEFAULT.into(),
        keyspace: "main".to_owned(),
        words: words.iter().map(|word| Bytes::from(*word)).collect(),
    };
    let commit = |value: Option<&str>| Ask::Commit {
        user: DEFAULT.into(),
        txn: Token { life: LIFE, number: 1 },
        updates: vec![("mine".into(), value.map(Blob::from)), ("other".into(), None)],
    };
    let text = "keyspace \"main\" takes nothing that may make data grow: there is no memory for more at n2 (which may use \
                6.0 GiB); delete, have keys expire, or raise `memory` of [limits] there";
    for ask in [execute(&["SET", "mine", "1"]), execute(&["SORT", "mine"]), commit(Some("1"))] {
        let refusal = refused(&mut reactor, ask);
        assert_eq!((refusal.why, refusal.text.as_str()), (Why::Limit, text));
    }
    assert_eq!(reactor.clients.counters.limited["memory"], 3);
    assert_eq!(reactor.calls.open(), 1, "it is open still");
    for ask in [execute(&["GET", "mine"]), execute(&["DEL", "mine"]), commit(None)] {
        assert!(send(&mut reactor, ask).try_recv().is_err(), "it is asked of the process");
    }
    assert!(matches!(&slow.asked()[..], [(_, Transaction::Commit { .. })]));
    let _begins = begin_named(&mut reactor, DEFAULT, "one");
    slow.asked_to_begin();
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

fn abort_named(reactor: &mut Reactor, name: &str) {
    let told = send(reactor, Ask::AbortNamed { user: DEFAULT.into(), name: name.into() }).try_recv();
    assert_eq!(told.expect("an answer at once"), Ok(Said::Aborted(Abort::Client)));
}

fn begin_named(reactor: &mut Reactor, user: &str, name: &str) -> oneshot::Receiver<Answer> {
    let (reads, writes, name) = (Vec::new(), vec![Blob::from("mine")], Some(Blob::from(name)));
    let (user, on, keyspace) = (user.into(), Connection::default(), "main".to_owned());
    send(reactor, Ask::Begin { user, on, keyspace, reads, writes, name })
}

/// The answers to those before are on their way, or lost on it: nobody has said yet that they are not waited for.
#[test]
fn a_begin_of_the_same_name_ends_the_one_before() {
    let (mut reactor, slow) = Slow::hosted();
    let mut lost = begin_named(&mut reactor, DEFAULT, "one");
    begins(&mut reactor, slow.asked_to_begin(), 1);
    assert_eq!(reactor.calls.open(), 1);
    // Of another user, and of another name.
    let mut others = [("eve", "one"), (DEFAULT, "other")].map(|(user, name)| {
        let answered = begin_named(&mut reactor, user, name);
        begins(&mut reactor, slow.asked_to_begin(), 2);
        answered
    });
    assert_eq!(reactor.calls.open(), 3);
    let mut again = begin_named(&mut reactor, DEFAULT, "one");
    let asked = slow.asked();
    let [(_, Transaction::Abort { txn: ended }), (ticket, Transaction::Begin { .. })] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(*ended, txn(1), "its keys are free before the next takes them");
    assert_eq!(reactor.calls.open(), 2);
    begins(&mut reactor, *ticket, 3);
    assert_eq!(reactor.calls.open(), 3);
    let commit = |user: &str, txn| Ask::Commit { user: user.into(), txn, updates: Vec::new() };
    let refusal = refused(&mut reactor, commit(DEFAULT, token(&mut lost)));
    assert_eq!(refusal.why, Why::Precondition, "{}", refusal.text);
    let (eve, other) = (token(&mut others[0]), token(&mut others[1]));
    for (user, txn) in [("eve", eve), (DEFAULT, other), (DEFAULT, token(&mut again))] {
        assert!(send(&mut reactor, commit(user, txn)).try_recv().is_err(), "it is under way");
    }
    slow.asked();
    drop(begin_named(&mut reactor, DEFAULT, "one"));
    slow.asked_to_begin();
    assert!(slow.cancelled().is_empty(), "what commits is not ended");
}

#[test]
fn of_two_begins_of_one_name_the_later_stays_whichever_begins_first() {
    let (mut reactor, slow) = Slow::hosted();
    let refused = |mut answered: oneshot::Receiver<Answer>| {
        assert_eq!(answered.try_recv().expect("an answer").expect_err("a refusal").why, Why::TryAgain);
    };
    let early = begin_named(&mut reactor, DEFAULT, "one");
    let first = slow.asked_to_begin();
    let answered = begin_named(&mut reactor, DEFAULT, "one");
    assert_eq!(slow.cancelled(), [first], "it is not to wait for its keys");
    refused(early);
    let second = slow.asked_to_begin();
    // This one's answer lies there already.
    let step = Step::Begun { txn: txn(1), reads: Vec::new() };
    let reply = Reply::Outcome(Outcome::Transaction(Box::new(step)));
    let lies = crate::io::Answer { process: process(), ticket: second, reply, last: true };
    reactor.shard.io().answers.push_back(lies);
    let mut late = begin_named(&mut reactor, DEFAULT, "one");
    let third = slow.asked_to_begin();
    assert!(slow.cancelled().is_empty());
    begins(&mut reactor, third, 2);
    assert!(reactor.answer(Instant::ZERO));
    slow.is_asked_to_abort(&[1]);
    refused(answered);
    assert_eq!((reactor.calls.open(), reactor.origins.len()), (1, 0));
    // What has not begun leaves no name behind, nor does what nobody waits for.
    let aborted = Outcome::Transaction(Box::new(Step::Aborted(Abort::Conflict)));
    let _aborted = begin_named(&mut reactor, DEFAULT, "two");
    answers(&mut reactor, slow.asked_to_begin(), aborted);
    drop(begin_named(&mut reactor, DEFAULT, "three"));
    begins(&mut reactor, slow.asked_to_begin(), 3);
    slow.is_asked_to_abort(&[3]);
    let number = token(&mut late).number;
    assert_eq!(reactor.calls.names.values().collect::<Vec<_>>(), [&number]);
    // Nor what its time ends.
    reactor.sweep_open(Instant::ZERO + Span::from_secs(30));
    slow.is_asked_to_abort(&[2]);
    assert!(reactor.calls.names.is_empty() && reactor.calls.open() == 0);
}

#[test]
fn a_transaction_is_given_up_by_its_name_also_while_it_begins() {
    let (mut reactor, slow) = Slow::hosted();
    abort_named(&mut reactor, "one");
    slow.is_asked_to_abort(&[]);
    let _open = begin_named(&mut reactor, DEFAULT, "one");
    begins(&mut reactor, slow.asked_to_begin(), 1);
    abort_named(&mut reactor, "one");
    slow.is_asked_to_abort(&[1]);
    let mut beginning = begin_named(&mut reactor, DEFAULT, "one");
    let ticket = slow.asked_to_begin();
    abort_named(&mut reactor, "one");
    assert_eq!(slow.cancelled(), [ticket]);
    assert_eq!(beginning.try_recv().expect("an answer").expect_err("a refusal").why, Why::TryAgain);
    assert!(reactor.calls.names.is_empty() && reactor.calls.open() == 0 && reactor.origins.len() == 0);
}

/// A commit that is not taken up leaves its transaction open.
#[test]
fn what_is_given_up_by_its_name_while_it_commits_is_not_open_behind_that() {
    for early in [true, false] {
        let (mut reactor, slow) = Slow::hosted();
        let mut begun = begin_named(&mut reactor, DEFAULT, "one");
        begins(&mut reactor, slow.asked_to_begin(), 1);
        let txn = token(&mut begun);
        let mut told = send(&mut reactor, Ask::Commit { user: DEFAULT.into(), txn, updates: Vec::new() });
        let asked = slow.asked();
        let [(ticket, Transaction::Commit { .. })] = &asked[..] else { panic!("{asked:?}") };
        if early {
            abort_named(&mut reactor, "one");
        }
        let step = Step::Refused(Unfit::TooLarge, "the transaction has 9 keys".to_owned());
        answers(&mut reactor, *ticket, Outcome::Transaction(Box::new(step)));
        assert_eq!(told.try_recv().expect("an answer").expect_err("a refusal").why, Why::Limit);
        assert_eq!(reactor.calls.open(), usize::from(!early));
        if !early {
            abort_named(&mut reactor, "one");
        }
        slow.is_asked_to_abort(&[1]);
        assert!(reactor.calls.names.is_empty() && reactor.calls.open() == 0, "early: {early}");
    }
}

#[test]
fn a_commit_that_is_not_waited_for_any_more_leaves_no_name() {
    let (mut reactor, slow) = Slow::hosted();
    let mut begun = begin_named(&mut reactor, DEFAULT, "one");
    begins(&mut reactor, slow.asked_to_begin(), 1);
    let txn = token(&mut begun);
    let _told = send(&mut reactor, Ask::Commit { user: DEFAULT.into(), txn, updates: Vec::new() });
    assert_eq!(reactor.calls.names.len(), 1);
    give_up(&mut reactor, (Instant::ZERO + Span::from_secs(16), Span::from_secs(15)));
    assert!(reactor.calls.names.is_empty() && reactor.origins.len() == 0);
}

#[test]
fn a_begin_of_the_same_name_ends_the_one_before_also_where_no_more_may_be_under_way() {
    let (mut reactor, slow) = Slow::within(Limits { requests: 1, ..Limits::default() });
    for begun in [true, false] {
        let _before = begin_named(&mut reactor, DEFAULT, "one");
        let ticket = slow.asked_to_begin();
        if begun {
            begins(&mut reactor, ticket, 1);
        }
        let other = begin_named(&mut reactor, DEFAULT, "other").try_recv();
        assert_eq!(other.expect("an answer at once").expect_err("a refusal").why, Why::Limit);
        let mut again = begin_named(&mut reactor, DEFAULT, "one");
        assert!(again.try_recv().is_err(), "it is under way");
        abort_named(&mut reactor, "one");
        slow.asked();
    }
}

/// A Put of 17 MiB.
#[test]
fn a_command_whose_transaction_is_too_large_has_met_a_limit() {
    let (mut reactor, _) = Slow::hosted();
    let words = ["SET", "a", "v"].map(Bytes::from).to_vec();
    let put = Ask::Execute { user: DEFAULT.into(), keyspace: "main".to_owned(), words };
    for (text, why) in [
        ("ERR the transaction has 17825797 bytes, and the limit `txn_bytes` is 16777216", Why::Limit),
        ("ERR 'KEYS' is about the whole keyspace", Why::Precondition),
        ("TRYAGAIN others were first", Why::TryAgain),
    ] {
        let Ask::Execute { user, keyspace, words } = &put else { unreachable!("it is one") };
        let (user, keyspace, words) = (Arc::clone(user), keyspace.clone(), words.clone());
        let mut answered = send(&mut reactor, Ask::Execute { user, keyspace, words });
        let ticket = *reactor.origins.waiting.keys().next().expect("it is under way");
        answers(&mut reactor, ticket, Outcome::Refused(text.to_owned()));
        let refusal = answered.try_recv().expect("an answer").expect_err("a refusal");
        assert_eq!((refusal.why, refusal.text.as_str()), (why, text.trim_start_matches("TRYAGAIN ")));
    }
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
        (Stage::Begins { number: 7, user: DEFAULT.into(), on: Connection::default(), name: None }, false),
        (Stage::Executes(one), true),
        (Stage::Aborts, false),
        (Stage::Executes(other), false),
        (Stage::Commits(1, open(), Vec::new()), false),
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
        give_up(&mut reactor, times);
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
        give_up(&mut reactor, times);
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
    let _answered = line.send(Ask::Abort { user: "eve".into(), txn }, BY).unwrap();
    let sent = reactor.clock.now();
    reactor.take_calls(Instant::ZERO);
    assert!(reactor.shard.io().now >= sent);
}
