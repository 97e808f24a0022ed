//! How connections to nodes are made: as the transport makes them by itself, but that no name is looked up for ever.

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

/// How long the name of a node's address may take to be resolved: as long as it takes to ask a second name server where the
/// first is silent, which is 5 s as a rule.
pub(crate) const RESOLVE: Duration = Duration::from_secs(10);

/// A channel to this node, whose connection is made at its first call, within `connect` once the address is known.
pub(crate) fn channel(endpoint: &Endpoint, connect: Duration) -> Channel {
    channel_by(endpoint, connect, GaiResolver::new())
}

fn channel_by<R>(endpoint: &Endpoint, connect: Duration, resolver: R) -> Channel
where
    R: Service<Name, Error = io::Error> + Clone + Send + Sync + 'static,
    R::Response: Iterator<Item = SocketAddr>,
    R::Future: Send + 'static,
{
    let mut connector = HttpConnector::new_with_resolver(Bounded(resolver));
    connector.enforce_http(false);
    connector.set_nodelay(true);
    // Here and not at the endpoint, where that would count as a break: a call was never sent on what was not connected.
    connector.set_connect_timeout(Some(connect));
    endpoint.connect_with_connector_lazy(connector)
}

/// A resolver that gives up in time.
#[derive(Clone)]
struct Bounded<R>(R);

impl<R> Service<Name> for Bounded<R>
where
    R: Service<Name, Error = io::Error> + 'static,
    R::Future: Send + 'static,
{
    type Response = R::Response;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<R::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let host = name.to_string();
        let found = self.0.call(name);
        Box::pin(async move {
            let late = |_| {
                let text = format!("the name {host} was not resolved within {} s", RESOLVE.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            };
            tokio::time::timeout(RESOLVE, found).await.unwrap_or_else(late)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Meaning, meaning};
    use isochrone_proto::health::{HealthCheckRequest, HealthClient};
    use tokio::time::Instant;

    /// A name server that never answers.
    #[derive(Clone)]
    struct Silent;

    impl Service<Name> for Silent {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = io::Error;
        type Future = std::future::Pending<Result<Self::Response, io::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            std::future::pending()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_not_resolved_in_time_is_said_and_nothing_was_sent() {
        let endpoint = Endpoint::from_static("http://n1.example:7400");
        let channel = channel_by(&endpoint, Duration::from_secs(5), Silent);
        let start = Instant::now();
        let status =
            HealthClient::new(channel).check(tonic::Request::new(HealthCheckRequest::default())).await;
        let status = status.unwrap_err();
        let took = start.elapsed();
        assert!(took >= RESOLVE && took < RESOLVE + Duration::from_secs(1), "{took:?}");
        let Meaning::Unsent(why) = meaning(&status) else { panic!("{status:?}") };
        assert!(why.contains("the name n1.example was not resolved within 10 s"), "{why}");
    }
}
