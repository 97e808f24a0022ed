//! Asks a node of `isochrone up` about the network that is emulated, and gives orders about it.

use super::told::Network;
use crate::status::ask::block;
use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use isochrone_core::deployment::Address;
use std::time::Duration;

/// A node that has not answered for so long does not; it gives up itself when `up` has not taken its turn for 3 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer that is read, bytes: it grows with the square of the number of regions.
const ANSWER_MAX: usize = 16 << 20;
/// The longest line that is passed on, bytes.
const LINE_MAX: usize = 300;

/// The network as it stands; none where nothing is emulated.
pub(super) fn show(address: &Address) -> anyhow::Result<Option<Network>> {
    let (status, body) = send(Method::GET, address, "/net", Bytes::new())?;
    match status {
        StatusCode::OK => network(address, &body).map(Some),
        StatusCode::NOT_FOUND => Ok(None),
        _ => bail!("{address}: {}", line(status, &body)),
    }
}

/// Gives an order about a region, or about all; the network as it stands then.
pub(super) fn order(address: &Address, path: &str, region: Option<&str>) -> anyhow::Result<Network> {
    let order = serde_json::json!({ "region": region }).to_string();
    let (status, body) = send(Method::POST, address, path, Bytes::from(order))?;
    match status {
        StatusCode::OK => network(address, &body),
        _ => bail!("{address}: {}\n  how it stands, says: isochrone net show", line(status, &body)),
    }
}

fn send(method: Method, address: &Address, path: &str, body: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    let answer = block(async {
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = async {
            let (head, body) = client.request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| anyhow!("{error}"))?;
            anyhow::Ok((head.status, body.to_bytes()))
        };
        let late = || anyhow!("no answer within {} s", PATIENCE.as_secs());
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(late()))
    })?;
    answer.with_context(|| address.to_string())
}

fn network(address: &Address, body: &[u8]) -> anyhow::Result<Network> {
    match serde_json::from_slice::<Network>(body) {
        Ok(network) if network.is_whole() => Ok(network),
        _ => bail!("{address}: something answers there, but no `isochrone up` of this version"),
    }
}

/// Why it was not done: a node says it in a line.
fn line(status: StatusCode, body: &[u8]) -> String {
    let line = std::str::from_utf8(body).unwrap_or_default().trim_end();
    let good = !line.is_empty() && line.len() <= LINE_MAX && !line.contains(char::is_control);
    if good { line.to_owned() } else { format!("it answers {status}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_network_is_taken_for_one_and_only_a_line_is_passed_on() {
        let address = Address::loopback(8001);
        let pair = r#"{"cluster":"c","regions":[{"region":"A","cut":true},{"region":"B","cut":false}],"links":[{"from":"A","to":"B","round_trip_ms":1.5,"cut":true}]}"#;
        let read = network(&address, pair.as_bytes()).unwrap();
        assert_eq!((read.regions[0].cut, read.links[0].round_trip_ms, read.changed), (true, 1.5, None));
        let unlinked = pair.split("\"links\"").next().unwrap().to_owned() + "\"links\":[]}";
        for other in ["{}", "<html>", r#"{"cluster":"c","regions":[],"links":[]}"#, &unlinked] {
            let why = network(&address, other.as_bytes()).unwrap_err().to_string();
            assert!(why.contains("no `isochrone up`"), "{other}: {why}");
        }
        assert_eq!(line(StatusCode::CONFLICT, b"try again\n"), "try again");
        for other in [&b"\x1b[2J"[..], b"", b"\xff", &[b'x'; LINE_MAX + 1]] {
            assert_eq!(line(StatusCode::CONFLICT, other), "it answers 409 Conflict");
        }
    }
}
