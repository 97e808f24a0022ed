//! `grpc.reflection`, version 1 and the one before: which services a node has, and how their messages look, for tools that
//! were given no `.proto`.
//!
//! The schema is published, so it is told to whoever reaches the port, as health is. What that costs is bounded: so many
//! streams at once, on each connection and on all of them, each for so long; and where nobody logs in, a connection ends as
//! every other does.

use super::pieces::Pieces;
use super::socket::{Peer, REFLECTIONS};
use bytes::Bytes;
use isochrone_proto::DESCRIPTORS;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _, http};
use tonic_reflection::pb::{v1, v1alpha};
use tonic_reflection::server::{Builder, Error};

/// What the paths of all methods begin with.
const V1: &str = "/grpc.reflection.v1.ServerReflection/";
const V1ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/";
/// The longest request that is read, bytes: names are short.
const REQUEST_MAX: usize = 4 << 10;
/// So many streams are open at once, on all connections: of answers that are not read, each may hold tens of KiB.
const PLACES: usize = 64;
/// An answer leaves in pieces of so many bytes, shorter than most answers: the stream of one that is not read stays open here.
const PIECE: usize = 4 << 10;

/// A call that is answered.
pub(super) type Answer = BoxFuture<http::Response<Body>, Infallible>;
type Answers = Arc<dyn Fn(http::Request<Body>) -> Answer + Send + Sync>;

/// Answers what is asked about the services.
#[derive(Clone)]
pub(super) struct Reflection {
    v1: Answers,
    v1alpha: Answers,
    places: Arc<Semaphore>,
    time: Duration,
}

impl Reflection {
    /// Of a node on which nobody keeps a stream for longer than this.
    ///
    /// # Errors
    /// The descriptors that the program was built with are none.
    pub(super) fn new(time: Duration) -> Result<Reflection, Error> {
        let builder = || {
            Builder::configure()
                .include_reflection_service(false)
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(v1alpha::FILE_DESCRIPTOR_SET)
        };
        let now = builder().build_v1()?.max_decoding_message_size(REQUEST_MAX);
        let before = builder().build_v1alpha()?.max_decoding_message_size(REQUEST_MAX);
        Ok(Reflection {
            v1: Arc::new(move |request: http::Request<Body>| now.clone().call(request)),
            v1alpha: Arc::new(move |request: http::Request<Body>| before.clone().call(request)),
            places: Arc::new(Semaphore::new(PLACES)),
            time,
        })
    }

    /// Whether it is asked by a call of this path.
    pub(super) fn is_asked(path: &str) -> bool {
        path.starts_with(V1) || path.starts_with(V1ALPHA)
    }

    /// Answers one stream of questions, on this connection.
    ///
    /// # Errors
    /// Why not: as many are open as may be.
    pub(super) fn answer(&self, peer: Option<&Peer>, request: http::Request<Body>) -> Result<Answer, String> {
        let own = peer.map(|peer| {
            peer.reflection().ok_or_else(|| {
                format!(
                    "{REFLECTIONS} streams of reflection are open on this connection already; end one first"
                )
            })
        });
        let own = own.transpose()?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            "too many ask this node for its services at once; try again shortly, or give the tool the .proto"
                .to_owned()
        })?;
        let (open, ended) = oneshot::channel();
        if let Some(peer) = peer.cloned() {
            let time = self.time.saturating_mul(2);
            tokio::spawn(async move {
                if tokio::time::timeout(time, ended).await.is_err() {
                    peer.ends("it does not read what it has asked about the services");
                }
            });
        }
        let held = Arc::new(Held { _own: own, _place: place, _open: open });
        let answers = if request.uri().path().starts_with(V1) { &self.v1 } else { &self.v1alpha };
        // Behind its end nothing more is asked: what was, is answered, and that ends the answer.
        let end = Box::pin(tokio::time::sleep(self.time));
        let asked = request.map(|body| Body::new(Lasting { body, end, _held: Arc::clone(&held) }));
        let answer = answers(asked);
        Ok(Box::pin(async move {
            let response = answer.await?;
            Ok(response.map(|body| Pieces::of(body, PIECE, held)))
        }))
    }
}

/// What a stream takes, until both its sides have ended.
struct Held {
    _own: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
    /// Dropped with the stream.
    _open: oneshot::Sender<()>,
}

/// What is asked, which ends by this time at the latest.
struct Lasting {
    body: Body,
    end: Pin<Box<Sleep>>,
    _held: Arc<Held>,
}

impl http_body::Body for Lasting {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let me = self.get_mut();
        if me.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut me.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
