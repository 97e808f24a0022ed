//! `grpc.health.v1.Health`: whether this node serves, for whoever starts it anew where it does not, or chooses between nodes.
//!
//! It says what `/readyz` says, to whoever reaches the port: probes show no credentials, and it is no secret. So what it costs
//! is bounded: a connection on which nobody logs in ends as every other does, but for those that watch, and of these there are
//! so many at most, on each connection and on all of them.

use super::socket::{Peer, WATCHES};
use crate::metrics::NodeMetrics;
use crate::reactor::Board;
use isochrone_proto::health::{Health, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use isochrone_proto::v1::isochrone_server::SERVICE_NAME;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{BoxStream, async_trait};
use tonic::{Request, Response, Status};

/// How often it is looked whether those who watch are to be told something.
const LOOK: Duration = Duration::from_millis(250);
/// At most so many watch, and no more than this part of the connections that there may be: each may hold one for ever without
/// having logged in.
const WATCHERS: usize = 1_024;
const PART: usize = 4;

/// Answers health checks.
pub(super) struct Checks {
    standing: Standing,
    metrics: Arc<NodeMetrics>,
    places: Arc<Semaphore>,
    /// Its sender is dropped when the server ends.
    ending: watch::Receiver<()>,
}

/// What can be said of each service.
#[derive(Clone)]
struct Standing {
    board: Arc<Board>,
    keyspaces: Arc<[String]>,
}

impl Standing {
    /// The node is meant by no name and by that of its service, a keyspace by its own.
    fn of(&self, service: &str) -> Option<ServingStatus> {
        let status = self.board.status();
        let serves = match service {
            "" | SERVICE_NAME => status.ready,
            name if self.keyspaces.iter().any(|keyspace| keyspace == name) => {
                let keyspace = status.keyspaces.iter().find(|keyspace| keyspace.name == name);
                status.able && keyspace.is_some_and(|keyspace| keyspace.ready)
            }
            _ => return None,
        };
        Some(if serves { ServingStatus::Serving } else { ServingStatus::NotServing })
    }
}

impl Checks {
    /// Of a node with these keyspaces, where so many clients may be connected.
    pub(super) fn new(
        board: Arc<Board>,
        keyspaces: Vec<String>,
        clients: usize,
        metrics: Arc<NodeMetrics>,
        ending: watch::Receiver<()>,
    ) -> Checks {
        let standing = Standing { board, keyspaces: keyspaces.into() };
        let watchers = (clients / PART).clamp(1, WATCHERS);
        Checks { standing, metrics, places: Arc::new(Semaphore::new(watchers)), ending }
    }
}

#[async_trait]
impl Health for Checks {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let found = self.standing.of(&request.get_ref().service);
        found.map(|status| Response::new(told(status))).ok_or_else(|| {
            let text = "no such service, and no such keyspace; ask for a keyspace by its name, or for the node by none";
            Status::not_found(text)
        })
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckResponse>>, Status> {
        let full = |text: String| {
            self.metrics.grpc.limited("watches");
            Status::resource_exhausted(text)
        };
        let peer = request.extensions().get::<Peer>();
        // The connection is waited for as one whose client waits to be told something.
        let asking = peer.map(Peer::asks);
        let own = peer.map(|peer| {
            let text = format!("{WATCHES} watch on this connection already; end one, or use Check");
            peer.watch().ok_or_else(|| full(text))
        });
        let own = own.transpose()?;
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| full("too many watch the health of this node already; use Check".to_owned()))?;
        let service = request.into_inner().service;
        let (standing, mut ending) = (self.standing.clone(), self.ending.clone());
        let (to, statuses) = mpsc::channel(1);
        tokio::spawn(async move {
            let _held = (place, own, asking);
            let mut last = None;
            loop {
                // No keyspace is added to a node that runs, so this stays so.
                let now = standing.of(&service).unwrap_or(ServingStatus::ServiceUnknown);
                if last.replace(now) != Some(now) && to.send(Ok(told(now))).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = to.closed() => return,
                    _ = ending.changed() => {
                        // Who has not taken the last one yet is cut off with its connection.
                        let _ = to.try_send(Err(Status::unavailable("this node stops; ask another")));
                        return;
                    }
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(statuses))))
    }
}

fn told(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
