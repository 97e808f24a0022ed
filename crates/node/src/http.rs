//! Metrics, health, status and administration over HTTP, on a port and a thread of their own.
//!
//! Reading is open to whoever reaches the port. Changing anything needs the node's token, comes from
//! loopback only, and never from a page of another origin (`trust.md` S17).

use crate::limits::Limits;
use crate::metrics::{PATHS, Page};
use crate::node::Orders;
use crate::protocols::Administration;
use crate::reactor::{Board, Control, Responder};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use isochrone_core::{KeyspaceId, NodeId, Phase, ProcessId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an order may take.
const ORDER_TIME: Duration = Duration::from_secs(10);
/// The largest body of a request, bytes.
const BODY_MAX: usize = 16 << 10;

/// What the server shows and whom it asks.
pub(crate) struct State {
    pub board: Arc<Board>,
    pub orders: Orders,
    pub limits: Limits,
    pub keyspaces: BTreeMap<String, KeyspaceId>,
    pub nodes: BTreeMap<String, NodeId>,
    pub admin_token: Option<String>,
}

/// The server's thread; dropped, it ends.
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(socket: std::net::TcpListener, state: State) -> std::io::Result<Server> {
        socket.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(socket)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let router = router(Arc::new(state)).into_make_service_with_connect_info::<SocketAddr>();
        let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    outcome = axum::serve(listener, router) => {
                        if let Err(error) = outcome {
                            tracing::error!(%error, "the HTTP server has stopped");
                        }
                    }
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Server { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/admin/move-leader", post(move_leader))
        .route("/admin/add-replica", post(add_replica))
        .route("/admin/remove-replica", post(remove_replica))
        .route("/admin/stop-process", post(stop_process))
        .route("/admin/stop", post(stop))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
        .with_state(state)
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let mut text = page(&state);
    // Each metric is bounded by the deployment; this is for a deployment that nobody expected.
    let mut series = 0;
    let cut = text.split_inclusive('\n').take_while(|line| {
        series += usize::from(!line.starts_with('#'));
        series <= state.limits.metric_series
    });
    let kept = cut.map(str::len).sum();
    text.truncate(kept);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn status(Shared(state): Shared<Arc<State>>) -> Response {
    match serde_json::to_string_pretty(&*state.board.status()) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn ready(Shared(state): Shared<Arc<State>>) -> (StatusCode, String) {
    let status = state.board.status();
    let mut text = String::new();
    for keyspace in &status.keyspaces {
        let (reachable, all) = keyspace.reachable;
        let word = if keyspace.ready { "ready" } else { "no quorum" };
        text += &format!("{}: {word}, {reachable} of {all} replicas reachable\n", keyspace.name);
    }
    (if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

/// What orders about replicas carry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    /// The keyspace's name.
    keyspace: String,
    /// The node's name.
    node: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    process: ProcessId,
}

type Call = (Shared<Arc<State>>, ConnectInfo<SocketAddr>, HeaderMap, Bytes);

async fn move_leader(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    about((shared, from, headers, body), Administration::MoveLeader).await
}

async fn add_replica(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    about((shared, from, headers, body), Administration::AddReplica).await
}

async fn remove_replica(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    about((shared, from, headers, body), Administration::RemoveReplica).await
}

async fn stop_process(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let state = match allowed(&shared.0, &from.0, &headers) {
        Ok(state) => state,
        Err(refusal) => return refusal.into_response(),
    };
    match serde_json::from_slice::<Which>(&body) {
        Ok(Which { process }) => order(state, |respond| Control::StopProcess(process, respond)).await,
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn stop(shared: Shared<Arc<State>>, from: ConnectInfo<SocketAddr>, headers: HeaderMap) -> Response {
    let outcome = allowed(&shared.0, &from.0, &headers).map(|state| state.orders.send(Control::Stop));
    match outcome {
        Ok(Ok(())) => (StatusCode::ACCEPTED, "stopping\n").into_response(),
        Ok(Err(error)) => (StatusCode::CONFLICT, format!("{error}\n")).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn about((shared, from, headers, body): Call, what: fn(NodeId) -> Administration) -> Response {
    let state = match allowed(&shared.0, &from.0, &headers) {
        Ok(state) => state,
        Err(refusal) => return refusal.into_response(),
    };
    let bad = |why: String| (StatusCode::BAD_REQUEST, why).into_response();
    let About { keyspace, node } = match serde_json::from_slice(&body) {
        Ok(about) => about,
        Err(error) => return bad(format!("{error}; send {{\"keyspace\": \"...\", \"node\": \"...\"}}\n")),
    };
    let Some(keyspace) = state.keyspaces.get(&keyspace).copied() else {
        return bad(format!("there is no keyspace {keyspace:?}\n"));
    };
    let Some(node) = state.nodes.get(&node).copied() else {
        return bad(format!("there is no node {node:?}\n"));
    };
    order(state, |respond| Control::Administer(keyspace, what(node), respond)).await
}

/// Whether this caller may change anything.
fn allowed<'a>(
    state: &'a State,
    from: &SocketAddr,
    headers: &HeaderMap,
) -> Result<&'a State, (StatusCode, String)> {
    let refuse = |why: &str| Err((StatusCode::FORBIDDEN, format!("{why}\n")));
    if !from.ip().is_loopback() {
        return refuse("administration is served on loopback only");
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let origin = text(header::ORIGIN);
    if !origin.is_empty() && origin.split("://").nth(1) != Some(text(header::HOST)) {
        return refuse("pages of another origin may change nothing");
    }
    let Some(token) = &state.admin_token else {
        return refuse("this node was started without an administration token");
    };
    let shown = text(header::AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default();
    if !equal(shown.as_bytes(), token.as_bytes()) {
        return Err((StatusCode::UNAUTHORIZED, "send the header Authorization: Bearer <token>\n".to_owned()));
    }
    Ok(state)
}

/// Compares in a time that depends on the lengths only.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

async fn order(state: &State, order: impl FnOnce(Responder) -> Control) -> Response {
    let (answer, answered) = oneshot::channel();
    let respond: Responder = Box::new(move |outcome| drop(answer.send(outcome)));
    let outcome = match state.orders.send(order(respond)) {
        Err(error) => Err(error),
        Ok(()) => match tokio::time::timeout(ORDER_TIME, answered).await {
            Ok(Ok(outcome)) => outcome,
            _ => Err("no answer; it may still happen".to_owned()),
        },
    };
    match outcome {
        Ok(text) => (StatusCode::OK, format!("{text}\n")).into_response(),
        Err(text) => (StatusCode::CONFLICT, format!("{text}\n")).into_response(),
    }
}

/// The page of `/metrics`.
fn page(state: &State) -> String {
    let (metrics, status, counters) = (&state.board.metrics, state.board.status(), state.board.counters());
    let mut page = Page::default();
    let number = |flag: bool| if flag { 1.0 } else { 0.0 };
    let gauge = "gauge";
    let counter = "counter";
    page.value(
        "isochrone_build_info",
        gauge,
        "The version that runs.",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1.0,
    );
    page.value("isochrone_uptime_seconds", gauge, "Since this start.", &[], status.uptime_seconds as f64);
    page.value(
        "isochrone_unsafe_fsync_off",
        gauge,
        "1 where acknowledged writes are UNSAFE: fsync is off.",
        &[],
        number(status.unsafe_fsync_off),
    );
    page.value(
        "isochrone_ready",
        gauge,
        "Whether every keyspace has a reachable quorum.",
        &[],
        number(status.ready),
    );

    for keyspace in &metrics.keyspaces {
        for (path, histogram) in PATHS.iter().zip(&keyspace.commits) {
            let counts = histogram.read();
            if counts.count() > 0 {
                let labels = [
                    ("keyspace", keyspace.name.as_str()),
                    ("protocol", keyspace.protocol),
                    ("path", path.name()),
                    ("origin_region", keyspace.region.as_str()),
                ];
                page.histogram(
                    "isochrone_commit_duration_seconds",
                    "From a command's request to its commit.",
                    &labels,
                    &counts,
                );
            }
        }
    }
    for keyspace in &metrics.keyspaces {
        for (phase, histogram) in Phase::ALL.iter().zip(&keyspace.phases) {
            let labels = [("keyspace", keyspace.name.as_str()), ("phase", phase.name())];
            page.histogram(
                "isochrone_commit_phase_seconds",
                "Where that time went; phases sum to the whole.",
                &labels,
                &histogram.read(),
            );
        }
    }
    for keyspace in &metrics.keyspaces {
        let labels = [("keyspace", keyspace.name.as_str()), ("origin_region", keyspace.region.as_str())];
        page.histogram(
            "isochrone_command_duration_seconds",
            "From a client's command to its answer.",
            &labels,
            &keyspace.commands.read(),
        );
    }
    type Read = fn(&crate::metrics::KeyspaceMetrics) -> u64;
    let counts: [(&'static str, &str, &str, Read); 6] = [
        ("isochrone_commands_refused_total", counter, "Commands that had no effect.", |k| {
            k.refused.load(Relaxed)
        }),
        ("isochrone_commands_unknown_total", counter, "Commands of unknown fate.", |k| {
            k.unknown.load(Relaxed)
        }),
        ("isochrone_leader_changes_total", counter, "Times a process of this node began to lead.", |k| {
            k.leader_changes.load(Relaxed)
        }),
        ("isochrone_leader", gauge, "Whether a process of this node leads.", |k| {
            k.leads.load(Relaxed).into()
        }),
        ("isochrone_decided_position", gauge, "The furthest position known to be decided.", |k| {
            k.decided.load(Relaxed)
        }),
        ("isochrone_applied_position", gauge, "The furthest position applied.", |k| k.applied.load(Relaxed)),
    ];
    for (name, kind, help, read) in counts {
        for keyspace in &metrics.keyspaces {
            page.value(name, kind, help, &[("keyspace", &keyspace.name)], read(keyspace) as f64);
        }
    }
    let mut counted: BTreeMap<(u16, &str), u64> = BTreeMap::new();
    for process in &status.processes {
        for (what, count) in &process.counted {
            *counted.entry((process.keyspace, what)).or_default() += count;
        }
    }
    for ((keyspace, what), count) in counted {
        let labels = [("keyspace", keyspace.to_string()), ("what", what.to_owned())];
        let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
        page.value(
            "isochrone_protocol_events_total",
            counter,
            "What processes counted, by their names for it.",
            &labels,
            count as f64,
        );
    }

    let journal = &metrics.journal;
    page.durations(
        "isochrone_journal_sync_duration_seconds",
        "How long a sync of the journal took.",
        &journal.syncs,
    );
    page.value(
        "isochrone_journal_written_bytes_total",
        counter,
        "Bytes written to the journal.",
        &[],
        journal.bytes.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_records_total",
        counter,
        "Records written.",
        &[],
        journal.records.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_frames_total",
        counter,
        "Writes, each with one sync.",
        &[],
        journal.frames.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_batches_total",
        counter,
        "Batches handed to the journal.",
        &[],
        journal.batches.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_queued_batches",
        gauge,
        "Batches that wait for the disk.",
        &[],
        journal.queued.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_bytes",
        gauge,
        "Bytes of the journal on disk.",
        &[],
        journal.segment_bytes.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_journal_segments",
        gauge,
        "Segments in use.",
        &[],
        journal.segments.load(Relaxed) as f64,
    );

    for peer in &status.peers {
        page.value(
            "isochrone_peer_connected",
            gauge,
            "Whether there is a link.",
            &[("peer", &peer.name)],
            number(peer.connected),
        );
    }
    for peer in &status.peers {
        if let Some(millis) = peer.round_trip_ms {
            page.value(
                "isochrone_peer_round_trip_time_seconds",
                gauge,
                "The last round trip.",
                &[("peer", &peer.name)],
                millis / 1e3,
            );
        }
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_queued_bytes",
            gauge,
            "Bytes that wait for the peer.",
            &[("peer", &peer.name)],
            peer.queued_bytes as f64,
        );
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_messages_sent_total",
            counter,
            "Messages handed to the link.",
            &[("peer", &peer.name)],
            peer.sent as f64,
        );
    }
    for peer in &status.peers {
        for (reason, count) in peer.dropped {
            page.value(
                "isochrone_peer_messages_dropped_total",
                counter,
                "Messages dropped, as a network may.",
                &[("peer", &peer.name), ("reason", reason)],
                count as f64,
            );
        }
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_connects_total",
            counter,
            "Links made.",
            &[("peer", &peer.name)],
            peer.connects as f64,
        );
    }
    for peer in &status.peers {
        page.value(
            "isochrone_peer_failures_total",
            counter,
            "Links broken or not made.",
            &[("peer", &peer.name)],
            peer.failures as f64,
        );
    }
    page.value(
        "isochrone_peer_malformed_frames_total",
        counter,
        "Frames that ended their connection.",
        &[],
        metrics.malformed_frames.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_peer_greetings_refused_total",
        counter,
        "Of other clusters, versions or nodes.",
        &[],
        metrics.refused_greetings.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_misaddressed_messages_total",
        counter,
        "For processes that do not run here.",
        &[],
        metrics.misaddressed.load(Relaxed) as f64,
    );

    page.value("isochrone_clients", gauge, "Client connections.", &[], metrics.clients.load(Relaxed) as f64);
    page.value(
        "isochrone_requests_in_flight",
        gauge,
        "Commands under way.",
        &[],
        metrics.in_flight.load(Relaxed) as f64,
    );
    page.value(
        "isochrone_gateway_connections_total",
        counter,
        "Clients accepted.",
        &[],
        counters.connections as f64,
    );
    page.value(
        "isochrone_gateway_malformed_total",
        counter,
        "Connections ended by input that was not the protocol.",
        &[],
        counters.malformed as f64,
    );
    page.value(
        "isochrone_gateway_login_failures_total",
        counter,
        "Logins refused.",
        &[],
        counters.login_failures as f64,
    );
    for (name, count) in &counters.commands {
        page.value(
            "isochrone_gateway_commands_total",
            counter,
            "Commands taken in.",
            &[("command", name)],
            *count as f64,
        );
    }
    for (code, count) in &counters.errors {
        page.value(
            "isochrone_gateway_errors_total",
            counter,
            "Commands answered with an error.",
            &[("code", code)],
            *count as f64,
        );
    }
    for (limit, count) in &counters.limited {
        page.value(
            "isochrone_limit_reached_total",
            counter,
            "Times a limit was met.",
            &[("limit", limit)],
            *count as f64,
        );
    }
    for (limit, value) in state.limits.named() {
        page.value(
            "isochrone_limit",
            gauge,
            "The limits of this node, in seconds, bytes or counts.",
            &[("limit", limit)],
            value,
        );
    }
    page.finish()
}
