//! Asks nodes how they stand, all at once.

use super::told::Told;
use anyhow::Context;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use isochrone_core::deployment::Address;
use std::error::Error;
use std::time::Duration;

/// A node that has not answered for so long does not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Nor does one that counts as gone.
pub(crate) const GLANCE: Duration = Duration::from_secs(1);
/// The largest answer that is read, bytes: a node has few processes, and thousands of partitions at most.
const ANSWER_MAX: usize = 16 << 20;

type Asker = Client<HttpConnector, Empty<Bytes>>;

/// What each of these addresses answers, or why it does not.
pub(crate) fn ask(addresses: &[Address]) -> anyhow::Result<Vec<Result<Told, String>>> {
    let places: Vec<_> = addresses.iter().map(|address| (address.clone(), PATIENCE)).collect();
    ask_within(&places)
}

/// The same, each with the time within which it is to answer.
pub(crate) fn ask_within(places: &[(Address, Duration)]) -> anyhow::Result<Vec<Result<Told, String>>> {
    block(async {
        let client: Asker = Client::builder(TokioExecutor::new()).build_http();
        let asked: Vec<_> = places
            .iter()
            .map(|(address, patience)| {
                let (client, address, patience) = (client.clone(), address.to_string(), *patience);
                tokio::spawn(async move {
                    let answer = tokio::time::timeout(patience, status(&client, &address)).await;
                    answer.unwrap_or_else(|_| Err(format!("no answer within {} s", patience.as_secs())))
                })
            })
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.push(answer.await?);
        }
        Ok(answers)
    })?
}

/// Does this, on a runtime of its own.
pub(crate) fn block<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start what waits for answers")?;
    let done = runtime.block_on(work);
    // A look-up of a name that hangs is left to itself.
    runtime.shutdown_background();
    Ok(done)
}

async fn status(client: &Asker, address: &str) -> Result<Told, String> {
    let place = format!("http://{address}/status").parse().map_err(|error| format!("{error}"))?;
    let answer = client.get(place).await.map_err(|error| cause(&error))?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| error.to_string())?;
    read(&Response::from_parts(head, body.to_bytes()))
}

fn read(answer: &Response<Bytes>) -> Result<Told, String> {
    let other = || "something answers there, but no node of Isochrone".to_owned();
    match answer.status() {
        StatusCode::OK => {
            let told: Told = serde_json::from_slice(answer.body()).map_err(|_| other())?;
            if told.node.is_empty() { Err(other()) } else { Ok(told) }
        }
        // It says why in a line.
        StatusCode::SERVICE_UNAVAILABLE => {
            let line = std::str::from_utf8(answer.body()).unwrap_or_default().trim_end();
            let good = !line.is_empty() && line.len() < 100 && !line.contains(char::is_control);
            Err(if good { line.to_owned() } else { other() })
        }
        _ => Err(other()),
    }
}

/// The innermost cause: what the system says.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_is_taken_for_one() {
        let answer = |status: u16, body: &'static str| {
            read(&Response::builder().status(status).body(Bytes::from_static(body.as_bytes())).unwrap())
        };
        assert_eq!(answer(200, r#"{"node": "va1", "of": "later"}"#).unwrap().node, "va1");
        assert_eq!(answer(503, "reading the journal\n").unwrap_err(), "reading the journal");
        for (status, body) in
            [(200, "{}"), (200, "<html>"), (404, "not found"), (503, ""), (503, "\u{1b}[2J")]
        {
            let why = answer(status, body).unwrap_err();
            assert!(why.contains("no node of Isochrone"), "{status} {body}: {why}");
        }
    }
}
