//! Nodes, and the connections to them.

use crate::call::Login;
use crate::error::Error;
use crate::keyspace::Keyspace;
use isochrone_proto::v1::isochrone_client::IsochroneClient;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a silent node is asked whether it is there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// The largest answer, bytes: what nodes hold is limited by them.
const ANSWER_MOST: usize = 1 << 30;

/// Connections to the nodes of a cluster. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct Client {
    nodes: Arc<Nodes>,
}

/// The nodes, and which of them is asked.
pub(crate) struct Nodes {
    all: Vec<Node>,
    current: AtomicUsize,
}

/// One node, as calls are made to it.
pub(crate) type Caller = IsochroneClient<InterceptedService<Channel, Login>>;

struct Node {
    address: String,
    caller: Caller,
}

/// What a client is made of.
#[derive(Clone)]
pub struct Builder {
    nodes: Vec<String>,
    login: Option<(String, String)>,
    authority: Option<Vec<u8>>,
    server_name: Option<String>,
    insecure: bool,
}

impl Client {
    /// Connects to these nodes (`host:port`, each where its `grpc` listens), in plain text and without a password. The
    /// first is asked as long as it answers, then the next.
    ///
    /// # Errors
    /// An address that is none, or none of them answers.
    pub async fn connect(nodes: impl IntoIterator<Item = impl Into<String>>) -> Result<Client, Error> {
        Client::builder(nodes).connect().await
    }

    /// The same with a user, a password and TLS.
    pub fn builder(nodes: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        let nodes = nodes.into_iter().map(Into::into).collect();
        Builder { nodes, login: None, authority: None, server_name: None, insecure: false }
    }

    /// A keyspace by its name in the deployment file. Whether there is one is found at its first use.
    pub fn keyspace(&self, name: impl Into<String>) -> Keyspace {
        Keyspace::new(Arc::clone(&self.nodes), name.into())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.nodes.all.iter().map(|node| &node.address)).finish()
    }
}

impl Builder {
    /// Logs in as this user: one of those that Redis clients log in as.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> Builder {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// Speaks TLS, and trusts certificates of this authority: the text of `ca.pem`, as `isochrone cert` writes it.
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Builder {
        self.authority = Some(pem.into());
        self
    }

    /// The name that the nodes' certificates must carry, where it is not that of their addresses.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Builder {
        self.server_name = Some(name.into());
        self
    }

    /// Allows a password to be sent in plain text beyond this machine.
    #[must_use]
    pub fn insecure(mut self) -> Builder {
        self.insecure = true;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// An address that is none, a password that would go in plain text, or no node answers.
    pub async fn connect(self) -> Result<Client, Error> {
        if self.nodes.is_empty() {
            return Err(Error::Setup("no nodes; name at least one, such as 10.0.0.1:7400".to_owned()));
        }
        let login = Login::of(self.login.as_ref())?;
        let endpoints =
            self.nodes.iter().map(|node| self.endpoint(node)).collect::<Result<Vec<_>, Error>>()?;
        let mut failures = Vec::new();
        // Someone must answer now, so that a wrong address is found here; the others are connected to when needed.
        for (address, endpoint) in self.nodes.iter().zip(&endpoints) {
            match endpoint.connect().await {
                Ok(_) => break,
                Err(error) => failures.push(format!("{address}: {}", causes(&error))),
            }
        }
        if failures.len() == endpoints.len() {
            return Err(Error::Unreachable(failures.join("; ")));
        }
        let node = |(address, endpoint): (&String, &Endpoint)| {
            let caller = IsochroneClient::with_interceptor(endpoint.connect_lazy(), login.clone())
                .max_decoding_message_size(ANSWER_MOST)
                .max_encoding_message_size(ANSWER_MOST);
            Node { address: address.clone(), caller }
        };
        let all = self.nodes.iter().zip(&endpoints).map(node).collect();
        let nodes = Nodes { all, current: AtomicUsize::new(failures.len()) };
        Ok(Client { nodes: Arc::new(nodes) })
    }

    fn endpoint(&self, node: &str) -> Result<Endpoint, Error> {
        let wrong = |why: String| Error::Setup(format!("{node:?} is no address: {why}; write host:port"));
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{node}").parse().map_err(|error| wrong(format!("{error}")))?;
        let (host, Some(_)) = (uri.host().unwrap_or_default().to_owned(), uri.port_u16()) else {
            return Err(wrong("it has no port".to_owned()));
        };
        if self.login.is_some() && self.authority.is_none() && !self.insecure && !is_loopback(&host) {
            return Err(Error::Setup(format!(
                "the password would go to {node} in plain text; give the authority of the nodes' certificates, or \
                 allow it with insecure()"
            )));
        }
        let endpoint = Endpoint::from(uri)
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1);
        let Some(pem) = &self.authority else { return Ok(endpoint) };
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        endpoint.tls_config(tls).map_err(|error| Error::Setup(format!("TLS: {}", causes(&error))))
    }
}

impl fmt::Debug for Builder {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.login.as_ref().map(|(user, _)| user);
        f.debug_struct("Builder").field("nodes", &self.nodes).field("user", &user).finish_non_exhaustive()
    }
}

impl Nodes {
    /// The node that is asked now, and its place.
    pub(crate) fn current(&self) -> (usize, Caller) {
        let place = self.current.load(Relaxed) % self.all.len();
        (place, self.all[place].caller.clone())
    }

    /// The node at this place does not serve: the next is asked from now on, unless another was chosen meanwhile.
    pub(crate) fn avoid(&self, place: usize) {
        let next = (place + 1) % self.all.len();
        // Where it fails, somebody was here before.
        let _ = self.current.compare_exchange(place, next, Relaxed, Relaxed);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// An error with what has caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_work_is_said_before_it_is_tried() {
        let error = |builder: Builder| async { builder.connect().await.unwrap_err().to_string() };
        assert!(error(Client::builder(Vec::<String>::new())).await.contains("name at least one"));
        assert!(error(Client::builder(["10.0.0.1"])).await.contains("has no port; write host:port"));
        let plain = Client::builder(["10.0.0.1:7400"]).login("app", "secret");
        assert!(!format!("{plain:?}").contains("secret"));
        assert!(error(plain).await.contains("in plain text"));
        let odd = Client::builder(["127.0.0.1:1"]).login("a:b", "secret");
        assert!(error(odd).await.contains("holds a colon"));
        let nobody = Client::builder(["127.0.0.1:1"]);
        assert!(error(nobody).await.starts_with("no node answers: 127.0.0.1:1: "));
    }
}
