//! The client, before nodes that these tests play.

use crate::call::{self, Bounds};
use crate::client::{CONNECT, Caller, LOOK, TURNS};
use crate::keyspace::TIME;
use crate::{Client, Code, Error, Keyspace, Outcome, Reason, Reply, Written};
use bytes::Bytes;
use isochrone_proto::health::{
    self, Health, HealthCheckRequest, HealthCheckResponse, HealthServer, ServingStatus,
};
use isochrone_proto::v1::isochrone_server::{Isochrone, IsochroneServer};
use isochrone_proto::v1::{
    AbortRequest, AbortResponse, BeginRequest, BeginResponse, Begun, CommitRequest, CommitResponse,
    Committed, DeleteRequest, DeleteResponse, ExecuteRequest, ExecuteResponse, GetRequest, GetResponse,
    PutRequest, PutResponse, begin_response, commit_response,
};
use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, BoxStream, Service, async_trait, http};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Where nobody listens.
const NOBODY: &str = "127.0.0.1:1";
/// What a node says that stops.
const STOPS: &str = "this node is stopping; ask another";
/// What a node calls the transaction that is open there.
const TXN: &[u8] = b"the transaction";
/// Longer than anything here takes that goes well.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node, with one key and one transaction that may hold it: then no Put is answered.
#[derive(Clone)]
struct Node(Arc<State>);

struct State {
    /// The value of its key.
    name: &'static str,
    stops: AtomicBool,
    /// The answer of the next Begin is lost.
    loses: AtomicBool,
    /// No Begin is answered.
    silent: AtomicBool,
    /// The next Abort is refused.
    refuses: AtomicBool,
    open: watch::Sender<bool>,
    /// The names of all that were begun.
    begun: Mutex<Vec<Bytes>>,
    aborted: Mutex<Vec<AbortRequest>>,
    puts: AtomicU32,
    checks: AtomicU32,
}

impl Node {
    fn new(name: &'static str) -> Node {
        Node(Arc::new(State {
            name,
            stops: AtomicBool::new(false),
            loses: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            open: watch::Sender::new(false),
            begun: Mutex::default(),
            aborted: Mutex::default(),
            puts: AtomicU32::new(0),
            checks: AtomicU32::new(0),
        }))
    }

    fn begun(&self) -> Vec<Bytes> {
        self.0.begun.lock().unwrap().clone()
    }

    fn aborted(&self) -> Vec<AbortRequest> {
        self.0.aborted.lock().unwrap().clone()
    }

    fn take_up(&self) -> Result<(), Status> {
        if self.0.stops.load(SeqCst) { Err(Status::aborted(STOPS)) } else { Ok(()) }
    }
}

#[async_trait]
impl Isochrone for Node {
    async fn begin(&self, request: Request<BeginRequest>) -> Result<Response<BeginResponse>, Status> {
        self.take_up()?;
        self.0.begun.lock().unwrap().push(request.into_inner().name);
        self.0.open.send_replace(true);
        if self.0.silent.load(SeqCst) {
            pending::<()>().await;
        }
        if self.0.loses.swap(false, SeqCst) {
            return Err(Status::unavailable("a proxy has lost the answer"));
        }
        let begun = Begun { txn: TXN.into(), reads: Vec::new() };
        Ok(Response::new(BeginResponse { outcome: Some(begin_response::Outcome::Begun(begun)) }))
    }

    async fn commit(&self, _: Request<CommitRequest>) -> Result<Response<CommitResponse>, Status> {
        self.take_up()?;
        self.0.open.send_replace(false);
        let committed = commit_response::Outcome::Committed(Committed { at: 1 });
        Ok(Response::new(CommitResponse { outcome: Some(committed) }))
    }

    async fn abort(&self, request: Request<AbortRequest>) -> Result<Response<AbortResponse>, Status> {
        if self.0.refuses.swap(false, SeqCst) {
            return Err(Status::resource_exhausted("too many calls are under way"));
        }
        self.0.aborted.lock().unwrap().push(request.into_inner());
        self.0.open.send_replace(false);
        Ok(Response::new(AbortResponse {}))
    }

    async fn get(&self, _: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        self.take_up()?;
        Ok(Response::new(GetResponse { value: Some(self.0.name.into()) }))
    }

    async fn put(&self, _: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
        self.take_up()?;
        self.0.puts.fetch_add(1, SeqCst);
        let mut open = self.0.open.subscribe();
        drop(open.wait_for(|open| !*open).await);
        Ok(Response::new(PutResponse { unknown: None }))
    }

    async fn delete(&self, _: Request<DeleteRequest>) -> Result<Response<DeleteResponse>, Status> {
        self.take_up()?;
        Ok(Response::new(DeleteResponse { unknown: None, existed: true }))
    }

    async fn execute(&self, _: Request<ExecuteRequest>) -> Result<Response<ExecuteResponse>, Status> {
        self.take_up()?;
        Ok(Response::new(ExecuteResponse { unknown: None, reply: None }))
    }
}

#[async_trait]
impl Health for Node {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.checks.fetch_add(1, SeqCst);
        let status = if self.take_up().is_ok() { ServingStatus::Serving } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckResponse>>, Status> {
        Err(Status::unimplemented("nobody watches"))
    }
}

/// Both services of a node, by the path.
#[derive(Clone)]
struct Door {
    calls: IsochroneServer<Node>,
    health: HealthServer<Node>,
}

impl Service<http::Request<Body>> for Door {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path().starts_with(health::PATH) {
            self.health.call(request)
        } else {
            self.calls.call(request)
        }
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Where the node serves, until the test ends.
async fn served(node: &Node) -> String {
    let (listener, address) = listen().await;
    let door = Door { calls: IsochroneServer::new(node.clone()), health: HealthServer::new(node.clone()) };
    // As many calls on a connection as a node takes where its deployment file says nothing.
    let server = Server::builder().max_concurrent_streams(1024_u32);
    tokio::spawn(server.serve_with_incoming(door, TcpIncoming::from(listener)));
    address
}

fn keyspace(nodes: &[&str]) -> Keyspace {
    Client::builder(nodes.iter().copied()).unconnected().unwrap().keyspace("main")
}

async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(1)).await;
    }
}

/// Time passes, while nothing is under way.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Drops a transaction that writes `k` once it is begun.
async fn drop_begun(main: &Keyspace) {
    let begun = Notify::new();
    let run = main.transaction().write(["k"]).run(async |_| {
        begun.notify_one();
        pending::<Result<(), Error>>().await
    });
    tokio::select! {
        ended = run => panic!("{ended:?}"),
        () = begun.notified() => {}
    }
}

#[tokio::test]
async fn a_transaction_that_is_dropped_lets_go_of_its_keys() {
    let node = Node::new("n0");
    let main = keyspace(&[&served(&node).await]);
    drop_begun(&main).await;
    let put = timeout(Duration::from_secs(1), main.put("k", "v")).await;
    assert_eq!(put.expect("nobody holds the key").unwrap(), Written::Done(()));
    assert_eq!(node.aborted(), [AbortRequest { txn: TXN.into(), name: Bytes::new() }]);
}

#[tokio::test]
async fn a_transaction_ends_however_many_calls_wait_for_its_keys() {
    let node = Node::new("n0");
    let main = keyspace(&[&served(&node).await]);
    let mut puts = JoinSet::new();
    let run = main.transaction().write(["k"]).run(async |_| {
        for _ in 0..2 * TURNS {
            let main = main.clone();
            puts.spawn(async move { main.put("k", "v").await });
        }
        until("they wait for it", || node.0.puts.load(SeqCst) as usize >= TURNS).await;
        Ok(())
    });
    let outcome = timeout(PATIENCE, run).await.expect("its commit is sent").unwrap();
    assert_eq!(outcome, Outcome::Committed { value: (), at: 1, tries: 1 });
    while let Some(put) = puts.join_next().await {
        assert_eq!(put.unwrap().unwrap(), Written::Done(()));
    }
}

#[tokio::test]
async fn a_spawned_task_runs_a_closure_that_owns_what_it_captures() {
    let node = Node::new("n0");
    let main = keyspace(&[&served(&node).await]);
    let key = "k".to_owned();
    let task = tokio::spawn(async move {
        main.transaction().write([&key]).run(async move |txn| txn.put(&key, "v")).await
    });
    assert_eq!(task.await.unwrap().unwrap(), Outcome::Committed { value: (), at: 1, tries: 1 });
}

#[test]
fn a_client_whose_runtime_has_ended_says_so() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let main = runtime().block_on(async { keyspace(&[NOBODY]) });
    let put = runtime().block_on(main.put("k", "v"));
    assert!(matches!(&put, Err(Error::Setup(why)) if why.contains("has ended")), "{put:?}");
}

#[tokio::test]
async fn an_abort_that_is_refused_for_a_limit_is_repeated() {
    let node = Node::new("n0");
    let main = keyspace(&[&served(&node).await]);
    let let_go = async || {
        let put = timeout(Duration::from_secs(1), main.put("k", "v")).await;
        assert_eq!(put.expect("nobody holds the key").unwrap(), Written::Done(()));
    };
    node.0.refuses.store(true, SeqCst);
    let failed = main.transaction().write(["k"]).run(async |_| Err::<(), _>(Error::own("no"))).await;
    assert!(matches!(failed, Err(Error::Own(_))), "{failed:?}");
    let_go().await;

    node.0.refuses.store(true, SeqCst);
    drop_begun(&main).await;
    let_go().await;
    assert_eq!(node.aborted().len(), 2);
}

#[tokio::test]
async fn an_error_of_the_closure_is_no_abort_by_the_protocol() {
    let node = Node::new("n0");
    let main = keyspace(&[&served(&node).await]);
    let run = main.transaction().write(["k"]);
    let refused = run
        .run(async |_| Err::<(), _>(Error::Refused { code: Code::Aborted, message: STOPS.to_owned() }))
        .await;
    assert!(matches!(refused, Err(Error::Refused { code: Code::Aborted, .. })), "{refused:?}");
    let run = main.transaction().write(["k"]);
    let gave_up =
        run.run(async |_| Err::<(), _>(Error::GaveUp { reason: Reason::Conflict, tries: 64 })).await;
    assert!(matches!(gave_up, Err(Error::GaveUp { tries: 64, .. })), "{gave_up:?}");
}

#[tokio::test]
async fn a_begin_that_is_dropped_is_given_up_by_its_name() {
    let node = Node::new("n0");
    let main = keyspace(&[&served(&node).await]);
    node.0.silent.store(true, SeqCst);
    tokio::select! {
        ended = main.transaction().write(["k"]).run(async |_| Ok(())) => panic!("{ended:?}"),
        () = until("it begins", || !node.begun().is_empty()) => {}
    }
    let put = timeout(Duration::from_secs(1), main.put("k", "v")).await;
    assert_eq!(put.expect("nobody holds the key").unwrap(), Written::Done(()));
    let name = node.begun().remove(0);
    assert_eq!(name.len(), 16);
    assert_eq!(node.aborted(), [AbortRequest { txn: Bytes::new(), name }]);
}

#[tokio::test]
async fn a_begin_is_repeated_by_its_name_and_given_up_where_it_is_left() {
    let (near, far) = (Node::new("near"), Node::new("far"));
    let (near_address, far_address) = (served(&near).await, served(&far).await);
    near.0.loses.store(true, SeqCst);
    let alone = keyspace(&[&near_address]);
    let outcome = alone.transaction().write(["k"]).run(async |txn| txn.put("k", "v")).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { value: (), at: 1, tries: 2 });
    let begun = near.begun();
    assert_eq!(begun.len(), 2);
    assert_eq!(begun[0], begun[1]);
    assert!(near.aborted().is_empty());

    near.0.loses.store(true, SeqCst);
    let both = keyspace(&[&near_address, &far_address]);
    let outcome = both.transaction().write(["k"]).run(async |txn| txn.put("k", "v")).await.unwrap();
    assert_eq!(outcome, Outcome::Committed { value: (), at: 1, tries: 2 });
    let left = near.begun().pop().unwrap();
    assert_ne!(far.begun(), std::slice::from_ref(&left));
    until("it is given up", || !near.aborted().is_empty()).await;
    assert_eq!(near.aborted(), [AbortRequest { txn: Bytes::new(), name: left }]);
}

#[tokio::test]
async fn what_was_never_sent_is_asked_of_the_next_node() {
    let node = Node::new("n0");
    let main = keyspace(&[NOBODY, &served(&node).await]);
    assert_eq!(main.put("k", "v").await.unwrap(), Written::Done(()));
}

#[tokio::test(start_paused = true)]
async fn where_no_node_can_be_reached_nothing_has_taken_effect() {
    let put = keyspace(&[NOBODY, NOBODY]).put("k", "v").await;
    assert!(matches!(&put, Err(Error::Unreachable(why)) if why.starts_with(NOBODY)), "{put:?}");
}

#[tokio::test]
async fn what_was_sent_on_a_connection_that_breaks_may_have_taken_effect() {
    let node = Node::new("n0");
    let (listener, breaks) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Once all is sent it breaks.
            while timeout(Duration::from_millis(200), stream.readable()).await.is_ok() {
                if matches!(stream.try_read(&mut [0; 1024]), Ok(0)) {
                    break;
                }
            }
        }
    });
    let put = keyspace(&[&breaks, &served(&node).await]).put("k", "v").await;
    assert!(matches!(put, Ok(Written::Unknown(_))), "{put:?}");
    assert_eq!(node.0.puts.load(SeqCst), 0, "it was not repeated");
}

#[tokio::test]
async fn a_node_that_stops_is_left_for_the_next() {
    let (near, far) = (Node::new("near"), Node::new("far"));
    let (near_address, far_address) = (served(&near).await, served(&far).await);
    near.0.stops.store(true, SeqCst);
    // Each has not asked it yet.
    let main = || keyspace(&[&near_address, &far_address]);
    assert_eq!(main().put("k", "v").await.unwrap(), Written::Done(()));
    assert_eq!(main().delete("k").await.unwrap(), Written::Done(true));
    assert_eq!(main().execute(["INCR", "k"]).await.unwrap(), Written::Done(Reply::Null));

    // Where there is no other, what it says is said.
    let alone = Client::connect([near_address]).await.unwrap().keyspace("main");
    let message = PutRequest { keyspace: "main".to_owned(), key: "k".into(), value: "v".into() };
    let put = async |mut caller: Caller, message| caller.put(message).await;
    match call::change(&alone.nodes, Bounds::of(3, TIME), message, put).await {
        Err(Error::Refused { code, message }) => assert_eq!((code, &*message), (Code::Aborted, STOPS)),
        other => panic!("{other:?}"),
    }
    let outcome = alone.transaction().write(["k"]).tries(3).run(async |_| Ok(())).await.unwrap();
    assert_eq!(outcome, Outcome::Aborted { reason: Reason::Unavailable, tries: 3 });
}

#[tokio::test]
async fn the_nearest_node_is_asked_again_once_it_serves() {
    let (near, far) = (Node::new("near"), Node::new("far"));
    let main = keyspace(&[&served(&near).await, &served(&far).await]);
    let asked = async || String::from_utf8(main.get("k").await.unwrap().unwrap().to_vec()).unwrap();
    near.0.stops.store(true, SeqCst);
    main.nodes.avoid(0);
    assert_eq!(asked().await, "far");
    pass(LOOK).await;
    assert_eq!(asked().await, "far");
    until("it is looked at", || near.0.checks.load(SeqCst) == 1).await;
    near.0.stops.store(false, SeqCst);
    assert_eq!(asked().await, "far");
    pass(LOOK).await;
    let start = Instant::now();
    while asked().await != "near" {
        assert!(start.elapsed() < PATIENCE, "it is never asked again");
    }
    assert_eq!(near.0.checks.load(SeqCst), 2);
}

#[tokio::test]
async fn what_one_call_has_come_to_sends_no_other_elsewhere() {
    let (near, far) = (Node::new("near"), Node::new("far"));
    let main = keyspace(&[&served(&near).await, &served(&far).await]);
    let asked = async || String::from_utf8(main.get("k").await.unwrap().unwrap().to_vec()).unwrap();
    // Its own time is over.
    near.0.silent.store(true, SeqCst);
    let run = main.transaction().write(["k"]).within(Duration::from_millis(50)).run(async |_| Ok(()));
    let late = run.await;
    assert!(matches!(late, Err(Error::Unreachable(_))), "{late:?}");
    assert_eq!(asked().await, "near");
    // The node did not take it up.
    near.0.stops.store(true, SeqCst);
    assert_eq!(asked().await, "far");
    near.0.stops.store(false, SeqCst);
    assert_eq!(asked().await, "near");
}

#[tokio::test]
async fn a_silent_node_leaves_time_to_ask_the_next() {
    let node = Node::new("n0");
    // Connections are made, and nobody takes them.
    let (_listener, silent) = listen().await;
    let main = keyspace(&[&silent, &served(&node).await]);
    let run = main.transaction().write(["k"]).within(Duration::from_secs(2)).run(async |_| Ok(()));
    assert_eq!(run.await.unwrap(), Outcome::Committed { value: (), at: 1, tries: 2 });

    let short = Duration::from_millis(50);
    let alone = Client::builder([silent]).keep_alive(short, short).unconnected().unwrap().keyspace("main");
    let put = timeout(PATIENCE, alone.put("k", "v")).await.expect("the connection counts as broken");
    assert!(matches!(put, Ok(Written::Unknown(_))), "{put:?}");
}

#[tokio::test]
async fn who_speaks_no_grpc_is_found_when_connecting() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            stream.writable().await.unwrap();
            // What a server of TLS says of what is none: a fatal alert, of the protocol's version.
            stream.try_write(&[21, 3, 3, 0, 2, 2, 70]).unwrap();
        }
    });
    let start = Instant::now();
    let error = Client::connect([&*address]).await.unwrap_err().to_string();
    assert!(start.elapsed() < CONNECT, "{:?}", start.elapsed());
    assert!(error.starts_with(&format!("no node answers: {address}: ")), "{error}");
    assert!(error.contains("it speaks TLS"), "{error}");
}

/// A server of HTTP/2 that is no node, and knows nothing of what it is asked for.
#[derive(Clone)]
struct Elsewhere;

impl Service<http::Request<Body>> for Elsewhere {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let mut answer = http::Response::new(Body::empty());
        *answer.status_mut() = http::StatusCode::NOT_FOUND;
        ready(Ok(answer))
    }
}

#[tokio::test]
async fn who_is_no_node_is_passed_by_when_connecting() {
    let (listener, elsewhere) = listen().await;
    tokio::spawn(Server::builder().serve_with_incoming(Elsewhere, TcpIncoming::from(listener)));
    let node = Node::new("n0");
    let client = Client::connect([elsewhere.clone(), served(&node).await]).await.unwrap();
    assert_eq!(client.keyspace("main").put("k", "v").await.unwrap(), Written::Done(()));
    let error = Client::connect([elsewhere]).await.unwrap_err().to_string();
    assert!(error.contains("status code 404; name the address of a node's `grpc`"), "{error}");
}
