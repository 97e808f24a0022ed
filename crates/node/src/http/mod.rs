//! Metrics, health, status and administration over HTTP, on a port and a thread of their own.
//!
//! Reading is open to whoever reaches the port. Changing anything needs the node's token, comes from
//! loopback only, and never from a page of another origin (`trust.md` S17). The network that a
//! host emulates is changed without the token ([`network`]).

mod audit;
mod door;
mod guesses;
mod network;
mod page;

pub(crate) use door::CONNECTIONS;

use crate::audit::Audit;
use crate::background::Background;
use crate::limits::Limits;
use crate::memory::shown;
use crate::network::Order;
use crate::node::Orders;
use crate::protocols::{Administration, Extent};
use crate::reactor::{Board, Control, KeyspaceStatus, PeerStatus, Responder};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Request, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use door::{Caller, Door};
use guesses::Guesses;
use isochrone_core::migration::Stretch;
use isochrone_core::{Blob, KeyspaceId, NodeId, PartitionId, ProcessId, key_hash, key_tag};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::codegen::Service as _;

/// How long an order may take.
const ORDER_TIME: Duration = Duration::from_secs(10);
/// The same where keys are moved, which takes as long as there are keys.
pub(crate) const MOVE_TIME: Duration = Duration::from_secs(600);
/// The largest body of a request, bytes.
const BODY_MAX: usize = 16 << 10;

/// What is said to whoever asks for something else.
const PLACES: &str = "there are GET /healthz, /readyz, /status, /metrics and /admin/ranges?keyspace=NAME, and POST \
                      /admin/move-leader, /admin/add-replica, /admin/remove-replica, /admin/move-range, /admin/stop-process \
                      and /admin/stop\n";

/// What is said to whoever names a process otherwise.
const A_PROCESS: &str = "  write a name of /status in parts, n0/k1/p0/role0/0 as {\"process\": {\"node\": 0, \"keyspace\": 1, \
                         \"partition\": 0, \"role\": 0, \"instance\": 0}}";

/// What the server shows and whom it asks.
pub(crate) struct State {
    pub board: Arc<Board>,
    pub orders: Orders,
    pub limits: Limits,
    pub keyspaces: BTreeMap<String, KeyspaceId>,
    pub nodes: BTreeMap<String, NodeId>,
    pub admin_token: Option<String>,
    pub audit: Option<Audit>,
    pub network: Option<SyncSender<Order>>,
}

/// The server; dropped, it ends.
pub(crate) struct Server {
    served: Arc<OnceLock<Router>>,
    _thread: Background,
}

/// Begins to serve a node that reads its journal: it lives, and is not ready.
pub(crate) fn start(socket: std::net::TcpListener) -> std::io::Result<Server> {
    let served = Arc::new(OnceLock::new());
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .fallback(serve_or_wait)
        .with_state(Arc::clone(&served))
        .into_make_service_with_connect_info::<Caller>();
    let _thread = Background::start("http", socket, async |listener, stopped| {
        tokio::select! {
            outcome = axum::serve(Door::new(listener), router) => {
                if let Err(error) = outcome {
                    tracing::error!(%error, "the HTTP server has stopped");
                }
            }
            _ = stopped => {}
        }
    })?;
    Ok(Server { served, _thread })
}

impl Server {
    /// From now on it serves all of a node that runs.
    pub(crate) fn serve(&self, state: State) {
        // Called once, by the node's builder.
        let _ = self.served.set(router(Arc::new(state)));
    }
}

async fn serve_or_wait(Shared(served): Shared<Arc<OnceLock<Router>>>, request: Request) -> Response {
    match served.get() {
        Some(router) => {
            let Ok(response) = router.clone().call(request).await;
            response
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "reading the journal\n").into_response(),
    }
}

fn router(state: Arc<State>) -> Router {
    let (emulated, also): (Router<Arc<State>>, &str) = match &state.network {
        Some(line) => (network::router(line.clone()), network::PLACES),
        None => (Router::new(), ""),
    };
    let places = format!("{PLACES}{also}");
    let admin: Router<Arc<State>> = Router::new()
        .route("/admin/move-leader", post(move_leader))
        .route("/admin/add-replica", post(add_replica))
        .route("/admin/remove-replica", post(remove_replica))
        .route("/admin/move-range", post(move_range))
        .route("/admin/ranges", get(ranges))
        .route("/admin/stop-process", post(stop_process))
        .route("/admin/stop", post(stop));
    let admin = match &state.audit {
        Some(to) => admin.route_layer(from_fn_with_state(to.clone(), audit::told)),
        None => admin,
    };
    let admin = admin.route_layer(from_fn_with_state(Arc::<Guesses>::default(), guesses::late));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .merge(admin)
        .merge(emulated)
        .fallback((StatusCode::NOT_FOUND, places.clone()))
        .method_not_allowed_fallback((StatusCode::METHOD_NOT_ALLOWED, places))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
        .with_state(state)
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let text = page::page(&state.board, &state.limits);
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
        text += &line(keyspace, &status.peers);
    }
    if !status.ready && !status.keyspaces.is_empty() && status.keyspaces.iter().all(|keyspace| keyspace.ready)
    {
        text += "node: it stops, or its disk hangs\n";
    }
    if status.memory.full {
        let [used, limit] = [status.memory.used_bytes, status.memory.limit_bytes].map(shown);
        text += &format!(
            "node: it uses {used} of memory and may use {limit}: what may make data grow is refused\n"
        );
    }
    (if status.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

/// What is said of one keyspace, by a node with these peers.
fn line(keyspace: &KeyspaceStatus, peers: &[PeerStatus]) -> String {
    let full = match keyspace.full.as_slice() {
        [] => String::new(),
        nodes => format!("; full: {}", nodes.join(", ")),
    };
    format!("{}{full}\n", standing(keyspace, peers))
}

fn standing(keyspace: &KeyspaceStatus, peers: &[PeerStatus]) -> String {
    let (name, (reachable, all)) = (&keyspace.name, keyspace.reachable);
    match (keyspace.replicas, keyspace.ready) {
        (replicas, ready) if keyspace.chosen => {
            let word = if ready { "ready" } else { "no master serves" };
            let waits = match keyspace.awaited.as_slice() {
                [] => String::new(),
                nodes => format!("; waits for {}", nodes.join(" or ")),
            };
            format!("{name}: {word}, {replicas} replicas, {reachable} of {all} nodes reachable{waits}")
        }
        (_, true) => format!("{name}: ready, {reachable} of {all} replicas reachable"),
        (_, false) if reachable > all / 2 => {
            let leader = unheard(keyspace, peers);
            format!("{name}: {leader} is not heard of, {reachable} of {all} replicas reachable")
        }
        (_, false) => format!("{name}: no quorum, {reachable} of {all} replicas reachable"),
    }
}

/// Which leader is not heard of, as far as that can be said: one to which there is no link, or the only one.
fn unheard(keyspace: &KeyspaceStatus, peers: &[PeerStatus]) -> String {
    let down = |name: &str| peers.iter().any(|peer| peer.name == *name && !peer.connected);
    let leaders = || keyspace.leaders.iter().flatten().map(String::as_str);
    let only = leaders().next().filter(|_| keyspace.leaders.len() == 1);
    let found = leaders().find(|leader| down(leader)).or(only);
    found.map_or_else(|| "a leader".to_owned(), |leader| format!("its leader {leader}"))
}

/// What orders about replicas carry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    /// The keyspace's name.
    keyspace: String,
    /// The node's name.
    node: String,
    /// The only partition that is meant; else all of which this node has a replica.
    partition: Option<u16>,
}

const ABOUT_FORM: &str =
    "send {\"keyspace\": \"...\", \"node\": \"...\"}, with \"partition\": 0 for one partition alone";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    process: ProcessId,
}

type Call = (Shared<Arc<State>>, ConnectInfo<Caller>, HeaderMap, Bytes);

async fn move_leader(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    about((shared, from, headers, body), Administration::MoveLeader).await
}

async fn add_replica(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    about((shared, from, headers, body), Administration::AddReplica).await
}

async fn remove_replica(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    about((shared, from, headers, body), Administration::RemoveReplica).await
}

/// What the order to move keys carries: all that a partition serves, or the places from `first` to `last`, or the
/// place of a key, or the keys from one up to another where they are divided by their order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    /// The keyspace's name.
    keyspace: String,
    /// The partition that serves the keys.
    from: u16,
    /// The partition that is to.
    to: u16,
    /// 16 hexadecimal digits.
    first: Option<String>,
    /// 16 hexadecimal digits.
    last: Option<String>,
    /// Keys with its tag lie where it does.
    key: Option<String>,
    /// The first key.
    first_key: Option<String>,
    /// The first key behind them.
    end_key: Option<String>,
}

const RANGE_FORM: &str = "send {\"keyspace\": \"...\", \"from\": 0, \"to\": 1}, with \"key\" or \"first\" and \"last\" (16 \
                          hexadecimal digits) for a part of it, or \"first_key\" and \"end_key\" where keys are divided \
                          by their order";

async fn move_range(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let state = match allowed(&shared.0, &from.0.0, &headers) {
        Ok(state) => state,
        Err(refusal) => return refusal.into_response(),
    };
    let bad = |why: String| (StatusCode::BAD_REQUEST, why).into_response();
    let range: Range = match serde_json::from_slice(&body) {
        Ok(range) => range,
        Err(error) => return bad(format!("{error}; {RANGE_FORM}\n")),
    };
    let keyspace = match known(state, &range.keyspace) {
        Ok(keyspace) => keyspace,
        Err(refusal) => return refusal.into_response(),
    };
    let place = |text: &Option<String>, default| match text {
        Some(text) if text.len() == 16 => u64::from_str_radix(text, 16).ok(),
        Some(_) => None,
        None => Some(default),
    };
    let ring = range.first.is_some() || range.last.is_some();
    let ordered = range.first_key.is_some() || range.end_key.is_some();
    let extent = match (&range.key, place(&range.first, 0), place(&range.last, u64::MAX)) {
        (None, _, _) if ordered && !ring => {
            let first = range.first_key.as_deref().map(Blob::from).unwrap_or_default();
            let end = range.end_key.as_deref().map(Blob::from);
            if end.as_ref().is_some_and(|end| *end <= first) {
                return bad(format!("there is no key between these; {RANGE_FORM}\n"));
            }
            Extent::Keys { first, end }
        }
        (None, _, _) if !ring && !ordered => Extent::All,
        (None, Some(first), Some(last)) if first <= last && !ordered => Extent::Ring(Stretch { first, last }),
        (Some(key), _, _) if !ring && !ordered => {
            let place = key_hash(keyspace, key_tag(key.as_bytes()));
            Extent::Ring(Stretch { first: place, last: place })
        }
        _ => return bad(format!("these are no places of the ring; {RANGE_FORM}\n")),
    };
    let [from, to] = [range.from, range.to].map(PartitionId);
    let what = Administration::MoveRange { extent, from, to };
    order_for(state, MOVE_TIME, |respond| Control::Administer(keyspace, None, what, respond)).await
}

/// The keyspace of this name.
fn known(state: &State, name: &str) -> Result<KeyspaceId, (StatusCode, String)> {
    let keyspace = state.keyspaces.get(name).copied();
    keyspace.ok_or_else(|| {
        let there = names(&state.keyspaces);
        (StatusCode::BAD_REQUEST, format!("there is no keyspace {name:?}; there is: {there}\n"))
    })
}

/// What there is, for whoever has named something else.
fn names<V>(all: &BTreeMap<String, V>) -> String {
    all.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[derive(Deserialize)]
struct OfKeyspace {
    keyspace: String,
}

async fn ranges(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<Caller>,
    headers: HeaderMap,
    query: Result<axum::extract::Query<OfKeyspace>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let state = match allowed(&shared.0, &from.0.0, &headers) {
        Ok(state) => state,
        Err(refusal) => return refusal.into_response(),
    };
    let Ok(query) = query else {
        return (StatusCode::BAD_REQUEST, "say which keyspace: /admin/ranges?keyspace=NAME\n")
            .into_response();
    };
    let keyspace = match known(state, &query.keyspace) {
        Ok(keyspace) => keyspace,
        Err(refusal) => return refusal.into_response(),
    };
    order(state, |respond| Control::Administer(keyspace, None, Administration::Ranges, respond)).await
}

async fn stop_process(
    shared: Shared<Arc<State>>,
    from: ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let state = match allowed(&shared.0, &from.0.0, &headers) {
        Ok(state) => state,
        Err(refusal) => return refusal.into_response(),
    };
    match serde_json::from_slice::<Which>(&body) {
        Ok(Which { process }) => order(state, |respond| Control::StopProcess(process, respond)).await,
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n{A_PROCESS}\n")).into_response(),
    }
}

async fn stop(shared: Shared<Arc<State>>, from: ConnectInfo<Caller>, headers: HeaderMap) -> Response {
    let outcome = allowed(&shared.0, &from.0.0, &headers).map(|state| state.orders.send(Control::Stop));
    match outcome {
        Ok(Ok(())) => (StatusCode::ACCEPTED, "stopping\n").into_response(),
        Ok(Err(error)) => (StatusCode::CONFLICT, format!("{error}\n")).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn about((shared, from, headers, body): Call, what: fn(NodeId) -> Administration) -> Response {
    let state = match allowed(&shared.0, &from.0.0, &headers) {
        Ok(state) => state,
        Err(refusal) => return refusal.into_response(),
    };
    let bad = |why: String| (StatusCode::BAD_REQUEST, why).into_response();
    let About { keyspace, node, partition } = match serde_json::from_slice(&body) {
        Ok(about) => about,
        Err(error) => return bad(format!("{error}; {ABOUT_FORM}\n")),
    };
    let keyspace = match known(state, &keyspace) {
        Ok(keyspace) => keyspace,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(node) = state.nodes.get(&node).copied() else {
        let there = names(&state.nodes);
        return bad(format!("there is no node {node:?}; there is: {there}\n"));
    };
    let partition = partition.map(PartitionId);
    order(state, |respond| Control::Administer(keyspace, partition, what(node), respond)).await
}

/// Whether this caller may change anything.
fn allowed<'a>(
    state: &'a State,
    from: &SocketAddr,
    headers: &HeaderMap,
) -> Result<&'a State, (StatusCode, String)> {
    near(from, headers)?;
    let Some(token) = &state.admin_token else {
        return Err(refusal("this node was started without an administration token"));
    };
    let shown = text(headers, header::AUTHORIZATION).strip_prefix("Bearer ").unwrap_or_default();
    if !equal(shown.as_bytes(), token.as_bytes()) {
        return Err((StatusCode::UNAUTHORIZED, "send the header Authorization: Bearer <token>\n".to_owned()));
    }
    Ok(state)
}

/// Refuses who is not on this machine, and pages of another origin.
fn near(from: &SocketAddr, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    if !from.ip().is_loopback() {
        return Err(refusal("administration is served on loopback only"));
    }
    let origin = text(headers, header::ORIGIN);
    if !origin.is_empty() && origin.split("://").nth(1) != Some(text(headers, header::HOST)) {
        return Err(refusal("pages of another origin may change nothing"));
    }
    Ok(())
}

fn refusal(why: &str) -> (StatusCode, String) {
    (StatusCode::FORBIDDEN, format!("{why}\n"))
}

/// A header's text; nothing where there is none.
fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Compares in a time that depends on the lengths only.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

async fn order(state: &State, order: impl FnOnce(Responder) -> Control) -> Response {
    order_for(state, ORDER_TIME, order).await
}

async fn order_for(state: &State, time: Duration, order: impl FnOnce(Responder) -> Control) -> Response {
    let (answer, answered) = oneshot::channel();
    let respond: Responder = Box::new(move |outcome| drop(answer.send(outcome)));
    let outcome = match state.orders.send(order(respond)) {
        Err(error) => Err(error),
        Ok(()) => match tokio::time::timeout(time, answered).await {
            Ok(Ok(outcome)) => outcome,
            _ => Err("no answer; it may still happen".to_owned()),
        },
    };
    match outcome {
        Ok(text) => (StatusCode::OK, format!("{text}\n")).into_response(),
        Err(text) => (StatusCode::CONFLICT, format!("{text}\n")).into_response(),
    }
}
