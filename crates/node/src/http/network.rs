//! The network that the host of a node emulates, shown and changed under `/net`. Nodes that run for real have no such place.
//!
//! It is changed by whoever is on this machine, as what the cluster holds may be, but by no page. No token has to be carried from the
//! terminal where the cluster runs to the next; what it keeps away elsewhere is kept away otherwise: a page whose own name
//! leads to this machine is known by that name, and no page sends JSON to another origin without asking first, in vain.

use super::door::Caller;
use super::{near, refusal, text};
use crate::network::{Ask, Order};
use crate::reactor::Responder;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State as Shared};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;
use tokio::sync::oneshot;

/// What is said of it to whoever asks for something else.
pub(super) const PLACES: &str = "and of the emulated network GET /net, and POST /net/cut and /net/heal with {\"region\": \"...\"} as JSON\n";

/// How long the host may take: it looks several times a second.
const HOST_TIME: Duration = Duration::from_secs(3);

/// Where orders go.
type Line = SyncSender<Order>;

/// The places.
pub(super) fn router<S>(line: Line) -> Router<S> {
    Router::new()
        .route("/net", get(show))
        .route("/net/cut", post(cut))
        .route("/net/heal", post(heal))
        .with_state(line)
}

async fn show(Shared(line): Shared<Line>) -> Response {
    ask(line, Ask::Show).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cut {
    /// The region's name.
    region: String,
}

async fn cut(
    Shared(line): Shared<Line>,
    ConnectInfo(from): ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let read = serde_json::from_slice(&body).map(|Cut { region }| Ask::Cut(region));
    order(line, &from.0, &headers, read, "send {\"region\": \"...\"}").await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Heal {
    /// The region's name; all where there is none.
    region: Option<String>,
}

async fn heal(
    Shared(line): Shared<Line>,
    ConnectInfo(from): ConnectInfo<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let read = serde_json::from_slice(&body).map(|Heal { region }| Ask::Heal(region));
    order(line, &from.0, &headers, read, "send {\"region\": \"...\"}, or {} for all").await
}

/// Passes on what was read of a caller that may change something, or says what would be `right` to send.
async fn order(
    line: Line,
    from: &SocketAddr,
    headers: &HeaderMap,
    read: serde_json::Result<Ask>,
    right: &str,
) -> Response {
    if let Err(refusal) = allowed(from, headers) {
        return refusal.into_response();
    }
    match read {
        Ok(what) => ask(line, what).await,
        Err(error) => bad(&format!("{error}; {right}")),
    }
}

/// Refuses callers that may change nothing.
fn allowed(from: &SocketAddr, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    near(from, headers)?;
    let host = text(headers, header::HOST).parse::<Authority>();
    if !host.is_ok_and(|host| is_here(host.host())) {
        return Err(refusal("orders come to 127.0.0.1, [::1] or localhost, by that name"));
    }
    let kind = text(headers, header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return Err(refusal("orders are JSON: send the header Content-Type: application/json"));
    }
    Ok(())
}

/// Whether this is a name of the machine itself that no name server can give to another.
fn is_here(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn bad(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

async fn ask(line: Line, ask: Ask) -> Response {
    let (answer, answered) = oneshot::channel();
    let respond: Responder = Box::new(move |outcome| drop(answer.send(outcome)));
    let late = |why: &str| (StatusCode::CONFLICT, format!("{why}\n")).into_response();
    match line.try_send(Order { ask, respond }) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => return late("too many orders wait already; try again"),
        Err(TrySendError::Disconnected(_)) => return late("the cluster is stopping"),
    }
    match tokio::time::timeout(HOST_TIME, answered).await {
        Ok(Ok(Ok(json))) => ([(header::CONTENT_TYPE, "application/json")], json + "\n").into_response(),
        Ok(Ok(Err(why))) => bad(&why),
        Ok(Err(_)) | Err(_) => late("no answer; it may still happen"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_here_and_no_page_changes_anything() {
        let here = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let refused = |from: SocketAddr, headers: &[(header::HeaderName, &'static str)]| {
            let headers = headers.iter().cloned();
            let headers: HeaderMap =
                headers.map(|(name, value)| (name, header::HeaderValue::from_static(value))).collect();
            allowed(&from, &headers).err().map(|(status, why)| {
                assert_eq!(status, StatusCode::FORBIDDEN);
                why
            })
        };
        let json = (header::CONTENT_TYPE, "application/json");
        for host in ["127.0.0.1:8001", "localhost:9001", "LOCALHOST", "[::1]:8001", "127.8.8.8"] {
            assert_eq!(refused(here, &[(header::HOST, host), json.clone()]), None, "{host}");
        }
        let local = (header::HOST, "127.0.0.1:8001");
        let of_here = (header::ORIGIN, "http://127.0.0.1:8001");
        assert_eq!(refused(here, &[local.clone(), json.clone(), of_here]), None);

        let far = SocketAddr::from(([10, 0, 0, 1], 40_000));
        let said = refused(far, &[local.clone(), json.clone()]).unwrap();
        assert!(said.contains("loopback only"), "{said}");
        for origin in ["http://evil", "null", "http://127.0.0.1:9999"] {
            let said = refused(here, &[local.clone(), json.clone(), (header::ORIGIN, origin)]).unwrap();
            assert!(said.contains("another origin"), "{origin}: {said}");
        }
        // A page whose own name leads to this machine is of one origin with what it asks.
        let rebound = [(header::HOST, "evil:8001"), (header::ORIGIN, "http://evil:8001"), json];
        for headers in [&rebound[..], &rebound[..1], &rebound[..0]] {
            let said = refused(here, headers).unwrap();
            assert!(said.contains("by that name"), "{said}");
        }
        // What a form of any page may send.
        for kind in [Some("text/plain"), Some("application/x-www-form-urlencoded"), None] {
            let kind = kind.map(|kind| (header::CONTENT_TYPE, kind));
            let headers: Vec<_> = [local.clone()].into_iter().chain(kind).collect();
            let said = refused(here, &headers).unwrap();
            assert!(said.contains("orders are JSON"), "{said}");
        }
    }
}
