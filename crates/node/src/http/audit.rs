//! Orders over HTTP go into the audit log with what became of them: the one place that all of them pass.

use super::BODY_MAX;
use super::door::Caller;
use crate::audit::{Act, Audit, Decision, Pending, text};
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State as Shared};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// Carries out an order, and tells of it.
pub(super) async fn told(
    Shared(audit): Shared<Audit>,
    ConnectInfo(from): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the order is too long, or not whole\n").into_response();
    };
    let order = match head.method {
        Method::GET => head.uri.query().map(str::to_owned),
        // As it was understood; of an order that was not, nothing is kept.
        _ => serde_json::from_slice::<Value>(&body).ok().map(|order| order.to_string()),
    };
    let act = format!("{} {}", head.method, head.uri.path());
    let address = Some(from.0.to_string());
    let act = Act { address, object: order, ..Act::new("http", act, Decision::Allowed) };
    let pending = Pending::new(&audit, act);
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    let (head, body) = response.into_parts();
    // It is text of this node's own.
    let said = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let why = (!head.status.is_success()).then(|| text(said.trim_ascii_end()));
    match head.status {
        status if status.is_success() => pending.ends(Decision::Allowed, why),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => pending.of_stranger().ends(Decision::Denied, why),
        // What is said of it repeats what it was.
        StatusCode::BAD_REQUEST => {
            pending.nameless().ends(Decision::Failed, Some("it was not understood".to_owned()));
        }
        _ => pending.ends(Decision::Failed, why),
    }
    Response::from_parts(head, Body::from(said))
}
