//! Nodes, and the connections to them.

use crate::call::{self, Login, Meaning, meaning};
use crate::error::{Code, Error, causes};
use crate::keyspace::Keyspace;
use crate::resolver::{self, RESOLVE};
use isochrone_proto::health::{HealthCheckRequest, HealthClient, ServingStatus};
use isochrone_proto::v1::isochrone_client::IsochroneClient;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};

/// How long a connection may take once the address is known ([`RESOLVE`]), and as long again a handshake of TLS on it; or both,
/// and an answer on it.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// After how long a node is asked whether it is there that is silent in a call, and how long it may take to say so. Not so
/// short that the question is late behind what a slow link has still to carry.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(5));
/// A node that is silent for so long is not there: were it, a keep-alive would have been answered.
pub(crate) const SILENCE: Duration = KEEP_ALIVE.0.saturating_add(KEEP_ALIVE.1);
/// How often it is looked whether a node before the one that is asked serves again, and how long that may take.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
/// How many calls are under way at a node at once, but for those that end a transaction: fewer than a node takes on a
/// connection (1024, the default of its limit `pipeline`), so that what waits for the keys of a transaction does not keep it
/// from its end.
pub(crate) const TURNS: usize = 768;
/// What TLS says of an answer that is none of its own.
const NO_TLS: &str = "received corrupt message";
/// What helps where somebody listens who is not understood.
const SPEAKS: &str =
    "name the address of a node's `grpc`, and give an authority if, and only if, it speaks TLS";
/// The largest answer, bytes: what nodes hold is limited by them.
const ANSWER_MOST: usize = 1 << 30;

/// Connections to the nodes of a cluster. Cheap to clone; all clones share them. They live with the runtime in which the
/// client was built: once that has ended, build another.
///
/// Of one client, clones and all, 768 calls are under way at a node at once, and the others wait; those that end a transaction
/// do not wait for them. Where the node's limit `pipeline` is no higher than that (it is 1024 where nothing is said), they may
/// all the same wait behind calls that wait for the transaction's keys.
#[derive(Clone)]
pub struct Client {
    nodes: Arc<Nodes>,
}

/// The nodes, and which of them is asked.
pub(crate) struct Nodes {
    all: Vec<Node>,
    login: Login,
    asked: Mutex<Asked>,
}

struct Asked {
    place: usize,
    /// When that was last changed, or another last looked at.
    since: Instant,
    /// One for each node.
    callers: Vec<Caller>,
}

/// One node, as calls are made to it.
pub(crate) type Caller = IsochroneClient<InterceptedService<Channel, Login>>;

struct Node {
    address: String,
    endpoint: Endpoint,
    /// [`TURNS`] of them, for calls that end no transaction.
    turns: Semaphore,
}

/// What a client is made of.
#[derive(Clone)]
pub struct Builder {
    nodes: Vec<String>,
    login: Option<(String, String)>,
    authority: Option<Vec<u8>>,
    server_name: Option<String>,
    insecure: bool,
    keep_alive: (Duration, Duration),
}

impl Client {
    /// Connects to these nodes (`host:port`, each where its `grpc` listens), in plain text and without a password. The
    /// first is asked as long as it answers, then the next, until the first serves again. Whether one is a node, and serves, it
    /// says by its health check, which a proxy before it has to pass on.
    ///
    /// # Errors
    /// An address that is none, or none of them answers.
    pub async fn connect(nodes: impl IntoIterator<Item = impl Into<String>>) -> Result<Client, Error> {
        Client::builder(nodes).connect().await
    }

    /// The same with a user, a password and TLS.
    pub fn builder(nodes: impl IntoIterator<Item = impl Into<String>>) -> Builder {
        let nodes = nodes.into_iter().map(Into::into).collect();
        Builder {
            nodes,
            login: None,
            authority: None,
            server_name: None,
            insecure: false,
            keep_alive: KEEP_ALIVE,
        }
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

    /// A node that owes an answer, and from which nothing was heard for so long, is asked whether it is there. Where it does
    /// not say so within `patience`, the connection counts as broken, for all calls on it. 3 s and 5 s where nothing is said;
    /// take more where a link is so slow that it carries a value for longer. Each is at least 1 ms.
    #[must_use]
    pub fn keep_alive(mut self, after: Duration, patience: Duration) -> Builder {
        let least = Duration::from_millis(1);
        self.keep_alive = (after.max(least), patience.max(least));
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// An address that is none, an authority without a certificate, a password that would go in plain text, or no node answers.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.unconnected()?;
        client.nodes.find().await?;
        Ok(client)
    }

    /// A client that connects at its first call.
    pub(crate) fn unconnected(self) -> Result<Client, Error> {
        if self.nodes.is_empty() {
            return Err(Error::Setup("no nodes; name at least one, such as 10.0.0.1:7400".to_owned()));
        }
        let login = Login::of(self.login.as_ref())?;
        if let Some(pem) = &self.authority {
            has_certificates(pem)?;
        }
        let node = |address: &String| -> Result<Node, Error> {
            let endpoint = self.endpoint(address)?;
            Ok(Node { address: address.clone(), endpoint, turns: Semaphore::new(TURNS) })
        };
        let all = self.nodes.iter().map(node).collect::<Result<Vec<_>, Error>>()?;
        let callers = all.iter().map(|node| caller(&node.endpoint, &login)).collect();
        let asked = Mutex::new(Asked { place: 0, since: Instant::now(), callers });
        Ok(Client { nodes: Arc::new(Nodes { all, login, asked }) })
    }

    fn endpoint(&self, node: &str) -> Result<Endpoint, Error> {
        let wrong = |why: String| Error::Setup(format!("{node:?} is no address: {why}; write host:port"));
        // What stands before it may be a password, which is not for a text that is logged.
        if node.contains('@') {
            return Err(Error::Setup(
                "an address holds `@`, which none does; write host:port, and give user and password by login()"
                    .to_owned(),
            ));
        }
        if node.contains('/') {
            return Err(wrong("it holds `/`, as a URL or a path does".to_owned()));
        }
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{node}").parse().map_err(|error| wrong(format!("{error}")))?;
        let (host, Some(_)) = (uri.host().unwrap_or_default().to_owned(), uri.port_u16()) else {
            let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let large = node.rsplit_once(':').is_some_and(|(_, port)| digits(port));
            let why = if large { "its port is above 65535" } else { "it has no port" };
            return Err(wrong(why.to_owned()));
        };
        if self.login.is_some() && self.authority.is_none() && !self.insecure && !is_loopback(&host) {
            return Err(Error::Setup(format!(
                "the password would go to {node} in plain text; give the authority of the nodes' certificates, or \
                 allow it with insecure()"
            )));
        }
        let endpoint = Endpoint::from(uri)
            .http2_keep_alive_interval(self.keep_alive.0)
            .keep_alive_timeout(self.keep_alive.1);
        let Some(pem) = &self.authority else { return Ok(endpoint) };
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)).timeout(CONNECT);
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
    /// The node to ask for a call that has passed so many by, and its place. Where others than the first are asked, it is
    /// looked now and then whether one before serves again, in the background: no call waits for that, or fails by it.
    pub(crate) fn current(self: &Arc<Self>, passed: usize) -> (usize, Caller) {
        let mut asked = self.asked();
        let place = asked.place;
        if place > 0
            && asked.since.elapsed() >= LOOK
            && let Ok(runtime) = Handle::try_current()
        {
            asked.since = Instant::now();
            for before in 0..place {
                let nodes = Arc::clone(self);
                runtime.spawn(async move { nodes.look(before).await });
            }
        }
        let place = (place + passed) % self.all.len();
        (place, asked.callers[place].clone())
    }

    /// Its place alone.
    pub(crate) fn place(&self, passed: usize) -> usize {
        (self.asked().place + passed) % self.all.len()
    }

    /// Asks the node at this place from now on if it serves, and none before it is asked.
    async fn look(&self, place: usize) {
        let Node { endpoint, .. } = &self.all[place];
        let serves = tokio::time::timeout(LOOK, serves(endpoint)).await;
        if !matches!(serves, Ok(Ok(true))) {
            return;
        }
        let mut asked = self.asked();
        if place < asked.place {
            asked.place = place;
            // What became of the connection that it has left, nobody knows.
            asked.callers[place] = caller(endpoint, &self.login);
        }
    }

    /// Asks the first that answers, so that a wrong address is found; the others are connected to when needed.
    async fn find(&self) -> Result<(), Error> {
        let mut failures = Vec::new();
        for Node { address, endpoint, .. } in &self.all {
            let time = if is_name(endpoint.uri()) { RESOLVE + CONNECT } else { CONNECT };
            let why = match tokio::time::timeout(time, serves(endpoint)).await {
                // One that does not serve yet says so itself when it is called.
                Ok(Ok(_)) => break,
                Ok(Err(status)) => match meaning(&status) {
                    Meaning::Unsent(why) if why.contains(NO_TLS) => format!("{why}; {SPEAKS}"),
                    Meaning::Unsent(why) => why,
                    // A node refuses that only where it is asked by too many.
                    Meaning::Refused(Error::Refused { code: Code::Limit, .. }) => break,
                    Meaning::Refused(error) => format!("{error}; {SPEAKS}"),
                    Meaning::TryAgain(why) | Meaning::Lost(why) => format!("{why}; {SPEAKS}"),
                },
                Err(_) => format!("no answer within {} s; {SPEAKS}", time.as_secs()),
            };
            failures.push(format!("{address}: {why}"));
        }
        if failures.len() == self.all.len() {
            return Err(Error::Unreachable(failures.join("; ")));
        }
        self.asked().place = failures.len();
        Ok(())
    }

    /// The node at this place is down: the next is asked from now on, unless another was chosen meanwhile.
    pub(crate) fn avoid(&self, place: usize) {
        let mut asked = self.asked();
        if asked.place == place {
            asked.place = (place + 1) % self.all.len();
            asked.since = Instant::now();
        }
    }

    /// How many there are: at least one.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn address(&self, place: usize) -> &str {
        &self.all[place].address
    }

    pub(crate) fn turns(&self, place: usize) -> &Semaphore {
        &self.all[place].turns
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls this node, on a connection that is made at the first call.
fn caller(endpoint: &Endpoint, login: &Login) -> Caller {
    IsochroneClient::with_interceptor(resolver::channel(endpoint, CONNECT), login.clone())
        .max_decoding_message_size(ANSWER_MOST)
        .max_encoding_message_size(ANSWER_MOST)
}

/// Whether this node says that it serves, on a connection of its own: one on which nobody logs in is closed by the node, and
/// a call that was just sent would be lost with it.
async fn serves(endpoint: &Endpoint) -> Result<bool, Status> {
    let request = call::within(HealthCheckRequest::default(), LOOK);
    let answer = HealthClient::new(resolver::channel(endpoint, CONNECT)).check(request).await?;
    Ok(answer.into_inner().status() == ServingStatus::Serving)
}

/// Refuses an authority by which no node could be trusted: its text names none.
fn has_certificates(pem: &[u8]) -> Result<(), Error> {
    let wrong =
        |why: String| Error::Setup(format!("the authority {why}; give the text of ca.pem, not its path"));
    let found: Result<Vec<CertificateDer<'_>>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(format!("is damaged: {error}")))?;
    match RootCertStore::empty().add_parsable_certificates(found) {
        (0, _) => Err(wrong("holds no certificate".to_owned())),
        _ => Ok(()),
    }
}

/// Whether its host has to be looked up.
fn is_name(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.parse::<std::net::IpAddr>().is_err()
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_work_is_said_before_it_is_tried() {
        let error = |builder: Builder| async { builder.connect().await.unwrap_err().to_string() };
        assert!(error(Client::builder(Vec::<String>::new())).await.contains("name at least one"));
        assert!(error(Client::builder(["10.0.0.1"])).await.contains("has no port; write host:port"));
        assert!(error(Client::builder(["10.0.0.1:99999"])).await.contains("above 65535; write host:port"));
        for odd in ["http://10.0.0.1:7400", "10.0.0.1:7400/x"] {
            assert!(error(Client::builder([odd])).await.contains("it holds `/`"), "{odd}");
        }
        let with_password = error(Client::builder(["app:secret@10.0.0.1:7400"])).await;
        assert!(with_password.contains("login()") && !with_password.contains("secret"), "{with_password}");
        let plain = Client::builder(["10.0.0.1:7400"]).login("app", "secret");
        assert!(!format!("{plain:?}").contains("secret"));
        assert!(error(plain).await.contains("in plain text"));
        let odd = Client::builder(["127.0.0.1:1"]).login("a:b", "secret");
        assert!(error(odd).await.contains("holds a colon"));
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        let no_certificate = format!("{begin}\nbm9uZQ==\n{end}\n");
        for none in ["", "/etc/isochrone/ca.pem", &no_certificate] {
            let odd = error(Client::builder(["127.0.0.1:1"]).authority(none)).await;
            assert!(odd.contains("holds no certificate; give the text of ca.pem"), "{none}: {odd}");
        }
        let cut = error(Client::builder(["127.0.0.1:1"]).authority(format!("{begin}\nMIIB\n"))).await;
        assert!(cut.contains("the authority is damaged"), "{cut}");
        let nobody = Client::builder(["127.0.0.1:1"]);
        assert!(error(nobody).await.starts_with("no node answers: 127.0.0.1:1: "));
    }
}
