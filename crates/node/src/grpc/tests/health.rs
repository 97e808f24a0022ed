//! Health checks, by whoever reaches the port.

use super::{Background, Board, Duration, Endpoint, Limits, Request, is_cut_off, page, served_on, under_way};
use crate::figures::Figures;
use crate::gateway::Counters;
use crate::reactor::{KeyspaceStatus, Status};
use isochrone_core::{Guarantee, Span};
use isochrone_proto::health::{HealthCheckRequest, HealthClient, ServingStatus};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tonic::body::Body;
use tonic::codegen::{Bytes, Service, http};
use tonic::transport::Channel;
use tonic::{Code, Streaming};

/// Nobody is asked who it is.
fn server(limits: Limits) -> (Background, Arc<Board>, String) {
    let board = Arc::new(Board::new(Arc::default()));
    let (server, address) =
        served_on(Arc::clone(&board), None, limits, None, |_| panic!("the shard is asked"));
    (server, board, address)
}

/// The node stands so, and its keyspace.
fn stands(board: &Board, able: bool, ready: bool) {
    let keyspace = KeyspaceStatus {
        id: 1,
        name: "main".to_owned(),
        index: 0,
        protocol: "some",
        guarantee: Guarantee::Linearizable,
        leader: None,
        leader_region: None,
        leaders: Vec::new(),
        chosen: false,
        replicas: 1,
        members: Vec::new(),
        spares: Vec::new(),
        reachable: (1, 1),
        awaited: Vec::new(),
        cut_off: Vec::new(),
        full: Vec::new(),
        ready,
        applied: None,
        moving: Vec::new(),
        recent: Figures::default(),
        bound_ms: None,
    };
    let status = Status { ready: able && ready, able, keyspaces: vec![keyspace], ..Status::default() };
    board.post(status, Counters::default(), Instant::now());
}

fn about(service: &str) -> Request<HealthCheckRequest> {
    Request::new(HealthCheckRequest { service: service.to_owned() })
}

async fn client(address: &str) -> HealthClient<Channel> {
    HealthClient::new(Endpoint::from_shared(address.to_owned()).unwrap().connect().await.unwrap())
}

async fn next(watched: &mut Streaming<isochrone_proto::health::HealthCheckResponse>) -> ServingStatus {
    watched.message().await.unwrap().expect("it goes on").status()
}

fn run<T>(client: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        tokio::time::timeout(Duration::from_secs(60), client).await.expect("an answer in time")
    })
}

#[test]
fn whoever_asks_is_told_whether_the_node_and_each_keyspace_serve() {
    let (_server, board, address) = server(Limits::default());
    run(async {
        let mut client = client(&address).await;
        let names = ["", "isochrone.v1.Isochrone", "main"];
        // Nothing was told yet; all is well; the disk hangs, or the node stops; no quorum.
        for state in [None, Some((true, true)), Some((false, true)), Some((true, false))] {
            if let Some((able, ready)) = state {
                stands(&board, able, ready);
            }
            let serves = state == Some((true, true));
            let expected = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
            for name in names {
                let found = client.check(about(name)).await.unwrap().into_inner().status();
                assert_eq!(found, expected, "{name:?} {state:?}");
            }
            assert_eq!(client.check(about("other")).await.unwrap_err().code(), Code::NotFound);
        }
        let long = client.check(about(&"x".repeat(5_000))).await.unwrap_err();
        assert_eq!(long.code(), Code::OutOfRange, "{long:?}");
    });
    let page = page(&board.metrics);
    for line in ["{method=\"Check\",outcome=\"ok\"} 12\n", "{method=\"Check\",outcome=\"not_found\"} 4\n"] {
        assert!(page.contains(line), "{line}{page}");
    }
    assert!(page.contains("isochrone_grpc_calls_in_flight 0\n"), "{page}");
}

#[test]
fn who_watches_is_told_of_every_change_until_the_node_stops() {
    let (server, board, address) = server(Limits::default());
    run(async {
        let mut client = client(&address).await;
        let mut main = client.watch(about("main")).await.unwrap().into_inner();
        let mut other = client.watch(about("other")).await.unwrap().into_inner();
        assert_eq!(next(&mut main).await, ServingStatus::NotServing);
        assert_eq!(next(&mut other).await, ServingStatus::ServiceUnknown);
        for (ready, told) in [(true, ServingStatus::Serving), (false, ServingStatus::NotServing)] {
            stands(&board, true, ready);
            assert_eq!(next(&mut main).await, told);
        }
        tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
        for watched in [&mut main, &mut other] {
            assert_eq!(watched.message().await.unwrap_err().code(), Code::Unavailable);
        }
    });
}

#[test]
fn no_more_watch_than_may() {
    let (_server, board, address) = server(Limits { clients: 8, ..Limits::default() });
    run(async {
        let mut client = client(&address).await;
        let mut watched = Vec::new();
        for _ in 0..2 {
            watched.push(client.watch(about("")).await.unwrap());
        }
        let full = client.watch(about("")).await.unwrap_err();
        assert_eq!(full.code(), Code::ResourceExhausted, "{full:?}");
        assert!(full.message().starts_with("too many watch"), "{full:?}");
        client.check(about("")).await.unwrap();
        watched.pop();
        // It is noticed that one has left.
        while client.watch(about("")).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    let page = page(&board.metrics);
    assert!(page.contains("isochrone_grpc_limit_reached_total{limit=\"watches\"} "), "{page}");
}

#[test]
fn one_connection_takes_no_place_of_those_who_watch_on_another() {
    let (_server, board, address) = server(Limits::default());
    run(async {
        let (mut one, mut other) = (client(&address).await, client(&address).await);
        let mut watched = Vec::new();
        for _ in 0..8 {
            watched.push(one.watch(about("")).await.unwrap());
        }
        let full = one.watch(about("")).await.unwrap_err();
        assert_eq!(full.code(), Code::ResourceExhausted, "{full:?}");
        assert!(full.message().starts_with("8 watch on this connection"), "{full:?}");
        other.watch(about("")).await.unwrap();
        one.check(about("")).await.unwrap();
        watched.pop();
        // It is noticed that one has left.
        while one.watch(about("")).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    let page = page(&board.metrics);
    assert!(page.contains("isochrone_grpc_limit_reached_total{limit=\"watches\"} "), "{page}");
}

/// A message whose end never comes.
struct Unended;

impl http_body::Body for Unended {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, tonic::Status>>> {
        Poll::Pending
    }
}

/// A check that is never sent whole: its status, where it is answered all the same.
async fn begin(mut channel: Channel) -> String {
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let request =
        http::Request::post("/grpc.health.v1.Health/Check").header("content-type", "application/grpc");
    let answer = channel.call(request.body(Body::new(Unended)).unwrap()).await.unwrap();
    answer.headers()["grpc-status"].to_str().unwrap().to_owned()
}

#[test]
fn checks_that_are_not_sent_whole_take_places_of_their_own_connection_only() {
    let limits = Limits { login_commands: 1, requests: 1, ..Limits::default() };
    let (_server, board, address) = server(limits);
    run(async {
        let channel = Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap();
        let first = tokio::spawn(begin(channel.clone()));
        under_way(&board.metrics, 1).await;
        // Not that which all connections share.
        assert_eq!(begin(channel).await, (Code::ResourceExhausted as i32).to_string());
        client(&address).await.check(about("")).await.unwrap();
        first.abort();
    });
    let page = page(&board.metrics);
    assert!(page.contains("isochrone_grpc_limit_reached_total{limit=\"login_commands\"} 1\n"), "{page}");
}

/// Nobody logs in on either connection.
#[test]
fn who_watches_is_waited_for_and_who_has_asked_once_is_not() {
    let login_time = Span::from_millis(50);
    let (_server, board, address) = server(Limits { login_time, ..Limits::default() });
    run(async {
        let mut watcher = client(&address).await;
        let mut watched = watcher.watch(about("")).await.unwrap().into_inner();
        assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
        let mut client = client(&address).await;
        client.check(about("")).await.unwrap();
        // This one came later.
        tokio::task::spawn_blocking(move || is_cut_off(&address)).await.unwrap();
        while !page(&board.metrics).contains("isochrone_grpc_connections 1\n") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stands(&board, true, true);
        assert_eq!(next(&mut watched).await, ServingStatus::Serving);
        drop(watched);
        while !page(&board.metrics).contains("isochrone_grpc_connections 0\n") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}
