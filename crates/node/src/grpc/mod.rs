//! Transactions and single commands over gRPC (`proto/isochrone/v1/isochrone.proto`), on a port and a thread of their own.
//!
//! * [`socket`] is one connection, with TLS or without, and the time it has to log in.
//! * [`guard`] stands before every call: how many there may be, who asks, what is counted. No byte of a message is read
//!   before its sender is known.
//! * [`held`] counts what clients make the node hold.
//! * [`service`] turns messages into calls of the shard and its answers into messages; [`value`] a reply in RESP3.
//! * [`health`] tells whoever asks whether the node serves, and [`reflection`] what it serves.
//!
//! Every call reaches the shard by a bounded queue and a waker, and is answered once. Transactions between two calls are
//! kept there ([`crate::reactor::calls`]).

mod guard;
mod health;
mod held;
mod pieces;
mod reflection;
mod service;
mod socket;
#[cfg(test)]
mod tests;
mod value;

use crate::audit::Audit;
use crate::background::Background;
use crate::limits::Limits;
use crate::metrics::NodeMetrics;
use crate::reactor::Board;
use crate::reactor::calls::Line;
use guard::{Guard, Open};
use health::Checks;
use isochrone_proto::health::HealthServer;
use isochrone_proto::v1::isochrone_server::IsochroneServer;
use reflection::Reflection;
use ring::hmac;
use rustls::ServerConfig;
use service::Service;
use socket::{Peer, Socket};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

/// How long answers may take to leave when the node stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a silent client is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// After a failed accept (no file is left, as a rule) the listener rests.
const REST: Duration = Duration::from_millis(100);

/// What the server serves with.
pub(crate) struct State {
    pub line: Line,
    pub limits: Limits,
    pub metrics: Arc<NodeMetrics>,
    /// How the node stands.
    pub board: Arc<Board>,
    /// The names of its keyspaces.
    pub keyspaces: Vec<String>,
    /// What clients are shown, and may be renewed; in plain text where there is nothing.
    pub tls: Option<Arc<Mutex<Arc<ServerConfig>>>>,
    /// What users are remembered under.
    pub key: hmac::Key,
    /// Where it is kept who logs in and what is denied, where that is kept.
    pub audit: Option<Audit>,
}

/// Begins to serve; when the server is dropped, what was answered leaves first.
pub(crate) fn start(socket: std::net::TcpListener, state: State) -> std::io::Result<Background> {
    let login_time = Duration::from_nanos(state.limits.login_time.as_nanos());
    let reflection = Reflection::new(login_time).map_err(std::io::Error::other)?;
    Background::start("grpc", socket, |listener, stopped| {
        serve(listener, Arc::new(state), reflection, stopped)
    })
}

async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    reflection: Reflection,
    stopped: oneshot::Receiver<()>,
) {
    let limits = &state.limits;
    let service = Service::new(state.line.clone(), limits, state.audit.clone());
    let inner = IsochroneServer::new(service)
        .max_decoding_message_size(limits.command_bytes)
        .max_encoding_message_size(usize::MAX);
    let most = (limits.requests, limits.command_bytes, limits.output_bytes);
    let (running, ending) = watch::channel(());
    let (board, keyspaces, metrics) = (Arc::clone(&state.board), state.keyspaces.clone(), &state.metrics);
    let checks = Checks::new(board, keyspaces, limits.clients, Arc::clone(metrics), ending);
    let (line, key, audit) = (state.line.clone(), state.key.clone(), state.audit.clone());
    let open = Open { health: HealthServer::new(checks), reflection };
    let guard = Guard::new(inner, open, line, most, key, Arc::clone(metrics), audit);
    let streams = u32::try_from(limits.pipeline).unwrap_or(u32::MAX);
    let headers = u32::try_from(limits.login_input_bytes).unwrap_or(u32::MAX);
    let (accepted, incoming) = mpsc::channel::<std::io::Result<Socket>>(limits.handshakes);
    let door = tokio::spawn(accept(listener, Arc::clone(&state), accepted));
    let (told, ended) = oneshot::channel::<()>();
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(streams)
        .http2_max_header_list_size(headers)
        .http2_keepalive_interval(Some(KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(KEEP_ALIVE.1))
        .serve_with_incoming_shutdown(guard, ReceiverStream::new(incoming), async {
            let _ = ended.await;
        });
    let mut server = std::pin::pin!(server);
    tokio::select! {
        outcome = &mut server => {
            if let Err(error) = outcome {
                tracing::error!(%error, "the gRPC server has stopped");
            }
            return;
        }
        // The sender is dropped to stop.
        _ = stopped => {}
    }
    door.abort();
    drop((running, told));
    // Connections that do not end by then are cut.
    let _ = tokio::time::timeout(FAREWELL, server).await;
}

/// Takes connections in, as many as there may be, those in the handshake of TLS among them.
async fn accept(listener: TcpListener, state: Arc<State>, accepted: mpsc::Sender<std::io::Result<Socket>>) {
    let connections = Arc::new(Semaphore::new(state.limits.clients.min(Semaphore::MAX_PERMITS)));
    let grace = Duration::from_nanos(state.limits.login_time.as_nanos());
    let handshake_time = Duration::from_nanos(state.limits.handshake_time.as_nanos());
    let metrics = &state.metrics.grpc;
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(pair) => pair,
            Err(error) => {
                tracing::warn!(%error, "a gRPC client could not be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            metrics.limited("clients");
            continue;
        };
        let _ = stream.set_nodelay(true);
        let seat = socket::Seat::new(permit, Arc::clone(&state.metrics));
        let peer = Peer::new(address.ip(), state.limits.login_commands);
        let Some(tls) = &state.tls else {
            if accepted.send(Ok(Socket::plain(stream, peer, grace, seat))).await.is_err() {
                return;
            }
            continue;
        };
        let tls = speaks_http2(&tls.lock().unwrap_or_else(PoisonError::into_inner));
        let accepted = accepted.clone();
        tokio::spawn(async move {
            let done = tokio::time::timeout(handshake_time, shake(tls, stream)).await;
            match done {
                Ok(Ok(stream)) => {
                    // The server has ended where nobody takes it.
                    let _ = accepted.send(Ok(Socket::tls(stream, peer, grace, seat))).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, %address, "a gRPC client's TLS handshake failed"),
                Err(_) => tracing::debug!(%address, "a gRPC client's TLS handshake took too long"),
            }
        });
    }
}

async fn shake(
    tls: Arc<ServerConfig>,
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    TlsAcceptor::from(tls).accept(stream).await
}

/// What Redis clients are shown, for clients that agree on HTTP/2 in the handshake.
fn speaks_http2(shown: &Arc<ServerConfig>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(shown);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// What is counted of the server.
#[derive(Default)]
pub struct GrpcMetrics {
    calls: Mutex<std::collections::BTreeMap<(&'static str, &'static str), u64>>,
    limited: Mutex<std::collections::BTreeMap<&'static str, u64>>,
    /// How long calls took, by [`METHODS`].
    pub(crate) durations: [crate::metrics::Histogram; METHODS.len()],
    /// Calls under way.
    pub(crate) in_flight: std::sync::atomic::AtomicU64,
    /// Connections.
    pub(crate) connections: std::sync::atomic::AtomicU64,
    /// Transactions that are open between two calls.
    pub(crate) open: std::sync::atomic::AtomicU64,
    /// Bytes that clients make the node hold: requests that are not whole, and answers that they leave unread.
    pub(crate) held: std::sync::atomic::AtomicU64,
}

/// The methods, and a place for what is none.
pub(crate) const METHODS: [&str; 11] = [
    "Begin",
    "Commit",
    "Abort",
    "Get",
    "Put",
    "Delete",
    "Execute",
    "Check",
    "Watch",
    "ServerReflectionInfo",
    "other",
];

impl GrpcMetrics {
    pub(crate) fn limited(&self, limit: &'static str) {
        *self.limited.lock().unwrap_or_else(PoisonError::into_inner).entry(limit).or_default() += 1;
    }

    pub(crate) fn called(&self, method: usize, outcome: &'static str, took: Duration) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry((METHODS[method], outcome)).or_default() += 1;
        drop(calls);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.durations[method].record(isochrone_core::Span::from_nanos(nanos));
    }

    /// Adds what there is to the page.
    pub(crate) fn show(&self, page: &mut crate::metrics::Page) {
        let gauges = [
            ("isochrone_grpc_connections", "Connections of gRPC clients.", &self.connections),
            ("isochrone_grpc_calls_in_flight", "Calls of gRPC clients under way.", &self.in_flight),
            (
                "isochrone_grpc_transactions_open",
                "Transactions that gRPC clients have begun and not ended.",
                &self.open,
            ),
        ];
        for (name, help, value) in gauges {
            page.value(name, "gauge", help, &[], value.load(Relaxed) as f64);
        }
        for ((method, outcome), count) in self.calls.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            page.value(
                "isochrone_grpc_calls_total",
                "counter",
                "Calls of gRPC clients, by how they ended.",
                &[("method", method), ("outcome", outcome)],
                *count as f64,
            );
        }
        for (limit, count) in self.limited.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            page.value(
                "isochrone_grpc_limit_reached_total",
                "counter",
                "Times that gRPC clients met a limit.",
                &[("limit", limit)],
                *count as f64,
            );
        }
        for (method, histogram) in METHODS.iter().zip(&self.durations) {
            let counts = histogram.read();
            if counts.count() > 0 {
                page.histogram(
                    "isochrone_grpc_call_duration_seconds",
                    "From a call of a gRPC client to its answer.",
                    &[("method", method)],
                    &counts,
                );
            }
        }
    }
}
