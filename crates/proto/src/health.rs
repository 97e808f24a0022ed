//! `grpc.health.v1`, gRPC's own service of health checks, as its specification has it
//! (`grpc/health/v1/health.proto` of grpc-proto): what probes, load balancers and meshes ask.
//!
//! By hand, since it is two short messages that will never change.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, BoxFuture, BoxStream, Bytes, Service, StdError, async_trait, http};
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// What the paths of all methods begin with.
pub const PATH: &str = "/grpc.health.v1.Health/";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// The longest request that a server reads, bytes: names are short.
const REQUEST_MAX: usize = 4 << 10;

/// What is asked about.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HealthCheckRequest {
    /// The name of a service; empty for the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// How it stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct HealthCheckResponse {
    /// A [`ServingStatus`].
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// Whether a service serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, ::prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Nobody knows.
    Unknown = 0,
    /// It does.
    Serving = 1,
    /// It does not now.
    NotServing = 2,
    /// There is none of this name. Only Watch says so; Check answers NOT_FOUND.
    ServiceUnknown = 3,
}

/// What answers health checks.
#[async_trait]
pub trait Health: Send + Sync + 'static {
    /// How a service stands now.
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status>;

    /// How it stands now, and again whenever that has changed.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckResponse>>, Status>;
}

/// Serves health checks.
pub struct HealthServer<H>(Arc<H>);

impl<H> HealthServer<H> {
    /// Answers them with this.
    pub fn new(health: H) -> HealthServer<H> {
        HealthServer(Arc::new(health))
    }
}

impl<H> Clone for HealthServer<H> {
    fn clone(&self) -> HealthServer<H> {
        HealthServer(Arc::clone(&self.0))
    }
}

impl<H: Health> Service<http::Request<Body>> for HealthServer<H> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let health = Arc::clone(&self.0);
        Box::pin(async move {
            let codec = ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default();
            let mut grpc = tonic::server::Grpc::new(codec).max_decoding_message_size(REQUEST_MAX);
            let path = request.uri().path();
            let (checks, watches) = (path == CHECK, path == WATCH);
            Ok(if checks {
                grpc.unary(Checking(health), request).await
            } else if watches {
                grpc.server_streaming(Watching(health), request).await
            } else {
                Status::unimplemented("there are Check and Watch").into_http()
            })
        })
    }
}

struct Checking<H>(Arc<H>);

impl<H: Health> UnaryService<HealthCheckRequest> for Checking<H> {
    type Response = HealthCheckResponse;
    type Future = BoxFuture<Response<HealthCheckResponse>, Status>;

    fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
        let health = Arc::clone(&self.0);
        Box::pin(async move { health.check(request).await })
    }
}

struct Watching<H>(Arc<H>);

impl<H: Health> ServerStreamingService<HealthCheckRequest> for Watching<H> {
    type Response = HealthCheckResponse;
    type ResponseStream = BoxStream<HealthCheckResponse>;
    type Future = BoxFuture<Response<BoxStream<HealthCheckResponse>>, Status>;

    fn call(&mut self, request: Request<HealthCheckRequest>) -> Self::Future {
        let health = Arc::clone(&self.0);
        Box::pin(async move { health.watch(request).await })
    }
}

/// Asks for health checks.
#[derive(Clone, Debug)]
pub struct HealthClient<T>(tonic::client::Grpc<T>);

impl<T> HealthClient<T>
where
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    /// Asks through this channel.
    pub fn new(channel: T) -> HealthClient<T> {
        HealthClient(tonic::client::Grpc::new(channel))
    }

    /// How a service stands now.
    ///
    /// # Errors
    /// NOT_FOUND where there is none of this name; UNIMPLEMENTED where the server has no health checks.
    pub async fn check(
        &mut self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.ready().await?;
        let path = http::uri::PathAndQuery::from_static(CHECK);
        self.0.unary(request, path, ProstCodec::default()).await
    }

    /// How it stands now, and again whenever that has changed.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where too many watch already; UNIMPLEMENTED where the server has no health checks.
    pub async fn watch(
        &mut self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Streaming<HealthCheckResponse>>, Status> {
        self.ready().await?;
        let path = http::uri::PathAndQuery::from_static(WATCH);
        self.0.server_streaming(request, path, ProstCodec::default()).await
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let late = |error: T::Error| Status::unknown(format!("the channel is not ready: {}", error.into()));
        self.0.ready().await.map_err(late)
    }
}
