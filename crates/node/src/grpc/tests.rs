//! The server over loopback, with this test in the place of the shard.

mod health;
mod reflection;

use super::guard::credentials;
use super::{State, start};
use crate::audit::{self, Audit};
use crate::background::Background;
use crate::cert;
use crate::gateway::Abort;
use crate::limits::Limits;
use crate::metrics::NodeMetrics;
use crate::reactor::Board;
use crate::reactor::calls::{Answer, Ask, Call, Connection, Line, Refusal, Said, Token, Why};
use isochrone_core::Blob;
use isochrone_proto::v1::isochrone_client::IsochroneClient;
use isochrone_proto::v1::{self, begin_response, commit_response};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

#[test]
fn credentials_are_a_user_and_a_password_in_base64() {
    for (shown, user, password) in [
        ("Basic YXBwOnNlY3JldA==", "app", "secret"),
        ("basic YXBwOmE6Yg==", "app", "a:b"),
        // `:secret`, as clients that name no user send it.
        ("Basic OnNlY3JldA==", "default", "secret"),
    ] {
        let (found, secret) = credentials(shown.as_bytes()).unwrap();
        assert_eq!((found.as_str(), secret.expose()), (user, password.as_bytes()), "{shown}");
    }
    for broken in ["", "Basic", "Bearer YXBwOnNlY3JldA==", "Basic ???", "Basic c2VjcmV0", "Basic /zo="] {
        let refusal = credentials(broken.as_bytes()).unwrap_err();
        assert_eq!(refusal.why, Why::Stranger, "{broken}");
        assert!(refusal.text.contains("Basic <base64 of user:password>"), "{}", refusal.text);
    }
}

/// A server whose shard answers with `answer`, and what its clients call.
fn served(
    limits: Limits,
    answer: impl Fn(Ask) -> Option<Answer> + Send + 'static,
) -> (Background, Arc<NodeMetrics>, String) {
    served_with(None, limits, answer)
}

fn served_with(
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    answer: impl Fn(Ask) -> Option<Answer> + Send + 'static,
) -> (Background, Arc<NodeMetrics>, String) {
    let board = Arc::new(Board::new(Arc::default()));
    let metrics = Arc::clone(&board.metrics);
    let (server, address) = served_on(board, tls, limits, None, answer);
    (server, metrics, address)
}

/// Of a node with a keyspace `main` that stands as the board says.
fn served_on(
    board: Arc<Board>,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    audit: Option<Audit>,
    answer: impl Fn(Ask) -> Option<Answer> + Send + 'static,
) -> (Background, String) {
    let waker = Arc::new(mio::Waker::new(mio::Poll::new().unwrap().registry(), mio::Token(0)).unwrap());
    let (line, calls): (Line, Receiver<Call>) = Line::new(waker);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            match calls.recv_timeout(Duration::from_secs(60)) {
                Ok(Call { ask, answer: to, .. }) => match answer(ask) {
                    Some(answer) => drop(to.send(answer)),
                    // Under way for ever.
                    None => kept.push(to),
                },
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", socket.local_addr().unwrap());
    let metrics = Arc::clone(&board.metrics);
    let key = crate::security::draw_key().unwrap();
    let tls = tls.map(|tls| Arc::new(Mutex::new(tls)));
    let keyspaces = vec!["main".to_owned()];
    let state = State { line, limits, metrics, board, keyspaces, tls, key, audit };
    (start(socket, state).unwrap(), address)
}

/// A client's side, on a thread of its own kind.
fn ask<T>(address: &str, call: impl AsyncFnOnce(IsochroneClient<Channel>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(address.to_owned()).unwrap().connect().await.unwrap();
        call(IsochroneClient::new(channel)).await
    })
}

fn login(ask: Ask) -> Result<Answer, Ask> {
    match ask {
        Ask::Login { named: None, .. } => Ok(Ok(Said::User("default".into()))),
        Ask::Login { named: Some((user, password)), .. } if password.expose() == b"right" => {
            Ok(Ok(Said::User(user.into())))
        }
        Ask::Login { .. } => Ok(Err(Refusal::new(Why::Stranger, "another password"))),
        other => Err(other),
    }
}

fn get(key: &str, authorization: &str) -> Request<v1::GetRequest> {
    let message = v1::GetRequest { keyspace: "main".to_owned(), key: key.as_bytes().to_vec().into() };
    let mut request = Request::new(message);
    if !authorization.is_empty() {
        request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    }
    request
}

fn page(metrics: &NodeMetrics) -> String {
    let mut page = crate::metrics::Page::default();
    metrics.grpc.show(&mut page);
    page.finish()
}

/// Waits until so many calls are under way.
async fn under_way(metrics: &NodeMetrics, calls: usize) {
    while !page(metrics).contains(&format!("isochrone_grpc_calls_in_flight {calls}\n")) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_transaction_goes_from_call_to_call() {
    let answer = |ask| {
        Some(login(ask).unwrap_or_else(|ask| match ask {
            Ask::Begin { user, keyspace, reads, writes, .. } => {
                assert_eq!((&*user, keyspace.as_str()), ("default", "bank"));
                assert_eq!((reads, writes), (vec![Blob::from("a")], vec![Blob::from("b")]));
                let txn = Token { life: 7, number: 9 };
                Ok(Said::Begun { txn, reads: vec![("a".into(), Some("1".into()), 5)] })
            }
            Ask::Commit { txn: Token { life: 7, number: 9 }, updates, .. } => {
                assert_eq!(updates, [(Blob::from("b"), Some(Blob::from("2"))), ("c".into(), None)]);
                Ok(Said::Committed(8))
            }
            Ask::Commit { .. } => Ok(Said::Unknown("nobody knows".to_owned())),
            Ask::Abort { .. } => Ok(Said::Aborted(Abort::Client)),
            Ask::AbortNamed { name, .. } => {
                assert_eq!(name, Blob::new(&[7; 16]));
                Ok(Said::Aborted(Abort::Client))
            }
            Ask::Execute { words, .. } => match &words[0][..] {
                b"GET" => Ok(Said::Replied(b"$1\r\nv\r\n".to_vec())),
                b"SET" => Ok(Said::Unknown("nobody knows".to_owned())),
                b"DEL" => Err(Refusal::new(Why::TryAgain, "others were first")),
                _ => Ok(Said::Replied(b"nonsense".to_vec())),
            },
            Ask::Login { .. } => unreachable!("answered above"),
        }))
    };
    let (server, metrics, address) = served(Limits::default(), answer);
    ask(&address, async |mut client| {
        let keyspace = || "bank".to_owned();
        let begin = v1::BeginRequest {
            keyspace: keyspace(),
            reads: vec!["a".into()],
            writes: vec!["b".into()],
            name: Default::default(),
        };
        let begun = match client.begin(begin).await.unwrap().into_inner().outcome {
            Some(begin_response::Outcome::Begun(begun)) => begun,
            other => panic!("{other:?}"),
        };
        assert_eq!(begun.reads, [v1::Read { key: "a".into(), value: Some("1".into()), version: 5 }]);
        let updates = vec![
            v1::Update { key: "b".into(), value: Some("2".into()) },
            v1::Update { key: "c".into(), value: None },
        ];
        let commit = v1::CommitRequest { txn: begun.txn.clone(), updates };
        let committed = client.commit(commit).await.unwrap().into_inner().outcome;
        assert_eq!(committed, Some(commit_response::Outcome::Committed(v1::Committed { at: 8 })));
        client.abort(v1::AbortRequest { txn: begun.txn.clone(), ..Default::default() }).await.unwrap();
        // By the name that its client has given it; such as others might choose too are none.
        let named = |name: &'static [u8]| v1::AbortRequest { name: name.into(), ..Default::default() };
        client.abort(named(&[7; 16])).await.unwrap();
        let both = v1::AbortRequest { txn: begun.txn, ..named(&[7; 16]) };
        for abort in [named(&[7; 15]), named(&[7; 65]), both, v1::AbortRequest::default()] {
            assert_eq!(client.abort(abort).await.unwrap_err().code(), Code::InvalidArgument);
        }
        let short = v1::BeginRequest { name: "short".into(), ..Default::default() };
        assert_eq!(client.begin(short).await.unwrap_err().code(), Code::InvalidArgument);
        let other = v1::CommitRequest { txn: vec![0; 16].into(), updates: Vec::new() };
        let unknown = client.commit(other).await.unwrap().into_inner().outcome;
        assert!(matches!(unknown, Some(commit_response::Outcome::Unknown(_))), "{unknown:?}");

        let get = v1::GetRequest { keyspace: keyspace(), key: "k".into() };
        assert_eq!(client.get(get).await.unwrap().into_inner().value, Some("v".into()));
        let put = v1::PutRequest { keyspace: keyspace(), key: "k".into(), value: "v".into() };
        assert!(client.put(put).await.unwrap().into_inner().unknown.is_some());
        let delete = v1::DeleteRequest { keyspace: keyspace(), key: "k".into() };
        assert_eq!(client.delete(delete).await.unwrap_err().code(), Code::Aborted);
        let execute = v1::ExecuteRequest { keyspace: keyspace(), words: vec!["X".into()] };
        assert_eq!(client.execute(execute).await.unwrap_err().code(), Code::Internal);
    });
    let page = page(&metrics);
    for (method, outcome) in [
        ("Begin", "begun"),
        ("Commit", "committed"),
        ("Commit", "unknown"),
        ("Get", "ok"),
        ("Put", "unknown"),
        ("Delete", "try_again"),
        ("Execute", "error"),
    ] {
        let line = format!("isochrone_grpc_calls_total{{method=\"{method}\",outcome=\"{outcome}\"}} 1\n");
        assert!(page.contains(&line), "{line}{page}");
    }
    assert!(page.contains("isochrone_grpc_calls_in_flight 0\n"), "{page}");
    drop(server);
}

#[test]
fn a_transaction_knows_when_its_connection_is_gone() {
    let (begun, connections) = std::sync::mpsc::channel();
    let answer = move |ask| {
        Some(login(ask).unwrap_or_else(|ask| match ask {
            Ask::Begin { on, .. } => {
                begun.send(on).unwrap();
                Ok(Said::Begun { txn: Token { life: 7, number: 9 }, reads: Vec::new() })
            }
            _ => unreachable!("it only begins"),
        }))
    };
    let (_server, _metrics, address) = served(Limits::default(), answer);
    let begin = v1::BeginRequest { keyspace: "bank".into(), writes: vec!["b".into()], ..Default::default() };
    let [first, second] = [(); 2].map(|()| {
        ask(&address, async |mut client| {
            client.begin(begin.clone()).await.unwrap();
            let own = connections.recv_timeout(Duration::from_secs(60)).unwrap();
            client.begin(begin.clone()).await.unwrap();
            let same = connections.recv_timeout(Duration::from_secs(60)).unwrap();
            assert!(!own.is_closed() && !same.is_closed());
            [own, same]
        })
    });
    // The connections have ended with their clients.
    let start = std::time::Instant::now();
    while !first.iter().chain(&second).all(Connection::is_closed) {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody has noticed");
        std::thread::yield_now();
    }
}

#[test]
fn strangers_and_those_beyond_a_limit_are_turned_away_before_they_are_read() {
    let limits = Limits { requests: 2, bulk_bytes: 1_000, command_bytes: 3_000, ..Limits::default() };
    let (server, metrics, address) = served(limits, |ask| match login(ask) {
        Ok(answer) => Some(answer),
        Err(Ask::Execute { words, .. }) if &words[1][..] == b"slow" => None,
        Err(_) => Some(Ok(Said::Replied(b"_\r\n".to_vec()))),
    });
    ask(&address, async |mut client| {
        let code =
            |answer: Result<_, tonic::Status>| answer.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(code(client.get(get("a", "")).await), Code::Ok);
        // `app:right` and `app:wrong`.
        assert_eq!(code(client.get(get("a", "Basic YXBwOnJpZ2h0")).await), Code::Ok);
        assert_eq!(code(client.get(get("a", "Basic YXBwOndyb25n")).await), Code::Unauthenticated);
        assert_eq!(code(client.get(get("a", "Digest x")).await), Code::Unauthenticated);
        let long = client.get(get(&"x".repeat(1_001), "")).await.unwrap_err();
        assert_eq!(long.code(), Code::ResourceExhausted);
        assert_eq!(long.message(), "1001 bytes, and the limit `bulk` is 1000");
        assert_eq!(code(client.get(get(&"x".repeat(4_000), "")).await), Code::OutOfRange);
        // Two that nobody answers fill the node.
        let mut slow = Vec::new();
        for _ in 0..2 {
            let mut client = client.clone();
            let request = get("slow", "");
            slow.push(tokio::spawn(async move { client.get(request).await }));
        }
        under_way(&metrics, 2).await;
        let full = client.get(get("a", "")).await.unwrap_err();
        assert_eq!(full.code(), Code::ResourceExhausted);
        assert!(full.message().starts_with("2 calls are under way"), "{}", full.message());
        slow.iter().for_each(tokio::task::JoinHandle::abort);
        while !page(&metrics).contains("outcome=\"cancelled\"} 2\n") {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(client.get(get("a", "")).await), Code::Ok);
    });
    assert!(page(&metrics).contains("isochrone_grpc_limit_reached_total{limit=\"in_flight\"} 1\n"));
    drop(server);
}

async fn guess(client: &mut IsochroneClient<Channel>) -> Code {
    client.get(get("a", GUESS)).await.unwrap_err().code()
}

/// In the gateway of Redis, too, a connection has so many commands for that.
#[test]
fn a_connection_on_which_too_many_logins_were_refused_ends() {
    let (server, metrics, address) = served(Limits { login_commands: 2, ..Limits::default() }, |ask| {
        Some(login(ask).unwrap_or_else(|_| Ok(Said::Replied(b"_\r\n".to_vec()))))
    });
    ask(&address, async |mut client| {
        for _ in 0..2 {
            assert_eq!(guess(&mut client).await, Code::Unauthenticated);
        }
        // There is nobody any more who would answer this one.
        assert_ne!(guess(&mut client).await, Code::Unauthenticated);
    });
    // Where somebody has logged in, as behind a proxy, it serves others too.
    ask(&address, async |mut client| {
        client.get(get("a", "Basic YXBwOnJpZ2h0")).await.unwrap();
        for _ in 0..4 {
            assert_eq!(guess(&mut client).await, Code::Unauthenticated);
        }
    });
    let page = page(&metrics);
    assert!(page.contains("isochrone_grpc_limit_reached_total{limit=\"login_commands\"} 1\n"), "{page}");
    drop(server);
}

/// `app:guess`.
const GUESS: &str = "Basic YXBwOmd1ZXNz";

#[test]
fn who_is_not_let_in_takes_no_place_of_those_who_are() {
    let limits = Limits { requests: 1, login_commands: 1, ..Limits::default() };
    let (server, metrics, address) = served(limits, |ask| match ask {
        // Checked for ever.
        Ask::Login { named: Some(_), .. } => None,
        ask => Some(login(ask).unwrap_or_else(|_| Ok(Said::Replied(b"_\r\n".to_vec())))),
    });
    ask(&address, async |mut client| {
        client.get(get("a", "")).await.unwrap();
        let guess = |client: &IsochroneClient<Channel>| {
            let mut client = client.clone();
            tokio::spawn(async move { client.get(get("a", GUESS)).await })
        };
        // One in the connection's own place, one in the place that all share.
        let mut guesses = vec![guess(&client)];
        under_way(&metrics, 1).await;
        guesses.push(guess(&client));
        under_way(&metrics, 2).await;
        let refusal = client.get(get("a", GUESS)).await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
        assert!(refusal.message().starts_with("too many calls wait to be told"), "{refusal:?}");
        // Another connection has a place of its own.
        let channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
        let mut other = IsochroneClient::new(channel);
        other.get(get("a", "")).await.unwrap();
        guesses.push(guess(&other));
        under_way(&metrics, 3).await;
        let refusal = other.get(get("a", GUESS)).await.unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
        for client in [&mut client, &mut other] {
            client.get(get("a", "")).await.unwrap();
        }
        guesses.iter().for_each(tokio::task::JoinHandle::abort);
    });
    let page = page(&metrics);
    assert!(page.contains("isochrone_grpc_limit_reached_total{limit=\"login_commands\"} 2\n"), "{page}");
    drop(server);
}

#[test]
fn calls_that_come_before_the_first_has_logged_in_are_all_taken() {
    let (checked, check) = std::sync::mpsc::channel::<()>();
    let (_server, metrics, address) = served(Limits::default(), move |ask| {
        Some(match login(ask) {
            Ok(answer) => {
                // An error, once all of them have come.
                let _ = check.recv();
                answer
            }
            Err(_) => Ok(Said::Replied(b"_\r\n".to_vec())),
        })
    });
    ask(&address, async |client| {
        let call = |_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.get(get("a", "")).await })
        };
        let calls: Vec<_> = (0..50).map(call).collect();
        under_way(&metrics, 50).await;
        drop(checked);
        for call in calls {
            call.await.unwrap().unwrap();
        }
    });
}

#[test]
fn silent_sockets_keep_nobody_from_the_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let authority = cert::authority("test", 7).unwrap();
    let issued = cert::server(&authority, "test", "server", vec!["localhost".to_owned()], 7).unwrap();
    let (cert, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    std::fs::write(&cert, &issued.certificate).unwrap();
    std::fs::write(&key, &issued.key).unwrap();
    let tls = crate::security::client_tls(&cert, &key).unwrap();
    let (_server, metrics, address) = served_with(Some(tls), Limits::default(), |ask| login(ask).ok());
    let connect = || std::net::TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    // More than peers may be that have not greeted.
    let silent: Vec<_> = (0..=Limits::default().handshakes).map(|_| connect()).collect();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = connect();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut stream).unwrap();
    }
    let page = page(&metrics);
    let count = format!("isochrone_grpc_connections {}\n", silent.len() + 1);
    assert!(page.contains(&count), "{page}");
}

/// Connects, says nothing, and waits for the end.
fn is_cut_off(address: &str) {
    let mut silent = std::net::TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The greeting of HTTP/2, if any, and then the end.
    let end = std::io::Read::read_to_end(&mut silent, &mut Vec::new());
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}

#[test]
fn of_each_user_of_a_connection_the_audit_log_is_told_also_where_another_has_logged_in_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, keeper) = audit::open(&path).unwrap().start("va1", Arc::default()).unwrap();
    let answer = |ask| Some(login(ask).unwrap_or_else(|_| Ok(Said::Replied(b"_\r\n".to_vec()))));
    let board = Arc::new(Board::new(Arc::default()));
    let (server, address) = served_on(board, None, Limits::default(), Some(audit), answer);
    // `app:right` and `bob:right`.
    let (app, bob) = ("Basic YXBwOnJpZ2h0", "Basic Ym9iOnJpZ2h0");
    for shown in [&[bob][..], &[app, bob, app, bob]] {
        ask(&address, async |mut client| {
            for authorization in shown {
                client.get(get("a", authorization)).await.unwrap();
            }
        });
    }
    drop(server);
    drop(keeper);
    let text = std::fs::read_to_string(&path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<audit::Record>(line).unwrap());
    let users: Vec<String> = records.filter_map(|record| record.user).collect();
    assert_eq!(users, ["bob", "app", "bob"]);
}

#[test]
fn a_login_whose_call_is_cancelled_is_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, keeper) = audit::open(&path).unwrap().start("va1", Arc::default()).unwrap();
    let board = Arc::new(Board::new(Arc::default()));
    let metrics = Arc::clone(&board.metrics);
    let (waits, waiting) = std::sync::mpsc::channel();
    // Passwords are checked for ever, and commands carried out.
    let answer = move |ask| {
        let answered = if matches!(ask, Ask::Login { named: Some(_), .. }) { None } else { login(ask).ok() };
        if answered.is_none() {
            waits.send(()).unwrap();
        }
        answered
    };
    let (server, address) = served_on(board, None, Limits::default(), Some(audit), answer);
    ask(&address, async |client| {
        for authorization in [GUESS, ""] {
            let mut client = client.clone();
            let call = tokio::spawn(async move { client.get(get("a", authorization)).await });
            under_way(&metrics, 1).await;
            waiting.recv().unwrap();
            call.abort();
            under_way(&metrics, 0).await;
        }
    });
    drop(server);
    drop(keeper);
    let text = std::fs::read_to_string(&path).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<audit::Record>(line).unwrap());
    let of_users: Vec<_> = records.filter(|record| record.user.is_some()).collect();
    let [record] = of_users.as_slice() else { panic!("{text}") };
    assert_eq!(
        (record.user.as_deref(), record.why.as_deref()),
        (Some("app"), Some("gone before the answer"))
    );
    assert_eq!(record.decision, audit::Decision::Denied);
}

#[test]
fn each_connection_logs_in_for_itself() {
    let (begun, connections) = std::sync::mpsc::channel();
    let (asked, logins) = std::sync::mpsc::channel();
    let login_time = isochrone_core::Span::from_millis(50);
    let (_server, _metrics, address) = served(Limits { login_time, ..Limits::default() }, move |ask| {
        if matches!(ask, Ask::Login { .. }) {
            asked.send(()).unwrap();
        }
        Some(login(ask).unwrap_or_else(|ask| match ask {
            Ask::Begin { on, .. } => {
                begun.send(on).unwrap();
                Ok(Said::Begun { txn: Token { life: 7, number: 9 }, reads: Vec::new() })
            }
            _ => unreachable!("it only begins"),
        }))
    });
    let begin = v1::BeginRequest { keyspace: "bank".into(), writes: vec!["b".into()], ..Default::default() };
    ask(&address, async |mut first| {
        for _ in 0..2 {
            first.begin(begin.clone()).await.unwrap();
        }
        assert_eq!(logins.try_iter().count(), 1);
        // What is remembered of the first tells nobody on the second sooner what is right.
        let channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
        let mut second = IsochroneClient::new(channel);
        second.begin(begin.clone()).await.unwrap();
        assert_eq!(logins.try_iter().count(), 1);
        // One that came after them has been cut off, so the time of both is over.
        let address = address.clone();
        tokio::task::spawn_blocking(move || is_cut_off(&address)).await.unwrap();
        for connection in connections.try_iter() {
            assert!(!connection.is_closed(), "a connection on which somebody had logged in was closed");
        }
    });
}

#[test]
fn whoever_waits_to_be_told_whether_the_password_is_right_is_not_cut_off() {
    let (checked, check) = std::sync::mpsc::channel();
    let (asked, asks) = std::sync::mpsc::channel();
    let login_time = isochrone_core::Span::from_millis(50);
    let (_server, _metrics, address) = served(Limits { login_time, ..Limits::default() }, move |ask| {
        Some(match ask {
            Ask::Login { .. } => {
                asked.send(()).unwrap();
                check.recv().unwrap();
                Ok(Said::User("app".into()))
            }
            _ => Ok(Said::Replied(b"$1\r\nv\r\n".to_vec())),
        })
    });
    let host = address.clone();
    let waits = std::thread::spawn(move || {
        let get = v1::GetRequest { keyspace: "main".to_owned(), key: "a".into() };
        ask(&host, async |mut client| client.get(get).await.map(|answer| answer.into_inner().value))
    });
    asks.recv().unwrap();
    // One that came after it has been cut off, so its time is over.
    is_cut_off(&address);
    checked.send(()).unwrap();
    assert_eq!(waits.join().unwrap().unwrap(), Some("v".into()));
}

#[test]
fn whoever_does_not_log_in_is_not_waited_for() {
    let login_time = isochrone_core::Span::from_millis(50);
    let limits = Limits { login_time, clients: 1, ..Limits::default() };
    let (server, metrics, address) = served(limits, |ask| login(ask).ok());
    is_cut_off(&address);
    while !page(&metrics).contains("isochrone_grpc_connections 0\n") {
        std::thread::yield_now();
    }
    drop(server);
}

/// One connection that does not read is bounded, and no other feels it.
#[test]
fn who_does_not_read_is_answered_no_more() {
    let bulk = |bytes: usize| [format!("${bytes}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat();
    let answer = move |ask| {
        Some(login(ask).unwrap_or_else(|ask| match ask {
            Ask::Execute { words, .. } if words[0] == "LONG" => Ok(Said::Replied(bulk(2 << 20))),
            Ask::Execute { .. } => Ok(Said::Replied(bulk(100 << 10))),
            _ => unreachable!("nothing else is asked"),
        }))
    };
    let limits = Limits { output_bytes: 64 << 10, ..Limits::default() };
    let (server, metrics, address) = served(limits, answer);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(address.clone())
            .unwrap()
            .initial_stream_window_size(1 << 10)
            .initial_connection_window_size(1 << 20);
        let client = IsochroneClient::new(endpoint.connect().await.unwrap());
        let execute = |word: &'static str| {
            let mut client = client.clone();
            let words = vec![word.into()];
            async move { client.execute(v1::ExecuteRequest { keyspace: "main".to_owned(), words }).await }
        };
        // Asked, and not listened to.
        let mut unread: Vec<_> = (0..9).map(|_| Box::pin(execute("GET"))).collect();
        std::future::poll_fn(|context| {
            for call in &mut unread {
                assert!(call.as_mut().poll(context).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        let refusal = loop {
            match execute("GET").await {
                Ok(_) => tokio::task::yield_now().await,
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
        assert!(
            refusal.message().starts_with("this connection has not read what it was answered"),
            "{refusal:?}"
        );
        let channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
        let mut other = IsochroneClient::new(channel);
        let words = vec!["GET".into()];
        other.execute(v1::ExecuteRequest { keyspace: "main".to_owned(), words }).await.unwrap();
        for call in unread {
            // Those that came behind the others were refused too.
            if let Err(refusal) = call.await {
                assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
            }
        }
        while execute("GET").await.is_err() {
            tokio::task::yield_now().await;
        }
        // Far too much at once ends it.
        let refusal = execute("LONG").await.unwrap_err();
        assert_ne!(refusal.code(), Code::ResourceExhausted, "{refusal:?}");
    });
    assert!(page(&metrics).contains("isochrone_grpc_limit_reached_total{limit=\"output\"} "));
    drop(server);
}
