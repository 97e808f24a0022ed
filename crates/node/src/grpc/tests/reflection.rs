//! Reflection, by whoever reaches the port.

use super::{Background, Board, Duration, Endpoint, Limits, login, page, served, served_on};
use crate::reactor::calls::{Ask, Connection, Said, Token};
use isochrone_core::Span;
use isochrone_proto::v1::BeginRequest;
use isochrone_proto::v1::isochrone_client::IsochroneClient;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

type Client = ServerReflectionClient<Channel>;

/// Nobody is asked who it is.
fn server() -> (Background, Arc<Board>, String) {
    let board = Arc::new(Board::new(Arc::default()));
    // Longer than the test takes.
    let limits = Limits { login_time: Span::from_secs(600), ..Limits::default() };
    let (server, address) =
        served_on(Arc::clone(&board), None, limits, None, |_| panic!("the shard is asked"));
    (server, board, address)
}

fn endpoint(address: &str) -> Endpoint {
    Endpoint::from_shared(address.to_owned()).unwrap()
}

async fn client(address: &str) -> Client {
    Client::new(endpoint(address).connect().await.unwrap())
}

fn run<T>(client: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        tokio::time::timeout(Duration::from_secs(60), client).await.expect("an answer in time")
    })
}

fn about(message: MessageRequest) -> ServerReflectionRequest {
    ServerReflectionRequest { host: String::new(), message_request: Some(message) }
}

/// The answer to one question, in a stream of its own.
async fn told(client: &mut Client, message: MessageRequest) -> Result<MessageResponse, Status> {
    let asked = tokio_stream::iter([about(message)]);
    let mut answers = client.server_reflection_info(asked).await?.into_inner();
    let answer = answers.message().await?.expect("one answer");
    assert_eq!(answers.message().await?, None);
    Ok(answer.message_response.expect("it says something"))
}

/// A stream on which nothing is asked, and which ends when its first half is let go of.
async fn open(client: &mut Client) -> Result<(Asking, Streaming<ServerReflectionResponse>), Status> {
    let (asking, asked) = tokio::sync::mpsc::channel(1);
    let answers = client.server_reflection_info(ReceiverStream::new(asked)).await?.into_inner();
    Ok((asking, answers))
}

type Asking = tokio::sync::mpsc::Sender<ServerReflectionRequest>;

const SERVICES: [&str; 4] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "isochrone.v1.Isochrone",
];

#[test]
fn whoever_asks_is_told_the_services_and_their_messages() {
    let (_server, board, address) = server();
    run(async {
        let mut client = client(&address).await;
        let answer = told(&mut client, MessageRequest::ListServices(String::new())).await.unwrap();
        let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
        let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        names.sort();
        assert_eq!(names, SERVICES);
        // The file of each, and that of a message, comes with what it says of itself.
        let symbols =
            SERVICES.iter().zip(["SERVICE_UNKNOWN", "file_by_filename", "host", "Begins a transaction"]);
        for (symbol, holds) in symbols.chain([(&"isochrone.v1.BeginRequest", "The keys to read, each once")])
        {
            let asked = MessageRequest::FileContainingSymbol((*symbol).to_owned());
            let answer = told(&mut client, asked).await.unwrap();
            let MessageResponse::FileDescriptorResponse(files) = answer else { panic!("{answer:?}") };
            let [file] = files.file_descriptor_proto.as_slice() else { panic!("{files:?}") };
            assert!(file.windows(holds.len()).any(|part| part == holds.as_bytes()), "{symbol}: {holds}");
        }
        let nothing = MessageRequest::FileContainingSymbol("isochrone.v1.Other".to_owned());
        assert_eq!(told(&mut client, nothing).await.unwrap_err().code(), Code::NotFound);

        // Tools of before ask in this way.
        let list = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
        let asked = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
        let channel = endpoint(&address).connect().await.unwrap();
        let mut before = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
        let mut answers =
            before.server_reflection_info(tokio_stream::iter([asked])).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().unwrap().message_response;
        let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) = answer
        else {
            panic!("{answer:?}")
        };
        assert_eq!(list.service.len(), SERVICES.len());
    });
    let page = page(&board.metrics);
    assert!(page.contains("{method=\"ServerReflectionInfo\",outcome=\"ok\"} 8\n"), "{page}");
    assert!(page.contains("isochrone_grpc_calls_in_flight 0\n"), "{page}");
}

#[test]
fn so_many_streams_are_open_at_once() {
    let (_server, board, address) = server();
    run(async {
        let (mut streams, mut others) = (Vec::new(), Vec::new());
        let mut first = client(&address).await;
        for _ in 0..2 {
            streams.push(open(&mut first).await.unwrap());
        }
        let full = open(&mut first).await.unwrap_err();
        assert_eq!(full.code(), Code::ResourceExhausted, "{full:?}");
        assert!(
            full.message().starts_with("2 streams of reflection are open on this connection"),
            "{full:?}"
        );
        // Those of all connections.
        let full = loop {
            let mut other = client(&address).await;
            match open(&mut other).await {
                Ok(stream) => streams.push(stream),
                Err(full) => break full,
            }
            others.push(other);
        };
        assert_eq!((full.code(), streams.len()), (Code::ResourceExhausted, 64), "{full:?}");
        streams.clear();
        // It is noticed that they have left.
        while told(&mut first, MessageRequest::ListServices(String::new())).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    let page = page(&board.metrics);
    assert!(page.contains("isochrone_grpc_limit_reached_total{limit=\"reflections\"} "), "{page}");
}

/// A server that waits for nobody for long, and the connections on which a transaction begins.
fn with_users() -> (Background, Receiver<Connection>, String) {
    let (begun, connections) = std::sync::mpsc::channel();
    let limits = Limits { login_time: Span::from_millis(50), ..Limits::default() };
    let (server, _metrics, address) = served(limits, move |ask| {
        Some(login(ask).unwrap_or_else(|ask| match ask {
            Ask::Begin { on, .. } => {
                begun.send(on).unwrap();
                Ok(Said::Begun { txn: Token { life: 7, number: 9 }, reads: Vec::new() })
            }
            _ => unreachable!("it only begins"),
        }))
    });
    (server, connections, address)
}

async fn begin(channel: &Channel) -> Result<(), Status> {
    let keyspace = "bank".to_owned();
    let request = BeginRequest { keyspace, writes: vec!["b".into()], ..Default::default() };
    IsochroneClient::new(channel.clone()).begin(request).await.map(drop)
}

#[test]
fn a_stream_ends_in_time_and_its_connection_goes_on() {
    let (_server, connections, address) = with_users();
    run(async {
        let channel = endpoint(&address).connect().await.unwrap();
        begin(&channel).await.unwrap();
        let connection = connections.recv().unwrap();
        let (_asking, mut stream) = open(&mut Client::new(channel.clone())).await.unwrap();
        assert_eq!(stream.message().await.unwrap(), None);
        begin(&channel).await.unwrap();
        assert!(!connection.is_closed());
    });
}

#[test]
fn who_does_not_read_what_it_has_asked_loses_its_connection() {
    let (_server, connections, address) = with_users();
    run(async {
        let endpoint = endpoint(&address).initial_stream_window_size(1 << 10);
        let channel = endpoint.connect().await.unwrap();
        begin(&channel).await.unwrap();
        let asked = about(MessageRequest::FileContainingSymbol("isochrone.v1.Isochrone".to_owned()));
        let mut client = Client::new(channel.clone());
        let unread = client.server_reflection_info(tokio_stream::iter([asked])).await.unwrap();
        let connection = connections.recv().unwrap();
        while !connection.is_closed() {
            // It is looked at whenever something comes.
            let _ = begin(&channel).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(unread);
    });
}
